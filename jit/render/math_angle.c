// render/math_angle.c -- Trigonometric functions, their inverses and the error
// function.
//
// fit.py computed the coefficients.
#include "render/math_f64.h"

static const double sin_c[] = {-0x1.5555555555546p-3,  0x1.111111110f38bp-7,
                               -0x1.a01a019b6ef8ep-13, 0x1.71de34e75813cp-19,
                               -0x1.ae5df3072b937p-26, 0x1.5d711614e0798p-33};
static const double cos_c[] = {0x1.5555555555549p-5,  -0x1.6c16c16c14c27p-10,
                               0x1.a01a019c2860ep-16, -0x1.27e4f7a4416a0p-22,
                               0x1.1ee9a55e4cd91p-29, -0x1.8f89746db1a25p-37};
static const double atan_c[] = {
    -0x1.555555555553dp-2, 0x1.9999999995863p-3,  -0x1.24924922ad9c8p-3,
    0x1.c71c70e632f62p-4,  -0x1.745cf8e041e6ep-4, 0x1.3b111950c7fc0p-4,
    -0x1.10ebb9991e254p-4, 0x1.df0f4d49e4b61p-5,  -0x1.9cd272f441995p-5,
    0x1.37d40d64ed7a4p-5,  -0x1.2564f7bf7b483p-6};
static const double asin_c[] = {
    0x1.5555555555578p-3, 0x1.333333332df7fp-4, 0x1.6db6db72260a5p-5,
    0x1.f1c71a8dc2d51p-6, 0x1.6e8bdfa68a804p-6, 0x1.1c49e2b8dd7bap-6,
    0x1.ca20ce537c5e7p-7, 0x1.757b77d4166cfp-7, 0x1.6173ffb2b5dcdp-7,
    0x1.e2bde63a1761fp-9, 0x1.6492dd54ac959p-6, -0x1.5954bd757e0c9p-6,
    0x1.0bb0739776a4ap-5};
static const double erf_c[] = {
    0x1.06eba8214db68p-3,   -0x1.812746b0379c2p-2,  0x1.ce2f21a041016p-4,
    -0x1.b82ce31206279p-6,  0x1.565bccfa9a183p-8,   -0x1.c02db072e7de0p-11,
    0x1.f9a2bf73182c6p-14,  -0x1.f4ca948fb1e1fp-17, 0x1.b9827ada55b38p-20,
    -0x1.5c16e22ee2883p-23, 0x1.d78490ebfad6cp-27,  -0x1.acdffae147813p-31};
static const double erfcx_c[] = {
    0x1.3ba5916e9fd7fp+0,  -0x1.1df1ad154a28ep-3,  0x1.f7f5df66fd53dp-7,
    0x1.16ecefcfa5336p-4,  -0x1.9ddb23c3e7b28p-4,  0x1.7fee004e13653p-4,
    -0x1.0fb06dfe6dfe0p-4, 0x1.3079edf65413ap-5,   -0x1.0962387d1cf11p-6,
    0x1.49c672984acd3p-8,  -0x1.8d4aa1f0c9f68p-11, -0x1.a1df36e1ff4ccp-13,
    0x1.3be0dec073469p-13, -0x1.99568e18748efp-16, -0x1.78a5256b2758fp-17,
    0x1.7f056372a40a3p-18, 0x1.41ee7c5e32291p-22,  -0x1.b8bd0c4431e32p-21,
    0x1.1ee083afa3582p-24, 0x1.c08f55b6d37f2p-24,  -0x1.a1164ca7a97eap-27,
    -0x1.59f27097686aep-27};

static const double sin32_c[] = {-0x1.555544p-3, 0x1.1106a4p-7,
                                 -0x1.990df8p-13};
static const double cos32_c[] = {0x1.55554ap-5, -0x1.6c0bc4p-10,
                                 0x1.99c844p-16};

// pi / 2 as the sum of three numbers
static const double half_pi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                 -0x1.f1976b7ed8fbcp-110};
static const double half_pi32[] = {0x1.921fb6p+0, -0x1.777a5cp-25,
                                   -0x1.ee59dap-50};

// Returns x itself where |x| is so small that the function equals x, to the
// last bit and the sign of 0; else r.
static lb_lv or_x_if_tiny(lb_em *e, lb_lv x, lb_lv r) {
  return sel(e, below(e, magnitude(e, x), num(x.type, 0x1p-27)), x, r);
}

// -- sine and cosine ---------------------------------------------------------

// Range reduction of an angle to within pi/4. From `far` on pi is not known to
// enough digits; such angles are treated as 0.
typedef struct angle_range {
  const double *half_pi;
  double far;
} angle_range;

static const angle_range range32 = {half_pi32, 0x1p16};
static const angle_range range64 = {half_pi, 0x1p48};

static const angle_range *range_of(lb_lt t) {
  return t.elem == LB_E_F32 ? &range32 : &range64;
}

