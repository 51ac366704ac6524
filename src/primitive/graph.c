// primitive/graph.c -- builds one node for the operator, or a few where ONNX
// has no single one; one or two for each post-operation; and a Transpose for
// each channels-last tensor, which the graph passes absorb.
#include "primitive/graph.h"

#include <stdio.h>
#include <string.h>

#include "graph/infer.h"

typedef struct build {
  lb_primitive_graph *out;
  lb_graph *g;
  lb_arena *scratch;
  const limber_primitive_desc *d;
  lb_value *in[LIMBER_MAX_OPERANDS];  // NULL: absent
} build;

// -- nodes -------------------------------------------------------------------

// Creates a node. The caller sets its attributes, then calls `finish`.
static lb_status begin(build *b, lb_op op, const char *name,
                       lb_value *const *in, uint32_t n_in, uint32_t n_out,
                       lb_node **out) {
  LB_TRY(lb_node_new(b->g->main, op, name, n_in, n_out, out));
  for (uint32_t i = 0; i < n_in; i++) (*out)->in[i] = in[i];
  for (uint32_t i = 0; i < n_out; i++) {
    lb_value *v;
    char text[64];
    snprintf(text, sizeof text, "v%u", b->g->n_values);
    LB_TRY(lb_value_new(b->g, text, &v));
    v->region = b->g->main;
    lb_node_set_out(*out, i, v);
  }
  return LB_OK;
}

static lb_status finish(build *b, lb_node *n, lb_value **out) {
  LB_TRY(lb_infer_outputs(b->g, b->scratch, n));
  *out = n->out[0];
  return LB_OK;
}

static lb_status add(build *b, lb_op op, const char *name, lb_value *const *in,
                     uint32_t n_in, lb_value **out) {
  lb_node *n;
  LB_TRY(begin(b, op, name, in, n_in, 1, &n));
  return finish(b, n, out);
}

static lb_status transpose(build *b, lb_value *x, const int64_t *perm,
                           lb_value **out) {
  lb_node *n;
  LB_TRY(begin(b, LB_OP_Transpose, "layout", &x, 1, 1, &n));
  LB_TRY(lb_node_set_ints(b->g, n, "perm", perm, (uint32_t)x->info.rank));
  return finish(b, n, out);
}

// Transposes [batch, spatial..., channels] to [batch, channels, spatial...].
static lb_status to_channels_first(build *b, lb_value *x, lb_value **out) {
  int64_t perm[LB_MAX_RANK];
  int rank = x->info.rank;
  for (int i = 0; i < rank; i++)
    perm[i] = i == 0 ? 0 : i == 1 ? rank - 1 : i - 1;
  return transpose(b, x, perm, out);
}

