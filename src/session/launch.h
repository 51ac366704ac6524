// session/launch.h -- calling a partition's kernel on the pool. Internal to the
// room.
#ifndef LB_SESSION_LAUNCH_H
#define LB_SESSION_LAUNCH_H

#include "base/pool.h"
#include "plan/plan.h"
#include "session/bound.h"

// Runs the kernel over the whole partition: `l` and the zones that follow it.
// `bases` are addresses, by number of the base.
void lb_launch_run(const lb_launch *l, lb_kernel_fn *kernel, lb_pool *pool,
                   const uintptr_t *bases);

// Runs a step that has turns; operands move on with each turn. False if a
// kernel is missing: nothing is run. The compiled one of `without` is not used;
// NULL: all are. Turns that `bound` forbids are left out; it may be NULL.
bool lb_launch_try_turns(const lb_step *step, const lb_slot *without,
                         lb_pool *pool, const uintptr_t *bases,
                         lb_bound *bound);

#endif
