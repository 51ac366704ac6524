// lower/window.c -- windows that slide: depthwise convolutions and pools, with
// channels as columns.
//
// A *tile* is some rows times some vectors of columns, each with a register of
// its own; taps are the inner loops. Pointers stand for three rows each, as in
// products. Rows that share nothing are tiles of their own if they are long and
// wide: they come from afar, and better four lines at a time.
//
// Rows *slide* where each begins a step behind the one before it: step s of row
// r is step s - 1 of row r + 1. What a tile has of a run then stays in
// registers, and each of the first steps reads the element of the last row
// alone. Else, and for steps after those, an element is read for each product.
#include <math.h>

#include "lower/emit.h"

enum {
  MAX_ROWS = 8,
  WIDE = 4,  // vectors of a row that is a tile of its own
  MAX_VECTORS = 8,
  ROWS_A_POINTER = 3,
  SLIDING = 5,  // steps
  MAX_POINTERS = (MAX_ROWS + SLIDING + 1) / ROWS_A_POINTER,
  LONG = 64,  // steps
};

typedef struct window {
  lb_emit *e;
  uint8_t acc_node;
  lb_acc kind;
  lb_dtype dtype;
  uint32_t rows, vectors;  // of the largest tile
  lb_kval first;           // what registers begin with, a scalar
  lb_kval slides;          // whether rows do, and have a step
  lb_kval slid;            // how many steps that takes, or 0
  lb_kval behind[2];       // them, in elements of the two inputs
} window;

typedef struct tile {
  const window *w;
  uint32_t rows, vectors;
  lb_kval row, col;            // the first
  lb_kval fresh;               // the first row that is not stored yet
  lb_kval mask[MAX_VECTORS];   // LB_K_NONE: all lanes
  lb_kval from[MAX_POINTERS];  // the first taps of rows, at column `col`
  lb_kval acc[MAX_ROWS][MAX_VECTORS];
} tile;

// -- taps --------------------------------------------------------------------

// Registers that so many vectors of what is combined take.
static uint32_t registers(const window *w, uint32_t vectors) {
  return vectors * (uint32_t)lb_dtype_size(w->dtype) / 4;
}

// Sums, a run's elements and weights must fit into registers. Two rows share
// too little, and pools that slide are too rare, for as much code.
static bool may_slide(const tile *t) {
  uint32_t all = t->w->e->lanes == 16 ? 32 : 16;
  return t->rows > 2 && t->w->kind == LB_ACC_DOT &&
         registers(t->w, (2 * t->rows + 1) * t->vectors) < all;
}

static void point_at_rows(tile *t) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  uint32_t n = t->rows + (may_slide(t) ? SLIDING - 1 : 0);
  lb_kval stride = e->in_stride[0].row, at = lb_k_mul(b, t->row, stride);
  lb_kval p = lb_k_ptr(b, e->in[0], lb_k_add(b, at, t->col), 0);
  for (uint32_t r = 0; r < n; r += ROWS_A_POINTER) {
    t->from[r / ROWS_A_POINTER] = p;
    p = lb_k_ptr(b, p, lb_emit_mul(e, stride, ROWS_A_POINTER), 0);
  }
}

// Vectors of what input i has behind p.
static void load(const tile *t, uint8_t i, lb_kval p, lb_kval *out) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_dtype from = e->spec->in[i].dtype;
  int64_t size = (int64_t)lb_dtype_size(from);
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval q = lb_k_ptr(b, p, lb_k_i64(b, 0), v * e->lanes * size);
    lb_kval x = lb_k_load_masked(b, q, e->lanes, 0, t->mask[v], LB_K_NONE);
    out[v] = from == t->w->dtype ? x : lb_k_cast(b, x, t->w->dtype);
  }
}

// The same of row r, at a tap.
static void load_row(const tile *t, uint32_t r, lb_kval tap, lb_kval *out) {
  lb_emit *e = t->w->e;
  lb_kval p = lb_k_ptr(&e->b, t->from[r / ROWS_A_POINTER], tap, 0);
  lb_kval by = lb_emit_mul(e, e->in_stride[0].row, r % ROWS_A_POINTER);
  load(t, 0, lb_k_ptr(&e->b, p, by, 0), out);
}

