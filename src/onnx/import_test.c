// onnx/import_test.c -- graphs, names, bodies, versions: accepted models, and
// the exact error messages for others.
#include "onnx/model_test.h"

// -- the file ----------------------------------------------------------------

static void an_empty_file_is_refused(void **state) {
  (void)state;
  lb_model m;
  expect_message(
      lb_onnx_parse((lb_span){(const uint8_t *)"", 0}, NULL, NULL, &m),
      LB_INVALID, "the model is empty (0 bytes)");
}

static void a_model_needs_graph_and_versions(void **state) {
  (void)state;
  pb none = {0}, no_ir = {0}, old_ir = {0}, no_opset = {0};
  pb_int(&none, 1, 8);
  expect_error(none, LB_INVALID, "the model has no graph: is it an ONNX file?");
  pb_msg(&no_ir, 7, pb_graph("x", pb_node("Relu", "r", "x", "y"), "y"));
  expect_error(no_ir, LB_INVALID,
               "the model has no IR version: is it an ONNX file?");
  pb_int(&old_ir, 1, 2);
  pb_msg(&old_ir, 7, pb_graph("x", pb_node("Relu", "r", "x", "y"), "y"));
  expect_error(old_ir, LB_UNSUPPORTED,
               "IR version 2 is too old: Limber reads 3 and newer");
  pb_int(&no_opset, 1, 8);
  pb_msg(&no_opset, 7, pb_graph("x", pb_node("Relu", "r", "x", "y"), "y"));
  expect_error(no_opset, LB_INVALID,
               "node 'r' (Relu): the model does not say which opset of ONNX it "
               "uses");
  pb g = pb_graph("x", pb_node("Relu", "r", "x", "y"), "y");
  expect_error(
      pb_model(g, 6), LB_UNSUPPORTED,
      "opset 6 is too old: Limber reads 7 and newer; convert the model "
      "with onnx.version_converter");
}

static void keep_line(void *user, int level, const char *line) {
  (void)level;
  snprintf(user, 200, "%s", line);
}

static void a_newer_opset_is_a_warning(void **state) {
  (void)state;
  char line[200] = "";
  lb_log log = {.fn = keep_line, .user = line, .level = LB_LOG_WARN};
  lb_onnx_options o = {.log = &log};
  pb m = pb_model(pb_graph("x", pb_node("Relu", "r", "x", "y"), "y"), 99);
  lb_model model;
  expect_success(lb_onnx_parse(span_of(&m), NULL, &o, &model));
  assert_string_equal(line,
                      "opset 99 is newer than 28, the newest known; operators "
                      "are assumed to be unchanged since then");
  assert_int_equal(model.opset, 99);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
}

static void truncated_and_flipped_models_fail_or_give_a_valid_graph(
    void **state) {
  (void)state;
  static const float w[] = {1, 2, 3};
  pb g = pb_graph("x", pb_node("Add", "a", "x,w", "y"), "y");
  pb_msg(&g, 5, pb_floats("w", 3, w));
  pb m = pb_model(g, 13);
  for (size_t i = 0; i < m.b.len * 9; i++) {
    size_t n = i < m.b.len ? i : m.b.len;
    uint8_t *copy = malloc(n + 1);
    memcpy(copy, m.b.data, n);
    if (i >= m.b.len) copy[(i / 8) % n] ^= (uint8_t)(1u << (i % 8));
    lb_model out;
    lb_status st = lb_onnx_parse((lb_span){copy, n}, NULL, NULL, &out);
    if (lb_failed(st)) {
      assert_int_not_equal(lb_status_code(st), LB_INTERNAL);
      lb_status_drop(st);
    } else {
      expect_success(lb_graph_verify(out.graph));
      lb_model_fini(&out);
    }
    free(copy);
  }
  lb_strbuf_fini(&m.b);
}

