// store/tools_test.c -- listing, verifying, pruning, exporting and importing.
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <time.h>

#include "store/fixture_test.h"

#define ENTRIES 40

static lb_store *filled(fixture *f) {
  lb_store *s = fixture_open(f);
  for (unsigned i = 0; i < ENTRIES; i++) assert_ok(put(s, i));
  return s;
}

typedef struct seen {
  unsigned n, stop_at, wrong;
  int64_t created;
} seen;

// Does not assert, because the store is locked during the call.
static bool count_entry(void *user, const lb_store_entry *e) {
  seen *x = user;
  x->wrong += strcmp(e->form, "eltwise") || strcmp(e->target, "x86-64-v3") ||
              !strstr(e->spec, "number") || e->request.size != 600;
  x->created = e->created;
  return ++x->n != x->stop_at;
}

static void each_entry_is_seen_once(void **state) {
  lb_store *s = filled(*state);
  seen x = {0};
  assert_ok(lb_store_each(s, count_entry, &x));
  assert_int_equal(x.n, ENTRIES);
  assert_int_equal(x.wrong, 0);
  assert_true(time(NULL) - x.created < 100);
  x = (seen){.stop_at = 3};
  assert_ok(lb_store_each(s, count_entry, &x));
  assert_int_equal(x.n, 3);
  assert_true(has(s, 1));
  lb_store_free(s);
}

static void verify_counts_corrupt_entries(void **state) {
  fixture *f = *state;
  lb_store *s = filled(f);
  lb_store_verified v;
  assert_ok(lb_store_verify(s, &v));
  assert_int_equal(v.entries, ENTRIES);
  assert_int_equal(v.corrupt, 0);
  assert_string_equal(v.error, "");
  run_sql(f, "UPDATE kernel SET target='x86-64-v4' WHERE spec LIKE '%2'");
  assert_ok(lb_store_verify(s, &v));
  assert_int_equal(v.corrupt, 4);  // 2, 12, 22, 32
  assert_int_equal(v.entries, ENTRIES - 4);
  assert_ok(lb_store_repair(s));
  assert_ok(lb_store_verify(s, &v));
  assert_int_equal(v.corrupt, 0);
  assert_int_equal(v.entries, ENTRIES - 4);
  lb_store_free(s);
}

static uint64_t file_size(const char *path) {
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  return (uint64_t)info.st_size;
}

static void prune_drops_old_entries_and_shrinks_the_file(void **state) {
  fixture *f = *state;
  lb_store *s = filled(f);
  run_sql(f, "UPDATE kernel SET used=used-1000 WHERE spec LIKE '%5'");
  uint64_t removed;
  assert_ok(lb_store_prune(s, time(NULL) - 500, UINT64_MAX, &removed));
  assert_int_equal(removed, 4);
  assert_false(has(s, 15));
  assert_true(has(s, 16));
  uint64_t before = file_size(f->file);
  assert_ok(lb_store_prune(s, 0, 200000, &removed));
  assert_true(removed > 0);
  assert_true(file_size(f->file) <= 200000);
  assert_true(file_size(f->file) < before);
  assert_ok(lb_store_prune(s, INT64_MAX, 0, &removed));
  lb_store_stats stats;
  lb_store_get_stats(s, &stats);
  assert_int_equal(stats.entries, 0);
  assert_ok(put(s, 1));
  assert_true(has(s, 1));
  lb_store_free(s);
}

static void exported_entries_can_be_imported(void **state) {
  fixture *f = *state;
  char path[PATH_MAX], other[PATH_MAX];
  snprintf(path, sizeof path, "%s/export.db", f->dir.path);
  snprintf(other, sizeof other, "%s/other", f->dir.path);
  lb_store *s = filled(f);
  assert_ok(
      lb_store_put_trial_result(s, key_of(1), "here", LB_TRIAL_RESULT_DEMOTED));
  uint64_t written;
  assert_ok(lb_store_export(s, path, &written));
  assert_int_equal(written, ENTRIES);
  lb_store_free(s);

  f->options.directory = other;
  s = fixture_open(f);
  assert_ok(put(s, 3));
  lb_store_imported in;
  assert_ok(lb_store_import(s, path, &in));
  assert_int_equal(in.added, ENTRIES - 1);
  assert_int_equal(in.already_present, 1);
  assert_int_equal(in.corrupt, 0);
  for (unsigned i = 0; i < ENTRIES; i++) assert_true(has(s, i));
  assert_int_equal(lb_store_trial_result(s, key_of(1), "here"),
                   LB_TRIAL_RESULT_NONE);
  lb_store_free(s);

  f->options.directory = NULL;  // an export is a layer too
  f->options.layers = (const char *[]){path};
  f->options.n_layers = 1;
  s = fixture_open(f);
  assert_true(has(s, 1));
  seen x = {0};
  assert_ok(lb_store_each(s, count_entry, &x));
  assert_int_equal(x.n, ENTRIES);
  lb_store_free(s);
  assert_int_equal(f->warnings, 0);
}

static void expect_no_import(lb_store *s, const char *path, const char *why) {
  lb_store_imported in;
  lb_status st = lb_store_import(s, path, &in);
  assert_true(lb_failed(st));
  if (!strstr(lb_status_message(st), why))
    fail_msg("'%s' is not in: %s", why, lb_status_message(st));
  lb_status_drop(st);
}

static void untrusted_corrupt_or_other_version_files_are_not_imported(
    void **state) {
  fixture *f = *state;
  char path[PATH_MAX];
  uint64_t written;
  snprintf(path, sizeof path, "%s/export.db", f->dir.path);
  lb_store *s = filled(f);
  expect_no_import(s, path, "there is no file");
  assert_int_equal(testdir_write(&f->dir, "export.db", "no database at all"),
                   0);
  expect_no_import(s, path, "corrupt");
  assert_ok(lb_store_export(s, path, &written));  // replaces the file
  chmod(path, 0666);
  expect_no_import(s, path, "others may write it");
  chmod(path, 0600);
  char file[PATH_MAX];
  memcpy(file, f->file, sizeof file);
  memcpy(f->file, path, sizeof file);
  run_sql(f, "UPDATE kernel SET object=x'00' WHERE spec LIKE '%1'");
  lb_store_imported in;
  uint64_t removed;
  assert_ok(lb_store_prune(s, INT64_MAX, 0, &removed));
  assert_ok(lb_store_import(s, path, &in));
  assert_int_equal(in.corrupt, 4);
  assert_int_equal(in.added, ENTRIES - 4);
  run_sql(f, "UPDATE about SET version=9; PRAGMA user_version=9");
  expect_no_import(s, path, "later version");
  run_sql(f, "UPDATE about SET version=2; PRAGMA user_version=2");
  expect_no_import(s, path, "earlier version");
  lb_store_free(s);
}

int main(void) {
#define T(name) \
  cmocka_unit_test_setup_teardown(name, fixture_init, fixture_fini)
  const struct CMUnitTest tests[] = {
      T(each_entry_is_seen_once),
      T(verify_counts_corrupt_entries),
      T(prune_drops_old_entries_and_shrinks_the_file),
      T(exported_entries_can_be_imported),
      T(untrusted_corrupt_or_other_version_files_are_not_imported),
  };
  return cmocka_run_group_tests_name("store tools", tests, NULL, NULL);
}
