// base/lock.c -- the list of all locks, and the atfork handlers.
#include "base/lock.h"

#include <stdatomic.h>

// The atfork handlers have no argument, hence a global list. Lock order:
// list_lock, then the locks; no other code holds two of them.
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static lb_lock *locks;
static atomic_uint forks;

static void before_fork(void) {
  pthread_mutex_lock(&list_lock);
  for (lb_lock *l = locks; l; l = l->next) lb_lock_take(l);
  for (lb_lock *l = locks; l; l = l->next)
    if (l->hooks.before) l->hooks.before(l);
}

static void after_fork(void) {
  for (lb_lock *l = locks; l; l = l->next) lb_lock_give(l);
  pthread_mutex_unlock(&list_lock);
}

static void after_fork_in_child(void) {
  atomic_fetch_add(&forks, 1);
  for (lb_lock *l = locks; l; l = l->next)
    if (l->hooks.in_child) l->hooks.in_child(l);
  after_fork();
}

static int atfork_error;

static void watch_forks(void) {
  atfork_error = pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

lb_status lb_lock_init_hooked(lb_lock *l, lb_fork_hooks hooks) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  if (atfork_error || pthread_mutex_init(&l->mutex, NULL)) return lb_oom();
  l->hooks = hooks;
  pthread_mutex_lock(&list_lock);
  l->prev = NULL;
  l->next = locks;
  if (locks) locks->prev = l;
  locks = l;
  pthread_mutex_unlock(&list_lock);
  return LB_OK;
}

lb_status lb_lock_init(lb_lock *l) {
  return lb_lock_init_hooked(l, (lb_fork_hooks){0});
}

void lb_lock_fini(lb_lock *l) {
  pthread_mutex_lock(&list_lock);
  *(l->prev ? &l->prev->next : &locks) = l->next;
  if (l->next) l->next->prev = l->prev;
  pthread_mutex_unlock(&list_lock);
  pthread_mutex_destroy(&l->mutex);
}

unsigned lb_fork_count(void) { return atomic_load(&forks); }
