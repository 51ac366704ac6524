// compile/service_test.c -- kernels that come by themselves, whatever happens.
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
#define LONG_NS INT64_C(200000000000)  // when it is not to be reached

typedef struct fixture {
  testdir dir;
  lb_lru lru;
  lb_cpu_device cpu;
  lb_slots slots;
  lb_pool *pool;
  lb_hub hub;
  lb_seat *seat;
  lb_store *store;  // NULL: nothing is kept
  lb_service *service;
  unsigned session;  // of those that compile in the background; 0: none
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

// As in a process that begins.
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

// With the fake worker that behaves like `name`, and a session that compiles in
// the background or one that does not.
static void open_service(fixture *f, const char *name, bool background) {
  lb_service_options o = {.maker = {.worker = testdir_at(&f->dir, name),
                                    .slots = &f->slots,
                                    .store = f->store,
                                    .log = &f->log,
                                    .hub = &f->hub,
                                    .target = {.level = LB_LEVEL_V3}},
                          .judges = true};
  assert_true(symlink(FAKE_WORKER, o.maker.worker) == 0 || errno == EEXIST);
  ok(lb_service_new(&o, &f->service));
  f->session = lb_service_join(f->service);
  if (background) lb_service_hold(f->service);
}

static void tell(fixture *f, int i, uint64_t run) {
  lb_slot_sample seen = {.session = 1, .run = run, .ns = 1000};
  lb_service_add_sample(f->service, f->slot[i], &seen);
}

static void nap(int ms) { usleep((useconds_t)ms * 1000); }

static bool is_made(const fixture *f, int i) {
  return lb_slot_tier(f->slot[i]) > LB_TIER_PACK;
}

static void wait_until_made(const fixture *f, int i) {
  int64_t end = lb_clock_ns() + LONG_NS;
  while (!is_made(f, i) && lb_clock_ns() < end) nap(1);
  assert_true(is_made(f, i));
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

// As a plan does that could use slot i at other rows.
static void want(fixture *f, int i) {
  lb_slots_want_variants(&f->slots, EAGER, f->slot[i], NULL, 0);
}

static void what_no_run_has_met_is_made_once_requests_rest(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  want(f, 1);
  lb_pool_enter(f->pool);
  tell(f, 0, 1);
  tell(f, 0, 2);
  wait_until_made(f, 0);
  nap(250);
  assert_false(is_made(f, 1));
  lb_pool_leave(f->pool);
  wait_until_made(f, 1);
  assert_false(is_made(f, 2));  // no plan has a use for it
}

// As one that a rehearsal has put into the table, where it was passed over.
static void what_is_wanted_late_is_made_as_well(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  tell(f, 0, 1);
  tell(f, 0, 2);
  wait_until_made(f, 0);
  want(f, 1);
  tell(f, 2, 3);
  tell(f, 2, 4);
  wait_until_made(f, 2);
  wait_until_made(f, 1);
}

static void what_loading_wants_is_made_without_a_run(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  nap(20);  // it has looked, and sleeps
  want(f, 1);
  lb_slots_expect(&f->slots, EAGER, f->slot[2]);
  lb_service_look(f->service);
  wait_until_made(f, 1);
  wait_until_made(f, 2);
  assert_false(is_made(f, 0));
}

// Nobody compiles in the background: a model that is loaded starts nothing.
static void looking_starts_nothing_unless_somebody_holds(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", false);
  want(f, 1);
  lb_service_look(f->service);
  nap(150);
  assert_false(is_made(f, 1));
  assert_int_equal(lb_service_count(f->service).waiting, 0);
}

static void what_others_want_ahead_outlives_a_session(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  unsigned other = lb_service_join(f->service);
  lb_pool_enter(f->pool);  // requests do not rest
  want(f, 1);
  assert_true(lb_service_count(f->service).waiting >= 1);
  lb_service_leave(f->service, other);
  lb_pool_leave(f->pool);
  lb_service_look(f->service);
  wait_until_made(f, 1);
}

// Whoever compiles puts what it will compile into its queue: it is asked for.
static bool is_asked(const fixture *f, int i) {
  return lb_slot_is_queued(f->slot[i]);
}

// The slots are not of critical specs.
static void what_sessions_do_not_want_ahead_waits_for_settle(void **state) {
  fixture *f = *state;
  lb_slots_want_variants(&f->slots, (lb_slot_user){.ahead = LB_AHEAD_NONE},
                         f->slot[0], &f->slot[1], 1);
  lb_slots_want_variants(&f->slots, (lb_slot_user){.ahead = LB_AHEAD_CRITICAL},
                         f->slot[2], &f->slot[3], 1);
  want(f, 4);
  open_service(f, "kernel", true);
  tell(f, 4, 1);
  wait_until_made(f, 4);
  for (int i = 0; i < 4; i++) assert_false(is_asked(f, i) || is_made(f, i));
  want(f, 0);  // a session that is more eager
  tell(f, 5, 1);
  wait_until_made(f, 0);
  for (int i = 1; i < 4; i++) assert_false(is_asked(f, i) || is_made(f, i));
  ok(settle(f, 60));
  for (int i = 0; i < 4; i++) assert_true(is_made(f, i));
}

static void a_slot_is_made_at_its_second_sighting(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);  // requests do not rest
  tell(f, 0, 1);
  tell(f, 0, 1);  // the same run: no second one
  tell(f, 1, 1);
  nap(250);
  assert_false(is_made(f, 0));
  tell(f, 0, 2);
  wait_until_made(f, 0);
  assert_false(is_made(f, 1));
  lb_cpu_function(lb_slot_kernel(f->slot[0]))(NULL);  // it can be called
  lb_pool_leave(f->pool);
}

static void a_slot_seen_once_is_made_when_requests_rest(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  tell(f, 0, 1);
  wait_until_made(f, 0);
  assert_false(is_made(f, 1));
}

static bool has_worker(void) { return waitpid(-1, NULL, WNOHANG) == 0; }

static void the_worker_is_there_before_the_first_request(void **state) {
  fixture *f = *state;
  int64_t end = lb_clock_ns() + LONG_NS;
  lb_pool_enter(f->pool);  // as a model does that is loaded
  open_service(f, "kernel", true);
  assert_false(has_worker());
  lb_pool_leave(f->pool);
  while (!has_worker() && lb_clock_ns() < end) nap(1);
  assert_true(has_worker());
}

static void no_worker_is_started_where_requests_run_or_none_is_wanted(
    void **state) {
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

// It waits for them to rest, but not for ever.
static void the_first_start_waits_while_requests_run(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);
  int64_t begin = lb_clock_ns();
  tell(f, 0, 1);
  tell(f, 0, 2);
  nap(200);
  bool is_there = has_worker();
  bool late = lb_clock_ns() - begin > 400000000;  // this thread was
  assert_true(!is_there || late);
  wait_until_made(f, 0);
  lb_pool_leave(f->pool);
}

static void nothing_is_made_in_the_background_if_that_is_off(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", false);
  tell(f, 0, 1);
  tell(f, 0, 2);
  nap(250);
  assert_false(is_made(f, 0));
  ok(settle(f, 60));
  for (int i = 0; i < SLOTS; i++) assert_true(is_made(f, i));
}

// The session that asks for the fewest sightings decides, whoever came first.
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
  wait_until_made(f, 1);
  assert_false(is_made(f, 0));
  lb_service_add_sample(f->service, f->slot[0], &one);
  wait_until_made(f, 0);
  lb_pool_leave(f->pool);
}

