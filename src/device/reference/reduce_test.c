// device/reference/reduce_test.c -- reductions against sums in the documented
// order.
#include "device/reference/formula_test.h"

// Random input and axes; outputs keep reduced axes with length 1.
static void reduction_case(test_case *t, lb_op op, lb_dtype dtype,
                           uint32_t *axes) {
  int64_t dims[LB_MAX_RANK], list[LB_MAX_RANK], n = 0;
  int rank = case_dims(t, 0, 4, dims);
  *axes = 0;
  for (int i = 0; i < rank; i++) {
    if (case_int(t, 0, 1)) continue;
    *axes |= 1u << i;
    list[n++] = case_int(t, 0, 1) ? i : i - rank;
  }
  case_begin(t, op);
  case_attr_int(t, "noop_with_empty_axes", 1);
  case_in(t, case_numbers(t, dtype, rank, dims, -4, 4));
  case_in(t, case_ints(t, list, n));
  for (int i = 0; i < rank; i++) dims[i] = *axes >> i & 1 ? 1 : dims[i];
  t->out[0] = case_dense(t, dtype, rank, dims);
}

// Returns whether element i of the input belongs to output o.
static bool belongs(const lb_tensor *out, const int64_t *o, const int64_t *i,
                    uint32_t axes) {
  for (int k = 0; k < out->rank; k++)
    if (!(axes >> k & 1) && i[k] != o[k]) return false;
  return true;
}

static void float_sum_one(test_case *t) {
  uint32_t axes;
  reduction_case(t, LB_OP_ReduceSum, LB_F32, &axes);
  CASE_CHECK(t, case_run(t, lb_reference_ReduceSum) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    bool begun = false;
    float sum = 0;
    CASE_EACH(&t->in[0], i) {
      if (!belongs(&t->out[0], o, i, axes)) continue;
      float x = (float)number(&t->in[0], i);
      sum = begun ? sum + x : x;
      begun = true;
    }
    CASE_CHECK(t, same(number(&t->out[0], o), (double)sum));
  }
}
CASE_TEST(sums_add_in_row_major_order, 60, float_sum_one)

typedef struct fold {
  lb_op op;
  lb_reference_fn *fn;
  double empty;
  double (*next)(double a, double x);
  double (*last)(double a);
} fold;

static double add(double a, double x) { return a + x; }
static double add_square(double a, double x) { return a + x * x; }
static double add_size(double a, double x) { return a + fabs(x); }
static double add_exp(double a, double x) { return a + exp(x); }
static double mul(double a, double x) { return a * x; }
static double itself(double a) { return a; }

static const fold folds[] = {
    {LB_OP_ReduceSum, lb_reference_ReduceSum, 0, add, itself},
    {LB_OP_ReduceProd, lb_reference_ReduceProd, 1, mul, itself},
    {LB_OP_ReduceL1, lb_reference_ReduceL1, 0, add_size, itself},
    {LB_OP_ReduceL2, lb_reference_ReduceL2, 0, add_square, sqrt},
    {LB_OP_ReduceSumSquare, lb_reference_ReduceSumSquare, 0, add_square,
     itself},
    {LB_OP_ReduceLogSumExp, lb_reference_ReduceLogSumExp, 0, add_exp, log},
    {LB_OP_ReduceMax, lb_reference_ReduceMax, -INFINITY, fmax, itself},
    {LB_OP_ReduceMin, lb_reference_ReduceMin, INFINITY, fmin, itself},
};

static void fold_one(test_case *t) {
  const fold *f = &folds[t->seed % 8];
  uint32_t axes;
  lb_dtype dtype = case_float(t);
  reduction_case(t, f->op, dtype, &axes);
  CASE_CHECK(t, case_run(t, f->fn) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    double want = f->empty, scale = 1;
    CASE_EACH(&t->in[0], i) {
      if (!belongs(&t->out[0], o, i, axes)) continue;
      want = f->next(want, number(&t->in[0], i));
      scale++;
    }
    want = f->last(want);
    // Results beyond the range of the dtype are not compared.
    if (fabs(want) > 6e4 && !isinf(want)) continue;
    double tol = scale * 8 * rounding(dtype);
    if (f->op == LB_OP_ReduceSum) tol *= 4;
    CASE_CHECK(t, near(number(&t->out[0], o), want, tol));
  }
}
CASE_TEST(reductions_match_their_formulas, 240, fold_one)

static void integer_sum_one(test_case *t) {
  uint32_t axes;
  lb_dtype dtype = case_integer(t);
  reduction_case(t, LB_OP_ReduceSum, dtype, &axes);
  t->in[0] = case_random(t, dtype, t->in[0].rank, t->in[0].dims);
  CASE_CHECK(t, case_run(t, lb_reference_ReduceSum) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    uint64_t sum = 0;
    CASE_EACH(&t->in[0], i)
    if (belongs(&t->out[0], o, i, axes)) sum += (uint64_t)whole(&t->in[0], i);
    CASE_CHECK(t,
               memcmp(case_at(&t->out[0], o), &sum, lb_dtype_size(dtype)) == 0);
  }
}
CASE_TEST(integer_sums_wrap, 80, integer_sum_one)

