// partition/upsample.c -- nearest-neighbour Resize by integer factors.
//
// Such a Resize computes nothing. Its reader accesses the Resize's input
// instead of its result, with stride 0 along the repetitions.
#include <string.h>

#include "partition/specgen.h"

#define MAX_DIM (1 << 20)  // the reference kernel has float32 coordinates

// Whether output o is input floor(o / factor).
static bool rounds_down(const lb_node *n) {
  const char *coords =
      lb_attr_str(n, "coordinate_transformation_mode", "half_pixel");
  const char *mode = lb_attr_str(n, "nearest_mode", "round_prefer_floor");
  if (!strcmp(coords, "asymmetric"))
    return !strcmp(mode, "floor") || !strcmp(mode, "by_scale");
  if (!strcmp(coords, "tf_half_pixel_for_nn")) return !strcmp(mode, "floor");
  bool half =
      !strcmp(coords, "half_pixel") || !strcmp(coords, "pytorch_half_pixel");
  return half && !strncmp(mode, "round_prefer_", 13);
}

static bool has(const lb_node *n, uint32_t i) {
  return i < n->n_in && n->in[i] &&
         !(lb_value_const(n->in[i]) &&
           lb_tensor_count(lb_value_const(n->in[i])) == 0);
}

bool lb_specgen_is_upsample(const lb_node *n) {
  if (n->op != LB_OP_Resize ||
      strcmp(lb_attr_str(n, "mode", "nearest"), "nearest"))
    return false;
  const lb_tensor *scales = has(n, 2) ? lb_value_const(n->in[2]) : NULL;
  if (has(n, 2) && !(scales && scales->rank == 1 && scales->dtype == LB_F32 &&
                     lb_tensor_is_dense(scales)))
    return false;
  return rounds_down(n) &&
         !strcmp(lb_attr_str(n, "keep_aspect_ratio_policy", "stretch"),
                 "stretch");
}

// Whether the given scales equal the factors.
static bool agrees(const lb_node *n, int rank, const int64_t *factors) {
  uint32_t n_axes;
  const int64_t *axes = lb_attr_ints(n, "axes", &n_axes);
  const lb_tensor *t = has(n, 2) ? lb_value_const(n->in[2]) : NULL;
  for (int64_t i = 0; t && i < lb_tensor_count(t); i++) {
    int64_t axis = axes && i < n_axes ? axes[i] : i;
    float scale;
    memcpy(&scale, (const char *)t->data + (size_t)i * sizeof scale,
           sizeof scale);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank || scale < (float)factors[axis] ||
        scale > (float)factors[axis])
      return false;
  }
  return true;
}

bool lb_specgen_upsample_factors(const lb_node *n, const lb_tensor *x,
                                 const lb_tensor *y, int64_t *out) {
  if (x->rank != y->rank || x->rank == 0) return false;
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[i] == 0 || y->dims[i] % x->dims[i] || y->dims[i] > MAX_DIM)
      return false;
    out[i] = y->dims[i] / x->dims[i];
  }
  return out[x->rank - 1] == 1 && agrees(n, x->rank, out);
}
