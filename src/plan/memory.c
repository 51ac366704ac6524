// plan/memory.c -- first fit over a sorted list of live blocks.
#include "plan/memory.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"

static lb_status reserve(lb_memory *m, lb_arena *a) {
  if (m->n < m->cap) return LB_OK;
  uint32_t cap = m->cap ? m->cap * 2 : 16;
  lb_extent *live = lb_arena_new(a, lb_extent, cap);
  if (!live) return lb_oom();
  if (m->n) memcpy(live, m->live, m->n * sizeof *live);
  m->live = live;
  m->cap = cap;
  return LB_OK;
}

lb_status lb_memory_get(lb_memory *m, lb_arena *a, size_t size,
                        size_t *offset) {
  LB_TRY(reserve(m, a));
  size_t at = 0, rounded;
  uint32_t i = 0;
  if (__builtin_add_overflow(size, LB_TENSOR_ALIGN - 1, &rounded))
    return lb_oom();
  rounded &= ~(size_t)(LB_TENSOR_ALIGN - 1);
  if (rounded == 0) rounded = LB_TENSOR_ALIGN;  // distinct blocks, always
  for (; i < m->n && m->live[i].offset - at < rounded; i++)
    at = m->live[i].offset + m->live[i].size;
  size_t end;
  if (__builtin_add_overflow(at, rounded, &end)) return lb_oom();
  memmove(m->live + i + 1, m->live + i, (m->n - i) * sizeof *m->live);
  m->live[i] = (lb_extent){at, rounded};
  m->n++;
  if (end > m->peak) m->peak = end;
  *offset = at;
  return LB_OK;
}

void lb_memory_put(lb_memory *m, size_t offset) {
  uint32_t lo = 0, hi = m->n;
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    if (m->live[mid].offset < offset) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  assert(lo < m->n && m->live[lo].offset == offset);
  m->n--;
  memmove(m->live + lo, m->live + lo + 1, (m->n - lo) * sizeof *m->live);
}

lb_status lb_memory_copy(lb_memory *to, const lb_memory *from, lb_arena *a) {
  *to = *from;
  to->live = lb_arena_new(a, lb_extent, from->cap);
  if (!to->live) return lb_oom();
  if (from->n) memcpy(to->live, from->live, from->n * sizeof *to->live);
  return LB_OK;
}
