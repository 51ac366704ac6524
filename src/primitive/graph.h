// primitive/graph.h -- from a descriptor to a graph: the operator, and its
// post-operations, as nodes. What follows is what happens to every model.
#ifndef LB_PRIMITIVE_GRAPH_H
#define LB_PRIMITIVE_GRAPH_H

#include "graph/graph.h"
#include "primitive/desc.h"

#define LB_MAX_PORTS (LIMBER_MAX_OPERANDS + LIMBER_MAX_POST_OPS)

// What callers give, or get: dims in the order of ONNX.
typedef struct lb_port {
  const char *name;  // of the operand; in the graph's arena or static
  bool last;         // channels lie last: the graph sees [batch, space..., c]
  bool sum;          // operand of a sum: may be the memory of the result
} lb_port;

typedef struct lb_primitive_graph {
  lb_graph *graph;  // owned
  lb_port in[LB_MAX_PORTS], out[3];
  uint32_t n_in, n_out;
} lb_primitive_graph;

// The descriptor was checked. Constants are copied into the graph's arena. An
// error names the field, or the operator and the shapes that do not go
// together.
lb_status lb_primitive_graph_new(const lb_desc *d, lb_primitive_graph *out);
void lb_primitive_graph_fini(lb_primitive_graph *g);  // {0} is fine

#endif
