// graph/rules_create.c -- outputs that depend on shapes or scalars alone.
#include <math.h>

#include "graph/rules.h"

// -- Shape, Size -------------------------------------------------------------

// Clamps start and end of Shape to the rank.
static int clamp_axis(int64_t v, int rank) {
  if (v < 0) v = v < -rank ? 0 : v + rank;
  return (int)(v > rank ? rank : v);
}

lb_status lb_shape_shape_of(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  if (x->rank < 0) return lb_rule_unknown(c, 0, LB_I64, 1);
  int start = clamp_axis(lb_attr_int(c->node, "start", 0), x->rank);
  int end = clamp_axis(lb_attr_int(c->node, "end", x->rank), x->rank);
  int n = end > start ? end - start : 0;
  lb_dim length = lb_dim_const(n);
  lb_rule_set(c, 0, LB_I64, 1, &length);
  return lb_content_set(c, 0, x->dims + start, n);
}

lb_status lb_shape_size_of(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_rule_set(c, 0, LB_I64, 0, NULL);
  if (x->rank < 0) return LB_OK;
  lb_dim size;
  LB_TRY(lb_rule_product(c, x->dims, x->rank, &size));
  return lb_content_set(c, 0, &size, 1);
}

// -- ConstantOfShape, Range --------------------------------------------------

// Sets the fill value as contents, if it is an integer.
static lb_status fill_content(lb_infer *c, const lb_tensor *value) {
  lb_dim v[LB_MAX_KNOWN];
  const lb_vinfo *o = &c->out[0];
  if (!value || o->rank > 1) return LB_OK;
  int64_t n = 1;
  if (o->rank == 1) {
    if (!lb_dim_is_const(o->dims[0])) return LB_OK;
    n = o->dims[0].k;
  }
  if (n < 0 || n > LB_MAX_KNOWN) return LB_OK;
  lb_vinfo as_input = {.dtype = value->dtype, .data = value};
  lb_node one = *c->node;
  one.n_in = 1;
  lb_infer probe = {.node = &one, .in = &as_input};
  lb_dim fill;
  if (lb_infer_ints(&probe, 0, &fill, 1) != 1) return LB_OK;
  for (int i = 0; i < n; i++) v[i] = fill;
  return lb_content_set(c, 0, v, (int)n);
}

lb_status lb_shape_constant_of_shape(lb_infer *c) {
  const lb_attr *value = lb_attr_find(c->node, "value", LB_ATTR_TENSOR);
  lb_dtype t = value ? value->tensor->dtype : LB_F32;
  LB_TRY(lb_rule_takes(c, 0, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 0, 1, 1));
  lb_rule_type(c, 0, t);
  lb_dim dims[LB_MAX_RANK];
  int n = lb_infer_ints(c, 0, dims, LB_MAX_RANK);
  if (n < 0) {
    int length = lb_rule_length(c, 0);
    LB_TRY(lb_rule_max_rank(c, length));
    return lb_rule_unknown(c, 0, t, length);
  }
  for (int i = 0; i < n; i++) {
    if (lb_dim_is_const(dims[i]) && dims[i].k < 0)
      return lb_infer_error(c, "%lld at index %d is not a valid size",
                            (long long)dims[i].k, i);
    if (lb_dim_known(dims[i]).at_least < 0) LB_TRY(lb_rule_fresh(c, &dims[i]));
  }
  lb_rule_set(c, 0, t, n, dims);
  return fill_content(c, value ? value->tensor : NULL);
}

