// lower/transpose.c -- rows of a block become its columns, or one number each.
//
// To turn, first within quarters: four rows at a time are interleaved by one,
// then by two elements, so that a vector holds, in its quarters 0, 1, ...,
// columns j, j + 4, ... of those four rows. Then quarters of vectors are
// exchanged as if they were elements. Every shuffle is one that x86 has with an
// immediate.
#include "lower/lowering.h"

enum { QUARTER = 4, MAX_LANES = 16 };

// Tables are made for the most lanes; shuffles take as much as they have.

// Of each quarter, `size` elements of x and of y by turns: the low half of the
// quarter, or the high one.
static lb_kval interleave(lb_lowering *e, lb_kval x, lb_kval y, uint32_t size,
                          bool high) {
  uint8_t table[MAX_LANES];
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    uint32_t in = i % QUARTER, pair = in / size % 2;
    uint32_t from = in / (2 * size) * size + in % size + (high ? 2 : 0);
    table[i] = (uint8_t)(i - in + from + pair * e->lanes);
  }
  return lb_k_shuffle(&e->b, x, y, table, e->lanes);
}

static void turn_quarters(lb_lowering *e, lb_kval *r) {
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

// Quarters `first`, `first + step` of x, then of y. Of vectors with two
// quarters: one of each.
static lb_kval join(lb_lowering *e, lb_kval x, lb_kval y, uint32_t first,
                    uint32_t step) {
  uint8_t table[MAX_LANES];
  uint32_t half = e->lanes / 2;
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    uint32_t in = i % half, quarter = first + in / QUARTER * step;
    table[i] =
        (uint8_t)(quarter * QUARTER + in % QUARTER + (i < half ? 0 : e->lanes));
  }
  return lb_k_shuffle(&e->b, x, y, table, e->lanes);
}

// g[i]: four rows more than g[i - 1]; column j of each.
static void turn_groups(lb_lowering *e, lb_kval *g) {
  if (e->lanes == 8) {
    lb_kval x = g[0], y = g[1];
    g[0] = join(e, x, y, 0, 0);
    g[1] = join(e, x, y, 1, 0);
    return;
  }
  lb_kval low[2], high[2];
  for (uint32_t i = 0; i < 2; i++) {
    low[i] = join(e, g[2 * i], g[2 * i + 1], 0, 1);
    high[i] = join(e, g[2 * i], g[2 * i + 1], 2, 1);
  }
  g[0] = join(e, low[0], low[1], 0, 2);
  g[1] = join(e, low[0], low[1], 1, 2);
  g[2] = join(e, high[0], high[1], 0, 2);
  g[3] = join(e, high[0], high[1], 1, 2);
}

void lb_lower_turn(lb_lowering *e, lb_kval *rows) {
  uint32_t groups = e->lanes / QUARTER;
  lb_kval g[MAX_LANES / QUARTER];
  for (uint32_t i = 0; i < groups; i++) turn_quarters(e, rows + i * QUARTER);
  if (groups == 1) return;
  for (uint32_t j = 0; j < QUARTER; j++) {
    for (uint32_t i = 0; i < groups; i++) g[i] = rows[i * QUARTER + j];
    turn_groups(e, g);
    for (uint32_t i = 0; i < groups; i++) rows[i * QUARTER + j] = g[i];
  }
}

// Elements 0 and 2, or 1 and 3, of each quarter of x, then of y.
static lb_kval every_other(lb_lowering *e, lb_kval x, lb_kval y, bool odd) {
  uint8_t table[MAX_LANES];
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    uint32_t in = i % QUARTER, from = 2 * (in % 2) + odd;
    table[i] = (uint8_t)(i - in + from + (in < 2 ? 0 : e->lanes));
  }
  return lb_k_shuffle(&e->b, x, y, table, e->lanes);
}

// The low or the high halves of all parts of x and y, which have `size` lanes.
static lb_kval halves(lb_lowering *e, lb_kval x, lb_kval y, uint32_t size,
                      bool high) {
  if (size == 2) return every_other(e, x, y, high);
  if (size == QUARTER) return interleave(e, x, y, 2, high);
  if (e->lanes == 8) return join(e, x, y, high, 0);
  return size == 8 ? join(e, x, y, high, 2) : join(e, x, y, high ? 2 : 0, 1);
}

// Two vectors become one, whose parts are half as long: in the end each part is
// a lane. Quarters have been interleaved then, and are put in order.
lb_kval lb_lower_fold(lb_lowering *e, lb_kval *rows, uint32_t n,
                      lb_lower_combine *combine) {
  for (uint32_t size = e->lanes; size > 1; size /= 2, n = (n + 1) / 2)
    for (uint32_t i = 0; i < n; i += 2) {
      lb_kval x = rows[i], y = rows[i + 1 < n ? i + 1 : i];
      rows[i / 2] = combine(&e->b, halves(e, x, y, size, false),
                            halves(e, x, y, size, true));
    }
  uint8_t table[MAX_LANES];
  uint32_t quarters = e->lanes / QUARTER;
  for (uint32_t i = 0; i < e->lanes; i++)
    table[i] = (uint8_t)(i % quarters * QUARTER + i / quarters);
  return lb_k_shuffle(&e->b, rows[0], rows[0], table, e->lanes);
}
