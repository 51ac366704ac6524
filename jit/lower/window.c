// lower/window.c -- The WINDOW form: depthwise convolutions and pools, with
// channels as columns.
//
// A *tile* is some rows times some vectors of columns, with one accumulator
// register each; the inner loops run over taps. A pointer serves three rows, as
// in GEMMs. Rows that share no elements are tiles of one row if they are long
// and wide: they are read from distant memory, and reading four cache lines at
// a time is faster.
//
// Rows *slide* where each row's window begins one tap after that of the row
// before: tap s of row r is tap s - 1 of row r + 1. The elements of a row of
// taps then stay in registers, and each of the first MAX_SLIDING taps loads
// only the element of the last row. Otherwise, and for later taps, an element
// is loaded for each product.
//
// *Long* sums, of more than LB_SUM_TAPS elements, are computed in blocks: a
// block in the usual accumulators, the blocks of a part in separate registers
// that taps do not need, and parts in float64 totals in memory.
#include <math.h>

#include "lower/lowering.h"

enum {
  MAX_ROWS = 8,
  WIDE = 4,  // vectors of a tile of one row
  MAX_VECTORS = 8,
  ROWS_PER_POINTER = 3,
  MAX_SLIDING = 5,  // taps of a row of taps
  MAX_POINTERS = (MAX_ROWS + MAX_SLIDING + 1) / ROWS_PER_POINTER,
  LONG_TAPS_X = 64,
};

typedef struct lower_window {
  lb_lowering *e;
  uint8_t acc_node;
  lb_acc kind;
  lb_dtype dtype;
  uint32_t rows, vectors;  // of the largest tile
  lb_kval first;           // initial accumulator value, a scalar
  lb_kval slides;          // whether rows slide, and have a tap
  lb_kval n_sliding;       // taps per row of taps that slide, or 0
  lb_kval slid_offset[2];  // their length in elements of the two inputs
  struct {                 // SUM, SQUARES
    lb_kval is_long;
    lb_kval block_y, block_x;  // taps of a block
    lb_kval has_totals;        // whether there may be more than one part
    lb_kval totals;            // memory, for one tile
  } sum;
} lower_window;

typedef struct tile {
  const lower_window *w;
  uint32_t rows, vectors;
  lb_kval row, col;            // the first
  lb_kval first_new;           // the first row that is not stored yet
  lb_kval mask[MAX_VECTORS];   // LB_K_NONE: all lanes
  lb_kval from[MAX_POINTERS];  // first taps of rows, at column `col`
  lb_kval acc[MAX_ROWS][MAX_VECTORS];
} tile;

// -- taps --------------------------------------------------------------------

// Registers that this many vectors of the accumulator dtype take.
static uint32_t registers(const lower_window *w, uint32_t vectors) {
  return vectors * (uint32_t)lb_dtype_size(w->dtype) / 4;
}

// Accumulators, the elements of a row of taps and weights must fit into
// registers. Two rows share too little, and sliding pools are too rare, to
// justify the code.
static bool may_slide(const tile *t) {
  uint32_t all = t->w->e->lanes == 16 ? 32 : 16;
  return t->rows > 2 && t->w->kind == LB_ACC_DOT &&
         registers(t->w, (2 * t->rows + 1) * t->vectors) < all;
}

static void point_at_rows(tile *t) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  uint32_t n = t->rows + (may_slide(t) ? MAX_SLIDING - 1 : 0);
  lb_kval stride = e->in_stride[0].row, at = lb_k_mul(b, t->row, stride);
  lb_kval p = lb_k_ptr(b, e->in[0], lb_k_add(b, at, t->col), 0);
  for (uint32_t r = 0; r < n; r += ROWS_PER_POINTER) {
    t->from[r / ROWS_PER_POINTER] = p;
    p = lb_k_ptr(b, p, lb_lower_mul(e, stride, ROWS_PER_POINTER), 0);
  }
}

// Loads the vectors of input i at p.
static void load(const tile *t, uint8_t i, lb_kval p, lb_kval *out) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_dtype from = e->spec->in[i].dtype;
  int64_t size = (int64_t)lb_dtype_size(from);
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval q = lb_k_ptr(b, p, lb_k_i64(b, 0), v * e->lanes * size);
    lb_kval x = lb_k_load_masked(b, q, e->lanes, 0, t->mask[v], LB_K_NONE);
    out[v] = from == t->w->dtype ? x : lb_k_cast(b, x, t->w->dtype);
  }
}

