// tools/element.c -- tensors element by element.
#include "element.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABSOLUTE 1e-4
#define RELATIVE 1e-3
#define MAX_COUNT (INT64_MAX / 16)

static const char *const names[] = {
    [LIMBER_NONE] = "none", [LIMBER_F32] = "f32",   [LIMBER_F64] = "f64",
    [LIMBER_F16] = "f16",   [LIMBER_BF16] = "bf16", [LIMBER_I8] = "i8",
    [LIMBER_I16] = "i16",   [LIMBER_I32] = "i32",   [LIMBER_I64] = "i64",
    [LIMBER_U8] = "u8",     [LIMBER_U16] = "u16",   [LIMBER_U32] = "u32",
    [LIMBER_U64] = "u64",   [LIMBER_BOOL] = "bool",
};

const char *dtype_short(limber_dtype dtype) { return names[dtype]; }

limber_dtype dtype_from_short(const char *text, size_t n) {
  for (int i = LIMBER_F32; i <= LIMBER_BOOL; i++)
    if (strlen(names[i]) == n && !memcmp(names[i], text, n))
      return (limber_dtype)i;
  return LIMBER_NONE;
}

bool dtype_is_float(limber_dtype dtype) {
  return dtype >= LIMBER_F32 && dtype <= LIMBER_BF16;
}

bool count_of(int rank, const int64_t *dims, int64_t *out) {
  int64_t count = 1;
  bool none = false;
  for (int i = 0; i < rank; i++) {
    if (dims[i] < 0) return false;
    if (dims[i] == 0) none = true;
    if (dims[i] > 0 && count > MAX_COUNT / dims[i]) return false;
    if (dims[i] > 0) count *= dims[i];
  }
  *out = none ? 0 : count;
  return true;
}

bool tensor_alloc(limber_tensor *t, problem *p) {
  int64_t count;
  char type[256];
  if (!count_of(t->rank, t->dims, &count))
    return fail(p, EXIT_BAD, "%s: dims must be sizes, and not too many",
                type_print(t, type, sizeof type));
  t->bytes = (size_t)count * limber_dtype_size(t->dtype);
  t->data = malloc(t->bytes + 1);
  if (t->data) return true;
  return fail(p, EXIT_INTERNAL, "out of memory: %zu bytes for %s", t->bytes,
              type_print(t, type, sizeof type));
}

// -- values ------------------------------------------------------------------

static double f16_to_double(uint16_t h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  double v = exponent == 31 ? (fraction ? NAN : INFINITY)
             : exponent     ? ldexp(1024 + fraction, exponent - 25)
                            : ldexp(fraction, -24);
  return h & 0x8000 ? -v : v;
}

static uint16_t double_to_f16(double v) {
  uint16_t sign = signbit(v) ? 0x8000 : 0;
  if (isnan(v) || isinf(v))
    return (uint16_t)(sign | (isnan(v) ? 0x7e00 : 0x7c00));
  int exponent;
  frexp(v, &exponent);  // the last bit has the value 2^(exponent - 11)
  if (v == 0 || exponent < -13) exponent = -13;
  double scaled = nearbyint(ldexp(fabs(v), 11 - exponent));
  // A fraction that rounds up to 2048 carries into the exponent.
  double bits = ldexp(exponent + 13, 10) + scaled;
  return (uint16_t)(sign | (bits >= 0x7c00 ? 0x7c00 : (int)bits));
}

