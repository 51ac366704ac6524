// plan/results.c -- values in the caller's memory.
#include "plan/planner.h"
#include "plan/skip.h"

uint32_t lb_planner_result_of(lb_planner *p, const lb_value *v,
                              const lb_tensor *t) {
  lb_output_path *path = &p->tally.output_of[v->id];
  if (path->result && path->conditional) {
    path->conditional = false;
    if (!lb_planner_leads_in_order(p, v, t)) path->result = 0;
  }
  return path->result;
}

bool lb_planner_output_of(lb_planner *p, const lb_value *v,
                          const lb_tensor *t) {
  uint32_t result = lb_planner_result_of(p, v, t);
  return result && !p->results.claimed[result - 1] &&
         !p->results.want[result - 1].strides;
}

static lb_status storage_of(lb_planner *p, const lb_value *v,
                            const lb_tensor *t, lb_storage *storage,
                            uint32_t *index) {
  uint32_t result = lb_planner_result_of(p, v, t);
  lb_tensor window;
  bool found;
  *storage = LB_STORAGE_ARENA;
  *index = 0;
  LB_TRY(lb_planner_find_window(p, v, t, &window, &found));
  if (found && lb_tensor_is_dense(&window)) {
    *storage = LB_STORAGE_OUTPUT;
    return lb_planner_take_window(p, v, t, index);
  }
  if (!lb_planner_output_of(p, v, t)) return LB_OK;
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

// Copies a finished result to the caller's memory. A value that is there in
// another order, because dims did not follow from expressions, leaves it first.
static lb_status copy_result(lb_planner *p, uint32_t result, const lb_pvalue *s,
                             lb_tensor *t) {
  const lb_value *v = p->region->results[result];
  const lb_node *node = lb_planner_moved_by(p, v);
  lb_step_operand from, temp,
      to = {.tensor = t,
            .storage = LB_STORAGE_OUTPUT,
            .index = result,
            .value = v->id};
  LB_TRY(lb_planner_operand(p, s, &from));
  if (from.storage != LB_STORAGE_OUTPUT || from.index != result)
    return lb_planner_copy(p, from, to, node, LB_REASON_RESULT);
  LB_TRY(lb_planner_temp(p, s->tensor, &temp));
  LB_TRY(lb_planner_copy(p, from, temp, node, LB_REASON_RESULT));
  LB_TRY(lb_planner_copy(p, temp, to, NULL, LB_REASON_RESULT));
  lb_planner_end_temp(p, &temp);
  return LB_OK;
}

// Whether the value is what the caller's memory holds.
static bool is_there(const lb_planner *p, uint32_t result, const lb_pvalue *s,
                     const lb_tensor *t) {
  lb_step_operand from = lb_planner_where(p, s);
  if (from.storage != LB_STORAGE_OUTPUT || from.index != result || from.offset)
    return false;
  for (int i = 0; i < t->rank; i++)
    if (t->dims[i] > 1 && s->tensor->strides[i] != t->strides[i]) return false;
  return true;
}

static lb_status deliver_one(lb_planner *p, uint32_t result,
                             const lb_pvalue *s) {
  lb_tensor *t;
  bool window;
  LB_TRY(lb_planner_copy_to_plan(p, s->tensor, &t));
  t->data = NULL;
  lb_tensor_dense(t);
  LB_TRY(lb_planner_window(p, result, t, t, &window));
  bool there = lb_tensor_count(t) == 0 || is_there(p, result, s, t);
  LB_TRY(lb_planner_bind(p, result, t));
  lb_status st = there ? LB_OK : copy_result(p, result, s, t);
  lb_planner_unuse(p, p->region->results[result], 1);
  return st;
}

lb_status lb_planner_deliver(lb_planner *p) {
  for (uint32_t i = 0; i < p->region->n_results; i++) {
    const lb_pvalue *s;
    if (!p->results.want[i].wanted || p->results.delivered[i]) continue;
    LB_TRY(lb_planner_state(p, p->region->results[i], &s));
    if (!s) continue;
    p->results.delivered[i] = true;
    LB_TRY(deliver_one(p, i, s));
  }
  return LB_OK;
}

bool lb_planner_delivered(const lb_planner *p) {
  for (uint32_t i = 0; i < p->region->n_results; i++)
    if (p->results.want[i].wanted && !p->results.delivered[i]) return false;
  return true;
}
