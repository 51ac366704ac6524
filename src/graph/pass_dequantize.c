// graph/pass_dequantize.c -- quantised products and activations in floats that
// hold integers.
//
//   Cast(MatMulInteger(a, B, za, zb)) = MatMul(Cast(a) - za, B - zb)
//   Cast(ConvInteger(x, W, zx, zw))   = Conv(Cast(x) - zx, W - zw)
//   Cast(MatMulInteger(a, B) + c)     = Cast(MatMulInteger(a, B)) + Cast(c)
//   QuantizeLinear(x)                 = Cast(Clip(Round(x / s) + z))
//   DequantizeLinear(x)               = (Cast(x) - z) * s
//   QLinearConv(x, W, b) = Cast(Clip(Round(Conv(x - zx, W - zw, b) * s) + zy))
//
// where B and W are constants, and no product of bytes has a kernel
// (pass_bytes.c). Products of bytes are exact in floats, and so are their sums
// up to 2^24, as far as the Cast keeps them exact, too; beyond that nothing
// differs but rounding. What DynamicQuantizeLinear does is written down step by
// step, so that bytes in between need not exist.
#include "graph/quantize.h"

enum { A, B, A_ZERO, B_ZERO };  // inputs of a product

// v as floats.
static lb_status floats_of(const lb_insert_point *s, lb_value *v,
                           lb_value **out) {
  LB_TRY(lb_insert_find_levels(s, v, out));
  return *out ? LB_OK : lb_rewrite_cast(s->rw, s->at, v, LB_F32, out);
}

// -- constants ---------------------------------------------------------------

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
  int one = zero && !many ? lb_byte_at(zero, 0) : 0;
  for (int64_t i = 0; i < count; i++)
    to[i] = (float)(lb_byte_at(w, i) -
                    (many ? lb_byte_at(zero, i / inner % n) : one));
  return lb_const_new(rw->graph, v->name, &t, out);
}

// -- products ----------------------------------------------------------------

typedef struct product {
  lb_node *node;  // MatMulInteger or ConvInteger
  const lb_tensor *w, *zero;
  int64_t n, inner;  // what zeros go with
} product;

static bool makes_floats(const lb_node *n) {
  return n->op == LB_OP_Cast && n->out[0] && n->out[0]->info.dtype == LB_F32;
}

static lb_node *integer_product(const lb_rewrite *rw, const lb_value *v) {
  lb_node *n = lb_match_inner(rw, v, LB_OP_MatMulInteger);
  if (!n) n = lb_match_inner(rw, v, LB_OP_ConvInteger);
  return n && !lb_op_is_int8_gemm(n) ? n : NULL;
}

static bool match_product(const lb_rewrite *rw, const lb_node *cast,
                          product *p) {
  if (!makes_floats(cast)) return false;
  *p = (product){.node = integer_product(rw, cast->in[0])};
  bool conv = p->node && p->node->op == LB_OP_ConvInteger;
  if (!p->node || !lb_is_byte(p->node->in[A]->info.dtype)) return false;
  const lb_value *za = lb_node_input(p->node, A_ZERO),
                 *zb = lb_node_input(p->node, B_ZERO);
  p->w = lb_bytes_of(p->node->in[B]);
  p->zero = zb ? lb_bytes_of(zb) : NULL;
  if (!p->w || p->w->rank < 2 || lb_tensor_count(p->w) == 0 ||
      (za && !lb_is_single(za)) || (zb && (!p->zero || p->zero->rank > 1)))
    return false;
  p->n = p->w->dims[conv ? 0 : p->w->rank - 1];
  p->inner = conv ? lb_tensor_count(p->w) / p->n : 1;
  int64_t zeros = p->zero ? lb_tensor_count(p->zero) : 1;
  return zeros == 1 || zeros == p->n;
}

// Gives n, which stands for `from`, its attributes; a convolution is marked.
static lb_status describe(lb_graph *g, lb_node *n, const lb_node *from) {
  LB_TRY(lb_node_copy_attrs(g, n, from));
  return n->op == LB_OP_Conv ? lb_node_set_int(g, n, "exact", 1) : LB_OK;
}

