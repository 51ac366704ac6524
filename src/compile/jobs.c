// compile/jobs.c -- the thread that has kernels compiled.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "compile/service_internal.h"

#define MS INT64_C(1000000)  // nanoseconds
#define BACKOFF (1000 * MS)  // after the worker's first failure in a row
#define BACKOFF_MAX (60000 * MS)
#define IDLE (100 * MS)           // without a run until requests count as idle
#define START_DELAY (500 * MS)    // of the first start, until requests are idle
#define LEASE_POLL (20 * MS)      // while another process compiles a kernel
#define WORKER_IDLE (10000 * MS)  // until an idle worker's process is ended

enum {
  COMPILE_TIMEOUT_MS = 30000,  // more than any kernel takes: the worker hangs
  MAX_FAILURES = 3,  // of the worker at one key, then it is not retried
  MANY_KERNELS = 4,  // justify a new process, which costs three
};

static bool is_idle(lb_service *s, int64_t now) {
  lb_pool_runs runs = lb_hub_count(s->hub).runs;
  if (runs.inside || runs.entered != s->runs.entered) s->last_run = now;
  s->runs = runs;
  return now - s->last_run > IDLE;
}

// May anything be compiled? If not, *wait_ns is when to ask again.
static bool may_compile(const lb_service *s, int64_t now, int64_t *wait_ns) {
  *wait_ns = -1;
  if (s->no_exec_memory || (!lb_service_has_background(s) && !s->settlers))
    return false;
  if (s->find_only && !s->settlers) return false;
  if ((s->settlers && s->try_now) || now >= s->backoff_until) return true;
  if (s->queue.n) *wait_ns = s->backoff_until - now;
  return false;
}

// A starting worker uses a processor for some 80 ms. Requests should not notice
// that, so it waits for a gap between them, but not for longer than
// START_DELAY.
static bool may_start(lb_service *s, const lb_queue_time *t, int64_t *wait_ns) {
  if (s->worker_prepared || t->idle || t->urgent || s->queue.n == 0)
    return true;
  if (!s->needed_since) s->needed_since = t->now_ns;
  int64_t left = s->needed_since + START_DELAY - t->now_ns;
  *wait_ns = left < IDLE ? left : IDLE;
  return left <= 0;
}

static lb_queue_time time_of(lb_service *s) {
  int64_t now = lb_clock_ns();
  return (lb_queue_time){.now_ns = now, .idle = is_idle(s, now)};
}

static void end_decided_trials(lb_service *s);

// Kernels on disk are preloaded for sessions that compile in the background.
static bool is_loading(const lb_service *s) {
  return s->preloading && lb_service_has_background(s);
}

// Called repeatedly while a kernel is compiled, so that decided trials do not
// wait for throttled work. Returns the payback of the current job, or of the
// best queued one if that is higher.
double lb_service_poll(void *user) {
  lb_service *s = user;
  end_decided_trials(s);
  lb_queue_time t = time_of(s);
  lb_lock_take(&s->lock);
  lb_service_collect(s);
  double best = lb_queue_best_payback(&s->queue, &t);
  double current = s->compiling ? lb_queue_payback(&s->queue, s->compiling) : 0;
  lb_lock_give(&s->lock);
  return current > best ? current : best;
}

static bool many_pay_soon(lb_service *s) {
  lb_queue_time t = time_of(s);
  lb_lock_take(&s->lock);
  size_t n = lb_queue_count(&s->queue, &t, 1 / LB_PACE_SOON_S);
  lb_lock_give(&s->lock);
  return n >= MANY_KERNELS;
}

