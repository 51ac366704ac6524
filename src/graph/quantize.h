// graph/quantize.h -- what passes over quantised graphs share. Internal to the
// room.
#ifndef LB_GRAPH_QUANTIZE_H
#define LB_GRAPH_QUANTIZE_H

#include "graph/rewrite.h"

// Inputs of QuantizeLinear and DequantizeLinear; outputs of
// DynamicQuantizeLinear.
enum { LB_Q_X, LB_Q_SCALE, LB_Q_ZERO_POINT };

// -- nodes before another one ------------------------------------------------

typedef struct lb_insert_point {
  lb_rewrite *rw;
  lb_node *at;  // what is made stands right before it
} lb_insert_point;

lb_status lb_insert_make(const lb_insert_point *s, lb_op op, lb_value *x,
                         lb_value *y,
                         lb_value **out);  // y may be NULL
lb_status lb_insert_with(const lb_insert_point *s, lb_op op, lb_value *x,
                         float y, lb_value **out);
// x rounded, moved by `zero` (may be NULL) and cut off; and the same of
// x / scale, the least of what is no number.
lb_status lb_insert_quantize(const lb_insert_point *s, lb_value *x,
                             lb_value *zero, const float range[2],
                             lb_value **out);
lb_status lb_insert_quantize_scaled(const lb_insert_point *s, lb_value *x,
                                    lb_value *scale, lb_value *zero,
                                    const float range[2], lb_value **out);
// The least and the greatest of dtype t; false if levels are not of that dtype.
bool lb_levels_range(lb_dtype t, float range[2]);

// DynamicQuantizeLinear step by step, and QuantizeLinear with one scale, a
// constant: their nodes make bytes of these levels. Others stay as they are.
lb_status lb_expand_dynamic_quantize(lb_rewrite *rw, lb_node *n);
lb_status lb_expand_quantize(lb_rewrite *rw, lb_node *n);

// Whether n makes its result of elements of its first input as they are: it
// does the same with floats. And n once more, of x.
bool lb_levels_move(const lb_node *n);
lb_status lb_insert_repeat(const lb_insert_point *s, const lb_node *n,
                           lb_value *x, lb_value **out);
// The floats that v, bytes that were spelled out, was cut down from, moved as
// bytes are between there and v; NULL if it is none of these.
lb_status lb_insert_find_levels(const lb_insert_point *s, const lb_value *v,
                                lb_value **out);

// -- products of bytes: pass_bytes.c -----------------------------------------

typedef enum lb_weight_order {
  LB_WEIGHTS_KN,    // rows x columns
  LB_WEIGHTS_NK,    // columns x rows
  LB_WEIGHTS_OIHW,  // channels made x channels read x kernel
} lb_weight_order;

// The constant side of a product: `w` less `zero`.
typedef struct lb_int8_weights {
  const lb_tensor *w, *zero;  // zero may be NULL
  int64_t n_zero;             // one, or one a column
  int64_t rows, cols;
  int64_t more;  // channels that a convolution lacks to fours
  lb_weight_order how;
  bool fits;  // into int8
} lb_int8_weights;

// bias + (a - zero) * b. `zero`, one element, and `bias`, int32, one or one a
// column, may be NULL; so is `conv`, a node with its attributes, where it is no
// convolution.
typedef struct lb_int8_gemm {
  const lb_node *conv;
  lb_value *a, *zero;
  const lb_int8_weights *b;
  const lb_tensor *bias;
} lb_int8_gemm;

// False if they are none for such products.
bool lb_int8_weights_find(const lb_value *w, const lb_value *zero,
                          lb_weight_order how, lb_int8_weights *out);
bool lb_int8_gemm_is(const lb_int8_gemm *p);
lb_status lb_insert_int8_gemm(const lb_insert_point *s, const lb_int8_gemm *p,
                              lb_value **out);  // in int32

// -- constants ---------------------------------------------------------------

// n numbers, before `space` dims of 1; -1: one without dims. They are 0 until
// the caller, who has them from lb_value_const, fills them in.
lb_status lb_const_numbers(lb_graph *g, lb_dtype t, int64_t n, int space,
                           lb_value **out);
// Has v one element, and no more than an axis?
static inline bool lb_is_single(const lb_value *v) {
  const lb_vinfo *i = &v->info;
  return i->rank == 0 || (i->rank == 1 && lb_dim_is(i->dims[0], 1));
}
static inline bool lb_is_byte(lb_dtype t) { return t == LB_I8 || t == LB_U8; }
static inline int lb_byte_at(const lb_tensor *t, int64_t i) {
  return t->dtype == LB_I8 ? ((const int8_t *)t->data)[i]
                           : ((const uint8_t *)t->data)[i];
}
const lb_tensor *lb_bytes_of(const lb_value *v);  // NULL: no dense constant
bool lb_zero_point_at(const lb_value *v, float *out);  // of one element

#endif
