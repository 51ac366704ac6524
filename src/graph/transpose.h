// graph/transpose.h -- transposes as passes see them. Internal to the room.
#ifndef LB_GRAPH_TRANSPOSE_H
#define LB_GRAPH_TRANSPOSE_H

#include "graph/rewrite.h"

typedef struct lb_transpose {
  lb_value *source;  // what is transposed
  int rank;
  int64_t perm[LB_MAX_RANK];  // axis i of the output is axis perm[i] of source
} lb_transpose;

// The Transpose that makes v.
bool lb_transpose_of(const lb_value *v, lb_transpose *t);
// Is it a turn from channels last to channels first?
bool lb_transpose_to_first(const lb_transpose *t);
// Makes n a Transpose of x.
lb_status lb_transpose_become(lb_rewrite *rw, lb_node *n, lb_value *x,
                              const lb_transpose *t);

// If n is a normalisation over groups of channels (or over each channel), and
// these come from channels last: it is spelled out there, and n becomes a
// Transpose of the result.
lb_status lb_transpose_norm(lb_rewrite *rw, lb_node *n);

#endif
