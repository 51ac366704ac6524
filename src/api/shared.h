// api/shared.h -- what all runtimes of a process share: kernels and their
// slots, primitives, the byte budget of both, the disk store, the compile
// service and its worker.
//
// There is one such object in a process. It is made when the first runtime is,
// or when a program asks for the cache before that, and lives until the process
// exits: threads of the program may still run sessions then. Whatever of the
// environment concerns it is read at that moment, once.
//
// (1) A runtime joins when it is made and leaves when it is destroyed: events
//     about the kernels it uses, log lines and its runs go through the hub. A
//     log line of what is shared goes to every runtime's log.
// (2) When a runtime has left, what only it wanted is not compiled any more.
//     Kernels and primitives stay, as long as the budget has room for them.
// (3) With the last runtime, the service's thread and the worker end, so that a
//     program that has destroyed its runtimes has no process of ours left. They
//     begin again when they are needed.
#ifndef LB_API_SHARED_H
#define LB_API_SHARED_H

#include "api/found.h"
#include "api/jit.h"
#include "base/hub.h"
#include "cache/cache.h"

typedef struct lb_shared {
  lb_hub hub;
  lb_log log;  // that of the hub
  lb_lru lru;
  lb_kernels kernels;
  lb_cache primitives;  // by descriptor, attributes and what runtimes decide
  lb_found found;
} lb_shared;

// Joins, and makes the object if it is not there yet; *shared is set on success
// alone. What `who` borrows must stay until it has left.
lb_status lb_shared_join(const lb_member *who, lb_shared **shared,
                         lb_seat **seat);
void lb_shared_leave(lb_shared *shared, lb_seat *seat);

// The object, made if it is not there yet.
lb_status lb_shared_get(lb_shared **out);

#endif
