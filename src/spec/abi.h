// spec/abi.h -- how a kernel is called: by the library, by the worker that
// tries it, and by the pack.
//
// An object has one function, LB_KERNEL_ENTRY, of type lb_kernel_fn. Its
// arguments are cells of 64 bits, whose number and order depend on the spec
// alone:
//   pointers of outputs, pointers of inputs,
//   the form's dims: rows, cols, k, len, steps,
//   row stride and column stride in elements, of outputs, then of inputs,
//   strides of a run and of a step, of input 0, then of input 1 (CONV, WINDOW),
//   scalars (bits, in the low bytes).
// Panels have their stride in elements (K * 16, of PAIRED K * 8) as row
// stride. Strides that a layout does not have are not read.
#ifndef LB_SPEC_ABI_H
#define LB_SPEC_ABI_H

#include "spec/spec.h"

#define LB_KERNEL_ABI 1  // the version of all this; in messages and on disk
#define LB_KERNEL_ENTRY "limber_kernel"
typedef void lb_kernel_fn(const uint64_t *args);

#define LB_SPEC_MAX_ARGS \
  (3 * (LB_SPEC_MAX_IN + LB_SPEC_MAX_OUT) + LB_SDIMS + 4 + LB_SPEC_MAX_SCALARS)

typedef struct lb_sargs {  // first cell of each
  uint8_t out, in, dims, out_strides, in_strides, taps, scalars, count;
} lb_sargs;
lb_sargs lb_spec_args(const lb_spec *s);

#endif
