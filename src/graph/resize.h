// graph/resize.h -- which input elements each output element of a Resize reads.
//
// Every mode is separable: along one axis, an output element is a weighted sum
// of some input elements, its *taps*. Nearest has one tap of weight 1.
// Coordinates are computed in float32, as exporters expect, so that positions
// such as 1.2 * 5 are whole numbers.
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

// BY_SCALE: ceil along an axis that shrinks, floor otherwise.
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
  float scale[LB_MAX_RANK];                    // by axis, as the next two
  float start[LB_MAX_RANK], end[LB_MAX_RANK];  // of the region (roi)
} lb_resize;

// Whether an optional input is present; an input without elements counts as
// absent.
bool lb_resize_has(const lb_node *n, uint32_t input);
bool lb_resize_is_mode(const lb_node *n, const char *mode);
// Whether the whole input is stretched to the whole output.
bool lb_resize_is_plain(const lb_node *n);

// Reads the modes and coefficients from the attributes.
lb_status lb_resize_read_modes(const lb_node *n, lb_resize *out);

// One axis: its number, and its size in the input and in the output.
typedef struct lb_resize_axis {
  int d;
  int64_t in, out;
} lb_resize_axis;

// The number of taps, the same for each output position of the axis; LB_INVALID
// if a very small scale makes them too many.
lb_status lb_resize_taps(const lb_resize *r, const lb_resize_axis *a,
                         int64_t *out);
// The taps of output position `o`: indices in [0, in), and weights except for
// nearest. False if the position is outside the region and gets
// extrapolation_value.
bool lb_resize_at(const lb_resize *r, const lb_resize_axis *a, int64_t taps,
                  int64_t o, int64_t *index, double *weight);

#endif
