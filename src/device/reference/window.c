// device/reference/window.c -- reads strides, dilations and pads.
#include "device/reference/window.h"

#include <string.h>

static lb_status read_ints(const lb_reference_call *c, const char *name, int n,
                           int64_t min, int64_t *out) {
  uint32_t count;
  const int64_t *v = lb_attr_ints(c->node, name, &count);
  if (!v || count == 0) return LB_OK;
  if (count != (uint32_t)n)
    return lb_error(LB_INVALID, "%s has %u elements; it must have %d", name,
                    count, n);
  for (int i = 0; i < n; i++) {
    if (v[i] < min || v[i] > INT32_MAX)
      return lb_error(LB_INVALID, "%s[%d] is %lld, outside [%lld, %d]", name, i,
                      (long long)v[i], (long long)min, INT32_MAX);
    out[i] = v[i];
  }
  return LB_OK;
}

lb_status lb_window_attrs(const lb_reference_call *c, lb_window_geometry *w) {
  for (int d = 0; d < w->n; d++) {
    w->stride[d] = w->dilation[d] = 1;
    w->pad[d] = w->pad_end[d] = 0;
  }
  int64_t pads[2 * LB_MAX_RANK] = {0};
  LB_TRY(read_ints(c, "strides", w->n, 1, w->stride));
  LB_TRY(read_ints(c, "dilations", w->n, 1, w->dilation));
  LB_TRY(read_ints(c, "pads", 2 * w->n, -(int64_t)INT32_MAX, pads));
  memcpy(w->pad, pads, (size_t)w->n * sizeof *pads);
  memcpy(w->pad_end, pads + w->n, (size_t)w->n * sizeof *pads);
  return LB_OK;
}

lb_status lb_window_check(const lb_reference_call *c,
                          const lb_window_geometry *w) {
  (void)c;
  int64_t taps = 1;
  for (int d = 0; d < w->n; d++) {
    int64_t reach, span;
    if (w->kernel[d] < 1 ||
        __builtin_mul_overflow(w->out[d], w->stride[d], &reach) ||
        __builtin_mul_overflow(w->kernel[d], w->dilation[d], &span) ||
        reach > INT64_MAX / 4 || span > INT64_MAX / 4 ||
        w->in[d] > INT64_MAX / 4 ||
        __builtin_mul_overflow(taps, w->kernel[d], &taps))
      return lb_error(LB_INVALID,
                      "axis %d: a kernel of %lld with stride %lld and dilation "
                      "%lld cannot give %lld windows",
                      d, (long long)w->kernel[d], (long long)w->stride[d],
                      (long long)w->dilation[d], (long long)w->out[d]);
  }
  return LB_OK;
}

lb_status lb_window_init(const lb_reference_call *c, lb_window_geometry *w) {
  LB_TRY(lb_window_attrs(c, w));
  LB_TRY(lb_window_check(c, w));
  const char *mode = lb_attr_str(c->node, "auto_pad", "NOTSET");
  if (!strcmp(mode, "NOTSET") || !*mode) return LB_OK;
  bool upper = !strcmp(mode, "SAME_UPPER"), lower = !strcmp(mode, "SAME_LOWER");
  for (int d = 0; d < w->n; d++) {
    int64_t total = (w->out[d] - 1) * w->stride[d] +
                    (w->kernel[d] - 1) * w->dilation[d] + 1 - w->in[d];
    if (total < 0 || !(upper || lower)) total = 0;
    w->pad[d] = lower ? total - total / 2 : total / 2;
    w->pad_end[d] = total - w->pad[d];
  }
  return LB_OK;
}

int64_t lb_window_taps(const lb_window_geometry *w) {
  return lb_reference_product(w->n, w->kernel);
}
