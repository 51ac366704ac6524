// plan/concat_test.c -- inputs of a Concat are written in place, or copied
// there.
#include "plan/load_test.h"
#include "plan/pack_test.h"

static lb_plan_workspace workspace;  // shared by all plans of this file

typedef struct fixture {
  lb_graph *g;
  loaded l;
  lb_plan *plan;
} fixture;

static fixture begin(void) {
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  return f;
}

static lb_value *concat2(fixture *f, const char *name, int axis, lb_value *a,
                         lb_value *b) {
  lb_node *n = node(f->g->main, LB_OP_Concat, name, 2, (lb_value *[]){a, b}, 1);
  ok(lb_node_set_int(f->g, n, "axis", axis));
  return n->out[0];
}

static void build_with(fixture *f, const lb_tensor *in, small_pack *pack) {
  lb_want wanted[] = {{.wanted = true}, {.wanted = true}};
  load(&f->l, f->g, pack ? &pack->head : NULL, false);
  ok(lb_plan_first(f->l.prog, f->g->main, in, NULL, wanted, &workspace,
                   &f->plan));
}

static void build(fixture *f, const lb_tensor *in) { build_with(f, in, NULL); }

// The plan as one letter for each step, covers included.
static void has_steps(const fixture *f, const char *want) {
  char text[64] = "";
  for (uint32_t i = 0; i < f->plan->n_steps; i++)
    text[i] = "CcOL"[f->plan->steps[i].kind];
  assert_string_equal(text, want);
}

// Checks where launch number `i` writes: its offset and row stride in bytes.
static void writes(const fixture *f, uint32_t i, int64_t offset, int64_t row) {
  for (uint32_t k = 0; k < f->plan->n_steps; k++) {
    const lb_launch *l = f->plan->steps[k].launch;
    if (!l || i-- > 0) continue;
    assert_int_equal(l->addresses[0].offset, offset);
    assert_int_equal(l->strides[0], row);
    return;
  }
  fail_msg("there are fewer launches");
}

// The first and last byte of an operand in the arena; false if it is elsewhere.
static bool range_of(const lb_step_operand *o, int64_t *from, int64_t *to) {
  int64_t size = (int64_t)lb_dtype_size(o->tensor->dtype);
  *from = *to = o->offset;
  for (int i = 0; i < o->tensor->rank; i++)
    *to += (o->tensor->dims[i] - 1) * o->tensor->strides[i] * size;
  *to += size - 1;
  return o->storage == LB_STORAGE_ARENA;
}

// Reference kernels read inputs while they write outputs.
static void check_calls_do_not_overlap(const fixture *f) {
  for (uint32_t i = 0; i < f->plan->n_steps; i++) {
    const lb_step *s = &f->plan->steps[i];
    int64_t from, to, begin, last;
    for (uint32_t k = 0; s->kind == LB_STEP_CALL && k < s->n_in; k++)
      if (range_of(&s->in[k], &from, &to) &&
          range_of(&s->out[0], &begin, &last))
        assert_true(to < begin || last < from);
  }
}

static void end(fixture *f) {
  check_calls_do_not_overlap(f);
  lb_plan_release(f->plan);
  unload(&f->l);
}

static void launches_write_into_the_result(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4));
  lb_value *y = param(r, "y", LB_F32, DIMS(-1, 3));
  lb_value *a = NODE1(r, Exp, "a", x), *b = NODE1(r, Abs, "b", y);
  RESULTS(r, concat2(&f, "j", 1, a, b));
  lb_tensor in[] = {tensor(LB_F32, NULL, DIMS(5, 4)),
                    tensor(LB_F32, NULL, DIMS(5, 3))};
  build(&f, in);
  has_steps(&f, "LCcLCc");  // results of reference kernels are copied
  writes(&f, 0, 0, 28);
  writes(&f, 1, 16, 28);
  assert_int_equal(f.plan->steps[0].launch->addresses[0].base,
                   LB_BASE_FIRST + r->n_params);
  assert_int_equal(f.plan->steps[0].skip, 2);
  end(&f);
}

// The second node of the cover reads the output of the first one and writes a
// dense result, which is copied into place.
static void copied_results_do_not_overlap_their_inputs(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(3, 5));
  lb_value *a = NODE1(r, Exp, "a", x), *b = NODE1(r, Neg, "b", a);
  RESULTS(r, concat2(&f, "j", 1, b, NODE1(r, Abs, "c", x)));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3, 5));
  build(&f, &in);
  has_steps(&f, "LCCcLCc");
  end(&f);
}

