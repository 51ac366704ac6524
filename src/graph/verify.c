// graph/verify.c -- checks the invariants (1) to (4) of graph.h.
#include <stdlib.h>

#include "graph/graph.h"

typedef struct graph_verifier {
  const lb_graph *graph;
  bool *defined;  // by value id: already seen as a parameter or an output
} graph_verifier;

#define INVALID(...) lb_error(LB_INTERNAL, "invalid graph: " __VA_ARGS__)

static lb_status invalid_node(const lb_node *n, const char *what, uint32_t i) {
  char label[200];
  return INVALID("%s: %s (%u)", lb_node_label(n, label, sizeof label), what, i);
}

static lb_status check_value(const lb_graph *g, uint32_t i) {
  const lb_value *v = g->values[i];
  if (!v || v->id != i || !v->name)
    return INVALID("value %u has a wrong id", i);
  if (v->info.rank < -1 || v->info.rank > LB_MAX_RANK)
    return INVALID("'%s' has rank %d", v->name, v->info.rank);
  if (v->info.dtype < LB_NONE || v->info.dtype >= LB_DTYPE_COUNT)
    return INVALID("'%s' has dtype %d", v->name, (int)v->info.dtype);
  const lb_tensor *t = v->info.data;
  if (!t) return LB_OK;
  if (v->producer || v->region)
    return INVALID("constant '%s' has a producer", v->name);
  if (t->dtype != v->info.dtype || t->rank != v->info.rank)
    return INVALID("constant '%s' does not match its info", v->name);
  for (int d = 0; d < t->rank; d++)
    if (!lb_dim_is(v->info.dims[d], t->dims[d]))
      return INVALID("constant '%s' does not match its info in dim %d", v->name,
                     d);
  return LB_OK;
}

static bool known_value(const graph_verifier *f, const lb_value *v) {
  return v->id < f->graph->n_values && f->graph->values[v->id] == v;
}

// Whether v may be read in r at this point.
static bool readable(const graph_verifier *f, const lb_region *r,
                     const lb_value *v) {
  if (!known_value(f, v)) return false;
  return v->info.data || (v->region == r && f->defined[v->id]);
}

static lb_status define(graph_verifier *f, const lb_region *r,
                        const lb_value *v) {
  if (!known_value(f, v)) return INVALID("a value is not in the graph's list");
  if (f->defined[v->id]) return INVALID("'%s' is defined twice", v->name);
  if (v->region != r) return INVALID("'%s' belongs to another region", v->name);
  f->defined[v->id] = true;
  return LB_OK;
}

static lb_status check_arity(const lb_node *n) {
  if (n->op < 0 || n->op >= LB_OP_COUNT)
    return INVALID("node %u has operator %d", n->id, (int)n->op);
  const lb_op_info *op = &lb_op_infos[n->op];
  if (!n->name || !n->name[0]) return INVALID("node %u has no name", n->id);
  if (n->n_in < (uint32_t)op->min_in ||
      (op->max_in >= 0 && n->n_in > (uint32_t)op->max_in))
    return invalid_node(n, "number of inputs", n->n_in);
  if (op->max_out >= 0 && n->n_out > (uint32_t)op->max_out)
    return invalid_node(n, "number of outputs", n->n_out);
  for (uint32_t i = 0; i < (uint32_t)op->min_in; i++)
    if (!n->in[i] && lb_op_needs(n, i))
      return invalid_node(n, "required input missing", i);
  for (uint32_t i = 0; i < n->n_attrs; i++)
    if (!n->attrs[i].name) return invalid_node(n, "attribute has no name", i);
  return LB_OK;
}

// Checks that inputs, parameters, results and outputs of a control node match.
static lb_status check_body(const lb_node *n, uint32_t which) {
  const lb_region *body = n->regions[which];
  if (!body || body->parent != n->region || body->graph != n->region->graph)
    return invalid_node(n, "region's parent", which);
  uint32_t params = n->op == LB_OP_If ? n->n_captures : n->n_in;
  if (body->n_params != params)
    return invalid_node(n, "number of region parameters", body->n_params);
  uint32_t own = n->op == LB_OP_If ? 1 : n->op == LB_OP_Loop ? 2 : 0;
  if (n->n_in < own || n->n_captures > n->n_in - own)
    return invalid_node(n, "number of captures", n->n_captures);
  if (n->op == LB_OP_If && n->n_in != 1 + n->n_captures)
    return invalid_node(n, "inputs beyond the captures", n->n_in);
  uint32_t n_leading = n->op == LB_OP_Loop ? 1 : 0;
  if (body->n_results < n_leading || n->n_out > body->n_results - n_leading)
    return invalid_node(n, "number of region results", body->n_results);
  return LB_OK;
}

static lb_status check_node(graph_verifier *f, const lb_region *r,
                            const lb_node *n) {
  LB_TRY(check_arity(n));
  if (n->region != r) return invalid_node(n, "belongs to another region", 0);
  if (n->id >= f->graph->n_nodes) return invalid_node(n, "id", n->id);
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && !readable(f, r, n->in[i]))
      return invalid_node(n, "input not available here", i);
  for (uint32_t i = 0; i < n->n_out; i++) {
    const lb_value *v = n->out[i];
    if (!v) continue;
    if (v->producer != n || v->out_index != i || v->info.data)
      return invalid_node(n, "output has another producer", i);
    LB_TRY(define(f, r, v));
  }
  if (n->runtime_skippable && !n->optimized)
    return invalid_node(n, "runtime_skippable without optimized", 0);
  uint32_t regions = n->op == LB_OP_If                            ? 2
                     : n->op == LB_OP_Loop || n->op == LB_OP_Scan ? 1
                                                                  : 0;
  if (n->n_regions != regions)
    return invalid_node(n, "number of regions", n->n_regions);
  for (uint32_t i = 0; i < n->n_regions; i++) LB_TRY(check_body(n, i));
  return LB_OK;
}

static lb_status check_region(graph_verifier *f, const lb_region *r,
                              int depth) {
  if (depth > LB_MAX_NESTING) return INVALID("regions nest too deep");
  for (uint32_t i = 0; i < r->n_params; i++) {
    const lb_value *v = r->params[i];
    if (!v || v->producer || v->info.data)
      return INVALID("parameter %u has a producer", i);
    LB_TRY(define(f, r, v));
  }
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    LB_TRY(check_node(f, r, n));
    for (uint32_t k = 0; k < n->n_regions; k++)
      LB_TRY(check_region(f, n->regions[k], depth + 1));
  }
  for (uint32_t i = 0; i < r->n_results; i++)
    if (!r->results[i] || !readable(f, r, r->results[i]))
      return INVALID("result %u is not defined", i);
  return LB_OK;
}

lb_status lb_graph_verify(const lb_graph *g) {
  if (!g->main || g->main->parent) return INVALID("no main region");
  for (uint32_t i = 0; i < g->n_values; i++) LB_TRY(check_value(g, i));
  for (uint32_t i = 0; i < g->main->n_results; i++)
    if (!g->output_names || !g->output_names[i])
      return INVALID("result %u has no name", i);
  graph_verifier f = {.graph = g,
                      .defined = calloc(g->n_values + 1u, sizeof(bool))};
  if (!f.defined) return lb_oom();
  lb_status st = check_region(&f, g->main, 0);
  free(f.defined);
  return st;
}
