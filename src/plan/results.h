// plan/results.h -- values in the caller's memory.
//
// A value from which skipped nodes lead to a region result, with all elements
// in order, is written straight into the result's memory. Only one value may
// claim that memory.
#ifndef LB_PLAN_RESULTS_H
#define LB_PLAN_RESULTS_H

#include "plan/values.h"

typedef struct lb_result_states {  // by result
  const lb_want *want;
  bool *claimed;    // some value is written there
  bool *delivered;  // all of it is planned
} lb_result_states;

// The result + 1 that v, which is like t, may be written to; 0: none.
uint32_t lb_planner_result_of(lb_planner *p, const lb_value *v,
                              const lb_tensor *t);
// Whether v may be written straight to a result in the caller's memory, dense.
bool lb_planner_output_of(lb_planner *p, const lb_value *v, const lb_tensor *t);
// Allocates a buffer for v, which is like t: the caller's memory if v may be
// written there.
lb_status lb_planner_buffer(lb_planner *p, const lb_value *v,
                            const lb_tensor *t, uint32_t *out);
// Binds v to such a buffer, dense.
lb_status lb_planner_place(lb_planner *p, const lb_value *v,
                           const lb_tensor *t);

// -- window.c: results that are written to strided buffers of the caller

// The tensor of a result, which is like t, with the strides that the caller
// requested; *found is false if there are none. LB_INVALID if they do not fit.
lb_status lb_planner_window(lb_planner *p, uint32_t result, const lb_tensor *t,
                            lb_tensor *out, bool *found);
// The view of v, which is `t` when dense, in the strided result that it may be
// written to; *found is false if there is none.
lb_status lb_planner_find_window(lb_planner *p, const lb_value *v,
                                 const lb_tensor *t, lb_tensor *out,
                                 bool *found);
// Claims and binds that result for v.
lb_status lb_planner_take_window(lb_planner *p, const lb_value *v,
                                 const lb_tensor *t, uint32_t *result);

// -- results.c

// Copies finished results that are not in the caller's memory yet, and sets
// their dims.
lb_status lb_planner_deliver(lb_planner *p);
bool lb_planner_delivered(const lb_planner *p);  // all that are wanted

#endif
