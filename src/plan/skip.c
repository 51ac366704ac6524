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

static lb_status note_skip(lb_planner *p, const lb_node *n,
                           const lb_proof *proof, const lb_pvalue *from) {
  int rank = from ? from->tensor->rank : 0;
  lb_skip_note *note =
      lb_arena_alloc(p->arena, sizeof *note + (size_t)rank * sizeof *note->dims,
                     _Alignof(lb_skip_note));
  if (!note) return lb_oom();
  note->proof = *proof;
  note->rank = from ? rank : -1;
  for (int i = 0; i < rank; i++) note->dims[i] = from->tensor->dims[i];
  // Readers of a permuted tensor do the work of the Transpose.
  bool permutes = proof->kind == LB_PROOF_STRIDES;
  lb_planner_note(p, n, LB_NODE_VIEW,
                  permutes ? LB_REASON_STRIDED : LB_REASON_VIEW,
                  from ? from->value : LB_NO_VALUE);
  lb_disposition *d = &p->plan->nodes[n->id - p->plan->first_node];
  d->skipped = !permutes;
  d->skip = note;
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
  return note_skip(p, n, proof, from);
}

// What is known of the node from load, or the answer of its rule.
static lb_skip ask(const lb_skip_query *q, lb_proof *proof) {
  const lb_node *n = q->node;
  if (!n->in_order) return lb_skip_ask(q, proof);
  *proof = n->proof;
  return LB_SKIP_SAME;
}

static bool is_candidate(const lb_planner *p, const lb_node *n) {
  return n->optimized && n->proof.kind != LB_PROOF_DIMS_READ &&
         !(n->runtime_skippable && p->prog->no_skip);
}

lb_status lb_planner_skip(lb_planner *p, const lb_node *n,
                          const lb_pvalue *const *in, lb_tensor *out,
                          bool *done) {
  lb_skip_query q;
  lb_proof proof;
  *done = false;
  if (!is_candidate(p, n)) return LB_OK;
  LB_TRY(query_of(p, n, in, out, &q));
  lb_skip how = ask(&q, &proof);
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
  return note_skip(p, n, &proof, n->n_in ? in[0] : NULL);
}

lb_status lb_planner_note_empty(lb_planner *p, const lb_partition *part) {
  const lb_proof proof = {.kind = LB_PROOF_EMPTY};
  for (uint32_t i = 0; i < part->n_nodes; i++)
    LB_TRY(note_skip(p, part->nodes[i], &proof, NULL));
  return LB_OK;
}

// -- partitions --------------------------------------------------------------

// What is known of an operand before its node is planned: its state, or the
// dims of its expressions, in `scratch`.
static bool foresee(lb_planner *p, const lb_value *v, lb_tensor *scratch,
                    lb_skip_operand *out) {
  *out = (lb_skip_operand){.rank = -1};
  if (!v) return true;
  const lb_pvalue *s;
  lb_status st = lb_planner_state(p, v, &s);
  if (lb_failed(st)) {
    lb_status_drop(st);
    return false;
  }
  if (s) {
    describe(s, out);
    return true;
  }
  if (!p->dims.exact || !lb_planner_expect(p, v, scratch)) return false;
  describe_tensor(scratch, out);
  return true;
}

static bool is_value(const lb_planner *p, const lb_value *v,
                     const lb_value *root) {
  return v && root && lb_planner_root(p, v->id) == root->id;
}

// The query of a node that is not planned yet; false if dims are not known. The
// value `from` is like `as`.
static bool foresee_query(lb_planner *p, const lb_node *n, const lb_value *from,
                          const lb_tensor *as, lb_skip_query *q) {
  lb_skip_operand *operands;
  lb_tensor *scratch = LB_SCRATCH(p, lb_tensor, n->n_in + n->n_out);
  lb_status st = begin_query(p, n, &operands, q);
  bool good = scratch && !lb_failed(st);
  lb_status_drop(st);
  for (uint32_t i = 0; good && i < n->n_in + n->n_out; i++) {
    const lb_value *v = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
    if (is_value(p, v, from))
      describe_tensor(as, &operands[i]);
    else
      good = foresee(p, v, &scratch[i], &operands[i]);
  }
  return good;
}

bool lb_planner_skips_partition(lb_planner *p, const lb_partition *part) {
  const lb_node *last = part->nodes[part->n_nodes - 1];
  lb_skip_query q;
  lb_proof proof;
  if (last->proof.kind == LB_PROOF_DIMS_READ) return true;
  for (uint32_t i = part->n_nodes; i-- > 0;)
    if (!is_candidate(p, part->nodes[i])) return false;
  for (uint32_t i = 0; i < part->n_nodes; i++) {
    if (!foresee_query(p, part->nodes[i], NULL, NULL, &q) ||
        ask(&q, &proof) < LB_SKIP_VIEW)
      return false;
  }
  return true;
}

// -- the way to a result -----------------------------------------------------

// Replaces *t, the strides of `from`, by those of the output of n.
static bool step_over(lb_planner *p, const lb_node *n, const lb_value *from,
                      lb_tensor *t) {
  lb_skip_query q;
  lb_proof proof;
  lb_tensor out;
  int64_t offset;
  if (!is_candidate(p, n) || !foresee_query(p, n, from, t, &q)) return false;
  if (ask(&q, &proof) < LB_SKIP_VIEW) return false;
  if (!is_value(p, n->in[proof.input], from)) return false;
  if (!lb_planner_expect(p, n->out[0], &out)) return false;
  if (!lb_view_try(&q, &proof, t, 0, &out, &offset) || offset) return false;
  *t = out;
  return true;
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
    if (!n || !p->dims.exact || !step_over(p, n, v, &at)) return false;
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
    if (!n->in_order) return n;
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
