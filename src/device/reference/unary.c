// device/reference/unary.c -- elementwise operators of one tensor.
//
// An operator is one line: name, dtypes, attributes, and an expression of x
// with the attributes a and b, written once for all its dtypes (tgmath selects
// expf or exp). NaN passes through every comparison unchanged.
#include <float.h>
#include <string.h>
#include <tgmath.h>

#include "device/reference/elem.h"
#include "device/reference/iter.h"

typedef struct args {
  double a, b;
} args;

#define ROW(id, S, TT, load, store, Name, ...)                              \
  static void Name##_##id(const void *user, int64_t n, char *const *p,      \
                          const int64_t *step) {                            \
    typedef TT T;                                                           \
    const T a = (T)((const args *)user)->a, b = (T)((const args *)user)->b; \
    const int64_t size = (int64_t)sizeof(S);                                \
    (void)a, (void)b;                                                       \
    if (step[0] == size && step[1] == size) {                               \
      S *restrict to = (S *)p[0];                                           \
      const S *restrict from = (const S *)p[1];                             \
      for (int64_t i = 0; i < n; i++) {                                     \
        const T x = load(from[i]);                                          \
        to[i] = store((T)(__VA_ARGS__));                                    \
      }                                                                     \
      return;                                                               \
    }                                                                       \
    for (int64_t i = 0; i < n; i++) {                                       \
      const T x = load(*(const S *)(p[1] + i * step[1]));                   \
      *(S *)(p[0] + i * step[0]) = store((T)(__VA_ARGS__));                 \
    }                                                                       \
  }

#define ENTRY(id, S, T, load, store, Name, ...) [LB_##id] = Name##_##id,

#define OPERATOR(Name, LIST, ...)                                              \
  static lb_row_fn *const Name##_rows[LB_DTYPE_COUNT] = {LIST(ENTRY, Name, )}; \
  lb_status lb_reference_##Name(lb_reference_call *c) {                        \
    return run(c, Name##_rows, (args)__VA_ARGS__);                             \
  }

#define FLOAT_OP(Name, attrs, ...)  \
  LB_FLOATS(ROW, Name, __VA_ARGS__) \
  OPERATOR(Name, LB_FLOATS, attrs)

#define NONE \
  { 0, 0 }
#define ALPHA(dflt) \
  { attr(c, "alpha", dflt), 0 }
#define ALPHA_AND(name, dflt_a, dflt_b) \
  { attr(c, "alpha", dflt_a), attr(c, name, dflt_b) }

static double attr(const lb_reference_call *c, const char *name, float dflt) {
  return (double)lb_attr_float(c->node, name, dflt);
}

static lb_status run_on(lb_reference_call *c, lb_row_fn *const *rows,
                        const lb_tensor *from, const lb_tensor *to, args a) {
  lb_row_fn *row = rows[from->dtype];
  if (!row) return lb_reference_bad_dtype(c, from->dtype);
  lb_iter_all(c->pool, 2, (const lb_tensor *[]){to, from}, row, &a);
  return LB_OK;
}

static lb_status run(lb_reference_call *c, lb_row_fn *const *rows, args a) {
  return run_on(c, rows, &c->in[0], &c->out[0], a);
}

// -- mathematics -------------------------------------------------------------

FLOAT_OP(Acos, NONE, acos(x))
FLOAT_OP(Acosh, NONE, acosh(x))
FLOAT_OP(Asin, NONE, asin(x))
FLOAT_OP(Asinh, NONE, asinh(x))
FLOAT_OP(Atan, NONE, atan(x))
FLOAT_OP(Atanh, NONE, atanh(x))
FLOAT_OP(Ceil, NONE, ceil(x))
FLOAT_OP(Cos, NONE, cos(x))
FLOAT_OP(Cosh, NONE, cosh(x))
FLOAT_OP(Erf, NONE, erf(x))
FLOAT_OP(Exp, NONE, exp(x))
FLOAT_OP(Floor, NONE, floor(x))
FLOAT_OP(Log, NONE, log(x))
FLOAT_OP(Reciprocal, NONE, 1 / x)
FLOAT_OP(Round, NONE, rint(x))  // half to even
FLOAT_OP(Sin, NONE, sin(x))
FLOAT_OP(Sinh, NONE, sinh(x))
FLOAT_OP(Sqrt, NONE, sqrt(x))
FLOAT_OP(Tan, NONE, tan(x))
FLOAT_OP(Tanh, NONE, tanh(x))

