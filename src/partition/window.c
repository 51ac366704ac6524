// partition/window.c -- convolutions and pools at concrete shapes, zone by
// zone.
//
// Loops around the kernel are batch, groups, and axes of space but one, whose
// positions are the kernel's rows. Of many small images rows are the images,
// and all axes of space are loops: weights are read once for a tile of rows. A
// window has taps along at most two axes: runs and steps. Where steps are
// adjacent in memory, they are one piece.
//
// An image that comes with channels first is *planar*: it is read as it lies,
// its last axis being the piece and its channels the steps.
//
// A transposed convolution is a plain one for positions a stride apart: they
// see every stride-th tap, in reverse.
#include "partition/window.h"

#include <stdlib.h>
#include <string.h>

#include "partition/known.h"
#include "spec/panel.h"

enum {
  MIN_ROWS = 8,           // that make a good tile
  MANY_ROWS = 32,         // that lie side by side, more do not help
  BATCH = -1,             // instead of an axis of space
  FEW_WEIGHTS = 1 << 16,  // elements that stay near
  X = 1,                  // operands: the result, the image, weights
  W,
};

// -- what can be one ---------------------------------------------------------

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

// One output for each channel: a window of products.
static bool is_depthwise(const lb_node *n) {
  const lb_tensor *w = weights_of(n);
  return w && w->dims[1] == 1 && groups_of(n) == w->dims[0];
}

static int tapped_axes(const lb_node *n, int space) {
  int count = 0;
  for (int i = 0; i < space; i++) count += kernel_of(n, i) > 1;
  return count;
}

// Channels of the weights of one group, and where they stand.
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

static bool pays_in_pairs(const lb_node *n) {
  channels c = channels_of(n);
  return c.in % 2 == 0 && lb_panel_prefers_k2(terms_of(n), c.out);
}

// Is it read as it lies, with channels first, as far as the graph says? Its
// last axis is walked as one with taps then, side by side: there is room for
// one more. Pairs are of channels that lie side by side, and worth a copy.
static bool is_planar(const lb_node *n) {
  const lb_node *t = n->in[0]->producer;
  uint32_t rank;
  const int64_t *perm =
      t && t->op == LB_OP_Transpose ? lb_attr_ints(t, "perm", &rank) : NULL;
  return perm && n->op == LB_OP_Conv && groups_of(n) == 1 &&
         !is_depthwise(n) &&  // one channel, and it is a window
         tapped_axes(n, (int)rank - 3) < 2 && perm[rank - 1] == 1 &&
         perm[rank - 2] == (int64_t)rank - 1 &&
         lb_attr_int_at(n, "dilations", (int)rank - 3, 1) == 1 &&
         !pays_in_pairs(n);
}

bool lb_window_is(const lb_node *n, lb_form *form) {
  if (!lb_op_channels_last(n)) return false;
  const lb_vinfo *x = &n->in[0]->info;
  int space = x->rank - 2;
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  bool bytes = n->op == LB_OP_ConvInteger && lb_op_is_int8_gemm(n);
  if ((x->dtype != LB_F32 && !bytes) || x->rank < 3 || space > LB_MAX_SPATIAL)
    return false;
  const lb_tensor *w = weights_of(n);
  if (!is_pool(n) && (!w || w->rank != x->rank || lb_tensor_count(w) == 0 ||
                      groups_of(n) < 1 || w->dims[0] % groups_of(n) != 0))
    return false;
  if (is_transposed(n) && lb_attr_has(n, "output_shape")) return false;
  *form = is_pool(n) || is_depthwise(n) ? LB_FORM_WINDOW : LB_FORM_CONV;
  return tapped_axes(n, space) <= 2;
}

lb_acc lb_window_acc(const lb_node *n) {
  if (n->op == LB_OP_MaxPool) return LB_ACC_MAX;
  return n->op == LB_OP_AveragePool ? LB_ACC_SUM : LB_ACC_DOT;
}

// -- weights -----------------------------------------------------------------

