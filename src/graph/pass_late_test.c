// graph/pass_late_test.c -- one-hot matmuls become gathers, convolutions along
// one axis become matmuls, input projections leave recurrences, transposes
// sink, and large windows are split.
#include "graph/text_test.h"

static void a_matmul_with_one_hot_rows_becomes_a_gather(void **state) {
  (void)state;
  becomes(
      "in x int64[b,5,1]\n"
      "const n int64[1,1,3] 0 1 2\n"
      "const w float32[3,2] 1 2 3 4 5 6\n"
      "e = Equal(x, n)\n"
      "h = Cast(e) {to=1}\n"
      "y = MatMul(h, w)\n"
      "out y\n",
      NULL,
      "in x: int64[b,5,1]\n"
      "y.Clip: int64[b,5,1] = Clip(x, -1, 3)\n"
      "y.Add: int64[b,5,1] = Add(y.Clip, 1)\n"
      "y.Squeeze: int64[b,5] = Squeeze(y.Add, [-1])\n"
      "y: float32[b,5,2] = Gather(w:float32[5,2], y.Squeeze) {axis=0}\n"
      "out y\n");
}

static void other_comparisons_are_unchanged(void **state) {
  (void)state;
  stays(
      "in x int64[b,5,1]\n"
      "const n int64[1,1,3] 0 2 1\n"
      "const w float32[3,2] 1 2 3 4 5 6\n"
      "e = Equal(x, n)\n"
      "h = Cast(e) {to=1}\n"
      "y = MatMul(h, w)\n"
      "out y\n");
  stays(  // the one-hot rows have another reader
      "in x int64[b,5,1]\n"
      "const n int64[1,1,3] 0 1 2\n"
      "const w float32[3,2] 1 2 3 4 5 6\n"
      "e = Equal(x, n)\n"
      "h = Cast(e) {to=1}\n"
      "y = MatMul(h, w)\n"
      "out y h\n");
}

static void a_gather_of_all_elements_in_order_is_removed(void **state) {
  (void)state;
  static const char form[] =
      "in x float32[b,t]\n"
      "s = Shape(x)\n"
      "n = Gather(s, 0)\n"
      "m = Gather(s, 1)\n"
      "r = Range(0, n, 1)\n"
      "c = Range(0, m, 1)\n"
      "u = Unsqueeze(r, [%d,2])\n"
      "v = Unsqueeze(c, [%s])\n"
      "k = Mul(u, %s)\n"
      "i = Add(v, k)\n"
      "f = Flatten(x) {axis=2}\n"
      "g = Gather(f, i)\n"
      "l = Reshape(g, [-1])\n"
      "d = Shape(i)\n"
      "h = Reshape(l, d)\n"
      "y = Relu(h)\n"
      "out y\n";
  char source[512];
  snprintf(source, sizeof source, form, 1, "0,1", "m");
  becomes(source, NULL,
          "in x: float32[b,t]\n"
          "g.Unsqueeze: float32[b,1,t] = Unsqueeze(x, [1])\n"
          "y: float32[b,1,t] = Relu(g.Unsqueeze)\n"
          "out y\n");
  // Columns before rows, and a row stride equal to the number of rows.
  const char *other_orders[] = {"1,2", "m", "0,1", "n"};
  for (int i = 0; i < 2; i++) {
    snprintf(source, sizeof source, form, i ? 1 : 0, other_orders[2 * i],
             other_orders[2 * i + 1]);
    lb_graph *g = graph_of(source);
    must(lb_graph_optimize(g, &(lb_pass_options){0}));
    lb_strbuf dump = {0};
    lb_graph_dump(g, &dump);
    assert_non_null(strstr(lb_strbuf_str(&dump), "Gather(f, i)"));
    lb_strbuf_fini(&dump);
    lb_graph_free(g);
  }
}

