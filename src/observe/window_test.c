// observe/window_test.c -- windows against streams whose parameters are known.
#include "observe/window.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

// Uniform in [0, 1), the same stream for the same seed.
static double draw(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (double)(*state >> 40) / (double)(1 << 24);
}

static void an_empty_window_knows_nothing(void **state) {
  (void)state;
  lb_window_summary s = lb_window_summarise(&(lb_window){0});
  assert_true(s.n == 0);
  assert_true(isinf(s.lower) && isinf(s.upper));
  assert_false(s.drifted);
}

// Of 400 streams, about 5 % may have bounds without the true mean.
static void bounds_contain_the_mean(void **state) {
  (void)state;
  uint64_t seed = 1;
  int outside = 0;
  for (int i = 0; i < 400; i++) {
    lb_window w = {0};
    for (int k = 0; k < 60; k++) lb_window_add(&w, draw(&seed), 50);
    lb_window_summary s = lb_window_summarise(&w);
    outside += s.lower > 0.5 || s.upper < 0.5;
  }
  assert_in_range(outside, 4, 44);
}

static void older_numbers_are_forgotten(void **state) {
  (void)state;
  lb_window w = {0};
  for (int k = 0; k < 1000; k++) lb_window_add(&w, 5, 10);
  for (int k = 0; k < 10; k++) lb_window_add(&w, 1, 10);
  assert_true(fabs(lb_window_summarise(&w).mean - 3) < 0.1);
  for (int k = 0; k < 100; k++) lb_window_add(&w, 1, 10);
  assert_true(fabs(lb_window_summarise(&w).mean - 1) < 0.01);
}

static void a_change_is_drift_and_noise_is_not(void **state) {
  (void)state;
  uint64_t seed = 7;
  lb_window w = {0};
  int drifts = 0;
  for (int k = 0; k < 2000; k++) {
    lb_window_add(&w, draw(&seed), 64);
    drifts += lb_window_summarise(&w).drifted;
  }
  assert_true(drifts < 20);
  int runs = 0;
  while (!lb_window_summarise(&w).drifted && runs < 64) {
    lb_window_add(&w, draw(&seed) + 1, 64);
    runs++;
  }
  assert_in_range(runs, 1, 32);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_window_knows_nothing),
      cmocka_unit_test(bounds_contain_the_mean),
      cmocka_unit_test(older_numbers_are_forgotten),
      cmocka_unit_test(a_change_is_drift_and_noise_is_not),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
