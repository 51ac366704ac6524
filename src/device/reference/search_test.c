// device/reference/search_test.c -- TopK, NonZero, Compress, Unique and
// NonMaxSuppression against naive searches.
#include "device/reference/case_test.h"

#include <math.h>

static int random_dims(test_case *t, int lo, int hi, int64_t *dims) {
  int rank = (int)case_int(t, lo, hi);
  for (int i = 0; i < rank; i++) dims[i] = case_dim(t);
  return rank;
}

static double number_at(const lb_tensor *x, const int64_t *index) {
  double v;
  lb_tensor from = {.dtype = x->dtype, .data = case_at(x, index)};
  lb_tensor to = {.dtype = LB_F64, .data = &v};
  assert_false(lb_failed(lb_reference_convert(&from, &to)));
  return v;
}

// Random data with few distinct values, so that there are ties; floats include
// -0, infinities and NaN.
static lb_tensor random_ties(test_case *t, int rank, const int64_t *dims) {
  static const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e-7};
  lb_tensor x = case_dense(t, case_dtype(t), rank, dims);
  for (int64_t i = 0; i < lb_tensor_count(&x); i++) {
    // The oracles compare doubles, in which the largest uint64 values are
    // equal.
    double v = (double)case_int(t, x.dtype == LB_U64 ? 0 : -4, 4);
    if (lb_dtype_is_float(x.dtype) && case_int(t, 0, 3) == 0)
      v = odd[case_int(t, 0, 5)];
    lb_tensor from = {.dtype = LB_F64, .data = &v}, to = {.dtype = x.dtype};
    to.data = (char *)x.data + (size_t)i * lb_dtype_size(x.dtype);
    assert_false(lb_failed(lb_reference_convert(&from, &to)));
  }
  return case_scatter(t, &x);
}

// Returns -1, 0 or 1; NaN is one value above all others.
static int compare(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
  return (a > b) - (a < b);
}

// -- TopK --------------------------------------------------------------------

// The number of elements of the lane through `index` that come before element
// `at`.
static int64_t rank_of(const lb_tensor *x, const int64_t *index, int axis,
                       int64_t at, bool largest) {
  int64_t i[LB_MAX_RANK], before = 0;
  memcpy(i, index, sizeof i);
  i[axis] = at;
  double mine = number_at(x, i);
  for (i[axis] = 0; i[axis] < x->dims[axis]; i[axis]++) {
    int order = compare(number_at(x, i), mine);
    if (largest) order = -order;
    before += order < 0 || (order == 0 && i[axis] < at);
  }
  return before;
}

