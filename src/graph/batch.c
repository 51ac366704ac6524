// graph/batch.c -- follows the items of a batch from operator to operator.
#include "graph/batch.h"

#include "graph/rewrite.h"

// How a value depends on the batch.
typedef enum batch_state {
  CONSTANT,   // independent of the batch
  SIZE_ONLY,  // depends on the number of items, and on nothing else of them
  BATCHED,    // has its items along an axis
  MIXED,      // anything else
} batch_state;

typedef struct batch_trace {
  batch_state batch_state;
  int axis;  // if BATCHED
} batch_trace;

static const batch_trace constant = {CONSTANT, 0}, mixed = {MIXED, 0};

typedef struct batch_finder {
  lb_symtab *syms;  // borrowed
  lb_dim batch;     // a symbol
  int64_t *env;  // by symbol: 1 for dims of inputs other than the batch; -1 for
                 // the batch, and for unknown symbols
  int n_env;
  batch_trace *traces;  // by value id
} batch_finder;

// -- dims --------------------------------------------------------------------

static bool depends_on_batch(const batch_finder *f, lb_dim d) {
  return !lb_dim_has_values(d, f->env, f->n_env);
}

// Whether d is a fixed multiple of the batch.
static bool is_multiple_of_batch(const batch_finder *f, lb_dim d) {
  lb_dim each;
  lb_status st = lb_dim_divexact(f->syms, d, f->batch, &each);
  bool is =
      !lb_failed(st) && depends_on_batch(f, d) && !depends_on_batch(f, each);
  lb_status_drop(st);
  return is;
}

// v has its items along this axis, if its dims are consistent with that.
static batch_trace batched(const batch_finder *f, const lb_value *v, int axis) {
  if (axis < 0 || axis >= v->info.rank) return mixed;
  for (int i = 0; i < v->info.rank; i++)
    if (i == axis ? !is_multiple_of_batch(f, v->info.dims[i])
                  : depends_on_batch(f, v->info.dims[i]))
      return mixed;
  return (batch_trace){BATCHED, axis};
}

// v has the same elements for every item: along the only axis that depends on
// the batch, `from`, if not NULL, has a single element.
static batch_trace repeated_per_item(const batch_finder *f, const lb_value *v,
                                     const lb_value *from) {
  int axis = -1, shift = from ? v->info.rank - from->info.rank : 0;
  if (v->info.rank < 0) return mixed;
  for (int i = 0; i < v->info.rank; i++)
    if (depends_on_batch(f, v->info.dims[i]))
      axis = axis < 0 ? i : v->info.rank;
  if (axis < 0) return constant;
  if (axis == v->info.rank) return mixed;
  if (from && axis >= shift && !lb_dim_is(from->info.dims[axis - shift], 1))
    return mixed;
  return batched(f, v, axis);
}

// -- inputs ------------------------------------------------------------------

static batch_trace trace_of(const batch_finder *f, const lb_node *n,
                            uint32_t i) {
  const lb_value *v = lb_node_input(n, i);
  return v && !v->info.data ? f->traces[v->id] : constant;
}

static bool is_batched(const batch_finder *f, const lb_node *n, uint32_t i,
                       int axis) {
  batch_trace t = trace_of(f, n, i);
  return t.batch_state == BATCHED && t.axis == axis;
}

// Whether inputs from `first` on are independent of the batch.
static bool rest_constant(const batch_finder *f, const lb_node *n,
                          uint32_t first) {
  for (uint32_t i = first; i < n->n_in; i++)
    if (trace_of(f, n, i).batch_state != CONSTANT) return false;
  return true;
}

static int rank_of(const lb_node *n, uint32_t i) { return n->in[i]->info.rank; }

static int axis_attr(const lb_node *n, int64_t dflt, int rank) {
  int64_t axis = lb_attr_int(n, "axis", dflt);
  return (int)(axis < 0 ? axis + rank : axis);
}

// Element i of an int64 constant; false if v is none.
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

// The inputs are broadcast to the output.
static batch_trace broadcast(const batch_finder *f, const lb_node *n,
                             const lb_value *out) {
  int axis = -1;
  for (uint32_t i = 0; i < n->n_in; i++) {
    batch_trace t = trace_of(f, n, i);
    if (t.batch_state == SIZE_ONLY) return mixed;
    if (t.batch_state != BATCHED) continue;
    int at = t.axis + out->info.rank - rank_of(n, i);
    if (axis >= 0 && at != axis) return mixed;
    axis = at;
  }
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!n->in[i] || trace_of(f, n, i).batch_state == BATCHED) continue;
    int at = axis - out->info.rank + rank_of(n, i);
    if (at >= 0 && !lb_dim_is(n->in[i]->info.dims[at], 1)) return mixed;
  }
  return batched(f, out, axis);
}

