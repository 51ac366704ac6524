// lower/gemm_inner.c -- The inner loops of a GEMM or convolution: accumulates a
// tile in registers.
//
// A is read in place, and k is not blocked. Every step prefetches a little of
// what comes next: b of the next step and of the next column of tiles, rows of
// a that have not been read yet, and the memory of the outputs.
//
// An accumulator starts with -0.0, so that the first product is added
// unchanged. Empty sums are 0.0 and have a code path of their own, because
// loops that are known to have an iteration need no code for the case without
// one.
//
// There are more rows than registers for pointers to them: a pointer serves
// three rows, at zero, one and two strides, and x86 addressing adds one or two
// strides in the load. In a short tile, pointers move back until all their rows
// exist; where an output may be the memory of an input, the epilogue skips the
// rows that were stored before.
#include "lower/tile.h"

enum {
  PREFETCH_BYTES = 1024,  // prefetch distance in b
  LONG_K_STEPS = 96,      // steps; enough time for prefetched outputs to arrive
  WIDE_TILE = 48,         // columns; its stores follow each other closely
  CACHE_LINE = 64,        // bytes
  CLOSE_STRIDE = 2,       // elements from one row to the next
  CLOSE_UNROLL = 3,       // steps per iteration where rows are close
};

// The last row at which all rows of the pointer to row r exist.
static lb_kval last_row_of(const lb_tile *t, uint32_t r) {
  lb_lowering *e = t->m->e;
  uint32_t n = t->rows - r;
  if (n > LB_ROWS_PER_POINTER) n = LB_ROWS_PER_POINTER;
  return lb_lower_add(e, e->dims[LB_DIM_ROWS], -(int64_t)n);
}

static void point_at_rows(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < t->rows; r += LB_ROWS_PER_POINTER) {
    lb_kval row = lb_lower_add(e, t->row, r);
    if (t->is_short && r) row = lb_k_min(b, row, last_row_of(t, r));
    t->pointer_row[r / LB_ROWS_PER_POINTER] = row;
    lb_kval at = lb_k_mul(b, row, e->in_stride[0].row);
    t->a[r / LB_ROWS_PER_POINTER] = lb_k_ptr(b, e->in[0], at, 0);
  }
}

// The last panel of b. Panels may be read past the last column, but not past
// the last panel.
static lb_kval last_panel(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kval last = lb_lower_add(e, e->dims[LB_DIM_COLS], -1);
  return lb_k_div(&e->b, last, lb_k_i64(&e->b, m->panel_cols));
}

static lb_kval panel_of(const lb_matmul *m, lb_kval col) {
  lb_kbuilder *b = &m->e->b;
  return lb_k_div(b, col, lb_k_i64(b, m->panel_cols));
}

static void point_at_columns(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_stride stride = e->in_stride[1];
  if (lb_matmul_has_panels(t->m)) {
    lb_kval panel = panel_of(t->m, t->col);
    t->b = lb_k_ptr(b, e->in[1], lb_k_mul(b, panel, stride.row), 0);
    for (uint32_t p = 0; p < t->panels; p++) {
      lb_kval at = lb_k_i64(b, p);
      if (t->masked && p > 0)
        at = lb_k_min(b, at, lb_k_sub(b, last_panel(t->m), panel));
      t->panel[p] = lb_k_mul(b, at, stride.row);
    }
  } else if (e->spec->in[1].layout == LB_LAYOUT_STRIDED) {
    t->b = lb_k_ptr(b, e->in[1], lb_k_mul(b, t->col, stride.col), 0);
  } else {
    t->b = lb_k_ptr(b, e->in[1], t->col, 0);
  }
}

static bool prefetches_b(const lb_matmul *m) {
  return m->e->spec->form == LB_FORM_MATMUL && lb_matmul_has_panels(m);
}

// One pointer prefetches either a or b, so their dtypes must be equal.
static bool prefetches_a(const lb_matmul *m) {
  const lb_soperand *in = m->e->spec->in;
  return prefetches_b(m) && in[0].layout == LB_LAYOUT_FULL &&
         in[0].dtype == in[1].dtype;
}

