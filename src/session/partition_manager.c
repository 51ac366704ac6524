// session/partition_manager.c -- see partition_manager.h.
#include "session/partition_manager.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "fuse/lifecycle.h"
#include "observe/analyzer.h"
#include "session/eval.h"
#include "session/microbatch.h"
#include "session/ragged.h"
#include "session/verify.h"

#define HALF_LIFE 64   // samples
#define FIRST_RUNS 64  // whose masks are all looked at
#define LOOK_EVERY 4   // later, while nothing is fused

enum { POINT_GUARD, POINT_PADDING, POINT_ORIGINAL, POINT_FUSED };

struct lb_partition_manager {
  lb_session *s;
  lb_ragged ragged;
  lb_analyzer *analyzer;     // NULL: fused wherever the guard holds
  lb_version_place version;  // deployed; owned. NULL: none
  atomic_int phase;          // lb_fusion_phase: that of `life`, for runs
  lb_fusion_life life;       // used by the analyzer's function only
  atomic_ullong runs, eligible, fused_runs;
  atomic_bool wrong;     // a fused run differed from the original
  atomic_bool compiled;  // some fused run counted
  atomic_size_t token_bytes;
};

// -- the analyzer's side -----------------------------------------------------

static lb_status build(lb_partition_manager *m) {
  lb_version *v;
  if (atomic_load(&m->version)) return LB_OK;
  LB_TRY(
      lb_version_build(m->s, m->ragged.graph, &(lb_partition_options){0}, &v));
  atomic_store(&m->version, v);
  return LB_OK;
}

// Runs that have taken it keep it to their end.
static void withdraw(lb_partition_manager *m) {
  lb_session_release_version(m->s, atomic_exchange(&m->version, NULL));
}

static void forget_times(lb_partition_manager *m) {
  lb_analyzer_forget(m->analyzer, POINT_ORIGINAL);
  lb_analyzer_forget(m->analyzer, POINT_FUSED);
}

static void log_action(const lb_partition_manager *m, lb_fusion_action action,
                       const lb_dataflow_stats *s) {
  static const char *const what[] = {
      [LB_FUSION_STAY] = NULL,
      [LB_FUSION_DEPLOY] = "runs without padding are tried",
      [LB_FUSION_KEEP] = "padding is left out from now on",
      [LB_FUSION_REMEASURE] =
          "run times have changed: runs without padding "
          "are tried again",
      [LB_FUSION_WITHDRAW] = "padding is computed again"};
  if (!what[action]) return;
  lb_log_line(m->s->options.log, LB_LOG_INFO,
              "%s: %.0f %% of the positions are padding, the guard holds in "
              "%.0f %% of the runs, expected gain %.0f %%, measured %.0f %%",
              what[action], 100 * s->padding.mean, 100 * s->guard.mean,
              100 * m->life.expected, 100 * m->life.measured);
}

// lb_analyzer_fn.
static void decide(void *user, const lb_snapshot *now) {
  lb_partition_manager *m = user;
  lb_dataflow_stats s = {.guard = now->points[POINT_GUARD],
                         .padding = now->points[POINT_PADDING],
                         .original = now->points[POINT_ORIGINAL],
                         .fused = now->points[POINT_FUSED]};
  lb_fusion_candidate c = {.partitions = m->ragged.n_attentions,
                           .row_bytes = m->ragged.row_bytes};
  lb_fusion_life before = m->life;
  lb_fusion_action action =
      lb_fusion_advance(&m->life, &c, &s, atomic_load(&m->runs));
  if (action == LB_FUSION_DEPLOY) {
    lb_status st = build(m);
    if (lb_failed(st)) {  // without memory: later, perhaps
      m->life = before;
      lb_status_drop(st);
      return;
    }
  }
  if (action == LB_FUSION_DEPLOY || action == LB_FUSION_REMEASURE)
    forget_times(m);
  log_action(m, action, &s);
  if (m->life.phase == LB_FUSION_REJECTED) withdraw(m);
  atomic_store_explicit(&m->phase, (int)m->life.phase, memory_order_release);
}

// -- runs --------------------------------------------------------------------

static bool takes_most_time(const lb_spec *s) {
  return s->form == LB_FORM_MATMUL || s->form == LB_FORM_ATTENTION ||
         s->form == LB_FORM_CONV;
}

// Whether each matmul, attention and convolution of the context's last plan has
// a kernel, compiled or of the pack. The cover of other launches is slower by
// little.
static bool has_kernels(const lb_context *c) {
  const lb_plan *p = c->last;
  for (uint32_t i = 0; p && i < p->n_steps; i++)
    for (const lb_launch *l = p->steps[i].launch; l; l = l->next)
      if (takes_most_time(&l->slot->key.spec) && !lb_slot_kernel(l->slot))
        return false;
  return p != NULL;
}

static void sample(lb_partition_manager *m, const lb_context *c, uint32_t point,
                   double value) {
  if (m->analyzer)
    lb_analyzer_sample(m->analyzer, (uintptr_t)c >> 8, point, (float)value);
}

static lb_fusion_phase phase_of(const lb_partition_manager *m) {
  return (lb_fusion_phase)atomic_load_explicit(&m->phase, memory_order_acquire);
}

