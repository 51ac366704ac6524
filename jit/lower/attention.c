// lower/attention.c -- scores, softmax and the product with v, in one pass over
// the keys.
//
// Rows are taken in *bands*, keys in the blocks of the spec, and in them rows
// in *tiles*. What is used again lies in memory of the kernel's own:
//   panels   keys of the block, turned: [256/16][k][16], once a band and block
//   queries  rows of the tile, side by side
//   scores   of the tile, [rows][256]: sums, then scores, then exponentials
//   totals   of the tile, some columns of each row
//   max, sum of each row of the band, from block to block; `base`, what is
//            subtracted from scores of the tile; what a tile's totals are
//            multiplied by before (`rescale`) and after (`finish`) a block.
//   parts    of the tile, a vector of each row, from which its greatest score
//            or its sum is made, for as many rows at a time as there are lanes
// Totals are in the output between blocks. Rows of a tile past the last are
// those of the last row again, and are not stored.
//
// What is done to rows one by one is a loop, not code for each row: code takes
// its time to compile.
#include <math.h>

#include "lower/lowering.h"
#include "spec/exp.h"

enum {
  BAND = 128,
  KEYS = LB_SPEC_KEYS,
  MAX_ROWS = 12,
  MAX_VECTORS = 4,
  MAX_K = 256,
  MAX_LANES = 16,
};

typedef struct attention {
  lb_lowering *e;
  uint8_t acc_node, score_node;
  lb_dtype dtype;
  uint32_t rows, vectors;  // of a tile
  int64_t k_room;          // of a row of queries, of a panel
  lb_kval panels, queries, scores, totals, lanes64, max, sum, base, rescale,
      finish, parts;

  lb_kval band, band_rows;  // the present band: its first row, how many
  lb_kval key, keys;        // the present block likewise
  lb_kval row;              // the first of the present tile, in the band
} attention;

// -- small things ------------------------------------------------------------

static lb_kval lanes_of(const attention *a, double x) {
  return lb_k_num(&a->e->b, lb_kt(a->dtype, a->e->lanes), x);
}

static lb_kval like(lb_kbuilder *b, lb_kval v, float x) {
  return lb_k_like(b, v, (double)x);
}

static lb_kval widen(const attention *a, lb_kval x) {
  lb_kbuilder *b = &a->e->b;
  bool same = lb_k_type(b, x).dtype == a->dtype;
  return same ? x : lb_k_cast(b, x, a->dtype);
}

// x > y ? x : y, one instruction: of NaN and y it is y.
static lb_kval greater(lb_kbuilder *b, lb_kval x, lb_kval y) {
  return lb_k_select(b, lb_k_gt(b, x, y), x, y);
}

// Constant places in one of the kernel's memories, from a place that is not.
static lb_kval spot(const attention *a, lb_kval memory, lb_kval at, int64_t n) {
  int64_t size = (int64_t)lb_dtype_size(a->dtype);
  return lb_k_ptr(&a->e->b, memory, at, n * size);
}

// Row r of the tile; the last row for those behind it.
static lb_kval row_of_tile(const attention *a, lb_kval r) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval row = lb_k_add(b, a->band, lb_k_add(b, a->row, r));
  return lb_k_min(b, row, lb_lower_add(e, e->dims[LB_DIM_ROWS], -1));
}

static lb_kval tail(const attention *a, lb_kval count, lb_kval at) {
  lb_kbuilder *b = &a->e->b;
  return lb_k_tail(b, lb_k_sub(b, count, at), a->e->lanes);
}

// Of vectors that begin with element k of a row.
static lb_kval tail_of_k(const attention *a, lb_kval k) {
  bool whole = lb_facts_divides(a->e->facts, LB_DIM_K, (int)a->e->lanes);
  return whole ? LB_K_NONE : tail(a, a->e->dims[LB_DIM_K], k);
}

// -- keys, turned ------------------------------------------------------------

// Keys `first` and on of the block, as many as there are lanes: elements k and
// on of them. Keys past the last are the last again.
static void load_keys(const attention *a, lb_kval first, lb_kval k,
                      lb_kval *out) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval last = lb_lower_add(e, a->keys, -1);
  lb_kval mask = tail_of_k(a, k);
  for (uint32_t i = 0; i < e->lanes; i++) {
    lb_kval at = lb_k_min(b, lb_lower_add(e, first, i), last);
    at = lb_k_mul(b, lb_k_add(b, a->key, at), e->in_stride[1].row);
    lb_kval p = lb_k_ptr(b, e->in[1], lb_k_add(b, at, k), 0);
    out[i] = widen(a, lb_k_load_masked(b, p, e->lanes, 0, mask, LB_K_NONE));
  }
}

