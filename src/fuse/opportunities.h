// fuse/opportunities.h -- the fusion engine's decisions: which fusions live
// data suggests, and which have kept their promise.
//
// Pure functions of a snapshot, so decisions can be reproduced without a model.
// Times are nanoseconds per position of a batch, padding included, so that runs
// at different shapes compare.
#ifndef LB_FUSE_OPPORTUNITIES_H
#define LB_FUSE_OPPORTUNITIES_H

#include <stdint.h>

#include "observe/window.h"

// What runs have observed of a candidate.
typedef struct lb_dataflow_stats {
  lb_window_summary guard;    // 1 where the candidate's guard held, else 0
  lb_window_summary padding;  // share of padding where it held
  // Logarithms of the times of runs of the original graph, and of the fused
  // one.
  lb_window_summary original, fused;
  double accuracy;  // 1 - relative error of past estimates, in [0, 1]
} lb_dataflow_stats;

// Partitions that may be joined into one that computes tokens only.
typedef struct lb_fusion_candidate {
  uint32_t partitions;  // that would compute rows of tokens
  double row_bytes;     // that are read to pack one token
} lb_fusion_candidate;

// Whether data flows between the partitions as rows of the same tokens.
bool lb_are_data_dependent(const lb_fusion_candidate *c);
// What packing rows and evaluating the guard cost.
double lb_calculate_communication_cost(const lb_fusion_candidate *c,
                                       const lb_dataflow_stats *s);
// What padding costs at present: the time of the original, the lower bounds of
// the share of padding and of the guard, and the accuracy of such estimates.
double lb_estimate_performance_gain(const lb_fusion_candidate *c,
                                    const lb_dataflow_stats *s);
// Whether the gain exceeds the cost by a margin.
bool lb_is_fusion_viable(const lb_fusion_candidate *c,
                         const lb_dataflow_stats *s);
// The indices of the viable candidates, the most worthwhile first; stats[i]
// belongs to candidates[i]. `out` is an array of n.
uint32_t lb_find_fusion_opportunities(const lb_dataflow_stats *stats,
                                      const lb_fusion_candidate *candidates,
                                      uint32_t n, uint32_t *out);

typedef enum lb_fusion_result {
  LB_FUSION_OPEN,
  LB_FUSION_PAYS,
  LB_FUSION_LOSES,
} lb_fusion_result;

// Compares the times of the fused graph with those of the original.
lb_fusion_result lb_fusion_compare(const lb_dataflow_stats *s);

// The accuracy after a fusion of which a gain of `expected` (a share of the
// time) was estimated and `measured` was found.
double lb_fusion_accuracy(double accuracy, double expected, double measured);

#endif
