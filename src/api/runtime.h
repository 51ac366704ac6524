// api/runtime.h -- a thread pool, an allocator, a log, a listener to events,
// and what sessions do that do not say.
#ifndef LB_API_RUNTIME_H
#define LB_API_RUNTIME_H

#include "api/passes.h"
#include "api/policy.h"
#include "api/prefer.h"
#include "api/shared.h"
#include "base/alloc.h"
#include "base/events.h"
#include "base/log.h"
#include "base/pool.h"
#include "limber/limber.h"

struct limber_runtime {
  lb_shared *shared;  // the process's
  lb_seat *seat;      // where it sits in the hub
  lb_pool *pool;      // owned
  lb_log log;
  lb_alloc alloc;
  void (*user_log)(void *user, int level, const char *line);
  void *log_user;
  lb_events *events;  // owned; NULL: nobody listens
  void (*user_event)(void *user, const limber_event *event);
  void *event_user;
  bool deterministic;   // what sessions are that do not say
  lb_prefer prefer;     // likewise
  lb_policy policy;     // likewise
  uint64_t passes_off;  // bits of lb_pass_options.off
};

// `given`, or where that is NULL the default one, which lives for ever.
lb_status lb_runtime_of(limber_runtime *given, limber_runtime **out);

// As users of slots: what does not say more than its runtime.
lb_slot_user lb_runtime_user(const limber_runtime *r);

// LB_INVALID unless it is a limber_compile, a limber_compile_ops.
lb_status lb_check_compile(int when);
lb_status lb_check_compile_ops(int ops);

#endif
