// device/reference/pool.c -- AveragePool, MaxPool, LpPool, their global forms,
// and MaxUnpool.
//
// A plane is one channel of one batch item; planes are independent. Values are
// pooled in float, or in double for float64; 8-bit integers are exact in float.
// Taps outside the input are ignored, except that AveragePool with
// count_include_pad divides by the number of taps inside the padded input.
#include <float.h>
#include <math.h>
#include <string.h>

#include "device/reference/elem.h"
#include "device/reference/gemm.h"
#include "device/reference/iter.h"
#include "device/reference/window.h"

typedef enum pool_kind { POOL_AVERAGE, POOL_MAX, POOL_LP } pool_kind;

typedef struct pooling {
  lb_window_geometry w;
  pool_kind kind;
  bool count_pads;
  bool column_major;  // order of MaxPool indices within a plane
  int p;              // exponent of LpPool
  double lowest;      // MaxPool's result for a window without taps
  int64_t in_plane, out_plane;
  const void *x;
  void *y;
  lb_i64 *indices;  // or NULL
} pooling;

// The range [*lo, *hi) of taps of window o along axis d that are in [0, end).
static void tap_range(const lb_window_geometry *w, int d, int64_t o,
                      int64_t end, int64_t *lo, int64_t *hi) {
  int64_t at = o * w->stride[d] - w->pad[d], step = w->dilation[d];
  *lo = at >= 0 ? 0 : (step - 1 - at) / step;
  *hi = at < end ? (end - 1 - at) / step + 1 : 0;
  if (*hi > w->kernel[d]) *hi = w->kernel[d];
  if (*lo > *hi) *lo = *hi;
}

// The positions of one window: first tap and number of taps along each axis.
typedef struct span {
  int64_t first[LB_MAX_RANK], count[LB_MAX_RANK];
  int64_t taps;     // number of taps inside the input
  int64_t divisor;  // for averages
} span;

static span span_of(const pooling *p, const int64_t *o) {
  const lb_window_geometry *w = &p->w;
  span s = {.taps = 1, .divisor = 1};
  for (int d = 0; d < w->n; d++) {
    int64_t lo, hi, padded = w->in[d] + w->pad_end[d];
    tap_range(w, d, o[d], w->in[d], &lo, &hi);
    s.first[d] = o[d] * w->stride[d] - w->pad[d] + lo * w->dilation[d];
    s.count[d] = hi - lo;
    s.taps *= s.count[d];
    int64_t at = o[d] * w->stride[d] - w->pad[d];
    int64_t inside = at < padded ? (padded - 1 - at) / w->dilation[d] + 1 : 0;
    s.divisor *= inside < w->kernel[d] ? inside : w->kernel[d];
  }
  if (!p->count_pads) s.divisor = s.taps;
  return s;
}

// The offset of the row of taps `index` (all axes but the last).
static int64_t row_offset(const lb_window_geometry *w, const span *s,
                          const int64_t *index) {
  int64_t offset = 0;
  for (int d = 0; d < w->n; d++) {
    int64_t i = d < w->n - 1 ? index[d] : 0;
    offset = offset * w->in[d] + s->first[d] + i * w->dilation[d];
  }
  return offset;
}

// The column-major index of element `offset` of a plane.
static int64_t column_major(const lb_window_geometry *w, int64_t offset) {
  int64_t index[LB_MAX_RANK], at = 0;
  lb_index_of(offset, w->n, w->in, index);
  for (int d = w->n - 1; d >= 0; d--) at = at * w->in[d] + index[d];
  return at;
}

