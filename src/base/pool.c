// base/pool.c -- one thread pool per runtime.
//
// Terms. A *job* is one call of lb_pool_for; its caller owns a *slot* while it
// runs. A worker *helps* a job from the moment it is counted in slot.helpers.
// The chunks of a job are dealt out in *lanes*, one for each thread: a thread
// takes those of its own lane, then what is left of the others'. The same
// thread thus gets the same chunks run after run, and finds its share of the
// weights in its own cache.
//
// (1) Slots live as long as the pool. A worker counts itself in, then looks
//     whether the slot is open; the caller closes the slot, then waits until
//     nobody is counted. Both steps are sequentially consistent, so a worker
//     that saw the slot open is waited for, and the fields it read are those
//     of a live job.
// (2) The caller claims chunks like any helper, so that a job ends even if no
//     worker comes. It waits for chunks that a helper has already begun, never
//     for one to begin. With all slots taken it works alone.
// (3) `epoch` moves after a slot opens. A worker reads it before it looks for
//     work, and sleeps only while it has not moved: no job goes unseen.
// (4) With as many runs inside as there are threads every one has its caller:
//     jobs then stay with theirs, and workers do not spin.
// (5) Threads that share a processor take turns of milliseconds: a worker that
//     finds itself where a run is leaves, and one that was woken there, and
//     waits for its turn, is sent away by the run. Where there is no other
//     processor the run works alone.
// (6) Two workers that share a processor take turns, too, while one of them
//     holds a chunk that its run waits for. So no more threads take part than
//     there are processors: `width`, looked at when a run enters, now and then.
//     Workers behind it sleep on it, until it moves.
// (7) There is no lock on the way of a job, so none can be held by a thread
//     that a fork left behind. The child's copy is emptied inside fork.
#include "base/pool.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/thread.h"

#define SLOTS 16          // jobs that can have helpers at the same time
#define MAX_THREADS 1024  // a pool larger than this is a mistake
#define LANES 16
#define MAX_CHUNKS INT32_MAX  // of a job that is shared
#define IDLE_SPIN_US 1000     // a worker without work, while a run is inside
#define LINGER_US 50          // the same, after the last run has left
#define JOIN_SPIN_US 50       // a caller, for helpers in their last chunk
#define LATE_US 50            // a worker that was woken comes before
#define LOOK_US 100000        // between looks at what processors there are
#define STACK_PAGES 8         // that tasks may need
#define PAGE 4096

typedef struct work {
  lb_pool_fn *fn;
  void *user;  // borrowed
  int64_t n, grain;
} work;

typedef struct lane {
  atomic_uint next;  // chunk to be claimed
  atomic_uint end;
} lane;

// Two threads share one cache line, and find all of a job in it.
typedef struct slot {
  _Alignas(64) atomic_bool taken;  // by a caller
  atomic_bool open;                // helpers may join
  atomic_bool joining;             // the caller may sleep on `helpers`
  atomic_uint helpers;
  atomic_int n_lanes;
  work work;  // read by the helpers of an open slot only
  lane first[2];
  struct {
    _Alignas(64) lane lane;
  } others[LANES - 2];
} slot;
_Static_assert(offsetof(slot, others) == 64, "one line");

typedef struct worker {
  lb_pool *pool;  // borrowed
  pthread_t thread;
  int id;          // from 1; the caller of a job is 0
  atomic_int tid;  // 0: not known
  atomic_bool parked;
} worker;

struct lb_pool {
  _Alignas(64)
      atomic_uint epoch;   // of published jobs; parked workers sleep on it
  atomic_int inside;       // runs
  atomic_ullong entered;   // runs that began
  atomic_int cpu;          // where the last of them, or of jobs, did
  atomic_llong woken_us;   // when workers were that have not come yet; 0: none
  atomic_llong looked_us;  // when width was looked at
  atomic_uint width;       // threads that take part; others sleep on it
  _Alignas(64) atomic_int parked;
  atomic_int spinning;
  atomic_uint forks;    // how many forks this copy of the pool is away
  atomic_bool started;  // the workers, as many as could be
  atomic_bool stop;
  pthread_mutex_t starting;
  int threads;
  int running;      // workers; guarded by `starting`
  worker *workers;  // owned; threads - 1
  lb_pool *next;    // in the list of all pools
  slot slots[SLOTS];
};

// Which pool's task this thread is in, if any, and as which worker.
static _Thread_local struct {
  const lb_pool *pool;
  int id;
} task;

// -- waiting ----------------------------------------------------------------

