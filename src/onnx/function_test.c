// onnx/function_test.c -- inlining of the model's functions.
#include "onnx/model_test.h"

static pb call(const char *fn, const char *name, const char *in,
               const char *out) {
  pb n = pb_node(fn, name, in, out);
  pb_str(&n, 7, "my");
  return n;
}

static pb function(const char *name, const char *in, const char *out) {
  pb f = {0};
  pb_str(&f, 1, name);
  pb_list(&f, 4, in);
  pb_list(&f, 5, out);
  pb_msg(&f, 9, pb_opset("", 13));
  pb_msg(&f, 9, pb_opset("my", 1));
  pb_str(&f, 10, "my");
  return f;
}

static pb model_with(pb graph, pb f) {
  pb m = pb_model(graph, 13);
  pb_msg(&m, 25, f);
  return m;
}

static void a_call_becomes_the_body_with_names_of_its_own(void **state) {
  (void)state;
  pb f = function("Twice", "a", "b");
  pb_msg(&f, 7, pb_node("Relu", "r", "a", "t"));
  pb_msg(&f, 7, pb_node("Add", "s", "t,t", "b"));
  pb g = pb_graph("x", call("Twice", "c1", "x", "y"), "z");
  pb_msg(&g, 1, call("Twice", "c2", "y", "z"));
  expect_graph(model_with(g, f),
               "Twice_1/t=Relu(x); y=Add(Twice_1/t,Twice_1/t); "
               "Twice_2/t=Relu(y); z=Add(Twice_2/t,Twice_2/t) -> z");
}

// Names of inner nodes begin with that of the model's node, which users know.
static void nodes_of_a_body_are_named_after_the_call(void **state) {
  (void)state;
  pb inner = function("In", "a", "b"), outer = function("Out", "a", "b");
  pb_msg(&inner, 7, pb_node("Relu", "r", "a", "t"));
  pb_msg(&inner, 7, pb_node("Neg", "b", "t", "b"));
  pb_msg(&outer, 7, call("In", "i", "a", "t"));
  pb_msg(&outer, 7, pb_node("Abs", "b", "t", "b"));
  pb g = pb_graph("x", call("Out", "/m/out", "x", "y"), "z");
  pb_msg(&g, 1, call("Out", "", "y", "z"));
  pb model = model_with(g, inner);
  pb_msg(&model, 25, outer);
  lb_model m;
  parse(&model, &m);
  const char *const names[] = {"/m/out/r", "/m/out", "/m/out",
                               "Out_1/r",  "Out_1",  "Out_1"};
  assert_int_equal(m.graph->main->n_nodes, 6);
  for (int i = 0; i < 6; i++)
    assert_string_equal(m.graph->main->nodes[i]->name, names[i]);
  lb_model_fini(&m);
  lb_strbuf_fini(&model.b);
}

static void functions_may_call_functions(void **state) {
  (void)state;
  pb inner = function("In", "a", "b"), outer = function("Out", "a", "b");
  pb_msg(&inner, 7, pb_node("Relu", "r", "a", "b"));
  pb_msg(&outer, 7, call("In", "i", "a", "t"));
  pb_msg(&outer, 7, pb_node("Abs", "s", "t", "b"));
  pb m = model_with(pb_graph("x", call("Out", "o", "x", "y"), "y"), inner);
  pb_msg(&m, 25, outer);
  expect_graph(m, "Out_1/t=Relu(x); y=Abs(Out_1/t) -> y");
}

static void attributes_are_passed_or_default_or_left_out(void **state) {
  (void)state;
  pb f = function("F", "a", "b"), n = pb_node("Softmax", "s", "a", "b");
  pb dflt = pb_attr("p", 2);
  pb_attr_ref(&n, "axis", 2, "p");
  pb_attr_ref(&n, "other", 2, "q");
  pb_msg(&f, 7, n);
  pb_str(&f, 6, "q");
  pb_int(&dflt, 3, 7);
  pb_msg(&f, 11, dflt);
  pb with = call("F", "c", "x", "y");
  pb_attr_int(&with, "p", 2);
  pb g = pb_graph("x", with, "z");
  pb_msg(&g, 1, call("F", "d", "y", "z"));
  expect_graph(model_with(g, f),
               "y=Softmax(x) axis=2; z=Softmax(y) axis=7 -> z");
}

static void constants_follow_the_attributes_of_each_call(void **state) {
  (void)state;
  pb f = function("F", "a", "b"), k = pb_node("Constant", "k", "", "v");
  pb_attr_ref(&k, "value_float", 1, "p");
  pb_msg(&f, 7, k);
  pb_msg(&f, 7, pb_node("Add", "s", "a,v", "b"));
  pb one = call("F", "c", "x", "y"), two = call("F", "d", "y", "z");
  pb_attr_float(&one, "p", 1);
  pb_attr_float(&two, "p", 2);
  pb g = pb_graph("x", one, "z");
  pb_msg(&g, 1, two);
  expect_graph(model_with(g, f), "y=Add(x,1); z=Add(y,2) -> z");
}

