// fuse/rebuild.c -- see rebuild.h.
#include "fuse/rebuild.h"

#include <stdio.h>
#include <string.h>

#include "fuse/axes.h"
#include "fuse/ragged.h"
#include "graph/infer.h"
#include "graph/rewrite.h"
#include "graph/skip.h"

#define NAME 200  // bytes of a derived name

lb_status lb_rebuild_init(lb_rebuild *b, const lb_tokens *t) {
  const lb_graph *g = t->graph;
  lb_arena *a = t->arena;
  *b = (lb_rebuild){.tokens = t,
                    .needs = lb_arena_new(a, uint8_t, g->n_values),
                    .used = lb_arena_new(a, uint8_t, g->n_nodes),
                    .sinks = lb_arena_new(a, uint8_t, g->n_nodes),
                    .whole = lb_arena_new(a, lb_value *, g->n_values),
                    .packed = lb_arena_new(a, lb_value *, g->n_values)};
  return b->needs && b->used && b->sinks && b->whole && b->packed ? LB_OK
                                                                  : lb_oom();
}

// -- nodes -------------------------------------------------------------------

// Appends a node with one output, named after v.
static lb_status append(lb_rebuild *b, lb_op op, const lb_value *v,
                        const char *tag, lb_value *const *in, uint32_t n_in,
                        lb_node **out) {
  char name[NAME];
  lb_value *y;
  snprintf(name, sizeof name, "%s.%s", v->name, tag);
  LB_TRY(lb_node_new(b->graph->main, op, name, n_in, 1, out));
  memcpy((*out)->in, in, n_in * sizeof *in);
  LB_TRY(lb_value_new(b->graph, name, &y));
  lb_node_set_out(*out, 0, y);
  return LB_OK;
}

static lb_status apply(lb_rebuild *b, lb_op op, const lb_value *v,
                       const char *tag, lb_value *const *in, uint32_t n_in,
                       lb_value **out) {
  lb_node *n;
  LB_TRY(append(b, op, v, tag, in, n_in, &n));
  *out = n->out[0];
  return LB_OK;
}

static lb_status ints(lb_rebuild *b, const int64_t *v, int64_t n,
                      lb_value **out) {
  char name[NAME];
  snprintf(name, sizeof name, "ragged.%u", b->graph->n_values);
  return lb_const_ints(b->graph, name, v, n, out);
}

// One node whose input 1 is a list: Reshape, Squeeze, Unsqueeze.
static lb_status listed(lb_rebuild *b, lb_op op, const lb_value *v,
                        const char *tag, lb_value *x, const int64_t *list,
                        int64_t n, lb_value **out) {
  lb_value *in[2] = {x};
  LB_TRY(ints(b, list, n, &in[1]));
  return apply(b, op, v, tag, in, 2, out);
}

static lb_status gather(lb_rebuild *b, const lb_value *v, lb_value *x,
                        lb_value *indices, int axis, lb_value **out) {
  lb_value *in[] = {x, indices};
  lb_node *n;
  LB_TRY(append(b, LB_OP_Gather, v, "tokens", in, 2, &n));
  *out = n->out[0];
  return lb_node_set_int(b->graph, n, "axis", axis);
}

static lb_status slice(lb_rebuild *b, const char *tag, lb_value *x,
                       int64_t begin, int64_t end, lb_value **out) {
  lb_value *in[4] = {x};
  LB_TRY(ints(b, &begin, 1, &in[1]));
  LB_TRY(ints(b, &end, 1, &in[2]));
  LB_TRY(ints(b, &(int64_t){0}, 1, &in[3]));
  return apply(b, LB_OP_Slice, x, tag, in, 4, out);
}

// -- whole values ------------------------------------------------------------

// Constants are shared with the original.
static lb_status constant(lb_rebuild *b, const lb_value *v, lb_value **out) {
  LB_TRY(lb_value_new(b->graph, v->name, out));
  (*out)->info.dtype = v->info.dtype;
  (*out)->info.rank = v->info.rank;
  memcpy((*out)->info.dims, v->info.dims, sizeof v->info.dims);
  (*out)->info.data = v->info.data;
  return LB_OK;
}

static lb_status whole(lb_rebuild *b, const lb_value *v, lb_value **out) {
  *out = NULL;
  if (!v) return LB_OK;
  if (!b->whole[v->id] && v->info.data)
    LB_TRY(constant(b, v, &b->whole[v->id]));
  *out = b->whole[v->id];
  return *out ? LB_OK
              : lb_error(LB_INTERNAL, "'%s' is not in the graph", v->name);
}