#define POOL(id, S, T, load, store, POW, FABS)                        \
  static T reduce_##id(const pooling *p, const span *s, const S *x,   \
                       int64_t *best) {                               \
    const lb_window_geometry *w = &p->w;                              \
    int64_t index[LB_MAX_RANK] = {0}, step = w->dilation[w->n - 1];   \
    const bool sums = p->kind != POOL_MAX;                            \
    T acc = sums ? (T)-0.0 : (T)p->lowest;                            \
    double total = -0.0;                                              \
    int chain = 0;                                                    \
    bool any = false;                                                 \
    do {                                                              \
      const int64_t row = row_offset(w, s, index);                    \
      for (int64_t i = 0; i < s->count[w->n - 1]; i++) {              \
        T v = x[row + i * step];                                      \
        if (p->kind == POOL_LP) {                                     \
          v = FABS(v);                                                \
          v = p->p == 1 ? v : p->p == 2 ? v * v : POW(v, (T)p->p);    \
        }                                                             \
        if (sums)                                                     \
          acc += v;                                                   \
        else if (!any || v > acc || (v != v && acc == acc))           \
          acc = v, *best = row + i * step;                            \
        any = true;                                                   \
        if (!sums || ++chain < LB_REFERENCE_CHAIN) continue;          \
        total += acc, acc = (T)-0.0;                                  \
        chain = 0;                                                    \
      }                                                               \
    } while (lb_next_index(w->n - 1, s->count, index));               \
    return sums ? (T)(total + acc) : acc;                             \
  }                                                                   \
  static void plane_##id(const pooling *p, int64_t plane) {           \
    const S *x = p->x ? (const S *)p->x + plane * p->in_plane : NULL; \
    S *y = (S *)p->y + plane * p->out_plane;                          \
    int64_t o[LB_MAX_RANK] = {0};                                     \
    for (int64_t i = 0; i < p->out_plane; i++) {                      \
      span s = span_of(p, o);                                         \
      int64_t best = 0;                                               \
      T v = p->kind == POOL_MAX ? (T)p->lowest : 0;                   \
      if (s.taps > 0) v = reduce_##id(p, &s, x, &best);               \
      if (p->kind == POOL_AVERAGE) v = v / (T)s.divisor;              \
      if (p->kind == POOL_LP && p->p != 1)                            \
        v = p->p == 2 ? POW(v, (T)0.5) : POW(v, 1 / (T)p->p);         \
      y[i] = v;                                                       \
      if (p->indices)                                                 \
        p->indices[plane * p->out_plane + i] =                        \
            plane * p->in_plane +                                     \
            (p->column_major ? column_major(&p->w, best) : best);     \
      lb_next_index(p->w.n, p->w.out, o);                             \
    }                                                                 \
  }
POOL(F32, lb_f32, float, LB_IDENTITY, LB_IDENTITY, powf, fabsf)
POOL(F64, lb_f64, double, LB_IDENTITY, LB_IDENTITY, pow, fabs)

typedef struct pool_job {
  const pooling *p;
  bool wide;
} pool_job;

static void pool_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const pool_job *job = user;
  for (int64_t i = begin; i < end; i++)
    if (job->wide)
      plane_F64(job->p, i);
    else
      plane_F32(job->p, i);
}

static double lowest_of(lb_dtype t) {
  switch (t) {
    case LB_I8: return -128;
    case LB_U8: return 0;
    default: return -INFINITY;
  }
}

// Returns an output that is wanted; both have the same dims.
static const lb_tensor *any_output(const lb_reference_call *c) {
  return &c->out[lb_reference_wanted(c, 0) ? 0 : 1];
}

// p->w is complete; input 0 is x.
static lb_status pool_run(lb_reference_call *c, pooling *p) {
  const lb_tensor *in = &c->in[0];
  lb_dtype work = in->dtype == LB_F64 ? LB_F64 : LB_F32;
  bool small = in->dtype == LB_I8 || in->dtype == LB_U8;
  if (!lb_dtype_is_float(in->dtype) && !(small && p->kind == POOL_MAX))
    return lb_reference_bad_dtype(c, in->dtype);
  lb_tensor x, y;
  LB_TRY(lb_reference_dense(c, in, work, &x));
  const lb_tensor *like = any_output(c);
  LB_TRY(lb_work_out_or_temp(c, 0, work, like->rank, like->dims, &y));
  if (lb_tensor_count(&y) == 0) return LB_OK;
  p->lowest = lowest_of(in->dtype);
  p->in_plane = lb_reference_product(p->w.n, p->w.in);
  p->out_plane = lb_reference_product(p->w.n, p->w.out);
  p->x = x.data;
  p->y = y.data;
  if (lb_reference_wanted(c, 1)) p->indices = c->out[1].data;
  pool_job job = {p, work == LB_F64};
  lb_pool_for(c->pool, x.dims[0] * x.dims[1], 1, pool_task, &job);
  return lb_work_done(c, 0, &y);
}

static lb_status set_p(const lb_reference_call *c, pooling *p) {
  int64_t order = lb_attr_int(c->node, "p", 2);
  if (order < 1 || order > INT32_MAX)
    return lb_error(LB_INVALID, "p is %lld; it must be at least 1",
                    (long long)order);
  p->p = (int)order;
  return LB_OK;
}

static lb_status pool_windows(lb_reference_call *c, pooling *p) {
  const lb_tensor *x = &c->in[0];
  uint32_t count;
  const int64_t *kernel = lb_attr_ints(c->node, "kernel_shape", &count);
  p->w.n = x->rank - 2;
  if (p->w.n < 1 || count != (uint32_t)p->w.n)
    return lb_error(LB_INVALID, "kernel_shape has %u elements for %d axes",
                    count, p->w.n);
  for (int d = 0; d < p->w.n; d++) {
    p->w.in[d] = x->dims[2 + d];
    p->w.out[d] = any_output(c)->dims[2 + d];
    p->w.kernel[d] = kernel[d];
  }
  LB_TRY(lb_window_init(c, &p->w));
  return pool_run(c, p);
}

