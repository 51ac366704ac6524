// lower/reference_test.h -- For tests: evaluates specs element by element as
// spec.h defines them, independently of kernels.
#ifndef LB_LOWER_REFERENCE_TEST_H
#define LB_LOWER_REFERENCE_TEST_H

#include <math.h>
#include <string.h>

#include "kir/num.h"
#include "spec/exp.h"
#include "spec/spec.h"

typedef struct num {  // one element
  lb_dtype t;
  double f;    // floats; exact
  uint64_t u;  // others, sign-extended
} num;

static inline num num_float(lb_dtype t, double f) {
  return (num){t, t == LB_F32 ? (double)(float)f : f, 0};
}

// The low bits of u, as an integer or bool of dtype t.
static inline num num_int(lb_dtype t, uint64_t u) {
  unsigned unused = 64 - 8 * (unsigned)lb_dtype_size(t);
  if (lb_dtype_is_signed(t))
    u = (uint64_t)((int64_t)(u << unused) >> unused);
  else
    u = u << unused >> unused;
  return (num){t, 0, t == LB_BOOL ? u != 0 : u};
}

static inline num num_read(lb_dtype t, const void *from) {
  uint64_t bits = 0;
  memcpy(&bits, from, lb_dtype_size(t));
  if (lb_dtype_is_float(t)) return (num){t, lb_knum_float(t, bits), 0};
  return num_int(t, bits);
}

static inline void num_write(num x, void *to) {
  uint64_t bits = lb_dtype_is_float(x.t) ? lb_knum_bits(x.t, x.f) : x.u;
  memcpy(to, &bits, lb_dtype_size(x.t));
}

static inline bool num_same(num a, num b) {
  if (!lb_dtype_is_float(a.t)) return a.u == b.u;
  if (isnan(a.f) || isnan(b.f)) return isnan(a.f) && isnan(b.f);
  return a.f == b.f && signbit(a.f) == signbit(b.f);
}

// -- operations --------------------------------------------------------------

static inline uint64_t cast_to_int(lb_dtype t, double x) {
  if (t == LB_U64) return lb_knum_u64(x);
  if (t == LB_I64 || t == LB_U32) return (uint64_t)lb_knum_i64(x);
  return (uint64_t)(int64_t)lb_knum_i32(x);
}

static inline double int_to_float(lb_dtype t, num x) {
  int64_t i = (int64_t)x.u;
  bool is_signed = lb_dtype_is_signed(x.t);
  if (t == LB_F32) return is_signed ? (float)i : (float)x.u;
  if (t == LB_BF16) {
    uint16_t h = is_signed ? lb_knum_bf16_i(i) : lb_knum_bf16_u(x.u);
    return lb_bf16_to_f32(h);
  }
  return is_signed ? (double)i : (double)x.u;
}

static inline num cast_num(lb_dtype t, num x) {
  bool from_float = lb_dtype_is_float(x.t);
  if (t == LB_BOOL) return num_int(t, from_float ? x.f != 0 : x.u != 0);
  if (!lb_dtype_is_float(t))
    return num_int(t, from_float ? cast_to_int(t, x.f) : x.u);
  double f = from_float ? x.f : int_to_float(t, x);
  return (num){t, lb_knum_float(t, lb_knum_bits(t, f)), 0};
}

static inline double math_op(lb_sop op, double x) {
  switch (op) {
    case LB_S_NEG: return -x;
    case LB_S_ABS: return fabs(x);
    case LB_S_SQRT: return sqrt(x);
    case LB_S_RSQRT: return 1 / sqrt(x);
    case LB_S_FLOOR: return floor(x);
    case LB_S_CEIL: return ceil(x);
    case LB_S_ROUND: return rint(x);
    case LB_S_TRUNC: return trunc(x);
    case LB_S_EXP: return exp(x);
    case LB_S_LOG: return log(x);
    case LB_S_LOG1P: return log1p(x);
    case LB_S_EXPM1: return expm1(x);
    case LB_S_ERF: return erf(x);
    case LB_S_TANH: return tanh(x);
    case LB_S_SIGMOID: return 1 / (1 + exp(-x));
    case LB_S_SIN: return sin(x);
    case LB_S_COS: return cos(x);
    case LB_S_TAN: return tan(x);
    case LB_S_ASIN: return asin(x);
    case LB_S_ACOS: return acos(x);
    case LB_S_ATAN: return atan(x);
    case LB_S_SINH: return sinh(x);
    case LB_S_COSH: return cosh(x);
    case LB_S_ASINH: return asinh(x);
    case LB_S_ACOSH: return acosh(x);
    default: return atanh(x);
  }
}

