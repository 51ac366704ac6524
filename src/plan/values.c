// plan/values.c -- states, buffers and operands of a plan being built.
#include <assert.h>
#include <string.h>

#include "plan/planner.h"

// Doubles a list that lives in an arena; the old copy stays there.
#define GROW(arena, list, n, cap)                                 \
  do {                                                            \
    if ((n) == (cap)) {                                           \
      uint32_t cap_ = (cap) ? (cap)*2 : 4;                        \
      void *new_ = lb_arena_alloc((arena), cap_ * sizeof *(list), \
                                  _Alignof(max_align_t));         \
      if (!new_) return lb_oom();                                 \
      if (n) memcpy(new_, (list), (n) * sizeof *(list));          \
      (list) = new_;                                              \
      (cap) = cap_;                                               \
    }                                                             \
  } while (0)

static const lb_tensor absent = {.dtype = LB_NONE};

uint32_t lb_planner_root(const lb_planner *p, uint32_t id) {
  while (p->alias[id]) id = p->alias[id] - 1;
  return id;
}

// Most tensors have a third of the dims that there is room for.
static lb_status copy_to(lb_arena *a, const lb_tensor *t, lb_tensor **out) {
  lb_tensor *copy = lb_arena_alloc(a, sizeof *t, _Alignof(lb_tensor));
  *out = copy;
  if (!copy) return lb_oom();
  copy->dtype = t->dtype;
  copy->rank = t->rank;
  copy->data = t->data;
  for (int i = 0; i < t->rank; i++) {
    copy->dims[i] = t->dims[i];
    copy->strides[i] = t->strides[i];
  }
  return LB_OK;
}

lb_status lb_planner_keep(lb_planner *p, const lb_tensor *t, lb_tensor **out) {
  return copy_to(p->arena, t, out);
}

lb_status lb_planner_jot(lb_planner *p, const lb_tensor *t, lb_tensor **out) {
  return copy_to(p->state, t, out);
}

lb_status lb_planner_set(lb_planner *p, const lb_value *v, lb_pvalue s) {
  lb_pvalue *copy = lb_arena_alloc(p->state, sizeof s, _Alignof(lb_pvalue));
  if (!copy) return lb_oom();
  *copy = s;
  if (s.buffer != LB_NO_BUFFER) p->bufs[s.buffer].refs++;
  p->states[v->id] = copy;
  return LB_OK;
}

lb_status lb_planner_set_const(lb_planner *p, const lb_value *v,
                               const lb_tensor *t) {
  lb_tensor *kept;
  LB_TRY(lb_planner_keep(p, t, &kept));
  return lb_planner_set(p, v,
                        (lb_pvalue){.tensor = kept, .buffer = LB_NO_BUFFER});
}

lb_status lb_planner_find(lb_planner *p, const lb_value *v,
                          const lb_pvalue **out) {
  uint32_t id = lb_planner_root(p, v->id);
  v = p->prog->graph->values[id];
  if (!p->states[id] && v->info.data)
    LB_TRY(lb_planner_set(
        p, v, (lb_pvalue){.tensor = v->info.data, .buffer = LB_NO_BUFFER}));
  *out = p->states[id];
  return LB_OK;
}

lb_status lb_planner_add_buffer(lb_planner *p, const lb_tensor *t,
                                lb_place place, uint32_t index, uint32_t *out) {
  GROW(p->state, p->bufs, p->n_bufs, p->cap_bufs);
  lb_pbuf *b = &p->bufs[p->n_bufs];
  *b = (lb_pbuf){.place = place, .index = index};
  *out = p->n_bufs;
  if (place == LB_PLACE_ARENA)
    LB_TRY(lb_memory_get(&p->memory, p->state, lb_tensor_bytes(t), &b->mark));
  p->n_bufs++;
  return LB_OK;
}

static lb_status set_in(lb_planner *p, const lb_value *v, const lb_tensor *t,
                        lb_place place, uint32_t index, bool dense) {
  lb_tensor *jotted;
  uint32_t buffer;
  LB_TRY(lb_planner_add_buffer(p, t, place, index, &buffer));
  LB_TRY(lb_planner_jot(p, t, &jotted));
  if (dense) lb_tensor_dense(jotted);
  jotted->data = NULL;
  return lb_planner_set(p, v, (lb_pvalue){.tensor = jotted, .buffer = buffer});
}

