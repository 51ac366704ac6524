// base/arena.h -- bump allocation, freed all at once.
//
// For anything with a phase: an import, a graph, one plan. Not thread-safe.
// Blocks double from a sixteenth of block_size up to it. A request larger than
// a block gets a block of its own, so NULL means overflow or a failed malloc,
// nothing else.
#ifndef LB_BASE_ARENA_H
#define LB_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct lb_arena {
  struct lb_block *head;  // owned; the block being filled, then the others
  size_t block_size;
  size_t used;  // bytes of all blocks, headers included
} lb_arena;

void lb_arena_init(lb_arena *a, size_t block_size);
void lb_arena_fini(lb_arena *a);
// Frees all allocations but keeps the total capacity, as one block, so that an
// equal second use needs no other block.
void lb_arena_reset(lb_arena *a);

// Frees the allocation p if it is large enough to have a block of its own;
// otherwise it stays until the arena is reset or freed.
void lb_arena_drop(lb_arena *a, const void *p);

// Not cleared. `align` is a power of two.
void *lb_arena_alloc(lb_arena *a, size_t size, size_t align);
void *lb_arena_zalloc(lb_arena *a, size_t size, size_t align);
char *lb_arena_strndup(lb_arena *a, const char *s, size_t n);
char *lb_arena_strdup(lb_arena *a, const char *s);
void *lb_arena_memdup(lb_arena *a, const void *p, size_t size, size_t align);

static inline size_t lb_mul_sat(size_t a, size_t b) {
  size_t r;
  return __builtin_mul_overflow(a, b, &r) ? SIZE_MAX : r;
}

// Allocates an array of n zeroed T; n == 0 returns a valid pointer.
#define lb_arena_new(a, T, n) \
  ((T *)lb_arena_zalloc((a), lb_mul_sat(sizeof(T), (n)), _Alignof(T)))

#endif
