// api/options_test.c -- tests structs that start with their size.
#include "api/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct older {
  size_t size;
  int a;
} older;
typedef struct today {
  size_t size;
  int a, b;
  void *c;
} today;
typedef struct newer {
  size_t size;
  int a, b;
  void *c;
  int64_t d;
} newer;

static lb_code read_as_today(const void *in, today *out) {
  lb_status st = lb_options_read("options", in, sizeof *out, out);
  lb_code code = lb_status_code(st);
  lb_status_drop(st);
  return code;
}

static void fields_missing_in_an_older_program_are_zero(void **state) {
  (void)state;
  // Bytes after the older struct must not be read.
  struct {
    older o;
    char after[64];
  } in = {.o = {offsetof(older, a) + sizeof(int), 7}};
  memset(in.after, 0xff, sizeof in.after);
  today out;
  assert_int_equal(read_as_today(&in, &out), LB_CODE_OK);
  assert_int_equal(out.a, 7);
  assert_int_equal(out.b, 0);
  assert_null(out.c);
}

static void null_options_mean_all_defaults(void **state) {
  (void)state;
  today out = {1, 2, 3, &out};
  assert_int_equal(read_as_today(NULL, &out), LB_CODE_OK);
  assert_true(out.a == 0 && out.b == 0 && !out.c);
}

static void fields_of_a_newer_program_must_not_be_set(void **state) {
  (void)state;
  newer in = {sizeof in, 1, 2, NULL, 0};
  today out;
  assert_int_equal(read_as_today(&in, &out), LB_CODE_OK);
  assert_int_equal(out.b, 2);
  in.d = 1;
  assert_int_equal(read_as_today(&in, &out), LB_UNSUPPORTED);
}

static void a_missing_size_is_rejected(void **state) {
  (void)state;
  today in = {.a = 1}, out;
  assert_int_equal(read_as_today(&in, &out), LB_INVALID);
}

static void writing_stays_within_the_callers_size(void **state) {
  (void)state;
  const today in = {0, 5, 6, NULL};
  struct {
    older o;
    int after;
  } out = {{offsetof(older, a) + sizeof(int), 0}, 99};
  assert_false(lb_failed(lb_options_write("o", &in, sizeof in, &out.o)));
  assert_int_equal(out.o.a, 5);
  assert_int_equal(out.o.size, offsetof(older, a) + sizeof(int));
  assert_int_equal(out.after, 99);
  newer larger = {sizeof larger, 1, 1, &larger, 1};
  assert_false(lb_failed(lb_options_write("o", &in, sizeof in, &larger)));
  assert_true(larger.b == 6 && larger.d == 0);
  assert_int_equal(larger.size, sizeof larger);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fields_missing_in_an_older_program_are_zero),
      cmocka_unit_test(null_options_mean_all_defaults),
      cmocka_unit_test(fields_of_a_newer_program_must_not_be_set),
      cmocka_unit_test(a_missing_size_is_rejected),
      cmocka_unit_test(writing_stays_within_the_callers_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
