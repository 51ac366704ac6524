// base/clock.h -- nanoseconds of the monotonic clock.
#ifndef LB_BASE_CLOCK_H
#define LB_BASE_CLOCK_H

#include <stdint.h>

int64_t lb_clock_ns(void);

#endif
