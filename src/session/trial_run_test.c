// session/trial_run_test.c -- trials of kernels against their baselines, with
// everything but the compiler. The fake kernels write no output. The one of the
// worker "kernel" returns at once and the one of "sluggish" loops for a while,
// so that noise does not matter.
#include "session/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/testdir.h"
#include "base/undertsan.h"
#include "device/cpu/device.h"
#include "graph/build_test.h"

#define LONG_NS INT64_C(200000000000)  // a timeout that is not reached

typedef struct fixture {
  testdir dir;
  lb_store *store;  // NULL: none
  lb_lru lru;
  lb_cpu_device cpu;
  lb_slots slots;
  lb_pool *pool;
  lb_hub hub;
  lb_seat *seat;
  lb_service *service;
  lb_graph *graph;
  lb_session *session;
  float *x;
  int64_t n;
  lb_log log;
} fixture;

// Opens a session for y = exp(x), which runs its cover until there is a kernel.
static void open_session(fixture *f) {
  ok(lb_graph_new(&f->graph));
  lb_value *x = param(f->graph->main, "x", LB_F32, DIMS(-1));
  RESULTS(f->graph->main, NODE1(f->graph->main, Exp, "exp", x));
  lb_session_options o = {
      .pool = f->pool, .slots = &f->slots, .service = f->service};
  ok(lb_session_new(f->graph, &o, &f->session));
}

static void close_session(fixture *f) {
  lb_session_free(f->session);
  lb_graph_free(f->graph);
}

// Creates everything that a process has. `name` selects what the fake worker
// does (compile/fake_worker_test.c); x has n elements.
static void begin(fixture *f, const char *name, int64_t n, bool with_store) {
  char directory_path[PATH_MAX];
  snprintf(directory_path, sizeof directory_path, "%s/store", f->dir.path);
  f->n = n;
  f->x = calloc((size_t)n, sizeof *f->x);
  assert_non_null(f->x);
  ok(lb_lru_init(&f->lru, 1 << 20));
  lb_cpu_device_init(&f->cpu, NULL, false, NULL);
  ok(lb_slots_init(&f->slots, 16, &f->cpu.base));
  f->slots.lru = &f->lru;
  ok(lb_pool_new(2, &f->pool));
  if (with_store)
    ok(lb_store_new(
        &(lb_store_options){.directory = directory_path, .log = &f->log},
        &f->store));
  lb_service_options o = {.builder = {.worker = testdir_at(&f->dir, name),
                                      .slots = &f->slots,
                                      .store = f->store,
                                      .log = &f->log,
                                      .hub = &f->hub,
                                      .target = {.level = LB_LEVEL_V3}},
                          .trials = true};
  ok(lb_hub_join(&f->hub, &(lb_member){.pool = f->pool}, &f->seat));
  assert_true(symlink(FAKE_WORKER, o.builder.worker) == 0 || errno == EEXIST);
  ok(lb_service_new(&o, &f->service));
  open_session(f);
}

static void end(fixture *f) {
  close_session(f);
  lb_service_free(f->service);
  lb_store_free(f->store);
  lb_hub_leave(&f->hub, f->seat);
  lb_hub_fini(&f->hub);
  lb_pool_free(f->pool);
  lb_slots_fini(&f->slots);
  lb_cpu_device_fini(&f->cpu);
  lb_lru_fini(&f->lru);
  free(f->x);
  f->store = NULL;
}

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_int_equal(testdir_init(&f->dir), 0);
  f->log = (lb_log){.level = LB_LOG_ERROR};
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  testdir_fini(&f->dir);
  free(f);
  return 0;
}

// Runs the model and returns the first element of the result: exp(0) = 1 if the
// cover ran, and 0, as the memory was before, if a fake kernel did.
static float run(fixture *f) {
  float *y = calloc((size_t)f->n, sizeof *y);
  assert_non_null(y);
  lb_tensor in = tensor(LB_F32, f->x, DIMS(f->n));
  lb_output out = {.wanted = true, .data = y, .cap = (size_t)f->n * sizeof *y};
  ok(lb_session_run(f->session, &in, &out));
  float first = y[0];
  free(y);
  return first;
}

