// graph/skip.h -- skip rules: when an operator does nothing.
//
// An operator does nothing if its outputs are views of one input: the planner
// then sets dims, strides and an offset, and no element is moved. Each operator
// has one rule, named in a column of ops.def. The rule is asked at load, with
// symbolic dims, and for each plan, with numbers; it proves its answer. Only
// what keeps every bit counts: x * 1 does nothing, but x + 0 changes -0.0.
//
// At load, the pass mark_runtime_skippable_nodes asks the rule of every node
// and sets two flags:
//   optimized                     the node never runs
//   optimized, runtime_skippable  each plan asks the rule again
//   neither                       the node always runs
// `runtime_skippable` without `optimized` is invalid (lb_graph_verify).
#ifndef LB_GRAPH_SKIP_H
#define LB_GRAPH_SKIP_H

#include "graph/proof.h"

typedef enum lb_skip {
  LB_SKIP_NO,       // it runs, whatever else becomes known
  LB_SKIP_UNKNOWN,  // it runs unless more becomes known
  LB_SKIP_VIEW,     // the outputs are views of one input
  LB_SKIP_SAME,     // moreover, output 0 has all elements of it, in order
} lb_skip;

// What a guard has found out about the contents of an input.
typedef enum lb_content_kind {
  LB_CONTENT_ANY,
  LB_CONTENT_RANGE,    // integers: bits, bits + 1, bits + 2, ...
  LB_CONTENT_UNIFORM,  // every element has these bits
} lb_content_kind;

typedef struct lb_content {
  int64_t kind;  // lb_content_kind; 64 bits, because it is part of plan keys
  int64_t bits;
} lb_content;

// What is known of an input or output.
typedef struct lb_skip_operand {
  lb_dtype dtype;           // LB_NONE: absent
  int rank;                 // -1: not known
  const lb_dim *dims;       // NULL: see sizes
  const int64_t *sizes;     // NULL: see dims
  const lb_tensor *data;    // contents; NULL: not known
  const lb_vinfo *symbols;  // symbolic contents (`known`); NULL: none
  lb_content content;
} lb_skip_operand;

typedef struct lb_skip_query {
  const lb_node *node;
  const lb_skip_operand *in, *out;  // node->n_in, node->n_out
  bool only_first;                  // outputs but the first are not read
} lb_skip_query;

// Asks the rule of the node's operator. Sets *proof if the answer is VIEW or
// SAME.
lb_skip lb_skip_ask(const lb_skip_query *q, lb_proof *proof);

// The inputs whose contents the rule reads although they are not deciding, as a
// bit mask, and the kind of content that it looks for.
uint32_t lb_skip_reads(lb_op op);
lb_content_kind lb_skip_content(lb_op op);
// The inputs that outputs may be views of, as a bit mask.
uint32_t lb_skip_viewed(lb_op op);

// The elements for which a rule of kind UNIFORM asks: writes them as bits, and
// returns how many there are.
#define LB_SKIP_WANTED 2
uint32_t lb_skip_wanted(lb_op op, lb_dtype t, uint64_t out[LB_SKIP_WANTED]);

// Asks the rule of n at load.
lb_skip lb_skip_at_load(const lb_node *n, bool only_first, lb_proof *proof);

// Sets the flags of all nodes, regions included. The body of the pass
// mark_runtime_skippable_nodes.
lb_status lb_mark_runtime_skippable_nodes(lb_graph *g);

#endif
