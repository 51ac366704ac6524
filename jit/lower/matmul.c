// lower/matmul.c -- matrix products, and what is made of each element.
//
// A *tile* is some rows times some panels of 16 columns, its sums in registers,
// one for each row and vector. Columns are the outer loop: tiles of the full
// width, then narrower ones; what is left of the last panel is masked, and half
// of its vectors are left out if they have none of it. Where all columns fit
// into one tile, it is that one, masked. Rows are the inner one: tiles of all
// rows and of one row less, as many of each as make them come out even, which
// they do where the facts were chosen for the size. Else the last tile is
// *short*, which reads rows twice where it has too few. A is read in place, k
// is not blocked, b is prefetched. Around both, rows are cut into *bands* whose
// part of a stays in the second cache while all columns go by.
//
// Where b is in pairs, each lane of a sum has every other k of a column, two
// lanes of neighbours a column. A tile's panels hold half as many columns then,
// a step takes two k of a row of a at once, and in the end neighbours are
// added. Its tiles are of one width, the last column of them masked.
//
// A sum begins with -0.0, so that its first product comes out as it is. Where
// there is none, sums are 0.0, on a way of their own: loops that are known to
// have a turn need nothing for the case that they have not.
//
// There are more rows than registers for pointers to them: a pointer stands for
// three rows, which are one and two strides apart, and x86 adds a stride or two
// of them where it reads. In a short tile pointers go back until their rows are
// there: only the rows that are new are made to outputs.
//
// Every kind of tile is code to compile, so there are no more than three
// heights.
#include <limits.h>

#include "lower/emit.h"

enum {
  MAX_ROWS = 32,
  MAX_VECTORS = 32,
  MAX_PANELS = 8,
  MAX_LANES = 16,
  ROWS_A_POINTER = 3,
  MAX_POINTERS = (MAX_ROWS + 2) / ROWS_A_POINTER,
  PREFETCH_BYTES = 1024,    // ahead in b
  BAND_ELEMENTS = 1 << 17,  // of a in a band, about
  MIN_BAND = 8,             // tiles
  MIN_ROWS = 5,             // that a tile of one panel needs to be worth it
  MAX_INLINE = 4,           // nodes of an epilogue that each sum has a copy of
  MAX_AT_ONCE = 3,          // vectors: four take longer than one by one
  LONG_SUM = 96,            // steps, in which outputs have the time to come
  LINE = 64,                // bytes
};

// Heights of tiles, in the order in which they come, and how many there are up
// to each.
typedef struct heights {
  uint32_t rows[3];
  bool is_short[3];  // if it may be
  lb_kval until[3];
  int n;
} heights;

typedef struct matmul {
  lb_emit *e;
  uint8_t acc_node;
  lb_dtype acc_dtype;
  bool pairs;             // b is PAIRED
  uint32_t panel_cols;    // of a panel, or of what stands for one
  uint32_t rows, panels;  // of the largest tile
  lb_kval scratch;        // a tile in memory, or LB_K_NONE
  lb_kval some;           // if there is anything to sum
  bool in_place;          // an output may be the memory of an input
  uint8_t bias;           // the only input of columns alone, or LB_SPEC_NO_NODE
  heights heights;
  lb_kval begin, end;     // the present band, in tiles
  lb_kval row, next_row;  // registers: where it begins, and the next one
  lb_kval pace, a_pace;   // elements of b or a to send for with each step
  lb_kval part;           // steps that go by without sending for outputs
} matmul;

typedef struct tile {
  const matmul *m;
  uint32_t rows, panels;
  uint32_t vectors, finished;  // of sums a row, and of what is made of them
  bool masked, is_short;
  lb_kval row, col;           // the first
  lb_kval at[MAX_POINTERS];   // rows that pointers point to
  lb_kval number;             // in its column of tiles
  lb_kval a[MAX_POINTERS];    // pointers to rows
  lb_kval next;               // what is sent for, or NONE
  lb_kval share, pace;        // elements of it: with a tile, with a step
  lb_kval b;                  // pointer to the first column
  lb_kval panel[MAX_PANELS];  // elements from the first one to each, if any
  lb_kval at_a, at_b, ahead;  // registers: where a step reads and sends for
  lb_kval step_a;             // STRIDED: elements from a step to the next
  lb_kval mask[MAX_VECTORS];  // LB_K_NONE: all lanes
  lb_kval bias[MAX_VECTORS];  // of the node that is the same in all rows
  lb_kval acc[MAX_ROWS][MAX_VECTORS];
} tile;

// -- the sums ----------------------------------------------------------------

// The last row at which the rows of the pointer to row r are all there.
static lb_kval last_place(const tile *t, uint32_t r) {
  lb_emit *e = t->m->e;
  uint32_t n = t->rows - r;
  if (n > ROWS_A_POINTER) n = ROWS_A_POINTER;
  return lb_emit_add(e, e->dims[LB_DIM_ROWS], -(int64_t)n);
}

