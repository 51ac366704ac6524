// toolchain/lanes_test.c -- Compares every operation on every dtype with the
// interpreter, bit for bit.
#include "toolchain/machine.h"

#include <math.h>
#include <stdlib.h>

#include "kir/num.h"
#include "kir/type.h"

enum {
  ITERATIONS = 24,
  MAX_CASES = 128,
  MAX_VALUES = ITERATIONS * LB_K_MAX_LANES
};

typedef struct result {  // the result of one operation
  lb_kop op;
  lb_ktype type;
  bool exact;
} result;

typedef struct test_case {
  lb_kernel kernel;
  lb_dtype dtype;
  uint32_t lanes;
  result results[MAX_CASES];
  uint32_t n;
} test_case;

// -- operands ----------------------------------------------------------------

static uint64_t seed = 7;

static uint64_t draw(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return seed ^ seed >> 31;
}

// Edge values of one dtype are useful for all.
static uint64_t draw_bits(lb_dtype t) {
  static const double edges[] = {
      0.0,        -0.0,       1,         -1,          0.5,         1.5,
      2.5,        -2.5,       3,         -7,          8,           31,
      32,         33,         63,        64,          127,         128,
      -128,       -129,       255,       256,         32767,       32768,
      -32768,     -32769,     65504,     65519,       65520,       65535,
      65536,      0x1p31,     -0x1p31,   0x1p31 - 1,  -0x1p31 - 1, 0x1p32,
      0x1p32 - 1, 0x1p63,     -0x1p63,   0x1p64,      0x1.8p63,    0x1p53 + 2,
      0x1p-14,    0x1p-24,    0x1p-25,   0x1.8p-25,   0x1p-126,    0x1p-149,
      0x1.8p-130, 1e30,       3.4e38,    0x1p-1074,   INFINITY,    -INFINITY,
      NAN,        0x1.0001p0, 0x1.004p0, 0x1.00401p0, 0x1.008p0,   0x1.018p0};
  if (t == LB_BOOL) return draw() & 1;
  size_t bits = 8 * lb_dtype_size(t);
  switch (draw() % 4) {
    case 0: return draw() >> (64 - bits);
    case 1: return lb_knum_bits(t, (double)(int64_t)(draw() % 41) - 20);
    default:
      return lb_knum_bits(t, edges[draw() % (sizeof edges / sizeof *edges)]);
  }
}

static void *draw_values(lb_dtype t) {
  size_t size = lb_dtype_size(t);
  char *p = aligned_alloc(64, MAX_VALUES * 8);
  for (size_t i = 0; i < MAX_VALUES; i++) {
    uint64_t bits = draw_bits(t);
    memcpy(p + i * size, &bits, size);
  }
  return p;
}

// -- kernels -----------------------------------------------------------------

enum { BLOCK = ITERATIONS * 512 };  // bytes of the results of one operation

static void store_result(test_case *c, lb_kbuilder *b, lb_kval out,
                         lb_kval iteration, result r, lb_kval v) {
  int64_t offset = (int64_t)c->n * BLOCK;
  assert_true(c->n < MAX_CASES);
  lb_kval at = lb_k_mul(b, iteration, lb_k_i64(b, 512));
  lb_kval p = lb_k_bitcast(b, lb_k_ptr(b, out, at, offset), r.type.dtype);
  lb_k_store(b, p, v, 0);
  c->results[c->n++] = r;
}

static unsigned kind_of(lb_dtype t) {
  return lb_dtype_is_float(t) ? LB_KD_FLOAT
         : t == LB_BOOL       ? LB_KD_BOOL
                              : LB_KD_INT;
}

