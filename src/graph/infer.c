// graph/infer.c -- runs the shape rules for one node or a whole graph.
//
// Rules return plain messages; lb_infer_node puts the operator and the node's
// name in front, so that every failure of a rule, overflow included, names its
// node.
#include "graph/infer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/rules.h"

// -- one node ----------------------------------------------------------------

static lb_status check_present(const lb_infer *c, const lb_op_info *op) {
  if (op->cls == LB_CLASS_CONTROL) return LB_OK;
  for (int i = 0; i < op->min_in; i++) {
    if (!lb_op_needs(c->node, (uint32_t)i)) continue;
    if (i >= (int)c->node->n_in || c->in[i].dtype == LB_NONE)
      return lb_infer_error(c, "input %d is missing", i);
  }
  return LB_OK;
}

// Constant dims must be >= 0, and the whole output must be addressable.
static lb_status check_output(const lb_infer *c, int o) {
  const lb_vinfo *v = &c->out[o];
  int64_t bytes = (int64_t)lb_dtype_size(v->dtype);
  for (int i = 0; i < v->rank; i++) {
    if (!lb_dim_is_const(v->dims[i])) continue;
    int64_t d = v->dims[i].k;
    if (d < 0)
      return lb_infer_error(c, "output %d would be %s: dim %d is negative", o,
                            lb_rule_dims(c, v->rank, v->dims), i);
    if (__builtin_mul_overflow(bytes, d > 1 ? d : 1, &bytes) ||
        bytes > LB_DIM_LIMIT)
      return lb_infer_error(c, "output %d would be %s: more than 2^47 bytes", o,
                            lb_rule_dims(c, v->rank, v->dims));
  }
  return LB_OK;
}

// Moves the channels to dim 1, or back to the last dim.
static void move_channels(lb_vinfo *v, bool back) {
  if (v->rank < 3) return;
  int from = back ? 1 : v->rank - 1, to = back ? v->rank - 1 : 1;
  lb_dim channels = v->dims[from];
  for (int i = from; i != to; i += back ? 1 : -1)
    v->dims[i] = v->dims[back ? i + 1 : i - 1];
  v->dims[to] = channels;
}

// Runs the rule of an operator whose input 0 and output 0 have channels last.
static lb_status run_channels_last(lb_infer *c, lb_shape_fn *shape) {
  lb_vinfo *in = lb_arena_memdup(c->arena, c->in, c->node->n_in * sizeof *in,
                                 _Alignof(lb_vinfo));
  if (!in) return lb_oom();
  lb_infer first = *c;
  first.in = in;
  move_channels(&in[0], false);
  LB_TRY(shape(&first));
  move_channels(&c->out[0], true);
  return LB_OK;
}

static lb_status run_rule(lb_infer *c) {
  const lb_op_info *op = &lb_op_infos[c->node->op];
  LB_TRY(check_present(c, op));
  if (c->node->n_out == 0) return LB_OK;  // rules rely on one output
  bool last = lb_op_channels_last(c->node);
  LB_TRY(last ? run_channels_last(c, op->shape) : op->shape(c));
  for (int o = 0; o < (int)c->node->n_out; o++) LB_TRY(check_output(c, o));
  return LB_OK;
}

lb_status lb_infer_node(lb_infer *c) {
  for (uint32_t o = 0; o < c->node->n_out; o++) {
    lb_vinfo *v = &c->out[o];
    v->dtype = LB_NONE;
    v->rank = -1;
    v->data = NULL;
    v->known = NULL;
    v->n_known = 0;
  }
  lb_status st = run_rule(c);
  if (!lb_failed(st)) return st;
  char label[256];
  return lb_status_note(st, "%s", lb_node_label(c->node, label, sizeof label));
}

lb_status lb_infer_error(const lb_infer *c, const char *fmt, ...) {
  (void)c;
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return lb_error(LB_INVALID, "%s", text);
}

lb_status lb_infer_fresh(lb_infer *c, int out_index, int rank) {
  lb_vinfo *o = &c->out[out_index];
  LB_TRY(lb_rule_max_rank(c, rank));
  for (int i = 0; i < rank; i++) LB_TRY(lb_rule_fresh(c, &o->dims[i]));
  o->rank = rank;
  return LB_OK;
}

