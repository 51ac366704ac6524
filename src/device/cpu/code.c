// device/cpu/code.c -- executable memory for machine code.
//
// An *arena* is an executable mapping and, while it is *open*, a writable
// mapping of the same pages. Its blocks, used and free, form a list sorted by
// address that covers the arena without gaps.
//
// (1) Arenas are written under the lock, and only while open. A SEALED arena is
//     closed as soon as its only block is filled; fork closes the others.
// (2) Two free blocks are never adjacent. The free blocks of a closed arena are
//     not reused; the arena is unmapped when it is empty.
#include "device/cpu/code.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/ref.h"

#define ARENA_BYTES ((size_t)256 << 10)
#define TRAP 0xCC  // int3: the contents of a freed block

typedef struct lb_cpu_arena {
  struct lb_cpu_arena *next;
  uint8_t *run;         // executable mapping; owned
  uint8_t *write;       // writable mapping; owned; NULL: closed
  size_t size;          // whole pages
  size_t used;          // bytes in used blocks
  lb_cpu_block *first;  // owned, like all its blocks
} arena;

struct lb_cpu_code {
  lb_lock lock;  // guards everything but the reference count
  lb_ref ref;
  lb_cpu_code_mode mode;
  size_t budget;
  lb_cpu_code_stats stats;
  arena *arenas;  // owned
};

static size_t round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

// -- mappings ----------------------------------------------------------------

static lb_status refused(const char *what) {
  return lb_error(errno == ENOMEM ? LB_OOM : LB_DEVICE, "%s: %s", what,
                  strerror(errno));
}

// Opens a memfd of `size` bytes and allocates them: otherwise a write could
// raise SIGBUS (no memory) or SIGXFSZ (file size limit).
static int open_memfd(size_t size) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
    errno = EFBIG;
    return -1;
  }
  int fd = memfd_create("limber-code", MFD_CLOEXEC);
  if (fd >= 0 && fallocate(fd, 0, 0, (off_t)size) != 0) {
    int err = errno;
    close(fd);
    errno = err;
    return -1;
  }
  return fd;
}

// Both mappings are populated, so that neither loading nor the first run of a
// kernel takes a page fault.
static lb_status map_shared(arena *a) {
  const int how = MAP_SHARED | MAP_POPULATE;
  int fd = open_memfd(a->size);
  if (fd < 0) return refused("cannot create a memfd");
  lb_status st = LB_OK;
  void *run = mmap(NULL, a->size, PROT_READ | PROT_EXEC, how, fd, 0);
  if (run == MAP_FAILED) {
    st = refused("cannot map a memfd as executable");
    goto done;
  }
  void *write = mmap(NULL, a->size, PROT_READ | PROT_WRITE, how, fd, 0);
  if (write == MAP_FAILED) {
    st = refused("cannot map a memfd as writable");
    munmap(run, a->size);
    goto done;
  }
  a->run = run;
  a->write = write;

done:  // the mappings keep the memory alive
  close(fd);
  return st;
}

