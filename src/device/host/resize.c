// device/host/resize.c -- Resize.
//
// Every mode is separable. Along one axis, output o is a sum of `taps` inputs
// with weights, both tabulated once (a *table*); nearest is a table of one
// tap and weight 1, and moves elements without looking at them. Axes that do
// not change are skipped. Coordinates are computed in float, as exporters
// expect, so that positions like 1.2 * 5 come out whole.
#include <math.h>
#include <string.h>

#include "device/host/elem.h"
#include "device/host/gemm.h"
#include "device/host/iter.h"
#include "device/host/window.h"

typedef struct table {
  bool identity;
  int64_t in, out, taps;
  int64_t *index;  // [out][taps], each in [0, in)
  double *weight;  // [out][taps]
  bool *outside;   // [out]: takes extrapolation_value; NULL: none does
} table;

typedef enum coord_mode {
  HALF_PIXEL,
  HALF_PIXEL_SYMMETRIC,
  PYTORCH_HALF_PIXEL,
  ALIGN_CORNERS,
  ASYMMETRIC,
  TF_CROP_AND_RESIZE,
} coord_mode;

typedef enum filter { NEAREST, LINEAR, CUBIC } filter;

// BY_SCALE: up on an axis that becomes smaller, else down.
typedef enum rounding {
  PREFER_FLOOR,
  PREFER_CEIL,
  FLOOR,
  CEIL,
  BY_SCALE
} rounding;

typedef struct resize {
  coord_mode coord;
  filter filter;
  rounding rounding;
  bool antialias, exclude_outside;
  double cubic_a, extrapolation;
  float scale[LB_MAX_RANK];
  float start[LB_MAX_RANK], end[LB_MAX_RANK];  // of the region
} resize;

// -- attributes --------------------------------------------------------------

// The place of the attribute's value in `names`, which ends with NULL.
static lb_status choice(const lb_host_call *c, const char *attr,
                        const char *dflt, const char *const *names, int *out) {
  const char *value = lb_attr_str(c->node, attr, dflt);
  for (*out = 0; names[*out]; ++*out)
    if (!strcmp(value, names[*out])) return LB_OK;
  return lb_error(LB_INVALID, "%s '%s' is not known", attr, value);
}

static lb_status read_modes(const lb_host_call *c, resize *r) {
  static const char *const coords[] = {"half_pixel",
                                       "half_pixel_symmetric",
                                       "pytorch_half_pixel",
                                       "align_corners",
                                       "asymmetric",
                                       "tf_crop_and_resize",
                                       NULL};
  static const char *const filters[] = {"nearest", "linear", "cubic", NULL};
  static const char *const roundings[] = {"round_prefer_floor",
                                          "round_prefer_ceil",
                                          "floor",
                                          "ceil",
                                          "by_scale",
                                          NULL};
  int coord, kind, round;
  LB_TRY(choice(c, "coordinate_transformation_mode", "half_pixel", coords,
                &coord));
  LB_TRY(choice(c, "mode", "nearest", filters, &kind));
  LB_TRY(choice(c, "nearest_mode", "round_prefer_floor", roundings, &round));
  r->coord = (coord_mode)coord;
  r->filter = (filter)kind;
  r->rounding = (rounding)round;
  r->antialias = lb_attr_int(c->node, "antialias", 0) != 0;
  r->exclude_outside = lb_attr_int(c->node, "exclude_outside", 0) != 0;
  r->cubic_a = (double)lb_attr_float(c->node, "cubic_coeff_a", -0.75f);
  r->extrapolation = (double)lb_attr_float(c->node, "extrapolation_value", 0);
  return LB_OK;
}

// Elements of a float input; NULL and 0 if absent or empty.
static lb_status read_floats(lb_host_call *c, int i, const lb_f32 **out,
                             int64_t *n) {
  lb_tensor t;
  *out = NULL;
  *n = 0;
  if (i >= (int)c->node->n_in || c->in[i].dtype == LB_NONE) return LB_OK;
  LB_TRY(lb_host_dense(c, &c->in[i], LB_F32, &t));
  *n = lb_tensor_count(&t);
  if (*n > 0) *out = t.data;
  return LB_OK;
}

