// graph/rules_test.c -- shape rules: inputs, outputs and errors.
//
// A case is a short graph; `gives` compares the dims of its results. Cases
// without symbols run twice, the second time as planning does: with numbers
// only.
#include "graph/text_test.h"

static void put_info(const lb_vinfo *v, lb_strbuf *s) {
  if (s->len) lb_strbuf_putc(s, ' ');
  lb_strbuf_printf(s, "%s[", lb_dtype_name(v->dtype));
  if (v->rank < 0) lb_strbuf_putc(s, '*');
  for (int i = 0; i < v->rank; i++) {
    if (i) lb_strbuf_putc(s, ',');
    lb_dim_print(v->dims[i], s);
  }
  lb_strbuf_putc(s, ']');
}

static void results_are(const lb_graph *g, const char *source,
                        const char *expected) {
  lb_strbuf s = {0};
  for (uint32_t i = 0; i < g->main->n_results; i++)
    put_info(&g->main->results[i]->info, &s);
  if (strcmp(lb_strbuf_str(&s), expected) != 0) print_error("%s", source);
  assert_string_equal(lb_strbuf_str(&s), expected);
  lb_strbuf_fini(&s);
}

// Infers the main region again, without a symbol table.
static void plan(lb_graph *g) {
  for (uint32_t k = 0; k < g->main->n_nodes; k++) {
    lb_node *n = g->main->nodes[k];
    lb_vinfo in[16] = {{0}}, out[8];
    memset(out, 0x5a, sizeof out);
    for (uint32_t i = 0; i < n->n_in; i++)
      if (n->in[i]) in[i] = n->in[i]->info;
    lb_infer c = {n, NULL, &g->arena, in, out};
    must(lb_infer_node(&c));
    for (uint32_t o = 0; o < n->n_out; o++)
      if (n->out[o]) n->out[o]->info = out[o];
  }
}

static void gives(const char *source, const char *expected) {
  lb_graph *g = graph_read(source);
  lb_status st = lb_infer_graph(g);
  if (lb_failed(st)) print_error("%s", source);
  must(st);
  results_are(g, source, expected);
  if (lb_symtab_count(g->syms) == 0) {
    plan(g);
    results_are(g, source, expected);
  }
  lb_graph_free(g);
}

static void fails(const char *source, const char *message) {
  lb_graph *g = graph_read(source);
  lb_status st = lb_infer_graph(g);
  if (!lb_failed(st)) print_error("%s", source);
  assert_true(lb_failed(st));
  assert_string_equal(lb_status_message(st), message);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  lb_status_drop(st);
  lb_graph_free(g);
}

// -- elementwise -------------------------------------------------------------

static void elementwise_outputs_broadcast(void **state) {
  (void)state;
  gives("in a float32[2,3]\nin b float32[3]\ny = Add(a,b)\nout y\n",
        "float32[2,3]");
  gives("in a float32[2,1]\nin b float32[1,5]\ny = Less(a,b)\nout y\n",
        "bool[2,5]");
  gives("in a float32[0,3]\nin b float32[1,3]\ny = Add(a,b)\nout y\n",
        "float32[0,3]");
  gives("in a float32[b,4]\nin c float32[b,1]\ny = Add(a,c)\nout y\n",
        "float32[b,4]");
  gives("in a float32[b]\nin c float32[7]\ny = Add(a,c)\nout y\n",
        "float32[7]");
  gives("in a float32[b]\nin c float32[s]\ny = Add(a,c)\nout y\n",
        "float32[?1]");
  gives("in a float32[*]\nin c float32[s]\ny = Add(a,c)\nout y\n",
        "float32[*]");
  gives("in c bool[4,1]\nin a int64[3]\ny = Where(c,a,7)\nout y\n",
        "int64[4,3]");
  gives(
      "in a float32[4]\nin b float32[4,1]\nin c float32[2,1,1]\n"
      "y = Max(a,b,c)\nout y\n",
      "float32[2,4,4]");
  gives("in x float32[b,4]\ny = Cast(x) {to=7}\nout y\n", "int64[b,4]");
  gives("in x float32[b]\ny, m = Dropout(x)\nout y m\n", "float32[b] bool[b]");
}

// ONNX Runtime's quantiser writes scale [1] and zero point [] for biases.
static void one_scale_has_one_zero_point_of_either_rank(void **state) {
  (void)state;
  gives(
      "in x int32[b,4]\nin s float32[1]\nin z int32[]\n"
      "y = DequantizeLinear(x,s,z)\nout y\n",
      "float32[b,4]");
  gives(
      "in x float32[b,4]\nin s float32[]\nin z int8[1]\n"
      "y = QuantizeLinear(x,s,z)\nout y\n",
      "int8[b,4]");
  fails(
      "in x int8[b,4]\nin s float32[4]\nin z int8[]\n"
      "y = DequantizeLinear(x,s,z)\nout y\n",
      "DequantizeLinear 'DequantizeLinear_0': zero point is []; it must be "
      "[4]");
}

