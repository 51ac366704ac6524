// compile/kernel_builder.c -- one slot at a time: request, object, code,
// kernel.
#include "compile/kernel_builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "base/caller.h"
#include "base/lock.h"
#include "compile/kernel_store.h"
#include "compile/slot_profile.h"
#include "spec/generator.h"

#define LEASE_S 60.0      // another's: then it hangs
#define LEASE_SOON_S 1.0  // ... or does not need it as we do
#define PRELOAD_BYTES ((size_t)8 << 20)
#define PRELOAD_MAX 1024

typedef struct ahead {  // what is on disk, to be loaded before it is asked for
  lb_request *list;     // owned; NULL: not looked for yet, or done
  size_t n, at, bytes;
} ahead;

struct lb_kernel_builder {
  lb_slots *slots;    // borrowed
  lb_store *store;    // borrowed; may be NULL
  lb_worker *worker;  // owned
  lb_device *device;  // the slots'; borrowed
  lb_strbuf target;   // "x86-64-v4+avx512vnni"
  ahead ahead;
  const lb_log *log;  // borrowed
  lb_hub *hub;        // borrowed; may be NULL
  bool judges;
  lb_lock lock;  // of all below
  lb_compile_log builts;
  lb_kernel_builder_stats stats;
};

lb_status lb_kernel_builder_new(const lb_kernel_builder_options *o,
                                lb_kernel_builder **out) {
  *out = NULL;
  lb_kernel_builder *m = calloc(1, sizeof *m);
  if (!m) return lb_oom();
  lb_status st = lb_lock_init(&m->lock);
  if (lb_failed(st)) {
    free(m);
    return st;
  }
  m->log = o->log;
  m->hub = o->hub;
  m->slots = o->slots;
  m->device = o->slots->device;
  m->store = o->store;
  lb_target_print(&o->target, &m->target);
  st = lb_strbuf_status(&m->target);
  lb_worker_options w = o->limits;
  w.generator = LB_GENERATOR_VERSION;
  if (!lb_failed(st)) st = lb_worker_new(o->worker, &w, &m->worker);
  if (!lb_failed(st)) st = lb_compile_log_init(&m->builts, o->dump, o->log);
  if (lb_failed(st)) {
    lb_kernel_builder_free(m);
  } else {
    *out = m;
  }
  return st;
}

void lb_kernel_builder_free(lb_kernel_builder *m) {
  if (!m) return;
  lb_worker_free(m->worker);
  lb_compile_log_fini(&m->builts);
  free(m->ahead.list);
  lb_strbuf_fini(&m->target);
  lb_lock_fini(&m->lock);
  free(m);
}

void lb_kernel_builder_cancel(lb_kernel_builder *m) {
  lb_worker_cancel(m->worker);
}

void lb_kernel_builder_resume(lb_kernel_builder *m) {
  lb_worker_resume(m->worker);
}

void lb_kernel_builder_set_judges(lb_kernel_builder *m, bool judges) {
  m->judges = judges;
}

void lb_kernel_builder_note(lb_kernel_builder *m) {
  if (m->store) lb_status_drop(lb_store_flush(m->store));
}

static void tell_started(const lb_kernel_builder *m, pid_t before) {
  pid_t after = lb_worker_pid(m->worker);
  if (after && after != before)
    lb_hub_emit(m->hub, WORKER_STARTED, NEEDED, after, "%s", "");
}

// Not nice: that can be told it later, while to take it back needs a privilege.
void lb_kernel_builder_prepare(lb_kernel_builder *m) {
  pid_t before = lb_worker_pid(m->worker);
  lb_worker_set_yields(m->worker, false);
  lb_worker_prepare(m->worker);
  tell_started(m, before);
}

bool lb_kernel_builder_gets_ready(lb_kernel_builder *m, int64_t *ns) {
  return lb_worker_gets_ready(m->worker, ns);
}

