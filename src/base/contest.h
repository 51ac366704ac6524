// base/contest.h -- two ways to do the same, timed in turns: is the later one
// slower than the former?
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
// (1) The later way is out as soon as it is slower beyond LB_CONTEST_SLACK and
//     noise; it stays as soon as that is ruled out.
// (2) After LB_CONTEST_PAIRS pairs the contest is over: what could not be told
//     by then is even.
//
// Pure. Not thread-safe.
#ifndef LB_BASE_CONTEST_H
#define LB_BASE_CONTEST_H

#include <stdint.h>

#define LB_CONTEST_PAIRS 32
#define LB_CONTEST_SLACK 0.03  // of the logarithm, so about 3 %

typedef enum lb_outcome {
  LB_OUTCOME_OPEN,
  LB_OUTCOME_FASTER,
  LB_OUTCOME_EVEN,  // surely not slower, or not to be told
  LB_OUTCOME_SLOWER,
} lb_outcome;

typedef struct lb_contest {  // {0}: no pair yet
  uint32_t n;
  float gains[LB_CONTEST_PAIRS];  // log(former / later), ascending
} lb_contest;

// Takes one more pair, of times in any unit; what is known then. Once it is not
// open any more, further pairs are ignored.
lb_outcome lb_contest_add(lb_contest *c, double former, double later);
lb_outcome lb_contest_outcome(const lb_contest *c);

// How often the later way is done in the time of the former, by the median: 2
// is twice as fast. 1 without pairs.
double lb_contest_ratio(const lb_contest *c);

#endif
