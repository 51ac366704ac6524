// plan/recurrent.c -- a recurrence (LSTM, GRU, RNN) as a sequence of launches.
//
// The states are initialised by copies of the initial states, so that every
// time step reads and writes the state at the same address.
#include <limits.h>
#include <string.h>

#include "partition/recurrent.h"
#include "plan/planner.h"
#include "plan/variants.h"

// The weights of a direction stay in L2 from one time step to the next. Time
// steps shorter than STEP_SERIAL_NS run on one thread.
#define CACHE_BYTES_PER_NS 64.0
#define FLOPS_PER_NS 70.0
#define STEP_SERIAL_NS 8000
// Min duration of a direction that gets its own thread.
#define DIRECTION_NS 5000

enum { BIAS = 3, MASK, H0, C0 };  // inputs

_Static_assert(LB_RNN_KERNELS <= LB_MAX_SEQUENCE, "one sequence runs them");

typedef struct series {
  lb_planner *p;
  const lb_partition *part;
  lb_step call;  // of the reference kernel
  lb_rshape shape;
  lb_step_operand at[LB_RMEMS];
  lb_step_operand temps[LB_RMEMS];
  int n_temps;
  lb_launch_template templates[LB_RNN_KERNELS];
  int n;
  lb_rnn_kernel kernels[LB_RNN_KERNELS];  // n of them
} series;

// -- memory ------------------------------------------------------------------

static lb_status add_temp(series *s, lb_rmem mem, const lb_tensor *t) {
  LB_TRY(lb_planner_temp(s->p, t, &s->at[mem]));
  s->temps[s->n_temps++] = s->at[mem];
  return LB_OK;
}

static bool is_given(const series *s, uint32_t input) {
  return input < s->call.n_in && s->call.in[input].tensor->dtype != LB_NONE;
}

static lb_step_operand *output(const series *s, uint32_t i) {
  if (i >= s->call.n_out || s->call.out[i].tensor->dtype == LB_NONE)
    return NULL;
  return &s->call.out[i];
}

static int64_t batch_of(const series *s) {
  bool first = lb_attr_int(s->part->nodes[0], "layout", 0) != 0;
  return s->call.in[0].tensor->dims[!first];
}

static int64_t hidden_of(const series *s) {
  return lb_value_const(s->part->nodes[0]->in[2])->dims[2];
}

static lb_tensor dense(const series *s, int rank, const int64_t *dims) {
  lb_tensor t = {.dtype = s->call.in[0].tensor->dtype, .rank = rank};
  memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
  lb_tensor_dense(&t);
  return t;
}

// If Y is not requested, one time step of it is enough memory for a whole
// direction.
static lb_status place_y(series *s) {
  lb_step_operand *y = output(s, 0);
  int64_t batch = batch_of(s), hidden = hidden_of(s);
  int64_t dirs = lb_recurrent_directions(s->part);
  bool first = lb_attr_int(s->part->nodes[0], "layout", 0) != 0;
  if (y) {
    s->at[LB_RMEM_Y] = *y;
    s->shape.tensor[LB_RMEM_Y] = *y->tensor;
    return LB_OK;
  }
  lb_tensor t = dense(s, 3, (const int64_t[]){dirs, batch, hidden});
  LB_TRY(add_temp(s, LB_RMEM_Y, &t));
  t = (lb_tensor){.dtype = t.dtype, .rank = 4};
  t.strides[first ? 2 : 1] = batch * hidden;
  t.strides[first ? 0 : 2] = hidden;
  t.strides[3] = 1;
  s->shape.tensor[LB_RMEM_Y] = t;
  return LB_OK;
}

static lb_status place_state(series *s, lb_rmem mem) {
  lb_step_operand *out = output(s, mem == LB_RMEM_H ? 1 : 2);
  int64_t batch = batch_of(s), dirs = lb_recurrent_directions(s->part);
  bool first = lb_attr_int(s->part->nodes[0], "layout", 0) != 0;
  int64_t dims[] = {first ? batch : dirs, first ? dirs : batch, hidden_of(s)};
  lb_tensor t = dense(s, 3, dims);
  s->shape.tensor[mem] = out ? *out->tensor : t;
  if (!out) return add_temp(s, mem, &t);
  s->at[mem] = *out;
  return LB_OK;
}

