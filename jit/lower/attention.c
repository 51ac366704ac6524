// lower/attention.c -- Fused attention: scores, softmax and the product with v,
// in one pass over the keys (online softmax).
//
// Rows are processed in *bands*, keys in the blocks of the spec, and rows of a
// band in *tiles*. Local memory of the kernel holds what is used again:
//   panels    keys of the block, transposed: [256/16][k][16], once per band and
//             block
//   queries   rows of the tile, contiguous
//   scores    of the tile, [rows][256]: dot products, then scores, then
//             exponentials
//   totals    of the tile: some columns of each row of the output
//   max, sum  of each row of the band, carried from block to block
//   base      is subtracted from the tile's scores
//   rescale, norm  factors of a tile's totals before and after a block
//   partials  of the tile, one vector per row, from which its maximum score or
//             its sum is reduced, for `lanes` rows at a time
// Between blocks, totals are in the output. Rows of a tile past the last row
// repeat the last row and are not stored.
//
// Per-row work is a loop, not unrolled code, to limit compile time.
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
  LINE = 64,        // bytes of a cache line
  ROWS_AHEAD = 16,  // prefetch distance in v
};

typedef struct lower_attention {
  lb_lowering *e;
  uint8_t acc_node, score_node;
  lb_dtype dtype;
  uint32_t rows, vectors;  // of a tile
  int64_t k_capacity;  // elements along k of a row of queries and of a panel
  lb_kval panels, queries, scores, totals, lanes64, max, sum, base, rescale,
      norm, partials;

  lb_kval band, band_rows;  // the current band: its first row, number of rows
  lb_kval key, keys;        // the current block: its first key, number of keys
  lb_kval row;  // the first row of the current tile, relative to the band
} lower_attention;

// -- small things ------------------------------------------------------------

static lb_kval lanes_of(const lower_attention *a, double x) {
  return lb_k_num(&a->e->b, lb_kt(a->dtype, a->e->lanes), x);
}

static lb_kval like(lb_kbuilder *b, lb_kval v, float x) {
  return lb_k_like(b, v, (double)x);
}

static lb_kval widen(const lower_attention *a, lb_kval x) {
  lb_kbuilder *b = &a->e->b;
  bool same = lb_k_type(b, x).dtype == a->dtype;
  return same ? x : lb_k_cast(b, x, a->dtype);
}

// x > y ? x : y, one instruction; max_of(NaN, y) is y.
static lb_kval max_of(lb_kbuilder *b, lb_kval x, lb_kval y) {
  return lb_k_select(b, lb_k_gt(b, x, y), x, y);
}

// The address of element `at` + n of local memory, n constant.
static lb_kval address_of(const lower_attention *a, lb_kval memory, lb_kval at,
                          int64_t n) {
  int64_t size = (int64_t)lb_dtype_size(a->dtype);
  return lb_k_ptr(&a->e->b, memory, at, n * size);
}

// Row r of the tile; the last row for those past it.
static lb_kval row_of_tile(const lower_attention *a, lb_kval r) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval row = lb_k_add(b, a->band, lb_k_add(b, a->row, r));
  return lb_k_min(b, row, lb_lower_add(e, e->dims[LB_DIM_ROWS], -1));
}

static lb_kval tail(const lower_attention *a, lb_kval count, lb_kval at) {
  lb_kbuilder *b = &a->e->b;
  return lb_k_tail(b, lb_k_sub(b, count, at), a->e->lanes);
}

// The mask of vectors that begin with element k of a row.
static lb_kval tail_of_k(const lower_attention *a, lb_kval k) {
  bool whole = lb_facts_divides(a->e->facts, LB_DIM_K, (int)a->e->lanes);
  return whole ? LB_K_NONE : tail(a, a->e->dims[LB_DIM_K], k);
}

// -- transposed keys ---------------------------------------------------------

