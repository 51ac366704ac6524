// graph/pass_test.c -- clean-up passes, the driver, and batch norms.
#include <math.h>

#include "graph/rewrite.h"
#include "graph/text_test.h"

static const lb_pass_options plain = {.off = 0};

// -- clean-up ----------------------------------------------------------------

// The dims of a Slice are expressions of their own, even if it takes
// everything.
static void slices_of_the_whole_input_are_removed(void **state) {
  (void)state;
  becomes(
      "in x float32[b,t]\n"
      "a = Slice(x, [0,0], [9223372036854775807,9223372036854775807], [0,1], "
      "[1,1])\n"
      "y = Neg(a)\n"
      "c = Slice(x, [0], [9223372036854775807], [1], [2])\n"
      "d = Slice(x, [1], [9223372036854775807], [0])\n"
      "e = Slice(x, [0], [4], [0])\n"
      "out y c d e\n",
      &plain,
      "in x: float32[b,t]\n"
      "y: float32[b,t] = Neg(x)\n"
      "c: float32[b,ceil(t/2)] = Slice(x, [0], [9223372036854775807], [1], "
      "[2])\n"
      "d: float32[max(b-1,0),t] = Slice(x, [1], [9223372036854775807], [0])\n"
      "e: float32[min(b,4),t] = Slice(x, [0], [4], [0])\n"
      "out y\n"
      "out c\n"
      "out d\n"
      "out e\n");
}

static void reductions_of_one_element_only_change_dims(void **state) {
  (void)state;
  becomes(
      "in x float32[b,1,t]\n"
      "y = Exp(x)\n"
      "a = ReduceMean(y, [1])\n"
      "c = ReduceMax(y, [-2]) {keepdims=0}\n"
      "d = ReduceSum(y, [1,2])\n"
      "e = ReduceL2(y, [1])\n"
      "f = Neg(a)\n"
      "out f c d e\n",
      &plain,
      "in x: float32[b,1,t]\n"
      "y: float32[b,1,t] = Exp(x)\n"
      "c: float32[b,t] = Squeeze(y, [-2])\n"
      "d: float32[b,1,1] = ReduceSum(y, [1,2])\n"
      "e: float32[b,1,t] = ReduceL2(y, [1])\n"
      "f: float32[b,1,t] = Neg(y)\n"
      "out f\n"
      "out c\n"
      "out d\n"
      "out e\n");
}

static void noops_are_removed_and_results_keep_their_names(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4]\n"
      "i = Identity(x)\n"
      "d = Dropout(i, 0.5)\n"
      "c = Cast(d) {to=1}\n"
      "t = Transpose(c) {perm=[0,1]}\n"
      "k = Concat(t) {axis=0}\n"
      "y = Relu(k)\n"
      "z = Identity(y)\n"
      "out z k\n",
      &plain,
      "in x: float32[b,4]\n"
      "y: float32[b,4] = Relu(x)\n"
      "out z = y\n"
      "out k = x\n");
}

static void identity_views_are_removed(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4]\n"
      "r = Reshape(x, [-1,4])\n"
      "s = Slice(r, [0,0], [9999,4], [0,1], [1,1])\n"
      "u = Unsqueeze(s, [1])\n"
      "f = Flatten(u) {axis=2}\n"
      "q = Reshape(f, [-1,1,4])\n"
      "e = Squeeze(q, [1])\n"
      "const one int64[2] 1\n"
      "k = Expand(e, one)\n"
      "y = Relu(k)\n"
      "out y\n",
      &plain,
      "in x: float32[b,4]\n"
      "s: float32[min(b,9999),4] = Slice(x, [0,0], [9999,4], [0,1], [1,1])\n"
      "y: float32[min(b,9999),4] = Relu(s)\n"
      "out y\n");
  stays(  // backwards
      "in x float32[4]\n"
      "y = Slice(x, [-1], [-9], [0], [-1])\n"
      "out y\n");
}

static void other_nodes_are_not_removed(void **state) {
  (void)state;
  stays(
      "in x float32[b,4]\n"
      "const t bool[] 1\n"
      "d = Dropout(x, 0.5, t)\n"
      "c = Cast(d) {to=11}\n"
      "r = Transpose(c)\n"
      "y, m = Dropout(x)\n"
      "out r y m\n");
}

