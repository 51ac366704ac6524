// graph/pass_conv.c -- rewrites pointwise and one-dimensional convolutions as
// MatMul.
//
// With channels last, the rows of a window are contiguous in memory. The
// windows are the rows of an Unfold, which is a view, and the convolution is a
// GEMM:
//
//   Conv{channels_last}(x) = MatMul(Unfold(x), W) + b
//
// Axes of size 1 are ignored.
//
// A transposed convolution whose windows do not overlap along the last spatial
// axis yields a row of positions for each input position. It is one with kernel
// size 1 along that axis and more channels, which a Reshape then views as
// positions. Elementwise operators that follow are moved before that Reshape.
#include "graph/rewrite.h"

enum { MIN_CHANNELS = 16 };

typedef struct conv {
  lb_node *node;
  const lb_tensor *w;  // [out, in, kernel...]
  bool int8;           // int8 weights
  int rank;            // of input and output
  int axis, other;     // spatial axes: the convolved one; one of size 1, or -1
  int64_t size, step;
} conv;

// Whether spatial axis i has size 1, and the kernel too.
static bool is_flat(const conv *c, int i) {
  return lb_dim_is(c->node->in[0]->info.dims[1 + i], 1) &&
         c->w->dims[2 + i] == 1;
}

// Whether the kernel has size 1 and stride 1 along all axes.
static bool is_pointwise(const conv *c) {
  for (int i = 0; i < c->rank - 2; i++)
    if (c->w->dims[2 + i] != 1 || lb_attr_int_at(c->node, "strides", i, 1) != 1)
      return false;
  return true;
}

static bool find_axes(conv *c) {
  c->axis = 0;
  c->other = -1;
  if (c->rank == 3 || is_pointwise(c)) return true;
  if (c->rank != 4) return false;
  if (is_flat(c, 1)) c->other = 1;
  if (c->other < 0 && is_flat(c, 0)) {
    c->other = 0;
    c->axis = 1;
  }
  return c->other >= 0;
}

static bool match(lb_node *n, conv *c) {
  bool int8 = n->op == LB_OP_ConvInteger && lb_op_is_int8_gemm(n);
  if ((n->op != LB_OP_Conv && !int8) || !n->out[0] || !lb_op_channels_last(n) ||
      lb_attr_int(n, "group", 1) != 1)
    return false;
  *c = (conv){.node = n, .w = lb_value_const(n->in[1]), .int8 = int8};
  c->rank = n->in[0]->info.rank;
  if (!c->w || c->w->rank != c->rank || lb_tensor_count(c->w) == 0 ||
      !(int8 || (c->w->dtype == LB_F32 && n->in[0]->info.dtype == LB_F32)))
    return false;
  if (!find_axes(c) || !lb_match_unpadded(n, c->rank - 2)) return false;
  c->size = c->w->dims[2 + c->axis];
  c->step = lb_attr_int_at(n, "strides", c->axis, 1);
  return c->size == 1 || lb_attr_int_at(n, "dilations", c->axis, 1) == 1;
}

// Weights [out, in, size] as [size * in, out]: a view if size is 1 and they are
// floats.
static lb_status weights_of(lb_rewrite *rw, const conv *c, lb_value **out) {
  const lb_tensor *w = c->w;
  lb_tensor from = {
      .dtype = w->dtype,
      .rank = 3,
      .dims = {c->size, w->dims[1], w->dims[0]},
      .strides = {w->strides[2 + c->axis], w->strides[1], w->strides[0]},
      .data = w->data};
  lb_tensor to = from, flat = {.dtype = w->dtype, .rank = 2};
  if (c->size > 1 || c->int8) {
    lb_tensor_dense(&to);
    to.data = lb_arena_alloc(&rw->graph->arena, lb_tensor_bytes(&to), 64);
    if (!to.data) return lb_oom();
    lb_tensor_copy(&from, &to);
  }
  flat.dims[0] = to.dims[0] * to.dims[1];
  flat.dims[1] = to.dims[2];
  flat.strides[0] = to.strides[1];
  flat.strides[1] = to.strides[2];
  flat.data = to.data;
  return lb_const_new(rw->graph, c->node->in[1]->name, &flat, out);
}

