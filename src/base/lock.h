// base/lock.h -- a mutex that a forked child can take.
//
// fork copies the memory but only the thread that forks, so a mutex that
// another thread holds at that moment would stay taken in the child for ever.
// Whoever forks takes every lb_lock first and gives them back on both sides:
// in the child, too, what a lock guards is whole.
//
// A thread holds at most one lb_lock, and does not fork while it does.
#ifndef LB_BASE_LOCK_H
#define LB_BASE_LOCK_H

#include <pthread.h>

#include "base/status.h"

typedef struct lb_lock {
  pthread_mutex_t mutex;
  struct lb_lock *prev, *next;  // in the list that fork walks
} lb_lock;

lb_status lb_lock_init(lb_lock *l);
void lb_lock_fini(lb_lock *l);  // nobody holds it

// How many forks this process is away from the one that made the first lock.
// What a thread left undone under another number will never be finished.
unsigned lb_fork_count(void);

static inline void lb_lock_take(lb_lock *l) { pthread_mutex_lock(&l->mutex); }
static inline void lb_lock_give(lb_lock *l) { pthread_mutex_unlock(&l->mutex); }

#endif
