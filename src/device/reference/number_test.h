// device/reference/number_test.h -- tensors of numbers that can be summed
// without rounding, so that results must match a naive oracle in double bit for
// bit.
//
// Numbers are multiples of 1/8 in [-2, 2] (integers in [-16, 16] for integer
// dtypes): products and sums of thousands of them are exact in float.
#ifndef LB_DEVICE_REFERENCE_NUMBER_TEST_H
#define LB_DEVICE_REFERENCE_NUMBER_TEST_H

#include <math.h>

#include "device/reference/case_test.h"

static inline double number_at(const lb_tensor *x, const int64_t *index) {
  double v;
  lb_tensor from = {.dtype = x->dtype, .data = case_at(x, index)};
  lb_tensor to = {.dtype = LB_F64, .data = &v};
  lb_status_drop(lb_reference_convert(&from, &to));
  return v;
}

static inline void number_set(const lb_tensor *x, const int64_t *index,
                              double v) {
  lb_tensor from = {.dtype = LB_F64, .data = &v};
  lb_tensor to = {.dtype = x->dtype, .data = case_at(x, index)};
  lb_status_drop(lb_reference_convert(&from, &to));
}

// Random numbers in a random layout.
static inline lb_tensor number_random(test_case *t, lb_dtype dtype, int rank,
                                      const int64_t *dims) {
  lb_tensor x = case_dense(t, dtype, rank, dims);
  CASE_EACH(&x, i) {
    double v = (double)case_int(t, -16, 16);
    if (lb_dtype_is_float(dtype)) v /= 8;
    if (!lb_dtype_is_float(dtype) && !lb_dtype_is_signed(dtype)) v = fabs(v);
    number_set(&x, i, v);
  }
  return case_scatter(t, &x);
}

static inline lb_tensor number_list(test_case *t, lb_dtype dtype, int rank,
                                    const int64_t *dims, const double *v) {
  lb_tensor x = case_dense(t, dtype, rank, dims);
  CASE_EACH(&x, i) number_set(&x, i, *v++);
  return x;
}

// Returns whether the element is v, rounded to its dtype.
static inline bool number_is(const lb_tensor *x, const int64_t *index,
                             double v) {
  uint64_t bits = 0;
  lb_tensor from = {.dtype = LB_F64, .data = &v};
  lb_tensor to = {.dtype = x->dtype, .data = &bits};
  lb_status_drop(lb_reference_convert(&from, &to));
  double a, b = number_at(x, index);
  lb_tensor back = {.dtype = LB_F64, .data = &a};
  lb_status_drop(lb_reference_convert(&to, &back));
  return a == b || (isnan(a) && isnan(b));
}

static inline bool number_near(const lb_tensor *x, const int64_t *index,
                               double v, double tolerance) {
  double d = fabs(number_at(x, index) - v);
  return d <= tolerance * (1 + fabs(v));
}

static inline lb_dtype number_float(test_case *t) {
  static const lb_dtype floats[] = {LB_F32, LB_F32, LB_F64, LB_F16, LB_BF16};
  return floats[case_int(t, 0, 4)];
}

#endif
