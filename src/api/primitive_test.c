// api/primitive_test.c -- tests primitives through the public functions.
#include "api/primitive_test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "api/primitive.h"

// -- results -----------------------------------------------------------------

static void a_matmul_with_post_operations_and_a_runtime_dim(void **state) {
  (void)state;
  float w[6] = {1, 2, 3, 4, 5, 6}, x[6] = {1, 0, 0, 1, -1, -1};
  float bias[3] = {10, 20, 30};
  limber_primitive_desc d = desc_of(LIMBER_MATMUL, 0);
  limber_operand cols = operand(1, L(3));
  limber_attr *a;
  d.in[0] = operand(2, ANY, L(2));
  d.in[1] = operand(2, L(2), L(3));
  d.in[1].data = w;
  ok(limber_attr_create(&a));
  ok(limber_attr_append_eltwise(a, LIMBER_ALG_RELU, 0, 0));
  ok(limber_attr_append_binary(a, LIMBER_ALG_ADD, &cols));
  limber_primitive *p = create(&d, a);
  limber_attr_destroy(a);
  for (int64_t rows = 1; rows <= 3; rows++) {
    limber_tensor in[] = {tensor(x, 2, rows, L(2)), tensor(bias, 1, L(3))};
    limber_tensor out = {0};
    ok(limber_primitive_execute(p, in, 2, &out, 1, NULL));
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.dims[0], rows);
    const float *y = out.data, want[] = {11, 22, 33, 14, 25, 36, 10, 20, 30};
    for (int64_t i = 0; i < rows * 3; i++) assert_true(y[i] == want[i]);
    limber_tensor_free(&out);
  }
  limber_primitive_destroy(p);
}

static void operands_may_be_channels_last(void **state) {
  (void)state;
  float x[2 * 4 * 4], last[2 * 4 * 4], w[3 * 2 * 3 * 3], want[3 * 2 * 2];
  float got[3 * 2 * 2];
  limber_primitive_desc d = desc_of(LIMBER_CONVOLUTION, 0);
  fill(x, 32, 1);
  fill(w, 54, 2);
  for (int c = 0; c < 2; c++)
    for (int i = 0; i < 16; i++) last[i * 2 + c] = x[c * 16 + i];
  d.in[0] = operand(4, L(1), L(2), ANY, L(4));
  d.in[1] = operand(4, L(3), L(2), L(3), L(3));
  d.in[1].data = w;
  d.strides[0] = d.strides[1] = 2;
  for (int i = 0; i < 4; i++) d.pads[i] = 1;
  limber_primitive *plain = create(&d, NULL);
  d.in[0].layout = LIMBER_LAYOUT_CHANNELS_LAST;
  limber_primitive *p = create(&d, NULL);
  limber_tensor in = tensor(x, 4, L(1), L(2), L(4), L(4));
  limber_tensor out = {.data = want, .bytes = sizeof want};
  ok(limber_primitive_execute(plain, &in, 1, &out, 1, NULL));
  in.data = last;
  out = (limber_tensor){.data = got, .bytes = sizeof got};
  ok(limber_primitive_execute(p, &in, 1, &out, 1, NULL));
  int64_t dims[4] = {1, 3, 2, 2};
  assert_memory_equal(out.dims, dims, sizeof dims);
  for (int c = 0; c < 3; c++)
    for (int i = 0; i < 4; i++) assert_true(got[i * 3 + c] == want[c * 4 + i]);
  limber_primitive_destroy(plain);
  limber_primitive_destroy(p);
}

// Strides are in the order of the descriptor's axes, whatever the layout: here
// two of four channels, in a buffer with a row of six pixels.
static void tensors_may_have_strides(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_RELU);
  const int64_t strides[] = {24, 1, 4};
  float x[48], y[48];
  d.in[0] = operand(3, L(2), L(2), ANY);
  d.in[0].layout = d.out_layout = LIMBER_LAYOUT_CHANNELS_LAST;
  limber_primitive *p = create(&d, NULL);
  limber_tensor in = tensor(x, 3, L(2), L(2), L(5));
  limber_tensor out = {
      .rank = 3, .data = y, .bytes = sizeof y, .strides = strides};
  in.strides = strides;
  fill(x, 48, 7);
  for (int i = 0; i < 48; i++) y[i] = 99;
  ok(limber_primitive_execute(p, &in, 1, &out, 1, NULL));
  assert_int_equal(out.dims[1], 2);
  assert_int_equal(out.dims[2], 5);
  for (int i = 0; i < 48; i++) {
    int inside = i % 4 < 2 && i % 24 / 4 < 5;
    float want = !inside ? 99 : x[i] > 0 ? x[i] : 0;
    assert_true(y[i] == want);
  }
  limber_primitive_destroy(p);
}

