// device/reference/index.h -- indices, checked and turned into offsets: what
// gathering and scattering share.
//
// Offsets are in bytes from x->data, in scratch, one per index or index tuple
// in row-major order. An index out of range is LB_INVALID, naming index, axis
// and dim. Indices are input 1 of the call.
#ifndef LB_DEVICE_REFERENCE_INDEX_H
#define LB_DEVICE_REFERENCE_INDEX_H

#include "device/reference/reference.h"

// index in [-dim, dim) to [0, dim).
lb_status lb_reference_index(int64_t index, int axis, int64_t dim,
                             int64_t *out);

// Of GatherElements and ScatterElements, where an index replaces its own place
// along `axis`: do they lie within x along the others?
lb_status lb_check_elements(const lb_tensor *x, const lb_tensor *indices,
                            int axis);

// As in GatherND: the last axis holds tuples of indices.
lb_status lb_tuple_offsets(lb_reference_call *c, const lb_tensor *x,
                           const lb_tensor *indices, int64_t batch_dims,
                           int64_t **out, int64_t *n);

#endif
