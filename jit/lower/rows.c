// lower/rows.c -- reductions along rows, and what is made of them.
//
// A reduction needs a pass over the row, after those of its sources; a last
// pass writes the outputs. Nodes of scope EACH are computed again in each pass
// that needs them, but for one *kept* in the row of an output that it will be
// replaced in: softmax's exp, say.
//
// A reduction has 64 lanes whatever vectors have: 64 / lanes accumulators,
// element j in lane j % 64. They begin with the identity (-0.0 for sums, which
// changes no number when added, 0.0 does), and where a mask is off the identity
// is combined. So lanes with no elements do not show. They are registers, or
// memory where registers are needed for mathematics.
//
// *Short* rows, of one or a few vectors, go through in blocks of several. All
// passes over them are values of one piece of code, in which nothing is made
// twice; vectors of different rows are combined side by side until each lane is
// what became of a row (lb_lower_fold).
//
// *Long* rows have more than LB_SUM_COLS elements. Their sums of floats are
// made block by block, with totals of float64 in memory for each lane; the
// branch is the same for all rows, and costs others nothing.
#include <limits.h>
#include <math.h>
#include <string.h>

#include "kir/num.h"
#include "lower/lowering.h"

enum {
  MAX_VECTORS = LB_SPEC_LANES / 4,
  MAX_REGISTERS = 4,  // of accumulators, in a pass with mathematics
  BLOCK_ROWS = 8,
  BLOCK_VECTORS = LB_SHORT_COLS / 4,
};

typedef struct keeping {
  uint8_t node, out;
  uint8_t stage;  // of the pass that keeps it; 0: nothing is kept
} keeping;

typedef struct reduction {
  uint8_t node;
  lb_kval identity;          // in lanes
  lb_kval acc[MAX_VECTORS];  // registers
  lb_kval memory;            // LB_K_NONE: registers
  lb_kval totals;            // of long rows; LB_K_NONE: it has none
} reduction;

typedef struct locals {  // memory of the reductions: taken once, not for a row
  lb_kval lanes[LB_SPEC_MAX_NODES], totals[LB_SPEC_MAX_NODES];
} locals;

typedef struct pass {
  lb_lowering *e;
  uint8_t stage;
  keeping keep;
  uint32_t vectors;  // a group: 64 elements
  lb_kval last;      // where the last block of a row begins; 0: it has one
  bool has_totals;
  bool is_costly;  // what it reduces
  reduction list[LB_SPEC_MAX_NODES];
  int n;
} pass;

// -- what is computed when ---------------------------------------------------

typedef struct cone {  // nodes that a pass needs in lanes
  bool has[LB_SPEC_MAX_NODES];
} cone;

static bool is_reduction(const lb_lowering *e, uint8_t i) {
  return lb_sop_infos[e->spec->nodes[i].op].rule == LB_SR_REDUCE;
}

static uint8_t last_stage(const lb_lowering *e) {
  uint8_t last = 0;
  for (uint8_t i = 0; i < e->spec->n_nodes; i++)
    if (is_reduction(e, i) && e->stage[i] > last) last = e->stage[i];
  return last;
}

// Of the reductions of `stage`; of the outputs after the last. `kept` needs
// nothing.
static cone cone_of(const lb_lowering *e, uint8_t stage, uint8_t kept) {
  const lb_spec *s = e->spec;
  cone c = {{false}};
  for (uint8_t i = 0; i < s->n_nodes; i++)
    if (is_reduction(e, i) && e->stage[i] == stage)
      c.has[s->nodes[i].src[0]] = true;
  for (int i = 0; stage > last_stage(e) && i < s->n_out; i++)
    if (s->out[i].layout != LB_LAYOUT_PER_ROW) c.has[s->out[i].node] = true;
  for (int i = s->n_nodes - 1; i >= 0; i--) {
    c.has[i] = c.has[i] && e->scope[i] == LB_VARYING;
    for (int j = 0; c.has[i] && i != kept && j < s->nodes[i].n_src; j++)
      c.has[s->nodes[i].src[j]] = true;
  }
  return c;
}

static bool reads_rows(const lb_lowering *e, const cone *c) {
  for (int i = 0; i < e->spec->n_in; i++)
    if (c->has[i] && e->spec->in[i].layout != LB_LAYOUT_PER_COL) return true;
  return false;
}

