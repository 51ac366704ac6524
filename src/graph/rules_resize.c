// graph/rules_resize.c -- resampling: Resize, grids, regions of interest.
#include <math.h>
#include <string.h>

#include "graph/rules.h"

// -- Resize ------------------------------------------------------------------

// The axes of scales and sizes: all, unless the attribute names some.
static lb_status resize_axes(const lb_infer *c, int rank, int *axes, int *n) {
  uint32_t count;
  const int64_t *list = lb_attr_ints(c->node, "axes", &count);
  bool seen[LB_MAX_RANK] = {false};
  *n = list ? (int)count : rank;
  if (list && count > (uint32_t)rank)
    return lb_infer_error(c, "%u axes for rank %d", count, rank);
  for (int i = 0; i < *n; i++) {
    LB_TRY(lb_rule_axis(c, list ? list[i] : i, rank, &axes[i]));
    if (seen[axes[i]])
      return lb_infer_error(c, "axis %d is named twice", axes[i]);
    seen[axes[i]] = true;
  }
  return LB_OK;
}

// floor(d * scale), in float32 as exporters compute it. Integral scales keep
// symbols.
static lb_status scaled(const lb_infer *c, lb_dim d, double scale,
                        lb_dim *out) {
  if (!(scale > 0) || scale > (double)LB_DIM_LIMIT)
    return lb_infer_error(c, "a scale is %g; it must be positive", scale);
  if (lb_dim_is_const(d)) {
    double size = (double)floorf((float)d.k * (float)scale);
    if (size > (double)LB_DIM_LIMIT)
      return lb_infer_error(c, "scale %g makes a dim of %lld too large", scale,
                            (long long)d.k);
    *out = lb_dim_const((int64_t)size);
    return LB_OK;
  }
  double whole = floor(scale), divisor = floor(1 / scale);
  if (scale == whole)
    return lb_rule_mul(c, d, lb_dim_const((int64_t)whole), out);
  if (scale == 1 / divisor)
    return lb_rule_floordiv(c, d, lb_dim_const((int64_t)divisor), out);
  return lb_rule_fresh(c, out);
}

// Sizes under keep_aspect_ratio_policy: one scale, the smallest or largest of
// the ratios, for all axes.
static lb_status fit_aspect(const lb_infer *c, bool larger, const int *axes,
                            int n, const lb_dim *sizes, lb_dim *dims) {
  double scale = 0;
  bool numbers = true;
  for (int i = 0; i < n; i++) {
    lb_dim d = dims[axes[i]];
    numbers = numbers && lb_dim_is_const(d) && lb_dim_is_const(sizes[i]);
    if (!numbers) continue;
    if (d.k == 0)
      return lb_infer_error(c, "an empty dim has no aspect ratio to keep");
    double ratio = (double)sizes[i].k / (double)d.k;
    if (i == 0 || (larger ? ratio > scale : ratio < scale)) scale = ratio;
  }
  for (int i = 0; i < n; i++) {
    lb_dim *d = &dims[axes[i]];
    if (!numbers) {
      LB_TRY(lb_rule_fresh(c, d));
      continue;
    }
    double size = floor(scale * (double)d->k + 0.5);
    if (!(size >= 0) || size > (double)LB_DIM_LIMIT)
      return lb_infer_error(c, "sizes make a dim of %g", size);
    *d = lb_dim_const((int64_t)size);
  }
  return LB_OK;
}

static lb_status resize_to_sizes(const lb_infer *c, const int *axes, int n,
                                 const lb_dim *sizes, lb_dim *dims) {
  const char *policy =
      lb_attr_str(c->node, "keep_aspect_ratio_policy", "stretch");
  for (int i = 0; i < n; i++) {
    if (lb_dim_known(sizes[i]).at_most < 0)
      return lb_infer_error(c, "sizes[%d] is negative", i);
  }
  if (strcmp(policy, "stretch") != 0)
    return fit_aspect(c, strcmp(policy, "not_smaller") == 0, axes, n, sizes,
                      dims);
  for (int i = 0; i < n; i++) dims[axes[i]] = sizes[i];
  return LB_OK;
}

static lb_status check_count(const lb_infer *c, const char *what, int got,
                             int want) {
  if (got == want) return LB_OK;
  return lb_infer_error(c, "%s has %d elements; %d are needed", what, got,
                        want);
}

static lb_status check_empty(const lb_infer *c, const lb_dim *dims) {
  const lb_vinfo *x = &c->in[0];
  for (int i = 0; i < x->rank; i++) {
    if (lb_dim_is(x->dims[i], 0) && lb_dim_known(dims[i]).at_least > 0)
      return lb_infer_error(c, "dim %d of %s is empty and cannot grow", i,
                            lb_rule_text(c, 0));
  }
  return LB_OK;
}

