// plan/cover.c -- how a partition runs before its own kernel exists.
//
// Its nodes are taken in *pieces*: stretches of them whose kernels the pack
// has, the longest first. A node that is in none runs by its host kernel. Where
// pieces begin is decided once for a slot, and remembered there: to decide it
// at each new shape would be to try every stretch again.
#include "plan/planner.h"

static bool reads(const lb_node *n, const lb_value *v) {
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] == v) return true;
  return false;
}

// Nodes [from, to) as a partition of their own; false if more of them than the
// last one's value is read outside.
static bool piece_of(const lb_partition *part, uint32_t from, uint32_t to,
                     lb_partition *out) {
  for (uint32_t i = from; i + 1 < to; i++)
    for (uint32_t k = to; k < part->n_nodes; k++)
      if (reads(part->nodes[k], part->nodes[i]->out[0])) return false;
  bool anchored =
      part->form != LB_FORM_MAP && part->anchor >= from && part->anchor < to;
  *out = (lb_partition){.form = anchored ? part->form : LB_FORM_MAP,
                        .nodes = part->nodes + from,
                        .n_nodes = to - from,
                        .anchor = anchored ? part->anchor - from : 0,
                        .packed = anchored ? part->packed : NULL,
                        .panels = part->panels,
                        .window = anchored ? part->window : NULL,
                        .memo = part->memo};
  return true;
}

// The slot of the piece if the pack has its kernel, else NULL.
static lb_status try_slot(lb_planner *p, const lb_partition *piece,
                          lb_binding *b, lb_slot **out) {
  lb_slots *slots = p->prog->slots;
  bool ok;
  *out = NULL;
  if (!slots->pack) return LB_OK;
  LB_TRY(lb_partition_bind(piece, lb_planner_tensor, p, b, &ok));
  if (!ok) return LB_OK;
  lb_facts facts =
      lb_facts_prefer(&b->spec, slots->lanes, b->dims, p->prog->reusable);
  return lb_slots_try_pack(slots, &b->spec, &facts, out);
}

// Where the longest piece from there ends; a node alone is one in any case.
static lb_status end_of(lb_planner *p, const lb_partition *part, uint32_t from,
                        uint32_t *out) {
  for (uint32_t to = part->n_nodes; to > from + 1; to--) {
    lb_partition piece;
    lb_binding b;
    lb_slot *slot;
    if (!piece_of(part, from, to, &piece)) continue;
    LB_TRY(try_slot(p, &piece, &b, &slot));
    if (!slot) continue;
    *out = to;
    return LB_OK;
  }
  *out = from + 1;
  return LB_OK;
}

static lb_status decide(lb_planner *p, const lb_partition *part,
                        uint64_t *cuts) {
  *cuts = 0;
  for (uint32_t from = 0; from < part->n_nodes;) {
    *cuts |= UINT64_C(1) << from;
    LB_TRY(end_of(p, part, from, &from));
  }
  return LB_OK;
}

static lb_status put_piece(lb_planner *p, const lb_partition *part,
                           const lb_step *calls, uint32_t from, uint32_t to) {
  lb_partition piece;
  lb_binding b;
  lb_slot *slot = NULL;
  lb_step *step;
  if (piece_of(part, from, to, &piece)) LB_TRY(try_slot(p, &piece, &b, &slot));
  if (slot) {
    lb_recipe recipe;
    lb_recipe_init(&recipe, &b.spec, slot);
    return lb_planner_add_launch(p, &piece, &b, &recipe);
  }
  for (uint32_t i = from; i < to; i++) {
    LB_TRY(lb_planner_step(p, NULL, LB_STEP_CALL, 0, 0, &step));
    *step = calls[i];
  }
  return LB_OK;
}

// A host kernel's result is dense. Where it should lie otherwise, it is copied.
static lb_status put_in_place(lb_planner *p, const lb_partition *part) {
  const lb_pvalue *result = p->states[lb_partition_result(part)->id];
  const lb_step *last = &p->plan->steps[p->plan->n_steps - 1];
  lb_step *copy;
  if (last->kind != LB_STEP_CALL) return LB_OK;
  lb_operand from = last->out[0], to = lb_planner_where(p, result);
  if (from.place == to.place && from.index == to.index &&
      from.offset == to.offset)
    return LB_OK;
  LB_TRY(lb_planner_step(p, NULL, LB_STEP_COPY, 1, 1, &copy));
  copy->in[0] = from;
  return lb_planner_operand(p, result, &copy->out[0]);
}

_Static_assert(LB_SPEC_MAX_NODES <= 64, "a bit for each node");

lb_status lb_planner_cover(lb_planner *p, const lb_partition *part,
                           lb_slot *slot, const lb_step *calls) {
  uint64_t cuts = atomic_load_explicit(&slot->cuts, memory_order_relaxed);
  if (!cuts) {
    LB_TRY(decide(p, part, &cuts));
    atomic_store_explicit(&slot->cuts, cuts, memory_order_relaxed);
  }
  for (uint32_t from = 0, to; from < part->n_nodes; from = to) {
    for (to = from + 1; to < part->n_nodes && !(cuts >> to & 1);) to++;
    LB_TRY(put_piece(p, part, calls, from, to));
  }
  return put_in_place(p, part);
}
