// session/microbatch.h -- batches are run some items at a time. Internal to the
// room.
//
// Where items have nothing to do with each other (graph/batch.h), a run of a
// large batch is several runs of *slices*: as many items each as keep what
// lies between steps in the near cache. How many bytes that takes is learned
// from plans; it grows with the bytes of an item. Each thread of the pool has
// as many items as every other, and runs slices of its own; the few that are
// left over are cut for all threads together, and run one slice after the
// other. A slice has a plan as any other run, so batches of all sizes share
// those of a few.
#ifndef LB_SESSION_MICROBATCH_H
#define LB_SESSION_MICROBATCH_H

#include "session/run.h"

typedef struct lb_microbatches {
  int64_t items;
  int64_t lanes, each;  // threads with slices of their own, and how many
  int64_t rest;         // slices of the items left over
} lb_microbatches;

static inline int64_t lb_microbatches_count(const lb_microbatches *cut) {
  return cut->lanes * cut->each + cut->rest;  // 1: the batch is run whole
}

// A plan of the main region for these inputs was made.
void lb_microbatch_learn(lb_session *s, const lb_tensor *in,
                         const lb_plan *plan);

// How a run on these inputs is cut. May plan one item if nothing is learned
// yet.
lb_status lb_microbatch_cut(lb_session *s, lb_context *c, const lb_tensor *in,
                            const lb_output *outputs, lb_microbatches *out);

// The inputs of slice i: one for each of the graph.
void lb_microbatch_inputs(const lb_session *s, const lb_tensor *in,
                          const lb_microbatches *cut, int64_t i,
                          lb_tensor *out);

// Runs the main region, whole or in slices; see lb_run_region.
lb_status lb_microbatch_run(lb_session *s, lb_context *c, const lb_tensor *in,
                            lb_output *out);

#endif
