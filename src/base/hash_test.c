// base/hash_test.c -- known values, so that keys on disk stay valid.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/hash.h"

static void hashes_are_xxh3(void **state) {
  (void)state;
  assert_int_equal(lb_hash("", 0), 0x2d06800538d394c2);
  assert_int_equal(lb_hash("abc", 3), 0x78af5f94892f3950);
  assert_int_equal(lb_hash_seeded("abc", 3, 0), lb_hash("abc", 3));
  assert_int_not_equal(lb_hash_seeded("abc", 3, 1), lb_hash("abc", 3));
  lb_hash128 h = lb_hash_wide("", 0);
  assert_int_equal(h.hi, 0x99aa06d3014798d8);
  assert_int_equal(h.lo, 0x6001c324468d497f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(hashes_are_xxh3)};
  return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
