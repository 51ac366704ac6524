// device/cpu/pack.h -- kernels that are built into the library.
//
// A *pack* holds kernels for one x86-64 level, compiled at build time
// (jit/pack). It consists of a header, entries sorted by the hash of their
// spec, the bytes of the specs, and code elsewhere. All positions are relative
// to the header, so loading the library relocates nothing in it: its pages are
// shared by all processes, and an unused pack costs nothing.
#ifndef LB_DEVICE_CPU_PACK_H
#define LB_DEVICE_CPU_PACK_H

#include "device/launch.h"

#define LB_PACK_MAGIC UINT64_C(0x31304b4341504c)  // "LPACK01"

typedef struct lb_pack_entry {
  uint64_t hash;  // of the spec's bytes
  uint32_t spec;  // offset of these bytes from the header
  uint32_t code;  // offset of the function from the start of the code
  lb_facts facts;
} lb_pack_entry;

typedef struct lb_pack {  // the header
  uint64_t magic;
  uint32_t n;
  int32_t code;  // offset of the code from the header
} lb_pack;

// The n entries follow the header, and the bytes of the specs follow the
// entries.
static inline const lb_pack_entry *lb_pack_entries(const lb_pack *p) {
  return (const lb_pack_entry *)(p + 1);
}

// Finds the best kernel for `spec` where `facts` hold: one that assumes no more
// than they say, with choices (tile sizes) closest to theirs. NULL if there is
// none.
lb_kernel_fn *lb_pack_find(const lb_pack *p, const lb_spec *spec,
                           const lb_facts *facts);

#endif
