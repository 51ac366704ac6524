// kir/build_test.c -- Types are inferred, and the first error is reported.
#include "kir/testkit.h"

static void types_are_inferred(void **state) {
  (void)state;
  lb_kbuilder b;
  lb_kernel k;
  lb_strbuf text = {0};
  lb_kbuild_init(&b, "scale");
  lb_kbuild_local(&b, 8, 2, 1);
  lb_kval p = lb_k_param(&b, lb_kt_ptr(LB_F32, 0));
  lb_kval q = lb_k_param(&b, lb_kt_ptr(LB_BF16, LB_K_READONLY));
  lb_kval n = lb_k_param(&b, lb_kt(LB_I64, 1));
  lb_kval mask = lb_k_tail(&b, n, 8);
  lb_kval x = lb_k_load_masked(&b, q, 8, 0, mask, LB_K_NONE);
  lb_kval y = lb_k_cast(&b, x, LB_F32);
  lb_kval z = lb_k_mul(&b, y, lb_k_like(&b, y, 0.5));
  lb_kval bigger = lb_k_gt(&b, z, y);
  lb_k_store_masked(&b, p, lb_k_select(&b, bigger, z, y), 32, mask);
  lb_k_stream(&b);
  assert_true(lb_ktype_eq(lb_k_type(&b, bigger), lb_kt(LB_BOOL, 8)));
  assert_ok(lb_kernel_finish(&b, &k));
  assert_int_equal(lb_kernel_params(&k), 3);
  lb_kernel_print(&k, &text);
  assert_string_equal(text.data,
                      "kernel scale local 8 2 1\n"
                      "%0 = param ptr.f32\n"
                      "%1 = param cptr.bf16 slot 1\n"
                      "%2 = param i64 slot 2\n"
                      "%3 = tail boolx8 %2\n"
                      "%4 = load bf16x8 %1 %3\n"
                      "%5 = cast f32x8 %4\n"
                      "%6 = const f32x8 0.5\n"
                      "%7 = mul f32x8 %5 %6\n"
                      "%8 = lt boolx8 %5 %7\n"
                      "%9 = select f32x8 %8 %7 %5\n"
                      "store %0 %9 %3 align 32 stream\n");
  lb_strbuf_fini(&text);
  lb_kernel_fini(&k);
}

static void the_first_error_is_reported(void **state) {
  (void)state;
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "bad");
  lb_kval x = lb_k_f32(&b, 1), i = lb_k_i64(&b, 1);
  lb_kval wrong = lb_k_add(&b, x, i);
  assert_int_equal(wrong, LB_K_NONE);
  assert_int_equal(lb_k_exp(&b, i), LB_K_NONE);
  assert_int_equal(lb_k_mul(&b, wrong, wrong), LB_K_NONE);
  lb_k_store(&b, wrong, wrong, 0);
  lb_k_end(&b);
  assert_error(lb_kernel_finish(&b, &k), LB_INTERNAL,
               "kernel bad: %2 = add: operands differ in type");
  assert_null(k.insts);
}

static void undefined_values_are_rejected(void **state) {
  (void)state;
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "bad");
  lb_k_neg(&b, 7);
  assert_error(lb_kernel_finish(&b, &k), LB_INTERNAL, "undefined value");
  lb_kbuild_init(&b,
                 "a_name_that_is_longer_than_the_sixty_three_bytes_there_"
                 "are_for_it");
  assert_error(lb_kernel_finish(&b, &k), LB_INTERNAL, "too long");
}

static void open_blocks_are_rejected(void **state) {
  (void)state;
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "open");
  lb_kval n = lb_k_i64(&b, 1);
  lb_k_loop(&b, n, n, n);
  assert_error(lb_kernel_finish(&b, &k), LB_INTERNAL, "without END");
}

static void partners_and_parents_follow_the_blocks(void **state) {
  (void)state;
  lb_kernel k = kernel_of(
      "%0 = const i64 1\n"
      "%1 = const bool true\n"
      "%2 = loop i64 %0 %0 %0\n"
      "  if %1\n"
      "    barrier\n"
      "  else\n"
      "    barrier\n"
      "  end\n"
      "  if %1\n"
      "  end\n"
      "end\n"
      "barrier\n");
  const uint32_t no = LB_K_NONE;
  uint32_t partners[12], parents[12];
  lb_kernel_partners(&k, partners);
  lb_kernel_parents(&k, parents);
  const uint32_t want_partners[] = {no, no, 10, 5, no, 7, no, 3, 9, 8, 2, no};
  const uint32_t want_parents[] = {no, no, no, 2, 3, 3, 5, 3, 2, 8, 2, no};
  assert_memory_equal(partners, want_partners, sizeof partners);
  assert_memory_equal(parents, want_parents, sizeof parents);
  lb_kernel_fini(&k);
}

static void constants_hold_bits_of_their_dtype(void **state) {
  (void)state;
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "constants");
  lb_k_num(&b, lb_kt(LB_I8, 4), -3);
  lb_k_num(&b, lb_kt(LB_F16, 1), 1.5);
  lb_k_num(&b, lb_kt(LB_BF16, 1), -2);
  lb_k_num(&b, lb_kt(LB_U16, 1), 65535);
  lb_k_num(&b, lb_kt(LB_BOOL, 2), 7);
  assert_ok(lb_kernel_finish(&b, &k));
  const int64_t want[] = {0xfd, 0x3e00, 0xc000, 0xffff, 1};
  for (int i = 0; i < 5; i++) assert_int_equal(k.insts[i].imm, want[i]);
  assert_int_equal(lb_kconst_int(&k.insts[0]), -3);
  assert_int_equal(lb_kconst_int(&k.insts[3]), 65535);
  lb_kernel_fini(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(types_are_inferred),
      cmocka_unit_test(the_first_error_is_reported),
      cmocka_unit_test(undefined_values_are_rejected),
      cmocka_unit_test(open_blocks_are_rejected),
      cmocka_unit_test(partners_and_parents_follow_the_blocks),
      cmocka_unit_test(constants_hold_bits_of_their_dtype),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
