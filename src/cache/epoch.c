// cache/epoch.c -- when what was taken out of reach can be freed.
//
// (1) A run writes its cell by an exchange before it looks for anything, and
//     whoever frees reads cells by an exchange, too, after hiding what is to be
//     freed. Whichever of the two comes second sees what the first did: either
//     the run is seen inside, or it finds nothing that was hidden.
// (2) A stamp is taken after hiding. A run that reads a later epoch has
//     therefore seen what was hidden before it began.
// (3) A cell whose fork count is not ours belongs to a thread that is not here.
#include "cache/epoch.h"

#define EPOCH_BITS 48
#define EPOCH_MASK ((UINT64_C(1) << EPOCH_BITS) - 1)
#define RUNS_PER_EPOCH 64  // recency is told by epochs, see cache/lru.h

void lb_epochs_init(lb_epochs *e, lb_lock *lock) {
  *e = (lb_epochs){.now = 1, .lock = lock};
}

static uint64_t fork_bits(void) {
  return (uint64_t)lb_fork_count() << EPOCH_BITS;
}

static bool is_free(uint64_t at) {
  return at == 0 || (at & ~EPOCH_MASK) != fork_bits();
}

// Contexts lie far apart, so that the bits in the middle tell them apart.
static size_t home_of(const lb_epoch_reader *s) {
  uint64_t bits = (uint64_t)(uintptr_t)s * UINT64_C(0x9E3779B97F4A7C15);
  return (size_t)(bits >> 58) % LB_EPOCH_CELLS;
}

static bool try_cell(lb_epoch_cell *cell, uint64_t at) {
  uint64_t seen = atomic_load_explicit(&cell->at, memory_order_relaxed);
  return is_free(seen) &&
         atomic_compare_exchange_strong_explicit(
             &cell->at, &seen, at, memory_order_acq_rel, memory_order_relaxed);
}

// The list, without stays of threads that a fork left behind: their memory may
// be another's by now. With the lock held.
static lb_epoch_reader **others(lb_epochs *e) {
  if (e->forks != lb_fork_count()) e->others = NULL;
  e->forks = lb_fork_count();
  return &e->others;
}

static void add_own(lb_epochs *e, lb_epoch_reader *s) {
  s->cell = &s->own;
  lb_lock_take(e->lock);
  lb_epoch_reader **first = others(e);
  atomic_exchange_explicit(&s->own.at, s->mark, memory_order_acq_rel);
  s->prev = NULL;
  s->next = *first;
  if (*first) (*first)->prev = s;
  *first = s;
  lb_lock_give(e->lock);
}

static void remove_own(lb_epochs *e, lb_epoch_reader *s) {
  lb_lock_take(e->lock);
  lb_epoch_reader **first = others(e);
  if (!is_free(s->mark)) {
    *(s->prev ? &s->prev->next : first) = s->next;
    if (s->next) s->next->prev = s->prev;
  }
  lb_lock_give(e->lock);
}

void lb_epochs_enter(lb_epochs *e, lb_epoch_reader *s) {
  if (++s->runs % RUNS_PER_EPOCH == 0) lb_epochs_next(e);
  s->at = atomic_load_explicit(&e->now, memory_order_acquire);
  s->mark = fork_bits() | s->at;
  size_t home = home_of(s);
  for (size_t i = 0; i < LB_EPOCH_CELLS; i++) {
    s->cell = &e->cells[(home + i) % LB_EPOCH_CELLS];
    if (try_cell(s->cell, s->mark)) return;
  }
  add_own(e, s);
}

// False if the cell is another's: this run forked, and in the child it was
// free.
static bool change_cell(lb_epoch_reader *s, uint64_t mark) {
  uint64_t seen = s->mark;
  return atomic_compare_exchange_strong_explicit(
      &s->cell->at, &seen, mark, memory_order_acq_rel, memory_order_relaxed);
}

void lb_epochs_leave(lb_epochs *e, lb_epoch_reader *s) {
  change_cell(s, 0);
  if (s->cell == &s->own) remove_own(e, s);
  s->at = 0;
}

void lb_epochs_refresh(lb_epochs *e, lb_epoch_reader *s) {
  uint64_t now = atomic_load_explicit(&e->now, memory_order_acquire);
  uint64_t mark = fork_bits() | now;
  if (mark == s->mark) return;
  if (is_free(s->mark)) {
    lb_epochs_leave(e, s);
    lb_epochs_enter(e, s);
  } else {
    change_cell(s, mark);
    s->mark = mark;
    s->at = now;
  }
}

static uint64_t older(lb_epoch_cell *cell, uint64_t oldest) {
  uint64_t at = atomic_fetch_add_explicit(&cell->at, 0, memory_order_acq_rel);
  if (is_free(at)) return oldest;
  at &= EPOCH_MASK;
  return at < oldest ? at : oldest;
}

uint64_t lb_epochs_oldest(lb_epochs *e) {
  uint64_t oldest = UINT64_MAX;
  for (size_t i = 0; i < LB_EPOCH_CELLS; i++)
    oldest = older(&e->cells[i], oldest);
  for (lb_epoch_reader *s = *others(e); s; s = s->next)
    oldest = older(&s->own, oldest);
  return oldest;
}
