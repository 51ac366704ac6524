// cache/trial.h -- A/B trial of a slot's new kernel against the code it
// replaced.
//
// While a slot is *on trial*, whole runs of a plan alternate between the
// *candidate* (the new kernel) and the *baseline* (the built-in kernel, or the
// cover of the step), and report the time of the step. Times are compared at
// equal work: a *cell* holds the best times of both for one shape, and yields a
// pair once runs of the plan have measured both. If shapes do not recur, cells
// are evicted, and their times are compared across shapes, as time per cost.
//
// (1) Reporting a time never blocks: if another thread is inside, the time is
//     discarded.
// (2) A trial ends after at most LB_TRIAL_RUNS runs.
// (3) The thread whose report decides the trial is told so, and has the compile
//     service act on it (compile/service). Until then runs use the winner.
#ifndef LB_CACHE_TRIAL_H
#define LB_CACHE_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/paired.h"

#define LB_TRIAL_RUNS 100
#define LB_TRIAL_CELLS 8

typedef enum lb_trial_state {
  LB_TRIAL_NONE,  // no trial
  LB_TRIAL_OPEN,
  LB_TRIAL_KEPT,  // decided, but not acted upon yet
  LB_TRIAL_LOST,
} lb_trial_state;

typedef struct lb_trial_time {
  uint64_t work;  // identifies the work of the step: equal numbers, equal work;
                  // not 0
  double cost;    // expected time, in any unit; above 0
  uint64_t run;   // number of the run of the plan
  bool baseline;  // measured with the baseline
  int64_t ns;
} lb_trial_time;

typedef struct lb_trial_cell {
  uint64_t work;  // 0: free
  uint64_t run;   // the last run seen
  double cost;
  // Minimum of the candidate [0] and the baseline [1]; 0: none yet.
  int64_t ns[2];
} lb_trial_cell;

typedef struct lb_trial {  // {0}: no trial
  atomic_int state;        // lb_trial_state
  atomic_uint busy;        // fork count + 1 of the thread inside; 0: none
  // Guarded by `busy`.
  uint64_t run;        // the last run seen
  uint32_t runs;       // number of runs so far
  uint32_t next;       // next cell to evict
  double unpaired[2];  // time per cost of evicted cells that had one time only
  lb_trial_cell cells[LB_TRIAL_CELLS];
  lb_paired_test test;
} lb_trial;

static inline lb_trial_state lb_trial_at(const lb_trial *t) {
  return (lb_trial_state)atomic_load_explicit(&t->state, memory_order_relaxed);
}

// Prepares a trial, which is then opened. lb_trial_prepare may wait for a
// thread that is reporting; lb_trial_open does not.
void lb_trial_prepare(lb_trial *t);
static inline void lb_trial_open(lb_trial *t) {
  atomic_store(&t->state, LB_TRIAL_OPEN);
}
// Ends the trial without a decision.
static inline void lb_trial_end(lb_trial *t) {
  atomic_store(&t->state, LB_TRIAL_NONE);
}
// Adds a time. Returns true if it decided the trial.
bool lb_trial_add(lb_trial *t, const lb_trial_time *time);
// The statistics of a decided trial.
lb_paired_test lb_trial_paired_test(lb_trial *t);

#endif
