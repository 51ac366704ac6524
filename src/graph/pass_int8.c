// graph/pass_int8.c -- rewrites quantised MatMul, Gemm and Conv with constant
// weights as u8 x s8 -> s32 GEMMs.
//
//   MatMulInteger(a, B, za, zb) =
//       MatMulInteger(a, W) - za * (column sums of B - zb)
//                           - (row sums of a) * (W - (B - zb))
//   MatMul(DequantizeLinear(a), DequantizeLinear(B)) = Cast(that) * (sa * sb)
//
// where B is a constant. The same holds for Gemm, and for convolutions, whose
// columns are output channels. Kernels multiply u8 by s8, interleaved by 4
// along K, and accumulate in int32: 4 must divide K, or the input channels of a
// group. W is B - zb if that fits into int8, and then needs no row sums.
// Otherwise W is B, less 128 if B is unsigned, and the row sums are a GEMM with
// ones, which pays if there are enough columns. A signed a becomes unsigned by
// adding 128. All of this is exact.
//
// The padding of a feature map has the value za. Unless that is 0, a Pad writes
// it. The same Pad adds the channels that are missing to a multiple of 4; their
// weights are 0.
#include "graph/quantize.h"

#include <string.h>

enum {
  A,
  B,
  A_ZERO_POINT,
  B_ZERO_POINT
};                                            // inputs of MatMulInteger and
                                              // ConvInteger
enum { SIGN_OFFSET = 128 };                   // from int8 to uint8
enum { MIN_COLS = 64 };                       // at which a GEMM with ones pays
enum { MAX_ROWS = INT32_MAX / (255 * 255) };  // whose sums fit into int32

bool lb_op_is_int8_gemm(const lb_node *n) {
  bool conv = n->op == LB_OP_ConvInteger;
  if ((!conv && n->op != LB_OP_MatMulInteger) ||
      lb_node_input(n, A_ZERO_POINT) || lb_node_input(n, B_ZERO_POINT))
    return false;
  const lb_tensor *w = lb_int8_const(n->in[B]);
  int rank = n->in[A]->info.rank;
  if (n->in[A]->info.dtype != LB_U8 || rank < 2 || !w || w->dtype != LB_I8 ||
      lb_tensor_count(w) == 0)
    return false;
  if (!conv) return w->rank == 2 && w->dims[0] % 4 == 0;
  return (w->rank == 3 || w->rank == 4) && w->rank == rank &&
         w->dims[1] % 4 == 0;
}

// -- weights -----------------------------------------------------------------

static int zero_point_of(const lb_int8_weights *b, int64_t col) {
  return !b->zero_point
             ? 0
             : lb_int8_at(b->zero_point, b->n_zero_points > 1 ? col : 0);
}

// B - W.
static int offset_of(const lb_int8_weights *b, int64_t col) {
  if (b->fits) return zero_point_of(b, col);
  return b->w->dtype == LB_U8 ? SIGN_OFFSET : 0;
}

// One contiguous strip of the weights, and what to subtract from each. It is a
// row of B in KN order, else a column, so that the weights, which are large,
// are read in memory order.
typedef struct strip {
  const uint8_t *from;
  int64_t n;
  int sign, offset;
  const lb_tensor *offsets;  // one per element instead of `offset`, or NULL
} strip;

static int64_t n_strips(const lb_int8_weights *b) {
  return b->order == LB_WEIGHTS_KN ? b->rows : b->cols;
}

static strip strip_of(const lb_int8_weights *b, int64_t i) {
  bool rows = b->order == LB_WEIGHTS_KN;
  int64_t n = rows ? b->cols : b->rows;
  return (strip){(const uint8_t *)b->w->data + i * n, n,
                 b->w->dtype == LB_I8 ? SIGN_OFFSET : 0,
                 zero_point_of(b, rows ? 0 : i),
                 rows && b->n_zero_points > 1 ? b->zero_point : NULL};
}

