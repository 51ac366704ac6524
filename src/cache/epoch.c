// cache/epoch.c -- epoch-based reclamation.
//
// (1) A run writes its cell by an atomic exchange before it looks up an object,
//     and a thread that frees objects reads the cells by an atomic
//     read-modify-write after hiding them. Whichever of the two comes second
//     sees the effect of the first: either the run is seen inside, or it does
//     not find the hidden object.
// (2) A stamp is taken after hiding. A run that reads a later epoch has
//     therefore seen everything that was hidden before that epoch began.
// (3) A cell whose fork count is not the current one belongs to a thread of the
//     parent process.
#include "cache/epoch.h"

#define EPOCH_BITS 48
#define EPOCH_MASK ((UINT64_C(1) << EPOCH_BITS) - 1)
#define RUNS_PER_EPOCH 64  // recency is measured in epochs, see cache/lru.h

void lb_epochs_init(lb_epochs *e, lb_lock *lock) {
  *e = (lb_epochs){.now = 1, .lock = lock};
}

static uint64_t fork_bits(void) {
  return (uint64_t)lb_fork_count() << EPOCH_BITS;
}

static bool is_free(uint64_t at) {
  return at == 0 || (at & ~EPOCH_MASK) != fork_bits();
}

// Hashes the address: run contexts are far apart in memory, so the middle bits
// differ.
static size_t first_cell_of(const lb_epoch_reader *s) {
  uint64_t bits = (uint64_t)(uintptr_t)s * UINT64_C(0x9E3779B97F4A7C15);
  return (size_t)(bits >> 58) % LB_EPOCH_CELLS;
}

static bool try_cell(lb_epoch_cell *cell, uint64_t at) {
  uint64_t seen = atomic_load_explicit(&cell->at, memory_order_relaxed);
  return is_free(seen) &&
         atomic_compare_exchange_strong_explicit(
             &cell->at, &seen, at, memory_order_acq_rel, memory_order_relaxed);
}

// Returns the overflow list. After a fork it is emptied first: its readers
// belong to threads that do not exist, and their memory may have been reused.
// Call with the lock held.
static lb_epoch_reader **overflow(lb_epochs *e) {
  if (e->forks != lb_fork_count()) e->overflow = NULL;
  e->forks = lb_fork_count();
  return &e->overflow;
}

static void add_overflow(lb_epochs *e, lb_epoch_reader *s) {
  s->cell = &s->own;
  lb_lock_take(e->lock);
  lb_epoch_reader **first = overflow(e);
  atomic_exchange_explicit(&s->own.at, s->cell_value, memory_order_acq_rel);
  s->prev = NULL;
  s->next = *first;
  if (*first) (*first)->prev = s;
  *first = s;
  lb_lock_give(e->lock);
}

static void remove_overflow(lb_epochs *e, lb_epoch_reader *s) {
  lb_lock_take(e->lock);
  lb_epoch_reader **first = overflow(e);
  if (!is_free(s->cell_value)) {
    *(s->prev ? &s->prev->next : first) = s->next;
    if (s->next) s->next->prev = s->prev;
  }
  lb_lock_give(e->lock);
}

void lb_epochs_enter(lb_epochs *e, lb_epoch_reader *s) {
  if (++s->runs % RUNS_PER_EPOCH == 0) lb_epochs_next(e);
  s->at = atomic_load_explicit(&e->now, memory_order_acquire);
  s->cell_value = fork_bits() | s->at;
  size_t start = first_cell_of(s);
  for (size_t i = 0; i < LB_EPOCH_CELLS; i++) {
    s->cell = &e->cells[(start + i) % LB_EPOCH_CELLS];
    if (try_cell(s->cell, s->cell_value)) return;
  }
  add_overflow(e, s);
}

// Returns false if the cell belongs to another run: this run forked, and the
// cell was free in the child.
static bool change_cell(lb_epoch_reader *s, uint64_t cell_value) {
  uint64_t seen = s->cell_value;
  return atomic_compare_exchange_strong_explicit(
      &s->cell->at, &seen, cell_value, memory_order_acq_rel,
      memory_order_relaxed);
}

void lb_epochs_leave(lb_epochs *e, lb_epoch_reader *s) {
  change_cell(s, 0);
  if (s->cell == &s->own) remove_overflow(e, s);
  s->at = 0;
}

void lb_epochs_refresh(lb_epochs *e, lb_epoch_reader *s) {
  uint64_t now = atomic_load_explicit(&e->now, memory_order_acquire);
  uint64_t cell_value = fork_bits() | now;
  if (cell_value == s->cell_value) return;
  if (is_free(s->cell_value)) {
    lb_epochs_leave(e, s);
    lb_epochs_enter(e, s);
  } else {
    change_cell(s, cell_value);
    s->cell_value = cell_value;
    s->at = now;
  }
}

static uint64_t min_epoch(lb_epoch_cell *cell, uint64_t oldest) {
  uint64_t at = atomic_fetch_add_explicit(&cell->at, 0, memory_order_acq_rel);
  if (is_free(at)) return oldest;
  at &= EPOCH_MASK;
  return at < oldest ? at : oldest;
}

uint64_t lb_epochs_oldest(lb_epochs *e) {
  uint64_t oldest = UINT64_MAX;
  for (size_t i = 0; i < LB_EPOCH_CELLS; i++)
    oldest = min_epoch(&e->cells[i], oldest);
  for (lb_epoch_reader *s = *overflow(e); s; s = s->next)
    oldest = min_epoch(&s->own, oldest);
  return oldest;
}