static void dead_nodes_and_captures_are_removed(void **state) {
  (void)state;
  becomes(
      "in x float32[4]\n"
      "in c bool[]\n"
      "a = Exp(x)\n"
      "b = Log(a)\n"
      "h = Abs(x)\n"
      "y, z = If(c, h, b)\n"
      "then(p, q)\n"
      "r = Neg(q)\n"
      "gives p r\n"
      "else(p, q)\n"
      "s = Sqrt(p)\n"
      "u = Sqrt(s)\n"
      "gives s q\n"
      "out y\n",
      &plain,
      "in x: float32[4]\n"
      "in c: bool[]\n"
      "h: float32[4] = Abs(x)\n"
      "y: float32[4] = If(c, h)\n"
      "then(p)\n"
      "  gives p\n"
      "else(p)\n"
      "  s: float32[4] = Sqrt(p)\n"
      "  gives s\n"
      "out y\n");
}

static void equal_nodes_are_merged(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4]\n"
      "s = Unsqueeze(x, [0])\n"
      "t = Unsqueeze(x, [0])\n"
      "u = Unsqueeze(x, [1])\n"
      "a = Softmax(s) {axis=1}\n"
      "b = Softmax(t) {axis=1}\n"
      "c = Softmax(t) {axis=2}\n"
      "out a b c u\n",
      &plain,
      "in x: float32[b,4]\n"
      "s: float32[1,b,4] = Unsqueeze(x, [0])\n"
      "u: float32[b,1,4] = Unsqueeze(x, [1])\n"
      "a: float32[1,b,4] = Softmax(s) {axis=1}\n"
      "c: float32[1,b,4] = Softmax(s) {axis=2}\n"
      "out a\n"
      "out b = a\n"
      "out c\n"
      "out u\n");
}

static void a_concat_extends_an_earlier_one(void **state) {
  (void)state;
  becomes(
      "in a float32[b,4]\nin c float32[b,5]\nin d float32[b,6]\n"
      "x = Concat(a, c) {axis=1}\n"
      "y = Concat(a, c, d) {axis=1}\n"
      "z = Concat(a, c, d, a) {axis=1}\n"
      "w = Concat(a, c, d) {axis=-1}\n"
      "out x y z w\n",
      &plain,
      "in a: float32[b,4]\nin c: float32[b,5]\nin d: float32[b,6]\n"
      "x: float32[b,9] = Concat(a, c) {axis=1}\n"
      "y: float32[b,15] = Concat(x, d) {axis=1}\n"
      "z: float32[b,19] = Concat(y, a) {axis=1}\n"
      "w: float32[b,15] = Concat(a, c, d) {axis=-1}\n"
      "out x\nout y\nout z\nout w\n");
}

static void random_nodes_are_not_merged(void **state) {
  (void)state;
  stays(
      "in x float32[b,4]\n"
      "a = Bernoulli(x)\n"
      "b = Bernoulli(x)\n"
      "out a b\n");
}

static void passes_can_be_switched_off(void **state) {
  (void)state;
  becomes(
      "in x float32[4]\n"
      "i = Identity(x)\n"
      "d = Exp(x)\n"
      "y = Relu(i)\n"
      "out y\n",
      &(lb_pass_options){.off = LB_PASS_ALL},
      "in x: float32[4]\n"
      "i: float32[4] = Identity(x)\n"
      "d: float32[4] = Exp(x)\n"
      "y: float32[4] = Relu(i)\n"
      "out y\n");
}

static void passes_have_names(void **state) {
  (void)state;
  for (int i = 0; i < LB_PASS_COUNT; i++) {
    const char *name = lb_pass_name((lb_pass_id)i);
    assert_int_equal(lb_pass_find(name, strlen(name)), i);
  }
  assert_int_equal(lb_pass_find("sinks", 5), LB_PASS_COUNT);
  assert_int_equal(lb_pass_find("sinks", 4), LB_PASS_SINK);
  assert_int_equal(lb_pass_find("", 0), LB_PASS_COUNT);
}

