// device/reference/gather.c -- Gather, GatherElements and GatherND.
//
// Gather and GatherND become one lb_gather: an axis with a table of offsets,
// computed from checked indices, among strided axes of the data.
#include <stdatomic.h>

#include "device/reference/index.h"
#include "device/reference/iter.h"
#include "device/reference/move.h"

lb_status lb_reference_index(int64_t index, int axis, int64_t dim,
                             int64_t *out) {
  if (index < -dim || index >= dim)
    return lb_error(LB_INVALID,
                    "index %lld is out of range for axis %d of size %lld",
                    (long long)index, axis, (long long)dim);
  *out = index < 0 ? index + dim : index;
  return LB_OK;
}

lb_status lb_reference_Gather(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  int axis;
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  const int64_t *indices;
  int64_t n, *at, steps[LB_MAX_RANK];
  LB_TRY(lb_reference_ints(c, 1, &indices, &n));
  LB_TRY(lb_reference_ints_temp(c, n, &at));
  lb_byte_strides(x, steps);
  for (int64_t i = 0; i < n; i++) {
    LB_TRY(lb_reference_index(indices[i], axis, x->dims[axis], &at[i]));
    at[i] *= steps[axis];
  }
  lb_gather p = {0};
  lb_gather_axes(&p, x, 0, axis);
  lb_gather_table(&p, n, at);
  lb_gather_axes(&p, x, axis + 1, x->rank);
  lb_gather_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, c->out[0].data);
  return LB_OK;
}

lb_status lb_check_elements(const lb_tensor *x, const lb_tensor *indices,
                            int axis) {
  if (indices->rank != x->rank)
    return lb_error(LB_INVALID, "indices have rank %d, data %d", indices->rank,
                    x->rank);
  for (int i = 0; i < x->rank && lb_tensor_count(indices) > 0; i++)
    if (i != axis && indices->dims[i] > x->dims[i])
      return lb_error(
          LB_INVALID,
          "axis %d of the indices has size %lld, which exceeds %lld", i,
          (long long)indices->dims[i], (long long)x->dims[i]);
  return LB_OK;
}

// One axis of x is indexed; the coordinates along the other axes are those of
// the index.
typedef struct elements {
  int64_t dim, step;  // of the axis; step in bytes
  size_t size;        // of an element
  bool wide;          // indices are int64, not int32
  atomic_llong *bad;  // an index that is out of range; 0: none
} elements;

// The operands are the output, the indices, and x, with stride 0 along the
// axis.
static inline __attribute__((always_inline)) void gather_elements(
    const elements *e, int64_t n, char *const *p, const int64_t *step,
    size_t size, bool wide) {
  for (int64_t k = 0; k < n; k++) {
    const char *from = p[1] + k * step[1];
    int64_t given;
    int32_t narrow;
    if (wide) {
      memcpy(&given, from, sizeof given);
    } else {
      memcpy(&narrow, from, sizeof narrow);
      given = narrow;
    }
    int64_t index = given < 0 ? given + e->dim : given;
    if ((uint64_t)index >= (uint64_t)e->dim) {
      atomic_store_explicit(e->bad, given, memory_order_relaxed);
      index = 0;
    }
    memcpy(p[0] + k * step[0], p[2] + k * step[2] + index * e->step, size);
  }
}

#define GATHER(size)                                   \
  e->wide ? gather_elements(e, n, p, step, size, true) \
          : gather_elements(e, n, p, step, size, false)

static void elements_row(const void *user, int64_t n, char *const *p,
                         const int64_t *step) {
  const elements *e = user;
  switch (e->size) {
    case 1: GATHER(1); break;
    case 2: GATHER(2); break;
    case 4: GATHER(4); break;
    default: GATHER(8); break;
  }
}

