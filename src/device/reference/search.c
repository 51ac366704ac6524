// device/reference/search.c -- TopK, NonZero, Compress.
#include <string.h>

#include "device/reference/iter.h"
#include "device/reference/move.h"
#include "device/reference/order.h"

// -- TopK --------------------------------------------------------------------

// A lane is the set of elements along the axis. Keys are computed so that the
// smallest are wanted.
typedef struct topk_job {
  const lb_reference_call *c;
  int axis;
  bool largest;
  int64_t steps[LB_MAX_RANK];  // strides of the input, in bytes
  int64_t n, k;    // elements of a lane, and the number that is wanted
  int64_t inner;   // elements after the axis
  uint64_t *keys;  // n per worker
  int64_t *heaps;  // k per worker
} topk_job;

// Selects the k smallest of n in order; the heap has the largest of them on
// top.
static void select_first(const uint64_t *keys, int64_t n, int64_t k,
                         int64_t *heap) {
  for (int64_t i = 0; i < k; i++) heap[i] = i;
  lb_order_heap(keys, heap, k);
  for (int64_t i = k; i < n; i++) {
    if (keys[i] >= keys[heap[0]]) continue;
    heap[0] = i;
    lb_order_sink(keys, heap, k, 0);
  }
  for (int64_t n_left = k - 1; n_left > 0; n_left--) {
    int64_t last = heap[0];
    heap[0] = heap[n_left];
    heap[n_left] = last;
    lb_order_sink(keys, heap, n_left, 0);
  }
}

static const char *lane_start(const topk_job *job, int64_t lane) {
  const lb_tensor *x = &job->c->in[0];
  const char *p = x->data;
  for (int i = x->rank - 1; i >= 0; i--) {
    if (i == job->axis) continue;
    p += lane % x->dims[i] * job->steps[i];
    lane /= x->dims[i];
  }
  return p;
}

static void topk_write(const topk_job *job, int64_t lane, const char *from,
                       const int64_t *chosen) {
  const lb_reference_call *c = job->c;
  int64_t step = job->steps[job->axis];
  int64_t at = lane / job->inner * job->k * job->inner + lane % job->inner;
  size_t size = lb_dtype_size(c->in[0].dtype);
  for (int64_t i = 0; i < job->k; i++, at += job->inner) {
    if (lb_reference_wants(c, 0))
      memcpy((char *)c->out[0].data + (size_t)at * size,
             from + chosen[i] * step, size);
    if (lb_reference_wants(c, 1)) ((lb_i64 *)c->out[1].data)[at] = chosen[i];
  }
}

static void topk_lanes(void *user, int64_t begin, int64_t end, int worker) {
  const topk_job *job = user;
  uint64_t *keys = job->keys + worker * job->n;
  int64_t *heap = job->heaps + worker * job->k;
  for (int64_t lane = begin; lane < end; lane++) {
    const char *from = lane_start(job, lane);
    lb_order_keys(job->c->in[0].dtype, job->n, from, job->steps[job->axis],
                  keys);
    for (int64_t i = 0; i < job->n && job->largest; i++) keys[i] = ~keys[i];
    select_first(keys, job->n, job->k, heap);
    topk_write(job, lane, from, heap);
  }
}

static lb_status topk_scratch(lb_reference_call *c, topk_job *job) {
  size_t threads = (size_t)lb_pool_threads(c->pool);
  size_t keys = lb_mul_sat(lb_mul_sat((size_t)job->n, threads), 8);
  size_t heaps = lb_mul_sat(lb_mul_sat((size_t)job->k, threads), 8);
  job->keys = lb_arena_alloc(c->scratch, keys, 64);
  job->heaps = lb_arena_alloc(c->scratch, heaps, 64);
  return job->keys && job->heaps ? LB_OK : lb_oom();
}

