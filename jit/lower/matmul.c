// lower/matmul.c -- matrix products, and what is made of each element.
//
// A *tile* is some rows times some panels of 16 columns, its sums in registers,
// one for each row and vector. Columns are the outer loop: tiles of the full
// width, then of half of it, and so on; what is left of the last panel is
// masked. Rows are the inner one: as few blocks as there can be, evenly high.
// A reads its elements in place, k is not blocked, b is prefetched.
//
// A sum begins with -0.0, so that its first product comes out as it is, and
// with 0.0 if there is none.
//
// A tile is *loose* if it may reach past the last row: it then reads the last
// row instead, and does not store.
#include "lower/emit.h"

enum {
  MAX_ROWS = 32,
  MAX_VECTORS = 32,
  MAX_PANELS = 8,
  PREFETCH_BYTES = 1024,  // ahead in b
  MIN_CHAINS = 8,         // of sums, below which k is unrolled
  MAX_GROUP = 4,          // vectors of an epilogue at once
  MAX_INLINE = 4,         // nodes of an epilogue that each sum has a copy of
};

typedef struct matmul {
  lb_emit *e;
  uint8_t acc_node;
  lb_dtype acc_dtype;
  uint32_t rows, panels;  // of the largest tile
  lb_kval first;          // what sums begin with, a scalar
  lb_kval scratch;        // a tile in memory, or LB_K_NONE
} matmul;

typedef struct tile {
  const matmul *m;
  uint32_t rows, panels, vectors, unroll;
  bool loose, masked;
  lb_kval row, col;           // the first
  lb_kval a[MAX_ROWS];        // pointers to rows
  lb_kval b[MAX_PANELS];      // pointers to panels; FULL, STRIDED: the first
  lb_kval mask[MAX_VECTORS];  // LB_K_NONE: all lanes
  lb_kval acc[MAX_ROWS][MAX_VECTORS];
} tile;

// -- the sums ----------------------------------------------------------------

static void point_at_rows(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval last = lb_emit_add(e, e->dims[LB_DIM_ROWS], -1);
  for (uint32_t r = 0; r < t->rows; r++) {
    lb_kval row = lb_emit_add(e, t->row, r);
    if (t->loose && r > 0) row = lb_k_min(b, row, last);
    lb_kval at = lb_k_mul(b, row, e->in_stride[0].row);
    t->a[r] = lb_k_ptr(b, e->in[0], at, 0);
  }
}

static void point_at_columns(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_stride stride = e->in_stride[1];
  if (e->spec->in[1].layout == LB_LAYOUT_PACKED) {
    lb_kval panel = lb_k_div(b, t->col, lb_k_i64(b, LB_PACK_COLS));
    for (uint32_t p = 0; p < t->panels; p++) {
      lb_kval at = lb_k_mul(b, lb_emit_add(e, panel, p), stride.row);
      t->b[p] = lb_k_ptr(b, e->in[1], at, 0);
    }
  } else if (e->spec->in[1].layout == LB_LAYOUT_STRIDED) {
    t->b[0] = lb_k_ptr(b, e->in[1], lb_k_mul(b, t->col, stride.col), 0);
  } else {
    t->b[0] = lb_k_ptr(b, e->in[1], t->col, 0);
  }
}

static lb_kval tail_of(const tile *t, lb_kval col) {
  lb_emit *e = t->m->e;
  lb_kval left = lb_k_sub(&e->b, e->dims[LB_DIM_COLS], col);
  return lb_k_tail(&e->b, left, e->lanes);
}

static void make_masks(tile *t) {
  lb_emit *e = t->m->e;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval col = lb_emit_add(e, t->col, v * e->lanes);
    t->mask[v] = t->masked ? tail_of(t, col) : LB_K_NONE;
  }
}

static void begin_sums(tile *t) {
  lb_emit *e = t->m->e;
  lb_kval first = lb_k_splat(&e->b, t->m->first, e->lanes);
  for (uint32_t r = 0; r < t->rows; r++)
    for (uint32_t v = 0; v < t->vectors; v++)
      t->acc[r][v] = lb_k_reg(&e->b, first);
}

static lb_kval widen(const tile *t, lb_kval x) {
  lb_kbuilder *b = &t->m->e->b;
  bool same = lb_k_type(b, x).dtype == t->m->acc_dtype;
  return same ? x : lb_k_cast(b, x, t->m->acc_dtype);
}

// a[row r, k + u]
static lb_kval load_a(const tile *t, uint32_t r, lb_kval k, uint32_t u) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[0].dtype);
  lb_kval p;
  if (e->spec->in[0].layout == LB_LAYOUT_FULL) {
    p = lb_k_ptr(b, t->a[r], k, u * size);
  } else {
    lb_kval at = lb_k_mul(b, lb_emit_add(e, k, u), e->in_stride[0].col);
    p = lb_k_ptr(b, t->a[r], at, 0);
  }
  return widen(t, lb_k_load(b, p, 1, 0));
}

