// graph/rewrite.c -- use counts, replacing values, inserting nodes and walking,
// for all passes.
#include "graph/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "graph/infer.h"

#define SCRATCH_BLOCK (16 * 1024)

void lb_rewrite_init(lb_rewrite *rw, lb_graph *g, const lb_pass_options *o) {
  *rw = (lb_rewrite){.graph = g, .options = o};
  lb_arena_init(&rw->scratch, SCRATCH_BLOCK);
}

void lb_rewrite_fini(lb_rewrite *rw) {
  lb_arena_fini(&rw->scratch);
  free(rw->state);
  rw->state = NULL;
}

static void count_uses(lb_rewrite *rw, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    for (uint32_t k = 0; k < n->n_in; k++) lb_rewrite_use(rw, n->in[k], 1);
    for (uint32_t k = 0; k < n->n_regions; k++) count_uses(rw, n->regions[k]);
  }
  for (uint32_t i = 0; i < r->n_results; i++)
    lb_rewrite_use(rw, r->results[i], 1);
}

lb_status lb_rewrite_begin(lb_rewrite *rw) {
  lb_arena_reset(&rw->scratch);
  uint32_t n = rw->graph->n_values;
  if (n > rw->n_state) {
    lb_vstate *wider = realloc(rw->state, lb_mul_sat(n, sizeof *wider));
    if (!wider) return lb_oom();
    rw->state = wider;
  }
  rw->n_state = n;
  if (n) memset(rw->state, 0, n * sizeof *rw->state);
  count_uses(rw, rw->graph->main);
  return LB_OK;
}

uint32_t lb_rewrite_uses(const lb_rewrite *rw, const lb_value *v) {
  return v->id < rw->n_state ? rw->state[v->id].uses : UINT32_MAX;
}

void lb_rewrite_use(lb_rewrite *rw, const lb_value *v, int delta) {
  if (!v || v->id >= rw->n_state) return;
  uint32_t *uses = &rw->state[v->id].uses;
  *uses = delta > 0 ? *uses + 1 : *uses - 1;
}

// Dropout is random when it trains; otherwise it is a no-op.
bool lb_rewrite_random(const lb_node *n) {
  return lb_op_has(n->op, LB_TRAIT_RANDOM) ||
         (n->op == LB_OP_Dropout && n->n_in > 2 && n->in[2]);
}

void lb_rewrite_replace(lb_rewrite *rw, lb_value *v, lb_value *by) {
  if (v == by || v->id >= rw->n_state) return;
  rw->state[v->id].to = by;
  rw->changes++;
}

void lb_rewrite_constant(lb_rewrite *rw, lb_value *v, const lb_tensor *t) {
  if (v->producer) v->producer->out[v->out_index] = NULL;
  v->producer = NULL;
  v->region = NULL;
  v->info = (lb_vinfo){.dtype = t->dtype, .rank = t->rank, .data = t};
  for (int i = 0; i < t->rank; i++) v->info.dims[i] = lb_dim_const(t->dims[i]);
  rw->changes++;
}

lb_status lb_rewrite_become(lb_rewrite *rw, lb_node *n, lb_op op,
                            lb_value *const *in, uint32_t n_in) {
  lb_value **copy = lb_arena_new(&rw->graph->arena, lb_value *, n_in);
  if (!copy) return lb_oom();
  for (uint32_t i = 0; i < n_in; i++) {
    copy[i] = in[i];
    lb_rewrite_use(rw, in[i], 1);
  }
  for (uint32_t i = 0; i < n->n_in; i++) lb_rewrite_use(rw, n->in[i], -1);
  n->op = op;
  n->in = copy;
  n->n_in = n_in;
  n->n_out = 1;
  n->attrs = NULL;
  n->n_attrs = n->cap_attrs = 0;
  rw->changes++;
  return LB_OK;
}

lb_status lb_node_copy_attrs(lb_graph *g, lb_node *n, const lb_node *from) {
  for (uint32_t i = 0; i < from->n_attrs; i++)
    LB_TRY(lb_node_add_attr(g, n, from->attrs[i]));
  return LB_OK;
}

// -- new nodes ---------------------------------------------------------------

