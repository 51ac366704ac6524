// session/session.c -- a session's life, and taking a context for a run.
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/caller.h"
#include "graph/batch.h"
#include "graph/infer.h"
#include "graph/pass.h"
#include "session/check.h"
#include "session/eval.h"
#include "session/step_profiler.h"
#include "session/partition_manager.h"
#include "session/record.h"
#include "session/run.h"
#include "session/microbatch.h"

// Runs between checks for unused contexts: with LB_IDLE_RUNS, they are freed
// after at most 128.
#define CLEANUP_RUNS 32

#define DEFAULT_PLAN_BYTES ((size_t)24 << 20)
#define DEFAULT_LOOP_LIMIT 10000000

// Are kernels compiled for it in the background?
static bool compiles_in_background(const lb_session *s) {
  return s->options.service && !s->options.quiet;
}

static bool begins_background(const lb_session *s) {
  return compiles_in_background(s) && !s->options.passive;
}

static lb_status prepare(lb_session *s) {
  lb_pass_options passes = {.eval = lb_eval_node,
                            .channels_last = s->options.slots != NULL,
                            .off = s->options.passes_off,
                            .log = s->options.log};
  LB_TRY(lb_infer_graph(s->graph));
  LB_TRY(lb_graph_optimize(s->graph, &passes));
  LB_TRY(lb_infer_graph(s->graph));
  LB_TRY(lb_graph_verify(s->graph));
  if (s->options.l2_bytes) LB_TRY(lb_batch_find(s->graph, &s->batch));
  lb_version *first;
  LB_TRY(lb_session_build(s, &(lb_partition_options){0}, &first));
  atomic_init(&s->versions.current, first);
  return lb_partition_manager_new(s, &s->partition_manager);
}

static lb_device *device_of(const lb_session *s) {
  return s->options.slots ? s->options.slots->device : lb_device_none();
}

lb_status lb_session_new(lb_graph *graph, const lb_session_options *o,
                         lb_session **out) {
  *out = NULL;
  lb_session *s = calloc(1, sizeof *s);
  if (!s) return lb_oom();
  s->graph = graph;
  s->options = *o;
  if (!s->options.plan_bytes) s->options.plan_bytes = DEFAULT_PLAN_BYTES;
  if (!s->options.loop_limit) s->options.loop_limit = DEFAULT_LOOP_LIMIT;
  lb_status st = lb_plans_init(&s->plans, s->options.plan_bytes, o->events);
  if (!lb_failed(st)) {
    st = lb_versions_init(&s->versions, device_of(s));
    if (lb_failed(st)) lb_plans_fini(&s->plans);
  }
  if (lb_failed(st)) {
    free(s);
    return st;
  }
  st = prepare(s);
  if (lb_failed(st)) {
    lb_session_free(s);
  } else {
    if (s->options.service) s->number = lb_service_join(s->options.service);
    if (begins_background(s)) lb_service_begin_background(s->options.service);
    *out = s;
  }
  return st;
}

// Unsigned sums may wrap around and back.
static void count_scratch(lb_session *s, lb_context *c, size_t bytes) {
  if (bytes != c->counted)
    atomic_fetch_add_explicit(&s->scratch_bytes, bytes - c->counted,
                              memory_order_relaxed);
  c->counted = bytes;
}

// NULL is fine.
static void free_context(lb_session *s, lb_context *c) {
  lb_version *v = c ? c->version : NULL;
  if (c) count_scratch(s, c, 0);
  lb_context_free(c);
  lb_session_release_version(s, v);
}

void lb_session_free(lb_session *s) {
  if (!s) return;
  if (s->number) lb_service_leave(s->options.service, s->number);
  if (s->number && begins_background(s))
    lb_service_end_background(s->options.service);
  lb_recorder_free(s->recorder);
  for (int i = 0; i < LB_IDLE_CONTEXTS; i++) free_context(s, s->idle[i]);
  lb_partition_manager_free(s->partition_manager);
  lb_session_release_version(s, s->versions.current);
  lb_plans_fini(&s->plans);
  lb_versions_fini(&s->versions);
  free(s);
}

