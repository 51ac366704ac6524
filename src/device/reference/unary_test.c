// device/reference/unary_test.c -- elementwise operators against libm in
// double.
#include <float.h>

#include "device/reference/formula_test.h"

#define FN(Name) LB_OP_##Name, lb_reference_##Name

typedef struct function {
  lb_op op;
  lb_reference_fn *fn;
  double (*formula)(double x);
  double lo, hi;
} function;

static double reciprocal(double x) { return 1 / x; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return log1p(exp(x)); }
static double softsign(double x) { return x / (1 + fabs(x)); }
static double mish(double x) { return x * tanh(softplus(x)); }
static double elu(double x) { return x < 0 ? expm1(x) : x; }
static double gelu(double x) { return x * (1 + erf(x / sqrt(2))) / 2; }
static double leaky(double x) { return x < 0 ? (double)0.01f * x : x; }
static double relu(double x) { return x < 0 ? 0 : x; }
static double swish(double x) { return x * sigmoid(x); }
static double thresholded(double x) { return x > 1 ? x : 0; }
static double negative(double x) { return -x; }
static double unit(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
static double hard_sigmoid(double x) { return unit((double)0.2f * x + 0.5); }
static double hard_swish(double x) { return x * unit(x / 6 + 0.5); }
static double shrink(double x) { return x < -0.5 || x > 0.5 ? x : 0; }
static double selu(double x) {
  return (double)1.05070102f * (x > 0 ? x : (double)1.67326319f * expm1(x));
}

static const function functions[] = {
    {FN(Acos), acos, -1, 1},
    {FN(Acosh), acosh, 1, 9},
    {FN(Asin), asin, -1, 1},
    {FN(Asinh), asinh, -9, 9},
    {FN(Atan), atan, -9, 9},
    {FN(Atanh), atanh, -0.9, 0.9},
    {FN(Ceil), ceil, -9, 9},
    {FN(Celu), elu, -4, 4},
    {FN(Cos), cos, -9, 9},
    {FN(Cosh), cosh, -4, 4},
    {FN(Elu), elu, -4, 4},
    {FN(Erf), erf, -4, 4},
    {FN(Exp), exp, -4, 4},
    {FN(Floor), floor, -9, 9},
    {FN(Gelu), gelu, -4, 4},
    {FN(HardSigmoid), hard_sigmoid, -4, 4},
    {FN(HardSwish), hard_swish, -4, 4},
    {FN(LeakyRelu), leaky, -4, 4},
    {FN(Log), log, 0.1, 9},
    {FN(Mish), mish, -4, 4},
    {FN(Neg), negative, -9, 9},
    {FN(Abs), fabs, -9, 9},
    {FN(Reciprocal), reciprocal, 0.1, 9},
    {FN(Relu), relu, -9, 9},
    {FN(Round), rint, -9, 9},
    {FN(Selu), selu, -4, 4},
    {FN(Shrink), shrink, -2, 2},
    {FN(Sigmoid), sigmoid, -9, 9},
    {FN(Sin), sin, -9, 9},
    {FN(Sinh), sinh, -4, 4},
    {FN(Softplus), softplus, -9, 9},
    {FN(Softsign), softsign, -9, 9},
    {FN(Sqrt), sqrt, 0, 9},
    {FN(Swish), swish, -9, 9},
    {FN(Tan), tan, -1.2, 1.2},
    {FN(Tanh), tanh, -4, 4},
    {FN(ThresholdedRelu), thresholded, -2, 2},
};
#define N_FUNCTIONS ((int64_t)(sizeof functions / sizeof *functions))

static void function_one(test_case *t) {
  const function *f = &functions[t->seed % (uint64_t)N_FUNCTIONS];
  int64_t dims[LB_MAX_RANK];
  lb_dtype dtype = case_float(t);
  int rank = case_dims(t, 0, 4, dims);
  case_begin(t, f->op);
  case_in(t, case_numbers(t, dtype, rank, dims, f->lo, f->hi));
  t->out[0] = case_dense(t, dtype, rank, dims);
  CASE_CHECK(t, case_run(t, f->fn) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    double want = f->formula(number(&t->in[0], i));
    CASE_CHECK(t, near(number(&t->out[0], i), want, 4 * rounding(dtype)));
  }
}
CASE_TEST(functions_match_libm_in_any_layout, 20 * N_FUNCTIONS, function_one)

static void activations_propagate_nan(void **state) {
  (void)state;
  for (int64_t k = 0; k < N_FUNCTIONS; k++) {
    const function *f = &functions[k];
    if (f->op == LB_OP_Shrink || f->op == LB_OP_ThresholdedRelu) continue;
    for (int d = 0; d < 4; d++)
      check_example(&(example){f->op,
                               f->fn,
                               float_dtypes[d],
                               float_dtypes[d],
                               1,
                               1,
                               {{NAN}},
                               {NAN}});
  }
}

static void zeros_keep_their_sign(void **state) {
  (void)state;
  const example examples[] = {
      {FN(Relu), LB_F32, LB_F32, 2, 1, {{-0.0, 0.0}}, {-0.0, 0.0}},
      {FN(Round), LB_F32, LB_F32, 2, 1, {{-0.4, -0.0}}, {-0.0, -0.0}},
      {FN(Ceil), LB_F16, LB_F16, 2, 1, {{-0.5, -0.0}}, {-0.0, -0.0}},
      {FN(Sqrt), LB_F64, LB_F64, 2, 1, {{-0.0, -1}}, {-0.0, NAN}},
      {FN(Neg), LB_BF16, LB_BF16, 2, 1, {{-0.0, 0.0}}, {0.0, -0.0}},
      {FN(Abs), LB_F32, LB_F32, 1, 1, {{-0.0}}, {0.0}},
  };
  for (size_t k = 0; k < sizeof examples / sizeof *examples; k++)
    check_example(&examples[k]);
}

static void edge_values_are_as_defined(void **state) {
  (void)state;
  const double inf = INFINITY;
  const example examples[] = {
      {FN(Round),
       LB_F32,
       LB_F32,
       5,
       1,
       {{0.5, 1.5, 2.5, -1.5, -2.5}},
       {0, 2, 2, -2, -2}},
      {FN(Exp), LB_F32, LB_F32, 4, 1, {{inf, -inf, 100, 0}}, {inf, 0, inf, 1}},
      {FN(Log), LB_F32, LB_F32, 3, 1, {{0, -1, inf}}, {-inf, NAN, inf}},
      {FN(Sigmoid), LB_F32, LB_F32, 2, 1, {{-1000, 1000}}, {0, 1}},
      {FN(Softplus), LB_F32, LB_F32, 2, 1, {{1000, -1000}}, {1000, 0}},
      {FN(Sign), LB_F32, LB_F32, 4, 1, {{-inf, -0.0, 3, NAN}}, {-1, 0, 1, NAN}},
      {FN(Sign), LB_U8, LB_U8, 2, 1, {{0, 200}}, {0, 1}},
      {FN(Abs), LB_I8, LB_I8, 2, 1, {{-128, -127}}, {-128, 127}},
      {FN(Abs), LB_I32, LB_I32, 1, 1, {{-0x1p31}}, {-0x1p31}},
      {FN(Abs), LB_I64, LB_I64, 1, 1, {{-0x1p63}}, {-0x1p63}},
      {FN(Neg), LB_I16, LB_I16, 2, 1, {{-32768, 5}}, {-32768, -5}},
      {FN(Relu), LB_I8, LB_I8, 2, 1, {{-128, 5}}, {0, 5}},
      {FN(BitwiseNot), LB_U16, LB_U16, 2, 1, {{0, 1}}, {65535, 65534}},
      {FN(BitwiseNot), LB_I8, LB_I8, 2, 1, {{0, 127}}, {-1, -128}},
      {FN(Not), LB_BOOL, LB_BOOL, 2, 1, {{0, 1}}, {1, 0}},
      {FN(ThresholdedRelu), LB_F32, LB_F32, 2, 1, {{NAN, inf}}, {0, inf}},
      {FN(Shrink), LB_F64, LB_F64, 2, 1, {{NAN, 0.25}}, {0, 0}},
      {FN(Clip), LB_F32, LB_F32, 1, 1, {{-inf}}, {-FLT_MAX}},
      {FN(Clip), LB_F64, LB_F64, 1, 1, {{inf}}, {DBL_MAX}},
      {FN(Clip), LB_F16, LB_F16, 2, 1, {{-inf, inf}}, {-65504, 65504}},
      {FN(Clip), LB_BF16, LB_BF16, 1, 1, {{NAN}}, {NAN}},
      {FN(IsNaN), LB_F16, LB_BOOL, 3, 1, {{NAN, inf, 0}}, {1, 0, 0}},
      {FN(IsInf), LB_F32, LB_BOOL, 4, 1, {{NAN, inf, -inf, 0}}, {0, 1, 1, 0}},
      {FN(Shrink), LB_I32, LB_I32, 3, 1, {{-3, 0, 3}}, {-3, 0, 3}},
  };
  for (size_t k = 0; k < sizeof examples / sizeof *examples; k++)
    check_example(&examples[k]);
}

static void is_inf_distinguishes_signs(void **state) {
  (void)state;
  test_case t = {.name = "IsInf"};
  case_begin(&t, LB_OP_IsInf);
  case_attr_int(&t, "detect_negative", 0);
  case_in(&t, case_floats(&t, LB_F32, (double[]){INFINITY, -INFINITY}, 2));
  int64_t n = 2;
  t.out[0] = case_dense(&t, LB_BOOL, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_IsInf), LB_CODE_OK);
  assert_memory_equal(t.out[0].data, "\1\0", 2);
  case_end(&t);
}

