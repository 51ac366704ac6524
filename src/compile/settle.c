// compile/settle.c -- waits until kernels are compiled.
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
  uint64_t users;  // bits, as for lb_hub_put
  uint64_t since;  // number of jobs started before
  size_t n_pending;
  size_t needed;       // of the pending slots, by existing plans
  bool out_of_memory;  // a slot could not be queued
} settler;

// A slot that was compiled since then is done, even if it was evicted again.
static bool was_compiled(const settler *t, const lb_slot *slot) {
  const lb_slot_profile *p = lb_slot_profile_of(slot);
  return p && atomic_load(&p->last_job) > t->since;
}

static bool is_awaited(const settler *t, const lb_slot *slot) {
  return lb_slot_is_pending(slot) && lb_slot_users(slot) & t->users &&
         !was_compiled(t, slot) &&
         (!t->how->critical || lb_spec_is_critical(&slot->key.spec));
}

// The cache may have space by now for a kernel that an earlier job found too
// large.
static void enqueue_urgent(settler *t, lb_slot *slot, int how_urgent) {
  if (!is_awaited(t, slot)) return;
  lb_slot_profile *p = lb_slot_profile_attach(t->s->slots, slot);
  t->out_of_memory |= !p;
  if (!p) return;
  if (atomic_exchange(&p->too_large, false)) atomic_store(&p->backoff_until, 0);
  int was = atomic_load(&p->urgent);
  if (was < how_urgent) atomic_store(&p->urgent, how_urgent);
  lb_service_enqueue(t->s, slot, p);
}

static void enqueue_first(void *user, lb_slot *slot) {
  enqueue_urgent(user, slot, 2);
}

// Queues all pending slots, and counts them.
static void enqueue_pending(settler *t, bool first) {
  lb_slot *slot;
  t->n_pending = t->needed = 0;
  for (size_t i = 0; (slot = lb_slots_at(t->s->slots, i)); i++) {
    lb_slot_profile *p = first ? lb_slot_profile_of(slot) : NULL;
    if (p) atomic_store(&p->backoff_until, 0);
    t->n_pending += is_awaited(t, slot);
    t->needed += is_awaited(t, slot) && atomic_load(&slot->planned) & t->users;
    enqueue_urgent(t, slot, 1);
  }
  if (t->n_pending) lb_service_wake(t->s);
}

// The last failure, if there was one since `failures` were counted.
static lb_status fault_since(lb_service *s, uint64_t failures) {
  lb_lock_take(&s->lock);
  lb_status st = s->failures == failures && !s->no_exec_memory
                     ? LB_OK
                     : lb_error(s->fault, "%s", s->why);
  lb_lock_give(&s->lock);
  return st;
}

// In a forked child, resets the service before anything is counted.
static void reset_if_forked(lb_service *s) {
  while (!lb_service_is_ours(s) && !lb_service_after_fork(s)) sched_yield();
}

static uint64_t enter(lb_service *s, int by) {
  lb_lock_take(&s->lock);
  s->settlers += by;
  lb_throttle_add_waiter(&s->throttle, by);
  if (by > 0) s->try_now = true;
  uint64_t failures = s->failures;
  lb_lock_give(&s->lock);
  return failures;
}

// If the cache holds no kernels at all, there is nothing to wait for.
static bool is_done(const settler *t) {
  return !t->n_pending || !lb_slots_has_capacity(t->s->slots);
}

// The time is over or the worker failed: that is an error only if plans need
// one of the pending kernels, rather than future shapes.
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
    unsigned seen = atomic_load(&s->progress);
    enqueue_pending(t, first);
    if (is_done(t)) return LB_OK;
    if (t->out_of_memory) return lb_oom();
    lb_status st = fault_since(s, failures);
    if (lb_failed(st)) return shortfall(t, st);
    int64_t left_ns = end - lb_clock_ns();
    if (left_ns <= 0)
      return shortfall(t, lb_error(LB_CANCELLED,
                                   "not settled in the time given: %zu kernels "
                                   "are still to be compiled by '%s'",
                                   t->n_pending, s->worker));
    lb_word_wait(&s->progress, seen, left_ns);
  }
}

lb_status lb_service_settle(lb_service *s, const lb_settle *how) {
  settler t = {.s = s,
               .how = how,
               .users = how->users ? how->users : LB_HUB_ALL,
               .since = atomic_load(&s->jobs)};
  lb_status st = LB_OK;
  reset_if_forked(s);
  int64_t began = lb_detour_begin();
  uint64_t failures = enter(s, 1);
  int err = lb_service_start(s);  // after the settler is counted
  if (err)
    st = lb_error(LB_IO, "cannot start the compile thread: %s", strerror(err));
  if (!err && how->each) how->each(how->user, enqueue_first, &t);
  if (!err) st = wait_for_all(&t, failures);
  enter(s, -1);
  lb_detour_end(began);
  return st;
}
