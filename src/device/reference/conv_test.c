// device/reference/conv_test.c -- convolutions against their definition, a sum
// over all taps of a window.
#include "device/reference/number_test.h"
#include "device/reference/window.h"

typedef struct spec {  // sizes and attributes of a convolution
  int n;               // number of spatial axes
  int64_t group, in[LB_MAX_RANK], out[LB_MAX_RANK], kernel[LB_MAX_RANK];
  int64_t stride[LB_MAX_RANK], dilation[LB_MAX_RANK], pads[2 * LB_MAX_RANK];
} spec;

static void random_spec(test_case *t, spec *s) {
  s->n = (int)case_int(t, 1, 3);
  s->group = case_int(t, 1, 3);
  for (int d = 0; d < s->n; d++) {
    s->kernel[d] = case_int(t, 1, 3);
    s->stride[d] = case_int(t, 1, 3);
    s->dilation[d] = case_int(t, 1, 2);
    s->pads[d] = case_int(t, 0, 2);
    s->pads[s->n + d] = case_int(t, 0, 2);
    s->in[d] = case_int(t, 1, s->n == 1 ? 70 : 9);
  }
}

static void add_attrs(test_case *t, spec *s) {
  case_attr_int(t, "group", s->group);
  case_attr_ints(t, "strides", s->stride, s->n);
  case_attr_ints(t, "dilations", s->dilation, s->n);
  case_attr_ints(t, "pads", s->pads, 2 * s->n);
}

// Sets dims to a, b and the spatial dims.
static void full(const spec *s, const int64_t *spatial, int64_t a, int64_t b,
                 int64_t *dims) {
  dims[0] = a, dims[1] = b;
  memcpy(dims + 2, spatial, (size_t)s->n * sizeof *spatial);
}

// The element of y at index o, without the bias.
static double conv_sum(const test_case *t, const spec *s, const int64_t *o) {
  const lb_tensor *x = &t->in[0], *w = &t->in[1];
  int64_t per_in = w->dims[1], per_out = w->dims[0] / s->group;
  int64_t wi[LB_MAX_RANK] = {o[1]}, xi[LB_MAX_RANK] = {o[0]};
  double sum = 0;
  for (wi[1] = 0; wi[1] < per_in; wi[1]++) {
    memset(wi + 2, 0, (size_t)s->n * sizeof *wi);
    do {
      bool inside = true;
      xi[1] = o[1] / per_out * per_in + wi[1];
      for (int d = 0; d < s->n; d++) {
        xi[2 + d] =
            o[2 + d] * s->stride[d] - s->pads[d] + wi[2 + d] * s->dilation[d];
        inside &= xi[2 + d] >= 0 && xi[2 + d] < s->in[d];
      }
      if (inside) sum += number_at(x, xi) * number_at(w, wi);
    } while (lb_next_index(s->n, s->kernel, wi + 2));
  }
  return sum;
}

static void conv_one(test_case *t) {
  spec s;
  int64_t dims[LB_MAX_RANK];
  random_spec(t, &s);
  for (int d = 0; d < s.n; d++) {
    int64_t reach = s.in[d] + s.pads[d] + s.pads[s.n + d] -
                    (s.kernel[d] - 1) * s.dilation[d] - 1;
    s.out[d] = reach < 0 ? 0 : reach / s.stride[d] + 1;
  }
  int64_t in = case_int(t, 1, 3), out = case_int(t, 1, 6);
  lb_dtype dtype = number_float(t);
  case_begin(t, LB_OP_Conv);
  add_attrs(t, &s);
  full(&s, s.in, case_int(t, 0, 4) ? 1 : 2, in * s.group, dims);
  int64_t batch = dims[0], channels = out * s.group;
  case_in(t, number_random(t, dtype, s.n + 2, dims));
  full(&s, s.kernel, channels, in, dims);
  case_in(t, number_random(t, dtype, s.n + 2, dims));
  bool bias = case_int(t, 0, 1);
  if (bias) case_in(t, number_random(t, dtype, 1, &channels));
  full(&s, s.out, batch, channels, dims);
  t->out[0] = case_dense(t, dtype, s.n + 2, dims);
  CASE_CHECK(t, case_run(t, lb_reference_Conv) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    double sum = conv_sum(t, &s, o);
    if (bias) sum += number_at(&t->in[2], &o[1]);
    CASE_CHECK(t, number_is(&t->out[0], o, sum));
  }
}
CASE_TEST(conv_is_the_sum_over_windows, 150, conv_one)

// The element of a transposed convolution at index o: the sum over the inputs
// that contribute to it.
static double transposed_sum(const test_case *t, const spec *s,
                             const int64_t *o) {
  const lb_tensor *x = &t->in[0], *w = &t->in[1];
  int64_t per_out = w->dims[1], per_in = w->dims[0] / s->group;
  int64_t wi[LB_MAX_RANK] = {0}, xi[LB_MAX_RANK] = {o[0]};
  double sum = 0;
  wi[1] = o[1] % per_out;
  for (int64_t c = 0; c < per_in; c++) {
    xi[1] = wi[0] = o[1] / per_out * per_in + c;
    memset(xi + 2, 0, (size_t)s->n * sizeof *xi);
    do {
      memset(wi + 2, 0, (size_t)s->n * sizeof *wi);
      do {
        bool hit = true;
        for (int d = 0; d < s->n; d++)
          hit &= xi[2 + d] * s->stride[d] + wi[2 + d] * s->dilation[d] -
                     s->pads[d] ==
                 o[2 + d];
        if (hit) sum += number_at(x, xi) * number_at(w, wi);
      } while (lb_next_index(s->n, s->kernel, wi + 2));
    } while (lb_next_index(s->n, s->in, xi + 2));
  }
  return sum;
}

