// worker/operand.h -- operands to try a kernel on: memory with nothing mapped
// around it, laid out as the spec says, filled with numbers that find mistakes.
#ifndef LB_WORKER_OPERAND_H
#define LB_WORKER_OPERAND_H

#include "spec/spec.h"

typedef struct lb_test_operand {
  lb_dtype dtype;
  int64_t row_stride, col_stride;  // in elements
  size_t count;                    // elements from first to last, gaps included
  uint8_t *data;                   // in `base`
  uint8_t *base;                   // owned mapping; NULL: none yet
  size_t mapped;                   // bytes of it that can be read
} lb_test_operand;

typedef struct lb_random {
  uint64_t state;  // not 0
} lb_random;

uint64_t lb_random_next(lb_random *r);

// Where o lies over rows x cols, with gaps where the layout allows them; but
// for `data`. False if it is too large to try.
bool lb_test_operand_shape(lb_test_operand *o, lb_soperand s, int64_t rows,
                           int64_t cols);
// The panels of a matrix of k x cols, likewise.
bool lb_test_operand_pack(lb_test_operand *o, lb_soperand s, int64_t k,
                          int64_t cols);

// Gives it memory. What comes right behind, or right before if `low`, may not
// be touched.
lb_status lb_test_operand_map(lb_test_operand *o, bool low);
void lb_test_operand_fini(lb_test_operand *o);  // {0} is fine

// Any numbers of the dtype; `wild`: infinities, NaN, denormals, extremes too.
void lb_test_operand_fill(lb_test_operand *o, lb_random *r, bool wild);
uint64_t lb_random_bits(lb_random *r, lb_dtype t, bool wild);  // of an element
// Columns past `cols` of such a matrix are zero.
void lb_test_operand_pad(lb_test_operand *o, lb_soperand s, int64_t k,
                         int64_t cols);

static inline size_t lb_test_operand_bytes(const lb_test_operand *o) {
  return o->count * lb_dtype_size(o->dtype);
}

#endif