static lb_status replace_op(lb_rewrite *rw, lb_op from, lb_op to) {
  lb_node *n = rw->graph->main->nodes[0];
  return n->op == from ? lb_rewrite_become(rw, n, to, n->in, 1) : LB_OK;
}
static lb_status to_sin(lb_rewrite *rw) {
  return replace_op(rw, LB_OP_Cos, LB_OP_Sin);
}
static lb_status to_cos(lb_rewrite *rw) {
  return replace_op(rw, LB_OP_Sin, LB_OP_Cos);
}

static void store_line(void *user, int level, const char *line) {
  assert_int_equal(level, LB_LOG_WARN);
  snprintf(user, 256, "%s", line);
}

static void passes_that_undo_each_other_are_named(void **state) {
  (void)state;
  static const lb_pass rows[] = {
      {"calm", 1, LB_PHASE_EARLY, false, lb_pass_noop},
      {"to_sin", 2, LB_PHASE_EARLY, false, to_sin},
      {"to_cos", 4, LB_PHASE_LATE, false, to_cos},
  };
  char line[256] = "";
  lb_log log = {store_line, line, LB_LOG_WARN};
  lb_graph *g = graph_of("in x float32[4]\ny = Sin(x)\nout y\n");
  lb_rewrite rw;
  lb_rewrite_init(&rw, g, &(lb_pass_options){.log = &log});
  lb_status st = lb_passes_run(&rw, rows, 3);
#ifndef NDEBUG
  assert_int_equal(lb_status_code(st), LB_INTERNAL);
  snprintf(line, sizeof line, "%s", lb_status_message(st));
  lb_status_drop(st);
#else
  must(st);
#endif
  assert_non_null(strstr(line, "among: to_sin, to_cos"));
  lb_rewrite_fini(&rw);
  lb_graph_free(g);
}

static void removed_nodes_name_the_pass(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[4]\n"
      "i = Identity(x)\n"
      "d = Exp(x)\n"
      "s = Sigmoid(i)\n"
      "y = Mul(i, s)\n"
      "z = Neg(d)\n"
      "out y\n");
  must(lb_graph_optimize(g, NULL));
  static const struct {
    lb_op op;
    const char *pass;
  } expected[] = {{LB_OP_Exp, "dead"},
                  {LB_OP_Neg, "dead"},
                  {LB_OP_Identity, "noop"},
                  {LB_OP_Sigmoid, "match"}};
  assert_int_equal(g->n_removed, 4);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(g->removed[i].op, expected[i].op);
    assert_string_equal(g->removed[i].pass, expected[i].pass);
    assert_non_null(g->removed[i].name);
  }
  lb_graph_free(g);
}

static void ids_are_dense_afterwards(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[4]\n"
      "d = Exp(x)\n"
      "y = Relu(x)\n"
      "out y\n");
  must(lb_graph_optimize(g, NULL));
  assert_int_equal(g->n_values, 2);
  assert_int_equal(g->n_nodes, 1);
  assert_int_equal(g->main->nodes[0]->id, 0);
  assert_string_equal(g->values[1]->name, "y");
  lb_graph_free(g);
}

// -- batch norms -------------------------------------------------------------

static const float *floats(const lb_value *v) {
  return (const float *)lb_value_const(v)->data;
}

static void batch_norm_is_folded_into_weights_and_bias(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,3,h,w]\n"
      "const k float32[2,3,1,1] 1 2 3 4 5 6\n"
      "const kb float32[2] 10 20\n"
      "const s float32[2] 2 3\n"
      "const t float32[2] 0.5 -1\n"
      "const m float32[2] 4 5\n"
      "const v float32[2] 3 8\n"
      "c = Conv(x, k, kb) {strides=[1,1]}\n"
      "y = BatchNormalization(c, s, t, m, v) {epsilon=1.0}\n"
      "out y\n");
  must(lb_graph_optimize(g, NULL));
  dump_is(g,
          "in x: float32[b,3,h,w]\n"
          "y: float32[b,2,h,w] = Conv(x, k:float32[2,3,1,1], [6.5,14]) "
          "{strides=[1,1]}\n"
          "out y\n");
  const float *w = floats(g->main->nodes[0]->in[1]);
  const float expected[] = {1, 2, 3, 4, 5, 6};  // times 2/sqrt 4, 3/sqrt 9
  for (int i = 0; i < 6; i++) assert_true(w[i] == expected[i]);
  lb_graph_free(g);
}