static void topk_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], to[LB_MAX_RANK];
  int rank = random_dims(t, 1, 3, dims), axis = (int)case_int(t, 0, rank - 1);
  bool largest = case_int(t, 0, 1);
  int64_t k = case_int(t, 0, dims[axis]);
  memcpy(to, dims, sizeof to);
  to[axis] = k;
  case_begin(t, LB_OP_TopK);
  t->node.n_out = 2;
  if (axis != rank - 1) case_attr_int(t, "axis", axis - rank);
  if (!largest) case_attr_int(t, "largest", 0);
  case_in(t, random_ties(t, rank, dims));
  case_in(t, case_ints(t, &k, 1));
  t->out[0] = case_dense(t, t->in[0].dtype, rank, to);
  t->out[1] = case_dense(t, LB_I64, rank, to);
  CASE_CHECK(t, case_run(t, lb_reference_TopK) == LB_CODE_OK);
  CASE_EACH(&t->out[1], i) {
    int64_t from[LB_MAX_RANK], at = case_int_at(&t->out[1], i);
    CASE_CHECK(t, at >= 0 && at < dims[axis]);
    CASE_CHECK(t, rank_of(&t->in[0], i, axis, at, largest) == i[axis]);
    memcpy(from, i, sizeof from);
    from[axis] = at;
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

static void k_beyond_the_axis_is_refused(void **state) {
  (void)state;
  int64_t bad[] = {5, -1, INT64_MAX, INT64_MIN};
  for (int i = 0; i < 4; i++) {
    test_case t = {.name = "topk"};
    case_begin(&t, LB_OP_TopK);
    case_in(&t, case_random(&t, LB_F32, 1, (int64_t[]){4}));
    case_in(&t, case_i64(&t, 1, (int64_t[]){1}, &bad[i]));
    t.out[0] = case_dense(&t, LB_F32, 1, (int64_t[]){4});
    assert_int_equal(case_run(&t, lb_reference_TopK), LB_INVALID);
    case_end(&t);
  }
}

// -- NonZero, Compress -------------------------------------------------------

static void nonzero_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], n = 0;
  int rank = random_dims(t, 0, 4, dims);
  case_begin(t, LB_OP_NonZero);
  case_in(t, random_ties(t, rank, dims));
  t->out[0].dtype = LB_I64;
  CASE_CHECK(t, case_run(t, lb_reference_NonZero) == LB_CODE_OK);
  CASE_EACH(&t->in[0], i) {
    if (number_at(&t->in[0], i) == 0) continue;
    CASE_CHECK(t, n < t->out[0].dims[1]);
    for (int64_t k = 0; k < rank; k++)
      CASE_CHECK(t, case_int_at(&t->out[0], (int64_t[]){k, n}) == i[k]);
    n++;
  }
  CASE_CHECK(t, t->out[0].dims[0] == rank && t->out[0].dims[1] == n);
}

static void compress_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = random_dims(t, 1, 4, dims), axis = (int)case_int(t, 0, rank - 1);
  bool flat = case_int(t, 0, 2) == 0;
  case_begin(t, LB_OP_Compress);
  if (!flat) case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  int64_t count = lb_tensor_count(&t->in[0]);
  int64_t len = case_int(t, 0, flat ? count : dims[axis]);
  case_in(t, case_random(t, LB_BOOL, 1, &len));
  t->out[0].dtype = t->in[0].dtype;
  CASE_CHECK(t, case_run(t, lb_reference_Compress) == LB_CODE_OK);
  int64_t flat_at = 0, chosen = 0;
  CASE_EACH(&t->in[0], i) {
    int64_t at = flat ? flat_at++ : i[axis], to[LB_MAX_RANK];
    if (at >= len || !*case_at(&t->in[1], &at)) continue;
    memcpy(to, i, sizeof to);
    to[flat ? 0 : axis] = flat ? chosen++ : 0;
    for (int64_t k = 0; k < at && !flat; k++)
      to[axis] += *case_at(&t->in[1], &k);
    CASE_CHECK(t, to[flat ? 0 : axis] < t->out[0].dims[flat ? 0 : axis]);
    CASE_SAME(t, &t->in[0], i, &t->out[0], to);
  }
  int64_t wanted = 0;
  for (int64_t k = 0; k < len; k++) wanted += *case_at(&t->in[1], &k);
  CASE_CHECK(t, t->out[0].rank == (flat ? 1 : rank));
  CASE_CHECK(t, t->out[0].dims[flat ? 0 : axis] == wanted);
}

static void conditions_beyond_the_axis_are_refused(void **state) {
  (void)state;
  test_case t = {.name = "compress"};
  case_begin(&t, LB_OP_Compress);
  case_in(&t, case_random(&t, LB_F32, 1, (int64_t[]){2}));
  lb_tensor condition = case_dense(&t, LB_BOOL, 1, (int64_t[]){3});
  memcpy(condition.data, (char[]){0, 0, 1}, 3);
  case_in(&t, condition);
  t.out[0].dtype = LB_F32;
  assert_int_equal(case_run(&t, lb_reference_Compress), LB_INVALID);
  case_end(&t);
}

// -- Unique ------------------------------------------------------------------

