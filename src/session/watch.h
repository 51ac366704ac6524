// session/watch.h -- what one step of a run was, for whoever looks.
#ifndef LB_SESSION_WATCH_H
#define LB_SESSION_WATCH_H

#include "base/events.h"
#include "cache/slots.h"
#include "graph/graph.h"

typedef struct lb_step_event {
  const lb_node *node;       // of a partition: its first; NULL: a copy
  const lb_slot *slot;       // NULL: a host kernel
  lb_tier tier;              // of the code that ran
  lb_reason reason;          // why it is that tier
  int64_t dims[LB_SDIMS];    // of the kernel; 0: it has none
  int64_t outer;             // turns of the loops around the kernel
  uint64_t bytes;            // of operands, each counted once
  uint64_t flops;            // 0 for a host kernel: not counted
  int64_t start_ns, end_ns;  // of the monotonic clock
  uint64_t version;          // of the program that the step belongs to
} lb_step_event;

struct lb_plan;

// Nodes live as long as the session, slots as long as their table. A failure
// ends the run.
typedef struct lb_watcher {
  lb_status (*step)(void *user, const lb_step_event *e);
  void *user;
  // When all steps of the main region have run, with the plan of the last
  // stage; of a batch that is run in slices, after each. NULL: nobody asks.
  lb_status (*done)(void *user, struct lb_plan *plan);
} lb_watcher;

// Why a slot gets no kernel that is not to get one.
lb_reason lb_watch_fault(const lb_slot *slot);

// Fills all of *out but the times and the version.
struct lb_step;
void lb_watch_step(const struct lb_step *step, lb_step_event *out);

#endif
