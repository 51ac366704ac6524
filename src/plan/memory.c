// plan/memory.c -- places the largest block first, at the lowest offset that is
// free during its lifetime.
//
// In order of use, values that grow along a chain find no gap that is wide
// enough; in order of size they need little more than the peak of live bytes
// (docs/decisions/018-first-run-latency.md).
//
// Time is counted in blocks: block i is allocated at time i. So the blocks that
// are allocated during its lifetime are those up to number `end`, and of the
// earlier ones those live at time i conflict with it: they are among the few
// allocated just before it, or in a *live set*, a list of all blocks that are
// live at one time, computed every LIVE_SET_STEP blocks.
#include "plan/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define UNPLACED SIZE_MAX  // offset of a block that is not placed
#define LIVE_SET_STEP 8    // blocks from one live set to the next

static lb_status reserve(lb_memory *m, lb_arena *a) {
  if (m->n < m->cap) return LB_OK;
  uint32_t cap = m->cap ? m->cap * 2 : 32;
  size_t bytes = lb_mul_sat(cap, sizeof *m->blocks);
  lb_extent *blocks = lb_arena_alloc(a, bytes, _Alignof(lb_extent));
  if (!blocks) return lb_oom();
  if (m->n) memcpy(blocks, m->blocks, m->n * sizeof *blocks);
  m->blocks = blocks;
  m->cap = cap;
  return LB_OK;
}

lb_status lb_memory_get(lb_memory *m, lb_arena *a, size_t size,
                        int64_t *virtual_offset) {
  const uint32_t most = UINT32_C(1) << (63 - LB_VIRTUAL_BITS);
  LB_TRY(reserve(m, a));
  if (size >= (size_t)LB_VIRTUAL_ZERO || m->n == most) return lb_oom();
  size = (size + LB_TENSOR_ALIGN - 1) & ~(size_t)(LB_TENSOR_ALIGN - 1);
  if (size == 0) size = LB_TENSOR_ALIGN;  // blocks are always distinct
  *virtual_offset = ((int64_t)m->n << LB_VIRTUAL_BITS) + LB_VIRTUAL_ZERO;
  m->blocks[m->n++] = (lb_extent){UNPLACED, size, UINT32_MAX, m->now};
  return LB_OK;
}

static lb_extent *block_of(lb_memory *m, int64_t virtual_offset) {
  lb_extent *b = &m->blocks[virtual_offset >> LB_VIRTUAL_BITS];
  assert(b < m->blocks + m->n && b->end == UINT32_MAX);
  return b;
}

void lb_memory_put(lb_memory *m, int64_t virtual_offset) {
  block_of(m, virtual_offset)->end = m->n;
}

lb_status lb_memory_copy(lb_memory *to, const lb_memory *from, lb_arena *a) {
  *to = *from;
  to->blocks = lb_arena_new(a, lb_extent, from->cap);
  if (!to->blocks) return lb_oom();
  if (from->n) memcpy(to->blocks, from->blocks, from->n * sizeof *to->blocks);
  return LB_OK;
}

// -- lifetimes ----------------------------------------------------------------

typedef struct live_set {
  uint32_t *ids;
  uint32_t n;
} live_set;

// Adds those of [from, to) that are live at `time`.
static void add_live(const lb_memory *m, uint32_t from, uint32_t to,
                     uint32_t time, live_set *r) {
  for (uint32_t i = from; i < to; i++)
    if (m->blocks[i].end > time) r->ids[r->n++] = i;
}

// One live set for each LIVE_SET_STEP blocks, from the first unplaced one on.
static lb_status find_live_sets(const lb_memory *m, lb_arena *a,
                                live_set **out) {
  uint32_t n = (m->n - m->n_placed) / LIVE_SET_STEP + 1;
  live_set *live_sets = *out = lb_arena_new(a, live_set, n);
  if (!live_sets) return lb_oom();
  for (uint32_t k = 0; k < n; k++) {
    uint32_t time = m->n_placed + k * LIVE_SET_STEP;
    live_set before = k ? live_sets[k - 1] : (live_set){0};
    uint32_t from = k ? time - LIVE_SET_STEP : 0;
    live_sets[k].ids = lb_arena_new(a, uint32_t, before.n + (time - from));
    if (!live_sets[k].ids) return lb_oom();
    for (uint32_t i = 0; i < before.n; i++)
      add_live(m, before.ids[i], before.ids[i] + 1, time, &live_sets[k]);
    add_live(m, from, time, time, &live_sets[k]);
  }
  return LB_OK;
}

// -- offsets ------------------------------------------------------------------

typedef struct placing {
  lb_memory *m;
  live_set *live_sets;
  const lb_extent **conflicts;  // placed blocks whose lifetimes overlap that of
                                // the block
} placing;

// Adds b to the `n` conflicting blocks if it is placed and live at `time`.
static uint32_t add_conflict(const lb_extent **conflicts, uint32_t n,
                             const lb_extent *b, uint32_t time) {
  if (b->end <= time || b->offset == UNPLACED) return n;
  conflicts[n] = b;
  return n + 1;
}

