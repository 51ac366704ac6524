// graph/rules_same.c -- operators whose output has the dtype and dims of their
// first input.
//
// Most of them only check a dtype; the others check further inputs, because
// kernels trust what passed here.
#include "graph/rules.h"

static unsigned same_types(lb_op op) {
  switch (op) {
    case LB_OP_Identity:
    case LB_OP_ReverseSequence:
    case LB_OP_Trilu:
    case LB_OP_ScatterElements:
    case LB_OP_ScatterND:
    case LB_OP_TensorScatter: return LB_TYPES_ANY;
    case LB_OP_Not: return LB_TYPES_BOOL;
    case LB_OP_BitwiseNot: return LB_TYPES_INT;
    case LB_OP_Abs:
    case LB_OP_Sign:
    case LB_OP_Shrink:
    case LB_OP_CumSum:
    case LB_OP_CumProd: return LB_TYPES_NUMBER;
    case LB_OP_Neg:
    case LB_OP_Relu: return LB_TYPES_FLOAT | LB_TYPES_SIGNED;
    default: return LB_TYPES_FLOAT;
  }
}

static lb_status check_axis(const lb_infer *c, int64_t dflt) {
  int axis, rank = c->in[0].rank;
  if (rank <= 0) return LB_OK;
  int64_t a = lb_attr_int(c->node, "axis", dflt);
  // With flatten, the axis may also be after the last dim.
  if (a == rank && lb_attr_int(c->node, "flatten", 0)) return LB_OK;
  return lb_rule_axis(c, a, rank, &axis);
}

static lb_status check_cumulative(const lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INDEX));
  LB_TRY(lb_rule_scalar(c, 1, "axis"));
  int64_t a;
  int axis;
  if (c->in[0].rank < 0 || lb_rule_const_int(c, 1, &a) != 1) return LB_OK;
  return lb_rule_axis(c, a, c->in[0].rank, &axis);
}

static lb_status check_reverse(const lb_infer *c) {
  int64_t batch = lb_attr_int(c->node, "batch_axis", 1);
  int64_t time = lb_attr_int(c->node, "time_axis", 0);
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INDEX));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  if (!((batch == 0 && time == 1) || (batch == 1 && time == 0)))
    return lb_infer_error(c, "batch_axis and time_axis must be 0 and 1");
  if (c->in[0].rank < 0) return LB_OK;
  return lb_rule_expect(c, 1, "sequence_lens", 1, &c->in[0].dims[batch]);
}

static lb_status check_scatter_elements(const lb_infer *c) {
  const lb_vinfo *ix = &c->in[1];
  LB_TRY(lb_rule_same_type(c, 0, 2));
  if (ix->rank >= 0)
    LB_TRY(lb_rule_expect(c, 2, "updates", ix->rank, ix->dims));
  return lb_rule_elements(c);
}

// updates: the dims of indices without the last one, then the remaining dims of
// data.
static lb_status check_scatter_nd(const lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *ix = &c->in[1];
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_rank(c, 0, 1, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, 1, 1, LB_MAX_RANK));
  if (x->rank < 0 || ix->rank < 0) return LB_OK;
  lb_dim last = ix->dims[ix->rank - 1];
  if (!lb_dim_is_const(last)) return LB_OK;
  if (last.k > x->rank)
    return lb_infer_error(c, "indices %s name %lld dims, but data is %s",
                          lb_rule_text(c, 1), (long long)last.k,
                          lb_rule_text(c, 0));
  lb_dim want[2 * LB_MAX_RANK];
  int n = 0;
  for (int i = 0; i < ix->rank - 1; i++) want[n++] = ix->dims[i];
  for (int i = (int)last.k; i < x->rank; i++) want[n++] = x->dims[i];
  return lb_rule_expect(c, 2, "updates", n, want);
}