static inline int weight_of(const strip *l, int64_t i) {
  int offset = l->offsets ? lb_int8_at(l->offsets, i) : l->offset;
  return (l->from[i] ^ l->sign) - l->sign - offset;
}

static bool all_fit_int8(const lb_int8_weights *b) {
  int low = 0, high = 0;
  for (int64_t k = 0; k < n_strips(b); k++) {
    strip l = strip_of(b, k);
    for (int64_t i = 0; i < l.n; i++) {
      int x = weight_of(&l, i);
      low = x < low ? x : low;
      high = x > high ? x : high;
    }
  }
  return low >= INT8_MIN && high <= INT8_MAX;
}

bool lb_int8_weights_find(const lb_value *w, const lb_value *zero_point,
                          lb_weight_order order, lb_int8_weights *out) {
  const lb_tensor *t = lb_int8_const(w);
  bool conv = order == LB_WEIGHTS_OIHW;
  *out = (lb_int8_weights){.w = t, .order = order};
  if (!t || lb_tensor_count(t) == 0 || (!conv && t->rank != 2) ||
      (conv && t->rank != 3 && t->rank != 4))
    return false;
  out->cols = t->dims[order == LB_WEIGHTS_KN ? 1 : 0];
  out->rows = lb_tensor_count(t) / out->cols;
  out->zero_point = zero_point ? lb_int8_const(zero_point) : NULL;
  if (zero_point && (!out->zero_point || out->zero_point->rank > 1))
    return false;
  out->n_zero_points = out->zero_point ? lb_tensor_count(out->zero_point) : 0;
  if (out->n_zero_points > 1 && out->n_zero_points != out->cols) return false;
  if (conv ? t->dims[1] == 1 : out->rows % 4 != 0) return false;
  if (conv) out->extra_channels = (4 - t->dims[1] % 4) % 4;
  out->fits = all_fit_int8(out);
  return out->fits || out->cols >= MIN_COLS;
}

// Weights of a convolution keep their order; others become KN.
static lb_status make_weights(lb_graph *g, const lb_int8_weights *b,
                              lb_value **out) {
  lb_tensor t = {.rank = 2, .dims = {b->rows, b->cols}};
  if (b->order == LB_WEIGHTS_OIHW) t = *b->w;
  t.dtype = LB_I8;
  t.dims[1] += b->extra_channels;
  lb_tensor_dense(&t);
  int8_t *to = lb_arena_zalloc(&g->arena, lb_tensor_bytes(&t), 64);
  if (!to) return lb_oom();
  t.data = to;
  bool transposed = b->order == LB_WEIGHTS_NK;
  int64_t stride = lb_tensor_count(&t) / n_strips(b);
  for (int64_t k = 0; k < n_strips(b); k++) {
    strip l = strip_of(b, k);
    if (!b->fits) l.offsets = NULL, l.offset = offset_of(b, 0);
    int8_t *at = transposed ? to + k : to + k * stride;
    int64_t step = transposed ? b->cols : 1;
    for (int64_t i = 0; i < l.n; i++) at[i * step] = (int8_t)weight_of(&l, i);
  }
  return lb_const_new(g, "bytes", &t, out);
}

static int n_spatial_of(const lb_int8_weights *b) { return b->w->rank - 2; }

// bias + by * (column sums of B - zb), with integer wrap-around.
static lb_status make_column_sums(lb_graph *g, const lb_int8_weights *b,
                                  int32_t by, const lb_tensor *bias,
                                  lb_value **out) {
  LB_TRY(lb_const_zeros(g, LB_I32, b->cols, n_spatial_of(b), out));
  uint32_t *to = lb_value_const(*out)->data;
  for (int64_t k = 0; k < n_strips(b); k++) {
    strip l = strip_of(b, k);
    for (int64_t i = 0; i < l.n; i++)
      to[b->order == LB_WEIGHTS_KN ? i : k] +=
          (uint32_t)(weight_of(&l, i) * by);
  }
  bool many = bias && lb_tensor_count(bias) > 1;
  for (int64_t col = 0; bias && col < b->cols; col++)
    to[col] += (uint32_t)lb_match_int(bias, many ? col : 0);
  return LB_OK;
}

