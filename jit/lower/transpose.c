// lower/transpose.c -- Transposes a block of vectors, or reduces each vector to
// one lane.
//
// A transpose first works within the 128-bit lanes of x86 (four elements): four
// rows at a time are interleaved by one, then by two elements, so that the
// 128-bit lanes 0, 1, ... of a vector hold columns j, j + 4, ... of those four
// rows. Then 128-bit lanes are exchanged as if they were elements. Every
// shuffle is one that x86 has with an immediate operand.
#include "lower/lowering.h"

enum { LANE128 = 4, MAX_LANES = 16 };

// Shuffle tables are filled for the maximum number of lanes; shuffles read as
// many entries as they have lanes.

// Interleaves `size` elements of x and of y, from the low or the high half of
// each 128-bit lane.
static lb_kval interleave(lb_lowering *e, lb_kval x, lb_kval y, uint32_t size,
                          bool high) {
  uint8_t table[MAX_LANES];
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    uint32_t in = i % LANE128, pair = in / size % 2;
    uint32_t from = in / (2 * size) * size + in % size + (high ? 2 : 0);
    table[i] = (uint8_t)(i - in + from + pair * e->lanes);
  }
  return lb_k_shuffle(&e->b, x, y, table, e->lanes);
}

static void transpose_within_lanes(lb_lowering *e, lb_kval *r) {
  lb_kval low[2], high[2];
  for (uint32_t i = 0; i < 2; i++) {
    low[i] = interleave(e, r[2 * i], r[2 * i + 1], 1, false);
    high[i] = interleave(e, r[2 * i], r[2 * i + 1], 1, true);
  }
  r[0] = interleave(e, low[0], low[1], 2, false);
  r[1] = interleave(e, low[0], low[1], 2, true);
  r[2] = interleave(e, high[0], high[1], 2, false);
  r[3] = interleave(e, high[0], high[1], 2, true);
}

// 128-bit lanes `first` and `first + step` of x, then of y. Of vectors with two
// of them: one of each.
static lb_kval join_lanes(lb_lowering *e, lb_kval x, lb_kval y, uint32_t first,
                          uint32_t step) {
  uint8_t table[MAX_LANES];
  uint32_t half = e->lanes / 2;
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    uint32_t in = i % half, lane = first + in / LANE128 * step;
    table[i] =
        (uint8_t)(lane * LANE128 + in % LANE128 + (i < half ? 0 : e->lanes));
  }
  return lb_k_shuffle(&e->b, x, y, table, e->lanes);
}

// g[i] holds four rows more than g[i - 1]; column j of each.
static void transpose_lanes(lb_lowering *e, lb_kval *g) {
  if (e->lanes == 8) {
    lb_kval x = g[0], y = g[1];
    g[0] = join_lanes(e, x, y, 0, 0);
    g[1] = join_lanes(e, x, y, 1, 0);
    return;
  }
  lb_kval low[2], high[2];
  for (uint32_t i = 0; i < 2; i++) {
    low[i] = join_lanes(e, g[2 * i], g[2 * i + 1], 0, 1);
    high[i] = join_lanes(e, g[2 * i], g[2 * i + 1], 2, 1);
  }
  g[0] = join_lanes(e, low[0], low[1], 0, 2);
  g[1] = join_lanes(e, low[0], low[1], 1, 2);
  g[2] = join_lanes(e, high[0], high[1], 0, 2);
  g[3] = join_lanes(e, high[0], high[1], 1, 2);
}

void lb_lower_transpose(lb_lowering *e, lb_kval *rows) {
  uint32_t groups = e->lanes / LANE128;
  lb_kval g[MAX_LANES / LANE128];
  for (uint32_t i = 0; i < groups; i++)
    transpose_within_lanes(e, rows + i * LANE128);
  if (groups == 1) return;
  for (uint32_t j = 0; j < LANE128; j++) {
    for (uint32_t i = 0; i < groups; i++) g[i] = rows[i * LANE128 + j];
    transpose_lanes(e, g);
    for (uint32_t i = 0; i < groups; i++) rows[i * LANE128 + j] = g[i];
  }
}

// Elements 0 and 2, or 1 and 3, of each 128-bit lane of x, then of y.
static lb_kval even_or_odd(lb_lowering *e, lb_kval x, lb_kval y, bool odd) {
  uint8_t table[MAX_LANES];
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    uint32_t in = i % LANE128, from = 2 * (in % 2) + odd;
    table[i] = (uint8_t)(i - in + from + (in < 2 ? 0 : e->lanes));
  }
  return lb_k_shuffle(&e->b, x, y, table, e->lanes);
}

// The low or the high halves of all parts of x and y; a part has `size` lanes.
static lb_kval part_halves(lb_lowering *e, lb_kval x, lb_kval y, uint32_t size,
                           bool high) {
  if (size == 2) return even_or_odd(e, x, y, high);
  if (size == LANE128) return interleave(e, x, y, 2, high);
  if (e->lanes == 8) return join_lanes(e, x, y, high, 0);
  return size == 8 ? join_lanes(e, x, y, high, 2)
                   : join_lanes(e, x, y, high ? 2 : 0, 1);
}

// Each round merges two vectors into one whose parts are half as long, until
// each part is one lane. By then 128-bit lanes are interleaved, and the last
// shuffle puts them in order.
lb_kval lb_lower_hreduce(lb_lowering *e, lb_kval *rows, uint32_t n,
                         lb_lower_combine *combine) {
  for (uint32_t size = e->lanes; size > 1; size /= 2, n = (n + 1) / 2)
    for (uint32_t i = 0; i < n; i += 2) {
      lb_kval x = rows[i], y = rows[i + 1 < n ? i + 1 : i];
      rows[i / 2] = combine(&e->b, part_halves(e, x, y, size, false),
                            part_halves(e, x, y, size, true));
    }
  uint8_t table[MAX_LANES];
  uint32_t n_lanes = e->lanes / LANE128;
  for (uint32_t i = 0; i < e->lanes; i++)
    table[i] = (uint8_t)(i % n_lanes * LANE128 + i / n_lanes);
  return lb_k_shuffle(&e->b, rows[0], rows[0], table, e->lanes);
}