void lb_kernel_builder_rest(lb_kernel_builder *m) {
  pid_t pid = lb_worker_pid(m->worker);
  lb_worker_rest(m->worker);
  if (pid) lb_hub_emit(m->hub, WORKER_ENDED, IDLE, pid, "%s", "");
}

void lb_kernel_builder_set_yields(lb_kernel_builder *m, bool yields) {
  lb_worker_set_yields(m->worker, yields);
}

// -- what was made -----------------------------------------------------------

// Takes the lock, as do the next two; *out stays where it is.
static lb_status note(lb_kernel_builder *m, const lb_request *r,
                      const lb_object_info *info, lb_compile_record **out) {
  lb_lock_take(&m->lock);
  lb_status st = lb_compile_log_add(&m->builts, r, LB_GENERATOR_VERSION, out);
  if (!lb_failed(st)) {
    (*out)->compile_us = info->compile_us;
    (*out)->check_us = info->check_us;
    m->stats.build_us += info->compile_us + info->check_us;
  }
  lb_lock_give(&m->lock);
  return st;
}

static void note_loaded(lb_kernel_builder *m, lb_compile_record *built,
                        size_t bytes) {
  lb_lock_take(&m->lock);
  if (built) built->code_bytes = bytes;
  m->stats.code_bytes += bytes;
  m->stats.compiled += built != NULL;
  m->stats.found += built == NULL;
  lb_lock_give(&m->lock);
}

static void note_refused(lb_kernel_builder *m, lb_compile_record *built,
                         const char *why) {
  lb_lock_take(&m->lock);
  if (built) lb_status_drop(lb_compile_log_refuse(&m->builts, built, why));
  m->stats.refused++;
  lb_lock_give(&m->lock);
}

bool lb_kernel_builder_built(lb_kernel_builder *m, size_t i,
                             lb_compile_record *out) {
  lb_lock_take(&m->lock);
  bool found = i < m->builts.n;
  if (found) *out = *m->builts.list[i];
  lb_lock_give(&m->lock);
  return found;
}

lb_kernel_builder_stats lb_kernel_builder_count(lb_kernel_builder *m) {
  lb_lock_take(&m->lock);
  lb_kernel_builder_stats s = m->stats;
  lb_lock_give(&m->lock);
  return s;
}

// -- making ------------------------------------------------------------------

static lb_tier tier_of(const lb_slot *slot) {
  return lb_facts_reusable(&slot->key.facts) ? LB_TIER_REUSABLE
                                             : LB_TIER_SPECIALISED;
}

// Without memory to note it, a kernel is tried once more.
static void note_judged(lb_kernel_builder *m, lb_slot *slot) {
  lb_slot_profile *p = lb_slot_profile_make(m->slots, slot);
  if (p) p->judged = true;
}

static bool was_judged(const lb_slot *slot) {
  const lb_slot_profile *p = lb_slot_profile_of(slot);
  return p && p->judged;
}

// Takes `exec` over. `built` is NULL for one from disk, which has been told of
// before. Whoever sees a kernel published sees it counted.
static lb_status publish(lb_kernel_builder *m, lb_slot *slot,
                         lb_compile_record *built, lb_exec *exec, bool *kept) {
  lb_slot_code code = {.exec = exec,
                       .tier = tier_of(slot),
                       .on_trial = m->judges && !was_judged(slot)};
  note_loaded(m, built, exec->bytes);
  return lb_slots_publish(m->slots, slot, &code, kept);
}

// -- on disk -----------------------------------------------------------------

static lb_hash128 key_of(const lb_request *r) {
  return lb_kernel_store_key(r, LB_GENERATOR_VERSION);
}

