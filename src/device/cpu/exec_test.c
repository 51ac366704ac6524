// device/cpu/exec_test.c -- objects become functions that compute what their
// source says, and are freed with their last reference.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testdir.h"
#include "device/cpu/exec.h"
#include "device/cpu/testobject.h"

#define BUDGET ((size_t)16 << 20)

typedef void sample_fn(double *out, const double *in, long n, int which);
typedef uint32_t number_fn(void);

static lb_cpu_code *code_of(lb_cpu_code_mode mode) {
  lb_cpu_code *code;
  lb_status st = lb_cpu_code_create(BUDGET, mode, &code);
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
  return code;
}

static lb_file sample(void) {
  lb_file f;
  lb_status st = lb_file_map(LB_SAMPLE_OBJECT, &f);
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
  return f;
}

// The function in sample.c.
static double expected(double x, long i, int which) {
  static const double weights[] = {1, 2, 3, 5, 7, 11, 13, 17};
  static const double scales[] = {0.5, 0.25, 4.0, -1.0, 1024.0, 3.0, 1.0};
  double step[] = {x * weights[i & 7], x + weights[i & 7], i & 1 ? 0.0 : x};
  return step[which % 3] * scales[which < 6 ? which : 6] + 0.125;
}

static void assert_computes(const lb_cpu_exec *e) {
  double in[20], out[20];
  for (int i = 0; i < 20; i++) in[i] = i * 1.5 - 7;
  for (int which = 0; which < 9; which++) {
    ((sample_fn *)e->base.entry)(out, in, 20, which);
    for (int i = 0; i < 20; i++)
      assert_true(out[i] == expected(in[i], i, which));
  }
}

static void a_compiled_object_computes_what_its_source_says(void **state) {
  (void)state;
  static const lb_cpu_code_mode modes[] = {LB_CPU_SHARED, LB_CPU_SEALED};
  lb_file f = sample();
  for (int w = 0; w < 2; w++) {
    lb_cpu_code *code = code_of(modes[w]);
    lb_cpu_exec *e;
    lb_status st = lb_cpu_exec_create(code, NULL, f.bytes, "sample", &e);
    if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
    assert_int_equal(lb_cpu_code_count(code).mode, modes[w]);
    assert_computes(e);
    assert_int_equal(e->header.size, 16);
    assert_int_equal((uintptr_t)e->header.data % 16, 0);
    assert_memory_equal(e->header.data, "limber\0\0", 8);
    lb_exec_release(&e->base);
    lb_cpu_code_release(code);
  }
  lb_file_close(&f);
}

static lb_cpu_exec *number(lb_cpu_code *code, uint32_t value) {
  testobject o;
  lb_cpu_exec *e;
  testobject_number(&o, value);
  lb_status st =
      lb_cpu_exec_create(code, NULL, testobject_bytes(&o), "number", &e);
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
  return e;
}

static void releasing_a_kernel_frees_its_code(void **state) {
  (void)state;
  lb_cpu_code *code = code_of(LB_CPU_SHARED);
  lb_cpu_exec *a = number(code, 1), *b = number(code, 2);
  assert_int_equal(((number_fn *)a->base.entry)(), 1);
  assert_int_equal(a->header.size, 0);
  assert_int_equal(lb_cpu_code_count(code).blocks, 2);
  lb_exec_release(&a->base);
  assert_int_equal(lb_cpu_code_count(code).blocks, 1);
  lb_cpu_code_release(code);  // b retains it
  assert_int_equal(((number_fn *)b->base.entry)(), 2);
  lb_exec_release(&b->base);
  lb_exec_release(NULL);
}

