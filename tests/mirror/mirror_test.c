// tests/mirror/mirror_test.c -- the device `mirror` rejects host pointers.
#include "mirror/mirror.h"

#include <string.h>

#include "device/cpu/device.h"
#include "graph/build_test.h"

typedef struct fixture {
  lb_cpu_device cpu;
  lb_device *mirror;
} fixture;

static void keep_device(lb_device *d) { (void)d; }

// The test owns the inner device.
static void open_fixture(fixture *b) {
  static lb_device_ops ops;
  lb_cpu_device_init(&b->cpu, NULL, false, NULL);
  ops = *b->cpu.base.ops;
  ops.destroy = keep_device;
  b->cpu.base.ops = &ops;
  ok(mirror_open(&b->cpu.base, &b->mirror));
}

// out = in + 1, for `columns` floats.
static void add_one(const uint64_t *args) {
  float *out = (float *)(uintptr_t)args[0];
  const float *in = (const float *)(uintptr_t)args[1];
  for (uint64_t i = 0; i < args[3]; i++) out[i] = in[i] + 1;
}

static lb_status launch(lb_device *d, void *out, void *in) {
  static const lb_exec exec = {.entry = (uintptr_t)add_one};
  static const uint64_t args[] = {0, 0, 1, 4};
  lb_address addresses[] = {{.base = 1}, {.base = 2}};
  lb_launch l = {.split = {.parts = 1}, .n_operands = 2, .n_args = 4};
  l.addresses = addresses;
  l.args = args;
  uintptr_t bases[] = {0, (uintptr_t)out, (uintptr_t)in};
  return lb_device_submit(
      &(lb_stream){.device = d, .bases = bases, .n_bases = 3}, &exec, &l);
}

static void kernels_work_on_memory_of_the_device(void **state) {
  (void)state;
  fixture b;
  open_fixture(&b);
  float host[4] = {1, 2, 3, 4};
  lb_stream s = {.device = b.mirror};
  char *at = lb_device_alloc(b.mirror, NULL, 2 * sizeof host);
  assert_non_null(at);
  ok(lb_device_copy(&s, LB_COPY_IN, at, host, sizeof host));
  ok(launch(b.mirror, at + sizeof host, at));
  ok(lb_device_copy(&s, LB_COPY_WITHIN, at, at + sizeof host, sizeof host));
  ok(lb_device_copy(&s, LB_COPY_OUT, host, at, sizeof host));
  for (int i = 0; i < 4; i++) assert_true(host[i] == (float)(i + 2));
  lb_device_free(b.mirror, NULL, at, 2 * sizeof host);
  lb_device_close(b.mirror);
}

static void expect(lb_status st, const char *what) {
  assert_int_equal(lb_status_code(st), LB_INTERNAL);
  assert_non_null(strstr(lb_status_message(st), what));
  lb_status_drop(st);
}

static void host_pointers_are_refused(void **state) {
  (void)state;
  fixture b;
  open_fixture(&b);
  float host[4] = {1, 2, 3, 4};
  lb_stream s = {.device = b.mirror};
  char *at = lb_device_alloc(b.mirror, NULL, sizeof host);
  expect(launch(b.mirror, host, at), "operand 0");
  expect(launch(b.mirror, at, host), "operand 1");
  expect(lb_device_copy(&s, LB_COPY_IN, host, host, 4), "a copy");
  expect(lb_device_copy(&s, LB_COPY_OUT, host, host, 4), "a copy");
  expect(lb_device_copy(&s, LB_COPY_IN, at, host, sizeof host + 1), "a copy");
  lb_device_free(b.mirror, NULL, at, sizeof host);
  expect(launch(b.mirror, at, at), "operand 0");
  lb_device_close(b.mirror);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_work_on_memory_of_the_device),
      cmocka_unit_test(host_pointers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
