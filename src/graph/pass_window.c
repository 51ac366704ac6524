// graph/pass_window.c -- rewrites large and three-dimensional windows into
// forms that kernels handle well.
//
// Max is separable: a large MaxPool is one pool along each axis.
//
// Kernels support taps along two axes. A 3D pool is a 2D pool followed by one
// along the depth; a 3D convolution is the sum of 2D convolutions, one for each
// tap along the depth.
//
// Kernels handle padding zone by zone, with as many zones as the window has
// positions across the edge. Where these are too many, a Pad writes the padding
// and the window has none. Where they are few, a Pad before a convolution
// becomes the convolution's own padding.
#include <math.h>
#include <string.h>

#include "graph/rewrite.h"

enum { MAX_SIZE = 12 };  // of a padded window, along an axis

static bool has_pads(const lb_node *n) {
  const char *mode = lb_attr_str(n, "auto_pad", "NOTSET");
  return !*mode || strcmp(mode, "NOTSET") == 0;
}

static bool is_window(const lb_node *n) {
  bool indices = n->op == LB_OP_MaxPool && n->n_out > 1 && n->out[1];
  return (n->op == LB_OP_Conv || n->op == LB_OP_MaxPool) && n->out[0] &&
         lb_op_channels_last(n) && n->in[0]->info.dtype == LB_F32 && !indices &&
         has_pads(n);
}

static int64_t size_along(const lb_node *n, int axis) {
  if (n->op == LB_OP_MaxPool) return lb_attr_int_at(n, "kernel_shape", axis, 1);
  const lb_tensor *w = lb_value_const(n->in[1]);
  return w && w->rank == n->in[0]->info.rank ? w->dims[2 + axis] : 1;
}

// -- separable pools ---------------------------------------------------------

static bool is_large_pool(const lb_node *n) {
  if (n->op != LB_OP_MaxPool || n->in[0]->info.rank != 4) return false;
  int64_t h = size_along(n, 0), w = size_along(n, 1);
  return h > 1 && w > 1 && h <= INT32_MAX && w <= INT32_MAX &&
         h * w > 2 * (h + w);
}

// Gives `to` the window of `n` along n_axes spatial axes from `first` on, and a
// window of size 1 along the others.
static lb_status slide_along(lb_rewrite *rw, lb_node *to, const lb_node *n,
                             int first, int n_axes) {
  static const char *const lists[] = {"kernel_shape", "strides", "dilations"};
  int n_spatial = n->in[0]->info.rank - 2;
  int64_t pads[2 * LB_MAX_RANK] = {0};
  for (int i = 0; i < 3; i++) {
    int64_t list[LB_MAX_RANK];
    for (int k = 0; k < n_spatial; k++)
      list[k] = k >= first && k < first + n_axes
                    ? lb_attr_int_at(n, lists[i], k, 1)
                    : 1;
    LB_TRY(
        lb_node_set_ints(rw->graph, to, lists[i], list, (uint32_t)n_spatial));
  }
  for (int k = first; k < first + n_axes; k++) {
    pads[k] = lb_attr_int_at(n, "pads", k, 0);
    pads[n_spatial + k] = lb_attr_int_at(n, "pads", n_spatial + k, 0);
  }
  return lb_node_set_ints(rw->graph, to, "pads", pads, 2 * (uint32_t)n_spatial);
}

static void set_input(lb_rewrite *rw, lb_node *n, lb_value *x) {
  lb_rewrite_use(rw, n->in[0], -1);
  n->in[0] = x;
  lb_rewrite_use(rw, x, 1);
}

// The last axes are pooled first.
static lb_status split_pool(lb_rewrite *rw, lb_node *n) {
  int n_spatial = n->in[0]->info.rank - 2;
  lb_node *rows;
  lb_value *x;
  LB_TRY(lb_rewrite_insert(rw, n, n->op, n->in, 1, &rows));
  LB_TRY(lb_node_copy_attrs(rw->graph, rows, n));
  LB_TRY(slide_along(rw, rows, n, 1, n_spatial - 1));
  LB_TRY(lb_rewrite_inserted(rw, rows, &x));
  set_input(rw, n, x);
  return slide_along(rw, n, n, 0, 1);
}