lb_status lb_reference_TopK(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  const int64_t *k;
  int64_t n_k;
  topk_job job = {.c = c};
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", -1), x->rank,
                           &job.axis));
  LB_TRY(lb_reference_ints(c, 1, &k, &n_k));
  job.n = x->dims[job.axis];
  if (n_k != 1 || k[0] < 0 || k[0] > job.n)
    return lb_error(LB_INVALID, "K must be one number in [0, %lld]%s",
                    (long long)job.n, n_k == 1 ? "" : ", not several or none");
  job.k = k[0];
  job.largest = lb_attr_int(c->node, "largest", 1) != 0;
  int64_t count = lb_tensor_count(x);
  if (job.k == 0 || count == 0) return LB_OK;
  LB_TRY(lb_dims_count(x->rank - job.axis - 1, x->dims + job.axis + 1,
                       &job.inner));
  lb_byte_strides(x, job.steps);
  LB_TRY(topk_scratch(c, &job));
  lb_pool_for(c->pool, count / job.n, lb_grain(job.n), topk_lanes, &job);
  return LB_OK;
}

// -- NonZero -----------------------------------------------------------------

static int64_t count_ones(const lb_u8 *flags, int64_t n) {
  int64_t ones = 0;
  for (int64_t i = 0; i < n; i++) ones += flags[i] != 0;
  return ones;
}

// A scalar gives [0, n], as in ONNX, unlike numpy's [1, n].
lb_status lb_reference_NonZero(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  lb_tensor flags;
  LB_TRY(lb_reference_dense(c, x, LB_BOOL, &flags));
  const lb_u8 *is = flags.data;
  int64_t count = lb_tensor_count(x);
  int64_t n = count_ones(is, count), at = 0;
  LB_TRY(c->grow(c, 0, 2, (int64_t[]){x->rank, n}));
  lb_i64 *out = c->out[0].data;
  for (int64_t i = 0; i < count && at < n; i++) {
    if (!is[i]) continue;
    int64_t rem = i;
    for (int axis = x->rank - 1; axis >= 0; axis--) {
      out[axis * n + at] = rem % x->dims[axis];
      rem /= x->dims[axis];
    }
    at++;
  }
  return LB_OK;
}

// -- Compress ----------------------------------------------------------------

// The offsets of the selected elements along an axis of `dim` elements, `step`
// bytes apart.
static lb_status selected_offsets(lb_reference_call *c, int64_t dim,
                                  int64_t step, int64_t **out, int64_t *n) {
  const int64_t *condition;
  int64_t len;
  LB_TRY(lb_reference_ints(c, 1, &condition, &len));
  LB_TRY(lb_reference_ints_temp(c, len, out));
  *n = 0;
  for (int64_t i = 0; i < len; i++) {
    if (!condition[i]) continue;
    if (i >= dim)
      return lb_error(LB_INVALID,
                      "condition %lld is true, but the axis has %lld elements",
                      (long long)i, (long long)dim);
    (*out)[(*n)++] = i * step;
  }
  return LB_OK;
}

static lb_status compress_flat(lb_reference_call *c) {
  lb_tensor x;
  int64_t *at, n;
  LB_TRY(lb_reference_dense(c, &c->in[0], c->in[0].dtype, &x));
  size_t size = lb_dtype_size(x.dtype);
  LB_TRY(selected_offsets(c, lb_tensor_count(&x), (int64_t)size, &at, &n));
  LB_TRY(c->grow(c, 0, 1, &n));
  lb_gather p = {0};
  lb_gather_table(&p, n, at);
  lb_gather_run(c->pool, &p, size, x.data, c->out[0].data);
  return LB_OK;
}

lb_status lb_reference_Compress(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  if (!lb_attr_has(c->node, "axis")) return compress_flat(c);
  int axis;
  int64_t *at, n, steps[LB_MAX_RANK], dims[LB_MAX_RANK];
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  lb_byte_strides(x, steps);
  LB_TRY(selected_offsets(c, x->dims[axis], steps[axis], &at, &n));
  memcpy(dims, x->dims, sizeof dims);
  dims[axis] = n;
  LB_TRY(c->grow(c, 0, x->rank, dims));
  lb_gather p = {0};
  lb_gather_axes(&p, x, 0, axis);
  lb_gather_table(&p, n, at);
  lb_gather_axes(&p, x, axis + 1, x->rank);
  lb_gather_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, c->out[0].data);
  return LB_OK;
}