static lb_kval load_packed(const tile *t, uint32_t v, lb_kval k, uint32_t u) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  uint32_t per_panel = LB_PACK_COLS / e->lanes;
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[1].dtype);
  int64_t disp = (u * LB_PACK_COLS + v % per_panel * e->lanes) * size;
  lb_kval panel = t->b[v / per_panel];
  lb_kval at = lb_emit_mul(e, k, LB_PACK_COLS);
  if (v % per_panel == 0)
    lb_k_prefetch(b, lb_k_ptr(b, panel, at, disp + PREFETCH_BYTES), 0);
  return lb_k_load(b, lb_k_ptr(b, panel, at, disp), e->lanes, 0);
}

// b[k + u, columns of vector v]
static lb_kval load_b(const tile *t, uint32_t v, lb_kval k, uint32_t u) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_stride stride = e->in_stride[1];
  if (e->spec->in[1].layout == LB_LAYOUT_PACKED)
    return widen(t, load_packed(t, v, k, u));
  lb_kval row = lb_k_mul(b, lb_emit_add(e, k, u), stride.row);
  if (e->spec->in[1].layout == LB_LAYOUT_STRIDED) {
    lb_kval col = lb_emit_mul(e, stride.col, v * e->lanes);
    lb_kval p = lb_k_ptr(b, t->b[0], lb_k_add(b, row, col), 0);
    return widen(t, lb_emit_gather(e, p, stride.col, t->mask[v]));
  }
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[1].dtype);
  lb_kval p = lb_k_ptr(b, t->b[0], row, v * e->lanes * size);
  return widen(t, lb_k_load_masked(b, p, e->lanes, 0, t->mask[v], LB_K_NONE));
}

static lb_kval sum(const tile *t, lb_kval acc, lb_kval x, lb_kval y) {
  lb_kbuilder *b = &t->m->e->b;
  if (lb_dtype_is_float(t->m->acc_dtype)) return lb_k_fma(b, x, y, acc);
  return lb_k_add(b, acc, lb_k_mul(b, x, y));
}

static void step(tile *t, lb_kval k, uint32_t u) {
  lb_emit *e = t->m->e;
  lb_kval y[MAX_VECTORS];
  for (uint32_t v = 0; v < t->vectors; v++) y[v] = load_b(t, v, k, u);
  for (uint32_t r = 0; r < t->rows; r++) {
    lb_kval x = lb_k_splat(&e->b, load_a(t, r, k, u), e->lanes);
    for (uint32_t v = 0; v < t->vectors; v++) {
      lb_kval acc = lb_k_get(&e->b, t->acc[r][v]);
      lb_k_set(&e->b, t->acc[r][v], sum(t, acc, x, y[v]));
    }
  }
}

static void steps(tile *t, lb_kval begin, lb_kval end, uint32_t unroll) {
  lb_kbuilder *b = &t->m->e->b;
  lb_kval k = lb_k_loop(b, begin, end, lb_k_i64(b, unroll));
  for (uint32_t u = 0; u < unroll; u++) step(t, k, u);
  lb_k_end(b);
}

static void sum_products(tile *t) {
  lb_emit *e = t->m->e;
  uint32_t chains = t->rows * t->vectors, unroll = 1;
  while (unroll < 4 && chains * unroll < MIN_CHAINS) unroll *= 2;
  lb_kval k = e->dims[LB_DIM_K], end = lb_emit_down(e, k, unroll);
  steps(t, lb_k_i64(&e->b, 0), end, unroll);
  if (!lb_facts_divides(e->facts, LB_DIM_K, (int)unroll)) steps(t, end, k, 1);
}

static lb_kval piece_of(lb_emit *e, int input, lb_kval run, lb_kval step) {
  return lb_k_add(&e->b, lb_k_mul(&e->b, run, e->taps[input].run),
                  lb_k_mul(&e->b, step, e->taps[input].step));
}

// CONV: the pieces of rows and columns, one after the other.
static void sum_pieces(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  tile first = *t;
  lb_kval zero = lb_k_i64(b, 0), one = lb_k_i64(b, 1);
  lb_kval run = lb_k_loop(b, zero, e->dims[LB_DIM_LEN], one);
  lb_kval step = lb_k_loop(b, zero, e->dims[LB_DIM_STEPS], one);
  lb_kval of_a = piece_of(e, 0, run, step), of_b = piece_of(e, 1, run, step);
  for (uint32_t r = 0; r < t->rows; r++)
    t->a[r] = lb_k_ptr(b, first.a[r], of_a, 0);
  for (uint32_t p = 0; p < t->panels; p++)
    t->b[p] = lb_k_ptr(b, first.b[p], of_b, 0);
  sum_products(t);
  lb_k_end(b);
  lb_k_end(b);
}

