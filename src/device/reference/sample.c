// device/reference/sample.c -- GridSample, AffineGrid, Det.
#include <math.h>
#include <string.h>

#include "device/reference/elem.h"
#include "device/reference/gemm.h"
#include "device/reference/iter.h"
#include "device/reference/window.h"

// -- GridSample --------------------------------------------------------------
//
// Along each axis a position has up to four taps: an element, or none (-1)
// where padding is zeros, and a weight. A sample is the sum over all
// combinations of taps.

enum { GRID_TAPS = 256 };  // maximum per point

typedef enum grid_mode { GRID_NEAREST, GRID_LINEAR, GRID_CUBIC } grid_mode;
typedef enum grid_pad { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION } grid_pad;

typedef struct grid_taps {
  int64_t index[4];
  double weight[4];
} grid_taps;

typedef struct grid {
  grid_mode mode;
  grid_pad pad;
  bool align;
  int n, taps;  // spatial axes; taps per axis
  int64_t dims[LB_MAX_RANK], channels, plane, points;  // points per batch item
  const lb_f64 *coords;  // [batch, points, n], with the last axis first
  const void *x;
  void *y;
  bool wide;
} grid;

static double reflect(double x, double lo, double hi) {
  double range = hi - lo;
  if (range <= 0) return lo;
  double far = fmod(fabs(x - lo), 2 * range);
  return lo + (far <= range ? far : 2 * range - far);
}

static double low_edge(const grid *g) { return g->align ? 0 : -0.5; }

static double high_edge(const grid *g, int d) {
  double n = (double)g->dims[d];
  return g->align ? n - 1 : n - 0.5;
}

// The element at integer position i, or -1.
static int64_t grid_element(const grid *g, int d, double i) {
  double last = (double)(g->dims[d] - 1);
  if (g->pad == PAD_ZEROS) return i >= 0 && i <= last ? (int64_t)i : -1;
  if (g->pad == PAD_REFLECTION)
    i = trunc(reflect(i, low_edge(g), high_edge(g, d)));
  return (int64_t)(i < 0 ? 0 : i > last ? last : i);
}

// Converts a coordinate in [-1, 1] to a position in elements.
static double position(const grid *g, int d, double at) {
  double n = (double)g->dims[d];
  double x = g->align ? (at + 1) / 2 * (n - 1) : ((at + 1) * n - 1) / 2;
  x = (double)(float)x;
  if (isnan(x)) x = -0x1p40;
  x = x < -0x1p40 ? -0x1p40 : x > 0x1p40 ? 0x1p40 : x;
  if (g->mode == GRID_NEAREST) x = rint(x);
  if (x >= low_edge(g) && x <= high_edge(g, d)) return x;
  // Cubic weights are not clamped, only the taps.
  if (g->pad == PAD_BORDER && g->mode != GRID_CUBIC)
    return x < 0 ? 0 : x > n - 1 ? n - 1 : x;
  if (g->pad == PAD_REFLECTION) return reflect(x, low_edge(g), high_edge(g, d));
  return x;
}

static double keys(double x) {  // cubic convolution, a = -0.75
  const double a = -0.75;
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

static grid_taps taps_of(const grid *g, int d, double at) {
  grid_taps t = {.weight = {1}};
  double x = position(g, d, at), low = floor(x), r = x - low;
  switch (g->mode) {
    case GRID_NEAREST: t.index[0] = grid_element(g, d, trunc(x)); break;
    case GRID_LINEAR:
      t.weight[0] = 1 - r, t.weight[1] = r;
      for (int i = 0; i < 2; i++) t.index[i] = grid_element(g, d, low + i);
      break;
    case GRID_CUBIC:
      for (int i = 0; i < 4; i++) {
        t.weight[i] = keys(r - (i - 1));
        t.index[i] = grid_element(g, d, low + i - 1);
      }
      break;
  }
  return t;
}

// The taps of a point, the same for all channels: all combinations of taps that
// are inside.
typedef struct grid_point {
  int n;
  int64_t at[GRID_TAPS];  // offset in a plane
  double weight[GRID_TAPS];
} grid_point;

static void grid_taps_of_point(const grid *g, const lb_f64 *coords,
                               grid_point *out) {
  grid_taps t[LB_MAX_RANK];
  int64_t tap_index[LB_MAX_RANK] = {0}, taps_per_axis[LB_MAX_RANK];
  out->n = 0;
  for (int d = 0; d < g->n; d++) {
    t[d] = taps_of(g, d, coords[g->n - 1 - d]);
    taps_per_axis[d] = g->taps;
  }
  do {
    int64_t at = 0;
    double weight = 1;
    bool inside = true;
    for (int d = 0; d < g->n; d++) {
      int64_t i = t[d].index[tap_index[d]];
      inside &= i >= 0;
      weight *= t[d].weight[tap_index[d]];
      at = at * g->dims[d] + i;
    }
    if (!inside) continue;
    out->at[out->n] = at;
    out->weight[out->n++] = weight;
  } while (lb_next_index(g->n, taps_per_axis, tap_index));
}

// Samples all channels at one point; `from` is the first plane.
#define GRID_SAMPLE(T)                                               \
  static void grid_sample_##T(const grid *g, const grid_point *p,    \
                              const T *from, T *to) {                \
    for (int64_t c = 0; c < g->channels; c++) {                      \
      double sum = 0;                                                \
      for (int i = 0; i < p->n; i++)                                 \
        sum += p->weight[i] * (double)from[c * g->plane + p->at[i]]; \
      to[c * g->points] = (T)sum;                                    \
    }                                                                \
  }
