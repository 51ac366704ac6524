// partition/map.c -- elementwise operators: one small function each, found by a
// table. They have the semantics of device/reference, NaN and -0.0 included; a
// linear function a * x + b is rounded once.
#include <float.h>
#include <math.h>
#include <string.h>

#include "partition/interpolate.h"

#define op1 lb_specgen_op1
#define op2 lb_specgen_op2
#define test lb_specgen_test
#define choose lb_specgen_choose

// In the dtype of x.
static uint8_t num(lb_specgen *e, uint8_t x, double v) {
  return lb_specgen_num(e, lb_specgen_dtype(e, x), v);
}

static uint8_t times(lb_specgen *e, uint8_t x, double c) {
  return op2(e, LB_S_MUL, x, num(e, x, c));
}

static uint8_t plus(lb_specgen *e, uint8_t x, double c) {
  return op2(e, LB_S_ADD, x, num(e, x, c));
}

// x * y + z, rounded once.
static uint8_t fma3(lb_specgen *e, uint8_t x, uint8_t y, uint8_t z) {
  return lb_spec_node(&e->b, LB_S_FMA, lb_specgen_dtype(e, x),
                      (uint8_t[]){x, y, z}, 3);
}

static uint8_t less(lb_specgen *e, uint8_t x, double c) {
  return test(e, LB_S_LT, x, num(e, x, c));
}

static uint8_t more(lb_specgen *e, uint8_t x, double c) {
  return test(e, LB_S_LT, num(e, x, c), x);
}

static double attr(const lb_node *n, const char *name, float dflt) {
  return (double)lb_attr_float(n, name, dflt);
}

#define FN(Op) \
  static uint8_t emit_##Op(lb_specgen *e, const lb_node *n, const uint8_t *src)
#define X src[0]
#define Y src[1]

// -- activations -------------------------------------------------------------

FN(Relu) {
  (void)n;
  return choose(e, less(e, X, 0), num(e, X, 0), X);
}

FN(Swish) {
  double alpha = attr(n, "alpha", 1);
  uint8_t x = alpha == 1 ? X : times(e, X, alpha);
  return op2(e, LB_S_MUL, X, op1(e, LB_S_SIGMOID, x));
}

FN(SwiGLU) { return op2(e, LB_S_MUL, emit_Swish(e, n, src), Y); }

// clamp(x, 0, 1); each select is a min or a max, which is one instruction.
static uint8_t unit(lb_specgen *e, uint8_t x) {
  x = choose(e, less(e, x, 0), num(e, x, 0), x);
  return choose(e, more(e, x, 1), num(e, x, 1), x);
}

FN(HardSigmoid) {
  double a = attr(n, "alpha", 0.2f), b = attr(n, "beta", 0.5f);
  return unit(e, fma3(e, X, num(e, X, a), num(e, X, b)));
}

FN(HardSwish) {
  (void)n;
  uint8_t line = fma3(e, X, num(e, X, 1.0 / 6), num(e, X, 0.5));
  return op2(e, LB_S_MUL, X, unit(e, line));
}

FN(LeakyRelu) {
  return choose(e, less(e, X, 0), times(e, X, attr(n, "alpha", 0.01f)), X);
}

FN(PRelu) {
  (void)n;
  return choose(e, less(e, X, 0), op2(e, LB_S_MUL, X, Y), X);
}

FN(ThresholdedRelu) {
  return choose(e, more(e, X, attr(n, "alpha", 1)), X, num(e, X, 0));
}

FN(Elu) {
  uint8_t y = times(e, op1(e, LB_S_EXPM1, X), attr(n, "alpha", 1));
  return choose(e, less(e, X, 0), y, X);
}

FN(Selu) {
  uint8_t y = times(e, op1(e, LB_S_EXPM1, X), attr(n, "alpha", 1.67326319f));
  return times(e, choose(e, more(e, X, 0), X, y),
               attr(n, "gamma", 1.05070102f));
}