// The same for row r, at a tap.
static void load_row(const tile *t, uint32_t r, lb_kval tap, lb_kval *out) {
  lb_lowering *e = t->w->e;
  lb_kval p = lb_k_ptr(&e->b, t->from[r / ROWS_PER_POINTER], tap, 0);
  lb_kval by = lb_lower_mul(e, e->in_stride[0].row, r % ROWS_PER_POINTER);
  load(t, 0, lb_k_ptr(&e->b, p, by, 0), out);
}

static void load_weights(const tile *t, lb_kval tap, lb_kval *out) {
  lb_lowering *e = t->w->e;
  lb_kval at = lb_k_add(&e->b, tap, t->col);
  load(t, 1, lb_k_ptr(&e->b, e->in[1], at, 0), out);
}

static lb_kval combine(const lower_window *w, lb_kval acc, lb_kval x,
                       lb_kval y) {
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

// The first taps of a row of taps, for rows that slide, from these offsets of
// the two inputs on. Each tap is inside the `if` of the previous one: there may
// be fewer.
static void add_sliding(const tile *t, lb_kval in_x, lb_kval in_y) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[MAX_ROWS][MAX_VECTORS], y[MAX_VECTORS] = {0};
  lb_k_if(b, t->w->slides);
  for (uint32_t s = 0; s < MAX_SLIDING; s++) {
    if (s) lb_k_if(b, lb_k_lt(b, lb_k_i64(b, s), e->dims[LB_DIM_TAPS_X]));
    load_weights(t, in_y, y);
    in_y = lb_k_add(b, in_y, e->taps[1].x);
    for (uint32_t r = 0; r < t->rows; r++) {
      lb_kval *have = x[(r + s) % t->rows];
      if (!s || r + 1 == t->rows) load_row(t, r + s, in_x, have);
      add_row(t, r, have, y);
    }
  }
  for (uint32_t s = 0; s < MAX_SLIDING; s++) lb_k_end(b);
}

// Returns the offset in a register and advances it.
static lb_kval post_increment(lb_lowering *e, lb_kval reg, lb_kval by) {
  lb_kval at = lb_k_get(&e->b, reg);
  lb_k_set(&e->b, reg, lb_k_add(&e->b, at, by));
  return at;
}

// One tap, at the offsets in these registers of the two inputs.
static void add_step(const tile *t, lb_kval in_x, lb_kval in_y) {
  lb_lowering *e = t->w->e;
  lb_kval x[MAX_VECTORS], y[MAX_VECTORS] = {0};
  if (t->w->kind == LB_ACC_DOT)
    load_weights(t, post_increment(e, in_y, e->taps[1].x), y);
  in_x = post_increment(e, in_x, e->taps[0].x);
  for (uint32_t r = 0; r < t->rows; r++) {
    load_row(t, r, in_x, x);
    add_row(t, r, x, y);
  }
}

// Some taps of a row of taps, from these offsets on.
static void add_steps(const tile *t, lb_kval begin, lb_kval end, lb_kval in_x,
                      lb_kval in_y) {
  lb_kbuilder *b = &t->w->e->b;
  in_x = lb_k_reg(b, in_x);
  in_y = lb_k_reg(b, in_y);
  lb_k_loop(b, begin, end, lb_k_i64(b, 1));
  add_step(t, in_x, in_y);
  lb_k_end(b);
}

static void add_taps(const tile *t) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  lb_kval in_x = lb_k_reg(b, zero), in_y = lb_k_reg(b, zero);
  lb_k_loop(b, zero, e->dims[LB_DIM_TAPS_Y], lb_k_i64(b, 1));
  in_x = post_increment(e, in_x, e->taps[0].y);
  in_y =
      t->w->kind == LB_ACC_DOT ? post_increment(e, in_y, e->taps[1].y) : zero;
  lb_kval begin = zero;
  if (may_slide(t)) {
    add_sliding(t, in_x, in_y);
    begin = t->w->n_sliding;
    in_x = lb_k_add(b, in_x, t->w->slid_offset[0]);
    in_y = lb_k_add(b, in_y, t->w->slid_offset[1]);
  }
  add_steps(t, begin, e->dims[LB_DIM_TAPS_X], in_x, in_y);
  lb_k_end(b);
}

