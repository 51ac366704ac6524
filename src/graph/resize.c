// graph/resize.c -- coordinates, filters and rounding modes of Resize.
#include "graph/resize.h"

#include <math.h>
#include <string.h>

#include "graph/attr.h"

// -- attributes --------------------------------------------------------------

bool lb_resize_has(const lb_node *n, uint32_t input) {
  const lb_value *v = lb_node_input(n, input);
  const lb_tensor *t = lb_value_const(v);
  return v && !(t && lb_tensor_count(t) == 0);
}

bool lb_resize_is_mode(const lb_node *n, const char *mode) {
  return strcmp(lb_attr_str(n, "mode", "nearest"), mode) == 0;
}

bool lb_resize_is_plain(const lb_node *n) {
  return strcmp(lb_attr_str(n, "coordinate_transformation_mode", ""),
                "tf_crop_and_resize") != 0 &&
         strcmp(lb_attr_str(n, "keep_aspect_ratio_policy", "stretch"),
                "stretch") == 0;
}

// The index of the attribute's value in `names`, which ends with NULL.
static lb_status find_choice(const lb_node *n, const char *attr,
                             const char *dflt, const char *const *names,
                             int *out) {
  const char *value = lb_attr_str(n, attr, dflt);
  for (*out = 0; names[*out]; ++*out)
    if (!strcmp(value, names[*out])) return LB_OK;
  return lb_error(LB_INVALID, "%s '%s' is not known", attr, value);
}

lb_status lb_resize_read_modes(const lb_node *n, lb_resize *out) {
  static const char *const coords[] = {
      "half_pixel",           "half_pixel_symmetric",
      "pytorch_half_pixel",   "align_corners",
      "asymmetric",           "tf_crop_and_resize",
      "tf_half_pixel_for_nn", NULL};
  static const char *const filters[] = {"nearest", "linear", "cubic", NULL};
  static const char *const roundings[] = {"round_prefer_floor",
                                          "round_prefer_ceil",
                                          "floor",
                                          "ceil",
                                          "by_scale",
                                          NULL};
  int coord, kind, round;
  LB_TRY(find_choice(n, "coordinate_transformation_mode", "half_pixel", coords,
                     &coord));
  LB_TRY(find_choice(n, "mode", "nearest", filters, &kind));
  LB_TRY(
      find_choice(n, "nearest_mode", "round_prefer_floor", roundings, &round));
  out->coord = (lb_coord)coord;
  out->filter = (lb_filter)kind;
  out->rounding = (lb_rounding)round;
  out->antialias = lb_attr_int(n, "antialias", 0) != 0;
  out->exclude_outside = lb_attr_int(n, "exclude_outside", 0) != 0;
  out->cubic_a = (double)lb_attr_float(n, "cubic_coeff_a", -0.75f);
  out->extrapolation = (double)lb_attr_float(n, "extrapolation_value", 0);
  return LB_OK;
}

// -- positions ---------------------------------------------------------------

// The input coordinate of output position o.
static float coordinate(const lb_resize *r, const lb_resize_axis *a,
                        int64_t o) {
  float x = (float)o, scale = r->scale[a->d];
  float in = (float)a->in, out = (float)a->out;
  switch (r->coord) {
    case LB_COORD_HALF_PIXEL: return (x + 0.5f) / scale - 0.5f;
    case LB_COORD_HALF_PIXEL_SYMMETRIC: {
      float offset = in / 2 * (1 - out / (scale * in));
      return offset + (x + 0.5f) / scale - 0.5f;
    }
    case LB_COORD_PYTORCH_HALF_PIXEL:
      return a->out > 1 ? (x + 0.5f) / scale - 0.5f : 0;
    case LB_COORD_ALIGN_CORNERS:
      return a->out > 1 ? x * (in - 1) / (out - 1) : 0;
    case LB_COORD_ASYMMETRIC: return x / scale;
    case LB_COORD_TF_HALF_PIXEL_FOR_NN: return (x + 0.5f) / scale;
    case LB_COORD_TF_CROP_AND_RESIZE: break;
  }
  float start = r->start[a->d], end = r->end[a->d];
  if (a->out <= 1) return 0.5f * (start + end) * (in - 1);
  return start * (in - 1) + x * (end - start) * (in - 1) / (out - 1);
}

