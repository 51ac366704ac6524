// device/reference/roi.c -- RoiAlign and MaxRoiPool: pooling over regions.
//
// Computed in double and rounded once. Regions are input data that may hold any
// value: coordinates are checked before they become indices.
#include <math.h>
#include <string.h>

#include "device/reference/gemm.h"
#include "device/reference/iter.h"

typedef struct regions {
  int64_t channels, height, width, out_h, out_w;
  const lb_f64 *x;
  lb_f64 *y;
} regions;

// -- RoiAlign ----------------------------------------------------------------

typedef struct align {
  regions r;
  bool max, half_pixel;
  int64_t ratio;
  double scale;
} align;

typedef struct corners {  // four elements of a plane and their weights
  int64_t at[4];
  double weight[4];
} corners;

static corners corners_of(const regions *r, double y, double x) {
  corners k = {{0}, {0}};
  if (!(y >= -1 && y <= (double)r->height && x >= -1 && x <= (double)r->width))
    return k;
  y = y > 0 ? y : 0;
  x = x > 0 ? x : 0;
  int64_t y0 = (int64_t)y, x0 = (int64_t)x, y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= r->height - 1) y = (double)(y0 = y1 = r->height - 1);
  if (x0 >= r->width - 1) x = (double)(x0 = x1 = r->width - 1);
  double ly = y - (double)y0, lx = x - (double)x0;
  k = (corners){{y0 * r->width + x0, y0 * r->width + x1, y1 * r->width + x0,
                 y1 * r->width + x1},
                {(1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx}};
  return k;
}

typedef struct roi_box {
  double y, x, bin_h, bin_w;  // corner of the box; size of a bin
  int64_t grid_h, grid_w;     // samples per bin
} roi_box;

static double bin_value(const align *a, const roi_box *b, const lb_f64 *plane,
                        int64_t ph, int64_t pw) {
  double acc = 0;
  bool any = false;
  for (int64_t iy = 0; iy < b->grid_h; iy++)
    for (int64_t ix = 0; ix < b->grid_w; ix++) {
      double y = b->y + (double)ph * b->bin_h +
                 ((double)iy + 0.5) * b->bin_h / (double)b->grid_h;
      double x = b->x + (double)pw * b->bin_w +
                 ((double)ix + 0.5) * b->bin_w / (double)b->grid_w;
      corners k = corners_of(&a->r, y, x);
      for (int i = 0; i < 4; i++) {
        double v = k.weight[i] * plane[k.at[i]];
        if (!a->max)
          acc += v;
        else if (!any || v > acc)
          acc = v;
        any = true;
      }
    }
  double count = (double)(b->grid_h * b->grid_w);
  return a->max || count < 1 ? acc : acc / count;
}

static lb_status box_of(const align *a, const lb_f64 *roi, roi_box *b) {
  double shift = a->half_pixel ? 0.5 : 0, scale = a->scale;
  b->x = roi[0] * scale - shift, b->y = roi[1] * scale - shift;
  double w = roi[2] * scale - shift - b->x, h = roi[3] * scale - shift - b->y;
  if (!a->half_pixel) w = w > 1 ? w : 1, h = h > 1 ? h : 1;
  b->bin_h = h / (double)a->r.out_h, b->bin_w = w / (double)a->r.out_w;
  double gh = a->ratio > 0 ? (double)a->ratio : ceil(b->bin_h);
  double gw = a->ratio > 0 ? (double)a->ratio : ceil(b->bin_w);
  if (!(gh <= 0x1p14 && gw <= 0x1p14))  // also for NaN
    return lb_error(LB_INVALID,
                    "a region from (%g, %g) to (%g, %g) needs %g x %g samples "
                    "per bin",
                    roi[0], roi[1], roi[2], roi[3], gw, gh);
  b->grid_h = gh > 0 ? (int64_t)gh : 0, b->grid_w = gw > 0 ? (int64_t)gw : 0;
  return LB_OK;
}

static lb_status align_region(const align *a, const lb_f64 *roi,
                              int64_t batch_index, lb_f64 *to) {
  const regions *r = &a->r;
  roi_box b = {0};
  LB_TRY(box_of(a, roi, &b));
  for (int64_t ch = 0; ch < r->channels; ch++) {
    const lb_f64 *plane =
        r->x + (batch_index * r->channels + ch) * r->height * r->width;
    for (int64_t ph = 0; ph < r->out_h; ph++)
      for (int64_t pw = 0; pw < r->out_w; pw++)
        *to++ = bin_value(a, &b, plane, ph, pw);
  }
  return LB_OK;
}

