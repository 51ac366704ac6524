// base/paired.c -- is the later of two ways slower than the former?
#include "base/paired.h"

#include <math.h>
#include <stdbool.h>

#define FEWEST 6        // pairs that tell anything
#define STEADIEST 0.02  // no spread is taken for less: few pairs may agree

// Of a normal distribution, between quartiles; of its median against its mean.
#define QUARTILES 1.349
#define OF_MEDIAN 1.2533

// How many standard errors are beyond noise: the last time that is asked, fewer
// will do. Chosen so that of equal ways that spread by 5 %, every tenth time
// wildly, fewer than one in 200 is thought slower in all of a contest.
static double sureness(uint32_t n) {
  return n == LB_PAIRED_TEST_PAIRS ? 3 : 3.5 + 8.0 / n;
}

static double median(const lb_paired_test *c) {
  uint32_t n = c->n;
  return n % 2 ? c->gains[n / 2] : (c->gains[n / 2 - 1] + c->gains[n / 2]) / 2;
}

static double margin(const lb_paired_test *c) {
  uint32_t n = c->n;
  double spread = (c->gains[3 * n / 4] - c->gains[n / 4]) / QUARTILES;
  if (spread < STEADIEST) spread = STEADIEST;
  return sureness(n) * OF_MEDIAN * spread / sqrt(n);
}

lb_outcome lb_paired_test_outcome(const lb_paired_test *c) {
  if (c->n < FEWEST) return LB_OUTCOME_OPEN;
  double gain = median(c), noise = margin(c);
  if (gain + noise < -LB_PAIRED_TEST_SLACK) return LB_OUTCOME_SLOWER;
  if (gain - noise > 0) return LB_OUTCOME_FASTER;
  bool told = gain - noise > -LB_PAIRED_TEST_SLACK;
  return told || c->n == LB_PAIRED_TEST_PAIRS ? LB_OUTCOME_NO_DIFFERENCE
                                              : LB_OUTCOME_OPEN;
}

lb_outcome lb_paired_test_add(lb_paired_test *c, double former, double later) {
  lb_outcome known = lb_paired_test_outcome(c);
  if (known != LB_OUTCOME_OPEN || !(former > 0) || !(later > 0)) return known;
  float gain = (float)log(former / later);
  uint32_t i = c->n++;
  for (; i > 0 && c->gains[i - 1] > gain; i--) c->gains[i] = c->gains[i - 1];
  c->gains[i] = gain;
  return lb_paired_test_outcome(c);
}

double lb_paired_test_ratio(const lb_paired_test *c) {
  return c->n ? exp(median(c)) : 1;
}
