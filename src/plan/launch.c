// plan/launch.c -- a partition, from the graph to its launch.
//
// In this order: what the kernel wants side by side is copied, the dims of the
// members are inferred, the partition is bound with its result where it is to
// lie, the launch is emitted, then its cover. Members have no memory of their
// own, but what the cover needs between its steps.
//
// Where dims are those of expressions, nothing is looked at but what the
// partition reads and its result. Where a member is no call (computed while
// planning, not needed, waiting for data), nodes are planned one by one.
#include <string.h>

#include "plan/cover.h"
#include "plan/planner.h"
#include "plan/variants.h"

// -- the launch --------------------------------------------------------------

typedef struct chain {  // of the zones of a partition
  lb_planner *p;
  const lb_launch_template *recipe;
  const lb_launch *like[LB_MAX_SPATIAL + 1];  // by axis; NULL: none yet
  const lb_launch *first;
  lb_launch *last;
  lb_address addresses[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
} chain;

static lb_status add_zone(void *user, const lb_binding *zone) {
  chain *c = user;
  const lb_launch **like = &c->like[zone->axis];
  lb_launch **next = &c->last->next;
  LB_TRY(*like ? lb_planner_prepare_zone(c->p, c->recipe, zone, c->addresses,
                                         c->first, *like, next)
               : lb_planner_prepare(c->p, c->recipe, zone, c->addresses, next));
  c->last = *next;
  lb_device_prepare_zone(c->p->prog->slots->device, &c->first->split,
                         zone->dims[LB_DIM_ROWS], &c->last->split);
  if (!*like) *like = c->last;
  return LB_OK;
}

lb_status lb_planner_push_launch(lb_planner *p, const lb_partition *part,
                                 lb_launch *launch) {
  lb_reason why = launch->slot->in_pack ? LB_REASON_IN_PACK : LB_REASON_PENDING;
  for (uint32_t i = 0; !p->launch.covers && i < part->n_nodes; i++)
    lb_planner_note(p, part->nodes[i],
                    i == part->anchor ? LB_NODE_LAUNCHED : LB_NODE_FUSED, why,
                    LB_NO_VALUE);
  return lb_planner_push(
      p, &(lb_step){
             .kind = LB_STEP_LAUNCH, .node = part->nodes[0], .launch = launch});
}

lb_status lb_planner_add_launch(lb_planner *p, const lb_partition *part,
                                lb_binding *b, const lb_launch_template *r) {
  chain c;
  c.p = p;
  c.recipe = r;
  LB_TRY(lb_planner_addresses(p, part, b, c.addresses));
  LB_TRY(lb_planner_prepare(p, r, b, c.addresses, &c.last));
  LB_TRY(lb_planner_push_launch(p, part, c.last));
  memset(c.like, 0, sizeof c.like);
  c.like[b->axis] = c.first = c.last;
  return lb_partition_bind_zones(part, b, add_zone, &c);
}

// -- what has to be copied first ---------------------------------------------

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
  lb_step_operand from, to;
  LB_TRY(lb_planner_state(p, x, &s));
  if (!s || s->buffer == LB_NO_BUFFER || suits(s->tensor)) return LB_OK;
  x = p->prog->graph->values[lb_planner_root(p, x->id)];
  LB_TRY(lb_planner_operand(p, s, &from));
  LB_TRY(lb_planner_set_dense(p, x, s->tensor, LB_STORAGE_ARENA, 0));
  LB_TRY(lb_planner_operand(p, p->values.states[x->id], &to));
  lb_planner_leave(p, s->buffer);
  return lb_planner_copy(p, from, to);
}

// What a kernel wants side by side and lies apart: channels of an image, rows
// of bytes, columns of a second factor, operands of a map that are turned. To
// copy it takes less than to convolve it on the host, or to pick its elements,
// for each tile of rows anew.
static lb_status lay_inputs(lb_planner *p, const lb_partition *part) {
  const lb_node *n = part->nodes[part->anchor];
  const lb_value *dense = lb_partition_dense(part);
  const lb_value *factor = lb_partition_factor(part);
  if (lb_planner_is_planned(p, n) || !p->tally.needed[n->id]) return LB_OK;
  if (dense) return lay(p, dense, lies_side_by_side);
  if (factor) return lay(p, factor, suits_product);
  bool map = part->form == LB_FORM_ELTWISE && part->inputs;
  for (uint32_t i = 0; map && i < part->n_inputs; i++)
    if (part->inputs[i].manner == LB_MANNER_PLAIN)
      LB_TRY(lay(p, part->inputs[i].value, suits_map));
  return LB_OK;
}

