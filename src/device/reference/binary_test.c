// device/reference/binary_test.c -- broadcasting operators, element by element.
#include "device/reference/formula_test.h"

#define FN(Name) LB_OP_##Name, lb_reference_##Name

// Adds two inputs with random but broadcastable dims, and the output.
static void two_inputs(test_case *t, lb_dtype dtype, double lo, double hi) {
  int64_t dims[LB_MAX_RANK], own[LB_MAX_RANK];
  int rank = case_dims(t, 0, 4, dims);
  for (int k = 0; k < 2; k++) {
    int less = rank > 0 && k == 1 ? (int)case_int(t, 0, rank) : 0;
    for (int i = less; i < rank; i++)
      own[i - less] = case_int(t, 0, 3) == 0 ? 1 : dims[i];
    case_in(t, case_numbers(t, dtype, rank - less, own, lo, hi));
  }
  for (int i = 0; i < rank; i++) {
    int b = i - (rank - t->in[1].rank);
    dims[i] = t->in[0].dims[i];
    if (b >= 0 && dims[i] == 1) dims[i] = t->in[1].dims[b];
  }
  t->out[0] = case_dense(t, dtype, rank, dims);
}

typedef struct arithmetic {
  lb_op op;
  lb_reference_fn *fn;
  double (*reals)(double, double);
  uint64_t (*wholes)(uint64_t, uint64_t);
} arithmetic;

static double add(double x, double y) { return x + y; }
static double sub(double x, double y) { return x - y; }
static double mul(double x, double y) { return x * y; }
static double quot(double x, double y) { return x / y; }
static uint64_t add_u(uint64_t x, uint64_t y) { return x + y; }
static uint64_t sub_u(uint64_t x, uint64_t y) { return x - y; }
static uint64_t mul_u(uint64_t x, uint64_t y) { return x * y; }
static uint64_t and_u(uint64_t x, uint64_t y) { return x & y; }
static uint64_t or_u(uint64_t x, uint64_t y) { return x | y; }
static uint64_t xor_u(uint64_t x, uint64_t y) { return x ^ y; }

static const arithmetic reals[] = {
    {FN(Add), add, NULL},  {FN(Sub), sub, NULL}, {FN(Mul), mul, NULL},
    {FN(Div), quot, NULL}, {FN(Pow), pow, NULL}, {FN(Max), fmax, NULL},
    {FN(Min), fmin, NULL}, {FN(Sum), add, NULL},
};

static void real_one(test_case *t) {
  const arithmetic *a = &reals[t->seed % 8];
  lb_dtype dtype = case_float(t);
  case_begin(t, a->op);
  two_inputs(t, dtype, 0.5, 4);
  CASE_CHECK(t, case_run(t, a->fn) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t ix[LB_MAX_RANK], iy[LB_MAX_RANK];
    broadcast(&t->in[0], t->out[0].rank, i, ix);
    broadcast(&t->in[1], t->out[0].rank, i, iy);
    double want = a->reals(number(&t->in[0], ix), number(&t->in[1], iy));
    CASE_CHECK(t, near(number(&t->out[0], i), want, 2 * rounding(dtype)));
  }
}
CASE_TEST(floats_broadcast_in_any_layout, 240, real_one)

static const arithmetic wholes[] = {
    {FN(Add), NULL, add_u},      {FN(Sub), NULL, sub_u},
    {FN(Mul), NULL, mul_u},      {FN(BitwiseAnd), NULL, and_u},
    {FN(BitwiseOr), NULL, or_u}, {FN(BitwiseXor), NULL, xor_u},
};

