// device/reference/quantize_test.c -- scales per tensor, axis and block.
#include "device/reference/formula_test.h"

static const lb_dtype small_dtypes[] = {LB_I8, LB_U8, LB_I16, LB_U16};

static double saturate(double v, lb_dtype dtype) {
  double bits = 8 * (double)lb_dtype_size(dtype);
  bool is_signed = lb_dtype_is_signed(dtype);
  double lo = is_signed ? -pow(2, bits - 1) : 0;
  double hi = pow(2, is_signed ? bits - 1 : bits) - 1;
  return fmin(fmax(v, lo), hi);
}

// The dims of the scale: scalar, per axis, or per block. Returns the number of
// elements along the axis that share a scale.
static int64_t scale_dims(test_case *t, int rank, const int64_t *dims, int axis,
                          int *scale_rank, int64_t *out) {
  int kind = (int)(t->seed % 3);
  *scale_rank = kind == 0 ? 0 : kind == 1 ? 1 : rank;
  if (kind == 1) out[0] = dims[axis];
  if (kind < 2) return 1;
  int64_t block = case_int(t, 1, 4);
  for (int i = 0; i < rank; i++) out[i] = dims[i];
  out[axis] = (dims[axis] + block - 1) / block;
  case_attr_int(t, "block_size", block);
  return block;
}

// Random x, scale and zero point; `quantized` is the dtype of the zero point.
static int64_t quantize_case(test_case *t, lb_op op, lb_dtype x,
                             lb_dtype quantized, int *axis) {
  int64_t dims[LB_MAX_RANK], own[LB_MAX_RANK];
  int rank = case_dims(t, 1, 4, dims), scale_rank;
  *axis = (int)case_int(t, 0, rank - 1);
  case_begin(t, op);
  case_attr_int(t, "axis", *axis - rank);
  if (rank == 1) *axis = 0;
  int64_t block = scale_dims(t, rank, dims, *axis, &scale_rank, own);
  bool floats = lb_dtype_is_float(x);
  case_in(t, case_numbers(t, x, rank, dims, floats ? -40 : 0, 90));
  case_in(t, case_numbers(t, LB_F32, scale_rank, own, 0.125, 1));
  case_in(t, case_numbers(t, quantized, scale_rank, own, 0, 9));
  return block;
}

// The index of the scale of element i.
static const int64_t *scale_at(const test_case *t, const int64_t *i, int axis,
                               int64_t block, int64_t *out) {
  memcpy(out, i, LB_MAX_RANK * sizeof *out);
  if (t->seed % 3 == 1) out[0] = t->in[1].dims[0] == 1 ? 0 : i[axis];
  if (t->seed % 3 == 2) out[axis] /= block;
  return out;
}

static void quantize_one(test_case *t) {
  lb_dtype to = small_dtypes[case_int(t, 0, 3)], from = case_float(t);
  if (from == LB_F64) from = LB_I32;
  int axis;
  int64_t block = quantize_case(t, LB_OP_QuantizeLinear, from, to, &axis);
  t->out[0] = case_dense(t, to, t->in[0].rank, t->in[0].dims);
  CASE_CHECK(t, case_run(t, lb_reference_QuantizeLinear) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t at[LB_MAX_RANK];
    scale_at(t, i, axis, block, at);
    float x = (float)number(&t->in[0], i), s = (float)number(&t->in[1], at);
    double want = (double)rintf(x / s) + number(&t->in[2], at);
    CASE_CHECK(t, number(&t->out[0], i) == saturate(want, to));
  }
}
CASE_TEST(quantized_values_round_and_saturate, 150, quantize_one)

static void dequantize_one(test_case *t) {
  lb_dtype from = small_dtypes[case_int(t, 0, 3)], to = case_float(t);
  if (to == LB_F64) to = LB_F32;
  int axis;
  int64_t block = quantize_case(t, LB_OP_DequantizeLinear, from, from, &axis);
  t->out[0] = case_dense(t, to, t->in[0].rank, t->in[0].dims);
  CASE_CHECK(t, case_run(t, lb_reference_DequantizeLinear) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t at[LB_MAX_RANK];
    scale_at(t, i, axis, block, at);
    double want = number(&t->in[0], i) - number(&t->in[2], at);
    want *= number(&t->in[1], at);
    CASE_CHECK(t, near(number(&t->out[0], i), want, rounding(to)));
  }
}
CASE_TEST(dequantized_values_match_the_formula, 150, dequantize_one)