static void a_sum_may_be_the_memory_of_the_result(void **state) {
  (void)state;
  enum { N = 100 };
  float x[N], y[N], want[N];
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_SQUARE);
  limber_attr *a;
  d.in[0] = operand(1, ANY);
  ok(limber_attr_create(&a));
  ok(limber_attr_append_sum(a, 0.5f));
  limber_primitive *p = create(&d, a);
  fill(x, N, 3);
  fill(y, N, 4);
  for (int i = 0; i < N; i++) want[i] = x[i] * x[i] + 0.5f * y[i];
  limber_tensor in[] = {tensor(x, 1, L(N)), tensor(y, 1, L(N))};
  limber_tensor out = {.data = y, .bytes = sizeof y};
  ok(limber_primitive_execute(p, in, 2, &out, 1, NULL));
  for (int i = 0; i < N; i++) assert_true(y[i] == want[i]);
  limber_primitive_destroy(p);
  limber_attr_destroy(a);
}

static void a_recurrence_has_several_results(void **state) {
  (void)state;
  float x[2 * 3] = {0}, w[4 * 2 * 3] = {0}, r[4 * 2 * 2] = {0}, c0[2] = {2, 4};
  float h0[2] = {0};
  limber_primitive_desc d = desc_of(LIMBER_RECURRENT, LIMBER_ALG_LSTM);
  d.in[0] = operand(3, ANY, L(1), L(3));
  d.in[1] = operand(3, L(1), L(8), L(3));
  d.in[1].data = w;
  d.in[2] = operand(3, L(1), L(8), L(2));
  d.in[2].data = r;
  d.in[5] = operand(3, L(1), L(1), L(2));
  d.in[6] = operand(3, L(1), L(1), L(2));
  limber_primitive *p = create(&d, NULL);
  limber_tensor in[] = {tensor(x, 3, L(2), L(1), L(3)),
                        tensor(h0, 3, L(1), L(1), L(2)),
                        tensor(c0, 3, L(1), L(1), L(2))};
  limber_tensor out[3] = {{0}};
  ok(limber_primitive_execute(p, in, 3, out, 3, NULL));
  assert_int_equal(out[0].rank, 4);
  const float *cell = out[2].data;  // multiplied by the forget gate, 1/2, twice
  assert_true(cell[0] == 0.5f && cell[1] == 1);
  for (int i = 0; i < 3; i++) limber_tensor_free(&out[i]);
  expect_rejected(limber_primitive_execute(p, in, 3, out, 4, NULL),
                  LIMBER_INVALID,
                  "4 outputs were requested, but the primitive has 3");
  limber_primitive_destroy(p);
}

static void the_reference_attribute_uses_no_kernels(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_SOFTMAX, 0);
  limber_primitive_info info = {.size = sizeof info};
  limber_attr *a;
  d.in[0] = operand(2, L(7), L(33));
  d.axis = -1;
  ok(limber_attr_create(&a));
  ok(limber_attr_set_reference(a, 1));
  limber_primitive *p = create(&d, a);
  ok(limber_primitive_query(p, NULL, 0, &info));
  assert_string_equal(info.tier, "reference");
  assert_string_equal(info.implementation, "reference Softmax");
  assert_string_equal(info.key, "softmax in=f32:7x33 axis=-1 reference=1");
  assert_int_equal(info.n_inputs, 1);
  assert_int_equal(info.steps, 1);
  limber_primitive_destroy(p);
  limber_attr_destroy(a);
}

static void the_attribute_decides_whether_kernels_are_reusable(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_SOFTMAX, 0);
  limber_primitive_info info = {.size = sizeof info};
  limber_attr *a;
  int on = 7;
  d.in[0] = operand(2, L(7), L(33));
  d.axis = -1;
  ok(limber_attr_create(&a));
  ok(limber_attr_get_hint_reusable_kernels(a, &on));
  assert_int_equal(on, 0);
  ok(limber_attr_set_hint_reusable_kernels(a, 1));
  ok(limber_attr_get_hint_reusable_kernels(a, &on));
  assert_int_equal(on, 1);
  expect_rejected(limber_attr_set_hint_reusable_kernels(a, 2), LIMBER_INVALID,
                  "hint_reusable_kernels: 2 is neither 0 nor 1");
  limber_primitive *p = create(&d, a);
  ok(limber_primitive_query(p, NULL, 0, &info));
  assert_int_equal(info.prefer_reusable, 1);
  assert_int_equal(info.reusable, 1);
  assert_string_equal(info.prefer_reusable_from, "attribute");
  assert_string_equal(info.key, "softmax in=f32:7x33 axis=-1 reusable=1");
  limber_primitive_destroy(p);
  limber_attr_destroy(a);
}

