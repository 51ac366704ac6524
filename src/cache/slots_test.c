// cache/slots_test.c
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "cache/slots.h"

static lb_spec spec_of(lb_sop op) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_MAP);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, op, LB_F32, &x, 1), LB_LAYOUT_FULL);
  assert_false(lb_failed(lb_spec_finish(&b, &s)));
  return s;
}

static lb_slot *intern(lb_slots *t, const lb_spec *s, const lb_facts *f) {
  lb_slot *slot;
  assert_false(lb_failed(lb_slots_intern(t, s, f, &slot)));
  return slot;
}

static void equal_keys_share_a_slot(void **state) {
  (void)state;
  lb_slots t;
  assert_false(lb_failed(lb_slots_init(&t, 16)));
  lb_spec exp = spec_of(LB_S_EXP), log = spec_of(LB_S_LOG);
  lb_facts none = {0}, tile = {0};
  lb_facts_add(&tile, LB_CHOOSE_TILE, LB_DIM_ROWS, 6);
  lb_slot *a = intern(&t, &exp, &none);
  assert_ptr_equal(intern(&t, &exp, &none), a);
  assert_ptr_not_equal(intern(&t, &log, &none), a);
  assert_ptr_not_equal(intern(&t, &exp, &tile), a);
  assert_ptr_equal(lb_slots_at(&t, 0), a);
  assert_non_null(lb_slots_at(&t, 2));
  assert_null(lb_slots_at(&t, 3));
  assert_int_equal(lb_slots_count(&t), 3);
  lb_slots_fini(&t);
}

static void kernel(const uint64_t *args) { (void)args; }

static void a_slot_is_empty_until_published(void **state) {
  (void)state;
  lb_slots t;
  assert_false(lb_failed(lb_slots_init(&t, 16)));
  lb_spec exp = spec_of(LB_S_EXP);
  lb_slot *s = intern(&t, &exp, &(lb_facts){0});
  assert_true(lb_slot_kernel(s) == NULL);
  lb_slot_publish(s, kernel);
  assert_true(lb_slot_kernel(s) == kernel);
  lb_slots_fini(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_keys_share_a_slot),
      cmocka_unit_test(a_slot_is_empty_until_published),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