static void metadata_is_kept(void **state) {
  (void)state;
  pb m = pb_model(pb_graph("x", pb_node("Relu", "r", "x", "y"), "y"), 13);
  pb prop = {0};
  pb_str(&m, 2, "producer");
  pb_str(&prop, 1, "k");
  pb_str(&prop, 2, "v");
  pb_msg(&m, 14, prop);
  lb_model model;
  parse(&m, &model);
  assert_string_equal(model.producer_name, "producer");
  assert_string_equal(model.description, "");
  assert_int_equal(model.n_props, 1);
  assert_string_equal(model.props[0].key, "k");
  assert_string_equal(model.props[0].value, "v");
  assert_int_equal(model.ir_version, 8);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
}

// -- names -------------------------------------------------------------------

static void an_undefined_input_is_named(void **state) {
  (void)state;
  pb g = pb_graph("x", pb_node("Add", "a", "x,y", "z"), "z");
  expect_error(pb_model(g, 13), LB_INVALID,
               "node 'a' (Add) reads 'y', which nothing defines");
}

static void an_undefined_output_is_named(void **state) {
  (void)state;
  pb g = pb_graph("x", pb_node("Relu", "r", "x", "y"), "q");
  expect_error(pb_model(g, 13), LB_INVALID, "output 'q' is not defined");
}

static void a_cycle_names_its_nodes(void **state) {
  (void)state;
  pb g = pb_graph("x", pb_node("Add", "a", "x,q", "p"), "q");
  pb_msg(&g, 1, pb_node("Relu", "b", "p", "q"));
  expect_error(pb_model(g, 13), LB_INVALID,
               "the graph has a cycle through node 'a', 'b'");
}

static void a_cycle_through_a_body_is_found(void **state) {
  (void)state;
  pb n = pb_node("If", "i", "c", "p");
  pb_attr_graph(&n, "then_branch",
                pb_graph("", pb_node("Relu", "r", "q", "t"), "t"));
  pb_attr_graph(&n, "else_branch",
                pb_graph("", pb_node("Relu", "r", "c", "t"), "t"));
  pb g = pb_graph("c", n, "q");
  pb_msg(&g, 1, pb_node("Relu", "b", "p", "q"));
  expect_error(pb_model(g, 13), LB_INVALID,
               "the graph has a cycle through node 'i', 'b'");
}

static void two_definitions_name_both_nodes(void **state) {
  (void)state;
  pb g = pb_graph("x", pb_node("Relu", "a", "x", "y"), "y");
  pb_msg(&g, 1, pb_node("Abs", "b", "x", "y"));
  expect_error(pb_model(g, 13), LB_INVALID,
               "value 'y' is defined twice: by node 'a' (Relu) and by node "
               "'b' (Abs)");
  g = pb_graph("x,y", pb_node("Relu", "a", "x", "y"), "y");
  expect_error(pb_model(g, 13), LB_INVALID,
               "node 'a' (Relu) defines 'y', which is also an input");
  g = pb_graph("x", pb_node("Relu", "a", "x", "w"), "w");
  pb_msg(&g, 5, pb_floats("w", 0, NULL));
  expect_error(pb_model(g, 13), LB_INVALID,
               "node 'a' (Relu) defines 'w', which is also an initializer");
  expect_error(
      pb_model(pb_graph("x,x", pb_node("Relu", "a", "x", "y"), "y"), 13),
      LB_INVALID, "input 'x' is declared twice");
}

static void unsorted_nodes_are_sorted(void **state) {
  (void)state;
  pb g = pb_graph("x", pb_node("Abs", "b", "p", "y"), "y");
  pb_msg(&g, 1, pb_node("Relu", "a", "x", "p"));
  expect_graph(pb_model(g, 13), "p=Relu(x); y=Abs(p) -> y");
}

static void an_initializer_among_the_inputs_is_a_constant(void **state) {
  (void)state;
  static const float w[] = {1, 2, 3};
  pb g = pb_graph("x,w", pb_node("Add", "a", "x,w", "y"), "y");
  pb_msg(&g, 5, pb_floats("w", 3, w));
  pb m = pb_model(g, 13);
  lb_model model;
  parse(&m, &model);
  assert_int_equal(model.graph->main->n_params, 1);
  assert_int_equal(model.weight_bytes, 12);
  lb_model_fini(&model);
  expect_graph(m, "y=Add(x,[1,2,3]) -> y");
}