// -- what is made of them ----------------------------------------------------

static void finish_vector(const tile *t, lb_kval col, lb_kval mask,
                          lb_kval acc) {
  lb_emit *e = t->m->e;
  lb_stores s;
  lb_emit_at(e, col, mask);
  e->lanes_of[t->m->acc_node] = acc;
  lb_emit_values(e, &s);
  lb_emit_stores(e, &s);
}

static void finish_inline(const tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < t->rows; r++) {
    lb_kval row = lb_emit_add(e, t->row, r);
    bool sure = !t->loose || r == 0;
    if (!sure) lb_k_if(b, lb_k_lt(b, row, e->dims[LB_DIM_ROWS]));
    lb_emit_row(e, row);
    for (uint32_t v = 0; v < t->vectors; v++)
      finish_vector(t, lb_emit_add(e, t->col, v * e->lanes), t->mask[v],
                    lb_k_get(b, t->acc[r][v]));
    if (!sure) lb_k_end(b);
  }
}

static void spill_sums(const tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < t->rows; r++)
    for (uint32_t v = 0; v < t->vectors; v++) {
      lb_kval at = lb_k_i64(b, (r * t->vectors + v) * e->lanes);
      lb_k_store(b, lb_k_ptr(b, t->m->scratch, at, 0),
                 lb_k_get(b, t->acc[r][v]), 0);
    }
}

// Vectors of an epilogue at once. If there is one, LLVM takes the constants of
// its mathematics for few enough to hold them in registers all the time, and
// those of many sums run out.
static uint32_t finish_group(const tile *t) {
  if (t->m->e->lanes < 16 || t->rows * t->vectors <= MIN_CHAINS) return 1;
  return t->vectors % MAX_GROUP ? t->vectors : MAX_GROUP;
}

// Long epilogues run in loops over a tile that was put in memory: the code for
// all sums at once would be slow to compile.
static void finish_looped(const tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  uint32_t group = finish_group(t);
  lb_kval zero = lb_k_i64(b, 0), n = lb_k_i64(b, t->rows);
  lb_kval width = lb_k_i64(b, t->vectors * e->lanes);
  spill_sums(t);
  if (t->loose) n = lb_k_min(b, n, lb_k_sub(b, e->dims[LB_DIM_ROWS], t->row));
  lb_kval r = lb_k_loop(b, zero, n, lb_k_i64(b, 1));
  lb_emit_row(e, lb_k_add(b, t->row, r));
  lb_kval first = lb_k_loop(b, zero, width, lb_k_i64(b, group * e->lanes));
  for (uint32_t v = 0; v < group; v++) {
    lb_kval c = lb_emit_add(e, first, v * e->lanes);
    lb_kval at = lb_k_add(b, lb_k_mul(b, r, width), c);
    lb_kval col = lb_k_add(b, t->col, c);
    finish_vector(t, col, t->masked ? tail_of(t, col) : LB_K_NONE,
                  lb_k_load(b, lb_k_ptr(b, t->m->scratch, at, 0), e->lanes, 0));
  }
  lb_k_end(b);
  lb_k_end(b);
}

// -- tiles -------------------------------------------------------------------

static void emit_tile(tile *t) {
  point_at_rows(t);
  point_at_columns(t);
  make_masks(t);
  begin_sums(t);
  if (t->m->e->spec->form == LB_FORM_CONV)
    sum_pieces(t);
  else
    sum_products(t);
  lb_emit_all(t->m->e);  // here: no register is held while summing
  if (t->m->scratch == LB_K_NONE)
    finish_inline(t);
  else
    finish_looped(t);
}

// Tiles of t's shape, for rows from `begin` to `end`.
static void emit_blocks(tile *t, lb_kval begin, lb_kval end) {
  lb_kbuilder *b = &t->m->e->b;
  t->row = lb_k_loop(b, begin, end, lb_k_i64(b, t->rows));
  emit_tile(t);
  lb_k_end(b);
}

// Full-width tiles: n = ceil(M / rows) blocks, as many of them full as leaves
// one row less to each of the others. Those are loose, because M may be too
// small for that.
static void emit_even_blocks(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval m = e->dims[LB_DIM_ROWS], zero = lb_k_i64(b, 0);
  int64_t rows = t->rows;
  lb_kval n = lb_k_div(b, lb_emit_add(e, m, rows - 1), lb_k_i64(b, rows));
  lb_kval full = lb_k_sub(b, m, lb_emit_mul(e, n, rows - 1));
  lb_kval split = lb_emit_mul(e, lb_k_max(b, full, zero), rows);
  emit_blocks(t, zero, split);
  t->rows--;
  t->loose = true;
  emit_blocks(t, split, m);
}

