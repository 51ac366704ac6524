// device/reference/binary.c -- elementwise operators of several tensors, with
// broadcasting.
//
// An operator is an expression of x and y, written once for all its dtypes.
// Integers wrap; division by zero gives 0, remainder too.
#include <string.h>
#include <tgmath.h>

#include "device/reference/elem.h"
#include "device/reference/iter.h"

// `Name_F32_of(x, y, a)` is the operator itself; a is its attribute, if any.
#define ELEMENT(id, TT, Name, RR, ...)                      \
  static inline RR Name##_##id##_of(TT x, TT y, double a) { \
    typedef TT T;                                           \
    (void)y, (void)a, (void)(T)0;                           \
    return (RR)(__VA_ARGS__);                               \
  }

// Row functions from S to O: both operands dense, one of them a scalar, or any
// strides.
#define ROW(id, O, S, T, load, store, Name)                               \
  static void Name##_##id(const void *user, int64_t n, char *const *p,    \
                          const int64_t *step) {                          \
    const double a = user ? *(const double *)user : 0;                    \
    const int64_t size = (int64_t)sizeof(S);                              \
    O *restrict to = (O *)p[0];                                           \
    const S *restrict u = (const S *)p[1], *restrict v = (const S *)p[2]; \
    const bool dense = step[0] == (int64_t)sizeof(O);                     \
    if (dense && step[1] == size && step[2] == size) {                    \
      for (int64_t i = 0; i < n; i++)                                     \
        to[i] = store(Name##_##id##_of(load(u[i]), load(v[i]), a));       \
    } else if (dense && step[1] == size && step[2] == 0) {                \
      const T y = load(v[0]);                                             \
      for (int64_t i = 0; i < n; i++)                                     \
        to[i] = store(Name##_##id##_of(load(u[i]), y, a));                \
    } else if (dense && step[1] == 0 && step[2] == size) {                \
      const T x = load(u[0]);                                             \
      for (int64_t i = 0; i < n; i++)                                     \
        to[i] = store(Name##_##id##_of(x, load(v[i]), a));                \
    } else {                                                              \
      for (int64_t i = 0; i < n; i++)                                     \
        *(O *)(p[0] + i * step[0]) = store(                               \
            Name##_##id##_of(load(*(const S *)(p[1] + i * step[1])),      \
                             load(*(const S *)(p[2] + i * step[2])), a)); \
    }                                                                     \
  }

// The result has the type of the operands (SAME) or bool (TEST).
#define SAME(id, S, T, load, store, Name, ...) \
  ELEMENT(id, T, Name, T, __VA_ARGS__)         \
  ROW(id, S, S, T, load, store, Name)
#define TEST(id, S, T, load, store, Name, ...) \
  ELEMENT(id, T, Name, uint8_t, __VA_ARGS__)   \
  ROW(id, lb_u8, S, T, load, LB_IDENTITY, Name)

#define ENTRY(id, S, T, load, store, Name, ...) [LB_##id] = Name##_##id,
#define TABLE(Name, LIST) \
  static lb_row_fn *const Name##_rows[LB_DTYPE_COUNT] = {LIST(ENTRY, Name, )};
#define OPERATOR(Name, LIST)                            \
  TABLE(Name, LIST)                                     \
  lb_status lb_reference_##Name(lb_reference_call *c) { \
    return run(c, Name##_rows, 0);                      \
  }

static lb_status run_on(lb_reference_call *c, lb_row_fn *const *rows,
                        const lb_tensor *to, const lb_tensor *x,
                        const lb_tensor *y, double a) {
  lb_row_fn *row = rows[x->dtype];
  if (!row) return lb_reference_bad_dtype(c, x->dtype);
  lb_iter_all(c->pool, 3, (const lb_tensor *[]){to, x, y}, row, &a);
  return LB_OK;
}

static lb_status run(lb_reference_call *c, lb_row_fn *const *rows, double a) {
  return run_on(c, rows, &c->out[0], &c->in[0], &c->in[1], a);
}

// Computes in `dtype`, for any dtypes of the inputs and the output.
static lb_status run_as(lb_reference_call *c, lb_row_fn *const *rows,
                        lb_dtype dtype) {
  lb_tensor x, y, z;
  LB_TRY(lb_reference_dense(c, &c->in[0], dtype, &x));
  LB_TRY(lb_reference_dense(c, &c->in[1], dtype, &y));
  LB_TRY(lb_reference_temp(c, dtype, c->out[0].rank, c->out[0].dims, &z));
  LB_TRY(run_on(c, rows, &z, &x, &y, 0));
  lb_convert(c->pool, &z, &c->out[0]);
  return LB_OK;
}

// -- arithmetic --------------------------------------------------------------

LB_FLOATS(SAME, Add, x + y)
LB_INTS(SAME, Add, LB_WRAP(T, x, +, y))
OPERATOR(Add, LB_NUMBERS)

LB_FLOATS(SAME, Sub, x - y)
LB_INTS(SAME, Sub, LB_WRAP(T, x, -, y))
OPERATOR(Sub, LB_NUMBERS)

LB_FLOATS(SAME, Mul, x *y)
LB_INTS(SAME, Mul, LB_WRAP(T, x, *, y))
OPERATOR(Mul, LB_NUMBERS)

LB_FLOATS(SAME, Div, x / y)
LB_SIGNED(SAME, Div, y == 0 ? 0 : y == -1 ? LB_WRAP(T, 0, -, x) : x / y)
LB_UNSIGNED(SAME, Div, y == 0 ? 0 : x / y)
OPERATOR(Div, LB_NUMBERS)

// The remainder r of C has the sign of x; that of ONNX Mod with fmod=0 has the
// sign of y.
#define FLOOR_MOD(r) ((r) != 0 && ((r) < 0) != (y < 0) ? (r) + y : (r))
LB_FLOATS(SAME, Fmod, fmod(x, y))
LB_SIGNED(SAME, Fmod, y == 0 || y == -1 ? 0 : x % y)
LB_UNSIGNED(SAME, Fmod, y == 0 ? 0 : x % y)
TABLE(Fmod, LB_NUMBERS)
LB_FLOATS(SAME, Mod,
          fmod(x, y) == 0 ? copysign((T)0, y) : FLOOR_MOD(fmod(x, y)))
LB_SIGNED(SAME, Mod, y == 0 || y == -1 ? 0 : FLOOR_MOD(x % y))
LB_UNSIGNED(SAME, Mod, y == 0 ? 0 : x % y)
TABLE(Mod, LB_NUMBERS)
lb_status lb_reference_Mod(lb_reference_call *c) {
  bool c_like = lb_attr_int(c->node, "fmod", 0) != 0;
  return run(c, c_like ? Fmod_rows : Mod_rows, 0);
}

LB_FLOATS(SAME, PRelu, x < 0 ? x * y : x)
LB_SIGNED(SAME, PRelu, x < 0 ? LB_WRAP(T, x, *, y) : x)
LB_UNSIGNED(SAME, PRelu, x)
OPERATOR(PRelu, LB_NUMBERS)

LB_FLOATS(SAME, SwiGLU, x / (1 + exp(-(T)a * x)) * y)
TABLE(SwiGLU, LB_FLOATS)
lb_status lb_reference_SwiGLU(lb_reference_call *c) {
  return run(c, SwiGLU_rows, (double)lb_attr_float(c->node, "alpha", 1));
}

// x to the power of y, wrapping; for y < 0 the result is truncated.
static int64_t power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 || x == -1 ? (y & 1 ? x : 1) : 0;
  uint64_t result = 1, square = (uint64_t)x;
  for (; y > 0; y >>= 1, square *= square)
    if (y & 1) result *= square;
  return (int64_t)result;
}

LB_FLOATS(SAME, Pow, pow(x, y))
SAME(I64, lb_i64, int64_t, LB_IDENTITY, LB_IDENTITY, Pow, power(x, y))
lb_status lb_reference_Pow(lb_reference_call *c) {
  static lb_row_fn *const rows[LB_DTYPE_COUNT] = {
      LB_FLOATS(ENTRY, Pow, )[LB_I64] = Pow_I64};
  lb_dtype base = c->in[0].dtype, exponent = c->in[1].dtype;
  if (base == LB_BOOL || exponent == LB_BOOL)
    return lb_reference_bad_dtype(c, LB_BOOL);
  if (base == exponent && rows[base]) return run(c, rows, 0);
  bool whole = !lb_dtype_is_float(base) && !lb_dtype_is_float(exponent);
  return run_as(c, rows, whole ? LB_I64 : LB_F64);
}

// -- bits --------------------------------------------------------------------

LB_INTS(SAME, BitwiseAnd, x &y)
OPERATOR(BitwiseAnd, LB_INTS)
LB_INTS(SAME, BitwiseOr, x | y)
OPERATOR(BitwiseOr, LB_INTS)
LB_INTS(SAME, BitwiseXor, x ^ y)
OPERATOR(BitwiseXor, LB_INTS)

// A shift by a negative count, or by at least the number of bits, leaves only
// copies of the sign bit: as unsigned, the count is too large in both cases.
#define BITS (8 * sizeof(T))
LB_INTS(SAME, ShiftLeft, (uint64_t)y < BITS ? LB_WRAP(T, x, <<, y) : 0)
TABLE(ShiftLeft, LB_INTS)
LB_SIGNED(SAME, ShiftRight, (uint64_t)y < BITS ? x >> y : x < 0 ? -1 : 0)
LB_UNSIGNED(SAME, ShiftRight, (uint64_t)y < BITS ? x >> y : 0)
TABLE(ShiftRight, LB_INTS)
lb_status lb_reference_BitShift(lb_reference_call *c) {
  bool left = strcmp(lb_attr_str(c->node, "direction", ""), "LEFT") == 0;
  return run(c, left ? ShiftLeft_rows : ShiftRight_rows, 0);
}

// -- logic and comparison ----------------------------------------------------

LB_BOOLS(TEST, And, x &&y)
OPERATOR(And, LB_BOOLS)
LB_BOOLS(TEST, Or, x || y)
OPERATOR(Or, LB_BOOLS)
LB_BOOLS(TEST, Xor, !x != !y)
OPERATOR(Xor, LB_BOOLS)

#define ANYTHING(X, ...)     \
  LB_NUMBERS(X, __VA_ARGS__) \
  LB_BOOLS(X, __VA_ARGS__)
LB_NUMBERS(TEST, Equal, x == y)
LB_BOOLS(TEST, Equal, !x == !y)
OPERATOR(Equal, ANYTHING)
LB_NUMBERS(TEST, Greater, x > y)
OPERATOR(Greater, LB_NUMBERS)
LB_NUMBERS(TEST, GreaterOrEqual, x >= y)
OPERATOR(GreaterOrEqual, LB_NUMBERS)
LB_NUMBERS(TEST, Less, x < y)
OPERATOR(Less, LB_NUMBERS)
LB_NUMBERS(TEST, LessOrEqual, x <= y)
OPERATOR(LessOrEqual, LB_NUMBERS)

#define WHERE(S)                                                           \
  static inline void where_##S##_at(const void *user, int64_t n,           \
                                    char *const *p, const int64_t *step) { \
    (void)user;                                                            \
    char *to = p[0];                                                       \
    const char *given = p[1], *yes = p[2], *no = p[3];                     \
    for (int64_t i = 0; i < n; i++) {                                      \
      const S x = *(const S *)(yes + i * step[2]);                         \
      const S y = *(const S *)(no + i * step[3]);                          \
      *(S *)(to + i * step[0]) =                                           \
          *(const lb_u8 *)(given + i * step[1]) ? x : y;                   \
    }                                                                      \
  }                                                                        \
  LB_DENSE_ROW(where_##S, sizeof(S), 1, sizeof(S), sizeof(S))
WHERE(lb_u8)
WHERE(lb_u16)
WHERE(lb_u32)
WHERE(lb_u64)

lb_status lb_reference_Where(lb_reference_call *c) {
  static lb_row_fn *const by_size[] = {[1] = where_lb_u8,
                                       [2] = where_lb_u16,
                                       [4] = where_lb_u32,
                                       [8] = where_lb_u64};
  if (c->in[0].dtype != LB_BOOL)
    return lb_reference_bad_dtype(c, c->in[0].dtype);
  const lb_tensor *operands[] = {&c->out[0], &c->in[0], &c->in[1], &c->in[2]};
  lb_iter_all(c->pool, 4, operands, by_size[lb_dtype_size(c->out[0].dtype)],
              NULL);
  return LB_OK;
}

// -- any number of inputs ----------------------------------------------------

// to = to op from. float16 and bfloat16 are converted to float before.
#define FOLD(id, S, T, load, store, Name, ...)                               \
  ELEMENT(id, T, Name, T, __VA_ARGS__)                                       \
  static inline void Name##_##id##_at(const void *user, int64_t n,           \
                                      char *const *p, const int64_t *step) { \
    (void)user;                                                              \
    char *acc = p[0];                                                        \
    const char *from = p[1];                                                 \
    for (int64_t i = 0; i < n; i++) {                                        \
      S *to = (S *)(acc + i * step[0]);                                      \
      *to = Name##_##id##_of(*to, *(const S *)(from + i * step[1]), 0);      \
    }                                                                        \
  }                                                                          \
  LB_DENSE_ROW(Name##_##id, sizeof(S), sizeof(S))

#define WIDE_NUMBERS(X, ...)     \
  LB_WIDE_FLOATS(X, __VA_ARGS__) \
  LB_INTS(X, __VA_ARGS__)

// NaN is propagated.
LB_WIDE_FLOATS(FOLD, Max, x > y || isnan(x) ? x : y)
LB_INTS(FOLD, Max, x > y ? x : y)
TABLE(Max, WIDE_NUMBERS)
LB_WIDE_FLOATS(FOLD, Min, x < y || isnan(x) ? x : y)
LB_INTS(FOLD, Min, x < y ? x : y)
TABLE(Min, WIDE_NUMBERS)
LB_WIDE_FLOATS(FOLD, Sum, x + y)
TABLE(Sum, LB_WIDE_FLOATS)
LB_WIDE_FLOATS(FOLD, Quotient, x / y)
TABLE(Quotient, LB_WIDE_FLOATS)

static bool is_16bit_float(lb_dtype t) { return t == LB_F16 || t == LB_BF16; }

static lb_status accumulate(lb_reference_call *c, lb_row_fn *const *rows,
                            const lb_tensor *acc, const lb_tensor *t) {
  lb_tensor x = *t;
  if (x.dtype != acc->dtype) LB_TRY(lb_reference_dense(c, t, acc->dtype, &x));
  lb_iter_all(c->pool, 2, (const lb_tensor *[]){acc, &x}, rows[acc->dtype],
              NULL);
  return LB_OK;
}

static lb_status fold(lb_reference_call *c, lb_row_fn *const *rows, bool mean) {
  lb_tensor acc = c->out[0];
  bool is_16bit = is_16bit_float(acc.dtype);
  if (is_16bit) LB_TRY(lb_reference_temp(c, LB_F32, acc.rank, acc.dims, &acc));
  if (!rows[acc.dtype]) return lb_reference_bad_dtype(c, acc.dtype);
  lb_convert(c->pool, &c->in[0], &acc);
  for (uint32_t i = 1; i < c->node->n_in; i++)
    LB_TRY(accumulate(c, rows, &acc, &c->in[i]));
  double n = c->node->n_in;
  lb_tensor count = {.dtype = LB_F64, .data = &n};
  if (mean) LB_TRY(accumulate(c, Quotient_rows, &acc, &count));
  if (is_16bit) lb_convert(c->pool, &acc, &c->out[0]);
  return LB_OK;
}

lb_status lb_reference_Max(lb_reference_call *c) {
  return fold(c, Max_rows, false);
}
lb_status lb_reference_Min(lb_reference_call *c) {
  return fold(c, Min_rows, false);
}
lb_status lb_reference_Sum(lb_reference_call *c) {
  return fold(c, Sum_rows, false);
}
lb_status lb_reference_Mean(lb_reference_call *c) {
  return fold(c, Sum_rows, true);
}
