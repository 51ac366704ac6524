// device/reference/reduce.c -- reductions, arg-reductions and cumulative sums.
//
// The axes of the input are kept or reduced. Adjacent outputs along the last
// kept axis are processed together, a block at a time, with one accumulator
// each: the additions of one output are in order (see reference.h), those of
// different outputs overlap or vectorise.
#include <math.h>
#include <string.h>
#include <tgmath.h>

#include "device/reference/elem.h"
#include "device/reference/iter.h"

#define BLOCK 64
// Outputs per block if adjacent ones are far apart in the input: more would
// compete for the same cache sets.
#define BLOCK_FAR 8

typedef struct reduction reduction;

// Reduces n outputs into `to`, dense; their first elements are at `from`,
// `step` bytes apart.
typedef void block_fn(const reduction *r, int64_t n, char *from, int64_t step,
                      char *to);

struct reduction {
  lb_iter inner;  // the reduced axes of the input
  int64_t count;  // elements per output; may be 0
  block_fn *fn;
  bool last;  // ArgMax, ArgMin: the last of equal elements wins
};

static void reduce_row(const void *user, int64_t n, char *const *p,
                       const int64_t *step) {
  const reduction *r = user;
  int64_t max_block = step[1] <= 64 && step[1] >= -64 ? BLOCK : BLOCK_FAR;
  for (int64_t at = 0; at < n; at += max_block) {
    int64_t len = n - at < max_block ? n - at : max_block;
    r->fn(r, len, p[1] + at * step[1], step[1], p[0] + at * step[0]);
  }
}

// A tensor of the axes of t in `mask`.
static lb_tensor select_axes(const lb_tensor *t, uint32_t mask) {
  lb_tensor part = {.dtype = t->dtype, .data = t->data};
  for (int i = 0; i < t->rank; i++) {
    if (!(mask >> i & 1)) continue;
    part.dims[part.rank] = t->dims[i];
    part.strides[part.rank++] = t->strides[i];
  }
  return part;
}

// Runs fn for all outputs; `axes` are the reduced axes.
static void reduce(lb_reference_call *c, uint32_t axes, block_fn *fn,
                   bool last) {
  lb_tensor kept = select_axes(&c->in[0], ~axes);
  if (lb_tensor_count(&kept) == 0) return;
  lb_tensor reduced = select_axes(&c->in[0], axes);
  lb_tensor out = kept;
  out.dtype = c->out[0].dtype;
  out.data = c->out[0].data;
  lb_tensor_dense(&out);
  reduction r = {.fn = fn, .last = last, .count = lb_tensor_count(&reduced)};
  if (r.count == 0) {  // nothing to read: data and strides are meaningless
    kept.data = out.data;
    memset(kept.strides, 0, sizeof kept.strides);
  }
  lb_iter_init(&r.inner, 1, (const lb_tensor *[]){&reduced});
  lb_iter outer;
  lb_iter_init(&outer, 2, (const lb_tensor *[]){&out, &kept});
  lb_iter_run(&outer, c->pool, lb_grain(r.count), reduce_row, &r);
}

// -- blocks ------------------------------------------------------------------

// Runs the code for every reduced element in order, without the first `skip` (0
// or 1), with `at`, its address for output 0.
#define EACH_REDUCED(skip, ...)                                  \
  do {                                                           \
    lb_iter_pos pos_ = {.p = {from}};                            \
    const int64_t row_ = r->inner.dims[r->inner.rank - 1];       \
    const int64_t far_ = r->inner.strides[0][r->inner.rank - 1]; \
    for (int64_t done_ = 0; done_ < r->count; done_ += row_) {   \
      for (int64_t k_ = done_ ? 0 : (skip); k_ < row_; k_++) {   \
        const char *at = pos_.p[0] + k_ * far_;                  \
        __VA_ARGS__                                              \
      }                                                          \
      if (done_ + row_ < r->count)                               \
        lb_iter_pos_advance(&r->inner, row_, &pos_);             \
    }                                                            \
  } while (0)

// Runs the code for each output j of the block with x, its element at `at`.
#define EACH_OUTPUT(S, load, at, ...)                    \
  do {                                                   \
    if (step == (int64_t)sizeof(S)) {                    \
      for (int64_t j = 0; j < n; j++) {                  \
        const T x = load(((const S *)(at))[j]);          \
        __VA_ARGS__                                      \
      }                                                  \
    } else {                                             \
      for (int64_t j = 0; j < n; j++) {                  \
        const T x = load(*(const S *)((at) + j * step)); \
        __VA_ARGS__                                      \
      }                                                  \
    }                                                    \
  } while (0)

