// graph/pass_widen.c -- computes float16 and bfloat16 operators in float32.
//
// float16 and bfloat16 are storage types: few processors compute in them, and
// otherwise each operator would widen each input and round each result by
// itself. So an operator that computes gets float32 inputs and outputs,
// followed by a Cast to the 16-bit type of the model. That Cast is elidable:
// the model did not request its rounding, and an operator that accepts float32
// reads the Cast's input instead. An operator that only moves elements keeps
// the type of its input. Casts of the model itself round as specified.
#include "graph/infer.h"
#include "graph/rewrite.h"

typedef struct widening {
  lb_rewrite *rw;
  lb_value **wide;  // by value id: its Cast to float32, or NULL
  uint32_t n;
} widening;

static bool is_f16(const lb_value *v) {
  return v && (v->info.dtype == LB_F16 || v->info.dtype == LB_BF16);
}

// The input of the elidable Cast that produces v, or NULL.
static lb_value *unrounded(const lb_value *v) {
  const lb_node *cast = lb_match_op(v, LB_OP_Cast);
  return cast && lb_attr_int(cast, "elidable", 0) ? cast->in[0] : NULL;
}

static bool any_unrounded(const lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++)
    if (is_f16(n->in[i]) && unrounded(n->in[i])) return true;
  return false;
}

static bool may_widen(const lb_node *n) {
  if (lb_op_has(n->op, LB_TRAIT_OWN_DTYPE)) return false;
  switch (lb_op_infos[n->op].cls) {
    case LB_CLASS_ELEMENTWISE:
    case LB_CLASS_CONTRACTION:
    case LB_CLASS_REDUCTION:
    case LB_CLASS_WINDOW:
    case LB_CLASS_RECURRENT: return true;
    case LB_CLASS_MOVEMENT:
    case LB_CLASS_VIEW:
    case LB_CLASS_SEARCH: return any_unrounded(n);
    default: return false;
  }
}

// v as float32 for n; the Cast is shared by later nodes of the region.
static lb_status widened(widening *w, lb_node *n, lb_value *v, lb_value **out) {
  *out = unrounded(v);
  if (*out) return LB_OK;
  lb_value *known = v->id < w->n ? w->wide[v->id] : NULL;
  if (known && known->producer->region == n->region) {
    *out = known;
    return LB_OK;
  }
  LB_TRY(lb_rewrite_cast(w->rw, n, v, LB_F32, out));
  if (v->id < w->n) w->wide[v->id] = *out;
  return LB_OK;
}

static lb_status widen_inputs(widening *w, lb_node *n, bool *changed) {
  for (uint32_t i = 0; i < n->n_in; i++) {
    lb_value *v = n->in[i];
    if (!is_f16(v)) continue;
    LB_TRY(widened(w, n, v, &n->in[i]));
    lb_rewrite_use(w->rw, n->in[i], 1);
    lb_rewrite_use(w->rw, v, -1);
    w->rw->changes++;
    *changed = true;
  }
  return LB_OK;
}

static lb_status round_output(widening *w, lb_node *n, uint32_t i) {
  lb_graph *g = w->rw->graph;
  int64_t to = lb_attr_code(n->out[i]->info.dtype);
  lb_node *cast;
  LB_TRY(lb_rewrite_after(w->rw, n, i, LB_OP_Cast, &cast));
  LB_TRY(lb_node_set_int(g, cast, "to", to));
  return lb_node_set_int(g, cast, "elidable", 1);
}

// Lets a Cast read the value before an elidable Cast, which gives the same
// result or a more exact one.
static void read_unrounded(widening *w, lb_node *cast) {
  lb_value *v = cast->in[0], *from = is_f16(v) ? unrounded(v) : NULL;
  if (!from) return;
  cast->in[0] = from;
  lb_rewrite_use(w->rw, from, 1);
  lb_rewrite_use(w->rw, v, -1);
  w->rw->changes++;
}

static lb_status widen(widening *w, lb_node *n) {
  bool changed = false;
  if (n->op == LB_OP_Cast) read_unrounded(w, n);
  if (!may_widen(n)) return LB_OK;
  LB_TRY(widen_inputs(w, n, &changed));
  if (!changed) return LB_OK;
  for (uint32_t i = 0; i < n->n_out; i++)
    if (is_f16(n->out[i])) LB_TRY(round_output(w, n, i));
  return lb_infer_outputs(w->rw->graph, &w->rw->scratch, n);
}

// Inserting nodes before n shifts it, so that it is visited again, but they are
// Casts, which stay as they are.
static lb_status widen_region(widening *w, lb_region *r) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    LB_TRY(widen(w, n));
    for (uint32_t k = 0; k < n->n_regions; k++)
      LB_TRY(widen_region(w, n->regions[k]));
  }
  return LB_OK;
}

static bool has_f16(const lb_graph *g) {
  for (uint32_t i = 0; i < g->n_values; i++)
    if (is_f16(g->values[i])) return true;
  return false;
}

lb_status lb_pass_widen(lb_rewrite *rw) {
  widening w = {.rw = rw, .n = rw->n_state};
  if (!has_f16(rw->graph)) return LB_OK;
  w.wide = lb_arena_new(&rw->scratch, lb_value *, rw->n_state);
  return w.wide ? widen_region(&w, rw->graph->main) : lb_oom();
}