static void point_at_rows(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t r = 0; r < t->rows; r += ROWS_A_POINTER) {
    lb_kval row = lb_emit_add(e, t->row, r);
    if (t->is_short && r) row = lb_k_min(b, row, last_place(t, r));
    t->at[r / ROWS_A_POINTER] = row;
    lb_kval at = lb_k_mul(b, row, e->in_stride[0].row);
    t->a[r / ROWS_A_POINTER] = lb_k_ptr(b, e->in[0], at, 0);
  }
}

// Of b's panels, which are read past the last column and not past the last of
// them.
static lb_kval last_panel(const matmul *m) {
  lb_emit *e = m->e;
  lb_kval last = lb_emit_add(e, e->dims[LB_DIM_COLS], -1);
  return lb_k_div(&e->b, last, lb_k_i64(&e->b, m->panel_cols));
}

static lb_kval panel_of(const matmul *m, lb_kval col) {
  lb_kbuilder *b = &m->e->b;
  return lb_k_div(b, col, lb_k_i64(b, m->panel_cols));
}

static bool has_panels(const lb_emit *e) {
  return lb_panel_cols(e->spec->in[1].layout) != 0;
}

static void point_at_columns(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_stride stride = e->in_stride[1];
  if (has_panels(e)) {
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

static bool looks_ahead(const lb_emit *e) {
  return e->spec->form == LB_FORM_MATMUL && has_panels(e);
}

// What is sent for is one pointer, to either.
static bool looks_ahead_in_a(const lb_emit *e) {
  const lb_soperand *in = e->spec->in;
  return looks_ahead(e) && in[0].layout == LB_LAYOUT_FULL &&
         in[0].dtype == in[1].dtype;
}

static lb_kval steps_of(const matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval k = m->e->dims[LB_DIM_K];
  return m->pairs ? lb_k_div(b, k, lb_k_i64(b, 2)) : k;
}

// Tiles above each other share in sending for the next column of tiles.
static void look_at_next_column(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval panel = lb_emit_add(e, panel_of(t->m, t->col), t->panels);
  lb_kval at = lb_k_mul(b, panel, e->in_stride[1].row);
  t->next = lb_k_ptr(b, e->in[1], at, 0);
  t->pace = t->m->pace;
  t->share = lb_k_mul(b, steps_of(t->m), t->pace);
}

// If a is read for the first time, and b is there or has less to come: in the
// first column of a band, unless rows overlap.
static lb_kval is_fresh(const tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0);
  lb_kval first = lb_k_eq(b, t->col, zero);
  lb_kval later = lb_k_lt(b, zero, t->m->begin);
  lb_kval more = lb_k_le(b, e->dims[LB_DIM_COLS], e->dims[LB_DIM_ROWS]);
  lb_kval apart = lb_k_le(b, e->dims[LB_DIM_K], e->in_stride[0].row);
  return lb_k_and(b, lb_k_and(b, first, apart), lb_k_or(b, later, more));
}

// There each tile sends for the rows of the next one.
static void look_at_next_rows(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval fresh = is_fresh(t), stride = e->in_stride[0].row;
  lb_kval share = lb_emit_mul(e, stride, t->m->rows);
  lb_kval at = lb_k_mul(b, lb_k_get(b, t->m->row), stride);
  lb_kval next = lb_k_ptr(b, e->in[0], lb_k_add(b, at, share), 0);
  t->next = lb_k_select(b, fresh, next, t->next);
  t->pace = lb_k_select(b, fresh, t->m->a_pace, t->pace);
  t->share = lb_k_select(b, fresh, share, t->share);
}

// What the tiles of a column send for, with every step a bit: read all at once
// it would come too slowly.
static void look_ahead(tile *t) {
  t->next = LB_K_NONE;
  if (looks_ahead(t->m->e)) look_at_next_column(t);
  if (looks_ahead_in_a(t->m->e)) look_at_next_rows(t);
}

static void point_ahead(tile *t) {
  lb_kbuilder *b = &t->m->e->b;
  if (t->next == LB_K_NONE) return;
  t->next = lb_k_ptr(b, t->next, lb_k_mul(b, t->number, t->share), 0);
}

static lb_kval tail_of(const tile *t, lb_kval col) {
  lb_emit *e = t->m->e;
  lb_kval left = lb_k_sub(&e->b, e->dims[LB_DIM_COLS], col);
  return lb_k_tail(&e->b, left, e->lanes);
}

// Which lanes from column c of the tile on are columns of it.
static lb_kval mask_at(const tile *t, lb_kval c) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  uint32_t width = t->panels * t->m->panel_cols;
  lb_kval left = LB_K_NONE;
  if (t->masked)
    left = lb_k_sub(b, e->dims[LB_DIM_COLS], lb_k_add(b, t->col, c));
  if (width % e->lanes) {  // its last vector is half full
    lb_kval own = lb_k_sub(b, lb_k_i64(b, width), c);
    left = left == LB_K_NONE ? own : lb_k_min(b, left, own);
  }
  return left == LB_K_NONE ? left : lb_k_tail(b, left, e->lanes);
}

static void make_masks(tile *t) {
  lb_emit *e = t->m->e;
  for (uint32_t v = 0; v < t->finished; v++)
    t->mask[v] = mask_at(t, lb_k_i64(&e->b, v * e->lanes));
}

