// partition/partition_test.c -- which nodes are fused, and what they compute at
// concrete shapes.
#include "partition/partition.h"

#include "graph/build_test.h"
#include "graph/infer.h"
#include "partition/weights.h"

typedef struct fixture {
  lb_graph *g;
  lb_partitioning p;
  lb_weights weights;
  lb_tensor tensors[64];  // by value id, for bind
} fixture;

static void partition(fixture *f) {
  ok(lb_infer_graph(f->g));
  ok(lb_weights_init(&f->weights, lb_device_none()));
  ok(lb_partitioning_init(&f->p, f->g, &(lb_partition_options){0},
                          &f->weights));
}

static void end(fixture *f) {
  lb_partitioning_fini(&f->p);
  lb_weights_fini(&f->weights);
  lb_graph_free(f->g);
}

static lb_status tensor_fn(void *user, const lb_value *v, lb_tensor *out) {
  *out = ((fixture *)user)->tensors[v->id];
  return LB_OK;
}

static void set(fixture *f, const lb_value *v, int rank, const int64_t *dims) {
  f->tensors[v->id] = tensor(v->info.dtype, NULL, rank, dims);
}

// A dense tensor with its last two axes transposed.
static void set_transposed(fixture *f, const lb_value *v, int rank,
                           const int64_t *dims) {
  set(f, v, rank, dims);
  lb_tensor *t = &f->tensors[v->id];
  t->strides[rank - 1] = t->dims[rank - 2];
  t->strides[rank - 2] = 1;
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

// relu(x*w + bias) + x: a matmul with three elementwise nodes behind it.
static void matmuls_are_fused_with_their_epilogue(void **state) {
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
  assert_int_equal(b.spec.n_in, 4);  // x as operand A, w, bias, x again
  assert_int_equal(b.spec.in[2].layout, LB_LAYOUT_PER_COL);
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

// The spec of x * 2 + 3 in one dtype as text, the scalar on either side.
static void line_text(lb_dtype t, const void *two, const void *three,
                      bool first, char *buf, size_t cap) {
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", t, DIMS(7)), *c[2];
  lb_tensor number[2] = {tensor(t, (void *)(uintptr_t)two, 0, NULL),
                         tensor(t, (void *)(uintptr_t)three, 0, NULL)};
  for (int i = 0; i < 2; i++)
    ok(lb_const_new(f.g, i ? "three" : "two", &number[i], &c[i]));
  lb_value *product = NODE1(r, Mul, "mul", x, c[0]);
  lb_value *y = first ? NODE1(r, Add, "add", c[1], product)
                      : NODE1(r, Add, "add", product, c[1]);
  RESULTS(r, y);
  partition(&f);
  assert_int_equal(f.p.n_parts, 1);
  set(&f, x, DIMS(7));
  set(&f, y, DIMS(7));
  lb_binding b;
  bind_text(&f, 0, &b, buf, cap);
  end(&f);
}

static void adding_a_scalar_to_a_product_is_an_fma(void **state) {
  (void)state;
  float two = 2, three = 3;
  int32_t two_i = 2, three_i = 3;
  uint16_t half = 0;
  char text[512];
  for (int first = 0; first < 2; first++) {
    line_text(LB_F32, &two, &three, first, text, sizeof text);
    assert_non_null(strstr(text, "fma"));
    assert_null(strstr(text, "add"));
    assert_null(strstr(text, "mul"));
    line_text(LB_I32, &two_i, &three_i, first, text, sizeof text);
    assert_null(strstr(text, "fma"));
    // The product is rounded to its dtype in between.
    line_text(LB_F16, &half, &half, first, text, sizeof text);
    assert_null(strstr(text, "fma"));
  }
}

// Dims that are contiguous for every operand are one loop; a bias along the
// middle dim leaves three.
static void loops_are_merged_where_all_operands_allow(void **state) {
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
  assert_int_equal(b.spec.in[1].layout, LB_LAYOUT_PER_ROW);
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
  assert_int_equal(b.spec.form, LB_FORM_ROW_REDUCE);
  assert_int_equal(b.dims[LB_DIM_ROWS], 6);
  assert_int_equal(b.dims[LB_DIM_COLS], 7);
  set(&f, x, DIMS(2, 0, 7));
  set(&f, y, DIMS(2, 0, 7));
  assert_string_equal(bind_text(&f, 0, &b, text, sizeof text), "none");
  end(&f);
}

// -- feeders -----------------------------------------------------------------

static lb_value *layer_norm(fixture *f, lb_value *x, int64_t size) {
  static float one[64];
  lb_tensor t = tensor(LB_F32, one, 1, &size);
  lb_value *scale;
  ok(lb_const_new(f->g, "scale", &t, &scale));
  set(f, scale, 1, &size);
  return NODE1(f->g->main, LayerNormalization, "norm", x, scale);
}

static void row_operations_are_fused_with_feeders(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 8));
  lb_value *z = param(r, "z", LB_F32, DIMS(8));
  lb_value *a = NODE1(r, Abs, "abs", x), *sum = NODE1(r, Add, "add", a, z);
  lb_value *y = NODE1(r, Relu, "relu", layer_norm(&f, sum, 8));
  RESULTS(r, y);
  partition(&f);
  assert_int_equal(f.p.n_parts, 1);
  assert_int_equal(f.p.parts[0]->n_nodes, 4);
  assert_int_equal(f.p.parts[0]->anchor, 2);
  assert_ptr_equal(f.p.parts[0]->nodes[0]->out[0], a);
  set(&f, x, DIMS(5, 8));
  set(&f, sum, DIMS(5, 8));
  set(&f, y, DIMS(5, 8));
  set(&f, z, DIMS(8));
  lb_binding b;
  char text[1024];
  bind_text(&f, 0, &b, text, sizeof text);
  assert_int_equal(b.spec.form, LB_FORM_ROW_REDUCE);
  assert_int_equal(b.spec.n_in, 3);
  assert_int_equal(b.spec.in[1].layout, LB_LAYOUT_PER_COL);
  end(&f);
}

