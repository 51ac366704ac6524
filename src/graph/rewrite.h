// graph/rewrite.h -- what all passes share: use counts, replacing values,
// inserting nodes, walking the graph, and matching.
//
// (1) A pass starts with lb_rewrite_begin and then walks each region in order.
// (2) Within a pass a use count may be too high, because dead nodes still
//     count, but never too low. So "used once" is reliable, and the next round
//     finds what was missed.
// (3) A pattern is rewritten by changing its last node into the new operator:
//     the output value stays, and the order is kept. Further nodes are inserted
//     right before that one. Dead code removal deletes the inner nodes of the
//     pattern.
#ifndef LB_GRAPH_REWRITE_H
#define LB_GRAPH_REWRITE_H

#include "graph/pass.h"

typedef struct lb_vstate {
  uint32_t uses;  // by node inputs and region results
  lb_value *to;   // its replacement, or NULL
} lb_vstate;

typedef struct lb_rewrite {
  lb_graph *graph;                 // borrowed
  const lb_pass_options *options;  // borrowed
  lb_arena scratch;                // emptied by lb_rewrite_begin
  lb_vstate *state;                // owned; indexed by value id
  uint32_t n_state;     // values created within the pass have no state
  uint64_t changes;     // never reset
  uint64_t copied;      // nodes copied into branches
  size_t copied_bytes;  // of the constants that the copied nodes read
  size_t formulas;      // bytes of constants: see LB_FOLD_FORMULAS
  size_t budget;        // bytes left for large constants made by folding
} lb_rewrite;

typedef lb_status lb_visit_fn(lb_rewrite *rw, lb_node *n);
typedef lb_status lb_pass_fn(lb_rewrite *rw);

#define LB_PASS(id, name, function, ...) lb_pass_fn function;
#include "graph/passes.def"

void lb_rewrite_init(lb_rewrite *rw, lb_graph *g, const lb_pass_options *o);
void lb_rewrite_fini(lb_rewrite *rw);

lb_status lb_rewrite_begin(lb_rewrite *rw);
// UINT32_MAX for values created within the pass.
uint32_t lb_rewrite_uses(const lb_rewrite *rw, const lb_value *v);
void lb_rewrite_use(lb_rewrite *rw, const lb_value *v, int delta);

// Whether two runs of n may differ. Such nodes are neither folded nor merged.
bool lb_rewrite_random(const lb_node *n);

// Redirects all reads of v to `by`; each read is updated when the walk reaches
// it.
void lb_rewrite_replace(lb_rewrite *rw, lb_value *v, lb_value *by);
// Changes v, a node's output, into a constant; `t` is in the graph's arena.
void lb_rewrite_constant(lb_rewrite *rw, lb_value *v, const lb_tensor *t);
// Gives n another operator and other inputs, no attributes, and one output.
lb_status lb_rewrite_become(lb_rewrite *rw, lb_node *n, lb_op op,
                            lb_value *const *in, uint32_t n_in);
lb_status lb_node_copy_attrs(lb_graph *g, lb_node *n, const lb_node *from);
// Creates a value named after v: "<name>.<tag>".
lb_status lb_rewrite_value(lb_rewrite *rw, const lb_value *v, const char *tag,
                           lb_value **out);
// Inserts a node with one output right before n, which must have an output. Set
// its attributes, then call lb_rewrite_inserted, which infers the output. The
// walk visits n again.
lb_status lb_rewrite_insert(lb_rewrite *rw, lb_node *n, lb_op op,
                            lb_value *const *in, uint32_t n_in, lb_node **out);
lb_status lb_rewrite_inserted(lb_rewrite *rw, lb_node *n, lb_value **out);
// Both calls at once for a node without attributes, and for a Cast.
lb_status lb_rewrite_make(lb_rewrite *rw, lb_node *n, lb_op op,
                          lb_value *const *in, uint32_t n_in, lb_value **out);
lb_status lb_rewrite_cast(lb_rewrite *rw, lb_node *n, lb_value *x, lb_dtype to,
                          lb_value **out);
// Inserts a node with one input right after n: n now yields a new value, from
// which the inserted node computes the former output i.
lb_status lb_rewrite_after(lb_rewrite *rw, lb_node *n, uint32_t i, lb_op op,
                           lb_node **out);

// Visits all nodes in order, each body after its node. Replacements are applied
// to a node's inputs before it is visited. `visit` may be NULL.
lb_status lb_rewrite_walk(lb_rewrite *rw, lb_visit_fn *visit);

// -- the driver: pass.c ------------------------------------------------------

typedef enum lb_pass_phase {  // see passes.def
  LB_PHASE_EARLY,
  LB_PHASE_BETWEEN,
  LB_PHASE_LATE,
  LB_PHASE_FINAL,
} lb_pass_phase;

typedef struct lb_pass {
  const char *name;
  uint64_t bit;  // in lb_pass_options.off
  lb_pass_phase phase;
  bool shapes;  // dims may be known better after it
  lb_pass_fn *run;
} lb_pass;

// Records in g->removed which of the original nodes are gone after a pass, each
// of them once.
typedef struct lb_removal lb_removal;
lb_status lb_removal_new(lb_graph *g, lb_removal **out);
lb_status lb_removal_note(lb_removal *r, lb_graph *g, const char *pass);
void lb_removal_free(lb_removal *r);  // NULL is fine

// Runs the rounds of lb_graph_optimize with these passes.
lb_status lb_passes_run(lb_rewrite *rw, const lb_pass *passes, size_t n);

// -- matching ----------------------------------------------------------------

// The node that produces v, if it has that operator and v is its first output.
lb_node *lb_match_op(const lb_value *v, lb_op op);
// The same if v is also used only once, so that the node dies with its user.
lb_node *lb_match_inner(const lb_rewrite *rw, const lb_value *v, lb_op op);
// Element i of a dense constant of a floating point type, and of int32 or
// int64. The data may be unaligned.
double lb_match_elem(const lb_tensor *t, int64_t i);
int64_t lb_match_int(const lb_tensor *t, int64_t i);
// Whether c is a constant with one floating point element which an elementwise
// node broadcasts to x without changing the shape of x.
bool lb_match_scalar(const lb_value *c, const lb_value *x, double *out);
// The same for either input of a commutative node; *x is the other input.
bool lb_match_with_scalar(const lb_node *n, lb_value **x, double *out);
// Whether a convolution or pool over n_spatial axes has no padding.
bool lb_match_unpadded(const lb_node *n, int n_spatial);
// Whether a equals b up to rounding: of b or of its inverse, to float32,
// float16 or bfloat16.
bool lb_match_near(double a, double b);

// v = coef * leaf[0] * leaf[1] * ..., seen through multiplications and
// divisions by scalars whose results have no other reader.
#define LB_MAX_FACTORS 4
typedef struct lb_product {
  double coef;
  int n;
  lb_value *leaf[LB_MAX_FACTORS];
} lb_product;
// False if there are too many factors. `n` must be a Mul or a Div.
bool lb_match_product(const lb_rewrite *rw, const lb_node *n, lb_product *out);
// The factors of v if v itself is used once; otherwise v is the only factor.
bool lb_match_factors(const lb_rewrite *rw, lb_value *v, lb_product *out);

#endif
