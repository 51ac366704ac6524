// session/look.h -- runs that look at their steps: which of them lack their
// best kernel, and how long they take. Internal to the room.
//
// A run of a plan looks until no step of it lacks; from then on it costs one
// comparison, unless kernels are taken away again.
#ifndef LB_SESSION_LOOK_H
#define LB_SESSION_LOOK_H

#include "session/run.h"

typedef struct lb_look {
  lb_session *s;    // borrowed
  lb_meeting seen;  // this run
  unsigned setbacks;
  bool lacks;  // some step does
  // The launch whose cover is being run, since when, and what comes behind it.
  const lb_step *covered, *behind;
  int64_t since;
} lb_look;

bool lb_look_needed(const lb_session *s, const lb_plan *plan);

void lb_look_begin(lb_look *l, lb_session *s, const lb_context *c);
// This launch has no kernel: its cover is run.
void lb_look_cover(lb_look *l, const lb_step *step, int64_t start);
// This step was run.
void lb_look_step(lb_look *l, const lb_step *step, int64_t start, int64_t end);
void lb_look_end(lb_look *l, lb_plan *plan);

#endif
