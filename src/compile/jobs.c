// compile/jobs.c -- the thread that has kernels made.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "compile/service_internal.h"

#define MS INT64_C(1000000)  // nanoseconds
#define REST (1000 * MS)     // after the first failure of the worker in a row
#define REST_MAX (60000 * MS)
#define IDLE (100 * MS)    // without a run: requests rest
#define START (500 * MS)   // for which the first start waits for that
#define LATER (20 * MS)    // between looks at what another process makes
#define KEEP (10000 * MS)  // the worker's process, with nothing to do

enum {
  MAKE_MS = 30000,  // more than any kernel takes: it hangs
  ATTEMPTS = 3,     // at a key that crashes the worker
  MANY = 4,         // kernels: a process that starts costs three
};

static bool is_idle(lb_service *s, int64_t now) {
  lb_pool_runs runs = lb_hub_count(s->hub).runs;
  if (runs.inside || runs.entered != s->runs.entered) s->last_run = now;
  s->runs = runs;
  return now - s->last_run > IDLE;
}

// May anything be made? If not, *wait_ns says when to look again.
static bool may_make(const lb_service *s, int64_t now, int64_t *wait_ns) {
  *wait_ns = -1;
  if (s->broken || (!lb_service_is_held(s) && !s->settlers)) return false;
  if (s->find_only && !s->settlers) return false;
  if ((s->settlers && s->try_now) || now >= s->rest_until) return true;
  if (s->queue.n) *wait_ns = s->rest_until - now;
  return false;
}

// Its process takes a processor for some 80 ms when it starts: requests are not
// to feel that, unless there is no gap between them.
static bool may_start(lb_service *s, const lb_queue_time *t, int64_t *wait_ns) {
  if (s->prepared || t->idle || t->urgent || s->queue.n == 0) return true;
  if (!s->awaited) s->awaited = t->now_ns;
  int64_t left = s->awaited + START - t->now_ns;
  *wait_ns = left < IDLE ? left : IDLE;
  return left <= 0;
}

static lb_queue_time time_of(lb_service *s) {
  int64_t now = lb_clock_ns();
  return (lb_queue_time){.now_ns = now, .idle = is_idle(s, now)};
}

static void judge_decided(lb_service *s);

// What is on disk, for sessions that have kernels made in the background.
static bool is_loading(const lb_service *s) {
  return s->loads && lb_service_is_held(s);
}

// For as long as something is made this is asked again and again: trials do not
// wait for what is held back. What is returned is by what is being made, or by
// what waits for it if that returns more.
double lb_service_attend(void *user) {
  lb_service *s = user;
  judge_decided(s);
  lb_queue_time t = time_of(s);
  lb_lock_take(&s->lock);
  lb_service_collect(s);
  double best = lb_queue_best(&s->queue, &t);
  double mine = s->making ? lb_queue_payback(&s->queue, s->making) : 0;
  lb_lock_give(&s->lock);
  return mine > best ? mine : best;
}

static bool many_pay_soon(lb_service *s) {
  lb_queue_time t = time_of(s);
  lb_lock_take(&s->lock);
  size_t n = lb_queue_count(&s->queue, &t, 1 / LB_PACE_SOON);
  lb_lock_give(&s->lock);
  return n >= MANY;
}

// The slot to make next, or NULL and how long to sleep. *find: it is only to be
// looked for on disk.
static lb_slot *next_job(lb_service *s, bool *find, int64_t *wait_ns) {
  lb_queue_time t = time_of(s);
  bool keeps = lb_slots_keep(s->slots);
  lb_slot *slot = NULL;
  lb_lock_take(&s->lock);
  uint64_t let_go = s->queue.let_go;
  lb_service_collect(s);
  t.urgent = s->settlers > 0;
  *wait_ns = -1;
  if (keeps && s->has_store && !s->broken &&
      (lb_service_is_held(s) || s->settlers))
    slot = lb_queue_take_new(&s->queue);
  *find = slot != NULL;
  if (!keeps)
    *wait_ns = s->queue.n ? REST : -1;
  else if (!slot && !is_loading(s) && may_make(s, t.now_ns, wait_ns) &&
           may_start(s, &t, wait_ns))
    slot = lb_queue_take(&s->queue, &t, wait_ns);
  lb_service_give_lock(s, let_go);
  return slot;
}

// One line for a worker that fails or memory that is refused, however often it
// is tried; another only after it has worked.
static void warn(lb_service *s, lb_status st) {
  if (!s->warned)
    lb_log_line(s->log, LB_LOG_WARN, "no kernels are compiled: %s",
                lb_status_message(st));
  s->warned = true;
}

