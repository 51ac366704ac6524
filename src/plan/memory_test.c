// plan/memory_test.c
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <stdlib.h>

#include "plan/memory.h"

static size_t get(lb_memory *m, lb_arena *a, size_t size) {
  size_t at;
  lb_status st = lb_memory_get(m, a, size, &at);
  assert_false(lb_failed(st));
  return at;
}

static void freed_memory_is_used_again(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 1024);
  lb_memory m = {0};
  size_t x = get(&m, &a, 100), y = get(&m, &a, 1);
  assert_int_equal(x, 0);
  assert_int_equal(y, 128);
  lb_memory_put(&m, x);
  assert_int_equal(get(&m, &a, 129), 192);  // too large for the gap
  assert_int_equal(get(&m, &a, 128), 0);
  assert_int_equal(m.peak, 192 + 192);
  lb_arena_fini(&a);
}

static void a_size_that_overflows_is_refused(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 1024);
  lb_memory m = {0};
  size_t at;
  get(&m, &a, 1);
  lb_status st = lb_memory_get(&m, &a, SIZE_MAX - 100, &at);
  assert_int_equal(lb_status_code(st), LB_OOM);
  lb_status_drop(st);
  lb_arena_fini(&a);
}

static void live_blocks_never_overlap(void **state) {
  (void)state;
  for (unsigned seed = 1; seed <= 50; seed++) {
    unsigned r = seed;
    lb_arena a;
    lb_arena_init(&a, 1024);
    lb_memory m = {0};
    for (int i = 0; i < 300; i++) {
      if (m.n && rand_r(&r) % 2) {
        lb_memory_put(&m, m.live[(unsigned)rand_r(&r) % m.n].offset);
      } else {
        get(&m, &a, (size_t)rand_r(&r) % 1000);
      }
      for (uint32_t k = 1; k < m.n; k++) {
        size_t end = m.live[k - 1].offset + m.live[k - 1].size;
        if (end > m.live[k].offset) fail_msg("seed %u, step %d", seed, i);
      }
    }
    lb_arena_fini(&a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(freed_memory_is_used_again),
      cmocka_unit_test(a_size_that_overflows_is_refused),
      cmocka_unit_test(live_blocks_never_overlap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
