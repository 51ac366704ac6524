// plan/memory.h -- offsets in one arena by liveness, first fit.
//
// Blocks live from get to put; two live blocks never overlap. Offsets and sizes
// are multiples of LB_TENSOR_ALIGN.
#ifndef LB_PLAN_MEMORY_H
#define LB_PLAN_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct lb_extent {
  size_t offset, size;
} lb_extent;

typedef struct lb_memory {
  lb_extent *live;  // sorted by offset; in the arena given to each call
  uint32_t n, cap;
  size_t peak;  // end of the highest block ever
} lb_memory;

lb_status lb_memory_get(lb_memory *m, lb_arena *a, size_t size, size_t *offset);
void lb_memory_put(lb_memory *m, size_t offset);
lb_status lb_memory_copy(lb_memory *to, const lb_memory *from, lb_arena *a);

#endif
