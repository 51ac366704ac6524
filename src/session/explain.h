// session/explain.h -- what became of the nodes of a graph in a run, and why.
#ifndef LB_SESSION_EXPLAIN_H
#define LB_SESSION_EXPLAIN_H

#include "plan/plan.h"

#define LB_PROOF_TEXT 512  // bytes that are enough for a proof as text

// One node of the graph, or one that a pass removed at load.
typedef struct lb_explained {
  const char *name;
  lb_op op;
  bool optimized, runtime_skippable;  // see graph/skip.h
  bool skipped;  // it did nothing in this run, or never does anything: `proof`
  const char *proof;        // as text; "": none
  const char *disposition;  // "launched"; "": not of a run
  lb_reason reason;         // LB_REASON_COUNT: not of a run
  uint32_t step;            // as in lb_disposition.step; LB_NO_STEP: none
  uint32_t n_steps;         // with those that cover it
  const char *pass;         // that removed it; NULL: it is in the graph
  const lb_node *node;      // NULL: it was removed
} lb_explained;

// `e` and its proof are valid during the call only.
typedef lb_status lb_explained_fn(void *user, const lb_explained *e);

// Calls `fn` for each node of a graph, regions included, each before those in
// its regions, and then for each node that a pass removed. `plan` is that of
// the last stage of a run; NULL: reports only what is known from load.
lb_status lb_explain_nodes(const lb_graph *g, const lb_plan *plan,
                           lb_explained_fn *fn, void *user);

#endif