static void turn_keys(const attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[MAX_LANES], zero = lb_k_i64(b, 0), step = lb_k_i64(b, e->lanes);
  lb_kval first = lb_k_loop(b, zero, a->keys, step);
  lb_kval in_panel = lb_k_rem(b, first, lb_k_i64(b, LB_PANEL_COLS));
  lb_kval panel = lb_lower_mul(e, lb_k_sub(b, first, in_panel), a->k_room);
  lb_kval k = lb_k_loop(b, zero, e->dims[LB_DIM_K], step);
  lb_kval at = lb_k_add(b, lb_k_add(b, panel, in_panel),
                        lb_lower_mul(e, k, LB_PANEL_COLS));
  load_keys(a, first, k, x);
  lb_lower_turn(e, x);
  for (uint32_t i = 0; i < e->lanes; i++)
    lb_k_store(b, spot(a, a->panels, at, i * LB_PANEL_COLS), x[i], 0);
  lb_k_end(b);
  lb_k_end(b);
}

// -- a tile of sums ----------------------------------------------------------

// Memory has room for whole vectors: what is behind the last element is
// multiplied with nothing.
static void copy_queries(const attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), rows = lb_k_i64(b, a->rows);
  lb_kval r = lb_k_loop(b, zero, rows, lb_k_i64(b, 1));
  lb_kval at = lb_k_mul(b, row_of_tile(a, r), e->in_stride[0].row);
  lb_kval from = lb_k_ptr(b, e->in[0], at, 0);
  lb_kval to = lb_k_ptr(b, a->queries, lb_lower_mul(e, r, a->k_room), 0);
  lb_kval k = lb_k_loop(b, zero, e->dims[LB_DIM_K], lb_k_i64(b, e->lanes));
  lb_kval x = lb_k_load_masked(b, lb_k_ptr(b, from, k, 0), e->lanes, 0,
                               tail_of_k(a, k), LB_K_NONE);
  lb_k_store(b, lb_k_ptr(b, to, k, 0), widen(a, x), 0);
  lb_k_end(b);
  lb_k_end(b);
}

typedef struct sums {
  uint32_t rows, vectors;
  lb_kval acc[MAX_ROWS][MAX_VECTORS];  // registers
} sums;

static void begin_sums(const attention *a, sums *s, lb_kval first) {
  lb_kbuilder *b = &a->e->b;
  for (uint32_t r = 0; r < s->rows; r++)
    for (uint32_t v = 0; v < s->vectors; v++) s->acc[r][v] = lb_k_reg(b, first);
}

// Adds x[r] * y for each row: element `at` of rows that are `stride` apart.
static void add_products(const attention *a, sums *s, lb_kval memory,
                         int64_t stride, lb_kval at, const lb_kval *y) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < s->rows; r++) {
    lb_kval x = lb_k_load(b, spot(a, memory, at, r * stride), 1, 0);
    x = lb_k_splat(b, x, e->lanes);
    for (uint32_t v = 0; v < s->vectors; v++) {
      lb_kval acc = lb_k_get(b, s->acc[r][v]);
      lb_k_set(b, s->acc[r][v], lb_k_fma(b, x, y[v], acc));
    }
  }
}

static void put_sums(const attention *a, const sums *s, lb_kval memory,
                     lb_kval at, int64_t stride) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < s->rows; r++)
    for (uint32_t v = 0; v < s->vectors; v++)
      lb_k_store(b, spot(a, memory, at, r * stride + v * e->lanes),
                 lb_k_get(b, s->acc[r][v]), 0);
}

// The same of no products at all.
static void put_zeros(const attention *a, lb_kval memory, int64_t n) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval at =
      lb_k_loop(b, lb_k_i64(b, 0), lb_k_i64(b, n), lb_k_i64(b, e->lanes));
  lb_k_store(b, spot(a, memory, at, 0), lanes_of(a, 0), 0);
  lb_k_end(b);
}

