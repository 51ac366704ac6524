// store/store_test.c -- get and put, layers, leases, capacity, trust, forks.
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <sys/wait.h>

#include "base/testdir.h"
#include "store/fixture_test.h"
#include "store/directory.h"

static void stored_entries_are_found(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_false(has(s, 1));
  assert_ok(put(s, 1));
  assert_true(has(s, 1));
  assert_false(has(s, 2));
  lb_store_free(s);
  s = fixture_open(f);  // as a later process would
  assert_true(has(s, 1));
  lb_store_stats stats;
  lb_store_get_stats(s, &stats);
  assert_int_equal(stats.entries, 1);
  assert_int_equal(stats.hits, 1);
  assert_int_equal(stats.misses, 0);
  lb_store_free(s);
  assert_int_equal(f->warnings, 0);
}

static void an_equal_key_with_other_request_bytes_is_a_miss(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  sample a = sample_of(1);
  lb_store_entry e = sample_entry(&a);
  assert_ok(lb_store_put(s, &e));
  lb_store_hit found;
  a.request[3] ^= 1;
  assert_false(lb_store_get(s, e.key, e.request, &found));
  assert_null(found.object.data);
  a.request[3] ^= 1;
  lb_hash128 other = {.lo = e.key.lo + 1, .hi = e.key.hi};
  assert_false(lb_store_get(s, other, e.request, &found));
  assert_true(has(s, 1));
  lb_store_free(s);
}

static void a_dropped_entry_is_not_found(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_ok(put(s, 1));
  assert_ok(lb_store_drop(s, key_of(1)));
  assert_false(has(s, 1));
  lb_store_free(s);
}

static void the_least_recently_used_entries_are_evicted(void **state) {
  fixture *f = *state;
  f->options.capacity = 1 << 20;
  lb_store *s = fixture_open(f);
  for (unsigned i = 0; i < 20; i++) assert_ok(put(s, i));
  age_all(f, 1000);  // and then the first ten are used
  for (unsigned i = 0; i < 10; i++) assert_true(has(s, i));
  assert_ok(lb_store_flush(s));
  unsigned last = 20;
  lb_store_stats stats = {0};
  for (; !stats.evictions; last++) {
    assert_ok(put(s, last));
    lb_store_get_stats(s, &stats);
    assert_true(stats.bytes <= f->options.capacity);
  }
  for (unsigned i = 0; i < 10; i++) assert_true(has(s, i));
  assert_false(has(s, 10) && has(s, 19));
  assert_true(has(s, last - 1));
  lb_store_free(s);
}

static void totals_count_all_users_of_the_file(void **state) {
  fixture *f = *state;
  lb_store_stats all, own;
  lb_store *s = fixture_open(f), *other = fixture_open(f);
  for (unsigned i = 0; i < 5; i++) assert_ok(put(s, i));
  for (unsigned i = 0; i < 7; i++) assert_int_equal(has(other, i), i < 5);
  assert_ok(lb_store_totals(other, &all));
  assert_int_equal(all.hits + all.misses, 0);  // not written yet
  assert_ok(lb_store_flush(other));
  assert_ok(lb_store_totals(s, &all));
  assert_int_equal(all.hits, 5);
  assert_int_equal(all.misses, 2);
  assert_ok(lb_store_flush(other));  // adds nothing again
  lb_store_free(other);
  lb_store_free(s);
  s = fixture_open(f);
  assert_true(has(s, 0));
  assert_ok(lb_store_totals(s, &all));
  lb_store_get_stats(s, &own);
  assert_int_equal(own.hits, 1);
  assert_int_equal(all.hits, 5);
  assert_int_equal(all.misses, 2);
  assert_int_equal(all.insertions, 5);
  assert_true(all.get_ns > 0 && all.put_ns > 0);
  lb_store_free(s);
}