static void elementwise_operators_move_before_the_gather(void **state) {
  (void)state;
  becomes(
      "in x int64[b,5]\n"
      "const w float32[3,2] 1 2 3 4 5 6\n"
      "const c float32[1,1,2] 7 8\n"
      "g = Gather(w, x) {axis=0}\n"
      "y = Add(g, c)\n"
      "out y\n",
      NULL,
      "in x: int64[b,5]\n"
      "y.Add: float32[3,2] = Add(w:float32[3,2], [7,8])\n"
      "y: float32[b,5,2] = Gather(y.Add, x) {axis=0}\n"
      "out y\n");
}

static void a_channels_last_convolution_becomes_a_matmul(void **state) {
  (void)state;
  becomes(
      "in x float32[b,9,4]\n"
      "const w float32[6,4,3] 1\n"
      "const c float32[6] 1\n"
      "t = Transpose(x) {perm=[0,2,1]}\n"
      "y = Conv(t, w, c) {strides=[2]}\n"
      "out y\n",
      NULL,
      "in x: float32[b,9,4]\n"
      "y.Conv.Unfold: float32[b,4,12] = Unfold(x) {size=3, step=2}\n"
      "y.Conv.MatMul: float32[b,4,6] = "
      "MatMul(y.Conv.Unfold, w:float32[12,6])\n"
      "y.Conv: float32[b,4,6] = Add(y.Conv.MatMul, c:float32[6])\n"
      "y: float32[b,6,4] = Transpose(y.Conv) {perm=[0,2,1]}\n"
      "out y\n");
}

static void non_overlapping_transposed_windows_become_channels(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4,w,1]\n"
      "const k float32[1,8,2,2] 1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 "
      "8 1 2 3 4 5 6 7 8\n"
      "c = ConvTranspose(x, k) {strides=[2,2], channels_last=1}\n"
      "y = Relu(c)\n"
      "out y\n",
      NULL,
      "in x: float32[b,4,w,1]\n"
      "c.ConvTranspose: float32[b,8,w,16] = "
      "ConvTranspose(x, k:float32[1,16,2,1]) {channels_last=1, "
      "kernel_shape=[2,1], strides=[2,1], dilations=[1,1], "
      "output_padding=[0,0]}\n"
      "y.Relu: float32[b,8,w,16] = Relu(c.ConvTranspose)\n"
      "y: float32[b,8,2*w,8] = Reshape(y.Relu, [0,0,-1,8])\n"
      "out y\n");
}

static void a_channels_first_convolution_is_unchanged(void **state) {
  (void)state;
  const char *text_after_input =
      "const w float32[6,4,3] 1\n"
      "y = Conv(x, w) {strides=[2]}\n"
      "out y\n";
  lb_strbuf s = {0};
  lb_strbuf_printf(&s, "in x float32[b,4,9]\n%s", text_after_input);
  stays(lb_strbuf_str(&s));
  lb_strbuf_fini(&s);
}

static void channels_stay_last_between_convolutions(void **state) {
  (void)state;
  becomes(
      "in x float32[b,3,h,w]\n"
      "const v float32[4,3,3,3] 1\n"
      "const u float32[2,4,2,2] 1\n"
      "c = Conv(x, v) {pads=[1,1,1,1]}\n"
      "r = Relu(c)\n"
      "m = MaxPool(r) {kernel_shape=[2,2], strides=[2,2]}\n"
      "s, t = Split(m, [1,3]) {axis=1}\n"
      "k = Concat(t, s) {axis=1}\n"
      "y = Conv(k, u) {strides=[2,2]}\n"
      "out y\n",
      &(lb_pass_options){.channels_last = true},
      "in x: float32[b,3,h,w]\n"
      "c.Transpose: float32[b,h,w,3] = Transpose(x) {perm=[0,2,3,1]}\n"
      "c.Conv: float32[b,h,w,4] = Conv(c.Transpose, v:float32[4,3,3,3]) "
      "{pads=[1,1,1,1], channels_last=1}\n"
      "r.Relu: float32[b,h,w,4] = Relu(c.Conv)\n"
      "m.MaxPool: float32[b,floor(h/2),floor(w/2),4] = MaxPool(r.Relu) "
      "{kernel_shape=[2,2], strides=[2,2], channels_last=1}\n"
      "s.Split: float32[b,floor(h/2),floor(w/2),1], "
      "t.Split: float32[b,floor(h/2),floor(w/2),3] = "
      "Split(m.MaxPool, [1,3]) {axis=3}\n"
      "k.Concat: float32[b,floor(h/2),floor(w/2),4] = "
      "Concat(t.Split, s.Split) {axis=3}\n"
      "y.Conv: float32[b,floor(h/4),floor(w/4),2] = "
      "Conv(k.Concat, u:float32[2,4,2,2]) {strides=[2,2], channels_last=1}\n"
      "y: float32[b,2,floor(h/4),floor(w/4)] = "
      "Transpose(y.Conv) {perm=[0,3,1,2]}\n"
      "out y\n");
}

