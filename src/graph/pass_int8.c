// graph/pass_int8.c -- quantised products as products of bytes.
//
//   MatMulInteger(a, B, za, zb) =
//       MatMulInteger(a, W) - za * (sums of columns of B - zb)
//                           - (sums of rows of a) * (W - (B - zb))
//   MatMul(DequantizeLinear(a), DequantizeLinear(B)) = Cast(that) * (sa * sb)
//
// where B is a constant; likewise convolutions, whose columns are channels, and
// Gemm. Kernels multiply unsigned bytes by signed ones, four at a time, and add
// them up in int32: rows of a, or the channels of a group, have to fit into
// fours. W is B - zb if that fits into int8, and nothing is left to subtract;
// else B, of unsigned bytes 128 less, and rows are summed by a product with
// ones, where there are columns enough. Signed bytes of a become unsigned ones,
// 128 more. All of it is exact.
//
// The border of an image is za, which is 0 as bytes or has to be written. So is
// a channel or two that it lacks, whose weights are 0.
#include "graph/quantize.h"

#include <string.h>

enum { A, B, A_ZERO, B_ZERO };  // inputs of MatMulInteger and ConvInteger
enum { SIGN = 128 };            // from a signed byte to an unsigned one
enum { MIN_COLS = 64 };         // that are worth a product with ones
enum { MAX_ROWS = INT32_MAX / (255 * 255) };  // whose sums int32 holds

bool lb_op_is_int8_gemm(const lb_node *n) {
  bool conv = n->op == LB_OP_ConvInteger;
  if ((!conv && n->op != LB_OP_MatMulInteger) || lb_node_input(n, A_ZERO) ||
      lb_node_input(n, B_ZERO))
    return false;
  const lb_tensor *w = lb_bytes_of(n->in[B]);
  int rank = n->in[A]->info.rank;
  if (n->in[A]->info.dtype != LB_U8 || rank < 2 || !w || w->dtype != LB_I8 ||
      lb_tensor_count(w) == 0)
    return false;
  if (!conv) return w->rank == 2 && w->dims[0] % 4 == 0;
  return (w->rank == 3 || w->rank == 4) && w->rank == rank &&
         w->dims[1] % 4 == 0;
}

// -- weights -----------------------------------------------------------------

static int zero_of(const lb_int8_weights *b, int64_t col) {
  return !b->zero ? 0 : lb_byte_at(b->zero, b->n_zero > 1 ? col : 0);
}

// What W is less than B.
static int base_of(const lb_int8_weights *b, int64_t col) {
  if (b->fits) return zero_of(b, col);
  return b->w->dtype == LB_U8 ? SIGN : 0;
}

// Weights as they lie, which are many: a row or a column of them, and what each
// is to be less.
typedef struct line {
  const uint8_t *from;
  int64_t n;
  int sign, less;
  const lb_tensor *zeros;  // one for each instead, or NULL
} line;

static int64_t lines_of(const lb_int8_weights *b) {
  return b->how == LB_WEIGHTS_KN ? b->rows : b->cols;
}

static line line_of(const lb_int8_weights *b, int64_t i) {
  bool rows = b->how == LB_WEIGHTS_KN;
  int64_t n = rows ? b->cols : b->rows;
  return (line){(const uint8_t *)b->w->data + i * n, n,
                b->w->dtype == LB_I8 ? SIGN : 0, zero_of(b, rows ? 0 : i),
                rows && b->n_zero > 1 ? b->zero : NULL};
}

static inline int weight_of(const line *l, int64_t i) {
  int less = l->zeros ? lb_byte_at(l->zeros, i) : l->less;
  return (l->from[i] ^ l->sign) - l->sign - less;
}

static bool all_fit(const lb_int8_weights *b) {
  int low = 0, high = 0;
  for (int64_t k = 0; k < lines_of(b); k++) {
    line l = line_of(b, k);
    for (int64_t i = 0; i < l.n; i++) {
      int x = weight_of(&l, i);
      low = x < low ? x : low;
      high = x > high ? x : high;
    }
  }
  return low >= INT8_MIN && high <= INT8_MAX;
}

