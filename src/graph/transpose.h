// graph/transpose.h -- Transpose nodes as passes see them. Private to this
// module.
#ifndef LB_GRAPH_TRANSPOSE_H
#define LB_GRAPH_TRANSPOSE_H

#include "graph/rewrite.h"

typedef struct lb_transpose {
  lb_value *source;  // input of the Transpose
  int rank;
  int64_t perm[LB_MAX_RANK];  // axis i of the output is axis perm[i] of source
} lb_transpose;

// Matches the Transpose that produces v.
bool lb_transpose_of(const lb_value *v, lb_transpose *t);
// Whether it permutes channels last to channels first.
bool lb_transpose_to_first(const lb_transpose *t);
// Changes n into a Transpose of x.
lb_status lb_transpose_become(lb_rewrite *rw, lb_node *n, lb_value *x,
                              const lb_transpose *t);

// If n is a normalisation over groups of channels (or over each channel) whose
// input is transposed from channels last: computes it there with elementwise
// operators and reductions, and changes n into a Transpose of the result.
lb_status lb_transpose_norm(lb_rewrite *rw, lb_node *n);

#endif
