// plan/view.c -- reshape, transpose, slice, split, expand, unfold and gather of
// one element as arithmetic on strides.
#include "plan/view.h"

#include <string.h>

#include "base/tensor.h"

// Axes are matched in groups with equal products of dims; within a group the
// axes of `from` must be contiguous with each other.
bool lb_view_reshape(const lb_tensor *from, lb_tensor *out) {
  if (lb_tensor_is_dense(from) || lb_tensor_count(from) == 0) {
    lb_tensor_dense(out);
    return true;
  }
  int i = from->rank - 1, o = out->rank - 1;
  while (o >= 0) {
    while (i >= 0 && from->dims[i] == 1) i--;
    if (out->dims[o] == 1) {
      out->strides[o--] = 0;
      continue;
    }
    if (i < 0) return false;
    int64_t have = from->dims[i], run = from->strides[i];
    int64_t step = run, want = out->dims[o];
    out->strides[o--] = step;
    while (have != want) {
      if (want < have) {
        while (o >= 0 && out->dims[o] == 1) out->strides[o--] = 0;
        if (o < 0) return false;
        out->strides[o] = run * want;
        want *= out->dims[o--];
      } else {
        int64_t end = run * have;
        do {
          if (--i < 0) return false;
        } while (from->dims[i] == 1);
        if (from->strides[i] != end) return false;
        have *= from->dims[i];
      }
    }
    i--;
  }
  return true;
}

// The arguments of lb_view_try.
typedef struct view {
  const lb_node *node;
  const lb_vinfo *in;
  uint32_t index;
  const lb_tensor *from;
  lb_tensor *out;
  int64_t *offset;
} view;

typedef bool view_fn(const view *v);

static bool transpose(const view *v) {
  const lb_tensor *from = v->from;
  lb_tensor *out = v->out;
  uint32_t n;
  const int64_t *perm = lb_attr_ints(v->node, "perm", &n);
  for (int i = 0; i < out->rank; i++) {
    int64_t axis = perm ? perm[i] : out->rank - 1 - i;
    if (axis < 0) axis += from->rank;
    out->strides[i] = from->strides[axis];
  }
  return true;
}

static bool expand(const view *v) {
  const lb_tensor *from = v->from;
  lb_tensor *out = v->out;
  int shift = out->rank - from->rank;
  for (int i = 0; i < out->rank; i++) {
    bool same = i >= shift && from->dims[i - shift] == out->dims[i];
    out->strides[i] = same ? from->strides[i - shift] : 0;
  }
  return true;
}

// If rows are contiguous with each other, a window of rows is one longer row.
static bool unfold(const view *v) {
  const lb_tensor *from = v->from;
  lb_tensor *out = v->out;
  int rows = from->rank - 2, cols = from->rank - 1;
  if (lb_attr_int(v->node, "size", 1) > 1 &&
      from->strides[rows] != from->dims[cols] * from->strides[cols])
    return false;
  for (int i = 0; i < out->rank; i++) out->strides[i] = from->strides[i];
  out->strides[rows] *= lb_attr_int(v->node, "step", 1);
  return true;
}

// Element k of an integer vector, which may itself be a view; the shape rule
// has checked dtype and length.
static int64_t element(const lb_tensor *t, int64_t k) {
  int64_t at = t->rank ? k * t->strides[0] : 0;
  const char *p = t->data;
  int64_t wide;
  int32_t narrow;
  if (t->dtype == LB_I64) {
    memcpy(&wide, p + at * 8, sizeof wide);
    return wide;
  }
  memcpy(&narrow, p + at * 4, sizeof narrow);
  return narrow;
}

// The first element taken along an axis of size dim. ONNX clamps a start before
// the first element to it, also for negative steps.
static int64_t slice_start(int64_t start, int64_t dim, int64_t step) {
  int64_t top = step < 0 ? dim - 1 : dim;
  if (start < 0) return start < -dim ? 0 : start + dim;
  return start > top ? top : start;
}

