// base/paired_test.c -- outcomes of the paired test on simulated times.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>

#include "base/paired.h"

// -- times --------------------------------------------------------------------

typedef struct source {
  uint64_t state;
  double spread;  // of most times
  double wild;    // share of outliers, which take up to three times as long
} source;

static double uniform(source *s) {
  s->state = s->state * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (double)(s->state >> 11) / (double)(UINT64_C(1) << 53);
}

static double noise(source *s) {
  double x = 0;
  for (int i = 0; i < 12; i++) x += uniform(s);
  double t = exp(s->spread * (x - 6));
  return uniform(s) < s->wild ? t * (1 + 2 * uniform(s)) : t;
}

// Tests a candidate that is `speed` times as fast; returns the number of pairs.
static lb_outcome decide(source *s, double speed, uint32_t *pairs) {
  lb_paired_test c = {0};
  lb_outcome known = LB_OUTCOME_OPEN;
  while (known == LB_OUTCOME_OPEN)
    known = lb_paired_test_add(&c, 100 * noise(s), 100 / speed * noise(s));
  *pairs = c.n;
  return known;
}

// Runs 2000 tests: how many had that outcome, and the mean number of pairs.
static int count(double speed, double spread, double wild, lb_outcome outcome,
                 double *mean) {
  int n = 0;
  *mean = 0;
  for (uint64_t seed = 1; seed <= 2000; seed++) {
    source s = {.state = seed, .spread = spread, .wild = wild};
    uint32_t pairs;
    n += decide(&s, speed, &pairs) == outcome;
    *mean += pairs / 2000.0;
  }
  return n;
}

// -- tests --------------------------------------------------------------------

static void a_candidate_half_as_slow_again_is_rejected(void **state) {
  (void)state;
  double mean;
  assert_int_equal(count(1 / 1.5, 0.05, 0.1, LB_OUTCOME_SLOWER, &mean), 2000);
  assert_true(mean < 9);
  assert_true(count(1 / 1.5, 0.15, 0.1, LB_OUTCOME_SLOWER, &mean) > 1900);
  assert_int_equal(count(1 / 1.5, 0.15, 0.2, LB_OUTCOME_FASTER, &mean), 0);
}

static void an_equal_candidate_is_kept(void **state) {
  (void)state;
  double mean;
  assert_true(count(1, 0.02, 0.05, LB_OUTCOME_SLOWER, &mean) <= 2);
  assert_true(count(1, 0.05, 0.1, LB_OUTCOME_SLOWER, &mean) <= 10);
  assert_true(count(1, 0.15, 0.2, LB_OUTCOME_SLOWER, &mean) <= 20);
}

static void a_faster_candidate_is_soon_recognised(void **state) {
  (void)state;
  double mean;
  assert_true(count(1.5, 0.05, 0.1, LB_OUTCOME_FASTER, &mean) > 1900);
  assert_true(mean < 9);
  assert_int_equal(count(1.1, 0.05, 0.1, LB_OUTCOME_SLOWER, &mean), 0);
}

static void ten_percent_slower_is_rejected_if_times_are_steady(void **state) {
  (void)state;
  double mean;
  assert_true(count(1 / 1.1, 0.02, 0.05, LB_OUTCOME_SLOWER, &mean) > 1990);
}

static void a_test_ends_after_the_maximum_of_pairs(void **state) {
  (void)state;
  lb_paired_test c = {0};
  for (int i = 0; i < 100; i++)
    lb_paired_test_add(&c, i % 2 ? 100 : 300, i % 2 ? 300 : 100);
  assert_int_equal(c.n, LB_PAIRED_TEST_PAIRS);
  assert_int_equal(lb_paired_test_outcome(&c), LB_OUTCOME_NO_DIFFERENCE);
  assert_true(fabs(lb_paired_test_ratio(&c) - 1) < 1e-6);
}

static void times_that_are_not_positive_are_ignored(void **state) {
  (void)state;
  lb_paired_test c = {0};
  assert_int_equal(lb_paired_test_add(&c, 0, 5), LB_OUTCOME_OPEN);
  assert_int_equal(lb_paired_test_add(&c, 5, -1), LB_OUTCOME_OPEN);
  assert_int_equal(lb_paired_test_add(&c, NAN, 5), LB_OUTCOME_OPEN);
  assert_int_equal(c.n, 0);
  assert_true(fabs(lb_paired_test_ratio(&c) - 1) < 1e-6);
  lb_paired_test_add(&c, 10, 5);
  assert_true(fabs(lb_paired_test_ratio(&c) - 2) < 1e-6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_candidate_half_as_slow_again_is_rejected),
      cmocka_unit_test(an_equal_candidate_is_kept),
      cmocka_unit_test(a_faster_candidate_is_soon_recognised),
      cmocka_unit_test(ten_percent_slower_is_rejected_if_times_are_steady),
      cmocka_unit_test(a_test_ends_after_the_maximum_of_pairs),
      cmocka_unit_test(times_that_are_not_positive_are_ignored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
