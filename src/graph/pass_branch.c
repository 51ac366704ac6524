// graph/pass_branch.c -- moves the nodes after an If into its branches if these
// yield different ranks.
//
// A Squeeze guarded by a test of its dim yields a value of unknown rank, and so
// do all nodes that depend on it: they are not fused, and every plan has to run
// their shape rules. Inside the branches the ranks are known. So each branch
// gets a copy of all nodes that depend on the If, and the If yields their
// results. A copy that is invalid for the rank of its branch is not an error of
// the model as long as that branch is not taken.
//
// Only one branch runs, so nothing is computed twice. Copies multiply where one
// such If follows another, up to a limit, and so does the memory of packed
// weights.
#include "graph/rewrite.h"

#define MAX_COPIES 1024                // nodes, per graph
#define MAX_WEIGHTS ((size_t)8 << 20)  // bytes of constants that they read

typedef struct branch_sink {
  lb_rewrite *rw;
  lb_node *node;      // the If
  bool *follows;      // by value id: depends on a result of the If
  bool *captured;     // by value id: is or becomes a capture of the If
  lb_value **copies;  // by value id: its copy in a branch
  lb_value **in;   // inputs of the If, with the captures that the copies need
  lb_value **out;  // results of the region that depend on the If
  uint32_t n_in, n_out;
} branch_sink;

// -- profitability -----------------------------------------------------------

static int rank_of(const lb_region *branch, uint32_t result) {
  const lb_value *v = branch->results[result];
  return v ? v->info.rank : -1;
}

static bool ranks_differ(const lb_node *n) {
  for (uint32_t i = 0; i < n->n_out; i++) {
    int a = rank_of(n->regions[0], i), b = rank_of(n->regions[1], i);
    if (n->out[i] && a >= 0 && b >= 0 && a != b) return true;
  }
  return false;
}

static bool is_follower(const branch_sink *s, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && s->follows[n->in[i]->id]) return true;
  return false;
}

static void mark(bool *marks, lb_value *const *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (v[i]) marks[v[i]->id] = true;
}

typedef struct extent {  // size of the copied nodes
  uint64_t nodes;
  size_t weights;  // bytes of constants
  int depth;       // nesting depth of regions
} extent;

// Adds n, whose region is at nesting depth `depth` within the copied nodes.
static void measure(const lb_node *n, int depth, extent *e) {
  e->nodes++;
  if (depth > e->depth) e->depth = depth;
  for (uint32_t i = 0; i < n->n_in; i++) {
    const lb_tensor *t = lb_value_const(n->in[i]);
    if (t) e->weights += lb_tensor_bytes(t);
  }
  for (uint32_t k = 0; k < n->n_regions; k++) {
    if (depth + 1 > e->depth) e->depth = depth + 1;
    for (uint32_t i = 0; i < n->regions[k]->n_nodes; i++)
      measure(n->regions[k]->nodes[i], depth + 1, e);
  }
}

static int depth_of(const lb_region *r) {
  int depth = 0;
  while ((r = r->parent)) depth++;
  return depth;
}

// Marks all dependent values; false if there are none, or too many nodes.
static bool find_followers(branch_sink *s) {
  const lb_region *r = s->node->region;
  extent e = {.depth = 0};
  mark(s->follows, s->node->out, s->node->n_out);
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    if (!is_follower(s, r->nodes[i])) continue;
    mark(s->follows, r->nodes[i]->out, r->nodes[i]->n_out);
    measure(r->nodes[i], 0, &e);
  }
  if (e.nodes == 0 || e.nodes > (MAX_COPIES - s->rw->copied) / 2 ||
      e.weights > MAX_WEIGHTS - s->rw->copied_bytes ||
      depth_of(r) + 1 + e.depth > LB_MAX_NESTING)
    return false;
  s->rw->copied += 2 * e.nodes;
  s->rw->copied_bytes += e.weights;
  return true;
}

// -- inputs and outputs of the If --------------------------------------------

static lb_status find_inputs(branch_sink *s) {
  const lb_region *r = s->node->region;
  size_t most = s->node->n_in;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    if (is_follower(s, r->nodes[i])) most += r->nodes[i]->n_in;
  s->in = lb_arena_new(&s->rw->graph->arena, lb_value *, most);
  if (!s->in) return lb_oom();
  for (uint32_t i = 0; i < s->node->n_in; i++)
    s->in[s->n_in++] = s->node->in[i];
  mark(s->captured, s->node->in + 1, s->node->n_captures);
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    for (uint32_t k = 0; is_follower(s, n) && k < n->n_in; k++) {
      lb_value *v = n->in[k];
      if (!v || lb_value_const(v) || s->follows[v->id] || s->captured[v->id])
        continue;
      s->captured[v->id] = true;
      s->in[s->n_in++] = v;
    }
  }
  return LB_OK;
}

static lb_status find_outputs(branch_sink *s) {
  const lb_region *r = s->node->region;
  s->out = lb_arena_new(&s->rw->graph->arena, lb_value *, r->n_results);
  if (!s->out) return lb_oom();
  for (uint32_t i = 0; i < r->n_results; i++) {
    lb_value *v = r->results[i];
    bool listed = false;
    for (uint32_t k = 0; k < s->n_out; k++) listed = listed || s->out[k] == v;
    if (s->follows[v->id] && !listed) s->out[s->n_out++] = v;
  }
  return LB_OK;
}

// -- copies ------------------------------------------------------------------

static lb_value *copy_of(const branch_sink *s, lb_value *v) {
  return v && s->copies[v->id] ? s->copies[v->id] : v;
}

