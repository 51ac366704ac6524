// api/runtime.c -- runtimes: threads, log, allocator and events of sessions,
// and the defaults for their options.
//
// The default runtime is created at first use and never destroyed, because
// threads of the program may still run sessions while the process exits.
#include "api/runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "api/options.h"
#include "base/cpu.h"

#define MAX_THREADS 1024

#define SAME(id)                                               \
  _Static_assert((int)LIMBER_LOG_##id == (int)LB_LOG_##id + 1, \
                 "a public level is one more than the internal one")
SAME(ERROR);
SAME(WARN);
SAME(INFO);
SAME(DEBUG);

static void forward(void *user, int level, const char *line) {
  const limber_runtime *r = user;
  r->user_log(r->log_user, level + 1, line);
}

static void forward_event(void *user, const lb_event *e, const char *text) {
  const limber_runtime *r = user;
  limber_event event = {.size = sizeof event,
                        .name = lb_event_name(e->kind),
                        .reason = lb_reason_name(e->reason),
                        .reason_text = lb_reason_text(e->reason),
                        .text = text,
                        .value = e->value,
                        .start_ns = e->start_ns,
                        .end_ns = e->end_ns,
                        .thread = e->thread};
  r->user_event(r->event_user, &event);
}

// -- the environment ---------------------------------------------------------

// Returns true once: an invalid variable causes one warning per process.
static bool may_warn(atomic_flag *warned) {
  return !atomic_flag_test_and_set(warned);
}

static void read_log_level(limber_runtime *r) {
  static const char *const names[] = {"error", "warn", "info", "debug"};
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  const char *text = getenv("LIMBER_LOG");
  if (!text || !*text) return;
  for (int i = 0; i < 4; i++) {
    if (strcmp(text, names[i])) continue;
    r->log.level = (lb_log_level)i;
    return;
  }
  if (may_warn(&warned))
    lb_log_line(&r->log, LB_LOG_WARN,
                "LIMBER_LOG=%s is ignored: it must be error, warn, info or "
                "debug",
                text);
}

static int read_threads(const limber_runtime *r) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  const char *text = getenv("LIMBER_THREADS");
  if (!text || !*text) return 0;
  char *end;
  long n = strtol(text, &end, 10);
  if (!*end && n >= 1 && n <= MAX_THREADS) return (int)n;
  if (may_warn(&warned))
    lb_log_line(&r->log, LB_LOG_WARN,
                "LIMBER_THREADS=%s is ignored: it must be a number from 1 to "
                "%d",
                text, MAX_THREADS);
  return 0;
}

static bool read_deterministic(const limber_runtime *r) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  const char *text = getenv("LIMBER_DETERMINISTIC");
  if (!text || !*text || strcmp(text, "0") == 0) return false;
  if (strcmp(text, "1") == 0) return true;
  if (may_warn(&warned))
    lb_log_line(&r->log, LB_LOG_WARN,
                "LIMBER_DETERMINISTIC=%s is ignored: it must be 0 or 1", text);
  return false;
}

static bool read_no_skip(const limber_runtime *r) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  const char *text = getenv("LIMBER_SKIP");
  if (!text || !*text || strcmp(text, "on") == 0) return false;
  if (strcmp(text, "off") == 0) return true;
  if (may_warn(&warned))
    lb_log_line(&r->log, LB_LOG_WARN,
                "LIMBER_SKIP=%s is ignored: it must be on or off", text);
  return false;
}

lb_status lb_check_compile(int when) {
  if (when >= 0 && when <= LIMBER_COMPILE_SETTLE) return LB_OK;
  return lb_error(LB_INVALID, "compile: %d is not a limber_compile", when);
}

lb_status lb_check_compile_ops(int ops) {
  if (ops >= 0 && ops <= LIMBER_COMPILE_CRITICAL) return LB_OK;
  return lb_error(LB_INVALID, "compile_ops: %d is not a limber_compile_ops",
                  ops);
}

// -- creating a runtime ------------------------------------------------------

static lb_status check(const limber_runtime_options *o) {
  if (o->threads < 0 || o->threads > MAX_THREADS)
    return lb_error(LB_INVALID, "threads: %d is not in 0 to %d", o->threads,
                    MAX_THREADS);
  if (o->log_level < LIMBER_LOG_DEFAULT || o->log_level > LIMBER_LOG_DEBUG)
    return lb_error(LB_INVALID, "log_level: %d is not a limber_log_level",
                    o->log_level);
  LB_TRY(lb_check_compile(o->compile));
  LB_TRY(lb_check_compile_ops(o->compile_ops));
  if (o->compile_threshold < 0)
    return lb_error(LB_INVALID, "compile_threshold: %d is less than 0",
                    o->compile_threshold);
  if (o->allocator && (!o->allocator->alloc || !o->allocator->free))
    return lb_error(LB_INVALID, "allocator: alloc and free must both be set");
  return LB_OK;
}

