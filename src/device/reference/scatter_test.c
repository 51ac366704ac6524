// device/reference/scatter_test.c -- scatter operators against their
// definitions.
#include "device/reference/case_test.h"

#include <math.h>

static const char *const reductions[] = {"none", "add", "mul", "min", "max"};

static int random_dims(test_case *t, int lo, int hi, int64_t *dims) {
  int rank = (int)case_int(t, lo, hi);
  for (int i = 0; i < rank; i++) dims[i] = case_dim(t);
  return rank;
}

// Fills with small integers: they are exact in all dtypes as long as there are
// few sums and products, and for int8 modulo 256.
static void fill_small(test_case *t, const lb_tensor *dense) {
  for (int64_t i = 0; i < lb_tensor_count(dense); i++) {
    double v = (double)case_int(t, 0, 3);
    lb_tensor from = {.dtype = LB_F64, .data = &v},
              to = {.dtype = dense->dtype};
    to.data = (char *)dense->data + (size_t)i * lb_dtype_size(dense->dtype);
    assert_false(lb_failed(lb_reference_convert(&from, &to)));
  }
}

static double number_at(const lb_tensor *x, const int64_t *index) {
  double v;
  lb_tensor from = {.dtype = x->dtype, .data = case_at(x, index)};
  lb_tensor to = {.dtype = LB_F64, .data = &v};
  assert_false(lb_failed(lb_reference_convert(&from, &to)));
  return v;
}

static void put_number(const lb_tensor *x, const int64_t *index, double v) {
  lb_tensor from = {.dtype = LB_F64, .data = &v};
  lb_tensor to = {.dtype = x->dtype, .data = case_at(x, index)};
  assert_false(lb_failed(lb_reference_convert(&from, &to)));
}

// The oracle: applies one update to the expected output.
static void reduce(const char *how, const lb_tensor *y, const int64_t *to,
                   const lb_tensor *updates, const int64_t *from) {
  double a = number_at(y, to), b = number_at(updates, from);
  bool is_bool = y->dtype == LB_BOOL;
  if (how[0] == 'n') a = b;
  if (how[0] == 'a') a = is_bool ? fmax(a, b) : a + b;
  if (how[1] == 'u') a = a * b;
  if (how[1] == 'i') a = a < b ? a : b;
  if (how[2] == 'x') a = a > b ? a : b;
  // Integers wrap; 3^k does not exceed the precision of double here.
  if (lb_dtype_size(y->dtype) == 1 && !is_bool) {
    a = fmod(a, 256);
    if (y->dtype == LB_I8 && a > 127) a -= 256;
  }
  put_number(y, to, a);
}

static void check_equal(test_case *t, const lb_tensor *expected) {
  CASE_EACH(expected, i) CASE_SAME(t, expected, i, &t->out[0], i);
}

// Adds random data as input 0 and returns a copy as the expected output.
static lb_tensor small_data(test_case *t, int rank, const int64_t *dims) {
  lb_tensor x = case_dense(t, case_dtype(t), rank, dims);
  fill_small(t, &x);
  case_in(t, case_scatter(t, &x));
  lb_tensor expected = case_dense(t, x.dtype, rank, dims);
  lb_tensor_copy(&x, &expected);
  t->out[0] = case_dense(t, x.dtype, rank, dims);
  return expected;
}

static lb_tensor small_updates(test_case *t, int rank, const int64_t *dims) {
  lb_tensor x = case_dense(t, t->in[0].dtype, rank, dims);
  fill_small(t, &x);
  case_in(t, case_scatter(t, &x));
  return x;
}

