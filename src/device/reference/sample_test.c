// device/reference/sample_test.c -- sampling, regions and determinants:
// examples computed by hand, and invalid data.
#include "device/reference/number_test.h"

static float sampled(const char *mode, const char *pad, double x, double y) {
  test_case t = {0};
  const int64_t input_dims[] = {1, 1, 2, 2}, grid[] = {1, 1, 1, 2};
  const int64_t out[] = {1, 1, 1, 1};
  case_begin(&t, LB_OP_GridSample);
  case_attr_str(&t, "mode", mode);
  case_attr_str(&t, "padding_mode", pad);
  case_attr_int(&t, "align_corners", 1);
  case_in(&t, number_list(&t, LB_F32, 4, input_dims, (double[]){1, 2, 3, 4}));
  case_in(&t, number_list(&t, LB_F32, 4, grid, (double[]){x, y}));
  t.out[0] = case_dense(&t, LB_F32, 4, out);
  assert_int_equal(case_run(&t, lb_reference_GridSample), LB_CODE_OK);
  float v = (float)number_at(&t.out[0], (int64_t[4]){0});
  case_end(&t);
  return v;
}

static void a_grid_is_read_as_x_then_y(void **state) {
  (void)state;
  assert_float_equal(sampled("linear", "zeros", 1, -1), 2, 1e-6);
  assert_float_equal(sampled("linear", "zeros", 0, 0), 2.5f, 1e-6);
  assert_float_equal(sampled("nearest", "zeros", -0.9, 0.9), 3, 1e-6);
  assert_float_equal(sampled("cubic", "border", -1, 1), 3, 1e-6);
}

static void padding_mode_defines_values_outside(void **state) {
  (void)state;
  assert_float_equal(sampled("linear", "zeros", 9, 9), 0, 0);
  assert_float_equal(sampled("linear", "border", 9, -9), 2, 0);
  assert_float_equal(sampled("linear", "reflection", 3, -1), 1, 0);
}

static void no_coordinate_reads_out_of_bounds(void **state) {
  (void)state;
  static const char *const modes[] = {"nearest", "linear", "cubic"};
  static const char *const pads[] = {"zeros", "border", "reflection"};
  static const double wild[] = {NAN, INFINITY, -INFINITY, 1e30, -1e30, 1e18};
  for (int i = 0; i < 9; i++)
    for (int k = 0; k < 6; k++) sampled(modes[i / 3], pads[i % 3], wild[k], 0);
}

static lb_code align(double lo, double hi, int64_t input_dims, double *out) {
  test_case t = {0};
  const int64_t x[] = {1, 1, 2, 2}, roi[] = {1, 4}, one[] = {1, 1, 1, 1};
  case_begin(&t, LB_OP_RoiAlign);
  case_attr_str(&t, "coordinate_transformation_mode", "output_half_pixel");
  case_in(&t, number_list(&t, LB_F32, 4, x, (double[]){1, 2, 3, 4}));
  case_in(&t, number_list(&t, LB_F32, 2, roi, (double[]){lo, lo, hi, hi}));
  case_in(&t, case_ints(&t, &input_dims, 1));
  t.out[0] = case_dense(&t, LB_F32, 4, one);
  lb_code code = case_run(&t, lb_reference_RoiAlign);
  if (code == LB_CODE_OK) *out = number_at(&t.out[0], (int64_t[4]){0});
  case_end(&t);
  return code;
}

static void regions_are_averaged_and_checked(void **state) {
  (void)state;
  double v = 0;
  assert_int_equal(align(0, 1, 0, &v), LB_CODE_OK);
  assert_true(fabs(v - 2.5) < 1e-6);
  assert_int_equal(align(0, 1, 1, &v), LB_INVALID);
  assert_int_equal(align(0, 1, -1, &v), LB_INVALID);
  assert_int_equal(align(0, 1e30, 0, &v), LB_INVALID);
  assert_int_equal(align(0, NAN, 0, &v), LB_CODE_OK);
}

static void determinants_survive_a_zero_pivot(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t x[] = {2, 2, 2}, y = 2;
  case_begin(&t, LB_OP_Det);
  case_in(&t,
          number_list(&t, LB_F32, 3, x, (double[]){0, 2, 3, 4, 1, 2, 2, 4}));
  t.out[0] = case_dense(&t, LB_F32, 1, &y);
  assert_int_equal(case_run(&t, lb_reference_Det), LB_CODE_OK);
  assert_memory_equal(t.out[0].data, ((float[]){-6, 0}), 8);
  case_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_grid_is_read_as_x_then_y),
      cmocka_unit_test(padding_mode_defines_values_outside),
      cmocka_unit_test(no_coordinate_reads_out_of_bounds),
      cmocka_unit_test(regions_are_averaged_and_checked),
      cmocka_unit_test(determinants_survive_a_zero_pivot),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
