// graph/quantize.h -- what passes over quantised graphs share. Internal to the
// room.
#ifndef LB_GRAPH_QUANTIZE_H
#define LB_GRAPH_QUANTIZE_H

#include "graph/rewrite.h"

// Inputs of QuantizeLinear and DequantizeLinear; outputs of
// DynamicQuantizeLinear.
enum { LB_Q_X, LB_Q_SCALE, LB_Q_ZERO };

// -- nodes before another one ------------------------------------------------

typedef struct lb_spot {
  lb_rewrite *rw;
  lb_node *at;  // what is made stands right before it
} lb_spot;

lb_status lb_spot_make(const lb_spot *s, lb_op op, lb_value *x, lb_value *y,
                       lb_value **out);  // y may be NULL
lb_status lb_spot_with(const lb_spot *s, lb_op op, lb_value *x, float y,
                       lb_value **out);
// x rounded, moved by `zero` (may be NULL) and cut off; and the same of
// x / scale.
lb_status lb_spot_level(const lb_spot *s, lb_value *x, lb_value *zero,
                        const float range[2], lb_value **out);
lb_status lb_spot_levels(const lb_spot *s, lb_value *x, lb_value *scale,
                         lb_value *zero, const float range[2], lb_value **out);
// The least and the greatest of dtype t; false if levels are not of that dtype.
bool lb_levels_range(lb_dtype t, float range[2]);

// DynamicQuantizeLinear step by step, and QuantizeLinear with one scale, a
// constant: their nodes make bytes of these levels. Others stay as they are.
lb_status lb_spell_dynamic(lb_rewrite *rw, lb_node *n);
lb_status lb_spell_quantize(lb_rewrite *rw, lb_node *n);

// -- products of bytes: pass_bytes.c -----------------------------------------

// The constant side of a product: `w` less `zero`.
typedef struct lb_byte_weights {
  const lb_tensor *w, *zero;  // zero may be NULL
  int64_t n_zero;             // one, or one a column
  int64_t rows, cols;
  bool turned;  // w is cols x rows
  bool fits;    // into int8
} lb_byte_weights;

// False if it is none for such products.
bool lb_byte_weights_find(const lb_value *w, const lb_value *zero, bool turned,
                          lb_byte_weights *out);
// bias + (a - zero) * weights in int32; `zero`, one element, and `bias`, one or
// one a column, may be NULL.
lb_status lb_spot_bytes(const lb_spot *s, lb_value *a, lb_value *zero,
                        const lb_byte_weights *b, const lb_tensor *bias,
                        lb_value **out);

// -- constants ---------------------------------------------------------------

static inline bool lb_is_byte(lb_dtype t) { return t == LB_I8 || t == LB_U8; }
int lb_byte_at(const lb_tensor *t, int64_t i);
const lb_tensor *lb_bytes_of(const lb_value *v);  // NULL: no dense constant
bool lb_zero_at(const lb_value *v, float *out);   // of one element

#endif