// acc[j] = FIRST(x), then acc[j] = NEXT(a, x) where a is acc[j].
#define ACCUMULATE(S, load, acc, FIRST, NEXT)                    \
  do {                                                           \
    EACH_OUTPUT(S, load, from, acc[j] = (T)(FIRST););            \
    EACH_REDUCED(1, EACH_OUTPUT(S, load, at, const T a = acc[j]; \
                                acc[j] = (T)(NEXT);););          \
  } while (0)

// One reduction: EMPTY is the result for no elements, LAST computes the result
// from a, the accumulator, and count.
#define BLOCK_OF(id, S, TT, load, store, Name, EMPTY, FIRST, NEXT, LAST) \
  static void Name##_##id(const reduction *r, int64_t n, char *from,     \
                          int64_t step, char *to) {                      \
    typedef TT T;                                                        \
    T acc[BLOCK];                                                        \
    for (int64_t j = 0; j < n; j++) acc[j] = (T)(EMPTY);                 \
    if (r->count > 0) ACCUMULATE(S, load, acc, FIRST, NEXT);             \
    for (int64_t j = 0; j < n; j++) {                                    \
      const T a = acc[j];                                                \
      ((S *)to)[j] = store((T)(LAST));                                   \
    }                                                                    \
  }

// Sets acc[j] to the sum of TERM over all elements x of output j, where
// total[j] is initialised with the empty sum: chains in T, added in double.
#define SUM_UP(S, load, acc, total, TERM)                            \
  do {                                                               \
    int chain_ = 0;                                                  \
    for (int64_t j = 0; j < n; j++) acc[j] = (T)-0.0;                \
    EACH_REDUCED(                                                    \
        0, EACH_OUTPUT(S, load, at, acc[j] += (TERM););              \
        if (++chain_ == LB_REFERENCE_CHAIN) {                        \
          for (int64_t j = 0; j < n; j++)                            \
            total[j] += acc[j], acc[j] = (T)-0.0;                    \
          chain_ = 0;                                                \
        });                                                          \
    for (int64_t j = 0; j < n; j++) acc[j] = (T)(total[j] + acc[j]); \
  } while (0)

// A sum of floats; LAST computes the result from a, the sum, and count.
#define SUM_OF(id, S, TT, load, store, Name, TERM, LAST)                \
  static void Name##_##id(const reduction *r, int64_t n, char *from,    \
                          int64_t step, char *to) {                     \
    typedef TT T;                                                       \
    T acc[BLOCK];                                                       \
    double total[BLOCK];                                                \
    for (int64_t j = 0; j < n; j++) total[j] = r->count > 0 ? -0.0 : 0; \
    SUM_UP(S, load, acc, total, TERM);                                  \
    for (int64_t j = 0; j < n; j++) {                                   \
      const T a = acc[j];                                               \
      ((S *)to)[j] = store((T)(LAST));                                  \
    }                                                                   \
  }

#define ENTRY(id, S, T, load, store, Name, ...) [LB_##id] = Name##_##id,
#define OPERATOR(Name, LIST)                                            \
  lb_status lb_reference_##Name(lb_reference_call *c) {                 \
    static block_fn *const fns[LB_DTYPE_COUNT] = {LIST(ENTRY, Name, )}; \
    return run(c, fns);                                                 \
  }

static lb_status axes_of(lb_reference_call *c, uint32_t *out) {
  const lb_tensor *t = &c->in[0];
  const int64_t *list;
  int64_t n;
  LB_TRY(lb_reference_ints(c, 1, &list, &n));
  *out = 0;
  if (n == 0 && lb_attr_int(c->node, "noop_with_empty_axes", 0) == 0)
    *out = (1u << t->rank) - 1;
  for (int64_t i = 0; i < n; i++) {
    int axis;
    LB_TRY(lb_reference_axis(c, list[i], t->rank, &axis));
    *out |= 1u << axis;
  }
  return LB_OK;
}

static lb_status run(lb_reference_call *c, block_fn *const *fns) {
  block_fn *fn = fns[c->in[0].dtype];
  if (!fn) return lb_reference_bad_dtype(c, c->in[0].dtype);
  uint32_t axes = 0;
  LB_TRY(axes_of(c, &axes));
  reduce(c, axes, fn, false);
  return LB_OK;
}

// -- reductions --------------------------------------------------------------