// The slot to compile next, or NULL and how long to sleep. *find: only search
// for it on disk.
static lb_slot *next_job(lb_service *s, bool *find, int64_t *wait_ns) {
  lb_queue_time t = time_of(s);
  bool caches = lb_slots_has_capacity(s->slots);
  lb_slot *slot = NULL;
  lb_lock_take(&s->lock);
  uint64_t released = s->queue.released;
  lb_service_collect(s);
  t.urgent = s->settlers > 0;
  *wait_ns = -1;
  if (caches && s->has_store && !s->no_exec_memory &&
      (lb_service_has_background(s) || s->settlers))
    slot = lb_queue_take_unsearched(&s->queue);
  *find = slot != NULL;
  if (!caches)
    *wait_ns = s->queue.n ? BACKOFF : -1;
  else if (!slot && !is_loading(s) && may_compile(s, t.now_ns, wait_ns) &&
           may_start(s, &t, wait_ns))
    slot = lb_queue_take(&s->queue, &t, wait_ns);
  lb_service_unlock(s, released);
  return slot;
}

// Logs one line for a worker that fails or for refused executable memory,
// however often it is tried; another line only after it has worked.
static void warn(lb_service *s, lb_status st) {
  if (!s->warned)
    lb_log_line(s->log, LB_LOG_WARN, "no kernels are compiled: %s",
                lb_status_message(st));
  s->warned = true;
}

// The lock is held.
static void note_failure(lb_service *s, lb_status st) {
  int doublings = s->failures_in_row < 10 ? s->failures_in_row : 10;
  int64_t backoff = BACKOFF << doublings;
  s->failures++;
  s->failures_in_row++;
  s->try_now = false;
  s->backoff_until =
      lb_clock_ns() + (backoff < BACKOFF_MAX ? backoff : BACKOFF_MAX);
  s->fault = lb_status_code(st);
  s->no_exec_memory = s->fault == LB_DEVICE;
  if (s->no_exec_memory) atomic_store(&s->wants_samples, false);
  snprintf(s->why, sizeof s->why, "%s", lb_status_message(st));
}

// The key that was being compiled when the worker failed may be the cause. It
// is taken to be if that happens repeatedly and others succeed in between.
static void back_off_slot(lb_service *s, lb_slot *slot, lb_status st) {
  lb_slot_profile *p = lb_slot_profile_of(slot);
  if (s->failures_in_row == 0) p->failures++;
  atomic_store(&p->backoff_until,
               lb_clock_ns() + (BACKOFF << (p->failures + 1)));
  if (p->failures == MAX_FAILURES)
    lb_kernel_builder_give_up(s->builder, slot, lb_status_message(st));
}

// Clears what runs reported, as it no longer applies.
static void reset_profile(lb_slot_profile *p) {
  atomic_store_explicit(&p->ns, 0, memory_order_relaxed);
  atomic_store_explicit(&p->uses, 0, memory_order_relaxed);
  atomic_store_explicit(&p->compile_threshold, 0, memory_order_relaxed);
}

// A slot that failed stays in the queue.
static void finish(lb_service *s, lb_slot *slot, lb_status st, double us) {
  bool failed = lb_failed(st);
  lb_slot_profile *p = lb_slot_profile_of(slot);
  atomic_store(&p->urgent, 0);
  lb_lock_take(&s->lock);
  if (failed) {
    note_failure(s, st);
    lb_queue_put(&s->queue, slot);
  } else {
    lb_queue_learn_cost(&s->queue, slot, us);
    s->failures_in_row = 0;
    s->backoff_until = 0;
    s->try_now = true;
    reset_profile(p);
    atomic_store(&p->last_job, s->job);
    p->searched = false;
    atomic_store(&p->queued, false);
  }
  lb_lock_give(&s->lock);
  lb_service_wake_settlers(s);
}

static void emit_failure(lb_service *s, lb_status st) {
  bool had_request = lb_kernel_builder_had_request(s->builder);
  lb_event e = {.kind = LB_EVENT_WORKER_FAILED};
  switch (lb_status_code(st)) {
    case LB_CANCELLED: e.reason = LB_REASON_TIMED_OUT; break;
    case LB_DEVICE: e.reason = LB_REASON_REFUSED; break;
    case LB_IO:
      e.reason = had_request ? LB_REASON_CRASHED : LB_REASON_MISSING;
      break;
    default: e.reason = LB_REASON_FAILED;
  }
  if (lb_hub_listens(s->hub))
    lb_hub_put(s->hub, LB_HUB_ALL, &e, "%s", lb_status_message(st));
}

