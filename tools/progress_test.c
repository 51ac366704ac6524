// tools/progress_test.c -- tests the text of a progress bar.
#include "progress.h"

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

static void a_bar_fills_its_width(void **state) {
  (void)state;
  char text[256];
  progress p = {.what = "kernels", .done = 5, .total = 10, .start_ms = 1000};
  progress_text(&p, 4000, 32, text, sizeof text);
  assert_string_equal(text, "[######......] 5/10 kernels, 3 s");
  progress_text(&p, 4000, 200, text, sizeof text);
  assert_int_equal(strcspn(text, "."), 1 + 20);
  p.done = 12;  // more than `total`
  progress_text(&p, 4000, 33, text, sizeof text);
  assert_string_equal(text, "[############] 12/12 kernels, 3 s");
}

static void a_narrow_terminal_gets_no_bar(void **state) {
  (void)state;
  char text[256];
  progress p = {.what = "shapes"};
  progress_text(&p, 0, 10, text, sizeof text);
  assert_string_equal(text, "0/0 shapes, 0 s");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_bar_fills_its_width),
      cmocka_unit_test(a_narrow_terminal_gets_no_bar),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
