// cache/trial.c -- times in, a verdict out.
#include "cache/trial.h"

#include <sched.h>
#include <string.h>

#include "base/lock.h"

// What lies around a kernel in the time of its step, about, and is not its own:
// two readings of the clock, code and arguments that left the caches since the
// run before. It is added once more, so that no kernel wins or loses by less.
#define AROUND_NS 5000.0

// A thread that was inside when its process forked is not there in the child.
static bool try_enter(lb_trial *t) {
  unsigned mine = lb_fork_count() + 1, was = atomic_load(&t->busy);
  return was != mine && atomic_compare_exchange_strong(&t->busy, &was, mine);
}

static void leave(lb_trial *t) { atomic_store(&t->busy, 0); }

static void enter(lb_trial *t) {
  while (!try_enter(t)) sched_yield();
}

void lb_trial_prepare(lb_trial *t) {
  lb_trial_end(t);
  enter(t);
  t->run = 0;
  t->runs = t->next = 0;
  t->left[0] = t->left[1] = 0;
  memset(t->cells, 0, sizeof t->cells);
  t->contest = (lb_paired_test){0};
  leave(t);
}

lb_paired_test lb_trial_found(lb_trial *t) {
  enter(t);
  lb_paired_test found = t->contest;
  leave(t);
  return found;
}

// -- inside ------------------------------------------------------------------

// One time without the other waits for one of another shape.
static void give_up(lb_trial *t, lb_trial_cell *c) {
  for (int i = 0; i < 2; i++)
    if (c->ns[i]) t->left[i] = (AROUND_NS + (double)c->ns[i]) / c->cost;
  *c = (lb_trial_cell){0};
  if (t->left[0] <= 0 || t->left[1] <= 0) return;
  lb_paired_test_add(&t->contest, t->left[1], t->left[0]);
  t->left[0] = t->left[1] = 0;
}

static lb_trial_cell *cell_of(lb_trial *t, const lb_trial_time *x) {
  for (int i = 0; i < LB_TRIAL_CELLS; i++)
    if (t->cells[i].work == x->work) return &t->cells[i];
  lb_trial_cell *c = &t->cells[t->next++ % LB_TRIAL_CELLS];
  if (c->work) give_up(t, c);
  *c = (lb_trial_cell){.work = x->work, .run = x->run, .cost = x->cost};
  return c;
}

// Steps of one run that do the same work are one time, the least.
static void take(lb_trial *t, const lb_trial_time *x) {
  lb_trial_cell *c = cell_of(t, x);
  if (c->run != x->run && c->ns[0] && c->ns[1]) {
    lb_paired_test_add(&t->contest, AROUND_NS + (double)c->ns[1],
                       AROUND_NS + (double)c->ns[0]);
    c->ns[0] = c->ns[1] = 0;
  }
  c->run = x->run;
  int64_t *ns = &c->ns[x->former], now = x->ns > 0 ? x->ns : 1;
  if (!*ns || now < *ns) *ns = now;
  if (t->run != x->run) t->runs++;
  t->run = x->run;
}

static lb_trial_state decide(const lb_trial *t) {
  switch (lb_paired_test_outcome(&t->contest)) {
    case LB_OUTCOME_SLOWER: return LB_TRIAL_LOST;
    case LB_OUTCOME_OPEN:
      return t->runs < LB_TRIAL_RUNS ? LB_TRIAL_OPEN : LB_TRIAL_KEPT;
    default: return LB_TRIAL_KEPT;
  }
}

bool lb_trial_add(lb_trial *t, const lb_trial_time *x) {
  if (!try_enter(t)) return false;
  int open = LB_TRIAL_OPEN;
  if (lb_trial_at(t) == LB_TRIAL_OPEN) take(t, x);
  lb_trial_state now = decide(t);
  bool decided = now != LB_TRIAL_OPEN &&
                 atomic_compare_exchange_strong(&t->state, &open, now);
  leave(t);
  return decided;
}
