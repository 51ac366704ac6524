// session/session_threads_test.c -- 8 threads, one session, mixed shapes, and a
// plan cache so small that plans are evicted while other threads run them. Runs
// under TSan in scripts/test. Then the same while runs are cancelled, memory is
// trimmed, shapes are recorded and a listener receives all events.
#include <pthread.h>
#include <stdlib.h>

#include "session/session.h"

#include "base/clock.h"
#include "base/testdir.h"
#include "graph/build_test.h"

#define THREADS 8
#define RUNS 200

typedef struct job {
  lb_session *s;
  unsigned seed;
  int bad;
  int cancelled;             // number of cancelled runs
  const atomic_int *cancel;  // NULL: no run has limits; else every other
} job;

// y = relu(x*w) and the positions of y's nonzero elements: a matmul on the
// pool, then a data-dependent stage.
static lb_graph *new_graph(void) {
  static float w[3 * 5];
  for (int i = 0; i < 15; i++) w[i] = (float)(i % 7) - 3;
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1, 3)), *c;
  lb_tensor t = tensor(LB_F32, w, DIMS(3, 5));
  ok(lb_const_new(g, "w", &t, &c));
  lb_value *mm = NODE1(g->main, MatMul, "mm", x, c);
  lb_value *y = NODE1(g->main, Relu, "relu", mm);
  lb_value *nz = NODE1(g->main, NonZero, "nz", y);
  RESULTS(g->main, y, NODE1(g->main, Transpose, "tr", nz));
  return g;
}

static int check(const lb_output *out, const float *x, int64_t n) {
  int64_t nonzero = 0;
  for (int64_t i = 0; i < n * 5; i++) {
    float want = 0;
    for (int64_t k = 0; k < 3; k++) {
      float p = x[i / 5 * 3 + k] * ((float)((k * 5 + i % 5) % 7) - 3);
      want = k ? want + p : p;
    }
    if (want < 0) want = 0;
    if (((const float *)out[0].tensor.data)[i] != want) return 0;
    nonzero += want != 0;
  }
  return out[1].tensor.dims[0] == nonzero && out[1].tensor.dims[1] == 2;
}

static void *work(void *user) {
  job *j = user;
  static const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 31, 64};
  for (int run = 0; run < RUNS; run++) {
    float x[64 * 3];
    int64_t n = sizes[(unsigned)rand_r(&j->seed) % 9];
    for (int64_t i = 0; i < n * 3; i++)
      x[i] = (float)(rand_r(&j->seed) % 5) - 2;
    lb_tensor in = tensor(LB_F32, x, DIMS(n, 3));
    lb_output out[2] = {{.wanted = true}, {.wanted = true}};
    lb_run_limits limits = {.start_ns = lb_clock_ns(), .cancelled = j->cancel};
    bool bounded = j->cancel && rand_r(&j->seed) % 2;
    if (rand_r(&j->seed) % 2)
      limits.deadline_ns = limits.start_ns + rand_r(&j->seed) % 50000;
    lb_run_how how = {.limits = bounded ? &limits : NULL};
    lb_status st = lb_session_run_with(j->s, &in, out, &how);
    bool ended = bounded && lb_status_code(st) == LB_CANCELLED;
    j->cancelled += ended;
    if (ended ? out[0].data || out[1].data : lb_failed(st) || !check(out, x, n))
      j->bad++;
    lb_status_drop(st);
    lb_output_free(j->s, &out[0]);
    lb_output_free(j->s, &out[1]);
  }
  return NULL;
}

static void eight_threads_share_one_session(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_pool *pool;
  lb_session *s;
  ok(lb_pool_new(3, &pool));
  ok(lb_session_new(
      g, &(lb_session_options){.pool = pool, .plan_bytes = 256 << 10}, &s));
  pthread_t threads[THREADS];
  job jobs[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    jobs[i] = (job){.s = s, .seed = i + 1};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
  }
  int bad = 0;
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    bad += jobs[i].bad;
  }
  lb_session_stats stats;
  lb_session_stats_get(s, &stats);
  assert_int_equal(bad, 0);
  assert_int_equal(stats.runs, THREADS * RUNS);
  assert_true(stats.plans_evicted > 0);
  assert_true(stats.contexts <= THREADS);
  lb_session_free(s);
  lb_pool_free(pool);
  lb_graph_free(g);
}

// -- with concurrent changes --------------------------------------------------

typedef struct meddler {
  lb_session *s;
  atomic_int cancel;
  atomic_bool stop;
  char path[PATH_MAX];
  int64_t heard;
  int bad;
} meddler;

static void hear(void *user, const lb_event *e, const char *text) {
  (void)e, (void)text;
  ((meddler *)user)->heard++;
}

static void *meddle(void *user) {
  meddler *m = user;
  lb_log silent = {.level = LB_LOG_ERROR};
  for (int i = 0; !atomic_load(&m->stop); i++) {
    atomic_store(&m->cancel, i % 3 == 0);
    lb_session_trim(m->s);
    lb_status st = lb_session_record(m->s, i % 2 ? m->path : NULL, &silent);
    m->bad += lb_failed(st);
    lb_status_drop(st);
    lb_session_stats stats;
    lb_session_stats_get(m->s, &stats);
  }
  atomic_store(&m->cancel, 0);
  return NULL;
}

static void runs_are_correct_during_concurrent_changes(void **state) {
  (void)state;
  testdir dir;
  assert_int_equal(testdir_init(&dir), 0);
  lb_graph *g = new_graph();
  lb_pool *pool;
  lb_events *events;
  meddler m = {0};
  snprintf(m.path, sizeof m.path, "%s", testdir_at(&dir, "shapes"));
  ok(lb_pool_new(3, &pool));
  ok(lb_events_new(hear, &m, &events));
  lb_session_options o = {
      .pool = pool, .plan_bytes = 256 << 10, .events = events};
  ok(lb_session_new(g, &o, &m.s));
  pthread_t threads[THREADS], other;
  job jobs[THREADS];
  assert_int_equal(pthread_create(&other, NULL, meddle, &m), 0);
  for (unsigned i = 0; i < THREADS; i++) {
    jobs[i] = (job){.s = m.s, .seed = i + 1, .cancel = &m.cancel};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
  }
  int bad = 0, cancelled = 0;
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    bad += jobs[i].bad;
    cancelled += jobs[i].cancelled;
  }
  atomic_store(&m.stop, true);
  pthread_join(other, NULL);
  assert_int_equal(bad + m.bad, 0);
  assert_in_range(cancelled, 1, THREADS * RUNS - 1);
  lb_session_free(m.s);
  lb_events_free(events);
  assert_true(m.heard > 0);
  lb_pool_free(pool);
  lb_graph_free(g);
  testdir_fini(&dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_are_correct_during_concurrent_changes),
      cmocka_unit_test(eight_threads_share_one_session),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