static void begin_sums(tile *t) {
  lb_emit *e = t->m->e;
  lb_ktype type = lb_kt(t->m->acc_dtype, e->lanes);
  lb_kval first = lb_k_num(&e->b, type, -0.0);
  for (uint32_t r = 0; r < t->rows; r++)
    for (uint32_t v = 0; v < t->vectors; v++)
      t->acc[r][v] = lb_k_reg(&e->b, first);
}

static lb_kval widen(const tile *t, lb_kval x) {
  lb_kbuilder *b = &t->m->e->b;
  bool same = lb_k_type(b, x).dtype == t->m->acc_dtype;
  return same ? x : lb_k_cast(b, x, t->m->acc_dtype);
}

static bool steps_by_one(const tile *t) {
  return t->m->e->spec->in[0].layout == LB_LAYOUT_FULL;
}

// From a row of b to the next, in pairs from two to the next two.
static lb_kval stride_of_b(const tile *t) {
  lb_emit *e = t->m->e;
  if (has_panels(e)) return lb_k_i64(&e->b, LB_PACK_COLS);
  return e->in_stride[1].row;
}

// Places go from step to step: multiplied, they would take the turn of a
// product, as one unit of two makes those of integers, too.
static void begin_steps(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  if (!steps_by_one(t)) {
    t->at_a = lb_k_reg(b, lb_k_i64(b, 0));
    t->step_a = lb_emit_mul(e, e->in_stride[0].col, t->m->pairs ? 2 : 1);
  }
  t->at_b = lb_k_reg(b, t->b);
  if (t->next != LB_K_NONE) t->ahead = lb_k_reg(b, t->next);
}

// A register that holds a pointer: `by` elements on.
static void advance(const tile *t, lb_kval reg, lb_kval by) {
  lb_kbuilder *b = &t->m->e->b;
  lb_k_set(b, reg, lb_k_ptr(b, lb_k_get(b, reg), by, 0));
}

// The pointers to rows at k.
static void pointers_at(const tile *t, lb_kval k, lb_kval *out) {
  lb_emit *e = t->m->e;
  lb_kval at = steps_by_one(t) ? k : lb_k_get(&e->b, t->at_a);
  for (uint32_t r = 0; r < t->rows; r += ROWS_A_POINTER)
    out[r / ROWS_A_POINTER] = lb_k_ptr(&e->b, t->a[r / ROWS_A_POINTER], at, 0);
}

// Elements k and k + 1 by turns in all lanes.
static lb_kval load_pair(const tile *t, lb_kval p) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  bool full = e->spec->in[0].layout == LB_LAYOUT_FULL;
  uint8_t table[MAX_LANES];
  for (uint32_t i = 0; i < MAX_LANES; i++)
    table[i] = (uint8_t)(i % 2 * (full ? 1 : e->lanes));
  lb_kval x = widen(t, lb_k_load(b, p, full ? 2 : 1, 0)), y = x;
  if (!full) {
    p = lb_k_ptr(b, p, e->in_stride[0].col, 0);
    x = lb_k_splat(b, x, e->lanes);
    y = lb_k_splat(b, widen(t, lb_k_load(b, p, 1, 0)), e->lanes);
  }
  return lb_k_shuffle(b, x, y, table, e->lanes);
}

// a[row r, k] in all lanes.
static lb_kval load_a(const tile *t, const lb_kval *pointers, uint32_t r) {
  lb_emit *e = t->m->e;
  lb_kval p = pointers[r / ROWS_A_POINTER];
  uint32_t strides = r % ROWS_A_POINTER;
  if (strides)
    p = lb_k_ptr(&e->b, p, lb_emit_mul(e, e->in_stride[0].row, strides), 0);
  if (t->m->pairs) return load_pair(t, p);
  return lb_k_splat(&e->b, widen(t, lb_k_load(&e->b, p, 1, 0)), e->lanes);
}

static lb_kval load_packed(const tile *t, uint32_t v, lb_kval row) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  uint32_t per_panel = LB_PACK_COLS / e->lanes;
  int64_t size = (int64_t)lb_dtype_size(e->spec->in[1].dtype);
  int64_t disp = v % per_panel * e->lanes * size;
  lb_kval at = t->panel[v / per_panel];
  if (v % per_panel == 0)
    lb_k_prefetch(b, lb_k_ptr(b, row, at, disp + PREFETCH_BYTES), 0);
  return lb_k_load(b, lb_k_ptr(b, row, at, disp), e->lanes, 0);
}

// Columns of vector v, in the present row of b.
static lb_kval load_b(const tile *t, uint32_t v) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_stride stride = e->in_stride[1];
  lb_kval row = lb_k_get(b, t->at_b);
  if (has_panels(e)) return widen(t, load_packed(t, v, row));
  if (e->spec->in[1].layout == LB_LAYOUT_STRIDED) {
    lb_kval col = lb_emit_mul(e, stride.col, v * e->lanes);
    lb_kval p = lb_k_ptr(b, row, col, 0);
    return widen(t, lb_emit_gather(e, p, stride.col, t->mask[v]));
  }
  lb_kval p = lb_k_ptr(b, row, lb_k_i64(b, v * e->lanes), 0);
  return widen(t, lb_k_load_masked(b, p, e->lanes, 0, t->mask[v], LB_K_NONE));
}

