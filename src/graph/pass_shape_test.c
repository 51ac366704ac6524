// graph/pass_shape_test.c -- the shape of scores is read from inputs.
#include "graph/text_test.h"

static void scores_whose_shape_is_read_are_fused(void **state) {
  (void)state;
  becomes(
      "in q float32[b,2,s,8]\n"
      "in k float32[b,2,s,8]\n"
      "in m bool[b,1,1,s]\n"
      "t = Transpose(k) {perm=[0,1,3,2]}\n"
      "p = MatMul(q, t)\n"
      "d = Shape(p)\n"
      "e = Expand(m, d)\n"
      "w = Where(e, p, -1.0e38)\n"
      "x = Softmax(w)\n"
      "y = MatMul(x, k)\n"
      "out y\n",
      NULL,
      "in q: float32[b,2,s,8]\n"
      "in k: float32[b,2,s,8]\n"
      "in m: bool[b,1,1,s]\n"
      "d.Shape: int64[4] = Shape(q)\n"
      "d.Gather: int64[1] = Gather(d.Shape, [0])\n"
      "d.Gather: int64[1] = Gather(d.Shape, [2])\n"
      "d: int64[4] = Concat(d.Gather, [2], d.Gather, d.Gather) {axis=0}\n"
      "e: bool[b,2,s,s] = Expand(m, d)\n"
      "y: float32[b,2,s,8] = Attention(q, k, k, e) {scale=1, "
      "masked=-9.99999968e+37}\n"
      "out y\n");
}

static void other_shapes_are_unchanged(void **state) {
  (void)state;
  stays(  // a dim that no input has
      "in q float32[b,2,s,8]\n"
      "in k float32[b,2,8,t]\n"
      "in n int64[1]\n"
      "p = MatMul(q, k)\n"
      "f = Relu(p)\n"
      "z = NonZero(f)\n"
      "c = Cast(z) {to=1}\n"
      "u = Unsqueeze(c, [0,1])\n"
      "g = Add(u, u)\n"
      "d = Shape(g)\n"
      "out p d\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scores_whose_shape_is_read_are_fused),
      cmocka_unit_test(other_shapes_are_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
