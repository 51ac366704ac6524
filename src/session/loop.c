// session/loop.c -- Loop and Scan: the body is a region of its own, planned for
// what each turn brings.
//
// Carried values ping-pong between two sets of outputs: a turn reads one set
// and writes the other, and the memory of both stays for the next turns. Scan
// outputs are appended in place to buffers that double.
#include <inttypes.h>
#include <string.h>

#include "session/run.h"

typedef struct turns {  // one Loop or Scan being run
  lb_session *s;
  lb_context *c, *inner;
  const lb_step *step;
  const lb_region *body;
  const lb_tensor *in;   // of the step
  lb_tensor *args;       // of the body
  lb_output *sets[2];    // results of the body, per set
  uint32_t first_state;  // of the body's parameters and of the step's inputs
  uint32_t n_states;     // carried values
  uint32_t skip;         // body results before the states: Loop's condition
  uint32_t n_scans;      // results that are collected
} turns;

static lb_status fail(const turns *t, const char *what, int64_t turn) {
  char label[128];
  return lb_error(LB_INVALID, "%s: turn %" PRId64 ": %s",
                  lb_node_label(t->step->node, label, sizeof label), turn,
                  what);
}

static lb_status begin(turns *t) {
  const lb_node *n = t->step->node;
  uint32_t results = t->body->n_results;
  t->args = lb_arena_new(&t->c->scratch, lb_tensor, t->body->n_params);
  t->sets[0] = lb_arena_new(&t->c->scratch, lb_output, results);
  t->sets[1] = lb_arena_new(&t->c->scratch, lb_output, results);
  if (!t->args || !t->sets[0] || !t->sets[1]) return lb_oom();
  LB_TRY(lb_context_inner(t->c, &t->inner));
  t->inner->seed = t->c->seed;
  t->n_scans = results - t->skip - t->n_states;
  for (uint32_t i = 0; i < results; i++) {
    bool scan = i >= t->skip + t->n_states;
    bool wanted =
        !scan || t->step->out[i - t->skip].place == LB_STORAGE_DYNAMIC;
    t->sets[0][i].wanted = t->sets[1][i].wanted = wanted;
  }
  uint32_t at = t->body->n_params - n->n_captures;
  for (uint32_t i = 0; i < n->n_captures; i++)
    t->args[at + i] = t->in[n->n_in - n->n_captures + i];
  for (uint32_t i = 0; i < t->n_states; i++)
    t->args[t->first_state + i] = t->in[t->first_state + i];
  return LB_OK;
}

static void end(turns *t) {
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; t->sets[k] && i < t->body->n_results; i++) {
      t->c->budget->outputs -= t->sets[k][i].cap;
      lb_output_free(t->s, &t->sets[k][i]);
    }
  t->c->seed = t->inner ? t->inner->seed : t->c->seed;
}

static lb_status bounded_turn(turns *t, int64_t i, lb_output *out) {
  lb_run_limits *bound = t->c->bound;
  char label[128];
  lb_status st = lb_run_limits_exceeded(bound)
                     ? lb_run_limits_error(bound, "between two turns")
                     : lb_run_region(t->s, t->inner, t->body, t->args, out);
  if (!bound || !bound->found || !lb_failed(st)) return st;
  return lb_status_note(st, "%s: turn %" PRId64,
                        lb_node_label(t->step->node, label, sizeof label), i);
}

// One turn; results are in the returned set.
static lb_status turn(turns *t, int64_t i, lb_output **out) {
  *out = t->sets[i & 1];
  if (t->c->budget->turns++ >= t->s->options.loop_limit)
    return fail(t, "more turns than the session's loop_limit allows", i);
  LB_TRY(bounded_turn(t, i, *out));
  for (uint32_t k = 0; k < t->n_states; k++)
    t->args[t->first_state + k] = (*out)[t->skip + k].tensor;
  return LB_OK;
}

static lb_status give_states(turns *t) {
  for (uint32_t k = 0; k < t->n_states; k++) {
    const lb_step_operand *o = &t->step->out[k];
    const lb_tensor *from = &t->args[t->first_state + k];
    if (o->place != LB_STORAGE_DYNAMIC) continue;
    LB_TRY(lb_context_own(t->c, o->index, from, 0));
    lb_tensor_copy(from, &t->c->own[o->index].tensor);
  }
  return LB_OK;
}

// What a collected output looks like when there was no turn at all: the body's
// declared dims where they are numbers, else 0.
static lb_status give_empty(turns *t, uint32_t k, int64_t axis) {
  const lb_step_operand *o = &t->step->out[t->n_states + k];
  const lb_vinfo *info = &t->body->results[t->skip + t->n_states + k]->info;
  lb_tensor e = {.dtype = info->dtype, .rank = 1};
  if (o->place != LB_STORAGE_DYNAMIC) return LB_OK;
  if (info->rank >= 0 && info->rank < LB_MAX_RANK) {
    e.rank = info->rank + 1;
    if (axis < 0) axis += e.rank;
    for (int i = 0, d = 0; i < e.rank; i++) {
      if (i == axis) continue;
      e.dims[i] = lb_dim_is_const(info->dims[d]) ? info->dims[d].k : 0;
      d++;
    }
  }
  return lb_context_own(t->c, o->index, &e, 0);
}

