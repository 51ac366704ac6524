// tools/element_test.c -- tests element access, summaries and comparison.
#include "element.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void every_f16_round_trips(void **state) {
  (void)state;
  uint16_t from = 0, to = 0;
  limber_tensor a = {.dtype = LIMBER_F16, .data = &from};
  limber_tensor b = {.dtype = LIMBER_F16, .data = &to};
  for (uint32_t i = 0; i < 65536; i++) {
    from = (uint16_t)i;
    element_set(&b, 0, element_get(&a, 0), 0);
    if (!isnan(element_get(&a, 0)))
      assert_int_equal(from, to);
    else
      assert_true(isnan(element_get(&b, 0)));
  }
  element_set(&b, 0, 65520, 0);  // halfway from the maximum to 2^16
  assert_int_equal(to, 0x7c00);
}

static void floats_agree_within_the_tolerance(void **state) {
  (void)state;
  float x[3] = {1, 100, NAN}, y[3] = {1.001f, 100.09f, NAN};
  limber_tensor a = {.dtype = LIMBER_F32, .rank = 1, .dims = {3}, .data = x};
  limber_tensor b = {.dtype = LIMBER_F32, .rank = 1, .dims = {3}, .data = y};
  problem p;
  assert_true(agree(&a, &b, &p));
  y[1] = 100.2f;
  assert_false(agree(&a, &b, &p));
  assert_string_equal(p.text,
                      "1 of 3 elements differ, first [1]: 100, not 100.199997");
  y[1] = INFINITY;
  assert_false(agree(&a, &b, &p));
  x[1] = INFINITY;
  assert_true(agree(&a, &b, &p));
}

static void integers_agree_exactly(void **state) {
  (void)state;
  int64_t x[2] = {9007199254740992, 4}, y[2] = {9007199254740993, 4};
  limber_tensor a = {.dtype = LIMBER_I64, .rank = 2, .dims = {2, 1}, .data = x};
  limber_tensor b = a;
  b.data = y;
  problem p;
  assert_false(agree(&a, &b, &p));
  assert_string_equal(p.text,
                      "1 of 2 elements differ, first [0,0]: 9007199254740992, "
                      "not 9007199254740993");
  b.rank = 1;
  assert_false(agree(&a, &b, &p));
  assert_string_equal(p.text, "int64[2,1], not int64[2]");
}

static void summary_ignores_nan(void **state) {
  (void)state;
  float x[4] = {-1, NAN, 3, 4};
  limber_tensor t = {.dtype = LIMBER_F32, .rank = 1, .dims = {4}, .data = x};
  summary s = summarize(&t);
  assert_true(s.min == -1 && s.max == 4 && s.mean == 2);
  assert_int_equal(s.n_nan, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_f16_round_trips),
      cmocka_unit_test(floats_agree_within_the_tolerance),
      cmocka_unit_test(integers_agree_exactly),
      cmocka_unit_test(summary_ignores_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
