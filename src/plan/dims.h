// plan/dims.h -- dims by expressions, at the sizes of a signature.
//
// Most dims follow from expressions (plan/sizes.h): no shape rule has to run.
// While planning is *exact*, every value has had the dims that its expressions
// say; where one has others, rules decide from there on.
#ifndef LB_PLAN_DIMS_H
#define LB_PLAN_DIMS_H

#include "plan/values.h"

typedef struct lb_dim_states {
  int64_t *sizes;    // by number of plan/sizes.h; -1: not known
  int64_t *symbols;  // by symbol; likewise
  bool exact;
} lb_dim_states;

// Takes the dims of v, which are known, for sizes that are not; where others
// are known, dims are not exact.
void lb_planner_learn(lb_planner *p, const lb_value *v, const lb_tensor *t);
// The dims of v as expressions say, dense; false if some size is not known.
bool lb_planner_expect(lb_planner *p, const lb_value *v, lb_tensor *out);

// The outputs of a node that moves elements, as expressions say: false if some
// size is not known, or if inputs do not fit together, or if it is another kind
// of node. What a shape rule would refuse is never expected.
bool lb_planner_expect_moved(lb_planner *p, const lb_node *n,
                             const lb_pvalue *const *in, lb_tensor *out);

// The result of a plain partition all of whose nodes are calls: false if some
// size is not known, or if rules have to run for another reason.
bool lb_planner_expect_result(lb_planner *p, const lb_partition *part,
                              lb_tensor *out);

// Computes what n makes, if it is shape arithmetic that is known as
// expressions; else *done is false.
lb_status lb_planner_known(lb_planner *p, const lb_node *n, bool *done);

#endif