// -- long sums ---------------------------------------------------------------

static bool is_sum(const lower_window *w) {
  return w->kind == LB_ACC_SUM || w->kind == LB_ACC_SQUARES;
}

// A block has block_y rows of block_x taps; either block_x is all taps of a
// row, or block_y is 1. A part is flushed when it has all its blocks, so there
// can be more than one part only where there are more than half the taps that
// fill one.
static void find_blocks(lower_window *w) {
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval one = lb_k_i64(b, 1), max_taps = lb_k_i64(b, LB_SUM_TAPS);
  lb_kval taps_y = e->dims[LB_DIM_TAPS_Y], taps_x = e->dims[LB_DIM_TAPS_X];
  lb_kval taps = lb_k_mul(b, taps_y, taps_x);
  lb_kval part = lb_k_i64(b, LB_SUM_TAPS * LB_SUM_BLOCKS / 2);
  uint32_t vectors = w->rows * w->vectors;
  if (vectors < MAX_VECTORS) vectors = MAX_VECTORS;
  w->sum.is_long = lb_k_lt(b, max_taps, taps);
  w->sum.block_x = lb_k_max(b, lb_k_min(b, taps_x, max_taps), one);
  w->sum.block_y = lb_k_div(b, max_taps, w->sum.block_x);
  w->sum.has_totals = lb_k_lt(b, part, taps);
  w->sum.totals = lb_k_local(b, LB_F64, vectors * e->lanes);
}

// State of a long sum: registers or addresses of the vectors of a tile,
// consecutively.
typedef struct long_sum {
  const tile *t;
  lb_kval none;  // -0.0, which changes no number when added
  lb_kval n;     // blocks of the current part
  lb_kval part[MAX_ROWS * MAX_VECTORS];
} long_sum;

static lb_kval acc_of(const tile *t, uint32_t i) {
  return t->acc[i / t->vectors][i % t->vectors];
}

static lb_kval total_at(const tile *t, uint32_t i) {
  lb_lowering *e = t->w->e;
  return lb_k_ptr(&e->b, t->w->sum.totals, lb_k_i64(&e->b, i * e->lanes), 0);
}

static lb_kval cast_to(lb_lowering *e, lb_kval x, lb_dtype t) {
  return lb_k_type(&e->b, x).dtype == t ? x : lb_k_cast(&e->b, x, t);
}

// The total of vector i plus its part.
static lb_kval total_of(const long_sum *s, uint32_t i) {
  lb_lowering *e = s->t->w->e;
  lb_kval part = cast_to(e, lb_k_get(&e->b, s->part[i]), LB_F64);
  lb_kval total = lb_k_load(&e->b, total_at(s->t, i), e->lanes, 0);
  return lb_k_add(&e->b, total, part);
}

static void begin_long(long_sum *s) {
  const tile *t = s->t;
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  uint32_t n = t->rows * t->vectors;
  lb_kval none = lb_k_num(b, lb_kt(LB_F64, e->lanes), -0.0);
  s->none = lb_k_num(b, lb_kt(t->w->dtype, e->lanes), -0.0);
  s->n = lb_k_reg(b, lb_k_i64(b, 0));
  for (uint32_t i = 0; i < n; i++) s->part[i] = lb_k_reg(b, s->none);
  lb_k_if(b, t->w->sum.has_totals);
  for (uint32_t i = 0; i < n; i++) lb_k_store(b, total_at(t, i), none, 0);
  lb_k_end(b);
}

static void end_block(const long_sum *s) {
  const tile *t = s->t;
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  uint32_t n = t->rows * t->vectors;
  for (uint32_t i = 0; i < n; i++) {
    lb_kval part = lb_k_get(b, s->part[i]), acc = lb_k_get(b, acc_of(t, i));
    lb_k_set(b, s->part[i], lb_k_add(b, part, acc));
  }
  lb_kval blocks = lb_lower_add(e, lb_k_get(b, s->n), 1);
  lb_k_set(b, s->n, blocks);
  lb_k_if(b, lb_k_eq(b, blocks, lb_k_i64(b, LB_SUM_BLOCKS)));
  for (uint32_t i = 0; i < n; i++) {
    lb_k_store(b, total_at(t, i), total_of(s, i), 0);
    lb_k_set(b, s->part[i], s->none);
  }
  lb_k_set(b, s->n, lb_k_i64(b, 0));
  lb_k_end(b);
}

