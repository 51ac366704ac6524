// device/cpu/isa.h -- which instructions kernels may use here.
//
// A *level* is one of x86-64-v1 to v4; *extras* are features on top of it that
// some kernels know. What counts is the processor and the system together:
// registers that the system does not save are not there.
#ifndef LB_DEVICE_CPU_ISA_H
#define LB_DEVICE_CPU_ISA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

typedef enum lb_isa_level {
  LB_ISA_V1,  // also: not an x86-64 processor
  LB_ISA_V2,
  LB_ISA_V3,  // AVX2, FMA
  LB_ISA_V4,  // AVX-512 F, BW, CD, DQ, VL
  LB_ISA_LEVELS,
} lb_isa_level;

typedef enum lb_isa_extra {
#define LB_ISA_NEED(...)
#define LB_ISA_EXTRA(ID, ...) LB_ISA_##ID,
#include "device/cpu/isa.def"
  LB_ISA_EXTRAS,
} lb_isa_extra;

typedef struct lb_isa {
  lb_isa_level level;
  uint32_t extras;  // bit i: the lb_isa_extra of that value
} lb_isa;

// Data caches of one processor, in bytes; 0 where it does not say. l3 is what
// it shares with others. Good for choices of speed, never part of a key.
typedef struct lb_isa_caches {
  size_t l1d, l2, l3;
} lb_isa_caches;

lb_isa lb_isa_host(void);
lb_isa_caches lb_isa_host_caches(void);

// Which kind of processor this is, "AuthenticAMD 00a10f11": what was measured
// on one holds for all of its kind. Never part of a key.
typedef struct lb_isa_kind {
  char text[32];
} lb_isa_kind;
lb_isa_kind lb_isa_host_kind(void);

static inline bool lb_isa_has(const lb_isa *isa, lb_isa_extra extra) {
  return isa->extras >> extra & 1;
}

// Takes away from `isa` what `text` does not name: "native" leaves all,
// "x86-64-v3" that level and no extras, "x86-64-v4+avx512vnni" these extras.
// What the machine lacks is not added. LB_INVALID: a name that does not exist,
// with a list of those that do.
lb_status lb_isa_restrict(lb_isa *isa, const char *text);

// In the same words: "x86-64-v4+avx512vnni". Equal sets, equal text.
void lb_isa_print(const lb_isa *isa, lb_strbuf *out);
const char *lb_isa_level_name(lb_isa_level level);  // "x86-64-v3"

// -- for tests --------------------------------------------------------------

// A processor: what cpuid answers in eax, ebx, ecx, edx, and the register xcr0
// (asked only if cpuid says that it can be read).
typedef struct lb_cpuid {
  void (*read)(const struct lb_cpuid *self, uint32_t leaf, uint32_t sub,
               uint32_t out[4]);
  uint64_t (*xcr0)(const struct lb_cpuid *self);
} lb_cpuid;

lb_isa lb_isa_of(const lb_cpuid *id);
lb_isa_caches lb_isa_caches_of(const lb_cpuid *id);
lb_isa_kind lb_isa_kind_of(const lb_cpuid *id);

#endif
