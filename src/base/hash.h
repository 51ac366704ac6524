// base/hash.h -- XXH3, for maps (64 bits) and for keys (128 bits).
#ifndef LB_BASE_HASH_H
#define LB_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct lb_hash128 {
  uint64_t lo, hi;
} lb_hash128;

uint64_t lb_hash(const void *p, size_t n);
uint64_t lb_hash_seeded(const void *p, size_t n, uint64_t seed);
lb_hash128 lb_hash_wide(const void *p, size_t n);

#endif
