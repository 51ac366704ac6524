// device/reference/attention_test.c -- attention, row by row, against an
// explicit softmax; linear attention and rotary embedding against values
// computed by hand.
#include "device/reference/number_test.h"

typedef struct spec {
  int64_t batch, q_heads, kv_heads, q_len, past, now, dim, v_dim;
  bool packed;  // rank 3
  bool causal, flags, mask;
  float masked_score;  // the score of keys that the boolean mask forbids
  int64_t left, right, mask_cols;
  const int64_t *lengths;  // or NULL
} spec;

static double packed_at(const lb_tensor *x, bool packed, int64_t b, int64_t h,
                        int64_t s, int64_t i, int64_t dim) {
  if (packed) return number_at(x, (int64_t[]){b, s, h * dim + i});
  return number_at(x, (int64_t[]){b, h, s, i});
}

// Key (which = 1) or value (which = 2) j of a head.
static double stored(const test_case *t, const spec *s, int which, int64_t b,
                     int64_t h, int64_t j, int64_t i) {
  int64_t dim = which == 1 ? s->dim : s->v_dim;
  if (j < s->past) return number_at(&t->in[3 + which], (int64_t[]){b, h, j, i});
  return packed_at(&t->in[which], s->packed, b, h, j - s->past, i, dim);
}

static bool allowed(const spec *s, int64_t b, int64_t i, int64_t j) {
  int64_t offset = s->lengths ? s->lengths[b] - s->q_len : s->past;
  int64_t at = i + offset;
  if (s->lengths && j >= s->lengths[b]) return false;
  if (s->causal && j > at) return false;
  if (s->left >= 0 && j < at - s->left) return false;
  if (s->right >= 0 && j > at + s->right) return false;
  return !s->mask || j < s->mask_cols;
}

static bool is_hidden(const test_case *t, const spec *s, int64_t i, int64_t j) {
  return s->mask && s->flags && number_at(&t->in[3], (int64_t[]){i, j}) == 0;
}

static void check_row(test_case *t, const spec *s, int64_t b, int64_t h,
                      int64_t i) {
  int64_t total = s->past + s->now, kv = h / (s->q_heads / s->kv_heads);
  double p[64], max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < total; j++) {
    double dot = 0;
    for (int64_t d = 0; d < s->dim; d++)
      dot += packed_at(&t->in[0], s->packed, b, h, i, d, s->dim) *
             stored(t, s, 1, b, kv, j, d);
    p[j] = -INFINITY;
    if (!allowed(s, b, i, j)) continue;
    p[j] = dot / sqrt((double)s->dim);
    if (s->mask && !s->flags) p[j] += number_at(&t->in[3], (int64_t[]){i, j});
    if (is_hidden(t, s, i, j)) p[j] = (double)s->masked_score;
    max = fmax(max, p[j]);
  }
  for (int64_t j = 0; j < total; j++)
    sum += p[j] = max > -INFINITY ? exp(p[j] - max) : 0;
  for (int64_t d = 0; d < s->v_dim; d++) {
    double want = 0;
    for (int64_t j = 0; j < total && sum > 0; j++)
      want += p[j] / sum * stored(t, s, 2, b, kv, j, d);
    double got = packed_at(&t->out[0], s->packed, b, h, i, d, s->v_dim);
    CASE_CHECK(t, fabs(got - want) < 1e-5 * (1 + fabs(want)));
  }
}

static lb_tensor heads(test_case *t, const spec *s, int64_t n, int64_t len,
                       int64_t dim) {
  if (s->packed)
    return number_random(t, LB_F32, 3, (int64_t[]){s->batch, len, n * dim});
  return number_random(t, LB_F32, 4, (int64_t[]){s->batch, n, len, dim});
}

