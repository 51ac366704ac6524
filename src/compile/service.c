// compile/service.c -- the life of the service, samples from runs, and the
// stack of slots to queue.
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

static void init_throttle(lb_service *s, bool off) {
  lb_throttle_options o = {
      .hub = s->hub, .off = off, .payback = lb_service_poll, .user = s};
  lb_throttle_init(&s->throttle, &o);
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
  lb_kernel_builder_options m = o->builder;
  m.limits.throttle = &s->throttle;
  m.limits.yields = !o->unpaced;
  m.limits.memory_mb = MEMORY_MB;
  s->slots = o->builder.slots;
  s->hub = o->builder.hub;
  s->log = o->builder.log;
  s->trials = o->trials;
  s->find_only = o->find_only;
  s->has_store = o->builder.store != NULL;
  s->preloading = s->has_store;
  s->wants_samples = s->has_store || !s->find_only;
  s->forks = s->reset_forks = lb_fork_count();
  lb_queue_init(&s->queue);
  s->queue.fifo = o->fifo;
  s->queue.hub = s->hub;
  init_throttle(s, o->unpaced);
  s->worker = strdup(m.worker);
  if (!s->worker) st = lb_oom();
  if (!lb_failed(st)) st = lb_kernel_builder_new(&m, &s->builder);
  if (lb_failed(st)) {
    lb_service_free(s);
  } else {
    *out = s;
  }
  return st;
}

void lb_service_wake(lb_service *s) {
  atomic_fetch_add(&s->wake_count, 1);
  if (atomic_load(&s->asleep)) lb_word_wake(&s->wake_count, 1);
}

// Ends the thread, if there is one in this process.
static void stop(lb_service *s) {
  atomic_store(&s->stop, true);  // first: a cancelled job is not a failure
  if (s->builder) lb_kernel_builder_cancel(s->builder);
  lb_service_wake(s);
  if (atomic_load(&s->thread_state) == LB_THREAD_RUNNING &&
      lb_service_is_ours(s))
    pthread_join(s->thread, NULL);
}

void lb_service_free(lb_service *s) {
  if (!s) return;
  stop(s);
  lb_service_collect(s);  // nothing is queued any more
  lb_queue_clear(&s->queue);
  lb_kernel_builder_free(s->builder);
  free(s->worker);
  lb_lock_fini(&s->lock);
  free(s);
}

// One thread of this process does it; until it is done, other threads do not
// report.
bool lb_service_after_fork(lb_service *s) {
  lb_slot *slot;
  unsigned forks = lb_fork_count();
  if (atomic_exchange(&s->reset_forks, forks) == forks) return false;
  for (size_t i = 0; (slot = lb_slots_at(s->slots, i)); i++) {
    lb_slot_profile *p = lb_slot_profile_of(slot);
    if (p) atomic_store(&p->queued, false);
  }
  atomic_store(&s->stack, NULL);
  atomic_store(&s->decided,
               true);  // the parent's thread may have been about to act
  s->queue.n = 0;
  s->scanned = 0;
  s->settlers = 0;
  s->compiling = NULL;
  s->preloading = s->has_store;
  atomic_store(&s->stopping, false);
  atomic_store(&s->stop, false);
  lb_kernel_builder_after_fork(s->builder);
  init_throttle(s, s->throttle.options.off);
  atomic_store(&s->asleep, false);
  atomic_store(&s->thread_state, LB_THREAD_NONE);
  atomic_store(&s->forks, forks);
  return true;
}

int lb_service_start(lb_service *s) {
  if (!lb_service_is_ours(s) && !lb_service_after_fork(s)) return EAGAIN;
  int none = LB_THREAD_NONE;
  if (atomic_load(&s->thread_state) != LB_THREAD_NONE) return 0;
  if (!atomic_compare_exchange_strong(&s->thread_state, &none,
                                      LB_THREAD_STARTING))
    return 0;
  int err = lb_thread_start(lb_service_main, s, &s->thread);
  atomic_store(&s->thread_state, err ? LB_THREAD_NONE : LB_THREAD_RUNNING);
  if (!err) return 0;
  if (!atomic_exchange(&s->warned_thread, true))
    lb_log_line(s->log, LB_LOG_WARN,
                "no kernels are compiled: cannot start the thread: %s",
                strerror(err));
  return err;
}

static bool is_needed(const lb_service *s) {
  return atomic_load(&s->background_users) > 0 || atomic_load(&s->settlers) > 0;
}

// A new user may have found the thread still there while it ended. It is
// counted before it checks, and the state is LB_THREAD_NONE before the count is
// read, so one of the two starts another thread.
static void end_thread(lb_service *s) {
  while (atomic_load(&s->thread_state) == LB_THREAD_STARTING) sched_yield();
  if (atomic_load(&s->thread_state) == LB_THREAD_NONE) return;
  stop(s);
  lb_kernel_builder_resume(s->builder);
  lb_kernel_builder_stop_worker(s->builder);
  atomic_store(&s->stop, false);
  atomic_store(&s->thread_state, LB_THREAD_NONE);
  if (is_needed(s)) (void)lb_service_start(s);
}

void lb_service_try_stop(lb_service *s) {
  if (!lb_service_is_ours(s)) return;  // nothing was started in this process
  while (atomic_exchange(&s->stopping, true)) sched_yield();
  if (!is_needed(s)) end_thread(s);
  atomic_store(&s->stopping, false);
}

// -- queueing ----------------------------------------------------------------

