// plan/memory.h -- assigns arena offsets once lifetimes are known.
//
// A *block* is live from get to put. Until blocks are placed, each has a
// *virtual offset*: bytes may be added to it as to a real offset, and
// lb_memory_offset translates the sum after placement. Two blocks that are live
// at the same time never overlap. Offsets and sizes are multiples of
// LB_TENSOR_ALIGN. A placed block never moves.
#ifndef LB_PLAN_MEMORY_H
#define LB_PLAN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

// Bits of a virtual offset within a block; those above are the block number.
#define LB_VIRTUAL_BITS 42
// First byte of a block.
#define LB_VIRTUAL_ZERO ((int64_t)1 << (LB_VIRTUAL_BITS - 1))

// How memory is checked (LIMBER_CHECK_MEMORY), to find values that are read
// after their memory was reused, or before they are written.
typedef enum lb_memory_check {
  LB_CHECK_SEPARATE = 1,  // no two blocks overlap, whatever their lifetimes
  LB_CHECK_POISON = 2,    // memory without a live value is overwritten
} lb_memory_check;

typedef struct lb_extent {
  size_t offset, size;
  uint32_t end;   // number of blocks when it was put, or more
  uint32_t step;  // `now` when it was allocated
} lb_extent;

typedef struct lb_memory {
  lb_extent *blocks;  // by block number; in the arena passed to each call
  uint32_t n, cap;
  uint32_t n_placed;  // blocks [0, n_placed) have offsets
  uint32_t now;       // number of steps pushed, set by the planner
  bool separate;      // LB_CHECK_SEPARATE
  size_t peak;        // end of the highest block placed
} lb_memory;

lb_status lb_memory_get(lb_memory *m, lb_arena *a, size_t size,
                        int64_t *virtual_offset);
void lb_memory_put(lb_memory *m, int64_t virtual_offset);
lb_status lb_memory_copy(lb_memory *to, const lb_memory *from, lb_arena *a);

// Assigns offsets to all blocks that have none; `a` is for temporary data.
// Blocks that were not put remain live.
lb_status lb_memory_place(lb_memory *m, lb_arena *a);

// The offset of a virtual offset, or of bytes around it, in a placed block.
static inline int64_t lb_memory_offset(const lb_memory *m,
                                       int64_t virtual_offset) {
  const lb_extent *b = &m->blocks[virtual_offset >> LB_VIRTUAL_BITS];
  int64_t inside =
      (virtual_offset & (2 * LB_VIRTUAL_ZERO - 1)) - LB_VIRTUAL_ZERO;
  return (int64_t)b->offset + inside;
}

#endif
