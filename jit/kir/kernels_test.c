// kir/kernels_test.c -- Compares whole kernels, as generators build them, with
// plain C.
#include "kir/testkit.h"

#include <math.h>
#include <stdlib.h>

static uint32_t seed = 12345;

static float draw(void) {
  seed = seed * 1664525u + 1013904223u;
  return (float)(seed >> 8) / (float)(1 << 24) * 4 - 2;
}

// -- a matmul tile -----------------------------------------------------------

enum { ROWS = 6, VECS = 4, LANES = 16, COLS = VECS * LANES };

typedef struct tile {
  lb_kbuilder b;
  lb_kval a, w, c, k, lda, ldc, n;
  lb_kval acc[ROWS][VECS];
} tile;

// One step of the inner loop: a[r][i] times row i of the weights.
static void tile_step(tile *t, lb_kval i) {
  lb_kbuilder *b = &t->b;
  lb_kval row = lb_k_ptr(b, t->w, lb_k_mul(b, i, lb_k_i64(b, COLS)), 0);
  lb_kval w[VECS];
  lb_k_prefetch(b, lb_k_ptr(b, row, lb_k_i64(b, 0), 1024), 0);
  for (int v = 0; v < VECS; v++)
    w[v] = lb_k_load(b, lb_k_ptr(b, row, lb_k_i64(b, v * LANES), 0), LANES, 64);
  for (int r = 0; r < ROWS; r++) {
    lb_kval at = lb_k_add(b, lb_k_mul(b, t->lda, lb_k_i64(b, r)), i);
    lb_kval x = lb_k_load(b, lb_k_ptr(b, t->a, at, 0), 1, 0);
    lb_kval splat = lb_k_splat(b, x, LANES);
    for (int v = 0; v < VECS; v++) {
      lb_kval sum = lb_k_get(b, t->acc[r][v]);
      lb_k_set(b, t->acc[r][v], lb_k_fma(b, splat, w[v], sum));
    }
  }
}

// Stores n columns of each row, with Relu.
static void tile_store(tile *t) {
  lb_kbuilder *b = &t->b;
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < VECS; v++) {
      lb_kval at = lb_k_add(b, lb_k_mul(b, t->ldc, lb_k_i64(b, r)),
                            lb_k_i64(b, v * LANES));
      lb_kval sum = lb_k_get(b, t->acc[r][v]);
      lb_kval relu = lb_k_max(b, sum, lb_k_like(b, sum, 0));
      lb_kval left = lb_k_sub(b, t->n, lb_k_i64(b, v * LANES));
      lb_k_store_masked(b, lb_k_ptr(b, t->c, at, 0), relu, 0,
                        lb_k_tail(b, left, LANES));
    }
}

static void build_tile(lb_kernel *out) {
  tile t;
  lb_kbuilder *b = &t.b;
  lb_kbuild_init(b, "gemm_6x64");
  t.a = lb_k_param(b, lb_kt_ptr(LB_F32, LB_K_READONLY));
  t.w = lb_k_param(b, lb_kt_ptr(LB_F32, LB_K_READONLY));
  t.c = lb_k_param(b, lb_kt_ptr(LB_F32, 0));
  t.k = lb_k_param(b, lb_kt(LB_I64, 1));
  t.lda = lb_k_param(b, lb_kt(LB_I64, 1));
  t.ldc = lb_k_param(b, lb_kt(LB_I64, 1));
  t.n = lb_k_param(b, lb_kt(LB_I64, 1));
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < VECS; v++)
      t.acc[r][v] = lb_k_reg(b, lb_k_num(b, lb_kt(LB_F32, LANES), 0));
  lb_kval i = lb_k_loop(b, lb_k_i64(b, 0), t.k, lb_k_i64(b, 1));
  tile_step(&t, i);
  lb_k_end(b);
  tile_store(&t);
  assert_ok(lb_kernel_finish(b, out));
}

typedef struct matmul {
  int64_t k, n, lda, ldc;
  float *a, *w, *c;
} matmul;