static lb_slot *the_slot(fixture *f) {
  lb_slot *slot = lb_slots_at(&f->slots, 0);
  assert_non_null(slot);
  assert_null(lb_slots_at(&f->slots, 1));
  return slot;
}

static void run_until_published(fixture *f) {
  int64_t limit = lb_clock_ns() + LONG_NS;
  run(f);
  while (lb_slot_tier(the_slot(f)) <= LB_TIER_PACK && lb_clock_ns() < limit) {
    run(f);
    usleep(1000);
  }
  assert_true(lb_slot_tier(the_slot(f)) > LB_TIER_PACK);
}

static lb_kernel_builder_stats counts(const fixture *f) {
  return lb_service_count(f->service).kernels;
}

// A kernel becomes visible a moment before its trial opens.
static void run_until_on_trial(fixture *f) {
  int64_t limit = lb_clock_ns() + LONG_NS;
  run_until_published(f);
  while (lb_slot_trial_state(the_slot(f)) == LB_TRIAL_NONE) {
    assert_true(lb_clock_ns() < limit);
    usleep(1000);
  }
}

// Runs until the kernel is kept or demoted, which happens a little after the
// trial is decided. Returns the number of runs that began with an open trial.
static int run_until_decided(fixture *f) {
  int64_t limit = lb_clock_ns() + LONG_NS;
  int runs = 0;
  while (counts(f).kept + counts(f).demoted == 0) {
    assert_true(lb_clock_ns() < limit);
    runs += lb_slot_trial_state(the_slot(f)) == LB_TRIAL_OPEN;
    run(f);
  }
  return runs;
}

static void assert_demoted(fixture *f) {
  lb_slot *slot = the_slot(f);
  assert_int_equal(atomic_load(&slot->failed), LB_SLOT_DEMOTED);
  assert_int_equal(lb_slot_tier(slot), LB_TIER_REFERENCE);
  assert_false(lb_slot_is_pending(slot));
  assert_int_equal(lb_slot_trial_state(slot), LB_TRIAL_NONE);
}

// -- results ------------------------------------------------------------------

static void a_slower_kernel_is_demoted_permanently(void **state) {
  fixture *f = *state;
  begin(f, "sluggish", 16, true);
  run_until_published(f);
  int runs = run_until_decided(f);
  assert_in_range(runs, 1, LB_TRIAL_RUNS);
  assert_int_equal(counts(f).demoted, 1);
  assert_demoted(f);
  for (int i = 0; i < 9; i++) assert_float_equal(run(f), 1, 0);
  end(f);

  begin(f, "sluggish", 16, true);  // after a restart
  for (int i = 0; i < 50; i++) {
    assert_float_equal(run(f), 1, 0);
    usleep(2000);
  }
  ok(lb_session_settle(f->session, 60, 0));
  assert_demoted(f);
  assert_int_equal(counts(f).compiled + counts(f).found, 0);
  end(f);
}

static void without_a_store_it_is_demoted_for_this_process(void **state) {
  fixture *f = *state;
  begin(f, "sluggish", 16, false);
  run_until_published(f);
  run_until_decided(f);
  close_session(f);
  open_session(f);
  for (int i = 0; i < 20; i++) assert_float_equal(run(f), 1, 0);
  ok(lb_session_settle(f->session, 60, 0));
  assert_demoted(f);
  assert_int_equal(counts(f).compiled, 1);
  end(f);
}

static void a_fast_kernel_is_kept_and_not_tried_again(void **state) {
  fixture *f = *state;
  begin(f, "kernel", 300000, true);
  run_until_published(f);
  assert_in_range(run_until_decided(f), 1, LB_TRIAL_RUNS);
  assert_int_equal(counts(f).kept, 1);
  assert_true(lb_slot_tier(the_slot(f)) > LB_TIER_PACK);
  for (int i = 0; i < 9; i++) assert_float_equal(run(f), 0, 0);
  end(f);

  begin(f, "kernel", 300000, true);
  run_until_published(f);
  assert_int_equal(counts(f).found, 1);
  assert_int_equal(lb_slot_trial_state(the_slot(f)), LB_TRIAL_NONE);
  end(f);
}

// -- interruptions ------------------------------------------------------------

static lb_status ignore(void *user, const lb_step_event *e) {
  (void)user, (void)e;
  return LB_OK;
}

