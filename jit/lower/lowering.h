// lower/lowering.h -- The state and helpers that all forms share: arguments,
// and the nodes of a spec as kernel IR values. Internal to the module.
//
// A node's *uniformity* says along which dimensions its value changes:
//   LB_UNIFORM      not at all: a scalar, computed once
//   LB_UNIFORM_ROW  from row to row: a scalar per row
//   LB_VARYING      from column to column: a vector of `lanes` elements
// A scalar that varying nodes need is splat where it is computed, not where it
// is used, because no later pass hoists it out of a loop.
//
// A node's *stage* is the number of passes over the row that must have finished
// before its value is known: a reduction is one stage after its source.
#ifndef LB_LOWER_LOWERING_H
#define LB_LOWER_LOWERING_H

#include "kir/build.h"
#include "lower/lower.h"

typedef enum lb_uniformity {
  LB_UNIFORM,
  LB_UNIFORM_ROW,
  LB_VARYING
} lb_uniformity;

typedef struct lb_stride {
  lb_kval row, col;
} lb_stride;

typedef struct lb_tap_stride {
  lb_kval y, x;
} lb_tap_stride;

typedef struct lb_lowering {
  lb_kbuilder b;
  const lb_spec *spec;    // borrowed, as are facts and target
  const lb_facts *facts;  //
  const lb_target *target;
  uint32_t lanes;

  // arguments
  lb_kval out[LB_SPEC_MAX_OUT], in[LB_SPEC_MAX_IN];
  lb_stride out_stride[LB_SPEC_MAX_OUT], in_stride[LB_SPEC_MAX_IN];
  lb_kval dims[LB_SDIMS];  // constants where the facts fix them
  // CONV, WINDOW: strides between taps of inputs 0 and 1
  lb_tap_stride taps[2];
  lb_kval scalar[LB_SPEC_MAX_SCALARS];

  // nodes
  uint8_t uniformity[LB_SPEC_MAX_NODES], stage[LB_SPEC_MAX_NODES];
  bool is_splat[LB_SPEC_MAX_NODES];     // the scalar is needed as a vector, too
  lb_kval uniform[LB_SPEC_MAX_NODES];   // uniform nodes: the scalar
  lb_kval lanes_of[LB_SPEC_MAX_NODES];  // vectors, at the current columns
  uint8_t cached_node, cached_out;  // a varying node that is read back from the
                                    // row of an output, where an earlier pass
                                    // stored it; LB_SPEC_NO_NODE: none

  // the current row and columns
  lb_kval in_row[LB_SPEC_MAX_IN], out_row[LB_SPEC_MAX_OUT];
  lb_kval gathered_row[LB_SPEC_MAX_NODES];  // GATHER_ROW: the row that it reads
  lb_kval col, mask;                        // mask LB_K_NONE: all lanes
} lb_lowering;

// One function per form, which emits everything from the arguments to the last
// store.
void lb_lower_eltwise(lb_lowering *e);
void lb_lower_row_reduce(lb_lowering *e);
void lb_lower_matmul(lb_lowering *e);  // and CONV
void lb_lower_window(lb_lowering *e);
void lb_lower_attention(lb_lowering *e);

// Takes the arguments and finds the uniformity and stage of every node.
void lb_lower_begin(lb_lowering *e);

// Whether an input may be the memory of an output; if so, no element may be
// computed and stored twice.
bool lb_lower_in_place(const lb_lowering *e);

// Computes the uniform nodes at this point of the code.
void lb_lower_uniforms(lb_lowering *e);
// Moves to a row: sets its pointers and computes the row-uniform nodes of stage
// 0.
void lb_lower_row(lb_lowering *e, lb_kval row);
// Computes the row-uniform nodes of a later stage; its reductions must have
// been set with lb_lower_set_uniform before.
void lb_lower_row_stage(lb_lowering *e, uint8_t stage);
void lb_lower_set_uniform(lb_lowering *e, uint8_t node, lb_kval one);
// Moves to the `lanes` columns from `col` on, of which the mask selects some.
void lb_lower_at(lb_lowering *e, lb_kval col, lb_kval mask);
// The vector of a node at the current columns.
lb_kval lb_lower_value(lb_lowering *e, uint8_t node);

// Outputs are written in two steps, so that everything is read before anything
// is written.
typedef struct lb_stores {
  lb_kval value[LB_SPEC_MAX_OUT];
  lb_kval col, mask;
} lb_stores;
// Whether any output has an element per column.
bool lb_lower_has_stores(const lb_lowering *e);
void lb_lower_values(lb_lowering *e, lb_stores *out);
void lb_lower_stores(lb_lowering *e, const lb_stores *s);
// Stores the outputs that have one element per row.
void lb_lower_row_stores(lb_lowering *e);
// Values and stores of all columns of the current row.
void lb_lower_columns(lb_lowering *e);

// -- helpers
lb_kval lb_lower_add(lb_lowering *e, lb_kval x, int64_t n);
lb_kval lb_lower_mul(lb_lowering *e, lb_kval x, int64_t n);
lb_kval lb_lower_round_down(lb_lowering *e, lb_kval x,
                            int64_t n);  // x rounded down to a multiple of n
// Advances a register that holds a pointer by `by` elements.
void lb_lower_advance(lb_lowering *e, lb_kval reg, lb_kval by);
// Loads elements 0, stride, 2 * stride, ... of p into a vector.
lb_kval lb_lower_gather(lb_lowering *e, lb_kval p, lb_kval stride,
                        lb_kval mask);
// Transposes a block in place with as few shuffles as possible: `rows` holds
// `lanes` vectors of `lanes` elements.
void lb_lower_transpose(lb_lowering *e, lb_kval *rows);
// Horizontal reduction of n vectors (at most `lanes`), each by halving: the two
// halves of a vector are combined, then the halves of the result, and so on, as
// reductions do. Lane i of the result belongs to rows[i]; `rows` is
// overwritten.
typedef lb_kval lb_lower_combine(lb_kbuilder *b, lb_kval x, lb_kval y);
lb_kval lb_lower_hreduce(lb_lowering *e, lb_kval *rows, uint32_t n,
                         lb_lower_combine *combine);
// True of mathematical functions, which take many instructions: computing one
// twice costs more than storing and reloading its result.
bool lb_lower_is_costly(const lb_snode *n);

#endif
