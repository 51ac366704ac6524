// device/cpu/submit.h -- running launches on the threads of a pool.
#ifndef LB_DEVICE_CPU_SUBMIT_H
#define LB_DEVICE_CPU_SUBMIT_H

#include "base/bound.h"
#include "base/pool.h"
#include "device/launch.h"

// Runs the kernel over the whole partition: `l` and the zones that follow it.
// `bases` are addresses, by number of the base. Returns when all of it has run.
void lb_cpu_submit(const lb_launch *l, lb_kernel_fn *kernel, lb_pool *pool,
                   const uintptr_t *bases);

// Runs a sequence; operands move on with each iteration. Iterations that
// `bound` forbids are left out; it may be NULL.
void lb_cpu_submit_sequence(const lb_sequence *s, lb_pool *pool,
                            const uintptr_t *bases, lb_bound *bound);

#endif
