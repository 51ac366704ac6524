// graph/rules.h -- helpers of the shape rules. Private to rules_*.c and
// infer.c.
//
// Rules run on numbers while planning, so the common path allocates nothing but
// `known` contents and formats no text; text is only formatted for errors.
#ifndef LB_GRAPH_RULES_H
#define LB_GRAPH_RULES_H

#include "graph/infer.h"

#define LB_OP(id, min_in, max_in, max_out, cls, deciding, traits, shape, ...) \
  lb_shape_fn shape;
#include "graph/ops.def"

// Larger than any dim of a tensor: Slice ends above it mean "to the end".
#define LB_DIM_LIMIT ((int64_t)1 << 47)

// -- inputs and outputs ------------------------------------------------------

static inline bool lb_rule_has(const lb_infer *c, int i) {
  return i < (int)c->node->n_in && c->in[i].dtype != LB_NONE;
}

// Input i is present, and its rank is known.
static inline bool lb_rule_ranked(const lb_infer *c, int i) {
  return lb_rule_has(c, i) && c->in[i].rank >= 0;
}

static inline bool lb_rule_wants(const lb_infer *c, int o) {
  return o < (int)c->node->n_out;
}

// Sets the dtype of output o; rank and dims stay unknown. Absent outputs are
// ignored, here and below.
void lb_rule_type(lb_infer *c, int o, lb_dtype t);
// Sets dtype and dims of output o; rank -1 leaves it unranked. The rank is at
// most LB_MAX_RANK.
void lb_rule_set(lb_infer *c, int o, lb_dtype t, int rank, const lb_dim *dims);
// Sets the dtype of output o, and the dims of x.
void lb_rule_like(lb_infer *c, int o, lb_dtype t, const lb_vinfo *x);
// Sets the dtype and rank of output o; the dims are unknown: fresh symbols at
// load. At planning the rank stays -1, because the kernel determines the dims.
lb_status lb_rule_unknown(lb_infer *c, int o, lb_dtype t, int rank);
// Fails if the rank exceeds LB_MAX_RANK.
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
  LB_TYPES_INT8 = LB_BIT(I8) | LB_BIT(U8),
  LB_TYPES_ANY = LB_TYPES_NUMBER | LB_TYPES_BOOL,
};

// Absent inputs pass both checks.
lb_status lb_rule_takes(const lb_infer *c, int i, unsigned types);
lb_status lb_rule_same_type(const lb_infer *c, int i, int j);
// Reads the ONNX data type in attribute `name`; `dflt` if absent or 0.
lb_status lb_rule_type_attr(const lb_infer *c, const char *name, lb_dtype dflt,
                            lb_dtype *out);

// -- ranks, axes, dims -------------------------------------------------------

// The rank of input i, if known, must be in [lo, hi]. Absent inputs pass.
lb_status lb_rule_rank(const lb_infer *c, int i, int lo, int hi);
// Normalises an axis in [-rank, rank) to [0, rank).
lb_status lb_rule_axis(const lb_infer *c, int64_t axis, int rank, int *out);
// Checks data and indices (inputs 0 and 1) that select along attribute `axis`,
// as GatherElements does: both must have the same rank, and in every other dim
// the indices must not be larger than the data.
lb_status lb_rule_elements(const lb_infer *c);
// The constant axes in input i: their number, or -1 if not known.
int lb_rule_axes_in(const lb_infer *c, int i, lb_dim *out);
// Marks n constant axes; a repeated axis is an error.
lb_status lb_rule_axes(const lb_infer *c, const lb_dim *axes, int n, int rank,
                       bool *marked);
// True if no values of the symbols make a and b equal.
bool lb_rule_differ(lb_dim a, lb_dim b);
// Input i, if ranked, must have exactly these dims; `what` names it in errors.
lb_status lb_rule_expect(const lb_infer *c, int i, const char *what, int rank,
                         const lb_dim *dims);
// Input i, if ranked, must broadcast to these dims without changing them.
lb_status lb_rule_fits(const lb_infer *c, int i, const char *what, int rank,
                       const lb_dim *dims);
// Input i must hold a single element (rank 0, or rank 1 of length 1).
lb_status lb_rule_scalar(const lb_infer *c, int i, const char *what);
// Broadcasts the dims of these inputs. Rank -1 if any input is unranked.
lb_status lb_rule_broadcast(lb_infer *c, const int *inputs, int n, int *rank,
                            lb_dim *dims);
// Arithmetic on dims as in shape/dim.h, except that an expression that would
// grow too large becomes a fresh symbol.
typedef lb_status lb_rule_math(const lb_infer *c, lb_dim a, lb_dim b,
                               lb_dim *out);
lb_rule_math lb_rule_add, lb_rule_sub, lb_rule_mul, lb_rule_floordiv,
    lb_rule_ceildiv, lb_rule_min, lb_rule_max, lb_rule_divexact;
// The product of n dims, as an expression.
lb_status lb_rule_product(const lb_infer *c, const lb_dim *dims, int n,
                          lb_dim *out);
// a + k
lb_status lb_rule_plus(const lb_infer *c, lb_dim a, int64_t k, lb_dim *out);
lb_status lb_rule_fresh(const lb_infer *c, lb_dim *out);
// The list attribute `name`, which must have exactly n elements, or NULL if
// absent.
lb_status lb_rule_list(const lb_infer *c, const char *name, int n,
                       const int64_t **out);

// -- contents ----------------------------------------------------------------

// Contents of input i as doubles, from data alone: their number, or -1.
int lb_rule_floats(const lb_infer *c, int i, double *out, int cap);
// Like lb_infer_ints, but for constants only.
int lb_rule_const_ints(const lb_infer *c, int i, int64_t *out, int cap);
// A single constant: 1 and *out, 0 if the input is absent, -1 if not known.
int lb_rule_const_int(const lb_infer *c, int i, int64_t *out);
// Number of elements of a vector input, from its dims; -1 if not known, 1 for a
// scalar.
int lb_rule_length(const lb_infer *c, int i);

// Sets the contents of output o if it is an integer or bool of rank 0 or 1 with
// n elements that its dtype can represent; otherwise does nothing.
lb_status lb_content_set(lb_infer *c, int o, const lb_dim *v, int n);
// Copies the contents of input i to output o.
lb_status lb_content_copy(lb_infer *c, int o, int i);
lb_status lb_content_unary(lb_infer *c);  // Abs, Neg, Not, Sign, Identity
lb_status lb_content_nary(lb_infer *c);   // Add ... Max, comparisons, And, Or
lb_status lb_content_where(lb_infer *c);
lb_status lb_content_reduce(lb_infer *c);  // over the whole vector
lb_status lb_content_concat(lb_infer *c);

// -- text, for errors --------------------------------------------------------

// "[2,3]", "[batch,?1]", or "[...]" if the rank is unknown; allocated in the
// arena.
const char *lb_rule_text(const lb_infer *c, int i);
const char *lb_rule_dims(const lb_infer *c, int rank, const lb_dim *dims);
const char *lb_rule_dim(const lb_infer *c, lb_dim d);

#endif
