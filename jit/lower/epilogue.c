// lower/epilogue.c -- Computes outputs from a tile's accumulators.
//
// Short epilogues follow the accumulation while its results are still in
// registers; each accumulator has its own copy of the code. Long epilogues run
// in a loop over a tile that was spilled to memory.
#include "lower/tile.h"

enum {
  MAX_INLINE = 4,  // nodes of an inlined epilogue, at most
  MAX_UNROLL = 3,  // vectors: unrolling four is slower than a loop
};

// More than one bias would take registers from the accumulators.
uint8_t lb_epilogue_bias(const lb_lowering *e) {
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

bool lb_epilogue_is_long(const lb_lowering *e) {
  int cost = 0;
  for (int i = 0; i < e->spec->n_nodes; i++) {
    const lb_snode *n = &e->spec->nodes[i];
    if (e->uniformity[i] != LB_VARYING || n->n_src == 0) continue;
    cost += lb_lower_is_costly(n) ? MAX_INLINE + 1 : 1;
  }
  return cost > MAX_INLINE;
}

// Adds the sums of even and odd k, which are adjacent lanes of x, then of y.
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

// Vector v of the finished sums of row r.
static lb_kval accumulator_of(const lb_tile *t, uint32_t r, uint32_t v) {
  lb_kbuilder *b = &t->m->e->b;
  if (!t->m->k2) return lb_k_get(b, t->acc[r][v]);
  uint32_t first = 2 * v, second = first + 1 < t->vectors ? first + 1 : first;
  return add_neighbours(t->m->e, lb_k_get(b, t->acc[r][first]),
                        lb_k_get(b, t->acc[r][second]));
}

bool lb_epilogue_has_math(const lb_lowering *e) {
  for (int i = 0; i < e->spec->n_nodes; i++)
    if (e->uniformity[i] == LB_VARYING &&
        lb_lower_is_costly(&e->spec->nodes[i]))
      return true;
  return false;
}

// Computes and stores the outputs of `acc` at the current columns.
static void apply_epilogue(const lb_tile *t, lb_kval acc) {
  lb_lowering *e = t->m->e;
  lb_stores s;
  e->lanes_of[t->m->acc_node] = acc;
  lb_lower_values(e, &s);
  lb_lower_stores(e, &s);
}

static void epilogue_row(const lb_tile *t, uint32_t r) {
  lb_lowering *e = t->m->e;
  uint32_t pointer = r / LB_ROWS_PER_POINTER,
           first = pointer * LB_ROWS_PER_POINTER;
  lb_kval row = lb_lower_add(e, t->pointer_row[pointer], r - first);
  bool skips_repeats = t->is_short && first && t->m->in_place;
  if (skips_repeats)
    lb_k_if(&e->b, lb_k_le(&e->b, lb_lower_add(e, t->row, first), row));
  lb_lower_row(e, row);
  for (uint32_t v = 0; v < t->out_vectors; v++) {
    lb_lower_at(e, lb_lower_add(e, t->col, v * e->lanes), t->mask[v]);
    if (t->m->bias != LB_SPEC_NO_NODE) e->lanes_of[t->m->bias] = t->bias[v];
    apply_epilogue(t, accumulator_of(t, r, v));
  }
  if (skips_repeats) lb_k_end(&e->b);
}

static void load_bias(lb_tile *t) {
  lb_lowering *e = t->m->e;
  for (uint32_t v = 0; t->m->bias != LB_SPEC_NO_NODE && v < t->out_vectors;
       v++) {
    lb_lower_at(e, lb_lower_add(e, t->col, v * e->lanes), t->mask[v]);
    t->bias[v] = lb_lower_value(e, t->m->bias);
  }
}

static void epilogue_inline(lb_tile *t) {
  lb_lowering *e = t->m->e;
  // Computed here, so that they occupy no register during accumulation.
  lb_lower_uniforms(e);
  if (lb_matmul_has_panels(t->m)) lb_tile_compute_masks(t);
  load_bias(t);
  for (uint32_t r = 0; r < t->rows; r++) epilogue_row(t, r);
}

// The scratch address of the rows that belong to a pointer.
static lb_kval spill_address(const lb_tile *t, uint32_t pointer) {
  lb_lowering *e = t->m->e;
  lb_kval row = lb_k_i64(&e->b, pointer * LB_ROWS_PER_POINTER);
  if (t->is_short) row = lb_k_sub(&e->b, t->pointer_row[pointer], t->row);
  row = lb_lower_mul(e, row, t->out_vectors * e->lanes);
  return lb_k_ptr(&e->b, t->m->scratch, row, 0);
}

static void spill_accumulators(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval cursor = LB_K_NONE;
  for (uint32_t r = 0; r < t->rows; r++) {
    uint32_t in = r % LB_ROWS_PER_POINTER * t->out_vectors;
    if (in == 0) cursor = spill_address(t, r / LB_ROWS_PER_POINTER);
    for (uint32_t v = 0; v < t->out_vectors; v++)
      lb_k_store(b, lb_k_ptr(b, cursor, lb_k_i64(b, (in + v) * e->lanes), 0),
                 accumulator_of(t, r, v), 0);
  }
}

void lb_epilogue_spill_zeros(const lb_tile *t, lb_kval rows) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zeros = lb_k_num(b, lb_kt(t->m->acc_dtype, e->lanes), 0);
  lb_kval n = lb_lower_mul(e, rows, t->out_vectors * e->lanes);
  lb_kval at = lb_k_loop(b, lb_k_i64(b, 0), n, lb_k_i64(b, e->lanes));
  lb_k_store(b, lb_k_ptr(b, t->m->scratch, at, 0), zeros, 0);
  lb_k_end(b);
}

