// kir/eval_test.c -- Compares each operation with plain C, at edge values.
#include "kir/testkit.h"

#include <math.h>
#include <stdlib.h>

#define LANES 64

typedef lb_kval unary_fn(lb_kbuilder *b, lb_kval x);
typedef lb_kval binary_fn(lb_kbuilder *b, lb_kval x, lb_kval y);
static unary_fn *const unaries[LB_K_COUNT] = {
#define LB_KUNARY(ID, text, ...) [LB_K_##ID] = lb_k_##text,
#include "kir/kops.def"
};
static binary_fn *const binaries[LB_K_COUNT] = {
#define LB_KBINARY(ID, text, ...) [LB_K_##ID] = lb_k_##text,
#include "kir/kops.def"
};

static lb_kval apply_op(lb_kbuilder *b, int op, lb_kval x, lb_kval y) {
  return unaries[op] ? unaries[op](b, x) : binaries[op](b, x, y);
}

// out[i] = op(x[i], y[i]) for n elements, n a multiple of LANES.
static void map_op(int op, lb_dtype t, size_t n, const void *x, const void *y,
                   void *out, lb_dtype out_t) {
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "map");
  lb_kval px = lb_k_param(&b, lb_kt_ptr(t, LB_K_READONLY));
  lb_kval py = lb_k_param(&b, lb_kt_ptr(t, LB_K_READONLY));
  lb_kval po = lb_k_param(&b, lb_kt_ptr(out_t, 0));
  lb_kval end = lb_k_param(&b, lb_kt(LB_I64, 1));
  lb_kval i = lb_k_loop(&b, lb_k_i64(&b, 0), end, lb_k_i64(&b, LANES));
  lb_kval u = lb_k_load(&b, lb_k_ptr(&b, px, i, 0), LANES, 1);
  lb_kval v = lb_k_load(&b, lb_k_ptr(&b, py, i, 0), LANES, 1);
  lb_kval z =
      op == LB_K_CAST ? lb_k_cast(&b, u, out_t) : apply_op(&b, op, u, v);
  lb_k_store(&b, lb_k_ptr(&b, po, i, 0), z, 1);
  lb_k_end(&b);
  assert_ok(lb_kernel_finish(&b, &k));
  lb_karg args[] = {lb_karg_mem(x, n * lb_dtype_size(t)),
                    lb_karg_mem(y, n * lb_dtype_size(t)),
                    lb_karg_mem(out, n * lb_dtype_size(out_t)),
                    lb_karg_i64((int64_t)n)};
  assert_ok(run_kernel(&k, args, 4, 1));
  lb_kernel_fini(&k);
}

// -- integers ----------------------------------------------------------------

typedef __int128 wide;

// The exact result, before it wraps; `bits` is the width.
static wide exact_int(int op, wide x, wide y, int bits, bool is_signed) {
  wide q = y == 0 ? 0 : x / y, sign = x < 0 ? -1 : 0;
  switch (op) {
    case LB_K_ADD: return x + y;
    case LB_K_SUB: return x - y;
    case LB_K_MUL: return (wide)((unsigned __int128)x * (unsigned __int128)y);
    case LB_K_DIV: return q;
    case LB_K_REM: return y == 0 ? 0 : x - q * y;
    case LB_K_MIN: return x < y ? x : y;
    case LB_K_MAX: return x > y ? x : y;
    case LB_K_NEG: return -x;
    case LB_K_ABS: return x < 0 ? -x : x;
    case LB_K_AND: return x & y;
    case LB_K_OR: return x | y;
    case LB_K_XOR: return x ^ y;
    case LB_K_NOT: return ~x;
    case LB_K_SHL:
      return y < 0 || y >= bits ? 0 : (wide)((unsigned __int128)x << (int)y);
    case LB_K_SHR:
      return y < 0 || y >= bits ? (is_signed ? sign : 0) : x >> (int)y;
    default: fail(); return 0;
  }
}

static const int int_ops[] = {LB_K_ADD, LB_K_SUB, LB_K_MUL, LB_K_DIV, LB_K_REM,
                              LB_K_MIN, LB_K_MAX, LB_K_NEG, LB_K_ABS, LB_K_AND,
                              LB_K_OR,  LB_K_XOR, LB_K_NOT, LB_K_SHL, LB_K_SHR};
static const int compares[] = {LB_K_EQ, LB_K_NE, LB_K_LT, LB_K_LE};

