// onnx/upgrade_test.c -- operators of older opsets and their new form.
#include "onnx/model_test.h"

static void expect_form(pb node, int64_t opset, const char *in, const char *out,
                        const char *text) {
  expect_graph(pb_model(pb_graph(in, node, out), opset), text);
}

#define INTS(...)                                                          \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { \
    __VA_ARGS__                                                            \
  }

static void old_softmax_flattens(void **state) {
  (void)state;
  expect_form(pb_node("Softmax", "s", "x", "y"), 12, "x", "y",
              "y=Softmax(x) axis=1 flatten=1 -> y");
  expect_form(pb_node("Softmax", "s", "x", "y"), 13, "x", "y",
              "y=Softmax(x) -> y");
  pb n = pb_node("LogSoftmax", "s", "x", "y");
  pb_attr_int(&n, "axis", -1);
  expect_form(n, 11, "x", "y", "y=LogSoftmax(x) axis=-1 flatten=1 -> y");
}

static void axes_become_an_input(void **state) {
  (void)state;
  pb n = pb_node("Squeeze", "s", "x", "y");
  pb_attr_ints(&n, "axes", INTS(0, 2));
  expect_form(n, 12, "x", "y", "y=Squeeze(x,[0,2]) -> y");
  expect_form(pb_node("Squeeze", "s", "x", "y"), 12, "x", "y",
              "y=Squeeze(x) -> y");
  n = pb_node("Unsqueeze", "u", "x", "y");
  pb_attr_ints(&n, "axes", INTS(1));
  expect_form(n, 7, "x", "y", "y=Unsqueeze(x,[1]) -> y");
  expect_error(
      pb_model(pb_graph("x", pb_node("Unsqueeze", "u", "x", "y"), "y"), 7),
      LB_INVALID, "node 'u' (Unsqueeze) has no attribute 'axes'");
  n = pb_node("ReduceMean", "r", "x", "y");
  pb_attr_ints(&n, "axes", INTS(-1));
  pb_attr_int(&n, "keepdims", 0);
  expect_form(n, 17, "x", "y", "y=ReduceMean(x,[-1]) keepdims=0 -> y");
  n = pb_node("ReduceSum", "r", "x,a", "y");
  expect_form(n, 13, "x,a", "y", "y=ReduceSum(x,a) -> y");
  n = pb_node("ReduceSum", "r", "x", "y");
  pb_attr_ints(&n, "axes", INTS(1));
  expect_form(n, 11, "x", "y", "y=ReduceSum(x,[1]) -> y");
}

static void split_sizes_become_an_input_or_a_count(void **state) {
  (void)state;
  pb n = pb_node("Split", "s", "x", "p,q");
  pb_attr_ints(&n, "split", INTS(1, 2));
  expect_form(n, 11, "x", "p,q", "p,q=Split(x,[1,2]) -> p,q");
  expect_form(pb_node("Split", "s", "x", "p,q,r"), 13, "x", "q",
              "p,q,r=Split(x) num_outputs=3 -> q");
  n = pb_node("Split", "s", "x", "p,-");
  pb_attr_int(&n, "num_outputs", 2);
  expect_form(n, 18, "x", "p", "p,_=Split(x) num_outputs=2 -> p");
}

static void slice_and_pad_and_top_k_take_inputs(void **state) {
  (void)state;
  pb n = pb_node("Slice", "s", "x", "y");
  pb_attr_ints(&n, "starts", INTS(0, 1));
  pb_attr_ints(&n, "ends", INTS(2, 3));
  pb_attr_ints(&n, "axes", INTS(1, 0));
  expect_form(n, 9, "x", "y", "y=Slice(x,[0,1],[2,3],[1,0]) -> y");
  n = pb_node("Pad", "p", "x", "y");
  pb_attr_ints(&n, "pads", INTS(0, 1, 0, 1));
  pb_attr_float(&n, "value", 2.5f);
  pb_attr_str(&n, "mode", "constant");
  expect_form(n, 10, "x", "y", "y=Pad(x,[0,1,0,1],2.5) mode=constant -> y");
  n = pb_node("TopK", "t", "x", "v,i");
  pb_attr_int(&n, "k", 3);
  expect_form(n, 9, "x", "v,i", "v,i=TopK(x,[3]) -> v,i");
}

