// lower/machine_test.c -- Lowers, compiles and runs random specs at each level
// that this machine supports.
//
// Exact operations are compared with the reference bit for bit. With
// mathematical functions, all levels are compared with the first one, because
// results do not depend on the level. Attention has exponentials, so its first
// level is compared with the reference within a tolerance, and the others with
// the first exactly.
#include "lower/problem_test.h"
#include "lower/testtargets.h"
#include "toolchain/machine.h"

typedef struct levels {
  machine list[TEST_TARGETS];
  int n;
} levels;

static void execute(machine_fn *fn, const problem_case *c, char **got) {
  lb_karg args[LB_SPEC_MAX_ARGS];
  uint64_t cells[LB_SPEC_MAX_ARGS];
  uint32_t n = case_begin(c, got, args);
  for (uint32_t i = 0; i < n; i++)
    cells[i] = args[i].data ? (uint64_t)(uintptr_t)args[i].data : args[i].bits;
  fn(cells);
}

static void free_outputs(problem_case *c, char **got) {
  for (int i = 0; i < c->p.spec.n_out; i++) free(got[i]);
}

// Makes these results the expected ones of the next levels.
static void set_expected(problem_case *c, char **got) {
  for (int i = 0; i < c->p.spec.n_out; i++)
    memcpy(c->want[i], got[i], c->p.out[i].bytes);
}

// The largest finite magnitude in v: weighted averages of v do not exceed it.
static double max_abs_value(const problem *p) {
  lb_dtype t = p->spec.in[2].dtype;
  double max_abs = 0;
  for (size_t i = 0; i < p->in[2].bytes; i += lb_dtype_size(t)) {
    double x = fabs(num_read(t, p->in[2].data + i).f);
    if (isfinite(x) && x > max_abs) max_abs = x;
  }
  return max_abs;
}

// Both have exponentials of the same scores, each within some ulps.
static void compare_near(const problem_case *c, uint32_t lanes, char *got) {
  lb_dtype t = c->p.spec.out[0].dtype;
  double max_abs = max_abs_value(&c->p);
  for (size_t i = 0; i < c->p.out[0].bytes; i += lb_dtype_size(t)) {
    num a = num_read(t, got + i), b = num_read(t, c->want[0] + i);
    if (num_same(a, b) || fabs(a.f - b.f) <= 2e-6 * max_abs) continue;
    report(c, lanes, "far from the reference");
  }
}

static void run_case(levels *l, lb_form form, uint64_t number) {
  problem_case c;
  bool attention = form == LB_FORM_ATTENTION;
  only_exact = number % 3 != 0;
  if (!case_init(&c, form, number)) return;
  for (int i = 0; i < l->n; i++) {
    char *got[LB_SPEC_MAX_OUT];
    lb_kernel k;
    const lb_target *t = &l->list[i].target;
    assert_ok(lb_lower(&c.p.spec, &c.p.facts, t, &k));
    execute(machine_load(&l->list[i], &k), &c, got);
    if (attention && only_exact && i == 0)
      compare_near(&c, lb_target_lanes(t), got[0]);
    if ((attention || !only_exact) && i == 0) set_expected(&c, got);
    compare(&c, lb_target_lanes(t), got);
    free_outputs(&c, got);
    lb_kernel_fini(&k);
  }
  case_fini(&c);
}

static int open_levels(void **state) {
  static levels l;
  lb_level max_abs = lb_target_host().level;
  for (int i = 0; i < TEST_TARGETS; i++)
    if (test_targets[i].level >= LB_LEVEL_V3 &&
        test_targets[i].level <= max_abs)
      l.list[l.n++] = machine_open(test_targets[i]);
  *state = &l;
  return 0;
}

static int close_levels(void **state) {
  levels *l = *state;
  for (int i = 0; i < l->n; i++) machine_close(&l->list[i]);
  return 0;
}

static void run_cases(void **state, lb_form form, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) run_case(*state, form, i);
}

static void eltwise_is_correct_at_every_level(void **state) {
  run_cases(state, LB_FORM_ELTWISE, 36);
}

static void row_reductions_are_correct_at_every_level(void **state) {
  run_cases(state, LB_FORM_ROW_REDUCE, 36);
}

static void matmuls_are_correct_at_every_level(void **state) {
  run_cases(state, LB_FORM_MATMUL, 24);
}

static void attention_is_correct_at_every_level(void **state) {
  run_cases(state, LB_FORM_ATTENTION, 16);
}

static void convolutions_are_correct_at_every_level(void **state) {
  run_cases(state, LB_FORM_CONV, 24);
}

