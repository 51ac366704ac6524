// graph/pass_dequantize.c -- computes quantised operators in floats that hold
// integers.
//
//   Cast(MatMulInteger(a, B, za, zb)) = MatMul(Cast(a) - za, B - zb)
//   Cast(ConvInteger(x, W, zx, zw))   = Conv(Cast(x) - zx, W - zw)
//   Cast(MatMulInteger(a, B) + c)     = Cast(MatMulInteger(a, B)) + Cast(c)
//   QuantizeLinear(x)                 = Cast(Clip(Round(x / s) + z))
//   DequantizeLinear(x)               = (Cast(x) - z) * s
//   QLinearConv(x, W, b) = Cast(Clip(Round(Conv(x - zx, W - zw, b) * s) + zy))
//
// where B and W are constants and there is no int8 kernel (pass_int8.c). Int8
// products are exact in float32, and so are their sums up to 2^24, as far as
// the Cast keeps them exact; beyond that only rounding differs.
// DynamicQuantizeLinear is expanded, so that the int8 values in between need
// not be materialised.
#include "graph/quantize.h"

enum {
  A,
  B,
  A_ZERO_POINT,
  B_ZERO_POINT
};  // inputs of MatMulInteger and
    // ConvInteger

// v as floats.
static lb_status floats_of(const lb_insert_point *s, lb_value *v,
                           lb_value **out) {
  LB_TRY(lb_insert_uncast(s, v, out));
  return *out ? LB_OK : lb_rewrite_cast(s->rw, s->at, v, LB_F32, out);
}

// -- constants ---------------------------------------------------------------

// w - zero_point as floats. There is one zero point, or one for each of `n`
// indices whose weights are `inner` elements apart.
static lb_status weights_of(lb_rewrite *rw, const lb_value *v,
                            const lb_tensor *zero_point, int64_t n,
                            int64_t inner, lb_value **out) {
  const lb_tensor *w = lb_value_const(v);
  lb_tensor t = *w;
  t.dtype = LB_F32;
  float *to = lb_arena_alloc(&rw->graph->arena, lb_tensor_bytes(&t), 64);
  if (!to) return lb_oom();
  t.data = to;
  int64_t count = lb_tensor_count(w);
  bool many = zero_point && lb_tensor_count(zero_point) > 1;
  int one = zero_point && !many ? lb_int8_at(zero_point, 0) : 0;
  for (int64_t i = 0; i < count; i++)
    to[i] = (float)(lb_int8_at(w, i) -
                    (many ? lb_int8_at(zero_point, i / inner % n) : one));
  return lb_const_new(rw->graph, v->name, &t, out);
}

// -- integer GEMM ------------------------------------------------------------

typedef struct integer_gemm {
  lb_node *node;  // MatMulInteger or ConvInteger
  const lb_tensor *w, *zero_point;
  int64_t n, inner;  // number of zero points; weights per zero point
} integer_gemm;

static bool makes_floats(const lb_node *n) {
  return n->op == LB_OP_Cast && n->out[0] && n->out[0]->info.dtype == LB_F32;
}

static lb_node *match_integer_op(const lb_rewrite *rw, const lb_value *v) {
  lb_node *n = lb_match_inner(rw, v, LB_OP_MatMulInteger);
  if (!n) n = lb_match_inner(rw, v, LB_OP_ConvInteger);
  return n && !lb_op_is_int8_gemm(n) ? n : NULL;
}

