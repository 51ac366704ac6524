// partition/window.c -- binds convolutions and pools, zone by zone.
//
// Loops around the kernel are batch, groups, and all spatial axes but one,
// whose positions are the kernel's rows. For many small feature maps, rows are
// the batch, and all spatial axes are loops: weights are read once per tile of
// rows. A window has taps along at most two axes: taps_y and taps_x. If taps in
// x are contiguous in memory, they are one piece.
//
// A feature map with channels first is *planar*: it is read without a copy,
// with pieces along its last axis and its channels as taps_x.
//
// A transposed convolution is a plain one for positions a stride apart: these
// have every stride-th tap, in reverse order.
#include "partition/window.h"

#include <stdlib.h>
#include <string.h>

#include "partition/known.h"
#include "spec/panel.h"

enum {
  MIN_ROWS = 8,                  // rows that fill a tile well
  MANY_ROWS = 32,                // contiguous rows that are enough
  BATCH = -1,                    // in place of a spatial axis
  MAX_CACHED_WEIGHTS = 1 << 16,  // elements of weights that stay in cache
  X = 1,                         // operands: the result, the input, weights
  W,
};

// -- which nodes qualify ------------------------------------------------------

static bool is_pool(const lb_node *n) {
  return n->op == LB_OP_MaxPool || n->op == LB_OP_AveragePool;
}

static const lb_tensor *weights_of(const lb_node *n) {
  return is_pool(n) ? NULL : lb_value_const(n->in[1]);
}

static int64_t groups_of(const lb_node *n) {
  return is_pool(n) ? 1 : lb_attr_int(n, "group", 1);
}

static bool is_transposed(const lb_node *n) {
  return n->op == LB_OP_ConvTranspose;
}

static int64_t kernel_of(const lb_node *n, int i) {
  const lb_tensor *w = weights_of(n);
  return w ? w->dims[2 + i] : lb_attr_int_at(n, "kernel_shape", i, 1);
}

// One output per channel: a WINDOW with weights.
static bool is_depthwise(const lb_node *n) {
  const lb_tensor *w = weights_of(n);
  return w && w->dims[1] == 1 && groups_of(n) == w->dims[0];
}

static int tapped_axes(const lb_node *n, int spatial) {
  int count = 0;
  for (int i = 0; i < spatial; i++) count += kernel_of(n, i) > 1;
  return count;
}

// Input and output channels of the weights of one group, and their axes.
typedef struct channels {
  int64_t in, out;
  int in_axis, out_axis;
} channels;

static channels channels_of(const lb_node *n) {
  const lb_tensor *w = weights_of(n);
  int64_t groups = groups_of(n);
  if (is_transposed(n))
    return (channels){w->dims[0] / groups, w->dims[1], 0, 1};
  return (channels){w->dims[1], w->dims[0] / groups, 1, 0};
}

// Elements of a column of one group's weights.
static int64_t terms_of(const lb_node *n) {
  return lb_tensor_count(weights_of(n)) / groups_of(n) / channels_of(n).out;
}

static bool prefers_k2(const lb_node *n) {
  channels c = channels_of(n);
  return c.in % 2 == 0 && lb_panel_prefers_k2(terms_of(n), c.out);
}

// Whether the input is read with channels first, according to the graph. Its
// last axis then counts as one with (contiguous) taps, so that there may be one
// more. K2-interleaving needs contiguous channels, and is worth a copy.
static bool is_planar(const lb_node *n) {
  const lb_node *t = n->in[0]->producer;
  uint32_t rank;
  const int64_t *perm =
      t && t->op == LB_OP_Transpose ? lb_attr_ints(t, "perm", &rank) : NULL;
  return perm && n->op == LB_OP_Conv && groups_of(n) == 1 &&
         !is_depthwise(n) &&  // with one channel it is a WINDOW
         tapped_axes(n, (int)rank - 3) < 2 && perm[rank - 1] == 1 &&
         perm[rank - 2] == (int64_t)rank - 1 &&
         lb_attr_int_at(n, "dilations", (int)rank - 3, 1) == 1 &&
         !prefers_k2(n);
}

