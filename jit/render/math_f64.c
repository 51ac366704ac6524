// render/math_f64.c -- Functions of double that are based on exp and log.
//
// fit.py computed the coefficients. A *f64_pair* of doubles (double-double)
// represents their sum; the second holds the rounding error of the first.
#include "render/math_f64.h"

static const double exp_c[] = {
    0x1.0000000000000p-1,  0x1.5555555555559p-3,  0x1.555555555555ap-5,
    0x1.111111110f6b4p-7,  0x1.6c16c16c1446dp-10, 0x1.a01a01afe2c55p-13,
    0x1.a01a01b0ae4e3p-16, 0x1.71ddf85a45034p-19, 0x1.27e4c5b366a3cp-22,
    0x1.af5eb25f4bab8p-26, 0x1.1f9546ef7effdp-29};
static const double log_c[] = {0x1.9999999999b31p-2, 0x1.2492492457b35p-2,
                               0x1.c71c722d98608p-3, 0x1.745ce9d198030p-3,
                               0x1.3b1eef5b70bcdp-3, 0x1.0f7f99cbffcbap-3,
                               0x1.0e45a856ae8f4p-3};

static const double log2_e = 0x1.71547652b82fep+0;
static const double log2_e_low = 0x1.777d0ffda0d24p-56;
static const double ln2_high =
    0x1.62e42fefap-1;  // exact when multiplied by up to 2^11
static const double ln2_low = 0x1.cf79abc9e3b3ap-40;

static lb_lv inf(lb_lt t) { return num(t, __builtin_inf()); }

// x = n ln 2 + r
static lb_lv reduce(lb_em *e, lb_lv x, lb_lv *n, lb_lv *integer) {
  lb_lt t = x.type;
  *n = lb_math_round(e, times(e, x, num(t, log2_e)), integer);
  lb_lv r = mad(e, *n, num(t, -ln2_high), x);
  return mad(e, *n, num(t, -ln2_low), r);
}

// exp(r) - 1
static lb_lv expm1_poly(lb_em *e, lb_lv r) {
  return mad(e, times(e, r, r), LB_POLY(e, r, exp_c), r);
}

lb_lv lb_math64_exp_pair(lb_em *e, lb_lv x, lb_lv low, int k) {
  lb_lt t = x.type;
  lb_lv n, i;
  x = lb_math_clamp_min(e, lb_math_clamp_max(e, x, 720), -760);
  lb_lv r = plus(e, reduce(e, x, &n, &i), low);
  if (k) n = plus(e, n, num(t, k));
  return lb_math_scale(e, plus(e, expm1_poly(e, r), num(t, 1)), n);
}

lb_lv lb_math64_exp(lb_em *e, lb_lv x) {
  return lb_math64_exp_pair(e, x, num(x.type, 0), 0);
}

lb_lv lb_math64_exp2(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv i;
  x = lb_math_clamp_min(e, lb_math_clamp_max(e, x, 1030), -1080);
  lb_lv n = lb_math_round(e, x, &i);
  lb_lv r = times(e, minus(e, x, n), num(t, 0x1.62e42fefa39efp-1));
  return lb_math_scale(e, plus(e, expm1_poly(e, r), num(t, 1)), n);
}

lb_lv lb_math64_sigmoid(lb_em *e, lb_lv x) {
  lb_lv one = num(x.type, 1), inverse = lb_math64_exp(e, lb_em_fneg(e, x));
  return over(e, one, plus(e, one, inverse));
}

// 2^n (p + 1) - 1, computed from halves so that 2^n does not overflow. The sign
// of 0 is lost.
static lb_lv expm1_of(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv n, i;
  lb_lv p = expm1_poly(e, reduce(e, x, &n, &i));
  lb_lv s = lb_math_pow2(e, isub(e, i, lb_em_bits(i.type, 1)));
  lb_lv half = mad(e, p, s, minus(e, s, num(t, 0.5)));
  return plus(e, half, half);
}

