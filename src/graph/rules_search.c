// graph/rules_search.c -- selection. The number of results depends on the data,
// so most output dims are unknown until the kernel has run.
#include <string.h>

#include "graph/rules.h"

lb_status lb_shape_top_k(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_NUMBER));
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_scalar(c, 1, "K"));
  LB_TRY(lb_rule_rank(c, 0, 1, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  lb_rule_type(c, 1, LB_I64);
  if (x->rank < 0) return LB_OK;
  int axis;
  lb_dim k, dims[LB_MAX_RANK];
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", -1), x->rank, &axis));
  bool known = lb_infer_ints(c, 1, &k, 1) == 1;
  if (!known && !c->syms) return LB_OK;
  if (!known || lb_dim_known(k).at_least == INT64_MIN)
    LB_TRY(lb_rule_fresh(c, &k));
  lb_dim_range want = lb_dim_known(k), have = lb_dim_known(x->dims[axis]);
  if (want.at_most < 0 || want.at_least > have.at_most)
    return lb_infer_error(c, "K is %s, but dim %d of %s has %s",
                          lb_rule_dim(c, k), axis, lb_rule_text(c, 0),
                          lb_rule_dim(c, x->dims[axis]));
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  dims[axis] = k;
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  lb_rule_set(c, 1, LB_I64, x->rank, dims);
  return LB_OK;
}

lb_status lb_shape_non_zero(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  if (!c->syms || x->rank < 0) return lb_rule_unknown(c, 0, LB_I64, 2);
  lb_dim dims[2] = {lb_dim_const(x->rank)};
  LB_TRY(lb_rule_fresh(c, &dims[1]));
  lb_rule_set(c, 0, LB_I64, 2, dims);
  return LB_OK;
}

// Output 0 is x with `count` elements along the axis, or a vector of that
// length if the axis is -1.
static void select_along(lb_infer *c, int axis, lb_dim count) {
  const lb_vinfo *x = &c->in[0];
  if (axis < 0) {
    lb_rule_set(c, 0, x->dtype, 1, &count);
    return;
  }
  lb_rule_like(c, 0, x->dtype, x);
  c->out[0].dims[axis] = count;
}

// The attribute axis, or -1 if it is absent: the flattened input.
static lb_status optional_axis(const lb_infer *c, int *axis) {
  *axis = -1;
  if (!lb_attr_has(c->node, "axis")) return LB_OK;
  return lb_rule_axis(c, lb_attr_int(c->node, "axis", 0), c->in[0].rank, axis);
}

lb_status lb_shape_unique(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_dim found, all;
  int axis;
  lb_rule_type(c, 0, x->dtype);
  for (int o = 1; o < 4; o++) lb_rule_type(c, o, LB_I64);
  if (x->rank < 0) return LB_OK;
  LB_TRY(optional_axis(c, &axis));
  if (!c->syms) return LB_OK;
  LB_TRY(lb_rule_fresh(c, &found));
  LB_TRY(lb_rule_product(c, x->dims, x->rank, &all));
  if (axis >= 0) all = x->dims[axis];
  select_along(c, axis, found);
  lb_rule_set(c, 1, LB_I64, 1, &found);
  lb_rule_set(c, 2, LB_I64, 1, &all);
  lb_rule_set(c, 3, LB_I64, 1, &found);
  return LB_OK;
}

lb_status lb_shape_compress(lb_infer *c) {
  lb_dim found;
  int axis;
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_BOOL));
  LB_TRY(lb_rule_rank(c, 0, 1, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, 1, 1, 1));
  lb_rule_type(c, 0, c->in[0].dtype);
  if (c->in[0].rank < 0) return LB_OK;
  LB_TRY(optional_axis(c, &axis));
  if (!c->syms) return LB_OK;
  LB_TRY(lb_rule_fresh(c, &found));
  select_along(c, axis, found);
  return LB_OK;
}

// Boxes are [batches, boxes, 4], scores [batches, classes, boxes].
lb_status lb_shape_nms(lb_infer *c) {
  const lb_vinfo *b = &c->in[0], *s = &c->in[1];
  static const char *const names[] = {"max_output_boxes_per_class",
                                      "iou_threshold", "score_threshold"};
  LB_TRY(lb_rule_takes(c, 0, LB_BIT(F32)));
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(F32)));
  LB_TRY(lb_rule_takes(c, 2, LB_BIT(I64)));
  LB_TRY(lb_rule_takes(c, 3, LB_BIT(F32)));
  LB_TRY(lb_rule_takes(c, 4, LB_BIT(F32)));
  for (int i = 2; i < 5; i++) LB_TRY(lb_rule_scalar(c, i, names[i - 2]));
  LB_TRY(lb_rule_rank(c, 0, 3, 3));
  LB_TRY(lb_rule_rank(c, 1, 3, 3));
  if (b->rank == 3) {
    lb_dim want[3] = {b->dims[0], b->dims[1], lb_dim_const(4)};
    LB_TRY(lb_rule_expect(c, 0, "boxes", 3, want));
    if (s->rank == 3) {
      lb_dim scores[3] = {b->dims[0], s->dims[1], b->dims[1]};
      LB_TRY(lb_rule_expect(c, 1, "scores", 3, scores));
    }
  }
  lb_rule_type(c, 0, LB_I64);
  if (!c->syms) return LB_OK;
  lb_dim dims[2] = {{0}, lb_dim_const(3)};
  LB_TRY(lb_rule_fresh(c, &dims[0]));
  lb_rule_set(c, 0, LB_I64, 2, dims);
  return LB_OK;
}
