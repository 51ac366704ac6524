// tools/feed_test.c -- tests inputs from the command line.
#include "feed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "element.h"

static limber_tensor made(const char *text, uint64_t seed) {
  limber_tensor t;
  problem p = {0};
  if (!feed_parse(text, seed, &t, &p)) fail_msg("%s", p.text);
  return t;
}

static void random_has_the_requested_dtype_and_dims(void **state) {
  (void)state;
  limber_tensor t = made("a/b=random:f32[1,3,48,320]", 1);
  assert_string_equal(t.name, "a/b");
  assert_int_equal(t.dtype, LIMBER_F32);
  assert_int_equal(t.rank, 4);
  assert_int_equal(t.dims[3], 320);
  assert_int_equal(t.bytes, 4 * 3 * 48 * 320);
  summary s = summarize(&t);
  assert_true(s.min >= -1 && s.min < -0.99 && s.max <= 1 && s.max > 0.99);
  feed_free(&t);
}

static void ranges_include_both_ends(void **state) {
  (void)state;
  limber_tensor t = made("x=random:i64[1000]{-2..2}", 1);
  summary s = summarize(&t);
  assert_true(s.min == -2 && s.max == 2);
  feed_free(&t);
  t = made("x=random:f64[1000]{5..5.5}", 1);
  s = summarize(&t);
  assert_true(s.min >= 5 && s.max <= 5.5);
  feed_free(&t);
  t = made("x=random:i64[9]{9007199254740993..9007199254740993}", 1);
  assert_true(((int64_t *)t.data)[8] == 9007199254740993);
  feed_free(&t);
}

static void equal_seeds_give_equal_elements(void **state) {
  (void)state;
  limber_tensor a = made("x=random:f16[64]", 7);
  limber_tensor b = made("x=random:f16[64]", 7);
  limber_tensor c = made("x=random:f16[64]", 8);
  assert_memory_equal(a.data, b.data, a.bytes);
  assert_memory_not_equal(a.data, c.data, a.bytes);
  feed_free(&a), feed_free(&b), feed_free(&c);
}

static void zeros_and_scalars_work(void **state) {
  (void)state;
  limber_tensor t = made("x=zeros:bf16[2,0,3]", 1);
  assert_int_equal(t.bytes, 0);
  feed_free(&t);
  t = made("x=zeros:i32[]", 1);
  assert_int_equal(t.rank, 0);
  assert_int_equal(*(int32_t *)t.data, 0);
  feed_free(&t);
}

static void other_forms_are_usage_errors(void **state) {
  (void)state;
  static const char *const bad[] = {
      "x",
      "=random:f32[1]",
      "x=random:f33[1]",
      "x=random:f32",
      "x=random:f32[",
      "x=random:f32[1",
      "x=random:f32[a]",
      "x=random:f32[-1]",
      "x=random:f32[1]{",
      "x=random:f32[1]{1..0}",
      "x=random:i64[1]{0.5..1}",
      "x=random:i64[1]{0..1}x",
      "x=random:i64[1]{0..99999999999999999999}",
      "x=random:f32[1,1,1,1,1,1,1,1,1,1,1,1,1]",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    limber_tensor t;
    problem p = {0};
    if (feed_parse(bad[i], 1, &t, &p)) fail_msg("%s was taken", bad[i]);
    assert_int_equal(p.exit, EXIT_USAGE);
  }
}

static void suggestion_is_a_form_that_works(void **state) {
  (void)state;
  const char *dims[] = {"batch", "3", "2*h+1"};
  limber_value_info info = {"x", LIMBER_F32, 3, dims};
  char text[256];
  feed_suggest(&info, text, sizeof text);
  assert_string_equal(text, "--input 'x=random:f32[1,3,64]'");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_has_the_requested_dtype_and_dims),
      cmocka_unit_test(ranges_include_both_ends),
      cmocka_unit_test(equal_seeds_give_equal_elements),
      cmocka_unit_test(zeros_and_scalars_work),
      cmocka_unit_test(other_forms_are_usage_errors),
      cmocka_unit_test(suggestion_is_a_form_that_works),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
