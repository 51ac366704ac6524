// device/cpu/code.h -- executable memory for machine code.
//
// No page is ever writable and executable at the same address. There are two
// modes, the better one first; lb_cpu_code_create finds out which of them the
// system allows:
//
//   SHARED  pages of a memfd, mapped twice: writable and executable. Blocks are
//           packed into arenas of 256 KB, 64-byte aligned, and freed memory is
//           reused.
//   SEALED  private pages: written, then made executable once and for all. A
//           block takes whole pages, so this mode uses more memory.
//
// Any thread may call, but not while it holds a lock that fork takes (lb_lock).
// Running code takes no lock.
//
// After a fork both processes keep running the blocks they have. SHARED memory
// is the same memory in both, so a fork closes every arena in both: its
// writable mapping is unmapped, and neither process can change code that the
// other runs. Later blocks go to new arenas. A child created by _Fork or a raw
// clone, which run no fork handlers, may run code only as long as its parent
// frees none.
#ifndef LB_DEVICE_CPU_CODE_H
#define LB_DEVICE_CPU_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LB_CPU_ALIGN 64

typedef struct lb_cpu_code lb_cpu_code;  // refcounted

typedef enum lb_cpu_code_mode {
  LB_CPU_NONE,
  LB_CPU_SEALED,
  LB_CPU_SHARED,
} lb_cpu_code_mode;

// Owned by the caller of lb_cpu_code_add.
typedef struct lb_cpu_block {
  const uint8_t *run;  // readable and executable, LB_CPU_ALIGN-aligned
  size_t size;         // bytes, at least the requested size

  // -- for code.c only
  struct lb_cpu_arena *arena;
  struct lb_cpu_block *prev, *next;  // neighbours in the arena, by address
  int used;
  int stale;  // its memory has held other code before
} lb_cpu_block;

typedef struct lb_cpu_code_stats {
  lb_cpu_code_mode mode;
  size_t blocks;  // in use
  size_t used;    // bytes of these blocks
  size_t mapped;  // bytes of all arenas, limited by the budget
} lb_cpu_code_stats;

// At most `budget` bytes will be mapped; a budget below one arena means one
// arena. `best` is the best mode to try; better ones are treated as refused by
// the system. perf resolves symbols in private memory only, so pass
// LB_CPU_SEALED for profiling. Fails with LB_DEVICE if the system refuses
// executable memory; the message says how, and the caller continues without.
lb_status lb_cpu_code_create(size_t budget, lb_cpu_code_mode best,
                             lb_cpu_code **out);
void lb_cpu_code_retain(lb_cpu_code *code);
// The last unmaps everything; NULL is allowed.
void lb_cpu_code_release(lb_cpu_code *code);

// Writes a whole new block: `size` bytes at `write`, which will run at `run`.
typedef lb_status lb_cpu_fill(void *user, uint8_t *write, const uint8_t *run);

// Adds a block of `size` bytes, written by `fill`. `fill` is called once, with
// the lock held, so it must be short and must not call this module; its failure
// is returned. LB_OOM: the budget or the system's memory is exhausted; freeing
// blocks helps.
lb_status lb_cpu_code_add(lb_cpu_code *code, size_t size, lb_cpu_fill *fill,
                          void *user, lb_cpu_block **out);

// No thread may be running the block. NULL is allowed.
void lb_cpu_code_free(lb_cpu_code *code, lb_cpu_block *block);

lb_cpu_code_stats lb_cpu_code_count(lb_cpu_code *code);

#endif
