// graph/pass_causal_test.c -- causal Attention becomes Attention with a mask.
// The operator tests, which compare with ONNX Runtime, check the results.
#include "graph/text_test.h"

static void causality_becomes_a_mask(void **state) {
  (void)state;
  becomes(
      "in q float32[b,2,s,8]\n"
      "in k float32[b,2,t,8]\n"
      "y = Attention(q, k, k) {is_causal=1}\n"
      "out y\n",
      NULL,
      "in q: float32[b,2,s,8]\n"
      "in k: float32[b,2,t,8]\n"
      "y.Shape: int64[4] = Shape(q)\n"
      "y.Gather: int64[] = Gather(y.Shape, 2)\n"
      "y.Range: int64[s] = Range(0, y.Gather, 1)\n"
      "y.Shape: int64[4] = Shape(k)\n"
      "y.Gather: int64[] = Gather(y.Shape, 2)\n"
      "y.Range: int64[t] = Range(0, y.Gather, 1)\n"
      "y.Unsqueeze: int64[s,1] = Unsqueeze(y.Range, [1])\n"
      "y.LessOrEqual: bool[s,t] = LessOrEqual(y.Range, y.Unsqueeze)\n"
      "y: float32[b,2,s,8] = Attention(q, k, k, y.LessOrEqual) "
      "{is_causal=0, left_window_size=-1, right_window_size=-1}\n"
      "out y\n");
}

static void past_keys_and_values_are_concatenated(void **state) {
  (void)state;
  becomes(
      "in q float32[b,s,16]\n"
      "in k float32[b,s,16]\n"
      "in p float32[b,2,t,8]\n"
      "y, r, z = Attention(q, k, k, _, p, p) {q_num_heads=2, kv_num_heads=2}\n"
      "out y r\n",
      NULL,
      "in q: float32[b,s,16]\n"
      "in k: float32[b,s,16]\n"
      "in p: float32[b,2,t,8]\n"
      "y.Reshape: float32[b,s,2,8] = Reshape(k, [0,0,2,8])\n"
      "y.Transpose: float32[b,2,s,8] = Transpose(y.Reshape) {perm=[0,2,1,3]}\n"
      "r: float32[b,2,s+t,8] = Concat(p, y.Transpose) {axis=2}\n"
      "y: float32[b,s,16] = Attention(q, r, r) {q_num_heads=2, "
      "kv_num_heads=2, is_causal=0, left_window_size=-1, "
      "right_window_size=-1}\n"
      "out y\n"
      "out r\n");
}

static void unsupported_attention_is_unchanged(void **state) {
  (void)state;
  stays(  // the mask may be shorter than the keys
      "in q float32[b,2,s,8]\n"
      "in k float32[b,2,t,8]\n"
      "in m float32[s,u]\n"
      "y = Attention(q, k, k, m) {is_causal=1}\n"
      "out y\n");
  stays(  // the lengths are only known at run time
      "in q float32[b,2,s,8]\n"
      "in k float32[b,2,t,8]\n"
      "in l int64[b]\n"
      "y = Attention(q, k, k, _, _, _, l) {is_causal=1}\n"
      "out y\n");
}

static void equal_sizes_are_computed_once(void **state) {
  (void)state;
  becomes(
      "in x float32[b,s]\n"
      "a = Relu(x)\n"
      "c = Shape(x)\n"
      "d = Shape(a)\n"
      "e = ConstantOfShape(c)\n"
      "f = ConstantOfShape(d)\n"
      "g = Add(e, f)\n"
      "y = Add(a, g)\n"
      "out y\n",
      NULL,
      "in x: float32[b,s]\n"
      "a: float32[b,s] = Relu(x)\n"
      "c: int64[2] = Shape(x)\n"
      "e: float32[b,s] = ConstantOfShape(c)\n"
      "g: float32[b,s] = Add(e, e)\n"
      "y: float32[b,s] = Add(a, g)\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(causality_becomes_a_mask),
      cmocka_unit_test(past_keys_and_values_are_concatenated),
      cmocka_unit_test(unsupported_attention_is_unchanged),
      cmocka_unit_test(equal_sizes_are_computed_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
