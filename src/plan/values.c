// plan/values.c -- states, buffers and operands of a plan being built.
#include <assert.h>
#include <string.h>

#include "plan/planner.h"

// Doubles a list that lives in the plan's arena; the old copy stays there.
#define GROW(p, list, n, cap)                                        \
  do {                                                               \
    if ((n) == (cap)) {                                              \
      uint32_t cap_ = (cap) ? (cap)*2 : 16;                          \
      void *new_ = lb_arena_alloc((p)->arena, cap_ * sizeof *(list), \
                                  _Alignof(max_align_t));            \
      if (!new_) return lb_oom();                                    \
      if (n) memcpy(new_, (list), (n) * sizeof *(list));             \
      (list) = new_;                                                 \
      (cap) = cap_;                                                  \
    }                                                                \
  } while (0)

uint32_t lb_planner_root(const lb_planner *p, uint32_t id) {
  while (p->alias[id]) id = p->alias[id] - 1;
  return id;
}

static void describe(lb_vinfo *info, const lb_tensor *t) {
  info->dtype = t->dtype;
  info->rank = t->rank;
  for (int i = 0; i < t->rank; i++) info->dims[i] = lb_dim_const(t->dims[i]);
}

lb_status lb_planner_set(lb_planner *p, const lb_value *v, const lb_pvalue *s) {
  lb_pvalue *copy =
      lb_arena_memdup(p->arena, s, sizeof *s, _Alignof(lb_pvalue));
  if (!copy) return lb_oom();
  describe(&copy->info, &copy->tensor);
  if (copy->buffer == LB_NO_BUFFER) {
    copy->info.data = &copy->tensor;
  } else {
    p->bufs[copy->buffer].refs++;
  }
  p->states[v->id] = copy;
  return LB_OK;
}

lb_status lb_planner_set_const(lb_planner *p, const lb_value *v,
                               const lb_tensor *t) {
  lb_pvalue s = {.tensor = *t, .buffer = LB_NO_BUFFER};
  return lb_planner_set(p, v, &s);
}

lb_status lb_planner_state(lb_planner *p, const lb_value *v,
                           const lb_pvalue **out) {
  uint32_t id = lb_planner_root(p, v->id);
  v = p->prog->graph->values[id];
  if (!p->states[id] && v->info.data)
    LB_TRY(lb_planner_set_const(p, v, v->info.data));
  *out = p->states[id];
  return LB_OK;
}

lb_status lb_planner_set_dense(lb_planner *p, const lb_value *v,
                               const lb_tensor *t, lb_place place,
                               uint32_t index) {
  GROW(p, p->bufs, p->n_bufs, p->cap_bufs);
  lb_pbuf *b = &p->bufs[p->n_bufs];
  *b = (lb_pbuf){.place = place, .index = index};
  if (place == LB_PLACE_ARENA)
    LB_TRY(lb_memory_get(&p->memory, p->arena, lb_tensor_bytes(t), &b->offset));
  lb_pvalue s = {.tensor = *t, .buffer = p->n_bufs++};
  lb_tensor_dense(&s.tensor);
  s.tensor.data = NULL;
  return lb_planner_set(p, v, &s);
}

void lb_planner_unuse(lb_planner *p, const lb_value *v) {
  uint32_t id = lb_planner_root(p, v->id);
  if (p->prog->graph->values[id]->info.data) return;
  assert(p->uses[id] > 0);
  if (--p->uses[id] || !p->states[id]) return;
  const lb_pvalue *s = p->states[id];
  if (s->buffer == LB_NO_BUFFER) return;
  lb_pbuf *b = &p->bufs[s->buffer];
  if (--b->refs == 0 && b->place == LB_PLACE_ARENA)
    lb_memory_put(&p->memory, b->offset);
}

lb_operand lb_planner_operand(const lb_planner *p, const lb_pvalue *s) {
  lb_operand o = {.tensor = s->tensor};
  if (s->buffer == LB_NO_BUFFER) return o;
  const lb_pbuf *b = &p->bufs[s->buffer];
  o.place = b->place;
  o.index = b->index;
  o.offset = s->offset + (int64_t)b->offset;
  return o;
}

lb_status lb_planner_step(lb_planner *p, const lb_node *node, lb_step_kind kind,
                          uint32_t n_in, uint32_t n_out, lb_step **out) {
  lb_plan *plan = p->plan;
  GROW(p, plan->steps, plan->n_steps, p->cap_steps);
  lb_operand *ops = lb_arena_new(p->arena, lb_operand, (size_t)n_in + n_out);
  if (!ops) return lb_oom();
  if (n_in + n_out > plan->max_operands) plan->max_operands = n_in + n_out;
  *out = &plan->steps[plan->n_steps++];
  **out = (lb_step){.kind = kind,
                    .node = node,
                    .in = ops,
                    .out = ops + n_in,
                    .n_in = n_in,
                    .n_out = n_out};
  return LB_OK;
}

lb_status lb_planner_bind(lb_planner *p, uint32_t result, const lb_tensor *t) {
  lb_plan *plan = p->plan;
  for (uint32_t i = 0; i < plan->n_binds; i++) {
    if (plan->binds[i].result != result) continue;
    plan->binds[i].tensor = *t;  // the same bytes, now with the final dims
    return LB_OK;
  }
  GROW(p, plan->binds, plan->n_binds, p->cap_binds);
  plan->binds[plan->n_binds++] = (lb_bind){result, *t};
  return LB_OK;
}

lb_status lb_planner_fact(lb_planner *p, lb_fact fact, uint32_t value) {
  lb_plan *plan = p->plan;
  uint32_t cap = p->cap_facts;
  GROW(p, plan->facts, plan->n_facts, cap);
  GROW(p, p->fact_values, plan->n_facts, p->cap_facts);
  p->fact_values[plan->n_facts] = value;
  plan->facts[plan->n_facts++] = fact;
  return LB_OK;
}

lb_status lb_planner_defer(lb_planner *p, const lb_node *node) {
  GROW(p, p->pending, p->n_pending, p->cap_pending);
  p->pending[p->n_pending++] = node;
  return LB_OK;
}
