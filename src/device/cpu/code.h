// device/cpu/code.h -- memory that machine code runs from.
//
// No page is ever writable and executable at one address. There are two ways,
// the better one first; creation finds out what the system allows:
//
//   SHARED  pages of a memfd, mapped twice: to write, and to run. Blocks lie
//           densely in arenas of 256 KB, 64-byte aligned, and their memory is
//           used again.
//   SEALED  private pages: written, then made executable once and for good.
//           A block takes whole pages, so this costs more memory.
//
// Any thread may call, but not while it holds a lock that fork takes (lb_lock).
// Running code takes no lock.
//
// fork: both sides go on running the blocks they have. What is SHARED is the
// same memory in both, so a fork closes every arena in both: its writable view
// is unmapped, and neither side can change what the other runs. Blocks added
// later lie in new arenas. A child made by _Fork or a raw clone, which tell
// nobody, may run code only as long as its parent frees none.
#ifndef LB_DEVICE_CPU_CODE_H
#define LB_DEVICE_CPU_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LB_CPU_ALIGN 64

typedef struct lb_cpu_code lb_cpu_code;  // refcounted

typedef enum lb_cpu_way {
  LB_CPU_NONE,
  LB_CPU_SEALED,
  LB_CPU_SHARED,
} lb_cpu_way;

// Owned by whoever added it.
typedef struct lb_cpu_block {
  const uint8_t *run;  // readable and executable, LB_CPU_ALIGN-aligned
  size_t size;         // bytes taken, not less than asked for

  // -- for code.c only
  struct lb_cpu_arena *arena;
  struct lb_cpu_block *prev, *next;  // neighbours in the arena, by address
  int used;
  int stale;  // its memory held other code before
} lb_cpu_block;

typedef struct lb_cpu_code_stats {
  lb_cpu_way way;
  size_t blocks;  // in use
  size_t used;    // bytes of these blocks
  size_t mapped;  // bytes of all arenas, what the budget limits
} lb_cpu_code_stats;

// At most `budget` bytes will be mapped; less than one arena means one arena.
// `most` is the best way to try: LB_CPU_SHARED, or less, as if the system
// refused the rest. perf finds symbols in private memory only, so where it is
// to see them, ask for LB_CPU_SEALED. LB_DEVICE: executable memory is refused,
// and the message says how; the caller runs without.
lb_status lb_cpu_code_create(size_t budget, lb_cpu_way most, lb_cpu_code **out);
void lb_cpu_code_retain(lb_cpu_code *code);
void lb_cpu_code_release(
    lb_cpu_code *code);  // the last unmaps all; NULL is fine

// Writes all of a new block: `size` bytes at `write`, which will run at `run`.
typedef lb_status lb_cpu_fill(void *user, uint8_t *write, const uint8_t *run);

// Adds a block of `size` bytes that `fill` writes; called once, with the lock
// held, so it must be short and not call back. LB_OOM: the budget or the memory
// is used up; freeing blocks helps. What `fill` returns is passed on.
lb_status lb_cpu_code_add(lb_cpu_code *code, size_t size, lb_cpu_fill *fill,
                          void *user, lb_cpu_block **out);

// Nobody may be running it. NULL is fine.
void lb_cpu_code_free(lb_cpu_code *code, lb_cpu_block *block);

lb_cpu_code_stats lb_cpu_code_count(lb_cpu_code *code);

#endif