static void whole_one(test_case *t) {
  const arithmetic *a = &wholes[t->seed % 6];
  case_begin(t, a->op);
  two_inputs(t, case_integer(t), 0, 1);
  for (int k = 0; k < 2; k++)  // random bits, so that everything overflows
    t->in[k] = case_random(t, t->in[k].dtype, t->in[k].rank, t->in[k].dims);
  CASE_CHECK(t, case_run(t, a->fn) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t ix[LB_MAX_RANK], iy[LB_MAX_RANK];
    broadcast(&t->in[0], t->out[0].rank, i, ix);
    broadcast(&t->in[1], t->out[0].rank, i, iy);
    uint64_t want = a->wholes((uint64_t)whole(&t->in[0], ix),
                              (uint64_t)whole(&t->in[1], iy));
    CASE_CHECK(t, memcmp(case_at(&t->out[0], i), &want,
                         lb_dtype_size(t->out[0].dtype)) == 0);
  }
}
CASE_TEST(integers_wrap_at_their_own_width, 240, whole_one)

static void check_all(const example *examples, size_t n) {
  for (size_t k = 0; k < n; k++) check_example(&examples[k]);
}
#define CHECK_ALL(examples) \
  check_all(examples, sizeof examples / sizeof *examples)

static void division_never_traps(void **state) {
  (void)state;
  const example examples[] = {
      {FN(Div),
       LB_I8,
       LB_I8,
       5,
       2,
       {{-128, -128, 5, -7, 7}, {-1, 0, 0, 2, -2}},
       {-128, 0, 0, -3, -3}},
      {FN(Div), LB_I32, LB_I32, 2, 2, {{-0x1p31, 1}, {-1, 0}}, {-0x1p31, 0}},
      {FN(Div), LB_I64, LB_I64, 2, 2, {{-0x1p63, 1}, {-1, 0}}, {-0x1p63, 0}},
      {FN(Div), LB_U8, LB_U8, 3, 2, {{255, 200, 7}, {255, 0, 2}}, {1, 0, 3}},
      {FN(Div),
       LB_F32,
       LB_F32,
       3,
       2,
       {{1, -1, 0}, {0, 0, 0}},
       {INFINITY, -INFINITY, NAN}},
      {FN(Mod),
       LB_I64,
       LB_I64,
       3,
       2,
       {{-0x1p63, 5, -5}, {-1, 0, 3}},
       {0, 0, 1}},
  };
  CHECK_ALL(examples);
}

static void mod_takes_the_sign_of_the_divisor(void **state) {
  (void)state;
  const double inf = INFINITY;
  const example examples[] = {
      {FN(Mod),
       LB_I32,
       LB_I32,
       4,
       2,
       {{7, -7, 7, -7}, {3, 3, -3, -3}},
       {1, 2, -2, -1}},
      {FN(Mod), LB_U8, LB_U8, 2, 2, {{250, 9}, {7, 0}}, {5, 0}},
      {FN(Mod),
       LB_F32,
       LB_F32,
       4,
       2,
       {{7.5, -7.5, 7.5, -7.5}, {2, 2, -2, -2}},
       {1.5, 0.5, -0.5, -1.5}},
      {FN(Mod),
       LB_F32,
       LB_F32,
       8,
       2,
       {{0.0, -0.0, inf, 5, 5, -5, 5, NAN}, {-2, 2, 2, 0, inf, inf, -inf, 1}},
       {-0.0, 0.0, NAN, NAN, 5, inf, -inf, NAN}},
  };
  CHECK_ALL(examples);
}

static void fmod_takes_the_sign_of_the_dividend(void **state) {
  (void)state;
  for (int d = 0; d < 12; d++) {
    lb_dtype dtype = d < 4 ? float_dtypes[d] : int_dtypes[d - 4];
    if (!lb_dtype_is_float(dtype) && !lb_dtype_is_signed(dtype)) continue;
    test_case t = {.name = "Mod"};
    int64_t n = 3;
    case_begin(&t, LB_OP_Mod);
    case_attr_int(&t, "fmod", 1);
    case_in(&t, case_floats(&t, dtype, (double[]){7, -7, 7}, n));
    case_in(&t, case_floats(&t, dtype, (double[]){3, 3, -3}, n));
    t.out[0] = case_dense(&t, dtype, 1, &n);
    assert_int_equal(case_run(&t, lb_reference_Mod), LB_CODE_OK);
    CASE_EACH(&t.out[0], i)
    assert_true(number(&t.out[0], i) == (i[0] == 1 ? -1 : 1));
    case_end(&t);
  }
}

