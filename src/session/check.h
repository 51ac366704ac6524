// session/check.h -- inputs against what the model declares.
#ifndef LB_SESSION_CHECK_H
#define LB_SESSION_CHECK_H

#include "graph/graph.h"

// Dtype, rank, fixed dims, and dims of one name that must agree. LB_INVALID
// with the input, what was expected and what came.
lb_status lb_check_inputs(const lb_graph *g, const lb_tensor *inputs);

#endif