// Sums of `vectors` from key `col` of the block on, which begins a panel.
static void sum_tile(const attention *a, lb_kval col, uint32_t vectors) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  sums s = {.rows = a->rows, .vectors = vectors};
  lb_kval y[MAX_VECTORS];
  begin_sums(a, &s, lanes_of(a, -0.0));
  lb_kval row =
      lb_k_reg(b, lb_k_ptr(b, a->panels, lb_lower_mul(e, col, a->k_room), 0));
  lb_kval k = lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_K], lb_k_i64(b, 1));
  lb_kval from = lb_k_get(b, row), zero = lb_k_i64(b, 0);
  for (uint32_t v = 0; v < vectors; v++) {
    uint32_t c = v * e->lanes;
    int64_t at = c / LB_PANEL_COLS * LB_PANEL_COLS * a->k_room;
    lb_kval p = spot(a, from, zero, at + c % LB_PANEL_COLS);
    y[v] = lb_k_load(b, p, e->lanes, 0);
  }
  lb_k_set(b, row, lb_k_ptr(b, from, lb_k_i64(b, LB_PANEL_COLS), 0));
  add_products(a, &s, a->queries, a->k_room, k, y);
  lb_k_end(b);
  put_sums(a, &s, a->scores, col, KEYS);
}

// Tiles of the full width; what is left is a panel.
static void sum_tiles(const attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  int64_t width = a->vectors * e->lanes;
  lb_kval up = lb_lower_add(e, a->keys, LB_PANEL_COLS - 1);
  lb_kval end = lb_lower_down(e, up, width), zero = lb_k_i64(b, 0);
  lb_k_if(b, lb_k_lt(b, zero, e->dims[LB_DIM_K]));
  sum_tile(a, lb_k_loop(b, zero, end, lb_k_i64(b, width)), a->vectors);
  lb_k_end(b);
  if (width != LB_PANEL_COLS) {
    lb_k_if(b, lb_k_lt(b, end, a->keys));
    sum_tile(a, end, LB_PANEL_COLS / e->lanes);
    lb_k_end(b);
  }
  lb_k_else(b);
  put_zeros(a, a->scores, a->rows * KEYS);
  lb_k_end(b);
}

// -- softmax, a row at a time ------------------------------------------------

enum { AT_ONCE = 2 };  // vectors

// The scores of a vector, from the sums there, into their place.
static lb_kval make_scores(const attention *a, lb_kval at, lb_kval col,
                           lb_kval mask) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_lower_at(e, lb_k_add(b, a->key, col), mask);
  e->lanes_of[a->acc_node] = lb_k_load(b, at, e->lanes, 0);
  lb_kval x = lb_lower_value(e, a->score_node);
  if (mask != LB_K_NONE) x = lb_k_select(b, mask, x, lanes_of(a, -INFINITY));
  lb_k_store(b, at, x, 0);
  return x;
}

// All scores of a row; the greatest of each lane. Behind the last are -inf.
static lb_kval score_row(const attention *a, lb_kval row) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  int64_t width = AT_ONCE * e->lanes;
  lb_kval max[AT_ONCE], end = lb_lower_down(e, a->keys, width);
  for (int i = 0; i < AT_ONCE; i++)
    max[i] = lb_k_reg(b, lanes_of(a, -INFINITY));
  lb_kval col = lb_k_loop(b, lb_k_i64(b, 0), end, lb_k_i64(b, width));
  for (uint32_t i = 0; i < AT_ONCE; i++) {
    lb_kval x = make_scores(a, spot(a, row, col, i * e->lanes),
                            lb_lower_add(e, col, i * e->lanes), LB_K_NONE);
    lb_k_set(b, max[i], greater(b, x, lb_k_get(b, max[i])));
  }
  lb_k_end(b);
  col = lb_k_loop(b, end, a->keys, lb_k_i64(b, e->lanes));
  lb_kval x = make_scores(a, spot(a, row, col, 0), col, tail(a, a->keys, col));
  lb_k_set(b, max[0], greater(b, x, lb_k_get(b, max[0])));
  lb_k_end(b);
  return greater(b, lb_k_get(b, max[0]), lb_k_get(b, max[1]));
}

