// graph/skip_rules.c -- the skip rule of each operator.
//
// A rule sees what is known of inputs and outputs, symbols at load and numbers
// at planning. Its answers are monotone: NO, VIEW and SAME at load hold for
// every plan, except that VIEW may become SAME.
#include <stdlib.h>
#include <string.h>

#include "graph/resize.h"
#include "graph/skip.h"

// -- what is known -----------------------------------------------------------

static lb_dim dim_at(const lb_skip_operand *o, int i) {
  return o->sizes ? lb_dim_const(o->sizes[i]) : o->dims[i];
}

static const lb_skip_operand *input(const lb_skip_query *q, uint32_t i) {
  bool there = i < q->node->n_in && q->in[i].dtype != LB_NONE;
  return there ? &q->in[i] : NULL;
}

static bool same_dims(const lb_skip_operand *a, const lb_skip_operand *b) {
  if (a->rank < 0 || a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (!lb_dim_equal(dim_at(a, i), dim_at(b, i))) return false;
  return true;
}

// What is not known yet might still hold.
static bool may_have_same_dims(const lb_skip_operand *a,
                               const lb_skip_operand *b) {
  if (a->rank < 0 || b->rank < 0) return true;
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++) {
    lb_dim x = dim_at(a, i), y = dim_at(b, i);
    if (lb_dim_is_const(x) && lb_dim_is_const(y) && x.k != y.k) return false;
  }
  return true;
}

static int64_t int_at(const lb_tensor *t, int64_t i) {
  const char *at = t->data;
  int64_t wide;
  int32_t narrow;
  at += (t->rank ? i * t->strides[0] : 0) * (int64_t)lb_dtype_size(t->dtype);
  if (t->dtype == LB_I64) {
    memcpy(&wide, at, sizeof wide);
    return wide;
  }
  memcpy(&narrow, at, sizeof narrow);
  return narrow;
}

static bool is_vector(const lb_skip_operand *o) {
  return o->data && o->data->rank <= 1 &&
         (o->data->dtype == LB_I64 || o->data->dtype == LB_I32);
}

// Whether all elements of an integer vector are known, and equal to x; at load
// also where they are known as expressions.
static bool all_are(const lb_skip_operand *o, int64_t x) {
  if (is_vector(o)) {
    for (int64_t i = 0; i < lb_tensor_count(o->data); i++)
      if (int_at(o->data, i) != x) return false;
    return true;
  }
  if (!o->symbols) return false;
  for (int i = 0; i < o->symbols->n_known; i++)
    if (!lb_dim_is(o->symbols->known[i], x)) return false;
  return true;
}

static lb_skip proved(lb_proof *p, lb_proof_kind kind, uint32_t in,
                      lb_skip how) {
  *p = (lb_proof){.kind = (uint8_t)kind, .input = (uint16_t)in};
  return how;
}

// SAME if the output has the dims of the input, else what remains possible.
static lb_skip if_same_dims(const lb_skip_query *q, uint32_t in,
                            lb_proof_kind kind, lb_proof *p) {
  if (same_dims(&q->in[in], &q->out[0]))
    return proved(p, kind, in, LB_SKIP_SAME);
  return may_have_same_dims(&q->in[in], &q->out[0]) ? LB_SKIP_UNKNOWN
                                                    : LB_SKIP_NO;
}

// An axis in [0, rank), or -1.
static int normal_axis(int64_t axis, int rank) {
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? -1 : (int)axis;
}

// -- contents ----------------------------------------------------------------

// The bits of element i of a dense or uniform tensor.
static uint64_t bits_at(const lb_tensor *t, int64_t i) {
  uint64_t bits = 0;
  size_t size = lb_dtype_size(t->dtype);
  memcpy(&bits, (const char *)t->data + (size_t)i * size, size);
  return bits;
}

// Constants above this number of elements are not examined.
#define MAX_EXAMINED 65536

typedef enum truth { IS_FALSE, IS_UNKNOWN, IS_TRUE } truth;

