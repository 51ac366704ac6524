// observe/window.h -- what a stream of numbers was lately: a decayed mean with
// confidence bounds, and whether it has just changed.
//
// Each number halves the weight of those `half_life` numbers before it. Pure
// functions; not thread-safe.
#ifndef LB_OBSERVE_WINDOW_H
#define LB_OBSERVE_WINDOW_H

#include <stdbool.h>

typedef struct lb_window {  // {0}: empty
  double weight, squares;   // sum of the weights, and of their squares
  double mean, variance;    // weighted
  double recent;            // mean over an eighth of the half-life
  double recent_weight;
} lb_window;

typedef struct lb_window_summary {
  double n;  // numbers that the mean stands for
  double mean;
  double lower, upper;  // of the mean, at 95 %; infinite for fewer than two
  bool drifted;  // recent numbers differ from the others by more than chance
} lb_window_summary;

void lb_window_add(lb_window *w, double x, double half_life);
lb_window_summary lb_window_summarise(const lb_window *w);

#endif
