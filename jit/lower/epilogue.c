// lower/epilogue.c -- what is made of a tile's sums.
//
// Short epilogues follow the sums, which are in registers still; each sum has a
// copy of the code. Long ones run in a loop over a tile in memory.
#include "lower/tile.h"

enum {
  MAX_INLINE = 4,   // nodes of an epilogue that each sum has a copy of
  MAX_AT_ONCE = 3,  // vectors: four take longer than one by one
};

// More than one would take the registers of sums.
uint8_t lb_finish_bias(const lb_lowering *e) {
  uint8_t found = LB_SPEC_NO_NODE;
  for (uint8_t i = 0; i < e->spec->n_nodes; i++) {
    const lb_snode *n = &e->spec->nodes[i];
    if (n->op != LB_S_INPUT || e->spec->in[n->arg].layout != LB_LAYOUT_PER_COL)
      continue;
    if (found != LB_SPEC_NO_NODE) return LB_SPEC_NO_NODE;
    found = i;
  }
  return found;
}

bool lb_finish_is_long(const lb_lowering *e) {
  int cost = 0;
  for (int i = 0; i < e->spec->n_nodes; i++) {
    const lb_snode *n = &e->spec->nodes[i];
    if (e->scope[i] != LB_VARYING || n->n_src == 0) continue;
    cost += lb_lower_is_costly(n) ? MAX_INLINE + 1 : 1;
  }
  return cost > MAX_INLINE;
}

// Sums of even k plus those of odd k: neighbours in x, then in y.
static lb_kval add_neighbours(lb_lowering *e, lb_kval x, lb_kval y) {
  lb_kval half[2];
  for (uint8_t odd = 0; odd < 2; odd++) {
    uint8_t table[LB_TILE_MAX_LANES];
    for (uint32_t i = 0; i < LB_TILE_MAX_LANES; i++)
      table[i] = (uint8_t)(2 * i + odd);
    half[odd] = lb_k_shuffle(&e->b, x, y, table, e->lanes);
  }
  return lb_k_add(&e->b, half[0], half[1]);
}

// The sums of vector v of the columns of row r.
static lb_kval sum_of(const lb_tile *t, uint32_t r, uint32_t v) {
  lb_kbuilder *b = &t->m->e->b;
  if (!t->m->pairs) return lb_k_get(b, t->acc[r][v]);
  uint32_t first = 2 * v, second = first + 1 < t->vectors ? first + 1 : first;
  return add_neighbours(t->m->e, lb_k_get(b, t->acc[r][first]),
                        lb_k_get(b, t->acc[r][second]));
}

bool lb_finish_has_function(const lb_lowering *e) {
  for (int i = 0; i < e->spec->n_nodes; i++)
    if (e->scope[i] == LB_VARYING && lb_lower_is_costly(&e->spec->nodes[i]))
      return true;
  return false;
}

// What is made of `acc` at the present place.
static void finish_vector(const lb_tile *t, lb_kval acc) {
  lb_lowering *e = t->m->e;
  lb_stores s;
  e->lanes_of[t->m->acc_node] = acc;
  lb_lower_values(e, &s);
  lb_lower_stores(e, &s);
}

static void finish_row(const lb_tile *t, uint32_t r) {
  lb_lowering *e = t->m->e;
  uint32_t pointer = r / LB_ROWS_A_POINTER, first = pointer * LB_ROWS_A_POINTER;
  lb_kval row = lb_lower_add(e, t->at[pointer], r - first);
  bool again = t->is_short && first && t->m->in_place;
  if (again)
    lb_k_if(&e->b, lb_k_le(&e->b, lb_lower_add(e, t->row, first), row));
  lb_lower_row(e, row);
  for (uint32_t v = 0; v < t->finished; v++) {
    lb_lower_at(e, lb_lower_add(e, t->col, v * e->lanes), t->mask[v]);
    if (t->m->bias != LB_SPEC_NO_NODE) e->lanes_of[t->m->bias] = t->bias[v];
    finish_vector(t, sum_of(t, r, v));
  }
  if (again) lb_k_end(&e->b);
}

static void read_bias(lb_tile *t) {
  lb_lowering *e = t->m->e;
  for (uint32_t v = 0; t->m->bias != LB_SPEC_NO_NODE && v < t->finished; v++) {
    lb_lower_at(e, lb_lower_add(e, t->col, v * e->lanes), t->mask[v]);
    t->bias[v] = lb_lower_value(e, t->m->bias);
  }
}

static void finish_inline(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_lower_all(e);  // here: no register is held while summing
  if (lb_matmul_has_panels(t->m)) lb_tile_make_masks(t);
  read_bias(t);
  for (uint32_t r = 0; r < t->rows; r++) finish_row(t, r);
}