static lb_kval steps_of(const lb_matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval k = m->e->dims[LB_DIM_K];
  return m->k_step > 1 ? lb_k_div(b, k, lb_k_i64(b, m->k_step)) : k;
}

// The tiles of a band together prefetch as much as a column of tiles reads, but
// at most one panel row per step.
static lb_kval b_prefetch_step(const lb_matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval tiles = lb_k_sub(b, m->end, m->begin);
  lb_kval all = lb_k_i64(b, m->panels * m->step_elements - 1);
  lb_kval prefetch_step = lb_k_div(b, lb_k_add(b, all, tiles), tiles);
  return lb_k_min(b, prefetch_step, lb_k_i64(b, m->step_elements));
}

// A tile's rows of a, spread over its steps, but at most one panel row per
// step.
static lb_kval a_prefetch_step(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval steps = lb_k_max(b, steps_of(m), lb_k_i64(b, 1));
  lb_kval all = lb_lower_mul(e, e->in_stride[0].row, m->rows);
  lb_kval prefetch_step = lb_k_div(b, all, steps);
  return lb_k_min(b, prefetch_step, lb_k_i64(b, m->step_elements));
}

// In a long epilogue, mathematical functions take long between two stores, and
// narrow tiles store little at once: in neither case do stores stall.
static bool prefetches_outputs(const lb_matmul *m) {
  if (m->scratch == LB_K_NONE) return true;
  return m->panels * m->panel_cols >= WIDE_TILE && !lb_epilogue_has_math(m->e);
}

// In elements of k; scaled because a step reads `step_elements` of b.
static int64_t long_k(const lb_matmul *m) {
  return LONG_K_STEPS * m->step_elements / LB_PANEL_COLS;
}

// One part of k per three rows; short sums have one part.
static lb_kval k_part_of(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  if (e->spec->form != LB_FORM_MATMUL || m->rows <= LB_ROWS_PER_POINTER ||
      !prefetches_outputs(m))
    return LB_K_NONE;
  lb_kval k = lb_k_max(b, e->dims[LB_DIM_K], lb_k_i64(b, 1));
  int64_t parts = (m->rows + LB_ROWS_PER_POINTER - 1) / LB_ROWS_PER_POINTER;
  lb_kval n = lb_k_div(b, lb_lower_add(e, k, parts - 1), lb_k_i64(b, parts));
  if (m->k_step > 1)
    n = lb_lower_round_down(e, lb_lower_add(e, n, m->k_step - 1), m->k_step);
  return lb_k_select(b, lb_k_lt(b, k, lb_k_i64(b, long_k(m))), k, n);
}

void lb_gemm_inner_begin(lb_matmul *m) {
  m->k_part = k_part_of(m);
  if (prefetches_a(m)) m->prefetch_step_a = a_prefetch_step(m);
}

void lb_gemm_inner_begin_band(lb_matmul *m) {
  if (prefetches_b(m)) m->prefetch_step = b_prefetch_step(m);
}

// The tiles of one column together prefetch b of the next column of tiles.
static void prefetch_next_column(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval panel = lb_lower_add(e, panel_of(t->m, t->col), t->panels);
  lb_kval at = lb_k_mul(b, panel, e->in_stride[1].row);
  t->prefetch_base = lb_k_ptr(b, e->in[1], at, 0);
  t->prefetch_step = t->m->prefetch_step;
  t->prefetch_share = lb_k_mul(b, steps_of(t->m), t->prefetch_step);
}

// Whether a is read for the first time while b is cached or has less to fetch:
// in the first column of tiles of a band, unless rows of a overlap.
static lb_kval a_is_unread(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  lb_kval first = lb_k_eq(b, t->col, zero);
  lb_kval later = lb_k_lt(b, zero, t->m->begin);
  lb_kval more = lb_k_le(b, e->dims[LB_DIM_COLS], e->dims[LB_DIM_ROWS]);
  lb_kval apart = lb_k_le(b, e->dims[LB_DIM_K], e->in_stride[0].row);
  return lb_k_and(b, lb_k_and(b, first, apart), lb_k_or(b, later, more));
}

