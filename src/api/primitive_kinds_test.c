// api/primitive_kinds_test.c -- tests each kind of primitive on results that
// were computed by hand: `limber primitive` compares kernels only with the
// reference, whose graph comes from the same descriptor.
#include "api/primitive_test.h"

#define F(...) ((float[]){__VA_ARGS__})

// Executes a descriptor whose operands are float32, with their elements one
// after the other in `x`, and expects `want`.
static void computes(const limber_primitive_desc *d, const float *x,
                     const float *want, size_t n) {
  limber_tensor in[LIMBER_MAX_OPERANDS] = {{0}}, out = {0};
  size_t n_in = 0;
  limber_primitive *p = create(d, NULL);
  for (int i = 0; i < LIMBER_MAX_OPERANDS; i++) {
    const limber_operand *o = &d->in[i];
    size_t count = 1;
    if (!o->dtype) continue;
    limber_tensor *t = &in[n_in++];
    *t = (limber_tensor){.dtype = LIMBER_F32, .rank = o->rank};
    for (int k = 0; k < o->rank; k++) count *= (size_t)o->dims[k];
    memcpy(t->dims, o->dims, sizeof o->dims);
    t->data = (void *)(uintptr_t)x;
    x += count;
  }
  ok(limber_primitive_execute(p, in, n_in, &out, 1, NULL));
  assert_int_equal(out.bytes, n * sizeof *want);
  for (size_t i = 0; i < n; i++) {
    float got = ((const float *)out.data)[i];
    if (!(got - want[i] < 1e-5f && want[i] - got < 1e-5f))
      print_error("element %zu is %g, not %g\n", i, (double)got,
                  (double)want[i]);
    assert_true(got - want[i] < 1e-5f && want[i] - got < 1e-5f);
  }
  limber_tensor_free(&out);
  limber_primitive_destroy(p);
}
#define COMPUTES(d, x, ...) \
  computes(d, x, F(__VA_ARGS__), sizeof F(__VA_ARGS__) / sizeof(float))

static void matmuls_match_hand_computed_results(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_MATMUL, 0);
  d.in[0] = operand(2, L(1), L(2));
  d.in[1] = operand(2, L(2), L(2));
  COMPUTES(&d, F(1, 10, 1, 2, 3, 4), 31, 42);
  d.transpose = 2;
  COMPUTES(&d, F(1, 10, 1, 2, 3, 4), 21, 43);
  d.in[2] = operand(1, L(2));
  COMPUTES(&d, F(1, 10, 1, 2, 3, 4, 100, 200), 121, 243);
  d.in[0] = operand(2, L(2), L(1));
  d.transpose = 3;
  COMPUTES(&d, F(1, 10, 1, 2, 3, 4, 100, 200), 121, 243);
  d = desc_of(LIMBER_MATMUL, 0);
  d.in[0] = operand(3, L(2), L(1), L(2));
  d.in[1] = operand(2, L(2), L(1));
  d.in[2] = operand(1, L(1));
  COMPUTES(&d, F(1, 2, 3, 4, 10, 1, 5), 17, 39);
}

static void convolutions_match_hand_computed_results(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_CONVOLUTION, 0);
  d.in[0] = operand(3, L(1), L(1), L(3));
  d.in[1] = operand(3, L(1), L(1), L(2));
  COMPUTES(&d, F(1, 2, 3, 1, 10), 21, 32);
  d.pads[0] = 1;  // before
  COMPUTES(&d, F(1, 2, 3, 1, 10), 10, 21, 32);
  d.strides[0] = 2;
  COMPUTES(&d, F(1, 2, 3, 1, 10), 10, 32);
  d.pads[0] = d.strides[0] = 0;
  d.dilations[0] = 2;
  COMPUTES(&d, F(1, 2, 3, 1, 10), 31);
  d = desc_of(LIMBER_CONVOLUTION, 0);
  d.in[0] = operand(3, L(1), L(2), L(2));
  d.in[1] = operand(3, L(2), L(1), L(1));
  d.in[2] = operand(1, L(2));
  d.groups = 2;
  COMPUTES(&d, F(1, 2, 3, 4, 2, 5, 100, 200), 102, 104, 215, 220);
  d = desc_of(LIMBER_CONVOLUTION, LIMBER_ALG_TRANSPOSED);
  d.in[0] = operand(3, L(1), L(1), L(2));
  d.in[1] = operand(3, L(1), L(1), L(2));
  d.strides[0] = 2;
  COMPUTES(&d, F(1, 2, 1, 10), 1, 10, 2, 20);
  d.output_pads[0] = 1;
  COMPUTES(&d, F(1, 2, 1, 10), 1, 10, 2, 20, 0);
}