static void end_long(const long_sum *s) {
  const tile *t = s->t;
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  uint32_t n = t->rows * t->vectors;
  for (uint32_t i = 0; i < n; i++)
    lb_k_set(b, acc_of(t, i), lb_k_get(b, s->part[i]));
  lb_k_if(b, t->w->sum.has_totals);
  for (uint32_t i = 0; i < n; i++)
    lb_k_set(b, acc_of(t, i), cast_to(e, total_of(s, i), t->w->dtype));
  lb_k_end(b);
}

// A block starts with its first element, at this offset: this saves one
// addition, which pays for adding the block to its part.
static void begin_block(const tile *t, lb_kval in_x) {
  lb_kbuilder *b = &t->w->e->b;
  lb_kval x[MAX_VECTORS];
  for (uint32_t r = 0; r < t->rows; r++) {
    load_row(t, r, in_x, x);
    for (uint32_t v = 0; v < t->vectors; v++)
      lb_k_set(b, t->acc[r][v],
               t->w->kind == LB_ACC_SUM ? x[v] : lb_k_mul(b, x[v], x[v]));
  }
}

// The taps of a block that begins at (tap_y, tap_x).
static void add_block(const tile *t, lb_kval tap_y, lb_kval tap_x) {
  const lower_window *w = t->w;
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  const lb_kval taps_y = e->dims[LB_DIM_TAPS_Y],
                taps_x = e->dims[LB_DIM_TAPS_X];
  lb_kval end_y = lb_k_min(b, lb_k_add(b, tap_y, w->sum.block_y), taps_y);
  lb_kval end_x = lb_k_min(b, lb_k_add(b, tap_x, w->sum.block_x), taps_x);
  lb_kval at = lb_k_add(b, lb_k_mul(b, tap_y, e->taps[0].y),
                        lb_k_mul(b, tap_x, e->taps[0].x));
  begin_block(t, at);
  lb_kval begin = lb_k_reg(b, lb_lower_add(e, tap_x, 1));
  lb_kval next = lb_k_reg(b, lb_k_add(b, at, e->taps[0].x));
  lb_kval in_x = lb_k_reg(b, at);
  lb_k_loop(b, tap_y, end_y, lb_k_i64(b, 1));
  add_steps(t, lb_k_get(b, begin), end_x, lb_k_get(b, next), lb_k_i64(b, 0));
  lb_k_set(b, begin, tap_x);
  post_increment(e, in_x, e->taps[0].y);
  lb_k_set(b, next, lb_k_get(b, in_x));
  lb_k_end(b);
}

static void add_long(const tile *t) {
  const lower_window *w = t->w;
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  long_sum s = {.t = t};
  begin_long(&s);
  lb_kval tap_y = lb_k_loop(b, zero, e->dims[LB_DIM_TAPS_Y], w->sum.block_y);
  lb_kval tap_x = lb_k_loop(b, zero, e->dims[LB_DIM_TAPS_X], w->sum.block_x);
  add_block(t, tap_y, tap_x);
  end_block(&s);
  lb_k_end(b);
  lb_k_end(b);
  end_long(&s);
}

// -- tiles -------------------------------------------------------------------

static void epilogue_row(const tile *t, uint32_t r) {
  lb_lowering *e = t->w->e;
  lb_stores s;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_lower_at(e, lb_lower_add(e, t->col, v * e->lanes), t->mask[v]);
    e->lanes_of[t->w->acc_node] = lb_k_get(&e->b, t->acc[r][v]);
    lb_lower_values(e, &s);
    lb_lower_stores(e, &s);
  }
}

static void epilogue(const tile *t) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < t->rows; r++) {
    lb_kval row = lb_lower_add(e, t->row, r);
    bool may_repeat = r + 1 < t->rows;
    if (may_repeat)
      lb_k_if(b, lb_k_lt(b, lb_lower_add(e, t->first_new, -1), row));
    lb_lower_row(e, row);
    epilogue_row(t, r);
    if (may_repeat) lb_k_end(b);
  }
}

