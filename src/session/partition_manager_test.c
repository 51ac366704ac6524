// session/partition_manager_test.c -- batches without padding: whole and in
// groups, from many threads, while versions are swapped. Runs under TSan in
// scripts/test.
#include "session/partition_manager.h"

#include <math.h>
#include <pthread.h>

#include "base/undertsan.h"
#include "device/cpu/device.h"
#include "graph/text_test.h"

#define THREADS 8
#ifdef UNDER_TSAN
#define RUNS 20
#else
#define RUNS 100
#endif
#define WIDTH 8
#define MAX_BATCH 24
#define MAX_LENGTH 20

static const char model[] =
    "in x float32[b,s,8]\n"
    "in m int64[b,s]\n"
    "const w float32[8,8] 1 0 2 -1 1 0 1 1 0 -2 1 1 -1 0 1 0 2 1\n"
    "const one float32[] 1\n"
    "const low float32[] -10000\n"
    "f = Cast(m) {to=1}\n"
    "u = Unsqueeze(f, [1,2])\n"
    "i = Sub(one, u)\n"
    "a = Mul(i, low)\n"
    "q = MatMul(x, w)\n"
    "h = Attention(q, x, q, a) {q_num_heads=2, kv_num_heads=2}\n"
    "p = Add(h, x)\n"
    "r = Relu(p)\n"
    "e = Unsqueeze(f, [-1])\n"
    "z = Mul(r, e)\n"
    "t = ReduceSum(z, [1]) {keepdims=0}\n"
    "n = ReduceSum(e, [1]) {keepdims=0}\n"
    "y = Div(t, n)\n"
    "out y r\n";
#define OUTPUTS 2

typedef struct bed {
  lb_graph *g;
  lb_cpu_device cpu;
  lb_slots slots;
  lb_pool *pool;
  lb_session *s;
} bed;

static void open_bed(bed *b, lb_session_options o) {
  *b = (bed){.g = graph_of(model)};
  lb_cpu_device_init(&b->cpu, NULL, false, NULL);
  must(lb_slots_init(&b->slots, 8, &b->cpu.base));
  must(lb_pool_new(3, &b->pool));
  o.pool = b->pool;
  o.slots = &b->slots;
  must(lb_session_new(b->g, &o, &b->s));
}

static void close_bed(bed *b) {
  lb_session_free(b->s);
  lb_pool_free(b->pool);
  lb_slots_fini(&b->slots);
  lb_graph_free(b->g);
}

static uint64_t ragged_runs(const bed *b) {
  lb_session_stats stats;
  lb_session_stats_get(b->s, &stats);
  return stats.ragged_runs;
}

// -- batches -----------------------------------------------------------------

typedef struct padded {
  int64_t batch, length;
  float x[MAX_BATCH * MAX_LENGTH * WIDTH];
  int64_t m[MAX_BATCH * MAX_LENGTH];
} padded;

static uint64_t draw(uint64_t *state, uint64_t n) {
  *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (*state >> 33) % n;
}

// Half of the positions are padding; each sequence has a token.
static void fill(padded *p, int64_t batch, int64_t length, uint64_t seed) {
  p->batch = batch;
  p->length = length;
  for (int64_t i = 0; i < batch * length; i++) {
    p->m[i] = i % length == 0 || draw(&seed, 2) == 0;
    for (int64_t k = 0; k < WIDTH; k++)
      p->x[i * WIDTH + k] = (float)draw(&seed, 17) / 8 - 1;
  }
}

static lb_status run(lb_session *s, padded *p, lb_output out[OUTPUTS],
                     bool both) {
  lb_tensor in[2] = {
      {.dtype = LB_F32, .rank = 3, .dims = {p->batch, p->length, WIDTH}},
      {.dtype = LB_I64, .rank = 2, .dims = {p->batch, p->length}}};
  in[0].data = p->x;
  in[1].data = p->m;
  for (int i = 0; i < 2; i++) lb_tensor_dense(&in[i]);
  out[0] = (lb_output){.wanted = true};
  out[1] = (lb_output){.wanted = both};
  return lb_session_run(s, in, out);
}