static void an_output_may_be_an_input_or_an_initializer(void **state) {
  (void)state;
  static const float w[] = {1, 2};
  pb g = pb_graph("x", (pb){0}, "x,w");
  pb_msg(&g, 5, pb_floats("w", 2, w));
  expect_graph(pb_model(g, 13), " -> x,[1,2]");
}

static void unknown_operators_are_listed_at_once(void **state) {
  (void)state;
  pb g = {0};
  for (int i = 0; i < 3; i++) {
    char name[8];
    snprintf(name, sizeof name, "mm%d", i + 1);
    pb n = pb_node("BeamSearch", name, "x,x", name);
    pb_str(&n, 7, "com.microsoft");
    pb_msg(&g, 1, n);
  }
  pb_msg(&g, 1, pb_node("Foo", "n5", "x", "y"));
  pb_msg(&g, 1, pb_node("Relu", "r", "x", "z"));
  pb m = pb_model(g, 17);
  pb_msg(&m, 8, pb_opset("com.microsoft", 1));
  expect_error(m, LB_UNSUPPORTED,
               "2 operators are not supported: com.microsoft.BeamSearch "
               "(opset 1) ×3, first at node 'mm1'; Foo (opset 17) ×1, first at "
               "node 'n5'");
  g = pb_graph("x", pb_node("Foo", NULL, "x", "y"), "y");
  expect_error(pb_model(g, 17), LB_UNSUPPORTED,
               "1 operator is not supported: Foo (opset 17) ×1, first at node "
               "'Foo_0'");
  pb n = pb_node("Conv", "c", "x,x", "y");
  pb_str(&n, 7, "com.microsoft.nchwc");
  m = pb_model(pb_graph("x", n, "y"), 17);
  pb_msg(&m, 8, pb_opset("com.microsoft.nchwc", 1));
  expect_error(
      m, LB_UNSUPPORTED,
      "1 operator is not supported: com.microsoft.nchwc.Conv (opset "
      "1) ×1, first at node 'c'. ONNX Runtime optimised this model for "
      "one kind of processor; use at most the level "
      "ORT_ENABLE_EXTENDED");
}

static void wrong_arity_is_named(void **state) {
  (void)state;
  pb g = pb_graph("x", pb_node("Add", "a", "x", "y"), "y");
  expect_error(pb_model(g, 13), LB_INVALID,
               "node 'a' (Add) has 1 input, but needs 2");
  g = pb_graph("x", pb_node("Relu", "r", "x,x,x", "y"), "y");
  expect_error(pb_model(g, 13), LB_INVALID,
               "node 'r' (Relu) has 3 inputs, but takes at most 1");
  g = pb_graph("x", pb_node("Relu", "r", "x", "y,z"), "y");
  expect_error(pb_model(g, 13), LB_INVALID,
               "node 'r' (Relu) has 2 outputs, but may have at most 1");
  g = pb_graph("x", pb_node("Add", "a", "-,x", "y"), "y");
  expect_error(pb_model(g, 13), LB_INVALID, "node 'a' (Add) has no input 0");
}

static void absent_inputs_and_outputs_are_null(void **state) {
  (void)state;
  pb g = pb_graph("x,w,r", pb_node("LSTM", "l", "x,w,r,-,-,x,-", "-,h,-"), "h");
  expect_graph(pb_model(g, 14), "_,h=LSTM(x,w,r,_,_,x) -> h");
}

// -- declared types ----------------------------------------------------------

static void anonymous_dims_are_distinct_symbols(void **state) {
  (void)state;
  pb g = pb_graph("", pb_node("Relu", "r", "x", "y"), "y");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "batch,?,'-1,None,-5,,7,batch"));
  pb m = pb_model(g, 13);
  lb_model model;
  parse(&m, &model);
  const lb_vinfo *x = &model.graph->main->params[0]->info;
  assert_int_equal(x->rank, 8);
  assert_int_equal(x->dtype, LB_F32);
  assert_true(lb_dim_equal(x->dims[0], x->dims[7]));
  assert_true(lb_dim_is(x->dims[6], 7));
  for (int i = 0; i < 6; i++)
    for (int k = i + 1; k < 6; k++)
      assert_false(lb_dim_equal(x->dims[i], x->dims[k]));
  assert_int_equal(lb_symtab_count(model.graph->syms), 6);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
}

