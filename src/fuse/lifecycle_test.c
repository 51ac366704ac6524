// fuse/lifecycle_test.c -- simulated streams of runs: a fusion is deployed
// where it pays, and undone where it does not, within a bounded number of runs.
#include "fuse/lifecycle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define HALF_LIFE 64
#define STATS_EVERY 5  // runs between two looks of the analyzer

typedef struct world {  // a model, and the data that it meets
  lb_fusion_life life;
  lb_window guard, padding, original, fused;
  uint64_t runs, eligible, seed;
  double share;   // of padding, as it is now
  double factor;  // on the time of the fused graph
  uint32_t deployed, withdrawn;
} world;

static const lb_fusion_candidate encoder = {.partitions = 40, .row_bytes = 24};

static double noise(world *w) {
  w->seed = w->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return 1 + 0.1 * ((double)(w->seed >> 40) / (double)(1 << 24) - 0.5);
}

static world begin(double share, double factor) {
  world w = {.share = share, .factor = factor, .seed = 1};
  lb_fusion_life_init(&w.life);
  return w;
}

static void look(world *w) {
  lb_dataflow_stats s = {.guard = lb_window_summarise(&w->guard),
                         .padding = lb_window_summarise(&w->padding),
                         .original = lb_window_summarise(&w->original),
                         .fused = lb_window_summarise(&w->fused)};
  switch (lb_fusion_advance(&w->life, &encoder, &s, w->runs)) {
    case LB_FUSION_DEPLOY: w->deployed++;  // fall through
    case LB_FUSION_REMEASURE: w->original = w->fused = (lb_window){0}; break;
    case LB_FUSION_WITHDRAW: w->withdrawn++; break;
    default: break;
  }
}

static void run(world *w) {
  bool fused =
      w->share > 0 && lb_fusion_chooses(w->life.phase, w->eligible++, true);
  double ns = 80000 * noise(w);
  if (fused) ns *= (1 - w->share) * w->factor;
  lb_window_add(&w->guard, 1, HALF_LIFE);
  lb_window_add(&w->padding, w->share, HALF_LIFE);
  lb_window_add(fused ? &w->fused : &w->original, log(ns), HALF_LIFE);
  if (++w->runs % STATS_EVERY == 0) look(w);
}

static void run_until(world *w, lb_fusion_phase phase, int at_most) {
  while (w->life.phase != phase && at_most-- > 0) run(w);
  assert_int_equal(w->life.phase, phase);
}

static void padding_is_left_out_within_fifty_runs(void **state) {
  (void)state;
  world w = begin(0.5, 1.1);
  run_until(&w, LB_FUSION_FUSED, 50);
  assert_true(fabs(w.life.measured - 0.45) < 0.03);
  assert_int_equal(w.life.paid, 1);
  for (int i = 0; i < 5000; i++) run(&w);
  assert_int_equal(w.withdrawn, 0);
}

static void full_batches_are_never_fused(void **state) {
  (void)state;
  world w = begin(0, 1);
  for (int i = 0; i < 5000; i++) run(&w);
  assert_int_equal(w.deployed, 0);
}

// As if a kernel had become slow: 1.5 times as slow as the original.
static void a_fusion_that_becomes_slow_is_undone_within_a_hundred_runs(
    void **state) {
  (void)state;
  world w = begin(0.5, 1);
  run_until(&w, LB_FUSION_FUSED, 50);
  for (int i = 0; i < 500; i++) run(&w);
  w.factor = 3;
  run_until(&w, LB_FUSION_REJECTED, 100);
  assert_int_equal(w.life.undone, 1);
}

static void a_fusion_that_never_pays_is_tried_ever_more_rarely(void **state) {
  (void)state;
  world w = begin(0.5, 2.4);
  for (int i = 0; i < 20000; i++) run(&w);
  assert_in_range(w.deployed, 1, 6);
  assert_int_equal(w.deployed,
                   w.life.undone + (w.life.phase == LB_FUSION_TRYING));
  assert_true(w.life.accuracy < 0.7);
}

static void other_data_end_a_fusion_and_its_return_restores_it(void **state) {
  (void)state;
  world w = begin(0.5, 1);
  run_until(&w, LB_FUSION_FUSED, 50);
  w.share = 0.01;
  run_until(&w, LB_FUSION_WATCHING, 500);
  w.share = 0.5;
  run_until(&w, LB_FUSION_FUSED, 500);
  assert_int_equal(w.life.undone, 0);
}

static void alternating_data_do_not_thrash(void **state) {
  (void)state;
  world w = begin(0.5, 1);
  for (int i = 0; i < 20000; i++) {
    w.share = i / 20 % 2 ? 0.5 : 0;
    run(&w);
  }
  assert_in_range(w.deployed, 0, 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(padding_is_left_out_within_fifty_runs),
      cmocka_unit_test(full_batches_are_never_fused),
      cmocka_unit_test(
          a_fusion_that_becomes_slow_is_undone_within_a_hundred_runs),
      cmocka_unit_test(a_fusion_that_never_pays_is_tried_ever_more_rarely),
      cmocka_unit_test(other_data_end_a_fusion_and_its_return_restores_it),
      cmocka_unit_test(alternating_data_do_not_thrash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
