// device/reference/window.h -- windows that slide over spatial axes: what Conv,
// the pools and Col2Im have in common.
//
// Along axis d, tap t of window o lies at o*stride - pad + t*dilation, and
// exists where that is in [0, in). For a transposed convolution the roles of
// in and out are exchanged.
#ifndef LB_DEVICE_REFERENCE_WINDOW_H
#define LB_DEVICE_REFERENCE_WINDOW_H

#include "device/reference/reference.h"

typedef struct lb_window_geometry {
  int n;  // spatial axes
  int64_t in[LB_MAX_RANK], out[LB_MAX_RANK];
  int64_t kernel[LB_MAX_RANK], stride[LB_MAX_RANK], dilation[LB_MAX_RANK];
  int64_t pad[LB_MAX_RANK];      // before the first element
  int64_t pad_end[LB_MAX_RANK];  // after the last
} lb_window_geometry;

// From the node's strides, dilations, pads and auto_pad. w->n, in, out and
// kernel are set by the caller. Values that cannot be computed with are
// LB_INVALID.
lb_status lb_window_init(const lb_reference_call *c, lb_window_geometry *w);

// Strides, dilations and pads alone; an absent list leaves ones and zeros.
lb_status lb_window_attrs(const lb_reference_call *c, lb_window_geometry *w);

// After pads were set: every position a window reaches must be computable.
lb_status lb_window_check(const lb_reference_call *c,
                          const lb_window_geometry *w);

int64_t lb_window_taps(const lb_window_geometry *w);  // product of kernel

// The next index in row-major order; false after the last.
static inline bool lb_next_index(int n, const int64_t *dims, int64_t *index) {
  for (int d = n - 1; d >= 0; d--) {
    if (++index[d] < dims[d]) return true;
    index[d] = 0;
  }
  return false;
}

// The row-major index of element `at`.
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
