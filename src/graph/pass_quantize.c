// graph/pass_quantize.c -- quantised products and activations in floats that
// hold integers.
//
//   Cast(MatMulInteger(a, B, za, zb)) = MatMul(Cast(a) - za, B - zb)
//   Cast(ConvInteger(x, W, zx, zw))   = Conv(Cast(x) - zx, W - zw)
//   Cast(MatMulInteger(a, B) + c)     = Cast(MatMulInteger(a, B)) + Cast(c)
//   DequantizeLinear(QuantizeLinear(x)) = (Clip(Round(x / s) + z) - z) * s
//   QLinearConv(x, W, b) = Cast(Clip(Round(Conv(x - zx, W - zw, b) * s) + zy))
//
// where B and W are constants. Products of bytes are exact in floats, and so
// are their sums up to 2^24, as far as the Cast keeps them exact, too; beyond
// that nothing differs but rounding, and NaN, which has no place among
// integers. What DynamicQuantizeLinear does is written down step by step, so
// that bytes in between need not exist.
#include <math.h>
#include <string.h>

#include "graph/rewrite.h"

#define MAX_MOVES 8  // between bytes and what reads them as floats

enum { A, B, A_ZERO, B_ZERO };  // inputs of a product
enum { X, SCALE, ZERO };        // of QuantizeLinear; outputs of the dynamic one

// -- nodes before another one ------------------------------------------------

typedef struct spot {
  lb_rewrite *rw;
  lb_node *at;  // what is made stands right before it
} spot;

static lb_status make(const spot *s, lb_op op, lb_value *x, lb_value *y,
                      lb_value **out) {
  lb_value *in[] = {x, y};
  return lb_rewrite_make(s->rw, s->at, op, in, y ? 2 : 1, out);
}

static lb_status make_with(const spot *s, lb_op op, lb_value *x, float y,
                           lb_value **out) {
  lb_value *scalar;
  LB_TRY(lb_const_f32(s->rw->graph, "scalar", y, &scalar));
  return make(s, op, x, scalar, out);
}

static lb_status make_clip(const spot *s, lb_value *x, float low, float high,
                           lb_value **out) {
  lb_value *in[3] = {x};
  LB_TRY(lb_const_f32(s->rw->graph, "low", low, &in[1]));
  LB_TRY(lb_const_f32(s->rw->graph, "high", high, &in[2]));
  return lb_rewrite_make(s->rw, s->at, LB_OP_Clip, in, 3, out);
}

// Whether every window of a pool has an element: without any, bytes and floats
// would have it give something else.
static bool has_elements(const lb_node *pool) {
  const char *mode = lb_attr_str(pool, "auto_pad", "NOTSET");
  int space = pool->in[0]->info.rank - 2;
  for (int i = 0; i < space; i++) {
    int64_t size = lb_attr_int_at(pool, "kernel_shape", i, 1);
    if (lb_attr_int_at(pool, "dilations", i, 1) != 1 ||
        lb_attr_int_at(pool, "pads", i, 0) >= size ||
        lb_attr_int_at(pool, "pads", space + i, 0) >= size)
      return false;
  }
  return strcmp(*mode ? mode : "NOTSET", "NOTSET") == 0 &&
         lb_attr_int(pool, "ceil_mode", 0) == 0;
}

// Whether n makes its result of elements of its first input as they are: it
// does the same with floats.
static bool moves(const lb_node *n) {
  if (n->op == LB_OP_Reshape || n->op == LB_OP_Flatten ||
      n->op == LB_OP_Transpose)
    return true;
  return n->op == LB_OP_MaxPool && (n->n_out == 1 || !n->out[1]) &&
         has_elements(n);
}

static bool range_of(lb_dtype t, float range[2]) {
  range[0] = t == LB_I8 ? -128 : t == LB_I16 ? -32768 : 0;
  range[1] = t == LB_I8 ? 127 : t == LB_U8 ? 255 : t == LB_I16 ? 32767 : 65535;
  return t == LB_I8 || t == LB_U8 || t == LB_I16 || t == LB_U16;
}

