// device/reference/lines.h -- a tensor as lines, for operators that work on all
// elements along some axes, independently of the other axes.
//
// For any strides, axes and dtype, an operator sees dense lines of float or
// double; elements are copied only where necessary.
#ifndef LB_DEVICE_REFERENCE_LINES_H
#define LB_DEVICE_REFERENCE_LINES_H

#include "device/reference/reference.h"

// Computes one line of n elements from x to y; lb_f32 or lb_f64.
typedef void lb_line_fn(const void *user, int64_t n, const void *x, void *y);

typedef struct lb_line_fns {
  lb_line_fn *f32, *f64;
} lb_line_fns;

// `out` has the dims of `in` and a float dtype; bit i of `axes` is set if axis
// i belongs to the lines. float64 computes in double, other floats in float.
lb_status lb_lines_run(lb_reference_call *c, const lb_tensor *in,
                       const lb_tensor *out, uint32_t axes, lb_line_fns fns,
                       const void *user);

// t with the axes in `axes` moved behind the others, in the same order.
lb_tensor lb_axes_last(const lb_tensor *t, uint32_t axes);
// Number of elements along the axes in `axes`.
int64_t lb_axes_count(const lb_tensor *t, uint32_t axes);

// The dtype that floats of dtype t are computed in: LB_F32 or LB_F64.
static inline lb_dtype lb_line_dtype(lb_dtype t) {
  return t == LB_F64 ? LB_F64 : LB_F32;
}

// Declares `sum`, of type T, as the sum of TERM for i = 0, ..., n - 1; n > 0.
// See reference.h for the order of the additions.
#define LB_LINE_SUM(sum, n, TERM)                                  \
  double sum##_total = -0.0;                                       \
  for (int64_t i = 0; i < (n);) {                                  \
    const int64_t end_ =                                           \
        (n)-i < LB_REFERENCE_CHAIN ? (n) : i + LB_REFERENCE_CHAIN; \
    T chain_ = (T)-0.0;                                            \
    for (; i < end_; i++) chain_ += (TERM);                        \
    sum##_total += chain_;                                         \
  }                                                                \
  const T sum = (T)sum##_total

// LogSoftmax of lines, used by the losses.
lb_status lb_log_softmax(lb_reference_call *c, const lb_tensor *in,
                         const lb_tensor *out, uint32_t axes);

#endif