static bool agree(const lb_output *a, const lb_output *b) {
  int64_t n = lb_tensor_count(&a->tensor);
  const float *x = a->tensor.data, *y = b->tensor.data;
  if (n != lb_tensor_count(&b->tensor)) return false;
  for (int64_t i = 0; i < n; i++)
    if (!(fabsf(x[i] - y[i]) <= 1e-5F * (1 + fabsf(y[i])))) return false;
  return true;
}

static void check(bed *live, bed *plain, padded *p, bool both) {
  lb_output a[OUTPUTS], b[OUTPUTS];
  must(run(live->s, p, a, both));
  must(run(plain->s, p, b, both));
  for (int i = 0; i < 1 + both; i++) {
    assert_true(agree(&a[i], &b[i]));
    lb_output_free(live->s, &a[i]);
    lb_output_free(plain->s, &b[i]);
  }
}

static const lb_session_options forced = {.fusion = LB_FUSION_LIVE,
                                          .fusion_untried = true};

// -- tests -------------------------------------------------------------------

static void padding_is_left_out_whole_and_in_groups(void **state) {
  (void)state;
  bed live, plain, groups;
  padded *p = malloc(sizeof *p);
  lb_session_options small = forced;
  small.l2_bytes = 4096;
  open_bed(&live, forced);
  open_bed(&groups, small);
  open_bed(&plain, (lb_session_options){0});
  for (uint64_t i = 0; i < 40; i++) {
    uint64_t seed = i;
    fill(p, 1 + (int64_t)draw(&seed, MAX_BATCH),
         4 + (int64_t)draw(&seed, MAX_LENGTH - 4), i);
    check(&live, &plain, p, false);
    check(&groups, &plain, p, false);
  }
  assert_true(ragged_runs(&live) > 30);
  assert_int_equal(ragged_runs(&live), ragged_runs(&groups));
  assert_int_equal(ragged_runs(&plain), 0);
  close_bed(&live);
  close_bed(&groups);
  close_bed(&plain);
  free(p);
}

static void results_with_padding_need_the_original(void **state) {
  (void)state;
  bed live, plain;
  padded *p = malloc(sizeof *p);
  open_bed(&live, forced);
  open_bed(&plain, (lb_session_options){0});
  fill(p, 5, 7, 1);
  check(&live, &plain, p, true);
  assert_int_equal(ragged_runs(&live), 0);
  check(&live, &plain, p, false);
  assert_int_equal(ragged_runs(&live), 1);
  close_bed(&live);
  close_bed(&plain);
  free(p);
}

static void limits_hold_without_padding(void **state) {
  (void)state;
  bed live;
  lb_output out[OUTPUTS];
  padded *p = malloc(sizeof *p);
  lb_session_options o = forced;
  o.memory_limit = 2000;
  open_bed(&live, o);
  fill(p, MAX_BATCH, MAX_LENGTH, 1);
  lb_status st = run(live.s, p, out, false);
  assert_int_equal(lb_status_code(st), LB_OOM);
  lb_status_drop(st);
  assert_null(out[0].data);
  close_bed(&live);
  free(p);
}

static int warnings;

static void count_warnings(void *user, int level, const char *line) {
  (void)user;
  warnings += level == LB_LOG_WARN && strstr(line, "output 'y', element");
}

