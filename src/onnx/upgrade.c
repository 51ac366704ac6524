// onnx/upgrade.c -- rewrites operators of older opsets to the newest form.
//
// A row of the table means: before that opset, the operator needs this rewrite.
// Rewrites change a draft, whose inputs are values and whose attributes are the
// node's. Attributes that became inputs become constants. If only the default
// of an attribute changed, a missing attribute is set explicitly.
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "onnx/import.h"

// -- helpers -----------------------------------------------------------------

static lb_attr *find(lb_draft *d, const char *name, lb_attr_kind kind) {
  for (uint32_t i = 0; i < d->n_attrs; i++)
    if (d->attrs[i].kind == kind && !strcmp(d->attrs[i].name, name))
      return &d->attrs[i];
  return NULL;
}

// Removes and returns the attribute of that name and kind.
static bool take(lb_draft *d, const char *name, lb_attr_kind kind,
                 lb_attr *out) {
  lb_attr *a = find(d, name, kind), *end = d->attrs + d->n_attrs;
  if (!a) return false;
  *out = *a;
  memmove(a, a + 1, (size_t)(end - a - 1) * sizeof *a);
  d->n_attrs--;
  return true;
}

static void drop(lb_draft *d, const char *name, lb_attr_kind kind) {
  lb_attr gone;
  while (take(d, name, kind, &gone)) continue;
}

// Rewrites add at most LB_DRAFT_SPARE attributes. Names are literals.
static void set_int(lb_draft *d, const char *name, int64_t v) {
  drop(d, name, LB_ATTR_INT);
  d->attrs[d->n_attrs++] = (lb_attr){.name = name, .kind = LB_ATTR_INT, .i = v};
}

static void set_str(lb_draft *d, const char *name, const char *v) {
  drop(d, name, LB_ATTR_STRING);
  d->attrs[d->n_attrs++] = (lb_attr){
      .name = name, .kind = LB_ATTR_STRING, .n = (uint32_t)strlen(v), .s = v};
}

static void default_int(lb_draft *d, const char *name, int64_t v) {
  lb_attr a;
  set_int(d, name, take(d, name, LB_ATTR_INT, &a) ? a.i : v);
}

static lb_status missing(const lb_draft *d, const char *name) {
  return lb_error(LB_INVALID, LB_NODE_FMT " has no attribute '%s'",
                  LB_NODE_ARGS(d->src), name);
}

// Sets input i; inputs before it that the model omits are absent. Rewrites use
// i < LB_DRAFT_SPARE only.
static void set_in(lb_draft *d, uint32_t i, lb_value *v) {
  while (d->n_in <= i) d->in[d->n_in++] = NULL;
  d->in[i] = v;
}

// The name of a constant that was an attribute: "relu/max".
static void const_name(const lb_draft *d, const char *part, char *buf,
                       size_t cap) {
  snprintf(buf, cap, "%.200s/%s", d->name, part);
}

static lb_status ints_in(lb_draft *d, uint32_t i, const char *name,
                         const int64_t *v, uint32_t n) {
  char text[256];
  lb_value *made;
  const_name(d, name, text, sizeof text);
  LB_TRY(lb_const_ints(d->scope->im->graph, text, v, n, &made));
  set_in(d, i, made);
  return LB_OK;
}

// Converts an integer list attribute, if present, to input i.
static lb_status ints_to_in(lb_draft *d, uint32_t i, const char *name) {
  lb_attr a;
  if (!take(d, name, LB_ATTR_INTS, &a)) return LB_OK;
  return ints_in(d, i, name, a.ints, a.n);
}

static lb_status need_ints_to_in(lb_draft *d, uint32_t i, const char *name) {
  uint32_t before = d->n_attrs;
  LB_TRY(ints_to_in(d, i, name));
  return d->n_attrs < before ? LB_OK : missing(d, name);
}

// A float attribute that became input i must have the dtype of input 0. If that
// is not known to be float32, a CastLike node is inserted.
static lb_status float_in(lb_draft *d, uint32_t i, const char *name, float v) {
  char text[256];
  lb_value *made, *cast;
  lb_node *node;
  lb_graph *g = d->scope->im->graph;
  const_name(d, name, text, sizeof text);
  LB_TRY(lb_const_f32(g, text, v, &made));
  set_in(d, i, made);
  if (!d->in[0] || d->in[0]->info.dtype == LB_F32) return LB_OK;
  LB_TRY(lb_node_new(d->scope->region, LB_OP_CastLike, text, 2, 1, &node));
  snprintf(text, sizeof text, "%.200s/%s_cast", d->name, name);
  LB_TRY(lb_value_new(g, text, &cast));
  node->in[0] = made;
  node->in[1] = d->in[0];
  lb_node_set_out(node, 0, cast);
  d->in[i] = cast;
  return LB_OK;
}

