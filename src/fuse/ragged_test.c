// fuse/ragged_test.c -- which graphs are rewritten, and into what. That results
// are right is tested on models (tests/models/test_ragged.py).
#include "fuse/ragged.h"

#include "graph/text_test.h"
#include "session/eval.h"

// An attention over inputs, its mask from `m`, and what follows.
#define ENCODER                  \
  "in x float32[b,s,8]\n"        \
  "in m int64[b,s]\n"            \
  "const w float32[8,8] 1 0 2\n" \
  "const one float32[] 1\n"      \
  "const low float32[] -10000\n" \
  "f = Cast(m) {to=1}\n"         \
  "u = Unsqueeze(f, [1,2])\n"    \
  "i = Sub(one, u)\n"            \
  "a = Mul(i, low)\n"            \
  "q = MatMul(x, w)\n"           \
  "h = Attention(q, q, q, a) {q_num_heads=2, kv_num_heads=2}\n"

#define MEAN                             \
  "e = Unsqueeze(f, [-1])\n"             \
  "z = Mul(h, e)\n"                      \
  "t = ReduceSum(z, [1]) {keepdims=0}\n" \
  "n = ReduceSum(e, [1]) {keepdims=0}\n" \
  "y = Div(t, n)\n"                      \
  "out y\n"

static lb_ragged find(lb_graph *g) {
  lb_ragged r;
  must(lb_ragged_find(g, lb_eval_node, &r));
  return r;
}

static void refused(const char *source, const char *why) {
  lb_graph *g = graph_of(source);
  lb_ragged r = find(g);
  assert_null(r.graph);
  assert_string_equal(r.refusal, why);
  lb_graph_free(g);
}

static void a_masked_mean_needs_tokens_only(void **state) {
  (void)state;
  lb_graph *g = graph_of(ENCODER MEAN);
  lb_ragged r = find(g);
  assert_non_null(r.graph);
  assert_int_equal(r.mask, 1);
  assert_int_equal(r.n_attentions, 1);
  assert_int_equal(r.row_bytes, 8 * sizeof(float));
  assert_false(r.first);
  assert_false(r.differs[0]);
  dump_is(
      r.graph,
      "in x: float32[b,s,8]\n"
      "in m: int64[b,s]\n"
      "in ragged.rows: int64[?1]\n"
      "in ragged.positions: int64[?1]\n"
      "in ragged.segments: int64[b+1]\n"
      "x.flat: float32[b*s,8] = Reshape(x, [-1,8])\n"
      "x.tokens: float32[?1,8] = Gather(x.flat, ragged.rows) {axis=0}\n"
      "x.rows: float32[1,?1,8] = Unsqueeze(x.tokens, [0])\n"
      "q.packed: float32[1,?1,8] = MatMul(x.rows, w:float32[8,8])\n"
      "h.packed: float32[1,?1,8] = RaggedAttention(q.packed, q.packed, "
      "q.packed, ragged.segments) {q_num_heads=2, kv_num_heads=2}\n"
      "t.segments: float32[b,8] = SegmentSum(h.packed, ragged.segments)\n"
      "ragged.segments.ends: int64[b] = Slice(ragged.segments, [1], "
      "[9223372036854775807], [0])\n"
      "ragged.segments.begins: int64[b] = Slice(ragged.segments, [0], [-1], "
      "[0])\n"
      "n.tokens: int64[b] = Sub(ragged.segments.ends, "
      "ragged.segments.begins)\n"
      "n.float: float32[b] = Cast(n.tokens) {to=1}\n"
      "n.count: float32[b] = Mul(n.float, 1)\n"
      "n.column: float32[b,1] = Reshape(n.count, [-1,1])\n"
      "n.batch: int64[1] = Shape(n.tokens)\n"
      "n.shape: int64[2] = Concat(n.batch, [1]) {axis=0}\n"
      "n.counts: float32[b,1] = Expand(n.column, n.shape)\n"
      "y: float32[b,8] = Div(t.segments, n.counts)\n"
      "out y\n");
  const lb_node *flat = r.graph->main->nodes[0];  // x.flat, a Reshape
  assert_true(flat->optimized && !flat->runtime_skippable);
  lb_ragged_fini(&r);
  lb_graph_free(g);
}

static void a_selected_first_row_must_be_a_token(void **state) {
  (void)state;
  lb_graph *g = graph_of(ENCODER "y = Gather(h, 0) {axis=1}\nout y\n");
  lb_ragged r = find(g);
  assert_non_null(r.graph);
  assert_true(r.first);
  lb_ragged_fini(&r);
  lb_graph_free(g);
}

static void a_result_with_padding_differs_there(void **state) {
  (void)state;
  lb_graph *g = graph_of(ENCODER
                         "e = Unsqueeze(f, [-1])\n"
                         "z = Mul(h, e)\n"
                         "out h z\n");
  lb_ragged r = find(g);
  assert_non_null(r.graph);
  assert_true(r.differs[0]);
  assert_false(r.differs[1]);
  lb_ragged_fini(&r);
  lb_graph_free(g);
}

