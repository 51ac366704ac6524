// device/reference/conv.c -- convolutions as implicit GEMM: weights [output
// channels, input channels x taps] times the windows of the input, which are
// gathered panel by panel.
#include <math.h>
#include <string.h>

#include "device/reference/gemm.h"
#include "device/reference/iter.h"
#include "device/reference/window.h"

// -- gathering ---------------------------------------------------------------

// The input of the packing function: the channels of one group of one batch
// item.
typedef struct conv_input {
  const lb_window_geometry *w;
  const char *x;  // dense [channels, in...]
  size_t size;    // of an element: 4 or 8 bytes
  int64_t plane;  // elements of a channel
} conv_input;

// Columns of a panel that belong to one row of the output.
typedef struct segment {
  int64_t col, len;
  int64_t origin[LB_MAX_RANK];  // start of the first column's window
} segment;

static int segments_of(const lb_window_geometry *w, int64_t j0, int64_t jn,
                       segment *out) {
  int64_t index[LB_MAX_RANK], row = w->out[w->n - 1];
  int count = 0;
  for (int64_t j = 0; j < jn; j += out[count++].len) {
    lb_index_of(j0 + j, w->n, w->out, index);
    int64_t left = row - index[w->n - 1];
    segment *s = &out[count];
    s->col = j;
    s->len = left < jn - j ? left : jn - j;
    for (int d = 0; d < w->n; d++)
      s->origin[d] = index[d] * w->stride[d] - w->pad[d];
  }
  return count;
}

// The row of the input that a tap reads, or NULL if it is padding.
static const char *row_of(const conv_input *m, const segment *s,
                          int64_t channel, const int64_t *tap) {
  const lb_window_geometry *w = m->w;
  int64_t offset = 0;
  for (int d = 0; d < w->n - 1; d++) {
    int64_t at = s->origin[d] + tap[d] * w->dilation[d];
    if (at < 0 || at >= w->in[d]) return NULL;
    offset = offset * w->in[d] + at;
  }
  offset = offset * w->in[w->n - 1] + channel * m->plane;
  return m->x + offset * (int64_t)m->size;
}

// Reads len elements from position x on, `stride` apart; zeros outside [0,
// width).
#define GATHER(id, S, T)                                                   \
  static void gather_##id(T *to, const void *from, int64_t len, int64_t x, \
                          int64_t stride, int64_t width) {                 \
    const S *row = from;                                                   \
    int64_t lo = x >= 0 ? 0 : (stride - 1 - x) / stride;                   \
    int64_t hi = x < width ? (width - 1 - x) / stride + 1 : 0;             \
    lo = lo < len ? lo : len;                                              \
    hi = hi < len ? hi : len;                                              \
    hi = hi > lo ? hi : lo;                                                \
    for (int64_t i = 0; i < lo; i++) to[i] = 0;                            \
    if (stride == 1 && hi > lo)                                            \
      memcpy(to + lo, row + x + lo, (size_t)(hi - lo) * sizeof(T));        \
    else                                                                   \
      for (int64_t i = lo; i < hi; i++) to[i] = row[x + i * stride];       \
    for (int64_t i = hi; i < len; i++) to[i] = 0;                          \
  }
GATHER(u32, lb_u32, uint32_t)
GATHER(u64, lb_u64, uint64_t)

static void gather(const conv_input *m, const segment *s, const char *row,
                   int64_t shift, char *to) {
  const lb_window_geometry *w = m->w;
  int last = w->n - 1;
  int64_t x = s->origin[last] + shift;
  to += s->col * (int64_t)m->size;
  if (!row)
    memset(to, 0, (size_t)s->len * m->size);
  else if (m->size == 4)
    gather_u32((void *)to, row, s->len, x, w->stride[last], w->in[last]);
  else
    gather_u64((void *)to, row, s->len, x, w->stride[last], w->in[last]);
}

static void pack_windows(const void *b, int64_t k0, int64_t kn, int64_t j0,
                         int64_t jn, void *panel) {
  const conv_input *m = b;
  const lb_window_geometry *w = m->w;
  segment segments[LB_GEMM_COLS];
  int count = segments_of(w, j0, jn, segments);
  int64_t tap[LB_MAX_RANK], taps = lb_window_taps(w), channel = k0 / taps;
  lb_index_of(k0 % taps, w->n, w->kernel, tap);
  char *to = panel;
  for (int64_t k = 0; k < kn; k++, to += LB_GEMM_COLS * m->size) {
    int64_t shift = tap[w->n - 1] * w->dilation[w->n - 1];
    for (int i = 0; i < count; i++) {
      const segment *s = &segments[i];
      gather(m, s, row_of(m, s, channel, tap), shift, to);
    }
    if (!lb_next_index(w->n, w->kernel, tap)) channel++;
  }
}