lb_status lb_reference_GatherElements(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *indices = &c->in[1];
  int axis;
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  LB_TRY(lb_check_elements(x, indices, axis));
  if (indices->dtype != LB_I64 && indices->dtype != LB_I32)
    return lb_reference_bad_dtype(c, indices->dtype);
  if (lb_tensor_count(indices) == 0) return LB_OK;
  int64_t steps[LB_MAX_RANK], dim = x->dims[axis], index;
  lb_byte_strides(x, steps);
  atomic_llong bad = 0;
  elements e = {.dim = dim,
                .step = steps[axis],
                .size = lb_dtype_size(x->dtype),
                .wide = indices->dtype == LB_I64,
                .bad = &bad};
  if (dim == 0) return lb_reference_index(0, axis, dim, &index);
  lb_tensor fixed = *x;
  memcpy(fixed.dims, indices->dims, sizeof fixed.dims);
  fixed.strides[axis] = 0;
  lb_iter_all(c->pool, 3, (const lb_tensor *[]){&c->out[0], indices, &fixed},
              elements_row, &e);
  return bad ? lb_reference_index(bad, axis, dim, &index) : LB_OK;
}

// The offset of batch item `batch` of x, counted along its first n axes.
static int64_t batch_offset(const lb_tensor *x, const int64_t *steps, int n,
                            int64_t batch) {
  int64_t offset = 0;
  for (int i = n - 1; i >= 0; i--) {
    offset += batch % x->dims[i] * steps[i];
    batch /= x->dims[i];
  }
  return offset;
}

static lb_status check_tuples(const lb_tensor *x, const lb_tensor *indices,
                              int64_t batch_dims) {
  int q = indices->rank;
  if (q < 1 || batch_dims < 0 || batch_dims >= q || batch_dims > x->rank ||
      indices->dims[q - 1] > x->rank - batch_dims)
    return lb_error(LB_INVALID,
                    "batch_dims %lld does not fit ranks %d and %d with index "
                    "tuples of %lld",
                    (long long)batch_dims, x->rank, q,
                    (long long)(q > 0 ? indices->dims[q - 1] : 0));
  for (int i = 0; i < batch_dims; i++)
    if (x->dims[i] != indices->dims[i])
      return lb_error(LB_INVALID, "batch axis %d has sizes %lld and %lld", i,
                      (long long)x->dims[i], (long long)indices->dims[i]);
  return LB_OK;
}

lb_status lb_tuple_offsets(lb_reference_call *c, const lb_tensor *x,
                           const lb_tensor *indices, int64_t batch_dims,
                           int64_t **out, int64_t *n) {
  LB_TRY(check_tuples(x, indices, batch_dims));
  const int64_t *ints;
  int64_t count, per_batch, index = 0, steps[LB_MAX_RANK];
  int b = (int)batch_dims, q = indices->rank, len = (int)indices->dims[q - 1];
  LB_TRY(lb_reference_ints(c, 1, &ints, &count));
  LB_TRY(lb_dims_count(q - 1, indices->dims, n));
  LB_TRY(lb_dims_count(q - 1 - b, indices->dims + b, &per_batch));
  LB_TRY(lb_reference_ints_temp(c, *n, out));
  lb_byte_strides(x, steps);
  for (int64_t k = 0; k < *n; k++) {
    int64_t offset = batch_offset(x, steps, b, k / per_batch);
    for (int i = 0; i < len; i++) {
      LB_TRY(
          lb_reference_index(ints[k * len + i], b + i, x->dims[b + i], &index));
      offset += index * steps[b + i];
    }
    (*out)[k] = offset;
  }
  return LB_OK;
}

lb_status lb_reference_GatherND(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *indices = &c->in[1];
  int64_t b = lb_attr_int(c->node, "batch_dims", 0);
  int64_t *at, n;
  LB_TRY(lb_tuple_offsets(c, x, indices, b, &at, &n));
  int inner = (int)(b + indices->dims[indices->rank - 1]);
  lb_gather p = {0};
  lb_gather_table(&p, n, at);
  lb_gather_axes(&p, x, inner, x->rank);
  lb_gather_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, c->out[0].data);
  return LB_OK;
}
