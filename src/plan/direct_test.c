// plan/direct_test.c -- partitions that are planned by expressions, without
// visiting their nodes, and those that cannot be.
#include <stdlib.h>

#include "plan/load_test.h"
#include "plan/pack_test.h"

static lb_plan_workspace workspace;  // shared by all plans of this file

// Plans all partitions node by node.
static void disable_direct_planning(loaded *f) {
  for (uint32_t i = 0; i < f->prog->parts->n_parts; i++)
    f->prog->parts->parts[i]->plain = false;
}

static void same_operand(const lb_step_operand *a, const lb_step_operand *b) {
  assert_int_equal(a->storage, b->storage);
  assert_int_equal(a->index, b->index);
  assert_int_equal(a->offset, b->offset);
  assert_int_equal(a->tensor->rank, b->tensor->rank);
  for (int i = 0; i < a->tensor->rank; i++) {
    assert_int_equal(a->tensor->dims[i], b->tensor->dims[i]);
    assert_int_equal(a->tensor->strides[i], b->tensor->strides[i]);
  }
}

static void same_launch(const lb_launch *a, const lb_launch *b) {
  assert_ptr_equal(a->slot, b->slot);
  assert_int_equal(a->n_args, b->n_args);
  assert_int_equal(a->n_loops, b->n_loops);
  assert_int_equal(a->split.parts, b->split.parts);
  for (int i = a->n_operands; i < a->n_args; i++)
    assert_int_equal(a->args[i], b->args[i]);
  for (int i = 0; i < a->n_loops; i++)
    assert_int_equal(a->loops[i], b->loops[i]);
  for (int i = 0; i < a->n_operands; i++) {
    assert_int_equal(a->addresses[i].base, b->addresses[i].base);
    assert_int_equal(a->addresses[i].offset, b->addresses[i].offset);
  }
  for (int i = 0; i < a->n_operands * (2 + a->n_loops); i++)
    assert_int_equal(a->strides[i], b->strides[i]);
}

static void same_plan(const lb_plan *a, const lb_plan *b) {
  assert_int_equal(a->n_steps, b->n_steps);
  assert_int_equal(a->arena_bytes, b->arena_bytes);
  assert_int_equal(a->n_binds, b->n_binds);
  for (uint32_t i = 0; i < a->n_steps; i++) {
    const lb_step *x = &a->steps[i], *y = &b->steps[i];
    assert_int_equal(x->kind, y->kind);
    assert_int_equal(x->skip, y->skip);
    assert_int_equal(x->n_in, y->n_in);
    for (uint32_t k = 0; k < x->n_in; k++) same_operand(&x->in[k], &y->in[k]);
    for (uint32_t k = 0; k < x->n_out; k++)
      same_operand(&x->out[k], &y->out[k]);
    const lb_launch *l = x->launch, *m = y->launch;
    for (; l && m; l = l->next, m = m->next) same_launch(l, m);
    assert_true(!l && !m);
  }
}

// Compares both ways at one shape of the only input.
static void compare(loaded *f, const lb_tensor *in) {
  lb_plan *direct, *slow;
  bool *plain = calloc(f->prog->parts->n_parts, sizeof *plain);
  assert_non_null(plain);
  const lb_want wanted[] = {{.wanted = true}, {.wanted = true}};
  ok(lb_plan_first(f->prog, f->g->main, in, NULL, wanted, &workspace, &direct));
  for (uint32_t i = 0; i < f->prog->parts->n_parts; i++)
    plain[i] = f->prog->parts->parts[i]->plain;
  disable_direct_planning(f);
  ok(lb_plan_first(f->prog, f->g->main, in, NULL, wanted, &workspace, &slow));
  for (uint32_t i = 0; i < f->prog->parts->n_parts; i++)
    f->prog->parts->parts[i]->plain = plain[i];
  same_plan(direct, slow);
  lb_plan_release(direct);
  lb_plan_release(slow);
  free(plain);
}

