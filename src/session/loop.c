// session/loop.c -- Loop and Scan: the body is a region of its own, planned for
// the shapes of each iteration.
//
// Carried values ping-pong between two sets of outputs: an iteration reads one
// set and writes the other, and the memory of both is reused by later
// iterations. Scan outputs are appended in place to buffers that double in
// size.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "session/run.h"

typedef struct loop_state {  // a Loop or Scan in progress
  lb_session *s;
  lb_context *c, *inner;
  const lb_step *step;
  const lb_region *body;
  const lb_tensor *in;   // of the step
  lb_tensor *args;       // of the body
  lb_output *sets[2];    // results of the body, per set
  uint32_t first_state;  // among the body's parameters and the step's inputs
  uint32_t n_states;     // carried values
  uint32_t skip;         // body results before the states: the Loop condition
  uint32_t n_scans;      // scan outputs
} loop_state;

static lb_status fail(const loop_state *t, const char *what,
                      int64_t iteration) {
  char label[128];
  return lb_error(LB_INVALID, "%s: iteration %" PRId64 ": %s",
                  lb_node_label(t->step->node, label, sizeof label), iteration,
                  what);
}

static lb_status begin(loop_state *t) {
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
        !scan || t->step->out[i - t->skip].storage == LB_STORAGE_DYNAMIC;
    t->sets[0][i].wanted = t->sets[1][i].wanted = wanted;
  }
  uint32_t at = t->body->n_params - n->n_captures;
  for (uint32_t i = 0; i < n->n_captures; i++)
    t->args[at + i] = t->in[n->n_in - n->n_captures + i];
  for (uint32_t i = 0; i < t->n_states; i++)
    t->args[t->first_state + i] = t->in[t->first_state + i];
  return LB_OK;
}

static void end(loop_state *t) {
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; t->sets[k] && i < t->body->n_results; i++) {
      t->c->budget->outputs -= t->sets[k][i].cap;
      lb_output_free(t->s, &t->sets[k][i]);
    }
  t->c->seed = t->inner ? t->inner->seed : t->c->seed;
}

static lb_status run_body(loop_state *t, int64_t i, lb_output *out) {
  lb_run_limits *limits = t->c->limits;
  char label[128];
  lb_status st = lb_run_limits_exceeded(limits)
                     ? lb_run_limits_error(limits, "between two iterations")
                     : lb_run_region(t->s, t->inner, t->body, t->args, out);
  if (!limits || !limits->found || !lb_failed(st)) return st;
  return lb_status_note(st, "%s: iteration %" PRId64,
                        lb_node_label(t->step->node, label, sizeof label), i);
}

// Runs one iteration; its results are in *out, one of the two sets.
static lb_status iterate(loop_state *t, int64_t i, lb_output **out) {
  *out = t->sets[i & 1];
  if (t->c->budget->iterations++ >= t->s->options.loop_limit) {
    char what[128];
    snprintf(what, sizeof what,
             "loop_limit (%" PRId64
             ", nested loops included) reached; raise "
             "it in the session options",
             t->s->options.loop_limit);
    return fail(t, what, i);
  }
  LB_TRY(run_body(t, i, *out));
  for (uint32_t k = 0; k < t->n_states; k++)
    t->args[t->first_state + k] = (*out)[t->skip + k].tensor;
  return LB_OK;
}

static lb_status write_states(loop_state *t) {
  for (uint32_t k = 0; k < t->n_states; k++) {
    const lb_step_operand *o = &t->step->out[k];
    const lb_tensor *from = &t->args[t->first_state + k];
    if (o->storage != LB_STORAGE_DYNAMIC) continue;
    LB_TRY(lb_context_resize_buffer(t->c, o->index, from, 0));
    lb_tensor_copy(from, &t->c->buffers[o->index].tensor);
  }
  return LB_OK;
}

// A scan output after zero iterations: the body's declared dims where they are
// constant, else 0.
static lb_status write_empty(loop_state *t, uint32_t k, int64_t axis) {
  const lb_step_operand *o = &t->step->out[t->n_states + k];
  const lb_vinfo *info = &t->body->results[t->skip + t->n_states + k]->info;
  lb_tensor e = {.dtype = info->dtype, .rank = 1};
  if (o->storage != LB_STORAGE_DYNAMIC) return LB_OK;
  if (info->rank >= 0 && info->rank < LB_MAX_RANK) {
    e.rank = info->rank + 1;
    if (axis < 0) axis += e.rank;
    for (int i = 0, d = 0; i < e.rank; i++) {
      if (i == axis) continue;
      e.dims[i] = lb_dim_is_const(info->dims[d]) ? info->dims[d].k : 0;
      d++;
    }
  }
  return lb_context_resize_buffer(t->c, o->index, &e, 0);
}