#define COUNT ((T)r->count)
// Minimum of a signed T.
#define SIGNED_MIN LB_WRAP(T, 1, <<, 8 * sizeof(T) - 1)
#define SQUARE LB_WRAP(T, x, *, x)

LB_FLOATS(SUM_OF, ReduceSum, x, a)
LB_INTS(BLOCK_OF, ReduceSum, 0, x, LB_WRAP(T, a, +, x), a)
OPERATOR(ReduceSum, LB_NUMBERS)

// Sums of integers are divided as in C; a count that is 0 in the type gives 0.
LB_FLOATS(SUM_OF, ReduceMean, x, a / COUNT)
LB_SIGNED(BLOCK_OF, ReduceMean, 0, x, LB_WRAP(T, a, +, x),
          COUNT == 0 || COUNT == -1 ? 0 : a / COUNT)
LB_UNSIGNED(BLOCK_OF, ReduceMean, 0, x, LB_WRAP(T, a, +, x),
            COUNT == 0 ? 0 : a / COUNT)
OPERATOR(ReduceMean, LB_NUMBERS)

LB_FLOATS(BLOCK_OF, ReduceProd, 1, x, a *x, a)
LB_INTS(BLOCK_OF, ReduceProd, 1, x, LB_WRAP(T, a, *, x), a)
OPERATOR(ReduceProd, LB_NUMBERS)

LB_FLOATS(SUM_OF, ReduceSumSquare, x *x, a)
LB_INTS(BLOCK_OF, ReduceSumSquare, 0, SQUARE, LB_WRAP(T, a, +, SQUARE), a)
OPERATOR(ReduceSumSquare, LB_NUMBERS)

#define MAGNITUDE (x < 0 ? LB_WRAP(T, 0, -, x) : x)
LB_FLOATS(SUM_OF, ReduceL1, fabs(x), a)
LB_SIGNED(BLOCK_OF, ReduceL1, 0, MAGNITUDE, LB_WRAP(T, a, +, MAGNITUDE), a)
LB_UNSIGNED(BLOCK_OF, ReduceL1, 0, x, LB_WRAP(T, a, +, x), a)
OPERATOR(ReduceL1, LB_NUMBERS)

// A sum of squares that wrapped below zero has no root: the result is 0.
#define ROOT (a > 0 ? sqrt((double)a) : 0)
LB_FLOATS(SUM_OF, ReduceL2, x *x, sqrt(a))
LB_INTS(BLOCK_OF, ReduceL2, 0, SQUARE, LB_WRAP(T, a, +, SQUARE), ROOT)
OPERATOR(ReduceL2, LB_NUMBERS)

// Logarithms of integers are truncated; that of a sum that is not positive is
// 0.
#define LOG (a > 0 ? log((double)a) : 0)
LB_FLOATS(SUM_OF, ReduceLogSum, x, log(a))
LB_INTS(BLOCK_OF, ReduceLogSum, 0, x, LB_WRAP(T, a, +, x), LOG)
OPERATOR(ReduceLogSum, LB_NUMBERS)

#define EVERYTHING(X, ...)   \
  LB_NUMBERS(X, __VA_ARGS__) \
  LB_BOOLS(X, __VA_ARGS__)
// NaN is propagated.
LB_FLOATS(BLOCK_OF, ReduceMax, -INFINITY, x, a > x || isnan(a) ? a : x, a)
LB_SIGNED(BLOCK_OF, ReduceMax, SIGNED_MIN, x, a > x ? a : x, a)
LB_UNSIGNED(BLOCK_OF, ReduceMax, 0, x, a > x ? a : x, a)
LB_BOOLS(BLOCK_OF, ReduceMax, 0, x != 0, a || x, a)
OPERATOR(ReduceMax, EVERYTHING)

LB_FLOATS(BLOCK_OF, ReduceMin, INFINITY, x, a < x || isnan(a) ? a : x, a)
LB_SIGNED(BLOCK_OF, ReduceMin, ~SIGNED_MIN, x, a < x ? a : x, a)
LB_UNSIGNED(BLOCK_OF, ReduceMin, -1, x, a < x ? a : x, a)
LB_BOOLS(BLOCK_OF, ReduceMin, 1, x != 0, a &&x, a)
OPERATOR(ReduceMin, EVERYTHING)

