// plan/program.h -- a snapshot of a model: a graph, its partitioning, and what
// planning needs to know about both.
//
// A program is refcounted and immutable once built; every plan retains its
// program. A structural change (other fusions) builds another program with
// another version. All programs of a session share packed weights
// (partition/weights.h).
//
// The contents of some values decide shapes or branches (a Reshape's target, an
// If's condition). A backward walk from these values through the arithmetic
// that computes them finds the region inputs whose contents must be part of the
// signature. A value computed from Shape needs no contents, because dims are
// part of every signature.
#ifndef LB_PLAN_PROGRAM_H
#define LB_PLAN_PROGRAM_H

#include "base/ref.h"
#include "cache/slots.h"
#include "graph/graph.h"
#include "partition/partition.h"
#include "plan/guard.h"
#include "plan/order.h"
#include "plan/sizes.h"
#include "plan/tally.h"
#include "plan/part_classes.h"

typedef enum lb_deciding {
  LB_DECIDES_NOTHING,
  LB_DECIDES_THROUGH,  // through arithmetic that computes a deciding value
  LB_DECIDES_DIRECTLY,
} lb_deciding;

// Number of programs, and the memory they use.
typedef struct lb_program_usage {
  atomic_size_t count, bytes;
} lb_program_usage;

// What a program is built from. All pointers are borrowed and must outlive it.
typedef struct lb_program_options {
  const lb_graph *graph;
  uint64_t version;  // unique among the programs of a session
  size_t limit;      // max bytes of one value, views included; 0: no limit
  // Where kernels are published. NULL: every node runs its reference kernel,
  // and nothing is partitioned or packed.
  lb_slots *slots;
  struct lb_weights *weights;      // NULL only if `slots` is
  lb_partition_options partition;  // read by lb_program_new only
  // Emits a launch only if its cover gives bit-identical results.
  bool deterministic;
  bool reusable;            // no specialised kernels where a reusable one
                            // exists
  unsigned checks;          // bits of lb_memory_check
  bool no_skip;             // nodes that are runtime_skippable run
  lb_slot_user user;        // on whose behalf slots are used and kernels
                            // requested
  lb_program_usage *usage;  // updated if not NULL
} lb_program_options;

typedef struct lb_program {
  lb_ref ref;
  const lb_graph *graph;  // borrowed
  uint64_t version;
  uint8_t *deciding;  // owned; by value id: lb_deciding
  lb_sizes sizes;
  size_t limit;
  const lb_partitioning *parts;  // &partitioning; NULL without slots
  lb_partitioning partitioning;
  lb_slots *slots;             // borrowed
  struct lb_weights *weights;  // likewise
  lb_part_classes classes;
  lb_orders orders;
  lb_tally all;  // owned; read counts for the main region with all results
                 // wanted
  bool deterministic, reusable, no_skip;
  unsigned checks;
  lb_guard *guards;   // owned; by parameter of the main region
  uint32_t n_guards;  // number of parameters that have one
  lb_slot_user user;
  lb_program_usage *usage;  // borrowed; may be NULL
  size_t bytes;             // memory that it owns, memos excluded
} lb_program;

lb_status lb_program_new(const lb_program_options *o, lb_program **out);
static inline void lb_program_retain(lb_program *p) { lb_ref_retain(&p->ref); }
void lb_program_release(lb_program *p);  // NULL is fine

// Counts the reads that every plan of all results would count again. Called by
// lb_program_new.
lb_status lb_program_count(lb_program *p);

// Whether the contents of this region parameter are part of the signature if
// the tensor has these dims. They are if it has rank 0 or 1, at most
// LB_MAX_KNOWN elements, and an integer dtype unless it decides a shape
// directly (Resize's scales): a branch on the sum of some floats does not
// justify a plan per request.
bool lb_deciding_reads(lb_deciding how, const lb_tensor *t);
static inline bool lb_program_reads(const lb_program *p, const lb_value *param,
                                    const lb_tensor *t) {
  return lb_deciding_reads((lb_deciding)p->deciding[param->id], t);
}

#endif
