// lower/matmul.c -- GEMM and convolution: the tiles, and the order in which
// they run.
//
// A *tile* is some rows times some panels of 16 columns, with one accumulator
// register per row and vector. The outer loop runs over columns: tiles of the
// full width, the last of which may be masked, then narrower ones; the
// remainder of the last panel, or of the last two, is masked, and half of the
// vectors are left out if they would be empty. If all columns fit into one
// tile, there is only this one, masked. The inner loop runs over rows: tiles of
// the full height and of one row less, as many of each as divide the rows
// evenly, which is possible where the facts were chosen for the size. Otherwise
// the last tile is *short*: it reads some rows again to fill up. Around both
// loops, rows are split into *bands* whose part of a stays in L2 while all
// columns are processed, next to b and the band's part of the result if b is
// small enough.
//
// If b is K2-interleaved, adjacent lanes of an accumulator hold the even and
// the odd k of one column. A tile's panels then hold half as many columns, a
// step takes two k of a row of a at once, and adjacent lanes are added at the
// end. All its tiles have one width, the last column of them masked.
//
// If b is K4-interleaved (VNNI), a step broadcasts four k of a row of a as one
// 32-bit element.
//
// Every kind of tile is code to compile, so there are at most three heights.
#include <limits.h>

#include "lower/tile.h"

enum {
  BAND_ELEMENTS = 1 << 17,     // of a in a band, approximately
  L2_B_ELEMENTS = 1 << 18,     // elements of b that stay in L2
  L2_BAND_ELEMENTS = 1 << 15,  // of a in a band then, or half of the result's
  MIN_BAND = 8,                // tiles
  MIN_ROWS = 5,                // that make a tile of one panel efficient
};

// -- masks -------------------------------------------------------------------

lb_kval lb_tile_tail(const lb_tile *t, lb_kval col) {
  lb_lowering *e = t->m->e;
  lb_kval left = lb_k_sub(&e->b, e->dims[LB_DIM_COLS], col);
  return lb_k_tail(&e->b, left, e->lanes);
}

lb_kval lb_tile_mask(const lb_tile *t, lb_kval c) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  uint32_t width = t->panels * t->m->panel_cols;
  lb_kval left = LB_K_NONE;
  if (t->masked)
    left = lb_k_sub(b, e->dims[LB_DIM_COLS], lb_k_add(b, t->col, c));
  if (width % e->lanes) {  // its last vector is half full
    lb_kval own = lb_k_sub(b, lb_k_i64(b, width), c);
    left = left == LB_K_NONE ? own : lb_k_min(b, left, own);
  }
  return left == LB_K_NONE ? left : lb_k_tail(b, left, e->lanes);
}

void lb_tile_compute_masks(lb_tile *t) {
  lb_lowering *e = t->m->e;
  for (uint32_t v = 0; v < t->out_vectors; v++)
    t->mask[v] = lb_tile_mask(t, lb_k_i64(&e->b, v * e->lanes));
}

// -- tiles -------------------------------------------------------------------

// Accumulates a tile of `rows` rows, then applies the epilogue or spills it.
static void emit_tile(const lb_tile *shape, uint32_t rows, bool is_short) {
  lb_tile t = *shape;
  t.rows = rows;
  t.is_short = is_short;
  lb_gemm_inner_emit(&t);
  lb_epilogue_tile(&t);
}

// Adds as many tiles of `rows` rows as there are between *row and `end`; the
// last may have as few as `min_rows`.
static void add_height(lb_lowering *e, uint32_t rows, uint32_t min_rows,
                       lb_kval end, lb_kval *row, lb_tile_heights *h) {
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, end, *row);
  lb_kval n = lb_lower_add(e, left, rows - min_rows);
  n = lb_k_div(b, n, lb_k_i64(b, rows));
  h->rows[h->n] = rows;
  h->is_short[h->n] = min_rows < rows;
  h->until[h->n] = h->n ? lb_k_add(b, h->until[h->n - 1], n) : n;
  lb_kval all = lb_lower_mul(e, n, rows);
  if (min_rows < rows) all = lb_k_min(b, all, left);
  *row = lb_k_add(b, *row, all);
  h->n++;
}

