// plan/launch.c -- plans a partition and emits its launch.
//
// The steps are: copy inputs that the kernel needs contiguous, infer the dims
// of the members, bind the partition with its result in its final location,
// emit the launch, then its cover. Members have no memory of their own except
// what the cover needs between its steps.
//
// If dims follow from expressions, only the inputs and the result of the
// partition are examined. If a member is not a call (it is computed while
// planning, not needed, or deferred), the nodes are planned one by one.
#include <string.h>

#include "plan/cover.h"
#include "plan/planner.h"
#include "plan/skip.h"
#include "plan/variants.h"

// -- the launch --------------------------------------------------------------

typedef struct chain {  // launches of the zones of a partition
  lb_planner *p;
  const lb_launch_template *tmpl;
  const lb_launch *like[LB_MAX_SPATIAL + 1];  // by axis; NULL: none yet
  const lb_launch *first;
  lb_launch *last;
  lb_address addresses[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
} chain;

static lb_status add_zone(void *user, const lb_binding *zone) {
  chain *c = user;
  const lb_launch **like = &c->like[zone->axis];
  lb_launch **next = &c->last->next;
  LB_TRY(*like ? lb_planner_prepare_zone(c->p, c->tmpl, zone, c->addresses,
                                         c->first, *like, next)
               : lb_planner_prepare(c->p, c->tmpl, zone, c->addresses, next));
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
  c.tmpl = r;
  LB_TRY(lb_planner_addresses(p, part, b, c.addresses));
  LB_TRY(lb_planner_prepare(p, r, b, c.addresses, &c.last));
  LB_TRY(lb_planner_push_launch(p, part, c.last));
  memset(c.like, 0, sizeof c.like);
  c.like[b->axis] = c.first = c.last;
  return lb_partition_bind_zones(part, b, add_zone, &c);
}

// -- inputs that have to be copied --------------------------------------------

// Contiguous along the last axis.
static bool is_contiguous(const lb_tensor *t) {
  int c = t->rank - 1;
  return t->strides[c] == 1 || t->dims[c] == 1 || lb_tensor_count(t) == 0;
}

// A copy would materialise broadcast elements.
static bool is_broadcast(const lb_tensor *t) {
  for (int i = 0; i < t->rank; i++)
    if (t->strides[i] == 0 && t->dims[i] > 1) return true;
  return false;
}

static bool suits_matmul(const lb_tensor *t) {
  return is_contiguous(t) || is_broadcast(t);
}

// False if another axis is the contiguous one (a transposed operand).
static bool suits_eltwise(const lb_tensor *t) {
  if (t->rank < 2 || suits_matmul(t)) return true;
  for (int i = 0; i < t->rank - 1; i++)
    if (t->strides[i] == 1 && t->dims[i] > 1) return false;
  return true;
}

typedef bool suits_fn(const lb_tensor *t);

// Copies x to dense memory for all later readers, unless it is suitable.
static lb_status copy_unless(lb_planner *p, const lb_value *x,
                             suits_fn *suits) {
  const lb_pvalue *s;
  LB_TRY(lb_planner_state(p, x, &s));
  bool suitable = !s || s->buffer == LB_NO_BUFFER || suits(s->tensor);
  return suitable ? LB_OK : lb_planner_make_dense(p, x, LB_REASON_LAYOUT);
}

// Copies inputs that the kernel needs contiguous: the channels of a feature
// map, rows of int8 elements, the columns of operand B, transposed operands of
// an elementwise kernel. A copy is cheaper than running a convolution by its
// reference kernel, or gathering the elements again for each tile of rows.
static lb_status copy_inputs(lb_planner *p, const lb_partition *part) {
  const lb_node *n = part->nodes[part->anchor];
  const lb_value *dense = lb_partition_contiguous_input(part);
  const lb_value *operand_b = lb_partition_operand_b(part);
  if (lb_planner_is_planned(p, n) || !p->tally.needed[n->id]) return LB_OK;
  if (dense) return copy_unless(p, dense, is_contiguous);
  if (operand_b) return copy_unless(p, operand_b, suits_matmul);
  bool eltwise = part->form == LB_FORM_ELTWISE && part->inputs;
  for (uint32_t i = 0; eltwise && i < part->n_inputs; i++)
    if (part->inputs[i].access == LB_ACCESS_PLAIN)
      LB_TRY(copy_unless(p, part->inputs[i].value, suits_eltwise));
  return LB_OK;
}

// -- dims of the members -----------------------------------------------------

// The output tensor of a member; NULL if v is not an output of a member, or not
// inferred yet.
static const lb_tensor *output_of_member(const lb_launch_states *l,
                                         const lb_value *v) {
  for (uint32_t i = 0; l->dims && i < l->n_dims; i++)
    if (l->part->nodes[i]->out[0] == v) return &l->dims[i];
  return NULL;
}

lb_status lb_planner_tensor(void *user, const lb_value *v, lb_tensor *out) {
  lb_planner *p = user;
  const lb_pvalue *s;
  LB_TRY(lb_planner_state(p, v, &s));
  const lb_tensor *t = s ? s->tensor : output_of_member(&p->launch, v);
  if (t)
    *out = *t;
  else if (!lb_planner_expect(p, v, out))
    return lb_error(LB_INTERNAL, "'%s' is read before it is made", v->name);
  return LB_OK;
}

// Infers the dims of the next member by its shape rule.
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
    if ((t = output_of_member(&p->launch, n->in[i]))) {
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

// *calls is false if some member is not a call.
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
  lb_tensor dense, view;           // the result; as a slice of a Concat
  bool in_concat;                  // the result is written to that slice
  const lb_cached_launch *cached;  // launches of an equivalent partition; NULL:
                                   // it has to be bound
  lb_binding b;
  // Of a partition that is bound:
  const lb_launch_template *tmpl;
  lb_launch_template built;  // where tmpl may point
  uint64_t pieces;           // of its cover; a kernel of the pack needs none
  bool exact;  // not deterministic, or the cover gives bit-identical results
} attempt;

typedef struct bind_view {  // tensors during binding
  lb_planner *p;
  const lb_value *result;
  const lb_tensor *as;
  bool dense;  // every input is assumed to be dense
} bind_view;

static lb_status bind_tensor(void *user, const lb_value *v, lb_tensor *out) {
  const bind_view *s = user;
  if (v == s->result) {
    *out = *s->as;
    return LB_OK;
  }
  LB_TRY(lb_planner_tensor(s->p, v, out));
  if (s->dense) lb_tensor_dense(out);
  return LB_OK;
}

// Binds the partition with its result in the Concat's buffer if possible, else
// dense. Launches of an equivalent partition with equal operands make binding
// unnecessary.
static lb_status bind(lb_planner *p, const lb_partition *part, attempt *a,
                      bool *ok) {
  const lb_value *result = lb_partition_result(part);
  bind_view s = {p, result, &a->view, false};
  a->in_concat = *ok = false;
  if (!lb_planner_output_of(p, result, &a->dense))
    LB_TRY(lb_planner_find_concat_slice(p, result, &a->dense, &a->view,
                                        &a->in_concat));
  if (!p->launch.dims)
    LB_TRY(lb_planner_find_cached_launch(
        p, part, a->in_concat ? &a->view : &a->dense, &a->cached));
  *ok = a->cached != NULL;
  if (*ok) return LB_OK;
  if (a->in_concat) LB_TRY(lb_partition_bind(part, bind_tensor, &s, &a->b, ok));
  if (*ok) return LB_OK;
  a->in_concat = false;
  s.as = &a->dense;
  return lb_partition_bind(part, bind_tensor, &s, &a->b, ok);
}

// Finds the slot and the cover of a partition that is bound. A kernel of the
// pack is always available and needs no cover.
static lb_status find_slot(lb_planner *p, const lb_partition *part,
                           attempt *a) {
  a->exact = true;
  LB_TRY(lb_planner_launch_template(p, &a->b, &a->tmpl, &a->built));
  if (a->tmpl->slot->in_pack) return LB_OK;
  LB_TRY(lb_planner_find_pieces(p, part, a->tmpl, &a->pieces));
  return p->prog->deterministic
             ? lb_planner_covers_exactly(p, part, a->pieces, &a->exact)
             : LB_OK;
}

static lb_status reads_views(lb_planner *p, const lb_partition *part,
                             bool *strided) {
  *strided = false;
  for (uint32_t i = 0; i < part->n_reads; i++) {
    const lb_pvalue *in;
    LB_TRY(lb_planner_state(p, part->reads[i].value, &in));
    *strided |=
        in && in->buffer != LB_NO_BUFFER && !lb_tensor_is_dense(in->tensor);
  }
  return LB_OK;
}

// Binds the partition as if all its inputs were dense, and copies those that
// are not if that succeeds.
static lb_status bind_copied(lb_planner *p, const lb_partition *part,
                             attempt *a, bool *ok) {
  bind_view s = {p, lb_partition_result(part), &a->dense, true};
  a->in_concat = false;
  LB_TRY(lb_partition_bind(part, bind_tensor, &s, &a->b, ok));
  if (!*ok) return LB_OK;
  for (uint32_t i = 0; i < part->n_reads; i++)
    LB_TRY(copy_unless(p, part->reads[i].value, lb_tensor_is_dense));
  return find_slot(p, part, a);
}

// Whether the kernel is the one that dense inputs and a dense result would
// select.
static lb_status is_kernel_of_dense(lb_planner *p, const lb_partition *part,
                                    const attempt *a, bool *same) {
  attempt dense;
  bind_view s = {p, lb_partition_result(part), &a->dense, true};
  LB_TRY(lb_partition_bind(part, bind_tensor, &s, &dense.b, same));
  if (!*same) return LB_OK;
  LB_TRY(lb_planner_launch_template(p, &dense.b, &dense.tmpl, &dense.built));
  *same = dense.tmpl->slot == a->tmpl->slot;
  return LB_OK;
}

// Copies strided inputs if no kernel supports their strides, but one would
// support dense inputs. In deterministic mode, it does so whenever dense inputs
// would select another kernel, which may round differently: results then depend
// neither on the strides of the caller's tensors nor on what is skipped.
static lb_status reconsider_strides(lb_planner *p, const lb_partition *part,
                                    attempt *a, bool *bound) {
  bool strided, same = false;
  LB_TRY(reads_views(p, part, &strided));
  if (!p->prog->deterministic) {
    bool refused = strided && !*bound && a->b.refusal == LB_REASON_LAYOUT;
    return refused ? bind_copied(p, part, a, bound) : LB_OK;
  }
  if (!strided && !a->in_concat) return LB_OK;
  if (*bound && a->exact) LB_TRY(is_kernel_of_dense(p, part, a, &same));
  return same ? LB_OK : bind_copied(p, part, a, bound);
}

// -- emitting ----------------------------------------------------------------

// In deterministic mode there is a launch only if its cover gives bit-identical
// results.
static lb_status emit_bound(lb_planner *p, const lb_partition *part,
                            attempt *a) {
  uint32_t first = p->plan->n_steps;
  if (!a->exact) return lb_planner_cover(p, part, a->pieces, LB_REASON_ROUNDS);
  lb_slot *slot = a->tmpl->slot;
  LB_TRY(lb_planner_request(p, part, &a->b, slot));
  LB_TRY(lb_planner_add_launch(p, part, &a->b, a->tmpl));
  if (slot->in_pack)
    return p->launch.dims ? LB_OK : lb_planner_cache_launch(p, part, &a->b);
  p->launch.covers = true;
  LB_TRY(lb_planner_cover(p, part, a->pieces, LB_REASON_PENDING));
  p->plan->steps[first].skip = p->plan->n_steps - first - 1;
  return LB_OK;
}

static lb_status emit(lb_planner *p, const lb_partition *part, attempt *a,
                      bool bound) {
  const lb_value *result = lb_partition_result(part);
  LB_TRY(a->in_concat ? lb_planner_bind_concat_slice(p, result, &a->dense)
                      : lb_planner_place(p, result, &a->dense));
  if (a->cached) {
    LB_TRY(lb_planner_reuse_launch(p, part, a->cached));
  } else if (bound) {
    LB_TRY(emit_bound(p, part, a));
  } else if (lb_tensor_count(&a->dense) > 0 || p->prog->no_skip) {
    LB_TRY(lb_planner_cover(p, part, LB_ALL_PIECES, a->b.refusal));
  } else {
    LB_TRY(lb_planner_note_empty(p, part));
  }
  for (uint32_t i = 0; i < part->n_reads; i++)
    lb_planner_unuse(p, part->reads[i].value, part->reads[i].times);
  return LB_OK;
}

// Plans the members one by one; their inputs stay alive until the last member
// is planned.
static lb_status plan_members(lb_planner *p, const lb_partition *part) {
  bool mine[LB_SPEC_MAX_NODES] = {false};  // planned by this call
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

static void begin(lb_planner *p, const lb_partition *part) {
  p->launch = (lb_launch_states){.by_class = p->launch.by_class, .part = part};
}

// Plans a partition whose members are all skipped; else *done is false.
static lb_status try_skip(lb_planner *p, const lb_partition *part, bool *done) {
  bool calls;
  *done = lb_planner_may_skip_partition(p, part);
  if (!*done) return LB_OK;
  begin(p, part);
  LB_TRY(infer_members(p, part, &calls));
  if (calls) LB_TRY(lb_planner_skips_partition(p, part, done));
  return *done ? plan_members(p, part) : LB_OK;
}

lb_status lb_planner_partition(lb_planner *p, const lb_partition *part) {
  attempt a;
  bool bound = false, calls = true, done;
  LB_TRY(try_skip(p, part, &done));
  if (done) return LB_OK;
  begin(p, part);
  LB_TRY(copy_inputs(p, part));
  a.cached = NULL;
  bool expected = lb_planner_expect_result(p, part, &a.dense);
  if (expected) LB_TRY(bind(p, part, &a, &bound));
  if (!bound) {
    LB_TRY(infer_members(p, part, &calls));
    if (!calls) return plan_members(p, part);
    a.dense = p->launch.dims[part->n_nodes - 1];
  }
  if (!expected) LB_TRY(bind(p, part, &a, &bound));
  if (bound && !a.cached) LB_TRY(find_slot(p, part, &a));
  if (!a.cached && (!bound || p->prog->deterministic))
    LB_TRY(reconsider_strides(p, part, &a, &bound));
  LB_TRY(emit(p, part, &a, bound));
  lb_arena_reset(&p->scratch);
  return LB_OK;
}