// The node with other inputs; its outputs get the names of the original and
// `tag`.
static lb_status copy_node(lb_rebuild *b, const lb_node *from, lb_op op,
                           lb_value *const *in, uint32_t n_in, const char *tag,
                           lb_value **to) {
  lb_node *n;
  char name[NAME];
  LB_TRY(lb_node_new(b->graph->main, op, from->name, n_in, from->n_out, &n));
  memcpy(n->in, in, n_in * sizeof *in);
  LB_TRY(lb_node_copy_attrs(b->graph, n, from));
  for (uint32_t i = 0; i < from->n_out; i++) {
    const lb_value *v = from->out[i];
    if (!v) continue;
    snprintf(name, sizeof name, "%s%s", v->name, tag);
    LB_TRY(lb_value_new(b->graph, name, &to[v->id]));
    lb_node_set_out(n, i, to[v->id]);
  }
  return LB_OK;
}

static lb_status build_whole(lb_rebuild *b, const lb_node *n) {
  lb_value **in = lb_arena_new(b->tokens->arena, lb_value *, n->n_in);
  if (!in) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++) LB_TRY(whole(b, n->in[i], &in[i]));
  return copy_node(b, n, n->op, in, n->n_in, "", b->whole);
}

// -- rows of tokens ----------------------------------------------------------

// The dims after the first two, which are constants.
static int64_t copy_dims(const lb_value *v, int from, int64_t *to) {
  int64_t n = 0;
  for (int i = from; i < v->info.rank; i++) to[n++] = v->info.dims[i].k;
  return n;
}

// Reads the rows of tokens from the whole value.
static lb_status read_rows(lb_rebuild *b, const lb_value *v) {
  lb_token_fact f = lb_tokens_fact(b->tokens, v);
  lb_value *x;
  int64_t flat[LB_MAX_RANK] = {-1}, bytes;
  LB_TRY(whole(b, v, &x));
  bytes = (int64_t)lb_dtype_size(v->info.dtype);
  for (int i = 0; i < v->info.rank; i++)
    if (i != f.batch && i != f.seq && lb_dim_is_const(v->info.dims[i]))
      bytes *= v->info.dims[i].k;
  b->row_bytes += (uint32_t)bytes;
  if (f.batch == f.seq) return gather(b, v, x, b->rows, 0, &b->packed[v->id]);
  int64_t n = 1 + copy_dims(v, 2, flat + 1);
  LB_TRY(listed(b, LB_OP_Reshape, v, "flat", x, flat, n, &x));
  LB_TRY(gather(b, v, x, b->rows, 0, &x));
  return listed(b, LB_OP_Unsqueeze, v, "rows", x, &(int64_t){0}, 1,
                &b->packed[v->id]);
}

static lb_status number(lb_rebuild *b, const lb_value *v, lb_value **out) {
  double x = lb_tokens_fact(b->tokens, v).valid;
  lb_tensor t = {.dtype = v->info.dtype,
                 .data = lb_arena_zalloc(&b->graph->arena, 8, 8)};
  char name[NAME];
  if (!t.data) return lb_oom();
  switch (t.dtype) {
    case LB_BOOL:
    case LB_U8: *(uint8_t *)t.data = (uint8_t)x; break;
    case LB_I32: *(int32_t *)t.data = (int32_t)x; break;
    case LB_I64: *(int64_t *)t.data = (int64_t)x; break;
    case LB_F64: *(double *)t.data = x; break;
    case LB_F32: *(float *)t.data = (float)x; break;
    default: return lb_error(LB_INTERNAL, "'%s' has no numeric dtype", v->name);
  }
  snprintf(name, sizeof name, "%s.valid", v->name);
  return lb_const_new(b->graph, name, &t, out);
}

// A table by the position in the sequence, at the position of each token.
static lb_status by_position(lb_rebuild *b, const lb_node *n, uint32_t i,
                             lb_value **out) {
  lb_token_fact f = lb_tokens_fact(b->tokens, n->out[0]);
  int axis = f.seq - (n->out[0]->info.rank - n->in[i]->info.rank);
  lb_value *x;
  LB_TRY(whole(b, n->in[i], &x));
  return gather(b, n->in[i], x, b->positions, axis, out);
}

