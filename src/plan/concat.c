// plan/concat.c -- in-place Concat: producers write their slice of the result.
//
// Terms. The *destination* of a value is the Concat that reads it, directly or
// as all parts of a Split. The *buffer* of a Concat is the memory of its
// result. It is allocated when a launch produces the first of the inputs:
// kernels accept any row stride, so that the launch can write its slice. The
// buffer of a Concat that is an input of another is a slice of the other's
// buffer, and that of a Concat that is a result is the caller's strided memory,
// if any (window.c).
//
// Destinations are best effort. When the Concat is planned, inputs that are not
// in its buffer are copied there; if none is, it is an ordinary call.
#include <assert.h>

#include "plan/planner.h"
#include "plan/skip.h"

// -- destinations -------------------------------------------------------------

static int axis_of(const lb_node *n, int rank) {
  int64_t axis = lb_attr_int(n, "axis", 0);
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? -1 : (int)axis;
}

// Whether the node reads strided values without a copy.
static bool takes_strides(const lb_planner *p, const lb_node *n) {
  return p->prog->parts->of_node[n->id] || lb_op_has(n->op, LB_TRAIT_STRIDED);
}

// Size of input i along the axis at these shapes; -1: not known yet.
static int64_t length_of(lb_planner *p, const lb_node *node, uint32_t i,
                         int axis) {
  const lb_value *v = node->in[i];
  lb_tensor expected;
  if (!v || v->info.rank <= axis) return -1;
  if (lb_dim_is_const(v->info.dims[axis])) return v->info.dims[axis].k;
  const lb_pvalue *s = p->values.states[lb_planner_root(p, v->id)];
  if (s) return s->tensor->dims[axis];
  bool known = p->dims.exact && lb_planner_expect(p, v, &expected);
  return known ? expected.dims[axis] : -1;
}

static void set_dests(lb_planner *p, const lb_node *node) {
  const lb_value *y = node->out[0];
  int axis = y->info.rank < 0 ? -1 : axis_of(node, y->info.rank);
  if (axis < 0) return;
  for (uint32_t i = node->n_in; i-- > 0;) {
    if (!node->in[i]) continue;
    lb_concat_dest *h = &p->tally.concat_dests[node->in[i]->id];
    h->node = node;
    h->at = i;
    h->axis = (uint8_t)axis;
  }
}

// A value gets the destination of its parts if they remain adjacent.
static void inherit_dest(lb_planner *p, const lb_node *split) {
  const lb_value *x = split->in[0], *first = split->out[0];
  const lb_concat_dest *h = first ? &p->tally.concat_dests[first->id] : NULL;
  if (!h || !h->node || x->info.rank < 0 ||
      axis_of(split, x->info.rank) != axis_of(h->node, x->info.rank))
    return;
  for (uint32_t i = 0; i < split->n_out; i++)
    if (h->at + i >= h->node->n_in || h->node->in[h->at + i] != split->out[i])
      return;
  lb_concat_dest *to = &p->tally.concat_dests[x->id];
  to->node = h->node;
  to->at = h->at;
  to->axis = h->axis;
}

void lb_planner_find_concat_dests(lb_planner *p, const lb_node *n) {
  if (!p->prog->parts || p->prog->no_skip) return;
  if (n->op == LB_OP_Concat) set_dests(p, n);
  if (n->op == LB_OP_Split) inherit_dest(p, n);
  if (takes_strides(p, n)) return;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i]) p->tally.concat_dests[n->in[i]->id].needs_dense = true;
}

// -- buffers ------------------------------------------------------------------

static bool same_dims(const lb_tensor *a, const lb_tensor *b) {
  if (a->rank != b->rank || a->dtype != b->dtype) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i]) return false;
  return true;
}

// The destination of v if it can still be written in place; else NULL.
static const lb_concat_dest *dest_of(const lb_planner *p, const lb_value *v) {
  const lb_concat_dest *h = &p->tally.concat_dests[v->id];
  bool good = h->node && !h->needs_dense && p->tally.needed[h->node->id] &&
              !p->values.states[h->node->out[0]->id];
  return good ? h : NULL;
}

