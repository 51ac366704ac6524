// base/clock.h -- the monotonic clock.
#ifndef LB_BASE_CLOCK_H
#define LB_BASE_CLOCK_H

#include <stdint.h>

int64_t lb_clock_ns(void);
static inline double lb_clock_seconds(void) {
  return 1e-9 * (double)lb_clock_ns();
}

#endif
