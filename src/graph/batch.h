// graph/batch.h -- finds the inputs of a graph that are batches of independent
// items.
//
// The analysis follows each value from the inputs on and records the axis along
// which its items are; the batch is the outermost factor of that dim. An
// operator that may mix items, or has no rule, ends it. So does a value that
// depends on the number of items, unless it is a shape. The result holds for
// every shape: a run on some of the items gives their part of the outputs.
#ifndef LB_GRAPH_BATCH_H
#define LB_GRAPH_BATCH_H

#include "graph/graph.h"

// *out, indexed by the parameters of the main region, says whether axis 0 of
// each counts items; it is in the graph's arena. All results then have their
// items along axis 0, with the same number of rows for each. NULL: some result
// mixes items, or there is no batch. The graph's shapes must have been
// inferred.
lb_status lb_batch_find(lb_graph *g, const bool **out);

#endif
