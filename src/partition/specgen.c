// partition/specgen.c -- generates the nodes of a spec from the nodes of a
// partition.
#include "partition/specgen.h"

#include <string.h>

unsigned lb_specgen_kind(lb_dtype t) {
  if (lb_dtype_is_float(t)) return LB_KIND_F;
  if (lb_dtype_is_signed(t)) return LB_KIND_S;
  if (lb_dtype_is_integer(t)) return LB_KIND_U;
  return t == LB_BOOL ? LB_KIND_B : 0;
}

lb_dtype lb_specgen_compute_dtype(lb_dtype t) {
  return t == LB_F16 || t == LB_BF16 ? LB_F32 : t;
}

lb_dtype lb_specgen_dtype(const lb_specgen *e, uint8_t node) {
  return node < e->b.spec.n_nodes ? e->b.spec.nodes[node].dtype : LB_NONE;
}

bool lb_specgen_is_scalar(const lb_value *v) {
  const lb_tensor *t = lb_value_const(v);
  return t && lb_tensor_count(t) == 1;
}

// -- scalars and operations ---------------------------------------------------

uint8_t lb_specgen_bits(lb_specgen *e, lb_dtype t, uint64_t bits) {
  for (uint8_t i = 0; i < e->b.spec.n_nodes; i++) {
    const lb_snode *n = &e->b.spec.nodes[i];
    if (n->op == LB_S_SCALAR && n->dtype == t && e->scalars[n->arg] == bits &&
        !(e->size_scalars >> n->arg & 1))
      return i;
  }
  uint8_t number = e->b.spec.n_scalars;
  uint8_t node = lb_spec_scalar(&e->b, t);
  if (node != LB_SPEC_NO_NODE) e->scalars[number] = bits;
  return node;
}

uint64_t lb_specgen_number(lb_dtype t, double v) {
  float f = (float)v;
  uint32_t narrow;
  uint64_t bits;
  switch (t) {
    case LB_F32: memcpy(&narrow, &f, sizeof narrow); return narrow;
    case LB_F64: memcpy(&bits, &v, sizeof bits); return bits;
    default: return (uint64_t)(int64_t)v;
  }
}

uint8_t lb_specgen_num(lb_specgen *e, lb_dtype t, double v) {
  return lb_specgen_bits(e, t, lb_specgen_number(t, v));
}

uint8_t lb_specgen_size_scalar(lb_specgen *e, lb_dtype t, double v) {
  uint8_t number = e->b.spec.n_scalars;
  uint8_t node = lb_spec_scalar(&e->b, t);
  if (node == LB_SPEC_NO_NODE) return node;
  e->scalars[number] = lb_specgen_number(t, v);
  e->size_scalars |= 1u << number;
  return node;
}

uint8_t lb_specgen_const(lb_specgen *e, const lb_value *v) {
  const lb_tensor *t = lb_value_const(v);
  uint16_t half;
  uint64_t bits = 0;
  memcpy(&half, t->data, lb_dtype_size(t->dtype) < 2 ? 1 : 2);
  if (t->dtype == LB_F16)
    return lb_specgen_num(e, LB_F32, (double)lb_f16_to_f32(half));
  if (t->dtype == LB_BF16)
    return lb_specgen_num(e, LB_F32, (double)lb_bf16_to_f32(half));
  memcpy(&bits, t->data, lb_dtype_size(t->dtype));
  return lb_specgen_bits(e, t->dtype, bits);
}

// All readers of x in this dtype share one cast.
uint8_t lb_specgen_cast(lb_specgen *e, uint8_t x, lb_dtype t) {
  if (lb_specgen_dtype(e, x) == t) return x;
  for (uint8_t i = 0; i < e->b.spec.n_nodes; i++) {
    const lb_snode *n = &e->b.spec.nodes[i];
    if (n->op == LB_S_CAST && n->src[0] == x && n->dtype == t) return i;
  }
  return lb_spec_node(&e->b, LB_S_CAST, t, &x, 1);
}

uint8_t lb_specgen_op1(lb_specgen *e, lb_sop op, uint8_t x) {
  return lb_spec_node(&e->b, op, lb_specgen_dtype(e, x), &x, 1);
}

uint8_t lb_specgen_op2(lb_specgen *e, lb_sop op, uint8_t x, uint8_t y) {
  return lb_spec_node(&e->b, op, lb_specgen_dtype(e, x), (uint8_t[]){x, y}, 2);
}

uint8_t lb_specgen_test(lb_specgen *e, lb_sop op, uint8_t x, uint8_t y) {
  return lb_spec_node(&e->b, op, LB_BOOL, (uint8_t[]){x, y}, 2);
}

uint8_t lb_specgen_choose(lb_specgen *e, uint8_t cond, uint8_t x, uint8_t y) {
  return lb_spec_node(&e->b, LB_S_SELECT, lb_specgen_dtype(e, x),
                      (uint8_t[]){cond, x, y}, 3);
}

// -- matmul -------------------------------------------------------------------

static bool is_sum_dtype(lb_dtype t) {
  return lb_specgen_kind(t) == LB_KIND_F || t == LB_I32 || t == LB_I64;
}

bool lb_specgen_is_matmul(const lb_node *n) {
  if (n->op == LB_OP_MatMulInteger) return lb_op_is_int8_gemm(n);
  if (n->op != LB_OP_MatMul && n->op != LB_OP_Gemm) return false;
  const lb_vinfo *a = &n->in[0]->info, *b = &n->in[1]->info;
  bool plain = lb_attr_float(n, "alpha", 1) == 1 &&  // exactly
               lb_attr_float(n, "beta", 1) == 1;
  if (!is_sum_dtype(a->dtype) || a->dtype != b->dtype ||
      n->out[0]->info.dtype != a->dtype || a->rank < 2 || b->rank < 2)
    return false;
  if (n->op == LB_OP_MatMul) return true;
  if (lb_specgen_reads(n, 2) && n->in[2]->info.dtype != a->dtype) return false;
  return plain || lb_specgen_kind(a->dtype) == LB_KIND_F;
}

