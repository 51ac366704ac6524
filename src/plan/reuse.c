// plan/reuse.c -- reuses the launches of a partition for equivalent ones.
//
// The results of binding and splitting follow from the dims and strides of
// operands. The dims of equivalent partitions are equal; if the strides are
// equal as well, the launches differ only in the addresses of operands, and
// share everything else.
#include <string.h>

#include "plan/planner.h"

#define MAX_OPERANDS (LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN)
#define RESULT UINT8_MAX  // special indices in `values`
#define WEIGHTS (UINT8_MAX - 1)

struct lb_cached_launch {  // of the most recent partition of a class
  const lb_launch *launch;
  uint32_t n;                          // operands
  uint8_t values[MAX_OPERANDS];        // by operand: index in
                                       // lb_part_class.values
  const lb_tensor *t[MAX_OPERANDS];    // by operand; NULL: weights
  lb_address addresses[MAX_OPERANDS];  // of the operands of that partition
};

static const lb_part_class *class_of(const lb_planner *p,
                                     const lb_partition *part) {
  const lb_part_classes *t = &p->prog->classes;
  const lb_part_class *cls =
      t->of_node ? t->of_node[part->nodes[part->n_nodes - 1]->id] : NULL;
  return cls && cls->class_id != LB_NO_PART_CLASS ? cls : NULL;
}

static bool is_like(const lb_tensor *a, const lb_tensor *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i] || a->strides[i] != b->strides[i])
      return false;
  return true;
}

lb_status lb_planner_find_cached_launch(lb_planner *p, const lb_partition *part,
                                        const lb_tensor *result,
                                        const lb_cached_launch **out) {
  const lb_part_class *cls = class_of(p, part);
  const lb_cached_launch *cached =
      cls ? p->launch.by_class[cls->class_id] : NULL;
  *out = NULL;
  for (uint32_t i = 0; cached && i < cached->n; i++) {
    const lb_pvalue *s;
    const lb_tensor *t = result;
    if (cached->values[i] == WEIGHTS) continue;
    if (cached->values[i] != RESULT) {
      LB_TRY(lb_planner_state(p, cls->values[cached->values[i]], &s));
      if (!s) return LB_OK;
      t = s->tensor;
    }
    if (!is_like(t, cached->t[i])) return LB_OK;
  }
  *out = cached;
  return LB_OK;
}

// -- storing ------------------------------------------------------------------

static bool try_number(const lb_part_class *cls, const lb_value *v,
                       uint8_t *out) {
  for (uint32_t i = 0; i < cls->n_values && i < WEIGHTS; i++) {
    *out = (uint8_t)i;
    if (cls->values[i] == v) return true;
  }
  return false;
}

static lb_status note_operand(lb_planner *p, const lb_partition *part,
                              const lb_value *v, lb_cached_launch *m,
                              bool *ok) {
  uint32_t i = m->n++;
  const lb_pvalue *s;
  m->t[i] = NULL;
  m->values[i] = WEIGHTS;
  if (!v) return LB_OK;
  m->values[i] = RESULT;
  if (v != lb_partition_result(part))
    *ok = *ok && try_number(class_of(p, part), v, &m->values[i]);
  LB_TRY(lb_planner_state(p, v, &s));
  m->t[i] = s->tensor;
  return LB_OK;
}

lb_status lb_planner_cache_launch(lb_planner *p, const lb_partition *part,
                                  const lb_binding *b) {
  const lb_part_class *cls = class_of(p, part);
  bool ok = true;
  // Tables and segments belong to one launch.
  if (!cls || b->table_bytes || b->segments) return LB_OK;
  lb_cached_launch *m =
      lb_arena_alloc(p->state, sizeof *m, _Alignof(lb_cached_launch));
  if (!m) return lb_oom();
  m->launch = p->plan->steps[p->plan->n_steps - 1].launch;
  m->n = 0;
  for (uint32_t i = 0; i < b->n_operands; i++)
    LB_TRY(note_operand(p, part, b->operands[i].value, m, &ok));
  LB_TRY(lb_planner_addresses(p, part, b, m->addresses));
  if (ok) p->launch.by_class[cls->class_id] = m;
  return LB_OK;
}

// -- reusing ------------------------------------------------------------------

static lb_status find_addresses(lb_planner *p, const lb_partition *part,
                                const lb_cached_launch *m, lb_address *out) {
  const lb_part_class *cls = class_of(p, part);
  for (uint32_t i = 0; i < m->n; i++) {
    const lb_value *v = m->values[i] == RESULT    ? lb_partition_result(part)
                        : m->values[i] == WEIGHTS ? NULL
                                                  : cls->values[m->values[i]];
    LB_TRY(lb_planner_value_address(p, part, v, &out[i]));
  }
  return LB_OK;
}

static lb_launch *copy_launch(lb_planner *p, const lb_launch *like,
                              const lb_address *from, const lb_address *to) {
  size_t n = like->n_operands;
  lb_launch *l =
      lb_arena_alloc(p->arena, sizeof *l + n * sizeof(lb_address), 8);
  if (!l) return NULL;
  lb_address *addresses = (lb_address *)(void *)(l + 1);
  *l = *like;
  l->next = NULL;
  l->addresses = addresses;
  for (size_t i = 0; i < n; i++) {
    addresses[i] = to[i];
    addresses[i].offset += like->addresses[i].offset - from[i].offset;
  }
  return l;
}

lb_status lb_planner_reuse_launch(lb_planner *p, const lb_partition *part,
                                  const lb_cached_launch *m) {
  lb_address addresses[MAX_OPERANDS];
  lb_launch *first;
  LB_TRY(find_addresses(p, part, m, addresses));
  if (!p->in_warmup)
    lb_slots_use(p->prog->slots, p->prog->user, m->launch->slot);
  lb_launch **next = &first;
  for (const lb_launch *l = m->launch; l; l = l->next, next = &(*next)->next) {
    *next = copy_launch(p, l, m->addresses, addresses);
    if (!*next) return lb_oom();
  }
  return lb_planner_push_launch(p, part, first);
}
