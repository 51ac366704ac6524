// spec/abi.c -- the position of each kernel argument.
#include "spec/abi.h"

lb_sargs lb_spec_args(const lb_spec *s) {
  lb_sargs a = {.out = 0, .in = s->n_out};
  a.dims = (uint8_t)(a.in + s->n_in);
  a.out_strides = (uint8_t)(a.dims + lb_spec_dims(s));
  a.in_strides = (uint8_t)(a.out_strides + 2 * s->n_out);
  a.taps = (uint8_t)(a.in_strides + 2 * s->n_in);
  a.scalars = (uint8_t)(a.taps + (lb_spec_has_taps(s) ? 4 : 0));
  a.count = (uint8_t)(a.scalars + s->n_scalars);
  return a;
}
