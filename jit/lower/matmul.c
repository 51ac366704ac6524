// lower/matmul.c -- matrix products: tiles, and the order in which they come.
//
// A *tile* is some rows times some panels of 16 columns, its sums in registers,
// one for each row and vector. Columns are the outer loop: tiles of the full
// width, the last of which may be masked, then narrower ones; what is left of
// the last panel, or of the last two, is masked, and half of the vectors are
// left out if they have none of it.
// Where all columns fit into one tile, it is that one, masked. Rows are the
// inner one: tiles of all rows and of one row less, as many of each as make
// them come out even, which they do where the facts were chosen for the size.
// Else the last tile is *short*, which reads rows twice where it has too few.
// Around both, rows are cut into *bands* whose part of a stays in the second
// cache while all columns go by, beside b and their part of the product if b is
// small enough.
//
// Where b is in pairs, each lane of a sum has every other k of a column, two
// lanes of neighbours a column. A tile's panels hold half as many columns then,
// a step takes two k of a row of a at once, and in the end neighbours are
// added. Its tiles are of one width, the last column of them masked.
//
// Where b is in quads, a step takes four k of a row of a, which are one number
// of 32 bits to what spreads it over all lanes.
//
// Every kind of tile is code to compile, so there are no more than three
// heights.
#include <limits.h>

#include "lower/tile.h"

enum {
  BAND_ELEMENTS = 1 << 17,  // of a in a band, about
  NEAR_B = 1 << 18,         // elements of b that stay in the second cache
  NEAR_BAND = 1 << 15,      // of a in a band then, or half of the product's
  MIN_BAND = 8,             // tiles
  MIN_ROWS = 5,             // that a tile of one panel needs to be worth it
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

void lb_tile_make_masks(lb_tile *t) {
  lb_lowering *e = t->m->e;
  for (uint32_t v = 0; v < t->finished; v++)
    t->mask[v] = lb_tile_mask(t, lb_k_i64(&e->b, v * e->lanes));
}

// -- tiles -------------------------------------------------------------------

// The sums of `rows` rows, made to outputs or put in memory.
static void emit_tile(const lb_tile *shape, uint32_t rows, bool is_short) {
  lb_tile t = *shape;
  t.rows = rows;
  t.is_short = is_short;
  lb_sums_emit(&t);
  lb_finish_tile(&t);
}

// As many tiles of `rows` as there are between *row and `end`, the last of
// which may have no more than `least`.
static void add_height(lb_lowering *e, uint32_t rows, uint32_t least,
                       lb_kval end, lb_kval *row, lb_heights *h) {
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, end, *row);
  lb_kval n = lb_lower_add(e, left, rows - least);
  n = lb_k_div(b, n, lb_k_i64(b, rows));
  h->rows[h->n] = rows;
  h->is_short[h->n] = least < rows;
  h->until[h->n] = h->n ? lb_k_add(b, h->until[h->n - 1], n) : n;
  lb_kval all = lb_lower_mul(e, n, rows);
  if (least < rows) all = lb_k_min(b, all, left);
  *row = lb_k_add(b, *row, all);
  h->n++;
}

// ceil(M / rows) tiles, as many of them full as leaves one row less to each of
// the others, if there are so many.
static void find_heights(const lb_matmul *m, lb_heights *h) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval all = e->dims[LB_DIM_ROWS], row = lb_k_i64(b, 0), zero = row;
  uint32_t rows = m->rows, less = rows - 1;
  uint32_t least = less < LB_ROWS_A_POINTER ? less : LB_ROWS_A_POINTER;
  if (lb_facts_divides(e->facts, LB_DIM_ROWS, (int)rows)) {
    add_height(e, rows, rows, all, &row, h);
    return;
  }
  lb_kval n = lb_k_div(b, lb_lower_add(e, all, less), lb_k_i64(b, rows));
  lb_kval full = lb_k_sub(b, all, lb_lower_mul(e, n, less));
  lb_kval split = lb_lower_mul(e, lb_k_max(b, full, zero), rows);
  add_height(e, rows, rows, split, &row, h);
  add_height(e, less, least, all, &row, h);
  if (least > 1) add_height(e, 1, 1, all, &row, h);
}

