// base/bound.c -- what may end a run before its last step.
#include "base/bound.h"

#include "base/clock.h"

bool lb_bound_over(lb_bound *b) {
  if (!b) return false;
  if (b->found) return true;
  if (b->cancelled && atomic_load_explicit(b->cancelled, memory_order_relaxed))
    b->found = LB_BOUND_CANCELLED;
  else if (b->deadline_ns && lb_clock_ns() >= b->deadline_ns)
    b->found = LB_BOUND_LATE;
  return b->found != LB_BOUND_HOLDS;
}

lb_status lb_bound_error(const lb_bound *b, const char *where) {
  double ms = (double)(lb_clock_ns() - b->start_ns) * 1e-6;
  return lb_error(LB_CANCELLED, "%s after %.3f ms, %s",
                  b->found == LB_BOUND_LATE ? "the run's time was over"
                                            : "the run was cancelled",
                  ms, where);
}