// The lock is held.
static void note_failure(lb_service *s, lb_status st) {
  int doublings = s->failures_in_row < 10 ? s->failures_in_row : 10;
  int64_t rest = REST << doublings;
  s->failures++;
  s->failures_in_row++;
  s->try_now = false;
  s->rest_until = lb_clock_ns() + (rest < REST_MAX ? rest : REST_MAX);
  s->fault = lb_status_code(st);
  s->broken = s->fault == LB_DEVICE;
  if (s->broken) atomic_store(&s->listens, false);
  snprintf(s->why, sizeof s->why, "%s", lb_status_message(st));
}

// A key that was being made when the worker failed may be why: surely so if
// that happens again and again, and others are made in between.
static void rest_slot(lb_service *s, lb_slot *slot, lb_status st) {
  lb_slot_profile *p = lb_slot_profile_of(slot);
  if (s->failures_in_row == 0) p->failures++;
  atomic_store(&p->rest_until, lb_clock_ns() + (REST << (p->failures + 1)));
  if (p->failures == ATTEMPTS)
    lb_kernel_builder_give_up(s->maker, slot, lb_status_message(st));
}

// What was told of it is of no use any more.
static void forget(lb_slot_profile *p) {
  atomic_store_explicit(&p->ns, 0, memory_order_relaxed);
  atomic_store_explicit(&p->seen, 0, memory_order_relaxed);
  atomic_store_explicit(&p->compile_threshold, 0, memory_order_relaxed);
}

// What failed stays in the queue.
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
    s->rest_until = 0;
    s->try_now = true;
    forget(p);
    atomic_store(&p->made, s->job);
    p->looked = false;
    atomic_store(&p->asked, false);
  }
  lb_lock_give(&s->lock);
  lb_service_wake_settlers(s);
}