static void a_single_pool_becomes_channels_last(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4,h,w]\n"
      "y = AveragePool(x) {kernel_shape=[2,2], strides=[2,2]}\n"
      "out y\n",
      &(lb_pass_options){.channels_last = true},
      "in x: float32[b,4,h,w]\n"
      "y.Transpose: float32[b,h,w,4] = Transpose(x) {perm=[0,2,3,1]}\n"
      "y.AveragePool: float32[b,floor(h/2),floor(w/2),4] = "
      "AveragePool(y.Transpose) {kernel_shape=[2,2], strides=[2,2], "
      "channels_last=1}\n"
      "y: float32[b,4,floor(h/2),floor(w/2)] = "
      "Transpose(y.AveragePool) {perm=[0,3,1,2]}\n"
      "out y\n");
}

static void a_transpose_sinks_to_the_outputs(void **state) {
  (void)state;
  becomes(
      "in x float32[b,9,4]\n"
      "const c float32[1,4,1] 1 2 3 4\n"
      "t = Transpose(x) {perm=[0,2,1]}\n"
      "a = Add(t, c)\n"
      "r = Relu(a)\n"
      "m = GlobalMaxPool(r)\n"
      "y = Squeeze(m, [2])\n"
      "out y\n",
      NULL,
      "in x: float32[b,9,4]\n"
      "a.Add: float32[b,9,4] = Add(x, c:float32[1,1,4])\n"
      "r.Relu: float32[b,9,4] = Relu(a.Add)\n"
      "m.ReduceMax: float32[b,1,4] = ReduceMax(r.Relu, [1]) {keepdims=1}\n"
      "y.Squeeze: float32[b,4] = Squeeze(m.ReduceMax, [1])\n"
      "out y = y.Squeeze\n");
}

static void a_transpose_that_keeps_the_last_axis_does_not_sink(void **state) {
  (void)state;
  stays(
      "in x float32[b,9,4,8]\n"
      "t = Transpose(x) {perm=[0,2,1,3]}\n"
      "y = Relu(t)\n"
      "out y\n");
}

static void a_transpose_sinks_through_reshapes_that_keep_axes(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,6]\n"
      "t = Transpose(x) {perm=[0,3,1,2]}\n"
      "r = Reshape(t, [0,6,-1])\n"
      "u = Reshape(r, [0,2,3,-1])\n"
      "y = Softmax(u) {axis=2}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,6]\n"
      "r.Reshape: float32[b,h*w,6] = Reshape(x, [0,-1,6])\n"
      "u.Reshape: float32[b,h*w,2,3] = Reshape(r.Reshape, [0,0,2,3])\n"
      "y.Softmax: float32[b,h*w,2,3] = Softmax(u.Reshape) {axis=3}\n"
      "y: float32[b,2,3,h*w] = Transpose(y.Softmax) {perm=[0,2,3,1]}\n"
      "out y\n");
}

