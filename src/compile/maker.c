// compile/maker.c -- one slot at a time: request, object, code, kernel.
#include "compile/maker.h"

#include <stdlib.h>

#include "base/blob.h"
#include "base/caller.h"
#include "base/lock.h"
#include "device/cpu/exec.h"
#include "spec/generator.h"

#define CODE_BYTES SIZE_MAX  // what is kept is bounded by the shelf

struct lb_maker {
  lb_slots *slots;    // borrowed
  lb_worker *worker;  // owned
  lb_cpu_code *code;  // owned; NULL: nothing was loaded yet
  lb_strbuf target;   // "x86-64-v4+avx512vnni"
  const lb_log *log;  // borrowed
  lb_events *events;  // borrowed; may be NULL
  lb_perf *perf;      // owned; NULL: nobody asked
  lb_lock lock;       // of all below
  lb_builts builts;
  lb_maker_stats stats;
};

// Without it everything works but perf, so that is one warning.
static void open_perf(lb_maker *m) {
  lb_status st = lb_perf_open("/tmp", &m->perf);
  if (lb_failed(st))
    lb_log_line(m->log, LB_LOG_WARN, "perf gets no symbols: %s",
                lb_status_message(st));
  lb_status_drop(st);
}

lb_status lb_maker_new(const lb_maker_options *o, lb_maker **out) {
  *out = NULL;
  lb_maker *m = calloc(1, sizeof *m);
  if (!m) return lb_oom();
  lb_status st = lb_lock_init(&m->lock);
  if (lb_failed(st)) {
    free(m);
    return st;
  }
  m->log = o->log;
  m->events = o->events;
  m->slots = o->slots;
  lb_isa_print(&o->isa, &m->target);
  st = lb_strbuf_status(&m->target);
  lb_worker_options w = o->limits;
  w.generator = LB_GENERATOR_VERSION;
  if (!lb_failed(st)) st = lb_worker_new(o->worker, &w, &m->worker);
  if (!lb_failed(st)) st = lb_builts_init(&m->builts, o->dump, o->log);
  if (o->perf) open_perf(m);
  if (lb_failed(st)) {
    lb_maker_free(m);
  } else {
    *out = m;
  }
  return st;
}

void lb_maker_free(lb_maker *m) {
  if (!m) return;
  lb_worker_free(m->worker);
  lb_cpu_code_release(m->code);
  lb_perf_close(m->perf);
  lb_builts_fini(&m->builts);
  lb_strbuf_fini(&m->target);
  lb_lock_fini(&m->lock);
  free(m);
}

void lb_maker_cancel(lb_maker *m) { lb_worker_cancel(m->worker); }
void lb_maker_rest(lb_maker *m) {
  pid_t pid = lb_worker_pid(m->worker);
  lb_worker_rest(m->worker);
  if (pid) lb_tell_since(m->events, WORKER_ENDED, IDLE, 0, pid, "%s", "");
}
void lb_maker_set_idle(lb_maker *m, bool idle) {
  lb_worker_set_idle(m->worker, idle);
}

// -- what was made -----------------------------------------------------------

// Takes the lock, as do the next two; *out stays where it is.
static lb_status note(lb_maker *m, const lb_request *r,
                      const lb_object_info *info, lb_built **out) {
  lb_lock_take(&m->lock);
  lb_status st = lb_builts_add(&m->builts, r, LB_GENERATOR_VERSION, out);
  if (!lb_failed(st)) {
    (*out)->compile_us = info->compile_us;
    (*out)->check_us = info->check_us;
  }
  lb_lock_give(&m->lock);
  return st;
}

static void note_loaded(lb_maker *m, lb_built *built, size_t bytes) {
  lb_lock_take(&m->lock);
  built->code_bytes = bytes;
  m->stats.code_bytes += bytes;
  m->stats.compiled++;
  lb_lock_give(&m->lock);
}

static void note_refused(lb_maker *m, lb_built *built, const char *why) {
  lb_lock_take(&m->lock);
  if (built) lb_status_drop(lb_builts_refuse(&m->builts, built, why));
  m->stats.refused++;
  lb_lock_give(&m->lock);
}

bool lb_maker_built(lb_maker *m, size_t i, lb_built *out) {
  lb_lock_take(&m->lock);
  bool found = i < m->builts.n;
  if (found) *out = *m->builts.list[i];
  lb_lock_give(&m->lock);
  return found;
}

lb_maker_stats lb_maker_count(lb_maker *m) {
  lb_lock_take(&m->lock);
  lb_maker_stats s = m->stats;
  lb_lock_give(&m->lock);
  return s;
}

