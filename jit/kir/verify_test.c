// kir/verify_test.c -- Violates each rule once and checks the verifier's
// message.
#include "kir/testkit.h"

#define P "%0 = param ptr.f32\n%1 = param cptr.f32 slot 1\n"
#define C                    \
  "%0 = const f32x4 1\n"     \
  "%1 = const i64 0\n"       \
  "%2 = const boolx4 true\n" \
  "%3 = const f32 1\n"       \
  "%4 = const bool true\n"

static const struct {
  const char *body, *message;
} bad[] = {
    {"%0 = const i64 1\n%1 = param i64 slot 1\n",
     "1 '%1 = param i64 slot 1' "
     "must come before"},
    {"%0 = param i64 slot 1\n", "slot out of order"},
    {"%0 = param i64x2\n", "scalar or a pointer"},
    {"%0 = param shared.f32\n", "cannot point to local"},
    {"%0 = const f32x65 1\n", "too many lanes"},
    {"%0 = const ptr.f32 0\n", "plain dtype"},
    {"%0 = const f16 0x10000\n", "bits beyond"},
    {"%0 = const i64 0 axis 1\n", "has an axis"},
    {"%0 = group_id i64 axis 3\n", "axis above 2"},
    {"%0 = group_id i32\n", "other than the inferred"},
    {"%0 = add f32 %0 %0\n", "before it is defined"},
    {C "%5 = add f32x4 %0 %3\n", "5 '%5 = add f32x4 %0 %3' operands differ"},
    {C "%5 = add f32 %0 %0\n", "other than the inferred"},
    {C "%5 = add f32x4 %0\n", "wrong number of operands"},
    {C "%5 = add f32x4 %0 %0 %0\n", "wrong number of operands"},
    {C "add %0 %0\n", "other than the inferred"},
    {C "%5 = and f32x4 %0 %0\n", "does not take this dtype"},
    {C "%5 = exp i64 %1\n", "does not take this dtype"},
    {C "%5 = lt boolx4 %2 %2\n", "does not take this dtype"},
    {C "%5 = lt f32x4 %0 %0\n", "other than the inferred"},
    {C "%5 = select f32x4 %0 %0 %0\n", "condition must be a bool"},
    {C "%5 = select f32x4 %2 %0 %3\n", "choices differ"},
    {C "%5 = select f32 %2 %3 %3\n", "condition must be a bool"},
    {C "%5 = bitcast f64x3 %0\n", "other than the inferred"},
    {C "%5 = bitcast u8x16 %2\n", "converts numbers"},
    {C "%5 = bitcast f64 %3\n", "do not divide"},
    {C "%5 = splat f32x8 %0\n", "takes a scalar"},
    {C "%5 = splat f32x65 %3\n", "1 to 64 lanes"},
    {C "%5 = iota f32x4\n", "1 to 64 integers"},
    {C "%5 = extract f32 %0 lane 4\n", "lane that does not exist"},
    {C "%5 = insert f32x4 %0 %1\n", "must insert a scalar"},
    {C "%5 = shuffle f32x2 %0 [0 4]\n", "lane that does not exist"},
    {C "%5 = tail boolx4 %3\n", "takes an i64"},
    {"%0 = const f32x3 1\n%1 = radd f32 %0\n", "power of two"},
    {"%0 = const i32x4 1\n%1 = dot4 i32x4 %0 %0 %0\n", "four i8 or u8"},
    {P "%2 = add ptr.f32 %0 %0\n", "does not take this dtype"},
    {P "%2 = ptr ptr.f32 %0 %0\n", "takes an i64 index"},
    {P "%2 = load f32x4 %0 align 3\n", "power of two"},
    {P "%2 = load f32x4 %0 align 8192\n", "power of two"},
    {P "%2 = load f64x4 %0\n", "other than the inferred"},
    {P "%2 = const boolx8 true\n%3 = load f32x4 %0 %2\n", "mask must be"},
    {P "%2 = const f32 0\nstore %1 %2\n", "read-only"},
    {P "%2 = const f64 0\nstore %0 %2\n", "differs in dtype"},
    {P "%2 = const f32 0\nstore %2 %2\n", "takes a pointer"},
    {P "%2 = const f32 0\nscatter %0 %2 %2\n", "i32 or i64 indices"},
    {P "%2 = iota i32x4\n%3 = const f32 0\nscatter %0 %2 %3\n", "one index"},
    {P "prefetch %0 level 3\n", "level must be"},
    {P "prefetch %0 stream\n", "cannot stream"},
    {"%0 = local shared.f32\n", "bad count"},
    {"%0 = local shared.f32 count 262145\n", "bad count"},
    {"%0 = local ptr.f32 count 1\n", "other than the inferred"},
    {C "%5 = reg f32 %3\n%6 = add f32 %5 %3\n", "takes a register"},
    {C "%5 = get f32 %3\n", "must name a register"},
    {C "%5 = reg f32 %3\nset %5 %1\n", "differ in type"},
    {C "%5 = reg f32 %3\nset %3 %3\n", "must name a register"},
    {C "%5 = loop i64 %1 %3 %1\nend\n", "must be i64"},
    {C "if %2\nend\n", "condition must be a bool"},
    {C "if %4\n", "without END"},
    {"end\n", "closes no block"},
    {"else\n", "has no IF"},
    {C "%5 = loop i64 %1 %1 %1\nelse\nend\n", "has no IF"},
    {C "if %4\nelse\nelse\nend\n", "has no IF"},
    {C "%5 = loop i64 %1 %1 %1\nend\n%7 = neg i64 %5\n",
     "block that has ended"},
    {C "if %4\n%6 = neg i64 %1\nelse\n%8 = neg i64 %6\nend\n",
     "block that has ended"},
    {C "store %0 %0\n%6 = neg i64 %5\n", "5 'store %0 %0' takes a pointer"},
    {C "barrier\n%6 = neg i64 %5\n", "without a value"},
};

