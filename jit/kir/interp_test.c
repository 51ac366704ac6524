// kir/interp_test.c -- Memory, blocks, registers, groups, and each fault.
#include "kir/testkit.h"

#include <math.h>

// Runs `body` on one array of floats (parameter 0) and a number (parameter 1).
static lb_status run_on(const char *body, float *x, size_t n, int64_t number) {
  lb_kernel k = kernel_of(body);
  lb_karg args[] = {lb_karg_mem(x, n * sizeof *x), lb_karg_i64(number)};
  lb_status st = run_kernel(&k, args, 2, 1);
  lb_kernel_fini(&k);
  return st;
}

#define HEAD                \
  "%0 = param ptr.f32\n"    \
  "%1 = param i64 slot 1\n" \
  "%2 = const i64 0\n"      \
  "%3 = const i64 1\n"

// -- memory ------------------------------------------------------------------

static void masked_lanes_are_not_touched(void **state) {
  (void)state;
  float x[3] = {1, 2, 3};
  const char *body = HEAD
      "%4 = tail boolx8 %1\n"
      "%5 = const f32x8 -inf\n"
      "%6 = load f32x8 %0 %4 %5\n"
      "%7 = load f32x8 %0 %4\n"
      "%8 = rmax f32 %6\n"
      "%9 = radd f32 %7\n"
      "%10 = splat f32x8 %8\n"
      "%11 = splat f32x8 %9\n"
      "%12 = add f32x8 %10 %11\n"
      "store %0 %12 %4\n";
  assert_ok(run_on(body, x, 3, 3));
  assert_true(x[0] == 9 && x[1] == 9 && x[2] == 9);
  assert_ok(run_on(body, x, 0, 0));  // all lanes off, no memory
  assert_error(run_on(body, x, 3, 4), LB_INVALID,
               "instruction 6 '%6 = load f32x8 %0 %4 %5' accesses 4 bytes at "
               "offset 12 of memory 0, which has 12 bytes");
}

static void accesses_stay_in_bounds(void **state) {
  (void)state;
  float x[16] = {0};
  static const struct {
    const char *line;
    int64_t number;
  } bad[] = {{"%5 = load f32x16 %4\n", 1},
             {"%5 = load f32x4 %4\n", 13},
             {"%5 = load f32 %4\n", -1},
             {"%5 = load f32 %4\n", 16},
             {"%5 = load f32 %4\n", INT64_MAX},
             {"%5 = load f32 %4\n", INT64_MIN / 4},
             {"%5 = load f32 %4\n", INT64_C(1) << 60}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    lb_strbuf body = {0};
    lb_strbuf_printf(&body, "%s%%4 = ptr ptr.f32 %%0 %%1\n%s", HEAD,
                     bad[i].line);
    assert_error(run_on(body.data, x, 16, bad[i].number), LB_INVALID,
                 "instruction 5");
    lb_strbuf_fini(&body);
  }
  // Any address may be computed as long as it is not accessed.
  assert_ok(run_on(HEAD "%4 = ptr ptr.f32 %0 %1 disp 64\nprefetch %4\n"
                        "%6 = const i64 -1000016\n%7 = ptr ptr.f32 %4 %6\n"
                        "%8 = load f32x16 %7\n",
                   x, 16, 1000000));
}

static void stated_alignment_is_checked(void **state) {
  (void)state;
  _Alignas(64) float x[64] = {0};
  const char *body = HEAD
      "%4 = ptr ptr.f32 %0 %1\n"
      "%5 = load f32x4 %4 align 16\n";
  assert_ok(run_on(body, x, 64, 4));
  assert_error(run_on(body, x, 64, 2), LB_INVALID, "aligned to 16");
  const char *odd = HEAD
      "%4 = ptr ptr.f32 %0 %2 disp 2\n"
      "%5 = load f32 %4\n";
  assert_error(run_on(odd, x, 64, 0), LB_INVALID, "aligned to 4");
  assert_ok(run_on(HEAD "%4 = ptr ptr.f32 %0 %2 disp 2\n"
                        "%5 = load f32 %4 align 1\n",
                   x, 64, 0));
}

static void gather_and_scatter_take_each_index(void **state) {
  (void)state;
  float x[8] = {10, 11, 12, 13, 14, 15, 16, 17};
  assert_ok(run_on(HEAD "%4 = iota i32x4\n"
                        "%5 = const i32x4 2\n"
                        "%6 = mul i32x4 %4 %5\n"
                        "%7 = tail boolx4 %1\n"
                        "%8 = const f32x4 5\n"
                        "%9 = gather f32x4 %0 %6 %7 %8\n"
                        "%10 = iota i64x4\n"
                        "%11 = const i64x4 1\n"
                        "%12 = shr i64x4 %10 %11\n"
                        "scatter %0 %12 %9\n",
                   x, 8, 3));
  assert_true(x[0] == 12 && x[1] == 5 && x[2] == 12);  // the last one wins
  assert_error(
      run_on(HEAD "%4 = iota i32x16\n%5 = gather f32x16 %0 %4\n", x, 8, 0),
      LB_INVALID, "offset 32");
  assert_error(run_on(HEAD "%4 = const i32x2 -1\n%5 = const f32x2 0\n"
                           "scatter %0 %4 %5\n",
                      x, 8, 0),
               LB_INVALID, "offset -4");
}

