// lower/rows.c -- The ROW_REDUCE form: reductions along rows, and elementwise
// operations on their results.
//
// A reduction needs a pass over the row, after those of its sources; a last
// pass writes the outputs. Varying nodes are recomputed in each pass that needs
// them, except one that is *cached* in the row of an output that later
// overwrites it: softmax's exp, for example.
//
// A reduction has 64 lanes whatever the vector width: 64 / lanes accumulators,
// with element j in lane j % 64. They start with the identity (-0.0 for sums,
// because adding it changes no number, while adding 0.0 does), and masked-off
// elements contribute the identity, so lanes without elements have no effect.
// Accumulators are registers, or memory where mathematical functions need the
// registers.
//
// *Short* rows, of one or a few vectors, are processed in blocks of several
// rows. All passes over them are straight-line code in which nothing is
// computed twice; vectors of different rows are combined together until each
// lane holds the result of one row (lb_lower_hreduce).
//
// *Long* rows have more than LB_SUM_COLS elements. Their float sums are
// computed in blocks, with float64 totals in memory for each lane; the branch
// is the same for all rows and costs shorter rows nothing.
#include <limits.h>
#include <math.h>
#include <string.h>

#include "kir/num.h"
#include "lower/lowering.h"

enum {
  MAX_VECTORS = LB_SPEC_LANES / 4,
  MAX_REGISTERS = 4,  // of accumulators, in a pass with mathematical functions
  BLOCK_ROWS = 8,
  BLOCK_VECTORS = LB_SHORT_COLS / 4,
};

typedef struct row_cache {
  uint8_t node, out;
  uint8_t stage;  // of the pass that stores it; 0: no node is cached
} row_cache;

typedef struct reduction {
  uint8_t node;
  lb_kval identity;          // a vector
  lb_kval acc[MAX_VECTORS];  // registers
  lb_kval memory;            // LB_K_NONE: registers
  lb_kval totals;            // of long rows; LB_K_NONE: none
} reduction;

typedef struct locals {  // memory of the reductions, allocated once
  lb_kval lanes[LB_SPEC_MAX_NODES], totals[LB_SPEC_MAX_NODES];
} locals;

typedef struct rows_pass {
  lb_lowering *e;
  uint8_t stage;
  row_cache cache;
  uint32_t vectors;  // per group of 64 elements
  lb_kval last;      // where the last block of a row begins; 0: only one block
  bool has_totals;
  bool is_costly;  // its sources have mathematical functions
  reduction list[LB_SPEC_MAX_NODES];
  int n;
} rows_pass;

// -- scheduling --------------------------------------------------------------

