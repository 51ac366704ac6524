// base/caller.h -- counts forbidden blocking work on threads that run a model.
//
// A run neither compiles, nor waits for the compiler, nor opens the store.
// Functions that do so bracket themselves as a *detour*. If a thread enters a
// detour while it is inside a run, the time is added to a counter of the
// process, which must stay 0.
#ifndef LB_BASE_CALLER_H
#define LB_BASE_CALLER_H

#include <stdint.h>

// Bracket a run on the calling thread; may be nested.
void lb_caller_enter(void);
void lb_caller_leave(void);

int64_t lb_detour_begin(void);  // returns the argument of lb_detour_end
void lb_detour_end(int64_t began);
uint64_t lb_detour_us(void);  // total of all runs; a detour counts at least 1

#endif
