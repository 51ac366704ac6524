// session/eval.h -- one node on constants, by the host kernels: what the graph
// passes fold with.
#ifndef LB_SESSION_EVAL_H
#define LB_SESSION_EVAL_H

#include "graph/pass.h"

lb_eval_fn lb_eval_node;

#endif
