// session/run_limits_test.c -- runs that end early, and memory that is freed
// again.
#include "base/run_limits.h"

#include <stdlib.h>

#include "base/clock.h"
#include "graph/build_test.h"
#include "session/context.h"
#include "session/run.h"
#include "session/session.h"

typedef struct fixture {
  lb_graph *graph;
  lb_session *session;
  lb_alloc alloc;
  int live;  // allocations not yet freed
  atomic_int cancel;
  int steps;         // reported so far
  int cancel_after;  // cancel after this many steps; 0: never
} fixture;

static void *count_alloc(void *user, size_t size, size_t align) {
  void *p = NULL;
  if (posix_memalign(&p, align, size)) return NULL;
  ((fixture *)user)->live++;
  return p;
}

static void count_free(void *user, void *p) {
  ((fixture *)user)->live--;
  free(p);
}

static fixture *open_graph(lb_graph *g) {
  fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  f->graph = g;
  f->alloc = (lb_alloc){count_alloc, count_free, f};
  ok(lb_session_new(
      g, &(lb_session_options){.passes_off = UINT64_MAX, .alloc = &f->alloc},
      &f->session));
  return f;
}

static void close_graph(fixture *f) {
  lb_session_free(f->session);
  assert_int_equal(f->live, 0);
  lb_graph_free(f->graph);
  free(f);
}

// y = ----x, and its first half as a second result.
static fixture *open_chain(void) {
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1));
  lb_value *a = NODE1(g->main, Neg, "a", x), *b = NODE1(g->main, Neg, "b", a);
  lb_value *c = NODE1(g->main, Neg, "c", b);
  RESULTS(g->main, NODE1(g->main, Neg, "d", c), b);
  return open_graph(g);
}

static lb_status count_step(void *user, const lb_step_event *e) {
  (void)e;
  fixture *f = user;
  if (++f->steps == f->cancel_after) f->cancel = 1;
  return LB_OK;
}

static lb_status run(fixture *f, int64_t n, lb_run_limits *limits,
                     lb_output *out) {
  float *in = calloc((size_t)n + 1, sizeof *in);
  assert_non_null(in);
  lb_tensor t = tensor(LB_F32, in, DIMS(n));
  lb_watcher watcher = {.step = count_step, .user = f};
  f->steps = 0;
  lb_status st =
      lb_session_run_with(f->session, &t, out,
                          &(lb_run_how){.watcher = &watcher, .limits = limits});
  free(in);
  return st;
}

static void run_well(fixture *f, int64_t n) {
  lb_output out[2] = {{.wanted = true}, {.wanted = true}};
  ok(run(f, n, NULL, out));
  for (int i = 0; i < 2; i++) lb_output_free(f->session, &out[i]);
}

static size_t kept(fixture *f) {
  lb_session_stats stats;
  lb_session_stats_get(f->session, &stats);
  return stats.arena_bytes;
}

static void assert_says(lb_status st, const char *text) {
  assert_int_equal(lb_status_code(st), LB_CANCELLED);
  if (!strstr(lb_status_message(st), text))
    fail_msg("%s\nlacks: %s", lb_status_message(st), text);
  lb_status_drop(st);
}

// -- ending ------------------------------------------------------------------

static void a_cancelled_run_ends_before_its_next_step(void **state) {
  (void)state;
  fixture *f = open_chain();
  run_well(f, 8);
  assert_int_equal(f->steps, 4);
  int live = f->live;
  lb_run_limits limits = {.start_ns = lb_clock_ns(), .cancelled = &f->cancel};
  lb_output out[2] = {{.wanted = true}, {.wanted = true}};
  f->cancel_after = 3;
  assert_says(run(f, 8, &limits, out), "ms, at Neg 'd', after 3 of 4 steps");
  assert_int_equal(f->steps, 3);
  assert_null(out[0].data);
  assert_null(out[1].data);
  assert_int_equal(f->live, live);  // its allocations were freed
  f->cancel = f->cancel_after = 0;
  run_well(f, 8);
  close_graph(f);
}