// Thread and process are gone, and come again with whoever needs them.
static void a_service_rests_and_goes_on(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  for (int i = 0; i < SLOTS; i++) {
    tell(f, i, 1);
    tell(f, i, 2);
    nap(i % 3);
    lb_service_rest(f->service);  // not while it is held
    lb_service_let_go(f->service);
    lb_service_rest(f->service);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    lb_service_hold(f->service);
  }
  ok(settle(f, 60));
  for (int i = 0; i < SLOTS; i++) assert_true(is_made(f, i));
}

typedef struct rester {
  fixture *f;
  atomic_bool stop;
} rester;

static void *rest_often(void *user) {
  rester *r = user;
  while (!atomic_load(&r->stop)) lb_service_rest(r->f->service);
  return NULL;
}

// Though the thread is ended under them again and again.
static void who_settles_while_it_rests_is_served(void **state) {
  fixture *f = *state;
  rester r = {.f = f};
  pthread_t thread;
  open_service(f, "kernel", false);
  assert_int_equal(pthread_create(&thread, NULL, rest_often, &r), 0);
  for (int i = 0; i < 5; i++) {
    ok(settle(f, 60));
    for (int k = 0; k < SLOTS; k++) {
      assert_true(is_made(f, k));
      lb_slots_withdraw(&f->slots, f->slot[k]);
    }
  }
  atomic_store(&r.stop, true);
  pthread_join(thread, NULL);
}

