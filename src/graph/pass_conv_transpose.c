// graph/pass_conv_transpose.c -- transposed convolutions as convolutions.
//
// Along an axis with stride s, a kernel of size k reaches m = ceil(k / s)
// positions. So position t*s + r of the result is a sum over m positions of the
// input that end at t, with weights that depend on r alone: a convolution of
// size m that makes, at each t, the s positions as channels,
//
//   ConvTranspose{channels_last}(x) = crop(channels as positions(Conv(x)))
//
// whose border is m - 1 wide, so that positions at both ends are there as well.
// Where windows lie side by side, pass_conv.c knows better.
#include <string.h>

#include "graph/rewrite.h"

enum { MAX_SPACE = 2 };

typedef struct upconv {
  lb_rewrite *rw;
  lb_node *node;
  const lb_tensor *w, *bias;  // [in, out, kernel...]; bias may be NULL
  int space;
  int64_t in, out, stride[MAX_SPACE], size[MAX_SPACE], reach[MAX_SPACE];
  int64_t first[MAX_SPACE], past[MAX_SPACE];  // to be cut off at both ends
} upconv;

// False as well where a single position may have less than what pads take away:
// that is an error of ConvTranspose, and an empty result of a crop.
static bool match_axis(upconv *u, int i) {
  const lb_node *n = u->node;
  int64_t s = lb_attr_int_at(n, "strides", i, 1);
  int64_t end = lb_attr_int_at(n, "pads", u->space + i, 0);
  u->stride[i] = s;
  u->size[i] = u->w->dims[2 + i];
  if (s < 1) return false;
  u->reach[i] = (u->size[i] + s - 1) / s;
  u->first[i] = lb_attr_int_at(n, "pads", i, 0);
  u->past[i] = u->reach[i] * s - u->size[i] + end -
               lb_attr_int_at(n, "output_padding", i, 0);
  return u->first[i] >= 0 && u->past[i] >= 0 &&
         u->first[i] <= u->reach[i] * s - u->past[i] &&
         lb_attr_int_at(n, "dilations", i, 1) == 1;
}

// A row of windows side by side stays.
static bool is_side_by_side(const upconv *u) {
  int last = u->space - 1;
  return u->size[last] == u->stride[last] && u->first[last] == 0 &&
         u->past[last] == 0 && u->space == 2;
}

static bool match(lb_rewrite *rw, lb_node *n, upconv *u) {
  if (n->op != LB_OP_ConvTranspose || !n->out[0] || !lb_op_channels_last(n))
    return false;
  const char *mode = lb_attr_str(n, "auto_pad", "NOTSET");
  bool bias = n->n_in > 2 && n->in[2];
  *u = (upconv){.rw = rw,
                .node = n,
                .w = lb_value_const(n->in[1]),
                .bias = bias ? lb_value_const(n->in[2]) : NULL,
                .space = n->in[0]->info.rank - 2};
  if (!u->w || u->w->dtype != LB_F32 || !lb_tensor_is_dense(u->w) ||
      lb_tensor_count(u->w) == 0 || (bias && !u->bias) || u->space < 1 ||
      u->space > MAX_SPACE || u->w->rank != u->space + 2 ||
      lb_attr_int(n, "group", 1) != 1 || lb_attr_has(n, "output_shape") ||
      strcmp(*mode ? mode : "NOTSET", "NOTSET") != 0)
    return false;
  u->in = u->w->dims[0];
  u->out = u->w->dims[1];
  for (int i = 0; i < u->space; i++)
    if (!match_axis(u, i)) return false;
  return !is_side_by_side(u);
}

// -- constants ---------------------------------------------------------------

// Where the kernel's element is that phase r, and tap j, stand for; -1: none.
static int64_t element(const upconv *u, int i, int64_t r, int64_t j) {
  int64_t at = r + (u->reach[i] - 1 - j) * u->stride[i];
  return at < u->size[i] ? at : -1;
}

