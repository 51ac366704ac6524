// api/primitive.h -- a primitive.
//
// (1) A primitive is immutable and refcounted: callers hold references, and so
//     does the runtime's cache. Equal keys share one while it is there.
// (2) It is a session on a graph of its own: every kernel, cover and plan is
//     found as for a model.
#ifndef LB_API_PRIMITIVE_H
#define LB_API_PRIMITIVE_H

#include "api/runtime.h"
#include "base/ref.h"
#include "primitive/graph.h"
#include "session/session.h"

struct limber_primitive {
  lb_ref ref;
  limber_runtime *runtime;  // borrowed
  lb_primitive_graph g;
  lb_session *session;  // owned
  lb_prefer prefer;     // of reusable kernels
  char *text;           // owned: the descriptor, for people
  uint8_t *key;         // owned; see primitive/desc.h
  size_t key_size;
  bool user_scratch;      // it has no memory of its own between steps
  bool runtime_dims;      // plans are made when dims are known
  size_t bytes;           // all it takes but for what executions add
  atomic_size_t counted;  // of what these added: the cache knows of it
};

limber_primitive *lb_primitive_retain(limber_primitive *p);
void lb_primitive_release(limber_primitive *p);  // NULL is fine

#endif
