// compile/compile_log_test.c -- tests records, and files of compiled objects.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/testdir.h"
#include "compile/compile_log.h"

static testdir dir;
static int warnings;

static int set_up(void **state) {
  (void)state;
  warnings = 0;
  return testdir_init(&dir);
}

static int tear_down(void **state) {
  (void)state;
  testdir_fini(&dir);
  return 0;
}

static void count_line(void *user, int level, const char *line) {
  (void)user;
  (void)line;
  warnings += level == LB_LOG_WARN;
}

static const lb_span object = {(const uint8_t *)"OBJECT", 6};
static const lb_log counting = {count_line, NULL, LB_LOG_WARN};

static lb_request request_of(lb_sop op, const char *target) {
  lb_spec_builder b;
  lb_spec spec;
  lb_request r;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, op, LB_F32, &x, 1), LB_LAYOUT_FULL);
  assert_false(lb_failed(lb_spec_finish(&b, &spec)));
  assert_false(lb_failed(lb_request_init(&r, &spec, &(lb_facts){0}, target)));
  return r;
}

static lb_compile_record *added(lb_compile_log *b, lb_sop op,
                                const char *target) {
  lb_request r = request_of(op, target);
  lb_compile_record *record;
  assert_false(lb_failed(lb_compile_log_add(b, &r, 7, &record)));
  return record;
}

static void names_are_unique_per_key(void **state) {
  (void)state;
  lb_compile_log b;
  assert_false(lb_failed(lb_compile_log_init(&b, NULL, NULL)));
  const lb_compile_record *exp = added(&b, LB_S_EXP, "x86-64-v3");
  assert_memory_equal(exp->name, "eltwise-", 8);
  assert_int_equal(strlen(exp->name), 8 + 32);
  assert_string_equal(exp->name, added(&b, LB_S_EXP, "x86-64-v3")->name);
  assert_string_not_equal(exp->name, added(&b, LB_S_LOG, "x86-64-v3")->name);
  assert_string_not_equal(exp->name, added(&b, LB_S_EXP, "x86-64-v4")->name);
  assert_non_null(strstr(exp->text, "exp.float32"));
  assert_non_null(strstr(exp->text, "target x86-64-v3\n"));
  assert_int_equal(b.n, 3);
  assert_ptr_equal(b.list[0], exp);
  lb_compile_log_fini(&b);
}

// A key whose kernel is evicted and compiled again many times reuses its
// record.
static void a_key_has_one_record(void **state) {
  (void)state;
  lb_compile_log b;
  assert_false(lb_failed(lb_compile_log_init(&b, NULL, NULL)));
  lb_compile_record *exp = added(&b, LB_S_EXP, "x86-64-v3");
  assert_false(lb_failed(lb_compile_log_set_error(&b, exp, "it is slow")));
  size_t used = b.arena.used;
  for (int i = 0; i < 1000; i++)
    assert_ptr_equal(added(&b, LB_S_EXP, "x86-64-v3"), exp);
  assert_int_equal(b.n, 1);
  assert_int_equal(b.arena.used, used);
  assert_null(exp->error);
  lb_compile_log_fini(&b);
}

static void objects_and_texts_are_written_to_the_directory(void **state) {
  (void)state;
  lb_compile_log b;
  char name[64], got[512];
  assert_false(
      lb_failed(lb_compile_log_init(&b, testdir_at(&dir, "new"), &counting)));
  const lb_compile_record *exp = added(&b, LB_S_EXP, "x86-64-v3");
  lb_compile_log_dump(&b, exp, object);
  snprintf(name, sizeof name, "new/%s.o", exp->name);
  assert_false(
      lb_failed(lb_file_read_small(testdir_at(&dir, name), got, sizeof got)));
  assert_string_equal(got, "OBJECT");
  snprintf(name, sizeof name, "new/%s.txt", exp->name);
  assert_false(
      lb_failed(lb_file_read_small(testdir_at(&dir, name), got, sizeof got)));
  assert_string_equal(got, exp->text);
  assert_int_equal(warnings, 0);
  lb_compile_log_fini(&b);
}

static void an_unwritable_directory_logs_one_warning(void **state) {
  (void)state;
  lb_compile_log b;
  assert_false(lb_failed(lb_compile_log_init(&b, "/dev/null/no", &counting)));
  const lb_compile_record *exp = added(&b, LB_S_EXP, "x86-64-v3");
  for (int i = 0; i < 3; i++) lb_compile_log_dump(&b, exp, object);
  assert_int_equal(warnings, 1);
  lb_compile_log_fini(&b);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(names_are_unique_per_key),
      TEST(a_key_has_one_record),
      TEST(objects_and_texts_are_written_to_the_directory),
      TEST(an_unwritable_directory_logs_one_warning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