void lb_epilogue_zeros(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_tile t = {.m = m, .masked = true};
  lb_kval zero = lb_k_i64(b, 0), cols = e->dims[LB_DIM_COLS];
  lb_lower_uniforms(e);
  lb_lower_row(e, lb_k_loop(b, zero, e->dims[LB_DIM_ROWS], lb_k_i64(b, 1)));
  lb_kval col = lb_k_loop(b, zero, cols, lb_k_i64(b, e->lanes));
  lb_lower_at(e, col, lb_tile_tail(&t, col));
  apply_epilogue(&t, lb_k_num(b, lb_kt(m->acc_dtype, e->lanes), 0));
  lb_k_end(b);
  lb_k_end(b);
}

// The vectors of a row one by one in a loop, because the constants and
// temporaries of mathematical functions take all registers.
static void epilogue_looped(const lb_tile *t, lb_kval cursor) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval width = lb_k_i64(b, t->out_vectors * e->lanes);
  lb_kval c = lb_k_loop(b, lb_k_i64(b, 0), width, lb_k_i64(b, e->lanes));
  lb_lower_at(e, lb_k_add(b, t->col, c), lb_tile_mask(t, c));
  lb_kval acc = lb_k_load(b, lb_k_get(b, cursor), e->lanes, 0);
  lb_lower_advance(e, cursor, lb_k_i64(b, e->lanes));
  apply_epilogue(t, acc);
  lb_k_end(b);
}

// The same unrolled, for epilogues without mathematical functions.
static void epilogue_unrolled(const lb_tile *t, lb_kval cursor) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval at = lb_k_get(b, cursor);
  for (uint32_t v = 0; v < t->out_vectors; v++) {
    lb_kval by = lb_k_i64(b, v * e->lanes);
    lb_lower_at(e, lb_k_add(b, t->col, by), t->mask[v]);
    if (t->m->bias != LB_SPEC_NO_NODE) e->lanes_of[t->m->bias] = t->bias[v];
    apply_epilogue(t, lb_k_load(b, lb_k_ptr(b, at, by, 0), e->lanes, 0));
  }
  lb_lower_advance(e, cursor, lb_k_i64(b, t->out_vectors * e->lanes));
}

static bool needs_vector_loop(const lb_tile *t) {
  return lb_epilogue_has_math(t->m->e) || t->out_vectors > MAX_UNROLL;
}

// Short epilogues compute masks after each tile's accumulation, because the
// masks would take its registers.
void lb_epilogue_begin_column(lb_tile *t) {
  if (t->m->scratch != LB_K_NONE && !needs_vector_loop(t))
    lb_tile_compute_masks(t);
}

// Long epilogues run in a loop over `rows` spilled rows: code for all
// accumulators at once, and for each tile height, would be slow to compile.
// Iterations of the loop overlap in the processor.
void lb_epilogue_rows(const lb_tile *shape, lb_kval rows) {
  lb_tile t = *shape;
  lb_lowering *e = t.m->e;
  lb_kbuilder *b = &e->b;
  bool looped = needs_vector_loop(&t);
  lb_lower_uniforms(e);
  if (!looped) load_bias(&t);
  lb_kval cursor = lb_k_reg(b, t.m->scratch);
  lb_kval r = lb_k_loop(b, lb_k_i64(b, 0), rows, lb_k_i64(b, 1));
  lb_lower_row(e, lb_k_add(b, t.row, r));
  if (looped)
    epilogue_looped(&t, cursor);
  else
    epilogue_unrolled(&t, cursor);
  lb_k_end(b);
}
void lb_epilogue_tile(lb_tile *t) {
  if (t->m->scratch != LB_K_NONE)
    spill_accumulators(t);
  else
    epilogue_inline(t);
}
