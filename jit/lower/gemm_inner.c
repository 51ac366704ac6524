// lower/gemm_inner.c -- the sums of a tile, in registers.
//
// A is read in place, k is not blocked. What comes next is sent for with every
// step a bit: b of the next step and of the next column of tiles, rows of a
// that nobody has read yet, and where outputs will be stored.
//
// A sum begins with -0.0, so that its first product comes out as it is. Where
// there is none, sums are 0.0, on a way of their own: loops that are known to
// have a turn need nothing for the case that they have not.
//
// There are more rows than registers for pointers to them: a pointer stands for
// three rows, which are one and two strides apart, and x86 adds a stride or two
// of them where it reads. In a short tile pointers go back until their rows are
// there: only the rows that are new are made to outputs.
#include "lower/tile.h"

enum {
  PREFETCH_BYTES = 1024,  // ahead in b
  LONG_SUM = 96,          // steps, in which outputs have the time to come
  WIDE_TILE = 48,         // columns, whose outputs come behind each other
  LINE = 64,              // bytes
  CLOSE = 2,              // elements from a row to the next
  AT_ONCE = 3,            // steps of rows that are close
};

// The last row at which the rows of the pointer to row r are all there.
static lb_kval last_place(const lb_tile *t, uint32_t r) {
  lb_lowering *e = t->m->e;
  uint32_t n = t->rows - r;
  if (n > LB_ROWS_A_POINTER) n = LB_ROWS_A_POINTER;
  return lb_lower_add(e, e->dims[LB_DIM_ROWS], -(int64_t)n);
}

static void point_at_rows(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < t->rows; r += LB_ROWS_A_POINTER) {
    lb_kval row = lb_lower_add(e, t->row, r);
    if (t->is_short && r) row = lb_k_min(b, row, last_place(t, r));
    t->at[r / LB_ROWS_A_POINTER] = row;
    lb_kval at = lb_k_mul(b, row, e->in_stride[0].row);
    t->a[r / LB_ROWS_A_POINTER] = lb_k_ptr(b, e->in[0], at, 0);
  }
}

// Of b's panels, which are read past the last column and not past the last of
// them.
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

static bool looks_ahead(const lb_matmul *m) {
  return m->e->spec->form == LB_FORM_MATMUL && lb_matmul_has_panels(m);
}

// What is sent for is one pointer, to either.
static bool looks_ahead_in_a(const lb_matmul *m) {
  const lb_soperand *in = m->e->spec->in;
  return looks_ahead(m) && in[0].layout == LB_LAYOUT_FULL &&
         in[0].dtype == in[1].dtype;
}

static lb_kval steps_of(const lb_matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval k = m->e->dims[LB_DIM_K];
  return m->by > 1 ? lb_k_div(b, k, lb_k_i64(b, m->by)) : k;
}

// What the tiles of a band send for together is as much as a column of tiles
// has; no more than a line a step.
static lb_kval pace_of(const lb_matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval tiles = lb_k_sub(b, m->end, m->begin);
  lb_kval all = lb_k_i64(b, m->panels * m->line - 1);
  lb_kval pace = lb_k_div(b, lb_k_add(b, all, tiles), tiles);
  return lb_k_min(b, pace, lb_k_i64(b, m->line));
}

// A tile's rows of a, in as many steps as it has; no more than a line a step.
static lb_kval a_pace_of(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval steps = lb_k_max(b, steps_of(m), lb_k_i64(b, 1));
  lb_kval all = lb_lower_mul(e, e->in_stride[0].row, m->rows);
  lb_kval pace = lb_k_div(b, all, steps);
  return lb_k_min(b, pace, lb_k_i64(b, m->line));
}

// Functions take their time between one store and the next, and narrow tiles
// store little in a row: after a long epilogue neither waits.
static bool waits_for_outputs(const lb_matmul *m) {
  if (m->scratch == LB_K_NONE) return true;
  return m->panels * m->panel_cols >= WIDE_TILE &&
         !lb_finish_has_function(m->e);
}

// In terms: a step takes a line of b.
static int64_t long_sum(const lb_matmul *m) {
  return LONG_SUM * m->line / LB_PANEL_COLS;
}