// The weights of group g as [taps..., in, out]; planar: the last tap behind in.
static lb_tensor in_order(const lb_node *n, int64_t g, channels c) {
  const lb_tensor *w = weights_of(n);
  int space = w->rank - 2, at = 0;
  bool planar = is_planar(n);
  lb_tensor t = {.dtype = w->dtype, .rank = w->rank};
  for (int i = 0; i < space; i++) {
    int to = planar && i == space - 1 ? i + 1 : i;
    t.dims[to] = w->dims[2 + i];
    t.strides[to] = w->strides[2 + i];
  }
  at = planar ? space - 1 : space;
  t.dims[at] = c.in;
  t.strides[at] = w->strides[c.in_axis];
  t.dims[space + 1] = c.out;
  t.strides[space + 1] = w->strides[c.out_axis];
  int64_t first = g * (is_transposed(n) ? c.in : c.out) * w->strides[0];
  t.data = (char *)w->data + first * (int64_t)lb_dtype_size(w->dtype);
  return t;
}

// One group as a matrix whose elements are still to come.
static lb_matrix group_matrix(const lb_node *n) {
  channels c = channels_of(n);
  lb_dtype t = weights_of(n)->dtype;
  return (lb_matrix){.rows = terms_of(n),
                     .cols = c.out,
                     .row_stride = c.out,
                     .col_stride = 1,
                     .elem = lb_dtype_size(t),
                     .flush = t == LB_F32,
                     .layout = t == LB_I8         ? LB_LAYOUT_PANEL_K4
                               : pays_in_pairs(n) ? LB_LAYOUT_PANEL_K2
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

// A group's weights lie in `dense` for the time of packing.
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
    lb_tensor from = in_order(n, g, channels_of(n)), lined = from;
    lb_tensor_dense(&lined);
    lined.data = dense;
    lb_tensor_copy(&from, &lined);
    lb_panel_pack(&m, to + (size_t)g * each);
  }
  free(dense);
  return LB_OK;
}

lb_status lb_window_pack(const lb_node *n, lb_form form, void *to) {
  const lb_tensor *w = weights_of(n);
  if (!w) return LB_OK;
  if (form == LB_FORM_CONV) return pack_groups(n, to);
  lb_tensor from = in_order(n, 0, (channels){1, w->dims[0], 1, 0});
  lb_tensor lined = from;
  lb_tensor_dense(&lined);
  lined.data = to;
  lb_tensor_copy(&from, &lined);
  lb_panel_flush(to, lb_tensor_count(&lined));
  return LB_OK;
}

// -- what the graph says -----------------------------------------------------

static lb_pads pads_of(const lb_node *n) {
  const char *mode = lb_attr_str(n, "auto_pad", "NOTSET");
  if (strcmp(mode, "SAME_UPPER") == 0) return LB_PADS_UPPER;
  if (strcmp(mode, "SAME_LOWER") == 0) return LB_PADS_LOWER;
  return strcmp(mode, "VALID") == 0 ? LB_PADS_NONE : LB_PADS_SAID;
}

// Channels of the image; 0: as many as the result has.
static int64_t image_channels(const lb_node *n) {
  if (is_pool(n)) return 0;
  if (is_depthwise(n)) return weights_of(n)->dims[0];
  return groups_of(n) * channels_of(n).in;
}

void lb_window_describe(const lb_node *n, lb_window_desc *out) {
  *out = (lb_window_desc){.space = n->in[0]->info.rank - 2,
                          .pads = pads_of(n),
                          .turned = is_transposed(n),
                          .planar = is_planar(n),
                          .weighted = lb_window_acc(n) == LB_ACC_DOT,
                          .groups = is_depthwise(n) ? 1 : groups_of(n),
                          .channels = image_channels(n)};
  out->with_pads = lb_attr_int(n, "count_include_pad", 0) != 0;
  for (int i = 0; i < out->space; i++) {
    out->axes[i].kernel = kernel_of(n, i);
    out->axes[i].stride = lb_attr_int_at(n, "strides", i, 1);
    out->axes[i].dilation = lb_attr_int_at(n, "dilations", i, 1);
    if (out->pads != LB_PADS_SAID) continue;
    out->axes[i].before = lb_attr_int_at(n, "pads", i, 0);
    out->axes[i].after = lb_attr_int_at(n, "pads", out->space + i, 0);
  }
}

const lb_value *lb_partition_dense(const lb_partition *p) {
  bool image = p->window && !p->window->planar;
  bool bytes = p->packed && p->panels == LB_LAYOUT_PANEL_K4;
  return image || bytes ? p->nodes[p->anchor]->in[0] : NULL;
}

// -- binding -----------------------------------------------------------------

