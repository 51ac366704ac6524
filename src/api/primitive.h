// api/primitive.h -- primitives as the public functions see them.
//
// (1) The caller holds a handle (limber_primitive): a runtime and a reference
//     to the primitive itself (lb_primitive). The primitive is immutable,
//     refcounted and bound to no runtime. All runtimes of the process share it,
//     and it runs on the threads of the handle through which it is executed.
// (2) The primitive cache of the process holds a reference too. While a
//     primitive is cached, equal keys share it. A key consists of the
//     descriptor, the attributes, and the settings of the runtime where the
//     attributes leave something open.
// (3) A primitive is a session on a small graph: kernels, covers and plans are
//     found as for a model. Its memory comes from the C library, its results
//     from the runtime's allocator.
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
  lb_session *session;    // owned
  char *text;             // owned: the descriptor as text
  uint8_t *key;           // owned; see primitive/desc.h
  size_t key_size;        // bytes of the descriptor's key
  size_t cache_size;      // bytes of the cache key: that key, then settings
  bool user_scratch;      // executions supply memory for intermediate values
  bool runtime_dims;      // it is planned when dims are known
  size_t bytes;           // its size, without what executions add
  atomic_size_t counted;  // bytes added by executions that the cache counts
} lb_primitive;

struct limber_primitive {
  limber_runtime *runtime;  // borrowed
  lb_primitive *core;       // retained
  lb_prefer prefer;         // whether reusable kernels are preferred
  // The plan bytes of the session when the runtime last became a user of the
  // plans' slots; if they differ, there are new plans.
  atomic_size_t plan_bytes;
};

// Initialises the primitive cache of the process.
lb_status lb_primitives_init(lb_cache *cache, lb_lru *lru);

#endif
