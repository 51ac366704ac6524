// spec/exp.h -- the exponential of ATTENTION in float32, defined bit by bit: x
// <= 0, and results below e^-87 are 0. The error is about 2 ulp.
//
// x = n ln 2 + r; the last two coefficients of the polynomial are 1.
#ifndef LB_SPEC_EXP_H
#define LB_SPEC_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LB_EXP_MIN -87.0f
#define LB_EXP_LOG2_E 0x1.715476p+0f
#define LB_EXP_LN2_HIGH 0x1.62e4p-1f  // n times this is exact
#define LB_EXP_LN2_LOW 0x1.7f7d1cp-20f
// Large enough that its sum with n is rounded to an integer, whose low bits are
// n + 127: the exponent bits of 2^n.
#define LB_EXP_ROUND (0x1.8p23f + 127)
#define LB_EXP_POLY \
  { 0x1.106252p-7f, 0x1.572a64p-5f, 0x1.5557bp-3f, 0x1.fffdfcp-2f, 1, 1 }

static inline float lb_exp_f32(float x) {
  static const float c[] = LB_EXP_POLY;
  if (x < LB_EXP_MIN) return 0;
  float t = fmaf(x, LB_EXP_LOG2_E, LB_EXP_ROUND), n = t - LB_EXP_ROUND;
  float r = fmaf(n, -LB_EXP_LN2_HIGH, x), y = c[0], power;
  r = fmaf(n, -LB_EXP_LN2_LOW, r);
  for (int i = 1; i < 6; i++) y = fmaf(y, r, c[i]);
  uint32_t bits;
  memcpy(&bits, &t, sizeof bits);
  bits <<= 23;
  memcpy(&power, &bits, sizeof power);
  return y * power;
}

#endif
