// device/cpu/split_test.c -- where parts begin and end.
#include "device/cpu/split.h"

#include "graph/build_test.h"

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

static lb_spec eltwise_spec(void) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, LB_S_EXP, LB_F32, &x, 1), LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &s));
  return s;
}

static lb_spec row_reduce_spec(void) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ROW_REDUCE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t sum = lb_spec_node(&b, LB_S_RSUM, LB_F32, &x, 1);
  uint8_t div = lb_spec_node(&b, LB_S_DIV, LB_F32, (uint8_t[]){x, sum}, 2);
  lb_spec_output(&b, div, LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &s));
  return s;
}

static lb_spec acc_spec(lb_form form) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, form);
  (void)lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  (void)lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  lb_spec_output(&b, lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0),
                 LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &s));
  return s;
}

static lb_spec matmul_spec(void) { return acc_spec(LB_FORM_MATMUL); }
static lb_spec conv_spec(void) { return acc_spec(LB_FORM_CONV); }

static lb_spec window_spec(void) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_WINDOW);
  (void)lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_acc(&b, LB_ACC_MAX, LB_F32), LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &s));
  return s;
}

// Every part of every iteration satisfies the facts, and the parts cover the
// whole.
static void check_parts(const lb_spec *s, const lb_facts *f,
                        const int64_t *dims, int64_t outer) {
  lb_split p = lb_split_of(s, f, dims, outer);
  int64_t rows = 0, cols = 0;
  assert_int_equal(p.parts, outer * p.row_bands * p.col_bands);
  assert_true(p.grain >= 1 && p.grain <= p.parts);
  for (int64_t i = 0; i < p.row_bands; i++) {
    int64_t part[LB_SDIMS] = {0, dims[1], dims[2], dims[3], dims[4]};
    part[0] = min(p.row_band, dims[0] - i * p.row_band);
    assert_true(part[0] > 0 && lb_facts_hold(f, part));
    rows += part[0];
  }
  for (int64_t i = 0; i < p.col_bands; i++) {
    int64_t part[LB_SDIMS] = {dims[0], 0, dims[2], dims[3], dims[4]};
    part[1] = min(p.col_band, dims[1] - i * p.col_band);
    assert_true(part[1] > 0 && lb_facts_hold(f, part));
    cols += part[1];
  }
  assert_int_equal(rows, dims[0]);
  assert_int_equal(cols, dims[1]);
}

static void parts_cover_everything_and_satisfy_the_facts(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 2, 5, 16, 63, 64, 128, 384, 1000, 4096};
  lb_spec specs[] = {eltwise_spec(), row_reduce_spec(), matmul_spec(),
                     window_spec(), conv_spec()};
  for (int k = 0; k < 5; k++)
    for (int r = 0; r < 10; r++)
      for (int c = 0; c < 10; c++)
        for (int64_t outer = 1; outer < 100; outer *= 7) {
          int64_t dims[LB_SDIMS] = {sizes[r], sizes[c], 384, 5, 5};
          lb_facts f = lb_facts_of(&specs[k], 16, dims);
          check_parts(&specs[k], &f, dims, outer);
          lb_facts_add(&f, LB_ASSUME_EQUAL, LB_DIM_ROWS, (uint16_t)sizes[r]);
          check_parts(&specs[k], &f, dims, outer);
        }
}

static void small_work_is_one_job(void **state) {
  (void)state;
  lb_spec s = eltwise_spec();
  lb_facts f = {0};
  int64_t dims[LB_SDIMS] = {4, 128, 0, 0};
  lb_split p = lb_split_of(&s, &f, dims, 3);
  assert_int_equal(p.parts, 3);
  assert_int_equal(p.grain, 3);
}

static void a_matmul_is_split_by_columns_first(void **state) {
  (void)state;
  lb_spec s = matmul_spec();
  int64_t dims[LB_SDIMS] = {64, 1536, 384, 0};
  lb_facts f = lb_facts_of(&s, 16, dims);
  lb_split p = lb_split_of(&s, &f, dims, 1);
  assert_true(p.col_bands >= 8);
  assert_int_equal(p.row_bands, 1);
}

static void a_narrow_matmul_is_split_by_rows_too(void **state) {
  (void)state;
  lb_spec s = matmul_spec();
  int64_t dims[LB_SDIMS] = {2048, 64, 384, 0};
  lb_facts f = lb_facts_of(&s, 16, dims);
  lb_split p = lb_split_of(&s, &f, dims, 1);
  assert_true(p.row_bands >= 8);
}