static void a_watched_run_uses_the_compiled_kernel(void **state) {
  fixture *f = *state;
  begin(f, "kernel", 16, false);
  run_until_on_trial(f);
  lb_watcher w = {.step = ignore};
  lb_tensor in = tensor(LB_F32, f->x, DIMS(f->n));
  for (int i = 0; i < 2 * LB_TRIAL_RUNS; i++) {
    float y[16] = {7};
    lb_output out = {.wanted = true, .data = y, .cap = sizeof y};
    ok(lb_session_run_with(f->session, &in, &out,
                           &(lb_run_how){.watcher = &w}));
    assert_float_equal(y[0], 7, 0);  // the fake kernel writes nothing
  }
  assert_int_equal(lb_slot_trial_state(the_slot(f)), LB_TRIAL_OPEN);
  end(f);
}

static void eviction_ends_a_trial(void **state) {
  fixture *f = *state;
  begin(f, "sluggish", 16, false);
  run_until_published(f);
  for (int i = 0; i < 4; i++) run(f);
  lb_lru_set_capacity(&f->lru, 0);
  assert_int_equal(lb_slot_trial_state(the_slot(f)), LB_TRIAL_NONE);
  for (int i = 0; i < 9; i++) assert_float_equal(run(f), 1, 0);
  lb_lru_set_capacity(&f->lru, 1 << 20);
  run_until_published(f);  // it is published again and gets a trial
  run_until_decided(f);
  assert_demoted(f);
  end(f);
}

static void another_session_continues_a_trial(void **state) {
  fixture *f = *state;
  begin(f, "sluggish", 16, false);
  run_until_on_trial(f);
  for (int i = 0; i < 4; i++) run(f);
  assert_int_equal(lb_slot_trial_state(the_slot(f)), LB_TRIAL_OPEN);
  close_session(f);
  open_session(f);
  run_until_decided(f);
  assert_demoted(f);
  end(f);
}

static void a_runtime_may_end_during_a_trial(void **state) {
  fixture *f = *state;
  for (int runs = 0; runs < 40; runs += 3) {
    begin(f, "sluggish", 16, false);
    run_until_published(f);
    for (int i = 0; i < runs; i++) run(f);
    end(f);
  }
}

// -- other processes and threads ----------------------------------------------

#ifndef UNDER_TSAN  // TSan does not follow threads that a forked child starts
static void a_forked_child_decides_its_own_trials(void **state) {
  fixture *f = *state;
  begin(f, "sluggish", 16, true);
  run_until_on_trial(f);
  for (int i = 0; i < 5; i++) run(f);
  pid_t pid = fork();
  if (pid == 0) {
    run_until_decided(f);
    int failed = atomic_load(&the_slot(f)->failed);
    lb_service_free(f->service);
    _exit(failed == LB_SLOT_DEMOTED ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(lb_slot_trial_state(the_slot(f)), LB_TRIAL_OPEN);
  run_until_decided(f);
  assert_demoted(f);
  end(f);
}
#endif

typedef struct runner {
  fixture *f;
  atomic_bool *stop;
} runner;

static void *run_on(void *user) {
  const runner *r = user;
  while (!atomic_load(r->stop)) run(r->f);
  return NULL;
}

static void many_threads_reach_one_trial_result(void **state) {
  fixture *f = *state;
  pthread_t threads[4];
  atomic_bool stop = false;
  runner r = {f, &stop};
  begin(f, "sluggish", 16, false);
  run(f);
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, run_on, &r), 0);
  int64_t limit = lb_clock_ns() + LONG_NS;
  while (counts(f).kept + counts(f).demoted == 0 && lb_clock_ns() < limit)
    usleep(1000);
  atomic_store(&stop, true);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(counts(f).demoted, 1);
  assert_demoted(f);
  end(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_slower_kernel_is_demoted_permanently),
      TEST(without_a_store_it_is_demoted_for_this_process),
      TEST(a_fast_kernel_is_kept_and_not_tried_again),
      TEST(a_watched_run_uses_the_compiled_kernel),
      TEST(eviction_ends_a_trial),
      TEST(another_session_continues_a_trial),
      TEST(a_runtime_may_end_during_a_trial),
#ifndef UNDER_TSAN
      TEST(a_forked_child_decides_its_own_trials),
#endif
      TEST(many_threads_reach_one_trial_result),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