// The pass that is to keep `node`: the first that needs it, if a later one
// does too and no later one reads an input that may be the output's memory.
static uint8_t pass_to_keep(const lb_lowering *e, uint8_t node) {
  uint8_t first = 0;
  bool again = false;
  for (uint8_t stage = 1; stage <= last_stage(e) + 1; stage++) {
    cone c = cone_of(e, stage, first ? node : LB_SPEC_NO_NODE);
    if (first && reads_rows(e, &c)) return 0;
    if (first && c.has[node]) again = true;
    if (!first && c.has[node]) first = stage;
  }
  return again ? first : 0;
}

static uint8_t output_to_keep(const lb_lowering *e, uint8_t node) {
  for (uint8_t i = 0; i < e->spec->n_out; i++)
    if (e->spec->out[i].layout == LB_LAYOUT_FULL &&
        e->spec->out[i].dtype == e->spec->nodes[node].dtype)
      return i;
  return LB_SPEC_NO_NODE;
}

static keeping choose_kept(const lb_lowering *e) {
  for (int i = e->spec->n_nodes - 1; i >= 0; i--) {
    uint8_t node = (uint8_t)i;
    if (e->scope[i] != LB_VARYING || !lb_lower_is_costly(&e->spec->nodes[i]))
      continue;
    keeping k = {node, output_to_keep(e, node), 0};
    if (k.out != LB_SPEC_NO_NODE) k.stage = pass_to_keep(e, node);
    if (k.stage) return k;
  }
  return (keeping){0};
}

// -- combining ---------------------------------------------------------------

typedef lb_kval combine_fn(lb_kbuilder *b, lb_kval x, lb_kval y);
typedef lb_kval across_fn(lb_kbuilder *b, lb_kval x);

typedef struct combiner {
  combine_fn *combine;
  across_fn *across;
} combiner;

static combiner combiner_of(uint8_t op) {
  switch (op) {
    case LB_S_RSUM: return (combiner){lb_k_add, lb_k_radd};
    case LB_S_RPROD: return (combiner){lb_k_mul, lb_k_rmul};
    case LB_S_RMAX: return (combiner){lb_k_max, lb_k_rmax};
    default: return (combiner){lb_k_min, lb_k_rmin};
  }
}

// The least or greatest value of an integer dtype.
static uint64_t bound_bits(lb_dtype t, bool greatest) {
  size_t bits = 8 * lb_dtype_size(t);
  uint64_t ones = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
  uint64_t least = lb_dtype_is_signed(t) ? (ones >> 1) + 1 : 0;
  return greatest ? ones - least : least;
}

static uint64_t identity_bits(const lb_snode *n) {
  switch (n->op) {
    case LB_S_RSUM: return lb_knum_bits(n->dtype, -0.0);
    case LB_S_RPROD: return lb_knum_bits(n->dtype, 1);
    default: break;
  }
  bool least = n->op == LB_S_RMAX;
  if (lb_dtype_is_float(n->dtype))
    return lb_knum_bits(n->dtype, least ? -INFINITY : INFINITY);
  return bound_bits(n->dtype, !least);
}

// The tree: halves of the accumulators, then of the lanes. The sum of an empty
// row is 0.0, though all lanes are -0.0.
static lb_kval combine_all(lb_lowering *e, const lb_snode *n, lb_kval *x,
                           uint32_t vectors) {
  lb_kbuilder *b = &e->b;
  combiner c = combiner_of(n->op);
  for (uint32_t half = vectors / 2; half; half /= 2)
    for (uint32_t v = 0; v < half; v++) x[v] = c.combine(b, x[v], x[v + half]);
  lb_kval all = c.across(b, x[0]);
  if (n->op != LB_S_RSUM) return all;
  lb_kval empty = lb_k_eq(b, e->dims[LB_DIM_COLS], lb_k_i64(b, 0));
  return lb_k_select(b, empty, lb_k_like(b, all, 0), all);
}

// -- accumulators ------------------------------------------------------------

static lb_kval memory_at(lb_lowering *e, const reduction *r, uint32_t v) {
  return lb_k_ptr(&e->b, r->memory, lb_k_i64(&e->b, v * e->lanes), 0);
}

