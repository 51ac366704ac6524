// graph/pass_shape.c -- takes the shape of attention scores from the inputs of
// the graph.
//
//   Shape(scores) = Concat(dim of an input, constant, ...)
//
// Exporters expand a mask to the shape of the scores. The scores would thus be
// needed beside the attention that computes them.
#include "graph/rewrite.h"

// Scores are [batch, heads, queries, keys].
static bool is_scores(const lb_value *v) {
  const lb_node *n = v->producer;
  return n && v->info.rank == 4 && !lb_dim_is_const(v->info.dims[2]) &&
         !lb_dim_is_const(v->info.dims[3]) &&
         (n->op == LB_OP_MatMul || n->op == LB_OP_Div || n->op == LB_OP_Mul ||
          n->op == LB_OP_Add);
}

// The parameter of the region that has the dim, and its axis there.
static lb_value *param_with(const lb_region *r, lb_dim d, int64_t *axis) {
  for (uint32_t i = 0; i < r->n_params; i++)
    for (*axis = 0; *axis < r->params[i]->info.rank; ++*axis)
      if (lb_dim_equal(r->params[i]->info.dims[*axis], d)) return r->params[i];
  return NULL;
}

static lb_status size_of(lb_rewrite *rw, lb_node *n, lb_dim d, lb_value **out) {
  int64_t axis;
  lb_value *in[2];
  if (lb_dim_is_const(d)) return lb_const_ints(rw->graph, "dim", &d.k, 1, out);
  lb_value *from = param_with(n->region, d, &axis);
  LB_TRY(lb_rewrite_make(rw, n, LB_OP_Shape, &from, 1, &in[0]));
  LB_TRY(lb_const_ints(rw->graph, "axis", &axis, 1, &in[1]));
  return lb_rewrite_make(rw, n, LB_OP_Gather, in, 2, out);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  lb_value *sizes[4];
  int64_t axis;
  if (n->op != LB_OP_Shape || n->n_attrs || !is_scores(n->in[0])) return LB_OK;
  const lb_vinfo *x = &n->in[0]->info;
  for (int i = 0; i < 4; i++)
    if (!lb_dim_is_const(x->dims[i]) &&
        !param_with(n->region, x->dims[i], &axis))
      return LB_OK;
  for (int i = 0; i < 4; i++) LB_TRY(size_of(rw, n, x->dims[i], &sizes[i]));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Concat, sizes, 4));
  return lb_node_set_int(rw->graph, n, "axis", 0);
}

lb_status lb_pass_shape(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
