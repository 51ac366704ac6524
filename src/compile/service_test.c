// compile/service_test.c -- background compiling, and its failures.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/caller.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/testdir.h"
#include "base/thread.h"
#include "base/undertsan.h"
#include "compile/kernel_store.h"
#include "compile/service.h"
#include "compile/slot_profile.h"
#include "device/cpu/device.h"
#include "device/cpu/exec.h"
#include "spec/generator.h"

#define SLOTS 24
#define LONG_NS INT64_C(200000000000)  // a timeout that is not reached

typedef struct fixture {
  testdir dir;
  lb_lru lru;
  lb_cpu_device cpu;
  lb_slots slots;
  lb_pool *pool;
  lb_hub hub;
  lb_seat *seat;
  lb_store *store;  // NULL: nothing is stored
  lb_service *service;
  unsigned
      session;  // number of the session; it compiles in the background, or 0
  lb_slot *slot[SLOTS];
  atomic_int warnings;
  lb_log log;
} fixture;

static const lb_slot_user EAGER = {.ahead = LB_AHEAD_ALL};

static void ok(lb_status st) {
  if (lb_failed(st)) print_error("%s\n", lb_status_message(st));
  assert_false(lb_failed(st));
}

static void count_warning(void *user, int level, const char *line) {
  fixture *f = user;
  (void)line;
  if (level <= LB_LOG_WARN) atomic_fetch_add(&f->warnings, 1);
}

// Slots that differ in their tiles.
static void add_slots(fixture *f) {
  lb_spec_builder b;
  lb_spec spec;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, LB_S_EXP, LB_F32, &x, 1), LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &spec));
  for (int i = 0; i < SLOTS; i++) {
    lb_facts facts = {0};
    lb_facts_add(&facts, LB_CHOOSE_TILE, LB_DIM_ROWS, (uint16_t)(i + 1));
    ok(lb_slots_intern(&f->slots, (lb_slot_user){0}, &spec, &facts,
                       &f->slot[i]));
  }
}

// As in a new process.
static void renew_slots(fixture *f) {
  lb_cpu_device_init(&f->cpu, NULL, false, NULL);
  ok(lb_slots_init(&f->slots, 16, &f->cpu.base));
  f->slots.lru = &f->lru;
  add_slots(f);
}

static void drop_slots(fixture *f) {
  lb_slots_fini(&f->slots);
  lb_cpu_device_fini(&f->cpu);
}

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_int_equal(testdir_init(&f->dir), 0);
  f->log = (lb_log){.level = LB_LOG_WARN, .fn = count_warning, .user = f};
  ok(lb_lru_init(&f->lru, 1 << 20));
  ok(lb_pool_new(lb_cpu_allowed(), &f->pool));
  ok(lb_hub_join(&f->hub, &(lb_member){.pool = f->pool}, &f->seat));
  renew_slots(f);
  *state = f;
  return 0;
}

static void close_service(fixture *f) {
  lb_service_free(f->service);
  f->service = NULL;
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);  // no zombie, no process
  assert_int_equal(errno, ECHILD);
}

static int tear_down(void **state) {
  fixture *f = *state;
  close_service(f);
  drop_slots(f);
  lb_lru_fini(&f->lru);
  lb_hub_leave(&f->hub, f->seat);
  lb_hub_fini(&f->hub);
  lb_pool_free(f->pool);
  testdir_fini(&f->dir);
  free(f);
  return 0;
}

// Uses the fake worker that behaves like `name`. `background`: the session
// compiles in the background.
static void open_service(fixture *f, const char *name, bool background) {
  lb_service_options o = {.builder = {.worker = testdir_at(&f->dir, name),
                                      .slots = &f->slots,
                                      .store = f->store,
                                      .log = &f->log,
                                      .hub = &f->hub,
                                      .target = {.level = LB_LEVEL_V3}},
                          .trials = true};
  assert_true(symlink(FAKE_WORKER, o.builder.worker) == 0 || errno == EEXIST);
  ok(lb_service_new(&o, &f->service));
  f->session = lb_service_join(f->service);
  if (background) lb_service_begin_background(f->service);
}

