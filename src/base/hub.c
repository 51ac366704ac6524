// base/hub.c -- connects process-wide objects to the runtimes of the process.
//
// A seat's state holds three things: the fork count at the last call (upper 32
// bits), whether a member occupies it (OPEN), and the number of calls in
// progress. A call increments that number before it reads the member, and only
// while the seat is open; closing clears OPEN, then waits until the number is
// 0.
#include "base/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/lock.h"

#define OPEN (UINT64_C(1) << 31)
#define CALLS (OPEN - 1)

enum { OWN_BITS = 62 };  // bit 62 is shared; bit 63 is unused

struct lb_seat {
  _Atomic uint64_t state;
  atomic_bool taken;  // occupied, or about to be
  uint64_t bit;
  lb_member who;
  lb_seat *next;  // set before the seat can be found
};

// -- seats -------------------------------------------------------------------

static uint64_t fork_bits(void) { return (uint64_t)lb_fork_count() << 32; }

// Calls in progress whose threads exist in this process.
static uint64_t calls_of(uint64_t state) {
  return state >> 32 == fork_bits() >> 32 ? state & CALLS : 0;
}

// False if the seat is not open. *mark is the argument of exit_seat.
static bool enter_seat(lb_seat *s, uint64_t *mark) {
  uint64_t state = atomic_load(&s->state);
  *mark = fork_bits();
  do {
    if (!(state & OPEN)) return false;
  } while (!atomic_compare_exchange_weak(&s->state, &state,
                                         *mark | OPEN | (calls_of(state) + 1)));
  return true;
}

// In a forked child, a call that began in the parent is not counted.
static void exit_seat(lb_seat *s, uint64_t mark) {
  if (mark == fork_bits()) atomic_fetch_sub(&s->state, 1);
}

static lb_seat *first_seat(const lb_hub *h) {
  return h ? atomic_load(&h->seats) : NULL;
}

static lb_seat *take_free(lb_hub *h) {
  for (lb_seat *s = first_seat(h); s; s = s->next)
    if (!atomic_load(&s->taken) && !atomic_exchange(&s->taken, true)) return s;
  return NULL;
}

static lb_seat *add_seat(lb_hub *h) {
  lb_seat *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  atomic_store(&s->taken, true);
  lb_seat *first = first_seat(h);
  do {
    unsigned before = 0;
    for (const lb_seat *other = first; other; other = other->next) before++;
    s->next = first;
    s->bit = UINT64_C(1) << (before < OWN_BITS ? before : OWN_BITS);
  } while (!atomic_compare_exchange_weak(&h->seats, &first, s));
  return s;
}

lb_status lb_hub_join(lb_hub *h, const lb_member *who, lb_seat **out) {
  lb_seat *s = take_free(h);
  if (!s) s = add_seat(h);
  *out = s;
  if (!s) return lb_oom();
  s->who = *who;
  if (who->events) atomic_fetch_add(&h->listeners, 1);
  atomic_store(&s->state, fork_bits() | OPEN);
  return LB_OK;
}

void lb_hub_close(lb_hub *h, lb_seat *s) {
  struct timespec interval = {0, 50000};
  if (!s || !(atomic_fetch_and(&s->state, ~OPEN) & OPEN)) return;
  while (calls_of(atomic_load(&s->state))) nanosleep(&interval, NULL);
  if (s->who.events) atomic_fetch_sub(&h->listeners, 1);
  atomic_fetch_add(&h->gone, lb_pool_count(s->who.pool).entered);
}

void lb_hub_leave(lb_hub *h, lb_seat *s) {
  if (!s) return;
  lb_hub_close(h, s);
  atomic_store(&s->taken, false);
}

uint64_t lb_seat_bit(const lb_seat *seat) { return seat->bit; }

bool lb_seat_is_shared(const lb_seat *seat) {
  return seat->bit == UINT64_C(1) << OWN_BITS;
}

bool lb_hub_is_empty(const lb_hub *h) {
  for (lb_seat *s = first_seat(h); s; s = s->next)
    if (atomic_load(&s->taken)) return false;
  return true;
}

void lb_hub_fini(lb_hub *h) {
  lb_seat *s = first_seat(h), *next;
  for (; s; s = next) {
    next = s->next;
    free(s);
  }
  *h = (lb_hub){0};
}

// -- calls -------------------------------------------------------------------

void lb_hub_put(lb_hub *h, uint64_t to, const lb_event *e, const char *fmt,
                ...) {
  uint64_t mark;
  for (lb_seat *s = first_seat(h); s; s = s->next) {
    if (!(s->bit & to) || !enter_seat(s, &mark)) continue;
    va_list ap;
    va_start(ap, fmt);
    if (s->who.events) lb_events_vput(s->who.events, e, fmt, ap);
    va_end(ap);
    exit_seat(s, mark);
  }
}

static void write_line(void *user, int level, const char *line) {
  static const lb_log stderr_log = {.level = LB_LOG_WARN};
  lb_log_level how = (lb_log_level)level;
  bool any = false, on_stderr = false;
  uint64_t mark;
  for (lb_seat *s = first_seat(user); s; s = s->next) {
    if (!enter_seat(s, &mark)) continue;
    const lb_log *log = s->who.log;
    any = true;
    bool again = log && !log->fn && on_stderr;
    if (log && how <= log->level && !again) {
      lb_log_line(log, how, "%s", line);
      on_stderr |= !log->fn;
    }
    exit_seat(s, mark);
  }
  if (!any) lb_log_line(&stderr_log, how, "%s", line);
}

lb_log lb_hub_log(lb_hub *h) {
  return (lb_log){.fn = write_line, .user = h, .level = LB_LOG_DEBUG};
}

// While a member leaves, its runs are for a moment neither in its seat nor in
// `gone`, so the count must be kept from decreasing.
static uint64_t monotonic_max(lb_hub *h, uint64_t entered) {
  uint64_t most = atomic_load(&h->entered);
  while (entered > most)
    if (atomic_compare_exchange_weak(&h->entered, &most, entered))
      return entered;
  return most;
}

static void add_runs(lb_hub_runs *all, const lb_pool *pool) {
  lb_pool_runs r = lb_pool_count(pool);
  int threads = lb_pool_threads(pool);
  all->runs.entered += r.entered;
  if (r.inside || all->runs.cpu < 0) all->runs.cpu = r.cpu;
  if (r.inside)
    all->threads = (all->runs.inside ? all->threads : 0) + threads;
  else if (!all->runs.inside && threads > all->threads)
    all->threads = threads;
  all->runs.inside += r.inside;
}

lb_hub_runs lb_hub_count(lb_hub *h) {
  lb_hub_runs all = {.runs = {.cpu = -1}, .threads = 1};
  uint64_t mark;
  if (!h) return all;
  all.runs.entered = atomic_load(&h->gone);
  for (lb_seat *s = first_seat(h); s; s = s->next) {
    if (!enter_seat(s, &mark)) continue;
    if (s->who.pool) add_runs(&all, s->who.pool);
    exit_seat(s, mark);
  }
  all.runs.entered = monotonic_max(h, all.runs.entered);
  return all;
}
