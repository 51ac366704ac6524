// graph/pass_bytes.c -- products of bytes as kernels make them.
//
//   MatMulInteger(a, B, za, zb) =
//       MatMulInteger(a, W) - za * (sums of columns of B - zb)
//                           - (sums of rows of a) * (W - (B - zb))
//   MatMul(DequantizeLinear(a), DequantizeLinear(B)) = Cast(that) * (sa * sb),
//                                 and so Gemm
//
// where B is a constant. Kernels multiply unsigned bytes by signed ones, four
// at a time, and add them up in int32: rows of a have to fit into fours. W is
// B - zb if that fits into int8, and nothing is left to subtract; else B, of
// unsigned bytes 128 less. Signed bytes of a become unsigned ones, 128 more.
// All of it is exact.
#include "graph/quantize.h"

enum { A, B, A_ZERO, B_ZERO };  // inputs of MatMulInteger
enum { SIGN = 128 };            // from a signed byte to an unsigned one

bool lb_op_multiplies_bytes(const lb_node *n) {
  if (n->op != LB_OP_MatMulInteger || lb_node_input(n, A_ZERO) ||
      lb_node_input(n, B_ZERO))
    return false;
  const lb_tensor *w = lb_bytes_of(n->in[B]);
  return n->in[A]->info.dtype == LB_U8 && n->in[A]->info.rank >= 2 && w &&
         w->dtype == LB_I8 && w->rank == 2 && w->dims[0] % 4 == 0 &&
         lb_tensor_count(w) > 0;
}

// -- weights -----------------------------------------------------------------

static int weight_at(const lb_byte_weights *b, int64_t row, int64_t col) {
  int64_t at = b->turned ? col * b->rows + row : row * b->cols + col;
  return lb_byte_at(b->w, at);
}

static int zero_of(const lb_byte_weights *b, int64_t col) {
  return !b->zero ? 0 : lb_byte_at(b->zero, b->n_zero > 1 ? col : 0);
}

// What W is less than B.
static int base_of(const lb_byte_weights *b, int64_t col) {
  if (b->fits) return zero_of(b, col);
  return b->w->dtype == LB_U8 ? SIGN : 0;
}

bool lb_byte_weights_find(const lb_value *w, const lb_value *zero, bool turned,
                          lb_byte_weights *out) {
  *out = (lb_byte_weights){.w = lb_bytes_of(w), .turned = turned};
  if (!out->w || out->w->rank != 2 || lb_tensor_count(out->w) == 0)
    return false;
  out->rows = out->w->dims[turned];
  out->cols = out->w->dims[!turned];
  out->zero = zero ? lb_bytes_of(zero) : NULL;
  if (zero && (!out->zero || out->zero->rank > 1)) return false;
  out->n_zero = out->zero ? lb_tensor_count(out->zero) : 0;
  out->fits = true;
  for (int64_t i = 0; out->fits && i < out->rows * out->cols; i++) {
    int64_t col = i % out->cols;
    int x = weight_at(out, i / out->cols, col) - zero_of(out, col);
    out->fits = x >= INT8_MIN && x <= INT8_MAX;
  }
  return out->rows % 4 == 0 && (out->n_zero <= 1 || out->n_zero == out->cols);
}

static lb_status make_weights(lb_graph *g, const lb_byte_weights *b,
                              lb_value **out) {
  lb_tensor t = {.dtype = LB_I8, .rank = 2, .dims = {b->rows, b->cols}};
  int8_t *to = lb_arena_alloc(&g->arena, (size_t)(b->rows * b->cols), 64);
  if (!to) return lb_oom();
  lb_tensor_dense(&t);
  t.data = to;
  for (int64_t i = 0; i < b->rows * b->cols; i++) {
    int64_t col = i % b->cols;
    to[i] = (int8_t)(weight_at(b, i / b->cols, col) - base_of(b, col));
  }
  return lb_const_new(g, "bytes", &t, out);
}

static lb_status new_integers(lb_graph *g, int64_t n, uint32_t **data,
                              lb_value **out) {
  lb_tensor t = {.dtype = LB_I32, .rank = 1, .dims = {n}, .strides = {1}};
  t.data = *data = lb_arena_new(&g->arena, uint32_t, (size_t)n);
  return t.data ? lb_const_new(g, "integers", &t, out) : lb_oom();
}