// Inserts the Squeeze of the axis of size 1, or changes the node into the
// Unsqueeze.
static lb_status with_axis(lb_rewrite *rw, const conv *c, lb_op op, lb_value *x,
                           lb_value **out) {
  lb_value *in[2] = {x};
  lb_node *node;
  int64_t axis = 1 + c->other;
  LB_TRY(lb_const_ints(rw->graph, "axis", &axis, 1, &in[1]));
  if (op == LB_OP_Unsqueeze) return lb_rewrite_become(rw, c->node, op, in, 2);
  LB_TRY(lb_rewrite_insert(rw, c->node, op, in, 2, &node));
  return lb_rewrite_inserted(rw, node, out);
}

// The input as windows: [batch, positions, size * channels].
static lb_status windows_of(lb_rewrite *rw, const conv *c, lb_value **out) {
  lb_node *unfold;
  *out = c->node->in[0];
  if (c->other >= 0) LB_TRY(with_axis(rw, c, LB_OP_Squeeze, *out, out));
  if (c->size == 1 && c->step == 1) return LB_OK;
  LB_TRY(lb_rewrite_insert(rw, c->node, LB_OP_Unfold, out, 1, &unfold));
  LB_TRY(lb_node_set_int(rw->graph, unfold, "size", c->size));
  LB_TRY(lb_node_set_int(rw->graph, unfold, "step", c->step));
  return lb_rewrite_inserted(rw, unfold, out);
}

// x op y: a new node, or c->node itself if nothing follows.
static lb_status combine(lb_rewrite *rw, const conv *c, lb_op op, bool last,
                         lb_value **in) {
  lb_node *node;
  if (last) return lb_rewrite_become(rw, c->node, op, in, 2);
  LB_TRY(lb_rewrite_insert(rw, c->node, op, in, 2, &node));
  return lb_rewrite_inserted(rw, node, &in[0]);
}

static lb_status rewrite(lb_rewrite *rw, const conv *c) {
  const lb_node *n = c->node;
  lb_value *in[2], *bias = n->n_in > 2 ? n->in[2] : NULL;
  bool flat = c->other >= 0;
  LB_TRY(windows_of(rw, c, &in[0]));
  LB_TRY(weights_of(rw, c, &in[1]));
  LB_TRY(combine(rw, c, c->int8 ? LB_OP_MatMulInteger : LB_OP_MatMul,
                 !bias && !flat, in));
  in[1] = bias;
  if (bias) LB_TRY(combine(rw, c, LB_OP_Add, !flat, in));
  return flat ? with_axis(rw, c, LB_OP_Unsqueeze, in[0], NULL) : LB_OK;
}

// -- transposed convolutions -------------------------------------------------

static bool is_non_overlapping(const lb_node *n) {
  if (n->op != LB_OP_ConvTranspose) return false;
  const lb_tensor *w = lb_value_const(n->in[1]);
  bool bias = n->n_in > 2 && n->in[2];
  return n->out[0] && lb_op_channels_last(n) && w && w->dtype == LB_F32 &&
         w->rank == 4 && lb_tensor_count(w) > 0 && n->in[0]->info.rank == 4 &&
         w->dims[3] > 1 && w->dims[3] == lb_attr_int_at(n, "strides", 1, 1) &&
         (!bias ||
          (lb_value_const(n->in[2]) && lb_value_const(n->in[2])->rank == 1)) &&
         lb_attr_int(n, "group", 1) == 1 && lb_match_unpadded(n, 2) &&
         lb_attr_int_at(n, "dilations", 1, 1) == 1 &&
         lb_attr_int_at(n, "output_padding", 1, 0) == 0 &&
         !lb_attr_has(n, "output_shape");
}

// A dense copy of `t` with axes i and i + 1 merged.
static lb_status merge_axes(lb_rewrite *rw, const lb_value *name, lb_tensor t,
                            int i, lb_value **out) {
  lb_tensor to = t, flat;
  lb_tensor_dense(&to);
  to.data = lb_arena_alloc(&rw->graph->arena, lb_tensor_bytes(&to), 64);
  if (!to.data) return lb_oom();
  lb_tensor_copy(&t, &to);
  flat = (lb_tensor){.dtype = t.dtype, .rank = t.rank - 1, .data = to.data};
  for (int k = 0; k < flat.rank; k++) flat.dims[k] = to.dims[k + (k > i)];
  flat.dims[i] = to.dims[i] * to.dims[i + 1];
  lb_tensor_dense(&flat);
  return lb_const_new(rw->graph, name->name, &flat, out);
}

