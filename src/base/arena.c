// base/arena.c -- bump allocation, freed all at once.
#include "base/arena.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MIN_BLOCK ((size_t)512)  // bytes, unless block_size is smaller

struct lb_block {
  struct lb_block *next;  // owned
  size_t cap;             // of data
  size_t used;
  void *single;  // the large allocation for which it was created; or NULL
  _Alignas(max_align_t) unsigned char data[];
};

static struct lb_block *block_new(size_t cap) {
  struct lb_block *b = NULL;
  if (cap > SIZE_MAX - sizeof *b) return NULL;
  b = malloc(sizeof *b + cap);
  if (!b) return NULL;
  b->next = NULL;
  b->cap = cap;
  b->used = 0;
  b->single = NULL;
  return b;
}

// NULL if the block has not enough space left.
static void *block_carve(struct lb_block *b, size_t size, size_t align) {
  uintptr_t at = (uintptr_t)(b->data + b->used);
  size_t pad = (size_t)(-at & (align - 1));
  size_t space = b->cap - b->used;
  if (pad > space || size > space - pad) return NULL;
  void *p = b->data + b->used + pad;
  b->used += pad + size;
  return p;
}

void lb_arena_init(lb_arena *a, size_t block_size) {
  *a = (lb_arena){.block_size = block_size};
}

static void free_blocks(struct lb_block *b) {
  while (b) {
    struct lb_block *next = b->next;
    free(b);
    b = next;
  }
}

void lb_arena_fini(lb_arena *a) {
  free_blocks(a->head);
  a->head = NULL;
  a->used = 0;
}

void lb_arena_reset(lb_arena *a) {
  struct lb_block *b = a->head;
  size_t used = a->used;
  if (!b) return;
  if (b->next) {
    lb_arena_fini(a);
    a->head = b = block_new(used - sizeof *b);
    a->used = b ? used : 0;
  }
  if (b) b->used = 0;
}

// Never frees the first block, because it is the one being filled.
void lb_arena_drop(lb_arena *a, const void *p) {
  struct lb_block *before = a->head;
  while (before && before->next && before->next->single != p)
    before = before->next;
  if (!p || !before || !before->next) return;
  struct lb_block *b = before->next;
  before->next = b->next;
  a->used -= sizeof *b + b->cap;
  free(b);
}

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

// Doubles the total capacity up to block_size per block, so that small arenas
// stay small and large ones have few blocks.
static size_t next_cap(const lb_arena *a) {
  size_t cap = max_size(a->used, max_size(a->block_size / 16, MIN_BLOCK));
  return cap < a->block_size ? cap : a->block_size;
}

// A block for one large request is linked after the head, so that later small
// requests can still use the space left in the head.
static void link_block(lb_arena *a, struct lb_block *b, bool large) {
  if (a->head && large) {
    b->next = a->head->next;
    a->head->next = b;
  } else {
    b->next = a->head;
    a->head = b;
  }
  a->used += sizeof *b + b->cap;
}

void *lb_arena_alloc(lb_arena *a, size_t size, size_t align) {
  assert(align && (align & (align - 1)) == 0);
  void *p = a->head ? block_carve(a->head, size, align) : NULL;
  if (p || size > SIZE_MAX - align) return p;
  size_t cap = next_cap(a);
  bool large = size + align > cap;
  struct lb_block *b = block_new(large ? size + align : cap);
  if (!b) return NULL;
  link_block(a, b, large);
  p = block_carve(b, size, align);
  if (large) b->single = p;
  return p;
}

void *lb_arena_zalloc(lb_arena *a, size_t size, size_t align) {
  void *p = lb_arena_alloc(a, size, align);
  if (p) memset(p, 0, size);
  return p;
}

char *lb_arena_strndup(lb_arena *a, const char *s, size_t n) {
  if (n == SIZE_MAX) return NULL;
  char *p = lb_arena_alloc(a, n + 1, 1);
  if (!p) return NULL;
  if (n) memcpy(p, s, n);
  p[n] = '\0';
  return p;
}

char *lb_arena_strdup(lb_arena *a, const char *s) {
  return lb_arena_strndup(a, s, strlen(s));
}

void *lb_arena_memdup(lb_arena *a, const void *p, size_t size, size_t align) {
  void *copy = lb_arena_alloc(a, size, align);
  if (copy && size) memcpy(copy, p, size);
  return copy;
}
