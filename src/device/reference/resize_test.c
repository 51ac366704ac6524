// device/reference/resize_test.c -- Resize against values computed by hand, and
// properties that hold for every mode.
#include "device/reference/number_test.h"

// Inputs and output to resize a row of n numbers to `m` by `scale` (0: by
// size).
static void row(test_case *t, int64_t n, const double *x, int64_t m,
                double scale) {
  case_in(t, number_list(t, LB_F32, 1, &n, x));
  case_in(t, (lb_tensor){0});
  if (scale > 0) {
    case_in(t, number_list(t, LB_F32, 1, (int64_t[]){1}, &scale));
  } else {
    case_in(t, (lb_tensor){0});
    case_in(t, case_ints(t, &m, 1));
  }
  t->out[0] = case_dense(t, LB_F32, 1, &m);
}

typedef struct example {
  const char *mode, *coord, *rounding;
  int64_t n, m;
  double scale;
  double x[4], y[8];
} example;

static void rows_match_hand_computed_values(void **state) {
  (void)state;
  static const example all[] = {
      {"nearest", "asymmetric", "floor", 2, 4, 2, {1, 2}, {1, 1, 2, 2}},
      {"nearest",
       "half_pixel",
       "round_prefer_floor",
       4,
       2,
       0.5,
       {1, 2, 3, 4},
       {1, 3}},
      {"nearest",
       "half_pixel",
       "round_prefer_ceil",
       4,
       2,
       0.5,
       {1, 2, 3, 4},
       {2, 4}},
      {"nearest",
       "tf_half_pixel_for_nn",
       "floor",
       4,
       2,
       0.5,
       {1, 2, 3, 4},
       {2, 4}},
      {"nearest", "asymmetric", "ceil", 2, 4, 0, {1, 2}, {1, 2, 2, 2}},
      {"nearest", "asymmetric", "by_scale", 2, 3, 1.5, {1, 2}, {1, 1, 2}},
      {"nearest", "asymmetric", "by_scale", 3, 2, 0.75, {1, 2, 3}, {1, 3}},
      {"linear", "half_pixel", "floor", 2, 4, 2, {0, 4}, {0, 1, 3, 4}},
      {"linear", "align_corners", "floor", 2, 3, 0, {0, 4}, {0, 2, 4}},
      {"linear", "asymmetric", "floor", 2, 4, 2, {0, 4}, {0, 2, 4, 4}},
      {"linear", "pytorch_half_pixel", "floor", 4, 1, 0, {1, 2, 3, 4}, {1}},
      // Weights of cubic convolution at one half: -3/32, 19/32, 19/32, -3/32.
      {"cubic",
       "asymmetric",
       "floor",
       4,
       8,
       2,
       {0, 0, 32, 0},
       {0, -3, 0, 19, 32, 19, 0, -3}},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const example *e = &all[i];
    test_case t = {0};
    case_begin(&t, LB_OP_Resize);
    case_attr_str(&t, "mode", e->mode);
    case_attr_str(&t, "coordinate_transformation_mode", e->coord);
    case_attr_str(&t, "nearest_mode", e->rounding);
    row(&t, e->n, e->x, e->m, e->scale);
    assert_int_equal(case_run(&t, lb_reference_Resize), LB_CODE_OK);
    for (int64_t o = 0; o < e->m; o++)
      if (!number_near(&t.out[0], &o, e->y[o], 1e-6))
        fail_msg("example %zu: output %d is %g, not %g", i, (int)o,
                 number_at(&t.out[0], &o), e->y[o]);
    case_end(&t);
  }
}