static lb_status regions_init(lb_reference_call *c, int cols, regions *r,
                              lb_tensor *rois, lb_tensor *y) {
  const lb_tensor *in = &c->in[0];
  lb_tensor x;
  if (!lb_dtype_is_float(in->dtype))
    return lb_reference_bad_dtype(c, in->dtype);
  if (in->rank != 4 || c->in[1].rank != 2 || c->in[1].dims[1] != cols ||
      c->out[0].rank != 4 || c->in[1].dims[0] != c->out[0].dims[0])
    return lb_error(LB_INVALID, "X must have rank 4 and rois be [n, %d]", cols);
  LB_TRY(lb_reference_dense(c, in, LB_F64, &x));
  LB_TRY(lb_reference_dense(c, &c->in[1], LB_F64, rois));
  LB_TRY(lb_work_out(c, 0, LB_F64, y));
  *r = (regions){in->dims[1],       in->dims[2], in->dims[3], c->out[0].dims[2],
                 c->out[0].dims[3], x.data,      y->data};
  if (lb_tensor_count(y) > 0 && lb_tensor_count(&x) == 0)
    return lb_error(LB_INVALID,
                    "the input has no elements, but there are regions");
  return LB_OK;
}

lb_status lb_reference_RoiAlign(lb_reference_call *c) {
  align a = {.ratio = lb_attr_int(c->node, "sampling_ratio", 0)};
  lb_tensor rois, y;
  const int64_t *batch_indices;
  int64_t n, step;
  LB_TRY(regions_init(c, 4, &a.r, &rois, &y));
  LB_TRY(lb_reference_ints(c, 2, &batch_indices, &n));
  a.max = !strcmp(lb_attr_str(c->node, "mode", "avg"), "max");
  a.half_pixel = !strcmp(
      lb_attr_str(c->node, "coordinate_transformation_mode", "half_pixel"),
      "half_pixel");
  a.scale = (double)lb_attr_float(c->node, "spatial_scale", 1);
  if (n != rois.dims[0])
    return lb_error(LB_INVALID, "%lld batch_indices for %lld regions",
                    (long long)n, (long long)rois.dims[0]);
  if (lb_tensor_count(&y) == 0) return LB_OK;
  step = a.r.channels * a.r.out_h * a.r.out_w;
  for (int64_t i = 0; i < n; i++) {
    if (batch_indices[i] < 0 || batch_indices[i] >= c->in[0].dims[0])
      return lb_error(LB_INVALID, "batch index %lld is not in [0, %lld)",
                      (long long)batch_indices[i], (long long)c->in[0].dims[0]);
    LB_TRY(align_region(&a, (const lb_f64 *)rois.data + 4 * i, batch_indices[i],
                        a.r.y + i * step));
  }
  return lb_work_done(c, 0, &y);
}

// -- MaxRoiPool --------------------------------------------------------------

// The range of a bin along one axis, clamped to [0, size).
static void bin_range(double start, double bin, int64_t p, int64_t size,
                      int64_t *lo, int64_t *hi) {
  double a = floor((double)p * bin) + start;
  double b = ceil((double)(p + 1) * bin) + start, last = (double)size;
  *lo = (int64_t)(a > 0 ? a < last ? a : last : 0);
  *hi = (int64_t)(b > 0 ? b < last ? b : last : 0);
}

static void pool_region(const regions *r, const double box_[4],
                        int64_t batch_index, lb_f64 *to) {
  double h = box_[3] - box_[1] + 1, w = box_[2] - box_[0] + 1;
  double bin_h = (h > 1 ? h : 1) / (double)r->out_h;
  double bin_w = (w > 1 ? w : 1) / (double)r->out_w;
  for (int64_t i = 0; i < r->channels * r->out_h * r->out_w; i++) {
    int64_t y0, y1, x0, x1,
        plane = batch_index * r->channels + i / r->out_w / r->out_h;
    const lb_f64 *x = r->x + plane * r->height * r->width;
    bin_range(box_[1], bin_h, i / r->out_w % r->out_h, r->height, &y0, &y1);
    bin_range(box_[0], bin_w, i % r->out_w, r->width, &x0, &x1);
    double best = y0 < y1 && x0 < x1 ? -INFINITY : 0;
    for (int64_t yy = y0; yy < y1; yy++)
      for (int64_t xx = x0; xx < x1; xx++)
        if (x[yy * r->width + xx] > best) best = x[yy * r->width + xx];
    to[i] = best;
  }
}

lb_status lb_reference_MaxRoiPool(lb_reference_call *c) {
  regions r = {0};
  lb_tensor rois, y;
  double scale = (double)lb_attr_float(c->node, "spatial_scale", 1);
  LB_TRY(regions_init(c, 5, &r, &rois, &y));
  if (lb_tensor_count(&y) == 0) return LB_OK;
  for (int64_t i = 0; i < rois.dims[0]; i++) {
    const lb_f64 *roi = (const lb_f64 *)rois.data + 5 * i;
    double batch_index = roi[0], corner[4];
    if (!(batch_index >= 0 && batch_index < (double)c->in[0].dims[0]))
      return lb_error(LB_INVALID, "batch index %g is not in [0, %lld)",
                      batch_index, (long long)c->in[0].dims[0]);
    for (int k = 0; k < 4; k++) {
      corner[k] = round(roi[1 + k] * scale);
      if (!isfinite(corner[k]))
        return lb_error(LB_INVALID, "region %lld is not finite", (long long)i);
    }
    pool_region(&r, corner, (int64_t)batch_index,
                r.y + i * r.channels * r.out_h * r.out_w);
  }
  return lb_work_done(c, 0, &y);
}
