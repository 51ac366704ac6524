// graph/pass_sink.c -- moves transposes towards the outputs, past operators
// that do not depend on the order of axes, until two of them cancel or an
// operator needs them.
//
//   f(Transpose(x)) = Transpose(f(x)) for elementwise f, reductions and
//   Squeeze; for operators whose axis can be changed: Concat, Split, Slice,
//   Pad, Resize, Softmax, pools; and for a Reshape that merges or splits axes
//   that are adjacent in x
//
// Only a transpose that moves the last axis of x sinks: readers of its output
// would access memory with strides. Other readers of the same Transpose keep
// it. Moving a transpose hides patterns, so this pass runs after all patterns
// have been matched.
//
// The pass `cut` runs before that and moves transposes only past Reshapes that
// split an axis: attention is recognised once heads that were merged with the
// batch have an axis of their own again.
#include <string.h>

#include "graph/infer.h"
#include "graph/transpose.h"

#define MAX_IN 4

bool lb_transpose_of(const lb_value *v, lb_transpose *t) {
  const lb_node *n = lb_match_op(v, LB_OP_Transpose);
  uint32_t count;
  const int64_t *perm = n ? lb_attr_ints(n, "perm", &count) : NULL;
  if (!perm || n->in[0]->info.rank != (int)count) return false;
  t->source = n->in[0];
  t->rank = (int)count;
  memcpy(t->perm, perm, count * sizeof *perm);
  return true;
}

// Whether v is produced by a Transpose that moves the last axis.
static bool sinks(const lb_value *v, lb_transpose *t) {
  return lb_transpose_of(v, t) && t->rank > 1 &&
         t->perm[t->rank - 1] != t->rank - 1;
}

lb_status lb_transpose_become(lb_rewrite *rw, lb_node *n, lb_value *x,
                              const lb_transpose *t) {
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Transpose, &x, 1));
  return lb_node_set_ints(rw->graph, n, "perm", t->perm, (uint32_t)t->rank);
}

// -- elementwise -------------------------------------------------------------

static bool same_perm(const lb_transpose *a, const lb_transpose *b) {
  return a->rank == b->rank &&
         !memcmp(a->perm, b->perm, (size_t)a->rank * sizeof *a->perm);
}

// The constant c permuted to the axis order of the source: a view.
static lb_status permute_const(lb_rewrite *rw, const lb_value *c,
                               const lb_transpose *t, lb_value **out) {
  const lb_tensor *from = lb_value_const(c);
  lb_tensor to = {.dtype = from->dtype, .rank = t->rank, .data = from->data};
  int shift = t->rank - from->rank;
  for (int i = 0; i < t->rank; i++) {
    int64_t axis = t->perm[i];
    to.dims[axis] = i < shift ? 1 : from->dims[i - shift];
    to.strides[axis] = i < shift ? 0 : from->strides[i - shift];
  }
  return lb_const_new(rw->graph, c->name, &to, out);
}

// One element in at most `rank` axes, so that the order does not matter.
static bool is_single(const lb_value *v, int rank) {
  for (int i = 0; i < v->info.rank; i++)
    if (!lb_dim_is(v->info.dims[i], 1)) return false;
  return v->info.rank >= 0 && v->info.rank <= rank;
}

// Whether an input of an elementwise node is available in the axis order of the
// source.
static bool can_untranspose(const lb_value *v, const lb_transpose *t) {
  const lb_tensor *c = lb_value_const(v);
  lb_transpose own;
  if (!v || (c && c->rank <= t->rank) || is_single(v, t->rank)) return true;
  return lb_transpose_of(v, &own) && same_perm(&own, t);
}

static lb_status untransposed_input(lb_rewrite *rw, lb_value *v,
                                    const lb_transpose *t, lb_value **out) {
  const lb_tensor *c = lb_value_const(v);
  lb_transpose own;
  *out = v;
  if (!v || (c && lb_tensor_count(c) == 1)) return LB_OK;
  if (c) return permute_const(rw, v, t, out);
  if (lb_transpose_of(v, &own)) *out = own.source;
  return LB_OK;
}

