// cache/trial.c -- collects times and decides a trial.
#include "cache/trial.h"

#include <sched.h>
#include <string.h>

#include "base/lock.h"

// The approximate time of a step that is not spent in its kernel: two clock
// readings, and code and arguments that have left the caches since the previous
// run. It is added once more, so that no kernel wins or loses by less.
#define OVERHEAD_NS 5000.0

// A thread that was inside at a fork does not exist in the child.
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
  t->unpaired[0] = t->unpaired[1] = 0;
  memset(t->cells, 0, sizeof t->cells);
  t->test = (lb_paired_test){0};
  leave(t);
}

lb_paired_test lb_trial_paired_test(lb_trial *t) {
  enter(t);
  lb_paired_test result = t->test;
  leave(t);
  return result;
}

// -- while inside ------------------------------------------------------------

// Evicts a cell; a single time waits for the other side of another shape.
static void evict_cell(lb_trial *t, lb_trial_cell *c) {
  for (int i = 0; i < 2; i++)
    if (c->ns[i]) t->unpaired[i] = (OVERHEAD_NS + (double)c->ns[i]) / c->cost;
  *c = (lb_trial_cell){0};
  if (t->unpaired[0] <= 0 || t->unpaired[1] <= 0) return;
  lb_paired_test_add(&t->test, t->unpaired[1], t->unpaired[0]);
  t->unpaired[0] = t->unpaired[1] = 0;
}

static lb_trial_cell *cell_of(lb_trial *t, const lb_trial_time *x) {
  for (int i = 0; i < LB_TRIAL_CELLS; i++)
    if (t->cells[i].work == x->work) return &t->cells[i];
  lb_trial_cell *c = &t->cells[t->next++ % LB_TRIAL_CELLS];
  if (c->work) evict_cell(t, c);
  *c = (lb_trial_cell){.work = x->work, .run = x->run, .cost = x->cost};
  return c;
}

// Steps of one run with the same work count as one time, the minimum.
static void add_time(lb_trial *t, const lb_trial_time *x) {
  lb_trial_cell *c = cell_of(t, x);
  if (c->run != x->run && c->ns[0] && c->ns[1]) {
    lb_paired_test_add(&t->test, OVERHEAD_NS + (double)c->ns[1],
                       OVERHEAD_NS + (double)c->ns[0]);
    c->ns[0] = c->ns[1] = 0;
  }
  c->run = x->run;
  int64_t *ns = &c->ns[x->baseline], now = x->ns > 0 ? x->ns : 1;
  if (!*ns || now < *ns) *ns = now;
  if (t->run != x->run) t->runs++;
  t->run = x->run;
}

static lb_trial_state decide(const lb_trial *t) {
  switch (lb_paired_test_outcome(&t->test)) {
    case LB_OUTCOME_SLOWER: return LB_TRIAL_LOST;
    case LB_OUTCOME_OPEN:
      return t->runs < LB_TRIAL_RUNS ? LB_TRIAL_OPEN : LB_TRIAL_KEPT;
    default: return LB_TRIAL_KEPT;
  }
}

bool lb_trial_add(lb_trial *t, const lb_trial_time *x) {
  if (!try_enter(t)) return false;
  int open = LB_TRIAL_OPEN;
  if (lb_trial_at(t) == LB_TRIAL_OPEN) add_time(t, x);
  lb_trial_state now = decide(t);
  bool decided = now != LB_TRIAL_OPEN &&
                 atomic_compare_exchange_strong(&t->state, &open, now);
  leave(t);
  return decided;
}
