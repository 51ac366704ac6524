// fuse/lifecycle.h -- the life of one fusion: watched, tried, kept, undone.
//
// Pure functions; not thread-safe.
//
//   WATCHING --viable--> TRYING --pays--> FUSED
//       ^                  |  \            |
//       |     no longer viable \--loses----+--> REJECTED
//       +------------------+---------------------- cool-down
//
// A fusion that has lost is tried again only after a cool-down, which doubles
// each time, so that alternating data does not make it come and go.
#ifndef LB_FUSE_LIFECYCLE_H
#define LB_FUSE_LIFECYCLE_H

#include <stdbool.h>

#include "fuse/opportunities.h"

typedef enum lb_fusion_phase {
  LB_FUSION_WATCHING,  // runs of the original are observed
  LB_FUSION_TRYING,    // runs alternate between both graphs
  LB_FUSION_FUSED,     // a few runs of the original remain for comparison
  LB_FUSION_REJECTED,  // until the cool-down has passed
} lb_fusion_phase;

typedef enum lb_fusion_action {
  LB_FUSION_STAY,
  LB_FUSION_DEPLOY,  // build the fused version and try it
  LB_FUSION_KEEP,
  LB_FUSION_REMEASURE,  // its times have changed: it is tried again
  LB_FUSION_WITHDRAW,
} lb_fusion_action;

typedef struct lb_fusion_life {
  lb_fusion_phase phase;
  double accuracy;            // of estimates, see lb_fusion_accuracy
  double expected, measured;  // gains, as shares of the original's time
  uint64_t cooldown;          // in runs, after the next loss
  uint64_t resume;            // REJECTED: the run at which it ends
  uint32_t tried, paid, undone;
} lb_fusion_life;

void lb_fusion_life_init(lb_fusion_life *l);
// To be called whenever there are new statistics; `runs`: of the session so
// far. After DEPLOY and REMEASURE the times of both graphs are to be forgotten.
lb_fusion_action lb_fusion_advance(lb_fusion_life *l,
                                   const lb_fusion_candidate *c,
                                   const lb_dataflow_stats *s, uint64_t runs);
// Whether run number `i` of those whose guard holds uses the fused graph.
// `compiled`: all of its kernels are.
bool lb_fusion_chooses(lb_fusion_phase phase, uint64_t i, bool compiled);
const char *lb_fusion_phase_name(lb_fusion_phase phase);

#endif