// A part for each three rows; short sums are one.
static lb_kval part_of(const lb_matmul *m) {
  lb_lowering *e = m->e;
  lb_kbuilder *b = &e->b;
  if (e->spec->form != LB_FORM_MATMUL || m->rows <= LB_ROWS_A_POINTER ||
      !waits_for_outputs(m))
    return LB_K_NONE;
  lb_kval k = lb_k_max(b, e->dims[LB_DIM_K], lb_k_i64(b, 1));
  int64_t parts = (m->rows + LB_ROWS_A_POINTER - 1) / LB_ROWS_A_POINTER;
  lb_kval n = lb_k_div(b, lb_lower_add(e, k, parts - 1), lb_k_i64(b, parts));
  if (m->by > 1) n = lb_lower_down(e, lb_lower_add(e, n, m->by - 1), m->by);
  return lb_k_select(b, lb_k_lt(b, k, lb_k_i64(b, long_sum(m))), k, n);
}

void lb_sums_begin(lb_matmul *m) {
  m->part = part_of(m);
  if (looks_ahead_in_a(m)) m->a_pace = a_pace_of(m);
}

void lb_sums_begin_band(lb_matmul *m) {
  if (looks_ahead(m)) m->pace = pace_of(m);
}

// Tiles above each other share in sending for the next column of tiles.
static void look_at_next_column(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval panel = lb_lower_add(e, panel_of(t->m, t->col), t->panels);
  lb_kval at = lb_k_mul(b, panel, e->in_stride[1].row);
  t->next = lb_k_ptr(b, e->in[1], at, 0);
  t->pace = t->m->pace;
  t->share = lb_k_mul(b, steps_of(t->m), t->pace);
}

// If a is read for the first time, and b is there or has less to come: in the
// first column of a band, unless rows overlap.
static lb_kval is_fresh(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  lb_kval first = lb_k_eq(b, t->col, zero);
  lb_kval later = lb_k_lt(b, zero, t->m->begin);
  lb_kval more = lb_k_le(b, e->dims[LB_DIM_COLS], e->dims[LB_DIM_ROWS]);
  lb_kval apart = lb_k_le(b, e->dims[LB_DIM_K], e->in_stride[0].row);
  return lb_k_and(b, lb_k_and(b, first, apart), lb_k_or(b, later, more));
}

// There each tile sends for the rows of the next one.
static void look_at_next_rows(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval fresh = is_fresh(t), stride = e->in_stride[0].row;
  lb_kval share = lb_lower_mul(e, stride, t->m->rows);
  lb_kval at = lb_k_mul(b, lb_k_get(b, t->m->row), stride);
  lb_kval next = lb_k_ptr(b, e->in[0], lb_k_add(b, at, share), 0);
  t->next = lb_k_select(b, fresh, next, t->next);
  t->pace = lb_k_select(b, fresh, t->m->a_pace, t->pace);
  t->share = lb_k_select(b, fresh, share, t->share);
}

// Windows of one vector wait for loads, and have no turn for another.
static bool looks_down(const lb_tile *t) {
  return t->m->e->spec->form == LB_FORM_CONV && t->vectors > 1;
}

// How many lines of an image windows have not read when they go a line on: two
// if windows of neighbours, as wide as high, share half or less.
static lb_kval lines_below(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval len = e->dims[LB_DIM_LEN], one = lb_k_i64(b, 1), two = lb_k_i64(b, 2);
  lb_kval width = lb_k_mul(b, e->dims[LB_DIM_STEPS], e->dims[LB_DIM_K]);
  lb_kval moved = lb_k_mul(b, len, e->in_stride[0].row);
  lb_kval more = lb_k_and(b, lb_k_le(b, lb_k_mul(b, two, width), moved),
                          lb_k_lt(b, one, len));
  return lb_k_select(b, more, two, one);
}