static void add_sample(fixture *f, int i, uint64_t run) {
  lb_slot_sample sample = {.session = 1, .run = run, .ns = 1000};
  lb_service_add_sample(f->service, f->slot[i], &sample);
}

static void nap(int ms) { usleep((useconds_t)ms * 1000); }

static bool is_compiled(const fixture *f, int i) {
  return lb_slot_tier(f->slot[i]) > LB_TIER_PACK;
}

static void wait_until_compiled(const fixture *f, int i) {
  int64_t end = lb_clock_ns() + LONG_NS;
  while (!is_compiled(f, i) && lb_clock_ns() < end) nap(1);
  assert_true(is_compiled(f, i));
}

static lb_status settle(fixture *f, double seconds) {
  return lb_service_settle(f->service, &(lb_settle){.seconds = seconds});
}

static void fails(lb_status st, lb_code code, const char *part) {
  if (lb_status_code(st) != code || !strstr(lb_status_message(st), part)) {
    print_error("wanted %s '%s', got %s '%s'\n", lb_code_name(code), part,
                lb_code_name(lb_status_code(st)), lb_status_message(st));
    fail();
  }
  lb_status_drop(st);
}

// -- runs ---------------------------------------------------------------------

// As by a plan that could use slot i at other numbers of rows.
static void want(fixture *f, int i) {
  lb_slots_want_variants(&f->slots, EAGER, f->slot[i], NULL, 0);
}

static void unused_slots_are_compiled_once_requests_are_idle(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  want(f, 1);
  lb_pool_enter(f->pool);
  add_sample(f, 0, 1);
  add_sample(f, 0, 2);
  wait_until_compiled(f, 0);
  nap(250);
  assert_false(is_compiled(f, 1));
  lb_pool_leave(f->pool);
  wait_until_compiled(f, 1);
  assert_false(is_compiled(f, 2));  // no plan wants it
}

// The slot was in the table before it was wanted, and had been scanned, as
// after a load warm-up.
static void slots_wanted_later_are_compiled_too(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  add_sample(f, 0, 1);
  add_sample(f, 0, 2);
  wait_until_compiled(f, 0);
  want(f, 1);
  add_sample(f, 2, 3);
  add_sample(f, 2, 4);
  wait_until_compiled(f, 2);
  wait_until_compiled(f, 1);
}

static void slots_wanted_by_loading_are_compiled_without_a_run(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  nap(20);  // by now it has looked for work, and sleeps
  want(f, 1);
  lb_slots_expect(&f->slots, EAGER, f->slot[2]);
  lb_service_notify(f->service);
  wait_until_compiled(f, 1);
  wait_until_compiled(f, 2);
  assert_false(is_compiled(f, 0));
}

// No session compiles in the background: loading a model starts nothing.
static void notify_starts_nothing_without_a_background_user(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", false);
  want(f, 1);
  lb_service_notify(f->service);
  nap(150);
  assert_false(is_compiled(f, 1));
  assert_int_equal(lb_service_count(f->service).queued, 0);
}

static void slots_others_want_ahead_outlive_a_session(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  unsigned other = lb_service_join(f->service);
  lb_pool_enter(f->pool);  // requests are not idle
  want(f, 1);
  assert_true(lb_service_count(f->service).queued >= 1);
  lb_service_leave(f->service, other);
  lb_pool_leave(f->pool);
  lb_service_notify(f->service);
  wait_until_compiled(f, 1);
}

// The service queues every slot that it is going to compile.
static bool is_queued(const fixture *f, int i) {
  return lb_slot_is_queued(f->slot[i]);
}