// Nodes that become launches, views, an in-place Concat and shape arithmetic.
static lb_value *some_nodes(lb_graph *g) {
  lb_region *r = g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 6)), *to, *zero;
  ok(lb_const_ints(g, "zero", (int64_t[]){0}, 1, &zero));
  ok(lb_const_ints(g, "to", (int64_t[]){2, 3}, 2, &to));
  lb_value *a = NODE1(r, Exp, "a", x), *b = NODE1(r, Neg, "b", a);
  lb_value *n = NODE1(r, Gather, "n", NODE1(r, Shape, "s", x), zero);
  lb_node *dims = node(r, LB_OP_Concat, "dims", 2, (lb_value *[]){n, to}, 1);
  ok(lb_node_set_int(g, dims, "axis", 0));
  lb_value *re = NODE1(r, Reshape, "re", b, dims->out[0]);
  lb_value *c = NODE1(r, Abs, "c", re), *d = NODE1(r, Sqrt, "d", re);
  lb_node *cat = node(r, LB_OP_Concat, "cat", 2, (lb_value *[]){c, d}, 1);
  ok(lb_node_set_int(g, cat, "axis", 2));
  return NODE1(r, Transpose, "t", cat->out[0]);
}

static void both_ways_give_the_same_plan(void **state) {
  (void)state;
  loaded f;
  small_pack pack = empty_pack();
  ADD_CHAIN(&pack, LB_S_EXP, LB_S_NEG);
  ADD_CHAIN(&pack, LB_S_ABS);
  ok(lb_graph_new(&f.g));
  RESULTS(f.g->main, some_nodes(f.g));
  load(&f, f.g, &pack.head, false);
  for (uint32_t i = 0; i < f.prog->parts->n_parts; i++)
    assert_true(f.prog->parts->parts[i]->plain);
  for (int64_t n = 1; n < 100; n += 7) {
    lb_tensor in = tensor(LB_F32, NULL, DIMS(n, 6));
    compare(&f, &in);
  }
  unload(&f);
}

// x[a, 8] + y[b, 8]: at load it is not known whether they fit.
static void mismatched_shapes_are_still_errors(void **state) {
  (void)state;
  loaded f;
  lb_plan *plan;
  small_pack pack = empty_pack();
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t src[] = {lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL),
                   lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL)};
  lb_spec_output(&b, lb_spec_node(&b, LB_S_ADD, LB_F32, src, 2),
                 LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &s));
  add_spec(&pack, &s);
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 8));
  lb_value *y = param(r, "y", LB_F32, DIMS(-1, 8));
  RESULTS(r, NODE1(r, Add, "sum", x, y));
  load(&f, f.g, &pack.head, false);
  lb_tensor in[] = {tensor(LB_F32, NULL, DIMS(30, 8)),
                    tensor(LB_F32, NULL, DIMS(30, 8))};
  ok(lb_plan_first(f.prog, r, in, NULL, &(lb_want){.wanted = true}, &workspace,
                   &plan));
  assert_int_equal(plan->n_steps, 1);
  lb_plan_release(plan);
  for (int64_t n = 2; n < 40; n += 27) {
    in[1] = tensor(LB_F32, NULL, DIMS(n, 8));
    lb_status st = lb_plan_first(f.prog, r, in, NULL,
                                 &(lb_want){.wanted = true}, &workspace, &plan);
    assert_int_equal(lb_status_code(st), LB_INVALID);
    lb_status_drop(st);
  }
  // One of them is broadcast.
  in[1] = tensor(LB_F32, NULL, DIMS(1, 8));
  ok(lb_plan_first(f.prog, r, in, NULL, &(lb_want){.wanted = true}, &workspace,
                   &plan));
  assert_int_equal(plan->binds[0].tensor.dims[0], 30);
  lb_plan_release(plan);
  in[0] = tensor(LB_F32, NULL, DIMS(1, 8));
  in[1] = tensor(LB_F32, NULL, DIMS(30, 8));
  ok(lb_plan_first(f.prog, r, in, NULL, &(lb_want){.wanted = true}, &workspace,
                   &plan));
  assert_int_equal(plan->binds[0].tensor.dims[0], 30);
  lb_plan_release(plan);
  unload(&f);
}

static void add_matmul(small_pack *pack) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  lb_spec_output(&b, lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0),
                 LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &s));
  add_spec(pack, &s);
}

// x[n, k] times w[4, 3], for which the pack has a kernel.
static void prepare_matmul(loaded *f, small_pack *pack) {
  static float weights[12];
  add_matmul(pack);
  ok(lb_graph_new(&f->g));
  lb_region *r = f->g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, -1)), *w;
  lb_tensor t = tensor(LB_F32, weights, DIMS(4, 3));
  ok(lb_const_new(f->g, "w", &t, &w));
  RESULTS(r, NODE1(r, MatMul, "product", x, w));
  load(f, f->g, &pack->head, false);
}

