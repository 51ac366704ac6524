// session/session_test.c -- graphs built by hand, run through plan and session.
#include "session/session.h"

#include "graph/build_test.h"

static lb_graph *new_graph(void) {
  lb_graph *g;
  ok(lb_graph_new(&g));
  return g;
}

static lb_session *new_session(lb_graph *g) {
  lb_session *s;
  // Passes are off: tests run the graphs as they are built.
  ok(lb_session_new(g, &(lb_session_options){.passes_off = UINT64_MAX}, &s));
  return s;
}

static void finish(lb_session *s, lb_graph *g) {
  lb_session_free(s);
  lb_graph_free(g);
}

static void shapes_may_change_from_run_to_run(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1, 2));
  float w[] = {1, 2, 3, 4};
  lb_tensor wt = tensor(LB_F32, w, DIMS(2, 2));
  lb_value *c;
  ok(lb_const_new(g, "w", &wt, &c));
  lb_value *y = NODE1(g->main, MatMul, "mm", x, c);
  RESULTS(g->main, NODE1(g->main, Relu, "relu", y));
  lb_session *s = new_session(g);
  for (int64_t n = 0; n < 5; n++) {
    float in[8];
    for (int i = 0; i < 8; i++) in[i] = (float)(i - 3);
    lb_tensor t = tensor(LB_F32, in, DIMS(n, 2));
    lb_output out = {.wanted = true};
    ok(lb_session_run(s, &t, &out));
    assert_int_equal(out.tensor.dims[0], n);
    for (int64_t i = 0; i < n; i++) {
      float want = in[2 * i] * 1 + in[2 * i + 1] * 3;
      float got = ((float *)out.tensor.data)[2 * i];
      assert_float_equal(got, want > 0 ? want : 0, 1e-6);
    }
    lb_output_free(s, &out);
  }
  lb_session_stats stats;
  lb_session_stats_get(s, &stats);
  assert_int_equal(stats.plans, 5);
  finish(s, g);
}

static void a_run_without_wanted_outputs_has_no_steps(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1));
  RESULTS(g->main, NODE1(g->main, Neg, "neg", x));
  lb_session *s = new_session(g);
  float in[] = {1, 2};
  lb_tensor t = tensor(LB_F32, in, DIMS(2));
  lb_output out = {.wanted = false};
  for (int i = 0; i < 2; i++) ok(lb_session_run(s, &t, &out));
  assert_null(out.data);
  finish(s, g);
}

static void results_are_written_to_given_memory(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1));
  lb_value *y = NODE1(g->main, Neg, "neg", x), *shape;
  ok(lb_const_ints(g, "shape", (int64_t[]){-1, 1}, 2, &shape));
  // Two results: the second is a reshape, and is written without a copy.
  RESULTS(g->main, NODE1(g->main, Reshape, "r", y, shape), x);
  lb_session *s = new_session(g);
  float in[] = {1, 2, 3}, a[3], b[2];
  lb_tensor t = tensor(LB_F32, in, DIMS(3));
  lb_output out[2] = {{.wanted = true, .data = a, .cap = sizeof a},
                      {.wanted = true}};
  ok(lb_session_run(s, &t, out));
  assert_ptr_equal(out[0].tensor.data, a);
  assert_int_equal(out[0].tensor.rank, 2);
  assert_float_equal(a[2], -3, 0);
  assert_float_equal(((float *)out[1].tensor.data)[1], 2, 0);
  lb_output_free(s, &out[1]);
  out[0] = (lb_output){.wanted = true, .data = b, .cap = sizeof b};
  out[1] = (lb_output){0};
  lb_status st = lb_session_run(s, &t, out);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  assert_string_equal(
      lb_status_message(st),
      "output 'r:0' of float32[3,1] needs 12 bytes, the buffer has 8");
  lb_status_drop(st);
  finish(s, g);
}

// x -> NonZero -> Transpose: data-dependent dims.
static void shapes_that_depend_on_data_start_a_stage(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1));
  lb_value *nz = NODE1(g->main, NonZero, "nz", x);
  lb_value *tr = NODE1(g->main, Transpose, "tr", nz);
  RESULTS(g->main, NODE1(g->main, Abs, "abs", tr));
  lb_session *s = new_session(g);
  for (int n = 0; n < 4; n++) {
    float in[4] = {0};
    for (int i = 0; i < n; i++) in[3 - i] = 1;
    lb_tensor t = tensor(LB_F32, in, DIMS(4));
    lb_output out = {.wanted = true};
    ok(lb_session_run(s, &t, &out));
    assert_int_equal(out.tensor.dims[0], n);
    assert_int_equal(out.tensor.dims[1], 1);
    for (int i = 0; i < n; i++)
      assert_int_equal(((int64_t *)out.tensor.data)[i], 4 - n + i);
    lb_output_free(s, &out);
  }
  finish(s, g);
}

