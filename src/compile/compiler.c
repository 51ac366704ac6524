// compile/compiler.c -- slot by slot: request, load, publish.
#include "compile/compiler.h"

#include <stdlib.h>
#include <time.h>

#include "base/blob.h"
#include "compile/built.h"
#include "compile/worker.h"
#include "device/cpu/exec.h"
#include "spec/generator.h"

#define CODE_BYTES ((size_t)64 << 20)

struct lb_compiler {
  lb_slots *slots;       // borrowed
  lb_worker *worker;     // owned
  lb_cpu_code *code;     // owned; NULL: nothing was loaded yet
  lb_strbuf target;      // "x86-64-v4+avx512vnni"
  const lb_log *log;     // borrowed
  lb_events *events;     // borrowed; may be NULL
  lb_perf *perf;         // owned; NULL: nobody asked
  pthread_mutex_t lock;  // of all below; held while compiling
  lb_builts builts;
  lb_compiler_stats stats;
  bool warned;  // that settling fails
};

// Without it everything works but perf, so that is one warning.
static void open_perf(lb_compiler *c) {
  lb_status st = lb_perf_open("/tmp", &c->perf);
  if (lb_failed(st))
    lb_log_line(c->log, LB_LOG_WARN, "perf gets no symbols: %s",
                lb_status_message(st));
  lb_status_drop(st);
}

lb_status lb_compiler_new(const lb_compiler_options *o, lb_compiler **out) {
  lb_compiler *c = calloc(1, sizeof *c);
  *out = NULL;
  if (!c) return lb_oom();
  c->log = o->log;
  c->events = o->events;
  c->slots = o->slots;
  lb_isa_print(&o->isa, &c->target);
  if (pthread_mutex_init(&c->lock, NULL)) {
    lb_strbuf_fini(&c->target);
    free(c);
    return lb_oom();
  }
  lb_status st = lb_strbuf_status(&c->target);
  lb_worker_options w = {.generator = LB_GENERATOR_VERSION};
  if (!lb_failed(st)) st = lb_worker_new(o->worker, &w, &c->worker);
  if (!lb_failed(st)) st = lb_builts_init(&c->builts, o->dump, o->log);
  if (o->perf) open_perf(c);
  if (lb_failed(st)) {
    lb_compiler_free(c);
  } else {
    *out = c;
  }
  return st;
}

