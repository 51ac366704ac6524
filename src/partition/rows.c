// partition/rows.c -- row operations: softmax, normalisation, reductions.
//
// A division by a value that is common to a row is generated as one division
// per row and one multiplication per element.
#include <math.h>
#include <string.h>

#include "partition/specgen.h"

#define op1 lb_specgen_op1
#define op2 lb_specgen_op2

static uint8_t cols(lb_specgen *e, lb_dtype t) {
  return lb_spec_node(&e->b, LB_S_COLS, t, NULL, 0);
}

static uint8_t inverse(lb_specgen *e, uint8_t x) {
  return op2(e, LB_S_DIV, lb_specgen_num(e, lb_specgen_dtype(e, x), 1), x);
}

static uint8_t square(lb_specgen *e, uint8_t x) {
  return op2(e, LB_S_MUL, x, x);
}

static uint8_t mean_of(lb_specgen *e, uint8_t x) {
  uint8_t sum = op1(e, LB_S_RSUM, x);
  return op2(e, LB_S_DIV, sum, cols(e, lb_specgen_dtype(e, x)));
}

// -- softmax -----------------------------------------------------------------

static uint8_t emit_softmax(lb_specgen *e, const lb_node *n,
                            const uint8_t *src) {
  uint8_t x = op2(e, LB_S_SUB, src[0], op1(e, LB_S_RMAX, src[0]));
  uint8_t powers = op1(e, LB_S_EXP, x);
  uint8_t sum = op1(e, LB_S_RSUM, powers);
  if (n->op == LB_OP_Softmax) return op2(e, LB_S_MUL, powers, inverse(e, sum));
  return op2(e, LB_S_SUB, x, op1(e, LB_S_LOG, sum));
}

// -- normalisation -----------------------------------------------------------

static uint8_t emit_norm(lb_specgen *e, const lb_node *n, const uint8_t *src) {
  bool centred = n->op != LB_OP_RMSNormalization;
  uint8_t d = src[0];
  if (centred) d = op2(e, LB_S_SUB, d, mean_of(e, d));
  lb_dtype t = lb_specgen_dtype(e, d);
  double epsilon = (double)lb_attr_float(n, "epsilon", 1e-5f);
  uint8_t variance = mean_of(e, square(e, d));
  uint8_t sum = op2(e, LB_S_ADD, variance, lb_specgen_num(e, t, epsilon));
  uint8_t y = op2(e, LB_S_MUL, d, inverse(e, op1(e, LB_S_SQRT, sum)));
  y = op2(e, LB_S_MUL, y, src[1]);
  return src[2] == LB_SPEC_NO_NODE ? y : op2(e, LB_S_ADD, y, src[2]);
}

// -- reductions --------------------------------------------------------------

// An infinite maximum is replaced by 0, because infinity - infinity is NaN; the
// result is right without the subtraction.
static uint8_t log_sum_exp(lb_specgen *e, uint8_t x) {
  lb_dtype t = lb_specgen_dtype(e, x);
  uint8_t top = op1(e, LB_S_RMAX, x);
  uint8_t infinite = lb_specgen_test(e, LB_S_EQ, op1(e, LB_S_ABS, top),
                                     lb_specgen_num(e, t, INFINITY));
  top = lb_specgen_choose(e, infinite, lb_specgen_num(e, t, 0), top);
  uint8_t powers = op1(e, LB_S_EXP, op2(e, LB_S_SUB, x, top));
  return op2(e, LB_S_ADD, top, op1(e, LB_S_LOG, op1(e, LB_S_RSUM, powers)));
}

#define FN(Op) \
  static uint8_t emit_##Op(lb_specgen *e, const lb_node *n, const uint8_t *src)

