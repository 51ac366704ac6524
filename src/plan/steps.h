// plan/steps.h -- what a plan is given: steps, results to bind, what the next
// stage has to know.
#ifndef LB_PLAN_STEPS_H
#define LB_PLAN_STEPS_H

#include "plan/values.h"

typedef struct lb_step_lists {
  uint32_t cap_steps, cap_binds, cap_facts, cap_pending;
  uint32_t *fact_values;    // by fact: the value it speaks of
  const lb_node **pending;  // for the next stage, in order
  uint32_t n_pending;
} lb_step_lists;

// A step whose operands are absent, for lb_planner_push.
lb_status lb_planner_new_step(lb_planner *p, const lb_node *node,
                              lb_step_kind kind, uint32_t n_in, uint32_t n_out,
                              lb_step *out);
lb_status lb_planner_push(lb_planner *p, const lb_step *step);
// A call, and that it is what became of its node.
lb_status lb_planner_push_call(lb_planner *p, const lb_step *call);
// The call of a node's reference kernel, and why it is no launch, for
// lb_planner_push: outputs are still absent. in[i] is NULL where the node has
// no such input.
lb_status lb_planner_new_call(lb_planner *p, const lb_node *n,
                              const lb_pvalue *const *in, lb_reason why,
                              lb_step *out);
lb_status lb_planner_copy(lb_planner *p, lb_step_operand from,
                          lb_step_operand to);

// Memory for a dense tensor like t while some steps run; then it is to be given
// back: lb_planner_end_temp.
lb_status lb_planner_temp(lb_planner *p, const lb_tensor *t,
                          lb_step_operand *out);
void lb_planner_end_temp(lb_planner *p, const lb_step_operand *temp);

lb_status lb_planner_bind(lb_planner *p, uint32_t result, const lb_tensor *t);
lb_status lb_planner_add_stage_result(lb_planner *p, lb_stage_result fact,
                                      uint32_t value);
lb_status lb_planner_defer(lb_planner *p, const lb_node *node);

#endif