static lb_status visit_elementwise(lb_rewrite *rw, lb_node *n) {
  lb_value *in[MAX_IN];
  lb_transpose t = {.rank = 0}, each;
  if (n->n_in > MAX_IN || lb_rewrite_random(n)) return LB_OK;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && sinks(n->in[i], &each)) t = each;
  if (t.rank == 0 || n->out[0]->info.rank != t.rank) return LB_OK;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (!can_untranspose(n->in[i], &t)) return LB_OK;
  for (uint32_t i = 0; i < n->n_in; i++)
    LB_TRY(untransposed_input(rw, n->in[i], &t, &in[i]));
  lb_node *moved;
  lb_value *x;
  LB_TRY(lb_rewrite_insert(rw, n, n->op, in, n->n_in, &moved));
  LB_TRY(lb_node_copy_attrs(rw->graph, moved, n));
  LB_TRY(lb_rewrite_inserted(rw, moved, &x));
  return lb_transpose_become(rw, n, x, &t);
}

// Scales per axis or per block do not broadcast elementwise.
static lb_status visit_quantize(lb_rewrite *rw, lb_node *n) {
  return is_single(n->in[1], 1) ? visit_elementwise(rw, n) : LB_OK;
}

// Readers of an elidable Cast read its input instead, so a Transpose after it
// would come back.
static lb_status visit_cast(lb_rewrite *rw, lb_node *n) {
  return lb_attr_int(n, "elidable", 0) ? LB_OK : visit_elementwise(rw, n);
}

// -- removing axes -----------------------------------------------------------

// The axes that input 1 names, as a bit mask; false if they are not constant.
static bool axes_of(const lb_node *n, int rank, uint32_t *out) {
  const lb_tensor *t = n->n_in > 1 ? lb_value_const(n->in[1]) : NULL;
  if (!t || t->dtype != LB_I64 || !lb_tensor_is_dense(t)) return false;
  *out = 0;
  for (int64_t i = 0; i < lb_tensor_count(t); i++) {
    int64_t axis = lb_match_int(t, i);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return false;
    *out |= 1u << axis;
  }
  return *out != 0;
}

// t without the axes in the mask, which are removed from its input and output.
static lb_transpose without(const lb_transpose *t, uint32_t mask) {
  lb_transpose out = {.source = t->source};
  uint32_t gone = 0;  // axes of the source
  for (int i = 0; i < t->rank; i++)
    if (mask >> i & 1) gone |= 1u << t->perm[i];
  for (int i = 0; i < t->rank; i++) {
    if (mask >> i & 1) continue;
    uint32_t before = gone & ((1u << t->perm[i]) - 1);
    out.perm[out.rank++] = t->perm[i] - __builtin_popcount(before);
  }
  return out;
}

// Changes n, which reduces or squeezes the axes in `mask` of a transposed
// input, into a Transpose of `op` of the source.
static lb_status sink_axes(lb_rewrite *rw, lb_node *n, lb_op op,
                           const lb_transpose *t, uint32_t mask, bool keep) {
  int64_t axes[LB_MAX_RANK];
  int count = 0;
  for (int i = 0; i < t->rank; i++)
    if (mask >> i & 1) axes[count++] = t->perm[i];
  lb_value *in[2] = {t->source}, *x;
  lb_node *moved;
  LB_TRY(lb_const_ints(rw->graph, "axes", axes, count, &in[1]));
  LB_TRY(lb_rewrite_insert(rw, n, op, in, 2, &moved));
  if (op != LB_OP_Squeeze)
    LB_TRY(lb_node_set_int(rw->graph, moved, "keepdims", keep));
  LB_TRY(lb_rewrite_inserted(rw, moved, &x));
  lb_transpose remaining = keep ? *t : without(t, mask);
  return lb_transpose_become(rw, n, x, &remaining);
}

static lb_status visit_axes(lb_rewrite *rw, lb_node *n, bool keep) {
  lb_transpose t;
  uint32_t mask;
  if (!sinks(n->in[0], &t) || !axes_of(n, t.rank, &mask)) return LB_OK;
  return sink_axes(rw, n, n->op, &t, mask, keep);
}

static lb_status visit_squeeze(lb_rewrite *rw, lb_node *n) {
  return visit_axes(rw, n, false);
}

// Whether all elements are reduced to one, in any order.
static bool reduces_all(const lb_node *n) {
  return !lb_node_input(n, 1) && !lb_attr_int(n, "keepdims", 1) &&
         !lb_attr_int(n, "noop_with_empty_axes", 0);
}

