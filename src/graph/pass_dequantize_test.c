// graph/pass_dequantize_test.c -- quantised operators become float operators,
// without int8 values in between.
#include <stdio.h>

#include "graph/text_test.h"

static void an_integer_matmul_becomes_a_float_matmul(void **state) {
  (void)state;
  becomes(
      "in a uint8[s,2]\n"
      "in z uint8[]\n"
      "const b int8[2,2] 1 2 3 4\n"
      "const o int8[2] 1 2\n"
      "m = MatMulInteger(a, b, z, o)\n"
      "y = Cast(m) {to=1}\n"
      "out y\n",
      NULL,
      "in a: uint8[s,2]\n"
      "in z: uint8[]\n"
      "y.Cast: float32[s,2] = Cast(a) {to=1}\n"
      "y.Cast: float32[] = Cast(z) {to=1}\n"
      "y.Sub: float32[s,2] = Sub(y.Cast, y.Cast)\n"
      "y: float32[s,2] = MatMul(y.Sub, b:float32[2,2])\n"
      "out y\n");
}

static void an_integer_bias_becomes_a_float_bias(void **state) {
  (void)state;
  becomes(
      "in a uint8[s,2]\n"
      "in c int32[2]\n"
      "const b int8[2,2] 1 2 3 4\n"
      "m = MatMulInteger(a, b)\n"
      "t = Add(m, c)\n"
      "y = Cast(t) {to=1}\n"
      "out y\n",
      NULL,
      "in a: uint8[s,2]\n"
      "in c: int32[2]\n"
      "y.Cast.Cast: float32[s,2] = Cast(a) {to=1}\n"
      "y.Cast: float32[s,2] = MatMul(y.Cast.Cast, b:float32[2,2])\n"
      "y.Cast: float32[2] = Cast(c) {to=1}\n"
      "y: float32[s,2] = Add(y.Cast, y.Cast)\n"
      "out y\n");
}

static void unsupported_integer_matmuls_are_unchanged(void **state) {
  (void)state;
  stays(
      "in a uint8[s,2]\n"
      "const b int8[2,2] 1 2 3 4\n"
      "y = MatMulInteger(a, b)\n"
      "out y\n");
  stays(  // a zero point per row
      "in a uint8[s,2]\n"
      "in z uint8[s]\n"
      "const b int8[2,2] 1 2 3 4\n"
      "m = MatMulInteger(a, b, z)\n"
      "y = Cast(m) {to=1}\n"
      "out y\n");
  stays(  // weights that are only known at run time
      "in a uint8[s,2]\n"
      "in b int8[2,2]\n"
      "m = MatMulInteger(a, b)\n"
      "y = Cast(m) {to=1}\n"
      "out y\n");
}

static void intermediate_int8_values_are_eliminated(void **state) {
  (void)state;
  becomes(
      "in x float32[s,2]\n"
      "const z uint8[] 3\n"
      "q = QuantizeLinear(x, 0.5, z)\n"
      "y = DequantizeLinear(q, 0.25, z)\n"
      "out y\n",
      NULL,
      "in x: float32[s,2]\n"
      "q.Div: float32[s,2] = Div(x, 0.5)\n"
      "q.IsNaN: bool[s,2] = IsNaN(q.Div)\n"
      "q.Where: float32[s,2] = Where(q.IsNaN, -inf, q.Div)\n"
      "q.Round: float32[s,2] = Round(q.Where)\n"
      "q.Add: float32[s,2] = Add(q.Round, 3)\n"
      "q.Clip: float32[s,2] = Clip(q.Add, 0, 255)\n"
      "y.Sub: float32[s,2] = Sub(q.Clip, 3)\n"
      "y: float32[s,2] = Mul(y.Sub, 0.25)\n"
      "out y\n");
}

static void int8_inputs_are_cast_to_floats(void **state) {
  (void)state;
  becomes(
      "in x uint8[s]\n"
      "const z uint8[] 3\n"
      "y = DequantizeLinear(x, 0.5, z)\n"
      "out y\n",
      NULL,
      "in x: uint8[s]\n"
      "y.Cast: float32[s] = Cast(x) {to=1}\n"
      "y.Sub: float32[s] = Sub(y.Cast, 3)\n"
      "y: float32[s] = Mul(y.Sub, 0.5)\n"
      "out y\n");
}

