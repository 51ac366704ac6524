// base/status_test.c -- errors carry a code, a message and a trail.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/status.h"

static lb_status begin(void) { return lb_error(LB_INVALID, "dim %d", 7); }

static lb_status pass_on(void) {
  LB_TRY(begin());
  return LB_OK;
}

static void success_has_no_message(void **state) {
  (void)state;
  lb_status st = LB_OK;
  assert_false(lb_failed(st));
  assert_int_equal(lb_status_code(st), LB_CODE_OK);
  assert_string_equal(lb_status_message(st), "");
  assert_string_equal(lb_status_where(st), "");
  assert_false(lb_failed(lb_status_note(st, "note")));
  assert_false(lb_failed(lb_status_trail(st, "a.c", 1)));
  lb_status_drop(st);
}

static void failure_keeps_code_and_message(void **state) {
  (void)state;
  lb_status st = begin();
  assert_true(lb_failed(st));
  assert_int_equal(lb_status_code(st), LB_INVALID);
  assert_string_equal(lb_status_message(st), "dim 7");
  lb_status_drop(st);
}

static void trail_starts_where_it_began(void **state) {
  (void)state;
  lb_status st = pass_on();
  int from = 0, to = 0;
  assert_int_equal(sscanf(lb_status_where(st),
                          "status_test.c:%d < status_test.c:%d", &from, &to),
                   2);
  assert_true(from > 0 && to > from);
  lb_status_drop(st);
}

static void a_long_trail_has_only_complete_locations(void **state) {
  (void)state;
  lb_status st = lb_error_at("x/first.c", 1, LB_IO, "m");
  for (int i = 0; i < 1000; i++) st = lb_status_trail(st, "/y/next.c", 22);
  const char *where = lb_status_where(st);
  assert_memory_equal(where, "first.c:1 < next.c:22 < ", 24);
  assert_string_equal(where + strlen(where) - 9, "next.c:22");
  lb_status_drop(st);
}

static void notes_go_in_front(void **state) {
  (void)state;
  lb_status st = begin();
  st = lb_status_note(st, "node '%s'", "conv1");
  st = lb_status_note(st, "model");
  assert_string_equal(lb_status_message(st), "model: node 'conv1': dim 7");
  lb_status_drop(st);
}

static void every_code_has_a_name(void **state) {
  (void)state;
  assert_string_equal(lb_code_name(LB_CODE_OK), "ok");
  assert_string_equal(lb_code_name(LB_OOM), "out of memory");
  for (int c = LB_CODE_OK; c <= LB_INTERNAL; c++)
    assert_string_not_equal(lb_code_name((lb_code)c), "unknown");
  assert_string_equal(lb_code_name((lb_code)99), "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(success_has_no_message),
      cmocka_unit_test(failure_keeps_code_and_message),
      cmocka_unit_test(trail_starts_where_it_began),
      cmocka_unit_test(a_long_trail_has_only_complete_locations),
      cmocka_unit_test(notes_go_in_front),
      cmocka_unit_test(every_code_has_a_name),
  };
  return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
