// session/step_profiler.h -- runs that look at their steps: which of them lack
// their best kernel, and how long they take. Internal to the room.
//
// A run of a plan looks until no step of it lacks and none is on trial
// (cache/trial.h); from then on it costs one comparison, unless kernels are
// taken away again. Where a watcher looks too, steps run by their best kernels.
#ifndef LB_SESSION_STEP_PROFILER_H
#define LB_SESSION_STEP_PROFILER_H

#include "session/run.h"

typedef struct lb_step_profiler {
  lb_session *s;        // borrowed
  lb_slot_sample seen;  // this run
  unsigned reviews;
  bool lacks;    // some step does, or is on trial
  bool tries;    // times count in trials
  bool former;   // it runs slots on trial by what was there before
  uint64_t run;  // of the plan
  // The launch whose cover is being run, since when, and what comes behind it.
  const lb_step *covered, *behind;
  int64_t since;
} lb_step_profiler;

bool lb_step_profiler_needed(const lb_session *s, const lb_plan *plan);

void lb_step_profiler_begin(lb_step_profiler *l, lb_session *s,
                            const lb_context *c, lb_plan *plan);
// The slot whose kernel this launch is to do without, or NULL.
const lb_slot *lb_step_profiler_without(lb_step_profiler *l,
                                        const lb_step *step);
// This launch has no kernel: its cover is run.
void lb_step_profiler_cover(lb_step_profiler *l, const lb_step *step,
                            int64_t start);
// This step was run.
void lb_step_profiler_step(lb_step_profiler *l, const lb_step *step,
                           int64_t start, int64_t end);
void lb_step_profiler_end(lb_step_profiler *l, lb_plan *plan);

#endif
