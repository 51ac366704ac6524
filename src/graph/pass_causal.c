// graph/pass_causal.c -- expresses causal and windowed Attention, and its past
// keys and values, with plain inputs and a mask, for which kernels exist.
//
//   past keys and values     are concatenated with the new ones
//   causality, windows       become a mask: which keys a query may attend to
//
// Query i of S follows the P past keys, so it attends to key j of T = P + S
// keys if j <= i + P, or as far as the window reaches.
#include <math.h>

#include "graph/rewrite.h"

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS };  // inputs
enum { Y, PRESENT_K, PRESENT_V, SCORES };         // outputs

typedef struct causal_attention {
  lb_rewrite *rw;
  lb_node *node;
  bool causal;
  int64_t left, right;  // window sizes; -1: unlimited
} causal_attention;

static bool has_ranks(const lb_node *n) {
  for (uint32_t i = Q; i <= V; i++) {
    int rank = n->in[i]->info.rank;
    if (n->in[i]->info.dtype != LB_F32 || (rank != 3 && rank != 4))
      return false;
  }
  const lb_value *past = lb_node_input(n, PAST_K);
  return !past || (past->info.rank == 4 && lb_node_input(n, PAST_V) &&
                   lb_node_input(n, PAST_V)->info.rank == 4);
}

// A mask that may be shorter than the keys is not supported.
static lb_status fits(const causal_attention *h, bool *ok) {
  const lb_node *n = h->node;
  const lb_value *m = lb_node_input(n, MASK), *past = lb_node_input(n, PAST_K);
  *ok = !m || (m->info.rank >= 1 &&
               (m->info.dtype == LB_F32 || m->info.dtype == LB_BOOL));
  if (!m || !*ok) return LB_OK;
  const lb_vinfo *k = &n->in[K]->info;
  lb_dim keys = k->dims[k->rank - 2], last = m->info.dims[m->info.rank - 1];
  if (past)
    LB_TRY(lb_dim_add(h->rw->graph->syms, past->info.dims[2], keys, &keys));
  *ok = lb_dim_is(last, 1) || lb_dim_equal(last, keys);
  return LB_OK;
}

// Whether the number of heads is known for keys and values of rank 3.
static bool is_split_known(const lb_node *n) {
  for (uint32_t i = K; i <= V; i++) {
    const lb_vinfo *x = &n->in[i]->info;
    if (x->rank == 3 &&
        (!lb_dim_is_const(x->dims[2]) || lb_attr_int(n, "kv_num_heads", 0) < 1))
      return false;
  }
  return true;
}

static bool match(lb_rewrite *rw, lb_node *n, causal_attention *h) {
  if (n->op != LB_OP_Attention || !n->out[0]) return false;
  *h = (causal_attention){.rw = rw,
                          .node = n,
                          .causal = lb_attr_int(n, "is_causal", 0) != 0,
                          .left = lb_attr_int(n, "left_window_size", -1),
                          .right = lb_attr_int(n, "right_window_size", -1)};
  bool applies = h->causal || h->left >= 0 || h->right >= 0 ||
                 lb_node_input(n, PAST_K) || lb_node_output(n, PRESENT_K) ||
                 lb_node_output(n, PRESENT_V);
  return applies && !lb_node_input(n, LENGTHS) && !lb_node_output(n, SCORES) &&
         has_ranks(n) && is_split_known(n);
}

// -- inserting nodes ---------------------------------------------------------

static lb_status insert_node(const causal_attention *h, lb_op op, lb_value *x,
                             lb_value *y, lb_value *z, lb_value **out) {
  lb_value *in[] = {x, y, z};
  return lb_rewrite_make(h->rw, h->node, op, in, z ? 3 : y ? 2 : 1, out);
}

static lb_status with_list(const causal_attention *h, lb_op op, lb_value *x,
                           const int64_t *list, uint32_t n, lb_value **out) {
  lb_value *v;
  LB_TRY(lb_const_ints(h->rw->graph, "list", list, n, &v));
  return insert_node(h, op, x, v, NULL, out);
}

// The size of x along an axis, a scalar.
static lb_status size_of(const causal_attention *h, lb_value *x, int64_t axis,
                         lb_value **out) {
  lb_value *index, *shape;
  LB_TRY(lb_const_i64(h->rw->graph, "axis", axis, &index));
  LB_TRY(insert_node(h, LB_OP_Shape, x, NULL, NULL, &shape));
  return insert_node(h, LB_OP_Gather, shape, index, NULL, out);
}

// 0, 1, ... up to the size of x along an axis.
static lb_status positions(const causal_attention *h, lb_value *x, int64_t axis,
                           lb_value **out) {
  lb_value *zero, *one, *size;
  LB_TRY(size_of(h, x, axis, &size));
  LB_TRY(lb_const_i64(h->rw->graph, "zero", 0, &zero));
  LB_TRY(lb_const_i64(h->rw->graph, "one", 1, &one));
  return insert_node(h, LB_OP_Range, zero, size, one, out);
}

static lb_status add_int(const causal_attention *h, lb_value *x, int64_t y,
                         lb_value **out) {
  lb_value *v;
  if (y == 0) {
    *out = x;
    return LB_OK;
  }
  LB_TRY(lb_const_i64(h->rw->graph, "reach", y, &v));
  return insert_node(h, LB_OP_Add, x, v, NULL, out);
}

