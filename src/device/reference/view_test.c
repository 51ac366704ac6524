// device/reference/view_test.c -- view operators as copies, against index
// arithmetic.
#include "device/reference/case_test.h"

static int random_dims(test_case *t, int lo, int hi, int64_t *dims) {
  int rank = (int)case_int(t, lo, hi);
  for (int i = 0; i < rank; i++) dims[i] = case_dim(t);
  return rank;
}

static void reshape_one(test_case *t) {
  int64_t dims[LB_MAX_RANK];
  int rank = random_dims(t, 0, 4, dims);
  case_begin(t, LB_OP_Reshape);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  int64_t flat = lb_tensor_count(&t->in[0]);
  t->out[0] = case_dense(t, t->in[0].dtype, 1, &flat);
  lb_reference_fn *fns[] = {lb_reference_Identity, lb_reference_Reshape,
                            lb_reference_Flatten, lb_reference_Squeeze,
                            lb_reference_Unsqueeze};
  CASE_CHECK(t, case_run(t, fns[case_int(t, 0, 4)]) == LB_CODE_OK);
  int64_t k = 0;
  CASE_EACH(&t->in[0], i) {
    CASE_SAME(t, &t->in[0], i, &t->out[0], &k);
    k++;
  }
}

static void transpose_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], perm[LB_MAX_RANK], to[LB_MAX_RANK];
  int rank = random_dims(t, 0, 5, dims);
  if (rank > 0 && case_int(t, 0, 3) == 0)
    dims[case_int(t, 0, rank - 1)] = case_int(t, 60, 70);
  bool given = case_int(t, 0, 3) > 0;
  for (int i = 0; i < rank; i++) perm[i] = given ? i : rank - 1 - i;
  for (int i = rank - 1; i > 0 && given; i--) {
    int64_t k = case_int(t, 0, i), swap = perm[i];
    perm[i] = perm[k];
    perm[k] = swap;
  }
  for (int i = 0; i < rank; i++) to[i] = dims[perm[i]];
  case_begin(t, LB_OP_Transpose);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  t->out[0] = case_dense(t, t->in[0].dtype, rank, to);
  if (given) case_attr_ints(t, "perm", perm, rank);
  CASE_CHECK(t, case_run(t, lb_reference_Transpose) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK];
    for (int k = 0; k < rank; k++) from[perm[k]] = i[k];
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

static void expand_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], to[LB_MAX_RANK], shape_dim;
  int rank = random_dims(t, 0, 3, dims), lead = (int)case_int(t, 0, 2);
  for (int i = 0; i < lead + rank; i++) {
    bool one = i < lead || dims[i - lead] == 1;
    to[i] = one ? case_dim(t) : dims[i - lead];
  }
  case_begin(t, LB_OP_Expand);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  shape_dim = lead + rank;
  case_in(t, case_ints(t, to, shape_dim));
  t->out[0] = case_dense(t, t->in[0].dtype, lead + rank, to);
  CASE_CHECK(t, case_run(t, lb_reference_Expand) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK];
    for (int k = 0; k < rank; k++) from[k] = dims[k] == 1 ? 0 : i[lead + k];
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

// -- Slice -------------------------------------------------------------------

static int64_t wild(test_case *t, int64_t dim) {
  static const int64_t far[] = {INT64_MIN, INT64_MIN + 1, INT32_MIN,
                                INT32_MAX, INT64_MAX - 1, INT64_MAX};
  if (case_int(t, 0, 3) == 0) return far[case_int(t, 0, 5)];
  return case_int(t, -dim - 2, dim + 2);
}

// The indices that Python's slice(start, end, step) selects.
static int64_t slice_indices(int64_t start, int64_t end, int64_t step,
                             int64_t dim, int64_t *out) {
  int64_t n = 0;
  if (start < 0) start += dim;
  if (end < 0) end += dim;
  if (step > 0) {
    if (start < 0) start = 0;
    for (__int128 i = start; i < end && i < dim; i += step)
      out[n++] = (int64_t)i;
  } else {
    if (start > dim - 1) start = dim - 1;
    for (__int128 i = start; i > end && i >= 0; i += step)
      out[n++] = (int64_t)i;
  }
  return n;
}

