// session/eval.h -- evaluates one node on constants with the reference kernels,
// for the graph passes that fold constants.
#ifndef LB_SESSION_EVAL_H
#define LB_SESSION_EVAL_H

#include "graph/pass.h"

lb_eval_fn lb_eval_node;

#endif
