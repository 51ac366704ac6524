// graph/pass_clean.c -- no-ops and dead code.
#include "graph/rewrite.h"
#include "graph/skip.h"

// -- no-ops ------------------------------------------------------------------

static bool only_first_used(const lb_rewrite *rw, const lb_node *n) {
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i] && lb_rewrite_uses(rw, n->out[i]) > 0) return false;
  return true;
}

// Nodes of a chain that are examined: chains are longer in tests only, and the
// search starts again at each of their nodes.
#define MAX_CHAIN 32

// The value with the dims of v from which v follows by nodes that keep all
// elements in order; NULL: none. Only nodes whose operand is neutral count, or
// only others.
static lb_value *source_of(const lb_rewrite *rw, const lb_value *v,
                           bool neutral) {
  const lb_value *at = v;
  lb_proof proof;
  for (int i = 0; i < MAX_CHAIN && at->producer && at->out_index == 0; i++) {
    const lb_node *n = at->producer;
    if ((lb_op_infos[n->op].skip == LB_SKIP_ID_neutral) != neutral) return NULL;
    if (lb_skip_at_load(n, only_first_used(rw, n), &proof) != LB_SKIP_SAME)
      return NULL;
    lb_value *x = n->in[proof.input];
    if (x->info.dtype == v->info.dtype && lb_value_same_dims(x, v)) return x;
    at = x;
  }
  return NULL;
}

// A reduction over axes of size 1 that removes them is a Squeeze, which no
// partition includes.
static lb_status become_squeeze(lb_rewrite *rw, lb_node *n) {
  lb_proof proof;
  bool reduces = lb_op_infos[n->op].skip == LB_SKIP_ID_reduce &&
                 lb_attr_int(n, "keepdims", 1) == 0;
  if (!reduces || lb_skip_at_load(n, true, &proof) != LB_SKIP_SAME)
    return LB_OK;
  lb_value *axes = lb_node_input(n, 1);
  bool all = !axes || lb_tensor_count(lb_value_const(axes)) == 0;
  return lb_rewrite_become(rw, n, LB_OP_Squeeze, (lb_value *[]){n->in[0], axes},
                           all ? 1 : 2);
}

static bool is_read(const lb_rewrite *rw, const lb_node *n) {
  return n->n_in && n->in[0] && n->n_out && n->out[0] &&
         lb_rewrite_uses(rw, n->out[0]) > 0;
}

// Keeps the proof in the node, for g->removed.
static void replace_by(lb_rewrite *rw, lb_node *n, lb_value *from) {
  lb_skip_at_load(n, only_first_used(rw, n), &n->proof);
  lb_rewrite_replace(rw, n->out[0], from);
}

static lb_status drop_noop(lb_rewrite *rw, lb_node *n) {
  if (!is_read(rw, n)) return LB_OK;
  lb_value *from = source_of(rw, n->out[0], false);
  if (!from) return become_squeeze(rw, n);
  replace_by(rw, n, from);
  return LB_OK;
}

// Whether n is the Softmax of float32 values over an axis of size 1.
static bool is_softmax_of_one(const lb_node *n) {
  const lb_vinfo *x = &n->in[0]->info;
  int64_t axis = lb_attr_int(n, "axis", -1);
  if (n->op != LB_OP_Softmax || x->dtype != LB_F32 || x->rank < 1 ||
      lb_attr_int(n, "flatten", 0))
    return false;
  if (axis < 0) axis += x->rank;
  return axis >= 0 && axis < x->rank && lb_dim_is(x->dims[axis], 1);
}

// Such a Softmax is 1, except where x is NaN or infinite: x - x + 1.
static lb_status become_one(lb_rewrite *rw, lb_node *n) {
  lb_value *x = n->in[0], *zero, *one;
  LB_TRY(lb_const_f32(rw->graph, "one", 1, &one));
  LB_TRY(lb_rewrite_make(rw, n, LB_OP_Sub, (lb_value *[]){x, x}, 2, &zero));
  return lb_rewrite_become(rw, n, LB_OP_Add, (lb_value *[]){zero, one}, 2);
}

static lb_status drop_neutral(lb_rewrite *rw, lb_node *n) {
  if (is_read(rw, n) && is_softmax_of_one(n)) return become_one(rw, n);
  lb_value *from = is_read(rw, n) ? source_of(rw, n->out[0], true) : NULL;
  if (from) replace_by(rw, n, from);
  return LB_OK;
}

lb_status lb_pass_noop(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, drop_noop);
}