// In that case each tile prefetches the rows of the next one.
static void prefetch_next_rows(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval unread = a_is_unread(t), stride = e->in_stride[0].row;
  lb_kval prefetch_share = lb_lower_mul(e, stride, t->m->rows);
  lb_kval at = lb_k_mul(b, lb_k_get(b, t->m->row), stride);
  lb_kval prefetch_base =
      lb_k_ptr(b, e->in[0], lb_k_add(b, at, prefetch_share), 0);
  t->prefetch_base = lb_k_select(b, unread, prefetch_base, t->prefetch_base);
  t->prefetch_step =
      lb_k_select(b, unread, t->m->prefetch_step_a, t->prefetch_step);
  t->prefetch_share = lb_k_select(b, unread, prefetch_share, t->prefetch_share);
}

// Convolution tiles of one vector are limited by loads and have no slot for
// another.
static bool prefetches_conv_rows(const lb_tile *t) {
  return t->m->e->spec->form == LB_FORM_CONV && t->vectors > 1;
}

// How many rows of the feature map are read for the first time when the windows
// move down by one: two if neighbouring windows, taken as square, share half or
// less.
static lb_kval conv_rows_below(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval taps_y = e->dims[LB_DIM_TAPS_Y], one = lb_k_i64(b, 1),
          two = lb_k_i64(b, 2);
  lb_kval width = lb_k_mul(b, e->dims[LB_DIM_TAPS_X], e->dims[LB_DIM_K]);
  lb_kval moved = lb_k_mul(b, taps_y, e->in_stride[0].row);
  lb_kval more = lb_k_and(b, lb_k_le(b, lb_k_mul(b, two, width), moved),
                          lb_k_lt(b, one, taps_y));
  return lb_k_select(b, more, two, one);
}

// Windows read a row of the feature map as often as they are high, and first
// with their last row of taps. Tiles of the first column prefetch the rows
// below, each its own share in memory order, or the rows of the next tile where
// windows are one tap high.
static void prefetch_next_conv_rows(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), one = lb_k_i64(b, 1);
  lb_kval taps_y = e->dims[LB_DIM_TAPS_Y], stride = e->in_stride[0].row;
  lb_kval steps = lb_k_mul(b, taps_y, e->dims[LB_DIM_TAPS_X]);
  steps = lb_k_max(b, lb_k_mul(b, steps, steps_of(t->m)), one);
  t->prefetch_share = lb_lower_mul(e, stride, t->m->rows);
  t->prefetch_share = lb_k_mul(b, t->prefetch_share, conv_rows_below(t));
  lb_kval up = lb_k_add(b, t->prefetch_share, lb_lower_add(e, steps, -1));
  lb_kval step_elements = lb_k_i64(b, t->m->step_elements);
  lb_kval prefetch_step = lb_k_min(b, lb_k_div(b, up, steps), step_elements);
  lb_kval first = lb_k_eq(b, t->col, zero);
  t->prefetch_step = lb_k_select(b, first, prefetch_step, zero);
  lb_kval at = lb_k_mul(b, lb_k_get(b, t->m->row), stride);
  lb_kval below = lb_k_mul(b, taps_y, e->taps[0].y);
  below = lb_k_select(b, lb_k_lt(b, one, taps_y), below, t->prefetch_share);
  t->prefetch_base = lb_k_ptr(b, e->in[0], lb_k_add(b, at, below), 0);
}

// Prefetches are spread over the steps; issued all at once they would stall.
void lb_gemm_inner_begin_column(lb_tile *t) {
  if (t->masked) point_at_columns(t);
  t->prefetch_base = LB_K_NONE;
  if (prefetches_conv_rows(t)) prefetch_next_conv_rows(t);
  if (prefetches_b(t->m)) prefetch_next_column(t);
  if (prefetches_a(t->m)) prefetch_next_rows(t);
}

static void begin_prefetch(lb_tile *t) {
  lb_kbuilder *b = &t->m->e->b;
  if (t->prefetch_base == LB_K_NONE) return;
  lb_kval at = lb_k_mul(b, t->index, t->prefetch_share);
  t->prefetch_at = lb_k_reg(b, lb_k_ptr(b, t->prefetch_base, at, 0));
}