// -- Loop --------------------------------------------------------------------

static lb_status append(turns *t, uint32_t k, const lb_tensor *row,
                        int64_t turn_no) {
  const lb_step_operand *o = &t->step->out[t->n_states + k];
  if (o->place != LB_STORAGE_DYNAMIC) return LB_OK;
  lb_dynamic_buffer *own = &t->c->own[o->index];
  if (row->rank == LB_MAX_RANK) return fail(t, "rank too high", turn_no);
  lb_tensor all = {.dtype = row->dtype, .rank = row->rank + 1};
  all.dims[0] = turn_no + 1;
  memcpy(all.dims + 1, row->dims, (size_t)row->rank * sizeof *row->dims);
  bool same = turn_no == 0 || (own->tensor.rank == all.rank &&
                               !memcmp(own->tensor.dims + 1, row->dims,
                                       (size_t)row->rank * sizeof *row->dims));
  if (!same) return fail(t, "a scan output changed its shape", turn_no);
  int64_t count;
  LB_TRY(lb_dims_count(all.rank, all.dims, &count));
  size_t size = lb_tensor_bytes(row);
  LB_TRY(lb_context_own(t->c, o->index, &all, turn_no ? own->cap : 0));
  if (size)
    memcpy((char *)own->tensor.data + (size_t)turn_no * size, row->data, size);
  return LB_OK;
}

static lb_status read_bool(const turns *t, const lb_tensor *x, int64_t turn_no,
                           bool *out) {
  if (x->dtype != LB_BOOL || lb_tensor_count(x) != 1)
    return fail(t, "the condition is not one bool", turn_no);
  *out = *(const uint8_t *)x->data != 0;
  return LB_OK;
}

static lb_status read_trips(const turns *t, int64_t *out) {
  const lb_tensor *m = &t->in[0];
  *out = INT64_MAX;
  if (m->dtype == LB_NONE) return LB_OK;
  if (m->dtype != LB_I64 || lb_tensor_count(m) != 1)
    return fail(t, "the trip count is not one int64", 0);
  memcpy(out, m->data, sizeof *out);
  return LB_OK;
}

static lb_status loop_turns(turns *t) {
  int64_t trips, i = 0;
  bool go = true;
  uint8_t cond = 1;
  LB_TRY(read_trips(t, &trips));
  if (t->in[1].dtype != LB_NONE) LB_TRY(read_bool(t, &t->in[1], 0, &go));
  t->args[0] = (lb_tensor){.dtype = LB_I64, .data = &i};
  t->args[1] = (lb_tensor){.dtype = LB_BOOL, .data = &cond};
  for (; go && i < trips; i++) {
    lb_output *r;
    LB_TRY(turn(t, i, &r));
    LB_TRY(read_bool(t, &r[0].tensor, i, &go));
    for (uint32_t k = 0; k < t->n_scans; k++)
      LB_TRY(append(t, k, &r[1 + t->n_states + k].tensor, i));
  }
  for (uint32_t k = 0; i == 0 && k < t->n_scans; k++)
    LB_TRY(give_empty(t, k, 0));
  return give_states(t);
}

// -- Scan --------------------------------------------------------------------

typedef struct sweep {  // how one scanned input or output is walked
  int axis;
  bool reversed;
} sweep;

static lb_status sweep_of(const turns *t, const char *axes, const char *dirs,
                          uint32_t i, int rank, sweep *out) {
  uint32_t n_axes, n_dirs;
  const int64_t *a = lb_attr_ints(t->step->node, axes, &n_axes);
  const int64_t *d = lb_attr_ints(t->step->node, dirs, &n_dirs);
  int64_t axis = i < n_axes ? a[i] : 0;
  if (axis < -rank || axis >= rank) return fail(t, "axis out of range", 0);
  out->axis = (int)(axis < 0 ? axis + rank : axis);
  out->reversed = i < n_dirs && d[i] != 0;
  return LB_OK;
}

// The slice of `whole` at position i of its axis: a strided view.
static lb_tensor slice_at(const lb_tensor *whole, sweep w, int64_t i) {
  lb_tensor v = {.dtype = whole->dtype, .rank = whole->rank - 1};
  int64_t at = w.reversed ? whole->dims[w.axis] - 1 - i : i;
  for (int k = 0, d = 0; k < whole->rank; k++) {
    if (k == w.axis) continue;
    v.dims[d] = whole->dims[k];
    v.strides[d++] = whole->strides[k];
  }
  v.data = (char *)whole->data +
           at * whole->strides[w.axis] * (int64_t)lb_dtype_size(v.dtype);
  return v;
}

