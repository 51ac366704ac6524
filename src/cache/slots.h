// cache/slots.h -- where the best kernel known now is published.
//
// One slot per (spec, facts), interned process-wide: plans hold slots, not
// kernels, and a slot knows which runtimes use it. A slot begins with the
// pack's kernel, where the pack has one, and gets better ones by one atomic
// store; whoever runs a step loads it once.
//
// Compiled kernels stand on a shelf (cache/lru.h): when its bytes run out,
// the least recently used go, and their slots are back at the pack's kernel, or
// at none, and not wanted until a run or a new plan meets them: else kernels
// that do not fit together would be compiled in turn for ever. Whoever calls a
// compiled kernel is inside the shelf's epoch meanwhile.
//
// Slots themselves live as long as the table: there are at most LB_MAX_FACTS_OF
// for one spec, however many shapes come. Any thread may call.
#ifndef LB_CACHE_SLOTS_H
#define LB_CACHE_SLOTS_H

#include "base/hub.h"
#include "base/map.h"
#include "cache/lru.h"
#include "cache/trial.h"
#include "device/device.h"

typedef enum lb_tier {  // where code comes from, worst first
  LB_TIER_REFERENCE,    // no kernel
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

typedef enum lb_slot_fault {
  LB_SLOT_OK,
  LB_SLOT_COMPILE_FAILED,  // it cannot be compiled
  LB_SLOT_DEMOTED,         // its kernel is slower than what it replaced
} lb_slot_fault;

// Which kernels are compiled in idle moments, before a run has needed them: as
// the most eager session says that has a use for the slot.
typedef enum lb_ahead {
  LB_AHEAD_UNKNOWN,   // nobody wants it for shapes to come
  LB_AHEAD_NONE,      // settle alone has them compiled
  LB_AHEAD_CRITICAL,  // if lb_spec_is_critical says so
  LB_AHEAD_ALL,
} lb_ahead;

typedef struct lb_slot {
  lb_slot_key key;                  // unused bytes zero
  _Atomic(const lb_exec *) kernel;  // NULL: none yet
  atomic_int tier;                  // lb_tier of the kernel, set after it
  atomic_int failed;                // lb_slot_fault: no kernel is to come
  bool in_pack;                     // it will never be empty
  lb_exec pack;                     // the device's own kernel, if in_pack
  _Atomic uint64_t used;            // the epoch of its last use
  atomic_uint evicted;              // how often its kernel was
  atomic_bool wanted;               // is worth compiling: not of a cover alone
  struct lb_slot_item *item;        // what is on the shelf; of the shelf's lock
  // Bits of those whose plans use it as it is, and of those for whom it and its
  // tile variants are wanted for shapes to come.
  _Atomic uint64_t planned, coming;
  atomic_int ahead;  // lb_ahead: when it is compiled, unless a run meets it
  // What other modules attach: see lb_slots_attach.
  _Atomic(void *) trial;    // lb_trial: the kernel against what it replaced
  _Atomic(void *) profile;  // lb_slot_profile of compile/slot_profile.h
} lb_slot;

typedef struct lb_slots_stats {
  uint64_t slots, bytes;            // of the table, and what is attached
  uint64_t pack_hits, pack_misses;  // slots that were made with a kernel of
                                    // the pack, and without
  uint64_t hits, misses;            // used by plans with a compiled kernel
                                    // there, and without
  uint64_t kernels, kernel_bytes;   // compiled ones, now
  uint64_t insertions, evictions;   // of compiled kernels
} lb_slots_stats;

typedef struct lb_slots {
  lb_lock lock;
  lb_map map;            // lb_slot_key -> lb_slot, owned
  uint32_t lanes;        // float32 in a vector of the target: for lb_facts_of
  lb_device *device;     // that runs the kernels; borrowed
  lb_lru *lru;           // borrowed; NULL: no compiled kernels come
  lb_hub *hub;           // borrowed; who hears of it; NULL: nobody
  lb_slots_stats stats;  // all but what is the shelf's to say
  uint64_t insertions, evictions;  // with the shelf's lock
  _Atomic uint64_t hits, misses;   // of the statistics
  _Atomic uint64_t attached;       // bytes; likewise
  _Atomic(lb_slot *) missed;  // the last that was used without compiled kernel
  // Grows when a slot falls back to a lesser kernel, and once its kernel is on
  // trial: plans whose slots had their best then look at them again. Begins
  // with 1.
  atomic_uint reviews;
  // Slots were wanted for shapes to come that may have been in the table for
  // long: who goes through it begins anew.
  atomic_bool more_coming;
} lb_slots;

// The caller may set the shelf and the hub then.
lb_status lb_slots_init(lb_slots *s, uint32_t lanes, lb_device *device);
void lb_slots_fini(lb_slots *s);  // nobody runs; compiled kernels go as well

// Who uses slots: the sessions of one runtime that compile alike. {0} is a user
// without a name, which is never forgotten.
typedef struct lb_slot_user {
  uint64_t bit;    // of the runtime, as the hub knows it
  lb_ahead ahead;  // what is compiled for it before a run has needed it
} lb_slot_user;

// The slot of that key, made if new, and wanted by `user` from now on.
lb_status lb_slots_intern(lb_slots *s, lb_slot_user user, const lb_spec *spec,
                          const lb_facts *facts, lb_slot **out);
// The same, but only if the pack has a kernel for it: else *out is NULL. It is
// not wanted for that.
lb_status lb_slots_try_pack(lb_slots *s, const lb_spec *spec,
                            const lb_facts *facts, lb_slot **out);

// Wants a slot and its tile variants (those of its spec that other rows choose)
// for shapes to come; none is counted as used. Once is enough for all of them,
// until a session is more eager.
void lb_slots_want_variants(lb_slots *s, lb_slot_user user, lb_slot *slot,
                            lb_slot *const *variants, int n);
// Is that still to be done for this user?
bool lb_slot_wants_variants(const lb_slot *slot, lb_slot_user user);
// Every run will use the slot, whatever it is asked for: it is wanted as if a
// plan used it, and compiled ahead, but not counted as used.
void lb_slots_expect(lb_slots *s, lb_slot_user user, lb_slot *slot);

// Counts one more use of a slot by a plan. True if it is the user's first: from
// now on it is wanted.
bool lb_slots_use(lb_slots *s, lb_slot_user user, lb_slot *slot);
// The same of a plan that another user made; that is not counted.
bool lb_slots_adopt(lb_slots *s, lb_slot_user user, lb_slot *slot);

// The runtime of that bit is gone: what no other user wants is wanted no more.
void lb_slots_forget(lb_slots *s, uint64_t bit);

// The same, made if new, with or without a kernel of the pack; not wanted for
// that, nor counted.
lb_status lb_slots_add(lb_slots *s, const lb_spec *spec, const lb_facts *facts,
                       lb_slot **out);

// What a module keeps of a slot: the block at `place`, which is one of the
// slot's members for that. It is made when the first caller asks for it, with
// `size` bytes of zeros, and freed with the table; what is in it is the
// module's. Takes no lock. NULL: there is no memory.
void *lb_slots_attach(lb_slots *s, _Atomic(void *) *place, size_t size);

// What the kernel of a slot computes and takes for granted, for people; cut
// where `buf` is too small. Returns buf.
const char *lb_slot_text(const lb_slot *slot, char *buf, size_t cap);

// Emits an event about a slot to its users, or to all members of the hub where
// it has none (a kernel that was loaded ahead). The text is what `fmt` says,
// then the slot's.
void lb_slot_emit(lb_hub *hub, const lb_slot *slot, const lb_event *e,
                  const char *fmt, ...) LB_PRINTF(4, 5);

// How many slots are wanted of those that the bits use.
size_t lb_slots_wanted(lb_slots *s, uint64_t bits);
// The i-th slot in order of making, wanted or not, or NULL.
lb_slot *lb_slots_at(lb_slots *s, size_t i);

static inline const lb_exec *lb_slot_kernel(const lb_slot *s) {
  return atomic_load_explicit(&s->kernel, memory_order_acquire);
}
// The one that it has without a compiler, or NULL.
static inline const lb_exec *lb_slot_builtin(const lb_slot *s) {
  return s->in_pack ? &s->pack : NULL;
}
static inline lb_tier lb_slot_tier(const lb_slot *s) {
  return (lb_tier)atomic_load_explicit(&s->tier, memory_order_relaxed);
}
// No kernel but the pack's, and one could be compiled.
static inline bool lb_slot_is_pending(const lb_slot *s) {
  return lb_slot_tier(s) <= LB_TIER_PACK &&
         !atomic_load_explicit(&s->failed, memory_order_relaxed) &&
         atomic_load_explicit(&s->wanted, memory_order_relaxed);
}
// The last trial of its kernels, or NULL: there was none.
static inline lb_trial *lb_slot_trial(const lb_slot *s) {
  return atomic_load_explicit(&s->trial, memory_order_acquire);
}
static inline lb_trial_state lb_slot_trial_state(const lb_slot *s) {
  const lb_trial *t = lb_slot_trial(s);
  return t ? lb_trial_at(t) : LB_TRIAL_NONE;
}
// Bits of those who use it, or want it for shapes to come.
static inline uint64_t lb_slot_users(const lb_slot *s) {
  return atomic_load_explicit(&s->planned, memory_order_relaxed) |
         atomic_load_explicit(&s->coming, memory_order_relaxed);
}
// A run that is inside notes that it uses the slot's kernel, and wants one
// again that was evicted.
static inline void lb_slot_use(lb_slot *s, const lb_epoch_reader *stay) {
  lb_lru_use(&s->used, stay->at);
  if (atomic_load_explicit(&s->evicted, memory_order_relaxed) &&
      !atomic_load_explicit(&s->wanted, memory_order_relaxed))
    atomic_store_explicit(&s->wanted, true, memory_order_relaxed);
}
// For kernels that are there for ever, as the pack's are.
static inline void lb_slot_publish(lb_slot *s, const lb_exec *kernel,
                                   lb_tier tier) {
  atomic_store_explicit(&s->kernel, kernel, memory_order_release);
  atomic_store_explicit(&s->tier, (int)tier, memory_order_relaxed);
}

// A compiled kernel that is to be published.
typedef struct lb_slot_code {
  lb_exec *exec;  // taken over
  lb_tier tier;
  bool on_trial;  // it is to be timed against what was there before
} lb_slot_code;

// Publishes a compiled kernel, which it takes over, in place of the one that
// the slot has; evicts others where that needs room. *kept is false if the
// kernel is larger than the capacity: then the slot stays as it is. The kernel
// is released as soon as nobody uses it any more, on failure at once, by
// whichever thread notices: unloading must not take long, nor a lock that fork
// takes.
lb_status lb_slots_publish(lb_slots *s, lb_slot *slot, const lb_slot_code *code,
                           bool *kept);
// Takes a compiled kernel away again; the slot is back at the pack's, or none.
void lb_slots_withdraw(lb_slots *s, lb_slot *slot);
void lb_slots_count(lb_slots *s, lb_slots_stats *out);
// Says of the slot that was missed last which one that has a compiled kernel
// comes nearest, and in what they differ. Nothing without a miss. Looks at all.
lb_status lb_slots_explain(lb_slots *s, lb_strbuf *out);
// False where nothing compiled would be kept: there is no shelf, or its
// capacity is 0.
bool lb_slots_keep(lb_slots *s);

#endif