static lb_kval sum(const tile *t, lb_kval acc, lb_kval x, lb_kval y) {
  lb_kbuilder *b = &t->m->e->b;
  if (lb_dtype_is_float(t->m->acc_dtype)) return lb_k_fma(b, x, y, acc);
  return lb_k_add(b, acc, lb_k_mul(b, x, y));
}

static void step(tile *t, lb_kval k) {
  lb_emit *e = t->m->e;
  lb_kval y[MAX_VECTORS], pointers[MAX_POINTERS];
  pointers_at(t, k, pointers);
  if (t->next != LB_K_NONE) {
    lb_k_prefetch(&e->b, lb_k_get(&e->b, t->ahead), 1);
    advance(t, t->ahead, t->pace);
  }
  for (uint32_t v = 0; v < t->vectors; v++) y[v] = load_b(t, v);
  advance(t, t->at_b, stride_of_b(t));  // LLVM copies it if that comes last
  for (uint32_t r = 0; r < t->rows; r++) {
    lb_kval x = load_a(t, pointers, r);
    for (uint32_t v = 0; v < t->vectors; v++) {
      lb_kval acc = lb_k_get(&e->b, t->acc[r][v]);
      lb_k_set(&e->b, t->acc[r][v], sum(t, acc, x, y[v]));
    }
  }
  if (!steps_by_one(t))
    lb_k_set(&e->b, t->at_a,
             lb_k_add(&e->b, lb_k_get(&e->b, t->at_a), t->step_a));
}

// Where outputs will be stored, three rows from `row` on.
static void send_for_outputs(const tile *t, lb_kval row) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  for (int i = 0; i < e->spec->n_out; i++) {
    if (e->spec->out[i].layout != LB_LAYOUT_FULL) continue;
    int64_t size = (int64_t)lb_dtype_size(e->spec->out[i].dtype);
    lb_kval stride = e->out_stride[i].row;
    lb_kval at = lb_k_add(b, lb_k_mul(b, row, stride), t->col);
    for (int r = 0; r < ROWS_A_POINTER; r++) {
      lb_kval p = lb_k_ptr(b, e->out[i], at, 0);
      for (int64_t x = 0; x < t->panels * t->m->panel_cols * size; x += LINE)
        lb_k_prefetch(b, lb_k_ptr(b, p, lb_k_i64(b, 0), x), 0);
      at = lb_k_add(b, at, stride);
    }
  }
}

// Long sums are cut into parts, and with each outputs of three rows are sent
// for. When they are stored, all at once, what the next tile reads would wait
// behind them.
static void sum_products(tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), k = e->dims[LB_DIM_K];
  lb_kval by = lb_k_i64(b, t->m->pairs ? 2 : 1);
  begin_steps(t);
  if (t->m->part == LB_K_NONE) {
    step(t, lb_k_loop(b, zero, k, by));
    lb_k_end(b);
    return;
  }
  lb_kval row = lb_k_reg(b, t->row);
  lb_kval begin = lb_k_loop(b, zero, k, t->m->part);
  lb_k_if(b, lb_k_le(b, lb_k_i64(b, LONG_SUM), k));
  send_for_outputs(t, lb_k_get(b, row));
  lb_k_end(b);
  lb_k_set(b, row, lb_emit_add(e, lb_k_get(b, row), ROWS_A_POINTER));
  lb_kval end = lb_k_min(b, lb_k_add(b, begin, t->m->part), k);
  step(t, lb_k_loop(b, begin, end, by));
  lb_k_end(b);
  lb_k_end(b);
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
  for (uint32_t r = 0; r < t->rows; r += ROWS_A_POINTER)
    t->a[r / ROWS_A_POINTER] =
        lb_k_ptr(b, first.a[r / ROWS_A_POINTER], of_a, 0);
  t->b = lb_k_ptr(b, first.b, of_b, 0);
  sum_products(t);
  lb_k_end(b);
  lb_k_end(b);
}

// -- what is made of them ----------------------------------------------------

// Sums of even k plus those of odd k: neighbours in x, then in y.
static lb_kval add_neighbours(lb_emit *e, lb_kval x, lb_kval y) {
  lb_kval half[2];
  for (uint8_t odd = 0; odd < 2; odd++) {
    uint8_t table[MAX_LANES];
    for (uint32_t i = 0; i < MAX_LANES; i++) table[i] = (uint8_t)(2 * i + odd);
    half[odd] = lb_k_shuffle(&e->b, x, y, table, e->lanes);
  }
  return lb_k_add(&e->b, half[0], half[1]);
}

// The sums of vector v of the columns of row r.
static lb_kval sum_of(const tile *t, uint32_t r, uint32_t v) {
  lb_kbuilder *b = &t->m->e->b;
  if (!t->m->pairs) return lb_k_get(b, t->acc[r][v]);
  uint32_t first = 2 * v, second = first + 1 < t->vectors ? first + 1 : first;
  return add_neighbours(t->m->e, lb_k_get(b, t->acc[r][first]),
                        lb_k_get(b, t->acc[r][second]));
}