static void quantize_edges_are_defined(void **state) {
  (void)state;
  test_case t = {.name = "QuantizeLinear"};
  const double x[] = {NAN, INFINITY, -INFINITY, 0.5, 1.5, 2.5, 1e30};
  const double want[] = {0, 255, 0, 0, 2, 2, 255};
  int64_t n = 7;
  case_begin(&t, LB_OP_QuantizeLinear);
  case_in(&t, case_floats(&t, LB_F32, x, n));
  case_in(&t, case_floats(&t, LB_F32, (double[]){1}, 1));
  t.out[0] = case_dense(&t, LB_U8, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_QuantizeLinear), LB_CODE_OK);
  CASE_EACH(&t.out[0], i)
  assert_true(number(&t.out[0], i) == want[i[0]]);
  case_end(&t);
}

static void scale_and_zero_point_may_differ_in_rank(void **state) {
  (void)state;
  for (int rank = 0; rank < 2; rank++) {
    test_case t = {.name = "QuantizeLinear"};
    int64_t n = 3;
    case_begin(&t, LB_OP_QuantizeLinear);
    case_in(&t, case_floats(&t, LB_F32, (double[]){1, 2, -4}, n));
    case_in(&t, case_floats(&t, LB_F32, (double[]){0.5}, 1));
    case_in(&t, case_floats(&t, LB_U8, (double[]){10}, 1));
    t.in[1 + rank].rank = 0;
    t.out[0] = case_dense(&t, LB_U8, 1, &n);
    assert_int_equal(case_run(&t, lb_reference_QuantizeLinear), LB_CODE_OK);
    const double want[] = {12, 14, 2};
    CASE_EACH(&t.out[0], i)
    assert_true(number(&t.out[0], i) == want[i[0]]);
    case_end(&t);
  }
}

static void scales_of_wrong_dims_are_refused(void **state) {
  (void)state;
  for (int64_t block = 0; block < 3; block++) {
    test_case t = {.name = "QuantizeLinear"};
    int64_t dims[] = {2, 5}, scales[] = {2, 2};
    case_begin(&t, LB_OP_QuantizeLinear);
    case_attr_int(&t, "block_size", block);
    case_in(&t, case_numbers(&t, LB_F32, 2, dims, 0, 1));
    case_in(&t, case_numbers(&t, LB_F32, 2, scales, 1, 2));
    t.out[0] = case_dense(&t, LB_U8, 2, dims);
    assert_int_equal(case_run(&t, lb_reference_QuantizeLinear), LB_INVALID);
    case_end(&t);
  }
}

static void dynamic(const double *x, int64_t n, double scale, double zero_point,
                    const double *want) {
  test_case t = {.name = "DynamicQuantizeLinear"};
  case_begin(&t, LB_OP_DynamicQuantizeLinear);
  t.node.n_out = 3;
  case_in(&t, case_floats(&t, LB_F32, x, n));
  t.out[0] = case_dense(&t, LB_U8, 1, &n);
  t.out[1] = case_dense(&t, LB_F32, 0, NULL);
  t.out[2] = case_dense(&t, LB_U8, 0, NULL);
  assert_int_equal(case_run(&t, lb_reference_DynamicQuantizeLinear),
                   LB_CODE_OK);
  assert_true(near(number(&t.out[1], NULL), scale, 1e-6));
  assert_true(number(&t.out[2], NULL) == zero_point);
  CASE_EACH(&t.out[0], i)
  assert_true(number(&t.out[0], i) == want[i[0]]);
  case_end(&t);
}

static void dynamic_range_includes_zero(void **state) {
  (void)state;
  dynamic((double[]){-85, 170, 0}, 3, 1, 85, (double[]){0, 255, 85});
  dynamic((double[]){255, 51}, 2, 1, 0, (double[]){255, 51});
  dynamic((double[]){0, 0}, 2, 1, 0, (double[]){0, 0});
  dynamic(NULL, 0, 1, 0, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quantized_values_round_and_saturate),
      cmocka_unit_test(dequantized_values_match_the_formula),
      cmocka_unit_test(quantize_edges_are_defined),
      cmocka_unit_test(scale_and_zero_point_may_differ_in_rank),
      cmocka_unit_test(scales_of_wrong_dims_are_refused),
      cmocka_unit_test(dynamic_range_includes_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