static void max_and_min_propagate_nan(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    lb_dtype f = float_dtypes[d];
    const example examples[] = {
        {FN(Max),
         f,
         f,
         3,
         3,
         {{NAN, 1, 2}, {1, NAN, 3}, {2, 2, 1}},
         {NAN, NAN, 3}},
        {FN(Min),
         f,
         f,
         3,
         3,
         {{1, 1, 2}, {1, NAN, 3}, {NAN, 2, 1}},
         {NAN, NAN, 1}},
    };
    CHECK_ALL(examples);
  }
}

static void f16_sums_round_once(void **state) {
  (void)state;
  // 2048 + 1 rounds back to 2048 in float16; 2048 + 1 + 1 does not.
  const example examples[] = {
      {FN(Sum), LB_F16, LB_F16, 1, 3, {{2048}, {1}, {1}}, {2050}},
      {FN(Mean), LB_F16, LB_F16, 1, 3, {{60000}, {60000}, {60000}}, {60000}},
      {FN(Mean), LB_F64, LB_F64, 1, 2, {{1}, {2}}, {1.5}},
  };
  CHECK_ALL(examples);
}

static void sums_of_one_keep_negative_zero(void **state) {
  (void)state;
  check_example(&(example){FN(Sum), LB_F32, LB_F32, 1, 1, {{-0.0}}, {-0.0}});
  check_example(
      &(example){FN(Add), LB_F32, LB_F32, 1, 2, {{-0.0}, {-0.0}}, {-0.0}});
}

static void pow_mixes_dtypes(void **state) {
  (void)state;
  for (int k = 0; k < 24; k++) {
    lb_dtype base = (lb_dtype[]){LB_F32, LB_I32, LB_I64}[k % 3];
    lb_dtype exponent = k < 12 ? float_dtypes[k / 3] : int_dtypes[(k - 12) / 3];
    test_case t = {.name = "Pow"};
    int64_t n = 3;
    case_begin(&t, LB_OP_Pow);
    case_in(&t, case_floats(&t, base, (double[]){3, -2, 5}, n));
    case_in(&t, case_floats(&t, exponent, (double[]){4, 3, 0}, n));
    t.out[0] = case_dense(&t, base, 1, &n);
    assert_int_equal(case_run(&t, lb_reference_Pow), LB_CODE_OK);
    CASE_EACH(&t.out[0], i)
    assert_true(number(&t.out[0], i) == ((double[]){81, -8, 1})[i[0]]);
    case_end(&t);
  }
}

static void integer_powers_wrap_and_truncate(void **state) {
  (void)state;
  const example examples[] = {
      {FN(Pow),
       LB_I64,
       LB_I64,
       6,
       2,
       {{-1, 1, 2, 0, 2, -2}, {-3, -2, -1, -1, 64, 63}},
       {-1, 1, 0, 0, 0, -0x1p63}},
      {FN(Pow), LB_I32, LB_I32, 2, 2, {{2, 3}, {31, 2}}, {-0x1p31, 9}},
  };
  CHECK_ALL(examples);
}

static void shift(const char *direction, lb_dtype dtype, const double *want) {
  test_case t = {.name = "BitShift"};
  int64_t n = 5;
  case_begin(&t, LB_OP_BitShift);
  case_attr_str(&t, "direction", direction);
  case_in(&t, case_floats(&t, dtype, (double[]){-3, 100, 1, -1, 5}, n));
  case_in(&t, case_floats(&t, dtype, (double[]){1, 1, 8, -1, 0}, n));
  t.out[0] = case_dense(&t, dtype, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_BitShift), LB_CODE_OK);
  CASE_EACH(&t.out[0], i)
  assert_true(number(&t.out[0], i) == want[i[0]]);
  case_end(&t);
}

