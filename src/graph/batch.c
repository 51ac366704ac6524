// graph/batch.c -- items are followed from operator to operator.
#include "graph/batch.h"

#include "graph/rewrite.h"

// What a value is to items.
typedef enum lot {
  SAME,   // it is the same whatever the batch
  SIZED,  // it depends on how many items there are, and on nothing else of them
  APART,  // its items lie along an axis
  MIXED,  // whatever else
} lot;

typedef struct trace {
  lot lot;
  int axis;  // APART
} trace;

static const trace same = {SAME, 0}, mixed = {MIXED, 0};

typedef struct finder {
  lb_symtab *syms;  // borrowed
  lb_dim batch;     // a symbol
  int64_t *env;     // by symbol: 1 for dims of inputs other than the batch;
                    // -1 for the batch, and for what nothing is known of
  int n_env;
  trace *traces;  // by value id
} finder;

// -- dims --------------------------------------------------------------------

static bool depends(const finder *f, lb_dim d) {
  return !lb_dim_has_values(d, f->env, f->n_env);
}

// Is d so many times the batch, whatever the batch is?
static bool counts(const finder *f, lb_dim d) {
  lb_dim each;
  lb_status st = lb_dim_divexact(f->syms, d, f->batch, &each);
  bool is = !lb_failed(st) && depends(f, d) && !depends(f, each);
  lb_status_drop(st);
  return is;
}

// v's items lie along this axis, if its dims say so.
static trace apart(const finder *f, const lb_value *v, int axis) {
  if (axis < 0 || axis >= v->info.rank) return mixed;
  for (int i = 0; i < v->info.rank; i++)
    if (i == axis ? !counts(f, v->info.dims[i]) : depends(f, v->info.dims[i]))
      return mixed;
  return (trace){APART, axis};
}

// v is made of the same numbers for every item: along the one axis that
// depends on the batch `from`, if there is one, has a single element.
static trace repeated(const finder *f, const lb_value *v,
                      const lb_value *from) {
  int axis = -1, shift = from ? v->info.rank - from->info.rank : 0;
  if (v->info.rank < 0) return mixed;
  for (int i = 0; i < v->info.rank; i++)
    if (depends(f, v->info.dims[i])) axis = axis < 0 ? i : v->info.rank;
  if (axis < 0) return same;
  if (axis == v->info.rank) return mixed;
  if (from && axis >= shift && !lb_dim_is(from->info.dims[axis - shift], 1))
    return mixed;
  return apart(f, v, axis);
}

// -- inputs ------------------------------------------------------------------

static trace of(const finder *f, const lb_node *n, uint32_t i) {
  const lb_value *v = lb_node_input(n, i);
  return v && !v->info.data ? f->traces[v->id] : same;
}

static bool is_apart(const finder *f, const lb_node *n, uint32_t i, int axis) {
  trace t = of(f, n, i);
  return t.lot == APART && t.axis == axis;
}

// Are inputs from `first` on the same for every item?
static bool rest_same(const finder *f, const lb_node *n, uint32_t first) {
  for (uint32_t i = first; i < n->n_in; i++)
    if (of(f, n, i).lot != SAME) return false;
  return true;
}

static int rank_of(const lb_node *n, uint32_t i) { return n->in[i]->info.rank; }

static int axis_attr(const lb_node *n, int64_t dflt, int rank) {
  int64_t axis = lb_attr_int(n, "axis", dflt);
  return (int)(axis < 0 ? axis + rank : axis);
}

// Element i of a constant of int64; false if it is none.
static bool element(const lb_value *v, int64_t i, int64_t *out) {
  const lb_tensor *t = lb_value_const(v);
  if (!t || t->dtype != LB_I64 || !lb_tensor_is_dense(t) ||
      i >= lb_tensor_count(t))
    return false;
  *out = lb_match_int(t, i);
  return true;
}

// The axes that input i lists, as bits; false if they are not known.
static bool axes_in(const lb_node *n, uint32_t i, int rank, uint32_t *out) {
  const lb_tensor *t = lb_value_const(lb_node_input(n, i));
  *out = 0;
  if (!t) return false;
  for (int64_t k = 0, axis; k < lb_tensor_count(t); k++) {
    if (!element(n->in[i], k, &axis) || axis < -rank || axis >= rank)
      return false;
    *out |= 1u << (axis < 0 ? axis + rank : axis);
  }
  return true;
}

// -- operators ---------------------------------------------------------------

