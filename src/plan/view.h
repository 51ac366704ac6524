// plan/view.h -- operators that need no kernel: the output is the input with
// other dims and strides.
#ifndef LB_PLAN_VIEW_H
#define LB_PLAN_VIEW_H

#include "graph/graph.h"

// Whether outputs of this operator may be views.
bool lb_view_is(lb_op op);

// Computes output `index` of such a node as a view of its input 0. `in` holds
// what is known of the node's inputs (contents of deciding inputs; of an index,
// if known), `from` the strides of input 0; `out` has dtype and dims, and gets
// strides. *offset is in elements from the start of input 0. Returns false if
// it is not expressible with strides (a reshape of a strided view): the node
// then runs as a kernel.
bool lb_view_try(const lb_node *node, const lb_vinfo *in, const lb_tensor *from,
                 uint32_t index, lb_tensor *out, int64_t *offset);

// Splits and merges axes. Sets the strides of `out`, whose dims are set, so
// that it visits the memory of `from` in the same order; false if no strides
// do.
bool lb_view_reshape(const lb_tensor *from, lb_tensor *out);

#endif
