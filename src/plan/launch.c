// plan/launch.c -- a partition as one launch, with its cover behind it.
#include <string.h>

#include "plan/planner.h"

static lb_status tensor_of(void *user, const lb_value *v, lb_tensor *out) {
  const lb_pvalue *s;
  LB_TRY(lb_planner_state(user, v, &s));
  *out = s->tensor;
  return LB_OK;
}

// Puts the launch in front of the `n` steps that cover it.
static lb_status add_launch(lb_planner *p, const lb_partition *part,
                            const lb_binding *b, uint32_t n) {
  lb_slots *slots = p->prog->slots;
  lb_slot *slot;
  lb_step *step;
  lb_facts facts = lb_facts_of(&b->spec, slots->lanes, b->dims);
  LB_TRY(lb_slots_intern(slots, &b->spec, &facts, &slot));
  LB_TRY(lb_planner_step(p, part->nodes[0], LB_STEP_LAUNCH, 0, 0, &step));
  LB_TRY(lb_planner_launch(p, part, b, slot, &step->launch));
  step->skip = n;
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