// Computes log(sum(exp(x))) as top + log(sum(exp(x - top))), which does not
// overflow. An infinite top is not subtracted.
#define LOG_SUM_EXP(id, S, TT, load, store, ...)                              \
  static void ReduceLogSumExp_##id(const reduction *r, int64_t n, char *from, \
                                   int64_t step, char *to) {                  \
    typedef TT T;                                                             \
    T top[BLOCK], acc[BLOCK];                                                 \
    double total[BLOCK];                                                      \
    for (int64_t j = 0; j < n; j++) top[j] = 0, total[j] = 0;                 \
    if (r->count > 0) ACCUMULATE(S, load, top, x, a > x || isnan(a) ? a : x); \
    for (int64_t j = 0; j < n; j++) top[j] = isinf(top[j]) ? 0 : top[j];      \
    SUM_UP(S, load, acc, total, exp(x - top[j]));                             \
    for (int64_t j = 0; j < n; j++)                                           \
      ((S *)to)[j] = store(top[j] + log(acc[j]));                             \
  }
LB_FLOATS(LOG_SUM_EXP, )

// Integers are computed in double and truncated.
lb_status lb_reference_ReduceLogSumExp(lb_reference_call *c) {
  static block_fn *const fns[LB_DTYPE_COUNT] = {
      LB_FLOATS(ENTRY, ReduceLogSumExp, )};
  if (!lb_dtype_is_integer(c->in[0].dtype)) return run(c, fns);
  lb_tensor in[2] = {{0}}, out;
  lb_reference_call wide = *c;
  if (c->node->n_in > 1) in[1] = c->in[1];
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_F64, &in[0]));
  LB_TRY(lb_reference_temp(c, LB_F64, c->out[0].rank, c->out[0].dims, &out));
  wide.in = in, wide.out = &out;
  LB_TRY(run(&wide, fns));
  lb_convert(c->pool, &out, &c->out[0]);
  return LB_OK;
}

// -- ArgMax, ArgMin ----------------------------------------------------------

// AHEAD: x is better than a, the best so far. EQUAL: as good. Adjacent elements
// are selected without branches, so that the loop vectorises; others with a
// branch, because a better element is rare.
#define CHOOSE(S, load, at, AHEAD, EQUAL)                              \
  if (step == (int64_t)sizeof(S)) {                                    \
    for (int64_t j = 0; j < n; j++) {                                  \
      const T x = load(((const S *)(at))[j]), a = best[j];             \
      const bool is = (AHEAD) | (last & (EQUAL));                      \
      best[j] = is ? x : a;                                            \
      where[j] = is ? index : where[j];                                \
    }                                                                  \
  } else {                                                             \
    for (int64_t j = 0; j < n; j++) {                                  \
      const T x = load(*(const S *)((at) + j * step)), a = best[j];    \
      if ((AHEAD) || (last && (EQUAL))) best[j] = x, where[j] = index; \
    }                                                                  \
  }

#define ARG_BLOCK(id, S, TT, load, store, Name, AHEAD, EQUAL)        \
  static void Name##_##id(const reduction *r, int64_t n, char *from, \
                          int64_t step, char *to) {                  \
    typedef TT T;                                                    \
    T best[BLOCK];                                                   \
    int32_t where[BLOCK], index = 0;                                 \
    const bool last = r->last;                                       \
    EACH_OUTPUT(S, load, from, best[j] = x; where[j] = 0;);          \
    EACH_REDUCED(1, index++; CHOOSE(S, load, at, AHEAD, EQUAL));     \
    for (int64_t j = 0; j < n; j++) ((lb_i64 *)to)[j] = where[j];    \
  }

// NaN is better than any number, as in numpy; the first NaN wins.
#define SAME ((x == a) | ((x != x) & (a != a)))
LB_FLOATS(ARG_BLOCK, ArgMax, !(x <= a) & (a == a), SAME)
LB_INTS(ARG_BLOCK, ArgMax, x > a, x == a)
LB_FLOATS(ARG_BLOCK, ArgMin, !(x >= a) & (a == a), SAME)
LB_INTS(ARG_BLOCK, ArgMin, x < a, x == a)

static lb_status arg_reduce(lb_reference_call *c, block_fn *const *fns) {
  const lb_tensor *t = &c->in[0];
  if (!fns[t->dtype]) return lb_reference_bad_dtype(c, t->dtype);
  int axis;
  // A scalar is treated as a vector of one element.
  if (t->rank == 0) {
    *(lb_i64 *)c->out[0].data = 0;
    return LB_OK;
  }
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", 0), t->rank, &axis));
  if (t->dims[axis] == 0 && lb_tensor_count(&c->out[0]) > 0)
    return lb_error(LB_INVALID, "axis %d is empty: nothing to choose from",
                    axis);
  if (t->dims[axis] > INT32_MAX)
    return lb_error(LB_UNSUPPORTED, "axis %d has more than 2^31 elements",
                    axis);
  bool last = lb_attr_int(c->node, "select_last_index", 0) != 0;
  reduce(c, 1u << axis, fns[t->dtype], last);
  return LB_OK;
}