static void shifts_past_the_width_leave_the_sign(void **state) {
  (void)state;
  shift("LEFT", LB_I8, (double[]){-6, -56, 0, 0, 5});
  shift("RIGHT", LB_I8, (double[]){-2, 50, 0, -1, 5});
  shift("LEFT", LB_U8, (double[]){250, 200, 0, 0, 5});
  shift("RIGHT", LB_U8, (double[]){126, 50, 0, 0, 5});
}

static void comparisons_are_false_for_nan(void **state) {
  (void)state;
  const example examples[] = {
      {FN(Equal),
       LB_F32,
       LB_BOOL,
       3,
       2,
       {{NAN, -0.0, 1}, {NAN, 0, 2}},
       {0, 1, 0}},
      {FN(Less), LB_F16, LB_BOOL, 3, 2, {{NAN, 1, 2}, {1, 2, 2}}, {0, 1, 0}},
      {FN(LessOrEqual),
       LB_F64,
       LB_BOOL,
       3,
       2,
       {{1, 1, 2}, {NAN, 1, 1}},
       {0, 1, 0}},
      {FN(Greater), LB_U64, LB_BOOL, 2, 2, {{0x1p63, 1}, {1, 0x1p63}}, {1, 0}},
      {FN(GreaterOrEqual),
       LB_I64,
       LB_BOOL,
       2,
       2,
       {{-0x1p63, 1}, {1, 1}},
       {0, 1}},
      {FN(And),
       LB_BOOL,
       LB_BOOL,
       4,
       2,
       {{0, 0, 1, 1}, {0, 1, 0, 1}},
       {0, 0, 0, 1}},
      {FN(Or),
       LB_BOOL,
       LB_BOOL,
       4,
       2,
       {{0, 0, 1, 1}, {0, 1, 0, 1}},
       {0, 1, 1, 1}},
      {FN(Xor),
       LB_BOOL,
       LB_BOOL,
       4,
       2,
       {{0, 0, 1, 1}, {0, 1, 0, 1}},
       {0, 1, 1, 0}},
      {FN(PRelu),
       LB_F32,
       LB_F32,
       3,
       2,
       {{-2, -0.0, 3}, {0.5, 2, 2}},
       {-1, -0.0, 3}},
      {FN(SwiGLU), LB_F32, LB_F32, 2, 2, {{0, 1000}, {3, 2}}, {0, 2000}},
  };
  CHECK_ALL(examples);
}

static void where_one(test_case *t) {
  lb_dtype dtype = case_dtype(t);
  case_begin(t, LB_OP_Where);
  two_inputs(t, dtype, 0, 1);
  lb_tensor out = t->out[0];
  t->in[2] = t->in[1];
  t->in[1] = case_random(t, dtype, t->in[0].rank, t->in[0].dims);
  t->in[0] = case_random(t, LB_BOOL, out.rank, out.dims);
  t->node.n_in = 3;
  CASE_CHECK(t, case_run(t, lb_reference_Where) == LB_CODE_OK);
  CASE_EACH(&out, i) {
    int64_t from[LB_MAX_RANK];
    const lb_tensor *side = &t->in[*case_at(&t->in[0], i) ? 1 : 2];
    broadcast(side, out.rank, i, from);
    CASE_SAME(t, &out, i, side, from);
  }
}
CASE_TEST(where_copies_bits_unchanged, 100, where_one)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(floats_broadcast_in_any_layout),
      cmocka_unit_test(integers_wrap_at_their_own_width),
      cmocka_unit_test(division_never_traps),
      cmocka_unit_test(mod_takes_the_sign_of_the_divisor),
      cmocka_unit_test(fmod_takes_the_sign_of_the_dividend),
      cmocka_unit_test(max_and_min_propagate_nan),
      cmocka_unit_test(f16_sums_round_once),
      cmocka_unit_test(sums_of_one_keep_negative_zero),
      cmocka_unit_test(pow_mixes_dtypes),
      cmocka_unit_test(integer_powers_wrap_and_truncate),
      cmocka_unit_test(shifts_past_the_width_leave_the_sign),
      cmocka_unit_test(comparisons_are_false_for_nan),
      cmocka_unit_test(where_copies_bits_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