// ceil(M / rows) tiles: as many full ones as leave one row less to each of the
// others, if M is large enough for that.
static void find_heights(const lb_matmul *m, lb_tile_heights *h) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval all = e->dims[LB_DIM_ROWS], row = lb_k_i64(b, 0), zero = row;
  uint32_t rows = m->rows, less = rows - 1;
  uint32_t min_rows = less < LB_ROWS_PER_POINTER ? less : LB_ROWS_PER_POINTER;
  if (lb_facts_divides(e->facts, LB_DIM_ROWS, (int)rows)) {
    add_height(e, rows, rows, all, &row, h);
    return;
  }
  lb_kval n = lb_k_div(b, lb_lower_add(e, all, less), lb_k_i64(b, rows));
  lb_kval full = lb_k_sub(b, all, lb_lower_mul(e, n, less));
  lb_kval split = lb_lower_mul(e, lb_k_max(b, full, zero), rows);
  add_height(e, rows, rows, split, &row, h);
  add_height(e, less, min_rows, all, &row, h);
  if (min_rows > 1) add_height(e, 1, 1, all, &row, h);
}

// The number of rows of the i-th tile.
static lb_kval rows_of(const lb_tile *t, const lb_tile_heights *h, lb_kval i) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval rows = LB_K_NONE;
  for (int n = h->n - 1; n >= 0; n--) {
    lb_kval here = lb_k_i64(b, h->rows[n]);
    if (h->is_short[n])
      here = lb_k_min(b, here, lb_k_sub(b, e->dims[LB_DIM_ROWS], t->row));
    rows = rows == LB_K_NONE
               ? here
               : lb_k_select(b, lb_k_lt(b, i, h->until[n]), here, rows);
  }
  return rows;
}

// The i-th tile of a column of tiles.
static void emit_tile_of(const lb_tile *t, const lb_tile_heights *h,
                         lb_kval i) {
  lb_kbuilder *b = &t->m->e->b;
  for (int n = 0; n < h->n; n++) {
    bool more = n + 1 < h->n;
    if (more) lb_k_if(b, lb_k_lt(b, i, h->until[n]));
    emit_tile(t, h->rows[n], h->is_short[n]);
    if (more) lb_k_else(b);
  }
  for (int n = 0; n + 1 < h->n; n++) lb_k_end(b);
}

static void emit_spilled_tile(const lb_tile *t, lb_kval i, lb_kval rows) {
  lb_kbuilder *b = &t->m->e->b;
  lb_k_if(b, t->m->nonempty);
  emit_tile_of(t, &t->m->heights, i);
  lb_k_else(b);
  lb_epilogue_spill_zeros(t, rows);
  lb_k_end(b);
  lb_epilogue_rows(t, rows);
}

static void emit_rows(lb_tile *t) {
  const lb_matmul *m = t->m;
  lb_kbuilder *b = &m->e->b;
  lb_kval row = lb_k_reg(b, lb_k_get(b, m->row));
  lb_gemm_inner_begin_column(t);
  lb_epilogue_begin_column(t);
  lb_kval i = lb_k_loop(b, m->begin, m->end, lb_k_i64(b, 1));
  t->row = lb_k_get(b, row);
  t->index = lb_k_sub(b, i, m->begin);
  lb_kval rows = rows_of(t, &m->heights, i);
  if (m->scratch != LB_K_NONE)
    emit_spilled_tile(t, i, rows);
  else
    emit_tile_of(t, &m->heights, i);
  lb_k_set(b, row, lb_k_add(b, t->row, rows));
  lb_k_end(b);
  lb_k_set(b, m->next_row, lb_k_get(b, row));
}

// Emits columns from `begin` on in tiles like t, with all vectors of its panels
// unless it sets a number; returns the column where they end.
static lb_kval emit_columns(const lb_matmul *m, lb_tile t, lb_kval begin) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  t.m = m;
  if (!t.vectors) t.vectors = t.panels * LB_PANEL_COLS / e->lanes;
  t.out_vectors = m->k2 ? (t.vectors + 1) / 2 : t.vectors;
  lb_kval cols = e->dims[LB_DIM_COLS];
  int64_t width = t.panels * m->panel_cols, up = t.masked ? width - 1 : 0;
  if (t.min_cols) up = width - t.min_cols;
  lb_kval left = lb_k_sub(b, lb_lower_add(e, cols, up), begin);
  lb_kval end = lb_k_add(b, begin, lb_lower_round_down(e, left, width));
  t.col = lb_k_loop(b, begin, end, lb_k_i64(b, width));
  emit_rows(&t);
  lb_k_end(b);
  return end;
}