// How many rows the i-th tile has.
static lb_kval rows_of(const lb_tile *t, const lb_heights *h, lb_kval i) {
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
static void emit_one_of(const lb_tile *t, const lb_heights *h, lb_kval i) {
  lb_kbuilder *b = &t->m->e->b;
  for (int n = 0; n < h->n; n++) {
    bool more = n + 1 < h->n;
    if (more) lb_k_if(b, lb_k_lt(b, i, h->until[n]));
    emit_tile(t, h->rows[n], h->is_short[n]);
    if (more) lb_k_else(b);
  }
  for (int n = 0; n + 1 < h->n; n++) lb_k_end(b);
}

static void emit_looped(const lb_tile *t, lb_kval i, lb_kval rows) {
  lb_kbuilder *b = &t->m->e->b;
  lb_k_if(b, t->m->some);
  emit_one_of(t, &t->m->heights, i);
  lb_k_else(b);
  lb_finish_put_zeros(t, rows);
  lb_k_end(b);
  lb_finish_rows(t, rows);
}

static void emit_rows(lb_tile *t) {
  const lb_matmul *m = t->m;
  lb_kbuilder *b = &m->e->b;
  lb_kval row = lb_k_reg(b, lb_k_get(b, m->row));
  lb_sums_begin_column(t);
  lb_finish_begin_column(t);
  lb_kval i = lb_k_loop(b, m->begin, m->end, lb_k_i64(b, 1));
  t->row = lb_k_get(b, row);
  t->number = lb_k_sub(b, i, m->begin);
  lb_kval rows = rows_of(t, &m->heights, i);
  if (m->scratch != LB_K_NONE)
    emit_looped(t, i, rows);
  else
    emit_one_of(t, &m->heights, i);
  lb_k_set(b, row, lb_k_add(b, t->row, rows));
  lb_k_end(b);
  lb_k_set(b, m->next_row, lb_k_get(b, row));
}

// Columns from `begin` on in tiles like t, of all vectors of its panels if it
// does not say how many; where they ended.
static lb_kval emit_columns(const lb_matmul *m, lb_tile t, lb_kval begin) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  t.m = m;
  if (!t.vectors) t.vectors = t.panels * LB_PANEL_COLS / e->lanes;
  t.finished = m->pairs ? (t.vectors + 1) / 2 : t.vectors;
  lb_kval cols = e->dims[LB_DIM_COLS];
  int64_t width = t.panels * m->panel_cols, up = t.masked ? width - 1 : 0;
  if (t.least) up = width - t.least;
  lb_kval left = lb_k_sub(b, lb_lower_add(e, cols, up), begin);
  lb_kval end = lb_k_add(b, begin, lb_lower_down(e, left, width));
  t.col = lb_k_loop(b, begin, end, lb_k_i64(b, width));
  emit_rows(&t);
  lb_k_end(b);
  return end;
}

// Where a panel is a vector, two take little longer than one: a step waits for
// its loads, of which all but one are of a.
static bool has_few_loads(const lb_matmul *m) {
  return m->rows >= MIN_ROWS && m->panels > 2 && m->e->lanes == LB_PANEL_COLS;
}

// How many panels the last columns take at a time, if they have more than one.
static uint32_t last_panels(const lb_matmul *m) {
  return has_few_loads(m) ? 2 : 1;
}

// Tiles of the full width. If what is left behind them takes as many panels, it
// is another one, masked; but short epilogues make masks with every tile, which
// takes as long as that gains.
static lb_tile widest_tile(const lb_matmul *m) {
  lb_tile t = {.panels = m->panels};
  if (!has_few_loads(m) || m->scratch == LB_K_NONE) return t;
  t.masked = true;
  t.least = (m->panels - 1) * m->panel_cols + 1;
  return t;
}

// A panel or two at a time. Where they fit into half of the vectors of those,
// the others are left out.
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

// The last columns. Where half a vector is enough for them, it is one half as
// wide.
static void emit_last_columns(const lb_matmul *m, lb_kval begin) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, e->dims[LB_DIM_COLS], begin);
  bool halves = lb_target_has(e->target, LB_FEATURE_FP256);
  if (halves) {
    lb_tile t = {.panels = 1, .masked = true, .vectors = 1};
    e->lanes /= 2;
    lb_k_if(b, lb_k_le(b, left, lb_k_i64(b, e->lanes)));
    emit_columns(m, t, begin);
    lb_k_else(b);
    e->lanes *= 2;
  }
  emit_vectors(m, begin, left);
  if (halves) lb_k_end(b);
}

// What is left after a tile of `panels`: one panel at a time, which makes
// chains enough if there are some rows.
static uint32_t narrower(const lb_matmul *m, uint32_t panels) {
  return m->rows >= MIN_ROWS ? panels > 1 : panels / 2;
}