// Loads elements k and on of `lanes` keys of the block, from key `first` on.
// Keys past the last repeat the last.
static void load_keys(const lower_attention *a, lb_kval first, lb_kval k,
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

// Prefetches `lanes` rows of k or v, from key `at` on. Tiles of one row read
// keys and values once, from memory: in the order of addresses, which that of
// transpose_keys is not, hardware prefetches too.
static void prefetch_rows(const lower_attention *a, uint32_t input, lb_kval at,
                          int cols) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  if (a->rows > 1) return;
  int64_t line = LINE / (int64_t)lb_dtype_size(e->spec->in[input].dtype);
  lb_kval zero = lb_k_i64(b, 0), one = lb_k_i64(b, 1);
  lb_kval i = lb_k_loop(b, zero, lb_k_i64(b, e->lanes), one);
  lb_kval row = lb_k_mul(b, lb_k_add(b, at, i), e->in_stride[input].row);
  lb_kval col = lb_k_loop(b, zero, e->dims[cols], lb_k_i64(b, line));
  lb_k_prefetch(b, lb_k_ptr(b, e->in[input], lb_k_add(b, row, col), 0), 0);
  lb_k_end(b);
  lb_k_end(b);
}

static void transpose_keys(const lower_attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[MAX_LANES], zero = lb_k_i64(b, 0), step = lb_k_i64(b, e->lanes);
  lb_kval first = lb_k_loop(b, zero, a->keys, step);
  lb_kval in_panel = lb_k_rem(b, first, lb_k_i64(b, LB_PANEL_COLS));
  lb_kval panel = lb_lower_mul(e, lb_k_sub(b, first, in_panel), a->k_capacity);
  lb_kval next = lb_k_add(b, a->key, lb_lower_add(e, first, e->lanes));
  prefetch_rows(a, 1, next, LB_DIM_K);
  lb_kval k = lb_k_loop(b, zero, e->dims[LB_DIM_K], step);
  lb_kval at = lb_k_add(b, lb_k_add(b, panel, in_panel),
                        lb_lower_mul(e, k, LB_PANEL_COLS));
  load_keys(a, first, k, x);
  lb_lower_transpose(e, x);
  for (uint32_t i = 0; i < e->lanes; i++)
    lb_k_store(b, address_of(a, a->panels, at, i * LB_PANEL_COLS), x[i], 0);
  lb_k_end(b);
  lb_k_end(b);
}

// -- dot products of a tile --------------------------------------------------

// Local memory has space for whole vectors; elements past k are not used.
static void copy_queries(const lower_attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), rows = lb_k_i64(b, a->rows);
  lb_kval r = lb_k_loop(b, zero, rows, lb_k_i64(b, 1));
  lb_kval at = lb_k_mul(b, row_of_tile(a, r), e->in_stride[0].row);
  lb_kval from = lb_k_ptr(b, e->in[0], at, 0);
  lb_kval to = lb_k_ptr(b, a->queries, lb_lower_mul(e, r, a->k_capacity), 0);
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

static void begin_sums(const lower_attention *a, sums *s, lb_kval first) {
  lb_kbuilder *b = &a->e->b;
  for (uint32_t r = 0; r < s->rows; r++)
    for (uint32_t v = 0; v < s->vectors; v++) s->acc[r][v] = lb_k_reg(b, first);
}

// Adds x[r] * y for each row, where x[r] is element `at` of rows that are
// `stride` apart.
static void add_products(const lower_attention *a, sums *s, lb_kval memory,
                         int64_t stride, lb_kval at, const lb_kval *y) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < s->rows; r++) {
    lb_kval x = lb_k_load(b, address_of(a, memory, at, r * stride), 1, 0);
    x = lb_k_splat(b, x, e->lanes);
    for (uint32_t v = 0; v < s->vectors; v++) {
      lb_kval acc = lb_k_get(b, s->acc[r][v]);
      lb_k_set(b, s->acc[r][v], lb_k_fma(b, x, y[v], acc));
    }
  }
}

static void store_sums(const lower_attention *a, const sums *s, lb_kval memory,
                       lb_kval at, int64_t stride) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < s->rows; r++)
    for (uint32_t v = 0; v < s->vectors; v++)
      lb_k_store(b, address_of(a, memory, at, r * stride + v * e->lanes),
                 lb_k_get(b, s->acc[r][v]), 0);
}

