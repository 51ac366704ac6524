// graph/pass_onehot.c -- rewrites the MatMul of a one-hot matrix and a constant
// table as a Gather from the table, and moves elementwise operators before a
// Gather from a constant table, where they are computed at load. Also removes a
// Gather of all elements of a matrix in order.
//
//   MatMul(Cast(x == [0, 1, ..., n-1]), W) = Gather(W, x), or 0 where x is not
//     in [0, n); x has the shape [..., 1]
//   elementwise(Gather(W, x)) = Gather(elementwise(W), x)
//   Gather(Flatten(x), i * m + j) = x, for x of shape [n, m], i = [0, ..., n-1]
//     along one axis and j = [0, ..., m-1] along a later axis
#include <math.h>
#include <string.h>

#include "graph/rewrite.h"

#define MAX_TABLE ((int64_t)1 << 18)  // elements; computed at load and kept

// -- one-hot rows ------------------------------------------------------------

// Whether v is the constant 0, 1, ..., n-1 along the last axis.
static bool counts_up(const lb_value *v, int64_t n) {
  const lb_tensor *t = lb_value_const(v);
  if (!t || (t->dtype != LB_I32 && t->dtype != LB_I64) || t->rank < 1 ||
      t->dims[t->rank - 1] != n || lb_tensor_count(t) != n ||
      !lb_tensor_is_dense(t))
    return false;
  for (int64_t i = 0; i < n; i++)
    if (lb_match_int(t, i) != i) return false;
  return true;
}

// The constant v if it is a small matrix of finite float32, else NULL. Others
// do not match, because 0 times infinity or NaN is not 0.
static const lb_tensor *finite_table(const lb_value *v) {
  const lb_tensor *t = lb_value_const(v);
  if (!t || t->dtype != LB_F32 || t->rank != 2 || !lb_tensor_is_dense(t))
    return NULL;
  int64_t n = lb_tensor_count(t);
  if (n == 0 || n > MAX_TABLE) return NULL;
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(lb_match_elem(t, i))) return NULL;
  return t;
}

// Returns x if v is the one-hot encoding of x with n columns, else NULL.
static lb_value *one_hot(const lb_rewrite *rw, const lb_value *v, int64_t n) {
  const lb_node *cast = lb_match_inner(rw, v, LB_OP_Cast);
  const lb_node *eq =
      cast ? lb_match_inner(rw, cast->in[0], LB_OP_Equal) : NULL;
  for (int i = 0; eq && i < 2; i++) {
    lb_value *x = eq->in[i];
    int rank = x->info.rank;
    if (rank > 1 && rank == v->info.rank &&
        lb_dim_is(x->info.dims[rank - 1], 1) && counts_up(eq->in[1 - i], n))
      return x;
  }
  return NULL;
}

// The table with a row of zeros before the first and after the last row.
static lb_status add_zero_rows(lb_rewrite *rw, const lb_value *name,
                               const lb_tensor *w, lb_value **out) {
  lb_tensor t = *w;
  t.dims[0] += 2;
  lb_tensor_dense(&t);
  size_t row = (size_t)w->dims[1] * sizeof(float);
  char *p = lb_arena_zalloc(&rw->graph->arena, lb_tensor_bytes(&t), 64);
  if (!p) return lb_oom();
  memcpy(p + row, w->data, lb_tensor_bytes(w));
  t.data = p;
  return lb_const_new(rw->graph, name->name, &t, out);
}

static lb_status scalar_like(lb_rewrite *rw, const lb_value *x, int64_t v,
                             lb_value **out) {
  lb_tensor t = {.dtype = x->info.dtype};
  void *p = lb_arena_alloc(&rw->graph->arena, sizeof v, 8);
  if (!p) return lb_oom();
  int32_t narrow = (int32_t)v;
  if (t.dtype == LB_I64)
    memcpy(p, &v, sizeof v);
  else
    memcpy(p, &narrow, sizeof narrow);
  t.data = p;
  return lb_const_new(rw->graph, "bound", &t, out);
}

// Row indices into the table of add_zero_rows: 1 + x, with x clamped to
// [-1, rows].
static lb_status rows_of(lb_rewrite *rw, lb_node *n, lb_value *x, int64_t rows,
                         lb_value **out) {
  lb_value *in[3] = {x}, *one, *axis;
  int64_t last = -1;
  LB_TRY(scalar_like(rw, x, -1, &in[1]));
  LB_TRY(scalar_like(rw, x, rows, &in[2]));
  LB_TRY(scalar_like(rw, x, 1, &one));
  LB_TRY(lb_const_ints(rw->graph, "axis", &last, 1, &axis));
  LB_TRY(lb_rewrite_make(rw, n, LB_OP_Clip, in, 3, &in[0]));
  in[1] = one;
  LB_TRY(lb_rewrite_make(rw, n, LB_OP_Add, in, 2, &in[0]));
  in[1] = axis;
  return lb_rewrite_make(rw, n, LB_OP_Squeeze, in, 2, out);
}