static void scatter_elements_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], idims[LB_MAX_RANK];
  const char *how = reductions[case_int(t, 0, 4)];
  int rank = random_dims(t, 1, 3, dims), axis = (int)case_int(t, 0, rank - 1);
  if (dims[axis] == 0) dims[axis] = 1;
  for (int i = 0; i < rank; i++)
    idims[i] = i == axis ? case_int(t, 0, 4) : case_int(t, 0, dims[i]);
  case_begin(t, LB_OP_ScatterElements);
  case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  case_attr_str(t, "reduction", how);
  lb_tensor expected = small_data(t, rank, dims);
  lb_tensor indices = case_dense(t, LB_I64, rank, idims);
  for (int64_t i = 0; i < lb_tensor_count(&indices); i++)
    ((int64_t *)indices.data)[i] = case_int(t, -dims[axis], dims[axis] - 1);
  case_in(t, case_scatter(t, &indices));
  lb_tensor updates = small_updates(t, rank, idims);
  CASE_CHECK(t, case_run(t, lb_reference_ScatterElements) == LB_CODE_OK);
  CASE_EACH(&indices, i) {
    int64_t to[LB_MAX_RANK], index = case_int_at(&indices, i);
    memcpy(to, i, sizeof to);
    to[axis] = index < 0 ? index + dims[axis] : index;
    reduce(how, &expected, to, &updates, i);
  }
  check_equal(t, &expected);
}

static void scatter_nd_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], idims[LB_MAX_RANK], udims[LB_MAX_RANK];
  const char *how = reductions[case_int(t, 0, 4)];
  int rank = random_dims(t, 1, 4, dims), len = (int)case_int(t, 1, rank);
  int q = (int)case_int(t, 1, 3), n = 0;
  for (int i = 0; i < len; i++) dims[i] += dims[i] == 0;
  for (; n < q - 1; n++) udims[n] = idims[n] = case_int(t, 0, 3);
  idims[q - 1] = len;
  for (int i = len; i < rank; i++) udims[n++] = dims[i];
  case_begin(t, LB_OP_ScatterND);
  if (how[0] != 'n') case_attr_str(t, "reduction", how);
  lb_tensor expected = small_data(t, rank, dims);
  lb_tensor indices = case_dense(t, LB_I64, q, idims);
  for (int64_t i = 0; i < lb_tensor_count(&indices); i++)
    ((int64_t *)indices.data)[i] =
        case_int(t, -dims[i % len], dims[i % len] - 1);
  case_in(t, case_scatter(t, &indices));
  lb_tensor updates = small_updates(t, n, udims);
  CASE_CHECK(t, case_run(t, lb_reference_ScatterND) == LB_CODE_OK);
  CASE_EACH(&updates, i) {
    int64_t to[LB_MAX_RANK], tuple[LB_MAX_RANK];
    memcpy(tuple, i, sizeof tuple);
    for (int k = 0; k < rank; k++) {
      tuple[q - 1] = k;
      if (k >= len)
        to[k] = i[q - 1 + k - len];
      else
        to[k] = case_int_at(&indices, tuple);
      if (to[k] < 0) to[k] += dims[k];
    }
    reduce(how, &expected, to, &updates, i);
  }
  check_equal(t, &expected);
}

static void tensor_scatter_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], udims[LB_MAX_RANK], positions[64];
  int rank = random_dims(t, 2, 4, dims), axis = (int)case_int(t, 1, rank - 1);
  bool circular = case_int(t, 0, 1), given = case_int(t, 0, 3) > 0;
  if (dims[axis] == 0) dims[axis] = 1;
  memcpy(udims, dims, sizeof udims);
  udims[axis] = case_int(t, 0, dims[axis]);
  for (int64_t i = 0; i < dims[0]; i++)
    positions[i] = !given     ? 0
                   : circular ? case_int(t, 0, 3 * dims[axis])
                              : case_int(t, 0, dims[axis] - udims[axis]);
  case_begin(t, LB_OP_TensorScatter);
  if (axis != rank - 2 || case_int(t, 0, 1))
    case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  if (circular) case_attr_str(t, "mode", "circular");
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  case_in(t, case_random(t, t->in[0].dtype, rank, udims));
  if (given) case_in(t, case_ints(t, positions, dims[0]));
  t->out[0] = case_dense(t, t->in[0].dtype, rank, dims);
  CASE_CHECK(t, case_run(t, lb_reference_TensorScatter) == LB_CODE_OK);
  lb_tensor expected = case_dense(t, t->in[0].dtype, rank, dims);
  lb_tensor_copy(&t->in[0], &expected);
  CASE_EACH(&t->in[1], i) {
    int64_t to[LB_MAX_RANK];
    memcpy(to, i, sizeof to);
    to[axis] = (positions[i[0]] + i[axis]) % dims[axis];
    memcpy(case_at(&expected, to), case_at(&t->in[1], i),
           lb_dtype_size(expected.dtype));
  }
  check_equal(t, &expected);
}