static void the_caller_may_supply_scratch(void **state) {
  (void)state;
  enum { N = 40 };
  static _Alignas(64) char memory[1 << 16];
  static float x[N * N], y[N * N], want[N * N];
  limber_primitive_desc d = desc_of(LIMBER_SOFTMAX, 0);
  limber_primitive_info info = {.size = sizeof info};
  limber_run_options o = LIMBER_RUN_OPTIONS_INIT;
  limber_tensor in = tensor(x, 2, L(N), L(N));
  limber_tensor out = {.data = want, .bytes = sizeof want};
  limber_attr *a;
  fill(x, N * N, 8);
  d.in[0] = operand(2, L(N), L(N));
  ok(limber_attr_create(&a));
  ok(limber_attr_set_reference(a, 1));
  ok(limber_attr_append_eltwise(a, LIMBER_ALG_EXP, 0, 0));
  ok(limber_attr_append_eltwise(a, LIMBER_ALG_TANH, 0, 0));
  limber_primitive *p = create(&d, a);
  ok(limber_primitive_execute(p, &in, 1, &out, 1, NULL));
  limber_primitive_destroy(p);
  ok(limber_attr_set_user_scratch(a, 1));
  p = create(&d, a);
  ok(limber_primitive_query(p, NULL, 0, &info));
  assert_true(info.scratch_bytes > 0 && info.scratch_bytes <= sizeof memory);
  out = (limber_tensor){.data = y, .bytes = sizeof y};
  expect_rejected(limber_primitive_execute(p, &in, 1, &out, 1, NULL),
                  LIMBER_INVALID, "scratch: the run needs");
  o.scratch = memory + 8;
  o.scratch_bytes = info.scratch_bytes;
  expect_rejected(limber_primitive_execute(p, &in, 1, &out, 1, &o),
                  LIMBER_INVALID, "scratch: must be aligned to 64 bytes");
  o.scratch = memory;
  ok(limber_primitive_execute(p, &in, 1, &out, 1, &o));
  assert_memory_equal(y, want, sizeof y);
  o.scratch_bytes--;
  expect_rejected(limber_primitive_execute(p, &in, 1, &out, 1, &o),
                  LIMBER_INVALID, "scratch: the run needs");
  limber_primitive_destroy(p);
  limber_attr_destroy(a);
}

// -- caching -----------------------------------------------------------------

static void equal_descriptors_share_a_primitive(void **state) {
  (void)state;
  float w[4] = {1, 2, 3, 4}, same[4] = {1, 2, 3, 4};
  limber_primitive_desc d = desc_of(LIMBER_MATMUL, 0);
  d.in[0] = operand(2, ANY, L(2));
  d.in[1] = operand(2, L(2), L(2));
  d.in[1].data = w;
  limber_primitive *a = create(&d, NULL);
  d.in[1].data = same;
  d.in[0].dims[5] = 99;  // beyond the rank
  limber_primitive *b = create(&d, NULL);
  assert_ptr_equal(a->core, b->core);
  same[3] = 5;
  limber_primitive *c = create(&d, NULL);
  assert_ptr_not_equal(a->core, c->core);
  d.transpose = 2;
  limber_primitive *t = create(&d, NULL);
  assert_ptr_not_equal(c->core, t->core);
  limber_primitive_destroy(a);
  limber_primitive_destroy(b);
  limber_primitive_destroy(c);
  limber_primitive_destroy(t);
}

static void without_capacity_nothing_is_cached(void **state) {
  (void)state;
  uint64_t capacity;
  float x[9], y[9];
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_ABS);
  limber_tensor in = tensor(x, 1, L(9)), out = {.data = y, .bytes = sizeof y};
  fill(x, 9, 5);
  d.in[0] = operand(1, L(9));
  ok(limber_get_cache_capacity(&capacity));
  limber_primitive *kept = create(&d, NULL);
  ok(limber_set_cache_capacity(0));
  limber_primitive *a = create(&d, NULL), *b = create(&d, NULL);
  assert_ptr_not_equal(a->core, b->core);
  ok(limber_primitive_execute(kept, &in, 1, &out, 1, NULL));  // was evicted
  ok(limber_primitive_execute(a, &in, 1, &out, 1, NULL));
  limber_primitive_destroy(kept);
  limber_primitive_destroy(a);
  limber_primitive_destroy(b);
  ok(limber_set_cache_capacity(capacity));
}

static void a_runtime_may_end_after_its_primitives(void **state) {
  (void)state;
  limber_runtime *r;
  limber_primitive *p;
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_NEG);
  d.in[0] = operand(1, L(9));
  ok(limber_runtime_create(NULL, &r));
  ok(limber_primitive_create(r, &d, NULL, &p));
  limber_primitive_destroy(p);
  limber_runtime_destroy(r);
}

// -- blobs -------------------------------------------------------------------

