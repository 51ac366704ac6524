// base/paired.h -- two ways to do the same, timed in turns: is the later
// one slower than the former?
//
// Terms. A *pair* is a time of each at the same work, taken one soon after the
// other. It counts as the logarithm of its ratio, so that twice as fast and
// twice as slow are equally far from none.
//
// Times of real runs have a heavy tail on one side: another process, a page
// that is touched for the first time. So what is looked at is the median of the
// pairs and their quartiles, which a few wild pairs do not move. The question
// is asked after every pair; that it is asked often, and that few pairs know
// little of their own spread, is paid for by a wider interval at the beginning.
//
// (1) The later way is out as soon as it is slower beyond LB_PAIRED_TEST_SLACK
// and
//     noise; it stays as soon as that is ruled out.
// (2) After LB_PAIRED_TEST_PAIRS pairs the contest is over: what could not be
// told
//     by then is even.
//
// Pure. Not thread-safe.
#ifndef LB_BASE_PAIRED_H
#define LB_BASE_PAIRED_H

#include <stdint.h>

#define LB_PAIRED_TEST_PAIRS 32
#define LB_PAIRED_TEST_SLACK 0.03  // of the logarithm, so about 3 %

typedef enum lb_outcome {
  LB_OUTCOME_OPEN,
  LB_OUTCOME_FASTER,
  LB_OUTCOME_NO_DIFFERENCE,  // surely not slower, or not to be told
  LB_OUTCOME_SLOWER,
} lb_outcome;

typedef struct lb_paired_test {  // {0}: no pair yet
  uint32_t n;
  float gains[LB_PAIRED_TEST_PAIRS];  // log(former / later), ascending
} lb_paired_test;

// Takes one more pair, of times in any unit; what is known then. Once it is not
// open any more, further pairs are ignored.
lb_outcome lb_paired_test_add(lb_paired_test *c, double former, double later);
lb_outcome lb_paired_test_outcome(const lb_paired_test *c);

// How often the later way is done in the time of the former, by the median: 2
// is twice as fast. 1 without pairs.
double lb_paired_test_ratio(const lb_paired_test *c);

#endif
