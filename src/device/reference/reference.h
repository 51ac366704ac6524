// device/reference/reference.h -- a plain C implementation of every operator:
// the semantics of record, the reference of all tests, the last resort.
//
// Readable, not fast; still no worse than the obvious good loop order, since
// models run on it. A function gets tensors whose dtypes and dims the shape
// rule has accepted. Inputs may have any strides and any alignment; outputs
// are dense, row-major, and never overlap inputs. An output that nobody wants
// has dtype LB_NONE. Dims may be 0 anywhere.
//
// Order of accumulation: a sum adds its elements in row-major order of the
// reduced axes. Floats are added in chains of LB_REFERENCE_CHAIN elements, in
// float for float16, bfloat16 and float32, in double for float64; the sums of
// the chains are added in double and rounded in the end. So the error does not
// grow with the number of elements. Losses, and what Einsum does not do as a
// product of matrices, are added in double right away. Integers are added in
// their own width (wrapping). An empty sum is 0, a sum of -0 alone -0. A
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
  const lb_tensor *in;  // node->n_in of them; absent: dtype LB_NONE
  lb_tensor *out;       // node->n_out
  lb_pool *pool;        // may be NULL
  lb_arena *scratch;    // emptied after the call
  uint64_t seed;        // for random operators without a seed of their own
  // For operators with the trait DYNAMIC: gives output i memory of these dims,
  // dense (dtype was set by the rule). Called once per wanted output.
  lb_status (*grow)(lb_reference_call *c, int i, int rank, const int64_t *dims);
  void *user;
};

typedef lb_status lb_reference_fn(lb_reference_call *c);

// Runs c->node's operator, if an output has elements; errors name the node.
// LB_UNSUPPORTED for dtypes an operator does not take, with the dtype in the
// message.
lb_status lb_reference_run(lb_reference_call *c);

// -- for operators -----------------------------------------------------------

#define LB_OP(id, ...) lb_reference_fn lb_reference_##id;
#define LB_CONTROL(id, ...)
#include "graph/ops.def"

#define LB_REFERENCE_CHAIN 16  // elements of a sum that are added in float

// Element types that may be unaligned and alias: mapped weights lie anywhere.
#define LB_ELEMENT __attribute__((aligned(1), may_alias))
typedef float LB_ELEMENT lb_f32;
typedef double LB_ELEMENT lb_f64;
typedef uint16_t LB_ELEMENT lb_half;  // bits of float16 or bfloat16
typedef int8_t LB_ELEMENT lb_i8;
typedef int16_t LB_ELEMENT lb_i16;
typedef int32_t LB_ELEMENT lb_i32;
typedef int64_t LB_ELEMENT lb_i64;
typedef uint8_t LB_ELEMENT lb_u8;
typedef uint16_t LB_ELEMENT lb_u16;
typedef uint32_t LB_ELEMENT lb_u32;
typedef uint64_t LB_ELEMENT lb_u64;

// "float64 is not supported" and the like, naming the operator.
lb_status lb_reference_bad_dtype(const lb_reference_call *c, lb_dtype t);

// A dense tensor of t's dims in scratch, converted to `dtype`, or t itself
// when it is dense and of that dtype already.
lb_status lb_reference_dense(lb_reference_call *c, const lb_tensor *t,
                             lb_dtype dtype, lb_tensor *out);

// Converts elements between any two dtypes as ONNX Cast does.
lb_status lb_reference_convert(const lb_tensor *from, const lb_tensor *to);

// Contents of an integer tensor input (any integer dtype or bool) as int64 in
// scratch, row-major.
lb_status lb_reference_ints(lb_reference_call *c, int i, const int64_t **out,
                            int64_t *n);
// The single element of input i as double; dflt if the input is absent.
lb_status lb_reference_scalar(lb_reference_call *c, int i, double dflt,
                              double *out);

// axis in [-rank, rank) to [0, rank); anything else is LB_INVALID.
lb_status lb_reference_axis(const lb_reference_call *c, int64_t axis, int rank,
                            int *out);

#endif
