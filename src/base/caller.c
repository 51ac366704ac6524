// base/caller.c -- counts forbidden blocking work on threads that run a model.
#include "base/caller.h"

#include <stdatomic.h>

#include "base/clock.h"

static _Thread_local unsigned inside;  // runs this thread is in
static atomic_ullong detour_us;

void lb_caller_enter(void) { inside++; }
void lb_caller_leave(void) { inside--; }

int64_t lb_detour_begin(void) { return inside ? lb_clock_ns() : 0; }

void lb_detour_end(int64_t began) {
  if (!began) return;
  uint64_t us = (uint64_t)(lb_clock_ns() - began) / 1000 + 1;
  atomic_fetch_add_explicit(&detour_us, us, memory_order_relaxed);
}

uint64_t lb_detour_us(void) {
  return atomic_load_explicit(&detour_us, memory_order_relaxed);
}
