// session/run.h -- runs one region: stage by stage, step by step. Internal to
// the module.
#ifndef LB_SESSION_RUN_H
#define LB_SESSION_RUN_H

#include <stdatomic.h>

#include "plan/plan.h"
#include "session/context.h"
#include "session/plans.h"
#include "session/session.h"
#include "session/versions.h"

#define LB_IDLE_CONTEXTS 32  // any more are freed after their run
#define LB_IDLE_RUNS 96      // runs without it until an idle context is freed

struct lb_session {
  lb_graph *graph;  // borrowed
  lb_versions versions;
  lb_plans plans;
  lb_session_options options;
  _Atomic(lb_context *) idle[LB_IDLE_CONTEXTS];  // NULL: an empty place
  atomic_ullong runs;
  atomic_size_t scratch_bytes;  // kept by contexts, as of their last run
  _Atomic(struct lb_recorder *) recorder;  // owned; NULL: nothing is recorded
  unsigned number;    // in the compile service; 0: there is no service
  const bool *batch;  // see graph/batch.h; in the graph's arena
  // Owned; NULL: nothing is fused while running.
  struct lb_partition_manager *partition_manager;
  // Of the largest item planned so far: bytes in the inputs, and bytes of
  // values between steps. Used only to choose micro-batches.
  atomic_size_t item_bytes, item_values;
};

// Takes an idle context, or a new one, to be given back. It has the version of
// the context `run`, or the current version if `run` is NULL.
lb_status lb_session_take_context(lb_session *s, const lb_context *run,
                                  lb_context **out);
void lb_session_give_context(lb_session *s, lb_context *c);

// Runs a region on inputs of any strides. Each result is written to the memory
// in `out` if there is any, which must be large enough; else to memory that the
// run allocates.
lb_status lb_run_region(lb_session *s, lb_context *c, const lb_region *r,
                        const lb_tensor *in, lb_output *out);

// The plan of a region's first stage, for the wanted `outputs`. The caller owns
// a reference to *out, even on failure, unless it is NULL.
lb_status lb_run_plan(lb_session *s, lb_context *c, const lb_region *r,
                      const lb_tensor *in, const lb_output *outputs,
                      lb_plan **out);

// Makes out[result] a tensor like t, with memory for it; `result` is an index
// into the region's results.
lb_status lb_run_reserve_output(const lb_session *s, lb_context *c,
                                const lb_region *r, uint32_t result,
                                const lb_tensor *t, lb_output *out);

// Prints names and shapes of a region's inputs, "x=1x3x48x320 n=", truncated to
// `cap`.
void lb_run_shapes(const lb_region *r, const lb_tensor *in, char *buf,
                   size_t cap);

// Runs a Loop or Scan step; its outputs become dynamic buffers of c.
lb_status lb_run_loop(lb_session *s, lb_context *c, const lb_step *step,
                      const lb_tensor *in);

#endif