// min(seq,512) is never more than seq, and 0 only where seq is.
static void a_dim_that_covers_another_is_the_result(void **state) {
  (void)state;
  gives(
      "in x float32[b,s]\nin t float32[512]\nn = Shape(x) {start=1}\n"
      "p = Slice(t,[0],n)\ny = Add(x,p)\nout p y\n",
      "float32[min(s,512)] float32[b,s]");
}

static void elementwise_errors_name_the_problem(void **state) {
  (void)state;
  fails("in a float32[2,3]\nin b float32[4,3]\ny = Add(a,b)\nout y\n",
        "Add 'Add_0': shapes [2,3] and [4,3] do not broadcast (dim 0: 2 "
        "against 4)");
  fails("in a float32[n,3]\nin b float32[4]\ny = Add(a,b)\nout y\n",
        "Add 'Add_0': shapes [n,3] and [4] do not broadcast (dim 1: 3 against "
        "4)");
  fails("in a float32[2]\nin b int64[2]\ny = Add(a,b)\nout y\n",
        "Add 'Add_0': input 0 is float32 but input 1 is int64");
  fails("in a int64[2]\ny = Sin(a)\nout y\n",
        "Sin 'Sin_0': input 0 is int64; it must be one of float32, float64, "
        "float16, bfloat16");
  fails("in a float32[2,3]\nin s float32[2]\ny = PRelu(a,s)\nout y\n",
        "PRelu 'PRelu_0': slope [2] does not broadcast to [2,3]");
  fails("in a float32[2]\nin b float32[1]\ny = SwiGLU(a,b)\nout y\n",
        "SwiGLU 'SwiGLU_0': B is [1]; it must be [2]");
  fails("in a float32[2]\ny = BitCast(a) {to=7}\nout y\n",
        "BitCast 'BitCast_0': float32 and int64 differ in size");
}

// -- contractions ------------------------------------------------------------

static void matmul_dims_follow_the_operands(void **state) {
  (void)state;
  gives("in a float32[2,3]\nin b float32[3,5]\ny = MatMul(a,b)\nout y\n",
        "float32[2,5]");
  gives("in a float32[b,s,3]\nin b float32[3,5]\ny = MatMul(a,b)\nout y\n",
        "float32[b,s,5]");
  gives("in a float32[7,1,2,3]\nin b float32[4,3,5]\ny = MatMul(a,b)\nout y\n",
        "float32[7,4,2,5]");
  gives("in a float32[3]\nin b float32[4,3,5]\ny = MatMul(a,b)\nout y\n",
        "float32[4,5]");
  gives("in a float32[3]\nin b float32[3]\ny = MatMul(a,b)\nout y\n",
        "float32[]");
  gives(
      "in a float32[3,2]\nin b float32[5,3]\n"
      "y = Gemm(a,b) {transA=1, transB=1}\nout y\n",
      "float32[2,5]");
  gives(  // a size of at most 1 may be 1
      "in a float32[2,3]\nin b float32[3,5]\nin x float32[n]\n"
      "c = Slice(x,[1],[2])\ny = Gemm(a,b,c)\nout y\n",
      "float32[2,5]");
  gives(
      "in a float32[b,2,3]\nin c float32[b,3,5]\n"
      "y = Einsum(a,c) {equation=\"bij, bjk -> bik\"}\nout y\n",
      "float32[b,2,5]");
  gives(
      "in a float32[7,2,3]\nin c float32[3,5]\n"
      "y = Einsum(a,c) {equation=\"...ij,jk\"}\nout y\n",
      "float32[7,2,5]");
  gives("in a float32[4,4]\ny = Einsum(a) {equation=\"ii\"}\nout y\n",
        "float32[]");
  gives("in x float32[2,4,4]\ny = Det(x)\nout y\n", "float32[2]");
}

static void matmul_errors_name_the_problem(void **state) {
  (void)state;
  fails("in a float32[2,3]\nin b float32[4,5]\ny = MatMul(a,b)\nout y\n",
        "MatMul 'MatMul_0': inner dims differ: [2,3] times [4,5]");
  fails("in a float32[2,4,3]\nin b float32[5,3,4]\ny = MatMul(a,b)\nout y\n",
        "MatMul 'MatMul_0': leading dims of [2,4,3] and [5,3,4]: shapes [2] "
        "and [5] do not broadcast (dim 0: 2 against 5)");
  fails(
      "in a float32[2,3]\nin b float32[3,4]\nin c float32[3]\n"
      "y = Gemm(a,b,c)\nout y\n",
      "Gemm 'Gemm_0': C [3] does not broadcast to [2,4]");
  fails(
      "in a float32[2,3]\nin b float32[4,5]\n"
      "y = Einsum(a,b) {equation=\"ij,jk->ik\"}\nout y\n",
      "Einsum 'Einsum_0': 'j' is 3 in one input and 4 in another");
  fails("in a float32[2,3]\ny = Einsum(a) {equation=\"i->i\"}\nout y\n",
        "Einsum 'Einsum_0': term 0 names 1 dims, but the input is [2,3]");
}

