// device/reference/norm.c -- normalisation operators.
//
// Most of them are one formula, y = (x - mean) * inv * scale + bias, in which
// mean and inv (one over the standard deviation) are computed from x or given
// by the model, and each of the four broadcasts to x in its own way.
#include <string.h>
#include <tgmath.h>

#include "device/reference/elem.h"
#include "device/reference/iter.h"
#include "device/reference/lines.h"

// -- y = (x - mean) * inv * scale + bias -------------------------------------

typedef struct normal {
  lb_tensor mean, inv, scale, bias;  // in the work dtype of x
} normal;

// Mean and inv are usually constant along a row; scale and bias are constant
// too (channels first) or dense.
#define APPLY(id, S, T, load, store, ...)                                  \
  static void apply_##id(const void *user, int64_t n, char *const *p,      \
                         const int64_t *step) {                            \
    typedef T LB_ELEMENT U;                                                \
    (void)user;                                                            \
    const int64_t dense = (int64_t)sizeof(U);                              \
    if (step[1] == (int64_t)sizeof(S) && step[2] == 0 && step[3] == 0 &&   \
        step[4] == step[5] && (step[4] == 0 || step[4] == dense)) {        \
      const T mean = *(const U *)p[2], inv = *(const U *)p[3];             \
      const S *restrict x = (const S *)p[1];                               \
      const U *restrict scale = (const U *)p[4];                           \
      const U *restrict bias = (const U *)p[5];                            \
      S *restrict y = (S *)p[0];                                           \
      if (step[4] == 0) {                                                  \
        const T s = *scale, b = *bias;                                     \
        for (int64_t i = 0; i < n; i++)                                    \
          y[i] = store((load(x[i]) - mean) * inv * s + b);                 \
        return;                                                            \
      }                                                                    \
      for (int64_t i = 0; i < n; i++)                                      \
        y[i] = store((load(x[i]) - mean) * inv * scale[i] + bias[i]);      \
      return;                                                              \
    }                                                                      \
    for (int64_t i = 0; i < n; i++) {                                      \
      const T x = load(*(const S *)(p[1] + i * step[1]));                  \
      const T mean = *(const U *)(p[2] + i * step[2]);                     \
      const T inv = *(const U *)(p[3] + i * step[3]);                      \
      const T scale = *(const U *)(p[4] + i * step[4]);                    \
      const T bias = *(const U *)(p[5] + i * step[5]);                     \
      *(S *)(p[0] + i * step[0]) = store((x - mean) * inv * scale + bias); \
    }                                                                      \
  }
LB_FLOATS(APPLY, )

#define ENTRY(id, S, T, load, store, Name, ...) [LB_##id] = Name##_##id,

// The y of RMSNormalization has the dtype of the scale: it is converted at the
// end.
static lb_status apply(lb_reference_call *c, const lb_tensor *y,
                       const lb_tensor *x, const normal *nm) {
  static lb_row_fn *const rows[LB_DTYPE_COUNT] = {LB_FLOATS(ENTRY, apply, )};
  if (!rows[x->dtype]) return lb_reference_bad_dtype(c, x->dtype);
  if (y->dtype == LB_NONE) return LB_OK;  // only statistics are wanted
  if (y->dtype != x->dtype) {
    lb_tensor same;
    LB_TRY(lb_reference_temp(c, x->dtype, y->rank, y->dims, &same));
    LB_TRY(apply(c, &same, x, nm));
    lb_convert(c->pool, &same, y);
    return LB_OK;
  }
  const lb_tensor *operands[] = {y,        x,          &nm->mean,
                                 &nm->inv, &nm->scale, &nm->bias};
  lb_iter_all(c->pool, 6, operands, rows[x->dtype], NULL);
  return LB_OK;
}

// -- mean and variance -------------------------------------------------------

typedef struct moments_job {
  const void *x;
  void *mean, *var;
  int64_t len;
  bool centred;  // false: the mean is 0, and var is the mean of squares
} moments_job;

#define LANES 8  // lines that are summed concurrently; each in its own order

