// graph/pass_conv_transpose.c -- rewrites transposed convolutions as
// convolutions.
//
// Along an axis with stride s, a kernel of size k reaches m = ceil(k / s)
// positions. So output position t*s + r is a sum over the m input positions
// that end at t, with weights that depend on r alone. That is a convolution of
// size m which yields the s positions at each t as channels,
//
//   ConvTranspose{channels_last}(x) = crop(channels as positions(Conv(x)))
//
// with a padding of m - 1, so that it covers the positions at both ends.
// pass_conv.c has a better rewrite if windows do not overlap.
#include <string.h>

#include "graph/rewrite.h"

enum { MAX_SPATIAL = 2 };

typedef struct deconv {
  lb_rewrite *rw;
  lb_node *node;
  const lb_tensor *w, *bias;  // [in, out, kernel...]; bias may be NULL
  int n_spatial;
  int64_t in, out, stride[MAX_SPATIAL], size[MAX_SPATIAL], reach[MAX_SPATIAL];
  int64_t crop_begin[MAX_SPATIAL],
      crop_end[MAX_SPATIAL];  // cropped at both ends
} deconv;

// Also false where a single position may be smaller than the pads that are
// cropped: that is an error of ConvTranspose, but an empty result of a crop.
static bool match_axis(deconv *u, int i) {
  const lb_node *n = u->node;
  int64_t s = lb_attr_int_at(n, "strides", i, 1);
  int64_t end = lb_attr_int_at(n, "pads", u->n_spatial + i, 0);
  u->stride[i] = s;
  u->size[i] = u->w->dims[2 + i];
  if (s < 1) return false;
  u->reach[i] = (u->size[i] + s - 1) / s;
  u->crop_begin[i] = lb_attr_int_at(n, "pads", i, 0);
  u->crop_end[i] = u->reach[i] * s - u->size[i] + end -
                   lb_attr_int_at(n, "output_padding", i, 0);
  return u->crop_begin[i] >= 0 && u->crop_end[i] >= 0 &&
         u->crop_begin[i] <= u->reach[i] * s - u->crop_end[i] &&
         lb_attr_int_at(n, "dilations", i, 1) == 1;
}

// Whether windows do not overlap along the last axis: pass_conv.c rewrites
// these.
static bool is_non_overlapping(const deconv *u) {
  int last = u->n_spatial - 1;
  return u->size[last] == u->stride[last] && u->crop_begin[last] == 0 &&
         u->crop_end[last] == 0 && u->n_spatial == 2;
}

static bool match(lb_rewrite *rw, lb_node *n, deconv *u) {
  if (n->op != LB_OP_ConvTranspose || !n->out[0] || !lb_op_channels_last(n))
    return false;
  const char *mode = lb_attr_str(n, "auto_pad", "NOTSET");
  bool bias = n->n_in > 2 && n->in[2];
  *u = (deconv){.rw = rw,
                .node = n,
                .w = lb_value_const(n->in[1]),
                .bias = bias ? lb_value_const(n->in[2]) : NULL,
                .n_spatial = n->in[0]->info.rank - 2};
  if (!u->w || u->w->dtype != LB_F32 || !lb_tensor_is_dense(u->w) ||
      lb_tensor_count(u->w) == 0 || (bias && !u->bias) || u->n_spatial < 1 ||
      u->n_spatial > MAX_SPATIAL || u->w->rank != u->n_spatial + 2 ||
      lb_attr_int(n, "group", 1) != 1 || lb_attr_has(n, "output_shape") ||
      strcmp(*mode ? mode : "NOTSET", "NOTSET") != 0)
    return false;
  u->in = u->w->dims[0];
  u->out = u->w->dims[1];
  for (int i = 0; i < u->n_spatial; i++)
    if (!match_axis(u, i)) return false;
  return !is_non_overlapping(u);
}

// -- constants ---------------------------------------------------------------

// The kernel element of phase r and tap j; -1: none.
static int64_t element(const deconv *u, int i, int64_t r, int64_t j) {
  int64_t at = r + (u->reach[i] - 1 - j) * u->stride[i];
  return at < u->size[i] ? at : -1;
}

// Weights of one phase and output channel: [in, taps...]. The weights of a
// mapped file may be unaligned.
static void fill_phase(const deconv *u, const int64_t r[2], int64_t o,
                       float *to) {
  const char *w = u->w->data;
  bool flat = u->n_spatial == 1;
  int64_t rows = flat ? 1 : u->reach[0], cols = u->reach[u->n_spatial - 1];
  int64_t height = flat ? 1 : u->size[0], width = u->size[u->n_spatial - 1];
  for (int64_t c = 0; c < u->in; c++)
    for (int64_t y = 0; y < rows; y++)
      for (int64_t x = 0; x < cols; x++, to++) {
        int64_t ky = flat ? 0 : element(u, 0, r[0], y);
        int64_t kx = element(u, u->n_spatial - 1, r[1], x);
        int64_t at = ((c * u->out + o) * height + ky) * width + kx;
        *to = 0;
        if (ky >= 0 && kx >= 0)
          memcpy(to, w + at * (int64_t)sizeof *to, sizeof *to);
      }
}

