// plan/values.c -- states, buffers and operands of a plan being built.
#include <assert.h>

#include "plan/planner.h"

uint32_t lb_planner_root(const lb_planner *p, uint32_t id) {
  while (p->values.alias[id]) id = p->values.alias[id] - 1;
  return id;
}

// Copies only `rank` dims: most tensors use a third of MAX_RANK.
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

lb_status lb_planner_copy_to_plan(lb_planner *p, const lb_tensor *t,
                                  lb_tensor **out) {
  return copy_to(p->arena, t, out);
}

lb_status lb_planner_copy_meta(lb_planner *p, const lb_tensor *t,
                               lb_tensor **out) {
  return copy_to(p->state, t, out);
}

lb_status lb_planner_set(lb_planner *p, const lb_value *v, lb_pvalue s) {
  lb_pvalue *copy = lb_arena_alloc(p->state, sizeof s, _Alignof(lb_pvalue));
  if (!copy) return lb_oom();
  *copy = s;
  copy->value = v->id;
  if (s.buffer != LB_NO_BUFFER) p->values.bufs[s.buffer].refs++;
  p->values.states[v->id] = copy;
  return LB_OK;
}

lb_status lb_planner_set_const(lb_planner *p, const lb_value *v,
                               const lb_tensor *t) {
  lb_tensor *kept;
  LB_TRY(lb_planner_copy_to_plan(p, t, &kept));
  return lb_planner_set(p, v,
                        (lb_pvalue){.tensor = kept, .buffer = LB_NO_BUFFER});
}

lb_status lb_planner_find(lb_planner *p, const lb_value *v,
                          const lb_pvalue **out) {
  uint32_t id = lb_planner_root(p, v->id);
  v = p->prog->graph->values[id];
  if (!p->values.states[id] && v->info.data)
    LB_TRY(lb_planner_set(
        p, v, (lb_pvalue){.tensor = v->info.data, .buffer = LB_NO_BUFFER}));
  *out = p->values.states[id];
  return LB_OK;
}

lb_status lb_planner_set_content(lb_planner *p, const lb_value *v,
                                 const lb_content *content) {
  lb_pvalue *copy = lb_arena_memdup(p->state, p->values.states[v->id],
                                    sizeof *copy, _Alignof(lb_pvalue));
  lb_content *kept =
      lb_arena_memdup(p->state, content, sizeof *content, _Alignof(lb_content));
  if (!copy || !kept) return lb_oom();
  copy->content = kept;
  p->values.states[v->id] = copy;
  return LB_OK;
}

uint32_t lb_planner_base(const lb_planner *p, lb_storage storage,
                         uint32_t index) {
  const lb_region *r = p->region;
  switch (storage) {
    case LB_STORAGE_NONE: break;
    case LB_STORAGE_ARENA: return LB_BASE_ARENA;
    case LB_STORAGE_INPUT: return LB_BASE_FIRST + index;
    case LB_STORAGE_OUTPUT: return LB_BASE_FIRST + r->n_params + index;
    case LB_STORAGE_DYNAMIC:
      return LB_BASE_FIRST + r->n_params + r->n_results + index;
  }
  return LB_BASE_NONE;
}

lb_status lb_planner_add_buffer(lb_planner *p, const lb_tensor *t,
                                lb_storage storage, uint32_t index,
                                uint32_t *out) {
  LB_GROW(p->state, p->values.bufs, p->values.n_bufs, p->values.cap_bufs);
  lb_pbuf *b = &p->values.bufs[p->values.n_bufs];
  *b = (lb_pbuf){.storage = storage,
                 .index = index,
                 .base = lb_planner_base(p, storage, index)};
  *out = p->values.n_bufs;
  if (storage == LB_STORAGE_ARENA)
    LB_TRY(lb_memory_get(&p->values.memory, p->state, lb_tensor_bytes(t),
                         &b->virtual_offset));
  p->values.n_bufs++;
  return LB_OK;
}

static lb_status set_in(lb_planner *p, const lb_value *v, const lb_tensor *t,
                        lb_storage storage, uint32_t index, bool dense) {
  lb_tensor *meta;
  uint32_t buffer;
  LB_TRY(lb_planner_add_buffer(p, t, storage, index, &buffer));
  LB_TRY(lb_planner_copy_meta(p, t, &meta));
  if (dense) lb_tensor_dense(meta);
  meta->data = NULL;
  return lb_planner_set(p, v, (lb_pvalue){.tensor = meta, .buffer = buffer});
}

lb_status lb_planner_set_view(lb_planner *p, const lb_value *v,
                              const lb_tensor *t, lb_storage storage,
                              uint32_t index) {
  return set_in(p, v, t, storage, index, false);
}

lb_status lb_planner_set_dense(lb_planner *p, const lb_value *v,
                               const lb_tensor *t, lb_storage storage,
                               uint32_t index) {
  return set_in(p, v, t, storage, index, true);
}

void lb_planner_leave(lb_planner *p, uint32_t buffer) {
  lb_pbuf *b = &p->values.bufs[buffer];
  if (--b->refs || b->storage != LB_STORAGE_ARENA) return;
  lb_memory_put(&p->values.memory, b->virtual_offset);
  b->storage = LB_STORAGE_NONE;
}

void lb_planner_unuse(lb_planner *p, const lb_value *v, uint32_t times) {
  uint32_t id = lb_planner_root(p, v->id);
  if (p->prog->graph->values[id]->info.data) return;
  assert(p->tally.uses[id] >= times);
  p->tally.uses[id] -= times;
  if (p->tally.uses[id] || !p->values.states[id]) return;
  const lb_pvalue *s = p->values.states[id];
  if (s->buffer != LB_NO_BUFFER) lb_planner_leave(p, s->buffer);
}

void lb_planner_unuse_inputs(lb_planner *p, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i]) lb_planner_unuse(p, n->in[i], 1);
}

bool lb_planner_is_read(const lb_planner *p, const lb_value *v) {
  return v && p->tally.uses[lb_planner_root(p, v->id)] > 0;
}

lb_step_operand lb_planner_where(const lb_planner *p, const lb_pvalue *s) {
  lb_step_operand o = {.tensor = s->tensor, .value = s->value};
  if (s->buffer == LB_NO_BUFFER) return o;
  const lb_pbuf *b = &p->values.bufs[s->buffer];
  o.storage = b->storage;
  o.index = b->index;
  o.offset = s->offset + b->virtual_offset;
  return o;
}

lb_status lb_planner_operand(lb_planner *p, const lb_pvalue *s,
                             lb_step_operand *out) {
  lb_tensor *kept;
  *out = lb_planner_where(p, s);
  if (s->buffer == LB_NO_BUFFER) return LB_OK;
  LB_TRY(lb_planner_copy_to_plan(p, s->tensor, &kept));
  out->tensor = kept;
  return LB_OK;
}
