// graph/pass_branch_test.c -- nodes after an If move into its branches.
#include "graph/text_test.h"

static void dependent_nodes_move_into_branches(void **state) {
  (void)state;
  becomes(
      "in x float32[b,t,4]\n"
      "in k float32[4]\n"
      "const one int64[] 1\n"
      "s = Shape(x)\n"
      "d = Gather(s, 1)\n"
      "c = Equal(d, one)\n"
      "y = If(c, x)\n"
      "then(p)\n"
      "q = Squeeze(p, [1])\n"
      "gives q\n"
      "else(p)\n"
      "gives p\n"
      "z = Relu(k)\n"
      "w = Exp(y)\n"
      "v = ReduceMax(w, [-1])\n"
      "u = Add(v, z)\n"
      "out u v z\n",
      NULL,
      "in x: float32[b,t,4]\n"
      "in k: float32[4]\n"
      "s: int64[3] = Shape(x)\n"
      "d: int64[] = Gather(s, 1)\n"
      "c: bool[] = Equal(d, 1)\n"
      "z: float32[4] = Relu(k)\n"
      "u: float32[*], v: float32[*] = If(c, x, z)\n"
      "then(p, z)\n"
      "  q: float32[b,4] = Squeeze(p, [1])\n"
      "  w: float32[b,4] = Exp(q)\n"
      "  v: float32[b,1] = ReduceMax(w, [-1])\n"
      "  u: float32[b,4] = Add(v, z)\n"
      "  gives u, v\n"
      "else(p, z)\n"
      "  w: float32[b,t,4] = Exp(p)\n"
      "  v: float32[b,t,1] = ReduceMax(w, [-1])\n"
      "  u: float32[b,t,4] = Add(v, z)\n"
      "  gives u, v\n"
      "out u\n"
      "out v\n"
      "out z\n");
}

// The second If depends on the rank that the first one determines.
static void known_ranks_resolve_later_branches(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4]\n"
      "in c bool[]\n"
      "y = If(c, x)\n"
      "then(p)\n"
      "q = Unsqueeze(p, [0])\n"
      "gives q\n"
      "else(p)\n"
      "gives p\n"
      "s = Shape(y)\n"
      "n = Size(s)\n"
      "two = Equal(n, 2)\n"
      "z = If(two, y)\n"
      "then(p)\n"
      "q = Abs(p)\n"
      "gives q\n"
      "else(p)\n"
      "q = Squeeze(p, [0])\n"
      "r = Neg(q)\n"
      "gives r\n"
      "out z\n",
      NULL,
      "in x: float32[b,4]\n"
      "in c: bool[]\n"
      "z: float32[b,4] = If(c, x)\n"
      "then(p)\n"
      "  If_5/r: float32[b,4] = Neg(p)\n"
      "  gives If_5/r\n"
      "else(p)\n"
      "  If_5/q: float32[b,4] = Abs(p)\n"
      "  gives If_5/q\n"
      "out z\n");
}

// A dependent node has a body, which reads the If's result and other values.
static void bodies_move_with_their_nodes(void **state) {
  (void)state;
  becomes(
      "in x float32[4]\n"
      "in k float32[]\n"
      "in c bool[]\n"
      "in m int64[]\n"
      "y = If(c, x)\n"
      "then(p)\n"
      "q = Unsqueeze(p, [0])\n"
      "gives q\n"
      "else(p)\n"
      "gives p\n"
      "z = Loop(m, _, y, k) {captures=1}\n"
      "body(i, a, v, f)\n"
      "w = Mul(v, f)\n"
      "gives a w\n"
      "out z\n",
      NULL,
      "in x: float32[4]\n"
      "in k: float32[]\n"
      "in c: bool[]\n"
      "in m: int64[]\n"
      "z: float32[*] = If(c, x, m, k)\n"
      "then(p, m, k)\n"
      "  q: float32[1,4] = Unsqueeze(p, [0])\n"
      "  z: float32[1,4] = Loop(m, _, q, k)\n"
      "  body(i, a, v, f)\n"
      "    w: float32[1,4] = Mul(v, f)\n"
      "    gives a, w\n"
      "  gives z\n"
      "else(p, m, k)\n"
      "  z: float32[4] = Loop(m, _, p, k)\n"
      "  body(i, a, v, f)\n"
      "    w: float32[4] = Mul(v, f)\n"
      "    gives a, w\n"
      "  gives z\n"
      "out z\n");
}

