// device/reference/create_test.c -- operators that create tensors from shapes
// or scalars.
#include "device/reference/case_test.h"

static lb_tensor one_number(test_case *t, lb_dtype dtype, double v) {
  lb_tensor from = {.dtype = LB_F64, .data = &v};
  lb_tensor x = case_dense(t, dtype, 0, NULL);
  assert_false(lb_failed(lb_reference_convert(&from, &x)));
  return x;
}

static double number_at(const lb_tensor *x, const int64_t *index) {
  double v;
  lb_tensor from = {.dtype = x->dtype, .data = case_at(x, index)};
  lb_tensor to = {.dtype = LB_F64, .data = &v};
  assert_false(lb_failed(lb_reference_convert(&from, &to)));
  return v;
}

static void shape_starts_at_start(void **state) {
  (void)state;
  struct {
    int64_t start, n, dims[3];
  } cases[] = {{0, 3, {2, 0, 4}}, {1, 2, {0, 4}}, {-1, 1, {4}},
               {-9, 2, {2, 0}},   {3, 0, {0}},    {INT64_MAX, 0, {0}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    test_case t = {.name = "shape"};
    case_begin(&t, LB_OP_Shape);
    case_attr_int(&t, "start", cases[i].start);
    case_in(&t, case_dense(&t, LB_F32, 3, (int64_t[]){2, 0, 4}));
    t.out[0] = case_dense(&t, LB_I64, 1, &cases[i].n);
    assert_int_equal(case_run(&t, lb_reference_Shape), LB_CODE_OK);
    for (int64_t k = 0; k < cases[i].n; k++)
      assert_int_equal(case_int_at(&t.out[0], &k), cases[i].dims[k]);
    case_end(&t);
  }
}

static void size_counts_elements(void **state) {
  (void)state;
  test_case t = {.name = "size"};
  case_begin(&t, LB_OP_Size);
  case_in(&t, case_dense(&t, LB_F32, 2, (int64_t[]){6, 7}));
  t.out[0] = case_dense(&t, LB_I64, 0, NULL);
  assert_int_equal(case_run(&t, lb_reference_Size), LB_CODE_OK);
  assert_int_equal(case_int_at(&t.out[0], NULL), 42);
  case_end(&t);
}

static void constant_one(test_case *t) {
  int64_t dims[] = {case_dim(t), case_dim(t)};
  bool given = case_int(t, 0, 1);
  lb_dtype dtype = given ? case_dtype(t) : LB_F32;
  lb_tensor value = case_random(t, dtype, 1, (int64_t[]){1});
  case_begin(t, LB_OP_ConstantOfShape);
  case_in(t, case_ints(t, dims, 2));
  if (given)
    t->attrs[t->node.n_attrs++] =
        (lb_attr){.name = "value", .kind = LB_ATTR_TENSOR, .tensor = &value};
  else
    memset(value.data, 0, 4);
  t->out[0] = case_dense(t, dtype, 2, dims);
  CASE_CHECK(t, case_run(t, lb_reference_ConstantOfShape) == LB_CODE_OK);
  int64_t zero = 0;
  CASE_EACH(&t->out[0], i) CASE_SAME(t, &t->out[0], i, &value, &zero);
}

static void range_one(test_case *t) {
  lb_dtype dtype;
  do dtype = case_dtype(t);
  while (dtype == LB_BOOL);
  bool is_unsigned = lb_dtype_is_integer(dtype) && !lb_dtype_is_signed(dtype);
  int64_t n = case_dim(t);
  double delta = (double)case_int(t, is_unsigned ? 0 : -3, 3);
  double start = (double)case_int(t, is_unsigned ? 0 : -10, 10);
  if (lb_dtype_is_float(dtype)) delta /= 4;
  case_begin(t, LB_OP_Range);
  case_in(t, one_number(t, dtype, start));
  case_in(t, one_number(t, dtype, 0));
  case_in(t, one_number(t, dtype, delta));
  t->out[0] = case_dense(t, dtype, 1, &n);
  CASE_CHECK(t, case_run(t, lb_reference_Range) == LB_CODE_OK);
  for (int64_t i = 0; i < n; i++)
    CASE_CHECK(t, number_at(&t->out[0], &i) == start + (double)i * delta);
}

static void ranges_of_extreme_integers_wrap(void **state) {
  (void)state;
  test_case t = {.name = "range"};
  int64_t start = INT64_MAX - 1, delta = INT64_MAX, n = 3;
  case_begin(&t, LB_OP_Range);
  case_in(&t, case_i64(&t, 0, NULL, &start));
  case_in(&t, case_i64(&t, 0, NULL, &start));
  case_in(&t, case_i64(&t, 0, NULL, &delta));
  t.out[0] = case_dense(&t, LB_I64, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_Range), LB_CODE_OK);
  int64_t expected[] = {INT64_MAX - 1, -3, INT64_MAX - 3};
  assert_memory_equal(t.out[0].data, expected, sizeof expected);
  case_end(&t);
}

