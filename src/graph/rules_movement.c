// graph/rules_movement.c -- data movement: concatenation, padding, tiling,
// gathering.
#include <string.h>

#include "graph/rules.h"

// -- Concat ------------------------------------------------------------------

// Dims other than the axis must agree; a constant is preferred to a symbol.
static lb_status concat_dims(const lb_infer *c, int i, int axis, lb_dim *dims) {
  const lb_vinfo *x = &c->in[i];
  for (int d = 0; d < x->rank; d++) {
    if (d == axis) {
      LB_TRY(lb_rule_add(c, dims[d], x->dims[d], &dims[d]));
      continue;
    }
    if (lb_rule_differ(dims[d], x->dims[d]))
      return lb_infer_error(
          c, "input %d is %s; dim %d must be %s as in the inputs before it", i,
          lb_rule_text(c, i), d, lb_rule_dim(c, dims[d]));
    if (lb_dim_is_const(x->dims[d])) dims[d] = x->dims[d];
  }
  return LB_OK;
}

lb_status lb_shape_concat(lb_infer *c) {
  int n = (int)c->node->n_in, rank = -1, axis;
  bool ranked = true;
  for (int i = 0; i < n; i++) {
    if (!lb_rule_has(c, i)) return lb_infer_error(c, "input %d is missing", i);
    LB_TRY(lb_rule_same_type(c, 0, i));
    ranked = ranked && c->in[i].rank >= 0;
    if (c->in[i].rank >= 0) rank = c->in[i].rank;
  }
  lb_rule_type(c, 0, c->in[0].dtype);
  if (rank < 0) return LB_OK;
  for (int i = 0; i < n; i++) LB_TRY(lb_rule_rank(c, i, rank, rank));
  if (!lb_attr_has(c->node, "axis"))
    return lb_infer_error(c, "the attribute axis is missing");
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", 0), rank, &axis));
  if (!ranked) return lb_rule_unknown(c, 0, c->in[0].dtype, rank);
  lb_dim dims[LB_MAX_RANK];
  memcpy(dims, c->in[0].dims, (size_t)rank * sizeof *dims);
  for (int i = 1; i < n; i++) LB_TRY(concat_dims(c, i, axis, dims));
  lb_rule_set(c, 0, c->in[0].dtype, rank, dims);
  return rank == 1 ? lb_content_concat(c) : LB_OK;
}

// -- Pad, Tile, CenterCropPad ------------------------------------------------

// The axes in a list input or attribute; all of them by default. *n is -1 if
// they are not known.
static lb_status read_axes(const lb_infer *c, const lb_dim *list, int count,
                           int rank, int *axes, int *n) {
  bool seen[LB_MAX_RANK];
  *n = list ? count : rank;
  for (int i = 0; !list && i < rank; i++) axes[i] = i;
  if (!list || count < 0) return LB_OK;
  LB_TRY(lb_rule_axes(c, list, count, rank, seen));
  for (int i = 0; i < count; i++)
    axes[i] = (int)(list[i].k < 0 ? list[i].k + rank : list[i].k);
  return LB_OK;
}

// All modes but constant fill the padding from the dim itself.
static lb_status check_pad_mode(const lb_infer *c, lb_dim d, lb_dim before,
                                lb_dim after) {
  if (lb_dim_known(before).at_least <= 0 && lb_dim_known(after).at_least <= 0)
    return LB_OK;
  const char *mode = lb_attr_str(c->node, "mode", "constant");
  int64_t need = strcmp(mode, "reflect") == 0 ? 2 : 1;
  if (strcmp(mode, "constant") == 0 || lb_dim_known(d).at_most >= need)
    return LB_OK;
  return lb_infer_error(c, "mode %s cannot fill padding from a dim of %s", mode,
                        lb_rule_dim(c, d));
}

lb_status lb_shape_pad(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_scalar(c, 2, "constant_value"));
  LB_TRY(lb_rule_takes(c, 3, LB_TYPES_INDEX));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  lb_dim pads[2 * LB_MAX_RANK], list[LB_MAX_RANK], dims[LB_MAX_RANK];
  int axes[LB_MAX_RANK], n, count = lb_rule_axes_in(c, 3, list);
  LB_TRY(
      read_axes(c, lb_rule_has(c, 3) ? list : NULL, count, x->rank, axes, &n));
  int n_pads = lb_infer_ints(c, 1, pads, 2 * LB_MAX_RANK);
  if (n < 0 || n_pads < 0) return lb_rule_unknown(c, 0, x->dtype, x->rank);
  if (n_pads != 2 * n)
    return lb_infer_error(c, "%d pads for %d axes; two per axis are needed",
                          n_pads, n);
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  for (int i = 0; i < n; i++) {
    lb_dim *d = &dims[axes[i]];
    LB_TRY(check_pad_mode(c, *d, pads[i], pads[n + i]));
    LB_TRY(lb_rule_add(c, *d, pads[i], d));
    LB_TRY(lb_rule_add(c, *d, pads[n + i], d));
    if (lb_dim_is_const(*d) && d->k < 0)
      return lb_infer_error(c, "pads remove more from dim %d of %s than it has",
                            axes[i], lb_rule_text(c, 0));
  }
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return LB_OK;
}

