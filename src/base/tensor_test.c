// base/tensor_test.c -- counts that cannot overflow, copies of any strides.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/tensor.h"

static lb_code count_code(int rank, const int64_t *dims, int64_t *out) {
  lb_status st = lb_dims_count(rank, dims, out);
  lb_code code = lb_status_code(st);
  lb_status_drop(st);
  return code;
}

static void counts_are_products(void **state) {
  (void)state;
  int64_t n = -1;
  assert_int_equal(count_code(0, NULL, &n), LB_CODE_OK);
  assert_int_equal(n, 1);
  assert_int_equal(count_code(3, (int64_t[]){2, 3, 4}, &n), LB_CODE_OK);
  assert_int_equal(n, 24);
  assert_int_equal(count_code(2, (int64_t[]){0, 5}, &n), LB_CODE_OK);
  assert_int_equal(n, 0);
  assert_int_equal(count_code(1, (int64_t[]){LB_MAX_COUNT}, &n), LB_CODE_OK);
  assert_int_equal(n, LB_MAX_COUNT);
}

static void hostile_dims_are_refused(void **state) {
  (void)state;
  int64_t n, big = INT64_C(1) << 40;
  assert_int_equal(count_code(2, (int64_t[]){3, -1}, &n), LB_INVALID);
  assert_int_equal(count_code(2, (int64_t[]){0, -1}, &n), LB_INVALID);
  assert_int_equal(count_code(2, (int64_t[]){big, big}, &n), LB_INVALID);
  assert_int_equal(count_code(3, (int64_t[]){big, big, 0}, &n), LB_INVALID);
  assert_int_equal(count_code(1, (int64_t[]){LB_MAX_COUNT + 1}, &n),
                   LB_INVALID);
  lb_status st = lb_dims_count(2, (int64_t[]){3, -7}, &n);
  assert_string_equal(lb_status_message(st), "dims [3,-7]: dim 1 is negative");
  lb_status_drop(st);
}

static void dims_are_printed_and_truncated(void **state) {
  (void)state;
  char buf[64];
  int64_t dims[] = {1, 3, 48, 320};
  assert_string_equal(lb_dims_print(4, dims, buf, 64), "[1,3,48,320]");
  assert_string_equal(lb_dims_print(0, NULL, buf, 64), "[]");
  for (size_t cap = 1; cap <= 16; cap++) {
    memset(buf, '#', sizeof buf);
    lb_dims_print(4, dims, buf, cap);
    assert_int_equal(strlen(buf), cap - 1 < 12 ? cap - 1 : 12);
    assert_int_equal(memcmp(buf, "[1,3,48,320]", strlen(buf)), 0);
    assert_int_equal(buf[cap], '#');
  }
}

static void dense_means_row_major(void **state) {
  (void)state;
  lb_tensor t = {.dtype = LB_F32, .rank = 3, .dims = {2, 3, 4}};
  lb_tensor_dense(&t);
  assert_int_equal(t.strides[0], 12);
  assert_int_equal(t.strides[1], 4);
  assert_int_equal(t.strides[2], 1);
  assert_true(lb_tensor_is_dense(&t));
  assert_int_equal(lb_tensor_bytes(&t), 96);
  t.strides[1] = 5;
  assert_false(lb_tensor_is_dense(&t));
  t.dims[1] = 1;  // then its stride does not matter, but the outer one does
  assert_false(lb_tensor_is_dense(&t));
  t.strides[0] = 4;
  assert_true(lb_tensor_is_dense(&t));
  t.dims[2] = 0;
  t.strides[0] = 77;
  assert_true(lb_tensor_is_dense(&t));
  assert_int_equal(lb_tensor_count(&t), 0);
}

static lb_tensor view_of(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return (lb_tensor){
      .dtype = LB_F32, .rank = 2, .dims = {rows, cols}, .strides = {row, col}};
}

static void the_reach_of_a_view_follows_its_strides(void **state) {
  (void)state;
  size_t bytes, before;
  lb_tensor t = view_of(3, 4, 10, 1);
  assert_int_equal(lb_status_code(lb_tensor_reach(&t, &bytes, &before)), 0);
  assert_int_equal(bytes, 24 * 4);
  assert_int_equal(before, 0);
  t = view_of(3, 4, -10, 2);
  assert_int_equal(lb_status_code(lb_tensor_reach(&t, &bytes, &before)), 0);
  assert_int_equal(bytes, 27 * 4);
  assert_int_equal(before, 20 * 4);
  t = view_of(3, 0, INT64_MAX, INT64_MIN);  // empty
  assert_int_equal(lb_status_code(lb_tensor_reach(&t, &bytes, &before)), 0);
  assert_int_equal(bytes, 0);
  int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX / 8, INT64_MIN / 8};
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 4; k++) {
      t = view_of(3, 2, far[i], far[k]);
      lb_status st = lb_tensor_reach(&t, &bytes, &before);
      assert_int_equal(lb_status_code(st), LB_INVALID);
      assert_non_null(strstr(lb_status_message(st), "[3,2]"));
      lb_status_drop(st);
    }
}

