// tools/shapes_test.c -- tests the grammar of shapes.
#include "shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const char *const batch_seq[] = {"batch", "seq"};
static const char *const picture[] = {"batch", "3", "?", "?"};
static const limber_value_info text_model[] = {
    {"ids", LIMBER_I64, 2, batch_seq}, {"mask", LIMBER_I64, 2, batch_seq}};
static const limber_value_info picture_model[] = {
    {"x", LIMBER_F32, 4, picture}, {"size", LIMBER_I64, -1, NULL}};

static shapes *made(const limber_value_info *inputs, const char *by_input,
                    const char *by_symbol) {
  shapes_of of = {
      .inputs = inputs, .n = 2, .shapes = by_input, .dims = by_symbol};
  problem p = {0};
  shapes *s;
  if (!shapes_new(&of, &s, &p)) fail_msg("%s", p.text);
  return s;
}

static void expect_rejected(const limber_value_info *inputs,
                            const char *by_input, const char *by_symbol,
                            const char *why) {
  shapes_of of = {
      .inputs = inputs, .n = 2, .shapes = by_input, .dims = by_symbol};
  problem p = {0};
  shapes *s;
  if (shapes_new(&of, &s, &p)) fail_msg("%s %s", by_input, by_symbol);
  assert_null(s);
  assert_int_equal(p.exit, EXIT_USAGE);
  if (!strstr(p.text, why)) fail_msg("'%s' does not say '%s'", p.text, why);
}

static void sets_and_ranges_are_all_their_sizes_in_order(void **state) {
  (void)state;
  shapes *s = made(text_model, NULL, "batch={1,4..6,9} seq={8..20/5}");
  static const int64_t batches[] = {1, 4, 5, 6, 9}, seqs[] = {8, 13, 18};
  limber_tensor in[2] = {0};
  assert_int_equal(shapes_count(s), 15);
  for (uint64_t i = 0; i < 15; i++) {
    shapes_get(s, i, in);
    assert_int_equal(in[0].dims[0], batches[i / 3]);
    assert_int_equal(in[0].dims[1], seqs[i % 3]);
    assert_memory_equal(in[0].dims, in[1].dims, 2 * sizeof(int64_t));
  }
  assert_string_equal(in[1].name, "mask");
  assert_int_equal(in[1].dtype, LIMBER_I64);
  shapes_free(s);
}

static void a_symbol_given_by_one_input_holds_for_all(void **state) {
  (void)state;
  shapes *s = made(text_model, "ids={1,2}x{7..9}", NULL);
  limber_tensor in[2] = {0};
  assert_int_equal(shapes_count(s), 6);
  shapes_get(s, 5, in);
  assert_int_equal(in[1].dims[0], 2);
  assert_int_equal(in[1].dims[1], 9);
  shapes_free(s);
  s = made(text_model, "ids=1x{7..9} mask=1x{7..9}", "batch=1");
  assert_int_equal(shapes_count(s), 3);
  shapes_free(s);
}

static void unnamed_dims_vary_independently(void **state) {
  (void)state;
  shapes *s = made(picture_model, "x=1x3x{8,9}x{8,9} size=", NULL);
  limber_tensor in[2] = {0};
  assert_int_equal(shapes_count(s), 4);
  shapes_get(s, 1, in);
  assert_int_equal(in[0].dims[1], 3);
  assert_int_equal(in[0].dims[2], 8);
  assert_int_equal(in[0].dims[3], 9);
  assert_int_equal(in[1].rank, 0);
  shapes_free(s);
}

static void given_contents_fix_their_symbols(void **state) {
  (void)state;
  limber_tensor mask = {.rank = 2, .dims = {3, 17}};
  const limber_tensor *fixed[] = {NULL, &mask};
  shapes_of of = {.inputs = text_model, .n = 2, .fixed = fixed};
  problem p = {0};
  limber_tensor in[2] = {0};
  shapes *s;
  assert_true(shapes_new(&of, &s, &p));
  assert_int_equal(shapes_count(s), 1);
  shapes_get(s, 0, in);
  assert_int_equal(in[0].dims[1], 17);
  shapes_free(s);
}