bool lb_window_is(const lb_node *n, lb_form *form) {
  if (!lb_op_channels_last(n)) return false;
  const lb_vinfo *x = &n->in[0]->info;
  int spatial = x->rank - 2;
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  bool int8 = n->op == LB_OP_ConvInteger && lb_op_is_int8_gemm(n);
  if ((x->dtype != LB_F32 && !int8) || x->rank < 3 || spatial > LB_MAX_SPATIAL)
    return false;
  const lb_tensor *w = weights_of(n);
  if (!is_pool(n) && (!w || w->rank != x->rank || lb_tensor_count(w) == 0 ||
                      groups_of(n) < 1 || w->dims[0] % groups_of(n) != 0))
    return false;
  if (is_transposed(n) && lb_attr_has(n, "output_shape")) return false;
  *form = is_pool(n) || is_depthwise(n) ? LB_FORM_WINDOW : LB_FORM_CONV;
  return tapped_axes(n, spatial) <= 2;
}

lb_acc lb_window_acc(const lb_node *n) {
  if (n->op == LB_OP_MaxPool) return LB_ACC_MAX;
  return n->op == LB_OP_AveragePool ? LB_ACC_SUM : LB_ACC_DOT;
}

// -- weights -----------------------------------------------------------------

// The weights of group g as [taps..., in, out]; planar: the last tap axis
// follows `in`.
static lb_tensor ordered_weights(const lb_node *n, int64_t g, channels c) {
  const lb_tensor *w = weights_of(n);
  int spatial = w->rank - 2, at = 0;
  bool planar = is_planar(n);
  lb_tensor t = {.dtype = w->dtype, .rank = w->rank};
  for (int i = 0; i < spatial; i++) {
    int to = planar && i == spatial - 1 ? i + 1 : i;
    t.dims[to] = w->dims[2 + i];
    t.strides[to] = w->strides[2 + i];
  }
  at = planar ? spatial - 1 : spatial;
  t.dims[at] = c.in;
  t.strides[at] = w->strides[c.in_axis];
  t.dims[spatial + 1] = c.out;
  t.strides[spatial + 1] = w->strides[c.out_axis];
  int64_t first = g * (is_transposed(n) ? c.in : c.out) * w->strides[0];
  t.data = (char *)w->data + first * (int64_t)lb_dtype_size(w->dtype);
  return t;
}

// One group as a matrix without data.
static lb_matrix group_matrix(const lb_node *n) {
  channels c = channels_of(n);
  lb_dtype t = weights_of(n)->dtype;
  return (lb_matrix){.rows = terms_of(n),
                     .cols = c.out,
                     .row_stride = c.out,
                     .col_stride = 1,
                     .elem = lb_dtype_size(t),
                     .flush = t == LB_F32,
                     .layout = t == LB_I8      ? LB_LAYOUT_PANEL_K4
                               : prefers_k2(n) ? LB_LAYOUT_PANEL_K2
                                               : LB_LAYOUT_PANEL};
}

lb_layout lb_window_panels(const lb_node *n) { return group_matrix(n).layout; }

bool lb_window_pack_size(const lb_node *n, lb_form form, size_t *bytes) {
  *bytes = 0;
  if (!weights_of(n)) return true;
  lb_matrix m = group_matrix(n);
  size_t each;
  if (form == LB_FORM_WINDOW) {
    *bytes = lb_tensor_bytes(weights_of(n));
    return true;
  }
  return lb_panel_size(&m, &each) &&
         !__builtin_mul_overflow(each, (size_t)groups_of(n), bytes);
}

int64_t lb_window_pack_order(const lb_node *n) {
  return groups_of(n) << 2 | is_transposed(n) << 1 | is_planar(n);
}

