// plan/skip_test.c -- which nodes a plan skips, and where their outputs are.
#include "plan/skip.h"

#include "plan/load_test.h"

static lb_plan_workspace workspace;  // shared by all plans of this file

typedef struct fixture {
  lb_graph *g;
  loaded l;
  lb_plan *plan;  // the last one
} fixture;

static lb_region *begin(fixture *f) {
  *f = (fixture){0};
  ok(lb_graph_new(&f->g));
  return f->g->main;
}

static void build(fixture *f, const lb_tensor *in, const lb_content *contents) {
  if (!f->l.g) load(&f->l, f->g, NULL, true);  // every node is a call
  lb_plan_release(f->plan);
  ok(lb_plan_first(f->l.prog, f->g->main, in, contents,
                   (lb_want[]){{.wanted = true}, {.wanted = true}}, &workspace,
                   &f->plan));
}

static void end(fixture *f) {
  lb_plan_release(f->plan);
  unload(&f->l);
}

// The steps of the plan: the names of their nodes, a copy's in brackets.
static void has_steps(const fixture *f, const char *want) {
  char line[128] = "";
  size_t n = 0;
  for (uint32_t i = 0; i < f->plan->n_steps; i++) {
    const lb_step *s = &f->plan->steps[i];
    const char *name = s->node ? s->node->name : "";
    n += (size_t)snprintf(line + n, sizeof line - n,
                          s->kind == LB_STEP_COPY ? "%s(%s)" : "%s%s",
                          i ? " " : "", name);
  }
  assert_string_equal(line, want);
}

static const lb_disposition *of(const fixture *f, const lb_value *v) {
  return lb_plan_node(f->plan, v->producer);
}

static void is_skipped(const fixture *f, const lb_value *v,
                       lb_proof_kind proof) {
  const lb_disposition *d = of(f, v);
  assert_true(d->skipped);
  assert_non_null(d->skip);
  assert_int_equal(d->skip->proof.kind, proof);
}

static lb_value *permute(lb_region *r, const char *name, lb_value *x) {
  static const int64_t perm[] = {0, 2, 1, 3};
  lb_value *y = NODE1(r, Transpose, name, x);
  ok(lb_node_set_ints(r->graph, y->producer, "perm", perm, 4));
  return y;
}

// The example of the documentation: [128,1,32,64] with the order [0,2,1,3].
static void a_permute_is_skipped_at_one_shape_and_runs_at_another(
    void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *a = NODE1(r, Abs, "a", param(r, "x", LB_F32, DIMS(-1, -1, -1, -1)));
  lb_value *t = permute(r, "t", a);
  RESULTS(r, t);
  lb_tensor one = tensor(LB_F32, NULL, DIMS(128, 1, 32, 64));
  lb_tensor two = tensor(LB_F32, NULL, DIMS(128, 2, 32, 64));
  for (int i = 0; i < 4; i++) {
    build(&f, i % 2 ? &two : &one, NULL);
    if (i % 2) {
      has_steps(&f, "a (t)");
      assert_false(of(&f, t)->skipped);
      assert_int_equal(of(&f, t)->kind, LB_NODE_COPIED);
      assert_int_equal(of(&f, t)->reason, LB_REASON_RESULT);
      assert_int_equal(of(&f, t)->step, 1);
    } else {
      has_steps(&f, "a");
      is_skipped(&f, t, LB_PROOF_ORDER);
      assert_int_equal(f.plan->steps[0].out[0].storage, LB_STORAGE_OUTPUT);
    }
  }
  end(&f);
}

static void a_view_of_an_input_reads_the_input(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *t = permute(r, "t", param(r, "x", LB_F32, DIMS(-1, -1, -1, -1)));
  RESULTS(r, NODE1(r, Abs, "a", t));
  lb_tensor one = tensor(LB_F32, NULL, DIMS(4, 1, 2, 3));
  build(&f, &one, NULL);
  has_steps(&f, "a");
  assert_int_equal(f.plan->steps[0].in[0].storage, LB_STORAGE_INPUT);
  assert_int_equal(f.plan->steps[0].in[0].offset, 0);
  assert_true(lb_tensor_is_dense(f.plan->steps[0].in[0].tensor));
  end(&f);
}

// A result must not share memory with an input: one copy, with its reason.
static void a_view_that_is_a_result_is_copied(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *t = permute(r, "t", param(r, "x", LB_F32, DIMS(-1, -1, -1, -1)));
  RESULTS(r, t);
  lb_tensor one = tensor(LB_F32, NULL, DIMS(4, 1, 2, 3));
  build(&f, &one, NULL);
  has_steps(&f, "()");
  assert_int_equal(f.plan->steps[0].reason, LB_REASON_RESULT);
  is_skipped(&f, t, LB_PROOF_ORDER);
  end(&f);
}