lb_status lb_planner_set_view(lb_planner *p, const lb_value *v,
                              const lb_tensor *t, lb_place place,
                              uint32_t index) {
  return set_in(p, v, t, place, index, false);
}

lb_status lb_planner_set_dense(lb_planner *p, const lb_value *v,
                               const lb_tensor *t, lb_place place,
                               uint32_t index) {
  return set_in(p, v, t, place, index, true);
}

void lb_planner_leave(lb_planner *p, uint32_t buffer) {
  lb_pbuf *b = &p->bufs[buffer];
  if (--b->refs || b->place != LB_PLACE_ARENA) return;
  lb_memory_put(&p->memory, b->mark);
  b->place = LB_PLACE_NONE;
}

void lb_planner_unuse(lb_planner *p, const lb_value *v) {
  lb_planner_unuse_times(p, v, 1);
}

void lb_planner_unuse_times(lb_planner *p, const lb_value *v, uint32_t times) {
  uint32_t id = lb_planner_root(p, v->id);
  if (p->prog->graph->values[id]->info.data) return;
  assert(p->uses[id] >= times);
  p->uses[id] -= times;
  if (p->uses[id] || !p->states[id]) return;
  const lb_pvalue *s = p->states[id];
  if (s->buffer != LB_NO_BUFFER) lb_planner_leave(p, s->buffer);
}

lb_operand lb_planner_where(const lb_planner *p, const lb_pvalue *s) {
  lb_operand o = {.tensor = s->tensor};
  if (s->buffer == LB_NO_BUFFER) return o;
  const lb_pbuf *b = &p->bufs[s->buffer];
  o.place = b->place;
  o.index = b->index;
  o.offset = s->offset + b->mark;
  return o;
}

lb_status lb_planner_operand(lb_planner *p, const lb_pvalue *s,
                             lb_operand *out) {
  lb_tensor *kept;
  *out = lb_planner_where(p, s);
  if (s->buffer == LB_NO_BUFFER) return LB_OK;
  LB_TRY(lb_planner_keep(p, s->tensor, &kept));
  out->tensor = kept;
  return LB_OK;
}

lb_status lb_planner_step(lb_planner *p, const lb_node *node, lb_step_kind kind,
                          uint32_t n_in, uint32_t n_out, lb_step **out) {
  lb_plan *plan = p->plan;
  GROW(p->arena, plan->steps, plan->n_steps, p->cap_steps);
  bool some = n_in + n_out > 0;
  lb_operand *ops =
      some ? lb_arena_new(p->arena, lb_operand, (size_t)n_in + n_out) : NULL;
  if (some && !ops) return lb_oom();
  for (uint32_t i = 0; i < n_in + n_out; i++) ops[i].tensor = &absent;
  if (n_in + n_out > plan->max_operands) plan->max_operands = n_in + n_out;
  *out = &plan->steps[plan->n_steps++];
  **out = (lb_step){.kind = kind,
                    .node = node,
                    .in = ops,
                    .out = some ? ops + n_in : NULL,
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
  GROW(p->arena, plan->binds, plan->n_binds, p->cap_binds);
  plan->binds[plan->n_binds++] = (lb_bind){result, *t};
  return LB_OK;
}

lb_status lb_planner_fact(lb_planner *p, lb_fact fact, uint32_t value) {
  lb_plan *plan = p->plan;
  uint32_t cap = p->cap_facts;
  GROW(p->arena, plan->facts, plan->n_facts, cap);
  GROW(p->state, p->fact_values, plan->n_facts, p->cap_facts);
  p->fact_values[plan->n_facts] = value;
  plan->facts[plan->n_facts++] = fact;
  return LB_OK;
}

lb_status lb_planner_defer(lb_planner *p, const lb_node *node) {
  GROW(p->state, p->pending, p->n_pending, p->cap_pending);
  p->pending[p->n_pending++] = node;
  return LB_OK;
}
