// base/file_test.c -- maps complete files, and none outside the directory.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>

#include "base/file.h"
#include "base/testdir.h"

static int make_directory(void **state) {
  static testdir d;
  *state = &d;
  return testdir_init(&d);
}

static int remove_directory(void **state) {
  testdir_fini(*state);
  return 0;
}

// Checks code and message, and that nothing was opened.
static void assert_refused(lb_status st, const lb_file *f, lb_code code,
                           const char *words) {
  assert_int_equal(lb_status_code(st), code);
  if (!strstr(lb_status_message(st), words))
    fail_msg("'%s' does not contain '%s'", lb_status_message(st), words);
  assert_null(f->base);
  lb_status_drop(st);
}

static void maps_the_whole_file(void **state) {
  testdir *d = *state;
  lb_file f;
  assert_int_equal(testdir_write(d, "a.bin", "hello"), 0);
  assert_false(lb_failed(lb_file_map(testdir_at(d, "a.bin"), &f)));
  assert_int_equal(f.bytes.size, 5);
  assert_memory_equal(f.bytes.data, "hello", 5);
  lb_file_drop_pages(&f);
  assert_memory_equal(f.bytes.data, "hello", 5);
  lb_file_close(&f);
  assert_null(f.bytes.data);
  lb_file_close(&f);  // closed is fine
}

static void an_empty_file_has_a_pointer_and_no_bytes(void **state) {
  testdir *d = *state;
  lb_file f;
  assert_int_equal(testdir_write(d, "empty", ""), 0);
  assert_false(lb_failed(lb_file_map(testdir_at(d, "empty"), &f)));
  assert_int_equal(f.bytes.size, 0);
  assert_non_null(f.bytes.data);
  lb_file_close(&f);
}

static void only_regular_files_are_mapped(void **state) {
  testdir *d = *state;
  lb_file f;
  assert_refused(lb_file_map(d->path, &f), &f, LB_INVALID,
                 "is not a regular file");
  assert_int_equal(mkfifo(testdir_at(d, "pipe"), 0600), 0);
  assert_refused(lb_file_map(d->joined, &f), &f, LB_INVALID,
                 "pipe' is not a regular file");
  assert_refused(lb_file_map(testdir_at(d, "missing"), &f), &f, LB_IO,
                 "missing': No such file");
}

static lb_status beside(testdir *d, const char *relative, lb_file *f) {
  return lb_file_map_beside(testdir_at(d, "m/model.onnx"), relative, f);
}

static void assert_beside(testdir *d, const char *relative, const char *text) {
  lb_file f;
  lb_status st = beside(d, relative, &f);
  assert_string_equal(lb_status_message(st), "");
  assert_int_equal(f.bytes.size, strlen(text));
  assert_memory_equal(f.bytes.data, text, strlen(text));
  lb_file_close(&f);
}

static void link_to(testdir *d, const char *name, const char *target) {
  assert_int_equal(symlink(target, testdir_at(d, name)), 0);
}

static void files_beside_the_model_are_mapped(void **state) {
  testdir *d = *state;
  assert_int_equal(testdir_write(d, "m/w.bin", "weights"), 0);
  assert_int_equal(testdir_write(d, "m/sub/..w", "more"), 0);
  assert_beside(d, "w.bin", "weights");
  assert_beside(d, "./w.bin", "weights");
  assert_beside(d, "sub/..w", "more");
  link_to(d, "m/in", "sub/..w");
  link_to(d, "m/sub/up", "../w.bin");
  assert_beside(d, "in", "more");
  assert_beside(d, "sub/up", "weights");
  link_to(d, "alias", "m");  // the directory itself may be reached by a link
  lb_file f;
  lb_status st =
      lb_file_map_beside(testdir_at(d, "alias/model.onnx"), "w.bin", &f);
  assert_false(lb_failed(st));
  lb_file_close(&f);
}

