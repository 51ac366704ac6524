// plan/disposition.h -- what became of each node in a plan, and why.
//
// Recorded by the planner where it decides, and read by explanations and tests:
// nobody has to find out again.
#ifndef LB_PLAN_DISPOSITION_H
#define LB_PLAN_DISPOSITION_H

#include "base/events.h"

typedef enum lb_disposition_kind {
  LB_NODE_NOT_NEEDED,  // no result that is wanted depends on it
  LB_NODE_NOT_TAKEN,   // it stands in a branch of an If that is not taken
  LB_NODE_BODY,        // in the body of a Loop or Scan, which has its own plans
  LB_NODE_LATER,       // only data can tell: a later stage plans it
  LB_NODE_BRANCH,      // an If: its branch is planned in its place
  LB_NODE_LOOP,        // a Loop or Scan: `step`
  LB_NODE_LAUNCHED,    // the anchor of the launch in `step`
  LB_NODE_FUSED,       // another member of that launch
  LB_NODE_CALLED,      // by its reference kernel, in `step`
  LB_NODE_VIEW,        // what it makes is a view of `value`
  LB_NODE_IN_PLACE,    // a Concat: what it reads is written into its result
  LB_NODE_COPIED,      // a Concat: some of that is copied, from `step` on
  LB_NODE_COMPUTED,    // while planning
} lb_disposition_kind;

typedef struct lb_disposition {
  uint8_t kind;    // lb_disposition_kind
  uint8_t reason;  // lb_reason: of CALLED, the condition that kept it there
  uint16_t proof;  // of what is skipped: which rule says so; 0: none
  uint32_t step;   // counted from the first step of the first stage on
  uint32_t value;  // id
} lb_disposition;

#define LB_NOT_NEEDED \
  ((lb_disposition){.kind = LB_NODE_NOT_NEEDED, .reason = LB_REASON_NOT_ASKED})

// Whether some step does what the node does.
static inline bool lb_disposition_runs(const lb_disposition *d) {
  return d->kind >= LB_NODE_LOOP && d->kind <= LB_NODE_CALLED;
}

#endif
