// device/reference/loss_test.c -- losses against their definition.
#include "device/reference/formula_test.h"

enum { IGNORED = -1 };

// log(softmax) over the classes for SoftmaxCrossEntropyLoss, else x itself.
static double log_prob(const test_case *t, const int64_t *at) {
  if (t->node.op == LB_OP_NegativeLogLikelihoodLoss)
    return number(&t->in[0], at);
  double sum = 0;
  int64_t i[LB_MAX_RANK];
  memcpy(i, at, sizeof i);
  for (i[1] = 0; i[1] < t->in[0].dims[1]; i[1]++)
    sum += exp(number(&t->in[0], i));
  return number(&t->in[0], at) - log(sum);
}

static void inputs(test_case *t, lb_dtype dtype, bool weighted) {
  int64_t dims[] = {case_int(t, 1, 4), case_int(t, 1, 6), case_int(t, 1, 5)};
  int64_t labels[] = {dims[0], dims[2]};
  case_in(t, case_numbers(t, dtype, 3, dims, -3, 3));
  lb_tensor y = case_dense(t, LB_I64, 2, labels);
  CASE_EACH(&y, i) put(&y, i, (double)case_int(t, -1, dims[1] - 1));
  case_in(t, case_scatter(t, &y));
  if (weighted) case_in(t, case_numbers(t, dtype, 1, &dims[1], 0.5, 2));
}

static void loss_one(test_case *t) {
  bool softmax = t->seed % 2, weighted = t->seed / 2 % 2;
  const char *how = (const char *[]){"none", "sum", "mean"}[t->seed / 4 % 3];
  lb_dtype dtype = case_float(t);
  case_begin(t, softmax ? LB_OP_SoftmaxCrossEntropyLoss
                        : LB_OP_NegativeLogLikelihoodLoss);
  case_attr_int(t, "ignore_index", IGNORED);
  case_attr_str(t, "reduction", how);
  inputs(t, dtype, weighted);
  const lb_tensor *y = &t->in[1];
  t->out[0] = case_dense(t, dtype, how[0] == 'n' ? 2 : 0, y->dims);
  t->out[1] = case_dense(t, dtype, 3, t->in[0].dims);
  if (softmax) t->node.n_out = 2;
  lb_reference_fn *fn = softmax ? lb_reference_SoftmaxCrossEntropyLoss
                                : lb_reference_NegativeLogLikelihoodLoss;
  CASE_CHECK(t, case_run(t, fn) == LB_CODE_OK);
  double sum = 0, weight = 0, tol = 100 * rounding(dtype);
  CASE_EACH(y, i) {
    int64_t at[LB_MAX_RANK] = {i[0], whole(y, i), i[1]};
    double w = at[1] == IGNORED ? 0 : weighted ? number(&t->in[2], at + 1) : 1;
    double loss = at[1] == IGNORED ? 0 : -log_prob(t, at) * w;
    if (how[0] == 'n') CASE_CHECK(t, near(number(&t->out[0], i), loss, tol));
    sum += loss;
    weight += w;
  }
  if (how[0] == 'm') sum /= weight;
  if (how[0] != 'n') CASE_CHECK(t, near(number(&t->out[0], NULL), sum, tol));
  CASE_EACH(&t->out[1], k)
  if (softmax) CASE_CHECK(t, near(number(&t->out[1], k), log_prob(t, k), tol));
  case_each_alone(t, fn);
}
CASE_TEST(losses_match_their_definition, 120, loss_one)

static void labels_out_of_range_are_refused(void **state) {
  (void)state;
  for (int64_t label = -1; label < 4; label++) {
    test_case t = {.name = "NegativeLogLikelihoodLoss"};
    int64_t dims[] = {1, 3}, one = 1;
    case_begin(&t, LB_OP_NegativeLogLikelihoodLoss);
    case_in(&t, case_numbers(&t, LB_F32, 2, dims, -1, 1));
    case_in(&t, case_i64(&t, 1, &one, &label));
    t.out[0] = case_dense(&t, LB_F32, 0, NULL);
    assert_int_equal(case_run(&t, lb_reference_NegativeLogLikelihoodLoss),
                     label < 0 || label > 2 ? LB_INVALID : LB_CODE_OK);
    case_end(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_match_their_definition),
      cmocka_unit_test(labels_out_of_range_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