static double bf16_to_double(uint16_t b) {
  uint32_t bits = (uint32_t)b << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint16_t double_to_bf16(double v) {
  float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (isnan(f)) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define AT(type) (((const type *)t->data)[i])

double element_get(const limber_tensor *t, int64_t i) {
  switch (t->dtype) {
    case LIMBER_F32: return AT(float);
    case LIMBER_F64: return AT(double);
    case LIMBER_F16: return f16_to_double(AT(uint16_t));
    case LIMBER_BF16: return bf16_to_double(AT(uint16_t));
    case LIMBER_I8: return AT(int8_t);
    case LIMBER_I16: return AT(int16_t);
    case LIMBER_I32: return AT(int32_t);
    case LIMBER_I64: return (double)AT(int64_t);
    case LIMBER_U16: return AT(uint16_t);
    case LIMBER_U32: return AT(uint32_t);
    case LIMBER_U64: return (double)AT(uint64_t);
    case LIMBER_U8:
    case LIMBER_BOOL: return AT(uint8_t);
    case LIMBER_NONE: break;
  }
  return 0;
}

void element_set(limber_tensor *t, int64_t i, double real, int64_t whole) {
  uint16_t half =
      t->dtype == LIMBER_F16 ? double_to_f16(real) : double_to_bf16(real);
  float single = (float)real;
  if (t->dtype == LIMBER_BOOL) whole = whole != 0;
  const void *from = &whole;  // little endian: its low bytes come first
  if (t->dtype == LIMBER_F32) from = &single;
  if (t->dtype == LIMBER_F64) from = &real;
  if (t->dtype == LIMBER_F16 || t->dtype == LIMBER_BF16) from = &half;
  size_t size = limber_dtype_size(t->dtype);
  memcpy((char *)t->data + (size_t)i * size, from, size);
}

const char *element_print(const limber_tensor *t, int64_t i, char *buf,
                          size_t cap) {
  if (t->dtype == LIMBER_I64) {
    snprintf(buf, cap, "%" PRId64, AT(int64_t));
  } else if (t->dtype == LIMBER_U64) {
    snprintf(buf, cap, "%" PRIu64, AT(uint64_t));
  } else {
    snprintf(buf, cap, "%.9g", element_get(t, i));
  }
  return buf;
}

const char *type_print(const limber_tensor *t, char *buf, size_t cap) {
  int n = snprintf(buf, cap, "%s[", limber_dtype_name(t->dtype));
  for (int i = 0; i < t->rank && n < (int)cap; i++)
    n += snprintf(buf + n, cap - (size_t)n, i ? ",%" PRId64 : "%" PRId64,
                  t->dims[i]);
  if (n < (int)cap) snprintf(buf + n, cap - (size_t)n, "]");
  return buf;
}

// -- all elements ------------------------------------------------------------

summary summarize(const limber_tensor *t) {
  summary s = {0};
  double sum = 0;
  int64_t numbers = 0;
  count_of(t->rank, t->dims, &s.count);
  for (int64_t i = 0; i < s.count; i++) {
    double v = element_get(t, i);
    if (isnan(v)) continue;
    if (!numbers || v < s.min) s.min = v;
    if (!numbers || v > s.max) s.max = v;
    sum += v;
    numbers++;
  }
  s.n_nan = s.count - numbers;
  if (numbers) s.mean = sum / (double)numbers;
  return s;
}

static bool element_agrees(const limber_tensor *a, const limber_tensor *b,
                           int64_t i) {
  size_t size = limber_dtype_size(a->dtype);
  if (!dtype_is_float(a->dtype))
    return !memcmp((const char *)a->data + (size_t)i * size,
                   (const char *)b->data + (size_t)i * size, size);
  double x = element_get(a, i), y = element_get(b, i);
  if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
  if (isinf(x) || isinf(y)) return x == y;
  return fabs(x - y) <= ABSOLUTE + RELATIVE * fabs(y);
}

// "[0,3,17]"
static const char *index_print(const limber_tensor *t, int64_t i, char *buf,
                               size_t cap) {
  int64_t at[LIMBER_MAX_RANK];
  for (int k = t->rank - 1; k >= 0; k--) {
    at[k] = i % t->dims[k];
    i /= t->dims[k];
  }
  int n = snprintf(buf, cap, "[");
  for (int k = 0; k < t->rank && n < (int)cap; k++)
    n +=
        snprintf(buf + n, cap - (size_t)n, k ? ",%" PRId64 : "%" PRId64, at[k]);
  if (n < (int)cap) snprintf(buf + n, cap - (size_t)n, "]");
  return buf;
}

bool agree(const limber_tensor *a, const limber_tensor *b, problem *p) {
  char x[256], y[256], place[256];
  if (a->dtype != b->dtype || a->rank != b->rank ||
      memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims))
    return fail(p, EXIT_BAD, "%s, not %s", type_print(a, x, sizeof x),
                type_print(b, y, sizeof y));
  int64_t count = 0, wrong = 0, first = 0;
  count_of(a->rank, a->dims, &count);
  for (int64_t i = 0; i < count; i++)
    if (!element_agrees(a, b, i) && !wrong++) first = i;
  if (!wrong) return true;
  return fail(p, EXIT_BAD,
              "%" PRId64 " of %" PRId64
              " elements differ, first %s: %s, "
              "not %s",
              wrong, count, index_print(a, first, place, sizeof place),
              element_print(a, first, x, sizeof x),
              element_print(b, first, y, sizeof y));
}
