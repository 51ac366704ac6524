// lower/lowering.h -- what the families share: arguments, and the nodes of a
// spec as kernel IR values.
//
// A node has one of three *scopes*, by where its value changes:
//   ALL   nowhere: computed once, a scalar
//   ROW   from row to row: a scalar
//   EACH  from column to column: lanes
// A scalar that nodes of scope EACH need is splat where it is computed, not
// where it is used: nothing moves it out of a loop later.
//
// A node's *stage* is the number of passes over the row after which it is
// known: a reduction comes one after its source.
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

typedef struct lb_taps {
  lb_kval run, step;
} lb_taps;

typedef struct lb_lowering {
  lb_kbuilder b;
  const lb_spec *spec;    // borrowed, as the two below
  const lb_facts *facts;  //
  const lb_target *target;
  uint32_t lanes;

  // arguments
  lb_kval out[LB_SPEC_MAX_OUT], in[LB_SPEC_MAX_IN];
  lb_stride out_stride[LB_SPEC_MAX_OUT], in_stride[LB_SPEC_MAX_IN];
  lb_kval dims[LB_SDIMS];  // constants where facts know them
  lb_taps taps[2];         // of inputs 0 and 1: CONV, WINDOW
  lb_kval scalar[LB_SPEC_MAX_SCALARS];

  // nodes
  uint8_t scope[LB_SPEC_MAX_NODES], stage[LB_SPEC_MAX_NODES];
  bool is_splat[LB_SPEC_MAX_NODES];     // needed in lanes
  lb_kval one[LB_SPEC_MAX_NODES];       // ALL, ROW: the scalar
  lb_kval lanes_of[LB_SPEC_MAX_NODES];  // in lanes, at the present place
  uint8_t kept, kept_out;  // a node read from the row of an output, or 255

  // the present place
  lb_kval in_row[LB_SPEC_MAX_IN], out_row[LB_SPEC_MAX_OUT];
  lb_kval picked[LB_SPEC_MAX_NODES];  // PICK: the row that it reads
  lb_kval col, mask;                  // mask: LB_K_NONE, all lanes
} lb_lowering;

// One function a form: everything from the arguments to the last store.
void lb_lower_map(lb_lowering *e);
void lb_lower_rows(lb_lowering *e);
void lb_lower_matmul(lb_lowering *e);  // and CONV
void lb_lower_window(lb_lowering *e);
void lb_lower_attention(lb_lowering *e);

// Arguments, scopes and stages.
void lb_lower_begin(lb_lowering *e);

// An input may be the memory of an output: no element may be made twice.
bool lb_lower_in_place(const lb_lowering *e);

// The nodes of scope ALL, anew.
void lb_lower_all(lb_lowering *e);
// Goes to a row: pointers, and the nodes of scope ROW of stage 0.
void lb_lower_row(lb_lowering *e, lb_kval row);
// The nodes of scope ROW of a later stage; reductions must be given before.
void lb_lower_stage(lb_lowering *e, uint8_t stage);
void lb_lower_give(lb_lowering *e, uint8_t node, lb_kval one);
// Goes to columns `col` and on, `lanes` of them, those off mask off.
void lb_lower_at(lb_lowering *e, lb_kval col, lb_kval mask);
// The value of a node there, in lanes.
lb_kval lb_lower_value(lb_lowering *e, uint8_t node);

// Outputs, in two parts so that all is read before anything is written.
typedef struct lb_stores {
  lb_kval value[LB_SPEC_MAX_OUT];
  lb_kval col, mask;
} lb_stores;
bool lb_lower_has_stores(const lb_lowering *e);  // an output of each element
void lb_lower_values(lb_lowering *e, lb_stores *out);
void lb_lower_stores(lb_lowering *e, const lb_stores *s);
// Outputs of one element a row.
void lb_lower_row_stores(lb_lowering *e);
// All columns of the present row: values and stores.
void lb_lower_columns(lb_lowering *e);

// -- small things
lb_kval lb_lower_add(lb_lowering *e, lb_kval x, int64_t n);
lb_kval lb_lower_mul(lb_lowering *e, lb_kval x, int64_t n);
lb_kval lb_lower_down(lb_lowering *e, lb_kval x,
                      int64_t n);  // to a multiple of n
// A register that holds a pointer: `by` elements on.
void lb_lower_advance(lb_lowering *e, lb_kval reg, lb_kval by);
// Elements 0, stride, 2 * stride, ... from p on, in lanes.
lb_kval lb_lower_gather(lb_lowering *e, lb_kval p, lb_kval stride,
                        lb_kval mask);
// Turns a block around: `rows` holds `lanes` vectors of `lanes` lanes, and of
// them becomes its columns, in as few shuffles as there can be.
void lb_lower_turn(lb_lowering *e, lb_kval *rows);
// Combines all lanes of each of n vectors, at most as many as lanes: the two
// halves of a vector, then those of what that gives, and so on, as reductions
// do. Lane i is what became of rows[i]; what is in `rows` is lost.
typedef lb_kval lb_lower_combine(lb_kbuilder *b, lb_kval x, lb_kval y);
lb_kval lb_lower_fold(lb_lowering *e, lb_kval *rows, uint32_t n,
                      lb_lower_combine *combine);
// Mathematics: many instructions, and worth a store and a load to have once.
bool lb_lower_is_costly(const lb_snode *n);

#endif