// float32 is computed in double and rounded once more, which is exact.
static inline double float_op(lb_sop op, lb_dtype t, const num *s) {
  double x = s[0].f, y = s[1].f;
  switch (op) {
    case LB_S_ADD: return x + y;
    case LB_S_SUB: return x - y;
    case LB_S_MUL: return x * y;
    case LB_S_DIV: return x / y;
    case LB_S_REM: return fmod(x, y);
    case LB_S_MIN: return x < y || isnan(x) ? x : y;
    case LB_S_MAX: return x > y || isnan(x) ? x : y;
    case LB_S_POW: return pow(x, y);
    case LB_S_FMA:
      if (t == LB_F64) return fma(x, y, s[2].f);
      return (double)fmaf((float)x, (float)y, (float)s[2].f);
    default: return math_op(op, x);
  }
}

static inline bool int_less(num x, num y) {
  return lb_dtype_is_signed(x.t) ? (int64_t)x.u < (int64_t)y.u : x.u < y.u;
}

static inline uint64_t int_divide(num x, num y, bool remainder) {
  int64_t a = (int64_t)x.u, b = (int64_t)y.u;
  if (y.u == 0) return 0;
  if (!lb_dtype_is_signed(x.t)) return remainder ? x.u % y.u : x.u / y.u;
  if (b == -1) return remainder ? 0 : 0 - x.u;
  return (uint64_t)(remainder ? a % b : a / b);
}

static inline uint64_t int_shift(num x, num y, bool left) {
  bool is_signed = lb_dtype_is_signed(x.t);
  int64_t a = (int64_t)x.u;
  if (y.u >= 8 * lb_dtype_size(x.t))
    return !left && is_signed && a < 0 ? UINT64_MAX : 0;
  if (left) return x.u << y.u;
  return is_signed ? (uint64_t)(a >> y.u) : x.u >> y.u;
}

static inline uint64_t int_op(lb_sop op, const num *s) {
  uint64_t x = s[0].u, y = s[1].u;
  switch (op) {
    case LB_S_ADD: return x + y;
    case LB_S_SUB: return x - y;
    case LB_S_MUL: return x * y;
    case LB_S_DIV: return int_divide(s[0], s[1], false);
    case LB_S_REM: return int_divide(s[0], s[1], true);
    case LB_S_MIN: return int_less(s[0], s[1]) ? x : y;
    case LB_S_MAX: return int_less(s[1], s[0]) ? x : y;
    case LB_S_NEG: return 0 - x;
    case LB_S_ABS: return int_less(s[0], (num){.t = s[0].t}) ? 0 - x : x;
    case LB_S_AND: return x & y;
    case LB_S_OR: return x | y;
    case LB_S_XOR: return x ^ y;
    case LB_S_NOT: return s[0].t == LB_BOOL ? !x : ~x;
    case LB_S_SHL: return int_shift(s[0], s[1], true);
    default: return int_shift(s[0], s[1], false);
  }
}

static inline bool compare_op(lb_sop op, const num *s) {
  bool is_float = lb_dtype_is_float(s[0].t);
  bool equal = is_float ? s[0].f == s[1].f : s[0].u == s[1].u;
  bool less = is_float ? s[0].f < s[1].f : int_less(s[0], s[1]);
  switch (op) {
    case LB_S_EQ: return equal;
    case LB_S_NE: return !equal;
    case LB_S_LT: return less;
    default: return less || equal;
  }
}

static inline num apply(lb_sop op, lb_dtype t, const num *s) {
  switch (lb_sop_infos[op].rule) {
    case LB_SR_COMPARE: return num_int(LB_BOOL, compare_op(op, s));
    case LB_SR_SELECT: return s[0].u ? s[1] : s[2];
    case LB_SR_CAST: return cast_num(t, s[0]);
    default: break;
  }
  if (lb_dtype_is_float(t)) return num_float(t, float_op(op, t, s));
  return num_int(t, int_op(op, s));
}

