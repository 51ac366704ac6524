// spec/choose.c -- selects facts by sizes.
//
// Speed comes from the tile shape of a matmul and from code without remainder
// loops; constant sizes gain nothing. So rows are mapped to a few tiles, and
// columns to whether a tile divides them.
#include "spec/spec.h"

enum { SHORT_ROWS = 8 };  // min rows for which blocks of short rows pay off

typedef struct shape {
  uint16_t rows, cols;
} shape;

// Tiles fill the register file (32 registers of 16 lanes, or 16 registers), and
// leave some for a row of B and a broadcast of A. In ascending order of rows.
typedef struct tiling {
  uint32_t lanes;
  shape tiles[9];
  shape remainder[6];  // a subset of `tiles`, if none divides the columns
  shape narrow[5][4];  // for at most this many columns; in ascending order
  shape k2[4][4];      // likewise, in lanes: a K2-interleaved column has two
} tiling;

static const tiling tilings[] = {
    {16,
     {{1, 128}, {2, 64}, {4, 64}, {5, 64}, {6, 64}, {7, 48}, {8, 48}, {9, 48}},
     {{1, 128}, {2, 64}, {4, 64}, {6, 64}, {9, 48}},
     {{{8, 16}, {16, 16}}, {{8, 32}, {10, 32}, {13, 32}}, {{9, 48}}, {{6, 64}}},
     {{{16, 16}}, {{13, 32}}, {{9, 48}}}},
    {8,
     {{1, 64}, {2, 32}, {4, 16}, {5, 16}, {6, 16}},
     {{1, 64}, {2, 32}, {4, 16}, {6, 16}},
     {{{0}}},
     {{{1, 48}, {5, 16}, {6, 16}}}},
    {4, {{1, 32}, {2, 16}}, {{1, 32}, {2, 16}}, {{{0}}}, {{{1, 32}, {2, 16}}}},
};

static const tiling *tiling_of(uint32_t lanes) {
  const tiling *t = tilings;
  while (t->lanes > lanes && t->lanes > 4) t++;
  return t;
}

// Lanes of the accumulator: float64 has half as many per register.
static uint32_t sum_lanes(const lb_spec *s, uint32_t lanes) {
  for (int i = 0; i < s->n_nodes; i++)
    if (s->nodes[i].op == LB_S_ACC && lb_dtype_size(s->nodes[i].dtype) > 4)
      return lanes / 2;
  return lanes;
}

// The number of tiles of `rows` rows that cover m rows; tiles of one row less
// exist as well. If these do not divide m, the last tile computes unused rows
// and counts twice; fewer than three remaining rows are computed one by one.
static int64_t count_tiles(int64_t m, int64_t rows) {
  int64_t n = m / rows + (m % rows != 0);
  if (rows == 1 || m / (rows - 1) >= n) return n;
  int64_t left = m % (rows - 1);
  return m / (rows - 1) + (left < 3 ? left : 2);
}

static bool any_divides(const shape *list, int64_t cols) {
  while (list->rows && cols % list->cols) list++;
  return list->rows != 0;
}

// The shape with the fewest tiles, because each tile reads all columns of B
// again. Shapes that divide the columns are preferred.
static shape best_shape(const shape *list, int64_t rows, int64_t cols) {
  bool divides = any_divides(list, cols);
  shape best = {0};
  int64_t fewest = INT64_MAX;
  for (; list->rows; list++) {
    int64_t n = count_tiles(rows, list->rows);
    if ((divides && cols % list->cols) || n >= fewest) continue;
    best = *list;
    fewest = n;
  }
  return best;
}

// Tiles for few columns have code for at most that many. Those for many columns
// handle any remainder, and work as well.
static const shape *shapes_for(const tiling *t, int64_t cols, bool reusable) {
  if (any_divides(t->tiles, cols)) return t->tiles;
  for (int i = 0; !reusable && t->narrow[i][0].rows; i++)
    if (cols <= t->narrow[i][0].cols) return t->narrow[i];
  return t->remainder;
}

// Code for K2-interleaved panels handles any number of columns with tiles of
// one width.
static const shape *shapes_for_k2(const tiling *t, int64_t lanes) {
  int i = 0;
  while (t->k2[i + 1][0].rows && lanes > t->k2[i][0].cols) i++;
  return t->k2[i];
}

// A matmul with few columns is as fast with masks, so divisibility does not
// select another kernel.
static void choose_tile(const lb_spec *spec, const tiling *t,
                        const int64_t *dims, bool reusable, lb_facts *out) {
  bool k2 = spec->in[1].layout == LB_LAYOUT_PANEL_K2;
  int64_t cols = dims[LB_DIM_COLS], lanes = k2 ? 2 * cols : cols;
  const shape *list =
      k2 ? shapes_for_k2(t, lanes) : shapes_for(t, cols, reusable);
  shape s = best_shape(list, dims[LB_DIM_ROWS], lanes);
  bool narrow = list != t->tiles && list != t->remainder;
  if (k2) s.cols /= 2;
  lb_facts_add(out, LB_CHOOSE_TILE, LB_DIM_ROWS, s.rows);
  lb_facts_add(out, LB_CHOOSE_TILE, LB_DIM_COLS, s.cols);
  if (cols % s.cols == 0 && !(narrow && spec->form == LB_FORM_MATMUL))
    lb_facts_add(out, LB_ASSUME_MULTIPLE, LB_DIM_COLS, s.cols);
  if (narrow && !k2) lb_facts_add(out, LB_ASSUME_AT_MOST, LB_DIM_COLS, s.cols);
}

