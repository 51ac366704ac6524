// graph/pass_conv_transpose_test.c -- transposed convolutions become
// convolutions whose channels are positions. The operator tests, which compare
// with ONNX Runtime, check the results.
#include "graph/text_test.h"

// Moves the data to an odd address, as in a mapped file.
static void misalign(const lb_value *v, char *buffer) {
  lb_tensor *t = (lb_tensor *)v->info.data;
  memcpy(buffer + 1, t->data, lb_tensor_bytes(t));
  t->data = buffer + 1;
}

static void overlapping_windows_become_a_convolution(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,t,1]\n"
      "const k float32[1,1,4] 1 2 3 4\n"
      "y = ConvTranspose(x, k) {strides=[2], pads=[1,1], channels_last=1}\n"
      "out y\n");
  char buffer[1 + 4 * sizeof(float)];
  misalign(g->main->nodes[0]->in[1], buffer);
  must(lb_graph_optimize(
      g, &(lb_pass_options){.off = LB_PASS_BIT(LB_PASS_CONV) |
                                   LB_PASS_BIT(LB_PASS_WINDOW)}));
  dump_is(g,
          "in x: float32[b,t,1]\n"
          "y.Conv: float32[b,t+1,2] = Conv(x, k:float32[2,1,2]) "
          "{channels_last=1, kernel_shape=[2], pads=[1,1]}\n"
          "y.Reshape: float32[b,2*t+2,1] = Reshape(y.Conv, [0,-1,1])\n"
          "y: float32[b,2*t,1] = Slice(y.Reshape, [1], [-1], [1])\n"
          "out y\n");
  const lb_tensor *w = g->main->nodes[0]->in[1]->info.data;
  const float want[] = {3, 1, 4, 2};  // phase 0, then phase 1
  assert_memory_equal(w->data, want, sizeof want);
  lb_graph_free(g);
}

static void unsupported_nodes_are_unchanged(void **state) {
  (void)state;
  stays(  // groups
      "in x float32[b,t,2]\n"
      "const k float32[2,1,4] 1\n"
      "y = ConvTranspose(x, k) {strides=[2], group=2, channels_last=1}\n"
      "out y\n");
  stays(  // output_padding exceeds what would be cropped
      "in x float32[b,t,1]\n"
      "const k float32[1,1,2] 1\n"
      "y = ConvTranspose(x, k) {strides=[2], output_padding=[1], "
      "channels_last=1}\n"
      "out y\n");
  stays(  // more is cropped than one position yields
      "in x float32[b,t,1]\n"
      "const k float32[1,1,3] 1\n"
      "y = ConvTranspose(x, k) {strides=[2], pads=[2,2], channels_last=1}\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(overlapping_windows_become_a_convolution),
      cmocka_unit_test(unsupported_nodes_are_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