static void clip_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  lb_dtype dtype = t->seed % 2 ? case_float(t) : case_integer(t);
  int rank = case_dims(t, 0, 3, dims);
  double limit[2] = {case_number(t, 0, 9), case_number(t, 0, 9)};
  bool given[2] = {case_int(t, 0, 1), case_int(t, 0, 1)};
  case_begin(t, LB_OP_Clip);
  case_in(t, case_numbers(t, dtype, rank, dims, 0, 9));
  for (int k = 0; k < 2; k++) {
    lb_tensor one = {0};
    if (given[k]) one = case_dense(t, dtype, 0, NULL);
    if (given[k]) put(&one, NULL, limit[k]);
    if (given[k]) limit[k] = number(&one, NULL);
    case_in(t, one);
  }
  t->out[0] = case_dense(t, dtype, rank, dims);
  CASE_CHECK(t, case_run(t, lb_reference_Clip) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    double want = number(&t->in[0], i);
    if (given[0]) want = fmax(want, limit[0]);
    if (given[1]) want = fmin(want, limit[1]);
    CASE_CHECK(t, number(&t->out[0], i) == want);
  }
}
CASE_TEST(clip_takes_either_limit_and_the_upper_wins, 100, clip_one)

static void clip_of_large_integers_is_exact(void **state) {
  (void)state;
  test_case t = {.name = "Clip"};
  const int64_t n = 1, x = INT64_MAX, hi = INT64_MAX - 1;
  case_begin(&t, LB_OP_Clip);
  case_in(&t, case_i64(&t, 1, &n, &x));
  case_in(&t, (lb_tensor){0});
  case_in(&t, case_i64(&t, 0, NULL, &hi));
  t.out[0] = case_dense(&t, LB_I64, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_Clip), LB_CODE_OK);
  assert_true(*(int64_t *)t.out[0].data == hi);
  case_end(&t);
}