// The same for empty sums.
static void store_zeros(const lower_attention *a, lb_kval memory, int64_t n) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval at =
      lb_k_loop(b, lb_k_i64(b, 0), lb_k_i64(b, n), lb_k_i64(b, e->lanes));
  lb_k_store(b, address_of(a, memory, at, 0), lanes_of(a, 0), 0);
  lb_k_end(b);
}

// Dot products of `vectors` vectors of keys from key `col` of the block on,
// where a panel begins.
static void sum_tile(const lower_attention *a, lb_kval col, uint32_t vectors) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  sums s = {.rows = a->rows, .vectors = vectors};
  lb_kval y[MAX_VECTORS];
  begin_sums(a, &s, lanes_of(a, -0.0));
  lb_kval row = lb_k_reg(
      b, lb_k_ptr(b, a->panels, lb_lower_mul(e, col, a->k_capacity), 0));
  lb_kval k = lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_K], lb_k_i64(b, 1));
  lb_kval from = lb_k_get(b, row), zero = lb_k_i64(b, 0);
  for (uint32_t v = 0; v < vectors; v++) {
    uint32_t c = v * e->lanes;
    int64_t at = c / LB_PANEL_COLS * LB_PANEL_COLS * a->k_capacity;
    lb_kval p = address_of(a, from, zero, at + c % LB_PANEL_COLS);
    y[v] = lb_k_load(b, p, e->lanes, 0);
  }
  lb_k_set(b, row, lb_k_ptr(b, from, lb_k_i64(b, LB_PANEL_COLS), 0));
  add_products(a, &s, a->queries, a->k_capacity, k, y);
  lb_k_end(b);
  store_sums(a, &s, a->scores, col, KEYS);
}

// Tiles of the full width; the remainder is computed by panels.
static void sum_tiles(const lower_attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  int64_t width = a->vectors * e->lanes;
  lb_kval up = lb_lower_add(e, a->keys, LB_PANEL_COLS - 1);
  lb_kval end = lb_lower_round_down(e, up, width), zero = lb_k_i64(b, 0);
  lb_k_if(b, lb_k_lt(b, zero, e->dims[LB_DIM_K]));
  sum_tile(a, lb_k_loop(b, zero, end, lb_k_i64(b, width)), a->vectors);
  lb_k_end(b);
  if (width != LB_PANEL_COLS) {
    lb_kval step = lb_k_i64(b, LB_PANEL_COLS);
    sum_tile(a, lb_k_loop(b, end, a->keys, step), LB_PANEL_COLS / e->lanes);
    lb_k_end(b);
  }
  lb_k_else(b);
  store_zeros(a, a->scores, a->rows * KEYS);
  lb_k_end(b);
}

// -- softmax -----------------------------------------------------------------

enum { UNROLL = 2 };  // vectors

// Replaces a vector of dot products by scores.
static lb_kval compute_scores(const lower_attention *a, lb_kval at, lb_kval col,
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

// Computes all scores of a row and returns the maximum of each lane. Lanes past
// the last key are -inf.
static lb_kval score_row(const lower_attention *a, lb_kval row) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  int64_t width = UNROLL * e->lanes;
  lb_kval max[UNROLL], end = lb_lower_round_down(e, a->keys, width);
  for (int i = 0; i < UNROLL; i++) max[i] = lb_k_reg(b, lanes_of(a, -INFINITY));
  lb_kval col = lb_k_loop(b, lb_k_i64(b, 0), end, lb_k_i64(b, width));
  for (uint32_t i = 0; i < UNROLL; i++) {
    lb_kval x = compute_scores(a, address_of(a, row, col, i * e->lanes),
                               lb_lower_add(e, col, i * e->lanes), LB_K_NONE);
    lb_k_set(b, max[i], max_of(b, x, lb_k_get(b, max[i])));
  }
  lb_k_end(b);
  col = lb_k_loop(b, end, a->keys, lb_k_i64(b, e->lanes));
  lb_kval x =
      compute_scores(a, address_of(a, row, col, 0), col, tail(a, a->keys, col));
  lb_k_set(b, max[0], max_of(b, x, lb_k_get(b, max[0])));
  lb_k_end(b);
  return max_of(b, lb_k_get(b, max[0]), lb_k_get(b, max[1]));
}

