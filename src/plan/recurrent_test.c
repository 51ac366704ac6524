// plan/recurrent_test.c -- the steps that a recurrence becomes.
#include "plan/load_test.h"

static lb_plan_workspace workspace;  // of all plans here

typedef struct wish {
  lb_op op;
  int64_t steps;
  const char *direction;
  bool deterministic, wants_h, masked, without_y;
} wish;

static lb_value *constant_mask(lb_graph *g, int64_t steps) {
  static float ones[3 * 8];
  lb_tensor t = tensor(LB_F32, ones, DIMS(steps, 3));
  lb_value *v;
  ok(lb_const_new(g, "mask", &t, &v));
  return v;
}

static lb_node *add_node(lb_graph *g, const wish *w) {
  static float zeros[2 * 8 * 2];
  int64_t d = strcmp(w->direction, "bidirectional") == 0 ? 2 : 1;
  int64_t gates = w->op == LB_OP_LSTM ? 4 : 3;
  lb_tensor weights = tensor(LB_F32, zeros, DIMS(d, gates * 2, 2));
  lb_value *y = NULL, *h;
  lb_node *n;
  ok(lb_node_new(g->main, w->op, "n", 5, 2, &n));
  n->in[0] = param(g->main, "x", LB_F32, DIMS(w->steps, 3, d * gates * 2));
  if (w->masked) n->in[4] = constant_mask(g, w->steps);
  ok(lb_const_new(g, "r", &weights, &n->in[2]));
  if (!w->without_y) ok(lb_value_new(g, "y", &y));
  ok(lb_value_new(g, "h", &h));
  if (y) lb_node_set_out(n, 0, y);
  lb_node_set_out(n, 1, h);
  ok(lb_node_set_int(g, n, "projected", 1));
  ok(lb_node_set_str(g, n, "direction", w->direction));
  if (y) ok(lb_region_add_result(g->main, y));
  ok(lb_region_add_result(g->main, h));
  return n;
}

// A letter a step: K a copy, C a call, L launches, with how many there are, of
// a turn and in all, how often they run and what they skip; A, if directions
// may have a thread each.
static void print_steps(const lb_plan *plan, char *out, size_t cap) {
  size_t n = 0;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *s = &plan->steps[i];
    uint32_t count = 0;
    for (const lb_launch *l = s->launch; l; l = l->next) count++;
    n += (size_t)(s->kind == LB_STEP_LAUNCH
                      ? snprintf(out + n, cap - n, "%s%u/%u*%d-%u ",
                                 s->apart ? "A" : "L", s->each, count,
                                 (int)s->turns, s->skip)
                      : snprintf(out + n, cap - n,
                                 s->kind == LB_STEP_COPY ? "K " : "C "));
  }
}

static void expect(wish w, const char *want) {
  lb_graph *g;
  loaded l;
  lb_plan *plan;
  char text[64] = "";
  ok(lb_graph_new(&g));
  lb_tensor in = {.dtype = LB_F32, .rank = 3};
  const lb_node *n = add_node(g, &w);
  for (int i = 0; i < 3; i++) in.dims[i] = n->in[0]->info.dims[i].k;
  lb_tensor_dense(&in);
  load(&l, g, NULL, w.deterministic);
  ok(lb_plan_first(l.prog, g->main, &in,
                   (lb_want[]){{.wanted = true}, {.wanted = w.wants_h}},
                   &workspace, &plan));
  print_steps(plan, text, sizeof text);
  assert_string_equal(text, want);
  lb_plan_release(plan);
  unload(&l);
}

static void launches_run_once_for_every_step(void **state) {
  (void)state;
  expect((wish){LB_OP_LSTM, 5, "forward", .wants_h = true}, "K K L2/2*5-1 C ");
  expect((wish){LB_OP_LSTM, 1, "bidirectional", .wants_h = false},
         "K K L2/4*1-1 C ");
  expect((wish){LB_OP_GRU, 7, "bidirectional", .wants_h = true},
         "K L4/8*7-1 C ");
  expect(
      (wish){LB_OP_LSTM, 5, "bidirectional", .wants_h = true, .masked = true},
      "K K L2/4*5-1 C ");
}

static void the_output_of_all_steps_may_be_absent(void **state) {
  (void)state;
  expect((wish){LB_OP_LSTM, 5, "forward", .wants_h = true, .without_y = true},
         "K K L2/2*5-1 C ");
}

static void directions_that_take_long_get_a_thread_each(void **state) {
  (void)state;
  expect((wish){LB_OP_LSTM, 5000, "bidirectional", .wants_h = true},
         "K K A2/4*5000-1 C ");
  expect((wish){LB_OP_LSTM, 5000, "forward", .wants_h = true},
         "K K L2/2*5000-1 C ");
}

static void without_steps_there_are_no_launches(void **state) {
  (void)state;
  expect((wish){LB_OP_LSTM, 0, "forward", .wants_h = true}, "C ");
}

static void what_gives_other_bits_stays_alone_if_asked(void **state) {
  (void)state;
  expect(
      (wish){LB_OP_LSTM, 5, "forward", .deterministic = true, .wants_h = true},
      "C ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(launches_run_once_for_every_step),
      cmocka_unit_test(the_output_of_all_steps_may_be_absent),
      cmocka_unit_test(directions_that_take_long_get_a_thread_each),
      cmocka_unit_test(without_steps_there_are_no_launches),
      cmocka_unit_test(what_gives_other_bits_stays_alone_if_asked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
