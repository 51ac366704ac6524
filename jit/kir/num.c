// kir/num.c -- Conversions with one rounding.
//
// A double that is *rounded to odd* preserves what a second, narrower rounding
// needs: its last bit is set if anything was lost.
#include "kir/num.h"

#include <math.h>
#include <string.h>

int64_t lb_knum_i64(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

int32_t lb_knum_i32(double x) {
  return x > -0x1p31 - 1 && x < 0x1p31 ? (int32_t)x : INT32_MIN;
}

uint64_t lb_knum_u64(double x) {
  if (!(x >= 0x1p63)) return (uint64_t)lb_knum_i64(x);
  return (uint64_t)lb_knum_i64(x - 0x1p63) ^ UINT64_C(1) << 63;
}

uint16_t lb_knum_bf16(double x) {
  float f = (float)x;
  if (isfinite(f) && (double)f != x) {  // round to odd
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (fabs((double)f) > fabs(x)) bits--;
    bits |= 1;
    memcpy(&f, &bits, sizeof f);
  }
  return lb_f32_to_bf16(f);
}

// A double that rounds to bfloat16 as x itself would.
static double odd_double(uint64_t x) {
  uint64_t low = x & 0x7ff;
  if (x >> 53) x = (x & ~UINT64_C(0x7ff)) | (uint64_t)(low != 0) << 11;
  return (double)x;
}

uint16_t lb_knum_bf16_u(uint64_t x) { return lb_knum_bf16(odd_double(x)); }

uint16_t lb_knum_bf16_i(int64_t x) {
  double d = odd_double(x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
  return lb_knum_bf16(x < 0 ? -d : d);
}

double lb_knum_fma(double x, double y, double z) {
  double p = x * y, s = p + z;  // the product is exact
  if (!isfinite(s)) return s;
  double v = s - p, lost = (p - (s - v)) + (z - v);  // exact: s + lost
  if (lost == 0) return s;
  uint64_t bits;
  memcpy(&bits, &s, sizeof bits);
  if (!(bits & 1)) bits += (lost > 0) == (s > 0) ? 1 : UINT64_MAX;
  memcpy(&s, &bits, sizeof s);
  return s;
}

double lb_knum_float(lb_dtype t, uint64_t bits) {
  if (t == LB_F16) return (double)lb_f16_to_f32((uint16_t)bits);
  if (t == LB_BF16) return (double)lb_bf16_to_f32((uint16_t)bits);
  if (t == LB_F64) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
  }
  uint32_t low = (uint32_t)bits;
  float f;
  memcpy(&f, &low, sizeof f);
  return (double)f;
}

uint64_t lb_knum_bits(lb_dtype t, double x) {
  float f = (float)x;
  uint32_t low;
  uint64_t bits;
  memcpy(&low, &f, sizeof low);
  memcpy(&bits, &x, sizeof bits);
  switch (t) {
    case LB_F32: return low;
    case LB_F64: return bits;
    case LB_F16: return lb_f64_to_f16(x);
    case LB_BF16: return lb_knum_bf16(x);
    case LB_I8:
    case LB_U8: return (uint8_t)lb_knum_i32(x);
    case LB_I16:
    case LB_U16: return (uint16_t)lb_knum_i32(x);
    case LB_I32: return (uint32_t)lb_knum_i32(x);
    case LB_U32: return (uint32_t)lb_knum_i64(x);
    case LB_U64: return lb_knum_u64(x);
    case LB_BOOL: return x != 0;
    default: return (uint64_t)lb_knum_i64(x);
  }
}