// ceil((limit - start) / delta), at least 0, without overflow.
static lb_status range_ints(lb_infer *c, int64_t start, int64_t limit,
                            int64_t delta) {
  int64_t span;
  if (delta == 0) return lb_infer_error(c, "delta is 0");
  if (__builtin_sub_overflow(limit, start, &span) || span == INT64_MIN ||
      delta == INT64_MIN)
    return lb_infer_error(c, "the range from %lld to %lld is too long",
                          (long long)start, (long long)limit);
  if (delta < 0) span = -span, delta = -delta;
  int64_t n = span <= 0 ? 0 : (span - 1) / delta + 1;
  lb_dim length = lb_dim_const(n), v[LB_MAX_KNOWN];
  lb_rule_set(c, 0, c->in[0].dtype, 1, &length);
  if (n > LB_MAX_KNOWN) return LB_OK;
  int64_t step = limit < start ? -delta : delta;
  for (int i = 0; i < n; i++) v[i] = lb_dim_const(start + i * step);
  return lb_content_set(c, 0, v, (int)n);
}

static lb_status range_floats(lb_infer *c, const double *v) {
  if (v[2] == 0) return lb_infer_error(c, "delta is 0");
  double n = ceil((v[1] - v[0]) / v[2]);
  if (isnan(n) || n > (double)LB_DIM_LIMIT)
    return lb_infer_error(c, "the range from %g to %g by %g is too long", v[0],
                          v[1], v[2]);
  lb_dim length = lb_dim_const(n > 0 ? (int64_t)n : 0);
  lb_rule_set(c, 0, c->in[0].dtype, 1, &length);
  return LB_OK;
}

// A symbolic range with a positive constant step.
static lb_status range_symbols(lb_infer *c, const lb_dim *v) {
  lb_dim span;
  if (!lb_dim_is_const(v[2]) || v[2].k < 1)
    return lb_rule_unknown(c, 0, c->in[0].dtype, 1);
  LB_TRY(lb_rule_sub(c, v[1], v[0], &span));
  LB_TRY(lb_rule_ceildiv(c, span, v[2], &span));
  if (lb_dim_known(span).at_least < 0)
    LB_TRY(lb_rule_max(c, span, lb_dim_const(0), &span));
  lb_rule_set(c, 0, c->in[0].dtype, 1, &span);
  return LB_OK;
}

lb_status lb_shape_range(lb_infer *c) {
  static const char *const names[] = {"start", "limit", "delta"};
  lb_dim v[3];
  double f[3];
  bool ints = true, floats = true, numbers = true;
  for (int i = 0; i < 3; i++) {
    LB_TRY(lb_rule_takes(c, i, LB_TYPES_NUMBER));
    LB_TRY(lb_rule_same_type(c, 0, i));
    LB_TRY(lb_rule_scalar(c, i, names[i]));
    ints = ints && lb_infer_ints(c, i, &v[i], 1) == 1;
    floats = floats && lb_rule_floats(c, i, &f[i], 1) == 1;
    numbers = numbers && ints && lb_dim_is_const(v[i]);
  }
  if (numbers) return range_ints(c, v[0].k, v[1].k, v[2].k);
  if (ints) return range_symbols(c, v);
  if (floats) return range_floats(c, f);
  return lb_rule_unknown(c, 0, c->in[0].dtype, 1);
}

// -- EyeLike, OneHot ---------------------------------------------------------

lb_status lb_shape_eye_like(lb_infer *c) {
  lb_dtype t;
  LB_TRY(lb_rule_type_attr(c, "dtype", c->in[0].dtype, &t));
  LB_TRY(lb_rule_rank(c, 0, 2, 2));
  if (c->in[0].rank < 0) return lb_rule_unknown(c, 0, t, 2);
  lb_rule_like(c, 0, t, &c->in[0]);
  return LB_OK;
}

