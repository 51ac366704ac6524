// toolchain/toolchain_test.c -- Compiles text to objects, and checks which
// inputs are rejected.
#include "kir/testkit.h"

#include <pthread.h>

#include "toolchain/inspect.h"
#include "toolchain/toolchain.h"

static const lb_target v3 = {LB_LEVEL_V3, 0};

static lb_status compile(const lb_target *t, const char *text, lb_blob *out) {
  lb_toolchain *tc;
  lb_status st = lb_toolchain_new(t, &tc);
  if (lb_failed(st)) return st;
  st = lb_toolchain_compile(tc, text, out, NULL);
  lb_toolchain_free(tc);
  return st;
}

static void an_object_is_elf_and_needs_nothing(void **state) {
  (void)state;
  lb_blob object;
  assert_ok(compile(&v3, "define void @f(ptr %x) {\n  ret void\n}\n", &object));
  assert_memory_equal(object.data, "\177ELF", 4);
  lb_blob_fini(&object);
  assert_null(object.data);
}

static void errors_in_the_text_name_the_line(void **state) {
  (void)state;
  lb_blob object;
  lb_status st = compile(
      &v3, "define void @f() {\n  %x = frobnicate i32 1\n  ret void\n}\n",
      &object);
  assert_non_null(strstr(lb_status_message(st), "text:2:8"));
  assert_error(st, LB_INTERNAL, "frobnicate i32 1");
  assert_null(object.data);
}

static void undefined_symbols_are_named(void **state) {
  (void)state;
  lb_blob object;
  assert_error(compile(&v3,
                       "declare float @llvm.exp.f32(float)\n"
                       "define void @f(ptr %p) {\n"
                       "  %x = load float, ptr %p\n"
                       "  %y = call float @llvm.exp.f32(float %x)\n"
                       "  store float %y, ptr %p\n"
                       "  ret void\n}\n",
                       &object),
               LB_INTERNAL, "undefined symbols: expf");
}

static void targets_below_v3_or_unknown_are_rejected(void **state) {
  (void)state;
  lb_blob object;
  assert_error(compile(&(lb_target){2, 0}, "", &object), LB_UNSUPPORTED,
               "x86-64-v2");
  assert_error(compile(&(lb_target){LB_LEVEL_V3, 1u << 30}, "", &object),
               LB_UNSUPPORTED, "unknown features");
  assert_error(compile(&(lb_target){LB_LEVEL_V3, 1u << LB_FEATURE_AVX512VNNI},
                       "", &object),
               LB_UNSUPPORTED, "avx512vnni");
}

// The vector width distinguishes the levels.
static void levels_and_features_reach_the_code(void **state) {
  (void)state;
  static const char text[] =
      "define void @f(ptr %p, ptr %q) {\n"
      "  %x = load <16 x float>, ptr %p\n"
      "  %y = load <16 x float>, ptr %q\n"
      "  %z = fadd <16 x float> %x, %y\n"
      "  store <16 x float> %z, ptr %p\n"
      "  ret void\n}\n";
  for (lb_level level = LB_LEVEL_V3; level <= LB_LEVEL_V4; level++) {
    lb_toolchain *tc;
    lb_strbuf out = {0};
    assert_ok(lb_toolchain_new(&(lb_target){level, 0}, &tc));
    assert_ok(lb_toolchain_assembly(tc, text, &out));
    assert_int_equal(strstr(out.data, "zmm") != NULL, level == LB_LEVEL_V4);
    assert_int_equal(strstr(out.data, "ymm") != NULL, level == LB_LEVEL_V3);
    lb_strbuf_fini(&out);
    lb_toolchain_free(tc);
  }
}

static lb_span span_of(const char *text) {
  return (lb_span){(const uint8_t *)text, strlen(text)};
}

static void spills_are_counted_by_size_and_loop(void **state) {
  (void)state;
  uint32_t all, loops;
  lb_inspect_spills(span_of("f:\n"
                            "# %bb.0:\n"
                            "  movq %rax, 8(%rsp) # 8-byte Spill\n"
                            "  vmovups %zmm0, 64(%rsp) # 64-byte Spill\n"
                            ".LBB0_1: # %b1\n"
                            "  # =>This Inner Loop Header: Depth=1\n"
                            "  vmovups %ymm0, 64(%rsp) # 32-byte Spill\n"
                            "  vaddps 64(%rsp), %zmm0 # 64-byte Folded Reload\n"
                            "# %bb.2:\n"
                            "  #   in Loop: Header=BB0_1 Depth=1\n"
                            "  vmovups %ymm0, 64(%rsp) # 32-byte Folded Spill\n"
                            ".LBB0_3:\n"
                            "  vmovups %xmm0, 64(%rsp) # 16-byte Spill"),
                    &all, &loops);
  assert_int_equal(all, 3);
  assert_int_equal(loops, 3);
}