// -- fixed examples ----------------------------------------------------------

static lb_code tensor_scatter(const char *mode, int64_t position,
                              int64_t axis) {
  test_case t = {.name = "tensor_scatter"};
  case_begin(&t, LB_OP_TensorScatter);
  case_attr_str(&t, "mode", mode);
  case_attr_int(&t, "axis", axis);
  case_in(&t, case_random(&t, LB_F32, 2, (int64_t[]){1, 4}));
  case_in(&t, case_random(&t, LB_F32, 2, (int64_t[]){1, 2}));
  case_in(&t, case_i64(&t, 1, (int64_t[]){1}, &position));
  t.out[0] = case_dense(&t, LB_F32, 2, (int64_t[]){1, 4});
  lb_code code = case_run(&t, lb_reference_TensorScatter);
  case_end(&t);
  return code;
}

static void writes_outside_a_linear_cache_are_refused(void **state) {
  (void)state;
  assert_int_equal(tensor_scatter("linear", 2, 1), LB_CODE_OK);
  assert_int_equal(tensor_scatter("linear", 3, 1), LB_INVALID);
  assert_int_equal(tensor_scatter("linear", -1, 1), LB_INVALID);
  assert_int_equal(tensor_scatter("linear", INT64_MAX, 1), LB_INVALID);
  assert_int_equal(tensor_scatter("circular", 3, 1), LB_CODE_OK);
  assert_int_equal(tensor_scatter("circular", INT64_MAX, 1), LB_CODE_OK);
  assert_int_equal(tensor_scatter("circular", INT64_MIN, 1), LB_CODE_OK);
  assert_int_equal(tensor_scatter("linear", 0, 0), LB_INVALID);
  assert_int_equal(tensor_scatter("spiral", 0, 1), LB_INVALID);
}

static lb_code scatter(const char *how, int64_t index, int64_t n_updates) {
  test_case t = {.name = "scatter"};
  case_begin(&t, LB_OP_ScatterElements);
  case_attr_str(&t, "reduction", how);
  case_in(&t, case_random(&t, LB_F32, 1, (int64_t[]){3}));
  case_in(&t, case_i64(&t, 1, (int64_t[]){1}, &index));
  case_in(&t, case_random(&t, LB_F32, 1, &n_updates));
  t.out[0] = case_dense(&t, LB_F32, 1, (int64_t[]){3});
  lb_code code = case_run(&t, lb_reference_ScatterElements);
  case_end(&t);
  return code;
}

static void scatters_that_do_not_fit_are_refused(void **state) {
  (void)state;
  assert_int_equal(scatter("none", 2, 1), LB_CODE_OK);
  assert_int_equal(scatter("none", -3, 1), LB_CODE_OK);
  assert_int_equal(scatter("none", 3, 1), LB_INVALID);
  assert_int_equal(scatter("none", -4, 1), LB_INVALID);
  assert_int_equal(scatter("mean", 0, 1), LB_INVALID);
  assert_int_equal(scatter("add", 0, 2), LB_INVALID);
  assert_int_equal(scatter("add", 0, 0), LB_INVALID);
}

CASE_TEST(scatter_elements_reduces_in_order, 600, scatter_elements_one)
CASE_TEST(scatter_nd_reduces_slices_in_order, 600, scatter_nd_one)
CASE_TEST(tensor_scatter_writes_each_batch_item_at_its_index, 400,
          tensor_scatter_one)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scatter_elements_reduces_in_order),
      cmocka_unit_test(scatter_nd_reduces_slices_in_order),
      cmocka_unit_test(tensor_scatter_writes_each_batch_item_at_its_index),
      cmocka_unit_test(writes_outside_a_linear_cache_are_refused),
      cmocka_unit_test(scatters_that_do_not_fit_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
