// api/run.c -- matches the caller's tensors with the model's inputs and
// outputs, and runs or plans the model.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api/describe.h"
#include "api/error.h"
#include "api/options.h"
#include "api/session.h"

#define SMALL 4096  // a request up to this many bytes needs no allocation

// One request: a tensor for each input and each output of the model.
typedef struct request {
  _Alignas(max_align_t) char small[SMALL];
  limber_session *s;
  lb_tensor *in;           // dtype LB_NONE: not given yet
  lb_output *out;          // one allocation with `in`
  uint32_t *output_index;  // for each requested tensor: the model's output
  bool planning;           // inputs need no data
} request;

static lb_status request_init(request *q, limber_session *s, size_t n_out) {
  size_t in = s->inputs.n * sizeof *q->in;
  size_t out = s->outputs.n * sizeof *q->out;
  q->s = s;
  q->in = NULL;
  q->planning = false;
  if (n_out > s->outputs.n)
    return lb_error(LB_INVALID, "the model has %zu outputs, %zu were requested",
                    s->outputs.n, n_out);
  size_t size = in + out + n_out * sizeof *q->output_index;
  char *memory = size <= SMALL ? q->small : malloc(size);
  if (!memory) return lb_oom();
  memset(memory, 0, size);
  q->in = (lb_tensor *)(void *)memory;
  q->out = (lb_output *)(void *)(memory + in);
  q->output_index = (uint32_t *)(void *)(memory + in + out);
  return LB_OK;
}

static void request_fini(request *q) {
  if ((char *)q->in != q->small) free(q->in);
}

// -- finding the port --------------------------------------------------------

static lb_status unknown_port(const lb_ports *ports, const char *what,
                              const char *name) {
  lb_strbuf names = {0};
  lb_describe_names(ports->infos, ports->n, &names);
  lb_status st =
      ports->n
          ? lb_error(LB_INVALID, "the model has no %s '%s'; its %ss are %s",
                     what, name, what, lb_strbuf_str(&names))
          : lb_error(LB_INVALID, "the model has no %s '%s'; it has none", what,
                     name);
  lb_strbuf_fini(&names);
  return st;
}

// `what` is "input" or "output"; `i` is the tensor's position in the call.
static lb_status find_port(const lb_ports *ports, const char *what,
                           const char *name, size_t i, size_t *out) {
  *out = i;
  if (!name && i < ports->n) return LB_OK;
  if (!name)
    return lb_error(LB_INVALID,
                    "%s %zu was given by position, but the model has only %zu",
                    what, i, ports->n);
  const limber_value_info *port = lb_map_gets(&ports->by_name, name);
  if (!port) return unknown_port(ports, what, name);
  *out = (size_t)(port - ports->infos);
  return LB_OK;
}

// -- inputs ------------------------------------------------------------------

static lb_status check_data(const limber_tensor *t, const lb_tensor *in,
                            bool planning) {
  size_t need, before;
  LB_TRY(lb_tensor_reach(in, &need, &before));
  if (planning && !t->data) return LB_OK;
  if (need && !t->data)
    return lb_error(LB_INVALID, "data is NULL, but its dims need %zu bytes",
                    need);
  char dims[160], strides[300];
  need -= before;  // `bytes` counts from `data`
  if (t->bytes && t->bytes < need)
    return lb_error(LB_INVALID, "%s%s%s%s needs %zu bytes, data has %zu",
                    lb_dtype_name(in->dtype),
                    lb_dims_print(in->rank, in->dims, dims, sizeof dims),
                    t->strides ? " with strides " : "",
                    t->strides ? lb_dims_print(in->rank, in->strides, strides,
                                               sizeof strides)
                               : "",
                    need, t->bytes);
  return LB_OK;
}

lb_status lb_api_check(const limber_tensor *t) {
  for (size_t i = 0; i < sizeof t->reserved / sizeof *t->reserved; i++)
    if (t->reserved[i])
      return lb_error(LB_INVALID,
                      "limber_tensor: reserved[%zu] is not 0: begin with "
                      "limber_tensor t = {0}",
                      i);
  return LB_OK;
}

