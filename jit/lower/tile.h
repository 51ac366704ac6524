// lower/tile.h -- a tile of a matrix product: some rows times some panels of
// columns. Internal to the room.
//
// sums.c adds up its products in registers, finish.c makes outputs of them, and
// matmul.c decides which tiles there are and in which order they come.
#ifndef LB_LOWER_TILE_H
#define LB_LOWER_TILE_H

#include "lower/lowering.h"

enum {
  LB_TILE_MAX_ROWS = 32,
  LB_TILE_MAX_VECTORS = 32,
  LB_TILE_MAX_PANELS = 8,
  LB_TILE_MAX_LANES = 16,
  LB_ROWS_A_POINTER = 3,
  LB_TILE_MAX_POINTERS = (LB_TILE_MAX_ROWS + 2) / LB_ROWS_A_POINTER,
};

// Heights of tiles, in the order in which they come, and how many there are up
// to each.
typedef struct lb_heights {
  uint32_t rows[3];
  bool is_short[3];  // if it may be
  lb_kval until[3];
  int n;
} lb_heights;

typedef struct lb_matmul {
  lb_lowering *e;
  uint8_t acc_node;
  lb_dtype acc_dtype;
  bool pairs, quads;      // b is PAIRED; in QUADS
  uint32_t by;            // k that a step takes
  uint32_t panel_cols;    // of a panel, or of what stands for one
  uint32_t line;          // elements of a panel that a step takes
  uint32_t rows, panels;  // of the largest tile
  lb_kval scratch;        // a tile in memory, or LB_K_NONE
  lb_kval some;           // if there is anything to sum
  bool in_place;          // an output may be the memory of an input
  uint8_t bias;           // the only input of columns alone, or LB_SPEC_NO_NODE
  lb_heights heights;
  lb_kval begin, end;     // the present band, in tiles
  lb_kval row, next_row;  // registers: where it begins, and the next one
  lb_kval pace, a_pace;   // elements of b or a to send for with each step
  lb_kval part;           // steps that go by without sending for outputs
} lb_matmul;

typedef struct lb_tile {
  const lb_matmul *m;
  uint32_t rows, panels;
  uint32_t vectors, finished;  // of sums a row, and of what is made of them
  bool masked, is_short;
  uint32_t least;  // columns that the last one has, if masked and more than one
  lb_kval row, col;                  // the first
  lb_kval at[LB_TILE_MAX_POINTERS];  // rows that pointers point to
  lb_kval number;                    // in its column of tiles
  lb_kval a[LB_TILE_MAX_POINTERS];   // pointers to rows
  lb_kval next;                      // what is sent for, or NONE
  lb_kval share, pace;               // elements of it: with a tile, with a step
  lb_kval b;                         // pointer to the first column
  lb_kval panel[LB_TILE_MAX_PANELS];  // elements from the first to each, if any
  lb_kval at_a, at_b, ahead;  // registers: where a step reads and sends for
  lb_kval step_a;             // STRIDED: elements from a step to the next
  lb_kval mask[LB_TILE_MAX_VECTORS];  // LB_K_NONE: all lanes
  lb_kval bias[LB_TILE_MAX_VECTORS];  // of the node that is the same in all
                                      // rows
  lb_kval acc[LB_TILE_MAX_ROWS][LB_TILE_MAX_VECTORS];
} lb_tile;

static inline bool lb_matmul_has_panels(const lb_matmul *m) {
  return lb_panel_cols(m->e->spec->in[1].layout) != 0;
}

// -- matmul.c ----------------------------------------------------------------

// Which lanes from column `col` of the product on are columns of it.
lb_kval lb_tile_tail(const lb_tile *t, lb_kval col);
// Which lanes from column c of the tile on are columns of the tile and of the
// product; LB_K_NONE: all.
lb_kval lb_tile_mask(const lb_tile *t, lb_kval c);
void lb_tile_make_masks(lb_tile *t);

// -- sums.c ------------------------------------------------------------------

// How much is sent for ahead: what all bands share, and what depends on the
// present one.
void lb_sums_begin(lb_matmul *m);
void lb_sums_begin_band(lb_matmul *m);
// Where the tiles of a column of them read b, and what they send for.
void lb_sums_begin_column(lb_tile *t);
// The sums of a tile.
void lb_sums_emit(lb_tile *t);

// -- finish.c ----------------------------------------------------------------

// What is made of sums is long: they are put in memory first.
bool lb_finish_is_long(const lb_lowering *e);
// A function is among it.
bool lb_finish_has_function(const lb_lowering *e);
// The only input of columns alone, or LB_SPEC_NO_NODE.
uint8_t lb_finish_bias(const lb_lowering *e);
// What the tiles of a column of them share.
void lb_finish_begin_column(lb_tile *t);
// The sums of a tile to outputs, or to memory if there is a place for it.
void lb_finish_tile(lb_tile *t);
// Outputs of `rows` rows of a tile that is in memory.
void lb_finish_rows(const lb_tile *shape, lb_kval rows);
// Sums of nothing: in memory; as outputs.
void lb_finish_put_zeros(const lb_tile *t, lb_kval rows);
void lb_finish_zeros(const lb_matmul *m);

#endif