// What was measured before, by whichever process, on such a processor.
static bool was_demoted(lb_kernel_builder *m, lb_slot *slot, lb_hash128 key) {
  static const lb_event e = {.kind = LB_EVENT_KERNEL_DEMOTED,
                             .reason = LB_REASON_REMEMBERED};
  if (!m->judges) return false;
  lb_trial_result v =
      lb_store_trial_result(m->store, key, lb_host_model_get().text);
  if (v == LB_TRIAL_RESULT_KEPT) note_judged(m, slot);
  if (v != LB_TRIAL_RESULT_DEMOTED) return false;
  lb_slot_emit(m->hub, slot, &e, "%s", "");
  atomic_store(&slot->failed, LB_SLOT_DEMOTED);
  return true;
}

// An object that does not load is dropped there.
static lb_status find(lb_kernel_builder *m, lb_slot *slot, const lb_request *r,
                      bool *found) {
  lb_stored_kernel kept;
  lb_event e = {.kind = LB_EVENT_KERNEL_FOUND,
                .reason = LB_REASON_REQUESTED,
                .start_ns = lb_hub_start(m->hub)};
  *found = m->store && was_demoted(m, slot, key_of(r));
  if (*found) return LB_OK;
  LB_TRY(lb_device_ready(m->device));  // else nothing need be found
  if (!lb_kernel_store_get(m->store, r, LB_GENERATOR_VERSION, &kept))
    return LB_OK;
  lb_exec *exec;
  lb_status st =
      lb_device_load(m->device, lb_blob_span(&kept.object), "stored", &exec);
  if (!lb_failed(st)) st = publish(m, slot, NULL, exec, found);
  lb_code code = lb_status_code(st);
  if (code == LB_INVALID || code == LB_UNSUPPORTED) {
    lb_status_drop(lb_store_drop(m->store, key_of(r)));
    lb_status_drop(st);
    st = LB_OK;
  }
  e.value = (int64_t)kept.object.size;
  if (*found) lb_slot_emit(m->hub, slot, &e, "%s", "");
  lb_stored_kernel_fini(&kept);
  return st;
}

static lb_status request_of(const lb_kernel_builder *m, const lb_slot *slot,
                            lb_request *out) {
  return lb_request_init(out, &slot->key.spec, &slot->key.facts,
                         lb_strbuf_str(&m->target));
}

// `built` is NULL if there is no object.
static void refuse(lb_kernel_builder *m, lb_slot *slot, const lb_request *r,
                   lb_compile_record *built, const char *why) {
  if (!built) lb_status_drop(note(m, r, &(lb_object_info){0}, &built));
  static const lb_event e = {.kind = LB_EVENT_KERNEL_FAILED,
                             .reason = LB_REASON_BAD_KERNEL};
  lb_slot_emit(m->hub, slot, &e, "%s: ", why);
  lb_log_line(m->log, LB_LOG_WARN, "a kernel is left out: %s", why);
  note_refused(m, built, why);
  atomic_store(&slot->failed, LB_SLOT_COMPILE_FAILED);
}

static bool is_passing(lb_code code) {
  return code == LB_IO || code == LB_CANCELLED || code == LB_OOM;
}

static void tell_compiled(const lb_kernel_builder *m, lb_slot *slot,
                          int64_t start, size_t bytes) {
  const lb_slot_profile *p = lb_slot_profile_of(slot);
  bool asked = p && atomic_load(&p->urgent) > 0;
  lb_event e = {
      .kind = LB_EVENT_KERNEL_COMPILED,
      .reason = asked ? LB_REASON_REQUESTED : LB_REASON_THRESHOLD_REACHED,
      .start_ns = start,
      .value = (int64_t)bytes};
  lb_slot_emit(m->hub, slot, &e, "%s", "");
}

// What cannot be kept there is made again by the next process.
static void keep(lb_kernel_builder *m, lb_slot *slot, const lb_request *r,
                 const lb_object_info *info, lb_span object) {
  lb_event e = {.kind = LB_EVENT_KERNEL_STORED,
                .reason = LB_REASON_DONE,
                .start_ns = lb_hub_start(m->hub),
                .value = (int64_t)object.size};
  if (!m->store) return;
  lb_status st = lb_kernel_store_put(m->store, r, info, object);
  if (lb_failed(st))
    lb_hub_emit(m->hub, STORE_FAILED, FAILED, 0, "%s", lb_status_message(st));
  else
    lb_slot_emit(m->hub, slot, &e, "%s", "");
  lb_status_drop(st);
}

