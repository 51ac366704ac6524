// lower/lower_test.c -- Checks the code of kernels, and values that are easy to
// get wrong.
#include "kir/testkit.h"

#include <math.h>
#include <stdlib.h>

#include "lower/lower.h"
#include "lower/testtargets.h"

static uint8_t unary(lb_spec_builder *b, lb_sop op, uint8_t x) {
  return lb_spec_node(b, op, LB_F32, &x, 1);
}

static uint8_t binary(lb_spec_builder *b, lb_sop op, uint8_t x, uint8_t y) {
  return lb_spec_node(b, op, LB_F32, (uint8_t[]){x, y}, 2);
}

static lb_spec finish(lb_spec_builder *b) {
  lb_spec s;
  assert_ok(lb_spec_finish(b, &s));
  return s;
}

// sum(x), max(x) of each row
static lb_spec sum_and_max(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_ROW_REDUCE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, unary(&b, LB_S_RSUM, x), LB_LAYOUT_PER_ROW);
  lb_spec_output(&b, unary(&b, LB_S_RMAX, x), LB_LAYOUT_PER_ROW);
  return finish(&b);
}

// Softmax without the maximum; `reads_input_again`: plus x.
static lb_spec softmax(bool reads_input_again) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_ROW_REDUCE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t e = unary(&b, LB_S_EXP, x);
  uint8_t y = binary(&b, LB_S_DIV, e, unary(&b, LB_S_RSUM, e));
  if (reads_input_again) y = binary(&b, LB_S_ADD, y, x);
  lb_spec_output(&b, y, LB_LAYOUT_FULL);
  return finish(&b);
}

// a * b + bias, then `function` unless it is LB_S_COUNT.
static lb_spec linear(lb_sop function) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  uint8_t bias = lb_spec_input(&b, LB_F32, LB_LAYOUT_PER_COL);
  uint8_t acc = lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0);
  uint8_t y = binary(&b, LB_S_ADD, acc, bias);
  if (function != LB_S_COUNT) y = unary(&b, function, y);
  lb_spec_output(&b, y, LB_LAYOUT_FULL);
  return finish(&b);
}

static lb_kernel lowered(const lb_spec *s, const lb_facts *f,
                         const lb_target *t) {
  lb_kernel k;
  assert_ok(lb_lower(s, f, t, &k));
  return k;
}

static int count_of(const lb_kernel *k, lb_kop op) {
  int n = 0;
  for (uint32_t i = 0; i < k->n_insts; i++) n += k->insts[i].op == op;
  return n;
}

// -- values ------------------------------------------------------------------

static void reduce(const float *x, int64_t n, float *sum, float *max) {
  lb_spec s = sum_and_max();
  for (int ti = 0; ti < TEST_TARGETS; ti++) {
    const lb_target *t = &test_targets[ti];
    lb_kernel k = lowered(&s, &(lb_facts){0}, t);
    float got[2] = {7, 7};
    lb_karg args[] = {lb_karg_mem(&got[0], 4),
                      lb_karg_mem(&got[1], 4),
                      lb_karg_mem(x, (size_t)n * 4),
                      lb_karg_i64(1),
                      lb_karg_i64(n),
                      lb_karg_i64(1),
                      lb_karg_i64(0),
                      lb_karg_i64(1),
                      lb_karg_i64(0),
                      lb_karg_i64(n),
                      lb_karg_i64(1)};
    assert_ok(run_kernel(&k, args, 11, 1));
    if (ti > 0) {
      assert_memory_equal(sum, &got[0], 4);
      assert_memory_equal(max, &got[1], 4);
    }
    *sum = got[0], *max = got[1];
    lb_kernel_fini(&k);
  }
}

static void sums_of_negative_zeros_are_negative(void **state) {
  (void)state;
  float x[130], sum, max;
  for (int i = 0; i < 130; i++) x[i] = -0.0f;
  static const int64_t sizes[] = {1, 3, 16, 64, 65, 130};
  for (int i = 0; i < 6; i++) {
    reduce(x, sizes[i], &sum, &max);
    assert_true(sum == 0 && signbit(sum));
  }
  x[1] = 0;
  reduce(x, 3, &sum, &max);
  assert_true(sum == 0 && !signbit(sum));
}

static void empty_rows_sum_to_zero(void **state) {
  (void)state;
  float sum, max;
  reduce(&(float){1}, 0, &sum, &max);
  assert_true(sum == 0 && !signbit(sum));
  assert_true(isinf(max) && max < 0);
}

