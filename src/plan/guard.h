// plan/guard.h -- assumptions about the contents of inputs.
//
// Some skip rules depend on contents: a Gather whose indices are 0, 1, 2, ...
// or a multiplication by a tensor of ones. If such a tensor is an input of the
// model, a guard examines it when a run begins, and what it finds is part of
// the signature: a plan that relies on it serves only inputs of which it holds.
//
// (1) A guard reads at most LB_GUARD_BYTES, and stops at the first element that
//     does not fit.
// (2) It reports only contents that some rule asks for, so that other values do
//     not multiply plans.
// (3) A guard that fails often is dropped: it then finds nothing in any run of
//     this program. Finding another range than the last time is a failure, too.
#ifndef LB_PLAN_GUARD_H
#define LB_PLAN_GUARD_H

#include <stdatomic.h>

#include "graph/skip.h"

#define LB_GUARD_BYTES 65536
#define LB_GUARD_VALUES 4

typedef struct lb_guard {
  lb_content_kind kind;              // ANY: no guard
  uint32_t n_wanted;                 // UNIFORM: number of values in `wanted`
  uint64_t wanted[LB_GUARD_VALUES];  // as bits
  atomic_uint checks, failures;
  atomic_llong last;  // RANGE: the first index that was found last
} lb_guard;

// Finds the inputs of the main region that rules ask about. `out` has one
// element for each of its parameters, all zero. Returns the number of guards.
uint32_t lb_guards_find(const lb_graph *g, lb_guard *out);

// Examines an input. Any thread may call.
lb_content lb_guard_check(lb_guard *guard, const lb_tensor *t);

bool lb_guard_is_dropped(const lb_guard *guard);

#endif
