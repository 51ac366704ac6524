// plan/program.h -- what planning needs to know of a graph, found once at load.
//
// The contents of some values decide shapes or branches (a Reshape's target, an
// If's condition). Walking back from those through the arithmetic that makes
// them tells which inputs of a region must be looked at, so that their contents
// become part of a signature. A value made from Shape needs no contents: dims
// are in every signature anyway.
#ifndef LB_PLAN_PROGRAM_H
#define LB_PLAN_PROGRAM_H

#include "cache/slots.h"
#include "graph/graph.h"
#include "partition/partition.h"
#include "plan/order.h"
#include "plan/sizes.h"
#include "plan/twins.h"

typedef enum lb_deciding {
  LB_DECIDES_NOTHING,
  LB_DECIDES_THROUGH,  // through arithmetic
  LB_DECIDES_DIRECTLY,
} lb_deciding;

// Where a value is joined to others (join.c).
typedef struct lb_home {
  const lb_node *join;  // a Concat, or NULL
  uint32_t at;          // which of its inputs the value is, or begins with
  bool barred;          // some reader would not have it in strides
} lb_home;

// What readers of values say before the first node is planned: see planner.h.
typedef struct lb_tally {
  uint32_t *uses, *lands;  // by value id
  lb_home *homes;          // likewise
  bool *needed;            // by node id
} lb_tally;

typedef struct lb_program {
  const lb_graph *graph;  // borrowed
  uint8_t *deciding;      // owned; by value id: lb_deciding
  lb_sizes sizes;
  size_t limit;  // bytes of one value, views too; 0: none
  // Both borrowed; NULL: every node runs by its host kernel.
  const lb_partitioning *parts;
  lb_slots *slots;
  lb_twins twins;
  lb_orders orders;
  lb_tally all;  // of the main region, all results wanted; owned. NULL: none
  // Launches only where what covers them gives the same bits.
  bool deterministic;
  bool reusable;   // no kernels with bounds where others serve
  lb_ahead ahead;  // what the slots of its plans are wanted for
  // Plans are made to get ready, not to be run for somebody: their slots are
  // not wanted, and not counted as used.
  bool rehearses;
} lb_program;

lb_status lb_program_init(lb_program *p, const lb_graph *g, size_t limit);
void lb_program_fini(lb_program *p);
// Once all is set that is borrowed: counts what each plan would count again.
lb_status lb_program_count(lb_program *p);

// True if the contents of this region parameter belong into a signature when
// the tensor has these dims: at most a vector, at most LB_MAX_KNOWN elements,
// and integers unless they decide directly (Resize's scales): a branch on the
// sum of some floats is no reason for a plan per request.
bool lb_program_reads(const lb_program *p, const lb_value *param,
                      const lb_tensor *t);

#endif
