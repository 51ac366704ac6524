// api/runtime.h -- a thread pool, an allocator, a log, an event callback, and
// the defaults for the options of sessions.
#ifndef LB_API_RUNTIME_H
#define LB_API_RUNTIME_H

#include "api/checks.h"
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
  lb_shared *shared;  // the shared object of the process; borrowed
  lb_seat *seat;      // its membership of the hub
  lb_pool *pool;      // owned
  lb_log log;
  lb_alloc alloc;
  void (*user_log)(void *user, int level, const char *line);
  void *log_user;
  lb_events *events;  // owned; NULL: there is no event callback
  void (*user_event)(void *user, const limber_event *event);
  void *event_user;
  bool deterministic;   // default for sessions
  bool no_skip;         // default for sessions
  lb_prefer prefer;     // default for sessions
  lb_policy policy;     // default for sessions
  uint64_t passes_off;  // bits of lb_pass_options.off
  unsigned checks;      // bits of lb_memory_check
};

// Returns `given` or, if that is NULL, the default runtime, which is created at
// first use and never destroyed.
lb_status lb_runtime_of(limber_runtime *given, limber_runtime **out);

// Returns the runtime as a user of slots, with no option of a session set.
lb_slot_user lb_runtime_user(const limber_runtime *r);

// Return LB_INVALID unless the number is a limber_compile or a
// limber_compile_ops.
lb_status lb_check_compile(int when);
lb_status lb_check_compile_ops(int ops);

#endif