static bool match_integer_gemm(const lb_rewrite *rw, const lb_node *cast,
                               integer_gemm *p) {
  if (!makes_floats(cast)) return false;
  *p = (integer_gemm){.node = match_integer_op(rw, cast->in[0])};
  bool conv = p->node && p->node->op == LB_OP_ConvInteger;
  if (!p->node || !lb_is_int8(p->node->in[A]->info.dtype)) return false;
  const lb_value *za = lb_node_input(p->node, A_ZERO_POINT),
                 *zb = lb_node_input(p->node, B_ZERO_POINT);
  p->w = lb_int8_const(p->node->in[B]);
  p->zero_point = zb ? lb_int8_const(zb) : NULL;
  if (!p->w || p->w->rank < 2 || lb_tensor_count(p->w) == 0 ||
      (za && !lb_is_single(za)) ||
      (zb && (!p->zero_point || p->zero_point->rank > 1)))
    return false;
  p->n = p->w->dims[conv ? 0 : p->w->rank - 1];
  p->inner = conv ? lb_tensor_count(p->w) / p->n : 1;
  int64_t n_zero_points = p->zero_point ? lb_tensor_count(p->zero_point) : 1;
  return n_zero_points == 1 || n_zero_points == p->n;
}

// Copies the attributes of `from` to n, which replaces it; marks a Conv as
// exact.
static lb_status copy_attrs(lb_graph *g, lb_node *n, const lb_node *from) {
  LB_TRY(lb_node_copy_attrs(g, n, from));
  return n->op == LB_OP_Conv ? lb_node_set_int(g, n, "exact", 1) : LB_OK;
}

static lb_status rewrite_integer_gemm(lb_rewrite *rw, lb_node *cast,
                                      const integer_gemm *p) {
  const lb_node *n = p->node;
  lb_insert_point s = {rw, cast};
  lb_value *in[2], *zero_point = lb_node_input(n, A_ZERO_POINT);
  LB_TRY(floats_of(&s, n->in[A], &in[0]));
  if (zero_point) LB_TRY(floats_of(&s, zero_point, &zero_point));
  if (zero_point)
    LB_TRY(lb_insert_node(&s, LB_OP_Sub, in[0], zero_point, &in[0]));
  LB_TRY(weights_of(rw, n->in[B], p->zero_point, p->n, p->inner, &in[1]));
  bool conv = n->op == LB_OP_ConvInteger;
  LB_TRY(lb_rewrite_become(rw, cast, conv ? LB_OP_Conv : LB_OP_MatMul, in, 2));
  return copy_attrs(rw->graph, cast, n);
}

// A bias that was added to integers is added to floats.
static lb_status rewrite_bias_add(lb_rewrite *rw, lb_node *cast) {
  const lb_node *add = lb_match_inner(rw, cast->in[0], LB_OP_Add);
  lb_value *in[2];
  if (!add ||
      (!match_integer_op(rw, add->in[0]) && !match_integer_op(rw, add->in[1])))
    return LB_OK;
  for (int i = 0; i < 2; i++)
    LB_TRY(lb_rewrite_cast(rw, cast, add->in[i], LB_F32, &in[i]));
  return lb_rewrite_become(rw, cast, LB_OP_Add, in, 2);
}

// -- QLinearConv and QLinearMatMul -------------------------------------------

// Inputs of QLinearConv and QLinearMatMul.
enum {
  Q_A,
  Q_A_SCALE,
  Q_A_ZERO_POINT,
  Q_B,
  Q_B_SCALE,
  Q_B_ZERO_POINT,
  Q_Y_SCALE,
  Q_Y_ZERO_POINT,
  Q_BIAS
};