static void what_a_session_asked_for_goes_with_it(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);
  assert_int_equal(f->session, 1);  // as tell has it
  tell(f, 0, 1);
  assert_int_equal(lb_service_count(f->service).waiting, 1);
  lb_service_leave(f->service, f->session);
  assert_int_equal(lb_service_count(f->service).waiting, 0);
  tell(f, 0, 2);  // whoever needs it asks again
  wait_until_made(f, 0);
  lb_pool_leave(f->pool);
}

static void what_was_evicted_is_made_again(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  tell(f, 0, 1);
  tell(f, 0, 2);
  wait_until_made(f, 0);
  unsigned reviews = atomic_load(&f->slots.reviews);
  lb_lru_set_capacity(&f->lru, 0);
  assert_false(is_made(f, 0));
  assert_true(atomic_load(&f->slots.reviews) > reviews);
  ok(settle(f, 60));  // nothing would be kept: nothing to wait for
  lb_lru_set_capacity(&f->lru, 1 << 20);
  atomic_store(&f->slot[0]->wanted, true);  // as a run does that meets it
  for (uint64_t run = 3; run < 9; run++) tell(f, 0, run);
  wait_until_made(f, 0);
}

// -- settling -----------------------------------------------------------------

static void settling_makes_all_that_lacks(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  ok(settle(f, 60));
  for (int i = 0; i < SLOTS; i++) assert_true(is_made(f, i));
  assert_int_equal(lb_service_count(f->service).made.compiled, SLOTS);
  ok(settle(f, 0));
  lb_compile_record built;
  assert_true(lb_service_compile_record(f->service, SLOTS - 1, &built));
  assert_null(built.refused);
  assert_false(lb_service_compile_record(f->service, SLOTS, &built));
}

static atomic_int stops;

static void count_stop(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  if (info->si_code == CLD_STOPPED) atomic_fetch_add(&stops, 1);
}

static void settling_is_not_held_back_by_requests(void **state) {
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

static void settling_ends_when_time_is_over(void **state) {
  fixture *f = *state;
  open_service(f, "hang", true);
  fails(settle(f, 0.05), LB_CANCELLED, "not settled in the time given");
  fails(settle(f, 0), LB_CANCELLED, "24 kernels");
  assert_int_equal(atomic_load(&f->warnings), 0);
}

static void a_cache_too_small_for_all_does_not_keep_settle(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  lb_lru_set_capacity(&f->lru, 2000);
  ok(settle(f, 60));
  assert_int_equal(lb_service_count(f->service).made.compiled, SLOTS);
}

typedef struct leaver {
  fixture *f;
  atomic_int turn;
} leaver;

enum { LEAVES = 300 };

// Once for each turn.
static void *leave_often(void *user) {
  leaver *l = user;
  for (int i = 1; i <= LEAVES; i++) {
    while (atomic_load(&l->turn) < i) sched_yield();
    lb_service_leave(l->f->service, 1);
  }
  return NULL;
}

// A session that leaves takes what it asked for with it; who waits for the same
// at that moment asks again.
static void who_settles_is_not_left_by_sessions_that_leave(void **state) {
  fixture *f = *state;
  pthread_t thread;
  leaver l = {.f = f};
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);
  ok(settle(f, 100));
  assert_int_equal(lb_thread_start(leave_often, &l, &thread), 0);
  for (int i = 1; i <= LEAVES; i++) {
    lb_slots_withdraw(&f->slots, f->slot[0]);
    tell(f, 0, (uint64_t)i);
    atomic_store(&l.turn, i);
    ok(settle(f, 100));
  }
  pthread_join(thread, NULL);
  lb_pool_leave(f->pool);
}