void lb_compiler_free(lb_compiler *c) {
  if (!c) return;
  lb_worker_free(c->worker);
  lb_cpu_code_release(c->code);
  lb_perf_close(c->perf);
  lb_builts_fini(&c->builts);
  lb_strbuf_fini(&c->target);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

static lb_tier tier_of(const lb_slot *slot) {
  return lb_facts_reusable(&slot->key.facts) ? LB_TIER_REUSABLE
                                             : LB_TIER_SPECIALISED;
}

static void release(void *exec) { lb_cpu_exec_release(exec); }

static lb_status load(lb_compiler *c, lb_slot *slot, lb_built *built,
                      lb_span object) {
  lb_cpu_exec *exec;
  bool kept;
  LB_TRY(lb_cpu_exec_create(c->code, c->perf, object, built->name, &exec));
  lb_slot_code code = {.kernel = (lb_kernel_fn *)exec->entry,
                       .tier = tier_of(slot),
                       .bytes = exec->block->size + sizeof *exec,
                       .release = release,
                       .owner = exec};
  built->code_bytes = exec->block->size;
  LB_TRY(lb_slots_publish(c->slots, slot, &code, &kept));
  lb_builts_dump(&c->builts, built, object);
  c->stats.code_bytes += built->code_bytes;
  c->stats.compiled++;
  return LB_OK;
}

// A refusal of this one key is noted and passed over. `built` is NULL if there
// is no object.
static lb_status refuse(lb_compiler *c, lb_slot *slot, const lb_request *r,
                        lb_built *built, lb_status st) {
  lb_code code = lb_status_code(st);
  bool passing = code == LB_IO || code == LB_CANCELLED || code == LB_OOM;
  if (!built && !passing)
    lb_status_drop(lb_builts_add(&c->builts, r, LB_GENERATOR_VERSION, &built));
  if (built)
    lb_status_drop(lb_builts_refuse(&c->builts, built, lb_status_message(st)));
  if (passing) return st;
  char text[LB_EVENT_TEXT];
  lb_tell(c->events, KERNEL_REFUSED, BAD_KERNEL, "%s: %s",
          lb_status_message(st), lb_slot_text(slot, text, sizeof text));
  lb_log_line(c->log, LB_LOG_WARN, "a kernel is left out: %s",
              lb_status_message(st));
  lb_status_drop(st);
  atomic_store(&slot->failed, 1);
  c->stats.refused++;
  return LB_OK;
}

static lb_status compile(lb_compiler *c, lb_slot *slot, double seconds) {
  lb_request request;
  lb_blob object = {0};
  lb_object_info info;
  int ms = seconds > 60 ? 60000 : (int)(seconds * 1000) + 1;
  lb_built *built = NULL;
  LB_TRY(lb_request_init(&request, &slot->key.spec, &slot->key.facts,
                         lb_strbuf_str(&c->target)));
  int64_t start = lb_tell_start(c->events);
  char text[LB_EVENT_TEXT];
  lb_status st = lb_worker_compile(c->worker, &request, ms, &object, &info);
  if (!lb_failed(st))
    lb_tell_since(c->events, KERNEL_COMPILED, ASKED, start, object.size, "%s",
                  lb_slot_text(slot, text, sizeof text));
  if (!lb_failed(st))
    st = lb_builts_add(&c->builts, &request, LB_GENERATOR_VERSION, &built);
  if (!lb_failed(st)) {
    built->compile_us = info.compile_us;
    built->check_us = info.check_us;
    st = load(c, slot, built, lb_blob_span(&object));
  }
  lb_blob_fini(&object);
  return lb_failed(st) ? refuse(c, slot, &request, built, st) : LB_OK;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_lacking(lb_slot *slot) {
  return lb_slot_tier(slot) <= LB_TIER_PACK && atomic_load(&slot->wanted) &&
         !atomic_load(&slot->failed);
}

static lb_status settle(lb_compiler *c, double end) {
  lb_slot *slot;
  lb_cpu_way way = c->perf ? LB_CPU_SEALED : LB_CPU_SHARED;  // see perf.h
  if (!lb_slots_keep(c->slots)) return LB_OK;
  if (!c->code) LB_TRY(lb_cpu_code_create(CODE_BYTES, way, &c->code));
  for (size_t i = 0; (slot = lb_slots_at(c->slots, i)); i++) {
    if (!is_lacking(slot)) continue;
    double left = end - now();
    if (left <= 0)
      return lb_error(LB_CANCELLED, "not settled in the time given");
    LB_TRY(compile(c, slot, left));
  }
  return LB_OK;
}

// One line for a worker that fails or memory that is refused, however often it
// is tried; another only after it has worked. Too little time is no fault.
static void warn(lb_compiler *c, lb_status st) {
  bool fault = lb_failed(st) && lb_status_code(st) != LB_CANCELLED;
  if (fault && !c->warned)
    lb_log_line(c->log, LB_LOG_WARN, "no kernels are compiled: %s",
                lb_status_message(st));
  if (fault || !lb_failed(st)) c->warned = fault;
}

lb_status lb_compiler_settle(lb_compiler *c, double seconds) {
  double end = now() + seconds;
  pthread_mutex_lock(&c->lock);
  lb_status st = settle(c, end);
  warn(c, st);
  pthread_mutex_unlock(&c->lock);
  return st;
}

bool lb_compiler_built(lb_compiler *c, size_t i, lb_built *out) {
  pthread_mutex_lock(&c->lock);
  bool found = i < c->builts.n;
  if (found) *out = *c->builts.list[i];
  pthread_mutex_unlock(&c->lock);
  return found;
}

void lb_compiler_stats_get(lb_compiler *c, lb_compiler_stats *out) {
  pthread_mutex_lock(&c->lock);
  *out = c->stats;
  pthread_mutex_unlock(&c->lock);
}
