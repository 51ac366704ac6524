// plan/results.c -- values in the caller's memory.
#include "plan/planner.h"

bool lb_planner_output_of(const lb_planner *p, const lb_value *v) {
  uint32_t result = p->tally.output_of[v->id];
  return result && !p->results.claimed[result - 1] &&
         !p->results.want[result - 1].strides;
}

static lb_status storage_of(lb_planner *p, const lb_value *v,
                            const lb_tensor *t, lb_storage *storage,
                            uint32_t *index) {
  uint32_t result = p->tally.output_of[v->id];
  lb_tensor window;
  bool found;
  *storage = LB_STORAGE_ARENA;
  *index = 0;
  LB_TRY(lb_planner_find_window(p, v, t, &window, &found));
  if (found && lb_tensor_is_dense(&window)) {
    *storage = LB_STORAGE_OUTPUT;
    return lb_planner_take_window(p, v, t, index);
  }
  if (!lb_planner_output_of(p, v)) return LB_OK;
  p->results.claimed[result - 1] = true;
  *storage = LB_STORAGE_OUTPUT;
  *index = result - 1;
  return lb_planner_bind(p, result - 1, t);
}

lb_status lb_planner_buffer(lb_planner *p, const lb_value *v,
                            const lb_tensor *t, uint32_t *out) {
  lb_storage storage;
  uint32_t index;
  LB_TRY(storage_of(p, v, t, &storage, &index));
  return lb_planner_add_buffer(p, t, storage, index, out);
}

lb_status lb_planner_place(lb_planner *p, const lb_value *v,
                           const lb_tensor *t) {
  lb_storage storage;
  uint32_t index;
  LB_TRY(storage_of(p, v, t, &storage, &index));
  return lb_planner_set_dense(p, v, t, storage, index);
}

lb_status lb_planner_deliver(lb_planner *p) {
  for (uint32_t i = 0; i < p->region->n_results; i++) {
    const lb_value *v = p->region->results[i];
    const lb_pvalue *s;
    if (!p->results.want[i].wanted || p->results.delivered[i]) continue;
    LB_TRY(lb_planner_state(p, v, &s));
    if (!s) continue;
    p->results.delivered[i] = true;
    lb_tensor *t;
    bool window;
    LB_TRY(lb_planner_copy_to_plan(p, s->tensor, &t));
    t->data = NULL;
    lb_tensor_dense(t);
    LB_TRY(lb_planner_window(p, i, t, t, &window));
    lb_step_operand from = lb_planner_where(p, s);
    bool there = from.storage == LB_STORAGE_OUTPUT && from.index == i;
    if (!there) LB_TRY(lb_planner_operand(p, s, &from));
    LB_TRY(lb_planner_bind(p, i, t));
    lb_planner_unuse(p, v, 1);
    if (there) continue;
    lb_step_operand to = {
        .tensor = t, .storage = LB_STORAGE_OUTPUT, .index = i, .value = v->id};
    LB_TRY(lb_planner_copy(p, from, to));
  }
  return LB_OK;
}

bool lb_planner_delivered(const lb_planner *p) {
  for (uint32_t i = 0; i < p->region->n_results; i++)
    if (p->results.want[i].wanted && !p->results.delivered[i]) return false;
  return true;
}