// A transcendental function in each pass over a row would be slower than once
// before it.
static void costly_feeders_need_single_pass_operations(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 8));
  lb_value *y = layer_norm(&f, NODE1(r, Exp, "exp", x), 8);
  lb_value *z = NODE1(r, ReduceMax, "max", NODE1(r, Tanh, "tanh", x));
  RESULTS(r, y, z);
  partition(&f);
  assert_int_equal(f.p.n_parts, 3);
  assert_ptr_equal(f.p.of_node[z->producer->id]->nodes[0]->out[0]->producer,
                   z->producer->in[0]->producer);
  assert_int_equal(f.p.of_node[y->producer->id]->n_nodes, 1);
  end(&f);
}

// norm(x*w + bias + x): the bias is fused with the matmul, the residual with
// the norm.
static void residuals_are_fused_with_the_norm(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  static float w[8 * 8];
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 8)), *cw;
  lb_value *bias = param(r, "bias", LB_F32, DIMS(8));
  lb_tensor wt = tensor(LB_F32, w, DIMS(8, 8));
  ok(lb_const_new(f.g, "w", &wt, &cw));
  lb_value *sum = NODE1(r, Add, "add", NODE1(r, MatMul, "mm", x, cw), bias);
  lb_value *res = NODE1(r, Add, "res", sum, x);
  lb_value *y = layer_norm(&f, res, 8);
  RESULTS(r, y);
  partition(&f);
  assert_int_equal(f.p.n_parts, 2);
  const lb_partition *matmul = f.p.of_node[sum->producer->id];
  assert_int_equal(matmul->form, LB_FORM_MATMUL);
  assert_ptr_equal(f.p.of_node[res->producer->id],
                   f.p.of_node[y->producer->id]);
  assert_ptr_not_equal(matmul, f.p.of_node[res->producer->id]);
  end(&f);
}

static void values_with_other_readers_are_not_feeders(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 8));
  lb_value *a = NODE1(r, Abs, "abs", x);
  RESULTS(r, layer_norm(&f, a, 8), a);
  partition(&f);
  assert_int_equal(f.p.n_parts, 2);
  end(&f);
}

// Its mean is read, the norm itself is not.
static void a_node_without_its_first_output_is_in_no_partition(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, 8));
  lb_value *scale = param(r, "scale", LB_F32, DIMS(8));
  lb_node *n =
      node(r, LB_OP_LayerNormalization, "norm", 2, (lb_value *[]){x, scale}, 2);
  n->out[0] = NULL;
  RESULTS(r, n->out[1]);
  partition(&f);
  assert_int_equal(f.p.n_parts, 0);
  end(&f);
}

