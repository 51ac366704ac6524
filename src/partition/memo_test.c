// partition/memo_test.c
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "partition/memo.h"

static const int nodes[2];

static lb_memo_key key_of(const void *first, uint8_t form, uint8_t layout) {
  return (lb_memo_key){.nodes = first,
                       .n_nodes = 2,
                       .form = form,
                       .n_operands = 2,
                       .layouts = {LB_LAYOUT_FULL, layout}};
}

static lb_memo_spec spec_of(uint8_t mark) {
  return (lb_memo_spec){.spec.n_nodes = mark, .scalars = {mark}, .own = mark};
}

static void what_was_added_is_found_by_all_of_its_key(void **state) {
  (void)state;
  lb_memo m = {NULL};
  for (uint8_t i = 0; i < 12; i++) {
    lb_memo_key key = key_of(&nodes[i % 2], i / 2 % 2, i / 4);
    lb_memo_spec made = spec_of(i);
    assert_null(lb_memo_find(&m, &key));
    lb_memo_add(&m, &key, &made);
  }
  for (uint8_t i = 0; i < 12; i++) {
    lb_memo_key key = key_of(&nodes[i % 2], i / 2 % 2, i / 4);
    const lb_memo_spec *found = lb_memo_find(&m, &key);
    lb_memo_spec made = spec_of(i);
    assert_non_null(found);
    assert_memory_equal(found, &made, sizeof made);
    key.n_nodes--;
    assert_null(lb_memo_find(&m, &key));
  }
  lb_memo_fini(&m);
  assert_null(m.first);
}

static void a_memo_does_not_grow_for_ever(void **state) {
  (void)state;
  lb_memo m = {NULL};
  lb_memo_spec made = spec_of(1);
  int found = 0;
  for (int i = 0; i < 255; i++) {
    lb_memo_key key = key_of(nodes, 0, (uint8_t)i);
    lb_memo_add(&m, &key, &made);
    found += lb_memo_find(&m, &key) != NULL;
  }
  assert_int_equal(found, 64);
  lb_memo_fini(&m);
}

static void no_memo_finds_nothing(void **state) {
  (void)state;
  lb_memo_key key = key_of(nodes, 0, 0);
  lb_memo_spec made = spec_of(1);
  lb_memo_add(NULL, &key, &made);
  assert_null(lb_memo_find(NULL, &key));
  lb_memo_fini(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_added_is_found_by_all_of_its_key),
      cmocka_unit_test(a_memo_does_not_grow_for_ever),
      cmocka_unit_test(no_memo_finds_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
