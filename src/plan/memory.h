// plan/memory.h -- offsets in one arena, given out when lifetimes are known.
//
// A *block* lives from get to put. Until blocks are placed each has a *mark*:
// bytes into the block may be added to it, as to an offset, and what comes of
// that is turned into an offset afterwards. Two blocks that live at once never
// overlap; offsets and sizes are multiples of LB_TENSOR_ALIGN. A block that was
// placed stays where it is.
#ifndef LB_PLAN_MEMORY_H
#define LB_PLAN_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

#define LB_VIRTUAL_BITS 42  // of a mark; those above are the block's number
#define LB_VIRTUAL_ZERO ((int64_t)1 << (LB_VIRTUAL_BITS - 1))  // its first byte

typedef struct lb_extent {
  size_t offset, size;
  uint32_t end;  // blocks there were when it was put, or more
} lb_extent;

typedef struct lb_memory {
  lb_extent *blocks;  // by number; in the arena given to each call
  uint32_t n, cap;
  uint32_t n_placed;  // the first ones
  size_t peak;        // end of the highest block placed
} lb_memory;

lb_status lb_memory_get(lb_memory *m, lb_arena *a, size_t size, int64_t *mark);
void lb_memory_put(lb_memory *m, int64_t mark);
lb_status lb_memory_copy(lb_memory *to, const lb_memory *from, lb_arena *a);

// Gives offsets to all blocks that have none; `a` is for what is needed
// meanwhile. Blocks that were not put live on.
lb_status lb_memory_place(lb_memory *m, lb_arena *a);

// Of a mark, or of bytes around it, in a block that is placed.
static inline int64_t lb_memory_offset(const lb_memory *m, int64_t mark) {
  const lb_extent *b = &m->blocks[mark >> LB_VIRTUAL_BITS];
  int64_t inside = (mark & (2 * LB_VIRTUAL_ZERO - 1)) - LB_VIRTUAL_ZERO;
  return (int64_t)b->offset + inside;
}

#endif
