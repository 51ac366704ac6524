// plan/launch_template.c -- the part of a launch that spec and facts determine:
// its slot, and how operands advance.
#include "plan/planner.h"
#include "plan/variants.h"

// Matmul operands do not advance along both: A has no columns of the result, B
// no rows, and of attention's operands only q has its rows. Windows advance
// along both. An input that is gathered by rows does not advance along rows.
static lb_launch_template_operand describe(const lb_spec *s, uint32_t i) {
  bool input = i >= s->n_out;
  uint32_t k = i - s->n_out;
  const lb_soperand *o = input ? &s->in[k] : &s->out[i];
  bool acc_input = input && k < (uint32_t)lb_spec_factors(s);
  return (lb_launch_template_operand){
      .size = (uint8_t)lb_dtype_size((lb_dtype)o->dtype),
      .panels = (uint8_t)(lb_spec_has_taps(s) ? 0 : lb_panel_cols(o->layout)),
      .rows = !(acc_input && k > 0) &&
              !(input && lb_spec_is_gathered(s, (uint8_t)k)),
      .cols = !(acc_input && k == 0 && s->form != LB_FORM_WINDOW)};
}

void lb_launch_template_init(lb_launch_template *r, const lb_device *d,
                             const lb_spec *s, lb_slot *slot) {
  *r = (lb_launch_template){.slot = slot,
                            .basis = lb_device_basis(d, s, &slot->key.facts),
                            .cells = lb_spec_args(s),
                            .n_operands = (uint8_t)(s->n_out + s->n_in),
                            .n_dims = (uint8_t)lb_spec_dims(s),
                            .n_scalars = s->n_scalars,
                            .taps = lb_spec_has_taps(s)};
  for (uint32_t i = 0; i < r->n_operands; i++) r->operands[i] = describe(s, i);
}

lb_status lb_planner_launch_template(lb_planner *p, const lb_binding *b,
                                     const lb_launch_template **known,
                                     lb_launch_template *built) {
  lb_slots *slots = p->prog->slots;
  lb_facts facts =
      lb_facts_prefer(&b->spec, slots->lanes, b->dims, p->prog->reusable);
  lb_slot *slot;
  *known = lb_memo_note(b->memo_spec, &facts);
  if (*known) return LB_OK;
  LB_TRY(lb_slots_add(slots, &b->spec, &facts, &slot));
  if (p->in_warmup) LB_TRY(lb_planner_note_variants(p, b, slot));
  lb_launch_template_init(built, slots->device, &b->spec, slot);
  lb_memo_add_note(b->memo_spec, &facts, built, sizeof *built);
  *known = lb_memo_note(b->memo_spec, &facts);
  if (!*known) *known = built;
  return LB_OK;
}