static void eltwise_matches_hand_computed_results(void **state) {
  (void)state;
  static const struct {
    int alg;
    float alpha, beta, x, want;
  } rows[] = {
      {LIMBER_ALG_ABS, 0, 0, -2, 2},
      {LIMBER_ALG_CEIL, 0, 0, 1.25f, 2},
      {LIMBER_ALG_CLIP, -1, 0.5f, 3, 0.5f},
      {LIMBER_ALG_COS, 0, 0, 0, 1},
      {LIMBER_ALG_ELU, 2, 0, -50, -2},
      {LIMBER_ALG_ERF, 0, 0, 9, 1},
      {LIMBER_ALG_EXP, 0, 0, 1, 2.7182818f},
      {LIMBER_ALG_FLOOR, 0, 0, -1.25f, -2},
      {LIMBER_ALG_GELU, 0, 0, 1, 0.8413447f},
      {LIMBER_ALG_GELU_TANH, 0, 0, 1, 0.8411920f},
      {LIMBER_ALG_HARD_SIGMOID, 0.25f, 0.5f, 1, 0.75f},
      {LIMBER_ALG_HARD_SWISH, 0, 0, 1, 0.6666667f},
      {LIMBER_ALG_LEAKY_RELU, 0.5f, 0, -2, -1},
      {LIMBER_ALG_LINEAR, 2, 3, 5, 13},
      {LIMBER_ALG_LOG, 0, 0, 1, 0},
      {LIMBER_ALG_MISH, 0, 0, 1, 0.8650984f},
      {LIMBER_ALG_NEG, 0, 0, 4, -4},
      {LIMBER_ALG_RECIPROCAL, 0, 0, 4, 0.25f},
      {LIMBER_ALG_RELU, 0, 0, -4, 0},
      {LIMBER_ALG_ROUND, 0, 0, 2.5f, 2},
      {LIMBER_ALG_SIGMOID, 0, 0, 0, 0.5f},
      {LIMBER_ALG_SIGN, 0, 0, -7, -1},
      {LIMBER_ALG_SILU, 0, 0, 1, 0.7310586f},
      {LIMBER_ALG_SIN, 0, 0, 0, 0},
      {LIMBER_ALG_SOFTPLUS, 0, 0, 0, 0.6931472f},
      {LIMBER_ALG_SOFTSIGN, 0, 0, 3, 0.75f},
      {LIMBER_ALG_SQRT, 0, 0, 9, 3},
      {LIMBER_ALG_SQUARE, 0, 0, -3, 9},
      {LIMBER_ALG_TANH, 0, 0, 1, 0.7615942f},
  };
  int tried = 0, all = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++, tried++) {
    limber_primitive_desc d = desc_of(LIMBER_ELTWISE, rows[i].alg);
    d.in[0] = operand(1, L(1));
    d.alpha = rows[i].alpha;
    d.beta = rows[i].beta;
    COMPUTES(&d, &rows[i].x, rows[i].want);
  }
  for (int i = 1; i < LIMBER_ALGS; i++)
    all += limber_alg_kind(i) == LIMBER_ELTWISE;
  assert_int_equal(tried, all);
}