static void slice_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], to[LB_MAX_RANK], chosen[4][64];
  int64_t starts[4], ends[4], steps[4], axes[4];
  int rank = random_dims(t, 1, 4, dims);
  bool has_axes = case_int(t, 0, 1), has_steps = case_int(t, 0, 2) > 0;
  for (int i = 0; i < rank; i++) {
    int axis = has_axes ? rank - 1 - i : i;
    axes[i] = axis - (case_int(t, 0, 1) ? rank : 0);
    starts[i] = wild(t, dims[axis]);
    ends[i] = wild(t, dims[axis]);
    steps[i] = has_steps ? wild(t, 3) : 1;
    if (steps[i] == 0) steps[i] = -1;
    to[axis] =
        slice_indices(starts[i], ends[i], steps[i], dims[axis], chosen[axis]);
  }
  case_begin(t, LB_OP_Slice);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  case_in(t, case_ints(t, starts, rank));
  case_in(t, case_ints(t, ends, rank));
  case_in(t, has_axes ? case_ints(t, axes, rank) : (lb_tensor){0});
  if (has_steps) case_in(t, case_ints(t, steps, rank));
  t->out[0] = case_dense(t, t->in[0].dtype, rank, to);
  CASE_CHECK(t, case_run(t, lb_reference_Slice) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[4];
    for (int k = 0; k < rank; k++) from[k] = chosen[k][i[k]];
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

static void slices_beyond_the_axis_are_refused(void **state) {
  (void)state;
  int64_t bad[][3] = {{0, 0, 4},  {1, 2, 3},         {5, 1, 1},
                      {2, -2, 3}, {0, INT64_MAX, 2}, {1, INT64_MIN, 3}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    test_case t = {.name = "slice"};
    int64_t dim = 4;
    case_begin(&t, LB_OP_Slice);
    case_in(&t, case_dense(&t, LB_F32, 1, &dim));
    case_in(&t, case_i64(&t, 1, (int64_t[]){1}, &bad[i][0]));
    case_in(&t, case_i64(&t, 1, (int64_t[]){1}, &dim));
    case_in(&t, (lb_tensor){0});
    case_in(&t, case_i64(&t, 1, (int64_t[]){1}, &bad[i][1]));
    t.out[0] = case_dense(&t, LB_F32, 1, &bad[i][2]);
    assert_int_equal(case_run(&t, lb_reference_Slice), LB_INVALID);
    case_end(&t);
  }
}

// -- Split -------------------------------------------------------------------

static void split_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], to[LB_MAX_RANK], sizes[5], at = 0;
  int rank = random_dims(t, 1, 4, dims), n = (int)case_int(t, 1, 5);
  int axis = (int)case_int(t, 0, rank - 1);
  bool given = case_int(t, 0, 1);
  int64_t chunk = (dims[axis] + n - 1) / n, left = dims[axis];
  for (int i = 0; i < n; i++) {
    sizes[i] = given ? case_int(t, 0, left) : left < chunk ? left : chunk;
    if (given && i == n - 1) sizes[i] = left;
    left -= sizes[i];
  }
  case_begin(t, LB_OP_Split);
  case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  if (!given) case_attr_int(t, "num_outputs", n);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  if (given) case_in(t, case_ints(t, sizes, n));
  t->node.n_out = (uint32_t)n;
  memcpy(to, dims, sizeof to);
  for (int i = 0; i < n; i++) {
    to[axis] = sizes[i];
    if (case_int(t, 0, 4) > 0)
      t->out[i] = case_dense(t, t->in[0].dtype, rank, to);
  }
  CASE_CHECK(t, case_run(t, lb_reference_Split) == LB_CODE_OK);
  for (int i = 0; i < n; at += sizes[i++]) {
    if (t->out[i].dtype == LB_NONE) continue;
    CASE_EACH(&t->out[i], k) {
      int64_t from[LB_MAX_RANK];
      memcpy(from, k, sizeof from);
      from[axis] += at;
      CASE_SAME(t, &t->out[i], k, &t->in[0], from);
    }
  }
}

CASE_TEST(reshape_preserves_the_order_of_any_layout, 300, reshape_one)
CASE_TEST(transpose_permutes_any_layout, 400, transpose_one)
CASE_TEST(expand_repeats_dims_of_one, 300, expand_one)
CASE_TEST(slice_selects_like_python, 800, slice_one)
CASE_TEST(split_parts_are_consecutive, 300, split_one)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reshape_preserves_the_order_of_any_layout),
      cmocka_unit_test(transpose_permutes_any_layout),
      cmocka_unit_test(expand_repeats_dims_of_one),
      cmocka_unit_test(slice_selects_like_python),
      cmocka_unit_test(slices_beyond_the_axis_are_refused),
      cmocka_unit_test(split_parts_are_consecutive),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
