// device/reference/random_test.c -- random tensors have the right distribution,
// and are reproducible for a seed.
#include "device/reference/case_test.h"

#include <math.h>

#define COUNT 100000

static lb_tensor random_tensor(test_case *t, lb_reference_fn *fn,
                               lb_dtype dtype) {
  t->out[0] = case_dense(t, dtype, 1, (int64_t[]){COUNT});
  assert_int_equal(case_run(t, fn), LB_CODE_OK);
  lb_tensor wide = case_dense(t, LB_F64, 1, (int64_t[]){COUNT});
  assert_false(lb_failed(lb_reference_convert(&t->out[0], &wide)));
  return wide;
}

static void moments(const lb_tensor *x, double *mean, double *deviation) {
  const double *v = x->data;
  double sum = 0, squares = 0;
  for (int i = 0; i < COUNT; i++) sum += v[i];
  for (int i = 0; i < COUNT; i++)
    squares += (v[i] - sum / COUNT) * (v[i] - sum / COUNT);
  *mean = sum / COUNT;
  *deviation = sqrt(squares / COUNT);
}

static void normal_numbers_have_their_moments(void **state) {
  (void)state;
  for (lb_dtype dtype = LB_F32; dtype <= LB_BF16; dtype++) {
    test_case t = {.name = "normal"};
    double mean, deviation;
    case_begin(&t, LB_OP_RandomNormal);
    case_attr_float(&t, "mean", 3);
    case_attr_float(&t, "scale", 2);
    lb_tensor x = random_tensor(&t, lb_reference_RandomNormal, dtype);
    moments(&x, &mean, &deviation);
    assert_true(fabs(mean - 3) < 0.05 && fabs(deviation - 2) < 0.05);
    int within = 0;
    for (int i = 0; i < COUNT; i++)
      within += fabs(((double *)x.data)[i] - 3) < 2;
    assert_true(abs(within - 68269) < 1000);
    case_end(&t);
  }
}

static void uniform_numbers_fill_their_range_evenly(void **state) {
  (void)state;
  for (lb_dtype dtype = LB_F32; dtype <= LB_BF16; dtype++) {
    test_case t = {.name = "uniform"};
    int bins[4] = {0};
    case_begin(&t, LB_OP_RandomUniform);
    lb_tensor x = random_tensor(&t, lb_reference_RandomUniform, dtype);
    for (int i = 0; i < COUNT; i++) {
      double v = ((double *)x.data)[i];
      assert_true(v >= 0 && v < 1);
      bins[(int)(v * 4)]++;
    }
    for (int i = 0; i < 4; i++) assert_true(abs(bins[i] - COUNT / 4) < 1000);
    case_end(&t);
  }
}

// The first n numbers for a seed attribute (or none) and the seed of the call.
static void draw(const float *own, uint64_t seed, uint32_t id, lb_pool *pool,
                 float *out, size_t n) {
  test_case t = {.name = "seed"};
  case_begin(&t, LB_OP_RandomUniformLike);
  if (own) case_attr_float(&t, "seed", *own);
  t.call.seed = seed;
  t.call.pool = pool;
  t.node.id = id;
  random_tensor(&t, lb_reference_RandomUniformLike, LB_F32);
  memcpy(out, t.out[0].data, n * sizeof *out);
  case_end(&t);
}

static void seeds_decide_the_numbers(void **state) {
  (void)state;
  float a[64], b[64], seed = 7, other = 8;
  draw(&seed, 1, 1, NULL, a, 64);
  draw(&seed, 2, 2, NULL, b, 64);
  assert_memory_equal(a, b, sizeof a);
  draw(&other, 1, 1, NULL, b, 64);
  assert_memory_not_equal(a, b, sizeof a);
  draw(NULL, 1, 1, NULL, a, 64);
  draw(NULL, 1, 1, NULL, b, 64);
  assert_memory_equal(a, b, sizeof a);
  draw(NULL, 2, 1, NULL, b, 64);
  assert_memory_not_equal(a, b, sizeof a);
  draw(NULL, 1, 2, NULL, b, 64);
  assert_memory_not_equal(a, b, sizeof a);
}

static void threads_do_not_change_the_numbers(void **state) {
  (void)state;
  static float a[COUNT], b[COUNT];
  lb_pool *pool;
  assert_false(lb_failed(lb_pool_new(3, &pool)));
  draw(NULL, 5, 1, NULL, a, COUNT);
  draw(NULL, 5, 1, pool, b, COUNT);
  assert_memory_equal(a, b, sizeof a);
  lb_pool_free(pool);
}

static void bernoulli_matches_its_probability(void **state) {
  (void)state;
  double p[] = {0, 0.25, 1, NAN}, hits[4] = {0};
  test_case t = {.name = "bernoulli"};
  case_begin(&t, LB_OP_Bernoulli);
  lb_tensor in = case_dense(&t, LB_F64, 1, (int64_t[]){COUNT});
  for (int i = 0; i < COUNT; i++) ((double *)in.data)[i] = p[i % 4];
  case_in(&t, in);
  lb_tensor x = random_tensor(&t, lb_reference_Bernoulli, LB_I16);
  for (int i = 0; i < COUNT; i++) hits[i % 4] += ((double *)x.data)[i];
  assert_true(hits[0] == 0 && hits[2] == COUNT / 4 && hits[3] == 0);
  assert_true(fabs(hits[1] - COUNT / 16.) < 500);
  case_end(&t);
}

static lb_code multinomial(const double *logits, int64_t n, double *hits) {
  test_case t = {.name = "multinomial"};
  int64_t samples = 20000;
  case_begin(&t, LB_OP_Multinomial);
  lb_tensor x = case_dense(&t, LB_F64, 2, (int64_t[]){1, n});
  if (n > 0) memcpy(x.data, logits, (size_t)n * sizeof *logits);
  case_in(&t, x);
  t.out[0] = case_dense(&t, LB_I32, 2, (int64_t[]){1, samples});
  lb_code code = case_run(&t, lb_reference_Multinomial);
  for (int64_t i = 0; i < samples && code == LB_CODE_OK; i++) {
    int32_t class = ((int32_t *)t.out[0].data)[i];
    assert_true(class >= 0 && class < n);
    hits[class] += 1. / (double)samples;
  }
  case_end(&t);
  return code;
}

static void multinomial_follows_its_logits(void **state) {
  (void)state;
  double hits[3] = {0}, logits[] = {1000, 1000 + log(3), -INFINITY};
  assert_int_equal(multinomial(logits, 3, hits), LB_CODE_OK);
  assert_true(fabs(hits[0] - 0.25) < 0.02 && fabs(hits[1] - 0.75) < 0.02);
  assert_true(hits[2] == 0);
}

static void impossible_logits_are_refused(void **state) {
  (void)state;
  double none[] = {-INFINITY, -INFINITY}, nan[] = {0, NAN}, inf[] = {INFINITY};
  assert_int_equal(multinomial(none, 2, NULL), LB_INVALID);
  assert_int_equal(multinomial(nan, 2, NULL), LB_INVALID);
  assert_int_equal(multinomial(inf, 1, NULL), LB_INVALID);
  assert_int_equal(multinomial(NULL, 0, NULL), LB_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(normal_numbers_have_their_moments),
      cmocka_unit_test(uniform_numbers_fill_their_range_evenly),
      cmocka_unit_test(seeds_decide_the_numbers),
      cmocka_unit_test(threads_do_not_change_the_numbers),
      cmocka_unit_test(bernoulli_matches_its_probability),
      cmocka_unit_test(multinomial_follows_its_logits),
      cmocka_unit_test(impossible_logits_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
