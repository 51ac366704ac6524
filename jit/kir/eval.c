// kir/eval.c -- Operations on lanes, written once for all their dtypes.
//
// A list row is X(dtype, S, T, load, store, ...): S is the type of a lane in
// the frame, T the type of computation; load converts S to T, store T to S.
// Float16 and bfloat16 compute in float and round once more: float has more
// than twice their mantissa bits plus two, so the result is as if rounded once.
// Inexact functions compute in double.
#include "kir/eval.h"

#include <math.h>
#include <string.h>

#include "kir/num.h"

typedef float __attribute__((may_alias)) f32;
typedef double __attribute__((may_alias)) f64;
typedef uint16_t __attribute__((may_alias)) f16bits;
typedef int8_t __attribute__((may_alias)) i8;
typedef int16_t __attribute__((may_alias)) i16;
typedef int32_t __attribute__((may_alias)) i32;
typedef int64_t __attribute__((may_alias)) i64;
typedef uint8_t __attribute__((may_alias)) u8;
typedef uint16_t __attribute__((may_alias)) u16;
typedef uint32_t __attribute__((may_alias)) u32;
typedef uint64_t __attribute__((may_alias)) u64;

#define IDENTITY(x) (x)
#define TO_F32(x) ((float)(x))

#define FLOATS16(X, ...)                                            \
  X(F16, f16bits, float, lb_f16_to_f32, lb_f32_to_f16, __VA_ARGS__) \
  X(BF16, f16bits, float, lb_bf16_to_f32, lb_f32_to_bf16, __VA_ARGS__)
#define WIDE_FLOATS(X, ...)                           \
  X(F32, f32, float, IDENTITY, IDENTITY, __VA_ARGS__) \
  X(F64, f64, double, IDENTITY, IDENTITY, __VA_ARGS__)
#define FLOATS(X, ...) WIDE_FLOATS(X, __VA_ARGS__) FLOATS16(X, __VA_ARGS__)
#define DOUBLES(X, ...)                                              \
  X(F32, f32, double, IDENTITY, TO_F32, __VA_ARGS__)                 \
  X(F64, f64, double, IDENTITY, IDENTITY, __VA_ARGS__)               \
  X(F16, f16bits, double, lb_f16_to_f32, lb_f64_to_f16, __VA_ARGS__) \
  X(BF16, f16bits, double, lb_bf16_to_f32, lb_knum_bf16, __VA_ARGS__)
#define SIGNED(X, ...)                                  \
  X(I8, i8, int8_t, IDENTITY, IDENTITY, __VA_ARGS__)    \
  X(I16, i16, int16_t, IDENTITY, IDENTITY, __VA_ARGS__) \
  X(I32, i32, int32_t, IDENTITY, IDENTITY, __VA_ARGS__) \
  X(I64, i64, int64_t, IDENTITY, IDENTITY, __VA_ARGS__)
#define UNSIGNED(X, ...)                                 \
  X(U8, u8, uint8_t, IDENTITY, IDENTITY, __VA_ARGS__)    \
  X(U16, u16, uint16_t, IDENTITY, IDENTITY, __VA_ARGS__) \
  X(U32, u32, uint32_t, IDENTITY, IDENTITY, __VA_ARGS__) \
  X(U64, u64, uint64_t, IDENTITY, IDENTITY, __VA_ARGS__)
#define INTS(X, ...) SIGNED(X, __VA_ARGS__) UNSIGNED(X, __VA_ARGS__)
#define NUMBERS(X, ...) FLOATS(X, __VA_ARGS__) INTS(X, __VA_ARGS__)
#define BOOLS(X, ...) X(BOOL, u8, uint8_t, IDENTITY, IDENTITY, __VA_ARGS__)
#define BITS(X, ...) INTS(X, __VA_ARGS__) BOOLS(X, __VA_ARGS__)
#define ALL_DTYPES(X, ...) NUMBERS(X, __VA_ARGS__) BOOLS(X, __VA_ARGS__)

#define SRC(S, n) ((const S *)(const void *)(frame + s->src[n]))
#define DST(S) ((S *)(void *)(frame + s->dst))
#define WIDTH (8 * sizeof(T))
#define WRAP(x, op, y) ((T)((uint64_t)(x)op(uint64_t)(y)))