static void spills_around_inner_loops_are_not_in_loops(void **state) {
  (void)state;
  uint32_t all, loops;
  lb_inspect_spills(span_of("f:\n"
                            ".LBB0_1: # %b1\n"
                            "  # =>This Loop Header: Depth=1\n"
                            "  #     Child Loop BB0_12 Depth 2\n"
                            "  vmovups %ymm0, 64(%rsp) # 32-byte Spill\n"
                            ".LBB0_12: # %b2\n"
                            "  #   Parent Loop BB0_1 Depth=1\n"
                            "  # =>  This Inner Loop Header: Depth=2\n"
                            "  vmovups 64(%rsp), %xmm0 # 16-byte Reload\n"
                            "# %bb.3: # in Loop: Header=BB0_1 Depth=1\n"
                            "  vmovups %zmm0, 64(%rsp) # 64-byte Spill\n"
                            "  vmovups 64(%rsp), %zmm0 # 64-byte Reload\n"
                            "# %bb.4: # in Loop: Header=BB0_12 Depth=2\n"
                            "  vmovups %zmm0, 64(%rsp) # 64-byte Spill\n"),
                    &all, &loops);
  assert_int_equal(all, 3);
  assert_int_equal(loops, 1);
}

// vmovups %zmm0, 64(%rsp); vmovups %ymm0, 288(%rsp); vmovups %xmm0, (%rsp)
static void stores_beyond_local_memory_may_be_spills(void **state) {
  (void)state;
  static const uint8_t code[] = {
      0x62, 0xf1, 0x7c, 0x48, 0x11, 0x44, 0x24, 0x01,        //
      0xc5, 0xfc, 0x11, 0x84, 0x24, 0x20, 0x01, 0x00, 0x00,  //
      0xc5, 0xf8, 0x11, 0x04, 0x24, 0xc3, 0x90, 0x90, 0x90};
  lb_span all = {code, sizeof code}, one = {code, 8 + 2};
  assert_true(lb_inspect_may_spill(all, 255));
  assert_false(lb_inspect_may_spill(all, 256));
  assert_true(lb_inspect_may_spill((lb_span){code, 12}, 63));
  assert_false(lb_inspect_may_spill(one, 0));  // truncated
}

// Loads n vectors, then stores them: all are live at once.
static uint32_t spills_of(int n) {
  lb_toolchain *tc;
  lb_strbuf text = {0};
  lb_blob object;
  lb_compile_stats stats = {.check_spills = true};
  lb_strbuf_puts(&text, "define void @f(ptr %p) {\n");
  for (int i = 0; i < n; i++)
    lb_strbuf_printf(&text, "  %%x%d = load volatile <8 x float>, ptr %%p\n",
                     i);
  for (int i = 0; i < n; i++)
    lb_strbuf_printf(&text, "  store volatile <8 x float> %%x%d, ptr %%p\n", i);
  lb_strbuf_puts(&text, "  ret void\n}\n");
  assert_ok(lb_toolchain_new(&v3, &tc));
  assert_ok(lb_toolchain_compile(tc, lb_strbuf_str(&text), &object, &stats));
  lb_blob_fini(&object);
  lb_strbuf_fini(&text);
  lb_toolchain_free(tc);
  return stats.vector_spills;
}

static void vectors_beyond_the_registers_count_as_spills(void **state) {
  (void)state;
  assert_int_equal(spills_of(16), 0);
  assert_true(spills_of(20) >= 4);
}

static void invalid_objects_are_rejected(void **state) {
  (void)state;
  assert_error(lb_inspect_object(span_of("garbage")), LB_INTERNAL,
               "not an ELF");
}

// -- threads -----------------------------------------------------------------

static void *compile_some(void *arg) {
  (void)arg;
  for (int i = 0; i < 5; i++) {
    lb_blob object;
    assert_ok(compile(&v3, "define void @f() {\n  ret void\n}\n", &object));
    lb_blob_fini(&object);
  }
  return NULL;
}

static void toolchains_work_concurrently(void **state) {
  (void)state;
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, compile_some, NULL), 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_object_is_elf_and_needs_nothing),
      cmocka_unit_test(errors_in_the_text_name_the_line),
      cmocka_unit_test(undefined_symbols_are_named),
      cmocka_unit_test(targets_below_v3_or_unknown_are_rejected),
      cmocka_unit_test(levels_and_features_reach_the_code),
      cmocka_unit_test(spills_are_counted_by_size_and_loop),
      cmocka_unit_test(spills_around_inner_loops_are_not_in_loops),
      cmocka_unit_test(stores_beyond_local_memory_may_be_spills),
      cmocka_unit_test(vectors_beyond_the_registers_count_as_spills),
      cmocka_unit_test(invalid_objects_are_rejected),
      cmocka_unit_test(toolchains_work_concurrently),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