// Transposes that cancel at these dims only: the value between them is strided,
// the last one is in order again.
static void permutes_that_cancel_lead_to_the_result(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  static const int64_t there[] = {1, 2, 0}, back[] = {1, 0, 2};
  lb_value *a = NODE1(r, Abs, "a", param(r, "x", LB_F32, DIMS(-1, -1, -1)));
  lb_value *t = NODE1(r, Transpose, "t", a), *u = NODE1(r, Transpose, "u", t);
  ok(lb_node_set_ints(f.g, t->producer, "perm", there, 3));
  ok(lb_node_set_ints(f.g, u->producer, "perm", back, 3));
  RESULTS(r, u);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3, 1, 5));
  build(&f, &in, NULL);  // [3,1,5] -> [1,5,3] -> [5,1,3]: one order is left
  has_steps(&f, "a (t)");
  in = tensor(LB_F32, NULL, DIMS(1, 4, 5));  // -> [4,5,1] -> [5,4,1]
  build(&f, &in, NULL);
  has_steps(&f, "a (u)");
  in = tensor(LB_F32, NULL, DIMS(1, 4, 1));
  build(&f, &in, NULL);
  has_steps(&f, "a");
  assert_int_equal(f.plan->steps[0].out[0].storage, LB_STORAGE_OUTPUT);
  end(&f);
}

// The value is needed by two results; one of them is its own memory.
static void two_results_of_one_value_have_memory_of_their_own(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *a = NODE1(r, Abs, "a", param(r, "x", LB_F32, DIMS(-1, -1, -1, -1)));
  RESULTS(r, permute(r, "t", a), permute(r, "u", a));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(4, 1, 2, 3));
  build(&f, &in, NULL);
  assert_int_equal(f.plan->n_steps, 2);
  assert_int_equal(f.plan->steps[1].kind, LB_STEP_COPY);
  assert_int_not_equal(f.plan->steps[0].out[0].index,
                       f.plan->steps[1].out[0].index);
  end(&f);
}

// A reshape of a permuted tensor: the Transpose is what moves elements.
static void the_copy_of_a_reshape_belongs_to_the_transpose(void **state) {
  (void)state;
  fixture f;
  lb_value *to;
  lb_region *r = begin(&f);
  ok(lb_const_ints(f.g, "to", (int64_t[]){-1}, 1, &to));
  lb_value *a = NODE1(r, Abs, "a", param(r, "x", LB_F32, DIMS(-1, -1, -1, -1)));
  lb_value *t = permute(r, "t", a), *re = NODE1(r, Reshape, "re", t, to);
  RESULTS(r, NODE1(r, Neg, "n", re));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(2, 3, 4, 5));
  build(&f, &in, NULL);
  has_steps(&f, "a (t) n");
  is_skipped(&f, re, LB_PROOF_ONLY_DIMS);
  assert_int_equal(of(&f, t)->reason, LB_REASON_LAYOUT);
  end(&f);
}

static void contents_that_a_guard_has_found_skip_a_gather(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4));
  lb_value *i = param(r, "i", LB_I64, DIMS(-1));
  lb_value *g = NODE1(r, Gather, "g", NODE1(r, Abs, "a", x), i);
  RESULTS(r, g);
  lb_tensor in[] = {tensor(LB_F32, NULL, DIMS(3, 4)),
                    tensor(LB_I64, NULL, DIMS(3))};
  lb_content found[] = {{LB_CONTENT_ANY, 0}, {LB_CONTENT_RANGE, 0}};
  build(&f, in, NULL);
  has_steps(&f, "a g");
  build(&f, in, found);
  has_steps(&f, "a");
  is_skipped(&f, g, LB_PROOF_IDENTITY);
  in[1].dims[0] = 2;
  found[1].bits = 1;  // rows 1 and 2: a window
  build(&f, in, found);
  has_steps(&f, "a (g)");
  assert_int_equal(f.plan->steps[1].in[0].offset, 4 * sizeof(float));
  found[1].bits = 2;  // row 3 does not exist: the kernel reports it
  build(&f, in, found);
  has_steps(&f, "a g");
  end(&f);
}

static void guards_find_only_what_rules_ask_for(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4));
  lb_value *m = param(r, "m", LB_F32, DIMS(-1));
  lb_value *i = param(r, "i", LB_I64, DIMS(-1));
  lb_value *e = NODE1(r, Exp, "e", x);
  RESULTS(r, NODE1(r, Gather, "g", NODE1(r, Mul, "mul", e, m), i));
  load(&f.l, f.g, NULL, true);
  lb_guard *guards = f.l.prog->guards;
  assert_int_equal(f.l.prog->n_guards, 2);
  assert_int_equal(guards[0].kind, LB_CONTENT_ANY);
  float ones[] = {1, 1, 1, 1}, twos[] = {2, 2, 2, 2}, mixed[] = {1, 1, 1, 2};
  lb_tensor t = tensor(LB_F32, ones, DIMS(4));
  assert_int_equal(lb_guard_check(&guards[1], &t).kind, LB_CONTENT_UNIFORM);
  t.data = twos;
  assert_int_equal(lb_guard_check(&guards[1], &t).kind, LB_CONTENT_ANY);
  t.data = mixed;
  assert_int_equal(lb_guard_check(&guards[1], &t).kind, LB_CONTENT_ANY);
  int64_t range[] = {5, 6, 7}, broken[] = {5, 6, 8};
  t = tensor(LB_I64, range, DIMS(3));
  lb_content c = lb_guard_check(&guards[2], &t);
  assert_int_equal(c.kind, LB_CONTENT_RANGE);
  assert_int_equal(c.bits, 5);
  t.data = broken;
  assert_int_equal(lb_guard_check(&guards[2], &t).kind, LB_CONTENT_ANY);
  end(&f);
}

