// compile/slot_profile.h -- what the compile service knows about a slot: its
// use by runs, and the state of its compilation.
//
// A slot gets a profile when the service first needs one, and keeps it for the
// life of its table (lb_slots_attach). Runs write to it without a lock.
// Their counts and times use relaxed order; `next` is published by the
// compare-and-swap that pushes the slot on the service's stack.
#ifndef LB_COMPILE_SLOT_PROFILE_H
#define LB_COMPILE_SLOT_PROFILE_H

#include "cache/slots.h"

typedef struct lb_slot_profile {
  _Atomic(lb_slot *) next;  // in the service's stack of slots to queue
  atomic_bool queued;       // on the stack, in the queue or being compiled
  atomic_int urgent;        // above 0: callers wait for it; higher first
  atomic_uint uses;         // runs that used it since it was last compiled
  atomic_uint compile_threshold;  // the lowest of the sessions that use it; 0:
                                  // none has reported
  _Atomic uint64_t run;           // the last run that used it
  atomic_uint session;            // the session of that run
  _Atomic uint64_t ns;            // time of runs in its steps; decays (queue.c)
  _Atomic uint64_t last_job;      // number of the job that last got its kernel
  _Atomic int64_t backoff_until;  // ns; it is not compiled before
  atomic_bool too_large;  // the backoff is because it does not fit the cache
  // Used by the compile thread only, except seq.
  int failures;       // of the worker while it compiled this slot
  bool searched;      // its kernel was searched for on disk
  bool trial_passed;  // a kernel of it was on trial, and kept
  uint64_t seq;       // order of arrival in the queue; under service.lock
} lb_slot_profile;

// NULL: the slot has none yet. Every queued slot has one.
static inline lb_slot_profile *lb_slot_profile_of(const lb_slot *slot) {
  return atomic_load_explicit(&slot->profile, memory_order_acquire);
}
// The same, created if there is none. NULL: out of memory.
static inline lb_slot_profile *lb_slot_profile_attach(lb_slots *s,
                                                      lb_slot *slot) {
  return lb_slots_attach(s, &slot->profile, sizeof(lb_slot_profile));
}

static inline bool lb_slot_is_queued(const lb_slot *slot) {
  const lb_slot_profile *p = lb_slot_profile_of(slot);
  return p && atomic_load(&p->queued);
}

#endif
