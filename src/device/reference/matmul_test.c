// device/reference/matmul_test.c -- MatMul, Gemm, their integer and quantised
// forms, and Einsum against explicit sums.
#include "device/reference/number_test.h"

static int64_t size_near_a_block(test_case *t) {
  static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 129};
  return sizes[case_int(t, 0, 12)];
}

static lb_dtype any_sum(test_case *t) {
  static const lb_dtype all[] = {LB_F32, LB_F64, LB_F16, LB_BF16,
                                 LB_I32, LB_I64, LB_U32, LB_U64};
  return all[case_int(t, 0, 7)];
}

// Element [i][j] of the matrix of x at this batch index, which has `rank` axes
// and is broadcast.
static double element(const lb_tensor *x, const int64_t *batch, int rank,
                      int64_t i, int64_t j) {
  int64_t at[LB_MAX_RANK] = {0};
  int own = x->rank - 2;
  for (int d = 0; d < own; d++)
    at[d] = x->dims[d] == 1 ? 0 : batch[rank - own + d];
  at[own] = i, at[own + 1] = j;
  return number_at(x, at);
}

static void matmul_one(test_case *t) {
  int64_t a[LB_MAX_RANK], b[LB_MAX_RANK], y[LB_MAX_RANK];
  int rank = (int)case_int(t, 0, 2), own = (int)case_int(t, 0, rank);
  lb_dtype dtype = any_sum(t);
  int64_t m = size_near_a_block(t), n = size_near_a_block(t);
  int64_t k = size_near_a_block(t);
  for (int d = 0; d < rank; d++) {
    y[d] = a[d] = case_int(t, 1, 3);
    if (d < rank - own) continue;
    int64_t *mine = &b[d - (rank - own)];
    *mine = case_int(t, 0, 1) ? y[d] : 1;
    if (*mine != 1 && case_int(t, 0, 2) == 0) a[d] = 1;
  }
  a[rank] = m, a[rank + 1] = k, b[own] = k, b[own + 1] = n;
  y[rank] = m, y[rank + 1] = n;
  case_begin(t, LB_OP_MatMul);
  case_in(t, number_random(t, dtype, rank + 2, a));
  case_in(t, number_random(t, dtype, own + 2, b));
  t->out[0] = case_dense(t, dtype, rank + 2, y);
  CASE_CHECK(t, case_run(t, lb_reference_MatMul) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    double sum = 0;
    for (int64_t x = 0; x < k; x++)
      sum += element(&t->in[0], i, rank, i[rank], x) *
             element(&t->in[1], i, rank, x, i[rank + 1]);
    CASE_CHECK(t, number_is(&t->out[0], i, sum));
  }
}
CASE_TEST(matmul_of_any_dims_strides_and_dtypes_is_the_sum, 80, matmul_one)

static void vectors_one(test_case *t) {
  int64_t k = case_int(t, 0, 40), n = case_int(t, 1, 9);
  bool left = case_int(t, 0, 1);
  case_begin(t, LB_OP_MatMul);
  const int64_t pair[] = {left ? k : n, left ? n : k};
  case_in(t, left ? number_random(t, LB_F32, 1, &k)
                  : number_random(t, LB_F32, 2, pair));
  case_in(t, left ? number_random(t, LB_F32, 2, pair)
                  : number_random(t, LB_F32, 1, &k));
  t->out[0] = case_dense(t, LB_F32, 1, &n);
  CASE_CHECK(t, case_run(t, lb_reference_MatMul) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    double sum = 0;
    for (int64_t x = 0; x < k; x++) {
      const int64_t both[] = {left ? x : i[0], left ? i[0] : x};
      sum += number_at(&t->in[!left], &x) * number_at(&t->in[left], both);
    }
    CASE_CHECK(t, number_is(&t->out[0], i, sum));
  }
}
CASE_TEST(matmul_takes_vectors_on_either_side, 40, vectors_one)

