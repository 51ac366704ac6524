// toolchain/kernels_test.c -- Whole kernels as generators build them are
// correct and spill no vector register in a loop.
#include "toolchain/machine.h"

#include <math.h>
#include <stdlib.h>

static uint32_t seed = 12345;

static float draw(void) {
  seed = seed * 1664525u + 1013904223u;
  return (float)(seed >> 8) / (float)(1 << 24) * 4 - 2;
}

// -- a matmul tile -----------------------------------------------------------

enum { MAX_ROWS = 13, MAX_VECS = 4 };

// c[rows][vecs * lanes] = a[rows][k] * w[k][vecs * lanes]
typedef struct tile {
  lb_kbuilder b;
  int rows, vecs;
  uint32_t lanes;
  lb_kval a, w, c, k, lda, ldc;
  lb_kval acc[MAX_ROWS][MAX_VECS];
} tile;

static void tile_step(tile *t, lb_kval i) {
  lb_kbuilder *b = &t->b;
  int64_t cols = t->vecs * (int64_t)t->lanes;
  lb_kval row = lb_k_ptr(b, t->w, lb_k_mul(b, i, lb_k_i64(b, cols)), 0);
  lb_kval w[MAX_VECS], zero = lb_k_i64(b, 0);
  for (int v = 0; v < t->vecs; v++) {
    int64_t at = v * (int64_t)t->lanes * 4;
    w[v] = lb_k_load(b, lb_k_ptr(b, row, zero, at), t->lanes, t->lanes * 4);
    lb_k_prefetch(b, lb_k_ptr(b, row, zero, at + 1024), 0);
  }
  for (int r = 0; r < t->rows; r++) {
    lb_kval at = lb_k_add(b, lb_k_mul(b, t->lda, lb_k_i64(b, r)), i);
    lb_kval x = lb_k_load(b, lb_k_ptr(b, t->a, at, 0), 1, 0);
    lb_kval splat = lb_k_splat(b, x, t->lanes);
    for (int v = 0; v < t->vecs; v++) {
      lb_kval sum = lb_k_get(b, t->acc[r][v]);
      lb_k_set(b, t->acc[r][v], lb_k_fma(b, splat, w[v], sum));
    }
  }
}

static void tile_store(tile *t) {
  lb_kbuilder *b = &t->b;
  for (int r = 0; r < t->rows; r++)
    for (int v = 0; v < t->vecs; v++) {
      lb_kval at = lb_k_add(b, lb_k_mul(b, t->ldc, lb_k_i64(b, r)),
                            lb_k_i64(b, v * (int64_t)t->lanes));
      lb_k_store(b, lb_k_ptr(b, t->c, at, 0), lb_k_get(b, t->acc[r][v]), 0);
    }
}

static lb_kernel build_tile(int rows, int vecs, uint32_t lanes) {
  tile t = {.rows = rows, .vecs = vecs, .lanes = lanes};
  lb_kbuilder *b = &t.b;
  lb_kernel k;
  lb_kbuild_init(b, "tile");
  t.a = lb_k_param(b, lb_kt_ptr(LB_F32, LB_K_READONLY));
  t.w = lb_k_param(b, lb_kt_ptr(LB_F32, LB_K_READONLY));
  t.c = lb_k_param(b, lb_kt_ptr(LB_F32, 0));
  t.k = lb_k_param(b, lb_kt(LB_I64, 1));
  t.lda = lb_k_param(b, lb_kt(LB_I64, 1));
  t.ldc = lb_k_param(b, lb_kt(LB_I64, 1));
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vecs; v++)
      t.acc[r][v] = lb_k_reg(b, lb_k_num(b, lb_kt(LB_F32, lanes), 0));
  lb_kval i = lb_k_loop(b, lb_k_i64(b, 0), t.k, lb_k_i64(b, 1));
  tile_step(&t, i);
  lb_k_end(b);
  tile_store(&t);
  assert_ok(lb_kernel_finish(b, &k));
  assert_ok(lb_kernel_simplify(&k));
  return k;
}

static float *draw_floats(size_t n) {
  float *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);
  for (size_t i = 0; i < n; i++) p[i] = draw();
  return p;
}

static void check_tile(machine *m, int rows, int vecs, uint32_t lanes) {
  enum { K = 37 };
  lb_kernel k = build_tile(rows, vecs, lanes);
  lb_compile_stats stats = {.check_spills = true};
  machine_fn *fn = machine_load_with(m, &k, &stats);
  assert_true(stats.ns > 0);
  assert_int_equal(stats.loop_spills, 0);
  size_t cols = (size_t)vecs * lanes, n = (size_t)rows * cols;
  float *a = draw_floats((size_t)rows * K), *w = draw_floats(K * cols);
  float *got = draw_floats(n), *want = draw_floats(n);
  lb_karg args[] = {lb_karg_mem(a, (size_t)rows * K * 4),
                    lb_karg_mem(w, K * cols * 4),
                    lb_karg_mem(want, n * 4),
                    lb_karg_i64(K),
                    lb_karg_i64(K),
                    lb_karg_i64((int64_t)cols)};
  assert_ok(run_kernel(&k, args, 6, 1));
  args[2] = lb_karg_mem(got, n * 4);
  machine_call(fn, args, 6);
  assert_memory_equal(got, want, n * 4);
  free(a), free(w), free(got), free(want);
  lb_kernel_fini(&k);
}