// The slots are not of critical specs.
static void slots_not_wanted_ahead_wait_for_settle(void **state) {
  fixture *f = *state;
  lb_slots_want_variants(&f->slots, (lb_slot_user){.ahead = LB_AHEAD_NONE},
                         f->slot[0], &f->slot[1], 1);
  lb_slots_want_variants(&f->slots, (lb_slot_user){.ahead = LB_AHEAD_CRITICAL},
                         f->slot[2], &f->slot[3], 1);
  want(f, 4);
  open_service(f, "kernel", true);
  add_sample(f, 4, 1);
  wait_until_compiled(f, 4);
  for (int i = 0; i < 4; i++)
    assert_false(is_queued(f, i) || is_compiled(f, i));
  want(f, 0);  // a session that is more eager
  add_sample(f, 5, 1);
  wait_until_compiled(f, 0);
  for (int i = 1; i < 4; i++)
    assert_false(is_queued(f, i) || is_compiled(f, i));
  ok(settle(f, 60));
  for (int i = 0; i < 4; i++) assert_true(is_compiled(f, i));
}

static void a_slot_is_compiled_at_its_second_use(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);  // requests are not idle
  add_sample(f, 0, 1);
  add_sample(f, 0, 1);  // the same run does not count twice
  add_sample(f, 1, 1);
  nap(250);
  assert_false(is_compiled(f, 0));
  add_sample(f, 0, 2);
  wait_until_compiled(f, 0);
  assert_false(is_compiled(f, 1));
  lb_cpu_function(lb_slot_kernel(f->slot[0]))(NULL);  // it can be called
  lb_pool_leave(f->pool);
}

static void a_slot_used_once_is_compiled_when_requests_are_idle(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  add_sample(f, 0, 1);
  wait_until_compiled(f, 0);
  assert_false(is_compiled(f, 1));
}

static bool has_worker(void) { return waitpid(-1, NULL, WNOHANG) == 0; }

static void the_worker_is_started_before_the_first_request(void **state) {
  fixture *f = *state;
  int64_t end = lb_clock_ns() + LONG_NS;
  lb_pool_enter(f->pool);  // as while a model is loaded
  open_service(f, "kernel", true);
  assert_false(has_worker());
  lb_pool_leave(f->pool);
  while (!has_worker() && lb_clock_ns() < end) nap(1);
  assert_true(has_worker());
}

static void no_worker_starts_while_requests_run_or_without_need(void **state) {
  fixture *f = *state;
  lb_pool_enter(f->pool);
  open_service(f, "kernel", true);
  nap(250);
  assert_false(has_worker());
  lb_pool_leave(f->pool);
  close_service(f);
  open_service(f, "kernel", false);
  nap(250);
  assert_false(has_worker());
}

// It waits for idle requests, but not forever.
static void the_first_start_waits_while_requests_run(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);
  int64_t begin = lb_clock_ns();
  add_sample(f, 0, 1);
  add_sample(f, 0, 2);
  nap(200);
  bool is_there = has_worker();
  bool late = lb_clock_ns() - begin > 400000000;  // this thread was delayed
  assert_true(!is_there || late);
  wait_until_compiled(f, 0);
  lb_pool_leave(f->pool);
}

static void nothing_is_compiled_in_the_background_if_off(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", false);
  add_sample(f, 0, 1);
  add_sample(f, 0, 2);
  nap(250);
  assert_false(is_compiled(f, 0));
  ok(settle(f, 60));
  for (int i = 0; i < SLOTS; i++) assert_true(is_compiled(f, i));
}

// The lowest threshold of all sessions decides, whichever reported first.
static void the_lowest_compile_threshold_decides(void **state) {
  fixture *f = *state;
  lb_slot_sample many = {
      .session = 1, .run = 1, .ns = 1000, .compile_threshold = 1000};
  lb_slot_sample one = {
      .session = 2, .run = 2, .ns = 1000, .compile_threshold = 1};
  lb_pool_enter(f->pool);
  open_service(f, "kernel", true);
  for (; many.run < 9; many.run++)
    lb_service_add_sample(f->service, f->slot[0], &many);
  one.run = many.run;
  lb_service_add_sample(f->service, f->slot[1], &one);
  wait_until_compiled(f, 1);
  assert_false(is_compiled(f, 0));
  lb_service_add_sample(f->service, f->slot[0], &one);
  wait_until_compiled(f, 0);
  lb_pool_leave(f->pool);
}