// if (sum(x) > 0) then -x else x*x, the condition computed from data.
static lb_graph *branching_graph(void) {
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1)), *zero;
  ok(lb_const_f32(g, "zero", 0, &zero));
  lb_node *sum = node(g->main, LB_OP_ReduceSum, "sum", 1, &x, 1);
  ok(lb_node_set_int(g, sum, "keepdims", 0));
  lb_value *cond = NODE1(g->main, Greater, "gt", sum->out[0], zero);
  lb_node *branch =
      node(g->main, LB_OP_If, "if", 2, (lb_value *[]){cond, x}, 1);
  branch->n_captures = 1;
  for (int i = 0; i < 2; i++) {
    lb_region *r;
    ok(lb_region_new(g, g->main, &r));
    lb_value *p = param(r, "p", LB_F32, DIMS(-1));
    RESULTS(r, i ? NODE1(r, Mul, "square", p, p) : NODE1(r, Neg, "neg", p));
    add_region(branch, r);
  }
  RESULTS(g->main, NODE1(g->main, Abs, "abs", branch->out[0]), branch->out[0]);
  return g;
}

static void branches_decided_by_data_run_the_right_side(void **state) {
  (void)state;
  lb_graph *g = branching_graph();
  lb_session *s = new_session(g);
  for (int round = 0; round < 4; round++) {
    float sign = round & 1 ? -1.f : 1.f, in[] = {2 * sign, 3 * sign};
    lb_tensor t = tensor(LB_F32, in, DIMS(2));
    lb_output out[2] = {{.wanted = true}, {.wanted = true}};
    ok(lb_session_run(s, &t, out));
    assert_float_equal(((float *)out[1].tensor.data)[1], sign > 0 ? -3 : 9, 0);
    assert_float_equal(((float *)out[0].tensor.data)[0], sign > 0 ? 2 : 4, 0);
    lb_output_free(s, &out[0]);
    lb_output_free(s, &out[1]);
  }
  lb_session_stats stats;
  lb_session_stats_get(s, &stats);
  assert_int_equal(stats.plans, 3);  // one first stage, one per branch
  finish(s, g);
}

// If dim 1 of x is 1, it is squeezed; then the maximum of each row is taken.
// The branch decides the dims of the result.
static lb_graph *squeezing_graph(void) {
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1, -1, 4)), *one, *last;
  ok(lb_const_ints(g, "one", (int64_t[]){1}, 1, &one));
  ok(lb_const_ints(g, "last", (int64_t[]){-1}, 1, &last));
  lb_value *dim =
      NODE1(g->main, Gather, "dim", NODE1(g->main, Shape, "shape", x), one);
  lb_value *cond = NODE1(g->main, Equal, "eq", dim, one);
  lb_node *branch =
      node(g->main, LB_OP_If, "if", 2, (lb_value *[]){cond, x}, 1);
  branch->n_captures = 1;
  for (int i = 0; i < 2; i++) {
    lb_region *r;
    ok(lb_region_new(g, g->main, &r));
    lb_value *p = param(r, "p", LB_F32, DIMS(-1, -1, 4));
    RESULTS(r, i ? p : NODE1(r, Squeeze, "squeeze", p, one));
    add_region(branch, r);
  }
  lb_value *most = NODE1(g->main, ReduceMax, "max", branch->out[0], last);
  RESULTS(g->main, NODE1(g->main, Neg, "neg", most), branch->out[0]);
  return g;
}