static void begin_accumulators(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_ktype type = lb_kt(t->m->acc_dtype, e->lanes);
  lb_kval first = lb_k_num(&e->b, type, -0.0);
  for (uint32_t r = 0; r < t->rows; r++)
    for (uint32_t v = 0; v < t->vectors; v++)
      t->acc[r][v] = lb_k_reg(&e->b, first);
}

static lb_kval widen(const lb_tile *t, lb_kval x) {
  lb_kbuilder *b = &t->m->e->b;
  bool same = lb_k_type(b, x).dtype == t->m->acc_dtype;
  return same ? x : lb_k_cast(b, x, t->m->acc_dtype);
}

static bool a_is_contiguous(const lb_tile *t) {
  return t->m->e->spec->in[0].layout == LB_LAYOUT_FULL;
}

// From one row of b to the next, or from one group of interleaved rows to the
// next.
static lb_kval stride_of_b(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  if (lb_matmul_has_panels(t->m)) return lb_k_i64(&e->b, t->m->step_elements);
  return e->in_stride[1].row;
}

// Positions are advanced by additions: an integer multiplication would compete
// with vector products for one of the two multiply units.
static void begin_steps(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  if (!a_is_contiguous(t)) {
    t->a_offset = lb_k_reg(b, lb_k_i64(b, 0));
    t->step_a = lb_lower_mul(e, e->in_stride[0].col, t->m->k_step);
  }
  t->b_cursor = lb_k_reg(b, t->b);
}

// The row pointers, advanced to k.
static void pointers_at(const lb_tile *t, lb_kval k, lb_kval *out) {
  lb_lowering *e = t->m->e;
  lb_kval at = a_is_contiguous(t) ? k : lb_k_get(&e->b, t->a_offset);
  for (uint32_t r = 0; r < t->rows; r += LB_ROWS_PER_POINTER)
    out[r / LB_ROWS_PER_POINTER] =
        lb_k_ptr(&e->b, t->a[r / LB_ROWS_PER_POINTER], at, 0);
}

// Elements k and k + 1 alternate in all lanes.
static lb_kval load_k2(const lb_tile *t, lb_kval p) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  bool full = e->spec->in[0].layout == LB_LAYOUT_FULL;
  uint8_t table[LB_TILE_MAX_LANES];
  for (uint32_t i = 0; i < LB_TILE_MAX_LANES; i++)
    table[i] = (uint8_t)(i % 2 * (full ? 1 : e->lanes));
  lb_kval x = widen(t, lb_k_load(b, p, full ? 2 : 1, 0)), y = x;
  if (!full) {
    p = lb_k_ptr(b, p, e->in_stride[0].col, 0);
    x = lb_k_splat(b, x, e->lanes);
    y = lb_k_splat(b, widen(t, lb_k_load(b, p, 1, 0)), e->lanes);
  }
  return lb_k_shuffle(b, x, y, table, e->lanes);
}

// Broadcasts elements k to k + 3 as one 32-bit element.
static lb_kval load_k4(const lb_tile *t, lb_kval p) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval four = lb_k_load(b, lb_k_bitcast(b, p, LB_I32), 1, 1);
  return lb_k_bitcast(b, lb_k_splat(b, four, e->lanes), e->spec->in[0].dtype);
}

// The pointer to row r, at the stride given as an argument.
static lb_kval row_at(const lb_tile *t, const lb_kval *pointers, uint32_t r) {
  lb_lowering *e = t->m->e;
  lb_kval p = pointers[r / LB_ROWS_PER_POINTER];
  uint32_t strides = r % LB_ROWS_PER_POINTER;
  if (!strides) return p;
  return lb_k_ptr(&e->b, p, lb_lower_mul(e, e->in_stride[0].row, strides), 0);
}

// The element, pair or quadruple of k at p, broadcast to all lanes.
static lb_kval load_a(const lb_tile *t, lb_kval p) {
  lb_lowering *e = t->m->e;
  if (t->m->k2) return load_k2(t, p);
  if (t->m->k4) return load_k4(t, p);
  return lb_k_splat(&e->b, widen(t, lb_k_load(&e->b, p, 1, 0)), e->lanes);
}

