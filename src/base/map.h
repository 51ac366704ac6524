// base/map.h -- open-addressing hash map from bytes to a pointer.
//
// Keys are borrowed: their bytes must outlive the entry. {0} is an empty map.
// Not thread-safe. Iteration is in order of insertion (removal moves the last
// entry into the gap).
#ifndef LB_BASE_MAP_H
#define LB_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lb_map_entry {
  const void *key;  // borrowed
  size_t key_size;
  uint64_t hash;
  void *value;
} lb_map_entry;

typedef struct lb_map {
  lb_map_entry *entries;  // owned; `count` of them, dense
  uint32_t *index;        // owned; position in entries + 1, 0: empty
  size_t count;
  size_t cap;      // of entries
  size_t buckets;  // of index; a power of two
} lb_map;

void lb_map_fini(lb_map *m);
void *lb_map_get(const lb_map *m, const void *key, size_t size);  // or NULL
bool lb_map_has(const lb_map *m, const void *key, size_t size);
// Inserts or replaces. Stores the old value, or NULL, in *old, unless `old` is
// NULL.
lb_status lb_map_put(lb_map *m, const void *key, size_t size, void *value,
                     void **old);
void *lb_map_remove(lb_map *m, const void *key, size_t size);  // or NULL

// The same with NUL-terminated keys.
void *lb_map_gets(const lb_map *m, const char *key);
lb_status lb_map_puts(lb_map *m, const char *key, void *value);

#endif