// One function per dtype: Name_F32, ... Its body is an expression of x, y and
// T.
#define LANES(id, S, TT, load, store, Name, R, fin, second, ...) \
  static void Name##_##id(const lb_kstep *s, char *frame) {      \
    typedef TT T;                                                \
    const S *restrict u = SRC(S, 0);                             \
    const S *restrict v = SRC(S, second);                        \
    R *restrict to = DST(R);                                     \
    for (unsigned i = 0; i < s->lanes; i++) {                    \
      const T x = load(u[i]), y = load(v[i]);                    \
      (void)x, (void)y, (void)sizeof(T);                         \
      to[i] = fin(__VA_ARGS__);                                  \
    }                                                            \
  }
#define UNARY(id, S, T, load, store, Name, ...) \
  LANES(id, S, T, load, store, Name, S, store, 0, (T)(__VA_ARGS__))
#define BINARY(id, S, T, load, store, Name, ...) \
  LANES(id, S, T, load, store, Name, S, store, 1, (T)(__VA_ARGS__))
#define TEST(id, S, T, load, store, Name, ...) \
  LANES(id, S, T, load, store, Name, u8, IDENTITY, 1, (u8)(__VA_ARGS__))

// -- arithmetic --------------------------------------------------------------

FLOATS(BINARY, ADD, x + y)
INTS(BINARY, ADD, WRAP(x, +, y))
FLOATS(BINARY, SUB, x - y)
INTS(BINARY, SUB, WRAP(x, -, y))
FLOATS(BINARY, MUL, x *y)
INTS(BINARY, MUL, WRAP(x, *, y))
FLOATS(BINARY, DIV, x / y)
SIGNED(BINARY, DIV, y == 0 ? 0 : y == -1 ? WRAP(0, -, x) : (T)(x / y))
UNSIGNED(BINARY, DIV, y == 0 ? 0 : x / y)
FLOATS(BINARY, REM, fmod((double)x, (double)y))  // exact
SIGNED(BINARY, REM, y == 0 || y == -1 ? 0 : x % y)
UNSIGNED(BINARY, REM, y == 0 ? 0 : x % y)
FLOATS(BINARY, MIN, x < y || x != x ? x : y)
INTS(BINARY, MIN, x < y ? x : y)
FLOATS(BINARY, MAX, x > y || x != x ? x : y)
INTS(BINARY, MAX, x > y ? x : y)

FLOATS(UNARY, NEG, -x)
INTS(UNARY, NEG, WRAP(0, -, x))
FLOATS(UNARY, ABS, fabs((double)x))
SIGNED(UNARY, ABS, x < 0 ? WRAP(0, -, x) : x)
UNSIGNED(UNARY, ABS, x)

#define FUSED(id, S, T, load, store, Name, fuse)               \
  static void Name##_##id(const lb_kstep *s, char *frame) {    \
    const S *u = SRC(S, 0), *v = SRC(S, 1), *w = SRC(S, 2);    \
    S *restrict to = DST(S);                                   \
    for (unsigned i = 0; i < s->lanes; i++)                    \
      to[i] = store(fuse(load(u[i]), load(v[i]), load(w[i]))); \
  }
FUSED(F32, f32, float, IDENTITY, IDENTITY, FMA, fmaf)
FUSED(F64, f64, double, IDENTITY, IDENTITY, FMA, fma)
FUSED(F16, f16bits, double, lb_f16_to_f32, lb_f64_to_f16, FMA, lb_knum_fma)
FUSED(BF16, f16bits, double, lb_bf16_to_f32, lb_knum_bf16, FMA, lb_knum_fma)

// -- bits, comparison --------------------------------------------------------

BITS(BINARY, AND, x &y)
BITS(BINARY, OR, x | y)
BITS(BINARY, XOR, x ^ y)
INTS(UNARY, NOT, ~x)
BOOLS(UNARY, NOT, !x)
INTS(BINARY, SHL, (uint64_t)y < WIDTH ? WRAP(x, <<, y) : 0)
SIGNED(BINARY, SHR, (uint64_t)y < WIDTH ? x >> y : x < 0 ? -1 : 0)
UNSIGNED(BINARY, SHR, (uint64_t)y < WIDTH ? x >> y : 0)
ALL_DTYPES(TEST, EQ, x == y)
ALL_DTYPES(TEST, NE, x != y)
NUMBERS(TEST, LT, x < y)
NUMBERS(TEST, LE, x <= y)

// -- mathematics -------------------------------------------------------------