static lb_status operand(lb_rebuild *b, const lb_node *n, uint32_t i,
                         lb_value **out) {
  const lb_value *v = n->in[i];
  *out = NULL;
  if (!v) return LB_OK;
  switch (b->tokens->operands[n->id][i]) {
    case LB_OPERAND_ROWS:
      if (!b->packed[v->id]) LB_TRY(read_rows(b, v));
      *out = b->packed[v->id];
      return LB_OK;
    case LB_OPERAND_NUMBER: return number(b, v, out);
    case LB_OPERAND_POSITION: return by_position(b, n, i, out);
    default: return whole(b, v, out);
  }
}

// The shape of the rows of tokens: 1 sequence of as many rows as there are.
static lb_status shape_of_rows(lb_rebuild *b, const lb_value *v, int64_t rows,
                               lb_value **out) {
  lb_token_fact f = lb_tokens_fact(b->tokens, v);
  int64_t dims[LB_MAX_RANK];
  for (int i = 0; i < v->info.rank; i++)
    dims[i] = i == f.seq ? rows : i == f.batch ? 1 : v->info.dims[i].k;
  return ints(b, dims, v->info.rank, out);
}

static lb_status build_view(lb_rebuild *b, const lb_node *n) {
  bool expands = n->op == LB_OP_Expand;
  lb_value *in[2];
  LB_TRY(operand(b, n, 0, &in[0]));
  LB_TRY(shape_of_rows(b, n->out[0], expands ? 1 : -1, &in[1]));
  return apply(b, expands ? LB_OP_Expand : LB_OP_Reshape, n->out[0], "packed",
               in, 2, &b->packed[n->out[0]->id]);
}

static lb_status build_attention(lb_rebuild *b, const lb_node *n) {
  lb_value *in[4];
  for (uint32_t i = 0; i < 3; i++) LB_TRY(operand(b, n, i, &in[i]));
  in[3] = b->segments;
  return copy_node(b, n, LB_OP_RaggedAttention, in, 4, ".packed", b->packed);
}

// The input whose rows are those of the result, where a factor is 1 or a
// condition always holds; else -1.
static int same_input(const lb_tokens *t, const lb_node *n) {
  const uint8_t *how = t->operands[n->id];
  int i = -1;
  if (n->op == LB_OP_Mul)
    for (int k = 0; k < 2; k++)
      if (how[k] == LB_OPERAND_NUMBER && lb_tokens_fact(t, n->in[k]).valid == 1)
        i = 1 - k;
  if (n->op == LB_OP_Where && how[0] == LB_OPERAND_NUMBER)
    i = lb_tokens_fact(t, n->in[0]).valid != 0 ? 1 : 2;
  bool same = i >= 0 && how[i] == LB_OPERAND_ROWS &&
              lb_value_same_dims(n->in[i], n->out[0]);
  return same ? i : -1;
}

static lb_status build_rows(lb_rebuild *b, const lb_node *n) {
  if (n->op == LB_OP_Attention) return build_attention(b, n);
  if (lb_axes_states_shape(n->op)) return build_view(b, n);
  int same = same_input(b->tokens, n);
  if (same >= 0)
    return operand(b, n, (uint32_t)same, &b->packed[n->out[0]->id]);
  lb_value **in = lb_arena_new(b->tokens->arena, lb_value *, n->n_in);
  if (!in) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++) LB_TRY(operand(b, n, i, &in[i]));
  return copy_node(b, n, n->op, in, n->n_in, ".packed", b->packed);
}

// -- sinks -------------------------------------------------------------------

static lb_status packed_input(lb_rebuild *b, const lb_node *n, lb_value **out) {
  const lb_value *v = n->in[0];
  if (!b->packed[v->id]) LB_TRY(read_rows(b, v));
  *out = b->packed[v->id];
  return LB_OK;
}

// [batch, ...] as the value of the node, with the axis of the sequence if that
// has one.
static lb_status set_sink(lb_rebuild *b, const lb_node *n, bool has_axis,
                          lb_value *y) {
  const lb_value *v = n->out[0];
  if (has_axis)
    LB_TRY(listed(b, LB_OP_Unsqueeze, v, "kept", y, &(int64_t){1}, 1, &y));
  b->whole[v->id] = y;
  return LB_OK;
}

static lb_status build_sum(lb_rebuild *b, const lb_node *n) {
  lb_value *in[2] = {NULL, b->segments}, *y;
  LB_TRY(packed_input(b, n, &in[0]));
  LB_TRY(apply(b, LB_OP_SegmentSum, n->out[0], "segments", in, 2, &y));
  return set_sink(b, n, lb_attr_int(n, "keepdims", 1) != 0, y);
}

