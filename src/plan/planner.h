// plan/planner.h -- the state of planning one region, stage after stage.
// Internal to this module.
//
// The planner is composed of one state struct for each concern, declared in
// that concern's header; all functions take the whole planner. Arrays indexed
// by node use the node id in the whole graph.
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
  lb_arena *arena;   // the plan's arena: data that runs need
  lb_arena *state;   // the plan's state arena: data that later stages need,
                     // including all state below
  lb_arena scratch;  // scratch memory while planning

  lb_tally tally;
  lb_value_states values;
  lb_dim_states dims;
  lb_result_states results;
  lb_concat_plan concat;
  lb_step_lists steps;
  lb_launch_states launch;
};

// Counts the reads of a region's needed nodes. The region's results must have
// been counted before.
void lb_planner_count(lb_planner *p, const lb_region *r);
lb_status lb_planner_nodes(lb_planner *p, const lb_node *const *nodes,
                           uint32_t n);
lb_status lb_planner_region(lb_planner *p,
                            const lb_region *r);  // all of its nodes
// Marks deferred nodes as not needed whose outputs are no longer read by any
// node.
void lb_planner_drop_unread(lb_planner *p, const lb_node *const *nodes,
                            uint32_t n);

// Plans one node. The reads of its inputs remain counted.
lb_status lb_planner_node(lb_planner *p, const lb_node *n, bool *deferred);

// Infers the dims of all outputs of a node by its shape rule, in scratch
// memory. *call is false if the node will not become a call: contents that
// decide dims are not known yet, or the node can be computed while planning.
lb_status lb_planner_infer(lb_planner *p, const lb_node *n,
                           const lb_pvalue *const *in, const lb_tensor **out,
                           bool *call);

static inline lb_status lb_planner_state(lb_planner *p, const lb_value *v,
                                         const lb_pvalue **out) {
  *out = p->values.states[v->id];  // NULL for an alias
  return *out ? LB_OK : lb_planner_find(p, v, out);
}

// Records the disposition of a node. If that refers to a step, it must be the
// next one pushed.
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

// Whether this node is planned. Other nodes of its partition may not be.
static inline bool lb_planner_is_planned(const lb_planner *p,
                                         const lb_node *n) {
  return lb_plan_node(p->plan, n)->kind > LB_NODE_LATER;
}

// Scratch memory that is not cleared, because most of a tensor's MAX_RANK dims
// are never used.
#define LB_SCRATCH(p, T, n) \
  ((T *)lb_arena_alloc(&(p)->scratch, lb_mul_sat(sizeof(T), (n)), _Alignof(T)))

// Doubles the capacity of a list in an arena; the old copy stays there.
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
