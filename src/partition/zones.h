// partition/zones.h -- splits the positions of a window along one axis of a
// feature map into zones.
//
// Near the edges a window extends into the padding, and taps outside do not
// contribute. A *zone* is a range of positions that have the same taps inside:
// the interior, and padding regions on either side. Internal to this module.
#ifndef LB_PARTITION_ZONES_H
#define LB_PARTITION_ZONES_H

#include <stdbool.h>
#include <stdint.h>

#define LB_MAX_ZONES 12  // per axis

typedef struct lb_zone {
  int64_t out, out_step, n;     // output positions
  int64_t in, in_step;          // input position of their first tap
  int64_t taps, tap_step;       // number of taps inside, and input distance
                                // from one to the next
  int64_t weight, weight_step;  // index of the first tap, and distance to the
                                // next
  int64_t counted;              // number of taps by which an average divides
} lb_zone;

typedef struct lb_axis {
  int64_t in, out, kernel, stride, dilation, before, after;
  lb_zone zones[LB_MAX_ZONES];  // the largest first
  int n_zones;
} lb_axis;

// Computes the zones; all other fields are set by the caller. `transposed`: for
// a transposed convolution, which must have no dilation. False if there are
// none, or too many.
bool lb_axis_find_zones(lb_axis *a, bool transposed, bool count_pads);

#endif