DOUBLES(UNARY, SQRT, sqrt(x))
DOUBLES(UNARY, FLOOR, floor(x))
DOUBLES(UNARY, CEIL, ceil(x))
DOUBLES(UNARY, ROUND, rint(x))
DOUBLES(UNARY, TRUNC, trunc(x))
DOUBLES(UNARY, RSQRT, 1 / sqrt(x))
DOUBLES(UNARY, EXP, exp(x))
DOUBLES(UNARY, EXP2, exp2(x))
DOUBLES(UNARY, EXPM1, expm1(x))
DOUBLES(UNARY, LOG, log(x))
DOUBLES(UNARY, LOG2, log2(x))
DOUBLES(UNARY, LOG1P, log1p(x))
DOUBLES(UNARY, ERF, erf(x))
DOUBLES(UNARY, ERFC, erfc(x))
DOUBLES(UNARY, SIN, sin(x))
DOUBLES(UNARY, COS, cos(x))
DOUBLES(UNARY, TAN, tan(x))
DOUBLES(UNARY, ASIN, asin(x))
DOUBLES(UNARY, ACOS, acos(x))
DOUBLES(UNARY, ATAN, atan(x))
DOUBLES(UNARY, SINH, sinh(x))
DOUBLES(UNARY, COSH, cosh(x))
DOUBLES(UNARY, TANH, tanh(x))
DOUBLES(UNARY, SIGMOID, 1 / (1 + exp(-x)))
DOUBLES(UNARY, ASINH, asinh(x))
DOUBLES(UNARY, ACOSH, acosh(x))
DOUBLES(UNARY, ATANH, atanh(x))
DOUBLES(BINARY, POW, pow(x, y))

// -- reductions --------------------------------------------------------------

#define REDUCE(id, S, TT, load, store, Name, ...)           \
  static void Name##_##id(const lb_kstep *s, char *frame) { \
    typedef TT T;                                           \
    S lane[LB_K_MAX_LANES];                                 \
    memcpy(lane, SRC(S, 0), s->from_lanes * sizeof(S));     \
    for (unsigned h = s->from_lanes / 2u; h; h /= 2)        \
      for (unsigned i = 0; i < h; i++) {                    \
        const T x = load(lane[i]), y = load(lane[i + h]);   \
        lane[i] = store((T)(__VA_ARGS__));                  \
      }                                                     \
    *DST(S) = lane[0];                                      \
  }
FLOATS(REDUCE, RADD, x + y)
INTS(REDUCE, RADD, WRAP(x, +, y))
FLOATS(REDUCE, RMUL, x *y)
INTS(REDUCE, RMUL, WRAP(x, *, y))
FLOATS(REDUCE, RMIN, x < y || x != x ? x : y)
INTS(REDUCE, RMIN, x < y ? x : y)
FLOATS(REDUCE, RMAX, x > y || x != x ? x : y)
INTS(REDUCE, RMAX, x > y ? x : y)
BITS(REDUCE, RAND, x &y)
BITS(REDUCE, ROR, x | y)

// -- moving lanes ------------------------------------------------------------

#define SIZES(X) X(u8) X(u16) X(u32) X(u64)
#define MOVES(S)                                                    \
  static void splat_##S(const lb_kstep *s, char *frame) {           \
    const S x = *SRC(S, 0);                                         \
    for (unsigned i = 0; i < s->lanes; i++) DST(S)[i] = x;          \
  }                                                                 \
  static void iota_##S(const lb_kstep *s, char *frame) {            \
    for (unsigned i = 0; i < s->lanes; i++) DST(S)[i] = (S)i;       \
  }                                                                 \
  static void extract_##S(const lb_kstep *s, char *frame) {         \
    *DST(S) = SRC(S, 0)[s->imm];                                    \
  }                                                                 \
  static void insert_##S(const lb_kstep *s, char *frame) {          \
    for (unsigned i = 0; i < s->lanes; i++)                         \
      DST(S)[i] = i == s->imm ? *SRC(S, 1) : SRC(S, 0)[i];          \
  }                                                                 \
  static void shuffle_##S(const lb_kstep *s, char *frame) {         \
    for (unsigned i = 0; i < s->lanes; i++) {                       \
      unsigned from = s->table[i], n = s->from_lanes;               \
      DST(S)[i] = from < n ? SRC(S, 0)[from] : SRC(S, 1)[from - n]; \
    }                                                               \
  }                                                                 \
  static void select_##S(const lb_kstep *s, char *frame) {          \
    const u8 *c = SRC(u8, 0);                                       \
    unsigned step = s->from_lanes > 1;                              \
    for (unsigned i = 0; i < s->lanes; i++)                         \
      DST(S)[i] = c[i * step] ? SRC(S, 1)[i] : SRC(S, 2)[i];        \
  }
SIZES(MOVES)

static void select_pointer(const lb_kstep *s, char *frame) {
  memcpy(DST(char), SRC(char, *SRC(u8, 0) ? 1 : 2), sizeof(lb_kptr));
}

