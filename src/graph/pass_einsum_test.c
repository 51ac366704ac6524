// graph/pass_einsum_test.c -- Einsum becomes simpler operators. The operator
// tests, which compare with ONNX Runtime, check the results.
#include "graph/text_test.h"

static void one_input_becomes_a_transpose(void **state) {
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

static void two_inputs_become_a_matmul(void **state) {
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

static void several_axes_are_merged(void **state) {
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

// The pair with the fewest iterations first.
static void more_inputs_are_paired(void **state) {
  (void)state;
  becomes(
      "in x float32[n,4,6]\n"
      "in w float32[4,6,8]\n"
      "in g float32[n,4]\n"
      "y = Einsum(x, w, g) {equation=\"nef,efd,ne->nd\"}\n"
      "out y\n",
      NULL,
      "in x: float32[n,4,6]\n"
      "in w: float32[4,6,8]\n"
      "in g: float32[n,4]\n"
      "y.Einsum.Unsqueeze: float32[n,4,1] = Unsqueeze(g, [2])\n"
      "y.Einsum: float32[n,4,6] = Mul(x, y.Einsum.Unsqueeze)\n"
      "y.Reshape: float32[n,24] = Reshape(y.Einsum, [0,24])\n"
      "y.Reshape: float32[24,8] = Reshape(w, [24,8])\n"
      "y.MatMul: float32[n,8] = MatMul(y.Reshape, y.Reshape)\n"
      "out y = y.MatMul\n");
  becomes(
      "in x float32[a,b]\n"
      "in y float32[b,c]\n"
      "in z float32[c,d]\n"
      "in w float32[d]\n"
      "r = Einsum(x, y, z, w) {equation=\"ij,jk,kl,l->i\"}\n"
      "out r\n",
      NULL,
      "in x: float32[a,b]\n"
      "in y: float32[b,c]\n"
      "in z: float32[c,d]\n"
      "in w: float32[d]\n"
      "r.Einsum.Unsqueeze: float32[d,1] = Unsqueeze(w, [1])\n"
      "r.Einsum.MatMul: float32[c,1] = MatMul(z, r.Einsum.Unsqueeze)\n"
      "r.Einsum.MatMul: float32[b,1] = MatMul(y, r.Einsum.MatMul)\n"
      "r.MatMul: float32[a,1] = MatMul(x, r.Einsum.MatMul)\n"
      "r.Squeeze: float32[a] = Squeeze(r.MatMul, [1])\n"
      "out r = r.Squeeze\n");
}

static void unsupported_equations_are_unchanged(void **state) {
  (void)state;
  stays(  // a diagonal
      "in x float32[a,a]\n"
      "y = Einsum(x) {equation=\"ii->i\"}\n"
      "out y\n");
  stays(  // the intermediate result has more axes
      "in x float32[a]\n"
      "in y float32[b]\n"
      "in z float32[c]\n"
      "r = Einsum(x, y, z) {equation=\"i,j,k->ijk\"}\n"
      "out r\n");
  stays(  // one input has a sum of its own
      "in x float32[a,b]\n"
      "in z float32[c]\n"
      "y = Einsum(x, z) {equation=\"ij,k->ik\"}\n"
      "out y\n");
  stays(  // sums whose sizes may differ, one being 1
      "in x float32[a,b]\n"
      "in z float32[c,d]\n"
      "y = Einsum(x, z) {equation=\"ij,jk->ik\"}\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_input_becomes_a_transpose),
      cmocka_unit_test(two_inputs_become_a_matmul),
      cmocka_unit_test(several_axes_are_merged),
      cmocka_unit_test(without_a_sum_it_is_a_mul),
      cmocka_unit_test(more_inputs_are_paired),
      cmocka_unit_test(unsupported_equations_are_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
