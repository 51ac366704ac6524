// compile/throttle.h -- holds compiling back while requests need the
// processors: what pace.h decides, from all runs of this process, the clocks
// and the cgroups of this process.
//
// The thread that compiles asks before a job and again and again while one is
// under way; its own processor time counts, as does what it says that the
// worker has spent. lb_throttle_hurry is for any thread.
#ifndef LB_COMPILE_THROTTLE_H
#define LB_COMPILE_THROTTLE_H

#include <stdatomic.h>

#include "base/cpu.h"
#include "base/hub.h"
#include "compile/pace.h"

typedef struct lb_throttle_options {
  lb_hub *hub;  // whose runs are the requests; borrowed, may be NULL
  bool off;     // nothing is held back, ever
  // What that which is to be compiled returns (see pace.h): asked whenever the
  // thread asks, so it may as well see to what came up meanwhile. NULL:
  // nothing.
  double (*returns)(void *user);
  void *user;
} lb_throttle_options;

typedef struct lb_throttle {
  lb_throttle_options options;
  atomic_int hurried;

  // Of the thread.
  lb_pace pace;
  int64_t spent;    // ns of processor time, ever
  int64_t told;     // to the pace, of these
  int64_t own;      // of this thread, that is among them
  int64_t read_at;  // when cgroups were read; 0: not yet
  bool has_quota;
  int allowed;      // processors
  lb_cpu_mask all;  // these
  int cpu;          // that this thread and `placed` keep to, or -1
  pid_t placed;
  bool told_held;
  int64_t told_at;
} lb_throttle;

void lb_throttle_init(lb_throttle *b, const lb_throttle_options *o);
// Another thread compiles from now on, and calls this first.
void lb_throttle_begin(lb_throttle *b);

// The worker has used so much processor time.
void lb_throttle_spend(lb_throttle *b, int64_t ns);
// All that was spent until now, in ns.
int64_t lb_throttle_spent(lb_throttle *b);

// How long compiling may go on; see lb_pace_look_at.
int64_t lb_throttle_lets_go(lb_throttle *b, int64_t *ns);

// Has the worker and this thread run where they do no harm: under a quota,
// where the last request began. On another processor they would use up the
// quota in less than a period, and all threads be halted for the rest of it.
void lb_throttle_place(lb_throttle *b, pid_t worker);

// One more (1) or less (-1) waits for what is compiled: it is not held back.
void lb_throttle_hurry(lb_throttle *b, int by);

#endif
