// graph/skip.c -- asks skip rules at load, and marks what they found.
#include "graph/skip.h"

#include <stdlib.h>

#include "graph/rewrite.h"

static void describe(const lb_value *v, lb_skip_operand *out) {
  *out = (lb_skip_operand){.rank = -1};
  if (!v) return;
  *out = (lb_skip_operand){.dtype = v->info.dtype,
                           .rank = v->info.rank,
                           .dims = v->info.dims,
                           .data = v->info.data,
                           .symbols = v->info.known ? &v->info : NULL};
}

#define FEW 16  // operands that need no allocation

lb_skip lb_skip_at_load(const lb_node *n, bool only_first, lb_proof *proof) {
  lb_skip_operand few[FEW], *all = few;
  if (lb_op_infos[n->op].skip == LB_SKIP_ID_never || n->n_in == 0 ||
      !n->in[0] || n->n_out == 0 || !n->out[0])
    return LB_SKIP_NO;
  if (n->n_in + n->n_out > FEW)
    all = malloc((n->n_in + n->n_out) * sizeof *all);
  if (!all) return LB_SKIP_UNKNOWN;  // the node is kept
  for (uint32_t i = 0; i < n->n_in; i++) describe(n->in[i], &all[i]);
  for (uint32_t i = 0; i < n->n_out; i++)
    describe(n->out[i], &all[n->n_in + i]);
  lb_skip_query q = {n, all, all + n->n_in, only_first};
  lb_skip answer = lb_skip_ask(&q, proof);
  if (all != few) free(all);
  return answer;
}

// -- the pass ----------------------------------------------------------------

// Whether somebody reads elements of the value, not only its dims; by value id.
typedef struct marking {
  bool *elements, *used;
} marking;

static void read_value(marking *m, const lb_value *v, bool elements) {
  if (!v) return;
  m->used[v->id] = true;
  m->elements[v->id] = m->elements[v->id] || elements;
}

static bool only_first(const marking *m, const lb_node *n) {
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i] && m->used[n->out[i]->id]) return false;
  return true;
}

// Whether elements of some output are read.
static bool has_element_readers(const marking *m, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i] && m->elements[n->out[i]->id]) return true;
  return false;
}

static void mark_node(const marking *m, lb_node *n, bool runs) {
  n->proof = (lb_proof){.kind = LB_PROOF_NONE};
  n->optimized = n->runtime_skippable = n->in_order = false;
  if (!runs) {
    n->optimized = true;
    n->proof.kind = LB_PROOF_DIMS_READ;
    return;
  }
  lb_proof proof = {.kind = LB_PROOF_NONE};
  lb_skip answer = lb_skip_at_load(n, only_first(m, n), &proof);
  n->optimized = answer != LB_SKIP_NO;
  n->in_order = answer == LB_SKIP_SAME;
  n->runtime_skippable = n->optimized && !n->in_order;
  if (n->in_order) n->proof = proof;
}

// Readers come before producers. A node that sizes its own outputs has to run,
// and so does everything with regions.
static void mark_region(marking *m, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_results; i++)
    read_value(m, r->results[i], true);
  for (uint32_t i = r->n_nodes; i-- > 0;) {
    lb_node *n = r->nodes[i];
    const lb_op_info *op = &lb_op_infos[n->op];
    bool own = op->cls == LB_CLASS_CONTROL ||
               lb_op_has(n->op, LB_TRAIT_DYNAMIC | LB_TRAIT_RANDOM);
    bool runs = own || has_element_readers(m, n);
    for (uint32_t k = 0; k < n->n_in; k++) {
      bool decides = k < 32 && op->deciding >> k & 1;
      read_value(m, n->in[k],
                 decides || (runs && !lb_op_has(n->op, LB_TRAIT_DIMS_ONLY)));
    }
    mark_node(m, n, runs);
    for (uint32_t k = 0; k < n->n_regions; k++) mark_region(m, n->regions[k]);
  }
}

lb_status lb_mark_runtime_skippable_nodes(lb_graph *g) {
  size_t n = g->n_values + (size_t)1;
  marking m = {calloc(n, sizeof *m.elements), calloc(n, sizeof *m.used)};
  bool ok = m.elements && m.used;
  if (ok) mark_region(&m, g->main);
  free(m.elements);
  free(m.used);
  return ok ? LB_OK : lb_oom();
}

lb_status lb_pass_mark(lb_rewrite *rw) {
  return lb_mark_runtime_skippable_nodes(rw->graph);
}
