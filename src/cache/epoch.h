// cache/epoch.h -- when what was taken out of reach can be freed.
//
// A run is *inside* from enter to leave. What nobody can find any more is
// stamped with the epoch of that moment, and may be freed as soon as every run
// that is inside has entered later: earlier ones may still be using it. So
// nothing in use is freed, and nothing outlives the runs that saw it.
//
// enter and leave cost one atomic exchange each and take no lock, unless more
// than LB_EPOCH_CELLS runs are inside at once. Any thread may call.
//
// fork: runs of other threads are not inside in the child, where they have no
// thread. Nor is one that forks itself, until it refreshes.
#ifndef LB_CACHE_EPOCH_H
#define LB_CACHE_EPOCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

#define LB_EPOCH_CELLS 64

typedef struct lb_epoch_cell {
  _Atomic uint64_t at;  // fork count and epoch of a run inside; 0: nobody
  char pad[56];         // cells lie in cache lines of their own
} lb_epoch_cell;

typedef struct lb_epochs {
  _Atomic uint64_t now;            // never 0
  lb_lock *lock;                   // borrowed; of `others`
  struct lb_epoch_reader *others;  // those that found no cell
  unsigned forks;                  // when `others` was whole
  lb_epoch_cell cells[LB_EPOCH_CELLS];
} lb_epochs;

// A run that is inside, or was. Belongs to one run at a time; {0} at first.
typedef struct lb_epoch_reader {
  uint64_t at;          // the epoch it entered; 0: it is not inside
  uint64_t mark;        // what it wrote into its cell
  lb_epoch_cell *cell;  // its own, or borrowed from the epochs
  unsigned runs;        // how often it has entered
  lb_epoch_cell own;
  struct lb_epoch_reader *prev, *next;  // among those that use their own
} lb_epoch_reader;

void lb_epochs_init(lb_epochs *e, lb_lock *lock);

void lb_epochs_enter(lb_epochs *e, lb_epoch_reader *s);
void lb_epochs_leave(lb_epochs *e, lb_epoch_reader *s);
// As leave and enter: for a run that uses nothing at the moment.
void lb_epochs_refresh(lb_epochs *e, lb_epoch_reader *s);

// Begins a new epoch; returns the one that ends, the stamp for what was just
// taken out of reach.
static inline uint64_t lb_epochs_next(lb_epochs *e) {
  return atomic_fetch_add_explicit(&e->now, 1, memory_order_acq_rel);
}

// What has a smaller stamp may be freed. With the lock held.
uint64_t lb_epochs_oldest(lb_epochs *e);

#endif
