// partition/zones.h -- the positions of a window along one axis of an image, in
// zones.
//
// At the borders of an image windows stick out, and taps that lie outside count
// for nothing. Where the same taps lie inside, positions are one *zone*: the
// middle, and what is left and right of it. Internal to the room.
#ifndef LB_PARTITION_ZONES_H
#define LB_PARTITION_ZONES_H

#include <stdbool.h>
#include <stdint.h>

#define LB_MAX_ZONES 12  // along an axis

typedef struct lb_zone {
  int64_t out, out_step, n;     // positions
  int64_t in, in_step;          // where their first tap lies
  int64_t taps, tap_step;       // that lie inside, and from one to the next
  int64_t weight, weight_step;  // the number of the first tap, and likewise
  int64_t counted;              // taps that an average divides by
} lb_zone;

typedef struct lb_axis {
  int64_t in, out, kernel, stride, dilation, before, after;
  lb_zone zones[LB_MAX_ZONES];  // the largest first
  int n_zones;
} lb_axis;

// Fills in the zones; the rest is given. `turned`: of a transposed convolution,
// which has no dilation. False if there are none, or too many.
bool lb_axis_find_zones(lb_axis *a, bool turned, bool with_pads);

#endif
