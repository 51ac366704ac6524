// graph/pass.c -- runs the passes until nothing changes.
//
// The order matters little, because all passes repeat: folding reveals
// branches, branches reveal shapes, shapes reveal constants. passes.def gives
// the reason for each position.
#include "graph/pass.h"

#include <stdlib.h>
#include <string.h>

#include "graph/infer.h"
#include "graph/rewrite.h"

#define MAX_ROUNDS 64
#define LARGE_CONST ((size_t)64 << 10)  // bytes; freed once it is unused

enum { KEEPS = false, SHAPES = true };  // a column of passes.def
static const lb_pass passes[] = {
#define LB_PASS(id, name, function, phase, shapes, why) \
  {name, LB_PASS_BIT(LB_PASS_##id), LB_PHASE_##phase, shapes, function},
#define LB_PASS_AGAIN LB_PASS
#include "graph/passes.def"
};

_Static_assert(sizeof passes / sizeof *passes < 64, "rows are bits of 64");

static const char *const names[LB_PASS_COUNT] = {
#define LB_PASS(id, name, ...) [LB_PASS_##id] = name,
#include "graph/passes.def"
};

const char *lb_pass_name(lb_pass_id id) { return names[id]; }

lb_pass_id lb_pass_find(const char *name, size_t length) {
  for (int i = 0; i < LB_PASS_COUNT; i++)
    if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
      return (lb_pass_id)i;
  return LB_PASS_COUNT;
}

// -- rounds ------------------------------------------------------------------

typedef struct driver {
  lb_rewrite *rw;
  const lb_pass *passes;
  size_t n;
  lb_removal *removal;  // owned
  uint64_t changed;     // bit i: passes[i] changed something in this round
} driver;

static lb_status verify_in_debug(const lb_graph *g) {
#ifdef NDEBUG
  (void)g;
  return LB_OK;
#else
  return lb_graph_verify(g);
#endif
}

// A body that never runs may be inconsistent once shapes are known better, so
// an error here is left for the run to find.
static lb_status infer_again(lb_graph *g) {
  lb_status st = lb_infer_graph(g);
  if (lb_status_code(st) == LB_OOM || lb_status_code(st) == LB_INTERNAL)
    return st;
  lb_status_drop(st);
  return LB_OK;
}

static lb_status run_pass(driver *d, size_t i) {
  lb_rewrite *rw = d->rw;
  uint64_t before = rw->changes;
  LB_TRY(lb_rewrite_begin(rw));
  LB_TRY(d->passes[i].run(rw));
  LB_TRY(verify_in_debug(rw->graph));
  if (rw->changes == before) return LB_OK;
  d->changed |= UINT64_C(1) << i;
  return lb_removal_note(d->removal, rw->graph, d->passes[i].name);
}

// Runs the passes of these phases (bits) in order.
static lb_status run_round(driver *d, uint32_t phases) {
  bool shapes = false;
  d->changed = 0;
  for (size_t i = 0; i < d->n; i++) {
    const lb_pass *p = &d->passes[i];
    if ((d->rw->options->off & p->bit) || !(phases >> p->phase & 1)) continue;
    LB_TRY(run_pass(d, i));
    shapes |= p->shapes && d->changed >> i & 1;
  }
  return shapes ? infer_again(d->rw->graph) : LB_OK;
}

// Reports passes that undo each other's work, which never ends: the graph is
// correct, but loading took the time of all rounds. That is a bug, and an error
// in debug builds.
static lb_status give_up(const driver *d, uint64_t rows) {
  lb_strbuf text = {0};
  for (size_t i = 0; i < d->n; i++)
    if (rows >> i & 1)
      lb_strbuf_printf(&text, "%s%s", text.len ? ", " : "", d->passes[i].name);
  lb_status st = lb_strbuf_status(&text);
#ifndef NDEBUG
  if (!lb_failed(st))
    st = lb_error(LB_INTERNAL,
                  "the graph still changes after %d rounds of passes; the "
                  "passes that undo each other are among: %s",
                  MAX_ROUNDS, lb_strbuf_str(&text));
#else
  if (!lb_failed(st))
    lb_log_line(d->rw->options->log, LB_LOG_WARN,
                "the graph still changes after %d rounds of passes; the passes "
                "that undo each other are among: %s (LIMBER_PASSES=-NAME "
                "switches one off)",
                MAX_ROUNDS, lb_strbuf_str(&text));
#endif
  lb_strbuf_fini(&text);
  return st;
}

static lb_status run_rounds(driver *d, uint32_t phases) {
  uint64_t last = 0;
  for (int round = 0; round < MAX_ROUNDS; round++) {
    last = d->changed;
    LB_TRY(run_round(d, phases));
    if (!d->changed) return LB_OK;
  }
  return give_up(d, last | d->changed);
}

static lb_status run_all(driver *d) {
  enum {
    EARLY = 1 << LB_PHASE_EARLY,
    BETWEEN = 1 << LB_PHASE_BETWEEN,
    LATE = 1 << LB_PHASE_LATE,
    FINAL = 1 << LB_PHASE_FINAL,
  };
  do {
    LB_TRY(run_rounds(d, EARLY));
    LB_TRY(run_round(d, BETWEEN));
  } while (d->changed);
  LB_TRY(run_rounds(d, EARLY | LATE));
  return run_round(d, FINAL);
}

lb_status lb_passes_run(lb_rewrite *rw, const lb_pass *rows, size_t n) {
  driver d = {.rw = rw, .passes = rows, .n = n};
  LB_TRY(lb_removal_new(rw->graph, &d.removal));
  lb_status st = run_all(&d);
  lb_removal_free(d.removal);
  return st;
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

// Whether a used constant starts in the memory of t. None starts before t and
// extends into it: an allocation that can be freed starts with t.
static bool is_shared(const lb_graph *g, const bool *used, const lb_tensor *t) {
  const char *begin = t->data, *end = begin + lb_tensor_bytes(t);
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_tensor *other = used[i] ? lb_value_const(g->values[i]) : NULL;
    const char *at = other ? other->data : NULL;
    if (at && at >= begin && at < end) return true;
  }
  return false;
}

// Frees intermediate constants of folding, which are as large as the final
// ones.
static void drop_constants(lb_graph *g, const bool *used) {
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_tensor *t = used[i] ? NULL : lb_value_const(g->values[i]);
    if (t && t->data && lb_tensor_is_dense(t) &&
        lb_tensor_bytes(t) >= LARGE_CONST && !is_shared(g, used, t))
      lb_arena_drop(&g->arena, t->data);
  }
}

static lb_status compact(lb_graph *g) {
  bool *used = calloc((size_t)g->n_values + 1, sizeof *used);
  if (!used) return lb_oom();
  g->n_nodes = 0;
  mark_region(used, g->main, &g->n_nodes);
  drop_constants(g, used);
  uint32_t n_used = 0;
  for (uint32_t i = 0; i < g->n_values; i++) {
    lb_value *v = g->values[i];
    if (!used[i]) continue;
    v->id = n_used;
    g->values[n_used++] = v;
  }
  g->n_values = n_used;
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
  rw.budget = LB_FOLD_BUDGET + 8 * stored_bytes(g);  // allows chains of eight
  lb_status st = lb_passes_run(&rw, passes, sizeof passes / sizeof *passes);
  lb_rewrite_fini(&rw);
  if (lb_failed(st)) return st;
  LB_TRY(compact(g));
  return verify_in_debug(g);
}
