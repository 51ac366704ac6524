// compile/kernel_builder.c -- gives one slot at a time a compiled kernel.
#include "compile/kernel_builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "base/caller.h"
#include "base/lock.h"
#include "compile/kernel_store.h"
#include "compile/slot_profile.h"
#include "spec/generator.h"

#define LEASE_S 60.0  // another process that holds a lease for longer hangs
#define LEASE_PAYS_SOON_S 1.0  // ... or may be throttled
#define PRELOAD_BYTES ((size_t)8 << 20)
#define PRELOAD_MAX 1024

typedef struct preload {  // kernels on disk to load ahead of runs
  lb_request *list;       // owned; NULL: not listed yet, or done
  size_t n, at, bytes;
} preload;

struct lb_kernel_builder {
  lb_slots *slots;    // borrowed
  lb_store *store;    // borrowed; may be NULL
  lb_worker *worker;  // owned
  lb_device *device;  // of the slots; borrowed
  lb_strbuf target;   // "x86-64-v4+avx512vnni"
  preload preload;
  const lb_log *log;  // borrowed
  lb_hub *hub;        // borrowed; may be NULL
  bool trials;
  lb_lock lock;  // protects all below
  lb_compile_log compile_log;
  lb_kernel_builder_stats stats;
};

lb_status lb_kernel_builder_new(const lb_kernel_builder_options *o,
                                lb_kernel_builder **out) {
  *out = NULL;
  lb_kernel_builder *b = calloc(1, sizeof *b);
  if (!b) return lb_oom();
  lb_status st = lb_lock_init(&b->lock);
  if (lb_failed(st)) {
    free(b);
    return st;
  }
  b->log = o->log;
  b->hub = o->hub;
  b->slots = o->slots;
  b->device = o->slots->device;
  b->store = o->store;
  lb_target_print(&o->target, &b->target);
  st = lb_strbuf_status(&b->target);
  lb_worker_options w = o->limits;
  w.generator = LB_GENERATOR_VERSION;
  if (!lb_failed(st)) st = lb_worker_new(o->worker, &w, &b->worker);
  if (!lb_failed(st))
    st = lb_compile_log_init(&b->compile_log, o->dump, o->log);
  if (lb_failed(st)) {
    lb_kernel_builder_free(b);
  } else {
    *out = b;
  }
  return st;
}

void lb_kernel_builder_free(lb_kernel_builder *b) {
  if (!b) return;
  lb_worker_free(b->worker);
  lb_compile_log_fini(&b->compile_log);
  free(b->preload.list);
  lb_strbuf_fini(&b->target);
  lb_lock_fini(&b->lock);
  free(b);
}

void lb_kernel_builder_cancel(lb_kernel_builder *b) {
  lb_worker_cancel(b->worker);
}

void lb_kernel_builder_resume(lb_kernel_builder *b) {
  lb_worker_resume(b->worker);
}

void lb_kernel_builder_set_trials(lb_kernel_builder *b, bool trials) {
  b->trials = trials;
}

void lb_kernel_builder_flush_store(lb_kernel_builder *b) {
  if (b->store) lb_status_drop(lb_store_flush(b->store));
}

static void emit_started(const lb_kernel_builder *b, pid_t before) {
  pid_t after = lb_worker_pid(b->worker);
  if (after && after != before)
    lb_hub_emit(b->hub, WORKER_STARTED, NEEDED, after, "%s", "");
}

// Starts the process without a nice value: one can be set later, but lowering
// it again needs a privilege.
void lb_kernel_builder_prepare(lb_kernel_builder *b) {
  pid_t before = lb_worker_pid(b->worker);
  lb_worker_set_yields(b->worker, false);
  lb_worker_prepare(b->worker);
  emit_started(b, before);
}

bool lb_kernel_builder_is_starting(lb_kernel_builder *b, int64_t *ns) {
  return lb_worker_is_starting(b->worker, ns);
}

void lb_kernel_builder_stop_worker(lb_kernel_builder *b) {
  pid_t pid = lb_worker_pid(b->worker);
  lb_worker_stop(b->worker);
  if (pid) lb_hub_emit(b->hub, WORKER_ENDED, IDLE, pid, "%s", "");
}