static void begin_reduction(const pass *p, reduction *r) {
  lb_lowering *e = p->e;
  const lb_snode *n = &e->spec->nodes[r->node];
  lb_ktype t = lb_kt(n->dtype, e->lanes);
  r->identity = lb_k_const(&e->b, t, identity_bits(n));
  for (uint32_t v = 0; v < p->vectors; v++) {
    if (r->memory == LB_K_NONE)
      r->acc[v] = lb_k_reg(&e->b, r->identity);
    else
      lb_k_store(&e->b, memory_at(e, r, v), r->identity, 0);
  }
}

static lb_kval accumulator(const pass *p, const reduction *r, uint32_t v) {
  lb_lowering *e = p->e;
  if (r->memory == LB_K_NONE) return lb_k_get(&e->b, r->acc[v]);
  return lb_k_load(&e->b, memory_at(e, r, v), e->lanes, 0);
}

static void set_accumulator(const pass *p, const reduction *r, uint32_t v,
                            lb_kval x) {
  lb_lowering *e = p->e;
  if (r->memory == LB_K_NONE)
    lb_k_set(&e->b, r->acc[v], x);
  else
    lb_k_store(&e->b, memory_at(e, r, v), x, 0);
}

// x belongs to vector v of its group; in memory, to where its column is.
static void accumulate(const pass *p, const reduction *r, uint32_t v,
                       lb_kval x) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  combine_fn *combine = combiner_of(e->spec->nodes[r->node].op).combine;
  if (r->memory == LB_K_NONE) {
    lb_k_set(b, r->acc[v], combine(b, lb_k_get(b, r->acc[v]), x));
    return;
  }
  lb_kval lane = lb_k_and(b, e->col, lb_k_i64(b, LB_SPEC_LANES - 1));
  lb_kval at = lb_k_ptr(b, r->memory, lane, 0);
  lb_k_store(b, at, combine(b, lb_k_load(b, at, e->lanes, 0), x), 0);
}

static void finish_reduction(const pass *p, const reduction *r) {
  lb_lowering *e = p->e;
  lb_kval x[MAX_VECTORS];
  for (uint32_t v = 0; v < p->vectors; v++) x[v] = accumulator(p, r, v);
  const lb_snode *n = &e->spec->nodes[r->node];
  lb_lower_give(e, r->node, combine_all(e, n, x, p->vectors));
}

// -- a pass ------------------------------------------------------------------

// Vector v of a group, at `col`.
static void reduce_vector(const pass *p, uint32_t v, lb_kval col,
                          lb_kval mask) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  lb_lower_at(e, col, mask);
  for (int i = 0; i < p->n; i++) {
    const reduction *r = &p->list[i];
    lb_kval x = lb_lower_value(e, e->spec->nodes[r->node].src[0]);
    if (mask != LB_K_NONE) x = lb_k_select(b, mask, x, r->identity);
    accumulate(p, r, v, x);
  }
  if (p->keep.stage != p->stage) return;
  lb_kval to = lb_k_ptr(b, e->out_row[p->keep.out], col, 0);
  lb_k_store_masked(b, to, lb_lower_value(e, p->keep.node), 0, mask);
}

// `vectors` at a time.
static void reduce_groups(const pass *p, uint32_t vectors, lb_kval begin,
                          lb_kval end) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  int64_t width = vectors * e->lanes;
  lb_kval col = lb_k_loop(b, begin, end, lb_k_i64(b, width));
  for (uint32_t v = 0; v < vectors; v++)
    reduce_vector(p, v, lb_lower_add(e, col, v * e->lanes), LB_K_NONE);
  lb_k_end(b);
}

// What is left of a group: each vector has registers of its own.
static void reduce_rest(const pass *p, lb_kval begin) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  lb_kval left = lb_k_sub(b, e->dims[LB_DIM_COLS], begin);
  for (uint32_t v = 0; v < p->vectors; v++) {
    int64_t first = v * e->lanes;
    lb_k_if(b, lb_k_gt(b, left, lb_k_i64(b, first)));
    lb_kval mask = lb_k_tail(b, lb_lower_add(e, left, -first), e->lanes);
    reduce_vector(p, v, lb_lower_add(e, begin, first), mask);
    lb_k_end(b);
  }
}