// Whether n cuts off where numbers of dtype t end.
static bool is_cut(const lb_node *n, lb_dtype t) {
  float range[2];
  double low, high;
  if (n->op != LB_OP_Clip || n->n_in != 3 || !n->in[1] || !n->in[2])
    return false;
  return range_of(t, range) && lb_match_scalar(n->in[1], n->in[0], &low) &&
         lb_match_scalar(n->in[2], n->in[0], &high) &&
         low == (double)range[0] && high == (double)range[1];
}

// A number that was rounded, as zeros of DynamicQuantizeLinear are, or is one.
static bool is_whole(const lb_value *v, const lb_value *like) {
  const lb_node *cut = lb_match_op(v, LB_OP_Clip);
  double x;
  if (cut && is_cut(cut, LB_U8)) v = cut->in[0];
  return lb_match_op(v, LB_OP_Round) ||
         (lb_match_scalar(v, like, &x) && x == rint(x));
}

// Whether n makes levels of dtype t: whole numbers, cut off where bytes end.
static bool is_level(const lb_node *n, lb_dtype t) {
  if (!is_cut(n, t)) return false;
  const lb_node *sum = lb_match_op(n->in[0], LB_OP_Add);
  return sum ? lb_match_op(sum->in[0], LB_OP_Round) &&
                   is_whole(sum->in[1], sum->in[0])
             : lb_match_op(n->in[0], LB_OP_Round) != NULL;
}

// The floats that v was cut down from, where it is bytes of this pass; or NULL.
static lb_value *levels_of(const lb_value *v) {
  const lb_node *cast = lb_match_op(v, LB_OP_Cast), *from;
  if (!cast || cast->in[0]->info.dtype != LB_F32) return NULL;
  for (from = cast->in[0]->producer; from && moves(from);)
    from = from->in[0]->producer;
  return from && is_level(from, v->info.dtype) ? cast->in[0] : NULL;
}

// n once more, of x, right before the spot.
static lb_status repeat(const spot *s, const lb_node *n, lb_value *x,
                        lb_value **out) {
  lb_value *in[2] = {x, n->n_in > 1 ? n->in[1] : NULL};
  lb_node *copy;
  LB_TRY(lb_rewrite_insert(s->rw, s->at, n->op, in, n->n_in, &copy));
  LB_TRY(lb_node_copy_attrs(s->rw->graph, copy, n));
  return lb_rewrite_inserted(s->rw, copy, out);
}

// f(Cast(x)) = Cast(f(x)): the floats that v was cut down from, moved as bytes
// of this pass are between there and v; NULL if it is none of these.
static lb_status find_levels(const spot *s, const lb_value *v, lb_value **out) {
  const lb_node *moved[MAX_MOVES];
  int n = 0;
  while (!(*out = levels_of(v)) && v->producer && moves(v->producer) &&
         n < MAX_MOVES) {
    moved[n++] = v->producer;
    v = v->producer->in[0];
  }
  while (*out && n > 0) LB_TRY(repeat(s, moved[--n], *out, out));
  return LB_OK;
}

// v as floats.
static lb_status floats_of(const spot *s, lb_value *v, lb_value **out) {
  LB_TRY(find_levels(s, v, out));
  return *out ? LB_OK : lb_rewrite_cast(s->rw, s->at, v, LB_F32, out);
}

// -- constants ---------------------------------------------------------------

static bool is_byte(lb_dtype t) { return t == LB_I8 || t == LB_U8; }

static int byte_at(const lb_tensor *t, int64_t i) {
  return t->dtype == LB_I8 ? ((const int8_t *)t->data)[i]
                           : ((const uint8_t *)t->data)[i];
}

static const lb_tensor *bytes_of(const lb_value *v) {
  const lb_tensor *t = lb_value_const(v);
  return t && is_byte(t->dtype) && lb_tensor_is_dense(t) ? t : NULL;
}