static int64_t rounded_up(int64_t n, int64_t to) {
  return n / to * to + (n % to != 0) * to;
}

// Tiles of attention: rows, in ascending order, and by how many percent a row
// takes longer with the last tile but one than with the last. Remainder rows
// take as long as others.
static uint16_t attention_rows(uint32_t lanes, int64_t rows) {
  static const uint16_t tiles[][4] = {
      {1, 4, 8, 10}, {1, 3, 4, 6}, {1, 1, 1, 2}};
  static const int64_t slower[] = {5, 13, 50};
  int width = lanes == 16 ? 0 : lanes == 8 ? 1 : 2;
  const uint16_t *t = tiles[width];
  for (int i = 0; i < 3; i++)
    if (rows <= t[i]) return t[i];
  int64_t less = rounded_up(rows, t[2]) * (100 + slower[width]);
  return less < 100 * rounded_up(rows, t[3]) ? t[2] : t[3];
}

// Larger heads have no facts, and no kernel.
static void choose_attention(uint32_t lanes, const int64_t *dims,
                             lb_facts *out) {
  uint16_t k = 32;
  while (k < 256 && k < dims[LB_DIM_K]) k *= 2;
  if (k >= dims[LB_DIM_K]) lb_facts_add(out, LB_ASSUME_AT_MOST, LB_DIM_K, k);
  if (dims[LB_DIM_K] % 32 == 0 && dims[LB_DIM_COLS] % 32 == 0) {
    lb_facts_add(out, LB_ASSUME_MULTIPLE, LB_DIM_K, 32);
    lb_facts_add(out, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 32);
  }
  lb_facts_add(out, LB_CHOOSE_TILE, LB_DIM_ROWS,
               attention_rows(lanes, dims[LB_DIM_ROWS]));
}

// Heights of the tiles of windows: for few rows, for most cases, and for
// windows that are bound by their accumulators rather than by reading the
// feature map: many taps, or one vector of columns. With few rows, little may
// remain.
static uint16_t window_rows(uint32_t lanes, const int64_t *dims) {
  static const uint16_t tiles[][3] = {{2, 4, 8}, {2, 3, 6}};
  const uint16_t *t = tiles[lanes < 16];
  int64_t rows = dims[LB_DIM_ROWS];
  bool many_taps = dims[LB_DIM_TAPS_Y] * dims[LB_DIM_TAPS_X] >= 20;
  if (rows < 6) return t[0];
  if (rows < t[2] || !(many_taps || dims[LB_DIM_COLS] <= lanes)) return t[1];
  return 10 * rounded_up(rows, t[2]) > 11 * rounded_up(rows, t[1]) ? t[1]
                                                                   : t[2];
}

// Columns are masked vectors, whether they divide or not.
static void choose_window(uint32_t lanes, const int64_t *dims, lb_facts *out) {
  lb_facts_add(out, LB_CHOOSE_TILE, LB_DIM_ROWS, window_rows(lanes, dims));
}

// Short rows are processed in blocks, whose code is for a max number of
// columns; there are two widths.
static void choose_rows(const int64_t *dims, bool reusable, lb_facts *out) {
  int64_t cols = dims[LB_DIM_COLS];
  bool is_short = cols <= LB_SHORT_COLS && dims[LB_DIM_ROWS] >= SHORT_ROWS;
  if (cols % LB_SPEC_LANES == 0)
    lb_facts_add(out, LB_ASSUME_MULTIPLE, LB_DIM_COLS, LB_SPEC_LANES);
  else if (is_short && !reusable)
    lb_facts_add(out, LB_ASSUME_AT_MOST, LB_DIM_COLS,
                 cols <= LB_SHORT_COLS / 2 ? LB_SHORT_COLS / 2 : LB_SHORT_COLS);
}

const char *lb_spec_needs_specialised(const lb_spec *s) {
  if (s->form != LB_FORM_ATTENTION) return NULL;
  return "attention keeps the accumulators of a head in registers: the head "
         "size needs an "
         "upper bound";
}

lb_facts lb_facts_of(const lb_spec *s, uint32_t lanes,
                     const int64_t dims[LB_SDIMS]) {
  return lb_facts_prefer(s, lanes, dims, false);
}

lb_facts lb_facts_prefer(const lb_spec *s, uint32_t lanes,
                         const int64_t dims[LB_SDIMS], bool reusable) {
  lb_facts f = {0};
  if (s->form == LB_FORM_MATMUL || s->form == LB_FORM_CONV)
    choose_tile(s, tiling_of(sum_lanes(s, lanes)), dims, reusable, &f);
  else if (s->form == LB_FORM_ATTENTION)
    choose_attention(sum_lanes(s, lanes), dims, &f);
  else if (s->form == LB_FORM_WINDOW)
    choose_window(lanes, dims, &f);
  else if (s->form == LB_FORM_ROW_REDUCE)
    choose_rows(dims, reusable, &f);
  return f;
}
