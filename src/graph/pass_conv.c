// graph/pass_conv.c -- convolutions along one axis become matrix products.
//
// With channels last, the rows that a window covers follow each other in
// memory: windows are rows of an Unfold, which is a view, and the convolution
// is its product with the weights. So
//
//   Conv(x) = Transpose(MatMul(Unfold(Transpose(x)), W) + b)
//
// for inputs whose channels lie last already (x is a Transpose of such a
// value) or of which there is one. Axes of size 1 are no axes.
#include <string.h>

#include "graph/rewrite.h"

typedef struct conv {
  lb_node *node;
  const lb_tensor *w;  // [out, in, kernel...]
  int rank;            // of input and output
  int axis, other;     // the axis of space walked; one of size 1, or -1
  int64_t size, step;
} conv;

static int64_t list_at(const lb_node *n, const char *name, int i,
                       int64_t dflt) {
  uint32_t count;
  const int64_t *list = lb_attr_ints(n, name, &count);
  return list && (uint32_t)i < count ? list[i] : dflt;
}

// Dim i of space is of size 1, and so is the kernel along it.
static bool is_flat(const conv *c, int i) {
  return lb_dim_is(c->node->in[0]->info.dims[2 + i], 1) &&
         c->w->dims[2 + i] == 1;
}

static bool find_axes(conv *c) {
  c->axis = 2;
  c->other = -1;
  if (c->rank == 3) return true;
  if (c->rank != 4) return false;
  if (is_flat(c, 1)) c->other = 3;
  if (c->other < 0 && is_flat(c, 0)) {
    c->other = 2;
    c->axis = 3;
  }
  return c->other >= 0;
}

static bool is_unpadded(const lb_node *n) {
  const char *mode = lb_attr_str(n, "auto_pad", "NOTSET");
  if (strcmp(mode, "VALID") == 0) return true;
  if (*mode && strcmp(mode, "NOTSET") != 0) return false;
  for (int i = 0; i < 4; i++)
    if (list_at(n, "pads", i, 0) != 0) return false;
  return true;
}

// Do channels lie last in memory, as far as the graph says?
static bool is_channels_last(const conv *c) {
  const lb_value *x = c->node->in[0];
  if (c->w->dims[1] == 1) return true;
  const lb_node *t = lb_match_op(x, LB_OP_Transpose);
  uint32_t n;
  const int64_t *perm = t ? lb_attr_ints(t, "perm", &n) : NULL;
  if (!perm || n != (uint32_t)c->rank || t->in[0]->info.rank != c->rank)
    return false;
  const lb_dim *d = t->in[0]->info.dims;
  for (int64_t i = perm[1] + 1; i < c->rank; i++)
    if (!lb_dim_is(d[i], 1)) return false;
  return perm[c->axis] > perm[0];
}

static bool match(lb_node *n, conv *c) {
  if (n->op != LB_OP_Conv || !n->out[0] || lb_attr_int(n, "group", 1) != 1)
    return false;
  *c = (conv){.node = n, .w = lb_value_const(n->in[1])};
  c->rank = n->in[0]->info.rank;
  if (!c->w || c->w->dtype != LB_F32 || c->w->rank != c->rank ||
      lb_tensor_count(c->w) == 0 || n->in[0]->info.dtype != LB_F32)
    return false;
  if (!find_axes(c) || !is_unpadded(n)) return false;
  int i = c->axis - 2;
  c->size = c->w->dims[c->axis];
  c->step = list_at(n, "strides", i, 1);
  return (c->size == 1 || list_at(n, "dilations", i, 1) == 1) &&
         is_channels_last(c);
}

// Weights [out, in, size] as [size * in, out].
static lb_status weights_of(lb_rewrite *rw, const conv *c, lb_value **out) {
  const lb_tensor *w = c->w;
  int64_t n_out = w->dims[0], n_in = w->dims[1];
  lb_tensor from = {
      .dtype = w->dtype,
      .rank = 3,
      .dims = {c->size, n_in, n_out},
      .strides = {w->strides[c->axis], w->strides[1], w->strides[0]},
      .data = w->data};
  lb_tensor to = from, flat = {.dtype = w->dtype, .rank = 2};
  lb_tensor_dense(&to);
  to.data = lb_arena_alloc(&rw->graph->arena, lb_tensor_bytes(&to), 64);
  if (!to.data) return lb_oom();
  lb_tensor_copy(&from, &to);
  flat.dims[0] = c->size * n_in;
  flat.dims[1] = n_out;
  lb_tensor_dense(&flat);
  flat.data = to.data;
  return lb_const_new(rw->graph, c->node->in[1]->name, &flat, out);
}

static lb_status transpose(lb_rewrite *rw, lb_node *n, lb_value *x,
                           const int64_t *perm, int rank, lb_value **out) {
  lb_node *t;
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Transpose, &x, 1, &t));
  LB_TRY(lb_rewrite_ints(rw, t, "perm", perm, rank));
  return lb_rewrite_inserted(rw, t, out);
}

// Takes away or adds axis 2.
static lb_status with_axis(lb_rewrite *rw, lb_node *n, lb_op op, lb_value *x,
                           lb_value **out) {
  static const int64_t two = 2;
  lb_value *in[2] = {x};
  lb_node *node;
  LB_TRY(lb_const_ints(rw->graph, "axis", &two, 1, &in[1]));
  LB_TRY(lb_rewrite_insert(rw, n, op, in, 2, &node));
  return lb_rewrite_inserted(rw, node, out);
}

// The input as windows: [batch, positions, size * channels].
static lb_status windows_of(lb_rewrite *rw, const conv *c, lb_value **out) {
  lb_node *n = c->node, *unfold;
  int64_t perm[4] = {0, c->axis, 1, 1};
  if (c->other >= 0) perm[2] = c->other;
  LB_TRY(transpose(rw, n, n->in[0], perm, c->rank, out));
  if (c->other >= 0) LB_TRY(with_axis(rw, n, LB_OP_Squeeze, *out, out));
  if (c->size == 1 && c->step == 1) return LB_OK;
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Unfold, out, 1, &unfold));
  LB_TRY(lb_node_set_int(rw->graph, unfold, "size", c->size));
  LB_TRY(lb_node_set_int(rw->graph, unfold, "step", c->step));
  return lb_rewrite_inserted(rw, unfold, out);
}

static lb_status rewrite(lb_rewrite *rw, const conv *c) {
  lb_node *n = c->node, *node;
  lb_value *in[2], *bias = n->n_in > 2 ? n->in[2] : NULL;
  LB_TRY(windows_of(rw, c, &in[0]));
  LB_TRY(weights_of(rw, c, &in[1]));
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_MatMul, in, 2, &node));
  LB_TRY(lb_rewrite_inserted(rw, node, &in[0]));
  if (bias) {
    in[1] = bias;
    LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Add, in, 2, &node));
    LB_TRY(lb_rewrite_inserted(rw, node, &in[0]));
  }
  if (c->other >= 0) LB_TRY(with_axis(rw, n, LB_OP_Unsqueeze, in[0], &in[0]));
  static const int64_t three[] = {0, 2, 1}, first[] = {0, 3, 1, 2},
                       second[] = {0, 3, 2, 1};
  const int64_t *back = c->rank == 3 ? three : c->axis == 2 ? first : second;
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Transpose, in, 1));
  return lb_rewrite_ints(rw, n, "perm", back, c->rank);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  conv c;
  return match(n, &c) ? rewrite(rw, &c) : LB_OK;
}

lb_status lb_pass_conv(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
