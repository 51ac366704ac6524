// plan/order.c -- a list of nodes for each region.
#include "plan/order.h"

#include <stdlib.h>

static bool is_inside(const lb_partitioning *parts, const lb_node *n) {
  const lb_partition *part = parts->of_node[n->id];
  return part && n != part->nodes[part->n_nodes - 1];
}

static void add_ids(lb_order *order, uint32_t first, uint32_t end) {
  if (first == end) return;
  if (first < order->first_id) order->first_id = first;
  if (end > order->end_id) order->end_id = end;
}

// Appends the region's nodes at *at and advances it. The importer bounds
// nesting.
static void fill(lb_orders *o, const lb_partitioning *parts, const lb_region *r,
                 lb_disposition unvisited, const lb_node ***at) {
  const lb_disposition not_taken = {.kind = LB_NODE_NOT_TAKEN,
                                    .reason = LB_REASON_NOT_TAKEN};
  const lb_disposition body = {.kind = LB_NODE_BODY, .reason = LB_REASON_BODY};
  lb_order *order = &o->of_region[r->id];
  order->nodes = *at;
  order->first_id = UINT32_MAX;
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    if (!is_inside(parts, r->nodes[i])) order->nodes[order->n++] = r->nodes[i];
    add_ids(order, r->nodes[i]->id, r->nodes[i]->id + 1);
    o->unvisited[r->nodes[i]->id] = unvisited;
  }
  *at += order->n;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    for (uint32_t k = 0; k < r->nodes[i]->n_regions; k++) {
      const lb_region *inner = r->nodes[i]->regions[k];
      fill(o, parts, inner, r->nodes[i]->op == LB_OP_If ? not_taken : body, at);
      add_ids(order, o->of_region[inner->id].first_id,
              o->of_region[inner->id].end_id);
    }
  if (order->first_id > order->end_id) order->first_id = order->end_id;
}

lb_status lb_orders_init(lb_orders *o, const lb_partitioning *parts,
                         const lb_graph *g) {
  *o = (lb_orders){
      .of_region = calloc((size_t)g->n_regions + 1, sizeof *o->of_region),
      .nodes = calloc((size_t)g->n_nodes + 1, sizeof *o->nodes),
      .unvisited = calloc((size_t)g->n_nodes + 1, sizeof *o->unvisited)};
  const lb_node **at = o->nodes;
  if (!o->of_region || !at || !o->unvisited) {
    lb_orders_fini(o);
    return lb_oom();
  }
  fill(o, parts, g->main, LB_NOT_NEEDED, &at);
  return LB_OK;
}

void lb_orders_fini(lb_orders *o) {
  free(o->of_region);
  free(o->nodes);
  free(o->unvisited);
  *o = (lb_orders){0};
}
