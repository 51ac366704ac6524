// plan/view.h -- operators that need no kernel: the output is the input seen
// with other dims and strides.
#ifndef LB_PLAN_VIEW_H
#define LB_PLAN_VIEW_H

#include "graph/graph.h"

// May its outputs be views?
bool lb_view_is(lb_op op);

// Output `index` of a node that may be one as a view of its input 0.
// `in` holds what is known of the node's inputs (contents of deciding ones; of
// an index, if known), `from` the strides of input 0; `out` has dtype and dims,
// and gets strides. *offset: elements from input 0's first. False: not
// expressible (a reshape of a strided view), so the node runs as a kernel.
bool lb_view_try(const lb_node *node, const lb_vinfo *in, const lb_tensor *from,
                 uint32_t index, lb_tensor *out, int64_t *offset);

// Splits and joins axes: true if `out`, whose dims are set, can be walked over
// the memory of `from`, in the same order.
bool lb_view_reshape(const lb_tensor *from, lb_tensor *out);

#endif