static void check_tiles(machine *m) {
  if (m->target.level < LB_LEVEL_V4) {
    check_tile(m, 6, 2, 8);
    check_tile(m, 4, 3, 8);
    return;
  }
  check_tile(m, 6, 4, 16);
  check_tile(m, 8, 3, 16);
  check_tile(m, 13, 2, 16);
}

static void tiles_are_exact_and_accumulate_in_registers(void **state) {
  (void)state;
  each_machine(check_tiles);
}

// -- softmax of a row --------------------------------------------------------

typedef struct row {
  lb_kbuilder b;
  uint32_t lanes;
  lb_kval x, y, n;
} row;

static lb_kval vector_loop(row *t, lb_kval *mask) {
  lb_kbuilder *b = &t->b;
  lb_kval i = lb_k_loop(b, lb_k_i64(b, 0), t->n, lb_k_i64(b, t->lanes));
  *mask = lb_k_tail(b, lb_k_sub(b, t->n, i), t->lanes);
  return i;
}

static lb_kval maximum(row *t) {
  lb_kbuilder *b = &t->b;
  lb_kval low = lb_k_num(b, lb_kt(LB_F32, t->lanes), -INFINITY), mask;
  lb_kval max = lb_k_reg(b, low);
  lb_kval p = lb_k_ptr(b, t->x, vector_loop(t, &mask), 0);
  lb_kval v = lb_k_load_masked(b, p, t->lanes, 0, mask, low);
  lb_k_set(b, max, lb_k_max(b, lb_k_get(b, max), v));
  lb_k_end(b);
  return lb_k_splat(b, lb_k_rmax(b, lb_k_get(b, max)), t->lanes);
}

static lb_kval exponentials(row *t, lb_kval max) {
  lb_kbuilder *b = &t->b;
  lb_kval zero = lb_k_num(b, lb_kt(LB_F32, t->lanes), 0), mask;
  lb_kval sum = lb_k_reg(b, zero);
  lb_kval i = vector_loop(t, &mask);
  lb_kval p = lb_k_ptr(b, t->x, i, 0);
  lb_kval v = lb_k_load_masked(b, p, t->lanes, 0, mask, LB_K_NONE);
  lb_kval e = lb_k_exp(b, lb_k_sub(b, v, max));
  lb_k_store_masked(b, lb_k_ptr(b, t->y, i, 0), e, 0, mask);
  lb_kval on = lb_k_select(b, mask, e, zero);
  lb_k_set(b, sum, lb_k_add(b, lb_k_get(b, sum), on));
  lb_k_end(b);
  return lb_k_splat(b, lb_k_radd(b, lb_k_get(b, sum)), t->lanes);
}

static lb_kernel build_softmax(uint32_t lanes) {
  row t = {.lanes = lanes};
  lb_kbuilder *b = &t.b;
  lb_kernel k;
  lb_kval mask;
  lb_kbuild_init(b, "softmax");
  t.x = lb_k_param(b, lb_kt_ptr(LB_F32, LB_K_READONLY));
  t.y = lb_k_param(b, lb_kt_ptr(LB_F32, 0));
  t.n = lb_k_param(b, lb_kt(LB_I64, 1));
  lb_kval sum = exponentials(&t, maximum(&t));
  lb_kval p = lb_k_ptr(b, t.y, vector_loop(&t, &mask), 0);
  lb_kval v = lb_k_load_masked(b, p, lanes, 0, mask, LB_K_NONE);
  lb_k_store_masked(b, p, lb_k_div(b, v, sum), 0, mask);
  lb_k_end(b);
  assert_ok(lb_kernel_finish(b, &k));
  return k;
}

static void check_row(machine_fn *fn, size_t n) {
  float *x = draw_floats(n), *y = draw_floats(n + 1);
  y[n] = 7;
  for (size_t i = 0; i < n; i++) x[i] *= 20;
  lb_karg args[] = {lb_karg_mem(x, n), lb_karg_mem(y, n),
                    lb_karg_i64((int64_t)n)};
  machine_call(fn, args, 3);
  double max = -INFINITY, sum = 0;
  for (size_t i = 0; i < n; i++) max = fmax(max, (double)x[i]);
  for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
  for (size_t i = 0; i < n; i++) {
    double want = exp((double)x[i] - max) / sum;
    assert_true(fabs((double)y[i] - want) <= 1e-5 * want);
  }
  assert_true(y[n] == 7);
  free(x), free(y);
}

static void check_softmax(machine *m) {
  static const size_t lengths[] = {1, 2, 15, 16, 17, 33, 128, 500};
  for (uint32_t lanes = 8; lanes <= 64; lanes *= 2) {
    lb_kernel k = build_softmax(lanes);
    for (int simple = 0; simple < 2; simple++) {
      machine_fn *fn = machine_load(m, &k);
      for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_row(fn, lengths[i]);
      assert_ok(lb_kernel_simplify(&k));
    }
    lb_kernel_fini(&k);
  }
}

static void softmax_of_a_row_is_correct(void **state) {
  (void)state;
  each_machine(check_softmax);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tiles_are_exact_and_accumulate_in_registers),
      cmocka_unit_test(softmax_of_a_row_is_correct),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
