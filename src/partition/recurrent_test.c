// partition/recurrent_test.c -- the kernels of a recurrence, time step by time
// step, compute LSTM, GRU and RNN: the test executes every binding as a kernel
// would.
#include "partition/recurrent.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "partition/weights.h"

enum { MAX_STEPS = 4, MAX_BATCH = 3, MAX_HIDDEN = 19, GATES = 4 };
enum { WIDE = GATES * MAX_HIDDEN };

static void must(lb_status st) {
  if (lb_failed(st)) print_error("%s\n", lb_status_message(st));
  assert_false(lb_failed(st));
}

static uint32_t seed;

static int64_t draw(int64_t n) {
  seed = seed * 1664525u + 1013904223u;
  return (int64_t)(seed >> 8) % n;
}

// -- a recurrence ------------------------------------------------------------

typedef struct sample {
  lb_op op;
  int64_t steps, batch, hidden, gates;
  int directions;
  bool reverse, batch_first, linear, biased;
  bool masked;  // sequences have different lengths
  int64_t lengths[MAX_BATCH];
  uint32_t relu;  // bit d: direction d of an RNN uses Relu
  float x[MAX_STEPS * MAX_BATCH * 2 * WIDE];
  float r[2 * WIDE * MAX_HIDDEN], b[2 * 2 * WIDE];
  float y[MAX_STEPS * MAX_BATCH * 2 * MAX_HIDDEN];
  float h[2 * MAX_BATCH * MAX_HIDDEN], c[2 * MAX_BATCH * MAX_HIDDEN];
  float h0[2 * MAX_BATCH * MAX_HIDDEN], c0[2 * MAX_BATCH * MAX_HIDDEN];
  float mask[MAX_STEPS * MAX_BATCH];
  float gate_sums[2 * MAX_BATCH * WIDE], reset[2 * MAX_BATCH * MAX_HIDDEN];
  lb_rshape shape;
  lb_graph *graph;
  lb_node *node;
} sample;

static void fill(float *p, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof *p; i++)
    p[i] = ((float)draw(2001) - 1000) / 1000;
}

static lb_tensor tensor_of(int rank, const int64_t *dims, void *data) {
  lb_tensor t = {.dtype = LB_F32, .rank = rank, .data = data};
  memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
  lb_tensor_dense(&t);
  return t;
}

static void set_shapes(sample *s) {
  int64_t d = s->directions, t = s->steps, n = s->batch, h = s->hidden;
  bool first = s->batch_first;
  lb_tensor *shape = s->shape.tensor;
  const int64_t x[] = {first ? n : t, first ? t : n, d * s->gates * h};
  const int64_t y[] = {t, d, n, h}, y_first[] = {n, t, d, h};
  const int64_t state[] = {first ? n : d, first ? d : n, h};
  shape[LB_RMEM_X] = tensor_of(3, x, s->x);
  shape[LB_RMEM_Y] = tensor_of(4, first ? y_first : y, s->y);
  shape[LB_RMEM_H] = tensor_of(3, state, s->h);
  shape[LB_RMEM_C] = tensor_of(3, state, s->c);
  shape[LB_RMEM_MASK] = tensor_of(2, (const int64_t[]){t, n}, s->mask);
}

// Elements after the end of a sequence must not matter.
static void draw_lengths(sample *s) {
  const int64_t *xs = s->shape.tensor[LB_RMEM_X].strides;
  int64_t wide = s->directions * s->gates * s->hidden;
  s->masked = draw(2);
  for (int64_t n = 0; n < s->batch; n++) {
    s->lengths[n] = s->masked ? draw(s->steps + 1) : s->steps;
    for (int64_t t = 0; t < s->steps; t++)
      s->mask[t * s->batch + n] = t < s->lengths[n] ? 1 : 0;
    for (int64_t t = s->lengths[n]; t < s->steps; t++)
      for (int64_t i = 0; i < wide; i++)
        s->x[t * xs[s->batch_first] + n * xs[!s->batch_first] + i] = NAN;
  }
}

static lb_value *parameter(sample *s, const char *name) {
  lb_value *v;
  must(lb_value_new(s->graph, name, &v));
  v->info.dtype = LB_F32;
  must(lb_region_add_param(s->graph->main, v));
  return v;
}

static lb_value *constant(sample *s, const char *name, lb_tensor t) {
  lb_value *v;
  must(lb_const_new(s->graph, name, &t, &v));
  return v;
}