// bias + by * (the sums of columns of B - zb), as integers wrap.
static lb_status make_sums(lb_graph *g, const lb_byte_weights *b, int32_t by,
                           const lb_tensor *bias, lb_value **out) {
  uint32_t *to;
  LB_TRY(new_integers(g, b->cols, &to, out));
  for (int64_t col = 0; col < b->cols; col++) {
    uint32_t sum = 0;
    for (int64_t row = 0; row < b->rows; row++)
      sum += (uint32_t)(weight_at(b, row, col) - zero_of(b, col));
    to[col] = sum * (uint32_t)by;
    if (bias)
      to[col] +=
          (uint32_t)lb_match_int(bias, lb_tensor_count(bias) > 1 ? col : 0);
  }
  return LB_OK;
}

// -- products ----------------------------------------------------------------

static lb_status make_int(const lb_spot *s, lb_op op, lb_value *x, int32_t y,
                          lb_value **out) {
  uint32_t *to;
  lb_value *number;
  LB_TRY(new_integers(s->rw->graph, 1, &to, &number));
  *to = (uint32_t)y;
  return lb_spot_make(s, op, x, number, out);
}

// What made the bytes is spelled out, so that kernels make them; signed ones
// become unsigned.
static lb_status unsigned_of(const lb_spot *s, lb_value *a, lb_value **out) {
  lb_node *from = a->producer;
  bool first = from && from->out[0] == a;
  if (first && from->op == LB_OP_DynamicQuantizeLinear)
    LB_TRY(lb_spell_dynamic(s->rw, from));
  if (first && from->op == LB_OP_QuantizeLinear)
    LB_TRY(lb_spell_quantize(s->rw, from));
  *out = a;
  if (a->info.dtype == LB_U8) return LB_OK;
  LB_TRY(lb_rewrite_cast(s->rw, s->at, a, LB_I32, out));
  LB_TRY(make_int(s, LB_OP_Add, *out, SIGN, out));
  return lb_rewrite_cast(s->rw, s->at, *out, LB_U8, out);
}

// y - (sums of rows of a) * (W - (B - zb)).
static lb_status take_rest(const lb_spot *s, lb_value *a,
                           const lb_byte_weights *b, lb_value **y) {
  lb_graph *g = s->rw->graph;
  lb_tensor axis = {.dtype = LB_I64, .rank = 1, .dims = {1}, .strides = {1}};
  int64_t *last = lb_arena_new(&g->arena, int64_t, 1);
  uint32_t *to;
  lb_value *in[2], *rest;
  lb_node *sum;
  if (b->fits) return LB_OK;
  if (!last) return lb_oom();
  *last = -1;
  axis.data = last;
  LB_TRY(lb_rewrite_cast(s->rw, s->at, a, LB_I32, &in[0]));
  LB_TRY(lb_const_new(g, "axis", &axis, &in[1]));
  LB_TRY(lb_rewrite_insert(s->rw, s->at, LB_OP_ReduceSum, in, 2, &sum));
  LB_TRY(lb_rewrite_inserted(s->rw, sum, &in[0]));
  int64_t n = b->n_zero > 1 ? b->n_zero : 1;
  LB_TRY(new_integers(g, n, &to, &rest));
  for (int64_t i = 0; i < n; i++)
    to[i] = (uint32_t)(zero_of(b, i) - base_of(b, i));
  LB_TRY(lb_spot_make(s, LB_OP_Mul, in[0], rest, &rest));
  return lb_spot_make(s, LB_OP_Sub, *y, rest, y);
}

lb_status lb_spot_bytes(const lb_spot *s, lb_value *a, lb_value *zero,
                        const lb_byte_weights *b, const lb_tensor *bias,
                        lb_value **out) {
  lb_graph *g = s->rw->graph;
  lb_value *in[2], *sums;
  float known = 0;
  bool fixed = !zero || lb_zero_at(zero, &known);
  int32_t moved = a->info.dtype == LB_I8 ? SIGN : 0;
  int32_t by = -((int32_t)known + moved);
  LB_TRY(unsigned_of(s, a, &in[0]));
  LB_TRY(make_weights(g, b, &in[1]));
  LB_TRY(lb_spot_make(s, LB_OP_MatMulInteger, in[0], in[1], out));
  LB_TRY(take_rest(s, in[0], b, out));
  if (by || bias) {
    LB_TRY(make_sums(g, b, by, bias, &sums));
    LB_TRY(lb_spot_make(s, LB_OP_Add, *out, sums, out));
  }
  if (fixed) return LB_OK;
  LB_TRY(make_sums(g, b, 1, NULL, &sums));
  LB_TRY(lb_rewrite_cast(s->rw, s->at, zero, LB_I32, &zero));
  LB_TRY(lb_spot_make(s, LB_OP_Mul, zero, sums, &sums));
  return lb_spot_make(s, LB_OP_Sub, *out, sums, out);
}