// A line of an image is read by windows as often as they are high, and first by
// their last run. Tiles of the first column send for those below, each for its
// share as they lie, or for the rows of the next tile where windows have one
// run.
static void look_at_next_line(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), one = lb_k_i64(b, 1);
  lb_kval len = e->dims[LB_DIM_LEN], stride = e->in_stride[0].row;
  lb_kval steps = lb_k_mul(b, len, e->dims[LB_DIM_STEPS]);
  steps = lb_k_max(b, lb_k_mul(b, steps, steps_of(t->m)), one);
  t->share = lb_lower_mul(e, stride, t->m->rows);
  t->share = lb_k_mul(b, t->share, lines_below(t));
  lb_kval up = lb_k_add(b, t->share, lb_lower_add(e, steps, -1));
  lb_kval line = lb_k_i64(b, t->m->line);
  lb_kval pace = lb_k_min(b, lb_k_div(b, up, steps), line);
  lb_kval first = lb_k_eq(b, t->col, zero);
  t->pace = lb_k_select(b, first, pace, zero);
  lb_kval at = lb_k_mul(b, lb_k_get(b, t->m->row), stride);
  lb_kval below = lb_k_mul(b, len, e->taps[0].run);
  below = lb_k_select(b, lb_k_lt(b, one, len), below, t->share);
  t->next = lb_k_ptr(b, e->in[0], lb_k_add(b, at, below), 0);
}

// What tiles send for comes with every step a bit: read all at once it would
// come too slowly.
void lb_sums_begin_column(lb_tile *t) {
  if (t->masked) point_at_columns(t);
  t->next = LB_K_NONE;
  if (looks_down(t)) look_at_next_line(t);
  if (looks_ahead(t->m)) look_at_next_column(t);
  if (looks_ahead_in_a(t->m)) look_at_next_rows(t);
}

static void point_ahead(lb_tile *t) {
  lb_kbuilder *b = &t->m->e->b;
  if (t->next == LB_K_NONE) return;
  lb_kval at = lb_k_mul(b, t->number, t->share);
  t->ahead = lb_k_reg(b, lb_k_ptr(b, t->next, at, 0));
}

static void begin_sums(lb_tile *t) {
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

static bool steps_by_one(const lb_tile *t) {
  return t->m->e->spec->in[0].layout == LB_LAYOUT_FULL;
}

// From a row of b to the next, or from several to as many more.
static lb_kval stride_of_b(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  if (lb_matmul_has_panels(t->m)) return lb_k_i64(&e->b, t->m->line);
  return e->in_stride[1].row;
}

// Places go from step to step: multiplied, they would take the turn of a
// product, as one unit of two makes those of integers, too.
static void begin_steps(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  if (!steps_by_one(t)) {
    t->at_a = lb_k_reg(b, lb_k_i64(b, 0));
    t->step_a = lb_lower_mul(e, e->in_stride[0].col, t->m->by);
  }
  t->at_b = lb_k_reg(b, t->b);
}

// The pointers to rows at k.
static void pointers_at(const lb_tile *t, lb_kval k, lb_kval *out) {
  lb_lowering *e = t->m->e;
  lb_kval at = steps_by_one(t) ? k : lb_k_get(&e->b, t->at_a);
  for (uint32_t r = 0; r < t->rows; r += LB_ROWS_A_POINTER)
    out[r / LB_ROWS_A_POINTER] =
        lb_k_ptr(&e->b, t->a[r / LB_ROWS_A_POINTER], at, 0);
}

// Elements k and k + 1 by turns in all lanes.
static lb_kval load_pair(const lb_tile *t, lb_kval p) {
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

// Elements k to k + 3 in the place of every number of 32 bits.
static lb_kval load_quad(const lb_tile *t, lb_kval p) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval four = lb_k_load(b, lb_k_bitcast(b, p, LB_I32), 1, 1);
  return lb_k_bitcast(b, lb_k_splat(b, four, e->lanes), e->spec->in[0].dtype);
}

// The pointer to row r, where rows are as far apart as arguments say.
static lb_kval row_at(const lb_tile *t, const lb_kval *pointers, uint32_t r) {
  lb_lowering *e = t->m->e;
  lb_kval p = pointers[r / LB_ROWS_A_POINTER];
  uint32_t strides = r % LB_ROWS_A_POINTER;
  if (!strides) return p;
  return lb_k_ptr(&e->b, p, lb_lower_mul(e, e->in_stride[0].row, strides), 0);
}

// What is there in all lanes.
static lb_kval load_a(const lb_tile *t, lb_kval p) {
  lb_lowering *e = t->m->e;
  if (t->m->pairs) return load_pair(t, p);
  if (t->m->quads) return load_quad(t, p);
  return lb_k_splat(&e->b, widen(t, lb_k_load(&e->b, p, 1, 0)), e->lanes);
}

static lb_kval load_packed(const lb_tile *t, uint32_t v, lb_kval row,
                           uint32_t n) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  uint32_t per_panel = LB_PANEL_COLS / e->lanes;
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[1].dtype);
  uint32_t many = t->m->quads ? 4 * e->lanes : e->lanes;
  int64_t disp = (n * t->m->line + v % per_panel * many) * size;
  lb_kval at = t->panel[v / per_panel];
  if (v % per_panel == 0)
    lb_k_prefetch(b, lb_k_ptr(b, row, at, disp + PREFETCH_BYTES), 0);
  return lb_k_load(b, lb_k_ptr(b, row, at, disp), many, 0);
}