// `dense` holds the weights of a group while it is packed.
static lb_status pack_groups(const lb_node *n, char *to) {
  lb_matrix m = group_matrix(n);
  size_t each;
  void *dense = malloc((size_t)(m.rows * m.cols) * m.elem);
  if (!dense || !lb_panel_size(&m, &each)) {
    free(dense);
    return lb_oom();
  }
  m.data = dense;
  for (int64_t g = 0; g < groups_of(n); g++) {
    lb_tensor from = ordered_weights(n, g, channels_of(n)), contiguous = from;
    lb_tensor_dense(&contiguous);
    contiguous.data = dense;
    lb_tensor_copy(&from, &contiguous);
    lb_panel_pack(&m, to + (size_t)g * each);
  }
  free(dense);
  return LB_OK;
}

lb_status lb_window_pack(const lb_node *n, lb_form form, void *to) {
  const lb_tensor *w = weights_of(n);
  if (!w) return LB_OK;
  if (form == LB_FORM_CONV) return pack_groups(n, to);
  lb_tensor from = ordered_weights(n, 0, (channels){1, w->dims[0], 1, 0});
  lb_tensor contiguous = from;
  lb_tensor_dense(&contiguous);
  contiguous.data = to;
  lb_tensor_copy(&from, &contiguous);
  lb_panel_flush(to, lb_tensor_count(&contiguous));
  return LB_OK;
}

// -- attributes ---------------------------------------------------------------

static lb_pads pads_of(const lb_node *n) {
  const char *mode = lb_attr_str(n, "auto_pad", "NOTSET");
  if (strcmp(mode, "SAME_UPPER") == 0) return LB_PADS_UPPER;
  if (strcmp(mode, "SAME_LOWER") == 0) return LB_PADS_LOWER;
  return strcmp(mode, "VALID") == 0 ? LB_PADS_NONE : LB_PADS_EXPLICIT;
}

// Channels of the input; 0: as many as the output.
static int64_t input_channels(const lb_node *n) {
  if (is_pool(n)) return 0;
  if (is_depthwise(n)) return weights_of(n)->dims[0];
  return groups_of(n) * channels_of(n).in;
}

void lb_window_describe(const lb_node *n, lb_window_desc *out) {
  *out = (lb_window_desc){.spatial = n->in[0]->info.rank - 2,
                          .pads = pads_of(n),
                          .transposed = is_transposed(n),
                          .planar = is_planar(n),
                          .weighted = lb_window_acc(n) == LB_ACC_DOT,
                          .groups = is_depthwise(n) ? 1 : groups_of(n),
                          .channels = input_channels(n)};
  out->count_pads = lb_attr_int(n, "count_include_pad", 0) != 0;
  for (int i = 0; i < out->spatial; i++) {
    out->axes[i].kernel = kernel_of(n, i);
    out->axes[i].stride = lb_attr_int_at(n, "strides", i, 1);
    out->axes[i].dilation = lb_attr_int_at(n, "dilations", i, 1);
    if (out->pads != LB_PADS_EXPLICIT) continue;
    out->axes[i].before = lb_attr_int_at(n, "pads", i, 0);
    out->axes[i].after = lb_attr_int_at(n, "pads", out->spatial + i, 0);
  }
}

const lb_value *lb_partition_contiguous_input(const lb_partition *p) {
  bool feature_map = p->window && !p->window->planar;
  bool int8 = p->packed && p->panels == LB_LAYOUT_PANEL_K4;
  return feature_map || int8 ? p->nodes[p->anchor]->in[0] : NULL;
}

// -- binding -----------------------------------------------------------------

typedef struct window_binder {
  const lb_partition *part;
  const lb_window_desc *window;
  lb_tensor_fn *tensor;
  void *user;
  lb_binding *out;
  lb_conv_loops *loops;
} window_binder;

