// device/host/gather.c -- reading by index.
//
// All three become one pick: an axis with a table of offsets, made from
// checked indices, among axes of the data as they are.
#include "device/host/index.h"
#include "device/host/move.h"

lb_status lb_host_index(int64_t index, int axis, int64_t dim, int64_t *out) {
  if (index < -dim || index >= dim)
    return lb_error(LB_INVALID, "index %lld is out of range for axis %d, %lld",
                    (long long)index, axis, (long long)dim);
  *out = index < 0 ? index + dim : index;
  return LB_OK;
}

lb_status lb_host_Gather(lb_host_call *c) {
  const lb_tensor *x = &c->in[0];
  int axis;
  LB_TRY(lb_host_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  const int64_t *indices;
  int64_t n, *at, steps[LB_MAX_RANK];
  LB_TRY(lb_host_ints(c, 1, &indices, &n));
  LB_TRY(lb_host_table(c, n, &at));
  lb_byte_steps(x, steps);
  for (int64_t i = 0; i < n; i++) {
    LB_TRY(lb_host_index(indices[i], axis, x->dims[axis], &at[i]));
    at[i] *= steps[axis];
  }
  lb_pick p = {0};
  lb_pick_axes(&p, x, 0, axis);
  lb_pick_table(&p, n, at);
  lb_pick_axes(&p, x, axis + 1, x->rank);
  lb_pick_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, c->out[0].data);
  return LB_OK;
}

// Goes to the next element of `indices`; returns by how much that moves the
// place in the data, which stays where it is along `axis`.
static int64_t next_place(const lb_tensor *indices, int axis,
                          const int64_t *steps, int64_t *place) {
  int64_t by = 0;
  for (int i = indices->rank - 1; i >= 0; i--) {
    int64_t step = i == axis ? 0 : steps[i];
    if (++place[i] < indices->dims[i]) return by + step;
    by -= step * (place[i] - 1);
    place[i] = 0;
  }
  return by;
}

lb_status lb_element_offsets(lb_host_call *c, const lb_tensor *x,
                             const lb_tensor *indices, int axis, int64_t **out,
                             int64_t *n) {
  const int64_t *ints;
  if (indices->rank != x->rank)
    return lb_error(LB_INVALID, "indices have rank %d, data %d", indices->rank,
                    x->rank);
  LB_TRY(lb_host_ints(c, 1, &ints, n));
  LB_TRY(lb_host_table(c, *n, out));
  for (int i = 0; i<x->rank && * n> 0; i++)
    if (i != axis && indices->dims[i] > x->dims[i])
      return lb_error(LB_INVALID, "axis %d of the indices, %lld, exceeds %lld",
                      i, (long long)indices->dims[i], (long long)x->dims[i]);
  int64_t place[LB_MAX_RANK] = {0}, offset = 0, index = 0;
  int64_t steps[LB_MAX_RANK];
  lb_byte_steps(x, steps);
  for (int64_t k = 0; k < *n; k++) {
    LB_TRY(lb_host_index(ints[k], axis, x->dims[axis], &index));
    (*out)[k] = offset + index * steps[axis];
    offset += next_place(indices, axis, steps, place);
  }
  return LB_OK;
}

lb_status lb_host_GatherElements(lb_host_call *c) {
  const lb_tensor *x = &c->in[0];
  int axis;
  LB_TRY(lb_host_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  int64_t *at, n;
  LB_TRY(lb_element_offsets(c, x, &c->in[1], axis, &at, &n));
  lb_pick p = {0};
  lb_pick_table(&p, n, at);
  lb_pick_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, c->out[0].data);
  return LB_OK;
}

// Where batch number `batch` of x lies, counted along its first n axes.
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
      return lb_error(LB_INVALID, "batch axis %d: %lld and %lld", i,
                      (long long)x->dims[i], (long long)indices->dims[i]);
  return LB_OK;
}

lb_status lb_tuple_offsets(lb_host_call *c, const lb_tensor *x,
                           const lb_tensor *indices, int64_t batch_dims,
                           int64_t **out, int64_t *n) {
  LB_TRY(check_tuples(x, indices, batch_dims));
  const int64_t *ints;
  int64_t count, per_batch, index = 0, steps[LB_MAX_RANK];
  int b = (int)batch_dims, q = indices->rank, len = (int)indices->dims[q - 1];
  LB_TRY(lb_host_ints(c, 1, &ints, &count));
  LB_TRY(lb_dims_count(q - 1, indices->dims, n));
  LB_TRY(lb_dims_count(q - 1 - b, indices->dims + b, &per_batch));
  LB_TRY(lb_host_table(c, *n, out));
  lb_byte_steps(x, steps);
  for (int64_t k = 0; k < *n; k++) {
    int64_t offset = batch_offset(x, steps, b, k / per_batch);
    for (int i = 0; i < len; i++) {
      LB_TRY(lb_host_index(ints[k * len + i], b + i, x->dims[b + i], &index));
      offset += index * steps[b + i];
    }
    (*out)[k] = offset;
  }
  return LB_OK;
}

lb_status lb_host_GatherND(lb_host_call *c) {
  const lb_tensor *x = &c->in[0], *indices = &c->in[1];
  int64_t b = lb_attr_int(c->node, "batch_dims", 0);
  int64_t *at, n;
  LB_TRY(lb_tuple_offsets(c, x, indices, b, &at, &n));
  int inner = (int)(b + indices->dims[indices->rank - 1]);
  lb_pick p = {0};
  lb_pick_table(&p, n, at);
  lb_pick_axes(&p, x, inner, x->rank);
  lb_pick_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, c->out[0].data);
  return LB_OK;
}
