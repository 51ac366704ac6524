// plan/order.h -- the nodes that the planner visits, by region.
//
// A partition is planned when its last node is reached, so the planner does not
// visit its other nodes.
#ifndef LB_PLAN_ORDER_H
#define LB_PLAN_ORDER_H

#include "graph/graph.h"
#include "partition/partition.h"
#include "plan/disposition.h"

typedef struct lb_order {  // of a region
  const lb_node **nodes;   // borrowed from lb_orders
  uint32_t n;
  uint32_t first_id, end_id;  // ids of its nodes and those of nested regions
} lb_order;

typedef struct lb_orders {
  lb_order *of_region;    // owned; by region id. NULL: all nodes are visited
  const lb_node **nodes;  // owned; of all regions
  // Owned; by node id: the disposition of a node that the planner never visits.
  lb_disposition *unvisited;
} lb_orders;

lb_status lb_orders_init(lb_orders *o, const lb_partitioning *parts,
                         const lb_graph *g);
void lb_orders_fini(lb_orders *o);

static inline lb_order lb_orders_get(const lb_orders *o, const lb_graph *g,
                                     const lb_region *r) {
  if (o->of_region) return o->of_region[r->id];
  return (lb_order){(const lb_node **)r->nodes, r->n_nodes, 0, g->n_nodes};
}

#endif
