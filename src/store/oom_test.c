// store/oom_test.c -- lets each allocation of a store fail once: each call then
// fails or succeeds properly, and stored entries are still present afterwards.
// The linker replaces the C library's functions (CMakeLists.txt); SQLite's own
// allocations are not affected.
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "store/fixture_test.h"

static long countdown =
    -1;  // allocations that succeed before one fails; -1: all

static bool fails(void) { return countdown >= 0 && countdown-- == 0; }

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }

void *__wrap_calloc(size_t n, size_t size) {
  return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n) {
  return fails() ? NULL : __real_realloc(p, n);
}

static void live(fixture *f) {
  lb_store *s;
  uint64_t n;
  lb_store_verified v;
  lb_status st = lb_store_new(&f->options, &s);
  if (lb_failed(st)) {
    lb_status_drop(st);
    return;
  }
  has(s, 1);
  lb_status_drop(put(s, 2));
  has(s, 2);
  lb_store_lease(s, key_of(3), 1);
  lb_status_drop(
      lb_store_put_trial_result(s, key_of(1), "here", LB_TRIAL_RESULT_KEPT));
  lb_status_drop(lb_store_verify(s, &v));
  lb_status_drop(lb_store_export(s, testdir_at(&f->dir, "export"), &n));
  lb_status_drop(lb_store_repair(s));
  has(s, 1);
  lb_store_free(s);
}

static void every_allocation_may_fail(void **state) {
  fixture *f = *state;
  lb_store *s = fixture_open(f);
  assert_ok(put(s, 1));
  lb_store_free(s);
  long n = 0;
  for (bool all_failed = true; all_failed; n++) {
    countdown = n;
    live(f);
    all_failed = countdown < 0;
    countdown = -1;
    s = fixture_open(f);
    if (!has(s, 1)) fail_msg("allocation %ld: an entry is lost", n);
    assert_ok(put(s, 2));
    lb_store_free(s);
  }
  assert_true(n > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(every_allocation_may_fail, fixture_init,
                                      fixture_fini),
  };
  return cmocka_run_group_tests_name("store oom", tests, NULL, NULL);
}