// -- contexts ----------------------------------------------------------------

static lb_version *current(const lb_session *s) {
  return atomic_load(&s->versions.current);
}

// Gives the context the version of `run`, or the current one if that is NULL.
static void set_version(lb_session *s, lb_context *c, const lb_context *run) {
  if (c->version == (run ? run->version : current(s))) return;
  lb_context_drop_plan(c);
  lb_session_release_version(s, c->version);
  c->version = run ? lb_version_retain(run->version) : lb_version_take(s);
  c->program = c->version->program;
}

lb_status lb_session_take_context(lb_session *s, const lb_context *run,
                                  lb_context **out) {
  lb_context *c = NULL;
  for (int i = 0; !c && i < LB_IDLE_CONTEXTS; i++)
    if (atomic_load_explicit(&s->idle[i], memory_order_relaxed))
      c = atomic_exchange(&s->idle[i], NULL);
  if (!c) LB_TRY(lb_context_new(s->options.alloc, device_of(s), &c));
  c->pool = s->options.pool;
  c->results = s->options.alloc;
  set_version(s, c, run);
  *out = c;
  return LB_OK;
}

static lb_status take_for_run(lb_session *s, lb_context **out) {
  uint64_t run = atomic_fetch_add(&s->runs, 1);
  LB_TRY(lb_session_take_context(s, NULL, out));
  (*out)->seed = run << 32;
  (*out)->run = run;
  return LB_OK;
}

static void put_context(lb_session *s, lb_context *c) {
  for (int i = 0; i < LB_IDLE_CONTEXTS; i++) {
    lb_context *none = NULL;
    if (atomic_compare_exchange_strong(&s->idle[i], &none, c)) return;
  }
  free_context(s, c);
}

// Idle contexts release versions that are not current.
static void release_old_versions(lb_session *s) {
  const lb_version *now;
  do {
    now = current(s);
    for (int i = 0; i < LB_IDLE_CONTEXTS; i++) {
      lb_context *c = atomic_exchange(&s->idle[i], NULL);
      if (!c) continue;
      if (c->version != now) {
        lb_context_drop_plan(c);
        lb_session_release_version(s, c->version);
        c->version = NULL;
      }
      put_context(s, c);
    }
  } while (current(s) != now);
}

static void return_context(lb_session *s, lb_context *c) {
  const lb_version *v = c->version;  // another run may take the context soon
  count_scratch(s, c, c->budget->kept);
  put_context(s, c);
  if (v && v != current(s)) release_old_versions(s);
}

void lb_session_swap(lb_session *s, lb_version *v) {
  lb_version *old = atomic_exchange(&s->versions.current, lb_version_retain(v));
  release_old_versions(s);
  lb_session_release_version(s, old);
}

// Frees idle contexts that no run has used for long, after a time with more
// concurrent runs.
static void free_unused(lb_session *s, uint64_t run) {
  for (int i = 0; i < LB_IDLE_CONTEXTS; i++) {
    if (!atomic_load_explicit(&s->idle[i], memory_order_relaxed)) continue;
    lb_context *c = atomic_exchange(&s->idle[i], NULL);
    if (c && c->run + LB_IDLE_RUNS < run) {
      lb_event_emit_since(s->options.events, MEMORY_TRIMMED, UNUSED, 0,
                          lb_context_trim(c), "%s", "");
      free_context(s, c);
    } else if (c) {
      return_context(s, c);
    }
  }
}

void lb_session_give_context(lb_session *s, lb_context *c) {
  uint64_t run = c->run;
  size_t freed = 0;
  if (s->options.memory_limit) {
    lb_context_trim(c);
  } else {
    freed = lb_context_end(c);
  }
  if (freed)
    lb_event_emit_since(s->options.events, MEMORY_TRIMMED, ARENA_UNDERUSED, 0,
                        freed, "%s", "");
  c->watcher = NULL;
  c->limits = NULL;
  c->lends = false;
  return_context(s, c);
  if (run % CLEANUP_RUNS == 0) free_unused(s, run);
}