static bool has_function(const lb_emit *e) {
  for (int i = 0; i < e->spec->n_nodes; i++)
    if (e->scope[i] == LB_SCOPE_EACH && lb_emit_is_costly(&e->spec->nodes[i]))
      return true;
  return false;
}

// What is made of `acc` at the present place.
static void finish_vector(const tile *t, lb_kval acc) {
  lb_emit *e = t->m->e;
  lb_stores s;
  e->lanes_of[t->m->acc_node] = acc;
  lb_emit_values(e, &s);
  lb_emit_stores(e, &s);
}

static void finish_row(const tile *t, uint32_t r) {
  lb_emit *e = t->m->e;
  uint32_t pointer = r / ROWS_A_POINTER, first = pointer * ROWS_A_POINTER;
  lb_kval row = lb_emit_add(e, t->at[pointer], r - first);
  bool again = t->is_short && first && t->m->in_place;
  if (again) lb_k_if(&e->b, lb_k_le(&e->b, lb_emit_add(e, t->row, first), row));
  lb_emit_row(e, row);
  for (uint32_t v = 0; v < t->finished; v++) {
    lb_emit_at(e, lb_emit_add(e, t->col, v * e->lanes), t->mask[v]);
    if (t->m->bias != LB_SPEC_NO_NODE) e->lanes_of[t->m->bias] = t->bias[v];
    finish_vector(t, sum_of(t, r, v));
  }
  if (again) lb_k_end(&e->b);
}

static void finish_inline(tile *t) {
  lb_emit *e = t->m->e;
  lb_emit_all(e);  // here: no register is held while summing
  if (has_panels(e)) make_masks(t);
  for (uint32_t v = 0; t->m->bias != LB_SPEC_NO_NODE && v < t->finished; v++) {
    lb_emit_at(e, lb_emit_add(e, t->col, v * e->lanes), t->mask[v]);
    t->bias[v] = lb_emit_value(e, t->m->bias);
  }
  for (uint32_t r = 0; r < t->rows; r++) finish_row(t, r);
}

// The place in memory of the rows that belong to a pointer.
static lb_kval place_of(const tile *t, uint32_t pointer) {
  lb_emit *e = t->m->e;
  lb_kval row = lb_k_i64(&e->b, pointer * ROWS_A_POINTER);
  if (t->is_short) row = lb_k_sub(&e->b, t->at[pointer], t->row);
  row = lb_emit_mul(e, row, t->finished * e->lanes);
  return lb_k_ptr(&e->b, t->m->scratch, row, 0);
}

static void spill_sums(const tile *t) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval place = LB_K_NONE;
  for (uint32_t r = 0; r < t->rows; r++) {
    uint32_t in = r % ROWS_A_POINTER * t->finished;
    if (in == 0) place = place_of(t, r / ROWS_A_POINTER);
    for (uint32_t v = 0; v < t->finished; v++)
      lb_k_store(b, lb_k_ptr(b, place, lb_k_i64(b, (in + v) * e->lanes), 0),
                 sum_of(t, r, v), 0);
  }
}

// Sums of nothing.
static void put_zeros(const tile *t, lb_kval rows) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval zeros = lb_k_num(b, lb_kt(t->m->acc_dtype, e->lanes), 0);
  lb_kval n = lb_emit_mul(e, rows, t->finished * e->lanes);
  lb_kval at = lb_k_loop(b, lb_k_i64(b, 0), n, lb_k_i64(b, e->lanes));
  lb_k_store(b, lb_k_ptr(b, t->m->scratch, at, 0), zeros, 0);
  lb_k_end(b);
}

// The same where there is no tile in memory: outputs of zeros.
static void finish_zeros(const matmul *m) {
  lb_emit *e = m->e;
  lb_kbuilder *b = &e->b;
  tile t = {.m = m, .masked = true};
  lb_kval zero = lb_k_i64(b, 0), cols = e->dims[LB_DIM_COLS];
  lb_emit_all(e);
  lb_emit_row(e, lb_k_loop(b, zero, e->dims[LB_DIM_ROWS], lb_k_i64(b, 1)));
  lb_kval col = lb_k_loop(b, zero, cols, lb_k_i64(b, e->lanes));
  lb_emit_at(e, col, tail_of(&t, col));
  finish_vector(&t, lb_k_num(b, lb_kt(m->acc_dtype, e->lanes), 0));
  lb_k_end(b);
  lb_k_end(b);
}

// The vectors of a row, one by one in a loop: constants of functions, and what
// they hold, take all registers.
static void finish_in_turn(const tile *t, lb_kval place) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval width = lb_k_i64(b, t->finished * e->lanes);
  lb_kval c = lb_k_loop(b, lb_k_i64(b, 0), width, lb_k_i64(b, e->lanes));
  lb_emit_at(e, lb_k_add(b, t->col, c), mask_at(t, c));
  lb_kval acc = lb_k_load(b, lb_k_get(b, place), e->lanes, 0);
  advance(t, place, lb_k_i64(b, e->lanes));
  finish_vector(t, acc);
  lb_k_end(b);
}

