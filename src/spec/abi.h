// spec/abi.h -- the calling convention of kernels, for the library, for the
// worker that tests them, and for the built-in pack.
//
// An object has one function, LB_KERNEL_ENTRY, of type lb_kernel_fn. Its
// arguments are 64-bit cells, whose number and order depend on the spec only:
//   pointers of outputs, pointers of inputs,
//   the form's dims: rows, cols, k, taps_y (attention: keys), taps_x,
//   row stride and column stride in elements, of outputs, then of inputs,
//   tap strides in y and in x, of input 0, then of input 1 (CONV, WINDOW),
//   scalars (bits, in the low bytes).
// The row stride of panels is the stride from panel to panel in elements (K *
// 16; PANEL_K2: K * 8). Strides that a layout does not have are not read.
#ifndef LB_SPEC_ABI_H
#define LB_SPEC_ABI_H

#include "spec/spec.h"

#define LB_KERNEL_ABI 1  // version of this convention; in messages and on disk
#define LB_KERNEL_ENTRY "limber_kernel"
typedef void lb_kernel_fn(const uint64_t *args);

#define LB_SPEC_MAX_ARGS \
  (3 * (LB_SPEC_MAX_IN + LB_SPEC_MAX_OUT) + LB_SDIMS + 4 + LB_SPEC_MAX_SCALARS)

typedef struct lb_sargs {  // index of the first cell of each kind
  uint8_t out, in, dims, out_strides, in_strides, taps, scalars, count;
} lb_sargs;
lb_sargs lb_spec_args(const lb_spec *s);

#endif
