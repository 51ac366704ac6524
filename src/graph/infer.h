// graph/infer.h -- shape inference: from what is known about a node's inputs to
// what is known about its outputs.
//
// Each operator has one rule, which its row of ops.def names. It is used twice:
// at load with symbols, at planning with numbers. A rule
//   - checks dtypes, ranks and dims; its errors name the problem and the shapes
//     involved, and lb_infer_node adds the operator and the node;
//   - sets dtype, rank and dims of each output. Where the rank or the deciding
//     contents of an input are unknown (only at load, or for dynamic outputs),
//     it sets what it can: the dtype, or the rank with fresh symbols
//     (lb_infer_fresh), or leaves rank -1;
//   - sets `known` contents where integers are passed on (Shape, Gather,
//     Concat, Add, ...), so that shape arithmetic stays symbolic.
// At planning (syms == NULL) all input dims are constants, all deciding
// contents are `data`, and every output dim is constant. The exceptions have a
// dtype but rank -1: outputs of operators with the trait DYNAMIC, and outputs
// whose deciding contents are not available yet.
#ifndef LB_GRAPH_INFER_H
#define LB_GRAPH_INFER_H

#include "graph/graph.h"

typedef struct lb_infer {
  const lb_node *node;
  lb_symtab *syms;     // NULL: numbers only
  lb_arena *arena;     // for `known` contents
  const lb_vinfo *in;  // node->n_in elements; absent: dtype LB_NONE
  lb_vinfo *out;       // node->n_out elements; start as {LB_NONE, rank -1}
} lb_infer;

// Runs the node's rule after resetting `out`, then checks that constant dims
// are >= 0. For control operators see lb_infer_graph.
lb_status lb_infer_node(lb_infer *c);

// Infers the whole graph with symbols, regions included, into value->info. The
// declared dims of the graph's inputs are already there. The outputs of an If
// are the join of both branches: differing dims become fresh symbols, differing
// ranks become unknown. Carried values of a Loop or Scan are widened likewise
// where the body's result differs.
lb_status lb_infer_graph(lb_graph *g);

// Infers the outputs of one node, which must not be a control operator, from
// the infos of its inputs.
lb_status lb_infer_outputs(lb_graph *g, lb_arena *scratch, lb_node *n);

// -- for rules ---------------------------------------------------------------

// LB_INVALID; lb_infer_node puts the operator and the node's name in front.
lb_status lb_infer_error(const lb_infer *c, const char *fmt, ...)
    LB_PRINTF(2, 3);
// Contents of input i as integers, from data or known: their number, or -1 if
// they are not known or more than cap. Bools count as 0 and 1.
int lb_infer_ints(const lb_infer *c, int i, lb_dim *out, int cap);
// Sets the rank, and every dim to a fresh symbol. LB_INTERNAL without a symbol
// table.
lb_status lb_infer_fresh(lb_infer *c, int out_index, int rank);

#endif
