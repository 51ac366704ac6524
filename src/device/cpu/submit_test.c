// device/cpu/submit_test.c -- however a launch is cut and whoever runs its
// parts, each element is computed once.
#include "device/cpu/submit.h"

#include <stdlib.h>
#include <string.h>

#include "graph/build_test.h"

#define SIZE 4096

// out += in, over rows x cols: what runs twice is seen.
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

// `in` lies transposed in its rows and columns, and repeats over the first
// loop.
static void check(lb_pool *pool, const shape *s, int64_t row_band,
                  int64_t col_band, int64_t grain, bool cols_first) {
  static float out[SIZE], in[SIZE];
  int64_t turn = s->rows * s->cols, f = (int64_t)sizeof(float);
  uint64_t args[8] = {
      0, 0, (uint64_t)s->rows, (uint64_t)s->cols, (uint64_t)s->cols,
      1, 1, (uint64_t)s->rows};
  int64_t strides[] = {s->cols * f, f,       s->loops[1] * turn * f,
                       turn * f,    f,       s->rows * f,
                       0,           turn * f};
  lb_address addresses[] = {{.base = 1}, {.base = 2, .offset = 4 * f}};
  lb_split cut = {.outer = s->loops[0] * s->loops[1],
                  .row_band = row_band,
                  .col_band = col_band,
                  .row_bands = (s->rows + row_band - 1) / row_band,
                  .col_bands = (s->cols + col_band - 1) / col_band,
                  .grain = grain,
                  .cols_first = cols_first};
  cut.parts = cut.outer * cut.row_bands * cut.col_bands;
  if (cut.grain > cut.parts) cut.grain = cut.parts;
  lb_launch l = {.split = cut,
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
  for (int64_t i = 0; i < cut.outer * turn; i++) {
    int64_t r = i % turn / s->cols, c = i % s->cols;
    int64_t from = i / turn % s->loops[1] * turn + c * s->rows + r;
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

static float image[HIGH * WIDE];  // every element counts how often it is made

static void count(const uint64_t *args) {
  float *out = (float *)(uintptr_t)args[0];
  for (int64_t r = 0; r < (int64_t)args[1]; r++)
    for (int64_t c = 0; c < (int64_t)args[2]; c++) out[r * WIDE + c]++;
}

static int64_t last_col;
static bool in_bands;

// On one thread: whether calls go from left to right.
static void watch(const uint64_t *args) {
  int64_t col = ((float *)(uintptr_t)args[0] - image) % WIDE;
  if (col < last_col) in_bands = false;
  last_col = col;
  count(args);
}

// `turns` times `rows` rows, from row `first` on.
typedef struct zone {
  int64_t first, turns, rows;
  uint64_t args[3];
  int64_t strides[3];
  lb_address address;
} zone;

static void make_zone(zone *z, bool together, lb_launch *out) {
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
                     .loops = &z->turns};
  out->split = (lb_split){.outer = z->turns,
                          .row_band = z->rows,
                          .col_band = BAND,
                          .row_bands = 1,
                          .col_bands = bands,
                          .parts = bands * z->turns,
                          .grain = bands * z->turns,
                          .cols_first = true,
                          .together = together};
}

static void run_zones(lb_kernel_fn *kernel, lb_pool *pool, bool together,
                      int64_t grain) {
  zone zones[3] = {{.first = 1, .turns = 5, .rows = 2},
                   {.first = 0, .turns = 1, .rows = 1},
                   {.first = 11, .turns = 1, .rows = 1}};
  lb_launch l[3];
  for (int i = 0; i < 3; i++) make_zone(&zones[i], together, &l[i]);
  l[0].next = &l[1];
  l[1].next = &l[2];
  if (grain) l[0].split.grain = grain;
  memset(image, 0, sizeof image);
  submit(l, kernel, pool, (uintptr_t[]){0, (uintptr_t)image});
  for (int i = 0; i < HIGH * WIDE; i++) assert_true(image[i] == 1);
}

static void zones_are_computed_once_whoever_takes_them(void **state) {
  (void)state;
  lb_pool *pool;
  ok(lb_pool_new(3, &pool));
  for (int together = 0; together < 2; together++)
    for (int64_t grain = 0; grain < 22; grain++) {
      run_zones(count, NULL, together, grain);
      run_zones(count, pool, together, grain);
    }
  lb_pool_free(pool);
}

static void a_band_goes_through_all_zones_that_go_together(void **state) {
  (void)state;
  for (int together = 0; together < 2; together++) {
    last_col = 0;
    in_bands = true;
    run_zones(watch, NULL, together, 0);
    assert_int_equal(in_bands, together);
  }
}

static const lb_exec adds = {.entry = (uintptr_t)add};

static void submit_all(const lb_sequence *s, lb_pool *pool,
                       const uintptr_t *bases, lb_run_limits *bound) {
  lb_stream to = {.pool = pool, .bases = bases, .bound = bound};
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

// Two launches: the sum takes in an element of `in`, and `out`, which runs
// backwards, what the sum is then.
static void launches_run_in_sequence(void **state) {
  (void)state;
  enum { TURNS = 5, F = sizeof(float) };
  float in[] = {1, 2, 3, 4, 5}, out[TURNS] = {0}, sum = 10;
  uint64_t args[8] = {0, 0, 1, 1};
  int64_t strides[4] = {0};
  lb_address first[] = {{.base = 3}, {.base = 1}};
  lb_address second[] = {{.base = 2, .offset = (TURNS - 1) * F}, {.base = 3}};
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
                   .turns = TURNS,
                   .n = 2,
                   .each = 2};
  uintptr_t bases[] = {0, (uintptr_t)in, (uintptr_t)out, (uintptr_t)&sum};
  submit_all(&s, NULL, bases, NULL);
  static const float want[] = {25, 20, 16, 13, 11};
  for (int i = 0; i < TURNS; i++) assert_true(out[i] == want[i]);
  s.each = 1;  // all sums first
  submit_all(&s, NULL, bases, NULL);
  for (int i = 0; i < TURNS; i++) assert_true(out[i] == want[i] + 40);
  atomic_int cancel = 1;
  lb_run_limits bound = {.cancelled = &cancel};
  submit_all(&s, NULL, bases, &bound);
  assert_int_equal(bound.found, LB_LIMITS_CANCELLED);
  for (int i = 0; i < TURNS; i++) assert_true(out[i] == want[i] + 40);
}

// Two sums that have nothing to do with each other.
static void groups_may_run_on_threads_of_their_own(void **state) {
  (void)state;
  enum { TURNS = 2000, F = sizeof(float) };
  static float in[TURNS];
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
  for (int i = 0; i < TURNS; i++) in[i] = 1;
  lb_sequence s = {.first = l,
                   .execs = (const lb_exec *[]){&adds, &adds},
                   .turns = TURNS,
                   .n = 2,
                   .each = 1,
                   .apart = 2};
  uintptr_t bases[] = {0, (uintptr_t)in, (uintptr_t)sums};
  lb_pool *pool;
  ok(lb_pool_new(2, &pool));
  for (int i = 1; i <= 50; i++) {
    submit_all(&s, pool, bases, NULL);
    assert_true(sums[0] == (float)(i * TURNS) && sums[1] == sums[0]);
  }
  atomic_int cancel = 1;
  lb_run_limits bound = {.cancelled = &cancel};
  submit_all(&s, pool, bases, &bound);
  assert_int_equal(bound.found, LB_LIMITS_CANCELLED);
  assert_true(sums[0] == 50.0f * TURNS);
  lb_pool_free(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_element_is_computed_once),
      cmocka_unit_test(zones_are_computed_once_whoever_takes_them),
      cmocka_unit_test(a_band_goes_through_all_zones_that_go_together),
      cmocka_unit_test(launches_run_in_sequence),
      cmocka_unit_test(groups_may_run_on_threads_of_their_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