// exp(x) * sin(y): the chain starts with exp, sin feeds it.
static void branches_of_a_chain_are_fused(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(4));
  lb_value *a = NODE1(r, Exp, "exp", x), *c = NODE1(r, Sin, "sin", x);
  lb_value *y = NODE1(r, Mul, "mul", a, c);
  RESULTS(r, y);
  partition(&f);
  assert_int_equal(f.p.n_parts, 1);
  set(&f, x, DIMS(4));
  set(&f, y, DIMS(4));
  lb_binding b;
  char text[512];
  assert_string_equal(bind_text(&f, 0, &b, text, sizeof text),
                      "eltwise %0=input.float32.full %1=exp.float32(%0) "
                      "%2=sin.float32(%0) %3=mul.float32(%1,%2) -> %3.full");
  end(&f);
}

// x, of int64, is read again after values of another dtype: the trial spec must
// find it.
static void values_that_are_read_again_are_found(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_I64, DIMS(-1)), *z;
  lb_value *c = param(r, "c", LB_I64, DIMS(-1));
  c->info.dims[0] = x->info.dims[0];
  z = NODE1(r, Where, "where", NODE1(r, Less, "less", x, c), x, c);
  RESULTS(r, NODE1(r, Add, "add", z, x));
  partition(&f);
  assert_int_equal(f.p.n_parts, 1);
  end(&f);
}

// Twenty inputs are more than a spec allows: two partitions, both of which
// bind.
static void a_partition_ends_where_a_spec_is_full(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *y = param(r, "x", LB_F32, DIMS(4));
  set(&f, y, DIMS(4));
  for (int i = 0; i < 19; i++) {
    char name[8];
    snprintf(name, sizeof name, "x%d", i);
    lb_value *x = param(r, name, LB_F32, DIMS(4));
    snprintf(name, sizeof name, "y%d", i);
    y = NODE1(r, Add, name, y, x);
    set(&f, x, DIMS(4));
    set(&f, y, DIMS(4));
  }
  RESULTS(r, y);
  partition(&f);
  assert_int_equal(f.p.n_parts, 2);
  for (uint32_t i = 0; i < 2; i++) {
    lb_binding b;
    char text[2048];
    assert_string_not_equal(bind_text(&f, i, &b, text, sizeof text), "none");
  }
  end(&f);
}

// -- reductions --------------------------------------------------------------

typedef struct reduced {
  fixture f;
  lb_value *x, *y;
} reduced;

static void reduce(reduced *t, lb_op op, int64_t axis, bool keep) {
  *t = (reduced){0};
  ok(lb_graph_new(&t->f.g));
  lb_region *r = t->f.g->main;
  lb_value *axes;
  ok(lb_const_ints(t->f.g, "axes", &axis, 1, &axes));
  t->x = param(r, "x", LB_F32, DIMS(3, 20, 16));
  lb_node *n = node(r, op, "reduce", 2, (lb_value *[]){t->x, axes}, 1);
  ok(lb_node_set_int(t->f.g, n, "keepdims", keep));
  t->y = NODE1(r, Exp, "exp", n->out[0]);
  RESULTS(r, t->y);
  partition(&t->f);
  set(&t->f, t->x, DIMS(3, 20, 16));
  set(&t->f, n->out[0], DIMS(3, 20, 16));
}

static void reductions_keep_one_element_per_row(void **state) {
  (void)state;
  reduced t;
  reduce(&t, LB_OP_ReduceMax, -1, false);
  set(&t.f, t.y, DIMS(3, 20));
  lb_binding b;
  char text[512];
  assert_string_equal(bind_text(&t.f, 0, &b, text, sizeof text),
                      "row_reduce %0=input.float32.full %1=rmax.float32(%0) "
                      "%2=exp.float32(%1) -> %2.per_row");
  assert_int_equal(b.dims[LB_DIM_ROWS], 60);
  assert_int_equal(b.dims[LB_DIM_COLS], 16);
  assert_int_equal(b.operands[0].row, 1);
  end(&t.f);
}

static void axes_before_the_last_are_strided(void **state) {
  (void)state;
  reduced t;
  reduce(&t, LB_OP_ReduceProd, 0, true);
  set(&t.f, t.y, DIMS(1, 20, 16));
  lb_binding b;
  char text[512];
  bind_text(&t.f, 0, &b, text, sizeof text);
  assert_int_equal(b.spec.in[0].layout, LB_LAYOUT_STRIDED);
  assert_int_equal(b.dims[LB_DIM_ROWS], 320);
  assert_int_equal(b.dims[LB_DIM_COLS], 3);
  assert_int_equal(b.operands[1].col, 320);
  assert_int_equal(b.operands[1].row, 1);
  end(&t.f);
}

