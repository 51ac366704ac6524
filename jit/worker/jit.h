// worker/jit.h -- from a request to an object that was tried.
//
// All of the worker but the process: tests and tools link it. One thread of a
// process at a time, as the check changes how signals are taken.
#ifndef LB_WORKER_JIT_H
#define LB_WORKER_JIT_H

#include "spec/message.h"
#include "toolchain/toolchain.h"
#include "worker/check.h"

typedef struct lb_jit lb_jit;

// `loader` is borrowed; NULL: objects are not checked.
lb_status lb_jit_new(const lb_loader *loader, lb_jit **out);
void lb_jit_free(lb_jit *j);  // NULL is fine

// `r` may hold any bytes. On success the caller owns *out. An object for
// another machine than this is not checked: info->checks is 0. LB_INTERNAL:
// the object was wrong, or could not be made; *out is empty.
lb_status lb_jit_compile(lb_jit *j, const lb_request *r, lb_blob *out,
                         lb_object_info *info);

#endif