bool lb_int8_weights_find(const lb_value *w, const lb_value *zero,
                          lb_weight_order how, lb_int8_weights *out) {
  const lb_tensor *t = lb_bytes_of(w);
  bool conv = how == LB_WEIGHTS_OIHW;
  *out = (lb_int8_weights){.w = t, .how = how};
  if (!t || lb_tensor_count(t) == 0 || (!conv && t->rank != 2) ||
      (conv && t->rank != 3 && t->rank != 4))
    return false;
  out->cols = t->dims[how == LB_WEIGHTS_KN ? 1 : 0];
  out->rows = lb_tensor_count(t) / out->cols;
  out->zero = zero ? lb_bytes_of(zero) : NULL;
  if (zero && (!out->zero || out->zero->rank > 1)) return false;
  out->n_zero = out->zero ? lb_tensor_count(out->zero) : 0;
  if (out->n_zero > 1 && out->n_zero != out->cols) return false;
  if (conv ? t->dims[1] == 1 : out->rows % 4 != 0) return false;
  if (conv) out->more = (4 - t->dims[1] % 4) % 4;
  out->fits = all_fit(out);
  return out->fits || out->cols >= MIN_COLS;
}

// Those of a convolution lie as they did.
static lb_status make_weights(lb_graph *g, const lb_int8_weights *b,
                              lb_value **out) {
  lb_tensor t = {.rank = 2, .dims = {b->rows, b->cols}};
  if (b->how == LB_WEIGHTS_OIHW) t = *b->w;
  t.dtype = LB_I8;
  t.dims[1] += b->more;
  lb_tensor_dense(&t);
  int8_t *to = lb_arena_zalloc(&g->arena, lb_tensor_bytes(&t), 64);
  if (!to) return lb_oom();
  t.data = to;
  bool turned = b->how == LB_WEIGHTS_NK;
  int64_t apart = lb_tensor_count(&t) / lines_of(b);
  for (int64_t k = 0; k < lines_of(b); k++) {
    line l = line_of(b, k);
    if (!b->fits) l.zeros = NULL, l.less = base_of(b, 0);
    int8_t *at = turned ? to + k : to + k * apart;
    int64_t step = turned ? b->cols : 1;
    for (int64_t i = 0; i < l.n; i++) at[i * step] = (int8_t)weight_of(&l, i);
  }
  return lb_const_new(g, "bytes", &t, out);
}

static int space_of(const lb_int8_weights *b) { return b->w->rank - 2; }

// bias + by * (the sums of columns of B - zb), as integers wrap.
static lb_status make_sums(lb_graph *g, const lb_int8_weights *b, int32_t by,
                           const lb_tensor *bias, lb_value **out) {
  LB_TRY(lb_const_numbers(g, LB_I32, b->cols, space_of(b), out));
  uint32_t *to = lb_value_const(*out)->data;
  for (int64_t k = 0; k < lines_of(b); k++) {
    line l = line_of(b, k);
    for (int64_t i = 0; i < l.n; i++)
      to[b->how == LB_WEIGHTS_KN ? i : k] += (uint32_t)(weight_of(&l, i) * by);
  }
  bool many = bias && lb_tensor_count(bias) > 1;
  for (int64_t col = 0; bias && col < b->cols; col++)
    to[col] += (uint32_t)lb_match_int(bias, many ? col : 0);
  return LB_OK;
}

// -- the other side ----------------------------------------------------------

static lb_status make_int(const lb_insert_point *s, lb_op op, lb_value *x,
                          int32_t y, lb_value **out) {
  lb_value *number;
  LB_TRY(lb_const_numbers(s->rw->graph, LB_I32, 1, 0, &number));
  *(int32_t *)lb_value_const(number)->data = y;
  return lb_insert_make(s, op, x, number, out);
}

// Signed bytes become unsigned.
static lb_status unsigned_of(const lb_insert_point *s, lb_value *a,
                             lb_value **out) {
  *out = a;
  if (a->info.dtype == LB_U8) return LB_OK;
  LB_TRY(lb_rewrite_cast(s->rw, s->at, a, LB_I32, out));
  LB_TRY(make_int(s, LB_OP_Add, *out, SIGN, out));
  return lb_rewrite_cast(s->rw, s->at, *out, LB_U8, out);
}

static bool has_border(const lb_node *conv, int space) {
  for (int i = 0; i < 2 * space; i++)
    if (lb_attr_int_at(conv, "pads", i, 0) != 0) return true;
  return false;
}

