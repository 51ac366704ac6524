// device/reference/pool_test.c -- pooling against its definition, tap by tap.
#include "device/reference/number_test.h"
#include "device/reference/window.h"

typedef struct spec {
  int n;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pads[6];
  bool count_pads;
} spec;

static void random_spec(test_case *t, spec *s) {
  s->n = (int)case_int(t, 1, 3);
  s->count_pads = case_int(t, 0, 1);
  bool ceil_mode = case_int(t, 0, 1);
  for (int d = 0; d < s->n; d++) {
    s->kernel[d] = case_int(t, 1, 3);
    s->stride[d] = case_int(t, 1, 3);
    s->dilation[d] = case_int(t, 1, 2);
    s->pads[d] = case_int(t, 0, s->kernel[d] - 1);
    s->pads[s->n + d] = case_int(t, 0, s->kernel[d] - 1);
    int64_t reach = (s->kernel[d] - 1) * s->dilation[d] + 1;
    s->in[d] = case_int(t, reach, reach + 6);
    int64_t slack = s->in[d] + s->pads[d] + s->pads[s->n + d] - reach;
    s->out[d] = (slack + (ceil_mode ? s->stride[d] - 1 : 0)) / s->stride[d] + 1;
    if ((s->out[d] - 1) * s->stride[d] >= s->in[d] + s->pads[d]) s->out[d]--;
  }
}

typedef struct window_result {
  double max, sum, squares;
  int64_t count, padded, best;
} window_result;

static window_result window_of(const lb_tensor *x, const spec *s,
                               const int64_t *o) {
  window_result r = {.max = -INFINITY};
  int64_t tap[3] = {0}, at[5] = {o[0], o[1]};
  do {
    bool inside = true, in_pads = true;
    int64_t flat = o[0] * x->dims[1] + o[1];
    for (int d = 0; d < s->n; d++) {
      at[2 + d] =
          o[2 + d] * s->stride[d] - s->pads[d] + tap[d] * s->dilation[d];
      inside &= at[2 + d] >= 0 && at[2 + d] < s->in[d];
      in_pads &= at[2 + d] < s->in[d] + s->pads[s->n + d];
      flat = flat * s->in[d] + at[2 + d];
    }
    r.padded += in_pads;
    if (!inside) continue;
    double v = number_at(x, at);
    if (v > r.max) r.max = v, r.best = flat;
    r.sum += v, r.squares += v * v, r.count++;
  } while (lb_next_index(s->n, s->kernel, tap));
  return r;
}

static void pool_one(test_case *t) {
  spec s;
  random_spec(t, &s);
  int which = (int)case_int(t, 0, 2);
  lb_dtype dtype = number_float(t);
  if (which == 0 && case_int(t, 0, 3) == 0) dtype = LB_I8;
  case_begin(t, LB_OP_MaxPool);
  case_attr_ints(t, "kernel_shape", s.kernel, s.n);
  case_attr_ints(t, "strides", s.stride, s.n);
  case_attr_ints(t, "dilations", s.dilation, s.n);
  case_attr_ints(t, "pads", s.pads, 2 * s.n);
  case_attr_int(t, "count_include_pad", s.count_pads);
  int64_t dims[5] = {case_int(t, 1, 2), case_int(t, 1, 3)};
  memcpy(dims + 2, s.in, sizeof s.in);
  case_in(t, number_random(t, dtype, s.n + 2, dims));
  memcpy(dims + 2, s.out, sizeof s.out);
  t->out[0] = case_dense(t, dtype, s.n + 2, dims);
  t->out[1] = case_dense(t, LB_I64, s.n + 2, dims);
  t->node.n_out = which == 0 ? 2 : 1;
  lb_reference_fn *const fns[] = {
      lb_reference_MaxPool, lb_reference_AveragePool, lb_reference_LpPool};
  CASE_CHECK(t, case_run(t, fns[which]) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    window_result r = window_of(&t->in[0], &s, o);
    double divisor = (double)(s.count_pads ? r.padded : r.count);
    if (which == 0) {
      CASE_CHECK(t, number_is(&t->out[0], o, r.max));
      CASE_CHECK(t, case_int_at(&t->out[1], o) == r.best);
    } else {
      double want = which == 1 ? r.sum / divisor : sqrt(r.squares);
      CASE_CHECK(t, number_near(&t->out[0], o, want, 8e-3));
    }
    if (which == 1 && dtype == LB_F64)
      CASE_CHECK(t, number_is(&t->out[0], o, r.sum / divisor));
  }
}
CASE_TEST(pools_take_the_taps_inside_the_input, 200, pool_one)

static void indices_may_be_column_major(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t x[] = {1, 2, 2, 3}, y[] = {1, 2, 1, 1};
  case_begin(&t, LB_OP_MaxPool);
  t.node.n_out = 2;
  case_attr_ints(&t, "kernel_shape", (int64_t[]){2, 3}, 2);
  case_attr_int(&t, "storage_order", 1);
  case_in(&t, number_list(&t, LB_F32, 4, x,
                          (double[]){0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}));
  t.out[1] = case_dense(&t, LB_I64, 4, y);  // the values are not wanted
  assert_int_equal(case_run(&t, lb_reference_MaxPool), LB_CODE_OK);
  const int64_t want[] = {2, 6 + 5};
  assert_memory_equal(t.out[1].data, want, sizeof want);
  case_end(&t);
}

static void global_pools_reduce_each_channel(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t x[] = {1, 2, 2}, y[] = {1, 2, 1};
  case_begin(&t, LB_OP_GlobalAveragePool);
  case_in(&t, number_list(&t, LB_F32, 3, x, (double[]){1, 2, -3, 4}));
  t.out[0] = case_dense(&t, LB_F32, 3, y);
  assert_int_equal(case_run(&t, lb_reference_GlobalAveragePool), LB_CODE_OK);
  assert_memory_equal(t.out[0].data, ((float[]){1.5f, 0.5f}), 8);
  assert_int_equal(case_run(&t, lb_reference_GlobalMaxPool), LB_CODE_OK);
  assert_memory_equal(t.out[0].data, ((float[]){2, 4}), 8);
  assert_int_equal(case_run(&t, lb_reference_GlobalLpPool), LB_CODE_OK);
  assert_true(number_near(&t.out[0], (int64_t[]){0, 1, 0}, 5, 1e-6));
  case_end(&t);
}

static void unpooling_refuses_indices_outside(void **state) {
  (void)state;
  static const int64_t indices[] = {3, 4, -1};
  for (int i = 0; i < 3; i++) {
    test_case t = {0};
    const int64_t one[] = {1, 1, 1}, y[] = {1, 1, 4};
    case_begin(&t, LB_OP_MaxUnpool);
    case_attr_ints(&t, "kernel_shape", (int64_t[]){4}, 1);
    case_in(&t, number_list(&t, LB_F32, 3, one, (double[]){7}));
    case_in(&t, case_i64(&t, 3, one, &indices[i]));
    t.out[0] = case_dense(&t, LB_F32, 3, y);
    lb_code code = case_run(&t, lb_reference_MaxUnpool);
    assert_int_equal(code, i == 0 ? LB_CODE_OK : LB_INVALID);
    if (i == 0) assert_memory_equal(t.out[0].data, ((float[]){0, 0, 0, 7}), 16);
    case_end(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pools_take_the_taps_inside_the_input),
      cmocka_unit_test(indices_may_be_column_major),
      cmocka_unit_test(global_pools_reduce_each_channel),
      cmocka_unit_test(unpooling_refuses_indices_outside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
