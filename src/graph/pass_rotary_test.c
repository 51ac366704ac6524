// graph/pass_rotary_test.c -- RotaryEmbedding becomes simpler operators. The
// operator tests, which compare with ONNX Runtime, check the results.
#include "graph/text_test.h"

static void rotary_embedding_is_expanded(void **state) {
  (void)state;
  becomes(
      "in x float32[b,2,s,8]\n"
      "in c float32[n,4]\n"
      "in d float32[n,4]\n"
      "in i int64[b,s]\n"
      "y = RotaryEmbedding(x, c, d, i)\n"
      "out y\n",
      NULL,
      "in x: float32[b,2,s,8]\n"
      "in c: float32[n,4]\n"
      "in d: float32[n,4]\n"
      "in i: int64[b,s]\n"
      "y.Slice: float32[b,2,s,4] = Slice(x, [0], [4], [3])\n"
      "y.Slice: float32[b,2,s,4] = Slice(x, [4], [8], [3])\n"
      "y.Gather: float32[b,s,4] = Gather(c, i)\n"
      "y.Unsqueeze: float32[b,1,s,4] = Unsqueeze(y.Gather, [1])\n"
      "y.Gather: float32[b,s,4] = Gather(d, i)\n"
      "y.Unsqueeze: float32[b,1,s,4] = Unsqueeze(y.Gather, [1])\n"
      "y.Mul: float32[b,2,s,4] = Mul(y.Slice, y.Unsqueeze)\n"
      "y.Mul: float32[b,2,s,4] = Mul(y.Slice, y.Unsqueeze)\n"
      "y.Sub: float32[b,2,s,4] = Sub(y.Mul, y.Mul)\n"
      "y.Mul: float32[b,2,s,4] = Mul(y.Slice, y.Unsqueeze)\n"
      "y.Mul: float32[b,2,s,4] = Mul(y.Slice, y.Unsqueeze)\n"
      "y.Add: float32[b,2,s,4] = Add(y.Mul, y.Mul)\n"
      "y: float32[b,2,s,8] = Concat(y.Sub, y.Add) {axis=3}\n"
      "out y\n");
}

static void heads_in_rows_are_split(void **state) {
  (void)state;
  becomes(
      "in x float32[b,s,16]\n"
      "in c float32[n,3]\n"
      "in d float32[n,3]\n"
      "in i int64[b,s]\n"
      "y = RotaryEmbedding(x, c, d, i) {num_heads=2, "
      "rotary_embedding_dim=-1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,s,16]\n"
      "in c: float32[n,3]\n"
      "in d: float32[n,3]\n"
      "in i: int64[b,s]\n"
      "y.Reshape: float32[b,s,2,8] = Reshape(x, [0,0,2,8])\n"
      "y.Slice: float32[b,s,2,3] = Slice(y.Reshape, [0], [3], [3])\n"
      "y.Slice: float32[b,s,2,3] = Slice(y.Reshape, [3], [6], [3])\n"
      "y.Gather: float32[b,s,3] = Gather(c, i)\n"
      "y.Unsqueeze: float32[b,s,1,3] = Unsqueeze(y.Gather, [2])\n"
      "y.Gather: float32[b,s,3] = Gather(d, i)\n"
      "y.Unsqueeze: float32[b,s,1,3] = Unsqueeze(y.Gather, [2])\n"
      "y.Mul: float32[b,s,2,3] = Mul(y.Slice, y.Unsqueeze)\n"
      "y.Mul: float32[b,s,2,3] = Mul(y.Slice, y.Unsqueeze)\n"
      "y.Sub: float32[b,s,2,3] = Sub(y.Mul, y.Mul)\n"
      "y.Mul: float32[b,s,2,3] = Mul(y.Slice, y.Unsqueeze)\n"
      "y.Mul: float32[b,s,2,3] = Mul(y.Slice, y.Unsqueeze)\n"
      "y.Add: float32[b,s,2,3] = Add(y.Mul, y.Mul)\n"
      "y.Slice: float32[b,s,2,2] = Slice(y.Reshape, [6], [8], [3])\n"
      "y.Concat: float32[b,s,2,8] = Concat(y.Sub, y.Add, y.Slice) {axis=3}\n"
      "y: float32[b,s,16] = Reshape(y.Concat, [0,0,16])\n"
      "out y\n");
}

static void unsupported_forms_are_unchanged(void **state) {
  (void)state;
  stays(
      "in x float32[b,s,w]\n"
      "in c float32[n,3]\n"
      "in i int64[b,s]\n"
      "y = RotaryEmbedding(x, c, c, i) {num_heads=2, "
      "rotary_embedding_dim=-1}\n"
      "out y\n");
  stays(  // interleaved
      "in x float32[b,2,s,8]\n"
      "in c float32[n,4]\n"
      "in i int64[b,s]\n"
      "y = RotaryEmbedding(x, c, c, i) {interleaved=1}\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rotary_embedding_is_expanded),
      cmocka_unit_test(heads_in_rows_are_split),
      cmocka_unit_test(unsupported_forms_are_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