static void binary_matches_hand_computed_results(void **state) {
  (void)state;
  static const struct {
    int alg;
    float a, b, want;
  } rows[] = {{LIMBER_ALG_ADD, 1, 2, 3}, {LIMBER_ALG_SUB, 1, 3, -2},
              {LIMBER_ALG_MUL, 2, 3, 6}, {LIMBER_ALG_DIV, 6, 3, 2},
              {LIMBER_ALG_MAX, 2, 3, 3}, {LIMBER_ALG_MIN, 2, 3, 2},
              {LIMBER_ALG_POW, 2, 3, 8}, {LIMBER_ALG_PRELU, -2, 3, -6}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    limber_primitive_desc d = desc_of(LIMBER_BINARY, rows[i].alg);
    d.in[0] = d.in[1] = operand(1, L(1));
    COMPUTES(&d, F(rows[i].a, rows[i].b), rows[i].want);
  }
}

static void reductions_match_hand_computed_results(void **state) {
  (void)state;
  static const struct {
    int alg;
    float rows, cols;  // of [[1, 2], [3, 4]]: the first result of each
  } rows[] = {{LIMBER_ALG_REDUCE_SUM, 3, 4},
              {LIMBER_ALG_REDUCE_MEAN, 1.5f, 2},
              {LIMBER_ALG_REDUCE_MAX, 2, 3},
              {LIMBER_ALG_REDUCE_MIN, 1, 1},
              {LIMBER_ALG_REDUCE_PROD, 2, 3},
              {LIMBER_ALG_REDUCE_L1, 3, 4},
              {LIMBER_ALG_REDUCE_L2, 2.236068f, 3.1622777f},
              {LIMBER_ALG_REDUCE_SQUARES, 5, 10},
              {LIMBER_ALG_REDUCE_LOG_SUM_EXP, 2.3132617f, 3.126928f}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    limber_primitive_desc d = desc_of(LIMBER_REDUCTION, rows[i].alg);
    limber_tensor in = tensor(F(1, 2, 3, 4), 2, L(2), L(2)), out = {0};
    d.in[0] = operand(2, L(2), L(2));
    d.n_axes = 1;
    for (int axis = 0; axis < 2; axis++) {
      d.axes[0] = axis;
      d.keep_dims = axis;
      limber_primitive *p = create(&d, NULL);
      ok(limber_primitive_execute(p, &in, 1, &out, 1, NULL));
      float off = *(float *)out.data - (axis ? rows[i].rows : rows[i].cols);
      assert_true(off < 1e-5f && off > -1e-5f);
      assert_int_equal(out.rank, 1 + axis);
      limber_tensor_free(&out);
      limber_primitive_destroy(p);
    }
  }
}

static void normalizations_match_hand_computed_results(void **state) {
  (void)state;
  limber_primitive_desc d =
      desc_of(LIMBER_NORMALIZATION, LIMBER_ALG_LAYER_NORM);
  d.in[0] = operand(2, L(1), L(2));
  d.in[1] = d.in[2] = operand(1, L(2));
  d.axis = -1;
  d.epsilon = 1e-9f;
  COMPUTES(&d, F(1, 3, 2, 2, 1, 5), -1, 7);
  d.epsilon = 3;  // a variance of 4
  COMPUTES(&d, F(1, 3, 2, 2, 1, 5), 0, 6);
  d.in[2].dtype = LIMBER_NONE;
  d.alg = LIMBER_ALG_RMS_NORM;
  d.epsilon = 1e-9f;
  COMPUTES(&d, F(1, 7, 1, 2), 0.2f, 2.8f);
  d = desc_of(LIMBER_NORMALIZATION, LIMBER_ALG_BATCH_NORM);
  d.in[0] = operand(3, L(1), L(2), L(1));
  for (int i = 1; i < 5; i++) d.in[i] = operand(1, L(2));
  d.epsilon = 1e-9f;
  COMPUTES(&d, F(1, 2, 2, 3, 10, 20, 0, 1, 1, 4), 12, 21.5f);
  d.in[3].dtype = d.in[4].dtype = LIMBER_NONE;
  d.alg = LIMBER_ALG_GROUP_NORM;
  COMPUTES(&d, F(1, 3, 1, 1, 0, 5), -1, 6);
  d.groups = 2;
  COMPUTES(&d, F(1, 3, 1, 1, 0, 5), 0, 5);
  d = desc_of(LIMBER_NORMALIZATION, LIMBER_ALG_INSTANCE_NORM);
  d.in[0] = operand(3, L(1), L(1), L(2));
  d.in[1] = d.in[2] = operand(1, L(1));
  d.epsilon = 1e-9f;
  COMPUTES(&d, F(1, 3, 2, 5), 3, 7);
  d = desc_of(LIMBER_SOFTMAX, 0);
  d.in[0] = operand(2, L(1), L(2));
  COMPUTES(&d, F(3, 9), 1, 1);
  d.axis = 1;
  COMPUTES(&d, F(7, 7), 0.5f, 0.5f);
  d.alg = LIMBER_ALG_LOG_SOFTMAX;
  COMPUTES(&d, F(7, 7), -0.6931472f, -0.6931472f);
}