static void a_blob_is_valid_for_one_descriptor(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_SOFTMAX, 0), other = d;
  limber_primitive *p, *q;
  char id[LIMBER_CACHE_ID], id2[LIMBER_CACHE_ID];
  void *blob;
  size_t size;
  d.in[0] = operand(2, L(7), L(33));
  other.in[0] = operand(2, L(7), L(34));
  p = create(&d, NULL);
  ok(limber_primitive_get_cache_blob(p, 60, &blob, &size));
  ok(limber_primitive_get_cache_id(p, id));
  assert_int_equal(strlen(id), 32);
  ok(limber_primitive_create_from_cache_blob(NULL, &d, NULL, blob, size, &q));
  ok(limber_primitive_get_cache_id(q, id2));
  assert_string_equal(id, id2);
  limber_primitive_destroy(q);
  expect_rejected(limber_primitive_create_from_cache_blob(NULL, &other, NULL,
                                                          blob, size, &q),
                  LIMBER_INVALID,
                  "cache blob: it belongs to another descriptor");
  assert_null(q);
  q = create(&other, NULL);
  ok(limber_primitive_get_cache_id(q, id2));
  assert_string_not_equal(id, id2);
  limber_primitive_destroy(p);
  limber_primitive_destroy(q);
  limber_blob_free(blob);
}

static void a_corrupt_blob_is_rejected(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_SOFTMAX, 0);
  limber_primitive *p, *q;
  void *blob;
  size_t size;
  d.in[0] = operand(2, L(7), L(33));
  p = create(&d, NULL);
  ok(limber_primitive_get_cache_blob(p, 60, &blob, &size));
  uint8_t *bytes = blob;
  for (size_t i = 0; i < size; i++) {
    bytes[i] ^= 1;
    assert_int_not_equal(
        limber_primitive_create_from_cache_blob(NULL, &d, NULL, blob, size, &q),
        LIMBER_OK);
    bytes[i] ^= 1;
    assert_int_not_equal(
        limber_primitive_create_from_cache_blob(NULL, &d, NULL, blob, i, &q),
        LIMBER_OK);
  }
  bytes[0] ^= 1;
  expect_rejected(
      limber_primitive_create_from_cache_blob(NULL, &d, NULL, blob, size, &q),
      LIMBER_INVALID, "cache blob: not a cache blob");
  bytes[0] ^= 1;
  bytes[8] ^= 2;
  expect_rejected(
      limber_primitive_create_from_cache_blob(NULL, &d, NULL, blob, size, &q),
      LIMBER_UNSUPPORTED, "cache blob: its format version is 3, not 1");
  expect_rejected(
      limber_primitive_create_from_cache_blob(NULL, &d, NULL, NULL, 0, &q),
      LIMBER_INVALID, "cache blob: truncated");
  limber_primitive_destroy(p);
  limber_blob_free(blob);
}

// -- errors ------------------------------------------------------------------

static limber_primitive_desc conv(void) {
  limber_primitive_desc d = desc_of(LIMBER_CONVOLUTION, 0);
  d.in[0] = operand(4, L(1), L(2), L(8), L(8));
  d.in[1] = operand(4, L(4), L(2), L(3), L(3));
  return d;
}

static void wrong(const limber_primitive_desc *d, limber_status code,
                  const char *text) {
  limber_primitive *p;
  expect_rejected(limber_primitive_create(NULL, d, NULL, &p), code, text);
  assert_null(p);
}

