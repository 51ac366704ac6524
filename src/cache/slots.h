// cache/slots.h -- where the best kernel known now is published.
//
// One slot per (spec, facts), interned process-wide: plans hold slots, not
// kernels. A slot begins with the pack's kernel, where the pack has one, and
// gets better ones by one atomic store; whoever runs a step loads it once.
// Slots and their kernels live as long as the table. Any thread may call.
#ifndef LB_CACHE_SLOTS_H
#define LB_CACHE_SLOTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "device/cpu/pack.h"

typedef enum lb_tier {  // where code comes from, worst first
  LB_TIER_HOST,         // no kernel
  LB_TIER_PACK,
  LB_TIER_REUSABLE,
  LB_TIER_SPECIALISED,
  LB_TIER_FUSED,
} lb_tier;
const char *lb_tier_name(lb_tier t);  // "pack"

typedef struct lb_slot_key {
  lb_spec spec;
  lb_facts facts;
} lb_slot_key;

typedef struct lb_slot {
  lb_slot_key key;                 // unused bytes zero
  _Atomic(lb_kernel_fn *) kernel;  // NULL: none yet
  atomic_int tier;                 // lb_tier of the kernel, set after it
  atomic_int failed;               // 1: compiling it was given up
  bool in_pack;                    // it will never be empty
  atomic_bool wanted;              // is worth compiling: not of a cover alone
  // Where the partition's cover begins anew: bit i stands for its node i. 0:
  // not decided yet. See plan/cover.c.
  _Atomic uint64_t cuts;
} lb_slot;

typedef struct lb_slots {
  pthread_mutex_t lock;
  lb_map map;           // lb_slot_key -> lb_slot, owned
  uint32_t lanes;       // float32 in a vector of the target: for lb_facts_of
  const lb_pack *pack;  // borrowed; NULL: there is none
} lb_slots;

lb_status lb_slots_init(lb_slots *s, uint32_t lanes, const lb_pack *pack);
void lb_slots_fini(lb_slots *s);

// The slot of that key, made if new, and wanted from now on.
lb_status lb_slots_intern(lb_slots *s, const lb_spec *spec,
                          const lb_facts *facts, lb_slot **out);
// The same, but only if the pack has a kernel for it: else *out is NULL. It is
// not wanted for that.
lb_status lb_slots_try_pack(lb_slots *s, const lb_spec *spec,
                            const lb_facts *facts, lb_slot **out);

// How many slots are wanted.
size_t lb_slots_wanted(lb_slots *s);
// The i-th slot in order of making, wanted or not, or NULL.
lb_slot *lb_slots_at(lb_slots *s, size_t i);

static inline lb_kernel_fn *lb_slot_kernel(const lb_slot *s) {
  return atomic_load_explicit(&s->kernel, memory_order_acquire);
}
static inline lb_tier lb_slot_tier(const lb_slot *s) {
  return (lb_tier)atomic_load_explicit(&s->tier, memory_order_relaxed);
}
static inline void lb_slot_publish(lb_slot *s, lb_kernel_fn *kernel,
                                   lb_tier tier) {
  atomic_store_explicit(&s->kernel, kernel, memory_order_release);
  atomic_store_explicit(&s->tier, (int)tier, memory_order_relaxed);
}

#endif
