// cache/cache_test.c -- each key is built once, for any number of threads;
// failures reach all waiting threads. Runs under TSan in scripts/test.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ref.h"
#include "cache/cache.h"

#define THREADS 16
#define ROUNDS 4000

#define THING_KEY(F, S)   \
  F(S, uint32_t, kind, 1) \
  F(S, uint32_t, axis, 1) \
  F(S, int64_t, dims, 2)
LB_KEY_STRUCT(thing_key, THING_KEY)

typedef struct thing {
  lb_ref ref;
  uint64_t bytes;
  uint32_t kind;
} thing;

static atomic_int live;  // number of live things

static void retain(void *value) { lb_ref_retain(&((thing *)value)->ref); }

static void release(void *value) {
  if (!lb_ref_release(&((thing *)value)->ref)) return;
  free(value);
  atomic_fetch_sub(&live, 1);
}

static uint64_t bytes_of(const void *value) {
  return ((const thing *)value)->bytes;
}

static const lb_cache_type thing_type = {retain, release, bytes_of,
                                         &thing_key_type};

typedef struct fixture {
  lb_lru lru;
  lb_cache cache;
  atomic_int builds;
  atomic_bool closed;  // builds wait until it is false
} fixture;

typedef struct build_args {  // the arguments of a build
  fixture *f;
  uint32_t kind;
  uint64_t bytes;
  int fail, slow;
} build_args;

static lb_status build(void *user, void **out) {
  const build_args *o = user;
  atomic_fetch_add(&o->f->builds, 1);
  for (int i = 0; i < o->slow; i++) usleep(1000);
  while (atomic_load(&o->f->closed)) usleep(1000);
  if (o->fail) return lb_error(LB_UNSUPPORTED, "thing %u will not do", o->kind);
  thing *t = calloc(1, sizeof *t);
  if (!t) return lb_oom();
  lb_ref_init(&t->ref);
  t->bytes = o->bytes;
  t->kind = o->kind;
  atomic_fetch_add(&live, 1);
  *out = t;
  return LB_OK;
}

static lb_status get(build_args *o, thing **out) {
  thing_key key = {.kind = {o->kind}, .dims = {4, 5}};
  void *value;
  lb_status st = lb_cache_get(&o->f->cache, &key, sizeof key, build, o, &value);
  *out = value;
  return st;
}

static thing *must_get(fixture *f, uint32_t kind, uint64_t bytes) {
  build_args o = {.f = f, .kind = kind, .bytes = bytes};
  thing *t;
  assert_false(lb_failed(get(&o, &t)));
  assert_int_equal(t->kind, kind);
  return t;
}

static void open_cache(fixture *f, uint64_t capacity) {
  memset(f, 0, sizeof *f);
  assert_false(lb_failed(lb_lru_init(&f->lru, capacity)));
  assert_false(lb_failed(lb_cache_init(&f->cache, &f->lru, &thing_type)));
}

static void close_cache(fixture *f) {
  lb_cache_fini(&f->cache);
  lb_lru_fini(&f->lru);
  assert_int_equal(atomic_load(&live), 0);
}

static lb_cache_stats count(fixture *f) {
  lb_cache_stats s;
  lb_cache_count(&f->cache, &s);
  return s;
}

static void a_key_is_built_once(void **state) {
  (void)state;
  fixture f;
  open_cache(&f, 10000);
  thing *a = must_get(&f, 1, 100), *b = must_get(&f, 1, 100);
  assert_ptr_equal(a, b);
  assert_int_equal(f.builds, 1);
  thing_key other = {.kind = {2}};
  void *none;
  assert_false(lb_failed(
      lb_cache_get(&f.cache, &other, sizeof other, NULL, NULL, &none)));
  assert_null(none);
  assert_int_equal(count(&f).hits, 1);
  assert_int_equal(count(&f).misses, 2);
  assert_int_equal(count(&f).entries, 1);
  assert_true(count(&f).bytes > 100);
  release(a);
  release(b);
  close_cache(&f);
}

