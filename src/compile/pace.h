// compile/pace.h -- how much processor time compiling may take from requests.
//
// Terms. Requests *press* while some run, or did until a moment ago, and leave
// no whole processor free. What compiling spends then comes out of a bucket,
// which fills with a share of the time that passes, once for each request that
// runs: that is about what each of them loses. While nobody presses, or
// somebody waits for what is compiled, there is no limit.
//
// (1) A slice begins when half of one is in the bucket, and may overdraw it;
//     what was overdrawn has to come in before the next begins. Rest is not
//     saved up.
// (2) Where a quota of the system is used up for more than a hundredth of the
//     time while requests press, half of the share is taken, and it comes back
//     step by step.
// (3) A process that begins may spend LB_PACE_FIRST at five times the share:
//     requests soon have back what they lose, by the kernels that matter most.
// (4) A request that is long meets several slices, so these are short: all
//     requests lose about the same. Short ones meet none or one, so slices are
//     long: few requests lose anything. In the beginning (3) they are as long
//     as they get: each waits for a processor, until the next tick, so that
//     short ones would not come to their share.
// (5) Pure: clocks, counts and what was spent are given. One thread.
#ifndef LB_COMPILE_PACE_H
#define LB_COMPILE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"

#define LB_PACE_SLICE INT64_C(500000)    // ns; while requests are unknown
#define LB_PACE_QUIET INT64_C(50000000)  // ns without a run: none presses
#define LB_PACE_SHARE 0.05
#define LB_PACE_FIRST INT64_C(400000000)  // ns
#define LB_PACE_FREELY INT64_MAX

typedef enum lb_pace_state {
  LB_PACE_FREE,       // nobody presses
  LB_PACE_WANTED,     // somebody waits
  LB_PACE_PRESSED,    // out of the bucket
  LB_PACE_THROTTLED,  // the same, and the share is less
} lb_pace_state;

typedef struct lb_pace {
  double processors;  // that this process may use
  bool scarce;        // there are more: a quota does not grant them
  int threads;        // of a run
  double share;
  int64_t slice;
  int64_t level;  // ns; below 0: overdrawn
  int64_t first;  // ns that are left of LB_PACE_FIRST
  lb_pace_state state;
  int64_t now, last_run;
  uint64_t entered;    // runs, ever
  double busy, begun;  // ns of runs and their number, lately
  uint64_t throttled;  // ns, ever
  int64_t heard;       // of it when; 0: not yet
} lb_pace;

// Runs of a pool of `threads`, on so many processors (1.5: a quota).
void lb_pace_init(lb_pace *p, double processors, int threads);

typedef struct lb_pace_look {
  int64_t now;        // ns of the monotonic clock
  lb_pool_runs runs;  // see lb_pool_count
  bool wanted;        // somebody waits for what is compiled
  int64_t spent;      // ns of processor time, since the last look
} lb_pace_look;
// How much processor time compiling may take: 0, some slices, spread over the
// time, or LB_PACE_FREELY. *ns: when to look again; then that holds no more.
int64_t lb_pace_look_at(lb_pace *p, const lb_pace_look *seen, int64_t *ns);

// How many processors there are to use, fewer than there are (scarce) or not,
// and for how many ns a quota was used up, ever: from time to time.
void lb_pace_hear(lb_pace *p, int64_t now, double processors, bool scarce,
                  uint64_t throttled);

// Is there a quota, and nothing left of it that compiling could use beside
// requests? Then it has to take their place.
bool lb_pace_displaces(const lb_pace *p, const lb_pool_runs *runs);

#endif
