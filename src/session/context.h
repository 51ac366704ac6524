// session/context.h -- the memory of one run.
//
// A context serves one run at a time and keeps its memory for the next. A
// body of Loop or Scan runs in the inner context.
#ifndef LB_SESSION_CONTEXT_H
#define LB_SESSION_CONTEXT_H

#include "base/alloc.h"
#include "base/arena.h"
#include "base/tensor.h"

typedef struct lb_own {  // a buffer sized while running
  lb_tensor tensor;      // dense; data owned
  size_t cap;
} lb_own;

typedef struct lb_context {
  struct lb_context *next;   // in the free list
  struct lb_context *inner;  // owned; NULL until a body runs
  const lb_alloc *alloc;     // borrowed
  size_t limit;              // bytes for arena and own buffers; 0: none
  void *arena;               // owned
  size_t arena_cap;
  lb_own *own;  // owned, with their data
  uint32_t n_own;
  size_t own_bytes;
  uint64_t seed;     // for random operators; grows with each step
  lb_arena scratch;  // emptied after each step
  lb_arena keys;     // signatures and facts; emptied after each run
} lb_context;

lb_status lb_context_new(const lb_alloc *alloc, size_t limit, lb_context **out);
void lb_context_free(lb_context *c);  // NULL is fine; inner ones too
lb_status lb_context_inner(lb_context *c, lb_context **out);

// At least `bytes` of arena; what is there moves along.
lb_status lb_context_arena(lb_context *c, size_t bytes);
// At least n own buffers.
lb_status lb_context_owns(lb_context *c, uint32_t n);
// Memory for own buffer i with this dtype and dims; at least `spare` bytes more
// are kept if the buffer has to grow. Contents are kept.
lb_status lb_context_own(lb_context *c, uint32_t i, const lb_tensor *t,
                         size_t spare);

#endif