// Columns of vector v, n rows behind this one of b if it has panels.
static lb_kval load_b(const lb_tile *t, uint32_t v, lb_kval row, uint32_t n) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_stride stride = e->in_stride[1];
  if (t->m->quads) return load_packed(t, v, row, n);
  if (lb_matmul_has_panels(t->m)) return widen(t, load_packed(t, v, row, n));
  if (e->spec->in[1].layout == LB_LAYOUT_STRIDED) {
    lb_kval col = lb_lower_mul(e, stride.col, v * e->lanes);
    lb_kval p = lb_k_ptr(b, row, col, 0);
    return widen(t, lb_lower_gather(e, p, stride.col, t->mask[v]));
  }
  lb_kval p = lb_k_ptr(b, row, lb_k_i64(b, v * e->lanes), 0);
  return widen(t, lb_k_load_masked(b, p, e->lanes, 0, t->mask[v], LB_K_NONE));
}

static lb_kval sum(const lb_tile *t, lb_kval acc, lb_kval x, lb_kval y) {
  lb_kbuilder *b = &t->m->e->b;
  if (t->m->quads) return lb_k_dot4(b, acc, x, y);
  if (lb_dtype_is_float(t->m->acc_dtype)) return lb_k_fma(b, x, y, acc);
  return lb_k_add(b, acc, lb_k_mul(b, x, y));
}

static void send_ahead(const lb_tile *t) {
  lb_lowering *e = t->m->e;
  if (t->next == LB_K_NONE) return;
  lb_k_prefetch(&e->b, lb_k_get(&e->b, t->ahead), 1);
  lb_lower_advance(e, t->ahead, t->pace);
}

// x, an element of row r, times the columns of a row of b.
static void add_products(const lb_tile *t, uint32_t r, lb_kval x,
                         const lb_kval *y) {
  lb_kbuilder *b = &t->m->e->b;
  for (uint32_t v = 0; v < t->vectors; v++) {
    lb_kval acc = lb_k_get(b, t->acc[r][v]);
    lb_k_set(b, t->acc[r][v], sum(t, acc, x, y[v]));
  }
}

static void step(lb_tile *t, lb_kval k) {
  lb_lowering *e = t->m->e;
  lb_kval y[LB_TILE_MAX_VECTORS], pointers[LB_TILE_MAX_POINTERS];
  lb_kval row = lb_k_get(&e->b, t->at_b);
  pointers_at(t, k, pointers);
  send_ahead(t);
  for (uint32_t v = 0; v < t->vectors; v++) y[v] = load_b(t, v, row, 0);
  lb_lower_advance(e, t->at_b,
                   stride_of_b(t));  // LLVM copies it if that comes last
  for (uint32_t r = 0; r < t->rows; r++)
    add_products(t, r, load_a(t, row_at(t, pointers, r)), y);
  if (!steps_by_one(t))
    lb_k_set(&e->b, t->at_a,
             lb_k_add(&e->b, lb_k_get(&e->b, t->at_a), t->step_a));
}

