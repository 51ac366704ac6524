// render/math_f32.c -- the functions that models spend time in, for floats.
//
// Coefficients: fit.py.
#include "render/math.h"

static const double exp_c[] = {0x1.p-1, 0x1.5554bp-3, 0x1.555486p-5,
                               0x1.1227eep-7, 0x1.6d98eap-10};
static const double log_c[] = {0x1.55554ap-2,  -0x1.00022p-2, 0x1.99a596p-3,
                               -0x1.54788cp-3, 0x1.226e48p-3, -0x1.0ce078p-3,
                               0x1.07d0fp-3,   -0x1.41ee2p-4};
static const double erf_low_c[] = {0x1.06eba2p-3, -0x1.812688p-2,
                                   0x1.ce0bbp-4,  -0x1.b5be3p-6,
                                   0x1.42c042p-8, -0x1.28c152p-11};
static const double erf_high_c[] = {
    0x1.ffcaaap-1,  0x1.1d7bd4p-9,   -0x1.64f56p-8,  0x1.11b94p-7,
    -0x1.1a492p-7,  0x1.8ff3aap-8,   -0x1.719358p-9, 0x1.2b59a8p-11,
    0x1.2dfab2p-12, -0x1.24ca6ep-12, 0x1.00b2dep-14, 0x1.621528p-16,
    -0x1.2e371cp-17};

static const double log2_e = 0x1.71547652b82fep+0;
static const double ln2 = 0x1.62e42fefa39efp-1;
static const double ln2_high = 0x1.62e4p-1;  // times 2^8 still exact
static const double ln2_low = 0x1.7f7d1cf79abcap-20;

// x = n ln 2 + r, |r| <= ln 2 / 2.
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

// exp(r) * 2^n
static lb_lv exp_scaled(lb_em *e, lb_lv r, lb_lv n) {
  return lb_math_scale(e, plus(e, expm1_poly(e, r), num(r.type, 1)), n);
}

lb_lv lb_math32_exp(lb_em *e, lb_lv x) {
  lb_lv n, i;
  x = lb_math_atleast(e, lb_math_atmost(e, x, 89), -105);
  lb_lv r = reduce(e, x, &n, &i);
  return exp_scaled(e, r, n);
}

lb_lv lb_math32_exp2(lb_em *e, lb_lv x) {
  lb_lv i;
  x = lb_math_atleast(e, lb_math_atmost(e, x, 129), -151);
  lb_lv n = lb_math_round(e, x, &i);
  return exp_scaled(e, times(e, minus(e, x, n), num(x.type, ln2)), n);
}

// 2^n (p + 1) - 1, of halves lest 2^n overflow. The sign of 0 is lost.
static lb_lv expm1_of(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv n, i;
  lb_lv p = expm1_poly(e, reduce(e, x, &n, &i));
  lb_lv s = lb_math_pow2(e, isub(e, i, lb_em_bits(i.type, 1)));
  lb_lv half = mad(e, p, s, minus(e, s, num(t, 0.5)));
  return plus(e, half, half);
}

lb_lv lb_math32_expm1(lb_em *e, lb_lv x) {
  lb_lv v = lb_math_atleast(e, lb_math_atmost(e, x, 89), -18);
  return with_sign(e, expm1_of(e, v), x);
}

lb_lv lb_math32_tanh(lb_em *e, lb_lv x) {
  lb_lv a = magnitude(e, x);
  lb_lv m = expm1_of(e, lb_math_atmost(e, plus(e, a, a), 20));
  return with_sign(e, over(e, m, plus(e, m, num(x.type, 2))), x);
}

// x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); x is positive and finite.
static lb_lv log_reduce(lb_em *e, lb_lv x, lb_lv *n) {
  lb_lt t = x.type, ti = int_of(t);
  lb_lv low = lb_em_bits(ti, 0x3f3504f3);
  lb_lv tiny = below(e, x, num(t, 0x1p-126));
  x = sel(e, tiny, times(e, x, num(t, 0x1p24)), x);
  lb_lv i = isub(e, lb_em_bitcast(e, x, ti), low);
  *n = lb_math_float(e, lb_em_binary(e, "ashr", i, lb_em_bits(ti, 23)));
  *n = minus(e, *n, sel(e, tiny, num(t, 24), num(t, 0)));
  lb_lv m = iadd(e, iand(e, i, lb_em_bits(ti, 0x7fffff)), low);
  return minus(e, lb_em_bitcast(e, m, t), num(t, 1));
}

// log(1 + f) - f + more
static lb_lv log_rest(lb_em *e, lb_lv f, lb_lv more) {
  lb_lv z = times(e, f, f);
  lb_lv y = mad(e, times(e, z, f), LB_POLY(e, f, log_c), more);
  return mad(e, z, num(f.type, -0.5), y);
}

// r = log of x, or what it is where that is not a number.
static lb_lv log_edges(lb_em *e, lb_lv x, lb_lv r) {
  lb_lt t = x.type;
  lb_lv inf = num(t, __builtin_inf()), zero = num(t, 0);
  r = sel(e, lb_em_compare(e, "fcmp oeq", x, inf), inf, r);
  r = sel(e, lb_em_compare(e, "fcmp oeq", x, zero), num(t, -__builtin_inf()),
          r);
  return sel(e, lb_em_compare(e, "fcmp ult", x, zero),
             num(t, __builtin_nan("")), r);
}

// log(x) + more
static lb_lv log_of(lb_em *e, lb_lv x, lb_lv more) {
  lb_lt t = x.type;
  lb_lv n, f = log_reduce(e, x, &n);
  lb_lv rest = log_rest(e, f, mad(e, n, num(t, ln2_low), more));
  lb_lv r = mad(e, n, num(t, ln2_high), plus(e, f, rest));
  return log_edges(e, x, r);
}

lb_lv lb_math32_log(lb_em *e, lb_lv x) { return log_of(e, x, num(x.type, 0)); }

lb_lv lb_math32_log2(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv n, f = log_reduce(e, x, &n);
  lb_lv l = plus(e, f, log_rest(e, f, num(t, 0)));
  return log_edges(e, x, mad(e, l, num(t, log2_e), n));
}

// With u = 1 + x rounded: log(u) + (1 + x - u) / u.
lb_lv lb_math32_log1p(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv one = num(t, 1), u = plus(e, x, one);
  lb_lv lost = over(e, minus(e, x, minus(e, u, one)), u);
  lb_lv fine = below(e, magnitude(e, lost), one);  // not so at -1, infinity
  lb_lv r = log_of(e, u, sel(e, fine, lost, num(t, 0)));
  return sel(e, below(e, magnitude(e, x), num(t, 0x1p-30)), x, r);
}

// From 1 on a polynomial around 2.5, which is 1 where it ends.
lb_lv lb_math32_erf(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv a = magnitude(e, x);
  lb_lv low = mad(e, a, LB_POLY(e, times(e, x, x), erf_low_c), a);
  lb_lv u = minus(e, lb_math_atmost(e, a, 3.93), num(t, 2.5));
  lb_lv high = lb_math_atmost(e, LB_POLY(e, u, erf_high_c), 1);
  return with_sign(e, sel(e, below(e, a, num(t, 1)), low, high), x);
}