static void make_node(sample *s) {
  int64_t d = s->directions, wide = s->gates * s->hidden;
  lb_value *y;
  must(lb_graph_new(&s->graph));
  must(lb_node_new(s->graph->main, s->op, NULL, 5, 1, &s->node));
  must(lb_value_new(s->graph, "y", &y));
  lb_node *n = s->node;
  n->in[0] = parameter(s, "x");
  if (s->masked) n->in[4] = parameter(s, "mask");
  n->in[2] = constant(
      s, "r", tensor_of(3, (const int64_t[]){d, wide, s->hidden}, s->r));
  if (s->biased)
    n->in[3] =
        constant(s, "b", tensor_of(2, (const int64_t[]){d, 2 * wide}, s->b));
  lb_node_set_out(n, 0, y);
  must(lb_region_add_result(s->graph->main, y));
  must(lb_node_set_int(s->graph, n, "projected", 1));
  must(lb_node_set_int(s->graph, n, "layout", s->batch_first));
  must(lb_node_set_int(s->graph, n, "linear_before_reset", s->linear));
  must(lb_node_set_str(s->graph, n, "direction",
                       s->directions == 2 ? "bidirectional"
                       : s->reverse       ? "reverse"
                                          : "forward"));
  static const char *const names[][2] = {
      {"Tanh", "tanh"}, {"Relu", "tanh"}, {"Tanh", "relu"}, {"Relu", "relu"}};
  if (s->relu)
    must(lb_node_add_attr(s->graph, n,
                          (lb_attr){.name = "activations",
                                    .kind = LB_ATTR_STRINGS,
                                    .n = (uint32_t)d,
                                    .strings = names[s->relu]}));
}

static void sample_make(sample *s, lb_op op, uint32_t number) {
  seed = number * 77 + (uint32_t)op;
  memset(s, 0, sizeof *s);
  s->op = op;
  s->gates = op == LB_OP_LSTM ? 4 : op == LB_OP_GRU ? 3 : 1;
  s->steps = 1 + draw(MAX_STEPS);
  s->batch = 1 + draw(MAX_BATCH);
  s->hidden = 1 + draw(MAX_HIDDEN);
  s->directions = 1 + (int)draw(2);
  s->reverse = s->directions == 1 && draw(2);
  s->batch_first = draw(2);
  s->linear = draw(2);
  s->biased = draw(2);
  s->relu = op == LB_OP_RNN ? (uint32_t)draw(4) : 0;
  fill(s->x, sizeof s->x);
  fill(s->r, sizeof s->r);
  fill(s->b, sizeof s->b);
  fill(s->h0, sizeof s->h0);
  fill(s->c0, sizeof s->c0);
  memcpy(s->h, s->h0, sizeof s->h);
  memcpy(s->c, s->c0, sizeof s->c);
  for (size_t i = 0; i < sizeof s->y / sizeof *s->y; i++) s->y[i] = NAN;
  set_shapes(s);
  draw_lengths(s);
  make_node(s);
}

// -- expected results ---------------------------------------------------------

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

// Row `row` of the state's weights times h, plus its bias.
static double from_state(const sample *s, int d, int64_t row, const double *h) {
  int64_t wide = s->gates * s->hidden;
  double sum = s->biased ? (double)s->b[d * 2 * wide + wide + row] : 0;
  for (int64_t k = 0; k < s->hidden; k++)
    sum += (double)s->r[(d * wide + row) * s->hidden + k] * h[k];
  return sum;
}

static void step_lstm(const sample *s, int d, const float *x, const double *h,
                      double *next, double *c) {
  for (int64_t i = 0; i < s->hidden; i++) {
    double g[4];
    for (int k = 0; k < 4; k++)
      g[k] =
          (double)x[k * s->hidden + i] + from_state(s, d, k * s->hidden + i, h);
    c[i] = sigmoid(g[2]) * c[i] + sigmoid(g[0]) * tanh(g[3]);
    next[i] = sigmoid(g[1]) * tanh(c[i]);
  }
}

static void step_gru(const sample *s, int d, const float *x, const double *h,
                     double *next) {
  int64_t n = s->hidden;
  double r[MAX_HIDDEN], rh[MAX_HIDDEN];
  for (int64_t i = 0; i < n; i++) {
    r[i] = sigmoid((double)x[n + i] + from_state(s, d, n + i, h));
    rh[i] = r[i] * h[i];
  }
  for (int64_t i = 0; i < n; i++) {
    double z = sigmoid((double)x[i] + from_state(s, d, i, h));
    double from = s->linear ? r[i] * from_state(s, d, 2 * n + i, h)
                            : from_state(s, d, 2 * n + i, rh);
    next[i] = (1 - z) * tanh((double)x[2 * n + i] + from) + z * h[i];
  }
}

static void step_rnn(const sample *s, int d, const float *x, const double *h,
                     double *next) {
  for (int64_t i = 0; i < s->hidden; i++) {
    double sum = (double)x[i] + from_state(s, d, i, h);
    next[i] = s->relu >> d & 1 ? fmax(sum, 0) : tanh(sum);
  }
}