// Where a panel is one vector, a tile of two panels takes little longer than
// one of one panel: a step waits for its loads, nearly all of which are of a.
static bool has_few_loads(const lb_matmul *m) {
  return m->rows >= MIN_ROWS && m->panels > 2 && m->e->lanes == LB_PANEL_COLS;
}

// Panels per tile for the last columns, if they have more than one.
static uint32_t last_panels(const lb_matmul *m) {
  return has_few_loads(m) ? 2 : 1;
}

// Tiles of the full width. If the remaining columns take as many panels, they
// are one more such tile, masked; but not with short epilogues, which compute
// masks in every tile and would lose the gain.
static lb_tile widest_tile(const lb_matmul *m) {
  lb_tile t = {.panels = m->panels};
  if (!has_few_loads(m) || m->scratch == LB_K_NONE) return t;
  t.masked = true;
  t.min_cols = (m->panels - 1) * m->panel_cols + 1;
  return t;
}

// The last columns, one or two panels at a time. If they fit into half of the
// vectors, the other half is left out.
static void emit_vectors(const lb_matmul *m, lb_kval begin, lb_kval left) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_tile t = {.panels = last_panels(m), .masked = true};
  uint32_t half = t.panels * LB_PANEL_COLS / e->lanes / 2;
  if (half) {
    lb_tile less = {.panels = 1, .masked = true, .vectors = half};
    lb_k_if(b, lb_k_le(b, left, lb_k_i64(b, half * e->lanes)));
    emit_columns(m, less, begin);
    lb_k_else(b);
  }
  emit_columns(m, t, begin);
  if (half) lb_k_end(b);
}

// The last columns. If they fit into half a vector, half-width vectors are
// used.
static void emit_last_columns(const lb_matmul *m, lb_kval begin) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, e->dims[LB_DIM_COLS], begin);
  bool half_width = lb_target_has(e->target, LB_FEATURE_FP256);
  if (half_width) {
    lb_tile t = {.panels = 1, .masked = true, .vectors = 1};
    e->lanes /= 2;
    lb_k_if(b, lb_k_le(b, left, lb_k_i64(b, e->lanes)));
    emit_columns(m, t, begin);
    lb_k_else(b);
    e->lanes *= 2;
  }
  emit_vectors(m, begin, left);
  if (half_width) lb_k_end(b);
}

// The width after a tile of `panels`: one panel, which has enough independent
// accumulator chains if there are some rows.
static uint32_t narrower_tile(const lb_matmul *m, uint32_t panels) {
  return m->rows >= MIN_ROWS ? panels > 1 : panels / 2;
}

static void emit_band(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kval col = lb_k_i64(&e->b, 0);
  int widest = (int)(m->panels * m->panel_cols);
  bool one =
      lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, INT_MAX) <= widest;
  if (m->k2 || (one && m->panels > 1)) {
    bool divides = lb_facts_divides(e->facts, LB_DIM_COLS, widest);
    emit_columns(m, (lb_tile){.panels = m->panels, .masked = !divides}, col);
    return;
  }
  for (uint32_t n = m->panels; n; n = narrower_tile(m, n)) {
    bool divides =
        lb_facts_divides(e->facts, LB_DIM_COLS, (int)(n * m->panel_cols));
    bool last = n == 1 && (n < m->panels || one) && !divides;
    lb_tile t = {.panels = n};
    if (n == m->panels && !divides) t = widest_tile(m);
    if (!last) col = emit_columns(m, t, col);
    if (divides) return;
    if (last) break;
  }
  emit_last_columns(m, col);
}

