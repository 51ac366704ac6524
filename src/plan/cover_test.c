// plan/cover_test.c -- what runs while a partition has no kernel.
#include "plan/load_test.h"
#include "plan/pack_test.h"

static lb_plan_workspace workspace;  // shared by all plans of this file

// The plan of a graph, which is freed, as text: one letter for each step, L
// with the number of steps it skips. Returns the size of the arena.
static size_t text_of(lb_graph *g, const lb_tensor *in, small_pack *pack,
                      bool deterministic, char *out, size_t cap) {
  loaded l;
  lb_plan *plan;
  load(&l, g, &pack->head, deterministic);
  ok(lb_plan_first(l.prog, g->main, in, NULL, &(lb_want){.wanted = true},
                   &workspace, &plan));
  size_t n = 0, arena = plan->arena_bytes;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *s = &plan->steps[i];
    n += (size_t)(s->kind == LB_STEP_LAUNCH
                      ? snprintf(out + n, cap - n, "L%u ", s->skip)
                      : snprintf(out + n, cap - n, "%s ",
                                 s->kind == LB_STEP_COPY ? "K" : "C"));
  }
  lb_plan_release(plan);
  unload(&l);
  return arena;
}

// The plan of abs(neg(exp(x))) with this pack.
static size_t plan_text_of(small_pack *pack, bool deterministic, char *out,
                           size_t cap) {
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_region *r = g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(3, 5));
  lb_value *a = NODE1(r, Exp, "a", x), *b = NODE1(r, Neg, "b", a);
  RESULTS(r, NODE1(r, Abs, "c", b));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3, 5));
  return text_of(g, &in, pack, deterministic, out, cap);
}

static size_t plan_text(small_pack *pack, char *out, size_t cap) {
  return plan_text_of(pack, false, out, cap);
}

static void without_a_pack_every_node_is_called(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  assert_int_not_equal(plan_text(&p, text, sizeof text), 0);
  assert_string_equal(text, "L3 C C C ");
}

// x[a,b,c] as [a,c,b].
static lb_value *transposed(lb_graph *g, lb_value *x) {
  lb_node *t = node(g->main, LB_OP_Transpose, "t", 1, &x, 1);
  ok(lb_node_set_ints(g, t, "perm", (int64_t[]){0, 2, 1}, 3));
  return t->out[0];
}

// A grouped convolution of x[2,4,8], whose channels are strided.
static void strided_channels_are_copied(void **state) {
  (void)state;
  small_pack p = empty_pack();
  lb_graph *g;
  lb_value *w;
  float weights[4 * 2 * 3] = {0};
  lb_tensor wt = tensor(LB_F32, weights, DIMS(4, 2, 3));
  ok(lb_graph_new(&g));
  ok(lb_const_new(g, "w", &wt, &w));
  lb_region *r = g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(2, 4, 8));
  lb_value *t = transposed(g, x);
  lb_node *y = node(r, LB_OP_Conv, "y", 2, (lb_value *[]){t, w}, 1);
  ok(lb_node_set_int(g, y, "channels_last", 1));
  ok(lb_node_set_int(g, y, "group", 2));
  RESULTS(r, y->out[0]);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(2, 4, 8));
  char text[64];
  size_t arena = text_of(g, &in, &p, false, text, sizeof text);
  assert_string_equal(text, "K L1 C ");
  assert_int_equal(arena, 2 * 4 * 8 * 4);
}

// Plans op of x[2,4,n] and its transpose.
static void check_transposed_is_copied(lb_op op, int64_t n) {
  small_pack p = empty_pack();
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_region *r = g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(2, 4, n));
  lb_value *t = transposed(g, x);
  lb_node *y = node(r, op, "y", 2, (lb_value *[]){x, t}, 1);
  RESULTS(r, y->out[0]);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(2, 4, n));
  char text[64];
  size_t arena = text_of(g, &in, &p, false, text, sizeof text);
  assert_string_equal(text, "K L1 C ");
  assert_int_equal(arena, 2 * 4 * n * 4);
}

static void transposed_matmul_operands_are_copied(void **state) {
  (void)state;
  check_transposed_is_copied(LB_OP_MatMul, 8);
}

static void transposed_elementwise_operands_are_copied(void **state) {
  (void)state;
  check_transposed_is_copied(LB_OP_Add, 4);
}

// x[1,4,4] transposed and broadcast to three: a copy would be three times as
// large.
static void broadcast_operands_are_not_copied(void **state) {
  (void)state;
  small_pack p = empty_pack();
  lb_graph *g;
  lb_value *shape;
  ok(lb_graph_new(&g));
  lb_region *r = g->main;
  ok(lb_const_ints(g, "shape", (int64_t[]){3, 4, 4}, 3, &shape));
  lb_value *x = param(r, "x", LB_F32, DIMS(1, 4, 4));
  lb_value *t = transposed(g, x);
  lb_node *e = node(r, LB_OP_Expand, "e", 2, (lb_value *[]){t, shape}, 1);
  lb_node *y = node(r, LB_OP_MatMul, "y", 2, (lb_value *[]){x, e->out[0]}, 1);
  RESULTS(r, y->out[0]);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(1, 4, 4));
  char text[64];
  assert_int_equal(text_of(g, &in, &p, false, text, sizeof text), 0);
  assert_string_equal(text, "L1 C ");
}

static void pack_kernels_need_no_cover(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  ADD_CHAIN(&p, LB_S_EXP, LB_S_NEG, LB_S_ABS);
  // No temporaries either: the result is written to the caller's memory.
  assert_int_equal(plan_text(&p, text, sizeof text), 0);
  assert_string_equal(text, "L0 ");
}

static void the_cover_uses_the_longest_pack_kernels(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  ADD_CHAIN(&p, LB_S_EXP);
  plan_text(&p, text, sizeof text);
  assert_string_equal(text, "L3 L0 C C ");
  ADD_CHAIN(&p, LB_S_ABS);
  plan_text(&p, text, sizeof text);
  assert_string_equal(text, "L3 L0 C L0 ");
  ADD_CHAIN(&p, LB_S_EXP, LB_S_NEG);
  plan_text(&p, text, sizeof text);
  assert_string_equal(text, "L2 L0 L0 ");
}

static void deterministic_plans_use_exact_covers_only(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  plan_text_of(&p, true, text, sizeof text);
  assert_string_equal(text, "C C C ");
  ADD_CHAIN(&p, LB_S_ABS);
  plan_text_of(&p, true, text, sizeof text);
  assert_string_equal(text, "C C L0 ");
  ADD_CHAIN(&p, LB_S_EXP, LB_S_NEG);
  plan_text_of(&p, true, text, sizeof text);
  assert_string_equal(text, "L2 L0 L0 ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_a_pack_every_node_is_called),
      cmocka_unit_test(strided_channels_are_copied),
      cmocka_unit_test(transposed_matmul_operands_are_copied),
      cmocka_unit_test(transposed_elementwise_operands_are_copied),
      cmocka_unit_test(broadcast_operands_are_not_copied),
      cmocka_unit_test(pack_kernels_need_no_cover),
      cmocka_unit_test(the_cover_uses_the_longest_pack_kernels),
      cmocka_unit_test(deterministic_plans_use_exact_covers_only),
  };
  return cmocka_run_group_tests_name("cover", tests, NULL, NULL);
}
