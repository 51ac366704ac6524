// graph/quantize.h -- what the passes over quantised graphs share. Private to
// this module.
#ifndef LB_GRAPH_QUANTIZE_H
#define LB_GRAPH_QUANTIZE_H

#include "graph/rewrite.h"

// Inputs of QuantizeLinear and DequantizeLinear, and outputs of
// DynamicQuantizeLinear.
enum { LB_Q_X, LB_Q_SCALE, LB_Q_ZERO_POINT };

// -- inserting nodes ---------------------------------------------------------

typedef struct lb_insert_point {
  lb_rewrite *rw;
  lb_node *at;  // new nodes are inserted right before it
} lb_insert_point;

lb_status lb_insert_node(const lb_insert_point *s, lb_op op, lb_value *x,
                         lb_value *y,
                         lb_value **out);  // y may be NULL
lb_status lb_insert_with_scalar(const lb_insert_point *s, lb_op op, lb_value *x,
                                float y, lb_value **out);
// clamp(round(x) + zero_point), and the same for x / scale, where NaN maps to
// the minimum. The result is float32; zero_point may be NULL.
lb_status lb_insert_quantize(const lb_insert_point *s, lb_value *x,
                             lb_value *zero_point, const float range[2],
                             lb_value **out);
lb_status lb_insert_quantize_scaled(const lb_insert_point *s, lb_value *x,
                                    lb_value *scale, lb_value *zero_point,
                                    const float range[2], lb_value **out);
// The minimum and maximum of dtype t; false if quantised values do not have it.
bool lb_quantized_range(lb_dtype t, float range[2]);

// Expand DynamicQuantizeLinear, and QuantizeLinear with one constant scale,
// into float operators that end with a Cast to the quantised dtype. Other nodes
// stay as they are.
lb_status lb_expand_dynamic_quantize(lb_rewrite *rw, lb_node *n);
lb_status lb_expand_quantize(lb_rewrite *rw, lb_node *n);

// Whether n only moves elements of its first input, or takes their maximum, so
// that it gives the same result on quantised values held as floats.
// lb_insert_copy inserts another n that reads x.
bool lb_commutes_with_cast(const lb_node *n);
lb_status lb_insert_copy(const lb_insert_point *s, const lb_node *n,
                         lb_value *x, lb_value **out);
// The floats from which v, an expanded quantised value, was cast, after the
// data movement between that Cast and v; NULL if v is no such value.
lb_status lb_insert_uncast(const lb_insert_point *s, const lb_value *v,
                           lb_value **out);

// -- int8 GEMM: pass_int8.c --------------------------------------------------

typedef enum lb_weight_order {
  LB_WEIGHTS_KN,    // K x N
  LB_WEIGHTS_NK,    // N x K
  LB_WEIGHTS_OIHW,  // output channels x input channels x kernel
} lb_weight_order;

// The constant operand B of an int8 GEMM: w - zero_point.
typedef struct lb_int8_weights {
  const lb_tensor *w, *zero_point;  // zero_point may be NULL
  int64_t n_zero_points;            // one, or one per column
  int64_t rows, cols;
  int64_t extra_channels;  // added to the input's, so that 4 divides them
  lb_weight_order order;
  bool fits;  // w - zero_point fits into int8
} lb_int8_weights;

// bias + (a - zero_point) * b. zero_point has one element, bias (int32) one or
// one per column; both may be NULL. conv is the node whose attributes a
// convolution has, or NULL for a matmul.
typedef struct lb_int8_gemm {
  const lb_node *conv;
  lb_value *a, *zero_point;
  const lb_int8_weights *b;
  const lb_tensor *bias;
} lb_int8_gemm;

// False if w or zero_point is not suitable.
bool lb_int8_weights_find(const lb_value *w, const lb_value *zero_point,
                          lb_weight_order order, lb_int8_weights *out);
bool lb_int8_gemm_is(const lb_int8_gemm *p);
lb_status lb_insert_int8_gemm(const lb_insert_point *s, const lb_int8_gemm *p,
                              lb_value **out);  // int32

// -- constants ---------------------------------------------------------------

// Creates n zeros of shape [n, 1, ...] with n_spatial trailing ones; -1: a
// scalar. The caller fills them in through lb_value_const.
lb_status lb_const_zeros(lb_graph *g, lb_dtype t, int64_t n, int n_spatial,
                         lb_value **out);
// Whether v has one element and at most one axis.
static inline bool lb_is_single(const lb_value *v) {
  const lb_vinfo *i = &v->info;
  return i->rank == 0 || (i->rank == 1 && lb_dim_is(i->dims[0], 1));
}
static inline bool lb_is_int8(lb_dtype t) { return t == LB_I8 || t == LB_U8; }
static inline int lb_int8_at(const lb_tensor *t, int64_t i) {
  return t->dtype == LB_I8 ? ((const int8_t *)t->data)[i]
                           : ((const uint8_t *)t->data)[i];
}
// v as a dense int8 or uint8 constant, or NULL.
const lb_tensor *lb_int8_const(const lb_value *v);
// The zero point v, if it is a constant with one element.
bool lb_zero_point_at(const lb_value *v, float *out);

#endif