static void put_back(lb_service *s, lb_slot *slot) {
  lb_lock_take(&s->lock);
  lb_queue_put(&s->queue, slot);
  lb_lock_give(&s->lock);
}

// Microseconds of CPU time, without the time for which it was throttled: an
// estimate for other kernels of the same form.
static double cost_since(lb_service *s, int64_t before) {
  return 1e-3 * (double)(lb_throttle_spent(&s->throttle) - before);
}

static void search_disk(lb_service *s, lb_slot *slot) {
  int64_t before = lb_throttle_spent(&s->throttle);
  bool found;
  lb_status st = lb_kernel_builder_find(s->builder, slot, &found);
  lb_slot_profile_of(slot)->searched = true;
  if (lb_failed(st)) warn(s, st);
  if (found || lb_failed(st))
    finish(s, slot, st, cost_since(s, before));
  else
    put_back(s, slot);
  lb_status_drop(st);
}

// Another process compiles it, or the cache is too small for it: do not retry
// at once.
static bool is_postponed(lb_service *s, lb_slot *slot,
                         lb_compile_result result) {
  int64_t now = lb_clock_ns();
  lb_slot_profile *p = lb_slot_profile_of(slot);
  if (result == LB_COMPILE_TOO_LARGE) {
    atomic_store(&p->backoff_until, now + BACKOFF_MAX);
    atomic_store(&p->too_large, true);
  }
  if (result != LB_COMPILE_LATER) return false;
  atomic_store(&p->backoff_until, now + LEASE_POLL);
  p->searched = false;
  put_back(s, slot);
  return true;
}

// While contended, the worker is limited by its share; otherwise it yields to
// other programs. The nice value of a yielding process is raised again only for
// a caller that waits or for many kernels: without the privilege to do so, the
// process has to be replaced.
static void set_yields(lb_service *s, bool urgent) {
  bool contended = lb_pace_is_contended(&s->throttle.pace);
  bool yields = s->yields && !(contended && many_pay_soon(s));
  s->yields = !urgent && !s->throttle.options.off && (yields || !contended);
  lb_kernel_builder_set_yields(s->builder, s->yields);
}

static void compile_slot(lb_service *s, lb_slot *slot) {
  int64_t before = lb_throttle_spent(&s->throttle);
  bool pays_soon = lb_pace_pays_soon(&s->throttle.pace);
  lb_slot_profile *p = lb_slot_profile_of(slot);
  lb_compile_result result;
  set_yields(s, atomic_load(&p->urgent) > 0);
  s->compiling = slot;
  s->worker_prepared = true;
  lb_status st = lb_kernel_builder_compile(s->builder, slot, COMPILE_TIMEOUT_MS,
                                           pays_soon, &result);
  s->compiling = NULL;
  if (atomic_load(&s->stop)) {
    atomic_store(&p->queued, false);
    lb_status_drop(st);
    return;
  }
  if (!lb_failed(st)) {
    s->warned = false;
    if (is_postponed(s, slot, result)) return;
  } else {
    warn(s, st);
    emit_failure(s, st);
    if (lb_kernel_builder_had_request(s->builder)) back_off_slot(s, slot, st);
  }
  finish(s, slot, st, cost_since(s, before));
  lb_status_drop(st);
}

// Acts on decided trials. Kernels are published and withdrawn by this thread
// only, or evicted; then there is nothing to do.
static void end_decided_trials(lb_service *s) {
  lb_slot *slot;
  if (!atomic_exchange(&s->decided, false)) return;
  for (size_t i = 0; (slot = lb_slots_at(s->slots, i)); i++) {
    if (lb_slot_trial_state(slot) <= LB_TRIAL_OPEN) continue;
    lb_paired_test found = lb_trial_paired_test(lb_slot_trial(slot));
    lb_kernel_builder_end_trial(s->builder, slot, &found);
    lb_lock_take(&s->lock);
    lb_queue_learn_gain(&s->queue, slot, lb_paired_test_ratio(&found));
    lb_lock_give(&s->lock);
  }
}