static void limits_that_are_not_reached_change_nothing(void **state) {
  (void)state;
  fixture *f = open_chain();
  lb_run_limits limits = {.start_ns = lb_clock_ns(), .cancelled = &f->cancel};
  limits.deadline_ns = limits.start_ns + (int64_t)3600 * 1000000000;
  lb_output out[2] = {{.wanted = true}, {0}};
  ok(run(f, 3, &limits, out));
  assert_int_equal(out[0].tensor.dims[0], 3);
  lb_output_free(f->session, &out[0]);
  close_graph(f);
}

static void a_run_past_its_deadline_runs_nothing(void **state) {
  (void)state;
  fixture *f = open_chain();
  lb_run_limits limits = {.start_ns = lb_clock_ns()};
  limits.deadline_ns = limits.start_ns;
  lb_output out[2] = {{.wanted = true}, {.wanted = true}};
  lb_status st = run(f, 8, &limits, out);
  assert_non_null(strstr(lb_status_message(st), "the run's deadline passed"));
  assert_says(st, "at Neg 'a', after 0 of 4 steps");
  assert_int_equal(f->steps, 0);
  assert_int_equal(limits.found, LB_LIMITS_LATE);
  close_graph(f);
}

static void an_exceeded_limit_stays_exceeded(void **state) {
  (void)state;
  atomic_int cancel = 1;
  lb_run_limits limits = {.cancelled = &cancel};
  assert_false(lb_run_limits_exceeded(NULL));
  assert_true(lb_run_limits_exceeded(&limits));
  cancel = 0;
  assert_true(lb_run_limits_exceeded(&limits));
}

// acc = ----acc, five times.
static fixture *open_loop(void) {
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1)), *m;
  static int64_t iterations = 5;  // a constant borrows its data
  lb_tensor five = tensor(LB_I64, &iterations, 0, NULL);
  ok(lb_const_new(g, "m", &five, &m));
  lb_node *loop =
      node(g->main, LB_OP_Loop, "loop", 3, (lb_value *[]){m, NULL, x}, 1);
  lb_region *r;
  ok(lb_region_new(g, g->main, &r));
  add_region(loop, r);
  param(r, "i", LB_I64, 0, NULL);
  lb_value *cond = param(r, "cond", LB_BOOL, 0, NULL);
  lb_value *acc = param(r, "acc", LB_F32, DIMS(-1));
  RESULTS(r, cond, NODE1(r, Neg, "b", NODE1(r, Neg, "a", acc)));
  RESULTS(g->main, loop->out[0]);
  return open_graph(g);
}

static void a_loop_ends_within_its_iteration(void **state) {
  (void)state;
  fixture *f = open_loop();
  lb_output out = {.wanted = true};
  ok(run(f, 4, NULL, &out));
  lb_output_free(f->session, &out);
  int each = f->steps / 5, all = f->steps;
  for (f->cancel_after = 1; f->cancel_after < each * 5; f->cancel_after++) {
    lb_run_limits limits = {.start_ns = lb_clock_ns(), .cancelled = &f->cancel};
    char expected[64];
    snprintf(expected, sizeof expected,
             "Loop 'loop': iteration %d:", f->cancel_after / each);
    out = (lb_output){.wanted = true};
    assert_says(run(f, 4, &limits, &out), expected);
    assert_null(out.data);
    assert_int_equal(f->steps, f->cancel_after);
    f->cancel = 0;
  }
  f->cancel_after = 0;
  ok(run(f, 4, NULL, &out));
  assert_int_equal(f->steps, all);
  lb_output_free(f->session, &out);
  close_graph(f);
}