// Output channels are [phases, channels].
static lb_status make_weights(const deconv *u, int64_t phases, lb_value **out) {
  lb_tensor t = {
      .dtype = LB_F32, .rank = u->w->rank, .dims = {phases * u->out, u->in}};
  int64_t each = u->in, cols = u->stride[u->n_spatial - 1];
  for (int i = 0; i < u->n_spatial; i++) {
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

static lb_status make_bias(const deconv *u, int64_t phases, lb_value **out) {
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

static lb_status reshape(const deconv *u, lb_value *x, const int64_t *dims,
                         uint32_t n, lb_value **out) {
  lb_value *in[2] = {x};
  LB_TRY(lb_const_ints(u->rw->graph, "dims", dims, n, &in[1]));
  return lb_rewrite_make(u->rw, u->node, LB_OP_Reshape, in, 2, out);
}

static lb_status make_conv(const deconv *u, int64_t phases, lb_value **out) {
  int64_t pads[2 * MAX_SPATIAL];
  lb_value *in[3] = {u->node->in[0]};
  lb_node *n;
  LB_TRY(make_weights(u, phases, &in[1]));
  if (u->bias) LB_TRY(make_bias(u, phases, &in[2]));
  for (int i = 0; i < 2 * u->n_spatial; i++)
    pads[i] = u->reach[i % u->n_spatial] - 1;
  uint32_t n_in = u->bias ? 3 : 2;
  LB_TRY(lb_rewrite_insert(u->rw, u->node, LB_OP_Conv, in, n_in, &n));
  LB_TRY(lb_node_set_int(u->rw->graph, n, "channels_last", 1));
  LB_TRY(lb_node_set_ints(u->rw->graph, n, "kernel_shape", u->reach,
                          (uint32_t)u->n_spatial));
  LB_TRY(lb_node_set_ints(u->rw->graph, n, "pads", pads,
                          2 * (uint32_t)u->n_spatial));
  return lb_rewrite_inserted(u->rw, n, out);
}

// The number of output columns as a list: that of x, times the stride.
static lb_status count_columns(const deconv *u, lb_value *x, lb_value **out) {
  lb_value *in[2] = {x}, *shape[2];
  int64_t axis = 2;
  LB_TRY(lb_rewrite_make(u->rw, u->node, LB_OP_Shape, in, 1, &shape[0]));
  LB_TRY(lb_const_ints(u->rw->graph, "axis", &axis, 1, &shape[1]));
  LB_TRY(lb_rewrite_make(u->rw, u->node, LB_OP_Gather, shape, 2, &in[0]));
  LB_TRY(lb_const_ints(u->rw->graph, "stride", &u->stride[1], 1, &in[1]));
  return lb_rewrite_make(u->rw, u->node, LB_OP_Mul, in, 2, out);
}

// [batch, rows, columns, phases * channels] as a feature map.
static lb_status phases_to_positions(const deconv *u, lb_value *x,
                                     lb_value **out) {
  static const int64_t perm[] = {0, 1, 3, 2, 4}, head[] = {0, -1};
  int64_t split[] = {0, 0, 0, u->stride[0], u->stride[1] * u->out};
  lb_value *by_phase, *list[3], *in[2];
  lb_node *n;
  LB_TRY(reshape(u, x, split, 5, &by_phase));
  LB_TRY(lb_rewrite_insert(u->rw, u->node, LB_OP_Transpose, &by_phase, 1, &n));
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

// Changes the node itself, as the last of the new nodes.
static lb_status crop(const deconv *u, lb_value *x) {
  int64_t ends[MAX_SPATIAL], axes[] = {1, 2};
  lb_value *in[4] = {x};
  uint32_t n = (uint32_t)u->n_spatial;
  for (int i = 0; i < u->n_spatial; i++)
    ends[i] = u->crop_end[i] > 0 ? -u->crop_end[i] : INT64_MAX;
  LB_TRY(lb_const_ints(u->rw->graph, "starts", u->crop_begin, n, &in[1]));
  LB_TRY(lb_const_ints(u->rw->graph, "ends", ends, n, &in[2]));
  LB_TRY(lb_const_ints(u->rw->graph, "axes", axes, n, &in[3]));
  return lb_rewrite_become(u->rw, u->node, LB_OP_Slice, in, 4);
}

static lb_status rewrite(const deconv *u) {
  int64_t phases = 1, dims[] = {0, -1, u->out};
  lb_value *x;
  for (int i = 0; i < u->n_spatial; i++) phases *= u->stride[i];
  LB_TRY(make_conv(u, phases, &x));
  LB_TRY(u->n_spatial == 1 ? reshape(u, x, dims, 3, &x)
                           : phases_to_positions(u, x, &x));
  return crop(u, x);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  deconv u;
  return match(rw, n, &u) ? rewrite(&u) : LB_OK;
}

lb_status lb_pass_conv_transpose(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit);
}
