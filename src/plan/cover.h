// plan/cover.h -- how a partition runs before its own kernel exists.
#ifndef LB_PLAN_COVER_H
#define LB_PLAN_COVER_H

#include "plan/values.h"

// Where the pieces of the partition begin: bit i is set if one does at node i.
// `recipe` is that of its launch, and remembers it.
struct lb_launch_template;
lb_status lb_planner_find_pieces(lb_planner *p, const lb_partition *part,
                                 const struct lb_launch_template *recipe,
                                 uint64_t *out);

// Whether pieces give the bits of the partition's kernel.
lb_status lb_planner_covers_exactly(lb_planner *p, const lb_partition *part,
                                    uint64_t pieces, bool *out);

#define LB_ALL_PIECES UINT64_MAX  // every node is one, and is called

// Adds the steps that stand for the partition, whose result is placed. `why`
// says of calls among them why they are no launches.
lb_status lb_planner_cover(lb_planner *p, const lb_partition *part,
                           uint64_t pieces, lb_reason why);

#endif
