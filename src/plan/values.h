// plan/values.h -- values whose dims are known, and the memory they lie in.
//
// Arrays are by value id of the whole graph. A value of an If's branch appears
// once in a plan, so ids never clash; parameters of the branch and outputs of
// the If are *aliases* of the values they stand for, and have no state.
#ifndef LB_PLAN_VALUES_H
#define LB_PLAN_VALUES_H

#include "plan/memory.h"
#include "plan/plan.h"

typedef struct lb_planner lb_planner;

#define LB_NO_BUFFER UINT32_MAX

// A value whose dims are known. Immutable once made.
typedef struct lb_pvalue {
  const lb_tensor *tensor;  // strides; data for constants, which lie in a
                            // plan's arena or are the graph's. Others last as
                            // long as planning does
  uint32_t buffer;          // LB_NO_BUFFER: a constant, contents are known
  uint32_t value;           // its id
  int64_t offset;           // bytes into the buffer
} lb_pvalue;

typedef struct lb_pbuf {
  lb_storage place;
  uint32_t index;  // input, output or own buffer
  uint32_t base;   // where it begins while a plan runs
  int64_t mark;    // in the arena; else 0
  uint32_t refs;   // values that live in it
} lb_pbuf;

typedef struct lb_value_states {
  const lb_pvalue **states;  // by value id; NULL: not known yet
  uint32_t *alias;           // by value id: 0: itself; else id + 1
  lb_pbuf *bufs;
  uint32_t n_bufs, cap_bufs;
  lb_memory memory;
} lb_value_states;

// -- states

uint32_t lb_planner_root(const lb_planner *p, uint32_t id);
// NULL if not known yet; constants always are.
// For lb_planner_state, which comes first (planner.h).
lb_status lb_planner_find(lb_planner *p, const lb_value *v,
                          const lb_pvalue **out);
// The tensor was jotted down; of a constant it is kept, or outlives the plan.
lb_status lb_planner_set(lb_planner *p, const lb_value *v, lb_pvalue s);
// Contents known: t->data lies in the plan's arena or outlives it.
lb_status lb_planner_set_const(lb_planner *p, const lb_value *v,
                               const lb_tensor *t);
// A value at the beginning of a buffer of its own kind, with the strides of t.
lb_status lb_planner_set_view(lb_planner *p, const lb_value *v,
                              const lb_tensor *t, lb_storage place,
                              uint32_t index);
// The same, dense.
lb_status lb_planner_set_dense(lb_planner *p, const lb_value *v,
                               const lb_tensor *t, lb_storage place,
                               uint32_t index);

// -- readers: a value without any gives its memory back

void lb_planner_unuse(lb_planner *p, const lb_value *v, uint32_t times);
void lb_planner_unuse_inputs(lb_planner *p, const lb_node *n);
// Whether somebody reads v; NULL: nobody.
bool lb_planner_is_read(const lb_planner *p, const lb_value *v);

// -- memory

uint32_t lb_planner_base(const lb_planner *p, lb_storage place, uint32_t index);
lb_status lb_planner_add_buffer(lb_planner *p, const lb_tensor *t,
                                lb_storage place, uint32_t index,
                                uint32_t *out);
// One value less lives in a buffer; without any its memory is given back.
void lb_planner_leave(lb_planner *p, uint32_t buffer);
// A copy in the plan's arena, of the dims that there are.
lb_status lb_planner_copy_to_plan(lb_planner *p, const lb_tensor *t,
                                  lb_tensor **out);
// The same among what later stages need: few values are read by more than
// launches, which have no use for tensors.
lb_status lb_planner_copy_meta(lb_planner *p, const lb_tensor *t,
                               lb_tensor **out);

// -- operands

// Where a value lies; its tensor is not for steps.
lb_step_operand lb_planner_where(const lb_planner *p, const lb_pvalue *s);
// The operand of a step.
lb_status lb_planner_operand(lb_planner *p, const lb_pvalue *s,
                             lb_step_operand *out);

#endif
