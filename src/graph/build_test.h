// graph/build_test.h -- builds small graphs by hand, for tests.
#ifndef LB_GRAPH_BUILD_TEST_H
#define LB_GRAPH_BUILD_TEST_H

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

static inline void ok(lb_status st) {
  if (lb_failed(st)) {
    printf("%s (%s)\n", lb_status_message(st), lb_status_where(st));
    lb_status_drop(st);
    fail();
  }
}

// Adds a parameter to region r; a dim of -1 is a fresh symbol.
static inline lb_value *param(lb_region *r, const char *name, lb_dtype dtype,
                              int rank, const int64_t *dims) {
  lb_value *v;
  ok(lb_value_new(r->graph, name, &v));
  v->region = r;
  v->info.dtype = dtype;
  v->info.rank = rank;
  for (int i = 0; i < rank; i++) {
    v->info.dims[i] = lb_dim_const(dims[i]);
    if (dims[i] < 0) ok(lb_symtab_fresh(r->graph->syms, &v->info.dims[i]));
  }
  lb_value **params =
      lb_arena_new(&r->graph->arena, lb_value *, r->n_params + 1u);
  assert_non_null(params);
  if (r->n_params) memcpy(params, r->params, r->n_params * sizeof *params);
  params[r->n_params++] = v;
  r->params = params;
  return v;
}

// Adds a node with n_out outputs named "<name>:<i>".
static inline lb_node *node(lb_region *r, lb_op op, const char *name,
                            uint32_t n_in, lb_value *const *in,
                            uint32_t n_out) {
  lb_node *n;
  ok(lb_node_new(r, op, name, n_in, n_out, &n));
  for (uint32_t i = 0; i < n_in; i++) n->in[i] = in[i];
  for (uint32_t i = 0; i < n_out; i++) {
    char text[64];
    lb_value *v;
    snprintf(text, sizeof text, "%s:%u", name, i);
    ok(lb_value_new(r->graph, text, &v));
    v->region = r;
    lb_node_set_out(n, i, v);
  }
  return n;
}

#define NODE1(r, op, name, ...)                                           \
  (node((r), LB_OP_##op, (name),                                          \
        (uint32_t)(sizeof((lb_value *[]){__VA_ARGS__}) / sizeof(void *)), \
        (lb_value *[]){__VA_ARGS__}, 1)                                   \
       ->out[0])

static inline void results(lb_region *r, uint32_t n, lb_value *const *values) {
  r->results = lb_arena_new(&r->graph->arena, lb_value *, n);
  assert_non_null(r->results);
  memcpy(r->results, values, n * sizeof *values);
  r->n_results = n;
  if (r->parent) return;
  r->graph->output_names = lb_arena_new(&r->graph->arena, const char *, n);
  assert_non_null(r->graph->output_names);
  for (uint32_t i = 0; i < n; i++) r->graph->output_names[i] = values[i]->name;
}

#define RESULTS(r, ...)                                                     \
  results((r),                                                              \
          (uint32_t)(sizeof((lb_value *[]){__VA_ARGS__}) / sizeof(void *)), \
          (lb_value *[]){__VA_ARGS__})

static inline void add_region(lb_node *n, lb_region *r) {
  lb_region **regions =
      lb_arena_new(&r->graph->arena, lb_region *, n->n_regions + 1u);
  assert_non_null(regions);
  if (n->n_regions) memcpy(regions, n->regions, n->n_regions * sizeof *regions);
  regions[n->n_regions++] = r;
  n->regions = regions;
}

static inline lb_tensor tensor(lb_dtype dtype, void *data, int rank,
                               const int64_t *dims) {
  lb_tensor t = {.dtype = dtype, .rank = rank, .data = data};
  for (int i = 0; i < rank; i++) t.dims[i] = dims[i];
  lb_tensor_dense(&t);
  return t;
}

#define DIMS(...)                                            \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
      (const int64_t[]) {                                    \
    __VA_ARGS__                                              \
  }

#endif