FN(ReduceL1) {
  (void)n;
  return op1(e, LB_S_RSUM, op1(e, LB_S_ABS, src[0]));
}
FN(ReduceL2) {
  (void)n;
  return op1(e, LB_S_SQRT, op1(e, LB_S_RSUM, square(e, src[0])));
}
FN(ReduceLogSum) {
  (void)n;
  return op1(e, LB_S_LOG, op1(e, LB_S_RSUM, src[0]));
}
FN(ReduceLogSumExp) {
  (void)n;
  return log_sum_exp(e, src[0]);
}
FN(ReduceMax) {
  (void)n;
  return op1(e, LB_S_RMAX, src[0]);
}
FN(ReduceMean) {
  (void)n;
  return mean_of(e, src[0]);
}
FN(ReduceMin) {
  (void)n;
  return op1(e, LB_S_RMIN, src[0]);
}
FN(ReduceProd) {
  (void)n;
  return op1(e, LB_S_RPROD, src[0]);
}
FN(ReduceSum) {
  (void)n;
  return op1(e, LB_S_RSUM, src[0]);
}
FN(ReduceSumSquare) {
  (void)n;
  return op1(e, LB_S_RSUM, square(e, src[0]));
}

// -- axes --------------------------------------------------------------------

// The axis in an attribute. If `trailing`, or if the attribute `flatten` is set
// (Softmax before opset 13), it and all axes after it.
static bool one_axis(const lb_node *n, int rank, bool trailing, uint32_t *out) {
  bool flatten = lb_attr_int(n, "flatten", 0) != 0;
  int64_t axis = lb_attr_int(n, "axis", flatten ? 1 : -1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return false;
  *out = 1u << axis;
  if (flatten || trailing) *out = (1u << rank) - *out;
  return true;
}

// The axes that input 1 lists; all axes if it is absent or empty. False if they
// are not constant or not valid, or if an empty list means a no-op.
static bool listed_axes(const lb_node *n, int rank, uint32_t *out) {
  const lb_tensor *t = n->n_in > 1 ? lb_value_const(n->in[1]) : NULL;
  bool given = n->n_in > 1 && n->in[1];
  if (given && (!t || t->dtype != LB_I64 || !lb_tensor_is_dense(t)))
    return false;
  int64_t count = t ? lb_tensor_count(t) : 0;
  *out = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t axis;
    memcpy(&axis, (const char *)t->data + i * 8, sizeof axis);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return false;
    *out |= 1u << axis;
  }
  if (count == 0) *out = (1u << rank) - 1;
  return count > 0 || lb_attr_int(n, "noop_with_empty_axes", 0) == 0;
}

static bool spatial_axes(const lb_node *n, int rank, uint32_t *out) {
  (void)n;
  *out = ((1u << rank) - 1) & ~3u;
  return rank > 2;
}

// -- the table ---------------------------------------------------------------

typedef enum axes_kind { AXIS, TRAILING, LISTED, SPATIAL } axes_kind;

typedef struct rows_op {
  lb_specgen_fn *fn;
  uint8_t kinds;  // LB_KIND_* of dtypes
  uint8_t axes;   // axes_kind
  bool reduces;
} rows_op;

static const rows_op ops[LB_OP_COUNT] = {
#define REDUCE(Op, kinds) [LB_OP_##Op] = {emit_##Op, kinds, LISTED, true}
    [LB_OP_Softmax] = {emit_softmax, LB_KIND_F, AXIS, false},
    [LB_OP_LogSoftmax] = {emit_softmax, LB_KIND_F, AXIS, false},
    [LB_OP_LayerNormalization] = {emit_norm, LB_KIND_F, TRAILING, false},
    [LB_OP_RMSNormalization] = {emit_norm, LB_KIND_F, TRAILING, false},
    [LB_OP_InstanceNormalization] = {emit_norm, LB_KIND_F, SPATIAL, false},
    [LB_OP_GlobalAveragePool] = {emit_ReduceMean, LB_KIND_F, SPATIAL, true},
    [LB_OP_GlobalMaxPool] = {emit_ReduceMax, LB_KIND_F, SPATIAL, true},
    REDUCE(ReduceL1, LB_KIND_N),
    REDUCE(ReduceL2, LB_KIND_F),
    REDUCE(ReduceLogSum, LB_KIND_F),
    REDUCE(ReduceLogSumExp, LB_KIND_F),
    REDUCE(ReduceMax, LB_KIND_N),
    REDUCE(ReduceMean, LB_KIND_F),
    REDUCE(ReduceMin, LB_KIND_N),
    REDUCE(ReduceProd, LB_KIND_N),
    REDUCE(ReduceSum, LB_KIND_N),
    REDUCE(ReduceSumSquare, LB_KIND_N),
};

