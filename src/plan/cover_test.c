// plan/cover_test.c -- what stands for a partition whose kernel is not there.
#include "plan/load_test.h"
#include "plan/pack_test.h"

static lb_plan_workspace workspace;  // of all plans here

// The plan of a graph, which is used up: a letter a step, L with what it skips,
// and the arena it needs.
static size_t text_of(lb_graph *g, const lb_tensor *in, small_pack *pack,
                      bool deterministic, char *out, size_t cap) {
  loaded l;
  lb_plan *plan;
  load(&l, g, &pack->head, deterministic);
  ok(lb_plan_first(l.prog, g->main, in, &(lb_want){.wanted = true}, &workspace,
                   &plan));
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

// Of abs(neg(exp(x))) with this pack.
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
static lb_value *turned(lb_graph *g, lb_value *x) {
  lb_node *t = node(g->main, LB_OP_Transpose, "t", 1, &x, 1);
  ok(lb_node_set_ints(g, t, "perm", (int64_t[]){0, 2, 1}, 3));
  return t->out[0];
}

// A convolution of x[2,4,8], whose channels lie apart, in groups of them.
static void an_image_is_laid_as_the_kernel_wants_it(void **state) {
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
  lb_value *t = turned(g, x);
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

// op of x[2,4,n] and itself, turned.
static void turned_is_copied_before(lb_op op, int64_t n) {
  small_pack p = empty_pack();
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_region *r = g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(2, 4, n));
  lb_value *t = turned(g, x);
  lb_node *y = node(r, op, "y", 2, (lb_value *[]){x, t}, 1);
  RESULTS(r, y->out[0]);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(2, 4, n));
  char text[64];
  size_t arena = text_of(g, &in, &p, false, text, sizeof text);
  assert_string_equal(text, "K L1 C ");
  assert_int_equal(arena, 2 * 4 * n * 4);
}

static void a_second_factor_is_laid_as_the_kernel_wants_it(void **state) {
  (void)state;
  turned_is_copied_before(LB_OP_MatMul, 8);
}

static void an_operand_of_a_map_is_turned_before_it(void **state) {
  (void)state;
  turned_is_copied_before(LB_OP_Add, 4);
}

// x[1,4,4] turned, for each of three: a copy would be three times as large.
static void what_repeats_is_not_written_down(void **state) {
  (void)state;
  small_pack p = empty_pack();
  lb_graph *g;
  lb_value *shape;
  ok(lb_graph_new(&g));
  lb_region *r = g->main;
  ok(lb_const_ints(g, "shape", (int64_t[]){3, 4, 4}, 3, &shape));
  lb_value *x = param(r, "x", LB_F32, DIMS(1, 4, 4));
  lb_value *t = turned(g, x);
  lb_node *e = node(r, LB_OP_Expand, "e", 2, (lb_value *[]){t, shape}, 1);
  lb_node *y = node(r, LB_OP_MatMul, "y", 2, (lb_value *[]){x, e->out[0]}, 1);
  RESULTS(r, y->out[0]);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(1, 4, 4));
  char text[64];
  assert_int_equal(text_of(g, &in, &p, false, text, sizeof text), 0);
  assert_string_equal(text, "L1 C ");
}

static void a_kernel_of_the_pack_needs_no_cover(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  ADD_CHAIN(&p, LB_S_EXP, LB_S_NEG, LB_S_ABS);
  // Nor temporaries: the result is the caller's memory.
  assert_int_equal(plan_text(&p, text, sizeof text), 0);
  assert_string_equal(text, "L0 ");
}

static void the_longest_pieces_of_the_pack_cover_it(void **state) {
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

static void what_gives_other_bits_stays_alone_if_asked(void **state) {
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
      cmocka_unit_test(an_image_is_laid_as_the_kernel_wants_it),
      cmocka_unit_test(a_second_factor_is_laid_as_the_kernel_wants_it),
      cmocka_unit_test(an_operand_of_a_map_is_turned_before_it),
      cmocka_unit_test(what_repeats_is_not_written_down),
      cmocka_unit_test(a_kernel_of_the_pack_needs_no_cover),
      cmocka_unit_test(the_longest_pieces_of_the_pack_cover_it),
      cmocka_unit_test(what_gives_other_bits_stays_alone_if_asked),
  };
  return cmocka_run_group_tests_name("cover", tests, NULL, NULL);
}