typedef struct cone {  // varying nodes that a pass needs
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

// The nodes that the reductions of `stage` need; after the last stage, those of
// the outputs. `cached_node` is not expanded.
static cone cone_of(const lb_lowering *e, uint8_t stage, uint8_t cached_node) {
  const lb_spec *s = e->spec;
  cone c = {{false}};
  for (uint8_t i = 0; i < s->n_nodes; i++)
    if (is_reduction(e, i) && e->stage[i] == stage)
      c.has[s->nodes[i].src[0]] = true;
  for (int i = 0; stage > last_stage(e) && i < s->n_out; i++)
    if (s->out[i].layout != LB_LAYOUT_PER_ROW) c.has[s->out[i].node] = true;
  for (int i = s->n_nodes - 1; i >= 0; i--) {
    c.has[i] = c.has[i] && e->uniformity[i] == LB_VARYING;
    for (int j = 0; c.has[i] && i != cached_node && j < s->nodes[i].n_src; j++)
      c.has[s->nodes[i].src[j]] = true;
  }
  return c;
}

static bool reads_rows(const lb_lowering *e, const cone *c) {
  for (int i = 0; i < e->spec->n_in; i++)
    if (c->has[i] && e->spec->in[i].layout != LB_LAYOUT_PER_COL) return true;
  return false;
}

// The pass that stores `node`: the first one that needs it, if a later one
// needs it, too, and no later one reads an input that may be the output's
// memory.
static uint8_t caching_pass(const lb_lowering *e, uint8_t node) {
  uint8_t first = 0;
  bool needed_again = false;
  for (uint8_t stage = 1; stage <= last_stage(e) + 1; stage++) {
    cone c = cone_of(e, stage, first ? node : LB_SPEC_NO_NODE);
    if (first && reads_rows(e, &c)) return 0;
    if (first && c.has[node]) needed_again = true;
    if (!first && c.has[node]) first = stage;
  }
  return needed_again ? first : 0;
}

static uint8_t caching_output(const lb_lowering *e, uint8_t node) {
  for (uint8_t i = 0; i < e->spec->n_out; i++)
    if (e->spec->out[i].layout == LB_LAYOUT_FULL &&
        e->spec->out[i].dtype == e->spec->nodes[node].dtype)
      return i;
  return LB_SPEC_NO_NODE;
}

static row_cache choose_cached(const lb_lowering *e) {
  for (int i = e->spec->n_nodes - 1; i >= 0; i--) {
    uint8_t node = (uint8_t)i;
    if (e->uniformity[i] != LB_VARYING ||
        !lb_lower_is_costly(&e->spec->nodes[i]))
      continue;
    row_cache k = {node, caching_output(e, node), 0};
    if (k.out != LB_SPEC_NO_NODE) k.stage = caching_pass(e, node);
    if (k.stage) return k;
  }
  return (row_cache){0};
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

// The minimum or maximum of an integer dtype.
static uint64_t limit_bits(lb_dtype t, bool max) {
  size_t bits = 8 * lb_dtype_size(t);
  uint64_t ones = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
  uint64_t min = lb_dtype_is_signed(t) ? (ones >> 1) + 1 : 0;
  return max ? ones - min : min;
}

static uint64_t identity_bits(const lb_snode *n) {
  switch (n->op) {
    case LB_S_RSUM: return lb_knum_bits(n->dtype, -0.0);
    case LB_S_RPROD: return lb_knum_bits(n->dtype, 1);
    default: break;
  }
  bool min = n->op == LB_S_RMAX;
  if (lb_dtype_is_float(n->dtype))
    return lb_knum_bits(n->dtype, min ? -INFINITY : INFINITY);
  return limit_bits(n->dtype, !min);
}

// Combines in a tree: halves of the accumulators, then of the lanes. The sum of
// an empty row is 0.0, though all lanes are -0.0.
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

static void begin_reduction(const rows_pass *p, reduction *r) {
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

static lb_kval accumulator(const rows_pass *p, const reduction *r, uint32_t v) {
  lb_lowering *e = p->e;
  if (r->memory == LB_K_NONE) return lb_k_get(&e->b, r->acc[v]);
  return lb_k_load(&e->b, memory_at(e, r, v), e->lanes, 0);
}

static void set_accumulator(const rows_pass *p, const reduction *r, uint32_t v,
                            lb_kval x) {
  lb_lowering *e = p->e;
  if (r->memory == LB_K_NONE)
    lb_k_set(&e->b, r->acc[v], x);
  else
    lb_k_store(&e->b, memory_at(e, r, v), x, 0);
}

// x belongs to vector v of its group; in memory, its lanes follow from the
// column.
static void accumulate(const rows_pass *p, const reduction *r, uint32_t v,
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

static void end_reduction(const rows_pass *p, const reduction *r) {
  lb_lowering *e = p->e;
  lb_kval x[MAX_VECTORS];
  for (uint32_t v = 0; v < p->vectors; v++) x[v] = accumulator(p, r, v);
  const lb_snode *n = &e->spec->nodes[r->node];
  lb_lower_set_uniform(e, r->node, combine_all(e, n, x, p->vectors));
}

// -- a pass ------------------------------------------------------------------

// Vector v of a group, at `col`.
static void reduce_vector(const rows_pass *p, uint32_t v, lb_kval col,
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
  if (p->cache.stage != p->stage) return;
  lb_kval to = lb_k_ptr(b, e->out_row[p->cache.out], col, 0);
  lb_k_store_masked(b, to, lb_lower_value(e, p->cache.node), 0, mask);
}

// `vectors` at a time.
static void reduce_groups(const rows_pass *p, uint32_t vectors, lb_kval begin,
                          lb_kval end) {
  lb_lowering *e = p->e;
  lb_kbuilder *b = &e->b;
  int64_t width = vectors * e->lanes;
  lb_kval col = lb_k_loop(b, begin, end, lb_k_i64(b, width));
  for (uint32_t v = 0; v < vectors; v++)
    reduce_vector(p, v, lb_lower_add(e, col, v * e->lanes), LB_K_NONE);
  lb_k_end(b);
}

// The remainder of a group: each vector has registers of its own.
static void reduce_tail(const rows_pass *p, lb_kval begin) {
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

static void reduce_tail_in_memory(const rows_pass *p, lb_kval begin) {
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
  int max_cols =
      lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, INT_MAX);
  max_cols = lb_facts_get(e->facts, LB_ASSUME_EQUAL, LB_DIM_COLS, max_cols);
  return n->op == LB_S_RSUM && lb_dtype_is_float(n->dtype) &&
         max_cols > LB_SUM_COLS;
}

// Where the last block of a row begins: 0 if there is only one.
static lb_kval last_block(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_kval before = lb_lower_add(e, e->dims[LB_DIM_COLS], -1);
  before = lb_k_max(b, before, lb_k_i64(b, 0));
  return lb_lower_round_down(e, before, LB_SUM_COLS);
}

static lb_kval cast_to(lb_lowering *e, lb_kval x, lb_dtype t) {
  return lb_k_type(&e->b, x).dtype == t ? x : lb_k_cast(&e->b, x, t);
}

static lb_kval totals_at(lb_lowering *e, const reduction *r, uint32_t v) {
  return lb_k_ptr(&e->b, r->totals, lb_k_i64(&e->b, v * e->lanes), 0);
}

// The totals of vector v plus its accumulator.
static lb_kval total(const rows_pass *p, const reduction *r, uint32_t v) {
  lb_lowering *e = p->e;
  lb_kval so_far = lb_k_load(&e->b, totals_at(e, r, v), e->lanes, 0);
  return lb_k_add(&e->b, so_far, cast_to(e, accumulator(p, r, v), LB_F64));
}

static void begin_totals(const rows_pass *p, const reduction *r) {
  lb_lowering *e = p->e;
  lb_kval none = lb_k_num(&e->b, lb_kt(LB_F64, e->lanes), -0.0);
  for (uint32_t v = 0; v < p->vectors; v++)
    lb_k_store(&e->b, totals_at(e, r, v), none, 0);
}

static void add_to_totals(const rows_pass *p, const reduction *r) {
  lb_lowering *e = p->e;
  for (uint32_t v = 0; v < p->vectors; v++) {
    lb_k_store(&e->b, totals_at(e, r, v), total(p, r, v), 0);
    set_accumulator(p, r, v, r->identity);
  }
}

// Whether a row has more than one block.
static lb_kval is_long(const rows_pass *p) {
  lb_kbuilder *b = &p->e->b;
  return lb_k_lt(b, lb_k_i64(b, 0), p->last);
}

// The blocks that begin before `last`, up to column `end`. Reductions other
// than sums continue from block to block.
static void reduce_blocks(const rows_pass *p, uint32_t vectors, lb_kval last,
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

// The groups of a row, up to `end`. If the sources have mathematical functions,
// one loop runs over all blocks, so that the code exists once; otherwise that
// loop would cost short rows more than it saves, and the last block has a loop
// of its own.
static void reduce_row_in_blocks(const rows_pass *p, uint32_t vectors,
                                 lb_kval end) {
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

static void end_totals(const rows_pass *p) {
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

static bool has_costly(const lb_lowering *e, const cone *c,
                       uint8_t cached_node) {
  for (int i = 0; i < e->spec->n_nodes; i++)
    if (c->has[i] && i != cached_node && lb_lower_is_costly(&e->spec->nodes[i]))
      return true;
  return false;
}

// Whether the sources of a stage's reductions have mathematical functions.
static bool is_costly(const lb_lowering *e, uint8_t stage, row_cache cache) {
  bool is_cached = cache.stage && cache.stage < stage;
  uint8_t cached_node = is_cached ? cache.node : LB_SPEC_NO_NODE;
  cone c = cone_of(e, stage, cached_node);
  return has_costly(e, &c, cached_node);
}

// Whether the accumulators of a stage are in memory.
static bool is_in_memory(const lb_lowering *e, uint8_t stage, row_cache cache) {
  return LB_SPEC_LANES / e->lanes > MAX_REGISTERS && is_costly(e, stage, cache);
}

static locals allocate_locals(lb_lowering *e, row_cache cache) {
  locals l;
  for (uint8_t i = 0; i < e->spec->n_nodes; i++) {
    lb_dtype t = e->spec->nodes[i].dtype;
    l.lanes[i] = l.totals[i] = LB_K_NONE;
    if (is_reduction(e, i) && is_in_memory(e, e->stage[i], cache))
      l.lanes[i] = lb_k_local(&e->b, t, LB_SPEC_LANES);
    if (has_totals(e, i))
      l.totals[i] = lb_k_local(&e->b, LB_F64, LB_SPEC_LANES);
  }
  return l;
}

static rows_pass pass_of(lb_lowering *e, uint8_t stage, row_cache cache,
                         const locals *l, lb_kval last) {
  rows_pass p = {.e = e, .stage = stage, .cache = cache, .last = last};
  p.vectors = LB_SPEC_LANES / e->lanes;
  p.is_costly = is_costly(e, stage, cache);
  for (uint8_t i = 0; i < e->spec->n_nodes; i++) {
    if (!is_reduction(e, i) || e->stage[i] != stage) continue;
    p.has_totals |= l->totals[i] != LB_K_NONE;
    p.list[p.n++] =
        (reduction){.node = i, .memory = l->lanes[i], .totals = l->totals[i]};
  }
  return p;
}

static void reduce_row(rows_pass *p) {
  lb_lowering *e = p->e;
  bool in_memory = p->list[0].memory != LB_K_NONE;
  uint32_t vectors = in_memory ? 2 : p->vectors;
  lb_kval end =
      lb_lower_round_down(e, e->dims[LB_DIM_COLS], vectors * e->lanes);
  for (int i = 0; i < p->n; i++) begin_reduction(p, &p->list[i]);
  if (p->has_totals)
    reduce_row_in_blocks(p, vectors, end);
  else
    reduce_groups(p, vectors, lb_k_i64(&e->b, 0), end);
  if (!lb_facts_divides(e->facts, LB_DIM_COLS, (int)(vectors * e->lanes))) {
    if (in_memory)
      reduce_tail_in_memory(p, end);
    else
      reduce_tail(p, end);
  }
  if (p->has_totals) end_totals(p);
  for (int i = 0; i < p->n; i++) end_reduction(p, &p->list[i]);
  lb_lower_row_stage(e, p->stage);
}

// -- short rows --------------------------------------------------------------

typedef struct short_row {  // the state of lb_lowering for one row
  lb_kval in[LB_SPEC_MAX_IN], out[LB_SPEC_MAX_OUT];
  lb_kval uniform[LB_SPEC_MAX_NODES];
  lb_kval lanes_of[BLOCK_VECTORS][LB_SPEC_MAX_NODES];
} short_row;

typedef struct rows_block {
  lb_lowering *e;
  uint32_t rows, vectors;
  lb_kval mask[BLOCK_VECTORS];
  lb_kval identity[LB_SPEC_MAX_NODES];  // of reductions
  lb_kval reduced[LB_SPEC_MAX_NODES];   // of reductions: memory of one element
                                        // per row
  short_row row[BLOCK_ROWS];
} rows_block;

// The maximum number of columns if the facts bound it to few; else 0.
static int max_short_cols(const lb_lowering *e) {
  int max_cols = lb_facts_get(e->facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, 0);
  return max_cols <= LB_SHORT_COLS ? max_cols : 0;
}

// As many rows as leave registers for their intermediate values.
static void size_block(rows_block *k, uint32_t columns) {
  uint32_t lanes = k->e->lanes, max_vectors = lanes == 16 ? 16 : 8;
  k->vectors = (columns + lanes - 1) / lanes;
  k->rows = max_vectors / k->vectors;
  if (k->rows > BLOCK_ROWS) k->rows = BLOCK_ROWS;
  if (k->rows > lanes) k->rows = lanes;
  if (k->rows < 1) k->rows = 1;
}

// The value of masked-off lanes. The sum of an empty row is 0.0.
static lb_kval identity_of(lb_lowering *e, const lb_snode *n) {
  lb_kbuilder *b = &e->b;
  lb_kval one = lb_k_const(b, lb_kt(n->dtype, 1), identity_bits(n));
  if (n->op == LB_S_RSUM) {
    lb_kval empty = lb_k_eq(b, e->dims[LB_DIM_COLS], lb_k_i64(b, 0));
    one = lb_k_select(b, empty, lb_k_like(b, one, 0), one);
  }
  return lb_k_splat(b, one, e->lanes);
}

static void begin_blocks(rows_block *k) {
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
    k->reduced[i] = lb_k_local(b, e->spec->nodes[i].dtype, e->lanes);
  }
}

static void load_place(const rows_block *k, uint32_t r, uint32_t v) {
  lb_lowering *e = k->e;
  const short_row *row = &k->row[r];
  lb_lower_at(e, lb_k_i64(&e->b, v * e->lanes), k->mask[v]);
  memcpy(e->in_row, row->in, sizeof row->in);
  memcpy(e->out_row, row->out, sizeof row->out);
  memcpy(e->uniform, row->uniform, sizeof row->uniform);
  memcpy(e->lanes_of, row->lanes_of[v], sizeof row->lanes_of[v]);
}

// The values of uniform nodes are valid at all vectors of the row.
static void save_place(rows_block *k, uint32_t r, uint32_t v) {
  lb_lowering *e = k->e;
  short_row *row = &k->row[r];
  memcpy(row->uniform, e->uniform, sizeof row->uniform);
  for (uint32_t w = 0; w < k->vectors; w++)
    for (int i = 0; i < e->spec->n_nodes; i++)
      if (w == v || e->uniformity[i] != LB_VARYING)
        row->lanes_of[w][i] = e->lanes_of[i];
}

// Rows past the last repeat the last row: all of a block is read before any of
// it is written, so its values are unchanged.
static void begin_block(rows_block *k, lb_kval first) {
  lb_lowering *e = k->e;
  lb_kbuilder *b = &e->b;
  lb_kval last = lb_lower_add(e, e->dims[LB_DIM_ROWS], -1);
  for (uint32_t r = 0; r < k->rows; r++) {
    lb_lower_row(e, r ? lb_k_min(b, lb_lower_add(e, first, r), last) : first);
    memcpy(k->row[r].in, e->in_row, sizeof k->row[r].in);
    memcpy(k->row[r].out, e->out_row, sizeof k->row[r].out);
    lb_lower_at(e, lb_k_i64(b, 0), k->mask[0]);
    for (uint32_t v = 0; v < k->vectors; v++) save_place(k, r, v);
  }
}

// Combines the vectors of row r.
static lb_kval reduce_short(rows_block *k, uint32_t r, uint8_t node) {
  lb_lowering *e = k->e;
  lb_kbuilder *b = &e->b;
  const lb_snode *n = &e->spec->nodes[node];
  lb_kval x[MAX_VECTORS];
  for (uint32_t v = 0; v < MAX_VECTORS; v++) x[v] = k->identity[node];
  for (uint32_t v = 0; v < k->vectors; v++) {
    load_place(k, r, v);
    lb_kval value = lb_lower_value(e, n->src[0]);
    x[v] = lb_k_select(b, k->mask[v], value, k->identity[node]);
    save_place(k, r, v);
  }
  uint32_t size = 1;
  while (size < k->vectors) size *= 2;
  for (uint32_t half = size / 2; half; half /= 2)
    for (uint32_t v = 0; v < half; v++)
      x[v] = combiner_of(n->op).combine(b, x[v], x[v + half]);
  return x[0];
}

static void reduce_block(rows_block *k, uint8_t node) {
  lb_lowering *e = k->e;
  lb_kbuilder *b = &e->b;
  lb_kval rows[BLOCK_ROWS];
  for (uint32_t r = 0; r < k->rows; r++) rows[r] = reduce_short(k, r, node);
  combine_fn *combine = combiner_of(e->spec->nodes[node].op).combine;
  lb_kval all = lb_lower_hreduce(e, rows, k->rows, combine);
  lb_k_store(b, k->reduced[node], all, 0);
  for (uint32_t r = 0; r < k->rows; r++) {
    lb_kval p = lb_k_ptr(b, k->reduced[node], lb_k_i64(b, r), 0);
    load_place(k, r, 0);
    lb_lower_set_uniform(e, node, lb_k_load(b, p, 1, 0));
    save_place(k, r, 0);
  }
}

static void store_block(rows_block *k) {
  lb_stores s[BLOCK_ROWS][BLOCK_VECTORS];
  for (uint32_t r = 0; r < k->rows; r++)
    for (uint32_t v = 0; v < k->vectors; v++) {
      load_place(k, r, v);
      lb_lower_values(k->e, &s[r][v]);
    }
  for (uint32_t r = 0; r < k->rows; r++) {
    load_place(k, r, 0);
    for (uint32_t v = 0; v < k->vectors; v++) lb_lower_stores(k->e, &s[r][v]);
    lb_lower_row_stores(k->e);
  }
}

static void emit_short_rows(lb_lowering *e, uint32_t columns) {
  lb_kbuilder *b = &e->b;
  rows_block k = {.e = e};
  lb_lower_uniforms(e);
  size_block(&k, columns);
  begin_blocks(&k);
  begin_block(&k, lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_ROWS],
                            lb_k_i64(b, k.rows)));
  for (uint8_t stage = 1; stage <= last_stage(e); stage++) {
    for (uint8_t i = 0; i < e->spec->n_nodes; i++)
      if (is_reduction(e, i) && e->stage[i] == stage) reduce_block(&k, i);
    for (uint32_t r = 0; r < k.rows; r++) {
      load_place(&k, r, 0);
      lb_lower_row_stage(e, stage);
      save_place(&k, r, 0);
    }
  }
  store_block(&k);
  lb_k_end(b);
}

// -- all rows ----------------------------------------------------------------

static void emit_long_rows(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  row_cache k = choose_cached(e);
  lb_lower_uniforms(e);
  locals l = allocate_locals(e, k);
  lb_kval last = last_block(e);
  lb_kval row =
      lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_ROWS], lb_k_i64(b, 1));
  lb_lower_row(e, row);
  for (uint8_t stage = 1; stage <= last_stage(e); stage++) {
    rows_pass p = pass_of(e, stage, k, &l, last);
    reduce_row(&p);
    if (stage == k.stage) e->cached_node = k.node, e->cached_out = k.out;
  }
  lb_lower_columns(e);
  lb_lower_row_stores(e);
  lb_k_end(b);
}

void lb_lower_row_reduce(lb_lowering *e) {
  int max_cols = max_short_cols(e);
  if (max_cols > 0)
    emit_short_rows(e, (uint32_t)max_cols);
  else
    emit_long_rows(e);
}
