// base/lock.h -- a mutex that a forked child can take.
//
// fork copies the memory but only the thread that forks, so a mutex that
// another thread holds at that moment would stay taken in the child for ever.
// Whoever forks takes every lb_lock first and gives them back on both sides:
// in the child, too, what a lock guards is whole.
//
// A thread holds at most one lb_lock, and does not fork while it does.
//
// What must not be shared with a child, such as a database, is put away by the
// hooks of the lock that guards it.
#ifndef LB_BASE_LOCK_H
#define LB_BASE_LOCK_H

#include <pthread.h>

#include "base/status.h"

typedef struct lb_lock lb_lock;

// Called with the lock taken; either may be NULL. They take no other lock.
typedef struct lb_fork_hooks {
  void (*before)(lb_lock *l);    // in the process that forks
  void (*in_child)(lb_lock *l);  // calls only what a signal handler may
} lb_fork_hooks;

struct lb_lock {
  pthread_mutex_t mutex;
  lb_fork_hooks hooks;
  lb_lock *prev, *next;  // in the list that fork walks
};

lb_status lb_lock_init(lb_lock *l);
lb_status lb_lock_init_hooked(lb_lock *l, lb_fork_hooks hooks);
void lb_lock_fini(lb_lock *l);  // nobody holds it

// How many forks this process is away from the one that made the first lock.
// What a thread left undone under another number will never be finished.
unsigned lb_fork_count(void);

static inline void lb_lock_take(lb_lock *l) { pthread_mutex_lock(&l->mutex); }
static inline void lb_lock_give(lb_lock *l) { pthread_mutex_unlock(&l->mutex); }

#endif