static double reduced(lb_op op, lb_reference_fn *fn, lb_dtype dtype,
                      const double *v, int64_t n) {
  test_case t = {.name = "reduced"};
  case_begin(&t, op);
  case_attr_int(&t, "keepdims", 0);
  case_in(&t, case_floats(&t, dtype, v, n));
  t.out[0] = case_dense(&t, dtype, 0, NULL);
  assert_int_equal(case_run(&t, fn), LB_CODE_OK);
  double result = number(&t.out[0], NULL);
  case_end(&t);
  return result;
}
#define REDUCED(Name, dtype, n, ...) \
  reduced(LB_OP_##Name, lb_reference_##Name, dtype, (double[]){__VA_ARGS__}, n)

static void empty_reductions_give_the_neutral_element(void **state) {
  (void)state;
  assert_true(REDUCED(ReduceSum, LB_F32, 0, 0) == 0);
  assert_true(REDUCED(ReduceProd, LB_I32, 0, 0) == 1);
  assert_true(REDUCED(ReduceMax, LB_F16, 0, 0) == -INFINITY);
  assert_true(REDUCED(ReduceMin, LB_BF16, 0, 0) == INFINITY);
  assert_true(REDUCED(ReduceMax, LB_I8, 0, 0) == -128);
  assert_true(REDUCED(ReduceMin, LB_I64, 0, 0) == 0x1p63);  // rounded
  assert_true(REDUCED(ReduceMax, LB_U16, 0, 0) == 0);
  assert_true(REDUCED(ReduceMin, LB_U16, 0, 0) == 65535);
  assert_true(REDUCED(ReduceMax, LB_BOOL, 0, 0) == 0);
  assert_true(REDUCED(ReduceMin, LB_BOOL, 0, 0) == 1);
  assert_true(REDUCED(ReduceLogSum, LB_F32, 0, 0) == -INFINITY);
  assert_true(REDUCED(ReduceLogSumExp, LB_F32, 0, 0) == -INFINITY);
  assert_true(isnan(REDUCED(ReduceMean, LB_F32, 0, 0)));
  assert_true(REDUCED(ReduceMean, LB_I32, 0, 0) == 0);
}

static void special_values_are_handled(void **state) {
  (void)state;
  assert_true(signbit(REDUCED(ReduceSum, LB_F32, 1, -0.0)));
  assert_true(isnan(REDUCED(ReduceMax, LB_F32, 3, 1, NAN, 2)));
  assert_true(isnan(REDUCED(ReduceMin, LB_F64, 3, NAN, 1, 2)));
  assert_true(REDUCED(ReduceLogSumExp, LB_F32, 2, INFINITY, 1) == INFINITY);
  assert_true(near(REDUCED(ReduceLogSumExp, LB_F32, 2, 1000, 1000),
                   1000 + log(2), 1e-6));
  assert_true(REDUCED(ReduceL1, LB_I32, 1, -0x1p31) == -0x1p31);
  assert_true(REDUCED(ReduceMean, LB_I32, 2, -3, -4) == -3);
  assert_true(REDUCED(ReduceLogSum, LB_I64, 2, 20, 1) == 3);
  assert_true(REDUCED(ReduceLogSum, LB_I32, 2, 1, -1) == 0);
  assert_true(REDUCED(ReduceLogSumExp, LB_I32, 3, 5, 5, 5) == 6);
  // Accumulated in float: 60000 + 60000 overflows float16.
  assert_true(REDUCED(ReduceMean, LB_F16, 2, 60000, 60000) == 60000);
}

static void arg_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = case_dims(t, 1, 4, dims);
  int axis = (int)case_int(t, 0, rank - 1);
  if (dims[axis] == 0) dims[axis] = 2;
  bool last = case_int(t, 0, 1), max = case_int(t, 0, 1);
  lb_dtype dtype = case_int(t, 0, 1) ? case_float(t) : case_integer(t);
  case_begin(t, max ? LB_OP_ArgMax : LB_OP_ArgMin);
  case_attr_int(t, "axis", axis - rank);
  case_attr_int(t, "select_last_index", last);
  lb_tensor x = case_dense(t, dtype, rank, dims);
  CASE_EACH(&x, k) {
    bool nan = lb_dtype_is_float(dtype) && case_int(t, 0, 7) == 0;
    put(&x, k, nan ? (double)NAN : (double)case_int(t, 0, 3));
  }
  case_in(t, case_scatter(t, &x));
  int64_t len = dims[axis];
  dims[axis] = 1;
  t->out[0] = case_dense(t, LB_I64, rank, dims);
  CASE_CHECK(t, case_run(t, max ? lb_reference_ArgMax : lb_reference_ArgMin) ==
                    LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    int64_t at[LB_MAX_RANK], best = 0;
    memcpy(at, o, sizeof at);
    double top = number(&x, at);
    for (at[axis] = 1; at[axis] < len; at[axis]++) {
      double v = number(&x, at);
      bool equal = v == top || (isnan(v) && isnan(top));
      bool ahead = !isnan(top) && (isnan(v) || (max ? v > top : v < top));
      if (!ahead && !(equal && last)) continue;
      top = v;
      best = at[axis];
    }
    CASE_CHECK(t, case_int_at(&t->out[0], o) == best);
  }
}
CASE_TEST(arg_reductions_find_the_first_or_last, 120, arg_one)