static lb_kval load_panel(const lb_tile *t, uint32_t v, lb_kval row,
                          uint32_t n) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  uint32_t per_panel = LB_PANEL_COLS / e->lanes;
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[1].dtype);
  uint32_t many = t->m->k4 ? 4 * e->lanes : e->lanes;
  int64_t disp = (n * t->m->step_elements + v % per_panel * many) * size;
  lb_kval at = t->panel[v / per_panel];
  if (v % per_panel == 0)
    lb_k_prefetch(b, lb_k_ptr(b, row, at, disp + PREFETCH_BYTES), 0);
  return lb_k_load(b, lb_k_ptr(b, row, at, disp), many, 0);
}

// The columns of vector v; with panels, n steps after this row of b.
static lb_kval load_b(const lb_tile *t, uint32_t v, lb_kval row, uint32_t n) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_stride stride = e->in_stride[1];
  if (t->m->k4) return load_panel(t, v, row, n);
  if (lb_matmul_has_panels(t->m)) return widen(t, load_panel(t, v, row, n));
  if (e->spec->in[1].layout == LB_LAYOUT_STRIDED) {
    lb_kval col = lb_lower_mul(e, stride.col, v * e->lanes);
    lb_kval p = lb_k_ptr(b, row, col, 0);
    return widen(t, lb_lower_gather(e, p, stride.col, t->mask[v]));
  }
  lb_kval p = lb_k_ptr(b, row, lb_k_i64(b, v * e->lanes), 0);
  return widen(t, lb_k_load_masked(b, p, e->lanes, 0, t->mask[v], LB_K_NONE));
}

static lb_kval multiply_add(const lb_tile *t, lb_kval acc, lb_kval x,
                            lb_kval y) {
  lb_kbuilder *b = &t->m->e->b;
  if (t->m->k4) return lb_k_dot4(b, acc, x, y);
  if (lb_dtype_is_float(t->m->acc_dtype)) return lb_k_fma(b, x, y, acc);
  return lb_k_add(b, acc, lb_k_mul(b, x, y));
}

static void prefetch_ahead(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  if (t->prefetch_base == LB_K_NONE) return;
  lb_k_prefetch(&e->b, lb_k_get(&e->b, t->prefetch_at), 1);
  lb_lower_advance(e, t->prefetch_at, t->prefetch_step);
}

// Adds x, an element of row r, times the columns of a row of b.
static void add_row_products(const lb_tile *t, uint32_t r, lb_kval x,
                             const lb_kval *y) {
  lb_kbuilder *b = &t->m->e->b;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval acc = lb_k_get(b, t->acc[r][v]);
    lb_k_set(b, t->acc[r][v], multiply_add(t, acc, x, y[v]));
  }
}

static void step(lb_tile *t, lb_kval k) {
  lb_lowering *e = t->m->e;
  lb_kval y[LB_TILE_MAX_VECTORS], pointers[LB_TILE_MAX_POINTERS];
  lb_kval row = lb_k_get(&e->b, t->b_cursor);
  pointers_at(t, k, pointers);
  prefetch_ahead(t);
  for (uint32_t v = 0; v < t->vectors; v++) y[v] = load_b(t, v, row, 0);
  lb_lower_advance(
      e, t->b_cursor,
      stride_of_b(t));  // LLVM copies the register if this comes last
  for (uint32_t r = 0; r < t->rows; r++)
    add_row_products(t, r, load_a(t, row_at(t, pointers, r)), y);
  if (!a_is_contiguous(t))
    lb_k_set(&e->b, t->a_offset,
             lb_k_add(&e->b, lb_k_get(&e->b, t->a_offset), t->step_a));
}

// Some rows of an operand, restricted to the columns of the tile.
typedef struct gemm_inner_block {
  const lb_soperand *of;
  lb_kval base, stride;
  lb_kval row;
  uint32_t rows;
} gemm_inner_block;