// -- making ------------------------------------------------------------------

static lb_tier tier_of(const lb_slot *slot) {
  return lb_facts_reusable(&slot->key.facts) ? LB_TIER_REUSABLE
                                             : LB_TIER_SPECIALISED;
}

static void release(void *exec) { lb_cpu_exec_release(exec); }

static lb_status load(lb_maker *m, lb_slot *slot, lb_built *built,
                      lb_span object, bool *kept) {
  lb_cpu_exec *exec;
  LB_TRY(lb_cpu_exec_create(m->code, m->perf, object, built->name, &exec));
  size_t bytes = exec->block->size;
  lb_slot_code code = {.kernel = (lb_kernel_fn *)exec->entry,
                       .tier = tier_of(slot),
                       .bytes = bytes + sizeof *exec,
                       .release = release,
                       .owner = exec};
  LB_TRY(lb_slots_publish(m->slots, slot, &code, kept));
  lb_builts_dump(&m->builts, built, object);
  note_loaded(m, built, bytes);
  return LB_OK;
}

// `built` is NULL if there is no object.
static void refuse(lb_maker *m, lb_slot *slot, const lb_request *r,
                   lb_built *built, const char *why) {
  if (!built) lb_status_drop(note(m, r, &(lb_object_info){0}, &built));
  char text[LB_EVENT_TEXT];
  lb_tell(m->events, KERNEL_REFUSED, BAD_KERNEL, "%s: %s", why,
          lb_slot_text(slot, text, sizeof text));
  lb_log_line(m->log, LB_LOG_WARN, "a kernel is left out: %s", why);
  note_refused(m, built, why);
  atomic_store(&slot->failed, 1);
}

static bool is_passing(lb_code code) {
  return code == LB_IO || code == LB_CANCELLED || code == LB_OOM;
}

static lb_status make(lb_maker *m, lb_slot *slot, int timeout_ms, bool *kept) {
  lb_request request;
  lb_blob object = {0};
  lb_object_info info;
  lb_built *built = NULL;
  lb_cpu_way way = m->perf ? LB_CPU_SEALED : LB_CPU_SHARED;  // see perf.h
  if (!m->code) LB_TRY(lb_cpu_code_create(CODE_BYTES, way, &m->code));
  LB_TRY(lb_request_init(&request, &slot->key.spec, &slot->key.facts,
                         lb_strbuf_str(&m->target)));
  int64_t start = lb_tell_start(m->events);
  char text[LB_EVENT_TEXT];
  pid_t before = lb_worker_pid(m->worker);
  lb_status st =
      lb_worker_compile(m->worker, &request, timeout_ms, &object, &info);
  pid_t after = lb_worker_pid(m->worker);
  if (after && after != before)
    lb_tell_since(m->events, WORKER_STARTED, NEEDED, 0, after, "%s", "");
  if (!lb_failed(st) && atomic_load(&slot->wish.urgent))
    lb_tell_since(m->events, KERNEL_COMPILED, ASKED, start, object.size, "%s",
                  lb_slot_text(slot, text, sizeof text));
  else if (!lb_failed(st))
    lb_tell_since(m->events, KERNEL_COMPILED, SIGHTED, start, object.size, "%s",
                  lb_slot_text(slot, text, sizeof text));
  if (!lb_failed(st)) st = note(m, &request, &info, &built);
  if (!lb_failed(st)) st = load(m, slot, built, lb_blob_span(&object), kept);
  lb_blob_fini(&object);
  if (!lb_failed(st) || is_passing(lb_status_code(st))) return st;
  refuse(m, slot, &request, built, lb_status_message(st));
  lb_status_drop(st);
  return LB_OK;
}

lb_status lb_maker_make(lb_maker *m, lb_slot *slot, int timeout_ms,
                        bool *kept) {
  int64_t began = lb_detour_begin();
  *kept = true;
  lb_status st = make(m, slot, timeout_ms, kept);
  lb_detour_end(began);
  return st;
}

bool lb_maker_blames(const lb_maker *m) { return lb_worker_had_it(m->worker); }

void lb_maker_give_up(lb_maker *m, lb_slot *slot, const char *why) {
  lb_request r;
  lb_status st = lb_request_init(&r, &slot->key.spec, &slot->key.facts,
                                 lb_strbuf_str(&m->target));
  if (!lb_failed(st)) refuse(m, slot, &r, NULL, why);
  lb_status_drop(st);
  atomic_store(&slot->failed, 1);
}