size_t lb_session_trim(lb_session *s) {
  size_t bytes = 0;
  for (int i = 0; i < LB_IDLE_CONTEXTS; i++) {
    lb_context *c = atomic_exchange(&s->idle[i], NULL);
    if (c) bytes += lb_context_trim(c);
    free_context(s, c);
  }
  lb_event_emit_since(s->options.events, MEMORY_TRIMMED, REQUESTED, 0, bytes,
                      "%s", "");
  return bytes;
}

lb_status lb_session_run(lb_session *s, const lb_tensor *inputs,
                         lb_output *outputs) {
  return lb_session_run_with(s, inputs, outputs, &(lb_run_how){0});
}

static void emit_run(const lb_session *s, const lb_tensor *inputs,
                     const lb_run_limits *limits, lb_status st, int64_t start) {
  lb_events *e = s->options.events;
  char shapes[LB_EVENT_TEXT];
  lb_run_shapes(s->graph->main, inputs, shapes, sizeof shapes);
  if (!lb_failed(st)) {
    lb_event_emit_since(e, RUN_ENDED, DONE, start, 0, "%s", shapes);
  } else if (limits && limits->found == LB_LIMITS_LATE) {
    lb_event_emit_since(e, RUN_CANCELLED, DEADLINE, start, 0, "%s",
                        lb_status_message(st));
  } else if (limits && limits->found) {
    lb_event_emit_since(e, RUN_CANCELLED, CANCELLED, start, 0, "%s",
                        lb_status_message(st));
  } else {
    lb_event_emit_since(e, RUN_ENDED, FAILED, start, 0, "%s",
                        lb_status_message(st));
  }
}

static void free_output(const lb_alloc *alloc, lb_output *o) {
  if (!o->owned) return;
  lb_alloc_put(alloc, o->data);
  *o = (lb_output){.wanted = o->wanted};
}

// The smaller of two limits; 0 is none.
static size_t limit_of(size_t a, size_t b) {
  if (!a || !b) return a ? a : b;
  return a < b ? a : b;
}

lb_status lb_session_run_with(lb_session *s, const lb_tensor *inputs,
                              lb_output *outputs, const lb_run_how *how) {
  lb_lru *lru = s->options.slots ? s->options.slots->lru : NULL;
  lb_partition_manager *m = s->partition_manager;
  lb_context *c;
  int64_t start = lb_event_start(s->options.events);
  LB_TRY(lb_check_inputs(s->graph, inputs));
  LB_TRY(take_for_run(s, &c));
  c->watcher = how->watcher;
  c->limits = how->limits;
  c->lends = how->lends;
  c->lent = how->scratch;
  c->lent_bytes = how->scratch_bytes;
  if (how->pool) c->pool = how->pool;
  if (how->alloc) c->results = how->alloc;
  lb_context_begin(c, limit_of(s->options.memory_limit,
                               how->limits ? how->limits->memory_limit : 0));
  lb_pool *pool = c->pool;
  lb_pool_enter(pool);
  lb_lru_enter(lru, c->reader);
  lb_caller_enter();
  lb_status st = m ? lb_partition_manager_run(m, c, inputs, outputs)
                   : lb_microbatch_run(s, c, inputs, outputs);
  lb_caller_leave();
  lb_lru_leave(lru, c->reader);
  lb_pool_leave(pool);
  lb_session_give_context(s, c);
  lb_recorder *recorder =
      atomic_load_explicit(&s->recorder, memory_order_acquire);
  if (recorder && !lb_failed(st)) lb_recorder_note(recorder, inputs, outputs);
  if (start) emit_run(s, inputs, how->limits, st, start);
  for (uint32_t i = 0; lb_failed(st) && i < s->graph->main->n_results; i++)
    free_output(how->alloc ? how->alloc : s->options.alloc, &outputs[i]);
  return st;
}