FN(Celu) {
  double alpha = attr(n, "alpha", 1);
  uint8_t share = op2(e, LB_S_DIV, X, num(e, X, alpha));
  uint8_t y = times(e, op1(e, LB_S_EXPM1, share), alpha);
  uint8_t zero = num(e, X, 0);
  return op2(e, LB_S_ADD, choose(e, less(e, X, 0), zero, X),
             choose(e, more(e, y, 0), zero, y));
}

static uint8_t softplus(lb_specgen *e, uint8_t x) {
  uint8_t small = op1(e, LB_S_EXP, op1(e, LB_S_NEG, op1(e, LB_S_ABS, x)));
  return op2(e, LB_S_ADD, choose(e, more(e, x, 0), x, num(e, x, 0)),
             op1(e, LB_S_LOG1P, small));
}

FN(Softplus) {
  (void)n;
  return softplus(e, X);
}

FN(Mish) {
  (void)n;
  return op2(e, LB_S_MUL, X, op1(e, LB_S_TANH, softplus(e, X)));
}

FN(Softsign) {
  (void)n;
  return op2(e, LB_S_DIV, X, plus(e, op1(e, LB_S_ABS, X), 1));
}

FN(Shrink) {
  double bias = attr(n, "bias", 0), lambd = attr(n, "lambd", 0.5f);
  uint8_t low = plus(e, X, bias), high = plus(e, X, -bias);
  uint8_t top = choose(e, more(e, X, lambd), high, num(e, X, 0));
  return choose(e, less(e, X, -lambd), low, top);
}

static uint8_t gelu_inner(lb_specgen *e, const lb_node *n, uint8_t x) {
  if (lb_attr_str(n, "approximate", "none")[0] != 't')
    return op1(e, LB_S_ERF, times(e, x, M_SQRT1_2));
  uint8_t cube =
      op2(e, LB_S_MUL, op2(e, LB_S_MUL, times(e, x, 0.044715), x), x);
  uint8_t sum = op2(e, LB_S_ADD, x, cube);
  return op1(e, LB_S_TANH, times(e, sum, M_2_SQRTPI * M_SQRT1_2));
}

// 1 + erf loses precision compared with erfc below about -3: this is the only
// operator with an absolute, not a relative error.
FN(Gelu) {
  uint8_t half = times(e, X, 0.5);
  return op2(e, LB_S_MUL, half, plus(e, gelu_inner(e, n, X), 1));
}

// -- arithmetic --------------------------------------------------------------

static bool is_a(const lb_specgen *e, uint8_t x, lb_sop op) {
  return x < e->b.spec.n_nodes && e->b.spec.nodes[x].op == op;
}

// A scalar added to a float product becomes an FMA.
FN(Add) {
  (void)n;
  for (int i = 0; i < 2; i++) {
    uint8_t x = src[i], y = src[1 - i];
    if (!is_a(e, x, LB_S_MUL) || !is_a(e, y, LB_S_SCALAR) ||
        lb_specgen_kind(lb_specgen_dtype(e, x)) != LB_KIND_F)
      continue;
    const uint8_t *of = e->b.spec.nodes[x].src;
    return fma3(e, of[0], of[1], y);
  }
  return op2(e, LB_S_ADD, X, Y);
}

FN(Reciprocal) {
  (void)n;
  return op2(e, LB_S_DIV, num(e, X, 1), X);
}

FN(Sign) {
  (void)n;
  uint8_t zero = num(e, X, 0);
  uint8_t rest = choose(e, test(e, LB_S_EQ, X, zero), zero, X);
  if (lb_specgen_kind(lb_specgen_dtype(e, X)) != LB_KIND_U)
    rest = choose(e, less(e, X, 0), num(e, X, -1), rest);
  return choose(e, more(e, X, 0), num(e, X, 1), rest);
}