static void eviction_does_not_free_values_in_use(void **state) {
  (void)state;
  fixture f;
  open_cache(&f, 2500);
  thing *a = must_get(&f, 1, 1000);
  release(must_get(&f, 2, 800));
  release(must_get(&f, 1, 1000));
  release(must_get(&f, 3, 800));  // evicts 2, the least recently used
  assert_int_equal(f.builds, 3);
  release(must_get(&f, 1, 1000));
  assert_int_equal(f.builds, 3);
  lb_lru_set_capacity(&f.lru, 0);
  assert_int_equal(count(&f).entries, 0);
  assert_int_equal(count(&f).bytes, 0);
  assert_int_equal(a->bytes, 1000);
  assert_int_equal(atomic_load(&live), 1);
  thing *b = must_get(&f, 1, 1000);  // built, but not cached
  assert_ptr_not_equal(a, b);
  assert_int_equal(count(&f).insertions, 3);
  release(a);
  release(b);
  close_cache(&f);
}

static void a_failed_build_leaves_no_entry(void **state) {
  (void)state;
  fixture f;
  thing *t;
  open_cache(&f, 10000);
  build_args o = {.f = &f, .kind = 7, .fail = 1};
  lb_status st = get(&o, &t);
  assert_int_equal(lb_status_code(st), LB_UNSUPPORTED);
  assert_null(t);
  lb_status_drop(st);
  assert_int_equal(count(&f).entries, 0);
  assert_int_equal(count(&f).failures, 1);
  release(must_get(&f, 7, 1));
  assert_int_equal(f.builds, 2);
  close_cache(&f);
}

static void a_miss_names_the_field_that_differs(void **state) {
  (void)state;
  fixture f;
  lb_strbuf text = {0};
  open_cache(&f, 10000);
  release(must_get(&f, 1, 1));
  release(must_get(&f, 2, 1));
  thing_key key = {.kind = {2}, .axis = {3}, .dims = {4, 5}};
  void *none;
  assert_false(
      lb_failed(lb_cache_get(&f.cache, &key, sizeof key, NULL, NULL, &none)));
  assert_false(lb_failed(lb_cache_explain(&f.cache, &text)));
  assert_string_equal(lb_strbuf_str(&text), "axis: 3 not 0");
  lb_strbuf_fini(&text);
  close_cache(&f);
}

// -- many threads ------------------------------------------------------------

typedef struct job {
  build_args o;
  unsigned seed;
  lb_code code;
  char message[64];
  thing *got;
  const char *bad;
} job;

static void *get_value(void *user) {
  job *j = user;
  lb_status st = get(&j->o, &j->got);
  j->code = lb_status_code(st);
  strncpy(j->message, lb_status_message(st), sizeof j->message - 1);
  lb_status_drop(st);
  return NULL;
}

