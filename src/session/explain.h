// session/explain.h -- nodes that took no step in a run, and why.
#ifndef LB_SESSION_EXPLAIN_H
#define LB_SESSION_EXPLAIN_H

#include "session/session.h"

typedef lb_status lb_skip_fn(void *user, const lb_node *node, lb_reason why);

// Calls `fn` for each node of the main graph that none of a run's steps stands
// for: of those events, and with these inputs and wanted outputs. Events are
// not looked at any more once it is called.
lb_status lb_session_skips(lb_session *s, const lb_tensor *inputs,
                           const lb_output *outputs,
                           const lb_step_event *events, size_t n,
                           lb_skip_fn *fn, void *user);

#endif