static void move_bytes(const lb_kstep *s, char *frame) {
  memcpy(DST(char), SRC(char, 0), (size_t)s->size * s->lanes);
}

static void tail_lanes(const lb_kstep *s, char *frame) {
  const int64_t n = *SRC(i64, 0);
  for (unsigned i = 0; i < s->lanes; i++) DST(u8)[i] = i < n;
}

#define DOT4(A, B)                                             \
  static void dot4_##A##_##B(const lb_kstep *s, char *frame) { \
    for (unsigned i = 0; i < s->lanes; i++) {                  \
      int32_t sum = 0;                                         \
      for (unsigned j = 4 * i; j < 4 * i + 4; j++)             \
        sum += SRC(A, 1)[j] * SRC(B, 2)[j];                    \
      DST(u32)[i] = SRC(u32, 0)[i] + (uint32_t)sum;            \
    }                                                          \
  }
DOT4(i8, i8)
DOT4(i8, u8)
DOT4(u8, i8)
DOT4(u8, u8)

// -- casts: widened to a type that holds any lane exactly, then narrowed -----

typedef union wide {
  double f;
  int64_t i;
  uint64_t u;
} wide;

typedef void widen_fn(unsigned n, const void *from, wide *to);
typedef void narrow_fn(unsigned n, const wide *from, void *to);

#define WIDEN(id, S, field, expr)                                  \
  static void widen_##id(unsigned n, const void *from, wide *to) { \
    for (unsigned k = 0; k < n; k++) {                             \
      const S x = ((const S *)from)[k];                            \
      to[k].field = expr;                                          \
    }                                                              \
  }
WIDEN(F32, f32, f, (double)x)
WIDEN(F64, f64, f, x)
WIDEN(F16, f16bits, f, (double)lb_f16_to_f32(x))
WIDEN(BF16, f16bits, f, (double)lb_bf16_to_f32(x))
WIDEN(I8, i8, i, x)
WIDEN(I16, i16, i, x)
WIDEN(I32, i32, i, x)
WIDEN(I64, i64, i, x)
WIDEN(U8, u8, i, x)
WIDEN(U16, u16, i, x)
WIDEN(U32, u32, i, x)
WIDEN(U64, u64, u, x)
WIDEN(BOOL, u8, i, x)

#define NARROW(id, S, kind, expr)                                            \
  static void narrow_##id##_##kind(unsigned n, const wide *from, void *to) { \
    for (unsigned k = 0; k < n; k++) {                                       \
      const wide x = from[k];                                                \
      ((S *)to)[k] = (S)(expr);                                              \
    }                                                                        \
  }
#define NARROW3(id, S, from_f, from_i, from_u) \
  NARROW(id, S, f, from_f)                     \
  NARROW(id, S, i, from_i)                     \
  NARROW(id, S, u, from_u)
NARROW3(F32, f32, x.f, x.i, x.u)
NARROW3(F64, f64, x.f, x.i, x.u)
// Integers beyond 2^53 are infinite in float16, so double rounding cannot
// occur.
NARROW3(F16, f16bits, lb_f64_to_f16(x.f), lb_f64_to_f16((double)x.i),
        lb_f64_to_f16((double)x.u))
NARROW3(BF16, f16bits, lb_knum_bf16(x.f), lb_knum_bf16_i(x.i),
        lb_knum_bf16_u(x.u))
NARROW3(I8, i8, lb_knum_i32(x.f), x.i, x.u)
NARROW3(I16, i16, lb_knum_i32(x.f), x.i, x.u)
NARROW3(I32, i32, lb_knum_i32(x.f), x.i, x.u)
NARROW3(I64, i64, lb_knum_i64(x.f), x.i, x.u)
NARROW3(U8, u8, lb_knum_i32(x.f), x.i, x.u)
NARROW3(U16, u16, lb_knum_i32(x.f), x.i, x.u)
NARROW3(U32, u32, lb_knum_i64(x.f), x.i, x.u)
NARROW3(U64, u64, lb_knum_u64(x.f), x.i, x.u)
NARROW3(BOOL, u8, x.f != 0, x.i != 0, x.u != 0)