static void nonoverlapping_views_have_each_element_once(void **state) {
  (void)state;
  const struct {
    int64_t rows, cols, row, col;
    bool window;
  } cases[] = {
      {3, 4, 4, 1, true},          {3, 4, 10, 1, true},  {3, 4, 1, 3, true},
      {3, 4, 3, 1, false},         {3, 4, 4, 2, false},  {3, 4, 8, 2, true},
      {3, 4, 4, 0, false},         {3, 4, -4, 1, false}, {3, 1, 1, -7, true},
      {1, 4, -9, 1, true},         {0, 4, 0, 0, true},   {3, 4, 1, 2, false},
      {3, 4, INT64_MAX, 1, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lb_tensor t =
        view_of(cases[i].rows, cases[i].cols, cases[i].row, cases[i].col);
    assert_int_equal(lb_tensor_is_nonoverlapping(&t), cases[i].window);
  }
}

// A view with permuted, padded, reversed (and, for reading, repeated) dims that
// fits into `cap` elements around base.
static void random_view(lb_tensor *t, char *base, bool reading) {
  int order[LB_MAX_RANK];
  int64_t stride = 1, first = 0;
  for (int i = 0; i < t->rank; i++) {
    int j = rand() % (i + 1);
    order[i] = order[j];
    order[j] = i;
  }
  bool plain = rand() % 4 == 0;
  for (int k = t->rank - 1; k >= 0; k--) {
    int i = plain ? k : order[k];
    t->strides[i] = stride;
    stride *= t->dims[i] > 0 ? t->dims[i] : 1;
    if (plain) continue;
    stride += rand() % 3 == 0;
    if (rand() % 4 == 0) {
      if (t->dims[i] > 0) first += t->strides[i] * (t->dims[i] - 1);
      t->strides[i] = -t->strides[i];
    } else if (reading && rand() % 6 == 0) {
      t->strides[i] = 0;
    }
  }
  t->data = base + first * (int64_t)lb_dtype_size(t->dtype);
}

static char *element(const lb_tensor *t, const int64_t *at) {
  int64_t offset = 0;
  for (int i = 0; i < t->rank; i++) offset += at[i] * t->strides[i];
  return (char *)t->data + offset * (int64_t)lb_dtype_size(t->dtype);
}

// Copies element by element into a copy of the destination's memory.
static void plain_copy(const lb_tensor *from, const lb_tensor *to) {
  int64_t count = lb_tensor_count(from);
  for (int64_t n = 0; n < count; n++) {
    int64_t at[LB_MAX_RANK], rest = n;
    for (int i = from->rank - 1; i >= 0; i--) {
      at[i] = rest % from->dims[i];
      rest /= from->dims[i];
    }
    memcpy(element(to, at), element(from, at), lb_dtype_size(from->dtype));
  }
}

#define SPACE 65536

static void copies_are_right_for_any_strides(void **state) {
  (void)state;
  static char source[SPACE], got[SPACE], want[SPACE];
  srand(7);
  for (int i = 0; i < SPACE; i++) source[i] = (char)rand();
  for (int round = 0; round < 4000; round++) {
    lb_tensor from = {.dtype = (lb_dtype)(1 + rand() % (LB_DTYPE_COUNT - 1)),
                      .rank = rand() % 7};
    for (int i = 0; i < from.rank; i++)
      from.dims[i] = rand() % 12 ? 1 + rand() % 4 : rand() % 2;
    lb_tensor to = from;
    int odd = rand() % 2;  // weights may be at any address
    random_view(&from, source + odd, true);
    random_view(&to, got + odd, false);
    memset(got, 0x55, SPACE);
    memset(want, 0x55, SPACE);
    lb_tensor_copy(&from, &to);
    to.data = want + ((char *)to.data - got);
    plain_copy(&from, &to);
    assert_memory_equal(got, want, SPACE);
  }
}

static void a_copy_works_at_the_maximum_rank(void **state) {
  (void)state;
  int32_t source[4096], target[4096];
  lb_tensor from = {.dtype = LB_I32, .rank = LB_MAX_RANK, .data = source};
  for (int i = 0; i < LB_MAX_RANK; i++) from.dims[i] = 2;
  lb_tensor_dense(&from);
  lb_tensor to = from;
  to.data = target;
  for (int i = 0; i < LB_MAX_RANK; i++)
    to.strides[i] = from.strides[LB_MAX_RANK - 1 - i];  // all dims reversed
  for (int i = 0; i < 4096; i++) source[i] = i;
  lb_tensor_copy(&from, &to);
  for (int i = 0; i < 4096; i++) {
    int reversed = 0;
    for (int b = 0; b < 12; b++) reversed |= (i >> b & 1) << (11 - b);
    assert_int_equal(target[reversed], i);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_are_products),
      cmocka_unit_test(hostile_dims_are_refused),
      cmocka_unit_test(dims_are_printed_and_truncated),
      cmocka_unit_test(dense_means_row_major),
      cmocka_unit_test(the_reach_of_a_view_follows_its_strides),
      cmocka_unit_test(nonoverlapping_views_have_each_element_once),
      cmocka_unit_test(copies_are_right_for_any_strides),
      cmocka_unit_test(a_copy_works_at_the_maximum_rank),
  };
  return cmocka_run_group_tests_name("tensor", tests, NULL, NULL);
}
