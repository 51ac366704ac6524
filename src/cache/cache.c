// cache/cache.c -- values by key: a map of the entries in the LRU list and of
// those that are being built.
//
// An entry is *pending* from the first request until its value is built or the
// build has failed. A pending entry is in the map, but not in the LRU list; the
// building thread and the waiting threads hold references to it.
#include "cache/cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

typedef struct cache_entry {
  lb_lru_item base;  // must be first
  lb_cache *cache;   // not used any more once the entry is evicted
  lb_lru *lru;
  const lb_cache_type *type;
  _Atomic uint64_t used;
  int refs;  // of the map or LRU list, and of threads; guarded by the lock
  bool pending;
  bool listed;     // in the map
  unsigned forks;  // fork count when its build began
  void *value;     // a reference; NULL: pending or failed
  lb_code code;    // of the failure
  char *message;   // owned; NULL: out of memory
  size_t key_size;
  char key[];
} cache_entry;

lb_status lb_cache_init(lb_cache *c, lb_lru *lru, const lb_cache_type *type) {
  *c = (lb_cache){.lru = lru, .type = type, .forks = lb_fork_count()};
  return pthread_cond_init(&c->built, NULL) ? lb_oom() : LB_OK;
}

static void lock(lb_cache *c) { lb_lock_take(&c->lru->lock); }
static void unlock(lb_cache *c) { lb_lock_give(&c->lru->lock); }

// -- entries -----------------------------------------------------------------

static void entry_free(cache_entry *e) {
  if (e->value) e->type->release(e->value);
  free(e->message);
  free(e);
}

static void unlist(cache_entry *e) {
  if (e->listed) lb_map_remove(&e->cache->map, e->key, e->key_size);
  e->listed = false;
}

// Returns true if this was the last reference: the caller frees the entry,
// without the lock.
static bool unref(cache_entry *e) { return --e->refs == 0; }

static void hide(lb_lru_item *x) {
  cache_entry *e = (cache_entry *)x;
  unlist(e);
  e->cache->stats.entries--;
  e->cache->stats.bytes -= x->bytes;
  e->cache->stats.evictions++;
}

static void drop(lb_lru_item *x) {
  cache_entry *e = (cache_entry *)x;
  lb_lock_take(&e->lru->lock);
  bool last = unref(e);
  lb_lock_give(&e->lru->lock);
  if (last) entry_free(e);
}

// Adds a pending entry to the map, with a reference each for the map and the
// building thread.
static lb_status new_entry(lb_cache *c, const void *key, size_t size,
                           cache_entry **out) {
  cache_entry *e = malloc(sizeof *e + size);
  if (!e) return lb_oom();
  *e = (cache_entry){.base = {.hide = hide,
                              .drop = drop,
                              .used = &e->used,
                              .refcounted = true},
                     .cache = c,
                     .lru = c->lru,
                     .type = c->type,
                     .refs = 2,
                     .pending = true,
                     .listed = true,
                     .forks = lb_fork_count(),
                     .key_size = size};
  memcpy(e->key, key, size);
  lb_status st = lb_map_put(&c->map, e->key, size, e, NULL);
  if (lb_failed(st)) {
    free(e);
  } else {
    *out = e;
  }
  return st;
}

// Returns the entry of a key. A build that a fork interrupted is discarded.
static cache_entry *find(lb_cache *c, const void *key, size_t size) {
  cache_entry *e = lb_map_get(&c->map, key, size);
  if (!e || !e->pending || e->forks == lb_fork_count()) return e;
  unlist(e);
  e->refs--;  // never the last: the building thread had one
  return NULL;
}

static void note_miss(lb_cache *c, const void *key, size_t size) {
  c->stats.misses++;
  if (size > c->missed_cap) {
    char *p = realloc(c->missed, size);
    if (!p) return;
    c->missed = p;
    c->missed_cap = size;
  }
  memcpy(c->missed, key, size);
  c->missed_size = size;
}

// -- building ----------------------------------------------------------------

static void record_failure(cache_entry *e, lb_status st) {
  e->code = lb_status_code(st);
  e->message = strdup(lb_status_message(st));
}

// Adds a built value to the LRU list, unless it is too large or the entry was
// discarded. Called with the lock held.
static void add_to_lru(lb_cache *c, cache_entry *e) {
  if (!e->listed) return;
  if (!lb_lru_try_put(c->lru, &e->base)) {
    unlist(e);
    e->refs--;
    return;
  }
  c->stats.insertions++;
  c->stats.entries++;
  c->stats.bytes += e->base.bytes;
}

// A child of fork has no waiting threads, so it uses a new condition variable.
static pthread_cond_t *built(lb_cache *c) {
  if (c->forks != lb_fork_count()) {
    static const pthread_cond_t none = PTHREAD_COND_INITIALIZER;
    c->built = none;
    c->forks = lb_fork_count();
  }
  return &c->built;
}

static void finish_build(lb_cache *c, cache_entry *e, uint64_t ns) {
  bool failed = !e->value;
  e->pending = false;
  c->stats.build_ns += ns;
  c->stats.failures += failed;
  if (!failed) {
    c->type->retain(e->value);  // for the building thread
    add_to_lru(c, e);
  } else if (e->listed) {
    unlist(e);
    e->refs--;
  }
  pthread_cond_broadcast(built(c));
}

// Releases a reference, and the lock.
static void release_and_unlock(lb_cache *c, cache_entry *e) {
  bool last = unref(e);
  unlock(c);
  if (last) entry_free(e);
}

static uint64_t bytes_of(const cache_entry *e) {
  return e->type->bytes(e->value) + sizeof *e + e->key_size;
}

