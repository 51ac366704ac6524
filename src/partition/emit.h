// partition/emit.h -- operators of the graph as operations of a spec, in
// float32 (bool where they compare).
#ifndef LB_PARTITION_EMIT_H
#define LB_PARTITION_EMIT_H

#include "graph/graph.h"
#include "spec/spec.h"

typedef struct lb_emitter {
  lb_spec_builder b;
  float scalars[LB_SPEC_MAX_SCALARS];  // values of the spec's scalars
} lb_emitter;

// True if the node can stand in a partition as far as operator, dtypes and
// attributes say: elementwise, or along the last axis.
bool lb_emit_is_map(const lb_node *n);
bool lb_emit_is_rows(const lb_node *n);

// src[i]: the spec node of input i, LB_SPEC_NO_NODE where absent. Returns the
// spec node of output 0; mistakes stay in the builder.
uint8_t lb_emit_node(lb_emitter *e, const lb_node *n, const uint8_t *src);
uint8_t lb_emit_scalar(lb_emitter *e, float v);

#endif
