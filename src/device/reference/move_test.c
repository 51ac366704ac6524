// device/reference/move_test.c -- copies with any strides, compared with
// lb_tensor_copy.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "device/reference/move.h"

enum { SPACE = 1 << 18, ROUNDS = 600 };

// Lays t out densely, with its axes in a random order, some of them reversed.
static void lay_out(lb_tensor *t, char *space) {
  int order[LB_MAX_RANK];
  int64_t step = 1, size = (int64_t)lb_dtype_size(t->dtype);
  for (int i = 0; i < t->rank; i++) {
    int k = rand() % (i + 1);
    order[i] = order[k];
    order[k] = i;
  }
  t->data = space;
  for (int i = t->rank - 1; i >= 0; i--) {
    int64_t dim = t->dims[order[i]];
    bool back = rand() % 8 == 0;
    t->strides[order[i]] = back ? -step : step;
    if (back) t->data = (char *)t->data + (dim - 1) * step * size;
    step *= dim;
  }
}

static int64_t random_dim(int rank) {
  static const int64_t edges[] = {1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65};
  int64_t n = rand() % 2 ? edges[rand() % 11] : 1 + rand() % 40;
  return rank > 3 && n > 12 ? n % 12 + 1 : n;
}

static void copies_are_correct_for_any_axis_order(void **state) {
  (void)state;
  static const lb_dtype types[] = {LB_F32, LB_F32, LB_I64, LB_F16, LB_U8};
  static char source[SPACE + 1], got[SPACE + 1], want[SPACE + 1];
  srand(11);
  for (int i = 0; i <= SPACE; i++) source[i] = (char)rand();
  for (int round = 0; round < ROUNDS; round++) {
    lb_tensor from = {.dtype = types[rand() % 5], .rank = 1 + rand() % 4};
    for (int i = 0; i < from.rank; i++) from.dims[i] = random_dim(from.rank);
    if (lb_tensor_bytes(&from) > SPACE) continue;
    lb_tensor to = from;
    int odd = rand() % 2;  // weights may be at any address
    lay_out(&from, source + odd);
    lay_out(&to, got + odd);
    memset(got, 0x55, sizeof got);
    memset(want, 0x55, sizeof want);
    lb_move(NULL, &from, &to);
    to.data = want + ((char *)to.data - got);
    lb_tensor_copy(&from, &to);
    assert_memory_equal(got, want, sizeof got);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copies_are_correct_for_any_axis_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
