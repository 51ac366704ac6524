// kir/num_test.c -- Conversions round once.
#include "kir/testkit.h"

#include <math.h>

#include "kir/num.h"

static uint64_t seed = 1;

static uint64_t draw(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return seed >> 32;
}

// The bfloat16 nearest to an exact value, found among neighbours with long
// double, which holds sums and products of bfloat16 with close exponents.
static uint16_t nearest_bf16(long double x) {
  uint16_t best = lb_f32_to_bf16((float)x);
  for (int d = -1; d <= 1; d++) {
    uint16_t h = (uint16_t)(lb_f32_to_bf16((float)x) + d);
    long double error = fabsl((long double)lb_bf16_to_f32(h) - x);
    long double best_error = fabsl((long double)lb_bf16_to_f32(best) - x);
    if (error < best_error || (error == best_error && !(h & 1))) best = h;
  }
  return best;
}

static void bf16_is_rounded_once(void **state) {
  (void)state;
  // Just above a tie: rounding to float first would give the tie.
  assert_int_equal(lb_knum_bf16(1.0 + 0x1p-8 + 0x1p-40), 0x3f81);
  assert_int_equal(lb_knum_bf16(1.0 + 0x1p-8), 0x3f80);
  assert_int_equal(lb_knum_bf16(1.0 + 0x1p-8 - 0x1p-40), 0x3f80);
  assert_int_equal(lb_knum_bf16(INFINITY), 0x7f80);
  assert_int_equal(lb_knum_bf16(-1e300), 0xff80);
  assert_int_equal(lb_knum_bf16(-0.0), 0x8000);
  assert_true(isnan(lb_bf16_to_f32(lb_knum_bf16(NAN))));
  int64_t tie = (INT64_C(1) << 62) + (INT64_C(1) << 54);
  assert_int_equal(lb_knum_bf16_i(tie), 0x5e80);
  assert_int_equal(lb_knum_bf16_i(tie + 1), 0x5e81);
  assert_int_equal(lb_knum_bf16_i(-tie - 1), 0xde81);
  assert_int_equal(lb_knum_bf16_i(INT64_MIN), 0xdf00);
  assert_int_equal(lb_knum_bf16_u(UINT64_MAX), 0x5f80);
}

static void fma_of_f16_and_bf16_rounds_once(void **state) {
  (void)state;
  // A tie, and a much smaller summand that decides it.
  double one = 1, tie = 1 + 0x1p-8, tiny = 0x1p-100;
  assert_int_equal(lb_knum_bf16(lb_knum_fma(tie, one, tiny)), 0x3f81);
  assert_int_equal(lb_knum_bf16(lb_knum_fma(tie, one, -tiny)), 0x3f80);
  assert_int_equal(lb_knum_bf16(lb_knum_fma(-tie, one, -tiny)), 0xbf81);
  assert_int_equal(lb_knum_bf16(lb_knum_fma(one, tiny, tie)), 0x3f81);
  assert_true(isinf(lb_knum_fma(INFINITY, 1, 1)));
  assert_true(isnan(lb_knum_fma(INFINITY, 1, -INFINITY)));
  for (int i = 0; i < 20000; i++) {
    float v[3];
    for (int j = 0; j < 3; j++)  // exponents near 0: exact in long double
      v[j] = lb_bf16_to_f32(
          (uint16_t)(draw() % 0x800 + 0x3c00 + (draw() & 0x8000)));
    long double exact =
        (long double)v[0] * (long double)v[1] + (long double)v[2];
    uint16_t got =
        lb_knum_bf16(lb_knum_fma((double)v[0], (double)v[1], (double)v[2]));
    if (exact != 0) assert_int_equal(got, nearest_bf16(exact));
  }
}

static void out_of_range_casts_follow_kir_h(void **state) {
  (void)state;
  assert_int_equal(lb_knum_i32(2147483647.5), 2147483647);
  assert_int_equal(lb_knum_i32(2147483648.0), INT32_MIN);
  assert_int_equal(lb_knum_i32(-2147483648.5), INT32_MIN);
  assert_int_equal(lb_knum_i32(NAN), INT32_MIN);
  assert_int_equal(lb_knum_i32(-1.9), -1);
  assert_true(lb_knum_i64(0x1p63) == INT64_MIN);
  assert_true(lb_knum_i64(NAN) == INT64_MIN);
  assert_true(lb_knum_u64(0x1p63) == UINT64_C(1) << 63);
  assert_true(lb_knum_u64(-1) == UINT64_MAX);
  assert_true(lb_knum_u64(NAN) == UINT64_C(1) << 63);
  assert_int_equal(lb_knum_bits(LB_U8, 300), 44);
  assert_int_equal(lb_knum_bits(LB_I8, -1), 0xff);
  assert_int_equal(lb_knum_bits(LB_U32, -1), 0xffffffff);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bf16_is_rounded_once),
      cmocka_unit_test(fma_of_f16_and_bf16_rounds_once),
      cmocka_unit_test(out_of_range_casts_follow_kir_h),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
