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
  return (lb_memo_spec){
      .spec.n_nodes = mark, .scalars = {mark}, .size_scalars = mark};
}

static void specs_are_found_by_the_whole_key(void **state) {
  (void)state;
  lb_memo m = {NULL};
  for (uint8_t i = 0; i < 12; i++) {
    lb_memo_key key = key_of(&nodes[i % 2], i / 2 % 2, i / 4);
    lb_memo_spec value = spec_of(i);
    assert_null(lb_memo_find(&m, &key));
    lb_memo_add(&m, &key, &value);
  }
  for (uint8_t i = 0; i < 12; i++) {
    lb_memo_key key = key_of(&nodes[i % 2], i / 2 % 2, i / 4);
    const lb_memo_spec *found = lb_memo_find(&m, &key);
    lb_memo_spec value = spec_of(i);
    assert_non_null(found);
    assert_memory_equal(found, &value, sizeof value);
    key.n_nodes--;
    assert_null(lb_memo_find(&m, &key));
  }
  lb_memo_fini(&m);
  assert_null(m.first);
}

static void memos_have_a_max_size(void **state) {
  (void)state;
  lb_memo m = {NULL};
  lb_memo_spec value = spec_of(1);
  int found = 0;
  for (int i = 0; i < 255; i++) {
    lb_memo_key key = key_of(nodes, 0, (uint8_t)i);
    lb_memo_add(&m, &key, &value);
    found += lb_memo_find(&m, &key) != NULL;
  }
  assert_int_equal(found, 64);
  lb_memo_fini(&m);
}

static void null_memos_are_empty(void **state) {
  (void)state;
  lb_memo_key key = key_of(nodes, 0, 0);
  lb_memo_spec value = spec_of(1);
  lb_memo_add(NULL, &key, &value);
  assert_null(lb_memo_find(NULL, &key));
  lb_memo_fini(NULL);
}

static void notes_are_found_by_spec_and_facts(void **state) {
  (void)state;
  lb_memo m = {NULL};
  const lb_memo_spec *value[2];
  for (uint8_t i = 0; i < 2; i++) {
    lb_memo_key key = key_of(nodes, 0, i);
    lb_memo_spec s = spec_of(i);
    value[i] = lb_memo_add(&m, &key, &s);
    assert_ptr_equal(value[i], lb_memo_find(&m, &key));
  }
  for (uint16_t i = 0; i < 20; i++) {
    lb_facts f = {0};
    lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, (uint16_t)(1 + i / 2));
    assert_null(lb_memo_note(value[i % 2], &f));
    lb_memo_add_note(value[i % 2], &f, &i, sizeof i);
  }
  for (uint16_t i = 0; i < 20; i++) {
    lb_facts f = {0};
    lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, (uint16_t)(1 + i / 2));
    const uint16_t *note = lb_memo_note(value[i % 2], &f);
    assert_non_null(note);
    assert_int_equal(*note, i);
  }
  lb_memo_add_note(NULL, &(lb_facts){0}, &m, sizeof m);
  assert_null(lb_memo_note(NULL, &(lb_facts){0}));
  lb_memo_fini(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(specs_are_found_by_the_whole_key),
      cmocka_unit_test(memos_have_a_max_size),
      cmocka_unit_test(null_memos_are_empty),
      cmocka_unit_test(notes_are_found_by_spec_and_facts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
