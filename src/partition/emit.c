// partition/emit.c -- one small function per operator, found by a table.
#include "partition/emit.h"

#include <math.h>
#include <string.h>

typedef uint8_t emit_fn(lb_emitter *e, const lb_node *n, const uint8_t *src);

uint8_t lb_emit_scalar(lb_emitter *e, float v) {
  for (uint8_t i = 0; i < e->b.spec.n_nodes; i++) {
    const lb_snode *n = &e->b.spec.nodes[i];
    if (n->op == LB_S_SCALAR && !memcmp(&e->scalars[n->arg], &v, sizeof v))
      return i;
  }
  uint8_t number = e->b.spec.n_scalars;
  uint8_t node = lb_spec_scalar(&e->b, LB_F32);
  if (node != LB_SPEC_NO_NODE) e->scalars[number] = v;
  return node;
}

static uint8_t op1(lb_emitter *e, lb_sop op, uint8_t x) {
  return lb_spec_node(&e->b, op, LB_F32, &x, 1);
}

static uint8_t op2(lb_emitter *e, lb_sop op, uint8_t x, uint8_t y) {
  return lb_spec_node(&e->b, op, LB_F32, (uint8_t[]){x, y}, 2);
}

static uint8_t less(lb_emitter *e, uint8_t x, uint8_t y) {
  return lb_spec_node(&e->b, LB_S_LT, LB_BOOL, (uint8_t[]){x, y}, 2);
}

static uint8_t choose(lb_emitter *e, uint8_t cond, uint8_t x, uint8_t y) {
  return lb_spec_node(&e->b, LB_S_SELECT, LB_F32, (uint8_t[]){cond, x, y}, 3);
}

static uint8_t times(lb_emitter *e, uint8_t x, float c) {
  return op2(e, LB_S_MUL, x, lb_emit_scalar(e, c));
}

static uint8_t plus(lb_emitter *e, uint8_t x, float c) {
  return op2(e, LB_S_ADD, x, lb_emit_scalar(e, c));
}

// -- elementwise
// -----------------------------------------------------------------

