// compile/service.c -- the thread that has kernels made.
//
// Lock order: s->lock, then nothing. It is held for as long as it takes to look
// through the queue, never while something is made.
//
// Those who ask push a slot on a stack and ring. The bell counts; the thread
// reads it before it looks for work, and sleeps only while it has not moved: no
// ring goes unheard. Whoever holds the lock empties the stack into the queue.
#include "compile/service.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/caller.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "compile/queue.h"

#define MS INT64_C(1000000)  // nanoseconds
#define REST (1000 * MS)     // after the first failure of the worker in a row
#define REST_MAX (60000 * MS)
#define IDLE (100 * MS)    // without a run: requests rest
#define START (500 * MS)   // for which the first start waits for that
#define LATER (20 * MS)    // between looks at what another process makes
#define KEEP (10000 * MS)  // the worker's process, with nothing to do
#define MAX_WAIT 1e9       // seconds

enum { NONE, STARTING, RUNNING };  // the thread of this process

enum {
  NOBODY = 0,       // the session of what no run has met
  MAKE_MS = 30000,  // more than any kernel takes: it hangs
  ATTEMPTS = 3,     // at a key that crashes the worker
  MANY = 4,         // kernels: a process that starts costs three
  MEMORY_MB = 1024,
};

struct lb_service {
  lb_maker *maker;    // owned
  lb_slots *slots;    // borrowed
  lb_hub *hub;        // borrowed; may be NULL
  const lb_log *log;  // borrowed
  lb_brake brake;
  bool judges, find_only, has_store;
  atomic_bool listens;
  char *worker;  // path; owned

  _Atomic(lb_slot *) asked;  // the stack
  atomic_uint bell;          // the thread sleeps on it
  atomic_bool asleep;
  atomic_uint news;  // something was made or failed; who settles sleeps on it
  atomic_bool stop;
  atomic_uint sessions;   // that ever joined
  atomic_int holders;     // who have kernels made in the background, now
  _Atomic uint64_t jobs;  // begun
  atomic_bool decided;    // some trial may be

  // The thread, and the process it belongs to.
  atomic_int thread_state;     // NONE, STARTING, RUNNING
  atomic_bool told;            // that it cannot be started
  atomic_bool resting;         // a thread is inside lb_service_rest
  atomic_uint forks, renewed;  // renewed: somebody has begun anew there
  pthread_t thread;

  lb_lock lock;  // of all below
  lb_queue queue;
  size_t looked_at;  // slots of the table that unmet ones were looked for among
  atomic_int settlers;  // read without the lock when the thread has ended
  uint64_t failures;    // of the worker; settle notices if it grows
  int failures_in_row;  // written by the thread alone
  int64_t rest_until;   // the worker is not tried before
  bool try_now;         // but for who began to settle since it failed
  lb_code fault;        // of the last failure
  char why[512];
  bool broken;  // for good: there is no executable memory

  // Of the thread alone.
  uint64_t job;     // the one in hand
  lb_slot *making;  // its slot, or NULL
  bool yields;      // the worker makes way for other programs
  bool warned;      // that nothing is made
  bool loads;       // what is on disk, a kernel at a time
  bool prepared;    // the worker was started, or is not needed
  int64_t awaited;  // since when it is needed; 0: it was not yet
  lb_pool_runs runs;
  int64_t last_run;
};

// -- life --------------------------------------------------------------------

static void collect(lb_service *s);
static double attend(void *user);

static void init_brake(lb_service *s, bool off) {
  lb_brake_options o = {
      .hub = s->hub, .off = off, .returns = attend, .user = s};
  lb_brake_init(&s->brake, &o);
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
  lb_maker_options m = o->maker;
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
  if (!lb_failed(st)) st = lb_maker_new(&m, &s->maker);
  if (lb_failed(st)) {
    lb_service_free(s);
  } else {
    *out = s;
  }
  return st;
}

static void ring(lb_service *s) {
  atomic_fetch_add(&s->bell, 1);
  if (atomic_load(&s->asleep)) lb_word_wake(&s->bell, 1);
}

static bool is_ours(const lb_service *s) {
  return atomic_load_explicit(&s->forks, memory_order_relaxed) ==
         lb_fork_count();
}

static bool is_held(const lb_service *s) {
  return atomic_load_explicit(&s->holders, memory_order_relaxed) > 0;
}