// Compares slices a and b of x lexicographically, in row-major order.
static int compare_slices(const lb_tensor *x, int axis, int64_t a, int64_t b) {
  lb_tensor slice = *x;
  slice.dims[axis] = 1;
  CASE_EACH(&slice, i) {
    int64_t left[LB_MAX_RANK], right[LB_MAX_RANK];
    memcpy(left, i, sizeof left);
    memcpy(right, i, sizeof right);
    left[axis] = a;
    right[axis] = b;
    int order = compare(number_at(x, left), number_at(x, right));
    if (order != 0) return order;
  }
  return 0;
}

static int64_t out_int(const test_case *t, int o, int64_t i) {
  return case_int_at(&t->out[o], &i);
}

static void check_unique(test_case *t, const lb_tensor *x, int axis,
                         bool sorted) {
  int64_t n = t->out[1].dims[0], items = x->dims[axis], counted = 0;
  CASE_CHECK(t, t->out[0].dims[axis] == n && t->out[3].dims[0] == n);
  CASE_CHECK(t, t->out[2].dims[0] == items);
  for (int64_t g = 0; g < n; g++) {
    int64_t first = out_int(t, 1, g);
    CASE_CHECK(t, first >= 0 && first < items);
    CASE_CHECK(t, out_int(t, 2, first) == g);
    counted += out_int(t, 3, g);
    if (g == 0) continue;
    int64_t before = out_int(t, 1, g - 1);
    CASE_CHECK(t, sorted ? compare_slices(x, axis, before, first) < 0
                         : before < first);
  }
  CASE_CHECK(t, counted == items);
  for (int64_t i = 0; i < items; i++) {
    int64_t g = out_int(t, 2, i);
    CASE_CHECK(t, g >= 0 && g < n && out_int(t, 1, g) <= i);
    CASE_CHECK(t, compare_slices(x, axis, out_int(t, 1, g), i) == 0);
    int64_t same = 0;
    for (int64_t k = 0; k < items; k++) same += out_int(t, 2, k) == g;
    CASE_CHECK(t, same == out_int(t, 3, g));
    // Equal slices are in the same group.
    for (int64_t k = 0; k < i; k++)
      CASE_CHECK(
          t, (out_int(t, 2, k) == g) == (compare_slices(x, axis, k, i) == 0));
  }
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK];
    memcpy(from, i, sizeof from);
    from[axis] = out_int(t, 1, i[axis]);
    CASE_SAME(t, &t->out[0], i, x, from);
  }
}

static void unique_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = (int)case_int(t, 0, 3);
  for (int i = 0; i < rank; i++)
    dims[i] = case_int(t, 0, 9) ? case_int(t, 1, 4) : case_int(t, 0, 9);
  bool flat = rank == 0 || case_int(t, 0, 1), sorted = case_int(t, 0, 1);
  int axis = flat ? 0 : (int)case_int(t, 0, rank - 1);
  case_begin(t, LB_OP_Unique);
  if (!flat) case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  if (!sorted) case_attr_int(t, "sorted", 0);
  case_in(t, random_ties(t, rank, dims));
  t->node.n_out = 4;
  t->out[0].dtype = t->in[0].dtype;
  t->out[1].dtype = t->out[2].dtype = t->out[3].dtype = LB_I64;
  CASE_CHECK(t, case_run(t, lb_reference_Unique) == LB_CODE_OK);
  int64_t count = lb_tensor_count(&t->in[0]);
  lb_tensor x = flat ? case_dense(t, t->in[0].dtype, 1, &count) : t->in[0];
  if (flat) {
    lb_tensor same = t->in[0];
    same.data = x.data;
    lb_tensor_dense(&same);
    lb_tensor_copy(&t->in[0], &same);
  }
  check_unique(t, &x, axis, sorted);
}

