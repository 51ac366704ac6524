// plan/launch.c -- a partition as one launch, with its cover behind it.
#include <string.h>

#include "plan/planner.h"

lb_status lb_planner_tensor(void *user, const lb_value *v, lb_tensor *out) {
  const lb_pvalue *s;
  LB_TRY(lb_planner_state(user, v, &s));
  if (s)
    *out = *s->tensor;
  else if (!lb_planner_expect(user, v, out))
    return lb_error(LB_INTERNAL, "'%s' is read before it is made", v->name);
  return LB_OK;
}

typedef struct chain {  // of the zones of a partition
  lb_planner *p;
  const lb_recipe *recipe;
  const lb_launch *like[LB_MAX_SPACE + 1];  // by axis; NULL: none yet
  const lb_launch *first;
  lb_launch *last;
  lb_spot spots[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
} chain;

static lb_status add_zone(void *user, const lb_binding *zone) {
  chain *c = user;
  const lb_launch **like = &c->like[zone->axis];
  lb_launch **next = &c->last->next;
  LB_TRY(*like ? lb_planner_prepare_zone(c->p, c->recipe, zone, c->spots,
                                         c->first, *like, next)
               : lb_planner_prepare(c->p, c->recipe, zone, c->spots, next));
  c->last = *next;
  lb_split_follow(&c->first->split, zone->dims[LB_DIM_ROWS], &c->last->split);
  if (!*like) *like = c->last;
  return LB_OK;
}

lb_status lb_planner_add_launch(lb_planner *p, const lb_partition *part,
                                lb_binding *b, const lb_recipe *r) {
  chain c;
  lb_step *step;
  c.p = p;
  c.recipe = r;
  LB_TRY(lb_planner_spots(p, part, b, c.spots));
  LB_TRY(lb_planner_step(p, part->nodes[0], LB_STEP_LAUNCH, 0, 0, &step));
  LB_TRY(lb_planner_prepare(p, r, b, c.spots, &step->launch));
  memset(c.like, 0, sizeof c.like);
  c.like[b->axis] = c.first = c.last = step->launch;
  return lb_partition_bind_zones(part, b, add_zone, &c);
}

// The buffer that a node's value was given in the arena, or NULL.
static lb_pbuf *buffer_of(const lb_planner *p, const lb_node *n) {
  const lb_pvalue *s = p->states[n->out[0]->id];
  lb_pbuf *b = s->buffer == LB_NO_BUFFER ? NULL : &p->bufs[s->buffer];
  return b && b->place == LB_PLACE_ARENA ? b : NULL;
}

// Gives back the memory of all but the result, as if it had never been taken:
// nothing will be written there. The result goes, too, if it lies elsewhere.
static lb_status drop_temporaries(lb_planner *p, const lb_partition *part,
                                  bool roomy) {
  const lb_pvalue *result = p->states[lb_partition_result(part)->id];
  lb_pbuf *b = NULL;
  for (uint32_t i = 0; i < part->n_nodes; i++) {
    b = buffer_of(p, part->nodes[i]);
    if (b) lb_memory_drop(&p->memory, b->mark);
    if (b && (roomy || i + 1 < part->n_nodes)) b->place = LB_PLACE_NONE;
  }
  if (!b || roomy) return LB_OK;
  return lb_memory_get(&p->memory, p->state, lb_tensor_bytes(result->tensor),
                       &b->mark);
}

// Does the cover, which begins at step `first`, give the launch's bits? Pieces
// do: a spec says every rounding. Host kernels round in their own order, and
// so do the pieces of an attention, which goes over blocks of keys.
static bool covers_exactly(const lb_plan *plan, uint32_t first, lb_form form) {
  for (uint32_t i = first; i < plan->n_steps; i++)
    if (plan->steps[i].kind == LB_STEP_CALL) return false;
  return form != LB_FORM_ATTENTION;
}

// Leaves the cover alone.
static void drop_launch(lb_plan *plan, uint32_t first) {
  plan->n_steps--;
  memmove(plan->steps + first, plan->steps + first + 1,
          (plan->n_steps - first) * sizeof *plan->steps);
}

typedef struct attempt {
  uint32_t first;  // step of the calls of the nodes, one each
  bool roomy;      // the result is to lie inside that of a Concat
} attempt;

// Makes the calls of the nodes one launch and its cover. A kernel of the pack
// stays, and needs none.
static lb_status make_launch(lb_planner *p, const lb_partition *part,
                             lb_binding *b, const attempt *a) {
  const lb_value *result = lb_partition_result(part);
  lb_pvalue dense = *p->states[result->id];
  uint32_t first = a->first;
  lb_plan *plan = p->plan;
  lb_step calls[LB_SPEC_MAX_NODES];
  const lb_recipe *recipe;
  lb_recipe made;
  LB_TRY(lb_planner_recipe(p, b, &recipe, &made));
  lb_slot *slot = recipe->slot;
  memcpy(calls, plan->steps + first, part->n_nodes * sizeof *calls);
  plan->n_steps = first;
  if (slot->in_pack) LB_TRY(drop_temporaries(p, part, a->roomy));
  if (a->roomy) LB_TRY(lb_planner_enter_room(p, result, dense.tensor));
  LB_TRY(lb_planner_add_launch(p, part, b, recipe));
  if (!slot->in_pack) LB_TRY(lb_planner_cover(p, part, slot, calls));
  if (a->roomy && !slot->in_pack) lb_planner_leave(p, dense.buffer);
  plan->steps[first].skip = plan->n_steps - first - 1;
  if (p->prog->deterministic && !slot->in_pack &&
      !covers_exactly(plan, first + 1, part->form))
    drop_launch(plan, first);
  return LB_OK;
}

static bool all_calls(const lb_step *steps, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (steps[i].kind != LB_STEP_CALL) return false;
  return true;
}

lb_status lb_planner_bind_as(lb_planner *p, const lb_partition *part,
                             const lb_tensor *result, lb_binding *b, bool *ok) {
  const lb_pvalue **state = &p->states[lb_partition_result(part)->id];
  const lb_pvalue *is = *state, seen = {result, LB_NO_BUFFER, 0};
  *state = &seen;
  lb_status st = lb_partition_bind(part, lb_planner_tensor, p, b, ok);
  *state = is;
  return st;
}

// With its result where it will be joined to others, or else dense.
static lb_status try_launch(lb_planner *p, const lb_partition *part,
                            attempt *a) {
  const lb_value *result = lb_partition_result(part);
  const lb_tensor *dense = p->states[result->id]->tensor;
  lb_binding b;
  lb_tensor view;
  bool ok = false;
  if (buffer_of(p, result->producer))
    LB_TRY(lb_planner_find_room(p, result, dense, &view, &a->roomy));
  if (a->roomy) LB_TRY(lb_planner_bind_as(p, part, &view, &b, &ok));
  if (!ok) {
    a->roomy = false;
    LB_TRY(lb_planner_bind_as(p, part, dense, &b, &ok));
  }
  return ok ? make_launch(p, part, &b, a) : LB_OK;
}

// Along the last axis.
static bool lies_side_by_side(const lb_tensor *t) {
  int c = t->rank - 1;
  return t->strides[c] == 1 || t->dims[c] == 1 || lb_tensor_count(t) == 0;
}

// A copy would write down what is read again and again.
static bool repeats(const lb_tensor *t) {
  for (int i = 0; i < t->rank; i++)
    if (t->strides[i] == 0 && t->dims[i] > 1) return true;
  return false;
}

static bool suits_product(const lb_tensor *t) {
  return lies_side_by_side(t) || repeats(t);
}

// Unless another axis is the one that lies side by side.
static bool suits_map(const lb_tensor *t) {
  if (t->rank < 2 || suits_product(t)) return true;
  for (int i = 0; i < t->rank - 1; i++)
    if (t->strides[i] == 1 && t->dims[i] > 1) return false;
  return true;
}

typedef bool suits_fn(const lb_tensor *t);

// Unless x suits, it is copied for all that read it from here on.
static lb_status lay(lb_planner *p, const lb_value *x, suits_fn *suits) {
  const lb_pvalue *s;
  lb_step *copy;
  LB_TRY(lb_planner_state(p, x, &s));
  if (!s || s->buffer == LB_NO_BUFFER || suits(s->tensor)) return LB_OK;
  x = p->prog->graph->values[lb_planner_root(p, x->id)];
  LB_TRY(lb_planner_step(p, NULL, LB_STEP_COPY, 1, 1, &copy));
  LB_TRY(lb_planner_operand(p, s, &copy->in[0]));
  LB_TRY(lb_planner_set_dense(p, x, s->tensor, LB_PLACE_ARENA, 0));
  LB_TRY(lb_planner_operand(p, p->states[x->id], &copy->out[0]));
  lb_planner_leave(p, s->buffer);
  return LB_OK;
}

// What a kernel wants side by side and lies apart: channels of an image, rows
// of bytes, columns of a second factor, operands of a map that are turned. To
// copy it takes less than to convolve it on the host, or to pick its elements,
// for each tile of rows anew.
static lb_status lay_inputs(lb_planner *p, const lb_partition *part) {
  const lb_node *n = part->nodes[part->anchor];
  const lb_value *dense = lb_partition_dense(part);
  const lb_value *factor = lb_partition_factor(part);
  if (p->planned[n->id] || !p->needed[n->id]) return LB_OK;
  if (dense) return lay(p, dense, lies_side_by_side);
  if (factor) return lay(p, factor, suits_product);
  bool map = part->form == LB_FORM_MAP && part->inputs;
  for (uint32_t i = 0; map && i < part->n_inputs; i++)
    if (part->inputs[i].manner == LB_MANNER_PLAIN)
      LB_TRY(lay(p, part->inputs[i].value, suits_map));
  return LB_OK;
}

lb_status lb_planner_partition(lb_planner *p, const lb_partition *part) {
  LB_TRY(lay_inputs(p, part));
  attempt a = {.first = p->plan->n_steps};
  uint32_t done = 0;
  bool direct;
  LB_TRY(lb_planner_direct(p, part, &direct));
  if (direct) return LB_OK;
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
  uint32_t steps = p->plan->n_steps - a.first;
  if (done == part->n_nodes && steps == done &&
      all_calls(p->plan->steps + a.first, steps))
    LB_TRY(part->recurrent ? lb_planner_recurrent(p, part)
                           : try_launch(p, part, &a));
  for (uint32_t i = 0; i < part->n_nodes; i++)
    if (mine[i]) lb_planner_unuse_inputs(p, part->nodes[i]);
  return LB_OK;
}
