// session/step_profiler.h -- times the steps of a run, and reports those whose
// slots are pending or on trial. Internal to the module.
//
// Runs of a plan are profiled until none of its slots is pending or on trial
// (cache/trial.h); from then on profiling costs one comparison, unless kernels
// are evicted or withdrawn. In a run with a watcher, steps use their best
// kernels.
#ifndef LB_SESSION_STEP_PROFILER_H
#define LB_SESSION_STEP_PROFILER_H

#include "session/run.h"

typedef struct lb_step_profiler {
  lb_session *s;          // borrowed
  lb_slot_sample sample;  // of this run
  unsigned reviews;
  bool pending;    // some slot is pending or on trial
  bool in_trials;  // times count in trials
  bool baseline;   // slots on trial run their baseline
  uint64_t run;    // number of the run, unique per plan
  // The launch whose cover is running, when it started, and the step after the
  // cover.
  const lb_step *covered, *cover_end;
  int64_t since;
} lb_step_profiler;

bool lb_step_profiler_needed(const lb_session *s, const lb_plan *plan);

void lb_step_profiler_begin(lb_step_profiler *l, lb_session *s,
                            const lb_context *c, lb_plan *plan);
// The slot whose compiled kernel this launch must not use, or NULL.
const lb_slot *lb_step_profiler_without(lb_step_profiler *l,
                                        const lb_step *step);
// This launch has no kernel: its cover runs next.
void lb_step_profiler_cover(lb_step_profiler *l, const lb_step *step,
                            int64_t start);
// This step has run.
void lb_step_profiler_step(lb_step_profiler *l, const lb_step *step,
                           int64_t start, int64_t end);
void lb_step_profiler_end(lb_step_profiler *l, lb_plan *plan);

#endif
