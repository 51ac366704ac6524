// cache/lru.c -- a byte-budgeted LRU list, and lists of retired items.
#include "cache/lru.h"

// Eviction inspects at most this many items: those that were used since they
// were last ordered move to the front, and if all were, the oldest of them is
// evicted.
#define MAX_SCANNED 32

lb_status lb_lru_init(lb_lru *s, uint64_t capacity) {
  *s = (lb_lru){.stats.capacity = capacity};
  lb_epochs_init(&s->epochs, &s->lock);
  return lb_lock_init(&s->lock);
}

// -- the list ----------------------------------------------------------------

static void unlink_item(lb_lru *s, lb_lru_item *x) {
  *(x->prev ? &x->prev->next : &s->first) = x->next;
  *(x->next ? &x->next->prev : &s->last) = x->prev;
}

static void push_first(lb_lru *s, lb_lru_item *x) {
  x->prev = NULL;
  x->next = s->first;
  *(s->first ? &s->first->prev : &s->last) = x;
  s->first = x;
}

static uint64_t last_use(const lb_lru_item *x) {
  uint64_t used = atomic_load_explicit(x->used, memory_order_relaxed);
  return used > x->stamp ? used : x->stamp;
}

static const lb_lru_item *older(const lb_lru_item *a, const lb_lru_item *b) {
  return a && a->stamp < b->stamp ? a : b;
}

// Chooses the item to evict; the list is not empty.
static lb_lru_item *choose_victim(lb_lru *s) {
  const lb_lru_item *oldest = NULL, *begin = s->last;
  for (int i = 0; i < MAX_SCANNED; i++) {
    lb_lru_item *x = s->last;
    if (i && x == begin) break;
    uint64_t used = last_use(x);
    bool in_order = used == x->stamp;
    x->stamp = used;
    oldest = older(oldest, x);
    if (in_order) break;
    unlink_item(s, x);
    push_first(s, x);
  }
  return (lb_lru_item *)(uintptr_t)oldest;
}

// -- retired items -----------------------------------------------------------

static void push_droppable(lb_lru *s, lb_lru_item *x) {
  x->next = atomic_load_explicit(&s->droppable, memory_order_relaxed);
  atomic_store_explicit(&s->droppable, x, memory_order_release);
}

static void retire(lb_lru *s, lb_lru_item *x) {
  s->stats.retired_bytes += x->bytes;
  s->stats.retired++;
  x->stamp = lb_epochs_next(&s->epochs);
  x->next = NULL;
  if (s->last_retired) {
    s->last_retired->next = x;
  } else {
    s->first_retired = x;
    atomic_store_explicit(&s->retired_stamp, x->stamp, memory_order_release);
  }
  s->last_retired = x;
}

static void remove_item(lb_lru *s, lb_lru_item *x) {
  unlink_item(s, x);
  s->stats.bytes -= x->bytes;
  s->stats.items--;
  if (x->refcounted) {
    push_droppable(s, x);
  } else {
    retire(s, x);
  }
}

static void evict(lb_lru *s) {
  lb_lru_item *x = choose_victim(s);
  x->hide(x);
  remove_item(s, x);
  s->stats.evictions++;
}

// Removes the items that may be dropped from the list of retired ones. A thread
// that leaves reads `retired_stamp` afterwards, and a thread that sets it reads
// the cells afterwards (again in lb_lru_collect): at least one of the two sees
// the other, so no item is left behind.
static lb_lru_item *take_unused(lb_lru *s) {
  lb_lru_item *first = s->first_retired, **end = &s->first_retired;
  uint64_t oldest = first ? lb_epochs_oldest(&s->epochs) : 0;
  while (*end && (*end)->stamp < oldest) {
    s->stats.retired_bytes -= (*end)->bytes;
    s->stats.retired--;
    end = &(*end)->next;
  }
  lb_lru_item *remaining = *end;
  *end = NULL;
  if (first == remaining) first = NULL;
  s->first_retired = remaining;
  if (!remaining) s->last_retired = NULL;
  atomic_exchange(&s->retired_stamp, remaining ? remaining->stamp : 0);
  return first;
}

static void drop_all(lb_lru_item *x) {
  while (x) {
    lb_lru_item *next = x->next;
    x->drop(x);
    x = next;
  }
}

static lb_lru_item *take_droppable(lb_lru *s) {
  return atomic_exchange_explicit(&s->droppable, NULL, memory_order_acquire);
}

// Returns true if a retired item was dropped: then there may be more.
static bool collect_once(lb_lru *s) {
  if (!atomic_load_explicit(&s->retired_stamp, memory_order_acquire) &&
      !atomic_load_explicit(&s->droppable, memory_order_acquire))
    return false;
  lb_lock_take(&s->lock);
  lb_lru_item *retired = take_unused(s), *droppable = take_droppable(s);
  lb_lock_give(&s->lock);
  bool dropped_retired = retired != NULL;
  drop_all(retired);
  drop_all(droppable);
  return dropped_retired;
}

void lb_lru_collect(lb_lru *s) {
  while (collect_once(s)) continue;
}

// Only a run that entered before an item was retired can have kept it alive.
static void collect_since(lb_lru *s, uint64_t at) {
  if (atomic_load_explicit(&s->retired_stamp, memory_order_acquire) >= at)
    lb_lru_collect(s);
}

void lb_lru_refresh(lb_lru *s, lb_epoch_reader *reader) {
  if (!s) return;
  uint64_t at = reader->at;
  lb_epochs_refresh(&s->epochs, reader);
  if (reader->at != at) collect_since(s, at);
}

void lb_lru_leave(lb_lru *s, lb_epoch_reader *reader) {
  if (!s) return;
  uint64_t at = reader->at;
  lb_epochs_leave(&s->epochs, reader);
  collect_since(s, at);
}

// -- lifetime and statistics -------------------------------------------------

void lb_lru_fini(lb_lru *s) {
  while (s->last) evict(s);
  drop_all(take_unused(s));
  drop_all(take_droppable(s));
  lb_lock_fini(&s->lock);
}

void lb_lru_set_capacity(lb_lru *s, uint64_t bytes) {
  lb_lock_take(&s->lock);
  s->stats.capacity = bytes;
  while (s->stats.bytes > bytes) evict(s);
  lb_lock_give(&s->lock);
  lb_lru_collect(s);
}

uint64_t lb_lru_capacity(lb_lru *s) {
  lb_lru_stats stats;
  lb_lru_count(s, &stats);
  return stats.capacity;
}

void lb_lru_count(lb_lru *s, lb_lru_stats *out) {
  lb_lock_take(&s->lock);
  *out = s->stats;
  lb_lock_give(&s->lock);
}

bool lb_lru_try_put(lb_lru *s, lb_lru_item *x) {
  if (x->bytes > s->stats.capacity) return false;
  while (s->stats.bytes > s->stats.capacity - x->bytes) evict(s);
  x->stamp = lb_epochs_next(&s->epochs);
  push_first(s, x);
  s->stats.bytes += x->bytes;
  s->stats.items++;
  s->stats.insertions++;
  return true;
}

void lb_lru_remove(lb_lru *s, lb_lru_item *x) { remove_item(s, x); }

void lb_lru_resize(lb_lru *s, lb_lru_item *x, uint64_t bytes) {
  s->stats.bytes += bytes - x->bytes;
  x->bytes = bytes;
  while (s->stats.bytes > s->stats.capacity) evict(s);
}

void lb_lru_touch(lb_lru *s, lb_lru_item *x) {
  unlink_item(s, x);
  push_first(s, x);
  x->stamp = atomic_load_explicit(&s->epochs.now, memory_order_relaxed);
}