// Inputs are broadcast to the output.
static trace broadcast(const finder *f, const lb_node *n, const lb_value *out) {
  int axis = -1;
  for (uint32_t i = 0; i < n->n_in; i++) {
    trace t = of(f, n, i);
    if (t.lot == SIZED) return mixed;
    if (t.lot != APART) continue;
    int at = t.axis + out->info.rank - rank_of(n, i);
    if (axis >= 0 && at != axis) return mixed;
    axis = at;
  }
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!n->in[i] || of(f, n, i).lot == APART) continue;
    int at = axis - out->info.rank + rank_of(n, i);
    if (at >= 0 && !lb_dim_is(n->in[i]->info.dims[at], 1)) return mixed;
  }
  return apart(f, out, axis);
}

static trace batch_norm(const finder *f, const lb_node *n,
                        const lb_value *out) {
  trace x = of(f, n, 0);
  if (x.lot != APART || x.axis == 1 || !rest_same(f, n, 1) ||
      lb_attr_int(n, "training_mode", 0))
    return mixed;
  return apart(f, out, x.axis);
}

static trace quantize(const finder *f, const lb_node *n, const lb_value *out) {
  trace x = of(f, n, 0);
  if (x.lot != APART || !rest_same(f, n, 1) ||
      (rank_of(n, 1) > 0 && axis_attr(n, 1, rank_of(n, 0)) == x.axis))
    return mixed;
  return apart(f, out, x.axis);
}

static trace matmul(const finder *f, const lb_node *n, const lb_value *out) {
  trace a = of(f, n, 0), b = of(f, n, 1);
  int ra = rank_of(n, 0), rb = rank_of(n, 1), r = out->info.rank;
  if (ra < 2 || rb < 2) return mixed;
  int from_a = a.axis + r - ra, from_b = b.axis + r - rb;
  if (a.lot == APART && a.axis == ra - 1) return mixed;
  if (b.lot == APART && b.axis >= rb - 2) return mixed;
  if (a.lot == APART && b.lot == APART)
    return from_a == from_b ? apart(f, out, from_a) : mixed;
  const lb_value *other = n->in[a.lot == APART ? 1 : 0];
  if (f->traces[other->id].lot != SAME) return mixed;
  int axis = a.lot == APART ? from_a : from_b;
  int at = axis - r + other->info.rank;
  if (axis < r - 2 && at >= 0 && !lb_dim_is(other->info.dims[at], 1))
    return mixed;
  return apart(f, out, axis);
}

static trace int8_matmul(const finder *f, const lb_node *n,
                         const lb_value *out) {
  return lb_op_is_int8_gemm(n) ? matmul(f, n, out) : mixed;
}

static trace gemm(const finder *f, const lb_node *n, const lb_value *out) {
  const lb_value *c = lb_node_input(n, 2);
  if (!is_apart(f, n, 0, 0) || !rest_same(f, n, 1) ||
      lb_attr_int(n, "transA", 0) ||
      (c && c->info.rank > 1 && !lb_dim_is(c->info.dims[0], 1)))
    return mixed;
  return apart(f, out, 0);
}

// Items are images: the first of the axes. `all`: so are these inputs, as bits.
static trace images(const finder *f, const lb_node *n, const lb_value *out,
                    uint32_t all) {
  for (uint32_t i = 0; i < n->n_in; i++) {
    bool item = all >> i & 1;
    if (!n->in[i] && item && i > 0) continue;
    if (item ? !is_apart(f, n, i, 0) : of(f, n, i).lot != SAME) return mixed;
  }
  return apart(f, out, 0);
}

static trace first_axis(const finder *f, const lb_node *n,
                        const lb_value *out) {
  return images(f, n, out, 0x1);
}

// Its second result counts from the first item on.
static trace max_pool(const finder *f, const lb_node *n, const lb_value *out) {
  return out->out_index == 0 ? images(f, n, out, 0x1) : mixed;
}

static trace grid_sample(const finder *f, const lb_node *n,
                         const lb_value *out) {
  return images(f, n, out, 0x3);
}

static trace deform_conv(const finder *f, const lb_node *n,
                         const lb_value *out) {
  return images(f, n, out, 0x15);
}

static trace resize(const finder *f, const lb_node *n, const lb_value *out) {
  trace x = of(f, n, 0);
  if (x.lot != APART || of(f, n, 1).lot != SAME || of(f, n, 2).lot != SAME ||
      of(f, n, 3).lot > SIZED || out->info.rank != rank_of(n, 0) ||
      !lb_dim_equal(out->info.dims[x.axis], n->in[0]->info.dims[x.axis]))
    return mixed;
  return apart(f, out, x.axis);
}

