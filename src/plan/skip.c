// plan/skip.c -- nodes that do nothing at the shapes of a plan.
#include "plan/skip.h"

#include "plan/planner.h"
#include "plan/view.h"

// -- queries -----------------------------------------------------------------

static void describe(const lb_pvalue *s, lb_skip_operand *out) {
  *out = (lb_skip_operand){.rank = -1};
  if (!s) return;
  out->dtype = s->tensor->dtype;
  out->rank = s->tensor->rank;
  out->sizes = s->tensor->dims;
  out->data = s->buffer == LB_NO_BUFFER && s->tensor->data ? s->tensor : NULL;
  if (s->content) out->content = *s->content;
}

static void describe_tensor(const lb_tensor *t, lb_skip_operand *out) {
  *out =
      (lb_skip_operand){.dtype = t->dtype, .rank = t->rank, .sizes = t->dims};
}

static bool only_first_read(const lb_planner *p, const lb_node *n) {
  for (uint32_t i = 1; i < n->n_out; i++)
    if (lb_planner_is_read(p, n->out[i])) return false;
  return true;
}

// A query without operands, in scratch memory.
static lb_status begin_query(lb_planner *p, const lb_node *n,
                             lb_skip_operand **operands, lb_skip_query *out) {
  *operands = LB_SCRATCH(p, lb_skip_operand, n->n_in + n->n_out);
  if (!*operands) return lb_oom();
  *out =
      (lb_skip_query){n, *operands, *operands + n->n_in, only_first_read(p, n)};
  return LB_OK;
}

static lb_status query_of(lb_planner *p, const lb_node *n,
                          const lb_pvalue *const *in, const lb_tensor *out,
                          lb_skip_query *q) {
  lb_skip_operand *operands;
  LB_TRY(begin_query(p, n, &operands, q));
  for (uint32_t i = 0; i < n->n_in; i++) describe(in[i], &operands[i]);
  for (uint32_t i = 0; i < n->n_out; i++)
    describe_tensor(&out[i], &operands[n->n_in + i]);
  return LB_OK;
}

// -- dispositions ------------------------------------------------------------

static lb_reason reason_of(const lb_proof *proof) {
  switch (proof->kind) {
    case LB_PROOF_STRIDES: return LB_REASON_STRIDED;
    case LB_PROOF_EMPTY: return LB_REASON_EMPTY;
    case LB_PROOF_DIMS_READ: return LB_REASON_NOT_REQUESTED;
    default: return LB_REASON_VIEW;
  }
}

static lb_status note_skip(lb_planner *p, const lb_node *n,
                           const lb_proof *proof, lb_skip how,
                           const lb_pvalue *from) {
  int rank = from ? from->tensor->rank : 0;
  lb_skip_note *note =
      lb_arena_alloc(p->arena, sizeof *note + (size_t)rank * sizeof *note->dims,
                     _Alignof(lb_skip_note));
  if (!note) return lb_oom();
  note->proof = *proof;
  note->in_order = how == LB_SKIP_SAME;
  note->rank = from ? rank : -1;
  for (int i = 0; i < rank; i++) note->dims[i] = from->tensor->dims[i];
  bool unread = proof->kind == LB_PROOF_DIMS_READ;
  lb_planner_note(p, n, unread ? LB_NODE_NOT_NEEDED : LB_NODE_VIEW,
                  reason_of(proof), from ? from->value : LB_NO_VALUE);
  lb_disposition *d = &p->plan->nodes[n->id - p->plan->first_node];
  // Readers of a permuted tensor do the work of the Transpose.
  d->skipped = proof->kind != LB_PROOF_STRIDES;
  d->skip = note;
  return LB_OK;
}

lb_status lb_planner_note_in_place(lb_planner *p, const lb_node *n,
                                   const lb_pvalue *joined) {
  const lb_proof proof = {.kind = LB_PROOF_IN_PLACE};
  LB_TRY(note_skip(p, n, &proof, LB_SKIP_VIEW, joined));
  lb_disposition *d = &p->plan->nodes[n->id - p->plan->first_node];
  d->kind = LB_NODE_IN_PLACE;
  d->value = n->out[0]->id;
  return LB_OK;
}

// -- views -------------------------------------------------------------------

