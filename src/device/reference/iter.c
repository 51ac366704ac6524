// device/reference/iter.c -- see iter.h.
#include "device/reference/iter.h"

#include <assert.h>
#include <string.h>

// The byte stride of operand t along axis i of the result.
static int64_t step_of(const lb_tensor *t, int rank, int i) {
  int own = i - (rank - t->rank);
  if (own < 0 || t->dims[own] == 1) return 0;
  return t->strides[own] * (int64_t)lb_dtype_size(t->dtype);
}

// Returns whether the last axis of `it` and a new one inside it, of `dim`
// elements with these steps, can be merged for every operand.
static bool merges(const lb_iter *it, int64_t dim, const int64_t *step) {
  if (it->rank == 0) return false;
  for (int k = 0; k < it->n; k++)
    if (it->strides[k][it->rank - 1] != step[k] * dim) return false;
  return true;
}

static void add_axis(lb_iter *it, int64_t dim, const int64_t *step) {
  bool merge = merges(it, dim, step);
  int at = merge ? it->rank - 1 : it->rank++;
  it->dims[at] = merge ? it->dims[at] * dim : dim;
  for (int k = 0; k < it->n; k++) it->strides[k][at] = step[k];
}

void lb_iter_init(lb_iter *it, int n, const lb_tensor *const *operands) {
  assert(n >= 1 && n <= LB_ITER_MAX);
  const lb_tensor *lead = operands[0];
  *it = (lb_iter){.n = n, .count = lb_tensor_count(lead)};
  for (int k = 0; k < n; k++) {
    assert(operands[k]->rank <= lead->rank);
    it->data[k] = operands[k]->data;
  }
  // If there are no elements, dims and strides may be too large to multiply.
  for (int i = 0; i < lead->rank && it->count > 0; i++) {
    int64_t step[LB_ITER_MAX];
    if (lead->dims[i] == 1) continue;
    for (int k = 0; k < n; k++) step[k] = step_of(operands[k], lead->rank, i);
    add_axis(it, lead->dims[i], step);
  }
  if (it->rank == 0) it->dims[it->rank++] = it->count > 0;
}

typedef struct rows_job {
  const lb_iter *it;
  lb_row_fn *fn;
  const void *user;
} rows_job;

void lb_iter_pos_seek(const lb_iter *it, int64_t element, lb_iter_pos *w) {
  memcpy(w->p, it->data, sizeof w->p);
  for (int i = it->rank - 1; i >= 0; i--) {
    w->index[i] = element % it->dims[i];
    element /= it->dims[i];
    for (int k = 0; k < it->n; k++) w->p[k] += w->index[i] * it->strides[k][i];
  }
}

void lb_iter_pos_advance(const lb_iter *it, int64_t n, lb_iter_pos *w) {
  int i = it->rank - 1;
  for (int64_t by = n;; by = 1) {
    w->index[i] += by;
    for (int k = 0; k < it->n; k++) w->p[k] += by * it->strides[k][i];
    if (w->index[i] < it->dims[i] || i == 0) return;
    for (int k = 0; k < it->n; k++) w->p[k] -= it->dims[i] * it->strides[k][i];
    w->index[i--] = 0;
  }
}

static void run_rows(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const rows_job *job = user;
  const lb_iter *it = job->it;
  int row = it->rank - 1;
  int64_t step[LB_ITER_MAX] = {0};
  for (int k = 0; k < it->n; k++) step[k] = it->strides[k][row];
  lb_iter_pos w;
  lb_iter_pos_seek(it, begin, &w);
  while (begin < end) {
    int64_t n = it->dims[row] - w.index[row];
    if (n > end - begin) n = end - begin;
    job->fn(job->user, n, w.p, step);
    begin += n;
    if (begin < end) lb_iter_pos_advance(it, n, &w);
  }
}

void lb_iter_run(const lb_iter *it, lb_pool *pool, int64_t grain, lb_row_fn *fn,
                 const void *user) {
  if (it->count == 0) return;
  rows_job job = {it, fn, user};
  lb_pool_for(pool, it->count, grain, run_rows, &job);
}

void lb_iter_all(lb_pool *pool, int n, const lb_tensor *const *operands,
                 lb_row_fn *fn, const void *user) {
  lb_iter it;
  lb_iter_init(&it, n, operands);
  lb_iter_run(&it, pool, LB_ITER_GRAIN, fn, user);
}
