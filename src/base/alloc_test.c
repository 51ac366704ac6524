// base/alloc_test.c -- tensor memory is aligned, whichever allocator is used.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/undertsan.h"

// A sanitizer replaces malloc.
#if defined(UNDER_TSAN) || defined(UNDER_ASAN)
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

typedef struct counter {
  int gets, puts;
  size_t size, align, skew;
} counter;

static void *counting_alloc(void *user, size_t size, size_t align) {
  counter *c = user;
  c->gets++;
  c->size = size;
  c->align = align;
  char *p = aligned_alloc(align, (size + 2 * align) / align * align);
  return p ? p + c->skew : NULL;
}

static void counting_free(void *user, void *p) {
  counter *c = user;
  c->puts++;
  free((char *)p - c->skew);
}

static void memory_is_aligned_at_any_size(void **state) {
  (void)state;
  static const size_t sizes[] = {0, 1, 63, 64, 65, 100000};
  for (int i = 0; i < 6; i++) {
    char *p = lb_alloc_get(NULL, sizes[i]);
    char *q = lb_alloc_get(NULL, sizes[i]);
    assert_non_null(p);
    assert_ptr_not_equal(p, q);
    assert_int_equal((uintptr_t)p % LB_TENSOR_ALIGN, 0);
    memset(p, 1, sizes[i]);
    lb_alloc_put(NULL, p);
    lb_alloc_put(NULL, q);
  }
  assert_null(lb_alloc_get(NULL, SIZE_MAX));
  lb_alloc_put(NULL, NULL);
}

static void large_buffers_are_returned_to_the_system(void **state) {
  (void)state;
  static const size_t sizes[] = {
      0, 1, 100000, (2 << 20) - 1, 2 << 20, (5 << 20) + 1};
  for (int i = 0; i < 6; i++) {
    char *p = lb_pages_get(NULL, sizes[i]);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % LB_TENSOR_ALIGN, 0);
    memset(p, 1, sizes[i]);
    lb_pages_put(NULL, p, sizes[i]);
  }
  // Freeing a large block makes the C library keep smaller freed blocks.
  lb_pages_put(NULL, lb_pages_get(NULL, 16 << 20), 16 << 20);
  size_t before = mallinfo2().hblks;
  void *other = malloc(8 << 20);
  assert_non_null(other);
  assert_true(IS_SANITIZED || mallinfo2().hblks == before + 1);
  free(other);
  assert_null(lb_pages_get(NULL, SIZE_MAX));
  lb_pages_put(NULL, NULL, 100);
  lb_pages_put(NULL, NULL, 3 << 20);
}

static void the_callers_allocator_provides_large_buffers(void **state) {
  (void)state;
  counter c = {0};
  lb_alloc a = {counting_alloc, counting_free, &c};
  void *p = lb_pages_get(&a, 3 << 20);
  assert_non_null(p);
  assert_int_equal(c.gets, 1);
  lb_pages_put(&a, p, 3 << 20);
  assert_int_equal(c.puts, 1);
}

static void the_callers_allocator_is_used(void **state) {
  (void)state;
  counter c = {0};
  lb_alloc a = {counting_alloc, counting_free, &c};
  void *p = lb_alloc_get(&a, 100);
  assert_non_null(p);
  assert_int_equal(c.size, 100);
  assert_int_equal(c.align, LB_TENSOR_ALIGN);
  lb_alloc_put(&a, p);
  lb_alloc_put(&a, NULL);
  assert_int_equal(c.gets, 1);
  assert_int_equal(c.puts, 1);
}

static void a_misaligned_allocation_is_freed(void **state) {
  (void)state;
  counter c = {.skew = 8};
  lb_alloc a = {counting_alloc, counting_free, &c};
  assert_null(lb_alloc_get(&a, 100));
  assert_int_equal(c.puts, 1);
}

static void only_our_allocator_reserves_address_space(void **state) {
  (void)state;
  counter c = {0};
  lb_alloc theirs = {counting_alloc, counting_free, &c};
  assert_int_equal(lb_alloc_pages(&theirs, 1000), 1000);
  assert_true(lb_alloc_pages(NULL, 1000) > 2000);
  assert_int_equal(lb_alloc_pages(NULL, SIZE_MAX), SIZE_MAX);
  for (size_t size = 1; size < (size_t)1 << 40; size *= 3)
    assert_true(lb_alloc_pages(NULL, size) >= size);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_aligned_at_any_size),
      cmocka_unit_test(large_buffers_are_returned_to_the_system),
      cmocka_unit_test(the_callers_allocator_provides_large_buffers),
      cmocka_unit_test(the_callers_allocator_is_used),
      cmocka_unit_test(a_misaligned_allocation_is_freed),
      cmocka_unit_test(only_our_allocator_reserves_address_space),
  };
  return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
