// device/reference/resize.c -- Resize.
//
// Along one axis, output o is a weighted sum of `taps` inputs; indices and
// weights are computed once per axis (a *table*). `nearest` is a table of one
// tap with weight 1, and copies elements without interpreting them. Axes that
// do not change are skipped.
#include <math.h>
#include <string.h>

#include "device/reference/elem.h"
#include "device/reference/gemm.h"
#include "device/reference/iter.h"
#include "device/reference/window.h"
#include "graph/resize.h"

typedef struct table {
  bool identity;
  int64_t in, out, taps;
  int64_t *index;  // [out][taps], each in [0, in)
  double *weight;  // [out][taps]
  bool *outside;   // [out]: gets extrapolation_value; NULL: none does
} table;

// -- attributes --------------------------------------------------------------

// Reads the elements of a float input; NULL and 0 if it is absent or empty.
static lb_status read_floats(lb_reference_call *c, int i, const lb_f32 **out,
                             int64_t *n) {
  lb_tensor t;
  *out = NULL;
  *n = 0;
  if (i >= (int)c->node->n_in || c->in[i].dtype == LB_NONE) return LB_OK;
  LB_TRY(lb_reference_dense(c, &c->in[i], LB_F32, &t));
  *n = lb_tensor_count(&t);
  if (*n > 0) *out = t.data;
  return LB_OK;
}

// If the aspect ratio is to be kept, all listed axes share one scale.
static void keep_aspect(lb_reference_call *c, const int *axes, int n,
                        lb_resize *r) {
  const char *policy =
      lb_attr_str(c->node, "keep_aspect_ratio_policy", "stretch");
  const int64_t *sizes;
  int64_t n_sizes;
  lb_status st = lb_reference_ints(c, 3, &sizes, &n_sizes);
  if (lb_failed(st) || n_sizes != n || !strcmp(policy, "stretch")) {
    lb_status_drop(st);
    return;
  }
  bool larger = !strcmp(policy, "not_smaller");
  float best = 0;
  for (int i = 0; i < n; i++) {
    float s = (float)sizes[i] / (float)c->in[0].dims[axes[i]];
    if (i == 0 || (larger ? s > best : s < best)) best = s;
  }
  for (int i = 0; i < n; i++) r->scale[axes[i]] = best;
}

// Reads scales and regions, per axis of x.
static lb_status read_scales(lb_reference_call *c, lb_resize *r) {
  const lb_tensor *x = &c->in[0];
  uint32_t n_axes;
  const int64_t *list = lb_attr_ints(c->node, "axes", &n_axes);
  int axes[LB_MAX_RANK], n = list ? (int)n_axes : x->rank;
  if (n_axes > LB_MAX_RANK)
    return lb_error(LB_INVALID, "%u axes are too many", n_axes);
  for (int i = 0; i < n; i++) {
    axes[i] = i;
    if (list) LB_TRY(lb_reference_axis(c, list[i], x->rank, &axes[i]));
  }
  const lb_f32 *scales, *roi;
  int64_t n_scales, n_roi;
  LB_TRY(read_floats(c, 1, &roi, &n_roi));
  LB_TRY(read_floats(c, 2, &scales, &n_scales));
  if ((scales && n_scales != n) || (roi && n_roi != 2 * n))
    return lb_error(LB_INVALID, "%lld scales and a region of %lld for %d axes",
                    (long long)n_scales, (long long)n_roi, n);
  if (r->coord == LB_COORD_TF_CROP_AND_RESIZE && !roi)
    return lb_error(LB_INVALID, "tf_crop_and_resize needs the input roi");
  for (int d = 0; d < x->rank; d++) {
    r->scale[d] = (float)c->out[0].dims[d] / (float)x->dims[d];
    r->start[d] = 0, r->end[d] = 1;
  }
  if (!scales) keep_aspect(c, axes, n, r);
  for (int i = 0; i < n; i++) {
    if (scales) r->scale[axes[i]] = scales[i];
    if (roi) r->start[axes[i]] = roi[i], r->end[axes[i]] = roi[n + i];
  }
  for (int d = 0; d < x->rank; d++)
    if (c->out[0].dims[d] > 0 && !(r->scale[d] > 0 && isfinite(r->scale[d])))
      return lb_error(LB_INVALID, "the scale of axis %d is %g", d,
                      (double)r->scale[d]);
  return LB_OK;
}

// -- tables ------------------------------------------------------------------