// exp as spec/exp.h defines it, of a scalar or vector.
static lb_kval exponential(const lower_attention *a, lb_kval x) {
  lb_kbuilder *b = &a->e->b;
  static const float c[] = LB_EXP_POLY;
  if (a->dtype != LB_F32) return lb_k_exp(b, x);
  lb_kval min_arg = like(b, x, LB_EXP_MIN), big = like(b, x, LB_EXP_ROUND);
  lb_kval under = lb_k_lt(b, x, min_arg);
  x = lb_k_select(b, under, min_arg, x);
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

// Replaces a vector of scores by exp(score - base) and adds it to its lanes of
// the sum.
static void exponentials(const lower_attention *a, lb_kval at, lb_kval col,
                         lb_kval base) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval x = lb_k_sub(b, lb_k_load(b, at, e->lanes, 0), base);
  x = exponential(a, x);
  lb_k_store(b, at, x, 0);
  lb_kval lane = lb_k_and(b, col, lb_k_i64(b, LB_SPEC_LANES - 1));
  lb_kval to = address_of(a, a->lanes64, lane, 0);
  lb_k_store(b, to, lb_k_add(b, lb_k_load(b, to, e->lanes, 0), x), 0);
}

// Reduces the 64 lanes to one vector, in the order that spec.h defines.
static lb_kval sum_lanes(const lower_attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[LB_SPEC_LANES / 4], zero = lb_k_i64(b, 0);
  uint32_t n = LB_SPEC_LANES / e->lanes;
  for (uint32_t v = 0; v < n; v++)
    x[v] = lb_k_load(b, address_of(a, a->lanes64, zero, v * e->lanes), e->lanes,
                     0);
  for (uint32_t half = n / 2; half; half /= 2)
    for (uint32_t v = 0; v < half; v++) x[v] = lb_k_add(b, x[v], x[v + half]);
  return x[0];
}

// Exponentials are never negative, so lanes may start with 0 instead of their
// first element.
static lb_kval exponentials_of_row(const lower_attention *a, lb_kval row,
                                   lb_kval base) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  int64_t width = UNROLL * e->lanes;
  lb_kval zero = lb_k_i64(b, 0), end = lb_lower_round_down(e, a->keys, width);
  for (uint32_t v = 0; v < LB_SPEC_LANES; v += e->lanes)
    lb_k_store(b, address_of(a, a->lanes64, zero, v), lanes_of(a, 0), 0);
  base = lb_k_splat(b, base, e->lanes);
  lb_kval col = lb_k_loop(b, zero, end, lb_k_i64(b, width));
  for (uint32_t i = 0; i < UNROLL; i++)
    exponentials(a, address_of(a, row, col, i * e->lanes),
                 lb_lower_add(e, col, i * e->lanes), base);
  lb_k_end(b);
  col = lb_k_loop(b, end, a->keys, lb_k_i64(b, e->lanes));
  exponentials(a, address_of(a, row, col, 0), col, base);
  lb_k_end(b);
  return sum_lanes(a);
}

// exp(max - base) of the previous blocks; 0 in the first block.
static lb_kval rescale_of(const lower_attention *a, lb_kval max, lb_kval base) {
  lb_kbuilder *b = &a->e->b;
  lb_kval c = lb_k_reg(b, lanes_of(a, 0));
  lb_k_if(b, lb_k_gt(b, a->key, lb_k_i64(b, 0)));
  lb_k_set(b, c, exponential(a, lb_k_sub(b, max, base)));
  lb_k_end(b);
  return lb_k_get(b, c);
}

// The factor of the totals after the last block: 1 / sum.
static lb_kval norm_of(const lower_attention *a, lb_kval sum) {
  lb_kbuilder *b = &a->e->b;
  lb_kval f = lb_k_reg(b, lanes_of(a, 1)), end = lb_k_add(b, a->key, a->keys);
  lb_k_if(b, lb_k_ge(b, end, a->e->dims[LB_DIM_KEYS]));
  lb_kval is_empty = lb_k_eq(b, sum, lanes_of(a, 0));
  lb_kval by = lb_k_select(b, is_empty, lanes_of(a, 1), sum);
  lb_k_set(b, f, lb_k_div(b, lanes_of(a, 1), by));
  lb_k_end(b);
  return lb_k_get(b, f);
}