static void channel_shuffle_keeps_channels_last(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,6]\n"
      "t = Transpose(x) {perm=[0,3,1,2]}\n"
      "r = Reshape(t, [0,6,-1])\n"
      "u = Reshape(r, [0,2,3,-1])\n"
      "v = Transpose(u) {perm=[0,2,1,3]}\n"
      "y = Reshape(v, [0,6,-1])\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,6]\n"
      "r.Reshape: float32[b,h*w,6] = Reshape(x, [0,-1,6])\n"
      "u.Reshape: float32[b,h*w,2,3] = Reshape(r.Reshape, [0,0,2,3])\n"
      "y.Transpose: float32[b,h*w,3,2] = Transpose(u.Reshape) "
      "{perm=[0,1,3,2]}\n"
      "y.Reshape: float32[b,h*w,6] = Reshape(y.Transpose, [0,0,6])\n"
      "y: float32[b,6,h*w] = Transpose(y.Reshape) {perm=[0,2,1]}\n"
      "out y\n");
}

// The merged axes have another order in the source.
static void a_transpose_does_not_sink_through_reshapes_across_it(void **state) {
  (void)state;
  stays(
      "in x float32[b,9,4]\n"
      "t = Transpose(x) {perm=[0,2,1]}\n"
      "y = Reshape(t, [0,36])\n"
      "out y\n");
}

static void the_input_projection_leaves_a_recurrence(void **state) {
  (void)state;
  becomes(
      "in x float32[t,b,3]\n"
      "const w float32[1,8,3] 1\n"
      "const r float32[1,8,2] 1\n"
      "const c float32[1,16] 1 2\n"
      "y, h = LSTM(x, w, r, c)\n"
      "out y h\n",
      NULL,
      "in x: float32[t,b,3]\n"
      "y.MatMul: float32[t,b,8] = MatMul(x, w:float32[3,8])\n"
      "y.Add: float32[t,b,8] = Add(y.MatMul, c:float32[8])\n"
      "y: float32[t,1,b,2], h: float32[1,b,2] = "
      "LSTM(y.Add, _, r:float32[1,8,2], c:float32[1,16]) {projected=1}\n"
      "out y\n"
      "out h\n");
  becomes(
      "in x float32[*]\n"
      "const w float32[2,3,4] 1\n"
      "const r float32[2,3,1] 1\n"
      "_, h = GRU(x, w, r) {direction=\"bidirectional\"}\n"
      "out h\n",
      NULL,
      "in x: float32[*]\n"
      "h.Reshape: float32[?10,?11,4] = Reshape(x, [0,0,4])\n"
      "h.MatMul: float32[?10,?11,6] = MatMul(h.Reshape, w:float32[4,6])\n"
      "_, h: float32[2,?11,1] = GRU(h.MatMul, _, r:float32[2,3,1]) "
      "{direction=\"bidirectional\", projected=1}\n"
      "out h\n");
}

static void sequence_lengths_become_a_mask(void **state) {
  (void)state;
  becomes(
      "in x float32[b,t,3]\n"
      "in n int32[b]\n"
      "const w float32[1,2,3] 1\n"
      "const r float32[1,2,2] 1\n"
      "y = RNN(x, w, r, _, n) {layout=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,t,3]\n"
      "in n: int32[b]\n"
      "y.MatMul: float32[b,t,2] = MatMul(x, w:float32[3,2])\n"
      "y.Within: float32[t,b] = Within(n, y.MatMul) {layout=1}\n"
      "y: float32[b,t,1,2] = "
      "RNN(y.MatMul, _, r:float32[1,2,2], _, y.Within) {layout=1, "
      "projected=1}\n"
      "out y\n");
}

static void a_recurrence_without_constant_weights_is_unchanged(void **state) {
  (void)state;
  stays(
      "in x float32[t,b,3]\n"
      "in w float32[1,2,3]\n"
      "const r float32[1,2,2] 1\n"
      "y = RNN(x, w, r)\n"
      "out y\n");
}

