// cache/lru.h -- one byte budget for all that is made and can be made again:
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
#ifndef LB_CACHE_LRU_H
#define LB_CACHE_LRU_H

#include "cache/epoch.h"

typedef struct lb_lru_item {
  uint64_t bytes;
  _Atomic uint64_t *used;  // the epoch of its last use; borrowed
  void (*hide)(struct lb_lru_item *item);
  void (*drop)(struct lb_lru_item *item);
  bool counted;

  // -- for shelf.c only
  struct lb_lru_item *prev, *next;
  uint64_t placed;  // the epoch that decides its place; then its stamp
} lb_lru_item;

typedef struct lb_lru_stats {
  uint64_t capacity, bytes, items;
  uint64_t retired_bytes, retired;  // hidden, and still in use perhaps
  uint64_t insertions, evictions;   // so far
} lb_lru_stats;

typedef struct lb_lru {
  lb_lock lock;  // of all but the epochs' cells
  lb_epochs epochs;
  lb_lru_item *first, *last;            // by use, the latest first
  lb_lru_item *first_gone, *last_gone;  // retired, the earliest first
  _Atomic uint64_t gone;                // stamp of first_gone; 0: none
  _Atomic(lb_lru_item *) loose;         // hidden and counted, to be dropped
  lb_lru_stats stats;
} lb_lru;

lb_status lb_lru_init(lb_lru *s, uint64_t capacity);
void lb_lru_fini(lb_lru *s);  // drops all; nobody is inside

void lb_lru_set_capacity(lb_lru *s, uint64_t bytes);
uint64_t lb_lru_capacity(lb_lru *s);
void lb_lru_count(lb_lru *s, lb_lru_stats *out);

// A run that may use items is inside between these. A shelf may be NULL.
static inline void lb_lru_enter(lb_lru *s, lb_epoch_reader *stay) {
  if (s) lb_epochs_enter(&s->epochs, stay);
}
void lb_lru_refresh(lb_lru *s, lb_epoch_reader *stay);
void lb_lru_leave(lb_lru *s, lb_epoch_reader *stay);

// Notes that an item was used in this epoch, the stay's.
static inline void lb_lru_use(_Atomic uint64_t *used, uint64_t epoch) {
  if (atomic_load_explicit(used, memory_order_relaxed) < epoch)
    atomic_store_explicit(used, epoch, memory_order_relaxed);
}

// Drops what was retired and is not in use any more, and what is counted.
void lb_lru_collect(lb_lru *s);

// -- with the lock held; lb_lru_collect is due after it is given back

// Puts an item there, and evicts others for it. False if it is larger than the
// capacity: then it is not taken.
bool lb_lru_try_put(lb_lru *s, lb_lru_item *item);
// Takes an item off and retires it, unless it is counted; it is hidden already.
void lb_lru_take_off(lb_lru *s, lb_lru_item *item);
// An item takes another number of bytes: it may evict others for that, or be
// evicted itself.
void lb_lru_resize(lb_lru *s, lb_lru_item *item, uint64_t bytes);
// An item was used, and the lock is there: the order is exact.
void lb_lru_move_up(lb_lru *s, lb_lru_item *item);

#endif