// Ends the thread, if there is one in this process.
static void stop(lb_service *s) {
  atomic_store(&s->stop, true);  // first: what is cancelled has not failed
  if (s->maker) lb_maker_cancel(s->maker);
  ring(s);
  if (atomic_load(&s->thread_state) == RUNNING && is_ours(s))
    pthread_join(s->thread, NULL);
}

void lb_service_free(lb_service *s) {
  if (!s) return;
  stop(s);
  collect(s);  // nobody asks any more
  lb_queue_clear(&s->queue);
  lb_maker_free(s->maker);
  free(s->worker);
  lb_lock_fini(&s->lock);
  free(s);
}

// Everything that the thread of another process had in hand is forgotten: by
// one thread of this one, while the others tell nothing. False if another does
// it.
static bool begin_anew(lb_service *s) {
  lb_slot *slot;
  unsigned forks = lb_fork_count();
  if (atomic_exchange(&s->renewed, forks) == forks) return false;
  for (size_t i = 0; (slot = lb_slots_at(s->slots, i)); i++)
    atomic_store(&slot->wish.asked, false);
  atomic_store(&s->asked, NULL);
  atomic_store(&s->decided, true);  // the other may have been about to act
  s->queue.n = 0;
  s->looked_at = 0;
  s->settlers = 0;
  s->making = NULL;
  s->loads = s->has_store;
  atomic_store(&s->resting, false);
  atomic_store(&s->stop, false);
  lb_maker_begin_anew(s->maker);
  init_brake(s, s->brake.options.off);
  atomic_store(&s->asleep, false);
  atomic_store(&s->thread_state, NONE);
  atomic_store(&s->forks, forks);
  return true;
}

static void *serve(void *user);

