// plan/dims.h -- evaluates symbolic dims at the sizes of a signature.
//
// Most dims follow from expressions (plan/sizes.h), so that no shape rule has
// to run. Planning is *exact* as long as every value so far had the dims of its
// expressions; from the first mismatch on, shape rules decide.
#ifndef LB_PLAN_DIMS_H
#define LB_PLAN_DIMS_H

#include "plan/values.h"

typedef struct lb_dim_states {
  int64_t *sizes;    // by expression number (plan/sizes.h); -1: not known
  int64_t *symbols;  // by symbol; likewise
  bool exact;
} lb_dim_states;

// Derives unknown sizes from the dims of v. If they contradict known sizes,
// planning is no longer exact.
void lb_planner_learn(lb_planner *p, const lb_value *v, const lb_tensor *t);
// The dims of v by its expressions, dense; false if some size is not known.
bool lb_planner_expect(lb_planner *p, const lb_value *v, lb_tensor *out);

// Evaluates the expressions for the outputs of a node that only moves elements.
// False if some size is not known, if inputs do not fit together, or for any
// other kind of node. If it returns true, the shape rule would have succeeded.
bool lb_planner_expect_moved(lb_planner *p, const lb_node *n,
                             const lb_pvalue *const *in, lb_tensor *out);

// The result's dims of a plain partition all of whose nodes are calls. False if
// some size is not known, or if shape rules must run for another reason.
bool lb_planner_expect_result(lb_planner *p, const lb_partition *part,
                              lb_tensor *out);

// Computes the output of n if it is shape arithmetic whose elements are known
// as expressions; else *done is false.
lb_status lb_planner_known(lb_planner *p, const lb_node *n, bool *done);

#endif
