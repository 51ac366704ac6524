// worker/check_test.c -- Correct code passes the check, and code that is wrong
// in any of the usual ways fails it. The code is C, called as kernels are.
#include "worker/testspecs.h"

#include <math.h>

#include "lower/lower.h"
#include "worker/check.h"

static lb_status check(lb_spec spec, lb_facts facts, lb_kernel_fn *code,
                       uint32_t *shapes) {
  lb_kernel k;
  assert_ok(lb_lower(&spec, &facts, &(lb_target){LB_LEVEL_V3, 0}, &k));
  lb_status st = lb_check_code(&spec, &facts, &k, code, shapes);
  lb_kernel_fini(&k);
  return st;
}

// Arguments of x + bias.
typedef struct eltwise_args {
  float *out;
  const float *x, *bias;
  int64_t rows, cols, out_row, out_col, x_row, x_col, bias_row, bias_col;
} eltwise_args;
_Static_assert(sizeof(eltwise_args) == 11 * 8, "a cell each");

static eltwise_args eltwise_args_of(const uint64_t *args) {
  eltwise_args a;
  memcpy(&a, args, sizeof a);
  return a;
}

static void add_columns(const eltwise_args *a, int64_t cols) {
  for (int64_t i = 0; i < a->rows; i++)
    for (int64_t j = 0; j < cols; j++)
      a->out[i * a->out_row + j] = a->x[i * a->x_row + j] + a->bias[j];
}

static void add(const uint64_t *args) {
  eltwise_args a = eltwise_args_of(args);
  add_columns(&a, a.cols);
}

static void add_whole_vectors_only(const uint64_t *args) {
  eltwise_args a = eltwise_args_of(args);
  add_columns(&a, a.cols / 8 * 8);
}

static void add_and_write_into_gaps(const uint64_t *args) {
  eltwise_args a = eltwise_args_of(args);
  add_columns(&a, a.cols);
  if (a.rows > 1 && a.cols > 0) a.out[a.cols] = 0;
}

static void add_one_column_too_many(const uint64_t *args) {
  eltwise_args a = eltwise_args_of(args);
  volatile float *out = a.out;
  add_columns(&a, a.cols);
  if (a.rows && a.cols) out[(a.rows - 1) * a.out_row + a.cols] = 0;
}

static void add_and_read_before_the_start(const uint64_t *args) {
  eltwise_args a = eltwise_args_of(args);
  const volatile float *x = a.x;
  add_columns(&a, a.cols);
  if (a.rows && a.cols && isnan(x[-1])) a.out[0] = 0;
}

static void add_with_an_error_of_one_ulp(const uint64_t *args) {
  eltwise_args a = eltwise_args_of(args);
  add_columns(&a, a.cols);
  if (a.rows && a.cols) a.out[0] = nextafterf(a.out[0], 9.0f);
}

// Correct unless x and out share memory.
static void add_after_clearing(const uint64_t *args) {
  eltwise_args a = eltwise_args_of(args);
  for (int64_t i = 0; i < a.rows; i++)
    for (int64_t j = 0; j < a.cols; j++) a.out[i * a.out_row + j] = 0;
  add_columns(&a, a.cols);
}

static void never_return(const uint64_t *args) {
  (void)args;
  for (volatile int i = 0;; i++) continue;
}

static void run_an_illegal_instruction(const uint64_t *args) {
  (void)args;
  __asm__ volatile("ud2");
}

static void correct_code_passes_at_every_shape(void **state) {
  (void)state;
  uint32_t shapes;
  assert_ok(check(spec_of_eltwise(), (lb_facts){0}, add, &shapes));
  assert_int_equal(shapes, 8);
}

static void wrong_code_is_rejected(void **state) {
  (void)state;
  static const struct {
    lb_kernel_fn *code;
    const char *part;
  } cases[] = {
      {add_whole_vectors_only, "code is wrong: at rows 5, cols 21"},
      {add_and_write_into_gaps, "output 0, element 21 "},
      {add_one_column_too_many, "faults: Segmentation fault"},
      {add_and_read_before_the_start, "faults: Segmentation fault"},
      {add_with_an_error_of_one_ulp, "code is wrong"},
      {add_after_clearing, "in place: the code is wrong"},
      {run_an_illegal_instruction, "faults: Illegal instruction"},
  };
  uint32_t shapes;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_error(
        check(spec_of_eltwise(), (lb_facts){0}, cases[i].code, &shapes),
        LB_INTERNAL, cases[i].part);
}

