// device/reference/recurrent_test.c -- LSTM, GRU and RNN against their
// equations, element by element.
#include "device/reference/number_test.h"

typedef struct spec {
  int gates;  // 1: RNN, 3: GRU, 4: LSTM
  int64_t steps, batch, inputs, hidden;
  int directions;
  bool reverse, batch_first, linear, forget;
  double clip;
  const int64_t *lengths;
} spec;

static double optional(const lb_tensor *x, const int64_t *index) {
  return x->dtype == LB_NONE ? 0 : number_at(x, index);
}

static double clipped(const spec *s, double x) {
  return s->clip > 0 ? fmax(-s->clip, fmin(s->clip, x)) : x;
}
static double sigma(const spec *s, double x) {
  return 1 / (1 + exp(-clipped(s, x)));
}

// Row `gate` of W times x plus R times h, plus both biases, for element i.
static double gate_sum(const test_case *t, const spec *s, int d, int gate,
                       int64_t i, const double *x, const double *h) {
  int64_t row = gate * s->hidden + i;
  double sum = optional(&t->in[3], (int64_t[]){d, row}) +
               optional(&t->in[3], (int64_t[]){d, s->gates * s->hidden + row});
  for (int64_t k = 0; k < s->inputs; k++)
    sum += number_at(&t->in[1], (int64_t[]){d, row, k}) * x[k];
  for (int64_t k = 0; k < s->hidden; k++)
    sum += number_at(&t->in[2], (int64_t[]){d, row, k}) * h[k];
  return sum;
}

static void lstm_step(const test_case *t, const spec *s, int d, const double *x,
                      double *h, double *c) {
  double next[8];
  for (int64_t i = 0; i < s->hidden; i++) {
    double p[3], g[4];
    for (int k = 0; k < 3; k++)
      p[k] = optional(&t->in[7], (int64_t[]){d, k * s->hidden + i});
    for (int k = 0; k < 4; k++) g[k] = gate_sum(t, s, d, k, i, x, h);
    double in = sigma(s, g[0] + p[0] * c[i]);
    double forget = s->forget ? 1 - in : sigma(s, g[2] + p[2] * c[i]);
    c[i] = forget * c[i] + in * tanh(clipped(s, g[3]));
    next[i] = sigma(s, g[1] + p[1] * c[i]) * tanh(c[i]);
  }
  memcpy(h, next, sizeof next);
}

static void gru_step(const test_case *t, const spec *s, int d, const double *x,
                     double *h) {
  const double zero[8] = {0};
  double r[8], rh[8], next[8];
  for (int64_t i = 0; i < s->hidden; i++) {
    r[i] = sigma(s, gate_sum(t, s, d, 1, i, x, h));
    rh[i] = r[i] * h[i];
  }
  for (int64_t i = 0; i < s->hidden; i++) {
    double z = sigma(s, gate_sum(t, s, d, 0, i, x, h)), sum;
    if (s->linear) {
      double rb = optional(&t->in[3], (int64_t[]){d, 5 * s->hidden + i});
      double from_x = gate_sum(t, s, d, 2, i, x, zero) - rb;
      double both = gate_sum(t, s, d, 2, i, x, h);
      sum = from_x + r[i] * (both - from_x);
    } else {
      sum = gate_sum(t, s, d, 2, i, x, rh);
    }
    next[i] = (1 - z) * tanh(clipped(s, sum)) + z * h[i];
  }
  memcpy(h, next, sizeof next);
}

static void rnn_step(const test_case *t, const spec *s, int d, const double *x,
                     double *h) {
  double next[8];
  for (int64_t i = 0; i < s->hidden; i++)
    next[i] = tanh(clipped(s, gate_sum(t, s, d, 0, i, x, h)));
  memcpy(h, next, sizeof next);
}

static double state_value(const spec *s, const lb_tensor *x, int d, int64_t n,
                          int64_t i) {
  if (s->batch_first) return optional(x, (int64_t[]){n, d, i});
  return optional(x, (int64_t[]){d, n, i});
}