typedef struct binder {
  const lb_partition *part;
  const lb_window_desc *window;
  lb_tensor_fn *tensor;
  void *user;
  lb_binding *out;
  lb_conv_loops *walk;
} binder;

static void set_pads(const lb_window_desc *w, lb_axis *a) {
  int64_t extent = (a->kernel - 1) * a->dilation + 1;
  int64_t all = w->turned ? (a->in - 1) * a->stride + extent - a->out
                          : (a->out - 1) * a->stride + extent - a->in;
  if (all < 0) all = 0;
  if (w->pads == LB_PADS_UPPER)
    a->before = all / 2, a->after = all - all / 2;
  else if (w->pads == LB_PADS_LOWER)
    a->before = all - all / 2, a->after = all / 2;
}

static bool read_axes(lb_conv_loops *b, const lb_window_desc *w) {
  for (int i = 0; i < w->space; i++) {
    lb_axis *a = &b->axes[i];
    a->in = b->x.dims[1 + i];
    a->out = b->y.dims[1 + i];
    a->kernel = w->axes[i].kernel;
    a->stride = w->axes[i].stride;
    a->dilation = w->axes[i].dilation;
    a->before = w->axes[i].before;
    a->after = w->axes[i].after;
    set_pads(w, a);
    if (w->turned && a->dilation != 1) return false;
    if (a->in < 1 || !lb_axis_find_zones(a, w->turned, w->with_pads))
      return false;
  }
  return true;
}

// Has the image the channels that weights and result are made for?
static bool channels_fit(const lb_conv_loops *b, const lb_window_desc *w) {
  int c = b->x.rank - 1;
  return b->x.dims[c] == (w->channels ? w->channels : b->y.dims[c]);
}