// w - zero as floats; of zeros there is one, or one for each of `n` indices,
// `inner` elements apart.
static lb_status weights_of(lb_rewrite *rw, const lb_value *v,
                            const lb_tensor *zero, int64_t n, int64_t inner,
                            lb_value **out) {
  const lb_tensor *w = lb_value_const(v);
  lb_tensor t = *w;
  t.dtype = LB_F32;
  float *to = lb_arena_alloc(&rw->graph->arena, lb_tensor_bytes(&t), 64);
  if (!to) return lb_oom();
  t.data = to;
  int64_t count = lb_tensor_count(w);
  bool many = zero && lb_tensor_count(zero) > 1;
  int one = zero && !many ? byte_at(zero, 0) : 0;
  for (int64_t i = 0; i < count; i++)
    to[i] =
        (float)(byte_at(w, i) - (many ? byte_at(zero, i / inner % n) : one));
  return lb_const_new(rw->graph, v->name, &t, out);
}

// -- products ----------------------------------------------------------------

typedef struct product {
  lb_node *node;  // MatMulInteger or ConvInteger
  const lb_tensor *w, *zero;
  int64_t n, inner;  // what zeros go with
} product;

static bool is_scalar(const lb_value *v) {
  const lb_vinfo *i = &v->info;
  return i->rank == 0 || (i->rank == 1 && lb_dim_is(i->dims[0], 1));
}

static bool makes_floats(const lb_node *n) {
  return n->op == LB_OP_Cast && n->out[0] && n->out[0]->info.dtype == LB_F32;
}

static lb_node *integer_product(const lb_rewrite *rw, const lb_value *v) {
  lb_node *n = lb_match_inner(rw, v, LB_OP_MatMulInteger);
  return n ? n : lb_match_inner(rw, v, LB_OP_ConvInteger);
}

static bool match_product(const lb_rewrite *rw, const lb_node *cast,
                          product *p) {
  if (!makes_floats(cast)) return false;
  *p = (product){.node = integer_product(rw, cast->in[0])};
  bool conv = p->node && p->node->op == LB_OP_ConvInteger;
  if (!p->node || !is_byte(p->node->in[A]->info.dtype)) return false;
  const lb_value *za = lb_node_input(p->node, A_ZERO),
                 *zb = lb_node_input(p->node, B_ZERO);
  p->w = bytes_of(p->node->in[B]);
  p->zero = zb ? bytes_of(zb) : NULL;
  if (!p->w || p->w->rank < 2 || lb_tensor_count(p->w) == 0 ||
      (za && !is_scalar(za)) || (zb && (!p->zero || p->zero->rank > 1)))
    return false;
  p->n = p->w->dims[conv ? 0 : p->w->rank - 1];
  p->inner = conv ? lb_tensor_count(p->w) / p->n : 1;
  int64_t zeros = p->zero ? lb_tensor_count(p->zero) : 1;
  return zeros == 1 || zeros == p->n;
}

// The scale, as the operator has it: 1 where all elements are 0.
static lb_status make_scale(const spot *s, lb_value *x, lb_value **low,
                            lb_node **scale) {
  lb_value *high, *range, *none, *in[3];
  lb_node *ends[2];
  for (int i = 0; i < 2; i++) {
    lb_op op = i ? LB_OP_ReduceMax : LB_OP_ReduceMin;
    LB_TRY(lb_rewrite_insert(s->rw, s->at, op, &x, 1, &ends[i]));
    LB_TRY(lb_node_set_int(s->rw->graph, ends[i], "keepdims", 0));
    LB_TRY(lb_rewrite_inserted(s->rw, ends[i], i ? &high : low));
  }
  LB_TRY(make_with(s, LB_OP_Min, *low, 0, low));
  LB_TRY(make_with(s, LB_OP_Max, high, 0, &high));
  LB_TRY(make(s, LB_OP_Sub, high, *low, &range));
  LB_TRY(make_with(s, LB_OP_Div, range, 255, &in[2]));
  LB_TRY(make_with(s, LB_OP_Equal, in[2], 0, &none));
  in[0] = none;
  LB_TRY(lb_const_f32(s->rw->graph, "one", 1, &in[1]));
  LB_TRY(lb_rewrite_insert(s->rw, s->at, LB_OP_Where, in, 3, scale));
  lb_value *made;
  return lb_rewrite_inserted(s->rw, *scale, &made);
}

