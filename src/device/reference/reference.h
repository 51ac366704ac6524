// device/reference/reference.h -- a plain C implementation of every operator:
// it defines the semantics, all tests compare with it, and it runs what no
// kernel serves.
//
// It is written to be readable, but with a good loop order, because models run
// on it. A function gets tensors whose dtypes and dims the shape rule has
// accepted. Inputs may have any strides and any alignment; outputs are dense,
// row-major, and never overlap inputs. An unwanted output has dtype LB_NONE.
// Any dim may be 0.
//
// Order of accumulation: a sum adds its elements in row-major order of the
// reduced axes. Floats are added in chains of LB_REFERENCE_CHAIN elements, in
// float for float16, bfloat16 and float32, in double for float64; the sums of
// the chains are added in double and rounded at the end, so the error does not
// grow with the number of elements. Losses, and the parts of Einsum that are
// not computed as a GEMM, are accumulated in double. Integers are added in
// their own width (wrapping). An empty sum is 0, a sum of only -0 is -0. A
// contraction adds products in order of k, in one chain. Parallel loops split
// outputs, never a sum, so results do not depend on the number of threads.
#ifndef LB_DEVICE_REFERENCE_REFERENCE_H
#define LB_DEVICE_REFERENCE_REFERENCE_H

#include "base/arena.h"
#include "base/pool.h"
#include "base/tensor.h"
#include "graph/graph.h"

typedef struct lb_reference_call lb_reference_call;
struct lb_reference_call {
  const lb_node *node;
  const lb_tensor *in;  // node->n_in tensors; absent: dtype LB_NONE
  lb_tensor *out;       // node->n_out
  lb_pool *pool;        // may be NULL
  lb_arena *scratch;    // reset after the call
  uint64_t seed;        // for random operators without a seed attribute
  // For operators with the trait DYNAMIC: allocates output i, dense, with these
  // dims (the shape rule has set its dtype). Called once per wanted output.
  lb_status (*grow)(lb_reference_call *c, int i, int rank, const int64_t *dims);
  void *user;
};

typedef lb_status lb_reference_fn(lb_reference_call *c);

// Runs the operator of c->node if an output has elements; errors name the node.
// LB_UNSUPPORTED, with the dtype in the message, for dtypes that the operator
// does not support.
lb_status lb_reference_run(lb_reference_call *c);

// -- for implementations of operators ----------------------------------------

#define LB_OP(id, ...) lb_reference_fn lb_reference_##id;
#define LB_CONTROL(id, ...)
#include "graph/ops.def"

// Elements that are added in float before the sum continues in double.
#define LB_REFERENCE_CHAIN 16

// Element types that may be unaligned and may alias, because mapped weights can
// be at any address.
#define LB_ELEMENT __attribute__((aligned(1), may_alias))
typedef float LB_ELEMENT lb_f32;
typedef double LB_ELEMENT lb_f64;
typedef uint16_t LB_ELEMENT lb_bits16;  // the bits of a float16 or bfloat16
typedef int8_t LB_ELEMENT lb_i8;
typedef int16_t LB_ELEMENT lb_i16;
typedef int32_t LB_ELEMENT lb_i32;
typedef int64_t LB_ELEMENT lb_i64;
typedef uint8_t LB_ELEMENT lb_u8;
typedef uint16_t LB_ELEMENT lb_u16;
typedef uint32_t LB_ELEMENT lb_u32;
typedef uint64_t LB_ELEMENT lb_u64;

// LB_UNSUPPORTED: the operator does not support the dtype.
lb_status lb_reference_bad_dtype(const lb_reference_call *c, lb_dtype t);

// Returns t itself if it is dense and of `dtype`, else a dense, converted copy
// in scratch.
lb_status lb_reference_dense(lb_reference_call *c, const lb_tensor *t,
                             lb_dtype dtype, lb_tensor *out);

// Converts elements between any two dtypes, as ONNX Cast does.
lb_status lb_reference_convert(const lb_tensor *from, const lb_tensor *to);

// The contents of an integer input (any integer dtype or bool) as int64 in
// scratch, row-major; NULL if absent.
lb_status lb_reference_ints(lb_reference_call *c, int i, const int64_t **out,
                            int64_t *n);
// The single element of input i as double; dflt if the input is absent.
lb_status lb_reference_scalar(lb_reference_call *c, int i, double dflt,
                              double *out);

// Maps an axis in [-rank, rank) to [0, rank); any other is LB_INVALID.
lb_status lb_reference_axis(const lb_reference_call *c, int64_t axis, int rank,
                            int *out);

#endif