// A range is one only while all elements keep their order.
static const lb_content *content_of(const lb_pvalue *from, lb_skip how) {
  const lb_content *c = from->content;
  return c && (c->kind == LB_CONTENT_UNIFORM || how == LB_SKIP_SAME) ? c : NULL;
}

// Sets all requested outputs as views of input proof->input, or none.
static lb_status set_views(lb_planner *p, const lb_skip_query *q,
                           const lb_proof *proof, lb_skip how,
                           const lb_pvalue *from, lb_tensor *out, bool *done) {
  const lb_node *n = q->node;
  int64_t *offset = LB_SCRATCH(p, int64_t, n->n_out);
  int64_t size = (int64_t)lb_dtype_size(from->tensor->dtype);
  bool known = from->buffer == LB_NO_BUFFER;
  *done = false;
  if (!offset) return lb_oom();
  for (uint32_t i = 0; i < n->n_out; i++)
    if (lb_planner_is_read(p, n->out[i]) &&
        !lb_view_try(q, proof, from->tensor, i, &out[i], &offset[i]))
      return LB_OK;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!lb_planner_is_read(p, n->out[i])) continue;
    lb_tensor *view;
    LB_TRY(known ? lb_planner_copy_to_plan(p, &out[i], &view)
                 : lb_planner_copy_meta(p, &out[i], &view));
    if (known && from->tensor->data)
      view->data = (char *)from->tensor->data + offset[i] * size;
    LB_TRY(lb_planner_set(
        p, n->out[i],
        (lb_pvalue){.tensor = view,
                    .buffer = from->buffer,
                    .offset = from->offset + (known ? 0 : offset[i] * size),
                    .content = content_of(from, how)}));
  }
  *done = true;
  return note_skip(p, n, proof, how, from);
}

// Where skipping is off, the only views that depend on shapes are those of
// which readers do the work.
static bool allows(const lb_planner *p, const lb_node *n,
                   const lb_proof *proof) {
  return !n->runtime_skippable || !p->prog->no_skip ||
         proof->kind == LB_PROOF_STRIDES;
}

// Whether this plan may skip the node.
static bool is_candidate(const lb_node *n) {
  return n->optimized && n->proof.kind != LB_PROOF_DIMS_READ;
}

// What is known of the node from load, or the answer of its rule.
static lb_skip ask(const lb_planner *p, const lb_skip_query *q,
                   lb_proof *proof) {
  const lb_node *n = q->node;
  if (n->in_order) {
    *proof = n->proof;
    return LB_SKIP_SAME;
  }
  lb_skip answer = lb_skip_ask(q, proof);
  return answer < LB_SKIP_VIEW || allows(p, n, proof) ? answer : LB_SKIP_NO;
}

lb_status lb_planner_skip(lb_planner *p, const lb_node *n,
                          const lb_pvalue *const *in, lb_tensor *out,
                          bool *done) {
  lb_skip_query q;
  lb_proof proof;
  *done = false;
  if (!is_candidate(n)) return LB_OK;
  q = (lb_skip_query){.node = n};  // what is proved at load reads no operands
  if (!n->in_order) LB_TRY(query_of(p, n, in, out, &q));
  lb_skip how = ask(p, &q, &proof);
  if (how < LB_SKIP_VIEW) return LB_OK;
  const lb_pvalue *from = in[proof.input];
  LB_TRY(set_views(p, &q, &proof, how, from, out, done));
  if (*done || how != LB_SKIP_SAME || from->buffer == LB_NO_BUFFER)
    return LB_OK;
  // The elements of a strided view get other dims: they are copied first.
  LB_TRY(lb_planner_make_dense(p, n->in[proof.input], LB_REASON_LAYOUT));
  LB_TRY(lb_planner_state(p, n->in[proof.input], &from));
  return set_views(p, &q, &proof, how, from, out, done);
}

// -- outputs without elements ------------------------------------------------

// A value of which only the dims are read has a buffer of 0 bytes.
static lb_status set_without_elements(lb_planner *p, const lb_value *v,
                                      const lb_tensor *t) {
  const lb_tensor nothing = {.dtype = t->dtype, .rank = 1};
  lb_tensor *meta;
  uint32_t buffer;
  LB_TRY(lb_planner_add_buffer(p, &nothing, LB_STORAGE_ARENA, 0, &buffer));
  LB_TRY(lb_planner_copy_meta(p, t, &meta));
  return lb_planner_set(p, v, (lb_pvalue){.tensor = meta, .buffer = buffer});
}

