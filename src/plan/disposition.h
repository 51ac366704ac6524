// plan/disposition.h -- what became of each node in a plan, and why.
//
// The planner records dispositions where it decides; explanations and tests
// read them instead of deriving them again.
#ifndef LB_PLAN_DISPOSITION_H
#define LB_PLAN_DISPOSITION_H

#include "base/events.h"
#include "graph/proof.h"

typedef enum lb_disposition_kind {
  LB_NODE_NOT_NEEDED,  // no requested result depends on it
  LB_NODE_NOT_TAKEN,   // in a branch of an If that is not taken
  LB_NODE_BODY,        // in the body of a Loop or Scan, which has plans of its
                       // own
  LB_NODE_LATER,       // depends on data: a later stage plans it
  LB_NODE_BRANCH,      // an If: its branch is planned in its place
  LB_NODE_LOOP,        // a Loop or Scan: `step`
  LB_NODE_LAUNCHED,    // the anchor of the launch in `step`
  LB_NODE_FUSED,       // another member of that launch
  LB_NODE_CALLED,      // by its reference kernel, in `step`
  LB_NODE_VIEW,        // its outputs are views of `value`, or have no elements
                       // that are read
  LB_NODE_IN_PLACE,    // a Concat: all inputs are written straight into its
                       // result
  LB_NODE_COPIED,      // by `step`, and for a Concat by the steps after it:
                       // its output is a view, but a reader needs other memory
                       // or other strides
  LB_NODE_COMPUTED,    // at planning time
} lb_disposition_kind;

// What the skip rule has proved, with the dims of the input that it is about.
typedef struct lb_skip_note {
  lb_proof proof;
  bool in_order;  // all elements of the input, in the same order
  int rank;       // -1: no input
  int64_t dims[];
} lb_skip_note;

typedef struct lb_disposition {
  uint8_t kind;    // lb_disposition_kind
  uint8_t reason;  // lb_reason; of CALLED and COPIED: why it was not launched
                   // or skipped
  bool skipped;    // it does nothing at these shapes: no step executes it
  uint32_t step;   // counted from the first step of the first stage
  uint32_t value;  // id
  const lb_skip_note *skip;  // of a view, copied or not; in the arena of the
                             // plan or of a parent
} lb_disposition;

#define LB_NOT_NEEDED                           \
  ((lb_disposition){.kind = LB_NODE_NOT_NEEDED, \
                    .reason = LB_REASON_NOT_REQUESTED})

// Whether a step executes the node.
static inline bool lb_disposition_runs(const lb_disposition *d) {
  return (d->kind >= LB_NODE_LOOP && d->kind <= LB_NODE_CALLED) ||
         d->kind == LB_NODE_COPIED;
}

#endif