lb_lv lb_math64_expm1(lb_em *e, lb_lv x) {
  lb_lv v = lb_math_clamp_min(e, lb_math_clamp_max(e, x, 710), -38);
  return with_sign(e, expm1_of(e, v), x);
}

lb_lv lb_math64_tanh(lb_em *e, lb_lv x) {
  lb_lv a = magnitude(e, x);
  lb_lv m = expm1_of(e, lb_math_clamp_max(e, plus(e, a, a), 44));
  return with_sign(e, over(e, m, plus(e, m, num(x.type, 2))), x);
}

// (e^a - e^-a) / 2; below 1 with expm1, to avoid cancellation.
lb_lv lb_math64_sinh(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv a = magnitude(e, x), zero = num(t, 0), one = num(t, 1);
  lb_lv m = expm1_of(e, lb_math_clamp_max(e, a, 1));
  lb_lv low = plus(e, m, over(e, m, plus(e, m, one)));
  lb_lv h = lb_math64_exp_pair(e, a, zero, -1);
  lb_lv high = minus(e, h, over(e, num(t, 0.25), h));
  lb_lv r = sel(e, below(e, a, one), times(e, low, num(t, 0.5)), high);
  return with_sign(e, r, x);
}

lb_lv lb_math64_cosh(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv h = lb_math64_exp_pair(e, magnitude(e, x), num(t, 0), -1);
  return plus(e, h, over(e, num(t, 0.25), h));
}

// -- logarithms --------------------------------------------------------------

// x = 2^n m, sqrt(1/2) <= m < sqrt(2); x is positive and finite.
static lb_lv log_reduce(lb_em *e, lb_lv x, lb_lv *n) {
  lb_lt t = x.type, ti = int_of(t);
  lb_lv low = lb_em_bits(ti, UINT64_C(0x3fe6a09e667f3bcd));
  lb_lv tiny = below(e, x, num(t, 0x1p-1022));
  x = sel(e, tiny, times(e, x, num(t, 0x1p54)), x);
  lb_lv i = isub(e, lb_em_bitcast(e, x, ti), low);
  *n = lb_math_float(e, lb_em_binary(e, "ashr", i, lb_em_bits(ti, 52)));
  *n = minus(e, *n, sel(e, tiny, num(t, 54), num(t, 0)));
  lb_lv mantissa = iand(e, i, lb_em_bits(ti, UINT64_C(0xfffffffffffff)));
  return lb_em_bitcast(e, iadd(e, mantissa, low), t);
}

// r is log(x); replaces it where x is 0, negative, infinite or NaN.
static lb_lv log_edges(lb_em *e, lb_lv x, lb_lv r) {
  lb_lt t = x.type;
  lb_lv zero = num(t, 0);
  r = sel(e, lb_em_compare(e, "fcmp oeq", x, inf(t)), inf(t), r);
  r = sel(e, lb_em_compare(e, "fcmp oeq", x, zero), num(t, -__builtin_inf()),
          r);
  return sel(e, lb_em_compare(e, "fcmp ult", x, zero),
             num(t, __builtin_nan("")), r);
}

// With s = f / (2 + f): log(1 + f) = 2s + sR = f - s (f - R). Returns the
// second term, plus `more`.
static lb_lv log_tail(lb_em *e, lb_lv f, lb_lv more) {
  lb_lt t = f.type;
  lb_lv s = over(e, f, plus(e, f, num(t, 2)));
  lb_lv z = times(e, s, s);
  lb_lv p = mad(e, z, LB_POLY(e, z, log_c), num(t, 0x1.5555555555555p-1));
  return mad(e, s, minus(e, times(e, z, p), f), more);
}

static lb_lv log_of(lb_em *e, lb_lv x, lb_lv more) {
  lb_lt t = x.type;
  lb_lv n, f = minus(e, log_reduce(e, x, &n), num(t, 1));
  lb_lv tail = log_tail(e, f, mad(e, n, num(t, ln2_low), more));
  lb_lv r = mad(e, n, num(t, ln2_high), plus(e, f, tail));
  return log_edges(e, x, r);
}