// mean[j] and var[j], the mean of squared deviations, are summed in chains.
#define MOMENTS(id, S, T, ...)                                            \
  static void add_chains_##id(const S *x, int64_t len, int64_t n,         \
                              const T *less, bool squared, T *out) {      \
    double total[LANES];                                                  \
    for (int64_t j = 0; j < n; j++) total[j] = -0.0;                      \
    for (int64_t i = 0; i < len;) {                                       \
      const int64_t end =                                                 \
          len - i < LB_REFERENCE_CHAIN ? len : i + LB_REFERENCE_CHAIN;    \
      T chain[LANES];                                                     \
      for (int64_t j = 0; j < n; j++) chain[j] = (T)-0.0;                 \
      for (; i < end; i++)                                                \
        for (int64_t j = 0; j < n; j++) {                                 \
          const T d = x[j * len + i] - less[j];                           \
          chain[j] += squared ? d * d : d;                                \
        }                                                                 \
      for (int64_t j = 0; j < n; j++) total[j] += chain[j];               \
    }                                                                     \
    for (int64_t j = 0; j < n; j++) out[j] = (T)(total[j] / (double)len); \
  }                                                                       \
  static void moments_block_##id(const moments_job *job, int64_t at,      \
                                 int64_t n) {                             \
    const S *x = job->x;                                                  \
    if (job->len > 0) x += at * job->len;                                 \
    T mean[LANES] = {0}, var[LANES];                                      \
    const T none[LANES] = {0};                                            \
    if (job->centred) add_chains_##id(x, job->len, n, none, false, mean); \
    add_chains_##id(x, job->len, n, mean, true, var);                     \
    for (int64_t j = 0; j < n; j++) {                                     \
      ((T *)job->mean)[at + j] = mean[j];                                 \
      ((T *)job->var)[at + j] = var[j];                                   \
    }                                                                     \
  }                                                                       \
  static void moments_##id(void *user, int64_t begin, int64_t end,        \
                           int worker) {                                  \
    (void)worker;                                                         \
    for (int64_t i = begin; i < end; i += LANES)                          \
      moments_block_##id(user, i, end - i < LANES ? end - i : LANES);     \
  }
LB_WIDE_FLOATS(MOMENTS, )

// Mean and variance of x along `axes`, which are kept as axes of length 1;
// dense, in the work dtype of x.
static lb_status moments(lb_reference_call *c, const lb_tensor *x,
                         uint32_t axes, bool centred, lb_tensor *mean,
                         lb_tensor *var) {
  if (!lb_dtype_is_float(x->dtype)) return lb_reference_bad_dtype(c, x->dtype);
  lb_dtype work = lb_line_dtype(x->dtype);
  lb_tensor lines = lb_axes_last(x, axes);
  int64_t dims[LB_MAX_RANK] = {0};
  for (int i = 0; i < x->rank; i++) dims[i] = axes >> i & 1 ? 1 : x->dims[i];
  LB_TRY(lb_reference_dense(c, &lines, work, &lines));
  LB_TRY(lb_reference_temp(c, work, x->rank, dims, mean));
  LB_TRY(lb_reference_temp(c, work, x->rank, dims, var));
  int64_t len = lb_axes_count(x, axes);
  moments_job job = {lines.data, mean->data, var->data, len, centred};
  int64_t grain = lb_grain(len) + LANES - 1;
  lb_pool_for(c->pool, lb_tensor_count(mean), grain - grain % LANES,
              work == LB_F64 ? moments_F64 : moments_F32, &job);
  return LB_OK;
}

#define INVERT(id, S, T, ...)                                          \
  static void invert_##id(const void *user, int64_t n, char *const *p, \
                          const int64_t *step) {                       \
    const T epsilon = (T)((const double *)user)[0];                    \
    for (int64_t i = 0; i < n; i++) {                                  \
      S *v = (S *)(p[0] + i * step[0]);                                \
      *v = 1 / sqrt(*v + epsilon);                                     \
    }                                                                  \
  }
LB_WIDE_FLOATS(INVERT, )

// 1 / sqrt(var + epsilon), in place.
static void invert(lb_reference_call *c, const lb_tensor *var, double epsilon) {
  lb_iter_all(c->pool, 1, &var, var->dtype == LB_F64 ? invert_F64 : invert_F32,
              &epsilon);
}

// A scalar `v` in the work dtype.
static lb_status constant(lb_reference_call *c, lb_dtype x, double v,
                          lb_tensor *out) {
  LB_TRY(lb_reference_temp(c, lb_line_dtype(x), 0, NULL, out));
  lb_tensor from = {.dtype = LB_F64, .data = &v};
  return lb_reference_convert(&from, out);
}