static bool all_empty(const lb_planner *p, const lb_node *n,
                      const lb_tensor *out) {
  for (uint32_t i = 0; i < n->n_out; i++)
    if (lb_planner_is_read(p, n->out[i]) && lb_tensor_count(&out[i]) > 0)
      return false;
  return true;
}

lb_status lb_planner_skip_empty(lb_planner *p, const lb_node *n,
                                const lb_pvalue *const *in,
                                const lb_tensor *out, bool *done) {
  bool dims_only = n->proof.kind == LB_PROOF_DIMS_READ;
  lb_proof proof = {.kind = LB_PROOF_DIMS_READ};
  *done = dims_only;
  if (!dims_only) {
    proof.kind = LB_PROOF_EMPTY;
    *done = !p->prog->no_skip && !lb_op_has(n->op, LB_TRAIT_INDEXES) &&
            all_empty(p, n, out);
  }
  if (!*done) return LB_OK;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!lb_planner_is_read(p, n->out[i])) continue;
    LB_TRY(dims_only ? set_without_elements(p, n->out[i], &out[i])
                     : lb_planner_place(p, n->out[i], &out[i]));
  }
  return note_skip(p, n, &proof, LB_SKIP_VIEW, n->n_in ? in[0] : NULL);
}

lb_status lb_planner_note_empty(lb_planner *p, const lb_partition *part) {
  const lb_proof proof = {.kind = LB_PROOF_EMPTY};
  for (uint32_t i = 0; i < part->n_nodes; i++)
    LB_TRY(note_skip(p, part->nodes[i], &proof, LB_SKIP_VIEW, NULL));
  return LB_OK;
}

// -- partitions --------------------------------------------------------------

// The sizes that a load warm-up guesses are small; kernels that other sizes
// need are to be requested.
bool lb_planner_may_skip_partition(const lb_planner *p,
                                   const lb_partition *part) {
  const lb_node *last = part->nodes[part->n_nodes - 1];
  if (last->proof.kind == LB_PROOF_DIMS_READ) return true;
  if (p->in_warmup) return false;
  for (uint32_t i = part->n_nodes; i-- > 0;)
    if (!is_candidate(part->nodes[i])) return false;
  return true;
}

static lb_status describe_member(lb_planner *p, const lb_value *v,
                                 lb_skip_operand *out) {
  const lb_pvalue *s;
  *out = (lb_skip_operand){.rank = -1};
  if (!v) return LB_OK;
  LB_TRY(lb_planner_state(p, v, &s));
  if (s) {
    describe(s, out);
    return LB_OK;
  }
  lb_tensor *t = LB_SCRATCH(p, lb_tensor, 1);
  if (!t) return lb_oom();
  LB_TRY(lb_planner_tensor(p, v, t));
  describe_tensor(t, out);
  return LB_OK;
}

lb_status lb_planner_skips_partition(lb_planner *p, const lb_partition *part,
                                     bool *skips) {
  const lb_node *last = part->nodes[part->n_nodes - 1];
  lb_proof proof;
  *skips = true;
  if (last->proof.kind == LB_PROOF_DIMS_READ) return LB_OK;
  for (uint32_t i = 0; *skips && i < part->n_nodes; i++) {
    const lb_node *n = part->nodes[i];
    lb_skip_operand *operands;
    lb_skip_query q;
    LB_TRY(begin_query(p, n, &operands, &q));
    for (uint32_t k = 0; k < n->n_in + n->n_out; k++)
      LB_TRY(describe_member(p, k < n->n_in ? n->in[k] : n->out[k - n->n_in],
                             &operands[k]));
    *skips = ask(p, &q, &proof) >= LB_SKIP_VIEW;
  }
  return LB_OK;
}

// -- the way to a result -----------------------------------------------------

static bool is_value(const lb_planner *p, const lb_value *v,
                     const lb_value *root) {
  return v && lb_planner_root(p, v->id) == root->id;
}

