// plan/program.h -- what planning needs to know of a graph, found once at load.
//
// The contents of some values decide shapes or branches (a Reshape's target, an
// If's condition). Walking back from those through the arithmetic that makes
// them tells which inputs of a region must be looked at, so that their contents
// become part of a signature. A value made from Shape needs no contents: dims
// are in every signature anyway.
#ifndef LB_PLAN_PROGRAM_H
#define LB_PLAN_PROGRAM_H

#include "graph/graph.h"

typedef struct lb_program {
  const lb_graph *graph;  // borrowed
  bool *deciding;         // owned; by value id: contents decide shapes
} lb_program;

lb_status lb_program_init(lb_program *p, const lb_graph *g);
void lb_program_fini(lb_program *p);

// True if the contents of this region parameter belong into a signature when
// the tensor has these dims: at most a vector, at most LB_MAX_KNOWN elements.
bool lb_program_reads(const lb_program *p, const lb_value *param,
                      const lb_tensor *t);

#endif