// Whether every element has these bits.
static truth is_uniform(const lb_skip_operand *o, uint64_t bits) {
  if (o->content.kind == LB_CONTENT_UNIFORM)
    return (uint64_t)o->content.bits == bits ? IS_TRUE : IS_FALSE;
  if (!o->data) return IS_UNKNOWN;
  int64_t n = lb_tensor_count(o->data);
  bool dense = lb_tensor_is_dense(o->data);
  if (n == 0 || n > MAX_EXAMINED || (!dense && n > 1)) return IS_FALSE;
  for (int64_t i = 0; i < n; i++)
    if (bits_at(o->data, i) != bits) return IS_FALSE;
  return IS_TRUE;
}

// Whether the elements are first, first + 1, first + 2, ...
static truth is_range(const lb_skip_operand *o, int64_t *first) {
  if (o->content.kind == LB_CONTENT_RANGE) {
    *first = o->content.bits;
    return IS_TRUE;
  }
  if (!o->data) return IS_UNKNOWN;
  int64_t n = lb_tensor_count(o->data);
  if (!is_vector(o) || n == 0 || n > MAX_EXAMINED) return IS_FALSE;
  *first = int_at(o->data, 0);
  for (int64_t i = 1; i < n; i++)
    if (int_at(o->data, i) != *first + i) return IS_FALSE;
  return IS_TRUE;
}

// -- rules -------------------------------------------------------------------

static lb_skip lb_skip_never(const lb_skip_query *q, lb_proof *p) {
  (void)q, (void)p;
  return LB_SKIP_NO;
}

static lb_skip lb_skip_identity(const lb_skip_query *q, lb_proof *p) {
  (void)q;
  return proved(p, LB_PROOF_PASSES_ON, 0, LB_SKIP_SAME);
}

static lb_skip lb_skip_reshape(const lb_skip_query *q, lb_proof *p) {
  (void)q;
  return proved(p, LB_PROOF_ONLY_DIMS, 0, LB_SKIP_SAME);
}

// Whether the axes of sizes other than 1 keep their order.
static truth keeps_order(const lb_skip_query *q) {
  uint32_t n;
  const int64_t *perm = lb_attr_ints(q->node, "perm", &n);
  const lb_skip_operand *x = &q->in[0];
  int last = -1;
  bool sure = true;
  if (x->rank < 0) return IS_UNKNOWN;
  for (int i = 0; i < x->rank; i++) {
    int axis = normal_axis(perm ? perm[i] : x->rank - 1 - i, x->rank);
    if (axis < 0) return IS_FALSE;
    if (lb_dim_is(dim_at(x, axis), 1)) continue;
    if (axis > last) {
      last = axis;
    } else if (lb_dim_is_const(dim_at(x, axis)) &&
               lb_dim_is_const(dim_at(x, last))) {
      return IS_FALSE;
    } else {
      sure = false;
    }
  }
  return sure ? IS_TRUE : IS_UNKNOWN;
}

static lb_skip lb_skip_transpose(const lb_skip_query *q, lb_proof *p) {
  if (keeps_order(q) == IS_TRUE)
    return proved(p, LB_PROOF_ORDER, 0, LB_SKIP_SAME);
  return proved(p, LB_PROOF_STRIDES, 0, LB_SKIP_VIEW);
}

// From the first to beyond the last element of each axis, with step 1: the
// whole input at every size.
static bool takes_all(const lb_skip_query *q) {
  const lb_skip_operand *steps = input(q, 4);
  return all_are(&q->in[1], 0) && all_are(&q->in[2], INT64_MAX) &&
         (!steps || all_are(steps, 1));
}

static bool goes_forwards(const lb_skip_query *q) {
  const lb_skip_operand *steps = input(q, 4);
  if (!steps) return true;
  if (!is_vector(steps)) return all_are(steps, 1);
  for (int64_t i = 0; i < lb_tensor_count(steps->data); i++)
    if (int_at(steps->data, i) < 0) return false;
  return true;
}