// The same all at once, where no function is among what is made of them.
static void finish_at_once(const tile *t, lb_kval place) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval at = lb_k_get(b, place);
  for (uint32_t v = 0; v < t->finished; v++) {
    lb_kval by = lb_k_i64(b, v * e->lanes);
    lb_emit_at(e, lb_k_add(b, t->col, by), t->mask[v]);
    finish_vector(t, lb_k_load(b, lb_k_ptr(b, at, by, 0), e->lanes, 0));
  }
  advance(t, place, lb_k_i64(b, t->finished * e->lanes));
}

// Long epilogues run in a loop over `rows` rows that were put in memory: code
// for all sums at once, and for each height of tile, would be slow to compile.
// Turns of the loop overlap.
static void finish_looped(const tile *shape, lb_kval rows) {
  tile t = *shape;
  lb_emit *e = t.m->e;
  lb_kbuilder *b = &e->b;
  bool in_turn = has_function(e) || t.finished > MAX_AT_ONCE;
  lb_emit_all(e);
  if (!in_turn) make_masks(&t);
  lb_kval place = lb_k_reg(b, t.m->scratch);
  lb_kval r = lb_k_loop(b, lb_k_i64(b, 0), rows, lb_k_i64(b, 1));
  lb_emit_row(e, lb_k_add(b, t.row, r));
  if (in_turn)
    finish_in_turn(&t, place);
  else
    finish_at_once(&t, place);
  lb_k_end(b);
}

// -- tiles -------------------------------------------------------------------

// The sums of `rows` rows, made to outputs or put in memory.
static void emit_tile(const tile *shape, uint32_t rows, bool is_short) {
  tile t = *shape;
  t.rows = rows;
  t.is_short = is_short;
  point_at_rows(&t);
  point_at_columns(&t);
  point_ahead(&t);
  if (!has_panels(t.m->e)) make_masks(&t);
  begin_sums(&t);
  if (t.m->e->spec->form == LB_FORM_CONV)
    sum_pieces(&t);
  else
    sum_products(&t);
  if (t.m->scratch != LB_K_NONE) {
    spill_sums(&t);
  } else {
    finish_inline(&t);
  }
}

// As many tiles of `rows` as there are between *row and `end`, the last of
// which may have no more than `least`.
static void add_height(lb_emit *e, uint32_t rows, uint32_t least, lb_kval end,
                       lb_kval *row, heights *h) {
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, end, *row);
  lb_kval n = lb_emit_add(e, left, rows - least);
  n = lb_k_div(b, n, lb_k_i64(b, rows));
  h->rows[h->n] = rows;
  h->is_short[h->n] = least < rows;
  h->until[h->n] = h->n ? lb_k_add(b, h->until[h->n - 1], n) : n;
  lb_kval all = lb_emit_mul(e, n, rows);
  if (least < rows) all = lb_k_min(b, all, left);
  *row = lb_k_add(b, *row, all);
  h->n++;
}

// ceil(M / rows) tiles, as many of them full as leaves one row less to each of
// the others, if there are so many.
static void find_heights(const matmul *m, heights *h) {
  lb_emit *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval all = e->dims[LB_DIM_ROWS], row = lb_k_i64(b, 0), zero = row;
  uint32_t rows = m->rows, less = rows - 1;
  uint32_t least = less < ROWS_A_POINTER ? less : ROWS_A_POINTER;
  if (lb_facts_divides(e->facts, LB_DIM_ROWS, (int)rows)) {
    add_height(e, rows, rows, all, &row, h);
    return;
  }
  lb_kval n = lb_k_div(b, lb_emit_add(e, all, less), lb_k_i64(b, rows));
  lb_kval full = lb_k_sub(b, all, lb_emit_mul(e, n, less));
  lb_kval split = lb_emit_mul(e, lb_k_max(b, full, zero), rows);
  add_height(e, rows, rows, split, &row, h);
  add_height(e, less, least, all, &row, h);
  if (least > 1) add_height(e, 1, 1, all, &row, h);
}

// How many rows the i-th tile has.
static lb_kval rows_of(const tile *t, const heights *h, lb_kval i) {
  lb_emit *e = t->m->e;
  lb_kbuilder *b = &e->b;
  lb_kval rows = LB_K_NONE;
  for (int n = h->n - 1; n >= 0; n--) {
    lb_kval here = lb_k_i64(b, h->rows[n]);
    if (h->is_short[n])
      here = lb_k_min(b, here, lb_k_sub(b, e->dims[LB_DIM_ROWS], t->row));
    rows = rows == LB_K_NONE
               ? here
               : lb_k_select(b, lb_k_lt(b, i, h->until[n]), here, rows);
  }
  return rows;
}

// The i-th tile of a column of tiles.
static void emit_one_of(const tile *t, const heights *h, lb_kval i) {
  lb_kbuilder *b = &t->m->e->b;
  for (int n = 0; n < h->n; n++) {
    bool more = n + 1 < h->n;
    if (more) lb_k_if(b, lb_k_lt(b, i, h->until[n]));
    emit_tile(t, h->rows[n], h->is_short[n]);
    if (more) lb_k_else(b);
  }
  for (int n = 0; n + 1 < h->n; n++) lb_k_end(b);
}

