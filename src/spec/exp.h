// spec/exp.h -- the exponential of ATTENTION in float32, to the bit: x is not
// positive, and what is below e^-87 is 0. Some 2 ulp off the true one.
//
// x = n ln 2 + r; the polynomial's last two coefficients are 1.
#ifndef LB_SPEC_EXP_H
#define LB_SPEC_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LB_EXP_LEAST -87.0f
#define LB_EXP_LOG2_E 0x1.715476p+0f
#define LB_EXP_LN2_HIGH 0x1.62e4p-1f  // times n exact
#define LB_EXP_LN2_LOW 0x1.7f7d1cp-20f
// Large enough that the sum of it and n is rounded to an integer, whose low
// bits are n + 127: those of 2^n.
#define LB_EXP_ROUND (0x1.8p23f + 127)
#define LB_EXP_POLY \
  { 0x1.106252p-7f, 0x1.572a64p-5f, 0x1.5557bp-3f, 0x1.fffdfcp-2f, 1, 1 }

static inline float lb_exp_f32(float x) {
  static const float c[] = LB_EXP_POLY;
  if (x < LB_EXP_LEAST) return 0;
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