static void bools_in_memory_are_any_byte(void **state) {
  (void)state;
  uint8_t m[8] = {0, 1, 2, 255};
  lb_kernel k = kernel_of(
      "%0 = param ptr.bool\n%1 = load boolx4 %0\n"
      "%2 = const i64 4\n%3 = ptr ptr.bool %0 %2\n"
      "store %3 %1\n");
  assert_ok(run_kernel(&k, (lb_karg[]){lb_karg_mem(m, 8)}, 1, 1));
  assert_memory_equal(m + 4, ((uint8_t[]){0, 1, 1, 1}), 4);
  lb_kernel_fini(&k);
}

// -- blocks ------------------------------------------------------------------

static void registers_carry_over_iterations(void **state) {
  (void)state;
  // The first n Fibonacci numbers, two registers that set each other.
  float x[10];
  assert_ok(run_on(HEAD "%4 = const f32 0\n"
                        "%5 = const f32 1\n"
                        "%6 = reg f32 %4\n"
                        "%7 = reg f32 %5\n"
                        "%8 = loop i64 %2 %1 %3\n"
                        "  %9 = get f32 %6\n"
                        "  %10 = get f32 %7\n"
                        "  %11 = add f32 %9 %10\n"
                        "  set %6 %10\n"
                        "  set %7 %11\n"
                        "  %14 = ptr ptr.f32 %0 %8\n"
                        "  store %14 %9\n"
                        "end\n",
                   x, 10, 10));
  const float want[10] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34};
  assert_memory_equal(x, want, sizeof x);
}

static void registers_are_initialised_at_each_reg(void **state) {
  (void)state;
  // x[i] = sum of j in [i, n), with a register created in the outer loop.
  float x[6];
  assert_ok(run_on(HEAD "%4 = loop i64 %2 %1 %3\n"
                        "  %5 = reg i64 %2\n"
                        "  %6 = loop i64 %4 %1 %3 axis 1\n"
                        "    %7 = get i64 %5\n"
                        "    %8 = add i64 %7 %6\n"
                        "    set %5 %8\n"
                        "  end\n"
                        "  %11 = get i64 %5\n"
                        "  %12 = cast f32 %11\n"
                        "  %13 = ptr ptr.f32 %0 %4\n"
                        "  store %13 %12\n"
                        "end\n",
                   x, 6, 6));
  const float want[6] = {15, 15, 14, 12, 9, 5};
  assert_memory_equal(x, want, sizeof x);
}

static void only_one_branch_is_taken(void **state) {
  (void)state;
  float x[6];
  assert_ok(run_on(HEAD "%4 = loop i64 %2 %1 %3\n"
                        "  %5 = const i64 2\n"
                        "  %6 = rem i64 %4 %5\n"
                        "  %7 = eq bool %6 %2\n"
                        "  %8 = const f32 1\n"
                        "  %9 = reg f32 %8\n"
                        "  if %7\n"
                        "    %11 = lt bool %4 %5\n"
                        "    if %11\n"
                        "      %13 = const f32 5\n"
                        "      set %9 %13\n"
                        "    end\n"
                        "  else\n"
                        "    %17 = const f32 -1\n"
                        "    set %9 %17\n"
                        "  end\n"
                        "  %20 = get f32 %9\n"
                        "  %21 = ptr ptr.f32 %0 %4\n"
                        "  store %21 %20\n"
                        "end\n",
                   x, 6, 6));
  const float want[6] = {5, -1, 1, -1, 1, -1};
  assert_memory_equal(x, want, sizeof x);
}

