// plan/concat.h -- inputs of a Concat that are written into its result.
#ifndef LB_PLAN_CONCAT_H
#define LB_PLAN_CONCAT_H

#include "plan/values.h"

typedef struct lb_concat_plan {
  const lb_pvalue **rooms;  // by value id: memory that a Concat was promised
} lb_concat_plan;

// Notes where the inputs of a needed node are to lie. Readers come first.
void lb_planner_note_homes(lb_planner *p, const lb_node *n);

// How v, like t when it is dense, would lie inside the result of a Concat. A
// launch can write it so.
lb_status lb_planner_find_room(lb_planner *p, const lb_value *v,
                               const lb_tensor *t, lb_tensor *out, bool *found);
// Sets v there, which has been found.
lb_status lb_planner_enter_room(lb_planner *p, const lb_value *v,
                                const lb_tensor *t);

// Plans a Concat some of whose inputs may lie in place; *done is false if none
// can.
lb_status lb_planner_join(lb_planner *p, const lb_node *n,
                          const lb_pvalue *const *in, const lb_tensor *out,
                          bool *done);

#endif