// 0 if there is a thread, or an error number.
static int start(lb_service *s) {
  if (!is_ours(s) && !begin_anew(s)) return EAGAIN;
  int none = NONE;
  if (atomic_load(&s->thread_state) != NONE) return 0;
  if (!atomic_compare_exchange_strong(&s->thread_state, &none, STARTING))
    return 0;
  int err = lb_thread_start(serve, s, &s->thread);
  atomic_store(&s->thread_state, err ? NONE : RUNNING);
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
// one is counted before it looks, and the state is NONE before the count is
// read, so one of the two starts another.
static void end_thread(lb_service *s) {
  while (atomic_load(&s->thread_state) == STARTING) sched_yield();
  if (atomic_load(&s->thread_state) == NONE) return;
  stop(s);
  lb_maker_resume(s->maker);
  lb_maker_rest(s->maker);
  atomic_store(&s->stop, false);
  atomic_store(&s->thread_state, NONE);
  if (is_needed(s)) (void)start(s);
}

void lb_service_rest(lb_service *s) {
  if (!is_ours(s)) return;  // nothing has begun in this process
  while (atomic_exchange(&s->resting, true)) sched_yield();
  if (!is_needed(s)) end_thread(s);
  atomic_store(&s->resting, false);
}

// -- asking ------------------------------------------------------------------

// True if it was not asked for yet.
static bool ask(lb_service *s, lb_slot *slot) {
  if (atomic_load_explicit(&slot->wish.asked, memory_order_relaxed) ||
      atomic_exchange(&slot->wish.asked, true))
    return false;
  lb_slot *top = atomic_load(&s->asked);
  do {
    atomic_store_explicit(&slot->wish.next, top, memory_order_relaxed);
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
  if (lb_service_listens(s) && !start(s) && first) ring(s);
}

void lb_service_let_go(lb_service *s) { atomic_fetch_sub(&s->holders, 1); }

// How many sightings make the slot ripe, after so many. True if it is ripe only
// now: by this one, or because the session asks for fewer than others did.
static bool ripens(lb_wish *w, unsigned sightings, unsigned seen) {
  unsigned was = atomic_load_explicit(&w->sightings, memory_order_relaxed);
  if (!sightings) sightings = LB_SIGHTINGS;
  if (was && was <= sightings) return seen == was;
  atomic_store_explicit(&w->sightings, sightings, memory_order_relaxed);
  return seen >= sightings;
}

void lb_service_tell(lb_service *s, lb_slot *slot, const lb_meeting *seen) {
  lb_wish *w = &slot->wish;
  if (start(s)) return;
  atomic_fetch_add_explicit(&w->ns, (uint64_t)seen->ns, memory_order_relaxed);
  if (atomic_load_explicit(&w->run, memory_order_relaxed) != seen->run) {
    atomic_store_explicit(&w->run, seen->run, memory_order_relaxed);
    atomic_store_explicit(&w->session, seen->session, memory_order_relaxed);
    unsigned n = atomic_fetch_add_explicit(&w->seen, 1, memory_order_relaxed);
    if (ripens(w, seen->sightings, n + 1)) ring(s);
  }
  if (ask(s, slot)) ring(s);
}

void lb_service_decided(lb_service *s) {
  atomic_store(&s->decided, true);  // whenever there is a thread
  if (start(s) == 0) ring(s);
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
  if (atomic_exchange(&s->slots->more_kin, false)) s->looked_at = 0;
  for (; (slot = lb_slots_at(s->slots, s->looked_at)); s->looked_at++)
    if (is_made_ahead(slot) && lb_slot_lacks(slot) &&
        !atomic_exchange(&slot->wish.asked, true))
      lb_queue_put(&s->queue, slot);
}

// The lock is held.
static void collect(lb_service *s) {
  lb_slot *slot = atomic_exchange(&s->asked, NULL), *next;
  for (; slot; slot = next) {
    next = atomic_load_explicit(&slot->wish.next, memory_order_relaxed);
    lb_queue_put(&s->queue, slot);
  }
  if (is_held(s)) collect_unmet(s);
}

static void tell_settlers(lb_service *s) {
  atomic_fetch_add(&s->news, 1);
  lb_word_wake(&s->news, INT_MAX);
}

// Gives the lock back. Who settles may have found that something is asked for,
// just before the queue let it go (`before`: so many then): it asks again.
static void give_lock(lb_service *s, uint64_t before) {
  bool some = s->queue.let_go != before;
  lb_lock_give(&s->lock);
  if (some) tell_settlers(s);
}

void lb_service_leave(lb_service *s, unsigned session) {
  if (!is_ours(s)) return;
  lb_lock_take(&s->lock);
  uint64_t let_go = s->queue.let_go;
  collect(s);
  lb_queue_drop(&s->queue, session);
  lb_queue_drop(&s->queue, NOBODY);
  give_lock(s, let_go);
}

// -- the thread --------------------------------------------------------------

static bool is_idle(lb_service *s, int64_t now) {
  lb_pool_runs runs = lb_hub_count(s->hub).runs;
  if (runs.inside || runs.entered != s->runs.entered) s->last_run = now;
  s->runs = runs;
  return now - s->last_run > IDLE;
}

// May anything be made? If not, *wait_ns says when to look again.
static bool may_make(const lb_service *s, int64_t now, int64_t *wait_ns) {
  *wait_ns = -1;
  if (s->broken || (!is_held(s) && !s->settlers)) return false;
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
static bool is_loading(const lb_service *s) { return s->loads && is_held(s); }

// For as long as something is made this is asked again and again: trials do not
// wait for what is held back. What is returned is by what is being made, or by
// what waits for it if that returns more.
static double attend(void *user) {
  lb_service *s = user;
  judge_decided(s);
  lb_queue_time t = time_of(s);
  lb_lock_take(&s->lock);
  collect(s);
  double best = lb_queue_best(&s->queue, &t);
  double mine = s->making ? lb_queue_returns(&s->queue, s->making) : 0;
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
  collect(s);
  t.urgent = s->settlers > 0;
  *wait_ns = -1;
  if (keeps && s->has_store && !s->broken && (is_held(s) || s->settlers))
    slot = lb_queue_take_new(&s->queue);
  *find = slot != NULL;
  if (!keeps)
    *wait_ns = s->queue.n ? REST : -1;
  else if (!slot && !is_loading(s) && may_make(s, t.now_ns, wait_ns) &&
           may_start(s, &t, wait_ns))
    slot = lb_queue_take(&s->queue, &t, wait_ns);
  give_lock(s, let_go);
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
  lb_wish *w = &slot->wish;
  if (s->failures_in_row == 0) w->failures++;
  atomic_store(&w->rest_until, lb_clock_ns() + (REST << (w->failures + 1)));
  if (w->failures == ATTEMPTS)
    lb_maker_give_up(s->maker, slot, lb_status_message(st));
}

// What was told of it is of no use any more.
static void forget(lb_slot *slot) {
  atomic_store_explicit(&slot->wish.ns, 0, memory_order_relaxed);
  atomic_store_explicit(&slot->wish.seen, 0, memory_order_relaxed);
  atomic_store_explicit(&slot->wish.sightings, 0, memory_order_relaxed);
}

// What failed stays in the queue.
static void finish(lb_service *s, lb_slot *slot, lb_status st, double us) {
  bool failed = lb_failed(st);
  atomic_store(&slot->wish.urgent, 0);
  lb_lock_take(&s->lock);
  if (failed) {
    note_failure(s, st);
    lb_queue_put(&s->queue, slot);
  } else {
    lb_queue_learn_cost(&s->queue, slot, us);
    s->failures_in_row = 0;
    s->rest_until = 0;
    s->try_now = true;
    forget(slot);
    atomic_store(&slot->wish.made, s->job);
    slot->wish.looked = false;
    atomic_store(&slot->wish.asked, false);
  }
  lb_lock_give(&s->lock);
  tell_settlers(s);
}

static void tell_failure(lb_service *s, lb_status st) {
  bool had_it = lb_maker_blames(s->maker);
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
  return 1e-3 * (double)(lb_brake_spent(&s->brake) - before);
}

static void look_for(lb_service *s, lb_slot *slot) {
  int64_t before = lb_brake_spent(&s->brake);
  bool found;
  lb_status st = lb_maker_find(s->maker, slot, &found);
  slot->wish.looked = true;
  if (lb_failed(st)) warn(s, st);
  if (found || lb_failed(st))
    finish(s, slot, st, cost_since(s, before));
  else
    put_back(s, slot);
  lb_status_drop(st);
}

// Another process makes it, or there is no room for it: not again at once.
static bool is_put_off(lb_service *s, lb_slot *slot, lb_made made) {
  int64_t now = lb_clock_ns();
  if (made == LB_MADE_LARGE) {
    atomic_store(&slot->wish.rest_until, now + REST_MAX);
    atomic_store(&slot->wish.large, true);
  }
  if (made != LB_MADE_LATER) return false;
  atomic_store(&slot->wish.rest_until, now + LATER);
  slot->wish.looked = false;
  put_back(s, slot);
  return true;
}

// Where requests press it takes its share and no more; else it makes way for
// other programs. A process that yields is not told otherwise but for who waits
// or for many: where that is not allowed, it has to be replaced.
static void set_yields(lb_service *s, bool urgent) {
  bool pressed = lb_pace_presses(&s->brake.pace);
  bool yields = s->yields && !(pressed && many_pay_soon(s));
  s->yields = !urgent && !s->brake.options.off && (yields || !pressed);
  lb_maker_set_yields(s->maker, s->yields);
}

static void make(lb_service *s, lb_slot *slot) {
  int64_t before = lb_brake_spent(&s->brake);
  bool hurries = lb_pace_hurries(&s->brake.pace);
  lb_made made;
  set_yields(s, atomic_load(&slot->wish.urgent) > 0);
  s->making = slot;
  s->prepared = true;
  lb_status st = lb_maker_make(s->maker, slot, MAKE_MS, hurries, &made);
  s->making = NULL;
  if (atomic_load(&s->stop)) {
    atomic_store(&slot->wish.asked, false);
    lb_status_drop(st);
    return;
  }
  if (!lb_failed(st)) {
    s->warned = false;
    if (is_put_off(s, slot, made)) return;
  } else {
    warn(s, st);
    tell_failure(s, st);
    if (lb_maker_blames(s->maker)) rest_slot(s, slot, st);
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
    if (lb_trial_at(&slot->trial) <= LB_TRIAL_OPEN) continue;
    lb_contest found = lb_trial_found(&slot->trial);
    lb_maker_judge(s->maker, slot, &found);
    lb_lock_take(&s->lock);
    lb_queue_learn_gain(&s->queue, slot, lb_contest_ratio(&found));
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
  if (s->prepared || s->loads || s->find_only || !is_held(s)) return;
  if (!lb_slots_keep(s->slots)) return;
  if (lb_hub_count(s->hub).runs.inside) return;
  lb_maker_prepare(s->maker);
  s->prepared = true;
}

// Requests that come while it gets ready are not to feel that.
static bool nap_until_ready(lb_service *s, unsigned seen, int64_t *left) {
  int64_t ns;
  bool more = true;
  while (more && lb_maker_gets_ready(s->maker, &ns))
    more = nap(s, seen, left, ns);
  return more;
}

static void sleep_until_rung(lb_service *s, unsigned seen, int64_t wait_ns) {
  atomic_store(&s->asleep, true);
  bool more = nap_until_ready(s, seen, &wait_ns);
  more = more && nap(s, seen, &wait_ns, IDLE);
  if (more) lb_maker_note(s->maker);
  if (more) prepare(s);
  more = more && nap_until_ready(s, seen, &wait_ns);
  more = more && nap(s, seen, &wait_ns, KEEP);
  if (more) lb_maker_rest(s->maker);
  if (more) lb_word_wait(&s->bell, seen, wait_ns);
  atomic_store(&s->asleep, false);
}

// Behind what runs have asked for, and ahead of all that is to be made. A
// process that finds kernels need not have a worker ready.
static void load_more(lb_service *s) {
  lb_status_drop(lb_maker_preload(s->maker, &s->loads));
  if (s->loads) return;
  s->prepared |= lb_maker_count(s->maker).found > 0;
  lb_maker_note(s->maker);
  tell_settlers(s);  // some of what they asked for may be there
}

static void *serve(void *user) {
  lb_service *s = user;
  lb_thread_name("limber-compile");
  lb_brake_begin(&s->brake);
  s->prepared = false;
  while (!atomic_load(&s->stop)) {
    unsigned seen = atomic_load(&s->bell);
    int64_t wait_ns;
    bool find;
    judge_decided(s);
    lb_maker_set_judges(s->maker, s->judges && is_held(s));
    bool goes = lb_brake_lets_go(&s->brake, &wait_ns) > 0;
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

// -- settling ----------------------------------------------------------------

typedef struct settler {
  lb_service *s;
  const lb_settle *how;
  uint64_t users;  // as lb_hub_put has them
  uint64_t since;  // jobs that began before
  size_t left;
  size_t needed;  // of these, by plans as they are
} settler;

// What was made since is done, even if it had to make room for others.
static bool counts(const settler *t, const lb_slot *slot) {
  return lb_slot_lacks(slot) && lb_slot_users(slot) & t->users &&
         atomic_load(&slot->wish.made) <= t->since &&
         (!t->how->critical || lb_spec_is_critical(&slot->key.spec));
}

// There may be room by now for what a job that began before had none for.
static void ask_urgently(settler *t, lb_slot *slot, int how_urgent) {
  if (!counts(t, slot)) return;
  if (atomic_exchange(&slot->wish.large, false))
    atomic_store(&slot->wish.rest_until, 0);
  int was = atomic_load(&slot->wish.urgent);
  if (was < how_urgent) atomic_store(&slot->wish.urgent, how_urgent);
  ask(t->s, slot);
}

static void ask_first(void *user, lb_slot *slot) {
  ask_urgently(user, slot, 2);
}

// Asks for all that lacks, and counts it.
static void ask_for_all(settler *t, bool first) {
  lb_slot *slot;
  t->left = t->needed = 0;
  for (size_t i = 0; (slot = lb_slots_at(t->s->slots, i)); i++) {
    if (first) atomic_store(&slot->wish.rest_until, 0);
    t->left += counts(t, slot);
    t->needed += counts(t, slot) && atomic_load(&slot->planned) & t->users;
    ask_urgently(t, slot, 1);
  }
  if (t->left) ring(t->s);
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
  while (!is_ours(s) && !begin_anew(s)) sched_yield();
}

static uint64_t enter(lb_service *s, int by) {
  lb_lock_take(&s->lock);
  s->settlers += by;
  lb_brake_hurry(&s->brake, by);
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
  int err = start(s);  // once it is counted that somebody waits
  if (err) st = lb_error(LB_IO, "no thread to compile: %s", strerror(err));
  if (!err && how->each) how->each(how->user, ask_first, &t);
  if (!err) st = wait_for_all(&t, failures);
  enter(s, -1);
  lb_detour_end(began);
  return st;
}

// -- numbers -----------------------------------------------------------------

lb_service_stats lb_service_count(lb_service *s) {
  lb_service_stats n = {.made = lb_maker_count(s->maker)};
  lb_lock_take(&s->lock);
  collect(s);
  n.waiting = s->queue.n;
  n.failures = s->failures;
  lb_lock_give(&s->lock);
  return n;
}

bool lb_service_built(lb_service *s, size_t i, lb_built *out) {
  return lb_maker_built(s->maker, i, out);
}
