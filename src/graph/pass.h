// graph/pass.h -- rewriting a graph into a smaller one that means the same.
//
// Passes run after shapes were inferred, by the one thread that builds the
// graph, again and again until nothing changes or a bound is reached: then a
// warning names the passes that still change it. passes.def lists them. Results
// keep their order and output_names; the values behind them may become
// parameters or constants. What is known of a value (info) stays true.
#ifndef LB_GRAPH_PASS_H
#define LB_GRAPH_PASS_H

#include "base/log.h"
#include "graph/graph.h"

// Evaluates one node on constants. `in` has node->n_in tensors (absent: dtype
// LB_NONE), `out` has node->n_out, to be filled with dtype, dims, strides and
// data that lies in `arena` or in an input; those of unnamed outputs are
// ignored. A failure leaves the node in the graph, so that the error appears
// when it runs.
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
// The pass of that name, which need not end with 0; LB_PASS_COUNT if none.
lb_pass_id lb_pass_find(const char *name, size_t length);

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
  uint64_t off;       // LB_PASS_BIT of passes that do not run
  const lb_log *log;  // borrowed; NULL: silent
} lb_pass_options;

// `o` may be NULL: all passes, no evaluation. Afterwards ids of values and
// nodes are dense again and values nobody uses are gone from g->values, so
// nobody may hold ids across this call. On failure the graph can only be freed.
lb_status lb_graph_optimize(lb_graph *g, const lb_pass_options *o);

#endif