static void emit_looped(const tile *t, lb_kval i, lb_kval rows) {
  lb_kbuilder *b = &t->m->e->b;
  lb_k_if(b, t->m->some);
  emit_one_of(t, &t->m->heights, i);
  lb_k_else(b);
  put_zeros(t, rows);
  lb_k_end(b);
  finish_looped(t, rows);
}

static void emit_rows(tile *t) {
  const matmul *m = t->m;
  lb_kbuilder *b = &m->e->b;
  lb_kval row = lb_k_reg(b, lb_k_get(b, m->row));
  look_ahead(t);
  lb_kval i = lb_k_loop(b, m->begin, m->end, lb_k_i64(b, 1));
  t->row = lb_k_get(b, row);
  t->number = lb_k_sub(b, i, m->begin);
  lb_kval rows = rows_of(t, &m->heights, i);
  if (m->scratch != LB_K_NONE)
    emit_looped(t, i, rows);
  else
    emit_one_of(t, &m->heights, i);
  lb_k_set(b, row, lb_k_add(b, t->row, rows));
  lb_k_end(b);
  lb_k_set(b, m->next_row, lb_k_get(b, row));
}

// Columns from `begin` on in tiles like t, of all vectors of its panels if it
// does not say how many; where they ended.
static lb_kval emit_columns(const matmul *m, tile t, lb_kval begin) {
  lb_emit *e = m->e;
  lb_kbuilder *b = &e->b;
  t.m = m;
  if (!t.vectors) t.vectors = t.panels * LB_PACK_COLS / e->lanes;
  t.finished = m->pairs ? (t.vectors + 1) / 2 : t.vectors;
  lb_kval cols = e->dims[LB_DIM_COLS];
  int64_t width = t.panels * m->panel_cols, up = t.masked ? width - 1 : 0;
  lb_kval left = lb_k_sub(b, lb_emit_add(e, cols, up), begin);
  lb_kval end = lb_k_add(b, begin, lb_emit_down(e, left, width));
  t.col = lb_k_loop(b, begin, end, lb_k_i64(b, width));
  emit_rows(&t);
  lb_k_end(b);
  return end;
}

// The last columns, a panel at a time. Where they fit into half of its vectors,
// the others are left out.
static void emit_last_columns(const matmul *m, lb_kval begin) {
  lb_emit *e = m->e;
  lb_kbuilder *b = &e->b;
  tile t = {.panels = 1, .masked = true};
  uint32_t half = m->pairs ? 0 : LB_PACK_COLS / e->lanes / 2;
  lb_kval left = lb_k_sub(b, e->dims[LB_DIM_COLS], begin);
  if (half) {
    lb_k_if(b, lb_k_le(b, left, lb_k_i64(b, half * e->lanes)));
    t.vectors = half;
    emit_columns(m, t, begin);
    lb_k_else(b);
    t.vectors = 0;
  }
  emit_columns(m, t, begin);
  if (half) lb_k_end(b);
}

// What is left after a tile of `panels`: one panel at a time, which makes
// chains enough if there are some rows.
static uint32_t narrower(const matmul *m, uint32_t panels) {
  return m->rows >= MIN_ROWS ? panels > 1 : panels / 2;
}

static void emit_band(const matmul *m) {
  lb_emit *e = m->e;
  lb_kval col = lb_k_i64(&e->b, 0);
  int widest = (int)(m->panels * m->panel_cols);
  bool one =
      lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, INT_MAX) <= widest;
  if (m->pairs || (one && m->panels > 1)) {
    bool divides = lb_facts_divides(e->facts, LB_DIM_COLS, widest);
    emit_columns(m, (tile){.panels = m->panels, .masked = !divides}, col);
    return;
  }
  for (uint32_t n = m->panels; n; n = narrower(m, n)) {
    bool divides =
        lb_facts_divides(e->facts, LB_DIM_COLS, (int)(n * m->panel_cols));
    bool last = n == 1 && (n < m->panels || one) && !divides;
    if (!last) col = emit_columns(m, (tile){.panels = n}, col);
    if (divides) return;
    if (last) break;
  }
  emit_last_columns(m, col);
}

static lb_kval tiles_a_band(const matmul *m) {
  lb_emit *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval one = lb_k_i64(b, 1), k = lb_k_max(b, e->dims[LB_DIM_K], one);
  lb_kval n = lb_k_div(b, lb_k_i64(b, BAND_ELEMENTS / m->rows), k);
  return lb_k_max(b, n, lb_k_i64(b, MIN_BAND));
}

// What the tiles of a band send for together is as much as a column of tiles
// has; no more than a line a step.
static lb_kval pace_of(const matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval tiles = lb_k_sub(b, m->end, m->begin);
  lb_kval cols = lb_k_i64(b, m->panels * LB_PACK_COLS - 1);
  lb_kval pace = lb_k_div(b, lb_k_add(b, cols, tiles), tiles);
  return lb_k_min(b, pace, lb_k_i64(b, LB_PACK_COLS));
}

// A tile's rows of a, in as many steps as it has; no more than a line a step.
static lb_kval a_pace_of(const matmul *m) {
  lb_emit *e = m->e;
  lb_kbuilder *b = &e->b;
  lb_kval steps = lb_k_max(b, steps_of(m), lb_k_i64(b, 1));
  lb_kval all = lb_emit_mul(e, e->in_stride[0].row, m->rows);
  lb_kval pace = lb_k_div(b, all, steps);
  return lb_k_min(b, pace, lb_k_i64(b, LB_PACK_COLS));
}

