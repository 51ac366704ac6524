// plan/prepare.c -- a launch with everything decided but the addresses of a
// run.
#include <string.h>

#include "plan/planner.h"

static const lb_soperand *operand_of(const lb_spec *s, uint32_t i) {
  return i < s->n_out ? &s->out[i] : &s->in[i - s->n_out];
}

static int64_t size_of(const lb_spec *s, uint32_t i) {
  return (int64_t)lb_dtype_size((lb_dtype)operand_of(s, i)->dtype);
}

// Panels that the kernel walks by itself.
static bool is_panels(const lb_spec *s, uint32_t i) {
  return operand_of(s, i)->layout == LB_LAYOUT_PACKED && !lb_spec_has_taps(s);
}

// Cells of the arguments that shapes decide.
static void fill_args(uint64_t *args, const lb_binding *b) {
  const lb_spec *s = &b->spec;
  lb_sargs cells = lb_spec_args(s);
  for (int i = 0; i < lb_spec_dims(s); i++)
    args[cells.dims + i] = (uint64_t)b->dims[i];
  for (uint32_t i = 0; i < b->n_operands; i++) {
    uint64_t *cell = &args[cells.out_strides + 2 * i];
    cell[0] = (uint64_t)(is_panels(s, i) ? b->dims[LB_DIM_K] * LB_PACK_COLS
                                         : b->operands[i].row);
    cell[1] = (uint64_t)b->operands[i].col;
  }
  for (int i = 0; lb_spec_has_taps(s) && i < 4; i++)
    args[cells.taps + i] = (uint64_t)b->taps[i];
  for (int i = 0; i < s->n_scalars; i++)
    args[cells.scalars + i] = b->scalars[i];
}

// Factors are not walked along both: a has no columns of the result, b no rows,
// and of attention's inputs q alone has its rows. Windows have both.
static void fill_strides(int64_t *to, const lb_binding *b, uint32_t i) {
  const lb_spec *s = &b->spec;
  const lb_bind_operand *o = &b->operands[i];
  uint32_t k = i - s->n_out;
  int64_t size = size_of(s, i);
  bool factor = i >= s->n_out && k < (uint32_t)lb_spec_factors(s);
  bool window = s->form == LB_FORM_WINDOW;
  // Panels are 16 columns wide: a step over one column counts on average.
  int64_t col = is_panels(s, i) ? b->dims[LB_DIM_K] : o->col;
  to[0] = factor && k > 0 ? 0 : o->row * size;
  to[1] = factor && k == 0 && !window ? 0 : col * size;
  for (int l = 0; l < b->n_outer; l++) to[2 + l] = o->outer[l] * size;
}

static uint32_t base_of(const lb_planner *p, const lb_operand *o) {
  const lb_region *r = p->region;
  switch (o->place) {
    case LB_PLACE_NONE: break;
    case LB_PLACE_ARENA: return LB_BASE_ARENA;
    case LB_PLACE_INPUT: return LB_BASE_FIRST + o->index;
    case LB_PLACE_OUTPUT: return LB_BASE_FIRST + r->n_params + o->index;
    case LB_PLACE_OWN:
      return LB_BASE_FIRST + r->n_params + r->n_results + o->index;
  }
  return LB_BASE_NONE;
}

lb_spot lb_planner_spot(const lb_planner *p, const lb_operand *at,
                        int64_t offset) {
  lb_spot out = {.base = base_of(p, at)};
  out.offset =
      offset + (out.base == LB_BASE_NONE ? (int64_t)(intptr_t)at->tensor->data
                                         : at->offset);
  return out;
}

static lb_status spot_of(lb_planner *p, const lb_partition *part,
                         const lb_binding *b, uint32_t i, lb_spot *out) {
  const lb_bind_operand *o = &b->operands[i];
  int64_t offset = o->offset * size_of(&b->spec, i);
  const lb_pvalue *s;
  if (!o->value) {
    *out = (lb_spot){.offset = (int64_t)(intptr_t)part->packed + offset};
    return LB_OK;
  }
  LB_TRY(lb_planner_state(p, o->value, &s));
  lb_operand at = lb_planner_operand(p, s);
  *out = lb_planner_spot(p, &at, offset);
  return LB_OK;
}

lb_status lb_planner_launch(lb_planner *p, const lb_partition *part,
                            const lb_binding *b, lb_slot *slot,
                            lb_launch **out) {
  lb_spot spots[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
  for (uint32_t i = 0; i < b->n_operands; i++)
    LB_TRY(spot_of(p, part, b, i, &spots[i]));
  return lb_planner_prepare(p, b, slot, spots, out);
}

lb_status lb_planner_prepare(lb_planner *p, const lb_binding *b, lb_slot *slot,
                             const lb_spot *at, lb_launch **out) {
  uint8_t n_args = lb_spec_args(&b->spec).count;
  size_t each = 2 + (size_t)b->n_outer;
  lb_launch *l = lb_arena_new(p->arena, lb_launch, 1);
  lb_spot *spots = lb_arena_new(p->arena, lb_spot, b->n_operands);
  uint64_t *args = lb_arena_new(p->arena, uint64_t, n_args);
  int64_t *strides = lb_arena_new(p->arena, int64_t, each * b->n_operands);
  int64_t *loops = lb_arena_new(p->arena, int64_t, (size_t)b->n_outer);
  int64_t outer = 1;
  if (!l || !spots || !args || !strides || !loops) return lb_oom();
  for (int i = 0; i < b->n_outer; i++) outer *= loops[i] = b->outer[i];
  fill_args(args, b);
  for (uint32_t i = 0; i < b->n_operands; i++) {
    spots[i] = at[i];
    fill_strides(strides + each * i, b, i);
  }
  *l = (lb_launch){
      .slot = slot,
      .split = lb_split_of(&b->spec, &slot->key.facts, b->dims, outer),
      .n_operands = (uint8_t)b->n_operands,
      .n_args = n_args,
      .n_loops = (uint8_t)b->n_outer,
      .spots = spots,
      .args = args,
      .strides = strides,
      .loops = loops};
  *out = l;
  return LB_OK;
}
