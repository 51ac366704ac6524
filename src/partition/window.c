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
#include "spec/pack.h"

enum {
  MAX_SPACE = 3,
  MAX_ZONES = 12,  // along an axis
  MIN_ROWS = 8,    // that make a good tile
  BATCH = -1,      // instead of an axis of space
  X = 1,           // operands: the result, the image, weights
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

// Does its image come with channels first, as far as the graph says?
static bool is_planar(const lb_node *n) {
  const lb_node *t = n->in[0]->producer;
  uint32_t rank;
  const int64_t *perm =
      t && t->op == LB_OP_Transpose ? lb_attr_ints(t, "perm", &rank) : NULL;
  return perm && n->op == LB_OP_Conv && groups_of(n) == 1 &&
         !is_depthwise(n) &&  // one channel, and it is a window
         perm[rank - 1] == 1 && perm[rank - 2] == (int64_t)rank - 1;
}

static int tapped_axes(const lb_node *n, int space) {
  int count = 0;
  for (int i = 0; i < space; i++) count += kernel_of(n, i) > 1;
  return count;
}

bool lb_window_is(const lb_node *n, lb_form *form) {
  if (!lb_op_channels_last(n)) return false;
  const lb_vinfo *x = &n->in[0]->info;
  int space = x->rank - 2;
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  if (x->dtype != LB_F32 || x->rank < 3 || space > MAX_SPACE) return false;
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
  int64_t k = lb_tensor_count(weights_of(n)) / groups_of(n) / c.out;
  return (lb_matrix){NULL, k, c.out, c.out, 1, sizeof(float), true};
}

bool lb_window_pack_size(const lb_node *n, lb_form form, size_t *bytes) {
  *bytes = 0;
  if (!weights_of(n)) return true;
  lb_matrix m = group_matrix(n);
  size_t each;
  if (form == LB_FORM_WINDOW) {
    *bytes = lb_tensor_bytes(weights_of(n));
    return true;
  }
  return lb_pack_size(&m, &each) &&
         !__builtin_mul_overflow(each, (size_t)groups_of(n), bytes);
}

// A group's weights lie in `dense` for the time of packing.
static lb_status pack_groups(const lb_node *n, char *to) {
  lb_matrix m = group_matrix(n);
  size_t each;
  float *dense = malloc((size_t)(m.rows * m.cols) * sizeof *dense);
  if (!dense || !lb_pack_size(&m, &each)) {
    free(dense);
    return lb_oom();
  }
  m.data = dense;
  for (int64_t g = 0; g < groups_of(n); g++) {
    lb_tensor from = in_order(n, g, channels_of(n)), lined = from;
    lb_tensor_dense(&lined);
    lined.data = dense;
    lb_tensor_copy(&from, &lined);
    lb_pack_b(&m, to + (size_t)g * each);
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
  lb_pack_flush(to, lb_tensor_count(&lined));
  return LB_OK;
}

// -- zones -------------------------------------------------------------------

typedef struct zone {           // of one axis
  int64_t out, out_step, n;     // positions
  int64_t in, in_step;          // where their first tap lies
  int64_t taps, tap_step;       // that lie inside, and from one to the next
  int64_t weight, weight_step;  // the number of the first tap, and likewise
  int64_t counted;              // taps that an average divides by
} zone;

typedef struct axis {
  int64_t in, out, kernel, stride, dilation, before, after;
  zone zones[MAX_ZONES];
  int n_zones;
} axis;

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
  return x < lo ? lo : x > hi ? hi : x;
}

// How many taps t of a window at `at` have at + t * dilation < end.
static int64_t taps_below(const axis *a, int64_t at, int64_t end) {
  if (at >= end) return 0;
  return clamp((end - 1 - at) / a->dilation + 1, 0, a->kernel);
}

// The zone of position o alone.
static zone zone_at(const axis *a, int64_t o, bool with_pads) {
  int64_t at = o * a->stride - a->before;
  int64_t from = taps_below(a, at, 0), to = taps_below(a, at, a->in);
  if (to < from) to = from;
  return (zone){
      .out = o,
      .out_step = 1,
      .n = 1,
      .in = at + from * a->dilation,
      .in_step = a->stride,
      .taps = to - from,
      .tap_step = a->dilation,
      .weight = from,
      .weight_step = 1,
      .counted = with_pads ? taps_below(a, at, a->in + a->after) : to - from};
}

// The same of a transposed convolution: tap t of input i is added to position
// i * stride + t - before, so position o has the taps t = (o + before) mod
// stride, and on by strides, of inputs ever one less.
static zone turned_zone_at(const axis *a, int64_t o) {
  int64_t rest = (o + a->before) % a->stride, at = (o + a->before) / a->stride;
  int64_t all = rest < a->kernel ? (a->kernel - 1 - rest) / a->stride + 1 : 0;
  int64_t from = at >= a->in ? at - a->in + 1 : 0;
  int64_t to = at + 1 < all ? at + 1 : all;
  if (to < from) to = from;
  return (zone){.out = o,
                .out_step = a->stride,
                .n = 1,
                .in = at - from,
                .in_step = 1,
                .taps = to - from,
                .tap_step = -1,
                .weight = rest + from * a->stride,
                .weight_step = a->stride,
                .counted = 1};
}

static bool follows(const zone *a, const zone *b) {
  return a->taps == b->taps && a->weight == b->weight &&
         a->counted == b->counted && a->out + a->n * a->out_step == b->out &&
         (a->taps == 0 || a->in + a->n * a->in_step == b->in);
}

// Positions from o on that have all taps of a plain window.
static int64_t whole_from(const axis *a, int64_t o) {
  int64_t room = a->in - 1 + a->before - (a->kernel - 1) * a->dilation;
  int64_t last = room < 0 ? -1 : room / a->stride;
  return (last < a->out ? last + 1 : a->out) - o;
}

// Adds positions from o on, a step apart.
static bool add_zones(axis *a, int64_t o, int64_t step, bool turned,
                      bool with_pads) {
  int first = a->n_zones;
  for (; o < a->out;) {
    zone z = turned ? turned_zone_at(a, o) : zone_at(a, o, with_pads);
    if (!turned && z.taps == a->kernel) z.n = whole_from(a, o);
    o += z.n * step;
    zone *last = a->n_zones > first ? &a->zones[a->n_zones - 1] : NULL;
    if (last && follows(last, &z)) {
      last->n += z.n;
      continue;
    }
    if (a->n_zones == MAX_ZONES) return false;
    a->zones[a->n_zones++] = z;
  }
  return true;
}

static bool find_zones(axis *a, bool turned, bool with_pads) {
  int largest = 0;
  int64_t step = turned ? a->stride : 1;
  a->n_zones = 0;
  for (int64_t o = 0; o < step; o++)
    if (!add_zones(a, o, step, turned, with_pads)) return false;
  for (int i = 1; i < a->n_zones; i++)
    if (a->zones[i].n > a->zones[largest].n) largest = i;
  zone first = a->zones[0];
  a->zones[0] = a->zones[largest];
  a->zones[largest] = first;
  return a->n_zones > 0;
}

// -- binding -----------------------------------------------------------------

typedef struct binder {
  const lb_partition *part;
  const lb_node *node;
  lb_tensor_fn *tensor;
  void *user;
  lb_binding *out;
  lb_tensor x, y;
  int space;
  int64_t groups, group_in, group_out;  // channels of one
  axis axes[MAX_SPACE];
  zone zones[MAX_SPACE];  // the present one
  int rows;               // the axis of the kernel's rows, or BATCH
  int run, step;          // the axes of taps, -1: none
  bool adjacent;          // steps are one piece
  bool planar;            // the last axis is the piece, channels are steps
  bool weighted;          // it multiplies
  // Of operands that lie like the result: along batch, space and channels.
  int64_t strides[LB_SPEC_MAX_IN + 1][MAX_SPACE + 2];
} binder;

static void set_pads(const binder *b, int i, axis *a) {
  const char *mode = lb_attr_str(b->node, "auto_pad", "NOTSET");
  int64_t extent = (a->kernel - 1) * a->dilation + 1;
  int64_t all = (a->out - 1) * a->stride + extent - a->in;
  if (is_transposed(b->node)) all = (a->in - 1) * a->stride + extent - a->out;
  if (all < 0) all = 0;
  if (strcmp(mode, "SAME_UPPER") == 0)
    a->before = all / 2, a->after = all - all / 2;
  else if (strcmp(mode, "SAME_LOWER") == 0)
    a->before = all - all / 2, a->after = all / 2;
  else if (strcmp(mode, "VALID") != 0)
    a->before = lb_attr_int_at(b->node, "pads", i, 0),
    a->after = lb_attr_int_at(b->node, "pads", b->space + i, 0);
}

static bool read_axes(binder *b) {
  const lb_node *n = b->node;
  bool with_pads = lb_attr_int(n, "count_include_pad", 0) != 0;
  bool turned = is_transposed(n);
  for (int i = 0; i < b->space; i++) {
    axis *a = &b->axes[i];
    a->in = b->x.dims[1 + i];
    a->out = b->y.dims[1 + i];
    a->kernel = kernel_of(n, i);
    a->stride = lb_attr_int_at(n, "strides", i, 1);
    a->dilation = lb_attr_int_at(n, "dilations", i, 1);
    a->before = a->after = 0;
    set_pads(b, i, a);
    bool piece = b->planar && i == b->space - 1;
    if ((turned || piece) && a->dilation != 1) return false;
    if (a->in < 1 || !find_zones(a, turned, with_pads)) return false;
  }
  return true;
}

// Has the image the channels that weights and result are made for?
static bool channels_fit(const binder *b) {
  int c = b->x.rank - 1;
  const lb_tensor *w = weights_of(b->node);
  if (!w) return b->x.dims[c] == b->y.dims[c];
  if (is_depthwise(b->node)) return b->x.dims[c] == w->dims[0];
  return b->x.dims[c] == b->groups * channels_of(b->node).in;
}

static lb_status read(binder *b, bool *ok) {
  const lb_partition *p = b->part;
  const lb_node *last = p->nodes[p->n_nodes - 1];
  LB_TRY(b->tensor(b->user, b->node->in[0], &b->x));
  LB_TRY(b->tensor(b->user, last->out[0], &b->y));
  int c = b->x.rank - 1;
  b->space = b->x.rank - 2;
  b->groups = groups_of(b->node);
  if (is_depthwise(b->node)) b->groups = 1;
  b->group_in = b->x.dims[c] / b->groups;
  b->group_out = b->y.dims[c] / b->groups;
  b->planar = is_planar(b->node);
  *ok = lb_tensor_count(&b->y) > 0 && b->x.dims[0] == b->y.dims[0] &&
        channels_fit(b) &&
        (b->x.strides[b->planar ? c - 1 : c] == 1 || b->x.dims[c] == 1) &&
        (b->y.strides[c] == 1 || b->y.dims[c] == 1) && read_axes(b);
  return LB_OK;
}

// Which positions zone number `zone` has; false if there is no such zone.
static bool choose_zone(binder *b, int number) {
  b->out->zones = 1;
  for (int i = b->space - 1; i >= 0; i--) {
    const axis *a = &b->axes[i];
    b->zones[i] = a->zones[number % a->n_zones];
    number /= a->n_zones;
    b->out->zones *= a->n_zones;
  }
  return number == 0;
}

static int64_t taps_of(const binder *b, int i) {
  return i < 0 ? 1 : b->zones[i].taps;
}

// What is the same at all positions of an image is a row of columns to the
// spec, so it must be the same in all images.
static bool may_take_images(const binder *b) {
  if (b->part->form != LB_FORM_CONV) return false;
  for (uint32_t i = W + 1; i < b->out->n_operands; i++) {
    bool varies = false;
    for (int k = 0; k < b->space; k++) varies |= b->strides[i][1 + k] != 0;
    if (varies != (b->strides[i][0] != 0)) return false;
  }
  return true;
}

// Taps along the last two axes that have some; rows along the longest axis.
static void choose_axes(binder *b) {
  b->run = b->step = -1;
  b->rows = b->space - 1;
  for (int i = 0; i < b->space; i++) {
    if (b->zones[i].n > b->zones[b->rows].n) b->rows = i;
    if (b->axes[i].kernel == 1 && !(b->planar && i == b->space - 1)) continue;
    b->run = b->step;
    b->step = i;
  }
  int64_t n = b->zones[b->rows].n;
  if (n < MIN_ROWS && n < b->y.dims[0] && may_take_images(b)) b->rows = BATCH;
  const zone *s = b->step < 0 ? NULL : &b->zones[b->step];
  b->adjacent = b->part->form == LB_FORM_CONV && s && s->tap_step == 1 &&
                s->weight_step == 1 && !b->planar &&
                b->x.strides[1 + b->step] == b->group_in;
}

// Where the first tap of the zone's first window is, in elements.
static int64_t first_tap(const binder *b) {
  int64_t at = 0;
  for (int i = 0; i < b->space; i++) at += b->zones[i].in * b->x.strides[1 + i];
  return at;
}

// Elements of a column of the weights from one tap to the next along axis i:
// channels lie innermost, but before the last axis where it is planar.
static int64_t weight_stride(const binder *b, int i) {
  int last = b->space - 1;
  int64_t stride = b->planar && i == last ? 1 : b->group_in;
  if (b->part->form == LB_FORM_WINDOW) stride = 1;
  for (int j = i + 1; j < b->space; j++) stride *= b->axes[j].kernel;
  return stride;
}

// -- operands ----------------------------------------------------------------

// Strides of t, whose dims line up with the last ones of the result, along
// batch, space and channels; false if it does not fit.
static bool strides_of(const binder *b, const lb_tensor *t, int64_t *out) {
  int shift = b->y.rank - t->rank;
  if (shift < 0) return false;
  for (int i = 0; i < b->y.rank; i++) {
    int64_t d = i < shift ? 1 : t->dims[i - shift];
    if (d != 1 && d != b->y.dims[i]) return false;
    out[i] = d == 1 ? 0 : t->strides[i - shift];
  }
  return true;
}

// Loops are batch and the axes of space, but the one of rows, and groups.
static void set_loops(const binder *b, lb_bind_operand *o,
                      const int64_t *strides, int64_t group, bool image) {
  int at = 0;
  if (b->rows == BATCH)
    o->row = strides[0];
  else
    o->outer[at++] = strides[0];
  o->outer[at++] = group;
  for (int i = 0; i < b->space; i++) {
    int64_t by = image ? b->zones[i].in_step : b->zones[i].out_step;
    if (i == b->rows)
      o->row = strides[1 + i] * by;
    else
      o->outer[at++] = strides[1 + i] * by;
  }
}

static void put_result_like(binder *b, uint32_t i) {
  lb_bind_operand *o = &b->out->operands[i];
  const int64_t *strides = b->strides[i];
  int c = b->y.rank - 1;
  o->offset = 0;
  for (int k = 0; k < b->space; k++)
    o->offset += b->zones[k].out * strides[1 + k];
  o->col = i == 0 ? 1 : strides[c];
  set_loops(b, o, strides, b->group_out * strides[c], false);
}

static int64_t tap_stride(const binder *b, int i) {
  return i < 0 ? 0 : b->zones[i].tap_step * b->x.strides[1 + i];
}

static void put_image(binder *b) {
  lb_bind_operand *o = &b->out->operands[X];
  o->col = 1;
  o->offset = first_tap(b);
  set_loops(b, o, b->x.strides, b->group_in, true);
  b->out->taps[0] = tap_stride(b, b->run);
  b->out->taps[1] =
      b->planar ? b->x.strides[b->x.rank - 1] : tap_stride(b, b->step);
}

// Weights of CONV: panels of all taps; of WINDOW: a row of channels each tap.
static void put_weights(binder *b) {
  lb_bind_operand *o = &b->out->operands[W];
  bool conv = b->part->form == LB_FORM_CONV;
  int64_t unit = conv ? LB_PACK_COLS : b->group_out, all = b->group_in;
  int64_t panels = (b->group_out + LB_PACK_COLS - 1) / LB_PACK_COLS;
  *o = (lb_bind_operand){.col = 1};
  for (int i = 0; i < b->space; i++) {
    all *= b->axes[i].kernel;
    o->offset += b->zones[i].weight * weight_stride(b, i) * unit;
  }
  int64_t step =
      b->step < 0 ? 0
                  : b->zones[b->step].weight_step * weight_stride(b, b->step);
  if (b->planar) step = b->axes[b->space - 1].kernel;
  b->out->taps[3] = step * unit;
  if (b->run >= 0)
    b->out->taps[2] =
        b->zones[b->run].weight_step * weight_stride(b, b->run) * unit;
  if (!conv) return;
  o->row = all * unit;
  o->col = all;
  o->outer[b->rows == BATCH ? 0 : 1] = panels * o->row;
}

static void set_dims(binder *b) {
  lb_binding *o = b->out;
  int64_t steps = taps_of(b, b->step), runs = taps_of(b, b->run);
  o->dims[LB_DIM_ROWS] = b->rows == BATCH ? b->y.dims[0] : b->zones[b->rows].n;
  o->dims[LB_DIM_COLS] = b->group_out;
  o->dims[LB_DIM_K] = b->part->form == LB_FORM_CONV ? b->group_in : 1;
  o->dims[LB_DIM_LEN] = runs;
  o->dims[LB_DIM_STEPS] = steps;
  if (b->adjacent) {
    o->dims[LB_DIM_K] *= steps;
    o->dims[LB_DIM_STEPS] = steps ? 1 : 0;
  }
  if (b->planar) {
    o->dims[LB_DIM_K] = b->zones[b->space - 1].taps;
    o->dims[LB_DIM_STEPS] = b->group_in;
  }
  for (int i = 0; i < b->space; i++)
    if (b->zones[i].taps == 0) o->dims[LB_DIM_LEN] = 0;
  int at = 0;
  if (b->rows != BATCH) o->outer[at++] = b->y.dims[0];
  o->outer[at++] = b->groups;
  for (int i = 0; i < b->space; i++)
    if (i != b->rows) o->outer[at++] = b->zones[i].n;
  o->n_outer = at;
}

// Everything that the present zone decides.
static void put_operands(binder *b) {
  set_dims(b);
  put_image(b);
  if (b->weighted) put_weights(b);
  for (uint32_t i = 0; i < b->out->n_operands; i++)
    if (i != X && !(b->weighted && i == W)) put_result_like(b, i);
}

// -- what is read ------------------------------------------------------------

static int find(const binder *b, const lb_value *v) {
  for (uint32_t i = b->weighted ? W + 1 : X + 1; i < b->out->n_operands; i++)
    if (b->out->operands[i].value == v) return (int)i;
  return -1;
}

static bool is_inner(const binder *b, uint32_t reader, const lb_value *v) {
  for (uint32_t i = 0; i < reader; i++)
    if (b->part->nodes[i]->out[0] == v) return true;
  return false;
}

static lb_status add_value(binder *b, const lb_value *v, bool *ok) {
  uint32_t at = b->out->n_operands;
  lb_tensor t;
  LB_TRY(b->tensor(b->user, v, &t));
  *ok = at < LB_SPEC_MAX_IN && strides_of(b, &t, b->strides[at]);
  if (!*ok) return LB_OK;
  b->out->operands[at].value = v;
  b->out->n_operands++;
  return LB_OK;
}

// What the epilogue reads.
static lb_status add_values(binder *b, bool *ok) {
  const lb_partition *p = b->part;
  for (uint32_t i = 0; *ok && i < p->n_nodes; i++) {
    const lb_node *n = p->nodes[i];
    for (uint32_t k = i == p->anchor ? 2 : 0; *ok && k < n->n_in; k++) {
      const lb_value *v = n->in[k];
      if (!lb_emit_reads(n, k) || lb_emit_is_scalar(v) || is_inner(b, i, v) ||
          find(b, v) >= 0)
        continue;
      LB_TRY(add_value(b, v, ok));
    }
  }
  return LB_OK;
}

static lb_status add_operands(binder *b, bool *ok) {
  lb_bind_operand *o = b->out->operands;
  o[0].value = lb_partition_result(b->part);
  memcpy(b->strides[0], b->y.strides, sizeof b->strides[0]);
  o[X].value = b->node->in[0];
  o[W].value = NULL;
  b->out->n_operands = b->weighted ? W + 1 : X + 1;
  return add_values(b, ok);
}

// -- the spec ----------------------------------------------------------------

// What an epilogue reads: of each element, or the same for all of an image.
static lb_layout layout_of(const binder *b, const int64_t *strides) {
  bool varies = false;
  int c = b->y.rank - 1;
  for (int i = 0; i < b->space; i++) varies = varies || strides[1 + i] != 0;
  if (strides[c] == 1) return varies ? LB_LAYOUT_FULL : LB_LAYOUT_COLS;
  if (strides[c] != 0) return LB_LAYOUT_STRIDED;
  return varies ? LB_LAYOUT_ROWS : LB_LAYOUT_ONE;
}

static lb_memo_key key_of(const binder *b) {
  const lb_partition *p = b->part;
  lb_memo_key key = {.nodes = p->nodes,
                     .n_nodes = (uint8_t)p->n_nodes,
                     .form = (uint8_t)p->form,
                     .n_operands = (uint8_t)b->out->n_operands};
  key.layouts[0] = key.layouts[X] = LB_LAYOUT_FULL;
  if (b->weighted)
    key.layouts[W] =
        p->form == LB_FORM_CONV ? LB_LAYOUT_PACKED : LB_LAYOUT_FULL;
  for (uint32_t i = b->weighted ? W + 1 : X + 1; i < key.n_operands; i++)
    key.layouts[i] = (uint8_t)layout_of(b, b->strides[i]);
  return key;
}

static uint8_t source_of(void *user, lb_emitter *e, uint32_t reader,
                         const lb_value *v) {
  (void)e, (void)reader;
  return (uint8_t)(find(user, v) - 1);
}

static double averaged(const binder *b) {
  double count = 1;
  for (int i = 0; i < b->space; i++) count *= (double)b->zones[i].counted;
  return count;
}

static lb_status build_spec(binder *b, bool *ok) {
  const lb_partition *p = b->part;
  lb_memo_key key = key_of(b);
  lb_emission m = {.nodes = p->nodes,
                   .n_nodes = p->n_nodes,
                   .anchor = p->anchor,
                   .product = true,
                   .acc = lb_window_acc(b->node),
                   .average = averaged(b),
                   .source = source_of,
                   .user = b};
  *ok = lb_bind_known(p, &key, m.average, b->out);
  if (*ok) return LB_OK;
  lb_emitter e = {0};
  lb_spec_begin(&e.b, p->form);
  for (uint32_t i = 1; i < key.n_operands; i++) {
    const lb_value *v = b->out->operands[i].value;
    lb_spec_input(&e.b, v ? v->info.dtype : LB_F32, key.layouts[i]);
  }
  lb_spec_output(&e.b, lb_emit_nodes(&e, &m), key.layouts[0]);
  return lb_bind_new(p, &key, &e, b->out, ok);
}

// -- all ---------------------------------------------------------------------

// Not cleared: of axes there is room for many zones.
static void binder_init(binder *b, const lb_partition *p, lb_binding *out) {
  b->part = p;
  b->node = p->nodes[p->anchor];
  b->out = out;
  b->weighted = lb_window_acc(b->node) == LB_ACC_DOT;
}

static bool put_zone(binder *b, int number) {
  if (!choose_zone(b, number)) return false;
  choose_axes(b);
  put_operands(b);
  return true;
}

lb_status lb_window_bind(const lb_partition *p, lb_tensor_fn *tensor,
                         void *user, lb_binding *out, bool *ok) {
  binder b;
  binder_init(&b, p, out);
  b.tensor = tensor, b.user = user;
  lb_bind_begin(out);
  LB_TRY(read(&b, ok));
  if (*ok) LB_TRY(add_operands(&b, ok));
  *ok = *ok && put_zone(&b, 0);
  return *ok ? build_spec(&b, ok) : LB_OK;
}

// The only scalar that differs is the first one of an average.
lb_status lb_window_bind_zones(const lb_partition *p, const lb_binding *first,
                               lb_tensor_fn *tensor, lb_zone_fn *each,
                               void *user) {
  binder b;
  lb_binding out = *first;
  bool ok;
  binder_init(&b, p, &out);
  b.tensor = tensor, b.user = user;
  LB_TRY(read(&b, &ok));
  if (ok) LB_TRY(add_operands(&b, &ok));
  for (int i = 1; i < first->zones; i++) {
    if (!ok || !put_zone(&b, i))
      return lb_error(LB_INTERNAL, "a window has no zone %d", i);
    if (b.node->op == LB_OP_AveragePool)
      out.scalars[0] = lb_emit_number(LB_F32, averaged(&b));
    LB_TRY(each(user, &out));
  }
  return LB_OK;
}