// The rule of If, Loop and Scan. lb_infer_graph infers their outputs together
// with their regions; this rule only repeats the dtypes.
lb_status lb_shape_control(lb_infer *c) {
  for (uint32_t o = 0; o < c->node->n_out; o++) {
    const lb_value *v = c->node->out[o];
    if (v) c->out[o].dtype = v->info.dtype;
  }
  return LB_OK;
}

// -- a graph -----------------------------------------------------------------

// Bodies of loops are walked again while carried shapes widen. Nested loops
// multiply the number of walks, so after `budget` node visits the ranks of
// carried values become unknown at once.
typedef struct infer_walk {
  lb_graph *g;
  lb_arena scratch;  // emptied after each node of the main region
  uint64_t visits, budget;
  int depth;
} infer_walk;

enum { MAX_DEPTH = 64, MAX_PASSES = 3 };

static lb_status walk_region(infer_walk *w, lb_region *r);

static void forget_contents(lb_vinfo *v) {
  v->data = NULL;
  v->known = NULL;
  v->n_known = 0;
}

static const lb_vinfo absent = {.dtype = LB_NONE, .rank = -1};

static const lb_vinfo *info_of(const lb_value *v) {
  return v ? &v->info : &absent;
}

// A parameter has the info of the value it receives, but is not a constant.
static void bind_param(lb_value *param, const lb_vinfo *from) {
  param->info = *from;
  param->info.data = NULL;
}

static void bind_captures(const lb_node *n, const lb_region *body) {
  uint32_t first = body->n_params - n->n_captures;
  for (uint32_t i = 0; i < n->n_captures; i++)
    bind_param(body->params[first + i],
               info_of(n->in[n->n_in - n->n_captures + i]));
}

LB_PRINTF(2, 3)
static lb_status node_error(const lb_node *n, const char *fmt, ...) {
  char label[256], text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return lb_error(LB_INVALID, "%s: %s", lb_node_label(n, label, sizeof label),
                  text);
}

// A condition or trip count must be one element of dtype t, as far as is known.
static lb_status check_control(const lb_node *n, const lb_value *v, lb_dtype t,
                               const char *what) {
  if (!v) return LB_OK;
  const lb_vinfo *x = &v->info;
  bool one = true;
  for (int i = 0; i < x->rank; i++)
    one = one && !lb_rule_differ(x->dims[i], lb_dim_const(1));
  if (x->dtype == t && one) return LB_OK;
  return node_error(n, "%s must be a single element of %s", what,
                    lb_dtype_name(t));
}

static bool same_known(const lb_vinfo *a, const lb_vinfo *b) {
  if (!a->known || !b->known || a->n_known != b->n_known) return false;
  for (int i = 0; i < a->n_known; i++)
    if (!lb_dim_equal(a->known[i], b->known[i])) return false;
  return true;
}

// Replaces a by the join of a and b: it keeps what is equal in both.
static lb_status join(infer_walk *w, const lb_node *n, lb_vinfo *a,
                      const lb_vinfo *b) {
  if (a->dtype != b->dtype)
    return node_error(n, "branches yield %s and %s; they must agree",
                      lb_dtype_name(a->dtype), lb_dtype_name(b->dtype));
  if (!same_known(a, b)) forget_contents(a);
  a->data = NULL;
  if (a->rank != b->rank) a->rank = -1;
  for (int i = 0; i < a->rank; i++)
    if (!lb_dim_equal(a->dims[i], b->dims[i]))
      LB_TRY(lb_symtab_fresh(w->g->syms, &a->dims[i]));
  return LB_OK;
}

// -- If

// A branch that is invalid at these shapes is not an error of the model as long
// as it is not taken (a Squeeze guarded by a test of its dim). Inference fails
// only if neither branch is valid, or if the branch that is known to be taken
// is invalid. *why receives the error of an invalid branch.
static lb_status walk_branch(infer_walk *w, const lb_node *n, lb_region *r,
                             bool *runs, lb_status *why) {
  bind_captures(n, r);
  lb_status st = walk_region(w, r);
  *runs = !lb_failed(st);
  if (*runs || lb_status_code(st) != LB_INVALID) return st;
  lb_status_drop(*why);
  *why = st;
  return LB_OK;
}