// Input i in the work dtype; the constant `dflt` if it is absent.
static lb_status operand(lb_reference_call *c, uint32_t i, double dflt,
                         lb_tensor *out) {
  lb_dtype x = c->in[0].dtype;
  if (i >= c->node->n_in || c->in[i].dtype == LB_NONE)
    return constant(c, x, dflt, out);
  return lb_reference_dense(c, &c->in[i], lb_line_dtype(x), out);
}

// Input i, one element per channel, as a tensor that broadcasts to `rank` dims
// with the channels at axis 1 (axis 0 of a vector is the batch).
static lb_status per_channel(lb_reference_call *c, uint32_t i, int rank,
                             int64_t channels, lb_tensor *out) {
  LB_TRY(operand(c, i, 0, out));
  if (lb_tensor_count(out) != channels)
    return lb_error(LB_INVALID, "input %u has %lld elements for %lld channels",
                    i, (long long)lb_tensor_count(out), (long long)channels);
  out->rank = rank < 2 ? 0 : rank - 1;
  for (int k = 0; k < out->rank; k++) out->dims[k] = 1;
  if (out->rank) out->dims[0] = channels;
  lb_tensor_dense(out);
  return LB_OK;
}

static double epsilon_of(const lb_reference_call *c) {
  return (double)lb_attr_float(c->node, "epsilon", 1e-5f);
}

static bool wanted(const lb_reference_call *c, uint32_t i) {
  return i < c->node->n_out && c->out[i].dtype != LB_NONE;
}

// -- over trailing axes ------------------------------------------------------

static lb_status trailing_axes(const lb_reference_call *c, uint32_t *out) {
  int rank = c->in[0].rank, axis = 0;
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", -1), rank, &axis));
  *out = (1u << rank) - (1u << axis);
  return LB_OK;
}

// A bias of -0 changes nothing, not even the sign of a zero.
static lb_status trailing_norm(lb_reference_call *c, bool centred, normal *nm) {
  uint32_t axes = 0;
  LB_TRY(trailing_axes(c, &axes));
  LB_TRY(moments(c, &c->in[0], axes, centred, &nm->mean, &nm->inv));
  invert(c, &nm->inv, epsilon_of(c));
  LB_TRY(operand(c, 1, 1, &nm->scale));
  LB_TRY(operand(c, 2, -0.0, &nm->bias));
  return apply(c, &c->out[0], &c->in[0], nm);
}

lb_status lb_reference_LayerNormalization(lb_reference_call *c) {
  normal nm;
  LB_TRY(trailing_norm(c, true, &nm));
  if (wanted(c, 1)) lb_convert(c->pool, &nm.mean, &c->out[1]);
  if (wanted(c, 2)) lb_convert(c->pool, &nm.inv, &c->out[2]);
  return LB_OK;
}

lb_status lb_reference_RMSNormalization(lb_reference_call *c) {
  normal nm;
  return trailing_norm(c, false, &nm);
}

// -- per channel -------------------------------------------------------------

#define UPDATE_STATS(id, S, T, ...)                                          \
  static void update_stats_##id(const void *user, int64_t n, char *const *p, \
                                const int64_t *step) {                       \
    const T momentum_ = (T)((const double *)user)[0];                        \
    for (int64_t i = 0; i < n; i++)                                          \
      *(S *)(p[0] + i * step[0]) =                                           \
          *(const S *)(p[1] + i * step[1]) * momentum_ +                     \
          *(const S *)(p[2] + i * step[2]) * (1 - momentum_);                \
  }
LB_WIDE_FLOATS(UPDATE_STATS, )

// Updates running statistics: output o is the weighted mean of input i and the
// statistics of this batch.
static lb_status update_running_stats(lb_reference_call *c, uint32_t i,
                                      const lb_tensor *now, uint32_t o) {
  if (!wanted(c, o)) return LB_OK;
  lb_tensor old, new = *now, sum;
  LB_TRY(operand(c, i, 0, &old));
  LB_TRY(lb_reference_temp(c, now->dtype, old.rank, old.dims, &sum));
  memcpy(new.dims, old.dims, sizeof new.dims);
  new.rank = old.rank;
  lb_tensor_dense(&new);
  double momentum = (double)lb_attr_float(c->node, "momentum", 0.9f);
  lb_iter_all(c->pool, 3, (const lb_tensor *[]){&sum, &old, &new},
              now->dtype == LB_F64 ? update_stats_F64 : update_stats_F32,
              &momentum);
  lb_convert(c->pool, &sum, &c->out[o]);
  return LB_OK;
}

