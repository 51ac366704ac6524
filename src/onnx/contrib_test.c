// onnx/contrib_test.c -- operators of ONNX Runtime, expressed in ONNX
// operators.
#include "onnx/contrib.h"
#include "onnx/model_test.h"

static pb theirs(const char *op, const char *in, const char *out) {
  pb n = pb_node(op, "n", in, out);
  pb_str(&n, 7, "com.microsoft");
  return n;
}

static void guards_depend_on_the_call(void **state) {
  (void)state;
  expect_graph(
      pb_model(pb_graph("x,b", theirs("FastGelu", "x,b", "y"), "y"), 17),
      "FastGelu_1/s=Add(x,b); y=Gelu(FastGelu_1/s) approximate=tanh -> y");
  expect_graph(
      pb_model(pb_graph("x", theirs("FastGelu", "x", "y"), "y"), 17),
      "FastGelu_1/s=Identity(x); y=Gelu(FastGelu_1/s) approximate=tanh "
      "-> y");
}

static void operators_may_use_each_other(void **state) {
  (void)state;
  pb n = theirs("DynamicQuantizeMatMul", "a,b,s", "y");
  expect_graph(pb_model(pb_graph("a,b,s", n, "y"), 17),
               "DynamicQuantizeMatMul_1/q,DynamicQuantizeMatMul_1/scale,"
               "DynamicQuantizeMatMul_1/zero=DynamicQuantizeLinear(a); "
               "MatMulIntegerToFloat_2/i=MatMulInteger("
               "DynamicQuantizeMatMul_1/q,b,DynamicQuantizeMatMul_1/zero); "
               "MatMulIntegerToFloat_2/f=Cast(MatMulIntegerToFloat_2/i) to=1; "
               "MatMulIntegerToFloat_2/scale=Mul("
               "DynamicQuantizeMatMul_1/scale,s); "
               "y=Mul(MatMulIntegerToFloat_2/f,MatMulIntegerToFloat_2/scale) "
               "-> y");
}

// A text may name a value like a generated constant.
static void generated_constant_names_are_unique(void **state) {
  (void)state;
  pb n = theirs("FusedGemm", "a,b,c", "y"),
     params = pb_attr("activation_params", 6);
  pb_attr_str(&n, "activation", "HardSigmoid");
  pb_float(&params, 7, 0.5f);
  pb_float(&params, 7, 0.25f);
  pb_msg(&n, 5, params);
  expect_graph(pb_model(pb_graph("a,b,c", n, "y"), 17),
               "FusedGemm_1/x=Gemm(a,b,c); FusedGemm_1/a=Gather([0.5,0.25],0); "
               "FusedGemm_1/e=Gather([0.5,0.25],1); "
               "FusedGemm_1/s=Mul(FusedGemm_1/x,FusedGemm_1/a); "
               "FusedGemm_1/t=Add(FusedGemm_1/s,FusedGemm_1/e); "
               "y=Clip(FusedGemm_1/t,0,1) -> y");
}

static void unsupported_variants_are_refused(void **state) {
  (void)state;
  pb odd = theirs("FusedGemm", "a,b", "y");
  pb_attr_str(&odd, "activation", "Odd");
  expect_error(pb_model(pb_graph("a,b", odd, "y"), 17), LB_UNSUPPORTED,
               "node 'n' (FusedGemm): an activation of that name: "
               "not supported by Limber");
  pb n = theirs("FusedMatMul", "a,b", "y");
  pb_attr_int(&n, "transBatchA", 1);
  expect_error(pb_model(pb_graph("a,b", n, "y"), 17), LB_UNSUPPORTED,
               "node 'n' (FusedMatMul): transBatchA: not supported by Limber");
}

// -- all texts ---------------------------------------------------------------

enum { MAX_NAMES = 32 };

// Counts names between two characters of a signature.
static uint32_t count_names(const char *from, const char *to) {
  uint32_t n = 1;
  for (; from < to; from++) n += *from == ',';
  return n;
}

static bool is_known(const lb_pb_node *n) {
  char domain[32], type[64];
  snprintf(domain, sizeof domain, "%.*s", LB_STR(n->domain));
  snprintf(type, sizeof type, "%.*s", LB_STR(n->op_type));
  if (strcmp(type, "Constant") == 0) return true;
  if (!domain[0] && lb_op_find(domain, type) != LB_OP_COUNT) return true;
  for (size_t i = 0; lb_contrib_text(i); i++) {
    const char *text = lb_contrib_text(i);
    size_t len = strlen(domain);
    if (domain[0] && strncmp(text, domain, len) == 0 && text[len] == '.' &&
        strncmp(text + len + 1, type, strlen(type)) == 0)
      return true;
  }
  return false;
}

// A call with `n_in` inputs and either the first output or all of them.
static void check_call(const char *text, uint32_t n_in, uint32_t n_out) {
  lb_pb_str names[MAX_NAMES];
  for (int i = 0; i < MAX_NAMES; i++) names[i] = (lb_pb_str){"v", 1};
  const char *end = text + strcspn(text, "<("), *name = end;
  while (name > text && name[-1] != '.') name--;
  lb_pb_node call = {.name = {"n", 1},
                     .op_type = {name, (size_t)(end - name)},
                     .refs = names,
                     .out = names,
                     .n_in = n_in,
                     .n_out = n_out};
  if (name > text) call.domain = (lb_pb_str){text, (size_t)(name - 1 - text)};
  lb_arena a;
  lb_arena_init(&a, 4096);
  lb_contrib *all = NULL;
  lb_pb_function *fn, *again;
  lb_status st = lb_contrib_find(&all, &a, &a, &call, &fn);
  if (lb_status_code(st) == LB_UNSUPPORTED) {  // a line refuses it
    lb_status_drop(st);
    lb_arena_fini(&a);
    return;
  }
  expect_success(st);
  assert_non_null(fn);
  assert_true(fn->nodes.n > 0);
  for (uint32_t i = 0; i < fn->nodes.n; i++)
    assert_true(is_known(&fn->nodes.at[i]));
  expect_success(lb_contrib_find(&all, &a, &a, &call, &again));
  assert_ptr_equal(fn, again);
  lb_arena_fini(&a);
}

static void every_text_can_be_read(void **state) {
  (void)state;
  for (size_t i = 0; lb_contrib_text(i); i++) {
    const char *text = lb_contrib_text(i), *head = strchr(text, '(');
    const char *arrow = strstr(text, "->");
    uint32_t in = count_names(head, strchr(head, ')'));
    uint32_t out = count_names(arrow, strchr(arrow, '\n'));
    for (uint32_t n = 1; n <= in; n++) {
      check_call(text, n, 1);
      check_call(text, n, out);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(guards_depend_on_the_call),
      cmocka_unit_test(operators_may_use_each_other),
      cmocka_unit_test(generated_constant_names_are_unique),
      cmocka_unit_test(unsupported_variants_are_refused),
      cmocka_unit_test(every_text_can_be_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