static void a_guard_that_often_fails_is_dropped(void **state) {
  (void)state;
  lb_guard guard = {.kind = LB_CONTENT_RANGE};
  int64_t index = 0;
  lb_tensor t = tensor(LB_I64, &index, DIMS(1));
  for (int i = 0; i < 1000; i++)
    assert_int_equal(lb_guard_check(&guard, &t).kind, LB_CONTENT_RANGE);
  assert_false(lb_guard_is_dropped(&guard));
  lb_guard moving = {.kind = LB_CONTENT_RANGE};  // the position of a decoder
  int found = 0;
  for (index = 0; index < 1000; index++)
    found += lb_guard_check(&moving, &t).kind == LB_CONTENT_RANGE;
  assert_true(lb_guard_is_dropped(&moving));
  assert_true(found < 32);
}

static void values_without_elements_need_no_step(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4));
  lb_value *a = NODE1(r, Exp, "a", x), *b = NODE1(r, Hardmax, "b", x);
  RESULTS(r, a, b);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(0, 4));
  build(&f, &in, NULL);
  has_steps(&f, "");
  is_skipped(&f, a, LB_PROOF_EMPTY);
  is_skipped(&f, b, LB_PROOF_EMPTY);
  assert_int_equal(f.plan->n_binds, 2);
  end(&f);
}

// y = x * 1 is a view of x; x must stay alive as long as y is read.
static void memory_of_a_viewed_value_is_not_reused(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *a = NODE1(r, Abs, "a", param(r, "x", LB_F32, DIMS(-1, -1, -1, -1)));
  lb_value *t = permute(r, "t", a);
  lb_value *b = NODE1(r, Neg, "b", a), *c = NODE1(r, Exp, "c", b);
  RESULTS(r, NODE1(r, Sub, "s", c, t));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(7, 1, 5, 3));
  build(&f, &in, NULL);
  int64_t of_a = -1;
  for (uint32_t i = 0; i < f.plan->n_steps; i++) {
    const lb_step *s = &f.plan->steps[i];
    if (s->kind != LB_STEP_CALL) continue;
    if (s->node == a->producer)
      of_a = s->out[0].offset;
    else if (s->out[0].storage == LB_STORAGE_ARENA)
      assert_int_not_equal(s->out[0].offset, of_a);
    if (s->node->op == LB_OP_Sub) assert_int_equal(s->in[1].offset, of_a);
  }
  assert_int_not_equal(of_a, -1);
  end(&f);
}

static void nothing_is_skipped_where_skipping_is_off(void **state) {
  (void)state;
  fixture f;
  lb_region *r = begin(&f);
  lb_value *a = NODE1(r, Abs, "a", param(r, "x", LB_F32, DIMS(-1, -1, -1, -1)));
  lb_value *t = permute(r, "t", a);
  RESULTS(r, t);
  load(&f.l, f.g, NULL, true);
  f.l.prog->no_skip = true;
  lb_tensor in = tensor(LB_F32, NULL, DIMS(4, 1, 2, 3));
  build(&f, &in, NULL);
  has_steps(&f, "a t");
  assert_false(of(&f, t)->skipped);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_permute_is_skipped_at_one_shape_and_runs_at_another),
      cmocka_unit_test(a_view_of_an_input_reads_the_input),
      cmocka_unit_test(a_view_that_is_a_result_is_copied),
      cmocka_unit_test(permutes_that_cancel_lead_to_the_result),
      cmocka_unit_test(two_results_of_one_value_have_memory_of_their_own),
      cmocka_unit_test(the_copy_of_a_reshape_belongs_to_the_transpose),
      cmocka_unit_test(contents_that_a_guard_has_found_skip_a_gather),
      cmocka_unit_test(guards_find_only_what_rules_ask_for),
      cmocka_unit_test(a_guard_that_often_fails_is_dropped),
      cmocka_unit_test(values_without_elements_need_no_step),
      cmocka_unit_test(memory_of_a_viewed_value_is_not_reused),
      cmocka_unit_test(nothing_is_skipped_where_skipping_is_off),
  };
  return cmocka_run_group_tests_name("skip", tests, NULL, NULL);
}
