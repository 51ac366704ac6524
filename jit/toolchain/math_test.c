// toolchain/math_test.c -- Compares functions of machine code with those of
// libm in higher precision; they are the same at every level and number of
// lanes.
#include "toolchain/machine.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kir/num.h"

enum { N = 1 << 13 };

typedef long double ld;
typedef ld exact_fn(ld x);

static ld rsqrt_exact(ld x) { return 1 / sqrtl(x); }
static ld sigmoid_exact(ld x) { return 1 / (1 + expl(-x)); }

// bounds in ulps; most arguments are drawn from `low` to `high`
typedef struct function {
  lb_kop op;
  exact_fn *exact;
  double f32, f64;
  double low, high;
} function;

static const function functions[] = {
    {LB_K_RSQRT, rsqrt_exact, 1.5, 1.5, 0, 100},
    {LB_K_EXP, expl, 1.5, 1.5, -110, 100},
    {LB_K_EXP2, exp2l, 2, 2, -155, 130},
    {LB_K_EXPM1, expm1l, 3, 3, -20, 20},
    {LB_K_LOG, logl, 2, 2, 0, 3},
    {LB_K_LOG2, log2l, 3, 3, 0, 3},
    {LB_K_LOG1P, log1pl, 3, 3, -1, 3},
    {LB_K_ERF, erfl, 2, 2, -5, 5},
    {LB_K_ERFC, erfcl, 1, 4, -7, 12},
    {LB_K_SIN, sinl, 2, 2, -100, 100},
    {LB_K_COS, cosl, 2, 2, -100, 100},
    {LB_K_TAN, tanl, 1, 3, -100, 100},
    {LB_K_ASIN, asinl, 1, 2, -1, 1},
    {LB_K_ACOS, acosl, 1, 2, -1, 1},
    {LB_K_ATAN, atanl, 1, 2, -10, 10},
    {LB_K_SINH, sinhl, 1, 3, -20, 20},
    {LB_K_COSH, coshl, 1, 2, -20, 20},
    {LB_K_TANH, tanhl, 3, 3, -10, 10},
    {LB_K_SIGMOID, sigmoid_exact, 3, 3, -90, 20},
    {LB_K_ASINH, asinhl, 1, 3, -10, 10},
    {LB_K_ACOSH, acoshl, 1, 3, 1, 20},
    {LB_K_ATANH, atanhl, 1, 3, -1, 1},
};

static uint64_t seed = 1;

static uint64_t draw(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return seed ^ seed >> 29;
}

static double draw_between(double low, double high) {
  return low + (high - low) * (double)(draw() >> 11) * 0x1p-53;
}

static const double edges[] = {
    0.0,        -0.0,     1,          -1,        0.5,       -0.5,
    2,          -2,       INFINITY,   -INFINITY, NAN,       0x1p-149,
    -0x1p-149,  0x1p-126, 0x1.8p-130, 0x1p-1074, 0x1p-1022, 0x1.8p-1030,
    -0x1p-1074, 88.7,     88.73,      -87.4,     -103.5,    -104,
    709.7,      709.8,    -745.1,     -745.2,    -708.5,    1e10,
    -1e10,      1e-10,    -1e-10,     0x1p-30,   3.4e38,    -3.4e38,
    1.7e308,    -0.99999, 1.0000001,  0.9999999, 710.3,     -1.00001,
    26.6,       27.3,     9.1,        10.1,      127.9,     128,
    -126,       -149,     -150,       1023.9,    1024};
enum { EDGES = sizeof edges / sizeof *edges };

// Larger angles are treated as 0. Angles of double have errors from 2^30 on. A
// sigmoid that would be denormal may be 0.
static bool in_scope(lb_kop op, lb_dtype t, double x) {
  if (op == LB_K_SIGMOID)
    return !isfinite(x) || x >= (t == LB_F32 ? -87.33 : -708.3);
  bool angle = op == LB_K_SIN || op == LB_K_COS || op == LB_K_TAN;
  return !angle || !isfinite(x) || fabs(x) <= (t == LB_F32 ? 0x1p47 : 0x1p30);
}

