// graph/rules_search.c -- selection. How much is found is up to the data, so
// most output dims are unknown until the kernel has run.
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
  lb_dim_facts want = lb_dim_known(k), have = lb_dim_known(x->dims[axis]);
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
  LB_TRY(lb_rule_unknown(c, 0, LB_I64, 2));
  if (c->syms && c->in[0].rank >= 0)
    c->out[0].dims[0] = lb_dim_const(c->in[0].rank);
  return LB_OK;
}

// A ranked output with one unknown dim; other dims as x.
static lb_status select_along(lb_infer *c, int axis) {
  const lb_vinfo *x = &c->in[0];
  lb_rule_type(c, 0, x->dtype);
  if (!c->syms) return LB_OK;
  lb_rule_like(c, 0, x->dtype, x);
  return lb_rule_fresh(c, &c->out[0].dims[axis]);
}

lb_status lb_shape_unique(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  bool whole = !lb_attr_has(c->node, "axis");
  int axis = 0;
  for (int o = 1; o < 4; o++) LB_TRY(lb_rule_unknown(c, o, LB_I64, 1));
  if (whole) return lb_rule_unknown(c, 0, x->dtype, 1);
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  return select_along(c, axis);
}

lb_status lb_shape_compress(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  int axis;
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_BOOL));
  LB_TRY(lb_rule_rank(c, 0, 1, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, 1, 1, 1));
  if (!lb_attr_has(c->node, "axis")) return lb_rule_unknown(c, 0, x->dtype, 1);
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  return select_along(c, axis);
}

// Boxes [batches, boxes, 4], scores [batches, classes, boxes].
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
  LB_TRY(lb_rule_unknown(c, 0, LB_I64, 2));
  if (c->syms) c->out[0].dims[1] = lb_dim_const(3);
  return LB_OK;
}
