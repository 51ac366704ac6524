// plan/steps.c -- builds the lists of steps, results to bind, stage results and
// deferred nodes.
#include "plan/planner.h"

static const lb_tensor absent = {.dtype = LB_NONE};

lb_status lb_planner_new_step(lb_planner *p, const lb_node *node,
                              lb_step_kind kind, uint32_t n_in, uint32_t n_out,
                              lb_step *out) {
  uint32_t n = n_in + n_out;
  lb_step_operand *ops = n ? lb_arena_new(p->arena, lb_step_operand, n) : NULL;
  if (n && !ops) return lb_oom();
  for (uint32_t i = 0; i < n; i++)
    ops[i] = (lb_step_operand){.tensor = &absent, .value = LB_NO_VALUE};
  if (n > p->plan->max_operands) p->plan->max_operands = n;
  *out = (lb_step){.kind = kind,
                   .node = node,
                   .in = ops,
                   .out = n ? ops + n_in : NULL,
                   .n_in = n_in,
                   .n_out = n_out};
  return LB_OK;
}

lb_status lb_planner_push(lb_planner *p, const lb_step *step) {
  lb_plan *plan = p->plan;
  LB_GROW(p->arena, plan->steps, plan->n_steps, p->steps.cap_steps);
  plan->steps[plan->n_steps++] = *step;
  p->values.memory.now = plan->n_steps;
  return LB_OK;
}

lb_status lb_planner_push_call(lb_planner *p, const lb_step *call) {
  lb_planner_note(p, call->node, LB_NODE_CALLED, call->reason, LB_NO_VALUE);
  return lb_planner_push(p, call);
}

lb_status lb_planner_new_call(lb_planner *p, const lb_node *n,
                              const lb_pvalue *const *in, lb_reason why,
                              lb_step *out) {
  LB_TRY(lb_planner_new_step(p, n, LB_STEP_CALL, n->n_in, n->n_out, out));
  for (uint32_t i = 0; i < n->n_in; i++)
    if (in[i]) LB_TRY(lb_planner_operand(p, in[i], &out->in[i]));
  out->reason = why;
  return LB_OK;
}

lb_status lb_planner_copy(lb_planner *p, lb_step_operand from,
                          lb_step_operand to, const lb_node *node,
                          lb_reason why) {
  lb_step copy;
  lb_disposition *d =
      node ? &p->plan->nodes[node->id - p->plan->first_node] : NULL;
  if (d && d->kind != LB_NODE_COPIED) {
    d->kind = LB_NODE_COPIED;
    d->reason = (uint8_t)why;
    d->skipped = false;
    d->step = p->plan->first_step + p->plan->n_steps;
  }
  LB_TRY(lb_planner_new_step(p, node, LB_STEP_COPY, 1, 1, &copy));
  copy.reason = why;
  copy.in[0] = from;
  copy.out[0] = to;
  return lb_planner_push(p, &copy);
}

lb_status lb_planner_temp(lb_planner *p, const lb_tensor *t,
                          lb_step_operand *out) {
  lb_tensor *dense;
  *out = (lb_step_operand){.storage = LB_STORAGE_ARENA, .value = LB_NO_VALUE};
  LB_TRY(lb_planner_copy_to_plan(p, t, &dense));
  dense->data = NULL;
  lb_tensor_dense(dense);
  out->tensor = dense;
  return lb_memory_get(&p->values.memory, p->state, lb_tensor_bytes(t),
                       &out->offset);
}

void lb_planner_end_temp(lb_planner *p, const lb_step_operand *temp) {
  lb_memory_put(&p->values.memory, temp->offset);
}

lb_status lb_planner_bind(lb_planner *p, uint32_t result, const lb_tensor *t) {
  lb_plan *plan = p->plan;
  for (uint32_t i = 0; i < plan->n_binds; i++) {
    if (plan->binds[i].result != result) continue;
    plan->binds[i].tensor = *t;  // the same memory, now with the final dims
    return LB_OK;
  }
  LB_GROW(p->arena, plan->binds, plan->n_binds, p->steps.cap_binds);
  plan->binds[plan->n_binds++] = (lb_bind){result, *t};
  return LB_OK;
}

lb_status lb_planner_add_stage_result(lb_planner *p,
                                      lb_stage_result stage_result,
                                      uint32_t value) {
  lb_plan *plan = p->plan;
  uint32_t cap = p->steps.cap_stage_results;
  LB_GROW(p->arena, plan->stage_results, plan->n_stage_results, cap);
  LB_GROW(p->state, p->steps.stage_result_values, plan->n_stage_results,
          p->steps.cap_stage_results);
  p->steps.stage_result_values[plan->n_stage_results] = value;
  plan->stage_results[plan->n_stage_results++] = stage_result;
  return LB_OK;
}

lb_status lb_planner_defer(lb_planner *p, const lb_node *node) {
  LB_GROW(p->state, p->steps.pending, p->steps.n_pending, p->steps.cap_pending);
  p->steps.pending[p->steps.n_pending++] = node;
  lb_planner_note(p, node, LB_NODE_LATER, LB_REASON_NEXT_STAGE, LB_NO_VALUE);
  return LB_OK;
}