static bool contents_known(const lb_skip_query *q, uint32_t first) {
  for (uint32_t i = first; i < q->node->n_in; i++)
    if (input(q, i) && !q->in[i].data) return false;
  return true;
}

static lb_skip lb_skip_slice(const lb_skip_query *q, lb_proof *p) {
  bool whole =
      takes_all(q) || (same_dims(&q->in[0], &q->out[0]) && goes_forwards(q));
  if (whole) return proved(p, LB_PROOF_WHOLE, 0, LB_SKIP_SAME);
  if (!contents_known(q, 1)) return LB_SKIP_UNKNOWN;
  return proved(p, LB_PROOF_WINDOW, 0, LB_SKIP_VIEW);
}

static lb_skip lb_skip_split(const lb_skip_query *q, lb_proof *p) {
  if (q->node->n_out == 1 && same_dims(&q->in[0], &q->out[0]))
    return proved(p, LB_PROOF_WHOLE, 0, LB_SKIP_SAME);
  if (!contents_known(q, 1)) return LB_SKIP_UNKNOWN;
  return proved(p, LB_PROOF_PARTS, 0, LB_SKIP_VIEW);
}

static lb_skip lb_skip_expand(const lb_skip_query *q, lb_proof *p) {
  if (same_dims(&q->in[0], &q->out[0]))
    return proved(p, LB_PROOF_SAME_DIMS, 0, LB_SKIP_SAME);
  return proved(p, LB_PROOF_REPEATS, 0, LB_SKIP_VIEW);
}

static lb_skip lb_skip_unfold(const lb_skip_query *q, lb_proof *p) {
  if (same_dims(&q->in[0], &q->out[0]) &&
      lb_attr_int(q->node, "size", 1) == 1 &&
      lb_attr_int(q->node, "step", 1) == 1)
    return proved(p, LB_PROOF_WHOLE, 0, LB_SKIP_SAME);
  return proved(p, LB_PROOF_ROWS, 0, LB_SKIP_VIEW);
}

// Consecutive indices are a window. An index that is out of range is left to
// the kernel, which reports it.
static lb_skip lb_skip_gather(const lb_skip_query *q, lb_proof *p) {
  const lb_skip_operand *x = &q->in[0], *indices = &q->in[1];
  int64_t first, n = 1;
  if (x->rank < 0 || indices->rank < 0) return LB_SKIP_UNKNOWN;
  int axis = normal_axis(lb_attr_int(q->node, "axis", 0), x->rank);
  if (axis < 0 || indices->rank > 1) return LB_SKIP_NO;
  truth range = is_range(indices, &first);
  if (range == IS_FALSE) return LB_SKIP_NO;
  lb_dim dim = dim_at(x, axis);
  if (indices->rank) {
    lb_dim length = dim_at(indices, 0);
    if (!lb_dim_is_const(length)) return LB_SKIP_UNKNOWN;
    n = length.k;
  }
  if (range == IS_UNKNOWN || !lb_dim_is_const(dim)) return LB_SKIP_UNKNOWN;
  if (first < 0) first += dim.k;
  if (first < 0 || first > dim.k - n) return LB_SKIP_NO;
  bool all = n == dim.k && indices->rank == 1;
  *p = (lb_proof){.kind = all                  ? LB_PROOF_IDENTITY
                          : indices->rank == 1 ? LB_PROOF_RANGE
                                               : LB_PROOF_INDEX,
                  .axis = (uint8_t)axis,
                  .first = first,
                  .n = n};
  return all ? LB_SKIP_SAME : LB_SKIP_VIEW;
}

// Whether a tensor has no elements.
static truth is_empty(const lb_skip_operand *o) {
  bool sure = o->rank >= 0;
  for (int i = 0; i < o->rank; i++) {
    if (lb_dim_is(dim_at(o, i), 0)) return IS_TRUE;
    sure = sure && (lb_dim_is_const(dim_at(o, i)) ||
                    lb_dim_known(dim_at(o, i)).at_least > 0);
  }
  return sure ? IS_FALSE : IS_UNKNOWN;
}