static void qlinear_results_are_rounded_and_clamped(void **state) {
  (void)state;
  becomes(
      "in x float32[s,2]\n"
      "const o float32[] 0.5\n"
      "const z uint8[] 3\n"
      "const b int8[2,2] 1 2 3 4\n"
      "const p float32[] 0.25\n"
      "const n int8[] 1\n"
      "q = QuantizeLinear(x, o, z)\n"
      "m = QLinearMatMul(q, o, z, b, p, n, o, z)\n"
      "y = DequantizeLinear(m, o, z)\n"
      "out y\n",
      NULL,
      "in x: float32[s,2]\n"
      "q.Div: float32[s,2] = Div(x, 0.5)\n"
      "q.IsNaN: bool[s,2] = IsNaN(q.Div)\n"
      "q.Where: float32[s,2] = Where(q.IsNaN, -inf, q.Div)\n"
      "q.Round: float32[s,2] = Round(q.Where)\n"
      "q.Add: float32[s,2] = Add(q.Round, 3)\n"
      "q.Clip: float32[s,2] = Clip(q.Add, 0, 255)\n"
      "m.Sub: float32[s,2] = Sub(q.Clip, 3)\n"
      "m.MatMul: float32[s,2] = MatMul(m.Sub, b:float32[2,2])\n"
      "m.Mul: float32[s,2] = Mul(m.MatMul, 0.25)\n"
      "m.Round: float32[s,2] = Round(m.Mul)\n"
      "m.Add: float32[s,2] = Add(m.Round, 3)\n"
      "m.Clip: float32[s,2] = Clip(m.Add, 0, 255)\n"
      "y.Sub: float32[s,2] = Sub(m.Clip, 3)\n"
      "y: float32[s,2] = Mul(y.Sub, 0.5)\n"
      "out y\n");
}

// Scales stay after the sums, although constants could be folded into the
// weights.
static void integer_sums_stay_exact(void **state) {
  (void)state;
  becomes(
      "in x uint8[b,1,n]\n"
      "const k int8[4,1,2] 1 2 3 4 5 6 7 8\n"
      "c = ConvInteger(x, k)\n"
      "f = Cast(c) {to=1}\n"
      "y = Mul(f, 0.125)\n"
      "out y\n",
      &(lb_pass_options){.off = LB_PASS_BIT(LB_PASS_LAYOUT) |
                                LB_PASS_BIT(LB_PASS_CONV)},
      "in x: uint8[b,1,n]\n"
      "f.Cast: float32[b,1,n] = Cast(x) {to=1}\n"
      "f: float32[b,4,n-1] = Conv(f.Cast, k:float32[4,1,2]) {exact=1}\n"
      "y: float32[b,4,n-1] = Mul(f, 0.125)\n"
      "out y\n");
  becomes(
      "in x uint8[b,1,n]\n"
      "const o float32[] 0.5\n"
      "const z uint8[] 0\n"
      "const k uint8[1,1,2] 1 2\n"
      "y = QLinearConv(x, o, z, k, o, z, o, z)\n"
      "out y\n",
      &(lb_pass_options){.off = LB_PASS_BIT(LB_PASS_LAYOUT) |
                                LB_PASS_BIT(LB_PASS_CONV)},
      "in x: uint8[b,1,n]\n"
      "y.Cast: float32[b,1,n] = Cast(x) {to=1}\n"
      "y.Conv: float32[b,1,n-1] = Conv(y.Cast, k:float32[1,1,2]) "
      "{exact=1}\n"
      "y.Mul: float32[b,1,n-1] = Mul(y.Conv, 0.5)\n"
      "y.Round: float32[b,1,n-1] = Round(y.Mul)\n"
      "y.Clip: float32[b,1,n-1] = Clip(y.Round, 0, 255)\n"
      "y: uint8[b,1,n-1] = Cast(y.Clip) {to=2}\n"
      "out y\n");
}

// Readers of floats get moved floats; for other readers pools are computed in
// floats too.
static void readers_of_floats_get_moved_quantised_values(void **state) {
  (void)state;
  const char *source =
      "in x float32[a,b,2,2]\n"
      "r = Round(x)\n"
      "l = Clip(r, 0.0, 255.0)\n"
      "q = Cast(l) {to=2}\n"
      "p = MaxPool(q) {kernel_shape=[2,2]}\n"
      "f = Flatten(p)\n";
  char graph[512];
  snprintf(graph, sizeof graph, "%sy = DequantizeLinear(f, 0.5)\nout y\n",
           source);
  becomes(graph, &(lb_pass_options){.off = LB_PASS_BIT(LB_PASS_LAYOUT)},
          "in x: float32[a,b,2,2]\n"
          "r: float32[a,b,2,2] = Round(x)\n"
          "l: float32[a,b,2,2] = Clip(r, 0, 255)\n"
          "p.MaxPool: float32[a,b,1,1] = MaxPool(l) {kernel_shape=[2,2]}\n"
          "y.Flatten: float32[a,b] = Flatten(p.MaxPool)\n"
          "y: float32[a,b] = Mul(y.Flatten, 0.5)\n"
          "out y\n");
  snprintf(graph, sizeof graph, "%sout f\n", source);
  becomes(graph, &(lb_pass_options){.off = LB_PASS_BIT(LB_PASS_LAYOUT)},
          "in x: float32[a,b,2,2]\n"
          "r: float32[a,b,2,2] = Round(x)\n"
          "l: float32[a,b,2,2] = Clip(r, 0, 255)\n"
          "p.MaxPool: float32[a,b,1,1] = MaxPool(l) {kernel_shape=[2,2]}\n"
          "p: uint8[a,b,1,1] = Cast(p.MaxPool) {to=2}\n"
          "f: uint8[a,b] = Flatten(p)\n"
          "out f\n");
}

