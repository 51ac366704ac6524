// plan/results.h -- values in the caller's memory.
//
// A value that a chain of dense views leads to a result *lands* there: it is
// written straight into the result's memory, which one value can claim.
#ifndef LB_PLAN_RESULTS_H
#define LB_PLAN_RESULTS_H

#include "plan/values.h"

typedef struct lb_result_states {  // by result
  const lb_want *want;
  bool *claimed;    // some value is written there
  bool *delivered;  // all of it is planned
} lb_result_states;

// Whether v may be written to the caller's memory, dense.
bool lb_planner_output_of(const lb_planner *p, const lb_value *v);
// Memory for all of v, like t: the caller's if v may be written there.
lb_status lb_planner_buffer(lb_planner *p, const lb_value *v,
                            const lb_tensor *t, uint32_t *out);
// Sets v there, dense.
lb_status lb_planner_place(lb_planner *p, const lb_value *v,
                           const lb_tensor *t);

// -- window.c: results that are written to windows of the caller's

// The tensor of a result, which is like t, in the window that was asked for;
// *found is false if none was. LB_INVALID if its strides do not suit.
lb_status lb_planner_window(lb_planner *p, uint32_t result, const lb_tensor *t,
                            lb_tensor *out, bool *found);
// v, which is like t when it is dense, in the window of the result that it may
// be written to; *found is false if there is none.
lb_status lb_planner_find_window(lb_planner *p, const lb_value *v,
                                 const lb_tensor *t, lb_tensor *out,
                                 bool *found);
// It will be written there: the window, which was found, is bound.
lb_status lb_planner_take_window(lb_planner *p, const lb_value *v,
                                 const lb_tensor *t, uint32_t *result);

// -- results.c

// Copies results that are known but not in place yet, and names their dims.
lb_status lb_planner_deliver(lb_planner *p);
bool lb_planner_delivered(const lb_planner *p);  // all that are wanted

#endif
