// graph/pass_rows_test.c -- matmuls between Reshapes multiply rows in place.
#include "graph/text_test.h"

#define WEIGHTS              \
  "in x float32[b,s,8]\n"    \
  "const w float32[8,4] 1\n" \
  "const c float32[4] 1\n"   \
  "d = Shape(x) {start=0, end=2}\n"
#define WEIGHTS_DUMP "in x: float32[b,s,8]\n"

static void a_gemm_between_reshapes_multiplies_rows(void **state) {
  (void)state;
  becomes(WEIGHTS
          "f = Reshape(x, [-1,8])\n"
          "g = Gemm(f, w, c) {alpha=1.0, beta=1.0}\n"
          "e = Concat(d, [4]) {axis=0}\n"
          "y = Reshape(g, e)\n"
          "out y\n",
          NULL,
          WEIGHTS_DUMP
          "y.MatMul: float32[b,s,4] = MatMul(x, w:float32[8,4])\n"
          "y: float32[b,s,4] = Add(y.MatMul, [1,1,1,1])\n"
          "out y\n");
  becomes(WEIGHTS
          "f = Reshape(x, [-1,8])\n"
          "g = MatMul(f, w)\n"
          "e = Concat(d, [4]) {axis=0}\n"
          "y = Reshape(g, e)\n"
          "out y\n",
          NULL,
          WEIGHTS_DUMP
          "y: float32[b,s,4] = MatMul(x, w:float32[8,4])\n"
          "out y\n");
}

static void other_matmuls_between_reshapes_are_unchanged(void **state) {
  (void)state;
#define BETWEEN(gemm, shape) \
  "in x float32[b,s,8]\n"    \
  "in w float32[8,4]\n"      \
  "in v float32[4,8]\n"      \
  "in c float32[4]\n"        \
  "in e int64[3]\n"          \
  "f = Reshape(x, [-1,8])\n" \
  "g = " gemm "y = Reshape(g, " shape ")\n"
  stays(BETWEEN("MatMul(f, w)\n", "e") "out y\n");  // any shape
  stays(BETWEEN("MatMul(f, w)\n", "[2,-1]") "out y\n");
  stays(BETWEEN("MatMul(f, w)\n", "[-1,2,4]") "out y\n");  // other rows
  stays(BETWEEN("Gemm(f, w, c) {alpha=2.0, beta=1.0}\n", "[-1,1,4]") "out y\n");
  stays(BETWEEN("Gemm(f, v, c) {transB=1}\n", "[-1,1,4]") "out y\n");
  stays(BETWEEN("MatMul(f, w)\n", "[-1,1,4]") "out y g\n");  // a result
  stays(  // only a copy gives a transposed tensor rows
      "in x float32[8,s,4]\n"
      "in w float32[4,4]\n"
      "t = Transpose(x) {perm=[1,0,2]}\n"
      "f = Reshape(t, [-1,4])\n"
      "g = MatMul(f, w)\n"
      "y = Reshape(g, [-1,8,4])\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_gemm_between_reshapes_multiplies_rows),
      cmocka_unit_test(other_matmuls_between_reshapes_are_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