static widen_fn *const widens[LB_DTYPE_COUNT] = {
#define X(id, ...) [LB_##id] = widen_##id,
    LB_DTYPES(X)
#undef X
};
static narrow_fn *const narrows[LB_DTYPE_COUNT][3] = {
#define X(id, ...) \
  [LB_##id] = {narrow_##id##_f, narrow_##id##_i, narrow_##id##_u},
    LB_DTYPES(X)
#undef X
};

static void cast_lanes(const lb_kstep *s, char *frame) {
  wide lane[LB_K_MAX_LANES];
  lb_dtype from = s->from;
  int kind = lb_dtype_is_float(from) ? 0 : from == LB_U64 ? 2 : 1;
  widens[from](s->lanes, SRC(char, 0), lane);
  narrows[s->dtype][kind](s->lanes, lane, DST(char));
}

// -- tables ------------------------------------------------------------------

// A row of kops.def with no function for one of its dtypes does not compile.
#define ENTRY(id, S, T, load, store, Name, ...) [LB_##id] = Name##_##id,
#define OF_FLOAT(Name) FLOATS(ENTRY, Name, )
#define OF_INT(Name) INTS(ENTRY, Name, )
#define OF_NUM(Name) NUMBERS(ENTRY, Name, )
#define OF_BITS(Name) BITS(ENTRY, Name, )
#define OF_ALL(Name) ALL_DTYPES(ENTRY, Name, )
#define FNS_SAME(ID, dtypes) [LB_K_##ID] = {OF_##dtypes(ID)},
#define FNS_COMPARE(ID, dtypes) FNS_SAME(ID, dtypes)
#define FNS_REDUCE(ID, dtypes) FNS_SAME(ID, dtypes)
#define FNS_SELECT(ID, dtypes)  // in the tables below
#define FNS_DOT4(ID, dtypes)

static lb_klanes_fn *const by_dtype[LB_K_COUNT][LB_DTYPE_COUNT] = {
#define LB_KUNARY(ID, text, cls, rule, dtypes) FNS_##rule(ID, dtypes)
#define LB_KBINARY(ID, text, cls, rule, dtypes) FNS_##rule(ID, dtypes)
#define LB_KTERNARY(ID, text, cls, rule, dtypes) FNS_##rule(ID, dtypes)
#include "kir/kops.def"
};

#define BY_SIZE(name) \
  { [1] = name##_u8, [2] = name##_u16, [4] = name##_u32, [8] = name##_u64 }
static lb_klanes_fn *const by_size[LB_K_COUNT][9] = {
    [LB_K_SPLAT] = BY_SIZE(splat),     [LB_K_IOTA] = BY_SIZE(iota),
    [LB_K_EXTRACT] = BY_SIZE(extract), [LB_K_INSERT] = BY_SIZE(insert),
    [LB_K_SHUFFLE] = BY_SIZE(shuffle), [LB_K_SELECT] = BY_SIZE(select),
};

static lb_klanes_fn *const dot4[2][2] = {{dot4_i8_i8, dot4_i8_u8},
                                         {dot4_u8_i8, dot4_u8_u8}};

static lb_klanes_fn *lanes_fn(const lb_kinst *in, const lb_ktype *src,
                              const lb_kstep *s) {
  switch (in->op) {
    case LB_K_CAST: return cast_lanes;
    case LB_K_TAIL: return tail_lanes;
    case LB_K_BITCAST:
    case LB_K_REG:
    case LB_K_GET: return move_bytes;
    case LB_K_DOT4: return dot4[src[1].dtype == LB_U8][src[2].dtype == LB_U8];
    case LB_K_SELECT:
      if (in->flags & LB_K_POINTER) return select_pointer;
      return by_size[in->op][s->size];
    default: break;
  }
  if (by_dtype[in->op][s->from]) return by_dtype[in->op][s->from];
  return s->size <= 8 ? by_size[in->op][s->size] : NULL;
}

uint32_t lb_kvalue_size(lb_ktype t) {
  if (lb_ktype_is_ptr(t)) return sizeof(lb_kptr);
  return t.lanes * (uint32_t)lb_dtype_size(t.dtype);
}

void lb_kstep_decode(const lb_kinst *in, const lb_ktype *src,
                     const uint8_t *table, lb_kstep *out) {
  lb_ktype t = lb_ktype_of(in), from = in->n_src ? src[0] : t;
  lb_ktype sized = t.dtype ? t : from;
  sized.lanes = 1;
  *out = (lb_kstep){
      .lanes = t.lanes,
      .from_lanes = from.lanes,
      .dtype = t.dtype,
      .from = from.dtype,
      .size = (uint8_t)lb_kvalue_size(sized),
      .imm = in->imm,
      .table = table,
  };
  out->fn = lanes_fn(in, src, out);
}

void lb_kconst_write(const lb_kinst *in, void *to) {
  size_t size = lb_dtype_size(in->dtype);
  for (size_t i = 0; i < in->lanes; i++)
    memcpy((char *)to + i * size, &in->imm, size);  // little-endian
}