static lb_status pool_global(lb_reference_call *c, pooling *p) {
  const lb_tensor *x = &c->in[0];
  p->w.n = x->rank - 2;
  if (p->w.n < 1) {  // nothing to pool: every element is a window of its own
    p->w.n = 1;
    p->w.in[0] = p->w.out[0] = p->w.kernel[0] = 1;
    p->w.stride[0] = p->w.dilation[0] = 1;
    return pool_run(c, p);
  }
  for (int d = 0; d < p->w.n; d++) {
    p->w.in[d] = p->w.kernel[d] = x->dims[2 + d];
    p->w.out[d] = p->w.stride[d] = p->w.dilation[d] = 1;
  }
  return pool_run(c, p);
}

lb_status lb_reference_AveragePool(lb_reference_call *c) {
  pooling p = {.kind = POOL_AVERAGE};
  p.count_pads = lb_attr_int(c->node, "count_include_pad", 0) != 0;
  return pool_windows(c, &p);
}

lb_status lb_reference_MaxPool(lb_reference_call *c) {
  pooling p = {.kind = POOL_MAX};
  p.column_major = lb_attr_int(c->node, "storage_order", 0) != 0;
  return pool_windows(c, &p);
}

lb_status lb_reference_LpPool(lb_reference_call *c) {
  pooling p = {.kind = POOL_LP};
  LB_TRY(set_p(c, &p));
  return pool_windows(c, &p);
}

lb_status lb_reference_GlobalAveragePool(lb_reference_call *c) {
  pooling p = {.kind = POOL_AVERAGE};
  return pool_global(c, &p);
}

lb_status lb_reference_GlobalMaxPool(lb_reference_call *c) {
  pooling p = {.kind = POOL_MAX};
  return pool_global(c, &p);
}

lb_status lb_reference_GlobalLpPool(lb_reference_call *c) {
  pooling p = {.kind = POOL_LP};
  LB_TRY(set_p(c, &p));
  return pool_global(c, &p);
}

// -- MaxUnpool ---------------------------------------------------------------

// Indices refer to the dims that kernel, strides and pads imply; a larger
// output holds that block at its origin.
static lb_status unpool_dims(lb_reference_call *c, int64_t *dims) {
  const lb_tensor *x = &c->in[0];
  uint32_t count;
  const int64_t *kernel = lb_attr_ints(c->node, "kernel_shape", &count);
  lb_window_geometry w = {.n = x->rank - 2};
  if (w.n < 1 || count != (uint32_t)w.n)
    return lb_error(LB_INVALID, "kernel_shape has %u elements for %d axes",
                    count, w.n);
  for (int d = 0; d < w.n; d++)
    w.kernel[d] = kernel[d], w.in[d] = 0, w.out[d] = x->dims[2 + d];
  LB_TRY(lb_window_attrs(c, &w));
  LB_TRY(lb_window_check(c, &w));
  dims[0] = x->dims[0], dims[1] = x->dims[1];
  for (int d = 0; d < w.n; d++)
    dims[2 + d] =
        (w.out[d] - 1) * w.stride[d] - w.pad[d] - w.pad_end[d] + w.kernel[d];
  return LB_OK;
}

lb_status lb_reference_MaxUnpool(lb_reference_call *c) {
  const lb_tensor *out = &c->out[0];
  const int64_t *indices;
  int64_t dims[LB_MAX_RANK], n, count, at[LB_MAX_RANK];
  lb_tensor x;
  if (out->data) memset(out->data, 0, lb_tensor_bytes(out));
  if (lb_tensor_count(&c->in[0]) == 0) return LB_OK;
  LB_TRY(unpool_dims(c, dims));
  LB_TRY(lb_dims_count(out->rank, dims, &count));
  LB_TRY(lb_reference_dense(c, &c->in[0], out->dtype, &x));
  LB_TRY(lb_reference_ints(c, 1, &indices, &n));
  if (n != lb_tensor_count(&x))
    return lb_error(LB_INVALID, "%lld indices for %lld elements", (long long)n,
                    (long long)lb_tensor_count(&x));
  size_t size = lb_dtype_size(x.dtype);
  for (int64_t i = 0; i < n; i++) {
    if (indices[i] < 0 || indices[i] >= count)
      return lb_error(LB_INVALID, "index %lld is not in [0, %lld)",
                      (long long)indices[i], (long long)count);
    lb_index_of(indices[i], out->rank, dims, at);
    int64_t offset = 0;
    for (int d = 0; d < out->rank; d++) {
      if (at[d] >= out->dims[d])
        return lb_error(LB_INVALID, "index %lld is outside the output",
                        (long long)indices[i]);
      offset = offset * out->dims[d] + at[d];
    }
    memcpy((char *)out->data + offset * (int64_t)size,
           (const char *)x.data + i * (int64_t)size, size);
  }
  return LB_OK;
}
