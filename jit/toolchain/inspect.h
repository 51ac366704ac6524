// toolchain/inspect.h -- looks at what LLVM made.
#ifndef LB_TOOLCHAIN_INSPECT_H
#define LB_TOOLCHAIN_INSPECT_H

#include <stdbool.h>

#include "base/file.h"

// LB_INTERNAL, naming them, if symbols are missing in the object: the loader
// has no libm and no libc.
lb_status lb_inspect_object(lb_span object);

// False: nothing in the object stores a vector register relative to the stack
// pointer, so none is spilt.
bool lb_inspect_may_spill(lb_span object);

// Counts stores of vector registers to the stack, by the comments LLVM puts
// into assembly.
void lb_inspect_spills(lb_span assembly, uint32_t *all, uint32_t *in_loops);

#endif
