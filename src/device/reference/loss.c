// device/reference/loss.c -- NegativeLogLikelihoodLoss,
// SoftmaxCrossEntropyLoss.
//
// Scores have dims [n, classes, d...], labels [n, d...].
#include <string.h>

#include "device/reference/elem.h"
#include "device/reference/iter.h"
#include "device/reference/lines.h"

typedef struct loss_job {
  const lb_tensor *log_prob;  // dense; LB_F32 or LB_F64
  const int64_t *labels;
  const void *weights;  // aligned, one per class; of log_prob's dtype
  void *losses;         // one per label
  int64_t n, classes, spatial;
  bool ignoring;
  int64_t ignored;
} loss_job;

// Computes the losses of all labels, their sum and the sum of their weights.
// Ignored labels have weight 0.
#define LOSSES(id, S, T, ...)                                                 \
  static void losses_##id(const loss_job *job, double *sum, double *weight) { \
    const S *p = job->log_prob->data;                                         \
    const T *w = job->weights;                                                \
    T *loss = job->losses;                                                    \
    *sum = *weight = 0;                                                       \
    for (int64_t i = 0; i < job->n * job->spatial; i++) {                     \
      int64_t label = job->labels[i];                                         \
      loss[i] = 0;                                                            \
      if (job->ignoring && label == job->ignored) continue;                   \
      int64_t at = (i / job->spatial * job->classes + label) * job->spatial + \
                   i % job->spatial;                                          \
      loss[i] = -p[at] * w[label];                                            \
      *sum += loss[i];                                                        \
      *weight += w[label];                                                    \
    }                                                                         \
  }
LB_WIDE_FLOATS(LOSSES, )

static lb_status check_labels(const loss_job *job) {
  for (int64_t i = 0; i < job->n * job->spatial; i++) {
    int64_t label = job->labels[i];
    if (job->ignoring && label == job->ignored) continue;
    if (label < 0 || label >= job->classes)
      return lb_error(LB_INVALID,
                      "label %lld at index %lld is not in [0, %lld)",
                      (long long)label, (long long)i, (long long)job->classes);
  }
  return LB_OK;
}

// Returns the weights in scratch, aligned; ones if the input is absent.
static lb_status weights_of(lb_reference_call *c, lb_dtype dtype,
                            int64_t classes, const void **out) {
  lb_tensor w;
  LB_TRY(lb_reference_temp(c, dtype, 1, &classes, &w));
  double one = 1;
  lb_tensor from = {.dtype = LB_F64, .data = &one};
  if (c->node->n_in > 2 && c->in[2].dtype != LB_NONE) from = c->in[2];
  if (from.rank > 0 && lb_tensor_count(&from) != classes)
    return lb_error(LB_INVALID, "%lld weights for %lld classes",
                    (long long)lb_tensor_count(&from), (long long)classes);
  lb_convert(c->pool, &from, &w);
  *out = w.data;
  return LB_OK;
}

static lb_status describe(lb_reference_call *c, const lb_tensor *log_prob,
                          loss_job *job) {
  int64_t n_labels;
  if (log_prob->rank < 2)
    return lb_error(LB_INVALID, "scores have rank %d, not 2 or more",
                    log_prob->rank);
  *job = (loss_job){
      .log_prob = log_prob,
      .n = log_prob->dims[0],
      .classes = log_prob->dims[1],
      .ignoring = lb_attr_has(c->node, "ignore_index"),
      .ignored = lb_attr_int(c->node, "ignore_index", 0),
  };
  LB_TRY(lb_reference_ints(c, 1, &job->labels, &n_labels));
  job->spatial = lb_axes_count(log_prob, ~3u);
  if (lb_axes_count(log_prob, ~2u) != n_labels)
    return lb_error(LB_INVALID, "%lld labels for scores of %lld items",
                    (long long)n_labels,
                    (long long)lb_axes_count(log_prob, ~2u));
  lb_tensor losses;
  LB_TRY(lb_reference_temp(c, log_prob->dtype, 1, &n_labels, &losses));
  job->losses = losses.data;
  LB_TRY(weights_of(c, log_prob->dtype, job->classes, &job->weights));
  return check_labels(job);
}

// Computes output 0 from log-probabilities, which are dense and in the work
// dtype.
static lb_status likelihood(lb_reference_call *c, const lb_tensor *log_prob) {
  loss_job job;
  LB_TRY(describe(c, log_prob, &job));
  double sum, weight;
  bool wide = log_prob->dtype == LB_F64;
  (wide ? losses_F64 : losses_F32)(&job, &sum, &weight);
  lb_tensor result = c->out[0];
  result.dtype = log_prob->dtype;
  result.data = job.losses;
  const char *how = lb_attr_str(c->node, "reduction", "mean");
  if (strcmp(how, "none") != 0) {
    if (strcmp(how, "mean") == 0) sum /= weight;
    result = (lb_tensor){.dtype = LB_F64, .data = &sum};
  }
  lb_convert(c->pool, &result, &c->out[0]);
  return LB_OK;
}

lb_status lb_reference_NegativeLogLikelihoodLoss(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  if (!lb_dtype_is_float(x->dtype)) return lb_reference_bad_dtype(c, x->dtype);
  lb_tensor log_prob;
  LB_TRY(lb_reference_dense(c, x, lb_line_dtype(x->dtype), &log_prob));
  return likelihood(c, &log_prob);
}

lb_status lb_reference_SoftmaxCrossEntropyLoss(lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  if (!lb_dtype_is_float(x->dtype)) return lb_reference_bad_dtype(c, x->dtype);
  lb_tensor log_prob;
  LB_TRY(lb_reference_temp(c, lb_line_dtype(x->dtype), x->rank, x->dims,
                           &log_prob));
  LB_TRY(lb_log_softmax(c, x, &log_prob, 1u << 1));
  if (c->node->n_out > 1 && c->out[1].dtype != LB_NONE)
    lb_convert(c->pool, &log_prob, &c->out[1]);
  if (c->out[0].dtype == LB_NONE) return LB_OK;
  return likelihood(c, &log_prob);
}
