// partition/memo_test.c
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "partition/memo.h"

// op(x) + y, both float32, y with that layout.
static lb_spec_builder built(lb_sop op, lb_layout layout) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_MAP);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t y = lb_spec_input(&b, LB_F32, layout);
  uint8_t fx = lb_spec_node(&b, op, LB_F32, &x, 1);
  uint8_t src[2] = {fx, y};
  lb_spec_output(&b, lb_spec_node(&b, LB_S_ADD, LB_F32, src, 2),
                 LB_LAYOUT_FULL);
  return b;
}

static void check(lb_memo *m, lb_sop op, lb_layout layout) {
  lb_spec_builder a = built(op, layout), b = built(op, layout);
  lb_spec want, got;
  memset(&got, 0xee, sizeof got);
  assert_false(lb_failed(lb_spec_finish(&a, &want)));
  assert_false(lb_failed(lb_memo_finish(m, &b, &got)));
  assert_memory_equal(&got, &want, sizeof got);
}

static void a_remembered_spec_is_the_finished_one(void **state) {
  (void)state;
  lb_memo m = {NULL};
  static const lb_layout layouts[] = {LB_LAYOUT_FULL, LB_LAYOUT_COLS,
                                      LB_LAYOUT_ROWS, LB_LAYOUT_ONE};
  static const lb_sop ops[] = {LB_S_EXP, LB_S_LOG,  LB_S_ABS,
                               LB_S_NEG, LB_S_SQRT, LB_S_TANH};
  for (int i = 0; i < 48; i++) check(&m, ops[i / 4 % 6], layouts[i % 4]);
  check(NULL, LB_S_EXP, LB_LAYOUT_COLS);
  assert_non_null(m.first);
  lb_memo_fini(&m);
  assert_null(m.first);
  lb_memo_fini(NULL);
}

static void mistakes_are_told_each_time(void **state) {
  (void)state;
  lb_memo m = {NULL};
  for (int turn = 0; turn < 2; turn++) {
    lb_spec_builder b = built(LB_S_EXP, LB_LAYOUT_FULL);
    lb_spec spec;
    lb_spec_output(&b, 99, LB_LAYOUT_FULL);
    lb_status st = lb_memo_finish(&m, &b, &spec);
    assert_int_equal(lb_status_code(st), LB_UNSUPPORTED);
    lb_status_drop(st);
  }
  assert_null(m.first);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_remembered_spec_is_the_finished_one),
      cmocka_unit_test(mistakes_are_told_each_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
