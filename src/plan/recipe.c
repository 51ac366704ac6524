// plan/recipe.c -- all of a launch that spec and facts decide: its slot, which
// is wanted from here on, and how operands are walked.
#include <string.h>

#include "plan/planner.h"

// Factors are not walked along both: a has no columns of the result, b no rows,
// and of attention's inputs q alone has its rows. Windows have both. What rows
// are picked from has none.
static lb_recipe_operand describe(const lb_spec *s, uint32_t i) {
  bool input = i >= s->n_out;
  uint32_t k = i - s->n_out;
  const lb_soperand *o = input ? &s->in[k] : &s->out[i];
  bool factor = input && k < (uint32_t)lb_spec_factors(s);
  return (lb_recipe_operand){
      .size = (uint8_t)lb_dtype_size((lb_dtype)o->dtype),
      .panels = (uint8_t)(lb_spec_has_taps(s) ? 0 : lb_panel_cols(o->layout)),
      .rows =
          !(factor && k > 0) && !(input && lb_spec_is_picked(s, (uint8_t)k)),
      .cols = !(factor && k == 0 && s->form != LB_FORM_WINDOW)};
}

void lb_recipe_init(lb_recipe *r, const lb_spec *s, lb_slot *slot) {
  *r = (lb_recipe){.slot = slot,
                   .basis = lb_split_basis_of(s, &slot->key.facts),
                   .cells = lb_spec_args(s),
                   .n_operands = (uint8_t)(s->n_out + s->n_in),
                   .n_dims = (uint8_t)lb_spec_dims(s),
                   .n_scalars = s->n_scalars,
                   .taps = lb_spec_has_taps(s)};
  for (uint32_t i = 0; i < r->n_operands; i++) r->operands[i] = describe(s, i);
}

#define KIN_ROWS 16  // more choose no other tiles

static bool is_among(const lb_facts *list, int n, const lb_facts *f) {
  for (int i = 0; i < n; i++)
    if (memcmp(&list[i], f, sizeof *f) == 0) return true;
  return false;
}

typedef struct kin {
  int64_t dims[LB_SDIMS];  // of a binding, rows left out
  lb_slot *list[KIN_ROWS];
  int n;
  bool mutual;  // the slot is kin of these
} kin;

static void kin_dims(const lb_binding *b, int64_t *out) {
  memcpy(out, b->dims, sizeof b->dims);
  out[LB_DIM_ROWS] = 0;
}

// Rows differ from shape to shape and choose one tile of a few: the slots of
// all of these but `slot`, for what `b` binds.
static lb_status find_kin(lb_planner *p, const lb_binding *b,
                          const lb_slot *slot, kin *out) {
  lb_slots *slots = p->prog->slots;
  lb_facts seen[KIN_ROWS + 1] = {slot->key.facts};
  int64_t dims[LB_SDIMS];
  kin_dims(b, out->dims);
  out->n = 0;
  out->mutual = false;
  memcpy(dims, b->dims, sizeof dims);
  for (int64_t rows = 1; rows <= KIN_ROWS; rows++) {
    dims[LB_DIM_ROWS] = rows;
    lb_facts *f = &seen[out->n + 1];
    *f = lb_facts_prefer(&b->spec, slots->lanes, dims, p->prog->reusable);
    out->mutual |= is_among(seen, 1, f);
    if (is_among(seen, out->n + 1, f)) continue;
    LB_TRY(lb_slots_add(slots, &b->spec, f, &out->list[out->n]));
    out->n++;
  }
  return LB_OK;
}

// With the first slot all its kin are wanted, so that shapes to come find them
// made.
static lb_status want_kin(lb_planner *p, const lb_binding *b, lb_slot *slot) {
  lb_slots *slots = p->prog->slots;
  int64_t dims[LB_SDIMS];
  kin found;
  lb_slot_user user = p->prog->user;
  if (!lb_slot_wants_kin(slot, user)) return LB_OK;
  const lb_slot_kin *known = atomic_load(&slot->others);
  kin_dims(b, dims);
  if (known && memcmp(known->dims, dims, sizeof dims) == 0) {
    lb_slots_want_kin(slots, user, slot, known->list, known->n);
    return LB_OK;
  }
  LB_TRY(find_kin(p, b, slot, &found));
  lb_slots_want_kin(slots, user, slot, found.list, found.n);
  return LB_OK;
}

// Of each kin: its own, and what plans at its rows would find out.
static lb_status note_kin(const lb_binding *b, lb_slot *slot, kin *k) {
  LB_TRY(lb_slot_set_kin(slot, k->dims, k->list, k->n));
  for (int i = 0; i < k->n; i++) {
    lb_slot *one = k->list[i];
    lb_recipe made;
    k->list[i] = k->mutual ? slot : k->list[k->n - 1];
    LB_TRY(lb_slot_set_kin(one, k->dims, k->list, k->n - !k->mutual));
    k->list[i] = one;
    if (lb_memo_note(b->made, &one->key.facts)) continue;
    lb_recipe_init(&made, &b->spec, one);
    lb_memo_add_note(b->made, &one->key.facts, &made, sizeof made);
  }
  return LB_OK;
}

// A rehearsal wants nothing, and finds kin ahead.
static lb_status find_slot(lb_planner *p, const lb_binding *b,
                           const lb_facts *facts, lb_slot **out) {
  lb_slots *slots = p->prog->slots;
  kin found;
  if (!p->rehearses) {
    LB_TRY(lb_slots_intern(slots, p->prog->user, &b->spec, facts, out));
    return want_kin(p, b, *out);
  }
  LB_TRY(lb_slots_add(slots, &b->spec, facts, out));
  LB_TRY(find_kin(p, b, *out, &found));
  return note_kin(b, *out, &found);
}

// A slot that was found before, by a rehearsal perhaps.
static lb_status use_slot(lb_planner *p, const lb_binding *b, lb_slot *slot) {
  if (p->rehearses) return LB_OK;
  lb_slots_use(p->prog->slots, p->prog->user, slot);
  return want_kin(p, b, slot);
}

lb_status lb_planner_recipe(lb_planner *p, const lb_binding *b,
                            const lb_recipe **known, lb_recipe *made) {
  lb_slots *slots = p->prog->slots;
  lb_facts facts =
      lb_facts_prefer(&b->spec, slots->lanes, b->dims, p->prog->reusable);
  lb_slot *slot;
  *known = lb_memo_note(b->made, &facts);
  if (*known) return use_slot(p, b, (*known)->slot);
  LB_TRY(find_slot(p, b, &facts, &slot));
  lb_recipe_init(made, &b->spec, slot);
  lb_memo_add_note(b->made, &facts, made, sizeof *made);
  *known = made;
  return LB_OK;
}
