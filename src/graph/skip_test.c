// graph/skip_test.c -- what the skip rules answer, and the flags of nodes.
#include "graph/skip.h"

#include "graph/text_test.h"

// The flags of the first node of a graph that is only marked, not optimised:
// 'R' it always runs, 'M' each plan decides, 'A' it never runs.
static char flags_of(const char *source) {
  lb_graph *g = graph_of(source);
  must(lb_mark_runtime_skippable_nodes(g));
  must(lb_graph_verify(g));
  const lb_node *n = g->main->nodes[0];
  char flags = !n->optimized ? 'R' : n->runtime_skippable ? 'M' : 'A';
  lb_graph_free(g);
  return flags;
}

typedef struct rule_case {
  char flags;
  const char *source;
} rule_case;

static void check_cases(const rule_case *cases, size_t n) {
  for (size_t i = 0; i < n; i++) {
    char flags = flags_of(cases[i].source);
    if (flags != cases[i].flags)
      fail_msg("%c instead of %c:\n%s", flags, cases[i].flags, cases[i].source);
  }
}

#define CHECK(...)                                       \
  do {                                                   \
    const rule_case cases_[] = {__VA_ARGS__};            \
    check_cases(cases_, sizeof cases_ / sizeof *cases_); \
  } while (0)

#define X3(dims) "in x float32[" dims "]\n"

static void permutes_keep_the_order_of_dims_above_one(void **state) {
  (void)state;
#define PERMUTE(dims) X3(dims) "y = Transpose(x) {perm=[0,2,1,3]}\nout y\n"
  CHECK({'M', PERMUTE("a,b,c,d")}, {'A', PERMUTE("128,1,32,64")},
        {'A', PERMUTE("a,1,c,d")}, {'A', PERMUTE("a,b,1,d")},
        {'M', PERMUTE("128,2,32,64")},
        {'A', X3("a,b") "y = Transpose(x) {perm=[0,1]}\nout y\n"},
        {'M', X3("a,b") "y = Transpose(x)\nout y\n"},
        {'A', X3("a,1") "y = Transpose(x)\nout y\n"});
}

static void shapes_alone_never_move_elements(void **state) {
  (void)state;
  CHECK({'A', X3("a,b") "y = Reshape(x, [-1])\nout y\n"},
        {'A', X3("a,b") "y = Unsqueeze(x, [1])\nout y\n"},
        {'A', X3("a,1") "y = Squeeze(x, [1])\nout y\n"},
        {'A', X3("a,b") "y = Flatten(x)\nout y\n"},
        {'A', X3("a,b") "y = Identity(x)\nout y\n"});
}

static void windows_are_decided_when_contents_are_known(void **state) {
  (void)state;
  CHECK({'M', X3("a,b") "y = Slice(x, [0], [3])\nout y\n"},
        {'A', X3("3,b") "y = Slice(x, [0], [3])\nout y\n"},
        {'A', X3("a,b") "y = Slice(x, [0], [9223372036854775807])\nout y\n"},
        {'M', X3("5") "y = Slice(x, [-1], [-9], [0], [-1])\nout y\n"},
        {'M', X3("a,4") "y z = Split(x) {axis=1}\nout y z\n"},
        {'M', X3("a,b") "y = Gather(x, 1)\nout y\n"},
        {'M', X3("a,b") "in i int64[n]\ny = Gather(x, i)\nout y\n"},
        {'A', X3("2,b") "y = Gather(x, [0,1])\nout y\n"},
        {'R', X3("2,b") "y = Gather(x, [1,0])\nout y\n"},
        {'R', X3("2,b") "y = Gather(x, [0,2])\nout y\n"},
        {'R', X3("a,b") "in i int64[n,m]\ny = Gather(x, i)\nout y\n"});
}