static void nan_propagates(void **state) {
  (void)state;
  float x[70], sum, max;
  for (int i = 0; i < 70; i++) x[i] = (float)i;
  for (int at = 0; at < 70; at += 23) {
    x[at] = NAN;
    reduce(x, 70, &sum, &max);
    assert_true(isnan(max) && isnan(sum));
    x[at] = 1;
  }
}

// Sums of mathematical functions are in registers at the first level, in memory
// at the others.
static void sums_do_not_depend_on_the_level(void **state) {
  (void)state;
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_ROW_REDUCE);
  uint8_t in = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t e = unary(&b, LB_S_EXP, in);
  lb_spec_output(&b, unary(&b, LB_S_RSUM, e), LB_LAYOUT_PER_ROW);
  lb_spec s = finish(&b);
  enum { N = 200, LEVELS = TEST_TARGETS };
  float x[N], sums[LEVELS];
  for (int i = 0; i < N; i++) x[i] = (float)(i * 37 % 101) / 20;
  for (int64_t n = 1; n <= N; n += 13) {
    for (int i = 0; i < LEVELS; i++) {
      const lb_target *t = &test_targets[i];
      lb_kernel k = lowered(&s, &(lb_facts){0}, t);
      assert_int_equal(count_of(&k, LB_K_LOCAL), 1 + (lb_target_lanes(t) < 16));
      lb_karg args[] = {lb_karg_mem(&sums[i], 4), lb_karg_mem(x, sizeof x),
                        lb_karg_i64(1),           lb_karg_i64(n),
                        lb_karg_i64(1),           lb_karg_i64(0),
                        lb_karg_i64(n),           lb_karg_i64(1)};
      assert_ok(run_kernel(&k, args, 8, 1));
      lb_kernel_fini(&k);
    }
    for (int i = 1; i < LEVELS; i++) assert_memory_equal(&sums[0], &sums[i], 4);
  }
}

static void rows_may_be_written_in_place(void **state) {
  (void)state;
  for (int reads_input_again = 0; reads_input_again < 2; reads_input_again++) {
    enum { N = 70 };
    lb_spec s = softmax(reads_input_again);
    lb_kernel k = lowered(&s, &(lb_facts){0}, &test_targets[2]);
    float from[N], apart[N], same[N];
    for (int i = 0; i < N; i++) from[i] = same[i] = (float)i / N;
    float *const inputs[] = {from, same}, *const outputs[] = {apart, same};
    for (int i = 0; i < 2; i++) {
      lb_karg args[] = {lb_karg_mem(outputs[i], sizeof apart),
                        lb_karg_mem(inputs[i], sizeof from),
                        lb_karg_i64(1),
                        lb_karg_i64(N),
                        lb_karg_i64(N),
                        lb_karg_i64(1),
                        lb_karg_i64(N),
                        lb_karg_i64(1)};
      assert_ok(run_kernel(&k, args, 8, 1));
    }
    assert_memory_equal(apart, same, sizeof apart);
    lb_kernel_fini(&k);
  }
}

// a * b + r, where r may be the memory of the output.
static lb_spec residual(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t r = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t acc = lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0);
  lb_spec_output(&b, binary(&b, LB_S_ADD, acc, r), LB_LAYOUT_FULL);
  return finish(&b);
}

enum { K = 2 };

// Runs a * b + r in place of r, of m rows and n columns. All numbers are small;
// the test checks that each element is added to once.
static void add_matmul(const lb_kernel *k, int64_t m, int64_t n) {
  size_t each = sizeof(float), bytes = (size_t)(m * n) * each;
  float *a = malloc((size_t)m * K * each), *b = malloc((size_t)n * K * each);
  float *r = malloc(bytes), *want = malloc(bytes);
  assert_true(a && b && r && want);
  for (int64_t i = 0; i < m * K; i++) a[i] = (float)(i % 7);
  for (int64_t i = 0; i < n * K; i++) b[i] = (float)(i % 3 + 1);
  for (int64_t i = 0; i < m * n; i++) {
    want[i] = r[i] = (float)(i % 1000);
    for (int64_t at = 0; at < K; at++)
      want[i] += a[i / n * K + at] * b[at * n + i % n];
  }
  lb_karg args[] = {lb_karg_mem(r, bytes),
                    lb_karg_mem(a, (size_t)m * K * each),
                    lb_karg_mem(b, (size_t)n * K * each),
                    lb_karg_mem(r, bytes),
                    lb_karg_i64(m),
                    lb_karg_i64(n),
                    lb_karg_i64(K),
                    lb_karg_i64(n),
                    lb_karg_i64(1),
                    lb_karg_i64(K),
                    lb_karg_i64(1),
                    lb_karg_i64(n),
                    lb_karg_i64(1),
                    lb_karg_i64(n),
                    lb_karg_i64(1)};
  assert_ok(run_kernel(k, args, 15, 1));
  assert_memory_equal(r, want, bytes);
  free(a), free(b), free(r), free(want);
}