// -- specs -------------------------------------------------------------------

typedef struct operand {
  char *data;        // owned by the test
  size_t bytes;      //
  int64_t row, col;  // strides in elements
} operand;

typedef struct problem {
  lb_spec spec;
  lb_facts facts;
  int64_t dims[LB_SDIMS];
  operand in[LB_SPEC_MAX_IN], out[LB_SPEC_MAX_OUT];
  struct {
    int64_t y, x;
  } taps[2];  // strides
  uint64_t scalars[LB_SPEC_MAX_SCALARS];
} problem;

typedef struct reference {
  const problem *p;
  int64_t row;
  num reduced[LB_SPEC_MAX_NODES];  // of this row
  num value[LB_SPEC_MAX_NODES];    // at one column
  bool known[LB_SPEC_MAX_NODES];
} reference;

static inline num element(const operand *o, lb_dtype t, int64_t row,
                          int64_t col) {
  int64_t at = row * o->row + col * o->col;
  return num_read(t, o->data + at * (int64_t)lb_dtype_size(t));
}

static inline bool is_k2(const problem *p) {
  return lb_spec_factors(&p->spec) == 2 &&
         p->spec.in[1].layout == LB_LAYOUT_PANEL_K2;
}

// The offset of element (k, c) of b's panels.
static inline int64_t panel_at(const problem *p, uint8_t i, int64_t k,
                               int64_t c) {
  static const struct {
    int64_t cols, rows;
  } shapes[LB_LAYOUT_COUNT] = {[LB_LAYOUT_PANEL] = {16, 1},
                               [LB_LAYOUT_PANEL_K2] = {8, 2},
                               [LB_LAYOUT_PANEL_K4] = {16, 4}};
  int64_t cols = shapes[p->spec.in[i].layout].cols;
  int64_t rows = shapes[p->spec.in[i].layout].rows;
  return c / cols * p->in[i].row + (k / rows * cols + c % cols) * rows +
         k % rows;
}

static inline num input_at(const problem *p, uint8_t i, int64_t r, int64_t c) {
  lb_dtype t = p->spec.in[i].dtype;
  operand o = p->in[i];
  switch (p->spec.in[i].layout) {
    case LB_LAYOUT_FULL: o.col = 1; break;
    case LB_LAYOUT_PER_COL: o.row = 0, o.col = 1; break;
    case LB_LAYOUT_PER_ROW: o.col = 0; break;
    case LB_LAYOUT_BROADCAST: o.row = o.col = 0; break;
    case LB_LAYOUT_PANEL:
    case LB_LAYOUT_PANEL_K2:
    case LB_LAYOUT_PANEL_K4:
      return num_read(
          t, o.data + panel_at(p, i, r, c) * (int64_t)lb_dtype_size(t));
    default: break;
  }
  return element(&o, t, r, c);
}

// The sum over k = first, first + by, ...
static inline num sum_at(const problem *p, lb_dtype t, int64_t r, int64_t c,
                         int64_t first, int64_t by) {
  num sum = {.t = t};
  for (int64_t k = first; k < p->dims[LB_DIM_K]; k += by) {
    bool transposed = p->spec.form == LB_FORM_ATTENTION;
    num b = transposed ? input_at(p, 1, c, k) : input_at(p, 1, k, c);
    num s[3] = {cast_num(t, input_at(p, 0, r, k)), cast_num(t, b), sum};
    num product = apply(LB_S_MUL, t, s);
    if (k == first)
      sum = product;
    else if (lb_dtype_is_float(t))
      sum = apply(LB_S_FMA, t, s);
    else
      sum = apply(LB_S_ADD, t, (num[3]){sum, product});
  }
  return sum;
}

static inline num acc_at(const problem *p, lb_dtype t, int64_t r, int64_t c) {
  if (!is_k2(p)) return sum_at(p, t, r, c, 0, 1);
  num odd = sum_at(p, t, r, c, 1, 2), even = sum_at(p, t, r, c, 0, 2);
  return apply(LB_S_ADD, t, (num[3]){even, odd});
}

// -- windows -----------------------------------------------------------------

static inline num tap_at(const problem *p, int i, int64_t at) {
  lb_dtype t = p->spec.in[i].dtype;
  return num_read(t, p->in[i].data + at * (int64_t)lb_dtype_size(t));
}