static batch_trace batch_norm(const batch_finder *f, const lb_node *n,
                              const lb_value *out) {
  batch_trace x = trace_of(f, n, 0);
  if (x.batch_state != BATCHED || x.axis == 1 || !rest_constant(f, n, 1) ||
      lb_attr_int(n, "training_mode", 0))
    return mixed;
  return batched(f, out, x.axis);
}

static batch_trace quantize(const batch_finder *f, const lb_node *n,
                            const lb_value *out) {
  batch_trace x = trace_of(f, n, 0);
  if (x.batch_state != BATCHED || !rest_constant(f, n, 1) ||
      (rank_of(n, 1) > 0 && axis_attr(n, 1, rank_of(n, 0)) == x.axis))
    return mixed;
  return batched(f, out, x.axis);
}

static batch_trace matmul(const batch_finder *f, const lb_node *n,
                          const lb_value *out) {
  batch_trace a = trace_of(f, n, 0), b = trace_of(f, n, 1);
  int ra = rank_of(n, 0), rb = rank_of(n, 1), r = out->info.rank;
  if (ra < 2 || rb < 2) return mixed;
  int from_a = a.axis + r - ra, from_b = b.axis + r - rb;
  if (a.batch_state == BATCHED && a.axis == ra - 1) return mixed;
  if (b.batch_state == BATCHED && b.axis >= rb - 2) return mixed;
  if (a.batch_state == BATCHED && b.batch_state == BATCHED)
    return from_a == from_b ? batched(f, out, from_a) : mixed;
  const lb_value *other = n->in[a.batch_state == BATCHED ? 1 : 0];
  if (f->traces[other->id].batch_state != CONSTANT) return mixed;
  int axis = a.batch_state == BATCHED ? from_a : from_b;
  int at = axis - r + other->info.rank;
  if (axis < r - 2 && at >= 0 && !lb_dim_is(other->info.dims[at], 1))
    return mixed;
  return batched(f, out, axis);
}

static batch_trace int8_matmul(const batch_finder *f, const lb_node *n,
                               const lb_value *out) {
  return lb_op_is_int8_gemm(n) ? matmul(f, n, out) : mixed;
}

static batch_trace gemm(const batch_finder *f, const lb_node *n,
                        const lb_value *out) {
  const lb_value *c = lb_node_input(n, 2);
  if (!is_batched(f, n, 0, 0) || !rest_constant(f, n, 1) ||
      lb_attr_int(n, "transA", 0) ||
      (c && c->info.rank > 1 && !lb_dim_is(c->info.dims[0], 1)))
    return mixed;
  return batched(f, out, 0);
}

// Items are along axis 0 of the inputs in `all` (bits); the other inputs must
// be independent of the batch.
static batch_trace batched_first(const batch_finder *f, const lb_node *n,
                                 const lb_value *out, uint32_t all) {
  for (uint32_t i = 0; i < n->n_in; i++) {
    bool item = all >> i & 1;
    if (!n->in[i] && item && i > 0) continue;
    if (item ? !is_batched(f, n, i, 0)
             : trace_of(f, n, i).batch_state != CONSTANT)
      return mixed;
  }
  return batched(f, out, 0);
}

static batch_trace first_axis(const batch_finder *f, const lb_node *n,
                              const lb_value *out) {
  return batched_first(f, n, out, 0x1);
}

// The indices that are its second result count from the first item on.
static batch_trace max_pool(const batch_finder *f, const lb_node *n,
                            const lb_value *out) {
  return out->out_index == 0 ? batched_first(f, n, out, 0x1) : mixed;
}

static batch_trace grid_sample(const batch_finder *f, const lb_node *n,
                               const lb_value *out) {
  return batched_first(f, n, out, 0x3);
}

static batch_trace deform_conv(const batch_finder *f, const lb_node *n,
                               const lb_value *out) {
  return batched_first(f, n, out, 0x15);
}

static batch_trace resize(const batch_finder *f, const lb_node *n,
                          const lb_value *out) {
  batch_trace x = trace_of(f, n, 0);
  if (x.batch_state != BATCHED || trace_of(f, n, 1).batch_state != CONSTANT ||
      trace_of(f, n, 2).batch_state != CONSTANT ||
      trace_of(f, n, 3).batch_state > SIZE_ONLY ||
      out->info.rank != rank_of(n, 0) ||
      !lb_dim_equal(out->info.dims[x.axis], n->in[0]->info.dims[x.axis]))
    return mixed;
  return batched(f, out, x.axis);
}