// -- operand A ---------------------------------------------------------------

static lb_status insert_with_int(const lb_insert_point *s, lb_op op,
                                 lb_value *x, int32_t y, lb_value **out) {
  lb_value *number;
  LB_TRY(lb_const_zeros(s->rw->graph, LB_I32, 1, 0, &number));
  *(int32_t *)lb_value_const(number)->data = y;
  return lb_insert_node(s, op, x, number, out);
}

// Converts int8 to uint8.
static lb_status to_unsigned(const lb_insert_point *s, lb_value *a,
                             lb_value **out) {
  *out = a;
  if (a->info.dtype == LB_U8) return LB_OK;
  LB_TRY(lb_rewrite_cast(s->rw, s->at, a, LB_I32, out));
  LB_TRY(insert_with_int(s, LB_OP_Add, *out, SIGN_OFFSET, out));
  return lb_rewrite_cast(s->rw, s->at, *out, LB_U8, out);
}

static bool has_padding(const lb_node *conv, int n_spatial) {
  for (int i = 0; i < 2 * n_spatial; i++)
    if (lb_attr_int_at(conv, "pads", i, 0) != 0) return true;
  return false;
}

// Pads the feature map with the zero point, which is p->zero_point or the
// constant `known`, and adds channels.
static lb_status insert_pad(const lb_insert_point *s, const lb_int8_gemm *p,
                            uint8_t known, lb_value **x) {
  lb_graph *g = s->rw->graph;
  int rank = p->b->w->rank, n_spatial = rank - 2;
  int64_t pads[2 * LB_MAX_RANK] = {0};
  lb_tensor t = {.dtype = LB_U8};
  lb_value *in[3] = {*x, NULL, p->zero_point};
  for (int i = 0; i < 2 * n_spatial; i++)
    pads[i / n_spatial * rank + 2 + i % n_spatial] =
        lb_attr_int_at(p->conv, "pads", i, 0);
  pads[rank + 1] = p->b->extra_channels;
  LB_TRY(lb_const_ints(g, "pads", pads, 2 * (uint32_t)rank, &in[1]));
  if (!p->zero_point || lb_value_const(p->zero_point)) {
    t.data = lb_arena_new(&g->arena, uint8_t, 1);
    if (!t.data) return lb_oom();
    *(uint8_t *)t.data = known;
    LB_TRY(lb_const_new(g, "border", &t, &in[2]));
  }
  return lb_rewrite_make(s->rw, s->at, LB_OP_Pad, in, 3, x);
}

// -- GEMM --------------------------------------------------------------------

// `in` has A and the weights; `padded`: a Pad has been inserted.
static lb_status insert_gemm(const lb_insert_point *s, const lb_int8_gemm *p,
                             lb_value **in, bool padded, lb_value **out) {
  static const int64_t none[2 * LB_MAX_RANK];
  lb_graph *g = s->rw->graph;
  uint32_t ends = 2 * (uint32_t)n_spatial_of(p->b);
  lb_node *n;
  if (!p->conv)
    return lb_rewrite_make(s->rw, s->at, LB_OP_MatMulInteger, in, 2, out);
  LB_TRY(lb_rewrite_insert(s->rw, s->at, LB_OP_ConvInteger, in, 2, &n));
  LB_TRY(lb_node_copy_attrs(g, n, p->conv));
  if (padded) LB_TRY(lb_node_set_ints(g, n, "pads", none, ends));
  return lb_rewrite_inserted(s->rw, n, out);
}