// Where somebody reads what the node makes under its old name, it makes that.
static void keep_name(lb_node *n, lb_value *old) {
  if (old) lb_node_set_out(n, 0, old);
}

// x rounded, moved by `zero` (may be NULL) and cut off.
static lb_status make_level(const spot *s, lb_value *x, lb_value *zero,
                            const float range[2], lb_value **out) {
  LB_TRY(make(s, LB_OP_Round, x, NULL, out));
  if (zero) LB_TRY(make(s, LB_OP_Add, *out, zero, out));
  return make_clip(s, *out, range[0], range[1], out);
}

// The same of x / scale.
static lb_status make_levels(const spot *s, lb_value *x, lb_value *scale,
                             lb_value *zero, const float range[2],
                             lb_value **out) {
  LB_TRY(make(s, LB_OP_Div, x, scale, out));
  return make_level(s, *out, zero, range, out);
}

// Gives n, which stands for `from`, its attributes; a convolution is marked.
static lb_status describe(lb_graph *g, lb_node *n, const lb_node *from) {
  LB_TRY(lb_node_copy_attrs(g, n, from));
  return n->op == LB_OP_Conv ? lb_node_set_int(g, n, "exact", 1) : LB_OK;
}

// DynamicQuantizeLinear, step by step; its node makes bytes of them.
static lb_status spell_out(lb_rewrite *rw, lb_node *n) {
  static const float range[2] = {0, 255};
  spot s = {rw, n};
  lb_value *x = n->in[0], *low, *zero, *q, *bytes;
  lb_value *old_scale = n->n_out > SCALE ? n->out[SCALE] : NULL;
  lb_value *old_zero = n->n_out > ZERO ? n->out[ZERO] : NULL;
  lb_node *scale;
  LB_TRY(make_scale(&s, x, &low, &scale));
  keep_name(scale, old_scale);
  LB_TRY(make(&s, LB_OP_Neg, low, NULL, &zero));
  LB_TRY(make(&s, LB_OP_Div, zero, scale->out[0], &zero));
  LB_TRY(make(&s, LB_OP_Round, zero, NULL, &zero));
  LB_TRY(make_clip(&s, zero, 0, 255, &zero));
  if (old_zero) {
    LB_TRY(lb_rewrite_cast(rw, n, zero, LB_U8, &bytes));
    keep_name(bytes->producer, old_zero);
  }
  LB_TRY(make_levels(&s, x, scale->out[0], zero, range, &q));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &q, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(LB_U8));
}

static lb_status rewrite_product(lb_rewrite *rw, lb_node *cast,
                                 const product *p) {
  const lb_node *n = p->node;
  spot s = {rw, cast};
  lb_value *in[2], *zero = lb_node_input(n, A_ZERO);
  lb_node *made = lb_match_op(n->in[A], LB_OP_DynamicQuantizeLinear);
  if (made) LB_TRY(spell_out(rw, made));
  LB_TRY(floats_of(&s, n->in[A], &in[0]));
  if (zero) LB_TRY(floats_of(&s, zero, &zero));
  if (zero) LB_TRY(make(&s, LB_OP_Sub, in[0], zero, &in[0]));
  LB_TRY(weights_of(rw, n->in[B], p->zero, p->n, p->inner, &in[1]));
  bool conv = n->op == LB_OP_ConvInteger;
  LB_TRY(lb_rewrite_become(rw, cast, conv ? LB_OP_Conv : LB_OP_MatMul, in, 2));
  return describe(rw->graph, cast, n);
}

