// session/look.c -- runs that look at their steps.
#include "session/look.h"

#include "compile/queue.h"

static unsigned setbacks_of(const lb_session *s) {
  return atomic_load_explicit(&s->options.slots->setbacks,
                              memory_order_relaxed);
}

static bool tells(const lb_session *s) {
  return lb_service_listens(s->options.service) && !s->options.quiet;
}

bool lb_look_needed(const lb_session *s, const lb_plan *plan) {
  return tells(s) &&
         atomic_load_explicit(&plan->complete, memory_order_relaxed) !=
             setbacks_of(s);
}

void lb_look_begin(lb_look *l, lb_session *s, const lb_context *c) {
  *l = (lb_look){.s = s};
  if (!tells(s)) return;
  l->seen.session = s->number;
  l->seen.run = (uint64_t)s->number << 32 ^ ((c->seed >> 32) + 1);
  l->setbacks = setbacks_of(s);
}

static bool lacks(const lb_look *l, const lb_slot *slot) {
  return lb_slot_lacks(slot) &&
         (!l->s->options.critical || lb_spec_is_critical(&slot->key.spec));
}

static void tell(lb_look *l, const lb_launch *launch, int64_t ns) {
  if (!lacks(l, launch->slot)) return;
  l->lacks = true;
  l->seen.ns = ns;
  lb_service_tell(l->s->options.service, launch->slot, &l->seen);
}

// Launches of a step are zones of one slot, or run in turns: then each has its
// own slot, and its part of the time.
static void tell_step(lb_look *l, const lb_step *step, int64_t ns) {
  int64_t n = 0;
  for (const lb_launch *k = step->launch; k; k = k->next) n++;
  if (!step->turns) {
    tell(l, step->launch, ns);
    return;
  }
  for (const lb_launch *k = step->launch; k; k = k->next) tell(l, k, ns / n);
}

void lb_look_cover(lb_look *l, const lb_step *step, int64_t start) {
  l->covered = step;
  l->behind = step + 1 + step->skip;
  l->since = start;
}

void lb_look_step(lb_look *l, const lb_step *step, int64_t start, int64_t end) {
  if (!l->seen.session) return;
  if (step->kind == LB_STEP_LAUNCH) tell_step(l, step, end - start);
  if (!l->covered || step + 1 < l->behind) return;
  tell_step(l, l->covered, end - l->since);
  l->covered = NULL;
}

void lb_look_end(lb_look *l, lb_plan *plan) {
  if (l->seen.session && !l->lacks)
    atomic_store_explicit(&plan->complete, l->setbacks, memory_order_relaxed);
}