static void a_seed_decides_a_selection_without_repetition(void **state) {
  (void)state;
  shapes *s = made(text_model, NULL, "batch={1..10} seq={1..10}");
  shapes *other = made(text_model, NULL, "batch={1..10} seq={1..10}");
  limber_tensor a[2] = {0}, b[2] = {0};
  problem p = {0};
  bool seen[11][11] = {{false}};
  int same = 0;
  assert_true(shapes_draw(s, 99, 7, &p) && shapes_draw(other, 99, 7, &p));
  assert_int_equal(shapes_drawn(s), 99);
  for (uint64_t i = 0; i < 99; i++) {
    shapes_get(s, i, a);
    shapes_get(other, i, b);
    assert_memory_equal(a[0].dims, b[0].dims, sizeof a[0].dims);
    assert_false(seen[a[0].dims[0]][a[0].dims[1]]);
    seen[a[0].dims[0]][a[0].dims[1]] = true;
  }
  assert_true(shapes_draw(other, 99, 8, &p));
  for (uint64_t i = 0; i < 99; i++) {
    shapes_get(s, i, a);
    shapes_get(other, i, b);
    same += !memcmp(a[0].dims, b[0].dims, sizeof a[0].dims);
  }
  assert_true(same < 20);
  assert_true(shapes_draw(s, 100, 7, &p));  // all of them, in order
  shapes_get(s, 10, a);
  assert_int_equal(a[0].dims[0], 2);
  shapes_free(s);
  shapes_free(other);
}

static void mistakes_say_what_to_write(void **state) {
  (void)state;
  expect_rejected(text_model, NULL, NULL,
                  "the size of 'batch' is not given: use --dims 'batch=");
  expect_rejected(text_model, NULL, "batch=1",
                  "the size of 'seq' is not given");
  expect_rejected(text_model, NULL, "b=1",
                  "no input has a dim 'b'; there is 'batch'");
  expect_rejected(text_model, "idz=1x2", NULL, "no input 'idz'");
  expect_rejected(text_model, "ids=1x2 ids=1x2", NULL, "given twice");
  expect_rejected(text_model, "ids=1x2 mask=1x3", NULL,
                  "'seq' has one set of sizes");
  expect_rejected(text_model, "ids=1x{8..4}", NULL, "must have sizes");
  expect_rejected(text_model, "ids=1x", NULL, "must have sizes");
  expect_rejected(text_model, "ids=1xx2", NULL, "must have sizes");
  expect_rejected(text_model, "ids", NULL, "NAME=SIZES");
  expect_rejected(text_model, NULL, "batch=1 =3", "NAME=SIZES");
  expect_rejected(picture_model, NULL, "batch=1", "dim 2 of 'x' has no name");
  expect_rejected(picture_model, "x=1x3x8x8", NULL,
                  "the shape of 'size' is not given");
  static const char *const wrong[] = {"",
                                      "-1",
                                      "{",
                                      "{}",
                                      "{1",
                                      "{1,}",
                                      "{1..}",
                                      "1..2",
                                      "{1..2/0}",
                                      "{2..1}",
                                      "1x",
                                      "{1}2",
                                      "99999999999999999999"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char text[64] = "seq=1 batch=";
    strcat(text, wrong[i]);
    expect_rejected(text_model, NULL, text, "'batch' must be");
  }
  expect_rejected(text_model, NULL,
                  "batch={1..4000000000000000000} seq={1..4000000000000000000}",
                  "more shapes than can be counted");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sets_and_ranges_are_all_their_sizes_in_order),
      cmocka_unit_test(a_symbol_given_by_one_input_holds_for_all),
      cmocka_unit_test(unnamed_dims_vary_independently),
      cmocka_unit_test(given_contents_fix_their_symbols),
      cmocka_unit_test(a_seed_decides_a_selection_without_repetition),
      cmocka_unit_test(mistakes_say_what_to_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