static void reduce_rest_in_memory(const pass *p, lb_kval begin) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  lb_kval cols = e->dims[LB_DIM_COLS];
  lb_kval col = lb_k_loop(b, begin, cols, lb_k_i64(b, e->lanes));
  lb_kval mask = lb_k_tail(b, lb_k_sub(b, cols, col), e->lanes);
  reduce_vector(p, 0, col, mask);
  lb_k_end(b);
}

// -- long rows ---------------------------------------------------------------

static bool has_totals(const lb_lowering *e, uint8_t node) {
  const lb_snode *n = &e->spec->nodes[node];
  int most = lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, INT_MAX);
  most = lb_facts_get(e->facts, LB_ASSUME_EQUAL, LB_DIM_COLS, most);
  return n->op == LB_S_RSUM && lb_dtype_is_float(n->dtype) &&
         most > LB_SUM_COLS;
}

// Where the last block of a row begins: 0 if there is one alone.
static lb_kval last_block(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_kval before = lb_lower_add(e, e->dims[LB_DIM_COLS], -1);
  before = lb_k_max(b, before, lb_k_i64(b, 0));
  return lb_lower_down(e, before, LB_SUM_COLS);
}

static lb_kval cast_to(lb_lowering *e, lb_kval x, lb_dtype t) {
  return lb_k_type(&e->b, x).dtype == t ? x : lb_k_cast(&e->b, x, t);
}

static lb_kval totals_at(lb_lowering *e, const reduction *r, uint32_t v) {
  return lb_k_ptr(&e->b, r->totals, lb_k_i64(&e->b, v * e->lanes), 0);
}

// The totals of vector v with what its lanes have.
static lb_kval total(const pass *p, const reduction *r, uint32_t v) {
  lb_lowering *e = p->e;
  lb_kval so_far = lb_k_load(&e->b, totals_at(e, r, v), e->lanes, 0);
  return lb_k_add(&e->b, so_far, cast_to(e, accumulator(p, r, v), LB_F64));
}

static void begin_totals(const pass *p, const reduction *r) {
  lb_lowering *e = p->e;
  lb_kval none = lb_k_num(&e->b, lb_kt(LB_F64, e->lanes), -0.0);
  for (uint32_t v = 0; v < p->vectors; v++)
    lb_k_store(&e->b, totals_at(e, r, v), none, 0);
}

static void add_to_totals(const pass *p, const reduction *r) {
  lb_lowering *e = p->e;
  for (uint32_t v = 0; v < p->vectors; v++) {
    lb_k_store(&e->b, totals_at(e, r, v), total(p, r, v), 0);
    set_accumulator(p, r, v, r->identity);
  }
}

// Whether a row has more than one block.
static lb_kval is_long(const pass *p) {
  lb_kbuilder *b = &p->e->b;
  return lb_k_lt(b, lb_k_i64(b, 0), p->last);
}

// Blocks that begin before `last`; their groups end before `end`. What is no
// sum goes on from block to block.
static void reduce_blocks(const pass *p, uint32_t vectors, lb_kval last,
                          lb_kval end) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  lb_kval size = lb_k_i64(b, LB_SUM_COLS);
  lb_kval begin = lb_k_loop(b, lb_k_i64(b, 0), last, size);
  lb_kval stop = lb_k_min(b, lb_k_add(b, begin, size), end);
  reduce_groups(p, vectors, begin, stop);
  lb_k_if(b, lb_k_lt(b, begin, p->last));
  for (int i = 0; i < p->n; i++)
    if (p->list[i].totals != LB_K_NONE) add_to_totals(p, &p->list[i]);
  lb_k_end(b);
  lb_k_end(b);
}

// The groups of a row, up to `end`. What is costly has one loop for all blocks,
// since its code need not be there twice; else that loop would cost short rows
// more than it saves, and the last block has a loop of its own.
static void reduce_row_in_blocks(const pass *p, uint32_t vectors, lb_kval end) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  lb_k_if(b, is_long(p));
  for (int i = 0; i < p->n; i++)
    if (p->list[i].totals != LB_K_NONE) begin_totals(p, &p->list[i]);
  if (!p->is_costly) reduce_blocks(p, vectors, p->last, end);
  lb_k_end(b);
  if (p->is_costly)
    reduce_blocks(p, vectors, lb_lower_add(e, p->last, 1), end);
  else
    reduce_groups(p, vectors, p->last, end);
}