static void reduce_down(reduced *t, lb_op op, lb_binding *b, const char *want) {
  char text[512];
  reduce(t, op, 1, false);
  set(&t->f, t->y, DIMS(3, 16));
  assert_string_equal(bind_text(&t->f, 0, b, text, sizeof text), want);
}

static void column_reductions_are_windows(void **state) {
  (void)state;
  reduced t;
  lb_binding b;
  reduce_down(&t, LB_OP_ReduceMean, &b,
              "window %0=input.float32.full %1=scalar.float32 "
              "%2=acc.float32.sum %3=div.float32(%2,%1) "
              "%4=exp.float32(%3) -> %4.full");
  assert_int_equal(b.dims[LB_DIM_ROWS], 3);
  assert_int_equal(b.dims[LB_DIM_COLS], 16);
  assert_int_equal(b.dims[LB_DIM_TAPS_Y], 1);
  assert_int_equal(b.dims[LB_DIM_TAPS_X], 20);
  assert_int_equal(b.taps[1], 16);
  assert_int_equal(b.operands[1].row, 320);
  end(&t.f);
}

static void column_sums_of_squares_are_windows(void **state) {
  (void)state;
  reduced t;
  lb_binding b;
  reduce_down(&t, LB_OP_ReduceL2, &b,
              "window %0=input.float32.full %1=acc.float32.squares "
              "%2=sqrt.float32(%1) %3=exp.float32(%2) -> %3.full");
  end(&t.f);
}

// As written for normalisation over channels: the last axis is always 1.
static void column_reductions_allow_trailing_axes_of_size_one(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *axes, *x = param(r, "x", LB_F32, DIMS(3, 20, 16, 1));
  ok(lb_const_ints(f.g, "axes", (int64_t[]){1}, 1, &axes));
  lb_node *n = node(r, LB_OP_ReduceMean, "y", 2, (lb_value *[]){x, axes}, 1);
  RESULTS(r, n->out[0]);
  partition(&f);
  set(&f, x, DIMS(3, 20, 16, 1));
  set(&f, n->out[0], DIMS(3, 1, 16, 1));
  lb_binding b;
  char text[512];
  assert_string_equal(bind_text(&f, 0, &b, text, sizeof text),
                      "window %0=input.float32.full %1=scalar.float32 "
                      "%2=acc.float32.sum %3=div.float32(%2,%1) -> %3.full");
  assert_int_equal(b.dims[LB_DIM_ROWS], 3);
  assert_int_equal(b.dims[LB_DIM_COLS], 16);
  assert_int_equal(b.dims[LB_DIM_TAPS_X], 20);
  end(&f);
}

// -- matmul -------------------------------------------------------------------

static void batched_matmuls_loop_over_batches_of_b(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *a = param(r, "a", LB_F32, DIMS(2, 6, 1, 8));
  lb_value *c = param(r, "b", LB_F32, DIMS(6, 8, 5));
  lb_value *y = NODE1(r, MatMul, "mm", a, c);
  RESULTS(r, y);
  partition(&f);
  set(&f, a, DIMS(2, 6, 1, 8));
  set_transposed(&f, c, DIMS(6, 8, 5));
  set(&f, y, DIMS(2, 6, 1, 5));
  lb_binding b;
  char text[512];
  bind_text(&f, 0, &b, text, sizeof text);
  assert_int_equal(b.spec.in[1].layout, LB_LAYOUT_STRIDED);
  assert_int_equal(b.operands[2].row, 1);  // along k
  assert_int_equal(b.operands[2].col, 8);
  assert_int_equal(b.dims[LB_DIM_ROWS], 2);  // the batch dim along which B is
                                             // broadcast
  assert_int_equal(b.operands[1].row, 48);
  assert_int_equal(b.n_outer, 1);
  assert_int_equal(b.outer[0], 6);
  assert_int_equal(b.operands[2].outer[0], 40);
  end(&f);
}