static void code_that_does_not_return_is_interrupted(void **state) {
  (void)state;
  assert_error(lb_fault_run(never_return, NULL, 20), LB_INTERNAL,
               "more than 20 ms");
  uint32_t shapes;  // and signal handlers are restored
  assert_ok(check(spec_of_eltwise(), (lb_facts){0}, add, &shapes));
}

static void facts_hold_at_all_test_shapes(void **state) {
  (void)state;
  lb_facts facts = {0};
  uint32_t shapes;
  lb_facts_add(&facts, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 8);
  assert_ok(check(spec_of_eltwise(), facts, add_whole_vectors_only, &shapes));
  assert_int_equal(shapes, 8);
  // Not a multiple of 8: contradicts the other fact.
  lb_facts_add(&facts, LB_ASSUME_EQUAL, LB_DIM_COLS, 17);
  assert_ok(check(spec_of_eltwise(), facts, never_return, &shapes));
  assert_int_equal(shapes, 0);
}

static void shapes_too_large_to_check_are_skipped(void **state) {
  (void)state;
  lb_facts facts = {0};
  uint32_t shapes;
  lb_facts_add(&facts, LB_ASSUME_EQUAL, LB_DIM_COLS, 65535);
  lb_facts_add(&facts, LB_ASSUME_EQUAL, LB_DIM_ROWS, 65535);
  assert_ok(check(spec_of_eltwise(), facts, never_return, &shapes));
  assert_int_equal(shapes, 0);
}

// -- results of mathematical functions ---------------------------------------

typedef struct row_args {
  float *out;
  const float *x;
  int64_t rows, cols, out_row, out_col, x_row, x_col;
} row_args;

static void softmax_by(const uint64_t *args, float error) {
  row_args a;
  memcpy(&a, args, sizeof a);
  for (int64_t i = 0; i < a.rows; i++) {
    const float *x = a.x + i * a.x_row;
    float *y = a.out + i * a.out_row, max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a.cols; j++)
      if (!(x[j] <= max)) max = isnan(max) ? max : x[j];
    for (int64_t j = 0; j < a.cols; j++) sum += y[j] = expf(x[j] - max);
    for (int64_t j = 0; j < a.cols; j++) y[j] = y[j] / sum * error;
  }
}

static void softmax(const uint64_t *args) { softmax_by(args, 1.0f); }
static void softmax_within_tolerance(const uint64_t *args) {
  softmax_by(args, 1.00001f);
}
static void softmax_outside_tolerance(const uint64_t *args) {
  softmax_by(args, 1.01f);
}

static void results_of_math_functions_have_a_tolerance(void **state) {
  (void)state;
  uint32_t shapes;
  assert_ok(check(spec_of_row_reduce(), (lb_facts){0}, softmax, &shapes));
  assert_ok(check(spec_of_row_reduce(), (lb_facts){0}, softmax_within_tolerance,
                  &shapes));
  assert_error(check(spec_of_row_reduce(), (lb_facts){0},
                     softmax_outside_tolerance, &shapes),
               LB_INTERNAL, "code is wrong");
}

// x / (s + exp(x)): where the sum is nearly 0, small errors become large
static lb_spec spec_with_pole(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_STRIDED);
  uint8_t s = lb_spec_scalar(&b, LB_F32);
  uint8_t sum = node(&b, LB_S_ADD, s, node(&b, LB_S_EXP, x, 0));
  return finish_spec(&b, node(&b, LB_S_DIV, x, sum));
}

static void divide_by(const uint64_t *args, int64_t from, int64_t rows) {
  row_args a;
  float s;
  memcpy(&a, args, sizeof a);
  memcpy(&s, args + 8, sizeof s);
  for (int64_t i = 0; i < a.rows; i++) {
    for (int64_t j = 0; j < a.cols; j++) {
      float x = a.x[i * a.x_row + j * a.x_col];
      float y = x / (s + expf(x));
      a.out[i * a.out_row + j] = i < rows && j >= a.cols - from ? y + 1 : y;
    }
  }
}

static void divide(const uint64_t *args) { divide_by(args, 0, 0); }
static void divide_once_wrong(const uint64_t *args) { divide_by(args, 1, 1); }
static void divide_wrong_at_the_end(const uint64_t *args) {
  divide_by(args, 1, INT64_MAX);
}

