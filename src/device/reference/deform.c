// device/reference/deform.c -- DeformConv: a convolution whose taps are
// displaced by offsets and interpolated.
//
// It is an implicit GEMM like Conv: the panel holds samples, each interpolated
// linearly along every axis, zero outside the input, and multiplied by its
// mask.
#include <math.h>
#include <string.h>

#include "device/reference/gemm.h"
#include "device/reference/iter.h"
#include "device/reference/window.h"

enum { X, W, OFFSET, B, MASK };

typedef struct deform {
  lb_window_geometry w;
  lb_dtype work;
  int64_t groups, channels_in, channels_out;  // channels per group
  int64_t per_offset;  // number of channels that share offsets
  int64_t offset_groups, taps, in_plane, out_plane;
  const void *x, *offset, *mask, *weights;  // mask may be NULL
  char *out;
} deform;

typedef struct part {
  const deform *v;
  int64_t batch, group;
} part;

static double element(const deform *v, const void *data, int64_t i) {
  return v->work == LB_F32 ? (double)((const lb_f32 *)data)[i]
                           : ((const lb_f64 *)data)[i];
}

// Interpolates the input at a fractional position; plane is the offset of its
// channel.
static double sample(const deform *v, int64_t plane, const double *at) {
  const lb_window_geometry *w = &v->w;
  double sum = 0;
  for (int d = 0; d < w->n; d++)
    if (!(at[d] > -1 && at[d] < (double)w->in[d])) return 0;  // also for NaN
  for (int corner = 0; corner < 1 << w->n; corner++) {
    int64_t offset = 0;
    double weight = 1;
    bool inside = true;
    for (int d = 0; d < w->n; d++) {
      double low = floor(at[d]), part_up = at[d] - low;
      bool up = corner >> (w->n - 1 - d) & 1;
      int64_t i = (int64_t)low + up;
      inside &= i >= 0 && i < w->in[d];
      weight *= up ? part_up : 1 - part_up;
      offset = offset * w->in[d] + i;
    }
    if (inside) sum += weight * element(v, v->x, plane + offset);
  }
  return sum;
}

// The value that output j reads through tap k of a channel.
static double tap_value(const part *p, int64_t channel, int64_t k,
                        const int64_t *tap, int64_t j, const int64_t *o) {
  const deform *v = p->v;
  const lb_window_geometry *w = &v->w;
  int64_t set = p->batch * v->offset_groups + channel / v->per_offset;
  double at[LB_MAX_RANK];
  for (int d = 0; d < w->n; d++) {
    int64_t row = (set * v->taps + k) * w->n + d;
    at[d] =
        (double)(o[d] * w->stride[d] - w->pad[d] + tap[d] * w->dilation[d]) +
        element(v, v->offset, row * v->out_plane + j);
  }
  int64_t channels = v->groups * v->channels_in;
  double x = sample(v, (p->batch * channels + channel) * v->in_plane, at);
  if (v->mask) x *= element(v, v->mask, (set * v->taps + k) * v->out_plane + j);
  return x;
}

static void pack_samples(const void *b, int64_t k0, int64_t kn, int64_t j0,
                         int64_t jn, void *panel) {
  const part *p = b;
  const deform *v = p->v;
  int64_t tap[LB_MAX_RANK], o[LB_MAX_RANK];
  for (int64_t k = 0; k < kn; k++) {
    int64_t t = (k0 + k) % v->taps;
    int64_t channel = p->group * v->channels_in + (k0 + k) / v->taps;
    lb_index_of(t, v->w.n, v->w.kernel, tap);
    lb_index_of(j0, v->w.n, v->w.out, o);
    for (int64_t j = 0; j < jn; j++) {
      double x = tap_value(p, channel, t, tap, j0 + j, o);
      if (v->work == LB_F32)
        ((float *)panel)[k * LB_GEMM_COLS + j] = (float)x;
      else
        ((double *)panel)[k * LB_GEMM_COLS + j] = x;
      lb_next_index(v->w.n, v->w.out, o);
    }
  }
}

typedef struct deform_job {
  const deform *v;
  part *parts;
} deform_job;

static void deform_get(const void *user, int64_t i, lb_gemm *g) {
  const deform_job *job = user;
  int64_t size = (int64_t)lb_dtype_size(g->dtype);
  g->a =
      (const char *)job->v->weights + i % job->v->groups * g->m * g->k * size;
  g->b = &job->parts[i];
  g->c = job->v->out + i * g->m * g->n * size;
}

