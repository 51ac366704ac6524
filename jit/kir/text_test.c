// kir/text_test.c -- The text of a kernel is parsed back to equal bytes, and
// errors name the line.
#include "kir/testkit.h"

#define ALL_KINDS                                    \
  "%0 = param ptr.f32\n"                             \
  "%1 = param cptr.bf16 slot 1\n"                    \
  "%2 = param i64 slot 2\n"                          \
  "%3 = param f64 slot 3\n"                          \
  "%4 = const f32x16 0.100000001\n"                  \
  "%5 = const f32 -0\n"                              \
  "%6 = const f64 0.10000000000000001\n"             \
  "%7 = const f16 6.10351562e-05\n"                  \
  "%8 = const bf16x2 -inf\n"                         \
  "%9 = const f32 0x7fc00001\n"                      \
  "%10 = const i8x4 -128\n"                          \
  "%11 = const u64 18446744073709551615\n"           \
  "%12 = const bool true\n"                          \
  "%13 = const i64 -9223372036854775808\n"           \
  "%14 = const i64 1\n"                              \
  "%15 = local shared.f32 count 64\n"                \
  "%16 = group_id i64 axis 1\n"                      \
  "%17 = reg f32x16 %4\n"                            \
  "%18 = loop i64 %13 %2 %14 axis 3\n"               \
  "  %19 = ptr ptr.f32 %0 %18 disp -64\n"            \
  "  %20 = tail boolx16 %2\n"                        \
  "  %21 = load f32x16 %19 %20 %4 align 64 stream\n" \
  "  %22 = get f32x16 %17\n"                         \
  "  %23 = fma f32x16 %21 %21 %22\n"                 \
  "  set %17 %23\n"                                  \
  "  if %12\n"                                       \
  "    %26 = shuffle f32x4 %21 %22 [0 31 5 5]\n"     \
  "    %27 = extract f32 %26 lane 3\n"               \
  "    %28 = insert f32x4 %26 %27\n"                 \
  "    store %19 %28 align 16\n"                     \
  "  else\n"                                         \
  "    prefetch %19 level 2\n"                       \
  "    barrier\n"                                    \
  "  end\n"                                          \
  "end\n"                                            \
  "%35 = bitcast ptr.i32 %0\n"                       \
  "%36 = iota i32x8\n"                               \
  "%37 = gather i32x8 %35 %36\n"                     \
  "scatter %35 %36 %37\n"

static void all_kinds_of_lines_round_trip(void **state) {
  (void)state;
  lb_kernel k = kernel_of(ALL_KINDS), again;
  lb_strbuf text = {0};
  assert_string_equal(body_of(&k, &text), ALL_KINDS);
  assert_ok(lb_kernel_parse(text.data, &again));
  assert_true(lb_kernel_eq(&k, &again));
  lb_strbuf_fini(&text);
  lb_kernel_fini(&again);
  lb_kernel_fini(&k);
}

static void space_and_comments_do_not_matter(void **state) {
  (void)state;
  lb_kernel a = kernel_of("%0 = const i64 1\n%1 = add i64 %0 %0\n"), b;
  assert_ok(
      lb_kernel_parse("\n ; a comment\n\tkernel  test local 1 1 1 ; x\n"
                      "%0=const i64 1\r\n\n%1 =add  i64 %0 %0",
                      &b));
  assert_true(lb_kernel_eq(&a, &b));
  lb_kernel_fini(&a);
  lb_kernel_fini(&b);
}

static void invalid_text_is_rejected_with_its_line(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } rows[] = {
      {"", "line 1: expected 'kernel"},
      {"kernel k", "line 1: expected 'local'"},
      {"kernel k local 1 1", "line 1: expected a number"},
      {"kernel k local 1 1 1 1", "line 1: expected the end of the line"},
      {"kernel k local 1 1 0", "line 1: expected a number"},
      {"kernel k local 1 1 1\n%1 = const i64 0",
       "line 2: expected the next value"},
      {"kernel k local 1 1 1\n%0 const i64 0", "line 2: expected ="},
      {"kernel k local 1 1 1\n\n%0 = frob i64",
       "line 3: expected an operation"},
      {"kernel k local 1 1 1\n%0 = const f31 0", "expected a type"},
      {"kernel k local 1 1 1\n%0 = const f32x 0", "expected a type"},
      {"kernel k local 1 1 1\n%0 = const f32x99999 0", "expected a type"},
      {"kernel k local 1 1 1\n%0 = const i8 128", "expected a value"},
      {"kernel k local 1 1 1\n%0 = const u8 -1", "expected a value"},
      {"kernel k local 1 1 1\n%0 = const u8 256", "expected a value"},
      {"kernel k local 1 1 1\n%0 = const f32 1.x", "expected a value"},
      {"kernel k local 1 1 1\n%0 = const bool 1", "expected a value"},
      {"kernel k local 1 1 1\n%0 = const i64", "expected a value"},
      {"kernel k local 1 1 1\nconst", "expected a value"},
      {"kernel k local 1 1 1\n%0 = const i64 0 axis", "expected a number"},
      {"kernel k local 1 1 1\n%0 = const i64 0 align 4", "unexpected word"},
      {"kernel k local 1 1 1\nbarrier %x", "invalid operand"},
      {"kernel k local 1 1 1\nbarrier %4294967295", "invalid operand"},
      {"kernel k local 1 1 1\nbarrier %1 %1 %1 %1 %1", "invalid operand"},
      {"kernel k local 1 1 1\n%0 = shuffle f32x2 %0 0",
       "expected a lane table"},
      {"kernel k local 1 1 1\n%0 = shuffle f32x2 %0 [0]", "expected a number"},
      {"kernel k local 1 1 1\n%0 = shuffle f32x2 %0 [0 256]",
       "expected a number"},
      {"kernel k local 1 1 1\n%0 = shuffle f32x65 %0 [0]", "too many lanes"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    lb_kernel k;
    assert_error(lb_kernel_parse(rows[i].text, &k), LB_INVALID,
                 rows[i].message);
    assert_null(k.insts);
  }
}

static void every_operation_has_a_unique_name(void **state) {
  (void)state;
  for (int a = 0; a < LB_K_COUNT; a++)
    for (int b = 0; b < a; b++)
      assert_string_not_equal(lb_kop_infos[a].text, lb_kop_infos[b].text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_kinds_of_lines_round_trip),
      cmocka_unit_test(space_and_comments_do_not_matter),
      cmocka_unit_test(invalid_text_is_rejected_with_its_line),
      cmocka_unit_test(every_operation_has_a_unique_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