// The buffer of a Concat, or NULL. A buffer whose memory was freed does not
// count.
static const lb_pvalue *buffer_of(const lb_planner *p, const lb_value *joined) {
  const lb_pvalue *buf = p->concat.buffers[joined->id];
  return buf && p->values.bufs[buf->buffer].storage != LB_STORAGE_NONE ? buf
                                                                       : NULL;
}

typedef struct location {  // of a value in the buffer of a Concat
  lb_tensor tensor;
  uint32_t buffer;  // LB_NO_BUFFER: not allocated yet
  int64_t offset;
} location;

static lb_status find_slice(lb_planner *p, const lb_value *v,
                            const lb_tensor *t, bool create, location *out,
                            bool *found);

static lb_status add_buffer(lb_planner *p, const lb_value *joined,
                            location *s) {
  lb_tensor *meta;
  lb_pvalue *buf = lb_arena_new(p->state, lb_pvalue, 1);
  if (!buf) return lb_oom();
  if (s->buffer == LB_NO_BUFFER)
    LB_TRY(lb_planner_buffer(p, joined, &s->tensor, &s->buffer));
  LB_TRY(lb_planner_copy_meta(p, &s->tensor, &meta));
  *buf = (lb_pvalue){.tensor = meta,
                     .buffer = s->buffer,
                     .value = joined->id,
                     .offset = s->offset};
  p->concat.buffers[joined->id] = buf;
  return LB_OK;
}

// The dims of the Concat's result of which a value like t is a slice, and where
// the slice starts along the axis. They are checked for the first slice.
static bool concat_dims(lb_planner *p, const lb_concat_dest *h,
                        const lb_tensor *t, lb_tensor *out, int64_t *start) {
  int axis = h->axis;
  int64_t count;
  if (axis >= t->rank) return false;
  *out = *t;
  *start = out->dims[axis] = 0;
  for (uint32_t i = 0; i < h->node->n_in; i++) {
    int64_t length = length_of(p, h->node, i, axis);
    if (length < 0) return false;
    if (i < h->at) *start += length;
    if (__builtin_add_overflow(out->dims[axis], length, &out->dims[axis]))
      return false;
  }
  if (*start + t->dims[axis] > out->dims[axis]) return false;
  if (buffer_of(p, h->node->out[0])) return true;
  lb_status st = lb_dims_count(out->rank, out->dims, &count);
  bool fits = !lb_failed(st);
  lb_status_drop(st);
  if (!fits) return false;
  lb_tensor_dense(out);
  return !p->prog->limit || lb_tensor_bytes(out) <= p->prog->limit;
}

// Finds the buffer for a Concat's result like t. If it does not exist and
// `create` is set, it is allocated.
static lb_status find_buffer(lb_planner *p, const lb_value *joined,
                             const lb_tensor *t, bool create, location *out,
                             bool *found) {
  const lb_pvalue *buf = buffer_of(p, joined);
  *found = true;
  if (buf) {
    *out = (location){*buf->tensor, buf->buffer, buf->offset};
    *found = same_dims(buf->tensor, t);
    return LB_OK;
  }
  LB_TRY(find_slice(p, joined, t, create, out, found));
  if (!*found) *out = (location){*t, LB_NO_BUFFER, 0};
  *found = true;
  return create ? add_buffer(p, joined, out) : LB_OK;
}

// The location of v in the caller's strided memory. The tensor is set only if
// it is found, because most values are elsewhere.
static lb_status find_window(lb_planner *p, const lb_value *v,
                             const lb_tensor *t, bool create, location *out,
                             bool *found) {
  uint32_t result;
  out->buffer = LB_NO_BUFFER;
  out->offset = 0;
  LB_TRY(lb_planner_find_window(p, v, t, &out->tensor, found));
  if (!*found || !create) return LB_OK;
  LB_TRY(lb_planner_take_window(p, v, t, &result));
  return lb_planner_add_buffer(p, t, LB_STORAGE_OUTPUT, result, &out->buffer);
}