static void set_pads(const lb_window_desc *w, lb_axis *a) {
  int64_t extent = (a->kernel - 1) * a->dilation + 1;
  int64_t all = w->transposed ? (a->in - 1) * a->stride + extent - a->out
                              : (a->out - 1) * a->stride + extent - a->in;
  if (all < 0) all = 0;
  if (w->pads == LB_PADS_UPPER)
    a->before = all / 2, a->after = all - all / 2;
  else if (w->pads == LB_PADS_LOWER)
    a->before = all - all / 2, a->after = all / 2;
}

static bool read_axes(lb_conv_loops *b, const lb_window_desc *w) {
  for (int i = 0; i < w->spatial; i++) {
    lb_axis *a = &b->axes[i];
    a->in = b->x.dims[1 + i];
    a->out = b->y.dims[1 + i];
    a->kernel = w->axes[i].kernel;
    a->stride = w->axes[i].stride;
    a->dilation = w->axes[i].dilation;
    a->before = w->axes[i].before;
    a->after = w->axes[i].after;
    set_pads(w, a);
    if (w->transposed && a->dilation != 1) return false;
    if (a->in < 1 || !lb_axis_find_zones(a, w->transposed, w->count_pads))
      return false;
  }
  return true;
}

// Whether the input has the channels that weights and output need.
static bool channels_fit(const lb_conv_loops *b, const lb_window_desc *w) {
  int c = b->x.rank - 1;
  return b->x.dims[c] == (w->channels ? w->channels : b->y.dims[c]);
}

static lb_status read(window_binder *r, bool *ok) {
  const lb_partition *p = r->part;
  const lb_window_desc *w = r->window;
  lb_conv_loops *b = r->loops;
  LB_TRY(r->tensor(r->user, p->nodes[p->anchor]->in[0], &b->x));
  LB_TRY(r->tensor(r->user, lb_partition_result(p), &b->y));
  int c = b->x.rank - 1, piece = w->planar ? c - 1 : c;
  b->group_in = b->x.dims[c] / w->groups;
  b->group_out = b->y.dims[c] / w->groups;
  *ok = lb_tensor_count(&b->y) > 0 && b->x.dims[0] == b->y.dims[0] &&
        channels_fit(b, w) &&
        (b->x.strides[piece] == 1 || b->x.dims[piece] == 1) &&
        (b->y.strides[c] == 1 || b->y.dims[c] == 1) && read_axes(b, w);
  return LB_OK;
}

// An input that is the same at all positions of a feature map is PER_COL in the
// spec, so it must be the same in the whole batch if rows are the batch.
static bool can_use_batch_rows(const window_binder *r) {
  if (r->part->form != LB_FORM_CONV) return false;
  for (uint32_t i = W + 1; i < r->out->n_operands; i++) {
    const int64_t *strides = r->loops->strides[i];
    bool varies = false;
    for (int k = 0; k < r->window->spatial; k++) varies |= strides[1 + k] != 0;
    if (varies != (strides[0] != 0)) return false;
  }
  return true;
}

// Selects zone number `number`; false if there is no such zone. Rows are
// positions along the last axis, where they are contiguous, unless it is short
// and there is a longer one; or the batch.
static bool choose_zone(lb_conv_loops *b, int spatial, int number) {
  for (int i = spatial - 1; i >= 0; i--) {
    const lb_axis *a = &b->axes[i];
    b->zones[i] = &a->zones[number % a->n_zones];
    number /= a->n_zones;
  }
  b->rows = spatial - 1;
  for (int i = 0; i < spatial && b->zones[spatial - 1]->n < MANY_ROWS; i++)
    if (b->zones[i]->n > b->zones[b->rows]->n) b->rows = i;
  int64_t n = b->zones[b->rows]->n;
  if (n < MIN_ROWS && n < b->y.dims[0] && b->batch_rows) b->rows = BATCH;
  return number == 0;
}

static int count_zones(const lb_conv_loops *b, int spatial) {
  int n = 1;
  for (int i = 0; i < spatial; i++) n *= b->axes[i].n_zones;
  return n;
}

static int64_t taps_of(const lb_conv_loops *b, int i) {
  return i < 0 ? 1 : b->zones[i]->taps;
}

