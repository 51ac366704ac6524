// compile/pace.h -- how much processor time compiling may take from requests.
//
// Terms. Requests *press* while some run, or did until a moment ago, and leave
// no whole processor free. What compiling spends then comes out of a bucket,
// which fills with a share of the time that passes, once for each request that
// runs: that is about what each of them loses. While nobody presses, or
// somebody waits for what is compiled, there is no limit. What a kernel
// *returns* is the part of its cost that requests have back in each second once
// it is there: 0.1 has paid for itself after ten.
//
// (1) A slice begins when half of one is in the bucket, and may overdraw it;
//     what was overdrawn has to come in before the next begins. Rest is not
//     saved up.
// (2) The share grows with what is returned: what soon pays for itself is
//     there soon, and what nobody needs costs nobody anything.
// (3) Where a quota of the system is used up for more than a hundredth of the
//     time while requests press, half of the share is taken, and it comes back
//     step by step.
// (4) Short slices are dear: each finds caches that requests have filled, and
//     waits for a processor until the next tick. So slices are long, unless
//     requests are too: these meet several each, and all are to lose the same.
//     Of short requests hardly one in a hundred meets a slice, as soon as
//     nothing is compiled that pays.
// (5) Pure: clocks, counts and what was spent are given. One thread.
#ifndef LB_COMPILE_PACE_H
#define LB_COMPILE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"

#define LB_PACE_QUIET INT64_C(50000000)  // ns without a run: none presses
#define LB_PACE_MOST 0.25                // of a processor
#define LB_PACE_SOME 0.04                // for what pays ever
#define LB_PACE_LEAST 0.01               // for what does not
#define LB_PACE_SOON 5.0  // seconds: what pays in these gets the most
#define LB_PACE_EVER 1e4  // seconds: what does not pay in these never does
#define LB_PACE_FREELY INT64_MAX

typedef enum lb_pace_state {
  LB_PACE_FREE,       // nobody presses
  LB_PACE_WANTED,     // somebody waits
  LB_PACE_CONTENDED,  // out of the bucket
  LB_PACE_THROTTLED,  // the same, and the share is less
} lb_pace_state;

typedef struct lb_pace {
  double processors;  // that this process may use
  bool scarce;        // there are more: a quota does not grant them
  int threads;        // of the runs that are inside, or of one
  double share;       // by the last look
  double left;        // of it, where a quota is used up; else 1
  int64_t slice;
  int64_t level;  // ns; below 0: overdrawn
  lb_pace_state state;
  int64_t now, last_run;
  uint64_t entered;    // runs, ever
  double busy, begun;  // ns of runs and their number, lately
  double request;      // ns that one takes; 0: not known
  uint64_t throttled;  // ns, ever
  int64_t heard;       // of it when; 0: not yet
} lb_pace;

// Runs of a pool of `threads`, on so many processors (1.5: a quota).
void lb_pace_init(lb_pace *p, double processors, int threads);

typedef struct lb_pace_look {
  int64_t now;        // ns of the monotonic clock
  lb_pool_runs runs;  // see lb_pool_count
  bool wanted;        // somebody waits for what is compiled
  double returns;     // of its cost, in a second: the best that is to be made
  int64_t spent;      // ns of processor time, since the last look
} lb_pace_look;
// How much processor time compiling may take: 0, some slices, spread over the
// time, or LB_PACE_FREELY. *ns: when to look again; then that holds no more.
int64_t lb_pace_look_at(lb_pace *p, const lb_pace_look *seen, int64_t *ns);

bool lb_pace_is_contended(const lb_pace *p);  // do requests, by the last look?
// ... and does what is compiled pay so soon that it should not wait?
bool lb_pace_hurries(const lb_pace *p);

// How many processors there are to use, fewer than there are (scarce) or not,
// and for how many ns a quota was used up, ever: from time to time.
void lb_pace_hear(lb_pace *p, int64_t now, double processors, bool scarce,
                  uint64_t throttled);

// Is there a quota, and nothing left of it that compiling could use beside
// requests? Then it has to take their place.
bool lb_pace_displaces(const lb_pace *p, const lb_pool_runs *runs);

#endif