// The location of v in the buffer of its destination, or in the caller's
// strided memory; `t` is v when dense.
static lb_status find_slice(lb_planner *p, const lb_value *v,
                            const lb_tensor *t, bool create, location *out,
                            bool *found) {
  const lb_concat_dest *h = dest_of(p, v);
  lb_tensor around;
  int64_t start;
  LB_TRY(find_window(p, v, t, create, out, found));
  if (*found || !h || !concat_dims(p, h, t, &around, &start)) return LB_OK;
  LB_TRY(find_buffer(p, h->node->out[0], &around, create, out, found));
  out->tensor.dims[h->axis] = t->dims[h->axis];
  out->offset +=
      start * out->tensor.strides[h->axis] * (int64_t)lb_dtype_size(t->dtype);
  return LB_OK;
}

lb_status lb_planner_find_concat_slice(lb_planner *p, const lb_value *v,
                                       const lb_tensor *t, lb_tensor *out,
                                       bool *found) {
  location s;
  int last = t->rank - 1;
  LB_TRY(find_slice(p, v, t, false, &s, found));
  if (!*found) return LB_OK;
  *out = s.tensor;
  // A strided result may have gaps between columns; no kernel writes those.
  *found = last < 0 || out->dims[last] == 1 || out->strides[last] == 1;
  return LB_OK;
}

lb_status lb_planner_bind_concat_slice(lb_planner *p, const lb_value *v,
                                       const lb_tensor *t) {
  location s;
  bool found;
  lb_tensor *meta;
  LB_TRY(find_slice(p, v, t, true, &s, &found));
  assert(found);
  LB_TRY(lb_planner_copy_meta(p, &s.tensor, &meta));
  return lb_planner_set(
      p, v,
      (lb_pvalue){.tensor = meta, .buffer = s.buffer, .offset = s.offset});
}

// -- the Concat --------------------------------------------------------------

static bool is_at(const lb_pvalue *s, const location *at) {
  if (s->buffer != at->buffer || s->offset != at->offset) return false;
  for (int i = 0; i < s->tensor->rank; i++)
    if (s->tensor->dims[i] != 1 &&
        s->tensor->strides[i] != at->tensor.strides[i])
      return false;
  return true;
}

static lb_status put_at(lb_planner *p, const lb_node *n, const lb_pvalue *from,
                        const location *at) {
  uint32_t value = n->out[0]->id;
  lb_pvalue slice = {.tensor = &at->tensor,
                     .buffer = at->buffer,
                     .value = value,
                     .offset = at->offset};
  lb_step_operand in, out;
  if (lb_tensor_count(from->tensor) == 0 || is_at(from, at)) return LB_OK;
  LB_TRY(lb_planner_operand(p, from, &in));
  LB_TRY(lb_planner_operand(p, &slice, &out));
  return lb_planner_copy(p, in, out, n, LB_REASON_COPIED);
}

lb_status lb_planner_concat(lb_planner *p, const lb_node *n,
                            const lb_pvalue *const *in, const lb_tensor *out,
                            bool *done) {
  const lb_value *joined = n->out[0];
  location at;
  LB_TRY(lb_planner_find_window(p, joined, out, &at.tensor, done));
  *done = *done || buffer_of(p, joined) || dest_of(p, joined);
  if (*done) LB_TRY(find_buffer(p, joined, out, true, &at, done));
  if (!*done) return LB_OK;
  int axis = axis_of(n, out->rank);
  const lb_pvalue *buf = buffer_of(p, joined);
  uint32_t first = p->plan->n_steps;
  lb_planner_note(p, n, LB_NODE_COPIED, LB_REASON_COPIED, joined->id);
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!in[i]) continue;
    at.tensor.dims[axis] = in[i]->tensor->dims[axis];
    LB_TRY(put_at(p, n, in[i], &at));
    at.offset += at.tensor.dims[axis] * at.tensor.strides[axis] *
                 (int64_t)lb_dtype_size(out->dtype);
  }
  if (p->plan->n_steps == first) LB_TRY(lb_planner_note_in_place(p, n, buf));
  return lb_planner_set(p, joined, *buf);
}