static void loops_stop_where_they_should(void **state) {
  (void)state;
  lb_kernel k = kernel_of(
      "%0 = param ptr.i64\n"
      "%1 = param i64 slot 1\n"
      "%2 = param i64 slot 2\n"
      "%3 = param i64 slot 3\n"
      "%4 = const i64 0\n"
      "%5 = const i64 1\n"
      "%6 = reg i64 %4\n"
      "%7 = loop i64 %1 %2 %3\n"
      "  %8 = get i64 %6\n"
      "  %9 = add i64 %8 %5\n"
      "  set %6 %9\n"
      "end\n"
      "%12 = get i64 %6\n"
      "store %0 %12\n");
  static const struct {
    int64_t begin, end, step, iterations;
  } rows[] = {{0, 10, 3, 4}, {0, 9, 3, 3},
              {5, 5, 1, 0},  {5, -5, 1, 0},
              {-4, 4, 2, 4}, {0, 1, 100, 1},
              {5, 5, 0, 0},  {INT64_MAX - 2, INT64_MAX, 2, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int64_t iterations = -1;
    lb_karg args[] = {lb_karg_mem(&iterations, 8), lb_karg_i64(rows[i].begin),
                      lb_karg_i64(rows[i].end), lb_karg_i64(rows[i].step)};
    assert_ok(run_kernel(&k, args, 4, 1));
    assert_int_equal(iterations, rows[i].iterations);
  }
  int64_t iterations;
  lb_karg args[] = {lb_karg_mem(&iterations, 8), lb_karg_i64(0), lb_karg_i64(1),
                    lb_karg_i64(0)};
  assert_error(run_kernel(&k, args, 4, 1), LB_INVALID,
               "instruction 7 '%7 = loop i64 %1 %2 %3' has a step");
  args[2] = lb_karg_i64(INT64_MAX / 2), args[3] = lb_karg_i64(1);
  assert_error(run_kernel(&k, args, 4, 1), LB_CANCELLED, "budget");
  assert_error(run_kernel(&k, args, 3, 1), LB_INVALID, "takes 4 arguments");
  lb_kernel_fini(&k);
}

// -- groups ------------------------------------------------------------------

// Each group reverses its 8 floats, through local memory.
#define REVERSE(sync)                \
  "kernel reverse local 4 2 1\n"     \
  "%0 = param ptr.f32\n"             \
  "%1 = group_id i64\n"              \
  "%2 = const i64 8\n"               \
  "%3 = mul i64 %1 %2\n"             \
  "%4 = ptr ptr.f32 %0 %3\n"         \
  "%5 = local_id i64\n"              \
  "%6 = local_id i64 axis 1\n"       \
  "%7 = const i64 4\n"               \
  "%8 = mul i64 %6 %7\n"             \
  "%9 = add i64 %8 %5\n"             \
  "%10 = local shared.f32 count 8\n" \
  "%11 = ptr ptr.f32 %4 %9\n"        \
  "%12 = load f32 %11\n"             \
  "%13 = ptr shared.f32 %10 %9\n"    \
  "store %13 %12\n" sync             \
  "%16 = const i64 7\n"              \
  "%17 = sub i64 %16 %9\n"           \
  "%18 = ptr shared.f32 %10 %17\n"   \
  "%19 = load f32 %18\n"             \
  "store %11 %19\n"

static lb_status reverse(const char *text, float *x) {
  lb_kernel k;
  assert_ok(lb_kernel_parse(text, &k));
  lb_status st = run_kernel(&k, (lb_karg[]){lb_karg_mem(x, 64)}, 1, 2);
  lb_kernel_fini(&k);
  return st;
}

static void work_items_meet_at_barriers(void **state) {
  (void)state;
  float x[16], y[16];
  for (int i = 0; i < 16; i++) x[i] = y[i] = (float)i;
  assert_ok(reverse(REVERSE("barrier\n"), x));
  for (int i = 0; i < 16; i++)
    assert_true(x[i] == (float)(i / 8 * 8 + 7 - i % 8));
  // Without a barrier the first item reads uninitialised memory.
  assert_ok(reverse(REVERSE("prefetch %0\n"), y));
  assert_true(isnan(y[0]));
}

static void a_barrier_not_reached_by_all_is_an_error(void **state) {
  (void)state;
  lb_kernel k;
  assert_ok(
      lb_kernel_parse("kernel split local 2 1 1\n"
                      "%0 = local_id i64\n"
                      "%1 = const i64 1\n"
                      "%2 = eq bool %0 %1\n"
                      "if %2\n"
                      "  barrier\n"
                      "end\n",
                      &k));
  assert_error(run_kernel(&k, NULL, 0, 1), LB_INVALID,
               "instruction 4 'barrier' is not reached by all");
  lb_kernel_fini(&k);
}

static void local_memory_has_bounds(void **state) {
  (void)state;
  lb_kernel k = kernel_of(
      "%0 = param i64\n"
      "%1 = local shared.f32 count 4\n"
      "%2 = local shared.f32 count 4\n"
      "%3 = ptr shared.f32 %1 %0\n"
      "%4 = const f32 1\n"
      "store %3 %4\n");
  assert_ok(run_kernel(&k, (lb_karg[]){lb_karg_i64(3)}, 1, 1));
  assert_error(run_kernel(&k, (lb_karg[]){lb_karg_i64(4)}, 1, 1), LB_INVALID,
               "offset 16 of memory 1, which has 16 bytes");
  lb_kernel_fini(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masked_lanes_are_not_touched),
      cmocka_unit_test(accesses_stay_in_bounds),
      cmocka_unit_test(stated_alignment_is_checked),
      cmocka_unit_test(gather_and_scatter_take_each_index),
      cmocka_unit_test(bools_in_memory_are_any_byte),
      cmocka_unit_test(registers_carry_over_iterations),
      cmocka_unit_test(registers_are_initialised_at_each_reg),
      cmocka_unit_test(only_one_branch_is_taken),
      cmocka_unit_test(loops_stop_where_they_should),
      cmocka_unit_test(work_items_meet_at_barriers),
      cmocka_unit_test(a_barrier_not_reached_by_all_is_an_error),
      cmocka_unit_test(local_memory_has_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
