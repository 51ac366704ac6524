// device/reference/iter.h -- walks several strided tensors in step, row by row.
//
// The one way in which elementwise code meets strides and broadcasting: an
// operator says what to do with a row of n elements whose operands start at
// p[k] and lie step[k] bytes apart. Rows are as long as the layouts allow
// (axes that all operands walk as one are merged), so dense tensors come as
// one row, and a row function with a loop of its own for the dense case
// vectorises.
#ifndef LB_DEVICE_REFERENCE_ITER_H
#define LB_DEVICE_REFERENCE_ITER_H

#include <string.h>

#include "device/reference/reference.h"

#define LB_ITER_MAX 6

// Elements worth handing to another thread.
#define LB_ITER_GRAIN 16384

typedef struct lb_iter {
  int n;          // operands
  int rank;       // >= 1; the last axis is the row
  int64_t count;  // of elements
  int64_t dims[LB_MAX_RANK];
  int64_t strides[LB_ITER_MAX][LB_MAX_RANK];  // in bytes
  char *data[LB_ITER_MAX];                    // borrowed from the tensors
} lb_iter;

typedef void lb_row_fn(const void *user, int64_t n, char *const *p,
                       const int64_t *step);

// Makes the row function `name` of `name_at`, an inline one of the same
// parameters: once more for the steps given, so that the compiler may
// vectorise the loop for these.
#define LB_DENSE_ROW(name, ...)                                 \
  static void name(const void *user, int64_t n, char *const *p, \
                   const int64_t *step) {                       \
    static const int64_t dense[] = {__VA_ARGS__};               \
    if (memcmp(step, dense, sizeof dense) == 0)                 \
      name##_at(user, n, p, dense);                             \
    else                                                        \
      name##_at(user, n, p, step);                              \
  }

// Operand 0 sets the dims; the others broadcast to them as in ONNX.
void lb_iter_init(lb_iter *it, int n, const lb_tensor *const *operands);

// Calls fn over all rows, in pieces of `grain` elements on the pool (which may
// be NULL). Pieces may cut a row.
void lb_iter_run(const lb_iter *it, lb_pool *pool, int64_t grain, lb_row_fn *fn,
                 const void *user);

// Both at once, with the usual grain.
void lb_each(lb_pool *pool, int n, const lb_tensor *const *operands,
             lb_row_fn *fn, const void *user);

// Items of `cost` elements each that make a piece worth a thread.
static inline int64_t lb_grain(int64_t cost) {
  return cost < LB_ITER_GRAIN ? LB_ITER_GRAIN / (cost < 1 ? 1 : cost) : 1;
}

// A place in an iteration, for loops of one's own: {.p = {...}} is the start.
typedef struct lb_iter_pos {
  int64_t index[LB_MAX_RANK];
  char *p[LB_ITER_MAX];
} lb_iter_pos;

void lb_iter_pos_seek(const lb_iter *it, int64_t element, lb_iter_pos *w);
// n elements on, which is at most to the end of the row.
void lb_iter_pos_on(const lb_iter *it, int64_t n, lb_iter_pos *w);

// lb_reference_convert on a pool; `from` broadcasts to the dims of `to`.
void lb_convert(lb_pool *pool, const lb_tensor *from, const lb_tensor *to);

// A dense tensor in scratch, contents undefined.
lb_status lb_reference_temp(lb_reference_call *c, lb_dtype dtype, int rank,
                            const int64_t *dims, lb_tensor *out);

#endif