// The index of the region that runs, if that is known already; otherwise -1.
static int taken_branch(const lb_node *n) {
  lb_infer c = {.node = n, .in = info_of(n->in[0])};
  int64_t cond;
  return lb_rule_const_int(&c, 0, &cond) == 1 ? (cond ? 0 : 1) : -1;
}

static lb_status join_branches(infer_walk *w, lb_node *n, const bool *runs) {
  bool one = taken_branch(n) >= 0;
  for (uint32_t o = 0; o < n->n_out; o++) {
    if (!n->out[o]) continue;
    lb_vinfo *v = &n->out[o]->info;
    *v = absent;
    for (uint32_t r = 0; r < n->n_regions; r++) {
      if (!runs[r]) continue;
      const lb_vinfo *from = info_of(n->regions[r]->results[o]);
      if (v->dtype == LB_NONE)
        *v = *from;
      else
        LB_TRY(join(w, n, v, from));
    }
    v->data = NULL;
    // The branch found invalid may still be taken, and yield another shape.
    if (!one && (!runs[0] || !runs[1])) {
      forget_contents(v);
      v->rank = -1;
    }
  }
  return LB_OK;
}

static lb_status infer_if(infer_walk *w, lb_node *n) {
  bool runs[2] = {false, false};
  lb_status why = LB_OK;
  if (n->n_regions != 2)
    return lb_error(LB_INTERNAL, "If must have two regions");
  LB_TRY(check_control(n, n->in[0], LB_BOOL, "the condition"));
  for (int r = 0; r < 2; r++) {
    lb_status st = walk_branch(w, n, n->regions[r], &runs[r], &why);
    if (!lb_failed(st)) continue;
    lb_status_drop(why);
    return st;
  }
  int taken = taken_branch(n);
  if (taken < 0 ? !runs[0] && !runs[1] : !runs[taken]) return why;
  lb_status_drop(why);
  if (taken >= 0) runs[1 - taken] = false;
  return join_branches(w, n, runs);
}

// -- Loop and Scan

// The values carried from one iteration to the next. Bit i of varying[k]: dim i
// of value k may differ in each iteration, and has a fresh symbol.
typedef struct carried {
  const lb_node *node;
  lb_region *body;
  lb_value **params;
  lb_value **results;
  lb_vinfo *now;  // the assumed infos of the parameters
  uint32_t *varying;
  uint32_t n;
} carried;

static lb_status widen(infer_walk *w, carried *x, uint32_t k, bool *changed) {
  lb_vinfo *now = &x->now[k];
  const lb_vinfo *next = info_of(x->results[k]);
  if (next->dtype != now->dtype)
    return node_error(x->node,
                      "a carried value changes its dtype from %s to %s",
                      lb_dtype_name(now->dtype), lb_dtype_name(next->dtype));
  if (now->rank < 0) return LB_OK;
  if (now->rank != next->rank) {
    now->rank = -1;
    *changed = true;
  }
  for (int i = 0; i < now->rank; i++) {
    if ((x->varying[k] >> i & 1) || lb_dim_equal(now->dims[i], next->dims[i]))
      continue;
    x->varying[k] |= 1u << i;
    LB_TRY(lb_symtab_fresh(w->g->syms, &now->dims[i]));
    *changed = true;
  }
  return LB_OK;
}

static lb_status walk_iteration(infer_walk *w, carried *x, bool *changed) {
  for (uint32_t k = 0; k < x->n; k++) bind_param(x->params[k], &x->now[k]);
  LB_TRY(walk_region(w, x->body));
  *changed = false;
  for (uint32_t k = 0; k < x->n; k++) LB_TRY(widen(w, x, k, changed));
  return LB_OK;
}

// Walks the body until the infos of its parameters cover those of its results.
static lb_status widen_to_fixpoint(infer_walk *w, carried *x,
                                   lb_value *const *initial) {
  x->now = lb_arena_new(&w->scratch, lb_vinfo, x->n);
  x->varying = lb_arena_new(&w->scratch, uint32_t, x->n);
  if (!x->now || !x->varying) return lb_oom();
  for (uint32_t k = 0; k < x->n; k++) {
    x->now[k] = *info_of(initial[k]);
    forget_contents(&x->now[k]);
  }
  bool changed = true;
  for (int pass = 0; changed; pass++) {
    bool last = pass == MAX_PASSES || w->visits > w->budget;
    for (uint32_t k = 0; last && k < x->n; k++) x->now[k].rank = -1;
    LB_TRY(walk_iteration(w, x, &changed));
  }
  return LB_OK;
}