static void errors_name_the_field(void **state) {
  (void)state;
  limber_primitive_desc d = conv();
  d.size = 0;
  wrong(&d, LIMBER_INVALID, "limber_primitive_desc: set its field size");
  wrong(NULL, LIMBER_INVALID, "limber_primitive_desc: is NULL");
  d = conv();
  d.kind = 99;
  wrong(&d, LIMBER_INVALID, "kind: 99 is not a limber_primitive_kind");
  d = conv();
  d.alg = LIMBER_ALG_RELU;
  wrong(&d, LIMBER_INVALID, "alg: relu belongs to eltwise, not to convolution");
  d.alg = 1000;
  wrong(&d, LIMBER_INVALID, "alg: 1000 is not a limber_alg of convolution");
  d = conv();
  d.axis = 1;
  wrong(&d, LIMBER_INVALID, "axis: convolution does not read it");
  d = conv();
  d.in[1].dtype = LIMBER_NONE;
  wrong(&d, LIMBER_INVALID, "in[1]: convolution needs its operand 'weights'");
  d = conv();
  d.in[3] = d.in[0];
  wrong(&d, LIMBER_INVALID, "in[3]: convolution has at most 3 operands");
  limber_primitive_desc gates = desc_of(LIMBER_RECURRENT, LIMBER_ALG_GRU);
  gates.in[0] = operand(3, ANY, ANY, L(1));
  gates.in[1] = gates.in[2] = operand(3, L(1), L(3), ANY);
  wrong(&gates, LIMBER_UNSUPPORTED,
        "in[1] (weights): dims[2] must not be a runtime dim");
  d = conv();
  d.in[0].dims[3] = -5;
  wrong(&d, LIMBER_INVALID, "in[0] (src): dims[3] is -5");
  d = conv();
  d.in[0].dtype = 77;
  wrong(&d, LIMBER_INVALID, "in[0] (src): dtype: 77 is not a limber_dtype");
  d = conv();
  d.in[0].rank = 13;
  wrong(&d, LIMBER_INVALID, "in[0] (src): rank: 13 is not in 0 to 12");
  d = conv();
  d.in[0].layout = 7;
  wrong(&d, LIMBER_INVALID, "in[0] (src): layout: 7 is not a limber_layout");
  d = conv();
  d.strides[2] = 1;
  wrong(&d, LIMBER_INVALID, "strides[2]: src has 2 spatial axes");
  d = conv();
  d.pads[0] = -1;
  wrong(&d, LIMBER_INVALID, "pads[0]: -1 is not in 0 to");
  d = conv();
  d.output_pads[0] = 1;
  wrong(&d, LIMBER_INVALID, "output_pads: direct has none");
  d = conv();
  d.in[1].dims[1] = 3;
  wrong(&d, LIMBER_INVALID, "'convolution'");
}

static void more_errors_name_the_field(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_RELU);
  d.in[0] = operand(1, L(4));
  d.alpha = 1;
  wrong(&d, LIMBER_INVALID, "alpha: relu has none");
  d = desc_of(LIMBER_SOFTMAX, 0);
  d.in[0] = operand(2, L(4), L(4));
  d.axis = 2;
  wrong(&d, LIMBER_INVALID, "axis: 2 is out of range for rank 2");
  d.axis = 0;
  d.in[0].layout = LIMBER_LAYOUT_CHANNELS_LAST;
  wrong(&d, LIMBER_INVALID, "channels-last needs rank 3 or more, not 2");
  d.in[0].layout = 0;
  d.out_layout = LIMBER_LAYOUT_CHANNELS_LAST;
  wrong(&d, LIMBER_INVALID, "out_layout: channels-last needs rank 3 or more");
  d = desc_of(LIMBER_REDUCTION, LIMBER_ALG_REDUCE_SUM);
  d.in[0] = operand(2, L(4), L(4));
  d.n_axes = 2;
  d.axes[0] = d.axes[1] = 1;
  wrong(&d, LIMBER_INVALID, "axes[1]: 1 is listed twice");
  d.axes[1] = 5;
  wrong(&d, LIMBER_INVALID, "axes[1]: 5 is not an axis of src");
  d = desc_of(LIMBER_POOLING, LIMBER_ALG_POOL_MAX);
  d.in[0] = operand(4, L(1), L(2), L(8), L(8));
  wrong(&d, LIMBER_INVALID, "kernel[0]: must not be 0");
  d = desc_of(LIMBER_RESAMPLING, LIMBER_ALG_NEAREST);
  d.in[0] = operand(4, L(1), L(2), L(8), L(8));
  wrong(&d, LIMBER_INVALID, "factors, sizes: set exactly one of them");
  d = desc_of(LIMBER_NORMALIZATION, LIMBER_ALG_BATCH_NORM);
  d.in[0] = operand(4, L(1), L(2), L(8), L(8));
  d.in[1] = d.in[2] = operand(1, L(2));
  wrong(&d, LIMBER_INVALID, "in[3]: batch_norm needs its operand 'mean'");
  d = desc_of(LIMBER_CONCAT, 0);
  d.in[0] = d.in[2] = operand(1, L(2));
  wrong(&d, LIMBER_INVALID, "in[1]: is absent, but a later operand is present");
  d = desc_of(LIMBER_MATMUL, 0);
  d.in[0] = operand(2, L(2), L(3));
  d.in[1] = operand(2, L(4), L(5));
  wrong(&d, LIMBER_INVALID, "'matmul'");
}