lb_status lb_shape_one_hot(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_dtype t = c->in[2].dtype;
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_NUMBER));
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_NUMBER));
  LB_TRY(lb_rule_scalar(c, 1, "depth"));
  lb_dim two = lb_dim_const(2), depth, dims[LB_MAX_RANK];
  LB_TRY(lb_rule_expect(c, 2, "values", 1, &two));
  lb_rule_type(c, 0, t);
  if (x->rank < 0) return LB_OK;
  LB_TRY(lb_rule_max_rank(c, x->rank + 1));
  int axis;
  double f;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", -1), x->rank + 1, &axis));
  if (lb_infer_ints(c, 1, &depth, 1) != 1) {
    bool known = lb_rule_floats(c, 1, &f, 1) == 1;
    if (!known) return lb_rule_unknown(c, 0, t, x->rank + 1);
    if (!(f >= 0 && f <= (double)LB_DIM_LIMIT))
      return lb_infer_error(c, "depth is %g; it must be between 0 and 2^47", f);
    depth = lb_dim_const((int64_t)f);
  }
  if (lb_dim_known(depth).at_most < 0)
    return lb_infer_error(c, "depth is negative");
  for (int i = 0, from = 0; i <= x->rank; i++)
    dims[i] = i == axis ? depth : x->dims[from++];
  lb_rule_set(c, 0, t, x->rank + 1, dims);
  return LB_OK;
}

// -- windows -----------------------------------------------------------------

lb_status lb_shape_window(lb_infer *c) {
  lb_dtype t;
  lb_dim size;
  LB_TRY(lb_rule_type_attr(c, "output_datatype", LB_F32, &t));
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_INDEX));
  LB_TRY(lb_rule_scalar(c, 0, "size"));
  if (lb_infer_ints(c, 0, &size, 1) != 1) return lb_rule_unknown(c, 0, t, 1);
  lb_rule_set(c, 0, t, 1, &size);
  return LB_OK;
}

lb_status lb_shape_mel_weights(lb_infer *c) {
  lb_dtype t;
  lb_dim bins, length, dims[2];
  LB_TRY(lb_rule_type_attr(c, "output_datatype", LB_F32, &t));
  for (int i = 0; i < 3; i++) LB_TRY(lb_rule_takes(c, i, LB_TYPES_INDEX));
  for (int i = 3; i < 5; i++) LB_TRY(lb_rule_takes(c, i, LB_TYPES_FLOAT));
  for (int i = 0; i < 5; i++) LB_TRY(lb_rule_scalar(c, i, "a scalar input"));
  if (lb_infer_ints(c, 0, &bins, 1) != 1 ||
      lb_infer_ints(c, 1, &length, 1) != 1)
    return lb_rule_unknown(c, 0, t, 2);
  LB_TRY(lb_rule_floordiv(c, length, lb_dim_const(2), &dims[0]));
  LB_TRY(lb_rule_plus(c, dims[0], 1, &dims[0]));
  dims[1] = bins;
  lb_rule_set(c, 0, t, 2, dims);
  return LB_OK;
}

// -- random ------------------------------------------------------------------

lb_status lb_shape_random(lb_infer *c) {
  lb_dtype t;
  uint32_t n;
  const int64_t *shape = lb_attr_ints(c->node, "shape", &n);
  lb_dim dims[LB_MAX_RANK];
  LB_TRY(lb_rule_type_attr(c, "dtype", LB_F32, &t));
  if (!shape) return lb_infer_error(c, "the attribute shape is missing");
  LB_TRY(lb_rule_max_rank(c, n > LB_MAX_RANK ? LB_MAX_RANK + 1 : (int)n));
  for (uint32_t i = 0; i < n; i++) dims[i] = lb_dim_const(shape[i]);
  lb_rule_set(c, 0, t, (int)n, dims);
  return LB_OK;
}

lb_status lb_shape_random_like(lb_infer *c) {
  lb_dtype t;
  LB_TRY(lb_rule_type_attr(c, "dtype", c->in[0].dtype, &t));
  lb_rule_like(c, 0, t, &c->in[0]);
  return LB_OK;
}

lb_status lb_shape_multinomial(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_dtype t;
  LB_TRY(lb_rule_type_attr(c, "dtype", LB_I32, &t));
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_rank(c, 0, 2, 2));
  if (x->rank < 0) return lb_rule_unknown(c, 0, t, 2);
  int64_t n = lb_attr_int(c->node, "sample_size", 1);
  lb_dim dims[2] = {x->dims[0], lb_dim_const(n)};
  lb_rule_set(c, 0, t, 2, dims);
  return LB_OK;
}
