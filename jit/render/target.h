// render/target.h -- what machine code is made for: an instruction-set level
// and what the processor can do beyond it.
//
// Plain data: copied, compared and hashed as it lies.
#ifndef LB_RENDER_TARGET_H
#define LB_RENDER_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

// Levels are those of the x86-64 ABI. Below 3 there is no FMA and no half
// conversion: such machines run the host's operators.
#define LB_LEVEL_V3 3
#define LB_LEVEL_V4 4

//       name, LLVM's name
#define LB_FEATURES(X)          \
  X(AVXVNNI, "avxvnni")         \
  X(AVX512VNNI, "avx512vnni")   \
  X(AVX512BF16, "avx512bf16")   \
  X(AVX512FP16, "avx512fp16")   \
  X(AVX512VBMI, "avx512vbmi")   \
  X(AVX512VBMI2, "avx512vbmi2") \
  X(AMX_TILE, "amx-tile")       \
  X(AMX_INT8, "amx-int8")       \
  X(AMX_BF16, "amx-bf16")

typedef enum lb_feature {
#define X(id, text) LB_FEATURE_##id,
  LB_FEATURES(X)
#undef X
      LB_FEATURE_COUNT
} lb_feature;

typedef struct lb_target {
  uint32_t level;     // LB_LEVEL_V3 or LB_LEVEL_V4
  uint32_t features;  // 1 << lb_feature
} lb_target;

static inline bool lb_target_has(const lb_target *t, lb_feature f) {
  return (t->features >> f & 1u) != 0;
}

// This machine, as far as its operating system lets it be used; LB_UNSUPPORTED
// below level 3.
lb_status lb_target_host(lb_target *out);

// LB_UNSUPPORTED unless the level is one of the above and the features are
// such as the level can have.
lb_status lb_target_check(const lb_target *t);

const char *lb_feature_name(lb_feature f);  // LLVM's: "avx512vnni"

#endif