static void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now_us(void) { return lb_clock_ns() / 1000; }

// A bounded busy wait; the clock is looked at now and then.
typedef struct spinner {
  int64_t until_us;
  unsigned turns;
} spinner;

static bool spin(spinner *s) {
  cpu_relax();
  return ++s->turns % 64 != 0 || now_us() < s->until_us;
}

// -- jobs -------------------------------------------------------------------

static int64_t chunk_count(const work *w) {
  return w->n / w->grain + (w->n % w->grain != 0);
}

static void run_chunk(const work *w, int64_t i, int id) {
  int64_t begin = i * w->grain;
  int64_t end = w->n - begin > w->grain ? begin + w->grain : w->n;
  w->fn(w->user, begin, end, id);
}

static void run_alone(const work *w, int id) {
  int64_t chunks = chunk_count(w);
  for (int64_t i = 0; i < chunks; i++) run_chunk(w, i, id);
}

static lane *lane_of(slot *s, int i) {
  return i < 2 ? &s->first[i] : &s->others[i - 2].lane;
}

static bool is_left(const lane *l) {
  return atomic_load_explicit(&l->next, memory_order_relaxed) <
         atomic_load_explicit(&l->end, memory_order_relaxed);
}

static void run_lane(const work *w, lane *l, int id) {
  unsigned end = atomic_load_explicit(&l->end, memory_order_relaxed), i;
  while ((i = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed)) <
         end)
    run_chunk(w, i, id);
}

// Claims and runs chunks until none is left.
static void run_chunks(lb_pool *p, slot *s, int id) {
  int n = atomic_load_explicit(&s->n_lanes, memory_order_relaxed);
  const lb_pool *outer_pool = task.pool;
  int outer_id = task.id;
  task.pool = p;
  task.id = id;
  run_lane(&s->work, lane_of(s, id % n), id);
  for (int i = 1; i < n; i++) {
    lane *l = lane_of(s, (id + i) % n);
    if (is_left(l)) run_lane(&s->work, l, id);
  }
  task.pool = outer_pool;
  task.id = outer_id;
}

static slot *take_slot(lb_pool *p) {
  for (int i = 0; i < SLOTS; i++) {
    slot *s = &p->slots[i];
    if (atomic_load_explicit(&s->taken, memory_order_relaxed)) continue;
    if (!atomic_exchange(&s->taken, true)) return s;
  }
  return NULL;
}

static void deal(const lb_pool *p, slot *s, int64_t chunks) {
  int n = p->threads < LANES ? p->threads : LANES;
  if (chunks < n) n = (int)chunks;
  unsigned each = (unsigned)(chunks / n), more = (unsigned)(chunks % n);
  unsigned at = 0;
  for (int i = 0; i < n; i++) {
    lane *l = lane_of(s, i);
    atomic_store_explicit(&l->next, at, memory_order_relaxed);
    at += each + ((unsigned)i < more);
    atomic_store_explicit(&l->end, at, memory_order_relaxed);
  }
  atomic_store_explicit(&s->n_lanes, n, memory_order_relaxed);
}

static void send_away(lb_pool *p) {
  int here = lb_cpu_here();
  for (int i = 0; i < p->threads - 1; i++) {
    worker *w = &p->workers[i];
    int tid = atomic_load(&w->tid);
    if (tid && atomic_load(&w->parked)) (void)lb_cpu_leave(tid, here);
  }
}

// Who sleeps is where the system left it, who was woken where it pleased to put
// it: behind this very thread, at times, though others are idle.
static void wake(lb_pool *p, int count) {
  int64_t now = now_us(), since = atomic_load(&p->woken_us);
  lb_word_wake(&p->epoch, count);
  if (since == 0) atomic_store(&p->woken_us, now);
  if (since == 0 || now - since < LATE_US) return;
  send_away(p);
  atomic_store(&p->woken_us, INT64_MAX);  // once is enough
}

// Opens the slot, and wakes as many workers as there are chunks for, less
// those that are looking already.
static void publish(lb_pool *p, slot *s, const work *w) {
  int64_t chunks = chunk_count(w);
  s->work = *w;
  deal(p, s, chunks);
  atomic_store_explicit(&p->cpu, lb_cpu_here(), memory_order_relaxed);
  atomic_store(&s->open, true);
  atomic_fetch_add(&p->epoch, 1);
  int parked = atomic_load(&p->parked);
  int64_t wanted = chunks - 1 - atomic_load(&p->spinning);
  if (parked > 0 && wanted > 0) wake(p, wanted < parked ? (int)wanted : parked);
}

