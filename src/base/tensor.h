// base/tensor.h -- a strided view of elements in memory, without ownership.
#ifndef LB_BASE_TENSOR_H
#define LB_BASE_TENSOR_H

#include "base/dtype.h"
#include "base/status.h"

#define LB_MAX_RANK 12
#define LB_MAX_COUNT (INT64_MAX / 16)  // elements; bytes fit for any dtype

typedef struct lb_tensor {
  lb_dtype dtype;  // LB_NONE: absent
  int rank;
  int64_t dims[LB_MAX_RANK];
  int64_t strides[LB_MAX_RANK];  // in elements; 0 repeats, negative reverses
  void *data;  // borrowed; element [0,...,0]; may be unaligned (mapped weights)
} lb_tensor;

// Sets row-major strides.
void lb_tensor_dense(lb_tensor *t);
bool lb_tensor_is_dense(const lb_tensor *t);
int64_t lb_tensor_count(const lb_tensor *t);  // elements; dims are checked
size_t lb_tensor_bytes(const lb_tensor *t);   // count * size of dtype

// Checks dims and counts their elements. A negative dim is an error; so is a
// product of the nonzero dims above LB_MAX_COUNT. Afterwards no product of any
// of the dims overflows.
lb_status lb_dims_count(int rank, const int64_t *dims, int64_t *out);

// The memory range of all elements: its bytes, from the lowest address to the
// end of the highest element, and how many of them are before `data` (negative
// strides). Dims must be checked. LB_INVALID if the range is not addressable.
lb_status lb_tensor_reach(const lb_tensor *t, size_t *bytes, size_t *before);
// True if the strides show that no two elements share memory: in the order of
// ascending strides, each stride is at least the extent of the axes before it.
// False for negative strides and for repeated elements.
bool lb_tensor_is_nonoverlapping(const lb_tensor *t);

// Writes "[1,3,48,320]" to buf (cap >= 1), truncated if too long; returns buf.
char *lb_dims_print(int rank, const int64_t *dims, char *buf, size_t cap);

// Copies elements between views of equal dims and dtype, with any strides. The
// two must not overlap.
void lb_tensor_copy(const lb_tensor *from, const lb_tensor *to);

#endif