static void a_large_pool_is_split_by_axis(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,4]\n"
      "y = MaxPool(x) {kernel_shape=[5,7], strides=[2,1], pads=[2,3,1,3], "
      "channels_last=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,4]\n"
      "y.MaxPool: float32[b,h,w,4] = MaxPool(x) {kernel_shape=[1,7], "
      "strides=[1,1], pads=[0,3,0,3], channels_last=1, dilations=[1,1]}\n"
      "y: float32[b,floor(h/2),w,4] = MaxPool(y.MaxPool) {kernel_shape=[5,1], "
      "strides=[2,1], pads=[2,0,1,0], channels_last=1, dilations=[1,1]}\n"
      "out y\n");
}

static void a_3d_pool_is_split_into_2d_and_depth(void **state) {
  (void)state;
  becomes(
      "in x float32[b,d,h,w,4]\n"
      "y = AveragePool(x) {kernel_shape=[2,3,3], strides=[2,1,1], "
      "pads=[0,1,1,0,1,1], channels_last=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,d,h,w,4]\n"
      "y.AveragePool: float32[b,d,h,w,4] = AveragePool(x) "
      "{kernel_shape=[1,3,3], strides=[1,1,1], pads=[0,1,1,0,1,1], "
      "channels_last=1, dilations=[1,1,1]}\n"
      "y: float32[b,floor(d/2),h,w,4] = AveragePool(y.AveragePool) "
      "{kernel_shape=[2,1,1], strides=[2,1,1], pads=[0,0,0,0,0,0], "
      "channels_last=1, dilations=[1,1,1]}\n"
      "out y\n");
}

static void a_3d_convolution_becomes_a_sum_of_2d_ones(void **state) {
  (void)state;
  becomes(
      "in x float32[b,d,h,w,1]\n"
      "const k float32[1,1,2,3,3] 1\n"
      "const o float32[1] 1\n"
      "y = Conv(x, k, o) {strides=[2,1,1], dilations=[3,1,1], "
      "pads=[1,1,1,0,1,1], channels_last=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,d,h,w,1]\n"
      "y.Pad: float32[b,d+1,h,w,1] = Pad(x, [1,0], 0, [1])\n"
      "y.Slice: float32[b,max(d-2,0),h,w,1] = Slice(y.Pad, [0], [-3], [1])\n"
      "y.Conv: float32[b,ceil(max(d-2,0)/2),h,w,1] = Conv(y.Slice, "
      "k:float32[1,1,1,3,3], [1]) {strides=[2,1,1], dilations=[1,1,1], "
      "pads=[0,1,1,0,1,1], channels_last=1, kernel_shape=[1,3,3], "
      "span=4}\n"
      "y.Slice: float32[b,max(d-2,0),h,w,1] = Slice(y.Pad, [3], "
      "[9223372036854775807], [1])\n"
      "y.Conv: float32[b,ceil(max(d-2,0)/2),h,w,1] = Conv(y.Slice, "
      "k:float32[1,1,1,3,3]) {strides=[2,1,1], dilations=[1,1,1], "
      "pads=[0,1,1,0,1,1], channels_last=1, kernel_shape=[1,3,3], "
      "span=4}\n"
      "y: float32[b,ceil(d/2)-1,h,w,1] = Add(y.Conv, y.Conv)\n"
      "out y\n");
}