// Normalises the strides of axes with one element: a dense tensor gets dense
// strides, so that one plan serves all of them.
static void take_strides(const limber_tensor *t, lb_tensor *in) {
  if (t->strides)
    memcpy(in->strides, t->strides, (size_t)t->rank * sizeof *t->strides);
  if (!t->strides || lb_tensor_is_dense(in)) {
    lb_tensor_dense(in);
    return;
  }
  for (int i = 0; i < in->rank; i++)
    if (in->dims[i] == 1) in->strides[i] = 0;
}

lb_status lb_api_read_input(const limber_tensor *t, bool planning,
                            lb_tensor *out) {
  if (t->dtype <= LIMBER_NONE || (int)t->dtype >= (int)LB_DTYPE_COUNT)
    return lb_error(LB_INVALID, "%d is not a dtype", (int)t->dtype);
  if (t->rank < 0 || t->rank > LB_MAX_RANK)
    return lb_error(LB_INVALID, "rank %d is not in 0 to %d", t->rank,
                    LB_MAX_RANK);
  lb_tensor in = {
      .dtype = (lb_dtype)t->dtype, .rank = t->rank, .data = t->data};
  int64_t count;
  LB_TRY(lb_api_check(t));
  memcpy(in.dims, t->dims, (size_t)t->rank * sizeof *t->dims);
  LB_TRY(lb_dims_count(in.rank, in.dims, &count));
  take_strides(t, &in);
  LB_TRY(check_data(t, &in, planning));
  static max_align_t nothing;  // the address of an input without elements
  if (!in.data && !planning) in.data = &nothing;
  *out = in;
  return LB_OK;
}

static lb_status take_input(request *q, const limber_tensor *t, size_t i) {
  const lb_ports *ports = &q->s->inputs;
  size_t k;
  LB_TRY(find_port(ports, "input", t->name, i, &k));
  const char *name = ports->infos[k].name;
  if (q->in[k].dtype)
    return lb_error(LB_INVALID, "input '%s' was given twice", name);
  lb_status st = lb_api_read_input(t, q->planning, &q->in[k]);
  return lb_failed(st) ? lb_status_note(st, "input '%s'", name) : st;
}

static lb_status missing_input(const limber_value_info *port) {
  lb_strbuf type = {0};
  lb_describe_type(port, &type);
  lb_status st = lb_error(LB_INVALID, "missing input '%s' (%s)", port->name,
                          lb_strbuf_str(&type));
  lb_strbuf_fini(&type);
  return st;
}

static lb_status take_inputs(request *q, const limber_tensor *inputs,
                             size_t n) {
  const lb_ports *ports = &q->s->inputs;
  for (size_t i = 0; i < n; i++) LB_TRY(take_input(q, &inputs[i], i));
  for (size_t i = 0; i < ports->n; i++)
    if (!q->in[i].dtype) return missing_input(&ports->infos[i]);
  return LB_OK;
}

// -- outputs -----------------------------------------------------------------

// A model may list an output name several times: each request for the name
// takes the next one. Returns `k` again if none is left.
static size_t next_of_name(const request *q, size_t k) {
  const lb_ports *ports = &q->s->outputs;
  for (size_t i = 0; i < ports->n && q->out[k].wanted; i++)
    if (!q->out[i].wanted &&
        strcmp(ports->infos[i].name, ports->infos[k].name) == 0)
      k = i;
  return k;
}

lb_status lb_api_read_output(const limber_tensor *t, lb_output *out) {
  *out = (lb_output){.wanted = true, .data = t->data};
  LB_TRY(lb_api_check(t));
  if (t->data) out->cap = t->bytes;
  if (!t->strides) return LB_OK;
  if (!t->data)
    return lb_error(LB_INVALID,
                    "strides without data: memory that Limber allocates is "
                    "dense");
  if (t->rank < 0 || t->rank > LB_MAX_RANK)
    return lb_error(LB_INVALID, "rank %d is not in 0 to %d", t->rank,
                    LB_MAX_RANK);
  out->rank = t->rank;
  out->strides = t->strides;
  return LB_OK;
}

static lb_status take_outputs(request *q, const limber_tensor *outputs,
                              size_t n) {
  const lb_ports *ports = &q->s->outputs;
  for (size_t i = 0; i < n; i++) {
    size_t k;
    LB_TRY(find_port(ports, "output", outputs[i].name, i, &k));
    if (outputs[i].name) k = next_of_name(q, k);
    if (q->out[k].wanted)
      return lb_error(LB_INVALID, "output '%s' was requested twice",
                      ports->infos[k].name);
    q->output_index[i] = (uint32_t)k;
    lb_status st = lb_api_read_output(&outputs[i], &q->out[k]);
    if (lb_failed(st))
      return lb_status_note(st, "output '%s'", ports->infos[k].name);
  }
  return LB_OK;
}

