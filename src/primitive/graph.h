// primitive/graph.h -- builds the graph of a primitive: the operator and its
// post-operations as nodes. From there on it is treated like any model.
#ifndef LB_PRIMITIVE_GRAPH_H
#define LB_PRIMITIVE_GRAPH_H

#include "graph/graph.h"
#include "primitive/desc.h"

#define LB_MAX_PORTS (LIMBER_MAX_OPERANDS + LIMBER_MAX_POST_OPS)

// An input or output of a primitive. Callers see its dims in ONNX order.
typedef struct lb_port {
  const char *name;  // of the operand; in the graph's arena or static
  // The layout is channels-last: the graph sees [batch, spatial..., channels].
  bool channels_last;
  bool sum;  // the operand of a sum, which may be the memory of the result
} lb_port;

typedef struct lb_primitive_graph {
  lb_graph *graph;  // owned
  lb_port in[LB_MAX_PORTS], out[3];
  uint32_t n_in, n_out;
} lb_primitive_graph;

// Builds the graph of a descriptor that lb_desc_check accepted. Constants are
// copied into the graph's arena. An error names the field, or the operator and
// its incompatible shapes.
lb_status lb_primitive_graph_new(const lb_desc *d, lb_primitive_graph *out);
void lb_primitive_graph_fini(lb_primitive_graph *g);  // {0} is fine

#endif
