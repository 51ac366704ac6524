// base/paired_test.c -- verdicts on made-up times.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>

#include "base/paired.h"

// -- times
// ---------------------------------------------------------------------

typedef struct source {
  uint64_t state;
  double spread;  // of most times
  double wild;    // share of those that take up to three times as long
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

// A contest with a later way that is `speed` times as fast; how many pairs it
// took.
static lb_outcome decide(source *s, double speed, uint32_t *pairs) {
  lb_paired_test c = {0};
  lb_outcome known = LB_OUTCOME_OPEN;
  while (known == LB_OUTCOME_OPEN)
    known = lb_paired_test_add(&c, 100 * noise(s), 100 / speed * noise(s));
  *pairs = c.n;
  return known;
}

// Of 2000 contests, how many came out so, and how many pairs one took.
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

// -- claims
// --------------------------------------------------------------------

static void what_is_half_as_slow_again_is_out(void **state) {
  (void)state;
  double mean;
  assert_int_equal(count(1 / 1.5, 0.05, 0.1, LB_OUTCOME_SLOWER, &mean), 2000);
  assert_true(mean < 9);
  assert_true(count(1 / 1.5, 0.15, 0.1, LB_OUTCOME_SLOWER, &mean) > 1900);
  assert_int_equal(count(1 / 1.5, 0.15, 0.2, LB_OUTCOME_FASTER, &mean), 0);
}

static void equals_stay(void **state) {
  (void)state;
  double mean;
  assert_true(count(1, 0.02, 0.05, LB_OUTCOME_SLOWER, &mean) <= 2);
  assert_true(count(1, 0.05, 0.1, LB_OUTCOME_SLOWER, &mean) <= 10);
  assert_true(count(1, 0.15, 0.2, LB_OUTCOME_SLOWER, &mean) <= 20);
}

static void what_is_faster_is_soon_known_to_be(void **state) {
  (void)state;
  double mean;
  assert_true(count(1.5, 0.05, 0.1, LB_OUTCOME_FASTER, &mean) > 1900);
  assert_true(mean < 9);
  assert_int_equal(count(1.1, 0.05, 0.1, LB_OUTCOME_SLOWER, &mean), 0);
}

static void a_tenth_slower_is_out_where_times_are_steady(void **state) {
  (void)state;
  double mean;
  assert_true(count(1 / 1.1, 0.02, 0.05, LB_OUTCOME_SLOWER, &mean) > 1990);
}

static void a_contest_ends(void **state) {
  (void)state;
  lb_paired_test c = {0};
  for (int i = 0; i < 100; i++)
    lb_paired_test_add(&c, i % 2 ? 100 : 300, i % 2 ? 300 : 100);
  assert_int_equal(c.n, LB_PAIRED_TEST_PAIRS);
  assert_int_equal(lb_paired_test_outcome(&c), LB_OUTCOME_NO_DIFFERENCE);
  assert_true(fabs(lb_paired_test_ratio(&c) - 1) < 1e-6);
}

static void times_that_are_none_are_left_out(void **state) {
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
      cmocka_unit_test(what_is_half_as_slow_again_is_out),
      cmocka_unit_test(equals_stay),
      cmocka_unit_test(what_is_faster_is_soon_known_to_be),
      cmocka_unit_test(a_tenth_slower_is_out_where_times_are_steady),
      cmocka_unit_test(a_contest_ends),
      cmocka_unit_test(times_that_are_none_are_left_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
