// compile/service_internal.h -- the service's struct, for the files of this
// module only.
//
// Lock order: no other lock is taken while s->lock is held. It is held while
// the queue is searched, never while compiling.
//
// To queue a slot, a thread pushes it on a lock-free stack and wakes the
// service's thread. The thread reads `wake_count` before it looks for work and
// sleeps only while the count is unchanged, so no wake is lost. The holder of
// the lock moves the stack into the queue.
#ifndef LB_COMPILE_SERVICE_INTERNAL_H
#define LB_COMPILE_SERVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "compile/queue.h"
#include "compile/service.h"

enum { LB_THREAD_NONE, LB_THREAD_STARTING, LB_THREAD_RUNNING };

enum { LB_NO_SESSION = 0 };  // the session of slots that no run has used

struct lb_service {
  lb_kernel_builder *builder;  // owned
  lb_slots *slots;             // borrowed
  lb_hub *hub;                 // borrowed; may be NULL
  const lb_log *log;           // borrowed
  lb_throttle throttle;
  bool trials, find_only, has_store;
  atomic_bool wants_samples;
  char *worker;  // path; owned

  _Atomic(lb_slot *) stack;  // top of the stack
  atomic_uint wake_count;    // the thread sleeps on it
  atomic_bool asleep;
  atomic_uint progress;  // a job was done or failed; settlers sleep on it
  atomic_bool stop;
  atomic_uint sessions;         // joined so far
  atomic_int background_users;  // see lb_service_begin_background
  _Atomic uint64_t jobs;        // started so far
  atomic_bool decided;          // some trial may be

  // The thread, and the process it belongs to.
  atomic_int thread_state;         // LB_THREAD_...
  atomic_bool warned_thread;       // that it cannot be started
  atomic_bool stopping;            // a thread is in lb_service_try_stop
  atomic_uint forks, reset_forks;  // fork counts: of the state; of the last
                                   // reset, which may still be in progress
  pthread_t thread;

  lb_lock lock;  // protects all below, down to the thread's own fields
  lb_queue queue;
  size_t scanned;         // slots of the table already scanned for unused ones
  atomic_int settlers;    // read without the lock when the thread has ended
  uint64_t failures;      // of the worker; settle notices if it grows
  int failures_in_row;    // written by the thread only
  int64_t backoff_until;  // ns; the worker is not tried before
  bool try_now;   // except for a caller that began to settle since it failed
  lb_code fault;  // of the last failure
  char why[512];
  bool no_exec_memory;  // permanently

  // Used by the thread only.
  uint64_t job;          // number of the current job
  lb_slot *compiling;    // its slot, or NULL
  bool yields;           // the worker runs at low priority
  bool warned;           // that nothing is compiled
  bool preloading;       // kernels on disk remain to be loaded, one at a time
  bool worker_prepared;  // the worker was started, or is not needed
  int64_t needed_since;  // ns: when it was first needed; 0: not yet
  lb_pool_runs runs;
  int64_t last_run;
};

static inline bool lb_service_is_ours(const lb_service *s) {
  return atomic_load_explicit(&s->forks, memory_order_relaxed) ==
         lb_fork_count();
}

static inline bool lb_service_has_background(const lb_service *s) {
  return atomic_load_explicit(&s->background_users, memory_order_relaxed) > 0;
}

// -- service.c

// Starts the thread if there is none: 0, or an error number.
int lb_service_start(lb_service *s);
// In a forked child, resets the state that the parent's thread left behind.
// False if another thread does it.
bool lb_service_after_fork(lb_service *s);
void lb_service_wake(lb_service *s);
// Pushes a slot on the stack; `p` is its profile. True if it was not queued
// yet.
bool lb_service_enqueue(lb_service *s, lb_slot *slot, lb_slot_profile *p);
// Moves the stack into the queue. The lock is held.
void lb_service_collect(lb_service *s);
// Gives the lock back. A settler may have seen a slot as queued just before the
// queue released it (`before`: the count of released slots at that time); if
// so, settlers are woken and queue it again.
void lb_service_unlock(lb_service *s, uint64_t before);
void lb_service_wake_settlers(lb_service *s);

// -- jobs.c

void *lb_service_main(void *user);   // the thread; `user` is the service
double lb_service_poll(void *user);  // see lb_throttle_options.payback

#endif