static lb_status take_slice(turns *t, uint32_t k, int64_t i) {
  const lb_tensor *whole = &t->in[t->n_states + k];
  lb_tensor *arg = &t->args[t->n_states + k];
  sweep w;
  LB_TRY(sweep_of(t, "scan_input_axes", "scan_input_directions", k, whole->rank,
                  &w));
  lb_tensor view = slice_at(whole, w, i);
  if (lb_tensor_is_dense(&view)) {
    *arg = view;
    return LB_OK;
  }
  void *data = arg->data;  // the copy of the turn before has the same size
  *arg = view;
  lb_tensor_dense(arg);
  arg->data =
      i ? data : lb_arena_alloc(&t->c->scratch, lb_tensor_bytes(arg), 64);
  if (!arg->data) return lb_oom();
  lb_tensor_copy(&view, arg);
  return LB_OK;
}

static lb_status put_slice(turns *t, uint32_t k, const lb_tensor *row,
                           int64_t i, int64_t length) {
  const lb_step_operand *o = &t->step->out[t->n_states + k];
  sweep w;
  if (o->place != LB_STORAGE_DYNAMIC) return LB_OK;
  if (row->rank == LB_MAX_RANK) return fail(t, "rank too high", i);
  LB_TRY(sweep_of(t, "scan_output_axes", "scan_output_directions", k,
                  row->rank + 1, &w));
  lb_tensor all = {.dtype = row->dtype, .rank = row->rank + 1};
  for (int d = 0, r = 0; d < all.rank; d++)
    all.dims[d] = d == w.axis ? length : row->dims[r++];
  lb_dynamic_buffer *own = &t->c->own[o->index];
  if (i == 0) {
    int64_t count;
    LB_TRY(lb_dims_count(all.rank, all.dims, &count));
    LB_TRY(lb_context_own(t->c, o->index, &all, 0));
  } else if (own->tensor.rank != all.rank ||
             memcmp(own->tensor.dims, all.dims,
                    (size_t)all.rank * sizeof *all.dims)) {
    return fail(t, "a scan output changed its shape", i);
  }
  lb_tensor view = slice_at(&own->tensor, w, i);
  lb_tensor_copy(row, &view);
  return LB_OK;
}

// All scanned inputs must be equally long.
static lb_status scan_length(const turns *t, uint32_t n_scanned, int64_t *out) {
  *out = 0;
  for (uint32_t k = 0; k < n_scanned; k++) {
    const lb_tensor *x = &t->in[t->n_states + k];
    sweep w;
    if (x->rank == 0) return fail(t, "a scanned input is a scalar", 0);
    LB_TRY(sweep_of(t, "scan_input_axes", "scan_input_directions", k, x->rank,
                    &w));
    if (k && x->dims[w.axis] != *out)
      return fail(t, "scanned inputs differ in length", 0);
    *out = x->dims[w.axis];
  }
  return LB_OK;
}

static lb_status scan_turns(turns *t) {
  const lb_node *n = t->step->node;
  uint32_t n_scanned = n->n_in - n->n_captures - t->n_states;
  int64_t length;
  LB_TRY(scan_length(t, n_scanned, &length));
  for (int64_t i = 0; i < length; i++) {
    lb_output *r;
    for (uint32_t k = 0; k < n_scanned; k++) LB_TRY(take_slice(t, k, i));
    LB_TRY(turn(t, i, &r));
    for (uint32_t k = 0; k < t->n_scans; k++)
      LB_TRY(put_slice(t, k, &r[t->n_states + k].tensor, i, length));
  }
  uint32_t n_axes;
  const int64_t *axes = lb_attr_ints(n, "scan_output_axes", &n_axes);
  for (uint32_t k = 0; length == 0 && k < t->n_scans; k++)
    LB_TRY(give_empty(t, k, k < n_axes ? axes[k] : 0));
  return give_states(t);
}

lb_status lb_run_loop(lb_session *s, lb_context *c, const lb_step *step,
                      const lb_tensor *in) {
  const lb_node *n = step->node;
  bool loop = n->op == LB_OP_Loop;
  turns t = {.s = s, .c = c, .step = step, .body = n->regions[0], .in = in};
  t.skip = loop ? 1 : 0;
  t.first_state = loop ? 2 : 0;
  t.n_states = n->n_in - n->n_captures -
               (loop ? 2 : (uint32_t)lb_attr_int(n, "num_scan_inputs", 0));
  if (c->budget == &c->own_budget) c->budget->turns = 0;  // the outermost
  lb_status st = begin(&t);
  if (!lb_failed(st)) st = loop ? loop_turns(&t) : scan_turns(&t);
  end(&t);
  return st;
}
