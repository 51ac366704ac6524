// device/reference/lines.c -- see lines.h.
#include "device/reference/lines.h"

#include "device/reference/iter.h"

lb_tensor lb_axes_last(const lb_tensor *t, uint32_t axes) {
  lb_tensor out = *t;
  int at = 0;
  for (uint32_t back = 0; back < 2; back++) {
    for (int i = 0; i < t->rank; i++) {
      if ((axes >> i & 1) != back) continue;
      out.dims[at] = t->dims[i];
      out.strides[at++] = t->strides[i];
    }
  }
  return out;
}

// If another axis is empty the product may overflow; it is not used then.
int64_t lb_axes_count(const lb_tensor *t, uint32_t axes) {
  int64_t count = 1;
  for (int i = 0; i < t->rank; i++)
    if (axes >> i & 1)
      count = (int64_t)((uint64_t)count * (uint64_t)t->dims[i]);
  return count;
}

typedef struct lines_job {
  const char *x;
  char *y;
  int64_t len, bytes;  // of one line
  lb_line_fn *fn;
  const void *user;
} lines_job;

static void run_lines(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const lines_job *job = user;
  for (int64_t i = begin; i < end; i++)
    job->fn(job->user, job->len, job->x + i * job->bytes,
            job->y + i * job->bytes);
}

lb_status lb_lines_run(lb_reference_call *c, const lb_tensor *in,
                       const lb_tensor *out, uint32_t axes, lb_line_fns fns,
                       const void *user) {
  if (!lb_dtype_is_float(in->dtype))
    return lb_reference_bad_dtype(c, in->dtype);
  int64_t count = lb_tensor_count(in);
  if (count == 0) return LB_OK;
  lb_dtype work = lb_line_dtype(in->dtype);
  lb_tensor from = lb_axes_last(in, axes), to = lb_axes_last(out, axes);
  lb_tensor x, y = to;
  LB_TRY(lb_reference_dense(c, &from, work, &x));
  bool direct = to.dtype == work && lb_tensor_is_dense(&to);
  if (!direct) LB_TRY(lb_reference_temp(c, work, to.rank, to.dims, &y));
  int64_t len = lb_axes_count(in, axes);
  lines_job job = {.x = x.data,
                   .y = y.data,
                   .len = len,
                   .bytes = len * (int64_t)lb_dtype_size(work),
                   .fn = work == LB_F64 ? fns.f64 : fns.f32,
                   .user = user};
  lb_pool_for(c->pool, count / len, lb_grain(len), run_lines, &job);
  if (!direct) lb_convert(c->pool, &y, &to);
  return LB_OK;
}
