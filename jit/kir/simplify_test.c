// kir/simplify_test.c -- Kernels before and after simplifying, as text.
#include "kir/testkit.h"

#define IN                      \
  "%0 = param ptr.f32\n"        \
  "%1 = param ptr.i64 slot 1\n" \
  "%2 = param i64 slot 2\n"     \
  "%3 = param f32 slot 3\n"

// Both are bodies that follow IN.
static void becomes(const char *before, const char *after) {
  lb_strbuf text = {0}, want = {0}, got = {0};
  lb_strbuf_printf(&text, "%s%s", IN, before);
  lb_strbuf_printf(&want, "%s%s", IN, after);
  lb_kernel k = kernel_of(text.data);
  assert_ok(lb_kernel_simplify(&k));
  assert_ok(lb_kernel_verify(&k));
  assert_string_equal(body_of(&k, &got), want.data);
  lb_strbuf_fini(&text);
  lb_strbuf_fini(&want);
  lb_strbuf_fini(&got);
  lb_kernel_fini(&k);
}

static void constants_are_folded(void **state) {
  (void)state;
  becomes(
      "%4 = const f32 3\n%5 = const f32 0.5\n%6 = mul f32 %4 %5\n"
      "%7 = splat f32x8 %6\n%8 = neg f32x8 %7\n%9 = radd f32 %8\n"
      "store %0 %9\n",
      "%4 = const f32 -12\nstore %0 %4\n");
  becomes(
      "%4 = const i64 7\n%5 = const i64 0\n%6 = div i64 %4 %5\n"
      "store %1 %6\n",
      "%4 = const i64 0\nstore %1 %4\n");
}

static void inexact_functions_are_not_folded(void **state) {
  (void)state;
  const char *same = "%4 = const f32 3\n%5 = exp f32 %4\nstore %0 %5\n";
  becomes(same, same);
}

static void only_exact_identities_are_used_on_floats(void **state) {
  (void)state;
  becomes(
      "%4 = const f32 1\n%5 = const f32 -0\n%6 = const f32 0\n"
      "%7 = mul f32 %3 %4\n%8 = add f32 %7 %5\n%9 = sub f32 %8 %6\n"
      "%10 = div f32 %9 %4\n%11 = mul f32 %4 %10\nstore %0 %11\n",
      "store %0 %3\n");
  static const char *const unchanged[] = {
      "%4 = const f32 0\n%5 = add f32 %3 %4\nstore %0 %5\n",
      "%4 = const f32 0\n%5 = mul f32 %3 %4\nstore %0 %5\n",
      "%4 = const f32 -0\n%5 = sub f32 %3 %4\nstore %0 %5\n",
      "%4 = sub f32 %3 %3\nstore %0 %4\n",
      "%4 = eq bool %3 %3\n%5 = cast f32 %4\nstore %0 %5\n",
  };
  for (size_t i = 0; i < sizeof unchanged / sizeof *unchanged; i++)
    becomes(unchanged[i], unchanged[i]);
}

static void integers_have_more_identities(void **state) {
  (void)state;
  becomes(
      "%4 = const i64 0\n%5 = const i64 1\n%6 = const i64 -1\n"
      "%7 = add i64 %4 %2\n%8 = mul i64 %5 %7\n%9 = sub i64 %8 %4\n"
      "%10 = and i64 %9 %6\n%11 = or i64 %10 %10\n%12 = shl i64 %11 %4\n"
      "%13 = not i64 %12\n%14 = not i64 %13\n%15 = div i64 %14 %5\n"
      "%16 = min i64 %15 %15\nstore %1 %16\n",
      "store %1 %2\n");
  becomes(
      "%4 = const i64 3\n%5 = sub i64 %2 %4\n%6 = const i64 5\n"
      "%7 = add i64 %6 %5\n%8 = xor i64 %7 %7\n%9 = add i64 %8 %7\n"
      "store %1 %9\n",
      "%4 = const i64 2\n%5 = add i64 %2 %4\nstore %1 %5\n");
  becomes(
      "%4 = le bool %2 %2\n%5 = const i64 9\n%6 = select i64 %4 %5 %2\n"
      "store %1 %6\n",
      "%4 = const i64 9\nstore %1 %4\n");
}