static lb_skip lb_skip_scatter(const lb_skip_query *q, lb_proof *p) {
  truth empty = is_empty(&q->in[2]);
  if (empty == IS_TRUE) return proved(p, LB_PROOF_NO_UPDATES, 0, LB_SKIP_SAME);
  return empty == IS_UNKNOWN ? LB_SKIP_UNKNOWN : LB_SKIP_NO;
}

// Equal sizes are not enough: 5 * 1.1 rounds down to 5, but moves elements.
static lb_skip lb_skip_resize(const lb_skip_query *q, lb_proof *p) {
  const lb_skip_operand *scales = input(q, 2), *sizes = input(q, 3);
  float one = 1;
  uint32_t bits;
  memcpy(&bits, &one, sizeof bits);
  if (!lb_resize_is_plain(q->node)) return LB_SKIP_NO;
  if (scales && is_empty(scales) == IS_TRUE) scales = NULL;
  if (!scales && !sizes) return LB_SKIP_UNKNOWN;
  truth ones = scales ? is_uniform(scales, bits) : IS_TRUE;
  if (ones == IS_FALSE) return LB_SKIP_NO;
  lb_skip same = if_same_dims(q, 0, LB_PROOF_SCALE_ONE, p);
  return ones == IS_UNKNOWN && same == LB_SKIP_SAME ? LB_SKIP_UNKNOWN : same;
}

// Whether all inputs but one have no elements. An input whose rank is 1 and
// size 0 counts as well, like every empty one.
static lb_skip lb_skip_concat(const lb_skip_query *q, lb_proof *p) {
  uint32_t filled = 0, possible = 0, last = 0;
  for (uint32_t i = 0; i < q->node->n_in; i++) {
    if (!input(q, i)) continue;
    truth empty = is_empty(&q->in[i]);
    if (empty == IS_TRUE) continue;
    possible++;
    filled += empty == IS_FALSE;
    last = i;
  }
  if (possible == 1) return proved(p, LB_PROOF_ONE_INPUT, last, LB_SKIP_SAME);
  return filled > 1 || possible == 0 ? LB_SKIP_NO : LB_SKIP_UNKNOWN;
}

// Whether no pad is positive.
static bool only_removes(const lb_tensor *pads) {
  for (int64_t i = 0; i < lb_tensor_count(pads); i++)
    if (int_at(pads, i) > 0) return false;
  return true;
}

static lb_skip lb_skip_pad(const lb_skip_query *q, lb_proof *p) {
  const lb_skip_operand *pads = &q->in[1];
  if (all_are(pads, 0)) return proved(p, LB_PROOF_NO_PADDING, 0, LB_SKIP_SAME);
  if (!is_vector(pads)) return LB_SKIP_UNKNOWN;
  if (!only_removes(pads->data)) return LB_SKIP_NO;
  if (!contents_known(q, 3)) return LB_SKIP_UNKNOWN;
  return proved(p, LB_PROOF_CROP, 0, LB_SKIP_VIEW);
}

static lb_skip lb_skip_tile(const lb_skip_query *q, lb_proof *p) {
  return if_same_dims(q, 0, LB_PROOF_ONCE, p);
}

// Whether every reduced axis has size 1.
static truth reduces_nothing(const lb_skip_query *q) {
  const lb_skip_operand *x = &q->in[0], *axes = input(q, 1);
  if (x->rank < 0 || (axes && !is_vector(axes))) return IS_UNKNOWN;
  int64_t n = axes ? lb_tensor_count(axes->data) : 0;
  bool all = n == 0, sure = true;
  if (all && lb_attr_int(q->node, "noop_with_empty_axes", 0)) return IS_TRUE;
  if (all) n = x->rank;
  for (int64_t i = 0; i < n; i++) {
    int axis = normal_axis(all ? i : int_at(axes->data, i), x->rank);
    if (axis < 0) return IS_FALSE;
    lb_dim d = dim_at(x, axis);
    if (lb_dim_is_const(d) && d.k != 1) return IS_FALSE;
    sure = sure && lb_dim_is(d, 1);
  }
  return sure ? IS_TRUE : IS_UNKNOWN;
}