// The remainder r has the sign of x; without fmod it must have that of y.
static uint8_t floor_mod(lb_specgen *e, uint8_t r, uint8_t y) {
  uint8_t zero = num(e, r, 0);
  uint8_t differ = op2(e, LB_S_XOR, less(e, r, 0), less(e, y, 0));
  uint8_t rest = test(e, LB_S_NE, r, zero);
  uint8_t wrong = op2(e, LB_S_AND, rest, differ);
  uint8_t z = choose(e, wrong, op2(e, LB_S_ADD, r, y), r);
  if (lb_specgen_kind(lb_specgen_dtype(e, r)) != LB_KIND_F) return z;
  uint8_t signed_zero = choose(e, less(e, y, 0), num(e, r, -0.0), zero);
  return choose(e, test(e, LB_S_EQ, r, zero), signed_zero, z);
}

FN(Mod) {
  uint8_t r = op2(e, LB_S_REM, X, Y);
  if (lb_attr_int(n, "fmod", 0) != 0) return r;
  return lb_specgen_kind(lb_specgen_dtype(e, X)) == LB_KIND_U
             ? r
             : floor_mod(e, r, Y);
}

#define AS(T)                      \
  {                                \
    T v;                           \
    memcpy(&v, t->data, sizeof v); \
    return (double)v;              \
  }
// The element of a constant of one element.
static double number_of(const lb_tensor *t) {
  uint16_t half;
  switch (t->dtype) {
    case LB_F32: AS(float)
    case LB_F64: AS(double)
    case LB_I8: AS(int8_t)
    case LB_I16: AS(int16_t)
    case LB_I32: AS(int32_t)
    case LB_I64: AS(int64_t)
    case LB_U8: AS(uint8_t)
    case LB_U16: AS(uint16_t)
    case LB_U32: AS(uint32_t)
    case LB_U64: AS(uint64_t)
    default: break;
  }
  memcpy(&half, t->data, sizeof half);
  return (double)(t->dtype == LB_F16 ? lb_f16_to_f32(half)
                                     : lb_bf16_to_f32(half));
}

static bool is_number(double x, double y) { return fabs(x - y) < DBL_MIN; }

// A constant exponent may have any dtype if the base's dtype can represent it.
static bool is_exponent(const lb_node *n) {
  const lb_value *y = n->in[1];
  if (!lb_specgen_is_scalar(y)) return y->info.dtype == n->in[0]->info.dtype;
  if (y->info.dtype == LB_BOOL) return false;
  double v = number_of(lb_value_const(y));
  return n->in[0]->info.dtype == LB_F64 || is_number((double)(float)v, v);
}

// Some powers need no POW.
FN(Pow) {
  if (Y != LB_SPEC_NO_NODE) return op2(e, LB_S_POW, X, Y);
  double y = number_of(lb_value_const(n->in[1]));
  if (is_number(y, 2)) return op2(e, LB_S_MUL, X, X);
  if (is_number(y, 1)) return X;
  if (is_number(y, -1)) return op2(e, LB_S_DIV, num(e, X, 1), X);
  return op2(e, LB_S_POW, X, num(e, X, y));
}

// Combines any number of inputs, one after the other.
static uint8_t fold(lb_specgen *e, const lb_node *n, const uint8_t *src,
                    lb_sop op) {
  uint8_t y = src[0];
  for (uint32_t i = 1; i < n->n_in; i++) y = op2(e, op, y, src[i]);
  return y;
}

FN(Max) { return fold(e, n, src, LB_S_MAX); }
FN(Min) { return fold(e, n, src, LB_S_MIN); }
FN(Sum) { return fold(e, n, src, LB_S_ADD); }
FN(Mean) {
  uint8_t sum = fold(e, n, src, LB_S_ADD);
  return op2(e, LB_S_DIV, sum, num(e, sum, n->n_in));
}

FN(BitShift) {
  bool left = strcmp(lb_attr_str(n, "direction", ""), "LEFT") == 0;
  return op2(e, left ? LB_S_SHL : LB_S_SHR, X, Y);
}

// -- comparison and choice ---------------------------------------------------

