// toolchain/inspect.h -- Inspects LLVM's output.
#ifndef LB_TOOLCHAIN_INSPECT_H
#define LB_TOOLCHAIN_INSPECT_H

#include <stdbool.h>

#include "base/file.h"

// LB_INTERNAL, naming them, if the object has undefined symbols: the loader
// provides neither libm nor libc.
lb_status lb_inspect_object(lb_span object);

// False if all vector stores of the object relative to the stack pointer are
// within `local_bytes`, the kernel's local memory, so that no register is
// spilled. A kernel with local memory must store to all of it.
bool lb_inspect_may_spill(lb_span object, size_t local_bytes);

// Counts stores of vector registers to the stack, by LLVM's comments in the
// assembly. Those of 16 bytes hold scalars and are not counted. `in_loops`
// counts those in innermost loops, and reloads there: outside such loops they
// cost little.
void lb_inspect_spills(lb_span assembly, uint32_t *all, uint32_t *in_loops);

#endif
