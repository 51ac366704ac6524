// device/reference/cast.c -- conversion between dtypes.
//
// Every conversion has two steps: blocks of elements are widened to int64,
// uint64 or double, which represent any element exactly, and then narrowed with
// one rounding. This needs 52 short loops instead of one per pair of dtypes.
//
// Floats are truncated to integers. Values out of range: int32 and int64 get
// their minimum, narrower integers and uint32 the low bits of the next wider
// signed conversion, as on x86. Integers wrap. Any nonzero value is true.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/reference/elem.h"
#include "device/reference/iter.h"

typedef union cast_wide {
  double f;
  int64_t i;
  uint64_t u;
} cast_wide;

typedef enum wide_kind { WIDE_F, WIDE_I, WIDE_U, WIDE_COUNT } wide_kind;

#define BLOCK 256

typedef void cast_widen_fn(int64_t n, const char *from, int64_t step,
                           cast_wide *to);
typedef void cast_narrow_fn(int64_t n, const cast_wide *from, char *to,
                            int64_t step);

// -- widening and narrowing --------------------------------------------------

static int64_t to_i64(double d) {
  return d >= -0x1p63 && d < 0x1p63 ? (int64_t)d : INT64_MIN;
}

static int32_t to_i32(double d) {
  return d > -0x1p31 - 1 && d < 0x1p31 ? (int32_t)d : INT32_MIN;
}

static uint64_t to_u64(double d) {
  if (d < 0x1p63) return (uint64_t)to_i64(d);
  return (uint64_t)to_i64(d - 0x1p63) ^ (uint64_t)1 << 63;
}

// Rounding to odd first makes the second rounding correct.
static uint16_t f64_to_bf16(double d) {
  float f = (float)d;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (isfinite(f) && (double)f != d) {
    if (fabs((double)f) > fabs(d)) bits--;
    bits |= 1;
    memcpy(&f, &bits, sizeof f);
  }
  return lb_f32_to_bf16(f);
}

// A double that rounds to bfloat16 as u itself would: the bits that do not fit
// into a double are merged into one sticky bit.
static double sticky(uint64_t u) {
  if (u >> 53) u = (u & ~(uint64_t)0x7ff) | (uint64_t)((u & 0x7ff) != 0) << 11;
  return (double)u;
}

static uint16_t u64_to_bf16(uint64_t u) { return f64_to_bf16(sticky(u)); }

static uint16_t i64_to_bf16(int64_t i) {
  double d = sticky(i < 0 ? 0 - (uint64_t)i : (uint64_t)i);
  return f64_to_bf16(i < 0 ? -d : d);
}

#define WIDEN(id, S, expr)                                          \
  static void widen_##id(int64_t n, const char *from, int64_t step, \
                         cast_wide *to) {                           \
    for (int64_t k = 0; k < n; k++) {                               \
      S x = *(const S *)(from + k * step);                          \
      to[k] = (cast_wide){expr};                                    \
    }                                                               \
  }
WIDEN(F32, lb_f32, .f = (double)x)
WIDEN(F64, lb_f64, .f = x)
WIDEN(F16, lb_bits16, .f = (double)lb_f16_to_f32(x))
WIDEN(BF16, lb_bits16, .f = (double)lb_bf16_to_f32(x))
WIDEN(I8, lb_i8, .i = x)
WIDEN(I16, lb_i16, .i = x)
WIDEN(I32, lb_i32, .i = x)
WIDEN(I64, lb_i64, .i = x)
WIDEN(U8, lb_u8, .i = x)
WIDEN(U16, lb_u16, .i = x)
WIDEN(U32, lb_u32, .i = x)
WIDEN(U64, lb_u64, .u = x)
WIDEN(BOOL, lb_u8, .i = x != 0)

#define NARROW(id, S, kind, expr)                                              \
  static void narrow_##id##_##kind(int64_t n, const cast_wide *from, char *to, \
                                   int64_t step) {                             \
    for (int64_t k = 0; k < n; k++) {                                          \
      cast_wide x = from[k];                                                   \
      *(S *)(to + k * step) = (expr);                                          \
    }                                                                          \
  }
#define NARROW3(id, S, from_f, from_i, from_u) \
  NARROW(id, S, F, from_f)                     \
  NARROW(id, S, I, from_i)                     \
  NARROW(id, S, U, from_u)
#define NARROW_INT(id, S, T, from_f) NARROW3(id, S, from_f, (T)x.i, (T)x.u)
NARROW3(F32, lb_f32, (float)x.f, (float)x.i, (float)x.u)
NARROW3(F64, lb_f64, x.f, (double)x.i, (double)x.u)
NARROW3(F16, lb_bits16, lb_f64_to_f16(x.f), lb_f64_to_f16((double)x.i),
        lb_f64_to_f16((double)x.u))