static lb_status visit_reduction(lb_rewrite *rw, lb_node *n) {
  lb_transpose t;
  if (!reduces_all(n))
    return visit_axes(rw, n, lb_attr_int(n, "keepdims", 1) != 0);
  if (!sinks(n->in[0], &t)) return LB_OK;
  LB_TRY(lb_rewrite_become(rw, n, n->op, &t.source, 1));
  return lb_node_set_int(rw->graph, n, "keepdims", 0);
}

static lb_status visit_global_pool(lb_rewrite *rw, lb_node *n) {
  lb_transpose t;
  lb_op op = n->op == LB_OP_GlobalMaxPool ? LB_OP_ReduceMax : LB_OP_ReduceMean;
  if (!sinks(n->in[0], &t) || t.rank < 3) return LB_OK;
  return sink_axes(rw, n, op, &t, ((1u << t.rank) - 1) & ~3u, true);
}

// -- changing the axis -------------------------------------------------------

static int64_t source_axis(const lb_transpose *t, int64_t axis) {
  if (axis < 0) axis += t->rank;
  return axis < 0 || axis >= t->rank ? axis : t->perm[axis];
}

// Inserts the same operator with these inputs and n's attributes before n;
// `finish` then changes n into a Transpose of its output.
static lb_status sink_node(lb_rewrite *rw, lb_node *n, lb_value *const *in,
                           lb_node **moved) {
  LB_TRY(lb_rewrite_insert(rw, n, n->op, in, n->n_in, moved));
  return lb_node_copy_attrs(rw->graph, *moved, n);
}

static lb_status finish(lb_rewrite *rw, lb_node *n, lb_node *moved,
                        const lb_transpose *t) {
  lb_value *x;
  LB_TRY(lb_rewrite_inserted(rw, moved, &x));
  return lb_transpose_become(rw, n, x, t);
}

static lb_status visit_concat(lb_rewrite *rw, lb_node *n) {
  lb_transpose t, each;
  if (!sinks(n->in[0], &t)) return LB_OK;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (!lb_transpose_of(n->in[i], &each) || !same_perm(&each, &t))
      return LB_OK;
  lb_value **in = lb_arena_new(&rw->scratch, lb_value *, n->n_in);
  lb_node *moved;
  if (!in) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++) in[i] = n->in[i]->producer->in[0];
  LB_TRY(sink_node(rw, n, in, &moved));
  LB_TRY(lb_node_set_int(rw->graph, moved, "axis",
                         source_axis(&t, lb_attr_int(n, "axis", 0))));
  return finish(rw, n, moved, &t);
}

// Resize may name the axes of its scales and sizes.
static lb_status visit_resize(lb_rewrite *rw, lb_node *n) {
  lb_transpose t;
  uint32_t count;
  const int64_t *axes = lb_attr_ints(n, "axes", &count);
  bool cropped = n->n_in > 1 && n->in[1] &&
                 strcmp(lb_attr_str(n, "coordinate_transformation_mode", ""),
                        "tf_crop_and_resize") == 0;
  if (!sinks(n->in[0], &t) || cropped || n->n_in > MAX_IN) return LB_OK;
  int64_t source_axes[LB_MAX_RANK];
  int rank = axes ? (int)count : t.rank;
  if (rank > t.rank) return LB_OK;
  for (int i = 0; i < rank; i++)
    source_axes[i] = source_axis(&t, axes ? axes[i] : i);
  lb_value *in[MAX_IN] = {t.source};
  for (uint32_t i = 1; i < n->n_in; i++) in[i] = n->in[i];
  lb_node *moved;
  LB_TRY(sink_node(rw, n, in, &moved));
  LB_TRY(
      lb_node_set_ints(rw->graph, moved, "axes", source_axes, (uint32_t)rank));
  return finish(rw, n, moved, &t);
}

static lb_status visit_softmax(lb_rewrite *rw, lb_node *n) {
  lb_transpose t;
  lb_node *moved;
  if (lb_attr_int(n, "flatten", 0) != 0 || !sinks(n->in[0], &t)) return LB_OK;
  LB_TRY(sink_node(rw, n, &t.source, &moved));
  LB_TRY(lb_node_set_int(rw->graph, moved, "axis",
                         source_axis(&t, lb_attr_int(n, "axis", -1))));
  return finish(rw, n, moved, &t);
}

