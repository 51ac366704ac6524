// render/text_test.c -- Checks the text of kernels, and which kernels are
// rejected. The toolchain's tests compile the text and check its results.
#include "kir/testkit.h"

#include "render/render.h"

static const lb_target v3 = {LB_LEVEL_V3, 0};
static const lb_target v4 = {LB_LEVEL_V4, 0};

// The caller frees `out` with lb_strbuf_fini.
static const char *text_of(const char *body, const lb_target *t,
                           lb_strbuf *out) {
  lb_kernel k = kernel_of(body);
  assert_ok(lb_render_llvm(&k, t, out));
  lb_kernel_fini(&k);
  return lb_strbuf_str(out);
}

static int count(const char *text, const char *part) {
  int n = 0;
  for (const char *p = text; (p = strstr(p, part)); p++) n++;
  return n;
}

static const char sum[] =
    "%0 = param cptr.f32\n"
    "%1 = param ptr.f32 slot 1\n"
    "%2 = param i64 slot 2\n"
    "%3 = const i64 0\n"
    "%4 = const i64 8\n"
    "%5 = const f32x8 0\n"
    "%6 = reg f32x8 %5\n"
    "%7 = loop i64 %3 %2 %4\n"
    "  %8 = ptr cptr.f32 %0 %7\n"
    "  %9 = load f32x8 %8\n"
    "  %10 = exp f32x8 %9\n"
    "  %11 = exp f32x8 %10\n"
    "  %12 = get f32x8 %6\n"
    "  %13 = add f32x8 %11 %12\n"
    "  set %6 %13\n"
    "end\n"
    "%16 = get f32x8 %6\n"
    "store %1 %16\n";

static void registers_are_phis_and_not_memory(void **state) {
  (void)state;
  lb_strbuf s = {0};
  const char *text = text_of(sum, &v4, &s);
  assert_int_equal(count(text, " = phi <8 x float>"), 2);  // LOOP, END
  assert_int_equal(count(text, " = phi i64"), 1);
  assert_null(strstr(text, "alloca"));
  lb_strbuf_fini(&s);
}

static void helpers_are_written_once_and_only_when_used(void **state) {
  (void)state;
  lb_strbuf s = {0};
  const char *text = text_of(sum, &v3, &s);
  assert_int_equal(count(text, "define internal"), 1);
  assert_int_equal(count(text, "call <8 x float> @lb.exp.v8f32"), 2);
  assert_int_equal(count(text, "declare <8 x float> @llvm.fma.v8f32"), 1);
  lb_strbuf_fini(&s);
}

// The number of table lookups in the text of an exponential.
static int lookups(const char *body, const lb_target *t) {
  lb_strbuf s = {0};
  const char *text = text_of(body, t, &s);
  int n = count(text, " = call <8 x float> @llvm.x86.avx2.permps") +
          count(text, " = call <16 x float> @llvm.x86.avx512.permvar.sf.512");
  lb_strbuf_fini(&s);
  return n;
}

static void a_table_lookup_is_one_instruction_per_register(void **state) {
  (void)state;
  static const char wide[] =
      "%0 = param ptr.f32\n"
      "%1 = load f32x16 %0\n"
      "%2 = exp f32x16 %1\n"
      "store %0 %2\n";
  assert_int_equal(lookups(sum, &v3), 1);
  assert_int_equal(lookups(sum, &v4), 1);
  assert_int_equal(lookups(wide, &v3), 2);
  assert_int_equal(lookups(wide, &v4), 1);
}

static void only_read_only_memory_is_loaded_as_invariant(void **state) {
  (void)state;
  lb_strbuf s = {0};
  const char *text = text_of(
      "%0 = param cptr.f32\n"
      "%1 = param ptr.f32 slot 1\n"
      "%2 = load f32x8 %0\n"
      "%3 = load f32x8 %1\n"
      "%4 = add f32x8 %2 %3\n"
      "store %1 %4\n",
      &v3, &s);
  assert_int_equal(count(text, "load <8 x float>"), 2);
  assert_int_equal(count(text, "align 4, !invariant.load"), 1);
  lb_strbuf_fini(&s);
}

static void equal_kernels_give_equal_text(void **state) {
  (void)state;
  lb_strbuf a = {0}, b = {0};
  assert_string_equal(text_of(sum, &v4, &a), text_of(sum, &v4, &b));
  lb_strbuf_fini(&a);
  lb_strbuf_fini(&b);
}

static void gpu_only_operations_are_rejected(void **state) {
  (void)state;
  lb_strbuf s = {0};
  lb_kernel k = kernel_of("%0 = group_id i64\n");
  assert_error(lb_render_llvm(&k, &v3, &s), LB_UNSUPPORTED, "group_id");
  k.insts[0].op = LB_K_LOCAL_ID;
  assert_error(lb_render_llvm(&k, &v3, &s), LB_UNSUPPORTED, "local_id");
  lb_kernel_fini(&k);
  k = kernel_of("barrier\n");
  k.local[0] = 32;
  assert_error(lb_render_llvm(&k, &v3, &s), LB_UNSUPPORTED, "32 x 1 x 1");
  lb_kernel_fini(&k);
  assert_int_equal(s.len, 0);
  lb_strbuf_fini(&s);
}

static void unknown_targets_are_rejected(void **state) {
  (void)state;
  lb_strbuf s = {0};
  lb_kernel k = kernel_of("barrier\n");
  assert_error(lb_render_llvm(&k, &(lb_target){5, 0}, &s), LB_UNSUPPORTED,
               "x86-64-v5");
  lb_kernel_fini(&k);
  lb_strbuf_fini(&s);
}

static void the_host_is_a_target(void **state) {
  (void)state;
  lb_target t = lb_target_host();
  if (t.level >= LB_LEVEL_V3) assert_ok(lb_target_check(&t));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(registers_are_phis_and_not_memory),
      cmocka_unit_test(helpers_are_written_once_and_only_when_used),
      cmocka_unit_test(a_table_lookup_is_one_instruction_per_register),
      cmocka_unit_test(only_read_only_memory_is_loaded_as_invariant),
      cmocka_unit_test(equal_kernels_give_equal_text),
      cmocka_unit_test(gpu_only_operations_are_rejected),
      cmocka_unit_test(unknown_targets_are_rejected),
      cmocka_unit_test(the_host_is_a_target),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