// -- past and present --------------------------------------------------------

// [batch, rows, heads * size] as [batch, heads, rows, size].
static lb_status split_heads(const causal_attention *h, lb_value *x,
                             lb_value **out) {
  static const int64_t perm[] = {0, 2, 1, 3};
  int64_t n = lb_attr_int(h->node, "kv_num_heads", 0);
  lb_node *transpose;
  *out = x;
  if (x->info.rank == 4) return LB_OK;
  int64_t dims[] = {0, 0, n, x->info.dims[2].k / n};
  LB_TRY(with_list(h, LB_OP_Reshape, x, dims, 4, out));
  LB_TRY(
      lb_rewrite_insert(h->rw, h->node, LB_OP_Transpose, out, 1, &transpose));
  LB_TRY(lb_node_set_ints(h->rw->graph, transpose, "perm", perm, 4));
  return lb_rewrite_inserted(h->rw, transpose, out);
}

// Concatenates past and new keys or values; the result is the present output,
// if the node has one.
static lb_status concat_past(const causal_attention *h, uint32_t which,
                             lb_value **x) {
  lb_value *in[2] = {lb_node_input(h->node, PAST_K + which)}, *present;
  lb_value *present_out = lb_node_output(h->node, PRESENT_K + which);
  lb_node *n;
  if (!in[0] && !present_out) return LB_OK;
  LB_TRY(split_heads(h, *x, &in[1]));
  lb_value **from = in[0] ? in : &in[1];
  LB_TRY(lb_rewrite_insert(h->rw, h->node,
                           in[0] ? LB_OP_Concat : LB_OP_Identity, from,
                           in[0] ? 2 : 1, &n));
  if (in[0]) LB_TRY(lb_node_set_int(h->rw->graph, n, "axis", 2));
  LB_TRY(lb_rewrite_inserted(h->rw, n, &present));
  if (present_out) lb_node_set_out(n, 0, present_out);
  *x = n->out[0];
  return LB_OK;
}

// -- the mask ----------------------------------------------------------------

// Which of the keys k each query attends to: [queries, keys].
static lb_status visible_keys(const causal_attention *h, lb_value *k,
                              lb_value **out) {
  static const int64_t axis = 1;
  int64_t right = h->causal ? 0 : h->right;
  lb_value *q = h->node->in[Q], *past = lb_node_input(h->node, PAST_K);
  lb_value *rows, *cols, *reach, *end, *start;
  LB_TRY(positions(h, q, q->info.rank - 2, &rows));
  LB_TRY(positions(h, k, k->info.rank - 2, &cols));
  if (past) {
    LB_TRY(size_of(h, past, 2, &reach));
    LB_TRY(insert_node(h, LB_OP_Add, rows, reach, NULL, &rows));
  }
  LB_TRY(with_list(h, LB_OP_Unsqueeze, rows, &axis, 1, &rows));
  *out = NULL;
  if (right >= 0) {
    LB_TRY(add_int(h, rows, right, &end));
    LB_TRY(insert_node(h, LB_OP_LessOrEqual, cols, end, NULL, out));
  }
  if (h->left < 0) return LB_OK;
  LB_TRY(add_int(h, rows, -h->left, &end));
  LB_TRY(insert_node(h, LB_OP_GreaterOrEqual, cols, end, NULL, &start));
  if (*out) return insert_node(h, LB_OP_And, *out, start, NULL, out);
  *out = start;
  return LB_OK;
}

static lb_status mask_of(const causal_attention *h, lb_value *k,
                         lb_value **mask) {
  lb_value *visible, *low;
  if (!h->causal && h->left < 0 && h->right < 0) return LB_OK;
  LB_TRY(visible_keys(h, k, &visible));
  if (!*mask) {
    *mask = visible;
    return LB_OK;
  }
  if ((*mask)->info.dtype == LB_BOOL)
    return insert_node(h, LB_OP_And, *mask, visible, NULL, mask);
  LB_TRY(lb_const_f32(h->rw->graph, "low", -INFINITY, &low));
  return insert_node(h, LB_OP_Where, visible, *mask, low, mask);
}

static lb_status rewrite(causal_attention *h) {
  lb_node *n = h->node, old = *n;
  lb_value *in[4] = {n->in[Q], n->in[K], n->in[V], lb_node_input(n, MASK)};
  LB_TRY(concat_past(h, 0, &in[K]));
  LB_TRY(concat_past(h, 1, &in[V]));
  LB_TRY(mask_of(h, in[K], &in[MASK]));
  LB_TRY(lb_rewrite_become(h->rw, n, LB_OP_Attention, in, in[MASK] ? 4 : 3));
  LB_TRY(lb_node_copy_attrs(h->rw->graph, n, &old));
  LB_TRY(lb_node_set_int(h->rw->graph, n, "is_causal", 0));
  LB_TRY(lb_node_set_int(h->rw->graph, n, "left_window_size", -1));
  return lb_node_set_int(h->rw->graph, n, "right_window_size", -1);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  causal_attention h;
  bool ok;
  if (!match(rw, n, &h)) return LB_OK;
  LB_TRY(fits(&h, &ok));
  return ok ? rewrite(&h) : LB_OK;
}

lb_status lb_pass_causal(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
