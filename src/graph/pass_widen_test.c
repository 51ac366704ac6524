// graph/pass_widen_test.c -- float16 and bfloat16 are computed in float32, and
// rounded where the model casts or yields them.
#include "graph/text_test.h"

static void computation_is_in_float32(void **state) {
  (void)state;
  becomes(
      "in x float16[b,4]\n"
      "e = Exp(x)\n"
      "y = Sqrt(e)\n"
      "out y\n",
      NULL,
      "in x: float16[b,4]\n"
      "e.Cast: float32[b,4] = Cast(x) {to=1}\n"
      "e.Exp: float32[b,4] = Exp(e.Cast)\n"
      "y.Sqrt: float32[b,4] = Sqrt(e.Exp)\n"
      "y: float16[b,4] = Cast(y.Sqrt) {to=10, elidable=1}\n"
      "out y\n");
}

static void an_input_is_widened_once(void **state) {
  (void)state;
  becomes(
      "in x bfloat16[b,4]\n"
      "e = Exp(x)\n"
      "y = Mul(e, x)\n"
      "out y\n",
      NULL,
      "in x: bfloat16[b,4]\n"
      "e.Cast: float32[b,4] = Cast(x) {to=1}\n"
      "e.Exp: float32[b,4] = Exp(e.Cast)\n"
      "y.Mul: float32[b,4] = Mul(e.Exp, e.Cast)\n"
      "y: bfloat16[b,4] = Cast(y.Mul) {to=16, elidable=1}\n"
      "out y\n");
}

static void data_movement_keeps_its_dtype(void **state) {
  (void)state;
  stays(  // a float16 value that is only moved
      "in x float16[b,4]\n"
      "y = Transpose(x) {perm=[1,0]}\n"
      "out y\n");
  becomes(
      "in x float16[b,4]\n"
      "e = Exp(x)\n"
      "t = Transpose(e) {perm=[1,0]}\n"
      "y = Sqrt(t)\n"
      "out y\n",
      &(lb_pass_options){.off = LB_PASS_BIT(LB_PASS_SINK) |
                                LB_PASS_BIT(LB_PASS_CUT)},
      "in x: float16[b,4]\n"
      "e.Cast: float32[b,4] = Cast(x) {to=1}\n"
      "e.Exp: float32[b,4] = Exp(e.Cast)\n"
      "t.Transpose: float32[4,b] = Transpose(e.Exp) {perm=[1,0]}\n"
      "y.Sqrt: float32[4,b] = Sqrt(t.Transpose)\n"
      "y: float16[4,b] = Cast(y.Sqrt) {to=10, elidable=1}\n"
      "out y\n");
}

// Otherwise it would move after the rounding in one pass and before it in
// another.
static void a_transpose_sinks_to_before_the_rounding(void **state) {
  (void)state;
  becomes(
      "in x float16[b,4]\n"
      "t = Transpose(x) {perm=[1,0]}\n"
      "e = Exp(t)\n"
      "y = Sqrt(e)\n"
      "out y\n",
      NULL,
      "in x: float16[b,4]\n"
      "e.Cast.Cast: float32[b,4] = Cast(x) {to=1}\n"
      "e.Exp.Exp: float32[b,4] = Exp(e.Cast.Cast)\n"
      "y.Sqrt.Sqrt: float32[b,4] = Sqrt(e.Exp.Exp)\n"
      "y.Sqrt: float32[4,b] = Transpose(y.Sqrt.Sqrt) {perm=[1,0]}\n"
      "y: float16[4,b] = Cast(y.Sqrt) {to=10, elidable=1}\n"
      "out y\n");
}

static void casts_of_the_model_round(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4]\n"
      "h = Cast(x) {to=10}\n"
      "e = Exp(h)\n"
      "y = Cast(e) {to=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,4]\n"
      "h: float16[b,4] = Cast(x) {to=10}\n"
      "e.Cast: float32[b,4] = Cast(h) {to=1}\n"
      "e.Exp: float32[b,4] = Exp(e.Cast)\n"
      "out y = e.Exp\n");
}

static void bodies_have_16bit_parameters_and_results(void **state) {
  (void)state;
  becomes(
      "in c bool[]\n"
      "in x float16[b,4]\n"
      "e = Exp(x)\n"
      "y = If(c, e)\n"
      "then(p)\n"
      "q = Sqrt(p)\n"
      "gives q\n"
      "else(p)\n"
      "gives p\n"
      "out y\n",
      NULL,
      "in c: bool[]\n"
      "in x: float16[b,4]\n"
      "e.Cast: float32[b,4] = Cast(x) {to=1}\n"
      "e.Exp: float32[b,4] = Exp(e.Cast)\n"
      "e: float16[b,4] = Cast(e.Exp) {to=10, elidable=1}\n"
      "y: float16[b,4] = If(c, e)\n"
      "then(p)\n"
      "  q.Cast: float32[b,4] = Cast(p) {to=1}\n"
      "  q.Sqrt: float32[b,4] = Sqrt(q.Cast)\n"
      "  q: float16[b,4] = Cast(q.Sqrt) {to=10, elidable=1}\n"
      "  gives q\n"
      "else(p)\n"
      "  gives p\n"
      "out y\n");
}

static void operators_with_several_outputs_round_each(void **state) {
  (void)state;
  becomes(
      "in x float16[b,4]\n"
      "e = Exp(x)\n"
      "v, i = TopK(e, [2])\n"
      "out v i\n",
      NULL,
      "in x: float16[b,4]\n"
      "e.Cast: float32[b,4] = Cast(x) {to=1}\n"
      "e.Exp: float32[b,4] = Exp(e.Cast)\n"
      "v.TopK: float32[b,2], i: int64[b,2] = TopK(e.Exp, [2])\n"
      "v: float16[b,2] = Cast(v.TopK) {to=10, elidable=1}\n"
      "out v\n"
      "out i\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(computation_is_in_float32),
      cmocka_unit_test(an_input_is_widened_once),
      cmocka_unit_test(data_movement_keeps_its_dtype),
      cmocka_unit_test(a_transpose_sinks_to_before_the_rounding),
      cmocka_unit_test(casts_of_the_model_round),
      cmocka_unit_test(bodies_have_16bit_parameters_and_results),
      cmocka_unit_test(operators_with_several_outputs_round_each),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
