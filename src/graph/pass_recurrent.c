// graph/pass_recurrent.c -- moves the input projection out of LSTM, GRU and
// RNN: one MatMul for all time steps and directions.
//
//   LSTM(x, W, R, [Wb, Rb]) = LSTM{projected}(MatMul(x, W^T) + Wb, R, [0, Rb])
//
// Sequence lengths become a mask that kernels can read one time step at a time:
//
//   LSTM(.., lengths) = LSTM{projected}(.., Within(lengths, x))
//
// The recurrent part still runs one time step after the other.
#include <string.h>

#include "graph/rewrite.h"

enum { X, W, R, B, LENGTHS };  // inputs

typedef struct recurrent {
  lb_node *node;
  const lb_tensor *w;  // [directions, rows, inputs]
  const lb_tensor *b;  // [directions, 2 * rows], or NULL
  int64_t all;         // rows of all directions
} recurrent;

static bool match_bias(recurrent *v) {
  const lb_value *b = lb_node_input(v->node, B);
  v->b = lb_value_const(b);
  return !b || (v->b && v->b->dtype == v->w->dtype && v->b->rank == 2 &&
                v->b->dims[0] == v->w->dims[0] && lb_tensor_is_dense(v->b) &&
                v->b->dims[1] % 2 == 0 && v->b->dims[1] / 2 == v->w->dims[1]);
}

static bool is_read(const lb_node *n) {
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i]) return true;
  return false;
}

// A mismatch is left for the run to report, if it gets there.
static bool fits(const lb_vinfo *x, const lb_tensor *w) {
  if (x->rank < 0) return true;
  return x->rank == 3 &&
         (!lb_dim_is_const(x->dims[2]) || lb_dim_is(x->dims[2], w->dims[2]));
}

// Not for float16, because the projection would be rounded in between.
static bool match(lb_node *n, recurrent *v) {
  if (lb_op_infos[n->op].cls != LB_CLASS_RECURRENT || lb_op_projected(n) ||
      !is_read(n))
    return false;
  const lb_vinfo *x = &n->in[X]->info;
  *v = (recurrent){.node = n, .w = lb_value_const(n->in[W])};
  if (!v->w || v->w->rank != 3 || lb_tensor_count(v->w) == 0 ||
      !lb_tensor_is_dense(v->w) || !fits(x, v->w) || x->dtype != v->w->dtype ||
      (x->dtype != LB_F32 && x->dtype != LB_F64))
    return false;
  v->all = v->w->dims[0] * v->w->dims[1];
  return match_bias(v);
}

// x with rank 3, as the operator requires: a MatMul of unknown rank gets no
// kernel.
static lb_status input_of(lb_rewrite *rw, const recurrent *v, lb_value **out) {
  int64_t dims[] = {0, 0, v->w->dims[2]};  // 0: unchanged
  lb_value *in[2] = {v->node->in[X]};
  lb_node *reshape;
  *out = in[0];
  if (in[0]->info.rank == 3) return LB_OK;
  LB_TRY(lb_const_ints(rw->graph, "dims", dims, 3, &in[1]));
  LB_TRY(lb_rewrite_insert(rw, v->node, LB_OP_Reshape, in, 2, &reshape));
  return lb_rewrite_inserted(rw, reshape, out);
}

// [inputs, rows of all directions]: a view.
static lb_status weights_of(lb_rewrite *rw, const recurrent *v,
                            lb_value **out) {
  lb_tensor t = {.dtype = v->w->dtype,
                 .rank = 2,
                 .dims = {v->w->dims[2], v->all},
                 .strides = {1, v->w->dims[2]},
                 .data = v->w->data};
  return lb_const_new(rw->graph, v->node->in[W]->name, &t, out);
}

// Half `which` of the biases of each direction; the second half with zeros in
// place of the first.
static lb_status bias_of(lb_rewrite *rw, const recurrent *v, int which,
                         lb_tensor *t, lb_value **out) {
  size_t half = (size_t)v->w->dims[1] * lb_dtype_size(t->dtype);
  size_t each = which == 0 ? half : 2 * half;
  lb_tensor_dense(t);
  char *to = lb_arena_zalloc(&rw->graph->arena, lb_tensor_bytes(t), 64);
  if (!to) return lb_oom();
  t->data = to;
  for (int64_t d = 0; d < v->w->dims[0]; d++, to += each)
    memcpy(to + (each - half),
           (const char *)v->b->data + (size_t)(2 * d + which) * half, half);
  return lb_const_new(rw->graph, v->node->in[B]->name, t, out);
}

static lb_status add_bias(lb_rewrite *rw, const recurrent *v, lb_value **x) {
  lb_tensor t = {.dtype = v->w->dtype, .rank = 1, .dims = {v->all}};
  lb_value *in[2] = {*x};
  lb_node *add;
  LB_TRY(bias_of(rw, v, 0, &t, &in[1]));
  LB_TRY(lb_rewrite_insert(rw, v->node, LB_OP_Add, in, 2, &add));
  return lb_rewrite_inserted(rw, add, x);
}

static void set_input(lb_rewrite *rw, lb_node *n, uint32_t i, lb_value *v) {
  lb_rewrite_use(rw, n->in[i], -1);
  lb_rewrite_use(rw, v, 1);
  n->in[i] = v;
}

static lb_status replace_lengths(lb_rewrite *rw, lb_node *n) {
  lb_value *in[2] = {lb_node_input(n, LENGTHS), n->in[X]}, *mask;
  lb_node *within;
  if (!in[0]) return LB_OK;
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Within, in, 2, &within));
  if (lb_attr_int(n, "layout", 0))
    LB_TRY(lb_node_set_int(rw->graph, within, "layout", 1));
  LB_TRY(lb_rewrite_inserted(rw, within, &mask));
  set_input(rw, n, LENGTHS, mask);
  return LB_OK;
}

static lb_status rewrite(lb_rewrite *rw, const recurrent *v) {
  lb_node *n = v->node, *matmul;
  lb_value *in[2], *x, *b;
  LB_TRY(input_of(rw, v, &in[0]));
  LB_TRY(weights_of(rw, v, &in[1]));
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_MatMul, in, 2, &matmul));
  LB_TRY(lb_rewrite_inserted(rw, matmul, &x));
  if (v->b) {
    lb_tensor t = {.dtype = v->w->dtype, .rank = 2};
    t.dims[0] = v->b->dims[0], t.dims[1] = v->b->dims[1];
    LB_TRY(add_bias(rw, v, &x));
    LB_TRY(bias_of(rw, v, 1, &t, &b));
    set_input(rw, n, B, b);
  }
  set_input(rw, n, X, x);
  set_input(rw, n, W, NULL);
  LB_TRY(replace_lengths(rw, n));
  return lb_node_set_int(rw->graph, n, "projected", 1);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  recurrent v;
  return match(n, &v) ? rewrite(rw, &v) : LB_OK;
}

lb_status lb_pass_recurrent(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit);
}