static void a_full_list_of_touches_is_written(void **state) {
  fixture *f = *state;
  lb_store_stats all;
  lb_store *s = fixture_open(f), *other = fixture_open(f);
  for (unsigned i = 0; i < LB_MAX_TOUCHES; i++) assert_ok(put(s, i));
  age_all(f, 1000);
  for (unsigned i = 0; i < LB_MAX_TOUCHES; i++) assert_true(has(other, i));
  assert_ok(lb_store_totals(s, &all));  // without a call of lb_store_flush
  assert_int_equal(all.hits, LB_MAX_TOUCHES);
  lb_store_free(other);
  lb_store_free(s);
}

static void an_entry_larger_than_half_the_capacity_is_refused(void **state) {
  fixture *f = *state;
  f->options.capacity = 20000;
  lb_store *s = fixture_open(f);
  sample a = sample_of(1);
  lb_store_entry e = sample_entry(&a);
  e.object.size = sizeof a.object;
  lb_status st = lb_store_put(s, &e);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  lb_status_drop(st);
  lb_store_free(s);
}

static void readonly_layers_are_searched_after_the_directory(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_ok(put(s, 1));
  lb_store_free(s);
  char below[PATH_MAX], above[PATH_MAX];
  snprintf(below, sizeof below, "%s", f->directory);
  snprintf(above, sizeof above, "%s/above", f->dir.path);
  f->options.directory = above;
  f->options.layers = (const char *[]){below};
  f->options.n_layers = 1;
  s = fixture_open(f);
  assert_true(has(s, 1));
  assert_ok(put(s, 2));
  assert_true(has(s, 2));
  lb_store_stats stats;
  lb_store_get_stats(s, &stats);
  assert_int_equal(stats.hits_readonly, 1);
  assert_int_equal(stats.hits, 1);
  assert_int_equal(stats.entries, 1);
  lb_store_free(s);
  f->options.directory = NULL;  // the layer alone
  s = fixture_open(f);
  assert_true(has(s, 1));
  assert_false(has(s, 2));
  lb_store_free(s);
  assert_int_equal(f->warnings, 0);
}

static void a_missing_layer_gives_one_warning(void **state) {
  fixture *f = *state;
  f->options.layers = (const char *[]){"/nowhere/at/all"};
  f->options.n_layers = 1;
  lb_store *s = fixture_open(f);
  assert_false(has(s, 1));
  assert_false(has(s, 2));
  assert_ok(put(s, 1));
  assert_true(has(s, 1));
  lb_store_free(s);
  assert_int_equal(f->warnings, 1);
}

static void without_a_directory_nothing_is_stored(void **state) {
  fixture *f = *state;
  f->options.directory = NULL;
  lb_store *s = fixture_open(f);
  assert_int_equal(lb_store_lease(s, key_of(1), 1), LB_LEASE_GRANTED);
  lb_status st = put(s, 1);
  assert_true(lb_failed(st));
  lb_status_drop(st);
  assert_false(has(s, 1));
  lb_store_free(s);
}

static void trial_results_are_per_processor(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_int_equal(lb_store_trial_result(s, key_of(1), "a"),
                   LB_TRIAL_RESULT_NONE);
  assert_ok(
      lb_store_put_trial_result(s, key_of(1), "a", LB_TRIAL_RESULT_DEMOTED));
  assert_ok(lb_store_put_trial_result(s, key_of(1), "b", LB_TRIAL_RESULT_KEPT));
  assert_int_equal(lb_store_trial_result(s, key_of(1), "a"),
                   LB_TRIAL_RESULT_DEMOTED);
  assert_int_equal(lb_store_trial_result(s, key_of(1), "b"),
                   LB_TRIAL_RESULT_KEPT);
  assert_int_equal(lb_store_trial_result(s, key_of(2), "a"),
                   LB_TRIAL_RESULT_NONE);
  lb_store_free(s);
}

// -- leases -------------------------------------------------------------------

static void a_lease_has_one_holder(void **state) {
  fixture *f = *state;
  lb_store *a = fixture_open(f), *b = fixture_open(f);
  assert_int_equal(lb_store_lease(a, key_of(1), 60), LB_LEASE_GRANTED);
  assert_int_equal(lb_store_lease(b, key_of(1), 60), LB_LEASE_BUSY);
  assert_int_equal(lb_store_lease(b, key_of(2), 60), LB_LEASE_GRANTED);
  lb_store_release(a, key_of(1));
  assert_int_equal(lb_store_lease(b, key_of(1), 60), LB_LEASE_GRANTED);
  lb_store_free(b);  // releases its leases
  assert_int_equal(lb_store_lease(a, key_of(2), 60), LB_LEASE_GRANTED);
  lb_store_free(a);
}