static lb_status visit_matmul(lb_rewrite *rw, lb_node *n) {
  const lb_tensor *w = finite_table(n->in[1]);
  lb_value *x = w ? one_hot(rw, n->in[0], w->dims[0]) : NULL;
  if (!x || n->out[0]->info.dtype != LB_F32) return LB_OK;
  lb_value *in[2];
  LB_TRY(add_zero_rows(rw, n->in[1], w, &in[0]));
  LB_TRY(rows_of(rw, n, x, w->dims[0], &in[1]));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Gather, in, 2));
  return lb_node_set_int(rw->graph, n, "axis", 0);
}

// -- elementwise operators on rows -------------------------------------------

// The Gather of whole rows of a small constant matrix that produces v, if v has
// no other reader.
static lb_node *rows_before(const lb_rewrite *rw, const lb_value *v) {
  lb_node *g = lb_match_inner(rw, v, LB_OP_Gather);
  const lb_tensor *t = g ? lb_value_const(g->in[0]) : NULL;
  bool ok = t && t->rank == 2 && lb_attr_int(g, "axis", 0) == 0 &&
            lb_tensor_count(t) <= MAX_TABLE && g->in[1]->info.rank >= 0;
  return ok ? g : NULL;
}

// Whether v is a constant that is the same for every row: all dims but the last
// are 1.
static bool is_same_for_rows(const lb_value *v, int64_t cols) {
  const lb_tensor *t = lb_value_const(v);
  if (!t || !lb_tensor_is_dense(t)) return false;
  int64_t n = lb_tensor_count(t);
  return n == 1 || (n == cols && t->dims[t->rank - 1] == cols);
}

// The same constant as rank 1, so that it broadcasts over a matrix.
static lb_status flat(lb_rewrite *rw, const lb_value *v, lb_value **out) {
  lb_tensor t = *lb_value_const(v);
  t.dims[0] = lb_tensor_count(&t);
  t.rank = 1;
  t.strides[0] = 1;
  return lb_const_new(rw->graph, v->name, &t, out);
}

#define MAX_IN 4

// The index of the input that a Gather produces, if all other inputs are the
// same for every row; -1: the node does not match.
static int gathered_input(const lb_rewrite *rw, const lb_node *n) {
  int at = -1;
  if (n->n_in > MAX_IN || lb_rewrite_random(n)) return -1;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && rows_before(rw, n->in[i])) at = (int)i;
  if (at < 0) return -1;
  const lb_node *g = n->in[at]->producer;
  int64_t cols = lb_value_const(g->in[0])->dims[1];
  for (int i = 0; i < (int)n->n_in; i++)
    if (i != at && n->in[i] && !is_same_for_rows(n->in[i], cols)) return -1;
  return n->out[0]->info.rank == n->in[at]->info.rank ? at : -1;
}

static lb_status visit_elementwise(lb_rewrite *rw, lb_node *n) {
  int at = gathered_input(rw, n);
  if (at < 0) return LB_OK;
  const lb_node *g = n->in[at]->producer;
  lb_value *in[MAX_IN] = {NULL}, *rows[2] = {NULL, g->in[1]};
  for (int i = 0; i < (int)n->n_in; i++) {
    if (i == at)
      in[i] = g->in[0];
    else if (n->in[i] && lb_value_const(n->in[i])->rank > 0)
      LB_TRY(flat(rw, n->in[i], &in[i]));
    else
      in[i] = n->in[i];
  }
  lb_node *table;
  LB_TRY(lb_rewrite_insert(rw, n, n->op, in, n->n_in, &table));
  LB_TRY(lb_node_copy_attrs(rw->graph, table, n));
  LB_TRY(lb_rewrite_inserted(rw, table, &rows[0]));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Gather, rows, 2));
  return lb_node_set_int(rw->graph, n, "axis", 0);
}

// -- all elements in order ---------------------------------------------------

// Whether v is a constant of one element, the integer `want`.
static bool is_int(const lb_value *v, int64_t want) {
  const lb_tensor *t = lb_value_const(v);
  return t && (t->dtype == LB_I32 || t->dtype == LB_I64) &&
         lb_tensor_count(t) == 1 && lb_match_int(t, 0) == want;
}