lb_status lb_reference_ArgMax(lb_reference_call *c) {
  static block_fn *const fns[LB_DTYPE_COUNT] = {LB_NUMBERS(ENTRY, ArgMax, )};
  return arg_reduce(c, fns);
}

lb_status lb_reference_ArgMin(lb_reference_call *c) {
  static block_fn *const fns[LB_DTYPE_COUNT] = {LB_NUMBERS(ENTRY, ArgMin, )};
  return arg_reduce(c, fns);
}

// -- CumSum, CumProd ---------------------------------------------------------

typedef struct scan_job {
  int64_t len, from_step, to_step;  // along the axis; bytes, may be negative
  bool exclusive;
} scan_job;

// The accumulator starts with the first element, so that -0 stays -0.
#define SCAN(id, S, TT, load, store, Name, EMPTY, NEXT)                  \
  static void Name##_##id(const void *user, int64_t n, char *const *p,   \
                          const int64_t *step) {                         \
    typedef TT T;                                                        \
    const scan_job *job = user;                                          \
    for (int64_t i = 0; i < n; i++) {                                    \
      const char *from = p[1] + i * step[1];                             \
      char *to = p[0] + i * step[0];                                     \
      T a = (T)(EMPTY);                                                  \
      for (int64_t k = 0; k < job->len; k++) {                           \
        const T x = load(*(const S *)(from + k * job->from_step));       \
        const T sum = k ? (T)(NEXT) : x;                                 \
        *(S *)(to + k * job->to_step) = store(job->exclusive ? a : sum); \
        a = sum;                                                         \
      }                                                                  \
    }                                                                    \
  }
LB_FLOATS(SCAN, CumSum, 0, a + x)
LB_INTS(SCAN, CumSum, 0, LB_WRAP(T, a, +, x))
LB_FLOATS(SCAN, CumProd, 1, a *x)
LB_INTS(SCAN, CumProd, 1, LB_WRAP(T, a, *, x))

// Reverses an axis of t: its last element comes first.
static void reverse(lb_tensor *t, int axis) {
  int64_t size = (int64_t)lb_dtype_size(t->dtype);
  t->data = (char *)t->data + (t->dims[axis] - 1) * t->strides[axis] * size;
  t->strides[axis] = -t->strides[axis];
}

static lb_status scan(lb_reference_call *c, lb_row_fn *const *rows) {
  lb_tensor x = c->in[0], y = c->out[0];
  if (!rows[x.dtype]) return lb_reference_bad_dtype(c, x.dtype);
  const int64_t *where;
  int64_t n;
  int axis;
  LB_TRY(lb_reference_ints(c, 1, &where, &n));
  if (n != 1) return lb_error(LB_INVALID, "the axis must be one integer");
  LB_TRY(lb_reference_axis(c, where[0], x.rank, &axis));
  if (lb_tensor_count(&x) == 0) return LB_OK;
  if (lb_attr_int(c->node, "reverse", 0) != 0) {
    reverse(&x, axis);
    reverse(&y, axis);
  }
  int64_t size = (int64_t)lb_dtype_size(x.dtype);
  scan_job job = {x.dims[axis], x.strides[axis] * size, y.strides[axis] * size,
                  lb_attr_int(c->node, "exclusive", 0) != 0};
  lb_tensor from = select_axes(&x, ~(1u << axis));
  lb_tensor to = select_axes(&y, ~(1u << axis));
  lb_iter it;
  lb_iter_init(&it, 2, (const lb_tensor *[]){&to, &from});
  lb_iter_run(&it, c->pool, lb_grain(job.len), rows[x.dtype], &job);
  return LB_OK;
}

lb_status lb_reference_CumSum(lb_reference_call *c) {
  static lb_row_fn *const rows[LB_DTYPE_COUNT] = {LB_NUMBERS(ENTRY, CumSum, )};
  return scan(c, rows);
}

lb_status lb_reference_CumProd(lb_reference_call *c) {
  static lb_row_fn *const rows[LB_DTYPE_COUNT] = {LB_NUMBERS(ENTRY, CumProd, )};
  return scan(c, rows);
}