static void divisors_that_may_cancel_excuse_few_elements(void **state) {
  (void)state;
  uint32_t shapes;
  lb_facts none = {0};
  assert_ok(check(spec_with_pole(), none, divide, &shapes));
  assert_ok(check(spec_with_pole(), none, divide_once_wrong, &shapes));
  assert_error(check(spec_with_pole(), none, divide_wrong_at_the_end, &shapes),
               LB_INTERNAL, "code is wrong");
}

typedef struct attention_args {
  float *out;
  const float *q, *k, *v, *mask;
  int64_t rows, cols, size, n_keys, out_row, out_col, q_row, q_col, k_row,
      k_col;
  int64_t v_row, v_col, mask_row, mask_col;
  float scale;
} attention_args;

static float score_of(const attention_args *a, int64_t m, int64_t l) {
  float sum = 0;
  for (int64_t i = 0; i < a->size; i++)
    sum = fmaf(a->q[m * a->q_row + i], a->k[l * a->k_row + i], sum);
  return sum * a->scale + a->mask[l];
}

static void attend_by(const uint64_t *args, float error) {
  attention_args a;
  memcpy(&a, args, sizeof a);
  for (int64_t m = 0; m < a.rows; m++) {
    float *y = a.out + m * a.out_row, max = -INFINITY, sum = 0;
    for (int64_t l = 0; l < a.n_keys; l++) max = fmaxf(max, score_of(&a, m, l));
    for (int64_t n = 0; n < a.cols; n++) y[n] = 0;
    for (int64_t l = 0; l < a.n_keys; l++) {
      float p = expf(score_of(&a, m, l) - (max == -INFINITY ? 0 : max));
      sum += p;
      for (int64_t n = 0; n < a.cols; n++) y[n] += p * a.v[l * a.v_row + n];
    }
    for (int64_t n = 0; n < a.cols; n++) y[n] *= error / (sum == 0 ? 1 : sum);
  }
}

static void attend(const uint64_t *args) { attend_by(args, 1.0f); }
static void attend_outside_tolerance(const uint64_t *args) {
  attend_by(args, 1.01f);
}

// Arguments of the maximum of a window.
typedef struct window_args {
  float *out;
  const float *x;
  int64_t rows, cols, k, taps_y, taps_x, out_row, out_col, x_row, x_col;
  int64_t y_stride, x_stride, unused_y, unused_x;
} window_args;

static void pool(const uint64_t *args, int64_t omitted) {
  window_args a;
  memcpy(&a, args, sizeof a);
  for (int64_t i = 0; i < a.rows * a.cols; i++) {
    int64_t row = i / a.cols, col = i % a.cols;
    float y = -INFINITY;
    for (int64_t t = 0; t < a.taps_y * a.taps_x - omitted; t++) {
      float x = a.x[row * a.x_row + t / a.taps_x * a.y_stride +
                    t % a.taps_x * a.x_stride + col];
      y = y > x || isnan(y) ? y : x;
    }
    a.out[row * a.out_row + col] = y;
  }
}

static void pool_all(const uint64_t *args) { pool(args, 0); }
static void pool_all_but_one(const uint64_t *args) { pool(args, 1); }

static void windows_are_checked_at_every_shape(void **state) {
  (void)state;
  uint32_t shapes;
  lb_spec spec = spec_of_window(LB_ACC_MAX);
  assert_ok(check(spec, (lb_facts){0}, pool_all, &shapes));
  assert_int_equal(shapes, 8);
  assert_error(check(spec, (lb_facts){0}, pool_all_but_one, &shapes),
               LB_INTERNAL, "the code is wrong");
}

// The interpreter must also agree with a formula without blocks of keys.
static void attention_is_checked_at_every_shape(void **state) {
  (void)state;
  uint32_t shapes;
  lb_facts facts = facts_of_attention();
  assert_ok(check(spec_of_attention(), facts, attend, &shapes));
  assert_int_equal(shapes, 8);
  assert_error(
      check(spec_of_attention(), facts, attend_outside_tolerance, &shapes),
      LB_INTERNAL, "code is wrong");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(correct_code_passes_at_every_shape),
      cmocka_unit_test(wrong_code_is_rejected),
      cmocka_unit_test(code_that_does_not_return_is_interrupted),
      cmocka_unit_test(facts_hold_at_all_test_shapes),
      cmocka_unit_test(shapes_too_large_to_check_are_skipped),
      cmocka_unit_test(results_of_math_functions_have_a_tolerance),
      cmocka_unit_test(divisors_that_may_cancel_excuse_few_elements),
      cmocka_unit_test(windows_are_checked_at_every_shape),
      cmocka_unit_test(attention_is_checked_at_every_shape),
  };
  return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
