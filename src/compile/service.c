// compile/service.c -- the life of the service, and what is asked of it.
#include "compile/service.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "compile/service_internal.h"

#define MEMORY_MB 1024  // of the worker

// -- life --------------------------------------------------------------------

static void init_brake(lb_service *s, bool off) {
  lb_throttle_options o = {
      .hub = s->hub, .off = off, .returns = lb_service_attend, .user = s};
  lb_throttle_init(&s->brake, &o);
}

lb_status lb_service_new(const lb_service_options *o, lb_service **out) {
  *out = NULL;
  lb_service *s = calloc(1, sizeof *s);
  if (!s) return lb_oom();
  lb_status st = lb_lock_init(&s->lock);
  if (lb_failed(st)) {
    free(s);
    return st;
  }
  lb_kernel_builder_options m = o->maker;
  m.limits.brake = &s->brake;
  m.limits.yields = !o->unpaced;
  m.limits.memory_mb = MEMORY_MB;
  s->slots = o->maker.slots;
  s->hub = o->maker.hub;
  s->log = o->maker.log;
  s->judges = o->judges;
  s->find_only = o->find_only;
  s->has_store = o->maker.store != NULL;
  s->loads = s->has_store;
  s->listens = s->has_store || !s->find_only;
  s->forks = s->renewed = lb_fork_count();
  lb_queue_init(&s->queue);
  s->queue.in_turn = o->in_turn;
  s->queue.hub = s->hub;
  init_brake(s, o->unpaced);
  s->worker = strdup(m.worker);
  if (!s->worker) st = lb_oom();
  if (!lb_failed(st)) st = lb_kernel_builder_new(&m, &s->maker);
  if (lb_failed(st)) {
    lb_service_free(s);
  } else {
    *out = s;
  }
  return st;
}

void lb_service_ring(lb_service *s) {
  atomic_fetch_add(&s->bell, 1);
  if (atomic_load(&s->asleep)) lb_word_wake(&s->bell, 1);
}

// Ends the thread, if there is one in this process.
static void stop(lb_service *s) {
  atomic_store(&s->stop, true);  // first: what is cancelled has not failed
  if (s->maker) lb_kernel_builder_cancel(s->maker);
  lb_service_ring(s);
  if (atomic_load(&s->thread_state) == LB_THREAD_RUNNING &&
      lb_service_is_ours(s))
    pthread_join(s->thread, NULL);
}

void lb_service_free(lb_service *s) {
  if (!s) return;
  stop(s);
  lb_service_collect(s);  // nobody asks any more
  lb_queue_clear(&s->queue);
  lb_kernel_builder_free(s->maker);
  free(s->worker);
  lb_lock_fini(&s->lock);
  free(s);
}

// One thread of this process does it, while the others tell nothing.
bool lb_service_begin_anew(lb_service *s) {
  lb_slot *slot;
  unsigned forks = lb_fork_count();
  if (atomic_exchange(&s->renewed, forks) == forks) return false;
  for (size_t i = 0; (slot = lb_slots_at(s->slots, i)); i++) {
    lb_slot_profile *p = lb_slot_profile_of(slot);
    if (p) atomic_store(&p->asked, false);
  }
  atomic_store(&s->asked, NULL);
  atomic_store(&s->decided, true);  // the other may have been about to act
  s->queue.n = 0;
  s->looked_at = 0;
  s->settlers = 0;
  s->making = NULL;
  s->loads = s->has_store;
  atomic_store(&s->resting, false);
  atomic_store(&s->stop, false);
  lb_kernel_builder_begin_anew(s->maker);
  init_brake(s, s->brake.options.off);
  atomic_store(&s->asleep, false);
  atomic_store(&s->thread_state, LB_THREAD_NONE);
  atomic_store(&s->forks, forks);
  return true;
}

int lb_service_start(lb_service *s) {
  if (!lb_service_is_ours(s) && !lb_service_begin_anew(s)) return EAGAIN;
  int none = LB_THREAD_NONE;
  if (atomic_load(&s->thread_state) != LB_THREAD_NONE) return 0;
  if (!atomic_compare_exchange_strong(&s->thread_state, &none,
                                      LB_THREAD_STARTING))
    return 0;
  int err = lb_thread_start(lb_service_serve, s, &s->thread);
  atomic_store(&s->thread_state, err ? LB_THREAD_NONE : LB_THREAD_RUNNING);
  if (!err) return 0;
  if (!atomic_exchange(&s->told, true))
    lb_log_line(s->log, LB_LOG_WARN, "no kernels are compiled: no thread: %s",
                strerror(err));
  return err;
}

static bool is_needed(const lb_service *s) {
  return atomic_load(&s->holders) > 0 || atomic_load(&s->settlers) > 0;
}

// Somebody may have come while the thread ended, and have found it there: that
// one is counted before it looks, and the state is LB_THREAD_NONE before the
// count is read, so one of the two starts another.
static void end_thread(lb_service *s) {
  while (atomic_load(&s->thread_state) == LB_THREAD_STARTING) sched_yield();
  if (atomic_load(&s->thread_state) == LB_THREAD_NONE) return;
  stop(s);
  lb_kernel_builder_resume(s->maker);
  lb_kernel_builder_rest(s->maker);
  atomic_store(&s->stop, false);
  atomic_store(&s->thread_state, LB_THREAD_NONE);
  if (is_needed(s)) (void)lb_service_start(s);
}

void lb_service_rest(lb_service *s) {
  if (!lb_service_is_ours(s)) return;  // nothing has begun in this process
  while (atomic_exchange(&s->resting, true)) sched_yield();
  if (!is_needed(s)) end_thread(s);
  atomic_store(&s->resting, false);
}

// -- asking ------------------------------------------------------------------