static void nothing_to_write_or_to_add_is_nothing(void **state) {
  (void)state;
#define SCATTER(n)                       \
  X3("a,b")                              \
  "in i int64[" n ",1]\nin u float32[" n \
  ",b]\n"                                \
  "y = ScatterND(x, i, u)\nout y\n"
  CHECK(
      {'M', SCATTER("n")}, {'A', SCATTER("0")}, {'M', SCATTER("2")},
      {'R', X3("a,3") "in i int64[2,1]\nin u float32[2,3]\n"
                      "y = ScatterND(x, i, u)\nout y\n"},
      {'M', X3("a,b") "in p int64[4]\ny = Pad(x, p)\nout y\n"},
      {'A', X3("a,b") "y = Pad(x, [0,0,0,0])\nout y\n"},
      {'M', X3("a,b") "y = Pad(x, [0,-1,0,0])\nout y\n"},
      {'R', X3("a,b") "y = Pad(x, [1,-1,0,0])\nout y\n"},
      {'A', X3("a,b") "y = Tile(x, [1,1])\nout y\n"},
      {'R', X3("2,3") "y = Tile(x, [1,2])\nout y\n"},
      {'M', X3("a,b") "in r int64[2]\ny = Tile(x, r)\nout y\n"},
      {'A', X3("a,b") "y = Concat(x) {axis=0}\nout y\n"},
      {'M', X3("a,b") "in z float32[c,b]\ny = Concat(x, z) {axis=0}\nout y\n"},
      {'A', X3("a,b") "in z float32[0,b]\ny = Concat(x, z) {axis=0}\nout y\n"});
}

static void axes_of_size_one_reduce_nothing(void **state) {
  (void)state;
  CHECK({'M', X3("a,b") "y = ReduceSum(x, [1])\nout y\n"},
        {'A', X3("a,1") "y = ReduceSum(x, [1])\nout y\n"},
        {'A', X3("a,1") "y = ReduceMean(x, [1]) {keepdims=0}\nout y\n"},
        {'A', X3("1,1") "y = ReduceMax(x)\nout y\n"},
        {'R', X3("a,2") "y = ReduceProd(x, [1])\nout y\n"},
        {'R', X3("a,1") "y = ReduceL2(x, [1])\nout y\n"},
        {'R', X3("a,1") "y = ReduceSumSquare(x, [1])\nout y\n"},
        {'A', X3("a,1") "y = CumSum(x, 1)\nout y\n"},
        {'R', X3("a,1") "y = CumSum(x, 1) {exclusive=1}\nout y\n"},
        {'M', X3("a,b") "y = CumSum(x, 1)\nout y\n"},
        {'A', X3("a,b,c") "y = MaxPool(x) {kernel_shape=[1]}\nout y\n"},
        {'R', X3("a,b,c") "y = MaxPool(x) {kernel_shape=[2]}\nout y\n"},
        {'A', X3("a,b,1") "y = GlobalAveragePool(x)\nout y\n"},
        {'M', X3("a,b,c") "y = GlobalMaxPool(x)\nout y\n"});
}

// Zeros have signs: x + 0.0 turns -0.0 into 0.0, and so does x - -0.0.
static void only_operands_that_keep_every_bit_are_neutral(void **state) {
  (void)state;
#define BINARY(op, value)     \
  X3("a,b")                   \
  "const c float32[1] " value \
  "\n"                        \
  "y = " op "\nout y\n"
  CHECK({'A', BINARY("Mul(x, c)", "1")}, {'A', BINARY("Mul(c, x)", "1")},
        {'R', BINARY("Mul(x, c)", "2")}, {'A', BINARY("Div(x, c)", "1")},
        {'R', BINARY("Div(c, x)", "1")}, {'A', BINARY("Sub(x, c)", "0")},
        {'R', BINARY("Sub(x, c)", "-0.0")}, {'R', BINARY("Sub(c, x)", "0")},
        {'R', BINARY("Add(x, c)", "0")}, {'A', BINARY("Add(x, c)", "-0.0")},
        {'A', BINARY("Pow(x, c)", "1")}, {'R', BINARY("Pow(c, x)", "1")},
        {'M', X3("a,b") "in c float32[b]\ny = Mul(x, c)\nout y\n"},
        {'R', X3("2") "const c float32[2,1] 1 1\ny = Mul(x, c)\nout y\n"},
        {'A', "in x int64[a]\ny = Add(x, 0)\nout y\n"},
        {'A', "in x int64[a]\ny = Sub(x, 0)\nout y\n"},
        {'R', "in x int64[a]\ny = Add(x, 1)\nout y\n"},
        {'A', X3("a,b") "const c bool[1] 1\ny = Where(c, x, 2.0)\nout y\n"},
        {'R', X3("2,3") "const c bool[1] 0\ny = Where(c, x, 2.0)\nout y\n"},
        {'M', X3("a,b") "in c bool[b]\ny = Where(c, x, 2.0)\nout y\n"},
        {'A', X3("a,b") "y = Cast(x) {to=1}\nout y\n"},
        {'R', X3("a,b") "y = Cast(x) {to=7}\nout y\n"},
        {'A', X3("a,b") "y = Max(x)\nout y\n"},
        {'R', X3("a,b") "y = Max(x, x)\nout y\n"},
        {'A', X3("a,b") "y = Dropout(x)\nout y\n"},
        {'R', X3("a,b") "y m = Dropout(x)\nout y m\n"});
}

