// compile/pace.c -- how much processor time compiling may take from requests.
#include "compile/pace.h"

#define FASTER 5  // while there is something left of LB_PACE_FIRST
#define LEAST (LB_PACE_SHARE / 2)
#define STEP (LB_PACE_SHARE / 8)   // back, for each time without throttling
#define BEGIN (LB_PACE_SLICE / 2)  // in the bucket
#define FULL (LB_PACE_SLICE + BEGIN)
#define GLANCE INT64_C(2000000)       // ns between looks while it goes freely
#define LONGEST INT64_C(20000000)     // while it does not
#define OVERDRAWN INT64_C(100000000)  // more is forgiven

void lb_pace_init(lb_pace *p, double processors, int threads) {
  *p = (lb_pace){.processors = processors,
                 .threads = threads,
                 .share = LB_PACE_SHARE,
                 .first = LB_PACE_FIRST,
                 .last_run = INT64_MIN / 2};
}

// A run keeps all threads of its pool busy; more runs than these have a thread
// each.
static bool leave_none_free(const lb_pace *p, int inside) {
  int busy = inside > p->threads ? inside : p->threads;
  return busy + 1 > p->processors;
}

static lb_pace_state state_of(const lb_pace *p, const lb_pace_look *seen) {
  if (seen->wanted) return LB_PACE_WANTED;
  if (seen->now - p->last_run > LB_PACE_QUIET) return LB_PACE_FREE;
  if (!leave_none_free(p, seen->runs.inside)) return LB_PACE_FREE;
  return p->share < LB_PACE_SHARE ? LB_PACE_THROTTLED : LB_PACE_PRESSED;
}

static double rate(const lb_pace *p, int inside) {
  double runs = inside > 1 ? inside : 1;
  double share = p->first > 0 ? FASTER * p->share : p->share;
  return share * (runs < p->processors ? runs : p->processors);
}

static void fill(lb_pace *p, const lb_pace_look *seen, double per_ns) {
  int64_t passed = seen->now - p->now;
  if (passed > 0) p->level += (int64_t)(per_ns * (double)passed);
  p->level -= seen->spent;
  if (p->level > FULL) p->level = FULL;
  if (p->level < -OVERDRAWN) p->level = -OVERDRAWN;
}

int64_t lb_pace_look_at(lb_pace *p, const lb_pace_look *seen, int64_t *ns) {
  int64_t go = LB_PACE_FREELY;
  double per_ns = rate(p, seen->runs.inside);
  p->first -= seen->spent;
  if (seen->runs.inside || seen->runs.entered != p->entered)
    p->last_run = seen->now;
  p->state = state_of(p, seen);
  *ns = GLANCE;
  if (p->state >= LB_PACE_PRESSED) {
    fill(p, seen, per_ns);
    go = p->level >= BEGIN ? LB_PACE_SLICE : 0;
    *ns = (int64_t)((double)(LB_PACE_SLICE + go - p->level) / per_ns) + 1;
    if (*ns > LONGEST) *ns = LONGEST;
  } else {
    p->level = 0;
  }
  p->now = seen->now;
  p->entered = seen->runs.entered;
  return go;
}

void lb_pace_hear(lb_pace *p, double processors, uint64_t throttled) {
  bool grew = p->heard && throttled > p->throttled;
  p->processors = processors;
  p->throttled = throttled;
  p->heard = true;
  if (grew && p->state >= LB_PACE_PRESSED)
    p->share = LEAST;
  else if (!grew)
    p->share =
        p->share + STEP < LB_PACE_SHARE ? p->share + STEP : LB_PACE_SHARE;
}
