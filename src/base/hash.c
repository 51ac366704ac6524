// base/hash.c -- XXH3, compiled into the library.
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t lb_hash(const void *p, size_t n) { return XXH3_64bits(p, n); }

uint64_t lb_hash_seeded(const void *p, size_t n, uint64_t seed) {
  return XXH3_64bits_withSeed(p, n, seed);
}

lb_hash128 lb_hash_wide(const void *p, size_t n) {
  XXH128_hash_t h = XXH3_128bits(p, n);
  return (lb_hash128){.lo = h.low64, .hi = h.high64};
}