static lb_status build_first(lb_rebuild *b, const lb_node *n) {
  lb_value *x, *y;
  if (!b->first_rows)
    LB_TRY(slice(b, "first", b->segments, 0, -1, &b->first_rows));
  LB_TRY(packed_input(b, n, &x));
  LB_TRY(gather(b, n->out[0], x, b->first_rows, 1, &y));
  LB_TRY(listed(b, LB_OP_Squeeze, n->out[0], "first", y, &(int64_t){0}, 1, &y));
  bool has_axis = n->op == LB_OP_Slice || n->in[1]->info.rank == 1;
  return set_sink(b, n, has_axis, y);
}

// The number of tokens of each sequence as floats, [batch, 1, ...], expanded.
static lb_status build_count(lb_rebuild *b, const lb_node *n) {
  const lb_value *v = n->out[0];
  lb_value *in[2], *y, *shape[2];
  int64_t dims[LB_MAX_RANK];
  lb_node *cast, *concat;
  LB_TRY(slice(b, "ends", b->segments, 1, INT64_MAX, &in[0]));
  LB_TRY(slice(b, "begins", b->segments, 0, -1, &in[1]));
  LB_TRY(apply(b, LB_OP_Sub, v, "tokens", in, 2, &y));
  shape[0] = y;
  LB_TRY(append(b, LB_OP_Cast, v, "float", &y, 1, &cast));
  LB_TRY(lb_node_set_int(b->graph, cast, "to", lb_attr_code(LB_F32)));
  in[0] = cast->out[0];
  LB_TRY(number(b, n->in[0], &in[1]));
  LB_TRY(apply(b, LB_OP_Mul, v, "count", in, 2, &y));
  dims[0] = -1;
  for (int i = 1; i < v->info.rank; i++) dims[i] = 1;
  LB_TRY(listed(b, LB_OP_Reshape, v, "column", y, dims, v->info.rank, &in[0]));
  LB_TRY(apply(b, LB_OP_Shape, v, "batch", &shape[0], 1, &shape[0]));
  LB_TRY(ints(b, dims, copy_dims(v, 1, dims), &shape[1]));
  LB_TRY(append(b, LB_OP_Concat, v, "shape", shape, 2, &concat));
  LB_TRY(lb_node_set_int(b->graph, concat, "axis", 0));
  in[1] = concat->out[0];
  return apply(b, LB_OP_Expand, v, "counts", in, 2, &b->whole[v->id]);
}

static lb_status build_sink(lb_rebuild *b, const lb_node *n) {
  switch (b->sinks[n->id]) {
    case LB_SINK_SUM: return build_sum(b, n);
    case LB_SINK_COUNT: return build_count(b, n);
    case LB_SINK_FIRST: return build_first(b, n);
    default: return build_whole(b, n);
  }
}

// -- results -----------------------------------------------------------------

// Zeros at padding: [tokens, ...] scattered to [batch * seq, ...].
static lb_status scatter(lb_rebuild *b, const lb_value *v, lb_value **out) {
  lb_value *mask = b->graph->main->params[b->tokens->mask], *rest, *dims,
           *in[3], *shape[2];
  int64_t tail[LB_MAX_RANK];
  lb_node *concat;
  LB_TRY(apply(b, LB_OP_Shape, v, "batch", &mask, 1, &dims));
  LB_TRY(ints(b, tail, copy_dims(v, 2, tail), &rest));
  shape[0] = dims;
  LB_TRY(apply(b, LB_OP_ReduceProd, v, "all", &shape[0], 1, &shape[0]));
  shape[1] = rest;
  LB_TRY(append(b, LB_OP_Concat, v, "flat_shape", shape, 2, &concat));
  LB_TRY(lb_node_set_int(b->graph, concat, "axis", 0));
  LB_TRY(
      apply(b, LB_OP_ConstantOfShape, v, "zeros", &concat->out[0], 1, &in[0]));
  LB_TRY(listed(b, LB_OP_Unsqueeze, v, "indices", b->rows, &(int64_t){1}, 1,
                &in[1]));
  LB_TRY(listed(b, LB_OP_Squeeze, v, "updates", b->packed[v->id], &(int64_t){0},
                1, &in[2]));
  LB_TRY(apply(b, LB_OP_ScatterND, v, "scattered", in, 3, &in[0]));
  shape[0] = dims;
  LB_TRY(append(b, LB_OP_Concat, v, "shape", shape, 2, &concat));
  LB_TRY(lb_node_set_int(b->graph, concat, "axis", 0));
  in[1] = concat->out[0];
  return apply(b, LB_OP_Reshape, v, "unpacked", in, 2, out);
}

