// worker/fault.h -- runs machine code that may be wrong, and comes back.
//
// It changes how the process takes signals while the code runs: one thread of
// a process at a time.
#ifndef LB_WORKER_FAULT_H
#define LB_WORKER_FAULT_H

#include <stdint.h>

#include "spec/abi.h"

// Calls fn(args). LB_INTERNAL if it touches memory that is not mapped, meets
// an instruction that does not exist here, divides by zero or takes more
// processor time than `limit_ms`.
lb_status lb_fault_run(lb_kernel_fn *fn, const uint64_t *args, int limit_ms);

#endif