NARROW3(BF16, lb_bits16, f64_to_bf16(x.f), i64_to_bf16(x.i), u64_to_bf16(x.u))
NARROW_INT(I8, lb_i8, int8_t, (int8_t)to_i32(x.f))
NARROW_INT(I16, lb_i16, int16_t, (int16_t)to_i32(x.f))
NARROW_INT(I32, lb_i32, int32_t, to_i32(x.f))
NARROW_INT(I64, lb_i64, int64_t, to_i64(x.f))
NARROW_INT(U8, lb_u8, uint8_t, (uint8_t)to_i32(x.f))
NARROW_INT(U16, lb_u16, uint16_t, (uint16_t)to_i32(x.f))
NARROW_INT(U32, lb_u32, uint32_t, (uint32_t)to_i64(x.f))
NARROW_INT(U64, lb_u64, uint64_t, to_u64(x.f))
NARROW3(BOOL, lb_u8, x.f != 0, x.i != 0, x.u != 0)

static cast_widen_fn *const widens[LB_DTYPE_COUNT] = {
#define X(id, ...) [LB_##id] = widen_##id,
    LB_DTYPES(X)
#undef X
};

static cast_narrow_fn *const narrows[LB_DTYPE_COUNT][WIDE_COUNT] = {
#define X(id, ...) \
  [LB_##id] = {narrow_##id##_F, narrow_##id##_I, narrow_##id##_U},
    LB_DTYPES(X)
#undef X
};

static wide_kind kind_of(lb_dtype t) {
  if (lb_dtype_is_float(t)) return WIDE_F;
  return t == LB_U64 ? WIDE_U : WIDE_I;
}

// -- rows --------------------------------------------------------------------

typedef struct convert_job {
  cast_widen_fn *widen;
  cast_narrow_fn *narrow;
} convert_job;

static void convert_row(const void *user, int64_t n, char *const *p,
                        const int64_t *step) {
  const convert_job *job = user;
  cast_wide block[BLOCK];
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t len = n - at < BLOCK ? n - at : BLOCK;
    job->widen(len, p[1] + at * step[1], step[1], block);
    job->narrow(len, block, p[0] + at * step[0], step[0]);
  }
}

#define COPY_ROW(S)                                                  \
  static void copy_##S(const void *user, int64_t n, char *const *p,  \
                       const int64_t *step) {                        \
    (void)user;                                                      \
    int64_t size = (int64_t)sizeof(S);                               \
    if (step[0] == size && step[1] == size) {                        \
      memcpy(p[0], p[1], (size_t)(n * size));                        \
      return;                                                        \
    }                                                                \
    for (int64_t k = 0; k < n; k++)                                  \
      *(S *)(p[0] + k * step[0]) = *(const S *)(p[1] + k * step[1]); \
  }
COPY_ROW(lb_u8)
COPY_ROW(lb_u16)
COPY_ROW(lb_u32)
COPY_ROW(lb_u64)

static lb_row_fn *copy_of_size(size_t size) {
  switch (size) {
    case 1: return copy_lb_u8;
    case 2: return copy_lb_u16;
    case 4: return copy_lb_u32;
    default: return copy_lb_u64;
  }
}

void lb_convert(lb_pool *pool, const lb_tensor *from, const lb_tensor *to) {
  const lb_tensor *operands[] = {to, from};
  if (from->dtype == to->dtype) {
    lb_iter_all(pool, 2, operands, copy_of_size(lb_dtype_size(to->dtype)),
                NULL);
    return;
  }
  convert_job job = {widens[from->dtype],
                     narrows[to->dtype][kind_of(from->dtype)]};
  lb_iter_all(pool, 2, operands, convert_row, &job);
}

lb_status lb_reference_convert(const lb_tensor *from, const lb_tensor *to) {
  if (from->dtype == LB_NONE || to->dtype == LB_NONE)
    return lb_error(LB_INTERNAL, "conversion from %s to %s",
                    lb_dtype_name(from->dtype), lb_dtype_name(to->dtype));
  lb_convert(NULL, from, to);
  return LB_OK;
}

// -- operators ---------------------------------------------------------------

lb_status lb_reference_Cast(lb_reference_call *c) {
  lb_convert(c->pool, &c->in[0], &c->out[0]);
  return LB_OK;
}

lb_status lb_reference_CastLike(lb_reference_call *c) {
  return lb_reference_Cast(c);
}

// Reinterprets the bits as another dtype of the same size.
lb_status lb_reference_BitCast(lb_reference_call *c) {
  lb_tensor from = c->in[0];
  if (lb_dtype_size(from.dtype) != lb_dtype_size(c->out[0].dtype))
    return lb_error(LB_INVALID, "%s and %s differ in size",
                    lb_dtype_name(from.dtype), lb_dtype_name(c->out[0].dtype));
  // A bool is 0 or 1, so any other value becomes 1.
  if (c->out[0].dtype != LB_BOOL)
    from.dtype = c->out[0].dtype;
  else
    from.dtype = LB_U8;
  lb_convert(c->pool, &from, &c->out[0]);
  return LB_OK;
}