lb_status lb_pass_neutral(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, drop_neutral);
}

// -- dead code ---------------------------------------------------------------

static bool is_live(const lb_rewrite *rw, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i] && lb_rewrite_uses(rw, n->out[i]) > 0) return true;
  return false;
}

// Decrements the use counts of everything that a dead node reads, bodies
// included.
static void drop_region_uses(lb_rewrite *rw, const lb_region *r);

static void drop_uses(lb_rewrite *rw, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++) lb_rewrite_use(rw, n->in[i], -1);
  for (uint32_t k = 0; k < n->n_regions; k++)
    drop_region_uses(rw, n->regions[k]);
}

static void drop_region_uses(lb_rewrite *rw, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_nodes; i++) drop_uses(rw, r->nodes[i]);
  for (uint32_t i = 0; i < r->n_results; i++)
    lb_rewrite_use(rw, r->results[i], -1);
}

// Drops unused optional outputs.
static void trim_further(lb_rewrite *rw, lb_node *n) {
  for (uint32_t i = 1; i < n->n_out; i++) {
    lb_value *v = n->out[i];
    if (!v || lb_rewrite_uses(rw, v) > 0) continue;
    v->producer = NULL;
    n->out[i] = NULL;
    rw->changes++;
  }
}

// Drops unused outputs of an If, and the results of its branches.
static void trim_outputs(lb_rewrite *rw, lb_node *n) {
  if (lb_op_infos[n->op].cls != LB_CLASS_CONTROL) trim_further(rw, n);
  if (n->op != LB_OP_If) return;
  uint32_t n_left = 0;
  for (uint32_t i = 0; i < n->n_out; i++) {
    bool used = n->out[i] && lb_rewrite_uses(rw, n->out[i]) > 0;
    for (uint32_t k = 0; k < n->n_regions; k++) {
      lb_value **results = n->regions[k]->results;
      if (used)
        results[n_left] = results[i];
      else
        lb_rewrite_use(rw, results[i], -1);
    }
    if (used) lb_node_set_out(n, n_left++, n->out[i]);
  }
  if (n_left == n->n_out) return;
  for (uint32_t k = 0; k < n->n_regions; k++) n->regions[k]->n_results = n_left;
  n->n_out = n_left;
  rw->changes++;
}

static bool capture_used(const lb_rewrite *rw, const lb_node *n, uint32_t i) {
  for (uint32_t k = 0; k < n->n_regions; k++) {
    const lb_region *r = n->regions[k];
    if (lb_rewrite_uses(rw, r->params[r->n_params - n->n_captures + i]) > 0)
      return true;
  }
  return false;
}

static void trim_captures(lb_rewrite *rw, lb_node *n) {
  uint32_t n_left = 0, first = n->n_in - n->n_captures;
  for (uint32_t i = 0; i < n->n_captures; i++) {
    if (!capture_used(rw, n, i)) {
      lb_rewrite_use(rw, n->in[first + i], -1);
      continue;
    }
    n->in[first + n_left] = n->in[first + i];
    for (uint32_t k = 0; k < n->n_regions; k++) {
      lb_region *r = n->regions[k];
      lb_value **params = r->params + (r->n_params - n->n_captures);
      params[n_left] = params[i];
    }
    n_left++;
  }
  uint32_t gone = n->n_captures - n_left;
  if (gone == 0) return;
  for (uint32_t k = 0; k < n->n_regions; k++) n->regions[k]->n_params -= gone;
  n->n_in -= gone;
  n->n_captures = n_left;
  rw->changes++;
}

// From last to first, so that a node's readers are processed before it.
static void sweep(lb_rewrite *rw, lb_region *r) {
  uint32_t top = r->n_nodes;  // nodes[top, n_nodes) are kept
  for (uint32_t i = r->n_nodes; i > 0; i--) {
    lb_node *n = r->nodes[i - 1];
    if (!is_live(rw, n)) {
      drop_uses(rw, n);
      rw->changes++;
      continue;
    }
    trim_outputs(rw, n);
    for (uint32_t k = 0; k < n->n_regions; k++) sweep(rw, n->regions[k]);
    if (n->n_regions) trim_captures(rw, n);
    r->nodes[--top] = n;
  }
  for (uint32_t i = top; i < r->n_nodes; i++) r->nodes[i - top] = r->nodes[i];
  r->n_nodes -= top;
}

lb_status lb_pass_dead(lb_rewrite *rw) {
  sweep(rw, rw->graph->main);
  return LB_OK;
}
