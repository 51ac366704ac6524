// cache/epoch.h -- epoch-based reclamation.
//
// A run is *inside* from enter to leave. An object that can no longer be found
// is stamped with the current epoch, and may be freed when every run that is
// inside has entered in a later epoch: earlier runs may still be using it. So
// no object is freed while it is in use, and none outlives the runs that could
// have seen it.
//
// enter and leave cost one atomic exchange each and take no lock, unless more
// than LB_EPOCH_CELLS runs are inside at once. Any thread may call.
//
// In a child of fork, runs of other threads are not inside, because these
// threads do not exist there. Nor is the run that forked, until it refreshes.
#ifndef LB_CACHE_EPOCH_H
#define LB_CACHE_EPOCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

#define LB_EPOCH_CELLS 64

typedef struct lb_epoch_cell {
  _Atomic uint64_t at;  // fork count and epoch of a run that is inside; 0: free
  char pad[56];         // one cell per cache line
} lb_epoch_cell;

typedef struct lb_epochs {
  _Atomic uint64_t now;              // never 0
  lb_lock *lock;                     // borrowed; guards `overflow`
  struct lb_epoch_reader *overflow;  // readers that found no free cell
  unsigned forks;                    // fork count for which `overflow` is valid
  lb_epoch_cell cells[LB_EPOCH_CELLS];
} lb_epochs;

// The state of a run that is or was inside. Belongs to one run at a time;
// initially {0}.
typedef struct lb_epoch_reader {
  uint64_t at;          // the epoch in which it entered; 0: not inside
  uint64_t cell_value;  // the value it wrote to its cell
  lb_epoch_cell *cell;  // &own, or borrowed from the lb_epochs
  unsigned runs;        // number of enters
  lb_epoch_cell own;
  struct lb_epoch_reader *prev, *next;  // in the overflow list
} lb_epoch_reader;

void lb_epochs_init(lb_epochs *e, lb_lock *lock);

void lb_epochs_enter(lb_epochs *e, lb_epoch_reader *s);
void lb_epochs_leave(lb_epochs *e, lb_epoch_reader *s);
// Equivalent to leave and enter, for a run that holds no objects at the moment.
void lb_epochs_refresh(lb_epochs *e, lb_epoch_reader *s);

// Starts a new epoch and returns the previous one, which is the stamp for an
// object that was just hidden.
static inline uint64_t lb_epochs_next(lb_epochs *e) {
  return atomic_fetch_add_explicit(&e->now, 1, memory_order_acq_rel);
}

// Objects with a smaller stamp may be freed. Call with the lock held.
uint64_t lb_epochs_oldest(lb_epochs *e);

#endif
