// cache/slots.h -- slots, in which the best available kernel is published.
//
// There is one slot per (spec, facts), interned process-wide: plans hold slots,
// not kernels, and a slot knows which runtimes use it. A slot starts with the
// built-in kernel, if the pack has one, and gets better ones by one atomic
// store; a step loads the kernel once.
//
// Compiled kernels are items of an lb_lru (cache/lru.h): when its budget is
// exceeded, the least recently used are evicted, and their slots revert to the
// built-in kernel, or to none. Such a slot is not wanted until a run or a new
// plan uses it: otherwise kernels that do not fit into the budget together
// would be recompiled alternately forever. A thread that calls a compiled
// kernel must be inside the epoch of the lb_lru.
//
// Slots live as long as the table: there are at most LB_MAX_FACTS_OF per spec,
// for any number of shapes. Any thread may call.
#ifndef LB_CACHE_SLOTS_H
#define LB_CACHE_SLOTS_H

#include "base/hub.h"
#include "base/map.h"
#include "cache/lru.h"
#include "cache/trial.h"
#include "device/device.h"

typedef enum lb_tier {  // where code comes from, slowest first
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
  LB_SLOT_COMPILE_FAILED,  // compilation failed
  LB_SLOT_DEMOTED,         // its kernel lost its trial
} lb_slot_fault;

// Which kernels are compiled in idle time, before a run has needed them. The
// most eager session that uses the slot decides.
typedef enum lb_ahead {
  LB_AHEAD_UNKNOWN,   // not requested for future shapes
  LB_AHEAD_NONE,      // only limber_session_settle compiles them
  LB_AHEAD_CRITICAL,  // those for which lb_spec_is_critical is true
  LB_AHEAD_ALL,
} lb_ahead;

typedef struct lb_slot {
  lb_slot_key key;                  // unused bytes are zero
  _Atomic(const lb_exec *) kernel;  // NULL: none
  atomic_int tier;                  // lb_tier of the kernel, stored after it
  atomic_int failed;                // lb_slot_fault: no kernel will be compiled
  bool in_pack;                     // it always has a kernel
  lb_exec pack;                     // the built-in kernel, if in_pack
  _Atomic uint64_t used;            // epoch of its last use
  atomic_uint evicted;              // number of evictions of its kernel
  atomic_bool wanted;  // a kernel was requested, not only looked up for a cover
  // Its item in the lb_lru; guarded by the lock of the lb_lru.
  struct lb_slot_item *item;
  // Bit masks of runtimes: those whose plans use the slot, and those that want
  // it and its tile variants for future shapes.
  _Atomic uint64_t planned, expected;
  atomic_int ahead;  // lb_ahead: when it is compiled if no run uses it
  // Attached by other modules, see lb_slots_attach: the A/B trial of the kernel
  // (an lb_trial), and its profile.
  _Atomic(void *) trial;
  _Atomic(void *) profile;  // lb_slot_profile of compile/slot_profile.h
} lb_slot;

typedef struct lb_slots_stats {
  uint64_t slots, bytes;  // of the table, including attached blocks
  // Slots created with a built-in kernel, and without.
  uint64_t pack_hits, pack_misses;
  uint64_t hits, misses;  // uses by plans with a compiled kernel, and without
  uint64_t kernels, kernel_bytes;  // compiled kernels, current
  uint64_t insertions, evictions;  // of compiled kernels
} lb_slots_stats;