static uint32_t find_conflicts(const placing *p, uint32_t block) {
  const lb_memory *m = p->m;
  const lb_extent *all = m->blocks, *b = &all[block],
                  **conflicts = p->conflicts;
  live_set r = p->live_sets[(block - m->n_placed) / LIVE_SET_STEP];
  uint32_t listed = block - (block - m->n_placed) % LIVE_SET_STEP, n = 0;
  const lb_extent *end = all + (b->end < m->n ? b->end : m->n);
  for (uint32_t i = 0; i < r.n; i++)
    n = add_conflict(conflicts, n, &all[r.ids[i]], block);
  for (const lb_extent *x = all + listed; x < b; x++)
    n = add_conflict(conflicts, n, x, block);
  for (const lb_extent *x = b + 1; x < end; x++)
    n = add_conflict(conflicts, n, x, block);
  return n;
}

static int by_offset(const void *a, const void *b) {
  const lb_extent *const *x = a, *const *y = b;
  return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

#define FEW 64  // most blocks have fewer conflicts

// The lowest offset at which [offset, offset + size) overlaps no conflicting
// block. An overlapping block ends above every feasible offset up to it, so
// moving to its end skips none; a block that ends below the offset cannot
// overlap later. Many blocks are sorted by offset first, so that the loop needs
// two passes.
static size_t lowest(const lb_extent **conflicts, uint32_t n_conflicts,
                     size_t size) {
  size_t at = 0;
  if (n_conflicts > FEW)
    qsort(conflicts, n_conflicts, sizeof *conflicts, by_offset);
  for (bool overlaps = n_conflicts > 0; overlaps;) {
    uint32_t n = 0;
    overlaps = false;
    for (uint32_t i = 0; i < n_conflicts; i++) {
      const lb_extent *b = conflicts[i];
      size_t end = b->offset + b->size;
      if (end <= at) continue;
      overlaps |= b->offset < at + size;
      if (b->offset < at + size)
        at = end;
      else
        conflicts[n++] = b;
    }
    n_conflicts = n;
  }
  return at;
}

static lb_status place_block(placing *p, uint32_t block) {
  lb_memory *m = p->m;
  lb_extent *b = &m->blocks[block];
  size_t at = lowest(p->conflicts, find_conflicts(p, block), b->size),
         end = at + b->size;
  if (end >= (size_t)LB_VIRTUAL_ZERO) return lb_oom();
  b->offset = at;
  if (end > m->peak) m->peak = end;
  return LB_OK;
}

// -- by size -----------------------------------------------------------------

#define CLASSES LB_VIRTUAL_BITS  // by the highest bit of the size

// Lists of blocks by size class, each in descending order of size; blocks of
// equal size are in order of allocation. Numbers count unplaced blocks from 1;
// 0 ends a list.
typedef struct sorted {
  uint32_t first[CLASSES];
  uint32_t *next;  // by number
} sorted;

static void sort_in(const lb_extent *blocks, uint32_t number, sorted *s) {
  size_t size = blocks[number - 1].size;
  uint32_t *at = &s->first[63 - __builtin_clzll(size)];
  while (*at && blocks[*at - 1].size > size) at = &s->next[*at];
  s->next[number] = *at;
  *at = number;
}

static lb_status place_by_size(placing *p, lb_arena *a) {
  uint32_t from = p->m->n_placed, n = p->m->n - from;
  const lb_extent *blocks = p->m->blocks + from;
  sorted s = {.next = lb_arena_alloc(a, (n + 1) * sizeof *s.next, 4)};
  if (!s.next) return lb_oom();
  for (uint32_t i = n; i > 0; i--) sort_in(blocks, i, &s);
  for (uint32_t c = CLASSES; c-- > 0;)
    for (uint32_t i = s.first[c]; i; i = s.next[i])
      LB_TRY(place_block(p, from + i - 1));
  return LB_OK;
}

// Places the blocks one after the other.
static lb_status place_apart(lb_memory *m) {
  for (; m->n_placed < m->n; m->n_placed++) {
    lb_extent *b = &m->blocks[m->n_placed];
    if (b->size >= (size_t)LB_VIRTUAL_ZERO - m->peak) return lb_oom();
    b->offset = m->peak;
    m->peak += b->size;
  }
  return LB_OK;
}

lb_status lb_memory_place(lb_memory *m, lb_arena *a) {
  placing p = {.m = m};
  if (m->n == m->n_placed) return LB_OK;
  if (m->separate) return place_apart(m);
  LB_TRY(find_live_sets(m, a, &p.live_sets));
  p.conflicts =
      lb_arena_alloc(a, m->n * sizeof *p.conflicts, _Alignof(lb_extent *));
  if (!p.conflicts) return lb_oom();
  LB_TRY(place_by_size(&p, a));
  m->n_placed = m->n;
  return LB_OK;
}