GRID_SAMPLE(lb_f32)
GRID_SAMPLE(lb_f64)

static void grid_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const grid *g = user;
  grid_point point;
  for (int64_t p = begin; p < end; p++) {
    int64_t plane = p / g->points * g->channels, at = p % g->points;
    int64_t from = plane * g->plane, to = plane * g->points + at;
    grid_taps_of_point(g, g->coords + p * g->n, &point);
    if (g->wide)
      grid_sample_lb_f64(g, &point, (const lb_f64 *)g->x + from,
                         (lb_f64 *)g->y + to);
    else
      grid_sample_lb_f32(g, &point, (const lb_f32 *)g->x + from,
                         (lb_f32 *)g->y + to);
  }
}

static lb_status grid_modes(const lb_reference_call *c, grid *g) {
  const char *mode = lb_attr_str(c->node, "mode", "linear");
  const char *pad = lb_attr_str(c->node, "padding_mode", "zeros");
  if (!strcmp(mode, "nearest"))
    g->mode = GRID_NEAREST, g->taps = 1;
  else if (!strcmp(mode, "linear") || !strcmp(mode, "bilinear"))
    g->mode = GRID_LINEAR, g->taps = 2;
  else if (!strcmp(mode, "cubic") || !strcmp(mode, "bicubic"))
    g->mode = GRID_CUBIC, g->taps = 4;
  else
    return lb_error(LB_INVALID, "mode '%s' is not known", mode);
  if (!strcmp(pad, "zeros"))
    g->pad = PAD_ZEROS;
  else if (!strcmp(pad, "border"))
    g->pad = PAD_BORDER;
  else if (!strcmp(pad, "reflection"))
    g->pad = PAD_REFLECTION;
  else
    return lb_error(LB_INVALID, "padding_mode '%s' is not known", pad);
  g->align = lb_attr_int(c->node, "align_corners", 0) != 0;
  return LB_OK;
}

lb_status lb_reference_GridSample(lb_reference_call *c) {
  const lb_tensor *in = &c->in[0], *out = &c->out[0];
  grid g = {.n = in->rank - 2, .channels = in->rank > 1 ? in->dims[1] : 0};
  LB_TRY(grid_modes(c, &g));
  if (lb_tensor_count(out) == 0) return LB_OK;
  if (g.n < 1 || c->in[1].rank != in->rank ||
      c->in[1].dims[in->rank - 1] != g.n || c->in[1].dims[0] != in->dims[0])
    return lb_error(LB_INVALID,
                    "the grid must have %d coordinates per point "
                    "and the batch size of the input",
                    g.n);
  if (pow(g.taps, g.n) > GRID_TAPS)
    return lb_error(LB_UNSUPPORTED,
                    "%d taps along each of %d axes are too many", g.taps, g.n);
  memcpy(g.dims, in->dims + 2, (size_t)g.n * sizeof *g.dims);
  g.plane = lb_reference_product(g.n, g.dims);
  g.points = lb_reference_product(g.n, out->dims + 2);
  if (g.plane == 0)
    return lb_error(LB_INVALID, "an input without elements cannot be sampled");
  g.wide = !lb_dtype_is_float(in->dtype) || in->dtype == LB_F64;
  lb_tensor x, coords, y;
  LB_TRY(lb_reference_dense(c, in, g.wide ? LB_F64 : LB_F32, &x));
  LB_TRY(lb_reference_dense(c, &c->in[1], LB_F64, &coords));
  LB_TRY(lb_work_out(c, 0, g.wide ? LB_F64 : LB_F32, &y));
  g.coords = coords.data, g.x = x.data, g.y = y.data;
  lb_pool_for(c->pool, out->dims[0] * g.points, 64, grid_task, &g);
  return lb_work_done(c, 0, &y);
}