lb_lv lb_math64_log(lb_em *e, lb_lv x) { return log_of(e, x, num(x.type, 0)); }

lb_lv lb_math64_log2(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv n, f = minus(e, log_reduce(e, x, &n), num(t, 1));
  lb_lv l = plus(e, f, log_tail(e, f, num(t, 0)));
  lb_lv low = mad(e, l, num(t, log2_e_low), n);
  return log_edges(e, x, mad(e, l, num(t, log2_e), low));
}

// With u = 1 + x rounded: log(u) + (1 + x - u) / u.
static lb_lv log1p_of(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv one = num(t, 1), u = plus(e, x, one);
  lb_lv lost = over(e, minus(e, x, minus(e, u, one)), u);
  lb_lv valid = below(e, magnitude(e, lost), one);  // false at -1 and infinity
  return log_of(e, u, sel(e, valid, lost, num(t, 0)));
}

lb_lv lb_math64_log1p(lb_em *e, lb_lv x) {
  lb_lv tiny = below(e, magnitude(e, x), num(x.type, 0x1p-60));
  return sel(e, tiny, x, log1p_of(e, x));
}

// log(a + sqrt(a a + 1)); from 2^28 on log(a) + log(2).
lb_lv lb_math64_asinh(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv a = magnitude(e, x), one = num(t, 1);
  lb_lv large = lb_em_compare(e, "fcmp oge", a, num(t, 0x1p28));
  lb_lv z = times(e, a, a);
  lb_lv d = plus(e, one, root(e, plus(e, z, one)));
  lb_lv low = log1p_of(e, plus(e, a, over(e, z, d)));
  lb_lv high = log_of(e, a, num(t, 0x1.62e42fefa39efp-1));
  lb_lv r = sel(e, large, high, low);
  r = sel(e, below(e, a, num(t, 0x1p-28)), a, r);
  return with_sign(e, r, x);
}

lb_lv lb_math64_acosh(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv large = lb_em_compare(e, "fcmp oge", x, num(t, 0x1p28));
  lb_lv d = minus(e, x, num(t, 1));
  lb_lv low = log1p_of(e, plus(e, d, root(e, mad(e, d, d, plus(e, d, d)))));
  lb_lv high = log_of(e, x, num(t, 0x1.62e42fefa39efp-1));
  lb_lv r = sel(e, large, high, low);
  return sel(e, lb_em_compare(e, "fcmp ult", x, num(t, 1)),
             num(t, __builtin_nan("")), r);
}

lb_lv lb_math64_atanh(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv a = magnitude(e, x);
  lb_lv u = over(e, plus(e, a, a), minus(e, num(t, 1), a));
  lb_lv r = times(e, log1p_of(e, u), num(t, 0.5));
  r = sel(e, below(e, a, num(t, 0x1p-28)), a, r);
  return with_sign(e, r, x);
}

// -- powers ------------------------------------------------------------------

typedef struct f64_pair {
  lb_lv high, low;
} f64_pair;

// Requires |x| >= |y|, or x = 0.
static f64_pair fast_two_sum(lb_em *e, lb_lv x, lb_lv y) {
  lb_lv s = plus(e, x, y);
  return (f64_pair){s, minus(e, y, minus(e, s, x))};
}

static f64_pair two_product(lb_em *e, lb_lv x, lb_lv y) {
  lb_lv p = times(e, x, y);
  return (f64_pair){p, mad(e, x, y, lb_em_fneg(e, p))};
}

// (m - 1) / (m + 1)
static f64_pair log_ratio(lb_em *e, lb_lv m) {
  lb_lv one = num(m.type, 1), f = minus(e, m, one);
  f64_pair d =
      fast_two_sum(e, one, m);  // either may be the larger; both are near 1
  d.low = plus(e, minus(e, m, minus(e, d.high, one)), num(m.type, 0));
  lb_lv s = over(e, f, d.high);
  lb_lv left = mad(e, lb_em_fneg(e, s), d.high, f);
  left = mad(e, lb_em_fneg(e, s), d.low, left);
  return (f64_pair){s, over(e, left, d.high)};
}

