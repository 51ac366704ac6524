// toolchain/random_test.c -- Compares random kernels as machine code with the
// interpreter: control flow, registers, masks and memory together.
#include "kir/random.h"

#include <math.h>

#include "toolchain/machine.h"

enum { KERNELS = 60 };

// NaN payloads are undefined.
static bool same_array(lb_dtype t, const char *a, const char *b) {
  size_t size = lb_dtype_size(t);
  for (size_t i = 0; i < ELEMENTS; i++) {
    uint64_t x = 0, y = 0;
    memcpy(&x, a + i * size, size);
    memcpy(&y, b + i * size, size);
    if (x == y) continue;
    if (!lb_dtype_is_float(t) || !isnan(lb_knum_float(t, x)) ||
        !isnan(lb_knum_float(t, y)))
      return false;
  }
  return true;
}

static void check(machine *m, uint64_t seed) {
  lb_kernel k;
  lb_karg args[N_ARGS];
  draw_kernel(seed, true, &k);
  char *want = draw_memory(args);
  assert_ok(run_kernel(&k, args, N_ARGS, 1));
  if (seed % 2) assert_ok(lb_kernel_simplify(&k));
  char *got = draw_memory(args);
  machine_call(machine_load(m, &k), args, N_ARGS);
  for (size_t a = 0; a < ARRAYS; a++) {
    if (same_array(arrays[a], got + a * ARRAY_BYTES, want + a * ARRAY_BYTES))
      continue;
    print_error("seed %llu, level %u, features %x: array of %s\n",
                (unsigned long long)seed, m->target.level, m->target.features,
                lb_dtype_name(arrays[a]));
    fail();
  }
  free(want), free(got);
  lb_kernel_fini(&k);
}

static void check_kernels(machine *m) {
  static uint64_t seed;
  for (int i = 0; i < KERNELS; i++) check(m, seed++);
}

static void random_kernels_equal_the_interpreter(void **state) {
  (void)state;
  each_machine(check_kernels);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_kernels_equal_the_interpreter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