static void emit_rows(tile *t) {
  lb_emit *e = t->m->e;
  lb_kval m = e->dims[LB_DIM_ROWS], zero = lb_k_i64(&e->b, 0);
  bool divides = lb_facts_divides(e->facts, LB_DIM_ROWS, (int)t->rows);
  if (!divides && t->panels == t->m->panels && !t->masked) {
    emit_even_blocks(t);
  } else {
    t->loose = !divides;
    emit_blocks(t, zero, m);
  }
}

// Columns from panel `begin` to `end` in tiles of `panels`; where it ended.
static lb_kval emit_columns(const matmul *m, uint32_t panels, bool masked,
                            lb_kval begin) {
  lb_emit *e = m->e;
  lb_kbuilder *b = &e->b;
  tile t = {.m = m, .rows = m->rows, .panels = panels, .masked = masked};
  t.vectors = panels * LB_PACK_COLS / e->lanes;
  lb_kval cols = e->dims[LB_DIM_COLS];
  int64_t up = masked ? LB_PACK_COLS - 1 : 0, width = panels * LB_PACK_COLS;
  lb_kval left = lb_k_sub(b, lb_emit_add(e, cols, up), begin);
  lb_kval end = lb_k_add(b, begin, lb_emit_down(e, left, width));
  t.col = lb_k_loop(b, begin, end, lb_k_i64(b, width));
  emit_rows(&t);
  lb_k_end(b);
  return end;
}

static void emit_tiles(const matmul *m) {
  lb_emit *e = m->e;
  lb_kval col = lb_k_i64(&e->b, 0);
  for (uint32_t panels = m->panels; panels; panels /= 2) {
    bool divides =
        lb_facts_divides(e->facts, LB_DIM_COLS, (int)(panels * LB_PACK_COLS));
    bool last = panels == 1 && panels < m->panels && !divides;
    col = emit_columns(m, panels, last, col);
    if (divides || last) return;
  }
  emit_columns(m, 1, true, col);
}

// -- choices -----------------------------------------------------------------

static bool choose_tile(matmul *m) {
  lb_emit *e = m->e;
  bool wide = lb_dtype_size(m->acc_dtype) > 4 && e->target->tile_cols > 16;
  uint32_t cols = e->target->tile_cols / (wide ? 2 : 1);
  int rows = (int)e->target->tile_rows;
  rows = lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  cols =
      (uint32_t)lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_COLS, (int)cols);
  m->rows = (uint32_t)rows;
  m->panels = cols / LB_PACK_COLS;
  if (rows >= 1 && rows <= MAX_ROWS && cols % LB_PACK_COLS == 0 &&
      m->panels >= 1 && m->panels <= MAX_PANELS)
    return true;
  lb_kbuild_fail(&e->b,
                 lb_error(LB_UNSUPPORTED,
                          "lower: a tile of %dx%u; rows go from 1 to "
                          "%d, columns by 16 to %d",
                          rows, cols, MAX_ROWS, MAX_PANELS * LB_PACK_COLS));
  return false;
}

static bool is_long(const lb_emit *e) {
  int cost = 0;
  for (int i = 0; i < e->spec->n_nodes; i++) {
    const lb_snode *n = &e->spec->nodes[i];
    if (e->scope[i] != LB_SCOPE_EACH || n->n_src == 0) continue;
    cost += lb_emit_is_costly(n) ? MAX_INLINE + 1 : 1;
  }
  return cost > MAX_INLINE;
}

void lb_emit_matmul(lb_emit *e) {
  lb_kbuilder *b = &e->b;
  matmul m = {.e = e, .scratch = LB_K_NONE};
  while (e->spec->nodes[m.acc_node].op != LB_S_ACC) m.acc_node++;
  m.acc_dtype = e->spec->nodes[m.acc_node].dtype;
  if (!choose_tile(&m)) return;
  lb_ktype t = lb_kt(m.acc_dtype, 1);
  lb_kval n = e->dims[LB_DIM_K];
  for (int d = LB_DIM_LEN; d < lb_spec_dims(e->spec); d++)
    n = lb_k_mul(b, n, e->dims[d]);
  lb_kval none = lb_k_eq(b, n, lb_k_i64(b, 0));
  m.first = lb_k_select(b, none, lb_k_num(b, t, 0), lb_k_num(b, t, -0.0));
  if (is_long(e))
    m.scratch = lb_k_local(b, m.acc_dtype, m.rows * m.panels * LB_PACK_COLS);
  emit_tiles(&m);
}