// A single column shaped like W: 1 where W has a weight.
static lb_status make_ones(lb_graph *g, const lb_int8_weights *b,
                           lb_value **out) {
  lb_tensor t = {.rank = 2, .dims = {b->rows, 1}};
  if (b->order == LB_WEIGHTS_OIHW) t = *b->w, t.dims[0] = 1;
  t.dtype = LB_I8;
  t.dims[1] += b->extra_channels;
  lb_tensor_dense(&t);
  t.data = lb_arena_zalloc(&g->arena, lb_tensor_bytes(&t), 64);
  if (!t.data) return lb_oom();
  memset(t.data, 1, (size_t)b->rows);
  return lb_const_new(g, "ones", &t, out);
}

// y - (row sums of a) * (W - (B - zb)).
static lb_status subtract_correction(const lb_insert_point *s,
                                     const lb_int8_gemm *p, lb_value *a,
                                     bool padded, lb_value **y) {
  const lb_int8_weights *b = p->b;
  lb_graph *g = s->rw->graph;
  int64_t n = b->n_zero_points > 1 ? b->n_zero_points : 1;
  lb_value *in[2] = {a}, *sums, *correction;
  if (b->fits) return LB_OK;
  LB_TRY(make_ones(g, b, &in[1]));
  LB_TRY(insert_gemm(s, p, in, padded, &sums));
  LB_TRY(lb_const_zeros(g, LB_I32, n, n_spatial_of(b), &correction));
  int32_t *to = lb_value_const(correction)->data;
  for (int64_t i = 0; i < n; i++) to[i] = zero_point_of(b, i) - offset_of(b, i);
  LB_TRY(lb_insert_node(s, LB_OP_Mul, sums, correction, &correction));
  return lb_insert_node(s, LB_OP_Sub, *y, correction, y);
}

// zero_point * sums. For a convolution it is computed with channels last, and
// transposed, so that the Transpose of the convolution sinks past it
// (pass_sink.c).
static lb_status scale_column_sums(const lb_insert_point *s, int n_spatial,
                                   lb_value *zero_point, lb_value **sums) {
  int64_t perm[LB_MAX_RANK] = {0, n_spatial + 1};
  lb_tensor t = *lb_value_const(*sums);
  lb_value *x = *sums;
  lb_node *n;
  for (int i = 0; i < n_spatial; i++) perm[2 + i] = 1 + i;
  if (n_spatial) {
    t.dims[n_spatial + 1] = t.dims[0];
    t.dims[0] = 1;
    t.rank = n_spatial + 2;
    lb_tensor_dense(&t);
    LB_TRY(lb_const_new(s->rw->graph, "sums", &t, &x));
  }
  LB_TRY(lb_insert_node(s, LB_OP_Mul, zero_point, x, sums));
  if (!n_spatial) return LB_OK;
  LB_TRY(lb_rewrite_insert(s->rw, s->at, LB_OP_Transpose, sums, 1, &n));
  LB_TRY(
      lb_node_set_ints(s->rw->graph, n, "perm", perm, 2 + (uint32_t)n_spatial));
  return lb_rewrite_inserted(s->rw, n, sums);
}