// -- the GEMM ----------------------------------------------------------------

typedef struct ref_conv {
  lb_window_geometry w;
  int64_t batch, groups, channels_in, channels_out;  // channels per group
  lb_dtype work;
  conv_input *inputs;   // per batch item and group
  const char *weights;  // dense
  char *out;
} ref_conv;

static void conv_get(const void *user, int64_t i, lb_gemm *g) {
  const ref_conv *v = user;
  int64_t size = (int64_t)lb_dtype_size(v->work);
  g->a = v->weights + i % v->groups * g->m * g->k * size;
  g->b = &v->inputs[i];
  g->c = v->out + i * g->m * g->n * size;
}

// Treats a 1x1 kernel with stride 1 and no padding as one long axis.
static void flatten(lb_window_geometry *w) {
  for (int d = 0; d < w->n; d++)
    if (w->kernel[d] != 1 || w->stride[d] != 1 || w->pad[d] != 0 ||
        w->in[d] != w->out[d])
      return;
  w->in[0] = w->out[0] = lb_reference_product(w->n, w->in);
  w->n = 1;
}

static lb_status conv_init(lb_reference_call *c, const lb_tensor *x,
                           const lb_tensor *weights, ref_conv *v) {
  int64_t group = lb_attr_int(c->node, "group", 1);
  if (group < 1 || x->rank < 3 || weights->rank != x->rank ||
      x->dims[1] % group != 0 || weights->dims[0] % group != 0 ||
      weights->dims[1] != x->dims[1] / group)
    return lb_error(LB_INVALID, "group %lld does not divide the channels",
                    (long long)group);
  v->batch = x->dims[0];
  v->groups = group;
  v->channels_in = x->dims[1] / group;
  v->channels_out = weights->dims[0] / group;
  v->w.n = x->rank - 2;
  for (int d = 0; d < v->w.n; d++) {
    v->w.in[d] = x->dims[2 + d];
    v->w.out[d] = c->out[0].dims[2 + d];
    v->w.kernel[d] = weights->dims[2 + d];
  }
  return lb_window_init(c, &v->w);
}

// x, weights and out are dense and of the work dtype.
static lb_status conv_run(lb_reference_call *c, ref_conv *v, const lb_tensor *x,
                          const lb_tensor *weights, lb_tensor *out) {
  if (lb_tensor_count(out) == 0) return LB_OK;
  if (lb_tensor_count(x) == 0 || lb_tensor_count(weights) == 0) {
    memset(out->data, 0, lb_tensor_bytes(out));
    return LB_OK;
  }
  flatten(&v->w);
  int64_t count = v->batch * v->groups;
  v->inputs = lb_arena_new(c->scratch, conv_input, (size_t)count);
  if (!v->inputs) return lb_oom();
  size_t size = lb_dtype_size(v->work);
  int64_t plane = lb_reference_product(v->w.n, v->w.in);
  for (int64_t i = 0; i < count; i++)
    v->inputs[i] = (conv_input){
        &v->w,
        (const char *)x->data + i * v->channels_in * plane * (int64_t)size,
        size, plane};
  v->weights = weights->data;
  v->out = out->data;
  int64_t k = v->channels_in * lb_window_taps(&v->w);
  lb_gemm g = {
      .dtype = v->work,
      .m = v->channels_out,
      .n = lb_reference_product(v->w.n, v->w.out),
      .k = k,
      .a_row = k,
      .a_col = 1,
      .pack = pack_windows,
  };
  g.c_row = g.n;
  lb_gemm_batch(c->pool, &g, count, conv_get, v);
  return LB_OK;
}

// -- per-channel operands ----------------------------------------------------

static void add_f32(const void *user, int64_t n, char *const *p,
                    const int64_t *step) {
  (void)user;
  for (int64_t i = 0; i < n; i++)
    *(lb_f32 *)(p[0] + i * step[0]) += *(const lb_f32 *)(p[1] + i * step[1]);
}

static void add_f64(const void *user, int64_t n, char *const *p,
                    const int64_t *step) {
  (void)user;
  for (int64_t i = 0; i < n; i++)
    *(lb_f64 *)(p[0] + i * step[0]) += *(const lb_f64 *)(p[1] + i * step[1]);
}

static void add_i32(const void *user, int64_t n, char *const *p,
                    const int64_t *step) {
  (void)user;
  for (int64_t i = 0; i < n; i++)
    *(lb_u32 *)(p[0] + i * step[0]) += *(const lb_u32 *)(p[1] + i * step[1]);
}

static void subtract_i32(const void *user, int64_t n, char *const *p,
                         const int64_t *step) {
  (void)user;
  for (int64_t i = 0; i < n; i++)
    *(lb_u32 *)(p[0] + i * step[0]) -= *(const lb_u32 *)(p[1] + i * step[1]);
}

