// session/context.h -- the memory of one run.
//
// A context serves one run at a time and keeps its memory for the next, unless
// runs have a limit: then what a run may do must not depend on the ones before.
// A body of Loop or Scan runs in the inner context.
#ifndef LB_SESSION_CONTEXT_H
#define LB_SESSION_CONTEXT_H

#include "base/alloc.h"
#include "base/arena.h"
#include "base/run_limits.h"
#include "base/tensor.h"
#include "cache/lru.h"
#include "plan/plan.h"
#include "session/watch.h"

typedef struct lb_dynamic_buffer {  // a buffer sized while running
  lb_tensor tensor;                 // dense; data owned
  size_t cap;
  size_t used;  // of it, by this run
} lb_dynamic_buffer;

// What one run takes, bodies of loops included: bytes for values, and turns.
typedef struct lb_budget {
  size_t limit;    // 0: none
  size_t kept;     // arenas and own buffers, used by this run or not
  size_t outputs;  // handed to the caller when the run ends
  int64_t turns;   // of the outermost Loop or Scan and of those inside it
} lb_budget;

// A device's copy of a tensor of the host: see session/remote.h.
typedef struct lb_remote {
  char *data;     // owned
  size_t cap;     // bytes
  size_t before;  // bytes before the tensor's first element
} lb_remote;

typedef struct lb_context {
  struct lb_context *inner;  // owned; NULL until a body runs
  const lb_alloc *alloc;     // borrowed
  lb_device *device;         // borrowed; its memory is the arena's
  lb_budget *budget;         // the outermost context's
  lb_budget own_budget;
  // Of this run, or of the last one: the context is one of its users
  // (session/versions.h). NULL: none. An inner context has the outermost one's.
  struct lb_version *version;
  lb_program *program;  // that of the version
  lb_epoch_reader
      *stay;  // the outermost context's: since when the run is inside
  lb_epoch_reader own_stay;
  const lb_watcher *watcher;  // of this run; borrowed, may be NULL
  lb_run_limits *bound;       // likewise
  lb_pool *pool;              // likewise
  const lb_alloc *results;    // for results of this run; borrowed
  void *arena;                // owned; of the device
  size_t arena_cap;           // that could be written
  size_t arena_kept;          // that runs have been using, and that counts
  size_t arena_used;          // of it, by this run
  // Memory of the caller's in the arena's place, for this run; borrowed.
  void *lent;
  size_t lent_bytes;
  bool lends;              // even if that is none
  lb_dynamic_buffer *own;  // owned, with their data
  uint32_t n_own;
  // For the step being run, and for the stage: see plan/plan.h. Owned.
  lb_tensor *operands;
  uintptr_t *bases;
  size_t n_operands, n_bases;
  // By number of their base, from LB_BASE_FIRST on; none for a device that
  // shares memory. Owned.
  lb_remote *remotes;
  size_t n_remotes;
  // The first plan of the last run and its signature, so that equal shapes in a
  // row look nothing up. Retained; owned.
  lb_plan *last;
  char *last_key;
  size_t last_size, last_cap;
  uint64_t seed;   // for random operators; grows with each step
  uint64_t run;    // number of the last run, of those of the session
  uint32_t roomy;  // runs in a row that filled less than half of it
  size_t counted;  // of budget->kept, by the session
  lb_plan_workspace workspace;  // where it plans
  lb_arena scratch;             // emptied after each step
  lb_arena keys;                // signatures and facts; emptied after each run
  lb_arena parts;               // what slices of a batch are given; likewise
} lb_context;

lb_status lb_context_new(const lb_alloc *alloc, lb_device *device,
                         lb_context **out);
void lb_context_free(lb_context *c);  // NULL is fine; inner ones too
// Gives back all memory, that of inner ones too; how much it was.
size_t lb_context_trim(lb_context *c);

// Makes it ready for a run that may take `limit` bytes (0: any number) for
// values. Without inner ones: they follow their outer one.
void lb_context_begin(lb_context *c, size_t limit);
// After a run: gives back all memory if LB_UNDERUSED_RUNS runs in a row have
// filled less than half of it; how much that was.
#define LB_UNDERUSED_RUNS 128
size_t lb_context_end(lb_context *c);

lb_status lb_context_inner(lb_context *c, lb_context **out);

// LB_OOM if `bytes` more would exceed the limit.
lb_status lb_budget_check(const lb_budget *b, size_t bytes);

// At least `bytes` of arena; what is there moves along. LB_INVALID if the
// caller lends less.
lb_status lb_context_arena(lb_context *c, size_t bytes);
// The same for runs to come, and writes to each page, so that they meet none
// for the first time; nothing where there is no memory.
void lb_context_touch(lb_context *c, size_t bytes);
// Memory of the device; what a caller lends is the host's.
static inline void *lb_context_base(const lb_context *c) {
  return c->lends && lb_device_shares(c->device) ? c->lent : c->arena;
}
// At least n own buffers.
lb_status lb_context_owns(lb_context *c, uint32_t n);
// Remembers the plan as the last one; without memory for it, forgets.
void lb_context_remember(lb_context *c, const void *key, size_t size,
                         lb_plan *plan);
// Forgets it, in inner ones too; NULL is fine.
void lb_context_forget(lb_context *c);

// At least that many operands and bases; what they hold is lost.
lb_status lb_context_room(lb_context *c, size_t operands, size_t bases);
// Memory for own buffer i with this dtype and dims; at least `spare` bytes more
// are kept if the buffer has to grow. Contents are kept.
lb_status lb_context_own(lb_context *c, uint32_t i, const lb_tensor *t,
                         size_t spare);

#endif
