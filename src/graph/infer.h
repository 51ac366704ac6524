// graph/infer.h -- shape rules: from what is known of a node's inputs to what
// is known of its outputs.
//
// One rule per operator (the row of ops.def names it), used twice: at load
// with symbols, at planning with numbers. A rule
//   - checks dtypes, ranks and dims, with errors that name what is wrong and
//     the shapes at fault (lb_infer_node puts operator and node in front);
//   - sets dtype, rank and dims of each wanted output. Where an input's rank
//     or deciding contents are unknown (only at load, or for dynamic outputs),
//     it sets what it can: the dtype, the rank with fresh symbols
//     (lb_infer_fresh), or leaves rank -1;
//   - sets `known` contents where integers flow on (Shape, Gather, Concat,
//     Add, ...), so that chains of shape arithmetic stay symbolic.
// At planning (syms == NULL) all input dims are constants, all deciding
// contents are `data`, and every output dim comes out constant, except for
// Operators with the trait DYNAMIC: their outputs have a dtype but rank -1. So
// has any output whose deciding contents are not there yet.
#ifndef LB_GRAPH_INFER_H
#define LB_GRAPH_INFER_H

#include "graph/graph.h"

typedef struct lb_infer {
  const lb_node *node;
  lb_symtab *syms;     // NULL: numbers only
  lb_arena *arena;     // for `known` contents
  const lb_vinfo *in;  // node->n_in of them; absent: dtype LB_NONE
  lb_vinfo *out;       // node->n_out; start as {LB_NONE, rank -1}
} lb_infer;

// Runs the node's rule; out is reset first. Afterwards dims are checked to be
// >= 0 where constant. Control operators: see lb_infer_graph.
lb_status lb_infer_node(lb_infer *c);

// Infers the whole graph with symbols, regions included, filling value->info.
// `declared` dims of inputs are already in place. If: the join of both
// branches (differing dims become fresh symbols, differing ranks unknown).
// Loop: carried values whose body result differs are widened the same way.
lb_status lb_infer_graph(lb_graph *g);

// Infers one node that is no control operator from what its inputs say, into
// the values it makes.
lb_status lb_infer_outputs(lb_graph *g, lb_arena *scratch, lb_node *n);

// -- for rules ---------------------------------------------------------------

// LB_INVALID; lb_infer_node puts operator and node's name in front.
lb_status lb_infer_error(const lb_infer *c, const char *fmt, ...)
    LB_PRINTF(2, 3);
// Contents of input i as integers, from data or known: count, or -1 if not
// known or more than cap elements. Bools count as 0 and 1.
int lb_infer_ints(const lb_infer *c, int i, lb_dim *out, int cap);
// Sets rank and dims: every dim a fresh symbol. LB_INTERNAL without a table.
lb_status lb_infer_fresh(lb_infer *c, int out_index, int rank);

#endif