static void one_run_may_have_a_lower_memory_limit(void **state) {
  (void)state;
  fixture *f = open_chain();
  run_well(f, 100000);
  lb_run_limits limits = {.start_ns = lb_clock_ns(), .memory_limit = 100000};
  lb_output out[2] = {{.wanted = true}, {.wanted = true}};
  lb_status st = run(f, 100000, &limits, out);
  assert_int_equal(lb_status_code(st), LB_OOM);
  assert_non_null(strstr(lb_status_message(st), "memory limit of 100000"));
  lb_status_drop(st);
  ok(run(f, 1000, &limits, out));  // memory of earlier runs does not count
  for (int i = 0; i < 2; i++) lb_output_free(f->session, &out[i]);
  run_well(f, 100000);
  close_graph(f);
}

// -- memory ------------------------------------------------------------------

enum { LARGE = 1 << 20, LITTLE = 1 << 10 };

static void memory_is_freed_after_many_small_runs(void **state) {
  (void)state;
  fixture *f = open_chain();
  run_well(f, LARGE);
  size_t most = kept(f);
  assert_true(most >= LARGE * sizeof(float));
  for (int i = 1; i < LB_UNDERUSED_RUNS; i++) run_well(f, LITTLE);
  assert_int_equal(kept(f), most);
  run_well(f, LITTLE);
  assert_int_equal(kept(f), 0);
  run_well(f, LITTLE);
  assert_in_range(kept(f), 1, most / 100);
  close_graph(f);
}

static void memory_used_now_and_then_is_kept(void **state) {
  (void)state;
  fixture *f = open_chain();
  for (int i = 0; i < 4 * LB_UNDERUSED_RUNS; i++) {
    run_well(f, i % (LB_UNDERUSED_RUNS - 2) ? LITTLE : LARGE);
    assert_true(kept(f) >= LARGE * sizeof(float));
  }
  close_graph(f);
}

static void trimming_returns_the_bytes_freed(void **state) {
  (void)state;
  fixture *f = open_chain();
  run_well(f, LARGE);
  assert_true(lb_session_trim(f->session) >= LARGE * sizeof(float));
  assert_int_equal(f->live, 0);
  assert_int_equal(lb_session_trim(f->session), 0);
  run_well(f, LITTLE);
  close_graph(f);
}

// A run inside a run takes a context of its own.
static lb_status run_inside(void *user, const lb_step_event *e) {
  (void)e;
  fixture *f = user;
  if (f->steps++) return LB_OK;
  run_well(f, LITTLE);
  return LB_OK;
}

static void unused_contexts_are_freed(void **state) {
  (void)state;
  fixture *f = open_chain();
  float in[4] = {0};
  lb_tensor t = tensor(LB_F32, in, DIMS(4));
  lb_output out[2] = {{.wanted = true}, {0}};
  lb_watcher watcher = {.step = run_inside, .user = f};
  ok(lb_session_run_with(f->session, &t, out,
                         &(lb_run_how){.watcher = &watcher}));
  lb_output_free(f->session, &out[0]);
  lb_session_stats stats;
  for (int i = 0; i < LB_IDLE_RUNS; i++) run_well(f, LITTLE);
  lb_session_stats_get(f->session, &stats);
  assert_int_equal(stats.contexts, 2);
  for (int i = LB_IDLE_RUNS; i < LB_UNDERUSED_RUNS; i++) run_well(f, LITTLE);
  lb_session_stats_get(f->session, &stats);
  assert_int_equal(stats.contexts, 1);
  close_graph(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cancelled_run_ends_before_its_next_step),
      cmocka_unit_test(limits_that_are_not_reached_change_nothing),
      cmocka_unit_test(a_run_past_its_deadline_runs_nothing),
      cmocka_unit_test(an_exceeded_limit_stays_exceeded),
      cmocka_unit_test(a_loop_ends_within_its_iteration),
      cmocka_unit_test(one_run_may_have_a_lower_memory_limit),
      cmocka_unit_test(memory_is_freed_after_many_small_runs),
      cmocka_unit_test(memory_used_now_and_then_is_kept),
      cmocka_unit_test(trimming_returns_the_bytes_freed),
      cmocka_unit_test(unused_contexts_are_freed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