static inline num combine_tap(lb_acc kind, lb_dtype t, bool first, num acc,
                              num x, num y) {
  static const lb_sop ops[] = {0, LB_S_ADD, LB_S_MAX, LB_S_MIN};
  if (kind == LB_ACC_SQUARES) y = x;
  if (kind != LB_ACC_DOT && kind != LB_ACC_SQUARES)
    return first ? x : apply(ops[kind], t, (num[3]){acc, x});
  if (first) return apply(LB_S_MUL, t, (num[3]){x, y});
  return apply(LB_S_FMA, t, (num[3]){x, y, acc});
}

// The state of a float sum: blocks, parts and the total, each of which starts
// with its first summand.
typedef struct blocked_sum {
  num block, part;
  double total;
  int taps, blocks;  // of the current block and part
} blocked_sum;

static inline void end_block(blocked_sum *s, lb_dtype t) {
  if (s->taps == 0) return;
  s->part =
      s->blocks ? apply(LB_S_ADD, t, (num[3]){s->part, s->block}) : s->block;
  s->taps = 0;
  if (++s->blocks < LB_SUM_BLOCKS) return;
  s->total += s->part.f;
  s->blocks = 0;
}

// SUM and SQUARES at (r, c).
static inline num window_sum(const problem *p, lb_acc kind, lb_dtype t,
                             int64_t r, int64_t c) {
  int64_t taps_y = p->dims[LB_DIM_TAPS_Y], taps_x = p->dims[LB_DIM_TAPS_X];
  int64_t block_y = taps_x && taps_x < LB_SUM_TAPS ? LB_SUM_TAPS / taps_x : 1;
  blocked_sum s = {.total = -0.0};
  if (taps_y * taps_x == 0) return num_float(t, 0);
  if (taps_y * taps_x <= LB_SUM_TAPS) block_y = taps_y;
  for (int64_t i = 0; i < taps_y; i++)
    for (int64_t j = 0; j < taps_x; j++) {
      if (j ? j % LB_SUM_TAPS == 0 : i % block_y == 0) end_block(&s, t);
      int64_t at = i * p->taps[0].y + j * p->taps[0].x;
      num x = cast_num(t, tap_at(p, 0, r * p->in[0].row + at + c));
      s.block = combine_tap(kind, t, s.taps++ == 0, s.block, x, x);
    }
  end_block(&s, t);
  return num_float(t, s.blocks ? s.total + s.part.f : s.total);
}

// Combines every product or element of (r, c) in the order of tap rows, taps,
// k; k runs from `start` in steps of `by`.
static inline num taps_from(const problem *p, lb_acc kind, lb_dtype t,
                            int64_t r, int64_t c, int64_t start, int64_t by) {
  static const double empty[] = {0, 0, -INFINITY, INFINITY, 0};
  bool conv = p->spec.form == LB_FORM_CONV, first = true;
  num acc = num_float(t, empty[kind]), y = acc;
  if (!lb_dtype_is_float(t)) acc = num_int(t, 0);
  for (int64_t i = 0; i < p->dims[LB_DIM_TAPS_Y]; i++)
    for (int64_t s = 0; s < p->dims[LB_DIM_TAPS_X]; s++)
      for (int64_t k = start; k < (conv ? p->dims[LB_DIM_K] : 1); k += by) {
        int64_t a = i * p->taps[0].y + s * p->taps[0].x;
        int64_t b = i * p->taps[1].y + s * p->taps[1].x;
        num x = tap_at(p, 0, r * p->in[0].row + a + (conv ? k : c));
        if (conv)
          y = tap_at(p, 1, b + panel_at(p, 1, k, c));
        else if (kind == LB_ACC_DOT)
          y = tap_at(p, 1, b + c);
        x = cast_num(t, x), y = cast_num(t, y);
        if (lb_dtype_is_float(t)) {
          acc = combine_tap(kind, t, first, acc, x, y);
        } else {
          acc = apply(LB_S_ADD, t,
                      (num[3]){acc, apply(LB_S_MUL, t, (num[3]){x, y})});
        }
        first = false;
      }
  return acc;
}