unsigned lb_specgen_row_kinds(lb_op op) { return ops[op].kinds; }

// The reductions that can be computed as a window over positions, with the
// accumulator of that window.
static const struct {
  bool is;
  lb_acc acc;
} windows[LB_OP_COUNT] = {
    [LB_OP_GlobalAveragePool] = {true, LB_ACC_SUM},
    [LB_OP_GlobalMaxPool] = {true, LB_ACC_MAX},
    [LB_OP_ReduceL2] = {true, LB_ACC_SQUARES},
    [LB_OP_ReduceMax] = {true, LB_ACC_MAX},
    [LB_OP_ReduceMean] = {true, LB_ACC_SUM},
    [LB_OP_ReduceMin] = {true, LB_ACC_MIN},
    [LB_OP_ReduceSum] = {true, LB_ACC_SUM},
    [LB_OP_ReduceSumSquare] = {true, LB_ACC_SQUARES},
};

bool lb_specgen_is_window(const lb_node *n, lb_acc *out) {
  if (!windows[n->op].is) return false;
  *out = windows[n->op].acc;
  return lb_dtype_is_float(n->out[0]->info.dtype);
}

uint8_t lb_specgen_window_node(lb_specgen *e, const lb_node *n, int64_t count) {
  lb_acc kind = LB_ACC_SUM;
  lb_specgen_is_window(n, &kind);
  lb_dtype t = lb_specgen_compute_dtype(n->out[0]->info.dtype);
  uint8_t acc = lb_spec_acc(&e->b, kind, t);
  if (n->op == LB_OP_ReduceL2) return op1(e, LB_S_SQRT, acc);
  if (n->op != LB_OP_ReduceMean && n->op != LB_OP_GlobalAveragePool) return acc;
  return op2(e, LB_S_DIV, acc, lb_specgen_size_scalar(e, t, (double)count));
}

bool lb_specgen_reduces(const lb_node *n) { return ops[n->op].reduces; }

bool lb_specgen_reads_once(const lb_node *n) {
  return lb_specgen_reduces(n) && n->op != LB_OP_ReduceLogSumExp;
}

bool lb_specgen_is_channel(const lb_node *n, uint32_t i) {
  return n->op == LB_OP_InstanceNormalization && i > 0;
}

static bool has_axes(const lb_node *n, axes_kind kind, int rank,
                     uint32_t *out) {
  switch (kind) {
    case AXIS: return one_axis(n, rank, false, out);
    case TRAILING: return one_axis(n, rank, true, out);
    case LISTED: return listed_axes(n, rank, out);
    default: return spatial_axes(n, rank, out);
  }
}

bool lb_specgen_is_row_op(const lb_node *n, uint32_t *axes) {
  const rows_op *op = &ops[n->op];
  if (!op->fn || n->in[0]->info.rank < 1) return false;
  lb_dtype t = n->in[0]->info.dtype;
  if (!(lb_specgen_kind(t) & op->kinds) || n->out[0]->info.dtype != t)
    return false;
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  for (uint32_t i = 1; i < n->n_in; i++)
    if (lb_specgen_reads(n, i) && n->in[i]->info.dtype != t) return false;
  return has_axes(n, op->axes, n->in[0]->info.rank, axes);
}

uint8_t lb_specgen_row_node(lb_specgen *e, const lb_node *n,
                            const uint8_t *src) {
  return ops[n->op].fn(e, n, src);
}
