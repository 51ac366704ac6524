// device/reference/signal_test.c -- transforms against the sum that defines
// them.
#include "device/reference/number_test.h"

static const double TWO_PI = 6.283185307179586;

// The real (0) or imaginary (1) part of bin k over a line of x, padded to
// `length`.
static double bin(const lb_tensor *x, int64_t b, int64_t inner, int64_t k,
                  int64_t length, bool inverse, int part) {
  double sum = 0;
  for (int64_t j = 0; j < length && j < x->dims[1]; j++) {
    double re = number_at(x, (int64_t[]){b, j, inner, 0});
    double im = x->dims[3] == 2 ? number_at(x, (int64_t[]){b, j, inner, 1}) : 0;
    double a = TWO_PI * (double)(j * k % length) / (double)length;
    double c = cos(a), s = inverse ? sin(a) : -sin(a);
    sum += part == 0 ? re * c - im * s : re * s + im * c;
  }
  return inverse ? sum / (double)length : sum;
}

static void dft_one(test_case *t) {
  // Powers of two, products of small primes, primes beyond every radix.
  static const int64_t lengths[] = {1, 2, 3, 8, 12, 61, 64, 67, 97, 134, 210};
  int64_t length = lengths[case_int(t, 0, 10)], parts = case_int(t, 1, 2);
  bool inverse = case_int(t, 0, 1);
  bool half = !inverse && parts == 1 && case_int(t, 0, 1);
  int64_t n = case_int(t, 0, 1) ? length : case_int(t, 1, 2 * length);
  const int64_t x[] = {2, n, 2, parts};
  const int64_t y[] = {2, half ? length / 2 + 1 : length, 2, 2};
  lb_dtype dtype = case_int(t, 0, 1) ? LB_F32 : LB_F64;
  case_begin(t, LB_OP_DFT);
  case_attr_int(t, "inverse", inverse);
  case_attr_int(t, "onesided", half);
  case_in(t, number_random(t, dtype, 4, x));
  case_in(t, case_ints(t, &length, 1));
  case_in(t, case_ints(t, (int64_t[]){case_int(t, 0, 1) ? 1 : -3}, 1));
  t->out[0] = case_dense(t, dtype, 4, y);
  CASE_CHECK(t, case_run(t, lb_reference_DFT) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    double want = bin(&t->in[0], o[0], o[2], o[1], length, inverse, (int)o[3]);
    CASE_CHECK(t, number_near(&t->out[0], o, want, 1e-5));
  }
}
CASE_TEST(dft_of_any_length_is_the_sum, 40, dft_one)

static void one_sided_inverse_gives_the_signal_back(void **state) {
  (void)state;
  for (int64_t n = 2; n < 9; n++) {
    test_case t = {.state = (uint64_t)n};
    const int64_t x[] = {1, n, 1}, half[] = {1, n / 2 + 1, 2};
    case_begin(&t, LB_OP_DFT);
    case_attr_int(&t, "onesided", 1);
    lb_tensor signal = number_random(&t, LB_F64, 3, x);
    case_in(&t, signal);
    t.out[0] = case_dense(&t, LB_F64, 3, half);
    assert_int_equal(case_run(&t, lb_reference_DFT), LB_CODE_OK);
    case_attr_int(&t, "inverse", 1);
    t.in[0] = t.out[0];
    case_in(&t, case_ints(&t, &n, 1));
    t.out[0] = case_dense(&t, LB_F64, 3, x);
    assert_int_equal(case_run(&t, lb_reference_DFT), LB_CODE_OK);
    CASE_EACH(&t.out[0], o)
    assert_true(number_near(&t.out[0], o, number_at(&signal, o), 1e-12));
    case_end(&t);
  }
}

static void stft_windows_each_frame(void **state) {
  (void)state;
  const int64_t x[] = {1, 4, 1}, y[] = {1, 2, 2, 2}, two = 2;
  for (int rank = 2; rank <= 3; rank++) {
    test_case t = {0};
    case_begin(&t, LB_OP_STFT);
    case_in(&t, number_list(&t, LB_F32, rank, x, (double[]){1, 2, 3, 4}));
    case_in(&t, case_ints(&t, &two, 1));
    case_in(&t, number_list(&t, LB_F32, 1, &two, (double[]){1, 10}));
    t.out[0] = case_dense(&t, LB_F32, 4, y);
    assert_int_equal(case_run(&t, lb_reference_STFT), LB_CODE_OK);
    const double want[] = {21, 0, -19, 0, 43, 0, -37, 0};
    int i = 0;
    CASE_EACH(&t.out[0], o)
    assert_true(number_near(&t.out[0], o, want[i++], 1e-6));
    case_end(&t);
  }
}

static void integer_windows_reach_one(void **state) {
  (void)state;
  lb_op ops[] = {LB_OP_BlackmanWindow, LB_OP_HammingWindow, LB_OP_HannWindow};
  lb_reference_fn *fns[] = {lb_reference_BlackmanWindow,
                            lb_reference_HammingWindow,
                            lb_reference_HannWindow};
  for (int i = 0; i < 3; i++) {
    test_case t = {0};
    const int64_t n = 20, middle = 10;
    case_begin(&t, ops[i]);
    case_in(&t, case_ints(&t, &n, 1));
    t.out[0] = case_dense(&t, LB_I32, 1, &n);
    assert_int_equal(case_run(&t, fns[i]), LB_CODE_OK);
    assert_true(number_is(&t.out[0], &middle, 1));
    case_end(&t);
  }
}

static void hostile_lengths_are_refused(void **state) {
  (void)state;
  static const int64_t lengths[] = {0, -4, INT64_MAX, INT64_MIN};
  for (int i = 0; i < 4; i++) {
    test_case t = {0};
    const int64_t x[] = {1, 4, 1}, y[] = {1, 4, 2};
    case_begin(&t, LB_OP_DFT);
    case_in(&t, number_random(&t, LB_F32, 3, x));
    case_in(&t, case_ints(&t, &lengths[i], 1));
    t.out[0] = case_dense(&t, LB_F32, 3, y);
    assert_int_equal(case_run(&t, lb_reference_DFT), LB_INVALID);
    case_end(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dft_of_any_length_is_the_sum),
      cmocka_unit_test(one_sided_inverse_gives_the_signal_back),
      cmocka_unit_test(stft_windows_each_frame),
      cmocka_unit_test(integer_windows_reach_one),
      cmocka_unit_test(hostile_lengths_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
