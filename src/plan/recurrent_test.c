// plan/recurrent_test.c -- the steps of a recurrence.
#include "plan/load_test.h"

static lb_plan_workspace workspace;  // shared by all plans of this file

typedef struct params {
  lb_op op;
  int64_t steps;
  const char *direction;
  bool deterministic, wants_h, masked, without_y;
} params;

static lb_value *constant_mask(lb_graph *g, int64_t steps) {
  static float ones[3 * 8];
  lb_tensor t = tensor(LB_F32, ones, DIMS(steps, 3));
  lb_value *v;
  ok(lb_const_new(g, "mask", &t, &v));
  return v;
}

static lb_node *add_node(lb_graph *g, const params *w) {
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

// One letter for each step: K a copy, C a call, L launches: per group / in all
// * iterations - skipped steps. A instead of L if each direction may have its
// own thread.
static void print_steps(const lb_plan *plan, char *out, size_t cap) {
  size_t n = 0;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *s = &plan->steps[i];
    uint32_t count = 0;
    for (const lb_launch *l = s->launch; l; l = l->next) count++;
    n += (size_t)(s->kind == LB_STEP_LAUNCH
                      ? snprintf(out + n, cap - n, "%s%u/%u*%d-%u ",
                                 s->max_parallel_threads ? "A" : "L",
                                 s->group_size, count, (int)s->iterations,
                                 s->skip)
                      : snprintf(out + n, cap - n,
                                 s->kind == LB_STEP_COPY ? "K " : "C "));
  }
}

static void expect(params w, const char *want) {
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
  ok(lb_plan_first(l.prog, g->main, &in, NULL,
                   (lb_want[]){{.wanted = true}, {.wanted = w.wants_h}},
                   &workspace, &plan));
  print_steps(plan, text, sizeof text);
  assert_string_equal(text, want);
  lb_plan_release(plan);
  unload(&l);
}

static void launches_run_once_per_time_step(void **state) {
  (void)state;
  expect((params){LB_OP_LSTM, 5, "forward", .wants_h = true},
         "K K L2/2*5-1 C ");
  expect((params){LB_OP_LSTM, 1, "bidirectional", .wants_h = false},
         "K K L2/4*1-1 C ");
  expect((params){LB_OP_GRU, 7, "bidirectional", .wants_h = true},
         "K L4/8*7-1 C ");
  expect(
      (params){LB_OP_LSTM, 5, "bidirectional", .wants_h = true, .masked = true},
      "K K L2/4*5-1 C ");
}

static void output_y_may_be_absent(void **state) {
  (void)state;
  expect((params){LB_OP_LSTM, 5, "forward", .wants_h = true, .without_y = true},
         "K K L2/2*5-1 C ");
}

static void long_directions_get_a_thread_each(void **state) {
  (void)state;
  expect((params){LB_OP_LSTM, 5000, "bidirectional", .wants_h = true},
         "K K A2/4*5000-1 C ");
  expect((params){LB_OP_LSTM, 5000, "forward", .wants_h = true},
         "K K L2/2*5000-1 C ");
}

static void without_time_steps_there_are_no_launches(void **state) {
  (void)state;
  expect((params){LB_OP_LSTM, 0, "forward", .wants_h = true}, "C ");
}

static void deterministic_plans_use_exact_covers_only(void **state) {
  (void)state;
  expect((params){LB_OP_LSTM, 5, "forward", .deterministic = true,
                  .wants_h = true},
         "C ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(launches_run_once_per_time_step),
      cmocka_unit_test(output_y_may_be_absent),
      cmocka_unit_test(long_directions_get_a_thread_each),
      cmocka_unit_test(without_time_steps_there_are_no_launches),
      cmocka_unit_test(deterministic_plans_use_exact_covers_only),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