static void clip_bounds_get_the_dtype_of_the_data(void **state) {
  (void)state;
  pb n = pb_node("Clip", "c", "x", "y");
  pb_attr_float(&n, "max", 6);
  expect_form(n, 10, "x", "y", "y=Clip(x,_,6) -> y");
  pb g = pb_graph("x", pb_node("Relu", "r", "x", "h"), "y");
  n = pb_node("Clip", "c", "h", "y");
  pb_attr_float(&n, "min", 0);
  pb_msg(&g, 1, n);
  expect_graph(pb_model(g, 10),
               "h=Relu(x); c/min_cast=CastLike(0,h); y=Clip(h,c/min_cast) -> "
               "y");
}

static void dropout_loses_its_ratio(void **state) {
  (void)state;
  pb n = pb_node("Dropout", "d", "x", "y,m");
  pb_attr_float(&n, "ratio", 0.5f);
  expect_form(n, 11, "x", "y", "y,m=Dropout(x) -> y");
  n = pb_node("Dropout", "d", "x", "y,m");
  pb_attr_float(&n, "ratio", 0.5f);
  expect_form(n, 7, "x", "y", "y=Dropout(x) -> y");
}

static void upsample_and_the_first_resize_are_resize(void **state) {
  (void)state;
  pb n = pb_node("Upsample", "u", "x", "y");
  pb_attr_floats(&n, "scales", 2, (float[]){1, 2});
  pb_attr_str(&n, "mode", "linear");
  expect_form(n, 7, "x", "y",
              "y=Resize(x,_,[1,2]) mode=linear "
              "coordinate_transformation_mode=asymmetric nearest_mode=by_scale "
              "-> y");
  expect_form(pb_node("Resize", "u", "x,s", "y"), 10, "x,s", "y",
              "y=Resize(x,_,s) coordinate_transformation_mode=asymmetric "
              "nearest_mode=by_scale -> y");
  expect_form(pb_node("Upsample", "u", "x,s", "y"), 12, "x,s", "y",
              "y=Resize(x,_,s) coordinate_transformation_mode=asymmetric "
              "nearest_mode=by_scale -> y");
}

static void empty_lists_of_resize_are_absent(void **state) {
  (void)state;
  pb g = pb_graph("x,s", pb_node("Resize", "r", "x,e,e,s", "y"), "y");
  pb_msg(&g, 5, pb_floats("e", 0, NULL));
  expect_graph(pb_model(g, 13), "y=Resize(x,_,_,s) -> y");
}

static void renamed_operators_and_modes(void **state) {
  (void)state;
  expect_form(pb_node("Scatter", "s", "x,i,u", "y"), 9, "x,i,u", "y",
              "y=ScatterElements(x,i,u) -> y");
  pb n = pb_node("GridSample", "g", "x,i", "y");
  pb_attr_str(&n, "mode", "bicubic");
  expect_form(n, 16, "x,i", "y", "y=GridSample(x,i) mode=cubic -> y");
  expect_form(pb_node("RoiAlign", "r", "x,i,u", "y"), 10, "x,i,u", "y",
              "y=RoiAlign(x,i,u) "
              "coordinate_transformation_mode=output_half_pixel -> y");
  expect_form(pb_node("GroupNormalization", "g", "x,s,b", "y"), 18, "x,s,b",
              "y", "y=GroupNormalization(x,s,b) per_group=1 -> y");
  expect_form(pb_node("DFT", "d", "x", "y"), 17, "x", "y", "y=DFT(x,_,1) -> y");
}

static void batch_norm_of_old_opsets(void **state) {
  (void)state;
  pb n = pb_node("BatchNormalization", "b", "x,s,b,m,v", "y");
  pb_attr_int(&n, "spatial", 1);
  expect_form(n, 7, "x,s,b,m,v", "y", "y=BatchNormalization(x,s,b,m,v) -> y");
  n = pb_node("BatchNormalization", "b", "x,s,b,m,v", "y");
  pb_attr_int(&n, "spatial", 0);
  expect_error(pb_model(pb_graph("x,s,b,m,v", n, "y"), 7), LB_UNSUPPORTED,
               "node 'b' (BatchNormalization) of opset 7: spatial=0 is not "
               "supported");
  n = pb_node("BatchNormalization", "b", "x,s,b,m,v", "y,rm,rv");
  expect_form(n, 9, "x,s,b,m,v", "y",
              "y,rm,rv=BatchNormalization(x,s,b,m,v) training_mode=1 -> y");
}