static lb_kernel residual_of_tiles(uint16_t rows, uint16_t cols) {
  lb_spec s = residual();
  lb_facts f = {0};
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_COLS, cols);
  return lowered(&s, &f, &test_targets[0]);
}

// A short tile reads rows that another tile has, too: none may be added to
// twice.
static void short_tiles_add_to_each_row_once(void **state) {
  (void)state;
  lb_kernel k = residual_of_tiles(9, 16);
  for (int64_t m = 1; m <= 24; m++) add_matmul(&k, m, 5);
  lb_kernel_fini(&k);
}

// With this many columns a band is eight tiles: tests one, two and three bands.
static void bands_add_to_each_row_once(void **state) {
  (void)state;
  lb_kernel k = residual_of_tiles(9, 48);
  static const int64_t rows[] = {71, 72, 73, 143, 144, 145, 149};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    add_matmul(&k, rows[i], 2003);
  lb_kernel_fini(&k);
}

// -- code --------------------------------------------------------------------

static void softmax_computes_each_exponential_once(void **state) {
  (void)state;
  lb_facts f = {0};
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 64);
  lb_spec s = softmax(false);
  lb_kernel k = lowered(&s, &f, &test_targets[0]);
  assert_int_equal(count_of(&k, LB_K_EXP), 4);
  lb_kernel_fini(&k);
  s = softmax(true);  // x is read again, and may be the memory of y
  k = lowered(&s, &f, &test_targets[0]);
  assert_int_equal(count_of(&k, LB_K_EXP), 4 + 2);
  lb_kernel_fini(&k);
}

// Four loads of b, six of a, a bias for each vector; loops over bands, columns,
// rows and parts of k, where long sums prefetch four cache lines of three rows.
// For empty sums: one store, in two loops.
static void a_matmul_with_facts_is_one_tile(void **state) {
  (void)state;
  lb_facts f = {0};
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 64);
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_ROWS, 6);
  lb_spec s = linear(LB_S_COUNT);
  lb_kernel k = lowered(&s, &f, &test_targets[0]);
  assert_int_equal(count_of(&k, LB_K_FMA), 24);
  assert_int_equal(count_of(&k, LB_K_PREFETCH), 4 + 1 + 12);
  assert_int_equal(count_of(&k, LB_K_STORE), 24 + 1);
  assert_int_equal(count_of(&k, LB_K_LOOP), 5 + 2);
  assert_int_equal(count_of(&k, LB_K_IF), 2);
  assert_int_equal(count_of(&k, LB_K_TAIL), 1);
  lb_kernel_fini(&k);
}

// Three rows that begin anywhere in a cache line: four lines each, and a part
// of one more.
static void outputs_are_prefetched_to_their_last_line(void **state) {
  (void)state;
  lb_facts f = {0};
  lb_facts_add(&f, LB_ASSUME_AT_MOST, LB_DIM_COLS, 64);
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_ROWS, 6);
  lb_spec s = linear(LB_S_COUNT);
  lb_kernel k = lowered(&s, &f, &test_targets[0]);
  assert_int_equal(count_of(&k, LB_K_FMA), 24);
  assert_int_equal(count_of(&k, LB_K_PREFETCH), 4 + 1 + 15);
  lb_kernel_fini(&k);
}

// A matmul whose epilogue adds the bias five times, and optionally a function.
static lb_spec long_epilogue(bool function) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  uint8_t bias = lb_spec_input(&b, LB_F32, LB_LAYOUT_PER_COL);
  uint8_t y = lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0);
  for (int i = 0; i < 5; i++) y = binary(&b, LB_S_ADD, y, bias);
  if (function) y = unary(&b, LB_S_ERF, y);
  lb_spec_output(&b, y, LB_LAYOUT_FULL);
  return finish(&b);
}