static void attention_one(test_case *t) {
  spec s = {.batch = case_int(t, 1, 2),
            .kv_heads = case_int(t, 1, 2),
            .q_len = case_int(t, 1, 40),
            .now = case_int(t, 1, 20),
            .dim = case_int(t, 1, 9),
            .v_dim = case_int(t, 1, 9),
            .packed = case_int(t, 0, 1),
            .causal = case_int(t, 0, 1),
            .mask = case_int(t, 0, 1),
            .flags = case_int(t, 0, 1),
            .masked_score = case_int(t, 0, 1) ? -1 : -INFINITY,
            .left = case_int(t, -1, 3),
            .right = case_int(t, -1, 3)};
  s.q_heads = s.kv_heads * case_int(t, 1, 2);
  int64_t lengths[2], kind = case_int(t, 0, 2);
  if (kind == 1) s.past = case_int(t, 1, 5);
  case_begin(t, LB_OP_Attention);
  if (s.packed) {
    case_attr_int(t, "q_num_heads", s.q_heads);
    case_attr_int(t, "kv_num_heads", s.kv_heads);
  }
  case_attr_int(t, "is_causal", s.causal);
  if (s.masked_score > -INFINITY) case_attr_float(t, "masked", s.masked_score);
  case_attr_int(t, "left_window_size", s.left);
  case_attr_int(t, "right_window_size", s.right);
  case_in(t, heads(t, &s, s.q_heads, s.q_len, s.dim));
  case_in(t, heads(t, &s, s.kv_heads, s.now, s.dim));
  case_in(t, heads(t, &s, s.kv_heads, s.now, s.v_dim));
  s.mask_cols = case_int(t, 2, 25);
  if (s.mask_cols > s.past + s.now) s.mask_cols = s.past + s.now;
  if (s.mask_cols == 1) s.mask = false;
  const int64_t mask[] = {s.q_len, s.mask_cols};
  lb_tensor none = {0};
  lb_dtype mask_dtype = s.flags ? LB_BOOL : LB_F32;
  case_in(t, !s.mask   ? none
             : s.flags ? case_random(t, mask_dtype, 2, mask)
                       : number_random(t, mask_dtype, 2, mask));
  const int64_t past_k[] = {s.batch, s.kv_heads, s.past, s.dim};
  const int64_t past_v[] = {s.batch, s.kv_heads, s.past, s.v_dim};
  case_in(t, s.past ? number_random(t, LB_F32, 4, past_k) : none);
  case_in(t, s.past ? number_random(t, LB_F32, 4, past_v) : none);
  if (kind == 2) {
    for (int b = 0; b < 2; b++) lengths[b] = case_int(t, 0, s.now);
    s.lengths = lengths;
    case_in(t, case_ints(t, lengths, s.batch));
  }
  t->out[0] =
      s.packed ? case_dense(t, LB_F32, 3,
                            (int64_t[]){s.batch, s.q_len, s.q_heads * s.v_dim})
               : case_dense(t, LB_F32, 4,
                            (int64_t[]){s.batch, s.q_heads, s.q_len, s.v_dim});
  CASE_CHECK(t, case_run(t, lb_reference_Attention) == LB_CODE_OK);
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t h = 0; h < s.q_heads; h++)
      for (int64_t i = 0; i < s.q_len; i++) check_row(t, &s, b, h, i);
}
CASE_TEST(attention_is_softmax_over_the_allowed_keys, 150, attention_one)

static void present_keys_are_past_then_current(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t one[] = {1, 1, 1, 1}, two[] = {1, 1, 2, 1};
  case_begin(&t, LB_OP_Attention);
  t.node.n_out = 4;
  case_attr_int(&t, "qk_matmul_output_mode", 3);
  for (int i = 0; i < 3; i++)
    case_in(&t, number_list(&t, LB_F32, 4, one, (double[]){0 + i}));
  case_in(&t, (lb_tensor){0});
  case_in(&t, number_list(&t, LB_F32, 4, one, (double[]){5}));
  case_in(&t, number_list(&t, LB_F32, 4, one, (double[]){6}));
  t.out[1] = case_dense(&t, LB_F32, 4, two);
  t.out[2] = case_dense(&t, LB_F32, 4, two);
  t.out[3] = case_dense(&t, LB_F32, 4, (int64_t[]){1, 1, 1, 2});
  assert_int_equal(case_run(&t, lb_reference_Attention), LB_CODE_OK);
  assert_memory_equal(t.out[1].data, ((float[]){5, 1}), 8);
  assert_memory_equal(t.out[2].data, ((float[]){6, 2}), 8);
  assert_memory_equal(t.out[3].data, ((float[]){0.5f, 0.5f}), 8);
  case_end(&t);
}