static void tell_failure(lb_service *s, lb_status st) {
  bool had_it = lb_kernel_builder_blames(s->maker);
  lb_event e = {.kind = LB_EVENT_WORKER_FAILED};
  switch (lb_status_code(st)) {
    case LB_CANCELLED: e.reason = LB_REASON_TIMED_OUT; break;
    case LB_DEVICE: e.reason = LB_REASON_REFUSED; break;
    case LB_IO:
      e.reason = had_it ? LB_REASON_CRASHED : LB_REASON_MISSING;
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

// Microseconds of processor time: others of the same form will cost as much,
// however long it was held back.
static double cost_since(lb_service *s, int64_t before) {
  return 1e-3 * (double)(lb_throttle_spent(&s->brake) - before);
}

static void look_for(lb_service *s, lb_slot *slot) {
  int64_t before = lb_throttle_spent(&s->brake);
  bool found;
  lb_status st = lb_kernel_builder_find(s->maker, slot, &found);
  lb_slot_profile_of(slot)->looked = true;
  if (lb_failed(st)) warn(s, st);
  if (found || lb_failed(st))
    finish(s, slot, st, cost_since(s, before));
  else
    put_back(s, slot);
  lb_status_drop(st);
}

// Another process makes it, or there is no room for it: not again at once.
static bool is_put_off(lb_service *s, lb_slot *slot, lb_compile_result made) {
  int64_t now = lb_clock_ns();
  lb_slot_profile *p = lb_slot_profile_of(slot);
  if (made == LB_COMPILE_TOO_LARGE) {
    atomic_store(&p->rest_until, now + REST_MAX);
    atomic_store(&p->large, true);
  }
  if (made != LB_COMPILE_LATER) return false;
  atomic_store(&p->rest_until, now + LATER);
  p->looked = false;
  put_back(s, slot);
  return true;
}

// Where requests press it takes its share and no more; else it makes way for
// other programs. A process that yields is not told otherwise but for who waits
// or for many: where that is not allowed, it has to be replaced.
static void set_yields(lb_service *s, bool urgent) {
  bool pressed = lb_pace_is_contended(&s->brake.pace);
  bool yields = s->yields && !(pressed && many_pay_soon(s));
  s->yields = !urgent && !s->brake.options.off && (yields || !pressed);
  lb_kernel_builder_set_yields(s->maker, s->yields);
}

static void make(lb_service *s, lb_slot *slot) {
  int64_t before = lb_throttle_spent(&s->brake);
  bool hurries = lb_pace_hurries(&s->brake.pace);
  lb_slot_profile *p = lb_slot_profile_of(slot);
  lb_compile_result made;
  set_yields(s, atomic_load(&p->urgent) > 0);
  s->making = slot;
  s->prepared = true;
  lb_status st =
      lb_kernel_builder_make(s->maker, slot, MAKE_MS, hurries, &made);
  s->making = NULL;
  if (atomic_load(&s->stop)) {
    atomic_store(&p->asked, false);
    lb_status_drop(st);
    return;
  }
  if (!lb_failed(st)) {
    s->warned = false;
    if (is_put_off(s, slot, made)) return;
  } else {
    warn(s, st);
    tell_failure(s, st);
    if (lb_kernel_builder_blames(s->maker)) rest_slot(s, slot, st);
  }
  finish(s, slot, st, cost_since(s, before));
  lb_status_drop(st);
}

// Acts on trials that are decided. Kernels come and go by this thread, or go
// for lack of room: then there is nothing to do.
static void judge_decided(lb_service *s) {
  lb_slot *slot;
  if (!atomic_exchange(&s->decided, false)) return;
  for (size_t i = 0; (slot = lb_slots_at(s->slots, i)); i++) {
    if (lb_slot_trial_state(slot) <= LB_TRIAL_OPEN) continue;
    lb_paired_test found = lb_trial_found(lb_slot_trial(slot));
    lb_kernel_builder_judge(s->maker, slot, &found);
    lb_lock_take(&s->lock);
    lb_queue_learn_gain(&s->queue, slot, lb_paired_test_ratio(&found));
    lb_lock_give(&s->lock);
  }
}

// Sleeps for *left ns (below 0: without end), but no longer than `most`. True
// if nobody rang, and there is more to sleep.
static bool nap(lb_service *s, unsigned seen, int64_t *left, int64_t most) {
  bool all = *left >= 0 && *left <= most;
  lb_word_wait(&s->bell, seen, all ? *left : most);
  if (*left > most) *left -= most;
  return !all && atomic_load(&s->bell) == seen;
}

// A model was loaded, and nobody runs it: the process that will be needed
// starts now, and not while requests run.
static void prepare(lb_service *s) {
  if (s->prepared || s->loads || s->find_only || !lb_service_is_held(s)) return;
  if (!lb_slots_keep(s->slots)) return;
  if (lb_hub_count(s->hub).runs.inside) return;
  lb_kernel_builder_prepare(s->maker);
  s->prepared = true;
}

// Requests that come while it gets ready are not to feel that.
static bool nap_until_ready(lb_service *s, unsigned seen, int64_t *left) {
  int64_t ns;
  bool more = true;
  while (more && lb_kernel_builder_gets_ready(s->maker, &ns))
    more = nap(s, seen, left, ns);
  return more;
}

static void sleep_until_rung(lb_service *s, unsigned seen, int64_t wait_ns) {
  atomic_store(&s->asleep, true);
  bool more = nap_until_ready(s, seen, &wait_ns);
  more = more && nap(s, seen, &wait_ns, IDLE);
  if (more) lb_kernel_builder_note(s->maker);
  if (more) prepare(s);
  more = more && nap_until_ready(s, seen, &wait_ns);
  more = more && nap(s, seen, &wait_ns, KEEP);
  if (more) lb_kernel_builder_rest(s->maker);
  if (more) lb_word_wait(&s->bell, seen, wait_ns);
  atomic_store(&s->asleep, false);
}

// Behind what runs have asked for, and ahead of all that is to be made. A
// process that finds kernels need not have a worker ready.
static void load_more(lb_service *s) {
  lb_status_drop(lb_kernel_builder_preload(s->maker, &s->loads));
  if (s->loads) return;
  s->prepared |= lb_kernel_builder_count(s->maker).found > 0;
  lb_kernel_builder_note(s->maker);
  lb_service_wake_settlers(s);  // some of what they asked for may be there
}

void *lb_service_serve(void *user) {
  lb_service *s = user;
  lb_thread_name("limber-compile");
  lb_throttle_begin(&s->brake);
  s->prepared = false;
  while (!atomic_load(&s->stop)) {
    unsigned seen = atomic_load(&s->bell);
    int64_t wait_ns;
    bool find;
    judge_decided(s);
    lb_kernel_builder_set_judges(s->maker, s->judges && lb_service_is_held(s));
    bool goes = lb_throttle_lets_go(&s->brake, &wait_ns) > 0;
    lb_slot *slot = goes ? next_job(s, &find, &wait_ns) : NULL;
    if (slot) s->job = atomic_fetch_add(&s->jobs, 1) + 1;
    if (slot && find)
      look_for(s, slot);
    else if (slot)
      make(s, slot);
    else if (goes && is_loading(s))
      load_more(s);
    else
      sleep_until_rung(s, seen, wait_ns);
  }
  return NULL;
}