static bool type_of_result(const test_case *c, lb_kop op, lb_ktype *out) {
  const lb_kop_info *info = &lb_kop_infos[op];
  bool power = (c->lanes & (c->lanes - 1)) == 0;
  *out = lb_kt(c->dtype, c->lanes);
  if (!(info->dtypes & kind_of(c->dtype))) return false;
  // Functions of float and double have their own test.
  if (info->cls == LB_KC_PURE && c->dtype <= LB_F64) return false;
  // Angles beyond 2^48 are not computed; float16 has none.
  bool angle = op == LB_K_SIN || op == LB_K_COS || op == LB_K_TAN;
  if (angle && c->dtype == LB_BF16) return false;
  if (info->rule == LB_KR_COMPARE) out->dtype = LB_BOOL;
  if (info->rule == LB_KR_REDUCE) out->lanes = 1;
  return info->rule == LB_KR_SAME || info->rule == LB_KR_COMPARE ||
         (info->rule == LB_KR_REDUCE && power);
}

static void add_operations(test_case *c, lb_kbuilder *b, lb_kval out,
                           lb_kval iteration, const lb_kval *x) {
  for (lb_kop op = 0; op < LB_K_COUNT; op++) {
    lb_ktype t;
    if (!type_of_result(c, op, &t)) continue;
    lb_kinst in = {.op = (uint8_t)op,
                   .dtype = t.dtype,
                   .lanes = t.lanes,
                   .n_src = lb_kop_infos[op].min_src};
    bool exact = lb_kop_infos[op].cls == LB_KC_EXACT;
    store_result(c, b, out, iteration, (result){op, t, exact},
                 lb_k_push(b, in, x, NULL));
  }
}

static void build(test_case *c) {
  lb_kbuilder b;
  lb_kval p[3], x[3];
  lb_kbuild_init(&b, "lanes");
  for (int i = 0; i < 3; i++)
    p[i] = lb_k_param(&b, lb_kt_ptr(c->dtype, LB_K_READONLY));
  lb_kval out = lb_k_param(&b, lb_kt_ptr(LB_U8, 0));
  lb_kval iteration =
      lb_k_loop(&b, lb_k_i64(&b, 0), lb_k_i64(&b, ITERATIONS), lb_k_i64(&b, 1));
  lb_kval at = lb_k_mul(&b, iteration, lb_k_i64(&b, c->lanes));
  for (int i = 0; i < 3; i++)
    x[i] = lb_k_load(&b, lb_k_ptr(&b, p[i], at, 0), c->lanes, 0);
  add_operations(c, &b, out, iteration, x);
  for (lb_dtype t = LB_F32; t < LB_DTYPE_COUNT; t++)
    store_result(c, &b, out, iteration,
                 (result){LB_K_CAST, lb_kt(t, c->lanes), true},
                 lb_k_cast(&b, x[0], t));
  lb_kval cond = lb_k_ne(&b, x[1], x[2]);
  store_result(c, &b, out, iteration,
               (result){LB_K_SELECT, lb_kt(c->dtype, c->lanes), true},
               lb_k_select(&b, cond, x[0], x[1]));
  lb_k_end(&b);
  assert_ok(lb_kernel_finish(&b, &c->kernel));
}

// -- comparing ---------------------------------------------------------------

// Inexact functions of float16 and bfloat16 may differ by one step; NaN
// payloads are ignored.
static bool same(result r, uint64_t a, uint64_t b) {
  if (a == b) return true;
  if (!lb_dtype_is_float(r.type.dtype)) return false;
  if (isnan(lb_knum_float(r.type.dtype, a)))
    return isnan(lb_knum_float(r.type.dtype, b));
  return !r.exact && llabs((int64_t)a - (int64_t)b) <= 1;
}

static void compare(const machine *m, const test_case *c, const char *got,
                    const char *want) {
  for (uint32_t n = 0; n < c->n; n++) {
    result r = c->results[n];
    size_t size = lb_dtype_size(r.type.dtype);
    for (size_t iteration = 0; iteration < ITERATIONS; iteration++)
      for (size_t lane = 0; lane < r.type.lanes; lane++) {
        size_t at = n * BLOCK + iteration * 512 + lane * size;
        uint64_t a = 0, b = 0;
        memcpy(&a, got + at, size);
        memcpy(&b, want + at, size);
        if (same(r, a, b)) continue;
        print_error(
            "level %u: %s of %s x%u to %s, iteration %zu lane %zu: %llx, "
            "not %llx\n",
            m->target.level, lb_kop_infos[r.op].text, lb_dtype_name(c->dtype),
            c->lanes, lb_dtype_name(r.type.dtype), iteration, lane,
            (unsigned long long)a, (unsigned long long)b);
        fail();
      }
  }
}