static bool compare(int op, bool eq, bool lt) {
  return op == LB_K_EQ   ? eq
         : op == LB_K_NE ? !eq
         : op == LB_K_LT ? lt
                         : lt || eq;
}

static wide widen(lb_dtype t, uint64_t bits) {
  lb_kinst in = {.dtype = (uint8_t)t, .imm = (int64_t)bits};
  return t == LB_U64 ? (wide)bits : (wide)lb_kconst_int(&in);
}

// Checks integer operations and comparisons on all pairs of `values`, truncated
// to the dtype.
static void check_ints(lb_dtype t, const uint64_t *values, size_t n_values) {
  size_t size = lb_dtype_size(t), n = n_values * n_values;
  size_t padded = (n + LANES - 1) / LANES * LANES;
  uint64_t all = UINT64_MAX >> (64 - 8 * size);
  char *x = calloc(padded, size), *y = calloc(padded, size);
  char *out = calloc(padded, 8);
  for (size_t i = 0; i < n; i++) {
    memcpy(x + i * size, &values[i / n_values], size);
    memcpy(y + i * size, &values[i % n_values], size);
  }
  for (size_t o = 0; o < sizeof int_ops / sizeof *int_ops; o++) {
    map_op(int_ops[o], t, padded, x, y, out, t);
    for (size_t i = 0; i < n; i++) {
      wide u = widen(t, values[i / n_values] & all);
      wide v = widen(t, values[i % n_values] & all);
      uint64_t want = (uint64_t)exact_int(int_ops[o], u, v, (int)(8 * size),
                                          lb_dtype_is_signed(t));
      if (memcmp(out + i * size, &want, size) != 0) {
        print_error("%s %s %lld %lld\n", lb_kop_infos[int_ops[o]].text,
                    lb_dtype_name(t), (long long)u, (long long)v);
        fail();
      }
    }
  }
  for (int o = 0; o < 4; o++) {
    map_op(compares[o], t, padded, x, y, out, LB_BOOL);
    for (size_t i = 0; i < n; i++) {
      wide u = widen(t, values[i / n_values] & all);
      wide v = widen(t, values[i % n_values] & all);
      assert_int_equal(out[i], compare(compares[o], u == v, u < v));
    }
  }
  free(x), free(y), free(out);
}

static void integers_wrap_and_truncate(void **state) {
  (void)state;
  uint64_t bytes[256];
  for (uint64_t i = 0; i < 256; i++) bytes[i] = i;
  check_ints(LB_I8, bytes, 256);
  check_ints(LB_U8, bytes, 256);
  static const uint64_t edges[] = {0,
                                   1,
                                   2,
                                   3,
                                   7,
                                   8,
                                   15,
                                   16,
                                   31,
                                   32,
                                   33,
                                   63,
                                   64,
                                   0x7f,
                                   0x80,
                                   0xff,
                                   0x7fff,
                                   0x8000,
                                   0xffff,
                                   0x10000,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   0x100000001,
                                   0x7fffffffffffffff,
                                   0x8000000000000000,
                                   0xfffffffffffffffd,
                                   0xfffffffffffffffe,
                                   0xffffffffffffffff,
                                   0x123456789abcdef0};
  for (int t = LB_I16; t <= LB_U64; t++)
    if (t != LB_U8) check_ints((lb_dtype)t, edges, sizeof edges / 8);
}