void lb_kernel_builder_set_yields(lb_kernel_builder *b, bool yields) {
  lb_worker_set_yields(b->worker, yields);
}

// -- records -----------------------------------------------------------------

// Takes the lock, as do the next two. *out stays valid.
static lb_status add_record(lb_kernel_builder *b, const lb_request *r,
                            const lb_object_info *info,
                            lb_compile_record **out) {
  lb_lock_take(&b->lock);
  lb_status st =
      lb_compile_log_add(&b->compile_log, r, LB_GENERATOR_VERSION, out);
  if (!lb_failed(st)) {
    (*out)->compile_us = info->compile_us;
    (*out)->check_us = info->check_us;
    b->stats.build_us += info->compile_us + info->check_us;
  }
  lb_lock_give(&b->lock);
  return st;
}

static void count_loaded(lb_kernel_builder *b, lb_compile_record *record,
                         size_t bytes) {
  lb_lock_take(&b->lock);
  if (record) record->code_bytes = bytes;
  b->stats.code_bytes += bytes;
  b->stats.compiled += record != NULL;
  b->stats.found += record == NULL;
  lb_lock_give(&b->lock);
}

static void count_failed(lb_kernel_builder *b, lb_compile_record *record,
                         const char *why) {
  lb_lock_take(&b->lock);
  if (record)
    lb_status_drop(lb_compile_log_set_error(&b->compile_log, record, why));
  b->stats.compile_failures++;
  lb_lock_give(&b->lock);
}

bool lb_kernel_builder_record(lb_kernel_builder *b, size_t i,
                              lb_compile_record *out) {
  lb_lock_take(&b->lock);
  bool found = i < b->compile_log.n;
  if (found) *out = *b->compile_log.list[i];
  lb_lock_give(&b->lock);
  return found;
}

lb_kernel_builder_stats lb_kernel_builder_count(lb_kernel_builder *b) {
  lb_lock_take(&b->lock);
  lb_kernel_builder_stats s = b->stats;
  lb_lock_give(&b->lock);
  return s;
}

// -- publishing --------------------------------------------------------------

static lb_tier tier_of(const lb_slot *slot) {
  return lb_facts_reusable(&slot->key.facts) ? LB_TIER_REUSABLE
                                             : LB_TIER_SPECIALISED;
}

// Without memory to note the result, the kernel is tried once more.
static void mark_trial_passed(lb_kernel_builder *b, lb_slot *slot) {
  lb_slot_profile *p = lb_slot_profile_attach(b->slots, slot);
  if (p) p->trial_passed = true;
}

static bool has_passed_trial(const lb_slot *slot) {
  const lb_slot_profile *p = lb_slot_profile_of(slot);
  return p && p->trial_passed;
}

// Takes ownership of `exec`. `record` is NULL for a kernel from disk, which has
// none. A kernel is counted before it is published.
static lb_status publish(lb_kernel_builder *b, lb_slot *slot,
                         lb_compile_record *record, lb_exec *exec, bool *kept) {
  lb_slot_code code = {.exec = exec,
                       .tier = tier_of(slot),
                       .on_trial = b->trials && !has_passed_trial(slot)};
  count_loaded(b, record, exec->bytes);
  return lb_slots_publish(b->slots, slot, &code, kept);
}

// -- on disk -----------------------------------------------------------------

static lb_hash128 key_of(const lb_request *r) {
  return lb_kernel_store_key(r, LB_GENERATOR_VERSION);
}

// The result of an earlier trial, of any process, on this processor model.
static bool was_demoted(lb_kernel_builder *b, lb_slot *slot, lb_hash128 key) {
  static const lb_event e = {.kind = LB_EVENT_KERNEL_DEMOTED,
                             .reason = LB_REASON_REMEMBERED};
  if (!b->trials) return false;
  lb_trial_result v =
      lb_store_trial_result(b->store, key, lb_host_model_get().text);
  if (v == LB_TRIAL_RESULT_KEPT) mark_trial_passed(b, slot);
  if (v != LB_TRIAL_RESULT_DEMOTED) return false;
  lb_slot_emit(b->hub, slot, &e, "%s", "");
  atomic_store(&slot->failed, LB_SLOT_DEMOTED);
  return true;
}