// With an aspect ratio to keep, all listed axes share one scale.
static void keep_aspect(lb_host_call *c, const int *axes, int n, resize *r) {
  const char *policy =
      lb_attr_str(c->node, "keep_aspect_ratio_policy", "stretch");
  const int64_t *sizes;
  int64_t n_sizes;
  lb_status st = lb_host_ints(c, 3, &sizes, &n_sizes);
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

// Scales and regions, per axis of x.
static lb_status read_scales(lb_host_call *c, resize *r) {
  const lb_tensor *x = &c->in[0];
  uint32_t n_axes;
  const int64_t *list = lb_attr_ints(c->node, "axes", &n_axes);
  int axes[LB_MAX_RANK], n = list ? (int)n_axes : x->rank;
  if (n_axes > LB_MAX_RANK)
    return lb_error(LB_INVALID, "%u axes are too many", n_axes);
  for (int i = 0; i < n; i++) {
    axes[i] = i;
    if (list) LB_TRY(lb_host_axis(c, list[i], x->rank, &axes[i]));
  }
  const lb_f32 *scales, *roi;
  int64_t n_scales, n_roi;
  LB_TRY(read_floats(c, 1, &roi, &n_roi));
  LB_TRY(read_floats(c, 2, &scales, &n_scales));
  if ((scales && n_scales != n) || (roi && n_roi != 2 * n))
    return lb_error(LB_INVALID, "%lld scales and a region of %lld for %d axes",
                    (long long)n_scales, (long long)n_roi, n);
  if (r->coord == TF_CROP_AND_RESIZE && !roi)
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

// Where output o lies in the input.
static float coordinate(const resize *r, int d, const table *t, int64_t o) {
  float x = (float)o, scale = r->scale[d];
  float in = (float)t->in, out = (float)t->out;
  switch (r->coord) {
    case HALF_PIXEL: return (x + 0.5f) / scale - 0.5f;
    case HALF_PIXEL_SYMMETRIC: {
      float offset = in / 2 * (1 - out / (scale * in));
      return offset + (x + 0.5f) / scale - 0.5f;
    }
    case PYTORCH_HALF_PIXEL: return t->out > 1 ? (x + 0.5f) / scale - 0.5f : 0;
    case ALIGN_CORNERS: return t->out > 1 ? x * (in - 1) / (out - 1) : 0;
    case ASYMMETRIC: return x / scale;
    case TF_CROP_AND_RESIZE: break;
  }
  float start = r->start[d], end = r->end[d];
  if (t->out <= 1) return 0.5f * (start + end) * (in - 1);
  return start * (in - 1) + x * (end - start) * (in - 1) / (out - 1);
}

static int64_t clamp(double x, int64_t n) {
  if (!(x > 0)) return 0;  // NaN too
  return x < (double)(n - 1) ? (int64_t)x : n - 1;
}

static int64_t nearest(const resize *r, int d, float x, int64_t n) {
  float y = 0;
  switch (r->rounding) {
    case PREFER_FLOOR: y = ceilf(x - 0.5f); break;
    case PREFER_CEIL: y = floorf(x + 0.5f); break;
    case FLOOR: y = floorf(x); break;
    case CEIL: y = ceilf(x); break;
    case BY_SCALE: y = r->scale[d] < 1 ? ceilf(x) : floorf(x); break;
  }
  return clamp((double)y, n);
}

static double cubic(double a, double x) {
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// The weight of an input at distance x, in units of the filter.
static double filter_weight(const resize *r, double x) {
  if (r->filter == CUBIC) return cubic(r->cubic_a, x);
  double w = 1 - fabs(x);
  return w > 0 ? w : 0;
}

// Taps [first, first + taps) around floor(x); antialiasing stretches them.
static double stretch_of(const resize *r, int d) {
  return r->antialias && r->scale[d] < 1 ? (double)r->scale[d] : 1;
}

static int64_t first_tap(const resize *r, int d) {
  double reach = r->filter == CUBIC ? 2 : 1;
  return (int64_t)floor(-reach / stretch_of(r, d)) + 1;
}

static void fill_weights(const resize *r, int d, table *t, int64_t o, float x) {
  double base = floor((double)x), ratio = (double)x - base, sum = 0;
  if (ratio == 0) base -= 1, ratio = 1;  // the left neighbour is preferred
  int64_t first = first_tap(r, d);
  double *weight = t->weight + o * t->taps, stretch = stretch_of(r, d);
  for (int64_t k = 0; k < t->taps; k++) {
    double at = base + (double)(first + k);
    weight[k] = filter_weight(r, ((double)(first + k) - ratio) * stretch);
    bool out = at < 0 || at > (double)(t->in - 1);
    if (r->exclude_outside && out) weight[k] = 0;
    t->index[o * t->taps + k] = clamp(at, t->in);
    sum += weight[k];
  }
  bool normalise = r->exclude_outside || stretch < 1;
  for (int64_t k = 0; normalise && sum != 0 && k < t->taps; k++)
    weight[k] /= sum;
}

static void fill_row(const resize *r, int d, table *t, int64_t o) {
  float x = coordinate(r, d, t, o);
  if (r->coord == TF_CROP_AND_RESIZE)
    t->outside[o] = !(x >= 0 && x <= (float)(t->in - 1));
  if (r->filter == NEAREST)
    t->index[o] = nearest(r, d, x, t->in);
  else
    fill_weights(r, d, t, o, x);
}

static lb_status table_init(lb_host_call *c, const resize *r, int d, table *t) {
  t->in = c->in[0].dims[d];
  t->out = c->out[0].dims[d];
  bool whole = r->start[d] == 0 && r->end[d] == 1;
  t->identity = t->in == t->out && r->scale[d] == 1 &&
                (r->coord != TF_CROP_AND_RESIZE || whole);
  if (t->identity) return LB_OK;
  t->taps = 1;
  if (r->filter != NEAREST) {
    double reach = (r->filter == CUBIC ? 2 : 1) / stretch_of(r, d);
    if (reach > 4 * (double)t->in + 16)
      return lb_error(LB_INVALID, "a scale of %g is too small for axis %d",
                      (double)r->scale[d], d);
    t->taps = 2 - 2 * first_tap(r, d);
  }
  size_t n = lb_mul_sat((size_t)t->out, (size_t)t->taps);
  t->index = lb_arena_new(c->scratch, int64_t, n);
  t->weight = lb_arena_new(c->scratch, double, n);
  if (!t->index || !t->weight) return lb_oom();
  if (r->coord == TF_CROP_AND_RESIZE) {
    t->outside = lb_arena_new(c->scratch, bool, (size_t)t->out);
    if (!t->outside) return lb_oom();
  }
  for (int64_t o = 0; o < t->out; o++) fill_row(r, d, t, o);
  return LB_OK;
}

// -- interpolation, one axis after the other ---------------------------------

typedef struct pass {
  const table *t;
  const void *x;
  void *y;
  int64_t inner;  // elements after the axis
  double extrapolation;
  bool wide;
} pass;

#define PASS(id, S, T, load, store, ...)                                 \
  static void pass_##id(const pass *p, int64_t outer, int64_t o) {       \
    const table *t = p->t;                                               \
    const S *x = (const S *)p->x + outer * t->in * p->inner;             \
    S *y = (S *)p->y + (outer * t->out + o) * p->inner;                  \
    if (t->outside && t->outside[o]) {                                   \
      for (int64_t i = 0; i < p->inner; i++) y[i] = (T)p->extrapolation; \
      return;                                                            \
    }                                                                    \
    for (int64_t k = 0; k < t->taps; k++) {                              \
      const T w = (T)t->weight[o * t->taps + k];                         \
      const S *from = x + t->index[o * t->taps + k] * p->inner;          \
      if (k == 0)                                                        \
        for (int64_t i = 0; i < p->inner; i++) y[i] = w * from[i];       \
      else                                                               \
        for (int64_t i = 0; i < p->inner; i++) y[i] += w * from[i];      \
    }                                                                    \
  }
LB_WIDE_FLOATS(PASS, )

static void pass_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const pass *p = user;
  for (int64_t i = begin; i < end; i++)
    if (p->wide)
      pass_F64(p, i / p->t->out, i % p->t->out);
    else
      pass_F32(p, i / p->t->out, i % p->t->out);
}

static void round_row(const void *user, int64_t n, char *const *p,
                      const int64_t *step) {
  const double *range = user;
  for (int64_t i = 0; i < n; i++) {
    lb_f64 *x = (lb_f64 *)(p[0] + i * step[0]);
    double y = rint(*x);
    y = y > range[0] ? y : range[0];  // NaN too
    *x = y < range[1] ? y : range[1];
  }
}

// Integers are rounded and saturate.
static void round_to(lb_host_call *c, const lb_tensor *t, lb_dtype dtype) {
  if (lb_dtype_is_float(dtype)) return;
  double bits = (double)(8 * lb_dtype_size(dtype));
  double range[] = {0, exp2(bits) - 1};
  if (lb_dtype_is_signed(dtype))
    range[0] = -exp2(bits - 1), range[1] = exp2(bits - 1) - 1;
  if (bits == 64) range[1] = nextafter(exp2(bits - (range[0] < 0)), 0);
  if (dtype == LB_BOOL) range[1] = 1;
  const lb_tensor *operands[] = {t};
  lb_each(c->pool, 1, operands, round_row, range);
}

static lb_status interpolate(lb_host_call *c, const resize *r,
                             const table *tables) {
  lb_dtype dtype = c->in[0].dtype;
  bool narrow = lb_dtype_is_float(dtype) && dtype != LB_F64;
  lb_tensor x;
  LB_TRY(lb_host_dense(c, &c->in[0], narrow ? LB_F32 : LB_F64, &x));
  for (int d = 0; d < x.rank; d++) {
    const table *t = &tables[d];
    if (t->identity) continue;
    lb_tensor y;
    int64_t dims[LB_MAX_RANK];
    memcpy(dims, x.dims, sizeof dims);
    dims[d] = t->out;
    LB_TRY(lb_host_temp(c, x.dtype, x.rank, dims, &y));
    pass p = {t,
              x.data,
              y.data,
              lb_product(x.rank - d - 1, x.dims + d + 1),
              r->extrapolation,
              !narrow};
    int64_t rows = lb_product(d, x.dims) * t->out;
    int64_t work = p.inner * t->taps + 1;
    lb_pool_for(c->pool, rows, 1 + LB_ITER_GRAIN / work, pass_task, &p);
    x = y;
  }
  if (x.data != c->in[0].data) round_to(c, &x, dtype);
  lb_convert(c->pool, &x, &c->out[0]);
  return LB_OK;
}

// -- nearest: elements move --------------------------------------------------

typedef struct movement {
  const lb_tensor *x, *out;
  const table *tables;
  const void *extrapolation;  // an element
} movement;

static int64_t source(const table *t, int64_t o) {
  return t->identity ? o : t->index[o];
}

static bool outside(const table *t, int64_t o) {
  return t->outside && t->outside[o];
}

#define MOVE(S)                                                     \
  static void move_##S(const movement *m, int64_t at, int64_t base, \
                       bool out) {                                  \
    int last = m->x->rank - 1;                                      \
    const table *t = &m->tables[last];                              \
    const S *x = (const S *)m->x->data + base;                      \
    S *y = (S *)m->out->data + at;                                  \
    const int64_t stride = m->x->strides[last];                     \
    for (int64_t o = 0; o < t->out; o++)                            \
      y[o] = out || outside(t, o) ? *(const S *)m->extrapolation    \
                                  : x[source(t, o) * stride];       \
  }