static void load_weights(const tile *t, lb_kval tap, lb_kval *out) {
  lb_emit *e = t->w->e;
  lb_kval at = lb_k_add(&e->b, tap, t->col);
  load(t, 1, lb_k_ptr(&e->b, e->in[1], at, 0), out);
}

static lb_kval combine(const window *w, lb_kval acc, lb_kval x, lb_kval y) {
  lb_kbuilder *b = &w->e->b;
  switch (w->kind) {
    case LB_ACC_DOT: return lb_k_fma(b, x, y, acc);
    case LB_ACC_SUM: return lb_k_add(b, acc, x);
    case LB_ACC_MAX: return lb_k_max(b, acc, x);
    case LB_ACC_SQUARES: return lb_k_fma(b, x, x, acc);
    default: return lb_k_min(b, acc, x);
  }
}

static void add_row(const tile *t, uint32_t r, const lb_kval *x,
                    const lb_kval *y) {
  lb_kbuilder *b = &t->w->e->b;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval acc = lb_k_get(b, t->acc[r][v]);
    lb_k_set(b, t->acc[r][v], combine(t->w, acc, x[v], y[v]));
  }
}

// The first steps of a run, of rows that slide, from these places of the two
// inputs on. Each is inside of the one before it: there may be fewer.
static void add_sliding(const tile *t, lb_kval in_x, lb_kval in_y) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[MAX_ROWS][MAX_VECTORS], y[MAX_VECTORS] = {0};
  lb_k_if(b, t->w->slides);
  for (uint32_t s = 0; s < SLIDING; s++) {
    if (s) lb_k_if(b, lb_k_lt(b, lb_k_i64(b, s), e->dims[LB_DIM_STEPS]));
    load_weights(t, in_y, y);
    in_y = lb_k_add(b, in_y, e->taps[1].step);
    for (uint32_t r = 0; r < t->rows; r++) {
      lb_kval *have = x[(r + s) % t->rows];
      if (!s || r + 1 == t->rows) load_row(t, r + s, in_x, have);
      add_row(t, r, have, y);
    }
  }
  for (uint32_t s = 0; s < SLIDING; s++) lb_k_end(b);
}

// The place in a register, which goes on to the next.
static lb_kval go_on(lb_emit *e, lb_kval reg, lb_kval by) {
  lb_kval at = lb_k_get(&e->b, reg);
  lb_k_set(&e->b, reg, lb_k_add(&e->b, at, by));
  return at;
}

// Steps of a run: all, or those behind the first ones of rows that slide.
static void add_steps(const tile *t, lb_kval in_x, lb_kval in_y) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[MAX_VECTORS], y[MAX_VECTORS] = {0}, begin = lb_k_i64(b, 0);
  if (may_slide(t)) {
    begin = t->w->slid;
    in_x = lb_k_add(b, in_x, t->w->behind[0]);
    in_y = lb_k_add(b, in_y, t->w->behind[1]);
  }
  in_x = lb_k_reg(b, in_x);
  in_y = lb_k_reg(b, in_y);
  lb_k_loop(b, begin, e->dims[LB_DIM_STEPS], lb_k_i64(b, 1));
  if (t->w->kind == LB_ACC_DOT)
    load_weights(t, go_on(e, in_y, e->taps[1].step), y);
  in_x = go_on(e, in_x, e->taps[0].step);
  for (uint32_t r = 0; r < t->rows; r++) {
    load_row(t, r, in_x, x);
    add_row(t, r, x, y);
  }
  lb_k_end(b);
}

static void add_taps(const tile *t) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  lb_kval in_x = lb_k_reg(b, zero), in_y = lb_k_reg(b, zero);
  lb_k_loop(b, zero, e->dims[LB_DIM_LEN], lb_k_i64(b, 1));
  in_x = go_on(e, in_x, e->taps[0].run);
  in_y = t->w->kind == LB_ACC_DOT ? go_on(e, in_y, e->taps[1].run) : zero;
  if (may_slide(t)) add_sliding(t, in_x, in_y);
  add_steps(t, in_x, in_y);
  lb_k_end(b);
}

// -- tiles -------------------------------------------------------------------

static void finish_row(const tile *t, uint32_t r) {
  lb_emit *e = t->w->e;
  lb_stores s;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_emit_at(e, lb_emit_add(e, t->col, v * e->lanes), t->mask[v]);
    e->lanes_of[t->w->acc_node] = lb_k_get(&e->b, t->acc[r][v]);
    lb_emit_values(e, &s);
    lb_emit_stores(e, &s);
  }
}