// -- dims of the members -----------------------------------------------------

// What a member makes, or NULL: v is of others, or is not made yet.
static const lb_tensor *made_by(const lb_launch_states *l, const lb_value *v) {
  for (uint32_t i = 0; l->dims && i < l->n_dims; i++)
    if (l->part->nodes[i]->out[0] == v) return &l->dims[i];
  return NULL;
}

lb_status lb_planner_tensor(void *user, const lb_value *v, lb_tensor *out) {
  lb_planner *p = user;
  const lb_pvalue *s;
  LB_TRY(lb_planner_state(p, v, &s));
  const lb_tensor *t = s ? s->tensor : made_by(&p->launch, v);
  if (t)
    *out = *t;
  else if (!lb_planner_expect(p, v, out))
    return lb_error(LB_INTERNAL, "'%s' is read before it is made", v->name);
  return LB_OK;
}

// The dims of the next member by its shape rule.
static lb_status infer_member(lb_planner *p, const lb_node *n, lb_tensor *dims,
                              bool *call) {
  const lb_pvalue **in = LB_SCRATCH(p, const lb_pvalue *, n->n_in);
  lb_pvalue *inside = LB_SCRATCH(p, lb_pvalue, n->n_in);
  const lb_tensor *out, *t;
  *call = !lb_planner_is_planned(p, n) && p->tally.needed[n->id];
  if (!in || !inside) return lb_oom();
  for (uint32_t i = 0; *call && i < n->n_in; i++) {
    in[i] = NULL;
    if (!n->in[i]) continue;
    if ((t = made_by(&p->launch, n->in[i]))) {
      inside[i] = (lb_pvalue){.tensor = t, .buffer = 0};
      in[i] = &inside[i];
    } else {
      LB_TRY(lb_planner_state(p, n->in[i], &in[i]));
      *call = in[i] != NULL;
    }
  }
  if (*call) LB_TRY(lb_planner_infer(p, n, in, &out, call));
  if (!*call) return LB_OK;
  *dims = out[0];
  lb_planner_learn(p, n->out[0], dims);
  return LB_OK;
}

// *calls is false if not all of them are calls.
static lb_status infer_members(lb_planner *p, const lb_partition *part,
                               bool *calls) {
  lb_tensor *dims = LB_SCRATCH(p, lb_tensor, part->n_nodes);
  lb_launch_states *l = &p->launch;
  if (!dims) return lb_oom();
  l->dims = dims;
  *calls = true;
  for (l->n_dims = 0; *calls && l->n_dims < part->n_nodes; l->n_dims++)
    LB_TRY(infer_member(p, part->nodes[l->n_dims], &dims[l->n_dims], calls));
  return LB_OK;
}

// -- binding -----------------------------------------------------------------

typedef struct attempt {
  lb_tensor dense, view;         // the result; inside that of a Concat
  bool roomy;                    // there it will lie
  const lb_cached_launch *twin;  // launches of one; NULL: it has to be bound
  lb_binding b;
} attempt;

typedef struct seen {  // by a binding
  lb_planner *p;
  const lb_value *result;
  const lb_tensor *as;
} seen;

static lb_status see(void *user, const lb_value *v, lb_tensor *out) {
  const seen *s = user;
  if (v != s->result) return lb_planner_tensor(s->p, v, out);
  *out = *s->as;
  return LB_OK;
}

// With its result where it will be joined to others, or else dense. A twin
// whose operands lie alike has been bound.
static lb_status bind(lb_planner *p, const lb_partition *part, attempt *a,
                      bool *ok) {
  const lb_value *result = lb_partition_result(part);
  seen s = {p, result, &a->view};
  a->roomy = *ok = false;
  if (!lb_planner_output_of(p, result))
    LB_TRY(lb_planner_find_concat_slice(p, result, &a->dense, &a->view,
                                        &a->roomy));
  if (!p->launch.dims)
    LB_TRY(lb_planner_find_cached_launch(
        p, part, a->roomy ? &a->view : &a->dense, &a->twin));
  *ok = a->twin != NULL;
  if (*ok) return LB_OK;
  if (a->roomy) LB_TRY(lb_partition_bind(part, see, &s, &a->b, ok));
  if (*ok) return LB_OK;
  a->roomy = false;
  s.as = &a->dense;
  return lb_partition_bind(part, see, &s, &a->b, ok);
}