// Values with equal known contents are merged if dtype and rank are equal.
static void known_contents_merge_by_dtype_and_rank(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,s]\n"
      "in i int64[n]\n"
      "t = Shape(x)\n"
      "u = Shape(x)\n"
      "wide = Cast(u) {to=7}\n"
      "narrow = Cast(t) {to=6}\n"
      "again = Cast(u) {to=6}\n"
      "single = Cast(t) {to=1}\n"
      "scalar = Gather(t, 0)\n"
      "vector = Gather(t, [0])\n"
      "out t wide narrow again single scalar vector\n");
  static const struct {
    lb_dtype dtype;
    int rank;
  } want[] = {{LB_I64, 1}, {LB_I64, 1}, {LB_I32, 1}, {LB_I32, 1},
              {LB_F32, 1}, {LB_I64, 0}, {LB_I64, 1}};
  must(lb_graph_optimize(g, NULL));
  lb_value **results = g->main->results;
  for (int i = 0; i < 7; i++) {
    assert_int_equal(results[i]->info.dtype, want[i].dtype);
    assert_int_equal(results[i]->info.rank, want[i].rank);
  }
  const lb_node *from[7];
  for (int i = 0; i < 7; i++) {
    from[i] = results[i]->producer;
    while (from[i]->op == LB_OP_Identity) from[i] = from[i]->in[0]->producer;
  }
  assert_ptr_equal(from[0], from[1]);
  assert_ptr_equal(from[2], from[3]);
  assert_ptr_not_equal(from[0], from[2]);
  assert_ptr_not_equal(from[2], from[4]);
  assert_ptr_not_equal(from[5], from[6]);
  lb_graph_free(g);
}

// Sums of quantised values are exact, and their scale must be applied after
// them.
static void batch_norm_leaves_exact_sums_alone(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,2,h,w]\n"
      "const k float32[2,2,1,1] 1 2 3 4\n"
      "const s float32[2] 2 3\n"
      "const t float32[2] 0.5 -1\n"
      "const m float32[2] 4 5\n"
      "const v float32[2] 3 8\n"
      "c = Conv(x, k) {exact=1}\n"
      "y = BatchNormalization(c, s, t, m, v) {epsilon=0.5}\n"
      "out y\n");
  must(lb_graph_optimize(g, NULL));
  const lb_node *conv = g->main->nodes[0];
  assert_int_equal(conv->op, LB_OP_Conv);
  assert_true(g->main->n_nodes > 1);
  for (int i = 0; i < 4; i++)
    assert_true(floats(conv->in[1])[i] == (float)(i + 1));
  lb_graph_free(g);
}

// Output channels of a grouped ConvTranspose: [C, M/group].
static void batch_norm_is_folded_into_grouped_transposed_weights(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,4,h,w]\n"
      "const k float32[4,3,1,2] 1\n"
      "const s float32[6] 1 2 3 4 5 6\n"
      "const t float32[6] 0\n"
      "const m float32[6] 1\n"
      "const v float32[6] 1\n"
      "c = ConvTranspose(x, k) {group=2}\n"
      "y = BatchNormalization(c, s, t, m, v) {epsilon=0.0}\n"
      "out y\n");
  must(lb_graph_optimize(g, NULL));
  const lb_node *n = g->main->nodes[0];
  assert_int_equal(g->main->n_nodes, 1);
  assert_int_equal(n->op, LB_OP_ConvTranspose);
  assert_int_equal(lb_attr_int(n, "group", 1), 2);
  for (int c = 0; c < 4; c++)
    for (int m = 0; m < 3; m++)
      for (int i = 0; i < 2; i++)
        assert_true(floats(n->in[1])[(c * 3 + m) * 2 + i] ==
                    (float)(c / 2 * 3 + m + 1));
  for (int m = 0; m < 6; m++)
    assert_true(floats(n->in[2])[m] == (float)-(m + 1));
  lb_graph_free(g);
}

