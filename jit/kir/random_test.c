// kir/random_test.c -- Random kernels: text round-trips to equal bytes, and
// simplifying changes no bit of any result.
#include "kir/random.h"

enum { PROGRAMS = 1500 };

// The memory after a run; the caller frees it.
static char *run_on_numbers(const lb_kernel *k) {
  lb_karg args[N_ARGS];
  char *memory = draw_memory(args);
  assert_ok(run_kernel(k, args, N_ARGS, 2));
  return memory;
}

static void text_round_trips_to_the_same_bytes(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
    lb_kernel k, again;
    lb_strbuf text = {0}, second = {0};
    draw_kernel(seed, false, &k);
    lb_kernel_print(&k, &text);
    assert_ok(lb_kernel_parse(lb_strbuf_str(&text), &again));
    assert_true(lb_kernel_eq(&k, &again));
    lb_kernel_print(&again, &second);
    assert_string_equal(text.data, second.data);
    lb_strbuf_fini(&text);
    lb_strbuf_fini(&second);
    lb_kernel_fini(&again);
    lb_kernel_fini(&k);
  }
}

static void simplifying_changes_no_bit(void **state) {
  (void)state;
  uint64_t before = 0, after = 0;
  for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
    lb_kernel k, simple;
    draw_kernel(seed, false, &k);
    assert_ok(lb_kernel_copy(&k, &simple));
    assert_ok(lb_kernel_simplify(&simple));
    assert_ok(lb_kernel_verify(&simple));
    char *want = run_on_numbers(&k), *got = run_on_numbers(&simple);
    if (memcmp(want, got, ARRAYS * ARRAY_BYTES) != 0) {
      print_error("seed %llu\n", (unsigned long long)seed);
      fail();
    }
    before += k.n_insts, after += simple.n_insts;
    free(want), free(got);
    lb_kernel_fini(&simple);
    lb_kernel_fini(&k);
  }
  assert_true(after * 4 < before * 3);
}

static void simplifying_is_idempotent(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < PROGRAMS / 4; seed++) {
    lb_kernel k, twice;
    draw_kernel(seed, false, &k);
    assert_ok(lb_kernel_simplify(&k));
    assert_ok(lb_kernel_copy(&k, &twice));
    assert_ok(lb_kernel_simplify(&twice));
    assert_true(lb_kernel_eq(&k, &twice));
    lb_kernel_fini(&k);
    lb_kernel_fini(&twice);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_round_trips_to_the_same_bytes),
      cmocka_unit_test(simplifying_changes_no_bit),
      cmocka_unit_test(simplifying_is_idempotent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