static void a_lease_of_a_hung_process_is_taken_over(void **state) {
  fixture *f = *state;
  lb_store *a = fixture_open(f), *b = fixture_open(f);
  assert_int_equal(lb_store_lease(a, key_of(1), 60), LB_LEASE_GRANTED);
  assert_int_equal(lb_store_lease(b, key_of(1), 0.05), LB_LEASE_BUSY);
  usleep(60000);
  assert_int_equal(lb_store_lease(b, key_of(1), 0.05), LB_LEASE_GRANTED);
  lb_store_free(a);
  lb_store_free(b);
}

// The time until a takeover counts from the first refusal.
static void a_held_lease_stays_busy_until_the_timeout(void **state) {
  fixture *f = *state;
  lb_store *a = fixture_open(f), *b = fixture_open(f);
  assert_int_equal(lb_store_lease(a, key_of(1), 60), LB_LEASE_GRANTED);
  assert_int_equal(lb_store_lease(b, key_of(1), 60), LB_LEASE_BUSY);
  assert_int_equal(lb_store_lease(b, key_of(1), 60), LB_LEASE_BUSY);
  assert_int_equal(lb_store_lease(b, key_of(2), 60), LB_LEASE_GRANTED);
  assert_int_equal(lb_store_lease(a, key_of(2), 60), LB_LEASE_BUSY);
  usleep(60000);
  assert_int_equal(lb_store_lease(b, key_of(1), 60), LB_LEASE_BUSY);
  assert_int_equal(lb_store_lease(b, key_of(1), 0.05), LB_LEASE_GRANTED);
  // A takeover ends the count; the next refusal starts a new one.
  assert_int_equal(lb_store_lease(b, key_of(1), 0.05), LB_LEASE_BUSY);
  lb_store_release(a, key_of(1));
  assert_int_equal(lb_store_lease(b, key_of(1), 60), LB_LEASE_GRANTED);
  lb_store_free(a);
  lb_store_free(b);
}

static void a_killed_process_holds_no_lease(void **state) {
  fixture *f = *state;
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(120);
    lb_store *s = fixture_open(f);
    char taken = lb_store_lease(s, key_of(1), 60) == LB_LEASE_GRANTED;
    if (write(ready[1], &taken, 1) == 1) pause();
    _exit(1);
  }
  char taken = 0;
  assert_int_equal(read(ready[0], &taken, 1), 1);
  assert_true(taken);
  lb_store *s = fixture_open(f);
  assert_int_equal(lb_store_lease(s, key_of(1), 60), LB_LEASE_BUSY);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  assert_int_equal(lb_store_lease(s, key_of(1), 60), LB_LEASE_GRANTED);
  lb_store_free(s);
  close(ready[0]);
  close(ready[1]);
}

// -- forks --------------------------------------------------------------------

static void a_child_reopens_the_file(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_ok(put(s, 1));
  assert_int_equal(lb_store_lease(s, key_of(9), 60), LB_LEASE_GRANTED);
  pid_t pid = fork();
  if (pid == 0) {
    bool good = has(s, 1);
    lb_status st = put(s, 2);
    good = good && !lb_failed(st);
    // The lease stayed with the parent.
    good = good && lb_store_lease(s, key_of(9), 60) == LB_LEASE_BUSY;
    lb_store_free(s);
    _exit(good ? 0 : 1);
  }
  assert_true(has(s, 1));
  int status = -1;
  waitpid(pid, &status, 0);
  assert_int_equal(status, 0);
  assert_true(has(s, 2));
  lb_store_free(s);
  assert_int_equal(f->warnings, 0);
}

