// device/cpu/submit_test.c -- however a launch is split and whichever threads
// run its parts, each element is computed exactly once.
#include "device/cpu/submit.h"

#include <stdlib.h>
#include <string.h>

#include "graph/build_test.h"

#define SIZE 4096

// out += in, over rows x cols: an element that is computed twice is wrong.
static void add(const uint64_t *args) {
  int64_t rows = (int64_t)args[2], cols = (int64_t)args[3];
  float *out = (float *)(uintptr_t)args[0];
  const float *in = (const float *)(uintptr_t)args[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++)
      out[r * (int64_t)args[4] + c * (int64_t)args[5]] +=
          in[r * (int64_t)args[6] + c * (int64_t)args[7]];
}

static void submit(const lb_launch *l, lb_kernel_fn *kernel, lb_pool *pool,
                   const uintptr_t *bases) {
  lb_exec exec = {.entry = (uintptr_t)kernel};
  ok(lb_cpu_submit(&(lb_stream){.pool = pool, .bases = bases}, &exec, l));
}

typedef struct shape {
  int64_t loops[2], rows, cols;
} shape;

// `in` is transposed (rows and columns), and is broadcast over the first loop.
static void check(lb_pool *pool, const shape *s, int64_t row_band,
                  int64_t col_band, int64_t grain, bool band_major) {
  static float out[SIZE], in[SIZE];
  int64_t iteration_size = s->rows * s->cols, f = (int64_t)sizeof(float);
  uint64_t args[8] = {
      0, 0, (uint64_t)s->rows, (uint64_t)s->cols, (uint64_t)s->cols,
      1, 1, (uint64_t)s->rows};
  int64_t strides[] = {s->cols * f,
                       f,
                       s->loops[1] * iteration_size * f,
                       iteration_size * f,
                       f,
                       s->rows * f,
                       0,
                       iteration_size * f};
  lb_address addresses[] = {{.base = 1}, {.base = 2, .offset = 4 * f}};
  lb_split sp = {.outer = s->loops[0] * s->loops[1],
                 .row_band = row_band,
                 .col_band = col_band,
                 .row_bands = (s->rows + row_band - 1) / row_band,
                 .col_bands = (s->cols + col_band - 1) / col_band,
                 .grain = grain,
                 .band_major = band_major};
  sp.parts = sp.outer * sp.row_bands * sp.col_bands;
  if (sp.grain > sp.parts) sp.grain = sp.parts;
  lb_launch l = {.split = sp,
                 .n_operands = 2,
                 .n_args = 8,
                 .n_loops = 2,
                 .addresses = addresses,
                 .args = args,
                 .strides = strides,
                 .loops = s->loops};
  for (int i = 0; i < SIZE; i++) in[i] = (float)i;
  memset(out, 0, sizeof out);
  uintptr_t bases[] = {0, (uintptr_t)out, (uintptr_t)in};
  submit(&l, add, pool, bases);
  for (int64_t i = 0; i < sp.outer * iteration_size; i++) {
    int64_t r = i % iteration_size / s->cols, c = i % s->cols;
    int64_t from =
        i / iteration_size % s->loops[1] * iteration_size + c * s->rows + r;
    assert_true(out[i] == (float)(from + 4));
  }
}

static void every_element_is_computed_once(void **state) {
  (void)state;
  static const shape shapes[] = {
      {{1, 1}, 1, 1}, {{1, 1}, 7, 96}, {{3, 1}, 5, 33}, {{2, 5}, 9, 11}};
  lb_pool *pools[2] = {NULL};
  ok(lb_pool_new(3, &pools[1]));
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < 4; i++)
      for (int64_t rows = 1; rows < 12; rows += 3)
        for (int64_t cols = 1; cols < 100; cols *= 6)
          for (int64_t grain = 1; grain < 60; grain *= 4)
            for (int first = 0; first < 2; first++)
              check(pools[p], &shapes[i], rows, cols, grain, first);
  lb_pool_free(pools[1]);
}

// -- zones -------------------------------------------------------------------

enum { HIGH = 12, WIDE = 40, BAND = 16 };

// Counts how often each element is computed.
static float feature_map[HIGH * WIDE];

static void count(const uint64_t *args) {
  float *out = (float *)(uintptr_t)args[0];
  for (int64_t r = 0; r < (int64_t)args[1]; r++)
    for (int64_t c = 0; c < (int64_t)args[2]; c++) out[r * WIDE + c]++;
}

static int64_t last_col;
static bool in_bands;

// Checks, on one thread, that calls proceed from left to right.
static void watch(const uint64_t *args) {
  int64_t col = ((float *)(uintptr_t)args[0] - feature_map) % WIDE;
  if (col < last_col) in_bands = false;
  last_col = col;
  count(args);
}

// `iterations` times `rows` rows, starting at row `first`.
typedef struct zone {
  int64_t first, iterations, rows;
  uint64_t args[3];
  int64_t strides[3];
  lb_address address;
} zone;