typedef struct qlinear {
  lb_node *node;
  bool conv;
  const lb_tensor *w, *w_scale, *w_zero_point;  // w: NULL, not constant
  const lb_tensor *bias;                        // NULL: none
  float a_scale, y_scale;
  float a_zero_point, y_zero_point;
  int64_t n, inner;  // output channels; weights per output channel
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
  *q = (qlinear){.node = n, .conv = conv, .w = lb_int8_const(n->in[Q_B])};
  const lb_vinfo *w = &n->in[Q_B]->info;
  if (!lb_is_int8(w->dtype) || w->rank < 2 || (conv && !q->w) ||
      !lb_is_int8(n->in[Q_A]->info.dtype) || n->in[Q_A]->info.rank < 2 ||
      (q->w && (lb_tensor_count(q->w) == 0 || (!conv && w->rank != 2))))
    return false;
  q->n = q->w ? q->w->dims[conv ? 0 : 1] : 1;
  q->inner = conv ? lb_tensor_count(q->w) / q->n : 1;
  q->w_scale = list_of(n->in[Q_B_SCALE], LB_F32, q->n);
  q->w_zero_point = list_of(n->in[Q_B_ZERO_POINT], w->dtype, q->n);
  const lb_value *bias = lb_node_input(n, Q_BIAS);
  q->bias = bias ? list_of(bias, LB_I32, q->n) : NULL;
  return q->w_scale && q->w_zero_point && (!bias || q->bias) &&
         scale_of(n->in[Q_A_SCALE], &q->a_scale) &&
         scale_of(n->in[Q_Y_SCALE], &q->y_scale) &&
         lb_zero_point_at(n->in[Q_A_ZERO_POINT], &q->a_zero_point) &&
         lb_zero_point_at(n->in[Q_Y_ZERO_POINT], &q->y_zero_point);
}

// The scale of the int32 sums, rounded as the operator defines it.
static lb_status output_scales(lb_rewrite *rw, const qlinear *q,
                               lb_value **out) {
  int64_t n = lb_tensor_count(q->w_scale);
  int n_spatial = n == 1 ? -1 : q->conv ? q->w->rank - 2 : 0;
  LB_TRY(lb_const_zeros(rw->graph, LB_F32, n, n_spatial, out));
  float *to = lb_value_const(*out)->data;
  for (int64_t i = 0; i < n; i++)
    to[i] = q->a_scale * (float)lb_match_elem(q->w_scale, i) / q->y_scale;
  return LB_OK;
}

static lb_status bias_of(lb_rewrite *rw, const qlinear *q, lb_value **out) {
  LB_TRY(lb_const_zeros(rw->graph, LB_F32, q->n, 0, out));
  float *to = lb_value_const(*out)->data;
  int64_t count = lb_tensor_count(q->bias);
  for (int64_t i = 0; i < q->n; i++)
    to[i] = (float)lb_match_int(q->bias, count > 1 ? i : 0);
  return LB_OK;
}

// B as floats: constant weights, or a Cast.
static lb_status operand_b(const lb_insert_point *s, const qlinear *q,
                           lb_value **out) {
  lb_value *b = q->node->in[Q_B];
  if (q->w) return weights_of(s->rw, b, q->w_zero_point, q->n, q->inner, out);
  LB_TRY(floats_of(s, b, out));
  int zero_point = lb_int8_at(q->w_zero_point, 0);
  return zero_point
             ? lb_insert_with_scalar(s, LB_OP_Sub, *out, (float)zero_point, out)
             : LB_OK;
}

static lb_status insert_gemm(const lb_insert_point *s, const qlinear *q,
                             lb_value **out) {
  const lb_node *n = q->node;
  lb_value *in[3];
  lb_int8_weights b;
  lb_int8_gemm p = {q->conv ? n : NULL, n->in[Q_A], n->in[Q_A_ZERO_POINT], &b,
                    q->bias};
  if (lb_int8_weights_find(n->in[Q_B], n->in[Q_B_ZERO_POINT],
                           q->conv ? LB_WEIGHTS_OIHW : LB_WEIGHTS_KN, &b) &&
      lb_int8_gemm_is(&p)) {
    LB_TRY(lb_insert_int8_gemm(s, &p, out));
    return lb_rewrite_cast(s->rw, s->at, *out, LB_F32, out);
  }
  lb_node *gemm;
  LB_TRY(floats_of(s, n->in[Q_A], &in[0]));
  if (q->a_zero_point != 0)
    LB_TRY(lb_insert_with_scalar(s, LB_OP_Sub, in[0], q->a_zero_point, &in[0]));
  LB_TRY(operand_b(s, q, &in[1]));
  if (q->bias) LB_TRY(bias_of(s->rw, q, &in[2]));
  LB_TRY(lb_rewrite_insert(s->rw, s->at, q->conv ? LB_OP_Conv : LB_OP_MatMul,
                           in, q->bias ? 3 : 2, &gemm));
  LB_TRY(copy_attrs(s->rw->graph, gemm, n));
  return lb_rewrite_inserted(s->rw, gemm, out);
}

