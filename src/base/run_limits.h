// base/run_limits.h -- what may end a run before its last step.
//
// One run has one bound, and one thread looks at it: before each step, each
// turn of a loop, each turn of a recurrence. What it found once stays found,
// even if whoever cancelled takes it back.
#ifndef LB_BASE_RUN_LIMITS_H
#define LB_BASE_RUN_LIMITS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lb_run_limits {
  int64_t start_ns;             // of the monotonic clock: when the run began
  int64_t deadline_ns;          // 0: none
  const atomic_int *cancelled;  // not 0: the run is to end. NULL: never
  size_t memory_limit;          // bytes of values; 0: what the session says
  enum { LB_LIMITS_HOLDS, LB_LIMITS_LATE, LB_LIMITS_CANCELLED } found;
} lb_run_limits;

// True if the run is to end. NULL is fine: it is not.
bool lb_run_limits_exceeded(lb_run_limits *b);

// The error of a run that has to end; `where` says how far it got.
lb_status lb_run_limits_error(const lb_run_limits *b, const char *where);

#endif