static void gemm_one(test_case *t) {
  int64_t m = size_near_a_block(t), n = size_near_a_block(t);
  int64_t k = size_near_a_block(t);
  bool ta = case_int(t, 0, 1), tb = case_int(t, 0, 1);
  double alpha = (double)case_int(t, 1, 4) / 2,
         beta = (double)case_int(t, 0, 3);
  int c_rank = (int)case_int(t, 0, 2);
  const int64_t a[] = {ta ? k : m, ta ? m : k}, b[] = {tb ? n : k, tb ? k : n};
  const int64_t y[] = {m, n};
  int64_t c[2] = {case_int(t, 0, 1) ? m : 1, case_int(t, 0, 1) ? n : 1};
  if (c_rank == 1) c[0] = c[1];
  case_begin(t, LB_OP_Gemm);
  case_attr_int(t, "transA", ta);
  case_attr_int(t, "transB", tb);
  case_attr_float(t, "alpha", (float)alpha);
  case_attr_float(t, "beta", (float)beta);
  lb_dtype dtype = number_float(t);
  case_in(t, number_random(t, dtype, 2, a));
  case_in(t, number_random(t, dtype, 2, b));
  case_in(t, number_random(t, dtype, c_rank, c));
  t->out[0] = case_dense(t, dtype, 2, y);
  CASE_CHECK(t, case_run(t, lb_reference_Gemm) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    double sum = 0;
    for (int64_t x = 0; x < k; x++)
      sum += number_at(&t->in[0], (int64_t[]){ta ? x : i[0], ta ? i[0] : x}) *
             number_at(&t->in[1], (int64_t[]){tb ? i[1] : x, tb ? x : i[1]});
    const lb_tensor *bias = &t->in[2];
    int64_t at[2] = {0};
    for (int d = 0; d < c_rank; d++)
      at[d] = bias->dims[d] == 1 ? 0 : i[2 - c_rank + d];
    sum = alpha * sum + beta * number_at(bias, at);
    CASE_CHECK(t, number_is(&t->out[0], i, sum));
  }
}
CASE_TEST(gemm_scales_transposes_and_adds, 80, gemm_one)

static void integer_one(test_case *t) {
  int64_t m = case_int(t, 1, 6), n = case_int(t, 1, 40), k = case_int(t, 0, 9);
  lb_dtype ta = case_int(t, 0, 1) ? LB_I8 : LB_U8;
  lb_dtype tb = case_int(t, 0, 1) ? LB_I8 : LB_U8;
  bool rows = case_int(t, 0, 1), cols = case_int(t, 0, 1);
  case_begin(t, LB_OP_MatMulInteger);
  case_in(t, case_random(t, ta, 2, (int64_t[]){m, k}));
  case_in(t, case_random(t, tb, 2, (int64_t[]){k, n}));
  case_in(t, case_random(t, ta, rows, &m));
  case_in(t, case_random(t, tb, cols, &n));
  t->out[0] = case_dense(t, LB_I32, 2, (int64_t[]){m, n});
  CASE_CHECK(t, case_run(t, lb_reference_MatMulInteger) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    double sum = 0, za = number_at(&t->in[2], i);
    double zb = number_at(&t->in[3], &i[1]);
    for (int64_t x = 0; x < k; x++)
      sum += (number_at(&t->in[0], (int64_t[]){i[0], x}) - za) *
             (number_at(&t->in[1], (int64_t[]){x, i[1]}) - zb);
    CASE_CHECK(t, number_is(&t->out[0], i, sum));
  }
}
CASE_TEST(zero_points_are_subtracted_before_multiplying, 60, integer_one)

static void sums_start_from_their_first_product(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t one[] = {1, 1};
  case_begin(&t, LB_OP_MatMul);
  case_in(&t, number_list(&t, LB_F32, 2, one, (double[]){-0.0}));
  case_in(&t, number_list(&t, LB_F32, 2, one, (double[]){1}));
  t.out[0] = case_dense(&t, LB_F32, 2, one);
  assert_int_equal(case_run(&t, lb_reference_MatMul), LB_CODE_OK);
  assert_true(signbit(number_at(&t.out[0], (int64_t[]){0, 0})));
  case_end(&t);
}