static lb_status copy_value(branch_sink *s, const lb_value *v, lb_value **out) {
  LB_TRY(lb_value_new(s->rw->graph, v->name, out));
  (*out)->info = v->info;
  s->copies[v->id] = *out;
  return LB_OK;
}

static lb_status copy_param(branch_sink *s, const lb_value *v, lb_region *to) {
  lb_value *param;
  LB_TRY(copy_value(s, v, &param));
  return lb_region_add_param(to, param);
}

static lb_status copy_region(branch_sink *s, const lb_region *r,
                             lb_region *parent, lb_region **out);

static lb_status copy_node(branch_sink *s, const lb_node *n, lb_region *to) {
  lb_node *copy;
  LB_TRY(lb_node_new(to, n->op, n->name, n->n_in, n->n_out, &copy));
  LB_TRY(lb_node_copy_attrs(s->rw->graph, copy, n));
  for (uint32_t i = 0; i < n->n_in; i++) copy->in[i] = copy_of(s, n->in[i]);
  for (uint32_t i = 0; i < n->n_out; i++) {
    lb_value *v = NULL;
    if (n->out[i]) LB_TRY(copy_value(s, n->out[i], &v));
    lb_node_set_out(copy, i, v);
  }
  copy->n_captures = n->n_captures;
  copy->regions = lb_arena_new(&s->rw->graph->arena, lb_region *, n->n_regions);
  if (!copy->regions) return lb_oom();
  for (; copy->n_regions < n->n_regions; copy->n_regions++)
    LB_TRY(copy_region(s, n->regions[copy->n_regions], to,
                       &copy->regions[copy->n_regions]));
  return LB_OK;
}

// The verifier bounds the nesting depth.
static lb_status copy_region(branch_sink *s, const lb_region *r,
                             lb_region *parent, lb_region **out) {
  LB_TRY(lb_region_new(s->rw->graph, parent, out));
  for (uint32_t i = 0; i < r->n_params; i++)
    LB_TRY(copy_param(s, r->params[i], *out));
  for (uint32_t i = 0; i < r->n_nodes; i++)
    LB_TRY(copy_node(s, r->nodes[i], *out));
  for (uint32_t i = 0; i < r->n_results; i++)
    LB_TRY(lb_region_add_result(*out, copy_of(s, r->results[i])));
  return LB_OK;
}

// -- the move ----------------------------------------------------------------

static lb_status fill_branch(branch_sink *s, lb_region *branch) {
  const lb_node *n = s->node;
  const lb_region *r = n->region;
  for (uint32_t i = 0; i < n->n_captures; i++)
    if (!lb_value_const(n->in[1 + i]))
      s->copies[n->in[1 + i]->id] = branch->params[i];
  for (uint32_t i = n->n_in; i < s->n_in; i++)
    LB_TRY(copy_param(s, s->in[i], branch));
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i]) s->copies[n->out[i]->id] = branch->results[i];
  for (uint32_t i = 0; i < r->n_nodes; i++)
    if (is_follower(s, r->nodes[i])) LB_TRY(copy_node(s, r->nodes[i], branch));
  branch->n_results = 0;
  for (uint32_t i = 0; i < s->n_out; i++)
    LB_TRY(lb_region_add_result(branch, copy_of(s, s->out[i])));
  return LB_OK;
}

// Removes the copied nodes from the region, and moves the If to the end, after
// everything that it reads.
static void leave_region(branch_sink *s) {
  lb_node *n = s->node;
  lb_region *r = n->region;
  uint32_t n_left = 0;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    if (r->nodes[i] != n && !is_follower(s, r->nodes[i]))
      r->nodes[n_left++] = r->nodes[i];
  r->nodes[n_left++] = n;
  r->n_nodes = n_left;
  n->n_captures += s->n_in - n->n_in;
  n->in = s->in;
  n->n_in = s->n_in;
  n->out = s->out;
  n->n_out = s->n_out;
  for (uint32_t i = 0; i < n->n_out; i++) lb_node_set_out(n, i, n->out[i]);
}

static lb_status sink(lb_rewrite *rw, lb_node *n, bool *done) {
  uint32_t values = rw->graph->n_values;
  branch_sink s = {.rw = rw,
                   .node = n,
                   .follows = lb_arena_new(&rw->scratch, bool, values),
                   .captured = lb_arena_new(&rw->scratch, bool, values),
                   .copies = lb_arena_new(&rw->scratch, lb_value *, values)};
  if (!s.follows || !s.captured || !s.copies) return lb_oom();
  if (!find_followers(&s)) return LB_OK;
  LB_TRY(find_inputs(&s));
  LB_TRY(find_outputs(&s));
  *done = true;
  for (uint32_t k = 0; k < n->n_regions; k++)
    LB_TRY(fill_branch(&s, n->regions[k]));
  leave_region(&s);
  rw->changes++;
  return LB_OK;
}

// Only the first one, because others may vanish once it resolves ranks.
static lb_status sink_first(lb_rewrite *rw, const lb_region *r, bool *done) {
  for (uint32_t i = 0; !*done && i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    if (n->op == LB_OP_If && ranks_differ(n)) LB_TRY(sink(rw, n, done));
    for (uint32_t k = 0; !*done && k < n->n_regions; k++)
      LB_TRY(sink_first(rw, n->regions[k], done));
  }
  return LB_OK;
}

lb_status lb_pass_branch(lb_rewrite *rw) {
  bool done = false;
  return sink_first(rw, rw->graph->main, &done);
}