static void paths_that_leave_the_directory_are_refused(void **state) {
  testdir *d = *state;
  static const char *const climbing[] = {
      "..",     "../secret",    "sub/../../secret",
      "sub/..", "sub/../w.bin", "./../x"};
  lb_file f;
  assert_int_equal(testdir_write(d, "secret", "secret"), 0);
  for (size_t i = 0; i < sizeof climbing / sizeof climbing[0]; i++)
    assert_refused(beside(d, climbing[i], &f), &f, LB_INVALID,
                   "'..' is not allowed");
  assert_refused(beside(d, "/etc/passwd", &f), &f, LB_INVALID,
                 "refused to open '/etc/passwd': absolute paths");
  assert_refused(beside(d, "", &f), &f, LB_INVALID, "the path is empty");
  assert_refused(beside(d, "sub", &f), &f, LB_INVALID, "not a regular file");
  assert_refused(beside(d, "none", &f), &f, LB_IO, "none': No such file");
}

static void links_that_leave_the_directory_are_refused(void **state) {
  testdir *d = *state;
  lb_file f;
  assert_int_equal(testdir_write(d, "m2/w.bin", "other"), 0);
  link_to(d, "m/out", "../secret");
  link_to(d, "m/far", "/etc/passwd");
  link_to(d, "m/dir", "..");
  link_to(d, "m/near", "../m2/w.bin");  // "m2" begins like "m"
  link_to(d, "m/loop", "loop");
  assert_refused(beside(d, "out", &f), &f, LB_INVALID, "outside the directory");
  assert_refused(beside(d, "far", &f), &f, LB_INVALID, "link to '/etc/passwd'");
  assert_refused(beside(d, "dir/secret", &f), &f, LB_INVALID, "outside");
  assert_refused(beside(d, "near", &f), &f, LB_INVALID, "outside");
  assert_refused(beside(d, "loop", &f), &f, LB_IO, "loop");
}

static void a_model_in_the_current_directory_works(void **state) {
  testdir *d = *state;
  lb_file f;
  int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert_true(here >= 0);
  assert_int_equal(chdir(testdir_at(d, "m")), 0);
  lb_status st = lb_file_map_beside("model.onnx", "w.bin", &f);
  lb_status out = lb_file_map_beside("model.onnx", "out", &(lb_file){0});
  assert_int_equal(fchdir(here), 0);
  close(here);
  assert_string_equal(lb_status_message(st), "");
  assert_int_equal(f.bytes.size, 7);
  assert_int_equal(lb_status_code(out), LB_INVALID);
  lb_status_drop(out);
  lb_file_close(&f);
}

static void small_files_fit_or_are_refused(void **state) {
  testdir *d = *state;
  char buf[6];
  assert_int_equal(testdir_write(d, "five", "12345"), 0);
  assert_false(
      lb_failed(lb_file_read_small(testdir_at(d, "five"), buf, sizeof buf)));
  assert_string_equal(buf, "12345");
  lb_status st = lb_file_read_small(d->joined, buf, 5);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  assert_string_equal(buf, "");
  lb_status_drop(st);
  st = lb_file_read_small(testdir_at(d, "missing"), buf, sizeof buf);
  assert_int_equal(lb_status_code(st), LB_IO);
  lb_status_drop(st);
  char big[4096];
  assert_false(lb_failed(lb_file_read_small("/proc/self/stat", big, 4096)));
  assert_true(strlen(big) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(maps_the_whole_file),
      cmocka_unit_test(an_empty_file_has_a_pointer_and_no_bytes),
      cmocka_unit_test(only_regular_files_are_mapped),
      cmocka_unit_test(files_beside_the_model_are_mapped),
      cmocka_unit_test(paths_that_leave_the_directory_are_refused),
      cmocka_unit_test(links_that_leave_the_directory_are_refused),
      cmocka_unit_test(a_model_in_the_current_directory_works),
      cmocka_unit_test(small_files_fit_or_are_refused),
  };
  return cmocka_run_group_tests_name("file", tests, make_directory,
                                     remove_directory);
}