static lb_status rewrite_qlinear(lb_rewrite *rw, const qlinear *q) {
  lb_node *n = q->node;
  lb_dtype t = n->out[0]->info.dtype;
  lb_insert_point s = {rw, n};
  float range[2];
  lb_value *y, *by, *zero_point = NULL;
  if (!lb_is_int8(t) || !lb_quantized_range(t, range)) return LB_OK;
  LB_TRY(insert_gemm(&s, q, &y));
  LB_TRY(output_scales(rw, q, &by));
  LB_TRY(lb_insert_node(&s, LB_OP_Mul, y, by, &y));
  if (q->y_zero_point != 0)
    LB_TRY(lb_const_f32(rw->graph, "zero", q->y_zero_point, &zero_point));
  LB_TRY(lb_insert_quantize(&s, y, zero_point, range, &y));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &y, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(t));
}

// -- reading and moving quantised values -------------------------------------

// DequantizeLinear(x) = (Cast(x) - z) * s
static lb_status rewrite_dequantize(lb_rewrite *rw, lb_node *n) {
  lb_value *in[2] = {NULL, n->in[LB_Q_SCALE]},
           *z = lb_node_input(n, LB_Q_ZERO_POINT);
  lb_insert_point s = {rw, n};
  double scale;
  float range[2], zero_point = 0;
  if (!n->out[0] || n->out[0]->info.dtype != LB_F32 ||
      !lb_match_scalar(n->in[LB_Q_SCALE], n->in[LB_Q_X], &scale) ||
      n->in[LB_Q_SCALE]->info.dtype != LB_F32 ||
      (z && !lb_zero_point_at(z, &zero_point)))
    return LB_OK;
  bool folds = lb_value_const(n->in[LB_Q_X]) != NULL;
  if (folds || !lb_quantized_range(n->in[LB_Q_X]->info.dtype, range))
    return LB_OK;
  LB_TRY(floats_of(&s, n->in[LB_Q_X], &in[0]));
  if (zero_point != 0)
    LB_TRY(lb_insert_with_scalar(&s, LB_OP_Sub, in[0], zero_point, &in[0]));
  return lb_rewrite_become(rw, n, LB_OP_Mul, in, 2);
}

// MaxPool(x) = Cast(MaxPool(Cast(x)))
static lb_status rewrite_pool(lb_rewrite *rw, lb_node *n) {
  lb_insert_point s = {rw, n};
  lb_dtype t = n->in[0]->info.dtype;
  lb_value *x;
  if (!lb_is_int8(t) || !n->out[0] || !lb_commutes_with_cast(n)) return LB_OK;
  LB_TRY(floats_of(&s, n->in[0], &x));
  LB_TRY(lb_insert_copy(&s, n, x, &x));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &x, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(t));
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  integer_gemm p;
  qlinear l;
  if (match_integer_gemm(rw, n, &p)) return rewrite_integer_gemm(rw, n, &p);
  if (match_qlinear(n, &l)) return rewrite_qlinear(rw, &l);
  if (n->op == LB_OP_DynamicQuantizeLinear)
    return lb_expand_dynamic_quantize(rw, n);
  if (n->op == LB_OP_QuantizeLinear) return lb_expand_quantize(rw, n);
  if (n->op == LB_OP_DequantizeLinear) return rewrite_dequantize(rw, n);
  if (n->op == LB_OP_MaxPool) return rewrite_pool(rw, n);
  return makes_floats(n) ? rewrite_bias_add(rw, n) : LB_OK;
}

lb_status lb_pass_dequantize(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit);
}
