// device/reference/norm_test.c -- normalisation against its definition in
// double.
#include "device/reference/formula_test.h"

typedef struct stats {
  double mean, var, square, size;
  int64_t n;
} stats;

// Returns whether a and b are normalised together: they agree on every axis
// outside `axes`.
static bool same_line(int rank, const int64_t *a, const int64_t *b,
                      uint32_t axes) {
  for (int i = 0; i < rank; i++)
    if (!(axes >> i & 1) && a[i] != b[i]) return false;
  return true;
}

static stats stats_of(const lb_tensor *x, const int64_t *at, uint32_t axes) {
  stats s = {0};
  double sum = 0;
  CASE_EACH(x, i) {
    if (!same_line(x->rank, at, i, axes)) continue;
    double v = number(x, i);
    sum += v;
    s.square += v * v;
    s.size += fabs(v);
    s.n++;
  }
  s.mean = sum / (double)s.n;
  CASE_EACH(x, k)
  if (same_line(x->rank, at, k, axes))
    s.var += (number(x, k) - s.mean) * (number(x, k) - s.mean) / (double)s.n;
  return s;
}

static double tolerance(lb_dtype dtype) { return 60 * rounding(dtype); }

static void layer_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = case_dims(t, 1, 4, dims), axis = (int)case_int(t, 0, rank - 1);
  bool rms = t->seed % 2, biased = !rms && case_int(t, 0, 1);
  uint32_t axes = (1u << rank) - (1u << axis);
  lb_dtype dtype = case_float(t), result = rms ? case_float(t) : dtype;
  case_begin(t, rms ? LB_OP_RMSNormalization : LB_OP_LayerNormalization);
  case_attr_int(t, "axis", axis - rank);
  case_attr_float(t, "epsilon", 0.125f);
  case_in(t, case_numbers(t, dtype, rank, dims, -2, 2));
  case_in(t, case_numbers(t, result, rank - axis, dims + axis, -2, 2));
  if (biased) case_in(t, case_numbers(t, dtype, 1, dims + rank - 1, -2, 2));
  t->out[0] = case_dense(t, result, rank, dims);
  for (int i = axis; i < rank; i++) dims[i] = 1;
  if (!rms) t->node.n_out = 3;
  t->out[1] = case_dense(t, LB_F32, rank, dims);
  t->out[2] = case_dense(t, LB_F32, rank, dims);
  lb_reference_fn *fn =
      rms ? lb_reference_RMSNormalization : lb_reference_LayerNormalization;
  CASE_CHECK(t, case_run(t, fn) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    stats s = stats_of(&t->in[0], o, axes);
    int64_t at[LB_MAX_RANK];
    broadcast(&t->out[1], rank, o, at);
    double mean = rms ? 0 : s.mean, var = rms ? s.square / (double)s.n : s.var;
    double inv = 1 / sqrt(var + 0.125);
    double want = (number(&t->in[0], o) - mean) * inv;
    want *= number(&t->in[1], o + axis);
    if (biased) want += number(&t->in[2], o + rank - 1);
    CASE_CHECK(t, near(number(&t->out[0], o), want,
                       (tolerance(dtype) + tolerance(result))));
    if (rms) continue;
    CASE_CHECK(t, near(number(&t->out[1], at), mean, 1e-5));
    CASE_CHECK(t, near(number(&t->out[2], at), inv, 1e-5));
  }
  case_each_alone(t, fn);
}
CASE_TEST(layer_and_rms_norm_match_the_formula, 80, layer_one)

// Adds scale and bias, n elements each.
static void channels_in(test_case *t, lb_dtype dtype, int64_t n) {
  case_in(t, case_numbers(t, dtype, 1, &n, -2, 2));
  case_in(t, case_numbers(t, dtype, 1, &n, -2, 2));
}

static void instance_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = case_dims(t, 3, 4, dims);
  lb_dtype dtype = case_float(t);
  case_begin(t, LB_OP_InstanceNormalization);
  case_in(t, case_numbers(t, dtype, rank, dims, -2, 2));
  channels_in(t, dtype, dims[1]);
  case_attr_float(t, "epsilon", 0.125f);
  t->out[0] = case_dense(t, dtype, rank, dims);
  CASE_CHECK(t, case_run(t, lb_reference_InstanceNormalization) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    stats s = stats_of(&t->in[0], o, (1u << rank) - 4);
    double want = (number(&t->in[0], o) - s.mean) / sqrt(s.var + 0.125);
    want = want * number(&t->in[1], o + 1) + number(&t->in[2], o + 1);
    CASE_CHECK(t, near(number(&t->out[0], o), want, tolerance(dtype)));
  }
}
CASE_TEST(instance_norm_matches_the_formula, 30, instance_one)