// The states of the inputs of a node that is not planned yet: `from` will be
// like `as`, and the others must be planned.
static lb_status foresee_inputs(lb_planner *p, const lb_node *n,
                                const lb_value *from, const lb_pvalue *as,
                                const lb_pvalue **in, bool *good) {
  *good = true;
  for (uint32_t i = 0; *good && i < n->n_in; i++) {
    in[i] = NULL;
    if (!n->in[i]) continue;
    if (is_value(p, n->in[i], from)) {
      in[i] = as;
      continue;
    }
    LB_TRY(lb_planner_state(p, n->in[i], &in[i]));
    *good = in[i] != NULL;
  }
  return LB_OK;
}

// The output's dims, by expressions or else by the shape rule.
static lb_status foresee_output(lb_planner *p, const lb_node *n,
                                const lb_pvalue *const *in, lb_tensor *out,
                                bool *good) {
  const lb_tensor *inferred;
  *good = p->dims.exact && lb_planner_expect(p, n->out[0], out);
  if (*good) return LB_OK;
  LB_TRY(lb_planner_infer(p, n, in, &inferred, good));
  if (*good) *out = inferred[0];
  return LB_OK;
}

// Replaces *t, the strides of `from`, by those of the output of n; *good is
// false if that is not a view of `from` that starts where it starts.
static lb_status step_over(lb_planner *p, const lb_node *n,
                           const lb_value *from, lb_tensor *t, bool *good) {
  const lb_pvalue as = {.tensor = t, .buffer = 0};
  const lb_pvalue **in = LB_SCRATCH(p, const lb_pvalue *, n->n_in);
  lb_skip_query q;
  lb_proof proof;
  lb_tensor out;
  int64_t offset;
  *good = n->n_out == 1 && is_candidate(n);
  if (!in) return lb_oom();
  if (*good) LB_TRY(foresee_inputs(p, n, from, &as, in, good));
  if (*good) LB_TRY(foresee_output(p, n, in, &out, good));
  if (!*good) return LB_OK;
  LB_TRY(query_of(p, n, in, &out, &q));
  *good = ask(p, &q, &proof) >= LB_SKIP_VIEW && in[proof.input] == &as &&
          lb_view_try(&q, &proof, t, 0, &out, &offset) && offset == 0;
  if (*good) *t = out;
  return LB_OK;
}

// An error is left to the node that causes it.
static bool steps_over(lb_planner *p, const lb_node *n, const lb_value *from,
                       lb_tensor *t) {
  bool good;
  lb_status st = step_over(p, n, from, t, &good);
  good = good && !lb_failed(st);
  lb_status_drop(st);
  return good;
}

bool lb_planner_leads_in_order(lb_planner *p, const lb_value *v,
                               const lb_tensor *t) {
  const lb_output_path *path = &p->tally.output_of[v->id];
  const lb_value *result = p->region->results[path->result - 1];
  uint32_t end = lb_planner_root(p, result->id);
  int64_t count = lb_tensor_count(t);
  lb_tensor at = *t;
  lb_tensor_dense(&at);
  v = p->prog->graph->values[lb_planner_root(p, v->id)];
  while (v->id != end) {
    const lb_node *n = path->via;
    if (!n || !steps_over(p, n, v, &at)) return false;
    v = n->out[0];
    path = &p->tally.output_of[v->id];
  }
  return lb_tensor_is_dense(&at) && lb_tensor_count(&at) == count;
}

// -- copies ------------------------------------------------------------------

const lb_node *lb_planner_moved_by(lb_planner *p, const lb_value *x) {
  for (;;) {
    x = p->prog->graph->values[lb_planner_root(p, x->id)];
    const lb_node *n = x->producer;
    if (!n) return NULL;
    const lb_disposition *d = lb_plan_node(p->plan, n);
    if (d->kind != LB_NODE_VIEW || !d->skip || d->skip->rank < 0) return NULL;
    if (!d->skip->in_order) return n;
    x = n->in[d->skip->proof.input];
  }
}

lb_status lb_planner_make_dense(lb_planner *p, const lb_value *x,
                                lb_reason why) {
  const lb_pvalue *s;
  lb_step_operand from, to;
  LB_TRY(lb_planner_state(p, x, &s));
  x = p->prog->graph->values[lb_planner_root(p, x->id)];
  LB_TRY(lb_planner_operand(p, s, &from));
  LB_TRY(lb_planner_place(p, x, s->tensor));
  LB_TRY(lb_planner_operand(p, p->values.states[x->id], &to));
  lb_planner_leave(p, s->buffer);
  return lb_planner_copy(p, from, to, lb_planner_moved_by(p, x), why);
}
