// spec/target.h -- the processor for which machine code is generated.
//
// A target is an instruction-set *level*, x86-64-v1 to v4, and *features* in
// addition to it that some kernels use. It is the only description of a
// processor: selecting facts, lowering, rendering, compiling and loading
// kernels all use it. In keys and messages it is text, "x86-64-v4+avx512vnni".
//
// A feature of this machine counts only if the processor has it and the OS
// saves its registers. Any thread may call.
#ifndef LB_SPEC_TARGET_H
#define LB_SPEC_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

typedef enum lb_level {
  LB_LEVEL_V1 = 1,  // also: not an x86-64 processor
  LB_LEVEL_V2,
  LB_LEVEL_V3,  // AVX2, FMA: the lowest level for which kernels are compiled
  LB_LEVEL_V4,  // AVX-512 F, BW, CD, DQ, VL
} lb_level;

typedef enum lb_feature {
#define LB_LEVEL_NEED(...)
#define LB_TARGET_FEATURE(ID, ...) LB_FEATURE_##ID,
#include "spec/target.def"
  LB_FEATURE_COUNT,
} lb_feature;

typedef struct lb_target {
  lb_level level;
  uint32_t features;  // 1 << lb_feature
} lb_target;

static inline bool lb_target_has(const lb_target *t, lb_feature f) {
  return t->features >> f & 1;
}
static inline bool lb_target_equal(const lb_target *a, const lb_target *b) {
  return a->level == b->level && a->features == b->features;
}
// Float32 elements per vector register: 4, 8 or 16.
static inline uint32_t lb_target_lanes(const lb_target *t) {
  return t->level >= LB_LEVEL_V4 ? 16 : t->level >= LB_LEVEL_V3 ? 8 : 4;
}

lb_target lb_target_host(void);
// Whether code for `t` runs on this machine.
bool lb_target_runs(const lb_target *t);
// LB_UNSUPPORTED unless kernels can be compiled for it: its level must be v3 or
// v4 and allow all of its features.
lb_status lb_target_check(const lb_target *t);

// LB_INVALID for an unknown name (the message lists the known ones) or a
// feature that the level does not allow.
lb_status lb_target_parse(const char *text, lb_target *out);
// Removes everything from `t` that `text` does not name; "native" removes
// nothing. Never adds features. Errors as above.
lb_status lb_target_restrict(lb_target *t, const char *text);
// Prints the text that lb_target_parse reads. Equal targets have equal text.
void lb_target_print(const lb_target *t, lb_strbuf *out);
const char *lb_level_name(lb_level level);  // "x86-64-v3"
// LLVM's name of a feature, "avx512vnni", or NULL if LLVM has none.
const char *lb_feature_llvm(lb_feature f);

// -- other properties of this machine; never part of a key --------------------

// Data caches of one processor, in bytes; 0: not reported. l3 is shared with
// other processors.
typedef struct lb_host_caches {
  size_t l1d, l2, l3;
} lb_host_caches;
lb_host_caches lb_host_caches_get(void);

// The processor model, "AuthenticAMD 00a10f11". Measurements are valid for all
// processors of that model.
typedef struct lb_host_model {
  char text[32];
} lb_host_model;
lb_host_model lb_host_model_get(void);

// -- for tests ----------------------------------------------------------------

// A processor: what cpuid returns in eax, ebx, ecx, edx, and the register XCR0
// (read only if cpuid reports that it is readable).
typedef struct lb_cpuid {
  void (*read)(const struct lb_cpuid *self, uint32_t leaf, uint32_t sub,
               uint32_t out[4]);
  uint64_t (*xcr0)(const struct lb_cpuid *self);
} lb_cpuid;

lb_target lb_cpuid_target(const lb_cpuid *id);
lb_host_caches lb_cpuid_caches(const lb_cpuid *id);
lb_host_model lb_cpuid_model(const lb_cpuid *id);

#endif