static void padding_of_many_zones_is_written_by_a_pad(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,1]\n"
      "const k float32[1,1,3,13] 1\n"
      "y = Conv(x, k) {pads=[1,6,1,6], channels_last=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,1]\n"
      "y.Pad: float32[b,h,w+12,1] = Pad(x, pads:int64[8], 0)\n"
      "y: float32[b,h,w,1] = Conv(y.Pad, k:float32[1,1,3,13]) "
      "{pads=[1,0,1,0], channels_last=1}\n"
      "out y\n");
  becomes(
      "in x float32[b,h,w,4]\n"
      "y = MaxPool(x) {kernel_shape=[1,13], pads=[0,6,0,6], "
      "channels_last=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,4]\n"
      "y.Pad: float32[b,h,w+12,4] = Pad(x, pads:int64[8], -inf)\n"
      "y: float32[b,h,w,4] = MaxPool(y.Pad) {kernel_shape=[1,13], "
      "pads=[0,0,0,0], channels_last=1}\n"
      "out y\n");
  stays(  // few zones
      "in x float32[b,h,w,1]\n"
      "const k float32[1,1,3,12] 1\n"
      "y = Conv(x, k) {pads=[1,6,1,5], channels_last=1}\n"
      "out y\n");
  stays(  // the position of windows depends on more than the padding
      "in x float32[b,h,w,4]\n"
      "y = MaxPool(x) {kernel_shape=[1,13], strides=[1,2], pads=[0,6,0,6], "
      "ceil_mode=1, channels_last=1}\n"
      "out y\n");
}

static void a_zero_pad_becomes_the_padding_of_a_convolution(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,1]\n"
      "const k float32[1,1,3,5] 1\n"
      "const p int64[8] 0 1 2 0 0 0 2 0\n"
      "q = Pad(x, p)\n"
      "y = Conv(q, k) {pads=[0,1,0,0], channels_last=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,1]\n"
      "y: float32[b,h-1,w+1,1] = Conv(x, k:float32[1,1,3,5]) "
      "{pads=[1,3,0,2], channels_last=1, auto_pad=\"NOTSET\"}\n"
      "out y\n");
  becomes(  // it names its axes
      "in x float32[b,h,w,1]\n"
      "const k float32[1,1,3,5] 1\n"
      "const p int64[4] 1 2 2 0\n"
      "const a int64[2] -2 1\n"
      "q = Pad(x, p, _, a)\n"
      "y = Conv(q, k) {channels_last=1}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,1]\n"
      "y: float32[b,h,w-1,1] = Conv(x, k:float32[1,1,3,5]) "
      "{channels_last=1, auto_pad=\"NOTSET\", pads=[2,1,0,2]}\n"
      "out y\n");
  stays(  // some windows would only cover padding
      "in x float32[b,h,w,1]\n"
      "const k float32[1,1,1,2] 1\n"
      "const p int64[8] 0 0 2 0 0 0 0 0\n"
      "q = Pad(x, p)\n"
      "y = Conv(q, k) {channels_last=1}\n"
      "out y\n");
  stays(  // the padding is not 0
      "in x float32[b,h,w,1]\n"
      "const k float32[1,1,3,5] 1\n"
      "const p int64[8] 0 1 2 0 0 0 2 0\n"
      "const v float32[] 1\n"
      "q = Pad(x, p, v)\n"
      "y = Conv(q, k) {channels_last=1}\n"
      "out y\n");
}

static void a_transpose_sinks_through_scalar_quantisation(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,8]\n"
      "t = Transpose(x) {perm=[0,3,1,2]}\n"
      "m = ReduceMax(t) {keepdims=0}\n"
      "d = Div(t, m)\n"
      "y = Transpose(d) {perm=[0,2,3,1]}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,8]\n"
      "m: float32[] = ReduceMax(x) {keepdims=0}\n"
      "d.Div: float32[b,h,w,8] = Div(x, m)\n"
      "out y = d.Div\n");
}

// The power of a spectrum whose real and imaginary parts are channels.
static void a_transpose_sinks_through_sums_of_squares(void **state) {
  (void)state;
  becomes(
      "in x float32[b,t,6]\n"
      "c = Transpose(x) {perm=[0,2,1]}\n"
      "s = Reshape(c, [0,2,3,-1])\n"
      "p = ReduceSumSquare(s, [1]) {keepdims=0}\n"
      "y = Transpose(p) {perm=[0,2,1]}\n"
      "out y\n",
      NULL,
      "in x: float32[b,t,6]\n"
      "s.Reshape: float32[b,t,2,3] = Reshape(x, [0,0,2,3])\n"
      "p.ReduceSumSquare: float32[b,t,3] = ReduceSumSquare(s.Reshape, [2]) "
      "{keepdims=0}\n"
      "out y = p.ReduceSumSquare\n");
}

