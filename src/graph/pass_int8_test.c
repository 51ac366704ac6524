// graph/pass_int8_test.c -- quantised operators become int8 GEMMs.
#include "graph/text_test.h"

// Evaluates Expand.
static lb_status repeat_columns(void *user, const lb_node *node,
                                const lb_tensor *in, lb_arena *arena,
                                lb_tensor *out) {
  (void)user, (void)node;
  *out = in[0];
  out->dims[1] = 64;
  lb_tensor_dense(out);
  uint8_t *to = out->data = lb_arena_alloc(arena, lb_tensor_bytes(out), 64);
  for (int i = 0; i < 4 * 64; i++)
    to[i] = ((const uint8_t *)in[0].data)[i / 64];
  return LB_OK;
}

static void runtime_zero_points_are_subtracted_after_the_gemm(void **state) {
  (void)state;
  becomes(
      "in a uint8[s,4]\n"
      "in z uint8[]\n"
      "const b int8[4,2] 1 2 3 4 5 6 7 8\n"
      "const o int8[2] 1 2\n"
      "y = MatMulInteger(a, b, z, o)\n"
      "out y\n",
      NULL,
      "in a: uint8[s,4]\n"
      "in z: uint8[]\n"
      "y.MatMulInteger: int32[s,2] = MatMulInteger(a, bytes:int8[4,2])\n"
      "y.Cast: int32[] = Cast(z) {to=6}\n"
      "y.Mul: int32[2] = Mul(y.Cast, [12,12])\n"
      "y.Sub: int32[s,2] = Sub(y.MatMulInteger, y.Mul)\n"
      "out y = y.Sub\n");
}

static void a_constant_zero_point_becomes_a_bias(void **state) {
  (void)state;
  becomes(
      "in a uint8[s,4]\n"
      "const z uint8[] 3\n"
      "const b int8[4,1] 1 2 3 4\n"
      "y = MatMulInteger(a, b, z)\n"
      "out y\n",
      NULL,
      "in a: uint8[s,4]\n"
      "y.MatMulInteger: int32[s,1] = MatMulInteger(a, bytes:int8[4,1])\n"
      "y.Add: int32[s,1] = Add(y.MatMulInteger, [-30])\n"
      "out y = y.Add\n");
}

static void int8_operands_become_uint8(void **state) {
  (void)state;
  becomes(
      "in a int8[s,4]\n"
      "const b int8[4,1] 1 2 3 4\n"
      "y = MatMulInteger(a, b)\n"
      "out y\n",
      NULL,
      "in a: int8[s,4]\n"
      "y.Cast: int32[s,4] = Cast(a) {to=6}\n"
      "y.Add: int32[s,4] = Add(y.Cast, [128])\n"
      "y.Cast: uint8[s,4] = Cast(y.Add) {to=2}\n"
      "y.MatMulInteger: int32[s,1] = MatMulInteger(y.Cast, bytes:int8[4,1])\n"
      "y.Add: int32[s,1] = Add(y.MatMulInteger, [-1280])\n"
      "out y = y.Add\n");
}

// 255 does not fit into int8: rows are summed, which pays with many columns.
static void weights_beyond_int8_are_offset(void **state) {
  (void)state;
  static const char source[] =
      "in a uint8[s,4]\n"
      "const b uint8[4,1] 1 255 3 4\n"
      "const dims int64[2] 4 64\n"
      "w = Expand(b, dims)\n"
      "y = MatMulInteger(a, w)\n"
      "out y\n";
  lb_graph *g = graph_of(source);
  must(lb_graph_optimize(g, &(lb_pass_options){.eval = repeat_columns}));
  dump_is(g,
          "in a: uint8[s,4]\n"
          "y.MatMulInteger: int32[s,64] = MatMulInteger(a, bytes:int8[4,64])\n"
          "y.MatMulInteger: int32[s,1] = MatMulInteger(a, ones:int8[4,1])\n"
          "y.Mul: int32[s,1] = Mul(y.MatMulInteger, [-128])\n"
          "y.Sub: int32[s,64] = Sub(y.MatMulInteger, y.Mul)\n"
          "out y = y.Sub\n");
  lb_graph_free(g);
  stays(
      "in a uint8[s,4]\n"
      "const b uint8[4,1] 1 255 3 4\n"
      "y = MatMulInteger(a, b)\n"
      "out y\n");
}

static void dequantised_matmuls_become_int8_gemms(void **state) {
  (void)state;
  becomes(
      "in a uint8[s,4]\n"
      "in c float32[2]\n"
      "const b int8[2,4] 1 2 3 4 5 6 7 8\n"
      "const scales float32[2] 0.5 0.25\n"
      "x = DequantizeLinear(a, 0.5)\n"
      "w = DequantizeLinear(b, scales) {axis=0}\n"
      "y = Gemm(x, w, c) {transB=1}\n"
      "out y\n",
      NULL,
      "in a: uint8[s,4]\n"
      "in c: float32[2]\n"
      "y.MatMulInteger: int32[s,2] = MatMulInteger(a, bytes:int8[4,2])\n"
      "y.Cast: float32[s,2] = Cast(y.MatMulInteger) {to=1}\n"
      "y.Mul: float32[s,2] = Mul(y.Cast, [0.25,0.125])\n"
      "y: float32[s,2] = Add(y.Mul, c)\n"
      "out y\n");
}