FN(Equal) {
  (void)n;
  return test(e, LB_S_EQ, X, Y);
}
FN(Less) {
  (void)n;
  return test(e, LB_S_LT, X, Y);
}
FN(LessOrEqual) {
  (void)n;
  return test(e, LB_S_LE, X, Y);
}
FN(Greater) {
  (void)n;
  return test(e, LB_S_LT, Y, X);
}
FN(GreaterOrEqual) {
  (void)n;
  return test(e, LB_S_LE, Y, X);
}

FN(Where) {
  (void)n;
  return choose(e, X, Y, src[2]);
}

FN(Cast) { return lb_specgen_cast(e, X, n->out[0]->info.dtype); }
FN(Resize) { return lb_interp_emit(e, n, X); }
FN(CastLike) { return emit_Cast(e, n, src); }

FN(IsNaN) {
  (void)n;
  return test(e, LB_S_NE, X, X);
}

FN(IsInf) {
  bool above = lb_attr_int(n, "detect_positive", 1) != 0;
  bool below = lb_attr_int(n, "detect_negative", 1) != 0;
  uint8_t x = above && below ? op1(e, LB_S_ABS, X) : X;
  return test(e, LB_S_EQ, x, num(e, X, above ? INFINITY : -INFINITY));
}

// A missing bound is the largest finite number of the dtype.
static uint8_t bound(lb_specgen *e, const lb_node *n, uint8_t given, uint8_t x,
                     double sign) {
  if (given != LB_SPEC_NO_NODE) return given;
  switch (n->in[0]->info.dtype) {
    case LB_F64: return num(e, x, sign * DBL_MAX);
    case LB_F16: return num(e, x, sign * 65504);
    case LB_BF16: return num(e, x, sign * 0x1.fep127);
    case LB_F32: return num(e, x, sign * FLT_MAX);
    default: return LB_SPEC_NO_NODE;
  }
}

FN(Clip) {
  uint8_t low = bound(e, n, src[1], X, -1), high = bound(e, n, src[2], X, 1);
  uint8_t y = X;
  if (low != LB_SPEC_NO_NODE) y = choose(e, test(e, LB_S_LT, y, low), low, y);
  if (high != LB_SPEC_NO_NODE)
    y = choose(e, test(e, LB_S_LT, high, y), high, y);
  return y;
}

// -- the table ---------------------------------------------------------------

typedef struct map_op {
  lb_specgen_fn *fn;  // NULL: operation `sop` of all inputs
  uint8_t sop;
  uint8_t kinds;  // of inputs: LB_KIND_...
  bool costly;    // several operations, with a transcendental one among them
} map_op;