static inline num taps_at(const problem *p, lb_acc kind, lb_dtype t, int64_t r,
                          int64_t c) {
  if (kind == LB_ACC_SUM || kind == LB_ACC_SQUARES)
    return window_sum(p, kind, t, r, c);
  if (!is_k2(p)) return taps_from(p, kind, t, r, c, 0, 1);
  num odd = taps_from(p, kind, t, r, c, 1, 2);
  return apply(LB_S_ADD, t, (num[3]){taps_from(p, kind, t, r, c, 0, 2), odd});
}

// The value of a node at (ref->row, col); ref->known starts all false.
static inline num value_at(reference *ref, uint8_t node, int64_t col) {
  const problem *p = ref->p;
  const lb_snode *n = &p->spec.nodes[node];
  num s[4] = {{0}}, x;
  if (ref->known[node]) return ref->value[node];
  uint8_t rule = lb_sop_infos[n->op].rule;
  for (int j = rule == LB_SR_GATHER_ROW; j < n->n_src && rule != LB_SR_REDUCE;
       j++)
    s[j] = value_at(ref, n->src[j], col);
  switch (n->op) {
    case LB_S_INPUT: x = input_at(p, n->arg, ref->row, col); break;
    case LB_S_SCALAR: x = num_read(n->dtype, &p->scalars[n->arg]); break;
    case LB_S_GATHER_ROW:
      x = input_at(p, n->src[0], (int64_t)s[1].u, col);
      break;
    case LB_S_COLS:
      x = cast_num(n->dtype, num_int(LB_I64, (uint64_t)p->dims[LB_DIM_COLS]));
      break;
    case LB_S_ACC:
      x = lb_spec_has_taps(&p->spec)
              ? taps_at(p, n->arg, n->dtype, ref->row, col)
              : acc_at(p, n->dtype, ref->row, col);
      break;
    default:
      x = lb_sop_infos[n->op].rule == LB_SR_REDUCE ? ref->reduced[node]
                                                   : apply(n->op, n->dtype, s);
  }
  ref->known[node] = true;
  return ref->value[node] = x;
}

static inline num value_of(reference *ref, uint8_t node, int64_t col) {
  memset(ref->known, 0, sizeof ref->known);
  return value_at(ref, node, col);
}

static inline num empty_reduction(lb_sop op, lb_dtype t) {
  static const double limits[] = {0, 1, -INFINITY, INFINITY};
  double x = limits[op - LB_S_RSUM];
  if (lb_dtype_is_float(t)) return num_float(t, x);
  if (!isinf(x)) return num_int(t, (uint64_t)x);
  uint64_t top = UINT64_C(1) << (8 * lb_dtype_size(t) - 1);
  uint64_t min = lb_dtype_is_signed(t) ? top : 0;
  return num_int(t, x < 0 ? min : ~min);
}

static inline num reduce_at(reference *ref, uint8_t node) {
  static const lb_sop ops[] = {LB_S_ADD, LB_S_MUL, LB_S_MAX, LB_S_MIN};
  const lb_snode *n = &ref->p->spec.nodes[node];
  lb_sop op = ops[n->op - LB_S_RSUM];
  num lane[64];
  double total[64];
  int64_t cols = ref->p->dims[LB_DIM_COLS];
  if (cols == 0) return empty_reduction(n->op, n->dtype);
  bool sum = op == LB_S_ADD && lb_dtype_is_float(n->dtype);
  int64_t size = sum ? LB_SUM_COLS : INT64_MAX;
  for (int i = 0; i < 64; i++) total[i] = -0.0;
  for (int64_t c = 0; c < cols; c++) {
    num x = value_of(ref, n->src[0], c);
    num *l = &lane[c % 64];
    if (c >= 64 && c % size < 64) total[c % 64] += l->f;
    *l = c % size < 64 ? x : apply(op, n->dtype, (num[3]){*l, x});
  }
  for (int64_t i = 0; sum && i < 64 && i < cols; i++)
    lane[i] = num_float(n->dtype, total[i] + lane[i].f);
  for (int half = 32; half; half /= 2)
    for (int i = 0; i < half; i++)
      if (i + half < cols)
        lane[i] = apply(op, n->dtype, (num[3]){lane[i], lane[i + half]});
  return lane[0];
}

// -- attention: one row, as (6) of spec.h defines it

typedef struct softmax {
  num max, sum, rescale;
  num p[LB_SPEC_KEYS];
} softmax;

static inline num combine(lb_sop op, num x, num y) {
  return apply(op, x.t, (num[3]){x, y});
}