// Sleeps for *left ns (below 0: without limit), but no longer than `most`. True
// if the thread was not woken and there is more time to sleep.
static bool wait_at_most(lb_service *s, unsigned seen, int64_t *left,
                         int64_t most) {
  bool all = *left >= 0 && *left <= most;
  lb_word_wait(&s->wake_count, seen, all ? *left : most);
  if (*left > most) *left -= most;
  return !all && atomic_load(&s->wake_count) == seen;
}

// A model was loaded and nothing runs: starts the worker's process now rather
// than while requests run.
static void prepare(lb_service *s) {
  if (s->worker_prepared || s->preloading || s->find_only ||
      !lb_service_has_background(s))
    return;
  if (!lb_slots_has_capacity(s->slots)) return;
  if (lb_hub_count(s->hub).runs.inside) return;
  lb_kernel_builder_prepare(s->builder);
  s->worker_prepared = true;
}

// Requests that arrive while the worker starts must not be slowed down.
static bool wait_for_startup(lb_service *s, unsigned seen, int64_t *left) {
  int64_t ns;
  bool more = true;
  while (more && lb_kernel_builder_is_starting(s->builder, &ns))
    more = wait_at_most(s, seen, left, ns);
  return more;
}

static void sleep_until_woken(lb_service *s, unsigned seen, int64_t wait_ns) {
  atomic_store(&s->asleep, true);
  bool more = wait_for_startup(s, seen, &wait_ns);
  more = more && wait_at_most(s, seen, &wait_ns, IDLE);
  if (more) lb_kernel_builder_flush_store(s->builder);
  if (more) prepare(s);
  more = more && wait_for_startup(s, seen, &wait_ns);
  more = more && wait_at_most(s, seen, &wait_ns, WORKER_IDLE);
  if (more) lb_kernel_builder_stop_worker(s->builder);
  if (more) lb_word_wait(&s->wake_count, seen, wait_ns);
  atomic_store(&s->asleep, false);
}

// Preloading comes after searching the disk for slots that runs queued, and
// before all compiling. A process that finds kernels on disk does not prepare a
// worker.
static void preload_next(lb_service *s) {
  lb_status_drop(lb_kernel_builder_preload(s->builder, &s->preloading));
  if (s->preloading) return;
  s->worker_prepared |= lb_kernel_builder_count(s->builder).found > 0;
  lb_kernel_builder_flush_store(s->builder);
  lb_service_wake_settlers(
      s);  // some of the kernels they wait for may be loaded
}

void *lb_service_main(void *user) {
  lb_service *s = user;
  lb_thread_name("limber-compile");
  lb_throttle_begin(&s->throttle);
  s->worker_prepared = false;
  for (;;) {
    // Read before `stop`: who stops the thread sets it and then wakes.
    unsigned seen = atomic_load(&s->wake_count);
    if (atomic_load(&s->stop)) return NULL;
    int64_t wait_ns;
    bool find;
    end_decided_trials(s);
    lb_kernel_builder_set_trials(s->builder,
                                 s->trials && lb_service_has_background(s));
    bool may_go = lb_throttle_grant(&s->throttle, &wait_ns) > 0;
    lb_slot *slot = may_go ? next_job(s, &find, &wait_ns) : NULL;
    if (slot) s->job = atomic_fetch_add(&s->jobs, 1) + 1;
    if (slot && find)
      search_disk(s, slot);
    else if (slot)
      compile_slot(s, slot);
    else if (may_go && is_loading(s))
      preload_next(s);
    else
      sleep_until_woken(s, seen, wait_ns);
  }
}