// Elements are mixed or reordered along one axis only.
static batch_trace along(const batch_finder *f, const lb_node *n,
                         const lb_value *out, int axis) {
  batch_trace x = trace_of(f, n, 0);
  if (x.batch_state != BATCHED || x.axis == axis || !rest_constant(f, n, 1))
    return mixed;
  return batched(f, out, x.axis);
}

static batch_trace along_axis(const batch_finder *f, const lb_node *n,
                              const lb_value *out) {
  return along(f, n, out, axis_attr(n, -1, rank_of(n, 0)));
}

static batch_trace split(const batch_finder *f, const lb_node *n,
                         const lb_value *out) {
  return along(f, n, out, axis_attr(n, 0, rank_of(n, 0)));
}

static batch_trace cumulative(const batch_finder *f, const lb_node *n,
                              const lb_value *out) {
  int64_t axis;
  if (!element(n->in[1], 0, &axis)) return mixed;
  return along(f, n, out, (int)(axis < 0 ? axis + rank_of(n, 0) : axis));
}

// Elements are moved within matrices, the last two axes.
static batch_trace matrices(const batch_finder *f, const lb_node *n,
                            const lb_value *out) {
  bool before = trace_of(f, n, 0).axis < rank_of(n, 0) - 2;
  return before ? along(f, n, out, -1) : mixed;
}

static batch_trace softmax(const batch_finder *f, const lb_node *n,
                           const lb_value *out) {
  bool flat = lb_attr_int(n, "flatten", 0) != 0;
  int axis = axis_attr(n, flat ? 1 : -1, rank_of(n, 0));
  if (flat && trace_of(f, n, 0).axis >= axis) return mixed;
  return along(f, n, out, axis);
}

// Rows, the axes from `axis` on, are normalised.
static batch_trace norm(const batch_finder *f, const lb_node *n,
                        const lb_value *out) {
  batch_trace x = trace_of(f, n, 0);
  if (!rest_constant(f, n, 1) || x.axis >= axis_attr(n, -1, rank_of(n, 0)))
    return mixed;
  for (uint32_t i = 1; i < n->n_in; i++) {
    int at = n->in[i] ? x.axis - rank_of(n, 0) + rank_of(n, i) : -1;
    if (at >= 0 && !lb_dim_is(n->in[i]->info.dims[at], 1)) return mixed;
  }
  return batched(f, out, x.axis);
}

static batch_trace reduced(const batch_finder *f, const lb_node *n,
                           const lb_value *out, uint32_t axes) {
  batch_trace x = trace_of(f, n, 0);
  if (x.batch_state != BATCHED || axes >> x.axis & 1) return mixed;
  if (lb_attr_int(n, "keepdims", 1)) return batched(f, out, x.axis);
  uint32_t before = axes & ((1u << x.axis) - 1);
  return batched(f, out, x.axis - __builtin_popcount(before));
}

static batch_trace reduce(const batch_finder *f, const lb_node *n,
                          const lb_value *out) {
  uint32_t axes;
  if (!axes_in(n, 1, rank_of(n, 0), &axes) || axes == 0) return mixed;
  return reduced(f, n, out, axes);
}

static batch_trace arg_reduce(const batch_finder *f, const lb_node *n,
                              const lb_value *out) {
  return reduced(f, n, out, 1u << axis_attr(n, 0, rank_of(n, 0)));
}

static batch_trace identity(const batch_finder *f, const lb_node *n,
                            const lb_value *out) {
  return batched(f, out, trace_of(f, n, 0).axis);
}

static batch_trace transpose(const batch_finder *f, const lb_node *n,
                             const lb_value *out) {
  int rank = rank_of(n, 0), from = trace_of(f, n, 0).axis;
  for (int i = 0; i < rank; i++)
    if (lb_attr_int_at(n, "perm", i, rank - 1 - i) == from)
      return batched(f, out, i);
  return mixed;
}

// The elements stay in order. If the dims before the items are the same, items
// start at the same elements.
static batch_trace reshape(const batch_finder *f, const lb_node *n,
                           const lb_value *out) {
  const lb_vinfo *x = &n->in[0]->info, *y = &out->info;
  batch_trace t = trace_of(f, n, 0);
  int k = 0;
  if (t.batch_state != BATCHED || trace_of(f, n, 1).batch_state > SIZE_ONLY)
    return mixed;
  for (int i = 0; i <= t.axis; i++) {
    if (lb_dim_is(x->dims[i], 1)) continue;
    while (k < y->rank && lb_dim_is(y->dims[k], 1)) k++;
    if (i == t.axis) return batched(f, out, k);
    if (k == y->rank || !lb_dim_equal(x->dims[i], y->dims[k])) return mixed;
    k++;
  }
  return mixed;
}

