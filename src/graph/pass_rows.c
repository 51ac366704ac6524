// graph/pass_rows.c -- multiplies rows in place: a Gemm or MatMul of a
// flattened tensor, whose result is given the leading dims again,
//
//   Reshape(Gemm(Reshape(x), w, bias))  with x: [..., k], result: [..., n]
//
// becomes Add(MatMul(x, w), bias). Exporters write it for addmm and for layers
// that only know matrices. The Reshapes hide the bias and what follows (an
// activation, a residual) from the matmul, with which they could be computed.
#include "graph/rewrite.h"

typedef struct row_product {
  lb_value *x, *w, *bias;  // bias may be NULL
} row_product;

// Whether the dims but the last are equal.
static bool has_equal_rows(const lb_value *x, const lb_value *y) {
  if (x->info.rank != y->info.rank) return false;
  for (int i = 0; i < x->info.rank - 1; i++)
    if (!lb_dim_equal(x->info.dims[i], y->info.dims[i])) return false;
  return true;
}

static lb_dim last_dim(const lb_value *v) {
  return v->info.dims[v->info.rank - 1];
}

// Rows of a transposed tensor are not merged without a copy, which Reshape
// makes once.
static lb_value *flattened(const lb_value *v) {
  const lb_node *n = lb_match_op(v, LB_OP_Reshape);
  lb_value *x = n ? n->in[0] : NULL;
  bool rows = x && x->info.rank > 2 && v->info.rank == 2 &&
              lb_dim_equal(last_dim(x), last_dim(v));
  return rows && !lb_match_op(x, LB_OP_Transpose) ? x : NULL;
}

static bool is_plain_gemm(const lb_node *n) {
  const lb_value *bias = lb_node_input(n, 2);
  return !lb_attr_int(n, "transA", 0) && !lb_attr_int(n, "transB", 0) &&
         lb_attr_float(n, "alpha", 1) == 1 &&
         (!bias || (lb_attr_float(n, "beta", 1) == 1 && bias->info.rank == 1 &&
                    lb_dim_equal(last_dim(bias), last_dim(n->out[0]))));
}

static bool match(const lb_rewrite *rw, const lb_node *n, row_product *p) {
  if (n->op != LB_OP_Reshape || !n->out[0]) return false;
  const lb_value *y = n->in[0];
  const lb_node *matmul = lb_match_inner(rw, y, LB_OP_MatMul);
  const lb_node *gemm = lb_match_inner(rw, y, LB_OP_Gemm);
  if (gemm ? !is_plain_gemm(gemm) : !matmul) return false;
  const lb_node *of = gemm ? gemm : matmul;
  *p = (row_product){flattened(of->in[0]), of->in[1],
                     gemm ? lb_node_input(gemm, 2) : NULL};
  return p->x && p->w->info.rank == 2 && y->info.rank == 2 &&
         lb_dtype_is_float(y->info.dtype) && has_equal_rows(p->x, n->out[0]) &&
         lb_dim_equal(last_dim(y), last_dim(n->out[0]));
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  row_product p;
  lb_value *y;
  if (!match(rw, n, &p)) return LB_OK;
  lb_value *in[] = {p.x, p.w};
  if (!p.bias) return lb_rewrite_become(rw, n, LB_OP_MatMul, in, 2);
  LB_TRY(lb_rewrite_make(rw, n, LB_OP_MatMul, in, 2, &y));
  return lb_rewrite_become(rw, n, LB_OP_Add, (lb_value *[]){y, p.bias}, 2);
}

lb_status lb_pass_rows(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