static bool is_single(const lb_value *v) {
  const lb_vinfo *i = &v->info;
  return i->rank == 0 || (i->rank == 1 && lb_dim_is(i->dims[0], 1));
}

static bool is_left(const lb_value *a, const lb_value *zero) {
  return lb_is_byte(a->info.dtype) && a->info.rank >= 2 && !lb_value_const(a) &&
         (!zero || is_single(zero));
}

static lb_status visit_integers(lb_rewrite *rw, lb_node *n) {
  lb_spot s = {rw, n};
  lb_value *a = n->in[A], *zero = lb_node_input(n, A_ZERO), *y;
  lb_byte_weights b;
  if (lb_op_multiplies_bytes(n) || !is_left(a, zero) ||
      !lb_byte_weights_find(n->in[B], lb_node_input(n, B_ZERO), false, &b))
    return LB_OK;
  LB_TRY(lb_spot_bytes(&s, a, zero, &b, NULL, &y));
  return lb_rewrite_become(rw, n, LB_OP_Identity, &y, 1);
}

// -- products of what was bytes ----------------------------------------------

typedef struct side {  // of a product of floats: a DequantizeLinear
  lb_value *bytes, *zero;
  const lb_tensor *scale;
} side;

static bool match_side(const lb_value *v, side *out) {
  const lb_node *n = lb_match_op(v, LB_OP_DequantizeLinear);
  if (!n || lb_attr_int(n, "block_size", 0) || v->info.dtype != LB_F32)
    return false;
  *out = (side){n->in[LB_Q_X], lb_node_input(n, LB_Q_ZERO),
                lb_value_const(n->in[LB_Q_SCALE])};
  return out->scale && out->scale->dtype == LB_F32 && out->scale->rank <= 1 &&
         lb_tensor_is_dense(out->scale);
}

// Weights have one scale, or one a column.
static bool has_scales(const lb_value *v, const side *w,
                       const lb_byte_weights *b) {
  int64_t n = lb_tensor_count(w->scale);
  int64_t axis = lb_attr_int(lb_match_op(v, LB_OP_DequantizeLinear), "axis", 1);
  if (axis < 0) axis += 2;
  return n == 1 || (n == b->cols && axis == !b->turned);
}

static lb_status make_scales(lb_graph *g, const side *a, const side *w,
                             lb_value **out) {
  int64_t n = lb_tensor_count(w->scale);
  lb_tensor t = {.dtype = LB_F32, .rank = 1, .dims = {n}, .strides = {1}};
  float *to = lb_arena_new(&g->arena, float, (size_t)n);
  if (!to) return lb_oom();
  t.data = to;
  for (int64_t i = 0; i < n; i++)
    to[i] =
        (float)lb_match_elem(a->scale, 0) * (float)lb_match_elem(w->scale, i);
  return lb_const_new(g, "scales", &t, out);
}

static bool is_plain(const lb_node *n) {
  return n->op == LB_OP_MatMul ||
         (n->op == LB_OP_Gemm && lb_attr_int(n, "transA", 0) == 0 &&
          lb_attr_float(n, "alpha", 1) == 1 &&
          lb_attr_float(n, "beta", 1) == 1);
}

static lb_status visit_floats(lb_rewrite *rw, lb_node *n) {
  lb_spot s = {rw, n};
  side a, w;
  lb_byte_weights b;
  float zero;
  lb_value *in[2], *y, *c = lb_node_input(n, 2);
  if (!is_plain(n) || !match_side(n->in[A], &a) || !match_side(n->in[B], &w) ||
      lb_tensor_count(a.scale) != 1 || !is_left(a.bytes, a.zero) ||
      (a.zero && !lb_zero_at(a.zero, &zero)) ||
      !lb_byte_weights_find(w.bytes, w.zero, lb_attr_int(n, "transB", 0) != 0,
                            &b) ||
      !has_scales(n->in[B], &w, &b))
    return LB_OK;
  LB_TRY(lb_spot_bytes(&s, a.bytes, a.zero, &b, NULL, &y));
  LB_TRY(lb_rewrite_cast(rw, n, y, LB_F32, &in[0]));
  LB_TRY(make_scales(rw->graph, &a, &w, &in[1]));
  if (!c) return lb_rewrite_become(rw, n, LB_OP_Mul, in, 2);
  LB_TRY(lb_spot_make(&s, LB_OP_Mul, in[0], in[1], &in[0]));
  in[1] = c;
  return lb_rewrite_become(rw, n, LB_OP_Add, in, 2);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  if (n->n_out != 1 || !n->out[0]) return LB_OK;
  if (n->op == LB_OP_MatMulInteger) return visit_integers(rw, n);
  return visit_floats(rw, n);
}

lb_status lb_pass_bytes(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