static lb_status unsupported(const lb_draft *d, const char *why) {
  return lb_error(LB_UNSUPPORTED, LB_NODE_FMT " of opset %" PRId64 ": %s",
                  LB_NODE_ARGS(d->src), d->version, why);
}

// Operators that had only attributes have one input.
static void only_first_input(lb_draft *d) {
  if (d->n_in > 1) d->n_in = 1;
}

// -- rewrites ----------------------------------------------------------------

static lb_status flat_softmax(lb_draft *d) {
  default_int(d, "axis", 1);
  set_int(d, "flatten", 1);
  return LB_OK;
}

static lb_status axes_attr(lb_draft *d) {
  only_first_input(d);
  return ints_to_in(d, 1, "axes");
}

static lb_status unsqueeze_axes(lb_draft *d) {
  only_first_input(d);
  return need_ints_to_in(d, 1, "axes");
}

static lb_status split_attr(lb_draft *d) {
  only_first_input(d);
  return ints_to_in(d, 1, "split");
}

static lb_status split_count(lb_draft *d) {
  bool has_sizes = d->n_in > 1 && d->in[1];
  if (!has_sizes) set_int(d, "num_outputs", d->src->n_out);
  return LB_OK;
}

static lb_status slice_attrs(lb_draft *d) {
  only_first_input(d);
  LB_TRY(need_ints_to_in(d, 1, "starts"));
  LB_TRY(need_ints_to_in(d, 2, "ends"));
  return ints_to_in(d, 3, "axes");
}

static lb_status clip_attrs(lb_draft *d) {
  lb_attr a;
  only_first_input(d);
  if (take(d, "min", LB_ATTR_FLOAT, &a) && a.f != -FLT_MAX)
    LB_TRY(float_in(d, 1, "min", a.f));
  if (take(d, "max", LB_ATTR_FLOAT, &a) && a.f != FLT_MAX)
    LB_TRY(float_in(d, 2, "max", a.f));
  return LB_OK;
}

static lb_status pad_attrs(lb_draft *d) {
  lb_attr a;
  only_first_input(d);
  LB_TRY(need_ints_to_in(d, 1, "pads"));
  if (take(d, "value", LB_ATTR_FLOAT, &a) && a.f != 0)
    LB_TRY(float_in(d, 2, "value", a.f));
  return LB_OK;
}

static lb_status top_k_attr(lb_draft *d) {
  lb_attr a;
  only_first_input(d);
  if (!take(d, "k", LB_ATTR_INT, &a)) return missing(d, "k");
  return ints_in(d, 1, "k", &a.i, 1);
}

// Before opset 10 the mask is undefined outside training, but models name it.
static lb_status dropout_mask(lb_draft *d) {
  if (d->n_out > 1) d->n_out = 1;
  return LB_OK;
}

static lb_status dropout_ratio(lb_draft *d) {
  only_first_input(d);
  drop(d, "ratio", LB_ATTR_FLOAT);
  return LB_OK;
}

// Upsample, and Resize of opset 10: `mode` is the only attribute. Opset 10 does
// not define how positions are rounded; ONNX Runtime rounds up along an axis
// that becomes smaller, otherwise down.
static lb_status old_resize(lb_draft *d) {
  lb_attr a;
  char text[256];
  lb_value *scales = d->n_in > 1 ? d->in[1] : NULL;
  if (take(d, "scales", LB_ATTR_FLOATS, &a)) {
    lb_tensor t = {.dtype = LB_F32, .rank = 1, .dims = {a.n}, .strides = {1}};
    t.data = (void *)a.floats;
    const_name(d, "scales", text, sizeof text);
    LB_TRY(lb_const_new(d->scope->im->graph, text, &t, &scales));
  }
  if (!scales) return missing(d, "scales");
  only_first_input(d);
  set_in(d, 2, scales);
  if (take(d, "mode", LB_ATTR_STRING, &a))
    set_str(d, "mode",
            strcmp(a.s, "bilinear") == 0 || strcmp(a.s, "trilinear") == 0
                ? "linear"
                : a.s);
  set_str(d, "coordinate_transformation_mode", "asymmetric");
  set_str(d, "nearest_mode", "by_scale");
  return LB_OK;
}

// Exporters of every opset write "no scales" as an empty list.
static lb_status empty_resize_inputs(lb_draft *d) {
  for (uint32_t i = 1; i < d->n_in && i < 4; i++) {
    const lb_tensor *t = lb_value_const(d->in[i]);
    if (t && lb_tensor_count(t) == 0) d->in[i] = NULL;
  }
  return LB_OK;
}