static void check(machine *m, lb_dtype t, uint32_t lanes) {
  test_case *c = calloc(1, sizeof *c);
  c->dtype = t, c->lanes = lanes;
  build(c);
  size_t size = MAX_CASES * BLOCK;
  char *got = aligned_alloc(64, size), *want = aligned_alloc(64, size);
  memset(got, 0, size);
  memset(want, 0, size);
  lb_karg args[4];
  for (int i = 0; i < 3; i++)
    args[i] = lb_karg_mem(draw_values(t), MAX_VALUES * lb_dtype_size(t));
  args[3] = lb_karg_mem(want, size);
  assert_ok(run_kernel(&c->kernel, args, 4, 1));
  args[3] = lb_karg_mem(got, size);
  machine_call(machine_load(m, &c->kernel), args, 4);
  compare(m, c, got, want);
  for (int i = 0; i < 3; i++) free(args[i].data);
  free(got), free(want);
  lb_kernel_fini(&c->kernel);
  free(c);
}

static void check_all(machine *m) {
  static const uint32_t lanes[] = {1, 3, 8, 16};
  for (lb_dtype t = LB_F32; t < LB_DTYPE_COUNT; t++)
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
      check(m, t, lanes[i]);
  check(m, LB_I8, 64);
  check(m, LB_F32, 64);
}

static void operations_equal_the_interpreter(void **state) {
  (void)state;
  each_machine(check_all);
}

// -- int8 dot products -------------------------------------------------------

static void check_dot4(machine *m, lb_dtype x, lb_dtype y, uint32_t lanes) {
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "dot4");
  lb_kval px = lb_k_param(&b, lb_kt_ptr(x, LB_K_READONLY));
  lb_kval py = lb_k_param(&b, lb_kt_ptr(y, LB_K_READONLY));
  lb_kval acc = lb_k_param(&b, lb_kt_ptr(LB_I32, 0));
  lb_kval v = lb_k_dot4(&b, lb_k_load(&b, acc, lanes, 0),
                        lb_k_load(&b, px, 4 * lanes, 0),
                        lb_k_load(&b, py, 4 * lanes, 0));
  lb_k_store(&b, acc, v, 0);
  assert_ok(lb_kernel_finish(&b, &k));
  machine_fn *fn = machine_load(m, &k);
  for (int iteration = 0; iteration < 20; iteration++) {
    uint8_t xs[64], ys[64];
    uint32_t want[16], got[16];
    for (int i = 0; i < 64; i++) {
      xs[i] = iteration ? (uint8_t)draw() : 0x80;
      ys[i] = iteration > 1 ? (uint8_t)draw() : 0x80;
    }
    for (int i = 0; i < 16; i++) want[i] = got[i] = (uint32_t)draw();
    lb_karg args[] = {lb_karg_mem(xs, 64), lb_karg_mem(ys, 64),
                      lb_karg_mem(want, 64)};
    assert_ok(run_kernel(&k, args, 3, 1));
    args[2] = lb_karg_mem(got, 64);
    machine_call(fn, args, 3);
    assert_memory_equal(got, want, sizeof got);
  }
  lb_kernel_fini(&k);
}

static void check_all_dot4(machine *m) {
  static const uint32_t lanes[] = {1, 2, 4, 8, 12, 16};
  for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
    for (int signs = 0; signs < 4; signs++)
      check_dot4(m, signs & 1 ? LB_I8 : LB_U8, signs & 2 ? LB_I8 : LB_U8,
                 lanes[i]);
}

static void dot4_is_exact_for_all_signs(void **state) {
  (void)state;
  each_machine(check_all_dot4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operations_equal_the_interpreter),
      cmocka_unit_test(dot4_is_exact_for_all_signs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