#define SAME1(Op, SOP)                                      \
  static uint8_t emit_##Op(lb_emitter *e, const lb_node *n, \
                           const uint8_t *src) {            \
    (void)n;                                                \
    return op1(e, LB_S_##SOP, src[0]);                      \
  }
#define SAME2(Op, SOP)                                      \
  static uint8_t emit_##Op(lb_emitter *e, const lb_node *n, \
                           const uint8_t *src) {            \
    (void)n;                                                \
    return op2(e, LB_S_##SOP, src[0], src[1]);              \
  }
SAME1(Abs, ABS)
SAME1(Neg, NEG)
SAME1(Exp, EXP)
SAME1(Log, LOG)
SAME1(Sqrt, SQRT)
SAME1(Tanh, TANH)
SAME1(Erf, ERF)
SAME1(Sin, SIN)
SAME1(Cos, COS)
SAME1(Floor, FLOOR)
SAME1(Ceil, CEIL)
SAME1(Round, ROUND)
SAME2(Add, ADD)
SAME2(Sub, SUB)
SAME2(Mul, MUL)
SAME2(Div, DIV)

static uint8_t emit_Relu(lb_emitter *e, const lb_node *n, const uint8_t *src) {
  (void)n;
  return op2(e, LB_S_MAX, src[0], lb_emit_scalar(e, 0));
}

static uint8_t sigmoid(lb_emitter *e, uint8_t x) {
  uint8_t denominator = plus(e, op1(e, LB_S_EXP, op1(e, LB_S_NEG, x)), 1);
  return op2(e, LB_S_DIV, lb_emit_scalar(e, 1), denominator);
}

static uint8_t emit_Sigmoid(lb_emitter *e, const lb_node *n,
                            const uint8_t *src) {
  (void)n;
  return sigmoid(e, src[0]);
}

static uint8_t emit_Swish(lb_emitter *e, const lb_node *n, const uint8_t *src) {
  float alpha = lb_attr_float(n, "alpha", 1);
  uint8_t x = alpha == 1 ? src[0] : times(e, src[0], alpha);
  return op2(e, LB_S_MUL, src[0], sigmoid(e, x));
}

static uint8_t emit_Reciprocal(lb_emitter *e, const lb_node *n,
                               const uint8_t *src) {
  (void)n;
  return op2(e, LB_S_DIV, lb_emit_scalar(e, 1), src[0]);
}

static uint8_t clamp01(lb_emitter *e, uint8_t x) {
  x = op2(e, LB_S_MAX, x, lb_emit_scalar(e, 0));
  return op2(e, LB_S_MIN, x, lb_emit_scalar(e, 1));
}

static uint8_t emit_HardSigmoid(lb_emitter *e, const lb_node *n,
                                const uint8_t *src) {
  float alpha = lb_attr_float(n, "alpha", 0.2f);
  float beta = lb_attr_float(n, "beta", 0.5f);
  return clamp01(e, plus(e, times(e, src[0], alpha), beta));
}

static uint8_t emit_HardSwish(lb_emitter *e, const lb_node *n,
                              const uint8_t *src) {
  (void)n;
  uint8_t gate = clamp01(e, plus(e, times(e, src[0], 1.f / 6), 0.5f));
  return op2(e, LB_S_MUL, src[0], gate);
}

static uint8_t emit_LeakyRelu(lb_emitter *e, const lb_node *n,
                              const uint8_t *src) {
  uint8_t scaled = times(e, src[0], lb_attr_float(n, "alpha", 0.01f));
  return choose(e, less(e, src[0], lb_emit_scalar(e, 0)), scaled, src[0]);
}

static uint8_t gelu_inner(lb_emitter *e, const lb_node *n, uint8_t x) {
  if (strcmp(lb_attr_str(n, "approximate", "none"), "tanh") != 0)
    return op1(e, LB_S_ERF, times(e, x, (float)M_SQRT1_2));
  uint8_t cube = op2(e, LB_S_MUL, op2(e, LB_S_MUL, x, x), x);
  uint8_t sum = op2(e, LB_S_ADD, x, times(e, cube, 0.044715f));
  return op1(e, LB_S_TANH, times(e, sum, (float)(M_2_SQRTPI * M_SQRT1_2)));
}

static uint8_t emit_Gelu(lb_emitter *e, const lb_node *n, const uint8_t *src) {
  uint8_t half = times(e, src[0], 0.5f);
  return op2(e, LB_S_MUL, half, plus(e, gelu_inner(e, n, src[0]), 1));
}

// -- along the last axis
// ------------------------------------------------------------

static uint8_t mean_of(lb_emitter *e, uint8_t x) {
  uint8_t cols = lb_spec_node(&e->b, LB_S_COLS, LB_F32, NULL, 0);
  return op2(e, LB_S_DIV, op1(e, LB_S_RSUM, x), cols);
}

static uint8_t emit_Softmax(lb_emitter *e, const lb_node *n,
                            const uint8_t *src) {
  (void)n;
  uint8_t centred = op2(e, LB_S_SUB, src[0], op1(e, LB_S_RMAX, src[0]));
  uint8_t powers = op1(e, LB_S_EXP, centred);
  return op2(e, LB_S_DIV, powers, op1(e, LB_S_RSUM, powers));
}

static uint8_t emit_LayerNormalization(lb_emitter *e, const lb_node *n,
                                       const uint8_t *src) {
  uint8_t d = op2(e, LB_S_SUB, src[0], mean_of(e, src[0]));
  uint8_t variance = mean_of(e, op2(e, LB_S_MUL, d, d));
  uint8_t deviation =
      op1(e, LB_S_SQRT, plus(e, variance, lb_attr_float(n, "epsilon", 1e-5f)));
  uint8_t y = op2(e, LB_S_MUL, op2(e, LB_S_DIV, d, deviation), src[1]);
  bool bias = n->n_in > 2 && src[2] != LB_SPEC_NO_NODE;
  return bias ? op2(e, LB_S_ADD, y, src[2]) : y;
}

// -- the table
// ------------------------------------------------------------------------

static emit_fn *const map_fns[LB_OP_COUNT] = {
#define MAP(Op) [LB_OP_##Op] = emit_##Op
    MAP(Abs),         MAP(Neg),       MAP(Exp),       MAP(Log),
    MAP(Sqrt),        MAP(Tanh),      MAP(Erf),       MAP(Sin),
    MAP(Cos),         MAP(Floor),     MAP(Ceil),      MAP(Round),
    MAP(Add),         MAP(Sub),       MAP(Mul),       MAP(Div),
    MAP(Relu),        MAP(Sigmoid),   MAP(Swish),     MAP(Reciprocal),
    MAP(HardSigmoid), MAP(HardSwish), MAP(LeakyRelu), MAP(Gelu),
#undef MAP
};

static bool is_f32(const lb_value *v) { return v && v->info.dtype == LB_F32; }

static bool all_f32(const lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && !is_f32(n->in[i])) return false;
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  return is_f32(n->out[0]);
}

bool lb_emit_is_map(const lb_node *n) { return map_fns[n->op] && all_f32(n); }

// The axis attribute names the last axis of input 0, whose rank is known.
static bool is_last_axis(const lb_node *n) {
  int rank = n->in[0]->info.rank;
  int64_t axis = lb_attr_int(n, "axis", -1);
  return rank > 0 && (axis == -1 || axis == rank - 1);
}

bool lb_emit_is_rows(const lb_node *n) {
  if (n->op == LB_OP_Softmax)
    return all_f32(n) && is_last_axis(n) && !lb_attr_int(n, "flatten", 0);
  if (n->op == LB_OP_LayerNormalization)
    return all_f32(n) && is_last_axis(n) && n->in[1]->info.rank == 1 &&
           (n->n_in < 3 || !n->in[2] || n->in[2]->info.rank == 1);
  return false;
}

uint8_t lb_emit_node(lb_emitter *e, const lb_node *n, const uint8_t *src) {
  switch (n->op) {
    case LB_OP_Softmax: return emit_Softmax(e, n, src);
    case LB_OP_LayerNormalization: return emit_LayerNormalization(e, n, src);
    default: return map_fns[n->op](e, n, src);
  }
}