static void transposed_one(test_case *t) {
  spec s;
  int64_t dims[LB_MAX_RANK];
  random_spec(t, &s);
  if (s.n == 3) s.n = 2;
  for (int d = 0; d < s.n; d++) {
    s.in[d] = case_int(t, 1, 5);
    s.pads[d] = case_int(t, 0, 1), s.pads[s.n + d] = case_int(t, 0, 1);
    s.out[d] = (s.in[d] - 1) * s.stride[d] + (s.kernel[d] - 1) * s.dilation[d] +
               1 - s.pads[d] - s.pads[s.n + d];
    if (s.out[d] < 0) s.out[d] = 0;
  }
  int64_t in = case_int(t, 1, 3), out = case_int(t, 1, 4);
  case_begin(t, LB_OP_ConvTranspose);
  add_attrs(t, &s);
  full(&s, s.in, 1, in * s.group, dims);
  case_in(t, number_random(t, LB_F32, s.n + 2, dims));
  full(&s, s.kernel, in * s.group, out, dims);
  case_in(t, number_random(t, LB_F32, s.n + 2, dims));
  full(&s, s.out, 1, out * s.group, dims);
  t->out[0] = case_dense(t, LB_F32, s.n + 2, dims);
  CASE_CHECK(t, case_run(t, lb_reference_ConvTranspose) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o)
  CASE_CHECK(t, number_is(&t->out[0], o, transposed_sum(t, &s, o)));
}
CASE_TEST(conv_transpose_sums_all_contributing_inputs, 100, transposed_one)

static void same_upper_and_lower_place_the_odd_padding(void **state) {
  (void)state;
  for (int lower = 0; lower < 2; lower++) {
    test_case t = {0};
    const int64_t x[] = {1, 1, 3}, w[] = {1, 1, 2};
    case_begin(&t, LB_OP_Conv);
    case_attr_str(&t, "auto_pad", lower ? "SAME_LOWER" : "SAME_UPPER");
    case_in(&t, number_list(&t, LB_F32, 3, x, (double[]){1, 2, 3}));
    case_in(&t, number_list(&t, LB_F32, 3, w, (double[]){10, 100}));
    t.out[0] = case_dense(&t, LB_F32, 3, x);
    assert_int_equal(case_run(&t, lb_reference_Conv), LB_CODE_OK);
    const float upper_want[] = {210, 320, 30}, lower_want[] = {100, 210, 320};
    assert_memory_equal(t.out[0].data, lower ? lower_want : upper_want, 12);
    case_end(&t);
  }
}

static void integer_conv_pads_with_the_zero_point(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t x[] = {1, 1, 2}, w[] = {1, 1, 2}, y[] = {1, 1, 3};
  case_begin(&t, LB_OP_ConvInteger);
  case_attr_ints(&t, "pads", (int64_t[]){1, 1}, 2);
  case_in(&t, number_list(&t, LB_U8, 3, x, (double[]){5, 7}));
  case_in(&t, number_list(&t, LB_U8, 3, w, (double[]){1, 2}));
  case_in(&t, number_list(&t, LB_U8, 0, x, (double[]){4}));
  t.out[0] = case_dense(&t, LB_I32, 3, y);
  assert_int_equal(case_run(&t, lb_reference_ConvInteger), LB_CODE_OK);
  const int32_t want[] = {2, 7, 3};
  assert_memory_equal(t.out[0].data, want, sizeof want);
  case_end(&t);
}

static void causal_conv_carries_its_state(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t x[] = {1, 1, 2}, w[] = {1, 1, 3}, past[] = {1, 1, 2};
  case_begin(&t, LB_OP_CausalConvWithState);
  t.node.n_out = 2;
  case_in(&t, number_list(&t, LB_F32, 3, x, (double[]){3, 4}));
  case_in(&t, number_list(&t, LB_F32, 3, w, (double[]){100, 10, 1}));
  case_in(&t, (lb_tensor){0});
  case_in(&t, number_list(&t, LB_F32, 3, past, (double[]){1, 2}));
  t.out[0] = case_dense(&t, LB_F32, 3, x);
  t.out[1] = case_dense(&t, LB_F32, 3, past);
  assert_int_equal(case_run(&t, lb_reference_CausalConvWithState), LB_CODE_OK);
  const float y[] = {123, 234}, next[] = {3, 4};
  assert_memory_equal(t.out[0].data, y, sizeof y);
  assert_memory_equal(t.out[1].data, next, sizeof next);
  case_end(&t);
}

static void hostile_attributes_are_refused(void **state) {
  (void)state;
  static const int64_t bad[] = {0, -1, INT64_MAX};
  for (int i = 0; i < 3; i++) {
    test_case t = {0};
    const int64_t x[] = {1, 1, 3};
    case_begin(&t, LB_OP_Conv);
    case_attr_ints(&t, i == 1 ? "dilations" : "strides", &bad[i], 1);
    case_in(&t, number_random(&t, LB_F32, 3, x));
    case_in(&t, number_random(&t, LB_F32, 3, x));
    t.out[0] = case_dense(&t, LB_F32, 3, (int64_t[]){1, 1, 1});
    assert_int_equal(case_run(&t, lb_reference_Conv), LB_INVALID);
    case_end(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(conv_is_the_sum_over_windows),
      cmocka_unit_test(conv_transpose_sums_all_contributing_inputs),
      cmocka_unit_test(same_upper_and_lower_place_the_odd_padding),
      cmocka_unit_test(integer_conv_pads_with_the_zero_point),
      cmocka_unit_test(causal_conv_carries_its_state),
      cmocka_unit_test(hostile_attributes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
