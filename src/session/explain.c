// session/explain.c -- nodes for which a run had no step, and why.
#include "session/explain.h"

lb_status lb_explain_skips(const lb_plan *plan, const lb_region *r,
                           lb_skip_fn *fn, void *user) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    const lb_disposition *d = lb_plan_node(plan, n);
    if (lb_disposition_runs(d)) continue;
    LB_TRY(fn(user, n, (lb_reason)d->reason));
    for (uint32_t k = 0; k < n->n_regions; k++)
      LB_TRY(lb_explain_skips(plan, n->regions[k], fn, user));
  }
  return LB_OK;
}