// Input i, a scalar or a vector of `channels` elements, as a tensor that
// broadcasts along `axis` of a tensor of that rank.
static lb_status per_channel(lb_reference_call *c, int i, lb_dtype dtype,
                             int rank, int axis, int64_t channels,
                             lb_tensor *out) {
  lb_tensor t;
  LB_TRY(lb_reference_dense(c, &c->in[i], dtype, &t));
  int64_t count = lb_tensor_count(&t);
  if (count != 1 && count != channels)
    return lb_error(LB_INVALID,
                    "input %d has %lld elements; it must have 1 or %lld", i,
                    (long long)count, (long long)channels);
  t.rank = rank;
  for (int d = 0; d < rank; d++) t.dims[d] = d == axis ? count : 1;
  lb_tensor_dense(&t);
  *out = t;
  return LB_OK;
}

static lb_status add_bias(lb_reference_call *c, int i, lb_tensor *out) {
  if (!lb_reference_given(c, i)) return LB_OK;
  lb_tensor bias;
  LB_TRY(per_channel(c, i, out->dtype, out->rank, 1, out->dims[1], &bias));
  const lb_tensor *operands[] = {out, &bias};
  lb_iter_all(c->pool, 2, operands,
              out->dtype == LB_F32   ? add_f32
              : out->dtype == LB_F64 ? add_f64
                                     : add_i32,
              NULL);
  return LB_OK;
}

lb_status lb_reference_Conv(lb_reference_call *c) {
  if (!lb_dtype_is_float(c->in[0].dtype))
    return lb_reference_bad_dtype(c, c->in[0].dtype);
  ref_conv v = {.work = lb_work_dtype(c->in[0].dtype)};
  lb_tensor x, weights, out;
  LB_TRY(conv_init(c, &c->in[0], &c->in[1], &v));
  LB_TRY(lb_reference_dense(c, &c->in[0], v.work, &x));
  LB_TRY(lb_reference_dense(c, &c->in[1], v.work, &weights));
  LB_TRY(lb_work_out(c, 0, v.work, &out));
  LB_TRY(conv_run(c, &v, &x, &weights, &out));
  LB_TRY(add_bias(c, 2, &out));
  return lb_work_done(c, 0, &out);
}

// -- quantised ---------------------------------------------------------------

// Input i minus its zero point, in int32; the zero point may be per channel
// along axis 0.
static lb_status subtract_zero_point(lb_reference_call *c, int i,
                                     int zero_point, lb_tensor *out) {
  lb_dtype t = c->in[i].dtype;
  if (t != LB_I8 && t != LB_U8) return lb_reference_bad_dtype(c, t);
  LB_TRY(lb_reference_dense(c, &c->in[i], LB_I32, out));
  if (!lb_reference_given(c, zero_point)) return LB_OK;
  lb_tensor z;
  LB_TRY(per_channel(c, zero_point, LB_I32, out->rank, 0, out->dims[0], &z));
  const lb_tensor *operands[] = {out, &z};
  lb_iter_all(c->pool, 2, operands, subtract_i32, NULL);
  return LB_OK;
}

// `in` are the inputs x, its zero point, weights, and their zero point.
static lb_status int8_conv(lb_reference_call *c, const int in[4],
                           lb_tensor *out) {
  ref_conv v = {.work = LB_I32};
  lb_tensor x, weights;
  LB_TRY(conv_init(c, &c->in[in[0]], &c->in[in[2]], &v));
  if (lb_reference_given(c, in[1]) && lb_tensor_count(&c->in[in[1]]) != 1)
    return lb_error(LB_INVALID, "the zero point of x must be one element");
  LB_TRY(subtract_zero_point(c, in[0], in[1], &x));
  LB_TRY(subtract_zero_point(c, in[2], in[3], &weights));
  return conv_run(c, &v, &x, &weights, out);
}

lb_status lb_reference_ConvInteger(lb_reference_call *c) {
  return int8_conv(c, (const int[]){0, 2, 1, 3}, &c->out[0]);
}

typedef struct conv_requant {
  float x_scale, y_scale;
  double zero_point, lo, hi;
} conv_requant;

static void requant_row(const void *user, int64_t n, char *const *p,
                        const int64_t *step) {
  const conv_requant *q = user;
  for (int64_t i = 0; i < n; i++) {
    float scale =
        q->x_scale * *(const lb_f32 *)(p[1] + i * step[1]) / q->y_scale;
    lb_i32 *at = (lb_i32 *)(p[0] + i * step[0]);
    double y = rint((double)((float)*at * scale)) + q->zero_point;
    y = y > q->lo ? y : q->lo;  // also for NaN
    *at = (int32_t)(y < q->hi ? y : q->hi);
  }
}