static void overloads_are_distinguished(void **state) {
  (void)state;
  pb a = function("F", "a", "b"), b = function("F", "a", "b");
  pb_msg(&a, 7, pb_node("Relu", "r", "a", "b"));
  pb_str(&a, 13, "one");
  pb_msg(&b, 7, pb_node("Abs", "r", "a", "b"));
  pb_str(&b, 13, "two");
  pb n = call("F", "c", "x", "y");
  pb_str(&n, 8, "two");
  pb m = model_with(pb_graph("x", n, "y"), a);
  pb_msg(&m, 25, b);
  expect_graph(m, "y=Abs(x) -> y");
}

static void an_absent_input_is_absent_in_the_body(void **state) {
  (void)state;
  pb f = function("F", "a,lo,hi", "b");
  pb_msg(&f, 7, pb_node("Clip", "c", "a,lo,hi", "b"));
  pb g = pb_graph("x,m", call("F", "c", "x,-,m", "y"), "y");
  expect_graph(model_with(g, f), "y=Clip(x,_,m) -> y");
}

static void bodies_in_a_function_capture_its_names(void **state) {
  (void)state;
  pb n = pb_node("If", "i", "a", "b"), f = function("F", "a", "b");
  pb_attr_graph(&n, "then_branch",
                pb_graph("", pb_node("Relu", "r", "h", "t"), "t"));
  pb_attr_graph(&n, "else_branch", pb_graph("", (pb){0}, "a"));
  pb_msg(&f, 7, pb_node("Abs", "s", "a", "h"));
  pb_msg(&f, 7, n);
  expect_graph(model_with(pb_graph("x", call("F", "c", "x", "y"), "y"), f),
               "F_1/h=Abs(x); y=If(x,F_1/h,x) {F_1/h,x: F_1/t=Relu(F_1/h) -> "
               "F_1/t} {F_1/h,x:  -> x} -> y");
}

static void each_function_has_its_own_opset(void **state) {
  (void)state;
  pb f = {0}, s = pb_node("Softmax", "s", "a", "b");
  pb_str(&f, 1, "F");
  pb_str(&f, 10, "my");
  pb_list(&f, 4, "a");
  pb_list(&f, 5, "b");
  pb_msg(&f, 9, pb_opset("", 11));
  pb_msg(&f, 7, s);
  expect_graph(model_with(pb_graph("x", call("F", "c", "x", "y"), "y"), f),
               "y=Softmax(x) axis=1 flatten=1 -> y");
}

static void recursion_is_refused_with_its_names(void **state) {
  (void)state;
  pb a = function("A", "a", "b"), b = function("B", "a", "b");
  pb_msg(&a, 7, call("B", "cb", "a", "b"));
  pb_msg(&b, 7, call("A", "ca", "a", "b"));
  pb m = model_with(pb_graph("x", call("A", "c", "x", "y"), "y"), a);
  pb_msg(&m, 25, b);
  expect_error(m, LB_INVALID, "function my.A calls itself: my.A, my.B, my.A");
}

static void mismatched_calls_are_named(void **state) {
  (void)state;
  pb f = function("F", "a", "b");
  pb_msg(&f, 7, pb_node("Relu", "r", "a", "b"));
  expect_error(model_with(pb_graph("x", call("F", "c", "x,x", "y"), "y"), f),
               LB_INVALID,
               "node 'c' (F) has 2 inputs, but the function takes 1");
  f = function("F", "a", "b");
  pb_msg(&f, 7, pb_node("Relu", "r", "x", "b"));
  expect_error(model_with(pb_graph("x", call("F", "c", "x", "y"), "y"), f),
               LB_INVALID,
               "in function 'F': node 'r' (Relu) reads 'x', which nothing "
               "defines");
}

// Each function calls the next one twice: 2^40 nodes from 40 functions.
static void exponential_expansion_is_refused(void **state) {
  (void)state;
  pb m = pb_model(pb_graph("x", call("F0", "c", "x", "y"), "y"), 13);
  for (int i = 0; i < 40; i++) {
    char name[8], next[8];
    snprintf(name, sizeof name, "F%d", i);
    snprintf(next, sizeof next, "F%d", i + 1);
    pb f = function(name, "a", "b");
    pb_msg(&f, 7, call(next, "p", "a", "t"));
    pb_msg(&f, 7, call(next, "q", "t", "b"));
    pb_msg(&m, 25, f);
  }
  pb last = function("F40", "a", "b");
  pb_msg(&last, 7, pb_node("Relu", "r", "a", "b"));
  pb_msg(&m, 25, last);
  expect_error(m, LB_UNSUPPORTED,
               "the model's functions call each other so often that their "
               "inlined bodies would have more than 1048576 nodes and names");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_call_becomes_the_body_with_names_of_its_own),
      cmocka_unit_test(nodes_of_a_body_are_named_after_the_call),
      cmocka_unit_test(functions_may_call_functions),
      cmocka_unit_test(attributes_are_passed_or_default_or_left_out),
      cmocka_unit_test(constants_follow_the_attributes_of_each_call),
      cmocka_unit_test(overloads_are_distinguished),
      cmocka_unit_test(an_absent_input_is_absent_in_the_body),
      cmocka_unit_test(bodies_in_a_function_capture_its_names),
      cmocka_unit_test(each_function_has_its_own_opset),
      cmocka_unit_test(recursion_is_refused_with_its_names),
      cmocka_unit_test(mismatched_calls_are_named),
      cmocka_unit_test(exponential_expansion_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
