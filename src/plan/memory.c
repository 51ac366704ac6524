// plan/memory.c -- the largest block first, at the lowest offset that is free
// for as long as it lives.
//
// In order of use, values that grow along a chain find no gap that is wide
// enough; by size they need little more than what lives at once
// (docs/decisions/018-what-a-new-shape-costs.md).
//
// Time is counted in blocks: block i is born at time i. So those born while it
// lives are the numbers up to its end, and those born before that live at
// time i are its *elders*: some of the few before it, and of those on a *roll*,
// a list of all that live at one time, which is called now and then.
#include "plan/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define NOWHERE SIZE_MAX  // the offset of a block that is not placed
#define ROLL 8            // blocks from one roll to the next

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

lb_status lb_memory_get(lb_memory *m, lb_arena *a, size_t size, int64_t *mark) {
  const uint32_t most = UINT32_C(1) << (63 - LB_VIRTUAL_BITS);
  LB_TRY(reserve(m, a));
  if (size >= (size_t)LB_VIRTUAL_ZERO || m->n == most) return lb_oom();
  size = (size + LB_TENSOR_ALIGN - 1) & ~(size_t)(LB_TENSOR_ALIGN - 1);
  if (size == 0) size = LB_TENSOR_ALIGN;  // distinct blocks, always
  *mark = ((int64_t)m->n << LB_VIRTUAL_BITS) + LB_VIRTUAL_ZERO;
  m->blocks[m->n++] = (lb_extent){NOWHERE, size, UINT32_MAX};
  return LB_OK;
}

static lb_extent *block_of(lb_memory *m, int64_t mark) {
  lb_extent *b = &m->blocks[mark >> LB_VIRTUAL_BITS];
  assert(b < m->blocks + m->n && b->end == UINT32_MAX);
  return b;
}

void lb_memory_put(lb_memory *m, int64_t mark) {
  block_of(m, mark)->end = m->n;
}

lb_status lb_memory_copy(lb_memory *to, const lb_memory *from, lb_arena *a) {
  *to = *from;
  to->blocks = lb_arena_new(a, lb_extent, from->cap);
  if (!to->blocks) return lb_oom();
  if (from->n) memcpy(to->blocks, from->blocks, from->n * sizeof *to->blocks);
  return LB_OK;
}

// -- who lives when ----------------------------------------------------------

typedef struct roll {
  uint32_t *ids;
  uint32_t n;
} roll;

// Adds those of [from, to) that live at a time.
static void call_range(const lb_memory *m, uint32_t from, uint32_t to,
                       uint32_t time, roll *r) {
  for (uint32_t i = from; i < to; i++)
    if (m->blocks[i].end > time) r->ids[r->n++] = i;
}

// By time since the first block that is not placed, one for each ROLL.
static lb_status call_rolls(const lb_memory *m, lb_arena *a, roll **out) {
  uint32_t n = (m->n - m->n_placed) / ROLL + 1;
  roll *rolls = *out = lb_arena_new(a, roll, n);
  if (!rolls) return lb_oom();
  for (uint32_t k = 0; k < n; k++) {
    uint32_t time = m->n_placed + k * ROLL;
    roll before = k ? rolls[k - 1] : (roll){0};
    uint32_t from = k ? time - ROLL : 0;
    rolls[k].ids = lb_arena_new(a, uint32_t, before.n + (time - from));
    if (!rolls[k].ids) return lb_oom();
    for (uint32_t i = 0; i < before.n; i++)
      call_range(m, before.ids[i], before.ids[i] + 1, time, &rolls[k]);
    call_range(m, from, time, time, &rolls[k]);
  }
  return LB_OK;
}

// -- where -------------------------------------------------------------------

typedef struct placing {
  lb_memory *m;
  roll *rolls;
  const lb_extent **near;  // placed, and alive at some time of the block
} placing;

// Adds a block to the `n` that are near if it is one of them.
static uint32_t add_near(const lb_extent **near, uint32_t n, const lb_extent *b,
                         uint32_t time) {
  if (b->end <= time || b->offset == NOWHERE) return n;
  near[n] = b;
  return n + 1;
}

static uint32_t find_near(const placing *p, uint32_t block) {
  const lb_memory *m = p->m;
  const lb_extent *all = m->blocks, *b = &all[block], **near = p->near;
  roll r = p->rolls[(block - m->n_placed) / ROLL];
  uint32_t called = block - (block - m->n_placed) % ROLL, n = 0;
  const lb_extent *end = all + (b->end < m->n ? b->end : m->n);
  for (uint32_t i = 0; i < r.n; i++)
    n = add_near(near, n, &all[r.ids[i]], block);
  for (const lb_extent *x = all + called; x < b; x++)
    n = add_near(near, n, x, block);
  for (const lb_extent *x = b + 1; x < end; x++)
    n = add_near(near, n, x, block);
  return n;
}

static int by_offset(const void *a, const void *b) {
  const lb_extent *const *x = a, *const *y = b;
  return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

#define FEW 64  // most blocks have fewer near

// The lowest offset at which none of those near is met. One that is met ends
// above all offsets up to it that would do, so none is passed over; one that
// ends below is not met again. Where there are many, they are gone through in
// order, so that this takes two turns.
static size_t lowest(const lb_extent **near, uint32_t n_near, size_t size) {
  size_t at = 0;
  if (n_near > FEW) qsort(near, n_near, sizeof *near, by_offset);
  for (bool met = n_near > 0; met;) {
    uint32_t n = 0;
    met = false;
    for (uint32_t i = 0; i < n_near; i++) {
      const lb_extent *b = near[i];
      size_t end = b->offset + b->size;
      if (end <= at) continue;
      met |= b->offset < at + size;
      if (b->offset < at + size)
        at = end;
      else
        near[n++] = b;
    }
    n_near = n;
  }
  return at;
}

static lb_status place_block(placing *p, uint32_t block) {
  lb_memory *m = p->m;
  lb_extent *b = &m->blocks[block];
  size_t at = lowest(p->near, find_near(p, block), b->size), end = at + b->size;
  if (end >= (size_t)LB_VIRTUAL_ZERO) return lb_oom();
  b->offset = at;
  if (end > m->peak) m->peak = end;
  return LB_OK;
}

// -- by size -----------------------------------------------------------------

#define CLASSES LB_VIRTUAL_BITS  // by the highest bit of a size

// Lists of blocks by class, each from the largest on; of equal ones the first
// born comes first. Numbers are those of blocks that are not placed, from 1 on;
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

lb_status lb_memory_place(lb_memory *m, lb_arena *a) {
  placing p = {.m = m};
  if (m->n == m->n_placed) return LB_OK;
  LB_TRY(call_rolls(m, a, &p.rolls));
  p.near = lb_arena_alloc(a, m->n * sizeof *p.near, _Alignof(lb_extent *));
  if (!p.near) return lb_oom();
  LB_TRY(place_by_size(&p, a));
  m->n_placed = m->n;
  return LB_OK;
}
