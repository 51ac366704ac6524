// base/pool.c -- one thread pool per runtime.
//
// Terms. A *job* is one call of lb_pool_for; its caller owns a *slot* while it
// runs. A worker *helps* a job from the moment it is counted in slot.helpers.
// The chunks of a job are divided into *lanes*, one range per thread: a thread
// takes the chunks of its own lane, then the remaining ones of other lanes. The
// same thread thus gets the same chunks run after run, and finds its share of
// the weights in its own cache.
//
// (1) Slots live as long as the pool. A worker increments `helpers`, then
//     checks whether the slot is open; the caller closes the slot, then waits
//     until `helpers` is 0. Both steps are sequentially consistent, so the
//     caller waits for every worker that saw the slot open, and the fields that
//     the worker read belong to a live job.
// (2) The caller claims chunks like any helper, so that a job ends even if no
//     worker comes. It waits for chunks that a helper has already begun, never
//     for one to begin. If all slots are taken it works alone.
// (3) `epoch` is incremented after a slot opens. A worker reads it before it
//     looks for work, and sleeps only while it is unchanged: it misses no job.
// (4) If as many runs are inside as threads take part, every thread has its
//     run: jobs then run on their callers, and workers do not spin.
// (5) The scheduler alternates threads on one processor every few milliseconds.
//     So a worker that finds itself on the processor of a run moves away, and a
//     run moves a worker that was woken there and waits for the processor. If
//     there is no other processor the run works alone.
// (6) The same delay occurs if two workers share a processor while one of them
//     holds a chunk that its run waits for. So at most as many threads take
//     part as there are processors: `width`, updated from time to time when a
//     run enters. Workers with an id >= width sleep on it until it changes.
// (7) A job takes no lock, so none can be held by a thread that does not exist
//     in a forked child. The child's copy of the pool is reset inside fork.
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
#define MAX_CHUNKS INT32_MAX    // of a job that is shared
#define IDLE_SPIN_US 1000       // a worker without work, while a run is inside
#define LINGER_US 50            // the same, after the last run has left
#define JOIN_SPIN_US 50         // a caller, for helpers in their last chunk
#define LATE_US 50              // a woken worker normally starts within this
#define WIDTH_PERIOD_US 100000  // between updates of `width`
#define STACK_PAGES 8           // stack that tasks may need
#define PAGE 4096

typedef struct work {
  lb_pool_fn *fn;
  void *user;  // borrowed
  int64_t n, grain;
} work;

typedef struct lane {
  atomic_uint next;  // chunk to be claimed next
  atomic_uint end;
} lane;

// With two threads, all fields of a job are in one cache line.
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
_Static_assert(offsetof(slot, others) == 64, "one cache line");

typedef struct worker {
  lb_pool *pool;  // borrowed
  pthread_t thread;
  int id;          // from 1; the caller of a job is 0
  atomic_int tid;  // 0: not known
  atomic_bool parked;
} worker;

struct lb_pool {
  _Alignas(64)
      atomic_uint epoch;  // counts published jobs; parked workers sleep on it
  atomic_int inside;      // runs inside now
  atomic_ullong entered;  // total number of runs
  atomic_int cpu;         // processor of the last run that entered, or job
  atomic_llong woken_us;  // when workers that are late were woken; 0: none
  atomic_llong width_us;  // last update of width
  atomic_uint width;      // threads that take part; others sleep on it
  _Alignas(64) atomic_int parked;
  atomic_int spinning;
  atomic_uint forks;    // forks between the pool's creation and this copy
  atomic_bool started;  // as many workers as possible were started
  atomic_bool stop;
  pthread_mutex_t starting;
  int threads;
  int running;      // workers started; guarded by `starting`
  worker *workers;  // owned; threads - 1
  lb_pool *next;    // in the list of all pools
  slot slots[SLOTS];
};

// The pool whose task this thread is running, if any, and its worker id.
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

// A bounded busy wait that reads the clock every 64 iterations.
typedef struct spinner {
  int64_t until_us;
  unsigned iterations;
} spinner;