// -- 3D ----------------------------------------------------------------------

// Whether n has taps along three axes.
static bool is_3d(const lb_node *n) {
  bool pool = n->op == LB_OP_MaxPool || n->op == LB_OP_AveragePool;
  if (!pool && n->op != LB_OP_Conv) return false;
  const lb_tensor *w = pool ? NULL : lb_value_const(n->in[1]);
  if (n->in[0]->info.rank != 5 || !n->out[0] || !lb_op_channels_last(n) ||
      n->in[0]->info.dtype != LB_F32 || !has_pads(n) ||
      !(pool || (w && w->rank == 5 && lb_tensor_count(w) > 0)))
    return false;
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  for (int i = 0; i < 3; i++)
    if ((w ? w->dims[2 + i] : lb_attr_int_at(n, "kernel_shape", i, 1)) < 2)
      return false;
  return true;
}

typedef struct conv3d {  // a 3D convolution
  lb_rewrite *rw;
  lb_node *node;
  const lb_tensor *w;
  int64_t taps, dilation;  // along the depth
} conv3d;

// Pads x along the depth.
static lb_status pad_depth(const conv3d *v, lb_value **out) {
  int64_t before = lb_attr_int_at(v->node, "pads", 0, 0);
  int64_t after = lb_attr_int_at(v->node, "pads", 3, 0);
  int64_t pads[2] = {before, after}, axis = 1;
  lb_value *in[4] = {v->node->in[0]};
  *out = in[0];
  if (before == 0 && after == 0) return LB_OK;
  LB_TRY(lb_const_ints(v->rw->graph, "pads", pads, 2, &in[1]));
  LB_TRY(lb_const_f32(v->rw->graph, "border", 0, &in[2]));
  LB_TRY(lb_const_ints(v->rw->graph, "axis", &axis, 1, &in[3]));
  return lb_rewrite_make(v->rw, v->node, LB_OP_Pad, in, 4, out);
}

// The part of the depth that tap k reads.
static lb_status slice_depth(const conv3d *v, lb_value *x, int64_t k,
                             lb_value **out) {
  int64_t from = k * v->dilation, remaining = (v->taps - 1 - k) * v->dilation;
  int64_t to = remaining ? -remaining : INT64_MAX, axis = 1;
  lb_value *in[4] = {x};
  LB_TRY(lb_const_ints(v->rw->graph, "from", &from, 1, &in[1]));
  LB_TRY(lb_const_ints(v->rw->graph, "to", &to, 1, &in[2]));
  LB_TRY(lb_const_ints(v->rw->graph, "axis", &axis, 1, &in[3]));
  return lb_rewrite_make(v->rw, v->node, LB_OP_Slice, in, 4, out);
}

static lb_status slice_weights(const conv3d *v, int64_t k, lb_value **out) {
  lb_tensor from = *v->w, to;
  from.data = (char *)v->w->data +
              k * v->w->strides[2] * (int64_t)lb_dtype_size(LB_F32);
  from.dims[2] = 1;
  to = from;
  lb_tensor_dense(&to);
  to.data = lb_arena_alloc(&v->rw->graph->arena, lb_tensor_bytes(&to), 64);
  if (!to.data) return lb_oom();
  lb_tensor_copy(&from, &to);
  return lb_const_new(v->rw->graph, v->node->in[1]->name, &to, out);
}

