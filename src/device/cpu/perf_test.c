// device/cpu/perf_test.c -- perf reads our lines, and the file is our own.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/testdir.h"
#include "device/cpu/perf.h"

static const void *address(uintptr_t at) { return (const void *)at; }

static const char *map_of(testdir *d, pid_t pid) {
  char name[64];
  snprintf(name, sizeof name, "perf-%ld.map", (long)pid);
  return testdir_at(d, name);
}

static void assert_holds(testdir *d, pid_t pid, const char *want) {
  char text[2048];
  lb_status st = lb_file_read_small(map_of(d, pid), text, sizeof text);
  assert_false(lb_failed(st));
  assert_string_equal(text, want);
}

static lb_perf *perf_in(testdir *d) {
  lb_perf *perf;
  lb_status st = lb_perf_open(d->path, &perf);
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
  return perf;
}

static void a_line_has_address_size_and_name(void **state) {
  testdir *d = *state;
  lb_perf *perf = perf_in(d);
  lb_perf_add(perf, address(0x7F0012345640), 0x1A0, "matmul 6x64 f32");
  lb_perf_add(perf, address(0x1000), 16, "two\nlines");
  lb_perf_close(perf);
  perf = perf_in(d);  // lines of other JITs are kept
  lb_perf_add(perf, address(0x2000), 1, "");
  lb_perf_close(perf);
  assert_holds(d, getpid(),
               "7f0012345640 1a0 matmul 6x64 f32\n1000 10 two_lines\n"
               "2000 1 \n");
}

static void a_long_name_is_truncated_and_its_line_ends(void **state) {
  testdir *d = *state;
  char name[1000];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  lb_perf *perf = perf_in(d);
  lb_perf_add(perf, address(0x1000), 16, name);
  lb_perf_add(perf, address(0x2000), 16, "next");
  lb_perf_close(perf);
  char text[2048];
  lb_status st = lb_file_read_small(map_of(d, getpid()), text, sizeof text);
  assert_false(lb_failed(st));
  assert_int_equal(strcspn(text, "\n"), 254);
  assert_string_equal(strchr(text, '\n') + 1, "2000 10 next\n");
}

static void a_child_writes_a_file_of_its_own(void **state) {
  testdir *d = *state;
  lb_perf *perf = perf_in(d);
  lb_perf_add(perf, address(0x1000), 16, "parent");
  pid_t pid = fork();
  if (pid == 0) {
    lb_perf_add(perf, address(0x2000), 16, "child");
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_holds(d, getpid(), "1000 10 parent\n");
  assert_holds(d, pid, "2000 10 child\n");
  lb_perf_close(perf);
}

static void links_and_strange_files_are_refused(void **state) {
  testdir *d = *state;
  lb_perf *perf;
  char target[sizeof d->path + 16];
  snprintf(target, sizeof target, "%s/precious", d->path);
  assert_int_equal(testdir_write(d, "precious", "text"), 0);
  assert_int_equal(symlink(target, map_of(d, getpid())), 0);
  lb_status st = lb_perf_open(d->path, &perf);
  assert_int_equal(lb_status_code(st), LB_IO);
  lb_status_drop(st);
  assert_int_equal(unlink(map_of(d, getpid())), 0);
  assert_int_equal(link(target, map_of(d, getpid())), 0);
  st = lb_perf_open(d->path, &perf);
  assert_int_equal(lb_status_code(st), LB_IO);
  assert_null(perf);
  lb_status_drop(st);
  st = lb_perf_open("/nowhere", &perf);
  assert_int_equal(lb_status_code(st), LB_IO);
  lb_status_drop(st);
}

static void without_a_file_nothing_happens(void **state) {
  (void)state;
  lb_perf_add(NULL, address(0x1000), 16, "name");
  lb_perf_close(NULL);
}

static int setup(void **state) {
  static testdir d;
  *state = &d;
  return testdir_init(&d);
}

static int teardown(void **state) {
  testdir_fini(*state);
  return 0;
}

#define CLAIM(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      CLAIM(a_line_has_address_size_and_name),
      CLAIM(a_long_name_is_truncated_and_its_line_ends),
      CLAIM(a_child_writes_a_file_of_its_own),
      CLAIM(links_and_strange_files_are_refused),
      CLAIM(without_a_file_nothing_happens),
  };
  return cmocka_run_group_tests_name("perf", tests, NULL, NULL);
}
