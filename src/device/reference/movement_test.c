// device/reference/movement_test.c -- concatenating, padding, repeating,
// rearranging and masking, against the definitions element by element.
#include "device/reference/case_test.h"
#include "device/reference/move.h"

static int random_dims(test_case *t, int lo, int hi, int64_t *dims) {
  int rank = (int)case_int(t, lo, hi);
  for (int i = 0; i < rank; i++) dims[i] = case_dim(t);
  return rank;
}

static bool is_zero(const lb_tensor *x, const int64_t *index) {
  const uint64_t zero = 0;
  return memcmp(case_at(x, index), &zero, lb_dtype_size(x->dtype)) == 0;
}

// Tiles of 32 are formed along the axis before short rows.
static void short_one(test_case *t) {
  int64_t dims[] = {case_dim(t), case_int(t, 1, 70), case_int(t, 1, 9)};
  case_begin(t, LB_OP_Identity);
  case_in(t, case_random(t, case_dtype(t), 3, dims));
  t->out[0] = case_dense(t, t->in[0].dtype, 3, dims);
  lb_tensor to = case_scatter(t, &t->out[0]);
  lb_move(NULL, &t->in[0], &to);
  CASE_EACH(&to, i) CASE_SAME(t, &to, i, &t->in[0], i);
}

static void concat_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], at = 0;
  int rank = random_dims(t, 1, 4, dims), n = (int)case_int(t, 1, 5);
  int axis = (int)case_int(t, 0, rank - 1);
  lb_dtype dtype = case_dtype(t);
  case_begin(t, LB_OP_Concat);
  case_attr_int(t, "axis", case_int(t, 0, 1) ? axis : axis - rank);
  for (int i = 0; i < n; i++) {
    dims[axis] = case_dim(t);
    at += dims[axis];
    case_in(t, case_random(t, dtype, rank, dims));
  }
  dims[axis] = at;
  t->out[0] = case_dense(t, dtype, rank, dims);
  CASE_CHECK(t, case_run(t, lb_reference_Concat) == LB_CODE_OK);
  at = 0;
  for (int i = 0; i < n; at += t->in[i++].dims[axis]) {
    CASE_EACH(&t->in[i], k) {
      int64_t to[LB_MAX_RANK];
      memcpy(to, k, sizeof to);
      to[axis] += at;
      CASE_SAME(t, &t->in[i], k, &t->out[0], to);
    }
  }
}

static void tile_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], repeats[LB_MAX_RANK], to[LB_MAX_RANK];
  int rank = random_dims(t, 0, 4, dims);
  for (int i = 0; i < rank; i++) {
    repeats[i] = case_int(t, 0, 9) ? case_int(t, 1, 3) : 0;
    to[i] = dims[i] * repeats[i];
  }
  case_begin(t, LB_OP_Tile);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  case_in(t, case_ints(t, repeats, rank));
  t->out[0] = case_dense(t, t->in[0].dtype, rank, to);
  CASE_CHECK(t, case_run(t, lb_reference_Tile) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK];
    for (int k = 0; k < rank; k++) from[k] = i[k] % dims[k];
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

// -- Pad ---------------------------------------------------------------------

// The source of position i of a padded axis, found by stepping there from 0; n
// elements from `first` on exist. -1: none.
static int64_t padded_source(char mode, int64_t i, int64_t first, int64_t n) {
  int64_t at = 0, by = i < 0 ? -1 : 1, step = by;
  for (int64_t k = 0; k != i; k += by) {
    int64_t next = at + step;
    if (next >= 0 && next < n) {
      at = next;
    } else if (mode == 'c') {
      return -1;
    } else if (mode == 'w') {
      at = next < 0 ? n - 1 : 0;
    } else if (mode == 'r') {
      step = -step;
      if (n > 1) at += step;
    }
  }
  return first + at;
}

typedef struct padding {
  int rank;
  int64_t dims[4], to[4], begin[4], end[4];
  bool crop[4];
} padding;

static void random_padding(test_case *t, char mode, padding *p) {
  p->rank = random_dims(t, 0, 4, p->dims);
  for (int i = 0; i < p->rank; i++) {
    bool few = mode != 'c' && p->dims[i] == 0;
    int64_t max_pad = case_int(t, 0, 3) ? 3 : 12;
    p->begin[i] = few ? 0 : case_int(t, -p->dims[i] / 2, max_pad);
    p->end[i] = few ? 0 : case_int(t, -((p->dims[i] - 1) / 2), max_pad);
    if (case_int(t, 0, 2) == 0) p->begin[i] = p->end[i] = 0;
    p->to[i] = p->dims[i] + p->begin[i] + p->end[i];
  }
}

