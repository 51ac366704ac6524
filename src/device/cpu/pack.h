// device/cpu/pack.h -- kernels that are in the library from the beginning.
//
// A *pack* holds the kernels of one level, made at build time (jit/pack). It is
// a head, entries sorted by the hash of their spec, the bytes of the specs, and
// code elsewhere. Nothing in it is relocated when the library is loaded: where
// things are is said relative to the head. So its pages are shared by all
// processes, and one that is not used costs nothing.
#ifndef LB_DEVICE_CPU_PACK_H
#define LB_DEVICE_CPU_PACK_H

#include "device/launch.h"

#define LB_PACK_MAGIC UINT64_C(0x31304b4341504c)  // "LPACK01"

typedef struct lb_pack_entry {
  uint64_t hash;  // of the spec's bytes
  uint32_t spec;  // bytes from the head to them
  uint32_t code;  // bytes from the beginning of the code to the function
  lb_facts facts;
} lb_pack_entry;

typedef struct lb_pack {  // the head
  uint64_t magic;
  uint32_t n;
  int32_t code;  // bytes from the head to the code
} lb_pack;

// n of them follow the head, and the specs' bytes follow them.
static inline const lb_pack_entry *lb_pack_entries(const lb_pack *p) {
  return (const lb_pack_entry *)(p + 1);
}

// The kernel of that spec that is best where `facts` hold: it assumes no more
// than they say, and was told to be written as they say, or nearly. NULL if
// there is none.
lb_kernel_fn *lb_pack_find(const lb_pack *p, const lb_spec *spec,
                           const lb_facts *facts);

#endif
