// device/reference/gather_test.c -- gather operators against their definitions.
#include "device/reference/case_test.h"

static int random_dims(test_case *t, int lo, int hi, int64_t *dims) {
  int rank = (int)case_int(t, lo, hi);
  for (int i = 0; i < rank; i++) dims[i] = case_dim(t);
  return rank;
}

// A random index into `dim` elements, positive or negative.
static int64_t some_index(test_case *t, int64_t dim) {
  return case_int(t, -dim, dim - 1);
}

static int64_t from_start(int64_t index, int64_t dim) {
  return index < 0 ? index + dim : index;
}

static void gather_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], idims[LB_MAX_RANK], to[LB_MAX_RANK];
  int rank = random_dims(t, 1, 4, dims), q = random_dims(t, 0, 3, idims);
  int axis = (int)case_int(t, 0, rank - 1);
  if (dims[axis] == 0) dims[axis] = 1;
  lb_tensor indices = case_dense(t, LB_I64, q, idims);
  for (int64_t i = 0; i < lb_tensor_count(&indices); i++)
    ((int64_t *)indices.data)[i] = some_index(t, dims[axis]);
  int n = 0;
  for (int i = 0; i < axis; i++) to[n++] = dims[i];
  for (int i = 0; i < q; i++) to[n++] = idims[i];
  for (int i = axis + 1; i < rank; i++) to[n++] = dims[i];
  case_begin(t, LB_OP_Gather);
  case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  case_in(t, case_scatter(t, &indices));
  t->out[0] = case_dense(t, t->in[0].dtype, n, to);
  CASE_CHECK(t, case_run(t, lb_reference_Gather) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK];
    for (int k = 0; k < axis; k++) from[k] = i[k];
    for (int k = axis + 1; k < rank; k++) from[k] = i[k + q - 1];
    from[axis] = from_start(case_int_at(&indices, i + axis), dims[axis]);
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

static void gather_elements_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], idims[LB_MAX_RANK];
  int rank = random_dims(t, 1, 4, dims), axis = (int)case_int(t, 0, rank - 1);
  if (dims[axis] == 0) dims[axis] = 1;
  for (int i = 0; i < rank; i++)
    idims[i] = i == axis ? case_dim(t) : case_int(t, 0, dims[i]);
  lb_tensor indices = case_dense(t, LB_I64, rank, idims);
  for (int64_t i = 0; i < lb_tensor_count(&indices); i++)
    ((int64_t *)indices.data)[i] = some_index(t, dims[axis]);
  case_begin(t, LB_OP_GatherElements);
  case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  case_in(t, case_scatter(t, &indices));
  t->out[0] = case_dense(t, t->in[0].dtype, rank, idims);
  CASE_CHECK(t, case_run(t, lb_reference_GatherElements) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK];
    memcpy(from, i, sizeof from);
    from[axis] = from_start(case_int_at(&indices, i), dims[axis]);
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

static void gather_nd_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], idims[LB_MAX_RANK], to[LB_MAX_RANK];
  int rank = random_dims(t, 1, 4, dims), b = (int)case_int(t, 0, rank - 1);
  int len = (int)case_int(t, 1, rank - b), q = b + (int)case_int(t, 1, 3), n;
  for (int i = 0; i < len; i++) dims[b + i] += dims[b + i] == 0;
  for (n = 0; n < q - 1; n++) to[n] = idims[n] = n < b ? dims[n] : case_dim(t);
  idims[q - 1] = len;
  for (int i = b + len; i < rank; i++) to[n++] = dims[i];
  lb_tensor indices = case_dense(t, LB_I64, q, idims);
  for (int64_t i = 0; i < lb_tensor_count(&indices); i++)
    ((int64_t *)indices.data)[i] = some_index(t, dims[b + i % len]);
  case_begin(t, LB_OP_GatherND);
  if (b > 0) case_attr_int(t, "batch_dims", b);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  case_in(t, case_scatter(t, &indices));
  t->out[0] = case_dense(t, t->in[0].dtype, n, to);
  CASE_CHECK(t, case_run(t, lb_reference_GatherND) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK], tuple[LB_MAX_RANK];
    memcpy(tuple, i, sizeof tuple);
    memcpy(from, i, sizeof from);
    for (int k = 0; k < len; k++) {
      tuple[q - 1] = k;
      from[b + k] = from_start(case_int_at(&indices, tuple), dims[b + k]);
    }
    for (int k = b + len; k < rank; k++) from[k] = i[q - 1 + k - b - len];
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