static lb_status compile(lb_kernel_builder *m, lb_slot *slot,
                         const lb_request *r, int timeout_ms, bool *kept) {
  lb_blob object = {0};
  lb_object_info info;
  lb_compile_record *built = NULL;
  lb_exec *exec;
  int64_t start = lb_hub_start(m->hub);
  pid_t before = lb_worker_pid(m->worker);
  lb_status st = lb_worker_compile(m->worker, r, timeout_ms, &object, &info);
  tell_started(m, before);
  if (!lb_failed(st)) {
    tell_compiled(m, slot, start, object.size);
    st = note(m, r, &info, &built);
  }
  lb_span bytes = lb_blob_span(&object);
  if (!lb_failed(st)) st = lb_device_load(m->device, bytes, built->name, &exec);
  if (!lb_failed(st)) {
    lb_compile_log_dump(&m->builts, built, bytes);
    keep(m, slot, r, &info, bytes);  // first: who settles finds it on disk
    st = publish(m, slot, built, exec, kept);
  }
  lb_blob_fini(&object);
  if (!lb_failed(st) || is_passing(lb_status_code(st))) return st;
  refuse(m, slot, r, built, lb_status_message(st));
  lb_status_drop(st);
  return LB_OK;
}

// Where others use the same store, one of all makes a kernel.
static lb_status make(lb_kernel_builder *m, lb_slot *slot, int timeout_ms,
                      bool soon, lb_compile_result *out) {
  lb_request r;
  bool found = false, kept = true;
  double patience = soon ? LEASE_SOON_S : LEASE_S;
  LB_TRY(request_of(m, slot, &r));
  LB_TRY(lb_device_ready(m->device));
  lb_hash128 key = key_of(&r);
  if (m->store && lb_store_lease(m->store, key, patience) == LB_LEASE_BUSY) {
    *out = LB_COMPILE_LATER;
    return LB_OK;
  }
  lb_status st = find(m, slot, &r, &found);  // put by who had the lease before
  if (!lb_failed(st) && !found) st = compile(m, slot, &r, timeout_ms, &kept);
  if (m->store) lb_store_release(m->store, key);
  *out = kept ? LB_COMPILE_DONE : LB_COMPILE_TOO_LARGE;
  return st;
}

lb_status lb_kernel_builder_make(lb_kernel_builder *m, lb_slot *slot,
                                 int timeout_ms, bool soon,
                                 lb_compile_result *out) {
  int64_t began = lb_detour_begin();
  *out = LB_COMPILE_DONE;
  lb_status st = make(m, slot, timeout_ms, soon, out);
  lb_detour_end(began);
  return st;
}

lb_status lb_kernel_builder_find(lb_kernel_builder *m, lb_slot *slot,
                                 bool *found) {
  lb_request r;
  int64_t began = lb_detour_begin();
  lb_status st = request_of(m, slot, &r);
  *found = false;
  if (!lb_failed(st)) st = find(m, slot, &r, found);
  lb_detour_end(began);
  return st;
}

// -- judging -----------------------------------------------------------------

static void remember(lb_kernel_builder *m, const lb_slot *slot,
                     lb_trial_result verdict) {
  lb_request r;
  lb_status st = request_of(m, slot, &r);
  if (!lb_failed(st))
    st = lb_store_put_trial_result(m->store, key_of(&r),
                                   lb_host_model_get().text, verdict);
  if (lb_failed(st))
    lb_hub_emit(m->hub, STORE_FAILED, FAILED, 0, "%s", lb_status_message(st));
  lb_status_drop(st);
}

