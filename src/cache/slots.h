// cache/slots.h -- where the best kernel known now is published.
//
// One slot per (spec, facts), interned process-wide: plans hold slots, not
// kernels. A slot's kernel changes by one atomic store; whoever runs a step
// loads it once. Slots and their kernels live as long as the table.
#ifndef LB_CACHE_SLOTS_H
#define LB_CACHE_SLOTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "spec/spec.h"

typedef void lb_kernel_fn(const uint64_t *args);

typedef struct lb_slot_key {
  lb_spec spec;
  lb_facts facts;
} lb_slot_key;

typedef struct lb_slot {
  lb_slot_key key;                 // unused bytes zero
  _Atomic(lb_kernel_fn *) kernel;  // NULL: none yet
  atomic_int failed;               // 1: compiling it was given up
} lb_slot;

typedef struct lb_slots {
  pthread_mutex_t lock;
  lb_map map;      // lb_slot_key -> lb_slot, owned
  uint32_t lanes;  // float32 in a vector of the target: for lb_facts_of
} lb_slots;

lb_status lb_slots_init(lb_slots *s, uint32_t lanes);
void lb_slots_fini(lb_slots *s);

// The slot of that key, made if new.
lb_status lb_slots_intern(lb_slots *s, const lb_spec *spec,
                          const lb_facts *facts, lb_slot **out);

size_t lb_slots_count(lb_slots *s);
// The i-th slot in order of making, or NULL.
lb_slot *lb_slots_at(lb_slots *s, size_t i);

static inline lb_kernel_fn *lb_slot_kernel(const lb_slot *s) {
  return atomic_load_explicit(&s->kernel, memory_order_acquire);
}
static inline void lb_slot_publish(lb_slot *s, lb_kernel_fn *kernel) {
  atomic_store_explicit(&s->kernel, kernel, memory_order_release);
}

#endif
