// plan/tally.h -- what the readers of values say before the first node is
// planned: counted once at load for all results, else by each plan.
#ifndef LB_PLAN_TALLY_H
#define LB_PLAN_TALLY_H

#include "graph/graph.h"

// The Concat that a value is an input of (concat.h).
typedef struct lb_concat_dest {
  const lb_node *join;  // a Concat, or NULL
  uint32_t at;          // which of its inputs the value is, or begins with
  bool barred;          // some reader would not have it in strides
} lb_concat_dest;

typedef struct lb_tally {
  uint32_t *uses;         // by value id: reads still to be planned
  uint32_t *lands;        // by value id: 0, or result + 1 it may be written to
  lb_concat_dest *homes;  // by value id
  bool *needed;           // by node id
} lb_tally;

#endif