static lb_skip lb_skip_reduce(const lb_skip_query *q, lb_proof *p) {
  truth nothing = reduces_nothing(q);
  if (nothing == IS_TRUE) return proved(p, LB_PROOF_SIZE_ONE, 0, LB_SKIP_SAME);
  return nothing == IS_UNKNOWN ? LB_SKIP_UNKNOWN : LB_SKIP_NO;
}

// Over an axis of size 1, an inclusive sum or product has one operand.
static lb_skip lb_skip_cumulative(const lb_skip_query *q, lb_proof *p) {
  const lb_skip_operand *x = &q->in[0], *axes = &q->in[1];
  if (lb_attr_int(q->node, "exclusive", 0)) return LB_SKIP_NO;
  if (x->rank < 0 || !is_vector(axes) || lb_tensor_count(axes->data) != 1)
    return LB_SKIP_UNKNOWN;
  int axis = normal_axis(int_at(axes->data, 0), x->rank);
  if (axis < 0) return LB_SKIP_NO;
  lb_dim d = dim_at(x, axis);
  if (lb_dim_is(d, 1)) return proved(p, LB_PROOF_SIZE_ONE, 0, LB_SKIP_SAME);
  return lb_dim_is_const(d) ? LB_SKIP_NO : LB_SKIP_UNKNOWN;
}

static lb_skip lb_skip_cast(const lb_skip_query *q, lb_proof *p) {
  lb_dtype from = q->in[0].dtype, to = q->out[0].dtype;
  if (from == LB_NONE || to == LB_NONE) return LB_SKIP_UNKNOWN;
  if (from != to) return LB_SKIP_NO;
  return proved(p, LB_PROOF_SAME_DTYPE, 0, LB_SKIP_SAME);
}

// -- algebra -----------------------------------------------------------------

// 1 in the dtype, as bits; false if it has none.
static bool one_of(lb_dtype t, uint64_t *bits) {
  switch (t) {
    case LB_F32: *bits = 0x3f800000; return true;
    case LB_F64: *bits = UINT64_C(0x3ff0000000000000); return true;
    case LB_F16: *bits = 0x3c00; return true;
    case LB_BF16: *bits = 0x3f80; return true;
    case LB_NONE:
    case LB_BOOL:
    case LB_DTYPE_COUNT: return false;
    default: *bits = 1; return true;
  }
}

// The operand that changes no bit of the other one: -0.0 for Add, +0.0 for Sub,
// because other zeros change the sign of a zero.
static bool neutral_bits(lb_op op, lb_dtype t, uint64_t *bits) {
  size_t size = lb_dtype_size(t);
  *bits = 0;
  if (t == LB_NONE || t == LB_BOOL) return false;
  switch (op) {
    case LB_OP_Sub: return true;
    case LB_OP_Add:
      if (lb_dtype_is_float(t)) *bits = UINT64_C(1) << (8 * size - 1);
      return true;
    default: return one_of(t, bits);
  }
}

// Whether operand `other` leaves operand `in` unchanged.
static lb_skip keeps(const lb_skip_query *q, uint32_t in, uint32_t other,
                     lb_proof *p) {
  uint64_t bits;
  if (!neutral_bits(q->node->op, q->in[other].dtype, &bits)) return LB_SKIP_NO;
  truth neutral = is_uniform(&q->in[other], bits);
  if (neutral == IS_FALSE) return LB_SKIP_NO;
  lb_skip same = if_same_dims(q, in, LB_PROOF_NEUTRAL, p);
  return same == LB_SKIP_SAME && neutral == IS_UNKNOWN ? LB_SKIP_UNKNOWN : same;
}