static void near(double got, double want) {
  if (!(fabs(got - want) < 2e-5 * (1 + fabs(want))))
    fail_msg("%g is not %g", got, want);
}

// Checks direction d of sequence n against y and the last states.
static void check_sequence(const sample *s, int d, int64_t n) {
  const lb_tensor *shape = s->shape.tensor;
  const int64_t *xs = shape[LB_RMEM_X].strides, *ys = shape[LB_RMEM_Y].strides;
  const int64_t *hs = shape[LB_RMEM_H].strides;
  bool first = s->batch_first;
  int64_t state = n * hs[!first] + d * hs[first];
  double h[MAX_HIDDEN], c[MAX_HIDDEN], next[MAX_HIDDEN];
  for (int64_t i = 0; i < s->hidden; i++) {
    h[i] = (double)s->h0[state + i];
    c[i] = (double)s->c0[state + i];
  }
  for (int64_t k = 0; k < s->steps; k++) {
    bool within = k < s->lengths[n];
    bool back = within && (s->reverse || d == 1);
    int64_t t = back ? s->lengths[n] - 1 - k : k;
    const float *x =
        s->x + t * xs[first] + n * xs[!first] + d * s->gates * s->hidden;
    const float *y =
        s->y + t * ys[first] + d * ys[first ? 2 : 1] + n * ys[first ? 0 : 2];
    for (int64_t i = 0; i < s->hidden && !within; i++) near((double)y[i], 0);
    if (!within) continue;
    if (s->op == LB_OP_LSTM) step_lstm(s, d, x, h, next, c);
    if (s->op == LB_OP_GRU) step_gru(s, d, x, h, next);
    if (s->op == LB_OP_RNN) step_rnn(s, d, x, h, next);
    memcpy(h, next, sizeof h);
    for (int64_t i = 0; i < s->hidden; i++) near((double)y[i], h[i]);
  }
  for (int64_t i = 0; i < s->hidden; i++) {
    near((double)s->h[state + i], h[i]);
    if (s->op == LB_OP_LSTM) near((double)s->c[state + i], c[i]);
  }
}

// -- executing bindings -------------------------------------------------------

typedef struct position {
  const lb_rnn_kernel *rnn_kernel;
  float *at[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];  // by operand
  int64_t row, col;
} position;

static float *element(const position *p, uint32_t operand) {
  const lb_bind_operand *o = &p->rnn_kernel->b.operands[operand];
  return p->at[operand] + p->row * o->row + p->col * o->col;
}

static double acc(const position *p) {
  const lb_binding *b = &p->rnn_kernel->b;
  const float *a = p->at[1] + p->row * b->operands[1].row;
  int64_t k = b->dims[LB_DIM_K];
  const float *w = p->at[2] + p->col / 16 * k * 16 + p->col % 16;
  double sum = 0;
  for (int64_t i = 0; i < k; i++) sum += (double)a[i] * (double)w[i * 16];
  return sum;
}

static double evaluate(const position *p, const lb_snode *n, const double *v) {
  const lb_binding *b = &p->rnn_kernel->b;
  double x = v[n->src[0]], y = v[n->src[1]];
  float scalar;
  switch (n->op) {
    case LB_S_INPUT: {
      bool acc_input = b->spec.form == LB_FORM_MATMUL && n->arg < 2;
      return acc_input ? 0 : (double)*element(p, b->spec.n_out + n->arg);
    }
    case LB_S_SCALAR:
      memcpy(&scalar, &b->scalars[n->arg], sizeof scalar);
      return (double)scalar;
    case LB_S_ACC: return acc(p);
    case LB_S_ADD: return x + y;
    case LB_S_SUB: return x - y;
    case LB_S_MUL: return x * y;
    case LB_S_NEG: return -x;
    case LB_S_SIGMOID: return sigmoid(x);
    case LB_S_TANH: return tanh(x);
    case LB_S_LT: return x < y;
    case LB_S_SELECT: return x > 0 ? y : v[n->src[2]];
    default: fail_msg("operation %d is not expected", n->op); return 0;
  }
}

static void compute_element(const position *p) {
  const lb_spec *s = &p->rnn_kernel->b.spec;
  double v[LB_SPEC_MAX_NODES] = {0};
  for (int i = 0; i < s->n_nodes; i++) v[i] = evaluate(p, &s->nodes[i], v);
  for (uint8_t i = 0; i < s->n_out; i++)
    *element(p, i) = (float)v[s->out[i].node];
}

