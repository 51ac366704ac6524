// session/context_test.c -- the memory of a run, as shapes grow.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "session/context.h"

static lb_context *new_context(void) {
  lb_context *c;
  assert_false(lb_failed(lb_context_new(NULL, lb_device_none(), &c)));
  lb_context_begin(c, 0);
  return c;
}

static void grow(lb_context *c, size_t bytes) {
  assert_false(lb_failed(lb_context_arena(c, bytes)));
}

static void an_arena_that_grows_a_little_does_not_move(void **state) {
  (void)state;
  lb_context *c = new_context();
  grow(c, 100000);
  void *base = lb_context_base(c);
  for (size_t bytes = 100000; bytes < 200000; bytes += 1000) {
    grow(c, bytes);
    assert_ptr_equal(lb_context_base(c), base);
    assert_int_equal(c->budget->kept, bytes);  // no more than is used
  }
  memset(base, 1, c->arena_kept);
  lb_context_free(c);
}

static void arena_contents_survive_a_move(void **state) {
  (void)state;
  lb_context *c = new_context();
  grow(c, 1000);
  memset(lb_context_base(c), 7, 1000);
  grow(c, 10 << 20);
  const char *moved = lb_context_base(c);
  for (int i = 0; i < 1000; i++) assert_int_equal(moved[i], 7);
  lb_context_free(c);
}

static void a_limit_counts_used_bytes_and_reserves_no_more(void **state) {
  (void)state;
  lb_context *c = new_context();
  lb_context_begin(c, 10000);
  grow(c, 4000);
  assert_int_equal(c->arena_cap, 4000);
  grow(c, 10000);
  lb_status st = lb_context_arena(c, 10001);
  assert_int_equal(lb_status_code(st), LB_OOM);
  lb_status_drop(st);
  lb_context_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_arena_that_grows_a_little_does_not_move),
      cmocka_unit_test(arena_contents_survive_a_move),
      cmocka_unit_test(a_limit_counts_used_bytes_and_reserves_no_more),
  };
  return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
