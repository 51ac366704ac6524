// partition/partition_test.c -- which nodes go together, and what they compute
// at concrete shapes.
#include "partition/partition.h"

#include "graph/build_test.h"
#include "graph/infer.h"

typedef struct fixture {
  lb_graph *g;
  lb_partitioning p;
  lb_tensor tensors[16];  // by value id, for bind
} fixture;

static void partition(fixture *f) {
  ok(lb_infer_graph(f->g));
  ok(lb_partitioning_init(&f->p, f->g));
}

static void end(fixture *f) {
  lb_partitioning_fini(&f->p);
  lb_graph_free(f->g);
}

static lb_status tensor_fn(void *user, const lb_value *v, lb_tensor *out) {
  *out = ((fixture *)user)->tensors[v->id];
  return LB_OK;
}

static void set(fixture *f, const lb_value *v, int rank, const int64_t *dims) {
  f->tensors[v->id] = tensor(LB_F32, NULL, rank, dims);
}

static char *bind_text(fixture *f, uint32_t part, lb_binding *b, char *buf,
                       size_t cap) {
  bool bound;
  lb_strbuf text = {0};
  ok(lb_partition_bind(f->p.parts[part], tensor_fn, f, b, &bound));
  if (bound) lb_spec_print(&b->spec, &text);
  snprintf(buf, cap, "%s", bound ? lb_strbuf_str(&text) : "none");
  lb_strbuf_fini(&text);
  return buf;
}

// relu(x*w + bias) + x: a product with three elementwise nodes behind it.
static void a_product_takes_its_epilogue(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  static float w[4 * 4], bias[4];
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 4)), *cw, *cb;
  lb_tensor wt = tensor(LB_F32, w, DIMS(4, 4)),
            bt = tensor(LB_F32, bias, DIMS(4));
  ok(lb_const_new(f.g, "w", &wt, &cw));
  ok(lb_const_new(f.g, "b", &bt, &cb));
  lb_value *mm = NODE1(r, MatMul, "mm", x, cw);
  lb_value *sum = NODE1(r, Add, "add", mm, cb);
  lb_value *act = NODE1(r, Relu, "relu", sum);
  lb_value *y = NODE1(r, Add, "res", act, x);
  RESULTS(r, y);
  partition(&f);
  assert_int_equal(f.p.n_parts, 1);
  assert_int_equal(f.p.parts[0]->n_nodes, 4);
  assert_non_null(f.p.parts[0]->packed);
  set(&f, x, DIMS(5, 4));
  set(&f, y, DIMS(5, 4));
  set(&f, cb, DIMS(4));
  lb_binding b;
  char text[512];
  bind_text(&f, 0, &b, text, sizeof text);
  assert_string_not_equal(text, "none");
  assert_int_equal(b.spec.form, LB_FORM_MATMUL);
  assert_int_equal(b.dims[LB_DIM_ROWS], 5);
  assert_int_equal(b.dims[LB_DIM_K], 4);
  assert_int_equal(b.spec.n_in, 4);  // x as a, w, bias, x again
  assert_int_equal(b.spec.in[2].layout, LB_LAYOUT_COLS);
  assert_int_equal(b.spec.in[3].layout, LB_LAYOUT_FULL);
  end(&f);
}

static void a_value_read_twice_ends_a_chain(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1));
  lb_value *a = NODE1(r, Exp, "a", x), *b = NODE1(r, Neg, "b", a);
  RESULTS(r, NODE1(r, Add, "c", a, b));
  partition(&f);
  assert_int_equal(f.p.n_parts, 2);  // a; b and c
  assert_int_equal(f.p.parts[0]->n_nodes, 1);
  assert_int_equal(f.p.parts[1]->n_nodes, 2);
  end(&f);
}

static void a_result_ends_a_chain(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1));
  lb_value *a = NODE1(r, Exp, "a", x);
  RESULTS(r, a, NODE1(r, Neg, "b", a));
  partition(&f);
  assert_int_equal(f.p.n_parts, 2);
  end(&f);
}

// Dims that every operand walks evenly are one loop; a bias along the middle
// dim leaves three.
static void loops_are_joined_where_all_operands_allow(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(2, 3, 4, 5));
  lb_value *c = param(r, "c", LB_F32, DIMS(1, 3, 1, 1));
  lb_value *y = NODE1(r, Exp, "exp", x), *z = NODE1(r, Add, "add", x, c);
  RESULTS(r, y, z);
  partition(&f);
  assert_int_equal(f.p.n_parts, 2);
  set(&f, x, DIMS(2, 3, 4, 5));
  set(&f, y, DIMS(2, 3, 4, 5));
  set(&f, z, DIMS(2, 3, 4, 5));
  set(&f, c, DIMS(1, 3, 1, 1));
  lb_binding b;
  char text[512];
  bind_text(&f, 0, &b, text, sizeof text);
  assert_int_equal(b.dims[LB_DIM_ROWS], 1);
  assert_int_equal(b.dims[LB_DIM_COLS], 120);
  bind_text(&f, 1, &b, text, sizeof text);
  assert_int_equal(b.dims[LB_DIM_COLS], 20);
  assert_int_equal(b.dims[LB_DIM_ROWS], 3);
  assert_int_equal(b.n_outer, 1);
  assert_int_equal(b.outer[0], 2);
  assert_int_equal(b.spec.in[1].layout, LB_LAYOUT_ROWS);
  assert_int_equal(b.operands[2].outer[0], 0);
  end(&f);
}

static void a_row_operation_keeps_its_last_dim(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(2, 3, 7));
  lb_value *y = NODE1(r, Softmax, "sm", x);
  RESULTS(r, y);
  partition(&f);
  set(&f, x, DIMS(2, 3, 7));
  set(&f, y, DIMS(2, 3, 7));
  lb_binding b;
  char text[512];
  bind_text(&f, 0, &b, text, sizeof text);
  assert_int_equal(b.spec.form, LB_FORM_ROWS);
  assert_int_equal(b.dims[LB_DIM_ROWS], 6);
  assert_int_equal(b.dims[LB_DIM_COLS], 7);
  set(&f, x, DIMS(2, 0, 7));
  set(&f, y, DIMS(2, 0, 7));
  assert_string_equal(bind_text(&f, 0, &b, text, sizeof text), "none");
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_product_takes_its_epilogue),
      cmocka_unit_test(a_value_read_twice_ends_a_chain),
      cmocka_unit_test(a_result_ends_a_chain),
      cmocka_unit_test(loops_are_joined_where_all_operands_allow),
      cmocka_unit_test(a_row_operation_keeps_its_last_dim),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