static void pooling_matches_hand_computed_results(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_POOLING, LIMBER_ALG_POOL_MAX);
  d.in[0] = operand(3, L(1), L(1), L(3));
  COMPUTES((d.alg = LIMBER_ALG_POOL_GLOBAL_MAX, &d), F(1, 5, 3), 5);
  COMPUTES((d.alg = LIMBER_ALG_POOL_GLOBAL_AVERAGE, &d), F(1, 5, 3), 3);
  d.kernel[0] = 2;
  d.alg = LIMBER_ALG_POOL_MAX;
  COMPUTES(&d, F(1, 5, 2), 5, 5);
  d.pads[1] = 1;  // after
  COMPUTES(&d, F(1, 5, 2), 5, 5, 2);
  COMPUTES((d.alg = LIMBER_ALG_POOL_AVERAGE, &d), F(1, 5, 2), 3, 3.5f, 2);
  d.alg = LIMBER_ALG_POOL_AVERAGE_PADDED;
  COMPUTES(&d, F(1, 5, 2), 3, 3.5f, 1);
  d.pads[1] = 0;
  d.strides[0] = 2;
  d.alg = LIMBER_ALG_POOL_MAX;
  COMPUTES(&d, F(1, 5, 2), 5);
  d.ceil_mode = 1;
  COMPUTES(&d, F(1, 5, 2), 5, 2);
  d = desc_of(LIMBER_RESAMPLING, LIMBER_ALG_NEAREST);
  d.in[0] = operand(3, L(1), L(1), L(2));
  d.sizes[0] = 4;
  COMPUTES(&d, F(0, 4), 0, 0, 4, 4);
  d.sizes[0] = 0;
  d.factors[0] = 2;
  COMPUTES(&d, F(0, 4), 0, 0, 4, 4);
  d.alg = LIMBER_ALG_BILINEAR;
  COMPUTES(&d, F(0, 4), 0, 1, 3, 4);
}

static void concat_and_reorder_match_hand_computed_results(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_CONCAT, 0);
  d.in[0] = operand(2, L(2), L(1));
  d.in[1] = operand(2, L(2), L(2));
  d.axis = 1;
  COMPUTES(&d, F(1, 2, 3, 4, 5, 6), 1, 3, 4, 2, 5, 6);
  d = desc_of(LIMBER_REORDER, 0);
  d.in[0] = operand(2, L(2), L(3));
  COMPUTES(&d, F(1, 2, 3, 4, 5, 6), 1, 2, 3, 4, 5, 6);
  d.n_axes = 2;
  d.axes[0] = 1;
  COMPUTES(&d, F(1, 2, 3, 4, 5, 6), 1, 4, 2, 5, 3, 6);
  d = desc_of(LIMBER_REORDER, 0);
  d.in[0] = operand(3, L(1), L(2), L(2));
  d.out_layout = LIMBER_LAYOUT_CHANNELS_LAST;
  COMPUTES(&d, F(1, 2, 3, 4), 1, 3, 2, 4);
}