LB_FLOATS(ROW, Abs, fabs(x))
LB_SIGNED(ROW, Abs, x < 0 ? LB_WRAP(T, 0, -, x) : x)
LB_UNSIGNED(ROW, Abs, x)
OPERATOR(Abs, LB_NUMBERS, NONE)

#define SIGNED_NUMBERS(X, ...) \
  LB_FLOATS(X, __VA_ARGS__)    \
  LB_SIGNED(X, __VA_ARGS__)
LB_FLOATS(ROW, Neg, -x)
LB_SIGNED(ROW, Neg, LB_WRAP(T, 0, -, x))
OPERATOR(Neg, SIGNED_NUMBERS, NONE)

LB_FLOATS(ROW, Sign, x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x)
LB_SIGNED(ROW, Sign, (x > 0) - (x < 0))
LB_UNSIGNED(ROW, Sign, x != 0)
OPERATOR(Sign, LB_NUMBERS, NONE)

LB_INTS(ROW, BitwiseNot, ~x)
OPERATOR(BitwiseNot, LB_INTS, NONE)

LB_BOOLS(ROW, Not, x == 0)
OPERATOR(Not, LB_BOOLS, NONE)

// -- activations -------------------------------------------------------------

#define SIGMOID(v) (1 / (1 + exp(-(v))))
#define SOFTPLUS(v) (((v) > 0 ? (v) : 0) + log1p(exp(-fabs(v))))
#define UNIT(v) ((v) < 0 ? 0 : (v) > 1 ? 1 : (v))

LB_FLOATS(ROW, Relu, x < 0 ? 0 : x)
LB_SIGNED(ROW, Relu, x < 0 ? 0 : x)
OPERATOR(Relu, SIGNED_NUMBERS, NONE)

FLOAT_OP(Celu, ALPHA(1),
         (x < 0 ? 0 : x) + (a * expm1(x / a) > 0 ? 0 : a * expm1(x / a)))
FLOAT_OP(Elu, ALPHA(1), x < 0 ? a * expm1(x) : x)
FLOAT_OP(HardSigmoid, ALPHA_AND("beta", 0.2f, 0.5f), UNIT(a *x + b))
FLOAT_OP(HardSwish, NONE, x *UNIT(x *(T)(1.0 / 6) + (T)0.5))
FLOAT_OP(LeakyRelu, ALPHA(0.01f), x < 0 ? a * x : x)
FLOAT_OP(Mish, NONE, x *tanh(SOFTPLUS(x)))
FLOAT_OP(Selu, ALPHA_AND("gamma", 1.67326319f, 1.05070102f),
         b *(x > 0 ? x : a * expm1(x)))
FLOAT_OP(Sigmoid, NONE, SIGMOID(x))
FLOAT_OP(Softplus, NONE, SOFTPLUS(x))
FLOAT_OP(Softsign, NONE, x / (1 + fabs(x)))
FLOAT_OP(Swish, ALPHA(1), x *SIGMOID(a *x))
// NaN gives 0, as every value that is not above the threshold does in ONNX.
FLOAT_OP(ThresholdedRelu, ALPHA(1), x > a ? x : 0)

// erfc avoids cancellation for negative x.
LB_FLOATS(ROW, GeluErf, 0.5f * x * erfc(x * (T)-0.70710678118654752440))
LB_FLOATS(ROW, GeluTanh,
          0.5f * x *
              (1 +
               tanh((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x))))
lb_status lb_reference_Gelu(lb_reference_call *c) {
  static lb_row_fn *const exact[LB_DTYPE_COUNT] = {LB_FLOATS(ENTRY, GeluErf, )};
  static lb_row_fn *const fast[LB_DTYPE_COUNT] = {LB_FLOATS(ENTRY, GeluTanh, )};
  const char *how = lb_attr_str(c->node, "approximate", "none");
  bool tanh_form = how[0] == 't';
  return run(c, tanh_form ? fast : exact, (args)NONE);
}

