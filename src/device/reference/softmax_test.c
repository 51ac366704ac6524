// device/reference/softmax_test.c -- Softmax, LogSoftmax and Hardmax along any
// axis.
#include "device/reference/formula_test.h"

// Returns whether a and b are on the same line.
static bool same_line(const lb_tensor *x, const int64_t *a, const int64_t *b,
                      int axis, bool flatten) {
  for (int i = 0; i < x->rank; i++) {
    bool along = flatten ? i >= axis : i == axis;
    if (!along && a[i] != b[i]) return false;
  }
  return true;
}

static void softmax_one(test_case *t) {
  lb_reference_fn *fns[] = {lb_reference_Softmax, lb_reference_LogSoftmax,
                            lb_reference_Hardmax};
  lb_op ops[] = {LB_OP_Softmax, LB_OP_LogSoftmax, LB_OP_Hardmax};
  int which = (int)(t->seed % 3);
  int64_t dims[LB_MAX_RANK];
  int rank = case_dims(t, 1, 3, dims), axis = (int)case_int(t, 0, rank - 1);
  bool flatten = case_int(t, 0, 2) == 0;
  lb_dtype dtype = case_float(t);
  case_begin(t, ops[which]);
  case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  if (flatten) case_attr_int(t, "flatten", 1);
  case_in(t, case_numbers(t, dtype, rank, dims, -5, 5));
  t->out[0] = case_dense(t, dtype, rank, dims);
  CASE_CHECK(t, case_run(t, fns[which]) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    double x = number(&t->in[0], o), sum = 0, top = -INFINITY;
    bool first = true, before = true;
    CASE_EACH(&t->in[0], i) {
      if (!same_line(&t->in[0], o, i, axis, flatten)) continue;
      double v = number(&t->in[0], i);
      sum += exp(v);
      if (v > top) top = v;
      if (memcmp(i, o, sizeof(int64_t) * (size_t)rank) == 0) before = false;
      if (before && v == x) first = false;
    }
    double want = which == 0   ? exp(x) / sum
                  : which == 1 ? x - log(sum)
                               : x == top && first;
    CASE_CHECK(t, near(number(&t->out[0], o), want, 40 * rounding(dtype)));
  }
}
CASE_TEST(lines_along_any_axis_match_the_formula, 180, softmax_one)

static void check(lb_op op, lb_reference_fn *fn, const double *x,
                  const double *want) {
  example e = {op, fn, LB_F32, LB_F32, 3, 1, {{0}}, {0}};
  memcpy(e.in[0], x, 3 * sizeof *x);
  memcpy(e.want, want, 3 * sizeof *want);
  check_example(&e);
}
#define LIST(...) ((const double[]){__VA_ARGS__})

static void large_scores_do_not_overflow(void **state) {
  (void)state;
  check(LB_OP_Softmax, lb_reference_Softmax, LIST(3e38, 3e38, -3e38),
        LIST(0.5, 0.5, 0));
  check(LB_OP_LogSoftmax, lb_reference_LogSoftmax, LIST(1000, 0, 0),
        LIST(0, -1000, -1000));
}

static void masked_scores_get_probability_zero(void **state) {
  (void)state;
  check(LB_OP_Softmax, lb_reference_Softmax, LIST(-INFINITY, 2, -INFINITY),
        LIST(0, 1, 0));
}

static void nan_propagates_over_its_line(void **state) {
  (void)state;
  for (int at = 0; at < 3; at++) {
    double x[] = {1, 2, 3};
    x[at] = NAN;
    check(LB_OP_Softmax, lb_reference_Softmax, x, LIST(NAN, NAN, NAN));
  }
}

static void hardmax_selects_the_first_of_equals(void **state) {
  (void)state;
  check(LB_OP_Hardmax, lb_reference_Hardmax, LIST(1, 3, 3), LIST(0, 1, 0));
}

static void integers_and_bad_axes_are_refused(void **state) {
  (void)state;
  test_case t = {.name = "Softmax"};
  int64_t n = 3;
  case_begin(&t, LB_OP_Softmax);
  case_in(&t, case_floats(&t, LB_I32, LIST(1, 2, 3), n));
  t.out[0] = case_dense(&t, LB_I32, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_Softmax), LB_UNSUPPORTED);
  t.in[0].dtype = t.out[0].dtype = LB_F32;
  case_attr_int(&t, "axis", 1);
  assert_int_equal(case_run(&t, lb_reference_Softmax), LB_INVALID);
  case_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_along_any_axis_match_the_formula),
      cmocka_unit_test(large_scores_do_not_overflow),
      cmocka_unit_test(masked_scores_get_probability_zero),
      cmocka_unit_test(nan_propagates_over_its_line),
      cmocka_unit_test(hardmax_selects_the_first_of_equals),
      cmocka_unit_test(integers_and_bad_axes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
