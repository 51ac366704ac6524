// plan/planner.h -- the state of planning one region, stage after stage.
// Internal to the room.
//
// Each concern has a header with the state that it owns; functions of all of
// them take the planner. Arrays by node are by node id of the whole graph.
#ifndef LB_PLAN_PLANNER_H
#define LB_PLAN_PLANNER_H

#include <string.h>

#include "plan/concat.h"
#include "plan/dims.h"
#include "plan/launch.h"
#include "plan/results.h"
#include "plan/steps.h"

struct lb_planner {
  const lb_program *prog;
  const lb_region *region;
  bool in_warmup;    // see lb_plan_workspace
  lb_plan *plan;     // being built; borrowed
  lb_arena *arena;   // the plan's: what a run needs
  lb_arena *state;   // the plan's: what later stages need, all below
  lb_arena scratch;  // for evaluation while planning

  lb_tally tally;
  lb_value_states values;
  lb_dim_states dims;
  lb_result_states results;
  lb_concat_plan concat;
  lb_step_lists steps;
  lb_launch_states launch;
};

// Counts the reads of a region's needed nodes; results were counted before.
void lb_planner_count(lb_planner *p, const lb_region *r);
lb_status lb_planner_nodes(lb_planner *p, const lb_node *const *nodes,
                           uint32_t n);
lb_status lb_planner_region(lb_planner *p, const lb_region *r);  // all of it
// Forgets nodes that waited for this stage and that nobody reads any more.
void lb_planner_drop_unread(lb_planner *p, const lb_node *const *nodes,
                            uint32_t n);

// Plans one node; what it reads is still counted as read.
lb_status lb_planner_node(lb_planner *p, const lb_node *n, bool *deferred);

// The dims of all that a node makes, by its shape rule, in scratch memory.
// *call is false if it is no call: contents that decide dims are not known yet,
// or the node can be computed while planning.
lb_status lb_planner_infer(lb_planner *p, const lb_node *n,
                           const lb_pvalue *const *in, const lb_tensor **out,
                           bool *call);

static inline lb_status lb_planner_state(lb_planner *p, const lb_value *v,
                                         const lb_pvalue **out) {
  *out = p->values.states[v->id];  // an alias has none
  return *out ? LB_OK : lb_planner_find(p, v, out);
}

// Records what becomes of a node; if that is a step, it is pushed next.
static inline void lb_planner_note(lb_planner *p, const lb_node *n,
                                   lb_disposition_kind kind, lb_reason reason,
                                   uint32_t value) {
  lb_plan *plan = p->plan;
  plan->nodes[n->id - plan->first_node] =
      (lb_disposition){.kind = (uint8_t)kind,
                       .reason = (uint8_t)reason,
                       .step = plan->first_step + plan->n_steps,
                       .value = value};
}

// Whether it is done: others of its partition may not be.
static inline bool lb_planner_is_planned(const lb_planner *p,
                                         const lb_node *n) {
  return lb_plan_node(p->plan, n)->kind > LB_NODE_LATER;
}

// Scratch memory that is not cleared: most of what there is room for in a
// tensor is never used.
#define LB_SCRATCH(p, T, n) \
  ((T *)lb_arena_alloc(&(p)->scratch, lb_mul_sat(sizeof(T), (n)), _Alignof(T)))

// Doubles a list that lives in an arena; the old copy stays there.
#define LB_GROW(arena, list, n, cap)                              \
  do {                                                            \
    if ((n) == (cap)) {                                           \
      uint32_t cap_ = (cap) ? (cap)*2 : 4;                        \
      void *new_ = lb_arena_alloc((arena), cap_ * sizeof *(list), \
                                  _Alignof(max_align_t));         \
      if (!new_) return lb_oom();                                 \
      if (n) memcpy(new_, (list), (n) * sizeof *(list));          \
      (list) = new_;                                              \
      (cap) = cap_;                                               \
    }                                                             \
  } while (0)

#endif
