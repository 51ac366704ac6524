// plan/program.h -- a snapshot of a model: a graph, how it is partitioned, and
// what planning needs to know of both.
//
// A program is immutable once it is made, and refcounted: every plan retains
// the program that it was made of. A structural change (nodes that are fused or
// taken apart) makes another program with another version; packed weights are
// shared by all of them (partition/weights.h).
//
// The contents of some values decide shapes or branches (a Reshape's target, an
// If's condition). Walking back from those through the arithmetic that makes
// them tells which inputs of a region must be looked at, so that their contents
// become part of a signature. A value made from Shape needs no contents: dims
// are in every signature anyway.
#ifndef LB_PLAN_PROGRAM_H
#define LB_PLAN_PROGRAM_H

#include "base/ref.h"
#include "cache/slots.h"
#include "graph/graph.h"
#include "partition/partition.h"
#include "plan/order.h"
#include "plan/sizes.h"
#include "plan/tally.h"
#include "plan/part_classes.h"

typedef enum lb_deciding {
  LB_DECIDES_NOTHING,
  LB_DECIDES_THROUGH,  // through arithmetic
  LB_DECIDES_DIRECTLY,
} lb_deciding;

// How many programs there are, and how much memory they take.
typedef struct lb_program_usage {
  atomic_size_t count, bytes;
} lb_program_usage;

// What a program is made of; all pointers are borrowed and outlive it.
typedef struct lb_program_options {
  const lb_graph *graph;
  uint64_t version;  // that no other program of the session has
  size_t limit;      // bytes of one value, views too; 0: none
  // Where kernels are published. NULL: every node runs by its host kernel, and
  // nothing is partitioned or packed.
  lb_slots *slots;
  struct lb_weights *weights;      // NULL only without slots
  lb_partition_options partition;  // read while the program is made
  // Launches only where what covers them gives the same bits.
  bool deterministic;
  bool reusable;            // no kernels with bounds where others serve
  lb_slot_user user;        // who plans: of the slots
  lb_program_usage *usage;  // counts it; may be NULL
} lb_program_options;

typedef struct lb_program {
  lb_ref ref;
  const lb_graph *graph;  // borrowed
  uint64_t version;
  uint8_t *deciding;  // owned; by value id: lb_deciding
  lb_sizes sizes;
  size_t limit;
  const lb_partitioning *parts;  // `partitioning`; NULL without slots
  lb_partitioning partitioning;
  lb_slots *slots;             // borrowed
  struct lb_weights *weights;  // likewise
  lb_part_classes twins;
  lb_orders orders;
  lb_tally all;  // of the main region, all results wanted; owned
  bool deterministic, reusable;
  lb_slot_user user;
  lb_program_usage *usage;  // borrowed; may be NULL
  size_t bytes;             // of what it owns, memos left out
} lb_program;

lb_status lb_program_new(const lb_program_options *o, lb_program **out);
static inline void lb_program_retain(lb_program *p) { lb_ref_retain(&p->ref); }
void lb_program_release(lb_program *p);  // NULL is fine

// Counts what each plan would count again. For lb_program_new.
lb_status lb_program_count(lb_program *p);

// True if the contents of this region parameter belong into a signature when
// the tensor has these dims: at most a vector, at most LB_MAX_KNOWN elements,
// and integers unless they decide directly (Resize's scales): a branch on the
// sum of some floats is no reason for a plan per request.
bool lb_deciding_reads(lb_deciding how, const lb_tensor *t);
static inline bool lb_program_reads(const lb_program *p, const lb_value *param,
                                    const lb_tensor *t) {
  return lb_deciding_reads((lb_deciding)p->deciding[param->id], t);
}

#endif
