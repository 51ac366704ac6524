// device/reference/move.h -- moving elements without looking at them.
//
// Everything here works on bytes, so one function serves all dtypes. Sources
// have any strides and alignment.
#ifndef LB_DEVICE_REFERENCE_MOVE_H
#define LB_DEVICE_REFERENCE_MOVE_H

#include "device/reference/reference.h"

static inline bool lb_reference_has(const lb_reference_call *c, int i) {
  return i < (int)c->node->n_in && c->in[i].dtype != LB_NONE;
}

static inline bool lb_reference_wants(const lb_reference_call *c, int i) {
  return i < (int)c->node->n_out && c->out[i].dtype != LB_NONE;
}

// t without the elements of `axis` outside [begin, begin + n), which lies
// within the axis.
lb_tensor lb_cut(const lb_tensor *t, int axis, int64_t begin, int64_t n);

// Bytes from one element to the next along each axis, 0 where there is none:
// strides of an empty tensor may be too large to multiply.
void lb_byte_steps(const lb_tensor *t, int64_t *out);

// Copies elements; `from` broadcasts to the dims of `to`, which may have any
// strides. Same dtype, or at least same size of element. Transposes and short
// rows go tile by tile.
void lb_move(lb_pool *pool, const lb_tensor *from, const lb_tensor *to);

// Every element of `to` becomes the one at `element`; NULL means zero.
void lb_fill(lb_pool *pool, const lb_tensor *to, const void *element);

// A row-major output whose element [i,j,...] is the input's at the sum of one
// offset per axis. An axis is plain (i * step) or has a table. Make one with
// {0}, then add the axes, outermost first; plain ones that follow each other
// become one, so that whatever lies dense inside a table is one memcpy.
typedef struct lb_pick {
  int rank;
  int64_t count;  // of elements
  struct {
    int64_t dim;
    int64_t step;       // in bytes
    const int64_t *at;  // in bytes; NULL: plain. Borrowed.
  } axes[2 * LB_MAX_RANK];
} lb_pick;

void lb_pick_plain(lb_pick *p, int64_t dim, int64_t step);
void lb_pick_table(lb_pick *p, int64_t dim, const int64_t *at);
// Axes [begin, end) of t, as they are.
void lb_pick_axes(lb_pick *p, const lb_tensor *t, int begin, int end);
void lb_pick_run(lb_pool *pool, const lb_pick *p, size_t size, const void *from,
                 void *to);

// Room for n numbers in scratch, undefined.
lb_status lb_reference_table(lb_reference_call *c, int64_t n, int64_t **out);

#endif
