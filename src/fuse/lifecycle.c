// fuse/lifecycle.c -- see lifecycle.h.
#include "fuse/lifecycle.h"

#include <math.h>

#define FIRST_ACCURACY 0.7  // before any fusion was tried
#define COOLDOWN 512        // runs
#define MAX_COOLDOWN (1 << 20)
#define COMPARE_EVERY 12    // FUSED: one run of the original in so many
#define UNCOMPILED_EVERY 8  // TRYING: fused runs before all kernels exist
#define KNOWN_TIMES 6       // from which on the original's time is known

void lb_fusion_life_init(lb_fusion_life *l) {
  *l = (lb_fusion_life){.accuracy = FIRST_ACCURACY, .cooldown = COOLDOWN};
}

static lb_fusion_action deploy(lb_fusion_life *l, const lb_fusion_candidate *c,
                               const lb_dataflow_stats *s) {
  l->phase = LB_FUSION_TRYING;
  l->tried++;
  // Without the accuracy, which is to be learned.
  l->expected = (lb_estimate_performance_gain(c, s) / l->accuracy -
                 lb_calculate_communication_cost(c, s)) /
                exp(s->original.mean);
  return LB_FUSION_DEPLOY;
}

static void measure(lb_fusion_life *l, const lb_dataflow_stats *s) {
  l->measured = 1 - exp(s->fused.mean - s->original.mean);
  l->accuracy = lb_fusion_accuracy(l->accuracy, l->expected, l->measured);
}

static lb_fusion_action reject(lb_fusion_life *l, uint64_t runs) {
  l->phase = LB_FUSION_REJECTED;
  l->undone++;
  l->resume = runs + l->cooldown;
  if (l->cooldown < MAX_COOLDOWN) l->cooldown *= 2;
  return LB_FUSION_WITHDRAW;
}

static bool has_lost_its_reason(const lb_fusion_candidate *c,
                                const lb_dataflow_stats *s) {
  return s->original.n >= KNOWN_TIMES && !lb_is_fusion_viable(c, s);
}

static lb_fusion_action compare(lb_fusion_life *l, const lb_fusion_candidate *c,
                                const lb_dataflow_stats *s, uint64_t runs) {
  lb_fusion_result v = lb_fusion_compare(s);
  if (v == LB_FUSION_LOSES) {
    measure(l, s);
    return reject(l, runs);
  }
  if (has_lost_its_reason(c, s)) {
    l->phase = LB_FUSION_WATCHING;
    return LB_FUSION_WITHDRAW;
  }
  if (l->phase == LB_FUSION_FUSED) {
    if (!s->fused.drifted && !s->original.drifted) return LB_FUSION_STAY;
    l->phase = LB_FUSION_TRYING;
    l->tried++;
    return LB_FUSION_REMEASURE;
  }
  if (v == LB_FUSION_OPEN) return LB_FUSION_STAY;
  measure(l, s);
  l->phase = LB_FUSION_FUSED;
  l->paid++;
  return LB_FUSION_KEEP;
}

lb_fusion_action lb_fusion_advance(lb_fusion_life *l,
                                   const lb_fusion_candidate *c,
                                   const lb_dataflow_stats *s, uint64_t runs) {
  lb_dataflow_stats known = *s;
  uint32_t found;
  known.accuracy = l->accuracy;
  switch (l->phase) {
    case LB_FUSION_TRYING:
    case LB_FUSION_FUSED: return compare(l, c, &known, runs);
    case LB_FUSION_REJECTED:
      if (runs >= l->resume) l->phase = LB_FUSION_WATCHING;
      return LB_FUSION_STAY;
    default:
      return lb_find_fusion_opportunities(&known, c, 1, &found)
                 ? deploy(l, c, &known)
                 : LB_FUSION_STAY;
  }
}

bool lb_fusion_chooses(lb_fusion_phase phase, uint64_t i, bool compiled) {
  switch (phase) {
    case LB_FUSION_TRYING:
      return compiled ? i % 2 == 0 : i % UNCOMPILED_EVERY == 0;
    case LB_FUSION_FUSED: return i % COMPARE_EVERY != 0;
    default: return false;
  }
}

const char *lb_fusion_phase_name(lb_fusion_phase phase) {
  static const char *const names[] = {"watching", "trying", "fused",
                                      "rejected"};
  return names[phase];
}