static void convolutions_slide_over_spatial_dims(void **state) {
  (void)state;
  gives(
      "in x float32[1,3,224,224]\nin w float32[8,3,7,7]\n"
      "y = Conv(x,w) {strides=[2,2], pads=[3,3,3,3]}\nout y\n",
      "float32[1,8,112,112]");
  gives(
      "in x float32[n,6,h]\nin w float32[8,3,3]\n"
      "y = Conv(x,w) {group=2, pads=[1,1]}\nout y\n",
      "float32[n,8,h]");
  gives(
      "in x float32[n,3,h]\nin w float32[8,3,3]\n"
      "y = Conv(x,w) {strides=[2], auto_pad=\"SAME_UPPER\"}\nout y\n",
      "float32[n,8,ceil(h/2)]");
  gives("in x float32[1,3,0]\nin w float32[8,3,3]\ny = Conv(x,w)\nout y\n",
        "float32[1,8,0]");
  gives(
      "in x float32[n,4,5]\nin w float32[4,3,3]\n"
      "y = ConvTranspose(x,w) {strides=[2], group=2, output_padding=[1]}\n"
      "out y\n",
      "float32[n,6,12]");
  gives(
      "in x float32[n,4,h]\nin w float32[4,3,2]\n"
      "y = ConvTranspose(x,w) {strides=[2]}\nout y\n",
      "float32[n,3,2*h]");
  gives(
      "in x float32[n,4,5]\nin w float32[4,3,3]\n"
      "y = ConvTranspose(x,w) {strides=[2], output_shape=[10]}\nout y\n",
      "float32[n,3,10]");
}

// The second window would start in the right padding, so it is dropped.
static void pooling_counts_windows_that_start_inside(void **state) {
  (void)state;
  gives(
      "in x float32[1,1,4]\n"
      "y = MaxPool(x) {kernel_shape=[1], strides=[4], ceil_mode=1, "
      "pads=[0,0]}\nout y\n",
      "float32[1,1,1]");
  gives(
      "in x float32[1,1,2]\n"
      "y = MaxPool(x) {kernel_shape=[2], strides=[3], ceil_mode=1, "
      "pads=[0,1]}\nout y\n",
      "float32[1,1,1]");
  gives(
      "in x float32[1,1,5]\n"
      "y, i = MaxPool(x) {kernel_shape=[2], strides=[2], ceil_mode=1}\n"
      "out y i\n",
      "float32[1,1,3] int64[1,1,3]");
  gives(
      "in x float32[n,c,h]\ny = AveragePool(x) {kernel_shape=[2], "
      "strides=[2]}\nout y\n",
      "float32[n,c,floor(h/2)]");
  gives("in x float32[n,c,h,w]\ny = GlobalMaxPool(x)\nout y\n",
        "float32[n,c,1,1]");
}

static void window_errors_name_the_problem(void **state) {
  (void)state;
  fails("in x float32[1,4,8]\nin w float32[8,3,3]\ny = Conv(x,w)\nout y\n",
        "Conv 'Conv_0': input [1,4,8] has 4 channels; weights [8,3,3] in 1 "
        "group need 3");
  fails(
      "in x float32[1,3,3]\nin w float32[8,3,3]\n"
      "y = Conv(x,w) {dilations=[2]}\nout y\n",
      "Conv 'Conv_0': a kernel spanning 5 is larger than the padded input "
      "of 3 along axis 2; the input must be larger");
  fails(
      "in x float32[1,3,0,4,4]\nin w float32[8,3,1,3,3]\n"
      "y = Conv(x,w) {span=4}\nout y\n",
      "Conv 'Conv_0': a kernel spanning 4 is larger than the padded input "
      "along axis 2; the input must be larger");
  fails(
      "in x float32[1,3,8]\nin w float32[8,3,3]\n"
      "y = Conv(x,w) {strides=[0]}\nout y\n",
      "Conv 'Conv_0': strides[0] is 0; it must be at least 1");
  fails(
      "in x float32[1,3,8]\nin w float32[8,3,3]\n"
      "y = Conv(x,w) {strides=[2147483648]}\nout y\n",
      "Conv 'Conv_0': strides[0] is 2147483648; it must be less than 2^31");
  fails(
      "in x float32[1,3,8]\nin w float32[8,3,3]\nin b float32[7]\n"
      "y = Conv(x,w,b)\nout y\n",
      "Conv 'Conv_0': bias is [7]; it must be [8]");
  fails("in x float32[1,3,8]\ny = MaxPool(x) {kernel_shape=[2,2]}\nout y\n",
        "MaxPool 'MaxPool_0': kernel_shape has 2 elements; it needs 1");
}

// -- views and movement ------------------------------------------------------

