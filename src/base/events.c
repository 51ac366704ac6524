// base/events.c -- a ring buffer between emitting threads and a listener.
//
// The ring is Vyukov's bounded queue: each cell has a sequence number. A cell
// whose number is `at` may be written by the thread that advances the tail from
// `at`; the number is then `at + 1`, and the cell can be read; after that it is
// `at + CELLS`, for the next round.
#include "base/events.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

#define CELLS 1024  // a power of two

typedef struct cell {
  atomic_size_t seq;
  lb_event event;
  char text[LB_EVENT_TEXT];
} cell;

struct lb_events {
  lb_listener *fn;
  void *user;
  atomic_size_t tail;  // next to be written
  atomic_size_t head;  // next to be delivered
  atomic_ullong lost;  // dropped events not reported yet
  atomic_bool asleep;  // the thread waits for `wake`
  atomic_bool stop;
  sem_t wake;
  pthread_t thread;
  pid_t process;  // process that has the thread
  cell cells[CELLS];
};

// -- names -------------------------------------------------------------------

typedef struct row {
  const char *name, *text;
} row;

static const row kinds[LB_EVENT_COUNT] = {
#define LB_EVENT(id, name, about) [LB_EVENT_##id] = {name, about},
#include "base/events.def"
};

static const row reasons[LB_REASON_COUNT] = {
#define LB_REASON(id, name, text) [LB_REASON_##id] = {name, text},
#include "base/events.def"
};

const char *lb_event_name(lb_event_kind kind) { return kinds[kind].name; }
const char *lb_event_text(lb_event_kind kind) { return kinds[kind].text; }
const char *lb_reason_name(lb_reason reason) { return reasons[reason].name; }
const char *lb_reason_text(lb_reason reason) { return reasons[reason].text; }

// -- emitting ----------------------------------------------------------------

// Claims the cell at the tail for the caller; NULL: the ring is full.
static cell *take_cell(lb_events *e, size_t *out) {
  size_t at = atomic_load_explicit(&e->tail, memory_order_relaxed);
  for (;;) {
    cell *c = &e->cells[at % CELLS];
    size_t seq = atomic_load_explicit(&c->seq, memory_order_acquire);
    if (seq == at) {
      if (atomic_compare_exchange_weak(&e->tail, &at, at + 1)) {
        *out = at;
        return c;
      }
    } else if (seq < at) {
      return NULL;
    } else {
      at = atomic_load_explicit(&e->tail, memory_order_relaxed);
    }
  }
}

// Posts at most once each time the thread goes to sleep.
static void wake(lb_events *e) {
  if (atomic_load(&e->asleep) && atomic_exchange(&e->asleep, false))
    sem_post(&e->wake);
}

void lb_events_vput(lb_events *e, const lb_event *event, const char *fmt,
                    va_list ap) {
  size_t at;
  if (getpid() != e->process) return;
  cell *c = take_cell(e, &at);
  if (!c) {
    atomic_fetch_add(&e->lost, 1);
    return;
  }
  c->event = *event;
  c->event.end_ns = lb_clock_ns();
  if (!c->event.start_ns) c->event.start_ns = c->event.end_ns;
  c->event.thread = lb_thread_id();
  vsnprintf(c->text, sizeof c->text, fmt, ap);
  atomic_store(&c->seq, at + 1);
  wake(e);
}

void lb_events_put(lb_events *e, const lb_event *event, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  lb_events_vput(e, event, fmt, ap);
  va_end(ap);
}

// -- delivery ----------------------------------------------------------------

static void deliver_lost(lb_events *e) {
  if (!atomic_load_explicit(&e->lost, memory_order_relaxed)) return;
  int64_t now = lb_clock_ns();
  lb_event event = {.kind = LB_EVENT_EVENTS_LOST,
                    .reason = LB_REASON_SLOW_LISTENER,
                    .start_ns = now,
                    .end_ns = now};
  event.value = (int64_t)atomic_exchange(&e->lost, 0);
  event.thread = lb_thread_id();
  e->fn(e->user, &event, "");
}

static bool deliver_next(lb_events *e) {
  size_t at = atomic_load_explicit(&e->head, memory_order_relaxed);
  cell *c = &e->cells[at % CELLS];
  if (atomic_load(&c->seq) != at + 1) return false;
  e->fn(e->user, &c->event, c->text);
  atomic_store(&c->seq, at + CELLS);
  atomic_store(&e->head, at + 1);
  return true;
}

static void deliver_all(lb_events *e) {
  while (deliver_next(e)) deliver_lost(e);
  deliver_lost(e);
}

// Sets `asleep`, checks the ring once more and only then waits, so that an
// event emitted in between wakes the thread.
static void *listen(void *user) {
  lb_events *e = user;
  lb_thread_name("limber-events");
  while (!atomic_load(&e->stop)) {
    deliver_all(e);
    atomic_store(&e->asleep, true);
    deliver_all(e);
    if (!atomic_load(&e->stop)) sem_wait(&e->wake);
    atomic_store(&e->asleep, false);
  }
  deliver_all(e);
  return NULL;
}

// -- lifecycle ---------------------------------------------------------------

lb_status lb_events_new(lb_listener *fn, void *user, lb_events **out) {
  lb_events *e = *out = calloc(1, sizeof *e);
  if (!e) return lb_oom();
  e->fn = fn;
  e->user = user;
  e->process = getpid();
  for (size_t i = 0; i < CELLS; i++) atomic_init(&e->cells[i].seq, i);
  sem_init(&e->wake, 0, 0);
  if (!lb_thread_start(listen, e, &e->thread)) return LB_OK;
  sem_destroy(&e->wake);
  free(e);
  *out = NULL;
  return lb_error(LB_OOM, "cannot start the thread that delivers events");
}

void lb_events_flush(lb_events *e) {
  if (!e || getpid() != e->process || pthread_equal(pthread_self(), e->thread))
    return;
  size_t tail = atomic_load(&e->tail);
  while (atomic_load(&e->head) < tail) {
    wake(e);
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
}

void lb_events_free(lb_events *e) {
  if (!e) return;
  if (getpid() == e->process) {
    atomic_store(&e->stop, true);
    sem_post(&e->wake);
    pthread_join(e->thread, NULL);
    sem_destroy(&e->wake);
  }
  free(e);
}