// Along one axis elements are mixed, or reordered; others stay where they are.
static trace along(const finder *f, const lb_node *n, const lb_value *out,
                   int axis) {
  trace x = of(f, n, 0);
  if (x.lot != APART || x.axis == axis || !rest_same(f, n, 1)) return mixed;
  return apart(f, out, x.axis);
}

static trace along_axis(const finder *f, const lb_node *n,
                        const lb_value *out) {
  return along(f, n, out, axis_attr(n, -1, rank_of(n, 0)));
}

static trace split(const finder *f, const lb_node *n, const lb_value *out) {
  return along(f, n, out, axis_attr(n, 0, rank_of(n, 0)));
}

static trace cumulative(const finder *f, const lb_node *n,
                        const lb_value *out) {
  int64_t axis;
  if (!element(n->in[1], 0, &axis)) return mixed;
  return along(f, n, out, (int)(axis < 0 ? axis + rank_of(n, 0) : axis));
}

// The last two axes are one matrix, within which elements are moved.
static trace matrices(const finder *f, const lb_node *n, const lb_value *out) {
  bool before = of(f, n, 0).axis < rank_of(n, 0) - 2;
  return before ? along(f, n, out, -1) : mixed;
}

static trace softmax(const finder *f, const lb_node *n, const lb_value *out) {
  bool flat = lb_attr_int(n, "flatten", 0) != 0;
  int axis = axis_attr(n, flat ? 1 : -1, rank_of(n, 0));
  if (flat && of(f, n, 0).axis >= axis) return mixed;
  return along(f, n, out, axis);
}

// Rows from an axis on are normalised.
static trace norm(const finder *f, const lb_node *n, const lb_value *out) {
  trace x = of(f, n, 0);
  if (!rest_same(f, n, 1) || x.axis >= axis_attr(n, -1, rank_of(n, 0)))
    return mixed;
  for (uint32_t i = 1; i < n->n_in; i++) {
    int at = n->in[i] ? x.axis - rank_of(n, 0) + rank_of(n, i) : -1;
    if (at >= 0 && !lb_dim_is(n->in[i]->info.dims[at], 1)) return mixed;
  }
  return apart(f, out, x.axis);
}

static trace reduced(const finder *f, const lb_node *n, const lb_value *out,
                     uint32_t axes) {
  trace x = of(f, n, 0);
  if (x.lot != APART || axes >> x.axis & 1) return mixed;
  if (lb_attr_int(n, "keepdims", 1)) return apart(f, out, x.axis);
  uint32_t before = axes & ((1u << x.axis) - 1);
  return apart(f, out, x.axis - __builtin_popcount(before));
}

static trace reduce(const finder *f, const lb_node *n, const lb_value *out) {
  uint32_t axes;
  if (!axes_in(n, 1, rank_of(n, 0), &axes) || axes == 0) return mixed;
  return reduced(f, n, out, axes);
}

static trace arg_reduce(const finder *f, const lb_node *n,
                        const lb_value *out) {
  return reduced(f, n, out, 1u << axis_attr(n, 0, rank_of(n, 0)));
}

static trace identity(const finder *f, const lb_node *n, const lb_value *out) {
  return apart(f, out, of(f, n, 0).axis);
}

static trace transpose(const finder *f, const lb_node *n, const lb_value *out) {
  int rank = rank_of(n, 0), from = of(f, n, 0).axis;
  for (int i = 0; i < rank; i++)
    if (lb_attr_int_at(n, "perm", i, rank - 1 - i) == from)
      return apart(f, out, i);
  return mixed;
}

// The elements stay in order. Where the dims before the items are the same,
// items begin where they did.
static trace reshape(const finder *f, const lb_node *n, const lb_value *out) {
  const lb_vinfo *x = &n->in[0]->info, *y = &out->info;
  trace t = of(f, n, 0);
  int k = 0;
  if (t.lot != APART || of(f, n, 1).lot > SIZED) return mixed;
  for (int i = 0; i <= t.axis; i++) {
    if (lb_dim_is(x->dims[i], 1)) continue;
    while (k < y->rank && lb_dim_is(y->dims[k], 1)) k++;
    if (i == t.axis) return apart(f, out, k);
    if (k == y->rank || !lb_dim_equal(x->dims[i], y->dims[k])) return mixed;
    k++;
  }
  return mixed;
}

static trace slice(const finder *f, const lb_node *n, const lb_value *out) {
  trace x = of(f, n, 0);
  uint32_t axes;
  if (!axes_in(n, 3, rank_of(n, 0), &axes) || axes >> x.axis & 1) return mixed;
  return along(f, n, out, -1);
}