static lb_kval row_of_scores(const lower_attention *a, lb_kval r) {
  lb_lowering *e = a->e;
  return lb_k_ptr(&e->b, a->scores, lb_lower_mul(e, r, KEYS), 0);
}

static lb_kval rows_left(const lower_attention *a) {
  lb_kbuilder *b = &a->e->b;
  lb_kval left = lb_k_sub(b, a->band_rows, a->row);
  return lb_k_min(b, left, lb_k_i64(b, a->rows));
}

static void store_partial(const lower_attention *a, lb_kval r, lb_kval x) {
  lb_lowering *e = a->e;
  lb_k_store(&e->b, address_of(a, a->partials, lb_lower_mul(e, r, e->lanes), 0),
             x, 0);
}

// Reduces the partials of up to `lanes` rows from `first` on. Lane i is row
// first + i.
static lb_kval combine_partials(const lower_attention *a, lb_kval first,
                                lb_lower_combine *combine) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval x[MAX_LANES], at = lb_lower_mul(e, first, e->lanes);
  uint32_t n = a->rows < e->lanes ? a->rows : e->lanes;
  for (uint32_t i = 0; i < n; i++)
    x[i] =
        lb_k_load(b, address_of(a, a->partials, at, i * e->lanes), e->lanes, 0);
  return lb_lower_hreduce(e, x, n, combine);
}

// Updates the maximum of the rows from `first` on with this block, and computes
// their base and rescale factors.
static void max_of_rows(const lower_attention *a, lb_kval first) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval at = address_of(a, a->max, lb_k_add(b, a->row, first), 0);
  lb_kval before = lb_k_load(b, at, e->lanes, 0);
  lb_kval max = max_of(b, combine_partials(a, first, max_of), before);
  lb_kval none = lb_k_eq(b, max, lanes_of(a, -INFINITY));
  lb_kval base = lb_k_select(b, none, lanes_of(a, 0), max);
  lb_k_store(b, address_of(a, a->base, first, 0), base, 0);
  lb_k_store(b, address_of(a, a->rescale, first, 0),
             rescale_of(a, before, base), 0);
  lb_k_store_masked(b, at, max, 0, tail(a, rows_left(a), first));
}

static void sum_of_rows(const lower_attention *a, lb_kval first) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval at = address_of(a, a->sum, lb_k_add(b, a->row, first), 0);
  lb_kval before = lb_k_load(b, at, e->lanes, 0);
  lb_kval by = lb_k_load(b, address_of(a, a->rescale, first, 0), e->lanes, 0);
  lb_kval sum = lb_k_fma(b, before, by, combine_partials(a, first, lb_k_add));
  lb_k_store(b, address_of(a, a->norm, first, 0), norm_of(a, sum), 0);
  lb_k_store_masked(b, at, sum, 0, tail(a, rows_left(a), first));
}

// Each row is first reduced to one vector; these are then reduced for several
// rows at once, because a horizontal reduction per row would be limited by
// latency.
static void softmax_tile(const lower_attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_lower_uniforms(e);
  lb_kval zero = lb_k_i64(b, 0), one = lb_k_i64(b, 1), rows = rows_left(a);
  lb_kval lanes = lb_k_i64(b, e->lanes);
  lb_kval r = lb_k_loop(b, zero, rows, one);
  lb_lower_row(e, lb_k_add(b, a->band, lb_k_add(b, a->row, r)));
  store_partial(a, r, score_row(a, row_of_scores(a, r)));
  lb_k_end(b);
  max_of_rows(a, lb_k_loop(b, zero, rows, lanes));
  lb_k_end(b);
  r = lb_k_loop(b, zero, rows, one);
  lb_kval base = lb_k_load(b, address_of(a, a->base, r, 0), 1, 0);
  store_partial(a, r, exponentials_of_row(a, row_of_scores(a, r), base));
  lb_k_end(b);
  sum_of_rows(a, lb_k_loop(b, zero, rows, lanes));
  lb_k_end(b);
}

// -- product with v ----------------------------------------------------------

