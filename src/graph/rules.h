// graph/rules.h -- what the shape rules share. Private to rules_*.c and
// infer.c.
//
// Rules run on numbers while planning, so the common path allocates nothing
// but `known` contents and touches no text; text is made when failing.
#ifndef LB_GRAPH_RULES_H
#define LB_GRAPH_RULES_H

#include "graph/infer.h"

#define LB_OP(id, min_in, max_in, max_out, cls, deciding, traits, shape, ...) \
  lb_shape_fn shape;
#include "graph/ops.def"

// Larger than any dim a tensor can have: slices to "the end" end beyond it.
#define LB_BEYOND ((int64_t)1 << 47)

// -- inputs and outputs ------------------------------------------------------

static inline bool lb_rule_has(const lb_infer *c, int i) {
  return i < (int)c->node->n_in && c->in[i].dtype != LB_NONE;
}

// Present, and its rank is known.
static inline bool lb_rule_ranked(const lb_infer *c, int i) {
  return lb_rule_has(c, i) && c->in[i].rank >= 0;
}

static inline bool lb_rule_wants(const lb_infer *c, int o) {
  return o < (int)c->node->n_out;
}

// Output o gets dtype t; rank and dims stay unknown. Unwanted ones are fine.
void lb_rule_type(lb_infer *c, int o, lb_dtype t);
// Output o gets dtype t and these dims; rank -1 leaves it unranked. Rank is at
// most LB_MAX_RANK.
void lb_rule_set(lb_infer *c, int o, lb_dtype t, int rank, const lb_dim *dims);
// Output o gets dtype t and the dims of x.
void lb_rule_like(lb_infer *c, int o, lb_dtype t, const lb_vinfo *x);
// Output o gets dtype t and a rank whose dims nobody knows: fresh symbols at
// load; at planning the rank stays -1, since the kernel decides.
lb_status lb_rule_unknown(lb_infer *c, int o, lb_dtype t, int rank);
// Fails if the rank is more than a tensor can have.
lb_status lb_rule_max_rank(const lb_infer *c, int rank);

// -- dtypes ------------------------------------------------------------------

#define LB_BIT(t) (1u << LB_##t)
enum {
  LB_TYPES_FLOAT = LB_BIT(F32) | LB_BIT(F64) | LB_BIT(F16) | LB_BIT(BF16),
  LB_TYPES_SIGNED = LB_BIT(I8) | LB_BIT(I16) | LB_BIT(I32) | LB_BIT(I64),
  LB_TYPES_UNSIGNED = LB_BIT(U8) | LB_BIT(U16) | LB_BIT(U32) | LB_BIT(U64),
  LB_TYPES_INT = LB_TYPES_SIGNED | LB_TYPES_UNSIGNED,
  LB_TYPES_INDEX = LB_BIT(I32) | LB_BIT(I64),
  LB_TYPES_NUMBER = LB_TYPES_FLOAT | LB_TYPES_INT,
  LB_TYPES_BOOL = LB_BIT(BOOL),
  LB_TYPES_BYTE = LB_BIT(I8) | LB_BIT(U8),
  LB_TYPES_ANY = LB_TYPES_NUMBER | LB_TYPES_BOOL,
};

// Absent inputs pass both.
lb_status lb_rule_takes(const lb_infer *c, int i, unsigned types);
lb_status lb_rule_same_type(const lb_infer *c, int i, int j);
// The ONNX data type in attribute `name`; `dflt` if absent or 0.
lb_status lb_rule_type_attr(const lb_infer *c, const char *name, lb_dtype dflt,
                            lb_dtype *out);

// -- ranks, axes, dims -------------------------------------------------------

