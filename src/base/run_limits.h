// base/run_limits.h -- deadline, cancellation and memory limit of one run.
//
// Each run has one lb_run_limits, which one thread checks: before each step,
// each loop iteration and each time step of an RNN. Once exceeded it stays so,
// even if the cancellation flag is cleared again.
#ifndef LB_BASE_RUN_LIMITS_H
#define LB_BASE_RUN_LIMITS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lb_run_limits {
  int64_t start_ns;             // start of the run, monotonic clock
  int64_t deadline_ns;          // monotonic clock; 0: none
  const atomic_int *cancelled;  // borrowed; nonzero ends the run. NULL: never
  size_t memory_limit;          // bytes of values; 0: the session's limit
  enum { LB_LIMITS_NONE, LB_LIMITS_LATE, LB_LIMITS_CANCELLED } found;
} lb_run_limits;

// True if the run must end. False for NULL.
bool lb_run_limits_exceeded(lb_run_limits *b);

// The error of a run that must end; `where` says how far it got.
lb_status lb_run_limits_error(const lb_run_limits *b, const char *where);

#endif