static void reshape_infers_missing_dims(void **state) {
  (void)state;
  gives("in x float32[3,4]\ny = Reshape(x,[2,-1])\nout y\n", "float32[2,6]");
  gives("in x float32[3,4]\ny = Reshape(x,[0,2,-1])\nout y\n",
        "float32[3,2,2]");
  gives("in x float32[0,4]\ny = Reshape(x,[4,0]) {allowzero=1}\nout y\n",
        "float32[4,0]");
  gives("in x float32[0,4]\ny = Reshape(x,[5,-1])\nout y\n", "float32[5,0]");
  gives("in x float32[0,7]\ny = Reshape(x,[0,5,-1])\nout y\n",
        "float32[0,5,0]");
  gives("in x float32[b,s,12]\ny = Reshape(x,[0,-1,4])\nout y\n",
        "float32[b,3*s,4]");
  gives("in x float32[0,5,12]\ny = Reshape(x,[0,-1,4])\nout y\n",
        "float32[0,15,4]");
  gives("in x float32[b,s,12]\ny = Reshape(x,[-1])\nout y\n",
        "float32[12*b*s]");
  gives("in x float32[b,4]\nin t int64[3]\ny = Reshape(x,t)\nout y\n",
        "float32[?1,?2,?3]");
  gives("in x float32[b,4]\nin t int64[n]\ny = Reshape(x,t)\nout y\n",
        "float32[*]");
  gives("in x float32[*]\ny = Reshape(x,[2,-1])\nout y\n", "float32[2,?1]");
  gives(
      "in x float32[b,3,t]\nin w float32[8,3,3]\nc = Conv(x,w)\n"
      "s = Shape(c)\nn = Neg(c)\ny = Reshape(n,s)\nout y\n",
      "float32[b,8,t-2]");
  gives("in x float32[b,c,h]\ny = Flatten(x)\nout y\n", "float32[b,c*h]");
  gives("in x float32[2,3,4]\ny = Flatten(x) {axis=0}\nout y\n",
        "float32[1,24]");
}

static void reshape_errors_name_the_problem(void **state) {
  (void)state;
  fails("in x float32[3,4]\ny = Reshape(x,[5,-1])\nout y\n",
        "Reshape 'Reshape_0': 12 elements of [3,4] do not fit [5,-1]");
  fails("in x float32[3,4]\ny = Reshape(x,[5])\nout y\n",
        "Reshape 'Reshape_0': 12 elements of [3,4] do not fit [5]");
  fails("in x float32[3,4]\ny = Reshape(x,[-1,-1])\nout y\n",
        "Reshape 'Reshape_0': -1 appears more than once in [-1,-1]");
  fails(
      "in x float32[12]\ny = Reshape(x,[12,0])\nout y\n",
      "Reshape 'Reshape_0': 0 at index 1 copies a dim that [12] does not have");
  fails("in x float32[3]\ny = Reshape(x,[0,-1]) {allowzero=1}\nout y\n",
        "Reshape 'Reshape_0': 3 elements of [3] do not fit [0,-1]");
  fails("in x float32[9,2,0,8]\ny = Reshape(x,[9,0,8])\nout y\n",
        "Reshape 'Reshape_0': 0 elements of [9,2,0,8] do not fit [9,2,8]; a 0 "
        "in [9,0,8] copies the input's dim at the same index");
}

static void views_change_dims(void **state) {
  (void)state;
  gives("in x float32[1,b,1]\ny = Squeeze(x,[0,-1])\nout y\n", "float32[b]");
  gives("in x float32[1,3,1]\ny = Squeeze(x)\nout y\n", "float32[3]");
  gives("in x float32[1,b,1]\ny = Squeeze(x)\nout y\n", "float32[*]");
  gives("in x float32[b]\ny = Unsqueeze(x,[0,-1])\nout y\n", "float32[1,b,1]");
  gives("in x float32[b,2,3]\ny = Transpose(x) {perm=[2,0,1]}\nout y\n",
        "float32[3,b,2]");
  gives("in x float32[b,2,3]\ny = Transpose(x)\nout y\n", "float32[3,2,b]");
  gives("in x float32[b,1]\ny = Expand(x,[3,1,4])\nout y\n", "float32[3,b,4]");
  gives("in x float32[7,4]\na, b, c = Split(x) {num_outputs=3}\nout a b c\n",
        "float32[3,4] float32[3,4] float32[1,4]");
  gives("in x float32[b,s]\na, c = Split(x,[1,2]) {axis=1}\nout a c\n",
        "float32[b,1] float32[b,2]");
  fails("in x float32[2,3]\ny = Squeeze(x,[0])\nout y\n",
        "Squeeze 'Squeeze_0': dim 0 of [2,3] is not 1");
  fails("in x float32[2,3]\ny = Unsqueeze(x,[4])\nout y\n",
        "Unsqueeze 'Unsqueeze_0': axis 4 is out of range for rank 3");
  fails("in x float32[2,3]\ny = Transpose(x) {perm=[0,0]}\nout y\n",
        "Transpose 'Transpose_0': perm names axis 0 twice");
  fails("in x float32[5]\na, b = Split(x,[2,2])\nout a b\n",
        "Split 'Split_0': the sizes in split add up to 4, but the dim is 5");
}

