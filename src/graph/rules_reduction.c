// graph/rules_reduction.c -- reductions, normalisation and losses.
#include <string.h>

#include "graph/rules.h"

lb_status lb_shape_segment_sum(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *segments = &c->in[1];
  lb_dim dims[LB_MAX_RANK];
  LB_TRY(lb_rule_takes(c, 0, LB_BIT(F32)));
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, 1, 1, 1));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0 || segments->rank < 0)
    return lb_rule_unknown(c, 0, x->dtype, x->rank < 0 ? -1 : x->rank - 1);
  if (lb_rule_differ(x->dims[0], lb_dim_const(1)) ||
      lb_dim_is(segments->dims[0], 0))
    return lb_infer_error(c, "rows %s and segments %s do not fit",
                          lb_rule_text(c, 0), lb_rule_text(c, 1));
  LB_TRY(lb_rule_plus(c, segments->dims[0], -1, &dims[0]));
  for (int i = 2; i < x->rank; i++) dims[i - 1] = x->dims[i];
  lb_rule_set(c, 0, x->dtype, x->rank - 1, dims);
  return LB_OK;
}

// -- Reduce* -----------------------------------------------------------------

// Sets the output dims with the marked axes reduced.
static void set_reduced(lb_infer *c, lb_dtype t, const bool *reduced,
                        bool keep) {
  const lb_vinfo *x = &c->in[0];
  lb_dim dims[LB_MAX_RANK];
  int n = 0;
  for (int i = 0; i < x->rank; i++) {
    if (!reduced[i])
      dims[n++] = x->dims[i];
    else if (keep)
      dims[n++] = lb_dim_const(1);
  }
  lb_rule_set(c, 0, t, n, dims);
}

static unsigned reduce_types(lb_op op) {
  switch (op) {
    case LB_OP_ReduceMax:
    case LB_OP_ReduceMin: return LB_TYPES_ANY;
    default: return LB_TYPES_NUMBER;
  }
}

// The axes are given but not known: infers the rank if possible.
static lb_status reduce_unknown_axes(lb_infer *c, bool keep) {
  const lb_vinfo *x = &c->in[0];
  int n = lb_rule_length(c, 1);
  if (keep) return lb_rule_unknown(c, 0, x->dtype, x->rank);
  // An empty list may mean all axes.
  if (n < 1 || n > x->rank) return LB_OK;
  return lb_rule_unknown(c, 0, x->dtype, x->rank - n);
}

lb_status lb_shape_reduce(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  bool keep = lb_attr_int(c->node, "keepdims", 1) != 0, reduced[LB_MAX_RANK];
  bool noop_if_empty = lb_attr_int(c->node, "noop_with_empty_axes", 0) != 0;
  LB_TRY(lb_rule_takes(c, 0, reduce_types(c->node->op)));
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  lb_rule_type(c, 0, x->dtype);
  lb_dim axes[LB_MAX_RANK];
  int n = lb_rule_has(c, 1) ? lb_rule_axes_in(c, 1, axes) : 0;
  if (x->rank < 0) {
    bool scalar = n == 0 && !noop_if_empty && !keep;
    if (scalar) lb_rule_set(c, 0, x->dtype, 0, NULL);
    return LB_OK;
  }
  if (n < 0) return reduce_unknown_axes(c, keep);
  LB_TRY(lb_rule_axes(c, axes, n, x->rank, reduced));
  for (int i = 0; n == 0 && !noop_if_empty && i < x->rank; i++)
    reduced[i] = true;
  set_reduced(c, x->dtype, reduced, keep);
  bool whole = x->rank == 0 || (x->rank == 1 && reduced[0]);
  return whole ? lb_content_reduce(c) : LB_OK;
}

lb_status lb_shape_arg_reduce(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  bool reduced[LB_MAX_RANK] = {false};
  int axis;
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_NUMBER));
  lb_rule_type(c, 0, LB_I64);
  if (x->rank < 0) return LB_OK;
  int64_t a = lb_attr_int(c->node, "axis", 0);
  LB_TRY(lb_rule_axis(c, a, x->rank ? x->rank : 1, &axis));
  if (x->rank > 0 && lb_dim_is(x->dims[axis], 0))
    return lb_infer_error(
        c, "dim %d of %s is empty, so there is no index to return", axis,
        lb_rule_text(c, 0));
  reduced[axis] = true;
  set_reduced(c, LB_I64, reduced, lb_attr_int(c->node, "keepdims", 1) != 0);
  return LB_OK;
}

// -- normalisation -----------------------------------------------------------

