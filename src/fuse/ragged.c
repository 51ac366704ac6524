// fuse/ragged.c -- which values are needed whole and which at tokens only, and
// the graph that computes them.
//
// Needs are found from the results backwards. A *sink* is a node that needs
// rows of tokens only although its result is no rows: a sum over the sequence
// of what is 0 at padding, the number of tokens, or the first row.
#include "fuse/ragged.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuse/axes.h"
#include "fuse/rebuild.h"
#include "graph/infer.h"
#include "graph/rewrite.h"

// -- sinks -------------------------------------------------------------------

// Rows along axes 0 and 1, which is how they are packed.
static bool is_batch_first(lb_token_fact f) {
  return f.batch == 0 && f.seq == 1;
}

static bool others_are_constant(const lb_value *v, int from) {
  for (int i = from; i < v->info.rank; i++)
    if (!lb_dim_is_const(v->info.dims[i])) return false;
  return true;
}

static lb_sink sink_of_sum(const lb_tokens *t, const lb_node *n) {
  lb_token_fact f = lb_tokens_fact(t, n->in[0]);
  uint32_t axes;
  if (!lb_axes_listed(n, 1, n->in[0]->info.rank, &axes) || axes != 2 ||
      n->in[0]->info.dtype != LB_F32 || !is_batch_first(f) ||
      !others_are_constant(n->in[0], 2))
    return LB_SINK_NONE;
  if (f.kind == LB_TOKENS_ROWS && f.zero) return LB_SINK_SUM;
  bool counts = f.kind == LB_TOKENS_MASK && f.masked == 0;
  return counts ? LB_SINK_COUNT : LB_SINK_NONE;
}

static bool is_one_number(const lb_value *v, int64_t number) {
  const lb_tensor *t = lb_value_const(v);
  return t && (t->dtype == LB_I64 || t->dtype == LB_I32) &&
         lb_tensor_count(t) == 1 && lb_match_int(t, 0) == number;
}

static lb_sink sink_of_selection(const lb_tokens *t, const lb_node *n) {
  lb_token_fact f = lb_tokens_fact(t, n->in[0]);
  uint32_t axes = 0;
  if (f.kind != LB_TOKENS_ROWS || !is_batch_first(f)) return LB_SINK_NONE;
  if (n->op == LB_OP_Gather)
    return lb_attr_int(n, "axis", 0) == 1 && is_one_number(n->in[1], 0) &&
                   n->in[1]->info.rank <= 1
               ? LB_SINK_FIRST
               : LB_SINK_NONE;
  bool steps = !lb_node_input(n, 4) || is_one_number(n->in[4], 1);
  return lb_axes_listed(n, 3, n->in[0]->info.rank, &axes) && axes == 2 &&
                 steps && is_one_number(n->in[1], 0) &&
                 is_one_number(n->in[2], 1)
             ? LB_SINK_FIRST
             : LB_SINK_NONE;
}

static lb_sink sink_of(const lb_tokens *t, const lb_node *n) {
  switch (n->op) {
    case LB_OP_ReduceSum: return sink_of_sum(t, n);
    case LB_OP_Gather:
    case LB_OP_Slice: return sink_of_selection(t, n);
    default: return LB_SINK_NONE;
  }
}

// -- needs -------------------------------------------------------------------

static bool on_tokens(const lb_tokens *t, const lb_value *v) {
  return v->producer && t->operands[v->producer->id];
}

// False if the rows of v cannot be read from v as a whole.
static bool need_tokens(lb_rebuild *b, const lb_value *v) {
  const lb_tokens *t = b->tokens;
  if (v->info.data) return false;
  if (on_tokens(t, v)) {
    b->needs[v->id] |= LB_NEED_TOKENS;
    return true;
  }
  lb_token_fact f = lb_tokens_fact(t, v);
  b->needs[v->id] |= LB_NEED_WHOLE;
  return f.batch == f.seq ? f.batch == 0
                          : is_batch_first(f) && others_are_constant(v, 2);
}

static void need_whole(lb_rebuild *b, const lb_value *v) {
  if (v && !v->info.data) b->needs[v->id] |= LB_NEED_WHOLE;
}

static bool need_operands(lb_rebuild *b, const lb_node *n) {
  const uint8_t *operands = b->tokens->operands[n->id];
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!n->in[i] || operands[i] == LB_OPERAND_NUMBER) continue;
    if (operands[i] != LB_OPERAND_ROWS)
      need_whole(b, n->in[i]);
    else if (!need_tokens(b, n->in[i]))
      return false;
  }
  return true;
}

// Whether computing the node at padding costs what is to be saved.
static bool is_heavy(const lb_tokens *t, const lb_node *n) {
  return lb_op_infos[n->op].cls == LB_CLASS_CONTRACTION && n->out[0] &&
         lb_tokens_fact(t, n->out[0]).kind == LB_TOKENS_ROWS;
}