static void check_sequence(test_case *t, const spec *s, int d, int64_t n) {
  double h[8], c[8], x[8];
  int64_t length = s->lengths ? s->lengths[n] : s->steps;
  bool backwards = s->reverse || d == 1;
  for (int64_t i = 0; i < s->hidden; i++) {
    h[i] = state_value(s, &t->in[5], d, n, i);
    c[i] = s->gates == 4 ? state_value(s, &t->in[6], d, n, i) : 0;
  }
  for (int64_t k = 0; k < s->steps; k++) {
    int64_t at = backwards && k < length ? length - 1 - k : k;
    for (int64_t i = 0; i < s->inputs; i++)
      x[i] = number_at(&t->in[0], s->batch_first ? (int64_t[]){n, at, i}
                                                 : (int64_t[]){at, n, i});
    if (k < length && s->gates == 4) lstm_step(t, s, d, x, h, c);
    if (k < length && s->gates == 3) gru_step(t, s, d, x, h);
    if (k < length && s->gates == 1) rnn_step(t, s, d, x, h);
    for (int64_t i = 0; i < s->hidden; i++) {
      const int64_t a[] = {n, at, d, i}, b[] = {at, d, n, i};
      CASE_CHECK(t, number_near(&t->out[0], s->batch_first ? a : b,
                                k < length ? h[i] : 0, 2e-5));
    }
  }
  for (int64_t i = 0; i < s->hidden; i++) {
    CASE_CHECK(t, fabs(state_value(s, &t->out[1], d, n, i) - h[i]) < 5e-5);
    if (s->gates == 4)
      CASE_CHECK(t, fabs(state_value(s, &t->out[2], d, n, i) - c[i]) < 5e-5);
  }
}

static lb_tensor maybe(test_case *t, int rank, const int64_t *dims) {
  return case_int(t, 0, 1) ? number_random(t, LB_F32, rank, dims)
                           : (lb_tensor){0};
}

static void random_inputs(test_case *t, spec *s, int64_t *lengths) {
  int64_t d = s->directions, rows = s->gates * s->hidden;
  const int64_t x[] = {s->batch_first ? s->batch : s->steps,
                       s->batch_first ? s->steps : s->batch, s->inputs};
  const int64_t w[] = {d, rows, s->inputs}, r[] = {d, rows, s->hidden};
  const int64_t b[] = {d, 2 * rows}, p[] = {d, 3 * s->hidden};
  const int64_t h[] = {s->batch_first ? s->batch : d,
                       s->batch_first ? d : s->batch, s->hidden};
  case_in(t, number_random(t, LB_F32, 3, x));
  case_in(t, number_random(t, LB_F32, 3, w));
  case_in(t, number_random(t, LB_F32, 3, r));
  case_in(t, maybe(t, 2, b));
  if (case_int(t, 0, 1)) {
    for (int64_t i = 0; i < s->batch; i++)
      lengths[i] = case_int(t, 0, s->steps);
    s->lengths = lengths;
  }
  case_in(t, s->lengths ? case_ints(t, lengths, s->batch) : (lb_tensor){0});
  case_in(t, maybe(t, 3, h));
  if (s->gates == 4) {
    case_in(t, maybe(t, 3, h));
    case_in(t, maybe(t, 2, p));
  }
}

// Input 0 times W, plus the input biases, for all directions.
static lb_tensor project(test_case *t, const spec *s) {
  double list[5 * 3 * 2 * 4 * 6], x[8];
  const double zero[8] = {0};
  int64_t rows = s->gates * s->hidden, at = 0;
  const int64_t *from = t->in[0].dims;
  for (int64_t i = 0; i < from[0]; i++)
    for (int64_t k = 0; k < from[1]; k++) {
      for (int64_t j = 0; j < s->inputs; j++)
        x[j] = number_at(&t->in[0], (int64_t[]){i, k, j});
      for (int d = 0; d < s->directions; d++)
        for (int64_t row = 0; row < rows; row++)
          list[at++] = gate_sum(t, s, d, 0, row, x, zero) -
                       optional(&t->in[3], (int64_t[]){d, rows + row});
    }
  const int64_t dims[] = {from[0], from[1], s->directions * rows};
  return number_list(t, LB_F32, 3, dims, list);
}

// The biases without the input biases.
static lb_tensor state_biases(test_case *t, const spec *s) {
  double list[2 * 2 * 4 * 6] = {0};
  int64_t rows = s->gates * s->hidden;
  if (t->in[3].dtype == LB_NONE) return t->in[3];
  for (int d = 0; d < s->directions; d++)
    for (int64_t i = rows; i < 2 * rows; i++)
      list[d * 2 * rows + i] = number_at(&t->in[3], (int64_t[]){d, i});
  return number_list(t, LB_F32, 2, t->in[3].dims, list);
}

