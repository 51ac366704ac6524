// store/fixture_test.h -- for tests: a store in a temporary directory, and
// sample entries derived from a number.
#ifndef LB_STORE_FIXTURE_TEST_H
#define LB_STORE_FIXTURE_TEST_H

#include <signal.h>
#include <stdlib.h>

#include "base/testdir.h"
#include "store/database.h"

#define assert_ok(st)                                           \
  do {                                                          \
    lb_status st_ = (st);                                       \
    if (lb_failed(st_)) fail_msg("%s", lb_status_message(st_)); \
  } while (0)

typedef struct fixture {
  testdir dir;
  char directory[PATH_MAX], file[PATH_MAX];
  lb_store_options options;
  lb_log log;
  int warnings;
  char last[512];  // warning
} fixture;

static inline void fixture_log(void *user, int level, const char *line) {
  fixture *f = user;
  if (level > LB_LOG_WARN) return;
  f->warnings++;
  snprintf(f->last, sizeof f->last, "%s", line);
}

static inline int fixture_init(void **state) {
  fixture *f = calloc(1, sizeof *f);
  if (!f || testdir_init(&f->dir)) return -1;
  snprintf(f->directory, sizeof f->directory, "%s/store", f->dir.path);
  snprintf(f->file, sizeof f->file, "%s/store/" LB_STORE_FILE, f->dir.path);
  f->log = (lb_log){.fn = fixture_log, .user = f, .level = LB_LOG_DEBUG};
  f->options = (lb_store_options){.directory = f->directory, .log = &f->log};
  *state = f;
  return 0;
}

static inline int fixture_fini(void **state) {
  fixture *f = *state;
  testdir_fini(&f->dir);
  free(f);
  return 0;
}

static inline lb_store *fixture_open(fixture *f) {
  lb_store *s;
  assert_ok(lb_store_new(&f->options, &s));
  return s;
}

typedef struct sample {
  lb_hash128 key;
  uint8_t request[600], meta[250], object[30000];
  size_t size;  // of the object
  char spec[100], assume[40];
} sample;

static inline lb_hash128 key_of(unsigned i) {
  return lb_hash_wide(&i, sizeof i);
}

static inline void fill(uint8_t *p, size_t n, uint64_t seed) {
  for (size_t i = 0; i < n; i++) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    p[i] = (uint8_t)(seed >> 56);
  }
}

// Its object has 1 to 25 KB, like those of real kernels.
static inline sample sample_of(unsigned i) {
  sample a = {.key = key_of(i), .size = 1000 + (i * 7919u) % 24000};
  fill(a.request, sizeof a.request, i);
  fill(a.meta, sizeof a.meta, i + 1000003u);
  fill(a.object, a.size, i + 2000003u);
  snprintf(a.spec, sizeof a.spec, "eltwise %%0=input.float32.full number %u",
           i);
  snprintf(a.assume, sizeof a.assume, i % 3 ? "rows%%%u" : "cols=%u", i);
  return a;
}

static inline lb_store_entry sample_entry(const sample *a) {
  return (lb_store_entry){.key = a->key,
                          .request = {a->request, sizeof a->request},
                          .meta = {a->meta, sizeof a->meta},
                          .object = {a->object, a->size},
                          .form = "eltwise",
                          .spec = a->spec,
                          .assume = a->assume,
                          .target = "x86-64-v3",
                          .reusable = a->assume[4] == '%'};
}

static inline lb_status put(lb_store *s, unsigned i) {
  sample a = sample_of(i);
  lb_store_entry e = sample_entry(&a);
  return lb_store_put(s, &e);
}

// Whether the entry is found; asserts that its bytes are right.
static inline bool has(lb_store *s, unsigned i) {
  sample a = sample_of(i);
  lb_store_entry e = sample_entry(&a);
  lb_store_hit found;
  bool hit = lb_store_get(s, e.key, e.request, &found);
  if (hit) {
    assert_int_equal(found.object.size, e.object.size);
    assert_memory_equal(found.object.data, e.object.data, e.object.size);
    assert_int_equal(found.meta.size, e.meta.size);
    assert_memory_equal(found.meta.data, e.meta.data, e.meta.size);
  }
  lb_store_hit_fini(&found);
  return hit;
}

// Runs SQL on the store's file over a separate connection.
static inline void run_sql(fixture *f, const char *sql) {
  lb_sqlite q;
  lb_db db;
  assert_ok(lb_sqlite_load(&q));
  assert_int_equal(lb_db_open(&q, f->file, LB_DB_WRITE, &db), 0);
  assert_int_equal(lb_db_exec(&db, sql), 0);
  lb_db_close(&db);
}

static inline void age_all(fixture *f, int seconds) {
  char sql[100];
  snprintf(sql, sizeof sql, "UPDATE kernel SET used=used-%d", seconds);
  run_sql(f, sql);
}

#endif