// update may differ from the cache only along the sequence axis, where it must
// fit.
static lb_status check_tensor_scatter(const lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *u = &c->in[1];
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_takes(c, 2, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  if (x->rank < 0) return LB_OK;
  int axis;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", -2), x->rank, &axis));
  if (axis == 0)
    return lb_infer_error(c, "axis 0 is the batch, not a sequence");
  LB_TRY(lb_rule_expect(c, 2, "write_indices", 1, &x->dims[0]));
  LB_TRY(lb_rule_rank(c, 1, x->rank, x->rank));
  for (int i = 0; i < u->rank; i++) {
    bool misfit = i == axis ? lb_dim_known(u->dims[i]).at_least >
                                  lb_dim_known(x->dims[i]).at_most
                            : lb_rule_differ(u->dims[i], x->dims[i]);
    if (misfit)
      return lb_infer_error(c, "update %s does not fit the cache %s in dim %d",
                            lb_rule_text(c, 1), lb_rule_text(c, 0), i);
  }
  return LB_OK;
}

// Size of one head: the last dim of [b,h,s,d], or that of [b,s,h*d] divided by
// the number of heads.
static lb_status head_size(const lb_infer *c, lb_dim *out) {
  const lb_vinfo *x = &c->in[0];
  *out = x->dims[x->rank - 1];
  if (x->rank == 4) return LB_OK;
  int64_t heads = lb_attr_int(c->node, "num_heads", 0);
  if (heads <= 0)
    return lb_infer_error(c, "a 3-D input needs the attribute num_heads");
  if (lb_dim_is_const(*out) && out->k % heads != 0)
    return lb_infer_error(c, "%s does not split into %lld heads",
                          lb_rule_text(c, 0), (long long)heads);
  return lb_rule_divexact(c, *out, lb_dim_const(heads), out);
}

// Half of the rotated part of a head.
static lb_status rotary_half(const lb_infer *c, lb_dim *half) {
  const lb_vinfo *cos = &c->in[1];
  int64_t part = lb_attr_int(c->node, "rotary_embedding_dim", 0);
  lb_dim size;
  if (part == -1 || lb_attr_int(c->node, "num_heads", 0) == -1) {
    if (cos->rank < 1) return lb_rule_fresh(c, half);
    *half = cos->dims[cos->rank - 1];
    return LB_OK;
  }
  LB_TRY(head_size(c, &size));
  if (part < 0 || (part && lb_dim_known(size).at_most < part))
    return lb_infer_error(
        c, "rotary_embedding_dim %lld is not between 0 and the size of a head",
        (long long)part);
  if (part) size = lb_dim_const(part);
  return lb_rule_floordiv(c, size, lb_dim_const(2), half);
}

static lb_status check_rotary(const lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_takes(c, 3, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 0, 3, 4));
  if (x->rank < 0) return LB_OK;
  lb_dim half;
  LB_TRY(rotary_half(c, &half));
  lb_dim seq = x->rank == 4 ? x->dims[2] : x->dims[1];
  lb_dim want[3] = {x->dims[0], seq, half};
  LB_TRY(lb_rule_expect(c, 3, "position_ids", 2, want));
  if (!lb_rule_has(c, 3)) {
    LB_TRY(lb_rule_expect(c, 1, "cos_cache", 3, want));
    return lb_rule_expect(c, 2, "sin_cache", 3, want);
  }
  LB_TRY(lb_rule_rank(c, 1, 2, 2));
  if (c->in[1].rank < 0) return LB_OK;
  lb_dim cache[2] = {c->in[1].dims[0], half};
  LB_TRY(lb_rule_expect(c, 1, "cos_cache", 2, cache));
  return lb_rule_expect(c, 2, "sin_cache", 2, cache);
}

static lb_status check_lrn(const lb_infer *c) {
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  if (lb_attr_int(c->node, "size", 0) >= 1) return LB_OK;
  return lb_infer_error(c, "the attribute size must be at least 1");
}

static lb_status check_trilu(const lb_infer *c) {
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  return lb_rule_scalar(c, 1, "k");
}

static lb_status check_mvn(const lb_infer *c) {
  static const int64_t dflt_axes[] = {0, 2, 3};
  uint32_t n;
  const int64_t *axes = lb_attr_ints(c->node, "axes", &n);
  if (!axes) axes = dflt_axes, n = 3;
  for (uint32_t i = 0; i < n && c->in[0].rank >= 0; i++) {
    int axis;
    LB_TRY(lb_rule_axis(c, axes[i], c->in[0].rank, &axis));
  }
  return LB_OK;
}

static lb_status check_same(const lb_infer *c) {
  switch (c->node->op) {
    case LB_OP_Softmax:
    case LB_OP_LogSoftmax:
    case LB_OP_Hardmax:
    case LB_OP_LpNormalization: return check_axis(c, -1);
    case LB_OP_CumSum:
    case LB_OP_CumProd: return check_cumulative(c);
    case LB_OP_ReverseSequence: return check_reverse(c);
    case LB_OP_ScatterElements: return check_scatter_elements(c);
    case LB_OP_ScatterND: return check_scatter_nd(c);
    case LB_OP_TensorScatter: return check_tensor_scatter(c);
    case LB_OP_RotaryEmbedding: return check_rotary(c);
    case LB_OP_LRN: return check_lrn(c);
    case LB_OP_Trilu: return check_trilu(c);
    case LB_OP_MeanVarianceNormalization: return check_mvn(c);
    default: return LB_OK;
  }
}

lb_status lb_shape_same(lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, same_types(c->node->op)));
  LB_TRY(check_same(c));
  lb_rule_like(c, 0, c->in[0].dtype, &c->in[0]);
  return lb_content_unary(c);
}