// Closes the slot and waits for the chunks that helpers have begun. After a
// fork from inside a task these have no thread: the child goes on without.
static void join(lb_pool *p, slot *s, unsigned forks) {
  unsigned seen;
  atomic_store(&s->open, false);
  for (int i = 0; i < 16; i++, cpu_relax())
    if (!atomic_load(&s->helpers)) return;
  spinner spinning = {.until_us = now_us() + JOIN_SPIN_US};
  while (atomic_load(&s->helpers) && spin(&spinning)) continue;
  if (!atomic_load(&s->helpers)) return;
  atomic_store(&s->joining, true);
  while ((seen = atomic_load(&s->helpers)) && atomic_load(&p->forks) == forks)
    lb_word_wait(&s->helpers, seen, -1);
  atomic_store(&s->joining, false);
}

static void run_shared(lb_pool *p, const work *w) {
  slot *s = take_slot(p);
  if (!s) {
    run_alone(w, 0);
    return;
  }
  unsigned forks = atomic_load(&p->forks);
  publish(p, s, w);
  run_chunks(p, s, 0);
  join(p, s, forks);
  if (atomic_load(&p->forks) == forks)
    atomic_store_explicit(&s->taken, false, memory_order_release);
}

// -- workers ----------------------------------------------------------------

static bool has_work(slot *s) {
  int n = atomic_load_explicit(&s->n_lanes, memory_order_relaxed);
  for (int i = 0; i < n; i++)
    if (is_left(lane_of(s, i))) return true;
  return false;
}

// The open job with the fewest helpers, so that callers share the workers.
static slot *choose_slot(lb_pool *p) {
  slot *best = NULL;
  unsigned fewest = UINT_MAX;
  for (int i = 0; i < SLOTS; i++) {
    slot *s = &p->slots[i];
    if (!atomic_load(&s->open) || !has_work(s)) continue;
    unsigned helpers = atomic_load_explicit(&s->helpers, memory_order_relaxed);
    if (helpers >= fewest) continue;
    fewest = helpers;
    best = s;
  }
  return best;
}

static void help(lb_pool *p, slot *s, int id, unsigned forks) {
  atomic_fetch_add(&s->helpers, 1);
  if (atomic_load(&s->open)) run_chunks(p, s, id);
  if (atomic_load(&p->forks) != forks) return;  // the count began anew
  if (atomic_fetch_sub(&s->helpers, 1) == 1 && atomic_load(&s->joining))
    lb_word_wake(&s->helpers, 1);
}

static int width_of(const lb_pool *p) {
  return (int)atomic_load_explicit(&p->width, memory_order_relaxed);
}

// Runs are inside, and fewer than there are threads for.
static bool is_spare(const lb_pool *p) {
  int inside = atomic_load(&p->inside);
  return inside > 0 && inside < width_of(p);
}

static void spin_idle(lb_pool *p, unsigned seen) {
  spinner spinning = {.until_us = now_us() + IDLE_SPIN_US};
  bool lingers = false;
  while (atomic_load(&p->epoch) == seen && spin(&spinning)) {
    if (is_spare(p)) {
      if (lingers) spinning.until_us = now_us() + IDLE_SPIN_US;
      lingers = false;
    } else if (atomic_load(&p->inside) > 0 || atomic_load(&p->stop)) {
      return;
    } else if (!lingers) {
      spinning.until_us = now_us() + LINGER_US;
      lingers = true;
    }
  }
}

static void park(worker *w, unsigned seen) {
  lb_pool *p = w->pool;
  atomic_store(&w->parked, true);
  atomic_fetch_add(&p->parked, 1);
  lb_word_wait(&p->epoch, seen, -1);
  atomic_fetch_sub(&p->parked, 1);
  atomic_store(&w->parked, false);
  atomic_store(&p->woken_us, 0);
}

// Returns when the epoch has moved on from `seen`, or for no reason.
static void idle(worker *w, unsigned seen) {
  lb_pool *p = w->pool;
  if (is_spare(p)) {
    atomic_fetch_add(&p->spinning, 1);
    spin_idle(p, seen);
    atomic_fetch_sub(&p->spinning, 1);
  }
  if (atomic_load(&p->epoch) == seen) park(w, seen);
}

// Whether this thread keeps a run from its processor.
static bool is_in_the_way(const lb_pool *p) {
  int here = lb_cpu_here();
  return here >= 0 && atomic_load(&p->inside) > 0 &&
         here == atomic_load_explicit(&p->cpu, memory_order_relaxed);
}