// If v is Range(0, n, 1) with axes of size 1 inserted, the axis along which it
// counts; else -1.
static int counting_axis(const lb_value *v) {
  const lb_value *from = v;
  const lb_node *n;
  while ((n = lb_match_op(from, LB_OP_Unsqueeze))) from = n->in[0];
  n = lb_match_op(from, LB_OP_Range);
  if (!n || !is_int(n->in[0], 0) || !is_int(n->in[2], 1)) return -1;
  for (int i = 0; i < v->info.rank; i++)
    if (!lb_dim_is(v->info.dims[i], 1)) return i;
  return -1;
}

// Whether v is known to be the size d.
static bool is_dim(const lb_value *v, lb_dim d) {
  if (lb_dim_is_const(d)) return is_int(v, d.k);
  return v->info.known && v->info.n_known == 1 &&
         lb_dim_equal(v->info.known[0], d);
}

// Whether `rows` is [0, ..., n-1] * m and `cols`, along a later axis, is
// [0, ..., m-1], where x has the shape [n, m].
static bool counts_elements(const lb_value *rows, const lb_value *cols,
                            const lb_vinfo *x) {
  const lb_node *mul = lb_match_op(rows, LB_OP_Mul);
  int col_axis = counting_axis(cols), rank = rows->info.rank;
  if (!mul || col_axis < 0 || rank != cols->info.rank ||
      !lb_dim_equal(cols->info.dims[col_axis], x->dims[1]))
    return false;
  for (int i = 0; i < 2; i++) {
    const lb_value *count = mul->in[i];
    int axis = counting_axis(count);
    if (axis >= 0 && axis < col_axis && count->info.rank == rank &&
        lb_dim_equal(count->info.dims[axis], x->dims[0]) &&
        is_dim(mul->in[1 - i], x->dims[1]))
      return true;
  }
  return false;
}

// The matrix that a Flatten or Reshape flattens into the data of n, or NULL.
// Axes of size 1 may follow the flattened axis.
static lb_value *matrix_of(const lb_node *n) {
  const lb_node *flat = lb_match_op(n->in[0], LB_OP_Flatten);
  if (!flat) flat = lb_match_op(n->in[0], LB_OP_Reshape);
  const lb_vinfo *v = &n->in[0]->info;
  for (int i = 1; i < v->rank; i++)
    if (!lb_dim_is(v->dims[i], 1)) return NULL;
  return flat && v->rank > 0 && flat->in[0]->info.rank == 2 ? flat->in[0]
                                                            : NULL;
}

// Inserts axes of size 1 into *v where [from, to) of `like` has them.
static lb_status add_ones(lb_rewrite *rw, lb_node *n, const lb_vinfo *like,
                          int from, int to, lb_value **v) {
  int64_t axes[LB_MAX_RANK], n_axes = 0;
  lb_value *in[2] = {*v};
  for (int i = from; i < to; i++)
    if (lb_dim_is(like->dims[i], 1)) axes[n_axes++] = i;
  if (n_axes == 0) return LB_OK;
  LB_TRY(lb_const_ints(rw->graph, "axes", axes, n_axes, &in[1]));
  return lb_rewrite_make(rw, n, LB_OP_Unsqueeze, in, 2, v);
}

// Inserts the size-1 axes of the indices and those of the data separately: a
// model often reshapes the result to the shape of the indices, and a pass that
// removes that Reshape then uses the first value.
static lb_status visit_gather(lb_rewrite *rw, lb_node *n) {
  lb_value *x = matrix_of(n);
  const lb_node *add = lb_match_op(n->in[1], LB_OP_Add);
  if (!x || !add || lb_attr_int(n, "axis", 0) != 0 ||
      !(counts_elements(add->in[0], add->in[1], &x->info) ||
        counts_elements(add->in[1], add->in[0], &x->info)))
    return LB_OK;
  const lb_vinfo *out = &n->out[0]->info;
  int rank = n->in[1]->info.rank;
  LB_TRY(add_ones(rw, n, out, 0, rank, &x));
  LB_TRY(add_ones(rw, n, out, rank, out->rank, &x));
  return lb_rewrite_become(rw, n, LB_OP_Identity, &x, 1);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  if (n->n_out != 1 || !n->out[0]) return LB_OK;
  if (n->op == LB_OP_Gather) return visit_gather(rw, n);
  if (n->op == LB_OP_MatMul) return visit_matmul(rw, n);
  if (lb_op_infos[n->op].cls == LB_CLASS_ELEMENTWISE)
    return visit_elementwise(rw, n);
  return LB_OK;
}

lb_status lb_pass_onehot(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