lb_status lb_shape_resize(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 2, LB_BIT(F32)));
  LB_TRY(lb_rule_takes(c, 3, LB_BIT(I64)));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  // An empty tensor counts as absent.
  bool by_size = lb_rule_has(c, 3) && lb_rule_length(c, 3) != 0;
  bool by_scale = lb_rule_has(c, 2) && lb_rule_length(c, 2) != 0;
  bool both = lb_rule_length(c, 2) > 0 && lb_rule_length(c, 3) > 0;
  if (both || (!by_size && !by_scale))
    return lb_infer_error(c, "exactly one of scales and sizes must be given");
  int axes[LB_MAX_RANK], n;
  lb_dim sizes[LB_MAX_RANK], dims[LB_MAX_RANK];
  double scales[LB_MAX_RANK];
  LB_TRY(resize_axes(c, x->rank, axes, &n));
  int got = by_size ? lb_infer_ints(c, 3, sizes, LB_MAX_RANK)
                    : lb_rule_floats(c, 2, scales, LB_MAX_RANK);
  if (got < 0) return lb_rule_unknown(c, 0, x->dtype, x->rank);
  LB_TRY(check_count(c, by_size ? "sizes" : "scales", got, n));
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  if (by_size) LB_TRY(resize_to_sizes(c, axes, n, sizes, dims));
  for (int i = 0; !by_size && i < n; i++)
    LB_TRY(scaled(c, dims[axes[i]], scales[i], &dims[axes[i]]));
  LB_TRY(check_empty(c, dims));
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return LB_OK;
}

// -- grids -------------------------------------------------------------------

lb_status lb_shape_grid_sample(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *g = &c->in[1];
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_rank(c, 0, 3, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, 1, 3, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0 || g->rank < 0)
    return lb_rule_unknown(c, 0, x->dtype, x->rank > 0 ? x->rank : g->rank);
  lb_dim want[LB_MAX_RANK], dims[LB_MAX_RANK] = {x->dims[0], x->dims[1]};
  want[0] = x->dims[0];
  LB_TRY(lb_rule_rank(c, 1, x->rank, x->rank));
  for (int i = 1; i < x->rank - 1; i++) want[i] = dims[i + 1] = g->dims[i];
  want[x->rank - 1] = lb_dim_const(x->rank - 2);
  LB_TRY(lb_rule_expect(c, 1, "grid", x->rank, want));
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return LB_OK;
}

// size [N,C,H,W] or [N,C,D,H,W] gives a grid [N,spatial...,n_spatial].
lb_status lb_shape_affine_grid(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 0, 3, 3));
  lb_dim size[5], dims[5];
  int n = lb_infer_ints(c, 1, size, 5), length = lb_rule_length(c, 1);
  if (n < 0 && (length == 4 || length == 5))
    return lb_rule_unknown(c, 0, x->dtype, length);
  lb_rule_type(c, 0, x->dtype);
  if (n < 0 && length < 0) return LB_OK;
  if (n != 4 && n != 5)
    return lb_infer_error(c, "size must have 4 or 5 elements");
  lb_dim theta[3] = {size[0], lb_dim_const(n - 2), lb_dim_const(n - 1)};
  LB_TRY(lb_rule_expect(c, 0, "theta", 3, theta));
  dims[0] = size[0];
  for (int i = 2; i < n; i++) dims[i - 1] = size[i];
  dims[n - 1] = lb_dim_const(n - 2);
  lb_rule_set(c, 0, x->dtype, n, dims);
  return LB_OK;
}

// -- regions -----------------------------------------------------------------

// Rois are [regions, width]; *regions is their number.
static lb_status count_rois(const lb_infer *c, int64_t width, lb_dim *regions) {
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_rank(c, 0, 4, 4));
  LB_TRY(lb_rule_rank(c, 1, 2, 2));
  if (c->in[1].rank < 0) return LB_OK;
  *regions = c->in[1].dims[0];
  return lb_rule_expect(c, 1, "rois", 2,
                        (lb_dim[]){*regions, lb_dim_const(width)});
}

lb_status lb_shape_roi_align(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_dim regions;
  LB_TRY(count_rois(c, 4, &regions));
  LB_TRY(lb_rule_takes(c, 2, LB_BIT(I64)));
  if (x->rank < 0 || c->in[1].rank < 0)
    return lb_rule_unknown(c, 0, x->dtype, 4);
  LB_TRY(lb_rule_expect(c, 2, "batch_indices", 1, &regions));
  lb_dim dims[4] = {regions, x->dims[1],
                    lb_dim_const(lb_attr_int(c->node, "output_height", 1)),
                    lb_dim_const(lb_attr_int(c->node, "output_width", 1))};
  lb_rule_set(c, 0, x->dtype, 4, dims);
  return LB_OK;
}

lb_status lb_shape_max_roi_pool(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_dim regions;
  LB_TRY(count_rois(c, 5, &regions));
  const int64_t *size;
  LB_TRY(lb_rule_list(c, "pooled_shape", 2, &size));
  if (!size) return lb_infer_error(c, "the attribute pooled_shape is missing");
  if (x->rank < 0 || c->in[1].rank < 0)
    return lb_rule_unknown(c, 0, x->dtype, 4);
  lb_dim dims[4] = {regions, x->dims[1], lb_dim_const(size[0]),
                    lb_dim_const(size[1])};
  lb_rule_set(c, 0, x->dtype, 4, dims);
  return LB_OK;
}
