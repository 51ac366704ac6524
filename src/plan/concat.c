// plan/concat.c -- what a Concat joins is written where it will lie.
//
// Terms. The *home* of a value is the Concat that joins it, by itself or as all
// parts of a Split. The *room* of a Concat is the memory of its result, taken
// when the first of its inputs is made by a launch, which can write it there:
// kernels take any stride of rows. A Concat that is joined itself has its room
// inside another, and one that is a result has it in the caller's window, if
// there is one (window.c).
//
// A home is a wish. When the Concat is reached, what does not lie in its room
// is copied there; if nothing does, it is an ordinary call.
#include <assert.h>

#include "plan/planner.h"

// -- homes -------------------------------------------------------------------

static int axis_of(const lb_node *n, int rank) {
  int64_t axis = lb_attr_int(n, "axis", 0);
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? -1 : (int)axis;
}

// Whether readers see no difference if the value lies in strides. Others may
// have to copy it.
static bool takes_strides(const lb_planner *p, const lb_node *n) {
  return p->prog->parts->of_node[n->id] || lb_op_has(n->op, LB_TRAIT_STRIDED);
}

// Elements of input i along the axis, if they are the same at every shape;
// else -1.
static int64_t length_of(const lb_node *join, uint32_t i, int axis) {
  const lb_value *v = join->in[i];
  bool known = v && v->info.rank > axis && lb_dim_is_const(v->info.dims[axis]);
  return known ? v->info.dims[axis].k : -1;
}

static void set_homes(lb_planner *p, const lb_node *join) {
  const lb_value *y = join->out[0];
  int axis = y->info.rank < 0 ? -1 : axis_of(join, y->info.rank);
  if (axis < 0) return;
  for (uint32_t i = 0; i < join->n_in; i++)
    if (length_of(join, i, axis) < 0) return;
  for (uint32_t i = join->n_in; i-- > 0;) {
    lb_concat_dest *h = &p->tally.homes[join->in[i]->id];
    h->join = join;
    h->at = i;
  }
}

// A value goes where its parts go, if they stay side by side.
static void inherit_home(lb_planner *p, const lb_node *split) {
  const lb_value *x = split->in[0], *first = split->out[0];
  const lb_concat_dest *h = first ? &p->tally.homes[first->id] : NULL;
  if (!h || !h->join || x->info.rank < 0 ||
      axis_of(split, x->info.rank) != axis_of(h->join, x->info.rank))
    return;
  for (uint32_t i = 0; i < split->n_out; i++)
    if (h->at + i >= h->join->n_in || h->join->in[h->at + i] != split->out[i])
      return;
  p->tally.homes[x->id].join = h->join;
  p->tally.homes[x->id].at = h->at;
}

void lb_planner_find_concat_dests(lb_planner *p, const lb_node *n) {
  if (!p->prog->parts) return;
  if (n->op == LB_OP_Concat) set_homes(p, n);
  if (n->op == LB_OP_Split) inherit_home(p, n);
  if (takes_strides(p, n)) return;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i]) p->tally.homes[n->in[i]->id].barred = true;
}

// -- rooms -------------------------------------------------------------------

static bool same_dims(const lb_tensor *a, const lb_tensor *b) {
  if (a->rank != b->rank || a->dtype != b->dtype) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i]) return false;
  return true;
}

// The dims of the Concat's result around a value like t, and where along the
// axis the value begins.
static bool surround(const lb_planner *p, const lb_concat_dest *h,
                     const lb_tensor *t, lb_tensor *out, int64_t *start) {
  int axis = axis_of(h->join, t->rank);
  int64_t count;
  if (axis < 0) return false;
  *out = *t;
  *start = out->dims[axis] = 0;
  for (uint32_t i = 0; i < h->join->n_in; i++) {
    int64_t length = length_of(h->join, i, axis);
    if (i < h->at) *start += length;
    if (__builtin_add_overflow(out->dims[axis], length, &out->dims[axis]))
      return false;
  }
  lb_status st = lb_dims_count(out->rank, out->dims, &count);
  bool fits = !lb_failed(st);
  lb_status_drop(st);
  if (!fits || *start + t->dims[axis] > out->dims[axis]) return false;
  lb_tensor_dense(out);
  return !p->prog->limit || lb_tensor_bytes(out) <= p->prog->limit;
}

// The home of v, if something may still be written there.
static const lb_concat_dest *home_of(const lb_planner *p, const lb_value *v) {
  const lb_concat_dest *h = &p->tally.homes[v->id];
  bool good = h->join && !h->barred && p->tally.needed[h->join->id] &&
              !p->values.states[h->join->out[0]->id];
  return good ? h : NULL;
}

// The room of a Concat, or NULL. Memory that was given back is none.
static const lb_pvalue *module_of(const lb_planner *p, const lb_value *joined) {
  const lb_pvalue *room = p->concat.modules[joined->id];
  return room && p->values.bufs[room->buffer].place != LB_STORAGE_NONE ? room
                                                                       : NULL;
}

typedef struct address {  // of a value in a room
  lb_tensor tensor;
  uint32_t buffer;  // LB_NO_BUFFER: the room is not there yet
  int64_t offset;
} address;

static lb_status find_spot(lb_planner *p, const lb_value *v, const lb_tensor *t,
                           bool make, address *out, bool *found);

