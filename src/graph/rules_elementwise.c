// graph/rules_elementwise.c -- elementwise operators with broadcasting, and
// quantisation.
#include "graph/rules.h"

// -- one input ---------------------------------------------------------------

lb_status lb_shape_predicate(lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  lb_rule_like(c, 0, LB_BOOL, &c->in[0]);
  return LB_OK;
}

lb_status lb_shape_cast(lb_infer *c) {
  lb_dtype to;
  LB_TRY(lb_rule_type_attr(c, "to", LB_NONE, &to));
  lb_rule_like(c, 0, to, &c->in[0]);
  return lb_content_copy(c, 0, 0);
}

lb_status lb_shape_cast_like(lb_infer *c) {
  lb_rule_like(c, 0, c->in[1].dtype, &c->in[0]);
  return lb_content_copy(c, 0, 0);
}

lb_status lb_shape_bit_cast(lb_infer *c) {
  lb_dtype to;
  LB_TRY(lb_rule_type_attr(c, "to", LB_NONE, &to));
  if (lb_dtype_size(to) != lb_dtype_size(c->in[0].dtype))
    return lb_infer_error(c, "%s and %s differ in size",
                          lb_dtype_name(c->in[0].dtype), lb_dtype_name(to));
  lb_rule_like(c, 0, to, &c->in[0]);
  return LB_OK;
}

lb_status lb_shape_clip(lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_NUMBER));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_scalar(c, 1, "min"));
  LB_TRY(lb_rule_scalar(c, 2, "max"));
  lb_rule_like(c, 0, c->in[0].dtype, &c->in[0]);
  return LB_OK;
}

lb_status lb_shape_dropout(lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 2, LB_TYPES_BOOL));
  LB_TRY(lb_rule_scalar(c, 1, "ratio"));
  LB_TRY(lb_rule_scalar(c, 2, "training_mode"));
  lb_rule_like(c, 0, c->in[0].dtype, &c->in[0]);
  lb_rule_like(c, 1, LB_BOOL, &c->in[0]);
  return LB_OK;
}

// -- several inputs ----------------------------------------------------------

static unsigned arithmetic_types(lb_op op) {
  switch (op) {
    case LB_OP_BitwiseAnd:
    case LB_OP_BitwiseOr:
    case LB_OP_BitwiseXor:
    case LB_OP_BitShift: return LB_TYPES_INT;
    case LB_OP_Sum:
    case LB_OP_Mean:
    case LB_OP_SwiGLU: return LB_TYPES_FLOAT;
    default: return LB_TYPES_NUMBER;
  }
}

// Broadcasts all inputs to output 0 of dtype t.
static lb_status broadcast_all(lb_infer *c, lb_dtype t) {
  int n = (int)c->node->n_in, pair[2] = {0, 1}, rank;
  int *inputs = n <= 2 ? pair : lb_arena_new(c->arena, int, (size_t)n);
  if (!inputs) return lb_oom();
  for (int i = 0; i < n; i++) {
    if (!lb_rule_has(c, i)) return lb_infer_error(c, "input %d is missing", i);
    inputs[i] = i;
  }
  lb_dim dims[LB_MAX_RANK];
  LB_TRY(lb_rule_broadcast(c, inputs, n, &rank, dims));
  lb_rule_set(c, 0, t, rank, dims);
  return LB_OK;
}

static lb_status check_all_types(const lb_infer *c, unsigned types) {
  for (int i = 0; i < (int)c->node->n_in; i++) {
    LB_TRY(lb_rule_takes(c, i, types));
    LB_TRY(lb_rule_same_type(c, 0, i));
  }
  return LB_OK;
}

lb_status lb_shape_broadcast(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(check_all_types(c, arithmetic_types(c->node->op)));
  if (c->node->op == LB_OP_SwiGLU && x->rank >= 0)
    LB_TRY(lb_rule_expect(c, 1, "B", x->rank, x->dims));
  if (c->node->op == LB_OP_PRelu) {
    if (x->rank >= 0) LB_TRY(lb_rule_fits(c, 1, "slope", x->rank, x->dims));
    lb_rule_like(c, 0, x->dtype, x);
    return LB_OK;
  }
  LB_TRY(broadcast_all(c, x->dtype));
  return lb_content_nary(c);
}

lb_status lb_shape_pow(lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_NUMBER));
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_NUMBER));
  return broadcast_all(c, c->in[0].dtype);
}