// The 2D convolution of tap k; `bias` may be NULL. The attribute span tells the
// shape rule of Conv the size of the whole window, because an input that is too
// small for it leaves this tap no depth and must be an error.
static lb_status insert_tap(const conv3d *v, lb_value *x, int64_t k,
                            lb_value *bias, lb_value **out) {
  lb_value *in[3] = {NULL, NULL, bias};
  int64_t kernel[3] = {1, v->w->dims[3], v->w->dims[4]};
  int64_t strides[3];
  lb_node *n;
  for (int i = 0; i < 3; i++)
    strides[i] = lb_attr_int_at(v->node, "strides", i, 1);
  LB_TRY(slice_depth(v, x, k, &in[0]));
  LB_TRY(slice_weights(v, k, &in[1]));
  LB_TRY(lb_rewrite_insert(v->rw, v->node, LB_OP_Conv, in, bias ? 3 : 2, &n));
  LB_TRY(lb_node_copy_attrs(v->rw->graph, n, v->node));
  LB_TRY(slide_along(v->rw, n, v->node, 1, 2));
  LB_TRY(lb_node_set_ints(v->rw->graph, n, "kernel_shape", kernel, 3));
  LB_TRY(lb_node_set_ints(v->rw->graph, n, "strides", strides, 3));
  LB_TRY(lb_node_set_int(v->rw->graph, n, "span",
                         (v->taps - 1) * v->dilation + 1));
  return lb_rewrite_inserted(v->rw, n, out);
}

static lb_status split_conv3d(lb_rewrite *rw, lb_node *n) {
  const lb_tensor *w = lb_value_const(n->in[1]);
  conv3d v = {rw, n, w, w->dims[2], lb_attr_int_at(n, "dilations", 0, 1)};
  lb_value *x, *sum, *in[2];
  LB_TRY(pad_depth(&v, &x));
  LB_TRY(insert_tap(&v, x, 0, lb_node_input(n, 2), &sum));
  for (int64_t k = 1; k < v.taps; k++) {
    in[0] = sum;
    LB_TRY(insert_tap(&v, x, k, NULL, &in[1]));
    if (k + 1 < v.taps) LB_TRY(lb_rewrite_make(rw, n, LB_OP_Add, in, 2, &sum));
  }
  return lb_rewrite_become(rw, n, LB_OP_Add, in, 2);
}

// -- padding
// -------------------------------------------------------------------

// With ceil_mode, windows may start in the padding, which is then not only
// padding of the feature map. With dilations, a window may be outside the
// feature map altogether.
static bool can_move_padding(const lb_node *n, int n_spatial) {
  if (n->op == LB_OP_Conv) return true;
  for (int i = 0; i < n_spatial; i++)
    if (lb_attr_int_at(n, "dilations", i, 1) != 1) return false;
  return lb_attr_int(n, "ceil_mode", 0) == 0;
}

// Moves the padding of axes with large windows from `own` to `outer`, the pads
// of a Pad; false if there is none.
static bool move_pads(const lb_node *n, int64_t *own, int64_t *outer) {
  int rank = n->in[0]->info.rank, n_spatial = rank - 2;
  bool moved = false;
  for (int i = 0; i < 2 * n_spatial; i++) {
    int axis = i % n_spatial, side = i / n_spatial;
    int64_t size = size_along(n, axis);
    own[i] = lb_attr_int_at(n, "pads", i, 0);
    if (size <= MAX_SIZE || own[i] <= 0 || own[i] >= size) continue;
    outer[side * rank + 1 + axis] = own[i];
    own[i] = 0;
    moved = true;
  }
  return moved;
}

static lb_status insert_pad(lb_rewrite *rw, lb_node *n) {
  int64_t own[2 * LB_MAX_RANK] = {0}, outer[2 * LB_MAX_RANK] = {0};
  int rank = n->in[0]->info.rank;
  lb_value *in[3] = {n->in[0]}, *x;
  lb_node *pad;
  if (!can_move_padding(n, rank - 2) || !move_pads(n, own, outer)) return LB_OK;
  LB_TRY(lb_const_ints(rw->graph, "pads", outer, 2 * rank, &in[1]));
  LB_TRY(lb_const_f32(rw->graph, "border",
                      n->op == LB_OP_MaxPool ? -INFINITY : 0, &in[2]));
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Pad, in, 3, &pad));
  LB_TRY(lb_rewrite_inserted(rw, pad, &x));
  set_input(rw, n, x);
  return lb_node_set_ints(rw->graph, n, "pads", own, 2 * (uint32_t)(rank - 2));
}