// The first malloc of a thread makes a heap of its own, and its first deep call
// the pages of its stack: neither is to happen in a request.
static void settle_in(void) {
  volatile char stack[STACK_PAGES * PAGE];
  for (size_t i = 0; i < sizeof stack; i += PAGE) stack[i] = 0;
  void *volatile p = malloc(1);
  free(p);
}

// A worker whose task forked leaves the child's pool to the new workers.
static void *worker_main(void *arg) {
  worker *w = arg;
  lb_pool *p = w->pool;
  char name[16];
  snprintf(name, sizeof name, "limber-%d", w->id);
  lb_thread_name(name);
  settle_in();
  atomic_store(&w->tid, lb_thread_id());
  unsigned forks = atomic_load(&p->forks);
  for (;;) {
    unsigned seen = atomic_load(&p->epoch), width = atomic_load(&p->width);
    // Both move when the pool stops, after the word that says so.
    if (atomic_load(&p->stop) || atomic_load(&p->forks) != forks) break;
    if ((unsigned)w->id >= width) {
      lb_word_wait(&p->width, width, -1);
      continue;
    }
    bool apart = !is_in_the_way(p) || lb_cpu_leave(0, lb_cpu_here());
    slot *s = apart ? choose_slot(p) : NULL;
    if (s)
      help(p, s, w->id, forks);
    else if (apart)
      idle(w, seen);
    else
      park(w, seen);
  }
  return NULL;
}

static int start_worker(worker *w) {
  return lb_thread_start(worker_main, w, &w->thread);
}

// Starts the workers that do not run yet; 0 or an error number. A job does
// with those that could be started.
static int start_workers(lb_pool *p) {
  int err = 0;
  pthread_mutex_lock(&p->starting);
  if (!atomic_load(&p->started)) {
    while (!err && p->running < p->threads - 1) {
      err = start_worker(&p->workers[p->running]);
      if (!err) p->running++;
    }
    atomic_store(&p->started, true);
  }
  pthread_mutex_unlock(&p->starting);
  return err;
}

// -- processors -------------------------------------------------------------

// Workers may use what the maker of the pool might, and who asks what it may.
static int count_processors(const lb_pool *p) {
  lb_cpu_mask own = lb_cpu_allowed_mask(0);
  int tid = atomic_load(&p->workers[0].tid);
  lb_cpu_mask workers = tid ? lb_cpu_allowed_mask(tid) : own;
  int count = lb_cpu_count_either(&own, &workers);
  return count ? count : p->threads;  // they cannot be told
}

// Those who sleep on either word look anew.
static void set_width(lb_pool *p, unsigned width) {
  if (atomic_exchange(&p->width, width) == width) return;
  atomic_fetch_add(&p->epoch, 1);
  lb_word_wake(&p->epoch, INT_MAX);
  lb_word_wake(&p->width, INT_MAX);
}

static void look(lb_pool *p) {
  if (p->threads == 1) return;
  long long now = now_us(), at = atomic_load(&p->looked_us);
  if ((at && now - at < LOOK_US) ||
      !atomic_compare_exchange_strong(&p->looked_us, &at, now))
    return;
  int found = count_processors(p);
  set_width(p, (unsigned)(found < p->threads ? found : p->threads));
}

// -- fork -------------------------------------------------------------------

// Fork hands the child every pool but no worker, and only fork itself knows
// when; hence this list, the one thing here that is not an object's.
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static lb_pool *pools;

static void before_fork(void) { pthread_mutex_lock(&pools_lock); }

static void after_fork_in_parent(void) { pthread_mutex_unlock(&pools_lock); }

static void forget_threads(lb_pool *p) {
  atomic_store(&p->inside, 0);
  atomic_store(&p->parked, 0);
  atomic_store(&p->spinning, 0);
  atomic_store(&p->started, false);
  atomic_fetch_add(&p->forks, 1);
  pthread_mutex_init(&p->starting, NULL);
  p->running = 0;
  atomic_store(&p->woken_us, 0);
  for (int i = 0; i < p->threads - 1; i++) {
    atomic_store(&p->workers[i].tid, 0);
    atomic_store(&p->workers[i].parked, false);
  }
  for (int i = 0; i < SLOTS; i++) {
    atomic_store(&p->slots[i].open, false);
    atomic_store(&p->slots[i].joining, false);
    atomic_store(&p->slots[i].helpers, 0);
    atomic_store(&p->slots[i].taken, false);
  }
}

