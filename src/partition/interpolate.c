// partition/interpolate.c -- interpolating Resize: linear and cubic.
//
// Along an axis, each output position is a weighted sum of `taps` input
// elements. Tables hold the row offsets and weights for all positions of an
// axis, and kernels gather rows by them: so rows are axes that are not resized,
// with channels last.
#include <math.h>
#include <string.h>

#include "partition/interpolate.h"

static const lb_tensor *scales_of(const lb_node *n) {
  const lb_tensor *t = lb_resize_has(n, 2) ? lb_value_const(n->in[2]) : NULL;
  bool list = t && t->rank == 1 && t->dtype == LB_F32 && lb_tensor_is_dense(t);
  return list ? t : NULL;
}

bool lb_interp_is(const lb_node *n) {
  return n->op == LB_OP_Resize &&
         (lb_resize_is_mode(n, "linear") || lb_resize_is_mode(n, "cubic")) &&
         n->in[0]->info.dtype == LB_F32 &&
         (!lb_resize_has(n, 2) || scales_of(n)) && lb_resize_is_plain(n);
}

int lb_interp_taps(const lb_node *n) {
  return lb_resize_is_mode(n, "cubic") ? 4 : 2;
}

int lb_interp_max_axes(const lb_node *n) { return 4 / lb_interp_taps(n); }

// Sets the scales that the node gives.
static bool set_scales(const lb_node *n, int rank, float *scale) {
  uint32_t n_axes;
  const int64_t *axes = lb_attr_ints(n, "axes", &n_axes);
  const lb_tensor *t = scales_of(n);
  for (int64_t i = 0; t && i < lb_tensor_count(t); i++) {
    int64_t axis = axes && i < n_axes ? axes[i] : i;
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return false;
    memcpy(&scale[axis], (const char *)t->data + (size_t)i * sizeof *scale,
           sizeof *scale);
  }
  return true;
}

// Adds a resized axis, if it fits in a spec and has the usual number of taps.
static bool add_axis(const lb_node *n, const lb_tensor *x, const lb_tensor *y,
                     int d, lb_interp *b) {
  lb_resize_axis a = {d, x->dims[d], y->dims[d]};
  float scale = b->resize.scale[d];
  int64_t taps = 0;
  if (a.in < 1 || !(scale > 0 && isfinite(scale))) return false;
  if (a.in == a.out && scale == 1) return true;
  lb_status st = lb_resize_taps(&b->resize, &a, &taps);
  bool usual = !lb_failed(st) && taps == b->taps;
  lb_status_drop(st);
  if (!usual || b->n == lb_interp_max_axes(n) || d == x->rank - 1) return false;
  b->axes[b->n] = a;
  b->strides[b->n++] = x->strides[d];
  return true;
}

bool lb_interp_find(const lb_node *n, const lb_tensor *x, const lb_tensor *y,
                    lb_interp *out) {
  memset(out, 0, sizeof *out);
  out->taps = lb_interp_taps(n);
  lb_status st = lb_resize_read_modes(n, &out->resize);
  bool ok = !lb_failed(st) && x->rank == y->rank && x->rank > 0;
  lb_status_drop(st);
  if (!ok) return false;
  for (int i = 0; i < x->rank; i++)
    out->resize.scale[i] = (float)y->dims[i] / (float)x->dims[i];
  if (!set_scales(n, x->rank, out->resize.scale)) return false;
  for (int i = 0; i < x->rank; i++)
    if (!add_axis(n, x, y, i, out)) return false;
  return true;
}

// -- tables ------------------------------------------------------------------

int lb_interp_tables(const lb_interp *b) { return 2 * b->taps * b->n; }

bool lb_interp_is_row_offset(const lb_interp *b, int table) {
  return table % (2 * b->taps) < b->taps;
}

int lb_interp_axis(const lb_interp *b, int table) {
  return b->axes[table / (2 * b->taps)].d;
}

// The row offsets of all axes come first, because they are the larger elements.
static int64_t count_row_offsets(const lb_interp *b, int axes) {
  int64_t n = 0;
  for (int i = 0; i < axes; i++) n += b->taps * b->axes[i].out;
  return n;
}

int64_t lb_interp_offset(const lb_interp *b, int table) {
  int axis = table / (2 * b->taps), tap = table % b->taps;
  int64_t at = count_row_offsets(b, axis) + tap * b->axes[axis].out;
  int64_t floats = (int64_t)(sizeof(int64_t) / sizeof(float));
  return lb_interp_is_row_offset(b, table)
             ? at
             : floats * count_row_offsets(b, b->n) + at;
}

size_t lb_interp_bytes(const lb_interp *b) {
  return (size_t)count_row_offsets(b, b->n) * (sizeof(int64_t) + sizeof(float));
}

void lb_interp_fill(const lb_interp *b, void *to) {
  enum { MAX_TAPS = 4 };
  int64_t *row_offsets = to, index[MAX_TAPS];
  float *weights = (float *)(void *)(row_offsets + count_row_offsets(b, b->n));
  double weight[MAX_TAPS];
  for (int i = 0; i < b->n; i++) {
    const lb_resize_axis *a = &b->axes[i];
    for (int64_t o = 0; o < a->out; o++) {
      lb_resize_at(&b->resize, a, b->taps, o, index, weight);
      for (int k = 0; k < b->taps; k++) {
        row_offsets[k * a->out + o] = index[k] * b->strides[i];
        weights[k * a->out + o] = (float)weight[k];
      }
    }
    row_offsets += b->taps * a->out;
    weights += b->taps * a->out;
  }
}

// -- emitting ----------------------------------------------------------------

typedef struct interpolation {
  lb_specgen *e;
  uint8_t x, taps;
} interpolation;

// Behind x are the tables of each axis: row offsets of taps, then weights.
static uint8_t table_of(const interpolation *b, int axis, int tap,
                        bool weight) {
  return (uint8_t)(b->x + 1 + (2 * axis + weight) * b->taps + tap);
}

// The sum over the taps of `axis` of the sums over those of the axes before;
// each product is rounded, as in the reference kernel.
static uint8_t sum_along(const interpolation *b, int axis, uint8_t row_offset) {
  lb_specgen *e = b->e;
  uint8_t sum = LB_SPEC_NO_NODE;
  if (axis < 0)
    return lb_spec_node(&e->b, LB_S_GATHER_ROW, LB_F32,
                        (uint8_t[]){b->x, row_offset}, 2);
  for (int k = 0; k < b->taps; k++) {
    uint8_t at = table_of(b, axis, k, false);
    if (row_offset != LB_SPEC_NO_NODE)
      at = lb_specgen_op2(e, LB_S_ADD, row_offset, at);
    uint8_t y = sum_along(b, axis - 1, at), w = table_of(b, axis, k, true);
    y = lb_specgen_op2(e, LB_S_MUL, y, w);
    sum = k == 0 ? y : lb_specgen_op2(e, LB_S_ADD, sum, y);
  }
  return sum;
}

uint8_t lb_interp_emit(lb_specgen *e, const lb_node *n, uint8_t x) {
  interpolation b = {e, x, (uint8_t)lb_interp_taps(n)};
  return e->interpolated ? sum_along(&b, e->interpolated - 1, LB_SPEC_NO_NODE)
                         : x;
}
