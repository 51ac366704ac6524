// device/reference/move.h -- copies elements without interpreting them.
//
// Everything here works on bytes, so one function serves all dtypes. Sources
// may have any strides and alignment.
#ifndef LB_DEVICE_REFERENCE_MOVE_H
#define LB_DEVICE_REFERENCE_MOVE_H

#include "device/reference/reference.h"

static inline bool lb_reference_has(const lb_reference_call *c, int i) {
  return i < (int)c->node->n_in && c->in[i].dtype != LB_NONE;
}

static inline bool lb_reference_wants(const lb_reference_call *c, int i) {
  return i < (int)c->node->n_out && c->out[i].dtype != LB_NONE;
}

// A view of t, restricted to [begin, begin + n) along `axis`; the range must be
// within the axis.
lb_tensor lb_narrow(const lb_tensor *t, int axis, int64_t begin, int64_t n);

// Byte strides of each axis, 0 for axes of length 1 and for empty tensors,
// whose strides may be too large to multiply.
void lb_byte_strides(const lb_tensor *t, int64_t *out);

// Copies elements; `from` broadcasts to the dims of `to`, which may have any
// strides. The dtypes must have the same element size. Transposes and short
// rows are copied tile by tile.
void lb_move(lb_pool *pool, const lb_tensor *from, const lb_tensor *to);

// Sets every element of `to` to the one at `element`; NULL means zero.
void lb_fill(lb_pool *pool, const lb_tensor *to, const void *element);

// A gather: element [i,j,...] of a row-major output is read from the input at
// the sum of one offset per axis. An axis is strided (i * step) or has a table
// of offsets. Start with {0} and add the axes, outermost first; adjacent
// strided axes are merged where possible, so that data that is dense within a
// table entry is one memcpy.
typedef struct lb_gather {
  int rank;
  int64_t count;  // total number of elements
  struct {
    int64_t dim;
    int64_t step;       // bytes
    const int64_t *at;  // offsets in bytes, borrowed; NULL: strided
  } axes[2 * LB_MAX_RANK];
} lb_gather;

void lb_gather_strided(lb_gather *p, int64_t dim, int64_t step);
void lb_gather_table(lb_gather *p, int64_t dim, const int64_t *at);
// Adds axes [begin, end) of t as strided axes.
void lb_gather_axes(lb_gather *p, const lb_tensor *t, int begin, int end);
void lb_gather_run(lb_pool *pool, const lb_gather *p, size_t size,
                   const void *from, void *to);

// Allocates n integers in scratch, uninitialised.
lb_status lb_reference_ints_temp(lb_reference_call *c, int64_t n,
                                 int64_t **out);

#endif
