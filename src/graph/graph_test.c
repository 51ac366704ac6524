// graph/graph_test.c -- building, checking and printing graphs.
#include "graph/text_test.h"

static void operators_are_found_by_name_and_domain(void **state) {
  (void)state;
  assert_int_equal(lb_op_find("", "Conv"), LB_OP_Conv);
  assert_int_equal(lb_op_find("ai.onnx", "Softmax"), LB_OP_Softmax);
  assert_int_equal(lb_op_find("", "Con"), LB_OP_COUNT);
  assert_int_equal(lb_op_find("", ""), LB_OP_COUNT);
  assert_int_equal(lb_op_find("com.example", "Conv"), LB_OP_COUNT);
  assert_int_equal(lb_op_find("", "Unfold"), LB_OP_COUNT);
  for (int i = 0; i < LB_OP_COUNT; i++)
    assert_int_equal(lb_op_find(lb_op_infos[i].domain, lb_op_infos[i].name), i);
}

static void attributes_are_read_by_name_and_kind(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,4]\n"
      "y = Softmax(x) {axis=-1, perm=[1,0], alpha=0.5, mode=\"up\"}\n"
      "out y\n");
  lb_node *n = g->main->nodes[0];
  uint32_t count;
  assert_int_equal(lb_attr_int(n, "axis", 7), -1);
  assert_int_equal(lb_attr_int(n, "alpha", 7), 7);
  assert_true(lb_attr_float(n, "alpha", 0) == 0.5f);
  assert_string_equal(lb_attr_str(n, "mode", ""), "up");
  assert_int_equal(lb_attr_ints(n, "perm", &count)[0], 1);
  assert_int_equal(count, 2);
  assert_null(lb_attr_floats(n, "perm", &count));
  assert_int_equal(count, 0);
  assert_true(lb_attr_has(n, "mode"));
  assert_false(lb_attr_has(n, "absent"));
  must(lb_node_set_int(g, n, "axis", 3));
  assert_int_equal(lb_attr_int(n, "axis", 7), 3);
  assert_int_equal(n->n_attrs, 4);
  lb_graph_free(g);
}

static void dump_shows_nodes_dims_attributes_and_bodies(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,4]\n"
      "in c bool[]\n"
      "const w float32[4,8] 1\n"
      "h = MatMul(x, w)\n"
      "k = Mul(h, 0.5)\n"
      "y = If(c, k)\n"
      "then(p)\n"
      "q = Transpose(p) {perm=[1,0]}\n"
      "gives q\n"
      "else(p)\n"
      "gives p\n"
      "out y\n");
  g->output_names[0] = "result";
  dump_is(g,
          "in x: float32[b,4]\n"
          "in c: bool[]\n"
          "h: float32[b,8] = MatMul(x, w:float32[4,8])\n"
          "k: float32[b,8] = Mul(h, 0.5)\n"
          "y: float32[?1,?2] = If(c, k)\n"
          "then(p)\n"
          "  q: float32[8,b] = Transpose(p) {perm=[1,0]}\n"
          "  gives q\n"
          "else(p)\n"
          "  gives p\n"
          "out result = y\n");
  lb_graph_free(g);
}

static void nodes_without_a_name_get_one(void **state) {
  (void)state;
  lb_graph *g = graph_of("in x float32[4]\ny = Relu(x)\nout y\n");
  char label[64];
  assert_string_equal(lb_node_label(g->main->nodes[0], label, sizeof label),
                      "Relu 'Relu_0'");
  lb_graph_free(g);
}

static void arrays_grow_with_values_and_nodes(void **state) {
  (void)state;
  lb_graph *g;
  must(lb_graph_new(&g));
  for (uint32_t i = 0; i < 1000; i++) {
    lb_value *v;
    lb_node *n;
    must(lb_value_new(g, "v", &v));
    must(lb_node_new(g->main, LB_OP_Relu, "n", 1, 1, &n));
    lb_node_set_out(n, 0, v);
    assert_int_equal(v->id, i);
    assert_int_equal(n->id, i);
    assert_ptr_equal(g->values[i], v);
    assert_ptr_equal(v->region, g->main);
  }
  lb_graph_free(g);
}

// -- the verifier ------------------------------------------------------------

static lb_graph *valid_graph(void) {
  return graph_of(
      "in x float32[4]\n"
      "in c bool[]\n"
      "y = Relu(x)\n"
      "z = If(c, y)\n"
      "then(p)\n"
      "q = Neg(p)\n"
      "gives q\n"
      "else(p)\n"
      "gives p\n"
      "out z\n");
}

static void rejects(lb_graph *g, const char *part) {
  lb_status st = lb_graph_verify(g);
  assert_int_equal(lb_status_code(st), LB_INTERNAL);
  if (!strstr(lb_status_message(st), part)) print_error("%s\n", part);
  assert_non_null(strstr(lb_status_message(st), part));
  lb_status_drop(st);
  lb_graph_free(g);
}

static void verifier_rejects_nodes_out_of_order(void **state) {
  (void)state;
  lb_graph *g = valid_graph();
  lb_node *first = g->main->nodes[0];
  g->main->nodes[0] = g->main->nodes[1];
  g->main->nodes[1] = first;
  rejects(g, "input not available");
}

static void verifier_rejects_two_producers(void **state) {
  (void)state;
  lb_graph *g = valid_graph();
  g->main->nodes[1]->out[0] = g->main->nodes[0]->out[0];
  rejects(g, "another producer");
}

static void verifier_rejects_reading_another_region(void **state) {
  (void)state;
  lb_graph *g = valid_graph();
  lb_node *neg = g->main->nodes[1]->regions[0]->nodes[0];
  neg->in[0] = g->main->nodes[0]->out[0];
  rejects(g, "input not available");
}

static void verifier_rejects_wrong_arity_and_missing_inputs(void **state) {
  (void)state;
  lb_graph *g = valid_graph();
  g->main->nodes[0]->n_in = 0;
  rejects(g, "number of inputs");
  g = valid_graph();
  g->main->nodes[0]->in[0] = NULL;
  rejects(g, "required input");
}

static void verifier_rejects_captures_that_do_not_match(void **state) {
  (void)state;
  lb_graph *g = valid_graph();
  g->main->nodes[1]->regions[1]->n_params = 0;
  rejects(g, "region parameters");
  g = valid_graph();
  g->main->nodes[1]->regions[1]->n_results = 0;
  rejects(g, "region results");
}

static void verifier_rejects_undefined_results(void **state) {
  (void)state;
  lb_graph *g = valid_graph();
  g->main->results[0] = g->main->nodes[1]->regions[0]->results[0];
  rejects(g, "result 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operators_are_found_by_name_and_domain),
      cmocka_unit_test(attributes_are_read_by_name_and_kind),
      cmocka_unit_test(dump_shows_nodes_dims_attributes_and_bodies),
      cmocka_unit_test(nodes_without_a_name_get_one),
      cmocka_unit_test(arrays_grow_with_values_and_nodes),
      cmocka_unit_test(verifier_rejects_nodes_out_of_order),
      cmocka_unit_test(verifier_rejects_two_producers),
      cmocka_unit_test(verifier_rejects_reading_another_region),
      cmocka_unit_test(verifier_rejects_wrong_arity_and_missing_inputs),
      cmocka_unit_test(verifier_rejects_captures_that_do_not_match),
      cmocka_unit_test(verifier_rejects_undefined_results),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