// Thread and process are gone, and start again when they are needed.
static void a_stopped_service_starts_again(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  for (int i = 0; i < SLOTS; i++) {
    add_sample(f, i, 1);
    add_sample(f, i, 2);
    nap(i % 3);
    lb_service_try_stop(f->service);  // declines: there is a background user
    lb_service_end_background(f->service);
    lb_service_try_stop(f->service);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    lb_service_begin_background(f->service);
  }
  ok(settle(f, 60));
  for (int i = 0; i < SLOTS; i++) assert_true(is_compiled(f, i));
}

typedef struct stopper {
  fixture *f;
  atomic_bool stop;
} stopper;

static void *stop_often(void *user) {
  stopper *r = user;
  while (!atomic_load(&r->stop)) lb_service_try_stop(r->f->service);
  return NULL;
}

// Although the thread is ended repeatedly meanwhile.
static void settling_works_while_the_service_is_stopped(void **state) {
  fixture *f = *state;
  stopper r = {.f = f};
  pthread_t thread;
  open_service(f, "kernel", false);
  assert_int_equal(pthread_create(&thread, NULL, stop_often, &r), 0);
  for (int i = 0; i < 5; i++) {
    ok(settle(f, 60));
    for (int k = 0; k < SLOTS; k++) {
      assert_true(is_compiled(f, k));
      lb_slots_withdraw(&f->slots, f->slot[k]);
    }
  }
  atomic_store(&r.stop, true);
  pthread_join(thread, NULL);
}

static void slots_queued_by_a_session_are_dropped_with_it(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);
  assert_int_equal(f->session, 1);  // as add_sample assumes
  add_sample(f, 0, 1);
  assert_int_equal(lb_service_count(f->service).queued, 1);
  lb_service_leave(f->service, f->session);
  assert_int_equal(lb_service_count(f->service).queued, 0);
  add_sample(f, 0, 2);  // a session that needs it queues it again
  wait_until_compiled(f, 0);
  lb_pool_leave(f->pool);
}

static void evicted_kernels_are_compiled_again(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  add_sample(f, 0, 1);
  add_sample(f, 0, 2);
  wait_until_compiled(f, 0);
  unsigned reviews = atomic_load(&f->slots.reviews);
  lb_lru_set_capacity(&f->lru, 0);
  assert_false(is_compiled(f, 0));
  assert_true(atomic_load(&f->slots.reviews) > reviews);
  ok(settle(f, 60));  // the cache holds nothing: nothing to wait for
  lb_lru_set_capacity(&f->lru, 1 << 20);
  atomic_store(&f->slot[0]->wanted, true);  // as by a run that uses it
  for (uint64_t run = 3; run < 9; run++) add_sample(f, 0, run);
  wait_until_compiled(f, 0);
}

// -- settling -----------------------------------------------------------------

static void settling_compiles_all_pending_slots(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  ok(settle(f, 60));
  for (int i = 0; i < SLOTS; i++) assert_true(is_compiled(f, i));
  assert_int_equal(lb_service_count(f->service).kernels.compiled, SLOTS);
  ok(settle(f, 0));
  lb_compile_record record;
  assert_true(lb_service_compile_record(f->service, SLOTS - 1, &record));
  assert_null(record.error);
  assert_false(lb_service_compile_record(f->service, SLOTS, &record));
}

static atomic_int stops;

static void count_stop(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  if (info->si_code == CLD_STOPPED) atomic_fetch_add(&stops, 1);
}

static void settling_is_not_throttled_by_requests(void **state) {
  fixture *f = *state;
  struct sigaction old,
      a = {.sa_sigaction = count_stop, .sa_flags = SA_SIGINFO | SA_RESTART};
  assert_int_equal(sigaction(SIGCHLD, &a, &old), 0);
  atomic_store(&stops, 0);
  open_service(f, "heavy", true);
  lb_pool_enter(f->pool);
  ok(settle(f, 60));
  assert_int_equal(atomic_load(&stops), 0);
  lb_pool_leave(f->pool);
  sigaction(SIGCHLD, &old, NULL);
}