static void dropout_one(test_case *t) {
  const int64_t n = 2000;
  double ratio = 0.25;
  bool training = t->seed % 2;
  case_begin(t, LB_OP_Dropout);
  case_attr_int(t, "seed", 7);
  t->node.n_out = 2;
  case_in(t, case_numbers(t, case_float(t), 1, &n, 1, 2));
  case_in(t, case_floats(t, LB_F32, &ratio, 1));
  case_in(t, case_floats(t, LB_BOOL, (double[]){training}, 1));
  t->out[0] = case_dense(t, t->in[0].dtype, 1, &n);
  t->out[1] = case_dense(t, LB_BOOL, 1, &n);
  CASE_CHECK(t, case_run(t, lb_reference_Dropout) == LB_CODE_OK);
  int kept = 0;
  double scale = training ? 1 / 0.75 : 1;
  CASE_EACH(&t->out[0], i) {
    bool keep = number(&t->out[1], i) != 0;
    double want = keep ? number(&t->in[0], i) * scale : 0;
    CASE_CHECK(t,
               near(number(&t->out[0], i), want, 2 * rounding(t->in[0].dtype)));
    kept += keep;
  }
  CASE_CHECK(t, training ? kept > 1400 && kept < 1600 : kept == n);
  case_each_alone(t, lb_reference_Dropout);
}
CASE_TEST(dropout_drops_and_scales_in_training_only, 8, dropout_one)

static void dropout_of_everything_is_refused(void **state) {
  (void)state;
  test_case t = {.name = "Dropout"};
  int64_t n = 1;
  case_begin(&t, LB_OP_Dropout);
  for (int k = 0; k < 3; k++)
    case_in(&t, case_floats(&t, LB_F32, (double[]){1}, 1));
  t.out[0] = case_dense(&t, LB_F32, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_Dropout), LB_INVALID);
  case_end(&t);
}

static void unknown_dtypes_are_named(void **state) {
  (void)state;
  test_case t = {.name = "Exp"};
  int64_t n = 1;
  case_begin(&t, LB_OP_Exp);
  case_in(&t, case_i64(&t, 1, &n, &n));
  t.out[0] = case_dense(&t, LB_I64, 1, &n);
  lb_status st = lb_reference_run(&t.call);
  assert_int_equal(lb_status_code(st), LB_UNSUPPORTED);
  assert_non_null(strstr(lb_status_message(st), "'node'"));
  assert_non_null(strstr(lb_status_message(st), "int64"));
  lb_status_drop(st);
  case_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_match_libm_in_any_layout),
      cmocka_unit_test(activations_propagate_nan),
      cmocka_unit_test(zeros_keep_their_sign),
      cmocka_unit_test(edge_values_are_as_defined),
      cmocka_unit_test(is_inf_distinguishes_signs),
      cmocka_unit_test(clip_takes_either_limit_and_the_upper_wins),
      cmocka_unit_test(clip_of_large_integers_is_exact),
      cmocka_unit_test(dropout_drops_and_scales_in_training_only),
      cmocka_unit_test(dropout_of_everything_is_refused),
      cmocka_unit_test(unknown_dtypes_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