static double draw_argument(lb_dtype t, double low, double high, int i) {
  if (i < EDGES) return lb_knum_float(t, lb_knum_bits(t, edges[i]));
  double x = draw_between(low, high);
  if (i % 8 == 0) x = lb_knum_float(t, t == LB_F32 ? draw() >> 32 : draw());
  if (i % 8 == 1) x *= 0x1p-10;
  if (i % 8 == 2) x *= pow(2, -(double)(draw() % 60));
  return lb_knum_float(t, lb_knum_bits(t, x));
}

// got - want| in ulps of want.
static double ulps(lb_dtype t, double got, ld want) {
  int digits = t == LB_F32 ? 24 : 53, min_exponent = t == LB_F32 ? -149 : -1074;
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : 1e30;
  double rounded = t == LB_F32 ? (double)(float)want : (double)want;
  if (isinf(rounded) || isinf(got))
    return rounded == got ? 0 : fabsl(want) > (ld)DBL_MAX ? 0.5 : 1e30;
  if (want == 0) return got == 0 && !signbit(got) == !signbit(want) ? 0 : 1e30;
  int e;
  frexpl(want, &e);
  ld unit = ldexpl(1, e - digits > min_exponent ? e - digits : min_exponent);
  return (double)(fabsl((ld)got - want) / unit);
}

// y[i] = op(x[i][, z[i]]) for i < N
static void build(lb_kop op, lb_dtype t, uint32_t lanes, lb_kernel *out) {
  lb_kbuilder b;
  lb_kbuild_init(&b, "apply");
  lb_kval x = lb_k_param(&b, lb_kt_ptr(t, LB_K_READONLY));
  lb_kval z = lb_k_param(&b, lb_kt_ptr(t, LB_K_READONLY));
  lb_kval y = lb_k_param(&b, lb_kt_ptr(t, 0));
  lb_kval i =
      lb_k_loop(&b, lb_k_i64(&b, 0), lb_k_i64(&b, N), lb_k_i64(&b, lanes));
  lb_kval v[] = {lb_k_load(&b, lb_k_ptr(&b, x, i, 0), lanes, 0),
                 lb_k_load(&b, lb_k_ptr(&b, z, i, 0), lanes, 0)};
  lb_kinst in = {.op = (uint8_t)op,
                 .dtype = (uint8_t)t,
                 .lanes = (uint16_t)lanes,
                 .n_src = lb_kop_infos[op].min_src};
  lb_kval r = lb_k_push(&b, in, v, NULL);
  lb_k_store(&b, lb_k_ptr(&b, y, i, 0), r, 0);
  lb_k_end(&b);
  assert_ok(lb_kernel_finish(&b, out));
}

static void apply(machine *m, lb_kop op, lb_dtype t, uint32_t lanes,
                  const void *x, const void *z, void *y) {
  lb_kernel k;
  build(op, t, lanes, &k);
  uint64_t args[] = {(uint64_t)(uintptr_t)x, (uint64_t)(uintptr_t)z,
                     (uint64_t)(uintptr_t)y};
  machine_load(m, &k)(args);
  lb_kernel_fini(&k);
}

static double at(const void *p, lb_dtype t, int i) {
  return t == LB_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void put(void *p, lb_dtype t, int i, double x) {
  if (t == LB_F32)
    ((float *)p)[i] = (float)x;
  else
    ((double *)p)[i] = x;
}

enum { CAPACITY = N + 64 };  // for lanes past the last
static double xs[CAPACITY], zs[CAPACITY], first[CAPACITY], second[CAPACITY];

// -- one operand -------------------------------------------------------------

static double worst_of(const function *f, lb_dtype t, double *where) {
  double worst = 0;
  for (int i = 0; i < N; i++) {
    double x = at(xs, t, i);
    if (!in_scope(f->op, t, x)) continue;
    ld want = f->exact((ld)x);
    double u = ulps(t, at(first, t, i), want);
    // limits such as 1 must be reached, and erf must not exceed them
    if (isinf(x) && want == rintl(want) && u > 0) u = 1e30;
    if (f->op == LB_K_ERF && fabs(at(first, t, i)) > 1) u = 1e30;
    if (u > worst) worst = u, *where = x;
  }
  return worst;
}

static void check_function(machine *m, const function *f, lb_dtype t) {
  double where = 0, bound = t == LB_F32 ? f->f32 : f->f64;
  for (int i = 0; i < N; i++)
    put(xs, t, i, draw_argument(t, f->low, f->high, i));
  apply(m, f->op, t, t == LB_F32 ? 16 : 8, xs, xs, first);
  double worst = worst_of(f, t, &where);
  if (getenv("LIMBER_TEST_VERBOSE"))
    print_message("v%u %-6s %s %.2f ulp at %a\n", m->target.level,
                  lb_kop_infos[f->op].text, lb_dtype_name(t), worst, where);
  if (worst > bound) {
    print_error("%s %s: %g ulp at %a, more than %g\n", lb_kop_infos[f->op].text,
                lb_dtype_name(t), worst, where, bound);
    fail();
  }
}

static void check_functions(machine *m) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    check_function(m, &functions[i], LB_F32);
    check_function(m, &functions[i], LB_F64);
  }
}