static matmul matmul_new(int64_t k, int64_t n) {
  matmul p = {k, n, k + 3, n + 1, NULL, NULL, NULL};
  p.a = malloc((size_t)(ROWS * p.lda) * sizeof *p.a);
  p.w = aligned_alloc(64, (size_t)(k * COLS + COLS) * sizeof *p.w);
  p.c = malloc((size_t)(ROWS * p.ldc) * sizeof *p.c);
  for (int64_t i = 0; i < ROWS * p.lda; i++) p.a[i] = draw();
  for (int64_t i = 0; i < k * COLS; i++) p.w[i] = draw();
  for (int64_t i = 0; i < ROWS * p.ldc; i++) p.c[i] = 7;
  return p;
}

static float matmul_at(const matmul *p, int64_t r, int64_t c) {
  float sum = 0;
  for (int64_t i = 0; i < p->k; i++)
    sum = fmaf(p->a[r * p->lda + i], p->w[i * COLS + c], sum);
  return sum > 0 ? sum : 0;
}

static void check_matmul(const lb_kernel *k, int64_t depth, int64_t n) {
  matmul p = matmul_new(depth, n);
  lb_karg args[] = {lb_karg_mem(p.a, (size_t)(ROWS * p.lda) * 4),
                    lb_karg_mem(p.w, (size_t)(depth * COLS) * 4),
                    lb_karg_mem(p.c, (size_t)(ROWS * p.ldc) * 4),
                    lb_karg_i64(p.k),
                    lb_karg_i64(p.lda),
                    lb_karg_i64(p.ldc),
                    lb_karg_i64(p.n)};
  assert_ok(run_kernel(k, args, 7, 1));
  for (int64_t r = 0; r < ROWS; r++) {
    for (int64_t c = 0; c < n; c++)
      assert_true(p.c[r * p.ldc + c] == matmul_at(&p, r, c));
    assert_true(p.c[r * p.ldc + n] == 7);  // after the row: untouched
  }
  free(p.a), free(p.w), free(p.c);
}

static void a_matmul_tile_is_exact(void **state) {
  (void)state;
  lb_kernel k;
  build_tile(&k);
  for (int simplified = 0; simplified < 2; simplified++) {
    static const int64_t cols[] = {0, 1, 15, 16, 17, 63, 64};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
      check_matmul(&k, (int64_t)i * 7, cols[i]);
    uint32_t before = k.n_insts;
    assert_ok(lb_kernel_simplify(&k));
    if (!simplified) assert_true(k.n_insts < before);
  }
  lb_kernel_fini(&k);
}

// What remains in the inner loop: 4 loads of weights, and for each of 6 rows a
// load, a splat and 4 times GET, FMA, SET; one address per load.
static void the_inner_loop_of_a_tile_is_lean(void **state) {
  (void)state;
  lb_kernel k;
  build_tile(&k);
  assert_ok(lb_kernel_simplify(&k));
  uint32_t counts[LB_K_COUNT] = {0}, loop = LB_K_NONE;
  uint32_t *partner = malloc(k.n_insts * sizeof *partner);
  lb_kernel_partners(&k, partner);
  for (uint32_t i = 0; i < k.n_insts; i++)
    if (k.insts[i].op == LB_K_LOOP) loop = i;
  for (uint32_t i = loop; i < partner[loop]; i++) counts[k.insts[i].op]++;
  assert_int_equal(counts[LB_K_FMA], ROWS * VECS);
  assert_int_equal(counts[LB_K_LOAD], ROWS + VECS);
  assert_int_equal(counts[LB_K_CONST], 0);
  assert_int_equal(counts[LB_K_MUL], 1);         // of the row's address
  assert_int_equal(counts[LB_K_ADD], ROWS - 1);  // row 0 needs none
  free(partner);
  lb_kernel_fini(&k);
}

// -- softmax of a row --------------------------------------------------------

typedef struct row {
  lb_kbuilder b;
  lb_kval x, y, n;
} row;

// Calls f for each vector of the row, with its addresses in x and y, and its
// mask.
static void each_vector(row *t,
                        void f(row *t, lb_kval x, lb_kval y, lb_kval mask,
                               lb_kval *user),
                        lb_kval *user) {
  lb_kbuilder *b = &t->b;
  lb_kval i = lb_k_loop(b, lb_k_i64(b, 0), t->n, lb_k_i64(b, LANES));
  lb_kval mask = lb_k_tail(b, lb_k_sub(b, t->n, i), LANES);
  f(t, lb_k_ptr(b, t->x, i, 0), lb_k_ptr(b, t->y, i, 0), mask, user);
  lb_k_end(b);
}

