// cache/lru.c -- one byte budget: a list by use, and those of what is gone.
#include "cache/lru.h"

// Whoever evicts looks at so many items at most: those that were used since
// they were placed go up again, and if all were, the oldest of them goes.
#define LOOKS 32

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
  return used > x->placed ? used : x->placed;
}

static const lb_lru_item *older(const lb_lru_item *a, const lb_lru_item *b) {
  return a && a->placed < b->placed ? a : b;
}

// The item to evict; there is one.
static lb_lru_item *least_used(lb_lru *s) {
  const lb_lru_item *oldest = NULL, *begin = s->last;
  for (int i = 0; i < LOOKS; i++) {
    lb_lru_item *x = s->last;
    if (i && x == begin) break;
    uint64_t used = last_use(x);
    bool placed_well = used == x->placed;
    x->placed = used;
    oldest = older(oldest, x);
    if (placed_well) break;
    unlink_item(s, x);
    push_first(s, x);
  }
  return (lb_lru_item *)(uintptr_t)oldest;
}

// -- what is retired ----------------------------------------------------------

static void loosen(lb_lru *s, lb_lru_item *x) {
  x->next = atomic_load_explicit(&s->loose, memory_order_relaxed);
  atomic_store_explicit(&s->loose, x, memory_order_release);
}

static void retire(lb_lru *s, lb_lru_item *x) {
  s->stats.retired_bytes += x->bytes;
  s->stats.retired++;
  x->placed = lb_epochs_next(&s->epochs);
  x->next = NULL;
  if (s->last_gone) {
    s->last_gone->next = x;
  } else {
    s->first_gone = x;
    atomic_store_explicit(&s->gone, x->placed, memory_order_release);
  }
  s->last_gone = x;
}

static void take_off(lb_lru *s, lb_lru_item *x) {
  unlink_item(s, x);
  s->stats.bytes -= x->bytes;
  s->stats.items--;
  if (x->counted) {
    loosen(s, x);
  } else {
    retire(s, x);
  }
}

static void evict(lb_lru *s) {
  lb_lru_item *x = least_used(s);
  x->hide(x);
  take_off(s, x);
  s->stats.evictions++;
}

// Takes those that may be dropped off the list of retired ones. Who leaves
// looks at `gone` afterwards, and who sets it looks at who is inside afterwards
// (again in lb_lru_collect): one of the two sees the other, and nothing is
// left over.
static lb_lru_item *take_gone(lb_lru *s) {
  lb_lru_item *first = s->first_gone, **end = &s->first_gone;
  uint64_t oldest = first ? lb_epochs_oldest(&s->epochs) : 0;
  while (*end && (*end)->placed < oldest) {
    s->stats.retired_bytes -= (*end)->bytes;
    s->stats.retired--;
    end = &(*end)->next;
  }
  lb_lru_item *left = *end;
  *end = NULL;
  if (first == left) first = NULL;
  s->first_gone = left;
  if (!left) s->last_gone = NULL;
  atomic_exchange(&s->gone, left ? left->placed : 0);
  return first;
}

static void drop_all(lb_lru_item *x) {
  while (x) {
    lb_lru_item *next = x->next;
    x->drop(x);
    x = next;
  }
}

static lb_lru_item *take_loose(lb_lru *s) {
  return atomic_exchange_explicit(&s->loose, NULL, memory_order_acquire);
}

// True if some was retired: then there may be more.
static bool collect_once(lb_lru *s) {
  if (!atomic_load_explicit(&s->gone, memory_order_acquire) &&
      !atomic_load_explicit(&s->loose, memory_order_acquire))
    return false;
  lb_lock_take(&s->lock);
  lb_lru_item *gone = take_gone(s), *loose = take_loose(s);
  lb_lock_give(&s->lock);
  bool some = gone != NULL;
  drop_all(gone);
  drop_all(loose);
  return some;
}

void lb_lru_collect(lb_lru *s) {
  while (collect_once(s)) continue;
}

// Only a run that entered before something was retired can have held it up.
static void collect_since(lb_lru *s, uint64_t at) {
  if (atomic_load_explicit(&s->gone, memory_order_acquire) >= at)
    lb_lru_collect(s);
}

void lb_lru_refresh(lb_lru *s, lb_epoch_reader *stay) {
  if (!s) return;
  uint64_t at = stay->at;
  lb_epochs_refresh(&s->epochs, stay);
  if (stay->at != at) collect_since(s, at);
}

void lb_lru_leave(lb_lru *s, lb_epoch_reader *stay) {
  if (!s) return;
  uint64_t at = stay->at;
  lb_epochs_leave(&s->epochs, stay);
  collect_since(s, at);
}

// -- the whole ----------------------------------------------------------------

void lb_lru_fini(lb_lru *s) {
  while (s->last) evict(s);
  drop_all(take_gone(s));
  drop_all(take_loose(s));
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
  x->placed = lb_epochs_next(&s->epochs);
  push_first(s, x);
  s->stats.bytes += x->bytes;
  s->stats.items++;
  s->stats.insertions++;
  return true;
}

void lb_lru_take_off(lb_lru *s, lb_lru_item *x) { take_off(s, x); }

void lb_lru_resize(lb_lru *s, lb_lru_item *x, uint64_t bytes) {
  s->stats.bytes += bytes - x->bytes;
  x->bytes = bytes;
  while (s->stats.bytes > s->stats.capacity) evict(s);
}

void lb_lru_move_up(lb_lru *s, lb_lru_item *x) {
  unlink_item(s, x);
  push_first(s, x);
  x->placed = atomic_load_explicit(&s->epochs.now, memory_order_relaxed);
}