static void a_transpose_does_not_sink_through_scales_per_axis(void **state) {
  (void)state;
  stays(
      "in x uint8[b,h,w,3]\n"
      "const s float32[3] 1 2 3\n"
      "t = Transpose(x) {perm=[0,3,1,2]}\n"
      "y = DequantizeLinear(t, s) {axis=1}\n"
      "out y\n");
}

static void a_transpose_sinks_through_slices_and_pads(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,4]\n"
      "const s int64[1] 1\n"
      "const e int64[1] 9\n"
      "const a int64[1] 2\n"
      "const p int64[8] 0 1 2 3 0 0 0 0\n"
      "t = Transpose(x) {perm=[0,3,1,2]}\n"
      "u = Slice(t, s, e, a)\n"
      "v = Pad(u, p)\n"
      "y = Transpose(v) {perm=[0,2,3,1]}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,4]\n"
      "u.Slice: float32[b,max(min(h,9)-1,0),w,4] = Slice(x, [1], [9], [1])\n"
      "v.Pad: float32[b,max(min(h,9)-1,0)+2,w+3,5] = "
      "Pad(u.Slice, p:int64[8], _, [0,3,1,2])\n"
      "out y = v.Pad\n");
}

static void a_group_norm_becomes_a_norm_of_rows(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4,h]\n"
      "const s float32[4] 1 2 3 4\n"
      "const t float32[4] 5 6 7 8\n"
      "y = GroupNormalization(x, s, t) {num_groups=2, epsilon=0.25}\n"
      "out y\n",
      NULL,
      "in x: float32[b,4,h]\n"
      "y.Reshape: float32[b,2,2*h] = Reshape(x, [0,2,-1])\n"
      "y.InstanceNormalization: float32[b,2,2*h] = "
      "InstanceNormalization(y.Reshape, [1,1], [0,0]) {epsilon=0.25}\n"
      "y.Shape: int64[3] = Shape(x)\n"
      "y.Reshape: float32[b,4,h] = Reshape(y.InstanceNormalization, y.Shape)\n"
      "y.Mul: float32[b,4,h] = Mul(y.Reshape, s:float32[4,1])\n"
      "y: float32[b,4,h] = Add(y.Mul, t:float32[4,1])\n"
      "out y\n");
}

static void a_group_norm_keeps_channels_last(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,4]\n"
      "const s float32[2] 1 2\n"
      "const t float32[2] 3 4\n"
      "const r int64[3] 0 2 -1\n"
      "u = Transpose(x) {perm=[0,3,1,2]}\n"
      "d = Shape(u)\n"
      "g = Reshape(u, r)\n"
      "n = InstanceNormalization(g, s, t) {epsilon=0.25}\n"
      "y = Reshape(n, d)\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,4]\n"
      "y.ReduceMean: float32[b,1,1,4] = ReduceMean(x, [1,2])\n"
      "y.Reshape: float32[b,1,1,2,2] = Reshape(y.ReduceMean, shape:int64[5])\n"
      "y.ReduceMean: float32[b,1,1,2,1] = ReduceMean(y.Reshape, [4])\n"
      "y.Expand: float32[b,1,1,2,2] = Expand(y.ReduceMean, shape:int64[5])\n"
      "y.Reshape: float32[b,1,1,4] = Reshape(y.Expand, [0,0,0,4])\n"
      "y.Sub: float32[b,h,w,4] = Sub(x, y.Reshape)\n"
      "y.Mul: float32[b,h,w,4] = Mul(y.Sub, y.Sub)\n"
      "y.ReduceMean: float32[b,1,1,4] = ReduceMean(y.Mul, [1,2])\n"
      "y.Reshape: float32[b,1,1,2,2] = Reshape(y.ReduceMean, shape:int64[5])\n"
      "y.ReduceMean: float32[b,1,1,2,1] = ReduceMean(y.Reshape, [4])\n"
      "y.Add: float32[b,1,1,2,1] = Add(y.ReduceMean, 0.25)\n"
      "y.Sqrt: float32[b,1,1,2,1] = Sqrt(y.Add)\n"
      "y.Reciprocal: float32[b,1,1,2,1] = Reciprocal(y.Sqrt)\n"
      "y.Expand: float32[b,1,1,2,2] = Expand(y.Reciprocal, shape:int64[5])\n"
      "y.Reshape: float32[b,1,1,4] = Reshape(y.Expand, [0,0,0,4])\n"
      "y.Mul: float32[b,1,1,4] = Mul(y.Reshape, [1,1,2,2])\n"
      "y.Mul: float32[b,h,w,4] = Mul(y.Sub, y.Mul)\n"
      "y.Add: float32[b,h,w,4] = Add(y.Mul, [3,3,4,4])\n"
      "y: float32[b,4,h,w] = Transpose(y.Add) {perm=[0,3,1,2]}\n"
      "out y\n");
}

