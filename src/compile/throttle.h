// compile/throttle.h -- throttles compiling while requests need the processors:
// applies pace.h to the runs, clocks and cgroups of this process.
//
// The compile thread asks for a grant before each job and repeatedly during it.
// Its own CPU time counts against the grant, as does the worker's, which it
// reports with lb_throttle_spend. lb_throttle_add_waiter is for any thread.
#ifndef LB_COMPILE_THROTTLE_H
#define LB_COMPILE_THROTTLE_H

#include <stdatomic.h>

#include "base/cpu.h"
#include "base/hub.h"
#include "compile/pace.h"

typedef struct lb_throttle_options {
  lb_hub *hub;  // whose runs are the requests; borrowed, may be NULL
  bool off;     // never throttle
  // Returns the payback of what is to be compiled (see pace.h). It is called at
  // each lb_throttle_grant, so it may do other periodic work too. NULL: 0.
  double (*payback)(void *user);
  void *user;
} lb_throttle_options;

typedef struct lb_throttle {
  lb_throttle_options options;
  atomic_int waiters;  // callers that wait for kernels

  // Used by the compile thread only.
  lb_pace pace;
  int64_t spent;      // ns of CPU time so far, of the worker and the thread
  int64_t reported;   // part of `spent` that was passed to the pace
  int64_t thread_ns;  // CPU time of this thread that `spent` includes
  int64_t read_at;    // when cgroups were read; 0: not yet
  bool has_quota;
  int allowed;      // number of processors in `all`
  lb_cpu_mask all;  // processors that this process may use
  int cpu;          // that this thread and `placed_pid` are pinned to, or -1
  pid_t placed_pid;
  bool event_throttled;  // what the last event said
  int64_t event_at;      // when it was emitted
} lb_throttle;

void lb_throttle_init(lb_throttle *t, const lb_throttle_options *o);
// The calling thread becomes the compile thread.
void lb_throttle_begin(lb_throttle *t);

// The worker has used `ns` more of CPU time.
void lb_throttle_spend(lb_throttle *t, int64_t ns);
// All CPU time spent so far, in ns.
int64_t lb_throttle_spent(lb_throttle *t);

// How much CPU time compiling may use; see lb_pace_update.
int64_t lb_throttle_grant(lb_throttle *t, int64_t *ns);

// Under a quota that requests use up, pins the worker and this thread to the
// processor where the last request started. On another one they would exhaust
// the quota before the end of its period, and the system would halt all threads
// for the rest of it.
void lb_throttle_place(lb_throttle *t, pid_t worker);

// Adds (1) or removes (-1) a caller that waits for kernels: while there is one,
// compiling is not throttled.
void lb_throttle_add_waiter(lb_throttle *t, int by);

#endif
