// device/reference/quantize.c -- QuantizeLinear, DequantizeLinear and
// DynamicQuantizeLinear.
//
// Scales and zero points are per tensor, per index of an axis, or per block of
// an axis. The first two broadcast to the tensor; blocks are processed one by
// one, and each broadcasts to its part.
#include <math.h>

#include "device/reference/elem.h"
#include "device/reference/iter.h"

// -- scales and zero points --------------------------------------------------

typedef struct params {
  lb_tensor scale, zero_point;  // float32 and int32, of equal dims
  int axis;
  int64_t block;  // elements along the axis that share a scale
} params;

static bool present(const lb_reference_call *c, uint32_t i) {
  return i < c->node->n_in && c->in[i].dtype != LB_NONE;
}

static bool same_dims(const lb_tensor *a, const lb_tensor *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i]) return false;
  return true;
}

// Views a vector as [1, ..., n, ..., 1] with n at `axis`, of `rank` dims.
static void along_axis(lb_tensor *t, int rank, int axis) {
  int64_t n = t->dims[0];
  t->rank = rank;
  for (int i = 0; i < rank; i++) t->dims[i] = 1;
  t->dims[axis] = n;
  lb_tensor_dense(t);
}

static void as_scalar(lb_tensor *t) { t->rank = 0; }

static lb_status check_blocks(const params *g, const lb_tensor *x) {
  bool fits = g->scale.rank == x->rank;
  for (int i = 0; fits && i < x->rank; i++) {
    int64_t d = x->dims[i];
    if (i == g->axis) d = d / g->block + (d % g->block != 0);
    fits = g->scale.dims[i] == d;
  }
  if (fits) return LB_OK;
  char scale[96], input[96];
  return lb_error(
      LB_INVALID,
      "scales of dims %s do not cover %s in blocks of %lld along "
      "axis %d",
      lb_dims_print(g->scale.rank, g->scale.dims, scale, sizeof scale),
      lb_dims_print(x->rank, x->dims, input, sizeof input), (long long)g->block,
      g->axis);
}

static lb_status broadcast_params(lb_reference_call *c, const lb_tensor *x,
                                  params *g) {
  int64_t block = lb_attr_int(c->node, "block_size", 0);
  g->axis = 0;
  g->block = INT64_MAX;
  if (block <= 0 && lb_tensor_count(&g->scale) == 1) {
    as_scalar(&g->scale);
    as_scalar(&g->zero_point);
    return LB_OK;
  }
  int64_t axis = x->rank == 1 ? 0 : lb_attr_int(c->node, "axis", 1);
  LB_TRY(lb_reference_axis(c, axis, x->rank, &g->axis));
  if (block > 0) {
    g->block = block;
    return check_blocks(g, x);
  }
  if (g->scale.rank != 1 || g->scale.dims[0] != x->dims[g->axis])
    return lb_error(LB_INVALID, "%lld scales for %lld indices of axis %d",
                    (long long)lb_tensor_count(&g->scale),
                    (long long)x->dims[g->axis], g->axis);
  along_axis(&g->scale, x->rank, g->axis);
  along_axis(&g->zero_point, x->rank, g->axis);
  return LB_OK;
}

static lb_status params_of(lb_reference_call *c, const lb_tensor *x,
                           params *g) {
  LB_TRY(lb_reference_dense(c, &c->in[1], LB_F32, &g->scale));
  LB_TRY(lb_reference_temp(c, LB_I32, g->scale.rank, g->scale.dims,
                           &g->zero_point));
  int32_t none = 0;
  lb_tensor zero_point = {.dtype = LB_I32, .data = &none};
  if (present(c, 2)) {
    zero_point = c->in[2];
    if (lb_tensor_count(&zero_point) == 1 && lb_tensor_count(&g->scale) == 1)
      as_scalar(&zero_point);  // [] or [1], independently of the scale
    else if (!same_dims(&zero_point, &g->scale))
      return lb_error(LB_INVALID, "scale and zero point differ in dims");
  }
  lb_convert(c->pool, &zero_point, &g->zero_point);
  return broadcast_params(c, x, g);
}

// The part of t that starts at `begin` along the axis, `len` elements long.
static lb_tensor part(const lb_tensor *t, int axis, int64_t begin,
                      int64_t len) {
  lb_tensor p = *t;
  p.dims[axis] = len;
  int64_t size = (int64_t)lb_dtype_size(t->dtype);
  p.data = (char *)t->data + begin * t->strides[axis] * size;
  return p;
}

// Runs a row function whose operands are y, x, scale and zero point.
static void run(lb_reference_call *c, const params *g, const lb_tensor *y,
                const lb_tensor *x, lb_row_fn *row) {
  if (lb_tensor_count(x) == 0) return;
  if (g->block == INT64_MAX) {
    lb_iter_all(c->pool, 4,
                (const lb_tensor *[]){y, x, &g->scale, &g->zero_point}, row,
                NULL);
    return;
  }
  int64_t len = x->dims[g->axis];
  for (int64_t k = 0, at = 0; at < len; k++) {
    int64_t n = len - at < g->block ? len - at : g->block;
    lb_tensor yp = part(y, g->axis, at, n), xp = part(x, g->axis, at, n);
    lb_tensor scale = part(&g->scale, g->axis, k, 1);
    lb_tensor zero_point = part(&g->zero_point, g->axis, k, 1);
    lb_iter_all(c->pool, 4,
                (const lb_tensor *[]){&yp, &xp, &scale, &zero_point}, row,
                NULL);
    at += n;
  }
}