static void nodes_moved_into_branches_give_the_same_results(void **state) {
  (void)state;
  for (int plain = 0; plain < 2; plain++) {
    lb_graph *g = squeezing_graph();
    lb_session_options o = {.passes_off = plain ? UINT64_MAX : 0};
    lb_session *s;
    ok(lb_session_new(g, &o, &s));
    assert_int_equal(g->main->nodes[g->main->n_nodes - 1]->op,
                     plain ? LB_OP_Neg : LB_OP_If);
    for (int64_t t = 1; t < 4; t++) {
      float in[24];
      for (int i = 0; i < 24; i++) in[i] = (float)(i * 7 % 24);
      lb_tensor x = tensor(LB_F32, in, DIMS(2, t, 4));
      lb_output out[2] = {{.wanted = true}, {.wanted = true}};
      ok(lb_session_run(s, &x, out));
      assert_int_equal(out[0].tensor.rank, t == 1 ? 2 : 3);
      assert_int_equal(out[1].tensor.rank, t == 1 ? 2 : 3);
      assert_memory_equal(out[1].tensor.data, in, (size_t)(8 * t) * sizeof *in);
      for (int64_t row = 0; row < 2 * t; row++) {
        float most = in[4 * row];
        for (int i = 1; i < 4; i++)
          if (in[4 * row + i] > most) most = in[4 * row + i];
        assert_float_equal(((float *)out[0].tensor.data)[row], -most, 0);
      }
      lb_output_free(s, &out[0]);
      lb_output_free(s, &out[1]);
    }
    finish(s, g);
  }
}

// acc = x; repeat M times { acc = acc + y; scan acc }
static lb_graph *looping_graph(bool endless) {
  lb_graph *g = new_graph();
  lb_value *m = param(g->main, "m", LB_I64, 0, NULL);
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1));
  lb_value *y = param(g->main, "y", LB_F32, DIMS(-1));
  lb_value *in[] = {endless ? NULL : m, NULL, x, y};
  lb_node *loop = node(g->main, LB_OP_Loop, "loop", 4, in, 2);
  loop->n_captures = 1;
  lb_region *r;
  ok(lb_region_new(g, g->main, &r));
  param(r, "i", LB_I64, 0, NULL);
  lb_value *cond = param(r, "cond", LB_BOOL, 0, NULL);
  lb_value *acc = param(r, "acc", LB_F32, DIMS(-1));
  lb_value *cap = param(r, "cap", LB_F32, DIMS(-1));
  lb_value *sum = NODE1(r, Add, "add", acc, cap);
  RESULTS(r, cond, sum, sum);
  add_region(loop, r);
  RESULTS(g->main, loop->out[0], loop->out[1]);
  return g;
}

static void loops_carry_values_and_collect_scans(void **state) {
  (void)state;
  lb_graph *g = looping_graph(false);
  lb_session *s = new_session(g);
  for (int64_t m = 0; m < 6; m++) {
    float x[] = {1, 2}, y[] = {10, 20};
    lb_tensor in[] = {tensor(LB_I64, &m, 0, NULL), tensor(LB_F32, x, DIMS(2)),
                      tensor(LB_F32, y, DIMS(2))};
    lb_output out[2] = {{.wanted = true}, {.wanted = true}};
    ok(lb_session_run(s, in, out));
    assert_float_equal(((float *)out[0].tensor.data)[1], 2 + 20.f * (float)m,
                       0);
    assert_int_equal(out[1].tensor.rank, 2);
    assert_int_equal(out[1].tensor.dims[0], m);
    for (int64_t i = 0; i < m; i++)
      assert_float_equal(((float *)out[1].tensor.data)[2 * i],
                         1 + 10.f * (float)(i + 1), 0);
    lb_output_free(s, &out[0]);
    lb_output_free(s, &out[1]);
  }
  finish(s, g);
}

static void a_loop_without_end_hits_its_limit(void **state) {
  (void)state;
  lb_graph *g = looping_graph(true);
  lb_session *s;
  ok(lb_session_new(
      g, &(lb_session_options){.loop_limit = 7, .passes_off = UINT64_MAX}, &s));
  int64_t m = 1;
  float x[] = {1};
  lb_tensor in[] = {tensor(LB_I64, &m, 0, NULL), tensor(LB_F32, x, DIMS(1)),
                    tensor(LB_F32, x, DIMS(1))};
  lb_output out[2] = {{.wanted = true}, {.wanted = true}};
  lb_status st = lb_session_run(s, in, out);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  assert_non_null(strstr(lb_status_message(st),
                         "Loop 'loop': iteration 7: loop_limit (7, nested "
                         "loops included) reached; raise it"));
  lb_status_drop(st);
  assert_null(out[0].data);
  finish(s, g);
}