static inline num exp_of(num x, num base) {
  num d = combine(LB_S_SUB, x, base);
  if (x.t == LB_F32) return num_float(x.t, (double)lb_exp_f32((float)d.f));
  return num_float(x.t, exp(d.f));
}

// Keys from `first` on, n of them.
static inline void softmax_block(reference *ref, softmax *s, int64_t first,
                                 int64_t n) {
  uint8_t score = ref->p->spec.out[0].node;
  lb_dtype t = s->max.t;
  num max = s->max, lane[64], zero = num_float(t, 0);
  for (int64_t l = 0; l < n; l++) {
    s->p[l] = value_of(ref, score, first + l);
    if (s->p[l].f > max.f) max = s->p[l];
  }
  num base = max.f == -INFINITY ? zero : max;
  for (int i = 0; i < 64; i++) lane[i] = zero;
  for (int64_t l = 0; l < n; l++) {
    s->p[l] = exp_of(s->p[l], base);
    lane[l % 64] = l < 64 ? s->p[l] : combine(LB_S_ADD, lane[l % 64], s->p[l]);
  }
  for (int half = 32; half; half /= 2)
    for (int i = 0; i < half; i++)
      lane[i] = combine(LB_S_ADD, lane[i], lane[i + half]);
  s->rescale = exp_of(s->max, base);
  s->sum = apply(LB_S_FMA, t, (num[3]){s->sum, s->rescale, lane[0]});
  s->max = max;
}

static inline void attention_row(reference *ref, char *out) {
  const problem *p = ref->p;
  lb_dtype t = p->spec.out[0].dtype;
  int64_t n_keys = p->dims[LB_DIM_KEYS], cols = p->dims[LB_DIM_COLS];
  softmax s = {.max = num_float(t, -INFINITY), .sum = num_float(t, 0)};
  num total[256];
  for (int64_t c = 0; c < cols; c++) total[c] = num_float(t, 0);
  for (int64_t l = 0; l < n_keys; l += LB_SPEC_KEYS) {
    int64_t n = n_keys - l < LB_SPEC_KEYS ? n_keys - l : LB_SPEC_KEYS;
    softmax_block(ref, &s, l, n);
    for (int64_t c = 0; c < cols; c++) {
      num sum = num_float(t, 0);
      for (int64_t i = 0; i < n; i++) {
        num v = cast_num(t, input_at(p, 2, l + i, c));
        sum = apply(LB_S_FMA, t, (num[3]){s.p[i], v, sum});
      }
      total[c] = apply(LB_S_FMA, t, (num[3]){total[c], s.rescale, sum});
    }
  }
  num one = num_float(t, 1);
  num by = combine(LB_S_DIV, one, s.sum.f == 0 ? one : s.sum);
  for (int64_t c = 0; c < cols; c++)
    num_write(combine(LB_S_MUL, total[c], by),
              out + (ref->row * p->out[0].row + c) * (int64_t)lb_dtype_size(t));
}

// Writes the outputs of p into `out`, with the layouts of p->out.
static inline void reference_run(const problem *p, char *const *out) {
  reference ref = {.p = p};
  const lb_spec *s = &p->spec;
  for (int64_t r = 0; r < p->dims[LB_DIM_ROWS]; r++) {
    ref.row = r;
    if (s->form == LB_FORM_ATTENTION) {
      attention_row(&ref, out[0]);
      continue;
    }
    for (uint8_t i = 0; i < s->n_nodes; i++)
      if (lb_sop_infos[s->nodes[i].op].rule == LB_SR_REDUCE)
        ref.reduced[i] = reduce_at(&ref, i);
    for (int i = 0; i < s->n_out; i++) {
      bool rows = s->out[i].layout == LB_LAYOUT_PER_ROW;
      bool full = s->out[i].layout == LB_LAYOUT_FULL;
      int64_t cols = rows ? 1 : p->dims[LB_DIM_COLS];
      int64_t col = full ? 1 : p->out[i].col;
      for (int64_t c = 0; c < cols; c++) {
        int64_t at = r * p->out[i].row + c * col;
        num_write(value_of(&ref, s->out[i].node, c),
                  out[i] + at * (int64_t)lb_dtype_size(s->out[i].dtype));
      }
    }
  }
}

#endif