static lb_status tile_content(lb_infer *c) {
  lb_dim v[LB_MAX_KNOWN];
  int n = lb_infer_ints(c, 0, v, LB_MAX_KNOWN);
  if (n <= 0 || c->in[0].rank != 1 || !lb_dim_is_const(c->out[0].dims[0]) ||
      c->out[0].dims[0].k > LB_MAX_KNOWN)
    return LB_OK;
  int count = (int)c->out[0].dims[0].k;
  for (int i = n; i < count; i++) v[i] = v[i - n];
  return lb_content_set(c, 0, v, count);
}

lb_status lb_shape_tile(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 1, 1, 1));
  lb_rule_type(c, 0, x->dtype);
  lb_dim repeats[LB_MAX_RANK], dims[LB_MAX_RANK];
  int n = lb_infer_ints(c, 1, repeats, LB_MAX_RANK);
  if (x->rank < 0) return LB_OK;
  if (n < 0) return lb_rule_unknown(c, 0, x->dtype, x->rank);
  if (n != x->rank)
    return lb_infer_error(c, "%d repeats for %s; one per dim is needed", n,
                          lb_rule_text(c, 0));
  for (int i = 0; i < n; i++) {
    if (lb_dim_is_const(repeats[i]) && repeats[i].k < 0)
      return lb_infer_error(c, "repeat %d is negative", i);
    LB_TRY(lb_rule_mul(c, x->dims[i], repeats[i], &dims[i]));
  }
  lb_rule_set(c, 0, x->dtype, n, dims);
  return tile_content(c);
}

lb_status lb_shape_center_crop_pad(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INDEX));
  LB_TRY(lb_rule_rank(c, 1, 1, 1));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  uint32_t count;
  const int64_t *given = lb_attr_ints(c->node, "axes", &count);
  lb_dim list[LB_MAX_RANK], want[LB_MAX_RANK], dims[LB_MAX_RANK];
  if (count > (uint32_t)x->rank)
    return lb_infer_error(c, "%u axes for rank %d", count, x->rank);
  for (uint32_t i = 0; i < count; i++) list[i] = lb_dim_const(given[i]);
  int axes[LB_MAX_RANK], n;
  LB_TRY(read_axes(c, given ? list : NULL, (int)count, x->rank, axes, &n));
  int n_want = lb_infer_ints(c, 1, want, LB_MAX_RANK);
  if (n_want < 0) return lb_rule_unknown(c, 0, x->dtype, x->rank);
  if (n_want != n)
    return lb_infer_error(c, "shape has %d elements for %d axes", n_want, n);
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  for (int i = 0; i < n; i++) dims[axes[i]] = want[i];
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return LB_OK;
}

// -- DepthToSpace, SpaceToDepth ----------------------------------------------

static lb_status block_size(const lb_infer *c, int64_t *out) {
  *out = lb_attr_int(c->node, "blocksize", 0);
  LB_TRY(lb_rule_rank(c, 0, 4, 4));
  if (*out >= 1 && *out <= INT32_MAX) return LB_OK;
  return lb_infer_error(c, "blocksize is %lld; it must be positive",
                        (long long)*out);
}

// d / k, which must be exact.
static lb_status divide_dim(const lb_infer *c, int dim, int64_t k,
                            lb_dim *out) {
  lb_dim d = c->in[0].dims[dim];
  if (lb_dim_is_const(d) && d.k % k != 0)
    return lb_infer_error(c, "dim %d of %s is not a multiple of %lld", dim,
                          lb_rule_text(c, 0), (long long)k);
  return lb_rule_divexact(c, d, lb_dim_const(k), out);
}