// There are two keys with the scores 0 and ln 3, so the values have the weights
// 1/4 and 3/4.
static void attention_matches_hand_computed_results(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_ATTENTION, 0);
  d.in[0] = d.in[1] = d.in[2] = operand(4, L(1), L(1), L(2), L(1));
  const float ln3 = 1.0986123f;
  COMPUTES(&d, F(1, 1, 0, ln3, 4, 8), 7, 7);
  d.alpha = 2;  // the weights are 1/10 and 9/10
  COMPUTES(&d, F(1, 1, 0, ln3, 10, 20), 19, 19);
  d.causal = 1;
  COMPUTES(&d, F(1, 1, 0, ln3, 10, 20), 10, 19);
  d.causal = 0;
  d.in[3] = operand(2, L(2), L(2));
  d.alpha = 0;
  COMPUTES(&d, F(1, 1, 0, 0, 4, 8, 0, ln3, -99, 0), 7, 8);
  // Two heads of the query share one head of keys.
  d = desc_of(LIMBER_ATTENTION, 0);
  d.in[0] = operand(4, L(1), L(2), L(1), L(1));
  d.in[1] = d.in[2] = operand(4, L(1), L(1), L(2), L(1));
  COMPUTES(&d, F(1, -1, 0, ln3, 4, 8), 7, 5);
  d.in[1].rank = 3;
  limber_primitive *p;
  expect_rejected(
      limber_primitive_create(NULL, &d, NULL, &p), LIMBER_INVALID,
      "in[1] (key): rank: 3 is not 4: batch, heads, length and head size");
}

// One primitive serves any channels, weights and windows.
static void convolutions_take_runtime_dims_everywhere(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_CONVOLUTION, 0);
  d.in[0] = operand(3, ANY, ANY, ANY);
  d.in[1] = operand(3, ANY, ANY, ANY);
  d.in[2] = operand(1, ANY);
  limber_primitive *p = create(&d, NULL);
  float x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 10, 100, 1000}, bias[] = {0, 7};
  limber_tensor in[] = {tensor(x, 3, L(1), L(2), L(3)),
                        tensor(w, 3, L(1), L(2), L(2)), tensor(bias, 1, L(1))};
  limber_tensor out = {0};
  ok(limber_primitive_execute(p, in, 3, &out, 1, NULL));
  assert_int_equal(out.dims[1], 1);
  assert_int_equal(out.dims[2], 2);
  assert_true(((float *)out.data)[0] == 5421);
  assert_true(((float *)out.data)[1] == 6532);
  in[0] = tensor(x, 3, L(1), L(1), L(6));
  in[1] = tensor(w, 3, L(2), L(1), L(1));
  in[2] = tensor(bias, 1, L(2));
  limber_tensor_free(&out);
  ok(limber_primitive_execute(p, in, 3, &out, 1, NULL));
  assert_int_equal(out.dims[1], 2);
  assert_true(((float *)out.data)[5] == 6);
  assert_true(((float *)out.data)[6] == 17);
  limber_tensor_free(&out);
  in[1] = tensor(w, 3, L(2), L(2), L(1));
  expect_rejected(limber_primitive_execute(p, in, 3, &out, 1, NULL),
                  LIMBER_INVALID, "has 1 channels");
  limber_primitive_destroy(p);
}