// Long epilogues prefetch outputs, too, in wide tiles without a function.
static void outputs_of_long_epilogues_are_prefetched(void **state) {
  (void)state;
  static const int want[2][2] = {{12, 0}, {0, 0}};  // function, narrow
  for (int i = 0; i < 4; i++) {
    bool function = i / 2, narrow = i % 2;
    lb_spec s = long_epilogue(function);
    uint16_t cols = narrow ? 32 : 64;
    lb_facts f = {0};
    lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 6);
    lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_COLS, cols);
    lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, cols);
    lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_ROWS, 6);
    lb_kernel k = lowered(&s, &f, &test_targets[0]);
    assert_int_equal(count_of(&k, LB_K_PREFETCH),
                     cols / 16 + 1 + want[function][narrow]);
    lb_kernel_fini(&k);
  }
}

// Integer multiplications of addresses in the innermost loops with vector FMAs;
// `loops` is set to the number of these loops.
static int address_multiplications(const lb_kernel *k, int *loops) {
  int all = 0, here = 0;
  bool sums = false;
  *loops = 0;
  for (uint32_t i = 0; i < k->n_insts; i++) {
    const lb_kinst *in = &k->insts[i];
    if (in->op == LB_K_MUL && in->dtype == LB_I64 && in->lanes == 1) here++;
    if (in->op == LB_K_FMA && in->lanes > 1) sums = true;
    if (in->op != LB_K_LOOP && in->op != LB_K_END) continue;
    *loops += sums;
    if (sums) all += here;
    sums = false;
    here = 0;
  }
  return all;
}

static lb_spec matmul_of(lb_layout a, lb_layout b_layout) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_F32, a);
  lb_spec_input(&b, LB_F32, b_layout);
  uint8_t acc = lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0);
  lb_spec_output(&b, acc, LB_LAYOUT_FULL);
  return finish(&b);
}

static lb_spec depthwise(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_WINDOW);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t acc = lb_spec_acc(&b, LB_ACC_DOT, LB_F32);
  lb_spec_output(&b, acc, LB_LAYOUT_FULL);
  return finish(&b);
}

// One of the two units that multiply vectors also multiplies integers.
static void inner_loops_multiply_no_addresses(void **state) {
  (void)state;
  lb_spec specs[] = {
      matmul_of(LB_LAYOUT_FULL, LB_LAYOUT_PANEL),
      matmul_of(LB_LAYOUT_STRIDED, LB_LAYOUT_PANEL),
      matmul_of(LB_LAYOUT_FULL, LB_LAYOUT_FULL),
      matmul_of(LB_LAYOUT_STRIDED, LB_LAYOUT_STRIDED),
      depthwise(),
  };
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
    for (int ti = 0; ti < TEST_TARGETS; ti++) {
      const lb_target *t = &test_targets[ti];
      int loops;
      lb_kernel k = lowered(&specs[i], &(lb_facts){0}, t);
      assert_int_equal(address_multiplications(&k, &loops), 0);
      assert_true(loops > 1);
      lb_kernel_fini(&k);
    }
}

// Tiles of three panels, of two and of one, each of nine rows, eight and one.
static void remaining_columns_use_two_panels(void **state) {
  (void)state;
  lb_facts f = {0};
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 9);
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_COLS, 48);
  lb_spec s = linear(LB_S_COUNT);
  lb_kernel k = lowered(&s, &f, &test_targets[0]);
  assert_int_equal(count_of(&k, LB_K_FMA), (3 + 2 + 1) * (9 + 8 + 1));
  lb_kernel_fini(&k);
}

static int fmas_of(const lb_kernel *k, uint32_t lanes) {
  int n = 0;
  for (uint32_t i = 0; i < k->n_insts; i++)
    n += k->insts[i].op == LB_K_FMA && k->insts[i].lanes == lanes;
  return n;
}

// Tiles of sixteen rows, fifteen and one.
static void few_columns_use_half_width_vectors(void **state) {
  (void)state;
  lb_facts f = {0};
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 16);
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_COLS, 16);
  lb_facts_add(&f, LB_ASSUME_AT_MOST, LB_DIM_COLS, 16);
  lb_spec s = linear(LB_S_COUNT), w = depthwise();
  lb_kernel whole = lowered(&s, &f, &test_targets[0]);
  lb_kernel half_width = lowered(&s, &f, &test_targets[1]);
  lb_kernel windows = lowered(&w, &(lb_facts){0}, &test_targets[1]);
  assert_int_equal(fmas_of(&whole, 8), 0);
  assert_int_equal(fmas_of(&half_width, 8), 16 + 15 + 1);
  assert_int_equal(fmas_of(&half_width, 16), fmas_of(&whole, 16));
  assert_true(fmas_of(&windows, 8) > 0);
  lb_kernel_fini(&whole);
  lb_kernel_fini(&half_width);
  lb_kernel_fini(&windows);
}

