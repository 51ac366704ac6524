// device/reference/movement.c -- operators that move elements without reading
// them: concatenating, padding, repeating, rearranging, masking.
#include <string.h>

#include "device/reference/move.h"

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

static lb_status wrong_dim(int axis, int64_t is, int64_t should) {
  return lb_error(LB_INVALID, "axis %d has %lld elements, not %lld", axis,
                  (long long)is, (long long)should);
}

lb_status lb_reference_Concat(lb_reference_call *c) {
  const lb_tensor *y = &c->out[0];
  int axis;
  int64_t at = 0;
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", 0), y->rank, &axis));
  for (uint32_t i = 0; i < c->node->n_in; i++) {
    const lb_tensor *x = &c->in[i];
    if (x->dtype == LB_NONE) continue;
    if (x->rank != y->rank)
      return lb_error(LB_INVALID, "input %u has rank %d, not %d", i, x->rank,
                      y->rank);
    for (int k = 0; k < x->rank; k++)
      if (k == axis ? x->dims[k] > y->dims[k] - at : x->dims[k] != y->dims[k])
        return wrong_dim(k, x->dims[k], y->dims[k]);
    lb_tensor part = lb_narrow(y, axis, at, x->dims[axis]);
    lb_move(c->pool, x, &part);
    at += x->dims[axis];
  }
  return at == y->dims[axis] ? LB_OK : wrong_dim(axis, at, y->dims[axis]);
}

// Each axis becomes two: an outer axis of repeats, with step 0 in the source,
// and the axis itself.
lb_status lb_reference_Tile(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  if (lb_tensor_count(y) == 0) return LB_OK;
  int64_t steps[LB_MAX_RANK];
  lb_byte_strides(x, steps);
  lb_gather p = {0};
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[i] == 0 || y->dims[i] % x->dims[i] != 0)
      return wrong_dim(i, y->dims[i], x->dims[i]);
    lb_gather_strided(&p, y->dims[i] / x->dims[i], 0);
    lb_gather_strided(&p, x->dims[i], steps[i]);
  }
  lb_gather_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, y->data);
  return LB_OK;
}

// -- padding and cropping ----------------------------------------------------

// Copies x into y, shifted by begin[i] along axis i and clipped to y; the rest
// of y is filled.
static void copy_shifted(lb_reference_call *c, const int64_t *begin,
                         const void *value) {
  lb_tensor from = c->in[0], to = c->out[0];
  bool covers = true;
  for (int i = 0; i < to.rank; i++) {
    int64_t skip = begin[i] < 0 ? -begin[i] : 0;
    int64_t at = begin[i] > 0 ? begin[i] : 0;
    int64_t n = min(from.dims[i] - skip, to.dims[i] - at);
    if (n < to.dims[i]) covers = false;
    if (n < 0) n = 0;
    from = lb_narrow(&from, i, skip, n);
    to = lb_narrow(&to, i, at, n);
  }
  if (!covers) lb_fill(c->pool, &c->out[0], value);
  lb_move(c->pool, &from, &to);
}

typedef struct pad_args {
  int64_t begin[LB_MAX_RANK], end[LB_MAX_RANK];
} pad_args;

static lb_status pad_read(lb_reference_call *c, pad_args *out) {
  const lb_tensor *x = &c->in[0];
  const int64_t *pads, *axes;
  int64_t n_pads, n;
  *out = (pad_args){0};
  LB_TRY(lb_reference_ints(c, 1, &pads, &n_pads));
  LB_TRY(lb_reference_ints(c, 3, &axes, &n));
  if (!axes) n = x->rank;
  if (n > LB_MAX_RANK || n_pads != 2 * n)
    return lb_error(LB_INVALID, "%lld pads for %lld axes", (long long)n_pads,
                    (long long)n);
  for (int i = 0; i < (int)n; i++) {
    int axis;
    LB_TRY(lb_reference_axis(c, axes ? axes[i] : i, x->rank, &axis));
    out->begin[axis] = pads[i];
    out->end[axis] = pads[n + i];
  }
  return LB_OK;
}

