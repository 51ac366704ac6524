// graph/removed.c -- records which pass removed which node of the model.
//
// Most nodes leave the graph in `dead`, some passes after the one that replaced
// their results. So after each pass that changed something we find the nodes on
// which a result of the graph still depends; a node that has dropped out of
// that set was removed by that pass.
#include <stdlib.h>

#include "graph/rewrite.h"

struct lb_removal {
  lb_node **nodes;  // by id; NULL: removed, or never there
  lb_op *ops;       // their operators in the model
  bool *reached;    // by node id
  bool *live;       // by value id
  uint32_t n, n_live;
};

static void collect(lb_removal *r, const lb_region *region) {
  for (uint32_t i = 0; i < region->n_nodes; i++) {
    lb_node *n = region->nodes[i];
    r->nodes[n->id] = n;
    r->ops[n->id] = n->op;
    for (uint32_t k = 0; k < n->n_regions; k++) collect(r, n->regions[k]);
  }
}

lb_status lb_removal_new(lb_graph *g, lb_removal **out) {
  size_t n = (size_t)g->n_nodes + 1;
  *out = NULL;
  lb_removal *r = calloc(1, sizeof *r);
  if (!r) return lb_oom();
  r->n = g->n_nodes;
  r->nodes = calloc(n, sizeof *r->nodes);
  r->ops = calloc(n, sizeof *r->ops);
  r->reached = calloc(n, sizeof *r->reached);
  g->removed = lb_arena_new(&g->arena, lb_removed, g->n_nodes);
  g->n_removed = 0;
  if (!r->nodes || !r->ops || !r->reached || !g->removed) {
    lb_removal_free(r);
    return lb_oom();
  }
  collect(r, g->main);
  *out = r;
  return LB_OK;
}

void lb_removal_free(lb_removal *r) {
  if (!r) return;
  free(r->nodes);
  free(r->ops);
  free(r->reached);
  free(r->live);
  free(r);
}

static void mark_all(lb_removal *r, lb_value *const *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (v[i]) r->live[v[i]->id] = true;
}

static bool is_live(const lb_removal *r, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i] && r->live[n->out[i]->id]) return true;
  return false;
}

// From last to first, so that a node's readers are visited before it.
static void reach(lb_removal *r, const lb_region *region) {
  mark_all(r, region->results, region->n_results);
  for (uint32_t i = region->n_nodes; i-- > 0;) {
    const lb_node *n = region->nodes[i];
    if (!is_live(r, n)) continue;
    if (n->id < r->n) r->reached[n->id] = true;
    mark_all(r, n->in, n->n_in);
    for (uint32_t k = 0; k < n->n_regions; k++) reach(r, n->regions[k]);
  }
}

lb_status lb_removal_note(lb_removal *r, lb_graph *g, const char *pass) {
  if (g->n_values > r->n_live) {
    bool *wider = realloc(r->live, g->n_values);
    if (!wider) return lb_oom();
    r->live = wider;
    r->n_live = g->n_values;
  }
  for (uint32_t i = 0; i < r->n_live; i++) r->live[i] = false;
  for (uint32_t i = 0; i < r->n; i++) r->reached[i] = false;
  reach(r, g->main);
  for (uint32_t i = 0; i < r->n; i++) {
    if (!r->nodes[i] || r->reached[i]) continue;
    g->removed[g->n_removed++] =
        (lb_removed){r->nodes[i]->name, r->ops[i], pass, r->nodes[i]};
    r->nodes[i] = NULL;
  }
  return LB_OK;
}