static void take_max(row *t, lb_kval x, lb_kval y, lb_kval mask,
                     lb_kval *user) {
  (void)y;
  lb_kbuilder *b = &t->b;
  lb_kval low = lb_k_num(b, lb_kt(LB_F32, LANES), -INFINITY);
  lb_kval v = lb_k_load_masked(b, x, LANES, 0, mask, low);
  lb_k_set(b, user[0], lb_k_max(b, lb_k_get(b, user[0]), v));
}

static void take_exp(row *t, lb_kval x, lb_kval y, lb_kval mask,
                     lb_kval *user) {
  lb_kbuilder *b = &t->b;
  lb_kval v = lb_k_load_masked(b, x, LANES, 0, mask, LB_K_NONE);
  lb_kval e = lb_k_exp(b, lb_k_sub(b, v, user[1]));
  lb_kval on = lb_k_select(b, mask, e, lb_k_like(b, e, 0));
  lb_k_store_masked(b, y, e, 0, mask);
  lb_k_set(b, user[0], lb_k_add(b, lb_k_get(b, user[0]), on));
}

static void divide(row *t, lb_kval x, lb_kval y, lb_kval mask, lb_kval *user) {
  (void)x;
  lb_kbuilder *b = &t->b;
  lb_kval v = lb_k_load_masked(b, y, LANES, 0, mask, LB_K_NONE);
  lb_k_store_masked(b, y, lb_k_div(b, v, user[0]), 0, mask);
}

static void build_softmax(lb_kernel *out) {
  row t;
  lb_kbuilder *b = &t.b;
  lb_ktype vec = lb_kt(LB_F32, LANES);
  lb_kbuild_init(b, "softmax_row");
  t.x = lb_k_param(b, lb_kt_ptr(LB_F32, LB_K_READONLY));
  t.y = lb_k_param(b, lb_kt_ptr(LB_F32, 0));
  t.n = lb_k_param(b, lb_kt(LB_I64, 1));
  lb_kval at = lb_k_mul(b, lb_k_group_id(b, 0), t.n);
  t.x = lb_k_ptr(b, t.x, at, 0);
  t.y = lb_k_ptr(b, t.y, at, 0);
  lb_kval max = lb_k_reg(b, lb_k_num(b, vec, -INFINITY));
  each_vector(&t, take_max, &max);
  lb_kval top = lb_k_splat(b, lb_k_rmax(b, lb_k_get(b, max)), LANES);
  lb_kval sum = lb_k_reg(b, lb_k_num(b, vec, 0));
  each_vector(&t, take_exp, (lb_kval[]){sum, top});
  lb_kval all = lb_k_splat(b, lb_k_radd(b, lb_k_get(b, sum)), LANES);
  each_vector(&t, divide, &all);
  assert_ok(lb_kernel_finish(b, out));
}

static void check_softmax(const lb_kernel *k, int64_t n) {
  enum { COUNT = 3 };
  size_t bytes = (size_t)(COUNT * n) * sizeof(float);
  float *x = malloc(bytes + 1), *y = malloc(bytes + 1);
  for (int64_t i = 0; i < COUNT * n; i++) x[i] = draw() * 20;
  lb_karg args[] = {lb_karg_mem(x, bytes), lb_karg_mem(y, bytes),
                    lb_karg_i64(n)};
  assert_ok(run_kernel(k, args, 3, COUNT));
  for (int r = 0; r < COUNT; r++) {
    const float *u = x + r * n, *v = y + r * n;
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, (double)u[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)u[i] - max);
    for (int64_t i = 0; i < n; i++) {
      double want = exp((double)u[i] - max) / sum;
      assert_true(fabs((double)v[i] - want) <= 1e-5 * want);
    }
  }
  free(x), free(y);
}

static void softmax_of_rows_is_correct(void **state) {
  (void)state;
  lb_kernel k;
  build_softmax(&k);
  for (int simplified = 0; simplified < 2; simplified++) {
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 33, 128, 500};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
      check_softmax(&k, lengths[i]);
    assert_ok(lb_kernel_simplify(&k));
  }
  lb_kernel_fini(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_matmul_tile_is_exact),
      cmocka_unit_test(the_inner_loop_of_a_tile_is_lean),
      cmocka_unit_test(softmax_of_rows_is_correct),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