// Some rows of an operand, those columns of it that the tile has.
typedef struct part {
  const lb_soperand *of;
  lb_kval base, stride;
  lb_kval row;
  uint32_t rows;
} part;

// Where columns do not fill lines, rows begin somewhere in one, and end in one
// more.
static void send_for(const lb_tile *t, const part *p) {
  lb_kbuilder *b = &t->m->e->b;
  if (p->of->layout != LB_LAYOUT_FULL) return;
  int64_t size = (int64_t)lb_dtype_size(p->of->dtype);
  int64_t bytes = t->panels * t->m->panel_cols * size;
  bool fills =
      lb_facts_divides(t->m->e->facts, LB_DIM_COLS, (int)(LINE / size));
  lb_kval at = lb_k_add(b, lb_k_mul(b, p->row, p->stride), t->col);
  for (uint32_t r = 0; r < p->rows; r++) {
    lb_kval first = lb_k_ptr(b, p->base, at, 0);
    for (int64_t x = 0; x < bytes; x += LINE)
      lb_k_prefetch(b, lb_k_ptr(b, first, lb_k_i64(b, 0), x), 0);
    if (!fills)
      lb_k_prefetch(b, lb_k_ptr(b, first, lb_k_i64(b, 0), bytes - 1), 0);
    at = lb_k_add(b, at, p->stride);
  }
}

// Where outputs will be stored, three rows from `row` on.
static void send_for_outputs(const lb_tile *t, lb_kval row) {
  const lb_lowering *e = t->m->e;
  for (int i = 0; i < e->spec->n_out; i++)
    send_for(t, &(part){&e->spec->out[i], e->out[i], e->out_stride[i].row, row,
                        LB_ROWS_A_POINTER});
}

// What outputs are made of beside the sums, `rows` rows from `row` on.
static void send_for_inputs(const lb_tile *t, lb_kval row, uint32_t rows) {
  const lb_lowering *e = t->m->e;
  for (int i = lb_spec_factors(e->spec); i < e->spec->n_in; i++)
    send_for(
        t, &(part){&e->spec->in[i], e->in[i], e->in_stride[i].row, row, rows});
}

// Long sums are cut into parts, and with each outputs of three rows are sent
// for. When they are stored, all at once, what the next tile reads would wait
// behind them.
static void sum_products(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), k = e->dims[LB_DIM_K];
  lb_kval by = lb_k_i64(b, t->m->by);
  begin_steps(t);
  if (t->m->part == LB_K_NONE) {
    step(t, lb_k_loop(b, zero, k, by));
    lb_k_end(b);
    return;
  }
  lb_kval row = lb_k_reg(b, t->row);
  lb_kval begin = lb_k_loop(b, zero, k, t->m->part);
  lb_k_if(b, lb_k_le(b, lb_k_i64(b, long_sum(t->m)), k));
  send_for_outputs(t, lb_k_get(b, row));
  lb_k_end(b);
  lb_k_set(b, row, lb_lower_add(e, lb_k_get(b, row), LB_ROWS_A_POINTER));
  lb_kval end = lb_k_min(b, lb_k_add(b, begin, t->m->part), k);
  step(t, lb_k_loop(b, begin, end, by));
  lb_k_end(b);
  lb_k_end(b);
}

static lb_kval piece_of(lb_lowering *e, int input, lb_kval run, lb_kval step) {
  return lb_k_add(&e->b, lb_k_mul(&e->b, run, e->taps[input].run),
                  lb_k_mul(&e->b, step, e->taps[input].step));
}

// Tiles of one panel have few products a step, and wait for instructions: a
// product whose element is found with an index counts as two of them. Where
// rows are CLOSE, as in the first layer of a network, which has a stride of two
// and its image as it comes, places are numbers.
static bool may_be_close(const lb_tile *t) {
  return t->m->panels == 1 && t->m->e->lanes == LB_PANEL_COLS &&
         t->m->by == 1 && steps_by_one(t) && lb_matmul_has_panels(t->m);
}