static void an_input_without_a_shape_has_unknown_rank(void **state) {
  (void)state;
  pb g = pb_graph("", pb_node("Relu", "r", "x", "y"), "");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, NULL));
  pb_msg(&g, 12, pb_value("y", T_FLOAT, "3,n,-1"));
  pb m = pb_model(g, 13);
  lb_model model;
  parse(&m, &model);
  assert_int_equal(model.graph->main->params[0]->info.rank, -1);
  assert_int_equal(model.outputs[0].dtype, LB_F32);
  assert_int_equal(model.outputs[0].rank, 3);
  assert_int_equal(model.outputs[0].dims[0], 3);
  assert_int_equal(model.outputs[0].dims[1], -1);
  assert_int_equal(model.outputs[0].dims[2], -1);
  assert_string_equal(model.graph->output_names[0], "y");
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
}

static void inputs_of_unsupported_types_are_named(void **state) {
  (void)state;
  pb g = pb_graph("", (pb){0}, "x");
  pb_msg(&g, 11, pb_value("x", T_STRING, "1"));
  expect_error(pb_model(g, 13), LB_UNSUPPORTED,
               "input 'x' has elements of type string (8), which Limber does "
               "not have");
  g = pb_graph("", (pb){0}, "x");
  pb_msg(&g, 11, pb_value("x", 0, "1"));
  expect_error(pb_model(g, 13), LB_INVALID, "input 'x' has no element type");
  g = pb_graph("", (pb){0}, "x");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "1,1,1,1,1,1,1,1,1,1,1,1,1"));
  expect_error(pb_model(g, 13), LB_UNSUPPORTED,
               "input 'x' has 13 dims; 12 is the limit");
}

// -- bodies ------------------------------------------------------------------

static void both_branches_receive_the_captures_of_either(void **state) {
  (void)state;
  static const float w[] = {5};
  pb n = pb_node("If", "i", "c", "z");
  pb_attr_graph(&n, "then_branch",
                pb_graph("", pb_node("Add", "a", "p,w", "t"), "t"));
  pb_attr_graph(&n, "else_branch",
                pb_graph("", pb_node("Add", "b", "q,p", "e"), "e"));
  pb g = pb_graph("c,p,q", n, "z");
  pb_msg(&g, 5, pb_floats("w", 1, w));
  expect_graph(pb_model(g, 13),
               "z=If(c,p,q) {p,q: t=Add(p,[5]) -> t} {p,q: e=Add(q,p) -> e}"
               " -> z");
}

static void nested_bodies_pass_captures_down(void **state) {
  (void)state;
  pb inner = pb_node("If", "in", "c", "u");
  pb_attr_graph(&inner, "then_branch",
                pb_graph("", pb_node("Relu", "r", "x", "t"), "t"));
  pb_attr_graph(&inner, "else_branch", pb_graph("", (pb){0}, "c"));
  pb body = pb_graph("i,k,v", inner, "k,u");
  pb loop = pb_node("Loop", "l", "-,-,x", "o");
  pb_attr_graph(&loop, "body", body);
  expect_graph(pb_model(pb_graph("x,c", loop, "o"), 13),
               "o=Loop(_,_,x,c,x) {i,k,v,c,x: u=If(c,x,c) {x,c: t=Relu(x) -> t}"
               " {x,c:  -> c} -> k,u} -> o");
}

static void scan_takes_states_then_sequences(void **state) {
  (void)state;
  pb scan = pb_node("Scan", "s", "h,x", "hn,ys");
  pb body = pb_graph("hi,xi", pb_node("Add", "a", "hi,xi", "ho"), "ho,ho");
  pb_attr_graph(&scan, "body", body);
  pb_attr_int(&scan, "num_scan_inputs", 1);
  expect_graph(pb_model(pb_graph("h,x", scan, "hn,ys"), 11),
               "hn,ys=Scan(h,x) num_scan_inputs=1 {hi,xi: ho=Add(hi,xi) -> "
               "ho,ho} -> hn,ys");
}

