// session/microbatch.h -- runs large batches as micro-batches. Internal to the
// module.
//
// Where the items of a batch are independent (graph/batch.h), a large batch is
// run as several *micro-batches*, each of as many items as keep the values
// between steps within the L2 cache. The bytes needed are learned from plans
// and scale with the bytes of an item. Each worker thread of the pool gets the
// same number of items and runs micro-batches of its own; the few items left
// over are split for all threads together, and run one micro-batch after the
// other. A micro-batch has a plan like any other run, so batches of all sizes
// share a few plans.
#ifndef LB_SESSION_MICROBATCH_H
#define LB_SESSION_MICROBATCH_H

#include "session/run.h"

typedef struct lb_microbatches {
  int64_t items;
  int64_t workers, per_worker;  // threads, and micro-batches of each
  int64_t shared;  // micro-batches of the items left over, run by all threads
} lb_microbatches;

static inline int64_t lb_microbatches_count(const lb_microbatches *split) {
  return split->workers * split->per_worker +
         split->shared;  // 1: the batch is run whole
}

// Learns the bytes per item from a new plan of the main region.
void lb_microbatch_learn(lb_session *s, const lb_tensor *in,
                         const lb_plan *plan);

// Decides how a run on these inputs is split. May plan for one item if nothing
// is learned yet.
lb_status lb_microbatch_split(lb_session *s, lb_context *c, const lb_tensor *in,
                              const lb_output *outputs, lb_microbatches *out);

// The inputs of micro-batch i, one for each input of the graph.
void lb_microbatch_inputs(const lb_session *s, const lb_tensor *in,
                          const lb_microbatches *split, int64_t i,
                          lb_tensor *out);

// Runs the main region, whole or in micro-batches; see lb_run_region.
lb_status lb_microbatch_run(lb_session *s, lb_context *c, const lb_tensor *in,
                            lb_output *out);

#endif
