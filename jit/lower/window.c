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
//
// *Long* sums, of more than LB_SUM_TAPS elements, are made block by block: a
// block in the registers of all others, the blocks of a part in registers of
// their own, which no tap needs, and parts in totals of float64 in memory.
#include <math.h>

#include "lower/lowering.h"

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
  lb_lowering *e;
  uint8_t acc_node;
  lb_acc kind;
  lb_dtype dtype;
  uint32_t rows, vectors;  // of the largest tile
  lb_kval first;           // what registers begin with, a scalar
  lb_kval slides;          // whether rows do, and have a step
  lb_kval slid;            // how many steps that takes, or 0
  lb_kval behind[2];       // them, in elements of the two inputs
  struct {                 // of sums
    lb_kval is_long;
    lb_kval runs, steps;  // of a block
    lb_kval has_totals;   // whether there may be more than a part
    lb_kval totals;       // memory of a tile's
  } sum;
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
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  uint32_t n = t->rows + (may_slide(t) ? SLIDING - 1 : 0);
  lb_kval stride = e->in_stride[0].row, at = lb_k_mul(b, t->row, stride);
  lb_kval p = lb_k_ptr(b, e->in[0], lb_k_add(b, at, t->col), 0);
  for (uint32_t r = 0; r < n; r += ROWS_A_POINTER) {
    t->from[r / ROWS_A_POINTER] = p;
    p = lb_k_ptr(b, p, lb_lower_mul(e, stride, ROWS_A_POINTER), 0);
  }
}

// Vectors of what input i has behind p.
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

// The same of row r, at a tap.
static void load_row(const tile *t, uint32_t r, lb_kval tap, lb_kval *out) {
  lb_lowering *e = t->w->e;
  lb_kval p = lb_k_ptr(&e->b, t->from[r / ROWS_A_POINTER], tap, 0);
  lb_kval by = lb_lower_mul(e, e->in_stride[0].row, r % ROWS_A_POINTER);
  load(t, 0, lb_k_ptr(&e->b, p, by, 0), out);
}

static void load_weights(const tile *t, lb_kval tap, lb_kval *out) {
  lb_lowering *e = t->w->e;
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
  lb_lowering *e = t->w->e;
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
static lb_kval go_on(lb_lowering *e, lb_kval reg, lb_kval by) {
  lb_kval at = lb_k_get(&e->b, reg);
  lb_k_set(&e->b, reg, lb_k_add(&e->b, at, by));
  return at;
}

// One step, from the places in these registers of the two inputs on.
static void add_step(const tile *t, lb_kval in_x, lb_kval in_y) {
  lb_lowering *e = t->w->e;
  lb_kval x[MAX_VECTORS], y[MAX_VECTORS] = {0};
  if (t->w->kind == LB_ACC_DOT)
    load_weights(t, go_on(e, in_y, e->taps[1].step), y);
  in_x = go_on(e, in_x, e->taps[0].step);
  for (uint32_t r = 0; r < t->rows; r++) {
    load_row(t, r, in_x, x);
    add_row(t, r, x, y);
  }
}

// Steps of a run, from these places on.
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
  lb_k_loop(b, zero, e->dims[LB_DIM_LEN], lb_k_i64(b, 1));
  in_x = go_on(e, in_x, e->taps[0].run);
  in_y = t->w->kind == LB_ACC_DOT ? go_on(e, in_y, e->taps[1].run) : zero;
  lb_kval begin = zero;
  if (may_slide(t)) {
    add_sliding(t, in_x, in_y);
    begin = t->w->slid;
    in_x = lb_k_add(b, in_x, t->w->behind[0]);
    in_y = lb_k_add(b, in_y, t->w->behind[1]);
  }
  add_steps(t, begin, e->dims[LB_DIM_STEPS], in_x, in_y);
  lb_k_end(b);
}

// -- long sums ---------------------------------------------------------------

static bool is_sum(const window *w) {
  return w->kind == LB_ACC_SUM || w->kind == LB_ACC_SQUARES;
}