// x[n, k] times a constant [4, 3]: k is not known before the run.
static void matmul_with_mismatched_k_is_an_error(void **state) {
  (void)state;
  loaded f;
  lb_plan *plan;
  small_pack pack = empty_pack();
  prepare_matmul(&f, &pack);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(50, 4));
  ok(lb_plan_first(f.prog, f.g->main, &in, NULL, &(lb_want){.wanted = true},
                   &workspace, &plan));
  lb_plan_release(plan);
  in = tensor(LB_F32, NULL, DIMS(50, 5));
  lb_status st = lb_plan_first(f.prog, f.g->main, &in, NULL,
                               &(lb_want){.wanted = true}, &workspace, &plan);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  lb_status_drop(st);
  unload(&f);
}

static void the_first_plan_requests_kernels_for_any_rows(void **state) {
  (void)state;
  loaded f;
  lb_plan *plan;
  size_t wanted = 0;
  small_pack pack = empty_pack();
  prepare_matmul(&f, &pack);
  for (int64_t n = 50; n < 350; n++) {
    lb_tensor in = tensor(LB_F32, NULL, DIMS(n % 300 + 1, 4));
    ok(lb_plan_first(f.prog, f.g->main, &in, NULL, &(lb_want){.wanted = true},
                     &workspace, &plan));
    lb_plan_release(plan);
    if (n == 50) wanted = lb_slots_wanted(&f.slots, LB_HUB_ALL);
  }
  assert_in_range(wanted, 3, LB_MAX_FACTS_OF);
  assert_int_equal(lb_slots_wanted(&f.slots, LB_HUB_ALL), wanted);
  unload(&f);
}

// -- equivalent partitions ----------------------------------------------------

static lb_value *times(lb_graph *g, lb_value *x, const char *name, float *w) {
  lb_tensor t = tensor(LB_F32, w, DIMS(4, 4));
  lb_value *c;
  ok(lb_const_new(g, name, &t, &c));
  return NODE1(g->main, MatMul, name, x, c);
}

// x[n, 4] times one matrix after the other.
static void equivalent_partitions_share_arguments(void **state) {
  (void)state;
  static float weights[3][16];
  loaded f;
  lb_plan *plan;
  small_pack pack = empty_pack();
  add_matmul(&pack);
  ok(lb_graph_new(&f.g));
  lb_value *x = param(f.g->main, "x", LB_F32, DIMS(-1, 4));
  x = times(f.g, x, "a", weights[0]);
  x = times(f.g, x, "b", weights[1]);
  RESULTS(f.g->main, times(f.g, x, "c", weights[2]));
  load(&f, f.g, &pack.head, false);
  assert_int_equal(f.prog->classes.n_classes, 1);
  for (int64_t n = 1; n < 100; n += 7) {
    lb_tensor in = tensor(LB_F32, NULL, DIMS(n, 4));
    compare(&f, &in);
    ok(lb_plan_first(f.prog, f.g->main, &in, NULL, &(lb_want){.wanted = true},
                     &workspace, &plan));
    for (uint32_t i = 1; i < 3; i++)
      assert_ptr_equal(plan->steps[i].launch->args,
                       plan->steps[0].launch->args);
    lb_plan_release(plan);
  }
  unload(&f);
}

// abs(x[n, 6]) three times: twice as inputs of one Concat, then alone.
static void equivalent_partitions_with_other_strides_are_bound(void **state) {
  (void)state;
  loaded f;
  small_pack pack = empty_pack();
  ADD_CHAIN(&pack, LB_S_ABS);
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 6));
  lb_value *a = NODE1(r, Abs, "a", x), *b = NODE1(r, Abs, "b", x);
  lb_node *cat = node(r, LB_OP_Concat, "cat", 2, (lb_value *[]){a, b}, 1);
  ok(lb_node_set_int(f.g, cat, "axis", 1));
  RESULTS(r, cat->out[0], NODE1(r, Abs, "c", x));
  load(&f, f.g, &pack.head, false);
  assert_int_equal(f.prog->classes.n_classes, 1);
  for (int64_t n = 1; n < 100; n += 7) {
    lb_tensor in = tensor(LB_F32, NULL, DIMS(n, 6));
    compare(&f, &in);
  }
  unload(&f);
}

static uint32_t class_of(const loaded *f, const lb_value *v) {
  return f->prog->classes.of_node[v->producer->id]->class_id;
}