typedef struct angle {  // x = n pi/2 + r + low
  lb_lv r, low, sin, cos;
  lb_lv n;  // integer
} angle;

static lb_lv is_near(lb_em *e, lb_lv x) {
  return below(e, magnitude(e, x), num(x.type, range_of(x.type)->far));
}

// The first difference is exact: both operands are multiples of the last bit of
// pi/2, and it is below 1.
static angle reduce_angle(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  const double *part = range_of(t)->half_pi;
  angle a;
  // NaN stays NaN, and infinity becomes NaN.
  x = sel(e, is_near(e, x), x, times(e, x, num(t, 0)));
  lb_lv quadrants = times(e, x, num(t, 0x1.45f306dc9c883p-1));  // 2 / pi
  lb_lv n = lb_em_fneg(e, lb_math_round(e, quadrants, &a.n));
  lb_lv first = mad(e, n, num(t, part[0]), x);
  a.r = mad(e, n, num(t, part[1]), first);
  a.low = mad(e, n, num(t, part[1]), minus(e, first, a.r));
  a.low = mad(e, n, num(t, part[2]), a.low);
  return a;
}

static lb_lv sine_poly(lb_em *e, lb_lv z) {
  if (z.type.elem == LB_E_F32) return LB_POLY(e, z, sin32_c);
  return LB_POLY(e, z, sin_c);
}

static lb_lv cosine_poly(lb_em *e, lb_lv z) {
  if (z.type.elem == LB_E_F32) return LB_POLY(e, z, cos32_c);
  return LB_POLY(e, z, cos_c);
}

static void sine_and_cosine(lb_em *e, angle *a) {
  lb_lt t = a->r.type;
  lb_lv one = num(t, 1), z = times(e, a->r, a->r);
  lb_lv zr = times(e, z, a->r);
  a->sin = plus(e, a->r, mad(e, zr, sine_poly(e, z), a->low));
  lb_lv h = times(e, z, num(t, 0.5)), w = minus(e, one, h);
  lb_lv c = times(e, times(e, z, z), cosine_poly(e, z));
  c = minus(e, c, times(e, a->r, a->low));
  a->cos = plus(e, w, plus(e, minus(e, minus(e, one, w), h), c));
}

static lb_lv has_bit(lb_em *e, lb_lv n, uint64_t bit) {
  return lb_em_compare(e, "icmp ne", iand(e, n, lb_em_bits(n.type, bit)),
                       lb_em_bits(n.type, 0));
}

static lb_lv sine_at(lb_em *e, lb_lv x, uint64_t quarters) {
  angle a = reduce_angle(e, x);
  sine_and_cosine(e, &a);
  lb_lv n = iadd(e, a.n, lb_em_bits(a.n.type, quarters));
  lb_lv v = sel(e, has_bit(e, n, 1), a.cos, a.sin);
  return sel(e, has_bit(e, n, 2), lb_em_fneg(e, v), v);
}

lb_lv lb_math64_sin(lb_em *e, lb_lv x) {
  return or_x_if_tiny(e, x, sine_at(e, x, 0));
}

lb_lv lb_math64_cos(lb_em *e, lb_lv x) { return sine_at(e, x, 1); }

// Lanes beyond `far` are computed in double, if there are any.
static lb_lv near_or_far(lb_em *e, lb_math_fn *wide, lb_lv x, lb_lv v) {
  enum { ENTRY, FAR, DONE };
  lb_lv near = is_near(e, x);
  lb_lv far = ixor(e, near, lb_em_bits(near.type, 1));
  lb_em_branch_unlikely(e, lb_math_any(e, far), FAR, DONE);
  lb_em_label(e, FAR);
  lb_lv d = wide(e, lb_em_convert(e, "fpext", x, LB_E_F64));
  lb_lv slow = lb_em_convert(e, "fptrunc", d, LB_E_F32);
  lb_lv mixed = sel(e, near, v, slow);
  lb_em_jump(e, DONE);
  lb_em_label(e, DONE);
  lb_lv r = lb_em_new(e, x.type);
  lb_em_phi(e, r, v, ENTRY, mixed, FAR);
  return r;
}

lb_lv lb_math32_sin(lb_em *e, lb_lv x) {
  lb_lv v = or_x_if_tiny(e, x, sine_at(e, x, 0));
  return near_or_far(e, lb_math64_sin, x, v);
}

lb_lv lb_math32_cos(lb_em *e, lb_lv x) {
  return near_or_far(e, lb_math64_cos, x, sine_at(e, x, 1));
}

lb_lv lb_math64_tan(lb_em *e, lb_lv x) {
  angle a = reduce_angle(e, x);
  sine_and_cosine(e, &a);
  lb_lv odd = has_bit(e, a.n, 1);
  lb_lv up = sel(e, odd, lb_em_fneg(e, a.cos), a.sin);
  return or_x_if_tiny(e, x, over(e, up, sel(e, odd, a.sin, a.cos)));
}

// -- inverse functions -------------------------------------------------------

