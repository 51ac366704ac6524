// plan/cover.h -- how a partition runs before its own kernel exists.
#ifndef LB_PLAN_COVER_H
#define LB_PLAN_COVER_H

#include "plan/values.h"

// Finds where the pieces of the partition's cover start: bit i is set if a
// piece starts at node i. The result is remembered in `tmpl`, the partition's
// launch template.
struct lb_launch_template;
lb_status lb_planner_find_pieces(lb_planner *p, const lb_partition *part,
                                 const struct lb_launch_template *tmpl,
                                 uint64_t *out);

// Whether the pieces give results bit-identical to those of the partition's
// kernel.
lb_status lb_planner_covers_exactly(lb_planner *p, const lb_partition *part,
                                    uint64_t pieces, bool *out);

#define LB_ALL_PIECES UINT64_MAX  // every node is a piece, and a call

// Adds the steps of the cover. Memory for the partition's result has been set.
// `why` becomes the reason of the calls among the steps.
lb_status lb_planner_cover(lb_planner *p, const lb_partition *part,
                           uint64_t pieces, lb_reason why);

#endif