static void mismatched_bodies_are_named(void **state) {
  (void)state;
  pb n = pb_node("If", "i", "c", "z");
  pb_attr_graph(&n, "then_branch", pb_graph("", (pb){0}, "c"));
  expect_error(pb_model(pb_graph("c", n, "z"), 13), LB_INVALID,
               "node 'i' (If) has no else_branch");
  n = pb_node("If", "i", "c,c", "z");
  pb_attr_graph(&n, "then_branch", pb_graph("", (pb){0}, "c"));
  pb_attr_graph(&n, "else_branch", pb_graph("", (pb){0}, "c"));
  expect_error(pb_model(pb_graph("c", n, "z"), 13), LB_INVALID,
               "node 'i' (If) has 2 inputs, but takes at most 1");
  n = pb_node("Loop", "l", "-,-,x", "o");
  pb_attr_graph(&n, "body", pb_graph("i,k", (pb){0}, "k,i"));
  expect_error(pb_model(pb_graph("x", n, "o"), 13), LB_INVALID,
               "node 'l' (Loop) passes 3 inputs to its body, which takes 2");
  n = pb_node("Loop", "l", "-,-,x", "o,p");
  pb_attr_graph(&n, "body", pb_graph("i,k,v", (pb){0}, "k,v"));
  expect_error(pb_model(pb_graph("x", n, "o"), 13), LB_INVALID,
               "node 'l' (Loop) needs at least 3 outputs of its body, which "
               "has 2");
  n = pb_node("Loop", "l", "-,-,x", "o");
  pb_attr_graph(&n, "body",
                pb_graph("i,k,v", pb_node("Relu", "r", "q", "t"), "k,t"));
  expect_error(pb_model(pb_graph("x", n, "o"), 13), LB_INVALID,
               "in body of node 'l' (Loop): node 'r' (Relu) reads 'q', which "
               "nothing defines");
}

static void bodies_nested_too_deep_are_refused(void **state) {
  (void)state;
  pb g = pb_graph("", pb_node("Relu", "r", "c", "z"), "z");
  for (int i = 0; i < LB_MAX_NESTING + 2; i++) {
    pb n = pb_node("If", "i", "c", "z");
    pb_attr_graph(&n, "then_branch", g);
    pb_attr_graph(&n, "else_branch", pb_graph("", (pb){0}, "c"));
    g = pb_graph(i == LB_MAX_NESTING + 1 ? "c" : "", n, "z");
  }
  expect_error(pb_model(g, 13), LB_UNSUPPORTED,
               "subgraphs are nested deeper than 32");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_file_is_refused),
      cmocka_unit_test(a_model_needs_graph_and_versions),
      cmocka_unit_test(a_newer_opset_is_a_warning),
      cmocka_unit_test(truncated_and_flipped_models_fail_or_give_a_valid_graph),
      cmocka_unit_test(metadata_is_kept),
      cmocka_unit_test(an_undefined_input_is_named),
      cmocka_unit_test(an_undefined_output_is_named),
      cmocka_unit_test(a_cycle_names_its_nodes),
      cmocka_unit_test(a_cycle_through_a_body_is_found),
      cmocka_unit_test(two_definitions_name_both_nodes),
      cmocka_unit_test(unsorted_nodes_are_sorted),
      cmocka_unit_test(an_initializer_among_the_inputs_is_a_constant),
      cmocka_unit_test(an_output_may_be_an_input_or_an_initializer),
      cmocka_unit_test(unknown_operators_are_listed_at_once),
      cmocka_unit_test(wrong_arity_is_named),
      cmocka_unit_test(absent_inputs_and_outputs_are_null),
      cmocka_unit_test(anonymous_dims_are_distinct_symbols),
      cmocka_unit_test(an_input_without_a_shape_has_unknown_rank),
      cmocka_unit_test(inputs_of_unsupported_types_are_named),
      cmocka_unit_test(both_branches_receive_the_captures_of_either),
      cmocka_unit_test(nested_bodies_pass_captures_down),
      cmocka_unit_test(scan_takes_states_then_sequences),
      cmocka_unit_test(mismatched_bodies_are_named),
      cmocka_unit_test(bodies_nested_too_deep_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
