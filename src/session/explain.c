// session/explain.c -- what became of the nodes of a graph in a run, and why.
#include "session/explain.h"

#include "session/watch.h"

static const char *const dispositions[] = {[LB_NODE_NOT_NEEDED] = "not_needed",
                                           [LB_NODE_NOT_TAKEN] = "not_taken",
                                           [LB_NODE_BODY] = "body",
                                           [LB_NODE_LATER] = "later",
                                           [LB_NODE_BRANCH] = "branch",
                                           [LB_NODE_LOOP] = "loop",
                                           [LB_NODE_LAUNCHED] = "launched",
                                           [LB_NODE_FUSED] = "fused",
                                           [LB_NODE_CALLED] = "called",
                                           [LB_NODE_VIEW] = "view",
                                           [LB_NODE_IN_PLACE] = "in_place",
                                           [LB_NODE_COPIED] = "copied",
                                           [LB_NODE_COMPUTED] = "computed"};

// -- proofs ------------------------------------------------------------------

// Sets the dims that are known from load, the others to -1. Returns NULL if not
// even their number is known.
static const int64_t *known_dims(const lb_value *v, int64_t *dims) {
  if (!v || v->info.rank < 0) return NULL;
  for (int i = 0; i < v->info.rank; i++) {
    lb_dim d = v->info.dims[i];
    dims[i] = lb_dim_is_const(d) ? d.k : -1;
  }
  return dims;
}

// The proof of a node that never runs, from load.
static bool print_load_proof(const lb_node *n, char *text) {
  int64_t dims[LB_MAX_RANK];
  if (n->proof.kind == LB_PROOF_NONE) return false;
  const lb_value *x = n->proof.input < n->n_in ? n->in[n->proof.input] : NULL;
  const int64_t *known = known_dims(x, dims);
  lb_proof_print(n, &n->proof, known ? x->info.rank : 0, known, text,
                 LB_PROOF_TEXT);
  return true;
}

// -- nodes -------------------------------------------------------------------

typedef struct explanation {
  const lb_plan *plan;  // or NULL
  lb_explained_fn *fn;
  void *user;
} explanation;

static uint32_t cover_of(const lb_plan *plan, uint32_t step) {
  while (plan && step < plan->first_step) plan = plan->parent;
  if (!plan || step - plan->first_step >= plan->n_steps) return 0;
  return plan->steps[step - plan->first_step].skip;
}

static void describe_run(const explanation *x, const lb_node *n,
                         lb_explained *e, char *proof) {
  const lb_disposition *d = lb_plan_node(x->plan, n);
  e->disposition = dispositions[d->kind];
  e->reason = (lb_reason)d->reason;
  e->skipped = d->skipped;
  if (e->skipped)
    e->proof = lb_proof_print(n, &d->skip->proof, d->skip->rank,
                              d->skip->rank < 0 ? NULL : d->skip->dims, proof,
                              LB_PROOF_TEXT);
  if (!lb_disposition_runs(d) || d->kind == LB_NODE_LOOP) return;
  e->step = d->step;
  e->n_steps = 1 + cover_of(x->plan, d->step);
}

static lb_status explain_node(const explanation *x, const lb_node *n) {
  char proof[LB_PROOF_TEXT];
  lb_explained e = {.name = n->name,
                    .op = n->op,
                    .optimized = n->optimized,
                    .runtime_skippable = n->runtime_skippable,
                    .proof = "",
                    .disposition = "",
                    .reason = LB_REASON_COUNT,
                    .step = LB_NO_STEP,
                    .node = n};
  if (x->plan) {
    describe_run(x, n, &e, proof);
  } else if (print_load_proof(n, proof)) {
    e.proof = proof;
    e.skipped = true;
  }
  return x->fn(x->user, &e);
}

static lb_status explain_region(const explanation *x, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    LB_TRY(explain_node(x, n));
    for (uint32_t k = 0; k < n->n_regions; k++)
      LB_TRY(explain_region(x, n->regions[k]));
  }
  return LB_OK;
}

static lb_status explain_removed(const explanation *x, const lb_removed *r) {
  char proof[LB_PROOF_TEXT];
  bool proved = print_load_proof(r->node, proof);
  return x->fn(x->user, &(lb_explained){.name = r->name ? r->name : "",
                                        .op = r->op,
                                        .optimized = proved,
                                        .skipped = proved,
                                        .proof = proved ? proof : "",
                                        .disposition = "removed",
                                        .reason = LB_REASON_REMOVED,
                                        .step = LB_NO_STEP,
                                        .pass = r->pass});
}

lb_status lb_explain_nodes(const lb_graph *g, const lb_plan *plan,
                           lb_explained_fn *fn, void *user) {
  explanation x = {plan, fn, user};
  LB_TRY(explain_region(&x, g->main));
  for (uint32_t i = 0; i < g->n_removed; i++)
    LB_TRY(explain_removed(&x, &g->removed[i]));
  return LB_OK;
}