static void heads_that_do_not_split_are_refused(void **state) {
  (void)state;
  static const int64_t heads_[] = {0, -1, 3, INT64_MIN};
  for (int i = 0; i < 4; i++) {
    test_case t = {0};
    const int64_t x[] = {1, 2, 4};
    case_begin(&t, LB_OP_Attention);
    case_attr_int(&t, "q_num_heads", heads_[i]);
    case_attr_int(&t, "kv_num_heads", 2);
    for (int k = 0; k < 3; k++) case_in(&t, number_random(&t, LB_F32, 3, x));
    t.out[0] = case_dense(&t, LB_F32, 3, x);
    assert_int_equal(case_run(&t, lb_reference_Attention), LB_INVALID);
    case_end(&t);
  }
}

// With decay exp(0) and beta 1/2, each token halves the error of the state.
static void linear_attention_updates_its_state(void **state) {
  (void)state;
  test_case t = {0};
  const int64_t x[] = {1, 2, 1}, s[] = {1, 1, 1, 1};
  case_begin(&t, LB_OP_LinearAttention);
  t.node.n_out = 2;
  case_attr_int(&t, "q_num_heads", 1);
  case_attr_int(&t, "kv_num_heads", 1);
  case_in(&t, number_list(&t, LB_F32, 3, x, (double[]){1, 2}));
  case_in(&t, number_list(&t, LB_F32, 3, x, (double[]){1, 1}));
  case_in(&t, number_list(&t, LB_F32, 3, x, (double[]){8, 8}));
  case_in(&t, (lb_tensor){0});
  case_in(&t, number_list(&t, LB_F32, 3, x, (double[]){0, 0}));
  case_in(&t, number_list(&t, LB_F32, 3, x, (double[]){0.5, 0.5}));
  t.out[0] = case_dense(&t, LB_F32, 3, x);
  t.out[1] = case_dense(&t, LB_F32, 4, s);
  assert_int_equal(case_run(&t, lb_reference_LinearAttention), LB_CODE_OK);
  assert_memory_equal(t.out[0].data, ((float[]){4, 12}), 8);
  assert_memory_equal(t.out[1].data, ((float[]){6}), 4);
  case_end(&t);
}

static void rotary_rotates_pairs_and_checks_positions(void **state) {
  (void)state;
  static const int64_t positions[] = {1, 2, -1};
  for (int i = 0; i < 3; i++) {
    test_case t = {0};
    const int64_t x[] = {1, 1, 1, 4}, cache[] = {2, 1}, at[] = {1, 1};
    case_begin(&t, LB_OP_RotaryEmbedding);
    case_attr_int(&t, "rotary_embedding_dim", 2);
    case_in(&t, number_list(&t, LB_F32, 4, x, (double[]){1, 2, 3, 4}));
    case_in(&t, number_list(&t, LB_F32, 2, cache, (double[]){1, 0}));
    case_in(&t, number_list(&t, LB_F32, 2, cache, (double[]){0, 1}));
    case_in(&t, case_i64(&t, 2, at, &positions[i]));
    t.out[0] = case_dense(&t, LB_F32, 4, x);
    lb_code code = case_run(&t, lb_reference_RotaryEmbedding);
    assert_int_equal(code, i == 0 ? LB_CODE_OK : LB_INVALID);
    if (i == 0)
      assert_memory_equal(t.out[0].data, ((float[]){-2, 1, 3, 4}), 16);
    case_end(&t);
  }
}

static void outputs_without_elements_take_no_time(void **state) {
  (void)state;
  const int64_t x[] = {1, 1, INT64_C(1) << 40, 0};
  test_case t = {0};
  case_begin(&t, LB_OP_Attention);
  for (int k = 0; k < 3; k++) case_in(&t, case_dense(&t, LB_F32, 4, x));
  t.out[0] = case_dense(&t, LB_F32, 4, x);
  assert_int_equal(case_run(&t, lb_reference_run), LB_CODE_OK);
  case_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_is_softmax_over_the_allowed_keys),
      cmocka_unit_test(present_keys_are_past_then_current),
      cmocka_unit_test(heads_that_do_not_split_are_refused),
      cmocka_unit_test(outputs_without_elements_take_no_time),
      cmocka_unit_test(linear_attention_updates_its_state),
      cmocka_unit_test(rotary_rotates_pairs_and_checks_positions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