static void a_small_feature_map_is_split_by_columns_first(void **state) {
  (void)state;
  lb_spec s = window_spec();
  int64_t dims[LB_SDIMS] = {16, 192, 1, 5, 5};
  lb_facts f = lb_facts_of(&s, 16, dims);
  lb_split p = lb_split_of(&s, &f, dims, 16);
  assert_true(p.band_major && p.col_band < 192 && p.col_band % 16 == 0);
  dims[LB_DIM_ROWS] = 158;
  dims[LB_DIM_TAPS_Y] = 3;
  assert_false(lb_split_of(&s, &f, dims, 158).band_major);
  dims[LB_DIM_ROWS] = 200;  // L1 holds one cache line of each position
  assert_false(lb_split_of(&s, &f, dims, 2).band_major);
}

static void a_wide_feature_map_with_high_windows_is_split_into_strips(
    void **state) {
  (void)state;
  lb_spec s = window_spec();
  int64_t dims[LB_SDIMS] = {76, 240, 1, 5, 5};
  lb_facts f = lb_facts_of(&s, 16, dims);
  lb_split p = lb_split_of(&s, &f, dims, 8);
  assert_true(p.band_major && p.row_bands > 2);
  assert_int_equal(p.col_band, 64);
  assert_int_equal(p.col_bands, 4);
  assert_false(lb_split_of(&s, &f, dims, 48).band_major);  // six feature maps
  dims[LB_DIM_TAPS_Y] = 3;  // low windows wait for memory anyway
  assert_false(lb_split_of(&s, &f, dims, 8).band_major);
  dims[LB_DIM_TAPS_Y] = 5;
  dims[LB_DIM_COLS] = 144;
  assert_false(lb_split_of(&s, &f, dims, 12).band_major);
}

static void weights_beyond_l2_are_split_into_bands(void **state) {
  (void)state;
  lb_spec s = conv_spec();
  int64_t dims[LB_SDIMS] = {7, 512, 1536, 3, 1};
  lb_facts f = lb_facts_of(&s, 16, dims);
  lb_split p = lb_split_of(&s, &f, dims, 5);
  assert_true(p.band_major && p.col_bands > 1 && p.row_bands == 1);
  assert_int_equal(lb_split_of(&s, &f, dims, 1).row_bands, 1);
  dims[LB_DIM_K] = 48;
  assert_false(lb_split_of(&s, &f, dims, 5).band_major);
}

// Zones at the padding of a feature map have fewer taps, and the same bands.
static void all_zones_have_the_bands_of_the_first(void **state) {
  (void)state;
  lb_spec s = conv_spec();
  int64_t dims[LB_SDIMS] = {5, 512, 1536, 3, 1};
  lb_facts f = lb_facts_of(&s, 16, dims);
  lb_split first = lb_split_of(&s, &f, dims, 5);
  dims[LB_DIM_K] = 512;
  dims[LB_DIM_ROWS] = 1;
  lb_split corner = lb_split_of(&s, &f, dims, 1);
  assert_true(first.across_zones && !corner.across_zones);
  lb_split_zone(&first, 1, &corner);
  assert_true(corner.band_major && corner.across_zones);
  assert_int_equal(corner.col_band, first.col_band);
  assert_int_equal(corner.col_bands, first.col_bands);
  assert_int_equal(corner.parts, first.col_bands);
  assert_int_equal(corner.row_band, 1);
  first.across_zones = false;
  lb_split alone = lb_split_of(&s, &f, dims, 1);
  lb_split_zone(&first, 1, &alone);
  assert_false(alone.band_major);
}

static void a_reduced_row_is_not_split(void **state) {
  (void)state;
  lb_spec s = row_reduce_spec();
  lb_facts f = {0};
  int64_t dims[LB_SDIMS] = {2, 1 << 20, 0, 0};
  lb_split p = lb_split_of(&s, &f, dims, 1);
  assert_int_equal(p.col_bands, 1);
  assert_int_equal(p.row_bands, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_cover_everything_and_satisfy_the_facts),
      cmocka_unit_test(small_work_is_one_job),
      cmocka_unit_test(a_matmul_is_split_by_columns_first),
      cmocka_unit_test(a_narrow_matmul_is_split_by_rows_too),
      cmocka_unit_test(a_small_feature_map_is_split_by_columns_first),
      cmocka_unit_test(
          a_wide_feature_map_with_high_windows_is_split_into_strips),
      cmocka_unit_test(weights_beyond_l2_are_split_into_bands),
      cmocka_unit_test(all_zones_have_the_bands_of_the_first),
      cmocka_unit_test(a_reduced_row_is_not_split),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