static lb_status rewrite_product(lb_rewrite *rw, lb_node *cast,
                                 const product *p) {
  const lb_node *n = p->node;
  lb_insert_point s = {rw, cast};
  lb_value *in[2], *zero = lb_node_input(n, A_ZERO);
  LB_TRY(floats_of(&s, n->in[A], &in[0]));
  if (zero) LB_TRY(floats_of(&s, zero, &zero));
  if (zero) LB_TRY(lb_insert_make(&s, LB_OP_Sub, in[0], zero, &in[0]));
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
  const lb_tensor *w, *w_scale, *w_zero;  // w: NULL, not constant
  const lb_tensor *bias;                  // NULL: none
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

static bool match_qlinear(lb_node *n, qlinear *q) {
  bool conv = n->op == LB_OP_QLinearConv;
  if ((!conv && n->op != LB_OP_QLinearMatMul) || !n->out[0]) return false;
  *q = (qlinear){.node = n, .conv = conv, .w = lb_bytes_of(n->in[Q_B])};
  const lb_vinfo *w = &n->in[Q_B]->info;
  if (!lb_is_byte(w->dtype) || w->rank < 2 || (conv && !q->w) ||
      !lb_is_byte(n->in[Q_A]->info.dtype) || n->in[Q_A]->info.rank < 2 ||
      (q->w && (lb_tensor_count(q->w) == 0 || (!conv && w->rank != 2))))
    return false;
  q->n = q->w ? q->w->dims[conv ? 0 : 1] : 1;
  q->inner = conv ? lb_tensor_count(q->w) / q->n : 1;
  q->w_scale = list_of(n->in[Q_B_SCALE], LB_F32, q->n);
  q->w_zero = list_of(n->in[Q_B_ZERO], w->dtype, q->n);
  const lb_value *bias = lb_node_input(n, Q_BIAS);
  q->bias = bias ? list_of(bias, LB_I32, q->n) : NULL;
  return q->w_scale && q->w_zero && (!bias || q->bias) &&
         scale_of(n->in[Q_A_SCALE], &q->a_scale) &&
         scale_of(n->in[Q_Y_SCALE], &q->y_scale) &&
         lb_zero_point_at(n->in[Q_A_ZERO], &q->a_zero) &&
         lb_zero_point_at(n->in[Q_Y_ZERO], &q->y_zero);
}

// What sums are multiplied with, rounded as the operator does it.
static lb_status factors_of(lb_rewrite *rw, const qlinear *q, lb_value **out) {
  int64_t n = lb_tensor_count(q->w_scale);
  int space = n == 1 ? -1 : q->conv ? q->w->rank - 2 : 0;
  LB_TRY(lb_const_numbers(rw->graph, LB_F32, n, space, out));
  float *to = lb_value_const(*out)->data;
  for (int64_t i = 0; i < n; i++)
    to[i] = q->a_scale * (float)lb_match_elem(q->w_scale, i) / q->y_scale;
  return LB_OK;
}

static lb_status bias_of(lb_rewrite *rw, const qlinear *q, lb_value **out) {
  LB_TRY(lb_const_numbers(rw->graph, LB_F32, q->n, 0, out));
  float *to = lb_value_const(*out)->data;
  int64_t count = lb_tensor_count(q->bias);
  for (int64_t i = 0; i < q->n; i++)
    to[i] = (float)lb_match_int(q->bias, count > 1 ? i : 0);
  return LB_OK;
}

// Constant weights, or bytes as floats.
static lb_status right_side(const lb_insert_point *s, const qlinear *q,
                            lb_value **out) {
  lb_value *b = q->node->in[Q_B];
  if (q->w) return weights_of(s->rw, b, q->w_zero, q->n, q->inner, out);
  LB_TRY(floats_of(s, b, out));
  int zero = lb_byte_at(q->w_zero, 0);
  return zero ? lb_insert_with(s, LB_OP_Sub, *out, (float)zero, out) : LB_OK;
}

static lb_status make_sums(const lb_insert_point *s, const qlinear *q,
                           lb_value **out) {
  const lb_node *n = q->node;
  lb_value *in[3];
  lb_int8_weights b;
  lb_int8_gemm p = {q->conv ? n : NULL, n->in[Q_A], n->in[Q_A_ZERO], &b,
                    q->bias};
  if (lb_int8_weights_find(n->in[Q_B], n->in[Q_B_ZERO],
                           q->conv ? LB_WEIGHTS_OIHW : LB_WEIGHTS_KN, &b) &&
      lb_int8_gemm_is(&p)) {
    LB_TRY(lb_insert_int8_gemm(s, &p, out));
    return lb_rewrite_cast(s->rw, s->at, *out, LB_F32, out);
  }
  lb_node *sums;
  LB_TRY(floats_of(s, n->in[Q_A], &in[0]));
  if (q->a_zero != 0)
    LB_TRY(lb_insert_with(s, LB_OP_Sub, in[0], q->a_zero, &in[0]));
  LB_TRY(right_side(s, q, &in[1]));
  if (q->bias) LB_TRY(bias_of(s->rw, q, &in[2]));
  LB_TRY(lb_rewrite_insert(s->rw, s->at, q->conv ? LB_OP_Conv : LB_OP_MatMul,
                           in, q->bias ? 3 : 2, &sums));
  LB_TRY(describe(s->rw->graph, sums, n));
  return lb_rewrite_inserted(s->rw, sums, out);
}

static lb_status rewrite_qlinear(lb_rewrite *rw, const qlinear *q) {
  lb_node *n = q->node;
  lb_dtype t = n->out[0]->info.dtype;
  lb_insert_point s = {rw, n};
  float range[2];
  lb_value *y, *by, *zero = NULL;
  if (!lb_is_byte(t) || !lb_levels_range(t, range)) return LB_OK;
  LB_TRY(make_sums(&s, q, &y));
  LB_TRY(factors_of(rw, q, &by));
  LB_TRY(lb_insert_make(&s, LB_OP_Mul, y, by, &y));
  if (q->y_zero != 0) LB_TRY(lb_const_f32(rw->graph, "zero", q->y_zero, &zero));
  LB_TRY(lb_insert_quantize(&s, y, zero, range, &y));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &y, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(t));
}

