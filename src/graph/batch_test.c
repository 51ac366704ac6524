// graph/batch_test.c -- which graphs keep the items of a batch independent.
#include "graph/batch.h"

#include "graph/text_test.h"

// Which inputs are batches, one digit each ("10"); "-": items are mixed.
static void expect(const char *source, const char *want) {
  lb_graph *g = graph_of(source);
  const bool *params;
  char got[16] = "-";
  must(lb_batch_find(g, &params));
  for (uint32_t i = 0; params && i < g->main->n_params; i++) {
    got[i] = params[i] ? '1' : '0';
    got[i + 1] = '\0';
  }
  if (strcmp(got, want) != 0) print_error("of\n%s", source);
  assert_string_equal(got, want);
  lb_graph_free(g);
}

// One operator on x float32[b,6,8] and z float32[6,8].
static void expect_one(const char *line, const char *want) {
  char source[512];
  snprintf(source, sizeof source,
           "in x float32[b,6,8]\nin z float32[6,8]\n"
           "const w float32[8,8] 0.5\nconst v float32[8] 0.5\n"
           "const s float32[6,8] 0.5\nconst i int64[2] 0 1\n%s\nout y\n",
           line);
  expect(source, want);
}

static void elementwise_operators_keep_items_apart(void **state) {
  (void)state;
  expect_one("y = Relu(x)", "10");
  expect_one("y = Add(x, z)", "10");
  expect_one("y = Mul(x, v)", "10");
  expect_one("t = Unsqueeze(x, [0])\ny = Add(t, x)", "-");
  expect_one("y = Relu(z)", "-");
}

static void matmuls_keep_rows_apart(void **state) {
  (void)state;
  expect_one("y = MatMul(x, w)", "10");
  expect_one("t = Transpose(x) {perm=[0,2,1]}\ny = MatMul(x, t)", "10");
  expect_one("t = Transpose(x) {perm=[1,2,0]}\ny = MatMul(w, t)", "-");
  expect_one(
      "t = Reshape(x, [-1,48])\nu = Transpose(t) {perm=[1,0]}\n"
      "y = MatMul(t, u)",
      "-");
  expect_one("t = Reshape(x, [-1,8])\ny = Gemm(t, w, v)", "10");
  expect_one("t = Reshape(x, [-1,8])\ny = Gemm(w, t) {transB=1}", "-");
}

static void quantisation_keeps_items_apart(void **state) {
  (void)state;
  const char *const one = "const u float32[] 0.5\n";
  char line[128];
  snprintf(line, sizeof line, "%sy = QuantizeLinear(x, u)", one);
  expect_one(line, "10");
  expect_one("y = QuantizeLinear(x, v) {axis=2}", "10");
  expect_one("y = QuantizeLinear(x, v) {axis=0}", "-");  // a scale per item
  expect_one("y = QuantizeLinear(z, v) {axis=1}", "-");  // reads no batch
  expect_one("t = ReduceMax(x) {keepdims=0}\ny = QuantizeLinear(x, t)", "-");
}

static void reductions_within_items_keep_them_apart(void **state) {
  (void)state;
  expect_one("y = Softmax(x) {axis=-1}", "10");
  expect_one("y = Softmax(x) {axis=0}", "-");
  expect_one("y = Softmax(x) {axis=1, flatten=1}", "10");
  expect_one("y = Softmax(x) {axis=0, flatten=1}", "-");
  expect_one("y = ReduceMean(x, [1]) {keepdims=0}", "10");
  expect_one("y = ReduceMean(x, [-3])", "-");
  expect_one("y = ReduceMax(x)", "-");
  expect_one(
      "t = Transpose(x) {perm=[1,0,2]}\nu = ReduceSum(t, [0]) {keepdims=0}\n"
      "y = Relu(u)",
      "10");
  expect_one("y = LayerNormalization(x, v, v) {axis=-1}", "10");
  expect_one("y = LayerNormalization(x, v, v) {axis=0}", "-");
  expect_one("y = CumSum(x, 1)", "10");
  expect_one("y = CumSum(x, 0)", "-");
  expect_one("y = ArgMax(x) {axis=2, keepdims=0}", "10");
  expect_one("y = ArgMax(x)", "-");
  expect_one("y, t = TopK(x, [2])", "10");
}

// As weights of a mapped file may be.
static void unaligned_constants_are_read(void **state) {
  (void)state;
  lb_graph *g = graph_of("in x float32[b,6]\ny = ReduceMax(x, [1])\nout y\n");
  const lb_value *axes = g->main->nodes[0]->in[1];
  char bytes[sizeof(int64_t) + 1];
  memcpy(bytes + 1, axes->info.data->data, sizeof(int64_t));
  ((lb_tensor *)axes->info.data)->data = bytes + 1;
  const bool *params;
  must(lb_batch_find(g, &params));
  assert_non_null(params);
  lb_graph_free(g);
}

static void views_are_followed(void **state) {
  (void)state;
  expect_one("y = Reshape(x, [0,48])", "10");
  expect_one("y = Reshape(x, [-1,8])", "10");
  expect_one("y = Reshape(x, [6,-1,8])", "-");  // items are interleaved
  expect_one("y = Reshape(x, [48,-1])", "-");
  expect_one("y = Flatten(x) {axis=1}", "10");
  expect_one(
      "t = Transpose(x) {perm=[1,0,2]}\nu = Reshape(t, [6,-1,2,4])\n"
      "y = Transpose(u) {perm=[1,0,2,3]}",
      "10");
  expect_one("y = Transpose(x) {perm=[1,0,2]}", "-");  // not along axis 0 of
                                                       // the result
  expect_one("t = Unsqueeze(x, [0])\ny = Squeeze(t, [0])", "10");
  expect_one("y = Slice(x, [0], [2], [1])", "10");
  expect_one("y = Slice(x, [0], [2], [0])", "-");
  expect_one("y = Slice(x, [-1], [-9], [0], [-1])", "-");
  expect_one("t, y = Split(x, [4,4]) {axis=2}", "10");
}

