// plan/tally.h -- what is known about the readers of values before planning.
// Computed once at load for plans of all results, else by each plan.
#ifndef LB_PLAN_TALLY_H
#define LB_PLAN_TALLY_H

#include "graph/graph.h"

// The Concat to whose result a value may be written directly (concat.h).
typedef struct lb_concat_dest {
  const lb_node *node;  // NULL: none
  uint32_t at;          // index of the value among its inputs, or of the first
                        // part of a Split of the value
  uint8_t axis;         // of the Concat, at least 0
  bool needs_dense;     // some reader does not accept strides
} lb_concat_dest;

// The result to which a value may be written directly (results.h).
typedef struct lb_output_path {
  uint32_t result;   // index + 1; 0: none
  bool conditional;  // some node on the way may move elements: see skip.h
  const lb_node
      *via;  // the next node on the way; NULL: the value is the result
} lb_output_path;

typedef struct lb_tally {
  uint32_t *uses;                // by value id: reads still to be planned
  lb_output_path *output_of;     // by value id
  lb_concat_dest *concat_dests;  // by value id
  bool *needed;                  // by node id
} lb_tally;

#endif
