// session/watch.h -- describes the steps of a run to a watcher.
#ifndef LB_SESSION_WATCH_H
#define LB_SESSION_WATCH_H

#include "base/events.h"
#include "cache/slots.h"
#include "graph/graph.h"

#define LB_NO_STEP UINT32_MAX

typedef struct lb_step_event {
  const lb_node *node;       // for a partition, its first; for a copy, the node
                             // whose elements it moves, or NULL
  const lb_slot *slot;       // NULL: a reference kernel, or a copy
  bool copies;               // elements unchanged
  lb_tier tier;              // of the code that ran
  lb_reason reason;          // why it is that tier
  int64_t dims[LB_SDIMS];    // of the kernel; 0: not used by its form
  int64_t outer;             // iterations of the loops around the kernel
  uint64_t bytes;            // of operands, each counted once
  uint64_t flops;            // 0 for a reference kernel: not counted
  int64_t start_ns, end_ns;  // of the monotonic clock
  uint64_t version;          // of the program that the step belongs to
  uint32_t step;             // as in lb_disposition.step of the main region's
                             // plan; LB_NO_STEP: in the body of a loop
} lb_step_event;

struct lb_plan;

// Nodes live as long as the session, slots as long as their table. A failure
// ends the run.
typedef struct lb_watcher {
  lb_status (*step)(void *user, const lb_step_event *e);
  void *user;
  // Called when all steps of the main region have run, with the plan of the
  // last stage; for micro-batches, after each. May be NULL.
  lb_status (*done)(void *user, struct lb_plan *plan);
} lb_watcher;

// Why a slot that has failed gets no kernel.
lb_reason lb_watch_fault(const lb_slot *slot);

// Sets all of *out except the times, the version and the number.
struct lb_step;
void lb_watch_step(const struct lb_step *step, lb_step_event *out);

#endif
