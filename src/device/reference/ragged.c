// device/reference/ragged.c -- RaggedAttention and SegmentSum: sequences of
// different lengths as segments of one tensor.
#include <string.h>

#include "device/reference/iter.h"
#include "device/reference/lines.h"

typedef struct segments {
  const int64_t *begin;  // n + 1 rows
  int64_t n;
} segments;

// Rows must ascend from 0 to `rows`.
static lb_status read_segments(lb_reference_call *c, int input, int64_t rows,
                               segments *out) {
  int64_t count;
  LB_TRY(lb_reference_ints(c, input, &out->begin, &count));
  out->n = count - 1;
  bool ok = count > 0 && out->begin[0] == 0 && out->begin[out->n] == rows;
  for (int64_t i = 0; ok && i < out->n; i++)
    ok = out->begin[i] <= out->begin[i + 1];
  return ok ? LB_OK
            : lb_error(LB_INTERNAL, "the segments do not divide %lld rows",
                       (long long)rows);
}

// -- RaggedAttention ---------------------------------------------------------

enum { Q, K, V, SEGMENTS };  // inputs

// Rows [from, to) of t: [1, rows, heads * size] or [1, heads, rows, size].
static lb_tensor rows_of(const lb_tensor *t, int64_t from, int64_t to) {
  lb_tensor out = *t;
  int axis = t->rank - 2;
  out.dims[axis] = to - from;
  if (t->data)
    out.data = (char *)t->data +
               from * t->strides[axis] * (int64_t)lb_dtype_size(t->dtype);
  return out;
}

static lb_status attend(lb_reference_call *c, int64_t from, int64_t to) {
  lb_tensor in[SEGMENTS + 1] = {{0}}, y = rows_of(&c->out[0], from, to), dense;
  for (int i = Q; i <= V; i++) in[i] = rows_of(&c->in[i], from, to);
  LB_TRY(lb_reference_temp(c, y.dtype, y.rank, y.dims, &dense));
  lb_reference_call one = *c;
  one.in = in;
  one.out = &dense;
  LB_TRY(lb_reference_Attention(&one));
  lb_convert(c->pool, &dense, &y);
  return LB_OK;
}

lb_status lb_reference_RaggedAttention(lb_reference_call *c) {
  segments s;
  const lb_tensor *q = &c->in[Q];
  LB_TRY(read_segments(c, SEGMENTS, q->dims[q->rank - 2], &s));
  for (int64_t i = 0; i < s.n; i++)
    if (s.begin[i] < s.begin[i + 1])
      LB_TRY(attend(c, s.begin[i], s.begin[i + 1]));
  return LB_OK;
}

// -- SegmentSum --------------------------------------------------------------

typedef struct sum_job {
  segments s;
  const lb_f32 *x;
  lb_f32 *y;
  int64_t cols;
  char *buffers;  // per worker: a chain and a total for each column
} sum_job;

// See reference.h for the order of the additions.
static void sum_segment(const sum_job *job, int64_t at, int worker) {
  int64_t cols = job->cols;
  size_t buffer = (size_t)cols * (sizeof(double) + sizeof(float));
  char *memory = job->buffers + (size_t)worker * buffer;
  double *total = (double *)(void *)memory;
  float *chain = (float *)(void *)(total + cols);
  int64_t row = job->s.begin[at], end = job->s.begin[at + 1];
  for (int64_t k = 0; k < cols; k++) total[k] = row < end ? -0.0 : 0.0;
  while (row < end) {
    int64_t stop =
        end - row < LB_REFERENCE_CHAIN ? end : row + LB_REFERENCE_CHAIN;
    for (int64_t k = 0; k < cols; k++) chain[k] = -0.0F;
    for (; row < stop; row++)
      for (int64_t k = 0; k < cols; k++) chain[k] += job->x[row * cols + k];
    for (int64_t k = 0; k < cols; k++) total[k] += (double)chain[k];
  }
  for (int64_t k = 0; k < cols; k++) job->y[at * cols + k] = (float)total[k];
}

static void sum_segments(void *user, int64_t begin, int64_t end, int worker) {
  for (int64_t i = begin; i < end; i++) sum_segment(user, i, worker);
}

lb_status lb_reference_SegmentSum(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  sum_job job = {.cols = lb_axes_count(x, ~3u), .y = c->out[0].data};
  size_t threads = (size_t)lb_pool_threads(c->pool);
  lb_tensor dense;
  LB_TRY(read_segments(c, 1, x->dims[1], &job.s));
  LB_TRY(lb_reference_dense(c, x, LB_F32, &dense));
  job.x = dense.data;
  size_t each = sizeof(double) + sizeof(float);
  size_t bytes = lb_mul_sat((size_t)job.cols, each);
  job.buffers = lb_arena_alloc(c->scratch, lb_mul_sat(bytes, threads), 64);
  if (!job.buffers) return lb_oom();
  int64_t average = job.s.n ? x->dims[1] / job.s.n : 0;
  lb_pool_for(c->pool, job.s.n, lb_grain((average + 1) * job.cols),
              sum_segments, &job);
  return LB_OK;
}