// Weights sum to one, so a constant input stays constant in every mode.
static void constant_one(test_case *t) {
  static const char *const modes[] = {"nearest", "linear", "cubic"};
  static const char *const coords[] = {"half_pixel", "half_pixel_symmetric",
                                       "pytorch_half_pixel", "align_corners",
                                       "asymmetric"};
  int64_t rank = case_int(t, 1, 4), in[4], out[4];
  for (int d = 0; d < rank; d++) {
    in[d] = case_int(t, 1, 9);
    out[d] = case_int(t, 0, 2) ? case_int(t, 1, 12) : in[d];
  }
  int64_t mode = case_int(t, 0, 2);
  case_begin(t, LB_OP_Resize);
  case_attr_str(t, "mode", modes[mode]);
  case_attr_str(t, "coordinate_transformation_mode", coords[case_int(t, 0, 4)]);
  case_attr_int(t, "exclude_outside", case_int(t, 0, 1));
  case_attr_int(t, "antialias", mode > 0 && case_int(t, 0, 1));
  lb_dtype dtype = case_int(t, 0, 3) ? number_float(t) : LB_U8;
  lb_tensor x = case_dense(t, dtype, (int)rank, in);
  CASE_EACH(&x, i) number_set(&x, i, 3);
  case_in(t, case_scatter(t, &x));
  case_in(t, (lb_tensor){0});
  case_in(t, (lb_tensor){0});
  case_in(t, case_ints(t, out, rank));
  t->out[0] = case_dense(t, dtype, (int)rank, out);
  CASE_CHECK(t, case_run(t, lb_reference_Resize) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o)
  CASE_CHECK(t, number_near(&t->out[0], o, 3, 1e-5));
}
CASE_TEST(constant_inputs_stay_constant, 200, constant_one)

// Nearest copies elements of any dtype unchanged: downsampling by an integer
// factor selects every factor-th element.
static void nearest_one(test_case *t) {
  int64_t out[3], in[3], factor = case_int(t, 1, 3);
  for (int d = 0; d < 3; d++) {
    out[d] = case_int(t, 1, 5);
    in[d] = out[d] * factor;
  }
  lb_dtype dtype = case_dtype(t);
  case_begin(t, LB_OP_Resize);
  case_attr_str(t, "coordinate_transformation_mode", "asymmetric");
  case_attr_str(t, "nearest_mode", "floor");
  case_in(t, case_random(t, dtype, 3, in));
  case_in(t, (lb_tensor){0});
  case_in(t, (lb_tensor){0});
  case_in(t, case_ints(t, out, 3));
  t->out[0] = case_dense(t, dtype, 3, out);
  CASE_CHECK(t, case_run(t, lb_reference_Resize) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    int64_t from[3];
    for (int d = 0; d < 3; d++) from[d] = o[d] * factor;
    CASE_SAME(t, &t->out[0], o, &t->in[0], from);
  }
}
CASE_TEST(nearest_copies_elements_of_any_dtype, 100, nearest_one)

static void outside_a_region_is_the_extrapolation_value(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t two = 2, three = 3;
  case_begin(&t, LB_OP_Resize);
  case_attr_str(&t, "mode", "linear");
  case_attr_str(&t, "coordinate_transformation_mode", "tf_crop_and_resize");
  case_attr_float(&t, "extrapolation_value", 9);
  case_in(&t, number_list(&t, LB_F32, 1, &three, (double[]){1, 2, 3}));
  case_in(&t, number_list(&t, LB_F32, 1, &two, (double[]){0.5, 1.5}));
  case_in(&t, (lb_tensor){0});
  case_in(&t, case_ints(&t, &three, 1));
  t.out[0] = case_dense(&t, LB_F32, 1, &three);
  assert_int_equal(case_run(&t, lb_reference_Resize), LB_CODE_OK);
  assert_memory_equal(t.out[0].data, ((float[]){2, 3, 9}), 12);
  case_end(&t);
}

static void hostile_scales_are_refused(void **state) {
  (void)state;
  static const double scales[] = {0, -1, NAN, INFINITY, 1e-30};
  for (int i = 0; i < 5; i++) {
    test_case t = {0};
    const int64_t n = 4, m = 2, one = 1;
    case_begin(&t, LB_OP_Resize);
    case_attr_str(&t, "mode", "cubic");
    case_attr_int(&t, "antialias", 1);
    case_in(&t, number_random(&t, LB_F32, 1, &n));
    case_in(&t, (lb_tensor){0});
    case_in(&t, number_list(&t, LB_F32, 1, &one, &scales[i]));
    t.out[0] = case_dense(&t, LB_F32, 1, &m);
    assert_int_equal(case_run(&t, lb_reference_Resize), LB_INVALID);
    case_end(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_match_hand_computed_values),
      cmocka_unit_test(constant_inputs_stay_constant),
      cmocka_unit_test(nearest_copies_elements_of_any_dtype),
      cmocka_unit_test(outside_a_region_is_the_extrapolation_value),
      cmocka_unit_test(hostile_scales_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