// Until it is sealed, the executable mapping is the writable one.
static lb_status map_private(arena *a) {
  void *p = mmap(NULL, a->size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return refused("cannot map private pages");
  a->run = a->write = p;
  return LB_OK;
}

static lb_status seal(arena *a) {
  a->write = NULL;
  if (mprotect(a->run, a->size, PROT_READ | PROT_EXEC) != 0)
    return refused("cannot make private pages executable");
  return LB_OK;
}

// Closes the arena permanently; its blocks can still be run.
static void close_arena(arena *a) {
  if (a->write && a->write != a->run) munmap(a->write, a->size);
  a->write = NULL;
}

// -- blocks ------------------------------------------------------------------

// Shrinks `b` to `size` bytes; the remainder becomes a free block after it.
static lb_status split(lb_cpu_block *b, size_t size) {
  if (b->size == size) return LB_OK;
  lb_cpu_block *remainder = malloc(sizeof *remainder);
  if (!remainder) return lb_oom();
  *remainder = (lb_cpu_block){.run = b->run + size,
                              .size = b->size - size,
                              .arena = b->arena,
                              .prev = b,
                              .next = b->next,
                              .stale = b->stale};
  if (remainder->next) remainder->next->prev = remainder;
  b->next = remainder;
  b->size = size;
  return LB_OK;
}

// Merges the block after `b` into it.
static void merge_next(lb_cpu_block *b) {
  lb_cpu_block *next_block = b->next;
  b->size += next_block->size;
  b->stale |= next_block->stale;
  b->next = next_block->next;
  if (b->next) b->next->prev = b;
  free(next_block);
}

// A core may hold instructions fetched from the block's previous contents: all
// cores discard them before the new code can be reached.
static void sync_cores(void) {
  syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
}

static uint8_t *writable(const lb_cpu_block *b) {
  return b->arena->write + (b->run - b->arena->run);
}

// -- arenas ------------------------------------------------------------------

static void drop_arena(lb_cpu_code *c, arena *a) {
  arena **at = &c->arenas;
  while (*at != a) at = &(*at)->next;
  *at = a->next;
  close_arena(a);
  munmap(a->run, a->size);
  c->stats.mapped -= a->size;
  while (a->first->next) merge_next(a->first);
  free(a->first);
  free(a);
}

// Maps an arena in the given mode and appends it to the list.
static lb_status add_arena(lb_cpu_code *c, lb_cpu_code_mode mode, size_t size,
                           arena **out) {
  arena *a = calloc(1, sizeof *a);
  lb_cpu_block *all = calloc(1, sizeof *all);
  lb_status st = LB_OK;
  if (!a || !all) {
    st = lb_oom();
    goto done;
  }
  a->size = size;
  st = mode == LB_CPU_SHARED ? map_shared(a) : map_private(a);
  if (lb_failed(st)) goto done;
  *all = (lb_cpu_block){.run = a->run, .size = size, .arena = a};
  a->first = all;
  arena **at = &c->arenas;
  while (*at) at = &(*at)->next;
  *at = a;
  c->stats.mapped += size;
  *out = a;
  return LB_OK;

done:
  free(all);
  free(a);
  return st;
}

// Adds an arena for `size` bytes, within the budget. SHARED may fail although
// it worked before (no more file descriptors): then SEALED is used.
static lb_status grow(lb_cpu_code *c, size_t size, arena **out) {
  bool shared = c->mode == LB_CPU_SHARED;
  size_t whole = round_up(size, page_bytes());
  if (shared && whole < ARENA_BYTES) whole = ARENA_BYTES;
  if (whole > c->budget - c->stats.mapped)
    return lb_error(LB_OOM,
                    "code memory: %zu bytes more than the %zu mapped would "
                    "exceed the budget of %zu",
                    whole, c->stats.mapped, c->budget);
  if (shared) {
    lb_status st = add_arena(c, LB_CPU_SHARED, whole, out);
    if (!lb_failed(st)) return LB_OK;
    lb_status_drop(st);
  }
  return add_arena(c, LB_CPU_SEALED, round_up(size, page_bytes()), out);
}

static lb_cpu_block *first_fit(arena *a, size_t size) {
  if (!a->write || a->size - a->used < size) return NULL;
  for (lb_cpu_block *b = a->first; b; b = b->next)
    if (!b->used && b->size >= size) return b;
  return NULL;
}

static lb_status alloc_block(lb_cpu_code *c, size_t size, lb_cpu_block **out) {
  lb_cpu_block *b = NULL;
  for (arena *a = c->arenas; a && !b; a = a->next) b = first_fit(a, size);
  if (!b) {
    arena *a;
    LB_TRY(grow(c, size, &a));
    b = a->first;
  }
  bool to_seal = b->arena->write == b->arena->run;
  if (!to_seal) LB_TRY(split(b, size));
  b->used = true;
  b->arena->used += b->size;
  c->stats.used += b->size;
  c->stats.blocks++;
  *out = b;
  return LB_OK;
}

// One empty open arena is kept, so that repeatedly loading and unloading a
// kernel does not map and unmap memory.
static bool is_spare(const lb_cpu_code *c, const arena *a) {
  if (!a->write || a->write == a->run || a->size != ARENA_BYTES) return false;
  for (const arena *o = c->arenas; o; o = o->next)
    if (o != a && o->write) return false;
  return true;
}

static void free_block(lb_cpu_code *c, lb_cpu_block *b) {
  arena *a = b->arena;
  a->used -= b->size;
  c->stats.used -= b->size;
  c->stats.blocks--;
  b->used = false;
  b->stale = true;
  if (a->write) memset(writable(b), TRAP, b->size);
  if (b->next && !b->next->used) merge_next(b);
  if (b->prev && !b->prev->used) merge_next(b->prev);
  if (a->used == 0 && !is_spare(c, a)) drop_arena(c, a);
}

static lb_status fill_block(lb_cpu_block *b, lb_cpu_fill *fill, void *user) {
  arena *a = b->arena;
  LB_TRY(fill(user, writable(b), b->run));
  if (a->write == a->run) LB_TRY(seal(a));
  if (b->stale) sync_cores();
  return LB_OK;
}

lb_status lb_cpu_code_add(lb_cpu_code *code, size_t size, lb_cpu_fill *fill,
                          void *user, lb_cpu_block **out) {
  assert(size > 0);
  *out = NULL;
  if (size > code->budget)
    return lb_error(LB_OOM,
                    "code memory: %zu bytes exceed the budget of %zu bytes",
                    size, code->budget);
  lb_cpu_block *b = NULL;
  lb_lock_take(&code->lock);
  lb_status st = alloc_block(code, round_up(size, LB_CPU_ALIGN), &b);
  if (!lb_failed(st)) st = fill_block(b, fill, user);
  if (lb_failed(st) && b) {
    free_block(code, b);
    b = NULL;
  }
  lb_lock_give(&code->lock);
  *out = b;
  return st;
}

void lb_cpu_code_free(lb_cpu_code *code, lb_cpu_block *block) {
  if (!block) return;
  lb_lock_take(&code->lock);
  free_block(code, block);
  lb_lock_give(&code->lock);
}

lb_cpu_code_stats lb_cpu_code_count(lb_cpu_code *code) {
  lb_lock_take(&code->lock);
  lb_cpu_code_stats stats = code->stats;
  stats.mode = code->mode;
  lb_lock_give(&code->lock);
  return stats;
}

// -- creation ----------------------------------------------------------------

static lb_status try_sealed(lb_cpu_code *c) {
  arena *a;
  LB_TRY(add_arena(c, LB_CPU_SEALED, page_bytes(), &a));
  lb_status st = seal(a);
  drop_arena(c, a);
  return st;
}

// The lock is held through the fork, so that no block is half written.
static void before_fork(lb_lock *l) {
  for (arena *a = ((lb_cpu_code *)l)->arenas; a; a = a->next) close_arena(a);
}

// Tries the modes by using them. The arena that tests SHARED becomes the first
// one.
static lb_status find_mode(lb_cpu_code *c, lb_cpu_code_mode best) {
  arena *a;
  lb_status shared = LB_OK, sealed = LB_OK;
  if (best == LB_CPU_SHARED) {
    shared = add_arena(c, LB_CPU_SHARED, ARENA_BYTES, &a);
    if (!lb_failed(shared)) c->mode = LB_CPU_SHARED;
  }
  if (!c->mode && best != LB_CPU_NONE) {
    sealed = try_sealed(c);
    if (!lb_failed(sealed)) c->mode = LB_CPU_SEALED;
  }
  lb_status st = LB_OK;
  if (!c->mode)
    st = lb_error(
        LB_DEVICE,
        "the system refuses executable memory (%s; %s), so no kernel "
        "can be loaded",
        lb_failed(shared) ? lb_status_message(shared) : "no memfd",
        lb_failed(sealed) ? lb_status_message(sealed) : "no private pages");
  lb_status_drop(shared);
  lb_status_drop(sealed);
  return st;
}

lb_status lb_cpu_code_create(size_t budget, lb_cpu_code_mode best,
                             lb_cpu_code **out) {
  *out = NULL;
  lb_cpu_code *c = calloc(1, sizeof *c);
  if (!c) return lb_oom();
  lb_ref_init(&c->ref);
  c->budget = budget > ARENA_BYTES ? budget : ARENA_BYTES;
  if (c->budget > PTRDIFF_MAX)
    c->budget = PTRDIFF_MAX;  // so that sums do not wrap
  syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
          0, 0);
  lb_fork_hooks hooks = {.before = before_fork};
  lb_status st = lb_lock_init_hooked(&c->lock, hooks);
  if (lb_failed(st)) {
    free(c);
    return st;
  }
  lb_lock_take(&c->lock);
  st = find_mode(c, best);
  lb_lock_give(&c->lock);
  if (lb_failed(st)) {
    lb_cpu_code_release(c);
    return st;
  }
  *out = c;
  return LB_OK;
}

void lb_cpu_code_retain(lb_cpu_code *code) { lb_ref_retain(&code->ref); }

void lb_cpu_code_release(lb_cpu_code *code) {
  if (!code || !lb_ref_release(&code->ref)) return;
  lb_lock_take(&code->lock);
  while (code->arenas) drop_arena(code, code->arenas);
  lb_lock_give(&code->lock);
  lb_lock_fini(&code->lock);
  free(code);
}
