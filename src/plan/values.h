// plan/values.h -- values whose dims are known, and their memory.
//
// Arrays are indexed by value id in the whole graph. A value of an If's branch
// occurs once in a plan, so ids never clash. Parameters of the branch and
// outputs of the If are *aliases* of the values they stand for, and have no
// state.
#ifndef LB_PLAN_VALUES_H
#define LB_PLAN_VALUES_H

#include "graph/skip.h"
#include "plan/memory.h"
#include "plan/plan.h"

typedef struct lb_planner lb_planner;

#define LB_NO_BUFFER UINT32_MAX

// A value whose dims are known. Immutable.
typedef struct lb_pvalue {
  const lb_tensor *tensor;  // strides; data for constants, which is in a plan's
                            // arena or the graph's. Other tensors live as long
                            // as planning
  uint32_t buffer;          // LB_NO_BUFFER: a constant, whose contents are
                            // known
  uint32_t value;           // its id
  int64_t offset;           // bytes into the buffer
  const lb_content *content;  // what a guard has found; NULL: nothing
} lb_pvalue;

typedef struct lb_pbuf {
  lb_storage storage;
  uint32_t index;          // of the input, output or dynamic buffer
  uint32_t base;           // base number while a plan runs (lb_address)
  int64_t virtual_offset;  // virtual offset in the arena; else 0
  uint32_t refs;           // number of values in it
} lb_pbuf;

typedef struct lb_value_states {
  const lb_pvalue **states;  // by value id; NULL: dims not known yet
  uint32_t *alias;           // by value id: id + 1 of the value it stands for;
                             // 0: itself
  lb_pbuf *bufs;
  uint32_t n_bufs, cap_bufs;
  lb_memory memory;
} lb_value_states;

// -- states

uint32_t lb_planner_root(const lb_planner *p, uint32_t id);
// *out is NULL if the dims are not known yet; constants always are. Use
// lb_planner_state (planner.h), which calls this.
lb_status lb_planner_find(lb_planner *p, const lb_value *v,
                          const lb_pvalue **out);
// s.tensor must be from lb_planner_copy_meta; that of a constant from
// lb_planner_copy_to_plan, or one that outlives the plan.
lb_status lb_planner_set(lb_planner *p, const lb_value *v, lb_pvalue s);
// Sets a value with known contents: t->data is in the plan's arena or outlives
// the plan.
lb_status lb_planner_set_const(lb_planner *p, const lb_value *v,
                               const lb_tensor *t);
// Adds a buffer and sets v to its start, with the strides of t.
lb_status lb_planner_set_view(lb_planner *p, const lb_value *v,
                              const lb_tensor *t, lb_storage storage,
                              uint32_t index);
// The same, dense.
lb_status lb_planner_set_dense(lb_planner *p, const lb_value *v,
                               const lb_tensor *t, lb_storage storage,
                               uint32_t index);

// Records what a guard has found out about v, which has a state. It is copied.
lb_status lb_planner_set_content(lb_planner *p, const lb_value *v,
                                 const lb_content *content);

// -- readers: the memory of a value without readers is freed

void lb_planner_unuse(lb_planner *p, const lb_value *v, uint32_t times);
void lb_planner_unuse_inputs(lb_planner *p, const lb_node *n);
// Whether v has readers; false for NULL.
bool lb_planner_is_read(const lb_planner *p, const lb_value *v);

// -- memory

uint32_t lb_planner_base(const lb_planner *p, lb_storage storage,
                         uint32_t index);
lb_status lb_planner_add_buffer(lb_planner *p, const lb_tensor *t,
                                lb_storage storage, uint32_t index,
                                uint32_t *out);
// Removes one value from a buffer; an empty buffer's memory is freed.
void lb_planner_leave(lb_planner *p, uint32_t buffer);
// Copies tensor metadata into the plan's arena (only `rank` dims).
lb_status lb_planner_copy_to_plan(lb_planner *p, const lb_tensor *t,
                                  lb_tensor **out);
// Copies tensor metadata into the state arena: launches do not need it, and few
// values are read by other steps.
lb_status lb_planner_copy_meta(lb_planner *p, const lb_tensor *t,
                               lb_tensor **out);

// -- operands

// The location of a value. Its tensor must not be used in steps.
lb_step_operand lb_planner_where(const lb_planner *p, const lb_pvalue *s);
// The operand of a step.
lb_status lb_planner_operand(lb_planner *p, const lb_pvalue *s,
                             lb_step_operand *out);

#endif
