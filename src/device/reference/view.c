// device/reference/view.c -- view operators as copies, for layouts that a view
// cannot express and for constant folding.
//
// The input is viewed with other dims and strides, and copied.
#include <string.h>

#include "device/reference/iter.h"
#include "device/reference/move.h"

// -- reshaping ---------------------------------------------------------------

static lb_status reshape(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  if (lb_tensor_count(x) != lb_tensor_count(&c->out[0]))
    return lb_error(LB_INVALID, "%lld elements cannot become %lld",
                    (long long)lb_tensor_count(x),
                    (long long)lb_tensor_count(&c->out[0]));
  lb_tensor to = *x;
  to.data = c->out[0].data;
  lb_tensor_dense(&to);
  lb_move(c->pool, x, &to);
  return LB_OK;
}

lb_status lb_reference_Identity(lb_reference_call *c) { return reshape(c); }
lb_status lb_reference_Reshape(lb_reference_call *c) { return reshape(c); }
lb_status lb_reference_Flatten(lb_reference_call *c) { return reshape(c); }
lb_status lb_reference_Squeeze(lb_reference_call *c) { return reshape(c); }
lb_status lb_reference_Unsqueeze(lb_reference_call *c) { return reshape(c); }

// -- new strides -------------------------------------------------------------

lb_status lb_reference_Transpose(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  uint32_t n;
  const int64_t *perm = lb_attr_ints(c->node, "perm", &n);
  if (perm && n != (uint32_t)x->rank)
    return lb_error(LB_INVALID, "perm has %u entries for rank %d", n, x->rank);
  lb_tensor view = *x;
  for (int i = 0; i < x->rank; i++) {
    int64_t axis = perm ? perm[i] : x->rank - 1 - i;
    if (axis < 0 || axis >= x->rank || x->dims[axis] != c->out[0].dims[i])
      return lb_error(LB_INVALID, "perm[%d] = %lld does not fit rank %d", i,
                      (long long)axis, x->rank);
    view.dims[i] = x->dims[axis];
    view.strides[i] = x->strides[axis];
  }
  lb_move(c->pool, &view, &c->out[0]);
  return LB_OK;
}

lb_status lb_reference_Expand(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  int lead = y->rank - x->rank;
  for (int i = 0; i < x->rank; i++)
    if (lead < 0 || (x->dims[i] != 1 && x->dims[i] != y->dims[lead + i]))
      return lb_error(LB_INVALID, "dim %d of the input, %lld, cannot expand", i,
                      (long long)x->dims[i]);
  lb_move(c->pool, x, y);
  return LB_OK;
}

// A row of the output is `size` rows of the input: two dims in place of one.
lb_status lb_reference_Unfold(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  int64_t size = lb_attr_int(c->node, "size", 1);
  int64_t step = lb_attr_int(c->node, "step", 1);
  int rows = x->rank - 2;
  if (x->rank == LB_MAX_RANK)
    return lb_error(LB_UNSUPPORTED, "rank %d is too large", x->rank);
  lb_tensor from = *x, to = *y;
  from.rank = to.rank = x->rank + 1;
  from.dims[rows] = y->dims[rows];
  from.dims[rows + 1] = size;
  from.dims[rows + 2] = x->dims[rows + 1];
  from.strides[rows] = step * x->strides[rows];
  from.strides[rows + 1] = x->strides[rows];
  from.strides[rows + 2] = x->strides[rows + 1];
  memcpy(to.dims, from.dims, sizeof to.dims);
  lb_tensor_dense(&to);
  lb_move(c->pool, &from, &to);
  return LB_OK;
}

// -- Slice -------------------------------------------------------------------

typedef struct slice_args {
  const int64_t *starts, *axes, *steps;  // axes and steps may be NULL
  int64_t n;
} slice_args;

