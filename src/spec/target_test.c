// spec/target_test.c -- levels and features of recorded processors.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "spec/target.h"

// What cpuid of a processor returns; leaves that are not listed return 0.
typedef struct machine {
  lb_cpuid id;
  uint64_t xcr0;
  struct {
    uint32_t leaf, sub, regs[4];
  } rows[16];
} machine;

static void machine_read(const lb_cpuid *self, uint32_t leaf, uint32_t sub,
                         uint32_t out[4]) {
  const machine *m = (const machine *)self;
  memset(out, 0, 4 * sizeof *out);
  for (size_t i = 0; i < sizeof m->rows / sizeof m->rows[0]; i++) {
    if (m->rows[i].leaf != leaf || m->rows[i].sub != sub) continue;
    memcpy(out, m->rows[i].regs, sizeof m->rows[i].regs);
    break;
  }
}

static uint64_t machine_xcr0(const lb_cpuid *self) {
  return ((const machine *)self)->xcr0;
}

#define MACHINE \
  { .read = machine_read, .xcr0 = machine_xcr0 }

// An EPYC of 2022.
static const machine zen4 = {
    .id = MACHINE,
    .xcr0 = 0x2E7,
    .rows = {{0, 0, {0x10, 0x68747541, 0x444D4163, 0x69746E65}},
             {1, 0, {0xA10F11, 0, 0x7EFA320B, 0}},
             {7, 0, {1, 0xF1BF97A9, 0x405FCE, 0x10000010}},
             {7, 1, {0x20, 0, 0, 0}},
             {0x80000000, 0, {0x80000028, 0, 0, 0}},
             {0x80000001, 0, {0, 0, 0x75C237FF, 0}},
             {0x8000001D, 0, {0x121, 0x1C0003F, 63, 0}},
             {0x8000001D, 1, {0x122, 0x1C0003F, 63, 0}},
             {0x8000001D, 2, {0x143, 0x1C0003F, 2047, 0}},
             {0x8000001D, 3, {0x163, 0x3C0003F, 32767, 0}}}};

// A server with AMX.
static const machine sapphire = {
    .id = MACHINE,
    .xcr0 = 0x602E7,
    .rows = {{0, 0, {0x20, 0, 0, 0}},
             {1, 0, {0, 0, 0x7FFEFBFF, 0}},
             {4, 0, {0x121, 0x2C0003F, 63, 0}},
             {4, 1, {0x122, 0x1C0003F, 63, 0}},
             {4, 2, {0x143, 0x3C0003F, 2047, 0}},
             {4, 3, {0x163, 0x4C0003F, 114687, 0}},
             {7, 0, {1, 0xF3BFBFFB, 0xFB417FFE, 0xFFDD4432}},
             {7, 1, {0x1C30, 0, 0, 0}},
             {0x80000000, 0, {0x80000008, 0, 0, 0}},
             {0x80000001, 0, {0, 0, 0x121, 0}}}};

static const machine haswell = {.id = MACHINE,
                                .xcr0 = 0x7,
                                .rows = {{0, 0, {0xD, 0, 0, 0}},
                                         {1, 0, {0, 0, 0x7FFAFBFF, 0}},
                                         {7, 0, {0, 0x27AB, 0, 0}},
                                         {0x80000000, 0, {0x80000008, 0, 0, 0}},
                                         {0x80000001, 0, {0, 0, 0x21, 0}}}};

static lb_target target_of(const machine *m) { return lb_cpuid_target(&m->id); }

static void assert_prints(lb_target t, const char *text) {
  lb_strbuf s = {0};
  lb_target_print(&t, &s);
  assert_string_equal(lb_strbuf_str(&s), text);
  lb_strbuf_fini(&s);
}

static void processors_have_their_level_and_features(void **state) {
  (void)state;
  assert_prints(target_of(&zen4), "x86-64-v4+avx512vbmi+avx512vnni+avx512bf16");
  assert_prints(target_of(&sapphire),
                "x86-64-v4+avxvnni+avx512vbmi+avx512vnni+avx512bf16+"
                "avx512fp16+amx-tile+amx-int8+amx-bf16");
  assert_prints(target_of(&haswell), "x86-64-v3");
  machine none = {.id = MACHINE};
  assert_prints(target_of(&none), "x86-64-v1");
}

static void features_need_registers_that_the_os_saves(void **state) {
  (void)state;
  machine m = sapphire;
  m.xcr0 = 0x2E7;  // no tiles
  assert_int_equal(target_of(&m).level, LB_LEVEL_V4);
  lb_target t = target_of(&m);
  assert_false(lb_target_has(&t, LB_FEATURE_AMX_TILE));
  assert_true(lb_target_has(&t, LB_FEATURE_AVX512VNNI));
  m.xcr0 = 0x27;  // opmasks, not the upper halves
  assert_prints(target_of(&m), "x86-64-v3+avxvnni");
  m.xcr0 = 0x3;
  assert_prints(target_of(&m), "x86-64-v2");
  m.xcr0 = 0x602E7;
  m.rows[1].regs[2] &= ~(UINT32_C(1) << 27);  // xgetbv would trap
  assert_prints(target_of(&m), "x86-64-v2");
}

