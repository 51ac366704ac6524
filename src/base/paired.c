// base/paired.c -- sequential paired test: is the candidate slower?
#include "base/paired.h"

#include <math.h>
#include <stdbool.h>

#define MIN_PAIRS 6      // below, the test stays open
#define MIN_SPREAD 0.02  // lower bound, because few pairs may agree by chance

// For a normal distribution, in units of its standard deviation: the
// interquartile range, and the standard error of the median of n values times
// sqrt(n).
#define IQR_OF_NORMAL 1.349
#define MEDIAN_ERROR 1.2533

// The half-width of the confidence interval in standard errors; smaller at the
// last evaluation. Chosen so that fewer than one in 200 complete tests of equal
// candidates, with a spread of 5 % and 10 % outliers, ends as slower.
static double standard_errors(uint32_t n) {
  return n == LB_PAIRED_TEST_PAIRS ? 3 : 3.5 + 8.0 / n;
}

static double median(const lb_paired_test *c) {
  uint32_t n = c->n;
  return n % 2 ? c->gains[n / 2] : (c->gains[n / 2 - 1] + c->gains[n / 2]) / 2;
}

static double margin(const lb_paired_test *c) {
  uint32_t n = c->n;
  double spread = (c->gains[3 * n / 4] - c->gains[n / 4]) / IQR_OF_NORMAL;
  if (spread < MIN_SPREAD) spread = MIN_SPREAD;
  return standard_errors(n) * MEDIAN_ERROR * spread / sqrt(n);
}

lb_outcome lb_paired_test_outcome(const lb_paired_test *c) {
  if (c->n < MIN_PAIRS) return LB_OUTCOME_OPEN;
  double gain = median(c), noise = margin(c);
  if (gain + noise < -LB_PAIRED_TEST_SLACK) return LB_OUTCOME_SLOWER;
  if (gain - noise > 0) return LB_OUTCOME_FASTER;
  bool not_slower = gain - noise > -LB_PAIRED_TEST_SLACK;
  return not_slower || c->n == LB_PAIRED_TEST_PAIRS ? LB_OUTCOME_NO_DIFFERENCE
                                                    : LB_OUTCOME_OPEN;
}

lb_outcome lb_paired_test_add(lb_paired_test *c, double baseline,
                              double candidate) {
  lb_outcome known = lb_paired_test_outcome(c);
  if (known != LB_OUTCOME_OPEN || !(baseline > 0) || !(candidate > 0))
    return known;
  float gain = (float)log(baseline / candidate);
  uint32_t i = c->n++;
  for (; i > 0 && c->gains[i - 1] > gain; i--) c->gains[i] = c->gains[i - 1];
  c->gains[i] = gain;
  return lb_paired_test_outcome(c);
}

double lb_paired_test_ratio(const lb_paired_test *c) {
  return c->n ? exp(median(c)) : 1;
}
