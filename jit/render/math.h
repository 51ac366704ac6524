// render/math.h -- Functions that no instruction computes, as polynomials.
//
// Each writes the instructions of its function for float or double of any
// number of lanes, without calls. A table is a vector: one instruction looks up
// an entry for each lane. The results are the same at every instruction-set
// level and number of lanes. Errors are listed in the README. -0, infinities,
// NaN and denormals are handled as in C.
#ifndef LB_RENDER_MATH_H
#define LB_RENDER_MATH_H

#include "kir/kir.h"
#include "render/emit.h"

// May write blocks, so each is a whole helper function, starting at its entry.
typedef lb_lv lb_math_fn(lb_em *e, lb_lv x);

// X(ID, name): a function of one operand; lb_math32_name, lb_math64_name.
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
#define LB_MATH_WIDE(X) /* float is computed in double */ \
  X(ERFC, erfc)                                           \
  X(TAN, tan)                                             \
  X(ASIN, asin)                                           \
  X(ACOS, acos)                                           \
  X(ATAN, atan)                                           \
  X(SINH, sinh)                                           \
  X(COSH, cosh)                                           \
  X(ASINH, asinh)                                         \
  X(ACOSH, acosh)                                         \
  X(ATANH, atanh)

#define X(ID, name) lb_math_fn lb_math32_##name;
LB_MATH_BOTH(X)
#undef X
#define X(ID, name) lb_math_fn lb_math64_##name;
LB_MATH_BOTH(X)
LB_MATH_WIDE(X)
#undef X

// pow of doubles; full_precision: accurate as a double, else only after
// rounding to float.
lb_lv lb_math64_pow(lb_em *e, lb_lv x, lb_lv y, bool full_precision);

// The function `op` (EXP, ..., REM) of float or double lanes, as a call of an
// inlined helper that is written once per type.
lb_lv lb_math_call(lb_em *e, lb_kop op, const lb_lv *args, unsigned n);

// -- for math_*.c -----------------------------------------------------------

// c[0] + x (c[1] + ...), with one rounding per step.
lb_lv lb_math_poly(lb_em *e, lb_lv x, const double *c, unsigned n);
#define LB_POLY(e, x, c) lb_math_poly(e, x, c, sizeof(c) / sizeof *(c))

// Rounds n to an integer, which is also returned as such; |n| < 2^22, or 2^51
// for doubles.
lb_lv lb_math_round(lb_em *e, lb_lv n, lb_lv *integer);
// Converts integer lanes to float, within the same bounds.
lb_lv lb_math_float(lb_em *e, lb_lv integer);
// 2^n, for integers n for which it is a normal number.
lb_lv lb_math_pow2(lb_em *e, lb_lv n);
// x * 2^floor(n) rounded once, for floats n that are multiples of 1/8, where
// 2^(n/2) is a normal number.
lb_lv lb_math_scale(lb_em *e, lb_lv x, lb_lv n);
// Clamps x to at most `high`, or at least `low`; NaN stays NaN.
lb_lv lb_math_clamp_max(lb_em *e, lb_lv x, double high);
lb_lv lb_math_clamp_min(lb_em *e, lb_lv x, double low);

// For each lane, the table entry selected by the low 3 bits of its index.
lb_lv lb_math_lookup(lb_em *e, const lb_table *table, lb_lv index);

// Whether any lane of c is true.
lb_lv lb_math_any(lb_em *e, lb_lv c);

// fmod of float or double lanes; writes blocks.
lb_lv lb_math_fmod(lb_em *e, lb_lv x, lb_lv y);

#endif