static void finish_totals(const pass *p) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  lb_k_if(b, is_long(p));
  for (int i = 0; i < p->n; i++) {
    const reduction *r = &p->list[i];
    lb_dtype t = e->spec->nodes[r->node].dtype;
    for (uint32_t v = 0; v < p->vectors && r->totals != LB_K_NONE; v++)
      set_accumulator(p, r, v, cast_to(e, total(p, r, v), t));
  }
  lb_k_end(b);
}

// -- a pass over a row -------------------------------------------------------

static bool has_costly(const lb_lowering *e, const cone *c, uint8_t kept) {
  for (int i = 0; i < e->spec->n_nodes; i++)
    if (c->has[i] && i != kept && lb_lower_is_costly(&e->spec->nodes[i]))
      return true;
  return false;
}

// Whether what a stage reduces is.
static bool is_costly(const lb_lowering *e, uint8_t stage, keeping keep) {
  bool is_kept = keep.stage && keep.stage < stage;
  uint8_t kept = is_kept ? keep.node : LB_SPEC_NO_NODE;
  cone c = cone_of(e, stage, kept);
  return has_costly(e, &c, kept);
}

// Whether the accumulators of a stage are in memory.
static bool is_in_memory(const lb_lowering *e, uint8_t stage, keeping keep) {
  return LB_SPEC_LANES / e->lanes > MAX_REGISTERS && is_costly(e, stage, keep);
}

static locals take_locals(lb_lowering *e, keeping keep) {
  locals l;
  for (uint8_t i = 0; i < e->spec->n_nodes; i++) {
    lb_dtype t = e->spec->nodes[i].dtype;
    l.lanes[i] = l.totals[i] = LB_K_NONE;
    if (is_reduction(e, i) && is_in_memory(e, e->stage[i], keep))
      l.lanes[i] = lb_k_local(&e->b, t, LB_SPEC_LANES);
    if (has_totals(e, i))
      l.totals[i] = lb_k_local(&e->b, LB_F64, LB_SPEC_LANES);
  }
  return l;
}

static pass pass_of(lb_lowering *e, uint8_t stage, keeping keep,
                    const locals *l, lb_kval last) {
  pass p = {.e = e, .stage = stage, .keep = keep, .last = last};
  p.vectors = LB_SPEC_LANES / e->lanes;
  p.is_costly = is_costly(e, stage, keep);
  for (uint8_t i = 0; i < e->spec->n_nodes; i++) {
    if (!is_reduction(e, i) || e->stage[i] != stage) continue;
    p.has_totals |= l->totals[i] != LB_K_NONE;
    p.list[p.n++] =
        (reduction){.node = i, .memory = l->lanes[i], .totals = l->totals[i]};
  }
  return p;
}

static void reduce_row(pass *p) {
  lb_lowering *e = p->e;
  bool in_memory = p->list[0].memory != LB_K_NONE;
  uint32_t vectors = in_memory ? 2 : p->vectors;
  lb_kval end = lb_lower_down(e, e->dims[LB_DIM_COLS], vectors * e->lanes);
  for (int i = 0; i < p->n; i++) begin_reduction(p, &p->list[i]);
  if (p->has_totals)
    reduce_row_in_blocks(p, vectors, end);
  else
    reduce_groups(p, vectors, lb_k_i64(&e->b, 0), end);
  if (!lb_facts_divides(e->facts, LB_DIM_COLS, (int)(vectors * e->lanes))) {
    if (in_memory)
      reduce_rest_in_memory(p, end);
    else
      reduce_rest(p, end);
  }
  if (p->has_totals) finish_totals(p);
  for (int i = 0; i < p->n; i++) finish_reduction(p, &p->list[i]);
  lb_lower_stage(e, p->stage);
}

// -- short rows --------------------------------------------------------------

typedef struct short_row {  // what lb_lowering knows of one
  lb_kval in[LB_SPEC_MAX_IN], out[LB_SPEC_MAX_OUT];
  lb_kval one[LB_SPEC_MAX_NODES];
  lb_kval lanes_of[BLOCK_VECTORS][LB_SPEC_MAX_NODES];
} short_row;

