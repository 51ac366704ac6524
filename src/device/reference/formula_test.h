// device/reference/formula_test.h -- reads and writes tensor elements of any
// dtype as numbers, for tests that compare with formulas in double or int64.
#ifndef LB_DEVICE_REFERENCE_FORMULA_TEST_H
#define LB_DEVICE_REFERENCE_FORMULA_TEST_H

#include <math.h>

#include "device/reference/case_test.h"

static const lb_dtype float_dtypes[] = {LB_F32, LB_F64, LB_F16, LB_BF16};
static const lb_dtype int_dtypes[] = {LB_I8, LB_I16, LB_I32, LB_I64,
                                      LB_U8, LB_U16, LB_U32, LB_U64};

static inline lb_dtype case_float(test_case *t) {
  return float_dtypes[case_int(t, 0, 3)];
}

static inline lb_dtype case_integer(test_case *t) {
  return int_dtypes[case_int(t, 0, 7)];
}

// The relative error of one rounding to `dtype`.
static inline double rounding(lb_dtype dtype) {
  switch (dtype) {
    case LB_F64: return 0x1p-52;
    case LB_F16: return 0x1p-10;
    case LB_BF16: return 0x1p-7;
    default: return 0x1p-23;
  }
}

static inline void put(const lb_tensor *x, const int64_t *index, double v) {
  lb_tensor from = {.dtype = LB_F64, .data = &v};
  lb_tensor to = {.dtype = x->dtype, .data = case_at(x, index)};
  assert_int_equal(lb_status_code(lb_reference_convert(&from, &to)),
                   LB_CODE_OK);
}

static inline double number(const lb_tensor *x, const int64_t *index) {
  double v;
  lb_tensor from = {.dtype = x->dtype, .data = case_at(x, index)};
  lb_tensor to = {.dtype = LB_F64, .data = &v};
  assert_int_equal(lb_status_code(lb_reference_convert(&from, &to)),
                   LB_CODE_OK);
  return v;
}

// The element as int64, wrapping.
static inline int64_t whole(const lb_tensor *x, const int64_t *index) {
  int64_t v;
  lb_tensor from = {.dtype = x->dtype, .data = case_at(x, index)};
  lb_tensor to = {.dtype = LB_I64, .data = &v};
  assert_int_equal(lb_status_code(lb_reference_convert(&from, &to)),
                   LB_CODE_OK);
  return v;
}

static inline double case_number(test_case *t, double lo, double hi) {
  return lo + (hi - lo) * (double)case_int(t, 0, 1 << 20) * 0x1p-20;
}

// Random numbers from lo to hi, in a random layout.
static inline lb_tensor case_numbers(test_case *t, lb_dtype dtype, int rank,
                                     const int64_t *dims, double lo,
                                     double hi) {
  lb_tensor x = case_dense(t, dtype, rank, dims);
  CASE_EACH(&x, i) put(&x, i, case_number(t, lo, hi));
  return case_scatter(t, &x);
}

static inline int case_dims(test_case *t, int min_rank, int max_rank,
                            int64_t *dims) {
  int rank = (int)case_int(t, min_rank, max_rank);
  for (int i = 0; i < rank; i++) dims[i] = case_dim(t);
  return rank;
}

// A vector of n numbers, dense.
static inline lb_tensor case_floats(test_case *t, lb_dtype dtype,
                                    const double *v, int64_t n) {
  lb_tensor x = case_dense(t, dtype, 1, &n);
  CASE_EACH(&x, i) put(&x, i, v[i[0]]);
  return x;
}

// The index into x that corresponds to `index`, of `rank` dims, by
// broadcasting.
static inline void broadcast(const lb_tensor *x, int rank, const int64_t *index,
                             int64_t *out) {
  for (int i = 0; i < x->rank; i++)
    out[i] = x->dims[i] == 1 ? 0 : index[i + rank - x->rank];
}

// Equal up to `tol`, relative or absolute below 1; NaN equals NaN.
static inline bool near(double a, double b, double tol) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (isinf(a) || isinf(b)) return a == b;
  return fabs(a - b) <= tol * fmax(1, fabs(b));
}

// The same number with the same sign, zeros included; or both NaN.
static inline bool same(double a, double b) {
  return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

// Calls `fn` on vectors of `dtype` and expects exactly `want` in `out`.
typedef struct example {
  lb_op op;
  lb_reference_fn *fn;
  lb_dtype dtype, out;
  int n, n_in;
  double in[3][8], want[8];
} example;

static inline void check_example(const example *e) {
  test_case t = {.name = lb_op_infos[e->op].name};
  case_begin(&t, e->op);
  for (int k = 0; k < e->n_in; k++)
    case_in(&t, case_floats(&t, e->dtype, e->in[k], e->n));
  int64_t n = e->n;
  t.out[0] = case_dense(&t, e->out, 1, &n);
  assert_int_equal(case_run(&t, e->fn), LB_CODE_OK);
  CASE_EACH(&t.out[0], i) {
    double got = number(&t.out[0], i), want = e->want[i[0]];
    if (!same(got, want))
      fail_msg("%s of %s, element %lld: %g, not %g", t.name,
               lb_dtype_name(e->dtype), (long long)i[0], got, want);
  }
  case_end(&t);
}

#endif