static void finish(const tile *t) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < t->rows; r++) {
    lb_kval row = lb_emit_add(e, t->row, r);
    bool again = r + 1 < t->rows;
    if (again) lb_k_if(b, lb_k_lt(b, lb_emit_add(e, t->fresh, -1), row));
    lb_emit_row(e, row);
    finish_row(t, r);
    if (again) lb_k_end(b);
  }
}

static void emit_tile(tile *t) {
  lb_emit *e = t->w->e;
  lb_kval first = lb_k_splat(&e->b, t->w->first, e->lanes);
  point_at_rows(t);
  for (uint32_t r = 0; r < t->rows; r++)
    for (uint32_t v = 0; v < t->vectors; v++)
      t->acc[r][v] = lb_k_reg(&e->b, first);
  add_taps(t);
  lb_emit_all(e);
  finish(t);
}

// All vectors of the tile, or what the columns leave of them.
static void mask_tile(tile *t, bool whole) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval at = lb_emit_add(e, t->col, v * e->lanes);
    lb_kval left = lb_k_sub(b, e->dims[LB_DIM_COLS], at);
    t->mask[v] = whole ? LB_K_NONE : lb_k_tail(b, left, e->lanes);
  }
}

// Tiles of so many vectors at these columns.
static void emit_tiles_at(tile *t, uint32_t vectors, lb_kval begin, lb_kval end,
                          bool whole) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  t->vectors = vectors;
  t->col = lb_k_loop(b, begin, end, lb_k_i64(b, vectors * e->lanes));
  mask_tile(t, whole);
  emit_tile(t);
  lb_k_end(b);
}

static bool divides(const lb_emit *e, uint32_t vectors) {
  return lb_facts_divides(e->facts, LB_DIM_COLS, (int)(vectors * e->lanes));
}

// Columns from `begin` on in single vectors under a mask. What is left for the
// last takes half of one, if that is enough.
static void emit_last_tiles(tile *t, lb_kval begin) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval cols = e->dims[LB_DIM_COLS], end = cols;
  bool halves = lb_target_has(e->target, LB_FEATURE_FP256) && !divides(e, 1);
  if (halves) {
    lb_kval whole = lb_emit_down(e, cols, e->lanes);
    lb_kval few =
        lb_k_le(b, lb_k_sub(b, cols, whole), lb_k_i64(b, e->lanes / 2));
    end = lb_k_select(b, few, whole, cols);
  }
  emit_tiles_at(t, 1, begin, end, divides(e, 1));
  if (!halves) return;
  e->lanes /= 2;
  emit_tiles_at(t, 1, end, cols, false);
  e->lanes *= 2;
}

// Columns of the present rows: wide tiles, then single vectors. A load under a
// mask takes the place of a product, so it is for the last alone.
static void emit_tiles(tile *t) {
  lb_emit *e = t->w->e;
  lb_kval zero = lb_k_i64(&e->b, 0), cols = e->dims[LB_DIM_COLS];
  uint32_t wide = t->rows == 1 ? WIDE : t->w->vectors;
  lb_kval end = lb_emit_down(e, cols, wide * e->lanes);
  emit_tiles_at(t, wide, zero, end, true);
  if (!divides(e, wide)) emit_last_tiles(t, end);
}

// Whether rows of a pool go through with all their columns at once: where masks
// are numbers a vector that is off costs nothing.
static bool takes_rows_whole(const window *w) {
  return w->kind != LB_ACC_DOT && w->e->lanes == 16;
}

// If they are few: what is off is read with the next step anyway.
static void emit_pool_tiles(tile *t) {
  lb_emit *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval cols = e->dims[LB_DIM_COLS];
  lb_k_if(b, lb_k_lt(b, cols, lb_k_i64(b, MAX_VECTORS * e->lanes)));
  emit_tiles_at(t, MAX_VECTORS, lb_k_i64(b, 0), cols, false);
  lb_k_else(b);
  emit_tiles(t);
  lb_k_end(b);
}