// -- QuantizeLinear ----------------------------------------------------------

#define SMALL_INTS(X, ...)                            \
  X(I8, lb_i8, int8_t, -128, 127, __VA_ARGS__)        \
  X(U8, lb_u8, uint8_t, 0, 255, __VA_ARGS__)          \
  X(I16, lb_i16, int16_t, -32768, 32767, __VA_ARGS__) \
  X(U16, lb_u16, uint16_t, 0, 65535, __VA_ARGS__)

// clamp(round_half_to_even(x / scale) + zero_point); NaN maps to the minimum.
#define QUANTIZE(id, S, T, LO, HI, ...)                                  \
  static void quantize_##id(const void *user, int64_t n, char *const *p, \
                            const int64_t *step) {                       \
    (void)user;                                                          \
    for (int64_t i = 0; i < n; i++) {                                    \
      const float x = *(const lb_f32 *)(p[1] + i * step[1]);             \
      const float scale = *(const lb_f32 *)(p[2] + i * step[2]);         \
      const lb_i32 zero_point = *(const lb_i32 *)(p[3] + i * step[3]);   \
      const float v = rintf(x / scale) + (float)zero_point;              \
      *(S *)(p[0] + i * step[0]) = !(v > (LO)) ? (T)(LO)                 \
                                   : v > (HI)  ? (T)(HI)                 \
                                               : (T)v;                    \
    }                                                                    \
  }
SMALL_INTS(QUANTIZE, )

#define QUANTIZE_ENTRY(id, ...) [LB_##id] = quantize_##id,

lb_status lb_reference_QuantizeLinear(lb_reference_call *c) {
  static lb_row_fn *const rows[LB_DTYPE_COUNT] = {SMALL_INTS(QUANTIZE_ENTRY, )};
  lb_row_fn *row = rows[c->out[0].dtype];
  if (!row) return lb_reference_bad_dtype(c, c->out[0].dtype);
  lb_tensor x = c->in[0];
  if (x.dtype != LB_F32) LB_TRY(lb_reference_dense(c, &c->in[0], LB_F32, &x));
  params g;
  LB_TRY(params_of(c, &x, &g));
  run(c, &g, &c->out[0], &x, row);
  return LB_OK;
}

// -- DequantizeLinear --------------------------------------------------------

#define DEQUANTIZE(id, S, T, ...)                                          \
  static void dequantize_##id(const void *user, int64_t n, char *const *p, \
                              const int64_t *step) {                       \
    (void)user;                                                            \
    for (int64_t i = 0; i < n; i++) {                                      \
      const int64_t x = *(const S *)(p[1] + i * step[1]);                  \
      const float scale = *(const lb_f32 *)(p[2] + i * step[2]);           \
      const int64_t zero_point = *(const lb_i32 *)(p[3] + i * step[3]);    \
      *(lb_f32 *)(p[0] + i * step[0]) = (float)(x - zero_point) * scale;   \
    }                                                                      \
  }
SMALL_INTS(DEQUANTIZE, )
DEQUANTIZE(I32, lb_i32, int32_t)

#define DEQUANTIZE_ENTRY(id, ...) [LB_##id] = dequantize_##id,

lb_status lb_reference_DequantizeLinear(lb_reference_call *c) {
  static lb_row_fn *const rows[LB_DTYPE_COUNT] = {
      SMALL_INTS(DEQUANTIZE_ENTRY, )[LB_I32] = dequantize_I32};
  const lb_tensor *x = &c->in[0], *out = &c->out[0];
  if (!rows[x->dtype]) return lb_reference_bad_dtype(c, x->dtype);
  lb_tensor y = *out;
  if (y.dtype != LB_F32)
    LB_TRY(lb_reference_temp(c, LB_F32, out->rank, out->dims, &y));
  params g;
  LB_TRY(params_of(c, x, &g));
  run(c, &g, &y, x, rows[x->dtype]);
  if (out->dtype != LB_F32) lb_convert(c->pool, &y, out);
  return LB_OK;
}

// -- DynamicQuantizeLinear ---------------------------------------------------

static void widen_range(const void *user, int64_t n, char *const *p,
                        const int64_t *step) {
  float *const *range = user;  // min, max
  for (int64_t i = 0; i < n; i++) {
    const float x = *(const lb_f32 *)(p[0] + i * step[0]);
    if (x < *range[0]) *range[0] = x;
    if (x > *range[1]) *range[1] = x;
  }
}

// Maps the range of the data, extended to include 0, to 0..255.
lb_status lb_reference_DynamicQuantizeLinear(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  if (x->dtype != LB_F32) return lb_reference_bad_dtype(c, x->dtype);
  float min = 0, max = 0;
  lb_iter_all(NULL, 1, &x, widen_range, (float *[]){&min, &max});
  float scale = (max - min) / 255;
  if (scale == 0) scale = 1;
  const float v = rintf(-min / scale);
  int32_t zero_point = !(v > 0) ? 0 : v > 255 ? 255 : (int32_t)v;
  params g = {.scale = {.dtype = LB_F32, .data = &scale},
              .zero_point = {.dtype = LB_I32, .data = &zero_point},
              .block = INT64_MAX};
  const lb_tensor *results[] = {NULL, &g.scale, &g.zero_point};
  for (uint32_t i = 0; i < c->node->n_out; i++) {
    if (c->out[i].dtype == LB_NONE) continue;
    if (i == 0)
      run(c, &g, &c->out[0], x, quantize_U8);
    else
      lb_convert(NULL, results[i], &c->out[i]);
  }
  return LB_OK;
}