// Elements of a column of the weights from one tap to the next along axis i:
// channels are innermost; if planar, they come before the last axis.
static int64_t weight_stride(const window_binder *r, int i) {
  const lb_window_desc *w = r->window;
  int last = w->spatial - 1;
  int64_t stride = w->planar && i == last ? 1 : r->loops->group_in;
  if (r->part->form == LB_FORM_WINDOW) stride = 1;
  for (int j = i + 1; j < w->spatial; j++) stride *= w->axes[j].kernel;
  return stride;
}

static lb_layout weights_layout(const window_binder *r) {
  return r->part->form == LB_FORM_CONV ? r->part->panels : LB_LAYOUT_FULL;
}

static int64_t panel_cols(const window_binder *r) {
  return lb_panel_cols((uint8_t)weights_layout(r));
}

// Taps are along the last two axes that have several. Tap strides of the
// weights, and whether taps are one piece, are the same in all zones.
static void choose_axes(window_binder *r) {
  const lb_window_desc *w = r->window;
  lb_conv_loops *b = r->loops;
  bool conv = r->part->form == LB_FORM_CONV;
  b->tap_y = b->tap_x = -1;
  for (int i = 0; i < w->spatial; i++) {
    b->weight_tap_strides[i] =
        weight_stride(r, i) * (conv ? panel_cols(r) : b->group_out);
    if (w->axes[i].kernel == 1 && !(w->planar && i == w->spatial - 1)) continue;
    b->tap_y = b->tap_x;
    b->tap_x = i;
  }
  const lb_zone *s = b->tap_x < 0 ? NULL : b->zones[b->tap_x];
  b->adjacent = conv && s && s->tap_step == 1 && s->weight_step == 1 &&
                !w->planar && b->x.strides[1 + b->tap_x] == b->group_in;
}

// -- operands ----------------------------------------------------------------

// Strides of t, whose dims are aligned with the last ones of the result, along
// batch, spatial axes and channels; false if it does not fit.
static bool strides_of(const lb_conv_loops *b, const lb_tensor *t,
                       int64_t *out) {
  int shift = b->y.rank - t->rank;
  if (shift < 0) return false;
  for (int i = 0; i < b->y.rank; i++) {
    int64_t d = i < shift ? 1 : t->dims[i - shift];
    if (d != 1 && d != b->y.dims[i]) return false;
    out[i] = d == 1 ? 0 : t->strides[i - shift];
  }
  return true;
}

// Loops are the batch and the spatial axes, except that of rows, and groups.
// Groups are innermost if all their weights stay in cache: then they read a row
// of the feature map while it is in cache, too.
static int group_loop(const window_binder *r) {
  const lb_window_desc *w = r->window;
  int outer = r->loops->rows == BATCH ? 0 : 1;
  if (w->groups == 1) return outer;
  int64_t weights = r->loops->group_in * r->loops->group_out * w->groups;
  for (int i = 0; i < w->spatial; i++) weights *= w->axes[i].kernel;
  return weights <= MAX_CACHED_WEIGHTS ? w->spatial : outer;
}

// The next loop after `at` that is not of groups.
static int next_loop(const window_binder *r, int at) {
  return at + 1 + (at + 1 == group_loop(r));
}

static void set_loops(const window_binder *r, lb_bind_operand *o,
                      const int64_t *strides, int64_t group, bool feature_map) {
  const lb_conv_loops *b = r->loops;
  int at = next_loop(r, -1);
  o->outer[group_loop(r)] = group;
  if (b->rows == BATCH) {
    o->row = strides[0];
  } else {
    o->outer[at] = strides[0];
    at = next_loop(r, at);
  }
  for (int i = 0; i < r->window->spatial; i++) {
    int64_t by = feature_map ? b->zones[i]->in_step : b->zones[i]->out_step;
    if (i == b->rows) {
      o->row = strides[1 + i] * by;
    } else {
      o->outer[at] = strides[1 + i] * by;
      at = next_loop(r, at);
    }
  }
}