static void emit_single_rows(const window *w) {
  lb_emit *e = w->e;
  lb_kbuilder *b = &e->b;
  tile t = {.w = w, .rows = 1};
  lb_kval rows = e->dims[LB_DIM_ROWS];
  t.row = t.fresh = lb_k_loop(b, lb_k_i64(b, 0), rows, lb_k_i64(b, 1));
  if (takes_rows_whole(w))
    emit_pool_tiles(&t);
  else
    emit_tiles(&t);
  lb_k_end(b);
}

// Long, wide, and none has anything of another. Taken whole, rows of two
// vectors wait for their sums, not for the image.
static lb_kval are_apart(const window *w) {
  lb_emit *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval steps = e->dims[LB_DIM_STEPS], cols = e->dims[LB_DIM_COLS];
  uint32_t least = takes_rows_whole(w) ? 2 * e->lanes + 1 : WIDE * e->lanes;
  lb_kval width = lb_k_mul(b, steps, e->taps[0].step);
  lb_kval apart = lb_k_le(b, width, e->in_stride[0].row);
  lb_kval wide = lb_k_le(b, lb_k_i64(b, least), cols);
  lb_kval is_long = lb_k_le(b, lb_k_i64(b, LONG), steps);
  return lb_k_and(b, lb_k_and(b, apart, wide), is_long);
}

// The last tile begins where it ends with the last row: it computes rows again
// that were stored, if they do not come out even.
static void emit_rows(const window *w) {
  lb_emit *e = w->e;
  lb_kbuilder *b = &e->b;
  tile t = {.w = w, .rows = w->rows};
  lb_kval rows = e->dims[LB_DIM_ROWS];
  if (w->rows == 1) {
    emit_single_rows(w);
    return;
  }
  lb_kval few = lb_k_lt(b, rows, lb_k_i64(b, t.rows));
  lb_k_if(b, lb_k_or(b, few, are_apart(w)));
  emit_single_rows(w);
  lb_k_else(b);
  t.fresh = lb_k_loop(b, lb_k_i64(b, 0), rows, lb_k_i64(b, t.rows));
  t.row = lb_k_min(b, t.fresh, lb_emit_add(e, rows, -(int64_t)t.rows));
  emit_tiles(&t);
  lb_k_end(b);
  lb_k_end(b);
}

static double start_of(lb_acc kind) {
  if (kind == LB_ACC_MAX) return -INFINITY;
  return kind == LB_ACC_MIN ? INFINITY : -0.0;
}

// Sums begin with -0.0, so that the first comes out as it is; with 0.0 if there
// is none.
static lb_kval first_of(const window *w) {
  lb_emit *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_ktype t = lb_kt(w->dtype, 1);
  lb_kval start = lb_k_num(b, t, start_of(w->kind));
  if (w->kind == LB_ACC_MAX || w->kind == LB_ACC_MIN) return start;
  lb_kval taps = lb_k_mul(b, e->dims[LB_DIM_LEN], e->dims[LB_DIM_STEPS]);
  lb_kval none = lb_k_eq(b, taps, lb_k_i64(b, 0));
  return lb_k_select(b, none, lb_k_num(b, t, 0), start);
}

static void find_slides(window *w) {
  lb_emit *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval steps = e->dims[LB_DIM_STEPS], zero = lb_k_i64(b, 0);
  lb_kval apart = lb_k_eq(b, e->taps[0].step, e->in_stride[0].row);
  w->slides = lb_k_and(b, apart, lb_k_lt(b, zero, steps));
  w->slid =
      lb_k_select(b, w->slides, lb_k_min(b, steps, lb_k_i64(b, SLIDING)), zero);
  for (int i = 0; i < 2; i++)
    w->behind[i] = lb_k_mul(b, w->slid, e->taps[i].step);
}

void lb_emit_window(lb_emit *e) {
  window w = {.e = e, .rows = 1, .vectors = WIDE};
  while (e->spec->nodes[w.acc_node].op != LB_S_ACC) w.acc_node++;
  w.kind = e->spec->nodes[w.acc_node].arg;
  w.dtype = e->spec->nodes[w.acc_node].dtype;
  w.first = first_of(&w);
  if (w.kind == LB_ACC_DOT) find_slides(&w);
  w.rows = (uint32_t)lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, 8);
  if (w.rows > MAX_ROWS) w.rows = MAX_ROWS;
  w.vectors = w.rows > (e->lanes == 16 ? 6 : 4) ? 1 : w.rows > 2 ? 2 : 4;
  emit_rows(&w);
}