static bool spin(spinner *s) {
  cpu_relax();
  return ++s->iterations % 64 != 0 || now_us() < s->until_us;
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

static bool has_chunks(const lane *l) {
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
    if (has_chunks(l)) run_lane(&s->work, l, id);
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

static void fill_lanes(const lb_pool *p, slot *s, int64_t chunks) {
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

static void move_parked_workers(lb_pool *p) {
  int here = lb_cpu_here();
  for (int i = 0; i < p->threads - 1; i++) {
    worker *w = &p->workers[i];
    int tid = atomic_load(&w->tid);
    if (tid && atomic_load(&w->parked)) (void)lb_cpu_leave(tid, here);
  }
}

// Wakes `count` workers. The system sometimes places a woken worker on the
// processor of this thread, where it has to wait although others are idle; if
// workers woken before are late, they are moved.
static void wake(lb_pool *p, int count) {
  int64_t now = now_us(), since = atomic_load(&p->woken_us);
  lb_word_wake(&p->epoch, count);
  if (since == 0) atomic_store(&p->woken_us, now);
  if (since == 0 || now - since < LATE_US) return;
  move_parked_workers(p);
  atomic_store(&p->woken_us, INT64_MAX);  // do not move them again
}

// Opens the slot, and wakes as many workers as there are chunks for them, less
// those that are spinning already.
static void publish(lb_pool *p, slot *s, const work *w) {
  int64_t chunks = chunk_count(w);
  s->work = *w;
  fill_lanes(p, s, chunks);
  atomic_store_explicit(&p->cpu, lb_cpu_here(), memory_order_relaxed);
  atomic_store(&s->open, true);
  atomic_fetch_add(&p->epoch, 1);
  int parked = atomic_load(&p->parked);
  int64_t wanted = chunks - 1 - atomic_load(&p->spinning);
  if (parked > 0 && wanted > 0) wake(p, wanted < parked ? (int)wanted : parked);
}

// Closes the slot and waits for the chunks that helpers have begun. After a
// fork from inside a task the child has no helpers, and does not wait.
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
    if (has_chunks(lane_of(s, i))) return true;
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
  if (atomic_load(&p->forks) != forks) return;  // `helpers` was reset
  if (atomic_fetch_sub(&s->helpers, 1) == 1 && atomic_load(&s->joining))
    lb_word_wake(&s->helpers, 1);
}

static int width_of(const lb_pool *p) {
  return (int)atomic_load_explicit(&p->width, memory_order_relaxed);
}

// Runs are inside, but fewer than threads take part.
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

// Returns when the epoch differs from `seen`, or spuriously.
static void idle(worker *w, unsigned seen) {
  lb_pool *p = w->pool;
  if (is_spare(p)) {
    atomic_fetch_add(&p->spinning, 1);
    spin_idle(p, seen);
    atomic_fetch_sub(&p->spinning, 1);
  }
  if (atomic_load(&p->epoch) == seen) park(w, seen);
}

// Whether this thread is on the processor that a run uses.
static bool blocks_a_run(const lb_pool *p) {
  int here = lb_cpu_here();
  return here >= 0 && atomic_load(&p->inside) > 0 &&
         here == atomic_load_explicit(&p->cpu, memory_order_relaxed);
}

// Allocates the thread's malloc arena and faults in its stack pages now, so
// that neither happens in a request.
static void warm_up_thread(void) {
  volatile char stack[STACK_PAGES * PAGE];
  for (size_t i = 0; i < sizeof stack; i += PAGE) stack[i] = 0;
  void *volatile p = malloc(1);
  free(p);
}

// After a fork inside a task, the worker thread ends in the child, whose pool
// starts new workers.
static void *worker_main(void *arg) {
  worker *w = arg;
  lb_pool *p = w->pool;
  char name[16];
  snprintf(name, sizeof name, "limber-%d", w->id);
  lb_thread_name(name);
  warm_up_thread();
  atomic_store(&w->tid, lb_thread_id());
  unsigned forks = atomic_load(&p->forks);
  for (;;) {
    unsigned seen = atomic_load(&p->epoch), width = atomic_load(&p->width);
    // Both change when the pool stops, after `stop` is set.
    if (atomic_load(&p->stop) || atomic_load(&p->forks) != forks) break;
    if ((unsigned)w->id >= width) {
      lb_word_wait(&p->width, width, -1);
      continue;
    }
    bool apart = !blocks_a_run(p) || lb_cpu_leave(0, lb_cpu_here());
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

// Starts the workers that do not run yet; returns 0 or an error number. A job
// uses those that could be started.
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

// Counts the processors that the workers, which inherit the affinity of the
// pool's creator, or the calling thread may use.
static int count_processors(const lb_pool *p) {
  lb_cpu_mask own = lb_cpu_allowed_mask(0);
  int tid = atomic_load(&p->workers[0].tid);
  lb_cpu_mask workers = tid ? lb_cpu_allowed_mask(tid) : own;
  int count = lb_cpu_count_either(&own, &workers);
  return count ? count : p->threads;  // 0: the affinity cannot be read
}

// Wakes all workers that sleep on `epoch` or `width`.
static void set_width(lb_pool *p, unsigned width) {
  if (atomic_exchange(&p->width, width) == width) return;
  atomic_fetch_add(&p->epoch, 1);
  lb_word_wake(&p->epoch, INT_MAX);
  lb_word_wake(&p->width, INT_MAX);
}

static void update_width(lb_pool *p) {
  if (p->threads == 1) return;
  long long now = now_us(), at = atomic_load(&p->width_us);
  if ((at && now - at < WIDTH_PERIOD_US) ||
      !atomic_compare_exchange_strong(&p->width_us, &at, now))
    return;
  int found = count_processors(p);
  set_width(p, (unsigned)(found < p->threads ? found : p->threads));
}

// -- fork -------------------------------------------------------------------

// A forked child has every pool but no worker. The atfork handlers have no
// argument, hence this global list.
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static lb_pool *pools;

static void before_fork(void) { pthread_mutex_lock(&pools_lock); }

static void after_fork_in_parent(void) { pthread_mutex_unlock(&pools_lock); }

static void reset_in_child(lb_pool *p) {
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
  for (lb_pool *p = pools; p; p = p->next) reset_in_child(p);
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
    return lb_error(LB_INVALID, "%d threads requested: use 1 to %d", threads,
                    MAX_THREADS);
  pthread_once(&once, watch_forks);
  if (atfork_error) return lb_oom();
  lb_pool *p = pool_alloc(threads);
  if (!p) return lb_oom();
  update_width(p);
  list_add(p);
  int err = start_workers(p);
  if (err) {
    lb_status st =
        lb_error(LB_IO, "cannot start thread %d of %d: %s; use fewer threads",
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
  update_width(p);
  atomic_fetch_add(&p->inside, 1);
  atomic_fetch_add_explicit(&p->entered, 1, memory_order_relaxed);
  atomic_store_explicit(&p->cpu, lb_cpu_here(), memory_order_relaxed);
}

// In a forked child `inside` is 0 even if the fork happened inside a run.
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

// True if one thread takes part, or as many runs are inside as threads do.
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