typedef struct lb_slots {
  lb_lock lock;
  lb_map map;            // lb_slot_key -> lb_slot, owned
  uint32_t lanes;        // float32 lanes of a vector register, for lb_facts_of
  lb_device *device;     // runs the kernels; borrowed
  lb_lru *lru;           // borrowed; NULL: no compiled kernels
  lb_hub *hub;           // receives events; borrowed; may be NULL
  lb_slots_stats stats;  // without the fields that the lb_lru provides
  uint64_t insertions, evictions;  // guarded by the lock of the lb_lru
  _Atomic uint64_t hits, misses;   // statistics
  _Atomic uint64_t attached;       // bytes; statistics
  _Atomic(lb_slot *) missed;  // the last slot used without a compiled kernel
  // Incremented when a slot reverts to a lesser kernel, and when a trial of its
  // kernel starts: plans whose slots all had their best kernel check them
  // again. Starts at 1.
  atomic_uint reviews;
  // Slots were requested for future shapes that may have been in the table for
  // a long time: a scan of the table must start over.
  atomic_bool more_expected;
} lb_slots;

// The caller may set `lru` and `hub` afterwards.
lb_status lb_slots_init(lb_slots *s, uint32_t lanes, lb_device *device);
// No run may be active; releases compiled kernels too.
void lb_slots_fini(lb_slots *s);

// A user of slots: the sessions of one runtime with the same compile options.
// {0} is an anonymous user, which is never forgotten.
typedef struct lb_slot_user {
  uint64_t bit;    // of the runtime, as in the hub
  lb_ahead ahead;  // what is compiled before a run has needed it
} lb_slot_user;

// Returns the slot of a key, created if new, and wanted by `user` from now on.
lb_status lb_slots_intern(lb_slots *s, lb_slot_user user, const lb_spec *spec,
                          const lb_facts *facts, lb_slot **out);
// The same, but only if there is a built-in kernel: otherwise *out is NULL.
// Does not make the slot wanted.
lb_status lb_slots_try_pack(lb_slots *s, const lb_spec *spec,
                            const lb_facts *facts, lb_slot **out);

// Makes a slot and its tile variants (slots of the same spec with the tiles for
// other numbers of rows) wanted for future shapes; this does not count as a
// use. Once is enough for all of them, until a session is more eager.
void lb_slots_want_variants(lb_slots *s, lb_slot_user user, lb_slot *slot,
                            lb_slot *const *variants, int n);
// Returns whether that call is still necessary for this user.
bool lb_slot_wants_variants(const lb_slot *slot, lb_slot_user user);
// Every run will use the slot, for any shapes: it becomes wanted as if a plan
// used it, and is compiled ahead, but does not count as used.
void lb_slots_expect(lb_slots *s, lb_slot_user user, lb_slot *slot);

// Counts a use of a slot by a plan. Returns true if it is the user's first: the
// slot is wanted from now on.
bool lb_slots_use(lb_slots *s, lb_slot_user user, lb_slot *slot);
// The same for a plan that another user created; not counted.
bool lb_slots_adopt(lb_slots *s, lb_slot_user user, lb_slot *slot);

// Removes a runtime, given by its bit: slots that no other user wants are not
// wanted any more.
void lb_slots_forget(lb_slots *s, uint64_t bit);

// Returns the slot of a key, created if new, with or without a built-in kernel;
// it does not become wanted, and is not counted.
lb_status lb_slots_add(lb_slots *s, const lb_spec *spec, const lb_facts *facts,
                       lb_slot **out);

// Returns the block that a module attaches to a slot, at `field`, one of the
// slot's members for this purpose. The first call allocates it, with `size`
// bytes of zeros; the table frees it. Its contents belong to the module. Takes
// no lock. NULL: out of memory.
void *lb_slots_attach(lb_slots *s, _Atomic(void *) *field, size_t size);

// Prints spec and facts of a slot, for people; truncated if `buf` is too small.
// Returns buf.
const char *lb_slot_text(const lb_slot *slot, char *buf, size_t cap);

// Emits an event about a slot to its users, or to all members of the hub if it
// has none (a kernel that was loaded ahead). The text is `fmt`, then the text
// of the slot.
void lb_slot_emit(lb_hub *hub, const lb_slot *slot, const lb_event *e,
                  const char *fmt, ...) LB_PRINTF(4, 5);