static void put_result_like(window_binder *r, uint32_t i) {
  lb_bind_operand *o = &r->out->operands[i];
  const int64_t *strides = r->loops->strides[i];
  int c = r->loops->y.rank - 1;
  o->col = i == 0 ? 1 : strides[c];
  set_loops(r, o, strides, r->loops->group_out * strides[c], false);
}

static int64_t tap_stride(const lb_conv_loops *b, int i) {
  return i < 0 ? 0 : b->zones[i]->tap_step * b->x.strides[1 + i];
}

static void put_input(window_binder *r) {
  const lb_conv_loops *b = r->loops;
  lb_bind_operand *o = &r->out->operands[X];
  o->col = 1;
  set_loops(r, o, b->x.strides, b->group_in, true);
  r->out->taps[0] = tap_stride(b, b->tap_y);
  r->out->taps[1] =
      r->window->planar ? b->x.strides[b->x.rank - 1] : tap_stride(b, b->tap_x);
}

// Weights of CONV: panels of all taps; of WINDOW: a row of channels per tap.
static void put_weights(window_binder *r) {
  const lb_window_desc *w = r->window;
  const lb_conv_loops *b = r->loops;
  lb_bind_operand *o = &r->out->operands[W];
  bool conv = r->part->form == LB_FORM_CONV;
  int64_t unit = conv ? panel_cols(r) : b->group_out, all = b->group_in;
  int64_t panels = (b->group_out + unit - 1) / unit;
  *o = (lb_bind_operand){.col = 1};
  for (int i = 0; i < w->spatial; i++) all *= w->axes[i].kernel;
  if (b->tap_x >= 0)
    r->out->taps[3] =
        b->zones[b->tap_x]->weight_step * b->weight_tap_strides[b->tap_x];
  if (w->planar) r->out->taps[3] = w->axes[w->spatial - 1].kernel * unit;
  if (b->tap_y >= 0)
    r->out->taps[2] =
        b->zones[b->tap_y]->weight_step * b->weight_tap_strides[b->tap_y];
  if (!conv) return;
  o->row = all * unit;
  o->col = all;
  o->outer[group_loop(r)] = panels * o->row;
}

static void set_dims(window_binder *r) {
  const lb_conv_loops *b = r->loops;
  const lb_window_desc *w = r->window;
  lb_binding *o = r->out;
  int64_t taps_x = taps_of(b, b->tap_x), taps_y = taps_of(b, b->tap_y);
  o->dims[LB_DIM_ROWS] = b->rows == BATCH ? b->y.dims[0] : b->zones[b->rows]->n;
  o->dims[LB_DIM_COLS] = b->group_out;
  o->dims[LB_DIM_K] = r->part->form == LB_FORM_CONV ? b->group_in : 1;
  o->dims[LB_DIM_TAPS_Y] = taps_y;
  o->dims[LB_DIM_TAPS_X] = taps_x;
  if (b->adjacent) {
    o->dims[LB_DIM_K] *= taps_x;
    o->dims[LB_DIM_TAPS_X] = taps_x ? 1 : 0;
  }
  if (w->planar) {
    o->dims[LB_DIM_K] = b->zones[w->spatial - 1]->taps;
    o->dims[LB_DIM_TAPS_X] = b->group_in;
  }
  for (int i = 0; i < w->spatial; i++)
    if (b->zones[i]->taps == 0) o->dims[LB_DIM_TAPS_Y] = 0;
  o->n_outer = w->spatial + 1;
  o->outer[group_loop(r)] = w->groups;
  int at = next_loop(r, -1);
  if (b->rows != BATCH) {
    o->outer[at] = b->y.dims[0];
    at = next_loop(r, at);
  }
  for (int i = 0; i < w->spatial; i++) {
    if (i == b->rows) continue;
    o->outer[at] = b->zones[i]->n;
    at = next_loop(r, at);
  }
}