static void emit_tile(tile *t) {
  lb_lowering *e = t->w->e;
  lb_kval first = lb_k_splat(&e->b, t->w->first, e->lanes);
  point_at_rows(t);
  for (uint32_t r = 0; r < t->rows; r++)
    for (uint32_t v = 0; v < t->vectors; v++)
      t->acc[r][v] = lb_k_reg(&e->b, first);
  if (is_sum(t->w)) {
    lb_k_if(&e->b, t->w->sum.is_long);
    add_long(t);
    lb_k_else(&e->b);
  }
  add_taps(t);
  if (is_sum(t->w)) lb_k_end(&e->b);
  lb_lower_uniforms(e);
  epilogue(t);
}

// Sets no masks, or those of the columns that exist.
static void mask_tile(tile *t, bool whole) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval at = lb_lower_add(e, t->col, v * e->lanes);
    lb_kval left = lb_k_sub(b, e->dims[LB_DIM_COLS], at);
    t->mask[v] = whole ? LB_K_NONE : lb_k_tail(b, left, e->lanes);
  }
}

// Tiles of `vectors` vectors at columns `begin` to `end`.
static void emit_tiles_at(tile *t, uint32_t vectors, lb_kval begin, lb_kval end,
                          bool whole) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  t->vectors = vectors;
  t->col = lb_k_loop(b, begin, end, lb_k_i64(b, vectors * e->lanes));
  mask_tile(t, whole);
  emit_tile(t);
  lb_k_end(b);
}

static bool divides(const lb_lowering *e, uint32_t vectors) {
  return lb_facts_divides(e->facts, LB_DIM_COLS, (int)(vectors * e->lanes));
}

// Columns from `begin` on in single masked vectors. The last ones use a
// half-width vector if they fit into it.
static void emit_last_tiles(tile *t, lb_kval begin) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval cols = e->dims[LB_DIM_COLS], end = cols;
  bool half_width =
      lb_target_has(e->target, LB_FEATURE_FP256) && !divides(e, 1);
  if (half_width) {
    lb_kval whole = lb_lower_round_down(e, cols, e->lanes);
    lb_kval few =
        lb_k_le(b, lb_k_sub(b, cols, whole), lb_k_i64(b, e->lanes / 2));
    end = lb_k_select(b, few, whole, cols);
  }
  emit_tiles_at(t, 1, begin, end, divides(e, 1));
  if (!half_width) return;
  e->lanes /= 2;
  emit_tiles_at(t, 1, end, cols, false);
  e->lanes *= 2;
}

// The columns of the current rows: wide tiles, then single vectors. A masked
// load costs as much as a product, so only the last vector has one.
static void emit_tiles(tile *t) {
  lb_lowering *e = t->w->e;
  lb_kval zero = lb_k_i64(&e->b, 0), cols = e->dims[LB_DIM_COLS];
  uint32_t wide = t->rows == 1 ? WIDE : t->w->vectors;
  lb_kval end = lb_lower_round_down(e, cols, wide * e->lanes);
  emit_tiles_at(t, wide, zero, end, true);
  if (!divides(e, wide)) emit_last_tiles(t, end);
}

// Whether rows of a pool are processed with all their columns at once: with
// mask registers, a vector that is off costs nothing.
static bool takes_whole_rows(const lower_window *w) {
  return w->kind != LB_ACC_DOT && w->e->lanes == 16;
}

static void emit_whole_rows(tile *t, uint32_t vectors) {
  lb_lowering *e = t->w->e;
  lb_kval zero = lb_k_i64(&e->b, 0);
  emit_tiles_at(t, vectors, zero, e->dims[LB_DIM_COLS], false);
}

// Whole rows if there are few columns: elements that are masked off are read by
// the next tap anyway. They still take the time of a load, so sums, which can
// be long, have two widths.
static void emit_pool_tiles(tile *t) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval cols = e->dims[LB_DIM_COLS];
  lb_k_if(b, lb_k_le(b, cols, lb_k_i64(b, MAX_VECTORS * e->lanes)));
  if (is_sum(t->w)) {
    lb_k_if(b, lb_k_le(b, cols, lb_k_i64(b, WIDE * e->lanes)));
    emit_whole_rows(t, WIDE);
    lb_k_else(b);
  }
  emit_whole_rows(t, MAX_VECTORS);
  if (is_sum(t->w)) lb_k_end(b);
  lb_k_else(b);
  emit_tiles(t);
  lb_k_end(b);
}

static void emit_single_rows(const lower_window *w) {
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  tile t = {.w = w, .rows = 1};
  lb_kval rows = e->dims[LB_DIM_ROWS];
  t.row = t.first_new = lb_k_loop(b, lb_k_i64(b, 0), rows, lb_k_i64(b, 1));
  if (takes_whole_rows(w))
    emit_pool_tiles(&t);
  else
    emit_tiles(&t);
  lb_k_end(b);
}