// [steps, batch]: 1 where a time step is within its sequence.
static lb_tensor mask_of(test_case *t, const spec *s) {
  double list[5 * 3];
  const int64_t dims[] = {s->steps, s->batch};
  if (!s->lengths) return (lb_tensor){0};
  for (int64_t i = 0; i < s->steps * s->batch; i++)
    list[i] = i / s->batch < s->lengths[i % s->batch];
  return number_list(t, LB_F32, 2, dims, list);
}

static lb_code run_projected(test_case *t, const spec *s, lb_reference_fn *fn) {
  lb_tensor x = t->in[0], w = t->in[1], b = t->in[3];
  case_attr_int(t, "projected", 1);
  lb_tensor from_x = project(t, s);
  t->in[3] = state_biases(t, s);
  t->in[0] = from_x;
  t->in[1] = (lb_tensor){0};
  t->in[4] = mask_of(t, s);
  lb_code code = case_run(t, fn);
  t->in[0] = x, t->in[1] = w, t->in[3] = b;
  return code;
}

static void recurrent_one(test_case *t) {
  static const int gates[] = {1, 3, 4};
  static const char *const names[] = {"forward", "reverse", "bidirectional"};
  int64_t lengths[4], which = case_int(t, 0, 2);
  spec s = {.gates = gates[case_int(t, 0, 2)],
            .steps = case_int(t, 1, 5),
            .batch = case_int(t, 1, 3),
            .inputs = case_int(t, 1, 5),
            .hidden = case_int(t, 1, 6),
            .directions = which == 2 ? 2 : 1,
            .reverse = which == 1,
            .batch_first = case_int(t, 0, 1),
            .linear = case_int(t, 0, 1),
            .forget = case_int(t, 0, 3) == 0,
            .clip = case_int(t, 0, 2) ? 0 : 0.75};
  case_begin(t, LB_OP_LSTM);
  case_attr_str(t, "direction", names[which]);
  case_attr_int(t, "layout", s.batch_first);
  case_attr_int(t, "linear_before_reset", s.linear);
  case_attr_int(t, "input_forget", s.forget);
  if (s.clip > 0) case_attr_float(t, "clip", (float)s.clip);
  random_inputs(t, &s, lengths);
  t->node.n_out = s.gates == 4 ? 3 : 2;
  int64_t d = s.directions;
  const int64_t y0[] = {s.steps, d, s.batch, s.hidden};
  const int64_t y1[] = {s.batch, s.steps, d, s.hidden};
  const int64_t h[] = {s.batch_first ? s.batch : d, s.batch_first ? d : s.batch,
                       s.hidden};
  t->out[0] = case_dense(t, LB_F32, 4, s.batch_first ? y1 : y0);
  t->out[1] = case_dense(t, LB_F32, 3, h);
  t->out[2] = case_dense(t, LB_F32, 3, h);
  lb_reference_fn *fn = s.gates == 4   ? lb_reference_LSTM
                        : s.gates == 3 ? lb_reference_GRU
                                       : lb_reference_RNN;
  bool projected = case_int(t, 0, 1);
  lb_code code = projected ? run_projected(t, &s, fn) : case_run(t, fn);
  CASE_CHECK(t, code == LB_CODE_OK);
  for (int k = 0; k < s.directions; k++)
    for (int64_t n = 0; n < s.batch; n++) check_sequence(t, &s, k, n);
}
CASE_TEST(every_time_step_follows_the_equations, 200, recurrent_one)

// h = f(x): W is 1, and there are no other inputs.
static double through(const char *name, float alpha, float beta, double x,
                      lb_code *code) {
  test_case t = {0};
  const int64_t one[] = {1, 1, 1};
  const char *const names[] = {name};
  const float alphas[] = {alpha}, betas[] = {beta};
  case_begin(&t, LB_OP_RNN);
  t.attrs[0] = (lb_attr){
      .name = "activations", .kind = LB_ATTR_STRINGS, .n = 1, .strings = names};
  t.attrs[1] = (lb_attr){.name = "activation_alpha",
                         .kind = LB_ATTR_FLOATS,
                         .n = 1,
                         .floats = alphas};
  t.attrs[2] = (lb_attr){.name = "activation_beta",
                         .kind = LB_ATTR_FLOATS,
                         .n = 1,
                         .floats = betas};
  t.node.n_attrs = 3;
  t.node.n_out = 2;
  case_in(&t, number_list(&t, LB_F64, 3, one, &x));
  case_in(&t, number_list(&t, LB_F64, 3, one, (double[]){1}));
  case_in(&t, number_list(&t, LB_F64, 3, one, (double[]){0}));
  t.out[1] = case_dense(&t, LB_F64, 3, one);  // the sequence is not wanted
  *code = case_run(&t, lb_reference_RNN);
  double y = *code == LB_CODE_OK ? number_at(&t.out[1], (int64_t[3]){0}) : 0;
  case_end(&t);
  return y;
}

