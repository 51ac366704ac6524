// base/dtype_test.c -- f16 and bf16 conversions, checked over all values.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/dtype.h"

static void every_dtype_has_name_and_size(void **state) {
  (void)state;
  assert_int_equal(lb_dtype_size(LB_NONE), 0);
  assert_string_equal(lb_dtype_name(LB_NONE), "none");
  assert_int_equal(lb_dtype_size(LB_BF16), 2);
  assert_string_equal(lb_dtype_name(LB_I64), "int64");
  for (int t = LB_NONE + 1; t < LB_DTYPE_COUNT; t++)
    assert_true(lb_dtype_size((lb_dtype)t) > 0);
  assert_int_equal(lb_dtype_size((lb_dtype)99), 0);
}

static void classes_do_not_overlap(void **state) {
  (void)state;
  assert_true(lb_dtype_is_float(LB_F16) && !lb_dtype_is_integer(LB_F16));
  assert_true(lb_dtype_is_integer(LB_U8) && !lb_dtype_is_signed(LB_U8));
  assert_true(lb_dtype_is_integer(LB_I8) && lb_dtype_is_signed(LB_I8));
  assert_false(lb_dtype_is_integer(LB_BOOL) || lb_dtype_is_float(LB_BOOL));
}

// The value of an f16, straight from its definition.
static double half_value(uint16_t h) {
  int exp = h >> 10 & 31;
  double mant = h & 0x3ff;
  double v = exp ? ldexp(1024 + mant, exp - 25) : ldexp(mant, -24);
  return h & 0x8000 ? -v : v;
}

static void every_f16_survives_the_round_trip(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x10000; h++) {
    float f = lb_f16_to_f32((uint16_t)h);
    if ((h & 0x7fff) > 0x7c00) {
      assert_true(isnan(f));
      assert_true(isnan(lb_f16_to_f32(lb_f32_to_f16(f))));
      continue;
    }
    if ((h & 0x7fff) < 0x7c00) assert_true(f == half_value((uint16_t)h));
    assert_int_equal(lb_f32_to_f16(f), h);
    assert_int_equal(lb_f64_to_f16((double)f), h);
  }
}

// Between neighbours: below the midpoint rounds down, above up, ties to even.
static void f16_rounds_to_nearest_even(void **state) {
  (void)state;
  for (uint16_t h = 0; h < 0x7bff; h++) {
    double low = half_value(h), high = half_value((uint16_t)(h + 1));
    double mid = (low + high) / 2;
    uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
    assert_int_equal(lb_f64_to_f16(mid), even);
    assert_int_equal(lb_f64_to_f16(nextafter(mid, 0)), h);
    assert_int_equal(lb_f64_to_f16(nextafter(mid, high)), h + 1);
    assert_int_equal(lb_f32_to_f16((float)mid), even);
    assert_int_equal(lb_f32_to_f16(nextafterf((float)mid, 0)), h);
    assert_int_equal(lb_f32_to_f16(-nextafterf((float)mid, (float)high)),
                     0x8000 | (h + 1));
  }
}

static void f16_overflows_to_infinity(void **state) {
  (void)state;
  assert_int_equal(lb_f32_to_f16(65519.996f), 0x7bff);
  assert_int_equal(lb_f32_to_f16(65520.0f), 0x7c00);
  assert_int_equal(lb_f64_to_f16(-1e300), 0xfc00);
  assert_int_equal(lb_f64_to_f16(INFINITY), 0x7c00);
  assert_int_equal(lb_f64_to_f16(5e-324), 0);
  assert_int_equal(lb_f64_to_f16(-0.0), 0x8000);
}

static void doubles_round_once(void **state) {
  (void)state;
  // Above a tie by less than float precision.
  double d = 1.0 + 0x1p-11 + 0x1p-40;
  assert_int_equal(lb_f64_to_f16(d), 0x3c01);
  assert_int_equal(lb_f32_to_f16((float)d), 0x3c00);
}

static void bf16_is_the_rounded_upper_half(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x10000; h++) {
    float f = lb_bf16_to_f32((uint16_t)h);
    if (isnan(f))
      assert_true(isnan(lb_bf16_to_f32(lb_f32_to_bf16(f))));
    else
      assert_int_equal(lb_f32_to_bf16(f), h);
  }
  assert_int_equal(lb_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);     // tie, even
  assert_int_equal(lb_f32_to_bf16(1.0f + 0x1.8p-7f), 0x3f82);   // tie, odd
  assert_int_equal(lb_f32_to_bf16(1.0f + 0x1.01p-8f), 0x3f81);  // above
  assert_int_equal(lb_f32_to_bf16(3.4028235e38f), 0x7f80);
  uint32_t bits = 0x7f800001;  // a NaN whose upper half is infinity
  float nan_low;
  memcpy(&nan_low, &bits, sizeof bits);
  assert_true(isnan(lb_bf16_to_f32(lb_f32_to_bf16(nan_low))));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_dtype_has_name_and_size),
      cmocka_unit_test(classes_do_not_overlap),
      cmocka_unit_test(every_f16_survives_the_round_trip),
      cmocka_unit_test(f16_rounds_to_nearest_even),
      cmocka_unit_test(f16_overflows_to_infinity),
      cmocka_unit_test(doubles_round_once),
      cmocka_unit_test(bf16_is_the_rounded_upper_half),
  };
  return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