bool lb_transpose_to_first(const lb_transpose *t) {
  if (t->rank < 3 || t->perm[0] != 0 || t->perm[1] != t->rank - 1) return false;
  for (int i = 2; i < t->rank; i++)
    if (t->perm[i] != i - 1) return false;
  return true;
}

static lb_status visit_window(lb_rewrite *rw, lb_node *n) {
  lb_transpose t;
  if (!sinks(n->in[0], &t) || !lb_transpose_to_first(&t) ||
      lb_op_channels_last(n))
    return LB_OK;
  lb_node *moved;
  LB_TRY(sink_node(rw, n, &t.source, &moved));
  LB_TRY(lb_node_set_int(rw->graph, moved, "channels_last", 1));
  return finish(rw, n, moved, &t);
}

// Each output of Split gets a Transpose of its own.
static lb_status visit_split(lb_rewrite *rw, lb_node *n) {
  lb_transpose t;
  if (!sinks(n->in[0], &t)) return LB_OK;
  int64_t axis = source_axis(&t, lb_attr_int(n, "axis", 0));
  for (uint32_t i = n->n_out; i-- > 0;) {
    lb_node *back;
    if (!n->out[i]) continue;
    LB_TRY(lb_rewrite_after(rw, n, i, LB_OP_Transpose, &back));
    LB_TRY(lb_node_set_ints(rw->graph, back, "perm", t.perm, (uint32_t)t.rank));
  }
  lb_rewrite_use(rw, t.source, 1);
  lb_rewrite_use(rw, n->in[0], -1);
  n->in[0] = t.source;
  LB_TRY(lb_node_set_int(rw->graph, n, "axis", axis));
  return lb_infer_outputs(rw->graph, &rw->scratch, n);
}

// The axes of a Slice or a Pad, mapped to the source: those that it names, or
// the first `count`.
static bool named_axes(const lb_node *n, uint32_t input, int count,
                       const lb_transpose *t, int64_t *out, int *named) {
  const lb_value *v = n->n_in > input ? n->in[input] : NULL;
  const lb_tensor *c = lb_value_const(v);
  *named = count;
  bool ints = c && (c->dtype == LB_I64 || c->dtype == LB_I32);
  if (v && (!ints || !lb_tensor_is_dense(c))) return false;
  if (c) *named = (int)lb_tensor_count(c);
  if (*named > LB_MAX_RANK) return false;
  for (int i = 0; i < *named; i++)
    out[i] = source_axis(t, c ? lb_match_int(c, i) : i);
  return true;
}

// The inputs before the axes stay as they are, because they follow the order of
// the named axes.
static lb_status sink_named(lb_rewrite *rw, lb_node *n, uint32_t input,
                            int count, const lb_transpose *t) {
  int64_t axes[LB_MAX_RANK];
  lb_value *in[MAX_IN + 1] = {t->source}, *x;
  lb_node *moved;
  int named;
  if (!named_axes(n, input, count, t, axes, &named)) return LB_OK;
  for (uint32_t i = 1; i < n->n_in; i++) in[i] = n->in[i];
  LB_TRY(lb_const_ints(rw->graph, "axes", axes, named, &in[input]));
  uint32_t n_in = n->n_in > input ? n->n_in : input + 1;
  LB_TRY(lb_rewrite_insert(rw, n, n->op, in, n_in, &moved));
  LB_TRY(lb_node_copy_attrs(rw->graph, moved, n));
  LB_TRY(lb_rewrite_inserted(rw, moved, &x));
  return lb_transpose_become(rw, n, x, t);
}

static lb_status visit_slice(lb_rewrite *rw, lb_node *n) {
  lb_transpose t;
  if (!sinks(n->in[0], &t) || n->in[1]->info.rank != 1 ||
      !lb_dim_is_const(n->in[1]->info.dims[0]))
    return LB_OK;
  int64_t count = n->in[1]->info.dims[0].k;
  return count > t.rank ? LB_OK : sink_named(rw, n, 3, (int)count, &t);
}

static lb_status visit_pad(lb_rewrite *rw, lb_node *n) {
  lb_transpose t;
  return sinks(n->in[0], &t) ? sink_named(rw, n, 3, t.rank, &t) : LB_OK;
}

// -- reshapes ----------------------------------------------------------------

typedef struct regroup {  // axes [first, first + from) become `to` axes
  int first, from, to;
} regroup;