// -- emitting ----------------------------------------------------------------

// A kernel of the pack stays, and needs no cover. Where bits must not change,
// there is a launch only if its cover gives the same.
static lb_status emit_bound(lb_planner *p, const lb_partition *part,
                            lb_binding *b) {
  const lb_launch_template *recipe;
  lb_launch_template made;
  uint64_t pieces;
  bool exact = true;
  uint32_t first = p->plan->n_steps;
  LB_TRY(lb_planner_launch_template(p, b, &recipe, &made));
  if (recipe->slot->in_pack) {
    LB_TRY(lb_planner_want(p, part, b, recipe->slot));
    LB_TRY(lb_planner_add_launch(p, part, b, recipe));
    return p->launch.dims ? LB_OK : lb_planner_cache_launch(p, part, b);
  }
  LB_TRY(lb_planner_find_pieces(p, part, recipe, &pieces));
  if (p->prog->deterministic)
    LB_TRY(lb_planner_covers_exactly(p, part, pieces, &exact));
  if (!exact) return lb_planner_cover(p, part, pieces, LB_REASON_ROUNDS);
  LB_TRY(lb_planner_want(p, part, b, recipe->slot));
  LB_TRY(lb_planner_add_launch(p, part, b, recipe));
  p->launch.covers = true;
  LB_TRY(lb_planner_cover(p, part, pieces, LB_REASON_PENDING));
  p->plan->steps[first].skip = p->plan->n_steps - first - 1;
  return LB_OK;
}

static lb_status emit(lb_planner *p, const lb_partition *part, attempt *a,
                      bool bound) {
  const lb_value *result = lb_partition_result(part);
  LB_TRY(a->roomy ? lb_planner_bind_concat_slice(p, result, &a->dense)
                  : lb_planner_place(p, result, &a->dense));
  if (a->twin) {
    LB_TRY(lb_planner_reuse_launch(p, part, a->twin));
  } else if (bound) {
    LB_TRY(emit_bound(p, part, &a->b));
  } else {
    bool empty = lb_tensor_count(&a->dense) == 0;
    LB_TRY(lb_planner_cover(p, part, LB_ALL_PIECES,
                            empty ? LB_REASON_EMPTY : a->b.refusal));
  }
  for (uint32_t i = 0; i < part->n_reads; i++)
    lb_planner_unuse(p, part->reads[i].value, part->reads[i].times);
  return LB_OK;
}

// One by one; what they read is read until the last of them is planned.
static lb_status plan_members(lb_planner *p, const lb_partition *part) {
  bool mine[LB_SPEC_MAX_NODES] = {false};  // planned by this very call
  for (uint32_t i = 0; i < part->n_nodes; i++) {
    const lb_node *n = part->nodes[i];
    bool deferred = true;
    if (lb_planner_is_planned(p, n) || !p->tally.needed[n->id]) continue;
    LB_TRY(lb_planner_node(p, n, &deferred));
    mine[i] = !deferred;
    lb_arena_reset(&p->scratch);
  }
  for (uint32_t i = 0; i < part->n_nodes; i++)
    if (mine[i]) lb_planner_unuse_inputs(p, part->nodes[i]);
  return LB_OK;
}

lb_status lb_planner_partition(lb_planner *p, const lb_partition *part) {
  attempt a;
  bool bound = false, calls = true;
  LB_TRY(lay_inputs(p, part));
  p->launch = (lb_launch_states){.made = p->launch.made, .part = part};
  a.twin = NULL;
  bool expected = lb_planner_expect_result(p, part, &a.dense);
  if (expected) LB_TRY(bind(p, part, &a, &bound));
  if (!bound) {
    LB_TRY(infer_members(p, part, &calls));
    if (!calls) return plan_members(p, part);
    a.dense = p->launch.dims[part->n_nodes - 1];
  }
  if (!expected) LB_TRY(bind(p, part, &a, &bound));
  LB_TRY(emit(p, part, &a, bound));
  lb_arena_reset(&p->scratch);
  return LB_OK;
}