// If b stays in L2, it is there for the next band, so bands are short: their
// part of the result stays in L2, too, where its cache lines are adjacent
// across columns of tiles and are fetched together. A larger b is read again by
// each band.
static lb_kval tiles_per_band(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval one = lb_k_i64(b, 1), k = lb_k_max(b, e->dims[LB_DIM_K], one);
  lb_kval cols = lb_k_max(b, e->dims[LB_DIM_COLS], one);
  int64_t scale = m->k4 ? 4 : 1;  // int8 takes a quarter of the memory
  lb_kval b_in_l2 =
      lb_k_le(b, lb_k_mul(b, k, cols), lb_k_i64(b, L2_B_ELEMENTS * scale));
  lb_kval half = lb_k_max(b, k, lb_k_div(b, cols, lb_k_i64(b, 2)));
  lb_kval few = lb_k_div(b, lb_k_i64(b, L2_BAND_ELEMENTS / m->rows), half);
  lb_kval many = lb_k_div(b, lb_k_i64(b, BAND_ELEMENTS * scale / m->rows), k);
  lb_kval n = lb_k_select(b, b_in_l2, few, many);
  return lb_k_max(b, n, lb_k_i64(b, MIN_BAND));
}

static void emit_bands(lb_matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval zero = lb_k_i64(b, 0), size = tiles_per_band(m);
  find_heights(m, &m->heights);
  lb_gemm_inner_begin(m);
  lb_kval all = m->heights.until[m->heights.n - 1];
  m->row = lb_k_reg(b, zero);
  m->next_row = lb_k_reg(b, zero);
  m->begin = lb_k_loop(b, zero, all, size);
  m->end = lb_k_min(b, lb_k_add(b, m->begin, size), all);
  lb_gemm_inner_begin_band(m);
  emit_band(m);
  lb_k_set(b, m->row, lb_k_get(b, m->next_row));
  lb_k_end(b);
}

// -- choices -----------------------------------------------------------------

static bool choose_tile(lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_lower_tile tile = lb_lower_tile_of(e->target);
  bool wide = lb_dtype_size(m->acc_dtype) > 4 && tile.cols > 16;
  uint32_t cols = tile.cols / (wide ? 2 : 1);
  int rows = (int)tile.rows;
  if (m->k2) cols /= 2;
  rows = lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  cols =
      (uint32_t)lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_COLS, (int)cols);
  m->rows = (uint32_t)rows;
  m->panels = cols / m->panel_cols;
  if (rows >= 1 && rows <= LB_TILE_MAX_ROWS && cols % m->panel_cols == 0 &&
      m->panels >= 1 && m->panels <= LB_TILE_MAX_PANELS)
    return true;
  lb_kbuild_fail(&e->b,
                 lb_error(LB_UNSUPPORTED,
                          "lower: a tile of %dx%u is not supported: rows "
                          "must be 1 to %d, columns a multiple of %u "
                          "up to %u",
                          rows, cols, LB_TILE_MAX_ROWS, m->panel_cols,
                          LB_TILE_MAX_PANELS * m->panel_cols));
  return false;
}

static lb_kval has_products(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), nonempty = lb_k_lt(b, zero, e->dims[LB_DIM_K]);
  for (int d = LB_DIM_TAPS_Y; d < lb_spec_dims(e->spec); d++)
    nonempty = lb_k_and(b, nonempty, lb_k_lt(b, zero, e->dims[d]));
  return nonempty;
}

void lb_lower_matmul(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_matmul m = {.e = e, .scratch = LB_K_NONE};
  while (e->spec->nodes[m.acc_node].op != LB_S_ACC) m.acc_node++;
  m.acc_dtype = e->spec->nodes[m.acc_node].dtype;
  m.k2 = e->spec->in[1].layout == LB_LAYOUT_PANEL_K2;
  m.k4 = e->spec->in[1].layout == LB_LAYOUT_PANEL_K4;
  m.k_step = (uint32_t)lb_panel_rows(e->spec->in[1].layout);
  m.panel_cols = m.k2 ? LB_PANEL_K2_COLS : LB_PANEL_COLS;
  m.step_elements = m.panel_cols * m.k_step;
  if (!choose_tile(&m)) return;
  m.nonempty = has_products(e);
  m.in_place = lb_lower_in_place(e);
  m.bias = lb_epilogue_bias(e);
  if (lb_epilogue_is_long(e)) {
    m.scratch = lb_k_local(b, m.acc_dtype, m.rows * m.panels * LB_PANEL_COLS);
    emit_bands(&m);
    return;
  }
  lb_k_if(b, m.nonempty);
  emit_bands(&m);
  lb_k_else(b);
  lb_epilogue_zeros(&m);
  lb_k_end(b);
}
