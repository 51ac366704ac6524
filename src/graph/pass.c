// graph/pass.c -- runs the passes until nothing changes.
//
// Order matters little, since all of them repeat: folding uncovers branches,
// branches uncover shapes, shapes uncover constants. Shapes are inferred anew
// after a round in which folding or inlining changed something. Passes that
// take patterns apart are late: they join when the others have found all. What
// multiplies nodes comes between, when no more branches turn out to be sure.
#include "graph/pass.h"

#include <stdlib.h>

#include "graph/infer.h"
#include "graph/rewrite.h"

#define MAX_ROUNDS 64
#define LARGE ((size_t)64 << 10)  // bytes of a constant worth giving back

typedef struct pass {
  uint32_t bit;
  bool sharpens;  // shapes may be known better after it
  bool late;
  lb_pass_fn *run;
} pass;

static const pass passes[] = {
    {LB_PASS_WIDEN, false, false, lb_pass_widen},
    {LB_PASS_QUANTIZE, false, false, lb_pass_bytes},  // weights are bytes still
    {LB_PASS_MERGE, false, false, lb_pass_merge},
    {LB_PASS_DEAD, false, false, lb_pass_dead},  // what would be folded twice
    {LB_PASS_FOLD, true, false, lb_pass_fold},
    {LB_PASS_INLINE, true, false, lb_pass_inline},
    {LB_PASS_NOOP, false, false, lb_pass_noop},
    {LB_PASS_LOOP, true, false, lb_pass_loop},
    {LB_PASS_DEAD, false, false, lb_pass_dead},
    {LB_PASS_BATCH_NORM, false, false, lb_pass_batch_norm},
    {LB_PASS_QUANTIZE, false, false, lb_pass_bytes},
    {LB_PASS_QUANTIZE, false, false, lb_pass_quantize},
    {LB_PASS_EINSUM, false, false, lb_pass_einsum},
    {LB_PASS_ROTARY, false, false, lb_pass_rotary},
    {LB_PASS_SINK, false, false, lb_pass_cut},
    {LB_PASS_MATCH, false, false, lb_pass_match},
    {LB_PASS_ATTENTION, false, false, lb_pass_attention},
    {LB_PASS_HISTORY, false, false, lb_pass_history},
    {LB_PASS_TABLE, false, true, lb_pass_table},
    {LB_PASS_BATCH_NORM, false, true, lb_pass_scale},
    {LB_PASS_BATCH_NORM, false, true, lb_pass_affine},
    {LB_PASS_GROUP, false, true, lb_pass_group},
    {LB_PASS_UPCONV, false, true, lb_pass_upconv},
    {LB_PASS_RESIZE, false, true, lb_pass_resize},
    {LB_PASS_WINDOW, false, true, lb_pass_window},
    {LB_PASS_CONV, false, true, lb_pass_conv},
    {LB_PASS_RECURRENT, true, true, lb_pass_recurrent},
    {LB_PASS_LAYOUT, false, true, lb_pass_layout},
    {LB_PASS_SINK, false, true, lb_pass_sink},
};

static lb_status verify_in_debug(const lb_graph *g) {
#ifdef NDEBUG
  (void)g;
  return LB_OK;
#else
  return lb_graph_verify(g);
#endif
}

static lb_status run_round(lb_rewrite *rw, bool late, bool *sharpened) {
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
    const pass *p = &passes[i];
    if ((rw->options->off & p->bit) || (p->late && !late)) continue;
    uint64_t before = rw->changes;
    LB_TRY(lb_rewrite_begin(rw));
    LB_TRY(p->run(rw));
    LB_TRY(verify_in_debug(rw->graph));
    if (p->sharpens && rw->changes != before) *sharpened = true;
  }
  return LB_OK;
}

// A body that never runs may not make sense once shapes are known better, so
// a failure here is left for the run to find.
static lb_status infer_again(lb_graph *g) {
  lb_status st = lb_infer_graph(g);
  if (lb_status_code(st) == LB_OOM || lb_status_code(st) == LB_INTERNAL)
    return st;
  lb_status_drop(st);
  return LB_OK;
}

