// plan/skip.h -- nodes that do nothing at the shapes of a plan.
//
// graph/skip.h decides and proves; here the outputs become views. A skip
// touches metadata only: values that share memory have the same buffer before
// offsets are assigned, and a plan at other shapes makes its own decision.
#ifndef LB_PLAN_SKIP_H
#define LB_PLAN_SKIP_H

#include "graph/skip.h"
#include "plan/values.h"

// Sets all requested outputs of n, which have the dims of `out`, as views of an
// input. *done is false if the node has to run.
lb_status lb_planner_skip(lb_planner *p, const lb_node *n,
                          const lb_pvalue *const *in, lb_tensor *out,
                          bool *done);

// Plans a node without executing it if its requested outputs have no elements,
// or if only their dims are read.
lb_status lb_planner_skip_empty(lb_planner *p, const lb_node *n,
                                const lb_pvalue *const *in,
                                const lb_tensor *out, bool *done);

// Records that a Concat whose result is `joined` is written by its producers.
lb_status lb_planner_note_in_place(lb_planner *p, const lb_node *n,
                                   const lb_pvalue *joined);
// Records that no member of a partition runs, because its result is empty.
lb_status lb_planner_note_empty(lb_planner *p, const lb_partition *part);

// Whether the rules of all members of a partition may answer that they are
// skipped; then the next function asks them. If they are, the partition needs
// no launch, and its members are planned one by one. The dims of the members'
// outputs must be known (lb_planner_tensor).
bool lb_planner_may_skip_partition(const lb_planner *p,
                                   const lb_partition *part);
lb_status lb_planner_skips_partition(lb_planner *p, const lb_partition *part,
                                     bool *skips);

// Whether nodes between v, which is like `t`, and the result that it may be
// written to keep all elements of v in order at the sizes of this plan, so that
// v may be written straight to that result.
bool lb_planner_leads_in_order(lb_planner *p, const lb_value *v,
                               const lb_tensor *t);

// Copies x, a view, to dense memory for all later readers, because `why`.
lb_status lb_planner_make_dense(lb_planner *p, const lb_value *x,
                                lb_reason why);

// The node whose elements a copy of x moves: the nearest producer that is not a
// view with all elements in order. NULL: x is a view of an input of the region,
// or of the result of a launch or call.
const lb_node *lb_planner_moved_by(lb_planner *p, const lb_value *x);

#endif
