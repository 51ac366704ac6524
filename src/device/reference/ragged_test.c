// device/reference/ragged_test.c -- segments are computed as if each was alone.
#include "device/reference/number_test.h"

#define MAX_SEGMENTS 5

// Random segments, some of them empty; returns the number of rows.
static int64_t draw_segments(test_case *t, int64_t *begin, int64_t n) {
  begin[0] = 0;
  for (int64_t i = 0; i < n; i++)
    begin[i + 1] = begin[i] + case_int(t, 0, 3) * case_int(t, 1, 20);
  return begin[n];
}

// Rows [from, to) of axis 1 of x, or of axis 2 if x is [1, heads, rows, size].
static lb_tensor rows_of(const lb_tensor *x, int64_t from, int64_t to) {
  lb_tensor y = *x;
  int axis = x->rank == 4 ? 2 : 1;
  y.dims[axis] = to - from;
  y.data = (char *)x->data + from * x->strides[axis] * (int64_t)sizeof(float);
  return y;
}

static void attends_alone(test_case *t, int64_t from, int64_t to) {
  test_case one = {.name = t->name, .seed = t->seed};
  case_begin(&one, LB_OP_Attention);
  for (uint32_t i = 0; i < t->node.n_attrs; i++)
    one.attrs[one.node.n_attrs++] = t->attrs[i];
  for (int i = 0; i < 3; i++) case_in(&one, rows_of(&t->in[i], from, to));
  lb_tensor got = rows_of(&t->out[0], from, to);
  one.out[0] = case_dense(&one, LB_F32, got.rank, got.dims);
  CASE_CHECK(t, case_run(&one, lb_reference_Attention) == LB_CODE_OK);
  CASE_EACH(&got, i) {
    CASE_CHECK(t, number_at(&got, i) == number_at(&one.out[0], i));
  }
  case_end(&one);
}

static lb_tensor heads(test_case *t, bool packed, int64_t n, int64_t rows,
                       int64_t size) {
  if (packed)
    return number_random(t, LB_F32, 3, (int64_t[]){1, rows, n * size});
  return number_random(t, LB_F32, 4, (int64_t[]){1, n, rows, size});
}

static void attention_one(test_case *t) {
  int64_t begin[MAX_SEGMENTS + 1], n = case_int(t, 1, MAX_SEGMENTS);
  int64_t rows = draw_segments(t, begin, n), kv = case_int(t, 1, 2);
  int64_t q = kv * case_int(t, 1, 2), size = case_int(t, 1, 9);
  bool packed = case_int(t, 0, 1);
  case_begin(t, LB_OP_RaggedAttention);
  if (packed) {
    case_attr_int(t, "q_num_heads", q);
    case_attr_int(t, "kv_num_heads", kv);
  }
  case_in(t, heads(t, packed, q, rows, size));
  case_in(t, heads(t, packed, kv, rows, size));
  case_in(t, heads(t, packed, kv, rows, size));
  case_in(t, case_ints(t, begin, n + 1));
  t->out[0] = case_dense(t, LB_F32, t->in[0].rank, t->in[0].dims);
  CASE_CHECK(t, case_run(t, lb_reference_run) == LB_CODE_OK);
  for (int64_t i = 0; i < n; i++)
    if (begin[i] < begin[i + 1]) attends_alone(t, begin[i], begin[i + 1]);
}
CASE_TEST(each_segment_attends_to_itself, 100, attention_one)

static void sum_one(test_case *t) {
  int64_t begin[MAX_SEGMENTS + 1], n = case_int(t, 0, MAX_SEGMENTS);
  int64_t rows = draw_segments(t, begin, n), cols = case_dim(t);
  case_begin(t, LB_OP_SegmentSum);
  case_in(t, number_random(t, LB_F32, 3, (int64_t[]){1, rows, cols}));
  case_in(t, case_ints(t, begin, n + 1));
  t->out[0] = case_dense(t, LB_F32, 2, (int64_t[]){n, cols});
  CASE_CHECK(t, case_run(t, lb_reference_run) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    double want = 0;
    for (int64_t r = begin[i[0]]; r < begin[i[0] + 1]; r++)
      want += number_at(&t->in[0], (int64_t[]){0, r, i[1]});
    CASE_CHECK(t, number_is(&t->out[0], i, want));
  }
}
CASE_TEST(each_segment_has_its_own_sum, 200, sum_one)

static void segments_that_do_not_divide_the_rows_are_refused(void **state) {
  (void)state;
  static const int64_t wrong[][3] = {{0, 2, 4}, {1, 2, 3}, {0, 4, 3}};
  for (int i = 0; i < 3; i++) {
    test_case t = {0};
    case_begin(&t, LB_OP_SegmentSum);
    case_in(&t, number_random(&t, LB_F32, 2, (int64_t[]){1, 3}));
    case_in(&t, case_ints(&t, wrong[i], 3));
    t.out[0] = case_dense(&t, LB_F32, 1, (int64_t[]){2});
    assert_int_equal(case_run(&t, lb_reference_SegmentSum), LB_INTERNAL);
    case_end(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_segment_attends_to_itself),
      cmocka_unit_test(each_segment_has_its_own_sum),
      cmocka_unit_test(segments_that_do_not_divide_the_rows_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