static void constant_gemm_weights_are_packed(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  static float w[3 * 4];
  for (int i = 0; i < 12; i++) w[i] = (float)i;
  lb_value *x = param(r, "x", LB_F32, DIMS(4, -1)), *cw;
  lb_value *c = param(r, "c", LB_F32, DIMS(3));
  lb_tensor wt = tensor(LB_F32, w, DIMS(3, 4));
  ok(lb_const_new(f.g, "w", &wt, &cw));
  lb_node *n = node(r, LB_OP_Gemm, "gemm", 3, (lb_value *[]){x, cw, c}, 1);
  ok(lb_node_set_int(f.g, n, "transA", 1));
  ok(lb_node_set_int(f.g, n, "transB", 1));
  ok(lb_node_set_float(f.g, n, "alpha", 2));
  RESULTS(r, n->out[0]);
  partition(&f);
  const float *packed = f.p.parts[0]->packed;
  assert_int_equal((int)packed[1], 4);   // the next column of row 0
  assert_int_equal((int)packed[16], 1);  // the next k
  set(&f, x, DIMS(4, 5));
  set(&f, c, DIMS(3));
  set(&f, n->out[0], DIMS(5, 3));
  lb_binding b;
  char text[512];
  assert_string_equal(bind_text(&f, 0, &b, text, sizeof text),
                      "matmul %0=input.float32.strided "
                      "%1=input.float32.panel %2=input.float32.per_col "
                      "%3=scalar.float32 %4=acc.float32 "
                      "%5=mul.float32(%3,%4) %6=add.float32(%2,%5) -> %6.full");
  assert_int_equal(b.operands[1].col, 5);
  assert_int_equal(b.operands[1].row, 1);
  end(&f);
}

// x * w with a constant w of k x n; its spec as text in `text`.
static const float *pack_product(fixture *f, lb_dtype t, int64_t k, int64_t n,
                                 char *text, size_t cap) {
  static float w[2 * 32 * 32];  // large enough for float64
  for (int64_t i = 0; i < k * n; i++) w[i] = (float)(i + 1);
  *f = (fixture){0};
  ok(lb_graph_new(&f->g));
  lb_region *r = f->g->main;
  lb_value *x = param(r, "x", t, DIMS(-1, k)), *cw;
  lb_tensor wt = tensor(t, w, DIMS(k, n));
  ok(lb_const_new(f->g, "w", &wt, &cw));
  lb_value *y = NODE1(r, MatMul, "mm", x, cw);
  RESULTS(r, y);
  partition(f);
  set(f, x, DIMS(5, k));
  set(f, y, DIMS(5, n));
  lb_binding b;
  bind_text(f, 0, &b, text, cap);
  return f->p.parts[0]->packed;
}

// K4-interleaved, and only if rows of x are contiguous.
static void int8_weights_are_k4_interleaved(void **state) {
  (void)state;
  static int8_t w[8 * 2] = {1, 2,  3,  4,  5,  6,  7,  8,
                            9, 10, 11, 12, 13, 14, 15, 16};
  fixture f = {0};
  char text[512];
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_U8, DIMS(-1, 8)), *cw;
  lb_tensor wt = tensor(LB_I8, w, DIMS(8, 2));
  ok(lb_const_new(f.g, "w", &wt, &cw));
  lb_value *y = NODE1(r, MatMulInteger, "mm", x, cw);
  RESULTS(r, y);
  partition(&f);
  set(&f, x, DIMS(5, 8));
  set(&f, y, DIMS(5, 2));
  lb_binding b;
  assert_string_equal(bind_text(&f, 0, &b, text, sizeof text),
                      "matmul %0=input.uint8.full %1=input.int8.panel_k4 "
                      "%2=acc.int32 -> %2.full");
  const int8_t *packed = f.p.parts[0]->packed;
  assert_int_equal(packed[1], 3);       // the next k
  assert_int_equal(packed[4], 2);       // the next column
  assert_int_equal(packed[8], 0);       // past the last column
  assert_int_equal(packed[16 * 4], 9);  // the next four k
  assert_ptr_equal(lb_partition_contiguous_input(f.p.parts[0]), x);
  end(&f);
}

// For float32, with few columns and an even k.
static void few_columns_are_k2_interleaved(void **state) {
  (void)state;
  fixture f;
  char text[512];
  const float *packed = pack_product(&f, LB_F32, 16, 18, text, sizeof text);
  assert_non_null(strstr(text, "%1=input.float32.panel_k2"));
  assert_int_equal((int)packed[1], 1 + 18);                 // the next k
  assert_int_equal((int)packed[2], 2);                      // the next column
  assert_int_equal((int)packed[16], 1 + 2 * 18);            // the next two k
  assert_int_equal((int)packed[2 * 128 + 3], 2 + 18 + 16);  // the third panel
  assert_int_equal((int)packed[2 * 128 + 4], 0);  // past the last column
  end(&f);
  pack_product(&f, LB_F32, 16, 9, text, sizeof text);
  assert_non_null(strstr(text, "%1=input.float32.panel"));
  end(&f);
  pack_product(&f, LB_F32, 17, 18, text, sizeof text);
  assert_non_null(strstr(text, "%1=input.float32.panel"));
  end(&f);
  pack_product(&f, LB_F64, 16, 18, text, sizeof text);
  assert_non_null(strstr(text, "%1=input.float64.panel"));
  end(&f);
}