// As spec/exp.h has it, in lanes or not.
static lb_kval exponential(const attention *a, lb_kval x) {
  lb_kbuilder *b = &a->e->b;
  static const float c[] = LB_EXP_POLY;
  if (a->dtype != LB_F32) return lb_k_exp(b, x);
  lb_kval least = like(b, x, LB_EXP_LEAST), big = like(b, x, LB_EXP_ROUND);
  lb_kval under = lb_k_lt(b, x, least);
  x = lb_k_select(b, under, least, x);
  lb_kval t = lb_k_fma(b, x, like(b, x, LB_EXP_LOG2_E), big);
  lb_kval n = lb_k_sub(b, t, big), y = like(b, x, c[0]);
  lb_kval r = lb_k_fma(b, n, like(b, x, -LB_EXP_LN2_HIGH), x);
  r = lb_k_fma(b, n, like(b, x, -LB_EXP_LN2_LOW), r);
  for (int i = 1; i < 6; i++) y = lb_k_fma(b, y, r, like(b, x, c[i]));
  lb_kval bits = lb_k_bitcast(b, t, LB_I32);
  bits = lb_k_shl(b, bits, lb_k_like(b, bits, 23));
  y = lb_k_mul(b, y, lb_k_bitcast(b, bits, LB_F32));
  return lb_k_select(b, under, like(b, y, 0), y);
}

// exp(score - base) of a vector, into its place and its lanes of the sum.
static void exponentials(const attention *a, lb_kval at, lb_kval col,
                         lb_kval base) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval x = lb_k_sub(b, lb_k_load(b, at, e->lanes, 0), base);
  x = exponential(a, x);
  lb_k_store(b, at, x, 0);
  lb_kval lane = lb_k_and(b, col, lb_k_i64(b, LB_SPEC_LANES - 1));
  lb_kval to = spot(a, a->lanes64, lane, 0);
  lb_k_store(b, to, lb_k_add(b, lb_k_load(b, to, e->lanes, 0), x), 0);
}

// The sum of the 64 lanes as spec.h has it, up to a vector.
static lb_kval sum_lanes(const attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[LB_SPEC_LANES / 4], zero = lb_k_i64(b, 0);
  uint32_t n = LB_SPEC_LANES / e->lanes;
  for (uint32_t v = 0; v < n; v++)
    x[v] = lb_k_load(b, spot(a, a->lanes64, zero, v * e->lanes), e->lanes, 0);
  for (uint32_t half = n / 2; half; half /= 2)
    for (uint32_t v = 0; v < half; v++) x[v] = lb_k_add(b, x[v], x[v + half]);
  return x[0];
}

// Exponentials are never negative, so lanes that begin with 0 sum up as lanes
// that begin with nothing.
static lb_kval exponentials_of_row(const attention *a, lb_kval row,
                                   lb_kval base) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  int64_t width = AT_ONCE * e->lanes;
  lb_kval zero = lb_k_i64(b, 0), end = lb_lower_down(e, a->keys, width);
  for (uint32_t v = 0; v < LB_SPEC_LANES; v += e->lanes)
    lb_k_store(b, spot(a, a->lanes64, zero, v), lanes_of(a, 0), 0);
  base = lb_k_splat(b, base, e->lanes);
  lb_kval col = lb_k_loop(b, zero, end, lb_k_i64(b, width));
  for (uint32_t i = 0; i < AT_ONCE; i++)
    exponentials(a, spot(a, row, col, i * e->lanes),
                 lb_lower_add(e, col, i * e->lanes), base);
  lb_k_end(b);
  col = lb_k_loop(b, end, a->keys, lb_k_i64(b, e->lanes));
  exponentials(a, spot(a, row, col, 0), col, base);
  lb_k_end(b);
  return sum_lanes(a);
}

// exp(max - base) of what was before this block; nothing was before the first.
static lb_kval rescale_of(const attention *a, lb_kval max, lb_kval base) {
  lb_kbuilder *b = &a->e->b;
  lb_kval c = lb_k_reg(b, lanes_of(a, 0));
  lb_k_if(b, lb_k_gt(b, a->key, lb_k_i64(b, 0)));
  lb_k_set(b, c, exponential(a, lb_k_sub(b, max, base)));
  lb_k_end(b);
  return lb_k_get(b, c);
}

// What the totals are multiplied by after the last block: 1 / sum.
static lb_kval finish_of(const attention *a, lb_kval sum) {
  lb_kbuilder *b = &a->e->b;
  lb_kval f = lb_k_reg(b, lanes_of(a, 1)), end = lb_k_add(b, a->key, a->keys);
  lb_k_if(b, lb_k_ge(b, end, a->e->dims[LB_DIM_LEN]));
  lb_kval is_empty = lb_k_eq(b, sum, lanes_of(a, 0));
  lb_kval by = lb_k_select(b, is_empty, lanes_of(a, 1), sum);
  lb_k_set(b, f, lb_k_div(b, lanes_of(a, 1), by));
  lb_k_end(b);
  return lb_k_get(b, f);
}