static void settling_ends_when_the_time_is_over(void **state) {
  fixture *f = *state;
  open_service(f, "hang", true);
  fails(settle(f, 0.05), LB_CANCELLED, "not settled in the time given");
  fails(settle(f, 0), LB_CANCELLED, "24 kernels");
  assert_int_equal(atomic_load(&f->warnings), 0);
}

static void a_cache_too_small_for_all_does_not_block_settle(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  lb_lru_set_capacity(&f->lru, 2000);
  ok(settle(f, 60));
  assert_int_equal(lb_service_count(f->service).kernels.compiled, SLOTS);
}

typedef struct leaver {
  fixture *f;
  atomic_int round;
} leaver;

enum { LEAVES = 300 };

// Once per round.
static void *leave_often(void *user) {
  leaver *l = user;
  for (int i = 1; i <= LEAVES; i++) {
    while (atomic_load(&l->round) < i) sched_yield();
    lb_service_leave(l->f->service, 1);
  }
  return NULL;
}

// A leaving session drops slots from the queue; a settler that waits for one at
// that moment queues it again.
static void settling_survives_sessions_that_leave(void **state) {
  fixture *f = *state;
  pthread_t thread;
  leaver l = {.f = f};
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);
  ok(settle(f, 100));
  assert_int_equal(lb_thread_start(leave_often, &l, &thread), 0);
  for (int i = 1; i <= LEAVES; i++) {
    lb_slots_withdraw(&f->slots, f->slot[0]);
    add_sample(f, 0, (uint64_t)i);
    atomic_store(&l.round, i);
    ok(settle(f, 100));
  }
  pthread_join(thread, NULL);
  lb_pool_leave(f->pool);
}

// The job that found the cache too small may still be in progress.
static void space_freed_before_settling_is_used(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  for (int i = 1; i < SLOTS; i++) atomic_store(&f->slot[i]->wanted, false);
  for (uint64_t run = 1; run < 100; run += 2) {
    lb_slots_withdraw(&f->slots, f->slot[0]);
    lb_lru_set_capacity(&f->lru, 100);
    add_sample(f, 0, run);
    add_sample(f, 0, run + 1);
    while (!atomic_load(&lb_slot_profile_of(f->slot[0])->too_large))
      sched_yield();
    lb_lru_set_capacity(&f->lru, 1 << 20);
    ok(settle(f, 100));
    assert_true(is_compiled(f, 0));
  }
}

static void a_failed_key_is_not_queued_again(void **state) {
  fixture *f = *state;
  open_service(f, "refuse", true);
  ok(settle(f, 60));
  lb_compile_record record;
  assert_int_equal(lb_service_count(f->service).kernels.compile_failures,
                   SLOTS);
  assert_true(lb_service_compile_record(f->service, 0, &record));
  assert_non_null(strstr(record.error, "not?this"));
  ok(settle(f, 0));
}

// -- workers that fail --------------------------------------------------------

static void each_kind_of_failure_logs_one_warning(void **state) {
  static const char *const names[] = {"crash", "garbage", "early", "huge",
                                      "half"};
  fixture *f = *state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    atomic_store(&f->warnings, 0);
    open_service(f, names[i], true);
    fails(settle(f, 60), LB_IO, names[i]);
    for (int k = 0; k < SLOTS; k++)
      for (uint64_t run = 1; run < 4; run++) add_sample(f, k, run);
    nap(20);
    fails(settle(f, 60), LB_IO, names[i]);
    assert_int_equal(atomic_load(&f->warnings), 1);
    close_service(f);
    for (int k = 0; k < SLOTS; k++) {
      assert_false(is_compiled(f, k));
      lb_slot_profile_of(f->slot[k])->failures = 0;
    }
  }
}