// Quantised values that leave the graph after a Transpose: it sinks, and the
// passes reach a fixpoint.
static void casts_after_a_transpose_reach_a_fixpoint(void **state) {
  (void)state;
  becomes(
      "in x float32[a,b,c]\n"
      "t = Transpose(x) {perm=[0,2,1]}\n"
      "r = Round(t)\n"
      "l = Clip(r, 0.0, 255.0)\n"
      "y = Cast(l) {to=2}\n"
      "out y\n",
      NULL,
      "in x: float32[a,b,c]\n"
      "r.Round: float32[a,b,c] = Round(x)\n"
      "l.Clip: float32[a,b,c] = Clip(r.Round, 0, 255)\n"
      "y.Cast: uint8[a,b,c] = Cast(l.Clip) {to=2}\n"
      "y: uint8[a,c,b] = Transpose(y.Cast) {perm=[0,2,1]}\n"
      "out y\n");
}

static void matmuls_with_runtime_scales_are_unchanged(void **state) {
  (void)state;
  stays(
      "in a uint8[s,2]\n"
      "in o float32[]\n"
      "const z uint8[] 3\n"
      "const b uint8[2,2] 1 2 3 4\n"
      "y = QLinearMatMul(a, o, z, b, o, z, o, z)\n"
      "out y\n");
}

static void floats_that_are_not_quantised_are_cast(void **state) {
  (void)state;
  becomes(  // the addend is not integral
      "in x float32[s]\n"
      "in o float32[s]\n"
      "r = Round(x)\n"
      "c = Clip(o, 0.0, 255.0)\n"
      "a = Add(r, c)\n"
      "l = Clip(a, 0.0, 255.0)\n"
      "b = Cast(l) {to=2}\n"
      "y = DequantizeLinear(b, 0.5)\n"
      "out y\n",
      NULL,
      "in x: float32[s]\n"
      "in o: float32[s]\n"
      "r: float32[s] = Round(x)\n"
      "c: float32[s] = Clip(o, 0, 255)\n"
      "a: float32[s] = Add(r, c)\n"
      "l: float32[s] = Clip(a, 0, 255)\n"
      "b: uint8[s] = Cast(l) {to=2}\n"
      "y.Cast: float32[s] = Cast(b) {to=1}\n"
      "y: float32[s] = Mul(y.Cast, 0.5)\n"
      "out y\n");
}

static void pools_with_empty_windows_stay_int8(void **state) {
  (void)state;
  static const char *const pools[][2] = {{"pads=[2,0]", "n+1"},
                                         {"pads=[0,2]", "n+1"},
                                         {"ceil_mode=1", "n-1"},
                                         {"dilations=[2], pads=[1,0]", "n-1"}};
  for (int i = 0; i < 4; i++) {
    char graph[512], result[512];
    const char *attr = pools[i][0], *n = pools[i][1];
    snprintf(graph, sizeof graph,
             "in x float32[b,c,n]\n"
             "r = Round(x)\n"
             "l = Clip(r, 0.0, 255.0)\n"
             "b = Cast(l) {to=2}\n"
             "p = MaxPool(b) {kernel_shape=[2], %s}\n"
             "y = DequantizeLinear(p, 0.5)\n"
             "out y\n",
             attr);
    snprintf(result, sizeof result,
             "y.Cast: float32[b,c,%s] = Cast(p) {to=1}\n"
             "y: float32[b,c,%s] = Mul(y.Cast, 0.5)\n",
             n, n);
    lb_graph *g = graph_of(graph);
    lb_strbuf dump = {0};
    must(lb_graph_optimize(g, NULL));
    lb_graph_dump(g, &dump);
    assert_non_null(strstr(lb_strbuf_str(&dump), result));
    lb_strbuf_fini(&dump);
    lb_graph_free(g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_integer_matmul_becomes_a_float_matmul),
      cmocka_unit_test(an_integer_bias_becomes_a_float_bias),
      cmocka_unit_test(unsupported_integer_matmuls_are_unchanged),
      cmocka_unit_test(intermediate_int8_values_are_eliminated),
      cmocka_unit_test(int8_inputs_are_cast_to_floats),
      cmocka_unit_test(qlinear_results_are_rounded_and_clamped),
      cmocka_unit_test(integer_sums_stay_exact),
      cmocka_unit_test(readers_of_floats_get_moved_quantised_values),
      cmocka_unit_test(casts_after_a_transpose_reach_a_fixpoint),
      cmocka_unit_test(matmuls_with_runtime_scales_are_unchanged),
      cmocka_unit_test(floats_that_are_not_quantised_are_cast),
      cmocka_unit_test(pools_with_empty_windows_stay_int8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