static batch_trace slice(const batch_finder *f, const lb_node *n,
                         const lb_value *out) {
  batch_trace x = trace_of(f, n, 0);
  uint32_t axes;
  if (!axes_in(n, 3, rank_of(n, 0), &axes) || axes >> x.axis & 1) return mixed;
  return along(f, n, out, -1);
}

static batch_trace concat(const batch_finder *f, const lb_node *n,
                          const lb_value *out) {
  int axis = trace_of(f, n, 0).axis;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (!is_batched(f, n, i, axis)) return mixed;
  return axis == axis_attr(n, 0, out->info.rank) ? mixed
                                                 : batched(f, out, axis);
}

static batch_trace pad(const batch_finder *f, const lb_node *n,
                       const lb_value *out) {
  batch_trace x = trace_of(f, n, 0);
  int rank = rank_of(n, 0);
  int64_t before, after;
  if (lb_node_input(n, 3) || !element(n->in[1], x.axis, &before) ||
      !element(n->in[1], rank + x.axis, &after) || before || after)
    return mixed;
  return along(f, n, out, -1);
}

// Expand and Tile: an input that is independent of the batch is repeated for
// each item.
static batch_trace spread(const batch_finder *f, const lb_node *n,
                          const lb_value *out) {
  batch_trace x = trace_of(f, n, 0);
  if (trace_of(f, n, 1).batch_state > SIZE_ONLY) return mixed;
  if (x.batch_state == CONSTANT) return repeated_per_item(f, out, n->in[0]);
  int axis = x.axis + out->info.rank - rank_of(n, 0);
  if (x.batch_state != BATCHED || axis < 0 || axis >= out->info.rank ||
      !lb_dim_equal(out->info.dims[axis], n->in[0]->info.dims[x.axis]))
    return mixed;
  return batched(f, out, axis);
}

// ConstantOfShape: depends on the number of items, not on their contents.
static batch_trace fill(const batch_finder *f, const lb_node *n,
                        const lb_value *out) {
  return trace_of(f, n, 0).batch_state == SIZE_ONLY
             ? repeated_per_item(f, out, NULL)
             : mixed;
}

static batch_trace gather(const batch_finder *f, const lb_node *n,
                          const lb_value *out) {
  batch_trace x = trace_of(f, n, 0), at = trace_of(f, n, 1);
  int axis = axis_attr(n, 0, rank_of(n, 0));
  if (x.batch_state == CONSTANT && at.batch_state == BATCHED)
    return batched(f, out, axis + at.axis);
  if (x.batch_state != BATCHED || at.batch_state != CONSTANT || x.axis == axis)
    return mixed;
  return batched(f, out, x.axis < axis ? x.axis : x.axis + rank_of(n, 1) - 1);
}

// Every input has its items along one axis, and is reordered along another.
static batch_trace elements(const batch_finder *f, const lb_node *n,
                            const lb_value *out) {
  int axis = trace_of(f, n, 0).axis;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (!is_batched(f, n, i, axis)) return mixed;
  if (axis == axis_attr(n, 0, rank_of(n, 0))) return mixed;
  return batched(f, out, axis);
}

static batch_trace one_hot(const batch_finder *f, const lb_node *n,
                           const lb_value *out) {
  batch_trace x = trace_of(f, n, 0);
  if (x.batch_state != BATCHED || !rest_constant(f, n, 1)) return mixed;
  int axis = axis_attr(n, -1, out->info.rank);
  return batched(f, out, x.axis < axis ? x.axis : x.axis + 1);
}

static batch_trace recurrent(const batch_finder *f, const lb_node *n,
                             const lb_value *out) {
  if (lb_attr_int(n, "layout", 0) || !is_batched(f, n, 0, 1)) return mixed;
  for (uint32_t i = 1; i < n->n_in; i++) {
    bool state = i == 5 || i == 6, lengths = i == 4;
    if (!n->in[i]) continue;
    if (state || lengths
            ? !is_batched(f, n, i, state || lb_op_projected(n) ? 1 : 0)
            : trace_of(f, n, i).batch_state != CONSTANT)
      return mixed;
  }
  return batched(f, out, out->out_index == 0 ? 2 : 1);
}

static batch_trace within(const batch_finder *f, const lb_node *n,
                          const lb_value *out) {
  if (lb_attr_int(n, "layout", 0) || !is_batched(f, n, 0, 0) ||
      !is_batched(f, n, 1, 1))
    return mixed;
  return batched(f, out, 1);
}

