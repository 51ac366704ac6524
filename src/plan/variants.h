// plan/variants.h -- which kernels are wanted: those of a plan, and those that
// other sizes of a request would choose.
//
// Rows differ from request to request and choose one tile of a few: the *tile
// variants* of a slot are those of its spec that other rows choose. They are
// wanted together, so that shapes to come find them compiled.
//
// A rehearsal plans at guessed sizes, before any request. It wants what does
// not depend on the guess: the slot and its variants where all other sizes that
// choose facts are constants of the graph, as the columns of weights are, and
// else the reusable kernel that is chosen for sizes that nothing divides.
#ifndef LB_PLAN_VARIANTS_H
#define LB_PLAN_VARIANTS_H

#include "plan/launch.h"

// A launch of `slot`, which is that of `b`, is part of the plan. Where rows are
// constants there are no variants to want.
lb_status lb_planner_want(lb_planner *p, const lb_partition *part,
                          const lb_binding *b, lb_slot *slot);

// A slot is found for the first time, by a rehearsal: notes the recipes of its
// variants, so that plans at other rows find them in the memo.
lb_status lb_planner_note_variants(lb_planner *p, const lb_binding *b,
                                   const lb_slot *slot);

#endif