static lb_spec convolution(bool plus) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_CONV);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  uint8_t more = plus ? lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL) : 0;
  uint8_t y = lb_spec_acc(&b, LB_ACC_DOT, LB_F32);
  if (plus) y = lb_spec_node(&b, LB_S_ADD, LB_F32, (uint8_t[]){y, more}, 2);
  lb_spec_output(&b, y, LB_LAYOUT_FULL);
  return finish(&b);
}

// Four cache lines of two rows of six per row of taps; per step, b and the
// input.
static void inputs_added_to_convolutions_are_prefetched(void **state) {
  (void)state;
  lb_facts f = {0};
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 64);
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_ROWS, 6);
  for (int plus = 0; plus < 2; plus++) {
    lb_spec s = convolution(plus);
    lb_kernel k = lowered(&s, &f, &test_targets[0]);
    assert_int_equal(count_of(&k, LB_K_PREFETCH), 4 + 1 + plus * 2 * 4);
    lb_kernel_fini(&k);
  }
}

static void all_tiles_share_a_long_epilogue(void **state) {
  (void)state;
  lb_spec s = linear(LB_S_ERF);
  lb_facts f = {0};
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 64);
  lb_kernel k = lowered(&s, &f, &test_targets[0]);
  assert_int_equal(count_of(&k, LB_K_FMA), 4 * (6 + 5 + 1));
  assert_int_equal(count_of(&k, LB_K_ERF), 1);
  assert_int_equal(count_of(&k, LB_K_LOCAL), 1);
  lb_kernel_fini(&k);
}

static void known_sizes_leave_no_loops(void **state) {
  (void)state;
  lb_facts f = {0};
  lb_facts_add(&f, LB_ASSUME_EQUAL, LB_DIM_COLS, 40);
  lb_spec s = sum_and_max();
  lb_kernel k = lowered(&s, &f, &test_targets[0]);
  assert_int_equal(count_of(&k, LB_K_LOOP), 1);  // over rows
  assert_int_equal(count_of(&k, LB_K_IF), 0);
  lb_kernel_fini(&k);
}

// -- errors ------------------------------------------------------------------

static void unsupported_tiles_are_rejected(void **state) {
  (void)state;
  static const uint16_t tiles[][2] = {{33, 16}, {1, 8}, {1, 24}, {6, 256}};
  lb_spec s = linear(LB_S_COUNT);
  for (int i = 0; i < 4; i++) {
    lb_kernel k;
    lb_facts f = {0};
    lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, tiles[i][0]);
    lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_COLS, tiles[i][1]);
    lb_status st = lb_lower(&s, &f, &test_targets[0], &k);
    assert_error(st, LB_UNSUPPORTED, "a tile of");
  }
}

static void invalid_specs_and_facts_are_rejected(void **state) {
  (void)state;
  lb_kernel k;
  lb_spec s = linear(LB_S_COUNT);
  lb_facts f = {0};
  f.list[0].kind = 77;
  assert_error(lb_lower(&s, &f, &test_targets[0], &k), LB_INVALID, "fact");
  f.list[0].kind = 0;
  s.nodes[3].src[0] = 9;
  assert_error(lb_lower(&s, &f, &test_targets[0], &k), LB_INVALID, "spec");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_of_negative_zeros_are_negative),
      cmocka_unit_test(empty_rows_sum_to_zero),
      cmocka_unit_test(nan_propagates),
      cmocka_unit_test(sums_do_not_depend_on_the_level),
      cmocka_unit_test(rows_may_be_written_in_place),
      cmocka_unit_test(short_tiles_add_to_each_row_once),
      cmocka_unit_test(bands_add_to_each_row_once),
      cmocka_unit_test(softmax_computes_each_exponential_once),
      cmocka_unit_test(a_matmul_with_facts_is_one_tile),
      cmocka_unit_test(outputs_are_prefetched_to_their_last_line),
      cmocka_unit_test(outputs_of_long_epilogues_are_prefetched),
      cmocka_unit_test(inner_loops_multiply_no_addresses),
      cmocka_unit_test(remaining_columns_use_two_panels),
      cmocka_unit_test(few_columns_use_half_width_vectors),
      cmocka_unit_test(inputs_added_to_convolutions_are_prefetched),
      cmocka_unit_test(all_tiles_share_a_long_epilogue),
      cmocka_unit_test(known_sizes_leave_no_loops),
      cmocka_unit_test(unsupported_tiles_are_rejected),
      cmocka_unit_test(invalid_specs_and_facts_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