static void equal_values_are_merged(void **state) {
  (void)state;
  becomes(
      "%4 = const i64 5\n%5 = const i64 5\n%6 = mul i64 %2 %4\n"
      "%7 = mul i64 %5 %2\n%8 = add i64 %6 %7\nstore %1 %8\n",
      "%4 = const i64 5\n%5 = mul i64 %2 %4\n%6 = add i64 %5 %5\n"
      "store %1 %6\n");
  // Not loads, because there may be stores in between, and not across branches.
  const char *loads =
      "%4 = load f32 %0\nstore %0 %3\n%6 = load f32 %0\n"
      "%7 = add f32 %4 %6\nstore %0 %7\n";
  becomes(loads, loads);
  const char *both =
      "%4 = load i64 %1\n%5 = lt bool %2 %4\nif %5\n"
      "  %7 = exp f32 %3\n  store %0 %7\nelse\n"
      "  %10 = exp f32 %3\n  store %0 %10\nend\n";
  becomes(both, both);
}

static void known_lanes_are_simplified(void **state) {
  (void)state;
  becomes(
      "%4 = splat f32x8 %3\n%5 = shuffle f32x4 %4 [7 0 0 1]\n"
      "%6 = extract f32 %5 lane 2\nstore %0 %6\n",
      "store %0 %3\n");
  becomes(
      "%4 = load f32x4 %0\n%5 = shuffle f32x4 %4 [0 1 2 3]\n"
      "%6 = cast f32x4 %5\n%7 = bitcast f32x4 %6\nstore %0 %7\n",
      "%4 = load f32x4 %0\nstore %0 %4\n");
}

static void known_masks_are_removed(void **state) {
  (void)state;
  becomes(
      "%4 = const i64 16\n%5 = tail boolx16 %4\n%6 = load f32x16 %0 %5\n"
      "store %0 %6 %5\n",
      "%4 = load f32x16 %0\nstore %0 %4\n");
  becomes(
      "%4 = const i64 0\n%5 = tail boolx4 %4\n%6 = load f32x4 %0 %5\n"
      "store %0 %6\nstore %0 %6 %5\n",
      "%4 = const f32x4 0\nstore %0 %4\n");
  becomes(
      "%4 = const boolx4 false\n%5 = splat f32x4 %3\n"
      "%6 = load f32x4 %0 %4 %5\nstore %0 %6\n",
      "%4 = splat f32x4 %3\nstore %0 %4\n");
}

static void address_computations_are_merged(void **state) {
  (void)state;
  becomes(
      "%4 = const i64 4\n%5 = ptr ptr.f32 %0 %4 disp 8\n"
      "%6 = ptr ptr.f32 %5 %2\n%7 = const i64 -1\n"
      "%8 = ptr ptr.f32 %6 %7\nstore %8 %3\n",
      "%4 = ptr ptr.f32 %0 %2 disp 20\nstore %4 %3\n");
  becomes("%4 = const i64 0\n%5 = ptr ptr.f32 %0 %4\nstore %5 %3\n",
          "store %0 %3\n");
}

static void blocks_with_a_known_outcome_are_flattened(void **state) {
  (void)state;
  becomes(
      "%4 = const bool true\nif %4\n  store %0 %3\nelse\n"
      "  %8 = neg f32 %3\n  store %0 %8\nend\n",
      "store %0 %3\n");
  becomes(
      "%4 = const bool false\nif %4\n  store %0 %3\nelse\n"
      "  %8 = neg f32 %3\n  store %0 %8\nend\nif %4\n  barrier\nend\n",
      "%4 = neg f32 %3\nstore %0 %4\n");
  becomes(
      "%4 = const i64 3\n%5 = const i64 8\n"
      "%6 = loop i64 %4 %5 %5\n  store %1 %6\nend\n"
      "%9 = loop i64 %5 %4 %4\n  store %1 %9\nend\n",
      "%4 = const i64 3\nstore %1 %4\n");
}

