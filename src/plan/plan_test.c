// plan/plan_test.c -- which nodes become steps.
#include "plan/plan.h"

#include "graph/build_test.h"
#include "graph/skip.h"
#include "plan/memory.h"

static lb_plan_workspace workspace;  // shared by all plans of this file

typedef struct fixture {
  lb_graph *g;
  lb_program *program;
  lb_plan *plan;
} fixture;

static fixture begin(void) {
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  return f;
}

static void build(fixture *f, const lb_tensor *in, const lb_want *wanted) {
  ok(lb_mark_runtime_skippable_nodes(f->g));
  ok(lb_program_new(&(lb_program_options){.graph = f->g}, &f->program));
  ok(lb_plan_first(f->program, f->g->main, in, NULL, wanted, &workspace,
                   &f->plan));
}

static void end(fixture *f) {
  lb_plan_release(f->plan);
  lb_program_release(f->program);
  lb_graph_free(f->g);
}

// x[n,4] -> Reshape(x, Concat(Shape(x)[0], 2, 2)) -> Transpose -> Abs
static void shape_arithmetic_and_views_are_not_steps(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4)), *zero, *rest;
  ok(lb_const_ints(f.g, "zero", (int64_t[]){0}, 1, &zero));
  ok(lb_const_ints(f.g, "rest", (int64_t[]){2, 2}, 2, &rest));
  lb_value *n = NODE1(r, Gather, "g", NODE1(r, Shape, "s", x), zero);
  lb_node *cat = node(r, LB_OP_Concat, "cat", 2, (lb_value *[]){n, rest}, 1);
  ok(lb_node_set_int(f.g, cat, "axis", 0));
  lb_value *re = NODE1(r, Reshape, "re", x, cat->out[0]);
  RESULTS(r, NODE1(r, Abs, "abs", NODE1(r, Transpose, "tr", re)));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3, 4));
  build(&f, &in, (lb_want[]){{.wanted = true}});
  assert_int_equal(f.plan->n_steps, 1);
  const lb_step *s = &f.plan->steps[0];
  assert_string_equal(s->node->name, "abs");
  assert_int_equal(s->in[0].storage, LB_STORAGE_INPUT);
  assert_int_equal(s->in[0].tensor->dims[2], 3);
  assert_int_equal(s->in[0].tensor->strides[2], 4);
  assert_int_equal(s->out[0].storage, LB_STORAGE_OUTPUT);
  assert_int_equal(f.plan->arena_bytes, 0);
  end(&f);
}

// Add(x, EyeLike(x)): a small tensor that depends on dims only is computed
// while planning.
static void only_large_values_of_dims_are_steps(void **state) {
  (void)state;
  for (int large = 0; large < 2; large++) {
    fixture f = begin();
    lb_region *r = f.g->main;
    lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4));
    RESULTS(r, NODE1(r, Add, "add", x, NODE1(r, EyeLike, "eye", x)));
    lb_tensor in = tensor(LB_F32, NULL, DIMS(large ? 17 : 16, 4));
    build(&f, &in, (lb_want[]){{.wanted = true}});
    assert_int_equal(f.plan->n_steps, large ? 2 : 1);
    end(&f);
  }
}

// x[n,4] -> Abs -> [n,4,1] -> Transpose to [n,1,4]: no element moves.
static void transposing_axes_of_size_one_moves_nothing(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4, 1));
  lb_value *a = NODE1(r, Abs, "abs", x);
  a->info = x->info;
  lb_node *t = node(r, LB_OP_Transpose, "t", 1, &a, 1);
  ok(lb_node_set_ints(f.g, t, "perm", (int64_t[]){0, 2, 1}, 3));
  RESULTS(r, t->out[0]);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3, 4, 1));
  build(&f, &in, (lb_want[]){{.wanted = true}});
  assert_int_equal(f.plan->n_steps, 1);
  assert_int_equal(f.plan->steps[0].out[0].storage, LB_STORAGE_OUTPUT);
  assert_int_equal(f.plan->binds[0].tensor.dims[1], 1);
  end(&f);
}