static void check_padding(test_case *t, char mode, const padding *p) {
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK];
    bool hole = false;
    for (int k = 0; k < p->rank; k++) {
      int64_t b = p->begin[k], e = p->end[k], crop = b < 0 ? -b : 0;
      int64_t n = p->dims[k] - crop + (e < 0 ? e : 0);
      int64_t at = b < 0 ? i[k] : i[k] - b;
      from[k] = n > 0 ? padded_source(mode, at, crop, n) : -1;
      hole |= from[k] < 0;
    }
    if (!hole)
      CASE_SAME(t, &t->out[0], i, &t->in[0], from);
    else if (t->in[2].dtype != LB_NONE)
      CASE_SAME(t, &t->out[0], i, &t->in[2], from);
    else
      CASE_CHECK(t, is_zero(&t->out[0], i));
  }
}

static void pad_one(test_case *t) {
  static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
  const char *mode = modes[case_int(t, 0, 3)];
  int64_t pads[8], axes[4];
  padding p = {0};
  random_padding(t, mode[0], &p);
  bool given = case_int(t, 0, 1);
  for (int i = 0; i < p.rank; i++) {
    int axis = given ? p.rank - 1 - i : i;
    axes[i] = axis - (case_int(t, 0, 1) ? p.rank : 0);
    pads[i] = p.begin[axis];
    pads[p.rank + i] = p.end[axis];
  }
  case_begin(t, LB_OP_Pad);
  if (mode[0] != 'c' || case_int(t, 0, 1)) case_attr_str(t, "mode", mode);
  case_in(t, case_random(t, case_dtype(t), p.rank, p.dims));
  case_in(t, case_ints(t, pads, 2 * p.rank));
  bool value = case_int(t, 0, 1);
  case_in(t, value ? case_random(t, t->in[0].dtype, 0, NULL) : (lb_tensor){0});
  if (given) case_in(t, case_ints(t, axes, p.rank));
  t->out[0] = case_dense(t, t->in[0].dtype, p.rank, p.to);
  CASE_CHECK(t, case_run(t, lb_reference_Pad) == LB_CODE_OK);
  check_padding(t, mode[0], &p);
}

static void pads_that_do_not_fit_are_refused(void **state) {
  (void)state;
  int64_t bad[][2] = {{INT64_MIN, INT64_MAX},
                      {INT64_MAX, INT64_MIN},
                      {INT64_MAX, INT64_MAX},
                      {3, 3}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    test_case t = {.name = "pad"};
    int64_t dim = 4;
    case_begin(&t, LB_OP_Pad);
    case_attr_str(&t, "mode", i % 2 ? "edge" : "constant");
    case_in(&t, case_dense(&t, LB_F32, 1, &dim));
    case_in(&t, case_i64(&t, 1, (int64_t[]){2}, bad[i]));
    t.out[0] = case_dense(&t, LB_F32, 1, &dim);
    assert_int_equal(case_run(&t, lb_reference_Pad), LB_INVALID);
    case_end(&t);
  }
}

static void an_empty_axis_cannot_be_reflected(void **state) {
  (void)state;
  test_case t = {.name = "pad"};
  case_begin(&t, LB_OP_Pad);
  case_attr_str(&t, "mode", "reflect");
  case_in(&t, case_dense(&t, LB_F32, 1, (int64_t[]){0}));
  case_in(&t, case_i64(&t, 1, (int64_t[]){2}, (int64_t[]){1, 1}));
  t.out[0] = case_dense(&t, LB_F32, 1, (int64_t[]){2});
  assert_int_equal(case_run(&t, lb_reference_Pad), LB_INVALID);
  case_end(&t);
}

static void center_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], to[LB_MAX_RANK];
  int rank = random_dims(t, 1, 4, dims);
  for (int i = 0; i < rank; i++) to[i] = case_dim(t);
  case_begin(t, LB_OP_CenterCropPad);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  case_in(t, case_ints(t, to, rank));
  t->out[0] = case_dense(t, t->in[0].dtype, rank, to);
  CASE_CHECK(t, case_run(t, lb_reference_CenterCropPad) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK];
    bool hole = false;
    for (int k = 0; k < rank; k++) {
      int64_t left = to[k] > dims[k] ? (to[k] - dims[k]) / 2 : 0;
      int64_t crop = to[k] < dims[k] ? (dims[k] - to[k]) / 2 : 0;
      from[k] = i[k] - left + crop;
      hole |= from[k] < 0 || from[k] >= dims[k];
    }
    if (hole)
      CASE_CHECK(t, is_zero(&t->out[0], i));
    else
      CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

// -- blocks ------------------------------------------------------------------