static void init_zone(zone *z, bool across_zones, lb_launch *out) {
  int64_t f = (int64_t)sizeof(float), bands = (WIDE + BAND - 1) / BAND;
  z->args[1] = (uint64_t)z->rows;
  z->args[2] = WIDE;
  z->strides[0] = WIDE * f;
  z->strides[1] = f;
  z->strides[2] = z->rows * WIDE * f;
  z->address = (lb_address){.base = 1, .offset = z->first * WIDE * f};
  *out = (lb_launch){.n_operands = 1,
                     .n_args = 3,
                     .n_loops = 1,
                     .addresses = &z->address,
                     .args = z->args,
                     .strides = z->strides,
                     .loops = &z->iterations};
  out->split = (lb_split){.outer = z->iterations,
                          .row_band = z->rows,
                          .col_band = BAND,
                          .row_bands = 1,
                          .col_bands = bands,
                          .parts = bands * z->iterations,
                          .grain = bands * z->iterations,
                          .band_major = true,
                          .across_zones = across_zones};
}

static void run_zones(lb_kernel_fn *kernel, lb_pool *pool, bool across_zones,
                      int64_t grain) {
  zone zones[3] = {{.first = 1, .iterations = 5, .rows = 2},
                   {.first = 0, .iterations = 1, .rows = 1},
                   {.first = 11, .iterations = 1, .rows = 1}};
  lb_launch l[3];
  for (int i = 0; i < 3; i++) init_zone(&zones[i], across_zones, &l[i]);
  l[0].next = &l[1];
  l[1].next = &l[2];
  if (grain) l[0].split.grain = grain;
  memset(feature_map, 0, sizeof feature_map);
  submit(l, kernel, pool, (uintptr_t[]){0, (uintptr_t)feature_map});
  for (int i = 0; i < HIGH * WIDE; i++) assert_true(feature_map[i] == 1);
}

static void every_element_of_all_zones_is_computed_once(void **state) {
  (void)state;
  lb_pool *pool;
  ok(lb_pool_new(3, &pool));
  for (int across_zones = 0; across_zones < 2; across_zones++)
    for (int64_t grain = 0; grain < 22; grain++) {
      run_zones(count, NULL, across_zones, grain);
      run_zones(count, pool, across_zones, grain);
    }
  lb_pool_free(pool);
}

static void a_band_across_zones_runs_through_all_zones(void **state) {
  (void)state;
  for (int across_zones = 0; across_zones < 2; across_zones++) {
    last_col = 0;
    in_bands = true;
    run_zones(watch, NULL, across_zones, 0);
    assert_int_equal(in_bands, across_zones);
  }
}

// -- segments ----------------------------------------------------------------

enum { SEGMENT_HEADS = 3, SEGMENT_COLS = 2, SEGMENT_ROWS = 700 };

// Adds to each element the number of keys that the call was given.
static void add_keys(const uint64_t *args) {
  float *out = (float *)(uintptr_t)args[0];
  for (int64_t r = 0; r < (int64_t)args[1]; r++)
    for (int64_t c = 0; c < (int64_t)args[2]; c++)
      out[r * SEGMENT_HEADS * SEGMENT_COLS + c] += (float)args[4];
}

static void check_segments(lb_pool *pool, const int64_t *offsets, int64_t n) {
  enum { F = sizeof(float), ROW = SEGMENT_HEADS * SEGMENT_COLS };
  static float out[SEGMENT_ROWS * ROW];
  const int64_t loops[] = {n, SEGMENT_HEADS}, step = ROW * F;
  const int64_t strides[] = {ROW * F, F, 0, SEGMENT_COLS * F};
  const uint64_t args[] = {0, 1, SEGMENT_COLS, 0, 1};
  lb_address to = {.base = 1};
  lb_segments segments = {{.base = 2, .offset = 8}, &step};
  lb_launch l = {.split = {.outer = n * SEGMENT_HEADS, .parts = 2, .grain = 1},
                 .n_operands = 1,
                 .n_args = 5,
                 .n_loops = 2,
                 .addresses = &to,
                 .args = args,
                 .strides = strides,
                 .loops = loops,
                 .segments = &segments};
  memset(out, 0, sizeof out);
  submit(&l, add_keys, pool,
         (uintptr_t[]){0, (uintptr_t)out, (uintptr_t)(offsets - 1)});
  for (int64_t s = 0; s < n; s++)
    for (int64_t i = offsets[s] * ROW; i < offsets[s + 1] * ROW; i++)
      assert_true(out[i] == (float)(offsets[s + 1] - offsets[s]));
  for (int64_t i = offsets[n] * ROW; i < SEGMENT_ROWS * ROW; i++)
    assert_true(out[i] == 0);
}

static void each_segment_has_its_own_rows_and_keys(void **state) {
  (void)state;
  static const int64_t offsets[][7] = {
      {-1, 0, 5}, {-1, 0, 1, 8, 8, 250, 700}, {-1, 0, 0, 121, 360}};
  static const int64_t n[] = {1, 5, 3};
  lb_pool *pool;
  ok(lb_pool_new(3, &pool));
  for (int i = 0; i < 3; i++) {
    check_segments(NULL, offsets[i] + 1, n[i]);
    check_segments(pool, offsets[i] + 1, n[i]);
  }
  lb_pool_free(pool);
}

