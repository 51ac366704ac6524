// base/lock.h -- a mutex that a forked child can take.
//
// fork copies the memory but only the calling thread, so a mutex that another
// thread holds at that moment would stay locked in the child for ever. An
// atfork handler therefore takes every lb_lock before a fork and releases them
// in parent and child, so that guarded data is consistent in the child too.
//
// A thread holds at most one lb_lock, and must not fork while it does.
//
// Objects that must not be shared with a child, such as a database connection,
// are closed by the hooks of the lock that guards them.
#ifndef LB_BASE_LOCK_H
#define LB_BASE_LOCK_H

#include <pthread.h>

#include "base/status.h"

typedef struct lb_lock lb_lock;

// Called with the lock taken; either may be NULL. They take no other lock.
typedef struct lb_fork_hooks {
  void (*before)(lb_lock *l);    // in the parent
  void (*in_child)(lb_lock *l);  // may call async-signal-safe functions only
} lb_fork_hooks;

struct lb_lock {
  pthread_mutex_t mutex;
  lb_fork_hooks hooks;
  lb_lock *prev, *next;  // in the list that fork walks
};

lb_status lb_lock_init(lb_lock *l);
lb_status lb_lock_init_hooked(lb_lock *l, lb_fork_hooks hooks);
void lb_lock_fini(lb_lock *l);  // it must not be held

// The number of forks between the process that created the first lock and this
// one. Work that a thread began under another number will never be finished.
unsigned lb_fork_count(void);

static inline void lb_lock_take(lb_lock *l) { pthread_mutex_lock(&l->mutex); }
static inline void lb_lock_give(lb_lock *l) { pthread_mutex_unlock(&l->mutex); }

#endif