// Strips equal axes from both ends; the remaining ones must be one axis that is
// split, or several that are merged.
static bool find_regroup(const lb_vinfo *x, const lb_vinfo *y, regroup *out) {
  int first = 0, last = 0;
  if (x->rank < 0 || y->rank < 0) return false;
  int both = x->rank < y->rank ? x->rank : y->rank;
  while (first < both && lb_dim_equal(x->dims[first], y->dims[first])) first++;
  while (last < both - first &&
         lb_dim_equal(x->dims[x->rank - 1 - last], y->dims[y->rank - 1 - last]))
    last++;
  *out = (regroup){first, x->rank - first - last, y->rank - first - last};
  return out->from > 0 && out->to > 0 && (out->from == 1 || out->to == 1);
}

// Whether the target shape infers the size of axis i (-1).
static bool is_inferred(const lb_value *target, int i) {
  const lb_tensor *t = lb_value_const(target);
  const lb_vinfo *info = &target->info;
  if (t)
    return t->dtype == LB_I64 && t->rank == 1 && i < t->dims[0] &&
           lb_match_int(t, i * t->strides[0]) == -1;
  return info->known && i < (int)info->n_known && lb_dim_is(info->known[i], -1);
}

// Whether n splits an axis and gives every size, so that the sizes can be
// reordered. A size of 0 does not count: it means the size of the input's axis
// with the same number. For the axes before the split one, and for that one
// itself, this size is then 0 as well; after them no size may be 0.
static bool gives_all_sizes(const lb_node *n, const regroup *r) {
  const lb_vinfo *target = &n->in[1]->info, *y = &n->out[0]->info;
  if (r->from != 1 || !target->known || (int)target->n_known != y->rank)
    return false;
  for (int i = 0; i < y->rank; i++) {
    bool positional = i <= r->first || i >= n->in[0]->info.rank;
    if (!lb_dim_equal(target->known[i], y->dims[i]) ||
        (!positional && !lb_dim_is_const(y->dims[i])))
      return false;
  }
  return true;
}

typedef struct shaping {
  int64_t target[LB_MAX_RANK];
  int64_t order[LB_MAX_RANK];  // axes of the result
  lb_transpose after;
  int n;
  bool incomplete;  // sizes missing in `target`: gather them from n's shape in
                    // this order
} shaping;

// The next axis of the reshaped source is axis `to` of the result. Its size is
// a constant, that of the source's axis with the same number (`same`), or
// inferred.
static void add_axis(shaping *s, const lb_node *n, int to, bool same) {
  lb_dim d = n->out[0]->info.dims[to];
  if (lb_dim_is_const(d) && d.k > 0)
    s->target[s->n] = d.k;
  else if (same)
    s->target[s->n] = 0;
  else if (is_inferred(n->in[1], to))
    s->target[s->n] = -1;
  else
    s->incomplete = true;
  s->order[s->n] = to;
  s->after.perm[to] = s->n++;
}

static bool reshape_source(const lb_node *n, const lb_transpose *t,
                           const regroup *r, shaping *out) {
  *out = (shaping){.after.rank = n->out[0]->info.rank};
  for (int i = 1; i < r->from; i++)
    if (t->perm[r->first + i] != t->perm[r->first] + i) return false;
  for (int from = 0; from < t->rank; from++) {
    int i = 0;
    while (t->perm[i] != from) i++;
    bool stays = i < r->first || i >= r->first + r->from;
    int to = i < r->first ? i : i - r->from + r->to;
    if (stays) add_axis(out, n, to, from == out->n);
    for (int k = 0; i == r->first && k < r->to; k++)
      add_axis(out, n, r->first + k, false);
  }
  return !out->incomplete || gives_all_sizes(n, r);
}

static lb_status insert_reshape(lb_rewrite *rw, lb_node *n, lb_value *x,
                                const shaping *s, lb_node **out) {
  lb_value *in[2] = {x}, *from[2] = {n->in[1]};
  if (s->incomplete) {
    LB_TRY(lb_const_ints(rw->graph, "order", s->order, s->n, &from[1]));
    LB_TRY(lb_rewrite_make(rw, n, LB_OP_Gather, from, 2, &in[1]));
  } else {
    LB_TRY(lb_const_ints(rw->graph, "shape", s->target, s->n, &in[1]));
  }
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Reshape, in, 2, out));
  return s->incomplete ? lb_node_set_int(rw->graph, *out, "allowzero", 1)
                       : LB_OK;
}