static void blocks_one(test_case *t) {
  int64_t n = case_dim(t), c = case_int(t, 1, 4), h = case_dim(t), b;
  int64_t w = case_dim(t);
  bool to_depth = case_int(t, 0, 1), crd = case_int(t, 0, 1);
  b = case_int(t, 1, 3);
  int64_t deep[] = {n, c * b * b, h, w}, wide[] = {n, c, h * b, w * b};
  case_begin(t, LB_OP_DepthToSpace);
  case_attr_int(t, "blocksize", b);
  if (crd) case_attr_str(t, "mode", "CRD");
  case_in(t, case_random(t, case_dtype(t), 4, to_depth ? wide : deep));
  t->out[0] = case_dense(t, t->in[0].dtype, 4, to_depth ? deep : wide);
  lb_reference_fn *fn =
      to_depth ? lb_reference_SpaceToDepth : lb_reference_DepthToSpace;
  CASE_CHECK(t, case_run(t, fn) == LB_CODE_OK);
  const lb_tensor *pixels = to_depth ? &t->in[0] : &t->out[0];
  const lb_tensor *channels = to_depth ? &t->out[0] : &t->in[0];
  CASE_EACH(pixels, i) {
    int64_t block = i[2] % b * b + i[3] % b;
    int64_t ch = crd ? i[1] * b * b + block : block * c + i[1];
    int64_t at[] = {i[0], ch, i[2] / b, i[3] / b};
    CASE_SAME(t, pixels, i, channels, at);
  }
}

// -- ReverseSequence, Trilu --------------------------------------------------

static void reverse_one(test_case *t) {
  int64_t dims[LB_MAX_RANK], lens[64];
  int rank = random_dims(t, 2, 4, dims), batch = (int)case_int(t, 0, 1);
  int time = 1 - batch;
  for (int64_t i = 0; i < dims[batch]; i++)
    lens[i] = case_int(t, 0, dims[time]);
  case_begin(t, LB_OP_ReverseSequence);
  if (batch == 0 || case_int(t, 0, 1)) {
    case_attr_int(t, "batch_axis", batch);
    case_attr_int(t, "time_axis", time);
  }
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  case_in(t, case_ints(t, lens, dims[batch]));
  t->out[0] = case_dense(t, t->in[0].dtype, rank, dims);
  CASE_CHECK(t, case_run(t, lb_reference_ReverseSequence) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t from[LB_MAX_RANK], len = lens[i[batch]];
    memcpy(from, i, sizeof from);
    if (i[time] < len) from[time] = len - 1 - i[time];
    CASE_SAME(t, &t->out[0], i, &t->in[0], from);
  }
}

static void trilu_one(test_case *t) {
  static const int64_t far[] = {INT64_MIN, INT64_MAX};
  int64_t dims[LB_MAX_RANK];
  int rank = random_dims(t, 2, 4, dims);
  bool upper = case_int(t, 0, 1), given = case_int(t, 0, 3) > 0;
  int64_t k = case_int(t, 0, 5) ? case_int(t, -9, 9) : far[case_int(t, 0, 1)];
  case_begin(t, LB_OP_Trilu);
  if (!upper || case_int(t, 0, 1)) case_attr_int(t, "upper", upper);
  case_in(t, case_random(t, case_dtype(t), rank, dims));
  if (given) case_in(t, case_i64(t, 0, NULL, &k));
  if (!given) k = 0;
  t->out[0] = case_dense(t, t->in[0].dtype, rank, dims);
  CASE_CHECK(t, case_run(t, lb_reference_Trilu) == LB_CODE_OK);
  CASE_EACH(&t->out[0], i) {
    int64_t diagonal = i[rank - 1] - i[rank - 2];
    if (upper ? diagonal >= k : diagonal <= k)
      CASE_SAME(t, &t->out[0], i, &t->in[0], i);
    else
      CASE_CHECK(t, is_zero(&t->out[0], i));
  }
}

CASE_TEST(short_rows_are_copied_in_tiles, 400, short_one)
CASE_TEST(concat_appends_inputs_in_order, 300, concat_one)
CASE_TEST(tile_repeats_each_axis, 300, tile_one)
CASE_TEST(pad_follows_its_mode_at_both_ends, 1500, pad_one)
CASE_TEST(center_crop_pad_keeps_the_middle, 300, center_one)
CASE_TEST(blocks_move_between_depth_and_space, 300, blocks_one)
CASE_TEST(sequences_reverse_up_to_their_length, 300, reverse_one)
CASE_TEST(trilu_keeps_one_side_of_a_diagonal, 300, trilu_one)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_rows_are_copied_in_tiles),
      cmocka_unit_test(concat_appends_inputs_in_order),
      cmocka_unit_test(tile_repeats_each_axis),
      cmocka_unit_test(pad_follows_its_mode_at_both_ends),
      cmocka_unit_test(pads_that_do_not_fit_are_refused),
      cmocka_unit_test(an_empty_axis_cannot_be_reflected),
      cmocka_unit_test(center_crop_pad_keeps_the_middle),
      cmocka_unit_test(blocks_move_between_depth_and_space),
      cmocka_unit_test(sequences_reverse_up_to_their_length),
      cmocka_unit_test(trilu_keeps_one_side_of_a_diagonal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