// Sets `out` to the value after the last iteration. Its varying dims get fresh
// symbols, because those in the body stand for the dims of any one iteration.
static lb_status set_carried_output(infer_walk *w, const carried *x, uint32_t k,
                                    lb_value *out) {
  if (!out) return LB_OK;
  out->info = x->now[k];
  for (int i = 0; i < out->info.rank; i++)
    if (x->varying[k] >> i & 1)
      LB_TRY(lb_symtab_fresh(w->g->syms, &out->info.dims[i]));
  return LB_OK;
}

// Sets `out` to values of shape `slice`, one per iteration, stacked along a new
// axis.
static lb_status stack(const lb_node *n, const lb_vinfo *slice, int64_t axis,
                       lb_dim iterations, lb_value *out) {
  if (!out) return LB_OK;
  out->info = *slice;
  forget_contents(&out->info);
  int rank = slice->rank + 1;
  if (slice->rank < 0) return LB_OK;
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank || rank > LB_MAX_RANK)
    return node_error(n, "scan output '%s' cannot be stacked: %s", out->name,
                      rank > LB_MAX_RANK ? "its rank is too large"
                                         : "its axis is out of range");
  lb_dim *d = out->info.dims;
  memmove(d + axis + 1, d + axis,
          (size_t)(rank - 1 - (int)axis) * sizeof(lb_dim));
  d[axis] = iterations;
  out->info.rank = rank;
  return LB_OK;
}

static lb_status infer_loop(infer_walk *w, lb_node *n) {
  if (n->n_regions != 1 || n->n_in < 2 + n->n_captures)
    return lb_error(LB_INTERNAL, "Loop '%s' is malformed", n->name);
  lb_region *body = n->regions[0];
  carried x = {.node = n, .body = body, .n = n->n_in - 2 - n->n_captures};
  if (body->n_params != 2 + x.n + n->n_captures || body->n_results < 1 + x.n ||
      n->n_out > body->n_results - 1)
    return lb_error(LB_INTERNAL, "Loop '%s' does not match its body", n->name);
  LB_TRY(check_control(n, n->in[0], LB_I64, "the trip count"));
  LB_TRY(check_control(n, n->in[1], LB_BOOL, "the condition"));
  x.params = body->params + 2;
  x.results = body->results + 1;
  body->params[0]->info = (lb_vinfo){.dtype = LB_I64, .rank = 0};
  body->params[1]->info = (lb_vinfo){.dtype = LB_BOOL, .rank = 0};
  bind_captures(n, body);
  LB_TRY(widen_to_fixpoint(w, &x, n->in + 2));
  LB_TRY(check_control(n, body->results[0], LB_BOOL, "the body's condition"));
  for (uint32_t o = 0; o < n->n_out; o++) {
    if (o < x.n) {
      LB_TRY(set_carried_output(w, &x, o, n->out[o]));
      continue;
    }
    lb_dim iterations;
    LB_TRY(lb_symtab_fresh(w->g->syms, &iterations));
    LB_TRY(stack(n, info_of(body->results[o + 1]), 0, iterations, n->out[o]));
  }
  return LB_OK;
}

// Computes the slice of one scan input that an iteration reads, and the number
// of iterations. *counted: an earlier scan input has set *iterations.
static lb_status unstack(const lb_node *n, const lb_vinfo *in, int64_t axis,
                         lb_vinfo *slice, lb_dim *iterations, bool *counted) {
  *slice = *in;
  forget_contents(slice);
  if (in->rank < 0) return LB_OK;
  if (axis < 0) axis += in->rank;
  if (axis < 0 || axis >= in->rank)
    return node_error(n, "a scan axis is out of range");
  if (*counted && lb_rule_differ(*iterations, in->dims[axis]))
    return node_error(n, "scanned inputs differ in length");
  if (!*counted || lb_dim_is_const(in->dims[axis]))
    *iterations = in->dims[axis];
  *counted = true;
  slice->rank--;
  memmove(slice->dims + axis, slice->dims + axis + 1,
          (size_t)(slice->rank - (int)axis) * sizeof(lb_dim));
  return LB_OK;
}