static void kernels_for_future_shapes_may_be_missing(void **state) {
  fixture *f = *state;
  lb_facts facts = {0};
  lb_slot *slot;
  const lb_spec *spec = &f->slot[0]->key.spec;
  open_service(f, "kernel", true);
  ok(settle(f, 60));
  unlink(testdir_at(&f->dir, "kernel"));
  lb_facts_add(&facts, LB_CHOOSE_TILE, LB_DIM_ROWS, SLOTS + 1);
  ok(lb_slots_add(&f->slots, spec, &facts, &slot));
  lb_slots_want_variants(&f->slots, EAGER, slot, NULL, 0);
  close_service(f);
  open_service(f, "crash", false);
  ok(settle(f, 60));
  assert_true(lb_slot_is_pending(slot));
  ok(lb_slots_intern(&f->slots, (lb_slot_user){0}, spec, &facts, &slot));
  fails(settle(f, 60), LB_IO, "crash");
}

static void a_worker_that_recovers_is_used(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", false);  // no background job tries it in between
  unlink(testdir_at(&f->dir, "kernel"));
  fails(settle(f, 60), LB_IO, "kernel");
  symlink(FAKE_WORKER, testdir_at(&f->dir, "kernel"));
  ok(settle(f, 60));
  assert_int_equal(atomic_load(&f->warnings), 1);
}

static void background_compiling_retries_by_itself(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  unlink(testdir_at(&f->dir, "kernel"));
  add_sample(f, 0, 1);
  add_sample(f, 0, 2);
  int64_t end = lb_clock_ns() + LONG_NS;
  while (!atomic_load(&f->warnings) && lb_clock_ns() < end) nap(1);
  symlink(FAKE_WORKER, testdir_at(&f->dir, "kernel"));
  wait_until_compiled(f, 0);
}

// -- trials -------------------------------------------------------------------

// Ends the trial of slot i by runs without a difference in speed.
static void decide(fixture *f, int i) {
  lb_trial_time t = {.work = 1, .cost = 1, .ns = 1000};
  bool decided = false;
  for (; !decided; t.baseline = !t.baseline) {
    t.run++;
    decided = lb_trial_add(lb_slot_trial(f->slot[i]), &t);
  }
  lb_service_trial_decided(f->service);
}

static void a_trial_ends_while_another_kernel_is_compiled(void **state) {
  fixture *f = *state;
  open_service(f, "once", true);
  lb_pool_enter(f->pool);
  add_sample(f, 0, 1);
  add_sample(f, 0, 2);
  wait_until_compiled(f, 0);
  add_sample(f, 1, 3);
  add_sample(f, 1, 4);
  while (lb_service_count(f->service).queued) nap(1);
  while (lb_slot_trial_state(f->slot[0]) != LB_TRIAL_OPEN) nap(1);
  decide(f, 0);
  while (lb_slot_trial_state(f->slot[0]) != LB_TRIAL_NONE) nap(1);
  assert_int_equal(lb_service_count(f->service).kernels.kept, 1);
  assert_int_equal(lb_service_count(f->service).failures, 0);  // not yet
  assert_false(is_compiled(f, 1));
  lb_pool_leave(f->pool);
}

// -- other processes ----------------------------------------------------------

static lb_store *open_store(fixture *f) {
  lb_store *s;
  ok(lb_store_new(&(lb_store_options){.directory = testdir_at(&f->dir, "store"),
                                      .log = &f->log},
                  &s));
  return s;
}

static lb_hash128 key_of(const lb_slot *slot) {
  const lb_slot_key *k = &slot->key;
  lb_request r;
  ok(lb_request_init(&r, &k->spec, &k->facts, "x86-64-v3"));
  return lb_kernel_store_key(&r, LB_GENERATOR_VERSION);
}

// The other process may be throttled for long.
static void a_high_payback_does_not_wait_for_another_process(void **state) {
  fixture *f = *state;
  lb_store *other = open_store(f);
  assert_int_equal(lb_store_lease(other, key_of(f->slot[0]), 1),
                   LB_LEASE_GRANTED);
  f->store = open_store(f);
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);
  int64_t start = lb_clock_ns();
  for (uint64_t run = 1; !is_compiled(f, 0); run++, nap(1)) {
    lb_slot_sample much = {.session = 1, .run = run, .ns = INT64_C(1000000000)};
    lb_service_add_sample(f->service, f->slot[0], &much);
  }
  assert_true(lb_clock_ns() - start < LONG_NS / 4);
  lb_pool_leave(f->pool);
  close_service(f);
  lb_store_free(f->store);
  lb_store_free(other);
}