static lb_status place_buffers(series *s) {
  const lb_node *n = s->part->nodes[0];
  int64_t batch = batch_of(s), hidden = hidden_of(s);
  int64_t dirs = lb_recurrent_directions(s->part);
  int64_t wide = s->call.in[0].tensor->dims[2] / dirs;
  lb_tensor gates = dense(s, 3, (const int64_t[]){dirs, batch, wide});
  lb_tensor reset = dense(s, 3, (const int64_t[]){dirs, batch, hidden});
  LB_TRY(place_y(s));
  LB_TRY(place_state(s, LB_RMEM_H));
  if (n->op == LB_OP_LSTM) LB_TRY(place_state(s, LB_RMEM_C));
  LB_TRY(add_temp(s, LB_RMEM_GATES, &gates));
  if (n->op == LB_OP_GRU) LB_TRY(add_temp(s, LB_RMEM_RESET, &reset));
  s->at[LB_RMEM_X] = s->call.in[0];
  if (is_given(s, BIAS)) s->at[LB_RMEM_BIAS] = s->call.in[BIAS];
  if (!is_given(s, MASK)) return LB_OK;
  s->at[LB_RMEM_MASK] = s->call.in[MASK];
  s->shape.tensor[LB_RMEM_MASK] = *s->call.in[MASK].tensor;
  return LB_OK;
}

// Adds a copy step that initialises a state; with zeros if no initial state is
// given.
static lb_status add_copy(series *s, lb_rmem mem, uint32_t input) {
  static const double zero = 0;
  lb_tensor t = *s->at[mem].tensor, *zeros;
  if (is_given(s, input))
    return lb_planner_copy(s->p, s->call.in[input], s->at[mem], NULL,
                           LB_REASON_LAYOUT);
  memset(t.strides, 0, sizeof t.strides);
  t.data = (void *)(uintptr_t)&zero;
  LB_TRY(lb_planner_copy_to_plan(s->p, &t, &zeros));
  lb_step_operand from = {.tensor = zeros, .value = LB_NO_VALUE};
  return lb_planner_copy(s->p, from, s->at[mem], NULL, LB_REASON_LAYOUT);
}

// -- launches ----------------------------------------------------------------

static lb_status bind(series *s) {
  int per_direction = lb_recurrent_kernels(s->part);
  s->n = per_direction * lb_recurrent_directions(s->part);
  for (int i = 0; i < s->n; i++) {
    lb_rnn_kernel *t = &s->kernels[i];
    const lb_launch_template *known;
    LB_TRY(lb_recurrent_bind(s->part, &s->shape, i / per_direction,
                             i % per_direction, t));
    LB_TRY(lb_planner_launch_template(s->p, &t->b, &known, &s->templates[i]));
    if (known != &s->templates[i]) s->templates[i] = *known;
  }
  return LB_OK;
}

static lb_split serial_split(const lb_binding *b) {
  return (lb_split){.outer = 1,
                    .row_band = b->dims[LB_DIM_ROWS],
                    .col_band = b->dims[LB_DIM_COLS],
                    .row_bands = 1,
                    .col_bands = 1,
                    .parts = 1,
                    .grain = 1};
}

static double step_ns(const lb_device *d, const lb_binding *b) {
  double weights = (double)b->dims[LB_DIM_K] * (double)b->dims[LB_DIM_COLS];
  double reads = weights * 4 / CACHE_BYTES_PER_NS;
  double sums = 2 * weights * (double)b->dims[LB_DIM_ROWS] / FLOPS_PER_NS;
  if (b->spec.form != LB_FORM_MATMUL)
    return lb_device_estimate(d, &b->spec, b->dims);
  return sums > reads ? sums : reads;
}