// The start of all operands in the current zone.
static void set_offsets(window_binder *r) {
  const lb_conv_loops *b = r->loops;
  const lb_zone *const *z = b->zones;
  lb_bind_operand *o = r->out->operands;
  bool weighted = r->window->weighted;
  int spatial = r->window->spatial;
  int64_t feature_map = 0, weight = 0;
  for (int k = 0; k < spatial; k++) {
    feature_map += z[k]->in * b->x.strides[1 + k];
    weight += z[k]->weight * b->weight_tap_strides[k];
  }
  for (uint32_t i = 0; i < r->out->n_operands; i++) {
    const int64_t *by = &b->strides[i][1];
    int64_t at = z[0]->out * by[0];
    for (int k = 1; k < spatial; k++) at += z[k]->out * by[k];
    o[i].offset = at;
  }
  o[X].offset = feature_map;
  if (weighted) o[W].offset = weight;
}

// The strides of all operands for rows along the current axis.
static void put_operands(window_binder *r) {
  put_input(r);
  if (r->window->weighted) put_weights(r);
  for (uint32_t i = 0; i < r->out->n_operands; i++)
    if (i != X && !(r->window->weighted && i == W)) put_result_like(r, i);
}

// -- epilogue inputs ----------------------------------------------------------

static int find(const window_binder *r, const lb_value *v) {
  uint32_t i = r->window->weighted ? W + 1 : X + 1;
  for (; i < r->out->n_operands; i++)
    if (r->out->operands[i].value == v) return (int)i;
  return -1;
}

static lb_status add_value(window_binder *r, const lb_value *v, bool *ok) {
  uint32_t at = r->out->n_operands;
  lb_tensor t;
  LB_TRY(r->tensor(r->user, v, &t));
  *ok = at < LB_SPEC_MAX_IN && strides_of(r->loops, &t, r->loops->strides[at]);
  if (!*ok) return LB_OK;
  r->out->operands[at].value = v;
  r->out->n_operands++;
  return LB_OK;
}

// Adds the inputs of the epilogue.
static lb_status add_values(window_binder *r, bool *ok) {
  const lb_partition *p = r->part;
  lb_part_input found[LB_PART_INPUTS];
  const lb_part_input *in = p->inputs ? p->inputs : found;
  uint32_t n = p->inputs ? p->n_inputs : lb_partition_inputs(p, found);
  for (uint32_t i = 0; *ok && i < n; i++) LB_TRY(add_value(r, in[i].value, ok));
  return LB_OK;
}

static lb_status add_operands(window_binder *r, bool *ok) {
  const lb_partition *p = r->part;
  lb_bind_operand *o = r->out->operands;
  lb_conv_loops *b = r->loops;
  o[0].value = lb_partition_result(p);
  memcpy(b->strides[0], b->y.strides, (size_t)b->y.rank * sizeof(int64_t));
  o[X].value = p->nodes[p->anchor]->in[0];
  o[W].value = NULL;
  memset(b->strides[X], 0, 2 * sizeof b->strides[X]);
  r->out->n_operands = r->window->weighted ? W + 1 : X + 1;
  return add_values(r, ok);
}

// -- the spec ----------------------------------------------------------------

// The layout of an epilogue input: one element per position, or the same for a
// whole feature map.
static lb_layout layout_of(const window_binder *r, const int64_t *strides) {
  bool varies = false;
  int c = r->loops->y.rank - 1;
  for (int i = 0; i < r->window->spatial; i++)
    varies = varies || strides[1 + i] != 0;
  if (strides[c] == 1) return varies ? LB_LAYOUT_FULL : LB_LAYOUT_PER_COL;
  if (strides[c] != 0) return LB_LAYOUT_STRIDED;
  return varies ? LB_LAYOUT_PER_ROW : LB_LAYOUT_BROADCAST;
}

