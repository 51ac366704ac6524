// partition/specgen.h -- operators of the graph as operations of a spec.
//
// float16 and bfloat16 are storage: an operator reads them as float32, and what
// it makes is rounded to them again, so that a chain of operators has the bits
// that its nodes have one by one. A product of floats to which a number is
// added is rounded with it, once.
#ifndef LB_PARTITION_SPECGEN_H
#define LB_PARTITION_SPECGEN_H

#include "graph/graph.h"
#include "spec/spec.h"

#define LB_SPECGEN_MAX_IN 8      // inputs of an operator
#define LB_SPECGEN_MAX_NODES 24  // of a partition

typedef struct lb_specgen {
  lb_spec_builder b;
  uint64_t scalars[LB_SPEC_MAX_SCALARS];  // bits of the spec's scalars
  uint32_t own;  // bit i: scalar i stays apart from equal ones
  int blended;   // axes along which its Resize blends: partition/interpolate.h
} lb_specgen;

// True if the node can stand in a partition as far as operator, dtypes and
// attributes say. What they say of axes: bit i of `axes` is set if a row runs
// along axis i of input 0, whose rank is known.
bool lb_specgen_is_map(const lb_node *n);
bool lb_specgen_is_rows(const lb_node *n, uint32_t *axes);
// Kinds of dtypes that maps or rows of an operator take; 0: it is none of them.
unsigned lb_specgen_kinds(lb_op op);
unsigned lb_specgen_row_kinds(lb_op op);
bool lb_specgen_is_product(const lb_node *n);

// Whether the elementwise operator is no more than some instructions: it may be
// computed again in each pass over a row.
bool lb_specgen_is_cheap(const lb_node *n);
// A Resize to the nearest, as far as attributes and constants say; a map, too.
bool lb_specgen_is_repeat(const lb_node *n);
// How often it repeats x along each axis of y. False if y is not made so, or
// if elements of a row are repeated.
bool lb_specgen_repeats(const lb_node *n, const lb_tensor *x,
                        const lb_tensor *y, int64_t *out);

// Whether the row operator leaves one element of a row; whether it reads each
// row once.
bool lb_specgen_reduces(const lb_node *n);
bool lb_specgen_reads_once(const lb_node *n);
// Whether a window can do it: how, in floats. A mean is a sum to be divided.
bool lb_specgen_is_window(const lb_node *n, lb_acc *out);
// Whether input i holds one element a channel, axis 1.
bool lb_specgen_is_channel(const lb_node *n, uint32_t i);
// False if input i is absent, or if nothing but planning reads it.
bool lb_specgen_reads(const lb_node *n, uint32_t i);
// A constant of one element: a scalar of the spec.
bool lb_specgen_is_scalar(const lb_value *v);

// -- emitting

// The spec node of a value that the partition does not compute, for its node
// number `reader`.
typedef uint8_t lb_source_fn(void *user, lb_specgen *e, uint32_t reader,
                             const lb_value *v);

// Nodes of a partition, of which number `anchor` is ACC of the spec if
// `product`. Returns the spec node of the last one's output 0; mistakes stay in
// the builder.
typedef struct lb_specgen_output {
  const lb_node *const *nodes;
  uint32_t n_nodes, anchor;
  bool product;
  int64_t count;   // elements that a reduction made as a window has; else 0
  lb_acc acc;      // of another window
  double average;  // what its sum is divided by
  lb_source_fn *source;
  void *user;
} lb_specgen_output;
uint8_t lb_specgen_nodes(lb_specgen *e, const lb_specgen_output *m);

// -- for operators

typedef uint8_t lb_specgen_fn(lb_specgen *e, const lb_node *n,
                              const uint8_t *src);

// src[i]: the spec node of input i, LB_SPEC_NO_NODE where it is not read;
// float16 and bfloat16 widened, for Cast alone as they are.
lb_specgen_fn lb_specgen_map_node, lb_specgen_rows_node, lb_specgen_gemm_node;
// A reduction of `count` elements as ACC.
uint8_t lb_specgen_window_node(lb_specgen *e, const lb_node *n, int64_t count);

lb_dtype lb_specgen_dtype(const lb_specgen *e, uint8_t node);
lb_dtype lb_specgen_work(lb_dtype t);  // float32 for storage, else t
uint8_t lb_specgen_bits(lb_specgen *e, lb_dtype t, uint64_t bits);  // a scalar
uint8_t lb_specgen_num(lb_specgen *e, lb_dtype t, double v);        // a scalar
// A scalar of its own, for the number that sizes decide: it may equal others by
// chance.
uint8_t lb_specgen_own(lb_specgen *e, lb_dtype t, double v);
uint64_t lb_specgen_number(lb_dtype t, double v);            // bits of a scalar
uint8_t lb_specgen_const(lb_specgen *e, const lb_value *v);  // an is_scalar
uint8_t lb_specgen_cast(lb_specgen *e, uint8_t x, lb_dtype t);
// In the dtype of x.
uint8_t lb_specgen_op1(lb_specgen *e, lb_sop op, uint8_t x);
uint8_t lb_specgen_op2(lb_specgen *e, lb_sop op, uint8_t x, uint8_t y);
uint8_t lb_specgen_test(lb_specgen *e, lb_sop op, uint8_t x,
                        uint8_t y);  // bool
uint8_t lb_specgen_choose(lb_specgen *e, uint8_t cond, uint8_t x, uint8_t y);

// Kinds of dtypes that an operator takes.
enum {
  LB_KIND_F = 1,
  LB_KIND_S = 2,
  LB_KIND_U = 4,
  LB_KIND_B = 8,
  LB_KIND_I = LB_KIND_S | LB_KIND_U,
  LB_KIND_N = LB_KIND_F | LB_KIND_I,
};
unsigned lb_specgen_kind(lb_dtype t);  // 0: not known yet

#endif