static lb_status make_launch(series *s, int number, lb_launch **out) {
  const lb_rnn_kernel *t = &s->kernels[number];
  lb_address addresses[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
  int64_t *steps = lb_arena_new(s->p->arena, int64_t, t->b.n_operands);
  int64_t size = (int64_t)lb_dtype_size(s->call.in[0].tensor->dtype);
  if (!steps) return lb_oom();
  for (uint32_t i = 0; i < t->b.n_operands; i++) {
    steps[i] = t->time_strides[i] * size;
    if (t->mem[i] == LB_RMEM_PACKED)
      LB_TRY(lb_planner_value_address(s->p, s->part, NULL, &addresses[i]));
    else
      LB_TRY(lb_planner_address(s->p, &s->at[t->mem[i]], &addresses[i]));
  }
  LB_TRY(
      lb_planner_prepare(s->p, &s->templates[number], &t->b, addresses, out));
  (*out)->steps = steps;
  if (step_ns(s->p->prog->slots->device, &t->b) < STEP_SERIAL_NS)
    (*out)->split = serial_split(&t->b);
  return LB_OK;
}

// Each direction that takes long enough gets its own thread. A time step is
// split only for threads that directions leave idle.
static int threads_of(const series *s, const lb_step *step) {
  int dirs = lb_recurrent_directions(s->part);
  const lb_device *device = s->p->prog->slots->device;
  double ns = 0;
  for (uint32_t i = 0; i < step->group_size; i++)
    ns += step_ns(device, &s->kernels[i].b);
  if (dirs == 1 || ns * (double)step->iterations < DIRECTION_NS) return 0;
  for (const lb_launch *l = step->launch; l; l = l->next)
    if (l->split.grain < l->split.parts) return dirs;
  return INT_MAX;
}

static lb_status add_launches(series *s, bool covered) {
  const lb_tensor *x = s->call.in[0].tensor;
  bool first = lb_attr_int(s->part->nodes[0], "layout", 0) != 0;
  lb_step step = {.kind = LB_STEP_LAUNCH,
                  .node = s->part->nodes[0],
                  .skip = covered,
                  .iterations = x->dims[first],
                  .group_size = (uint32_t)lb_recurrent_kernels(s->part)};
  lb_launch **last = &step.launch;
  for (int i = 0; i < s->n; i++) {
    LB_TRY(make_launch(s, i, last));
    last = &(*last)->next;
  }
  step.max_parallel_threads = threads_of(s, &step);
  return lb_planner_push(s->p, &step);
}

static bool all_in_pack(const series *s) {
  for (int i = 0; i < s->n; i++)
    if (!s->templates[i].slot->in_pack) return false;
  return true;
}

static lb_status request_kernels(series *s) {
  for (int i = 0; i < s->n; i++)
    LB_TRY(lb_planner_request(s->p, s->part, &s->kernels[i].b,
                              s->templates[i].slot));
  return LB_OK;
}

// Adds the copies and the launches; then the call, unless the pack has all
// kernels.
static lb_status emit(series *s) {
  bool covered = !all_in_pack(s);
  LB_TRY(request_kernels(s));
  LB_TRY(add_copy(s, LB_RMEM_H, H0));
  if (s->part->nodes[0]->op == LB_OP_LSTM) LB_TRY(add_copy(s, LB_RMEM_C, C0));
  lb_planner_note(s->p, s->call.node, LB_NODE_LAUNCHED,
                  covered ? LB_REASON_PENDING : LB_REASON_IN_PACK, LB_NO_VALUE);
  LB_TRY(add_launches(s, covered));
  s->call.reason = LB_REASON_PENDING;
  return covered ? lb_planner_push(s->p, &s->call) : LB_OK;
}

// Reference kernels round in their own order: in deterministic mode, launches
// need kernels that are available from the start.
lb_status lb_planner_recurrent(lb_planner *p, const lb_partition *part,
                               lb_step *call) {
  series *s = LB_SCRATCH(p, series, 1);
  if (!s) return lb_oom();
  memset(s, 0, offsetof(series, kernels));
  s->p = p;
  s->part = part;
  s->call = *call;
  s->shape.tensor[LB_RMEM_X] = *call->in[0].tensor;
  call->reason = LB_REASON_LAYOUT;
  if (!lb_recurrent_fits(part, &s->shape)) return lb_planner_push_call(p, call);
  call->reason = LB_REASON_ROUNDS;
  LB_TRY(place_buffers(s));
  LB_TRY(bind(s));
  LB_TRY(p->prog->deterministic && !all_in_pack(s)
             ? lb_planner_push_call(p, call)
             : emit(s));
  while (s->n_temps) lb_planner_end_temp(p, &s->temps[--s->n_temps]);
  return LB_OK;
}
