// graph/pass.h -- rewrites a graph into an equivalent cheaper one.
//
// Passes run after shape inference, on the thread that builds the graph. They
// repeat until nothing changes or a limit is reached; in the latter case a
// warning names the passes that still change the graph. passes.def lists them.
// Results keep their order and output_names, but the values behind them may
// become parameters or constants. What is known about a value (info) stays
// true.
#ifndef LB_GRAPH_PASS_H
#define LB_GRAPH_PASS_H

#include "base/log.h"
#include "graph/graph.h"

// Evaluates one node on constants. `in` has node->n_in tensors (absent: dtype
// LB_NONE). `out` has node->n_out; the function sets their dtype, dims, strides
// and data, which is in `arena` or in an input. Unnamed outputs are ignored. If
// it fails, the node stays in the graph, so that the error appears when the
// node runs.
typedef lb_status lb_eval_fn(void *user, const lb_node *node,
                             const lb_tensor *in, lb_arena *arena,
                             lb_tensor *out);

typedef enum lb_pass_id {
#define LB_PASS(id, ...) LB_PASS_##id,
#include "graph/passes.def"
  LB_PASS_COUNT
} lb_pass_id;

// Bits of lb_pass_options.off.
#define LB_PASS_BIT(id) (UINT64_C(1) << (id))
#define LB_PASS_ALL (LB_PASS_BIT(LB_PASS_COUNT) - 1)

const char *lb_pass_name(lb_pass_id id);
// The pass of that name, which need not be NUL-terminated; LB_PASS_COUNT if
// none.
lb_pass_id lb_pass_find(const char *name, size_t length);

// Limits of constant folding, in bytes. LB_FOLD_LIMIT is for the outputs of one
// node. LB_FOLD_FORMULAS is for all larger results of elementwise nodes in a
// graph, which may be filters or tables that an exporter wrote as formulas;
// other nodes that enlarge constants only repeat them. LB_FOLD_BUDGET is for
// all large results of folding; it grows with the model's constants.
#define LB_FOLD_LIMIT ((size_t)1 << 20)
#define LB_FOLD_FORMULAS ((size_t)16 << 20)
#define LB_FOLD_BUDGET ((size_t)64 << 20)

typedef struct lb_pass_options {
  lb_eval_fn *eval;    // NULL: nodes are not evaluated
  void *user;          // for eval; borrowed
  size_t fold_limit;   // a node is evaluated if its outputs take at most this
                       // many bytes, or no more than its inputs (Cast and
                       // DequantizeLinear: four times those); 0: LB_FOLD_LIMIT
  bool channels_last;  // gives every convolution channels last
  uint64_t off;        // LB_PASS_BIT of passes that do not run
  const lb_log *log;   // borrowed; NULL: silent
} lb_pass_options;

// `o` may be NULL: all passes, no evaluation. Afterwards the ids of values and
// nodes are dense again, and unused values are gone from g->values, so callers
// must not hold ids across this call. After a failure the graph can only be
// freed.
lb_status lb_graph_optimize(lb_graph *g, const lb_pass_options *o);

#endif
