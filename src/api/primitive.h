// api/primitive.h -- a primitive.
//
// (1) What a caller holds is a handle: a runtime, and a reference to the
//     primitive proper. That is immutable, refcounted and bound to no runtime:
//     all runtimes of the process share it, and it runs on the threads of
//     whichever handle it is executed through.
// (2) The cache of the process holds a reference, too. Equal keys share one
//     primitive while it is there: the descriptor, the attributes, and what the
//     runtime decides where these leave it open.
// (3) It is a session on a graph of its own: every kernel, cover and plan is
//     found as for a model. Its memory comes from the C library, results from
//     the runtime's allocator.
#ifndef LB_API_PRIMITIVE_H
#define LB_API_PRIMITIVE_H

#include "api/runtime.h"
#include "base/ref.h"
#include "primitive/graph.h"
#include "session/session.h"

typedef struct lb_primitive {
  lb_ref ref;
  lb_shared *shared;  // borrowed
  lb_primitive_graph g;
  lb_session *session;  // owned
  char *text;           // owned: the descriptor, for people
  uint8_t *key;         // owned; see primitive/desc.h
  size_t key_size;
  size_t cache_size;      // of the same and what follows: the cache's key
  bool user_scratch;      // it has no memory of its own between steps
  bool runtime_dims;      // plans are made when dims are known
  size_t bytes;           // all it takes but for what executions add
  atomic_size_t counted;  // of what these added: the cache knows of it
} lb_primitive;

struct limber_primitive {
  limber_runtime *runtime;  // borrowed
  lb_primitive *core;       // retained
  lb_prefer prefer;         // of reusable kernels
  // Of the plans whose slots are known to be used by the runtime.
  atomic_size_t plan_bytes;
};

lb_status lb_primitives_init(lb_cache *cache, lb_lru *lru);

#endif