static void run_kernel(sample *s, const lb_partition *part,
                       const lb_rnn_kernel *t, int64_t number) {
  float *mem[LB_RMEMS] = {
      s->x,         s->b,     s->y,
      s->h,         s->c,     s->mask,
      s->gate_sums, s->reset, (float *)(uintptr_t)part->packed};
  position p = {.rnn_kernel = t};
  for (uint32_t i = 0; i < t->b.n_operands; i++)
    p.at[i] =
        mem[t->mem[i]] + t->b.operands[i].offset + number * t->time_strides[i];
  for (p.row = 0; p.row < t->b.dims[LB_DIM_ROWS]; p.row++)
    for (p.col = 0; p.col < t->b.dims[LB_DIM_COLS]; p.col++)
      compute_element(&p);
}

// A generated spec equals the one found in the memo.
static void bind(const sample *s, const lb_partition *part, int i,
                 lb_rnn_kernel *out) {
  static lb_rnn_kernel emitted;
  int each = lb_recurrent_kernels(part);
  must(lb_recurrent_bind(part, &s->shape, i / each, i % each, &emitted));
  must(lb_recurrent_bind(part, &s->shape, i / each, i % each, out));
  const lb_binding *a = &emitted.b, *b = &out->b;
  assert_non_null(b->memo_spec);
  assert_ptr_equal(a->memo_spec, b->memo_spec);
  assert_int_equal(a->n_operands, b->n_operands);
  assert_memory_equal(&a->spec, &b->spec, sizeof a->spec);
  assert_memory_equal(a->dims, b->dims, sizeof a->dims);
  assert_memory_equal(a->scalars, b->scalars, sizeof a->scalars);
  assert_memory_equal(a->operands, b->operands,
                      a->n_operands * sizeof *a->operands);
}

static void run_sample(lb_op op, uint32_t number) {
  static sample s;
  static lb_rnn_kernel kernels[LB_RNN_KERNELS];
  lb_partitioning parts;
  lb_weights weights;
  sample_make(&s, op, number);
  must(lb_weights_init(&weights, lb_device_none()));
  must(lb_partitioning_init(&parts, s.graph, &(lb_partition_options){0},
                            &weights));
  const lb_partition *part = parts.of_node[s.node->id];
  assert_non_null(part);
  assert_true(part->recurrent && lb_recurrent_fits(part, &s.shape));
  int n = lb_recurrent_kernels(part) * lb_recurrent_directions(part);
  for (int i = 0; i < n; i++) bind(&s, part, i, &kernels[i]);
  // Interleaved: a direction does not write where the other one reads.
  int each = lb_recurrent_kernels(part);
  for (int64_t t = 0; t < s.steps; t++)
    for (int i = 0; i < n; i++) {
      int d = i % s.directions, kernel = i / s.directions;
      run_kernel(&s, part, &kernels[d * each + kernel], t);
    }
  for (int d = 0; d < s.directions; d++)
    for (int64_t i = 0; i < s.batch; i++) check_sequence(&s, d, i);
  lb_partitioning_fini(&parts);
  lb_weights_fini(&weights);
  lb_graph_free(s.graph);
}

static void time_steps_compute_recurrences(void **state) {
  (void)state;
  static const lb_op ops[] = {LB_OP_LSTM, LB_OP_GRU, LB_OP_RNN};
  for (int k = 0; k < 3; k++)
    for (uint32_t i = 0; i < 150; i++) run_sample(ops[k], i);
}

static void expect_host(lb_node *n) { assert_false(lb_recurrent_is(n)); }

static void unsupported_recurrences_are_not_partitioned(void **state) {
  (void)state;
  static sample s;
  sample_make(&s, LB_OP_LSTM, 0);
  lb_node *n = s.node;
  assert_true(lb_recurrent_is(n));
  must(lb_node_set_float(s.graph, n, "clip", 1));
  expect_host(n);
  must(lb_node_set_float(s.graph, n, "clip", 0));
  must(lb_node_set_int(s.graph, n, "input_forget", 1));
  expect_host(n);
  must(lb_node_set_int(s.graph, n, "input_forget", 0));
  must(lb_node_set_int(s.graph, n, "projected", 0));
  expect_host(n);
  must(lb_node_set_int(s.graph, n, "projected", 1));
  assert_true(lb_recurrent_is(n));
  lb_value *weights = n->in[2];
  n->in[2] = n->in[0];
  expect_host(n);
  n->in[2] = weights;
  static const char *const names[] = {"Elu",     "Tanh", "Tanh",
                                      "Sigmoid", "Tanh", "Tanh"};
  must(lb_node_add_attr(s.graph, n,
                        (lb_attr){.name = "activations",
                                  .kind = LB_ATTR_STRINGS,
                                  .n = 3 * (uint32_t)s.directions,
                                  .strings = names}));
  expect_host(n);
  lb_graph_free(s.graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(time_steps_compute_recurrences),
      cmocka_unit_test(unsupported_recurrences_are_not_partitioned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