static int64_t list_at(const int64_t *list, uint32_t n, uint32_t i) {
  return i < n ? list[i] : 0;
}

static lb_status infer_scan(infer_walk *w, lb_node *n) {
  int64_t scanned = lb_attr_int(n, "num_scan_inputs", 0);
  uint32_t own = n->n_in - n->n_captures;
  if (n->n_regions != 1 || n->n_in < n->n_captures || scanned < 1 ||
      scanned > own)
    return node_error(n, "num_scan_inputs does not match its inputs");
  lb_region *body = n->regions[0];
  carried x = {.node = n, .body = body, .n = own - (uint32_t)scanned};
  if (body->n_params != n->n_in || body->n_results < x.n ||
      n->n_out > body->n_results)
    return lb_error(LB_INTERNAL, "Scan '%s' does not match its body", n->name);
  x.params = body->params;
  x.results = body->results;
  uint32_t n_in_axes, n_out_axes;
  const int64_t *in_axes = lb_attr_ints(n, "scan_input_axes", &n_in_axes);
  const int64_t *out_axes = lb_attr_ints(n, "scan_output_axes", &n_out_axes);
  lb_dim iterations = {0};
  bool counted = false;
  for (uint32_t i = 0; i < (uint32_t)scanned; i++)
    LB_TRY(unstack(n, info_of(n->in[x.n + i]), list_at(in_axes, n_in_axes, i),
                   &body->params[x.n + i]->info, &iterations, &counted));
  if (!counted) LB_TRY(lb_symtab_fresh(w->g->syms, &iterations));
  bind_captures(n, body);
  LB_TRY(widen_to_fixpoint(w, &x, n->in));
  for (uint32_t o = 0; o < n->n_out; o++) {
    if (o < x.n)
      LB_TRY(set_carried_output(w, &x, o, n->out[o]));
    else
      LB_TRY(stack(n, info_of(body->results[o]),
                   list_at(out_axes, n_out_axes, o - x.n), iterations,
                   n->out[o]));
  }
  return LB_OK;
}

// -- the walk

lb_status lb_infer_outputs(lb_graph *g, lb_arena *scratch, lb_node *n) {
  lb_vinfo *in = lb_arena_new(scratch, lb_vinfo, n->n_in);
  lb_vinfo *out = lb_arena_new(scratch, lb_vinfo, n->n_out);
  if (!in || !out) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++) in[i] = *info_of(n->in[i]);
  lb_infer c = {n, g->syms, &g->arena, in, out};
  LB_TRY(lb_infer_node(&c));
  for (uint32_t o = 0; o < n->n_out; o++)
    if (n->out[o]) n->out[o]->info = out[o];
  return LB_OK;
}

static lb_status infer_any(infer_walk *w, lb_node *n) {
  w->visits++;
  switch (n->op) {
    case LB_OP_If: return infer_if(w, n);
    case LB_OP_Loop: return infer_loop(w, n);
    case LB_OP_Scan: return infer_scan(w, n);
    default: return lb_infer_outputs(w->g, &w->scratch, n);
  }
}

static lb_status walk_region(infer_walk *w, lb_region *r) {
  if (w->depth == MAX_DEPTH)
    return lb_error(LB_UNSUPPORTED, "bodies nested more than %d deep",
                    MAX_DEPTH);
  w->depth++;
  lb_status st = LB_OK;
  for (uint32_t i = 0; i < r->n_nodes && !lb_failed(st); i++) {
    st = infer_any(w, r->nodes[i]);
    if (w->depth == 1) lb_arena_reset(&w->scratch);
  }
  w->depth--;
  return st;
}

lb_status lb_infer_graph(lb_graph *g) {
  infer_walk w = {.g = g, .budget = 16 * ((uint64_t)g->n_nodes + 64)};
  lb_arena_init(&w.scratch, 16 << 10);
  lb_status st = walk_region(&w, g->main);
  lb_arena_fini(&w.scratch);
  return st;
}