lb_status lb_reference_QLinearConv(lb_reference_call *c) {
  lb_tensor acc, scale;
  double x_scale, y_scale;
  conv_requant q = {.lo = 0, .hi = 255};
  if (c->out[0].dtype == LB_I8) q.lo = -128, q.hi = 127;
  LB_TRY(lb_reference_scalar(c, 1, 1, &x_scale));
  LB_TRY(lb_reference_scalar(c, 6, 1, &y_scale));
  LB_TRY(lb_reference_scalar(c, 7, 0, &q.zero_point));
  q.x_scale = (float)x_scale, q.y_scale = (float)y_scale;
  LB_TRY(lb_reference_temp(c, LB_I32, c->out[0].rank, c->out[0].dims, &acc));
  LB_TRY(int8_conv(c, (const int[]){0, 2, 3, 5}, &acc));
  LB_TRY(add_bias(c, 8, &acc));
  LB_TRY(per_channel(c, 4, LB_F32, acc.rank, 1, acc.dims[1], &scale));
  const lb_tensor *operands[] = {&acc, &scale};
  lb_iter_all(c->pool, 2, operands, requant_row, &q);
  lb_convert(c->pool, &acc, &c->out[0]);
  return LB_OK;
}

// -- CausalConvWithState -----------------------------------------------------

typedef struct causal {
  int64_t channels, length, taps;
  const lb_f32 *x, *weights, *bias, *past;  // bias and past may be NULL
  lb_f32 *y, *present;                      // present may be NULL
  bool silu;
} causal;

// Element t of the concatenation [past, x].
static float causal_at(const causal *v, int64_t row, int64_t t) {
  int64_t past = v->taps - 1;
  if (t >= past) return v->x[row * v->length + t - past];
  return v->past ? v->past[row * past + t] : 0;
}

static void causal_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const causal *v = user;
  for (int64_t row = begin; row < end; row++) {
    const lb_f32 *w = v->weights + row % v->channels * v->taps;
    for (int64_t t = 0; t < v->length; t++) {
      float sum = w[0] * causal_at(v, row, t);
      for (int64_t k = 1; k < v->taps; k++)
        sum += w[k] * causal_at(v, row, t + k);
      if (v->bias) sum += v->bias[row % v->channels];
      v->y[row * v->length + t] = v->silu ? sum / (1 + expf(-sum)) : sum;
    }
    for (int64_t t = 0; v->present && t < v->taps - 1; t++)
      v->present[row * (v->taps - 1) + t] = causal_at(v, row, v->length + t);
  }
}

static lb_status causal_optional(lb_reference_call *c, int i, int64_t count,
                                 const lb_f32 **out) {
  lb_tensor t = {0};
  if (lb_reference_given(c, i)) {
    if (lb_tensor_count(&c->in[i]) != count)
      return lb_error(LB_INVALID, "input %d has %lld elements, not %lld", i,
                      (long long)lb_tensor_count(&c->in[i]), (long long)count);
    LB_TRY(lb_reference_dense(c, &c->in[i], LB_F32, &t));
  }
  *out = t.data;
  return LB_OK;
}

lb_status lb_reference_CausalConvWithState(lb_reference_call *c) {
  const char *act = lb_attr_str(c->node, "activation", "none");
  lb_tensor x, weights, y, state = {0};
  if (c->in[0].dtype == LB_F64) return lb_reference_bad_dtype(c, LB_F64);
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_F32, &x));
  LB_TRY(lb_reference_dense(c, &c->in[1], LB_F32, &weights));
  LB_TRY(lb_work_out_or_temp(c, 0, LB_F32, 3, x.dims, &y));
  bool wanted = lb_reference_wanted(c, 1);
  if (wanted) LB_TRY(lb_work_out(c, 1, LB_F32, &state));
  causal v = {
      .channels = x.dims[1],
      .length = x.dims[2],
      .taps = weights.dims[2],
      .x = x.data,
      .weights = weights.data,
      .y = y.data,
      .present = wanted ? state.data : NULL,
      .silu = !strcmp(act, "silu") || !strcmp(act, "swish"),
  };
  if (!v.silu && strcmp(act, "none"))
    return lb_error(LB_INVALID, "activation '%s' is not known", act);
  int64_t past;
  if (v.taps < 1 || weights.dims[0] != v.channels || weights.dims[1] != 1 ||
      __builtin_mul_overflow(x.dims[0] * v.channels, v.taps - 1, &past))
    return lb_error(LB_INVALID, "the weights must be [%lld, 1, taps]",
                    (long long)v.channels);
  LB_TRY(causal_optional(c, 2, v.channels, &v.bias));
  LB_TRY(causal_optional(c, 3, past, &v.past));
  lb_pool_for(c->pool, x.dims[0] * x.dims[1], 16, causal_task, &v);
  LB_TRY(lb_work_done(c, 0, &y));
  return wanted ? lb_work_done(c, 1, &state) : LB_OK;
}