static void windows_are_correct_at_every_level(void **state) {
  run_cases(state, LB_FORM_WINDOW, 36);
}

// -- registers ---------------------------------------------------------------

// matmul + bias; the caller adds more nodes.
static uint8_t begin_matmul(lb_spec_builder *b, lb_layout right,
                            uint8_t *bias) {
  lb_spec_begin(b, LB_FORM_MATMUL);
  lb_spec_input(b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(b, LB_F32, right);
  *bias = lb_spec_input(b, LB_F32, LB_LAYOUT_PER_COL);
  uint8_t acc = lb_spec_node(b, LB_S_ACC, LB_F32, NULL, 0);
  return lb_spec_node(b, LB_S_ADD, LB_F32, (uint8_t[]){acc, *bias}, 2);
}

static lb_spec end_matmul(lb_spec_builder *b, uint8_t y) {
  lb_spec s;
  lb_spec_output(b, y, LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(b, &s));
  return s;
}

// x = matmul + bias, then x * (erf(x) + bias)
static lb_spec matmul_with_erf(lb_layout right) {
  lb_spec_builder b;
  uint8_t bias, x = begin_matmul(&b, right, &bias);
  uint8_t y = lb_spec_node(&b, LB_S_ERF, LB_F32, &x, 1);
  y = lb_spec_node(&b, LB_S_ADD, LB_F32, (uint8_t[]){y, bias}, 2);
  y = lb_spec_node(&b, LB_S_MUL, LB_F32, (uint8_t[]){x, y}, 2);
  return end_matmul(&b, y);
}

// max(matmul + bias, 0)
static lb_spec matmul_with_relu(lb_layout right) {
  lb_spec_builder b;
  uint8_t bias, x = begin_matmul(&b, right, &bias);
  uint8_t zero = lb_spec_scalar(&b, LB_F32);
  x = lb_spec_node(&b, LB_S_MAX, LB_F32, (uint8_t[]){x, zero}, 2);
  return end_matmul(&b, x);
}

static uint32_t spills_at(machine *m, const lb_spec *s, int64_t rows,
                          int64_t cols) {
  lb_kernel k;
  lb_compile_stats stats = {.check_spills = true};
  int64_t dims[LB_SDIMS] = {rows, cols, 384};
  lb_facts f = lb_facts_of(s, lb_target_lanes(&m->target), dims);
  assert_ok(lb_lower(s, &f, &m->target, &k));
  machine_load_with(m, &k, &stats);
  lb_kernel_fini(&k);
  return stats.loop_spills;
}

static void chosen_tiles_stay_in_registers(void **state) {
  levels *l = *state;
  lb_spec s = matmul_with_erf(LB_LAYOUT_PANEL);
  lb_spec k2 = matmul_with_erf(LB_LAYOUT_PANEL_K2);
  for (int i = 0; i < l->n; i++) {
    for (int64_t rows = 1; rows <= 9; rows++)
      assert_int_equal(spills_at(&l->list[i], &s, rows, 384), 0);
    for (int64_t cols = 8; cols <= 24; cols += 8)
      assert_int_equal(spills_at(&l->list[i], &k2, 64, cols), 0);
  }
}

// Masks and outputs are computed after the accumulation.
static void tiles_stay_in_registers_for_any_columns(void **state) {
  levels *l = *state;
  lb_spec s = matmul_with_relu(LB_LAYOUT_PANEL);
  lb_spec k2 = matmul_with_relu(LB_LAYOUT_PANEL_K2);
  for (int i = 0; i < l->n; i++) {
    for (int64_t cols = 354; cols <= 370; cols++)
      assert_int_equal(spills_at(&l->list[i], &s, 300, cols), 0);
    for (int64_t cols = 1; cols <= 24; cols++)
      assert_int_equal(spills_at(&l->list[i], &k2, 300, cols), 0);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eltwise_is_correct_at_every_level),
      cmocka_unit_test(row_reductions_are_correct_at_every_level),
      cmocka_unit_test(matmuls_are_correct_at_every_level),
      cmocka_unit_test(chosen_tiles_stay_in_registers),
      cmocka_unit_test(tiles_stay_in_registers_for_any_columns),
      cmocka_unit_test(attention_is_correct_at_every_level),
      cmocka_unit_test(convolutions_are_correct_at_every_level),
      cmocka_unit_test(windows_are_correct_at_every_level),
  };
  void *state;
  test_name = "test_lower_machine";
  if (argc != 3)
    return cmocka_run_group_tests(tests, open_levels, close_levels);
  open_levels(&state);
  run_case(state, form_named(argv[1]), strtoull(argv[2], NULL, 10));
  return close_levels(&state);
}