static void functions_are_as_accurate_as_stated(void **state) {
  (void)state;
  each_machine(check_functions);
}

// -- powers ------------------------------------------------------------------

static void draw_powers(lb_dtype t) {
  for (int i = 0; i < N; i++) {
    double x = draw_argument(t, 0, 10, i % 2 ? N - i : i / 2 % EDGES);
    double z = draw_argument(t, -20, 20, i % 3 ? N - 1 - i : i / 3 % EDGES);
    if (i % 5 == 0) z = rint(z);
    if (i % 10 == 0) x = -x;
    if (i % 7 == 0) z = draw_between(-100, 100) / log(fabs(x) + 0x1p-40);
    put(xs, t, i, x);
    put(zs, t, i, z);
  }
}

static void check_pow(machine *m, lb_dtype t, double bound) {
  draw_powers(t);
  apply(m, LB_K_POW, t, t == LB_F32 ? 16 : 8, xs, zs, first);
  double worst = 0;
  for (int i = 0; i < N; i++) {
    double x = at(xs, t, i), z = at(zs, t, i);
    double u = ulps(t, at(first, t, i), powl((ld)x, (ld)z));
    if (u > worst) worst = u;
    if (u <= bound) continue;
    print_error("pow(%a, %a) = %a, not %La: %g ulp\n", x, z, at(first, t, i),
                powl((ld)x, (ld)z), u);
    fail();
  }
  if (getenv("LIMBER_TEST_VERBOSE"))
    print_message("v%u pow %s %.2f ulp\n", m->target.level, lb_dtype_name(t),
                  worst);
}

static void check_powers(machine *m) {
  check_pow(m, LB_F32, 1);
  check_pow(m, LB_F64, 2);
}

static void powers_are_as_accurate_as_stated(void **state) {
  (void)state;
  each_machine(check_powers);
}

// -- levels and lanes --------------------------------------------------------

// Results must equal those of the lowest level with 16 or 8 lanes.
static void check_same(machine *m, machine *plain, lb_kop op, lb_dtype t) {
  static const uint32_t lanes[] = {1, 2, 3, 4, 8, 12, 16, 32};
  apply(plain, op, t, t == LB_F32 ? 16 : 8, xs, zs, first);
  for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
    apply(m, op, t, lanes[i], xs, zs, second);
    for (int n = 0; n < N; n++) {
      if (isnan(at(first, t, n)) && isnan(at(second, t, n))) continue;
      if (at(first, t, n) == at(second, t, n) &&
          !signbit(at(first, t, n)) == !signbit(at(second, t, n)))
        continue;
      print_error("%s %s x%u at level %u: %a gives %a and %a\n",
                  lb_kop_infos[op].text, lb_dtype_name(t), lanes[i],
                  m->target.level, at(xs, t, n), at(first, t, n),
                  at(second, t, n));
      fail();
    }
  }
}

static void check_all_same(machine *m) {
  machine plain = machine_open((lb_target){LB_LEVEL_V3, 0});
  for (lb_dtype t = LB_F32; t <= LB_F64; t++) {
    for (int i = 0; i < N; i++) put(xs, t, i, draw_argument(t, -20, 20, i));
    for (int i = 0; i < N; i++) put(zs, t, i, draw_argument(t, -3, 3, N - i));
    for (lb_kop op = LB_K_RSQRT; op <= LB_K_POW; op++)
      check_same(m, &plain, op, t);
  }
  machine_close(&plain);
}

static void results_are_the_same_at_every_level_and_lane_count(void **state) {
  (void)state;
  each_machine(check_all_same);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_are_as_accurate_as_stated),
      cmocka_unit_test(powers_are_as_accurate_as_stated),
      cmocka_unit_test(results_are_the_same_at_every_level_and_lane_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
