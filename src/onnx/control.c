// onnx/control.c -- If, Loop and Scan: converts subgraphs to regions, and outer
// names to captures.
//
// A body that reads an outer name gets a parameter for it while its nodes are
// imported. Once all bodies of the node are imported, every value that any of
// them captures is passed to all of them, in the same order (graph.h, (3)).
#include <string.h>

#include "onnx/import.h"

enum { MAX_BODIES = 2 };

typedef struct control {
  lb_draft *draft;
  const lb_pb_attr *attrs;  // of the node, including its graphs
  uint32_t n_attrs;
  lb_name_scope scopes[MAX_BODIES];
  uint32_t n_bodies;
} control;

static lb_pb_graph *find_graph(const control *c, const char *name) {
  for (uint32_t i = 0; i < c->n_attrs; i++)
    if (c->attrs[i].graph && lb_pb_is(c->attrs[i].name, name))
      return c->attrs[i].graph;
  return NULL;
}

static lb_status import_body(control *c, const char *name) {
  const lb_draft *d = c->draft;
  lb_pb_graph *g = find_graph(c, name);
  if (!g)
    return lb_error(LB_INVALID, LB_NODE_FMT " has no %s", LB_NODE_ARGS(d->src),
                    name);
  lb_name_scope *s = &c->scopes[c->n_bodies++];
  *s = (lb_name_scope){.im = d->scope->im,
                       .parent = d->scope,
                       .depth = d->scope->depth + 1,
                       .call = d->scope->call,
                       .prefix = d->scope->prefix,
                       .call_site = d->scope->call_site};
  if (s->depth > LB_MAX_NESTING) {
    s->im->global_error = true;
    return lb_error(LB_UNSUPPORTED, "subgraphs are nested deeper than %d",
                    LB_MAX_NESTING);
  }
  LB_TRY(lb_region_new(s->im->graph, d->scope->region, &s->region));
  lb_status st = lb_import_graph(s, g);
  if (!lb_failed(st) || s->im->global_error) return st;
  return lb_status_note(st, "in %s of " LB_NODE_FMT, name,
                        LB_NODE_ARGS(d->src));
}

static lb_status import_bodies(control *c) {
  if (c->draft->op != LB_OP_If) return import_body(c, "body");
  LB_TRY(import_body(c, "then_branch"));
  return import_body(c, "else_branch");
}

// -- checks of bodies against the node ---------------------------------------

static lb_status wrong_params(const lb_draft *d, uint32_t own, uint32_t takes) {
  return lb_error(LB_INVALID,
                  LB_NODE_FMT " passes %u inputs to its body, which takes %u",
                  LB_NODE_ARGS(d->src), own, takes);
}

static lb_status wrong_results(const lb_draft *d, uint32_t least,
                               uint32_t gives) {
  return lb_error(LB_INVALID,
                  LB_NODE_FMT
                  " needs at least %u outputs of its body, which "
                  "has %u",
                  LB_NODE_ARGS(d->src), least, gives);
}

static int64_t int_attr(const lb_draft *d, const char *name) {
  for (uint32_t i = 0; i < d->n_attrs; i++)
    if (d->attrs[i].kind == LB_ATTR_INT && !strcmp(d->attrs[i].name, name))
      return d->attrs[i].i;
  return 0;
}

// `states` is the number of loop-carried values, `leading` the number of
// results before them.
static lb_status check_body(const control *c, const lb_region *r) {
  const lb_draft *d = c->draft;
  uint32_t params = d->op == LB_OP_If ? 0 : d->n_in, states = 0;
  uint32_t leading = d->op == LB_OP_Loop ? 1 : 0;
  if (d->op == LB_OP_Loop) states = d->n_in - 2;
  if (d->op == LB_OP_Scan) {
    int64_t scanned = int_attr(d, "num_scan_inputs");
    if (scanned < 1 || scanned > d->n_in)
      return lb_error(LB_INVALID,
                      LB_NODE_FMT " has %u inputs, but num_scan_inputs is %lld",
                      LB_NODE_ARGS(d->src), d->n_in, (long long)scanned);
    states = d->n_in - (uint32_t)scanned;
  }
  if (r->n_params != params) return wrong_params(d, params, r->n_params);
  uint32_t least = d->n_out > states ? d->n_out : states;
  if (r->n_results < leading || r->n_results - leading < least)
    return wrong_results(d, least + leading, r->n_results);
  return LB_OK;
}

