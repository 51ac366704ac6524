// plan/view.h -- skipped operators as metadata: an output is the input with
// other dims, strides and offset.
#ifndef LB_PLAN_VIEW_H
#define LB_PLAN_VIEW_H

#include "graph/skip.h"

// Computes output `index` of a node whose skip rule has answered VIEW or SAME
// with `proof`. `from` has the strides of the input that the proof names; `out`
// has dtype and dims, and gets strides. *offset is in elements from the start
// of that input. Returns false if it is not expressible with strides (a reshape
// of a strided view). For a node marked `in_order`, q->in and q->out may be
// NULL.
bool lb_view_try(const lb_skip_query *q, const lb_proof *proof,
                 const lb_tensor *from, uint32_t index, lb_tensor *out,
                 int64_t *offset);

// Splits and merges axes. Sets the strides of `out`, whose dims are set, so
// that it visits the memory of `from` in the same order; false if no strides
// do.
bool lb_view_reshape_strides(const lb_tensor *from, lb_tensor *out);

#endif