static void padding_is_written_unless_it_is_zero(void **state) {
  (void)state;
  becomes(
      "in x uint8[b,4,n]\n"
      "const z uint8[] 3\n"
      "const k int8[1,4,1] 1 2 3 4\n"
      "y = ConvInteger(x, k, z) {pads=[1,0]}\n"
      "out y\n",
      NULL,
      "in x: uint8[b,4,n]\n"
      "y.Pad: uint8[b,4,n+1] = Pad(x, pads:int64[6], 3)\n"
      "y.ConvInteger: int32[b,1,n+1] = ConvInteger(y.Pad, bytes:int8[1,4,1]) "
      "{pads=[0,0]}\n"
      "y.Add: int32[b,1,n+1] = Add(y.ConvInteger, numbers:int32[1,1])\n"
      "out y = y.Add\n");
  becomes(
      "in x uint8[b,4,n]\n"
      "const z uint8[] 0\n"
      "const k int8[1,4,1] 1 2 3 4\n"
      "y = ConvInteger(x, k, z) {pads=[1,0]}\n"
      "out y\n",
      NULL,
      "in x: uint8[b,4,n]\n"
      "y.ConvInteger: int32[b,1,n+1] = ConvInteger(x, bytes:int8[1,4,1]) "
      "{pads=[1,0]}\n"
      "out y = y.ConvInteger\n");
}

static void channels_are_padded_to_a_multiple_of_4(void **state) {
  (void)state;
  becomes(
      "in x uint8[b,3,n]\n"
      "const k int8[1,3,1] 1 2 3\n"
      "y = ConvInteger(x, k) {pads=[1,0]}\n"
      "out y\n",
      NULL,
      "in x: uint8[b,3,n]\n"
      "y.Pad: uint8[b,4,n+1] = Pad(x, pads:int64[6], 0)\n"
      "y.ConvInteger: int32[b,1,n+1] = ConvInteger(y.Pad, bytes:int8[1,4,1]) "
      "{pads=[0,0]}\n"
      "out y = y.ConvInteger\n");
}

// With channels last, a pointwise convolution is a GEMM.
static void a_pointwise_convolution_becomes_a_gemm(void **state) {
  (void)state;
  becomes(
      "in x uint8[b,4,h,w]\n"
      "const k int8[1,4,1,1] 1 2 3 4\n"
      "y = ConvInteger(x, k)\n"
      "out y\n",
      &(lb_pass_options){.channels_last = true},
      "in x: uint8[b,4,h,w]\n"
      "y.Transpose: uint8[b,h,w,4] = Transpose(x) {perm=[0,2,3,1]}\n"
      "y.ConvInteger: int32[b,h,w,1] = "
      "MatMulInteger(y.Transpose, k:int8[4,1])\n"
      "y: int32[b,1,h,w] = Transpose(y.ConvInteger) {perm=[0,3,1,2]}\n"
      "out y\n");
}

static void operators_without_int8_kernels_are_unchanged(void **state) {
  (void)state;
  stays(  // K is not a multiple of 4
      "in a uint8[s,3]\n"
      "const b int8[3,1] 1 2 3\n"
      "y = MatMulInteger(a, b)\n"
      "out y\n");
  stays(  // weights that are only known at run time
      "in a uint8[s,4]\n"
      "in b int8[4,1]\n"
      "y = MatMulInteger(a, b)\n"
      "out y\n");
  stays(  // a zero point per row
      "in a uint8[s,4]\n"
      "in z uint8[s]\n"
      "const b int8[4,1] 1 2 3 4\n"
      "y = MatMulInteger(a, b, z)\n"
      "out y\n");
  stays(  // one channel: three of four would be padding
      "in x uint8[b,1,n]\n"
      "const k int8[1,1,1] 1\n"
      "y = ConvInteger(x, k)\n"
      "out y\n");
  stays(  // channels per group are not a multiple of 4
      "in x uint8[b,6,n]\n"
      "const k int8[2,3,1] 1 2 3 4 5 6\n"
      "y = ConvInteger(x, k) {group=2}\n"
      "out y\n");
  stays(  // auto_pad: the padding is not explicit
      "in x uint8[b,4,n]\n"
      "const z uint8[] 3\n"
      "const k int8[1,4,2] 1 2 3 4 5 6 7 8\n"
      "y = ConvInteger(x, k, z) {auto_pad=\"SAME_UPPER\"}\n"
      "out y\n");
  stays(  // a vector
      "in a uint8[4]\n"
      "const b int8[4,1] 1 2 3 4\n"
      "y = MatMulInteger(a, b)\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runtime_zero_points_are_subtracted_after_the_gemm),
      cmocka_unit_test(a_constant_zero_point_becomes_a_bias),
      cmocka_unit_test(int8_operands_become_uint8),
      cmocka_unit_test(weights_beyond_int8_are_offset),
      cmocka_unit_test(dequantised_matmuls_become_int8_gemms),
      cmocka_unit_test(padding_is_written_unless_it_is_zero),
      cmocka_unit_test(channels_are_padded_to_a_multiple_of_4),
      cmocka_unit_test(a_pointwise_convolution_becomes_a_gemm),
      cmocka_unit_test(operators_without_int8_kernels_are_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
