// graph/pass_quantize.c -- quantised products and activations in floats that
// hold integers.
//
//   Cast(MatMulInteger(a, B, za, zb)) = MatMul(Cast(a) - za, B - zb)
//   Cast(ConvInteger(x, W, zx, zw))   = Conv(Cast(x) - zx, W - zw)
//   DequantizeLinear(QuantizeLinear(x)) = (Clip(Round(x / s) + z) - z) * s
//
// where B and W are constants. Products of bytes are exact in floats, and so
// are their sums up to 2^24, as far as the Cast keeps them exact, too; beyond
// that nothing differs but rounding, and NaN, which has no place among
// integers. What DynamicQuantizeLinear does is written down step by step, so
// that bytes in between need not exist.
#include <string.h>

#include "graph/rewrite.h"

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

// v as floats: what it was cut down from, where it is bytes of this pass.
static lb_status floats_of(const spot *s, lb_value *v, lb_value **out) {
  const lb_node *cast = lb_match_op(v, LB_OP_Cast);
  *out = cast ? cast->in[0] : NULL;
  if (cast && (*out)->info.dtype == LB_F32 && lb_match_op(*out, LB_OP_Clip))
    return LB_OK;
  return lb_rewrite_cast(s->rw, s->at, v, LB_F32, out);
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

static bool match_product(const lb_rewrite *rw, const lb_node *cast,
                          product *p) {
  if (cast->op != LB_OP_Cast || !cast->out[0] ||
      cast->out[0]->info.dtype != LB_F32)
    return false;
  *p = (product){.node = lb_match_inner(rw, cast->in[0], LB_OP_MatMulInteger)};
  bool conv = !p->node;
  if (conv) p->node = lb_match_inner(rw, cast->in[0], LB_OP_ConvInteger);
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

// x / scale, rounded, moved by `zero` (may be NULL) and cut off.
static lb_status make_levels(const spot *s, lb_value *x, lb_value *scale,
                             lb_value *zero, const float range[2],
                             lb_value **out) {
  LB_TRY(make(s, LB_OP_Div, x, scale, out));
  LB_TRY(make(s, LB_OP_Round, *out, NULL, out));
  if (zero) LB_TRY(make(s, LB_OP_Add, *out, zero, out));
  return make_clip(s, *out, range[0], range[1], out);
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
  return lb_node_copy_attrs(rw->graph, cast, n);
}

// -- activations -------------------------------------------------------------

static bool range_of(lb_dtype t, float range[2]) {
  range[0] = t == LB_I8 ? -128 : t == LB_I16 ? -32768 : 0;
  range[1] = t == LB_I8 ? 127 : t == LB_U8 ? 255 : t == LB_I16 ? 32767 : 65535;
  return t == LB_I8 || t == LB_U8 || t == LB_I16 || t == LB_U16;
}

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

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  product p;
  if (match_product(rw, n, &p)) return rewrite_product(rw, n, &p);
  const lb_node *q = quantised(n);
  return q ? rewrite_levels(rw, n, q) : LB_OK;
}

lb_status lb_pass_quantize(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit);
}