static void a_child_keeps_no_lease_of_its_parent(void **state) {
  fixture *f = *state;
  lb_store *a = fixture_open(f), *b = fixture_open(f);
  assert_int_equal(lb_store_lease(a, key_of(1), 60), LB_LEASE_GRANTED);
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(120);
    if (write(ready[1], "", 1) == 1) pause();
    _exit(0);
  }
  char byte;
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  lb_store_free(a);
  assert_int_equal(lb_store_lease(b, key_of(1), 60), LB_LEASE_GRANTED);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  lb_store_free(b);
}

// -- the directory ------------------------------------------------------------

static void directories_are_created_private(void **state) {
  fixture *f = *state;
  char deep[PATH_MAX];
  struct stat info;
  snprintf(deep, sizeof deep, "%s/a/b/limber", f->dir.path);
  f->options.directory = deep;
  lb_store *s = fixture_open(f);
  assert_ok(put(s, 1));
  lb_store_free(s);
  assert_int_equal(stat(deep, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0700);
}

static void expect_refusal(fixture *f, lb_code code, const char *reason) {
  lb_store *s = fixture_open(f);
  assert_false(has(s, 1));
  lb_status st = put(s, 1);
  assert_true(lb_failed(st));
  lb_status_drop(st);
  assert_false(has(s, 1));
  assert_int_equal(f->warnings, 1);
  assert_non_null(strstr(f->last, reason));
  st = lb_store_check(s);
  assert_int_equal(lb_status_code(st), code);
  lb_status_drop(st);
  lb_store_free(s);
}

static void a_directory_that_others_may_write_is_refused(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_ok(put(s, 1));
  lb_store_free(s);
  chmod(f->directory, 0777);
  expect_refusal(f, LB_INVALID, "others may write it");
}

static void a_file_that_others_may_write_is_refused(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_ok(put(s, 1));
  lb_store_free(s);
  chmod(f->file, 0664);
  expect_refusal(f, LB_INVALID, "others may write it");
}

static void a_directory_of_another_user_is_refused(void **state) {
  fixture *f = *state;
  if (geteuid() != 0) skip();
  assert_int_equal(mkdir(f->directory, 0700), 0);
  assert_int_equal(chown(f->directory, 12345, 12345), 0);
  expect_refusal(f, LB_INVALID, "belongs to user 12345");
}

static void a_file_in_place_of_the_directory_is_refused(void **state) {
  fixture *f = *state;
  assert_int_equal(testdir_write(&f->dir, "store", "text"), 0);
  expect_refusal(f, LB_INVALID, "is not a directory");
}

static void a_removed_store_is_created_again(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_ok(put(s, 1));
  nftw(f->directory, testdir_unlink, 16, FTW_DEPTH | FTW_PHYS);
  assert_ok(put(s, 2));
  lb_store *t = fixture_open(f);
  assert_true(has(t, 2));
  lb_store_free(s);
  assert_true(has(t, 2));
  assert_ok(put(t, 3));
  lb_store_free(t);
}

int main(void) {
#define T(name) \
  cmocka_unit_test_setup_teardown(name, fixture_init, fixture_fini)
  const struct CMUnitTest tests[] = {
      T(stored_entries_are_found),
      T(an_equal_key_with_other_request_bytes_is_a_miss),
      T(a_dropped_entry_is_not_found),
      T(the_least_recently_used_entries_are_evicted),
      T(totals_count_all_users_of_the_file),
      T(a_full_list_of_touches_is_written),
      T(an_entry_larger_than_half_the_capacity_is_refused),
      T(readonly_layers_are_searched_after_the_directory),
      T(a_missing_layer_gives_one_warning),
      T(without_a_directory_nothing_is_stored),
      T(trial_results_are_per_processor),
      T(a_lease_has_one_holder),
      T(a_lease_of_a_hung_process_is_taken_over),
      T(a_held_lease_stays_busy_until_the_timeout),
      T(a_killed_process_holds_no_lease),
      T(a_child_reopens_the_file),
      T(a_child_keeps_no_lease_of_its_parent),
      T(directories_are_created_private),
      T(a_directory_that_others_may_write_is_refused),
      T(a_file_that_others_may_write_is_refused),
      T(a_directory_of_another_user_is_refused),
      T(a_file_in_place_of_the_directory_is_refused),
      T(a_removed_store_is_created_again),
  };
  return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
