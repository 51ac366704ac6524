// graph/batch.h -- which inputs of a graph are batches of items that have
// nothing to do with each other.
//
// Each value is followed from the inputs on: along which axis its items lie,
// the batch being the outermost factor of that dim. An operator that may mix
// items, and one that nothing is known of, ends it. So does what depends on
// how many items there are, unless it is a shape. What is found holds for
// every shape: a run of some of the items gives their part of the results.
#ifndef LB_GRAPH_BATCH_H
#define LB_GRAPH_BATCH_H

#include "graph/graph.h"

// *out: by parameter of the main region, whether its axis 0 counts items; in
// the graph's arena. All results then have items along axis 0, as many rows
// for each. NULL: some result mixes them, or there is no batch. The graph's
// shapes have been inferred.
lb_status lb_batch_find(lb_graph *g, const bool **out);

#endif
