// base/hub.h -- connects process-wide objects to the runtimes of the process.
//
// Objects that exist once per process (kernels, the compile service, the disk
// store) reach the runtimes through a hub: it emits events to them, writes to
// their logs and counts their runs. Runtimes are its *members*; they may join
// and leave at any time. A *seat* is a member's record in the hub.
//
// (1) Nothing here takes a lock: any thread may call, whatever locks it holds.
// (2) lb_hub_close returns once no call uses the member any more; then what
//     lb_member borrows may be freed. A log callback must not destroy its own
//     runtime.
// (3) Every member has a bit, by which it can be addressed. The first 62 have a
//     bit of their own; all others share one, so that each of them receives the
//     events addressed to any of them.
// (4) In a forked child, calls of threads that exist only in the parent are not
//     counted (provided that an lb_lock exists, which counts forks).
//
// {0} is a hub without members. Seats are reused and never freed: a process has
// one hub.
#ifndef LB_BASE_HUB_H
#define LB_BASE_HUB_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/events.h"
#include "base/log.h"
#include "base/pool.h"

#define LB_HUB_ALL UINT64_MAX

typedef struct lb_member {  // all borrowed
  const lb_log *log;        // NULL: silent
  lb_events *events;        // NULL: it receives no events
  lb_pool *pool;            // NULL: it has no runs
} lb_member;

typedef struct lb_seat lb_seat;

typedef struct lb_hub {
  atomic_uint listeners;     // members with events
  _Atomic(lb_seat *) seats;  // owned; a list that only grows
  _Atomic uint64_t entered;  // the largest number of runs returned so far
  _Atomic uint64_t gone;     // runs of members that have left
} lb_hub;

lb_status lb_hub_join(lb_hub *h, const lb_member *who, lb_seat **out);
// After this no call reaches the member. Its bit is not reused before it
// leaves. NULL is fine, here and below.
void lb_hub_close(lb_hub *h, lb_seat *seat);
void lb_hub_leave(lb_hub *h, lb_seat *seat);  // closes first, if necessary
uint64_t lb_seat_bit(const lb_seat *seat);
bool lb_seat_is_shared(const lb_seat *seat);  // does it share its bit?
bool lb_hub_is_empty(const lb_hub *h);        // it has no members
// Frees the seats. For tests, when no thread uses the hub any more.
void lb_hub_fini(lb_hub *h);

// -- events; the hub may be NULL

static inline bool lb_hub_listens(const lb_hub *h) {
  return h && atomic_load_explicit(&h->listeners, memory_order_relaxed);
}
// Emits an event to the members whose bits are in `to`.
void lb_hub_put(lb_hub *h, uint64_t to, const lb_event *e, const char *fmt, ...)
    LB_PRINTF(4, 5);

// Emits to all members; arguments are evaluated only if there is a listener.
#define lb_hub_emit(h, kind_, reason_, number, ...)         \
  do {                                                      \
    if (lb_hub_listens(h))                                  \
      lb_hub_put((h), LB_HUB_ALL,                           \
                 &(lb_event){.kind = LB_EVENT_##kind_,      \
                             .reason = LB_REASON_##reason_, \
                             .value = (int64_t)(number)},   \
                 __VA_ARGS__);                              \
  } while (0)

// The start time for a later event; 0 if there is no listener.
static inline int64_t lb_hub_start(const lb_hub *h) {
  return lb_hub_listens(h) ? lb_clock_ns() : 0;
}

// -- log

// A log whose lines go to the log of every member, subject to its level. A line
// is written to standard error once, however many members log there. Without
// members, warnings and errors go to standard error.
lb_log lb_hub_log(lb_hub *h);

// -- runs

typedef struct lb_hub_runs {
  lb_pool_runs runs;  // sum over all members; `entered` never decreases
  int threads;        // sum over pools with a run inside; if there is none, of
                      // the largest pool
} lb_hub_runs;
lb_hub_runs lb_hub_count(lb_hub *h);  // no runs, one thread for NULL

#endif