static lb_status table_init(lb_reference_call *c, const lb_resize *r, int d,
                            table *t) {
  lb_resize_axis a = {d, c->in[0].dims[d], c->out[0].dims[d]};
  bool whole = r->start[d] == 0 && r->end[d] == 1;
  t->in = a.in;
  t->out = a.out;
  t->identity = a.in == a.out && r->scale[d] == 1 &&
                (r->coord != LB_COORD_TF_CROP_AND_RESIZE || whole);
  if (t->identity) return LB_OK;
  LB_TRY(lb_resize_taps(r, &a, &t->taps));
  size_t n = lb_mul_sat((size_t)t->out, (size_t)t->taps);
  t->index = lb_arena_new(c->scratch, int64_t, n);
  t->weight = lb_arena_new(c->scratch, double, n);
  if (!t->index || !t->weight) return lb_oom();
  if (r->coord == LB_COORD_TF_CROP_AND_RESIZE) {
    t->outside = lb_arena_new(c->scratch, bool, (size_t)t->out);
    if (!t->outside) return lb_oom();
  }
  for (int64_t o = 0; o < t->out; o++) {
    bool inside = lb_resize_at(r, &a, t->taps, o, t->index + o * t->taps,
                               t->weight + o * t->taps);
    if (t->outside) t->outside[o] = !inside;
  }
  return LB_OK;
}

// -- interpolation, one axis after the other ---------------------------------

typedef struct resize_pass {
  const table *t;
  const void *x;
  void *y;
  int64_t inner;  // elements after the axis
  double extrapolation;
  bool wide;
} resize_pass;

#define PASS(id, S, T, load, store, ...)                                  \
  static void pass_##id(const resize_pass *p, int64_t outer, int64_t o) { \
    const table *t = p->t;                                                \
    const S *x = (const S *)p->x + outer * t->in * p->inner;              \
    S *y = (S *)p->y + (outer * t->out + o) * p->inner;                   \
    if (t->outside && t->outside[o]) {                                    \
      for (int64_t i = 0; i < p->inner; i++) y[i] = (T)p->extrapolation;  \
      return;                                                             \
    }                                                                     \
    for (int64_t k = 0; k < t->taps; k++) {                               \
      const T w = (T)t->weight[o * t->taps + k];                          \
      const S *from = x + t->index[o * t->taps + k] * p->inner;           \
      if (k == 0)                                                         \
        for (int64_t i = 0; i < p->inner; i++) y[i] = w * from[i];        \
      else                                                                \
        for (int64_t i = 0; i < p->inner; i++) y[i] += w * from[i];       \
    }                                                                     \
  }
LB_WIDE_FLOATS(PASS, )

// The same along the last axis, where no elements are adjacent to vectorise
// over: outputs [begin, end).
#define POINTS(id, S, T, load, store, ...)                                     \
  static void points_##id(const resize_pass *p, int64_t begin, int64_t end) {  \
    const table *t = p->t;                                                     \
    const S *x = (const S *)p->x + begin / t->out * t->in;                     \
    S *y = (S *)p->y;                                                          \
    int64_t o = begin % t->out;                                                \
    for (int64_t i = begin; i < end; i++) {                                    \
      const int64_t *index = t->index + o * t->taps;                           \
      const double *weight = t->weight + o * t->taps;                          \
      T sum = (T)weight[0] * x[index[0]];                                      \
      for (int64_t k = 1; k < t->taps; k++) sum += (T)weight[k] * x[index[k]]; \
      y[i] = t->outside && t->outside[o] ? (T)p->extrapolation : sum;          \
      if (++o == t->out) o = 0, x += t->in;                                    \
    }                                                                          \
  }
LB_WIDE_FLOATS(POINTS, )

static void pass_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const resize_pass *p = user;
  if (p->inner == 1) {
    (p->wide ? points_F64 : points_F32)(p, begin, end);
    return;
  }
  for (int64_t i = begin; i < end; i++)
    (p->wide ? pass_F64 : pass_F32)(p, i / p->t->out, i % p->t->out);
}

static void round_row(const void *user, int64_t n, char *const *p,
                      const int64_t *step) {
  const double *range = user;
  for (int64_t i = 0; i < n; i++) {
    lb_f64 *x = (lb_f64 *)(p[0] + i * step[0]);
    double y = rint(*x);
    y = y > range[0] ? y : range[0];  // also for NaN
    *x = y < range[1] ? y : range[1];
  }
}

// Rounds and clamps integers to the range of `dtype`.
static void round_to(lb_reference_call *c, const lb_tensor *t, lb_dtype dtype) {
  if (lb_dtype_is_float(dtype)) return;
  double bits = (double)(8 * lb_dtype_size(dtype));
  double range[] = {0, exp2(bits) - 1};
  if (lb_dtype_is_signed(dtype))
    range[0] = -exp2(bits - 1), range[1] = exp2(bits - 1) - 1;
  if (bits == 64) range[1] = nextafter(exp2(bits - (range[0] < 0)), 0);
  if (dtype == LB_BOOL) range[1] = 1;
  const lb_tensor *operands[] = {t};
  lb_iter_all(c->pool, 1, operands, round_row, range);
}

