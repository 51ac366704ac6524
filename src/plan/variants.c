// plan/variants.c -- which kernels are requested.
#include "plan/variants.h"

#include <string.h>

#include "partition/specgen.h"
#include "plan/planner.h"

#define VARIANT_ROWS 16  // more rows select no other tiles
// Stands for an unknown size: large, and divisible by no unit that facts test,
// so that no fact is about it.
#define ANY_SIZE 8191

typedef struct variants {
  lb_slot *list[VARIANT_ROWS];  // borrowed
  int n;
} variants;

static bool is_among(const lb_facts *list, int n, const lb_facts *f) {
  for (int i = 0; i < n; i++)
    if (memcmp(&list[i], f, sizeof *f) == 0) return true;
  return false;
}

// Finds the slots that other row counts select at these sizes, except `slot`.
static lb_status find_variants(lb_planner *p, const lb_spec *spec,
                               const int64_t *dims, const lb_slot *slot,
                               variants *out) {
  lb_slots *slots = p->prog->slots;
  lb_facts seen[VARIANT_ROWS + 1] = {slot->key.facts};
  int64_t other[LB_SDIMS];
  memcpy(other, dims, sizeof other);
  out->n = 0;
  for (int64_t rows = 1; rows <= VARIANT_ROWS; rows++) {
    other[LB_DIM_ROWS] = rows;
    lb_facts *f = &seen[out->n + 1];
    *f = lb_facts_prefer(spec, slots->lanes, other, p->prog->reusable);
    if (is_among(seen, out->n + 1, f)) continue;
    LB_TRY(lb_slots_add(slots, spec, f, &out->list[out->n]));
    out->n++;
  }
  return LB_OK;
}

static lb_status want_variants(lb_planner *p, const lb_spec *spec,
                               const int64_t *dims, lb_slot *slot) {
  lb_slot_user user = p->prog->user;
  variants v;
  if (!lb_slot_wants_variants(slot, user)) return LB_OK;
  LB_TRY(find_variants(p, spec, dims, slot, &v));
  lb_slots_want_variants(p->prog->slots, user, slot, v.list, v.n);
  return LB_OK;
}

lb_status lb_planner_note_variants(lb_planner *p, const lb_binding *b,
                                   const lb_slot *slot) {
  variants v;
  LB_TRY(find_variants(p, &b->spec, b->dims, slot, &v));
  for (int i = 0; i < v.n; i++) {
    const lb_facts *facts = &v.list[i]->key.facts;
    lb_launch_template built;
    if (lb_memo_note(b->memo_spec, facts)) continue;
    lb_launch_template_init(&built, p->prog->slots->device, &b->spec,
                            v.list[i]);
    lb_memo_add_note(b->memo_spec, facts, &built, sizeof built);
  }
  return LB_OK;
}

// -- sizes that requests determine --------------------------------------------

static bool is_fixed(const lb_value *v, int axis) {
  return axis >= 0 && axis < v->info.rank &&
         lb_dim_is_const(v->info.dims[axis]);
}

static bool all_fixed(const lb_value *v) {
  for (int i = 0; i < v->info.rank; i++)
    if (!is_fixed(v, i)) return false;
  return v->info.rank >= 0;
}

static bool last_is_fixed(const lb_value *v) {
  return is_fixed(v, v->info.rank - 1);
}

static unsigned bit(lb_sdim dim) { return 1u << dim; }

// The open sizes of a row operation: its columns; or, if it is computed as a
// window that spans the reduced axes, its taps. The columns of such a window
// are an axis that is not reduced.
static unsigned open_rows(const lb_value *x, const lb_node *anchor,
                          const lb_binding *b) {
  uint32_t along = 0;
  bool taps = false, cols = true;
  lb_specgen_is_row_op(anchor, &along);
  for (int i = 0; i < x->info.rank; i++) {
    bool fixed = is_fixed(x, i);
    if (along >> i & 1)
      taps |= !fixed;
    else if (fixed && x->info.dims[i].k == b->dims[LB_DIM_COLS])
      cols = false;
  }
  if (b->spec.form == LB_FORM_ROW_REDUCE) return taps ? bit(LB_DIM_COLS) : 0;
  return (taps ? bit(LB_DIM_TAPS_Y) | bit(LB_DIM_TAPS_X) : 0) |
         (cols ? bit(LB_DIM_COLS) : 0);
}

// Bits of the sizes, except rows, that select facts and that a request
// determines.
static unsigned open_sizes(const lb_partition *part, const lb_binding *b) {
  const lb_node *n = part->nodes[part->anchor];
  unsigned cols = bit(LB_DIM_COLS);
  if (part->packed || part->recurrent) return 0;
  switch (part->form) {
    case LB_FORM_MATMUL:
      return last_is_fixed(lb_partition_result(part)) ? 0 : cols;
    case LB_FORM_WINDOW: return is_fixed(n->in[0], 1) ? 0 : cols;
    case LB_FORM_ATTENTION:
      return (last_is_fixed(n->in[0]) ? 0 : bit(LB_DIM_K)) |
             (last_is_fixed(n->in[2]) ? 0 : cols);
    case LB_FORM_ROW_REDUCE: return open_rows(n->in[0], n, b);
    default: return 0;
  }
}

// -- requesting ---------------------------------------------------------------

// Whether no size of the partition depends on the request. The sizes of a
// recurrence are those of its input, because any of its outputs may be absent.
static bool is_static(const lb_partition *part, const lb_binding *b) {
  const lb_value *sized =
      part->recurrent ? part->nodes[0]->in[0] : lb_partition_result(part);
  return all_fixed(sized) && !open_sizes(part, b);
}

// Requests kernels that the model uses whatever the request, and those that
// serve any size.
static lb_status want_ahead(lb_planner *p, const lb_partition *part,
                            const lb_binding *b, lb_slot *slot) {
  lb_slots *slots = p->prog->slots;
  unsigned open = open_sizes(part, b);
  int64_t dims[LB_SDIMS];
  if (!open) return want_variants(p, &b->spec, b->dims, slot);
  if (lb_spec_needs_specialised(&b->spec)) return LB_OK;
  for (int i = 0; i < LB_SDIMS; i++) {
    bool is_open = open >> i & 1;
    // At a size of 1 strides do not matter: other sizes may have another spec.
    if (is_open && b->dims[i] == 1) return LB_OK;
    dims[i] = is_open ? ANY_SIZE : b->dims[i];
  }
  lb_facts facts =
      lb_facts_prefer(&b->spec, slots->lanes, dims, p->prog->reusable);
  LB_TRY(lb_slots_add(slots, &b->spec, &facts, &slot));
  return want_variants(p, &b->spec, dims, slot);
}

lb_status lb_planner_request(lb_planner *p, const lb_partition *part,
                             const lb_binding *b, lb_slot *slot) {
  lb_slots *slots = p->prog->slots;
  lb_slot_user user = p->prog->user;
  if (!p->in_warmup) lb_slots_use(slots, user, slot);
  if (is_static(part, b)) {
    if (p->in_warmup) lb_slots_expect(slots, user, slot);
    return LB_OK;
  }
  return p->in_warmup ? want_ahead(p, part, b, slot)
                      : want_variants(p, &b->spec, b->dims, slot);
}
