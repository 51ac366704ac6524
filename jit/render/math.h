// render/math.h -- functions that no instruction computes, as polynomials.
//
// Each writes the instructions of its function for float or double of any
// number of lanes, without calls. A table is a vector: one instruction takes an
// entry for each lane. The results are the same at every instruction-set level
// and lane count. Errors are listed in the README. -0, infinities, NaN and
// denormals are as in C.
#ifndef LB_RENDER_MATH_H
#define LB_RENDER_MATH_H

#include "kir/kir.h"
#include "render/emit.h"

// May write blocks, so each is all of a function, which it begins.
typedef lb_lv lb_math_fn(lb_em *e, lb_lv x);

// EXP(ID, name): a function of one operand; lb_math32_name, lb_math64_name.
#define LB_MATH_BOTH(X) \
  X(EXP, exp)           \
  X(EXP2, exp2)         \
  X(EXPM1, expm1)       \
  X(LOG, log)           \
  X(LOG2, log2)         \
  X(LOG1P, log1p)       \
  X(ERF, erf)           \
  X(TANH, tanh)         \
  X(SIGMOID, sigmoid)   \
  X(SIN, sin)           \
  X(COS, cos)
#define LB_MATH_WIDE(X) /* floats go by double */ \
  X(ERFC, erfc)                                   \
  X(TAN, tan)                                     \
  X(ASIN, asin)                                   \
  X(ACOS, acos)                                   \
  X(ATAN, atan)                                   \
  X(SINH, sinh)                                   \
  X(COSH, cosh)                                   \
  X(ASINH, asinh)                                 \
  X(ACOSH, acosh)                                 \
  X(ATANH, atanh)

#define X(ID, name) lb_math_fn lb_math32_##name;
LB_MATH_BOTH(X)
#undef X
#define X(ID, name) lb_math_fn lb_math64_##name;
LB_MATH_BOTH(X)
LB_MATH_WIDE(X)
#undef X

// pow of doubles; `fine`: good for a double, else for a float made of it.
lb_lv lb_math64_pow(lb_em *e, lb_lv x, lb_lv y, bool fine);

// The function `op` (EXP, ..., REM) of float or double lanes, as a call of an
// inlined helper that is written once a type.
lb_lv lb_math_call(lb_em *e, lb_kop op, const lb_lv *args, unsigned n);

// -- for math_*.c -----------------------------------------------------------

// c[0] + x (c[1] + ...); rounded once a step.
lb_lv lb_math_poly(lb_em *e, lb_lv x, const double *c, unsigned n);
#define LB_POLY(e, x, c) lb_math_poly(e, x, c, sizeof(c) / sizeof *(c))

// n rounded to an integer, and that integer; |n| < 2^22, or 2^51 of doubles.
lb_lv lb_math_round(lb_em *e, lb_lv n, lb_lv *integer);
// The float of an integer lane, within the same bounds.
lb_lv lb_math_float(lb_em *e, lb_lv integer);
// 2^n, for integers n such that it is a normal number.
lb_lv lb_math_pow2(lb_em *e, lb_lv n);
// x * 2^floor(n) rounded once, for floats n that count eighths, where half of n
// is as above.
lb_lv lb_math_scale(lb_em *e, lb_lv x, lb_lv n);
// x, but at most high, or at least low; NaN stays.
lb_lv lb_math_atmost(lb_em *e, lb_lv x, double high);
lb_lv lb_math_atleast(lb_em *e, lb_lv x, double low);

// For each lane the entry of the table that the low 3 bits of its index name.
lb_lv lb_math_entry(lb_em *e, const lb_table *table, lb_lv index);

// Whether any lane of c is true.
lb_lv lb_math_any(lb_em *e, lb_lv c);

// fmod of float or double lanes; writes blocks.
lb_lv lb_math_fmod(lb_em *e, lb_lv x, lb_lv y);

#endif
