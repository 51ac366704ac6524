// observe/analyzer.c -- see analyzer.h.
//
// A ring has one producer at a time: a run claims it for the time of one
// sample, and takes another if it is claimed. `lock` guards the windows and the
// reading ends of the rings; `inside` the owner's function, during which `lock`
// is not held.
#include "observe/analyzer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/lock.h"
#include "base/thread.h"

#define RINGS 8
#define RING_SAMPLES 256  // 2 KB
#define LOWEST_PRIORITY 19
#define PERIOD_NS INT64_C(20000000)  // while there are samples
#define IDLE_NS INT64_C(1000000000)  // after a second without any
#define IDLE_PERIODS 50

typedef struct observation {
  uint32_t point;
  float value;
} observation;

typedef struct ring {
  _Alignas(64) atomic_bool claimed;
  atomic_uint head, tail;  // written; read. They wrap around.
  observation samples[RING_SAMPLES];
} ring;

struct lb_analyzer {
  ring rings[RINGS];
  atomic_ullong dropped;
  lb_lock lock;
  lb_window windows[LB_POINTS];
  uint64_t samples;
  double half_life;
  lb_analyzer_fn *fn;
  void *user;
  atomic_uint inside;  // 1: a thread is in `fn`
  atomic_uint stop;
  pthread_t thread;
};

// -- runs --------------------------------------------------------------------

static void put(lb_analyzer *a, ring *r, uint32_t point, float value) {
  unsigned head = atomic_load_explicit(&r->head, memory_order_relaxed);
  if (head - atomic_load_explicit(&r->tail, memory_order_acquire) ==
      RING_SAMPLES) {
    atomic_fetch_add_explicit(&a->dropped, 1, memory_order_relaxed);
    return;
  }
  r->samples[head % RING_SAMPLES] = (observation){point, value};
  atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

void lb_analyzer_sample(lb_analyzer *a, uint64_t hint, uint32_t point,
                        float value) {
  for (uint64_t i = 0; i < RINGS; i++) {
    ring *r = &a->rings[(hint + i) % RINGS];
    if (atomic_exchange_explicit(&r->claimed, true, memory_order_acquire))
      continue;
    put(a, r, point, value);
    atomic_store_explicit(&r->claimed, false, memory_order_release);
    return;
  }
  atomic_fetch_add_explicit(&a->dropped, 1, memory_order_relaxed);
}

// -- the analyzer ------------------------------------------------------------

static unsigned drain_ring(lb_analyzer *a, ring *r) {
  unsigned tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
  unsigned head = atomic_load_explicit(&r->head, memory_order_acquire);
  unsigned n = head - tail;
  for (; tail != head; tail++) {
    observation s = r->samples[tail % RING_SAMPLES];
    if (s.point < LB_POINTS)
      lb_window_add(&a->windows[s.point], (double)s.value, a->half_life);
  }
  atomic_store_explicit(&r->tail, tail, memory_order_release);
  return n;
}

static unsigned drain(lb_analyzer *a) {
  unsigned n = 0;
  lb_lock_take(&a->lock);
  for (int i = 0; i < RINGS; i++) n += drain_ring(a, &a->rings[i]);
  a->samples += n;
  lb_lock_give(&a->lock);
  return n;
}

void lb_analyzer_snapshot(lb_analyzer *a, lb_snapshot *out) {
  lb_lock_take(&a->lock);
  out->samples = a->samples;
  for (int i = 0; i < LB_POINTS; i++)
    out->points[i] = lb_window_summarise(&a->windows[i]);
  lb_lock_give(&a->lock);
  out->dropped = atomic_load_explicit(&a->dropped, memory_order_relaxed);
}

void lb_analyzer_forget(lb_analyzer *a, uint32_t point) {
  lb_lock_take(&a->lock);
  a->windows[point] = (lb_window){0};
  lb_lock_give(&a->lock);
}

static void call_owner(lb_analyzer *a) {
  lb_snapshot s;
  while (atomic_exchange(&a->inside, 1)) lb_word_wait(&a->inside, 1, -1);
  lb_analyzer_snapshot(a, &s);
  a->fn(a->user, &s);
  atomic_store(&a->inside, 0);
  lb_word_wake(&a->inside, 1);
}

void lb_analyzer_update(lb_analyzer *a) {
  drain(a);
  call_owner(a);
}

static void *analyze(void *user) {
  lb_analyzer *a = user;
  unsigned idle = 0;
  lb_thread_name("limber-observe");
  // A thread whose priority cannot be lowered still works.
  (void)setpriority(PRIO_PROCESS, (id_t)lb_thread_id(), LOWEST_PRIORITY);
  while (!atomic_load(&a->stop)) {
    lb_word_wait(&a->stop, 0, idle < IDLE_PERIODS ? PERIOD_NS : IDLE_NS);
    if (atomic_load(&a->stop)) break;
    idle = drain(a) ? 0 : idle + (idle < IDLE_PERIODS);
    if (!idle) call_owner(a);
  }
  return NULL;
}

lb_status lb_analyzer_new(double half_life, lb_analyzer_fn *fn, void *user,
                          lb_analyzer **out) {
  *out = NULL;
  lb_analyzer *a = aligned_alloc(_Alignof(lb_analyzer), sizeof *a);
  if (!a) return lb_oom();
  *a = (lb_analyzer){.half_life = half_life, .fn = fn, .user = user};
  lb_status st = lb_lock_init(&a->lock);
  if (lb_failed(st)) {
    free(a);
    return st;
  }
  if (lb_thread_start(analyze, a, &a->thread)) {
    lb_lock_fini(&a->lock);
    free(a);
    return lb_error(LB_OOM, "the analyzer thread cannot be started");
  }
  *out = a;
  return LB_OK;
}

void lb_analyzer_free(lb_analyzer *a) {
  if (!a) return;
  atomic_store(&a->stop, 1);
  lb_word_wake(&a->stop, 1);
  pthread_join(a->thread, NULL);
  lb_lock_fini(&a->lock);
  free(a);
}