static void slices_clamp_their_ends(void **state) {
  (void)state;
  gives(
      "in x float32[10]\ny = Slice(x,[2],[9223372036854775807],[0],[3])\n"
      "out y\n",
      "float32[3]");
  gives(
      "in x float32[10]\n"
      "y = Slice(x,[-1],[-9223372036854775807],[0],[-1])\nout y\n",
      "float32[10]");
  gives("in x float32[10]\ny = Slice(x,[20],[2],[0],[-3])\nout y\n",
        "float32[3]");
  gives("in x float32[10]\ny = Slice(x,[8],[3])\nout y\n", "float32[0]");
  gives("in x float32[0]\ny = Slice(x,[5],[-7],[0],[-1])\nout y\n",
        "float32[0]");
  gives(
      "in x float32[10]\n"
      "y = Slice(x,[0],[10],[0],[9223372036854775807])\nout y\n",
      "float32[1]");
  gives("in x float32[s]\ny = Slice(x,[0],[2147483647])\nout y\n",
        "float32[s]");
  gives("in x float32[s]\ny = Slice(x,[0],[-1])\nout y\n",
        "float32[max(s-1,0)]");
  gives("in x float32[s]\ny = Slice(x,[-3],[9223372036854775807])\nout y\n",
        "float32[min(s,3)]");
  gives("in x float32[s]\ny = Slice(x,[1],[2147483647],[0],[2])\nout y\n",
        "float32[floor(s/2)]");
  gives(
      "in x float32[s]\n"
      "y = Slice(x,[-1],[-9223372036854775807],[0],[-2])\nout y\n",
      "float32[ceil(s/2)]");
  gives("in x float32[b,4]\nin e int64[1]\ny = Slice(x,[0],e,[1])\nout y\n",
        "float32[b,?2]");
  fails("in x float32[10]\ny = Slice(x,[0],[5],[0],[0])\nout y\n",
        "Slice 'Slice_0': a step is 0");
}

static void movement_changes_sizes(void **state) {
  (void)state;
  gives(
      "in a float32[b,2]\nin c float32[b,3]\ny = Concat(a,c) {axis=-1}\n"
      "out y\n",
      "float32[b,5]");
  gives(
      "in a float32[n,2]\nin c float32[4,m]\ny = Concat(a,c) {axis=1}\n"
      "out y\n",
      "float32[4,m+2]");
  gives("in x float32[b,4]\ny = Pad(x,[0,1,0,-2])\nout y\n", "float32[b,3]");
  gives("in x float32[b,4]\ny = Pad(x,[1,1],_,[-2])\nout y\n",
        "float32[b+2,4]");
  gives("in x float32[b,4]\ny = Tile(x,[2,3])\nout y\n", "float32[2*b,12]");
  gives("in x float32[b,8,2,w]\ny = DepthToSpace(x) {blocksize=2}\nout y\n",
        "float32[b,2,4,2*w]");
  gives("in x float32[b,8,2,4]\ny = SpaceToDepth(x) {blocksize=2}\nout y\n",
        "float32[b,32,1,2]");
  gives(
      "in x float32[b,3,4]\nin i int64[2,s]\ny = Gather(x,i) {axis=1}\n"
      "out y\n",
      "float32[b,2,s,4]");
  gives(
      "in x float32[b,3,4]\nin i int64[b,5,2]\n"
      "y = GatherND(x,i) {batch_dims=1}\nout y\n",
      "float32[b,5]");
  gives(
      "in x float32[3,4]\nin i int64[2,1]\nin u float32[2,4]\n"
      "y = ScatterND(x,i,u)\nout y\n",
      "float32[3,4]");
  fails(
      "in a float32[2,2]\nin c float32[3,3]\ny = Concat(a,c) {axis=1}\n"
      "out y\n",
      "Concat 'Concat_0': input 1 is [3,3]; dim 0 must be 2 as in the inputs "
      "before it");
  fails("in x float32[3]\ny = Pad(x,[-2,-2])\nout y\n",
        "Pad 'Pad_0': pads remove more from dim 0 of [3] than it has");
  fails(
      "in x float32[3,4]\nin i int64[2,1]\nin u float32[2,3]\n"
      "y = ScatterND(x,i,u)\nout y\n",
      "ScatterND 'ScatterND_0': updates is [2,3]; it must be [2,4]");
}

static void resize_scales_or_sizes(void **state) {
  (void)state;
  gives(
      "in x float32[1,1,5,4]\nconst s float32[4] 1 1 0.6 2\n"
      "y = Resize(x,_,s)\nout y\n",
      "float32[1,1,3,8]");
  gives(
      "in x float32[n,c,h,w]\nconst s float32[4] 1 1 2 0.5\n"
      "y = Resize(x,_,s)\nout y\n",
      "float32[n,c,2*h,floor(w/2)]");
  gives(
      "in x float32[1,1,2,4]\ny = Resize(x,_,_,[7,8]) {axes=[2,3], "
      "keep_aspect_ratio_policy=\"not_larger\"}\nout y\n",
      "float32[1,1,4,8]");
  gives("in x float32[n,c,h,w]\ny = Resize(x,_,_,[3,4]) {axes=[2,3]}\nout y\n",
        "float32[n,c,3,4]");
  fails("in x float32[1,2]\ny = Resize(x,_,_)\nout y\n",
        "Resize 'Resize_0': exactly one of scales and sizes must be given");
}

// -- reductions and normalisation --------------------------------------------