// Only the Concat's buffer is allocated: 8 rows of 8.
static void pack_kernels_need_only_the_concat_buffer(void **state) {
  (void)state;
  fixture f = begin();
  small_pack pack = empty_pack();
  ADD_CHAIN(&pack, LB_S_EXP);
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4));
  lb_value *a = NODE1(r, Exp, "a", x), *b = NODE1(r, Exp, "b", x);
  lb_value *j = concat2(&f, "j", 1, a, b);
  RESULTS(r, NODE1(r, Det, "det", j));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(8, 4));
  build_with(&f, &in, &pack);
  has_steps(&f, "LLC");
  writes(&f, 0, 0, 32);
  writes(&f, 1, 16, 32);
  assert_int_equal(f.plan->arena_bytes, 8 * 8 * 4);
  end(&f);
}

static void nested_concats_share_one_buffer(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4));
  lb_value *inner = concat2(&f, "i", 1, NODE1(r, Exp, "a", x), x);
  lb_value *outer = concat2(&f, "o", 1, NODE1(r, Neg, "b", x), inner);
  RESULTS(r, outer);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(5, 4));
  build(&f, &in);
  has_steps(&f, "LCccLCc");
  writes(&f, 0, 16, 48);
  writes(&f, 1, 0, 48);
  const lb_step *copy = &f.plan->steps[3];  // of x, which is not in the buffer
  assert_int_equal(copy->kind, LB_STEP_COPY);
  assert_int_equal(copy->out[0].offset, 32);
  assert_int_equal(copy->out[0].tensor->strides[0], 12);
  end(&f);
}

static void parts_of_a_split_are_concatenated_in_place(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4)), *sizes;
  ok(lb_const_ints(f.g, "sizes", (int64_t[]){1, 3}, 2, &sizes));
  lb_value *a = NODE1(r, Exp, "a", x);
  lb_node *s = node(r, LB_OP_Split, "s", 2, (lb_value *[]){a, sizes}, 2);
  ok(lb_node_set_int(f.g, s, "axis", 1));
  lb_value *b = NODE1(r, Abs, "b", s->out[1]);
  lb_node *j =
      node(r, LB_OP_Concat, "j", 3, (lb_value *[]){s->out[0], s->out[1], b}, 1);
  ok(lb_node_set_int(f.g, j, "axis", 1));
  RESULTS(r, j->out[0]);
  lb_tensor in = tensor(LB_F32, NULL, DIMS(5, 4));
  build(&f, &in);
  has_steps(&f, "LCcLCc");
  writes(&f, 0, 0, 28);
  writes(&f, 1, 16, 28);
  end(&f);
}

// Reshape would have to copy a strided value, so the value stays dense.
static void readers_without_strides_get_dense_values(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4)), *flat;
  ok(lb_const_ints(f.g, "flat", (int64_t[]){-1}, 1, &flat));
  lb_value *a = NODE1(r, Exp, "a", x);
  lb_value *re = NODE1(r, Reshape, "re", a, flat);
  RESULTS(r, concat2(&f, "j", 1, a, x), NODE1(r, Neg, "neg", re));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(5, 4));
  build(&f, &in);
  has_steps(&f, "LCCLC");
  end(&f);
}

// The length depends on the shape, so the slice is not known when `a` is
// planned.
static void lengths_may_vary_between_plans(void **state) {
  (void)state;
  fixture f = begin();
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4));
  RESULTS(r, concat2(&f, "j", 0, NODE1(r, Exp, "a", x), x));
  lb_tensor in = tensor(LB_F32, NULL, DIMS(5, 4));
  build(&f, &in);
  has_steps(&f, "LCc");  // Exp writes its rows; those of x are copied
  assert_int_equal(f.plan->steps[2].out[0].offset, 5 * 4 * 4);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(launches_write_into_the_result),
      cmocka_unit_test(copied_results_do_not_overlap_their_inputs),
      cmocka_unit_test(pack_kernels_need_only_the_concat_buffer),
      cmocka_unit_test(nested_concats_share_one_buffer),
      cmocka_unit_test(parts_of_a_split_are_concatenated_in_place),
      cmocka_unit_test(readers_without_strides_get_dense_values),
      cmocka_unit_test(lengths_may_vary_between_plans),
  };
  return cmocka_run_group_tests_name("concat", tests, NULL, NULL);
}