static void movement_is_followed(void **state) {
  (void)state;
  expect_one("y = Concat(x, x) {axis=1}", "10");
  expect_one("y = Concat(x, x) {axis=0}", "-");
  expect_one("y = Pad(x, [0,1,0,0,1,0])", "10");
  expect_one("y = Pad(x, [1,0,0,-1,0,0])", "-");
  expect_one("y = Gather(x, i) {axis=1}", "10");
  expect_one("y = Gather(x, i) {axis=0}", "-");
  expect_one("y = Tile(x, [1,2,1])", "10");
  expect_one("y = Tile(x, [2,1,1])", "-");
  expect("in x int64[b,5]\nconst w float32[9,4] 1\ny = Gather(w, x)\nout y\n",
         "1");
}

static void only_shapes_may_depend_on_the_number_of_items(void **state) {
  (void)state;
  // A token before every item.
  expect_one(
      "const c float32[1,1,8] 1\nn = Shape(x)\nb = Slice(n, [0], [1])\n"
      "k = Concat(b, [1], [8]) {axis=0}\nt = Expand(c, k)\n"
      "y = Concat(t, x) {axis=1}",
      "10");
  // Divided by the number of items.
  expect_one(
      "n = Shape(x)\nb = Slice(n, [0], [1])\nf = Cast(b) {to=1}\n"
      "y = Div(x, f)",
      "-");
  // The last item only.
  expect_one("n = Shape(x)\nb = Slice(n, [0], [1])\ny = Slice(x, b, [99], [1])",
             "-");
  // Plus the index of each item.
  expect_one(
      "n = Shape(x)\nb = Gather(n, 0)\np = Range(0, b, 1)\n"
      "f = Cast(p) {to=1}\nk = Unsqueeze(f, [1,2])\ny = Add(x, k)",
      "-");
}

static void feature_maps_and_sequences_are_followed(void **state) {
  (void)state;
  expect(
      "in x float32[n,3,h,w]\nconst k float32[4,3,3,3] 1\n"
      "c = Conv(x, k) {pads=[1,1,1,1]}\np = MaxPool(c) {kernel_shape=[2,2]}\n"
      "y = GlobalAveragePool(p)\nout y\n",
      "1");
  expect(
      "in x float32[n,3,h,w]\n"
      "y, i = MaxPool(x) {kernel_shape=[2,2]}\nout y i\n",
      "-");
  expect(
      "in x float32[t,n,4]\nconst w float32[1,9,4] 1\n"
      "const r float32[1,9,3] 1\ny, h = GRU(x, w, r) {hidden_size=3}\n"
      "out h\n",
      "-");  // axis 0 is time
  expect(
      "in a float32[n,t,4]\nconst w float32[1,9,4] 1\n"
      "const r float32[1,9,3] 1\nx = Transpose(a) {perm=[1,0,2]}\n"
      "y, h = GRU(x, w, r) {hidden_size=3}\nz = Squeeze(h, [0])\nout z\n",
      "1");
  expect(
      "in a float32[n,t,4]\nin l int32[n]\nconst w float32[1,9,4] 1\n"
      "const r float32[1,9,3] 1\nx = Transpose(a) {perm=[1,0,2]}\n"
      "y, h = GRU(x, w, r, _, l) {hidden_size=3}\nz = Squeeze(h, [0])\n"
      "out z\n",
      "11");
  expect(
      "in a float32[n,t,9]\nin l int32[n]\n"
      "const r float32[1,9,3] 1\nx = Transpose(a) {perm=[1,0,2]}\n"
      "m = Within(l, x)\n"
      "y, h = GRU(x, _, r, _, m) {hidden_size=3, projected=1}\n"
      "z = Squeeze(h, [0])\nout z\n",
      "11");
  expect(
      "in q float32[n,2,t,4]\nin m float32[n,1,1,t]\n"
      "y = Attention(q, q, q, m)\nout y\n",
      "11");
  expect(
      "in q float32[n,2,t,4]\nin m float32[t,t]\n"
      "y = Attention(q, q, q, m)\nout y\n",
      "10");
}

static void the_batch_is_dim_0_of_an_input(void **state) {
  (void)state;
  expect("in x float32[4,3]\ny = Relu(x)\nout y\n", "-");
  expect("in x float32[n,n]\ny = Relu(x)\nout y\n", "-");
  expect("in x float32[n,3]\nin z float32[m,3]\ny = Relu(x)\nout y\n", "10");
  expect("in x float32[n,3]\nin z float32[m,3]\ny = Add(x, z)\nout y\n", "-");
  expect(
      "in x float32[n,3]\nin z float32[3,n]\ny = Relu(x)\nt = Relu(z)\n"
      "out y t\n",
      "-");
  expect("in x float32[n,3]\ny = RandomNormalLike(x)\nout y\n", "-");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise_operators_keep_items_apart),
      cmocka_unit_test(matmuls_keep_rows_apart),
      cmocka_unit_test(quantisation_keeps_items_apart),
      cmocka_unit_test(reductions_within_items_keep_them_apart),
      cmocka_unit_test(unaligned_constants_are_read),
      cmocka_unit_test(views_are_followed),
      cmocka_unit_test(movement_is_followed),
      cmocka_unit_test(only_shapes_may_depend_on_the_number_of_items),
      cmocka_unit_test(feature_maps_and_sequences_are_followed),
      cmocka_unit_test(the_batch_is_dim_0_of_an_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