// -- planning ahead ----------------------------------------------------------

static lb_status check_contents(const lb_program *prog,
                                const lb_tensor *inputs) {
  const lb_region *r = prog->graph->main;
  for (uint32_t i = 0; i < r->n_params; i++)
    if (!inputs[i].data && lb_program_reads(prog, r->params[i], &inputs[i]))
      return lb_error(LB_INVALID,
                      "the contents of input '%s' decide shapes: a plan needs "
                      "them",
                      r->params[i]->name);
  return LB_OK;
}

static lb_plan_counts count_steps(const lb_plan *plan) {
  lb_plan_counts n = {.left = plan->n_left, .arena_bytes = plan->arena_bytes};
  for (uint32_t i = 0; i < plan->n_steps; i++, n.steps++) {
    if (plan->steps[i].kind != LB_STEP_LAUNCH) continue;
    i += plan->steps[i].skip;
    n.launches++;
  }
  return n;
}

static lb_status emit_steps(const lb_plan *plan, const lb_watcher *watcher) {
  for (uint32_t i = 0; watcher && i < plan->n_steps; i++) {
    const lb_step *step = &plan->steps[i];
    lb_step_event e;
    lb_watch_step(step, &e);
    e.version = plan->program->version;
    e.step = plan->first_step + i;
    LB_TRY(watcher->step(watcher->user, &e));
    if (step->kind == LB_STEP_LAUNCH) i += step->skip;
  }
  return LB_OK;
}

// Builds all plans that a run would use; *out is that of the first micro-batch.
static lb_status plan_microbatches(lb_session *s, lb_context *c,
                                   const lb_tensor *in,
                                   const lb_output *outputs, lb_plan **out) {
  const lb_region *r = s->graph->main;
  lb_microbatches split;
  LB_TRY(lb_microbatch_split(s, c, in, outputs, &split));
  int64_t n = lb_microbatches_count(&split);
  if (n == 1) return lb_run_plan(s, c, r, in, outputs, out);
  lb_tensor *part = lb_arena_new(&c->keys, lb_tensor, r->n_params);
  if (!part) return lb_oom();
  // Longer micro-batches come first, so each of the others equals one of these.
  int64_t on_workers = split.workers * split.per_worker;
  int64_t ends[] = {n - 1, on_workers < n ? on_workers : 0,
                    split.per_worker ? split.per_worker - 1 : 0, 0};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    lb_plan_release(*out);
    lb_microbatch_inputs(s, in, &split, ends[i], part);
    LB_TRY(lb_run_plan(s, c, r, part, outputs, out));
  }
  return LB_OK;
}

static lb_status plan_with_watcher(lb_session *s, const lb_tensor *inputs,
                                   const lb_output *outputs,
                                   const lb_watcher *watcher,
                                   lb_plan_counts *out) {
  const lb_region *r = s->graph->main;
  lb_context *c;
  lb_plan *plan = NULL;
  LB_TRY(lb_check_inputs(s->graph, inputs));
  LB_TRY(lb_session_take_context(s, NULL, &c));
  lb_output *all = lb_arena_new(&c->keys, lb_output, r->n_results);
  lb_status st = all ? check_contents(c->program, inputs) : lb_oom();
  for (uint32_t i = 0; all && i < r->n_results; i++) all[i].wanted = true;
  if (!lb_failed(st))
    st = plan_microbatches(s, c, inputs, outputs ? outputs : all, &plan);
  if (!lb_failed(st)) *out = count_steps(plan);
  if (!lb_failed(st)) st = emit_steps(plan, watcher);
  lb_plan_release(plan);
  lb_arena_reset(&c->keys);
  return_context(s, c);
  return st;
}

lb_status lb_session_plan(lb_session *s, const lb_tensor *inputs,
                          const lb_output *outputs, lb_plan_counts *out) {
  return plan_with_watcher(s, inputs, outputs, NULL, out);
}