// The border of the image, of `zero` or of the known byte, and channels.
static lb_status write_border(const lb_insert_point *s, const lb_int8_gemm *p,
                              uint8_t known, lb_value **x) {
  lb_graph *g = s->rw->graph;
  int rank = p->b->w->rank, space = rank - 2;
  int64_t pads[2 * LB_MAX_RANK] = {0};
  lb_tensor t = {.dtype = LB_U8};
  lb_value *in[3] = {*x, NULL, p->zero};
  for (int i = 0; i < 2 * space; i++)
    pads[i / space * rank + 2 + i % space] =
        lb_attr_int_at(p->conv, "pads", i, 0);
  pads[rank + 1] = p->b->more;
  LB_TRY(lb_const_ints(g, "pads", pads, 2 * (uint32_t)rank, &in[1]));
  if (!p->zero || lb_value_const(p->zero)) {
    t.data = lb_arena_new(&g->arena, uint8_t, 1);
    if (!t.data) return lb_oom();
    *(uint8_t *)t.data = known;
    LB_TRY(lb_const_new(g, "border", &t, &in[2]));
  }
  return lb_rewrite_make(s->rw, s->at, LB_OP_Pad, in, 3, x);
}

// -- products ----------------------------------------------------------------

// a and weights in `in`; `bordered`: the border is written.
static lb_status multiply(const lb_insert_point *s, const lb_int8_gemm *p,
                          lb_value **in, bool bordered, lb_value **out) {
  static const int64_t none[2 * LB_MAX_RANK];
  lb_graph *g = s->rw->graph;
  uint32_t ends = 2 * (uint32_t)space_of(p->b);
  lb_node *n;
  if (!p->conv)
    return lb_rewrite_make(s->rw, s->at, LB_OP_MatMulInteger, in, 2, out);
  LB_TRY(lb_rewrite_insert(s->rw, s->at, LB_OP_ConvInteger, in, 2, &n));
  LB_TRY(lb_node_copy_attrs(g, n, p->conv));
  if (bordered) LB_TRY(lb_node_set_ints(g, n, "pads", none, ends));
  return lb_rewrite_inserted(s->rw, n, out);
}

// One column like W: 1 where that is a weight.
static lb_status make_ones(lb_graph *g, const lb_int8_weights *b,
                           lb_value **out) {
  lb_tensor t = {.rank = 2, .dims = {b->rows, 1}};
  if (b->how == LB_WEIGHTS_OIHW) t = *b->w, t.dims[0] = 1;
  t.dtype = LB_I8;
  t.dims[1] += b->more;
  lb_tensor_dense(&t);
  t.data = lb_arena_zalloc(&g->arena, lb_tensor_bytes(&t), 64);
  if (!t.data) return lb_oom();
  memset(t.data, 1, (size_t)b->rows);
  return lb_const_new(g, "ones", &t, out);
}

// y - (sums of rows of a) * (W - (B - zb)).
static lb_status take_rest(const lb_insert_point *s, const lb_int8_gemm *p,
                           lb_value *a, bool bordered, lb_value **y) {
  const lb_int8_weights *b = p->b;
  lb_graph *g = s->rw->graph;
  int64_t n = b->n_zero > 1 ? b->n_zero : 1;
  lb_value *in[2] = {a}, *sums, *rest;
  if (b->fits) return LB_OK;
  LB_TRY(make_ones(g, b, &in[1]));
  LB_TRY(multiply(s, p, in, bordered, &sums));
  LB_TRY(lb_const_numbers(g, LB_I32, n, space_of(b), &rest));
  int32_t *to = lb_value_const(rest)->data;
  for (int64_t i = 0; i < n; i++) to[i] = zero_of(b, i) - base_of(b, i);
  LB_TRY(lb_insert_make(s, LB_OP_Mul, sums, rest, &rest));
  return lb_insert_make(s, LB_OP_Sub, *y, rest, y);
}