typedef struct block {
  lb_lowering *e;
  uint32_t rows, vectors;
  lb_kval mask[BLOCK_VECTORS];
  lb_kval identity[LB_SPEC_MAX_NODES];  // of reductions, as are
  lb_kval folded[LB_SPEC_MAX_NODES];    // memory of a number for each row
  short_row row[BLOCK_ROWS];
} block;

// Columns that a row may have, if that is sure to be few; else 0.
static int most_columns(const lb_lowering *e) {
  int most = lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, 0);
  return most <= LB_SHORT_COLS ? most : 0;
}

// As many rows as leave registers for what is made of their elements.
static void size_block(block *k, uint32_t columns) {
  uint32_t lanes = k->e->lanes, most = lanes == 16 ? 16 : 8;
  k->vectors = (columns + lanes - 1) / lanes;
  k->rows = most / k->vectors;
  if (k->rows > BLOCK_ROWS) k->rows = BLOCK_ROWS;
  if (k->rows > lanes) k->rows = lanes;
  if (k->rows < 1) k->rows = 1;
}

// What lanes have that are off. The sum of an empty row is 0.0.
static lb_kval identity_of(lb_lowering *e, const lb_snode *n) {
  lb_kbuilder *b = &e->b;
  lb_kval one = lb_k_const(b, lb_kt(n->dtype, 1), identity_bits(n));
  if (n->op == LB_S_RSUM) {
    lb_kval empty = lb_k_eq(b, e->dims[LB_DIM_COLS], lb_k_i64(b, 0));
    one = lb_k_select(b, empty, lb_k_like(b, one, 0), one);
  }
  return lb_k_splat(b, one, e->lanes);
}

static void begin_blocks(block *k) {
  lb_lowering *e = k->e;
  lb_kbuilder *b = &e->b;
  for (uint32_t v = 0; v < k->vectors; v++) {
    lb_kval left =
        lb_lower_add(e, e->dims[LB_DIM_COLS], -(int64_t)v * e->lanes);
    k->mask[v] = lb_k_tail(b, left, e->lanes);
  }
  for (uint8_t i = 0; i < e->spec->n_nodes; i++) {
    if (!is_reduction(e, i)) continue;
    k->identity[i] = identity_of(e, &e->spec->nodes[i]);
    k->folded[i] = lb_k_local(b, e->spec->nodes[i].dtype, e->lanes);
  }
}

static void go_to(const block *k, uint32_t r, uint32_t v) {
  lb_lowering *e = k->e;
  const short_row *row = &k->row[r];
  lb_lower_at(e, lb_k_i64(&e->b, v * e->lanes), k->mask[v]);
  memcpy(e->in_row, row->in, sizeof row->in);
  memcpy(e->out_row, row->out, sizeof row->out);
  memcpy(e->one, row->one, sizeof row->one);
  memcpy(e->lanes_of, row->lanes_of[v], sizeof row->lanes_of[v]);
}

// What is known of a row is known at all its vectors.
static void leave(block *k, uint32_t r, uint32_t v) {
  lb_lowering *e = k->e;
  short_row *row = &k->row[r];
  memcpy(row->one, e->one, sizeof row->one);
  for (uint32_t w = 0; w < k->vectors; w++)
    for (int i = 0; i < e->spec->n_nodes; i++)
      if (w == v || e->scope[i] != LB_VARYING)
        row->lanes_of[w][i] = e->lanes_of[i];
}

// Behind the last row comes the last row again: all of a block is read before
// any of it is written, so that it is what it was.
static void begin_block(block *k, lb_kval first) {
  lb_lowering *e = k->e;
  lb_kbuilder *b = &e->b;
  lb_kval last = lb_lower_add(e, e->dims[LB_DIM_ROWS], -1);
  for (uint32_t r = 0; r < k->rows; r++) {
    lb_lower_row(e, r ? lb_k_min(b, lb_lower_add(e, first, r), last) : first);
    memcpy(k->row[r].in, e->in_row, sizeof k->row[r].in);
    memcpy(k->row[r].out, e->out_row, sizeof k->row[r].out);
    lb_lower_at(e, lb_k_i64(b, 0), k->mask[0]);
    for (uint32_t v = 0; v < k->vectors; v++) leave(k, r, v);
  }
}

