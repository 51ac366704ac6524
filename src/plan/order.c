// plan/order.c -- a list of nodes for each region.
#include "plan/order.h"

#include <stdlib.h>

static bool is_inside(const lb_partitioning *parts, const lb_node *n) {
  const lb_partition *part = parts->of_node[n->id];
  return part && n != part->nodes[part->n_nodes - 1];
}

// Takes room at *at, and moves it on. Nesting is bounded by the importer.
static void fill(lb_orders *o, const lb_partitioning *parts, const lb_region *r,
                 const lb_node ***at) {
  lb_order *order = &o->of_region[r->id];
  order->nodes = *at;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    if (!is_inside(parts, r->nodes[i])) order->nodes[order->n++] = r->nodes[i];
  *at += order->n;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    for (uint32_t k = 0; k < r->nodes[i]->n_regions; k++)
      fill(o, parts, r->nodes[i]->regions[k], at);
}

lb_status lb_orders_init(lb_orders *o, const lb_partitioning *parts,
                         const lb_graph *g) {
  *o = (lb_orders){
      .of_region = calloc((size_t)g->n_regions + 1, sizeof *o->of_region),
      .nodes = calloc((size_t)g->n_nodes + 1, sizeof *o->nodes)};
  const lb_node **at = o->nodes;
  if (!o->of_region || !at) {
    lb_orders_fini(o);
    return lb_oom();
  }
  fill(o, parts, g->main, &at);
  return LB_OK;
}

void lb_orders_fini(lb_orders *o) {
  free(o->of_region);
  free(o->nodes);
  *o = (lb_orders){0};
}
