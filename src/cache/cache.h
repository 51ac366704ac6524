// cache/cache.h -- a cache of values by key; each is built once, within the
// byte budget of an lb_lru.
//
// A key is plain bytes: two requests with equal bytes get the same value. A
// generator uses a struct of integers without padding or pointers as its key;
// LB_KEY_STRUCT declares it and checks it at compile time. More bytes may
// follow the struct.
//
// (1) A key is built by one thread; other threads that request it meanwhile
//     wait. A failed build is reported to all of them and leaves no entry: the
//     next request builds again.
// (2) Values are reference-counted: the cache holds a reference while the value
//     is in the LRU list, and every caller that got it holds another. Eviction
//     releases the reference of the cache.
// (3) No lock is held during a build, only while a value is retained. A build
//     may request other keys, but not its own.
//
// Any thread may call. A forked child rebuilds values that a thread of its
// parent was building.
#ifndef LB_CACHE_CACHE_H
#define LB_CACHE_CACHE_H

#include "base/map.h"
#include "base/strbuf.h"
#include "cache/lru.h"

typedef struct lb_key_field {
  const char *name;
  uint32_t offset, size;
} lb_key_field;

typedef struct lb_key_type {
  const lb_key_field *fields;
  size_t n;
} lb_key_type;

// Declares `typedef struct NAME {...} NAME` and its lb_key_type NAME_type, from
// a list of fields:
//
//   #define POOL_KEY(F, S) F(S, uint32_t, kind, 1) F(S, int64_t, dims, 4)
//   LB_KEY_STRUCT(pool_key, POOL_KEY)
#define LB_KEY_STRUCT(S, FIELDS)                                              \
  typedef struct S {                                                          \
    FIELDS(LB_KEY_MEMBER, S)                                                  \
  } S;                                                                        \
  FIELDS(LB_KEY_IS_PLAIN, S)                                                  \
  _Static_assert(sizeof(S) == 0 FIELDS(LB_KEY_BYTES, S),                      \
                 #S " has padding: order its fields by size, or add fields"); \
  static const lb_key_field S##_fields[] = {FIELDS(LB_KEY_FIELD, S)};         \
  static const lb_key_type S##_type = {                                       \
      S##_fields, sizeof S##_fields / sizeof *S##_fields};

#define LB_KEY_MEMBER(S, type, name, count) type name[count];
#define LB_KEY_BYTES(S, type, name, count) +sizeof(type) * (count)
#define LB_KEY_FIELD(S, type, name, count) \
  {#name, (uint32_t)offsetof(S, name), (uint32_t)(sizeof(type) * (count))},
#define LB_KEY_IS_PLAIN(S, type, name, count)                             \
  _Static_assert(_Generic((type)0, uint8_t : 1, int8_t : 1, uint16_t : 1, \
                          int16_t : 1, uint32_t : 1, int32_t : 1,         \
                          uint64_t : 1, int64_t : 1, default : 0),        \
                 #S "." #name " is not an integer of known size");

typedef struct lb_cache_type {
  void (*retain)(void *value);  // called with the lock held
  void (*release)(void *value);
  uint64_t (*bytes)(const void *value);  // charged to the byte budget
  const lb_key_type *key;                // NULL: keys have no fields
} lb_cache_type;

typedef struct lb_cache_stats {
  uint64_t hits, misses;
  uint64_t waits;                  // for the build of another thread
  uint64_t insertions, evictions;  // values above the capacity are not inserted
  uint64_t failures;               // builds that failed
  uint64_t entries, bytes;         // current
  uint64_t build_ns;               // total time of all builds
} lb_cache_stats;

typedef struct lb_cache {
  lb_lru *lru;  // borrowed; its lock guards the fields below
  const lb_cache_type *type;
  lb_map map;  // key -> entry
  pthread_cond_t built;
  unsigned forks;  // fork count when `built` was initialised
  lb_cache_stats stats;
  char *missed;  // owned; the key of the last miss
  size_t missed_size, missed_cap;
} lb_cache;

lb_status lb_cache_init(lb_cache *c, lb_lru *lru, const lb_cache_type *type);
// No other thread may call; releases all values.
void lb_cache_fini(lb_cache *c);

// Builds the value of the key, with one reference in *out.
typedef lb_status lb_cache_build(void *user, void **out);

// Returns the value of `key`, built if there is none; the caller owns a
// reference. With build == NULL, *out is NULL if there is none.
lb_status lb_cache_get(lb_cache *c, const void *key, size_t size,
                       lb_cache_build *build, void *user, void **out);

// Updates the size of the value of `key`. Does nothing if the cache holds
// another value or none.
void lb_cache_recount(lb_cache *c, const void *key, size_t size,
                      const void *value);

void lb_cache_count(lb_cache *c, lb_cache_stats *out);

// Explains the last miss: which cached key is nearest, and in which fields they
// differ, such as "dims: 8 not 4". Prints nothing if there was no miss. Takes
// time linear in the number of keys.
lb_status lb_cache_explain(lb_cache *c, lb_strbuf *out);

#endif