typedef struct columns {
  lb_kval col;
  lb_kval mask[MAX_VECTORS];  // LB_K_NONE: all lanes
} columns;

// Loads the totals of the previous blocks. The first block has none: nothing is
// read then, so nothing waits for memory that is not cached.
static void load_before(const lower_attention *a, const columns *c, lb_kval to,
                        lb_kval *out) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  for (uint32_t v = 0; v < a->vectors; v++)
    out[v] = lb_k_reg(b, lanes_of(a, 0));
  lb_k_if(b, lb_k_gt(b, a->key, zero));
  for (uint32_t v = 0; v < a->vectors; v++) {
    lb_kval p = address_of(a, to, zero, v * e->lanes);
    lb_k_set(b, out[v],
             lb_k_load_masked(b, p, e->lanes, 0, c->mask[v], LB_K_NONE));
  }
  lb_k_end(b);
}

static lb_kval load_scale(const lower_attention *a, lb_kval memory, lb_kval r) {
  lb_kbuilder *b = &a->e->b;
  return lb_k_splat(b, lb_k_load(b, address_of(a, memory, r, 0), 1, 0),
                    a->e->lanes);
}

static void store_totals(const lower_attention *a, const columns *c) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval r = lb_k_loop(b, lb_k_i64(b, 0), rows_left(a), lb_k_i64(b, 1));
  lb_kval row = lb_k_add(b, a->band, lb_k_add(b, a->row, r));
  lb_kval at = lb_k_mul(b, row, e->out_stride[0].row);
  lb_kval to = lb_k_ptr(b, e->out[0], lb_k_add(b, at, c->col), 0);
  lb_kval from = lb_lower_mul(e, r, a->vectors * e->lanes);
  lb_kval zero = lb_k_i64(b, 0);
  lb_kval rescale = load_scale(a, a->rescale, r),
          by = load_scale(a, a->norm, r);
  lb_kval before[MAX_VECTORS];
  load_before(a, c, to, before);
  for (uint32_t v = 0; v < a->vectors; v++) {
    lb_kval p = address_of(a, to, zero, v * e->lanes);
    lb_kval x =
        lb_k_load(b, address_of(a, a->totals, from, v * e->lanes), e->lanes, 0);
    x = lb_k_mul(b, lb_k_fma(b, lb_k_get(b, before[v]), rescale, x), by);
    lb_k_store_masked(b, p, x, 0, c->mask[v]);
  }
  lb_k_end(b);
}

static void sum_totals(const lower_attention *a, const columns *c) {
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
  lb_kval ahead = lb_lower_mul(e, e->in_stride[2].row, ROWS_AHEAD);
  for (uint32_t v = 0; v < s.vectors; v++) {
    lb_kval p = lb_k_ptr(b, from, zero, v * e->lanes * size);
    lb_kval x = lb_k_load_masked(b, p, e->lanes, 0, c->mask[v], LB_K_NONE);
    y[v] = widen(a, x);
    bool in_new_line = v * e->lanes * size % LINE == 0;
    if (a->rows == 1 && in_new_line)
      lb_k_prefetch(b, lb_k_ptr(b, p, ahead, 0), 0);
  }
  lb_k_set(b, row, lb_k_ptr(b, from, e->in_stride[2].row, 0));
  add_products(a, &s, a->scores, KEYS, l, y);
  lb_k_end(b);
  store_sums(a, &s, a->totals, lb_k_i64(b, 0), a->vectors * e->lanes);
}

static void total_columns(const lower_attention *a, const columns *c) {
  lb_kbuilder *b = &a->e->b;
  lb_k_if(b, lb_k_lt(b, lb_k_i64(b, 0), a->keys));
  sum_totals(a, c);
  lb_k_else(b);
  store_zeros(a, a->totals, a->rows * a->vectors * a->e->lanes);
  lb_k_end(b);
  store_totals(a, c);
}