static void invalid_post_operations_are_rejected(void **state) {
  (void)state;
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_RELU);
  limber_operand large = operand(2, L(3), L(4)), absent = {0};
  limber_primitive *p;
  limber_attr *a;
  d.in[0] = operand(1, L(4));
  ok(limber_attr_create(&a));
  expect_rejected(limber_attr_append_eltwise(a, LIMBER_ALG_ADD, 0, 0),
                  LIMBER_INVALID, "alg: add is not an alg of eltwise");
  expect_rejected(limber_attr_append_binary(a, 0, &large), LIMBER_INVALID,
                  "alg: 0 is not an alg of binary");
  expect_rejected(limber_attr_set_reference(a, 2), LIMBER_INVALID,
                  "reference: 2 is neither 0 nor 1");
  ok(limber_attr_append_binary(a, LIMBER_ALG_ADD, &large));
  expect_rejected(limber_primitive_create(NULL, &d, a, &p), LIMBER_INVALID,
                  "post[0]: rank 2 exceeds the result's rank, 1");
  limber_attr_destroy(a);
  ok(limber_attr_create(&a));
  ok(limber_attr_append_binary(a, LIMBER_ALG_ADD, &absent));
  expect_rejected(limber_primitive_create(NULL, &d, a, &p), LIMBER_INVALID,
                  "post[0]: operand: dtype: the operand is absent");
  limber_attr_destroy(a);
  ok(limber_attr_create(&a));
  ok(limber_attr_append_binary(a, LIMBER_ALG_LESS, &d.in[0]));
  expect_rejected(limber_primitive_create(NULL, &d, a, &p), LIMBER_INVALID,
                  "post[0]: alg: less makes bools");
  for (int i = 1; i < LIMBER_MAX_POST_OPS; i++)
    ok(limber_attr_append_sum(a, 1));
  expect_rejected(limber_attr_append_sum(a, 1), LIMBER_UNSUPPORTED,
                  "there are 8 already");
  limber_attr_destroy(a);
}

static void invalid_inputs_are_rejected(void **state) {
  (void)state;
  float x[12] = {0};
  limber_primitive_desc d = desc_of(LIMBER_MATMUL, 0);
  limber_primitive_info info = {.size = sizeof info};
  limber_tensor in[2] = {tensor(x, 2, L(2), L(3)), tensor(x, 2, L(4), L(3))};
  limber_tensor out = {0};
  d.in[0] = operand(2, ANY, ANY);
  d.in[1] = operand(2, ANY, L(3));
  limber_primitive *p = create(&d, NULL);
  expect_rejected(limber_primitive_execute(p, in, 1, &out, 1, NULL),
                  LIMBER_INVALID,
                  "1 inputs were given, but the primitive takes 2");
  expect_rejected(limber_primitive_execute(p, in, 2, &out, 1, NULL),
                  LIMBER_INVALID, "'matmul'");
  in[0].dtype = LIMBER_I64;
  expect_rejected(limber_primitive_execute(p, in, 2, &out, 1, NULL),
                  LIMBER_INVALID, "input 'a': wrong type");
  in[0].data = NULL;
  expect_rejected(limber_primitive_execute(p, in, 2, &out, 1, NULL),
                  LIMBER_INVALID, "input 'a': data is NULL");
  expect_rejected(limber_primitive_query(p, NULL, 0, &info), LIMBER_INVALID,
                  "the primitive has runtime dims");
  assert_null(out.data);
  limber_primitive_destroy(p);
}

// -- threads -----------------------------------------------------------------

enum { THREADS = 16, ITERATIONS = 200, K = 37, COLS = 19 };

typedef struct work {
  limber_primitive *primitive;
  const float *w;
  unsigned seed;
  int wrong;
} work;

static int differ(const float *x, const float *w, const float *y, int rows) {
  for (int i = 0; i < rows; i++)
    for (int k = 0; k < COLS; k++) {
      float sum = 0;
      for (int j = 0; j < K; j++) sum += x[i * K + j] * w[j * COLS + k];
      if (y[i * COLS + k] != sum) return 1;
    }
  return 0;
}

static void *execute_often(void *user) {
  work *v = user;
  static _Thread_local float x[16 * K], y[16 * COLS];
  for (int i = 0; i < ITERATIONS; i++) {
    int rows = 1 + (int)(v->seed * 7u + (unsigned)i) % 16;
    fill(x, (size_t)(rows * K), v->seed + (unsigned)i);
    limber_tensor in = tensor(x, 2, L(rows), L(K));
    limber_tensor out = {.data = y, .bytes = sizeof y};
    if (limber_primitive_execute(v->primitive, &in, 1, &out, 1, NULL) ||
        differ(x, v->w, y, rows))
      v->wrong++;
  }
  return NULL;
}