// Integers are computed in double, because bias and lambd are floats.
LB_FLOATS(ROW, Shrink, x<-b ? x + a : x> b ? x - a : 0)
lb_status lb_reference_Shrink(lb_reference_call *c) {
  static lb_row_fn *const rows[LB_DTYPE_COUNT] = {LB_FLOATS(ENTRY, Shrink, )};
  args bias_lambd = {attr(c, "bias", 0), attr(c, "lambd", 0.5f)};
  if (!lb_dtype_is_integer(c->in[0].dtype)) return run(c, rows, bias_lambd);
  lb_tensor x, y;
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_F64, &x));
  LB_TRY(lb_reference_temp(c, LB_F64, x.rank, x.dims, &y));
  LB_TRY(run_on(c, rows, &x, &y, bias_lambd));
  lb_convert(c->pool, &y, &c->out[0]);
  return LB_OK;
}

// -- predicates --------------------------------------------------------------

#define PREDICATE(id, S, T, load, store, Name, ...)                    \
  static void Name##_##id(const void *user, int64_t n, char *const *p, \
                          const int64_t *step) {                       \
    const bool a = ((const args *)user)->a != 0;                       \
    const bool b = ((const args *)user)->b != 0;                       \
    (void)a, (void)b;                                                  \
    for (int64_t i = 0; i < n; i++) {                                  \
      const T x = load(*(const S *)(p[1] + i * step[1]));              \
      *(lb_u8 *)(p[0] + i * step[0]) = (lb_u8)((__VA_ARGS__) != 0);    \
    }                                                                  \
  }

LB_FLOATS(PREDICATE, IsNaN, isnan(x))
OPERATOR(IsNaN, LB_FLOATS, NONE)

LB_FLOATS(PREDICATE, IsInf, isinf(x) && (x > 0 ? a : b))
OPERATOR(IsInf, LB_FLOATS,
         {(double)lb_attr_int(c->node, "detect_positive", 1),
          (double)lb_attr_int(c->node, "detect_negative", 1)})

// -- Clip --------------------------------------------------------------------

typedef struct clip_args {
  const void *lo, *hi;  // one element each, or NULL
} clip_args;