// Before opset 14, more than one output meant training mode.
static lb_status batch_norm_outputs(lb_draft *d) {
  if (d->n_out > 3)
    return unsupported(d, "outputs saved_mean and saved_var are not supported");
  if (d->n_out > 1) set_int(d, "training_mode", 1);
  return LB_OK;
}

static lb_status batch_norm_spatial(lb_draft *d) {
  lb_attr a;
  if (take(d, "spatial", LB_ATTR_INT, &a) && a.i != 1)
    return unsupported(d, "spatial=0 is not supported");
  return LB_OK;
}

static lb_status group_norm_scale(lb_draft *d) {
  set_int(d, "per_group", 1);
  return LB_OK;
}

static lb_status dft_axis(lb_draft *d) {
  lb_attr a;
  char text[256];
  lb_value *axis;
  int64_t v = take(d, "axis", LB_ATTR_INT, &a) ? a.i : 1;
  const_name(d, "axis", text, sizeof text);
  LB_TRY(lb_const_i64(d->scope->im->graph, text, v, &axis));
  if (d->n_in > 2) d->n_in = 2;
  set_in(d, 2, axis);
  return LB_OK;
}

static lb_status grid_sample_mode(lb_draft *d) {
  lb_attr a;
  if (!take(d, "mode", LB_ATTR_STRING, &a)) return LB_OK;
  const char *mode = strcmp(a.s, "bilinear") == 0  ? "linear"
                     : strcmp(a.s, "bicubic") == 0 ? "cubic"
                                                   : a.s;
  set_str(d, "mode", mode);
  return LB_OK;
}

static lb_status roi_align_mode(lb_draft *d) {
  set_str(d, "coordinate_transformation_mode", "output_half_pixel");
  return LB_OK;
}

// ONNX's default has one activation per direction, for two directions. ONNX
// Runtime writes it explicitly, even for one direction.
static lb_status rnn_activations(lb_draft *d) {
  const lb_attr *direction = find(d, "direction", LB_ATTR_STRING);
  lb_attr *a = find(d, "activations", LB_ATTR_STRINGS);
  bool both = direction && !strcasecmp(direction->s, "bidirectional");
  if (a && a->n == 2 && !both) a->n = 1;
  return LB_OK;
}

static lb_status scan_batches(lb_draft *d) {
  return unsupported(d,
                     "Scan over batches (opset 8) is not supported; opset 9 "
                     "and newer are");
}

// -- the table ---------------------------------------------------------------

// Rows of one operator are applied in order, each if the opset is older.
static const struct {
  lb_op op;
  int before;
  lb_status (*rewrite)(lb_draft *d);
} rows[] = {
    {LB_OP_Softmax, 13, flat_softmax},
    {LB_OP_LogSoftmax, 13, flat_softmax},
    {LB_OP_Hardmax, 13, flat_softmax},
    {LB_OP_ReduceSum, 13, axes_attr},
    {LB_OP_ReduceL1, 18, axes_attr},
    {LB_OP_ReduceL2, 18, axes_attr},
    {LB_OP_ReduceLogSum, 18, axes_attr},
    {LB_OP_ReduceLogSumExp, 18, axes_attr},
    {LB_OP_ReduceMax, 18, axes_attr},
    {LB_OP_ReduceMean, 18, axes_attr},
    {LB_OP_ReduceMin, 18, axes_attr},
    {LB_OP_ReduceProd, 18, axes_attr},
    {LB_OP_ReduceSumSquare, 18, axes_attr},
    {LB_OP_Squeeze, 13, axes_attr},
    {LB_OP_Unsqueeze, 13, unsqueeze_axes},
    {LB_OP_Split, 13, split_attr},
    {LB_OP_Split, 18, split_count},
    {LB_OP_Slice, 10, slice_attrs},
    {LB_OP_Clip, 11, clip_attrs},
    {LB_OP_Pad, 11, pad_attrs},
    {LB_OP_TopK, 10, top_k_attr},
    {LB_OP_Dropout, 10, dropout_mask},
    {LB_OP_Dropout, 12, dropout_ratio},
    {LB_OP_Resize, 11, old_resize},
    {LB_OP_Resize, INT32_MAX, empty_resize_inputs},
    {LB_OP_BatchNormalization, 9, batch_norm_spatial},
    {LB_OP_BatchNormalization, 14, batch_norm_outputs},
    {LB_OP_GroupNormalization, 21, group_norm_scale},
    {LB_OP_DFT, 20, dft_axis},
    {LB_OP_GridSample, 20, grid_sample_mode},
    {LB_OP_RoiAlign, 16, roi_align_mode},
    {LB_OP_RNN, INT32_MAX, rnn_activations},
    {LB_OP_Scan, 9, scan_batches},
};

lb_status lb_upgrade(lb_draft *d) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].op == d->op && d->version < rows[i].before)
      LB_TRY(rows[i].rewrite(d));
  return LB_OK;
}
