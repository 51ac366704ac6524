// onnx/survey_test.c -- the operators of a model are listed, whether or not it
// can be loaded.
#include "onnx/model_test.h"

static void operators_are_counted_in_bodies_and_called_functions(void **state) {
  (void)state;
  pb n = pb_node("If", "i", "x", "p"), call = pb_node("F", "c", "p", "q");
  pb_attr_graph(&n, "then_branch",
                pb_graph("", pb_node("Relu", "r1", "x", "t"), "t"));
  pb_attr_graph(&n, "else_branch",
                pb_graph("", pb_node("Nope", "n1", "x", "t"), "t"));
  pb_str(&call, 7, "my");
  pb g = pb_graph("x", n, "q");
  pb_msg(&g, 1, call);
  pb m = pb_model(g, 13);
  for (int i = 0; i < 2; i++) {
    pb f = {0};
    pb_str(&f, 1, i ? "Unused" : "F");
    pb_str(&f, 10, "my");
    pb_list(&f, 4, "a");
    pb_list(&f, 5, "b");
    pb_msg(&f, 9, pb_opset("", 13));
    pb_msg(&f, 7, pb_node(i ? "Abs" : "Relu", "r2", "a", "b"));
    pb_msg(&m, 25, f);
  }
  lb_survey s;
  expect_success(lb_onnx_survey(span_of(&m), &s));
  assert_int_equal(s.n_ops, 3);
  assert_int_equal(s.n_nodes, 5);
  assert_int_equal(s.opset, 13);
  assert_string_equal(s.ops[0].op_type, "If");
  assert_string_equal(s.ops[1].op_type, "Relu");
  assert_int_equal(s.ops[1].count, 2);
  assert_true(s.ops[1].supported);
  assert_string_equal(s.ops[1].first, "r1");
  assert_string_equal(s.ops[2].op_type, "Nope");
  assert_false(s.ops[2].supported);
  assert_int_equal(s.ops[2].opset, 13);
  lb_survey_fini(&s);
  lb_strbuf_fini(&m.b);
}

static void a_model_that_cannot_load_is_surveyed(void **state) {
  (void)state;
  pb m = pb_model(pb_graph("x", pb_node("Add", "a", "x,gone", "y"), "y"), 3);
  lb_survey s;
  expect_success(lb_onnx_survey(span_of(&m), &s));
  assert_int_equal(s.n_ops, 1);
  assert_int_equal(s.ops[0].opset, 3);
  lb_survey_fini(&s);
  lb_strbuf_fini(&m.b);
}

static void invalid_models_are_refused(void **state) {
  (void)state;
  lb_survey s;
  expect_message(lb_onnx_survey((lb_span){(const uint8_t *)"\x80", 1}, &s),
                 LB_INVALID,
                 "not a valid ONNX model: byte 0: a number is truncated");
  assert_null(s.ops);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operators_are_counted_in_bodies_and_called_functions),
      cmocka_unit_test(a_model_that_cannot_load_is_surveyed),
      cmocka_unit_test(invalid_models_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
