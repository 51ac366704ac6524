// worker/fault.h -- Runs machine code that may be wrong, and survives its
// faults.
//
// The process's signal handlers are replaced while the code runs: only one
// thread of a process may call this at a time.
#ifndef LB_WORKER_FAULT_H
#define LB_WORKER_FAULT_H

#include <stdint.h>

#include "spec/abi.h"

// Calls fn(args). LB_INTERNAL if it accesses unmapped memory, executes an
// instruction that this processor does not have, divides by zero or takes more
// than `limit_ms` of CPU time.
lb_status lb_fault_run(lb_kernel_fn *fn, const uint64_t *args, int limit_ms);

#endif
