// bench/cache.c -- Measures the cost of the in-memory cache; prints JSON.
//
//   cache hit ENTRIES TIMES    finds a key of 200 bytes among ENTRIES
//   cache evict ENTRIES TIMES  inserts a value, which evicts another
//   cache run ENTRIES TIMES    a run enters, uses 64 kernels, and leaves
//
// `ns` is the best of seven tries. Keys are looked up in an order that a
// prefetcher cannot predict. Count instructions with valgrind and two different
// values of TIMES.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "cache/cache.h"
#include "cache/slots.h"

#define TRIES 7
#define USES 64
#define VALUE_BYTES 1000

#define BENCH_KEY(F, S) F(S, uint64_t, number, 1) F(S, uint64_t, rest, 24)
LB_KEY_STRUCT(bench_key, BENCH_KEY)

// The values are not reference-counted.
static void nothing(void *value) { (void)value; }

static uint64_t bytes_of(const void *value) {
  (void)value;
  return VALUE_BYTES;
}

static const lb_cache_type type = {nothing, nothing, bytes_of, &bench_key_type};

static lb_status build(void *user, void **out) {
  *out = user;
  return LB_OK;
}

typedef struct cache_bench {
  lb_lru lru;
  lb_cache cache;
  lb_slot *slots;
  uint64_t entries, times;
  uint64_t next;
} cache_bench;

static bool get(cache_bench *b, uint64_t number) {
  bench_key key;
  void *value;
  memset(&key, 0, sizeof key);
  key.number[0] = number;
  lb_status st = lb_cache_get(&b->cache, &key, sizeof key, build, b, &value);
  bool fine = !lb_failed(st);
  lb_status_drop(st);
  return fine;
}

// A full cycle through 0..n-1 in a pseudo-random order: 1,000,003 is prime.
static uint64_t jump(cache_bench *b) {
  return b->next = (b->next + UINT64_C(1000003)) % b->entries;
}

static bool hit(cache_bench *b) {
  for (uint64_t i = 0; i < b->times; i++)
    if (!get(b, jump(b))) return false;
  return true;
}

static bool evict(cache_bench *b) {
  for (uint64_t i = 0; i < b->times; i++)
    if (!get(b, ++b->next)) return false;
  return true;
}

static bool run(cache_bench *b) {
  lb_epoch_reader reader = {0};
  for (uint64_t i = 0; i < b->times; i++) {
    lb_lru_enter(&b->lru, &reader);
    for (int k = 0; k < USES; k++) lb_slot_use(&b->slots[jump(b)], &reader);
    lb_lru_leave(&b->lru, &reader);
  }
  return true;
}

static bool fill(cache_bench *b) {
  for (uint64_t i = 0; i < b->entries; i++)
    if (!get(b, i)) return false;
  lb_lru_stats s;
  lb_lru_count(&b->lru, &s);
  lb_lru_set_capacity(&b->lru, s.bytes);  // the next insertion evicts
  b->next = b->entries;
  b->slots = calloc((size_t)b->entries, sizeof *b->slots);
  return b->slots != NULL;
}

static double best_ns(cache_bench *b, bool (*what)(cache_bench *)) {
  double best = 1e30;
  for (int i = 0; i < TRIES; i++) {
    double start = bench_now();
    if (!what(b)) return -1;
    double ns = (bench_now() - start) * 1e9 / (double)b->times;
    if (ns < best) best = ns;
  }
  return best;
}

static lb_status measure(cache_bench *b, const char *name) {
  LB_TRY(lb_lru_init(&b->lru, UINT64_MAX));
  LB_TRY(lb_cache_init(&b->cache, &b->lru, &type));
  if (!fill(b)) return lb_oom();
  bool runs = strcmp(name, "run") == 0, evicts = strcmp(name, "evict") == 0;
  double ns = best_ns(b, runs ? run : evicts ? evict : hit);
  if (ns < 0) return lb_oom();
  lb_cache_stats s;
  lb_cache_count(&b->cache, &s);
  printf(
      "{\"what\": \"%s\", \"entries\": %lu, \"ns\": %.1f, \"evictions\": "
      "%lu}\n",
      name, (unsigned long)b->entries, ns, (unsigned long)s.evictions);
  lb_cache_fini(&b->cache);
  lb_lru_fini(&b->lru);
  free(b->slots);
  return LB_OK;
}

int main(int argc, char **argv) {
  cache_bench b = {0};
  if (argc == 4) {
    b.entries = strtoull(argv[2], NULL, 10);
    b.times = strtoull(argv[3], NULL, 10);
  }
  if (!b.entries || !b.times) {
    fprintf(stderr, "usage: cache hit|evict|run ENTRIES TIMES\n");
    return 2;
  }
  lb_status st = measure(&b, argv[1]);
  if (!lb_failed(st)) return 0;
  fprintf(stderr, "cache: %s\n", lb_status_message(st));
  lb_status_drop(st);
  return 1;
}
