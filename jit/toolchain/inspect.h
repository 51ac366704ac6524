// toolchain/inspect.h -- looks at what LLVM made.
#ifndef LB_TOOLCHAIN_INSPECT_H
#define LB_TOOLCHAIN_INSPECT_H

#include <stdbool.h>

#include "base/file.h"

// LB_INTERNAL, naming them, if symbols are missing in the object: the loader
// has no libm and no libc.
lb_status lb_inspect_object(lb_span object);

// False: all that the object stores of vector registers relative to the stack
// pointer lies within `local_bytes`, the memory of the kernel's own, so none is
// spilt. Code that has such memory must store to all of it.
bool lb_inspect_may_spill(lb_span object, size_t local_bytes);

// Counts stores of vector registers to the stack, by the comments LLVM puts
// into assembly. Those of 16 bytes hold a scalar. `in_loops` are those in loops
// that have none inside, and loads of them there: around such loops they cost
// little.
void lb_inspect_spills(lb_span assembly, uint32_t *all, uint32_t *in_loops);

#endif
