// graph/pass_clean.c -- no-ops and dead code.
#include "graph/rewrite.h"

// -- no-ops ------------------------------------------------------------------

static bool same_dtype(const lb_node *n) {
  return n->in[0]->info.dtype != LB_NONE && n->out[0] &&
         n->in[0]->info.dtype == n->out[0]->info.dtype;
}

static bool noop_Dropout(const lb_rewrite *rw, const lb_node *n) {
  if (n->n_out > 1 && n->out[1] && lb_rewrite_uses(rw, n->out[1]) > 0)
    return false;
  if (n->n_in < 3 || !n->in[2]) return true;
  const lb_tensor *training = lb_value_const(n->in[2]);
  return training && training->dtype == LB_BOOL &&
         lb_tensor_count(training) == 1 &&
         *(const unsigned char *)training->data == 0;
}

static bool keeps_order(const lb_node *n) {
  uint32_t count;
  const int64_t *perm = lb_attr_ints(n, "perm", &count);
  if (!perm) return n->in[0]->info.rank == 0 || n->in[0]->info.rank == 1;
  for (uint32_t i = 0; i < count; i++)
    if (perm[i] != (int64_t)i) return false;
  return true;
}

// The first value with the dims of v in the chain of reshapes that ends with n,
// or NULL.
static lb_value *reshape_source(const lb_node *n, const lb_value *v) {
  for (; n && lb_op_has(n->op, LB_TRAIT_IN_ORDER); n = n->in[0]->producer)
    if (lb_value_same_dims(n->in[0], v)) return n->in[0];
  return NULL;
}

// A Slice as long as its input is the identity unless it reverses.
static bool goes_forwards(const lb_node *n) {
  if (n->n_in < 5 || !n->in[4]) return true;
  const lb_tensor *steps = lb_value_const(n->in[4]);
  if (!steps || !lb_tensor_is_dense(steps)) return false;
  for (int64_t i = 0; i < lb_tensor_count(steps); i++)
    if (lb_match_int(steps, i) < 0) return false;
  return true;
}

static bool all_are(const lb_tensor *t, int64_t x) {
  if (!t || !lb_tensor_is_dense(t)) return false;
  for (int64_t i = 0; i < lb_tensor_count(t); i++)
    if (lb_match_int(t, i) != x) return false;
  return true;
}

// From the first to the last possible element with step 1: the whole input,
// even where the expressions do not show it.
static bool takes_all(const lb_node *n) {
  return all_are(lb_value_const(lb_node_input(n, 1)), 0) &&
         all_are(lb_value_const(lb_node_input(n, 2)), INT64_MAX) &&
         (!lb_node_input(n, 4) || all_are(lb_value_const(n->in[4]), 1));
}

static bool is_reduction(lb_op op) {
  return lb_op_infos[op].cls == LB_CLASS_REDUCTION &&
         lb_op_has(op, LB_TRAIT_SINGLE);
}

typedef bool noop_fn(const lb_rewrite *rw, const lb_node *n);

static bool noop_Identity(const lb_rewrite *rw, const lb_node *n) {
  (void)rw, (void)n;
  return true;
}

static bool noop_Cast(const lb_rewrite *rw, const lb_node *n) {
  (void)rw;
  return same_dtype(n);
}

static bool noop_Transpose(const lb_rewrite *rw, const lb_node *n) {
  (void)rw;
  return keeps_order(n);
}

static bool noop_Expand(const lb_rewrite *rw, const lb_node *n) {
  (void)rw;
  return lb_value_same_dims(n->in[0], n->out[0]);
}

static bool noop_Slice(const lb_rewrite *rw, const lb_node *n) {
  (void)rw;
  return takes_all(n) ||
         (lb_value_same_dims(n->in[0], n->out[0]) && goes_forwards(n));
}

// Other operators are no-ops only if their traits say so.
static noop_fn *const noops[LB_OP_COUNT] = {
    [LB_OP_Identity] = noop_Identity,   [LB_OP_Cast] = noop_Cast,
    [LB_OP_CastLike] = noop_Cast,       [LB_OP_Dropout] = noop_Dropout,
    [LB_OP_Transpose] = noop_Transpose, [LB_OP_Expand] = noop_Expand,
    [LB_OP_Slice] = noop_Slice,
};

// Whether the first output equals the first input, whatever the data.
static bool is_noop(const lb_rewrite *rw, const lb_node *n) {
  if (n->n_in == 1 && lb_op_has(n->op, LB_TRAIT_SINGLE))
    return !is_reduction(n->op);
  return noops[n->op] && noops[n->op](rw, n);
}

// Whether all reduced axes have size 1, so that at most the dims change.
static bool reduces_nothing(const lb_node *n) {
  const lb_tensor *axes = lb_value_const(lb_node_input(n, 1));
  const lb_vinfo *x = &n->in[0]->info;
  if (!is_reduction(n->op) || x->rank < 0 || !axes ||
      lb_tensor_count(axes) == 0 || !lb_tensor_is_dense(axes))
    return false;
  for (int64_t i = 0; i < lb_tensor_count(axes); i++) {
    int64_t axis = lb_match_int(axes, i);
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis >= x->rank || !lb_dim_is(x->dims[axis], 1))
      return false;
  }
  return true;
}

static lb_status drop_noop(lb_rewrite *rw, lb_node *n) {
  if (n->n_in == 0 || !n->in[0] || n->n_out == 0 || !n->out[0]) return LB_OK;
  if (lb_rewrite_uses(rw, n->out[0]) == 0) return LB_OK;
  if (reduces_nothing(n)) {
    bool n_left = lb_attr_int(n, "keepdims", 1) != 0;
    return lb_rewrite_become(rw, n, n_left ? LB_OP_Identity : LB_OP_Squeeze,
                             (lb_value *[]){n->in[0], n->in[1]},
                             n_left ? 1 : 2);
  }
  lb_value *from = is_noop(rw, n) ? n->in[0] : reshape_source(n, n->out[0]);
  if (from) lb_rewrite_replace(rw, n->out[0], from);
  return LB_OK;
}

lb_status lb_pass_noop(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, drop_noop);
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