lb_status lb_shape_layer_norm(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_dtype stash;
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_type_attr(c, "stash_type", LB_F32, &stash));
  lb_rule_type(c, 1, stash);
  lb_rule_type(c, 2, stash);
  lb_rule_like(c, 0, x->dtype, x);
  if (x->rank < 0) return LB_OK;
  int axis;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", -1), x->rank, &axis));
  LB_TRY(lb_rule_fits(c, 1, "scale", x->rank, x->dims));
  LB_TRY(lb_rule_fits(c, 2, "bias", x->rank, x->dims));
  lb_dim dims[LB_MAX_RANK];
  for (int i = 0; i < x->rank; i++)
    dims[i] = i < axis ? x->dims[i] : lb_dim_const(1);
  lb_rule_set(c, 1, stash, x->rank, dims);
  lb_rule_set(c, 2, stash, x->rank, dims);
  return LB_OK;
}

lb_status lb_shape_rms_norm(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  int axis;
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_FLOAT));
  lb_rule_like(c, 0, c->in[1].dtype, x);
  if (x->rank < 0) return LB_OK;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", -1), x->rank, &axis));
  return lb_rule_fits(c, 1, "scale", x->rank, x->dims);
}

// Inputs first..last must have one element per channel of input 0 (dim 1).
static lb_status per_channel(const lb_infer *c, int first, int last) {
  static const char *const names[] = {"input", "scale", "bias", "mean",
                                      "variance"};
  const lb_vinfo *x = &c->in[0];
  lb_dim channels = x->rank == 1 ? lb_dim_const(1) : x->dims[1];
  for (int i = first; i <= last; i++)
    LB_TRY(lb_rule_expect(c, i, names[i], 1, &channels));
  return LB_OK;
}

lb_status lb_shape_batch_norm(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *mean = &c->in[3];
  LB_TRY(lb_rule_rank(c, 0, 1, LB_MAX_RANK));
  for (int i = 0; i < 5; i++) LB_TRY(lb_rule_takes(c, i, LB_TYPES_FLOAT));
  lb_rule_like(c, 0, x->dtype, x);
  lb_rule_like(c, 1, mean->dtype, mean);
  lb_rule_like(c, 2, mean->dtype, mean);
  return x->rank < 0 ? LB_OK : per_channel(c, 1, 4);
}

lb_status lb_shape_instance_norm(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  lb_rule_like(c, 0, x->dtype, x);
  return x->rank < 0 ? LB_OK : per_channel(c, 1, 2);
}

lb_status lb_shape_group_norm(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  int64_t groups = lb_attr_int(c->node, "num_groups", 0);
  lb_rule_like(c, 0, x->dtype, x);
  if (groups < 1)
    return lb_infer_error(c, "num_groups is %lld; it must be positive",
                          (long long)groups);
  if (x->rank < 0) return LB_OK;
  if (lb_dim_is_const(x->dims[1]) && x->dims[1].k % groups != 0)
    return lb_infer_error(c, "the channels of %s do not split into %lld groups",
                          lb_rule_text(c, 0), (long long)groups);
  if (!lb_attr_int(c->node, "per_group", 0)) return per_channel(c, 1, 2);
  lb_dim n = lb_dim_const(groups);
  LB_TRY(lb_rule_expect(c, 1, "scale", 1, &n));
  return lb_rule_expect(c, 2, "bias", 1, &n);
}

// -- losses ------------------------------------------------------------------

// Scores are [N,C,d...], labels [N,d...], weight [C]; the loss is a scalar, or
// has the shape of the labels.
static lb_status loss(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  const char *reduction = lb_attr_str(c->node, "reduction", "mean");
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INDEX));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  if (strcmp(reduction, "none") == 0)
    lb_rule_like(c, 0, x->dtype, &c->in[1]);
  else
    lb_rule_set(c, 0, x->dtype, 0, NULL);
  if (x->rank < 0) return LB_OK;
  lb_dim labels[LB_MAX_RANK];
  labels[0] = x->dims[0];
  for (int i = 2; i < x->rank; i++) labels[i - 1] = x->dims[i];
  LB_TRY(lb_rule_expect(c, 1, "target", x->rank - 1, labels));
  return lb_rule_expect(c, 2, "weight", 1, &x->dims[1]);
}

lb_status lb_shape_nll_loss(lb_infer *c) { return loss(c); }

lb_status lb_shape_softmax_loss(lb_infer *c) {
  lb_rule_like(c, 1, c->in[0].dtype, &c->in[0]);
  return loss(c);
}