// Times are those of a position, padding included.
static void sample_time(lb_partition_manager *m, const lb_context *c,
                        uint32_t point, const lb_ragged_guard *guard,
                        int64_t start) {
  double ns = (double)(lb_clock_ns() - start);
  double positions = (double)(guard->batch.sequences * guard->batch.length);
  if (!has_kernels(c)) return;
  if (point == POINT_FUSED)
    atomic_store_explicit(&m->compiled, true, memory_order_relaxed);
  sample(m, c, point, log(ns / positions));
}

// The version for the next run whose guard holds, to be released; NULL: the
// original.
static lb_version *choose(lb_partition_manager *m) {
  uint64_t i = atomic_fetch_add_explicit(&m->eligible, 1, memory_order_relaxed);
  bool compiled = atomic_load_explicit(&m->compiled, memory_order_relaxed);
  if (atomic_load_explicit(&m->wrong, memory_order_relaxed)) return NULL;
  if (m->analyzer && !lb_fusion_chooses(phase_of(m), i, compiled)) return NULL;
  return lb_version_take_from(m->s, &m->version);
}

// Recomputes one fused run in `options.verify`.
static lb_status verify(lb_partition_manager *m, lb_context *c,
                        const lb_tensor *in, const lb_output *out) {
  unsigned every = m->s->options.verify;
  bool same;
  if (!every || atomic_load(&m->fused_runs) % every) return LB_OK;
  LB_TRY(lb_verify_run(m->s, c, in, out, &same));
  if (!same) atomic_store(&m->wrong, true);
  return LB_OK;
}

static lb_status run_guarded(lb_partition_manager *m, lb_context *c,
                             const lb_tensor *in, lb_output *out,
                             const lb_ragged_guard *guard) {
  lb_version *fused = choose(m);
  int64_t start = lb_clock_ns();
  lb_status st;
  if (fused) {
    atomic_fetch_add_explicit(&m->fused_runs, 1, memory_order_relaxed);
    st = lb_ragged_run_main(m->s, c, fused->program, guard, in, out,
                            &m->token_bytes);
  } else {
    st = lb_microbatch_run(m->s, c, in, out);
  }
  if (!lb_failed(st) && m->analyzer && !c->watcher)
    sample_time(m, c, fused ? POINT_FUSED : POINT_ORIGINAL, guard, start);
  if (fused && !lb_failed(st)) st = verify(m, c, in, out);
  lb_session_release_version(m->s, fused);
  return st;
}

// Whether this run looks at its mask.
static bool looks(lb_partition_manager *m) {
  uint64_t i = atomic_fetch_add_explicit(&m->runs, 1, memory_order_relaxed);
  lb_fusion_phase phase = phase_of(m);
  return !m->analyzer || phase == LB_FUSION_TRYING ||
         phase == LB_FUSION_FUSED || i < FIRST_RUNS || i % LOOK_EVERY == 0;
}

lb_status lb_partition_manager_run(lb_partition_manager *m, lb_context *c,
                                   const lb_tensor *in, lb_output *out) {
  lb_ragged_guard guard;
  if (!looks(m)) return lb_microbatch_run(m->s, c, in, out);
  lb_status st = lb_ragged_check(&m->ragged, c, in, out, &guard);
  if (!lb_failed(st)) {
    sample(m, c, POINT_GUARD, guard.holds);
    if (guard.holds) sample(m, c, POINT_PADDING, guard.padding);
    st = guard.pays ? run_guarded(m, c, in, out, &guard)
                    : lb_microbatch_run(m->s, c, in, out);
  }
  lb_arena_reset(&c->parts);
  return st;
}

// -- life --------------------------------------------------------------------

static bool may_fuse(const lb_session_options *o) {
  return o->fusion == LB_FUSION_LIVE && !o->deterministic && o->slots &&
         lb_device_shares(o->slots->device);
}

static lb_status start(lb_partition_manager *m) {
  if (m->s->options.fusion_untried) return build(m);
  lb_fusion_life_init(&m->life);
  return lb_analyzer_new(HALF_LIFE, decide, m, &m->analyzer);
}

lb_status lb_partition_manager_new(lb_session *s, lb_partition_manager **out) {
  *out = NULL;
  if (!may_fuse(&s->options)) return LB_OK;
  lb_partition_manager *m = calloc(1, sizeof *m);
  if (!m) return lb_oom();
  m->s = s;
  lb_status st = lb_ragged_find(s->graph, lb_eval_node, &m->ragged);
  if (!lb_failed(st) && m->ragged.graph) {
    st = start(m);
    if (!lb_failed(st)) *out = m;
  } else if (!lb_failed(st)) {
    lb_log_line(s->options.log, LB_LOG_DEBUG, "padding is not left out: %s",
                m->ragged.refusal);
  }
  if (!*out) lb_partition_manager_free(m);
  return st;
}

void lb_partition_manager_free(lb_partition_manager *m) {
  if (!m) return;
  lb_analyzer_free(m->analyzer);
  withdraw(m);
  lb_ragged_fini(&m->ragged);
  free(m);
}

void lb_partition_manager_update(lb_partition_manager *m) {
  if (m && m->analyzer) lb_analyzer_update(m->analyzer);
}

uint64_t lb_partition_manager_fused_runs(const lb_partition_manager *m) {
  return m ? atomic_load(&m->fused_runs) : 0;
}
