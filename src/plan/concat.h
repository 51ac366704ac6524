// plan/concat.h -- inputs of a Concat that are written into its result.
#ifndef LB_PLAN_CONCAT_H
#define LB_PLAN_CONCAT_H

#include "plan/values.h"

typedef struct lb_concat_plan {
  const lb_pvalue **modules;  // by value id: memory that a Concat was promised
} lb_concat_plan;

// Notes where the inputs of a needed node are to lie. Readers come first.
void lb_planner_find_concat_dests(lb_planner *p, const lb_node *n);

// How v, like t when it is dense, would lie inside the result of a Concat. A
// launch can write it so.
lb_status lb_planner_find_concat_slice(lb_planner *p, const lb_value *v,
                                       const lb_tensor *t, lb_tensor *out,
                                       bool *found);
// Sets v there, which has been found.
lb_status lb_planner_bind_concat_slice(lb_planner *p, const lb_value *v,
                                       const lb_tensor *t);

// Plans a Concat some of whose inputs may lie in place; *done is false if none
// can.
lb_status lb_planner_concat(lb_planner *p, const lb_node *n,
                            const lb_pvalue *const *in, const lb_tensor *out,
                            bool *done);

#endif