lb_status lb_shape_compare(lb_infer *c) {
  switch (c->node->op) {
    case LB_OP_And:
    case LB_OP_Or:
    case LB_OP_Xor: LB_TRY(check_all_types(c, LB_TYPES_BOOL)); break;
    case LB_OP_Equal: LB_TRY(check_all_types(c, LB_TYPES_ANY)); break;
    default: LB_TRY(check_all_types(c, LB_TYPES_NUMBER)); break;
  }
  LB_TRY(broadcast_all(c, LB_BOOL));
  return lb_content_nary(c);
}

lb_status lb_shape_where(lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_BOOL));
  LB_TRY(lb_rule_same_type(c, 1, 2));
  LB_TRY(broadcast_all(c, c->in[1].dtype));
  return lb_content_where(c);
}

// -- quantisation ------------------------------------------------------------

// Checks a dim of x against the number of scales along the blocked axis.
static lb_status check_block(const lb_infer *c, lb_dim d, lb_dim scales) {
  int64_t block = lb_attr_int(c->node, "block_size", 0);
  if (block <= 0)
    return lb_infer_error(c, "block_size is %lld; it must be positive",
                          (long long)block);
  lb_dim blocks;
  LB_TRY(lb_rule_ceildiv(c, d, lb_dim_const(block), &blocks));
  if (!lb_rule_differ(blocks, scales)) return LB_OK;
  return lb_infer_error(c, "scale is %s; %s needs one of %s blocks of %lld",
                        lb_rule_text(c, 1), lb_rule_text(c, 0),
                        lb_rule_dim(c, blocks), (long long)block);
}

// Whether v may be [] or [1].
static bool may_be_one(const lb_vinfo *v) {
  return v->rank == 0 ||
         (v->rank == 1 && !lb_rule_differ(v->dims[0], lb_dim_const(1)));
}

// Scale and zero point: one for all, one per index of an axis, or one per
// block.
static lb_status check_scale(const lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *s = &c->in[1];
  bool one = may_be_one(s);
  bool both = one && lb_rule_has(c, 2) && may_be_one(&c->in[2]);
  if (s->rank >= 0 && !both)
    LB_TRY(lb_rule_expect(c, 2, "zero point", s->rank, s->dims));
  if (x->rank < 0 || s->rank < 0 || one) return LB_OK;
  int axis;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", 1), x->rank ? x->rank : 1,
                      &axis));
  bool blocked = lb_attr_int(c->node, "block_size", 0) != 0;
  if (s->rank == 1 && x->rank > 0 && !blocked)
    return lb_rule_expect(c, 1, "scale", 1, &x->dims[axis]);
  LB_TRY(lb_rule_rank(c, 1, x->rank, x->rank));
  for (int i = 0; i < x->rank; i++) {
    if (i == axis)
      LB_TRY(check_block(c, x->dims[i], s->dims[i]));
    else if (lb_rule_differ(x->dims[i], s->dims[i]))
      return lb_infer_error(c, "scale %s does not match %s in dim %d",
                            lb_rule_text(c, 1), lb_rule_text(c, 0), i);
  }
  return LB_OK;
}

lb_status lb_shape_quantize(lb_infer *c) {
  lb_dtype t, zero_point = lb_rule_has(c, 2) ? c->in[2].dtype : LB_NONE;
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT | LB_BIT(I32)));
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_FLOAT | LB_BIT(I32)));
  LB_TRY(lb_rule_type_attr(c, "output_dtype", zero_point ? zero_point : LB_U8,
                           &t));
  if (zero_point && zero_point != t)
    return lb_infer_error(c, "output_dtype is %s but the zero point is %s",
                          lb_dtype_name(t), lb_dtype_name(zero_point));
  LB_TRY(check_scale(c));
  lb_rule_like(c, 0, t, &c->in[0]);
  return LB_OK;
}

lb_status lb_shape_dequantize(lb_infer *c) {
  lb_dtype t;
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_INT));
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_type_attr(c, "output_dtype", c->in[1].dtype, &t));
  LB_TRY(check_scale(c));
  lb_rule_like(c, 0, t, &c->in[0]);
  return LB_OK;
}

lb_status lb_shape_dynamic_quantize(lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, LB_BIT(F32)));
  lb_rule_like(c, 0, LB_U8, &c->in[0]);
  lb_rule_set(c, 1, LB_F32, 0, NULL);
  lb_rule_set(c, 2, LB_U8, 0, NULL);
  return LB_OK;
}
