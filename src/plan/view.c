// plan/view.c -- skipped operators as arithmetic on strides: one function for
// each rule of graph/skips.def.
#include "plan/view.h"

#include <string.h>

#include "base/tensor.h"

// Axes are matched in groups with equal products of dims; within a group the
// axes of `from` must be contiguous with each other.
bool lb_view_reshape_strides(const lb_tensor *from, lb_tensor *out) {
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
  const lb_skip_query *q;
  const lb_proof *proof;
  uint32_t index;
  const lb_tensor *from;
  lb_tensor *out;
  int64_t *offset;
} view;

typedef bool view_fn(const view *v);

// Without a function for a rule, the table at the end does not link.
#define LB_SKIP(name, ...) view_fn lb_view_##name;
#include "graph/skips.def"

static void copy_strides(const view *v) {
  for (int i = 0; i < v->out->rank; i++)
    v->out->strides[i] = v->from->strides[i];
}

static int axis_of(const view *v, int64_t axis) {
  return (int)(axis < 0 ? axis + v->from->rank : axis);
}

bool lb_view_never(const view *v) {
  (void)v;
  return false;
}

bool lb_view_reshape(const view *v) {
  return lb_view_reshape_strides(v->from, v->out);
}

bool lb_view_identity(const view *v) {
  copy_strides(v);
  return true;
}

bool lb_view_scatter(const view *v) { return lb_view_identity(v); }
bool lb_view_resize(const view *v) { return lb_view_identity(v); }
bool lb_view_concat(const view *v) { return lb_view_identity(v); }
bool lb_view_tile(const view *v) { return lb_view_identity(v); }
bool lb_view_cumulative(const view *v) { return lb_view_identity(v); }
bool lb_view_cast(const view *v) { return lb_view_identity(v); }
bool lb_view_neutral(const view *v) { return lb_view_identity(v); }
bool lb_view_where(const view *v) { return lb_view_identity(v); }
bool lb_view_dropout(const view *v) { return lb_view_identity(v); }
bool lb_view_pool(const view *v) { return lb_view_identity(v); }
bool lb_view_global_pool(const view *v) { return lb_view_identity(v); }
bool lb_view_single(const view *v) { return lb_view_identity(v); }

// Axes of size 1 may be gone.
bool lb_view_reduce(const view *v) { return lb_view_reshape(v); }

bool lb_view_transpose(const view *v) {
  const lb_tensor *from = v->from;
  lb_tensor *out = v->out;
  uint32_t n;
  const int64_t *perm = lb_attr_ints(v->q->node, "perm", &n);
  for (int i = 0; i < out->rank; i++)
    out->strides[i] =
        from->strides[axis_of(v, perm ? perm[i] : out->rank - 1 - i)];
  return true;
}

bool lb_view_expand(const view *v) {
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
bool lb_view_unfold(const view *v) {
  const lb_tensor *from = v->from;
  int rows = from->rank - 2, cols = from->rank - 1;
  if (lb_attr_int(v->q->node, "size", 1) > 1 &&
      from->strides[rows] != from->dims[cols] * from->strides[cols])
    return false;
  copy_strides(v);
  v->out->strides[rows] *= lb_attr_int(v->q->node, "step", 1);
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

// The contents of an optional input; NULL: absent.
static const lb_tensor *contents(const view *v, uint32_t input) {
  return input < v->q->node->n_in ? v->q->in[input].data : NULL;
}

bool lb_view_slice(const view *v) {
  const lb_tensor *from = v->from;
  lb_tensor *out = v->out;
  copy_strides(v);
  if (v->proof->kind == LB_PROOF_WHOLE || lb_tensor_count(out) == 0)
    return true;
  const lb_tensor *starts = contents(v, 1);
  const lb_tensor *axes = contents(v, 3), *steps = contents(v, 4);
  for (int64_t k = 0; k < lb_tensor_count(starts); k++) {
    int axis = axis_of(v, axes ? element(axes, k) : k);
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
bool lb_view_split(const view *v) {
  const lb_node *node = v->q->node;
  const lb_tensor *from = v->from;
  int64_t start = 0;
  copy_strides(v);
  if (v->proof->kind == LB_PROOF_WHOLE) return true;
  int axis = axis_of(v, lb_attr_int(node, "axis", 0));
  const lb_tensor *sizes = contents(v, 1);
  if (sizes) {
    for (uint32_t i = 0; i < v->index; i++) start += element(sizes, i);
  } else {
    int64_t n = lb_attr_int(node, "num_outputs", node->n_out);
    int64_t dim = from->dims[axis];
    int64_t chunk = dim / n + (dim % n != 0);
    start = chunk * (int64_t)v->index;
    if (start > dim) start = dim;
  }
  *v->offset = start * from->strides[axis];
  return true;
}

// The axis of a single index is gone if the index is a scalar.
bool lb_view_gather(const view *v) {
  const lb_tensor *from = v->from;
  bool gone = v->proof->kind == LB_PROOF_INDEX;
  for (int i = 0, o = 0; i < from->rank; i++)
    if (!gone || i != v->proof->axis) v->out->strides[o++] = from->strides[i];
  *v->offset = v->proof->first * from->strides[v->proof->axis];
  return true;
}

// Negative pads remove elements.
bool lb_view_pad(const view *v) {
  copy_strides(v);
  if (v->proof->kind == LB_PROOF_NO_PADDING) return true;
  const lb_tensor *pads = contents(v, 1), *axes = contents(v, 3);
  int64_t n = lb_tensor_count(pads) / 2;
  for (int64_t i = 0; i < n; i++) {
    int axis = axis_of(v, axes ? element(axes, i) : i);
    *v->offset -= element(pads, i) * v->from->strides[axis];
  }
  return true;
}

static view_fn *const views[LB_SKIP_ID_COUNT] = {
#define LB_SKIP(name, ...) [LB_SKIP_ID_##name] = lb_view_##name,
#include "graph/skips.def"
};

bool lb_view_try(const lb_skip_query *q, const lb_proof *proof,
                 const lb_tensor *from, uint32_t index, lb_tensor *out,
                 int64_t *offset) {
  view v = {q, proof, index, from, out, offset};
  *offset = 0;
  return views[lb_op_infos[q->node->op].skip](&v);
}
