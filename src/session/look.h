// session/look.h -- runs that look at their steps: which of them lack their
// best kernel, and how long they take. Internal to the room.
//
// A run of a plan looks until no step of it lacks and none is on trial
// (cache/trial.h); from then on it costs one comparison, unless kernels are
// taken away again. Where a watcher looks too, steps run by their best kernels.
#ifndef LB_SESSION_LOOK_H
#define LB_SESSION_LOOK_H

#include "session/run.h"

typedef struct lb_look {
  lb_session *s;    // borrowed
  lb_meeting seen;  // this run
  unsigned reviews;
  bool lacks;    // some step does, or is on trial
  bool tries;    // times count in trials
  bool former;   // it runs slots on trial by what was there before
  uint64_t run;  // of the plan
  // The launch whose cover is being run, since when, and what comes behind it.
  const lb_step *covered, *behind;
  int64_t since;
} lb_look;

bool lb_look_needed(const lb_session *s, const lb_plan *plan);

void lb_look_begin(lb_look *l, lb_session *s, const lb_context *c,
                   lb_plan *plan);
// The slot whose kernel this launch is to do without, or NULL.
const lb_slot *lb_look_without(lb_look *l, const lb_step *step);
// This launch has no kernel: its cover is run.
void lb_look_cover(lb_look *l, const lb_step *step, int64_t start);
// This step was run.
void lb_look_step(lb_look *l, const lb_step *step, int64_t start, int64_t end);
void lb_look_end(lb_look *l, lb_plan *plan);

#endif
