// base/run_limits.c -- deadline and cancellation of one run.
#include "base/run_limits.h"

#include "base/clock.h"

bool lb_run_limits_exceeded(lb_run_limits *b) {
  if (!b) return false;
  if (b->found) return true;
  if (b->cancelled && atomic_load_explicit(b->cancelled, memory_order_relaxed))
    b->found = LB_LIMITS_CANCELLED;
  else if (b->deadline_ns && lb_clock_ns() >= b->deadline_ns)
    b->found = LB_LIMITS_LATE;
  return b->found != LB_LIMITS_NONE;
}

lb_status lb_run_limits_error(const lb_run_limits *b, const char *where) {
  double ms = (double)(lb_clock_ns() - b->start_ns) * 1e-6;
  return lb_error(LB_CANCELLED, "%s after %.3f ms, %s",
                  b->found == LB_LIMITS_LATE ? "the run's deadline passed"
                                             : "the run was cancelled",
                  ms, where);
}