// A block has some runs of some steps: one of both numbers is all there are, or
// 1. A part is flushed when it has all its blocks, so there is more than one
// only where taps are more than half of what fills one.
static void find_blocks(window *w) {
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval one = lb_k_i64(b, 1), most = lb_k_i64(b, LB_SUM_TAPS);
  lb_kval len = e->dims[LB_DIM_LEN], steps = e->dims[LB_DIM_STEPS];
  lb_kval taps = lb_k_mul(b, len, steps);
  lb_kval part = lb_k_i64(b, LB_SUM_TAPS * LB_SUM_BLOCKS / 2);
  uint32_t vectors = w->rows * w->vectors;
  if (vectors < MAX_VECTORS) vectors = MAX_VECTORS;
  w->sum.is_long = lb_k_lt(b, most, taps);
  w->sum.steps = lb_k_max(b, lb_k_min(b, steps, most), one);
  w->sum.runs = lb_k_div(b, most, w->sum.steps);
  w->sum.has_totals = lb_k_lt(b, part, taps);
  w->sum.totals = lb_k_local(b, LB_F64, vectors * e->lanes);
}

// Registers or places in memory of the vectors of a tile, one after the other.
typedef struct long_sum {
  const tile *t;
  lb_kval none;  // -0.0, which changes no number when added
  lb_kval n;     // blocks of the present part
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

// The total of vector i with its part.
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

// The first element of a block, at this place, is its sum so far: a block takes
// an addition for each element, with the one of its sum.
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

// Runs of a block from `run` on, steps from `step` on.
static void add_block(const tile *t, lb_kval run, lb_kval step) {
  const window *w = t->w;
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  const lb_kval len = e->dims[LB_DIM_LEN], steps = e->dims[LB_DIM_STEPS];
  lb_kval last_run = lb_k_min(b, lb_k_add(b, run, w->sum.runs), len);
  lb_kval last_step = lb_k_min(b, lb_k_add(b, step, w->sum.steps), steps);
  lb_kval at = lb_k_add(b, lb_k_mul(b, run, e->taps[0].run),
                        lb_k_mul(b, step, e->taps[0].step));
  begin_block(t, at);
  lb_kval begin = lb_k_reg(b, lb_lower_add(e, step, 1));
  lb_kval next = lb_k_reg(b, lb_k_add(b, at, e->taps[0].step));
  lb_kval in_x = lb_k_reg(b, at);
  lb_k_loop(b, run, last_run, lb_k_i64(b, 1));
  add_steps(t, lb_k_get(b, begin), last_step, lb_k_get(b, next),
            lb_k_i64(b, 0));
  lb_k_set(b, begin, step);
  go_on(e, in_x, e->taps[0].run);
  lb_k_set(b, next, lb_k_get(b, in_x));
  lb_k_end(b);
}

static void add_long(const tile *t) {
  const window *w = t->w;
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  long_sum s = {.t = t};
  begin_long(&s);
  lb_kval run = lb_k_loop(b, zero, e->dims[LB_DIM_LEN], w->sum.runs);
  lb_kval step = lb_k_loop(b, zero, e->dims[LB_DIM_STEPS], w->sum.steps);
  add_block(t, run, step);
  end_block(&s);
  lb_k_end(b);
  lb_k_end(b);
  end_long(&s);
}

// -- tiles -------------------------------------------------------------------

static void finish_row(const tile *t, uint32_t r) {
  lb_lowering *e = t->w->e;
  lb_stores s;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_lower_at(e, lb_lower_add(e, t->col, v * e->lanes), t->mask[v]);
    e->lanes_of[t->w->acc_node] = lb_k_get(&e->b, t->acc[r][v]);
    lb_lower_values(e, &s);
    lb_lower_stores(e, &s);
  }
}

static void finish(const tile *t) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < t->rows; r++) {
    lb_kval row = lb_lower_add(e, t->row, r);
    bool again = r + 1 < t->rows;
    if (again) lb_k_if(b, lb_k_lt(b, lb_lower_add(e, t->fresh, -1), row));
    lb_lower_row(e, row);
    finish_row(t, r);
    if (again) lb_k_end(b);
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
  lb_lower_all(e);
  finish(t);
}

