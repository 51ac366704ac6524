// graph/pass_fold_test.c -- constant folding, loop-invariant values, inlining
// of If.
#include "graph/text_test.h"

static const lb_pass_options plain = {.off = 0};

// -- folding -----------------------------------------------------------------

// Evaluates Add and Neg of float32 vectors; fails for Sqrt.
static lb_status evaluate(void *user, const lb_node *n, const lb_tensor *in,
                          lb_arena *arena, lb_tensor *out) {
  ++*(int *)user;
  if (n->op == LB_OP_Sqrt) return lb_error(LB_INVALID, "no");
  *out = in[0];
  float *y = lb_arena_alloc(arena, lb_tensor_bytes(out), 8);
  if (!y) return lb_oom();
  out->data = y;
  for (int64_t i = 0; i < lb_tensor_count(out); i++) {
    float a = ((const float *)in[0].data)[i];
    y[i] = n->op == LB_OP_Neg ? -a : a + ((const float *)in[1].data)[i];
  }
  return LB_OK;
}

static void nodes_of_constants_become_constants(void **state) {
  (void)state;
  int calls = 0;
  becomes(
      "in x float32[b,3]\n"
      "const a float32[3] 1 2 3\n"
      "const b float32[3] 10\n"
      "c = Add(a, b)\n"
      "d = Neg(c)\n"
      "y = Mul(x, d)\n"
      "out y\n",
      &(lb_pass_options){.eval = evaluate, .user = &calls},
      "in x: float32[b,3]\n"
      "y: float32[b,3] = Mul(x, [-11,-12,-13])\n"
      "out y\n");
  assert_int_equal(calls, 2);
}

static void a_folded_result_keeps_its_name(void **state) {
  (void)state;
  int calls = 0;
  becomes(
      "const a float32[2] 1 2\n"
      "y = Neg(a)\n"
      "out y\n",
      &(lb_pass_options){.eval = evaluate, .user = &calls}, "out [-1,-2]\n");
}

static void a_node_that_fails_is_not_folded(void **state) {
  (void)state;
  int calls = 0;
  becomes(
      "const a float32[2] 1 2\n"
      "y = Sqrt(a)\n"
      "out y\n",
      &(lb_pass_options){.eval = evaluate, .user = &calls},
      "y: float32[2] = Sqrt([1,2])\n"
      "out y\n");
  assert_true(calls > 0);
}

static void results_above_the_limit_are_not_folded(void **state) {
  (void)state;
  int calls = 0;
  lb_pass_options o = {.eval = evaluate, .user = &calls, .fold_limit = 8};
  becomes(
      "const a float32[1] 1\n"
      "y = Expand(a, [1000])\n"
      "out y\n",
      &o,
      "y: float32[1000] = Expand([1], [1000])\n"
      "out y\n");
  assert_int_equal(calls, 0);
  const char *larger =
      "const a float32[3] 1\n"
      "y = Neg(a)\n"
      "out y\n";
  becomes(larger, &o, "out [-1,-1,-1]\n");  // 12 bytes, but its input has 12
}

// Counts calls.
static lb_status zeros(void *user, const lb_node *n, const lb_tensor *in,
                       lb_arena *arena, lb_tensor *out) {
  (void)in;
  if (user) ++*(int *)user;
  const lb_vinfo *info = &n->out[0]->info;
  *out = (lb_tensor){.dtype = info->dtype, .rank = info->rank};
  for (int i = 0; i < info->rank; i++) out->dims[i] = info->dims[i].k;
  lb_tensor_dense(out);
  out->data = lb_arena_zalloc(arena, lb_tensor_bytes(out), 64);
  return out->data ? LB_OK : lb_oom();
}

// A filter written as a formula, with intermediate results of its size; and a
// repeated constant, for which a view is as good.
static void formulas_are_folded_without_intermediate_constants(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[600,600]\n"
      "const a float32[600,1] 1\n"
      "const b float32[600] 2\n"
      "c = Add(a, b)\n"
      "d = Neg(c)\n"
      "f = Sqrt(d)\n"
      "e = Expand(a, [600,600])\n"
      "g = Mul(x, f)\n"
      "y = Mul(g, e)\n"
      "out y\n");
  must(lb_graph_optimize(g, &(lb_pass_options){.eval = zeros}));
  dump_is(g,
          "in x: float32[600,600]\n"
          "e: float32[600,600] = Expand(a:float32[600,1], [600,600])\n"
          "g: float32[600,600] = Mul(x, f:float32[600,600])\n"
          "y: float32[600,600] = Mul(g, e)\n"
          "out y\n");
  assert_in_range(g->arena.used, 600 * 600 * 4, 600 * 600 * 4 + 200000);
  lb_graph_free(g);
}