static void invalid_kernels_are_rejected(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    lb_kernel k;
    lb_strbuf text = {0};
    lb_strbuf_printf(&text, "kernel test local 1 1 1\n%s", bad[i].body);
    assert_ok(lb_kernel_parse(lb_strbuf_str(&text), &k));
    assert_error(lb_kernel_verify(&k), LB_INTERNAL, bad[i].message);
    lb_strbuf_fini(&text);
    lb_kernel_fini(&k);
  }
}

static void headers_are_checked(void **state) {
  (void)state;
  static const char *const headers[] = {
      "kernel 1k local 1 1 1", "kernel a.b local 1 1 1",
      "kernel k local 1025 1 1", "kernel k local 32 32 2"};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    lb_kernel k;
    assert_ok(lb_kernel_parse(headers[i], &k));
    assert_error(lb_kernel_verify(&k), LB_INTERNAL, "has ");
    lb_kernel_fini(&k);
  }
}

static void deep_nesting_is_rejected(void **state) {
  (void)state;
  for (int depth = LB_K_MAX_DEPTH; depth <= LB_K_MAX_DEPTH + 1; depth++) {
    lb_kbuilder b;
    lb_kernel k;
    lb_kbuild_init(&b, "deep");
    lb_kval yes = lb_k_num(&b, lb_kt(LB_BOOL, 1), 1);
    for (int i = 0; i < depth; i++) lb_k_if(&b, yes);
    for (int i = 0; i < depth; i++) lb_k_end(&b);
    lb_status st = lb_kernel_finish(&b, &k);
    if (depth == LB_K_MAX_DEPTH)
      assert_ok(st);
    else
      assert_error(st, LB_INTERNAL, "nested too deeply");
    lb_kernel_fini(&k);
  }
}

// Any change to any byte of the arrays is detected, or leaves a kernel that can
// be printed; nothing is read out of bounds.
static void arbitrary_array_contents_are_safe(void **state) {
  (void)state;
  lb_kernel k = kernel_of(C
                          "%5 = shuffle f32x4 %0 %0 [0 1 4 7]\n"
                          "if %4\n%7 = add f32x4 %5 %0\nend\n");
  uint8_t *arrays[] = {(uint8_t *)k.insts, (uint8_t *)k.pool, k.tables};
  size_t sizes[] = {k.n_insts * sizeof *k.insts, k.n_pool * sizeof *k.pool,
                    k.n_tables};
  static const uint8_t values[] = {0, 1, 3, 4, 0x7f, 0x80, 0xff};
  int noticed = 0;
  for (int a = 0; a < 3; a++)
    for (size_t i = 0; i < sizes[a]; i++)
      for (size_t v = 0; v < sizeof values; v++) {
        uint8_t old = arrays[a][i];
        arrays[a][i] = values[v];
        lb_status st = lb_kernel_verify(&k);
        lb_strbuf text = {0};
        if (!lb_failed(st)) lb_kernel_print(&k, &text);
        noticed += lb_failed(st);
        lb_status_drop(st);
        lb_strbuf_fini(&text);
        arrays[a][i] = old;
      }
  assert_true(noticed > 900);
  lb_kernel_fini(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(invalid_kernels_are_rejected),
      cmocka_unit_test(headers_are_checked),
      cmocka_unit_test(deep_nesting_is_rejected),
      cmocka_unit_test(arbitrary_array_contents_are_safe),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