static lb_kval row_of_scores(const attention *a, lb_kval r) {
  lb_lowering *e = a->e;
  return lb_k_ptr(&e->b, a->scores, lb_lower_mul(e, r, KEYS), 0);
}

static lb_kval rows_left(const attention *a) {
  lb_kbuilder *b = &a->e->b;
  lb_kval left = lb_k_sub(b, a->band_rows, a->row);
  return lb_k_min(b, left, lb_k_i64(b, a->rows));
}

static void put_part(const attention *a, lb_kval r, lb_kval x) {
  lb_lowering *e = a->e;
  lb_k_store(&e->b, spot(a, a->parts, lb_lower_mul(e, r, e->lanes), 0), x, 0);
}

// Parts of rows `first` and on, as many as there are lanes: all lanes of each
// row combined. Lane i is row i.
static lb_kval combine_parts(const attention *a, lb_kval first,
                             lb_lower_combine *combine) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[MAX_LANES], at = lb_lower_mul(e, first, e->lanes);
  uint32_t n = a->rows < e->lanes ? a->rows : e->lanes;
  for (uint32_t i = 0; i < n; i++)
    x[i] = lb_k_load(b, spot(a, a->parts, at, i * e->lanes), e->lanes, 0);
  return lb_lower_fold(e, x, n, combine);
}

// Of the rows from `first` on: the greatest score of this block and those
// before, and what follows from it.
static void top_of_rows(const attention *a, lb_kval first) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval at = spot(a, a->max, lb_k_add(b, a->row, first), 0);
  lb_kval before = lb_k_load(b, at, e->lanes, 0);
  lb_kval max = greater(b, combine_parts(a, first, greater), before);
  lb_kval none = lb_k_eq(b, max, lanes_of(a, -INFINITY));
  lb_kval base = lb_k_select(b, none, lanes_of(a, 0), max);
  lb_k_store(b, spot(a, a->base, first, 0), base, 0);
  lb_k_store(b, spot(a, a->rescale, first, 0), rescale_of(a, before, base), 0);
  lb_k_store_masked(b, at, max, 0, tail(a, rows_left(a), first));
}

static void sum_of_rows(const attention *a, lb_kval first) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval at = spot(a, a->sum, lb_k_add(b, a->row, first), 0);
  lb_kval before = lb_k_load(b, at, e->lanes, 0);
  lb_kval by = lb_k_load(b, spot(a, a->rescale, first, 0), e->lanes, 0);
  lb_kval sum = lb_k_fma(b, before, by, combine_parts(a, first, lb_k_add));
  lb_k_store(b, spot(a, a->finish, first, 0), finish_of(a, sum), 0);
  lb_k_store_masked(b, at, sum, 0, tail(a, rows_left(a), first));
}

// Row by row a vector of each, from it what is one number a row for many rows
// at once: a row of its own would wait for each step from lane to lane.
static void softmax_tile(const attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_lower_all(e);
  lb_kval zero = lb_k_i64(b, 0), one = lb_k_i64(b, 1), rows = rows_left(a);
  lb_kval lanes = lb_k_i64(b, e->lanes);
  lb_kval r = lb_k_loop(b, zero, rows, one);
  lb_lower_row(e, lb_k_add(b, a->band, lb_k_add(b, a->row, r)));
  put_part(a, r, score_row(a, row_of_scores(a, r)));
  lb_k_end(b);
  top_of_rows(a, lb_k_loop(b, zero, rows, lanes));
  lb_k_end(b);
  r = lb_k_loop(b, zero, rows, one);
  lb_kval base = lb_k_load(b, spot(a, a->base, r, 0), 1, 0);
  put_part(a, r, exponentials_of_row(a, row_of_scores(a, r), base));
  lb_k_end(b);
  sum_of_rows(a, lb_k_loop(b, zero, rows, lanes));
  lb_k_end(b);
}

// -- the product with v ------------------------------------------------------

typedef struct columns {
  lb_kval col;
  lb_kval mask[MAX_VECTORS];  // LB_K_NONE: all lanes
} columns;

