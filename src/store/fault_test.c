// store/fault_test.c -- a store with a corrupt file, a failing disk or
// concurrent processes: right results, one warning, no valid entry lost.
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "store/fixture_test.h"
#include "store/store_internal.h"

#define ENTRIES 60

static void fill_store(fixture *f, unsigned n) {
  lb_store *s = fixture_open(f);
  for (unsigned i = 0; i < n; i++) assert_ok(put(s, i));
  lb_store_free(s);
}

static unsigned count_found(lb_store *s) {
  unsigned n = 0;
  for (unsigned i = 0; i < ENTRIES; i++) n += has(s, i);
  return n;
}

typedef struct file_bytes {  // of a valid file
  uint8_t *bytes;
  size_t size;
} file_bytes;

static file_bytes read_file_bytes(fixture *f) {
  file_bytes m = {0};
  FILE *file = fopen(f->file, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  m.size = (size_t)ftell(file);
  m.bytes = malloc(m.size);
  rewind(file);
  assert_int_equal(fread(m.bytes, 1, m.size, file), m.size);
  fclose(file);
  return m;
}

static void write_file_bytes(fixture *f, const file_bytes *m, size_t size) {
  nftw(f->directory, testdir_unlink, 16, FTW_DEPTH | FTW_PHYS);
  assert_int_equal(mkdir(f->directory, 0700), 0);
  FILE *file = fopen(f->file, "wb");
  assert_int_equal(fwrite(m->bytes, 1, size, file), size);
  fclose(file);
}

// Opens a corrupt store, repairs it if entries are missing, puts the lost
// entries again and expects a valid store. Returns the number of lost entries.
static unsigned use_corrupt(fixture *f, unsigned most_lost, size_t offset) {
  f->warnings = 0;
  lb_store *s = fixture_open(f);
  unsigned lost = ENTRIES - count_found(s);
  if (lost > most_lost) {
    assert_ok(lb_store_repair(s));
    lost = ENTRIES - count_found(s);
  }
  if (lost > most_lost || f->warnings > 1)
    fail_msg("byte %zu: %u entries lost, %d warnings", offset, lost,
             f->warnings);
  for (unsigned i = 0; i < ENTRIES; i++)
    if (!has(s, i)) assert_ok(put(s, i));
  if (count_found(s) != ENTRIES)
    fail_msg("byte %zu: an entry that was put again is not found", offset);
  lb_store_verified v;
  assert_ok(lb_store_verify(s, &v));
  if (v.corrupt) fail_msg("byte %zu: %s", offset, v.error);
  lb_store_free(s);
  return lost;
}

static void flip(fixture *f, file_bytes *m, size_t offset) {
  m->bytes[offset] ^= (uint8_t)(1 << offset % 8);
  write_file_bytes(f, m, m->size);
  m->bytes[offset] ^= (uint8_t)(1 << offset % 8);
}

static void a_flipped_bit_loses_at_most_one_entry(void **state) {
  fixture *f = *state;
  unsigned lost = 0;
  fill_store(f, ENTRIES);
  file_bytes m = read_file_bytes(f);
  for (size_t i = 0; i < 100; i++) {
    size_t offset = m.size * i / 100;
    flip(f, &m, offset);
    lost += use_corrupt(f, 1, offset);
  }
  assert_true(lost > 50);  // most bytes belong to an entry
  free(m.bytes);
}

static void flips_in_the_first_pages_lose_at_most_one_entry(void **state) {
  fixture *f = *state;
  fill_store(f, ENTRIES);
  file_bytes m = read_file_bytes(f);
  for (size_t offset = 1; offset < 6 * LB_DB_PAGE; offset += 97) {
    flip(f, &m, offset);
    use_corrupt(f, 1, offset);
  }
  free(m.bytes);
}

static void a_zeroed_header_loses_nothing(void **state) {
  fixture *f = *state;
  fill_store(f, ENTRIES);
  file_bytes m = read_file_bytes(f);
  memset(m.bytes, 0, LB_DB_PAGE);
  write_file_bytes(f, &m, m.size);
  assert_int_equal(use_corrupt(f, 0, 0), 0);
  free(m.bytes);
}

static void truncation_loses_only_the_missing_pages(void **state) {
  fixture *f = *state;
  fill_store(f, ENTRIES);
  file_bytes m = read_file_bytes(f);
  for (size_t i = 0; i < 10; i++) {
    size_t size = m.size * i / 10 + 11 * i;
    write_file_bytes(f, &m, size);
    // Each missing page loses at most one entry.
    unsigned most = (unsigned)((m.size - size) / LB_DB_PAGE + 2);
    use_corrupt(f, most < ENTRIES ? most : ENTRIES, size);
  }
  free(m.bytes);
}

static void two_processes_rebuild_once(void **state) {
  fixture *f = *state;
  fill_store(f, ENTRIES);
  lb_store *a = fixture_open(f), *b = fixture_open(f);
  assert_int_equal(count_found(a), ENTRIES);
  assert_int_equal(count_found(b), ENTRIES);
  run_sql(f,
          "UPDATE kernel SET sum=sum+1 WHERE form='eltwise' AND"
          " spec LIKE '%number 7'");
  assert_false(has(a, 7));
  assert_false(has(b, 7));
  lb_store_stats sa, sb;
  lb_store_get_stats(a, &sa);
  lb_store_get_stats(b, &sb);
  assert_int_equal(sa.rebuilds + sb.rebuilds, 1);
  assert_int_equal(sa.salvaged, ENTRIES - 1);
  assert_int_equal(sa.corrupt, 1);
  assert_int_equal(count_found(b), ENTRIES - 1);
  assert_ok(put(b, 7));
  assert_int_equal(count_found(a), ENTRIES);
  lb_store_free(a);
  lb_store_free(b);
}

// The next `times` puts of the store fail in the middle of a transaction.
static struct {
  lb_sqlite q;
  lb_store *store;
  int times;
} failing;

static int step_that_fails(sqlite3_stmt *stmt) {
  bool put = stmt == failing.store->directory->db.stmts[LB_Q_PUT];
  return put && failing.times-- > 0 ? SQLITE_CORRUPT : failing.q.step(stmt);
}

static void a_put_that_fails_after_a_rebuild_is_rolled_back(void **state) {
  fixture *f = *state;
  lb_store_stats stats;
  lb_store *s = failing.store = fixture_open(f);
  assert_ok(put(s, 1));
  failing.q = s->core.sqlite;
  failing.times = 2;
  s->core.sqlite.step = step_that_fails;
  lb_status st = put(s, 2);
  assert_true(lb_failed(st));
  lb_status_drop(st);
  assert_ok(put(s, 2));
  assert_true(has(s, 1) && has(s, 2));
  lb_store_get_stats(s, &stats);
  assert_int_equal(stats.rebuilds, 1);
  lb_store_free(s);
}

// -- versions -----------------------------------------------------------------

static void a_later_version_is_left_alone(void **state) {
  fixture *f = *state;
  fill_store(f, ENTRIES);
  run_sql(f, "UPDATE about SET version=7; PRAGMA user_version=7");
  file_bytes before = read_file_bytes(f);
  lb_store *s = fixture_open(f);
  assert_int_equal(count_found(s), 0);
  lb_status st = put(s, 1);
  assert_true(lb_failed(st));
  lb_status_drop(st);
  lb_store_free(s);
  assert_int_equal(f->warnings, 1);
  assert_non_null(strstr(f->last, "later version"));
  file_bytes after = read_file_bytes(f);
  assert_int_equal(before.size, after.size);
  assert_memory_equal(before.bytes, after.bytes, after.size);
  free(before.bytes);
  free(after.bytes);
}

static void expect_replaced(fixture *f) {
  lb_store *s = fixture_open(f);
  assert_false(has(s, 1));
  assert_int_equal(f->warnings, 1);
  assert_non_null(strstr(f->last, "earlier version"));
  assert_ok(put(s, 1));
  assert_true(has(s, 1));
  assert_ok(lb_store_put_trial_result(s, key_of(1), "a", LB_TRIAL_RESULT_KEPT));
  assert_int_equal(lb_store_trial_result(s, key_of(1), "a"),
                   LB_TRIAL_RESULT_KEPT);
  lb_store_free(s);
  f->warnings = 0;
  s = fixture_open(f);  // the new file is of this version
  assert_true(has(s, 1));
  lb_store_free(s);
  assert_int_equal(f->warnings, 0);
}

static void an_earlier_version_is_replaced(void **state) {
  fixture *f = *state;
  fill_store(f, 3);
  run_sql(f, "UPDATE about SET version=-1; PRAGMA user_version=-1");
  expect_replaced(f);
}

#define V2_TABLE \
  "ver"          \
  "dict"  // what version 2 called the trial results

static void version_2_is_replaced(void **state) {
  fixture *f = *state;
  fill_store(f, 3);
  run_sql(f, "DROP TABLE trial_result; CREATE TABLE " V2_TABLE
             "("
             "id INTEGER NOT NULL, processor TEXT NOT NULL,"
             " " V2_TABLE
             " INTEGER NOT NULL, PRIMARY KEY(id, processor))"
             " WITHOUT ROWID;"
             "UPDATE about SET version=2; PRAGMA user_version=2");
  expect_replaced(f);
}

static void a_database_of_another_application_is_left_alone(void **state) {
  fixture *f = *state;
  assert_int_equal(mkdir(f->directory, 0700), 0);
  run_sql(f, "CREATE TABLE mine(x); INSERT INTO mine VALUES(1)");
  lb_store *s = fixture_open(f);
  assert_false(has(s, 1));
  lb_status st = put(s, 1);
  assert_true(lb_failed(st));
  lb_status_drop(st);
  lb_store_free(s);
  assert_int_equal(f->warnings, 1);
  run_sql(f, "SELECT x FROM mine");
}

// -- the disk -----------------------------------------------------------------

static void a_locked_database_is_a_miss(void **state) {
  fixture *f = *state;
  lb_sqlite q;
  lb_db db;
  fill_store(f, ENTRIES);
  assert_ok(lb_sqlite_load(&q));
  assert_int_equal(lb_db_open(&q, f->file, LB_DB_WRITE, &db), 0);
  lb_store *s = fixture_open(f);
  assert_true(has(s, 1));
  assert_int_equal(lb_db_exec(&db, "BEGIN IMMEDIATE"), 0);
  assert_true(has(s, 2));  // a writer does not block readers
  lb_status st = put(s, 100);
  assert_int_equal(lb_status_code(st), LB_IO);
  lb_status_drop(st);
  assert_int_equal(f->warnings, 1);
  assert_non_null(strstr(f->last, "locked"));
  assert_int_equal(lb_db_exec(&db, "ROLLBACK"), 0);
  lb_db_close(&db);
  usleep(1100000);
  assert_ok(put(s, 100));
  assert_true(has(s, 100));
  assert_int_equal(f->warnings, 1);
  lb_store_free(s);
}

// Another process creates the tables before step number `attempt` of an
// identification.
static struct {
  lb_sqlite q;
  const char *file;
  int attempt;
} other;

static int step_with_other_process(sqlite3_stmt *stmt) {
  lb_db db;
  if (other.attempt-- == 0) {
    int rc = lb_db_open(&other.q, other.file, LB_DB_WRITE, &db);
    db.lock_timeout = 0;
    if (!rc) rc = lb_db_create(&db, true);
    assert_int_equal(lb_db_fault(rc), rc ? LB_FAULT_BUSY : LB_FAULT_NONE);
    lb_db_close(&db);
  }
  return other.q.step(stmt);
}

static void tables_created_during_identification_are_seen_complete(
    void **state) {
  fixture *f = *state;
  assert_ok(lb_sqlite_load(&other.q));
  lb_sqlite q = other.q;
  q.step = step_with_other_process;
  other.file = f->file;
  assert_int_equal(mkdir(f->directory, 0700), 0);
  for (int attempt = 0; attempt < 5; attempt++) {
    lb_db db;
    lb_db_kind kind;
    int64_t version;
    unlink(f->file);
    other.attempt = attempt;
    assert_int_equal(lb_db_open(&q, f->file, LB_DB_WRITE, &db), 0);
    assert_int_equal(lb_db_identify(&db, &kind, &version), 0);
    assert_true(kind == LB_DB_EMPTY || kind == LB_DB_OURS);
    lb_db_close(&db);
  }
}

// Runs `fn` in a child with a file system mounted on the store's directory in a
// private mount namespace; skips the test if that is not allowed.
static void in_mount(fixture *f, const char *options, unsigned long flags,
                     void (*fn)(fixture *f)) {
  pid_t pid = fork();
  if (pid == 0) {
    if (unshare(CLONE_NEWNS) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount(flags & MS_BIND ? f->directory : "tmpfs", f->directory,
              flags & MS_BIND ? NULL : "tmpfs",
              flags & ~(unsigned long)MS_RDONLY, options) ||
        (flags & MS_RDONLY && mount(NULL, f->directory, NULL,
                                    MS_BIND | MS_REMOUNT | MS_RDONLY, NULL)))
      _exit(77);
    fn(f);
    _exit(0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
  assert_int_equal(status, 0);
}

#define CHECK(x)                                                   \
  do {                                                             \
    if (!(x)) {                                                    \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #x, f->last); \
      _exit(1);                                                    \
    }                                                              \
  } while (0)

static void use_full_disk(fixture *f) {
  lb_store *s = fixture_open(f);
  unsigned stored = 0, refused = 0;
  for (unsigned i = 0; i < 200; i++) {
    lb_status st = put(s, i);
    *(lb_failed(st) ? &refused : &stored) += 1;
    lb_status_drop(st);
  }
  CHECK(stored > 10 && refused > 10);
  CHECK(f->warnings == 1);
  unsigned found = 0;
  for (unsigned i = 0; i < 200; i++) found += has(s, i);
  CHECK(found == stored);
  lb_store_verified v;
  lb_status st = lb_store_verify(s, &v);
  CHECK(!lb_failed(st) && v.entries == stored && !v.corrupt && !v.error[0]);
  lb_store_free(s);
}

static void a_full_disk_loses_no_stored_entry(void **state) {
  fixture *f = *state;
  assert_int_equal(mkdir(f->directory, 0700), 0);
  in_mount(f, "size=1m,mode=0700", 0, use_full_disk);
}

static void use_tiny_disk(fixture *f) {
  lb_store *s = fixture_open(f);
  CHECK(!has(s, 1));
  lb_status st = put(s, 1);
  CHECK(lb_failed(st));
  lb_status_drop(st);
  CHECK(!has(s, 1));
  CHECK(f->warnings == 1);
  lb_store_free(s);
}

static void a_disk_without_any_space_gives_one_warning(void **state) {
  fixture *f = *state;
  assert_int_equal(mkdir(f->directory, 0700), 0);
  in_mount(f, "size=8k,mode=0700", 0, use_tiny_disk);
}

static void use_read_only(fixture *f) {
  lb_store *s = fixture_open(f);
  CHECK(has(s, 1) && has(s, 2));
  lb_status st = put(s, 100);
  CHECK(lb_failed(st));
  lb_status_drop(st);
  CHECK(!has(s, 100));
  CHECK(f->warnings == 1);
  lb_store_free(s);
}

static void a_read_only_directory_can_be_read(void **state) {
  fixture *f = *state;
  fill_store(f, ENTRIES);
  in_mount(f, NULL, MS_BIND | MS_RDONLY, use_read_only);
}

int main(void) {
#define T(name) \
  cmocka_unit_test_setup_teardown(name, fixture_init, fixture_fini)
  const struct CMUnitTest tests[] = {
      T(a_flipped_bit_loses_at_most_one_entry),
      T(flips_in_the_first_pages_lose_at_most_one_entry),
      T(a_zeroed_header_loses_nothing),
      T(truncation_loses_only_the_missing_pages),
      T(two_processes_rebuild_once),
      T(a_put_that_fails_after_a_rebuild_is_rolled_back),
      T(a_later_version_is_left_alone),
      T(an_earlier_version_is_replaced),
      T(version_2_is_replaced),
      T(a_database_of_another_application_is_left_alone),
      T(a_locked_database_is_a_miss),
      T(tables_created_during_identification_are_seen_complete),
      T(a_full_disk_loses_no_stored_entry),
      T(a_disk_without_any_space_gives_one_warning),
      T(a_read_only_directory_can_be_read),
  };
  return cmocka_run_group_tests_name("store faults", tests, NULL, NULL);
}
