// plan/concat.h -- in-place Concat: producers write their slice of the result.
#ifndef LB_PLAN_CONCAT_H
#define LB_PLAN_CONCAT_H

#include "plan/values.h"

typedef struct lb_concat_plan {
  const lb_pvalue **buffers;  // by value id of a Concat's result: the memory
                              // allocated for it before the Concat is planned
} lb_concat_plan;

// Records the Concat destinations of the inputs of a needed node. Must be
// called for the readers of a value before its producer.
void lb_planner_find_concat_dests(lb_planner *p, const lb_node *n);

// Finds the slice of a Concat's result that v would occupy; `t` is v when
// dense. `out` gets the strides, which launches can write.
lb_status lb_planner_find_concat_slice(lb_planner *p, const lb_value *v,
                                       const lb_tensor *t, lb_tensor *out,
                                       bool *found);
// Binds v to its slice, which lb_planner_find_concat_slice has found.
lb_status lb_planner_bind_concat_slice(lb_planner *p, const lb_value *v,
                                       const lb_tensor *t);

// Plans a Concat in place: inputs that are not in their slice are copied. *done
// is false if the Concat should be an ordinary call instead.
lb_status lb_planner_concat(lb_planner *p, const lb_node *n,
                            const lb_pvalue *const *in, const lb_tensor *out,
                            bool *done);

#endif