// The totals of the block are added to those before, of which there are none at
// the first one: then nothing is read, and nothing waits for what is not there.
static void load_before(const attention *a, const columns *c, lb_kval to,
                        lb_kval *out) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  for (uint32_t v = 0; v < a->vectors; v++)
    out[v] = lb_k_reg(b, lanes_of(a, 0));
  lb_k_if(b, lb_k_gt(b, a->key, zero));
  for (uint32_t v = 0; v < a->vectors; v++) {
    lb_kval p = spot(a, to, zero, v * e->lanes);
    lb_k_set(b, out[v],
             lb_k_load_masked(b, p, e->lanes, 0, c->mask[v], LB_K_NONE));
  }
  lb_k_end(b);
}

static lb_kval factor(const attention *a, lb_kval memory, lb_kval r) {
  lb_kbuilder *b = &a->e->b;
  return lb_k_splat(b, lb_k_load(b, spot(a, memory, r, 0), 1, 0), a->e->lanes);
}

static void store_totals(const attention *a, const columns *c) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval r = lb_k_loop(b, lb_k_i64(b, 0), rows_left(a), lb_k_i64(b, 1));
  lb_kval row = lb_k_add(b, a->band, lb_k_add(b, a->row, r));
  lb_kval at = lb_k_mul(b, row, e->out_stride[0].row);
  lb_kval to = lb_k_ptr(b, e->out[0], lb_k_add(b, at, c->col), 0);
  lb_kval from = lb_lower_mul(e, r, a->vectors * e->lanes);
  lb_kval zero = lb_k_i64(b, 0);
  lb_kval rescale = factor(a, a->rescale, r), by = factor(a, a->finish, r);
  lb_kval before[MAX_VECTORS];
  load_before(a, c, to, before);
  for (uint32_t v = 0; v < a->vectors; v++) {
    lb_kval p = spot(a, to, zero, v * e->lanes);
    lb_kval x =
        lb_k_load(b, spot(a, a->totals, from, v * e->lanes), e->lanes, 0);
    x = lb_k_mul(b, lb_k_fma(b, lb_k_get(b, before[v]), rescale, x), by);
    lb_k_store_masked(b, p, x, 0, c->mask[v]);
  }
  lb_k_end(b);
}

static void sum_totals(const attention *a, const columns *c) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[2].dtype);
  sums s = {.rows = a->rows, .vectors = a->vectors};
  lb_kval y[MAX_VECTORS];
  begin_sums(a, &s, lanes_of(a, 0));
  lb_kval first = lb_k_mul(b, a->key, e->in_stride[2].row);
  lb_kval row =
      lb_k_reg(b, lb_k_ptr(b, e->in[2], lb_k_add(b, first, c->col), 0));
  lb_kval l = lb_k_loop(b, lb_k_i64(b, 0), a->keys, lb_k_i64(b, 1));
  lb_kval from = lb_k_get(b, row), zero = lb_k_i64(b, 0);
  for (uint32_t v = 0; v < s.vectors; v++) {
    lb_kval p = lb_k_ptr(b, from, zero, v * e->lanes * size);
    lb_kval x = lb_k_load_masked(b, p, e->lanes, 0, c->mask[v], LB_K_NONE);
    y[v] = widen(a, x);
  }
  lb_k_set(b, row, lb_k_ptr(b, from, e->in_stride[2].row, 0));
  add_products(a, &s, a->scores, KEYS, l, y);
  lb_k_end(b);
  put_sums(a, &s, a->totals, lb_k_i64(b, 0), a->vectors * e->lanes);
}

static void total_columns(const attention *a, const columns *c) {
  lb_kbuilder *b = &a->e->b;
  lb_k_if(b, lb_k_lt(b, lb_k_i64(b, 0), a->keys));
  sum_totals(a, c);
  lb_k_else(b);
  put_zeros(a, a->totals, a->rows * a->vectors * a->e->lanes);
  lb_k_end(b);
  store_totals(a, c);
}

static void total_tile(const attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), cols = e->dims[LB_DIM_COLS];
  uint32_t width = a->vectors * e->lanes;
  bool whole = lb_facts_divides(e->facts, LB_DIM_COLS, (int)width);
  columns c = {.col = lb_k_loop(b, zero, cols, lb_k_i64(b, width))};
  lb_kval left = lb_k_sub(b, cols, c.col);
  for (uint32_t v = 0; v < a->vectors; v++)
    c.mask[v] = whole ? LB_K_NONE : tail(a, left, lb_k_i64(b, v * e->lanes));
  total_columns(a, &c);
  lb_k_end(b);
}