// A bias that is added to integers is added to floats.
static lb_status rewrite_sum(lb_rewrite *rw, lb_node *cast) {
  const lb_node *add = lb_match_inner(rw, cast->in[0], LB_OP_Add);
  lb_value *in[2];
  if (!add ||
      (!integer_product(rw, add->in[0]) && !integer_product(rw, add->in[1])))
    return LB_OK;
  for (int i = 0; i < 2; i++)
    LB_TRY(lb_rewrite_cast(rw, cast, add->in[i], LB_F32, &in[i]));
  return lb_rewrite_become(rw, cast, LB_OP_Add, in, 2);
}

// -- activations -------------------------------------------------------------

// n = DequantizeLinear(QuantizeLinear(x)) with one scale, a constant.
static const lb_node *quantised(const lb_node *n) {
  if (n->op != LB_OP_DequantizeLinear || !n->out[0]) return NULL;
  const lb_node *q = lb_match_op(n->in[X], LB_OP_QuantizeLinear);
  double scale;
  if (!q || n->out[0]->info.dtype != LB_F32 || q->in[X]->info.dtype != LB_F32 ||
      q->in[SCALE] != n->in[SCALE] ||
      lb_node_input(q, ZERO) != lb_node_input(n, ZERO) ||
      !lb_match_scalar(n->in[SCALE], q->in[X], &scale) ||
      n->in[SCALE]->info.dtype != LB_F32)
    return NULL;
  const lb_tensor *zero = lb_value_const(lb_node_input(n, ZERO));
  return !lb_node_input(n, ZERO) || (zero && lb_tensor_count(zero) == 1) ? q
                                                                         : NULL;
}

static float zero_of(const lb_node *n) {
  const lb_tensor *t = lb_value_const(lb_node_input(n, ZERO));
  int16_t s16;
  uint16_t u16;
  if (!t) return 0;
  if (is_byte(t->dtype)) return (float)byte_at(t, 0);
  memcpy(&s16, t->data, sizeof s16);
  memcpy(&u16, t->data, sizeof u16);
  return t->dtype == LB_I16 ? (float)s16 : (float)u16;
}

static lb_status rewrite_levels(lb_rewrite *rw, lb_node *n, const lb_node *q) {
  float range[2], zero = zero_of(n);
  spot s = {rw, n};
  lb_value *in[2] = {NULL, n->in[SCALE]}, *z = NULL;
  if (!range_of(n->in[X]->info.dtype, range)) return LB_OK;
  if (zero < 0 || zero > 0) LB_TRY(lb_const_f32(rw->graph, "zero", zero, &z));
  LB_TRY(make_levels(&s, q->in[X], n->in[SCALE], z, range, &in[0]));
  if (z) LB_TRY(make(&s, LB_OP_Sub, in[0], z, &in[0]));
  return lb_rewrite_become(rw, n, LB_OP_Mul, in, 2);
}

// -- products of bytes that make bytes ---------------------------------------

// Inputs of QLinearConv and QLinearMatMul.
enum {
  Q_A,
  Q_A_SCALE,
  Q_A_ZERO,
  Q_B,
  Q_B_SCALE,
  Q_B_ZERO,
  Q_Y_SCALE,
  Q_Y_ZERO,
  Q_BIAS
};

typedef struct qlinear {
  lb_node *node;
  bool conv;
  const lb_tensor *w, *w_scale, *w_zero, *bias;  // bias: NULL, none
  float a_scale, y_scale;
  float a_zero, y_zero;
  int64_t n, inner;  // output channels; elements of the weights of one
} qlinear;

static const lb_tensor *list_of(const lb_value *v, lb_dtype t, int64_t n) {
  const lb_tensor *c = lb_value_const(v);
  bool fits = c && c->dtype == t && lb_tensor_is_dense(c) && c->rank <= 1;
  int64_t count = fits ? lb_tensor_count(c) : 0;
  return count == 1 || (count == n && n > 0) ? c : NULL;
}