lb_status lb_reference_BatchNormalization(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  if (!lb_dtype_is_float(x->dtype)) return lb_reference_bad_dtype(c, x->dtype);
  int64_t channels = x->rank < 2 ? 1 : x->dims[1];
  normal nm;
  LB_TRY(per_channel(c, 1, x->rank, channels, &nm.scale));
  LB_TRY(per_channel(c, 2, x->rank, channels, &nm.bias));
  LB_TRY(per_channel(c, 3, x->rank, channels, &nm.mean));
  LB_TRY(per_channel(c, 4, x->rank, channels, &nm.inv));
  if (lb_attr_int(c->node, "training_mode", 0) != 0) {
    uint32_t axes = ((1u << x->rank) - 1) & ~(x->rank < 2 ? 0u : 2u);
    LB_TRY(moments(c, x, axes, true, &nm.mean, &nm.inv));
    LB_TRY(update_running_stats(c, 3, &nm.mean, 1));
    LB_TRY(update_running_stats(c, 4, &nm.inv, 2));
  } else {  // a copy, so that inverting does not write into the model's
            // variance
    lb_tensor var = nm.inv;
    LB_TRY(lb_reference_temp(c, var.dtype, var.rank, var.dims, &nm.inv));
    lb_convert(c->pool, &var, &nm.inv);
  }
  invert(c, &nm.inv, epsilon_of(c));
  return apply(c, &c->out[0], x, &nm);
}

lb_status lb_reference_InstanceNormalization(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  if (x->rank < 2)
    return lb_error(LB_INVALID, "the input has rank %d, not 2 or more",
                    x->rank);
  normal nm;
  uint32_t spatial = ((1u << x->rank) - 1) & ~3u;
  LB_TRY(moments(c, x, spatial, true, &nm.mean, &nm.inv));
  invert(c, &nm.inv, epsilon_of(c));
  LB_TRY(per_channel(c, 1, x->rank, x->dims[1], &nm.scale));
  LB_TRY(per_channel(c, 2, x->rank, x->dims[1], &nm.bias));
  return apply(c, &c->out[0], x, &nm);
}

// Views t, dense, as [n, groups, channels per group, rest].
static void view_as_groups(lb_tensor *t, int64_t groups) {
  int64_t n = t->dims[0], channels = t->dims[1];
  int64_t n_spatial = lb_axes_count(t, ~3u);
  t->rank = 4;
  t->dims[0] = n;
  t->dims[1] = groups;
  t->dims[2] = channels / groups;
  t->dims[3] = n_spatial;
  lb_tensor_dense(t);
}

// Scale or bias of GroupNormalization, broadcast to those dims.
static lb_status group_operand(lb_reference_call *c, uint32_t i, int64_t groups,
                               lb_tensor *out) {
  bool per_group = lb_attr_int(c->node, "per_group", 0) != 0;
  int64_t channels = c->in[0].dims[1];
  int64_t scales_per_group = per_group ? 1 : channels / groups;
  LB_TRY(per_channel(c, i, 2, scales_per_group * groups, out));
  out->rank = 3;
  out->dims[0] = groups;
  out->dims[1] = scales_per_group;
  out->dims[2] = 1;
  lb_tensor_dense(out);
  return LB_OK;
}

lb_status lb_reference_GroupNormalization(lb_reference_call *c) {
  int64_t groups = lb_attr_int(c->node, "num_groups", 0);
  lb_tensor x = c->in[0], y = c->out[0];
  if (x.rank < 2 || groups < 1 || x.dims[1] % groups != 0)
    return lb_error(LB_INVALID,
                    "%lld channels are not divisible into %lld groups",
                    (long long)(x.rank < 2 ? 0 : x.dims[1]), (long long)groups);
  if (lb_tensor_count(&x) == 0) return LB_OK;
  LB_TRY(lb_reference_dense(c, &c->in[0], x.dtype, &x));
  view_as_groups(&x, groups);
  view_as_groups(&y, groups);
  normal nm;
  LB_TRY(moments(c, &x, 4u | 8u, true, &nm.mean, &nm.inv));
  invert(c, &nm.inv, epsilon_of(c));
  LB_TRY(group_operand(c, 1, groups, &nm.scale));
  LB_TRY(group_operand(c, 2, groups, &nm.bias));
  return apply(c, &y, &x, &nm);
}