// If lo > hi, every element becomes hi.
#define CLIP(id, S, T, load, store, ...)                                   \
  static inline void clip_##id##_at(const void *user, int64_t n,           \
                                    char *const *p, const int64_t *step) { \
    const clip_args *arg = user;                                           \
    const T lo = arg->lo ? load(*(const S *)arg->lo) : 0;                  \
    const T hi = arg->hi ? load(*(const S *)arg->hi) : 0;                  \
    const bool low = arg->lo, high = arg->hi;                              \
    const char *from = p[1];                                               \
    char *to = p[0];                                                       \
    for (int64_t i = 0; i < n; i++) {                                      \
      T x = load(*(const S *)(from + i * step[1]));                        \
      x = low && x < lo ? lo : x;                                          \
      x = high && x > hi ? hi : x;                                         \
      *(S *)(to + i * step[0]) = store(x);                                 \
    }                                                                      \
  }                                                                        \
  LB_DENSE_ROW(clip_##id, sizeof(S), sizeof(S))
LB_NUMBERS(CLIP, )

// An absent limit is the largest finite number, so that infinities are clamped.
static const void *default_clip_limit(lb_dtype dtype, bool upper) {
  static const lb_f32 f32[] = {-FLT_MAX, FLT_MAX};
  static const lb_f64 f64[] = {-DBL_MAX, DBL_MAX};
  static const lb_bits16 f16[] = {0xfbff, 0x7bff}, bf16[] = {0xff7f, 0x7f7f};
  switch (dtype) {
    case LB_F32: return &f32[upper];
    case LB_F64: return &f64[upper];
    case LB_F16: return &f16[upper];
    case LB_BF16: return &bf16[upper];
    default: return NULL;
  }
}

static lb_status clip_limit(const lb_reference_call *c, uint32_t i,
                            const void **out) {
  *out = default_clip_limit(c->in[0].dtype, i == 2);
  if (i >= c->node->n_in || c->in[i].dtype == LB_NONE) return LB_OK;
  if (c->in[i].dtype != c->in[0].dtype || lb_tensor_count(&c->in[i]) != 1)
    return lb_error(LB_INVALID, "input %u must be one %s", i,
                    lb_dtype_name(c->in[0].dtype));
  *out = c->in[i].data;
  return LB_OK;
}

lb_status lb_reference_Clip(lb_reference_call *c) {
  static lb_row_fn *const rows[LB_DTYPE_COUNT] = {LB_NUMBERS(ENTRY, clip, )};
  lb_row_fn *row = rows[c->in[0].dtype];
  if (!row) return lb_reference_bad_dtype(c, c->in[0].dtype);
  clip_args arg;
  LB_TRY(clip_limit(c, 1, &arg.lo));
  LB_TRY(clip_limit(c, 2, &arg.hi));
  lb_iter_all(c->pool, 2, (const lb_tensor *[]){&c->out[0], &c->in[0]}, row,
              &arg);
  return LB_OK;
}

// -- Dropout -----------------------------------------------------------------

typedef struct drop_job {
  void *data;   // dense, already a copy of the input
  lb_u8 *mask;  // or NULL
  double ratio;
  uint64_t seed;
} drop_job;

// The random number in [0, 1) of element i, the same on any thread
// (splitmix64).
static double uniform(uint64_t seed, int64_t i) {
  uint64_t z = seed + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

#define DROP(id, S, T, load, store, ...)                                      \
  static void drop_##id(void *user, int64_t begin, int64_t end, int worker) { \
    const drop_job *job = user;                                               \
    (void)worker;                                                             \
    const T scale = (T)(1 / (1 - job->ratio));                                \
    S *y = job->data;                                                         \
    for (int64_t i = begin; i < end; i++) {                                   \
      bool keep = uniform(job->seed, i) >= job->ratio;                        \
      y[i] = store(keep ? load(y[i]) * scale : 0);                            \
      if (job->mask) job->mask[i] = keep;                                     \
    }                                                                         \
  }
LB_FLOATS(DROP, )

static lb_status drop(lb_reference_call *c, double ratio, const lb_tensor *y,
                      lb_u8 *mask) {
  static lb_pool_fn *const fns[LB_DTYPE_COUNT] = {LB_FLOATS(ENTRY, drop, )};
  lb_pool_fn *fn = fns[y->dtype];
  if (!fn) return lb_reference_bad_dtype(c, y->dtype);
  if (!(ratio >= 0 && ratio < 1))
    return lb_error(LB_INVALID, "ratio %g is not in [0, 1)", ratio);
  drop_job job = {y->data, mask, ratio, c->seed};
  if (lb_attr_has(c->node, "seed"))
    job.seed = (uint64_t)lb_attr_int(c->node, "seed", 0);
  lb_pool_for(c->pool, lb_tensor_count(y), LB_ITER_GRAIN, fn, &job);
  return LB_OK;
}

lb_status lb_reference_Dropout(lb_reference_call *c) {
  double ratio, training;
  LB_TRY(lb_reference_scalar(c, 1, 0.5, &ratio));
  LB_TRY(lb_reference_scalar(c, 2, 0, &training));
  bool masked = c->node->n_out > 1 && c->out[1].dtype != LB_NONE;
  lb_u8 *mask = masked ? c->out[1].data : NULL;
  const lb_tensor *x = &c->in[0];
  lb_tensor y = c->out[0];
  if (y.dtype == LB_NONE)  // only the mask is wanted
    LB_TRY(lb_reference_temp(c, x->dtype, x->rank, x->dims, &y));
  lb_convert(c->pool, x, &y);
  if (training != 0) return drop(c, ratio, &y, mask);
  if (mask) memset(mask, 1, lb_tensor_bytes(&c->out[1]));
  return LB_OK;
}