// log(x) as a pair: n log(2) + 2s + s^3 (2/3 + ...), of which all terms but the
// last are computed as pairs.
static f64_pair log_pair(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv n, m = log_reduce(e, x, &n);
  f64_pair s = log_ratio(e, m);
  f64_pair z = two_product(e, s.high, s.high);
  z.low = mad(e, plus(e, s.high, s.high), s.low, z.low);
  f64_pair cube = two_product(e, z.high, s.high);
  cube.low = mad(e, z.high, s.low, mad(e, z.low, s.high, cube.low));
  lb_lv c = num(t, 0x1.5555555555555p-1);
  f64_pair third = two_product(e, cube.high, c);
  third.low = mad(e, cube.high, num(t, 0x1.5555555555555p-55),
                  mad(e, cube.low, c, third.low));
  lb_lv fifth =
      times(e, times(e, cube.high, z.high), LB_POLY(e, z.high, log_c));
  f64_pair a = fast_two_sum(e, plus(e, s.high, s.high), third.high);
  a.low =
      plus(e, a.low, plus(e, fifth, plus(e, third.low, plus(e, s.low, s.low))));
  f64_pair r = fast_two_sum(e, times(e, n, num(t, ln2_high)), a.high);
  r.low = plus(e, r.low, mad(e, n, num(t, ln2_low), a.low));
  return fast_two_sum(e, r.high, r.low);
}

// exp(y log(a)), a >= 0
static lb_lv pow_of(lb_em *e, lb_lv a, lb_lv y, bool full_precision) {
  lb_lt t = a.type;
  lb_lv zero = num(t, 0);
  if (!full_precision)
    return lb_math64_exp_pair(e, times(e, y, lb_math64_log(e, a)), zero, 0);
  f64_pair l = log_pair(e, a);
  l.high = log_edges(e, a, l.high);
  f64_pair p = two_product(e, l.high, y);
  p.low = mad(e, l.low, y, p.low);
  lb_lv in_range = below(e, magnitude(e, p.high), num(t, 800));
  return lb_math64_exp_pair(e, p.high, sel(e, in_range, p.low, zero), 0);
}

static lb_lv is_whole(lb_em *e, lb_lv y) {
  return lb_em_compare(e, "fcmp oeq", unary(e, "llvm.floor", y), y);
}

static lb_lv not_of(lb_em *e, lb_lv c) {
  return ixor(e, c, lb_em_bits(c.type, 1));
}

// Handles signs, 1 and 0 as C99 requires.
lb_lv lb_math64_pow(lb_em *e, lb_lv x, lb_lv y, bool full_precision) {
  lb_lt t = x.type;
  lb_lv a = magnitude(e, x), one = num(t, 1), zero = num(t, 0);
  lb_lv r = pow_of(e, a, y, full_precision);
  r = sel(e, lb_em_compare(e, "fcmp oeq", a, one), one, r);
  r = sel(e, lb_em_compare(e, "fcmp uno", x, y), num(t, __builtin_nan("")), r);
  lb_lv whole = is_whole(e, y);
  lb_lv even = is_whole(e, times(e, y, num(t, 0.5)));
  lb_lv odd = iand(e, whole, not_of(e, even));
  r = sel(e, odd, with_sign(e, r, x), r);
  lb_lv root_of_negative =
      iand(e, below(e, x, zero),
           iand(e, not_of(e, whole), lb_em_compare(e, "fcmp une", a, inf(t))));
  r = sel(e, root_of_negative, num(t, __builtin_nan("")), r);
  r = sel(e, lb_em_compare(e, "fcmp oeq", x, one), one, r);
  return sel(e, lb_em_compare(e, "fcmp oeq", y, zero), one, r);
}