static batch_trace attention(const batch_finder *f, const lb_node *n,
                             const lb_value *out) {
  const lb_value *mask = lb_node_input(n, 3);
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && i != 3 && !is_batched(f, n, i, 0)) return mixed;
  if (mask && mask->info.rank == 4 && !is_batched(f, n, 3, 0) &&
      (trace_of(f, n, 3).batch_state != CONSTANT ||
       !lb_dim_is(mask->info.dims[0], 1)))
    return mixed;
  if (mask && mask->info.rank != 4 && trace_of(f, n, 3).batch_state != CONSTANT)
    return mixed;
  return batched(f, out, 0);
}

// The operator mixes items, or has no rule.
static batch_trace mixes(const batch_finder *f, const lb_node *n,
                         const lb_value *out) {
  (void)f, (void)n, (void)out;
  return mixed;
}

typedef batch_trace batch_rule(const batch_finder *f, const lb_node *n,
                               const lb_value *out);

// For nodes that read items: where the items are in each output.
static batch_rule *const rules[LB_OP_COUNT] = {
#define LB_OP(id, min_in, max_in, max_out, cls, deciding, traits, shape, \
              batch, sink, ...)                                          \
  [LB_OP_##id] = batch,
#include "graph/ops.def"
};

// Contents that are known as expressions: sizes and values computed from them.
static bool visit_known(const batch_finder *f, const lb_value *out,
                        batch_trace *t) {
  *t = constant;
  if (!out->info.known) return false;
  for (int i = 0; i < out->info.n_known; i++)
    if (depends_on_batch(f, out->info.known[i])) t->batch_state = SIZE_ONLY;
  return true;
}

// A symbol without an expression first appears as a dim of a value. If that
// value does not depend on the number of items, neither does the symbol.
static void note_symbols(const batch_finder *f, const lb_value *out) {
  int symbol;
  for (int i = 0; i < out->info.rank; i++)
    if (lb_dim_as_symbol(out->info.dims[i], &symbol) &&
        !lb_dim_equal(out->info.dims[i], f->batch))
      f->env[symbol] = 1;
}

static batch_trace visit(const batch_finder *f, const lb_node *n,
                         const lb_value *out) {
  batch_state most = CONSTANT;
  bool sized = false;
  batch_trace t;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (trace_of(f, n, i).batch_state > most)
      most = trace_of(f, n, i).batch_state;
    sized |= trace_of(f, n, i).batch_state == SIZE_ONLY;
  }
  if (!sized && most != MIXED) note_symbols(f, out);
  if (lb_op_has(n->op, LB_TRAIT_DIMS_ONLY) && visit_known(f, out, &t))
    return t;  // whatever its input is
  if (most == MIXED || lb_op_has(n->op, LB_TRAIT_RANDOM)) return mixed;
  if (visit_known(f, out, &t)) return t;
  if (most == CONSTANT) return constant;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && rank_of(n, i) < 0) return mixed;
  // A node that reads no items depends on their number.
  if (most == SIZE_ONLY && !lb_op_has(n->op, LB_TRAIT_SPREADS)) return mixed;
  return rules[n->op](f, n, out);
}

// Follows all values; true if every result has its items along axis 0.
static bool follow(const batch_finder *f, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_params; i++) {
    const lb_value *p = r->params[i];
    batch_trace t = repeated_per_item(f, p, NULL);
    if (t.batch_state == BATCHED &&
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
    if (v->info.data || f->traces[v->id].batch_state != BATCHED ||
        f->traces[v->id].axis != 0)
      return false;
  }
  return r->n_results > 0;
}

// The first symbol that is dim 0 of an input.
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

static void set_env(batch_finder *f, const lb_region *r) {
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
  batch_finder f = {.syms = g->syms, .n_env = lb_symtab_count(g->syms)};
  *out = NULL;
  if (!batch_symbol(r, &f.batch)) return LB_OK;
  lb_arena scratch;
  lb_arena_init(&scratch, 4 << 10);
  f.env = lb_arena_new(&scratch, int64_t, (size_t)f.n_env);
  f.traces = lb_arena_new(&scratch, batch_trace, g->n_values);
  bool *params = lb_arena_new(&g->arena, bool, r->n_params);
  lb_status st = f.env && f.traces && params ? LB_OK : lb_oom();
  if (!lb_failed(st)) {
    set_env(&f, r);
    if (follow(&f, r)) *out = params;
    for (uint32_t i = 0; i < r->n_params; i++)
      params[i] = f.traces[r->params[i]->id].batch_state == BATCHED;
  }
  lb_arena_fini(&scratch);
  return st;
}