// The vectors of row r, combined.
static lb_kval reduce_short(block *k, uint32_t r, uint8_t node) {
  lb_lowering *e = k->e;
  lb_kbuilder *b = &e->b;
  const lb_snode *n = &e->spec->nodes[node];
  lb_kval x[MAX_VECTORS];
  for (uint32_t v = 0; v < MAX_VECTORS; v++) x[v] = k->identity[node];
  for (uint32_t v = 0; v < k->vectors; v++) {
    go_to(k, r, v);
    lb_kval value = lb_lower_value(e, n->src[0]);
    x[v] = lb_k_select(b, k->mask[v], value, k->identity[node]);
    leave(k, r, v);
  }
  uint32_t size = 1;
  while (size < k->vectors) size *= 2;
  for (uint32_t half = size / 2; half; half /= 2)
    for (uint32_t v = 0; v < half; v++)
      x[v] = combiner_of(n->op).combine(b, x[v], x[v + half]);
  return x[0];
}

static void reduce_block(block *k, uint8_t node) {
  lb_lowering *e = k->e;
  lb_kbuilder *b = &e->b;
  lb_kval rows[BLOCK_ROWS];
  for (uint32_t r = 0; r < k->rows; r++) rows[r] = reduce_short(k, r, node);
  combine_fn *combine = combiner_of(e->spec->nodes[node].op).combine;
  lb_kval all = lb_lower_fold(e, rows, k->rows, combine);
  lb_k_store(b, k->folded[node], all, 0);
  for (uint32_t r = 0; r < k->rows; r++) {
    lb_kval p = lb_k_ptr(b, k->folded[node], lb_k_i64(b, r), 0);
    go_to(k, r, 0);
    lb_lower_give(e, node, lb_k_load(b, p, 1, 0));
    leave(k, r, 0);
  }
}

static void store_block(block *k) {
  lb_stores s[BLOCK_ROWS][BLOCK_VECTORS];
  for (uint32_t r = 0; r < k->rows; r++)
    for (uint32_t v = 0; v < k->vectors; v++) {
      go_to(k, r, v);
      lb_lower_values(k->e, &s[r][v]);
    }
  for (uint32_t r = 0; r < k->rows; r++) {
    go_to(k, r, 0);
    for (uint32_t v = 0; v < k->vectors; v++) lb_lower_stores(k->e, &s[r][v]);
    lb_lower_row_stores(k->e);
  }
}

static void emit_short_rows(lb_lowering *e, uint32_t columns) {
  lb_kbuilder *b = &e->b;
  block k = {.e = e};
  lb_lower_all(e);
  size_block(&k, columns);
  begin_blocks(&k);
  begin_block(&k, lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_ROWS],
                            lb_k_i64(b, k.rows)));
  for (uint8_t stage = 1; stage <= last_stage(e); stage++) {
    for (uint8_t i = 0; i < e->spec->n_nodes; i++)
      if (is_reduction(e, i) && e->stage[i] == stage) reduce_block(&k, i);
    for (uint32_t r = 0; r < k.rows; r++) {
      go_to(&k, r, 0);
      lb_lower_stage(e, stage);
      leave(&k, r, 0);
    }
  }
  store_block(&k);
  lb_k_end(b);
}

// -- all rows ----------------------------------------------------------------

static void emit_long_rows(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  keeping k = choose_kept(e);
  lb_lower_all(e);
  locals l = take_locals(e, k);
  lb_kval last = last_block(e);
  lb_kval row =
      lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_ROWS], lb_k_i64(b, 1));
  lb_lower_row(e, row);
  for (uint8_t stage = 1; stage <= last_stage(e); stage++) {
    pass p = pass_of(e, stage, k, &l, last);
    reduce_row(&p);
    if (stage == k.stage) e->kept = k.node, e->kept_out = k.out;
  }
  lb_lower_columns(e);
  lb_lower_row_stores(e);
  lb_k_end(b);
}

void lb_lower_rows(lb_lowering *e) {
  int most = most_columns(e);
  if (most > 0)
    emit_short_rows(e, (uint32_t)most);
  else
    emit_long_rows(e);
}
