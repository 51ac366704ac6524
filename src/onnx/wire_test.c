#include "onnx/wire.h"

#include "onnx/model_test.h"

static void expect_damage(const char *bytes, size_t n, const char *text) {
  lb_wire w = lb_wire_open((lb_span){(const uint8_t *)bytes, n});
  lb_wire_field f;
  lb_status st = LB_OK;
  while (lb_wire_next(&w, &f, &st)) continue;
  expect_message(st, LB_INVALID, text);
}

#define CORRUPT(bytes, text) expect_damage(bytes, sizeof bytes - 1, text)

static void fields_of_every_type_are_read(void **state) {
  (void)state;
  static const uint8_t bytes[] =
      "\x08\xac\x02\x12\x02hi\x1d\1\0\0\0\x21\2\0"
      "\0\0\0\0\0\0";
  lb_wire w = lb_wire_open((lb_span){bytes, sizeof bytes - 1});
  lb_wire_field f[4];
  lb_status st = LB_OK;
  for (int i = 0; i < 4; i++) assert_true(lb_wire_next(&w, &f[i], &st));
  assert_int_equal(f[0].n, 300);
  assert_memory_equal(f[1].bytes.p, "hi", 2);
  assert_int_equal(lb_wire_size(f[1].bytes), 2);
  assert_int_equal(f[2].n, 1);
  assert_int_equal(f[3].number, 4);
  assert_int_equal(f[3].n, 2);
  assert_false(lb_wire_next(&w, &f[0], &st));
  expect_success(st);
}

static void corruption_is_named_with_its_offset(void **state) {
  (void)state;
  CORRUPT("\x08\x80", "not a valid ONNX model: byte 1: a number is truncated");
  CORRUPT("\x12\x05hi",
          "not a valid ONNX model: byte 2: a field is longer than "
          "the rest of its message");
  CORRUPT("\x08\1\x1d\0\0",
          "not a valid ONNX model: byte 3: a number is truncated");
  CORRUPT("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
          "not a valid ONNX model: byte 1: a number has more than 64 bits");
  CORRUPT("\x02\0", "not a valid ONNX model: byte 0: invalid field number");
  CORRUPT("\x08\1\x0b",
          "not a valid ONNX model: byte 2: a field has a type that "
          "ONNX does not use");
}

static void a_length_near_2_to_64_does_not_wrap(void **state) {
  (void)state;
  CORRUPT(
      "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
      "not a valid ONNX model: byte 11: a field is longer than the rest of its "
      "message");
}

static void packed_and_single_numbers_are_read_the_same_way(void **state) {
  (void)state;
  static const uint8_t bytes[] = "\x0a\3\1\x96\1\x08\7";
  lb_wire w = lb_wire_open((lb_span){bytes, sizeof bytes - 1});
  uint64_t got[3], want[3] = {1, 150, 7};
  size_t n, at = 0;
  lb_wire_field f;
  lb_status st = LB_OK;
  while (lb_wire_next(&w, &f, &st)) {
    expect_success(lb_wire_elems(&w, &f, LB_WIRE_VARINT, &n));
    for (; n > 0; n--)
      expect_success(lb_wire_take(&f, LB_WIRE_VARINT, &got[at++]));
  }
  expect_success(st);
  assert_int_equal(at, 3);
  assert_memory_equal(got, want, sizeof want);
}

static void a_truncated_list_of_floats_is_an_error(void **state) {
  (void)state;
  static const uint8_t bytes[] = "\x0a\3\1\1\1";
  lb_wire w = lb_wire_open((lb_span){bytes, sizeof bytes - 1});
  lb_wire_field f;
  lb_status st = LB_OK;
  size_t n;
  assert_true(lb_wire_next(&w, &f, &st));
  expect_message(
      lb_wire_elems(&w, &f, LB_WIRE_FIXED32, &n), LB_INVALID,
      "not a valid ONNX model: byte 2: a list of numbers is truncated");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fields_of_every_type_are_read),
      cmocka_unit_test(corruption_is_named_with_its_offset),
      cmocka_unit_test(a_length_near_2_to_64_does_not_wrap),
      cmocka_unit_test(packed_and_single_numbers_are_read_the_same_way),
      cmocka_unit_test(a_truncated_list_of_floats_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