static lb_value *leaky(lb_graph *g, lb_value *x, const char *name,
                       double alpha) {
  lb_node *n = node(g->main, LB_OP_LeakyRelu, name, 1, &x, 1);
  ok(lb_node_set_float(g, n, "alpha", (float)alpha));
  return n->out[0];
}

static lb_value *plus(lb_graph *g, lb_value *x, const char *name, float *y) {
  lb_tensor t = tensor(LB_F32, y, DIMS(1));
  lb_value *c;
  ok(lb_const_new(g, name, &t, &c));
  return NODE1(g->main, Add, name, x, c);
}

static void different_partitions_are_not_equivalent(void **state) {
  (void)state;
  static float one[] = {1}, also_one[] = {1}, two[] = {2};
  loaded f;
  small_pack pack = empty_pack();
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 6));
  lb_value *y = param(r, "y", LB_F32, DIMS(-1, 6));
  lb_value *v[] = {leaky(f.g, x, "a", 0.1),    leaky(f.g, x, "b", 0.2),
                   leaky(f.g, x, "c", 0.1),    leaky(f.g, y, "d", 0.1),
                   plus(f.g, x, "e", one),     plus(f.g, x, "f", two),
                   plus(f.g, x, "g", also_one)};
  RESULTS(r, v[0], v[1], v[2], v[3], v[4], v[5], v[6]);
  load(&f, f.g, &pack.head, false);
  assert_int_equal(f.prog->classes.n_classes, 2);
  assert_int_equal(class_of(&f, v[0]), class_of(&f, v[2]));
  assert_int_equal(class_of(&f, v[4]), class_of(&f, v[6]));
  assert_int_not_equal(class_of(&f, v[0]), class_of(&f, v[4]));
  for (int i = 1; i < 6; i += 2)  // another slope, symbol, addend
    assert_int_equal(class_of(&f, v[i]), LB_NO_PART_CLASS);
  unload(&f);
}

// exp(x) - (-x), or the reverse.
static lb_value *difference(lb_graph *g, lb_value *x, bool swapped) {
  lb_value *e = NODE1(g->main, Exp, "e", x), *n = NODE1(g->main, Neg, "n", x);
  return swapped ? NODE1(g->main, Sub, "s", n, e)
                 : NODE1(g->main, Sub, "s", e, n);
}

static lb_value *read_transposed(lb_graph *g, lb_value *x, const int64_t *perm,
                                 uint32_t rank) {
  lb_node *n = node(g->main, LB_OP_Transpose, "t", 1, &x, 1);
  ok(lb_node_set_ints(g, n, "perm", perm, rank));
  return NODE1(g->main, Abs, "a", n->out[0]);
}

static void equivalence_needs_equal_order_dtype_and_transpose(void **state) {
  (void)state;
  static const int64_t to_last[] = {0, 2, 1}, twice[] = {1, 2, 0};
  loaded f;
  small_pack pack = empty_pack();
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(5, 5, 5));
  lb_value *y = param(r, "y", LB_I32, DIMS(5, 5, 5));
  lb_value *z = param(r, "z", LB_F32, DIMS(5, 5, 5));
  lb_value *v[] = {difference(f.g, x, false),
                   difference(f.g, x, true),
                   NODE1(r, Sub, "xx", x, x),
                   NODE1(r, Sub, "yy", y, y),
                   NODE1(r, Sub, "xz", x, z),
                   NODE1(r, Abs, "b", x),
                   NODE1(r, Abs, "c", y),
                   read_transposed(f.g, x, to_last, 3),
                   read_transposed(f.g, x, twice, 3)};
  RESULTS(r, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]);
  load(&f, f.g, &pack.head, false);
  for (int i = 0; i < 9; i++)
    assert_int_equal(class_of(&f, v[i]), LB_NO_PART_CLASS);
  unload(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_ways_give_the_same_plan),
      cmocka_unit_test(mismatched_shapes_are_still_errors),
      cmocka_unit_test(matmul_with_mismatched_k_is_an_error),
      cmocka_unit_test(the_first_plan_requests_kernels_for_any_rows),
      cmocka_unit_test(equivalent_partitions_share_arguments),
      cmocka_unit_test(equivalent_partitions_with_other_strides_are_bound),
      cmocka_unit_test(different_partitions_are_not_equivalent),
      cmocka_unit_test(equivalence_needs_equal_order_dtype_and_transpose),
  };
  return cmocka_run_group_tests_name("direct", tests, NULL, NULL);
}