// Numbers at padding that are NaN make the original NaN, but not the fused
// graph.
static void a_run_that_differs_ends_fusion(void **state) {
  (void)state;
  bed live;
  lb_output out[OUTPUTS];
  padded *p = malloc(sizeof *p);
  lb_log log = {.fn = count_warnings, .level = LB_LOG_WARN};
  lb_session_options o = forced;
  o.verify = 2;
  o.log = &log;
  open_bed(&live, o);
  warnings = 0;
  for (int i = 0; i < 6; i++) {
    fill(p, 5, 9, 1);
    if (i >= 4)
      for (int64_t k = 0; k < 5 * 9; k++)
        if (!p->m[k]) p->x[k * WIDTH] = NAN;
    must(run(live.s, p, out, false));
    lb_output_free(live.s, &out[0]);
  }
  assert_int_equal(ragged_runs(&live), 6);
  assert_int_equal(warnings, 1);
  must(run(live.s, p, out, false));
  lb_output_free(live.s, &out[0]);
  assert_int_equal(ragged_runs(&live), 6);
  close_bed(&live);
  free(p);
}

static void deterministic_sessions_fuse_nothing(void **state) {
  (void)state;
  bed b;
  lb_session_options o = forced;
  o.deterministic = true;
  open_bed(&b, o);
  assert_null(b.s->partition_manager);
  close_bed(&b);
}

typedef struct runner {
  bed *live, *plain;
  uint64_t seed;
  atomic_int *wrong;
  pthread_t thread;
} runner;

static void *run_many(void *user) {
  runner *r = user;
  padded *p = malloc(sizeof *p);
  for (uint64_t i = 0; i < RUNS; i++) {
    lb_output a[OUTPUTS], b[OUTPUTS];
    uint64_t seed = r->seed * 1000 + i % 7;
    fill(p, 3 + (int64_t)draw(&seed, MAX_BATCH - 3), MAX_LENGTH, seed);
    lb_status one = run(r->live->s, p, a, false);
    lb_status two = run(r->plain->s, p, b, false);
    if (lb_failed(one) || lb_failed(two) || !agree(&a[0], &b[0]))
      atomic_fetch_add(r->wrong, 1);
    lb_status_drop(one);
    lb_status_drop(two);
    lb_output_free(r->live->s, &a[0]);
    lb_output_free(r->plain->s, &b[0]);
  }
  free(p);
  return NULL;
}

static void run_on_threads(bed *live, bed *plain) {
  runner r[THREADS];
  atomic_int wrong = 0;
  for (int i = 0; i < THREADS; i++) {
    r[i] = (runner){live, plain, (uint64_t)i, &wrong, 0};
    assert_int_equal(pthread_create(&r[i].thread, NULL, run_many, &r[i]), 0);
  }
  for (int i = 0; i < 20; i++) {
    lb_version *v;
    must(lb_session_build(live->s, &(lb_partition_options){0}, &v));
    lb_session_swap(live->s, v);
    lb_session_release_version(live->s, v);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(r[i].thread, NULL);
  assert_int_equal(wrong, 0);
}

static void threads_run_without_padding_while_versions_change(void **state) {
  (void)state;
  bed live, plain;
  lb_session_options o = forced;
  o.l2_bytes = 4096;
  open_bed(&live, o);
  open_bed(&plain, (lb_session_options){0});
  run_on_threads(&live, &plain);
  assert_int_equal(ragged_runs(&live), THREADS * RUNS);
  close_bed(&live);
  close_bed(&plain);
}

// Without compiled kernels a fusion is tried, but no time counts.
static void threads_run_while_the_analyzer_decides(void **state) {
  (void)state;
  bed live, plain;
  open_bed(&live, (lb_session_options){.fusion = LB_FUSION_LIVE});
  open_bed(&plain, (lb_session_options){0});
  run_on_threads(&live, &plain);
  lb_partition_manager_update(live.s->partition_manager);
  close_bed(&live);
  close_bed(&plain);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(padding_is_left_out_whole_and_in_groups),
      cmocka_unit_test(results_with_padding_need_the_original),
      cmocka_unit_test(limits_hold_without_padding),
      cmocka_unit_test(a_run_that_differs_ends_fusion),
      cmocka_unit_test(deterministic_sessions_fuse_nothing),
      cmocka_unit_test(threads_run_without_padding_while_versions_change),
      cmocka_unit_test(threads_run_while_the_analyzer_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