// A formula that appears twice is evaluated once; all of them together are
// limited to 16 MB.
static void the_size_of_formulas_is_limited(void **state) {
  (void)state;
  int calls = 0;
  becomes(
      "in x float32[1500,1500]\n"
      "const a float32[1500,1] 1\n"
      "const b float32[1500] 2\n"
      "c = Add(a, b)\n"
      "d = Add(a, b)\n"
      "e = Mul(a, b)\n"
      "s = Add(x, c)\n"
      "t = Add(s, d)\n"
      "y = Add(t, e)\n"
      "out y\n",
      &(lb_pass_options){.eval = zeros, .user = &calls},
      "in x: float32[1500,1500]\n"
      "e: float32[1500,1500] = Mul(a:float32[1500,1], b:float32[1500])\n"
      "s: float32[1500,1500] = Add(x, c:float32[1500,1500])\n"
      "t: float32[1500,1500] = Add(s, c:float32[1500,1500])\n"
      "y: float32[1500,1500] = Add(t, e)\n"
      "out y\n");
  assert_int_equal(calls, 1);
}

// 9 MB each: the formula, and results of it while there is budget.
static void results_of_formulas_are_limited(void **state) {
  (void)state;
  int calls = 0;
  char source[2048] =
      "in x float32[1500,1500]\n"
      "const a float32[1500,1] 1\n"
      "const b float32[1500] 2\n"
      "c = Add(a, b)\n";
  for (int i = 1; i < 20; i++) {
    char line[64];
    snprintf(line, sizeof line, "y%d = Mul(c, %d.5)\nout y%d\n", i, i, i);
    strcat(source, line);
  }
  lb_graph *g = graph_of(source);
  must(lb_graph_optimize(g, &(lb_pass_options){.eval = zeros, .user = &calls}));
  assert_int_equal(calls, 7);
  lb_graph_free(g);
}

static void random_numbers_are_not_folded(void **state) {
  (void)state;
  int calls = 0;
  becomes(
      "const a float32[2] 1\n"
      "y = Bernoulli(a)\n"
      "out y\n",
      &(lb_pass_options){.eval = evaluate, .user = &calls},
      "y: float32[2] = Bernoulli([1,1])\n"
      "out y\n");
  becomes(
      "const a float32[2] 1\n"
      "const t bool[] 1\n"
      "y = Dropout(a, 0.5, t)\n"
      "out y\n",
      &(lb_pass_options){.eval = evaluate, .user = &calls},
      "y: float32[2] = Dropout([1,1], 0.5, true)\n"
      "out y\n");
  assert_int_equal(calls, 0);
}

static void fixed_shapes_fold_without_evaluation(void **state) {
  (void)state;
  becomes(
      "in x float32[b,3,4]\n"
      "s = Shape(x)\n"
      "d = Gather(s, [1,2])\n"
      "n = Gather(s, [0])\n"
      "t = Concat(n, d) {axis=0}\n"
      "y = Shape(t)\n"
      "out d n y\n",
      &plain,
      "in x: float32[b,3,4]\n"
      "s: int64[3] = Shape(x)\n"
      "n: int64[1] = Gather(s, [0])\n"
      "out [3,4]\n"
      "out n\n"
      "out [3]\n");
}

static void captured_constants_are_read_directly(void **state) {
  (void)state;
  becomes(
      "in x float32[4]\n"
      "in c bool[]\n"
      "const k float32[4] 1 2 3 4\n"
      "y = If(c, x, k)\n"
      "then(p, q)\n"
      "r = Add(p, q)\n"
      "gives r\n"
      "else(p, q)\n"
      "gives q\n"
      "out y\n",
      &plain,
      "in x: float32[4]\n"
      "in c: bool[]\n"
      "y: float32[4] = If(c, x)\n"
      "then(p)\n"
      "  r: float32[4] = Add(p, [1,2,3,4])\n"
      "  gives r\n"
      "else(p)\n"
      "  gives [1,2,3,4]\n"
      "out y\n");
}

static void carried_constants_are_not_read_directly(void **state) {
  (void)state;
  becomes(
      "in m int64[]\n"
      "in c bool[]\n"
      "const k float32[2] 1 2\n"
      "const d float32[2] 3 4\n"
      "y = Loop(m, c, k, d) {captures=1}\n"
      "body(i, go, p, q)\n"
      "r = Add(p, q)\n"
      "gives go r\n"
      "out y\n",
      &plain,
      "in m: int64[]\n"
      "in c: bool[]\n"
      "y: float32[2] = Loop(m, c, [1,2])\n"
      "body(i, go, p)\n"
      "  r: float32[2] = Add(p, [3,4])\n"
      "  gives go, r\n"
      "out y\n");
}

// -- loops -------------------------------------------------------------------

