// compile/settle.c -- waiting until kernels are made.
#include <sched.h>
#include <string.h>

#include "base/caller.h"
#include "base/clock.h"
#include "base/thread.h"
#include "compile/service_internal.h"

#define MAX_WAIT 1e9  // seconds

typedef struct settler {
  lb_service *s;
  const lb_settle *how;
  uint64_t users;  // as lb_hub_put has them
  uint64_t since;  // jobs that began before
  size_t left;
  size_t needed;  // of these, by plans as they are
  bool starved;   // there was no memory to ask for one
} settler;

// What was made since is done, even if it had to make room for others.
static bool was_made(const settler *t, const lb_slot *slot) {
  const lb_slot_profile *p = lb_slot_profile_of(slot);
  return p && atomic_load(&p->made) > t->since;
}

static bool counts(const settler *t, const lb_slot *slot) {
  return lb_slot_is_pending(slot) && lb_slot_users(slot) & t->users &&
         !was_made(t, slot) &&
         (!t->how->critical || lb_spec_is_critical(&slot->key.spec));
}

// There may be room by now for what a job that began before had none for.
static void ask_urgently(settler *t, lb_slot *slot, int how_urgent) {
  if (!counts(t, slot)) return;
  lb_slot_profile *p = lb_slot_profile_make(t->s->slots, slot);
  t->starved |= !p;
  if (!p) return;
  if (atomic_exchange(&p->large, false)) atomic_store(&p->rest_until, 0);
  int was = atomic_load(&p->urgent);
  if (was < how_urgent) atomic_store(&p->urgent, how_urgent);
  lb_service_ask(t->s, slot, p);
}

static void ask_first(void *user, lb_slot *slot) {
  ask_urgently(user, slot, 2);
}

// Asks for all that lacks, and counts it.
static void ask_for_all(settler *t, bool first) {
  lb_slot *slot;
  t->left = t->needed = 0;
  for (size_t i = 0; (slot = lb_slots_at(t->s->slots, i)); i++) {
    lb_slot_profile *p = first ? lb_slot_profile_of(slot) : NULL;
    if (p) atomic_store(&p->rest_until, 0);
    t->left += counts(t, slot);
    t->needed += counts(t, slot) && atomic_load(&slot->planned) & t->users;
    ask_urgently(t, slot, 1);
  }
  if (t->left) lb_service_ring(t->s);
}

// What failed since `failures` were counted.
static lb_status fault_since(lb_service *s, uint64_t failures) {
  lb_lock_take(&s->lock);
  lb_status st = s->failures == failures && !s->broken
                     ? LB_OK
                     : lb_error(s->fault, "%s", s->why);
  lb_lock_give(&s->lock);
  return st;
}

// In a forked child, begins anew before anything is counted there.
static void become_ours(lb_service *s) {
  while (!lb_service_is_ours(s) && !lb_service_begin_anew(s)) sched_yield();
}

static uint64_t enter(lb_service *s, int by) {
  lb_lock_take(&s->lock);
  s->settlers += by;
  lb_throttle_hurry(&s->brake, by);
  if (by > 0) s->try_now = true;
  uint64_t failures = s->failures;
  lb_lock_give(&s->lock);
  return failures;
}

// Where the cache has no room for anything, there is nothing to wait for.
static bool is_done(const settler *t) {
  return !t->left || !lb_slots_keep(t->s->slots);
}

// What is not there yet, though time is over or the worker fails: kernels that
// only shapes to come would use may lack.
static lb_status shortfall(const settler *t, lb_status st) {
  if (t->needed) return st;
  lb_status_drop(st);
  return LB_OK;
}

static lb_status wait_for_all(settler *t, uint64_t failures) {
  lb_service *s = t->s;
  double seconds = t->how->seconds < MAX_WAIT ? t->how->seconds : MAX_WAIT;
  int64_t end = lb_clock_ns() + (int64_t)(seconds * 1e9);
  for (bool first = true;; first = false) {
    unsigned seen = atomic_load(&s->news);
    ask_for_all(t, first);
    if (is_done(t)) return LB_OK;
    if (t->starved) return lb_oom();
    lb_status st = fault_since(s, failures);
    if (lb_failed(st)) return shortfall(t, st);
    int64_t left = end - lb_clock_ns();
    if (left <= 0)
      return shortfall(t, lb_error(LB_CANCELLED,
                                   "not settled in the time given: %zu kernels "
                                   "are still to be made by '%s'",
                                   t->left, s->worker));
    lb_word_wait(&s->news, seen, left);
  }
}

lb_status lb_service_settle(lb_service *s, const lb_settle *how) {
  settler t = {.s = s,
               .how = how,
               .users = how->users ? how->users : LB_HUB_ALL,
               .since = atomic_load(&s->jobs)};
  lb_status st = LB_OK;
  become_ours(s);
  int64_t began = lb_detour_begin();
  uint64_t failures = enter(s, 1);
  int err = lb_service_start(s);  // once it is counted that somebody waits
  if (err) st = lb_error(LB_IO, "no thread to compile: %s", strerror(err));
  if (!err && how->each) how->each(how->user, ask_first, &t);
  if (!err) st = wait_for_all(&t, failures);
  enter(s, -1);
  lb_detour_end(began);
  return st;
}
