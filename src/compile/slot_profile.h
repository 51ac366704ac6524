// compile/slot_profile.h -- what the service knows of a slot: what runs told of
// it, and how far its compilation is.
//
// A slot has a profile from when the service first meets it, for as long as its
// table lives (lb_slots_attach). Runs write to it without a lock, and all but
// `next` is counted with no order.
#ifndef LB_COMPILE_SLOT_PROFILE_H
#define LB_COMPILE_SLOT_PROFILE_H

#include "cache/slots.h"

typedef struct lb_slot_profile {
  _Atomic(lb_slot *) next;        // in the stack of those asked for
  atomic_bool asked;              // it is there, or in the queue, or in work
  atomic_int urgent;              // somebody waits for it; the more, the more
  atomic_uint seen;               // runs that met it
  atomic_uint compile_threshold;  // the fewest that a session asks for before
                                  // it is compiled; 0: none has said
  _Atomic uint64_t run;           // the last of these
  atomic_uint session;            // whose run that was
  _Atomic uint64_t ns;            // that all of them spent in its step
  _Atomic uint64_t made;          // number of the job that made it last
  _Atomic int64_t rest_until;     // it is left alone until then
  atomic_bool large;              // because there was no room for it
  // Of the thread that compiles.
  int failures;    // of the worker at this slot
  bool looked;     // for it on disk
  bool judged;     // a kernel of it was on trial, and kept
  uint64_t place;  // in the order of coming
} lb_slot_profile;

// NULL: the service has not met it. What is in the queue has one.
static inline lb_slot_profile *lb_slot_profile_of(const lb_slot *slot) {
  return atomic_load_explicit(&slot->profile, memory_order_acquire);
}
// The same, made if there is none. NULL: there is no memory.
static inline lb_slot_profile *lb_slot_profile_make(lb_slots *s,
                                                    lb_slot *slot) {
  return lb_slots_attach(s, &slot->profile, sizeof(lb_slot_profile));
}

static inline bool lb_slot_is_queued(const lb_slot *slot) {
  const lb_slot_profile *p = lb_slot_profile_of(slot);
  return p && atomic_load(&p->asked);
}

#endif
