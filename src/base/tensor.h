// base/tensor.h -- a view of elements in memory: no ownership, any strides.
#ifndef LB_BASE_TENSOR_H
#define LB_BASE_TENSOR_H

#include "base/dtype.h"
#include "base/status.h"

#define LB_MAX_RANK 12
#define LB_MAX_COUNT (INT64_MAX / 16)  // elements; so bytes fit in any dtype

typedef struct lb_tensor {
  lb_dtype dtype;  // LB_NONE: absent
  int rank;
  int64_t dims[LB_MAX_RANK];
  int64_t strides[LB_MAX_RANK];  // in elements; 0 repeats, negative reverses
  void *data;  // borrowed; element [0,...,0]; may be unaligned (mapped weights)
} lb_tensor;

// Row-major strides from dims.
void lb_tensor_dense(lb_tensor *t);
bool lb_tensor_is_dense(const lb_tensor *t);
int64_t lb_tensor_count(const lb_tensor *t);  // elements; dims were checked
size_t lb_tensor_bytes(const lb_tensor *t);   // count * size of dtype

// Elements of dims. Negative dims are an error, and so is a product of the dims
// other than 0 above LB_MAX_COUNT: no product of some of the dims overflows.
lb_status lb_dims_count(int rank, const int64_t *dims, int64_t *out);

// Bytes from the start of the first of all elements in memory to the end of the
// last, and how many of them lie before `data` (negative strides). Dims were
// checked; LB_INVALID where the elements are too far apart to be addressed.
lb_status lb_tensor_reach(const lb_tensor *t, size_t *bytes, size_t *before);
// Whether no two elements share memory, as strides tell: in the order of their
// strides, each axis steps over all that those before it reach. Negative
// strides and repeated elements do not.
bool lb_tensor_is_window(const lb_tensor *t);

// "[1,3,48,320]" into buf (cap >= 1), cut off if too long; returns buf.
char *lb_dims_print(int rank, const int64_t *dims, char *buf, size_t cap);

// Elementwise copy between equal dims and dtypes, any strides on both sides.
// The two must not overlap.
void lb_tensor_copy(const lb_tensor *from, const lb_tensor *to);

#endif