static lb_status to_channels_last(build *b, lb_value *x, lb_value **out) {
  int64_t perm[LB_MAX_RANK];
  int rank = x->info.rank;
  for (int i = 0; i < rank; i++)
    perm[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
  return transpose(b, x, perm, out);
}

// Returns ONNX's number of a dtype.
static int64_t onnx_type(lb_dtype t) {
  int64_t code = 1;
  while (code < 32 && lb_attr_dtype(code) != t) code++;
  return code;
}

static lb_status cast(build *b, lb_value *x, lb_dtype to, const char *name,
                      lb_value **out) {
  lb_node *n;
  LB_TRY(begin(b, LB_OP_Cast, name, &x, 1, 1, &n));
  LB_TRY(lb_node_set_int(b->g, n, "to", onnx_type(to)));
  return finish(b, n, out);
}

// Creates a scalar constant of x's dtype.
static lb_status scalar(build *b, const lb_value *x, float v, lb_value **out) {
  LB_TRY(lb_const_f32(b->g, "scalar", v, out));
  if (x->info.dtype == LB_F32) return LB_OK;
  return cast(b, *out, x->info.dtype, "scalar", out);
}

// -- operands ----------------------------------------------------------------

static void dims_in_memory(const limber_operand *o, int64_t *dims) {
  for (int i = 0; i < o->rank; i++) dims[i] = o->dims[i];
  if (!lb_desc_operand_is_channels_last(o)) return;
  for (int i = 1; i < o->rank - 1; i++) dims[i] = o->dims[i + 1];
  dims[o->rank - 1] = o->dims[1];
}

static lb_status constant(build *b, const limber_operand *o, const char *name,
                          lb_value **out) {
  lb_tensor t = {.dtype = (lb_dtype)o->dtype, .rank = o->rank};
  size_t bytes = lb_desc_operand_bytes(o);
  dims_in_memory(o, t.dims);
  lb_tensor_dense(&t);
  t.data = lb_arena_alloc(&b->g->arena, bytes, 64);
  if (!t.data) return lb_oom();
  if (bytes) memcpy(t.data, o->data, bytes);
  return lb_const_new(b->g, name, &t, out);
}

// Creates a graph input whose dims are in the order of memory.
static lb_status param(build *b, lb_dtype dtype, int rank, const lb_dim *dims,
                       const lb_port *port, lb_value **out) {
  LB_TRY(lb_value_new(b->g, port->name, out));
  (*out)->info.dtype = dtype;
  (*out)->info.rank = rank;
  memcpy((*out)->info.dims, dims, (size_t)rank * sizeof *dims);
  LB_TRY(lb_region_add_param(b->g->main, *out));
  b->out->in[b->out->n_in++] = *port;
  return LB_OK;
}

static lb_status operand(build *b, const limber_operand *o, const char *name,
                         lb_value **out) {
  lb_port port = {.name = name,
                  .channels_last = lb_desc_operand_is_channels_last(o)};
  int64_t sizes[LB_MAX_RANK];
  lb_dim dims[LB_MAX_RANK];
  dims_in_memory(o, sizes);
  if (o->data) {
    LB_TRY(constant(b, o, name, out));
  } else {
    for (int i = 0; i < o->rank; i++) {
      dims[i] = lb_dim_const(sizes[i]);
      if (sizes[i] == LIMBER_RUNTIME_DIM)
        LB_TRY(lb_symtab_fresh(b->g->syms, &dims[i]));
    }
    LB_TRY(param(b, (lb_dtype)o->dtype, o->rank, dims, &port, out));
  }
  return port.channels_last ? to_channels_first(b, *out, out) : LB_OK;
}

static lb_status operands(build *b) {
  const lb_kind_info *kind = &lb_kind_infos[b->d->kind];
  for (uint32_t i = 0; i < kind->max_in; i++)
    if (lb_desc_operand_is_present(&b->d->in[i]))
      LB_TRY(operand(b, &b->d->in[i], kind->in[i].name, &b->in[i]));
  return LB_OK;
}

// The number of operands up to the last one that is present.
static uint32_t n_operands(const build *b) { return lb_desc_operands(b->d); }

// -- the kinds ---------------------------------------------------------------

static lb_status set_axes(build *b, lb_node *n, const char *name,
                          const int64_t *v, int count, int64_t dflt) {
  int64_t list[2 * LIMBER_MAX_SPATIAL];
  for (int i = 0; i < count; i++) list[i] = v[i] ? v[i] : dflt;
  return lb_node_set_ints(b->g, n, name, list, (uint32_t)count);
}

// `pads` are [begin..., end...], for the spatial axes of src only.
static lb_status set_window(build *b, lb_node *n, int n_spatial) {
  LB_TRY(set_axes(b, n, "strides", b->d->strides, n_spatial, 1));
  LB_TRY(set_axes(b, n, "dilations", b->d->dilations, n_spatial, 1));
  return set_axes(b, n, "pads", b->d->pads, 2 * n_spatial, 0);
}

static bool is_byte(const lb_value *v) {
  return v->info.dtype == LB_I8 || v->info.dtype == LB_U8;
}

static lb_status swap_last(build *b, lb_value *x, lb_value **out) {
  int64_t perm[LB_MAX_RANK];
  int rank = x->info.rank;
  if (rank < 2)
    return lb_error(LB_INVALID, "transpose: '%s' has rank %d", x->name, rank);
  for (int i = 0; i < rank; i++) perm[i] = i;
  perm[rank - 2] = rank - 1;
  perm[rank - 1] = rank - 2;
  return transpose(b, x, perm, out);
}

static lb_status build_gemm(build *b, lb_value **out) {
  lb_node *n;
  LB_TRY(begin(b, LB_OP_Gemm, "matmul", b->in, b->in[2] ? 3 : 2, 1, &n));
  LB_TRY(lb_node_set_int(b->g, n, "transA", b->d->transpose & 1));
  LB_TRY(lb_node_set_int(b->g, n, "transB", b->d->transpose >> 1 & 1));
  return finish(b, n, out);
}

static lb_status build_matmul(build *b, lb_value **out) {
  lb_op op = is_byte(b->in[0]) ? LB_OP_MatMulInteger : LB_OP_MatMul;
  bool flat = b->in[0]->info.rank == 2 && b->in[1]->info.rank == 2;
  if (flat && op == LB_OP_MatMul) return build_gemm(b, out);
  for (int i = 0; i < 2; i++)
    if (b->d->transpose >> i & 1) LB_TRY(swap_last(b, b->in[i], &b->in[i]));
  LB_TRY(add(b, op, "matmul", b->in, 2, out));
  if (!b->in[2]) return LB_OK;
  return add(b, LB_OP_Add, "bias", (lb_value *[]){*out, b->in[2]}, 2, out);
}

static lb_status build_convolution(build *b, lb_value **out) {
  int n_spatial = b->d->in[0].rank - 2;
  lb_op op = lb_alg_infos[lb_desc_alg(b->d)].op;
  bool bytes = op == LB_OP_Conv && is_byte(b->in[0]);
  uint32_t n_in = b->in[2] && !bytes ? 3 : 2;
  lb_node *n;
  LB_TRY(begin(b, bytes ? LB_OP_ConvInteger : op, "convolution", b->in, n_in, 1,
               &n));
  LB_TRY(set_window(b, n, n_spatial));
  LB_TRY(lb_node_set_int(b->g, n, "group", b->d->groups ? b->d->groups : 1));
  if (op == LB_OP_ConvTranspose)
    LB_TRY(set_axes(b, n, "output_padding", b->d->output_pads, n_spatial, 0));
  LB_TRY(finish(b, n, out));
  if (!bytes || !b->in[2]) return LB_OK;
  return lb_error(LB_UNSUPPORTED,
                  "in[2] (bias): an int8 convolution takes none; append a "
                  "binary post-operation");
}

static lb_status eltwise(build *b, int alg, float alpha, float beta,
                         const char *name, lb_value **x) {
  const lb_alg_info *info = &lb_alg_infos[alg];
  lb_value *in[3] = {*x};
  lb_node *n;
  if (alg == LIMBER_ALG_SQUARE) in[1] = *x;
  if (alg == LIMBER_ALG_LINEAR || alg == LIMBER_ALG_CLIP)
    LB_TRY(scalar(b, *x, alpha, &in[1]));
  if (alg == LIMBER_ALG_LINEAR || alg == LIMBER_ALG_CLIP)
    LB_TRY(scalar(b, *x, beta, &in[2]));
  uint32_t n_in = alg == LIMBER_ALG_CLIP ? 3 : in[1] ? 2 : 1;
  LB_TRY(begin(b, info->op, name, in, n_in, 1, &n));
  bool attrs = n_in == 1 && info->params;
  if (attrs) LB_TRY(lb_node_set_float(b->g, n, "alpha", alpha));
  if (attrs && info->params == LB_PARAMS_BOTH)
    LB_TRY(lb_node_set_float(b->g, n, "beta", beta));
  if (alg == LIMBER_ALG_GELU_TANH)
    LB_TRY(lb_node_set_str(b->g, n, "approximate", "tanh"));
  LB_TRY(finish(b, n, x));
  if (alg != LIMBER_ALG_LINEAR) return LB_OK;
  return add(b, LB_OP_Add, name, (lb_value *[]){*x, in[2]}, 2, x);
}

static lb_status build_eltwise(build *b, lb_value **out) {
  *out = b->in[0];
  return eltwise(b, b->d->alg, b->d->alpha, b->d->beta, "eltwise", out);
}

static lb_status build_binary(build *b, lb_value **out) {
  return add(b, lb_alg_infos[b->d->alg].op, "binary", b->in, 2, out);
}

static lb_status build_reduction(build *b, lb_value **out) {
  int64_t axes[LB_MAX_RANK];
  lb_value *in[2] = {b->in[0]};
  lb_node *n;
  for (int i = 0; i < b->d->n_axes; i++) axes[i] = b->d->axes[i];
  if (b->d->n_axes)
    LB_TRY(lb_const_ints(b->g, "axes", axes, b->d->n_axes, &in[1]));
  LB_TRY(begin(b, lb_alg_infos[b->d->alg].op, "reduction", in, in[1] ? 2 : 1, 1,
               &n));
  LB_TRY(lb_node_set_int(b->g, n, "keepdims", b->d->keep_dims));
  return finish(b, n, out);
}

static lb_status build_softmax(build *b, lb_value **out) {
  lb_node *n;
  LB_TRY(
      begin(b, lb_alg_infos[lb_desc_alg(b->d)].op, "softmax", b->in, 1, 1, &n));
  LB_TRY(lb_node_set_int(b->g, n, "axis", b->d->axis));
  return finish(b, n, out);
}

// Checks the number of operands: batch norm needs mean and variance.
static lb_status check_norm(const build *b) {
  const lb_op_info *op = &lb_op_infos[lb_alg_infos[b->d->alg].op];
  const lb_kind_info *kind = &lb_kind_infos[LIMBER_NORMALIZATION];
  bool by_axis =
      b->d->alg == LIMBER_ALG_LAYER_NORM || b->d->alg == LIMBER_ALG_RMS_NORM;
  for (uint32_t i = 0; i < kind->max_in; i++) {
    if (!b->in[i] && i < (uint32_t)op->min_in)
      return lb_error(LB_INVALID, "in[%u]: %s needs its operand '%s'", i,
                      lb_alg_infos[b->d->alg].name, kind->in[i].name);
    if (b->in[i] && i >= (uint32_t)op->max_in)
      return lb_error(LB_INVALID, "in[%u]: %s has no operand '%s'", i,
                      lb_alg_infos[b->d->alg].name, kind->in[i].name);
  }
  if (b->d->axis && !by_axis)
    return lb_error(LB_INVALID, "axis: %s has none; it must be 0",
                    lb_alg_infos[b->d->alg].name);
  if (b->d->groups && b->d->alg != LIMBER_ALG_GROUP_NORM)
    return lb_error(LB_INVALID, "groups: %s has none; it must be 0",
                    lb_alg_infos[b->d->alg].name);
  return LB_OK;
}

static lb_status build_norm(build *b, lb_value **out) {
  lb_node *n;
  float epsilon = b->d->epsilon != 0 ? b->d->epsilon : 1e-5f;
  LB_TRY(check_norm(b));
  LB_TRY(begin(b, lb_alg_infos[b->d->alg].op, "normalization", b->in,
               n_operands(b), 1, &n));
  LB_TRY(lb_node_set_float(b->g, n, "epsilon", epsilon));
  if (b->d->alg == LIMBER_ALG_LAYER_NORM || b->d->alg == LIMBER_ALG_RMS_NORM)
    LB_TRY(lb_node_set_int(b->g, n, "axis", b->d->axis));
  if (b->d->alg == LIMBER_ALG_GROUP_NORM)
    LB_TRY(lb_node_set_int(b->g, n, "num_groups",
                           b->d->groups ? b->d->groups : 1));
  return finish(b, n, out);
}

static bool is_global(int alg) {
  return alg == LIMBER_ALG_POOL_GLOBAL_MAX ||
         alg == LIMBER_ALG_POOL_GLOBAL_AVERAGE;
}

static lb_status build_pooling(build *b, lb_value **out) {
  int n_spatial = b->d->in[0].rank - 2;
  lb_node *n;
  LB_TRY(begin(b, lb_alg_infos[b->d->alg].op, "pooling", b->in, 1, 1, &n));
  if (is_global(b->d->alg)) return finish(b, n, out);
  for (int i = 0; i < n_spatial; i++)
    if (!b->d->kernel[i])
      return lb_error(LB_INVALID, "kernel[%d]: must not be 0", i);
  LB_TRY(set_axes(b, n, "kernel_shape", b->d->kernel, n_spatial, 0));
  LB_TRY(set_window(b, n, n_spatial));
  LB_TRY(lb_node_set_int(b->g, n, "ceil_mode", b->d->ceil_mode));
  if (b->d->alg == LIMBER_ALG_POOL_AVERAGE_PADDED)
    LB_TRY(lb_node_set_int(b->g, n, "count_include_pad", 1));
  return finish(b, n, out);
}

static lb_status build_reorder(build *b, lb_value **out) {
  int64_t perm[LB_MAX_RANK];
  lb_dtype dtype = (lb_dtype)b->d->out_dtype;
  int rank = b->d->in[0].rank;
  *out = b->in[0];
  for (int i = 0; i < b->d->n_axes; i++)
    perm[i] = b->d->axes[i] < 0 ? b->d->axes[i] + rank : b->d->axes[i];
  if (b->d->n_axes) LB_TRY(transpose(b, *out, perm, out));
  if (dtype && dtype != (*out)->info.dtype)
    LB_TRY(cast(b, *out, dtype, "reorder", out));
  // The result of a graph must be the output of a node.
  if ((*out)->producer) return LB_OK;
  return add(b, LB_OP_Identity, "reorder", out, 1, out);
}

static lb_status build_concat(build *b, lb_value **out) {
  lb_node *n;
  for (uint32_t i = 0; i < n_operands(b); i++)
    if (!b->in[i])
      return lb_error(LB_INVALID,
                      "in[%u]: is absent, but a later operand is present", i);
  LB_TRY(begin(b, LB_OP_Concat, "concat", b->in, n_operands(b), 1, &n));
  LB_TRY(lb_node_set_int(b->g, n, "axis", b->d->axis));
  return finish(b, n, out);
}

static lb_status build_resampling(build *b, lb_value **out) {
  static const char *const modes[] = {"nearest", "linear", "cubic"};
  int n_spatial = b->d->in[0].rank - 2;
  int64_t axes[LIMBER_MAX_SPATIAL], dim = n_spatial;
  bool by_size = b->d->sizes[0] != 0, by_factor = b->d->factors[0] != 0;
  lb_value *in[4] = {b->in[0]};
  lb_node *n;
  if (by_size == by_factor)
    return lb_error(LB_INVALID,
                    "factors, sizes: set exactly one of them, for each spatial "
                    "axis");
  if (by_size) {
    LB_TRY(lb_const_ints(b->g, "sizes", b->d->sizes, n_spatial, &in[3]));
  } else {
    lb_tensor t = {.dtype = LB_F32, .rank = 1, .dims = {dim}};
    t.data = lb_arena_new(&b->g->arena, float, (size_t)n_spatial);
    if (!t.data) return lb_oom();
    memcpy(t.data, b->d->factors, (size_t)n_spatial * sizeof(float));
    lb_tensor_dense(&t);
    LB_TRY(lb_const_new(b->g, "factors", &t, &in[2]));
  }
  LB_TRY(begin(b, LB_OP_Resize, "resampling", in, by_size ? 4 : 3, 1, &n));
  for (int i = 0; i < n_spatial; i++) axes[i] = i + 2;
  LB_TRY(lb_node_set_ints(b->g, n, "axes", axes, (uint32_t)n_spatial));
  LB_TRY(
      lb_node_set_str(b->g, n, "mode", modes[b->d->alg - LIMBER_ALG_NEAREST]));
  return finish(b, n, out);
}

static lb_status set_activations(build *b, lb_node *n, uint32_t count) {
  const char **list = lb_arena_new(&b->g->arena, const char *, count);
  if (!list) return lb_oom();
  for (uint32_t i = 0; i < count; i++) list[i] = "Relu";
  lb_attr attr = {.name = "activations", .kind = LB_ATTR_STRINGS, .n = count};
  attr.strings = list;
  return lb_node_add_attr(b->g, n, attr);
}

static lb_status build_recurrent(build *b, lb_value **out) {
  static const char *const directions[] = {"forward", "reverse",
                                           "bidirectional"};
  const limber_operand *r = &b->d->in[2];
  bool lstm = b->d->alg == LIMBER_ALG_LSTM;
  lb_node *n;
  if (b->in[6] && !lstm)
    return lb_error(LB_INVALID, "in[6] (cell): only lstm takes it");
  if (r->rank != 3)
    return lb_error(LB_INVALID,
                    "in[2] (recurrence): rank: %d is not 3: directions, gates "
                    "x units, units",
                    r->rank);
  LB_TRY(begin(b, lb_alg_infos[b->d->alg].op, "recurrent", b->in, n_operands(b),
               lstm ? 3 : 2, &n));
  LB_TRY(lb_node_set_int(b->g, n, "hidden_size", r->dims[2]));
  LB_TRY(lb_node_set_str(b->g, n, "direction", directions[b->d->direction]));
  if (b->d->alg == LIMBER_ALG_GRU)
    LB_TRY(lb_node_set_int(b->g, n, "linear_before_reset", b->d->reset_after));
  if (b->d->alg == LIMBER_ALG_RNN_RELU)
    LB_TRY(set_activations(b, n, b->d->direction == 2 ? 2 : 1));
  return finish(b, n, out);
}

static lb_status build_attention(build *b, lb_value **out) {
  lb_node *n;
  LB_TRY(begin(b, LB_OP_Attention, "attention", b->in, n_operands(b), 1, &n));
  if (b->d->alpha != 0)
    LB_TRY(lb_node_set_float(b->g, n, "scale", b->d->alpha));
  LB_TRY(lb_node_set_int(b->g, n, "is_causal", b->d->causal));
  return finish(b, n, out);
}

static lb_status build_operator(build *b, lb_value **out) {
  switch ((limber_primitive_kind)b->d->kind) {
    case LIMBER_MATMUL: return build_matmul(b, out);
    case LIMBER_CONVOLUTION: return build_convolution(b, out);
    case LIMBER_ELTWISE: return build_eltwise(b, out);
    case LIMBER_BINARY: return build_binary(b, out);
    case LIMBER_REDUCTION: return build_reduction(b, out);
    case LIMBER_SOFTMAX: return build_softmax(b, out);
    case LIMBER_NORMALIZATION: return build_norm(b, out);
    case LIMBER_POOLING: return build_pooling(b, out);
    case LIMBER_REORDER: return build_reorder(b, out);
    case LIMBER_CONCAT: return build_concat(b, out);
    case LIMBER_RESAMPLING: return build_resampling(b, out);
    case LIMBER_RECURRENT: return build_recurrent(b, out);
    case LIMBER_ATTENTION: return build_attention(b, out);
    case LIMBER_PRIMITIVE_KINDS: break;
  }
  return lb_error(LB_INTERNAL, "kind %d was not checked", b->d->kind);
}

// -- post-operations ---------------------------------------------------------

// Returns the dim of a graph input that must equal a dim of y. If that is a
// number or a symbol, it is used itself, and runs compare it with the other
// inputs; otherwise the dim is a new symbol, and the broadcast of the operator
// compares the two.
static lb_status dim_like(build *b, lb_dim of_y, lb_dim *out) {
  int symbol;
  *out = of_y;
  if (lb_dim_is_const(of_y) || lb_dim_as_symbol(of_y, &symbol)) return LB_OK;
  return lb_symtab_fresh(b->g->syms, out);
}

// Copies dims in ONNX order into the order of memory of that layout.
static void order_dims(const lb_dim *from, int rank, bool channels_last,
                       lb_dim *to) {
  for (int i = 0; i < rank; i++)
    to[i] = from[!channels_last || i == 0 ? i : i == rank - 1 ? 1 : i + 1];
}

static lb_status post_param(build *b, const lb_dim *dims, int rank,
                            lb_dtype dtype, const lb_port *port,
                            lb_value **out) {
  lb_dim memory_dims[LB_MAX_RANK];
  order_dims(dims, rank, port->channels_last, memory_dims);
  LB_TRY(param(b, dtype, rank, memory_dims, port, out));
  return port->channels_last ? to_channels_first(b, *out, out) : LB_OK;
}

// A runtime dim is the dim of y on the same axis, counted from the end.
static lb_status post_operand(build *b, const lb_post *p, const lb_value *y,
                              const char *name, lb_value **out) {
  const limber_operand *o = &p->in;
  lb_dim dims[LB_MAX_RANK];
  lb_port port = {.name = name,
                  .channels_last = lb_desc_operand_is_channels_last(o)};
  int shift = y->info.rank - o->rank;
  if (o->data) return operand(b, o, name, out);
  if (shift < 0)
    return lb_error(LB_INVALID, "%s: rank %d exceeds the result's rank, %d",
                    name, o->rank, y->info.rank);
  for (int i = 0; i < o->rank; i++) {
    dims[i] = lb_dim_const(o->dims[i]);
    if (o->dims[i] == LIMBER_RUNTIME_DIM)
      LB_TRY(dim_like(b, y->info.dims[shift + i], &dims[i]));
  }
  return post_param(b, dims, o->rank, (lb_dtype)o->dtype, &port, out);
}

static lb_status post_sum(build *b, const lb_post *p, bool channels_last,
                          const char *name, lb_value **y) {
  lb_dim dims[LB_MAX_RANK];
  const lb_vinfo info = (*y)->info;
  lb_port port = {.name = name, .channels_last = channels_last, .sum = true};
  lb_value *x, *scale;
  for (int i = 0; i < info.rank; i++)
    LB_TRY(dim_like(b, info.dims[i], &dims[i]));
  LB_TRY(post_param(b, dims, info.rank, info.dtype, &port, &x));
  if (p->alpha != 1) {
    LB_TRY(scalar(b, x, p->alpha, &scale));
    LB_TRY(add(b, LB_OP_Mul, name, (lb_value *[]){x, scale}, 2, &x));
  }
  return add(b, LB_OP_Add, name, (lb_value *[]){*y, x}, 2, y);
}

// A post-operation must not change the dims of the result.
static lb_status same_dims(const lb_vinfo *was, const lb_value *y,
                           const char *name) {
  bool same = was->rank == y->info.rank;
  for (int i = 0; same && i < was->rank; i++)
    same = !lb_dim_is_const(was->dims[i]) ||
           !lb_dim_is_const(y->info.dims[i]) ||
           lb_dim_equal(was->dims[i], y->info.dims[i]);
  if (same) return LB_OK;
  return lb_error(LB_INVALID,
                  "%s: the operand does not broadcast to the result", name);
}

static lb_status post_op(build *b, const lb_post *p, bool channels_last,
                         uint32_t i, lb_value **y) {
  char text[24];
  lb_vinfo was = (*y)->info;
  snprintf(text, sizeof text, "post[%u]", i);
  const char *name = lb_arena_strdup(&b->g->arena, text);
  lb_value *in[2] = {*y};
  if (!name) return lb_oom();
  switch ((lb_post_kind)p->kind) {
    case LB_POST_ELTWISE:
      LB_TRY(eltwise(b, p->alg, p->alpha, p->beta, name, y));
      break;
    case LB_POST_BINARY:
      LB_TRY(post_operand(b, p, *y, name, &in[1]));
      LB_TRY(add(b, lb_alg_infos[p->alg].op, name, in, 2, y));
      break;
    case LB_POST_SUM: LB_TRY(post_sum(b, p, channels_last, name, y)); break;
  }
  return same_dims(&was, *y, name);
}

// -- the whole graph ---------------------------------------------------------

static lb_status add_result(build *b, lb_value *y, bool channels_last) {
  lb_primitive_graph *out = b->out;
  if (channels_last) LB_TRY(to_channels_last(b, y, &y));
  out->out[out->n_out++] =
      (lb_port){.name = "dst", .channels_last = channels_last};
  return lb_region_add_result(b->g->main, y);
}

static lb_status decide_layout(const build *b, const lb_value *y,
                               bool *channels_last) {
  int layout = b->d->out_layout ? b->d->out_layout : b->d->in[0].layout;
  *channels_last = layout == LIMBER_LAYOUT_CHANNELS_LAST && y->info.rank >= 3;
  if (*channels_last || b->d->out_layout != LIMBER_LAYOUT_CHANNELS_LAST)
    return LB_OK;
  return lb_error(LB_INVALID,
                  "out_layout: channels-last needs rank 3 or more, the result "
                  "has %d",
                  y->info.rank);
}

static lb_status fill(build *b, const lb_desc *d) {
  lb_value *y;
  bool channels_last;
  LB_TRY(operands(b));
  LB_TRY(build_operator(b, &y));
  const lb_node *op_node = y->producer;
  LB_TRY(decide_layout(b, y, &channels_last));
  for (uint32_t i = 0; i < d->attr->n_post; i++)
    LB_TRY(post_op(b, &d->attr->post[i], channels_last, i, &y));
  LB_TRY(add_result(b, y, channels_last));
  for (uint32_t i = 1; i < op_node->n_out; i++)
    LB_TRY(add_result(b, op_node->out[i], false));
  const char **names = lb_arena_new(&b->g->arena, const char *, b->out->n_out);
  if (!names) return lb_oom();
  for (uint32_t i = 0; i < b->out->n_out; i++) names[i] = "dst";
  b->g->output_names = names;
  return LB_OK;
}

lb_status lb_primitive_graph_new(const lb_desc *d, lb_primitive_graph *out) {
  lb_arena scratch;
  *out = (lb_primitive_graph){0};
  LB_TRY(lb_graph_new(&out->graph));
  lb_arena_init(&scratch, 4096);
  build b = {.out = out, .g = out->graph, .scratch = &scratch, .d = d->desc};
  lb_status st = fill(&b, d);
  lb_arena_fini(&scratch);
  if (lb_failed(st)) lb_primitive_graph_fini(out);
  return st;
}

void lb_primitive_graph_fini(lb_primitive_graph *g) {
  lb_graph_free(g->graph);
  *g = (lb_primitive_graph){0};
}