bool lb_service_ask(lb_service *s, lb_slot *slot, lb_slot_profile *p) {
  if (atomic_load_explicit(&p->asked, memory_order_relaxed) ||
      atomic_exchange(&p->asked, true))
    return false;
  lb_slot *top = atomic_load(&s->asked);
  do {
    atomic_store_explicit(&p->next, top, memory_order_relaxed);
  } while (!atomic_compare_exchange_weak(&s->asked, &top, slot));
  return true;
}

bool lb_service_listens(const lb_service *s) {
  return s && atomic_load_explicit(&s->listens, memory_order_relaxed);
}

unsigned lb_service_join(lb_service *s) {
  unsigned session = atomic_fetch_add(&s->sessions, 1) + 1;
  return session ? session : lb_service_join(s);
}

// What cannot listen is not started.
void lb_service_hold(lb_service *s) {
  bool first = atomic_fetch_add(&s->holders, 1) == 0;
  if (lb_service_listens(s) && !lb_service_start(s) && first)
    lb_service_ring(s);
}

void lb_service_let_go(lb_service *s) { atomic_fetch_sub(&s->holders, 1); }

// How many sightings make the slot ripe, after so many. True if it is ripe only
// now: by this one, or because the session asks for fewer than others did.
static bool ripens(lb_slot_profile *p, unsigned compile_threshold,
                   unsigned seen) {
  unsigned was =
      atomic_load_explicit(&p->compile_threshold, memory_order_relaxed);
  if (!compile_threshold) compile_threshold = LB_COMPILE_THRESHOLD;
  if (was && was <= compile_threshold) return seen == was;
  atomic_store_explicit(&p->compile_threshold, compile_threshold,
                        memory_order_relaxed);
  return seen >= compile_threshold;
}

void lb_service_add_sample(lb_service *s, lb_slot *slot,
                           const lb_slot_sample *seen) {
  lb_slot_profile *p = lb_slot_profile_make(s->slots, slot);
  if (!p || lb_service_start(s)) return;
  atomic_fetch_add_explicit(&p->ns, (uint64_t)seen->ns, memory_order_relaxed);
  if (atomic_load_explicit(&p->run, memory_order_relaxed) != seen->run) {
    atomic_store_explicit(&p->run, seen->run, memory_order_relaxed);
    atomic_store_explicit(&p->session, seen->session, memory_order_relaxed);
    unsigned n = atomic_fetch_add_explicit(&p->seen, 1, memory_order_relaxed);
    if (ripens(p, seen->compile_threshold, n + 1)) lb_service_ring(s);
  }
  if (lb_service_ask(s, slot, p)) lb_service_ring(s);
}

void lb_service_decided(lb_service *s) {
  atomic_store(&s->decided, true);  // whenever there is a thread
  if (lb_service_start(s) == 0) lb_service_ring(s);
}

void lb_service_look(lb_service *s) {
  if (!lb_service_listens(s) || !lb_service_is_held(s)) return;
  if (lb_service_start(s) == 0) lb_service_ring(s);
}

static bool is_made_ahead(const lb_slot *slot) {
  int ahead = atomic_load(&slot->ahead);
  return ahead == LB_AHEAD_ALL ||
         (ahead == LB_AHEAD_CRITICAL && lb_spec_is_critical(&slot->key.spec));
}

// What plans want and no run has met waits for an idle moment, so that shapes
// to come find it made. The lock is held.
static void collect_unmet(lb_service *s) {
  lb_slot *slot;
  if (atomic_exchange(&s->slots->more_coming, false)) s->looked_at = 0;
  for (; (slot = lb_slots_at(s->slots, s->looked_at)); s->looked_at++) {
    if (!is_made_ahead(slot) || !lb_slot_is_pending(slot)) continue;
    lb_slot_profile *p = lb_slot_profile_make(s->slots, slot);
    if (p && !atomic_exchange(&p->asked, true)) lb_queue_put(&s->queue, slot);
  }
}

void lb_service_collect(lb_service *s) {
  lb_slot *slot = atomic_exchange(&s->asked, NULL), *next;
  for (; slot; slot = next) {
    next = atomic_load_explicit(&lb_slot_profile_of(slot)->next,
                                memory_order_relaxed);
    lb_queue_put(&s->queue, slot);
  }
  if (lb_service_is_held(s)) collect_unmet(s);
}

void lb_service_wake_settlers(lb_service *s) {
  atomic_fetch_add(&s->news, 1);
  lb_word_wake(&s->news, INT_MAX);
}

void lb_service_give_lock(lb_service *s, uint64_t before) {
  bool some = s->queue.let_go != before;
  lb_lock_give(&s->lock);
  if (some) lb_service_wake_settlers(s);
}

void lb_service_leave(lb_service *s, unsigned session) {
  if (!lb_service_is_ours(s)) return;
  lb_lock_take(&s->lock);
  uint64_t let_go = s->queue.let_go;
  lb_service_collect(s);
  lb_queue_drop(&s->queue, session);
  lb_queue_drop(&s->queue, LB_NO_SESSION);
  s->looked_at = 0;  // others may want some of that
  lb_service_give_lock(s, let_go);
}

// -- numbers -----------------------------------------------------------------

lb_service_stats lb_service_count(lb_service *s) {
  lb_service_stats n = {.made = lb_kernel_builder_count(s->maker)};
  lb_lock_take(&s->lock);
  lb_service_collect(s);
  n.waiting = s->queue.n;
  n.failures = s->failures;
  lb_lock_give(&s->lock);
  return n;
}

bool lb_service_compile_record(lb_service *s, size_t i,
                               lb_compile_record *out) {
  return lb_kernel_builder_built(s->maker, i, out);
}