// A part for each three rows; short sums are one. Long epilogues store little
// at a time.
static lb_kval part_of(const matmul *m) {
  lb_emit *e = m->e;
  lb_kbuilder *b = &e->b;
  if (e->spec->form != LB_FORM_MATMUL || m->rows <= ROWS_A_POINTER ||
      m->scratch != LB_K_NONE)
    return LB_K_NONE;
  lb_kval k = lb_k_max(b, e->dims[LB_DIM_K], lb_k_i64(b, 1));
  int64_t parts = (m->rows + ROWS_A_POINTER - 1) / ROWS_A_POINTER;
  lb_kval n = lb_k_div(b, lb_emit_add(e, k, parts - 1), lb_k_i64(b, parts));
  if (m->pairs) n = lb_emit_down(e, lb_emit_add(e, n, 1), 2);
  return lb_k_select(b, lb_k_lt(b, k, lb_k_i64(b, LONG_SUM)), k, n);
}

static void emit_bands(matmul *m) {
  lb_kbuilder *b = &m->e->b;
  lb_kval zero = lb_k_i64(b, 0), size = tiles_a_band(m);
  find_heights(m, &m->heights);
  m->part = part_of(m);
  if (looks_ahead_in_a(m->e)) m->a_pace = a_pace_of(m);
  lb_kval all = m->heights.until[m->heights.n - 1];
  m->row = lb_k_reg(b, zero);
  m->next_row = lb_k_reg(b, zero);
  m->begin = lb_k_loop(b, zero, all, size);
  m->end = lb_k_min(b, lb_k_add(b, m->begin, size), all);
  if (looks_ahead(m->e)) m->pace = pace_of(m);
  emit_band(m);
  lb_k_set(b, m->row, lb_k_get(b, m->next_row));
  lb_k_end(b);
}

// -- choices -----------------------------------------------------------------

static bool choose_tile(matmul *m) {
  lb_emit *e = m->e;
  bool wide = lb_dtype_size(m->acc_dtype) > 4 && e->target->tile_cols > 16;
  uint32_t cols = e->target->tile_cols / (wide ? 2 : 1);
  int rows = (int)e->target->tile_rows;
  if (m->pairs) cols /= 2;
  rows = lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  cols =
      (uint32_t)lb_facts_get(e->facts, LB_CHOOSE_TILE, LB_DIM_COLS, (int)cols);
  m->rows = (uint32_t)rows;
  m->panels = cols / m->panel_cols;
  if (rows >= 1 && rows <= MAX_ROWS && cols % m->panel_cols == 0 &&
      m->panels >= 1 && m->panels <= MAX_PANELS)
    return true;
  lb_kbuild_fail(&e->b, lb_error(LB_UNSUPPORTED,
                                 "lower: a tile of %dx%u; rows go from 1 to "
                                 "%d, columns by %u to %u",
                                 rows, cols, MAX_ROWS, m->panel_cols,
                                 MAX_PANELS * m->panel_cols));
  return false;
}

// More than one would take the registers of sums.
static uint8_t only_bias(const lb_emit *e) {
  uint8_t found = LB_SPEC_NO_NODE;
  for (uint8_t i = 0; i < e->spec->n_nodes; i++) {
    const lb_snode *n = &e->spec->nodes[i];
    if (n->op != LB_S_INPUT || e->spec->in[n->arg].layout != LB_LAYOUT_COLS)
      continue;
    if (found != LB_SPEC_NO_NODE) return LB_SPEC_NO_NODE;
    found = i;
  }
  return found;
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

static lb_kval something_to_sum(lb_emit *e) {
  lb_kbuilder *b = &e->b;
  lb_kval zero = lb_k_i64(b, 0), some = lb_k_lt(b, zero, e->dims[LB_DIM_K]);
  for (int d = LB_DIM_LEN; d < lb_spec_dims(e->spec); d++)
    some = lb_k_and(b, some, lb_k_lt(b, zero, e->dims[d]));
  return some;
}

void lb_emit_matmul(lb_emit *e) {
  lb_kbuilder *b = &e->b;
  matmul m = {.e = e, .scratch = LB_K_NONE};
  while (e->spec->nodes[m.acc_node].op != LB_S_ACC) m.acc_node++;
  m.acc_dtype = e->spec->nodes[m.acc_node].dtype;
  m.pairs = e->spec->in[1].layout == LB_LAYOUT_PAIRED;
  m.panel_cols = m.pairs ? LB_PAIR_COLS : LB_PACK_COLS;
  if (!choose_tile(&m)) return;
  m.some = something_to_sum(e);
  m.in_place = lb_emit_in_place(e);
  m.bias = only_bias(e);
  if (is_long(e)) {
    m.scratch = lb_k_local(b, m.acc_dtype, m.rows * m.panels * LB_PACK_COLS);
    emit_bands(&m);
    return;
  }
  lb_k_if(b, m.some);
  emit_bands(&m);
  lb_k_else(b);
  finish_zeros(&m);
  lb_k_end(b);
}