// A store with the kernels of all slots, and slots without any.
static void fill_store(fixture *f) {
  f->store = open_store(f);
  open_service(f, "kernel", false);
  ok(settle(f, 60));
  close_service(f);
  drop_slots(f);
  renew_slots(f);
}

static uint64_t found(const fixture *f) {
  return lb_service_count(f->service).kernels.found;
}

#define SOON_NS INT64_C(100000000)  // no slice is granted before

static void kernels_on_disk_are_preloaded(void **state) {
  fixture *f = *state;
  fill_store(f);
  open_service(f, "kernel", true);
  for (int i = 0; i < SLOTS; i++) wait_until_compiled(f, i);
  assert_int_equal(found(f), SLOTS);
  close_service(f);
  lb_store_free(f->store);
}

// Preloading is throttled: it waits for a free processor, or runs in slices.
static void preloading_waits_while_requests_run(void **state) {
  fixture *f = *state;
  fill_store(f);
  lb_pool_enter(f->pool);
  int64_t start = lb_clock_ns();
  open_service(f, "kernel", true);
  nap(30);
  uint64_t early = found(f);
  assert_true(early == 0 || lb_clock_ns() - start > SOON_NS);
  lb_pool_leave(f->pool);
  for (int i = 0; i < SLOTS; i++) wait_until_compiled(f, i);
  close_service(f);
  lb_store_free(f->store);
}

// -- ends ---------------------------------------------------------------------

static void a_service_can_be_freed_while_it_compiles(void **state) {
  static const char *const names[] = {"hang", "slowly", "crash", "garbage"};
  fixture *f = *state;
  for (int i = 0; i < 12; i++) {
    open_service(f, names[i % 4], true);
    for (int k = 0; k < SLOTS; k++) add_sample(f, k, 1), add_sample(f, k, 2);
    nap(i);
    atomic_store(&f->warnings, 0);
    close_service(f);
    if (i % 4 == 0)  // it was cancelled rather than left to time out
      assert_int_equal(atomic_load(&f->warnings), 0);
    for (int k = 0; k < SLOTS; k++) {
      assert_false(lb_slot_is_queued(f->slot[k]));
      lb_slots_withdraw(&f->slots, f->slot[k]);
    }
  }
}

#ifndef UNDER_TSAN  // TSan does not follow threads that a forked child starts
static int in_child(fixture *f) {
  add_sample(f, 1, 5);
  add_sample(f, 1, 6);
  lb_status st = settle(f, 60);
  bool good = !lb_failed(st) && is_compiled(f, 1) && is_compiled(f, SLOTS - 1);
  lb_status_drop(st);
  lb_service_free(f->service);
  return good && waitpid(-1, NULL, WNOHANG) == -1 ? 0 : 1;
}

