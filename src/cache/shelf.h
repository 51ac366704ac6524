// cache/shelf.h -- one byte budget for all that is made and can be made again:
// compiled kernels, primitives, packed weights.
//
// Terms. An *item* stands on the shelf while it is kept. When bytes run out,
// the least recently used ones are *evicted*: hidden, so that nobody finds
// them, then *retired* until no run that may be using them is inside
// (cache/epoch.h), then dropped. Items whose users hold references of their own
// are *counted*, and need not be retired.
//
// (1) The bytes of the items on the shelf never exceed the capacity. What is
//     retired counts apart: it is as much as runs in flight hold, no more.
// (2) Putting, taking and evicting are O(1). Using an item takes no lock: it
//     notes the epoch, and whoever evicts looks at that (recency is as fine as
//     epochs are: one a put and one in 64 runs of a context).
// (3) hide is called with the lock held and must be short; drop without, by
//     whichever thread finds that it is time: one that puts, sets the
//     capacity, refreshes or leaves.
//
// Any thread may call. The lock is one that fork takes.
#ifndef LB_CACHE_SHELF_H
#define LB_CACHE_SHELF_H

#include "cache/epoch.h"

typedef struct lb_shelf_item {
  uint64_t bytes;
  _Atomic uint64_t *used;  // the epoch of its last use; borrowed
  void (*hide)(struct lb_shelf_item *item);
  void (*drop)(struct lb_shelf_item *item);
  bool counted;

  // -- for shelf.c only
  struct lb_shelf_item *prev, *next;
  uint64_t placed;  // the epoch that decides its place; then its stamp
} lb_shelf_item;

typedef struct lb_shelf_stats {
  uint64_t capacity, bytes, items;
  uint64_t retired_bytes, retired;  // hidden, and still in use perhaps
  uint64_t insertions, evictions;   // so far
} lb_shelf_stats;

typedef struct lb_shelf {
  lb_lock lock;  // of all but the epochs' cells
  lb_epochs epochs;
  lb_shelf_item *first, *last;            // by use, the latest first
  lb_shelf_item *first_gone, *last_gone;  // retired, the earliest first
  _Atomic uint64_t gone;                  // stamp of first_gone; 0: none
  _Atomic(lb_shelf_item *) loose;         // hidden and counted, to be dropped
  lb_shelf_stats stats;
} lb_shelf;

lb_status lb_shelf_init(lb_shelf *s, uint64_t capacity);
void lb_shelf_fini(lb_shelf *s);  // drops all; nobody is inside

void lb_shelf_set_capacity(lb_shelf *s, uint64_t bytes);
uint64_t lb_shelf_capacity(lb_shelf *s);
void lb_shelf_count(lb_shelf *s, lb_shelf_stats *out);

// A run that may use items is inside between these. A shelf may be NULL.
static inline void lb_shelf_enter(lb_shelf *s, lb_stay *stay) {
  if (s) lb_epochs_enter(&s->epochs, stay);
}
void lb_shelf_refresh(lb_shelf *s, lb_stay *stay);
void lb_shelf_leave(lb_shelf *s, lb_stay *stay);

// Notes that an item was used in this epoch, the stay's.
static inline void lb_shelf_use(_Atomic uint64_t *used, uint64_t epoch) {
  if (atomic_load_explicit(used, memory_order_relaxed) < epoch)
    atomic_store_explicit(used, epoch, memory_order_relaxed);
}

// Drops what was retired and is not in use any more, and what is counted.
void lb_shelf_collect(lb_shelf *s);

// -- with the lock held; lb_shelf_collect is due after it is given back

// Puts an item there, and evicts others for it. False if it is larger than the
// capacity: then it is not taken.
bool lb_shelf_try_put(lb_shelf *s, lb_shelf_item *item);
// Takes an item off and retires it, unless it is counted; it is hidden already.
void lb_shelf_take_off(lb_shelf *s, lb_shelf_item *item);
// An item takes another number of bytes: it may evict others for that, or be
// evicted itself.
void lb_shelf_resize(lb_shelf *s, lb_shelf_item *item, uint64_t bytes);
// An item was used, and the lock is there: the order is exact.
void lb_shelf_move_up(lb_shelf *s, lb_shelf_item *item);

#endif
