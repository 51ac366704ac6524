// onnx/lists_test.c -- stacked lists become tensors, others are unchanged.
#include "onnx/model_test.h"

static void add(pb *graph, pb node) { pb_msg(graph, 1, node); }

// A loop over x whose body applies `insert` to the list p; y is the result
// stacked along `axis`.
static pb loop_model(pb insert, pb stacked, const char *out) {
  pb body = pb_graph("i,k,v,p", pb_node("Relu", "r", "v", "w"), "k,w,q");
  add(&body, insert);
  pb loop = pb_node("Loop", "l", "-,-,x,e", "o,s");
  pb_attr_graph(&loop, "body", body);
  pb g = pb_graph("x", pb_node("SequenceEmpty", "n", "", "e"), out);
  add(&g, loop);
  add(&g, stacked);
  return pb_model(g, 17);
}

static pb stacked(const char *from, int64_t axis, int64_t new_axis) {
  pb n = pb_node("ConcatFromSequence", "c", from, "y");
  pb_attr_int(&n, "axis", axis);
  pb_attr_int(&n, "new_axis", new_axis);
  return n;
}

static void an_appended_list_becomes_a_scan_output(void **state) {
  (void)state;
  static const struct {
    int64_t axis;
    const char *equation;
  } all[] = {{0, "a...->a..."},
             {1, "ab...->ba..."},
             {3, "abcd...->bcda..."},
             {-1, "a...->...a"},
             {-3, "a...bc->...abc"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char text[160];
    snprintf(text, sizeof text,
             "o,s=Loop(_,_,x) {i,k,v: w=Relu(v) -> k,w,w}; "
             "y=Einsum(s) equation=%s -> y,o",
             all[i].equation);
    expect_graph(loop_model(pb_node("SequenceInsert", "j", "p,w", "q"),
                            stacked("s", all[i].axis, 1), "y,o"),
                 text);
  }
}

// Two lists with the same initial list, before and after another carried value.
static void several_lists_of_one_loop_are_replaced(void **state) {
  (void)state;
  pb body = pb_graph("i,k,p,v,t", pb_node("Relu", "r", "v", "w"), "k,q,w,u");
  add(&body, pb_node("SequenceInsert", "j", "p,v", "q"));
  add(&body, pb_node("SequenceInsert", "h", "t,w", "u"));
  pb loop = pb_node("Loop", "l", "-,-,e,x,e", "a,o,b");
  pb_attr_graph(&loop, "body", body);
  pb g = pb_graph("x", pb_node("SequenceEmpty", "n", "", "e"), "y,z,o");
  add(&g, loop);
  pb z = pb_node("ConcatFromSequence", "d", "b", "z");
  pb_attr_int(&z, "new_axis", 1);
  pb_attr_int(&z, "axis", 0);
  add(&g, z);
  add(&g, stacked("a", 1, 1));
  expect_graph(pb_model(g, 17),
               "o,b,a=Loop(_,_,x) {i,k,v: w=Relu(v) -> k,w,w,v}; "
               "z=Einsum(b) equation=a...->a...; "
               "y=Einsum(a) equation=ab...->ba... -> y,z,o");
}

static void split_then_stack_becomes_identity_and_einsum(void **state) {
  (void)state;
  pb cut = pb_node("SplitToSequence", "c", "x", "s");
  pb_attr_int(&cut, "keepdims", 0);
  pb g = pb_graph("x", cut, "y");
  add(&g, stacked("s", 1, 1));
  expect_graph(pb_model(g, 11),
               "s=Identity(x); y=Einsum(s) equation=ab...->ba... -> y");
}

static void refuse(pb model) {
  lb_model m;
  lb_status st = lb_onnx_parse(span_of(&model), NULL, NULL, &m);
  assert_int_equal(lb_status_code(st), LB_UNSUPPORTED);
  lb_status_drop(st);
  lb_strbuf_fini(&model.b);
}

static void other_lists_are_not_supported(void **state) {
  (void)state;
  const char *q = "q";
  refuse(loop_model(pb_node("SequenceInsert", "j", "p,w", q),
                    stacked("s", 0, 0), "y"));  // joined: sizes may differ
  refuse(loop_model(pb_node("SequenceInsert", "j", "p,w,i", q),
                    stacked("s", 0, 1), "y"));  // not at the end
  refuse(loop_model(pb_node("SequenceInsert", "j", "p,p", q),
                    stacked("s", 0, 1), "y"));
  refuse(loop_model(pb_node("Identity", "j", "p", q), stacked("s", 0, 1), "y"));
  refuse(loop_model(pb_node("SequenceInsert", "j", "p,w", q),
                    stacked("s", 0, 1), "y,s"));  // the list is an output
  refuse(loop_model(pb_node("SequenceInsert", "j", "p,w", q),
                    stacked("s", 9, 1), "y"));
  refuse(loop_model(pb_node("SequenceInsert", "j", "p,w", q),
                    stacked("o", 0, 1), "y"));  // a tensor
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_appended_list_becomes_a_scan_output),
      cmocka_unit_test(several_lists_of_one_loop_are_replaced),
      cmocka_unit_test(split_then_stack_becomes_identity_and_einsum),
      cmocka_unit_test(other_lists_are_not_supported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