static void reductions_drop_or_keep_axes(void **state) {
  (void)state;
  gives("in x float32[b,2,3]\ny = ReduceSum(x,[-1])\nout y\n",
        "float32[b,2,1]");
  gives("in x float32[b,2,3]\ny = ReduceSum(x,[0,2]) {keepdims=0}\nout y\n",
        "float32[2]");
  gives("in x float32[b,2]\ny = ReduceMax(x) {keepdims=0}\nout y\n",
        "float32[]");
  gives("in x float32[b,2]\ny = ReduceMax(x) {noop_with_empty_axes=1}\nout y\n",
        "float32[b,2]");
  gives(
      "in x float32[b,2]\nin a int64[1]\ny = ReduceSum(x,a) {keepdims=0}\n"
      "out y\n",
      "float32[?1]");
  gives("in x float32[b,2]\ny = ArgMax(x) {axis=-1, keepdims=0}\nout y\n",
        "int64[b]");
  gives(
      "in x float32[b,s,8]\nin g float32[8]\n"
      "y, m, v = LayerNormalization(x,g)\nout y m v\n",
      "float32[b,s,8] float32[b,s,1] float32[b,s,1]");
  fails("in x float32[b,2]\ny = ReduceSum(x,[2])\nout y\n",
        "ReduceSum 'ReduceSum_0': axis 2 is out of range for rank 2");
  fails("in x float32[b,2]\ny = ReduceSum(x,[1,-1])\nout y\n",
        "ReduceSum 'ReduceSum_0': axis 1 is named twice");
  fails("in x float32[b,2]\ny = Softmax(x) {axis=2}\nout y\n",
        "Softmax 'Softmax_0': axis 2 is out of range for rank 2");
  fails(
      "in x float32[b,6,4]\nin g float32[5]\n"
      "y = InstanceNormalization(x,g,g)\nout y\n",
      "InstanceNormalization 'InstanceNormalization_0': scale is [5]; it "
      "must be [6]");
}

// -- sequences ---------------------------------------------------------------

static void attention_takes_three_or_four_dims(void **state) {
  (void)state;
  gives(
      "in q float32[b,8,s,16]\nin k float32[b,2,t,16]\nin v "
      "float32[b,2,t,24]\ny = Attention(q,k,v)\nout y\n",
      "float32[b,8,s,24]");
  gives(
      "in q float32[b,s,64]\nin k float32[b,t,64]\nin v float32[b,t,64]\n"
      "in pk float32[b,4,p,16]\nin pv float32[b,4,p,16]\n"
      "y, nk, nv, qk = Attention(q,k,v,_,pk,pv) {q_num_heads=4, "
      "kv_num_heads=4}\nout y nk nv qk\n",
      "float32[b,s,64] float32[b,4,t+p,16] float32[b,4,t+p,16] "
      "float32[b,4,s,t+p]");
  fails(
      "in q float32[1,8,3,16]\nin k float32[1,3,3,16]\nin v "
      "float32[1,3,3,16]\ny = Attention(q,k,v)\nout y\n",
      "Attention 'Attention_0': 8 heads of Q are not a multiple of 3 heads of "
      "K");
}

static void recurrent_layers_know_layout_and_direction(void **state) {
  (void)state;
  gives(
      "in x float32[s,b,3]\nin w float32[2,20,3]\nin r float32[2,20,5]\n"
      "y, h, c = LSTM(x,w,r) {hidden_size=5, direction=\"bidirectional\"}\n"
      "out y h c\n",
      "float32[s,2,b,5] float32[2,b,5] float32[2,b,5]");
  gives(
      "in x float32[b,s,3]\nin w float32[1,15,3]\nin r float32[1,15,5]\n"
      "y, h = GRU(x,w,r) {layout=1}\nout y h\n",
      "float32[b,s,1,5] float32[b,1,5]");
  fails(
      "in x float32[s,b,3]\nin w float32[1,20,3]\nin r float32[1,16,5]\n"
      "y = LSTM(x,w,r)\nout y\n",
      "LSTM 'LSTM_0': R is [1,16,5]; it must be [1,20,5]");
}

// -- contents ----------------------------------------------------------------

static void shape_arithmetic_stays_symbolic(void **state) {
  (void)state;
  gives(
      "in x float32[b,s,12]\nn = Shape(x)\nb = Gather(n,0)\n"
      "q = Gather(n,[1,-1])\nu = Unsqueeze(b,[0])\n"
      "t = Concat(u,[3],q) {axis=0}\nz = ConstantOfShape(t)\nout z\n",
      "float32[b,3,s,12]");
  gives(
      "in x float32[b,s]\nn = Shape(x)\nm = Mul(n,[2,3])\na = Add(m,1)\n"
      "d = Div(a,[1,2])\nz = ConstantOfShape(d)\nout z\n",
      "float32[2*b+1,s+ceil(s/2)]");
  gives(
      "in x float32[b,s]\nn = Shape(x)\np = ReduceProd(n) {keepdims=0}\n"
      "z = Range(0,p,1)\nk = Size(x)\nr = Range(0,k,1)\nout z r\n",
      "int64[b*s] int64[b*s]");
  gives(
      "in x float32[b,s]\nn = Shape(x)\nc = Cast(n) {to=6}\n"
      "i = Cast(c) {to=7}\na, d = Split(i) {num_outputs=2}\n"
      "t = Concat(d,a) {axis=0}\nz = ConstantOfShape(t)\nout z\n",
      "float32[s,b]");
  gives(
      "in x float32[b,s]\nn = Shape(x) {start=-1}\nt = Tile(n,[2])\n"
      "v = Slice(t,[1],[2])\nm = Min(v,[512])\nz = ConstantOfShape(m)\n"
      "out z\n",
      "float32[min(s,512)]");
}