static void a_separate_bias_is_folded_into_the_convolution(void **state) {
  (void)state;
  becomes(
      "in x float32[b,3,h,w]\n"
      "const k float32[2,3,1,1] 1\n"
      "const t float32[1,2,1,1] 3 4\n"
      "const u float32[2,1,1] 10 20\n"
      "c = Conv(x, k)\n"
      "d = Add(c, t)\n"
      "e = Add(u, d)\n"
      "y = Add(e, 0.5)\n"
      "out y\n",
      &plain,
      "in x: float32[b,3,h,w]\n"
      "y: float32[b,2,h,w] = Conv(x, k:float32[2,3,1,1], [13.5,24.5])\n"
      "out y\n");
}

static void other_additions_are_not_folded(void **state) {
  (void)state;
  stays(  // one per column
      "in x float32[b,3,h,2]\n"
      "const k float32[2,3,1,1] 1\n"
      "const t float32[2] 3 4\n"
      "c = Conv(x, k)\n"
      "y = Add(c, t)\n"
      "out y\n");
  stays(  // enlarges the batch
      "in x float32[1,3,h,w]\n"
      "const k float32[1,3,1,1] 1\n"
      "const t float32[2,1,1,1] 3 4\n"
      "c = Conv(x, k)\n"
      "y = Add(c, t)\n"
      "out y\n");
  stays(  // adds an axis
      "in x float32[1,3,h,w]\n"
      "const k float32[1,3,1,1] 1\n"
      "const t float32[1,1,1,1,1] 3\n"
      "c = Conv(x, k)\n"
      "y = Add(c, t)\n"
      "out y\n");
}

static void a_separate_scale_is_folded_into_the_convolution(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,3,h,w]\n"
      "const k float32[2,3,1,1] 1 2 3 4 5 6\n"
      "const s float32[1,2,1,1] 2 3\n"
      "c = Conv(x, k)\n"
      "d = Mul(s, c)\n"
      "e = Add(d, 0.5)\n"
      "y = Mul(e, 10.0)\n"
      "out y\n");
  must(lb_graph_optimize(g, NULL));
  dump_is(g,
          "in x: float32[b,3,h,w]\n"
          "y: float32[b,2,h,w] = Conv(x, k:float32[2,3,1,1], [5,5])\n"
          "out y\n");
  const float *w = floats(g->main->nodes[0]->in[1]);
  const float expected[] = {20, 40, 60, 120, 150, 180};
  for (int i = 0; i < 6; i++) assert_true(w[i] == expected[i]);
  lb_graph_free(g);
}

static void other_multiplications_are_not_folded(void **state) {
  (void)state;
  stays(  // one per column
      "in x float32[b,3,h,2]\n"
      "const k float32[2,3,1,1] 1.5\n"
      "const t float32[2] 3 4\n"
      "c = Conv(x, k)\n"
      "y = Mul(c, t)\n"
      "out y\n");
  stays(  // the convolution is a result
      "in x float32[b,3,h,w]\n"
      "const k float32[2,3,1,1] 1.5\n"
      "c = Conv(x, k)\n"
      "y = Mul(c, 2.0)\n"
      "out y c\n");
  stays(  // exact sums
      "in x float32[b,3,h,w]\n"
      "const k float32[2,3,1,1] 3\n"
      "c = Conv(x, k) {exact=1}\n"
      "y = Mul(c, 0.1)\n"
      "out y\n");
  stays(  // exact sums, scaled before
      "in x float32[b,3,h,w]\n"
      "const k float32[2,3,1,2] 3\n"
      "m = Mul(x, 0.1)\n"
      "y = Conv(m, k) {exact=1}\n"
      "out y\n");
  stays(  // not finite
      "in x float32[b,3,h,w]\n"
      "const k float32[2,3,1,1] 1.5\n"
      "const t float32[1] inf\n"
      "c = Conv(x, k)\n"
      "y = Mul(c, t)\n"
      "out y\n");
}

// One per row of the feature map, where there are as many rows as channels.
static void channels_last_convolutions_are_not_folded(void **state) {
  (void)state;
  stays(
      "in x float32[b,2,w,3]\n"
      "const k float32[2,3,2,2] 1\n"
      "const t float32[1,2,1,1] 3 4\n"
      "c = Conv(x, k) {channels_last=1, pads=[1,1,0,0]}\n"
      "y = Add(c, t)\n"
      "out y\n");
}

