// plan/cover.c -- how a partition runs before its own kernel exists.
//
// Its nodes are split into *pieces*: ranges of nodes for which the built-in
// pack has a kernel, the longest first. A node in no piece runs its reference
// kernel. Where pieces start is decided once per launch template and stored
// there, because trying every range at each new shape would be slow.
#include "plan/cover.h"

#include "plan/planner.h"

static bool reads(const lb_node *n, const lb_value *v) {
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] == v) return true;
  return false;
}

// Nodes [from, to) as a partition of their own; false if values other than the
// last node's are read outside.
static bool piece_of(const lb_partition *part, uint32_t from, uint32_t to,
                     lb_partition *out) {
  for (uint32_t i = from; i + 1 < to; i++)
    for (uint32_t k = to; k < part->n_nodes; k++)
      if (reads(part->nodes[k], part->nodes[i]->out[0])) return false;
  bool anchored = part->form != LB_FORM_ELTWISE && part->anchor >= from &&
                  part->anchor < to;
  *out = (lb_partition){.form = anchored ? part->form : LB_FORM_ELTWISE,
                        .nodes = part->nodes + from,
                        .n_nodes = to - from,
                        .anchor = anchored ? part->anchor - from : 0,
                        .packed = anchored ? part->packed : NULL,
                        .panels = part->panels,
                        .window = anchored ? part->window : NULL,
                        .memo = part->memo};
  return true;
}

// The slot of the piece if the pack has its kernel; else NULL.
static lb_status try_slot(lb_planner *p, const lb_partition *piece,
                          lb_binding *b, lb_slot **out) {
  lb_slots *slots = p->prog->slots;
  bool ok;
  *out = NULL;
  if (!slots->device->n_builtin) return LB_OK;
  LB_TRY(lb_partition_bind(piece, lb_planner_tensor, p, b, &ok));
  if (!ok) return LB_OK;
  lb_facts facts =
      lb_facts_prefer(&b->spec, slots->lanes, b->dims, p->prog->reusable);
  return lb_slots_try_pack(slots, &b->spec, &facts, out);
}

// Finds the end of the longest piece that starts at `from`. A single node is
// always a piece.
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

static lb_status find_piece_starts(lb_planner *p, const lb_partition *part,
                                   uint64_t *starts) {
  *starts = 0;
  for (uint32_t from = 0; from < part->n_nodes;) {
    *starts |= UINT64_C(1) << from;
    LB_TRY(end_of(p, part, from, &from));
  }
  return LB_OK;
}

// -- steps -------------------------------------------------------------------

// Memory for the output of node i; that of the last node already exists.
static lb_status place(lb_planner *p, const lb_partition *part, uint32_t i) {
  const lb_value *v = part->nodes[i]->out[0];
  lb_tensor t;
  if (p->values.states[v->id]) return LB_OK;
  LB_TRY(lb_planner_tensor(p, v, &t));
  return lb_planner_place(p, v, &t);
}

// The partition's inputs stay alive until all of it has run; values inside the
// partition are freed after their last reader.
static void end_reads(lb_planner *p, const lb_partition *part, uint32_t i) {
  const lb_node *n = part->nodes[i];
  for (uint32_t k = 0; k < n->n_in; k++)
    for (uint32_t from = 0; from < i; from++)
      if (n->in[k] == part->nodes[from]->out[0])
        lb_planner_unuse(p, n->in[k], 1);
}

