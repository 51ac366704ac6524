// spec/panel.h -- packs operand B of a matmul into the layout that kernels
// read.
//
// B of K x N becomes panels of 16 columns, [N/16][K][16]; columns past N are
// zero. K2-interleaved panels have 8 columns, [N/8][K/2][8][2]: a vector of 16
// lanes then processes two k of 8 columns, so that few columns fill it, and one
// load of two adjacent elements of A feeds more FMAs. Int8 weights are
// interleaved by 4 along K, [N/16][K/4][16][4]: one instruction (VNNI)
// multiplies four bytes for each of 16 columns and adds the products.
//
// Elements may have any size: they are only moved, except that subnormal
// weights can be flushed to zero, because a product with a subnormal takes
// about a hundred times as long.
#ifndef LB_SPEC_PANEL_H
#define LB_SPEC_PANEL_H

#include <stddef.h>

#include "spec/spec.h"

typedef struct lb_matrix {
  const void *data;                // borrowed
  int64_t rows, cols;              // K, N
  int64_t row_stride, col_stride;  // in elements, any sign
  size_t elem;                     // bytes per element
  bool flush;                      // float32: flush subnormals to zero
  lb_layout layout;                // PANEL, PANEL_K2 or PANEL_K4
} lb_matrix;

// Whether a float32 matmul over k is faster with K2-interleaved panels.
bool lb_panel_prefers_k2(int64_t k, int64_t cols);
// Bytes of the packed matrix; false if that overflows a size_t.
bool lb_panel_size(const lb_matrix *b, size_t *out);
// Packs b; `to` has lb_panel_size bytes, and does not overlap b.
void lb_panel_pack(const lb_matrix *b, void *to);
void lb_panel_flush(float *x, int64_t n);  // flushes subnormals to zero

#endif