// If rows are not a multiple of cache lines, they start anywhere in a line and
// end in one more.
static void prefetch_block(const lb_tile *t, const gemm_inner_block *p) {
  lb_kbuilder *b = &t->m->e->b;
  if (p->of->layout != LB_LAYOUT_FULL) return;
  int64_t size = (int64_t)lb_dtype_size(p->of->dtype);
  int64_t bytes = t->panels * t->m->panel_cols * size;
  bool fills =
      lb_facts_divides(t->m->e->facts, LB_DIM_COLS, (int)(CACHE_LINE / size));
  lb_kval at = lb_k_add(b, lb_k_mul(b, p->row, p->stride), t->col);
  for (uint32_t r = 0; r < p->rows; r++) {
    lb_kval first = lb_k_ptr(b, p->base, at, 0);
    for (int64_t x = 0; x < bytes; x += CACHE_LINE)
      lb_k_prefetch(b, lb_k_ptr(b, first, lb_k_i64(b, 0), x), 0);
    if (!fills)
      lb_k_prefetch(b, lb_k_ptr(b, first, lb_k_i64(b, 0), bytes - 1), 0);
    at = lb_k_add(b, at, p->stride);
  }
}

// Prefetches the memory of the outputs, three rows from `row` on.
static void prefetch_outputs(const lb_tile *t, lb_kval row) {
  const lb_lowering *e = t->m->e;
  for (int i = 0; i < e->spec->n_out; i++)
    prefetch_block(
        t, &(gemm_inner_block){&e->spec->out[i], e->out[i],
                               e->out_stride[i].row, row, LB_ROWS_PER_POINTER});
}

// Prefetches the epilogue's inputs, `rows` rows from `row` on.
static void prefetch_inputs(const lb_tile *t, lb_kval row, uint32_t rows) {
  const lb_lowering *e = t->m->e;
  for (int i = lb_spec_factors(e->spec); i < e->spec->n_in; i++)
    prefetch_block(t, &(gemm_inner_block){&e->spec->in[i], e->in[i],
                                          e->in_stride[i].row, row, rows});
}

// Long sums are split into parts, and each part prefetches the outputs of three
// rows. Otherwise the loads of the next tile would wait behind the stores,
// which come all at once.
static void accumulate_k(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), k = e->dims[LB_DIM_K];
  lb_kval by = lb_k_i64(b, t->m->k_step);
  begin_steps(t);
  if (t->m->k_part == LB_K_NONE) {
    step(t, lb_k_loop(b, zero, k, by));
    lb_k_end(b);
    return;
  }
  lb_kval row = lb_k_reg(b, t->row);
  lb_kval begin = lb_k_loop(b, zero, k, t->m->k_part);
  lb_k_if(b, lb_k_le(b, lb_k_i64(b, long_k(t->m)), k));
  prefetch_outputs(t, lb_k_get(b, row));
  lb_k_end(b);
  lb_k_set(b, row, lb_lower_add(e, lb_k_get(b, row), LB_ROWS_PER_POINTER));
  lb_kval end = lb_k_min(b, lb_k_add(b, begin, t->m->k_part), k);
  step(t, lb_k_loop(b, begin, end, by));
  lb_k_end(b);
  lb_k_end(b);
}

static lb_kval tap_offset(lb_lowering *e, int input, lb_kval tap_y,
                          lb_kval tap_x) {
  return lb_k_add(&e->b, lb_k_mul(&e->b, tap_y, e->taps[input].y),
                  lb_k_mul(&e->b, tap_x, e->taps[input].x));
}

// Tiles of one panel have few products per step and are limited by instruction
// issue: a product with an indexed memory operand counts as two. Where rows are
// CLOSE_STRIDE apart, as in the first layer of a network, which has stride two
// and its input in the original layout, offsets are constants instead.
static bool may_have_close_rows(const lb_tile *t) {
  return t->m->panels == 1 && t->m->e->lanes == LB_PANEL_COLS &&
         t->m->k_step == 1 && a_is_contiguous(t) && lb_matmul_has_panels(t->m);
}