lb_status lb_insert_int8_gemm(const lb_insert_point *s, const lb_int8_gemm *p,
                              lb_value **out) {
  lb_graph *g = s->rw->graph;
  lb_value *in[2], *sums, *zero_point = p->zero_point;
  float known = 0;
  bool is_known = !zero_point || lb_zero_point_at(zero_point, &known);
  int32_t known_zero_point =
      (int32_t)known + (p->a->info.dtype == LB_I8 ? SIGN_OFFSET : 0);
  bool padded = p->conv && (p->b->extra_channels ||
                            ((known_zero_point || !is_known) &&
                             has_padding(p->conv, n_spatial_of(p->b))));
  LB_TRY(to_unsigned(s, p->a, &in[0]));
  if (padded) LB_TRY(insert_pad(s, p, (uint8_t)known_zero_point, &in[0]));
  LB_TRY(make_weights(g, p->b, &in[1]));
  LB_TRY(insert_gemm(s, p, in, padded, out));
  LB_TRY(subtract_correction(s, p, in[0], padded, out));
  if (known_zero_point || p->bias) {
    LB_TRY(make_column_sums(g, p->b, -known_zero_point, p->bias, &sums));
    LB_TRY(lb_insert_node(s, LB_OP_Add, *out, sums, out));
  }
  if (is_known) return LB_OK;
  LB_TRY(make_column_sums(g, p->b, 1, NULL, &sums));
  LB_TRY(lb_rewrite_cast(s->rw, s->at, zero_point, LB_I32, &zero_point));
  LB_TRY(scale_column_sums(s, n_spatial_of(p->b), zero_point, &sums));
  return lb_insert_node(s, LB_OP_Sub, *out, sums, out);
}

// A zero point that is only known at run time must be unsigned.
bool lb_int8_gemm_is(const lb_int8_gemm *p) {
  const lb_vinfo *a = &p->a->info;
  const char *pads =
      p->conv ? lb_attr_str(p->conv, "auto_pad", "NOTSET") : "NOTSET";
  return lb_is_int8(a->dtype) && !lb_value_const(p->a) &&
         (p->conv ? a->rank == p->b->w->rank : a->rank >= 2) &&
         ((p->b->fits && !p->b->extra_channels) || !p->conv ||
          lb_attr_int(p->conv, "group", 1) == 1) &&
         (!*pads || strcmp(pads, "NOTSET") == 0) &&
         (!p->zero_point || lb_value_const(p->zero_point) ||
          a->dtype == LB_U8) &&
         (!p->zero_point || lb_is_single(p->zero_point));
}

static lb_status visit_integers(lb_rewrite *rw, lb_node *n) {
  lb_insert_point s = {rw, n};
  lb_int8_weights b;
  bool conv = n->op == LB_OP_ConvInteger;
  lb_int8_gemm p = {conv ? n : NULL, n->in[A], lb_node_input(n, A_ZERO_POINT),
                    &b, NULL};
  lb_value *y;
  if (lb_op_is_int8_gemm(n) ||
      !lb_int8_weights_find(n->in[B], lb_node_input(n, B_ZERO_POINT),
                            conv ? LB_WEIGHTS_OIHW : LB_WEIGHTS_KN, &b) ||
      !lb_int8_gemm_is(&p))
    return LB_OK;
  LB_TRY(lb_insert_int8_gemm(&s, &p, &y));
  return lb_rewrite_become(rw, n, LB_OP_Identity, &y, 1);
}

// -- GEMM of dequantised operands --------------------------------------------

typedef struct dequantized {  // operand of a float GEMM: a DequantizeLinear
  lb_value *quantized, *zero_point;
  const lb_tensor *scale;
  int64_t axis;
} dequantized;

static bool match_dequantized(const lb_value *v, dequantized *out) {
  const lb_node *n = lb_match_op(v, LB_OP_DequantizeLinear);
  if (!n || lb_attr_int(n, "block_size", 0) || v->info.dtype != LB_F32)
    return false;
  *out = (dequantized){n->in[LB_Q_X], lb_node_input(n, LB_Q_ZERO_POINT),
                       lb_value_const(n->in[LB_Q_SCALE]),
                       lb_attr_int(n, "axis", 1)};
  if (out->axis < 0) out->axis += v->info.rank;
  return out->scale && out->scale->dtype == LB_F32 && out->scale->rank <= 1 &&
         lb_tensor_is_dense(out->scale);
}

// Whether the weights have one scale, or one per column.
static bool has_scales(const dequantized *w, const lb_int8_weights *b) {
  int64_t n = lb_tensor_count(w->scale);
  return n == 1 || (n == b->cols && w->axis == (b->order == LB_WEIGHTS_KN));
}

