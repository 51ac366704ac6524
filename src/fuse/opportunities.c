// fuse/opportunities.c -- see opportunities.h.
#include "fuse/opportunities.h"

#include <math.h>
#include <stdlib.h>

#define MIN_RUNS 8        // observed before anything is proposed
#define MARGIN 0.03       // of the original's time, beyond the cost
#define BYTES_PER_NS 4.0  // copying scattered rows
#define GUARD_NS 1.0      // reading an element of the mask
#define MIN_TIMES 6       // of each graph before a result
#define SLACK \
  0.03  // of the logarithm: a fusion that is slower by less
        // stays
#define CLEARLY_SLOWER 0.35  // of the logarithm: 1.4 times as slow
#define ENOUGH_TIMES 24      // without a difference there is none
#define LEARNING 0.3         // weight of a new error

static double original_ns(const lb_dataflow_stats *s) {
  return exp(s->original.mean);
}

static double bounded(double x) { return x > 0 ? x < 1 ? x : 1 : 0; }

bool lb_are_data_dependent(const lb_fusion_candidate *c) {
  return c->partitions > 0;
}

double lb_calculate_communication_cost(const lb_fusion_candidate *c,
                                       const lb_dataflow_stats *s) {
  double tokens = 1 - bounded(s->padding.mean);
  return GUARD_NS + tokens * 2 * c->row_bytes / BYTES_PER_NS;
}

double lb_estimate_performance_gain(const lb_fusion_candidate *c,
                                    const lb_dataflow_stats *s) {
  (void)c;
  return original_ns(s) * bounded(s->padding.lower) * bounded(s->guard.lower) *
         bounded(s->accuracy);
}

bool lb_is_fusion_viable(const lb_fusion_candidate *c,
                         const lb_dataflow_stats *s) {
  if (!lb_are_data_dependent(c) || s->guard.n < MIN_RUNS ||
      s->padding.n < MIN_RUNS || s->original.n < 2)
    return false;
  double cost = lb_calculate_communication_cost(c, s);
  return lb_estimate_performance_gain(c, s) > cost + MARGIN * original_ns(s);
}

static double net_gain(const lb_fusion_candidate *c,
                       const lb_dataflow_stats *s) {
  return lb_estimate_performance_gain(c, s) -
         lb_calculate_communication_cost(c, s);
}

uint32_t lb_find_fusion_opportunities(const lb_dataflow_stats *stats,
                                      const lb_fusion_candidate *candidates,
                                      uint32_t n, uint32_t *out) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!lb_is_fusion_viable(&candidates[i], &stats[i])) continue;
    uint32_t at = found++;
    double gain = net_gain(&candidates[i], &stats[i]);
    for (; at > 0 &&
           net_gain(&candidates[out[at - 1]], &stats[out[at - 1]]) < gain;
         at--)
      out[at] = out[at - 1];
    out[at] = i;
  }
  return found;
}

lb_fusion_result lb_fusion_compare(const lb_dataflow_stats *s) {
  const lb_window_summary *a = &s->original, *b = &s->fused;
  if (a->n < MIN_TIMES || b->n < MIN_TIMES) return LB_FUSION_OPEN;
  double slower = b->mean - a->mean;
  if (b->lower > a->upper + SLACK || slower > CLEARLY_SLOWER)
    return LB_FUSION_LOSES;
  if (b->upper < a->lower + SLACK) return LB_FUSION_PAYS;
  if (a->n < ENOUGH_TIMES || b->n < ENOUGH_TIMES) return LB_FUSION_OPEN;
  return slower < 0 ? LB_FUSION_PAYS : LB_FUSION_LOSES;
}

double lb_fusion_accuracy(double accuracy, double expected, double measured) {
  double most = fmax(fabs(expected), fabs(measured));
  double error = most > 0 ? fabs(expected - measured) / most : 0;
  return accuracy + LEARNING * (1 - bounded(error) - accuracy);
}