static void group_one(test_case *t) {
  int64_t dims[] = {2, 6, 3, case_dim(t)}, split[] = {2, 3, 2, 3, dims[3]};
  bool per_group = t->seed % 2;
  lb_dtype dtype = case_float(t);
  case_begin(t, LB_OP_GroupNormalization);
  case_attr_int(t, "num_groups", 3);
  case_attr_float(t, "epsilon", 0.125f);
  if (per_group) case_attr_int(t, "per_group", 1);
  lb_tensor x = case_numbers(t, dtype, 4, dims, -2, 2);
  lb_tensor dense = case_dense(t, dtype, 4, dims);
  lb_tensor_copy(&x, &dense);
  case_in(t, x);
  channels_in(t, dtype, per_group ? 3 : 6);
  t->out[0] = case_dense(t, dtype, 4, dims);
  CASE_CHECK(t, case_run(t, lb_reference_GroupNormalization) == LB_CODE_OK);
  lb_tensor y = t->out[0];
  dense.rank = y.rank = 5;
  memcpy(dense.dims, split, sizeof split);
  memcpy(y.dims, split, sizeof split);
  lb_tensor_dense(&dense);
  lb_tensor_dense(&y);
  CASE_EACH(&y, o) {
    stats s = stats_of(&dense, o, 4 | 8 | 16);
    int64_t channel = per_group ? o[1] : o[1] * 2 + o[2];
    double want = (number(&dense, o) - s.mean) / sqrt(s.var + 0.125);
    want = want * number(&t->in[1], &channel) + number(&t->in[2], &channel);
    CASE_CHECK(t, near(number(&y, o), want, tolerance(dtype)));
  }
}
CASE_TEST(group_norm_scales_channels_or_groups, 30, group_one)

static void batch_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = case_dims(t, 2, 4, dims);
  bool training = t->seed % 2;
  lb_dtype dtype = case_float(t);
  case_begin(t, LB_OP_BatchNormalization);
  case_attr_float(t, "epsilon", 0.125f);
  case_attr_float(t, "momentum", 0.75f);
  case_in(t, case_numbers(t, dtype, rank, dims, -2, 2));
  channels_in(t, dtype, dims[1]);
  case_in(t, case_numbers(t, dtype, 1, &dims[1], -1, 1));
  case_in(t, case_numbers(t, dtype, 1, &dims[1], 0, 2));
  t->out[0] = case_dense(t, dtype, rank, dims);
  if (training) case_attr_int(t, "training_mode", 1);
  if (training) t->node.n_out = 3;
  t->out[1] = case_dense(t, dtype, 1, &dims[1]);
  t->out[2] = case_dense(t, dtype, 1, &dims[1]);
  CASE_CHECK(t, case_run(t, lb_reference_BatchNormalization) == LB_CODE_OK);
  double tol = tolerance(dtype);
  CASE_EACH(&t->out[0], o) {
    const int64_t *c = o + 1;
    stats s = stats_of(&t->in[0], o, ((1u << rank) - 1) & ~2u);
    double mean = number(&t->in[3], c), var = number(&t->in[4], c);
    if (training) {
      CASE_CHECK(t,
                 near(number(&t->out[1], c), mean * .75 + s.mean * .25, tol));
      CASE_CHECK(t, near(number(&t->out[2], c), var * .75 + s.var * .25, tol));
      mean = s.mean;
      var = s.var;
    }
    double want = (number(&t->in[0], o) - mean) / sqrt(var + 0.125);
    want = want * number(&t->in[1], c) + number(&t->in[2], c);
    CASE_CHECK(t, near(number(&t->out[0], o), want, tol));
  }
  case_each_alone(t, lb_reference_BatchNormalization);
}
CASE_TEST(batch_norm_uses_or_updates_the_statistics, 60, batch_one)

static void batch_norm_leaves_the_model_alone(void **state) {
  (void)state;
  test_case t = {.name = "BatchNormalization"};
  int64_t dims[] = {1, 2};
  case_begin(&t, LB_OP_BatchNormalization);
  case_in(&t, case_numbers(&t, LB_F32, 2, dims, 0, 1));
  for (int k = 1; k < 5; k++)
    case_in(&t, case_floats(&t, LB_F32, (double[]){4, 9}, 2));
  t.out[0] = case_dense(&t, LB_F32, 2, dims);
  assert_int_equal(case_run(&t, lb_reference_BatchNormalization), LB_CODE_OK);
  for (int k = 1; k < 5; k++)
    assert_true(number(&t.in[k], (int64_t[]){1}) == 9);
  case_end(&t);
}

