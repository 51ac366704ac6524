// device/reference/cast_test.c -- Cast between all pairs of dtypes: rounding
// and out-of-range values; BitCast.
#include "device/reference/formula_test.h"

// The integers 0 to 127 are representable in every dtype but bool, so a cast
// between any two dtypes must preserve them. With bool, only 0 and 1 are cast.
static void pair_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = case_dims(t, 0, 4, dims), n = LB_DTYPE_COUNT - 1;
  lb_dtype from = (lb_dtype)(1 + t->seed % (uint64_t)n);
  lb_dtype to = (lb_dtype)(1 + t->seed / (uint64_t)n % (uint64_t)n);
  bool small = from == LB_BOOL || to == LB_BOOL;
  case_begin(t, LB_OP_Cast);
  lb_tensor x = case_dense(t, from, rank, dims);
  CASE_EACH(&x, k) put(&x, k, (double)case_int(t, 0, small ? 1 : 127));
  case_in(t, case_scatter(t, &x));
  t->out[0] = case_dense(t, to, rank, dims);
  CASE_CHECK(t, case_run(t, lb_reference_Cast) == LB_CODE_OK);
  CASE_EACH(&x, i)
  CASE_CHECK(t, number(&t->out[0], i) == number(&x, i));
}
CASE_TEST(small_integers_survive_every_pair_of_dtypes, 13 * 13 * 3, pair_one)

static void integer_pair_one(test_case *t) {
  const int64_t dims[] = {3, 7};
  case_begin(t, LB_OP_Cast);
  case_in(t, case_random(t, case_integer(t), 2, dims));
  t->out[0] = case_dense(t, case_integer(t), 2, dims);
  CASE_CHECK(t, case_run(t, lb_reference_Cast) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t bits = whole(&t->in[0], i);
    CASE_CHECK(t, memcmp(case_at(&t->out[0], i), &bits,
                         lb_dtype_size(t->out[0].dtype)) == 0);
  }
}
CASE_TEST(integers_wrap, 100, integer_pair_one)

static void cast_to(lb_dtype from, lb_dtype to, int n, const double *x,
                    const double *want) {
  example e = {LB_OP_Cast, lb_reference_Cast, from, to, n, 1, {{0}}, {0}};
  memcpy(e.in[0], x, (size_t)n * sizeof *x);
  memcpy(e.want, want, (size_t)n * sizeof *want);
  check_example(&e);
}
#define CAST(from, to, n, ...) cast_to(from, to, n, __VA_ARGS__)
#define LIST(...) ((const double[]){__VA_ARGS__})

static void floats_are_truncated_to_integers(void **state) {
  (void)state;
  const double *x = LIST(1.9, -1.9, 0.5, -0.5, 127.99);
  const double *want = LIST(1, -1, 0, 0, 127);
  for (int d = 0; d < 4; d++) {
    lb_dtype to = (lb_dtype[]){LB_I8, LB_I16, LB_I32, LB_I64}[d];
    CAST(LB_F32, to, 5, x, want);
    CAST(LB_F64, to, 5, x, want);
  }
}

static void out_of_range_values_are_defined(void **state) {
  (void)state;
  const double *x = LIST(NAN, INFINITY, -INFINITY, 1e30, 3e9, -129, 300);
  const double min = -0x1p31, min64 = -0x1p63;
  CAST(LB_F64, LB_I32, 7, x, LIST(min, min, min, min, min, -129, 300));
  CAST(LB_F32, LB_I64, 7, x, LIST(min64, min64, min64, min64, 3e9, -129, 300));
  CAST(LB_F64, LB_I8, 7, x, LIST(0, 0, 0, 0, 0, 127, 44));
  CAST(LB_F64, LB_U8, 7, x, LIST(0, 0, 0, 0, 0, 127, 44));
  CAST(LB_F64, LB_U32, 7, x, LIST(0, 0, 0, 0, 3e9, 4294967167, 300));
  CAST(LB_F64, LB_U64, 3, LIST(0x1p63, 0x1p64, 12), LIST(0x1p63, 0, 12));
}

static void f16_and_bf16_round_to_even_once(void **state) {
  (void)state;
  // Some values are within 2^-40 of the midpoint of two neighbours: converting
  // them through float would first round to the midpoint, then to the even
  // neighbour, which is not the nearest.
  CAST(LB_F64, LB_F16, 4,
       LIST(1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-40, 65519.99, 65520),
       LIST(1, 1 + 0x1p-10, 65504, INFINITY));
  CAST(LB_F64, LB_BF16, 5,
       LIST(1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-40, 1 + 0x3p-8 - 0x1p-40,
            -1 - 0x1p-8 - 0x1p-45, 1e300),
       LIST(1, 1 + 0x1p-7, 1 + 0x1p-7, -1 - 0x1p-7, INFINITY));
  CAST(LB_F32, LB_BF16, 3, LIST(NAN, -INFINITY, -0.0),
       LIST(NAN, -INFINITY, -0.0));
  CAST(LB_F16, LB_F32, 4, LIST(0x1p-24, -0.0, 65504, NAN),
       LIST(0x1p-24, -0.0, 65504, NAN));
}

static void large_integers_round_once_too(void **state) {
  (void)state;
  test_case t = {.name = "Cast"};
  const int64_t n = 3, middle = INT64_C(1) << 62 | INT64_C(1) << 54;
  const int64_t x[] = {middle, middle + 1, -middle - 1};
  const double want[] = {0x1p62, 0x1p62 + 0x1p55, -0x1p62 - 0x1p55};
  case_begin(&t, LB_OP_Cast);
  case_in(&t, case_i64(&t, 1, &n, x));
  t.out[0] = case_dense(&t, LB_BF16, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_Cast), LB_CODE_OK);
  CASE_EACH(&t.out[0], i)
  assert_true(number(&t.out[0], i) == want[i[0]]);
  case_end(&t);
}

static void any_nonzero_value_is_true(void **state) {
  (void)state;
  CAST(LB_F32, LB_BOOL, 5, LIST(0, -0.0, NAN, 1e-30, -2), LIST(0, 0, 1, 1, 1));
  CAST(LB_U64, LB_BOOL, 3, LIST(0, 1, 0x1p63), LIST(0, 1, 1));
  CAST(LB_I8, LB_BOOL, 3, LIST(0, -128, 2), LIST(0, 1, 1));
}

static void bit_cast_keeps_bits(void **state) {
  (void)state;
  test_case t = {.name = "BitCast"};
  int64_t n = 2;
  case_begin(&t, LB_OP_BitCast);
  case_in(&t, case_floats(&t, LB_F32, LIST(1, -0.0), n));
  t.out[0] = case_dense(&t, LB_U32, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_BitCast), LB_CODE_OK);
  assert_true(((uint32_t *)t.out[0].data)[0] == 0x3f800000u);
  assert_true(((uint32_t *)t.out[0].data)[1] == 0x80000000u);
  t.out[0].dtype = LB_U16;
  assert_int_equal(case_run(&t, lb_reference_BitCast), LB_INVALID);
  case_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_integers_survive_every_pair_of_dtypes),
      cmocka_unit_test(integers_wrap),
      cmocka_unit_test(floats_are_truncated_to_integers),
      cmocka_unit_test(out_of_range_values_are_defined),
      cmocka_unit_test(f16_and_bf16_round_to_even_once),
      cmocka_unit_test(large_integers_round_once_too),
      cmocka_unit_test(any_nonzero_value_is_true),
      cmocka_unit_test(bit_cast_keeps_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