static void total_tile(const lower_attention *a) {
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

// -- kernel ------------------------------------------------------------------

static void begin_band(lower_attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, e->dims[LB_DIM_ROWS], a->band);
  a->band_rows = lb_k_min(b, left, lb_k_i64(b, BAND));
  lb_kval at =
      lb_k_loop(b, lb_k_i64(b, 0), a->band_rows, lb_k_i64(b, e->lanes));
  lb_k_store(b, address_of(a, a->max, at, 0), lanes_of(a, -INFINITY), 0);
  lb_k_store(b, address_of(a, a->sum, at, 0), lanes_of(a, 0), 0);
  lb_k_end(b);
}

static void emit_block(lower_attention *a) {
  lb_lowering *e = a->e;
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, e->dims[LB_DIM_KEYS], a->key);
  a->keys = lb_k_min(b, left, lb_k_i64(b, KEYS));
  prefetch_rows(a, 2, a->key, LB_DIM_COLS);
  transpose_keys(a);
  a->row = lb_k_loop(b, lb_k_i64(b, 0), a->band_rows, lb_k_i64(b, a->rows));
  copy_queries(a);
  sum_tiles(a);
  softmax_tile(a);
  total_tile(a);
  lb_k_end(b);
}

// The size of the panels in local memory is known only with an upper bound of
// k.
static bool choose_tile(lower_attention *a) {
  lb_lowering *e = a->e;
  int rows = e->lanes == 16 ? 8 : e->lanes == 8 ? 6 : 2;
  int k = lb_facts_get(e->facts, LB_ASSUME_EQUAL, LB_DIM_K, MAX_K + 1);
  k = lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_K, k);
  rows = lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  a->rows = (uint32_t)rows;
  a->vectors = e->lanes == 4 || rows == 1 ? 4 : 2;
  a->k_capacity = (k / LB_PANEL_COLS + 1) * LB_PANEL_COLS;
  if (k && k % LB_PANEL_COLS == 0) a->k_capacity = k;
  if (k <= MAX_K && rows <= MAX_ROWS) return true;
  lb_kbuild_fail(&e->b,
                 lb_error(LB_UNSUPPORTED,
                          "lower: attention tiles of %d rows with k up to "
                          "%d are not supported: the limits are %d rows "
                          "and k %d",
                          rows, k, MAX_ROWS, MAX_K));
  return false;
}

static void allocate_locals(lower_attention *a) {
  lb_kbuilder *b = &a->e->b;
  a->panels = lb_k_local(b, a->dtype, KEYS * a->k_capacity);
  a->queries = lb_k_local(b, a->dtype, a->rows * a->k_capacity);
  a->scores = lb_k_local(b, a->dtype, a->rows * KEYS);
  a->totals = lb_k_local(b, a->dtype, a->rows * a->vectors * a->e->lanes);
  a->lanes64 = lb_k_local(b, a->dtype, LB_SPEC_LANES);
  // With space for the lanes past the last row.
  a->max = lb_k_local(b, a->dtype, BAND + MAX_LANES);
  a->sum = lb_k_local(b, a->dtype, BAND + MAX_LANES);
  a->base = lb_k_local(b, a->dtype, MAX_ROWS + MAX_LANES);
  a->rescale = lb_k_local(b, a->dtype, MAX_ROWS + MAX_LANES);
  a->norm = lb_k_local(b, a->dtype, MAX_ROWS + MAX_LANES);
  a->partials = lb_k_local(b, a->dtype, (MAX_ROWS + MAX_LANES) * a->e->lanes);
}

void lb_lower_attention(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lower_attention a = {.e = e, .score_node = e->spec->out[0].node};
  while (e->spec->nodes[a.acc_node].op != LB_S_ACC) a.acc_node++;
  a.dtype = e->spec->nodes[a.acc_node].dtype;
  if (!choose_tile(&a)) return;
  allocate_locals(&a);
  lb_kval zero = lb_k_i64(b, 0), rows = e->dims[LB_DIM_ROWS];
  a.band = lb_k_loop(b, zero, rows, lb_k_i64(b, BAND));
  begin_band(&a);
  // One iteration even if there is no key: the output is 0.
  lb_kval n_keys = lb_k_max(b, e->dims[LB_DIM_KEYS], lb_k_i64(b, 1));
  a.key = lb_k_loop(b, zero, n_keys, lb_k_i64(b, KEYS));
  emit_block(&a);
  lb_k_end(b);
  lb_k_end(b);
}