lb_status lb_rewrite_value(lb_rewrite *rw, const lb_value *v, const char *tag,
                           lb_value **out) {
  lb_strbuf name = {0};
  lb_strbuf_printf(&name, "%s.%s", v->name, tag);
  lb_status st = lb_strbuf_status(&name);
  if (!lb_failed(st)) st = lb_value_new(rw->graph, lb_strbuf_str(&name), out);
  lb_strbuf_fini(&name);
  return st;
}

// Appends a node to n's region and moves it right before or after n. It gets
// the name of n, which the model's author knows.
static lb_status add_next_to(lb_node *n, bool after, lb_op op, uint32_t n_in,
                             lb_node **out) {
  lb_region *r = n->region;
  LB_TRY(lb_node_new(r, op, n->name, n_in, 1, out));
  uint32_t at = r->n_nodes - 1;
  while (r->nodes[at - 1] != n) {
    r->nodes[at] = r->nodes[at - 1];
    at--;
  }
  r->nodes[at] = after ? *out : n;
  r->nodes[at - 1] = after ? n : *out;
  return LB_OK;
}

lb_status lb_rewrite_insert(lb_rewrite *rw, lb_node *n, lb_op op,
                            lb_value *const *in, uint32_t n_in, lb_node **out) {
  lb_value *v, **first = n->out;
  while (!*first) first++;
  LB_TRY(lb_rewrite_value(rw, *first, lb_op_infos[op].name, &v));
  LB_TRY(add_next_to(n, false, op, n_in, out));
  for (uint32_t i = 0; i < n_in; i++) {
    (*out)->in[i] = in[i];
    lb_rewrite_use(rw, in[i], 1);
  }
  lb_node_set_out(*out, 0, v);
  rw->changes++;
  return LB_OK;
}

lb_status lb_rewrite_inserted(lb_rewrite *rw, lb_node *n, lb_value **out) {
  *out = n->out[0];
  return lb_infer_outputs(rw->graph, &rw->scratch, n);
}

lb_status lb_rewrite_make(lb_rewrite *rw, lb_node *n, lb_op op,
                          lb_value *const *in, uint32_t n_in, lb_value **out) {
  lb_node *node;
  LB_TRY(lb_rewrite_insert(rw, n, op, in, n_in, &node));
  return lb_rewrite_inserted(rw, node, out);
}

lb_status lb_rewrite_cast(lb_rewrite *rw, lb_node *n, lb_value *x, lb_dtype to,
                          lb_value **out) {
  lb_node *node;
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Cast, &x, 1, &node));
  LB_TRY(lb_node_set_int(rw->graph, node, "to", lb_attr_code(to)));
  return lb_rewrite_inserted(rw, node, out);
}

lb_status lb_rewrite_after(lb_rewrite *rw, lb_node *n, uint32_t i, lb_op op,
                           lb_node **out) {
  lb_value *old = n->out[i], *v;
  LB_TRY(lb_rewrite_value(rw, old, lb_op_infos[n->op].name, &v));
  LB_TRY(add_next_to(n, true, op, 1, out));
  lb_node_set_out(*out, 0, old);
  lb_node_set_out(n, i, v);
  (*out)->in[0] = v;
  rw->changes++;
  return LB_OK;
}

// -- the walk ----------------------------------------------------------------

static lb_value *resolve(lb_rewrite *rw, lb_value *v) {
  lb_value *to = v;
  while (to && to->id < rw->n_state && rw->state[to->id].to)
    to = rw->state[to->id].to;
  if (to == v) return v;
  lb_rewrite_use(rw, to, 1);
  lb_rewrite_use(rw, v, -1);
  return to;
}

// The recursion is bounded, because the verifier has checked the nesting depth.
static lb_status walk_region(lb_rewrite *rw, lb_region *r, lb_visit_fn *visit) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    for (uint32_t k = 0; k < n->n_in; k++) n->in[k] = resolve(rw, n->in[k]);
    if (visit) LB_TRY(visit(rw, n));
    for (uint32_t k = 0; k < n->n_regions; k++)
      LB_TRY(walk_region(rw, n->regions[k], visit));
  }
  for (uint32_t i = 0; i < r->n_results; i++)
    r->results[i] = resolve(rw, r->results[i]);
  return LB_OK;
}

lb_status lb_rewrite_walk(lb_rewrite *rw, lb_visit_fn *visit) {
  return walk_region(rw, rw->graph->main, visit);
}