// src[0] is the accumulator, src[2] the addend.
uint8_t lb_specgen_gemm_node(lb_specgen *e, const lb_node *n,
                             const uint8_t *src) {
  lb_dtype t = lb_specgen_dtype(e, src[0]);
  double alpha = (double)lb_attr_float(n, "alpha", 1);
  double beta = (double)lb_attr_float(n, "beta", 1);
  uint8_t y = src[0], c = src[2];
  bool plain_alpha = alpha == 1, plain_beta = beta == 1;
  if (c == LB_SPEC_NO_NODE && plain_alpha) return y;
  if (c == LB_SPEC_NO_NODE)
    c = lb_specgen_num(e, t, beta * 0);  // adding it may change the sign of a
                                         // zero
  else if (!plain_beta)
    c = lb_specgen_op2(e, LB_S_MUL, c, lb_specgen_num(e, t, beta));
  if (!plain_alpha)
    y = lb_specgen_op2(e, LB_S_MUL, y, lb_specgen_num(e, t, alpha));
  return lb_specgen_op2(e, LB_S_ADD, y, c);
}

// -- nodes -------------------------------------------------------------------

bool lb_specgen_reads(const lb_node *n, uint32_t i) {
  if (i >= n->n_in || !n->in[i]) return false;
  switch (n->op) {
    case LB_OP_CastLike: return i == 0;
    case LB_OP_Pow: return i == 0 || !lb_specgen_is_scalar(n->in[1]);
    default: break;
  }
  return i == 0 || !(lb_op_infos[n->op].deciding >> i & 1);
}

typedef struct generator {
  lb_specgen *e;
  const lb_specgen_output *m;
  uint8_t outputs[LB_SPECGEN_MAX_NODES];  // spec nodes of the outputs so far
} generator;

// The value in its storage dtype: output of an earlier node, a constant, or
// from outside.
static uint8_t source_of(generator *s, uint32_t reader, const lb_value *v) {
  for (uint32_t i = reader; i-- > 0;)
    if (s->m->nodes[i]->out[0] == v) return s->outputs[i];
  if (lb_specgen_is_scalar(v)) return lb_specgen_const(s->e, v);
  return s->m->source(s->m->user, s->e, reader, v);
}

static bool keeps_storage(const lb_node *n) {
  return n->op == LB_OP_Cast || n->op == LB_OP_CastLike;
}

static void read_inputs(generator *s, uint32_t i, uint32_t first,
                        uint8_t *src) {
  const lb_node *n = s->m->nodes[i];
  for (uint32_t k = 0; k < LB_SPECGEN_MAX_IN; k++) src[k] = LB_SPEC_NO_NODE;
  for (uint32_t k = first; k < n->n_in && k < LB_SPECGEN_MAX_IN; k++) {
    if (!lb_specgen_reads(n, k)) continue;
    src[k] = source_of(s, i, n->in[k]);
    if (!keeps_storage(n))
      src[k] = lb_specgen_cast(
          s->e, src[k],
          lb_specgen_compute_dtype(lb_specgen_dtype(s->e, src[k])));
  }
}

static uint8_t emit_acc(generator *s, uint32_t i) {
  const lb_node *n = s->m->nodes[i];
  uint8_t src[LB_SPECGEN_MAX_IN];
  lb_dtype t = lb_specgen_compute_dtype(n->out[0]->info.dtype);
  if (s->m->count) return lb_specgen_window_node(s->e, n, s->m->count);
  uint8_t sum = lb_spec_acc(&s->e->b, s->m->acc, t);
  if (n->op == LB_OP_AveragePool)
    return lb_specgen_op2(s->e, LB_S_DIV, sum,
                          lb_specgen_size_scalar(s->e, t, s->m->average));
  read_inputs(s, i, 2, src);
  src[0] = sum;
  if (n->op == LB_OP_Gemm) return lb_specgen_gemm_node(s->e, n, src);
  bool conv = n->op == LB_OP_Conv || n->op == LB_OP_ConvTranspose;
  bool biased = conv && src[2] != LB_SPEC_NO_NODE;
  return biased ? lb_specgen_op2(s->e, LB_S_ADD, sum, src[2]) : sum;
}

static uint8_t emit_one(generator *s, uint32_t i) {
  const lb_node *n = s->m->nodes[i];
  uint8_t src[LB_SPECGEN_MAX_IN];
  uint32_t axes;
  if (s->m->has_acc && i == s->m->anchor) return emit_acc(s, i);
  read_inputs(s, i, 0, src);
  return lb_specgen_is_row_op(n, &axes) ? lb_specgen_row_node(s->e, n, src)
                                        : lb_specgen_eltwise_node(s->e, n, src);
}

uint8_t lb_specgen_nodes(lb_specgen *e, const lb_specgen_output *m) {
  generator s = {.e = e, .m = m};
  uint8_t last = LB_SPEC_NO_NODE;
  for (uint32_t i = 0; i < m->n_nodes; i++) {
    last = emit_one(&s, i);
    if (last == LB_SPEC_NO_NODE) return last;
    last = s.outputs[i] =
        lb_specgen_cast(e, last, m->nodes[i]->out[0]->info.dtype);
  }
  return last;
}
