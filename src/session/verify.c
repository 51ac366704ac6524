// session/verify.c -- see verify.h.
#include "session/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "session/microbatch.h"

// What results may differ by: ABSOLUTE + RELATIVE * |b|.
#define ABSOLUTE 1e-4
#define RELATIVE 1e-3

static bool is_near(float a, float b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b ||
         fabs((double)a - (double)b) <= ABSOLUTE + RELATIVE * fabs((double)b);
}

// The first element that differs, or -1. `b` is dense.
static int64_t find_difference(const lb_tensor *a, const lb_tensor *b,
                               float *x) {
  int64_t n = lb_tensor_count(b), at[LB_MAX_RANK] = {0};
  for (int64_t i = 0; i < n; i++) {
    int64_t offset = 0;
    for (int k = 0; k < a->rank; k++) offset += at[k] * a->strides[k];
    *x = ((const float *)a->data)[offset];
    if (!is_near(*x, ((const float *)b->data)[i])) return i;
    for (int k = a->rank; k-- > 0 && ++at[k] == a->dims[k];) at[k] = 0;
  }
  return -1;
}

static bool check_result(const lb_session *s, const lb_tensor *in, uint32_t i,
                         const lb_tensor *a, const lb_tensor *b) {
  char shapes[256];
  float x;
  int64_t at = b->dtype == LB_F32 ? find_difference(a, b, &x) : -1;
  if (at < 0) return true;
  lb_run_shapes(s->graph->main, in, shapes, sizeof shapes);
  lb_log_line(s->options.log, LB_LOG_WARN,
              "a fused run differs from the original: output '%s', element "
              "%" PRId64
              ": %g, not %g, for inputs %s. Nothing is fused in this "
              "session any more; please report it",
              s->graph->output_names ? s->graph->output_names[i]
                                     : s->graph->main->results[i]->name,
              at, (double)x, (double)((const float *)b->data)[at], shapes);
  return false;
}

lb_status lb_verify_run(lb_session *s, lb_context *c, const lb_tensor *in,
                        const lb_output *out, bool *same) {
  uint32_t n = s->graph->main->n_results;
  lb_output *original = calloc(n ? n : 1, sizeof *original);
  if (!original) return lb_oom();
  for (uint32_t i = 0; i < n; i++) original[i].wanted = out[i].wanted;
  lb_status st = lb_microbatch_run(s, c, in, original);
  *same = true;
  for (uint32_t i = 0; i < n; i++) {
    if (!lb_failed(st) && out[i].wanted && *same)
      *same = check_result(s, in, i, &out[i].tensor, &original[i].tensor);
    if (original[i].owned) lb_alloc_put(c->results, original[i].data);
  }
  free(original);
  return st;
}
