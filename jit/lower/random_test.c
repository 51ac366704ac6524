// lower/random_test.c -- Lowers random specs for every number of lanes,
// interprets them and compares with the reference bit for bit.
#include "lower/problem_test.h"
#include "lower/testtargets.h"

static void interpret(const problem_case *c, const lb_kernel *k,
                      uint32_t lanes) {
  char *got[LB_SPEC_MAX_OUT];
  lb_karg args[LB_SPEC_MAX_ARGS];
  uint32_t n = case_begin(c, got, args);
  lb_kinterp *m;
  assert_ok(lb_kinterp_new(k, &m));
  lb_status st =
      lb_kinterp_run(m, &(lb_klaunch){args, n, {1, 1, 1}, UINT64_C(1) << 32});
  if (lb_failed(st)) report(c, lanes, lb_status_message(st));
  lb_kinterp_free(m);
  compare(c, lanes, got);
  for (int i = 0; i < c->p.spec.n_out; i++) free(got[i]);
}

static void run_case(lb_form form, uint64_t number) {
  problem_case c;
  if (!case_init(&c, form, number)) return;
  for (int i = 0; i < TEST_TARGETS; i++) {
    const lb_target *t = &test_targets[i];
    lb_kernel k;
    lb_status st = lb_lower(&c.p.spec, &c.p.facts, t, &k);
    if (lb_failed(st)) report(&c, lb_target_lanes(t), lb_status_message(st));
    interpret(&c, &k, lb_target_lanes(t));
    lb_kernel_fini(&k);
  }
  case_fini(&c);
}

static void run_cases(lb_form form, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) run_case(form, i);
}

static void eltwise_equals_the_reference(void **state) {
  (void)state;
  run_cases(LB_FORM_ELTWISE, 150);
}

static void row_reductions_equal_the_reference(void **state) {
  (void)state;
  run_cases(LB_FORM_ROW_REDUCE, 300);
}

static void matmuls_equal_the_reference(void **state) {
  (void)state;
  run_cases(LB_FORM_MATMUL, 120);
}

static void attention_equals_the_reference(void **state) {
  (void)state;
  run_cases(LB_FORM_ATTENTION, 60);
}

static void convolutions_equal_the_reference(void **state) {
  (void)state;
  run_cases(LB_FORM_CONV, 120);
}

static void windows_equal_the_reference(void **state) {
  (void)state;
  run_cases(LB_FORM_WINDOW, 300);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eltwise_equals_the_reference),
      cmocka_unit_test(row_reductions_equal_the_reference),
      cmocka_unit_test(matmuls_equal_the_reference),
      cmocka_unit_test(attention_equals_the_reference),
      cmocka_unit_test(convolutions_equal_the_reference),
      cmocka_unit_test(windows_equal_the_reference),
  };
  test_name = "test_lower_random";
  if (argc != 3) return cmocka_run_group_tests(tests, NULL, NULL);
  run_case(form_named(argv[1]), strtoull(argv[2], NULL, 10));
  return 0;
}