// -- Loop --------------------------------------------------------------------

static lb_status append(loop_state *t, uint32_t k, const lb_tensor *row,
                        int64_t iteration) {
  const lb_step_operand *o = &t->step->out[t->n_states + k];
  if (o->storage != LB_STORAGE_DYNAMIC) return LB_OK;
  lb_dynamic_buffer *buffer = &t->c->buffers[o->index];
  if (row->rank == LB_MAX_RANK)
    return fail(t, "the rank of a scan output is too high", iteration);
  lb_tensor all = {.dtype = row->dtype, .rank = row->rank + 1};
  all.dims[0] = iteration + 1;
  memcpy(all.dims + 1, row->dims, (size_t)row->rank * sizeof *row->dims);
  bool same =
      iteration == 0 || (buffer->tensor.rank == all.rank &&
                         !memcmp(buffer->tensor.dims + 1, row->dims,
                                 (size_t)row->rank * sizeof *row->dims));
  if (!same) return fail(t, "a scan output changed its shape", iteration);
  int64_t count;
  LB_TRY(lb_dims_count(all.rank, all.dims, &count));
  size_t size = lb_tensor_bytes(row);
  LB_TRY(lb_context_resize_buffer(t->c, o->index, &all,
                                  iteration ? buffer->cap : 0));
  if (size)
    memcpy((char *)buffer->tensor.data + (size_t)iteration * size, row->data,
           size);
  return LB_OK;
}

static lb_status read_bool(const loop_state *t, const lb_tensor *x,
                           int64_t iteration, bool *out) {
  if (x->dtype != LB_BOOL || lb_tensor_count(x) != 1)
    return fail(t, "the condition is not one bool", iteration);
  *out = *(const uint8_t *)x->data != 0;
  return LB_OK;
}

static lb_status read_trips(const loop_state *t, int64_t *out) {
  const lb_tensor *m = &t->in[0];
  *out = INT64_MAX;
  if (m->dtype == LB_NONE) return LB_OK;
  if (m->dtype != LB_I64 || lb_tensor_count(m) != 1)
    return fail(t, "the trip count is not one int64", 0);
  memcpy(out, m->data, sizeof *out);
  return LB_OK;
}

static lb_status run_loop(loop_state *t) {
  int64_t trips, i = 0;
  bool go = true;
  uint8_t cond = 1;
  LB_TRY(read_trips(t, &trips));
  if (t->in[1].dtype != LB_NONE) LB_TRY(read_bool(t, &t->in[1], 0, &go));
  t->args[0] = (lb_tensor){.dtype = LB_I64, .data = &i};
  t->args[1] = (lb_tensor){.dtype = LB_BOOL, .data = &cond};
  for (; go && i < trips; i++) {
    lb_output *r;
    LB_TRY(iterate(t, i, &r));
    LB_TRY(read_bool(t, &r[0].tensor, i, &go));
    for (uint32_t k = 0; k < t->n_scans; k++)
      LB_TRY(append(t, k, &r[1 + t->n_states + k].tensor, i));
  }
  for (uint32_t k = 0; i == 0 && k < t->n_scans; k++)
    LB_TRY(write_empty(t, k, 0));
  return write_states(t);
}

// -- Scan --------------------------------------------------------------------

typedef struct scan_axis {  // how a scan input or output is traversed
  int axis;
  bool reversed;
} scan_axis;