// Passes that undo each other's work never rest: the graph is right, but
// loading took the time of all rounds.
static lb_status give_up(void) {
#ifdef NDEBUG
  return LB_OK;
#else
  return lb_error(LB_INTERNAL, "passes still change the graph after %d rounds",
                  MAX_ROUNDS);
#endif
}

static lb_status run_rounds(lb_rewrite *rw, bool late) {
  for (int round = 0; round < MAX_ROUNDS; round++) {
    uint64_t before = rw->changes;
    bool sharpened = false;
    LB_TRY(run_round(rw, late, &sharpened));
    if (rw->changes == before) return LB_OK;
    if (sharpened) LB_TRY(infer_again(rw->graph));
  }
  return give_up();
}

// Each If that branch moves nodes into may uncover what the others need.
static lb_status run_early(lb_rewrite *rw) {
  for (;;) {
    LB_TRY(run_rounds(rw, false));
    uint64_t before = rw->changes;
    if (rw->options->off & LB_PASS_BRANCH) return LB_OK;
    LB_TRY(lb_rewrite_begin(rw));
    LB_TRY(lb_pass_branch(rw));
    LB_TRY(verify_in_debug(rw->graph));
    if (rw->changes == before) return LB_OK;
    LB_TRY(infer_again(rw->graph));
  }
}

// -- dense ids ---------------------------------------------------------------

static void mark(bool *used, lb_value *const *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (v[i]) used[v[i]->id] = true;
}

static void mark_region(bool *used, const lb_region *r, uint32_t *n_nodes) {
  mark(used, r->params, r->n_params);
  mark(used, r->results, r->n_results);
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    n->id = (*n_nodes)++;
    mark(used, n->in, n->n_in);
    mark(used, n->out, n->n_out);
    for (uint32_t k = 0; k < n->n_regions; k++)
      mark_region(used, n->regions[k], n_nodes);
  }
}

// Does a constant that is used begin in the memory of t? None begins before it
// and reaches into it: what was got at once begins with t, if it is given back.
static bool is_shared(const lb_graph *g, const bool *used, const lb_tensor *t) {
  const char *begin = t->data, *end = begin + lb_tensor_bytes(t);
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_tensor *other = used[i] ? lb_value_const(g->values[i]) : NULL;
    const char *at = other ? other->data : NULL;
    if (at && at >= begin && at < end) return true;
  }
  return false;
}

// Constants on the way to others are as large as these.
static void drop_constants(lb_graph *g, const bool *used) {
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_tensor *t = used[i] ? NULL : lb_value_const(g->values[i]);
    if (t && t->data && lb_tensor_is_dense(t) && lb_tensor_bytes(t) >= LARGE &&
        !is_shared(g, used, t))
      lb_arena_drop(&g->arena, t->data);
  }
}

static lb_status compact(lb_graph *g) {
  bool *used = calloc((size_t)g->n_values + 1, sizeof *used);
  if (!used) return lb_oom();
  g->n_nodes = 0;
  mark_region(used, g->main, &g->n_nodes);
  drop_constants(g, used);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < g->n_values; i++) {
    lb_value *v = g->values[i];
    if (!used[i]) continue;
    v->id = kept;
    g->values[kept++] = v;
  }
  g->n_values = kept;
  free(used);
  return LB_OK;
}

static size_t stored_bytes(const lb_graph *g) {
  size_t total = 0;
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_tensor *t = lb_value_const(g->values[i]);
    if (t) total += lb_tensor_bytes(t);
  }
  return total;
}

lb_status lb_graph_optimize(lb_graph *g, const lb_pass_options *o) {
  static const lb_pass_options defaults = {0};
  LB_TRY(lb_graph_verify(g));  // passes rely on arities and nesting
  lb_rewrite rw;
  lb_rewrite_init(&rw, g, o ? o : &defaults);
  rw.room = LB_FOLD_ROOM + 8 * stored_bytes(g);  // chains of eight
  lb_status st = run_early(&rw);
  if (!lb_failed(st)) st = run_rounds(&rw, true);
  lb_rewrite_fini(&rw);
  if (lb_failed(st)) return st;
  LB_TRY(compact(g));
  return verify_in_debug(g);
}