static lb_status deform_init(lb_reference_call *c, deform *v) {
  const lb_tensor *x = &c->in[X], *w = &c->in[W], *out = &c->out[0];
  int64_t group = lb_attr_int(c->node, "group", 1);
  int64_t shared = lb_attr_int(c->node, "offset_group", 1);
  if (x->rank < 3 || w->rank != x->rank || group < 1 || shared < 1 ||
      x->dims[1] % group != 0 || x->dims[1] % shared != 0 ||
      w->dims[0] % group != 0 || w->dims[1] != x->dims[1] / group)
    return lb_error(LB_INVALID,
                    "group %lld and offset_group %lld do not "
                    "divide the channels",
                    (long long)group, (long long)shared);
  v->groups = group;
  v->channels_in = x->dims[1] / group;
  v->channels_out = w->dims[0] / group;
  v->offset_groups = shared;
  v->per_offset = x->dims[1] / shared;
  v->w.n = x->rank - 2;
  for (int d = 0; d < v->w.n; d++) {
    v->w.in[d] = x->dims[2 + d];
    v->w.out[d] = out->dims[2 + d];
    v->w.kernel[d] = w->dims[2 + d];
  }
  LB_TRY(lb_window_init(c, &v->w));
  v->taps = lb_window_taps(&v->w);
  v->in_plane = lb_reference_product(v->w.n, v->w.in);
  v->out_plane = lb_reference_product(v->w.n, v->w.out);
  return LB_OK;
}

// Reads input i, dense, with `rows` output planes per batch item.
static lb_status read_planes(lb_reference_call *c, const deform *v, int i,
                             int64_t rows, const void **out) {
  lb_tensor t;
  *out = NULL;
  if (!lb_reference_given(c, i)) return LB_OK;
  const lb_tensor *in = &c->in[i];
  if (in->rank != c->out[0].rank || in->dims[0] != c->out[0].dims[0] ||
      in->dims[1] != rows ||
      memcmp(in->dims + 2, v->w.out, (size_t)v->w.n * sizeof *v->w.out) != 0)
    return lb_error(LB_INVALID, "input %d must have %lld planes per batch item",
                    i, (long long)rows);
  LB_TRY(lb_reference_dense(c, in, v->work, &t));
  *out = t.data;
  return LB_OK;
}

static lb_status add_bias(lb_reference_call *c, const deform *v,
                          const lb_tensor *out) {
  if (!lb_reference_given(c, B)) return LB_OK;
  lb_tensor bias;
  LB_TRY(lb_reference_dense(c, &c->in[B], v->work, &bias));
  if (lb_tensor_count(&bias) != out->dims[1])
    return lb_error(LB_INVALID, "the bias has %lld elements, not %lld",
                    (long long)lb_tensor_count(&bias), (long long)out->dims[1]);
  for (int64_t i = 0; i < lb_tensor_count(out); i++) {
    int64_t channel = i / v->out_plane % out->dims[1];
    if (v->work == LB_F32)
      ((lb_f32 *)out->data)[i] += ((const lb_f32 *)bias.data)[channel];
    else
      ((lb_f64 *)out->data)[i] += ((const lb_f64 *)bias.data)[channel];
  }
  return LB_OK;
}

lb_status lb_reference_DeformConv(lb_reference_call *c) {
  if (!lb_dtype_is_float(c->in[X].dtype))
    return lb_reference_bad_dtype(c, c->in[X].dtype);
  deform v = {.work = lb_work_dtype(c->in[X].dtype)};
  lb_tensor x, weights, out;
  LB_TRY(deform_init(c, &v));
  if (lb_tensor_count(&c->out[0]) == 0) return LB_OK;
  LB_TRY(lb_reference_dense(c, &c->in[X], v.work, &x));
  LB_TRY(lb_reference_dense(c, &c->in[W], v.work, &weights));
  int64_t rows = v.offset_groups, coords;
  if (__builtin_mul_overflow(rows, v.taps, &rows) ||
      __builtin_mul_overflow(rows, (int64_t)v.w.n, &coords))
    return lb_error(LB_INVALID, "offset_group is too large");
  LB_TRY(read_planes(c, &v, OFFSET, coords, &v.offset));
  LB_TRY(read_planes(c, &v, MASK, rows, &v.mask));
  LB_TRY(lb_work_out(c, 0, v.work, &out));
  v.x = x.data, v.weights = weights.data, v.out = out.data;
  if (lb_tensor_count(&x) == 0 || lb_tensor_count(&weights) == 0) {
    memset(out.data, 0, lb_tensor_bytes(&out));
    LB_TRY(add_bias(c, &v, &out));
    return lb_work_done(c, 0, &out);
  }
  int64_t count = x.dims[0] * v.groups;
  deform_job job = {&v, lb_arena_new(c->scratch, part, (size_t)count)};
  if (!job.parts) return lb_oom();
  for (int64_t i = 0; i < count; i++)
    job.parts[i] = (part){&v, i / v.groups, i % v.groups};
  lb_gemm g = {.dtype = v.work,
               .m = v.channels_out,
               .n = v.out_plane,
               .k = v.channels_in * v.taps,
               .a_row = v.channels_in * v.taps,
               .a_col = 1,
               .pack = pack_samples,
               .c_row = v.out_plane};
  lb_gemm_batch(c->pool, &g, count, deform_get, &job);
  LB_TRY(add_bias(c, &v, &out));
  return lb_work_done(c, 0, &out);
}
