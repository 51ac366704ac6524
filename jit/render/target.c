// render/target.c -- asks the processor what it can do.
#include "render/target.h"

#include <cpuid.h>
#include <stddef.h>

static const char *const names[LB_FEATURE_COUNT] = {
#define X(id, text) [LB_FEATURE_##id] = text,
    LB_FEATURES(X)
#undef X
};

// Where cpuid tells: leaf 7 and its subleaf, or leaf 1, 0x80000001.
typedef struct place {
  uint32_t leaf, sub;
  enum { EAX, EBX, ECX, EDX } reg;
  uint32_t bit;
} place;

static const place places[LB_FEATURE_COUNT] = {
    [LB_FEATURE_AVXVNNI] = {7, 1, EAX, 4},
    [LB_FEATURE_AVX512VNNI] = {7, 0, ECX, 11},
    [LB_FEATURE_AVX512BF16] = {7, 1, EAX, 5},
    [LB_FEATURE_AVX512FP16] = {7, 0, EDX, 23},
    [LB_FEATURE_AVX512VBMI] = {7, 0, ECX, 1},
    [LB_FEATURE_AVX512VBMI2] = {7, 0, ECX, 6},
    [LB_FEATURE_AMX_TILE] = {7, 0, EDX, 24},
    [LB_FEATURE_AMX_INT8] = {7, 0, EDX, 25},
    [LB_FEATURE_AMX_BF16] = {7, 0, EDX, 22},
};

static const place v3[] = {
    {1, 0, ECX, 12},         {1, 0, ECX, 22},          // FMA, MOVBE
    {1, 0, ECX, 28},         {1, 0, ECX, 29},          // AVX, F16C
    {1, 0, ECX, 20},         {1, 0, ECX, 23},          // SSE4.2, POPCNT
    {7, 0, EBX, 3},          {7, 0, EBX, 5},           // BMI1, AVX2
    {7, 0, EBX, 8},          {0x80000001, 0, ECX, 5},  // BMI2, LZCNT
    {0x80000001, 0, ECX, 0},                           // LAHF
};
static const place v4[] = {
    {7, 0, EBX, 16}, {7, 0, EBX, 17}, {7, 0, EBX, 28},  // F, DQ, CD
    {7, 0, EBX, 30}, {7, 0, EBX, 31},                   // BW, VL
};

static bool can(place p) {
  uint32_t r[4] = {0};
  if (!__get_cpuid_count(p.leaf, p.sub, &r[EAX], &r[EBX], &r[ECX], &r[EDX]))
    return false;
  return (r[p.reg] >> p.bit & 1u) != 0;
}

static bool can_all(const place *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!can(p[i])) return false;
  return true;
}

// Which registers the operating system saves: bits of XCR0.
static uint32_t saved_registers(void) {
  if (!can((place){1, 0, ECX, 27})) return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static bool needs_v4(lb_feature f) {
  return f != LB_FEATURE_AVXVNNI && f < LB_FEATURE_AMX_TILE;
}

lb_status lb_target_host(lb_target *out) {
  enum { AVX = 0x6, AVX512 = 0xe6, AMX = 0x60000 };
  uint32_t saved = saved_registers();
  *out = (lb_target){0};
  if ((saved & AVX) != AVX || !can_all(v3, sizeof v3 / sizeof *v3))
    return lb_error(LB_UNSUPPORTED,
                    "this processor is below x86-64-v3: no kernels for it");
  out->level = LB_LEVEL_V3;
  if ((saved & AVX512) == AVX512 && can_all(v4, sizeof v4 / sizeof *v4))
    out->level = LB_LEVEL_V4;
  for (lb_feature f = 0; f < LB_FEATURE_COUNT; f++) {
    if (needs_v4(f) && out->level < LB_LEVEL_V4) continue;
    if (f >= LB_FEATURE_AMX_TILE && (saved & AMX) != AMX) continue;
    if (can(places[f])) out->features |= 1u << f;
  }
  return LB_OK;
}

lb_status lb_target_check(const lb_target *t) {
  if (t->level != LB_LEVEL_V3 && t->level != LB_LEVEL_V4)
    return lb_error(LB_UNSUPPORTED,
                    "no kernels for x86-64-v%u: levels are 3 and 4", t->level);
  if (t->features >> LB_FEATURE_COUNT)
    return lb_error(LB_UNSUPPORTED, "unknown features 0x%x", t->features);
  for (lb_feature f = 0; f < LB_FEATURE_COUNT; f++)
    if (t->level < LB_LEVEL_V4 && needs_v4(f) && lb_target_has(t, f))
      return lb_error(LB_UNSUPPORTED, "x86-64-v3 has no %s", names[f]);
  return LB_OK;
}

const char *lb_feature_name(lb_feature f) { return names[f]; }