static bool scale_of(const lb_value *v, float *out) {
  const lb_tensor *t = list_of(v, LB_F32, 1);
  if (t) *out = (float)lb_match_elem(t, 0);
  return t != NULL;
}

static bool zero_at(const lb_value *v, float *out) {
  const lb_tensor *t = bytes_of(v);
  if (!t || lb_tensor_count(t) != 1) return false;
  *out = (float)byte_at(t, 0);
  return true;
}

static bool match_qlinear(lb_node *n, qlinear *q) {
  bool conv = n->op == LB_OP_QLinearConv;
  if ((!conv && n->op != LB_OP_QLinearMatMul) || !n->out[0]) return false;
  *q = (qlinear){.node = n, .conv = conv, .w = bytes_of(n->in[Q_B])};
  if (!q->w || q->w->rank < 2 || lb_tensor_count(q->w) == 0 ||
      (!conv && q->w->rank != 2) || !is_byte(n->in[Q_A]->info.dtype) ||
      n->in[Q_A]->info.rank < 2)
    return false;
  q->n = q->w->dims[conv ? 0 : 1];
  q->inner = conv ? lb_tensor_count(q->w) / q->n : 1;
  q->w_scale = list_of(n->in[Q_B_SCALE], LB_F32, q->n);
  q->w_zero = list_of(n->in[Q_B_ZERO], q->w->dtype, q->n);
  const lb_value *bias = lb_node_input(n, Q_BIAS);
  q->bias = bias ? list_of(bias, LB_I32, q->n) : NULL;
  return q->w_scale && q->w_zero && (!bias || q->bias) &&
         scale_of(n->in[Q_A_SCALE], &q->a_scale) &&
         scale_of(n->in[Q_Y_SCALE], &q->y_scale) &&
         zero_at(n->in[Q_A_ZERO], &q->a_zero) &&
         zero_at(n->in[Q_Y_ZERO], &q->y_zero);
}

// Floats for each output channel, or one for all: `dims` behind them are 1.
static lb_status numbers(lb_rewrite *rw, int64_t n, int dims, float **data,
                         lb_value **out) {
  lb_tensor t = {.dtype = LB_F32, .rank = n > 1 ? 1 + dims : 0, .dims = {n}};
  for (int i = 0; i < dims; i++) t.dims[1 + i] = 1;
  lb_tensor_dense(&t);
  t.data = *data = lb_arena_new(&rw->graph->arena, float, (size_t)n);
  return t.data ? lb_const_new(rw->graph, "numbers", &t, out) : lb_oom();
}

// What sums are multiplied with, rounded as the operator does it.
static lb_status factors_of(lb_rewrite *rw, const qlinear *q, lb_value **out) {
  int64_t n = lb_tensor_count(q->w_scale);
  float *to;
  LB_TRY(numbers(rw, n, q->conv ? q->w->rank - 2 : 0, &to, out));
  for (int64_t i = 0; i < n; i++)
    to[i] = q->a_scale * (float)lb_match_elem(q->w_scale, i) / q->y_scale;
  return LB_OK;
}

static lb_status bias_of(lb_rewrite *rw, const qlinear *q, lb_value **out) {
  lb_tensor t = {.dtype = LB_F32, .rank = 1, .dims = {q->n}, .strides = {1}};
  float *to = lb_arena_new(&rw->graph->arena, float, (size_t)q->n);
  if (!to) return lb_oom();
  int64_t count = lb_tensor_count(q->bias);
  for (int64_t i = 0; i < q->n; i++)
    to[i] = (float)lb_match_int(q->bias, count > 1 ? i : 0);
  t.data = to;
  return lb_const_new(rw->graph, "bias", &t, out);
}