// -- refusals ----------------------------------------------------------------

static void expect_refusal(lb_reference_fn *fn, int q, const int64_t *idims,
                           int64_t index, const char *message) {
  test_case t = {.name = "gather"};
  int64_t n = 1;
  for (int i = 0; i < q; i++) n *= idims[i];
  case_begin(&t, LB_OP_Gather);
  case_in(&t, case_dense(&t, LB_F32, 2, (int64_t[]){3, 4}));
  lb_tensor indices = case_dense(&t, LB_I64, q, idims);
  for (int64_t i = 0; i < n; i++) ((int64_t *)indices.data)[i] = 0;
  ((int64_t *)indices.data)[n - 1] = index;
  case_in(&t, indices);
  t.out[0] = case_dense(&t, LB_F32, q, idims);
  lb_status st = fn(&t.call);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  assert_string_equal(lb_status_message(st), message);
  lb_status_drop(st);
  case_end(&t);
}

static void indices_out_of_range_are_named(void **state) {
  (void)state;
  int64_t two[] = {2, 2}, one[] = {1};
  expect_refusal(lb_reference_Gather, 1, one, 3,
                 "index 3 is out of range for axis 0 of size 3");
  expect_refusal(lb_reference_Gather, 1, one, -4,
                 "index -4 is out of range for axis 0 of size 3");
  expect_refusal(
      lb_reference_Gather, 1, one, INT64_MIN,
      "index -9223372036854775808 is out of range for axis 0 of size 3");
  expect_refusal(lb_reference_GatherElements, 2, two, 3,
                 "index 3 is out of range for axis 0 of size 3");
  expect_refusal(lb_reference_GatherND, 2, two, 4,
                 "index 4 is out of range for axis 1 of size 4");
  expect_refusal(
      lb_reference_GatherND, 2, two, INT64_MAX,
      "index 9223372036854775807 is out of range for axis 1 of size 4");
}

static void indices_larger_than_the_data_are_refused(void **state) {
  (void)state;
  expect_refusal(lb_reference_GatherElements, 2, (int64_t[]){2, 5}, 0,
                 "axis 1 of the indices has size 5, which exceeds 4");
  expect_refusal(lb_reference_GatherND, 1, (int64_t[]){3}, 0,
                 "batch_dims 0 does not fit ranks 2 and 1 with index tuples of "
                 "3");
}

static void large_gathers_use_the_pool_and_agree(void **state) {
  (void)state;
  test_case t = {.name = "gather"};
  lb_pool *pool;
  assert_false(lb_failed(lb_pool_new(3, &pool)));
  int64_t n = 200000, vocabulary = 1000;
  case_begin(&t, LB_OP_Gather);
  case_in(&t, case_random(&t, LB_I16, 1, &vocabulary));
  lb_tensor indices = case_dense(&t, LB_I64, 1, &n);
  for (int64_t i = 0; i < n; i++)
    ((int64_t *)indices.data)[i] = case_int(&t, 0, vocabulary - 1);
  case_in(&t, indices);
  t.out[0] = case_dense(&t, LB_I16, 1, &n);
  t.call.pool = pool;
  assert_int_equal(case_run(&t, lb_reference_Gather), LB_CODE_OK);
  for (int64_t i = 0; i < n; i++)
    assert_memory_equal(case_at(&t.out[0], &i),
                        case_at(&t.in[0], (int64_t *)indices.data + i), 2);
  lb_pool_free(pool);
  case_end(&t);
}

CASE_TEST(gather_takes_slices_along_an_axis, 500, gather_one)
CASE_TEST(gather_elements_replaces_one_coordinate, 500, gather_elements_one)
CASE_TEST(gather_nd_takes_tuples_within_batches, 500, gather_nd_one)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gather_takes_slices_along_an_axis),
      cmocka_unit_test(gather_elements_replaces_one_coordinate),
      cmocka_unit_test(gather_nd_takes_tuples_within_batches),
      cmocka_unit_test(indices_out_of_range_are_named),
      cmocka_unit_test(indices_larger_than_the_data_are_refused),
      cmocka_unit_test(large_gathers_use_the_pool_and_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
