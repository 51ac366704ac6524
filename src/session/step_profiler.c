// session/step_profiler.c -- times the steps of runs, and reports pending slots
// and trials.
#include "session/step_profiler.h"

#include "base/hash.h"
#include "compile/queue.h"

static unsigned reviews_of(const lb_session *s) {
  return atomic_load_explicit(&s->options.slots->reviews, memory_order_acquire);
}

static bool reports(const lb_session *s) {
  return lb_service_wants_samples(s->options.service) && !s->options.quiet;
}

bool lb_step_profiler_needed(const lb_session *s, const lb_plan *plan) {
  return reports(s) &&
         atomic_load_explicit(&plan->complete, memory_order_relaxed) !=
             reviews_of(s);
}

// -- trials ------------------------------------------------------------------

// Runs of a plan follow the Thue-Morse sequence: candidate, baseline, baseline,
// candidate, ... Each pair of runs has one of each, and neither always comes
// first. Plans start with either, so that both are equally frequent where no
// plan runs twice.
static bool is_baseline_run(const lb_plan *plan, unsigned run_no) {
  uint64_t mixed = plan->serial * UINT64_C(0x9e3779b97f4a7c15);
  return (__builtin_popcount(run_no) & 1) ^ (int)(mixed >> 63);
}

// If a step has several slots on trial, they are tried one after the other.
static lb_slot *slot_on_trial(const lb_step *step) {
  for (const lb_launch *l = step->launch; l;
       l = step->iterations ? l->next : NULL)
    if (lb_slot_trial_state(l->slot) != LB_TRIAL_NONE) return l->slot;
  return NULL;
}

const lb_slot *lb_step_profiler_without(lb_step_profiler *l,
                                        const lb_step *step) {
  lb_slot *slot = l->in_trials ? slot_on_trial(step) : NULL;
  if (!slot) return NULL;
  lb_trial_state state = lb_slot_trial_state(slot);
  return state == LB_TRIAL_LOST || (state == LB_TRIAL_OPEN && l->baseline)
             ? slot
             : NULL;
}

// A hash of all sizes.
static uint64_t work_of(const lb_step *step) {
  uint64_t h = (uint64_t)step->iterations;
  for (const lb_launch *l = step->launch; l; l = l->next) {
    size_t n = (size_t)(l->n_args - l->n_operands);
    h ^= (uint64_t)l->split.outer;
    h = lb_hash_seeded(l->args + l->n_operands, n * sizeof *l->args, h);
  }
  return h | 1;
}

// The expected time: a core does about 50 operations and moves 10 bytes per
// nanosecond. Different shapes of one slot are compared by this estimate only.
static double cost_of(const lb_step *step) {
  lb_step_event e;
  lb_watch_step(step, &e);
  return 500 + (double)e.flops / 50 + (double)e.bytes / 10;
}

static void add_trial_time(lb_step_profiler *l, const lb_step *step,
                           int64_t ns) {
  lb_slot *slot = slot_on_trial(step);
  if (!slot) return;
  l->pending = true;
  if (!l->in_trials || lb_slot_trial_state(slot) != LB_TRIAL_OPEN) return;
  lb_trial_time t = {.work = work_of(step),
                     .cost = cost_of(step),
                     .run = l->run,
                     .baseline = l->baseline,
                     .ns = ns};
  if (lb_trial_add(lb_slot_trial(slot), &t))
    lb_service_trial_decided(l->s->options.service);
}

// -- runs --------------------------------------------------------------------

void lb_step_profiler_begin(lb_step_profiler *l, lb_session *s,
                            const lb_context *c, lb_plan *plan) {
  *l = (lb_step_profiler){.s = s};
  if (!reports(s)) return;
  unsigned run_no =
      atomic_fetch_add_explicit(&plan->profiled_runs, 1, memory_order_relaxed);
  l->in_trials = !c->watcher;
  l->baseline = is_baseline_run(plan, run_no);
  l->run = plan->serial << 32 ^ (run_no + 1);
  l->sample.session = s->number;
  l->sample.compile_threshold = s->options.compile_threshold;
  l->sample.run = (uint64_t)s->number << 32 ^ ((c->seed >> 32) + 1);
  l->reviews = reviews_of(s);
}

static bool pending(const lb_step_profiler *l, const lb_slot *slot) {
  return lb_slot_is_pending(slot) &&
         (!l->s->options.critical || lb_spec_is_critical(&slot->key.spec));
}

static void report_launch(lb_step_profiler *l, const lb_launch *launch,
                          int64_t ns) {
  if (!pending(l, launch->slot)) return;
  l->pending = true;
  l->sample.ns = ns;
  lb_service_add_sample(l->s->options.service, launch->slot, &l->sample);
}

// The launches of a step either are zones of one slot, or are run in sequence
// with a slot each; then the time is divided evenly.
static void report_step(lb_step_profiler *l, const lb_step *step, int64_t ns) {
  int64_t n = 0;
  add_trial_time(l, step, ns);
  for (const lb_launch *k = step->launch; k; k = k->next) n++;
  if (!step->iterations) {
    report_launch(l, step->launch, ns);
    return;
  }
  for (const lb_launch *k = step->launch; k; k = k->next)
    report_launch(l, k, ns / n);
}

void lb_step_profiler_cover(lb_step_profiler *l, const lb_step *step,
                            int64_t start) {
  l->covered = step;
  l->cover_end = step + 1 + step->skip;
  l->since = start;
}

void lb_step_profiler_step(lb_step_profiler *l, const lb_step *step,
                           int64_t start, int64_t end) {
  if (!l->sample.session) return;
  if (step->kind == LB_STEP_LAUNCH) report_step(l, step, end - start);
  if (!l->covered || step + 1 < l->cover_end) return;
  report_step(l, l->covered, end - l->since);
  l->covered = NULL;
}

void lb_step_profiler_end(lb_step_profiler *l, lb_plan *plan) {
  if (l->sample.session && !l->pending)
    atomic_store_explicit(&plan->complete, l->reviews, memory_order_relaxed);
}