// atan(a) = base + atan(t), |t| <= tan(pi/8)
lb_lv lb_math64_atan(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv a = magnitude(e, x), one = num(t, 1), zero = num(t, 0);
  lb_lv mid = below(e, num(t, 0x1.a827999fcef32p-2), a);
  lb_lv big = below(e, num(t, 0x1.3504f333f9de6p+1), a);
  lb_lv up = sel(e, big, num(t, -1), sel(e, mid, minus(e, a, one), a));
  lb_lv down = sel(e, big, a, sel(e, mid, plus(e, a, one), one));
  lb_lv base = sel(e, big, num(t, half_pi[0]),
                   sel(e, mid, num(t, half_pi[0] / 2), zero));
  lb_lv low = sel(e, big, num(t, half_pi[1]),
                  sel(e, mid, num(t, half_pi[1] / 2), zero));
  lb_lv v = over(e, up, down), z = times(e, v, v);
  lb_lv tail = mad(e, times(e, v, z), LB_POLY(e, z, atan_c), low);
  return with_sign(e, plus(e, base, plus(e, v, tail)), x);
}

typedef struct arc {  // asin(s) = s + tail
  lb_lv s, tail;
  lb_lv far;  // s is sqrt((1 - a) / 2) instead of a
} arc;

static arc arc_of(lb_em *e, lb_lv a) {
  lb_lt t = a.type;
  arc r;
  r.far = below(e, num(t, 0.5), a);
  lb_lv left = times(e, minus(e, num(t, 1), a), num(t, 0.5));
  lb_lv z = sel(e, r.far, left, times(e, a, a));
  r.s = sel(e, r.far, root(e, left), a);
  r.tail = times(e, times(e, r.s, z), LB_POLY(e, z, asin_c));
  return r;
}

// x - 2 (s + tail), with x given as two doubles
static lb_lv minus_twice(lb_em *e, double high, double low, arc a) {
  lb_lt t = a.s.type;
  lb_lv two = num(t, -2);
  lb_lv tail = mad(e, two, a.tail, num(t, low));
  return plus(e, mad(e, two, a.s, num(t, high)), tail);
}

lb_lv lb_math64_asin(lb_em *e, lb_lv x) {
  arc a = arc_of(e, magnitude(e, x));
  lb_lv far = minus_twice(e, half_pi[0], half_pi[1], a);
  return with_sign(e, sel(e, a.far, far, plus(e, a.s, a.tail)), x);
}

lb_lv lb_math64_acos(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  arc a = arc_of(e, magnitude(e, x));
  lb_lv twice = times(e, plus(e, a.s, a.tail), num(t, 2));
  lb_lv left = minus_twice(e, 2 * half_pi[0], 2 * half_pi[1], a);
  lb_lv negative = below(e, x, num(t, 0));
  lb_lv tail = with_sign(e, a.tail, x);
  lb_lv near = minus(e, num(t, half_pi[1]), tail);
  near = plus(e, num(t, half_pi[0]), minus(e, near, x));
  return sel(e, a.far, sel(e, negative, left, twice), near);
}

// -- error function ----------------------------------------------------------

// erf(x), |x| <= 1
static lb_lv erf_near(lb_em *e, lb_lv x) {
  lb_lv z = lb_math_clamp_max(e, times(e, x, x), 1);
  return mad(e, x, LB_POLY(e, z, erf_c), x);
}

// erfc(a), a >= 1/2: exp(-a a) / (1 + 2a) times a polynomial.
static lb_lv erfc_far(lb_em *e, lb_lv a) {
  lb_lt t = a.type;
  a = lb_math_clamp_max(e, a, 28);
  lb_lv four = num(t, 4);
  lb_lv p = LB_POLY(e, over(e, minus(e, a, four), plus(e, a, four)), erfcx_c);
  lb_lv z = times(e, a, a);
  lb_lv low = mad(e, a, a, lb_em_fneg(e, z));
  lb_lv ex = lb_math64_exp_pair(e, lb_em_fneg(e, z), lb_em_fneg(e, low), 0);
  return times(e, ex, over(e, p, mad(e, num(t, 2), a, num(t, 1))));
}

lb_lv lb_math64_erf(lb_em *e, lb_lv x) {
  lb_lv a = magnitude(e, x), one = num(x.type, 1);
  lb_lv far = minus(e, one, erfc_far(e, a));
  return with_sign(e, sel(e, below(e, a, one), erf_near(e, a), far), x);
}

lb_lv lb_math64_erfc(lb_em *e, lb_lv x) {
  lb_lt t = x.type;
  lb_lv a = magnitude(e, x);
  lb_lv near = minus(e, num(t, 1), erf_near(e, x));
  lb_lv far = erfc_far(e, a);
  lb_lv left = minus(e, num(t, 2), far);
  far = sel(e, below(e, x, num(t, 0)), left, far);
  return sel(e, below(e, a, num(t, 0.5)), near, far);
}
