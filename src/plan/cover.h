// plan/cover.h -- how a partition runs before its own kernel exists.
#ifndef LB_PLAN_COVER_H
#define LB_PLAN_COVER_H

#include "plan/values.h"

// Where the pieces of the partition begin: bit i is set if one does at node i.
// `slot` is its own, and remembers it.
lb_status lb_planner_find_pieces(lb_planner *p, const lb_partition *part,
                                 lb_slot *slot, uint64_t *out);

// Whether pieces give the bits of the partition's kernel.
lb_status lb_planner_covers_exactly(lb_planner *p, const lb_partition *part,
                                    uint64_t pieces, bool *out);

// Adds the steps that stand for the partition, whose result is placed.
lb_status lb_planner_cover(lb_planner *p, const lb_partition *part,
                           uint64_t pieces);
// The same, by the reference kernel of each node.
lb_status lb_planner_calls(lb_planner *p, const lb_partition *part);

#endif