static void an_object_without_a_kernel_is_refused(void **state) {
  (void)state;
  lb_cpu_code *code = code_of(LB_CPU_SHARED);
  for (int data = 0; data < 2;
       data++) {  // no such symbol; a symbol that is not code
    testobject o;
    lb_cpu_exec *e;
    testobject_init(&o);
    int s = testobject_section(&o, ".rodata", 0, 8, "12345678", 8);
    testobject_symbol(&o, data ? "limber_kernel" : "kernel", STT_FUNC, s, 0, 8);
    lb_status st = lb_cpu_exec_create(code, NULL, testobject_bytes(&o), "", &e);
    assert_int_equal(lb_status_code(st), LB_INVALID);
    assert_non_null(strstr(lb_status_message(st), "limber_kernel"));
    assert_null(e);
    lb_status_drop(st);
  }
  assert_int_equal(lb_cpu_code_count(code).blocks, 0);
  lb_cpu_code_release(code);
}

static void an_object_that_does_not_link_leaves_nothing(void **state) {
  (void)state;
  lb_cpu_code *code = code_of(LB_CPU_SHARED);
  testobject o;
  lb_cpu_exec *e;
  testobject_number(&o, 1);
  testobject_rela(&o, 1, 1, R_X86_64_32, 1, 0);
  lb_status st = lb_cpu_exec_create(code, NULL, testobject_bytes(&o), "", &e);
  assert_int_equal(lb_status_code(st), LB_UNSUPPORTED);
  lb_status_drop(st);
  assert_null(e);
  assert_int_equal(lb_cpu_code_count(code).blocks, 0);
  lb_cpu_code_release(code);
}

static void perf_gets_the_address_of_the_code(void **state) {
  (void)state;
  testdir d;
  lb_perf *perf;
  lb_cpu_exec *e;
  lb_cpu_code *code = code_of(LB_CPU_SEALED);
  testobject o;
  assert_int_equal(testdir_init(&d), 0);
  lb_status st = lb_perf_open(d.path, &perf);
  assert_false(lb_failed(st));
  testobject_number(&o, 1);
  st = lb_cpu_exec_create(code, perf, testobject_bytes(&o), "one", &e);
  assert_false(lb_failed(st));
  char name[64], text[256], want[256];
  snprintf(name, sizeof name, "perf-%ld.map", (long)getpid());
  snprintf(want, sizeof want, "%jx 6 one\n", (uintmax_t)e->block->run);
  st = lb_file_read_small(testdir_at(&d, name), text, sizeof text);
  assert_false(lb_failed(st));
  assert_string_equal(text, want);
  lb_exec_release(&e->base);
  lb_perf_close(perf);
  lb_cpu_code_release(code);
  testdir_fini(&d);
}

typedef struct loader {
  pthread_t thread;
  lb_cpu_code *code;
  uint32_t first;
  int wrong;
} loader;

static void *load_many(void *arg) {
  loader *l = arg;
  for (uint32_t i = l->first; i < l->first + 500; i++) {
    testobject o;
    lb_cpu_exec *e;
    testobject_number(&o, i);
    lb_status st =
        lb_cpu_exec_create(l->code, NULL, testobject_bytes(&o), "number", &e);
    l->wrong += lb_failed(st) || ((number_fn *)e->base.entry)() != i;
    lb_status_drop(st);
    lb_exec_release(&e->base);
  }
  return NULL;
}

static void many_threads_load_at_once(void **state) {
  (void)state;
  loader l[4];
  lb_cpu_code *code = code_of(LB_CPU_SHARED);
  for (uint32_t i = 0; i < 4; i++) {
    l[i] = (loader){.code = code, .first = i * 1000};
    pthread_create(&l[i].thread, NULL, load_many, &l[i]);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(l[i].thread, NULL);
    assert_int_equal(l[i].wrong, 0);
  }
  assert_int_equal(lb_cpu_code_count(code).blocks, 0);
  lb_cpu_code_release(code);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_compiled_object_computes_what_its_source_says),
      cmocka_unit_test(releasing_a_kernel_frees_its_code),
      cmocka_unit_test(an_object_without_a_kernel_is_refused),
      cmocka_unit_test(an_object_that_does_not_link_leaves_nothing),
      cmocka_unit_test(perf_gets_the_address_of_the_code),
      cmocka_unit_test(many_threads_load_at_once),
  };
  return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
