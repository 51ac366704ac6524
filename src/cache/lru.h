// cache/lru.h -- one byte budget for everything that can be rebuilt: compiled
// kernels, primitives, packed weights.
//
// When the bytes of the items exceed the capacity, the least recently used
// items are *evicted*: hidden, so that they are no longer found; then *retired*
// until no run that may be using them is inside (cache/epoch.h); then dropped.
// Items whose users hold references are *refcounted*, and need not be retired.
//
// (1) The bytes of the items in the list never exceed the capacity. Retired
//     items are counted separately: they are limited to what runs in flight
//     may use.
// (2) Adding, removing and evicting are O(1). Using an item takes no lock: it
//     records the epoch, which eviction reads. Recency is as fine as epochs
//     are: one per added item, and one per 64 runs of a context.
// (3) hide is called with the lock held and must be short. drop is called
//     without the lock, by the thread that finds that the item is unused: one
//     that adds an item, sets the capacity, refreshes or leaves.
//
// Any thread may call. Fork takes the lock (lb_lock).
#ifndef LB_CACHE_LRU_H
#define LB_CACHE_LRU_H

#include "cache/epoch.h"

typedef struct lb_lru_item {
  uint64_t bytes;
  _Atomic uint64_t *used;  // epoch of its last use; borrowed
  void (*hide)(struct lb_lru_item *item);
  void (*drop)(struct lb_lru_item *item);
  bool refcounted;

  // -- for lru.c only
  struct lb_lru_item *prev, *next;
  uint64_t stamp;  // the epoch by which it is ordered; once retired, its
                   // retirement epoch
} lb_lru_item;

typedef struct lb_lru_stats {
  uint64_t capacity, bytes, items;
  uint64_t retired_bytes, retired;  // hidden, but possibly still in use
  uint64_t insertions, evictions;   // cumulative
} lb_lru_stats;

typedef struct lb_lru {
  lb_lock lock;  // guards everything but the cells of the epochs
  lb_epochs epochs;
  lb_lru_item *first, *last;                  // by last use, most recent first
  lb_lru_item *first_retired, *last_retired;  // retired items, earliest first
  _Atomic uint64_t retired_stamp;             // stamp of first_retired; 0: none
  // Hidden refcounted items, ready to be dropped.
  _Atomic(lb_lru_item *) droppable;
  lb_lru_stats stats;
} lb_lru;

lb_status lb_lru_init(lb_lru *s, uint64_t capacity);
void lb_lru_fini(lb_lru *s);  // drops all items; no run may be inside

void lb_lru_set_capacity(lb_lru *s, uint64_t bytes);
uint64_t lb_lru_capacity(lb_lru *s);
void lb_lru_count(lb_lru *s, lb_lru_stats *out);

// A run that may use items is inside between enter and leave. The lb_lru may be
// NULL.
static inline void lb_lru_enter(lb_lru *s, lb_epoch_reader *reader) {
  if (s) lb_epochs_enter(&s->epochs, reader);
}
void lb_lru_refresh(lb_lru *s, lb_epoch_reader *reader);
void lb_lru_leave(lb_lru *s, lb_epoch_reader *reader);

// Records that an item was used in the reader's epoch.
static inline void lb_lru_use(_Atomic uint64_t *used, uint64_t epoch) {
  if (atomic_load_explicit(used, memory_order_relaxed) < epoch)
    atomic_store_explicit(used, epoch, memory_order_relaxed);
}

// Drops retired items that are no longer in use, and hidden refcounted items.
void lb_lru_collect(lb_lru *s);

// -- call these with the lock held, and lb_lru_collect after releasing it

// Adds an item, and evicts others if necessary. Returns false if the item is
// larger than the capacity: then it is not added.
bool lb_lru_try_put(lb_lru *s, lb_lru_item *item);
// Removes an item, which is hidden already, and retires it unless it is
// refcounted.
void lb_lru_remove(lb_lru *s, lb_lru_item *item);
// Changes the size of an item, which may evict others or the item itself.
void lb_lru_resize(lb_lru *s, lb_lru_item *item, uint64_t bytes);
// Marks an item as used while the lock is held: the order is exact.
void lb_lru_touch(lb_lru *s, lb_lru_item *item);

#endif
