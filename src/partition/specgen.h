// partition/specgen.h -- generates specs from operators of the graph.
//
// float16 and bfloat16 are storage dtypes: an operator converts its inputs to
// float32, and its result is rounded to the storage dtype again, so that a
// fused chain has the same bits as its nodes one by one. A float product to
// which a scalar is added is rounded once, together with the sum (FMA).
#ifndef LB_PARTITION_SPECGEN_H
#define LB_PARTITION_SPECGEN_H

#include "graph/graph.h"
#include "spec/spec.h"

#define LB_SPECGEN_MAX_IN 8      // inputs of an operator
#define LB_SPECGEN_MAX_NODES 24  // nodes of a partition

typedef struct lb_specgen {
  lb_spec_builder b;
  uint64_t scalars[LB_SPEC_MAX_SCALARS];  // bits of the spec's scalars
  uint32_t size_scalars;  // bit i: scalar i depends on sizes and is not shared
                          // with equal ones
  int interpolated;       // number of axes along which its Resize interpolates:
                          // partition/interpolate.h
} lb_specgen;

// Whether the node can be in a partition, according to operator, dtypes and
// attributes. Bit i of `axes` is set if a row extends along axis i of input 0,
// whose rank is known.
bool lb_specgen_is_eltwise(const lb_node *n);
bool lb_specgen_is_row_op(const lb_node *n, uint32_t *axes);
// The kinds of dtypes that the operator supports as an elementwise or row
// operation; 0: it is neither.
unsigned lb_specgen_kinds(lb_op op);
unsigned lb_specgen_row_kinds(lb_op op);
bool lb_specgen_is_matmul(const lb_node *n);

// Whether the elementwise operator takes only a few instructions, so that it
// may be recomputed in each pass over a row.
bool lb_specgen_is_cheap(const lb_node *n);
// Whether it is a nearest-neighbour Resize that repeats elements, according to
// attributes and constants. It also counts as elementwise.
bool lb_specgen_is_upsample(const lb_node *n);
// How often x is repeated along each axis of y. False if y is not such a
// repetition, or if elements of a row are repeated.
bool lb_specgen_upsample_factors(const lb_node *n, const lb_tensor *x,
                                 const lb_tensor *y, int64_t *out);

// Whether the row operation reduces a row to one element; whether it reads each
// row once.
bool lb_specgen_reduces(const lb_node *n);
bool lb_specgen_reads_once(const lb_node *n);
// Whether it can be computed as a float window, and with which accumulator. A
// mean is a sum to be divided.
bool lb_specgen_is_window(const lb_node *n, lb_acc *out);
// Whether input i has one element per channel, axis 1.
bool lb_specgen_is_channel(const lb_node *n, uint32_t i);
// False if input i is absent, or read while planning only.
bool lb_specgen_reads(const lb_node *n, uint32_t i);
// Whether v is a constant of one element, which becomes a scalar of the spec.
bool lb_specgen_is_scalar(const lb_value *v);

// -- generating

// Returns the spec node of a value from outside the partition that node number
// `reader` reads.
typedef uint8_t lb_source_fn(void *user, lb_specgen *e, uint32_t reader,
                             const lb_value *v);

// The nodes of a partition. If `has_acc`, node number `anchor` is ACC of the
// spec. lb_specgen_nodes returns the spec node of the last one's output 0;
// errors stay in the builder.
typedef struct lb_specgen_output {
  const lb_node *const *nodes;
  uint32_t n_nodes, anchor;
  bool has_acc;
  int64_t count;   // elements of a reduction that is computed as a window; else
                   // 0
  lb_acc acc;      // of any other window
  double average;  // divisor of the sum of an average pool
  lb_source_fn *source;
  void *user;
} lb_specgen_output;
uint8_t lb_specgen_nodes(lb_specgen *e, const lb_specgen_output *m);

// -- for operators

typedef uint8_t lb_specgen_fn(lb_specgen *e, const lb_node *n,
                              const uint8_t *src);

// src[i]: the spec node of input i; LB_SPEC_NO_NODE if it is not read. float16
// and bfloat16 are converted to float32, except for Cast.
lb_specgen_fn lb_specgen_eltwise_node, lb_specgen_row_node,
    lb_specgen_gemm_node;
// A reduction of `count` elements as ACC.
uint8_t lb_specgen_window_node(lb_specgen *e, const lb_node *n, int64_t count);

lb_dtype lb_specgen_dtype(const lb_specgen *e, uint8_t node);
lb_dtype lb_specgen_compute_dtype(
    lb_dtype t);  // float32 for storage dtypes, else t
uint8_t lb_specgen_bits(lb_specgen *e, lb_dtype t, uint64_t bits);  // a scalar
uint8_t lb_specgen_num(lb_specgen *e, lb_dtype t, double v);        // a scalar
// A scalar whose value depends on sizes. It is not shared with other scalars,
// which may be equal by chance.
uint8_t lb_specgen_size_scalar(lb_specgen *e, lb_dtype t, double v);
uint64_t lb_specgen_number(lb_dtype t, double v);  // bits of a scalar
uint8_t lb_specgen_const(lb_specgen *e,
                         const lb_value *v);  // v is a scalar
                                              // (lb_specgen_is_scalar)
uint8_t lb_specgen_cast(lb_specgen *e, uint8_t x, lb_dtype t);
// The result has the dtype of x.
uint8_t lb_specgen_op1(lb_specgen *e, lb_sop op, uint8_t x);
uint8_t lb_specgen_op2(lb_specgen *e, lb_sop op, uint8_t x, uint8_t y);
uint8_t lb_specgen_test(lb_specgen *e, lb_sop op, uint8_t x,
                        uint8_t y);  // bool
uint8_t lb_specgen_choose(lb_specgen *e, uint8_t cond, uint8_t x, uint8_t y);

// Kinds of dtypes that an operator supports: float, signed, unsigned, bool.
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
