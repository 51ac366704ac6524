// plan/steps.h -- builds the lists of a plan: steps, results to bind, stage
// results, and nodes deferred to the next stage.
#ifndef LB_PLAN_STEPS_H
#define LB_PLAN_STEPS_H

#include "plan/values.h"

typedef struct lb_step_lists {
  uint32_t cap_steps, cap_binds, cap_stage_results, cap_pending;
  uint32_t *stage_result_values;  // by stage result: the id of its value
  const lb_node **pending;        // deferred to the next stage, in order
  uint32_t n_pending;
} lb_step_lists;

// Initialises a step with absent operands, for lb_planner_push.
lb_status lb_planner_new_step(lb_planner *p, const lb_node *node,
                              lb_step_kind kind, uint32_t n_in, uint32_t n_out,
                              lb_step *out);
lb_status lb_planner_push(lb_planner *p, const lb_step *step);
// Pushes a call and records it as the disposition of its node.
lb_status lb_planner_push_call(lb_planner *p, const lb_step *call);
// Initialises the call of a node's reference kernel, with the reason why it is
// not a launch, for lb_planner_push. Outputs are absent. in[i] is NULL if the
// node has no input i.
lb_status lb_planner_new_call(lb_planner *p, const lb_node *n,
                              const lb_pvalue *const *in, lb_reason why,
                              lb_step *out);
// Pushes a copy, made because `why`. If it moves the elements of a view, `node`
// is the node that would have moved them (lb_planner_moved_by); else NULL.
lb_status lb_planner_copy(lb_planner *p, lb_step_operand from,
                          lb_step_operand to, const lb_node *node,
                          lb_reason why);

// Memory for a dense tensor like t during some steps; to be freed by
// lb_planner_end_temp.
lb_status lb_planner_temp(lb_planner *p, const lb_tensor *t,
                          lb_step_operand *out);
void lb_planner_end_temp(lb_planner *p, const lb_step_operand *temp);

lb_status lb_planner_bind(lb_planner *p, uint32_t result, const lb_tensor *t);
lb_status lb_planner_add_stage_result(lb_planner *p,
                                      lb_stage_result stage_result,
                                      uint32_t value);
lb_status lb_planner_defer(lb_planner *p, const lb_node *node);

#endif
