// device/reference/random.c -- operators that generate random tensors.
//
// The i-th number of a tensor is a hash of its seed and i, so that threads
// share no state and a seed gives the same numbers for any number of threads.
#include <math.h>
#include <string.h>

#include "device/reference/iter.h"
#include "device/reference/move.h"

#define BLOCK 256

// The finisher of splitmix64: every bit of the result depends on all of x.
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static uint64_t draw(uint64_t seed, uint64_t i) {
  return mix(seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

// The seed attribute if there is one; otherwise the seed of the call mixed with
// the node, so that two nodes of a request differ.
static uint64_t seed_of(const lb_reference_call *c) {
  if (!lb_attr_has(c->node, "seed"))
    return mix(c->seed + mix(c->node->id + UINT64_C(1)));
  float seed = lb_attr_float(c->node, "seed", 0);
  uint32_t bits;
  memcpy(&bits, &seed, sizeof bits);
  return mix(bits + UINT64_C(1));
}

// A number in [0, 1) with `bits` random bits, as many as a float of the dtype
// can represent there.
static double uniform(uint64_t seed, uint64_t i, int bits) {
  return ldexp((double)(draw(seed, i) >> (64 - bits)), -bits);
}

static int bits_of(lb_dtype t) {
  switch (t) {
    case LB_F32: return 24;
    case LB_F16: return 11;
    case LB_BF16: return 8;
    default: return 53;
  }
}

// The Box-Muller transform: a point on a circle whose radius is random.
static double normal(uint64_t seed, uint64_t i) {
  double radius = sqrt(-2 * log(1 - uniform(seed, 2 * i, 53)));
  return radius * cos(6.283185307179586 * uniform(seed, 2 * i + 1, 53));
}

// -- by distribution ---------------------------------------------------------

typedef struct random_job {
  const lb_tensor *out;
  uint64_t seed;
  bool gauss;
  double add, scale;
} random_job;

static void fill_random(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const random_job *job = user;
  double block[BLOCK];
  int bits = bits_of(job->out->dtype);
  size_t size = lb_dtype_size(job->out->dtype);
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    for (int64_t k = 0; k < n; k++) {
      uint64_t i = (uint64_t)(at + k);
      double x =
          job->gauss ? normal(job->seed, i) : uniform(job->seed, i, bits);
      block[k] = job->add + job->scale * x;
    }
    lb_tensor from = {LB_F64, 1, {n}, {1}, block};
    lb_tensor to = {job->out->dtype, 1, {n}, {1}, NULL};
    to.data = (char *)job->out->data + (size_t)at * size;
    lb_convert(NULL, &from, &to);
  }
}

static lb_status random_floats(lb_reference_call *c, bool gauss, double add,
                               double scale) {
  if (!lb_dtype_is_float(c->out[0].dtype))
    return lb_reference_bad_dtype(c, c->out[0].dtype);
  random_job job = {&c->out[0], seed_of(c), gauss, add, scale};
  lb_pool_for(c->pool, lb_tensor_count(&c->out[0]), LB_ITER_GRAIN, fill_random,
              &job);
  return LB_OK;
}

lb_status lb_reference_RandomNormal(lb_reference_call *c) {
  return random_floats(c, true, (double)lb_attr_float(c->node, "mean", 0),
                       (double)lb_attr_float(c->node, "scale", 1));
}

lb_status lb_reference_RandomUniform(lb_reference_call *c) {
  double low = (double)lb_attr_float(c->node, "low", 0);
  double high = (double)lb_attr_float(c->node, "high", 1);
  return random_floats(c, false, low, high - low);
}

lb_status lb_reference_RandomNormalLike(lb_reference_call *c) {
  return lb_reference_RandomNormal(c);
}

lb_status lb_reference_RandomUniformLike(lb_reference_call *c) {
  return lb_reference_RandomUniform(c);
}

// -- by probabilities --------------------------------------------------------

lb_status lb_reference_Bernoulli(lb_reference_call *c) {
  lb_tensor p, hits;
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_F64, &p));
  LB_TRY(lb_reference_temp(c, LB_BOOL, p.rank, p.dims, &hits));
  uint64_t seed = seed_of(c);
  int64_t n = lb_tensor_count(&p);
  for (int64_t i = 0; i < n; i++) {
    double u = uniform(seed, (uint64_t)i, 53);
    ((lb_u8 *)hits.data)[i] = u < ((const lb_f64 *)p.data)[i];
  }
  lb_convert(c->pool, &hits, &c->out[0]);
  return LB_OK;
}

// Replaces x by the running sums of exp(x), scaled so that they cannot
// overflow.
static lb_status sum_up(lb_f64 *x, int64_t n) {
  double top = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
  for (int64_t i = 0; i < n; i++) x[i] = sum += exp(x[i] - top);
  if (!(sum > 0 && isfinite(sum)))
    return lb_error(LB_INVALID,
                    "a row of %lld log-probabilities has no finite element, or "
                    "contains NaN or infinity",
                    (long long)n);
  return LB_OK;
}

// The first of n increasing sums that is above x, or the last.
static int64_t first_above(const lb_f64 *sums, int64_t n, double x) {
  int64_t lo = 0, hi = n - 1;
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2;
    if (sums[mid] > x)
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo;
}

lb_status lb_reference_Multinomial(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0], *y = &c->out[0];
  if (x->rank != 2 || y->rank != 2 || x->dims[0] != y->dims[0])
    return lb_error(LB_INVALID, "the input must be [batch, classes]");
  if (lb_tensor_count(y) == 0) return LB_OK;
  if (x->dims[1] == 0) return lb_error(LB_INVALID, "no classes to draw from");
  lb_tensor sums, drawn;
  // Always a copy, because the sums are computed in place.
  LB_TRY(lb_reference_temp(c, LB_F64, 2, x->dims, &sums));
  LB_TRY(lb_reference_temp(c, LB_I64, 2, y->dims, &drawn));
  lb_convert(c->pool, x, &sums);
  uint64_t seed = seed_of(c), i = 0;
  lb_i64 *out = drawn.data;
  for (int64_t row = 0; row < x->dims[0]; row++) {
    lb_f64 *s = (lb_f64 *)sums.data + row * x->dims[1];
    LB_TRY(sum_up(s, x->dims[1]));
    for (int64_t k = 0; k < y->dims[1]; k++, i++)
      out[i] =
          first_above(s, x->dims[1], uniform(seed, i, 53) * s[x->dims[1] - 1]);
  }
  lb_convert(c->pool, &drawn, y);
  return LB_OK;
}