// Merged axes that are adjacent in the source but in another order get a
// Transpose of their own, `first`, which only reorders them and stays in place,
// so that the remaining transpose t can sink.
static bool split_off_reorder(const regroup *r, lb_transpose *t,
                              lb_transpose *first) {
  int64_t low = t->rank, high = 0, *axes = &t->perm[r->first];
  bool ordered = true, remaining = false;
  for (int i = 0; i < r->from; i++) {
    low = axes[i] < low ? axes[i] : low;
    high = axes[i] > high ? axes[i] : high;
    ordered = ordered && axes[i] == axes[0] + i;
  }
  for (int i = 0; i < t->rank; i++)
    remaining |= (i < r->first || i >= r->first + r->from) && t->perm[i] != i;
  if (r->to != 1 || ordered || !remaining || high - low != r->from - 1)
    return false;
  *first = (lb_transpose){.source = t->source, .rank = t->rank};
  for (int i = 0; i < t->rank; i++)
    first->perm[i] = i < low || i > high ? i : axes[i - low];
  for (int i = 0; i < r->from; i++) axes[i] = low + i;
  return true;
}

// With splits_only, only a Reshape that splits an axis.
static lb_status sink_reshape(lb_rewrite *rw, lb_node *n, bool splits_only) {
  lb_transpose t, first;
  regroup r;
  shaping s;
  lb_node *moved;
  if (n->n_in != 2 || !sinks(n->in[0], &t) ||
      lb_attr_int(n, "allowzero", 0) != 0 ||
      !find_regroup(&n->in[0]->info, &n->out[0]->info, &r) ||
      (splits_only && r.from != 1))
    return LB_OK;
  bool reordered = split_off_reorder(&r, &t, &first);
  if (!reshape_source(n, &t, &r, &s)) return LB_OK;
  lb_value *x = t.source;
  if (reordered) {
    LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Transpose, &x, 1, &moved));
    LB_TRY(lb_node_set_ints(rw->graph, moved, "perm", first.perm,
                            (uint32_t)first.rank));
    LB_TRY(lb_rewrite_inserted(rw, moved, &x));
  }
  LB_TRY(insert_reshape(rw, n, x, &s, &moved));
  return finish(rw, n, moved, &s.after);
}

// -- all ---------------------------------------------------------------------

static lb_status visit_transpose(lb_rewrite *rw, lb_node *n) {
  lb_transpose inner, outer;
  if (!lb_transpose_of(n->out[0], &outer) || !lb_transpose_of(n->in[0], &inner))
    return LB_OK;
  lb_transpose both = {.rank = outer.rank};
  for (int i = 0; i < outer.rank; i++) both.perm[i] = inner.perm[outer.perm[i]];
  return lb_transpose_become(rw, n, inner.source, &both);
}

static lb_status visit_reshape(lb_rewrite *rw, lb_node *n) {
  LB_TRY(lb_transpose_norm(rw, n));
  return n->op == LB_OP_Reshape ? sink_reshape(rw, n, false) : LB_OK;
}

static lb_status visit_norm(lb_rewrite *rw, lb_node *n) {
  return lb_transpose_norm(rw, n);
}

static lb_status visit_stays(lb_rewrite *rw, lb_node *n) {
  (void)rw, (void)n;
  return LB_OK;
}

static lb_visit_fn *const rules[LB_OP_COUNT] = {
#define LB_OP(id, min_in, max_in, max_out, cls, deciding, traits, shape, \
              batch, sink, ...)                                          \
  [LB_OP_##id] = visit_##sink,
#include "graph/ops.def"
};

// A node with several outputs, except Split, cannot be replaced by a Transpose.
static lb_status visit(lb_rewrite *rw, lb_node *n) {
  if (n->n_in == 0 || !n->in[0] || n->n_out == 0) return LB_OK;
  if (n->op != LB_OP_Split && (n->n_out != 1 || !n->out[0])) return LB_OK;
  return rules[n->op](rw, n);
}

lb_status lb_pass_sink(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }

static lb_status visit_split_axis(lb_rewrite *rw, lb_node *n) {
  bool reshapes = n->op == LB_OP_Reshape && n->out[0];
  return reshapes ? sink_reshape(rw, n, true) : LB_OK;
}

lb_status lb_pass_cut(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit_split_axis);
}