// An input of known rank must have one in [lo, hi]. Absent inputs pass.
lb_status lb_rule_rank(const lb_infer *c, int i, int lo, int hi);
// axis in [-rank, rank) to [0, rank).
lb_status lb_rule_axis(const lb_infer *c, int64_t axis, int rank, int *out);
// Inputs 0 and 1 are data and indices that select along the attribute axis: of
// the same rank, and in no other dim the larger.
lb_status lb_rule_lines(const lb_infer *c);
// Axes in input i, all constant: count, or -1 if not known.
int lb_rule_axes_in(const lb_infer *c, int i, lb_dim *out);
// Marks n constant axes; repeated ones are errors.
lb_status lb_rule_axes(const lb_infer *c, const lb_dim *axes, int n, int rank,
                       bool *marked);
// True if no values of the symbols make them equal.
bool lb_rule_differ(lb_dim a, lb_dim b);
// Input i, if ranked, must have exactly these dims; `what` names it.
lb_status lb_rule_expect(const lb_infer *c, int i, const char *what, int rank,
                         const lb_dim *dims);
// Input i, if ranked, must broadcast to these dims without changing them.
lb_status lb_rule_fits(const lb_infer *c, int i, const char *what, int rank,
                       const lb_dim *dims);
// Input i must hold a single element (rank 0, or 1 of length 1).
lb_status lb_rule_scalar(const lb_infer *c, int i, const char *what);
// Joins dims as broadcasting does. Rank -1 if any of the inputs has none.
lb_status lb_rule_broadcast(lb_infer *c, const int *inputs, int n, int *rank,
                            lb_dim *dims);
// Arithmetic on dims as in shape/dim.h, but an expression that would grow too
// large becomes a fresh symbol.
typedef lb_status lb_rule_math(const lb_infer *c, lb_dim a, lb_dim b,
                               lb_dim *out);
lb_rule_math lb_rule_add, lb_rule_sub, lb_rule_mul, lb_rule_floordiv,
    lb_rule_ceildiv, lb_rule_min, lb_rule_max, lb_rule_divexact;
// Product of n dims, as an expression.
lb_status lb_rule_product(const lb_infer *c, const lb_dim *dims, int n,
                          lb_dim *out);
// a + k
lb_status lb_rule_plus(const lb_infer *c, lb_dim a, int64_t k, lb_dim *out);
lb_status lb_rule_fresh(const lb_infer *c, lb_dim *out);
// List attribute `name` of exactly n elements, or NULL if absent.
lb_status lb_rule_list(const lb_infer *c, const char *name, int n,
                       const int64_t **out);

// -- contents ----------------------------------------------------------------

// Contents of input i as doubles, from data alone: count, or -1.
int lb_rule_floats(const lb_infer *c, int i, double *out, int cap);
// Like lb_infer_ints, but constants alone.
int lb_rule_const_ints(const lb_infer *c, int i, int64_t *out, int cap);
// One constant: 1 and *out, 0 if the input is absent, -1 if not known.
int lb_rule_const_int(const lb_infer *c, int i, int64_t *out);
// Elements of a vector input by its dims, -1 if not known. A scalar has 1.
int lb_rule_length(const lb_infer *c, int i);

// Gives output o these contents, if it is an integer or bool of rank 0 or 1
// with n elements which its dtype can hold; else does nothing.
lb_status lb_content_set(lb_infer *c, int o, const lb_dim *v, int n);
// Contents of input i are those of output o.
lb_status lb_content_copy(lb_infer *c, int o, int i);
lb_status lb_content_unary(lb_infer *c);  // Abs, Neg, Not, Sign, Identity
lb_status lb_content_nary(lb_infer *c);   // Add ... Max, comparisons, And, Or
lb_status lb_content_where(lb_infer *c);
lb_status lb_content_reduce(lb_infer *c);  // of the whole vector
lb_status lb_content_concat(lb_infer *c);

// -- text, for errors --------------------------------------------------------

// "[2,3]", "[batch,?1]", "[...]" if the rank is unknown; in the arena.
const char *lb_rule_text(const lb_infer *c, int i);
const char *lb_rule_dims(const lb_infer *c, int rank, const lb_dim *dims);
const char *lb_rule_dim(const lb_infer *c, lb_dim d);

#endif