static void many_threads_execute_one_primitive(void **state) {
  (void)state;
  static float w[K * COLS];
  pthread_t threads[THREADS];
  work works[THREADS];
  limber_primitive_desc d = desc_of(LIMBER_MATMUL, 0);
  fill(w, K * COLS, 6);
  d.in[0] = operand(2, ANY, L(K));
  d.in[1] = operand(2, L(K), L(COLS));
  d.in[1].data = w;
  limber_primitive *p = create(&d, NULL);
  for (unsigned i = 0; i < THREADS; i++) {
    works[i] = (work){p, w, i, 0};
    assert_int_equal(
        pthread_create(&threads[i], NULL, execute_often, &works[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(works[i].wrong, 0);
  }
  limber_primitive_destroy(p);
}

static void *create_one(void *user) {
  work *v = user;
  limber_primitive_desc d = desc_of(LIMBER_SOFTMAX, 0);
  d.in[0] = operand(2, L(123), L(45));
  v->wrong = limber_primitive_create(NULL, &d, NULL, &v->primitive) != 0;
  return NULL;
}

static void many_threads_get_one_primitive(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  work works[THREADS] = {{0}};
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, create_one, &works[i]),
                     0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(works[i].wrong, 0);
    assert_ptr_equal(works[i].primitive->core, works[0].primitive->core);
  }
  for (int i = 0; i < THREADS; i++)
    limber_primitive_destroy(works[i].primitive);
}

// Creates equal and different primitives while the capacity changes.
static void *create_often(void *user) {
  work *v = user;
  for (int i = 0; i < ITERATIONS; i++) {
    limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_RELU);
    limber_primitive *p;
    float x[64], y[64];
    int64_t n = 1 + (int64_t)((v->seed + (unsigned)i) % 64);
    limber_tensor in = tensor(x, 1, n), out = {.data = y, .bytes = sizeof y};
    fill(x, 64, v->seed);
    d.in[0] = operand(1, n);
    if (limber_primitive_create(NULL, &d, NULL, &p)) {
      v->wrong++;
      continue;
    }
    if (i % 16 == 0) limber_set_cache_capacity((uint64_t)(i % 5) * 300000);
    if (limber_primitive_execute(p, &in, 1, &out, 1, NULL)) v->wrong++;
    for (int64_t k = 0; k < n; k++) v->wrong += y[k] != (x[k] > 0 ? x[k] : 0);
    limber_primitive_destroy(p);
  }
  return NULL;
}

static void many_threads_create_while_the_capacity_changes(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  work works[THREADS];
  uint64_t capacity;
  ok(limber_get_cache_capacity(&capacity));
  for (unsigned i = 0; i < THREADS; i++) {
    works[i] = (work){.seed = i / 2};
    assert_int_equal(pthread_create(&threads[i], NULL, create_often, &works[i]),
                     0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(works[i].wrong, 0);
  }
  ok(limber_set_cache_capacity(capacity));
}

// -- a runtime that ends while another runs ----------------------------------

typedef struct gate {  // an allocator that waits inside a run
  sem_t inside, open;
} gate;

static void *wait_inside(void *user, size_t size, size_t align) {
  gate *g = user;
  void *p;
  sem_post(&g->inside);
  sem_wait(&g->open);
  sem_post(&g->open);  // it stays open
  return posix_memalign(&p, align, size) ? NULL : p;
}

static void free_it(void *user, void *p) {
  (void)user;
  free(p);
}

static void *execute_once(void *user) {
  work *v = user;
  float x[15] = {0};
  limber_tensor in = tensor(x, 2, L(3), L(5)), out = {0};
  v->wrong = limber_primitive_execute(v->primitive, &in, 1, &out, 1, NULL) != 0;
  limber_tensor_free(&out);
  return NULL;
}

static void a_runtime_ends_while_another_runs(void **state) {
  (void)state;
  gate g;
  limber_allocator waits = {wait_inside, free_it, &g};
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *running, *ending;
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_RELU);
  limber_primitive *p;
  work v = {0};
  pthread_t thread;
  d.in[0] = operand(2, L(3), L(5));
  sem_init(&g.inside, 0, 0);
  sem_init(&g.open, 0, 0);
  o.allocator = &waits;
  ok(limber_runtime_create(&o, &running));
  ok(limber_runtime_create(NULL, &ending));
  ok(limber_primitive_create(running, &d, NULL, &v.primitive));
  ok(limber_primitive_create(ending, &d, NULL, &p));
  limber_primitive_destroy(p);
  assert_int_equal(pthread_create(&thread, NULL, execute_once, &v), 0);
  sem_wait(&g.inside);
  limber_runtime_destroy(ending);
  sem_post(&g.open);
  pthread_join(thread, NULL);
  assert_int_equal(v.wrong, 0);
  limber_primitive_destroy(v.primitive);
  limber_runtime_destroy(running);
}

// A budget of 64 MB must hold many primitives.
static void a_primitive_takes_few_bytes_of_the_budget(void **state) {
  (void)state;
  limber_runtime *r;
  limber_cache_stats stats = {.size = sizeof stats};
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_RELU);
  limber_primitive *p;
  d.in[0] = operand(2, L(3), L(5));
  ok(limber_runtime_create(NULL, &r));
  ok(limber_primitive_create(r, &d, NULL, &p));
  ok(limber_get_cache_stats(r, &stats));
  assert_int_equal(stats.primitives.entries, 1);
  assert_in_range(stats.primitives.bytes, 1, 24 << 10);
  limber_primitive_destroy(p);
  limber_runtime_destroy(r);
}

