// device/reference/create.c -- operators that create tensors from shapes or
// scalars.
#include <string.h>

#include "device/reference/elem.h"
#include "device/reference/iter.h"
#include "device/reference/move.h"

lb_status lb_reference_Shape(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  int64_t start = lb_attr_int(c->node, "start", 0);
  if (start < 0) start += x->rank;
  if (start < 0) start = 0;
  int64_t n = lb_tensor_count(y);
  if (n > 0 && (start > x->rank || n > x->rank - start))
    return lb_error(LB_INVALID,
                    "%lld dims starting at dim %lld do not fit rank %d",
                    (long long)n, (long long)start, x->rank);
  lb_i64 *out = y->data;
  for (int64_t i = 0; i < n; i++) out[i] = x->dims[start + i];
  return LB_OK;
}

lb_status lb_reference_Size(lb_reference_call *c) {
  *(lb_i64 *)c->out[0].data = lb_tensor_count(&c->in[0]);
  return LB_OK;
}

lb_status lb_reference_ConstantOfShape(lb_reference_call *c) {
  const lb_attr *value = lb_attr_find(c->node, "value", LB_ATTR_TENSOR);
  if (value && (lb_tensor_count(value->tensor) != 1 ||
                value->tensor->dtype != c->out[0].dtype))
    return lb_error(LB_INVALID, "value must be one %s, not %lld of %s",
                    lb_dtype_name(c->out[0].dtype),
                    (long long)lb_tensor_count(value->tensor),
                    lb_dtype_name(value->tensor->dtype));
  lb_fill(c->pool, &c->out[0], value ? value->tensor->data : NULL);
  return LB_OK;
}

// -- Range -------------------------------------------------------------------

typedef void range_fn(const lb_reference_call *c, int64_t n);

// Floats are computed in double and rounded once, integers wrap.
#define RANGE(id, S, T, load, store, W)                                      \
  static void range_##id(const lb_reference_call *c, int64_t n) {            \
    W start = (W)load(*(const S *)c->in[0].data);                            \
    W delta = (W)load(*(const S *)c->in[2].data);                            \
    S *y = c->out[0].data;                                                   \
    for (int64_t i = 0; i < n; i++) y[i] = store((T)(start + (W)i * delta)); \
  }
LB_FLOATS(RANGE, double)
LB_INTS(RANGE, uint64_t)

lb_status lb_reference_Range(lb_reference_call *c) {
#define ENTRY(id, S, T, load, store, ...) [LB_##id] = range_##id,
  static range_fn *const fns[LB_DTYPE_COUNT] = {LB_NUMBERS(ENTRY, )};
  lb_dtype dtype = c->out[0].dtype;
  if (!fns[dtype]) return lb_reference_bad_dtype(c, dtype);
  for (int i = 0; i < 3; i++)
    if (lb_tensor_count(&c->in[i]) != 1 || c->in[i].dtype != dtype)
      return lb_error(LB_INVALID, "input %d must be one %s", i,
                      lb_dtype_name(dtype));
  fns[dtype](c, lb_tensor_count(&c->out[0]));
  return LB_OK;
}

// -- EyeLike, OneHot ---------------------------------------------------------

// Writes the value 1 of any dtype to `out`, which has eight bytes.
static lb_status write_one(lb_dtype dtype, void *out) {
  double one = 1;
  lb_tensor from = {.dtype = LB_F64, .data = &one};
  lb_tensor to = {.dtype = dtype, .data = out};
  return lb_reference_convert(&from, &to);
}

lb_status lb_reference_EyeLike(lb_reference_call *c) {
  lb_tensor y = c->out[0];
  int64_t k = lb_attr_int(c->node, "k", 0);
  uint64_t one = 0;
  if (y.rank != 2) return lb_error(LB_INVALID, "rank %d is not 2", y.rank);
  LB_TRY(write_one(y.dtype, &one));
  lb_fill(c->pool, &y, NULL);
  int64_t rows = y.dims[0], cols = y.dims[1];
  if (rows == 0 || cols == 0 || k <= -rows || k >= cols) return LB_OK;
  int64_t row = k < 0 ? -k : 0, col = k < 0 ? 0 : k;
  int64_t n = rows - row < cols - col ? rows - row : cols - col;
  char *data = y.data;
  y.data = data + (row * cols + col) * (int64_t)lb_dtype_size(y.dtype);
  y.rank = 1;
  y.dims[0] = n;
  y.strides[0] = cols + 1;
  lb_fill(c->pool, &y, &one);
  return LB_OK;
}

// Views the output as [outer, depth, inner], with one index per outer and
// inner.
lb_status lb_reference_OneHot(lb_reference_call *c) {
  const lb_tensor *y = &c->out[0];
  lb_tensor indices, values;
  int axis;
  LB_TRY(
      lb_reference_axis(c, lb_attr_int(c->node, "axis", -1), y->rank, &axis));
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_I64, &indices));
  LB_TRY(lb_reference_dense(c, &c->in[2], y->dtype, &values));
  int64_t n = lb_tensor_count(&indices), depth = y->dims[axis], inner;
  if (lb_tensor_count(&values) != 2 || y->rank != indices.rank + 1)
    return lb_error(LB_INVALID, "values must be [off, on]");
  lb_fill(c->pool, y, values.data);
  if (lb_tensor_count(y) == 0) return LB_OK;
  if (n * depth != lb_tensor_count(y))
    return lb_error(
        LB_INVALID, "%lld indices of depth %lld do not fill %lld elements",
        (long long)n, (long long)depth, (long long)lb_tensor_count(y));
  LB_TRY(lb_dims_count(y->rank - 1 - axis, y->dims + axis + 1, &inner));
  size_t size = lb_dtype_size(y->dtype);
  const char *on = (const char *)values.data + size;
  for (int64_t i = 0; i < n; i++) {
    int64_t index = ((const lb_i64 *)indices.data)[i];
    if (index < -depth || index >= depth) continue;
    if (index < 0) index += depth;
    int64_t at = (i / inner * depth + index) * inner + i % inner;
    memcpy((char *)y->data + (size_t)at * size, on, size);
  }
  return LB_OK;
}
