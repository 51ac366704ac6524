// device/cpu/split.h -- how a launch is cut into parts, for the threads of a
// pool.
//
// A part is a band of rows times a band of columns of one turn of the loops
// around a kernel. Bounds depend on sizes alone, never on a thread count, and
// every part keeps what the kernel's facts assume. Results do not depend on
// bounds either (spec/spec.h), so parts that lie side by side may be run as
// one.
//
// Times are estimates: good enough to tell what is worth a second thread
// (docs/decisions/003-what-is-worth-a-thread.md), for nothing else.
#ifndef LB_DEVICE_CPU_SPLIT_H
#define LB_DEVICE_CPU_SPLIT_H

#include "device/launch.h"

lb_split_basis lb_split_basis_of(const lb_spec *s, const lb_facts *f);

// `dims` are all above 0, and `outer` is.
void lb_split_at(const lb_split_basis *b, const int64_t dims[LB_SDIMS],
                 int64_t outer, lb_split *out);
lb_split lb_split_of(const lb_spec *s, const lb_facts *f,
                     const int64_t dims[LB_SDIMS], int64_t outer);

// Cuts another zone of the image whose first zone is cut as `first`, if they go
// together.
void lb_split_follow(const lb_split *first, int64_t rows, lb_split *out);

// What one turn takes on one core of a processor of these years.
double lb_split_ns(const lb_spec *s, const int64_t dims[LB_SDIMS]);

#endif