bool lb_service_enqueue(lb_service *s, lb_slot *slot, lb_slot_profile *p) {
  if (atomic_load_explicit(&p->queued, memory_order_relaxed) ||
      atomic_exchange(&p->queued, true))
    return false;
  lb_slot *top = atomic_load(&s->stack);
  do {
    atomic_store_explicit(&p->next, top, memory_order_relaxed);
  } while (!atomic_compare_exchange_weak(&s->stack, &top, slot));
  return true;
}

bool lb_service_wants_samples(const lb_service *s) {
  return s && atomic_load_explicit(&s->wants_samples, memory_order_relaxed);
}

unsigned lb_service_join(lb_service *s) {
  unsigned session = atomic_fetch_add(&s->sessions, 1) + 1;
  return session ? session : lb_service_join(s);
}

// A service that can neither compile nor load is not started.
void lb_service_begin_background(lb_service *s) {
  bool first = atomic_fetch_add(&s->background_users, 1) == 0;
  if (lb_service_wants_samples(s) && !lb_service_start(s) && first)
    lb_service_wake(s);
}

void lb_service_end_background(lb_service *s) {
  atomic_fetch_sub(&s->background_users, 1);
}

// Updates the compile threshold. `uses`: the uses so far. True if the slot
// becomes due by this use, or because the session's threshold is lower than
// that of the others.
static bool becomes_due(lb_slot_profile *p, unsigned compile_threshold,
                        unsigned uses) {
  unsigned was =
      atomic_load_explicit(&p->compile_threshold, memory_order_relaxed);
  if (!compile_threshold) compile_threshold = LB_COMPILE_THRESHOLD;
  if (was && was <= compile_threshold) return uses == was;
  atomic_store_explicit(&p->compile_threshold, compile_threshold,
                        memory_order_relaxed);
  return uses >= compile_threshold;
}

void lb_service_add_sample(lb_service *s, lb_slot *slot,
                           const lb_slot_sample *sample) {
  lb_slot_profile *p = lb_slot_profile_attach(s->slots, slot);
  if (!p || lb_service_start(s)) return;
  atomic_fetch_add_explicit(&p->ns, (uint64_t)sample->ns, memory_order_relaxed);
  if (atomic_load_explicit(&p->run, memory_order_relaxed) != sample->run) {
    atomic_store_explicit(&p->run, sample->run, memory_order_relaxed);
    atomic_store_explicit(&p->session, sample->session, memory_order_relaxed);
    unsigned n = atomic_fetch_add_explicit(&p->uses, 1, memory_order_relaxed);
    if (becomes_due(p, sample->compile_threshold, n + 1)) lb_service_wake(s);
  }
  if (lb_service_enqueue(s, slot, p)) lb_service_wake(s);
}

void lb_service_trial_decided(lb_service *s) {
  atomic_store(&s->decided,
               true);  // also without a thread: the next one acts on it
  if (lb_service_start(s) == 0) lb_service_wake(s);
}

void lb_service_notify(lb_service *s) {
  if (!lb_service_wants_samples(s) || !lb_service_has_background(s)) return;
  if (lb_service_start(s) == 0) lb_service_wake(s);
}

static bool is_compiled_ahead(const lb_slot *slot) {
  int ahead = atomic_load(&slot->ahead);
  return ahead == LB_AHEAD_ALL ||
         (ahead == LB_AHEAD_CRITICAL && lb_spec_is_critical(&slot->key.spec));
}

// Slots that plans want and no run has used are queued to be compiled in an
// idle moment, so that future shapes find their kernels. The lock is held.
static void collect_unused(lb_service *s) {
  lb_slot *slot;
  if (atomic_exchange(&s->slots->more_expected, false)) s->scanned = 0;
  for (; (slot = lb_slots_at(s->slots, s->scanned)); s->scanned++) {
    if (!is_compiled_ahead(slot) || !lb_slot_is_pending(slot)) continue;
    lb_slot_profile *p = lb_slot_profile_attach(s->slots, slot);
    if (p && !atomic_exchange(&p->queued, true)) lb_queue_put(&s->queue, slot);
  }
}

void lb_service_collect(lb_service *s) {
  lb_slot *slot = atomic_exchange(&s->stack, NULL), *next;
  for (; slot; slot = next) {
    next = atomic_load_explicit(&lb_slot_profile_of(slot)->next,
                                memory_order_relaxed);
    lb_queue_put(&s->queue, slot);
  }
  if (lb_service_has_background(s)) collect_unused(s);
}

void lb_service_wake_settlers(lb_service *s) {
  atomic_fetch_add(&s->progress, 1);
  lb_word_wake(&s->progress, INT_MAX);
}

void lb_service_unlock(lb_service *s, uint64_t before) {
  bool some = s->queue.released != before;
  lb_lock_give(&s->lock);
  if (some) lb_service_wake_settlers(s);
}

void lb_service_leave(lb_service *s, unsigned session) {
  if (!lb_service_is_ours(s)) return;
  lb_lock_take(&s->lock);
  uint64_t released = s->queue.released;
  lb_service_collect(s);
  lb_queue_drop(&s->queue, session);
  lb_queue_drop(&s->queue, LB_NO_SESSION);
  s->scanned = 0;  // other sessions may want some of the dropped slots
  lb_service_unlock(s, released);
}

// -- statistics --------------------------------------------------------------

lb_service_stats lb_service_count(lb_service *s) {
  lb_service_stats n = {.kernels = lb_kernel_builder_count(s->builder)};
  lb_lock_take(&s->lock);
  lb_service_collect(s);
  n.queued = s->queue.n;
  n.failures = s->failures;
  lb_lock_give(&s->lock);
  return n;
}

bool lb_service_compile_record(lb_service *s, size_t i,
                               lb_compile_record *out) {
  return lb_kernel_builder_record(s->builder, i, out);
}
