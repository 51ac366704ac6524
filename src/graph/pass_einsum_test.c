// graph/pass_einsum_test.c -- what Einsum says in a line, other operators do.
// That they compute the same is seen where operators are compared with ONNX
// Runtime.
#include "graph/text_test.h"

static void one_input_is_turned(void **state) {
  (void)state;
  becomes(
      "in x float32[a,b,c]\n"
      "y = Einsum(x) {equation=\"...ij->...ji\"}\n"
      "out y\n",
      NULL,
      "in x: float32[a,b,c]\n"
      "y: float32[a,c,b] = Transpose(x) {perm=[0,2,1]}\n"
      "out y\n");
}

static void a_product_is_found(void **state) {
  (void)state;
  becomes(
      "in q float32[b,s,2,8]\n"
      "in k float32[b,t,2,8]\n"
      "y = Einsum(q, k) {equation=\"bqhd,bkhd->bhqk\"}\n"
      "out y\n",
      NULL,
      "in q: float32[b,s,2,8]\n"
      "in k: float32[b,t,2,8]\n"
      "y.Transpose: float32[b,2,s,8] = Transpose(q) {perm=[0,2,1,3]}\n"
      "y.Transpose: float32[b,2,8,t] = Transpose(k) {perm=[0,2,3,1]}\n"
      "y.MatMul: float32[b,2,s,t] = MatMul(y.Transpose, y.Transpose)\n"
      "out y = y.MatMul\n");
}

static void several_axes_are_seen_as_one(void **state) {
  (void)state;
  becomes(
      "in x float32[b,s,6]\n"
      "in w float32[6,2,4]\n"
      "y = Einsum(x, w) {equation=\"bsd,dhk->bshk\"}\n"
      "out y\n",
      NULL,
      "in x: float32[b,s,6]\n"
      "in w: float32[6,2,4]\n"
      "y.Reshape: float32[6,8] = Reshape(w, [6,8])\n"
      "y.MatMul: float32[b,s,8] = MatMul(x, y.Reshape)\n"
      "y.Reshape: float32[b,s,2,4] = Reshape(y.MatMul, [0,0,2,4])\n"
      "out y = y.Reshape\n");
}

static void without_a_sum_it_is_a_mul(void **state) {
  (void)state;
  becomes(
      "in x float32[a]\n"
      "in z float32[b]\n"
      "y = Einsum(x, z) {equation=\"i,j->ij\"}\n"
      "out y\n",
      NULL,
      "in x: float32[a]\n"
      "in z: float32[b]\n"
      "y.Unsqueeze: float32[a,1] = Unsqueeze(x, [1])\n"
      "y.Unsqueeze: float32[1,b] = Unsqueeze(z, [0])\n"
      "y: float32[a,b] = Mul(y.Unsqueeze, y.Unsqueeze)\n"
      "out y\n");
}

static void anything_else_stays(void **state) {
  (void)state;
  stays(  // a diagonal
      "in x float32[a,a]\n"
      "y = Einsum(x) {equation=\"ii->i\"}\n"
      "out y\n");
  stays(  // a sum of its own
      "in x float32[a,b]\n"
      "in z float32[c]\n"
      "y = Einsum(x, z) {equation=\"ij,k->ik\"}\n"
      "out y\n");
  stays(  // sums that may differ, one being 1
      "in x float32[a,b]\n"
      "in z float32[c,d]\n"
      "y = Einsum(x, z) {equation=\"ij,jk->ik\"}\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_input_is_turned),
      cmocka_unit_test(a_product_is_found),
      cmocka_unit_test(several_axes_are_seen_as_one),
      cmocka_unit_test(without_a_sum_it_is_a_mul),
      cmocka_unit_test(anything_else_stays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