// The way exporters write Expand: -1 means "unchanged".
static void where_with_known_conditions_is_resolved(void **state) {
  (void)state;
  gives(
      "in x float32[b,1]\nn = Shape(x)\none = Expand(1,[2])\n"
      "m = Mul(one,-1)\ne = Equal(n,m)\nt = Where(e,one,n)\n"
      "y = Expand(x,t)\nout y\n",
      "float32[b,1]");
  gives(
      "in x float32[3,1]\nn = Shape(x)\ng = Greater(n,[2,2])\n"
      "k = Not(g)\nt = Where(k,[7,7],n)\nz = ConstantOfShape(t)\nout z\n",
      "float32[3,7]");
}

static void unknown_elements_leave_the_others_known(void **state) {
  (void)state;
  gives(
      "in x float32[b,s]\nin k int64[1]\nn = Shape(x) {end=1}\n"
      "t = Concat(n,k) {axis=0}\ny = Reshape(x,t)\nout y\n",
      "float32[b,?2]");
}

static void contents_that_overflow_become_unknown(void **state) {
  (void)state;
  gives(
      "m = Mul([9223372036854775807],[2])\nd = Div([1],[0])\n"
      "i = Cast([4294967296]) {to=6}\nout m d i\n",
      "int64[1] int64[1] int32[1]");
}

// -- creation and search -----------------------------------------------------

static void created_sizes_come_from_contents(void **state) {
  (void)state;
  gives("y = Range(10,4,-3)\nout y\n", "int64[2]");
  gives("y = Range(1.0,5.0,0.5)\nout y\n", "float32[8]");
  gives("in i int64[b]\nin v float32[2]\ny = OneHot(i,5,v)\nout y\n",
        "float32[b,5]");
  gives("in x float32[b,9]\nv, i = TopK(x,[3])\nout v i\n",
        "float32[b,3] int64[b,3]");
  gives("in x float32[b,s,2]\ny = NonZero(x)\nout y\n", "int64[3,?1]");
  fails("y = Range(1,5,0)\nout y\n", "Range 'Range_0': delta is 0");
  fails("in x float32[2]\nv, i = TopK(x,[3])\nout v i\n",
        "TopK 'TopK_0': K is 3, but dim 0 of [2] has 2");
  fails(
      "y = ConstantOfShape([2,-3])\nout y\n",
      "ConstantOfShape 'ConstantOfShape_0': -3 at index 1 is not a valid size");
  fails("y = ConstantOfShape([4294967296,4294967296])\nout y\n",
        "ConstantOfShape 'ConstantOfShape_0': output 0 would be "
        "[4294967296,4294967296]: more than 2^47 bytes");
}

static void data_dependent_outputs_have_no_rank_at_planning(void **state) {
  (void)state;
  lb_graph *g = graph_read("in x float32[2,3]\ny = NonZero(x)\nout y\n");
  must(lb_infer_graph(g));
  plan(g);
  results_are(g, "NonZero", "int64[*]");
  lb_graph_free(g);
}

// -- bodies ------------------------------------------------------------------

static void if_joins_its_branches(void **state) {
  (void)state;
  gives(
      "in c bool[]\nin x float32[b,4]\ny = If(c,x)\nthen(p)\n"
      "q = Relu(p)\ngives q\nelse(p)\nq = Slice(p,[0],[1],[0])\ngives q\n"
      "out y\n",
      "float32[?1,4]");
  gives(
      "in c bool[]\nin x float32[b,4]\ny = If(c,x)\nthen(p)\n"
      "q = Flatten(p)\ngives q\nelse(p)\nq = Reshape(p,[-1])\ngives q\n"
      "out y\n",
      "float32[*]");
  fails(
      "in c bool[]\nin x float32[b]\ny = If(c,x)\nthen(p)\n"
      "q = Relu(p)\ngives q\nelse(p)\nq = Cast(p) {to=7}\ngives q\nout y\n",
      "If 'If_0': branches yield float32 and int64; they must agree");
}

static void conditions_and_trip_counts_are_single_elements(void **state) {
  (void)state;
  fails(
      "in c float32[]\nin x float32[b]\ny = If(c,x)\nthen(p)\ngives p\n"
      "else(p)\ngives p\nout y\n",
      "If 'If_0': the condition must be a single element of bool");
  fails(
      "in c bool[1,2]\nin x float32[b]\ny = If(c,x)\nthen(p)\ngives p\n"
      "else(p)\ngives p\nout y\n",
      "If 'If_0': the condition must be a single element of bool");
  gives(
      "in c bool[1,1]\nin x float32[b]\ny = If(c,x)\nthen(p)\ngives p\n"
      "else(p)\ngives p\nout y\n",
      "float32[b]");
  fails(
      "in x float32[b]\nin m int64[2]\nu = Loop(m,_,x)\nbody(i,c,p)\n"
      "gives c p\nout u\n",
      "Loop 'Loop_0': the trip count must be a single element of int64");
  fails("in x float32[b]\nu = Loop(5,_,x)\nbody(i,c,p)\ngives i p\nout u\n",
        "Loop 'Loop_0': the body's condition must be a single element of bool");
}