// The place in memory of the rows that belong to a pointer.
static lb_kval place_of(const lb_tile *t, uint32_t pointer) {
  lb_lowering *e = t->m->e;
  lb_kval row = lb_k_i64(&e->b, pointer * LB_ROWS_A_POINTER);
  if (t->is_short) row = lb_k_sub(&e->b, t->at[pointer], t->row);
  row = lb_lower_mul(e, row, t->finished * e->lanes);
  return lb_k_ptr(&e->b, t->m->scratch, row, 0);
}

static void spill_sums(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval place = LB_K_NONE;
  for (uint32_t r = 0; r < t->rows; r++) {
    uint32_t in = r % LB_ROWS_A_POINTER * t->finished;
    if (in == 0) place = place_of(t, r / LB_ROWS_A_POINTER);
    for (uint32_t v = 0; v < t->finished; v++)
      lb_k_store(b, lb_k_ptr(b, place, lb_k_i64(b, (in + v) * e->lanes), 0),
                 sum_of(t, r, v), 0);
  }
}

void lb_finish_put_zeros(const lb_tile *t, lb_kval rows) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zeros = lb_k_num(b, lb_kt(t->m->acc_dtype, e->lanes), 0);
  lb_kval n = lb_lower_mul(e, rows, t->finished * e->lanes);
  lb_kval at = lb_k_loop(b, lb_k_i64(b, 0), n, lb_k_i64(b, e->lanes));
  lb_k_store(b, lb_k_ptr(b, t->m->scratch, at, 0), zeros, 0);
  lb_k_end(b);
}

void lb_finish_zeros(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_tile t = {.m = m, .masked = true};
  lb_kval zero = lb_k_i64(b, 0), cols = e->dims[LB_DIM_COLS];
  lb_lower_all(e);
  lb_lower_row(e, lb_k_loop(b, zero, e->dims[LB_DIM_ROWS], lb_k_i64(b, 1)));
  lb_kval col = lb_k_loop(b, zero, cols, lb_k_i64(b, e->lanes));
  lb_lower_at(e, col, lb_tile_tail(&t, col));
  finish_vector(&t, lb_k_num(b, lb_kt(m->acc_dtype, e->lanes), 0));
  lb_k_end(b);
  lb_k_end(b);
}

// The vectors of a row, one by one in a loop: constants of functions, and what
// they hold, take all registers.
static void finish_in_turn(const lb_tile *t, lb_kval place) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval width = lb_k_i64(b, t->finished * e->lanes);
  lb_kval c = lb_k_loop(b, lb_k_i64(b, 0), width, lb_k_i64(b, e->lanes));
  lb_lower_at(e, lb_k_add(b, t->col, c), lb_tile_mask(t, c));
  lb_kval acc = lb_k_load(b, lb_k_get(b, place), e->lanes, 0);
  lb_lower_advance(e, place, lb_k_i64(b, e->lanes));
  finish_vector(t, acc);
  lb_k_end(b);
}

// The same all at once, where no function is among what is made of them.
static void finish_at_once(const lb_tile *t, lb_kval place) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval at = lb_k_get(b, place);
  for (uint32_t v = 0; v < t->finished; v++) {
    lb_kval by = lb_k_i64(b, v * e->lanes);
    lb_lower_at(e, lb_k_add(b, t->col, by), t->mask[v]);
    if (t->m->bias != LB_SPEC_NO_NODE) e->lanes_of[t->m->bias] = t->bias[v];
    finish_vector(t, lb_k_load(b, lb_k_ptr(b, at, by, 0), e->lanes, 0));
  }
  lb_lower_advance(e, place, lb_k_i64(b, t->finished * e->lanes));
}

static bool goes_in_turn(const lb_tile *t) {
  return lb_finish_has_function(t->m->e) || t->finished > MAX_AT_ONCE;
}

// Masks of short epilogues are made behind each tile's sums, whose registers
// they would take.
void lb_finish_begin_column(lb_tile *t) {
  if (t->m->scratch != LB_K_NONE && !goes_in_turn(t)) lb_tile_make_masks(t);
}

// Long epilogues run in a loop over `rows` rows that were put in memory: code
// for all sums at once, and for each height of tile, would be slow to compile.
// Turns of the loop overlap.
void lb_finish_rows(const lb_tile *shape, lb_kval rows) {
  lb_tile t = *shape;
  lb_lowering *e = t.m->e;
  lb_kbuilder *b = &e->b;
  bool in_turn = goes_in_turn(&t);
  lb_lower_all(e);
  if (!in_turn) read_bias(&t);
  lb_kval place = lb_k_reg(b, t.m->scratch);
  lb_kval r = lb_k_loop(b, lb_k_i64(b, 0), rows, lb_k_i64(b, 1));
  lb_lower_row(e, lb_k_add(b, t.row, r));
  if (in_turn)
    finish_in_turn(&t, place);
  else
    finish_at_once(&t, place);
  lb_k_end(b);
}
void lb_finish_tile(lb_tile *t) {
  if (t->m->scratch != LB_K_NONE)
    spill_sums(t);
  else
    finish_inline(t);
}