// Checks that y = begin + x + end along every axis, without overflow.
static lb_status pad_check(const pad_args *a, const lb_tensor *x,
                           const lb_tensor *y) {
  for (int i = 0; i < x->rank; i++) {
    int64_t b = a->begin[i], e = a->end[i];
    if (b < -LB_MAX_COUNT || b > LB_MAX_COUNT || e < -LB_MAX_COUNT ||
        e > LB_MAX_COUNT || x->dims[i] + b + e != y->dims[i])
      return lb_error(LB_INVALID,
                      "pads %lld and %lld do not extend axis %d "
                      "from %lld to %lld elements",
                      (long long)b, (long long)e, i, (long long)x->dims[i],
                      (long long)y->dims[i]);
  }
  return LB_OK;
}

// A reversed view: element i is element last - i of t.
static lb_tensor mirrored(const lb_tensor *t, int axis, int64_t last,
                          int64_t n) {
  lb_tensor view = lb_narrow(t, axis, last, n);
  view.strides[axis] = -view.strides[axis];
  return view;
}

// Fills the elements before [lo, hi) along `axis` from those in it. Each copy
// may read the results of earlier ones, so that pads longer than the axis are
// reflected repeatedly, as in numpy.
static void repeat_before(lb_reference_call *c, char mode, const lb_tensor *t,
                          int axis, int64_t lo, int64_t hi) {
  int64_t n = hi - lo;
  if (n == 1) mode = 'e';
  while (lo > 0) {
    int64_t whole = (hi - lo) / n * n;  // whole periods that exist already
    int64_t k = mode == 'e' ? lo : min(lo, mode == 'w' ? whole : hi - lo - 1);
    lb_tensor to = lb_narrow(t, axis, lo - k, k);
    lb_tensor from = mode == 'e'   ? lb_narrow(t, axis, lo, 1)
                     : mode == 'w' ? lb_narrow(t, axis, lo + whole - k, k)
                                   : mirrored(t, axis, lo + k, k);
    lb_move(c->pool, &from, &to);
    lo -= k;
  }
}

// The elements behind [lo, hi) are filled in the same way, on a reversed view.
static void repeat(lb_reference_call *c, char mode, const lb_tensor *t,
                   int axis, int64_t lo, int64_t hi) {
  int64_t dim = t->dims[axis];
  lb_tensor back = mirrored(t, axis, dim - 1, dim);
  repeat_before(c, mode, t, axis, lo, hi);
  repeat_before(c, mode, &back, axis, dim - hi, dim - lo);
}

// Negative pads crop first; the remaining elements are then repeated, along the
// last axis first, so that the other axes repeat whole rows.
static lb_status pad_repeating(lb_reference_call *c, char mode,
                               const pad_args *a) {
  const lb_tensor *y = &c->out[0];
  lb_tensor from = c->in[0];
  int64_t lo[LB_MAX_RANK], n[LB_MAX_RANK];
  if (lb_tensor_count(y) == 0) return LB_OK;
  for (int i = 0; i < y->rank; i++) {
    int64_t skip = a->begin[i] < 0 ? -a->begin[i] : 0;
    lo[i] = a->begin[i] + skip;
    n[i] = from.dims[i] - skip + min(a->end[i], 0);
    if (n[i] <= 0)
      return lb_error(LB_INVALID, "axis %d has nothing to pad with", i);
    from = lb_narrow(&from, i, skip, n[i]);
  }
  for (int axis = y->rank; axis >= 0; axis--) {
    lb_tensor done_part = *y;
    for (int i = 0; i < axis; i++)
      done_part = lb_narrow(&done_part, i, lo[i], n[i]);
    if (axis == y->rank)
      lb_move(c->pool, &from, &done_part);
    else
      repeat(c, mode, &done_part, axis, lo[axis], lo[axis] + n[axis]);
  }
  return LB_OK;
}