// The job that found no room for its kernel may still be under way.
static void module_that_was_made_before_settling_is_used(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  for (int i = 1; i < SLOTS; i++) atomic_store(&f->slot[i]->wanted, false);
  for (uint64_t run = 1; run < 100; run += 2) {
    lb_slots_withdraw(&f->slots, f->slot[0]);
    lb_lru_set_capacity(&f->lru, 100);
    tell(f, 0, run);
    tell(f, 0, run + 1);
    while (!atomic_load(&lb_slot_profile_of(f->slot[0])->large)) sched_yield();
    lb_lru_set_capacity(&f->lru, 1 << 20);
    ok(settle(f, 100));
    assert_true(is_made(f, 0));
  }
}

static void a_refused_key_is_not_asked_for_again(void **state) {
  fixture *f = *state;
  open_service(f, "refuse", true);
  ok(settle(f, 60));
  lb_compile_record built;
  assert_int_equal(lb_service_count(f->service).made.refused, SLOTS);
  assert_true(lb_service_compile_record(f->service, 0, &built));
  assert_non_null(strstr(built.refused, "not?this"));
  ok(settle(f, 0));
}

// -- workers that fail --------------------------------------------------------

static void each_way_to_fail_is_one_warning(void **state) {
  static const char *const names[] = {"crash", "garbage", "early", "huge",
                                      "half"};
  fixture *f = *state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    atomic_store(&f->warnings, 0);
    open_service(f, names[i], true);
    fails(settle(f, 60), LB_IO, names[i]);
    for (int k = 0; k < SLOTS; k++)
      for (uint64_t run = 1; run < 4; run++) tell(f, k, run);
    nap(20);
    fails(settle(f, 60), LB_IO, names[i]);
    assert_int_equal(atomic_load(&f->warnings), 1);
    close_service(f);
    for (int k = 0; k < SLOTS; k++) {
      assert_false(is_made(f, k));
      lb_slot_profile_of(f->slot[k])->failures = 0;
    }
  }
}