// The place of row r, n elements behind that of the pointers.
static lb_kval close_row(const lb_tile *t, const lb_kval *pointers, uint32_t r,
                         uint32_t n) {
  lb_lowering *e = t->m->e;
  uint32_t pointer = t->is_short ? r / LB_ROWS_A_POINTER : 0;
  int64_t at = (r - pointer * LB_ROWS_A_POINTER) * CLOSE + n;
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[0].dtype);
  return lb_k_ptr(&e->b, pointers[pointer], lb_k_i64(&e->b, 0), at * size);
}

// A piece that begins `of_a` elements behind the pointers to rows. Windows have
// three taps mostly, which are one turn. Each step is inside of an `if` of the
// one before it, so that any number of them will do.
static void sum_close(lb_tile *t, lb_kval of_a) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval end = e->dims[LB_DIM_K], pointers[LB_TILE_MAX_POINTERS];
  lb_kval y[LB_TILE_MAX_VECTORS];
  begin_steps(t);
  lb_kval k = lb_k_loop(b, lb_k_i64(b, 0), end, lb_k_i64(b, AT_ONCE));
  lb_kval row = lb_k_get(b, t->at_b);
  pointers_at(t, lb_k_add(b, k, of_a), pointers);
  lb_lower_advance(e, t->at_b, lb_k_i64(b, AT_ONCE * t->m->line));
  for (uint32_t n = 0; n < AT_ONCE; n++) {
    if (n) lb_k_if(b, lb_k_lt(b, lb_lower_add(e, k, n), end));
    send_ahead(t);
    for (uint32_t v = 0; v < t->vectors; v++) y[v] = load_b(t, v, row, n);
    for (uint32_t r = 0; r < t->rows; r++)
      add_products(t, r, load_a(t, close_row(t, pointers, r, n)), y);
  }
  for (uint32_t n = 0; n < AT_ONCE; n++) lb_k_end(b);
}

// CONV: the pieces of rows and columns, one after the other. With each run,
// of which there are three mostly, a third of what is added to sums is sent
// for.
static void sum_pieces(lb_tile *t, bool close) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_tile first = *t;
  lb_kval zero = lb_k_i64(b, 0), one = lb_k_i64(b, 1);
  lb_kval run = lb_k_loop(b, zero, e->dims[LB_DIM_LEN], one);
  uint32_t third = (t->rows + 2) / 3;
  send_for_inputs(t, lb_k_add(b, t->row, lb_lower_mul(e, run, third)), third);
  lb_kval step = lb_k_loop(b, zero, e->dims[LB_DIM_STEPS], one);
  lb_kval of_a = piece_of(e, 0, run, step), of_b = piece_of(e, 1, run, step);
  t->b = lb_k_ptr(b, first.b, of_b, 0);
  if (close) {
    sum_close(t, of_a);
  } else {
    for (uint32_t r = 0; r < t->rows; r += LB_ROWS_A_POINTER)
      t->a[r / LB_ROWS_A_POINTER] =
          lb_k_ptr(b, first.a[r / LB_ROWS_A_POINTER], of_a, 0);
    sum_products(t);
  }
  lb_k_end(b);
  lb_k_end(b);
}

static void sum_windows(lb_tile *t) {
  lb_lowering *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_tile other = *t;
  if (!may_be_close(t)) {
    sum_pieces(t, false);
    return;
  }
  lb_k_if(b, lb_k_eq(b, e->in_stride[0].row, lb_k_i64(b, CLOSE)));
  sum_pieces(t, true);
  lb_k_else(b);
  sum_pieces(&other, false);
  lb_k_end(b);
}

void lb_sums_emit(lb_tile *t) {
  point_at_rows(t);
  // Panels that are a stride or two apart need no register each.
  if (!t->masked) point_at_columns(t);
  point_ahead(t);
  if (!lb_matmul_has_panels(t->m)) lb_tile_make_masks(t);
  begin_sums(t);
  if (t->m->e->spec->form == LB_FORM_CONV)
    sum_windows(t);
  else
    sum_products(t);
}