static lb_skip lb_skip_neutral(const lb_skip_query *q, lb_proof *p) {
  lb_op op = q->node->op;
  lb_skip first = keeps(q, 0, 1, p);
  if (first == LB_SKIP_SAME || (op != LB_OP_Add && op != LB_OP_Mul))
    return first;
  lb_skip second = keeps(q, 1, 0, p);
  return second > first ? second : first;
}

static lb_skip lb_skip_where(const lb_skip_query *q, lb_proof *p) {
  for (uint32_t in = 1; in <= 2; in++) {
    truth takes = is_uniform(&q->in[0], in == 1);
    if (takes == IS_UNKNOWN) return LB_SKIP_UNKNOWN;
    if (takes == IS_TRUE) return if_same_dims(q, in, LB_PROOF_CONDITION, p);
  }
  return LB_SKIP_NO;
}

static lb_skip lb_skip_dropout(const lb_skip_query *q, lb_proof *p) {
  const lb_skip_operand *training = input(q, 2);
  if (!q->only_first) return LB_SKIP_NO;
  truth off = training ? is_uniform(training, 0) : IS_TRUE;
  if (off == IS_TRUE) return proved(p, LB_PROOF_PASSES_ON, 0, LB_SKIP_SAME);
  return off == IS_UNKNOWN ? LB_SKIP_UNKNOWN : LB_SKIP_NO;
}

// -- windows -----------------------------------------------------------------

static bool attr_is_ones(const lb_node *n, const char *name) {
  uint32_t count;
  const int64_t *list = lb_attr_ints(n, name, &count);
  for (uint32_t i = 0; list && i < count; i++)
    if (list[i] != 1) return false;
  return true;
}

// Equal dims exclude padding.
static lb_skip lb_skip_pool(const lb_skip_query *q, lb_proof *p) {
  if (!q->only_first || !attr_is_ones(q->node, "kernel_shape") ||
      !attr_is_ones(q->node, "strides"))
    return LB_SKIP_NO;
  return if_same_dims(q, 0, LB_PROOF_WINDOW_ONE, p);
}

static lb_skip lb_skip_global_pool(const lb_skip_query *q, lb_proof *p) {
  return if_same_dims(q, 0, LB_PROOF_WINDOW_ONE, p);
}

// Max, Min, Sum and Mean of one operand.
static lb_skip lb_skip_single(const lb_skip_query *q, lb_proof *p) {
  if (q->node->n_in != 1) return LB_SKIP_NO;
  return proved(p, LB_PROOF_PASSES_ON, 0, LB_SKIP_SAME);
}

// -- asking ------------------------------------------------------------------

typedef struct rule {
  lb_skip (*ask)(const lb_skip_query *q, lb_proof *proof);
  uint32_t reads;
  lb_content_kind content;
  uint32_t viewed;
} rule;

static const rule rules[LB_SKIP_ID_COUNT] = {
#define LB_SKIP(name, reads, content, viewed) \
  [LB_SKIP_ID_##name] = {lb_skip_##name, reads, LB_CONTENT_##content, viewed},
#include "graph/skips.def"
};

lb_skip lb_skip_ask(const lb_skip_query *q, lb_proof *proof) {
  return rules[lb_op_infos[q->node->op].skip].ask(q, proof);
}

uint32_t lb_skip_wanted(lb_op op, lb_dtype t, uint64_t out[LB_SKIP_WANTED]) {
  if (op == LB_OP_Where) {
    out[0] = false;
    out[1] = true;
    return 2;
  }
  bool neutral = lb_op_infos[op].skip == LB_SKIP_ID_neutral;
  return neutral && neutral_bits(op, t, &out[0]) ? 1 : 0;
}

uint32_t lb_skip_reads(lb_op op) { return rules[lb_op_infos[op].skip].reads; }

uint32_t lb_skip_viewed(lb_op op) { return rules[lb_op_infos[op].skip].viewed; }

lb_content_kind lb_skip_content(lb_op op) {
  return rules[lb_op_infos[op].skip].content;
}