// The address of row r, n elements after the pointers.
static lb_kval close_row(const lb_tile *t, const lb_kval *pointers, uint32_t r,
                         uint32_t n) {
  lb_lowering *e = t->m->e;
  uint32_t pointer = t->is_short ? r / LB_ROWS_PER_POINTER : 0;
  int64_t at = (r - pointer * LB_ROWS_PER_POINTER) * CLOSE_STRIDE + n;
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[0].dtype);
  return lb_k_ptr(&e->b, pointers[pointer], lb_k_i64(&e->b, 0), at * size);
}

// One tap, `of_a` elements after the row pointers. Windows mostly have three
// elements along k, which are one iteration. Each step is inside the `if` of
// the previous one, so that k may be any number.
static void accumulate_close(lb_tile *t, lb_kval of_a) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval end = e->dims[LB_DIM_K], pointers[LB_TILE_MAX_POINTERS];
  lb_kval y[LB_TILE_MAX_VECTORS];
  begin_steps(t);
  lb_kval k = lb_k_loop(b, lb_k_i64(b, 0), end, lb_k_i64(b, CLOSE_UNROLL));
  lb_kval row = lb_k_get(b, t->b_cursor);
  pointers_at(t, lb_k_add(b, k, of_a), pointers);
  lb_lower_advance(e, t->b_cursor,
                   lb_k_i64(b, CLOSE_UNROLL * t->m->step_elements));
  for (uint32_t n = 0; n < CLOSE_UNROLL; n++) {
    if (n) lb_k_if(b, lb_k_lt(b, lb_lower_add(e, k, n), end));
    prefetch_ahead(t);
    for (uint32_t v = 0; v < t->vectors; v++) y[v] = load_b(t, v, row, n);
    for (uint32_t r = 0; r < t->rows; r++)
      add_row_products(t, r, load_a(t, close_row(t, pointers, r, n)), y);
  }
  for (uint32_t n = 0; n < CLOSE_UNROLL; n++) lb_k_end(b);
}

// CONV: accumulates all taps. Each row of taps, of which there are three
// mostly, prefetches a third of the epilogue's inputs.
static void accumulate_taps(lb_tile *t, bool close) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_tile first = *t;
  lb_kval zero = lb_k_i64(b, 0), one = lb_k_i64(b, 1);
  lb_kval tap_y = lb_k_loop(b, zero, e->dims[LB_DIM_TAPS_Y], one);
  uint32_t third = (t->rows + 2) / 3;
  prefetch_inputs(t, lb_k_add(b, t->row, lb_lower_mul(e, tap_y, third)), third);
  lb_kval tap_x = lb_k_loop(b, zero, e->dims[LB_DIM_TAPS_X], one);
  lb_kval of_a = tap_offset(e, 0, tap_y, tap_x),
          of_b = tap_offset(e, 1, tap_y, tap_x);
  t->b = lb_k_ptr(b, first.b, of_b, 0);
  if (close) {
    accumulate_close(t, of_a);
  } else {
    for (uint32_t r = 0; r < t->rows; r += LB_ROWS_PER_POINTER)
      t->a[r / LB_ROWS_PER_POINTER] =
          lb_k_ptr(b, first.a[r / LB_ROWS_PER_POINTER], of_a, 0);
    accumulate_k(t);
  }
  lb_k_end(b);
  lb_k_end(b);
}

static void accumulate_conv(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_tile other = *t;
  if (!may_have_close_rows(t)) {
    accumulate_taps(t, false);
    return;
  }
  lb_k_if(b, lb_k_eq(b, e->in_stride[0].row, lb_k_i64(b, CLOSE_STRIDE)));
  accumulate_taps(t, true);
  lb_k_else(b);
  accumulate_taps(&other, false);
  lb_k_end(b);
}

void lb_gemm_inner_emit(lb_tile *t) {
  point_at_rows(t);
  // Offsets of one or two panel strides need no register each.
  if (!t->masked) point_at_columns(t);
  begin_prefetch(t);
  if (!lb_matmul_has_panels(t->m)) lb_tile_compute_masks(t);
  begin_accumulators(t);
  if (t->m->e->spec->form == LB_FORM_CONV)
    accumulate_conv(t);
  else
    accumulate_k(t);
}