// zero * sums, made where channels come last: there a transpose of the product
// goes by it (pass_sink.c).
static lb_status line_up(const lb_insert_point *s, int space, lb_value *zero,
                         lb_value **sums) {
  int64_t perm[LB_MAX_RANK] = {0, space + 1};
  lb_tensor t = *lb_value_const(*sums);
  lb_value *x = *sums;
  lb_node *n;
  for (int i = 0; i < space; i++) perm[2 + i] = 1 + i;
  if (space) {
    t.dims[space + 1] = t.dims[0];
    t.dims[0] = 1;
    t.rank = space + 2;
    lb_tensor_dense(&t);
    LB_TRY(lb_const_new(s->rw->graph, "sums", &t, &x));
  }
  LB_TRY(lb_insert_make(s, LB_OP_Mul, zero, x, sums));
  if (!space) return LB_OK;
  LB_TRY(lb_rewrite_insert(s->rw, s->at, LB_OP_Transpose, sums, 1, &n));
  LB_TRY(lb_node_set_ints(s->rw->graph, n, "perm", perm, 2 + (uint32_t)space));
  return lb_rewrite_inserted(s->rw, n, sums);
}

lb_status lb_insert_int8_gemm(const lb_insert_point *s, const lb_int8_gemm *p,
                              lb_value **out) {
  lb_graph *g = s->rw->graph;
  lb_value *in[2], *sums, *zero = p->zero;
  float known = 0;
  bool fixed = !zero || lb_zero_point_at(zero, &known);
  int32_t moved = (int32_t)known + (p->a->info.dtype == LB_I8 ? SIGN : 0);
  bool bordered =
      p->conv && (p->b->more ||
                  ((moved || !fixed) && has_border(p->conv, space_of(p->b))));
  LB_TRY(unsigned_of(s, p->a, &in[0]));
  if (bordered) LB_TRY(write_border(s, p, (uint8_t)moved, &in[0]));
  LB_TRY(make_weights(g, p->b, &in[1]));
  LB_TRY(multiply(s, p, in, bordered, out));
  LB_TRY(take_rest(s, p, in[0], bordered, out));
  if (moved || p->bias) {
    LB_TRY(make_sums(g, p->b, -moved, p->bias, &sums));
    LB_TRY(lb_insert_make(s, LB_OP_Add, *out, sums, out));
  }
  if (fixed) return LB_OK;
  LB_TRY(make_sums(g, p->b, 1, NULL, &sums));
  LB_TRY(lb_rewrite_cast(s->rw, s->at, zero, LB_I32, &zero));
  LB_TRY(line_up(s, space_of(p->b), zero, &sums));
  return lb_insert_make(s, LB_OP_Sub, *out, sums, out);
}

// Zeros that come with the request are of unsigned bytes.
bool lb_int8_gemm_is(const lb_int8_gemm *p) {
  const lb_vinfo *a = &p->a->info;
  const char *pads =
      p->conv ? lb_attr_str(p->conv, "auto_pad", "NOTSET") : "NOTSET";
  return lb_is_byte(a->dtype) && !lb_value_const(p->a) &&
         (p->conv ? a->rank == p->b->w->rank : a->rank >= 2) &&
         ((p->b->fits && !p->b->more) || !p->conv ||
          lb_attr_int(p->conv, "group", 1) == 1) &&
         (!*pads || strcmp(pads, "NOTSET") == 0) &&
         (!p->zero || lb_value_const(p->zero) || a->dtype == LB_U8) &&
         (!p->zero || lb_is_single(p->zero));
}

static lb_status visit_integers(lb_rewrite *rw, lb_node *n) {
  lb_insert_point s = {rw, n};
  lb_int8_weights b;
  bool conv = n->op == LB_OP_ConvInteger;
  lb_int8_gemm p = {conv ? n : NULL, n->in[A], lb_node_input(n, A_ZERO), &b,
                    NULL};
  lb_value *y;
  if (lb_op_is_int8_gemm(n) ||
      !lb_int8_weights_find(n->in[B], lb_node_input(n, B_ZERO),
                            conv ? LB_WEIGHTS_OIHW : LB_WEIGHTS_KN, &b) ||
      !lb_int8_gemm_is(&p))
    return LB_OK;
  LB_TRY(lb_insert_int8_gemm(&s, &p, &y));
  return lb_rewrite_become(rw, n, LB_OP_Identity, &y, 1);
}

// -- products of what was bytes ----------------------------------------------

typedef struct side {  // of a product of floats: a DequantizeLinear
  lb_value *bytes, *zero;
  const lb_tensor *scale;
  int64_t axis;
} side;

