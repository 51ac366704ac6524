// graph/pass.h -- rewriting a graph into a smaller one that means the same.
//
// Passes run after shapes were inferred, by the one thread that builds the
// graph, again and again until nothing changes or a bound is reached. Results
// keep their order and output_names; the values behind them may become
// parameters or constants. What is known of a value (info) stays true.
#ifndef LB_GRAPH_PASS_H
#define LB_GRAPH_PASS_H

#include "graph/graph.h"

// Evaluates one node on constants. `in` has node->n_in tensors (absent: dtype
// LB_NONE), `out` has node->n_out, to be filled with dtype, dims, strides and
// data that lies in `arena` or in an input; those of unnamed outputs are
// ignored. A failure leaves the node in the graph, so that the error appears
// when it runs.
typedef lb_status lb_eval_fn(void *user, const lb_node *node,
                             const lb_tensor *in, lb_arena *arena,
                             lb_tensor *out);

enum {                          // bits of lb_pass_options.off
  LB_PASS_FOLD = 1 << 0,        // nodes of constants become constants
  LB_PASS_INLINE = 1 << 1,      // If with a constant condition
  LB_PASS_NOOP = 1 << 2,        // Identity and the like vanish
  LB_PASS_MERGE = 1 << 3,       // common subexpressions
  LB_PASS_DEAD = 1 << 4,        // nodes and captures nobody reads
  LB_PASS_BATCH_NORM = 1 << 5,  // and biases, into the convolution before;
                                // where there is none, element by element
  LB_PASS_MATCH = 1 << 6,       // layer norm, GELU, HardSwish, SiLU
  LB_PASS_ATTENTION = 1 << 7,
  LB_PASS_TABLE = 1 << 8,       // products of one-hot rows, and what follows
  LB_PASS_CONV = 1 << 9,        // convolutions along one axis become products
  LB_PASS_SINK = 1 << 10,       // transposes move towards the end
  LB_PASS_LAYOUT = 1 << 11,     // convolutions get their channels last
  LB_PASS_RECURRENT = 1 << 12,  // products with inputs leave recurrences
  LB_PASS_WINDOW = 1 << 13,     // large windows, and their borders
  LB_PASS_GROUP = 1 << 14,      // group norms are norms of rows
  LB_PASS_WIDEN = 1 << 15,      // halves are computed in float32
  LB_PASS_QUANTIZE = 1 << 16,   // products of bytes
  LB_PASS_EINSUM = 1 << 17,     // becomes MatMul, Mul and Transpose
  LB_PASS_HISTORY = 1 << 18,    // causal attention, past keys
  LB_PASS_UPCONV = 1 << 19,     // transposed convolutions
  LB_PASS_RESIZE = 1 << 20,     // a Resize of many axes becomes several
  LB_PASS_ROTARY = 1 << 21,     // becomes products of halves
  LB_PASS_BRANCH = 1 << 22,     // what follows an If moves into it
  LB_PASS_LOOP = 1 << 23,       // what loops carry unchanged is captured
  LB_PASS_ALL = (1 << 24) - 1,
};

// Bytes: of a node, and of all that are larger in a graph. What is made element
// by element may be a filter or a table that is written down as a formula;
// other constants that grow are but repeated.
#define LB_FOLD_LIMIT ((size_t)1 << 20)
#define LB_FOLD_FORMULAS ((size_t)16 << 20)
#define LB_FOLD_ROOM ((size_t)64 << 20)  // for all of them, and what they yield

typedef struct lb_pass_options {
  lb_eval_fn *eval;   // NULL: nothing is evaluated
  void *user;         // for eval; borrowed
  size_t fold_limit;  // a node is evaluated if its outputs take at most this
                      // many bytes, or no more than its inputs (Cast and
                      // DequantizeLinear: four times those); 0: as above
  bool images;        // every convolution gets its channels last
  uint32_t off;       // LB_PASS_* bits not to run
} lb_pass_options;

// `o` may be NULL: all passes, no evaluation. Afterwards ids of values and
// nodes are dense again and values nobody uses are gone from g->values, so
// nobody may hold ids across this call. On failure the graph can only be freed.
lb_status lb_graph_optimize(lb_graph *g, const lb_pass_options *o);

#endif
