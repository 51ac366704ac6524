// session/step_profiler.c -- runs that look at their steps.
#include "session/step_profiler.h"

#include "base/hash.h"
#include "compile/queue.h"

static unsigned reviews_of(const lb_session *s) {
  return atomic_load_explicit(&s->options.slots->reviews, memory_order_acquire);
}

static bool tells(const lb_session *s) {
  return lb_service_listens(s->options.service) && !s->options.quiet;
}

bool lb_step_profiler_needed(const lb_session *s, const lb_plan *plan) {
  return tells(s) &&
         atomic_load_explicit(&plan->complete, memory_order_relaxed) !=
             reviews_of(s);
}

// -- trials ------------------------------------------------------------------

// Of one bit. Runs of a plan are later, former, former, later, ...: of each two
// in turn one is by each, and neither always comes first. Plans begin with
// either, so that it comes to the same where none runs twice.
static bool is_former(const lb_plan *plan, unsigned turn) {
  uint64_t mixed = plan->serial * UINT64_C(0x9e3779b97f4a7c15);
  return (__builtin_popcount(turn) & 1) ^ (int)(mixed >> 63);
}

// Where a step has several on trial, one comes after the other.
static lb_slot *tried(const lb_step *step) {
  for (const lb_launch *l = step->launch; l; l = step->turns ? l->next : NULL)
    if (lb_slot_trial_state(l->slot) != LB_TRIAL_NONE) return l->slot;
  return NULL;
}

const lb_slot *lb_step_profiler_without(lb_step_profiler *l,
                                        const lb_step *step) {
  lb_slot *slot = l->tries ? tried(step) : NULL;
  if (!slot) return NULL;
  lb_trial_state state = lb_slot_trial_state(slot);
  return state == LB_TRIAL_LOST || (state == LB_TRIAL_OPEN && l->former) ? slot
                                                                         : NULL;
}

// All sizes, as one number.
static uint64_t work_of(const lb_step *step) {
  uint64_t h = (uint64_t)step->turns;
  for (const lb_launch *l = step->launch; l; l = l->next) {
    size_t n = (size_t)(l->n_args - l->n_operands);
    h ^= (uint64_t)l->split.outer;
    h = lb_hash_seeded(l->args + l->n_operands, n * sizeof *l->args, h);
  }
  return h | 1;
}

// What it should take: a core does about 50 operations and moves 10 bytes in a
// nanosecond. Shapes of one slot are compared by this alone, if at all.
static double cost_of(const lb_step *step) {
  lb_step_event e;
  lb_watch_step(step, &e);
  return 500 + (double)e.flops / 50 + (double)e.bytes / 10;
}

static void try_step(lb_step_profiler *l, const lb_step *step, int64_t ns) {
  lb_slot *slot = tried(step);
  if (!slot) return;
  l->lacks = true;
  if (!l->tries || lb_slot_trial_state(slot) != LB_TRIAL_OPEN) return;
  lb_trial_time t = {.work = work_of(step),
                     .cost = cost_of(step),
                     .run = l->run,
                     .former = l->former,
                     .ns = ns};
  if (lb_trial_add(lb_slot_trial(slot), &t))
    lb_service_decided(l->s->options.service);
}

// -- runs --------------------------------------------------------------------

void lb_step_profiler_begin(lb_step_profiler *l, lb_session *s,
                            const lb_context *c, lb_plan *plan) {
  *l = (lb_step_profiler){.s = s};
  if (!tells(s)) return;
  unsigned turn =
      atomic_fetch_add_explicit(&plan->turns, 1, memory_order_relaxed);
  l->tries = !c->watcher;
  l->former = is_former(plan, turn);
  l->run = plan->serial << 32 ^ (turn + 1);
  l->seen.session = s->number;
  l->seen.compile_threshold = s->options.compile_threshold;
  l->seen.run = (uint64_t)s->number << 32 ^ ((c->seed >> 32) + 1);
  l->reviews = reviews_of(s);
}

static bool lacks(const lb_step_profiler *l, const lb_slot *slot) {
  return lb_slot_is_pending(slot) &&
         (!l->s->options.critical || lb_spec_is_critical(&slot->key.spec));
}

static void tell(lb_step_profiler *l, const lb_launch *launch, int64_t ns) {
  if (!lacks(l, launch->slot)) return;
  l->lacks = true;
  l->seen.ns = ns;
  lb_service_add_sample(l->s->options.service, launch->slot, &l->seen);
}

// Launches of a step are zones of one slot, or run in turns: then each has its
// own slot, and its part of the time.
static void tell_step(lb_step_profiler *l, const lb_step *step, int64_t ns) {
  int64_t n = 0;
  try_step(l, step, ns);
  for (const lb_launch *k = step->launch; k; k = k->next) n++;
  if (!step->turns) {
    tell(l, step->launch, ns);
    return;
  }
  for (const lb_launch *k = step->launch; k; k = k->next) tell(l, k, ns / n);
}

void lb_step_profiler_cover(lb_step_profiler *l, const lb_step *step,
                            int64_t start) {
  l->covered = step;
  l->behind = step + 1 + step->skip;
  l->since = start;
}

void lb_step_profiler_step(lb_step_profiler *l, const lb_step *step,
                           int64_t start, int64_t end) {
  if (!l->seen.session) return;
  if (step->kind == LB_STEP_LAUNCH) tell_step(l, step, end - start);
  if (!l->covered || step + 1 < l->behind) return;
  tell_step(l, l->covered, end - l->since);
  l->covered = NULL;
}

void lb_step_profiler_end(lb_step_profiler *l, lb_plan *plan) {
  if (l->seen.session && !l->lacks)
    atomic_store_explicit(&plan->complete, l->reviews, memory_order_relaxed);
}
