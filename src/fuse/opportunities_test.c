// fuse/opportunities_test.c -- recorded statistics give the same proposals and
// results, without a model.
#include "fuse/opportunities.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static lb_window_summary about(double mean, double error, double n) {
  return (lb_window_summary){
      .n = n, .mean = mean, .lower = mean - error, .upper = mean + error};
}

// A batch of MiniLM: 80 us per position.
static lb_dataflow_stats batch(double padding, double guard) {
  return (lb_dataflow_stats){.guard = about(guard, 0.01, 30),
                             .padding = about(padding, 0.05, 30),
                             .original = about(log(80000), 0.05, 30),
                             .accuracy = 0.8};
}

static const lb_fusion_candidate encoder = {.partitions = 40, .row_bytes = 24};

static void padding_is_worth_leaving_out(void **state) {
  (void)state;
  lb_dataflow_stats s = batch(0.5, 1);
  double gain = lb_estimate_performance_gain(&encoder, &s);
  assert_true(fabs(gain - 80000 * 0.45 * 0.99 * 0.8) < 1);
  assert_true(lb_calculate_communication_cost(&encoder, &s) == 1 + 0.5 * 12);
  assert_true(lb_is_fusion_viable(&encoder, &s));
}

static void little_padding_is_not(void **state) {
  (void)state;
  lb_dataflow_stats full = batch(0, 1), some = batch(0.06, 1);
  assert_false(lb_is_fusion_viable(&encoder, &full));
  assert_false(lb_is_fusion_viable(&encoder, &some));
}

static void guards_that_fail_and_bad_estimates_weigh(void **state) {
  (void)state;
  lb_dataflow_stats fails = batch(0.5, 0.05), wrong = batch(0.5, 1);
  assert_false(lb_is_fusion_viable(&encoder, &fails));
  wrong.accuracy = 0.05;
  assert_false(lb_is_fusion_viable(&encoder, &wrong));
}

static void a_few_runs_prove_nothing(void **state) {
  (void)state;
  lb_dataflow_stats s = batch(0.5, 1);
  s.padding.n = 4;
  assert_false(lb_is_fusion_viable(&encoder, &s));
}

static void cheap_positions_do_not_pay_for_packing(void **state) {
  (void)state;
  lb_dataflow_stats s = batch(0.5, 1);
  s.original.mean = log(10);
  assert_false(lb_is_fusion_viable(&encoder, &s));
}

static void the_most_worthwhile_comes_first(void **state) {
  (void)state;
  lb_dataflow_stats stats[] = {batch(0.2, 1), batch(0, 1), batch(0.6, 1),
                               batch(0.4, 1)};
  lb_fusion_candidate all[] = {encoder, encoder, encoder, encoder};
  uint32_t found[4];
  assert_int_equal(lb_find_fusion_opportunities(stats, all, 4, found), 3);
  assert_int_equal(found[0], 2);
  assert_int_equal(found[1], 3);
  assert_int_equal(found[2], 0);
  all[2].partitions = 0;
  assert_int_equal(lb_find_fusion_opportunities(stats, all, 4, found), 2);
}

static lb_fusion_result result_at(double ratio, double error, double n) {
  lb_dataflow_stats s = {.original = about(5, error, n),
                         .fused = about(5 + log(ratio), error, n)};
  return lb_fusion_compare(&s);
}

static void results_wait_for_certainty(void **state) {
  (void)state;
  assert_int_equal(result_at(0.6, 0.05, 4), LB_FUSION_OPEN);
  assert_int_equal(result_at(0.6, 0.05, 10), LB_FUSION_PAYS);
  assert_int_equal(result_at(1, 0.2, 10), LB_FUSION_OPEN);
  assert_int_equal(result_at(0.95, 0.2, 30), LB_FUSION_PAYS);
  assert_int_equal(result_at(1.05, 0.2, 30), LB_FUSION_LOSES);
  assert_int_equal(result_at(1.2, 0.02, 10), LB_FUSION_LOSES);
  assert_int_equal(result_at(1.5, 1, 7), LB_FUSION_LOSES);
}

static void accuracy_follows_the_errors(void **state) {
  (void)state;
  assert_true(fabs(lb_fusion_accuracy(0.8, 0.4, 0.4) - 0.86) < 1e-9);
  assert_true(fabs(lb_fusion_accuracy(0.8, 0.4, 0.2) - 0.71) < 1e-9);
  assert_true(fabs(lb_fusion_accuracy(0.8, 0.4, -0.4) - 0.56) < 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(padding_is_worth_leaving_out),
      cmocka_unit_test(little_padding_is_not),
      cmocka_unit_test(guards_that_fail_and_bad_estimates_weigh),
      cmocka_unit_test(a_few_runs_prove_nothing),
      cmocka_unit_test(cheap_positions_do_not_pay_for_packing),
      cmocka_unit_test(the_most_worthwhile_comes_first),
      cmocka_unit_test(results_wait_for_certainty),
      cmocka_unit_test(accuracy_follows_the_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