static void a_forked_child_compiles_its_own(void **state) {
  fixture *f = *state;
  int status;
  open_service(f, "slowly", true);
  for (int k = 0; k < SLOTS; k++) add_sample(f, k, 1), add_sample(f, k, 2);
  for (int i = 0; i < 4; i++) {
    nap(7 * i);
    pid_t pid = fork();
    if (pid == 0) _exit(in_child(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
  }
  ok(settle(f, 60));
}

// Whatever the parent's thread was about to load.
static void a_forked_child_preloads_again(void **state) {
#ifdef UNDER_ASAN  // malloc may be locked by a thread of the parent
  skip();
#endif
  fixture *f = *state;
  int status;
  fill_store(f);
  for (int i = 0; i < 20; i++) {
    open_service(f, "kernel", true);
    usleep((useconds_t)i * 100);
    pid_t pid = fork();
    if (pid == 0) _exit(in_child(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close_service(f);
    drop_slots(f);
    renew_slots(f);
  }
  lb_store_free(f->store);
}

#endif

// -- many threads -------------------------------------------------------------

typedef struct storm {
  fixture *f;
  unsigned seed;
  bool *stop;
} storm;

static void *sample_at_random(void *user) {
  const storm *s = user;
  fixture *f = s->f;
  for (unsigned i = 0, x = s->seed; i < 3000; i++) {
    x = x * 1103515245 + 12345;
    lb_pool_enter(f->pool);
    int k = (int)(x >> 16) % SLOTS;
    atomic_store(&f->slot[k]->wanted, true);
    if (lb_slot_is_pending(f->slot[k])) add_sample(f, k, x);
    lb_pool_leave(f->pool);
    if (i % 64 == 0) lb_service_leave(f->service, 1);
    if (i % 500 == 0) lb_lru_set_capacity(&f->lru, x >> 8);
    if (i % 700 == 0) lb_status_drop(settle(f, 0.001));
    if (i % 300 == 0) (void)lb_service_count(f->service);
  }
  return NULL;
}

static void random_concurrent_calls_leave_the_service_working(void **state) {
  fixture *f = *state;
  pthread_t threads[8];
  storm all[8];
  open_service(f, "kernel", true);
  for (unsigned i = 0; i < 8; i++) {
    all[i] = (storm){.f = f, .seed = i};
    assert_int_equal(lb_thread_start(sample_at_random, &all[i], &threads[i]),
                     0);
  }
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  lb_lru_set_capacity(&f->lru, 1 << 20);
  for (int i = 0; i < SLOTS; i++) atomic_store(&f->slot[i]->wanted, true);
  ok(settle(f, 60));
  for (int i = 0; i < SLOTS; i++) assert_true(is_compiled(f, i));
  assert_int_equal(lb_detour_us(), 0);
}

static void waiting_inside_a_run_is_counted(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  uint64_t before = lb_detour_us();
  ok(settle(f, 60));
  assert_int_equal(lb_detour_us(), before);
  lb_caller_enter();
  ok(settle(f, 60));
  lb_caller_leave();
  assert_true(lb_detour_us() > before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_slot_is_compiled_at_its_second_use),
      TEST(unused_slots_are_compiled_once_requests_are_idle),
      TEST(slots_wanted_later_are_compiled_too),
      TEST(slots_wanted_by_loading_are_compiled_without_a_run),
      TEST(notify_starts_nothing_without_a_background_user),
      TEST(slots_others_want_ahead_outlive_a_session),
      TEST(slots_not_wanted_ahead_wait_for_settle),
      TEST(a_slot_used_once_is_compiled_when_requests_are_idle),
      TEST(the_worker_is_started_before_the_first_request),
      TEST(no_worker_starts_while_requests_run_or_without_need),
      TEST(the_first_start_waits_while_requests_run),
      TEST(nothing_is_compiled_in_the_background_if_off),
      TEST(the_lowest_compile_threshold_decides),
      TEST(a_stopped_service_starts_again),
      TEST(settling_works_while_the_service_is_stopped),
      TEST(slots_queued_by_a_session_are_dropped_with_it),
      TEST(evicted_kernels_are_compiled_again),
      TEST(settling_compiles_all_pending_slots),
      TEST(settling_is_not_throttled_by_requests),
      TEST(settling_ends_when_the_time_is_over),
      TEST(a_cache_too_small_for_all_does_not_block_settle),
      TEST(settling_survives_sessions_that_leave),
      TEST(space_freed_before_settling_is_used),
      TEST(a_failed_key_is_not_queued_again),
      TEST(each_kind_of_failure_logs_one_warning),
      TEST(kernels_for_future_shapes_may_be_missing),
      TEST(a_worker_that_recovers_is_used),
      TEST(background_compiling_retries_by_itself),
      TEST(a_trial_ends_while_another_kernel_is_compiled),
      TEST(a_high_payback_does_not_wait_for_another_process),
      TEST(kernels_on_disk_are_preloaded),
      TEST(preloading_waits_while_requests_run),
      TEST(a_service_can_be_freed_while_it_compiles),
#ifndef UNDER_TSAN
      TEST(a_forked_child_compiles_its_own),
      TEST(a_forked_child_preloads_again),
#endif
      TEST(random_concurrent_calls_leave_the_service_working),
      TEST(waiting_inside_a_run_is_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