static void unrequested_results_are_not_planned(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1));
  lb_value *a = NODE1(r, Abs, "a", x), *b = NODE1(r, Exp, "b", a);
  RESULTS(r, a, NODE1(r, Neg, "c", b));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3));
  build(&f, &in, (lb_want[]){{.wanted = true}, {.wanted = false}});
  assert_int_equal(f.plan->n_steps, 1);
  lb_plan_release(f.plan);
  ok(lb_plan_first(f.program, r, &in, NULL,
                   (lb_want[]){{.wanted = false}, {.wanted = true}}, &workspace,
                   &f.plan));
  assert_int_equal(f.plan->n_steps, 3);
  end(&f);
}

// Before step i of a chain, the value of step i begins and that of step i - 2
// has ended: it is read by step i - 1 only.
static void checked_memory_is_overwritten_around_each_value(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *v = param(r, "x", LB_F32, DIMS(-1));
  for (int i = 0; i < 10; i++) v = NODE1(r, Abs, "a", v);
  RESULTS(r, NODE1(r, ReduceSum, "sum", v));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(16));
  ok(lb_program_new(
      &(lb_program_options){.graph = f.g,
                            .checks = LB_CHECK_POISON | LB_CHECK_SEPARATE},
      &f.program));
  ok(lb_plan_first(f.program, r, &in, NULL, (lb_want[]){{.wanted = true}},
                   &workspace, &f.plan));
  assert_int_equal(f.plan->arena_bytes, 10 * 64);
  assert_int_equal(f.plan->n_wipes, 10 + 8);
  for (uint32_t i = 0; i < f.plan->n_wipes; i++) {
    const lb_wipe *w = &f.plan->wipes[i];
    assert_int_equal(w->offset, 64 * (w->ended ? w->step - 2 : w->step));
    assert_int_equal(w->size, 64);
  }
  end(&f);
}

static void memory_of_dead_values_is_reused(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *v = param(r, "x", LB_F32, DIMS(-1));
  for (int i = 0; i < 10; i++) v = NODE1(r, Abs, "a", v);
  RESULTS(r, NODE1(r, ReduceSum, "sum", v));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(16));
  build(&f, &in, (lb_want[]){{.wanted = true}});
  assert_int_equal(f.plan->n_steps, 11);
  assert_int_equal(f.plan->arena_bytes, 2 * 64);
  end(&f);
}

// A small input that decides a shape is part of the signature: its contents are
// read while planning, and the target is a constant of the plan.
static void deciding_inputs_are_read_while_planning(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1));
  lb_value *shape = param(r, "shape", LB_I64, DIMS(-1));
  RESULTS(r, NODE1(r, Abs, "abs", NODE1(r, Reshape, "re", x, shape)));
  int64_t target[] = {2, -1};
  lb_tensor in[] = {tensor(LB_F32, NULL, DIMS(6)),
                    tensor(LB_I64, target, DIMS(2))};
  build(&f, in, (lb_want[]){{.wanted = true}});
  assert_int_equal(f.plan->n_stage_results, 0);
  assert_int_equal(f.plan->n_steps, 1);
  assert_int_equal(f.plan->steps[0].out[0].tensor->dims[1], 3);
  end(&f);
}

// The same target, computed from data: a stage result, then a second plan.
static void computed_targets_end_the_stage(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, -1)), *flat;
  ok(lb_const_ints(f.g, "flat", (int64_t[]){-1}, 1, &flat));
  lb_value *sum = NODE1(r, ReduceSum, "sum", x);
  lb_node *cast = node(r, LB_OP_Cast, "cast", 1, &sum, 1);
  ok(lb_node_set_int(f.g, cast, "to", 7));
  lb_value *target = NODE1(r, Reshape, "target", cast->out[0], flat);
  RESULTS(r, NODE1(r, Reshape, "re", x, target));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(2, 3));
  build(&f, &in, (lb_want[]){{.wanted = true}});
  assert_int_equal(f.plan->n_stage_results, 1);
  assert_int_equal(f.plan->stage_results[0].kind, LB_STAGE_RESULT_CONTENTS);
  int64_t six = 6;
  lb_tensor stage_result = tensor(LB_I64, &six, DIMS(1));
  lb_plan *next;
  ok(lb_plan_next(f.plan, &stage_result, &workspace, &next));
  assert_int_equal(next->n_stage_results, 0);
  assert_int_equal(next->binds[0].tensor.rank, 1);
  assert_int_equal(next->binds[0].tensor.dims[0], 6);
  lb_plan_release(next);
  end(&f);
}