static int64_t clamp(double x, int64_t n) {
  if (!(x > 0)) return 0;  // NaN too
  return x < (double)(n - 1) ? (int64_t)x : n - 1;
}

static int64_t nearest(const lb_resize *r, const lb_resize_axis *a, float x) {
  float y = 0;
  switch (r->rounding) {
    case LB_ROUND_PREFER_FLOOR: y = ceilf(x - 0.5f); break;
    case LB_ROUND_PREFER_CEIL: y = floorf(x + 0.5f); break;
    case LB_ROUND_FLOOR: y = floorf(x); break;
    case LB_ROUND_CEIL: y = ceilf(x); break;
    case LB_ROUND_BY_SCALE:
      y = r->scale[a->d] < 1 ? ceilf(x) : floorf(x);
      break;
  }
  return clamp((double)y, a->in);
}

static double cubic(double a, double x) {
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// The weight of an input element at distance x, in units of the filter.
static double filter_weight(const lb_resize *r, double x) {
  if (r->filter == LB_FILTER_CUBIC) return cubic(r->cubic_a, x);
  double w = 1 - fabs(x);
  return w > 0 ? w : 0;
}

// The scale of the filter along axis d: antialiasing widens it.
static double stretch_of(const lb_resize *r, int d) {
  return r->antialias && r->scale[d] < 1 ? (double)r->scale[d] : 1;
}

static double reach_of(const lb_resize *r, int d) {
  return (r->filter == LB_FILTER_CUBIC ? 2 : 1) / stretch_of(r, d);
}

static int64_t first_tap(const lb_resize *r, int d) {
  return (int64_t)floor(-reach_of(r, d)) + 1;
}

static void find_taps(const lb_resize *r, const lb_resize_axis *a, int64_t taps,
                      float x, int64_t *index, double *weight) {
  double base = floor((double)x), ratio = (double)x - base, sum = 0;
  if (ratio == 0) base -= 1, ratio = 1;  // prefer the left neighbour
  int64_t first = first_tap(r, a->d);
  double stretch = stretch_of(r, a->d);
  for (int64_t k = 0; k < taps; k++) {
    double at = base + (double)(first + k);
    weight[k] = filter_weight(r, ((double)(first + k) - ratio) * stretch);
    bool out = at < 0 || at > (double)(a->in - 1);
    if (r->exclude_outside && out) weight[k] = 0;
    index[k] = clamp(at, a->in);
    sum += weight[k];
  }
  bool normalise = r->exclude_outside || stretch < 1;
  for (int64_t k = 0; normalise && sum != 0 && k < taps; k++) weight[k] /= sum;
}

lb_status lb_resize_taps(const lb_resize *r, const lb_resize_axis *a,
                         int64_t *out) {
  *out = 1;
  if (r->filter == LB_FILTER_NEAREST) return LB_OK;
  if (reach_of(r, a->d) > 4 * (double)a->in + 16)
    return lb_error(LB_INVALID, "a scale of %g is too small for axis %d",
                    (double)r->scale[a->d], a->d);
  *out = 2 - 2 * first_tap(r, a->d);
  return LB_OK;
}

bool lb_resize_at(const lb_resize *r, const lb_resize_axis *a, int64_t taps,
                  int64_t o, int64_t *index, double *weight) {
  float x = coordinate(r, a, o);
  if (r->filter == LB_FILTER_NEAREST)
    index[0] = nearest(r, a, x);
  else
    find_taps(r, a, taps, x, index, weight);
  return r->coord != LB_COORD_TF_CROP_AND_RESIZE ||
         (x >= 0 && x <= (float)(a->in - 1));
}
