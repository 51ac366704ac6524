// base/events.h -- events: the engine's decisions, delivered to a listener.
//
// Every decision (a plan is built, a kernel is published, a worker is stopped)
// is an event: a kind and a reason from events.def, start and end time, a text
// and a number. A listener belongs to a runtime; without one lb_events is NULL,
// and emitting costs a test of a pointer.
//
// (1) Emitting never waits and never allocates: events go through a ring of
//     fixed size to a thread that calls the listener, one event at a time, in
//     the order in which they were emitted. A slow listener slows no run.
// (2) Events that do not fit in the ring are counted and reported as
//     `events_lost`.
// (3) Any thread may emit, whatever locks it holds. The listener must not use
//     sessions of its runtime: it may be called while one of them is closed.
// (4) A forked child does not have that thread, and emits nothing.
#ifndef LB_BASE_EVENTS_H
#define LB_BASE_EVENTS_H

#include <stdarg.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"

typedef enum lb_event_kind {
#define LB_EVENT(id, ...) LB_EVENT_##id,
#include "base/events.def"
  LB_EVENT_COUNT,
} lb_event_kind;

typedef enum lb_reason {
#define LB_REASON(id, ...) LB_REASON_##id,
#include "base/events.def"
  LB_REASON_COUNT,
} lb_reason;

const char *lb_event_name(lb_event_kind kind);  // "kernel_published"
const char *lb_event_text(lb_event_kind kind);  // "a kernel was compiled; ..."
const char *lb_reason_name(lb_reason reason);   // "faster"
const char *lb_reason_text(lb_reason reason);   // "measured faster than ..."

typedef struct lb_event {
  lb_event_kind kind;
  lb_reason reason;
  int64_t start_ns;  // monotonic clock; 0: it took no time
  int64_t end_ns;    // set when it is emitted
  int64_t value;     // its meaning depends on the kind, see events.def; or 0
  int thread;        // kernel thread id; set when it is emitted
} lb_event;

// `text` names the subject; valid until the listener returns.
typedef void lb_listener(void *user, const lb_event *e, const char *text);

typedef struct lb_events lb_events;

lb_status lb_events_new(lb_listener *fn, void *user, lb_events **out);
// Delivers all events emitted so far, then ends the thread. NULL is fine.
void lb_events_free(lb_events *e);
// Waits until all events emitted so far are delivered. NULL is fine.
void lb_events_flush(lb_events *e);

// Longer texts are truncated.
#define LB_EVENT_TEXT 400
void lb_events_put(lb_events *e, const lb_event *event, const char *fmt, ...)
    LB_PRINTF(3, 4);
void lb_events_vput(lb_events *e, const lb_event *event, const char *fmt,
                    va_list ap) LB_PRINTF(3, 0);

// lb_event_emit(events, PLAN_BUILT, NEW_SHAPES, "%s", text): arguments are
// evaluated only if there is a listener.
#define lb_event_emit(e, kind_, reason_, ...) \
  lb_event_emit_since(e, kind_, reason_, 0, 0, __VA_ARGS__)

// The same, with a start time (0: it took no time) and a value.
#define lb_event_emit_since(e, kind_, reason_, start, number, ...) \
  do {                                                             \
    if (e)                                                         \
      lb_events_put((e),                                           \
                    &(lb_event){.kind = LB_EVENT_##kind_,          \
                                .reason = LB_REASON_##reason_,     \
                                .start_ns = (start),               \
                                .value = (int64_t)(number)},       \
                    __VA_ARGS__);                                  \
  } while (0)

// The start time for a later event; 0 if there is no listener.
static inline int64_t lb_event_start(const lb_events *e) {
  return e ? lb_clock_ns() : 0;
}

#endif