static void lines_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = case_dims(t, 1, 4, dims), axis = (int)case_int(t, 0, rank - 1);
  int which = (int)(t->seed % 3);  // p = 1, p = 2, mean and variance
  int64_t axes[] = {axis - rank};
  lb_dtype dtype = case_float(t);
  case_begin(
      t, which < 2 ? LB_OP_LpNormalization : LB_OP_MeanVarianceNormalization);
  case_attr_int(t, "axis", axis);
  case_attr_int(t, "p", which + 1);
  case_attr_ints(t, "axes", axes, 1);
  case_in(t, case_numbers(t, dtype, rank, dims, -2, 2));
  t->out[0] = case_dense(t, dtype, rank, dims);
  CASE_CHECK(t,
             case_run(t, which < 2 ? lb_reference_LpNormalization
                                   : lb_reference_MeanVarianceNormalization) ==
                 LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    stats s = stats_of(&t->in[0], o, 1u << axis);
    double norm[] = {s.size, sqrt(s.square), sqrt(s.var) + 1e-9};
    double want = (number(&t->in[0], o) - (which < 2 ? 0 : s.mean));
    if (which == 2 && s.var < 1e-3) continue;  // only rounding errors are left
    want = norm[which] == 0 ? 0 : want / norm[which];
    CASE_CHECK(t, near(number(&t->out[0], o), want, tolerance(dtype)));
  }
}
CASE_TEST(lp_and_mean_variance_norm_work_along_any_axis, 90, lines_one)

static void a_line_of_zeros_stays_zero(void **state) {
  (void)state;
  check_example(&(example){LB_OP_LpNormalization,
                           lb_reference_LpNormalization,
                           LB_F32,
                           LB_F32,
                           2,
                           1,
                           {{0, 0}},
                           {0, 0}});
}

static void lrn_one(test_case *t) {
  int64_t dims[] = {case_dim(t), case_dim(t), case_dim(t)};
  int64_t size = case_int(t, 1, 6);
  lb_dtype dtype = case_float(t);
  case_begin(t, LB_OP_LRN);
  case_attr_int(t, "size", size);
  case_attr_float(t, "alpha", 0.5f);
  case_in(t, case_numbers(t, dtype, 3, dims, -2, 2));
  t->out[0] = case_dense(t, dtype, 3, dims);
  CASE_CHECK(t, case_run(t, lb_reference_LRN) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    double sum = 0;
    for (int64_t c = 0; c < dims[1]; c++) {
      if (c < o[1] - (size - 1) / 2 || c > o[1] + size / 2) continue;
      double v = number(&t->in[0], (int64_t[]){o[0], c, o[2]});
      sum += v * v;
    }
    double want =
        number(&t->in[0], o) / pow(1 + 0.5 / (double)size * sum, 0.75);
    CASE_CHECK(t, near(number(&t->out[0], o), want, tolerance(dtype)));
  }
}
CASE_TEST(lrn_sums_over_neighbouring_channels, 40, lrn_one)

static void groups_that_do_not_divide_are_refused(void **state) {
  (void)state;
  test_case t = {.name = "GroupNormalization"};
  int64_t dims[] = {1, 4};
  case_begin(&t, LB_OP_GroupNormalization);
  case_attr_int(&t, "num_groups", 3);
  case_in(&t, case_numbers(&t, LB_F32, 2, dims, 0, 1));
  channels_in(&t, LB_F32, 4);
  t.out[0] = case_dense(&t, LB_F32, 2, dims);
  assert_int_equal(case_run(&t, lb_reference_GroupNormalization), LB_INVALID);
  case_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layer_and_rms_norm_match_the_formula),
      cmocka_unit_test(instance_norm_matches_the_formula),
      cmocka_unit_test(group_norm_scales_channels_or_groups),
      cmocka_unit_test(batch_norm_uses_or_updates_the_statistics),
      cmocka_unit_test(batch_norm_leaves_the_model_alone),
      cmocka_unit_test(lp_and_mean_variance_norm_work_along_any_axis),
      cmocka_unit_test(a_line_of_zeros_stays_zero),
      cmocka_unit_test(lrn_sums_over_neighbouring_channels),
      cmocka_unit_test(groups_that_do_not_divide_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