static void equal_sizes_do_not_make_a_scale_of_one(void **state) {
  (void)state;
  CHECK(
      {'A', X3("5") "const s float32[1] 1\ny = Resize(x, _, s)\nout y\n"},
      {'R', X3("5") "const s float32[1] 1.1\ny = Resize(x, _, s)\nout y\n"},
      {'A', X3("5") "y = Resize(x, _, _, [5])\nout y\n"},
      {'R', X3("5") "y = Resize(x, _, _, [10])\nout y\n"},
      {'M', X3("a") "y = Resize(x, _, _, [5])\nout y\n"},
      {'R', X3("5") "const r float32[2] 0 1\nconst s float32[1] 1\n"
                    "y = Resize(x, r, s) "
                    "{coordinate_transformation_mode=\"tf_crop_and_resize\"}\n"
                    "out y\n"});
}

static void nodes_of_which_only_dims_are_read_never_run(void **state) {
  (void)state;
  CHECK({'A', X3("a,b") "y = Exp(x)\nz = Shape(y)\nout z\n"},
        {'A', X3("a,b") "y = Exp(x)\nw = Abs(y)\nz = Size(w)\nout z\n"},
        {'R', X3("a,b") "y = Exp(x)\nz = Shape(y)\nout z y\n"},
        {'R', X3("a,b") "y = NonZero(x)\nz = Shape(y)\nout z\n"});
}

static void the_verifier_rejects_skippable_nodes_that_are_not_optimized(
    void **state) {
  (void)state;
  lb_graph *g = graph_of(X3("a,b") "y = Exp(x)\nout y\n");
  g->main->nodes[0]->runtime_skippable = true;
  lb_status st = lb_graph_verify(g);
  assert_int_equal(lb_status_code(st), LB_INTERNAL);
  assert_non_null(strstr(lb_status_message(st), "runtime_skippable"));
  lb_status_drop(st);
  g->main->nodes[0]->optimized = true;
  must(lb_graph_verify(g));
  lb_graph_free(g);
}

static void optimising_marks_what_is_left(void **state) {
  (void)state;
  lb_graph *g = graph_of(X3("a,b") "y = Exp(x)\nz = Transpose(y)\nout z\n");
  must(lb_graph_optimize(g, NULL));
  assert_false(g->main->nodes[0]->optimized);
  assert_true(g->main->nodes[1]->optimized);
  assert_true(g->main->nodes[1]->runtime_skippable);
  lb_graph_free(g);
}

static void proofs_name_operator_dims_and_reason(void **state) {
  (void)state;
  lb_graph *g =
      graph_of(X3("128,1,32,64") "y = Transpose(x) {perm=[0,2,1,3]}\nout y\n");
  const lb_node *n = g->main->nodes[0];
  lb_proof proof;
  char line[160];
  assert_int_equal(lb_skip_at_load(n, true, &proof), LB_SKIP_SAME);
  lb_proof_print(n, &proof, 4, (int64_t[]){128, 1, 32, 64}, line, sizeof line);
  assert_string_equal(line,
                      "Transpose [0,2,1,3] of [128,1,32,64]: dim 1 is 1, the "
                      "others keep their order");
  proof = (lb_proof){.kind = LB_PROOF_RANGE, .axis = 1, .first = 3, .n = 4};
  lb_proof_print(n, &proof, 0, NULL, line, 40);
  assert_string_equal(line, "Transpose [0,2,1,3]: its 4 indices alon");
  lb_graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(permutes_keep_the_order_of_dims_above_one),
      cmocka_unit_test(shapes_alone_never_move_elements),
      cmocka_unit_test(windows_are_decided_when_contents_are_known),
      cmocka_unit_test(nothing_to_write_or_to_add_is_nothing),
      cmocka_unit_test(axes_of_size_one_reduce_nothing),
      cmocka_unit_test(only_operands_that_keep_every_bit_are_neutral),
      cmocka_unit_test(equal_sizes_do_not_make_a_scale_of_one),
      cmocka_unit_test(nodes_of_which_only_dims_are_read_never_run),
      cmocka_unit_test(
          the_verifier_rejects_skippable_nodes_that_are_not_optimized),
      cmocka_unit_test(optimising_marks_what_is_left),
      cmocka_unit_test(proofs_name_operator_dims_and_reason),
  };
  return cmocka_run_group_tests_name("skip", tests, NULL, NULL);
}