static trace concat(const finder *f, const lb_node *n, const lb_value *out) {
  int axis = of(f, n, 0).axis;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (!is_apart(f, n, i, axis)) return mixed;
  return axis == axis_attr(n, 0, out->info.rank) ? mixed : apart(f, out, axis);
}

static trace pad(const finder *f, const lb_node *n, const lb_value *out) {
  trace x = of(f, n, 0);
  int rank = rank_of(n, 0);
  int64_t before, after;
  if (lb_node_input(n, 3) || !element(n->in[1], x.axis, &before) ||
      !element(n->in[1], rank + x.axis, &after) || before || after)
    return mixed;
  return along(f, n, out, -1);
}

// Expand and Tile: of what is the same for all items there is one for each.
static trace spread(const finder *f, const lb_node *n, const lb_value *out) {
  trace x = of(f, n, 0);
  if (of(f, n, 1).lot > SIZED) return mixed;
  if (x.lot == SAME) return repeated(f, out, n->in[0]);
  int axis = x.axis + out->info.rank - rank_of(n, 0);
  if (x.lot != APART || axis < 0 || axis >= out->info.rank ||
      !lb_dim_equal(out->info.dims[axis], n->in[0]->info.dims[x.axis]))
    return mixed;
  return apart(f, out, axis);
}

// ConstantOfShape: of how many items there are, not of what they hold.
static trace fill(const finder *f, const lb_node *n, const lb_value *out) {
  return of(f, n, 0).lot == SIZED ? repeated(f, out, NULL) : mixed;
}

static trace gather(const finder *f, const lb_node *n, const lb_value *out) {
  trace x = of(f, n, 0), at = of(f, n, 1);
  int axis = axis_attr(n, 0, rank_of(n, 0));
  if (x.lot == SAME && at.lot == APART) return apart(f, out, axis + at.axis);
  if (x.lot != APART || at.lot != SAME || x.axis == axis) return mixed;
  return apart(f, out, x.axis < axis ? x.axis : x.axis + rank_of(n, 1) - 1);
}

// Every input has its items along one axis, and is reordered along another.
static trace elements(const finder *f, const lb_node *n, const lb_value *out) {
  int axis = of(f, n, 0).axis;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (!is_apart(f, n, i, axis)) return mixed;
  if (axis == axis_attr(n, 0, rank_of(n, 0))) return mixed;
  return apart(f, out, axis);
}

static trace one_hot(const finder *f, const lb_node *n, const lb_value *out) {
  trace x = of(f, n, 0);
  if (x.lot != APART || !rest_same(f, n, 1)) return mixed;
  int axis = axis_attr(n, -1, out->info.rank);
  return apart(f, out, x.axis < axis ? x.axis : x.axis + 1);
}

static trace recurrent(const finder *f, const lb_node *n, const lb_value *out) {
  if (lb_attr_int(n, "layout", 0) || !is_apart(f, n, 0, 1)) return mixed;
  for (uint32_t i = 1; i < n->n_in; i++) {
    bool state = i == 5 || i == 6, lengths = i == 4;
    if (!n->in[i]) continue;
    if (state || lengths
            ? !is_apart(f, n, i, state || lb_op_projected(n) ? 1 : 0)
            : of(f, n, i).lot != SAME)
      return mixed;
  }
  return apart(f, out, out->out_index == 0 ? 2 : 1);
}

static trace within(const finder *f, const lb_node *n, const lb_value *out) {
  if (lb_attr_int(n, "layout", 0) || !is_apart(f, n, 0, 0) ||
      !is_apart(f, n, 1, 1))
    return mixed;
  return apart(f, out, 1);
}

static trace attention(const finder *f, const lb_node *n, const lb_value *out) {
  const lb_value *mask = lb_node_input(n, 3);
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && i != 3 && !is_apart(f, n, i, 0)) return mixed;
  if (mask && mask->info.rank == 4 && !is_apart(f, n, 3, 0) &&
      (of(f, n, 3).lot != SAME || !lb_dim_is(mask->info.dims[0], 1)))
    return mixed;
  if (mask && mask->info.rank != 4 && of(f, n, 3).lot != SAME) return mixed;
  return apart(f, out, 0);
}

// Nothing is known of the operator, or it mixes items.
static trace mixes(const finder *f, const lb_node *n, const lb_value *out) {
  (void)f, (void)n, (void)out;
  return mixed;
}

typedef trace batch_rule(const finder *f, const lb_node *n,
                         const lb_value *out);

// What a node that reads items makes of them.
static batch_rule *const rules[LB_OP_COUNT] = {
#define LB_OP(id, min_in, max_in, max_out, cls, deciding, traits, shape, \
              batch, sink)                                               \
  [LB_OP_##id] = batch,
#include "graph/ops.def"
};

