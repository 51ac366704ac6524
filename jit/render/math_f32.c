// render/math_f32.c -- The functions of float that models use most.
//
// fit.py computed the coefficients.
#include "render/math.h"

static const double exp_c[] = {0x1.p-1, 0x1.5554bp-3, 0x1.555486p-5,
                               0x1.1227eep-7, 0x1.6d98eap-10};
static const double log_c[] = {0x1.55554ap-2,  -0x1.00022p-2, 0x1.99a596p-3,
                               -0x1.54788cp-3, 0x1.226e48p-3, -0x1.0ce078p-3,
                               0x1.07d0fp-3,   -0x1.41ee2p-4};
static const double exp_part_c[] = {0x1.00088p-1, 0x1.555d8cp-3};
static const lb_table exp_eighths =  // 2^(i / 8)
    {0x1.p+0,       0x1.172b84p+0, 0x1.306fep+0,  0x1.4bfdaep+0,
     0x1.6a09e6p+0, 0x1.8ace54p+0, 0x1.ae89fap+0, 0x1.d5818ep+0};
static const lb_table exp_eighths_shifted =  // less i << 20 in the bits
    {0x1.p+0,       0x1.f72b84p-1, 0x1.f06fep-1,  0x1.ebfdaep-1,
     0x1.ea09e6p-1, 0x1.eace54p-1, 0x1.ee89fap-1, 0x1.f5818ep-1};
static const double exp_neg_c[] =  // exp(-r), to be used with the above
    {1, -1, 0x1.00088p-1, -0x1.555d8cp-3};
// Coefficients of the polynomials around i erf_step, i < 8.
static const lb_table erf_c[] = {
    {0, 0x1.1628f6p-1, 0x1.ba0dcep-1, 0x1.f2e95ep-1, 0x1.fe8286p-1,
     0x1.ffe606p-1, 0x1.fffef4p-1, 0x1.fffffap-1},
    {0x1.06eba8p-3, 0x1.b5f7bap-1, 0x1.7d9cf2p-2, 0x1.7e2db6p-4, 0x1.b7eb64p-7,
     0x1.2305e4p-10, 0x1.ba9d7ap-15, 0x1.82fb1cp-20},
    {-0x1.24d7d2p-20, -0x1.ccfad6p-2, -0x1.91aa48p-2, -0x1.2db212p-3,
     -0x1.cf08bap-6, -0x1.7ee258p-9, -0x1.5d5fb4p-13, -0x1.6451e8p-18},
    {-0x1.811a82p-2, -0x1.048d1p-3, 0x1.352c4ap-3, 0x1.fbccacp-4, 0x1.2052eap-5,
     0x1.3766e2p-8, 0x1.5c335cp-12, 0x1.a1dd58p-17},
    {-0x1.a1b34p-11, 0x1.77ccc4p-3, 0x1.a48c56p-5, -0x1.8f3edcp-5,
     -0x1.c4a144p-6, -0x1.5a2636p-8, -0x1.ec5a18p-12, -0x1.643b64p-16},
    {0x1.e667bcp-4, 0x1.a65e4ap-12, -0x1.0b9a18p-4, -0x1.d105b2p-8,
     0x1.97a7bep-7, 0x1.14275ap-8, 0x1.125e22p-11, 0x1.00b67p-15},
    {-0x1.4e068cp-6, -0x1.878e0ap-5, 0x1.1ee3a6p-7, 0x1.095f82p-6,
     -0x1.5aec5p-10, -0x1.21d5f2p-9, -0x1.aec262p-12, -0x1.020df6p-15},
};
static const double erf_step = 0x1.0d738p-1;

static const double log2_e = 0x1.71547652b82fep+0;
static const double ln2 = 0x1.62e42fefa39efp-1;
static const double ln2_high =
    0x1.62e4p-1;  // exact when multiplied by up to 2^8
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

// A number so large that its last bit has the value 1/8.
static const double eighths = 0x1.8p20;

// exp(r) * 2^n, |r| <= ln 2 / 16; n is a multiple of 1/8, and the last bits of
// `big` count its eighths.
static lb_lv exp_scaled(lb_em *e, lb_lv r, lb_lv n, lb_lv big) {
  lb_lv index = lb_em_bitcast(e, big, int_of(big.type));
  lb_lv power = lb_math_lookup(e, &exp_eighths, index);
  lb_lv p = LB_POLY(e, r, exp_part_c);
  p = mad(e, times(e, r, r), p, r);
  return lb_math_scale(e, mad(e, power, p, power), n);
}

lb_lv lb_math32_exp(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  x = lb_math_clamp_min(e, lb_math_clamp_max(e, x, 89), -105);
  lb_lv big = mad(e, x, num(t, log2_e), num(t, eighths));
  lb_lv n = minus(e, big, num(t, eighths));
  lb_lv r = mad(e, n, num(t, -ln2_high), x);
  return exp_scaled(e, mad(e, n, num(t, -ln2_low), r), n, big);
}