static void arg_max_of_nothing_is_an_error(void **state) {
  (void)state;
  test_case t = {.name = "ArgMax"};
  int64_t n = 0, one = 1;
  case_begin(&t, LB_OP_ArgMax);
  case_in(&t, case_dense(&t, LB_F32, 1, &n));
  t.out[0] = case_dense(&t, LB_I64, 1, &one);
  assert_int_equal(case_run(&t, lb_reference_ArgMax), LB_INVALID);
  case_end(&t);
}

static void nan_wins_in_arg_max_and_arg_min(void **state) {
  (void)state;
  test_case t = {.name = "ArgMin"};
  int64_t one = 1;
  case_begin(&t, LB_OP_ArgMin);
  case_in(&t, case_floats(&t, LB_F32, (double[]){1, NAN, -1, NAN}, 4));
  t.out[0] = case_dense(&t, LB_I64, 1, &one);
  assert_int_equal(case_run(&t, lb_reference_ArgMin), LB_CODE_OK);
  assert_int_equal(*(int64_t *)t.out[0].data, 1);
  case_end(&t);
}

static void scan_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = case_dims(t, 1, 4, dims);
  int64_t axis = case_int(t, 0, rank - 1);
  bool reverse = case_int(t, 0, 1), exclusive = case_int(t, 0, 1);
  bool sum = case_int(t, 0, 1);
  lb_dtype dtype = case_integer(t);
  case_begin(t, sum ? LB_OP_CumSum : LB_OP_CumProd);
  case_attr_int(t, "reverse", reverse);
  case_attr_int(t, "exclusive", exclusive);
  case_in(t, case_random(t, dtype, rank, dims));
  case_in(t, case_i64(t, 0, NULL, &axis));
  t->out[0] = case_dense(t, dtype, rank, dims);
  CASE_CHECK(t, case_run(t, sum ? lb_reference_CumSum : lb_reference_CumProd) ==
                    LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    uint64_t want = sum ? 0 : 1;
    int64_t at[LB_MAX_RANK];
    memcpy(at, o, sizeof at);
    for (int64_t k = 0; k < dims[axis]; k++) {
      if (reverse ? k < o[axis] : k > o[axis]) continue;
      if (exclusive && k == o[axis]) continue;
      at[axis] = k;
      uint64_t x = (uint64_t)whole(&t->in[0], at);
      want = sum ? want + x : want * x;
    }
    CASE_CHECK(
        t, memcmp(case_at(&t->out[0], o), &want, lb_dtype_size(dtype)) == 0);
  }
}
CASE_TEST(cumulative_sums_work_in_both_directions, 120, scan_one)

static void results_do_not_depend_on_threads(void **state) {
  (void)state;
  lb_pool *pool = NULL;
  assert_int_equal(lb_status_code(lb_pool_new(3, &pool)), LB_CODE_OK);
  test_case t = {.name = "ReduceSum"};
  const int64_t dims[] = {50, 40, 30}, axis = 1, to[] = {50, 1, 30};
  case_begin(&t, LB_OP_ReduceSum);
  case_in(&t, case_numbers(&t, LB_F32, 3, dims, -1, 1));
  case_in(&t, case_ints(&t, &axis, 1));
  t.out[0] = case_dense(&t, LB_F32, 3, to);
  assert_int_equal(case_run(&t, lb_reference_ReduceSum), LB_CODE_OK);
  lb_tensor alone = t.out[0];
  t.out[0] = case_dense(&t, LB_F32, 3, to);
  t.call.pool = pool;
  assert_int_equal(case_run(&t, lb_reference_ReduceSum), LB_CODE_OK);
  assert_memory_equal(t.out[0].data, alone.data, lb_tensor_bytes(&alone));
  case_end(&t);
  lb_pool_free(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_add_in_row_major_order),
      cmocka_unit_test(reductions_match_their_formulas),
      cmocka_unit_test(integer_sums_wrap),
      cmocka_unit_test(empty_reductions_give_the_neutral_element),
      cmocka_unit_test(special_values_are_handled),
      cmocka_unit_test(arg_reductions_find_the_first_or_last),
      cmocka_unit_test(arg_max_of_nothing_is_an_error),
      cmocka_unit_test(nan_wins_in_arg_max_and_arg_min),
      cmocka_unit_test(cumulative_sums_work_in_both_directions),
      cmocka_unit_test(results_do_not_depend_on_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