// Sequences of a constant length, with a table of equal numbers for them.
static void constants_by_position_are_read_by_token(void **state) {
  (void)state;
  lb_graph *g = graph_of(
      "in x float32[b,4,8]\n"
      "in m int64[b,4]\n"
      "const one float32[] 1\n"
      "const low float32[] -10000\n"
      "const equal float32[4,1] 0.5\n"
      "const other float32[1,4,1] 1 2 3\n"
      "const zero float32[8] 0\n"
      "f = Cast(m) {to=1}\n"
      "u = Unsqueeze(f, [1,2])\n"
      "i = Sub(one, u)\n"
      "a = Mul(i, low)\n"
      "p = Add(x, equal)\n"
      "q = Add(p, other)\n"
      "k = Add(q, zero)\n"
      "h = Attention(k, k, k, a) {q_num_heads=2, kv_num_heads=2}\n" MEAN);
  lb_ragged r = find(g);
  lb_strbuf s = {0};
  assert_non_null(r.graph);
  lb_graph_dump(r.graph, &s);
  assert_non_null(strstr(lb_strbuf_str(&s), "= Add(x.rows, 0.5)"));
  assert_non_null(strstr(lb_strbuf_str(&s),
                         "Gather(other:float32[1,4,1], ragged.positions) "
                         "{axis=1}"));
  assert_non_null(strstr(lb_strbuf_str(&s), "zero:float32[8])"));
  lb_strbuf_fini(&s);
  lb_ragged_fini(&r);
  lb_graph_free(g);
}

static void what_reads_padding_is_refused(void **state) {
  (void)state;
  static const char at_padding[] = "a matmul or attention is needed at padding";
  refused(ENCODER "y = ReduceMean(h, [1])\nout y\n", at_padding);
  refused(ENCODER "y = ReduceMax(h, [1])\nout y\n", at_padding);
  refused(ENCODER "t = ReduceSum(h, [1])\nout t\n", at_padding);
  refused(ENCODER "y = Gather(h, 1) {axis=1}\nout y\n", at_padding);
  refused(ENCODER
          "v = Squeeze(i, [1,2])\n"  // 1 at padding, 0 at tokens
          "k = Unsqueeze(v, [-1])\n"
          "z = Mul(h, k)\n"
          "t = ReduceSum(z, [1])\n"
          "out t\n",
          at_padding);
}

static void a_mask_that_hides_something_else_is_refused(void **state) {
  (void)state;
  static const char none[] = "no attention hides the padding of an input";
#define WITH(rest)               \
  "in x float32[b,s,8]\n"        \
  "in m int64[b,s]\n"            \
  "in k float32[b,s]\n"          \
  "const one float32[] 1\n"      \
  "const low float32[] -10000\n" \
  "f = Cast(m) {to=1}\n" rest    \
  "h = Attention(x, x, x, a) {q_num_heads=2, kv_num_heads=2}\n" MEAN
  refused(WITH("u = Unsqueeze(f, [1,2])\n"
               "a = Mul(u, low)\n"),  // hides tokens
          none);
  refused(WITH("u = Unsqueeze(f, [1,2])\n"
               "i = Sub(one, u)\n"
               "a = Mul(i, -5.0)\n"),  // does not hide
          none);
  refused(WITH("u = Unsqueeze(f, [1,3])\n"
               "i = Sub(one, u)\n"
               "a = Mul(i, low)\n"),  // of queries, not of keys
          none);
  refused(WITH("g = Mul(f, k)\n"
               "u = Unsqueeze(g, [1,2])\n"
               "i = Sub(one, u)\n"
               "a = Mul(i, low)\n"),  // depends on another input
          none);
#undef WITH
}

static void graphs_that_are_not_followed_are_refused(void **state) {
  (void)state;
  refused("in x float32[b,4]\ny = Relu(x)\nout y\n",
          "no attention hides the padding of an input");
  refused("in x float32[4]\ny = Relu(x)\nout y\n", "no input can be a mask");
  refused(ENCODER
          "in c bool[]\n"
          "v = If(c, h)\n"
          "then(p)\n"
          "r = Relu(p)\n"
          "gives r\n"
          "else(p)\n"
          "gives p\n"
          "out v\n",
          "branches and loops are not followed");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_masked_mean_needs_tokens_only),
      cmocka_unit_test(a_selected_first_row_must_be_a_token),
      cmocka_unit_test(a_result_with_padding_differs_there),
      cmocka_unit_test(constants_by_position_are_read_by_token),
      cmocka_unit_test(what_reads_padding_is_refused),
      cmocka_unit_test(a_mask_that_hides_something_else_is_refused),
      cmocka_unit_test(graphs_that_are_not_followed_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