static void bools_are_logic(void **state) {
  (void)state;
  uint8_t x[LANES] = {0, 0, 1, 1}, y[LANES] = {0, 1, 0, 1}, out[LANES];
  static const struct {
    int op;
    uint8_t want[4];
  } rows[] = {{LB_K_AND, {0, 0, 0, 1}}, {LB_K_OR, {0, 1, 1, 1}},
              {LB_K_XOR, {0, 1, 1, 0}}, {LB_K_NOT, {1, 1, 0, 0}},
              {LB_K_EQ, {1, 0, 0, 1}},  {LB_K_NE, {0, 1, 1, 0}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    map_op(rows[i].op, LB_BOOL, LANES, x, y, out, LB_BOOL);
    assert_memory_equal(out, rows[i].want, 4);
  }
}

// -- floats ------------------------------------------------------------------

static const float edges_f32[] = {0.0f,
                                  -0.0f,
                                  1.0f,
                                  -1.0f,
                                  0.5f,
                                  -2.5f,
                                  1.5f,
                                  3.0f,
                                  0x1p-149f,
                                  -0x1p-149f,
                                  0x1p-126f,
                                  0x1.fffffep127f,
                                  -0x1.fffffep127f,
                                  INFINITY,
                                  -INFINITY,
                                  NAN,
                                  0.1f,
                                  -7.25f,
                                  1e-3f,
                                  1e10f};
#define N_EDGES (sizeof edges_f32 / sizeof *edges_f32)
#define N_PAIRS 448  // N_EDGES squared, padded to a multiple of LANES
_Static_assert(N_EDGES *N_EDGES <= N_PAIRS && N_PAIRS % LANES == 0, "padding");

static double exact_float(int op, double x, double y) {
  switch (op) {
    case LB_K_ADD: return x + y;
    case LB_K_SUB: return x - y;
    case LB_K_MUL: return x * y;
    case LB_K_DIV: return x / y;
    case LB_K_REM: return fmod(x, y);
    case LB_K_MIN: return isnan(x) ? x : isnan(y) ? y : x < y ? x : y;
    case LB_K_MAX: return isnan(x) ? x : isnan(y) ? y : x > y ? x : y;
    case LB_K_NEG: return -x;
    case LB_K_ABS: return fabs(x);
    default: fail(); return 0;
  }
}

static double to_double(lb_dtype t, const char *p) {
  float f;
  double d;
  uint16_t h;
  memcpy(&h, p, sizeof h);
  memcpy(&f, p, sizeof f);
  if (t == LB_F64) return memcpy(&d, p, sizeof d), d;
  if (t == LB_F16) return (double)lb_f16_to_f32(h);
  return t == LB_F32 ? (double)f : (double)lb_bf16_to_f32(h);
}

static void from_double(lb_dtype t, double x, char *p) {
  float f = (float)x;
  uint16_t h = t == LB_F16 ? lb_f64_to_f16(x) : lb_f32_to_bf16(f);
  if (t == LB_F64)
    memcpy(p, &x, sizeof x);
  else if (t == LB_F32)
    memcpy(p, &f, sizeof f);
  else
    memcpy(p, &h, sizeof h);
}

static bool same(double a, double b) {
  return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void check_floats(lb_dtype t) {
  size_t size = lb_dtype_size(t);
  char x[N_PAIRS * 8] = {0}, y[N_PAIRS * 8] = {0}, out[N_PAIRS * 8];
  for (size_t i = 0; i < N_EDGES * N_EDGES; i++) {
    from_double(t, (double)edges_f32[i / N_EDGES], x + i * size);
    from_double(t, (double)edges_f32[i % N_EDGES], y + i * size);
  }
  for (int op = LB_K_ADD; op <= LB_K_ABS; op++) {
    map_op(op, t, N_PAIRS, x, y, out, t);
    for (size_t i = 0; i < N_EDGES * N_EDGES; i++) {
      double u = to_double(t, x + i * size), v = to_double(t, y + i * size);
      char want[8];
      from_double(t, exact_float(op, u, v), want);
      if (same(to_double(t, out + i * size), to_double(t, want))) continue;
      print_error("%s %s %g %g: %g\n", lb_kop_infos[op].text, lb_dtype_name(t),
                  u, v, to_double(t, out + i * size));
      fail();
    }
  }
  for (int o = 0; o < 4; o++) {
    map_op(compares[o], t, N_PAIRS, x, y, out, LB_BOOL);
    for (size_t i = 0; i < N_EDGES * N_EDGES; i++) {
      double u = to_double(t, x + i * size), v = to_double(t, y + i * size);
      bool want = compare(compares[o], u == v, u < v);
      assert_int_equal(out[i], want);
    }
  }
}

static void floats_follow_ieee(void **state) {
  (void)state;
  check_floats(LB_F32);
  check_floats(LB_F64);
  check_floats(LB_F16);
  check_floats(LB_BF16);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void functions_compute_what_their_names_say(void **state) {
  (void)state;
  static const struct {
    int op;
    double (*fn)(double);
  } rows[] = {{LB_K_SQRT, sqrt},   {LB_K_FLOOR, floor},    {LB_K_CEIL, ceil},
              {LB_K_ROUND, rint},  {LB_K_TRUNC, trunc},    {LB_K_EXP, exp},
              {LB_K_EXP2, exp2},   {LB_K_EXPM1, expm1},    {LB_K_LOG, log},
              {LB_K_LOG2, log2},   {LB_K_LOG1P, log1p},    {LB_K_ERF, erf},
              {LB_K_ERFC, erfc},   {LB_K_SIN, sin},        {LB_K_COS, cos},
              {LB_K_TAN, tan},     {LB_K_ASIN, asin},      {LB_K_ACOS, acos},
              {LB_K_ATAN, atan},   {LB_K_SINH, sinh},      {LB_K_COSH, cosh},
              {LB_K_TANH, tanh},   {LB_K_ASINH, asinh},    {LB_K_ACOSH, acosh},
              {LB_K_ATANH, atanh}, {LB_K_SIGMOID, sigmoid}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (int t = LB_F32; t <= LB_BF16; t++) {
      char x[LANES * 8] = {0}, out[LANES * 8], want[8];
      size_t size = lb_dtype_size((lb_dtype)t);
      for (size_t i = 0; i < N_EDGES; i++)
        from_double((lb_dtype)t, (double)edges_f32[i], x + i * size);
      map_op(rows[r].op, (lb_dtype)t, LANES, x, x, out, (lb_dtype)t);
      for (size_t i = 0; i < N_EDGES; i++) {
        double exact = rows[r].fn(to_double((lb_dtype)t, x + i * size));
        from_double((lb_dtype)t, exact, want);
        double got = to_double((lb_dtype)t, out + i * size);
        assert_true(same(got, to_double((lb_dtype)t, want)));
      }
    }
  float x[LANES] = {2, 4, 0.25f}, y[LANES] = {0.5f, -1, 3}, out[LANES];
  map_op(LB_K_POW, LB_F32, LANES, x, y, out, LB_F32);
  assert_true(out[0] == 1.41421356f && out[1] == 0.25f && out[2] == 0.015625f);
  map_op(LB_K_RSQRT, LB_F32, LANES, x, y, out, LB_F32);
  assert_true(out[1] == 0.5f && out[2] == 2);
}

static void fma_rounds_once(void **state) {
  (void)state;
  lb_kernel k = kernel_of(
      "%0 = param ptr.f32\n"
      "%1 = load f32x4 %0\n"
      "%2 = const i64 0\n"
      "%3 = ptr ptr.f32 %0 %2 disp 16\n"
      "%4 = load f32x4 %3\n"
      "%5 = fma f32x4 %1 %1 %4\n"
      "store %0 %5\n");
  float x[8] = {1 + 0x1p-12f,  3, INFINITY,  -0.0f,
                -1 - 0x1p-11f, 1, -INFINITY, -0.0f};
  assert_ok(run_kernel(&k, (lb_karg[]){lb_karg_mem(x, sizeof x)}, 1, 1));
  assert_true(x[0] == 0x1p-24f);  // 0 if the product were rounded
  assert_true(x[1] == 10 && isnan(x[2]) && x[3] == 0 && !signbit(x[3]));
  lb_kernel_fini(&k);
}

// -- casts -------------------------------------------------------------------

static void casts_follow_their_definition(void **state) {
  (void)state;
  float f[LANES] = {1.9f,     -1.9f, 300,      -129,  2147483648.0f, NAN,
                    INFINITY, -0.0f, 65504.1f, 1e-8f, 255,           0x1p63f};
  uint8_t u8[LANES];
  int8_t i8[LANES];
  int32_t i32[LANES];
  uint64_t u64[LANES];
  uint16_t half[LANES];
  map_op(LB_K_CAST, LB_F32, LANES, f, f, u8, LB_U8);
  assert_memory_equal(u8, ((uint8_t[]){1, 255, 44, 127, 0, 0, 0, 0, 0xe0, 0}),
                      10);
  map_op(LB_K_CAST, LB_F32, LANES, f, f, i8, LB_I8);
  assert_memory_equal(i8, ((int8_t[]){1, -1, 44, 127, 0, 0, 0, 0}), 8);
  map_op(LB_K_CAST, LB_F32, LANES, f, f, i32, LB_I32);
  assert_true(i32[4] == INT32_MIN && i32[5] == INT32_MIN && i32[3] == -129);
  map_op(LB_K_CAST, LB_F32, LANES, f, f, u64, LB_U64);
  assert_true(u64[1] == UINT64_MAX && u64[11] == UINT64_C(1) << 63);
  map_op(LB_K_CAST, LB_F32, LANES, f, f, u8, LB_BOOL);
  assert_memory_equal(u8, ((uint8_t[]){1, 1, 1, 1, 1, 1, 1, 0, 1, 1}), 10);
  map_op(LB_K_CAST, LB_F32, LANES, f, f, half, LB_F16);
  assert_true(half[0] == 0x3f9a && half[6] == 0x7c00 && half[8] == 0x7bff &&
              half[9] == 0);
  int64_t i64[LANES] = {-1, 256, INT64_MIN, (1 << 24) + 1, INT64_MAX};
  map_op(LB_K_CAST, LB_I64, LANES, i64, i64, f, LB_F32);
  assert_true(f[0] == -1 && f[2] == -0x1p63f && f[3] == 0x1p24f &&
              f[4] == 0x1p63f);
  map_op(LB_K_CAST, LB_I64, LANES, i64, i64, u8, LB_U8);
  assert_memory_equal(u8, ((uint8_t[]){255, 0, 0, 1, 255}), 5);
  map_op(LB_K_CAST, LB_I64, LANES, i64, i64, half, LB_BF16);
  assert_true(half[0] == 0xbf80 && half[4] == 0x5f00);
  double d[LANES] = {1 + 0x1p-8 + 0x1p-40};
  map_op(LB_K_CAST, LB_F64, LANES, d, d, half, LB_BF16);
  assert_int_equal(half[0], 0x3f81);
  uint8_t b[LANES] = {0, 1};
  map_op(LB_K_CAST, LB_BOOL, LANES, b, b, f, LB_F32);
  assert_true(f[0] == 0 && f[1] == 1);
}

// -- lanes -------------------------------------------------------------------

// Runs a kernel that stores its result through parameter 0.
static void run_out(const char *body, void *out, size_t size) {
  lb_kernel k = kernel_of(body);
  assert_ok(run_kernel(&k, (lb_karg[]){lb_karg_mem(out, size)}, 1, 1));
  lb_kernel_fini(&k);
}

static void lane_operations_move_lanes(void **state) {
  (void)state;
  int32_t out[8] = {0};
  run_out(
      "%0 = param ptr.i32\n"
      "%1 = iota i32x8\n"
      "%2 = const i32 7\n"
      "%3 = splat i32x8 %2\n"
      "%4 = sub i32x8 %3 %1\n"
      "%5 = shuffle i32x4 %1 %4 [0 8 7 15]\n"
      "%6 = extract i32 %5 lane 2\n"
      "%7 = insert i32x4 %5 %6\n"
      "store %0 %7\n"
      "%9 = const i64 4\n"
      "%10 = ptr ptr.i32 %0 %9\n"
      "%11 = shuffle i32x2 %4 [7 1]\n"
      "store %10 %11\n",
      out, sizeof out);
  assert_memory_equal(out, ((int32_t[]){7, 7, 7, 0, 0, 6, 0, 0}), 32);
}

static void select_takes_a_scalar_or_vector_condition(void **state) {
  (void)state;
  float out[8];
  run_out(
      "%0 = param ptr.f32\n"
      "%1 = const f32x4 1\n"
      "%2 = const f32x4 2\n"
      "%3 = const i64 3\n"
      "%4 = tail boolx4 %3\n"
      "%5 = select f32x4 %4 %1 %2\n"
      "store %0 %5\n"
      "%7 = const bool false\n"
      "%8 = select f32x4 %7 %1 %2\n"
      "%9 = const i64 4\n"
      "%10 = ptr ptr.f32 %0 %9\n"
      "%11 = select ptr.f32 %7 %0 %10\n"
      "store %11 %8\n",
      out, sizeof out);
  assert_memory_equal(out, ((float[]){1, 1, 1, 2, 2, 2, 2, 2}), sizeof out);
}

static void tail_handles_any_length(void **state) {
  (void)state;
  static const int64_t lengths[] = {INT64_MIN, -1, 0, 1, 5, 63, 64, INT64_MAX};
  lb_kernel k = kernel_of(
      "%0 = param ptr.bool\n%1 = param i64 slot 1\n"
      "%2 = tail boolx64 %1\nstore %0 %2\n");
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    uint8_t out[64];
    lb_karg args[] = {lb_karg_mem(out, 64), lb_karg_i64(lengths[i])};
    assert_ok(run_kernel(&k, args, 2, 1));
    for (int64_t j = 0; j < 64; j++) assert_int_equal(out[j], j < lengths[i]);
  }
  lb_kernel_fini(&k);
}

// Lane i of the lower half is combined with lane i of the upper half, until one
// lane is left.
static void reductions_combine_halves(void **state) {
  (void)state;
  float x[9] = {1e8f, 3, -1e8f, 0.5f, 1, 5, 7, -2};
  run_out(
      "%0 = param ptr.f32\n%1 = load f32x8 %0\n%2 = radd f32 %1\n"
      "%3 = rmax f32 %1\n%4 = rmin f32 %1\n%5 = rmul f32 %1\n"
      "store %0 %2\n"
      "%7 = const i64 0\n"
      "%8 = ptr ptr.f32 %0 %7 disp 4\nstore %8 %3\n"
      "%10 = ptr ptr.f32 %0 %7 disp 8\nstore %10 %4\n"
      "%12 = ptr ptr.f32 %0 %7 disp 12\nstore %12 %5\n",
      x, sizeof x);
  float a = 1e8f + 1, b = 3.0f + 5, c = -1e8f + 7, d = 0.5f - 2;
  assert_true(x[0] == (a + c) + (b + d));
  assert_true(x[1] == 1e8f && x[2] == -1e8f);
  float p = (1e8f * 1) * (-1e8f * 7), q = (3.0f * 5) * (0.5f * -2);
  assert_true(x[3] == p * q);
  float nan[4] = {1, NAN, 3, 4};
  run_out(
      "%0 = param ptr.f32\n%1 = load f32x4 %0\n%2 = rmax f32 %1\n"
      "store %0 %2\n",
      nan, sizeof nan);
  assert_true(isnan(nan[0]));
  uint8_t flags[4] = {1, 1, 0, 1};
  run_out(
      "%0 = param ptr.bool\n%1 = load boolx4 %0\n%2 = rand bool %1\n"
      "%3 = ror bool %1\nstore %0 %2\n%5 = const i64 1\n"
      "%6 = ptr ptr.bool %0 %5\nstore %6 %3\n",
      flags, sizeof flags);
  assert_true(flags[0] == 0 && flags[1] == 1);
}

static void dot4_mixes_signs_and_wraps(void **state) {
  (void)state;
  uint8_t m[16] = {255, 1, 2, 128, 255, 255, 255, 255};
  int32_t acc = INT32_MAX;
  static const char *const types[2] = {"i8", "u8"};
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++) {
      lb_strbuf text = {0};
      int32_t out[1];
      lb_strbuf_printf(&text,
                       "%%0 = param ptr.i32\n%%1 = param cptr.%s slot 1\n"
                       "%%2 = param cptr.%s slot 2\n%%3 = param i32 slot 3\n"
                       "%%4 = load %sx4 %%1\n%%5 = load %sx4 %%2\n"
                       "%%6 = dot4 i32 %%3 %%4 %%5\nstore %%0 %%6\n",
                       types[a], types[b], types[a], types[b]);
      lb_kernel k = kernel_of(text.data);
      lb_karg args[] = {lb_karg_mem(out, 4), lb_karg_mem(m, 4),
                        lb_karg_mem(m + 4, 4), lb_karg_i64(acc)};
      assert_ok(run_kernel(&k, args, 4, 1));
      int64_t sum = acc;
      for (int j = 0; j < 4; j++)
        sum += (a ? m[j] : (int8_t)m[j]) * (b ? m[4 + j] : (int8_t)m[4 + j]);
      assert_int_equal(out[0], (int32_t)(uint32_t)sum);
      lb_strbuf_fini(&text);
      lb_kernel_fini(&k);
    }
}

static void bitcasts_preserve_bytes(void **state) {
  (void)state;
  uint8_t m[16] = {0, 0, 0x80, 0x3f, 1, 2, 3, 4};
  run_out(
      "%0 = param ptr.u8\n%1 = load u8x8 %0\n%2 = bitcast u32x2 %1\n"
      "%3 = bitcast f32x2 %2\n%4 = extract f32 %3\n"
      "%5 = cast u8 %4\nstore %0 %5\n%7 = bitcast ptr.u32 %0\n"
      "%8 = const i64 2\n%9 = ptr ptr.u32 %7 %8\n"
      "%10 = extract u32 %2 lane 1\nstore %9 %10\n",
      m, sizeof m);
  assert_int_equal(m[0], 1);
  assert_memory_equal(m + 8, m + 4, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers_wrap_and_truncate),
      cmocka_unit_test(bools_are_logic),
      cmocka_unit_test(floats_follow_ieee),
      cmocka_unit_test(functions_compute_what_their_names_say),
      cmocka_unit_test(fma_rounds_once),
      cmocka_unit_test(casts_follow_their_definition),
      cmocka_unit_test(lane_operations_move_lanes),
      cmocka_unit_test(select_takes_a_scalar_or_vector_condition),
      cmocka_unit_test(tail_handles_any_length),
      cmocka_unit_test(reductions_combine_halves),
      cmocka_unit_test(dot4_mixes_signs_and_wraps),
      cmocka_unit_test(bitcasts_preserve_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