lb_status lb_reference_Pad(lb_reference_call *c) {
  const char *mode = lb_attr_str(c->node, "mode", "constant");
  pad_args a;
  LB_TRY(pad_read(c, &a));
  LB_TRY(pad_check(&a, &c->in[0], &c->out[0]));
  if (strcmp(mode, "reflect") == 0 || strcmp(mode, "edge") == 0 ||
      strcmp(mode, "wrap") == 0)
    return pad_repeating(c, mode[0], &a);
  if (strcmp(mode, "constant") != 0)
    return lb_error(LB_INVALID,
                    "mode '%s' is not constant, reflect, edge or wrap", mode);
  const lb_tensor *value = lb_reference_has(c, 2) ? &c->in[2] : NULL;
  if (value && (lb_tensor_count(value) != 1 || value->dtype != c->in[0].dtype))
    return lb_error(LB_INVALID, "constant_value must be one %s",
                    lb_dtype_name(c->in[0].dtype));
  copy_shifted(c, a.begin, value ? value->data : NULL);
  return LB_OK;
}

// If the difference is odd, cropping starts half an element to the left, and
// padding has one more element on the right.
lb_status lb_reference_CenterCropPad(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  int64_t begin[LB_MAX_RANK] = {0};
  for (int i = 0; i < x->rank; i++) {
    int64_t more = y->dims[i] - x->dims[i];
    begin[i] = more / 2;
  }
  copy_shifted(c, begin, NULL);
  return LB_OK;
}

// -- DepthToSpace, SpaceToDepth ----------------------------------------------

// Splits the axes of a rank 4 tensor into six: `axis` of the tensor, and the
// number of its elements per step. The output is dense in the same order.
typedef struct block_axis {
  int axis;
  int64_t dim, step;
} block_axis;

static void move_blocks(lb_reference_call *c, const block_axis *axes) {
  const lb_tensor *x = &c->in[0];
  lb_tensor from = *x, to = c->out[0];
  from.rank = to.rank = 6;
  for (int i = 0; i < 6; i++) {
    from.dims[i] = to.dims[i] = axes[i].dim;
    from.strides[i] = x->strides[axes[i].axis] * axes[i].step;
  }
  lb_tensor_dense(&to);
  lb_move(c->pool, &from, &to);
}

static lb_status block_size(const lb_reference_call *c, const lb_tensor *small,
                            const lb_tensor *deep, int64_t *out) {
  int64_t b = lb_attr_int(c->node, "blocksize", 0);
  if (small->rank != 4 || deep->rank != 4 || b < 1 || b > INT32_MAX ||
      small->dims[0] != deep->dims[0] ||
      deep->dims[1] / b / b != small->dims[1] || deep->dims[1] % (b * b) != 0 ||
      small->dims[2] / b != deep->dims[2] || small->dims[2] % b != 0 ||
      small->dims[3] / b != deep->dims[3] || small->dims[3] % b != 0)
    return lb_error(LB_INVALID, "blocksize %lld does not divide the input",
                    (long long)b);
  *out = b;
  return LB_OK;
}

// Reads the order of channels: CRD has the pixels of a block together, DCR the
// depths of a pixel.
static lb_status block_mode(const lb_reference_call *c, bool *crd) {
  const char *mode = lb_attr_str(c->node, "mode", "DCR");
  *crd = strcmp(mode, "CRD") == 0;
  if (*crd || strcmp(mode, "DCR") == 0) return LB_OK;
  return lb_error(LB_INVALID, "mode '%s' is not DCR or CRD", mode);
}

lb_status lb_reference_DepthToSpace(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  int64_t b;
  bool crd;
  LB_TRY(block_size(c, y, x, &b));
  LB_TRY(block_mode(c, &crd));
  if (lb_tensor_count(y) == 0) return LB_OK;
  int64_t depth = y->dims[1], last = crd ? 1 : depth;
  move_blocks(c, (block_axis[]){{0, x->dims[0], 1},
                                {1, depth, crd ? b * b : 1},
                                {2, x->dims[2], 1},
                                {1, b, b * last},
                                {3, x->dims[3], 1},
                                {1, b, last}});
  return LB_OK;
}

lb_status lb_reference_SpaceToDepth(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  int64_t b;
  bool crd;
  LB_TRY(block_size(c, x, y, &b));
  LB_TRY(block_mode(c, &crd));
  if (lb_tensor_count(y) == 0) return LB_OK;
  block_axis depth = {1, x->dims[1], 1}, row = {2, b, 1}, column = {3, b, 1};
  move_blocks(c, (block_axis[]){{0, x->dims[0], 1},
                                crd ? depth : row,
                                crd ? row : column,
                                crd ? column : depth,
                                {2, y->dims[2], b},
                                {3, y->dims[3], b}});
  return LB_OK;
}

