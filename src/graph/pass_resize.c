// graph/pass_resize.c -- splits a Resize of many axes into several of few.
//
// Interpolation is separable, and kernels support two axes for linear
// interpolation, and one for cubic:
//
//   Resize{axes=[1, 2]}(x, by [a, b])
//     = Resize{axes=[2]}(Resize{axes=[1]}(x, by [a]), by [b])
#include "graph/resize.h"
#include "graph/rewrite.h"

enum { SCALES = 2, SIZES };  // inputs

typedef struct resizing {
  lb_node *node;
  uint32_t by;  // the input that gives the sizes: SCALES or SIZES
  int n;        // number of axes
  int64_t axes[LB_MAX_RANK];
  bool changes[LB_MAX_RANK];  // which of them change, as far as the graph shows
} resizing;

// Whether element i of `by` leaves its axis unchanged.
static bool is_unchanged(const resizing *r, int i) {
  const lb_node *n = r->node;
  const lb_tensor *t = lb_value_const(n->in[r->by]);
  if (r->by == SCALES) return lb_match_elem(t, i) == 1;
  return lb_dim_equal(n->in[0]->info.dims[r->axes[i]],
                      n->out[0]->info.dims[r->axes[i]]);
}

static bool match(lb_node *n, resizing *r) {
  uint32_t count;
  const int64_t *axes = lb_attr_ints(n, "axes", &count);
  int rank = n->in[0]->info.rank;
  *r = (resizing){.node = n, .by = lb_resize_has(n, SCALES) ? SCALES : SIZES};
  r->n = axes ? (int)count : rank;
  if (!n->out[0] || rank < 1 || n->out[0]->info.rank != rank || r->n > rank ||
      !lb_resize_has(n, r->by) || !lb_resize_is_plain(n))
    return false;
  const lb_tensor *t = lb_value_const(n->in[SCALES]);
  if (r->by == SCALES && !(t && t->dtype == LB_F32 && lb_tensor_is_dense(t) &&
                           lb_tensor_count(t) == r->n))
    return false;
  for (int i = 0; i < r->n; i++) {
    r->axes[i] = axes ? axes[i] : i;
    if (r->axes[i] < 0) r->axes[i] += rank;
    if (r->axes[i] < 0 || r->axes[i] >= rank) return false;
    r->changes[i] = !is_unchanged(r, i);
  }
  return true;
}

// Index of the axis to be resized first; -1: a kernel supports all.
static int first_of(const resizing *r) {
  int max_axes = lb_resize_is_mode(r->node, "cubic")    ? 1
                 : lb_resize_is_mode(r->node, "linear") ? 2
                                                        : 8;
  int first = -1, count = 0;
  for (int i = 0; i < r->n; i++) {
    if (r->changes[i] && (first < 0 || r->axes[i] < r->axes[first])) first = i;
    count += r->changes[i];
  }
  return count > max_axes ? first : -1;
}

static lb_status some_scales(lb_rewrite *rw, const resizing *r,
                             const int64_t *which, int n, lb_value **out) {
  const lb_tensor *from = lb_value_const(r->node->in[SCALES]);
  float *to = lb_arena_new(&rw->graph->arena, float, (size_t)n);
  if (!to) return lb_oom();
  for (int i = 0; i < n; i++) to[i] = (float)lb_match_elem(from, which[i]);
  lb_tensor t = {
      .dtype = LB_F32, .rank = 1, .dims = {n}, .strides = {1}, .data = to};
  return lb_const_new(rw->graph, "scales", &t, out);
}

static lb_status some_sizes(lb_rewrite *rw, const resizing *r,
                            const int64_t *which, int n, lb_value **out) {
  lb_value *in[2] = {r->node->in[SIZES]};
  LB_TRY(lb_const_ints(rw->graph, "which", which, n, &in[1]));
  return lb_rewrite_make(rw, r->node, LB_OP_Gather, in, 2, out);
}

// A Resize of x along some of the axes; `which` has their indices in r->axes.
static lb_status add_resize(lb_rewrite *rw, const resizing *r, lb_value *x,
                            const int64_t *which, int n, lb_value **out) {
  lb_value *in[SIZES + 1] = {x};
  int64_t axes[LB_MAX_RANK];
  lb_node *node;
  for (int i = 0; i < n; i++) axes[i] = r->axes[which[i]];
  LB_TRY(r->by == SCALES ? some_scales(rw, r, which, n, &in[SCALES])
                         : some_sizes(rw, r, which, n, &in[SIZES]));
  LB_TRY(lb_rewrite_insert(rw, r->node, LB_OP_Resize, in, r->by + 1, &node));
  LB_TRY(lb_node_copy_attrs(rw->graph, node, r->node));
  LB_TRY(lb_node_set_ints(rw->graph, node, "axes", axes, (uint32_t)n));
  return lb_rewrite_inserted(rw, node, out);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  resizing r;
  int64_t others[LB_MAX_RANK];
  int count = 0;
  if (n->op != LB_OP_Resize || !match(n, &r)) return LB_OK;
  int64_t first = first_of(&r);
  if (first < 0) return LB_OK;
  for (int64_t i = 0; i < r.n; i++)
    if (i != first) others[count++] = i;
  lb_value *x = n->in[0];
  LB_TRY(add_resize(rw, &r, x, &first, 1, &x));
  LB_TRY(add_resize(rw, &r, x, others, count, &x));
  return lb_rewrite_become(rw, n, LB_OP_Identity, &x, 1);
}

lb_status lb_pass_resize(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
