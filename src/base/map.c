// base/map.c -- open-addressing hash map from bytes to a pointer.
//
// Entries are dense in an array; the index holds their positions and is probed
// linearly.
//
// (1) The index is at most half full, so a probe always ends at an empty
//     bucket.
// (2) No bucket between an entry's home bucket and its actual bucket is empty;
//     removal moves later entries back to preserve this.
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define MIN_CAP 8

void lb_map_fini(lb_map *m) {
  free(m->entries);
  free(m->index);
  *m = (lb_map){0};
}

static bool entry_is(const lb_map_entry *e, const void *key, size_t size,
                     uint64_t hash) {
  return e->hash == hash && e->key_size == size &&
         (size == 0 || memcmp(e->key, key, size) == 0);
}

// The bucket that holds the key, or the empty one where it would be inserted.
static size_t find_bucket(const lb_map *m, const void *key, size_t size,
                          uint64_t hash) {
  size_t mask = m->buckets - 1, b = (size_t)hash & mask;
  while (m->index[b] &&
         !entry_is(&m->entries[m->index[b] - 1], key, size, hash))
    b = (b + 1) & mask;
  return b;
}

static lb_map_entry *find(const lb_map *m, const void *key, size_t size) {
  if (m->count == 0) return NULL;
  size_t b = find_bucket(m, key, size, lb_hash(key, size));
  return m->index[b] ? &m->entries[m->index[b] - 1] : NULL;
}

void *lb_map_get(const lb_map *m, const void *key, size_t size) {
  lb_map_entry *e = find(m, key, size);
  return e ? e->value : NULL;
}

bool lb_map_has(const lb_map *m, const void *key, size_t size) {
  return find(m, key, size) != NULL;
}

// Fills an empty index; the keys of all entries differ.
static void fill_index(lb_map *m) {
  size_t mask = m->buckets - 1;
  for (size_t i = 0; i < m->count; i++) {
    size_t b = (size_t)m->entries[i].hash & mask;
    while (m->index[b]) b = (b + 1) & mask;
    m->index[b] = (uint32_t)(i + 1);
  }
}

// Doubles both arrays. A failure leaves the map unchanged.
static lb_status grow(lb_map *m) {
  size_t cap = m->cap ? m->cap * 2 : MIN_CAP;
  if (cap > UINT32_MAX / 2 || cap > SIZE_MAX / sizeof *m->entries)
    return lb_error(LB_OOM, "a map cannot hold more than %zu entries", m->cap);
  uint32_t *index = calloc(cap * 2, sizeof *index);
  if (!index) return lb_oom();
  lb_map_entry *entries = realloc(m->entries, cap * sizeof *entries);
  if (!entries) {
    free(index);
    return lb_oom();
  }
  free(m->index);
  m->index = index;
  m->entries = entries;
  m->cap = cap;
  m->buckets = cap * 2;
  fill_index(m);
  return LB_OK;
}

lb_status lb_map_put(lb_map *m, const void *key, size_t size, void *value,
                     void **old) {
  if (old) *old = NULL;
  lb_map_entry *e = find(m, key, size);
  if (e) {
    if (old) *old = e->value;
    e->value = value;
    return LB_OK;
  }
  if (m->count == m->cap) LB_TRY(grow(m));
  uint64_t hash = lb_hash(key, size);
  m->index[find_bucket(m, key, size, hash)] = (uint32_t)(m->count + 1);
  m->entries[m->count++] = (lb_map_entry){key, size, hash, value};
  return LB_OK;
}

// Empties bucket `gap` and moves later entries of the probe run back: an entry
// may move unless its home bucket is (cyclically) after the gap.
static void close_gap(lb_map *m, size_t gap) {
  size_t mask = m->buckets - 1;
  for (size_t b = (gap + 1) & mask; m->index[b]; b = (b + 1) & mask) {
    size_t home = (size_t)m->entries[m->index[b] - 1].hash & mask;
    if (((b - home) & mask) < ((b - gap) & mask)) continue;
    m->index[gap] = m->index[b];
    gap = b;
  }
  m->index[gap] = 0;
}

void *lb_map_remove(lb_map *m, const void *key, size_t size) {
  if (m->count == 0) return NULL;
  size_t b = find_bucket(m, key, size, lb_hash(key, size));
  if (!m->index[b]) return NULL;
  size_t at = m->index[b] - 1, last = m->count - 1;
  void *value = m->entries[at].value;
  close_gap(m, b);
  if (at != last) {
    lb_map_entry *e = &m->entries[last];
    m->index[find_bucket(m, e->key, e->key_size, e->hash)] = (uint32_t)(at + 1);
    m->entries[at] = *e;
  }
  m->count = last;
  return value;
}

void *lb_map_gets(const lb_map *m, const char *key) {
  return lb_map_get(m, key, strlen(key));
}

lb_status lb_map_puts(lb_map *m, const char *key, void *value) {
  return lb_map_put(m, key, strlen(key), value, NULL);
}