// A lone QuantizeLinear as levels that its node makes bytes of.
static lb_status spell_quantize(lb_rewrite *rw, lb_node *n) {
  spot s = {rw, n};
  double scale;
  float range[2], zero;
  lb_value *z = lb_node_input(n, ZERO), *q;
  lb_dtype t = n->out[0]->info.dtype;
  if (n->in[X]->info.dtype != LB_F32 || n->in[SCALE]->info.dtype != LB_F32 ||
      !lb_match_scalar(n->in[SCALE], n->in[X], &scale) || !is_byte(t) ||
      !range_of(t, range) || (z && !zero_at(z, &zero)))
    return LB_OK;
  if (z) LB_TRY(lb_const_f32(rw->graph, "zero", zero, &z));
  LB_TRY(make_levels(&s, n->in[X], n->in[SCALE], z, range, &q));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &q, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(t));
}

static lb_status make_sums(const spot *s, const qlinear *q, lb_value **out) {
  const lb_node *n = q->node;
  lb_value *in[3];
  lb_node *quantize = lb_match_op(n->in[Q_A], LB_OP_QuantizeLinear), *sums;
  if (quantize) LB_TRY(spell_quantize(s->rw, quantize));
  LB_TRY(floats_of(s, n->in[Q_A], &in[0]));
  if (q->a_zero != 0) LB_TRY(make_with(s, LB_OP_Sub, in[0], q->a_zero, &in[0]));
  LB_TRY(weights_of(s->rw, n->in[Q_B], q->w_zero, q->n, q->inner, &in[1]));
  if (q->bias) LB_TRY(bias_of(s->rw, q, &in[2]));
  LB_TRY(lb_rewrite_insert(s->rw, s->at, q->conv ? LB_OP_Conv : LB_OP_MatMul,
                           in, q->bias ? 3 : 2, &sums));
  LB_TRY(describe(s->rw->graph, sums, n));
  return lb_rewrite_inserted(s->rw, sums, out);
}

static lb_status rewrite_qlinear(lb_rewrite *rw, const qlinear *q) {
  lb_node *n = q->node;
  lb_dtype t = n->out[0]->info.dtype;
  spot s = {rw, n};
  float range[2];
  lb_value *y, *by, *zero = NULL;
  if (!is_byte(t) || !range_of(t, range)) return LB_OK;
  LB_TRY(make_sums(&s, q, &y));
  LB_TRY(factors_of(rw, q, &by));
  LB_TRY(make(&s, LB_OP_Mul, y, by, &y));
  if (q->y_zero != 0) LB_TRY(lb_const_f32(rw->graph, "zero", q->y_zero, &zero));
  LB_TRY(make_level(&s, y, zero, range, &y));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &y, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(t));
}

// -- what reads bytes of this pass -------------------------------------------

// DequantizeLinear(Cast(x)) = (x - z) * s
static lb_status rewrite_dequantize(lb_rewrite *rw, lb_node *n) {
  lb_value *in[2] = {NULL, n->in[SCALE]}, *z = lb_node_input(n, ZERO);
  spot s = {rw, n};
  double scale;
  float zero = 0;
  if (!n->out[0] || n->out[0]->info.dtype != LB_F32 ||
      !lb_match_scalar(n->in[SCALE], n->in[X], &scale) ||
      n->in[SCALE]->info.dtype != LB_F32 || (z && !zero_at(z, &zero)))
    return LB_OK;
  LB_TRY(find_levels(&s, n->in[X], &in[0]));
  if (!in[0]) return LB_OK;
  if (zero != 0) LB_TRY(make_with(&s, LB_OP_Sub, in[0], zero, &in[0]));
  return lb_rewrite_become(rw, n, LB_OP_Mul, in, 2);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  product p;
  qlinear l;
  if (match_product(rw, n, &p)) return rewrite_product(rw, n, &p);
  if (match_qlinear(n, &l)) return rewrite_qlinear(rw, &l);
  const lb_node *q = quantised(n);
  if (q) return rewrite_levels(rw, n, q);
  if (n->op == LB_OP_DequantizeLinear) return rewrite_dequantize(rw, n);
  return makes_floats(n) ? rewrite_sum(rw, n) : LB_OK;
}

lb_status lb_pass_quantize(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit);
}