lb_status lb_session_plan_watched(lb_session *s, const lb_tensor *inputs,
                                  const lb_watcher *watcher,
                                  lb_plan_counts *out) {
  return plan_with_watcher(s, inputs, NULL, watcher, out);
}

lb_status lb_session_record(lb_session *s, const char *path,
                            const lb_log *log) {
  lb_recorder *none = NULL, *r = atomic_load(&s->recorder);
  if (!r && !path) return LB_OK;
  if (!r) {
    lb_version *v = lb_version_take(s);
    lb_status st = lb_recorder_new(v->program, log, &r);
    lb_session_release_version(s, v);
    LB_TRY(st);
    if (!atomic_compare_exchange_strong(&s->recorder, &none, r)) {
      lb_recorder_free(r);
      r = none;
    }
  }
  return lb_recorder_set(r, path);
}

typedef struct slot_visitor {
  void (*fn)(void *user, lb_slot *slot);
  void *user;
} slot_visitor;

static void visit_slots(void *user, const lb_plan *plan) {
  const slot_visitor *t = user;
  for (uint32_t i = 0; i < plan->n_steps; i++)
    for (const lb_launch *l = plan->steps[i].launch; l; l = l->next)
      t->fn(t->user, l->slot);
}

void lb_session_each_slot(lb_session *s, void (*fn)(void *user, lb_slot *slot),
                          void *user) {
  lb_plans_each(&s->plans, visit_slots, &(slot_visitor){fn, user});
}

// -- settling ----------------------------------------------------------------

static void each_slot(void *user, void (*enqueue)(void *to, lb_slot *slot),
                      void *to) {
  lb_session_each_slot(user, enqueue, to);
}

lb_status lb_session_settle(lb_session *s, double seconds, uint64_t users) {
  lb_settle how = {.seconds = seconds,
                   .users = users,
                   .critical = s->options.critical,
                   .each = each_slot,
                   .user = s};
  lb_partition_manager_update(s->partition_manager);
  return s->options.service ? lb_service_settle(s->options.service, &how)
                            : LB_OK;
}

void lb_output_free(const lb_session *s, lb_output *o) {
  free_output(s->options.alloc, o);
}

size_t lb_session_scratch_bytes(const lb_session *s) {
  return atomic_load_explicit(&s->scratch_bytes, memory_order_relaxed);
}

size_t lb_session_plan_bytes(const lb_session *s) {
  return atomic_load_explicit(&s->plans.bytes, memory_order_relaxed);
}

void lb_session_stats_get(lb_session *s, lb_session_stats *out) {
  lb_versions *v = &s->versions;
  *out =
      (lb_session_stats){.runs = atomic_load(&s->runs),
                         .programs = atomic_load(&v->usage.count),
                         .own_bytes = sizeof *s + atomic_load(&v->usage.bytes)};
  lb_lock_take(&v->weights.lock);
  out->packed_bytes = v->weights.bytes;
  out->packings = v->weights.packings;
  lb_lock_give(&v->weights.lock);
  lb_version *now = lb_version_take(s);
  out->version = lb_version_number(now);
  out->ragged_runs = lb_partition_manager_fused_runs(s->partition_manager);
  lb_session_release_version(s, now);
  for (int i = 0; i < LB_IDLE_CONTEXTS; i++) {
    lb_context *c = atomic_exchange(&s->idle[i], NULL);  // not in use
    if (!c) continue;
    out->contexts++;
    out->arena_bytes += c->budget->kept;
    out->own_bytes += sizeof *c + c->scratch.used + c->keys.used;
    return_context(s, c);
  }
  lb_lock_take(&s->plans.lock);
  out->plans = s->plans.map.count;
  out->plan_bytes = s->plans.bytes;
  out->plans_built = s->plans.built;
  out->plans_evicted = s->plans.evicted;
  lb_lock_give(&s->plans.lock);
}