// An object that does not load is dropped from the store.
static lb_status find(lb_kernel_builder *b, lb_slot *slot, const lb_request *r,
                      bool *found) {
  lb_stored_kernel stored;
  lb_event e = {.kind = LB_EVENT_KERNEL_FOUND,
                .reason = LB_REASON_REQUESTED,
                .start_ns = lb_hub_start(b->hub)};
  *found = b->store && was_demoted(b, slot, key_of(r));
  if (*found) return LB_OK;
  LB_TRY(lb_device_ready(b->device));  // otherwise nothing on disk is of use
  if (!lb_kernel_store_get(b->store, r, LB_GENERATOR_VERSION, &stored))
    return LB_OK;
  lb_exec *exec;
  lb_status st =
      lb_device_load(b->device, lb_blob_span(&stored.object), "stored", &exec);
  if (!lb_failed(st)) st = publish(b, slot, NULL, exec, found);
  lb_code code = lb_status_code(st);
  if (code == LB_INVALID || code == LB_UNSUPPORTED) {
    lb_status_drop(lb_store_drop(b->store, key_of(r)));
    lb_status_drop(st);
    st = LB_OK;
  }
  e.value = (int64_t)stored.object.size;
  if (*found) lb_slot_emit(b->hub, slot, &e, "%s", "");
  lb_stored_kernel_fini(&stored);
  return st;
}

static lb_status request_of(const lb_kernel_builder *b, const lb_slot *slot,
                            lb_request *out) {
  return lb_request_init(out, &slot->key.spec, &slot->key.facts,
                         lb_strbuf_str(&b->target));
}

// `record` is NULL if there is no object.
static void mark_failed(lb_kernel_builder *b, lb_slot *slot,
                        const lb_request *r, lb_compile_record *record,
                        const char *why) {
  if (!record) lb_status_drop(add_record(b, r, &(lb_object_info){0}, &record));
  static const lb_event e = {.kind = LB_EVENT_KERNEL_FAILED,
                             .reason = LB_REASON_BAD_KERNEL};
  lb_slot_emit(b->hub, slot, &e, "%s: ", why);
  lb_log_line(b->log, LB_LOG_WARN, "a kernel was not compiled: %s", why);
  count_failed(b, record, why);
  atomic_store(&slot->failed, LB_SLOT_COMPILE_FAILED);
}

static bool is_transient(lb_code code) {
  return code == LB_IO || code == LB_CANCELLED || code == LB_OOM;
}

static void emit_compiled(const lb_kernel_builder *b, lb_slot *slot,
                          int64_t start, size_t bytes) {
  const lb_slot_profile *p = lb_slot_profile_of(slot);
  bool awaited = p && atomic_load(&p->urgent) > 0;
  lb_event e = {
      .kind = LB_EVENT_KERNEL_COMPILED,
      .reason = awaited ? LB_REASON_REQUESTED : LB_REASON_THRESHOLD_REACHED,
      .start_ns = start,
      .value = (int64_t)bytes};
  lb_slot_emit(b->hub, slot, &e, "%s", "");
}

// If storing fails, the next process compiles the kernel again.
static void store_object(lb_kernel_builder *b, lb_slot *slot,
                         const lb_request *r, const lb_object_info *info,
                         lb_span object) {
  lb_event e = {.kind = LB_EVENT_KERNEL_STORED,
                .reason = LB_REASON_DONE,
                .start_ns = lb_hub_start(b->hub),
                .value = (int64_t)object.size};
  if (!b->store) return;
  lb_status st = lb_kernel_store_put(b->store, r, info, object);
  if (lb_failed(st))
    lb_hub_emit(b->hub, STORE_FAILED, FAILED, 0, "%s", lb_status_message(st));
  else
    lb_slot_emit(b->hub, slot, &e, "%s", "");
  lb_status_drop(st);
}