void lb_api_write_output(limber_runtime *runtime, const lb_output *from,
                         limber_tensor *to) {
  to->dtype = (limber_dtype)from->tensor.dtype;
  to->rank = from->tensor.rank;
  memcpy(to->dims, from->tensor.dims, (size_t)to->rank * sizeof *to->dims);
  to->data = from->data;
  to->bytes = lb_tensor_bytes(&from->tensor);
  size_t before;  // its strides were validated before the run wrote to it
  if (from->strides)
    lb_status_drop(lb_tensor_reach(&from->tensor, &to->bytes, &before));
  // Memory that Limber allocated in an earlier run keeps its owner.
  if (from->owned) to->owner = runtime;
}

static void give_outputs(const request *q, limber_tensor *outputs, size_t n) {
  for (size_t i = 0; i < n; i++)
    lb_api_write_output(q->s->runtime, &q->out[q->output_index[i]],
                        &outputs[i]);
}

lb_status lb_api_run(limber_session *s, const limber_tensor *inputs,
                     size_t n_inputs, limber_tensor *outputs, size_t n_outputs,
                     const lb_run_how *how) {
  request q;
  lb_status st = request_init(&q, s, n_outputs);
  if (lb_failed(st)) return st;
  st = take_inputs(&q, inputs, n_inputs);
  if (lb_failed(st)) goto done;
  st = take_outputs(&q, outputs, n_outputs);
  if (lb_failed(st)) goto done;
  st = lb_session_run_with(s->session, q.in, q.out, how);
  if (lb_failed(st)) goto done;
  give_outputs(&q, outputs, n_outputs);
  lb_declared_check_run(s, q.out);

done:
  request_fini(&q);
  return st;
}

limber_status limber_session_run(limber_session *session,
                                 const limber_tensor *inputs, size_t n_inputs,
                                 limber_tensor *outputs, size_t n_outputs,
                                 const limber_run_options *options) {
  lb_run_how how;
  lb_run_limits limits;
  lb_status st = lb_run_options_read(options, &limits, &how);
  if (!lb_failed(st))
    st = lb_api_run(session, inputs, n_inputs, outputs, n_outputs, &how);
  return lb_report(st, &session->runtime->log);
}

uint64_t limber_session_trim(limber_session *session) {
  return lb_session_trim(session->session);
}

// -- planning ----------------------------------------------------------------

static lb_status take_names(request *q, const limber_signature *what) {
  for (size_t i = 0; i < what->n_outputs; i++) {
    limber_tensor t = {.name = what->outputs[i]};
    LB_TRY(take_outputs(q, &t, 1));
  }
  return LB_OK;
}

lb_status lb_api_plan(limber_session *s, const limber_signature *what,
                      limber_plan_info *out) {
  request q;
  lb_plan_counts n = {0};
  LB_TRY(request_init(&q, s, what->outputs ? what->n_outputs : 0));
  q.planning = true;
  lb_status st = take_inputs(&q, what->inputs, what->n_inputs);
  if (!lb_failed(st) && what->outputs) st = take_names(&q, what);
  if (!lb_failed(st))
    st = lb_session_plan(s->session, q.in, what->outputs ? q.out : NULL, &n);
  request_fini(&q);
  if (lb_failed(st) || !out) return st;
  limber_plan_info info = {
      .steps = n.steps, .kernels = n.launches, .nodes_left = n.left};
  return lb_options_write("limber_plan_info", &info, sizeof info, out);
}

limber_status limber_session_plan(limber_session *session,
                                  const limber_tensor *inputs, size_t n_inputs,
                                  limber_plan_info *out) {
  limber_signature what = {.inputs = inputs, .n_inputs = n_inputs};
  return lb_report(lb_api_plan(session, &what, out), &session->runtime->log);
}

void limber_tensor_free(limber_tensor *tensor) {
  if (!tensor || !tensor->owner) return;
  lb_alloc_put(&tensor->owner->alloc, tensor->data);
  tensor->data = NULL;
  tensor->owner = NULL;
  tensor->bytes = 0;
}
