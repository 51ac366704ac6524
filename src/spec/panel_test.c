// spec/panel_test.c
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "spec/panel.h"

// Element (k, n) has the value k * 64 + n + 1. `rows` is a multiple of the
// layout's interleaving.
static void check(int64_t rows, int64_t cols, bool transposed,
                  lb_layout layout) {
  int64_t rs = transposed ? 1 : cols + 3, cs = transposed ? rows + 2 : 1;
  size_t cells = (size_t)((rows + 2) * (cols + 3)), bytes;
  uint16_t *b = calloc(cells, sizeof *b);
  for (int64_t k = 0; k < rows; k++)
    for (int64_t n = 0; n < cols; n++)
      b[k * rs + n * cs] = (uint16_t)(k * 64 + n + 1);
  lb_matrix m = {b, rows, cols, rs, cs, sizeof *b, false, layout};
  assert_true(lb_panel_size(&m, &bytes));
  int64_t width = layout == LB_LAYOUT_PANEL_K2 ? 8 : 16;
  int64_t interleave = layout == LB_LAYOUT_PANEL      ? 1
                       : layout == LB_LAYOUT_PANEL_K2 ? 2
                                                      : 4;
  int64_t panels = (cols + width - 1) / width, line = width * interleave;
  assert_int_equal(bytes, panels * rows * width * 2);
  uint16_t *to = malloc(bytes + 1);
  lb_panel_pack(&m, to);
  for (int64_t i = 0; i < panels * rows * width; i++) {
    int64_t n = i / (rows * width) * width, in = i % (rows * width);
    n += in % line / interleave;
    int64_t k = in / line * interleave + in % interleave;
    assert_int_equal(to[i], n < cols ? k * 64 + n + 1 : 0);
  }
  free(b), free(to);
}

static void panels_hold_their_columns_and_zeros(void **state) {
  (void)state;
  static const int64_t sizes[] = {0, 1, 2, 15, 16, 17, 33};
  for (int i = 0; i < 7; i++)
    for (int j = 0; j < 7; j++) {
      for (int transposed = 0; transposed < 2; transposed++) {
        check(sizes[i], sizes[j], transposed, LB_LAYOUT_PANEL);
        check(sizes[i] / 2 * 2, sizes[j], transposed, LB_LAYOUT_PANEL_K2);
        check(sizes[i] / 4 * 4, sizes[j], transposed, LB_LAYOUT_PANEL_K4);
      }
    }
}

static void few_columns_and_even_k_prefer_k2(void **state) {
  (void)state;
  assert_true(lb_panel_prefers_k2(288, 24));
  assert_true(lb_panel_prefers_k2(16, 18));
  assert_true(lb_panel_prefers_k2(8, 8));
  assert_true(lb_panel_prefers_k2(32, 16));
  assert_false(lb_panel_prefers_k2(30, 16));  // too short to gain
  assert_false(lb_panel_prefers_k2(6, 1));
  assert_false(lb_panel_prefers_k2(14, 24));
  assert_false(lb_panel_prefers_k2(289, 24));
  assert_false(lb_panel_prefers_k2(288, 25));
}

static void subnormals_are_flushed_if_requested(void **state) {
  (void)state;
  const float in[] = {1e-40f, -1e-40f, FLT_MIN, -FLT_MIN, INFINITY, NAN, 0, 2};
  const float out[] = {0, -0.0f, FLT_MIN, -FLT_MIN, INFINITY, NAN, 0, 2};
  float to[16];
  lb_matrix m = {in, 1, 8, 8, 1, sizeof(float), false, LB_LAYOUT_PANEL};
  lb_panel_pack(&m, to);
  assert_memory_equal(to, in, sizeof in);
  m.flush = true;
  lb_panel_pack(&m, to);
  assert_memory_equal(to, out, sizeof out);
  m = (lb_matrix){in, 2, 4, 4, 1, sizeof(float), true, LB_LAYOUT_PANEL_K2};
  lb_panel_pack(&m, to);
  for (int i = 0; i < 8; i++)
    assert_memory_equal(&to[i % 4 * 2 + i / 4], &out[i], sizeof *out);
}

static void overflowing_sizes_are_rejected(void **state) {
  (void)state;
  size_t bytes;
  assert_false(lb_panel_size(&(lb_matrix){NULL, INT64_MAX / 2, INT64_MAX / 2, 1,
                                          1, 4, false, LB_LAYOUT_PANEL},
                             &bytes));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(panels_hold_their_columns_and_zeros),
      cmocka_unit_test(few_columns_and_even_k_prefer_k2),
      cmocka_unit_test(subnormals_are_flushed_if_requested),
      cmocka_unit_test(overflowing_sizes_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
