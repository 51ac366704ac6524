// spec/panel.h -- the right side of a matrix product as kernels like to read
// it.
//
// b of K x N becomes panels of 16 columns, [N/16][K][16]; columns past N are
// zero. Or it becomes panels of 8 columns in pairs of k, [N/8][K/2][8][2]: a
// vector of 16 lanes then does two steps of 8 columns, so that few columns fill
// it, and with one load of two neighbours of a there is more to multiply. Bytes
// come in fours of k, [N/16][K/4][16][4]: one instruction multiplies four of
// them for each of 16 columns, and adds them up.
// Elements of any size: pure movement, but for subnormal weights, which can
// become zeros: a product with one takes a hundred times as long.
#ifndef LB_SPEC_PANEL_H
#define LB_SPEC_PANEL_H

#include <stddef.h>

#include "spec/spec.h"

typedef struct lb_matrix {
  const void *data;                // borrowed
  int64_t rows, cols;              // K, N
  int64_t row_stride, col_stride;  // in elements, any sign
  size_t elem;                     // bytes of an element
  bool flush;                      // float32, whose subnormals become zeros
  lb_layout layout;                // PACKED, PAIRED or QUADS
} lb_matrix;

// Whether a float32 product of sums of k terms is faster in pairs.
bool lb_panel_prefers_k2(int64_t k, int64_t cols);
// Bytes of the packed matrix; false if they do not fit a size_t.
bool lb_panel_size(const lb_matrix *b, size_t *out);
// `to` has lb_panel_size bytes, and does not overlap b.
void lb_panel_pack(const lb_matrix *b, void *to);
void lb_panel_flush(float *x, int64_t n);  // subnormals become zeros

#endif
