// session/context.h -- the memory of one run.
//
// A context serves one run at a time and keeps its memory for the next. Under a
// memory limit it does not, as whether a run fits must not depend on earlier
// runs. The body of a Loop or Scan runs in the inner context.
#ifndef LB_SESSION_CONTEXT_H
#define LB_SESSION_CONTEXT_H

#include "base/alloc.h"
#include "base/arena.h"
#include "base/run_limits.h"
#include "base/tensor.h"
#include "cache/lru.h"
#include "plan/plan.h"
#include "session/watch.h"

typedef struct lb_dynamic_buffer {  // sized during a run
  lb_tensor tensor;                 // dense; data owned
  size_t cap;
  size_t used;  // bytes used by this run
} lb_dynamic_buffer;

// What one run uses, including loop bodies: bytes for values, and loop
// iterations.
typedef struct lb_budget {
  size_t limit;        // 0: none
  size_t kept;         // arenas and dynamic buffers, used by this run or not
  size_t outputs;      // owned by the caller once the run ends
  int64_t iterations;  // of the outermost Loop or Scan and of those inside it
} lb_budget;

// The device's copy of a tensor in host memory: see session/remote.h.
typedef struct lb_remote {
  char *data;     // owned
  size_t cap;     // bytes
  size_t before;  // bytes before the tensor's first element
} lb_remote;

typedef struct lb_context {
  struct lb_context *inner;  // owned; NULL until a body runs
  const lb_alloc *alloc;     // borrowed
  lb_device *device;         // borrowed; the arena is in its memory
  lb_budget *budget;         // that of the outermost context
  lb_budget own_budget;
  // Of this run, or of the last one: the context is one of its users
  // (session/versions.h). NULL: none. An inner context has that of the
  // outermost.
  struct lb_version *version;
  lb_program *program;      // of the version
  lb_epoch_reader *reader;  // of the outermost context: when the run entered
  lb_epoch_reader own_reader;
  const lb_watcher *watcher;  // of this run; borrowed, may be NULL
  lb_run_limits *limits;      // likewise
  lb_pool *pool;              // likewise
  const lb_alloc *results;    // for results of this run; borrowed
  void *arena;                // owned; in the device's memory
  size_t arena_cap;           // bytes allocated
  size_t arena_kept;          // bytes used by runs, which the budget counts
  size_t arena_used;          // bytes used by this run
  // The caller's memory, used in place of the arena in this run; borrowed.
  void *lent;
  size_t lent_bytes;
  bool lends;                  // use `lent` even if it has no bytes
  lb_dynamic_buffer *buffers;  // owned, with their data
  uint32_t n_buffers;
  // For the current step, and for the stage: see plan/plan.h. Owned.
  lb_tensor *operands;
  uintptr_t *bases;
  size_t n_operands, n_bases;
  // Indexed by base number, starting at LB_BASE_FIRST; none for a device that
  // shares memory. Owned.
  lb_remote *remotes;
  size_t n_remotes;
  // The first plan of the last run and its signature, so that a run with the
  // same shapes needs no lookup. Retained; owned.
  lb_plan *last;
  char *last_key;
  size_t last_size, last_cap;
  uint64_t seed;            // for random operators; incremented by each step
  uint64_t run;             // number of the last run in this session
  uint32_t underused_runs;  // in a row, with less than half of it used
  size_t counted;  // bytes of budget->kept that the session's total includes
  lb_plan_workspace workspace;  // for planning
  lb_arena scratch;             // emptied after each step
  lb_arena keys;   // signatures and stage results; emptied after each run
  lb_arena parts;  // inputs and outputs of micro-batches; likewise
} lb_context;

lb_status lb_context_new(const lb_alloc *alloc, lb_device *device,
                         lb_context **out);
void lb_context_free(lb_context *c);  // frees inner contexts too; NULL is fine
// Frees all memory, including that of inner contexts; returns the bytes freed.
size_t lb_context_trim(lb_context *c);

// Prepares for a run that may use `limit` bytes for values (0: no limit). To be
// called on an outermost context; inner ones follow it.
void lb_context_begin(lb_context *c, size_t limit);
// To be called after a run. Frees all memory if each of the last
// LB_UNDERUSED_RUNS runs used less than half of it; returns the bytes freed.
#define LB_UNDERUSED_RUNS 128
size_t lb_context_end(lb_context *c);

lb_status lb_context_inner(lb_context *c, lb_context **out);

// LB_OOM if `bytes` more would exceed the limit.
lb_status lb_budget_check(const lb_budget *b, size_t bytes);

// Grows the arena to at least `bytes`, keeping its contents. LB_INVALID if the
// caller lends less.
lb_status lb_context_arena(lb_context *c, size_t bytes);
// Grows the arena for future runs, and writes to each page so that they do not
// fault it in. Does nothing if there is no memory.
void lb_context_prefault(lb_context *c, size_t bytes);
// The arena in the device's memory. Memory lent by the caller is host memory.
static inline void *lb_context_base(const lb_context *c) {
  return c->lends && lb_device_shares(c->device) ? c->lent : c->arena;
}
// At least n dynamic buffers.
lb_status lb_context_reserve_buffers(lb_context *c, uint32_t n);
// Keeps the plan as that of the last run; without memory for its key, keeps
// none.
void lb_context_cache_plan(lb_context *c, const void *key, size_t size,
                           lb_plan *plan);
// Releases that plan, in inner contexts too; NULL is fine.
void lb_context_drop_plan(lb_context *c);

// At least that many operands and bases; their contents are lost.
lb_status lb_context_reserve_operands(lb_context *c, size_t operands,
                                      size_t bases);
// Gives dynamic buffer i this dtype and these dims, keeping its contents; if it
// has to grow, reserves `spare` more bytes.
lb_status lb_context_resize_buffer(lb_context *c, uint32_t i,
                                   const lb_tensor *t, size_t spare);

#endif
