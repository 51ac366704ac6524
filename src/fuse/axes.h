// fuse/axes.h -- where views move the axes of batch and sequence.
#ifndef LB_FUSE_AXES_H
#define LB_FUSE_AXES_H

#include "graph/graph.h"

typedef struct lb_axes_dims {
  lb_dim batch, seq, all;  // all: batch * seq
} lb_axes_dims;

// The axes of the result that axes *batch and *seq of input 0 become; the two
// may become one axis, which is then both. False if they do not remain axes.
bool lb_axes_moved(const lb_node *n, const lb_axes_dims *dims, int *batch,
                   int *seq);

// Whether the shape of its result depends on the batch, or may do so, so that
// it has to be stated anew for other rows.
bool lb_axes_states_shape(lb_op op);

// The axes that input i of a node lists, as bits; false if they are unknown.
bool lb_axes_listed(const lb_node *n, uint32_t i, int rank, uint32_t *out);

#endif