static void constants_become_values(void **state) {
  (void)state;
  pb n = pb_node("Constant", "k", "", "c");
  pb_attr_msg(&n, "value", 4, 5, pb_int64s(NULL, 2, (int64_t[]){4, 5}));
  expect_form(n, 9, "", "c", " -> [4,5]");
  n = pb_node("Constant", "k", "", "c");
  pb_attr_int(&n, "value_int", 7);
  expect_form(n, 13, "", "c", " -> 7");
  n = pb_node("Constant", "k", "", "c");
  pb_attr_floats(&n, "value_floats", 2, (float[]){1, 0.5f});
  expect_form(n, 13, "", "c", " -> [1,0.5]");
  n = pb_node("Constant", "k", "", "c");
  pb_attr_ints(&n, "value_ints", INTS(3));
  expect_form(n, 13, "", "c", " -> [3]");
  n = pb_node("Constant", "k", "", "c");
  pb_attr_str(&n, "value_string", "s");
  expect_error(pb_model(pb_graph("", n, "c"), 13), LB_UNSUPPORTED,
               "node 'k' (Constant) has no numeric value: its attribute is "
               "'value_string'");
  n = pb_node("Constant", "k", "", "c");
  pb_attr_msg(&n, "value", 4, 5, pb_tensor(NULL, T_STRING, 0, NULL));
  expect_error(pb_model(pb_graph("", n, "c"), 13), LB_UNSUPPORTED,
               "node 'k' (Constant): its tensor has elements of type string "
               "(8), which Limber does not have");
}

static void tensor_attributes_stay_attributes(void **state) {
  (void)state;
  pb n = pb_node("ConstantOfShape", "k", "x", "y");
  pb_attr_msg(&n, "value", 4, 5, pb_floats(NULL, 1, (float[]){2}));
  expect_form(n, 9, "x", "y", "y=ConstantOfShape(x) value=[2] -> y");
}

static pb rnn(const char *direction, int activations) {
  pb n = pb_node("RNN", "r", "x,w,r", "y"), a = pb_attr("activations", 8);
  for (int i = 0; i < activations; i++) pb_str(&a, 9, i ? "Relu" : "Tanh");
  pb_msg(&n, 5, a);
  if (direction) pb_attr_str(&n, "direction", direction);
  return n;
}

static void one_direction_has_the_first_of_two_activations(void **state) {
  (void)state;
  expect_form(rnn(NULL, 2), 22, "x,w,r", "y",
              "y=RNN(x,w,r) activations=Tanh -> y");
  expect_form(rnn("reverse", 2), 7, "x,w,r", "y",
              "y=RNN(x,w,r) activations=Tanh direction=reverse -> y");
  expect_form(
      rnn("bidirectional", 2), 14, "x,w,r", "y",
      "y=RNN(x,w,r) activations=Tanh,Relu direction=bidirectional -> y");
}

static void scan_over_batches_is_unsupported(void **state) {
  (void)state;
  pb n = pb_node("Scan", "s", "-,x", "y");
  expect_error(pb_model(pb_graph("x", n, "y"), 8), LB_UNSUPPORTED,
               "node 's' (Scan) of opset 8: Scan over batches (opset 8) is not "
               "supported; opset 9 and newer are");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(old_softmax_flattens),
      cmocka_unit_test(axes_become_an_input),
      cmocka_unit_test(split_sizes_become_an_input_or_a_count),
      cmocka_unit_test(slice_and_pad_and_top_k_take_inputs),
      cmocka_unit_test(clip_bounds_get_the_dtype_of_the_data),
      cmocka_unit_test(dropout_loses_its_ratio),
      cmocka_unit_test(upsample_and_the_first_resize_are_resize),
      cmocka_unit_test(empty_lists_of_resize_are_absent),
      cmocka_unit_test(renamed_operators_and_modes),
      cmocka_unit_test(batch_norm_of_old_opsets),
      cmocka_unit_test(constants_become_values),
      cmocka_unit_test(tensor_attributes_stay_attributes),
      cmocka_unit_test(one_direction_has_the_first_of_two_activations),
      cmocka_unit_test(scan_over_batches_is_unsupported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