// -- all ---------------------------------------------------------------------

static void begin_band(attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, e->dims[LB_DIM_ROWS], a->band);
  a->band_rows = lb_k_min(b, left, lb_k_i64(b, BAND));
  lb_kval at =
      lb_k_loop(b, lb_k_i64(b, 0), a->band_rows, lb_k_i64(b, e->lanes));
  lb_k_store(b, spot(a, a->max, at, 0), lanes_of(a, -INFINITY), 0);
  lb_k_store(b, spot(a, a->sum, at, 0), lanes_of(a, 0), 0);
  lb_k_end(b);
}

static void emit_block(attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, e->dims[LB_DIM_LEN], a->key);
  a->keys = lb_k_min(b, left, lb_k_i64(b, KEYS));
  turn_keys(a);
  a->row = lb_k_loop(b, lb_k_i64(b, 0), a->band_rows, lb_k_i64(b, a->rows));
  copy_queries(a);
  sum_tiles(a);
  softmax_tile(a);
  total_tile(a);
  lb_k_end(b);
}

// Without a bound of k nothing is known of how much memory panels need.
static bool choose_tile(attention *a) {
  lb_lowering *e = a->e;
  int rows = e->lanes == 16 ? 8 : e->lanes == 8 ? 6 : 2;
  int k = lb_facts_get(e->facts, LB_ASSUME_EQUAL, LB_DIM_K, MAX_K + 1);
  k = lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_K, k);
  rows = lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  a->rows = (uint32_t)rows;
  a->vectors = e->lanes == 4 ? 4 : 2;
  a->k_room = (k / LB_PANEL_COLS + 1) * LB_PANEL_COLS;
  if (k && k % LB_PANEL_COLS == 0) a->k_room = k;
  if (k <= MAX_K && rows <= MAX_ROWS) return true;
  lb_kbuild_fail(&e->b, lb_error(LB_UNSUPPORTED,
                                 "lower: attention of tiles of %d rows and a k "
                                 "of at most %d; %d and %d are supported",
                                 rows, k, MAX_ROWS, MAX_K));
  return false;
}

static void take_memory(attention *a) {
  lb_kbuilder *b = &a->e->b;
  a->panels = lb_k_local(b, a->dtype, KEYS * a->k_room);
  a->queries = lb_k_local(b, a->dtype, a->rows * a->k_room);
  a->scores = lb_k_local(b, a->dtype, a->rows * KEYS);
  a->totals = lb_k_local(b, a->dtype, a->rows * a->vectors * a->e->lanes);
  a->lanes64 = lb_k_local(b, a->dtype, LB_SPEC_LANES);
  // With room for the lanes behind the last row.
  a->max = lb_k_local(b, a->dtype, BAND + MAX_LANES);
  a->sum = lb_k_local(b, a->dtype, BAND + MAX_LANES);
  a->base = lb_k_local(b, a->dtype, MAX_ROWS + MAX_LANES);
  a->rescale = lb_k_local(b, a->dtype, MAX_ROWS + MAX_LANES);
  a->finish = lb_k_local(b, a->dtype, MAX_ROWS + MAX_LANES);
  a->parts = lb_k_local(b, a->dtype, (MAX_ROWS + MAX_LANES) * a->e->lanes);
}

void lb_lower_attention(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  attention a = {.e = e, .score_node = e->spec->out[0].node};
  while (e->spec->nodes[a.acc_node].op != LB_S_ACC) a.acc_node++;
  a.dtype = e->spec->nodes[a.acc_node].dtype;
  if (!choose_tile(&a)) return;
  take_memory(&a);
  lb_kval zero = lb_k_i64(b, 0), rows = e->dims[LB_DIM_ROWS];
  a.band = lb_k_loop(b, zero, rows, lb_k_i64(b, BAND));
  begin_band(&a);
  // Once if there is no key: the output is 0.
  lb_kval len = lb_k_max(b, e->dims[LB_DIM_LEN], lb_k_i64(b, 1));
  a.key = lb_k_loop(b, zero, len, lb_k_i64(b, KEYS));
  emit_block(&a);
  lb_k_end(b);
  lb_k_end(b);
}