static const char *visit_needs(lb_rebuild *b, const lb_node *n) {
  const lb_tokens *t = b->tokens;
  uint8_t need = 0;
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i]) need |= b->needs[n->out[i]->id];
  b->used[n->id] = need;
  if (need & LB_NEED_TOKENS && !need_operands(b, n))
    return "rows of tokens are not along the first two axes of a value";
  if (!(need & LB_NEED_WHOLE)) return NULL;
  if (is_heavy(t, n)) return "a matmul or attention is needed at padding";
  b->sinks[n->id] = (uint8_t)sink_of(t, n);
  switch (b->sinks[n->id]) {
    case LB_SINK_COUNT: return NULL;
    case LB_SINK_FIRST: b->first = true;  // fall through
    case LB_SINK_SUM:
      return need_tokens(b, n->in[0]) ? NULL : "a sum reads other rows";
    default:
      for (uint32_t i = 0; i < n->n_in; i++) need_whole(b, n->in[i]);
      return NULL;
  }
}

// A result with rows of tokens gets zeros at padding.
static const char *need_result(lb_rebuild *b, uint32_t i, bool *differs) {
  const lb_value *v = b->tokens->graph->main->results[i];
  lb_token_fact f = lb_tokens_fact(b->tokens, v);
  *differs = false;
  if (v->info.data || f.kind != LB_TOKENS_ROWS || !on_tokens(b->tokens, v)) {
    need_whole(b, v);
    return NULL;
  }
  if (!is_batch_first(f) || v->info.dtype != LB_F32 ||
      !others_are_constant(v, 2))
    return "a result is needed at padding";
  *differs = !f.zero;
  b->needs[v->id] |= LB_NEED_TOKENS;
  return NULL;
}

static lb_status find_needs(lb_rebuild *b, bool *differs,
                            const char **refusal) {
  const lb_region *r = b->tokens->graph->main;
  *refusal = NULL;
  for (uint32_t i = 0; i < r->n_results && !*refusal; i++)
    *refusal = need_result(b, i, &differs[i]);
  for (uint32_t i = r->n_nodes; i-- > 0 && !*refusal;)
    *refusal = visit_needs(b, r->nodes[i]);
  return LB_OK;
}

static uint32_t count_attentions(const lb_rebuild *b) {
  const lb_region *r = b->tokens->graph->main;
  uint32_t n = 0;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    n += r->nodes[i]->op == LB_OP_Attention &&
         b->used[r->nodes[i]->id] & LB_NEED_TOKENS;
  return n;
}

// -- masks -------------------------------------------------------------------

static lb_status try_mask(const lb_graph *g, uint32_t mask, lb_eval_fn *eval,
                          lb_arena *arena, lb_ragged *out) {
  lb_tokens t;
  lb_rebuild b;
  bool *differs = lb_arena_new(arena, bool, g->main->n_results);
  LB_TRY(lb_tokens_find(g, mask, eval, arena, &t));
  out->refusal = "no attention hides the padding of an input";
  if (!differs) return lb_oom();
  if (!t.n_attentions) return LB_OK;
  LB_TRY(lb_rebuild_init(&b, &t));
  LB_TRY(find_needs(&b, differs, &out->refusal));
  if (out->refusal) return LB_OK;
  out->n_attentions = count_attentions(&b);
  out->refusal = "no attention is needed at tokens only";
  if (!out->n_attentions) return LB_OK;
  out->refusal = NULL;
  LB_TRY(lb_rebuild_graph(&b, &out->graph));
  out->mask = mask;
  out->first = b.first;
  out->row_bytes = b.row_bytes;
  out->differs = lb_arena_memdup(&out->graph->arena, differs,
                                 g->main->n_results, _Alignof(bool));
  return out->differs ? LB_OK : lb_oom();
}

static const char *refusal_of(const lb_graph *g) {
  const lb_region *r = g->main;
  int symbol;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    if (r->nodes[i]->n_regions) return "branches and loops are not followed";
  for (uint32_t i = 0; i < r->n_params; i++)
    for (int k = 0; k < r->params[i]->info.rank; k++)
      if (!lb_dim_is_const(r->params[i]->info.dims[k]) &&
          !lb_dim_as_symbol(r->params[i]->info.dims[k], &symbol))
        return "a dim of an input is an expression";
  return NULL;
}

lb_status lb_ragged_find(const lb_graph *g, lb_eval_fn *eval, lb_ragged *out) {
  lb_arena arena;
  lb_status st = LB_OK;
  *out = (lb_ragged){.refusal = refusal_of(g)};
  if (out->refusal) return LB_OK;
  out->refusal = "no input can be a mask";
  lb_arena_init(&arena, 64 << 10);
  for (uint32_t i = 0; !lb_failed(st) && !out->graph && i < g->main->n_params;
       i++) {
    const char *before = out->refusal;
    if (!lb_tokens_may_mask(g, i)) continue;
    st = try_mask(g, i, eval, &arena, out);
    // The reason of the input that came closest is the one to tell.
    if (out->refusal && !strncmp(out->refusal, "no attention hides", 18) &&
        strcmp(before, "no input can be a mask"))
      out->refusal = before;
    lb_arena_reset(&arena);
  }
  lb_arena_fini(&arena);
  if (lb_failed(st)) lb_ragged_fini(out);
  return st;
}

void lb_ragged_fini(lb_ragged *r) {
  lb_graph_free(r->graph);
  *r = (lb_ragged){0};
}