// Gives the node as many outputs as its bodies have results; outputs beyond
// those in the model are unnamed.
static lb_status widen_outputs(control *c) {
  lb_draft *d = c->draft;
  uint32_t n = c->scopes[0].region->n_results;
  for (uint32_t i = 1; i < c->n_bodies; i++)
    if (c->scopes[i].region->n_results < n) n = c->scopes[i].region->n_results;
  if (d->op == LB_OP_Loop) n--;
  lb_pb_str *out = lb_arena_new(&d->scope->im->scratch, lb_pb_str, n);
  if (!out) return lb_oom();
  memcpy(out, d->out, d->n_out * sizeof *out);
  d->out = out;
  d->n_out = n;
  return LB_OK;
}

// -- captures ----------------------------------------------------------------

static lb_status collect(const control *c, lb_map *all) {
  for (uint32_t i = 0; i < c->n_bodies; i++) {
    const lb_map *m = &c->scopes[i].captured;
    for (size_t k = 0; k < m->count; k++) {
      lb_capture *cap = m->entries[k].value;
      LB_TRY(lb_map_put(all, &cap->outer->id, sizeof cap->outer->id, cap->outer,
                        NULL));
    }
  }
  return LB_OK;
}

static lb_status add_captures(lb_name_scope *s, const lb_map *all) {
  for (size_t i = 0; i < all->count; i++) {
    const lb_value *outer = all->entries[i].value;
    lb_capture *cap = lb_map_get(&s->captured, &outer->id, sizeof outer->id);
    lb_value *param = cap ? cap->param : NULL;
    if (!param) LB_TRY(lb_value_new(s->im->graph, outer->name, &param));
    LB_TRY(lb_region_add_param(s->region, param));
  }
  return LB_OK;
}

static lb_status make_node(control *c, const lb_map *all) {
  lb_draft *d = c->draft;
  lb_graph *g = d->scope->im->graph;
  lb_node *n;
  if (all->count > UINT32_MAX) return lb_oom();
  LB_TRY(lb_draft_add_node(d, (uint32_t)all->count, &n));
  n->n_captures = (uint32_t)all->count;
  for (uint32_t i = 0; i < n->n_captures; i++)
    n->in[d->n_in + i] = all->entries[i].value;
  n->regions = lb_arena_new(&g->arena, lb_region *, c->n_bodies);
  if (!n->regions) return lb_oom();
  n->n_regions = c->n_bodies;
  for (uint32_t i = 0; i < c->n_bodies; i++) {
    n->regions[i] = c->scopes[i].region;
    LB_TRY(add_captures(&c->scopes[i], all));
  }
  return LB_OK;
}

lb_status lb_import_control(lb_draft *d) {
  control c = {.draft = d};
  lb_map all = {0};
  lb_status st = lb_call_attrs(d->scope, d->src, &c.attrs, &c.n_attrs);
  if (!lb_failed(st)) st = import_bodies(&c);
  for (uint32_t i = 0; i < c.n_bodies && !lb_failed(st); i++)
    st = check_body(&c, c.scopes[i].region);
  if (!lb_failed(st)) st = widen_outputs(&c);
  if (!lb_failed(st)) st = collect(&c, &all);
  if (!lb_failed(st)) st = make_node(&c, &all);
  lb_map_fini(&all);
  for (uint32_t i = 0; i < c.n_bodies; i++) lb_name_scope_fini(&c.scopes[i]);
  return st;
}