static void softmax_over_an_axis_of_size_one_is_elementwise(void **state) {
  (void)state;
  becomes("in x float32[b,1,c]\ny = Softmax(x) {axis=1}\nout y\n", NULL,
          "in x: float32[b,1,c]\n"
          "y.Sub: float32[b,1,c] = Sub(x, x)\n"
          "y: float32[b,1,c] = Add(y.Sub, 1)\n"
          "out y\n");
  stays("in x float32[b,1,c]\ny = Softmax(x) {axis=2}\nout y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(softmax_over_an_axis_of_size_one_is_elementwise),
      cmocka_unit_test(a_matmul_with_one_hot_rows_becomes_a_gather),
      cmocka_unit_test(other_comparisons_are_unchanged),
      cmocka_unit_test(a_gather_of_all_elements_in_order_is_removed),
      cmocka_unit_test(elementwise_operators_move_before_the_gather),
      cmocka_unit_test(a_channels_last_convolution_becomes_a_matmul),
      cmocka_unit_test(a_channels_first_convolution_is_unchanged),
      cmocka_unit_test(non_overlapping_transposed_windows_become_channels),
      cmocka_unit_test(channels_stay_last_between_convolutions),
      cmocka_unit_test(a_single_pool_becomes_channels_last),
      cmocka_unit_test(the_input_projection_leaves_a_recurrence),
      cmocka_unit_test(sequence_lengths_become_a_mask),
      cmocka_unit_test(a_recurrence_without_constant_weights_is_unchanged),
      cmocka_unit_test(a_transpose_sinks_to_the_outputs),
      cmocka_unit_test(a_transpose_sinks_through_reshapes_that_keep_axes),
      cmocka_unit_test(channel_shuffle_keeps_channels_last),
      cmocka_unit_test(a_transpose_does_not_sink_through_reshapes_across_it),
      cmocka_unit_test(a_transpose_that_keeps_the_last_axis_does_not_sink),
      cmocka_unit_test(a_large_pool_is_split_by_axis),
      cmocka_unit_test(a_3d_pool_is_split_into_2d_and_depth),
      cmocka_unit_test(a_3d_convolution_becomes_a_sum_of_2d_ones),
      cmocka_unit_test(padding_of_many_zones_is_written_by_a_pad),
      cmocka_unit_test(a_zero_pad_becomes_the_padding_of_a_convolution),
      cmocka_unit_test(a_transpose_sinks_through_scalar_quantisation),
      cmocka_unit_test(a_transpose_sinks_through_sums_of_squares),
      cmocka_unit_test(a_transpose_does_not_sink_through_scales_per_axis),
      cmocka_unit_test(a_transpose_sinks_through_slices_and_pads),
      cmocka_unit_test(a_group_norm_becomes_a_norm_of_rows),
      cmocka_unit_test(a_group_norm_keeps_channels_last),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
