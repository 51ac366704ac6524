// cache/trial_test.c -- trials with simulated times.
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

// Adds a step of that size; `factor` is the candidate's time over the
// baseline's.
static bool add_step(lb_trial *t, uint64_t run, bool baseline, int64_t size,
                     double factor) {
  double ns = 10 * (double)size * (baseline ? 1 : factor);
  return lb_trial_add(t, &(lb_trial_time){.work = (uint64_t)size,
                                          .cost = (double)size,
                                          .run = run,
                                          .baseline = baseline,
                                          .ns = (int64_t)ns});
}

// Adds one run of several equal steps.
static bool run_steps(lb_trial *t, uint64_t run, int steps, double factor) {
  bool decided = false;
  for (int i = 0; i < steps; i++)
    decided |= add_step(t, run, run & 1, 1000, factor * (i + 1));
  return decided;
}

static void a_slower_kernel_loses(void **state) {
  (void)state;
  for (int steps = 1; steps < 7; steps += 5) {
    lb_trial *t = new_trial();
    uint64_t run = 1;
    while (!run_steps(t, run, steps, 1.5)) assert_true(run++ < LB_TRIAL_RUNS);
    assert_int_equal(lb_trial_at(t), LB_TRIAL_LOST);
    assert_true(run < 30);
    lb_paired_test result = lb_trial_paired_test(t);
    assert_int_equal(lb_paired_test_outcome(&result), LB_OUTCOME_SLOWER);
    free(t);
  }
}

static void a_faster_kernel_is_kept(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  uint64_t run = 1;
  while (!run_steps(t, run, 1, 0.7)) assert_true(run++ < LB_TRIAL_RUNS);
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  assert_false(run_steps(t, run + 1, 1, 3));  // a trial is decided once
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  free(t);
}

// Large shapes run with one side and small ones with the other: times alone
// show no difference.
static void times_are_compared_at_equal_work(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  bool decided = false;
  for (uint64_t run = 0; run < LB_TRIAL_RUNS && !decided; run++) {
    int64_t size = run % 2 ? 2000 : 100000;
    decided = add_step(t, run + 1, (run / 2 + run) % 2, size, 0.8);
  }
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  lb_paired_test result = lb_trial_paired_test(t);
  assert_int_equal(lb_paired_test_outcome(&result), LB_OUTCOME_FASTER);
  free(t);
}

static void shapes_that_do_not_recur_are_compared_by_cost(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  uint64_t run = 1;
  while (!add_step(t, run, run & 1, 1000 + 7 * (int64_t)run, 1.5))
    assert_true(run++ < LB_TRIAL_RUNS);
  assert_int_equal(lb_trial_at(t), LB_TRIAL_LOST);
  free(t);
}

static void tiny_kernels_are_not_demoted(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  uint64_t run = 1;
  while (!add_step(t, run, run & 1, 30, 1.6))
    assert_true(run++ < LB_TRIAL_RUNS);
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  free(t);
}

static void a_trial_ends_even_if_the_baseline_never_runs(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  uint64_t run = 1;
  while (!add_step(t, run, false, 1000, 9))
    assert_true(run++ < 2 * LB_TRIAL_RUNS);
  assert_int_equal(run, LB_TRIAL_RUNS);
  assert_int_equal(lb_trial_at(t), LB_TRIAL_KEPT);
  free(t);
}

static void an_ended_trial_ignores_times(void **state) {
  (void)state;
  lb_trial *t = new_trial();
  for (uint64_t run = 1; run < 8; run++) run_steps(t, run, 1, 5);
  lb_trial_end(t);
  for (uint64_t run = 8; run < 400; run++)
    assert_false(run_steps(t, run, 1, 5));
  lb_trial_prepare(t);  // starts over
  lb_trial_open(t);
  assert_int_equal(lb_trial_paired_test(t).n, 0);
  assert_false(run_steps(t, 1, 1, 5));
  free(t);
}

static void a_thread_inside_at_a_fork_does_not_block_the_child(void **state) {
  (void)state;
  lb_lock lock;  // forks are counted while a lock exists
  assert_false(lb_failed(lb_lock_init(&lock)));
  lb_trial *t = new_trial();
  atomic_store(&t->busy,
               lb_fork_count() + 1);  // as if another thread were inside
  assert_false(add_step(t, 1, false, 10, 1));
  assert_int_equal(t->runs, 0);
  pid_t pid = fork();
  if (pid == 0) {
    (void)add_step(t, 1, false, 10, 1);
    _exit(t->runs == 1 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  lb_lock_fini(&lock);
  free(t);
}

// -- many threads ------------------------------------------------------------

typedef struct shared_trial {
  lb_trial *t;
  atomic_uint runs, decided;
} shared_trial;

static void *add_many_runs(void *user) {
  shared_trial *c = user;
  for (int i = 0; i < 2000; i++) {
    uint64_t run = atomic_fetch_add(&c->runs, 1) + 1;
    if (run_steps(c->t, run, 3, 1.5)) atomic_fetch_add(&c->decided, 1);
  }
  return NULL;
}

static void exactly_one_thread_decides(void **state) {
  (void)state;
  shared_trial c = {.t = new_trial()};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(lb_thread_start(add_many_runs, &c, &threads[i]), 0);
  for (int i = 0; i < 50; i++) (void)lb_trial_paired_test(c.t);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&c.decided), 1);
  assert_int_equal(lb_trial_at(c.t), LB_TRIAL_LOST);
  free(c.t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_slower_kernel_loses),
      cmocka_unit_test(a_faster_kernel_is_kept),
      cmocka_unit_test(times_are_compared_at_equal_work),
      cmocka_unit_test(shapes_that_do_not_recur_are_compared_by_cost),
      cmocka_unit_test(tiny_kernels_are_not_demoted),
      cmocka_unit_test(a_trial_ends_even_if_the_baseline_never_runs),
      cmocka_unit_test(an_ended_trial_ignores_times),
      cmocka_unit_test(a_thread_inside_at_a_fork_does_not_block_the_child),
      cmocka_unit_test(exactly_one_thread_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