static void emit_band(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kval col = lb_k_i64(&e->b, 0);
  int widest = (int)(m->panels * m->panel_cols);
  bool one =
      lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, INT_MAX) <= widest;
  if (m->pairs || (one && m->panels > 1)) {
    bool divides = lb_facts_divides(e->facts, LB_DIM_COLS, widest);
    emit_columns(m, (lb_tile){.panels = m->panels, .masked = !divides}, col);
    return;
  }
  for (uint32_t n = m->panels; n; n = narrower(m, n)) {
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

// Where b stays in the second cache it is there for the next band, so bands are
// short: their part of the product stays there, too, whose lines lie side by
// side across columns of tiles and are fetched so. A larger b is read anew by
// each band.
static lb_kval tiles_a_band(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval one = lb_k_i64(b, 1), k = lb_k_max(b, e->dims[LB_DIM_K], one);
  lb_kval cols = lb_k_max(b, e->dims[LB_DIM_COLS], one);
  int64_t scale = m->quads ? 4 : 1;  // bytes take a quarter of the room
  lb_kval near = lb_k_le(b, lb_k_mul(b, k, cols), lb_k_i64(b, NEAR_B * scale));
  lb_kval half = lb_k_max(b, k, lb_k_div(b, cols, lb_k_i64(b, 2)));
  lb_kval few = lb_k_div(b, lb_k_i64(b, NEAR_BAND / m->rows), half);
  lb_kval many = lb_k_div(b, lb_k_i64(b, BAND_ELEMENTS * scale / m->rows), k);
  lb_kval n = lb_k_select(b, near, few, many);
  return lb_k_max(b, n, lb_k_i64(b, MIN_BAND));
}

static void emit_bands(lb_matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval zero = lb_k_i64(b, 0), size = tiles_a_band(m);
  find_heights(m, &m->heights);
  lb_sums_begin(m);
  lb_kval all = m->heights.until[m->heights.n - 1];
  m->row = lb_k_reg(b, zero);
  m->next_row = lb_k_reg(b, zero);
  m->begin = lb_k_loop(b, zero, all, size);
  m->end = lb_k_min(b, lb_k_add(b, m->begin, size), all);
  lb_sums_begin_band(m);
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
  if (m->pairs) cols /= 2;
  rows = lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  cols =
      (uint32_t)lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_COLS, (int)cols);
  m->rows = (uint32_t)rows;
  m->panels = cols / m->panel_cols;
  if (rows >= 1 && rows <= LB_TILE_MAX_ROWS && cols % m->panel_cols == 0 &&
      m->panels >= 1 && m->panels <= LB_TILE_MAX_PANELS)
    return true;
  lb_kbuild_fail(&e->b, lb_error(LB_UNSUPPORTED,
                                 "lower: a tile of %dx%u; rows go from 1 to "
                                 "%d, columns by %u to %u",
                                 rows, cols, LB_TILE_MAX_ROWS, m->panel_cols,
                                 LB_TILE_MAX_PANELS * m->panel_cols));
  return false;
}

static lb_kval something_to_sum(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), some = lb_k_lt(b, zero, e->dims[LB_DIM_K]);
  for (int d = LB_DIM_LEN; d < lb_spec_dims(e->spec); d++)
    some = lb_k_and(b, some, lb_k_lt(b, zero, e->dims[d]));
  return some;
}

void lb_lower_matmul(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_matmul m = {.e = e, .scratch = LB_K_NONE};
  while (e->spec->nodes[m.acc_node].op != LB_S_ACC) m.acc_node++;
  m.acc_dtype = e->spec->nodes[m.acc_node].dtype;
  m.pairs = e->spec->in[1].layout == LB_LAYOUT_PANEL_K2;
  m.quads = e->spec->in[1].layout == LB_LAYOUT_PANEL_K4;
  m.by = (uint32_t)lb_panel_rows(e->spec->in[1].layout);
  m.panel_cols = m.pairs ? LB_PANEL_K2_COLS : LB_PANEL_COLS;
  m.line = m.panel_cols * m.by;
  if (!choose_tile(&m)) return;
  m.some = something_to_sum(e);
  m.in_place = lb_lower_in_place(e);
  m.bias = lb_finish_bias(e);
  if (lb_finish_is_long(e)) {
    m.scratch = lb_k_local(b, m.acc_dtype, m.rows * m.panels * LB_PANEL_COLS);
    emit_bands(&m);
    return;
  }
  lb_k_if(b, m.some);
  emit_bands(&m);
  lb_k_else(b);
  lb_finish_zeros(&m);
  lb_k_end(b);
}
