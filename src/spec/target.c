// spec/target.c -- reads targets from cpuid and text, and prints them.
#include "spec/target.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { EAX, EBX, ECX, EDX };

// Bits of XCR0: the register states that the OS saves and restores.
#define STATE_NONE UINT64_C(0)
#define STATE_AVX UINT64_C(0x6)
#define STATE_AVX512 UINT64_C(0xE6)
#define STATE_AMX UINT64_C(0x60000)

typedef struct feature {
  const char *name;
  lb_level level;
  uint32_t leaf, sub;
  int reg, bit;
  uint64_t state;
  bool llvm;  // LLVM has a feature of this name
} feature;

static const feature level_features[] = {
#define LB_LEVEL_NEED(NAME, LEVEL, LEAF, SUB, REG, BIT, STATE) \
  {NAME, LB_LEVEL_##LEVEL, LEAF, SUB, REG, BIT, STATE_##STATE, true},
#define LB_TARGET_FEATURE(...)
#include "spec/target.def"
};

static const feature features[LB_FEATURE_COUNT] = {
#define LB_LEVEL_NEED(...)
#define LB_TARGET_FEATURE(ID, NAME, LEVEL, LEAF, SUB, REG, BIT, STATE, LLVM) \
  [LB_FEATURE_##ID] = {NAME, LB_LEVEL_##LEVEL, LEAF, SUB, REG,               \
                       BIT,  STATE_##STATE,    LLVM},
#include "spec/target.def"
};

static const char *const level_names[LB_LEVEL_V4 + 1] = {
    [LB_LEVEL_V1] = "x86-64-v1",
    [LB_LEVEL_V2] = "x86-64-v2",
    [LB_LEVEL_V3] = "x86-64-v3",
    [LB_LEVEL_V4] = "x86-64-v4",
};

const char *lb_level_name(lb_level level) { return level_names[level]; }

const char *lb_feature_llvm(lb_feature f) {
  return features[f].llvm ? features[f].name : NULL;
}

// -- cpuid --------------------------------------------------------------------

// A leaf past the last one would return another leaf's contents.
static void read_leaf(const lb_cpuid *id, uint32_t leaf, uint32_t sub,
                      uint32_t out[4]) {
  id->read(id, leaf & 0x80000000, 0, out);
  uint32_t last = out[EAX];
  memset(out, 0, 4 * sizeof *out);
  if (leaf <= last) id->read(id, leaf, sub, out);
}

typedef struct target_reader {  // features of one leaf are adjacent in the
                                // tables
  const lb_cpuid *id;
  uint64_t xcr0;
  const feature *last;  // the feature whose leaf is in regs; NULL: none
  uint32_t regs[4];
} target_reader;

static bool has_feature(target_reader *r, const feature *f) {
  if (!r->last || r->last->leaf != f->leaf || r->last->sub != f->sub)
    read_leaf(r->id, f->leaf, f->sub, r->regs);
  r->last = f;
  return r->regs[f->reg] >> f->bit & 1 && (r->xcr0 & f->state) == f->state;
}

lb_target lb_cpuid_target(const lb_cpuid *id) {
  uint32_t regs[4];
  read_leaf(id, 1, 0, regs);
  bool readable = regs[ECX] >> 27 & 1;  // OSXSAVE
  target_reader r = {.id = id, .xcr0 = readable ? id->xcr0(id) : 0};
  lb_target t = {.level = LB_LEVEL_V4};
  for (size_t i = 0; i < sizeof level_features / sizeof level_features[0]; i++)
    if (t.level >= level_features[i].level &&
        !has_feature(&r, &level_features[i]))
      t.level = level_features[i].level - 1;
  for (int i = 0; i < LB_FEATURE_COUNT; i++)
    if (t.level >= features[i].level && has_feature(&r, &features[i]))
      t.features |= UINT32_C(1) << i;
  return t;
}

// Intel reports caches in leaf 4, AMD in another leaf of the same format.
static uint32_t cache_leaf(const lb_cpuid *id) {
  uint32_t regs[4];
  read_leaf(id, 0x80000001, 0, regs);
  bool amd = regs[ECX] >> 22 & 1;
  return amd ? 0x8000001D : 4;
}

lb_host_caches lb_cpuid_caches(const lb_cpuid *id) {
  enum { END = 0, DATA = 1, UNIFIED = 3 };
  lb_host_caches c = {0};
  uint32_t leaf = cache_leaf(id);
  for (uint32_t i = 0; i < 16; i++) {
    uint32_t r[4];
    read_leaf(id, leaf, i, r);
    uint32_t type = r[EAX] & 31, level = r[EAX] >> 5 & 7;
    size_t ways = (r[EBX] >> 22) + 1, parts = (r[EBX] >> 12 & 1023) + 1;
    size_t line = (r[EBX] & 4095) + 1, sets = (size_t)r[ECX] + 1;
    if (type == END) break;
    if (type != DATA && type != UNIFIED) continue;
    size_t bytes = ways * parts * line * sets;
    if (level == 1) c.l1d = bytes;
    if (level == 2) c.l2 = bytes;
    if (level == 3) c.l3 = bytes;
  }
  return c;
}

lb_host_model lb_cpuid_model(const lb_cpuid *id) {
  lb_host_model model;
  uint32_t r[4];
  char vendor[13] = "";
  id->read(id, 0, 0, r);
  memcpy(vendor, &r[EBX], 4);
  memcpy(vendor + 4, &r[EDX], 4);
  memcpy(vendor + 8, &r[ECX], 4);
  read_leaf(id, 1, 0, r);
  snprintf(model.text, sizeof model.text, "%s %08" PRIx32, vendor, r[EAX]);
  return model;
}

static void host_read(const lb_cpuid *self, uint32_t leaf, uint32_t sub,
                      uint32_t out[4]) {
  (void)self;
#if defined(__x86_64__)
  __cpuid_count(leaf, sub, out[EAX], out[EBX], out[ECX], out[EDX]);
#else
  (void)leaf, (void)sub;
  memset(out, 0, 4 * sizeof *out);
#endif
}

static uint64_t host_xcr0(const lb_cpuid *self) {
  (void)self;
  uint32_t low = 0, high = 0;
#if defined(__x86_64__)
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
#endif
  return (uint64_t)high << 32 | low;
}

static const lb_cpuid host = {.read = host_read, .xcr0 = host_xcr0};

// In a virtual machine each cpuid takes microseconds, so it is read once per
// process. There is one processor, so this state belongs to no object.
static struct {
  lb_target target;
  lb_host_caches caches;
  lb_host_model model;
} here;

static void read_host(void) {
  here.target = lb_cpuid_target(&host);
  here.caches = lb_cpuid_caches(&host);
  here.model = lb_cpuid_model(&host);
}

static void init_host(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_host);
}

lb_target lb_target_host(void) {
  init_host();
  return here.target;
}

lb_host_caches lb_host_caches_get(void) {
  init_host();
  return here.caches;
}

lb_host_model lb_host_model_get(void) {
  init_host();
  return here.model;
}

bool lb_target_runs(const lb_target *t) {
  lb_target h = lb_target_host();
  return t->level <= h.level && !(t->features & ~h.features);
}

lb_status lb_target_check(const lb_target *t) {
  if (t->level != LB_LEVEL_V3 && t->level != LB_LEVEL_V4)
    return lb_error(LB_UNSUPPORTED,
                    "no kernels for x86-64-v%d: kernels need x86-64-v3 "
                    "or x86-64-v4",
                    (int)t->level);
  if (t->features >> LB_FEATURE_COUNT)
    return lb_error(LB_UNSUPPORTED, "unknown features 0x%x", t->features);
  for (int i = 0; i < LB_FEATURE_COUNT; i++)
    if (t->level < features[i].level && lb_target_has(t, (lb_feature)i))
      return lb_error(LB_UNSUPPORTED, "%s has no %s", level_names[t->level],
                      features[i].name);
  return LB_OK;
}

// -- text -------------------------------------------------------------------

static bool is_word(const char *text, size_t len, const char *word) {
  return strlen(word) == len && memcmp(text, word, len) == 0;
}

static lb_status unknown_name(const char *text, size_t len) {
  lb_strbuf known = {0};
  for (int i = LB_LEVEL_V1; i <= LB_LEVEL_V4; i++)
    lb_strbuf_printf(&known, "%s, ", level_names[i]);
  lb_strbuf_puts(&known, "and after a '+' ");
  for (int i = 0; i < LB_FEATURE_COUNT; i++)
    lb_strbuf_printf(&known, "%s%s", i ? ", " : "", features[i].name);
  lb_status st =
      lb_error(LB_INVALID,
               "unknown instruction set '%.*s'; known names are native, "
               "%s",
               (int)(len < 64 ? len : 64), text, lb_strbuf_str(&known));
  lb_strbuf_fini(&known);
  return st;
}

static lb_status find_level(const char *text, size_t len, lb_level *out) {
  for (int i = LB_LEVEL_V1; i <= LB_LEVEL_V4; i++) {
    *out = (lb_level)i;
    if (is_word(text, len, level_names[i])) return LB_OK;
  }
  return unknown_name(text, len);
}

static lb_status find_feature(const char *text, size_t len, lb_level level,
                              uint32_t *out) {
  for (int i = 0; i < LB_FEATURE_COUNT; i++) {
    if (!is_word(text, len, features[i].name)) continue;
    if (features[i].level > level)
      return lb_error(LB_INVALID, "instruction set: %s needs %s, not %s",
                      features[i].name, level_names[features[i].level],
                      level_names[level]);
    *out |= UINT32_C(1) << i;
    return LB_OK;
  }
  return unknown_name(text, len);
}

lb_status lb_target_parse(const char *text, lb_target *out) {
  size_t len = strcspn(text, "+");
  *out = (lb_target){0};
  LB_TRY(find_level(text, len, &out->level));
  for (const char *p = text + len; *p; p += len) {
    len = strcspn(++p, "+");
    LB_TRY(find_feature(p, len, out->level, &out->features));
  }
  return LB_OK;
}

lb_status lb_target_restrict(lb_target *t, const char *text) {
  lb_target only;
  if (strcmp(text, "native") == 0) return LB_OK;
  LB_TRY(lb_target_parse(text, &only));
  if (t->level > only.level) t->level = only.level;
  t->features &= only.features;
  return LB_OK;
}

void lb_target_print(const lb_target *t, lb_strbuf *out) {
  lb_strbuf_puts(out, level_names[t->level]);
  for (int i = 0; i < LB_FEATURE_COUNT; i++)
    if (lb_target_has(t, (lb_feature)i))
      lb_strbuf_printf(out, "+%s", features[i].name);
}