static void start(fixture *f, job *jobs, pthread_t *threads, int fail,
                  void *(*work)(void *)) {
  for (unsigned i = 0; i < THREADS; i++) {
    jobs[i] =
        (job){.o = {.f = f, .kind = 9, .bytes = 10, .slow = 20}, .seed = i};
    jobs[i].o.fail = fail;
    assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void concurrent_requests_for_a_key_build_once(void **state) {
  (void)state;
  fixture f;
  job jobs[THREADS];
  pthread_t threads[THREADS];
  open_cache(&f, 10000);
  start(&f, jobs, threads, 0, get_value);
  assert_int_equal(f.builds, 1);
  for (int i = 0; i < THREADS; i++) {
    assert_ptr_equal(jobs[i].got, jobs[0].got);
    release(jobs[i].got);
  }
  assert_int_equal(count(&f).waits + count(&f).hits, THREADS - 1);
  close_cache(&f);
}

static void *open_when_awaited(void *user) {
  fixture *f = user;
  while (!count(f).waits) sched_yield();
  atomic_store(&f->closed, false);
  return NULL;
}

// Threads that come after the failure build again, and fail as well.
static void a_failure_reaches_every_waiter(void **state) {
  (void)state;
  fixture f;
  job jobs[THREADS];
  pthread_t threads[THREADS], opener;
  open_cache(&f, 10000);
  atomic_store(&f.closed, true);
  assert_int_equal(pthread_create(&opener, NULL, open_when_awaited, &f), 0);
  start(&f, jobs, threads, 1, get_value);
  pthread_join(opener, NULL);
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(jobs[i].code, LB_UNSUPPORTED);
    assert_string_equal(jobs[i].message, "thing 9 will not do");
  }
  assert_int_equal(count(&f).waits + (uint64_t)f.builds, THREADS);
  assert_true(count(&f).waits > 0);
  close_cache(&f);
}

static void *stress(void *user) {
  job *j = user;
  fixture *f = j->o.f;
  for (int i = 0; i < ROUNDS && !j->bad; i++) {
    build_args o = {.f = f,
                    .kind = (uint32_t)rand_r(&j->seed) % 16,
                    .bytes = (uint64_t)(rand_r(&j->seed) % 1000),
                    .fail = rand_r(&j->seed) % 8 == 0};
    thing *t;
    lb_status st = get(&o, &t);
    if (!lb_failed(st) && t->kind != o.kind) j->bad = "another key's value";
    if (!lb_failed(st)) release(t);
    lb_status_drop(st);
    if (rand_r(&j->seed) % 64 == 0)
      lb_lru_set_capacity(&f->lru, (uint64_t)(rand_r(&j->seed) % 8000));
  }
  return NULL;
}

static void values_are_correct_while_the_capacity_changes(void **state) {
  (void)state;
  fixture f;
  job jobs[THREADS];
  pthread_t threads[THREADS];
  open_cache(&f, 4000);
  start(&f, jobs, threads, 0, stress);
  for (int i = 0; i < THREADS; i++)
    if (jobs[i].bad) fail_msg("thread %d: %s", i, jobs[i].bad);
  lb_lru_stats s;
  lb_lru_count(&f.lru, &s);
  assert_true(s.bytes <= s.capacity);
  assert_int_equal(s.items, count(&f).entries);
  assert_int_equal(s.bytes, count(&f).bytes);
  assert_int_equal(atomic_load(&live), (int)s.items);
  close_cache(&f);
}

// -- fork --------------------------------------------------------------------

static void a_child_rebuilds_pending_entries_of_its_parent(void **state) {
  (void)state;
  fixture f;
  pthread_t builder, waiter;
  open_cache(&f, 10000);
  job jobs[2] = {{.o = {.f = &f, .kind = 9}}, {.o = {.f = &f, .kind = 9}}};
  atomic_store(&f.closed, true);
  pthread_create(&builder, NULL, get_value, &jobs[0]);
  while (!atomic_load(&f.builds)) sched_yield();
  pthread_create(&waiter, NULL, get_value, &jobs[1]);
  while (!count(&f).waits) sched_yield();
  pid_t pid = fork();
  if (pid == 0) {
    alarm(120);
    atomic_store(&f.closed, false);
    thing *t = must_get(&f, 9, 1);
    _exit(t && atomic_load(&f.builds) == 2 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  atomic_store(&f.closed, false);
  pthread_join(builder, NULL);
  pthread_join(waiter, NULL);
  assert_ptr_equal(jobs[0].got, jobs[1].got);
  for (int i = 0; i < 2; i++) release(jobs[i].got);
  close_cache(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_key_is_built_once),
      cmocka_unit_test(eviction_does_not_free_values_in_use),
      cmocka_unit_test(a_failed_build_leaves_no_entry),
      cmocka_unit_test(a_miss_names_the_field_that_differs),
      cmocka_unit_test(concurrent_requests_for_a_key_build_once),
      cmocka_unit_test(a_failure_reaches_every_waiter),
      cmocka_unit_test(values_are_correct_while_the_capacity_changes),
      cmocka_unit_test(a_child_rebuilds_pending_entries_of_its_parent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