static void a_scale_before_a_convolution_is_folded(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,2,h,w]\n"
      "const k float32[2,2,1,1] 1.5 2 3 4\n"
      "const u float32[2] 10 20\n"
      "r = Relu(x)\n"
      "m = Mul(r, 2.0)\n"
      "a = Add(0.5, m)\n"
      "y = Conv(a, k, u) {strides=[2,1]}\n"
      "out y\n");
  must(lb_graph_optimize(g, NULL));
  dump_is(g,
          "in x: float32[b,2,h,w]\n"
          "r: float32[b,2,h,w] = Relu(x)\n"
          "y: float32[b,2,ceil(h/2),w] = Conv(r, k:float32[2,2,1,1], "
          "[11.75,23.5]) {strides=[2,1]}\n"
          "out y\n");
  const float *w = floats(g->main->nodes[1]->in[1]);
  assert_true(w[0] == 3 && w[1] == 4 && w[2] == 6 && w[3] == 8);
  lb_graph_free(g);
}

// The zero padding is not shifted.
static void an_addition_stays_before_a_padded_convolution(void **state) {
  (void)state;
  becomes(
      "in x float32[b,2,h,w]\n"
      "const k float32[2,1,3,3] 1.5\n"
      "r = Relu(x)\n"
      "m = Mul(r, 2.0)\n"
      "a = Add(m, 0.5)\n"
      "y = Conv(a, k) {group=2, pads=[1,1,1,1]}\n"
      "out y\n",
      &plain,
      "in x: float32[b,2,h,w]\n"
      "r: float32[b,2,h,w] = Relu(x)\n"
      "y.Add: float32[b,2,h,w] = Add(r, 0.25)\n"
      "y: float32[b,2,h,w] = Conv(y.Add, k:float32[2,1,3,3]) {group=2, "
      "pads=[1,1,1,1]}\n"
      "out y\n");
  becomes(
      "in x float32[b,2,h,w]\n"
      "const k float32[2,1,3,3] 1.5\n"
      "m = Mul(x, 2.0)\n"
      "y = Conv(m, k) {group=2, auto_pad=\"SAME_UPPER\"}\n"
      "out y\n",
      &plain,
      "in x: float32[b,2,h,w]\n"
      "y: float32[b,2,h,w] = Conv(x, k:float32[2,1,3,3]) {group=2, "
      "auto_pad=\"SAME_UPPER\"}\n"
      "out y\n");
}

static void scales_are_not_folded_where_results_would_differ(void **state) {
  (void)state;
  stays(  // an addition alone, and zero padding
      "in x float32[b,2,h,w]\n"
      "const k float32[2,2,3,3] 1.5\n"
      "a = Add(x, 0.5)\n"
      "y = Conv(a, k) {pads=[0,1,0,1]}\n"
      "out y\n");
  stays(  // division by this scale is not possible
      "in x float32[b,2,h,w]\n"
      "const k float32[2,2,3,3] 1.5\n"
      "m = Mul(x, 0.0)\n"
      "a = Add(m, 0.5)\n"
      "y = Conv(a, k) {pads=[0,1,0,1]}\n"
      "out y\n");
  stays(  // it has another reader
      "in x float32[b,2,h,w]\n"
      "const k float32[2,2,1,1] 1.5\n"
      "m = Mul(x, 2.0)\n"
      "y = Conv(m, k)\n"
      "out y m\n");
  stays(  // one per channel
      "in x float32[b,2,h,w]\n"
      "const k float32[2,2,1,1] 1.5\n"
      "const s float32[2,1,1] 2 3\n"
      "m = Mul(x, s)\n"
      "y = Conv(m, k)\n"
      "out y\n");
}

#define BN_PARAMS                \
  "in x float32[b,3,h,w]\n"      \
  "const k float32[2,3,1,1] 1\n" \
  "const s float32[2] 2 3\n"     \
  "const t float32[2] 0.5 -1\n"  \
  "const m float32[2] 4 5\n"     \
  "const v float32[2] 15 3\n"    \
  "c = Conv(x, k)\n"

