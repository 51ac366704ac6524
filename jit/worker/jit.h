// worker/jit.h -- Compiles a request to a checked object.
//
// This is all of the worker except the process; tests and tools link it. Only
// one thread of a process may use it at a time, because the check replaces
// signal handlers.
#ifndef LB_WORKER_JIT_H
#define LB_WORKER_JIT_H

#include "spec/message.h"
#include "toolchain/toolchain.h"
#include "worker/check.h"

typedef struct lb_jit lb_jit;

// `loader` is borrowed; NULL: objects are not checked.
lb_status lb_jit_new(const lb_loader *loader, lb_jit **out);
void lb_jit_free(lb_jit *j);  // NULL is fine

// `r` may hold any bytes. On success the caller owns *out. An object that this
// machine cannot run is not checked: info->checks is 0. LB_INTERNAL:
// compilation or the check failed; *out is empty.
lb_status lb_jit_compile(lb_jit *j, const lb_request *r, lb_blob *out,
                         lb_object_info *info);

#endif