// -- a Pad before a convolution ----------------------------------------------

static const lb_tensor *list_of(const lb_node *n, uint32_t input) {
  const lb_tensor *t = n->n_in > input ? lb_value_const(n->in[input]) : NULL;
  return t && t->dtype == LB_I64 && lb_tensor_is_dense(t) ? t : NULL;
}

static bool pads_with_zeros(const lb_node *pad) {
  const lb_value *fill = pad->n_in > 2 ? pad->in[2] : NULL;
  double value = 0;
  return strcmp(lb_attr_str(pad, "mode", "constant"), "constant") == 0 &&
         (!fill || lb_match_scalar(fill, pad->in[0], &value)) && value == 0;
}

// Adds the pads of `pad` to the convolution's own `pads`; false if it does not
// only pad spatial axes, by fewer positions than kernels handle zone by zone.
static bool add_pads(const lb_node *pad, const lb_node *n, int64_t *pads) {
  const lb_tensor *by = list_of(pad, 1), *axes = list_of(pad, 3);
  int n_spatial = n->in[0]->info.rank - 2,
      first = lb_op_channels_last(n) ? 1 : 2;
  bool named = pad->n_in > 3 && pad->in[3];
  int64_t count = axes ? lb_tensor_count(axes) : n_spatial + 2;
  if (!by || lb_tensor_count(by) != 2 * count || (named && !axes)) return false;
  for (int64_t i = 0; i < 2 * count; i++) {
    int64_t axis = axes ? lb_match_int(axes, i % count) : i % count;
    int64_t add = lb_match_int(by, i);
    if (add == 0) continue;
    axis += (axis < 0 ? n_spatial + 2 : 0) - first;
    if (axis < 0 || axis >= n_spatial) return false;
    int64_t size = size_along(n, (int)axis),
            *to = &pads[i / count * n_spatial + axis];
    if (size > MAX_SIZE || add < 0 || add >= size - *to) return false;
    *to += add;
  }
  return true;
}

static lb_status absorb_pad(lb_rewrite *rw, lb_node *n) {
  const lb_node *pad = lb_match_op(n->in[0], LB_OP_Pad);
  int rank = n->in[0]->info.rank;
  int64_t pads[2 * LB_MAX_RANK] = {0};
  bool valid = strcmp(lb_attr_str(n, "auto_pad", "NOTSET"), "VALID") == 0;
  if (!pad || rank < 3 || !n->out[0] || !(valid || has_pads(n))) return LB_OK;
  for (int i = 0; i < 2 * (rank - 2); i++)
    if (!valid) pads[i] = lb_attr_int_at(n, "pads", i, 0);
  if (!pads_with_zeros(pad) || !add_pads(pad, n, pads)) return LB_OK;
  set_input(rw, n, pad->in[0]);
  rw->changes++;
  LB_TRY(lb_node_set_str(rw->graph, n, "auto_pad", "NOTSET"));
  return lb_node_set_ints(rw->graph, n, "pads", pads, 2 * (uint32_t)(rank - 2));
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  if (n->op == LB_OP_Conv) LB_TRY(absorb_pad(rw, n));
  if (is_3d(n))
    return n->op == LB_OP_Conv ? split_conv3d(rw, n) : split_pool(rw, n);
  if (!is_window(n)) return LB_OK;
  return is_large_pool(n) ? split_pool(rw, n) : insert_pad(rw, n);
}

lb_status lb_pass_window(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
