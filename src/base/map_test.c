// base/map_test.c -- puts, lookups and removals in any order.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/map.h"

#define KEYS 500

static void *as_value(uintptr_t n) { return (void *)n; }

static void an_empty_map_has_nothing(void **state) {
  (void)state;
  lb_map m = {0};
  assert_null(lb_map_gets(&m, "a"));
  assert_false(lb_map_has(&m, "a", 1));
  assert_null(lb_map_remove(&m, "a", 1));
  lb_map_fini(&m);
}

static void put_replaces_and_returns_the_old_value(void **state) {
  (void)state;
  lb_map m = {0};
  void *old = as_value(9);
  assert_false(lb_failed(lb_map_put(&m, "k", 1, as_value(1), &old)));
  assert_null(old);
  assert_false(lb_failed(lb_map_put(&m, "k", 1, as_value(2), &old)));
  assert_ptr_equal(old, as_value(1));
  assert_int_equal(m.count, 1);
  assert_ptr_equal(lb_map_gets(&m, "k"), as_value(2));
  lb_map_fini(&m);
}

static void keys_are_bytes_of_any_length(void **state) {
  (void)state;
  lb_map m = {0};
  assert_false(lb_failed(lb_map_put(&m, "", 0, as_value(1), NULL)));
  assert_false(lb_failed(lb_map_put(&m, "\0", 1, as_value(2), NULL)));
  assert_false(lb_failed(lb_map_put(&m, "\0\0", 2, NULL, NULL)));
  assert_ptr_equal(lb_map_get(&m, NULL, 0), as_value(1));
  assert_ptr_equal(lb_map_get(&m, "\0", 1), as_value(2));
  assert_true(lb_map_has(&m, "\0\0", 2));
  assert_null(lb_map_get(&m, "\0\0", 2));
  lb_map_fini(&m);
}

static void iteration_follows_insertion(void **state) {
  (void)state;
  static const char *const keys[] = {"d", "a", "c", "b"};
  lb_map m = {0};
  for (int i = 0; i < 4; i++)
    assert_false(lb_failed(lb_map_puts(&m, keys[i], as_value(1))));
  for (int i = 0; i < 4; i++) assert_string_equal(m.entries[i].key, keys[i]);
  lb_map_remove(&m, "a", 1);
  assert_string_equal(m.entries[1].key, "b");  // the last fills the gap
  assert_int_equal(m.count, 3);
  lb_map_fini(&m);
}

// Compares random puts and removals with a plain array.
static void it_agrees_with_an_array(void **state) {
  (void)state;
  static int keys[KEYS];
  static uintptr_t want[KEYS];  // 0: absent
  lb_map m = {0};
  size_t count = 0;
  srand(1);
  for (int i = 0; i < KEYS; i++) keys[i] = i;
  for (int step = 0; step < 50000; step++) {
    int k = rand() % KEYS;
    if (rand() % 2) {
      uintptr_t v = (uintptr_t)step + 1;
      void *old = NULL;
      assert_false(
          lb_failed(lb_map_put(&m, &keys[k], sizeof(int), as_value(v), &old)));
      assert_ptr_equal(old, as_value(want[k]));
      count += !want[k];
      want[k] = v;
    } else {
      void *old = lb_map_remove(&m, &keys[k], sizeof(int));
      assert_ptr_equal(old, as_value(want[k]));
      count -= want[k] != 0;
      want[k] = 0;
    }
    assert_int_equal(m.count, count);
    k = rand() % KEYS;
    assert_ptr_equal(lb_map_get(&m, &keys[k], sizeof(int)), as_value(want[k]));
  }
  for (int k = 0; k < KEYS; k++)
    assert_int_equal(lb_map_has(&m, &keys[k], sizeof(int)), want[k] != 0);
  lb_map_fini(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_map_has_nothing),
      cmocka_unit_test(put_replaces_and_returns_the_old_value),
      cmocka_unit_test(keys_are_bytes_of_any_length),
      cmocka_unit_test(iteration_follows_insertion),
      cmocka_unit_test(it_agrees_with_an_array),
  };
  return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