static bool match_side(const lb_value *v, side *out) {
  const lb_node *n = lb_match_op(v, LB_OP_DequantizeLinear);
  if (!n || lb_attr_int(n, "block_size", 0) || v->info.dtype != LB_F32)
    return false;
  *out = (side){n->in[LB_Q_X], lb_node_input(n, LB_Q_ZERO_POINT),
                lb_value_const(n->in[LB_Q_SCALE]), lb_attr_int(n, "axis", 1)};
  if (out->axis < 0) out->axis += v->info.rank;
  return out->scale && out->scale->dtype == LB_F32 && out->scale->rank <= 1 &&
         lb_tensor_is_dense(out->scale);
}

// Weights have one scale, or one a column.
static bool has_scales(const side *w, const lb_int8_weights *b) {
  int64_t n = lb_tensor_count(w->scale);
  return n == 1 || (n == b->cols && w->axis == (b->how == LB_WEIGHTS_KN));
}

static lb_status make_scales(lb_graph *g, const side *a, const side *w,
                             int space, lb_value **out) {
  int64_t n = lb_tensor_count(w->scale);
  LB_TRY(lb_const_numbers(g, LB_F32, n, space, out));
  float *to = lb_value_const(*out)->data;
  for (int64_t i = 0; i < n; i++)
    to[i] =
        (float)lb_match_elem(a->scale, 0) * (float)lb_match_elem(w->scale, i);
  return LB_OK;
}

static bool is_plain(const lb_node *n) {
  return n->op == LB_OP_MatMul || n->op == LB_OP_Conv ||
         (n->op == LB_OP_Gemm && lb_attr_int(n, "transA", 0) == 0 &&
          lb_attr_float(n, "alpha", 1) == 1 &&
          (!lb_node_input(n, 2) || lb_attr_float(n, "beta", 1) == 1));
}

static lb_weight_order how_of(const lb_node *n) {
  if (n->op == LB_OP_Conv) return LB_WEIGHTS_OIHW;
  return lb_attr_int(n, "transB", 0) ? LB_WEIGHTS_NK : LB_WEIGHTS_KN;
}

// The bias of a convolution is one for each channel, before `space` axes.
static lb_status stand_up(const lb_insert_point *s, int space,
                          lb_value **bias) {
  int64_t dims[LB_MAX_RANK] = {-1, 1, 1};
  lb_value *in[2] = {*bias};
  if (space == 0) return LB_OK;
  LB_TRY(
      lb_const_ints(s->rw->graph, "dims", dims, 1 + (uint32_t)space, &in[1]));
  return lb_rewrite_make(s->rw, s->at, LB_OP_Reshape, in, 2, bias);
}

static lb_status visit_floats(lb_rewrite *rw, lb_node *n) {
  lb_insert_point s = {rw, n};
  side a, w;
  lb_int8_weights b;
  float zero;
  lb_value *in[2], *y, *c = lb_node_input(n, 2);
  if (!is_plain(n) || !match_side(n->in[A], &a) || !match_side(n->in[B], &w) ||
      lb_tensor_count(a.scale) != 1 ||
      (a.zero && !lb_zero_point_at(a.zero, &zero)) ||
      !lb_int8_weights_find(w.bytes, w.zero, how_of(n), &b) ||
      b.rows > MAX_ROWS || !has_scales(&w, &b))
    return LB_OK;
  lb_int8_gemm p = {b.how == LB_WEIGHTS_OIHW ? n : NULL, a.bytes, a.zero, &b,
                    NULL};
  if (!lb_int8_gemm_is(&p)) return LB_OK;
  LB_TRY(lb_insert_int8_gemm(&s, &p, &y));
  LB_TRY(lb_rewrite_cast(rw, n, y, LB_F32, &in[0]));
  LB_TRY(make_scales(rw->graph, &a, &w, space_of(&b), &in[1]));
  if (!c) return lb_rewrite_become(rw, n, LB_OP_Mul, in, 2);
  LB_TRY(lb_insert_make(&s, LB_OP_Mul, in[0], in[1], &in[0]));
  LB_TRY(stand_up(&s, space_of(&b), &c));
  in[1] = c;
  return lb_rewrite_become(rw, n, LB_OP_Add, in, 2);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  if (n->n_out != 1 || !n->out[0]) return LB_OK;
  if (n->op == LB_OP_MatMulInteger || n->op == LB_OP_ConvInteger)
    return visit_integers(rw, n);
  return visit_floats(rw, n);
}

lb_status lb_pass_int8(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
