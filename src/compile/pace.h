// compile/pace.h -- how much CPU time compiling may take from requests.
//
// Terms. The CPU is *contended* while requests run, or did within
// LB_PACE_QUIET_NS, and leave no whole processor free. Compiling then spends
// from a token bucket, which fills with a share of the elapsed time for each
// running request; each of them loses about that share. While the CPU is not
// contended, or a caller waits for the kernels, there is no limit. The
// *payback* of a kernel is the fraction of its compile cost that it saves
// requests per second: at 0.1 it has paid for itself after ten seconds.
//
// (1) A slice starts when the bucket holds half of one, and may overdraw it;
//     the overdraft must be refilled before the next slice starts. Idle time is
//     not saved up.
// (2) The share grows with the payback: kernels that soon pay for themselves
//     are ready soon, and kernels that nothing needs cost next to nothing.
// (3) Where the process is throttled by a cgroup quota for more than a
//     hundredth of the time while the CPU is contended, the share is halved; it
//     recovers step by step.
// (4) Short slices are expensive: each runs with caches that requests have
//     filled, and waits for a processor until the next tick. So slices are
//     long, except beside long requests: these overlap with several slices
//     each, and all should lose the same. Of short requests hardly one in a
//     hundred overlaps with a slice, once nothing that pays is being compiled.
// (5) Pure: the caller passes clocks, counts and the time spent. One thread.
#ifndef LB_COMPILE_PACE_H
#define LB_COMPILE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"

// Nanoseconds after the last run until the CPU is no longer contended.
#define LB_PACE_QUIET_NS INT64_C(50000000)
// Shares, in processors per running request.
#define LB_PACE_MAX_SHARE 0.25
#define LB_PACE_PAYING_SHARE 0.04  // at least, for kernels that ever pay
#define LB_PACE_MIN_SHARE 0.01     // for kernels that do not
// Seconds to pay back: up to LB_PACE_SOON_S gets the largest share; more than
// LB_PACE_NEVER_S counts as never.
#define LB_PACE_SOON_S 5.0
#define LB_PACE_NEVER_S 1e4
#define LB_PACE_UNLIMITED INT64_MAX

typedef enum lb_pace_state {
  LB_PACE_FREE,       // not contended
  LB_PACE_AWAITED,    // a caller waits for the kernels
  LB_PACE_CONTENDED,  // limited by the bucket
  LB_PACE_THROTTLED,  // limited by the bucket, with a share reduced by a quota
} lb_pace_state;

typedef struct lb_pace {
  double processors;    // that this process may use
  bool quota_limited;   // a quota grants less than the allowed processors
  int threads;          // of the pools of the current runs, or of one
  double share;         // as of the last update
  double quota_factor;  // on the share; below 1 after throttling by a quota
  int64_t slice;        // ns
  int64_t balance;      // of the bucket, in ns; below 0: overdrawn
  lb_pace_state state;
  int64_t now, last_run;
  uint64_t entered;       // runs so far
  double busy, started;   // ns in runs, and runs started: decaying sums
  double request;         // mean ns of a request; 0: not known
  uint64_t throttled;     // ns throttled by the quota so far
  int64_t quota_read_at;  // when `throttled` was read; 0: not yet
} lb_pace;

// For runs of a pool of `threads` on `processors` (1.5: a quota).
void lb_pace_init(lb_pace *p, double processors, int threads);

typedef struct lb_pace_input {
  int64_t now;        // ns of the monotonic clock
  lb_pool_runs runs;  // see lb_pool_count
  bool awaited;       // a caller waits for the kernels
  double payback;     // the highest of the kernels to compile, per second
  int64_t spent;      // ns of CPU time since the last update
} lb_pace_input;
// How much CPU time compiling may take: 0, one or more slices spread over the
// time until the next update, or LB_PACE_UNLIMITED. The result holds for *ns
// nanoseconds; then update again.
int64_t lb_pace_update(lb_pace *p, const lb_pace_input *in, int64_t *ns);

bool lb_pace_is_contended(const lb_pace *p);  // as of the last update
// Contended, and does compiling pay so soon that it should not wait?
bool lb_pace_pays_soon(const lb_pace *p);

// To be called now and then: the processors available to this process, whether
// a quota makes these fewer than it is allowed, and the total ns for which the
// quota has throttled it.
void lb_pace_set_quota(lb_pace *p, int64_t now, double processors,
                       bool quota_limited, uint64_t throttled);

// Do requests use up a quota, so that compiling beside them would exceed it?
// Then it has to run on a processor of theirs, in their place.
bool lb_pace_displaces(const lb_pace *p, const lb_pool_runs *runs);

#endif