// Whether rows are long, wide and share no elements. Processed whole, rows of
// two vectors wait for their accumulators, not for memory.
static lb_kval are_disjoint(const lower_window *w) {
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval taps_x = e->dims[LB_DIM_TAPS_X], cols = e->dims[LB_DIM_COLS];
  uint32_t min_cols = takes_whole_rows(w) ? 2 * e->lanes + 1 : WIDE * e->lanes;
  lb_kval width = lb_k_mul(b, taps_x, e->taps[0].x);
  lb_kval apart = lb_k_le(b, width, e->in_stride[0].row);
  lb_kval wide = lb_k_le(b, lb_k_i64(b, min_cols), cols);
  lb_kval is_long = lb_k_le(b, lb_k_i64(b, LONG_TAPS_X), taps_x);
  return lb_k_and(b, lb_k_and(b, apart, wide), is_long);
}

// The last tile ends with the last row: if the rows are not a multiple of the
// tile, it recomputes rows that were stored, and does not store them again.
static void emit_rows(const lower_window *w) {
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  tile t = {.w = w, .rows = w->rows};
  lb_kval rows = e->dims[LB_DIM_ROWS];
  if (w->rows == 1) {
    emit_single_rows(w);
    return;
  }
  lb_kval few = lb_k_lt(b, rows, lb_k_i64(b, t.rows));
  lb_k_if(b, lb_k_or(b, few, are_disjoint(w)));
  emit_single_rows(w);
  lb_k_else(b);
  t.first_new = lb_k_loop(b, lb_k_i64(b, 0), rows, lb_k_i64(b, t.rows));
  t.row = lb_k_min(b, t.first_new, lb_lower_add(e, rows, -(int64_t)t.rows));
  emit_tiles(&t);
  lb_k_end(b);
  lb_k_end(b);
}

static double start_of(lb_acc kind) {
  if (kind == LB_ACC_MAX) return -INFINITY;
  return kind == LB_ACC_MIN ? INFINITY : -0.0;
}

// Sums start with -0.0, so that the first element is added unchanged; with 0.0
// if there is none.
static lb_kval first_of(const lower_window *w) {
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_ktype t = lb_kt(w->dtype, 1);
  lb_kval start = lb_k_num(b, t, start_of(w->kind));
  if (w->kind == LB_ACC_MAX || w->kind == LB_ACC_MIN) return start;
  lb_kval taps = lb_k_mul(b, e->dims[LB_DIM_TAPS_Y], e->dims[LB_DIM_TAPS_X]);
  lb_kval none = lb_k_eq(b, taps, lb_k_i64(b, 0));
  return lb_k_select(b, none, lb_k_num(b, t, 0), start);
}

static void find_sliding(lower_window *w) {
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval taps_x = e->dims[LB_DIM_TAPS_X], zero = lb_k_i64(b, 0);
  lb_kval apart = lb_k_eq(b, e->taps[0].x, e->in_stride[0].row);
  w->slides = lb_k_and(b, apart, lb_k_lt(b, zero, taps_x));
  w->n_sliding = lb_k_select(
      b, w->slides, lb_k_min(b, taps_x, lb_k_i64(b, MAX_SLIDING)), zero);
  for (int i = 0; i < 2; i++)
    w->slid_offset[i] = lb_k_mul(b, w->n_sliding, e->taps[i].x);
}

void lb_lower_window(lb_lowering *e) {
  lower_window w = {.e = e, .rows = 1, .vectors = WIDE};
  while (e->spec->nodes[w.acc_node].op != LB_S_ACC) w.acc_node++;
  w.kind = e->spec->nodes[w.acc_node].arg;
  w.dtype = e->spec->nodes[w.acc_node].dtype;
  w.first = first_of(&w);
  if (w.kind == LB_ACC_DOT) find_sliding(&w);
  w.rows = (uint32_t)lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, 8);
  if (w.rows > MAX_ROWS) w.rows = MAX_ROWS;
  w.vectors = w.rows > (e->lanes == 16 ? 6 : 4) ? 1 : w.rows > 2 ? 2 : 4;
  if (is_sum(&w)) find_blocks(&w);
  emit_rows(&w);
}
