// lower/tile.h -- A register tile of a GEMM or convolution: some rows times
// some panels of columns. Internal to the module.
//
// gemm_inner.c accumulates the tile in registers, epilogue.c computes outputs
// from the accumulators, and matmul.c decides which tiles there are and in
// which order they run.
#ifndef LB_LOWER_TILE_H
#define LB_LOWER_TILE_H

#include "lower/lowering.h"

enum {
  LB_TILE_MAX_ROWS = 32,
  LB_TILE_MAX_VECTORS = 32,
  LB_TILE_MAX_PANELS = 8,
  LB_TILE_MAX_LANES = 16,
  LB_ROWS_PER_POINTER = 3,
  LB_TILE_MAX_POINTERS = (LB_TILE_MAX_ROWS + 2) / LB_ROWS_PER_POINTER,
};

// The heights of the tiles in a column of them, in the order in which they run,
// and how many tiles there are up to and including each height.
typedef struct lb_tile_heights {
  uint32_t rows[3];
  bool is_short[3];  // whether its last tile may have fewer rows
  lb_kval until[3];
  int n;
} lb_tile_heights;

typedef struct lb_matmul {
  lb_lowering *e;
  uint8_t acc_node;
  lb_dtype acc_dtype;
  bool k2, k4;             // layout of b: PANEL_K2; PANEL_K4
  uint32_t k_step;         // elements of k per step
  uint32_t panel_cols;     // of a panel; without panels, of the equivalent
  uint32_t step_elements;  // elements of a panel per step: panel_cols * k_step
  uint32_t rows, panels;   // of the largest tile
  lb_kval scratch;         // a tile's accumulators in memory, or LB_K_NONE
  lb_kval nonempty;        // whether there is any product to sum
  bool in_place;           // an output may be the memory of an input
  uint8_t bias;            // node of the only PER_COL input, or LB_SPEC_NO_NODE
  lb_tile_heights heights;
  lb_kval begin, end;     // the current band, in tiles
  lb_kval row, next_row;  // registers: first row of this band and of the next
  // elements of b or a to prefetch per step
  lb_kval prefetch_step, prefetch_step_a;
  lb_kval k_part;  // elements of k between prefetches of outputs; NONE: outputs
                   // are not prefetched
} lb_matmul;

typedef struct lb_tile {
  const lb_matmul *m;
  uint32_t rows, panels;
  // accumulators per row, and result vectors per row
  uint32_t vectors, out_vectors;
  bool masked, is_short;
  // if masked and > 1: columns that the last tile has at least
  uint32_t min_cols;
  lb_kval row, col;  // the first
  // the row that each pointer points to
  lb_kval pointer_row[LB_TILE_MAX_POINTERS];
  lb_kval index;                    // of the tile, in its column of tiles
  lb_kval a[LB_TILE_MAX_POINTERS];  // pointers to rows
  lb_kval prefetch_base;            // start of the memory to prefetch, or NONE
  // elements to prefetch per tile, per step
  lb_kval prefetch_share, prefetch_step;
  lb_kval b;                          // pointer to the first column
  lb_kval panel[LB_TILE_MAX_PANELS];  // offset of each panel from the first, if
                                      // b has panels
  lb_kval a_offset, b_cursor, prefetch_at;  // registers: read positions of a
                                            // step, and prefetch position
  lb_kval step_a;  // STRIDED: elements of a from one step to the next
  lb_kval mask[LB_TILE_MAX_VECTORS];  // LB_K_NONE: all lanes
  lb_kval bias[LB_TILE_MAX_VECTORS];  // the bias, the same in all rows
  lb_kval acc[LB_TILE_MAX_ROWS][LB_TILE_MAX_VECTORS];
} lb_tile;

static inline bool lb_matmul_has_panels(const lb_matmul *m) {
  return lb_panel_cols(m->e->spec->in[1].layout) != 0;
}

// -- matmul.c ----------------------------------------------------------------

// The mask of the lanes from column `col` on that are columns of the result.
lb_kval lb_tile_tail(const lb_tile *t, lb_kval col);
// The mask of the lanes from column c of the tile on that are columns of both
// the tile and the result; LB_K_NONE: all.
lb_kval lb_tile_mask(const lb_tile *t, lb_kval c);
void lb_tile_compute_masks(lb_tile *t);

// -- gemm_inner.c ------------------------------------------------------------

// Computes how much to prefetch: what all bands share, and what depends on the
// current band.
void lb_gemm_inner_begin(lb_matmul *m);
void lb_gemm_inner_begin_band(lb_matmul *m);
// Where the tiles of a column of tiles read b, and what they prefetch.
void lb_gemm_inner_begin_column(lb_tile *t);
// Emits the accumulation of a tile.
void lb_gemm_inner_emit(lb_tile *t);

// -- epilogue.c --------------------------------------------------------------

// Whether the epilogue is long: accumulators are spilled to memory first.
bool lb_epilogue_is_long(const lb_lowering *e);
// Whether the epilogue has a mathematical function.
bool lb_epilogue_has_math(const lb_lowering *e);
// The node of the only PER_COL input, or LB_SPEC_NO_NODE.
uint8_t lb_epilogue_bias(const lb_lowering *e);
// Emits what the tiles of a column of tiles share.
void lb_epilogue_begin_column(lb_tile *t);
// Applies the epilogue to a tile's accumulators, or spills them if there is
// scratch memory.
void lb_epilogue_tile(lb_tile *t);
// Applies the epilogue to `rows` rows of a spilled tile.
void lb_epilogue_rows(const lb_tile *shape, lb_kval rows);
// For empty sums: writes zeros to scratch memory; stores the outputs of zeros.
void lb_epilogue_spill_zeros(const lb_tile *t, lb_kval rows);
void lb_epilogue_zeros(const lb_matmul *m);

#endif