// A Loop of m iterations in a Loop of m iterations.
static lb_graph *nested_graph(void) {
  lb_graph *g = new_graph();
  lb_value *m = param(g->main, "m", LB_I64, 0, NULL);
  lb_value *x = param(g->main, "x", LB_F32, DIMS(1));
  lb_region *r = g->main;
  lb_node *loops[2];
  for (int k = 0; k < 2; k++) {
    lb_node *loop = loops[k] = node(r, LB_OP_Loop, k ? "inner" : "outer", 4,
                                    (lb_value *[]){m, NULL, x, m}, 1);
    loop->n_captures = 1;
    ok(lb_region_new(g, r, &r));
    add_region(loop, r);
    param(r, "i", LB_I64, 0, NULL);
    param(r, "cond", LB_BOOL, 0, NULL);
    x = param(r, "acc", LB_F32, DIMS(1));
    m = param(r, "m", LB_I64, 0, NULL);
  }
  RESULTS(r, r->params[1], NODE1(r, Add, "add", x, x));
  r = loops[0]->regions[0];
  RESULTS(r, r->params[1], loops[1]->out[0]);
  RESULTS(g->main, loops[0]->out[0]);
  return g;
}

static void iterations_of_inner_loops_count_too(void **state) {
  (void)state;
  for (int64_t limit = 11; limit <= 12;
       limit++) {  // 3 iterations, with 3 in each
    lb_graph *g = nested_graph();
    lb_session *s;
    ok(lb_session_new(g, &(lb_session_options){.loop_limit = limit}, &s));
    for (int run = 0; run < 2;
         run++) {  // each run starts with no iterations used
      int64_t m = 3;
      float x = 1;
      lb_tensor in[] = {tensor(LB_I64, &m, 0, NULL),
                        tensor(LB_F32, &x, DIMS(1))};
      lb_output out = {.wanted = true};
      lb_status st = lb_session_run(s, in, &out);
      assert_int_equal(lb_status_code(st),
                       limit < 12 ? LB_INVALID : LB_CODE_OK);
      if (limit == 12) assert_true(*(float *)out.tensor.data == 512);
      lb_status_drop(st);
      lb_output_free(s, &out);
    }
    finish(s, g);
  }
}

static void a_scan_of_empty_rows_hits_the_limit(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1, 0));
  lb_node *scan = node(g->main, LB_OP_Scan, "scan", 1, &x, 1);
  ok(lb_node_set_int(g, scan, "num_scan_inputs", 1));
  lb_region *r;
  ok(lb_region_new(g, g->main, &r));
  lb_value *row = param(r, "row", LB_F32, DIMS(0));
  RESULTS(r, NODE1(r, Abs, "abs", row));
  add_region(scan, r);
  RESULTS(g->main, scan->out[0]);
  lb_session *s;
  ok(lb_session_new(g, &(lb_session_options){.loop_limit = 5}, &s));
  for (int64_t n = 5; n < INT64_C(1) << 40; n *= 10) {
    float nothing;
    lb_tensor in = tensor(LB_F32, &nothing, DIMS(n, 0));
    lb_output out = {.wanted = true};
    lb_status st = lb_session_run(s, &in, &out);
    assert_int_equal(lb_status_code(st), n > 5 ? LB_INVALID : LB_CODE_OK);
    lb_status_drop(st);
    lb_output_free(s, &out);
  }
  finish(s, g);
}