static bool slice(const view *v) {
  const lb_tensor *from = v->from;
  lb_tensor *out = v->out;
  const lb_tensor *starts = v->in[1].data;
  const lb_tensor *axes = v->node->n_in > 3 ? v->in[3].data : NULL;
  const lb_tensor *steps = v->node->n_in > 4 ? v->in[4].data : NULL;
  for (int i = 0; i < out->rank; i++) out->strides[i] = from->strides[i];
  if (lb_tensor_count(out) == 0) return true;
  for (int64_t k = 0; k < lb_tensor_count(starts); k++) {
    int64_t axis = axes ? element(axes, k) : k;
    if (axis < 0) axis += from->rank;
    int64_t step = steps ? element(steps, k) : 1;
    int64_t dim = from->dims[axis];
    int64_t first = slice_start(element(starts, k), dim, step);
    *v->offset += first * from->strides[axis];
    // A single element needs no stride, and its step may be anything.
    out->strides[axis] = out->dims[axis] > 1 ? from->strides[axis] * step : 0;
  }
  return true;
}

// Output i starts where output i - 1 ends.
static bool split(const view *v) {
  const lb_node *node = v->node;
  const lb_tensor *from = v->from;
  lb_tensor *out = v->out;
  int64_t axis = lb_attr_int(node, "axis", 0), start = 0;
  if (axis < 0) axis += from->rank;
  const lb_tensor *sizes = node->n_in > 1 ? v->in[1].data : NULL;
  if (sizes) {
    for (uint32_t i = 0; i < v->index; i++) start += element(sizes, i);
  } else {
    int64_t n = lb_attr_int(node, "num_outputs", node->n_out);
    int64_t dim = from->dims[axis];
    int64_t chunk = dim / n + (dim % n != 0);
    start = chunk * (int64_t)v->index;
    if (start > dim) start = dim;
  }
  for (int i = 0; i < out->rank; i++) out->strides[i] = from->strides[i];
  *v->offset = start * from->strides[axis];
  return true;
}

// Gathers one element along an axis. An index out of range is left to the
// kernel.
static bool gather_one(const view *v) {
  const lb_tensor *from = v->from, *index = v->in[1].data;
  lb_tensor *out = v->out;
  if (!index || index->rank > 1 || lb_tensor_count(index) != 1) return false;
  int64_t axis = lb_attr_int(v->node, "axis", 0), at = element(index, 0);
  if (axis < 0) axis += from->rank;
  if (at < 0) at += from->dims[axis];
  if (at < 0 || at >= from->dims[axis]) return false;
  for (int i = 0, o = 0; i < from->rank; i++)
    if (i != axis)
      out->strides[o++] = from->strides[i];
    else if (index->rank == 1)
      out->strides[o++] = 0;
  *v->offset = at * from->strides[axis];
  return true;
}

// Operators that may be views, besides those of LB_TRAIT_IN_ORDER, which are
// reshapes. All others run as kernels.
static view_fn *const views[LB_OP_COUNT] = {
    [LB_OP_Transpose] = transpose, [LB_OP_Expand] = expand,
    [LB_OP_Unfold] = unfold,       [LB_OP_Slice] = slice,
    [LB_OP_Split] = split,         [LB_OP_Gather] = gather_one,
};

bool lb_view_is(lb_op op) {
  return views[op] || lb_op_has(op, LB_TRAIT_IN_ORDER);
}

bool lb_view_try(const lb_node *node, const lb_vinfo *in, const lb_tensor *from,
                 uint32_t index, lb_tensor *out, int64_t *offset) {
  view v = {node, in, index, from, out, offset};
  *offset = 0;
  if (lb_op_has(node->op, LB_TRAIT_IN_ORDER)) return lb_view_reshape(from, out);
  return views[node->op] && views[node->op](&v);
}
