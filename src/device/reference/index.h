// device/reference/index.h -- converts indices to offsets and checks them;
// shared by gather and scatter operators.
//
// Offsets are in bytes from x->data and stored in scratch, one per index or
// index tuple in row-major order. An index out of range is LB_INVALID, and the
// message names index, axis and dim. Indices are input 1 of the call.
#ifndef LB_DEVICE_REFERENCE_INDEX_H
#define LB_DEVICE_REFERENCE_INDEX_H

#include "device/reference/reference.h"

// Maps an index in [-dim, dim) to [0, dim).
lb_status lb_reference_index(int64_t index, int axis, int64_t dim,
                             int64_t *out);

// Checks, for GatherElements and ScatterElements, where an index replaces the
// coordinate along `axis` only, that the indices fit into x along the other
// axes.
lb_status lb_check_elements(const lb_tensor *x, const lb_tensor *indices,
                            int axis);

// Offsets for GatherND and ScatterND, where the last axis of `indices` holds
// index tuples.
lb_status lb_tuple_offsets(lb_reference_call *c, const lb_tensor *x,
                           const lb_tensor *indices, int64_t batch_dims,
                           int64_t **out, int64_t *n);

#endif