static void results_do_not_depend_on_threads(void **state) {
  (void)state;
  test_case t = {.state = 7};
  const int64_t a[] = {150, 300}, b[] = {300, 290}, y[] = {150, 290};
  case_begin(&t, LB_OP_MatMul);
  for (int i = 0; i < 2; i++) {
    lb_tensor x = case_dense(&t, LB_F32, 2, i ? b : a);
    CASE_EACH(&x, at) number_set(&x, at, (double)case_int(&t, -999, 999) / 77);
    case_in(&t, x);
  }
  lb_tensor one = case_dense(&t, LB_F32, 2, y), two = one;
  two.data = case_alloc(&t, lb_tensor_bytes(&two));
  t.out[0] = one;
  assert_int_equal(case_run(&t, lb_reference_MatMul), LB_CODE_OK);
  assert_false(lb_failed(lb_pool_new(3, &t.call.pool)));
  t.out[0] = two;
  assert_int_equal(case_run(&t, lb_reference_MatMul), LB_CODE_OK);
  assert_memory_equal(one.data, two.data, lb_tensor_bytes(&one));
  lb_pool_free(t.call.pool);
  case_end(&t);
}

static void quantised_matmul_rounds_and_saturates(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t a[] = {1, 2}, b[] = {2, 4}, y[] = {1, 4};
  const double w[] = {1, -1, 100, -128, 2, 0, 100, -128};
  case_begin(&t, LB_OP_QLinearMatMul);
  case_in(&t, number_list(&t, LB_U8, 2, a, (double[]){130, 140}));
  case_in(&t, number_list(&t, LB_F32, 0, a, (double[]){0.5}));
  case_in(&t, number_list(&t, LB_U8, 0, a, (double[]){128}));
  case_in(&t, number_list(&t, LB_I8, 2, b, w));
  case_in(&t, number_list(&t, LB_F32, 0, a, (double[]){1}));
  case_in(&t, number_list(&t, LB_I8, 0, a, (double[]){0}));
  case_in(&t, number_list(&t, LB_F32, 0, a, (double[]){2}));
  case_in(&t, number_list(&t, LB_U8, 0, a, (double[]){3}));
  t.out[0] = case_dense(&t, LB_U8, 2, y);
  assert_int_equal(case_run(&t, lb_reference_QLinearMatMul), LB_CODE_OK);
  // The sums 26, -2, 1400 and -1792 are scaled by 0.5 * 1 / 2 to 6.5, -0.5, 350
  // and -448 and rounded to even, and the zero point 3 is added.
  const uint8_t want[] = {9, 3, 255, 0};
  assert_memory_equal(t.out[0].data, want, 4);
  case_end(&t);
}

static void parameters_that_do_not_fit_are_refused(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t two[] = {2, 2}, three = 3;
  case_begin(&t, LB_OP_MatMulInteger);
  case_in(&t, number_random(&t, LB_U8, 2, two));
  case_in(&t, number_random(&t, LB_U8, 2, two));
  case_in(&t, number_random(&t, LB_U8, 1, &three));
  t.out[0] = case_dense(&t, LB_I32, 2, two);
  assert_int_equal(case_run(&t, lb_reference_MatMulInteger), LB_INVALID);
  t.in[2].dtype = LB_NONE;
  case_in(&t, number_random(&t, LB_U8, 1, &three));
  assert_int_equal(case_run(&t, lb_reference_MatMulInteger), LB_INVALID);
  case_end(&t);
}

// -- Einsum ------------------------------------------------------------------

// Computes equations such as "bij,bjk->bik" by definition: each label is a loop
// index.
static void einsum_one(test_case *t) {
  static const char *const all[] = {
      "ij,jk->ik",   "bij,bkj->bik", "ii->i",      "ii->",
      "ij->ji",      "i,j->ij",      "ij,kl->jl",  "iij,jk->ik",
      "ij,jk,ki->i", "ij,ij->",      "abc,cb->ba", "a,b,c->",
      "ij,k->j",     "ab,bc,cd->ad", "aab,c,b->c", "ab,cd,ac,bd->"};
  const char *eq = all[case_int(t, 0, 15)], *s = eq;
  int64_t size[128], index[128] = {0}, y[LB_MAX_RANK];
  for (int i = 0; i < 128; i++) size[i] = case_int(t, 1, 5);
  lb_dtype dtype = any_sum(t);
  case_begin(t, LB_OP_Einsum);
  case_attr_str(t, "equation", eq);
  const char *terms[4];
  int n_in = 0, rank = 0;
  for (; *s != '-'; s += *s == ',') {
    int64_t dims[LB_MAX_RANK];
    int r = 0;
    terms[n_in] = s;
    for (; *s != ',' && *s != '-'; s++) dims[r++] = size[(int)*s];
    case_in(t, number_random(t, dtype, r, dims));
    n_in++;
  }
  const char *out = s + 2;
  for (const char *p = out; *p; p++) y[rank++] = size[(int)*p];
  t->out[0] = case_dense(t, dtype, rank, y);
  CASE_CHECK(t, case_run(t, lb_reference_Einsum) == LB_CODE_OK);
  CASE_EACH(&t->out[0], o) {
    double sum = 0;
    int64_t combos = 1;
    char sums[8];
    int n_sums = 0;
    for (int c = 'a'; c <= 'z'; c++)
      if (strchr(eq, c) && !strchr(out, c)) {
        sums[n_sums++] = (char)c;
        combos *= size[c];
      }
    for (int64_t k = 0; k < combos; k++) {
      int64_t rem = k;
      for (int i = 0; i < n_sums; i++) {
        index[(int)sums[i]] = rem % size[(int)sums[i]];
        rem /= size[(int)sums[i]];
      }
      for (int d = 0; d < rank; d++) index[(int)out[d]] = o[d];
      double x = 1;
      for (int i = 0; i < n_in; i++) {
        int64_t at[LB_MAX_RANK];
        for (int d = 0; d < t->in[i].rank; d++) at[d] = index[(int)terms[i][d]];
        x *= number_at(&t->in[i], at);
      }
      sum += x;
    }
    CASE_CHECK(t, number_is(&t->out[0], o, sum));
  }
}
CASE_TEST(einsum_is_the_sum_over_labels, 160, einsum_one)