#define F LB_KIND_F
#define S LB_KIND_S
#define U LB_KIND_U
#define B LB_KIND_B
static const map_op ops[LB_OP_COUNT] = {
#define PLAIN(Op, SOP, kinds) [LB_OP_##Op] = {NULL, LB_S_##SOP, kinds, false}
#define EMIT(Op, kinds) [LB_OP_##Op] = {emit_##Op, 0, kinds, false}
#define COSTLY(Op, kinds) [LB_OP_##Op] = {emit_##Op, 0, kinds, true}
    // clang-format off
    PLAIN(Abs, ABS, F | S | U), PLAIN(Acos, ACOS, F), PLAIN(Acosh, ACOSH, F),
    PLAIN(Asin, ASIN, F), PLAIN(Asinh, ASINH, F), PLAIN(Atan, ATAN, F),
    PLAIN(Atanh, ATANH, F), PLAIN(Ceil, CEIL, F), PLAIN(Cos, COS, F),
    PLAIN(Cosh, COSH, F), PLAIN(Erf, ERF, F), PLAIN(Exp, EXP, F),
    PLAIN(Floor, FLOOR, F), PLAIN(Log, LOG, F), PLAIN(Neg, NEG, F | S),
    PLAIN(Round, ROUND, F), PLAIN(Sigmoid, SIGMOID, F), PLAIN(Sin, SIN, F), PLAIN(Sinh, SINH, F),
    PLAIN(Sqrt, SQRT, F), PLAIN(Tan, TAN, F), PLAIN(Tanh, TANH, F),
    EMIT(Add, F | S | U), PLAIN(Sub, SUB, F | S | U),
    PLAIN(Mul, MUL, F | S | U), PLAIN(Div, DIV, F | S | U),
    PLAIN(BitwiseAnd, AND, S | U), PLAIN(BitwiseOr, OR, S | U),
    PLAIN(BitwiseXor, XOR, S | U), PLAIN(BitwiseNot, NOT, S | U),
    PLAIN(And, AND, B), PLAIN(Or, OR, B), PLAIN(Xor, XOR, B),
    PLAIN(Not, NOT, B),
    EMIT(BitShift, S | U), EMIT(Cast, F | S | U | B),
    EMIT(CastLike, F | S | U | B), COSTLY(Celu, F), EMIT(Clip, F | S | U),
    COSTLY(Elu, F), EMIT(Equal, F | S | U | B), COSTLY(Gelu, F),
    EMIT(Greater, F | S | U), EMIT(GreaterOrEqual, F | S | U),
    EMIT(HardSigmoid, F), EMIT(HardSwish, F), EMIT(IsInf, F), EMIT(IsNaN, F),
    EMIT(LeakyRelu, F), EMIT(Less, F | S | U), EMIT(LessOrEqual, F | S | U),
    EMIT(Max, F | S | U), EMIT(Mean, F), EMIT(Min, F | S | U), COSTLY(Mish, F),
    COSTLY(Mod, F | S | U), EMIT(PRelu, F | S), COSTLY(Pow, F),
    EMIT(Reciprocal, F), EMIT(Relu, F | S), EMIT(Resize, F), COSTLY(Selu, F), EMIT(Shrink, F),
    EMIT(Sign, F | S | U), COSTLY(Softplus, F),
    EMIT(Softsign, F), EMIT(Sum, F), COSTLY(SwiGLU, F), COSTLY(Swish, F),
    EMIT(ThresholdedRelu, F), EMIT(Where, F | S | U | B),
    // clang-format on
};

static bool detects_infinity(const lb_node *n) {
  return lb_attr_int(n, "detect_positive", 1) != 0 ||
         lb_attr_int(n, "detect_negative", 1) != 0;
}

unsigned lb_specgen_kinds(lb_op op) {
  return ops[op].kinds | lb_specgen_row_kinds(op);
}

bool lb_specgen_is_eltwise(const lb_node *n) {
  const map_op *op = &ops[n->op];
  if (!op->kinds || n->n_in > LB_SPECGEN_MAX_IN || n->n_out != 1 ||
      !n->out[0] || !lb_specgen_kind(n->out[0]->info.dtype))
    return false;
  uint32_t first = n->op == LB_OP_Where ? 1 : 0;
  lb_dtype t = n->in[first]->info.dtype;
  if (!(lb_specgen_kind(t) & op->kinds)) return false;
  if (n->op == LB_OP_IsInf && !detects_infinity(n)) return false;
  if (n->op == LB_OP_Pow && !is_exponent(n)) return false;
  if (n->op == LB_OP_Resize && !lb_specgen_is_upsample(n) && !lb_interp_is(n))
    return false;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (lb_specgen_reads(n, i) &&
        n->in[i]->info.dtype != (i < first ? LB_BOOL : t))
      return false;
  return true;
}

uint8_t lb_specgen_eltwise_node(lb_specgen *e, const lb_node *n,
                                const uint8_t *src) {
  const map_op *op = &ops[n->op];
  if (op->fn) return op->fn(e, n, src);
  return n->n_in == 1 ? op1(e, (lb_sop)op->sop, src[0])
                      : op2(e, (lb_sop)op->sop, src[0], src[1]);
}

bool lb_specgen_is_cheap(const lb_node *n) {
  const map_op *op = &ops[n->op];
  return !op->costly && (op->sop < LB_S_EXP || op->sop > LB_S_POW);
}
