// base/arena_test.c -- allocations are aligned, disjoint and within blocks.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/arena.h"

static void pointers_are_aligned_and_apart(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 256);
  unsigned char *p[200];
  for (size_t i = 0; i < 200; i++) {
    size_t align = (size_t)1 << (i % 9);
    p[i] = lb_arena_alloc(&a, i, align);
    assert_non_null(p[i]);
    assert_int_equal((uintptr_t)p[i] % align, 0);
    if (i) memset(p[i], (int)i, i);
  }
  for (size_t i = 0; i < 200; i++)
    for (size_t j = 0; j < i; j++) assert_int_equal(p[i][j], i);
  lb_arena_fini(&a);
}

static void large_requests_get_their_own_block(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 64);
  char *small = lb_arena_alloc(&a, 8, 1);
  char *large = lb_arena_alloc(&a, 100000, 16);
  assert_non_null(large);
  memset(large, 1, 100000);
  char *next = lb_arena_alloc(&a, 8, 1);
  assert_ptr_equal(next, small + 8);  // the remaining space is used
  assert_true(a.used > 100000 && a.used < 101000);
  lb_arena_fini(&a);
  assert_int_equal(a.used, 0);
}

static void large_blocks_are_freed_and_small_ones_are_not(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 64);
  char *small = lb_arena_alloc(&a, 8, 1);
  char *one = lb_arena_alloc(&a, 100000, 16);
  char *two = lb_arena_alloc(&a, 100000, 16);
  memset(two, 2, 100000);
  size_t used = a.used;
  lb_arena_drop(&a, small);
  lb_arena_drop(&a, &used);
  assert_int_equal(a.used, used);
  lb_arena_drop(&a, one);
  assert_true(a.used < used - 100000);
  used = a.used;
  lb_arena_drop(&a, one);  // a second time does nothing
  assert_int_equal(a.used, used);
  assert_int_equal(two[99999], 2);
  lb_arena_fini(&a);
}

// Block sizes double up to block_size.
static void block_sizes_grow_with_use(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 64 << 10);
  assert_non_null(lb_arena_alloc(&a, 100, 1));
  assert_in_range(a.used, 100, 5000);
  for (int i = 0; i < 10000; i++) assert_non_null(lb_arena_alloc(&a, 100, 1));
  assert_in_range(a.used, 1000000, 1000000 + 2 * (64 << 10));
  lb_arena_fini(&a);
}

static void overflowing_sizes_are_null(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 64);
  assert_null(lb_arena_new(&a, double, SIZE_MAX / 4));
  assert_null(lb_arena_alloc(&a, SIZE_MAX, 1));
  assert_null(lb_arena_alloc(&a, SIZE_MAX - 16, 16));
  assert_null(lb_arena_strndup(&a, "", SIZE_MAX));
  assert_non_null(lb_arena_alloc(&a, 1, 1));
  lb_arena_fini(&a);
}

static void new_arrays_are_zero_even_when_reused(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 1024);
  memset(lb_arena_alloc(&a, 800, 1), 0xff, 800);
  lb_arena_reset(&a);
  int *n = lb_arena_new(&a, int, 100);
  for (int i = 0; i < 100; i++) assert_int_equal(n[i], 0);
  assert_non_null(lb_arena_new(&a, int, 0));
  lb_arena_fini(&a);
}

static void reset_keeps_the_capacity_in_one_block(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 64);
  lb_arena_reset(&a);  // of nothing
  assert_int_equal(a.used, 0);
  for (int i = 0; i < 20; i++) lb_arena_alloc(&a, 60, 1);
  lb_arena_alloc(&a, 5000, 1);
  for (int i = 0; i < 20; i++) lb_arena_alloc(&a, 60, 1);
  size_t used = a.used;
  lb_arena_reset(&a);
  assert_int_equal(a.used, used);
  assert_non_null(lb_arena_alloc(&a, 5000 + 40 * 60, 1));
  assert_int_equal(a.used, used);  // fitted into the block that was kept
  lb_arena_reset(&a);              // of one block
  assert_non_null(lb_arena_alloc(&a, 5000 + 40 * 60, 1));
  assert_int_equal(a.used, used);
  lb_arena_fini(&a);
}

static void copies_are_equal_and_terminated(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 64);
  assert_string_equal(lb_arena_strdup(&a, "abc"), "abc");
  assert_string_equal(lb_arena_strndup(&a, "abcdef", 2), "ab");
  assert_string_equal(lb_arena_strndup(&a, NULL, 0), "");
  double d[2] = {1, 2}, *copy = lb_arena_memdup(&a, d, sizeof d, 8);
  assert_memory_equal(copy, d, sizeof d);
  assert_non_null(lb_arena_memdup(&a, NULL, 0, 1));
  lb_arena_fini(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pointers_are_aligned_and_apart),
      cmocka_unit_test(large_requests_get_their_own_block),
      cmocka_unit_test(large_blocks_are_freed_and_small_ones_are_not),
      cmocka_unit_test(block_sizes_grow_with_use),
      cmocka_unit_test(overflowing_sizes_are_null),
      cmocka_unit_test(new_arrays_are_zero_even_when_reused),
      cmocka_unit_test(reset_keeps_the_capacity_in_one_block),
      cmocka_unit_test(copies_are_equal_and_terminated),
  };
  return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
