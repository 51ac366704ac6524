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

static int64_t get(lb_memory *m, lb_arena *a, size_t size) {
  int64_t virtual_offset;
  lb_status st = lb_memory_get(m, a, size, &virtual_offset);
  assert_false(lb_failed(st));
  return virtual_offset;
}

static void place(lb_memory *m, lb_arena *a) {
  lb_status st = lb_memory_place(m, a);
  assert_false(lb_failed(st));
}

static void freed_memory_is_used_again(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 1024);
  lb_memory m = {0};
  int64_t x = get(&m, &a, 100), y = get(&m, &a, 1);
  lb_memory_put(&m, x);
  int64_t z = get(&m, &a, 128);
  place(&m, &a);
  assert_int_equal(lb_memory_offset(&m, x), 0);
  assert_int_equal(lb_memory_offset(&m, y), 128);
  assert_int_equal(lb_memory_offset(&m, z), 0);
  assert_int_equal(m.peak, 192);
  lb_arena_fini(&a);
}

static void separate_blocks_share_no_memory(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 1024);
  lb_memory m = {.separate = true};
  int64_t x = get(&m, &a, 100);
  lb_memory_put(&m, x);
  int64_t y = get(&m, &a, 1);
  place(&m, &a);
  lb_memory_put(&m, y);
  int64_t z = get(&m, &a, 64);
  place(&m, &a);
  assert_int_equal(lb_memory_offset(&m, x), 0);
  assert_int_equal(lb_memory_offset(&m, y), 128);
  assert_int_equal(lb_memory_offset(&m, z), 192);
  assert_int_equal(m.peak, 256);
  lb_arena_fini(&a);
}

static void growing_chains_need_two_blocks_at_a_time(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 1024);
  lb_memory m = {0};
  int64_t last = get(&m, &a, 64);
  for (size_t i = 2; i <= 40; i++) {
    int64_t next = get(&m, &a, 64 * i);
    lb_memory_put(&m, last);
    last = next;
  }
  place(&m, &a);
  assert_int_equal(m.peak, 64 * (39 + 40));
  lb_arena_fini(&a);
}

static void virtual_offsets_allow_byte_arithmetic(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 1024);
  lb_memory m = {0};
  get(&m, &a, 1000);
  int64_t x = get(&m, &a, 64);
  place(&m, &a);
  assert_int_equal(lb_memory_offset(&m, x), 1024);
  assert_int_equal(lb_memory_offset(&m, x + 60), 1084);
  assert_int_equal(lb_memory_offset(&m, x - 100), 924);
  lb_arena_fini(&a);
}

static void overflowing_sizes_are_rejected(void **state) {
  (void)state;
  lb_arena a;
  lb_arena_init(&a, 1024);
  lb_memory m = {0};
  int64_t virtual_offset;
  lb_status st = lb_memory_get(&m, &a, SIZE_MAX - 100, &virtual_offset);
  assert_int_equal(lb_status_code(st), LB_OOM);
  lb_status_drop(st);
  for (int i = 0; i < 2; i++) get(&m, &a, (size_t)LB_VIRTUAL_ZERO - 1);
  st = lb_memory_place(&m, &a);
  assert_int_equal(lb_status_code(st), LB_OOM);
  lb_status_drop(st);
  lb_arena_fini(&a);
}

// -- random lifetimes ---------------------------------------------------------

#define MOST 400

typedef struct lifetime {
  int64_t virtual_offset;
  size_t size;
  int begin, end;  // INT32_MAX: still live
  int64_t offset;  // after placement; else -1
} lifetime;

static int overlap_in_time(const lifetime *x, const lifetime *y) {
  return x->begin < y->end && y->begin < x->end;
}

static void check(const lb_memory *m, lifetime *l, int n, unsigned seed) {
  for (int i = 0; i < n; i++) {
    int64_t at = lb_memory_offset(m, l[i].virtual_offset);
    if (l[i].offset >= 0 && l[i].offset != at) fail_msg("seed %u: moved", seed);
    l[i].offset = at;
    if (at < 0 || (size_t)at + l[i].size > m->peak)
      fail_msg("seed %u: block %d is outside the arena", seed, i);
    for (int k = 0; k < i; k++)
      if (overlap_in_time(&l[i], &l[k]) &&
          at < l[k].offset + (int64_t)l[k].size &&
          l[k].offset < at + (int64_t)l[i].size)
        fail_msg("seed %u: blocks %d and %d overlap", seed, k, i);
  }
}

// Several stages, some of them with many live blocks.
static void live_blocks_never_overlap(void **state) {
  (void)state;
  for (unsigned seed = 1; seed <= 60; seed++) {
    unsigned r = seed;
    lb_arena a;
    lb_arena_init(&a, 1024);
    lb_memory m = {0};
    static lifetime l[MOST];
    int n = 0, time = 0, busy = 1 + (int)(seed % 3);
    for (int stage = 0; stage < 3; stage++) {
      lb_memory next;
      lb_status st = lb_memory_copy(&next, &m, &a);
      assert_false(lb_failed(st));
      m = next;
      for (int i = 0; i < MOST / 3; i++, time++) {
        int x = n ? rand_r(&r) % n : 0;
        if (n && rand_r(&r) % (busy + 1) == 0 && l[x].end == INT32_MAX) {
          lb_memory_put(&m, l[x].virtual_offset);
          l[x].end = time;
        } else {
          size_t size = (size_t)rand_r(&r) % (1u << rand_r(&r) % 16);
          l[n++] = (lifetime){get(&m, &a, size), size, time, INT32_MAX, -1};
        }
      }
      place(&m, &a);
      check(&m, l, n, seed);
    }
    lb_arena_fini(&a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(freed_memory_is_used_again),
      cmocka_unit_test(separate_blocks_share_no_memory),
      cmocka_unit_test(growing_chains_need_two_blocks_at_a_time),
      cmocka_unit_test(virtual_offsets_allow_byte_arithmetic),
      cmocka_unit_test(overflowing_sizes_are_rejected),
      cmocka_unit_test(live_blocks_never_overlap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