static void one_missing_feature_lowers_the_level(void **state) {
  (void)state;
  machine m = zen4;
  m.rows[2].regs[1] &= ~(UINT32_C(1) << 31);  // avx512vl
  assert_prints(target_of(&m), "x86-64-v3");
  m.rows[5].regs[2] &= ~(UINT32_C(1) << 5);  // lzcnt
  assert_prints(target_of(&m), "x86-64-v2");
  m.rows[1].regs[2] &= ~(UINT32_C(1) << 23);  // popcnt
  assert_prints(target_of(&m), "x86-64-v1");
}

static void leaves_past_the_last_are_ignored(void **state) {
  (void)state;
  machine m = zen4;
  m.rows[0].regs[0] = 6;
  assert_prints(target_of(&m), "x86-64-v2");
}

static void caches_have_their_sizes(void **state) {
  (void)state;
  lb_host_caches c = lb_cpuid_caches(&zen4.id);
  assert_int_equal(c.l1d, 32 << 10);
  assert_int_equal(c.l2, 1 << 20);
  assert_int_equal(c.l3, 32 << 20);
  c = lb_cpuid_caches(&sapphire.id);
  assert_int_equal(c.l1d, 48 << 10);
  assert_int_equal(c.l2, 2 << 20);
  assert_int_equal(c.l3, 140 << 20);
  c = lb_cpuid_caches(&haswell.id);
  assert_int_equal(c.l1d + c.l2 + c.l3, 0);
}

static void a_model_is_vendor_and_signature(void **state) {
  (void)state;
  assert_string_equal(lb_cpuid_model(&zen4.id).text, "AuthenticAMD 00a10f11");
  assert_string_equal(lb_cpuid_model(&haswell.id).text, " 00000000");
}

static lb_target restricted(const machine *m, const char *text) {
  lb_target t = target_of(m);
  lb_status st = lb_target_restrict(&t, text);
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
  return t;
}

static void restrictions_only_remove_features(void **state) {
  (void)state;
  assert_prints(restricted(&zen4, "x86-64-v3"), "x86-64-v3");
  assert_prints(restricted(&zen4, "x86-64-v1"), "x86-64-v1");
  assert_prints(restricted(&zen4, "x86-64-v4"), "x86-64-v4");
  assert_prints(restricted(&zen4, "x86-64-v4+avx512vnni+amx-tile"),
                "x86-64-v4+avx512vnni");
  assert_prints(restricted(&haswell, "x86-64-v4+avx512vnni"), "x86-64-v3");
  assert_prints(restricted(&sapphire, "x86-64-v3+avxvnni"),
                "x86-64-v3+avxvnni");
  assert_prints(restricted(&haswell, "native"), "x86-64-v3");
}

static void errors_of_unknown_names_list_the_known_ones(void **state) {
  (void)state;
  static const char *const wrong[] = {"",
                                      "x86-64-v5",
                                      "x86-64",
                                      "avx2",
                                      "X86-64-V3",
                                      "x86-64-v4+",
                                      "x86-64-v4+sse9",
                                      "x86-64-v4++avx512vnni",
                                      "native+avxvnni"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    lb_target t = target_of(&zen4), before = t;
    lb_status st = lb_target_restrict(&t, wrong[i]);
    assert_int_equal(lb_status_code(st), LB_INVALID);
    assert_non_null(strstr(lb_status_message(st), "x86-64-v3"));
    assert_non_null(strstr(lb_status_message(st), "amx-bf16"));
    assert_int_equal(t.level, before.level);
    assert_int_equal(t.features, before.features);
    lb_status_drop(st);
  }
  lb_target t = target_of(&zen4);
  lb_status st = lb_target_restrict(&t, "x86-64-v3+avx512vnni");
  assert_int_equal(lb_status_code(st), LB_INVALID);
  assert_non_null(strstr(lb_status_message(st), "needs x86-64-v4"));
  lb_status_drop(st);
}

static void this_machine_agrees_with_the_compiler(void **state) {
  (void)state;
#if defined(__x86_64__)
  lb_target t = lb_target_host();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi2");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") &&
            __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq");
  assert_int_equal(t.level >= LB_LEVEL_V3, v3);
  assert_int_equal(t.level >= LB_LEVEL_V4, v4);
  assert_int_equal(lb_target_has(&t, LB_FEATURE_AVX512VNNI),
                   v4 && __builtin_cpu_supports("avx512vnni"));
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(processors_have_their_level_and_features),
      cmocka_unit_test(features_need_registers_that_the_os_saves),
      cmocka_unit_test(one_missing_feature_lowers_the_level),
      cmocka_unit_test(leaves_past_the_last_are_ignored),
      cmocka_unit_test(caches_have_their_sizes),
      cmocka_unit_test(a_model_is_vendor_and_signature),
      cmocka_unit_test(restrictions_only_remove_features),
      cmocka_unit_test(errors_of_unknown_names_list_the_known_ones),
      cmocka_unit_test(this_machine_agrees_with_the_compiler),
  };
  return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