static lb_status slice_read(lb_reference_call *c, slice_args *a) {
  int64_t n_axes, n_steps;
  LB_TRY(lb_reference_ints(c, 1, &a->starts, &a->n));
  LB_TRY(lb_reference_ints(c, 3, &a->axes, &n_axes));
  LB_TRY(lb_reference_ints(c, 4, &a->steps, &n_steps));
  if ((a->axes ? n_axes != a->n : a->n > c->in[0].rank) ||
      (a->steps && n_steps != a->n))
    return lb_error(LB_INVALID, "starts, axes and steps differ in length");
  return LB_OK;
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
  return x < lo ? lo : x > hi ? hi : x;
}

// Restricts `axis` of the view to n elements, from `start` by `step`.
static lb_status slice_axis(lb_tensor *view, int axis, int64_t start,
                            int64_t step, int64_t n) {
  int64_t dim = view->dims[axis], last;
  if (start < 0) start += dim;
  start = clamp(start, 0, step < 0 ? dim - 1 : dim);
  if (step == 0 || n < 0 ||
      (n > 0 && (__builtin_mul_overflow(n - 1, step, &last) ||
                 __builtin_add_overflow(last, start, &last) || start >= dim ||
                 last < 0 || last >= dim)))
    return lb_error(LB_INVALID,
                    "a slice of %lld elements from %lld by %lld exceeds axis "
                    "%d of size %lld",
                    (long long)n, (long long)start, (long long)step, axis,
                    (long long)dim);
  *view = lb_narrow(view, axis, n > 0 ? start : 0, n);
  if (n > 1) view->strides[axis] *= step;
  return LB_OK;
}

lb_status lb_reference_Slice(lb_reference_call *c) {
  const lb_tensor *y = &c->out[0];
  lb_tensor view = c->in[0];
  slice_args a;
  LB_TRY(slice_read(c, &a));
  if (lb_tensor_count(y) == 0) return LB_OK;
  bool done[LB_MAX_RANK] = {false};
  for (int64_t i = 0; i < a.n; i++) {
    int axis;
    LB_TRY(lb_reference_axis(c, a.axes ? a.axes[i] : i, view.rank, &axis));
    if (done[axis])
      return lb_error(LB_INVALID, "axis %d is sliced twice", axis);
    done[axis] = true;
    LB_TRY(slice_axis(&view, axis, a.starts[i], a.steps ? a.steps[i] : 1,
                      y->dims[axis]));
  }
  for (int i = 0; i < view.rank; i++)
    if (view.dims[i] != y->dims[i])
      return lb_error(LB_INVALID, "axis %d has %lld elements, not %lld", i,
                      (long long)view.dims[i], (long long)y->dims[i]);
  lb_move(c->pool, &view, y);
  return LB_OK;
}

// -- Split -------------------------------------------------------------------

// The number of elements of part i; `left` elements remain.
static int64_t part_size(const int64_t *sizes, int64_t chunk, uint32_t i,
                         int64_t left) {
  if (sizes) return sizes[i];
  return chunk < left ? chunk : left;
}

lb_status lb_reference_Split(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  int axis;
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  const int64_t *sizes;
  int64_t n_sizes, dim = x->dims[axis], at = 0;
  LB_TRY(lb_reference_ints(c, 1, &sizes, &n_sizes));
  int64_t parts = lb_attr_int(c->node, "num_outputs", c->node->n_out);
  if (parts < 1 || (sizes && n_sizes < c->node->n_out))
    return lb_error(LB_INVALID, "%u outputs from %lld parts", c->node->n_out,
                    (long long)(sizes ? n_sizes : parts));
  int64_t chunk = dim / parts + (dim % parts != 0);
  for (uint32_t i = 0; i < c->node->n_out; i++) {
    int64_t n = part_size(sizes, chunk, i, dim - at);
    if (n < 0 || n > dim - at ||
        (lb_reference_wants(c, (int)i) && c->out[i].dims[axis] != n))
      return lb_error(
          LB_INVALID,
          "part %u has %lld of %lld elements at %lld and does not fit", i,
          (long long)n, (long long)dim, (long long)at);
    lb_tensor part = lb_narrow(x, axis, at, n);
    if (lb_reference_wants(c, (int)i)) lb_move(c->pool, &part, &c->out[i]);
    at += n;
  }
  return LB_OK;
}