static void einsum_broadcasts_its_ellipsis(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t a[] = {2, 1, 2}, b[] = {2, 1}, y[] = {2, 2, 1};
  case_begin(&t, LB_OP_Einsum);
  case_attr_str(&t, "equation", "...ij, ...jk -> ...ik");
  case_in(&t, number_list(&t, LB_F32, 3, a, (double[]){1, 2, 3, 4}));
  case_in(&t, number_list(&t, LB_F32, 2, b, (double[]){10, 100}));
  t.out[0] = case_dense(&t, LB_F32, 3, (int64_t[]){2, 1, 1});
  assert_int_equal(case_run(&t, lb_reference_Einsum), LB_CODE_OK);
  assert_true(number_is(&t.out[0], (int64_t[]){0, 0, 0}, 210));
  assert_true(number_is(&t.out[0], (int64_t[]){1, 0, 0}, 430));
  // These are not the dims that the equation gives.
  t.out[0] = case_dense(&t, LB_F32, 3, y);
  assert_int_equal(case_run(&t, lb_reference_Einsum), LB_INVALID);
  case_end(&t);
}

// Contracting all operands at once would take 4^6 * 16^2 = 2^20 products of 7
// elements.
static void einsum_of_many_operands_is_pairwise(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t n = 16;
  double ones[16];
  for (int i = 0; i < 16; i++) ones[i] = 1;
  case_begin(&t, LB_OP_Einsum);
  case_attr_str(&t, "equation", "a,ab,b,c,d,ef,gh->c");
  for (int i = 0; i < 7; i++) {
    bool matrix = i == 1 || i > 4;
    const int64_t dims[] = {matrix ? 4 : n, 4};
    case_in(&t, number_list(&t, LB_F32, matrix ? 2 : 1, dims, ones));
  }
  t.in[0].dims[0] = t.in[2].dims[0] = 4;
  t.out[0] = case_dense(&t, LB_F32, 1, &n);
  assert_int_equal(case_run(&t, lb_reference_Einsum), LB_CODE_OK);
  assert_true(number_is(&t.out[0], (int64_t[]){3}, 16 * 16 * 16 * 16));
  case_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul_of_any_dims_strides_and_dtypes_is_the_sum),
      cmocka_unit_test(matmul_takes_vectors_on_either_side),
      cmocka_unit_test(gemm_scales_transposes_and_adds),
      cmocka_unit_test(zero_points_are_subtracted_before_multiplying),
      cmocka_unit_test(sums_start_from_their_first_product),
      cmocka_unit_test(results_do_not_depend_on_threads),
      cmocka_unit_test(quantised_matmul_rounds_and_saturates),
      cmocka_unit_test(parameters_that_do_not_fit_are_refused),
      cmocka_unit_test(einsum_is_the_sum_over_labels),
      cmocka_unit_test(einsum_broadcasts_its_ellipsis),
      cmocka_unit_test(einsum_of_many_operands_is_pairwise),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