// An invalid Squeeze is never reached when its guard holds.
static void an_invalid_branch_is_not_an_error(void **state) {
  (void)state;
  gives(
      "in c bool[]\nin x float32[3,4]\ny = If(c,x)\nthen(p)\n"
      "q = Squeeze(p,[0])\ngives q\nelse(p)\nq = Relu(p)\ngives q\nout y\n",
      "float32[*]");
  gives(
      "const c bool[] 0\nin x float32[b,4]\ny = If(c,x)\nthen(p)\n"
      "q = Squeeze(p,[1])\ngives q\nelse(p)\nq = Relu(p)\ngives q\nout y\n",
      "float32[b,4]");
  fails(
      "in c bool[]\nin x float32[3,4]\ny = If(c,x)\nthen(p)\n"
      "q = Squeeze(p,[0])\ngives q\nelse(p)\nq = Squeeze(p,[1])\ngives q\n"
      "out y\n",
      "Squeeze 'Squeeze_2': dim 1 of [3,4] is not 1");
}

static void loop_widens_changing_shapes(void **state) {
  (void)state;
  gives(
      "in x float32[b,4]\nin y float32[1,4]\n"
      "u, v, w = Loop(5,_,x,y)\nbody(i,c,p,q)\nr = Relu(p)\n"
      "s = Concat(q,q) {axis=0}\ngives c r s r\nout u v w\n",
      "float32[b,4] float32[?2,4] float32[?3,b,4]");
  gives(
      "in x float32[b]\nu = Loop(5,_,x)\nbody(i,c,p)\n"
      "r = Unsqueeze(p,[0])\ngives c r\nout u\n",
      "float32[*]");
  fails(
      "in x float32[b]\nu = Loop(5,_,x)\nbody(i,c,p)\n"
      "r = Cast(p) {to=7}\ngives c r\nout u\n",
      "Loop 'Loop_0': a carried value changes its dtype from float32 to int64");
}

static void scan_takes_slices_and_stacks_them(void **state) {
  (void)state;
  gives(
      "in h float32[4]\nin x float32[3,s]\n"
      "u, y = Scan(h,x) {num_scan_inputs=1, scan_input_axes=[1], "
      "scan_output_axes=[-1]}\n"
      "body(p,q)\nr = Relu(p)\nt = Relu(q)\ngives r t\nout u y\n",
      "float32[4] float32[3,s]");
  fails(
      "in h float32[4]\nin x float32[3,s]\n"
      "u = Scan(h,x) {num_scan_inputs=1, scan_input_axes=[2]}\n"
      "body(p,q)\nr = Relu(p)\ngives r\nout u\n",
      "Scan 'Scan_0': a scan axis is out of range");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise_outputs_broadcast),
      cmocka_unit_test(one_scale_has_one_zero_point_of_either_rank),
      cmocka_unit_test(a_dim_that_covers_another_is_the_result),
      cmocka_unit_test(elementwise_errors_name_the_problem),
      cmocka_unit_test(matmul_dims_follow_the_operands),
      cmocka_unit_test(matmul_errors_name_the_problem),
      cmocka_unit_test(convolutions_slide_over_spatial_dims),
      cmocka_unit_test(pooling_counts_windows_that_start_inside),
      cmocka_unit_test(window_errors_name_the_problem),
      cmocka_unit_test(reshape_infers_missing_dims),
      cmocka_unit_test(reshape_errors_name_the_problem),
      cmocka_unit_test(views_change_dims),
      cmocka_unit_test(slices_clamp_their_ends),
      cmocka_unit_test(movement_changes_sizes),
      cmocka_unit_test(resize_scales_or_sizes),
      cmocka_unit_test(reductions_drop_or_keep_axes),
      cmocka_unit_test(attention_takes_three_or_four_dims),
      cmocka_unit_test(recurrent_layers_know_layout_and_direction),
      cmocka_unit_test(shape_arithmetic_stays_symbolic),
      cmocka_unit_test(where_with_known_conditions_is_resolved),
      cmocka_unit_test(unknown_elements_leave_the_others_known),
      cmocka_unit_test(contents_that_overflow_become_unknown),
      cmocka_unit_test(created_sizes_come_from_contents),
      cmocka_unit_test(data_dependent_outputs_have_no_rank_at_planning),
      cmocka_unit_test(if_joins_its_branches),
      cmocka_unit_test(conditions_and_trip_counts_are_single_elements),
      cmocka_unit_test(an_invalid_branch_is_not_an_error),
      cmocka_unit_test(loop_widens_changing_shapes),
      cmocka_unit_test(scan_takes_slices_and_stacks_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