// The number of wanted slots that the runtimes `bits` use.
size_t lb_slots_wanted(lb_slots *s, uint64_t bits);
// The i-th slot in order of creation, wanted or not, or NULL.
lb_slot *lb_slots_at(lb_slots *s, size_t i);

static inline const lb_exec *lb_slot_kernel(const lb_slot *s) {
  return atomic_load_explicit(&s->kernel, memory_order_acquire);
}
// The built-in kernel, or NULL.
static inline const lb_exec *lb_slot_builtin(const lb_slot *s) {
  return s->in_pack ? &s->pack : NULL;
}
static inline lb_tier lb_slot_tier(const lb_slot *s) {
  return (lb_tier)atomic_load_explicit(&s->tier, memory_order_relaxed);
}
// Returns whether the slot is wanted and has no compiled kernel, although one
// could be compiled.
static inline bool lb_slot_is_pending(const lb_slot *s) {
  return lb_slot_tier(s) <= LB_TIER_PACK &&
         !atomic_load_explicit(&s->failed, memory_order_relaxed) &&
         atomic_load_explicit(&s->wanted, memory_order_relaxed);
}
// The last trial of its kernels, or NULL if there was none.
static inline lb_trial *lb_slot_trial(const lb_slot *s) {
  return atomic_load_explicit(&s->trial, memory_order_acquire);
}
static inline lb_trial_state lb_slot_trial_state(const lb_slot *s) {
  const lb_trial *t = lb_slot_trial(s);
  return t ? lb_trial_at(t) : LB_TRIAL_NONE;
}
// Bit mask of the runtimes that use it, or want it for future shapes.
static inline uint64_t lb_slot_users(const lb_slot *s) {
  return atomic_load_explicit(&s->planned, memory_order_relaxed) |
         atomic_load_explicit(&s->expected, memory_order_relaxed);
}
// A run that is inside records its use of the slot's kernel; an evicted kernel
// becomes wanted again.
static inline void lb_slot_use(lb_slot *s, const lb_epoch_reader *reader) {
  lb_lru_use(&s->used, reader->at);
  if (atomic_load_explicit(&s->evicted, memory_order_relaxed) &&
      !atomic_load_explicit(&s->wanted, memory_order_relaxed))
    atomic_store_explicit(&s->wanted, true, memory_order_relaxed);
}
// For kernels that are never unloaded, such as built-in ones.
static inline void lb_slot_publish(lb_slot *s, const lb_exec *kernel,
                                   lb_tier tier) {
  atomic_store_explicit(&s->kernel, kernel, memory_order_release);
  atomic_store_explicit(&s->tier, (int)tier, memory_order_relaxed);
}

// A compiled kernel to be published.
typedef struct lb_slot_code {
  lb_exec *exec;  // ownership is transferred
  lb_tier tier;
  bool on_trial;  // run an A/B trial against the baseline
} lb_slot_code;

// Publishes a compiled kernel, which it takes over, in place of the current
// one; evicts others if necessary. *kept is false if the kernel is larger than
// the capacity: then the slot is unchanged. The kernel is released when it is
// no longer in use, on failure immediately, by the thread that notices:
// unloading must be fast and must not take a lock that fork takes.
lb_status lb_slots_publish(lb_slots *s, lb_slot *slot, const lb_slot_code *code,
                           bool *kept);
// Removes the compiled kernel; the slot reverts to the built-in one, or none.
void lb_slots_withdraw(lb_slots *s, lb_slot *slot);
void lb_slots_count(lb_slots *s, lb_slots_stats *out);
// Explains the last miss: which slot with a compiled kernel is nearest, and how
// they differ. Prints nothing if there was no miss. Takes time linear in the
// number of slots.
lb_status lb_slots_explain(lb_slots *s, lb_strbuf *out);
// Returns false if no compiled kernel could be cached: there is no lb_lru, or
// its capacity is 0.
bool lb_slots_has_capacity(lb_slots *s);

#endif
