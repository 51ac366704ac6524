// device/reference/softmax.c -- Softmax, LogSoftmax, Hardmax.
#include <tgmath.h>

#include "device/reference/elem.h"
#include "device/reference/lines.h"

// exp(x - top) does not overflow, because top is the maximum.
#define LINE(id, S, TT, load, store, Name, ...)                          \
  static void Name##_##id(const void *user, int64_t n, const void *from, \
                          void *to) {                                    \
    typedef TT T;                                                        \
    (void)user;                                                          \
    const S *restrict x = from;                                          \
    S *restrict y = to;                                                  \
    int64_t at = 0;                                                      \
    for (int64_t i = 1; i < n; i++)                                      \
      if (x[i] > x[at]) at = i;                                          \
    const T top = x[at];                                                 \
    __VA_ARGS__                                                          \
  }

LB_WIDE_FLOATS(LINE, softmax, LB_LINE_SUM(sum, n, y[i] = exp(x[i] - top));
               for (int64_t i = 0; i < n; i++) y[i] /= sum;)

LB_WIDE_FLOATS(LINE, log_softmax, LB_LINE_SUM(sum, n, exp(x[i] - top));
               const T less = log(sum);
               for (int64_t i = 0; i < n; i++) y[i] = x[i] - top - less;)

// The first of equal maxima wins.
LB_WIDE_FLOATS(LINE, hardmax, (void)top;
               for (int64_t i = 0; i < n; i++) y[i] = i == at;)

static lb_status run(lb_reference_call *c, lb_line_fns fns) {
  bool flatten = lb_attr_int(c->node, "flatten", 0) != 0;
  int rank = c->in[0].rank, axis;
  int64_t given = lb_attr_int(c->node, "axis", flatten ? 1 : -1);
  LB_TRY(lb_reference_axis(c, given, rank, &axis));
  uint32_t axes = 1u << axis;
  if (flatten) axes = (1u << rank) - axes;  // this axis and all after it
  return lb_lines_run(c, &c->in[0], &c->out[0], axes, fns, NULL);
}

lb_status lb_reference_Softmax(lb_reference_call *c) {
  return run(c, (lb_line_fns){softmax_F32, softmax_F64});
}

lb_status lb_reference_LogSoftmax(lb_reference_call *c) {
  return run(c, (lb_line_fns){log_softmax_F32, log_softmax_F64});
}

lb_status lb_reference_Hardmax(lb_reference_call *c) {
  return run(c, (lb_line_fns){hardmax_F32, hardmax_F64});
}

lb_status lb_log_softmax(lb_reference_call *c, const lb_tensor *in,
                         const lb_tensor *out, uint32_t axes) {
  lb_line_fns fns = {log_softmax_F32, log_softmax_F64};
  return lb_lines_run(c, in, out, axes, fns, NULL);
}