static void activations_take_their_alpha_and_beta(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double x, y;
  } all[] = {{"Relu", -2, 0},
             {"Affine", 2, 4.5},
             {"LeakyRelu", -2, -4},
             {"ThresholdedRelu", 1.5, 0},
             {"HardSigmoid", 9, 1},
             {"HardSigmoid", 0, 0.5},
             {"Softsign", 3, 0.75},
             {"Softplus", 0, 0.6931471805599453},
             {"Sigmoid", 0, 0.5},
             {"Elu", -1, 2 * -0.6321205588285577},
             {"ScaledTanh", 2, 2 * 0.7615941559557649}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    lb_code code;
    double y = through(all[i].name, 2, 0.5, all[i].x, &code);
    assert_int_equal(code, LB_CODE_OK);
    if (fabs(y - all[i].y) > 1e-12)
      fail_msg("%s(%g) is %g, not %g", all[i].name, all[i].x, y, all[i].y);
  }
  lb_code code;
  through("Gelu", 1, 1, 1, &code);
  assert_int_equal(code, LB_INVALID);
}

static void within_one(test_case *t) {
  int64_t lengths[4], steps = case_int(t, 0, 5), batch = case_int(t, 0, 4);
  bool first = case_int(t, 0, 1);
  const int64_t x[] = {first ? batch : steps, first ? steps : batch, 2};
  lb_dtype dtype = case_int(t, 0, 1) ? LB_F32 : LB_F64;
  for (int i = 0; i < 4; i++) lengths[i] = case_int(t, 0, steps);
  case_begin(t, LB_OP_Within);
  case_attr_int(t, "layout", first);
  case_in(t, case_ints(t, lengths, batch));
  case_in(t, number_random(t, dtype, 3, x));
  t->out[0] = case_dense(t, dtype, 2, (int64_t[]){steps, batch});
  CASE_CHECK(t, case_run(t, lb_reference_Within) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i)
  CASE_CHECK(t, number_at(&t->out[0], i) == (i[0] < lengths[i[1]]));
}
CASE_TEST(within_masks_valid_time_steps, 100, within_one)

static void lengths_outside_the_sequence_are_refused(void **state) {
  (void)state;
  static const int64_t lengths[] = {2, -1, INT64_MAX};
  for (int i = 0; i < 3; i++) {
    test_case t = {0};
    const int64_t one[] = {1, 1, 1}, y[] = {1, 1, 1, 1};
    case_begin(&t, LB_OP_RNN);
    for (int k = 0; k < 3; k++) case_in(&t, number_random(&t, LB_F32, 3, one));
    case_in(&t, (lb_tensor){0});
    case_in(&t, case_ints(&t, &lengths[i], 1));
    t.out[0] = case_dense(&t, LB_F32, 4, y);
    assert_int_equal(case_run(&t, lb_reference_RNN), LB_INVALID);
    case_end(&t);
    t = (test_case){0};
    case_begin(&t, LB_OP_Within);
    case_in(&t, case_ints(&t, &lengths[i], 1));
    case_in(&t, number_random(&t, LB_F32, 3, one));
    t.out[0] = case_dense(&t, LB_F32, 2, one);
    assert_int_equal(case_run(&t, lb_reference_Within), LB_INVALID);
    case_end(&t);
  }
}

static void an_empty_batch_takes_no_time(void **state) {
  (void)state;
  const int64_t steps = INT64_C(1) << 40, x[] = {steps, 0, 1}, w[] = {1, 3, 1};
  test_case t = {0};
  case_begin(&t, LB_OP_GRU);
  case_in(&t, case_dense(&t, LB_F32, 3, x));
  for (int k = 0; k < 2; k++) case_in(&t, number_random(&t, LB_F32, 3, w));
  t.out[0] = case_dense(&t, LB_F32, 4, (int64_t[]){steps, 1, 0, 1});
  assert_int_equal(case_run(&t, lb_reference_GRU), LB_CODE_OK);
  case_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_time_step_follows_the_equations),
      cmocka_unit_test(activations_take_their_alpha_and_beta),
      cmocka_unit_test(within_masks_valid_time_steps),
      cmocka_unit_test(lengths_outside_the_sequence_are_refused),
      cmocka_unit_test(an_empty_batch_takes_no_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