static lb_status add_results(lb_rebuild *b) {
  const lb_graph *from = b->tokens->graph;
  lb_graph *g = b->graph;
  uint32_t n = from->main->n_results;
  g->output_names = lb_arena_new(&g->arena, const char *, n);
  if (!g->output_names) return lb_oom();
  for (uint32_t i = 0; i < n; i++) {
    const lb_value *v = from->main->results[i];
    lb_value *y;
    if (!v->info.data && b->needs[v->id] & LB_NEED_TOKENS)
      LB_TRY(scatter(b, v, &y));
    else
      LB_TRY(whole(b, v, &y));
    LB_TRY(lb_region_add_result(g->main, y));
    g->output_names[i] = from->output_names ? from->output_names[i] : v->name;
  }
  return LB_OK;
}

// -- parameters --------------------------------------------------------------

// The same dim in the new graph: a constant, or a symbol.
static lb_status copy_dim(lb_rebuild *b, lb_dim d, lb_dim *known, lb_dim *out) {
  const lb_symtab *from = b->tokens->graph->syms;
  int symbol;
  *out = d;
  if (lb_dim_is_const(d)) return LB_OK;
  if (!lb_dim_as_symbol(d, &symbol))
    return lb_error(LB_INTERNAL, "the dim of an input is an expression");
  if (lb_dim_is(known[symbol], 0)) {
    const char *name = lb_symtab_name(from, symbol);
    LB_TRY(name ? lb_symtab_named(b->graph->syms, name, &known[symbol])
                : lb_symtab_fresh(b->graph->syms, &known[symbol]));
  }
  *out = known[symbol];
  return LB_OK;
}

static lb_status add_param(lb_rebuild *b, const char *name, lb_dtype dtype,
                           int rank, const lb_dim *dims, lb_value **out) {
  LB_TRY(lb_value_new(b->graph, name, out));
  (*out)->info.dtype = dtype;
  (*out)->info.rank = rank;
  for (int i = 0; i < rank; i++) (*out)->info.dims[i] = dims[i];
  return lb_region_add_param(b->graph->main, *out);
}

static lb_status add_params(lb_rebuild *b) {
  const lb_graph *from = b->tokens->graph;
  lb_symtab *syms = b->graph->syms;
  lb_dim *known = lb_arena_new(b->tokens->arena, lb_dim,
                               (size_t)lb_symtab_count(from->syms));
  lb_dim dims[LB_MAX_RANK], tokens, ends;
  if (!known) return lb_oom();
  for (uint32_t i = 0; i < from->main->n_params; i++) {
    const lb_value *v = from->main->params[i];
    for (int k = 0; k < v->info.rank; k++)
      LB_TRY(copy_dim(b, v->info.dims[k], known, &dims[k]));
    LB_TRY(add_param(b, v->name, v->info.dtype, v->info.rank, dims,
                     &b->whole[v->id]));
  }
  LB_TRY(lb_symtab_fresh(syms, &tokens));
  LB_TRY(copy_dim(b, b->tokens->batch, known, &ends));
  LB_TRY(lb_dim_add(syms, ends, lb_dim_const(1), &ends));
  LB_TRY(add_param(b, "ragged.rows", LB_I64, 1, &tokens, &b->rows));
  LB_TRY(add_param(b, "ragged.positions", LB_I64, 1, &tokens, &b->positions));
  return add_param(b, "ragged.segments", LB_I64, 1, &ends, &b->segments);
}

static lb_status build(lb_rebuild *b) {
  const lb_region *r = b->tokens->graph->main;
  LB_TRY(add_params(b));
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    if (b->used[n->id] & LB_NEED_WHOLE) LB_TRY(build_sink(b, n));
    if (b->used[n->id] & LB_NEED_TOKENS) LB_TRY(build_rows(b, n));
  }
  LB_TRY(add_results(b));
  LB_TRY(lb_infer_graph(b->graph));
  LB_TRY(lb_mark_runtime_skippable_nodes(b->graph));
  return lb_graph_verify(b->graph);
}

lb_status lb_rebuild_graph(lb_rebuild *b, lb_graph **out) {
  *out = NULL;
  LB_TRY(lb_graph_new(&b->graph));
  lb_status st = build(b);
  if (lb_failed(st))
    lb_graph_free(b->graph);
  else
    *out = b->graph;
  return st;
}