static void recurrences_match_hand_computed_results(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_RECURRENT, LIMBER_ALG_RNN_RELU);
  d.in[0] = operand(3, L(3), L(1), L(1));
  d.in[1] = d.in[2] = operand(3, L(1), L(1), L(1));
  COMPUTES(&d, F(-5, 1, 2, 1, 10), 0, 1, 12);  // x + 10 h
  d.direction = 1;
  COMPUTES(&d, F(-5, 1, 2, 1, 10), 205, 21, 2);
  d.direction = 2;
  d.in[1] = d.in[2] = operand(3, L(2), L(1), L(1));
  COMPUTES(&d, F(-5, 1, 2, 1, 1, 10, 10), 0, 205, 1, 21, 12, 2);
  d = desc_of(LIMBER_RECURRENT, LIMBER_ALG_RNN_TANH);
  d.in[0] = d.in[1] = d.in[2] = operand(3, L(1), L(1), L(1));
  COMPUTES(&d, F(1, 1, 0), 0.7615942f);
  d = desc_of(LIMBER_RECURRENT, LIMBER_ALG_GRU);
  d.in[0] = operand(3, L(1), L(1), L(1));
  d.in[1] = d.in[2] = operand(3, L(1), L(3), L(1));
  d.in[5] = operand(3, L(1), L(1), L(1));
  COMPUTES(&d, F(0, 0, 0, 0, 0, 0, 0, 4), 2);
  // The recurrence bias of h is multiplied by the reset gate or not: tanh(1/2),
  // tanh(1).
  d.in[3] = operand(2, L(1), L(6));
  d.in[5].dtype = LIMBER_NONE;
  d.reset_after = 1;
  COMPUTES(&d, F(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), 0.2310586f);
  d.reset_after = 0;
  COMPUTES(&d, F(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), 0.3807971f);
}

// The runtime dims of an operand whose rank is less than the result's are the
// result's last dims: here [batch, rows, cols] plus [cols], then times [rows,
// cols].
static void runtime_dims_of_post_operands_count_from_the_end(void **state) {
  (void)state;
  static float a[2 * 5 * 3], b[3 * 7], c[7], t[5 * 7];
  limber_primitive_desc d = desc_of(LIMBER_MATMUL, 0);
  limber_operand one = operand(1, ANY), two = operand(2, ANY, ANY);
  limber_attr *attr;
  fill(a, 30, 1), fill(b, 21, 2), fill(c, 7, 3), fill(t, 35, 4);
  d.in[0] = operand(3, ANY, ANY, L(3));
  d.in[1] = operand(2, L(3), ANY);
  ok(limber_attr_create(&attr));
  ok(limber_attr_append_binary(attr, LIMBER_ALG_ADD, &one));
  ok(limber_attr_append_binary(attr, LIMBER_ALG_MUL, &two));
  limber_primitive *p = create(&d, attr);
  limber_attr_destroy(attr);
  for (int64_t rows = 1; rows <= 5; rows++)
    for (int64_t cols = 1; cols <= 7; cols += 3) {
      limber_tensor in[] = {tensor(a, 3, L(2), rows, L(3)),
                            tensor(b, 2, L(3), cols), tensor(c, 1, cols),
                            tensor(t, 2, rows, cols)};
      limber_tensor out = {0};
      ok(limber_primitive_execute(p, in, 4, &out, 1, NULL));
      assert_true(out.dims[1] == rows && out.dims[2] == cols);
      for (int64_t i = 0; i < 2 * rows * cols; i++) {
        int64_t row = i / cols, col = i % cols;
        float want = c[col];
        for (int64_t k = 0; k < 3; k++)
          want += a[row * 3 + k] * b[k * cols + col];
        want *= t[i % (rows * cols)];
        assert_float_equal(((float *)out.data)[i], want, 1e-5);
      }
      limber_tensor_free(&out);
      in[2].dims[0]++;  // no longer as many as the result has columns
      assert_int_equal(limber_primitive_execute(p, in, 4, &out, 1, NULL),
                       LIMBER_INVALID);
    }
  limber_primitive_destroy(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(runtime_dims_of_post_operands_count_from_the_end),
      TEST(matmuls_match_hand_computed_results),
      TEST(convolutions_match_hand_computed_results),
      TEST(eltwise_matches_hand_computed_results),
      TEST(binary_matches_hand_computed_results),
      TEST(reductions_match_hand_computed_results),
      TEST(normalizations_match_hand_computed_results),
      TEST(pooling_matches_hand_computed_results),
      TEST(concat_and_reorder_match_hand_computed_results),
      TEST(recurrences_match_hand_computed_results),
      TEST(attention_matches_hand_computed_results),
      TEST(convolutions_take_runtime_dims_everywhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
