// session/explain.h -- nodes for which a run had no step, and why.
#ifndef LB_SESSION_EXPLAIN_H
#define LB_SESSION_EXPLAIN_H

#include "plan/plan.h"

typedef lb_status lb_skip_fn(void *user, const lb_node *node, lb_reason why);

// Calls `fn` for each node of a region, and of branches inside it, that no step
// of the plan computes.
lb_status lb_explain_skips(const lb_plan *plan, const lb_region *r,
                           lb_skip_fn *fn, void *user);

#endif
