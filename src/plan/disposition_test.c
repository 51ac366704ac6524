// plan/disposition_test.c -- plans record what became of each node, and why.
#include "plan/disposition.h"

#include "plan/load_test.h"
#include "plan/pack_test.h"

static lb_plan_workspace workspace;  // shared by all plans of this file

typedef struct fixture {
  lb_graph *g;
  loaded l;
  small_pack pack;
  lb_plan *plan;
} fixture;

static void begin(fixture *f) {
  *f = (fixture){.pack = empty_pack()};
  ok(lb_graph_new(&f->g));
}

static void build(fixture *f, const lb_tensor *in, bool deterministic) {
  load(&f->l, f->g, &f->pack.head, deterministic);
  ok(lb_plan_first(f->l.prog, f->g->main, in, NULL,
                   (lb_want[]){{.wanted = true}, {.wanted = true}}, &workspace,
                   &f->plan));
}

static void end(fixture *f) {
  lb_plan_release(f->plan);
  unload(&f->l);
}

static const lb_disposition *check_disposition(const fixture *f,
                                               const lb_value *v,
                                               lb_disposition_kind kind,
                                               lb_reason reason) {
  const lb_disposition *d = lb_plan_node(f->plan, v->producer);
  assert_int_equal(d->kind, kind);
  assert_int_equal(d->reason, reason);
  return d;
}

// Plans abs(neg(exp(x))), whose values are v.
static void build_chain(fixture *f, bool deterministic, lb_value *v[3]) {
  lb_region *r = f->g->main;
  v[0] = NODE1(r, Exp, "a", param(r, "x", LB_F32, DIMS(3, 5)));
  v[1] = NODE1(r, Neg, "b", v[0]);
  v[2] = NODE1(r, Abs, "c", v[1]);
  RESULTS(r, v[2]);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3, 5));
  build(f, &in, deterministic);
}

static void members_of_a_launch_name_its_step(void **state) {
  (void)state;
  for (int pack = 0; pack < 2; pack++) {
    lb_reason why = pack ? LB_REASON_IN_PACK : LB_REASON_PENDING;
    fixture f;
    lb_value *v[3];
    begin(&f);
    if (pack) ADD_CHAIN(&f.pack, LB_S_EXP, LB_S_NEG, LB_S_ABS);
    build_chain(&f, false, v);
    assert_int_equal(check_disposition(&f, v[0], LB_NODE_LAUNCHED, why)->step,
                     0);
    assert_int_equal(check_disposition(&f, v[1], LB_NODE_FUSED, why)->step, 0);
    assert_int_equal(check_disposition(&f, v[2], LB_NODE_FUSED, why)->step, 0);
    for (uint32_t i = 1; i < f.plan->n_steps; i++)
      assert_int_equal(f.plan->steps[i].reason, LB_REASON_PENDING);
    end(&f);
  }
}

static void deterministic_calls_state_their_reason(void **state) {
  (void)state;
  fixture f;
  lb_value *v[3];
  begin(&f);
  build_chain(&f, true, v);
  for (uint32_t i = 0; i < 3; i++) {
    const lb_disposition *d =
        check_disposition(&f, v[i], LB_NODE_CALLED, LB_REASON_ROUNDS);
    assert_int_equal(d->step, i);
    assert_int_equal(f.plan->steps[i].reason, LB_REASON_ROUNDS);
  }
  end(&f);
}

static void views_and_constants_take_no_step(void **state) {
  (void)state;
  fixture f;
  lb_value *flat;
  begin(&f);
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(3, 5));
  ok(lb_const_ints(f.g, "flat", (int64_t[]){15}, 1, &flat));
  lb_value *view = NODE1(r, Reshape, "view", NODE1(r, Exp, "e", x), flat);
  lb_value *shape = NODE1(r, Shape, "shape", x);
  lb_value *unread = NODE1(r, Abs, "unread", x);
  RESULTS(r, view, shape);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3, 5));
  build(&f, &in, false);
  const lb_disposition *d =
      check_disposition(&f, view, LB_NODE_VIEW, LB_REASON_VIEW);
  assert_int_equal(d->value, view->producer->in[0]->id);
  check_disposition(&f, shape, LB_NODE_COMPUTED, LB_REASON_KNOWN);
  check_disposition(&f, unread, LB_NODE_NOT_NEEDED, LB_REASON_NOT_REQUESTED);
  end(&f);
}

// if (flag) then abs(x) else neg(x)
static void untaken_branches_are_recorded(void **state) {
  (void)state;
  fixture f;
  begin(&f);
  lb_region *r = f.g->main;
  lb_value *flag = param(r, "flag", LB_BOOL, 0, NULL), *ends[2];
  lb_value *x = param(r, "x", LB_F32, DIMS(3, 5));
  lb_node *branch = node(r, LB_OP_If, "if", 2, (lb_value *[]){flag, x}, 1);
  branch->n_captures = 1;
  for (int i = 0; i < 2; i++) {
    lb_region *inner;
    ok(lb_region_new(f.g, r, &inner));
    lb_value *p = param(inner, "x", LB_F32, DIMS(3, 5));
    ends[i] = i ? NODE1(inner, Neg, "neg", p) : NODE1(inner, Abs, "abs", p);
    RESULTS(inner, ends[i]);
    add_region(branch, inner);
  }
  RESULTS(r, branch->out[0]);
  lb_tensor in[] = {tensor(LB_BOOL, (bool[]){true}, 0, NULL),
                    tensor(LB_F32, NULL, DIMS(3, 5))};
  build(&f, in, false);
  check_disposition(&f, branch->out[0], LB_NODE_BRANCH, LB_REASON_BRANCH);
  check_disposition(&f, ends[0], LB_NODE_LAUNCHED, LB_REASON_PENDING);
  check_disposition(&f, ends[1], LB_NODE_NOT_TAKEN, LB_REASON_NOT_TAKEN);
  end(&f);
}

static void calls_state_why_they_are_not_launches(void **state) {
  (void)state;
  fixture f;
  begin(&f);
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(1, 2, 8));
  lb_value *w = param(r, "w", LB_F32, DIMS(4, 2, 3));
  lb_value *conv = NODE1(r, Conv, "conv", x, w);
  lb_value *rows = NODE1(r, NonZero, "rows", x);
  RESULTS(r, conv, rows);
  lb_tensor in[] = {tensor(LB_F32, NULL, DIMS(1, 2, 8)),
                    tensor(LB_F32, NULL, DIMS(4, 2, 3))};
  build(&f, in, false);
  check_disposition(&f, conv, LB_NODE_CALLED, LB_REASON_NOT_CONSTANT);
  check_disposition(&f, rows, LB_NODE_CALLED, LB_REASON_DYNAMIC);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_of_a_launch_name_its_step),
      cmocka_unit_test(deterministic_calls_state_their_reason),
      cmocka_unit_test(views_and_constants_take_no_step),
      cmocka_unit_test(untaken_branches_are_recorded),
      cmocka_unit_test(calls_state_why_they_are_not_launches),
  };
  return cmocka_run_group_tests_name("disposition", tests, NULL, NULL);
}