lb_status lb_shape_depth_to_space(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  int64_t b;
  LB_TRY(block_size(c, &b));
  if (x->rank < 0) return lb_rule_unknown(c, 0, x->dtype, 4);
  lb_dim dims[4] = {x->dims[0]};
  LB_TRY(divide_dim(c, 1, b * b, &dims[1]));
  for (int i = 2; i < 4; i++)
    LB_TRY(lb_rule_mul(c, x->dims[i], lb_dim_const(b), &dims[i]));
  lb_rule_set(c, 0, x->dtype, 4, dims);
  return LB_OK;
}

lb_status lb_shape_space_to_depth(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  int64_t b;
  LB_TRY(block_size(c, &b));
  if (x->rank < 0) return lb_rule_unknown(c, 0, x->dtype, 4);
  lb_dim dims[4] = {x->dims[0]};
  LB_TRY(lb_rule_mul(c, x->dims[1], lb_dim_const(b * b), &dims[1]));
  for (int i = 2; i < 4; i++) LB_TRY(divide_dim(c, i, b, &dims[i]));
  lb_rule_set(c, 0, x->dtype, 4, dims);
  return LB_OK;
}

// -- Gather ------------------------------------------------------------------

// Gathers known contents with constant indices.
static lb_status gather_content(lb_infer *c) {
  lb_dim v[LB_MAX_KNOWN], out[LB_MAX_KNOWN];
  int64_t ix[LB_MAX_KNOWN];
  if (c->in[0].rank != 1 || c->in[1].rank > 1) return LB_OK;
  int n = lb_infer_ints(c, 0, v, LB_MAX_KNOWN);
  int count = n < 0 ? -1 : lb_rule_const_ints(c, 1, ix, LB_MAX_KNOWN);
  for (int i = 0; i < count; i++) {
    if (ix[i] < -n || ix[i] >= n)
      return lb_infer_error(c, "index %lld is out of range for %d elements",
                            (long long)ix[i], n);
    out[i] = v[ix[i] < 0 ? ix[i] + n : ix[i]];
  }
  return lb_content_set(c, 0, out, count);
}

lb_status lb_shape_gather(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *ix = &c->in[1];
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INDEX));
  LB_TRY(lb_rule_rank(c, 0, 1, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  int axis, n = 0;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  if (ix->rank < 0) return LB_OK;
  LB_TRY(lb_rule_max_rank(c, x->rank + ix->rank - 1));
  lb_dim dims[LB_MAX_RANK];
  for (int i = 0; i < axis; i++) dims[n++] = x->dims[i];
  for (int i = 0; i < ix->rank; i++) dims[n++] = ix->dims[i];
  for (int i = axis + 1; i < x->rank; i++) dims[n++] = x->dims[i];
  lb_rule_set(c, 0, x->dtype, n, dims);
  return gather_content(c);
}

lb_status lb_shape_gather_elements(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *ix = &c->in[1];
  LB_TRY(lb_rule_elements(c));
  lb_rule_like(c, 0, x->dtype, ix);
  return LB_OK;
}

static lb_status check_batch(const lb_infer *c, int64_t batch) {
  const lb_vinfo *x = &c->in[0], *ix = &c->in[1];
  if (batch < 0 || batch >= x->rank || batch >= ix->rank)
    return lb_infer_error(c,
                          "batch_dims is %lld; it must be less than both ranks",
                          (long long)batch);
  for (int i = 0; i < batch; i++) {
    if (lb_rule_differ(x->dims[i], ix->dims[i]))
      return lb_infer_error(c, "batch dim %d differs between %s and %s", i,
                            lb_rule_text(c, 0), lb_rule_text(c, 1));
  }
  return LB_OK;
}

lb_status lb_shape_gather_nd(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *ix = &c->in[1];
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 0, 1, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, 1, 1, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0 || ix->rank < 0) return LB_OK;
  int64_t batch = lb_attr_int(c->node, "batch_dims", 0);
  LB_TRY(check_batch(c, batch));
  lb_dim last = ix->dims[ix->rank - 1];
  if (!lb_dim_is_const(last)) return LB_OK;
  if (last.k < 1 || last.k > x->rank - batch)
    return lb_infer_error(
        c, "the last dim of indices %s does not fit the dims of %s after %lld",
        lb_rule_text(c, 1), lb_rule_text(c, 0), (long long)batch);
  lb_dim dims[2 * LB_MAX_RANK];
  int n = 0;
  for (int i = 0; i < ix->rank - 1; i++) dims[n++] = ix->dims[i];
  for (int i = (int)(batch + last.k); i < x->rank; i++) dims[n++] = x->dims[i];
  LB_TRY(lb_rule_max_rank(c, n));
  lb_rule_set(c, 0, x->dtype, n, dims);
  return LB_OK;
}