static lb_status make_room(lb_planner *p, const lb_value *joined, address *s) {
  lb_tensor *jotted;
  lb_pvalue *room = lb_arena_new(p->state, lb_pvalue, 1);
  if (!room) return lb_oom();
  if (s->buffer == LB_NO_BUFFER)
    LB_TRY(lb_planner_buffer(p, joined, &s->tensor, &s->buffer));
  LB_TRY(lb_planner_copy_meta(p, &s->tensor, &jotted));
  *room = (lb_pvalue){jotted, s->buffer, joined->id, s->offset};
  p->concat.modules[joined->id] = room;
  return LB_OK;
}

// The room for a result like t; made if it is to be.
static lb_status find_room(lb_planner *p, const lb_value *joined,
                           const lb_tensor *t, bool make, address *out,
                           bool *found) {
  const lb_pvalue *room = module_of(p, joined);
  *found = true;
  if (room) {
    *out = (address){*room->tensor, room->buffer, room->offset};
    *found = same_dims(room->tensor, t);
    return LB_OK;
  }
  LB_TRY(find_spot(p, joined, t, make, out, found));
  if (!*found) *out = (address){*t, LB_NO_BUFFER, 0};
  *found = true;
  return make ? make_room(p, joined, out) : LB_OK;
}

// Where v lies in a window of the caller's.
static lb_status find_window(lb_planner *p, const lb_value *v,
                             const lb_tensor *t, bool make, address *out,
                             bool *found) {
  uint32_t result;
  *out = (address){.buffer = LB_NO_BUFFER};
  LB_TRY(lb_planner_find_window(p, v, t, &out->tensor, found));
  if (!*found || !make) return LB_OK;
  LB_TRY(lb_planner_take_window(p, v, t, &result));
  return lb_planner_add_buffer(p, t, LB_STORAGE_OUTPUT, result, &out->buffer);
}

// Where v lies in the room of its home, or in a window; it is like t when it is
// dense.
static lb_status find_spot(lb_planner *p, const lb_value *v, const lb_tensor *t,
                           bool make, address *out, bool *found) {
  const lb_concat_dest *h = home_of(p, v);
  lb_tensor around;
  int64_t start;
  LB_TRY(find_window(p, v, t, make, out, found));
  if (*found || !h || !surround(p, h, t, &around, &start)) return LB_OK;
  LB_TRY(find_room(p, h->join->out[0], &around, make, out, found));
  int axis = axis_of(h->join, t->rank);
  out->tensor.dims[axis] = t->dims[axis];
  out->offset +=
      start * out->tensor.strides[axis] * (int64_t)lb_dtype_size(t->dtype);
  return LB_OK;
}

lb_status lb_planner_find_concat_slice(lb_planner *p, const lb_value *v,
                                       const lb_tensor *t, lb_tensor *out,
                                       bool *found) {
  address s;
  int last = t->rank - 1;
  LB_TRY(find_spot(p, v, t, false, &s, found));
  if (!*found) return LB_OK;
  *out = s.tensor;
  // A window may have gaps between columns; kernels for that are not there.
  *found = last < 0 || out->dims[last] == 1 || out->strides[last] == 1;
  return LB_OK;
}

lb_status lb_planner_bind_concat_slice(lb_planner *p, const lb_value *v,
                                       const lb_tensor *t) {
  address s;
  bool found;
  lb_tensor *jotted;
  LB_TRY(find_spot(p, v, t, true, &s, &found));
  assert(found);
  LB_TRY(lb_planner_copy_meta(p, &s.tensor, &jotted));
  return lb_planner_set(p, v, (lb_pvalue){jotted, s.buffer, v->id, s.offset});
}

// -- the Concat --------------------------------------------------------------

static bool lies_at(const lb_pvalue *s, const address *at) {
  if (s->buffer != at->buffer || s->offset != at->offset) return false;
  for (int i = 0; i < s->tensor->rank; i++)
    if (s->tensor->dims[i] != 1 &&
        s->tensor->strides[i] != at->tensor.strides[i])
      return false;
  return true;
}

static lb_status put_at(lb_planner *p, const lb_pvalue *from, const address *at,
                        uint32_t value) {
  lb_pvalue place = {&at->tensor, at->buffer, value, at->offset};
  lb_step_operand in, out;
  if (lb_tensor_count(from->tensor) == 0 || lies_at(from, at)) return LB_OK;
  LB_TRY(lb_planner_operand(p, from, &in));
  LB_TRY(lb_planner_operand(p, &place, &out));
  return lb_planner_copy(p, in, out);
}

lb_status lb_planner_concat(lb_planner *p, const lb_node *n,
                            const lb_pvalue *const *in, const lb_tensor *out,
                            bool *done) {
  const lb_value *joined = n->out[0];
  address at;
  LB_TRY(lb_planner_find_window(p, joined, out, &at.tensor, done));
  *done = *done || module_of(p, joined) || home_of(p, joined);
  if (*done) LB_TRY(find_room(p, joined, out, true, &at, done));
  if (!*done) return LB_OK;
  int axis = axis_of(n, out->rank);
  const lb_pvalue *room = module_of(p, joined);
  uint32_t first = p->plan->n_steps;
  lb_planner_note(p, n, LB_NODE_COPIED, LB_REASON_COPIED, joined->id);
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!in[i]) continue;
    at.tensor.dims[axis] = in[i]->tensor->dims[axis];
    LB_TRY(put_at(p, in[i], &at, joined->id));
    at.offset += at.tensor.dims[axis] * at.tensor.strides[axis] *
                 (int64_t)lb_dtype_size(out->dtype);
  }
  if (p->plan->n_steps == first)
    lb_planner_note(p, n, LB_NODE_IN_PLACE, LB_REASON_VIEW, joined->id);
  return lb_planner_set(p, joined, *room);
}
