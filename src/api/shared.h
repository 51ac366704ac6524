// api/shared.h -- the state that all runtimes of a process share: kernels and
// their slots, primitives, the byte budget of both, the disk store, the compile
// service and its worker.
//
// There is one such object per process. It is created with the first runtime,
// or earlier by a call that needs the cache, and it lives until the process
// exits, because threads of the program may still run sessions then. The
// environment variables that concern it are read once, when it is created.
//
// (1) A runtime joins when it is created and leaves when it is destroyed.
//     Events about the kernels that it uses, log lines and its runs go through
//     the hub. A log line about shared state goes to every runtime's log.
// (2) After a runtime has left, kernels that only it requested are not compiled
//     any more. Compiled kernels and primitives stay while the budget permits.
// (3) When the last runtime leaves, the service's thread and the worker process
//     end, so that a program that has destroyed its runtimes has no child
//     process left. They start again when they are needed.
#ifndef LB_API_SHARED_H
#define LB_API_SHARED_H

#include "api/found.h"
#include "api/jit.h"
#include "base/hub.h"
#include "cache/cache.h"

typedef struct lb_shared {
  lb_hub hub;
  lb_log log;  // forwards to the hub
  lb_lru lru;
  lb_kernels kernels;
  lb_cache primitives;  // by descriptor, attributes and runtime settings
  lb_found found;
} lb_shared;

// Joins the hub and creates the object if it does not exist yet. *shared is set
// only on success. The pointers in `who` must stay valid until the runtime has
// left.
lb_status lb_shared_join(const lb_member *who, lb_shared **shared,
                         lb_seat **seat);
void lb_shared_leave(lb_shared *shared, lb_seat *seat);

// Returns the object, which is created if it does not exist yet.
lb_status lb_shared_get(lb_shared **out);

#endif