// -- ReverseSequence, Trilu --------------------------------------------------

static void reverse(lb_reference_call *c, const lb_tensor *x,
                    const lb_tensor *y, int axis, int64_t n) {
  lb_tensor from = lb_narrow(x, axis, 0, n), to = lb_narrow(y, axis, 0, n);
  if (lb_tensor_count(&to) > 1) {
    int64_t size = (int64_t)lb_dtype_size(x->dtype);
    from.data = (char *)from.data + (n - 1) * x->strides[axis] * size;
    from.strides[axis] = -x->strides[axis];
  }
  lb_move(c->pool, &from, &to);
  int64_t remaining = x->dims[axis] - n;
  from = lb_narrow(x, axis, n, remaining);
  to = lb_narrow(y, axis, n, remaining);
  lb_move(c->pool, &from, &to);
}

lb_status lb_reference_ReverseSequence(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  int batch, time;
  LB_TRY(
      lb_reference_axis(c, lb_attr_int(c->node, "batch_axis", 1), 2, &batch));
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "time_axis", 0), 2, &time));
  const int64_t *lens;
  int64_t n;
  LB_TRY(lb_reference_ints(c, 1, &lens, &n));
  if (x->rank < 2 || batch == time || n != x->dims[batch])
    return lb_error(LB_INVALID,
                    "batch_axis and time_axis must be 0 and 1 of an input of "
                    "rank 2 or more, with one length per batch");
  for (int64_t i = 0; i < n; i++)
    if (lens[i] < 0 || lens[i] > x->dims[time])
      return lb_error(LB_INVALID,
                      "sequence_lens[%lld] = %lld is not in "
                      "[0, %lld]",
                      (long long)i, (long long)lens[i],
                      (long long)x->dims[time]);
  if (lb_tensor_count(x) == 0) return LB_OK;
  for (int64_t i = 0; i < n; i++) {
    lb_tensor from = lb_narrow(x, batch, i, 1),
              to = lb_narrow(&c->out[0], batch, i, 1);
    reverse(c, &from, &to, time, lens[i]);
  }
  return LB_OK;
}

// Writes columns [begin, end) of the given row of all matrices; zeros if `from`
// is NULL.
static void put_columns(lb_reference_call *c, const lb_tensor *from,
                        int64_t row, int64_t begin, int64_t end) {
  int axis = c->out[0].rank - 2;
  lb_tensor to = lb_narrow(&c->out[0], axis, row, 1);
  to = lb_narrow(&to, axis + 1, begin, end - begin);
  if (!from) {
    lb_fill(c->pool, &to, NULL);
    return;
  }
  lb_tensor part = lb_narrow(from, axis, row, 1);
  part = lb_narrow(&part, axis + 1, begin, end - begin);
  lb_move(c->pool, &part, &to);
}

lb_status lb_reference_Trilu(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  bool upper = lb_attr_int(c->node, "upper", 1) != 0;
  const int64_t *k;
  int64_t n_k;
  LB_TRY(lb_reference_ints(c, 1, &k, &n_k));
  if (x->rank < 2 || (k && n_k != 1))
    return lb_error(LB_INVALID,
                    "the input must have rank 2 or more, not %d, and k one "
                    "element, not %lld",
                    x->rank, (long long)n_k);
  if (lb_tensor_count(x) == 0) return LB_OK;
  int64_t rows = x->dims[x->rank - 2], cols = x->dims[x->rank - 1];
  // Values of k beyond the matrix in either direction make no further
  // difference.
  int64_t shift = !k ? 0 : k[0] < -rows ? -rows : min(k[0], cols);
  for (int64_t row = 0; row < rows; row++) {
    int64_t split = row + shift + (upper ? 0 : 1);
    split = split < 0 ? 0 : min(split, cols);
    put_columns(c, upper ? NULL : x, row, 0, split);
    put_columns(c, upper ? x : NULL, row, split, cols);
  }
  return LB_OK;
}