static lb_status interpolate(lb_reference_call *c, const lb_resize *r,
                             const table *tables) {
  lb_dtype dtype = c->in[0].dtype;
  bool narrow = lb_dtype_is_float(dtype) && dtype != LB_F64;
  lb_tensor x;
  LB_TRY(lb_reference_dense(c, &c->in[0], narrow ? LB_F32 : LB_F64, &x));
  for (int d = 0; d < x.rank; d++) {
    const table *t = &tables[d];
    if (t->identity) continue;
    lb_tensor y;
    int64_t dims[LB_MAX_RANK];
    memcpy(dims, x.dims, sizeof dims);
    dims[d] = t->out;
    LB_TRY(lb_reference_temp(c, x.dtype, x.rank, dims, &y));
    resize_pass p = {t,
                     x.data,
                     y.data,
                     lb_reference_product(x.rank - d - 1, x.dims + d + 1),
                     r->extrapolation,
                     !narrow};
    int64_t rows = lb_reference_product(d, x.dims) * t->out;
    int64_t work = p.inner * t->taps + 1;
    lb_pool_for(c->pool, rows, 1 + LB_ITER_GRAIN / work, pass_task, &p);
    x = y;
  }
  if (x.data != c->in[0].data) round_to(c, &x, dtype);
  lb_convert(c->pool, &x, &c->out[0]);
  return LB_OK;
}

// -- nearest -----------------------------------------------------------------

typedef struct nearest_job {
  const lb_tensor *x, *out;
  const table *tables;
  const void *extrapolation;  // an element
} nearest_job;

static int64_t source(const table *t, int64_t o) {
  return t->identity ? o : t->index[o];
}

static bool outside(const table *t, int64_t o) {
  return t->outside && t->outside[o];
}

#define MOVE(S)                                                            \
  static void move_##S(const nearest_job *m, int64_t at, int64_t base,     \
                       bool out) {                                         \
    int last = m->x->rank - 1;                                             \
    const table *t = &m->tables[last];                                     \
    const S *x = (const S *)m->x->data + base;                             \
    S *y = (S *)m->out->data + at;                                         \
    const int64_t stride = m->x->strides[last];                            \
    if (!out && !t->outside && !t->identity)                               \
      for (int64_t o = 0; o < t->out; o++) y[o] = x[t->index[o] * stride]; \
    else                                                                   \
      for (int64_t o = 0; o < t->out; o++)                                 \
        y[o] = out || outside(t, o) ? *(const S *)m->extrapolation         \
                                    : x[source(t, o) * stride];            \
  }
MOVE(lb_u8)
MOVE(lb_u16)
MOVE(lb_u32)
MOVE(lb_u64)

static void nearest_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const nearest_job *m = user;
  int last = m->x->rank - 1;
  for (int64_t row = begin; row < end; row++) {
    int64_t index[LB_MAX_RANK], base = 0, at = row * m->out->dims[last];
    bool out = false;
    lb_index_of(row, last, m->out->dims, index);
    for (int d = 0; d < last; d++) {
      out |= outside(&m->tables[d], index[d]);
      base += source(&m->tables[d], index[d]) * m->x->strides[d];
    }
    switch (lb_dtype_size(m->x->dtype)) {
      case 1: move_lb_u8(m, at, base, out); break;
      case 2: move_lb_u16(m, at, base, out); break;
      case 4: move_lb_u32(m, at, base, out); break;
      default: move_lb_u64(m, at, base, out); break;
    }
  }
}

static lb_status nearest(lb_reference_call *c, const lb_resize *r,
                         const table *tables) {
  double value = r->extrapolation;
  uint64_t element = 0;
  lb_tensor from = {.dtype = LB_F64, .data = &value};
  lb_tensor to = {.dtype = c->in[0].dtype, .data = &element};
  LB_TRY(lb_reference_convert(&from, &to));
  nearest_job m = {&c->in[0], &c->out[0], tables, &element};
  int last = c->out[0].rank - 1;
  int64_t rows = lb_reference_product(last, c->out[0].dims);
  lb_pool_for(c->pool, rows, 1 + LB_ITER_GRAIN / (c->out[0].dims[last] + 1),
              nearest_task, &m);
  return LB_OK;
}

lb_status lb_reference_Resize(lb_reference_call *c) {
  lb_resize r = {0};
  table tables[LB_MAX_RANK] = {0};
  const lb_tensor *x = &c->in[0];
  LB_TRY(lb_resize_read_modes(c->node, &r));
  if (lb_tensor_count(&c->out[0]) == 0) return LB_OK;
  if (lb_tensor_count(x) == 0)
    return lb_error(LB_INVALID,
                    "an empty input cannot be resized to one with "
                    "elements");
  if (x->rank == 0) return lb_reference_convert(x, &c->out[0]);
  LB_TRY(read_scales(c, &r));
  for (int d = 0; d < x->rank; d++) LB_TRY(table_init(c, &r, d, &tables[d]));
  return r.filter == LB_FILTER_NEAREST ? nearest(c, &r, tables)
                                       : interpolate(c, &r, tables);
}