static void tell_judged(lb_kernel_builder *m, const lb_slot *slot,
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
  const char *than = slot->in_pack ? "the pack's" : "its cover";
  lb_slot_text(slot, text, sizeof text);
  lb_slot_emit(m->hub, slot, &e,
               "%.2f of the speed of %s, by %u pairs: ", ratio, than,
               (unsigned)found->n);
  lb_log_line(m->log, LB_LOG_INFO,
              "%s: %.2f of the speed of %s, by %u pairs: "
              "%s",
              lb_event_name(e.kind), ratio, than, (unsigned)found->n, text);
}

void lb_kernel_builder_judge(lb_kernel_builder *m, lb_slot *slot,
                             const lb_paired_test *found) {
  bool lost = lb_paired_test_outcome(found) == LB_OUTCOME_SLOWER;
  tell_judged(m, slot, found);
  if (lost) {
    atomic_store(&slot->failed, LB_SLOT_DEMOTED);  // before it lacks
    lb_slots_withdraw(m->slots, slot);
  } else {
    note_judged(m, slot);
    lb_trial_end(lb_slot_trial(slot));
  }
  lb_lock_take(&m->lock);
  *(lost ? &m->stats.demoted : &m->stats.kept) += 1;
  lb_lock_give(&m->lock);
  if (m->store)
    remember(m, slot, lost ? LB_TRIAL_RESULT_DEMOTED : LB_TRIAL_RESULT_KEPT);
}

// -- at the start ------------------------------------------------------------

static bool want_entry(void *user, const lb_store_entry *e) {
  lb_kernel_builder *m = user;
  ahead *a = &m->ahead;
  lb_request r;
  if (!lb_kernel_store_request(e, LB_GENERATOR_VERSION,
                               lb_strbuf_str(&m->target), &r))
    return true;
  a->bytes += e->object.size;
  a->list[a->n++] = r;
  return a->n < PRELOAD_MAX && a->bytes < PRELOAD_BYTES;
}

static lb_status look_ahead(lb_kernel_builder *m) {
  m->ahead.list = calloc(PRELOAD_MAX, sizeof *m->ahead.list);
  return m->ahead.list ? lb_store_each(m->store, want_entry, m) : lb_oom();
}

// What was given up, or taken away, since the list was made stays so.
static lb_status load_next(lb_kernel_builder *m) {
  const lb_request *r = &m->ahead.list[m->ahead.at++];
  lb_slot *slot;
  bool found;
  LB_TRY(lb_slots_add(m->slots, &r->spec, &r->facts, &slot));
  bool stays = lb_slot_tier(slot) > LB_TIER_PACK ||
               atomic_load(&slot->failed) || atomic_load(&slot->evicted);
  return stays ? LB_OK : find(m, slot, r, &found);
}

static bool has_more(const lb_kernel_builder *m) {
  return m->ahead.at < m->ahead.n;
}

static void end_ahead(lb_kernel_builder *m) {
  free(m->ahead.list);
  m->ahead = (ahead){0};
}

lb_status lb_kernel_builder_preload(lb_kernel_builder *m, bool *more) {
  lb_status st = LB_OK;
  int64_t began = lb_detour_begin();
  bool may = m->store && lb_slots_keep(m->slots);
  if (may) st = has_more(m) ? load_next(m) : look_ahead(m);
  lb_detour_end(began);
  *more = may && !lb_failed(st) && has_more(m);
  if (!*more) end_ahead(m);
  return st;
}

// The list is the other process's, which may have been about to free it.
void lb_kernel_builder_begin_anew(lb_kernel_builder *m) {
  m->ahead = (ahead){0};
}

bool lb_kernel_builder_blames(const lb_kernel_builder *m) {
  return lb_worker_had_it(m->worker);
}

void lb_kernel_builder_give_up(lb_kernel_builder *m, lb_slot *slot,
                               const char *why) {
  lb_request r;
  lb_status st = request_of(m, slot, &r);
  if (!lb_failed(st)) refuse(m, slot, &r, NULL, why);
  lb_status_drop(st);
  atomic_store(&slot->failed, LB_SLOT_COMPILE_FAILED);
}
