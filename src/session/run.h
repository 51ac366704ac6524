// session/run.h -- running one region: plan by plan, step by step. Internal to
// the room.
#ifndef LB_SESSION_RUN_H
#define LB_SESSION_RUN_H

#include <stdatomic.h>

#include "plan/plan.h"
#include "session/context.h"
#include "session/plans.h"
#include "session/session.h"
#include "session/versions.h"

#define LB_IDLE_CONTEXTS 32  // more than these are freed after their run
#define LB_IDLE_RUNS 96      // of others, after which an idle one is freed

struct lb_session {
  lb_graph *graph;  // borrowed
  lb_versions versions;
  lb_plans plans;
  lb_session_options options;
  _Atomic(lb_context *) idle[LB_IDLE_CONTEXTS];  // NULL: none here
  atomic_ullong runs;
  atomic_size_t scratch_bytes;  // that contexts keep, as of their last run
  _Atomic(struct lb_recorder *) recorder;  // owned; NULL: nothing is noted
  unsigned number;    // that the service knows it by; 0: there is none
  const bool *batch;  // see graph/batch.h; in the graph's arena
  // Of the largest item that was planned: bytes of it in inputs, and of the
  // values between steps. Both are for choosing slices alone.
  atomic_size_t item_bytes, item_values;
};

// An idle context, or a new one; to be given back. It has the version of the
// run that it takes part in, or with NULL the current one.
lb_status lb_session_take_context(lb_session *s, const lb_context *run,
                                  lb_context **out);
void lb_session_give_context(lb_session *s, lb_context *c);

// Runs a region on inputs of any strides. Results land in `out` (one per
// result): in the memory it brings if that is large enough, else in memory of
// its own.
lb_status lb_run_region(lb_session *s, lb_context *c, const lb_region *r,
                        const lb_tensor *in, lb_output *out);

// The plan of a region's first stage, for what `outputs` ask for. The caller
// owns a reference to *out, even if it failed, unless that is NULL.
lb_status lb_run_plan(lb_session *s, lb_context *c, const lb_region *r,
                      const lb_tensor *in, const lb_output *outputs,
                      lb_plan **out);

// Makes out[result] hold a tensor like t, with memory for it: result of the
// region.
lb_status lb_run_hold(const lb_session *s, lb_context *c, const lb_region *r,
                      uint32_t result, const lb_tensor *t, lb_output *out);

// Names and shapes of a region's inputs, "x=1x3x48x320 n="; cut where `buf` is
// too small.
void lb_run_shapes(const lb_region *r, const lb_tensor *in, char *buf,
                   size_t cap);

// Runs a Loop or Scan step; outputs become own buffers of c.
lb_status lb_run_loop(lb_session *s, lb_context *c, const lb_step *step,
                      const lb_tensor *in);

#endif
