// compile/service_internal.h -- the service from inside: for the files of this
// module alone.
//
// Lock order: s->lock, then nothing. It is held for as long as it takes to look
// through the queue, never while something is made.
//
// Those who ask push a slot on a stack and ring. The bell counts; the thread
// reads it before it looks for work, and sleeps only while it has not moved: no
// ring goes unheard. Whoever holds the lock empties the stack into the queue.
#ifndef LB_COMPILE_SERVICE_INTERNAL_H
#define LB_COMPILE_SERVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "compile/queue.h"
#include "compile/service.h"

enum { LB_THREAD_NONE, LB_THREAD_STARTING, LB_THREAD_RUNNING };

enum { LB_NO_SESSION = 0 };  // the session of what no run has met

struct lb_service {
  lb_kernel_builder *maker;  // owned
  lb_slots *slots;           // borrowed
  lb_hub *hub;               // borrowed; may be NULL
  const lb_log *log;         // borrowed
  lb_throttle brake;
  bool judges, find_only, has_store;
  atomic_bool listens;
  char *worker;  // path; owned

  _Atomic(lb_slot *) asked;  // the stack
  atomic_uint bell;          // the thread sleeps on it
  atomic_bool asleep;
  atomic_uint news;  // something was made or failed; who settles sleeps on it
  atomic_bool stop;
  atomic_uint sessions;   // that ever joined
  atomic_int holders;     // who have kernels made in the background, now
  _Atomic uint64_t jobs;  // begun
  atomic_bool decided;    // some trial may be

  // The thread, and the process it belongs to.
  atomic_int thread_state;     // LB_THREAD_...
  atomic_bool told;            // that it cannot be started
  atomic_bool resting;         // a thread is inside lb_service_rest
  atomic_uint forks, renewed;  // renewed: somebody has begun anew there
  pthread_t thread;

  lb_lock lock;  // of all below
  lb_queue queue;
  size_t looked_at;  // slots of the table that unmet ones were looked for among
  atomic_int settlers;  // read without the lock when the thread has ended
  uint64_t failures;    // of the worker; settle notices if it grows
  int failures_in_row;  // written by the thread alone
  int64_t rest_until;   // the worker is not tried before
  bool try_now;         // but for who began to settle since it failed
  lb_code fault;        // of the last failure
  char why[512];
  bool broken;  // for good: there is no executable memory

  // Of the thread alone.
  uint64_t job;     // the one in hand
  lb_slot *making;  // its slot, or NULL
  bool yields;      // the worker makes way for other programs
  bool warned;      // that nothing is made
  bool loads;       // what is on disk, a kernel at a time
  bool prepared;    // the worker was started, or is not needed
  int64_t awaited;  // since when it is needed; 0: it was not yet
  lb_pool_runs runs;
  int64_t last_run;
};

static inline bool lb_service_is_ours(const lb_service *s) {
  return atomic_load_explicit(&s->forks, memory_order_relaxed) ==
         lb_fork_count();
}

static inline bool lb_service_is_held(const lb_service *s) {
  return atomic_load_explicit(&s->holders, memory_order_relaxed) > 0;
}

// -- service.c

// Starts the thread if there is none: 0, or an error number.
int lb_service_start(lb_service *s);
// In a forked child, forgets what the thread of the other process had in hand.
// False if another thread does it.
bool lb_service_begin_anew(lb_service *s);
void lb_service_ring(lb_service *s);
// Pushes a slot on the stack; `p` is its profile. True if it was not asked for
// yet.
bool lb_service_ask(lb_service *s, lb_slot *slot, lb_slot_profile *p);
// Empties the stack into the queue. The lock is held.
void lb_service_collect(lb_service *s);
// Gives the lock back. Who settles may have found that something is asked for,
// just before the queue let it go (`before`: so many then): it asks again.
void lb_service_give_lock(lb_service *s, uint64_t before);
void lb_service_wake_settlers(lb_service *s);

// -- jobs.c

void *lb_service_serve(void *user);    // the thread; `user` is the service
double lb_service_attend(void *user);  // see lb_throttle_options.returns

#endif
