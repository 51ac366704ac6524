// base/caller.h -- what threads inside a run spend on what no run may do.
//
// A run neither compiles nor waits for whoever does, and opens no store. The
// functions that do such things bracket themselves as a *detour*: one that is
// entered by a thread inside a run is counted, with the time it took. The
// count is the process's, and stays 0.
#ifndef LB_BASE_CALLER_H
#define LB_BASE_CALLER_H

#include <stdint.h>

// A run brackets itself; may be nested.
void lb_caller_enter(void);
void lb_caller_leave(void);

int64_t lb_detour_begin(void);  // what end wants to know
void lb_detour_end(int64_t began);
uint64_t lb_detour_us(void);  // of all runs together; a detour takes 1 or more

#endif
