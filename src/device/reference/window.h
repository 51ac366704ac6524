// device/reference/window.h -- sliding windows over spatial axes, shared by
// Conv, the pooling operators and Col2Im.
//
// Along axis d, tap t of window o is at o*stride - pad + t*dilation, and exists
// if that is in [0, in). For a transposed convolution the roles of in and out
// are exchanged.
#ifndef LB_DEVICE_REFERENCE_WINDOW_H
#define LB_DEVICE_REFERENCE_WINDOW_H

#include "device/reference/reference.h"

typedef struct lb_window_geometry {
  int n;  // number of spatial axes
  int64_t in[LB_MAX_RANK], out[LB_MAX_RANK];
  int64_t kernel[LB_MAX_RANK], stride[LB_MAX_RANK], dilation[LB_MAX_RANK];
  int64_t pad[LB_MAX_RANK];      // padding before the first element
  int64_t pad_end[LB_MAX_RANK];  // padding after the last
} lb_window_geometry;

// Reads the node's strides, dilations, pads and auto_pad. The caller has set
// w->n, in, out and kernel. LB_INVALID if positions would overflow.
lb_status lb_window_init(const lb_reference_call *c, lb_window_geometry *w);

// Reads strides, dilations and pads only; the defaults are ones and zeros.
lb_status lb_window_attrs(const lb_reference_call *c, lb_window_geometry *w);

// Checks, after pads were set, that no position of a window overflows.
lb_status lb_window_check(const lb_reference_call *c,
                          const lb_window_geometry *w);

int64_t lb_window_taps(const lb_window_geometry *w);  // product of kernel

// Advances to the next index in row-major order; false after the last.
static inline bool lb_next_index(int n, const int64_t *dims, int64_t *index) {
  for (int d = n - 1; d >= 0; d--) {
    if (++index[d] < dims[d]) return true;
    index[d] = 0;
  }
  return false;
}

// The multi-dimensional index of element `at` in row-major order.
static inline void lb_index_of(int64_t at, int n, const int64_t *dims,
                               int64_t *index) {
  for (int d = n - 1; d >= 0; d--) {
    index[d] = at % dims[d];
    at /= dims[d];
  }
}

static inline int64_t lb_reference_product(int n, const int64_t *dims) {
  int64_t p = 1;
  for (int d = 0; d < n; d++) p *= dims[d];
  return p;
}

#endif
