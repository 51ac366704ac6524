// plan/sizes.h -- dims of all values of a graph, as numbers of distinct
// expressions.
//
// Found once at load, so that a plan has each expression evaluated once,
// however many values have it. A *size* is the value of such an expression at a
// signature; -1 while it is not known. Elements of shape arithmetic are sizes,
// too.
#ifndef LB_PLAN_SIZES_H
#define LB_PLAN_SIZES_H

#include "graph/graph.h"

typedef struct lb_sizes {
  lb_dim *dims;       // owned; distinct
  int64_t *known;     // owned; by number: the constant, or -1
  uint32_t n;         // of them
  uint32_t *numbers;  // owned; of one value after the other: dims, then `known`
                      // elements
  uint32_t *first;    // owned; by value id: in numbers
  int n_symbols;
} lb_sizes;

lb_status lb_sizes_init(lb_sizes *s, const lb_graph *g);
void lb_sizes_fini(lb_sizes *s);

// Numbers of the dims of v, whose rank is known.
static inline const uint32_t *lb_sizes_of(const lb_sizes *s,
                                          const lb_value *v) {
  return s->numbers + s->first[v->id];
}

#endif