static void inputs_are_checked_against_declarations(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_dim batch;
  ok(lb_symtab_named(g->syms, "batch", &batch));
  lb_value *a = param(g->main, "a", LB_F32, DIMS(-1, 3));
  lb_value *b = param(g->main, "b", LB_F32, DIMS(-1));
  a->info.dims[0] = b->info.dims[0] = batch;
  lb_node *sum = node(g->main, LB_OP_ReduceSum, "sum", 1, &a, 1);
  RESULTS(g->main, NODE1(g->main, Add, "add", sum->out[0], b));
  lb_session *s = new_session(g);
  float x[32] = {0};
  struct {
    lb_tensor in[2];
    const char *says;
  } cases[] = {
      {{tensor(LB_F32, x, DIMS(4, 3)), tensor(LB_F32, x, DIMS(3))},
       "`batch`: 4 from `a`, 3 from `b`"},
      {{tensor(LB_F32, x, DIMS(4, 2)), tensor(LB_F32, x, DIMS(4))},
       "input 'a': dim 1 must be 3, not 2: expected float32[batch,3], got "
       "float32[4,2]"},
      {{tensor(LB_F32, x, DIMS(4)), tensor(LB_F32, x, DIMS(4))},
       "input 'a': wrong rank: expected float32[batch,3], got float32[4]"},
      {{tensor(LB_F32, x, DIMS(4, 3)), tensor(LB_I64, x, DIMS(4))},
       "input 'b': wrong type: expected float32[batch], got int64[4]"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lb_output out = {.wanted = true};
    lb_status st = lb_session_run(s, cases[i].in, &out);
    assert_int_equal(lb_status_code(st), LB_INVALID);
    assert_string_equal(lb_status_message(st), cases[i].says);
    lb_status_drop(st);
  }
  finish(s, g);
}

static void a_run_stays_under_its_memory_limit(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1));
  lb_value *y = NODE1(g->main, Abs, "abs", x);
  RESULTS(g->main, NODE1(g->main, ReduceSum, "sum", y));
  lb_session *s;
  ok(lb_session_new(g, &(lb_session_options){.memory_limit = 1024}, &s));
  static float in[1024];
  lb_output out = {.wanted = true};
  lb_tensor t = tensor(LB_F32, in, DIMS(100));
  ok(lb_session_run(s, &t, &out));
  lb_output_free(s, &out);
  t.dims[0] = 1024;
  lb_status st = lb_session_run(s, &t, &out);
  assert_int_equal(lb_status_code(st), LB_OOM);
  lb_status_drop(st);
  finish(s, g);
}

// NonZero needs a dynamic buffer, Abs needs the arena: the memory of one run
// must not count against the next.
static void a_run_is_not_charged_for_earlier_ones(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1));
  lb_value *y = NODE1(g->main, Abs, "abs", x);
  RESULTS(g->main, NODE1(g->main, ReduceSum, "sum", y),
          NODE1(g->main, NonZero, "nz", x));
  lb_session *s;
  ok(lb_session_new(g, &(lb_session_options){.memory_limit = 20000}, &s));
  static float in[4096];
  for (int i = 0; i < 4096; i++) in[i] = 1;
  for (int round = 0; round < 4; round++) {
    bool abs = round % 2;
    lb_output out[2] = {{.wanted = abs}, {.wanted = !abs}};
    lb_tensor t =
        tensor(LB_F32, in, DIMS(abs ? 4096 : 1024));  // 16 KB of values
    ok(lb_session_run(s, &t, out));
    lb_output_free(s, &out[!abs]);
  }
  finish(s, g);
}

static void plans_stay_under_their_budget(void **state) {
  (void)state;
  lb_graph *g = new_graph();
  lb_value *x = param(g->main, "x", LB_F32, DIMS(-1));
  RESULTS(g->main, NODE1(g->main, Abs, "abs", x));
  lb_session *s;
  ok(lb_session_new(g, &(lb_session_options){.plan_bytes = 200 << 10}, &s));
  static float in[300];
  for (int64_t n = 0; n < 300; n++) {
    lb_output out = {.wanted = true};
    lb_tensor t = tensor(LB_F32, in, DIMS(n));
    ok(lb_session_run(s, &t, &out));
    lb_output_free(s, &out);
  }
  lb_session_stats stats;
  lb_session_stats_get(s, &stats);
  assert_true(stats.plan_bytes <= 200 << 10);
  assert_true(stats.plans_evicted > 0);
  assert_int_equal(stats.plans_built, stats.plans + stats.plans_evicted);
  finish(s, g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_may_change_from_run_to_run),
      cmocka_unit_test(a_run_without_wanted_outputs_has_no_steps),
      cmocka_unit_test(results_are_written_to_given_memory),
      cmocka_unit_test(shapes_that_depend_on_data_start_a_stage),
      cmocka_unit_test(branches_decided_by_data_run_the_right_side),
      cmocka_unit_test(nodes_moved_into_branches_give_the_same_results),
      cmocka_unit_test(loops_carry_values_and_collect_scans),
      cmocka_unit_test(a_loop_without_end_hits_its_limit),
      cmocka_unit_test(iterations_of_inner_loops_count_too),
      cmocka_unit_test(a_scan_of_empty_rows_hits_the_limit),
      cmocka_unit_test(inputs_are_checked_against_declarations),
      cmocka_unit_test(a_run_stays_under_its_memory_limit),
      cmocka_unit_test(a_run_is_not_charged_for_earlier_ones),
      cmocka_unit_test(plans_stay_under_their_budget),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
