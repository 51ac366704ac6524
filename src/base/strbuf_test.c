// base/strbuf_test.c -- appends of any length, and one check at the end.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"

static void a_zeroed_buffer_is_the_empty_string(void **state) {
  (void)state;
  lb_strbuf s = {0};
  assert_string_equal(lb_strbuf_str(&s), "");
  assert_false(lb_failed(lb_strbuf_status(&s)));
  lb_strbuf_putn(&s, NULL, 0);
  lb_strbuf_puts(&s, "");
  assert_string_equal(lb_strbuf_str(&s), "");
  lb_strbuf_fini(&s);
}

static void appends_add_up(void **state) {
  (void)state;
  lb_strbuf s = {0};
  lb_strbuf_putc(&s, 'a');
  lb_strbuf_puts(&s, "bc");
  lb_strbuf_putn(&s, "defgh", 2);
  lb_strbuf_printf(&s, "-%d-%s", 42, "x");
  assert_string_equal(lb_strbuf_str(&s), "abcde-42-x");
  assert_int_equal(s.len, 10);
  lb_strbuf_fini(&s);
  assert_string_equal(lb_strbuf_str(&s), "");
}

static void every_length_stays_terminated(void **state) {
  (void)state;
  lb_strbuf by_char = {0}, by_format = {0};
  for (size_t n = 1; n <= 1000; n++) {
    lb_strbuf_putc(&by_char, 'x');
    lb_strbuf_printf(&by_format, "%c", 'x');
    assert_int_equal(strlen(lb_strbuf_str(&by_char)), n);
    assert_int_equal(strlen(lb_strbuf_str(&by_format)), n);
  }
  lb_strbuf_printf(&by_format, "%5000d", 1);
  assert_int_equal(strlen(lb_strbuf_str(&by_format)), 6000);
  lb_strbuf_fini(&by_char);
  lb_strbuf_fini(&by_format);
}

static void a_failure_is_remembered(void **state) {
  (void)state;
  lb_strbuf s = {0};
  lb_strbuf_puts(&s, "kept");
  lb_strbuf_putn(&s, "", SIZE_MAX);  // overflows before a byte is read
  lb_strbuf_puts(&s, " not added");
  assert_string_equal(lb_strbuf_str(&s), "kept");
  lb_status st = lb_strbuf_status(&s);
  assert_int_equal(lb_status_code(st), LB_OOM);
  lb_status_drop(st);
  lb_strbuf_fini(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_zeroed_buffer_is_the_empty_string),
      cmocka_unit_test(appends_add_up),
      cmocka_unit_test(every_length_stays_terminated),
      cmocka_unit_test(a_failure_is_remembered),
  };
  return cmocka_run_group_tests_name("strbuf", tests, NULL, NULL);
}