static void eye_one(test_case *t) {
  static const int64_t far[] = {INT64_MIN, INT64_MAX};
  int64_t dims[] = {case_dim(t), case_dim(t)};
  int64_t k = case_int(t, 0, 5) ? case_int(t, -6, 6) : far[case_int(t, 0, 1)];
  case_begin(t, LB_OP_EyeLike);
  case_attr_int(t, "k", k);
  case_in(t, case_random(t, LB_F32, 2, dims));
  t->out[0] = case_dense(t, case_dtype(t), 2, dims);
  CASE_CHECK(t, case_run(t, lb_reference_EyeLike) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i)
  CASE_CHECK(t, number_at(&t->out[0], i) == (i[1] - i[0] == k));
}

static void one_hot_one(test_case *t) {
  int64_t idims[LB_MAX_RANK], dims[LB_MAX_RANK], depth = case_dim(t);
  int rank = (int)case_int(t, 0, 3), axis = (int)case_int(t, 0, rank);
  for (int i = 0; i < rank; i++) idims[i] = case_dim(t);
  for (int i = 0; i <= rank; i++)
    dims[i] = i == axis ? depth : idims[i < axis ? i : i - 1];
  lb_tensor indices = case_dense(t, LB_I64, rank, idims);
  for (int64_t i = 0; i < lb_tensor_count(&indices); i++)
    ((int64_t *)indices.data)[i] = case_int(t, -depth - 1, depth + 1);
  case_begin(t, LB_OP_OneHot);
  if (axis != rank || case_int(t, 0, 1))
    case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank - 1);
  case_in(t, case_scatter(t, &indices));
  case_in(t, case_ints(t, &depth, 1));
  case_in(t, case_random(t, case_dtype(t), 1, (int64_t[]){2}));
  t->out[0] = case_dense(t, t->in[2].dtype, rank + 1, dims);
  CASE_CHECK(t, case_run(t, lb_reference_OneHot) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t at[LB_MAX_RANK];
    for (int k = 0; k < rank; k++) at[k] = i[k < axis ? k : k + 1];
    int64_t index = case_int_at(&indices, at);
    int64_t on = index == i[axis] || index + depth == i[axis];
    CASE_SAME(t, &t->out[0], i, &t->in[2], &on);
  }
}

CASE_TEST(constants_fill_any_shape, 200, constant_one)
CASE_TEST(ranges_step_by_delta, 300, range_one)
CASE_TEST(eyes_have_one_diagonal, 200, eye_one)
CASE_TEST(one_hot_accepts_negative_indices, 400, one_hot_one)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shape_starts_at_start),
      cmocka_unit_test(size_counts_elements),
      cmocka_unit_test(constants_fill_any_shape),
      cmocka_unit_test(ranges_step_by_delta),
      cmocka_unit_test(ranges_of_extreme_integers_wrap),
      cmocka_unit_test(eyes_have_one_diagonal),
      cmocka_unit_test(one_hot_accepts_negative_indices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