static void after_fork_in_child(void) {
  for (lb_pool *p = pools; p; p = p->next) forget_threads(p);
  pthread_mutex_unlock(&pools_lock);
}

static int atfork_error;

static void watch_forks(void) {
  atfork_error =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void list_add(lb_pool *p) {
  pthread_mutex_lock(&pools_lock);
  p->next = pools;
  pools = p;
  pthread_mutex_unlock(&pools_lock);
}

static void list_remove(lb_pool *p) {
  pthread_mutex_lock(&pools_lock);
  for (lb_pool **at = &pools; *at; at = &(*at)->next) {
    if (*at != p) continue;
    *at = p->next;
    break;
  }
  pthread_mutex_unlock(&pools_lock);
}

// -- the pool ---------------------------------------------------------------

static lb_pool *pool_alloc(int threads) {
  lb_pool *p = aligned_alloc(_Alignof(lb_pool), sizeof *p);
  worker *workers = calloc((size_t)threads, sizeof *workers);
  if (!p || !workers) {
    free(p);
    free(workers);
    return NULL;
  }
  memset(p, 0, sizeof *p);
  p->threads = threads;
  atomic_store(&p->width, 1);
  p->workers = workers;
  for (int i = 0; i < threads - 1; i++)
    workers[i].pool = p, workers[i].id = i + 1;
  pthread_mutex_init(&p->starting, NULL);
  return p;
}

lb_status lb_pool_new(int threads, lb_pool **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  *out = NULL;
  if (threads < 1 || threads > MAX_THREADS)
    return lb_error(LB_INVALID, "a pool of %d threads: ask for 1 to %d",
                    threads, MAX_THREADS);
  pthread_once(&once, watch_forks);
  if (atfork_error) return lb_oom();
  lb_pool *p = pool_alloc(threads);
  if (!p) return lb_oom();
  look(p);
  list_add(p);
  int err = start_workers(p);
  if (err) {
    lb_status st = lb_error(
        LB_IO, "cannot start thread %d of %d: %s; ask for fewer threads",
        p->running + 2, threads, strerror(err));
    lb_pool_free(p);
    return st;
  }
  *out = p;
  return LB_OK;
}

void lb_pool_free(lb_pool *p) {
  if (!p) return;
  list_remove(p);
  atomic_store(&p->stop, true);
  set_width(p, 0);
  for (int i = 0; i < p->running; i++) pthread_join(p->workers[i].thread, NULL);
  pthread_mutex_destroy(&p->starting);
  free(p->workers);
  free(p);
}

int lb_pool_threads(const lb_pool *p) { return p ? p->threads : 1; }

int lb_pool_width(const lb_pool *p) { return p ? width_of(p) : 1; }

void lb_pool_enter(lb_pool *p) {
  if (!p) return;
  look(p);
  atomic_fetch_add(&p->inside, 1);
  atomic_fetch_add_explicit(&p->entered, 1, memory_order_relaxed);
  atomic_store_explicit(&p->cpu, lb_cpu_here(), memory_order_relaxed);
}

// A run that a fork happened inside of is not counted in the child.
void lb_pool_leave(lb_pool *p) {
  int inside = p ? atomic_load(&p->inside) : 0;
  while (inside > 0 &&
         !atomic_compare_exchange_weak(&p->inside, &inside, inside - 1))
    continue;
}

lb_pool_runs lb_pool_count(const lb_pool *p) {
  lb_pool_runs r = {.cpu = -1};
  if (!p) return r;
  r.inside = atomic_load_explicit(&p->inside, memory_order_relaxed);
  r.entered = atomic_load_explicit(&p->entered, memory_order_relaxed);
  r.cpu = atomic_load_explicit(&p->cpu, memory_order_relaxed);
  return r;
}

// One thread takes part, or as many runs are inside as do.
bool lb_pool_alone(const lb_pool *p) {
  int width = lb_pool_width(p);
  return width == 1 || task.pool == p ||
         atomic_load_explicit(&p->inside, memory_order_relaxed) >= width;
}

void lb_pool_for(lb_pool *p, int64_t n, int64_t grain, lb_pool_fn *fn,
                 void *user) {
  assert(grain > 0);
  if (n <= 0) return;
  work w = {.fn = fn, .user = user, .n = n, .grain = grain > 0 ? grain : 1};
  if (n <= w.grain || lb_pool_alone(p) || chunk_count(&w) > MAX_CHUNKS) {
    run_alone(&w, p && task.pool == p ? task.id : 0);
    return;
  }
  if (!atomic_load(&p->started)) (void)start_workers(p);
  run_shared(p, &w);
}