static lb_status make_scales(lb_graph *g, const dequantized *a,
                             const dequantized *w, int n_spatial,
                             lb_value **out) {
  int64_t n = lb_tensor_count(w->scale);
  LB_TRY(lb_const_zeros(g, LB_F32, n, n_spatial, out));
  float *to = lb_value_const(*out)->data;
  for (int64_t i = 0; i < n; i++)
    to[i] =
        (float)lb_match_elem(a->scale, 0) * (float)lb_match_elem(w->scale, i);
  return LB_OK;
}

static bool is_plain_gemm(const lb_node *n) {
  return n->op == LB_OP_MatMul || n->op == LB_OP_Conv ||
         (n->op == LB_OP_Gemm && lb_attr_int(n, "transA", 0) == 0 &&
          lb_attr_float(n, "alpha", 1) == 1 &&
          (!lb_node_input(n, 2) || lb_attr_float(n, "beta", 1) == 1));
}

static lb_weight_order weight_order_of(const lb_node *n) {
  if (n->op == LB_OP_Conv) return LB_WEIGHTS_OIHW;
  return lb_attr_int(n, "transB", 0) ? LB_WEIGHTS_NK : LB_WEIGHTS_KN;
}

// The bias of a convolution has one element per channel, before n_spatial axes.
static lb_status add_spatial_axes(const lb_insert_point *s, int n_spatial,
                                  lb_value **bias) {
  int64_t dims[LB_MAX_RANK] = {-1, 1, 1};
  lb_value *in[2] = {*bias};
  if (n_spatial == 0) return LB_OK;
  LB_TRY(lb_const_ints(s->rw->graph, "dims", dims, 1 + (uint32_t)n_spatial,
                       &in[1]));
  return lb_rewrite_make(s->rw, s->at, LB_OP_Reshape, in, 2, bias);
}

static lb_status visit_dequantized(lb_rewrite *rw, lb_node *n) {
  lb_insert_point s = {rw, n};
  dequantized a, w;
  lb_int8_weights b;
  float zero_point;
  lb_value *in[2], *y, *c = lb_node_input(n, 2);
  if (!is_plain_gemm(n) || !match_dequantized(n->in[A], &a) ||
      !match_dequantized(n->in[B], &w) || lb_tensor_count(a.scale) != 1 ||
      (a.zero_point && !lb_zero_point_at(a.zero_point, &zero_point)) ||
      !lb_int8_weights_find(w.quantized, w.zero_point, weight_order_of(n),
                            &b) ||
      b.rows > MAX_ROWS || !has_scales(&w, &b))
    return LB_OK;
  lb_int8_gemm p = {b.order == LB_WEIGHTS_OIHW ? n : NULL, a.quantized,
                    a.zero_point, &b, NULL};
  if (!lb_int8_gemm_is(&p)) return LB_OK;
  LB_TRY(lb_insert_int8_gemm(&s, &p, &y));
  LB_TRY(lb_rewrite_cast(rw, n, y, LB_F32, &in[0]));
  LB_TRY(make_scales(rw->graph, &a, &w, n_spatial_of(&b), &in[1]));
  if (!c) return lb_rewrite_become(rw, n, LB_OP_Mul, in, 2);
  LB_TRY(lb_insert_node(&s, LB_OP_Mul, in[0], in[1], &in[0]));
  LB_TRY(add_spatial_axes(&s, n_spatial_of(&b), &c));
  in[1] = c;
  return lb_rewrite_become(rw, n, LB_OP_Add, in, 2);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  if (n->n_out != 1 || !n->out[0]) return LB_OK;
  if (n->op == LB_OP_MatMulInteger || n->op == LB_OP_ConvInteger)
    return visit_integers(rw, n);
  return visit_dequantized(rw, n);
}

lb_status lb_pass_int8(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