// Contents that are known as expressions: sizes, and what is made of them.
static bool visit_known(const finder *f, const lb_value *out, trace *t) {
  *t = same;
  if (!out->info.known) return false;
  for (int i = 0; i < out->info.n_known; i++)
    if (depends(f, out->info.known[i])) t->lot = SIZED;
  return true;
}

// A size that has no expression appears with the value whose dim it is. What is
// made of items, and does not depend on how many they are, has no such size.
static void meet(const finder *f, const lb_value *out) {
  int symbol;
  for (int i = 0; i < out->info.rank; i++)
    if (lb_dim_as_symbol(out->info.dims[i], &symbol) &&
        !lb_dim_equal(out->info.dims[i], f->batch))
      f->env[symbol] = 1;
}

static trace visit(const finder *f, const lb_node *n, const lb_value *out) {
  lot most = SAME;
  bool sized = false;
  trace t;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (of(f, n, i).lot > most) most = of(f, n, i).lot;
    sized |= of(f, n, i).lot == SIZED;
  }
  if (!sized && most != MIXED) meet(f, out);
  if (lb_op_has(n->op, LB_TRAIT_DIMS_ONLY) && visit_known(f, out, &t))
    return t;  // whatever its input is made of
  if (most == MIXED || lb_op_has(n->op, LB_TRAIT_RANDOM)) return mixed;
  if (visit_known(f, out, &t)) return t;
  if (most == SAME) return same;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && rank_of(n, i) < 0) return mixed;
  // Where items themselves are not read, how many there are is.
  if (most == SIZED && !lb_op_has(n->op, LB_TRAIT_SPREADS)) return mixed;
  return rules[n->op](f, n, out);
}

// Follows all values; true if every result has its items along axis 0.
static bool follow(const finder *f, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_params; i++) {
    const lb_value *p = r->params[i];
    trace t = repeated(f, p, NULL);
    if (t.lot == APART &&
        (t.axis != 0 || !lb_dim_equal(p->info.dims[0], f->batch)))
      t = mixed;
    f->traces[p->id] = t;
  }
  for (uint32_t i = 0; i < r->n_nodes; i++)
    for (uint32_t k = 0; k < r->nodes[i]->n_out; k++) {
      const lb_value *out = r->nodes[i]->out[k];
      if (out) f->traces[out->id] = visit(f, r->nodes[i], out);
    }
  for (uint32_t i = 0; i < r->n_results; i++) {
    const lb_value *v = r->results[i];
    if (v->info.data || f->traces[v->id].lot != APART ||
        f->traces[v->id].axis != 0)
      return false;
  }
  return r->n_results > 0;
}

// The symbol that is the first dim of some input.
static bool batch_symbol(const lb_region *r, lb_dim *out) {
  int symbol;
  for (uint32_t i = 0; i < r->n_params; i++) {
    const lb_vinfo *v = &r->params[i]->info;
    if (v->rank > 0 && lb_dim_as_symbol(v->dims[0], &symbol)) {
      *out = v->dims[0];
      return true;
    }
  }
  return false;
}

static void set_env(finder *f, const lb_region *r) {
  int symbol;
  for (int i = 0; i < f->n_env; i++) f->env[i] = -1;
  for (uint32_t i = 0; i < r->n_params; i++) {
    const lb_vinfo *v = &r->params[i]->info;
    for (int k = 0; k < v->rank; k++)
      if (lb_dim_as_symbol(v->dims[k], &symbol) &&
          !lb_dim_equal(v->dims[k], f->batch))
        f->env[symbol] = 1;
  }
}

lb_status lb_batch_find(lb_graph *g, const bool **out) {
  const lb_region *r = g->main;
  finder f = {.syms = g->syms, .n_env = lb_symtab_count(g->syms)};
  *out = NULL;
  if (!batch_symbol(r, &f.batch)) return LB_OK;
  lb_arena scratch;
  lb_arena_init(&scratch, 4 << 10);
  f.env = lb_arena_new(&scratch, int64_t, (size_t)f.n_env);
  f.traces = lb_arena_new(&scratch, trace, g->n_values);
  bool *params = lb_arena_new(&g->arena, bool, r->n_params);
  lb_status st = f.env && f.traces && params ? LB_OK : lb_oom();
  if (!lb_failed(st)) {
    set_env(&f, r);
    if (follow(&f, r)) *out = params;
    for (uint32_t i = 0; i < r->n_params; i++)
      params[i] = f.traces[r->params[i]->id].lot == APART;
  }
  lb_arena_fini(&scratch);
  return st;
}
