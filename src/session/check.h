// session/check.h -- checks inputs against the model's declarations.
#ifndef LB_SESSION_CHECK_H
#define LB_SESSION_CHECK_H

#include "graph/graph.h"

// Checks dtype, rank, fixed dims, and that dims with the same name agree.
// LB_INVALID names the input, what was expected and what was given.
lb_status lb_check_inputs(const lb_graph *g, const lb_tensor *inputs);

#endif