// -- AffineGrid --------------------------------------------------------------

// The coordinate in [-1, 1] of element i of n.
static double grid_coord(int64_t i, int64_t n, bool align) {
  if (!align) return (2 * (double)i + 1) / (double)n - 1;
  return n > 1 ? 2 * (double)i / (double)(n - 1) - 1 : -1;
}

lb_status lb_reference_AffineGrid(lb_reference_call *c) {
  const lb_tensor *out = &c->out[0];
  int n = out->rank - 2;  // spatial axes
  bool align = lb_attr_int(c->node, "align_corners", 0) != 0;
  lb_tensor theta, y;
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_F64, &theta));
  LB_TRY(lb_work_out(c, 0, LB_F64, &y));
  if (n < 1 || theta.rank != 3 || theta.dims[0] != out->dims[0] ||
      theta.dims[1] != n || theta.dims[2] != n + 1 ||
      out->dims[out->rank - 1] != n)
    return lb_error(LB_INVALID, "theta must be [batch, %d, %d]", n, n + 1);
  if (lb_tensor_count(out) == 0) return LB_OK;
  const int64_t *dims = out->dims + 1;
  int64_t points = lb_reference_product(n, dims);
  lb_f64 *to = y.data;
  for (int64_t p = 0; p < out->dims[0] * points; p++) {
    int64_t index[LB_MAX_RANK];
    const lb_f64 *m =
        (const lb_f64 *)theta.data + p / points * (int64_t)n * (n + 1);
    lb_index_of(p % points, n, dims, index);
    for (int r = 0; r < n; r++, m += n + 1) {
      double sum = m[n];
      for (int d = 0; d < n; d++)
        sum += m[d] * grid_coord(index[n - 1 - d], dims[n - 1 - d], align);
      *to++ = sum;
    }
  }
  return lb_work_done(c, 0, &y);
}

// -- Det ---------------------------------------------------------------------

// Gaussian elimination with partial pivoting; m is overwritten.
static double determinant(lb_f64 *m, int64_t n) {
  double det = 1;
  for (int64_t k = 0; k < n; k++) {
    int64_t best = k;
    for (int64_t i = k + 1; i < n; i++)
      if (fabs(m[i * n + k]) > fabs(m[best * n + k])) best = i;
    if (m[best * n + k] == 0) return 0;
    for (int64_t j = 0; best != k && j < n; j++) {
      double t = m[k * n + j];
      m[k * n + j] = m[best * n + j];
      m[best * n + j] = t;
    }
    det *= best != k ? -m[k * n + k] : m[k * n + k];
    for (int64_t i = k + 1; i < n; i++) {
      double f = m[i * n + k] / m[k * n + k];
      for (int64_t j = k + 1; j < n; j++) m[i * n + j] -= f * m[k * n + j];
    }
  }
  return det;
}

lb_status lb_reference_Det(lb_reference_call *c) {
  const lb_tensor *in = &c->in[0];
  if (!lb_dtype_is_float(in->dtype))
    return lb_reference_bad_dtype(c, in->dtype);
  if (in->rank < 2 || in->dims[in->rank - 1] != in->dims[in->rank - 2])
    return lb_error(LB_INVALID, "a determinant needs square matrices");
  lb_tensor m, y;
  int64_t n = in->dims[in->rank - 1];
  LB_TRY(lb_reference_temp(c, LB_F64, in->rank, in->dims, &m));
  lb_convert(c->pool, in, &m);
  LB_TRY(lb_reference_temp(c, LB_F64, c->out[0].rank, c->out[0].dims, &y));
  for (int64_t i = 0; i < lb_tensor_count(&y); i++)
    ((lb_f64 *)y.data)[i] = determinant((lb_f64 *)m.data + i * n * n, n);
  lb_convert(c->pool, &y, &c->out[0]);
  return LB_OK;
}
