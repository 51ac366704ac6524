// device/reference/movement.c -- operators that put elements elsewhere by rules
// that do not look at them: joining, padding, repeating, rearranging, masking.
#include <string.h>

#include "device/reference/move.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

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
    lb_tensor part = lb_cut(y, axis, at, x->dims[axis]);
    lb_move(c->pool, x, &part);
    at += x->dims[axis];
  }
  return at == y->dims[axis] ? LB_OK : wrong_dim(axis, at, y->dims[axis]);
}

// Every element once for each of the repeats of its axis: an axis of repeats,
// which does not move the source, around the axis itself.
lb_status lb_reference_Tile(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  if (lb_tensor_count(y) == 0) return LB_OK;
  int64_t steps[LB_MAX_RANK];
  lb_byte_steps(x, steps);
  lb_pick p = {0};
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[i] == 0 || y->dims[i] % x->dims[i] != 0)
      return wrong_dim(i, y->dims[i], x->dims[i]);
    lb_pick_plain(&p, y->dims[i] / x->dims[i], 0);
    lb_pick_plain(&p, x->dims[i], steps[i]);
  }
  lb_pick_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, y->data);
  return LB_OK;
}

// -- padding and cropping ----------------------------------------------------

// Puts x into y, moved by begin[i] along axis i and cut off at y's ends; what
// it does not cover is filled.
static void place(lb_reference_call *c, const int64_t *begin,
                  const void *value) {
  lb_tensor from = c->in[0], to = c->out[0];
  bool covers = true;
  for (int i = 0; i < to.rank; i++) {
    int64_t skip = begin[i] < 0 ? -begin[i] : 0;
    int64_t at = begin[i] > 0 ? begin[i] : 0;
    int64_t n = least(from.dims[i] - skip, to.dims[i] - at);
    if (n < to.dims[i]) covers = false;
    if (n < 0) n = 0;
    from = lb_cut(&from, i, skip, n);
    to = lb_cut(&to, i, at, n);
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

// y = begin + x + end along every axis, and none of them out of bounds.
static lb_status pad_check(const pad_args *a, const lb_tensor *x,
                           const lb_tensor *y) {
  for (int i = 0; i < x->rank; i++) {
    int64_t b = a->begin[i], e = a->end[i];
    if (b < -LB_MAX_COUNT || b > LB_MAX_COUNT || e < -LB_MAX_COUNT ||
        e > LB_MAX_COUNT || x->dims[i] + b + e != y->dims[i])
      return lb_error(LB_INVALID,
                      "pads %lld and %lld do not make axis %d, "
                      "%lld, into %lld",
                      (long long)b, (long long)e, i, (long long)x->dims[i],
                      (long long)y->dims[i]);
  }
  return LB_OK;
}

// Element i of the view is element last - i of t.
static lb_tensor mirrored(const lb_tensor *t, int axis, int64_t last,
                          int64_t n) {
  lb_tensor view = lb_cut(t, axis, last, n);
  view.strides[axis] = -view.strides[axis];
  return view;
}

// Elements [lo, hi) of `axis` are there; what lies before them repeats them.
// Each move takes what those before have made, so that pads longer than the
// axis are reflected again and again, as numpy does.
static void repeat_before(lb_reference_call *c, char mode, const lb_tensor *t,
                          int axis, int64_t lo, int64_t hi) {
  int64_t n = hi - lo;
  if (n == 1) mode = 'e';
  while (lo > 0) {
    int64_t whole = (hi - lo) / n * n;  // as often as it is there
    int64_t k = mode == 'e' ? lo : least(lo, mode == 'w' ? whole : hi - lo - 1);
    lb_tensor to = lb_cut(t, axis, lo - k, k);
    lb_tensor from = mode == 'e'   ? lb_cut(t, axis, lo, 1)
                     : mode == 'w' ? lb_cut(t, axis, lo + whole - k, k)
                                   : mirrored(t, axis, lo + k, k);
    lb_move(c->pool, &from, &to);
    lo -= k;
  }
}

// What lies behind them lies before them, seen from the end.
static void repeat(lb_reference_call *c, char mode, const lb_tensor *t,
                   int axis, int64_t lo, int64_t hi) {
  int64_t dim = t->dims[axis];
  lb_tensor back = mirrored(t, axis, dim - 1, dim);
  repeat_before(c, mode, t, axis, lo, hi);
  repeat_before(c, mode, &back, axis, dim - hi, dim - lo);
}

// Negative pads cut first; what is left is what repeats, along the last axis
// first: the others repeat whole rows.
static lb_status pad_repeating(lb_reference_call *c, char mode,
                               const pad_args *a) {
  const lb_tensor *y = &c->out[0];
  lb_tensor from = c->in[0];
  int64_t lo[LB_MAX_RANK], n[LB_MAX_RANK];
  if (lb_tensor_count(y) == 0) return LB_OK;
  for (int i = 0; i < y->rank; i++) {
    int64_t skip = a->begin[i] < 0 ? -a->begin[i] : 0;
    lo[i] = a->begin[i] + skip;
    n[i] = from.dims[i] - skip + least(a->end[i], 0);
    if (n[i] <= 0)
      return lb_error(LB_INVALID, "axis %d has nothing to pad with", i);
    from = lb_cut(&from, i, skip, n[i]);
  }
  for (int axis = y->rank; axis >= 0; axis--) {
    lb_tensor made = *y;
    for (int i = 0; i < axis; i++) made = lb_cut(&made, i, lo[i], n[i]);
    if (axis == y->rank)
      lb_move(c->pool, &from, &made);
    else
      repeat(c, mode, &made, axis, lo[axis], lo[axis] + n[axis]);
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
  place(c, a.begin, value ? value->data : NULL);
  return LB_OK;
}

// An odd difference: the window lies half an element to the left, and padding
// has one more on the right.
lb_status lb_reference_CenterCropPad(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  int64_t begin[LB_MAX_RANK] = {0};
  for (int i = 0; i < x->rank; i++) {
    int64_t more = y->dims[i] - x->dims[i];
    begin[i] = more / 2;
  }
  place(c, begin, NULL);
  return LB_OK;
}

// -- blocks of channels and blocks of pixels ---------------------------------

// Splits axes of a rank 4 tensor, giving six: `axis` of the tensor and how many
// elements of it make one step. The output is read the same way, dense.
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
    return lb_error(LB_INVALID, "blocks of %lld do not divide the input",
                    (long long)b);
  *out = b;
  return LB_OK;
}

// Which channels are neighbours: CRD has the pixels of a block together, DCR
// the depths of a pixel.
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
  lb_tensor from = lb_cut(x, axis, 0, n), to = lb_cut(y, axis, 0, n);
  if (lb_tensor_count(&to) > 1) {
    int64_t size = (int64_t)lb_dtype_size(x->dtype);
    from.data = (char *)from.data + (n - 1) * x->strides[axis] * size;
    from.strides[axis] = -x->strides[axis];
  }
  lb_move(c->pool, &from, &to);
  int64_t rest = x->dims[axis] - n;
  from = lb_cut(x, axis, n, rest);
  to = lb_cut(y, axis, n, rest);
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
    lb_tensor from = lb_cut(x, batch, i, 1),
              to = lb_cut(&c->out[0], batch, i, 1);
    reverse(c, &from, &to, time, lens[i]);
  }
  return LB_OK;
}