// -- what reads or moves bytes ------------------------------------------------

// DequantizeLinear(x) = (Cast(x) - z) * s
static lb_status rewrite_dequantize(lb_rewrite *rw, lb_node *n) {
  lb_value *in[2] = {NULL, n->in[LB_Q_SCALE]},
           *z = lb_node_input(n, LB_Q_ZERO_POINT);
  lb_insert_point s = {rw, n};
  double scale;
  float range[2], zero = 0;
  if (!n->out[0] || n->out[0]->info.dtype != LB_F32 ||
      !lb_match_scalar(n->in[LB_Q_SCALE], n->in[LB_Q_X], &scale) ||
      n->in[LB_Q_SCALE]->info.dtype != LB_F32 ||
      (z && !lb_zero_point_at(z, &zero)))
    return LB_OK;
  bool folds = lb_value_const(n->in[LB_Q_X]) != NULL;
  if (folds || !lb_levels_range(n->in[LB_Q_X]->info.dtype, range)) return LB_OK;
  LB_TRY(floats_of(&s, n->in[LB_Q_X], &in[0]));
  if (zero != 0) LB_TRY(lb_insert_with(&s, LB_OP_Sub, in[0], zero, &in[0]));
  return lb_rewrite_become(rw, n, LB_OP_Mul, in, 2);
}

// MaxPool(x) = Cast(MaxPool(Cast(x)))
static lb_status rewrite_pool(lb_rewrite *rw, lb_node *n) {
  lb_insert_point s = {rw, n};
  lb_dtype t = n->in[0]->info.dtype;
  lb_value *x;
  if (!lb_is_byte(t) || !n->out[0] || !lb_levels_move(n)) return LB_OK;
  LB_TRY(floats_of(&s, n->in[0], &x));
  LB_TRY(lb_insert_repeat(&s, n, x, &x));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &x, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(t));
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  product p;
  qlinear l;
  if (match_product(rw, n, &p)) return rewrite_product(rw, n, &p);
  if (match_qlinear(n, &l)) return rewrite_qlinear(rw, &l);
  if (n->op == LB_OP_DynamicQuantizeLinear)
    return lb_expand_dynamic_quantize(rw, n);
  if (n->op == LB_OP_QuantizeLinear) return lb_expand_quantize(rw, n);
  if (n->op == LB_OP_DequantizeLinear) return rewrite_dequantize(rw, n);
  if (n->op == LB_OP_MaxPool) return rewrite_pool(rw, n);
  return makes_floats(n) ? rewrite_sum(rw, n) : LB_OK;
}

lb_status lb_pass_dequantize(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit);
}
