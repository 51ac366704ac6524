// cache/trial.h -- a slot's new kernel against what it replaced, in real runs.
//
// While a slot is *on trial* runs take its kernel and its *former* code -- the
// pack's kernel, or the cover of the step -- in turns, whole runs of a plan by
// one of them, and tell what the step took. Times are compared at equal work: a
// *cell* holds the best times of both for one shape, and gives a pair once a
// run of the plan has done it by each. Where shapes do not come again, cells
// are given up for others, and what they hold is compared across shapes, by
// time over cost.
//
// (1) Telling never waits: who finds another thread there drops its time.
// (2) A trial ends after LB_TRIAL_RUNS runs at the latest.
// (3) Whoever ends it hears so, and has the service act on it: compile/service.
//     Until then runs keep to what won.
#ifndef LB_CACHE_TRIAL_H
#define LB_CACHE_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/paired.h"

#define LB_TRIAL_RUNS 100
#define LB_TRIAL_CELLS 8

typedef enum lb_trial_state {
  LB_TRIAL_NONE,  // nothing is asked
  LB_TRIAL_OPEN,
  LB_TRIAL_KEPT,  // it is decided, and not acted upon yet
  LB_TRIAL_LOST,
} lb_trial_state;

typedef struct lb_trial_time {
  uint64_t work;  // what the step does: equal numbers, equal work; not 0
  double cost;    // what it is expected to take, in any unit; above 0
  uint64_t run;   // of the plan: a number for each
  bool former;    // it was done by what was there before
  int64_t ns;
} lb_trial_time;

typedef struct lb_trial_cell {
  uint64_t work;  // 0: empty
  uint64_t run;   // the last one seen
  double cost;
  int64_t ns[2];  // the least of the later and the former; 0: none yet
} lb_trial_cell;

typedef struct lb_trial {  // {0}: none
  atomic_int state;        // lb_trial_state
  atomic_uint busy;        // fork count + 1 of the thread inside; 0: nobody
  // Of who is inside.
  uint64_t run;    // the last one seen
  uint32_t runs;   // so far
  uint32_t next;   // cell to give up
  double left[2];  // of cells given up that had one time: that over its cost
  lb_trial_cell cells[LB_TRIAL_CELLS];
  lb_paired_test contest;
} lb_trial;

static inline lb_trial_state lb_trial_at(const lb_trial *t) {
  return (lb_trial_state)atomic_load_explicit(&t->state, memory_order_relaxed);
}

// Makes one ready, which then is opened. The first may wait for a thread that
// tells; the second does not.
void lb_trial_prepare(lb_trial *t);
static inline void lb_trial_open(lb_trial *t) {
  atomic_store(&t->state, LB_TRIAL_OPEN);
}
// Ends it, whatever is known.
static inline void lb_trial_end(lb_trial *t) {
  atomic_store(&t->state, LB_TRIAL_NONE);
}
// True if this decided it.
bool lb_trial_add(lb_trial *t, const lb_trial_time *time);
// What was found; for one that is decided.
lb_paired_test lb_trial_found(lb_trial *t);

#endif