static void unwanted_outputs_of_unique_are_not_written(void **state) {
  (void)state;
  test_case t = {.name = "unique"};
  int64_t v[] = {2, 1, 1, 3, 4, 3};
  case_begin(&t, LB_OP_Unique);
  case_in(&t, case_i64(&t, 1, (int64_t[]){6}, v));
  t.node.n_out = 4;
  t.out[0].dtype = t.out[3].dtype = LB_I64;
  assert_int_equal(case_run(&t, lb_reference_Unique), LB_CODE_OK);
  int64_t values[] = {1, 2, 3, 4}, counts[] = {2, 1, 2, 1};
  assert_memory_equal(t.out[0].data, values, sizeof values);
  assert_memory_equal(t.out[3].data, counts, sizeof counts);
  assert_null(t.out[1].data);
  assert_null(t.out[2].data);
  case_end(&t);
}

// -- NonMaxSuppression -------------------------------------------------------

static lb_tensor random_floats(test_case *t, int rank, const int64_t *dims,
                               int64_t max_value) {
  lb_tensor x = case_dense(t, LB_F32, rank, dims);
  for (int64_t i = 0; i < lb_tensor_count(&x); i++)
    ((float *)x.data)[i] = (float)case_int(t, 0, max_value);
  return case_scatter(t, &x);
}

static lb_tensor scalar(test_case *t, float v) {
  lb_tensor x = case_dense(t, LB_F32, 0, NULL);
  memcpy(x.data, &v, sizeof v);
  return x;
}

// Boxes have integer corners, so their areas are computed by counting cells.
static double overlap(const lb_tensor *boxes, int64_t batch, int64_t a,
                      int64_t b, bool center) {
  bool in[2][32][32] = {{{false}}};
  int64_t which[] = {a, b};
  int both = 0, all = 0;
  for (int k = 0; k < 2; k++) {
    double v[4];
    for (int64_t i = 0; i < 4; i++)
      v[i] = number_at(boxes, (int64_t[]){batch, which[k], i});
    double x0 = center ? v[0] - v[2] / 2 : fmin(v[1], v[3]);
    double x1 = center ? v[0] + v[2] / 2 : fmax(v[1], v[3]);
    double y0 = center ? v[1] - v[3] / 2 : fmin(v[0], v[2]);
    double y1 = center ? v[1] + v[3] / 2 : fmax(v[0], v[2]);
    // Cells of half a unit, starting at -4: centres range from -3 to 9.
    for (int y = 0; y < 32; y++)
      for (int x = 0; x < 32; x++)
        in[k][y][x] = x / 2. - 4 >= x0 && x / 2. - 4 < x1 && y / 2. - 4 >= y0 &&
                      y / 2. - 4 < y1;
  }
  for (int y = 0; y < 32; y++) {
    for (int x = 0; x < 32; x++) {
      both += in[0][y][x] && in[1][y][x];
      all += in[0][y][x] || in[1][y][x];
    }
  }
  return all > 0 ? (double)both / all : 0;
}

typedef struct nms_case {
  int64_t batches, classes, boxes, max_value;
  bool center, scored;
  double threshold, score;
} nms_case;

// Selects from one class by repeatedly searching for the best box; checks the
// rows of the output from `row` on and returns the row after them.
static int64_t check_class(test_case *t, const nms_case *s, int64_t batch,
                           int64_t class, int64_t row) {
  bool taken[40] = {false};
  int64_t begin = row;
  for (int64_t round = 0; round < s->boxes; round++) {
    int64_t best = -1;
    double best_score = 0;
    for (int64_t i = 0; i < s->boxes; i++) {
      double score = number_at(&t->in[1], (int64_t[]){batch, class, i});
      if (taken[i] || (s->scored && !(score > s->score))) continue;
      if (best < 0 || score > best_score) best = i, best_score = score;
    }
    if (best < 0 || row - begin == s->max_value) break;
    taken[best] = true;
    bool kept_box = true;
    for (int64_t k = begin; k < row; k++) {
      int64_t other = case_int_at(&t->out[0], (int64_t[]){k, 2});
      if (overlap(&t->in[0], batch, best, other, s->center) > s->threshold)
        kept_box = false;
    }
    if (!kept_box) continue;
    CASE_CHECK(t, row < t->out[0].dims[0]);
    CASE_CHECK(t, case_int_at(&t->out[0], (int64_t[]){row, 0}) == batch);
    CASE_CHECK(t, case_int_at(&t->out[0], (int64_t[]){row, 1}) == class);
    CASE_CHECK(t, case_int_at(&t->out[0], (int64_t[]){row, 2}) == best);
    row++;
  }
  return row;
}

