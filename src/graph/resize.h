// graph/resize.h -- where a Resize takes its elements from.
//
// Every mode is separable: along one axis, an element of the result is a sum of
// some elements of the input, its *taps*, with weights. Nearest has one tap, of
// weight 1. Coordinates are computed in float, as exporters expect, so that
// positions like 1.2 * 5 come out whole.
#ifndef LB_GRAPH_RESIZE_H
#define LB_GRAPH_RESIZE_H

#include "graph/graph.h"

typedef enum lb_coord {
  LB_COORD_HALF_PIXEL,
  LB_COORD_HALF_PIXEL_SYMMETRIC,
  LB_COORD_PYTORCH_HALF_PIXEL,
  LB_COORD_ALIGN_CORNERS,
  LB_COORD_ASYMMETRIC,
  LB_COORD_TF_CROP_AND_RESIZE,
  LB_COORD_TF_HALF_PIXEL_FOR_NN,
} lb_coord;

typedef enum lb_filter {
  LB_FILTER_NEAREST,
  LB_FILTER_LINEAR,
  LB_FILTER_CUBIC
} lb_filter;

// BY_SCALE: up on an axis that becomes smaller, else down.
typedef enum lb_rounding {
  LB_ROUND_PREFER_FLOOR,
  LB_ROUND_PREFER_CEIL,
  LB_ROUND_FLOOR,
  LB_ROUND_CEIL,
  LB_ROUND_BY_SCALE
} lb_rounding;

typedef struct lb_resize {
  lb_coord coord;
  lb_filter filter;
  lb_rounding rounding;
  bool antialias, exclude_outside;
  double cubic_a, extrapolation;
  float scale[LB_MAX_RANK];                    // by axis, as the two below
  float start[LB_MAX_RANK], end[LB_MAX_RANK];  // of the region
} lb_resize;

// Whether an optional input is there: one without elements is not.
bool lb_resize_has(const lb_node *n, uint32_t input);
bool lb_resize_is_mode(const lb_node *n, const char *mode);
// Whether all of the input is stretched to all of the result.
bool lb_resize_is_plain(const lb_node *n);

// What attributes say.
lb_status lb_resize_read_modes(const lb_node *n, lb_resize *out);

// An axis: its number, and elements before and after.
typedef struct lb_resize_axis {
  int d;
  int64_t in, out;
} lb_resize_axis;

// As many at each place of the axis; LB_INVALID if they are absurdly many.
lb_status lb_resize_taps(const lb_resize *r, const lb_resize_axis *a,
                         int64_t *out);
// The taps of place `o`: indices in [0, in), and weights but for nearest. False
// if the place lies outside and takes extrapolation_value.
bool lb_resize_at(const lb_resize *r, const lb_resize_axis *a, int64_t taps,
                  int64_t o, int64_t *index, double *weight);

#endif
