// plan/sizes.h -- numbers the distinct dim expressions of a graph.
//
// This happens once, at load, so that a plan evaluates each expression once
// however many values have it. A *size* is the value of an expression at a
// signature; -1 while it is not known. Elements of shape arithmetic are
// numbered as well.
#ifndef LB_PLAN_SIZES_H
#define LB_PLAN_SIZES_H

#include "graph/graph.h"

typedef struct lb_sizes {
  lb_dim *dims;       // owned; distinct
  int64_t *known;     // owned; by expression number: its value if constant, or
                      // -1
  uint32_t n;         // number of expressions
  uint32_t *numbers;  // owned; for each value: numbers of its dims, then of its
                      // `known` elements
  uint32_t *first;    // owned; by value id: index in numbers
  int n_symbols;
} lb_sizes;

lb_status lb_sizes_init(lb_sizes *s, const lb_graph *g);
void lb_sizes_fini(lb_sizes *s);

// Expression numbers of the dims of v, whose rank is known.
static inline const uint32_t *lb_sizes_of(const lb_sizes *s,
                                          const lb_value *v) {
  return s->numbers + s->first[v->id];
}

#endif