MOVE(lb_u8)
MOVE(lb_u16)
MOVE(lb_u32)
MOVE(lb_u64)

static void move_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const movement *m = user;
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

static lb_status move(lb_host_call *c, const resize *r, const table *tables) {
  double value = r->extrapolation;
  uint64_t element = 0;
  lb_tensor from = {.dtype = LB_F64, .data = &value};
  lb_tensor to = {.dtype = c->in[0].dtype, .data = &element};
  LB_TRY(lb_host_convert(&from, &to));
  movement m = {&c->in[0], &c->out[0], tables, &element};
  int last = c->out[0].rank - 1;
  int64_t rows = lb_product(last, c->out[0].dims);
  lb_pool_for(c->pool, rows, 1 + LB_ITER_GRAIN / (c->out[0].dims[last] + 1),
              move_task, &m);
  return LB_OK;
}

lb_status lb_host_Resize(lb_host_call *c) {
  resize r = {0};
  table tables[LB_MAX_RANK] = {0};
  const lb_tensor *x = &c->in[0];
  LB_TRY(read_modes(c, &r));
  if (lb_tensor_count(&c->out[0]) == 0) return LB_OK;
  if (lb_tensor_count(x) == 0)
    return lb_error(LB_INVALID,
                    "an empty input cannot be resized to one with "
                    "elements");
  if (x->rank == 0) return lb_host_convert(x, &c->out[0]);
  LB_TRY(read_scales(c, &r));
  for (int d = 0; d < x->rank; d++) LB_TRY(table_init(c, &r, d, &tables[d]));
  return r.filter == NEAREST ? move(c, &r, tables) : interpolate(c, &r, tables);
}