static void branches_of_equal_rank_are_unchanged(void **state) {
  (void)state;
  stays(
      "in x float32[b,4]\n"
      "in c bool[]\n"
      "y = If(c, x)\n"
      "then(p)\n"
      "q = Concat(p, p) {axis=0}\n"
      "gives q\n"
      "else(p)\n"
      "gives p\n"
      "z = Exp(y)\n"
      "out z\n");
}

// They would be packed in each branch.
static void nodes_with_large_weights_are_not_copied(void **state) {
  (void)state;
  for (int large = 0; large < 2; large++) {
    lb_strbuf s = {0};
    lb_strbuf_printf(&s,
                     "in x float32[b,64]\nin c bool[]\n"
                     "const w float32[64,%d] 1\n"
                     "y = If(c, x)\nthen(p)\nq = Unsqueeze(p, [0])\n"
                     "gives q\nelse(p)\ngives p\n"
                     "z = MatMul(y, w)\nout z\n",
                     large ? 33000 : 16);
    must(lb_strbuf_status(&s));
    lb_graph *g = graph_of(lb_strbuf_str(&s));
    must(lb_graph_optimize(g, NULL));
    assert_int_equal(g->main->n_nodes, large ? 2 : 1);
    lb_strbuf_fini(&s);
    lb_graph_free(g);
  }
}

// One branch is invalid, which is only known inside it and is not an error.
static void an_invalid_copy_is_not_an_error(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,4]\n"
      "in c bool[]\n"
      "y = If(c, x)\n"
      "then(p)\n"
      "q = Unsqueeze(p, [0])\n"
      "gives q\n"
      "else(p)\n"
      "gives p\n"
      "z = Squeeze(y, [0])\n"
      "w = Transpose(z) {perm=[1,0]}\n"
      "out w\n");
  must(lb_graph_optimize(g, NULL));
  must(lb_infer_graph(g));
  must(lb_graph_verify(g));
  assert_int_equal(g->main->n_nodes, 1);
  assert_int_equal(g->main->nodes[0]->regions[0]->n_nodes, 1);
  lb_graph_free(g);
}

// Each If doubles the copies of those after it.
static void the_number_of_copies_is_limited(void **state) {
  (void)state;
  enum { CHAIN = 40 };
  lb_strbuf s = {0};
  lb_strbuf_printf(&s, "in x0 float32[b,4]\n");
  for (int i = 0; i < CHAIN; i++) lb_strbuf_printf(&s, "in c%d bool[]\n", i);
  for (int i = 0; i < CHAIN; i++)
    lb_strbuf_printf(&s,
                     "y%d = If(c%d, x%d)\nthen(p)\nq = Unsqueeze(p, [0])\n"
                     "gives q\nelse(p)\ngives p\nx%d = Exp(y%d)\n",
                     i, i, i, i + 1, i);
  lb_strbuf_printf(&s, "out x%d\n", CHAIN);
  must(lb_strbuf_status(&s));
  lb_graph *g = graph_of(lb_strbuf_str(&s));
  must(lb_graph_optimize(g, NULL));
  must(lb_graph_verify(g));
  assert_true(g->n_nodes > 3 * CHAIN);
  assert_true(g->n_nodes < 2000);
  lb_strbuf_fini(&s);
  lb_graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dependent_nodes_move_into_branches),
      cmocka_unit_test(known_ranks_resolve_later_branches),
      cmocka_unit_test(bodies_move_with_their_nodes),
      cmocka_unit_test(branches_of_equal_rank_are_unchanged),
      cmocka_unit_test(nodes_with_large_weights_are_not_copied),
      cmocka_unit_test(an_invalid_copy_is_not_an_error),
      cmocka_unit_test(the_number_of_copies_is_limited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
