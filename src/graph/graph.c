// graph/graph.c -- building graphs: regions, values, constants, nodes.
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BLOCK (64 * 1024)
#define MAX_WALK 64  // nodes that are followed for a label

lb_status lb_graph_new(lb_graph **out) {
  *out = NULL;
  lb_graph *g = calloc(1, sizeof *g);
  if (!g) return lb_oom();
  lb_arena_init(&g->arena, ARENA_BLOCK);
  lb_status st = lb_symtab_new(&g->syms);
  if (!lb_failed(st)) st = lb_region_new(g, NULL, &g->main);
  if (lb_failed(st)) {
    lb_graph_free(g);
    return st;
  }
  *out = g;
  return LB_OK;
}

void lb_graph_free(lb_graph *g) {
  if (!g) return;
  if (g->syms) lb_symtab_free(g->syms);
  lb_arena_fini(&g->arena);
  free(g);
}

lb_status lb_region_new(lb_graph *g, lb_region *parent, lb_region **out) {
  *out = NULL;
  lb_region *r = lb_arena_new(&g->arena, lb_region, 1);
  if (!r) return lb_oom();
  r->id = g->n_regions++;
  r->graph = g;
  r->parent = parent;
  *out = r;
  return LB_OK;
}

// Returns the array with capacity for more than n elements, in the arena; NULL
// if out of memory. The old array stays in the arena, which at most doubles its
// memory.
static void *grow(lb_arena *a, void *old, uint32_t n, uint32_t *cap,
                  size_t elem) {
  if (n < *cap) return old;
  if (n > UINT32_MAX / 2 - 4) return NULL;
  uint32_t new_cap = n < 4 ? 4 : 2 * n;
  void *p =
      lb_arena_zalloc(a, lb_mul_sat(new_cap, elem), _Alignof(max_align_t));
  if (!p) return NULL;
  if (n) memcpy(p, old, n * elem);
  *cap = new_cap;
  return p;
}

lb_status lb_value_new(lb_graph *g, const char *name, lb_value **out) {
  *out = NULL;
  lb_value **values = grow(&g->arena, g->values, g->n_values, &g->cap_values,
                           sizeof(lb_value *));
  lb_value *v = lb_arena_new(&g->arena, lb_value, 1);
  if (!values || !v) return lb_oom();
  g->values = values;
  v->name = lb_arena_strdup(&g->arena, name);
  if (!v->name) return lb_oom();
  v->info.rank = -1;
  v->id = g->n_values;
  g->values[g->n_values++] = v;
  *out = v;
  return LB_OK;
}

lb_status lb_const_new(lb_graph *g, const char *name, const lb_tensor *t,
                       lb_value **out) {
  *out = NULL;
  lb_tensor *copy = lb_arena_new(&g->arena, lb_tensor, 1);
  if (!copy) return lb_oom();
  *copy = *t;
  lb_value *v;
  LB_TRY(lb_value_new(g, name, &v));
  v->info.dtype = t->dtype;
  v->info.rank = t->rank;
  for (int i = 0; i < t->rank; i++) v->info.dims[i] = lb_dim_const(t->dims[i]);
  v->info.data = copy;
  *out = v;
  return LB_OK;
}

// A dense constant whose elements are copied into the arena.
static lb_status const_copy(lb_graph *g, const char *name, lb_dtype dtype,
                            int rank, int64_t n, const void *elems,
                            lb_value **out) {
  lb_tensor t = {.dtype = dtype, .rank = rank, .dims = {n}};
  lb_tensor_dense(&t);
  size_t bytes = lb_mul_sat((size_t)n, lb_dtype_size(dtype));
  t.data = lb_arena_alloc(&g->arena, bytes, 8);
  if (!t.data) return lb_oom();
  if (bytes) memcpy(t.data, elems, bytes);
  return lb_const_new(g, name, &t, out);
}

lb_status lb_const_ints(lb_graph *g, const char *name, const int64_t *v,
                        int64_t n, lb_value **out) {
  return const_copy(g, name, LB_I64, 1, n, v, out);
}

lb_status lb_const_f32(lb_graph *g, const char *name, float v, lb_value **out) {
  return const_copy(g, name, LB_F32, 0, 1, &v, out);
}

lb_status lb_const_i64(lb_graph *g, const char *name, int64_t v,
                       lb_value **out) {
  return const_copy(g, name, LB_I64, 0, 1, &v, out);
}

lb_status lb_region_add_param(lb_region *r, lb_value *v) {
  lb_value **p = grow(&r->graph->arena, r->params, r->n_params, &r->cap_params,
                      sizeof(lb_value *));
  if (!p) return lb_oom();
  r->params = p;
  r->params[r->n_params++] = v;
  v->region = r;
  return LB_OK;
}

lb_status lb_region_add_result(lb_region *r, lb_value *v) {
  lb_value **p = grow(&r->graph->arena, r->results, r->n_results,
                      &r->cap_results, sizeof(lb_value *));
  if (!p) return lb_oom();
  r->results = p;
  r->results[r->n_results++] = v;
  return LB_OK;
}