static void batch_norm_is_not_folded_where_results_would_differ(void **state) {
  (void)state;
  stays(BN_PARAMS  // statistics of the batch
        "y, rm, rv = BatchNormalization(c, s, t, m, v) {training_mode=1}\n"
        "out y rm rv\n");
  stays(  // parameters not constant
      "in x float32[b,3,h,w]\n"
      "in s float32[2]\n"
      "const k float32[2,3,1,1] 1\n"
      "c = Conv(x, k)\n"
      "y = BatchNormalization(c, s, s, s, s)\n"
      "out y\n");
  stays(  // not finite
      "in x float32[b,3,h,w]\n"
      "const k float32[2,3,1,1] 1\n"
      "const s float32[2] -1\n"
      "c = Conv(x, k)\n"
      "y = BatchNormalization(c, s, s, s, s)\n"
      "out y\n");
}

static void a_separate_batch_norm_is_expanded(void **state) {
  (void)state;
  becomes(
      "in x float32[b,2,w]\n"
      "const s float32[2] 2 3\n"
      "const t float32[2] 0.5 -1\n"
      "const m float32[2] 4 5\n"
      "const v float32[2] 15 3\n"
      "y = BatchNormalization(x, s, t, m, v) {epsilon=1.0}\n"
      "out y\n",
      NULL,
      "in x: float32[b,2,w]\n"
      "y.Sub: float32[b,2,w] = Sub(x, channel:float32[2,1])\n"
      "y.Mul: float32[b,2,w] = Mul(y.Sub, channel:float32[2,1])\n"
      "y: float32[b,2,w] = Add(y.Mul, channel:float32[2,1])\n"
      "out y\n");
  becomes(BN_PARAMS  // the convolution is a result
          "y = BatchNormalization(c, s, t, m, v) {epsilon=1.0}\n"
          "out y c\n",
          NULL,
          "in x: float32[b,3,h,w]\n"
          "c: float32[b,2,h,w] = Conv(x, k:float32[2,3,1,1])\n"
          "y.Sub: float32[b,2,h,w] = Sub(c, channel:float32[2,1,1])\n"
          "y.Mul: float32[b,2,h,w] = Mul(y.Sub, channel:float32[2,1,1])\n"
          "y: float32[b,2,h,w] = Add(y.Mul, channel:float32[2,1,1])\n"
          "out y\nout c\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slices_of_the_whole_input_are_removed),
      cmocka_unit_test(reductions_of_one_element_only_change_dims),
      cmocka_unit_test(noops_are_removed_and_results_keep_their_names),
      cmocka_unit_test(identity_views_are_removed),
      cmocka_unit_test(other_nodes_are_not_removed),
      cmocka_unit_test(dead_nodes_and_captures_are_removed),
      cmocka_unit_test(equal_nodes_are_merged),
      cmocka_unit_test(a_concat_extends_an_earlier_one),
      cmocka_unit_test(random_nodes_are_not_merged),
      cmocka_unit_test(passes_can_be_switched_off),
      cmocka_unit_test(passes_have_names),
      cmocka_unit_test(passes_that_undo_each_other_are_named),
      cmocka_unit_test(removed_nodes_name_the_pass),
      cmocka_unit_test(ids_are_dense_afterwards),
      cmocka_unit_test(batch_norm_is_folded_into_weights_and_bias),
      cmocka_unit_test(known_contents_merge_by_dtype_and_rank),
      cmocka_unit_test(batch_norm_leaves_exact_sums_alone),
      cmocka_unit_test(batch_norm_is_folded_into_grouped_transposed_weights),
      cmocka_unit_test(a_separate_bias_is_folded_into_the_convolution),
      cmocka_unit_test(other_additions_are_not_folded),
      cmocka_unit_test(a_separate_scale_is_folded_into_the_convolution),
      cmocka_unit_test(other_multiplications_are_not_folded),
      cmocka_unit_test(channels_last_convolutions_are_not_folded),
      cmocka_unit_test(a_scale_before_a_convolution_is_folded),
      cmocka_unit_test(an_addition_stays_before_a_padded_convolution),
      cmocka_unit_test(scales_are_not_folded_where_results_would_differ),
      cmocka_unit_test(batch_norm_is_not_folded_where_results_would_differ),
      cmocka_unit_test(a_separate_batch_norm_is_expanded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