static void nms_one(test_case *t) {
  nms_case s = {.batches = case_int(t, 0, 3),
                .classes = case_int(t, 0, 3),
                .boxes = case_dim(t),
                .max_value = case_int(t, 0, 5) ? case_int(t, 1, 12) : INT64_MAX,
                .center = case_int(t, 0, 1),
                .scored = case_int(t, 0, 1),
                .threshold = (double)case_int(t, 0, 4) / 4,
                .score = (double)case_int(t, 0, 5)};
  case_begin(t, LB_OP_NonMaxSuppression);
  if (s.center) case_attr_int(t, "center_point_box", 1);
  case_in(t, random_floats(t, 3, (int64_t[]){s.batches, s.boxes, 4}, 6));
  case_in(t,
          random_floats(t, 3, (int64_t[]){s.batches, s.classes, s.boxes}, 9));
  case_in(t, case_ints(t, &s.max_value, 1));
  case_in(t, scalar(t, (float)s.threshold));
  if (s.scored) case_in(t, scalar(t, (float)s.score));
  t->out[0].dtype = LB_I64;
  CASE_CHECK(t, case_run(t, lb_reference_NonMaxSuppression) == LB_CODE_OK);
  int64_t row = 0;
  for (int64_t b = 0; b < s.batches; b++)
    for (int64_t k = 0; k < s.classes; k++) row = check_class(t, &s, b, k, row);
  CASE_CHECK(t, t->out[0].dims[0] == row && t->out[0].dims[1] == 3);
}

static void no_boxes_are_selected_by_default(void **state) {
  (void)state;
  test_case t = {.name = "nms"};
  case_begin(&t, LB_OP_NonMaxSuppression);
  case_in(&t, random_floats(&t, 3, (int64_t[]){1, 5, 4}, 6));
  case_in(&t, random_floats(&t, 3, (int64_t[]){1, 1, 5}, 6));
  t.out[0].dtype = LB_I64;
  assert_int_equal(case_run(&t, lb_reference_NonMaxSuppression), LB_CODE_OK);
  assert_int_equal(t.out[0].dims[0], 0);
  assert_int_equal(t.out[0].dims[1], 3);
  case_end(&t);
}

CASE_TEST(topk_is_the_start_of_a_stable_sort, 400, topk_one)
CASE_TEST(nonzero_lists_indices_in_order, 300, nonzero_one)
CASE_TEST(compress_keeps_elements_whose_condition_is_true, 400, compress_one)
CASE_TEST(unique_groups_equal_items, 500, unique_one)
CASE_TEST(suppression_keeps_the_best_of_overlapping_boxes, 300, nms_one)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(topk_is_the_start_of_a_stable_sort),
      cmocka_unit_test(k_beyond_the_axis_is_refused),
      cmocka_unit_test(nonzero_lists_indices_in_order),
      cmocka_unit_test(compress_keeps_elements_whose_condition_is_true),
      cmocka_unit_test(conditions_beyond_the_axis_are_refused),
      cmocka_unit_test(unique_groups_equal_items),
      cmocka_unit_test(unwanted_outputs_of_unique_are_not_written),
      cmocka_unit_test(suppression_keeps_the_best_of_overlapping_boxes),
      cmocka_unit_test(no_boxes_are_selected_by_default),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