static void registers_with_a_known_value_are_removed(void **state) {
  (void)state;
  becomes(
      "%4 = reg f32 %3\n%5 = get f32 %4\n%6 = neg f32 %5\nset %4 %6\n"
      "%8 = get f32 %4\nstore %0 %8\n",
      "%4 = neg f32 %3\nstore %0 %4\n");
  // Set in one branch: unknown after it, but known inside.
  becomes(
      "%4 = reg f32 %3\n%5 = load i64 %1\n%6 = lt bool %5 %2\nif %6\n"
      "  %8 = exp f32 %3\n  set %4 %8\n  %10 = get f32 %4\n"
      "  store %0 %10\nend\n%13 = get f32 %4\nstore %0 %13\n",
      "%4 = reg f32 %3\n%5 = load i64 %1\n%6 = lt bool %5 %2\nif %6\n"
      "  %8 = exp f32 %3\n  set %4 %8\n  store %0 %8\nend\n"
      "%12 = get f32 %4\nstore %0 %12\n");
}

static void registers_set_in_a_loop_are_unknown_in_it(void **state) {
  (void)state;
  const char *sum =
      "%4 = const i64 0\n%5 = const i64 1\n%6 = reg f32 %3\n"
      "%7 = loop i64 %4 %2 %5\n  %8 = get f32 %6\n"
      "  %9 = mul f32 %8 %8\n  set %6 %9\nend\n"
      "%12 = get f32 %6\nstore %0 %12\n";
  becomes(sum, sum);
}

static void addresses_are_hoisted_out_of_loops(void **state) {
  (void)state;
  becomes(
      "%4 = const i64 0\n%5 = const i64 1\n%6 = loop i64 %4 %2 %5\n"
      "  %7 = loop i64 %4 %2 %5 axis 1\n"
      "    %8 = const i64 12\n    %9 = mul i64 %2 %8\n"
      "    %10 = mul i64 %6 %9\n    %11 = add i64 %10 %7\n"
      "    %12 = ptr ptr.f32 %0 %11\n    store %12 %3\n  end\nend\n",
      "%4 = const i64 0\n%5 = const i64 1\n%6 = const i64 12\n"
      "%7 = mul i64 %2 %6\n%8 = loop i64 %4 %2 %5\n"
      "  %9 = mul i64 %7 %8\n  %10 = loop i64 %4 %2 %5 axis 1\n"
      "    %11 = add i64 %9 %10\n    %12 = ptr ptr.f32 %0 %11\n"
      "    store %12 %3\n  end\nend\n");
}

static void dead_code_is_removed(void **state) {
  (void)state;
  becomes(
      "%4 = exp f32 %3\n%5 = load f32x16 %0\n%6 = const i64 0\n"
      "%7 = const i64 1\n%8 = local shared.f32 count 4\n"
      "%9 = reg f32 %3\n%10 = loop i64 %6 %2 %7\n"
      "  %11 = load i64 %1\n  %12 = lt bool %11 %2\n  if %12\n"
      "    set %9 %4\n  else\n  end\nend\n",
      "");
  becomes(
      "%4 = load i64 %1\n%5 = lt bool %4 %2\nif %5\n  store %0 %3\nelse\n"
      "  %9 = neg f32 %3\nend\n",
      "%4 = load i64 %1\n%5 = lt bool %4 %2\nif %5\n  store %0 %3\nend\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constants_are_folded),
      cmocka_unit_test(inexact_functions_are_not_folded),
      cmocka_unit_test(only_exact_identities_are_used_on_floats),
      cmocka_unit_test(integers_have_more_identities),
      cmocka_unit_test(equal_values_are_merged),
      cmocka_unit_test(known_lanes_are_simplified),
      cmocka_unit_test(known_masks_are_removed),
      cmocka_unit_test(address_computations_are_merged),
      cmocka_unit_test(blocks_with_a_known_outcome_are_flattened),
      cmocka_unit_test(registers_with_a_known_value_are_removed),
      cmocka_unit_test(registers_set_in_a_loop_are_unknown_in_it),
      cmocka_unit_test(addresses_are_hoisted_out_of_loops),
      cmocka_unit_test(dead_code_is_removed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
