// kir/num.h -- One element of any dtype as bits and as a number.
#ifndef LB_KIR_NUM_H
#define LB_KIR_NUM_H

#include "base/dtype.h"

// The bits of x cast to `t`, zero-extended, as a CONST holds them.
uint64_t lb_knum_bits(lb_dtype t, double x);

// The exact value of the bits of a float.
double lb_knum_float(lb_dtype t, uint64_t bits);

// Casts of doubles as kir.h defines them.
int32_t lb_knum_i32(double x);
int64_t lb_knum_i64(double x);
uint64_t lb_knum_u64(double x);
uint16_t lb_knum_bf16(double x);  // one rounding
uint16_t lb_knum_bf16_u(uint64_t x);
uint16_t lb_knum_bf16_i(int64_t x);

// x * y + z of floats with mantissas of at most 12 bits, such that rounding the
// result to float16 or bfloat16 gives the rounding of the exact one.
double lb_knum_fma(double x, double y, double z);

#endif