static const char *node_name(lb_graph *g, lb_op op, const char *name) {
  if (name && *name) return lb_arena_strdup(&g->arena, name);
  char text[80];
  snprintf(text, sizeof text, "%s_%u", lb_op_infos[op].name, g->n_nodes);
  return lb_arena_strdup(&g->arena, text);
}

lb_status lb_node_new(lb_region *r, lb_op op, const char *name, uint32_t n_in,
                      uint32_t n_out, lb_node **out) {
  *out = NULL;
  lb_graph *g = r->graph;
  lb_node **nodes =
      grow(&g->arena, r->nodes, r->n_nodes, &r->cap_nodes, sizeof(lb_node *));
  if (!nodes) return lb_oom();
  r->nodes = nodes;
  lb_node *n = lb_arena_new(&g->arena, lb_node, 1);
  if (!n) return lb_oom();
  n->op = op;
  n->region = r;
  n->name = node_name(g, op, name);
  n->in = lb_arena_new(&g->arena, lb_value *, n_in);
  n->out = lb_arena_new(&g->arena, lb_value *, n_out);
  if (!n->name || !n->in || !n->out) return lb_oom();
  n->n_in = n_in;
  n->n_out = n_out;
  n->id = g->n_nodes++;
  r->nodes[r->n_nodes++] = n;
  *out = n;
  return LB_OK;
}

void lb_node_set_out(lb_node *n, uint32_t i, lb_value *v) {
  n->out[i] = v;
  if (!v) return;
  v->producer = n;
  v->out_index = i;
  v->region = n->region;
}

lb_status lb_node_add_attr(lb_graph *g, lb_node *n, lb_attr attr) {
  lb_attr *p =
      grow(&g->arena, n->attrs, n->n_attrs, &n->cap_attrs, sizeof(lb_attr));
  if (!p) return lb_oom();
  n->attrs = p;
  n->attrs[n->n_attrs++] = attr;
  return LB_OK;
}

static lb_status set_attr(lb_graph *g, lb_node *n, const char *name,
                          lb_attr attr) {
  for (uint32_t i = 0; i < n->n_attrs; i++) {
    if (strcmp(n->attrs[i].name, name) != 0) continue;
    attr.name = n->attrs[i].name;
    n->attrs[i] = attr;
    return LB_OK;
  }
  attr.name = lb_arena_strdup(&g->arena, name);
  if (!attr.name) return lb_oom();
  return lb_node_add_attr(g, n, attr);
}

lb_status lb_node_set_int(lb_graph *g, lb_node *n, const char *name,
                          int64_t v) {
  return set_attr(g, n, name, (lb_attr){.kind = LB_ATTR_INT, .i = v});
}

lb_status lb_node_set_float(lb_graph *g, lb_node *n, const char *name,
                            float v) {
  return set_attr(g, n, name, (lb_attr){.kind = LB_ATTR_FLOAT, .f = v});
}

lb_status lb_node_set_str(lb_graph *g, lb_node *n, const char *name,
                          const char *v) {
  size_t len = strlen(v);
  if (len > UINT32_MAX) return lb_error(LB_INVALID, "string too long");
  const char *copy = lb_arena_strdup(&g->arena, v);
  if (!copy) return lb_oom();
  lb_attr a = {.kind = LB_ATTR_STRING, .n = (uint32_t)len, .s = copy};
  return set_attr(g, n, name, a);
}

lb_status lb_node_set_ints(lb_graph *g, lb_node *n, const char *name,
                           const int64_t *v, uint32_t count) {
  const int64_t *copy =
      lb_arena_memdup(&g->arena, v, count * sizeof *v, _Alignof(int64_t));
  if (!copy) return lb_oom();
  lb_attr a = {.kind = LB_ATTR_INTS, .n = count, .ints = copy};
  return set_attr(g, n, name, a);
}

// Whether passes have moved the channels of its feature maps to the last axis,
// as far as the chain of first inputs shows.
static bool is_channels_last(const lb_node *n) {
  for (int i = 0; i < MAX_WALK && n; i++) {
    uint32_t rank;
    const int64_t *perm = lb_attr_ints(n, "perm", &rank);
    if (lb_attr_int(n, "channels_last", 0) != 0) return true;
    if (perm) return rank > 2 && perm[rank - 1] == 1;
    if (n->op == LB_OP_Reshape) return false;
    n = n->n_in && n->in[0] ? n->in[0]->producer : NULL;
  }
  return false;
}

const char *lb_node_label(const lb_node *n, char *buf, size_t cap) {
  const lb_op_info *op = &lb_op_infos[n->op];
  snprintf(buf, cap, "%s '%s'%s", op->domain[0] ? "node" : op->name, n->name,
           is_channels_last(n) ? " (channels last)" : "");
  return buf;
}