// if (flag) then late else x, where `late` depends on the rows of NonZero: the
// branch is known in the first stage, and nodes that only the other branch
// reads are not planned in the second.
static void nodes_of_the_other_branch_are_not_planned(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *flag = param(r, "flag", LB_BOOL, 0, NULL);
  lb_value *x = param(r, "x", LB_I64, DIMS(-1, -1));
  lb_value *rows = NODE1(r, NonZero, "rows", x);
  lb_value *late = NODE1(r, Abs, "late", NODE1(r, Neg, "neg", rows));
  lb_node *branch =
      node(r, LB_OP_If, "if", 3, (lb_value *[]){flag, late, x}, 1);
  branch->n_captures = 2;
  for (int i = 0; i < 2; i++) {
    lb_region *inner;
    ok(lb_region_new(f.g, r, &inner));
    lb_value *p[] = {param(inner, "late", LB_I64, DIMS(-1, -1)),
                     param(inner, "x", LB_I64, DIMS(-1, -1))};
    RESULTS(inner, NODE1(inner, Abs, "abs", p[i]));
    add_region(branch, inner);
  }
  RESULTS(r, branch->out[0], NODE1(r, Sign, "sign", rows));
  for (uint8_t taken = 0; taken < 2; taken++) {
    lb_tensor in[] = {tensor(LB_BOOL, &taken, 0, NULL),
                      tensor(LB_I64, NULL, DIMS(2, 2))};
    ok(lb_program_new(&(lb_program_options){.graph = f.g}, &f.program));
    ok(lb_plan_first(f.program, r, in, NULL,
                     (lb_want[]){{.wanted = true}, {.wanted = true}},
                     &workspace, &f.plan));
    lb_tensor dims = tensor(LB_I64, NULL, DIMS(2, 3));
    lb_plan *next;
    ok(lb_plan_next(f.plan, &dims, &workspace, &next));
    assert_int_equal(next->n_steps, taken ? 4 : 1);
    lb_plan_release(next);
    lb_plan_release(f.plan);
    lb_program_release(f.program);
  }
  lb_graph_free(f.g);
}

static void plans_retain_their_program(void **state) {
  (void)state;
  fixture f = begin();
  lb_program_usage usage = {0};
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1));
  lb_value *y = NODE1(r, NonZero, "nz", x);
  RESULTS(r, NODE1(r, Abs, "abs", NODE1(r, Transpose, "t", y)));
  ok(lb_program_new(
      &(lb_program_options){.graph = f.g, .version = 7, .usage = &usage},
      &f.program));
  assert_int_equal(atomic_load(&usage.count), 1);
  assert_true(atomic_load(&usage.bytes) > sizeof *f.program);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(5));
  ok(lb_plan_first(f.program, r, &in, NULL, &(lb_want){.wanted = true},
                   &workspace, &f.plan));
  assert_int_equal(f.plan->program->version, 7);
  lb_program_release(f.program);
  // The next stage retains it, too, and outlives the first.
  lb_plan *next;
  lb_tensor found = tensor(LB_I64, NULL, DIMS(1, 3));
  ok(lb_plan_next(f.plan, &found, &workspace, &next));
  lb_plan_release(f.plan);
  assert_int_equal(atomic_load(&usage.count), 1);
  assert_int_equal(next->program->version, 7);
  lb_plan_release(next);
  assert_int_equal(atomic_load(&usage.count), 0);
  assert_int_equal(atomic_load(&usage.bytes), 0);
  lb_graph_free(f.g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shape_arithmetic_and_views_are_not_steps),
      cmocka_unit_test(only_large_values_of_dims_are_steps),
      cmocka_unit_test(transposing_axes_of_size_one_moves_nothing),
      cmocka_unit_test(unrequested_results_are_not_planned),
      cmocka_unit_test(memory_of_dead_values_is_reused),
      cmocka_unit_test(checked_memory_is_overwritten_around_each_value),
      cmocka_unit_test(deciding_inputs_are_read_while_planning),
      cmocka_unit_test(computed_targets_end_the_stage),
      cmocka_unit_test(nodes_of_the_other_branch_are_not_planned),
      cmocka_unit_test(plans_retain_their_program),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