// -- per line ----------------------------------------------------------------

#define LINE(id, S, TT, load, store, Name, ...)                          \
  static void Name##_##id(const void *user, int64_t n, const void *from, \
                          void *to) {                                    \
    typedef TT T;                                                        \
    (void)user;                                                          \
    const S *restrict x = from;                                          \
    S *restrict y = to;                                                  \
    __VA_ARGS__                                                          \
  }

// 1e-9 is added to the standard deviation, as in the ONNX definition.
LB_WIDE_FLOATS(LINE, mvn, LB_LINE_SUM(sum, n, x[i]); const T mean = sum / (T)n;
               LB_LINE_SUM(squares, n, (x[i] - mean) * (x[i] - mean));
               const T deviation = sqrt(squares / (T)n) + (T)1e-9;
               for (int64_t i = 0; i < n; i++)
                   y[i] = (x[i] - mean) / deviation;)

lb_status lb_reference_MeanVarianceNormalization(lb_reference_call *c) {
  static const int64_t usual[] = {0, 2, 3};
  uint32_t n = 0, axes = 0;
  const int64_t *list = lb_attr_ints(c->node, "axes", &n);
  if (!list) {
    list = usual;
    n = 3;
  }
  for (uint32_t i = 0; i < n; i++) {
    int axis;
    LB_TRY(lb_reference_axis(c, list[i], c->in[0].rank, &axis));
    axes |= 1u << axis;
  }
  return lb_lines_run(c, &c->in[0], &c->out[0], axes,
                      (lb_line_fns){mvn_F32, mvn_F64}, NULL);
}

// A line of zeros stays zero.
#define DIVIDE_BY(norm) \
  for (int64_t i = 0; i < n; i++) y[i] = (norm) == 0 ? 0 : x[i] / (norm);
LB_WIDE_FLOATS(LINE, lp1, LB_LINE_SUM(sum, n, fabs((T)x[i])); DIVIDE_BY(sum))
LB_WIDE_FLOATS(LINE, lp2, LB_LINE_SUM(sum, n, x[i] * x[i]);
               const T norm = sqrt(sum); DIVIDE_BY(norm))

lb_status lb_reference_LpNormalization(lb_reference_call *c) {
  int64_t p = lb_attr_int(c->node, "p", 2);
  if (p != 1 && p != 2)
    return lb_error(LB_INVALID, "p is %lld, not 1 or 2", (long long)p);
  int axis = 0;
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", -1), c->in[0].rank,
                           &axis));
  lb_line_fns l1 = {lp1_F32, lp1_F64}, l2 = {lp2_F32, lp2_F64};
  return lb_lines_run(c, &c->in[0], &c->out[0], 1u << axis, p == 1 ? l1 : l2,
                      NULL);
}

typedef struct lrn_args {
  int64_t before,
      after;  // channels of the window before and after the current one
  double share, beta, bias;
} lrn_args;

LB_WIDE_FLOATS(
    LINE, lrn, const lrn_args *arg = user; for (int64_t i = 0; i < n; i++) {
      int64_t begin = i < arg->before ? 0 : i - arg->before;
      int64_t end = n - i <= arg->after ? n : i + arg->after + 1;
      T sum = x[begin] * x[begin];
      for (int64_t k = begin + 1; k < end; k++) sum += x[k] * x[k];
      y[i] = x[i] / pow((T)arg->bias + (T)arg->share * sum, (T)arg->beta);
    })

lb_status lb_reference_LRN(lb_reference_call *c) {
  int64_t size = lb_attr_int(c->node, "size", 0);
  if (size < 1 || c->in[0].rank < 2)
    return lb_error(LB_INVALID,
                    "size %lld must be at least 1 and rank %d at least 2",
                    (long long)size, c->in[0].rank);
  lrn_args arg = {
      .before = (size - 1) / 2,
      .after = size / 2,
      .share = (double)lb_attr_float(c->node, "alpha", 1e-4f) / (double)size,
      .beta = (double)lb_attr_float(c->node, "beta", 0.75f),
      .bias = (double)lb_attr_float(c->node, "bias", 1.0f)};
  return lb_lines_run(c, &c->in[0], &c->out[0], 2u,
                      (lb_line_fns){lrn_F32, lrn_F64}, &arg);
}