lb_lv lb_math32_exp2(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  x = lb_math_clamp_min(e, lb_math_clamp_max(e, x, 129), -151);
  lb_lv big = plus(e, x, num(t, eighths));
  lb_lv n = minus(e, big, num(t, eighths));
  return exp_scaled(e, times(e, minus(e, x, n), num(t, ln2)), n, big);
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

lb_lv lb_math32_expm1(lb_em *e, lb_lv x) {
  lb_lv v = lb_math_clamp_min(e, lb_math_clamp_max(e, x, 89), -18);
  return with_sign(e, expm1_of(e, v), x);
}

lb_lv lb_math32_tanh(lb_em *e, lb_lv x) {
  lb_lv a = magnitude(e, x);
  lb_lv m = expm1_of(e, lb_math_clamp_max(e, plus(e, a, a), 20));
  return with_sign(e, over(e, m, plus(e, m, num(x.type, 2))), x);
}

// 1 + exp(-x) as 1 + 2^n exp(r). The bits of n complete the table entry and
// form the exponent of 2^n, so that scaling takes one shift and one addition. x
// must not be so low that the result is infinite.
static lb_lv sigmoid_inverse(lb_em *e, lb_lv x) {
  lb_lt t = x.type, ti = int_of(t);
  lb_lv big = mad(e, x, num(t, -log2_e), num(t, eighths));
  lb_lv n = minus(e, big, num(t, eighths)), i = lb_em_bitcast(e, big, ti);
  lb_lv r = mad(e, n, num(t, ln2_high), x);  // -r, because x is negated
  r = mad(e, n, num(t, ln2_low), r);
  lb_lv entry = lb_math_lookup(e, &exp_eighths_shifted, i);
  lb_lv bits = iadd(e, lb_em_bitcast(e, entry, ti), ishl(e, i, 20));
  lb_lv p = LB_POLY(e, r, exp_neg_c);
  return mad(e, lb_em_bitcast(e, bits, t), p, num(t, 1));
}

// Clamped at 87, where the result is 1; below -88.7, where exp(-x) is infinite,
// it is 0.
lb_lv lb_math32_sigmoid(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv y = over(e, num(t, 1), sigmoid_inverse(e, lb_math_clamp_max(e, x, 87)));
  return sel(e, below(e, x, num(t, -88.7)), num(t, 0), y);
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
static lb_lv log_tail(lb_em *e, lb_lv f, lb_lv more) {
  lb_lv z = times(e, f, f);
  lb_lv y = mad(e, times(e, z, f), LB_POLY(e, f, log_c), more);
  return mad(e, z, num(f.type, -0.5), y);
}

// r is log(x); replaces it where x is 0, negative, infinite or NaN.
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
  lb_lv tail = log_tail(e, f, mad(e, n, num(t, ln2_low), more));
  lb_lv r = mad(e, n, num(t, ln2_high), plus(e, f, tail));
  return log_edges(e, x, r);
}

lb_lv lb_math32_log(lb_em *e, lb_lv x) { return log_of(e, x, num(x.type, 0)); }

lb_lv lb_math32_log2(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv n, f = log_reduce(e, x, &n);
  lb_lv l = plus(e, f, log_tail(e, f, num(t, 0)));
  return log_edges(e, x, mad(e, l, num(t, log2_e), n));
}

// With u = 1 + x rounded: log(u) + (1 + x - u) / u.
lb_lv lb_math32_log1p(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv one = num(t, 1), u = plus(e, x, one);
  lb_lv lost = over(e, minus(e, x, minus(e, u, one)), u);
  lb_lv valid = below(e, magnitude(e, lost), one);  // false at -1 and infinity
  lb_lv r = log_of(e, u, sel(e, valid, lost, num(t, 0)));
  return sel(e, below(e, magnitude(e, x), num(t, 0x1p-30)), x, r);
}

// x is i erf_step + u, and each i has its own polynomial in u. The first is u +
// u p, so that digits near 0 are preserved; the last one ends at 1.
lb_lv lb_math32_erf(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv a = lb_math_clamp_max(e, magnitude(e, x), 3.93);
  lb_lv big = mad(e, a, num(t, 1 / erf_step), num(t, 0x1.8p23));
  lb_lv i = lb_em_bitcast(e, big, int_of(t));
  lb_lv n = minus(e, big, num(t, 0x1.8p23));
  lb_lv u = mad(e, n, num(t, -erf_step), a);
  lb_lv y = lb_math_lookup(e, &erf_c[6], i);
  for (int k = 5; k > 0; k--) y = mad(e, y, u, lb_math_lookup(e, &erf_c[k], i));
  lb_lv first = lb_em_compare(e, "fcmp oeq", n, num(t, 0));
  lb_lv start = sel(e, first, u, lb_math_lookup(e, &erf_c[0], i));
  return with_sign(e, mad(e, y, u, start), x);
}