static lb_status compile(lb_kernel_builder *b, lb_slot *slot,
                         const lb_request *r, int timeout_ms, bool *kept) {
  lb_blob object = {0};
  lb_object_info info;
  lb_compile_record *record = NULL;
  lb_exec *exec;
  int64_t start = lb_hub_start(b->hub);
  pid_t before = lb_worker_pid(b->worker);
  lb_status st = lb_worker_compile(b->worker, r, timeout_ms, &object, &info);
  emit_started(b, before);
  if (!lb_failed(st)) {
    emit_compiled(b, slot, start, object.size);
    st = add_record(b, r, &info, &record);
  }
  lb_span bytes = lb_blob_span(&object);
  if (!lb_failed(st))
    st = lb_device_load(b->device, bytes, record->name, &exec);
  if (!lb_failed(st)) {
    lb_compile_log_dump(&b->compile_log, record, bytes);
    store_object(b, slot, r, &info,
                 bytes);  // first, so that settlers find it on disk
    st = publish(b, slot, record, exec, kept);
  }
  lb_blob_fini(&object);
  if (!lb_failed(st) || is_transient(lb_status_code(st))) return st;
  mark_failed(b, slot, r, record, lb_status_message(st));
  lb_status_drop(st);
  return LB_OK;
}

// Of the processes that share a store, only the one with the lease compiles.
static lb_status compile_leased(lb_kernel_builder *b, lb_slot *slot,
                                int timeout_ms, bool pays_soon,
                                lb_compile_result *out) {
  lb_request r;
  bool found = false, kept = true;
  double patience = pays_soon ? LEASE_PAYS_SOON_S : LEASE_S;
  LB_TRY(request_of(b, slot, &r));
  LB_TRY(lb_device_ready(b->device));
  lb_hash128 key = key_of(&r);
  if (b->store && lb_store_lease(b->store, key, patience) == LB_LEASE_BUSY) {
    *out = LB_COMPILE_LATER;
    return LB_OK;
  }
  lb_status st =
      find(b, slot, &r, &found);  // the previous holder may have stored it
  if (!lb_failed(st) && !found) st = compile(b, slot, &r, timeout_ms, &kept);
  if (b->store) lb_store_release(b->store, key);
  *out = kept ? LB_COMPILE_DONE : LB_COMPILE_TOO_LARGE;
  return st;
}

lb_status lb_kernel_builder_compile(lb_kernel_builder *b, lb_slot *slot,
                                    int timeout_ms, bool pays_soon,
                                    lb_compile_result *out) {
  int64_t began = lb_detour_begin();
  *out = LB_COMPILE_DONE;
  lb_status st = compile_leased(b, slot, timeout_ms, pays_soon, out);
  lb_detour_end(began);
  return st;
}

lb_status lb_kernel_builder_find(lb_kernel_builder *b, lb_slot *slot,
                                 bool *found) {
  lb_request r;
  int64_t began = lb_detour_begin();
  lb_status st = request_of(b, slot, &r);
  *found = false;
  if (!lb_failed(st)) st = find(b, slot, &r, found);
  lb_detour_end(began);
  return st;
}

// -- trials ------------------------------------------------------------------

static void store_trial_result(lb_kernel_builder *b, const lb_slot *slot,
                               lb_trial_result result) {
  lb_request r;
  lb_status st = request_of(b, slot, &r);
  if (!lb_failed(st))
    st = lb_store_put_trial_result(b->store, key_of(&r),
                                   lb_host_model_get().text, result);
  if (lb_failed(st))
    lb_hub_emit(b->hub, STORE_FAILED, FAILED, 0, "%s", lb_status_message(st));
  lb_status_drop(st);
}

static void emit_trial_result(lb_kernel_builder *b, const lb_slot *slot,
                              const lb_paired_test *found) {
  char text[LB_EVENT_TEXT];
  double ratio = lb_paired_test_ratio(found);
  lb_event e = {.kind = LB_EVENT_KERNEL_KEPT, .value = (int64_t)(ratio * 1000)};
  switch (lb_paired_test_outcome(found)) {
    case LB_OUTCOME_SLOWER:
      e.kind = LB_EVENT_KERNEL_DEMOTED;
      e.reason = LB_REASON_SLOWER;
      break;
    case LB_OUTCOME_FASTER: e.reason = LB_REASON_FASTER; break;
    default: e.reason = LB_REASON_NO_DIFFERENCE;
  }
  const char *than = slot->in_pack ? "the pack kernel" : "its cover";
  lb_slot_text(slot, text, sizeof text);
  lb_slot_emit(b->hub, slot, &e, "%.2fx the speed of %s, %u pairs: ", ratio,
               than, (unsigned)found->n);
  lb_log_line(b->log, LB_LOG_INFO, "%s: %.2fx the speed of %s, %u pairs: %s",
              lb_event_name(e.kind), ratio, than, (unsigned)found->n, text);
}