// Columns [begin, end) of the given row, in all matrices at once; zero unless
// there is a source.
static void put_columns(lb_reference_call *c, const lb_tensor *from,
                        int64_t row, int64_t begin, int64_t end) {
  int axis = c->out[0].rank - 2;
  lb_tensor to = lb_cut(&c->out[0], axis, row, 1);
  to = lb_cut(&to, axis + 1, begin, end - begin);
  if (!from) {
    lb_fill(c->pool, &to, NULL);
    return;
  }
  lb_tensor part = lb_cut(from, axis, row, 1);
  part = lb_cut(&part, axis + 1, begin, end - begin);
  lb_move(c->pool, &part, &to);
}

lb_status lb_reference_Trilu(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  bool upper = lb_attr_int(c->node, "upper", 1) != 0;
  const int64_t *k;
  int64_t n_k;
  LB_TRY(lb_reference_ints(c, 1, &k, &n_k));
  if (x->rank < 2 || (k && n_k != 1))
    return lb_error(LB_INVALID, "needs matrices and one k, not rank %d, %lld",
                    x->rank, (long long)n_k);
  if (lb_tensor_count(x) == 0) return LB_OK;
  int64_t rows = x->dims[x->rank - 2], cols = x->dims[x->rank - 1];
  // Beyond a matrix in either direction, k changes nothing more.
  int64_t shift = !k ? 0 : k[0] < -rows ? -rows : least(k[0], cols);
  for (int64_t row = 0; row < rows; row++) {
    int64_t cut = row + shift + (upper ? 0 : 1);
    cut = cut < 0 ? 0 : least(cut, cols);
    put_columns(c, upper ? NULL : x, row, 0, cut);
    put_columns(c, upper ? x : NULL, row, cut, cols);
  }
  return LB_OK;
}