static lb_memo_key key_of(const window_binder *r) {
  const lb_partition *p = r->part;
  lb_memo_key key = {.nodes = p->nodes,
                     .n_nodes = (uint8_t)p->n_nodes,
                     .form = (uint8_t)p->form,
                     .n_operands = (uint8_t)r->out->n_operands};
  key.layouts[0] = key.layouts[X] = LB_LAYOUT_FULL;
  if (r->window->weighted) key.layouts[W] = (uint8_t)weights_layout(r);
  for (uint32_t i = r->window->weighted ? W + 1 : X + 1; i < key.n_operands;
       i++)
    key.layouts[i] = (uint8_t)layout_of(r, r->loops->strides[i]);
  return key;
}

static uint8_t source_of(void *user, lb_specgen *e, uint32_t reader,
                         const lb_value *v) {
  (void)e, (void)reader;
  return (uint8_t)(find(user, v) - 1);
}

static double average_count(const window_binder *r) {
  double count = 1;
  for (int i = 0; i < r->window->spatial; i++)
    count *= (double)r->loops->zones[i]->counted;
  return count;
}

static lb_status build_spec(window_binder *r, const lb_memo_key *key,
                            double average, bool *ok) {
  const lb_partition *p = r->part;
  lb_specgen_output m = {.nodes = p->nodes,
                         .n_nodes = p->n_nodes,
                         .anchor = p->anchor,
                         .has_acc = true,
                         .acc = lb_window_acc(p->nodes[p->anchor]),
                         .average = average,
                         .source = source_of,
                         .user = r};
  lb_specgen e = {0};
  lb_spec_begin(&e.b, p->form);
  for (uint32_t i = 1; i < key->n_operands; i++) {
    const lb_value *v = r->out->operands[i].value;
    lb_dtype t = (v ? v : p->nodes[p->anchor]->in[1])->info.dtype;
    lb_spec_input(&e.b, t, key->layouts[i]);
  }
  lb_spec_output(&e.b, lb_specgen_nodes(&e, &m), key->layouts[0]);
  return lb_bind_new(p, key, &e, r->out, ok);
}

static lb_status find_spec(window_binder *r, bool *ok) {
  lb_memo_key key = key_of(r);
  double average = average_count(r);
  *ok = lb_bind_known(r->part, &key, average, r->out);
  return *ok ? LB_OK : build_spec(r, &key, average, ok);
}

// -- all ---------------------------------------------------------------------

lb_status lb_window_bind(const lb_partition *p, lb_tensor_fn *tensor,
                         void *user, lb_binding *out, bool *ok) {
  window_binder r = {p, p->window, tensor, user, out, &out->loops};
  lb_bind_begin(out);
  LB_TRY(read(&r, ok));
  if (*ok) LB_TRY(add_operands(&r, ok));
  if (!*ok) return LB_OK;
  out->zones = count_zones(&out->loops, p->window->spatial);
  out->loops.batch_rows = can_use_batch_rows(&r);
  choose_zone(&out->loops, p->window->spatial, 0);
  out->axis = 1 + out->loops.rows;
  choose_axes(&r);
  set_dims(&r);
  put_operands(&r);
  set_offsets(&r);
  return find_spec(&r, ok);
}

// The only scalar that differs is the first one, of an average.
lb_status lb_window_bind_zones(const lb_partition *p, lb_binding *b,
                               lb_zone_fn *each, void *user) {
  window_binder r = {
      .part = p, .window = p->window, .out = b, .loops = &b->loops};
  bool average = p->nodes[p->anchor]->op == LB_OP_AveragePool;
  for (int i = 1; i < b->zones; i++) {
    if (!choose_zone(&b->loops, p->window->spatial, i))
      return lb_error(LB_INTERNAL, "window: no zone %d", i);
    set_dims(&r);
    if (1 + b->loops.rows != b->axis) put_operands(&r);
    b->axis = 1 + b->loops.rows;
    set_offsets(&r);
    if (average) b->scalars[0] = lb_specgen_number(LB_F32, average_count(&r));
    LB_TRY(each(user, b));
  }
  return LB_OK;
}