static lb_status read(binder *r, bool *ok) {
  const lb_partition *p = r->part;
  const lb_window_desc *w = r->window;
  lb_conv_loops *b = r->walk;
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

// What is the same at all positions of an image is a row of columns to the
// spec, so it must be the same in all images.
static bool may_take_images(const binder *r) {
  if (r->part->form != LB_FORM_CONV) return false;
  for (uint32_t i = W + 1; i < r->out->n_operands; i++) {
    const int64_t *strides = r->walk->strides[i];
    bool varies = false;
    for (int k = 0; k < r->window->space; k++) varies |= strides[1 + k] != 0;
    if (varies != (strides[0] != 0)) return false;
  }
  return true;
}

// Which positions zone number `number` has; false if there is no such zone.
// Rows run along the last axis, where they lie side by side, unless it is short
// and there is a longer one; or along images.
static bool choose_zone(lb_conv_loops *b, int space, int number) {
  for (int i = space - 1; i >= 0; i--) {
    const lb_axis *a = &b->axes[i];
    b->zones[i] = &a->zones[number % a->n_zones];
    number /= a->n_zones;
  }
  b->rows = space - 1;
  for (int i = 0; i < space && b->zones[space - 1]->n < MANY_ROWS; i++)
    if (b->zones[i]->n > b->zones[b->rows]->n) b->rows = i;
  int64_t n = b->zones[b->rows]->n;
  if (n < MIN_ROWS && n < b->y.dims[0] && b->images) b->rows = BATCH;
  return number == 0;
}

static int count_zones(const lb_conv_loops *b, int space) {
  int n = 1;
  for (int i = 0; i < space; i++) n *= b->axes[i].n_zones;
  return n;
}

static int64_t taps_of(const lb_conv_loops *b, int i) {
  return i < 0 ? 1 : b->zones[i]->taps;
}

// Elements of a column of the weights from one tap to the next along axis i:
// channels lie innermost, but before the last axis where it is planar.
static int64_t weight_stride(const binder *r, int i) {
  const lb_window_desc *w = r->window;
  int last = w->space - 1;
  int64_t stride = w->planar && i == last ? 1 : r->walk->group_in;
  if (r->part->form == LB_FORM_WINDOW) stride = 1;
  for (int j = i + 1; j < w->space; j++) stride *= w->axes[j].kernel;
  return stride;
}

static lb_layout weights_layout(const binder *r) {
  return r->part->form == LB_FORM_CONV ? r->part->panels : LB_LAYOUT_FULL;
}

static int64_t panel_cols(const binder *r) {
  return lb_panel_cols((uint8_t)weights_layout(r));
}

// Taps along the last two axes that have some. Steps of a tap, and whether they
// are one piece, are the same in all zones.
static void choose_axes(binder *r) {
  const lb_window_desc *w = r->window;
  lb_conv_loops *b = r->walk;
  bool conv = r->part->form == LB_FORM_CONV;
  b->run = b->step = -1;
  for (int i = 0; i < w->space; i++) {
    b->weight_steps[i] =
        weight_stride(r, i) * (conv ? panel_cols(r) : b->group_out);
    if (w->axes[i].kernel == 1 && !(w->planar && i == w->space - 1)) continue;
    b->run = b->step;
    b->step = i;
  }
  const lb_zone *s = b->step < 0 ? NULL : b->zones[b->step];
  b->adjacent = conv && s && s->tap_step == 1 && s->weight_step == 1 &&
                !w->planar && b->x.strides[1 + b->step] == b->group_in;
}

// -- operands ----------------------------------------------------------------

// Strides of t, whose dims line up with the last ones of the result, along
// batch, space and channels; false if it does not fit.
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

// Loops are batch and the axes of space, but the one of rows, and groups. These
// come last where all their weights stay near: then they see a row of the image
// while it is near, too.
static int group_loop(const binder *r) {
  const lb_window_desc *w = r->window;
  int outer = r->walk->rows == BATCH ? 0 : 1;
  if (w->groups == 1) return outer;
  int64_t weights = r->walk->group_in * r->walk->group_out * w->groups;
  for (int i = 0; i < w->space; i++) weights *= w->axes[i].kernel;
  return weights <= FEW_WEIGHTS ? w->space : outer;
}

// The next loop behind the one at `at` that is not of groups.
static int loop_behind(const binder *r, int at) {
  return at + 1 + (at + 1 == group_loop(r));
}

static void set_loops(const binder *r, lb_bind_operand *o,
                      const int64_t *strides, int64_t group, bool image) {
  const lb_conv_loops *b = r->walk;
  int at = loop_behind(r, -1);
  o->outer[group_loop(r)] = group;
  if (b->rows == BATCH) {
    o->row = strides[0];
  } else {
    o->outer[at] = strides[0];
    at = loop_behind(r, at);
  }
  for (int i = 0; i < r->window->space; i++) {
    int64_t by = image ? b->zones[i]->in_step : b->zones[i]->out_step;
    if (i == b->rows) {
      o->row = strides[1 + i] * by;
    } else {
      o->outer[at] = strides[1 + i] * by;
      at = loop_behind(r, at);
    }
  }
}

static void put_result_like(binder *r, uint32_t i) {
  lb_bind_operand *o = &r->out->operands[i];
  const int64_t *strides = r->walk->strides[i];
  int c = r->walk->y.rank - 1;
  o->col = i == 0 ? 1 : strides[c];
  set_loops(r, o, strides, r->walk->group_out * strides[c], false);
}

static int64_t tap_stride(const lb_conv_loops *b, int i) {
  return i < 0 ? 0 : b->zones[i]->tap_step * b->x.strides[1 + i];
}

static void put_image(binder *r) {
  const lb_conv_loops *b = r->walk;
  lb_bind_operand *o = &r->out->operands[X];
  o->col = 1;
  set_loops(r, o, b->x.strides, b->group_in, true);
  r->out->taps[0] = tap_stride(b, b->run);
  r->out->taps[1] =
      r->window->planar ? b->x.strides[b->x.rank - 1] : tap_stride(b, b->step);
}

// Weights of CONV: panels of all taps; of WINDOW: a row of channels each tap.
static void put_weights(binder *r) {
  const lb_window_desc *w = r->window;
  const lb_conv_loops *b = r->walk;
  lb_bind_operand *o = &r->out->operands[W];
  bool conv = r->part->form == LB_FORM_CONV;
  int64_t unit = conv ? panel_cols(r) : b->group_out, all = b->group_in;
  int64_t panels = (b->group_out + unit - 1) / unit;
  *o = (lb_bind_operand){.col = 1};
  for (int i = 0; i < w->space; i++) all *= w->axes[i].kernel;
  if (b->step >= 0)
    r->out->taps[3] = b->zones[b->step]->weight_step * b->weight_steps[b->step];
  if (w->planar) r->out->taps[3] = w->axes[w->space - 1].kernel * unit;
  if (b->run >= 0)
    r->out->taps[2] = b->zones[b->run]->weight_step * b->weight_steps[b->run];
  if (!conv) return;
  o->row = all * unit;
  o->col = all;
  o->outer[group_loop(r)] = panels * o->row;
}

static void set_dims(binder *r) {
  const lb_conv_loops *b = r->walk;
  const lb_window_desc *w = r->window;
  lb_binding *o = r->out;
  int64_t steps = taps_of(b, b->step), runs = taps_of(b, b->run);
  o->dims[LB_DIM_ROWS] = b->rows == BATCH ? b->y.dims[0] : b->zones[b->rows]->n;
  o->dims[LB_DIM_COLS] = b->group_out;
  o->dims[LB_DIM_K] = r->part->form == LB_FORM_CONV ? b->group_in : 1;
  o->dims[LB_DIM_LEN] = runs;
  o->dims[LB_DIM_STEPS] = steps;
  if (b->adjacent) {
    o->dims[LB_DIM_K] *= steps;
    o->dims[LB_DIM_STEPS] = steps ? 1 : 0;
  }
  if (w->planar) {
    o->dims[LB_DIM_K] = b->zones[w->space - 1]->taps;
    o->dims[LB_DIM_STEPS] = b->group_in;
  }
  for (int i = 0; i < w->space; i++)
    if (b->zones[i]->taps == 0) o->dims[LB_DIM_LEN] = 0;
  o->n_outer = w->space + 1;
  o->outer[group_loop(r)] = w->groups;
  int at = loop_behind(r, -1);
  if (b->rows != BATCH) {
    o->outer[at] = b->y.dims[0];
    at = loop_behind(r, at);
  }
  for (int i = 0; i < w->space; i++) {
    if (i == b->rows) continue;
    o->outer[at] = b->zones[i]->n;
    at = loop_behind(r, at);
  }
}

// Where operands begin in the present zone.
static void set_offsets(binder *r) {
  const lb_conv_loops *b = r->walk;
  const lb_zone *const *z = b->zones;
  lb_bind_operand *o = r->out->operands;
  bool weighted = r->window->weighted;
  int space = r->window->space;
  int64_t image = 0, weight = 0;
  for (int k = 0; k < space; k++) {
    image += z[k]->in * b->x.strides[1 + k];
    weight += z[k]->weight * b->weight_steps[k];
  }
  for (uint32_t i = 0; i < r->out->n_operands; i++) {
    const int64_t *by = &b->strides[i][1];
    int64_t at = z[0]->out * by[0];
    for (int k = 1; k < space; k++) at += z[k]->out * by[k];
    o[i].offset = at;
  }
  o[X].offset = image;
  if (weighted) o[W].offset = weight;
}

// How operands are walked where rows run along the present axis.
static void put_operands(binder *r) {
  put_image(r);
  if (r->window->weighted) put_weights(r);
  for (uint32_t i = 0; i < r->out->n_operands; i++)
    if (i != X && !(r->window->weighted && i == W)) put_result_like(r, i);
}

// -- what is read ------------------------------------------------------------

static int find(const binder *r, const lb_value *v) {
  uint32_t i = r->window->weighted ? W + 1 : X + 1;
  for (; i < r->out->n_operands; i++)
    if (r->out->operands[i].value == v) return (int)i;
  return -1;
}

static lb_status add_value(binder *r, const lb_value *v, bool *ok) {
  uint32_t at = r->out->n_operands;
  lb_tensor t;
  LB_TRY(r->tensor(r->user, v, &t));
  *ok = at < LB_SPEC_MAX_IN && strides_of(r->walk, &t, r->walk->strides[at]);
  if (!*ok) return LB_OK;
  r->out->operands[at].value = v;
  r->out->n_operands++;
  return LB_OK;
}

// What the epilogue reads.
static lb_status add_values(binder *r, bool *ok) {
  const lb_partition *p = r->part;
  lb_part_input room[LB_PART_INPUTS];
  const lb_part_input *in = p->inputs ? p->inputs : room;
  uint32_t n = p->inputs ? p->n_inputs : lb_partition_inputs(p, room);
  for (uint32_t i = 0; *ok && i < n; i++) LB_TRY(add_value(r, in[i].value, ok));
  return LB_OK;
}

static lb_status add_operands(binder *r, bool *ok) {
  const lb_partition *p = r->part;
  lb_bind_operand *o = r->out->operands;
  lb_conv_loops *b = r->walk;
  o[0].value = lb_partition_result(p);
  memcpy(b->strides[0], b->y.strides, (size_t)b->y.rank * sizeof(int64_t));
  o[X].value = p->nodes[p->anchor]->in[0];
  o[W].value = NULL;
  memset(b->strides[X], 0, 2 * sizeof b->strides[X]);
  r->out->n_operands = r->window->weighted ? W + 1 : X + 1;
  return add_values(r, ok);
}

// -- the spec ----------------------------------------------------------------

// What an epilogue reads: of each element, or the same for all of an image.
static lb_layout layout_of(const binder *r, const int64_t *strides) {
  bool varies = false;
  int c = r->walk->y.rank - 1;
  for (int i = 0; i < r->window->space; i++)
    varies = varies || strides[1 + i] != 0;
  if (strides[c] == 1) return varies ? LB_LAYOUT_FULL : LB_LAYOUT_PER_COL;
  if (strides[c] != 0) return LB_LAYOUT_STRIDED;
  return varies ? LB_LAYOUT_PER_ROW : LB_LAYOUT_BROADCAST;
}

static lb_memo_key key_of(const binder *r) {
  const lb_partition *p = r->part;
  lb_memo_key key = {.nodes = p->nodes,
                     .n_nodes = (uint8_t)p->n_nodes,
                     .form = (uint8_t)p->form,
                     .n_operands = (uint8_t)r->out->n_operands};
  key.layouts[0] = key.layouts[X] = LB_LAYOUT_FULL;
  if (r->window->weighted) key.layouts[W] = (uint8_t)weights_layout(r);
  for (uint32_t i = r->window->weighted ? W + 1 : X + 1; i < key.n_operands;
       i++)
    key.layouts[i] = (uint8_t)layout_of(r, r->walk->strides[i]);
  return key;
}

static uint8_t source_of(void *user, lb_specgen *e, uint32_t reader,
                         const lb_value *v) {
  (void)e, (void)reader;
  return (uint8_t)(find(user, v) - 1);
}

static double averaged(const binder *r) {
  double count = 1;
  for (int i = 0; i < r->window->space; i++)
    count *= (double)r->walk->zones[i]->counted;
  return count;
}

static lb_status make_spec(binder *r, const lb_memo_key *key, double average,
                           bool *ok) {
  const lb_partition *p = r->part;
  lb_specgen_output m = {.nodes = p->nodes,
                         .n_nodes = p->n_nodes,
                         .anchor = p->anchor,
                         .product = true,
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

static lb_status find_spec(binder *r, bool *ok) {
  lb_memo_key key = key_of(r);
  double average = averaged(r);
  *ok = lb_bind_known(r->part, &key, average, r->out);
  return *ok ? LB_OK : make_spec(r, &key, average, ok);
}

// -- all ---------------------------------------------------------------------

lb_status lb_window_bind(const lb_partition *p, lb_tensor_fn *tensor,
                         void *user, lb_binding *out, bool *ok) {
  binder r = {p, p->window, tensor, user, out, &out->walk};
  lb_bind_begin(out);
  LB_TRY(read(&r, ok));
  if (*ok) LB_TRY(add_operands(&r, ok));
  if (!*ok) return LB_OK;
  out->zones = count_zones(&out->walk, p->window->space);
  out->walk.images = may_take_images(&r);
  choose_zone(&out->walk, p->window->space, 0);
  out->axis = 1 + out->walk.rows;
  choose_axes(&r);
  set_dims(&r);
  put_operands(&r);
  set_offsets(&r);
  return find_spec(&r, ok);
}

// The only scalar that differs is the first one of an average.
lb_status lb_window_bind_zones(const lb_partition *p, lb_binding *b,
                               lb_zone_fn *each, void *user) {
  binder r = {.part = p, .window = p->window, .out = b, .walk = &b->walk};
  bool average = p->nodes[p->anchor]->op == LB_OP_AveragePool;
  for (int i = 1; i < b->zones; i++) {
    if (!choose_zone(&b->walk, p->window->space, i))
      return lb_error(LB_INTERNAL, "a window has no zone %d", i);
    set_dims(&r);
    if (1 + b->walk.rows != b->axis) put_operands(&r);
    b->axis = 1 + b->walk.rows;
    set_offsets(&r);
    if (average) b->scalars[0] = lb_specgen_number(LB_F32, averaged(&r));
    LB_TRY(each(user, b));
  }
  return LB_OK;
}
