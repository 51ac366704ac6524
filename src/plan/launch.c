// plan/launch.c -- a partition as one launch, with its cover behind it.
#include <string.h>

#include "plan/planner.h"

static lb_status tensor_of(void *user, const lb_value *v, lb_tensor *out) {
  const lb_pvalue *s;
  LB_TRY(lb_planner_state(user, v, &s));
  *out = s->tensor;
  return LB_OK;
}

// Cells of the arguments that shapes decide; pointers are the run's.
static void fill_args(lb_launch *l, const lb_binding *b) {
  const lb_spec *s = &b->spec;
  l->cells = lb_spec_args(s);
  for (int i = 0; i < lb_spec_dims(s); i++)
    l->args[l->cells.dims + i] = (uint64_t)b->dims[i];
  for (uint32_t i = 0; i < b->n_operands; i++) {
    uint64_t *cell = &l->args[l->cells.out_strides + 2 * i];
    bool packed = !b->operands[i].value;
    cell[0] = (uint64_t)(packed ? b->dims[LB_DIM_K] * 16 : b->operands[i].row);
    cell[1] = (uint64_t)b->operands[i].col;
  }
  for (int i = 0; i < s->n_scalars; i++)
    l->args[l->cells.scalars + i] = b->scalars[i];
}

static void fill_strides(lb_launch *l, const lb_binding *b) {
  int64_t size = (int64_t)sizeof(float);
  memcpy(l->dims, b->dims, sizeof l->dims);
  memcpy(l->outer, b->outer, sizeof l->outer);
  l->n_outer = b->n_outer;
  for (uint32_t i = 0; i < b->n_operands; i++) {
    const lb_bind_operand *o = &b->operands[i];
    bool packed = !o->value;
    l->operands[i].row = o->row * size;
    // Panels are 16 columns wide: a step over one column counts on average.
    l->operands[i].col = (packed ? b->dims[LB_DIM_K] : o->col) * size;
    for (int k = 0; k < b->n_outer; k++)
      l->operands[i].outer[k] = o->outer[k] * size;
  }
}

static lb_status operand_of(lb_planner *p, const lb_partition *part,
                            const lb_bind_operand *o, lb_operand *out) {
  const lb_pvalue *s;
  if (!o->value) {
    *out = (lb_operand){.tensor.data = part->packed};
    return LB_OK;
  }
  LB_TRY(lb_planner_state(p, o->value, &s));
  *out = lb_planner_operand(p, s);
  return LB_OK;
}

// Puts the launch in front of the `n` steps that cover it.
static lb_status add_launch(lb_planner *p, const lb_partition *part,
                            const lb_binding *b, uint32_t n) {
  lb_launch *l = lb_arena_new(p->arena, lb_launch, 1);
  lb_step *step;
  if (!l) return lb_oom();
  uint32_t n_out = b->spec.n_out, n_in = b->spec.n_in;
  lb_slots *slots = p->prog->slots;
  lb_facts facts = lb_facts_of(&b->spec, slots->lanes, b->dims);
  LB_TRY(lb_slots_intern(slots, &b->spec, &facts, &l->slot));
  fill_args(l, b);
  fill_strides(l, b);
  LB_TRY(
      lb_planner_step(p, part->nodes[0], LB_STEP_LAUNCH, n_in, n_out, &step));
  step->launch = l;
  step->skip = n;
  for (uint32_t i = 0; i < n_out; i++)
    LB_TRY(operand_of(p, part, &b->operands[i], &step->out[i]));
  for (uint32_t i = 0; i < n_in; i++)
    LB_TRY(operand_of(p, part, &b->operands[n_out + i], &step->in[i]));
  lb_step launch = *step, *first = step - n;
  memmove(first + 1, first, n * sizeof *first);
  *first = launch;
  return LB_OK;
}

static bool all_calls(const lb_step *steps, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (steps[i].kind != LB_STEP_CALL) return false;
  return true;
}

lb_status lb_planner_partition(lb_planner *p, const lb_partition *part) {
  uint32_t first = p->plan->n_steps, done = 0;
  bool mine[LB_SPEC_MAX_NODES] = {false};  // planned by this very call
  for (uint32_t i = 0; i < part->n_nodes; i++) {
    const lb_node *n = part->nodes[i];
    bool deferred = true;
    if (p->planned[n->id] || !p->needed[n->id]) continue;
    LB_TRY(lb_planner_node(p, n, &deferred));
    mine[i] = p->planned[n->id] = !deferred;
    done += !deferred;
    lb_arena_reset(&p->scratch);
  }
  uint32_t steps = p->plan->n_steps - first;
  if (done == part->n_nodes && steps == done &&
      all_calls(p->plan->steps + first, steps)) {
    lb_binding b;
    bool ok;
    LB_TRY(lb_partition_bind(part, tensor_of, p, &b, &ok));
    if (ok) LB_TRY(add_launch(p, part, &b, steps));
  }
  for (uint32_t i = 0; i < part->n_nodes; i++)
    if (mine[i]) lb_planner_unuse_inputs(p, part->nodes[i]);
  return LB_OK;
}