// -- dtypes ------------------------------------------------------------------

// Each operator rounds: a fused chain has the same bits as its nodes one by
// one.
static void f16_and_bf16_are_computed_in_float32(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_value *x = param(r, "x", LB_F16, DIMS(4));
  lb_value *y = NODE1(r, Neg, "neg", NODE1(r, Exp, "exp", x));
  RESULTS(r, y);
  partition(&f);
  set(&f, x, DIMS(4));
  set(&f, y, DIMS(4));
  lb_binding b;
  char text[512];
  assert_string_equal(
      bind_text(&f, 0, &b, text, sizeof text),
      "eltwise %0=input.float16.full %1=cast.float32(%0) %2=exp.float32(%1) "
      "%3=cast.float16(%2) %4=cast.float32(%3) %5=neg.float32(%4) "
      "%6=cast.float16(%5) -> %6.full");
  end(&f);
}

// A bias, one element per row, one per matrix: at sizes of 1 as at others.
static void sizes_of_one_have_the_same_spec(void **state) {
  (void)state;
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  lb_dim batch, seq;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1, -1, 8));
  lb_value *c = param(r, "c", LB_F32, DIMS(8));
  lb_value *m = param(r, "m", LB_F32, DIMS(1, 1, 8));
  lb_value *k = param(r, "k", LB_F32, DIMS(1, 1, 1));
  batch = x->info.dims[0], seq = x->info.dims[1];
  m->info.dims[1] = seq;
  k->info.dims[0] = batch;
  lb_value *a = NODE1(r, Add, "a", x, c), *d = NODE1(r, Add, "d", a, m);
  lb_value *y = NODE1(r, Mul, "y", d, k);
  RESULTS(r, y);
  partition(&f);
  assert_int_equal(f.p.n_parts, 1);
  char text[16][512];
  int n = 0;
  for (int64_t i = 1; i < 5; i++)
    for (int64_t j = 1; j < 5; j++, n++) {
      lb_binding b;
      set(&f, x, DIMS(i, j, 8));
      set(&f, y, DIMS(i, j, 8));
      set(&f, c, DIMS(8));
      set(&f, m, DIMS(1, j, 8));
      set(&f, k, DIMS(i, 1, 1));
      bind_text(&f, 0, &b, text[n], sizeof text[0]);
      assert_string_equal(text[n], text[0]);
    }
  assert_string_not_equal(text[0], "none");
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmuls_are_fused_with_their_epilogue),
      cmocka_unit_test(a_value_read_twice_ends_a_chain),
      cmocka_unit_test(a_result_ends_a_chain),
      cmocka_unit_test(adding_a_scalar_to_a_product_is_an_fma),
      cmocka_unit_test(loops_are_merged_where_all_operands_allow),
      cmocka_unit_test(a_row_operation_keeps_its_last_dim),
      cmocka_unit_test(row_operations_are_fused_with_feeders),
      cmocka_unit_test(costly_feeders_need_single_pass_operations),
      cmocka_unit_test(residuals_are_fused_with_the_norm),
      cmocka_unit_test(values_with_other_readers_are_not_feeders),
      cmocka_unit_test(a_node_without_its_first_output_is_in_no_partition),
      cmocka_unit_test(branches_of_a_chain_are_fused),
      cmocka_unit_test(values_that_are_read_again_are_found),
      cmocka_unit_test(a_partition_ends_where_a_spec_is_full),
      cmocka_unit_test(reductions_keep_one_element_per_row),
      cmocka_unit_test(axes_before_the_last_are_strided),
      cmocka_unit_test(column_reductions_are_windows),
      cmocka_unit_test(column_sums_of_squares_are_windows),
      cmocka_unit_test(column_reductions_allow_trailing_axes_of_size_one),
      cmocka_unit_test(batched_matmuls_loop_over_batches_of_b),
      cmocka_unit_test(constant_gemm_weights_are_packed),
      cmocka_unit_test(int8_weights_are_k4_interleaved),
      cmocka_unit_test(few_columns_are_k2_interleaved),
      cmocka_unit_test(f16_and_bf16_are_computed_in_float32),
      cmocka_unit_test(sizes_of_one_have_the_same_spec),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
