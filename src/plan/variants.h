// plan/variants.h -- which kernels are requested: those that a plan uses, and
// those that other sizes of a request would select.
//
// The number of rows varies between requests and selects one of a few tiles.
// The *tile variants* of a slot are the slots of its spec that other row counts
// select. They are requested together, so that later shapes find them compiled.
//
// Load-time warm-up plans at guessed sizes, before any request. It requests
// what does not depend on the guess: the slot and its variants if all other
// sizes that select facts are constants of the graph (such as the columns of
// weights), else the reusable kernel that is selected if no unit divides the
// sizes.
#ifndef LB_PLAN_VARIANTS_H
#define LB_PLAN_VARIANTS_H

#include "plan/launch.h"

// A launch of `slot`, the slot of `b`, is part of the plan: counts it as used
// and requests its kernel. If the rows are constant, no variants are requested.
lb_status lb_planner_request(lb_planner *p, const lb_partition *part,
                             const lb_binding *b, lb_slot *slot);

// Called at warm-up when a slot is found for the first time: adds the launch
// templates of its variants to the memo, so that plans at other row counts find
// them there.
lb_status lb_planner_note_variants(lb_planner *p, const lb_binding *b,
                                   const lb_slot *slot);

#endif