static lb_status widen_constants(lb_rewrite *rw, const lb_node *n,
                                 lb_value **in) {
  const lb_tensor *w = lb_value_const(n->in[1]);
  int64_t size = w->dims[3];
  lb_tensor wide = {
      .dtype = w->dtype,
      .rank = 5,
      .dims = {w->dims[0], size, w->dims[1], w->dims[2], 1},
      .strides = {w->strides[0], w->strides[3], w->strides[1], w->strides[2]},
      .data = w->data};
  LB_TRY(merge_axes(rw, n->in[1], wide, 1, &in[1]));
  const lb_tensor *b = in[2] ? lb_value_const(in[2]) : NULL;
  if (!b) return LB_OK;
  lb_tensor row = {.dtype = b->dtype,
                   .rank = 2,
                   .dims = {size, b->dims[0]},
                   .strides = {0, b->strides[0]},
                   .data = b->data};
  return merge_axes(rw, n->in[2], row, 0, &in[2]);
}

static lb_status set_column_attr(lb_rewrite *rw, lb_node *to, const char *name,
                                 int64_t first, int64_t second) {
  int64_t list[2] = {first, second};
  return lb_node_set_ints(rw->graph, to, name, list, 2);
}

static lb_status channels_to_positions(lb_rewrite *rw, lb_node *n, lb_value *x,
                                       int64_t channels) {
  int64_t shape[4] = {0, 0, -1, channels};
  lb_value *in[2] = {x};
  LB_TRY(lb_const_ints(rw->graph, "shape", shape, 4, &in[1]));
  return lb_rewrite_become(rw, n, LB_OP_Reshape, in, 2);
}

static lb_status rewrite_non_overlapping(lb_rewrite *rw, lb_node *n) {
  const lb_tensor *w = lb_value_const(n->in[1]);
  lb_value *in[3] = {n->in[0], NULL, n->n_in > 2 ? n->in[2] : NULL}, *x;
  lb_node *column;
  LB_TRY(widen_constants(rw, n, in));
  uint32_t n_in = in[2] ? 3 : 2;
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_ConvTranspose, in, n_in, &column));
  LB_TRY(lb_node_set_int(rw->graph, column, "channels_last", 1));
  LB_TRY(set_column_attr(rw, column, "kernel_shape", w->dims[2], 1));
  LB_TRY(set_column_attr(rw, column, "strides",
                         lb_attr_int_at(n, "strides", 0, 1), 1));
  LB_TRY(set_column_attr(rw, column, "dilations",
                         lb_attr_int_at(n, "dilations", 0, 1), 1));
  LB_TRY(set_column_attr(rw, column, "output_padding",
                         lb_attr_int_at(n, "output_padding", 0, 0), 0));
  LB_TRY(lb_rewrite_inserted(rw, column, &x));
  return channels_to_positions(rw, n, x, w->dims[1]);
}

// The Reshape of a ConvTranspose that is rewritten as above and that n reads,
// if n is an activation and there are enough channels for a vector:
// f(Reshape(x)) = Reshape(f(x)).
static lb_node *match_channel_view(const lb_rewrite *rw, const lb_node *n) {
  bool one =
      n->op == LB_OP_Relu || n->op == LB_OP_Sigmoid || n->op == LB_OP_HardSwish;
  lb_node *view = one ? lb_match_inner(rw, n->in[0], LB_OP_Reshape) : NULL;
  lb_node *from =
      view ? lb_match_inner(rw, view->in[0], LB_OP_ConvTranspose) : NULL;
  const lb_tensor *w = from ? lb_value_const(from->in[1]) : NULL;
  return w && lb_op_channels_last(from) && w->dims[1] >= MIN_CHANNELS ? view
                                                                      : NULL;
}

static lb_status move_before_view(lb_rewrite *rw, lb_node *n, lb_node *view) {
  lb_node *moved;
  lb_value *in[2] = {NULL, view->in[1]};
  LB_TRY(lb_rewrite_insert(rw, n, n->op, &view->in[0], 1, &moved));
  LB_TRY(lb_rewrite_inserted(rw, moved, &in[0]));
  return lb_rewrite_become(rw, n, LB_OP_Reshape, in, 2);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  conv c;
  if (match(n, &c)) return rewrite(rw, &c);
  if (is_non_overlapping(n)) return rewrite_non_overlapping(rw, n);
  lb_node *view = match_channel_view(rw, n);
  return view ? move_before_view(rw, n, view) : LB_OK;
}

lb_status lb_pass_conv(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
