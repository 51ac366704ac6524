// api/runtime.h -- what sessions share: threads, log, memory.
#ifndef LB_API_RUNTIME_H
#define LB_API_RUNTIME_H

#include "api/found.h"
#include "api/jit.h"
#include "api/passes.h"
#include "api/prefer.h"
#include "base/alloc.h"
#include "base/events.h"
#include "base/log.h"
#include "base/pool.h"
#include "cache/cache.h"
#include "limber/limber.h"

struct limber_runtime {
  lb_pool *pool;  // owned
  lb_kernels kernels;
  lb_found found;
  lb_cache primitives;         // by descriptor and attributes: api/primitive.c
  atomic_size_t n_primitives;  // that live
  _Atomic(struct lb_cpu_code *) code;  // owned; for kernels of blobs, or NULL
  lb_log log;
  lb_alloc alloc;
  void (*user_log)(void *user, int level, const char *line);
  void *log_user;
  lb_events *events;  // owned; NULL: nobody listens
  void (*user_event)(void *user, const limber_event *event);
  void *event_user;
  bool deterministic;   // what sessions are that do not say
  lb_prefer prefer;     // likewise
  uint64_t passes_off;  // bits of lb_pass_options.off
};

lb_status lb_primitives_init(limber_runtime *r, lb_shelf *shelf);
// Nobody holds a primitive of the runtime.
void lb_primitives_fini(limber_runtime *r);

// `given`, or where that is NULL the default one, which lives for ever.
lb_status lb_runtime_of(limber_runtime *given, limber_runtime **out);

// LB_INVALID unless it is a limber_compile, a limber_compile_ops.
lb_status lb_check_compile(int when);
lb_status lb_check_compile_ops(int ops);

#endif