static void set_log(limber_runtime *r, const limber_runtime_options *o) {
  r->log.level = LB_LOG_WARN;
  r->user_log = o->log;
  r->log_user = o->log_user;
  if (o->log) {
    r->log.fn = forward;
    r->log.user = r;
  }
  if (o->log_level) {
    r->log.level = (lb_log_level)(o->log_level - 1);
  } else {
    read_log_level(r);
  }
}

static lb_status open_events(limber_runtime *r,
                             const limber_runtime_options *o) {
  if (!o->event) return LB_OK;
  r->user_event = o->event;
  r->event_user = o->event_user;
  return lb_events_new(forward_event, r, &r->events);
}

static lb_status runtime_new(const limber_runtime_options *o,
                             limber_runtime **out) {
  LB_TRY(check(o));
  limber_runtime *r = calloc(1, sizeof *r);
  if (!r) return lb_oom();
  set_log(r, o);
  if (o->allocator)
    r->alloc =
        (lb_alloc){o->allocator->alloc, o->allocator->free, o->allocator->user};
  int threads = o->threads ? o->threads : read_threads(r);
  if (!threads) threads = lb_cpu_usable();
  lb_status st = open_events(r, o);
  if (!lb_failed(st)) st = lb_pool_new(threads, &r->pool);
  lb_member self = {&r->log, r->events, r->pool};
  if (!lb_failed(st)) st = lb_shared_join(&self, &r->shared, &r->seat);
  if (lb_failed(st)) {
    lb_pool_free(r->pool);
    lb_events_free(r->events);
    free(r);
    return st;
  }
  if (o->cache_capacity)
    lb_lru_set_capacity(&r->shared->lru, o->cache_capacity);
  r->policy = lb_policy_read(o, &r->log);
  r->deterministic = read_deterministic(r);
  r->no_skip = read_no_skip(r);
  r->prefer = lb_prefer_read(&r->log);
  r->passes_off = lb_passes_read(&r->log);
  r->checks = lb_checks_read(&r->log);
  lb_log_line(&r->log, LB_LOG_INFO, "runtime with %d threads", threads);
  *out = r;
  return LB_OK;
}

static lb_status default_runtime(limber_runtime **out) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static _Atomic(limber_runtime *) created;
  *out = atomic_load_explicit(&created, memory_order_acquire);
  if (*out) return LB_OK;
  lb_status st = LB_OK;
  pthread_mutex_lock(&lock);
  *out = atomic_load_explicit(&created, memory_order_relaxed);
  if (!*out) {
    st = runtime_new(&(limber_runtime_options){0}, out);
    if (!lb_failed(st))
      atomic_store_explicit(&created, *out, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
  return st;
}

lb_status lb_runtime_of(limber_runtime *given, limber_runtime **out) {
  *out = given;
  return given ? LB_OK : default_runtime(out);
}

lb_slot_user lb_runtime_user(const limber_runtime *r) {
  return (lb_slot_user){.bit = lb_seat_bit(r->seat)};
}

// -- the public functions ----------------------------------------------------

limber_status limber_runtime_create(const limber_runtime_options *options,
                                    limber_runtime **out) {
  limber_runtime_options o;
  *out = NULL;
  lb_status st =
      lb_options_read("limber_runtime_options", options, sizeof o, &o);
  if (!lb_failed(st)) st = runtime_new(&o, out);
  return lb_report(st, NULL);
}

void limber_runtime_destroy(limber_runtime *runtime) {
  if (!runtime) return;
  lb_shared_leave(runtime->shared, runtime->seat);
  lb_pool_free(runtime->pool);
  lb_events_free(runtime->events);
  free(runtime);
}

int limber_runtime_threads(limber_runtime *runtime) {
  limber_runtime *r;
  if (lb_report(lb_runtime_of(runtime, &r), NULL)) return 1;
  return lb_pool_threads(r->pool);
}

void limber_runtime_flush(limber_runtime *runtime) {
  if (runtime)
    lb_events_flush(runtime->events);  // the default runtime has no callback
}

const char *limber_event_name(size_t i) {
  return i < LB_EVENT_COUNT ? lb_event_name((lb_event_kind)i) : NULL;
}

const char *limber_reason_name(size_t i) {
  return i < LB_REASON_COUNT ? lb_reason_name((lb_reason)i) : NULL;
}
