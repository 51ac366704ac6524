// device/cpu/split.h -- splits a launch into parts for the threads of a pool.
//
// A part is a band of rows times a band of columns of one iteration of the
// loops around a kernel. Band boundaries depend on sizes alone, never on the
// number of threads, and every part satisfies what the kernel's facts assume.
// Results do not depend on the boundaries either (spec/spec.h), so adjacent
// parts may be run as one.
//
// Times are estimates, only good enough to decide what is worth a second thread
// (docs/decisions/003-what-is-worth-a-thread.md).
#ifndef LB_DEVICE_CPU_SPLIT_H
#define LB_DEVICE_CPU_SPLIT_H

#include "device/launch.h"

lb_split_basis lb_split_basis_of(const lb_spec *s, const lb_facts *f);

// All `dims` and `outer` must be above 0.
void lb_split_at(const lb_split_basis *b, const int64_t dims[LB_SDIMS],
                 int64_t outer, lb_split *out);
lb_split lb_split_of(const lb_spec *s, const lb_facts *f,
                     const int64_t dims[LB_SDIMS], int64_t outer);

// Sets the split of another zone of the feature map, which has `rows` rows, to
// the column bands of `first`, if first->across_zones.
void lb_split_zone(const lb_split *first, int64_t rows, lb_split *out);

// Estimated nanoseconds of one iteration on one core of a current processor.
double lb_split_estimate(const lb_spec *s, const int64_t dims[LB_SDIMS]);

#endif
