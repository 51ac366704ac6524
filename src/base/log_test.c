// base/log_test.c -- lines of the right level reach the callback complete.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/log.h"

typedef struct heard {
  int lines, level;
  char text[4096];
} heard;

static void listen(void *user, int level, const char *line) {
  heard *h = user;
  h->lines++;
  h->level = level;
  snprintf(h->text, sizeof h->text, "%s", line);
}

static void lines_above_the_level_are_dropped(void **state) {
  (void)state;
  heard h = {0};
  lb_log log = {listen, &h, LB_LOG_WARN};
  lb_log_line(&log, LB_LOG_INFO, "no");
  lb_log_line(&log, LB_LOG_DEBUG, "no");
  assert_int_equal(h.lines, 0);
  lb_log_line(&log, LB_LOG_WARN, "dim %d", 3);
  assert_string_equal(h.text, "dim 3");
  assert_int_equal(h.level, LB_LOG_WARN);
  lb_log_line(&log, LB_LOG_ERROR, "yes");
  assert_int_equal(h.lines, 2);
}

static void long_lines_are_not_truncated(void **state) {
  (void)state;
  heard h = {0};
  lb_log log = {listen, &h, LB_LOG_DEBUG};
  lb_log_line(&log, LB_LOG_DEBUG, "%3000d", 1);
  assert_int_equal(strlen(h.text), 3000);
}

static void no_sink_is_silent(void **state) {
  (void)state;
  lb_log_line(NULL, LB_LOG_ERROR, "nobody hears %s", "this");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_above_the_level_are_dropped),
      cmocka_unit_test(long_lines_are_not_truncated),
      cmocka_unit_test(no_sink_is_silent),
  };
  return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