// Weights of one phase and output channel: [in, taps...]. Those of a mapped
// file may lie at any address.
static void fill_phase(const upconv *u, const int64_t r[2], int64_t o,
                       float *to) {
  const char *w = u->w->data;
  bool flat = u->space == 1;
  int64_t rows = flat ? 1 : u->reach[0], cols = u->reach[u->space - 1];
  int64_t height = flat ? 1 : u->size[0], width = u->size[u->space - 1];
  for (int64_t c = 0; c < u->in; c++)
    for (int64_t y = 0; y < rows; y++)
      for (int64_t x = 0; x < cols; x++, to++) {
        int64_t ky = flat ? 0 : element(u, 0, r[0], y);
        int64_t kx = element(u, u->space - 1, r[1], x);
        int64_t at = ((c * u->out + o) * height + ky) * width + kx;
        *to = 0;
        if (ky >= 0 && kx >= 0)
          memcpy(to, w + at * (int64_t)sizeof *to, sizeof *to);
      }
}

// Output channels are phases, then channels.
static lb_status make_weights(const upconv *u, int64_t phases, lb_value **out) {
  lb_tensor t = {
      .dtype = LB_F32, .rank = u->w->rank, .dims = {phases * u->out, u->in}};
  int64_t each = u->in, cols = u->stride[u->space - 1];
  for (int i = 0; i < u->space; i++) {
    t.dims[2 + i] = u->reach[i];
    each *= u->reach[i];
  }
  lb_tensor_dense(&t);
  float *to = lb_arena_alloc(&u->rw->graph->arena, lb_tensor_bytes(&t), 64);
  if (!to) return lb_oom();
  t.data = to;
  for (int64_t p = 0; p < phases; p++)
    for (int64_t o = 0; o < u->out; o++, to += each)
      fill_phase(u, (int64_t[]){p / cols, p % cols}, o, to);
  return lb_const_new(u->rw->graph, u->node->in[1]->name, &t, out);
}

static lb_status make_bias(const upconv *u, int64_t phases, lb_value **out) {
  lb_tensor from = {.dtype = LB_F32,
                    .rank = 2,
                    .dims = {phases, u->out},
                    .strides = {0, u->bias->strides[0]},
                    .data = u->bias->data};
  lb_tensor to = from, flat;
  lb_tensor_dense(&to);
  to.data = lb_arena_alloc(&u->rw->graph->arena, lb_tensor_bytes(&to), 64);
  if (!to.data) return lb_oom();
  lb_tensor_copy(&from, &to);
  flat = (lb_tensor){.dtype = LB_F32,
                     .rank = 1,
                     .dims = {phases * u->out},
                     .strides = {1},
                     .data = to.data};
  return lb_const_new(u->rw->graph, u->node->in[2]->name, &flat, out);
}

// -- nodes -------------------------------------------------------------------

static lb_status reshape(const upconv *u, lb_value *x, const int64_t *dims,
                         uint32_t n, lb_value **out) {
  lb_value *in[2] = {x};
  LB_TRY(lb_const_ints(u->rw->graph, "dims", dims, n, &in[1]));
  return lb_rewrite_make(u->rw, u->node, LB_OP_Reshape, in, 2, out);
}

static lb_status make_conv(const upconv *u, int64_t phases, lb_value **out) {
  int64_t pads[2 * MAX_SPACE];
  lb_value *in[3] = {u->node->in[0]};
  lb_node *n;
  LB_TRY(make_weights(u, phases, &in[1]));
  if (u->bias) LB_TRY(make_bias(u, phases, &in[2]));
  for (int i = 0; i < 2 * u->space; i++) pads[i] = u->reach[i % u->space] - 1;
  uint32_t n_in = u->bias ? 3 : 2;
  LB_TRY(lb_rewrite_insert(u->rw, u->node, LB_OP_Conv, in, n_in, &n));
  LB_TRY(lb_node_set_int(u->rw->graph, n, "channels_last", 1));
  LB_TRY(lb_node_set_ints(u->rw->graph, n, "kernel_shape", u->reach,
                          (uint32_t)u->space));
  LB_TRY(
      lb_node_set_ints(u->rw->graph, n, "pads", pads, 2 * (uint32_t)u->space));
  return lb_rewrite_inserted(u->rw, n, out);
}

