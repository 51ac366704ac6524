// base/paired.h -- sequential paired test: is the candidate slower than the
// baseline?
//
// A *pair* is one time of each for the same work, measured shortly after each
// other. The test uses the logarithm of their ratio, so that twice as fast and
// twice as slow are equally far from no difference.
//
// Times of real runs have a heavy upper tail: other processes, page faults. So
// the test uses the median of the pairs and their quartiles, which a few
// outliers do not move. It is evaluated after every pair; a wider confidence
// interval at the beginning compensates for repeated evaluation and for the
// uncertain spread of few pairs.
//
// (1) The candidate is rejected as soon as it is slower by more than
//     LB_PAIRED_TEST_SLACK plus noise; it is kept as soon as that is ruled out.
// (2) After LB_PAIRED_TEST_PAIRS pairs the test ends: if it is undecided, there
//     is no difference.
//
// Pure functions. Not thread-safe.
#ifndef LB_BASE_PAIRED_H
#define LB_BASE_PAIRED_H

#include <stdint.h>

#define LB_PAIRED_TEST_PAIRS 32
#define LB_PAIRED_TEST_SLACK 0.03  // of the logarithm, so about 3 %

typedef enum lb_outcome {
  LB_OUTCOME_OPEN,
  LB_OUTCOME_FASTER,
  LB_OUTCOME_NO_DIFFERENCE,  // certainly not slower, or undecided at the end
  LB_OUTCOME_SLOWER,
} lb_outcome;

typedef struct lb_paired_test {  // {0}: no pair yet
  uint32_t n;
  float gains[LB_PAIRED_TEST_PAIRS];  // log(baseline / candidate), ascending
} lb_paired_test;

// Adds a pair of times, in any unit, and returns the outcome so far. Once it is
// not LB_OUTCOME_OPEN, further pairs are ignored.
lb_outcome lb_paired_test_add(lb_paired_test *c, double baseline,
                              double candidate);
lb_outcome lb_paired_test_outcome(const lb_paired_test *c);

// The median of baseline / candidate: 2 means that the candidate is twice as
// fast. 1 without pairs.
double lb_paired_test_ratio(const lb_paired_test *c);

#endif
