// graph/pass_widen_test.c -- halves are computed in float32, and rounded where
// the model says so or shows them.
#include "graph/text_test.h"

static void what_computes_takes_and_makes_float32(void **state) {
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
      "y: float16[b,4] = Cast(y.Sqrt) {to=10, loose=1}\n"
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
      "y: bfloat16[b,4] = Cast(y.Mul) {to=16, loose=1}\n"
      "out y\n");
}

static void what_moves_takes_what_it_gets(void **state) {
  (void)state;
  stays(  // a half that nobody computed with
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
      "y: float16[4,b] = Cast(y.Sqrt) {to=10, loose=1}\n"
      "out y\n");
}

// It would go behind the rounding in one pass and before it in another.
static void what_sinks_stays_before_the_rounding(void **state) {
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
      "y: float16[4,b] = Cast(y.Sqrt) {to=10, loose=1}\n"
      "out y\n");
}

static void a_cast_of_the_models_own_rounds(void **state) {
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

static void bodies_have_halves_at_their_borders(void **state) {
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
      "e: float16[b,4] = Cast(e.Exp) {to=10, loose=1}\n"
      "y: float16[b,4] = If(c, e)\n"
      "then(p)\n"
      "  q.Cast: float32[b,4] = Cast(p) {to=1}\n"
      "  q.Sqrt: float32[b,4] = Sqrt(q.Cast)\n"
      "  q: float16[b,4] = Cast(q.Sqrt) {to=10, loose=1}\n"
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
      "v: float16[b,2] = Cast(v.TopK) {to=10, loose=1}\n"
      "out v\n"
      "out i\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_computes_takes_and_makes_float32),
      cmocka_unit_test(an_input_is_widened_once),
      cmocka_unit_test(what_moves_takes_what_it_gets),
      cmocka_unit_test(what_sinks_stays_before_the_rounding),
      cmocka_unit_test(a_cast_of_the_models_own_rounds),
      cmocka_unit_test(bodies_have_halves_at_their_borders),
      cmocka_unit_test(operators_with_several_outputs_round_each),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