static const lb_exec adds = {.entry = (uintptr_t)add};

static void submit_all(const lb_sequence *s, lb_pool *pool,
                       const uintptr_t *bases, lb_run_limits *limits) {
  lb_stream to = {.pool = pool, .bases = bases, .limits = limits};
  ok(lb_cpu_submit_sequence(&to, s));
}

static lb_split whole(int64_t rows, int64_t cols) {
  return (lb_split){.outer = 1,
                    .row_band = rows,
                    .col_band = cols,
                    .row_bands = 1,
                    .col_bands = 1,
                    .parts = 1,
                    .grain = 1};
}

// Two launches: the first adds an element of `in` to the sum, the second adds
// the sum to an element of `out`, which is filled backwards.
static void launches_run_in_sequence(void **state) {
  (void)state;
  enum { ITERATIONS = 5, F = sizeof(float) };
  float in[] = {1, 2, 3, 4, 5}, out[ITERATIONS] = {0}, sum = 10;
  uint64_t args[8] = {0, 0, 1, 1};
  int64_t strides[4] = {0};
  lb_address first[] = {{.base = 3}, {.base = 1}};
  lb_address second[] = {{.base = 2, .offset = (ITERATIONS - 1) * F},
                         {.base = 3}};
  lb_launch l[2] = {{.addresses = first, .steps = (const int64_t[]){0, F}},
                    {.addresses = second, .steps = (const int64_t[]){-F, 0}}};
  for (int i = 0; i < 2; i++) {
    l[i].split = whole(1, 1);
    l[i].n_operands = 2;
    l[i].n_args = 8;
    l[i].args = args;
    l[i].strides = strides;
  }
  l[0].next = &l[1];
  lb_sequence s = {.first = l,
                   .execs = (const lb_exec *[]){&adds, &adds},
                   .iterations = ITERATIONS,
                   .n = 2,
                   .group_size = 2};
  uintptr_t bases[] = {0, (uintptr_t)in, (uintptr_t)out, (uintptr_t)&sum};
  submit_all(&s, NULL, bases, NULL);
  static const float want[] = {25, 20, 16, 13, 11};
  for (int i = 0; i < ITERATIONS; i++) assert_true(out[i] == want[i]);
  s.group_size = 1;  // all iterations of the first launch run first
  submit_all(&s, NULL, bases, NULL);
  for (int i = 0; i < ITERATIONS; i++) assert_true(out[i] == want[i] + 40);
  atomic_int cancel = 1;
  lb_run_limits limits = {.cancelled = &cancel};
  submit_all(&s, NULL, bases, &limits);
  assert_int_equal(limits.found, LB_LIMITS_CANCELLED);
  for (int i = 0; i < ITERATIONS; i++) assert_true(out[i] == want[i] + 40);
}

// Two independent sums.
static void groups_may_run_in_parallel(void **state) {
  (void)state;
  enum { ITERATIONS = 2000, F = sizeof(float) };
  static float in[ITERATIONS];
  float sums[2] = {0};
  uint64_t args[8] = {0, 0, 1, 1};
  int64_t strides[4] = {0};
  lb_address addresses[2][2] = {{{.base = 2}, {.base = 1}},
                                {{.base = 2, .offset = F}, {.base = 1}}};
  const int64_t steps[] = {0, F};
  lb_launch l[2] = {0};
  for (int i = 0; i < 2; i++)
    l[i] = (lb_launch){.addresses = addresses[i],
                       .steps = steps,
                       .split = whole(1, 1),
                       .n_operands = 2,
                       .n_args = 8,
                       .args = args,
                       .strides = strides};
  l[0].next = &l[1];
  for (int i = 0; i < ITERATIONS; i++) in[i] = 1;
  lb_sequence s = {.first = l,
                   .execs = (const lb_exec *[]){&adds, &adds},
                   .iterations = ITERATIONS,
                   .n = 2,
                   .group_size = 1,
                   .max_parallel_threads = 2};
  uintptr_t bases[] = {0, (uintptr_t)in, (uintptr_t)sums};
  lb_pool *pool;
  ok(lb_pool_new(2, &pool));
  for (int i = 1; i <= 50; i++) {
    submit_all(&s, pool, bases, NULL);
    assert_true(sums[0] == (float)(i * ITERATIONS) && sums[1] == sums[0]);
  }
  atomic_int cancel = 1;
  lb_run_limits limits = {.cancelled = &cancel};
  submit_all(&s, pool, bases, &limits);
  assert_int_equal(limits.found, LB_LIMITS_CANCELLED);
  assert_true(sums[0] == 50.0f * ITERATIONS);
  lb_pool_free(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_element_is_computed_once),
      cmocka_unit_test(every_element_of_all_zones_is_computed_once),
      cmocka_unit_test(each_segment_has_its_own_rows_and_keys),
      cmocka_unit_test(a_band_across_zones_runs_through_all_zones),
      cmocka_unit_test(launches_run_in_sequence),
      cmocka_unit_test(groups_may_run_in_parallel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