// How many columns there will be: those of x, times the stride, as a list.
static lb_status count_columns(const upconv *u, lb_value *x, lb_value **out) {
  lb_value *in[2] = {x}, *shape[2];
  int64_t axis = 2;
  LB_TRY(lb_rewrite_make(u->rw, u->node, LB_OP_Shape, in, 1, &shape[0]));
  LB_TRY(lb_const_ints(u->rw->graph, "axis", &axis, 1, &shape[1]));
  LB_TRY(lb_rewrite_make(u->rw, u->node, LB_OP_Gather, shape, 2, &in[0]));
  LB_TRY(lb_const_ints(u->rw->graph, "stride", &u->stride[1], 1, &in[1]));
  return lb_rewrite_make(u->rw, u->node, LB_OP_Mul, in, 2, out);
}

// [batch, rows, columns, phases * channels] as an image.
static lb_status spread(const upconv *u, lb_value *x, lb_value **out) {
  static const int64_t perm[] = {0, 1, 3, 2, 4}, head[] = {0, -1};
  int64_t split[] = {0, 0, 0, u->stride[0], u->stride[1] * u->out};
  lb_value *turned, *list[3], *in[2];
  lb_node *n;
  LB_TRY(reshape(u, x, split, 5, &turned));
  LB_TRY(lb_rewrite_insert(u->rw, u->node, LB_OP_Transpose, &turned, 1, &n));
  LB_TRY(lb_node_set_ints(u->rw->graph, n, "perm", perm, 5));
  LB_TRY(lb_rewrite_inserted(u->rw, n, &in[0]));
  LB_TRY(lb_const_ints(u->rw->graph, "head", head, 2, &list[0]));
  LB_TRY(count_columns(u, x, &list[1]));
  LB_TRY(lb_const_ints(u->rw->graph, "channels", &u->out, 1, &list[2]));
  LB_TRY(lb_rewrite_insert(u->rw, u->node, LB_OP_Concat, list, 3, &n));
  LB_TRY(lb_node_set_int(u->rw->graph, n, "axis", 0));
  LB_TRY(lb_rewrite_inserted(u->rw, n, &in[1]));
  return lb_rewrite_make(u->rw, u->node, LB_OP_Reshape, in, 2, out);
}

// The last of the new nodes.
static lb_status crop(const upconv *u, lb_value *x) {
  int64_t ends[MAX_SPACE], axes[] = {1, 2};
  lb_value *in[4] = {x};
  uint32_t n = (uint32_t)u->space;
  for (int i = 0; i < u->space; i++)
    ends[i] = u->past[i] > 0 ? -u->past[i] : INT64_MAX;
  LB_TRY(lb_const_ints(u->rw->graph, "starts", u->first, n, &in[1]));
  LB_TRY(lb_const_ints(u->rw->graph, "ends", ends, n, &in[2]));
  LB_TRY(lb_const_ints(u->rw->graph, "axes", axes, n, &in[3]));
  return lb_rewrite_become(u->rw, u->node, LB_OP_Slice, in, 4);
}

static lb_status rewrite(const upconv *u) {
  int64_t phases = 1, dims[] = {0, -1, u->out};
  lb_value *x;
  for (int i = 0; i < u->space; i++) phases *= u->stride[i];
  LB_TRY(make_conv(u, phases, &x));
  LB_TRY(u->space == 1 ? reshape(u, x, dims, 3, &x) : spread(u, x, &x));
  return crop(u, x);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  upconv u;
  return match(rw, n, &u) ? rewrite(&u) : LB_OK;
}

lb_status lb_pass_conv_transpose(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit);
}
