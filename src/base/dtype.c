// base/dtype.c -- properties of element types; f16 and bf16 conversions.
#include "base/dtype.h"

#include <string.h>

enum { CLASS_NONE, CLASS_FLOAT, CLASS_SIGNED, CLASS_UNSIGNED, CLASS_BOOL };

typedef struct dtype_info {
  const char *name;
  size_t size;
  int cls;
} dtype_info;

static const dtype_info infos[LB_DTYPE_COUNT] = {
    [LB_NONE] = {"none", 0, CLASS_NONE},
#define X(id, text, bytes, cls) [LB_##id] = {text, bytes, CLASS_##cls},
    LB_DTYPES(X)
#undef X
};

static const dtype_info *info_of(lb_dtype t) {
  unsigned i = (unsigned)t;
  return &infos[i < LB_DTYPE_COUNT ? i : LB_NONE];
}

size_t lb_dtype_size(lb_dtype t) { return info_of(t)->size; }

const char *lb_dtype_name(lb_dtype t) { return info_of(t)->name; }

bool lb_dtype_is_float(lb_dtype t) { return info_of(t)->cls == CLASS_FLOAT; }

bool lb_dtype_is_signed(lb_dtype t) { return info_of(t)->cls == CLASS_SIGNED; }

bool lb_dtype_is_integer(lb_dtype t) {
  int cls = info_of(t)->cls;
  return cls == CLASS_SIGNED || cls == CLASS_UNSIGNED;
}

static float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

float lb_f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t exp = (h >> 10) & 31, mant = h & 0x3ff;
  if (exp == 31) return float_of(sign | 0x7f800000 | mant << 13);
  if (exp > 0) return float_of(sign | (exp + 112) << 23 | mant << 13);
  float tiny = (float)mant * 0x1p-24f;  // exact: zero or subnormal
  return sign ? -tiny : tiny;
}

// float32 converts to float64 exactly, so there is only one rounding.
uint16_t lb_f32_to_f16(float f) { return lb_f64_to_f16((double)f); }

uint16_t lb_f64_to_f16(double d) {
  uint64_t bits;
  memcpy(&bits, &d, sizeof bits);
  uint32_t sign = (uint32_t)(bits >> 48) & 0x8000;
  int exp = (int)(bits >> 52 & 0x7ff) - 1023;
  uint64_t mant = bits & ((UINT64_C(1) << 52) - 1);
  if (exp == 1024 && mant)
    return (uint16_t)(sign | 0x7e00 | (uint32_t)(mant >> 42));
  if (exp > 15) return (uint16_t)(sign | 0x7c00);
  if (exp < -25) return (uint16_t)sign;

  // `half` is the result as an integer: multiples of 2^-24 if subnormal,
  // otherwise exponent and mantissa together, so that rounding up can carry
  // from the mantissa into the exponent, and from the largest number to
  // infinity.
  int shift = exp < -14 ? 42 + (-14 - exp) : 42;
  uint64_t whole = mant | UINT64_C(1) << 52;
  uint32_t half = (uint32_t)(whole >> shift);
  if (exp >= -14) half += (uint32_t)(exp + 14) << 10;
  uint64_t rest = whole & ((UINT64_C(1) << shift) - 1);
  uint64_t tie = UINT64_C(1) << (shift - 1);
  if (rest > tie || (rest == tie && half & 1)) half++;
  return (uint16_t)(sign | half);
}

float lb_bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t lb_f32_to_bf16(float f) {
  uint32_t bits = bits_of(f);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return (uint16_t)(bits >> 16 |
                      0x40);  // NaN: stays NaN instead of rounding to infinity
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