static lb_status build_entry(lb_cache *c, cache_entry *e, lb_cache_build *build,
                             void *user, void **out) {
  int64_t start = lb_clock_ns();
  void *value = NULL;
  lb_status st = build(user, &value);
  if (lb_failed(st)) {
    record_failure(e, st);
  } else {
    e->value = value;
    e->base.bytes = bytes_of(e);
    *out = value;
  }
  uint64_t ns = (uint64_t)(lb_clock_ns() - start);
  lock(c);
  finish_build(c, e, ns);
  release_and_unlock(c, e);
  lb_lru_collect(c->lru);
  return st;
}

// Waits for another thread's build. Called with the lock held; releases it.
static lb_status wait_for(lb_cache *c, cache_entry *e, void **out) {
  c->stats.waits++;
  e->refs++;
  while (e->pending) pthread_cond_wait(built(c), &c->lru->lock.mutex);
  lb_status st = LB_OK;
  if (e->value) {
    c->type->retain(e->value);
    *out = e->value;
  } else {
    st = lb_error(e->code, "%s", e->message ? e->message : "out of memory");
  }
  release_and_unlock(c, e);
  return st;
}

lb_status lb_cache_get(lb_cache *c, const void *key, size_t size,
                       lb_cache_build *build, void *user, void **out) {
  *out = NULL;
  lock(c);
  cache_entry *e = find(c, key, size);
  if (e && !e->pending) {
    c->stats.hits++;
    lb_lru_touch(c->lru, &e->base);
    c->type->retain(e->value);
    *out = e->value;
    unlock(c);
    return LB_OK;
  }
  if (e && build) return wait_for(c, e, out);
  note_miss(c, key, size);
  lb_status st = build ? new_entry(c, key, size, &e) : LB_OK;
  unlock(c);
  if (!build || lb_failed(st)) return st;
  return build_entry(c, e, build, user, out);
}

void lb_cache_recount(lb_cache *c, const void *key, size_t size,
                      const void *value) {
  lock(c);
  cache_entry *e = lb_map_get(&c->map, key, size);
  if (e && !e->pending && e->value == value) {
    uint64_t bytes = bytes_of(e);
    c->stats.bytes += bytes - e->base.bytes;
    lb_lru_resize(c->lru, &e->base, bytes);
  }
  unlock(c);
  lb_lru_collect(c->lru);
}

// -- lifetime ----------------------------------------------------------------

// The condition variable is not destroyed in a child of fork, where that could
// wait for threads that do not exist.
void lb_cache_fini(lb_cache *c) {
  lock(c);
  while (c->map.count) {
    cache_entry *e = c->map.entries[c->map.count - 1].value;
    unlist(e);
    if (!e->pending) lb_lru_remove(c->lru, &e->base);
  }
  unlock(c);
  lb_lru_collect(c->lru);
  lb_map_fini(&c->map);
  free(c->missed);
  if (c->forks == lb_fork_count()) pthread_cond_destroy(&c->built);
}

void lb_cache_count(lb_cache *c, lb_cache_stats *out) {
  lock(c);
  *out = c->stats;
  unlock(c);
}

// -- explaining a miss -------------------------------------------------------

static bool same_field(const lb_key_field *f, const char *a, const char *b) {
  return memcmp(a + f->offset, b + f->offset, f->size) == 0;
}

static size_t fixed_bytes(const lb_key_type *t) {
  const lb_key_field *last = t->n ? &t->fields[t->n - 1] : NULL;
  return last ? last->offset + last->size : 0;
}

static size_t count_same(const lb_cache *c, const cache_entry *e) {
  const lb_key_type *t = c->type->key;
  size_t same = 0;
  if (e->key_size < fixed_bytes(t)) return 0;
  for (size_t i = 0; i < t->n; i++)
    same += same_field(&t->fields[i], e->key, c->missed);
  return same;
}

// Prints an integer field as a number, and a larger one as its first bytes.
static void print_field(const lb_key_field *f, const char *key,
                        lb_strbuf *out) {
  uint64_t n = 0;
  if (f->size <= sizeof n) {
    memcpy(&n, key + f->offset, f->size);
    lb_strbuf_printf(out, "%" PRIu64, n);
    return;
  }
  for (uint32_t i = 0; i < f->size && i < 64; i++)
    lb_strbuf_printf(out, "%02x", (unsigned char)key[f->offset + i]);
}

static void print_difference(const lb_cache *c, const cache_entry *e,
                             lb_strbuf *out) {
  const lb_key_type *t = c->type->key;
  const char *comma = "";
  for (size_t i = 0; i < t->n; i++) {
    const lb_key_field *f = &t->fields[i];
    if (same_field(f, e->key, c->missed)) continue;
    lb_strbuf_printf(out, "%s%s: ", comma, f->name);
    print_field(f, c->missed, out);
    lb_strbuf_puts(out, " not ");
    print_field(f, e->key, out);
    comma = ", ";
  }
  if (!*comma) lb_strbuf_puts(out, "the bytes after the fields");
}

lb_status lb_cache_explain(lb_cache *c, lb_strbuf *out) {
  const cache_entry *best = NULL;
  size_t best_same = 0;
  lock(c);
  bool can_explain = c->type->key && c->missed_size &&
                     c->missed_size >= fixed_bytes(c->type->key) &&
                     !lb_map_has(&c->map, c->missed, c->missed_size);
  for (size_t i = 0; can_explain && i < c->map.count; i++) {
    const cache_entry *e = c->map.entries[i].value;
    size_t same = count_same(c, e);
    if (same <= best_same) continue;
    best = e;
    best_same = same;
  }
  if (best) print_difference(c, best, out);
  unlock(c);
  return lb_strbuf_status(out);
}
