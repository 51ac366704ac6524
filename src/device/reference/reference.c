// device/reference/reference.c -- the table of operators, and helpers that all
// of them share.
#include "device/reference/reference.h"

#include "device/reference/iter.h"
#include "device/reference/move.h"

// A row of ops.def without an lb_reference_<Name> does not link.
static lb_reference_fn *const reference_fns[LB_OP_COUNT] = {
#define LB_OP(id, ...) [LB_OP_##id] = lb_reference_##id,
#define LB_CONTROL(id, ...)
#include "graph/ops.def"
};

// Without output elements there is no work, however large the other dims are.
static bool has_work(const lb_reference_call *c) {
  if (lb_op_has(c->node->op, LB_TRAIT_DYNAMIC)) return true;
  for (uint32_t i = 0; i < c->node->n_out; i++)
    if (c->out[i].dtype != LB_NONE && lb_tensor_count(&c->out[i]) > 0)
      return true;
  return false;
}

// A view with the channels, which are last, moved to dim 1.
static lb_tensor channels_first(const lb_tensor *t) {
  lb_tensor v = *t;
  v.dims[1] = t->dims[t->rank - 1];
  v.strides[1] = t->strides[t->rank - 1];
  for (int i = 2; i < t->rank; i++) {
    v.dims[i] = t->dims[i - 1];
    v.strides[i] = t->strides[i - 1];
  }
  return v;
}

// Operators support channels first only: inputs are viewed, and the output is
// copied.
static lb_status run_channels_last(lb_reference_call *c, lb_reference_fn *fn) {
  lb_tensor *in = lb_arena_memdup(c->scratch, c->in, c->node->n_in * sizeof *in,
                                  _Alignof(lb_tensor));
  if (!in) return lb_oom();
  lb_tensor to = channels_first(&c->out[0]), out;
  in[0] = channels_first(&in[0]);
  LB_TRY(lb_reference_temp(c, to.dtype, to.rank, to.dims, &out));
  lb_reference_call first = *c;
  first.in = in;
  first.out = &out;
  LB_TRY(fn(&first));
  lb_move(c->pool, &out, &to);
  return LB_OK;
}

static lb_status run(lb_reference_call *c, lb_reference_fn *fn) {
  return lb_op_channels_last(c->node) ? run_channels_last(c, fn) : fn(c);
}

lb_status lb_reference_run(lb_reference_call *c) {
  lb_reference_fn *fn = reference_fns[c->node->op];
  if (fn && !has_work(c)) return LB_OK;
  lb_status st =
      fn ? run(c, fn)
         : lb_error(LB_INTERNAL,
                    "a control operator was passed to the reference");
  if (!lb_failed(st)) return st;
  char label[160];
  lb_node_label(c->node, label, sizeof label);
  return lb_status_note(st, "%s", label);
}

lb_status lb_reference_bad_dtype(const lb_reference_call *c, lb_dtype t) {
  return lb_error(LB_UNSUPPORTED, "%s does not support %s",
                  lb_op_infos[c->node->op].name, lb_dtype_name(t));
}

lb_status lb_reference_temp(lb_reference_call *c, lb_dtype dtype, int rank,
                            const int64_t *dims, lb_tensor *out) {
  lb_tensor t = {.dtype = dtype, .rank = rank};
  int64_t count;
  LB_TRY(lb_dims_count(rank, dims, &count));
  for (int i = 0; i < rank; i++) t.dims[i] = dims[i];
  lb_tensor_dense(&t);
  size_t bytes = lb_mul_sat((size_t)count, lb_dtype_size(dtype));
  t.data = lb_arena_alloc(c->scratch, bytes, 64);
  if (!t.data) return lb_oom();
  *out = t;
  return LB_OK;
}

lb_status lb_reference_dense(lb_reference_call *c, const lb_tensor *t,
                             lb_dtype dtype, lb_tensor *out) {
  if (t->dtype == dtype && lb_tensor_is_dense(t)) {
    *out = *t;
    return LB_OK;
  }
  lb_tensor copy;  // a temporary, because `out` may be `t`
  LB_TRY(lb_reference_temp(c, dtype, t->rank, t->dims, &copy));
  lb_convert(c->pool, t, &copy);
  *out = copy;
  return LB_OK;
}

lb_status lb_reference_ints(lb_reference_call *c, int i, const int64_t **out,
                            int64_t *n) {
  *out = NULL;
  *n = 0;
  if (i >= (int)c->node->n_in || c->in[i].dtype == LB_NONE) return LB_OK;
  const lb_tensor *t = &c->in[i];
  if (lb_dtype_is_float(t->dtype))
    return lb_error(LB_INVALID, "input %d must hold integers, not %s", i,
                    lb_dtype_name(t->dtype));
  // Always a copy, because callers read it as aligned int64.
  lb_tensor ints;
  LB_TRY(lb_reference_temp(c, LB_I64, t->rank, t->dims, &ints));
  lb_convert(NULL, t, &ints);
  *out = ints.data;
  *n = lb_tensor_count(t);
  return LB_OK;
}

lb_status lb_reference_scalar(lb_reference_call *c, int i, double dflt,
                              double *out) {
  *out = dflt;
  if (i >= (int)c->node->n_in || c->in[i].dtype == LB_NONE) return LB_OK;
  const lb_tensor *t = &c->in[i];
  if (lb_tensor_count(t) != 1)
    return lb_error(LB_INVALID, "input %d must hold one element, not %lld", i,
                    (long long)lb_tensor_count(t));
  lb_tensor one = *t, to = {.dtype = LB_F64, .data = out};
  one.rank = 0;
  return lb_reference_convert(&one, &to);
}

lb_status lb_reference_axis(const lb_reference_call *c, int64_t axis, int rank,
                            int *out) {
  if (axis < -rank || axis >= rank)
    return lb_error(
        LB_INVALID, "%s: axis %lld is not in [%d, %d), the range for rank %d",
        lb_op_infos[c->node->op].name, (long long)axis, -rank, rank, rank);
  *out = (int)(axis < 0 ? axis + rank : axis);
  return LB_OK;
}
