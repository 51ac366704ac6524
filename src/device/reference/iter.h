// device/reference/iter.h -- iterates over several strided tensors in lockstep,
// row by row.
//
// All elementwise code handles strides and broadcasting through this: an
// operator provides a function for a row of n elements whose operands start at
// p[k] and are step[k] bytes apart. Rows are as long as the layouts allow (axes
// that can be merged for all operands are merged), so dense tensors are one
// row, and a row function with a separate loop for the dense case vectorises.
#ifndef LB_DEVICE_REFERENCE_ITER_H
#define LB_DEVICE_REFERENCE_ITER_H

#include <string.h>

#include "device/reference/reference.h"

#define LB_ITER_MAX 6

// Minimum number of elements per task of the pool.
#define LB_ITER_GRAIN 16384

typedef struct lb_iter {
  int n;          // number of operands
  int rank;       // >= 1; the last axis is the row
  int64_t count;  // total number of elements
  int64_t dims[LB_MAX_RANK];
  int64_t strides[LB_ITER_MAX][LB_MAX_RANK];  // bytes
  char *data[LB_ITER_MAX];                    // borrowed from the tensors
} lb_iter;

typedef void lb_row_fn(const void *user, int64_t n, char *const *p,
                       const int64_t *step);

// Defines the row function `name` from `name_at`, an inline function with the
// same parameters: it is instantiated a second time for the given steps, so
// that the compiler can vectorise the loop for them.
#define LB_DENSE_ROW(name, ...)                                 \
  static void name(const void *user, int64_t n, char *const *p, \
                   const int64_t *step) {                       \
    static const int64_t dense[] = {__VA_ARGS__};               \
    if (memcmp(step, dense, sizeof dense) == 0)                 \
      name##_at(user, n, p, dense);                             \
    else                                                        \
      name##_at(user, n, p, step);                              \
  }

// Operand 0 sets the dims; the other operands broadcast to them as in ONNX.
void lb_iter_init(lb_iter *it, int n, const lb_tensor *const *operands);

// Calls fn for all rows, in pieces of `grain` elements on the pool (which may
// be NULL). A piece may end inside a row.
void lb_iter_run(const lb_iter *it, lb_pool *pool, int64_t grain, lb_row_fn *fn,
                 const void *user);

// lb_iter_init and lb_iter_run, with the default grain.
void lb_iter_all(lb_pool *pool, int n, const lb_tensor *const *operands,
                 lb_row_fn *fn, const void *user);

// The grain for items of `cost` elements each.
static inline int64_t lb_grain(int64_t cost) {
  return cost < LB_ITER_GRAIN ? LB_ITER_GRAIN / (cost < 1 ? 1 : cost) : 1;
}

// A position of an iteration, for custom loops: {.p = {...}} is the start.
typedef struct lb_iter_pos {
  int64_t index[LB_MAX_RANK];
  char *p[LB_ITER_MAX];
} lb_iter_pos;

void lb_iter_pos_seek(const lb_iter *it, int64_t element, lb_iter_pos *w);
// Advances by n elements, at most to the end of the row.
void lb_iter_pos_advance(const lb_iter *it, int64_t n, lb_iter_pos *w);

// lb_reference_convert on a pool; `from` broadcasts to the dims of `to`.
void lb_convert(lb_pool *pool, const lb_tensor *from, const lb_tensor *to);

// A dense tensor in scratch, contents undefined.
lb_status lb_reference_temp(lb_reference_call *c, lb_dtype dtype, int rank,
                            const int64_t *dims, lb_tensor *out);

#endif