static lb_status scan_axis_of(const loop_state *t, const char *axes,
                              const char *dirs, uint32_t i, int rank,
                              scan_axis *out) {
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
static lb_tensor slice_at(const lb_tensor *whole, scan_axis w, int64_t i) {
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

static lb_status take_slice(loop_state *t, uint32_t k, int64_t i) {
  const lb_tensor *whole = &t->in[t->n_states + k];
  lb_tensor *arg = &t->args[t->n_states + k];
  scan_axis w;
  LB_TRY(scan_axis_of(t, "scan_input_axes", "scan_input_directions", k,
                      whole->rank, &w));
  lb_tensor view = slice_at(whole, w, i);
  if (lb_tensor_is_dense(&view)) {
    *arg = view;
    return LB_OK;
  }
  void *data =
      arg->data;  // the copy of the previous iteration has the same size
  *arg = view;
  lb_tensor_dense(arg);
  arg->data =
      i ? data : lb_arena_alloc(&t->c->scratch, lb_tensor_bytes(arg), 64);
  if (!arg->data) return lb_oom();
  lb_tensor_copy(&view, arg);
  return LB_OK;
}

static lb_status put_slice(loop_state *t, uint32_t k, const lb_tensor *row,
                           int64_t i, int64_t length) {
  const lb_step_operand *o = &t->step->out[t->n_states + k];
  scan_axis w;
  if (o->storage != LB_STORAGE_DYNAMIC) return LB_OK;
  if (row->rank == LB_MAX_RANK)
    return fail(t, "the rank of a scan output is too high", i);
  LB_TRY(scan_axis_of(t, "scan_output_axes", "scan_output_directions", k,
                      row->rank + 1, &w));
  lb_tensor all = {.dtype = row->dtype, .rank = row->rank + 1};
  for (int d = 0, r = 0; d < all.rank; d++)
    all.dims[d] = d == w.axis ? length : row->dims[r++];
  lb_dynamic_buffer *buffer = &t->c->buffers[o->index];
  if (i == 0) {
    int64_t count;
    LB_TRY(lb_dims_count(all.rank, all.dims, &count));
    LB_TRY(lb_context_resize_buffer(t->c, o->index, &all, 0));
  } else if (buffer->tensor.rank != all.rank ||
             memcmp(buffer->tensor.dims, all.dims,
                    (size_t)all.rank * sizeof *all.dims)) {
    return fail(t, "a scan output changed its shape", i);
  }
  lb_tensor view = slice_at(&buffer->tensor, w, i);
  lb_tensor_copy(row, &view);
  return LB_OK;
}

// All scan inputs must have the same length.
static lb_status scan_length(const loop_state *t, uint32_t n_scanned,
                             int64_t *out) {
  *out = 0;
  for (uint32_t k = 0; k < n_scanned; k++) {
    const lb_tensor *x = &t->in[t->n_states + k];
    scan_axis w;
    if (x->rank == 0) return fail(t, "a scanned input is a scalar", 0);
    LB_TRY(scan_axis_of(t, "scan_input_axes", "scan_input_directions", k,
                        x->rank, &w));
    if (k && x->dims[w.axis] != *out)
      return fail(t, "scanned inputs differ in length", 0);
    *out = x->dims[w.axis];
  }
  return LB_OK;
}

static lb_status run_scan(loop_state *t) {
  const lb_node *n = t->step->node;
  uint32_t n_scanned = n->n_in - n->n_captures - t->n_states;
  int64_t length;
  LB_TRY(scan_length(t, n_scanned, &length));
  for (int64_t i = 0; i < length; i++) {
    lb_output *r;
    for (uint32_t k = 0; k < n_scanned; k++) LB_TRY(take_slice(t, k, i));
    LB_TRY(iterate(t, i, &r));
    for (uint32_t k = 0; k < t->n_scans; k++)
      LB_TRY(put_slice(t, k, &r[t->n_states + k].tensor, i, length));
  }
  uint32_t n_axes;
  const int64_t *axes = lb_attr_ints(n, "scan_output_axes", &n_axes);
  for (uint32_t k = 0; length == 0 && k < t->n_scans; k++)
    LB_TRY(write_empty(t, k, k < n_axes ? axes[k] : 0));
  return write_states(t);
}

lb_status lb_run_loop(lb_session *s, lb_context *c, const lb_step *step,
                      const lb_tensor *in) {
  const lb_node *n = step->node;
  bool loop = n->op == LB_OP_Loop;
  loop_state t = {
      .s = s, .c = c, .step = step, .body = n->regions[0], .in = in};
  t.skip = loop ? 1 : 0;
  t.first_state = loop ? 2 : 0;
  t.n_states = n->n_in - n->n_captures -
               (loop ? 2 : (uint32_t)lb_attr_int(n, "num_scan_inputs", 0));
  if (c->budget == &c->own_budget)
    c->budget->iterations = 0;  // the outermost loop
  lb_status st = begin(&t);
  if (!lb_failed(st)) st = loop ? run_loop(&t) : run_scan(&t);
  end(&t);
  return st;
}