static uint64_t bytes_kept(limber_runtime *r) {
  limber_cache_stats stats = {.size = sizeof stats};
  ok(limber_get_cache_stats(r, &stats));
  assert_true(stats.primitives.bytes <= stats.capacity);
  return stats.primitives.bytes;
}

static void plans_of_runtime_dims_count_in_the_budget(void **state) {
  (void)state;
  float x[64] = {0}, y[64];
  uint64_t capacity;
  limber_runtime *r;
  limber_primitive_desc d = desc_of(LIMBER_ELTWISE, LIMBER_ALG_RELU);
  limber_primitive *p;
  d.in[0] = operand(1, ANY);
  ok(limber_get_cache_capacity(&capacity));
  ok(limber_runtime_create(NULL, &r));
  ok(limber_primitive_create(r, &d, NULL, &p));
  uint64_t before = bytes_kept(r), last = before;
  for (int64_t n = 1; n <= 64; n++) {
    if (n == 33) ok(limber_set_cache_capacity(before + 20000));
    limber_tensor in = tensor(x, 1, n), out = {.data = y, .bytes = sizeof y};
    ok(limber_primitive_execute(p, &in, 1, &out, 1, NULL));
    assert_true(n > 32 || bytes_kept(r) > last);
    last = bytes_kept(r);
  }
  assert_int_equal(last, 0);
  limber_primitive_destroy(p);
  limber_runtime_destroy(r);
  ok(limber_set_cache_capacity(capacity));
}

// A convolution of a row-major feature map, with a Transpose at both ends.
static void scratch_memory_counts_in_the_budget(void **state) {
  (void)state;
  enum { C = 4, SIDE = 32, PIXELS = SIDE * SIDE };
  static float x[C * PIXELS], w[C * C], y[C * PIXELS];
  uint64_t capacity;
  limber_runtime *r;
  limber_primitive_desc d = desc_of(LIMBER_CONVOLUTION, 0);
  limber_primitive *p;
  limber_primitive_info info = {.size = sizeof info};
  d.in[0] = operand(4, L(1), L(C), L(SIDE), L(SIDE));
  d.in[1] = operand(4, L(C), L(C), L(1), L(1));
  d.in[1].data = w;
  ok(limber_get_cache_capacity(&capacity));
  ok(limber_runtime_create(NULL, &r));
  ok(limber_primitive_create(r, &d, NULL, &p));
  ok(limber_primitive_query(p, NULL, 0, &info));
  assert_true(info.scratch_bytes >= sizeof x);
  uint64_t before = bytes_kept(r);
  limber_tensor in = tensor(x, 4, L(1), L(C), L(SIDE), L(SIDE));
  limber_tensor out = {.data = y, .bytes = sizeof y};
  for (int i = 0; i < 3; i++) {
    ok(limber_primitive_execute(p, &in, 1, &out, 1, NULL));
    assert_int_equal(bytes_kept(r), before + info.scratch_bytes);
  }
  // With the scratch memory it exceeds the budget and is evicted, although its
  // other memory would fit.
  ok(limber_set_cache_capacity(before + info.scratch_bytes / 2));
  assert_int_equal(bytes_kept(r), 0);
  limber_primitive_destroy(p);
  limber_runtime_destroy(r);
  ok(limber_set_cache_capacity(capacity));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_primitive_takes_few_bytes_of_the_budget),
      TEST(plans_of_runtime_dims_count_in_the_budget),
      TEST(scratch_memory_counts_in_the_budget),
      TEST(a_matmul_with_post_operations_and_a_runtime_dim),
      TEST(operands_may_be_channels_last),
      TEST(tensors_may_have_strides),
      TEST(a_sum_may_be_the_memory_of_the_result),
      TEST(a_recurrence_has_several_results),
      TEST(the_reference_attribute_uses_no_kernels),
      TEST(the_caller_may_supply_scratch),
      TEST(the_attribute_decides_whether_kernels_are_reusable),
      TEST(equal_descriptors_share_a_primitive),
      TEST(without_capacity_nothing_is_cached),
      TEST(a_runtime_may_end_after_its_primitives),
      TEST(a_blob_is_valid_for_one_descriptor),
      TEST(a_corrupt_blob_is_rejected),
      TEST(errors_name_the_field),
      TEST(more_errors_name_the_field),
      TEST(invalid_post_operations_are_rejected),
      TEST(invalid_inputs_are_rejected),
      TEST(many_threads_execute_one_primitive),
      TEST(many_threads_get_one_primitive),
      TEST(many_threads_create_while_the_capacity_changes),
      TEST(a_runtime_ends_while_another_runs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