// All vectors of the tile, or what the columns leave of them.
static void mask_tile(tile *t, bool whole) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval at = lb_lower_add(e, t->col, v * e->lanes);
    lb_kval left = lb_k_sub(b, e->dims[LB_DIM_COLS], at);
    t->mask[v] = whole ? LB_K_NONE : lb_k_tail(b, left, e->lanes);
  }
}

// Tiles of so many vectors at these columns.
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

// Columns from `begin` on in single vectors under a mask. What is left for the
// last takes half of one, if that is enough.
static void emit_last_tiles(tile *t, lb_kval begin) {
  lb_lowering *e = t->w->e;
  lb_kbuilder *b = &e->b;
  lb_kval cols = e->dims[LB_DIM_COLS], end = cols;
  bool halves = lb_target_has(e->target, LB_FEATURE_FP256) && !divides(e, 1);
  if (halves) {
    lb_kval whole = lb_lower_down(e, cols, e->lanes);
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
  lb_lowering *e = t->w->e;
  lb_kval zero = lb_k_i64(&e->b, 0), cols = e->dims[LB_DIM_COLS];
  uint32_t wide = t->rows == 1 ? WIDE : t->w->vectors;
  lb_kval end = lb_lower_down(e, cols, wide * e->lanes);
  emit_tiles_at(t, wide, zero, end, true);
  if (!divides(e, wide)) emit_last_tiles(t, end);
}

// Whether rows of a pool go through with all their columns at once: where masks
// are numbers a vector that is off costs nothing.
static bool takes_rows_whole(const window *w) {
  return w->kind != LB_ACC_DOT && w->e->lanes == 16;
}

static void emit_whole_rows(tile *t, uint32_t vectors) {
  lb_lowering *e = t->w->e;
  lb_kval zero = lb_k_i64(&e->b, 0);
  emit_tiles_at(t, vectors, zero, e->dims[LB_DIM_COLS], false);
}

// If they are few: what is off is read with the next step anyway. It takes the
// time of a load nevertheless, so sums, which can be long, have two widths.
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

static void emit_single_rows(const window *w) {
  lb_lowering *e = w->e;
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
  lb_lowering *e = w->e;
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
  lb_lowering *e = w->e;
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
  t.row = lb_k_min(b, t.fresh, lb_lower_add(e, rows, -(int64_t)t.rows));
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
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_ktype t = lb_kt(w->dtype, 1);
  lb_kval start = lb_k_num(b, t, start_of(w->kind));
  if (w->kind == LB_ACC_MAX || w->kind == LB_ACC_MIN) return start;
  lb_kval taps = lb_k_mul(b, e->dims[LB_DIM_LEN], e->dims[LB_DIM_STEPS]);
  lb_kval none = lb_k_eq(b, taps, lb_k_i64(b, 0));
  return lb_k_select(b, none, lb_k_num(b, t, 0), start);
}

static void find_slides(window *w) {
  lb_lowering *e = w->e;
  lb_kbuilder *b = &e->b;
  lb_kval steps = e->dims[LB_DIM_STEPS], zero = lb_k_i64(b, 0);
  lb_kval apart = lb_k_eq(b, e->taps[0].step, e->in_stride[0].row);
  w->slides = lb_k_and(b, apart, lb_k_lt(b, zero, steps));
  w->slid =
      lb_k_select(b, w->slides, lb_k_min(b, steps, lb_k_i64(b, SLIDING)), zero);
  for (int i = 0; i < 2; i++)
    w->behind[i] = lb_k_mul(b, w->slid, e->taps[i].step);
}

void lb_lower_window(lb_lowering *e) {
  window w = {.e = e, .rows = 1, .vectors = WIDE};
  while (e->spec->nodes[w.acc_node].op != LB_S_ACC) w.acc_node++;
  w.kind = e->spec->nodes[w.acc_node].arg;
  w.dtype = e->spec->nodes[w.acc_node].dtype;
  w.first = first_of(&w);
  if (w.kind == LB_ACC_DOT) find_slides(&w);
  w.rows = (uint32_t)lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, 8);
  if (w.rows > MAX_ROWS) w.rows = MAX_ROWS;
  w.vectors = w.rows > (e->lanes == 16 ? 6 : 4) ? 1 : w.rows > 2 ? 2 : 4;
  if (is_sum(&w)) find_blocks(&w);
  emit_rows(&w);
}
