// worker/operand.h -- Operands for checking kernels: memory between guard
// pages, in the layout of the spec, filled with numbers that reveal errors.
#ifndef LB_WORKER_OPERAND_H
#define LB_WORKER_OPERAND_H

#include "spec/spec.h"

typedef struct lb_test_operand {
  lb_dtype dtype;
  int64_t row_stride, col_stride;  // in elements
  size_t count;   // elements from first to last, including gaps
  uint8_t *data;  // in `base`
  uint8_t *base;  // owned mapping; NULL: none yet
  size_t mapped;  // accessible bytes of it
} lb_test_operand;

typedef struct lb_random {
  uint64_t state;  // not 0
} lb_random;

uint64_t lb_random_next(lb_random *r);

// Sets everything but `data` for a matrix of rows x cols, with gaps where the
// layout allows them. False if it is too large to check.
bool lb_test_operand_shape(lb_test_operand *o, lb_soperand s, int64_t rows,
                           int64_t cols);
// The same for the panels of a matrix of k x cols.
bool lb_test_operand_pack(lb_test_operand *o, lb_soperand s, int64_t k,
                          int64_t cols);

// Maps memory for it. The memory right after it, or right before it if `low`,
// is not accessible.
lb_status lb_test_operand_map(lb_test_operand *o, bool low);
void lb_test_operand_fini(lb_test_operand *o);  // {0} is fine

// Fills it with random numbers of the dtype; `special`: infinities, NaN,
// denormals and extremes, too.
void lb_test_operand_fill(lb_test_operand *o, lb_random *r, bool special);
uint64_t lb_random_bits(lb_random *r, lb_dtype t,
                        bool special);  // of one element
// Zeroes the columns past `cols` of such panels.
void lb_test_operand_pad(lb_test_operand *o, lb_soperand s, int64_t k,
                         int64_t cols);

static inline size_t lb_test_operand_bytes(const lb_test_operand *o) {
  return o->count * lb_dtype_size(o->dtype);
}

#endif
