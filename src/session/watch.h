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

struct lb_output;

// Nodes live as long as the session, slots as long as their table. A failure
// ends the run.
typedef struct lb_watcher {
  lb_status (*step)(void *user, const lb_step_event *e);
  void *user;
  // When all steps have run; NULL: nobody asks. As lb_session_run has them.
  lb_status (*done)(void *user, const lb_tensor *inputs,
                    const struct lb_output *outputs);
} lb_watcher;

// Why a slot gets no kernel that is not to get one.
lb_reason lb_watch_fault(const lb_slot *slot);

// Fills all of *out but the times and the version.
struct lb_step;
void lb_watch_step(const struct lb_step *step, lb_step_event *out);

#endif