// Reference kernels write dense results. If the value is strided, the result is
// copied into it.
static lb_status put_call(lb_planner *p, const lb_partition *part, uint32_t i,
                          lb_reason why) {
  const lb_node *n = part->nodes[i];
  const lb_pvalue **in = LB_SCRATCH(p, const lb_pvalue *, n->n_in);
  lb_step_operand temp;
  lb_step call;
  if (!in) return lb_oom();
  for (uint32_t k = 0; k < n->n_in; k++) {
    in[k] = NULL;
    if (n->in[k]) LB_TRY(lb_planner_state(p, n->in[k], &in[k]));
  }
  LB_TRY(place(p, part, i));
  LB_TRY(lb_planner_new_call(p, n, in, why, &call));
  const lb_pvalue *result = p->values.states[n->out[0]->id];
  LB_TRY(lb_planner_operand(p, result, &call.out[0]));
  lb_step_operand to = call.out[0];
  bool dense = lb_tensor_is_dense(result->tensor);
  if (!dense) {
    LB_TRY(lb_planner_temp(p, result->tensor, &temp));
    temp.value = result->value;
    call.out[0] = temp;
  }
  end_reads(p, part, i);  // after all memory written by this step is allocated
  LB_TRY(p->launch.covers ? lb_planner_push(p, &call)
                          : lb_planner_push_call(p, &call));
  if (dense) return LB_OK;
  lb_planner_end_temp(p, &temp);
  return lb_planner_copy(p, temp, to, NULL, LB_REASON_LAYOUT);
}

static lb_status put_piece(lb_planner *p, const lb_partition *part,
                           uint32_t from, uint32_t to, lb_reason why) {
  lb_partition piece;
  lb_binding b;
  lb_slot *slot = NULL;
  if (piece_of(part, from, to, &piece)) LB_TRY(try_slot(p, &piece, &b, &slot));
  if (slot) {
    lb_launch_template tmpl;
    LB_TRY(place(p, part, to - 1));
    lb_launch_template_init(&tmpl, p->prog->slots->device, &b.spec, slot);
    LB_TRY(lb_planner_add_launch(p, &piece, &b, &tmpl));
  }
  for (uint32_t i = from; i < to; i++) {
    if (slot)
      end_reads(p, part, i);
    else
      LB_TRY(put_call(p, part, i, why));
  }
  return LB_OK;
}

static uint32_t piece_end(const lb_partition *part, uint64_t pieces,
                          uint32_t from) {
  uint32_t to = from + 1;
  while (to < part->n_nodes && !(pieces >> to & 1)) to++;
  return to;
}

lb_status lb_planner_cover(lb_planner *p, const lb_partition *part,
                           uint64_t pieces, lb_reason why) {
  for (uint32_t from = 0, to; from < part->n_nodes; from = to) {
    to = piece_end(part, pieces, from);
    LB_TRY(pieces == LB_ALL_PIECES ? put_call(p, part, from, why)
                                   : put_piece(p, part, from, to, why));
  }
  return LB_OK;
}

// -- pieces ------------------------------------------------------------------

_Static_assert(LB_SPEC_MAX_NODES <= 64, "a bit for each node");

// `pieces` is the only field of a launch template that changes after it is
// built.
static _Atomic uint64_t *pieces_of(const lb_launch_template *r) {
  return &((lb_launch_template *)(uintptr_t)r)->pieces;
}

lb_status lb_planner_find_pieces(lb_planner *p, const lb_partition *part,
                                 const lb_launch_template *tmpl,
                                 uint64_t *out) {
  *out = atomic_load_explicit(pieces_of(tmpl), memory_order_relaxed);
  if (*out) return LB_OK;
  LB_TRY(find_piece_starts(p, part, out));
  atomic_store_explicit(pieces_of(tmpl), *out, memory_order_relaxed);
  return LB_OK;
}

// A spec determines every rounding. Reference kernels round in their own order,
// and so do the pieces of an attention, whose kernel processes keys in blocks.
lb_status lb_planner_covers_exactly(lb_planner *p, const lb_partition *part,
                                    uint64_t pieces, bool *out) {
  *out = part->form != LB_FORM_ATTENTION;
  for (uint32_t from = 0, to; *out && from < part->n_nodes; from = to) {
    lb_partition piece;
    lb_binding b;
    lb_slot *slot = NULL;
    to = piece_end(part, pieces, from);
    if (piece_of(part, from, to, &piece))
      LB_TRY(try_slot(p, &piece, &b, &slot));
    *out = slot != NULL;
  }
  return LB_OK;
}