static void kernels_for_shapes_to_come_may_lack(void **state) {
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

static void a_worker_that_works_at_last_is_used(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", false);  // nobody else tries it in between
  unlink(testdir_at(&f->dir, "kernel"));
  fails(settle(f, 60), LB_IO, "kernel");
  symlink(FAKE_WORKER, testdir_at(&f->dir, "kernel"));
  ok(settle(f, 60));
  assert_int_equal(atomic_load(&f->warnings), 1);
}

static void the_background_tries_again_by_itself(void **state) {
  fixture *f = *state;
  open_service(f, "kernel", true);
  unlink(testdir_at(&f->dir, "kernel"));
  tell(f, 0, 1);
  tell(f, 0, 2);
  int64_t end = lb_clock_ns() + LONG_NS;
  while (!atomic_load(&f->warnings) && lb_clock_ns() < end) nap(1);
  symlink(FAKE_WORKER, testdir_at(&f->dir, "kernel"));
  wait_until_made(f, 0);
}

// -- trials -------------------------------------------------------------------

// Runs in which it was even decide the trial of slot i.
static void decide(fixture *f, int i) {
  lb_trial_time t = {.work = 1, .cost = 1, .ns = 1000};
  bool decided = false;
  for (; !decided; t.former = !t.former) {
    t.run++;
    decided = lb_trial_add(lb_slot_trial(f->slot[i]), &t);
  }
  lb_service_decided(f->service);
}

static void a_trial_is_judged_while_another_kernel_is_made(void **state) {
  fixture *f = *state;
  open_service(f, "once", true);
  lb_pool_enter(f->pool);
  tell(f, 0, 1);
  tell(f, 0, 2);
  wait_until_made(f, 0);
  tell(f, 1, 3);
  tell(f, 1, 4);
  while (lb_service_count(f->service).waiting) nap(1);
  while (lb_slot_trial_state(f->slot[0]) != LB_TRIAL_OPEN) nap(1);
  decide(f, 0);
  while (lb_slot_trial_state(f->slot[0]) != LB_TRIAL_NONE) nap(1);
  assert_int_equal(lb_service_count(f->service).made.kept, 1);
  assert_int_equal(lb_service_count(f->service).failures, 0);  // not yet
  assert_false(is_made(f, 1));
  lb_pool_leave(f->pool);
}

// -- other processes ----------------------------------------------------------

static lb_store *open_store(fixture *f) {
  lb_store *s;
  ok(lb_store_new(&(lb_store_options){.folder = testdir_at(&f->dir, "store"),
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

// There it may be held back for long.
static void what_pays_soon_does_not_wait_for_another_process(void **state) {
  fixture *f = *state;
  lb_store *other = open_store(f);
  assert_int_equal(lb_store_lease(other, key_of(f->slot[0]), 1),
                   LB_LEASE_GRANTED);
  f->store = open_store(f);
  open_service(f, "kernel", true);
  lb_pool_enter(f->pool);
  int64_t start = lb_clock_ns();
  for (uint64_t run = 1; !is_made(f, 0); run++, nap(1)) {
    lb_slot_sample much = {.session = 1, .run = run, .ns = INT64_C(1000000000)};
    lb_service_add_sample(f->service, f->slot[0], &much);
  }
  assert_true(lb_clock_ns() - start < LONG_NS / 4);
  lb_pool_leave(f->pool);
  close_service(f);
  lb_store_free(f->store);
  lb_store_free(other);
}

// A store with kernels of all slots, and slots that have none of them.
static void fill_store(fixture *f) {
  f->store = open_store(f);
  open_service(f, "kernel", false);
  ok(settle(f, 60));
  close_service(f);
  drop_slots(f);
  renew_slots(f);
}

static uint64_t found(const fixture *f) {
  return lb_service_count(f->service).made.found;
}

#define SOON_NS INT64_C(100000000)  // a request has no slice to share before

static void what_is_on_disk_is_loaded_before_it_is_asked_for(void **state) {
  fixture *f = *state;
  fill_store(f);
  open_service(f, "kernel", true);
  for (int i = 0; i < SLOTS; i++) wait_until_made(f, i);
  assert_int_equal(found(f), SLOTS);
  close_service(f);
  lb_store_free(f->store);
}

// Nor do requests feel it: it comes when they leave a processor, or in slices.
static void what_is_on_disk_waits_while_requests_run(void **state) {
  fixture *f = *state;
  fill_store(f);
  lb_pool_enter(f->pool);
  int64_t start = lb_clock_ns();
  open_service(f, "kernel", true);
  nap(30);
  uint64_t early = found(f);
  assert_true(early == 0 || lb_clock_ns() - start > SOON_NS);
  lb_pool_leave(f->pool);
  for (int i = 0; i < SLOTS; i++) wait_until_made(f, i);
  close_service(f);
  lb_store_free(f->store);
}

// -- ends ---------------------------------------------------------------------

static void a_service_can_be_freed_while_it_makes(void **state) {
  static const char *const names[] = {"hang", "slowly", "crash", "garbage"};
  fixture *f = *state;
  for (int i = 0; i < 12; i++) {
    open_service(f, names[i % 4], true);
    for (int k = 0; k < SLOTS; k++) tell(f, k, 1), tell(f, k, 2);
    nap(i);
    atomic_store(&f->warnings, 0);
    close_service(f);
    if (i % 4 == 0)  // it was not waited for until it had not answered in time
      assert_int_equal(atomic_load(&f->warnings), 0);
    for (int k = 0; k < SLOTS; k++) {
      assert_false(lb_slot_is_queued(f->slot[k]));
      lb_slots_withdraw(&f->slots, f->slot[k]);
    }
  }
}

#ifndef UNDER_TSAN  // it does not follow threads that a forked child starts
static int in_child(fixture *f) {
  tell(f, 1, 5);
  tell(f, 1, 6);
  lb_status st = settle(f, 60);
  bool good = !lb_failed(st) && is_made(f, 1) && is_made(f, SLOTS - 1);
  lb_status_drop(st);
  lb_service_free(f->service);
  return good && waitpid(-1, NULL, WNOHANG) == -1 ? 0 : 1;
}

static void a_forked_child_makes_its_own(void **state) {
  fixture *f = *state;
  int status;
  open_service(f, "slowly", true);
  for (int k = 0; k < SLOTS; k++) tell(f, k, 1), tell(f, k, 2);
  for (int i = 0; i < 4; i++) {
    nap(7 * i);
    pid_t pid = fork();
    if (pid == 0) _exit(in_child(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
  }
  ok(settle(f, 60));
}

// Whatever the thread was about to load there.
static void a_forked_child_loads_anew(void **state) {
#ifdef UNDER_ASAN  // a child may find its malloc locked by a thread it lacks
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

static void *tell_at_random(void *user) {
  const storm *s = user;
  fixture *f = s->f;
  for (unsigned i = 0, x = s->seed; i < 3000; i++) {
    x = x * 1103515245 + 12345;
    lb_pool_enter(f->pool);
    int k = (int)(x >> 16) % SLOTS;
    atomic_store(&f->slot[k]->wanted, true);
    if (lb_slot_is_pending(f->slot[k])) tell(f, k, x);
    lb_pool_leave(f->pool);
    if (i % 64 == 0) lb_service_leave(f->service, 1);
    if (i % 500 == 0) lb_lru_set_capacity(&f->lru, x >> 8);
    if (i % 700 == 0) lb_status_drop(settle(f, 0.001));
    if (i % 300 == 0) (void)lb_service_count(f->service);
  }
  return NULL;
}

static void a_storm_leaves_it_well(void **state) {
  fixture *f = *state;
  pthread_t threads[8];
  storm all[8];
  open_service(f, "kernel", true);
  for (unsigned i = 0; i < 8; i++) {
    all[i] = (storm){.f = f, .seed = i};
    assert_int_equal(lb_thread_start(tell_at_random, &all[i], &threads[i]), 0);
  }
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  lb_lru_set_capacity(&f->lru, 1 << 20);
  for (int i = 0; i < SLOTS; i++) atomic_store(&f->slot[i]->wanted, true);
  ok(settle(f, 60));
  for (int i = 0; i < SLOTS; i++) assert_true(is_made(f, i));
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
      TEST(a_slot_is_made_at_its_second_sighting),
      TEST(what_no_run_has_met_is_made_once_requests_rest),
      TEST(what_is_wanted_late_is_made_as_well),
      TEST(what_loading_wants_is_made_without_a_run),
      TEST(looking_starts_nothing_unless_somebody_holds),
      TEST(what_others_want_ahead_outlives_a_session),
      TEST(what_sessions_do_not_want_ahead_waits_for_settle),
      TEST(a_slot_seen_once_is_made_when_requests_rest),
      TEST(the_worker_is_there_before_the_first_request),
      TEST(no_worker_is_started_where_requests_run_or_none_is_wanted),
      TEST(the_first_start_waits_while_requests_run),
      TEST(nothing_is_made_in_the_background_if_that_is_off),
      TEST(the_lowest_compile_threshold_decides),
      TEST(a_service_rests_and_goes_on),
      TEST(who_settles_while_it_rests_is_served),
      TEST(what_a_session_asked_for_goes_with_it),
      TEST(what_was_evicted_is_made_again),
      TEST(settling_makes_all_that_lacks),
      TEST(settling_is_not_held_back_by_requests),
      TEST(settling_ends_when_time_is_over),
      TEST(a_cache_too_small_for_all_does_not_keep_settle),
      TEST(who_settles_is_not_left_by_sessions_that_leave),
      TEST(module_that_was_made_before_settling_is_used),
      TEST(a_refused_key_is_not_asked_for_again),
      TEST(each_way_to_fail_is_one_warning),
      TEST(kernels_for_shapes_to_come_may_lack),
      TEST(a_worker_that_works_at_last_is_used),
      TEST(the_background_tries_again_by_itself),
      TEST(a_trial_is_judged_while_another_kernel_is_made),
      TEST(what_pays_soon_does_not_wait_for_another_process),
      TEST(what_is_on_disk_is_loaded_before_it_is_asked_for),
      TEST(what_is_on_disk_waits_while_requests_run),
      TEST(a_service_can_be_freed_while_it_makes),
#ifndef UNDER_TSAN
      TEST(a_forked_child_makes_its_own),
      TEST(a_forked_child_loads_anew),
#endif
      TEST(a_storm_leaves_it_well),
      TEST(waiting_inside_a_run_is_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
