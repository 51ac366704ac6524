// cache/trial_test.c -- times of runs, as a clock that is made up tells them.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/thread.h"
#include "cache/trial.h"

static lb_trial *new_trial(void) {
  lb_trial *t = calloc(1, sizeof *t);
  assert_non_null(t);
  lb_trial_prepare(t);
  lb_trial_open(t);
  return t;
}

// A step of that size; `factor` is what the later code takes over the former.
static bool tell(lb_trial *t, uint64_t run, bool former, int64_t size,
                 double factor) {
  double ns = 10 * (double)size * (former ? 1 : factor);
  return lb_trial_add(t, &(lb_trial_time){.work = (uint64_t)size,
                                          .cost = (double)size,
                                          .run = run,
                                          .former = former,
                                          .ns = (int64_t)ns});
}

// One run of several equal steps.
static bool run_steps(lb_trial *t, uint64_t run, int steps, double factor) {
  bool decided = false;
  for (int i = 0; i < steps; i++)
    decided |= tell(t, run, run & 1, 1000, factor * (i + 1));
  return decided;
}

static void what_is_slower_loses(void **state) {
  (void)state;
  for (int steps = 1; steps < 7; steps += 5) {
    lb_trial *t = new_trial();
    uint64_t run = 1;
    while (!run_steps(t, run, steps, 1.5)) assert_true(run++ < LB_TRIAL_RUNS);
    assert_int_equal(lb_trial_at(t), LB_TRIAL_LOST);
    assert_true(run < 30);
    lb_paired_test found = lb_trial_found(t);
    assert_int_equal(lb_paired_test_outcome(&found), LB_OUTCOME_SLOWER);
    free(t);
  }
}

static void what_is_faster_stays(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  uint64_t run = 1;
  while (!run_steps(t, run, 1, 0.7)) assert_true(run++ < LB_TRIAL_RUNS);
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  assert_false(run_steps(t, run + 1, 1, 3));  // it is decided once
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  free(t);
}

// Large shapes by the one, small ones by the other: nothing is to be seen by
// time alone.
static void times_are_held_against_those_of_equal_work(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  bool decided = false;
  for (uint64_t run = 0; run < LB_TRIAL_RUNS && !decided; run++) {
    int64_t size = run % 2 ? 2000 : 100000;
    decided = tell(t, run + 1, (run / 2 + run) % 2, size, 0.8);
  }
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  lb_paired_test found = lb_trial_found(t);
  assert_int_equal(lb_paired_test_outcome(&found), LB_OUTCOME_FASTER);
  free(t);
}

static void shapes_that_never_come_again_are_compared_by_cost(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  uint64_t run = 1;
  while (!tell(t, run, run & 1, 1000 + 7 * (int64_t)run, 1.5))
    assert_true(run++ < LB_TRIAL_RUNS);
  assert_int_equal(lb_trial_at(t), LB_TRIAL_LOST);
  free(t);
}

static void kernels_of_nanoseconds_are_not_judged_by_them(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  uint64_t run = 1;
  while (!tell(t, run, run & 1, 30, 1.6)) assert_true(run++ < LB_TRIAL_RUNS);
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  free(t);
}

static void a_trial_ends_even_if_one_side_never_runs(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  uint64_t run = 1;
  while (!tell(t, run, false, 1000, 9)) assert_true(run++ < 2 * LB_TRIAL_RUNS);
  assert_int_equal(run, LB_TRIAL_RUNS);
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  free(t);
}

static void a_trial_that_was_ended_hears_nothing(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  for (uint64_t run = 1; run < 8; run++) run_steps(t, run, 1, 5);
  lb_trial_end(t);
  for (uint64_t run = 8; run < 400; run++)
    assert_false(run_steps(t, run, 1, 5));
  lb_trial_prepare(t);  // and begins with nothing
  lb_trial_open(t);
  assert_int_equal(lb_trial_found(t).n, 0);
  assert_false(run_steps(t, 1, 1, 5));
  free(t);
}

static void a_thread_that_fork_left_inside_does_not_block(void **state) {
  (void)state;
  lb_lock lock;  // forks are counted for those who have one
  assert_false(lb_failed(lb_lock_init(&lock)));
  lb_trial *t = new_trial();
  atomic_store(&t->busy, lb_fork_count() + 1);  // another thread is inside
  assert_false(tell(t, 1, false, 10, 1));
  assert_int_equal(t->runs, 0);
  pid_t pid = fork();
  if (pid == 0) {
    (void)tell(t, 1, false, 10, 1);
    _exit(t->runs == 1 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  lb_lock_fini(&lock);
  free(t);
}

// -- many threads
// ----------------------------------------------------------------

typedef struct crowd {
  lb_trial *t;
  atomic_uint runs, decided;
} crowd;

static void *tell_many(void *user) {
  crowd *c = user;
  for (int i = 0; i < 2000; i++) {
    uint64_t run = atomic_fetch_add(&c->runs, 1) + 1;
    if (run_steps(c->t, run, 3, 1.5)) atomic_fetch_add(&c->decided, 1);
  }
  return NULL;
}

static void one_thread_of_many_decides(void **state) {
  (void)state;
  crowd c = {.t = new_trial()};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(lb_thread_start(tell_many, &c, &threads[i]), 0);
  for (int i = 0; i < 50; i++) (void)lb_trial_found(c.t);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&c.decided), 1);
  assert_int_equal(lb_trial_at(c.t), LB_TRIAL_LOST);
  free(c.t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_slower_loses),
      cmocka_unit_test(what_is_faster_stays),
      cmocka_unit_test(times_are_held_against_those_of_equal_work),
      cmocka_unit_test(shapes_that_never_come_again_are_compared_by_cost),
      cmocka_unit_test(kernels_of_nanoseconds_are_not_judged_by_them),
      cmocka_unit_test(a_trial_ends_even_if_one_side_never_runs),
      cmocka_unit_test(a_trial_that_was_ended_hears_nothing),
      cmocka_unit_test(a_thread_that_fork_left_inside_does_not_block),
      cmocka_unit_test(one_thread_of_many_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