static void loop_invariant_values_are_captured(void **state) {
  (void)state;
  becomes(
      "in m int64[]\n"
      "in x float32[2]\n"
      "in w float32[2]\n"
      "const k float32[2] 1 2\n"
      "kept, y, same, s = Loop(m, _, k, x, w)\n"
      "body(i, go, a, p, b)\n"
      "t = Mul(p, a)\n"
      "r = Add(t, b)\n"
      "c = Identity(b)\n"
      "gives go a r c r\n"
      "z = Add(kept, same)\n"
      "out y\n"
      "out s\n"
      "out z\n",
      &plain,
      "in m: int64[]\n"
      "in x: float32[2]\n"
      "in w: float32[2]\n"
      "y: float32[2], s: float32[?3,2] = Loop(m, _, x, w)\n"
      "body(i, go, p, b)\n"
      "  t: float32[2] = Mul(p, [1,2])\n"
      "  r: float32[2] = Add(t, b)\n"
      "  gives go, r, r\n"
      "z: float32[2] = Add([1,2], w)\n"
      "out y\n"
      "out s\n"
      "out z\n");
}

static void scan_invariant_values_are_captured(void **state) {
  (void)state;
  becomes(
      "in x float32[5,2]\n"
      "const k float32[2] 1 2\n"
      "same, y = Scan(k, x) {num_scan_inputs=1}\n"
      "body(a, p)\n"
      "r = Mul(p, a)\n"
      "gives a r\n"
      "out y\n"
      "out same\n",
      &plain,
      "in x: float32[5,2]\n"
      "y: float32[5,2] = Scan(x) {num_scan_inputs=1}\n"
      "body(p)\n"
      "  r: float32[2] = Mul(p, [1,2])\n"
      "  gives r\n"
      "out y\n"
      "out same = [1,2]\n");
}

static void a_loop_keeps_its_only_output(void **state) {
  (void)state;
  becomes(
      "in m int64[]\n"
      "in x float32[2]\n"
      "y = Loop(m, _, x)\n"
      "body(i, go, p)\n"
      "gives go p\n"
      "out y\n",
      &plain,
      "in m: int64[]\n"
      "in x: float32[2]\n"
      "y: float32[2] = Loop(m, _, x)\n"
      "body(i, go, p)\n"
      "  gives go, p\n"
      "out y\n");
}

// -- If ----------------------------------------------------------------------

static void a_taken_branch_replaces_its_if(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4]\n"
      "const c bool[] 0\n"
      "h = Relu(x)\n"
      "y, z = If(c, h)\n"
      "then(p)\n"
      "q = Neg(p)\n"
      "gives q p\n"
      "else(p)\n"
      "q = Abs(p)\n"
      "gives q p\n"
      "w = Exp(y)\n"
      "out w z\n",
      &plain,
      "in x: float32[b,4]\n"
      "h: float32[b,4] = Relu(x)\n"
      "If_1/q: float32[b,4] = Abs(h)\n"
      "w: float32[b,4] = Exp(If_1/q)\n"
      "out w\n"
      "out z = h\n");
}

static void inlined_shapes_resolve_the_next_condition(void **state) {
  (void)state;
  // Size(y) is only known once the first If is inlined.
  becomes(
      "in x float32[4]\n"
      "const c bool[] 1\n"
      "y = If(c, x)\n"
      "then(p)\n"
      "gives p\n"
      "else(p)\n"
      "q = Concat(p, p) {axis=0}\n"
      "gives q\n"
      "n = Size(y)\n"
      "d = Equal(n, 4)\n"
      "z = If(d, y, d)\n"
      "then(p, e)\n"
      "inner = If(e, p)\n"
      "then(s)\n"
      "t = Abs(s)\n"
      "gives t\n"
      "else(s)\n"
      "gives s\n"
      "gives inner\n"
      "else(p, e)\n"
      "gives p\n"
      "out z\n",
      &plain,
      "in x: float32[4]\n"
      "If_5/t: float32[4] = Abs(x)\n"
      "out z = If_5/t\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nodes_of_constants_become_constants),
      cmocka_unit_test(a_folded_result_keeps_its_name),
      cmocka_unit_test(a_node_that_fails_is_not_folded),
      cmocka_unit_test(results_above_the_limit_are_not_folded),
      cmocka_unit_test(formulas_are_folded_without_intermediate_constants),
      cmocka_unit_test(the_size_of_formulas_is_limited),
      cmocka_unit_test(results_of_formulas_are_limited),
      cmocka_unit_test(random_numbers_are_not_folded),
      cmocka_unit_test(fixed_shapes_fold_without_evaluation),
      cmocka_unit_test(captured_constants_are_read_directly),
      cmocka_unit_test(carried_constants_are_not_read_directly),
      cmocka_unit_test(loop_invariant_values_are_captured),
      cmocka_unit_test(scan_invariant_values_are_captured),
      cmocka_unit_test(a_loop_keeps_its_only_output),
      cmocka_unit_test(a_taken_branch_replaces_its_if),
      cmocka_unit_test(inlined_shapes_resolve_the_next_condition),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