void lb_kernel_builder_end_trial(lb_kernel_builder *b, lb_slot *slot,
                                 const lb_paired_test *found) {
  bool lost = lb_paired_test_outcome(found) == LB_OUTCOME_SLOWER;
  emit_trial_result(b, slot, found);
  if (lost) {
    atomic_store(&slot->failed,
                 LB_SLOT_DEMOTED);  // before the slot becomes pending
    lb_slots_withdraw(b->slots, slot);
  } else {
    mark_trial_passed(b, slot);
    lb_trial_end(lb_slot_trial(slot));
  }
  lb_lock_take(&b->lock);
  *(lost ? &b->stats.demoted : &b->stats.kept) += 1;
  lb_lock_give(&b->lock);
  if (b->store)
    store_trial_result(b, slot,
                       lost ? LB_TRIAL_RESULT_DEMOTED : LB_TRIAL_RESULT_KEPT);
}

// -- preloading --------------------------------------------------------------

static bool add_entry(void *user, const lb_store_entry *e) {
  lb_kernel_builder *b = user;
  preload *a = &b->preload;
  lb_request r;
  if (!lb_kernel_store_request(e, LB_GENERATOR_VERSION,
                               lb_strbuf_str(&b->target), &r))
    return true;
  a->bytes += e->object.size;
  a->list[a->n++] = r;
  return a->n < PRELOAD_MAX && a->bytes < PRELOAD_BYTES;
}

static lb_status list_preloads(lb_kernel_builder *b) {
  b->preload.list = calloc(PRELOAD_MAX, sizeof *b->preload.list);
  return b->preload.list ? lb_store_each(b->store, add_entry, b) : lb_oom();
}

// Slots whose compilation failed, or that were evicted or given a kernel since
// the list was made are left as they are.
static lb_status load_next(lb_kernel_builder *b) {
  const lb_request *r = &b->preload.list[b->preload.at++];
  lb_slot *slot;
  bool found;
  LB_TRY(lb_slots_add(b->slots, &r->spec, &r->facts, &slot));
  bool skip = lb_slot_tier(slot) > LB_TIER_PACK || atomic_load(&slot->failed) ||
              atomic_load(&slot->evicted);
  return skip ? LB_OK : find(b, slot, r, &found);
}

static bool has_more(const lb_kernel_builder *b) {
  return b->preload.at < b->preload.n;
}

static void end_preload(lb_kernel_builder *b) {
  free(b->preload.list);
  b->preload = (preload){0};
}

lb_status lb_kernel_builder_preload(lb_kernel_builder *b, bool *more) {
  lb_status st = LB_OK;
  int64_t began = lb_detour_begin();
  bool may = b->store && lb_slots_has_capacity(b->slots);
  if (may) st = has_more(b) ? load_next(b) : list_preloads(b);
  lb_detour_end(began);
  *more = may && !lb_failed(st) && has_more(b);
  if (!*more) end_preload(b);
  return st;
}

// Does not free the list: the parent's thread may have been about to do so.
void lb_kernel_builder_after_fork(lb_kernel_builder *b) {
  b->preload = (preload){0};
}

bool lb_kernel_builder_had_request(const lb_kernel_builder *b) {
  return lb_worker_had_request(b->worker);
}

void lb_kernel_builder_give_up(lb_kernel_builder *b, lb_slot *slot,
                               const char *why) {
  lb_request r;
  lb_status st = request_of(b, slot, &r);
  if (!lb_failed(st)) mark_failed(b, slot, &r, NULL, why);
  lb_status_drop(st);
  atomic_store(&slot->failed, LB_SLOT_COMPILE_FAILED);
}
